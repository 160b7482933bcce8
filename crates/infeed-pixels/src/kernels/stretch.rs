//! The horizontal pass of images that are enlarged horizontally, one plane at a time.
//!
//! Sixteen outputs side by side read only a few source pixels. These are loaded once and permuted within a register,
//! once for each tap of an output: two, or up to six. The tables of a run serve several lines. The vertical pass stored
//! these lines early enough for loads of other addresses and widths. Sums equal those of the general pass, bit by bit.

use super::{
    lanes,
    level::{Instructions, Level},
    params::{Axis, Filter, ResampleParams, RowSpec},
    taps::Taps,
};

#[cfg(target_arch = "x86_64")]
use avx512::{floats, put, whole};

/// Values after the last one that a run of outputs may load.
pub(super) const SPARE: usize = 16;

/// Number of lines that are made at a time; tables are read once for all of them.
pub(super) const ROWS: usize = 4;

/// Taps per output of Lanczos' filter if it is not widened. Rounding may give more; the general pass handles these.
const MOST_TAPS: usize = 6;

/// How runs of outputs read a row. Kept from image to image: images of one size share it.
#[derive(Debug, Default)]
pub(super) struct Stretch {
    of: Option<(Axis, Axis, u32, u32, Filter)>,
    fits: bool,
    /// Outputs per run: 16, 8, or none.
    width: usize,
    pub(super) x: Taps,
    pub(super) y: Taps,
    /// First source pixel and first output of each run.
    runs: Vec<(u32, u32)>,
    /// For each output of each run: its first source pixel relative to the run's, the weights of its two taps, and -1
    /// if there are two.
    index: Vec<i32>,
    near: Vec<f32>,
    far: Vec<f32>,
    two: Vec<i32>,
    /// If outputs have more than two taps: the greatest number of taps; for each tap of each run, the weights; for each
    /// output, its number of taps.
    taps: usize,
    many: Vec<f32>,
    counts: Vec<i32>,
}

/// Outputs per run; 0 if the machine has no such registers.
fn lanes_at(level: Level) -> usize {
    match level.instructions() {
        Instructions::Avx512 => 16,
        Instructions::Avx2 => 8,
        Instructions::Portable => 0,
    }
}

impl Stretch {
    pub(super) fn held_bytes(&self) -> usize {
        let taps = |taps: &Taps| taps.first.capacity() + taps.count.capacity() + taps.weights.capacity();
        4 * (taps(&self.x) + taps(&self.y) + 2 * self.runs.capacity())
            + 4 * (self.many.capacity() + self.counts.capacity())
            + 4 * (self.index.capacity() + self.near.capacity() + self.far.capacity() + self.two.capacity())
    }

    /// Makes the tables for `params`; returns whether [`rows`](Self::rows) supports them.
    pub(super) fn prepare(&mut self, level: Level, params: &ResampleParams, row: &RowSpec) -> bool {
        // The second condition: sources are no taller than rows, which bounds the scratch memory.
        if params.x.step >= 1.0 || params.y.step > 1.0 {
            return false;
        }
        let filter = params.filter;
        let (lanes, taps) = (lanes_at(level) as f32, MOST_TAPS as f32);
        // The tables would not be used.
        if filter.overshoots() && lanes * params.x.step + taps > lanes {
            return false;
        }
        let of = (params.x, params.y, row.width, row.height, filter);
        if self.of == Some(of) {
            return self.fits;
        }
        lanes::build(level, &mut self.x, &params.x, row.width, filter);
        lanes::build(level, &mut self.y, &params.y, row.height, filter);
        let left = params.x.reads(row.width, filter).start;
        self.x.first.iter_mut().for_each(|first| *first -= left);
        self.width = lanes_at(level);
        self.fits = self.make_runs(self.width, filter.overshoots());
        self.of = Some(of);
        self.fits
    }

