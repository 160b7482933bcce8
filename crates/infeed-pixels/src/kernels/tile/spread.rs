//! Steps that first read all values of a plane: `autocontrast` needs their least and greatest, `equalize` their
//! histogram.

use infeed_core::error::Result;

use super::{
    colour::look_up,
    picture::{Sides, Tile},
    values::{clamp, truncate},
};
use crate::kernels::level::{Level, at_each_level};

at_each_level! {
    fn range_of_bytes[](values: &[u8], range: &mut [u8; 2]) = range_of_bytes_loop;
    fn range_of_floats[](values: &[f32], range: &mut [f32; 2]) = range_of_floats_loop;
    fn stretch_floats[](values: &mut [f32], low: f32, scale: f32) = stretch_floats_loop;
    fn to_bytes[](values: &[f32], out: &mut [u8]) = to_bytes_loop;
    fn to_floats[](values: &[u8], out: &mut [f32]) = to_floats_loop;
}

pub(super) fn autocontrast(level: Level, sides: Sides<'_>, plane: usize) {
    match sides {
        Sides::Bytes(values) => {
            for values in values.chunks_exact_mut(plane) {
                let mut range = [u8::MAX, 0];
                range_of_bytes(level, values, &mut range);
                let [low, high] = range.map(f32::from);
                // A plane of one value stays unchanged: torch divides it by one.
                let scale = (high - low) * (1.0 / 255.0);
                if low < high {
                    look_up(level, values, &std::array::from_fn(|v| truncate((v as f32 - low) / scale)));
                }
            }
        }
        Sides::Floats(values) => {
            for values in values.chunks_exact_mut(plane) {
                let mut range = [f32::INFINITY, f32::NEG_INFINITY];
                range_of_floats(level, values, &mut range);
                let [low, high] = range;
                let (low, scale) = if low < high { (low, high - low) } else { (0.0, 1.0) };
                stretch_floats(level, values, low, scale);
            }
        }
    }
}

/// Floats are counted and returned as bytes, by way of `spare`.
///
/// # Errors
/// `OutOfMemory` if there is no memory for `spare`.
pub(super) fn equalize(level: Level, tile: &mut Tile, spare: &mut Tile) -> Result<()> {
    let plane = tile.plane();
    let (height, width, channels) = (tile.height, tile.width, tile.channels);
    match tile.sides() {
        Sides::Bytes(values) => equalize_bytes(level, values, plane),
        Sides::Floats(values) => {
            spare.reset(height, width, channels, false)?;
            let bytes = spare.bytes_mut();
            to_bytes(level, values, bytes);
            equalize_bytes(level, bytes, plane);
            to_floats(level, bytes, values);
        }
    }
    Ok(())
}

fn equalize_bytes(level: Level, values: &mut [u8], plane: usize) {
    for values in values.chunks_exact_mut(plane) {
        let counts = counts(values);
        let last = counts.iter().rposition(|count| *count > 0).unwrap_or(0);
        let step = (plane as u64 - counts[last]) / 255;
        if step == 0 {
            continue;
        }
        let mut before = 0;
        let table = counts.map(|count| {
            let entry = if before == 0 { 0 } else { ((before + step / 2) / step).min(255) as u8 };
            before += count;
            entry
        });
        look_up(level, values, &table);
    }
}

/// The histogram of the values.
fn counts(values: &[u8]) -> [u64; 256] {
    // Neighbours are often equal: with one table, each increment would wait for the one before it.
    let mut tables = [[0u32; 256]; 4];
    let mut all = [0u64; 256];
    // Parts are small enough that no count overflows.
    for part in values.chunks(1 << 30) {
        let (chunks, rest) = part.as_chunks::<8>();
        for chunk in chunks {
            let bytes = u64::from_le_bytes(*chunk);
            for i in 0..8 {
                tables[i % 4][usize::from((bytes >> (8 * i)) as u8)] += 1;
            }
        }
        for value in rest {
            tables[0][usize::from(*value)] += 1;
        }
        for (v, count) in all.iter_mut().enumerate() {
            *count += tables.iter_mut().map(|table| u64::from(std::mem::take(&mut table[v]))).sum::<u64>();
        }
    }
    all
}

#[inline(always)]
fn range_of_bytes_loop(values: &[u8], range: &mut [u8; 2]) {
    let [mut low, mut high] = *range;
    for value in values {
        low = low.min(*value);
        high = high.max(*value);
    }
    *range = [low, high];
}

/// Lanes for the search for least and greatest. The order of comparisons of floats does not matter, but the compiler
/// can't know that.
const LANES: usize = 64;

#[inline(always)]
fn range_of_floats_loop(values: &[f32], range: &mut [f32; 2]) {
    let (mut low, mut high) = ([range[0]; LANES], [range[1]; LANES]);
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for i in 0..LANES {
            low[i] = if chunk[i] < low[i] { chunk[i] } else { low[i] };
            high[i] = if chunk[i] > high[i] { chunk[i] } else { high[i] };
        }
    }
    for value in rest {
        low[0] = low[0].min(*value);
        high[0] = high[0].max(*value);
    }
    *range =
        [low.iter().copied().fold(f32::INFINITY, f32::min), high.iter().copied().fold(f32::NEG_INFINITY, f32::max)];
}

#[inline(always)]
fn stretch_floats_loop(values: &mut [f32], low: f32, scale: f32) {
    for value in values {
        *value = clamp((*value - low) / scale, 1.0);
    }
}

#[inline(always)]
fn to_bytes_loop(values: &[f32], out: &mut [u8]) {
    for (out, value) in out.iter_mut().zip(values) {
        *out = truncate(*value * 255.999);
    }
}

#[inline(always)]
fn to_floats_loop(values: &[u8], out: &mut [f32]) {
    for (out, value) in out.iter_mut().zip(values) {
        *out = f32::from(*value) * (1.0 / 255.0);
    }
}
