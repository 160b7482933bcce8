//! Steps that read neighbouring pixels: `gaussian_blur` and `adjust_sharpness`.
//!
//! ```text
//! row + its mirrored ends ─▶ across ─▶ ring of `kernel` f32 rows ─▶ down ─▶ row, in place
//! ```

use super::{
    colour::complement,
    picture::{Sides, Tile},
    values::{Value, truncate},
};
use crate::kernels::level::{Level, at_each_level};

at_each_level! {
    fn blur_plane[V: Value](values: &mut [V], width: usize, down: &[f32], across: &[f32], scratch: &mut [f32]) = blur_plane_loop;
    fn sharpen_bytes[](values: &[u8], width: usize, alpha: f32, out: &mut [u8]) = sharpen_bytes_loop;
    fn sharpen_floats[](values: &[f32], width: usize, alpha: f32, out: &mut [f32]) = sharpen_floats_loop;
}

/// Weights below this have no effect in f32 for values of 0 to 1: a 16th of the distance from 1 to the next number.
const NOTHING: f32 = 1.0 / (1u32 << 28) as f32;

/// The middle of a kernel of this size and deviation, and its weights to one side, as far as they have an effect. Of
/// the 23 weights that recipes specify, deviations of 0.1 to 2 leave 13 on average.
pub(super) fn half_kernel(size: u32, sigma: f32) -> Vec<f32> {
    let reach = f64::from(size - 1) / (2.0 * std::f64::consts::SQRT_2);
    let radius = (size / 2) as usize;
    let at = |i: usize| {
        let x = if radius == 0 { 0.0 } else { i as f64 / radius as f64 * reach } / f64::from(sigma);
        (-x * x).exp()
    };
    let sum = (1..=radius).fold(at(0), |sum, i| sum + 2.0 * at(i));
    (0..=radius).map(|i| (at(i) / sum) as f32).take_while(|weight| *weight > NOTHING).collect()
}

/// The mirrored position of a row or column before 0 or after the end of `len`. Its distance from them must be below
/// `len`.
#[inline(always)]
const fn mirrored(at: isize, len: usize) -> usize {
    let at = at.unsigned_abs();
    if at < len { at } else { 2 * len - 2 - at }
}

/// Kernels must be odd, and their halves smaller than the picture.
pub(super) fn blur(level: Level, tile: &mut Tile, kernel: [u32; 2], sigma: [f32; 2], scratch: &mut Vec<f32>) {
    let (width, plane) = (tile.width as usize, tile.plane());
    let down = half_kernel(kernel[0], sigma[0]);
    let across = half_kernel(kernel[1], sigma[1]);
    scratch.resize(kernel[0] as usize * width + width + kernel[1] as usize, 0.0);
    match tile.sides() {
        Sides::Bytes(values) => {
            for values in values.chunks_exact_mut(plane) {
                blur_plane(level, values, width, &down, &across, scratch);
            }
        }
        Sides::Floats(values) => {
            for values in values.chunks_exact_mut(plane) {
                blur_plane(level, values, width, &down, &across, scratch);
            }
        }
    }
}

/// Columns of one block: as many sums as registers hold together with their addends.
const BLOCK: usize = 64;

/// Calls `$step` with the start of each block of a row; the last block overlaps the one before it. Calls `$one` for
/// each column of a narrow row.
macro_rules! in_blocks {
    ($len:expr, $at:ident => $step:expr, $one:expr) => {{
        let len = $len;
        let mut done = 0;
        while done + BLOCK <= len {
            let $at = done;
            $step;
            done += BLOCK;
        }
        if done < len && len >= BLOCK {
            let $at = len - BLOCK;
            $step;
            done = len;
        }
        while done < len {
            let $at = done;
            $one;
            done += 1;
        }
    }};
}

#[inline(always)]
fn blur_plane_loop<V: Value>(values: &mut [V], width: usize, down: &[f32], across: &[f32], scratch: &mut [f32]) {
    let height = values.len() / width;
    let (reach, side) = (down.len() - 1, across.len() - 1);
    let slots = 2 * reach + 1;
    let (ring, line) = scratch.split_at_mut(slots * width);
    let line = &mut line[..width + 2 * side];
    let mut filtered = 0;
    for y in 0..height {
        while filtered < height.min(y + reach + 1) {
            let row = &values[filtered * width..][..width];
            for (value, pixel) in line[side..].iter_mut().zip(row) {
                *value = pixel.f32();
            }
            for i in 1..=side {
                line[side - i] = row[i].f32();
                line[side + width - 1 + i] = row[width - 1 - i].f32();
            }
            let out = &mut ring[filtered % slots * width..][..width];
            in_blocks!(width, at => across_block::<BLOCK>(line, at, across, out), across_block::<1>(line, at, across, out));
            filtered += 1;
        }
        // The row was read long ago, so it can be overwritten.
        let out = &mut values[y * width..][..width];
        in_blocks!(width, at => down_block::<V, BLOCK>(ring, y, height, width, at, down, out),
            down_block::<V, 1>(ring, y, height, width, at, down, out));
    }
}

/// Mirrored pairs are added before they are weighted.
#[inline(always)]
fn across_block<const N: usize>(line: &[f32], at: usize, weights: &[f32], out: &mut [f32]) {
    let side = weights.len() - 1;
    let values = |from: usize| -> &[f32; N] { line[from..].first_chunk().expect("the line holds both ends") };
    let middle = values(at + side);
    let mut sums = [0.0f32; N];
    for i in 0..N {
        sums[i] = middle[i] * weights[0];
    }
    for (k, &weight) in weights.iter().enumerate().skip(1) {
        let (before, behind) = (values(at + side - k), values(at + side + k));
        for i in 0..N {
            sums[i] = weight.mul_add(before[i] + behind[i], sums[i]);
        }
    }
    *out[at..].first_chunk_mut().expect("blocks end within the row") = sums;
}

