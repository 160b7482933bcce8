//! Mixes rows of a batch with one another, in place.
//!
//! ```text
//! rolled    row n ◀ row n and row n-1, row 0 ◀ row 0 and the last     a strip of columns at a time, from the last row up:
//! swapped   row a ◀▶ row b                                             each value is read and written once
//! ```
//!
//! Products are rounded before they are added, as in torch's `mul` and `add`, so f32 has the same bits. Halves are
//! computed in f32 and rounded once.

use std::fmt;

use bytemuck::Pod;
use infeed_core::{
    error::{Error, ErrorKind, Result},
    rows::Rows,
    types::{DType, Layout},
};

#[cfg(target_arch = "x86_64")]
use super::level::Instructions;
use super::{
    Level,
    convert::{Bf16, F16, F32, Store},
    level::at_each_level,
    params::RowSpec,
};

/// Bytes of a strip. Two rows of a strip are processed at a time and stay in the second- or third-level cache. A row of
/// 224×224×3 f32 is one strip: for 256 such rows, strips of 8 to 64 KiB took 25 to 30 ms, this size 17 to 20 ms (EPYC,
/// 1 MiB of second-level cache, a busy VM).
const STRIP: usize = 640 << 10;

/// Mixes the rows of a batch in place, if they are in a device's memory.
pub trait Mixer: fmt::Debug + Send + Sync {
    /// Mixes each of the first `samples` rows with the original content of the row before it, and the first with the
    /// last.
    ///
    /// # Errors
    /// `Internal` if rows do not match `spec`, or bytes are to be blended; `Device` if the GPU failed.
    fn roll(&self, rows: &mut Rows, spec: &RowSpec, mixture: &Mixture, samples: usize) -> Result<()>;

    /// Mixes pairs of rows, each with the original content of the other. No row may be in two pairs.
    ///
    /// # Errors
    /// As for [`roll`](Self::roll).
    fn swap(&self, rows: &mut Rows, spec: &RowSpec, pairs: &[(Mixture, [u32; 2])]) -> Result<()>;
}

/// How a row is mixed with its partner.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mixture {
    /// `own` times each value plus `other` times the partner's. Not for bytes.
    Blend {
        /// Weight of the row's own values.
        own: f32,
        /// Weight of the partner's values.
        other: f32,
    },
    /// Takes the partner's values in a rectangle: top, bottom, left, right.
    Paste([u32; 4]),
}

/// Mixes each of the rows with the original content of the row before it, and the first with the last.
///
/// # Errors
/// `Internal` if `rows` are not such rows, or bytes are to be blended. They are then unchanged.
pub fn mix_rolled(level: Level, row: &RowSpec, mixture: &Mixture, rows: &mut [u8]) -> Result<()> {
    let len = row.len_bytes();
    if len == 0 || !rows.len().is_multiple_of(len) {
        return Err(wrong(row, mixture, rows.len()));
    }
    match mixture {
        Mixture::Paste(area) => {
            rolled(rows, len, rectangle(row, area), |own, other| own.copy_from_slice(other));
            Ok(())
        }
        Mixture::Blend { own, other } => {
            let weights = [*own, *other];
            match row.dtype {
                DType::F32 => roll_blended::<F32>(level, len, weights, rows),
                DType::F16 => roll_blended::<F16>(level, len, weights, rows),
                DType::Bf16 => roll_blended::<Bf16>(level, len, weights, rows),
                _ => None,
            }
            .ok_or_else(|| wrong(row, mixture, len))
        }
    }
}

/// Mixes two rows, each with the original content of the other.
///
/// # Errors
/// As for [`mix_rolled`].
pub fn mix_swapped(level: Level, row: &RowSpec, mixture: &Mixture, a: &mut [u8], b: &mut [u8]) -> Result<()> {
    let len = row.len_bytes();
    if a.len() != len || b.len() != len {
        return Err(wrong(row, mixture, a.len()));
    }
    match mixture {
        Mixture::Paste(area) => {
            for range in rectangle(row, area).into_iter().flat_map(Strip::ranges) {
                a[range.clone()].swap_with_slice(&mut b[range]);
            }
            Ok(())
        }
        Mixture::Blend { own, other } => {
            let weights = [*own, *other];
            match row.dtype {
                DType::F32 => swap_blended::<F32>(level, weights, a, b),
                DType::F16 => swap_blended::<F16>(level, weights, a, b),
                DType::Bf16 => swap_blended::<Bf16>(level, weights, a, b),
                _ => None,
            }
            .ok_or_else(|| wrong(row, mixture, len))
        }
    }
}