    fn make_runs(&mut self, width: usize, overshoots: bool) -> bool {
        let Self { x, runs, index, near, far, two, taps, many, counts, .. } = self;
        runs.clear();
        index.clear();
        near.clear();
        far.clear();
        two.clear();
        many.clear();
        counts.clear();
        let n = x.outputs();
        if width == 0 || n < width || x.most > MOST_TAPS {
            return false;
        }
        *taps = x.most.max(2);
        let is_short = *taps == 2 && !overshoots;
        // The last run overlaps the one before it and writes the same values again.
        let starts = (0..n / width).map(|run| run * width).chain((n % width > 0).then_some(n - width));
        for start in starts {
            let outputs = start..start + width;
            let base = x.first[outputs.clone()].iter().copied().min().unwrap_or(0);
            runs.push((base, start as u32));
            if !is_short {
                for o in outputs.clone() {
                    let at = x.first[o] - base;
                    if (at + x.count[o]) as usize > width {
                        return false;
                    }
                    index.push(at as i32);
                    counts.push(x.count[o] as i32);
                }
                for t in 0..*taps {
                    many.extend(outputs.clone().map(|o| x.weights[o * x.stride..][..x.stride].get(t).unwrap_or(&0.0)));
                }
                continue;
            }
            for o in outputs {
                let at = x.first[o] - base;
                if at as usize + 1 >= width {
                    return false;
                }
                let weights = &x.weights[o * x.stride..];
                index.push(at as i32);
                near.push(weights[0]);
                far.push(if x.count[o] > 1 { weights[1] } else { 0.0 });
                two.push(if x.count[o] > 1 { -1 } else { 0 });
            }
        }
        true
    }

