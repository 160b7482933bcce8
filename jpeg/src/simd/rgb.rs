//! Converts planes to interleaved pixels, one row at a time, as libjpeg does, so that whole images equal libjpeg's.
//!
//! Colour of half the width or height is interpolated between the nearest two values ("fancy upsampling"); other colour
//! is repeated. As in libjpeg, sums are rounded up and down alternately, and the conversion has 16 fraction bits.

use std::ops::Range;

use super::level::{Level, at_each_level};
use crate::planes::Plane;

/// Rows of an image, as planes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlaneRows<'a> {
    /// Height and width of the whole image.
    pub(crate) size: [u32; 2],
    /// One plane, or three.
    pub(crate) planes: &'a [Plane],
    /// Whether the three are Y, Cb and Cr.
    pub(crate) ycbcr: bool,
    /// The values of all planes.
    pub(crate) data: &'a [u8],
}

impl<'a> PlaneRows<'a> {
    /// Values of row `y` of a plane, from its first held column on.
    fn row(&self, plane: usize, y: u32) -> &'a [u8] {
        self.planes[plane].row(self.data, y)
    }

    /// The pixels of a row that all planes hold. All planes start at the same pixel, because whole units are held.
    fn held(&self) -> Range<usize> {
        let starts = || self.planes.iter().map(|plane| plane.cols.start * plane.step[1]);
        let start = starts().max().unwrap_or(0);
        assert!(starts().all(|at| at == start), "planes are held from one unit on");
        let end = self.planes.iter().map(|plane| plane.cols.end * plane.step[1]).min().unwrap_or(0);
        start as usize..end.min(self.size[1]) as usize
    }
}

/// Makes interleaved rows from planes. Keeps its memory from image to image.
#[derive(Debug, Default)]
pub(crate) struct Interleaver {
    /// A row of each plane at full width.
    wide: [Vec<u8>; 3],
}

impl Interleaver {
    /// Writes rows of the image with at most the instructions of `level`, for the columns that the planes hold. Other
    /// columns are left as they are. The outermost held columns may differ from those of the whole image, if colour is
    /// interpolated with values beyond them. Planes hold rows at full size, with neighbouring rows for colour of fewer
    /// rows.
    ///
    /// # Panics
    /// If the planes do not hold the rows, or `out` does not have the length of these rows.
    pub(crate) fn run(&mut self, level: Level, src: &PlaneRows<'_>, rows: Range<u32>, out: &mut [u8]) {
        let channels = src.planes.len();
        let row = src.size[1] as usize * channels;
        assert_eq!(out.len(), row * rows.len(), "a place for each pixel");
        let held = src.held();
        let width = held.len();
        for (y, out) in rows.zip(out.chunks_exact_mut(row.max(1))) {
            let out = &mut out[held.start * channels..held.end * channels];
            for ((n, plane), wide) in src.planes.iter().enumerate().zip(&mut self.wide) {
                // A plane as wide as the image is read in place: nearly always the first one.
                if plane.step != [1, 1] {
                    wide.resize(width + 8, 0);
                    widen(level, src, n, plane, y, wide);
                }
            }
            let row = |n: usize| match &src.planes[n] {
                plane if plane.step == [1, 1] => &src.row(n, y)[..width],
                _ => &self.wide[n][..width],
            };
            if channels == 1 {
                out.copy_from_slice(row(0));
            } else if src.ycbcr {
                to_rgb(level, row(0), row(1), row(2), out);
            } else {
                weave(level, row(0), row(1), row(2), out);
            }
        }
    }
}

/// A row of a plane at full width; `out` is a few bytes longer.
fn widen(level: Level, src: &PlaneRows<'_>, n: usize, plane: &Plane, y: u32, out: &mut [u8]) {
    let [down, across] = plane.step;
    let [height, width] = [src.size[0].div_ceil(down), src.size[1].div_ceil(across)];
    let held = src.planes[n].cols.len();
    let near = y / down;
    let far = if y.is_multiple_of(2) { near.saturating_sub(1) } else { (near + 1).min(height - 1) };
    let row = |y: u32| &src.row(n, y)[..held];
    // libjpeg's condition. A value also has no neighbour at the image's right edge if no column was requested there.
    let blends = width > 2 && held > 1;
    match (down, across) {
        (2, 1) => between(level, row(near), row(far), 1 + (y % 2) as u16, out),
        (1, 2) if blends => double(level, row(near), out),
        (2, 2) if blends => double_between(level, row(near), row(far), out),
        _ => repeat(row(near), across as usize, out),
    }
}