fn wrong(row: &RowSpec, mixture: &Mixture, len: usize) -> Error {
    Error::new(ErrorKind::Internal, format!("{mixture:?} of {len} bytes of {row:?}")).with_hint("please report it")
}

/// A part of a row: lines of one length, at equal distances.
#[derive(Clone, Copy, Debug)]
struct Strip {
    start: usize,
    line: usize,
    every: usize,
    lines: usize,
}

impl Strip {
    fn ranges(self) -> impl Iterator<Item = std::ops::Range<usize>> {
        let Self { start, line, every, lines } = self;
        (0..lines).map(move |n| start + n * every..start + n * every + line)
    }
}

/// A rectangle of a row in bytes, strip by strip.
fn rectangle(row: &RowSpec, area: &[u32; 4]) -> Vec<Strip> {
    let (height, width, size) = (row.height as usize, row.width as usize, row.dtype.size());
    let [top, bottom] = [area[0], area[1]].map(|edge| (edge as usize).min(height));
    let [left, right] = [area[2], area[3]].map(|edge| (edge as usize).min(width));
    if top >= bottom || left >= right {
        return Vec::new();
    }
    let (planes, pixel) = match row.layout {
        Layout::Nchw => (row.channels as usize, size),
        Layout::Nhwc => (1, row.channels as usize * size),
    };
    let (line, every) = ((right - left) * pixel, width * pixel);
    let most = (STRIP / line).max(1);
    let strips = |plane: usize| {
        (top..bottom).step_by(most).map(move |y| {
            let start = (plane * height + y) * every + left * pixel;
            Strip { start, line, every, lines: most.min(bottom - y) }
        })
    };
    (0..planes).flat_map(strips).collect()
}

/// Mixes each row of `len` values with the row before it.
fn rolled<R: Pod>(rows: &mut [R], len: usize, strips: impl IntoIterator<Item = Strip>, make: impl Fn(&mut [R], &[R])) {
    let Some(last) = (rows.len() / len).checked_sub(1) else { return };
    let mut kept: Vec<R> = Vec::with_capacity(STRIP / size_of::<R>());
    for strip in strips {
        kept.clear();
        strip.ranges().for_each(|range| kept.extend_from_slice(&rows[last * len..][range]));
        for n in (1..=last).rev() {
            let (before, own) = rows.split_at_mut(n * len);
            let before = &before[(n - 1) * len..];
            strip.ranges().for_each(|range| make(&mut own[range.clone()], &before[range]));
        }
        let mut kept = &kept[..];
        for range in strip.ranges() {
            let (line, rest) = kept.split_at(range.len());
            make(&mut rows[range], line);
            kept = rest;
        }
    }
}

/// `None`: the bytes are not aligned for such values.
fn roll_blended<V: Value>(level: Level, len: usize, weights: [f32; 2], rows: &mut [u8]) -> Option<()> {
    let rows: &mut [V::Raw] = bytemuck::try_cast_slice_mut(rows).ok()?;
    let (len, most) = (len / size_of::<V::Raw>(), STRIP / size_of::<V::Raw>());
    let strips = (0..len).step_by(most).map(|start| Strip { start, line: most.min(len - start), every: 0, lines: 1 });
    rolled(rows, len, strips, |own, other| V::blend(level, own, other, weights));
    Some(())
}

fn swap_blended<V: Value>(level: Level, weights: [f32; 2], a: &mut [u8], b: &mut [u8]) -> Option<()> {
    V::blend_both(level, bytemuck::try_cast_slice_mut(a).ok()?, bytemuck::try_cast_slice_mut(b).ok()?, weights);
    Some(())
}