    /// For each of the lines in `out`, which are `width` apart: `out[from + o]` = the weighted sum of output `o`'s taps
    /// in the line's part of `src` (`pitch` apart), clamped to `0..most` if the filter overshoots, times `scale`, plus
    /// `bias`. At most [`ROWS`] lines.
    ///
    /// `src` must have [`SPARE`] values after those that taps read. [`prepare`](Self::prepare) must have returned true.
    #[expect(clippy::too_many_arguments, reason = "two grids of lines, and what becomes of a value")]
    pub(super) fn rows(
        &self,
        src: &[f32],
        pitch: usize,
        most: Option<f32>,
        scale: f32,
        bias: f32,
        out: &mut [f32],
        width: usize,
    ) {
        let overshoots = self.of.is_some_and(|of| of.4.overshoots());
        let within = most.filter(|_| overshoots).map_or([f32::NEG_INFINITY, f32::INFINITY], |most| [0.0, most]);
        let lines = Lines { src, pitch, out, width, within, scale, bias };
        #[cfg(target_arch = "x86_64")]
        match (self.width, self.taps > 2 || overshoots, lines.out.len() == ROWS * width) {
            // SAFETY: `prepare` found AVX-512F on this machine.
            (16, false, true) => unsafe { self.rows_avx512::<ROWS>(lines) },
            // SAFETY: the same.
            (16, true, true) => unsafe { self.many_avx512::<ROWS>(lines) },
            // SAFETY: `prepare` found AVX2 and FMA on this machine.
            (8, false, true) => unsafe { self.rows_avx2::<ROWS>(lines) },
            // SAFETY: the same.
            (8, true, true) => unsafe { self.many_avx2::<ROWS>(lines) },
            _ => {
                let Lines { out, .. } = lines;
                for (line, out) in out.chunks_exact_mut(width).enumerate() {
                    let src = &src[line * pitch..];
                    let lines = Lines { src, pitch, out, width, within, scale, bias };
                    match (self.width, self.taps > 2 || overshoots) {
                        // SAFETY: as above.
                        (16, false) => unsafe { self.rows_avx512::<1>(lines) },
                        // SAFETY: as above.
                        (16, true) => unsafe { self.many_avx512::<1>(lines) },
                        // SAFETY: as above.
                        (8, false) => unsafe { self.rows_avx2::<1>(lines) },
                        // SAFETY: as above.
                        (8, true) => unsafe { self.many_avx2::<1>(lines) },
                        _ => {}
                    }
                }
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = lines;
    }

    /// [`rows_avx512`](Self::rows_avx512) for any number of taps.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f")]
    fn many_avx512<const N: usize>(&self, mut lines: Lines<'_>) {
        use std::arch::x86_64::{
            __m512i, _mm512_add_epi32, _mm512_cmpgt_epi32_mask, _mm512_fmadd_ps, _mm512_mask3_fmadd_ps, _mm512_max_ps,
            _mm512_min_ps, _mm512_permutexvar_ps, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps,
        };
        let [low, high] = lines.within.map(|end| _mm512_set1_ps(end));
        let (scale, bias, one) = (_mm512_set1_ps(lines.scale), _mm512_set1_ps(lines.bias), _mm512_set1_epi32(1));
        let tables = self.index.as_chunks::<16>().0.iter().zip(self.counts.as_chunks::<16>().0);
        let weights = self.many.as_chunks::<16>().0.chunks_exact(self.taps);
        for (((index, counts), weights), &(base, start)) in tables.zip(weights).zip(&self.runs) {
            let (mut index, counts): (__m512i, __m512i) = (whole(index), whole(counts));
            let mut tap = _mm512_set1_epi32(0);
            let mut pixels = [_mm512_setzero_ps(); N];
            for (line, pixels) in pixels.iter_mut().enumerate() {
                *pixels = floats(lines.pixels(line, base));
            }
            let mut sums = [_mm512_setzero_ps(); N];
            for weights in weights {
                // Only an output's own taps: values after them may be infinite.
                let own = _mm512_cmpgt_epi32_mask(counts, tap);
                for line in 0..N {
                    let pixel = _mm512_permutexvar_ps(index, pixels[line]);
                    sums[line] = _mm512_mask3_fmadd_ps(floats(weights), pixel, sums[line], own);
                }
                (index, tap) = (_mm512_add_epi32(index, one), _mm512_add_epi32(tap, one));
            }
            for (line, sum) in sums.into_iter().enumerate() {
                // In this order NaN stays NaN.
                let sum = _mm512_min_ps(high, _mm512_max_ps(low, sum));
                put(_mm512_fmadd_ps(sum, scale, bias), lines.out(line, self.x.from, start));
            }
        }
    }

    /// [`rows_avx2`](Self::rows_avx2) for any number of taps.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    fn many_avx2<const N: usize>(&self, mut lines: Lines<'_>) {
        use std::arch::x86_64::{
            __m256, __m256i, _mm256_add_epi32, _mm256_blendv_ps, _mm256_castsi256_ps, _mm256_cmpgt_epi32,
            _mm256_fmadd_ps, _mm256_max_ps, _mm256_min_ps, _mm256_permutevar8x32_ps, _mm256_set1_epi32, _mm256_set1_ps,
            _mm256_setzero_ps,
        };
        let [low, high] = lines.within.map(|end| _mm256_set1_ps(end));
        let (scale, bias, one) = (_mm256_set1_ps(lines.scale), _mm256_set1_ps(lines.bias), _mm256_set1_epi32(1));
        let tables = self.index.as_chunks::<8>().0.iter().zip(self.counts.as_chunks::<8>().0);
        let weights = self.many.as_chunks::<8>().0.chunks_exact(self.taps);
        for (((index, counts), weights), &(base, start)) in tables.zip(weights).zip(&self.runs) {
            let (mut index, counts): (__m256i, __m256i) = (bytemuck::cast(*index), bytemuck::cast(*counts));
            let mut tap = _mm256_set1_epi32(0);
            let pixels: [__m256; N] = std::array::from_fn(|line| bytemuck::cast(*lines.pixels::<8>(line, base)));
            let mut sums = [_mm256_setzero_ps(); N];
            for weights in weights {
                // Only an output's own taps: values after them may be infinite.
                let own = _mm256_castsi256_ps(_mm256_cmpgt_epi32(counts, tap));
                for line in 0..N {
                    let pixel = _mm256_permutevar8x32_ps(pixels[line], index);
                    let more = _mm256_fmadd_ps(bytemuck::cast(*weights), pixel, sums[line]);
                    sums[line] = _mm256_blendv_ps(sums[line], more, own);
                }
                (index, tap) = (_mm256_add_epi32(index, one), _mm256_add_epi32(tap, one));
            }
            for (line, sum) in sums.into_iter().enumerate() {
                // In this order NaN stays NaN.
                let sum = _mm256_min_ps(high, _mm256_max_ps(low, sum));
                *lines.out::<8>(line, self.x.from, start) = bytemuck::cast(_mm256_fmadd_ps(sum, scale, bias));
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f")]
    fn rows_avx512<const N: usize>(&self, mut lines: Lines<'_>) {
        use std::arch::x86_64::{
            __m512, __m512i, _mm512_add_epi32, _mm512_fmadd_ps, _mm512_mask3_fmadd_ps, _mm512_permutexvar_ps,
            _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps, _mm512_test_epi32_mask,
        };
        let (scale, bias, one) = (_mm512_set1_ps(lines.scale), _mm512_set1_ps(lines.bias), _mm512_set1_epi32(1));
        let tables = self.index.as_chunks::<16>().0.iter().zip(self.two.as_chunks::<16>().0);
        let weights = self.near.as_chunks::<16>().0.iter().zip(self.far.as_chunks::<16>().0);
        for (((index, two), (near, far)), &(base, start)) in tables.zip(weights).zip(&self.runs) {
            let (index, two): (__m512i, __m512i) = (whole(index), whole(two));
            let (near, far): (__m512, __m512) = (floats(near), floats(far));
            let (next, two) = (_mm512_add_epi32(index, one), _mm512_test_epi32_mask(two, two));
            for line in 0..N {
                let pixels: __m512 = floats(lines.pixels(line, base));
                let sum = _mm512_fmadd_ps(near, _mm512_permutexvar_ps(index, pixels), _mm512_setzero_ps());
                // If there is one tap, its neighbour is not used: it may be infinite.
                let sum = _mm512_mask3_fmadd_ps(far, _mm512_permutexvar_ps(next, pixels), sum, two);
                put(_mm512_fmadd_ps(sum, scale, bias), lines.out(line, self.x.from, start));
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    fn rows_avx2<const N: usize>(&self, mut lines: Lines<'_>) {
        use std::arch::x86_64::{
            __m256, __m256i, _mm256_add_epi32, _mm256_blendv_ps, _mm256_castsi256_ps, _mm256_fmadd_ps,
            _mm256_permutevar8x32_ps, _mm256_set1_epi32, _mm256_set1_ps, _mm256_setzero_ps,
        };
        let (scale, bias, one) = (_mm256_set1_ps(lines.scale), _mm256_set1_ps(lines.bias), _mm256_set1_epi32(1));
        let tables = self.index.as_chunks::<8>().0.iter().zip(self.two.as_chunks::<8>().0);
        let weights = self.near.as_chunks::<8>().0.iter().zip(self.far.as_chunks::<8>().0);
        for (((index, two), (near, far)), &(base, start)) in tables.zip(weights).zip(&self.runs) {
            let (index, two): (__m256i, __m256i) = (bytemuck::cast(*index), bytemuck::cast(*two));
            let (near, far): (__m256, __m256) = (bytemuck::cast(*near), bytemuck::cast(*far));
            let (next, two) = (_mm256_add_epi32(index, one), _mm256_castsi256_ps(two));
            for line in 0..N {
                let pixels: __m256 = bytemuck::cast(*lines.pixels::<8>(line, base));
                let sum = _mm256_fmadd_ps(near, _mm256_permutevar8x32_ps(pixels, index), _mm256_setzero_ps());
                let right = _mm256_permutevar8x32_ps(pixels, next);
                // If there is one tap, its neighbour does not count: it may be infinite.
                let sum = _mm256_blendv_ps(sum, _mm256_fmadd_ps(far, right, sum), two);
                *lines.out::<8>(line, self.x.from, start) = bytemuck::cast(_mm256_fmadd_ps(sum, scale, bias));
            }
        }
    }
}

/// The arguments of [`Stretch::rows`].
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "no machine without its registers makes tables"))]
struct Lines<'a> {
    src: &'a [f32],
    pitch: usize,
    out: &'a mut [f32],
    width: usize,
    within: [f32; 2],
    scale: f32,
    bias: f32,
}

#[cfg(target_arch = "x86_64")]
impl Lines<'_> {
    #[inline(always)]
    fn pixels<const W: usize>(&self, line: usize, base: u32) -> &[f32; W] {
        self.src[line * self.pitch + base as usize..].first_chunk().expect("lines end with spare values")
    }

    #[inline(always)]
    fn out<const W: usize>(&mut self, line: usize, from: usize, start: u32) -> &mut [f32; W] {
        self.out[line * self.width + from + start as usize..].first_chunk_mut().expect("runs end within the line")
    }
}

/// Loads and a store for which there are no safe functions.
#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::{__m512, __m512i, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_storeu_ps};

    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn floats(values: &[f32; 16]) -> __m512 {
        // SAFETY: sixteen values.
        unsafe { _mm512_loadu_ps(values.as_ptr()) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn whole(values: &[i32; 16]) -> __m512i {
        // SAFETY: sixteen values of four bytes.
        unsafe { _mm512_loadu_si512(values.as_ptr().cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(super) fn put(value: __m512, out: &mut [f32; 16]) {
        // SAFETY: sixteen values.
        unsafe { _mm512_storeu_ps(out.as_mut_ptr(), value) };
    }
}
