//! AugMix' weighted sum of a picture and of the results of chains of steps.

use super::{
    picture::{Sides, Tile},
    values::{Value, truncate},
};
use crate::kernels::level::{Level, at_each_level};

at_each_level! {
    fn mix_bytes[](own: f32, parts: &[(f32, Tile)], values: &mut [u8]) = mix_bytes_loop;
    fn mix_floats[](own: f32, parts: &[(f32, Tile)], values: &mut [f32]) = mix_floats_loop;
}

/// `tile` times `own`, plus the parts times their weights. The parts have its type and shape. Products and sums are
/// rounded separately.
pub(super) fn mix(level: Level, own: f32, parts: &[(f32, Tile)], tile: &mut Tile) {
    match tile.sides() {
        Sides::Bytes(values) => mix_bytes(level, own, parts, values),
        Sides::Floats(values) => mix_floats(level, own, parts, values),
    }
}

/// Values whose sums are computed at a time.
const BLOCK: usize = 256;

#[inline(always)]
fn mix_bytes_loop(own: f32, parts: &[(f32, Tile)], values: &mut [u8]) {
    for (at, values) in (0..).step_by(BLOCK).zip(values.chunks_mut(BLOCK)) {
        let mut sums = [0.0f32; BLOCK];
        for (sum, value) in sums.iter_mut().zip(&*values) {
            *sum = own * value.f32();
        }
        for (weight, part) in parts {
            for (sum, value) in sums.iter_mut().zip(&part.bytes()[at..]) {
                *sum += *weight * value.f32();
            }
        }
        for (value, sum) in values.iter_mut().zip(sums) {
            *value = truncate(sum);
        }
    }
}

#[inline(always)]
fn mix_floats_loop(own: f32, parts: &[(f32, Tile)], values: &mut [f32]) {
    for value in &mut *values {
        *value *= own;
    }
    for (weight, part) in parts {
        let part: &[f32] = bytemuck::cast_slice(part.bytes());
        for (value, part) in values.iter_mut().zip(part) {
            *value += *weight * *part;
        }
    }
}