/// A type of values that can be blended.
pub(super) trait Value: Store + Sized {
    fn f32(raw: Self::Raw) -> f32;
    /// Blends `other` into `own`, by weight.
    fn blend(level: Level, own: &mut [Self::Raw], other: &[Self::Raw], weights: [f32; 2]) {
        blend::<Self>(level, own, other, weights);
    }
    /// Blends each into the other.
    fn blend_both(level: Level, a: &mut [Self::Raw], b: &mut [Self::Raw], weights: [f32; 2]) {
        blend_both::<Self>(level, a, b, weights);
    }
}

impl Value for F32 {
    #[inline(always)]
    fn f32(raw: f32) -> f32 {
        raw
    }
}

impl Value for F16 {
    #[inline(always)]
    fn f32(raw: u16) -> f32 {
        // 2^112, the difference of the exponents' biases: the product is exact, also for subnormal halves.
        const UP: f32 = f32::from_bits((112 + 127) << 23);
        let bits = u32::from(raw);
        let finite = f32::from_bits((bits & 0x7fff) << 13) * UP;
        let special = if bits & 0x7c00 == 0x7c00 { 0x7f80_0000 } else { 0 };
        f32::from_bits(finite.to_bits() | special | (bits & 0x8000) << 16)
    }

    fn blend(level: Level, own: &mut [u16], other: &[u16], weights: [f32; 2]) {
        #[cfg(target_arch = "x86_64")]
        if level.instructions() >= Instructions::Avx2 {
            // SAFETY: the processor has the features that it is compiled for.
            return unsafe { f16c::blend(own, other, weights) };
        }
        blend::<Self>(level, own, other, weights);
    }

    fn blend_both(level: Level, a: &mut [u16], b: &mut [u16], weights: [f32; 2]) {
        #[cfg(target_arch = "x86_64")]
        if level.instructions() >= Instructions::Avx2 {
            // SAFETY: the processor has the features that it is compiled for.
            return unsafe { f16c::blend_both(a, b, weights) };
        }
        blend_both::<Self>(level, a, b, weights);
    }
}

/// Blends halves with their instructions, eight at a time.
#[cfg(target_arch = "x86_64")]
mod f16c {
    use std::arch::x86_64::{
        __m256, _MM_FROUND_TO_NEAREST_INT, _mm256_add_ps, _mm256_cvtph_ps, _mm256_cvtps_ph, _mm256_mul_ps,
        _mm256_set1_ps,
    };

