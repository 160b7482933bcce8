//! Loads source pixels and stores finished values: plain bit arithmetic without branches. Every loop over it can be
//! vectorised, and every machine stores the same bits.

use std::fmt::Debug;

use bytemuck::Pod;
use infeed_core::types::DType;

#[cfg(target_arch = "x86_64")]
use super::level::Instructions;
use super::level::{Level, at_each_level};

/// A type of source pixel.
pub(super) trait Load {
    /// One value in memory.
    type Raw: Pod + Default + Debug;
    /// Whether values are always finite, so that they may be multiplied by a weight of 0.
    const FINITE: bool;
    /// The largest value of an unsigned integer type. Results of filters are clamped to it, as if they were stored in
    /// that type.
    const MOST: Option<f32> = None;
    /// The value.
    fn f32(raw: Self::Raw) -> f32;
}

/// A type of finished value.
pub(super) trait Store {
    /// One value in memory.
    type Raw: Pod + Default + Debug;
    /// Whether values are stored without rounding or packing.
    const AS_IS: bool = false;
    /// Whether [`pack`](Self::pack) has an instruction that compilers do not generate for loops over [`of`](Self::of).
    /// It is then faster to make values in the first-level cache and pack them afterwards.
    const PACKED: bool = false;
    /// Rounds to nearest, ties to even.
    fn of(value: f32) -> Self::Raw;
    /// `out[i]` = [`of`](Self::of)`(values[i])`, in whole vectors.
    fn pack(level: Level, values: &[f32], out: &mut [Self::Raw])
    where
        Self: Sized,
    {
        pack_each::<Self>(level, values, out);
    }
}

at_each_level! {
    fn pack_each[S: Store](values: &[f32], out: &mut [S::Raw]) = pack_loop;
}

#[inline(always)]
fn pack_loop<S: Store>(values: &[f32], out: &mut [S::Raw]) {
    for (stored, &value) in out.iter_mut().zip(values) {
        *stored = S::of(value);
    }
}

#[derive(Debug)]
pub(super) struct U8;
#[derive(Debug)]
pub(super) struct U16;
#[derive(Debug)]
pub(super) struct F16;
#[derive(Debug)]
pub(super) struct Bf16;
#[derive(Debug)]
pub(super) struct F32;

impl Load for U8 {
    type Raw = u8;
    const FINITE: bool = true;
    const MOST: Option<f32> = Some(255.0);
    #[inline(always)]
    fn f32(raw: u8) -> f32 {
        f32::from(raw)
    }
}

impl Load for U16 {
    type Raw = u16;
    const FINITE: bool = true;
    const MOST: Option<f32> = Some(65_535.0);
    #[inline(always)]
    fn f32(raw: u16) -> f32 {
        f32::from(raw)
    }
}

impl Load for F32 {
    type Raw = f32;
    const FINITE: bool = false;
    #[inline(always)]
    fn f32(raw: f32) -> f32 {
        // -0 becomes 0, as in a sum that starts from 0: a copy and a filter of one tap then store the same bits.
        raw + 0.0
    }
}

impl Store for U8 {
    type Raw = u8;
    #[inline(always)]
    #[expect(clippy::manual_clamp, reason = "clamp keeps NaN, which has to become 0")]
    fn of(value: f32) -> u8 {
        // From 2^23 on, an f32 has no fraction, so the addition rounds; SSE 4.1's instruction may be missing, and a
        // call is slow.
        const WHOLE: f32 = (1u32 << 23) as f32;
        (value.max(0.0).min(255.0) + WHOLE).to_bits() as u8
    }
}

impl Store for F32 {
    type Raw = f32;
    const AS_IS: bool = true;
    #[inline(always)]
    fn of(value: f32) -> f32 {
        value
    }
}

