//! What bytes and floats have in common.

use bytemuck::Pod;

/// A type of a tile's values.
pub(super) trait Value: Pod + Default {
    /// The value as torch counts with it: 0..255 or 0..1.
    fn f32(self) -> f32;
    /// Rounded to even and cut to the type's range; floats as they are.
    fn rounded(value: f32) -> Self;
    /// Cut to the type's range, and to whole numbers below where the type has no others.
    fn truncated(value: f32) -> Self;
    /// The same without the cut to a float's range.
    fn raw(value: f32) -> Self;
    /// Down to a whole number of bytes' range; floats as they are.
    fn floor(value: f32) -> f32;
    /// In 0..1.
    fn unit(self) -> f32;
    /// From 0..1, as `to_dtype(scale=True)` does it.
    fn of_unit(value: f32) -> Self;
    /// One of at most four neighbours, which lie in memory one after another.
    fn one_of<const N: usize>(values: [Self; N], index: usize) -> f32;
}

/// To 0..`white`; NaN becomes 0. Comparisons instead of `clamp`, which keeps NaN.
#[inline(always)]
pub(super) fn clamp(value: f32, white: f32) -> f32 {
    let value = if value > 0.0 { value } else { 0.0 };
    if value < white { value } else { white }
}

/// To a byte, towards 0.
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
        // Around 2^23 an f32 has no fraction left: the addition rounds.
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
        // A shift of whole registers; single bytes would be shuffled together.
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