    use super::{super::convert::plain, F16, blend_both_loop, blend_loop};

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn floats(halves: [u16; 8]) -> __m256 {
        _mm256_cvtph_ps(bytemuck::cast(halves))
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn mixed(own: __m256, other: __m256, weights: [f32; 2]) -> [u16; 8] {
        let (own, other) =
            (_mm256_mul_ps(own, _mm256_set1_ps(weights[0])), _mm256_mul_ps(other, _mm256_set1_ps(weights[1])));
        let packed: [u16; 8] = bytemuck::cast(_mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_add_ps(own, other)));
        packed.map(plain)
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn blend(own: &mut [u16], other: &[u16], weights: [f32; 2]) {
        let ((own, own_rest), (other, other_rest)) = (own.as_chunks_mut::<8>(), other.as_chunks::<8>());
        for (own, other) in own.iter_mut().zip(other) {
            *own = mixed(floats(*own), floats(*other), weights);
        }
        blend_loop::<F16>(own_rest, other_rest, weights);
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn blend_both(a: &mut [u16], b: &mut [u16], weights: [f32; 2]) {
        let ((a, a_rest), (b, b_rest)) = (a.as_chunks_mut::<8>(), b.as_chunks_mut::<8>());
        for (a, b) in a.iter_mut().zip(b) {
            let (one, two) = (floats(*a), floats(*b));
            (*a, *b) = (mixed(one, two, weights), mixed(two, one, weights));
        }
        blend_both_loop::<F16>(a_rest, b_rest, weights);
    }
}

impl Value for Bf16 {
    #[inline(always)]
    fn f32(raw: u16) -> f32 {
        f32::from_bits(u32::from(raw) << 16)
    }
}

at_each_level! {
    fn blend[V: Value](own: &mut [V::Raw], other: &[V::Raw], weights: [f32; 2]) = blend_loop;
    fn blend_both[V: Value](a: &mut [V::Raw], b: &mut [V::Raw], weights: [f32; 2]) = blend_both_loop;
}

#[inline(always)]
fn mixed<V: Value>(own: V::Raw, other: V::Raw, weights: [f32; 2]) -> V::Raw {
    V::of(V::f32(own) * weights[0] + V::f32(other) * weights[1])
}

#[inline(always)]
fn blend_loop<V: Value>(own: &mut [V::Raw], other: &[V::Raw], weights: [f32; 2]) {
    for (own, other) in own.iter_mut().zip(other) {
        *own = mixed::<V>(*own, *other, weights);
    }
}

#[inline(always)]
fn blend_both_loop<V: Value>(a: &mut [V::Raw], b: &mut [V::Raw], weights: [f32; 2]) {
    for (a, b) in a.iter_mut().zip(b) {
        (*a, *b) = (mixed::<V>(*a, *b, weights), mixed::<V>(*b, *a, weights));
    }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;

    const LEVELS: [Level; 3] = [Level::Portable, Level::Avx2, Level::Best];

    fn spec(height: u32, width: u32, dtype: DType, layout: Layout) -> RowSpec {
        RowSpec { height, width, channels: 3, dtype, layout }
    }

    /// `count` rows of values between -3 and 3.
    fn values(row: &RowSpec, count: usize) -> Vec<f32> {
        let mut draws = infeed_core::random::SampleRng::new(5, 6, 7).op(0);
        let len = row.len_bytes() / row.dtype.size() * count;
        (0..len).map(|_| draws.between(-3.0, 3.0) as f32).collect()
    }

    fn store(values: &[f32], dtype: DType) -> Vec<u8> {
        match dtype {
            DType::F32 => bytemuck::cast_slice(values).to_vec(),
            DType::F16 => values.iter().flat_map(|v| f16::from_f32(*v).to_ne_bytes()).collect(),
            DType::Bf16 => values.iter().flat_map(|v| bf16::from_f32(*v).to_ne_bytes()).collect(),
            _ => values.iter().map(|v| (*v * 40.0 + 128.0) as u8).collect(),
        }
    }

    fn load(bytes: &[u8], dtype: DType) -> Vec<f32> {
        let pairs = || bytes.as_chunks::<2>().0.iter().copied();
        match dtype {
            DType::F32 => bytes.as_chunks::<4>().0.iter().map(|v| f32::from_ne_bytes(*v)).collect(),
            DType::F16 => pairs().map(|v| f16::from_ne_bytes(v).to_f32()).collect(),
            DType::Bf16 => pairs().map(|v| bf16::from_ne_bytes(v).to_f32()).collect(),
            _ => bytes.iter().map(|v| f32::from(*v)).collect(),
        }
    }

    /// The expected values; `inside` returns whether a value of a row is in the rectangle.
    fn expected(row: &RowSpec, mixture: &Mixture, own: &[u8], other: &[u8]) -> Vec<u8> {
        let (a, b) = (load(own, row.dtype), load(other, row.dtype));
        let inside = |i: usize, area: &[u32; 4]| {
            let (h, w, c) = (row.height as usize, row.width as usize, row.channels as usize);
            let (y, x) = match row.layout {
                Layout::Nchw => (i / w % h, i % w),
                Layout::Nhwc => (i / c / w, i / c % w),
            };
            (area[0]..area[1]).contains(&(y as u32)) && (area[2]..area[3]).contains(&(x as u32))
        };
        match mixture {
            Mixture::Blend { own, other } => {
                let sums: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a * own + b * other).collect();
                store(&sums, row.dtype)
            }
            Mixture::Paste(area) => {
                let size = row.dtype.size();
                let from = |i: usize| if inside(i, area) { other } else { own };
                (0..a.len()).flat_map(|i| from(i)[i * size..][..size].to_vec()).collect()
            }
        }
    }

    fn cases() -> impl Iterator<Item = (RowSpec, Mixture)> {
        let specs = [
            spec(5, 7, DType::F32, Layout::Nchw),
            spec(5, 7, DType::F16, Layout::Nhwc),
            spec(6, 9, DType::Bf16, Layout::Nchw),
            // Several strips, the last of them shorter.
            spec(40, 33, DType::F32, Layout::Nhwc),
            spec(61, 70, DType::F16, Layout::Nchw),
            spec(61, 70, DType::Bf16, Layout::Nhwc),
            spec(70, 61, DType::U8, Layout::Nchw),
            spec(8, 8, DType::U8, Layout::Nhwc),
        ];
        let mixtures = |row: RowSpec| {
            let (h, w) = (row.height, row.width);
            let blends = [0.3f32, 0.0, 1.0].map(|own| Mixture::Blend { own, other: 1.0 - own });
            let areas = [[0, h, 0, w], [1, h - 1, 2, w - 1], [2, 2, 0, w], [h - 1, h, w - 1, w]].map(Mixture::Paste);
            blends.into_iter().filter(move |_| row.dtype != DType::U8).chain(areas).map(move |mixture| (row, mixture))
        };
        specs.into_iter().flat_map(mixtures)
    }

    #[test]
    fn each_row_is_mixed_with_the_one_before_it_alike_at_each_level() {
        for (row, mixture) in cases() {
            for count in [1, 2, 5] {
                let len = row.len_bytes();
                let rows = store(&values(&row, count), row.dtype);
                let before = |n: usize| &rows[(n + count - 1) % count * len..][..len];
                let of = |n: usize| expected(&row, &mixture, &rows[n * len..][..len], before(n));
                let want: Vec<u8> = (0..count).flat_map(of).collect();
                for level in LEVELS {
                    let mut aligned: Vec<u32> = vec![0; rows.len().div_ceil(4)];
                    let got = &mut bytemuck::cast_slice_mut::<_, u8>(&mut aligned)[..rows.len()];
                    got.copy_from_slice(&rows);
                    mix_rolled(level, &row, &mixture, got).unwrap();
                    assert!(got == want, "{row:?} {mixture:?} {count} {level:?}");
                }
            }
        }
    }

    #[test]
    fn two_rows_are_mixed_with_each_other_alike_at_each_level() {
        for (row, mixture) in cases() {
            let len = row.len_bytes();
            let rows = store(&values(&row, 2), row.dtype);
            let (a, b) = rows.split_at(len);
            let want = [expected(&row, &mixture, a, b), expected(&row, &mixture, b, a)];
            for level in LEVELS {
                let mut both: [Vec<u32>; 2] = [vec![0; len.div_ceil(4)], vec![0; len.div_ceil(4)]];
                let [x, y] = &mut both;
                let x = &mut bytemuck::cast_slice_mut::<_, u8>(x)[..len];
                let y = &mut bytemuck::cast_slice_mut::<_, u8>(y)[..len];
                x.copy_from_slice(a);
                y.copy_from_slice(b);
                mix_swapped(level, &row, &mixture, x, y).unwrap();
                assert!(x == want[0] && y == want[1], "{row:?} {mixture:?} {level:?}");
            }
        }
    }

    #[test]
    fn every_half_is_the_number_that_it_is() {
        for bits in 0..=u16::MAX {
            let (ours, theirs) = (F16::f32(bits), f16::from_bits(bits).to_f32());
            assert!(ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(), "{bits:#x}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let row = spec(2, 2, DType::U8, Layout::Nchw);
        let blend = Mixture::Blend { own: 0.5, other: 0.5 };
        let mut rows = [1; 24];
        assert!(mix_rolled(Level::Best, &row, &blend, &mut rows).is_err());
        assert!(mix_rolled(Level::Best, &row, &Mixture::Paste([0, 1, 0, 1]), &mut rows[1..]).is_err());
        let (a, b) = rows.split_at_mut(12);
        assert!(mix_swapped(Level::Best, &row, &blend, a, b).is_err());
        assert!(mix_swapped(Level::Best, &row, &Mixture::Paste([0; 4]), a, &mut b[1..]).is_err());
        assert_eq!(rows, [1; 24]);
    }
}