fn repeat(row: &[u8], times: usize, out: &mut [u8]) {
    for (out, value) in out.chunks_mut(times).zip(row) {
        out.fill(*value);
    }
}

at_each_level! {
    /// `out` = three quarters of `near` and a quarter of `far`.
    fn between(near: &[u8], far: &[u8], round: u16, out: &mut [u8]) = between_loop;
    /// Twice as many values: three quarters of each value and a quarter of its left or right neighbour.
    fn double(row: &[u8], out: &mut [u8]) = double_loop;
    /// Both directions.
    fn double_between(near: &[u8], far: &[u8], out: &mut [u8]) = double_between_loop;
    /// CMYK's first three values, multiplied by black; `inverted` ones are inverted first.
    pub(crate) fn multiply(black: &[u8], inverted: bool, out: &mut [u8]) = multiply_loop;
    /// Interleaves colours unchanged.
    fn weave(a: &[u8], b: &[u8], c: &[u8], out: &mut [u8]) = weave_loop;
}

#[inline(always)]
fn between_loop(near: &[u8], far: &[u8], round: u16, out: &mut [u8]) {
    for ((out, &near), &far) in out.iter_mut().zip(near).zip(far) {
        *out = ((3 * u16::from(near) + u16::from(far) + round) >> 2) as u8;
    }
}

#[inline(always)]
fn double_loop(row: &[u8], out: &mut [u8]) {
    let last = row.len() - 1;
    let value =
        |at: usize, beside: usize, round: u16| ((3 * u16::from(row[at]) + u16::from(row[beside]) + round) >> 2) as u8;
    (out[0], out[1]) = (row[0], value(0, 1, 2));
    for (out, three) in out[2..2 * last].as_chunks_mut::<2>().0.iter_mut().zip(row.windows(3)) {
        let at = 3 * u16::from(three[1]);
        *out = [((at + u16::from(three[0]) + 1) >> 2) as u8, ((at + u16::from(three[2]) + 2) >> 2) as u8];
    }
    (out[2 * last], out[2 * last + 1]) = (value(last, last - 1, 1), row[last]);
}

#[inline(always)]
fn double_between_loop(near: &[u8], far: &[u8], out: &mut [u8]) {
    let last = near.len() - 1;
    let sum = |near: u8, far: u8| 3 * u16::from(near) + u16::from(far);
    let value = |at: usize, beside: usize, round: u16| {
        ((3 * sum(near[at], far[at]) + sum(near[beside], far[beside]) + round) >> 4) as u8
    };
    (out[0], out[1]) = (value(0, 0, 8), value(0, 1, 7));
    let threes = near.windows(3).zip(far.windows(3));
    for (out, (near, far)) in out[2..2 * last].as_chunks_mut::<2>().0.iter_mut().zip(threes) {
        let at = 3 * sum(near[1], far[1]);
        *out = [((at + sum(near[0], far[0]) + 8) >> 4) as u8, ((at + sum(near[2], far[2]) + 7) >> 4) as u8];
    }
    (out[2 * last], out[2 * last + 1]) = (value(last, last - 1, 8), value(last, last, 7));
}

#[inline(always)]
fn multiply_loop(black: &[u8], inverted: bool, out: &mut [u8]) {
    let turn = if inverted { 0xff } else { 0 };
    for (pixel, &black) in out.as_chunks_mut::<3>().0.iter_mut().zip(black) {
        for value in pixel {
            // A product of two parts of 255, rounded.
            let product = u32::from(*value ^ turn) * u32::from(black) + 128;
            *value = ((product + (product >> 8)) >> 8) as u8;
        }
    }
}

#[inline(always)]
fn weave_loop(a: &[u8], b: &[u8], c: &[u8], out: &mut [u8]) {
    for (((out, &a), &b), &c) in out.as_chunks_mut::<3>().0.iter_mut().zip(a).zip(b).zip(c) {
        *out = [a, b, c];
    }
}

/// YCbCr to RGB (JFIF).
fn to_rgb(level: Level, y: &[u8], b: &[u8], r: &[u8], out: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if level.avx2() {
        // SAFETY: the processor has AVX2.
        return unsafe { avx2::to_rgb(y, b, r, out) };
    }
    #[cfg(target_arch = "aarch64")]
    if level != Level::Portable && std::arch::is_aarch64_feature_detected!("neon") {
        // SAFETY: the processor has NEON.
        return unsafe { neon::to_rgb(y, b, r, out) };
    }
    let _ = level;
    to_rgb_loop(y, b, r, out);
}

