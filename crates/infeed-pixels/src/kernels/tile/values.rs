//! Common operations of bytes and floats.

use bytemuck::Pod;

/// A type of a tile's values.
pub(super) trait Value: Pod + Default {
    /// The value as torch computes with it: 0..255 or 0..1.
    fn f32(self) -> f32;
    /// For bytes: rounded to nearest (ties to even) and clamped to the type's range. Floats are unchanged.
    fn rounded(value: f32) -> Self;
    /// Clamped to the type's range; for bytes also rounded down.
    fn truncated(value: f32) -> Self;
    /// The same, but floats are not clamped.
    fn raw(value: f32) -> Self;
    /// For bytes: rounded down. Floats are unchanged.
    fn floor(value: f32) -> f32;
    /// Scaled to 0..1.
    fn unit(self) -> f32;
    /// Converted from 0..1, as by `to_dtype(scale=True)`.
    fn of_unit(value: f32) -> Self;
    /// One of at most four neighbours that are consecutive in memory.
    fn one_of<const N: usize>(values: [Self; N], index: usize) -> f32;
}

/// Clamps to 0..`white`; NaN becomes 0. Comparisons instead of `clamp`, which keeps NaN.
#[inline(always)]
pub(super) fn clamp(value: f32, white: f32) -> f32 {
    let value = if value > 0.0 { value } else { 0.0 };
    if value < white { value } else { white }
}

/// Truncates to a byte.
#[inline(always)]
pub(super) fn truncate(value: f32) -> u8 {
    // SAFETY: between 0 and 255, and no NaN.
    let whole = unsafe { clamp(value, 255.0).to_int_unchecked::<i32>() };
    whole as u8
}

impl Value for u8 {
    #[inline(always)]
    fn f32(self) -> f32 {
        f32::from(self)
    }
    #[inline(always)]
    fn rounded(value: f32) -> Self {
        // From 2^23 on, an f32 has no fraction, so the addition rounds.
        const WHOLE: f32 = (1u32 << 23) as f32;
        (clamp(value, 255.0) + WHOLE).to_bits() as Self
    }
    #[inline(always)]
    fn truncated(value: f32) -> Self {
        truncate(value)
    }
    #[inline(always)]
    fn raw(value: f32) -> Self {
        truncate(value)
    }
    #[inline(always)]
    fn floor(value: f32) -> f32 {
        f32::from(truncate(value))
    }
    #[inline(always)]
    fn unit(self) -> f32 {
        f32::from(self) * (1.0 / 255.0)
    }
    #[inline(always)]
    fn of_unit(value: f32) -> Self {
        truncate(value * 255.999)
    }
    #[inline(always)]
    fn one_of<const N: usize>(values: [Self; N], index: usize) -> f32 {
        // Shifts whole registers; single bytes would need shuffles.
        let mut word = [0; 4];
        word[..N].copy_from_slice(&values);
        ((u32::from_le_bytes(word) >> (8 * index)) & 0xff) as i32 as f32
    }
}

impl Value for f32 {
    #[inline(always)]
    fn f32(self) -> f32 {
        self
    }
    #[inline(always)]
    fn rounded(value: f32) -> Self {
        value
    }
    #[inline(always)]
    fn truncated(value: f32) -> Self {
        clamp(value, 1.0)
    }
    #[inline(always)]
    fn raw(value: f32) -> Self {
        value
    }
    #[inline(always)]
    fn floor(value: f32) -> f32 {
        value
    }
    #[inline(always)]
    fn unit(self) -> f32 {
        self
    }
    #[inline(always)]
    fn of_unit(value: f32) -> Self {
        value
    }
    #[inline(always)]
    fn one_of<const N: usize>(values: [Self; N], index: usize) -> f32 {
        values[index]
    }
}