impl Store for F16 {
    type Raw = u16;
    const PACKED: bool = true;
    #[inline(always)]
    fn of(value: f32) -> u16 {
        let bits = value.to_bits();
        let size = bits & 0x7fff_ffff;
        // Normal numbers: the exponent's bias falls from 127 to 15; half a unit less one is added, and one more if the
        // last kept bit is odd. A carry into the exponent is right, up to infinity.
        let normal = size.wrapping_sub(112 << 23).wrapping_add(0xfff + ((size >> 13) & 1)) >> 13;
        // Below 2^-14: f32 numbers from 0.5 to 1 have the spacing of subnormal halves, 2^-24, so the addition rounds.
        let small = (f32::from_bits(size) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
        let finite = if size < 0x3880_0000 { small } else { normal };
        let special = if size > 0x7f80_0000 { 0x7e00 } else { 0x7c00 };
        let half = if size >= 0x4780_0000 { special } else { finite };
        (half | ((bits >> 16) & 0x8000)) as u16
    }
    /// Uses the instruction that every processor with AVX2 has: one instead of fifteen.
    fn pack(level: Level, values: &[f32], out: &mut [u16]) {
        #[cfg(target_arch = "x86_64")]
        match level.instructions() {
            // SAFETY: the processor has the features that it is compiled for.
            Instructions::Avx512 => return unsafe { halves_avx512(values, out) },
            // SAFETY: the same.
            Instructions::Avx2 => return unsafe { halves_avx2(values, out) },
            Instructions::Portable => {}
        }
        pack_each::<Self>(level, values, out);
    }
}

/// Fixes what the instruction stores for NaN: it keeps more bits than [`of`](Store::of).
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn plain(half: u16) -> u16 {
    if half & 0x7fff > 0x7c00 { half & 0xfe00 } else { half }
}

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{_MM_FROUND_NO_EXC, _MM_FROUND_TO_NEAREST_INT};

macro_rules! halves {
    ($($name:ident: $feature:literal, $width:literal, $load:ident, $convert:ident, $round:expr;)*) => {$(
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = $feature)]
        fn $name(values: &[f32], out: &mut [u16]) {
            use std::arch::x86_64::{$convert, $load};
            let ((steps, rest), (stored, stored_rest)) = (values.as_chunks::<$width>(), out.as_chunks_mut::<$width>());
            for (stored, step) in stored.iter_mut().zip(steps) {
                // SAFETY: the slice has this many values; the load takes any alignment.
                let step = unsafe { $load(step.as_ptr()) };
                let packed: [u16; $width] = bytemuck::cast($convert::<{ $round }>(step));
                *stored = packed.map(plain);
            }
            pack_loop::<F16>(rest, stored_rest);
        }
    )*};
}
halves! {
    halves_avx512: "avx512f,avx2,fma,f16c", 16, _mm512_loadu_ps, _mm512_cvtps_ph, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    halves_avx2: "avx2,fma,f16c", 8, _mm256_loadu_ps, _mm256_cvtps_ph, _MM_FROUND_TO_NEAREST_INT;
}

impl Store for Bf16 {
    type Raw = u16;
    #[inline(always)]
    fn of(value: f32) -> u16 {
        let bits = value.to_bits();
        let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
        let quiet = (bits >> 16) | 0x40;
        let half = if bits & 0x7fff_ffff > 0x7f80_0000 { quiet } else { rounded };
        half as u16
    }
}

/// Calls `$call` with the [`Load`] of a source type as `$L`; `$other` for types that pixels do not have.
macro_rules! with_load {
    ($dtype:expr, $L:ident => $call:expr, _ => $other:expr) => {
        match $dtype {
            infeed_core::types::DType::U8 => {
                type $L = $crate::kernels::convert::U8;
                $call
            }
            infeed_core::types::DType::U16 => {
                type $L = $crate::kernels::convert::U16;
                $call
            }
            infeed_core::types::DType::F32 => {
                type $L = $crate::kernels::convert::F32;
                $call
            }
            _ => $other,
        }
    };
}