fn to_rgb_loop(y: &[u8], b: &[u8], r: &[u8], out: &mut [u8]) {
    const HALF: i32 = 1 << 15;
    for (((out, &y), &b), &r) in out.as_chunks_mut::<3>().0.iter_mut().zip(y).zip(b).zip(r) {
        let [y, b, r] = [i32::from(y), i32::from(b) - 128, i32::from(r) - 128];
        let green = (-22_554 * b - 46_802 * r + HALF) >> 16;
        *out = [(91_881 * r + HALF) >> 16, green, (116_130 * b + HALF) >> 16].map(|v| (y + v).clamp(0, 255) as u8);
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::to_rgb_loop;

    /// Sixteen pixels at a time. Products have 16 bits, so whole multiples of 2^16 are taken out of the weights and
    /// added separately.
    #[target_feature(enable = "avx2")]
    pub(super) fn to_rgb(y: &[u8], b: &[u8], r: &[u8], out: &mut [u8]) {
        let wide = |values: &[u8; 16]| _mm256_cvtepu8_epi16(bytemuck::cast(*values));
        let weights = |a: i16, b: i16| _mm256_set1_epi32(i32::from(b) << 16 | i32::from(a as u16));
        let (middle, two) = (_mm256_set1_epi16(128), _mm256_set1_epi16(2));
        // Twice 2^14 is the one half that rounds.
        let scaled = |values, weight| {
            let part = |pairs| _mm256_srai_epi32::<16>(_mm256_madd_epi16(pairs, weights(weight, 1 << 14)));
            let (low, high) = (_mm256_unpacklo_epi16(values, two), _mm256_unpackhi_epi16(values, two));
            _mm256_packs_epi32(part(low), part(high))
        };
        let green = |b, r| {
            let half = _mm256_set1_epi32(1 << 15);
            let part = |pairs| {
                _mm256_srai_epi32::<16>(_mm256_add_epi32(_mm256_madd_epi16(pairs, weights(-22_554, 18_734)), half))
            };
            _mm256_packs_epi32(part(_mm256_unpacklo_epi16(b, r)), part(_mm256_unpackhi_epi16(b, r)))
        };
        let bytes = |values: __m256i| {
            let packed = _mm256_packus_epi16(values, values);
            _mm_unpacklo_epi64(_mm256_castsi256_si128(packed), _mm256_extracti128_si256::<1>(packed))
        };
        // Four pixels of four bytes to twelve bytes.
        let close = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
        let mut at = 0;
        // The last four bytes that a step writes are overwritten by the next step.
        while 3 * at + 52 <= out.len() && at + 16 <= y.len() {
            let block = |row: &[u8]| wide(row[at..].first_chunk().expect("rows of one length"));
            let y = block(y);
            let (b, r) = (_mm256_sub_epi16(block(b), middle), _mm256_sub_epi16(block(r), middle));
            let red = _mm256_add_epi16(_mm256_add_epi16(y, r), scaled(r, 26_345));
            let green = _mm256_add_epi16(_mm256_sub_epi16(y, r), green(b, r));
            let blue = _mm256_add_epi16(_mm256_add_epi16(y, _mm256_add_epi16(b, b)), scaled(b, -14_942));
            let (red, green, blue) = (bytes(red), bytes(green), bytes(blue));
            let none = _mm_setzero_si128();
            let (rg, rg2) = (_mm_unpacklo_epi8(red, green), _mm_unpackhi_epi8(red, green));
            let (bx, bx2) = (_mm_unpacklo_epi8(blue, none), _mm_unpackhi_epi8(blue, none));
            let fours = [
                _mm_unpacklo_epi16(rg, bx),
                _mm_unpackhi_epi16(rg, bx),
                _mm_unpacklo_epi16(rg2, bx2),
                _mm_unpackhi_epi16(rg2, bx2),
            ];
            let out = &mut out[3 * at..3 * at + 52];
            for (n, four) in fours.into_iter().enumerate() {
                let four: [u8; 16] = bytemuck::cast(_mm_shuffle_epi8(four, close));
                out[12 * n..12 * n + 16].copy_from_slice(&four);
            }
            at += 16;
        }
        to_rgb_loop(&y[at..], &b[at..], &r[at..], &mut out[3 * at..]);
    }
}

#[cfg(target_arch = "aarch64")]
mod neon {
    use std::arch::aarch64::*;

    use super::to_rgb_loop;

    /// Eight pixels at a time.
    #[target_feature(enable = "neon")]
    pub(super) fn to_rgb(y: &[u8], b: &[u8], r: &[u8], out: &mut [u8]) {
        let (half, middle) = (vdupq_n_s32(1 << 15), vdupq_n_s16(128));
        let wide = |values: &[u8; 8]| {
            // SAFETY: eight bytes; the load takes any alignment.
            let values = unsafe { vld1_u8(values.as_ptr()) };
            vreinterpretq_s16_u16(vmovl_u8(values))
        };
        // The sum of two products and one half, without its fraction.
        let sum = |a: int16x8_t, by: i32, b: int16x8_t, by_b: i32| {
            let part = |a, b| {
                let sum = vmlaq_n_s32(vmlaq_n_s32(half, vmovl_s16(a), by), vmovl_s16(b), by_b);
                vshrn_n_s32::<16>(sum)
            };
            vcombine_s16(part(vget_low_s16(a), vget_low_s16(b)), part(vget_high_s16(a), vget_high_s16(b)))
        };
        let (ys, bs, rs) = (y.as_chunks::<8>().0, b.as_chunks::<8>().0, r.as_chunks::<8>().0);
        let mut done = 0;
        for (((out, y), b), r) in out.as_chunks_mut::<24>().0.iter_mut().zip(ys).zip(bs).zip(rs) {
            let (y, b, r) = (wide(y), vsubq_s16(wide(b), middle), vsubq_s16(wide(r), middle));
            let colours = [sum(r, 91_881, b, 0), sum(b, -22_554, r, -46_802), sum(b, 116_130, r, 0)];
            let [red, green, blue] = colours.map(|colour| vqmovun_s16(vaddq_s16(y, colour)));
            // SAFETY: 24 bytes; the store takes any alignment.
            unsafe { vst3_u8(out.as_mut_ptr(), uint8x8x3_t(red, green, blue)) };
            done += 8;
        }
        to_rgb_loop(&y[done..], &b[done..], &r[done..], &mut out[3 * done..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::Draws;

    #[test]
    fn each_level_gives_the_same_pixels() {
        // All pairs of colour values, each with some brightness.
        let all = || (0..=255u8).flat_map(|b| (0..=255u8).map(move |r| [b.wrapping_mul(7) ^ r, b, r]));
        let planes: [Vec<u8>; 3] = std::array::from_fn(|n| all().map(|p| p[n]).collect());
        let mut out = [Level::Best, Level::Portable].map(|_| vec![0; 3 << 16]);
        for (out, level) in out.iter_mut().zip([Level::Best, Level::Portable]) {
            to_rgb(level, &planes[0], &planes[1], &planes[2], out);
        }
        assert!(out[0] == out[1]);
    }

    #[test]
    fn planes_of_any_width_make_the_same_rows_at_each_level() {
        for n in 0..400u64 {
            let mut draws = Draws::new([8, 0, n]);
            let channels = if n % 4 == 0 { 1 } else { 3 };
            let [height, width] = [1 + draws.below(9) as u32, 1 + draws.below(90) as u32];
            let step = [[1, 1], [1, 2], [2, 1], [2, 2], [1, 4], [4, 2]][n as usize % 6];
            let (mut planes, mut at) = (Vec::new(), 0);
            // The first plane is not always the finest.
            let first = if n % 7 == 0 { [step[1].min(2), 1] } else { [1, 1] };
            // So is a single plane: black in CMYK.
            let steps = if channels == 1 { &[step][..] } else { &[first, step, step] };
            for &step in steps {
                let (rows, cols) = (0..height.div_ceil(step[0]), 0..width.div_ceil(step[1]));
                planes.push(Plane { at, pitch: cols.len() + 3, step, rows: rows.clone(), cols: cols.clone() });
                at += (cols.len() + 3) * rows.len();
            }
            let data: Vec<u8> = (0..at).map(|_| draws.bits() as u8).collect();
            let src = PlaneRows { size: [height, width], planes: &planes, ycbcr: n % 5 > 0, data: &data };
            let rows = [Level::Best, Level::Portable].map(|level| {
                let mut out = vec![0; (channels * height * width) as usize];
                Interleaver::default().run(level, &src, 0..height, &mut out);
                out
            });
            assert!(rows[0] == rows[1], "{planes:?}");
            if channels == 1 && step == [4, 2] {
                let row = |y: u32| &rows[0][(y * width) as usize..][..width as usize];
                let last = height - 1;
                assert_eq!(row(last)[0], src.row(0, last / 4)[0]);
                assert_eq!(row(last)[width as usize - 1], src.row(0, last / 4)[planes[0].cols.len() - 1]);
            }
        }
    }
}