#[inline(always)]
fn down_block<V: Value, const N: usize>(
    ring: &[f32],
    y: usize,
    height: usize,
    width: usize,
    at: usize,
    weights: &[f32],
    out: &mut [V],
) {
    let slots = 2 * (weights.len() - 1) + 1;
    let values = |row: usize| -> &[f32; N] {
        ring[row % slots * width + at..].first_chunk().expect("the ring holds whole rows")
    };
    let middle = values(y);
    let mut sums = [0.0f32; N];
    for i in 0..N {
        sums[i] = middle[i] * weights[0];
    }
    for (k, &weight) in weights.iter().enumerate().skip(1) {
        let above = values(mirrored(y as isize - k as isize, height));
        let below = values(mirrored((y + k) as isize, height));
        for i in 0..N {
            sums[i] = weight.mul_add(above[i] + below[i], sums[i]);
        }
    }
    let out: &mut [V; N] = out[at..].first_chunk_mut().expect("blocks end within the row");
    for i in 0..N {
        out[i] = V::rounded(sums[i]);
    }
}

/// From `tile` to `out`. At least three rows and columns.
pub(super) fn sharpness(level: Level, tile: &mut Tile, factor: f32, out: &mut Tile) {
    let (width, plane) = (tile.width as usize, tile.plane());
    let alpha = complement(factor);
    match (tile.sides(), out.sides()) {
        (Sides::Bytes(values), Sides::Bytes(out)) => {
            for (values, out) in values.chunks_exact(plane).zip(out.chunks_exact_mut(plane)) {
                sharpen_bytes(level, values, width, alpha, out);
            }
        }
        (Sides::Floats(values), Sides::Floats(out)) => {
            for (values, out) in values.chunks_exact(plane).zip(out.chunks_exact_mut(plane)) {
                sharpen_floats(level, values, width, alpha, out);
            }
        }
        _ => unreachable!("both tiles are of one type"),
    }
}

/// A row's inner columns as whole vectors. The last overlaps the one before it, so that no rest is processed value by
/// value. A narrow row is one piece.
#[inline(always)]
fn pieces(width: usize) -> [std::ops::Range<usize>; 2] {
    let inner = width - 2;
    let whole = inner - inner % BLOCK;
    if whole == 0 { [0..inner, 0..0] } else { [0..whole, if whole < inner { inner - BLOCK..inner } else { 0..0 }] }
}

/// The neighbours of a piece of a row's inner values, row by row.
#[inline(always)]
fn around<'a, V>(values: &'a [V], width: usize, y: usize, piece: &std::ops::Range<usize>) -> [&'a [V]; 9] {
    let at = |i: usize| (y + i / 3 - 1) * width + i % 3 + piece.start;
    std::array::from_fn(|i| &values[at(i)..][..piece.len()])
}

#[inline(always)]
fn sharpen_bytes_loop(values: &[u8], width: usize, alpha: f32, out: &mut [u8]) {
    let height = values.len() / width;
    out.copy_from_slice(values);
    for y in 1..height - 1 {
        let rows = [y - 1, y, y + 1].map(|y| &values[y * width..][..width]);
        let out = &mut out[y * width..][..width];
        in_blocks!(width - 2, at => sharpen_block::<BLOCK>(rows, at, alpha, out), sharpen_block::<1>(rows, at, alpha, out));
    }
}

#[inline(always)]
fn sharpen_block<const N: usize>(rows: [&[u8]; 3], at: usize, alpha: f32, out: &mut [u8]) {
    let column =
        |r: usize, c: usize| -> &[u8; N] { rows[r][at + c..].first_chunk().expect("blocks end within the row") };
    let mut sums = [0u16; N];
    for r in 0..3 {
        for c in 0..3 {
            let values = column(r, c);
            for i in 0..N {
                sums[i] += u16::from(values[i]);
            }
        }
    }
    let middle = column(1, 1);
    let out: &mut [u8; N] = out[at + 1..].first_chunk_mut().expect("blocks end within the row");
    for i in 0..N {
        // A sum of weights 1 and 5 divided by 13 is never halfway between two numbers, so this equals torch's rounding.
        // It divides numbers below 3322 by 13.
        let sum = sums[i] + 4 * u16::from(middle[i]) + 6;
        let soft = ((u32::from(sum) * 5042) >> 16) as u16;
        let value = f32::from(middle[i]);
        out[i] = truncate((f32::from(soft) - value).mul_add(alpha, value));
    }
}

#[inline(always)]
fn sharpen_floats_loop(values: &[f32], width: usize, alpha: f32, out: &mut [f32]) {
    const EDGE: f32 = (1.0 / 13.0f64) as f32;
    const MIDDLE: f32 = (5.0 / 13.0f64) as f32;
    let height = values.len() / width;
    for (out, value) in out.iter_mut().zip(values) {
        *out = f32::truncated(*value);
    }
    for y in 1..height - 1 {
        for piece in pieces(width) {
            let len = piece.len();
            let around = around(values, width, y, &piece).map(|side| &side[..len]);
            let out = &mut out[y * width + 1 + piece.start..][..len];
            for i in 0..len {
                let mut soft = 0.0f32;
                for (side, values) in around.iter().enumerate() {
                    soft = values[i].mul_add(if side == 4 { MIDDLE } else { EDGE }, soft);
                }
                let value = around[4][i];
                out[i] = f32::truncated((soft - value).mul_add(alpha, value));
            }
        }
    }
}