/// Calls `$call` with the [`Store`] of an output type as `$S`; `$other` for types that rows do not have.
macro_rules! with_store {
    ($dtype:expr, $S:ident => $call:expr, _ => $other:expr) => {
        match $dtype {
            infeed_core::types::DType::U8 => {
                type $S = $crate::kernels::convert::U8;
                $call
            }
            infeed_core::types::DType::F16 => {
                type $S = $crate::kernels::convert::F16;
                $call
            }
            infeed_core::types::DType::Bf16 => {
                type $S = $crate::kernels::convert::Bf16;
                $call
            }
            infeed_core::types::DType::F32 => {
                type $S = $crate::kernels::convert::F32;
                $call
            }
            _ => $other,
        }
    };
}

pub(super) use {with_load, with_store};

/// Whether rows may have this type.
pub(super) const fn is_stored(dtype: DType) -> bool {
    matches!(dtype, DType::U8 | DType::F16 | DType::Bf16 | DType::F32)
}

/// Whether pixels may have this type.
pub(super) const fn is_loaded(dtype: DType) -> bool {
    matches!(dtype, DType::U8 | DType::U16 | DType::F32)
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};

    use super::*;

    /// Every exponent and sign, with fractions around each rounding edge of both half types, and some random ones.
    fn hard_values() -> impl Iterator<Item = f32> {
        let edges = [0u32, 1, 0x0fff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x3001, 0x7fff, 0x8000, 0x8001, 0x1_8000];
        let near_one = [0x7f_e000, 0x7f_efff, 0x7f_f000, 0x7f_f001, 0x7f_ffff];
        let mut draws = infeed_core::random::SampleRng::new(1, 2, 3).op(0);
        let random: Vec<u32> = (0..64).map(|_| draws.bits() as u32 & 0x7f_ffff).collect();
        let fractions: Vec<u32> = edges.into_iter().chain(near_one).chain(random).collect();
        (0..512u32).flat_map(move |top| fractions.clone().into_iter().map(move |f| f32::from_bits(top << 23 | f)))
    }

    #[test]
    fn halves_round_as_the_half_crate_does() {
        for v in hard_values() {
            let (ours, theirs) = (f16::from_bits(F16::of(v)), f16::from_f32(v));
            assert!(
                ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(),
                "{v:e}: {ours} not {theirs}"
            );
            let (ours, theirs) = (bf16::from_bits(Bf16::of(v)), bf16::from_f32(v));
            assert!(
                ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(),
                "{v:e}: {ours} not {theirs}"
            );
        }
    }

    #[test]
    fn values_are_packed_as_one_by_one_whatever_their_number_and_place() {
        fn check<S: Store>(values: &[f32], level: Level)
        where
            S::Raw: PartialEq,
        {
            let mut out = vec![S::Raw::default(); values.len()];
            S::pack(level, values, &mut out);
            let (got, want): (Vec<S::Raw>, Vec<S::Raw>) = (out, values.iter().map(|v| S::of(*v)).collect());
            // Compared as bytes, because NaN equals nothing.
            assert!(bytemuck::cast_slice::<_, u8>(&got) == bytemuck::cast_slice::<_, u8>(&want), "{level:?}");
        }
        let values: Vec<f32> = hard_values().collect();
        for level in [Level::Portable, Level::Avx2, Level::Best] {
            for part in [&values[..], &values[3..][..1], &values[5..][..7], &values[1..][..100], &values[..0]] {
                check::<F16>(part, level);
                check::<Bf16>(part, level);
                check::<U8>(part, level);
                check::<F32>(part, level);
            }
        }
    }

    #[test]
    fn bytes_round_to_even_and_saturate() {
        for v in hard_values().chain((-8..2056).map(|n| n as f32 / 8.0)) {
            let expected = if v.is_nan() { 0 } else { v.clamp(0.0, 255.0).round_ties_even() as u8 };
            assert_eq!(U8::of(v), expected, "{v:e}");
        }
    }
}
