//! The loops that must be fast: plain loops over fixed-size arrays that the compiler vectorises.

use super::{
    convert::{F32, Load, Store},
    level::{Level, at_each_level},
    params::{Axis, Filter},
    taps::{Taps, build_loop},
};

at_each_level! {
    /// Fills the table for `len` outputs, in the order in which they are stored.
    fn build[](taps: &mut Taps, axis: &Axis, len: u32, filter: Filter) = build_loop;
    /// `out[i]` = the weighted sum of `src[start + t * pitch + i]` over taps `t`.
    fn vertical[L: Load](src: &[L::Raw], start: usize, pitch: usize, weights: &[f32], out: &mut [f32]) = vertical_loop;
    /// `out[c * plane + i]` = `src[i * channels + c]`.
    fn split[L: Load](src: &[L::Raw], channels: usize, plane: usize, out: &mut [f32]) = split_loop;
    /// `line[n * lanes_of(channels) + c]` = the weighted sum of `row[(first[n] + t) * channels + c]` over taps `t`.
    ///
    /// `row` ends with as many zeros as the table's stride. `exact`: only an output's own taps are read.
    fn horizontal[](row: &[f32], channels: usize, taps: &Taps, exact: bool, line: &mut [f32]) = horizontal_loop;
    /// Clamps the results of filters with weights below 0 to 0..`most`.
    fn cut[](line: &mut [f32], most: f32) = cut_loop;
    /// `out[i]` = `line[i * wide + channel] * scale + bias`, rounded.
    fn finish[S: Store](line: &[f32], wide: usize, channel: usize, scale: f32, bias: f32, out: &mut [S::Raw]) = finish_loop;
    /// `out[i * channels + c]` = `line[i * wide + source[c]] * scale[c] + bias[c]`, rounded.
    fn interleave[S: Store](line: &[f32], wide: usize, source: &[usize], scale: &[f32], bias: &[f32], out: &mut [S::Raw]) = interleave_loop;
    /// One plane of an image that is only moved, flipped and padded.
    fn shift[L: Load, S: Store](plane: &Plane<'_, L>, move_by: &Move, value: &Value, spare: &mut [L::Raw], out: &mut [S::Raw]) = shift_loop;
    /// `out[i * every]` = pixel `index[i]` of `src`, scaled and rounded.
    fn pick[L: Load, S: Store](src: &[L::Raw], index: &[u32], scale: f32, bias: f32, every: usize, out: &mut [S::Raw]) = pick_loop;
}

/// [`finish`], by packing values afterwards if that is faster.
#[expect(clippy::too_many_arguments, reason = "those of `finish`, and memory for what is made")]
pub(super) fn finish_packed<S: Store>(
    level: Level,
    line: &[f32],
    wide: usize,
    channel: usize,
    scale: f32,
    bias: f32,
    made: &mut Vec<f32>,
    out: &mut [S::Raw],
) {
    if !S::PACKED {
        return finish::<S>(level, line, wide, channel, scale, bias, out);
    }
    made.resize(out.len(), 0.0);
    finish::<F32>(level, line, wide, channel, scale, bias, made);
    S::pack(level, made, out);
}

/// [`interleave`], likewise.
#[expect(clippy::too_many_arguments, reason = "those of `interleave`, and memory for what is made")]
pub(super) fn interleave_packed<S: Store>(
    level: Level,
    line: &[f32],
    wide: usize,
    source: &[usize],
    scale: &[f32],
    bias: &[f32],
    made: &mut Vec<f32>,
    out: &mut [S::Raw],
) {
    if !S::PACKED {
        return interleave::<S>(level, line, wide, source, scale, bias, out);
    }
    made.resize(out.len(), 0.0);
    interleave::<F32>(level, line, wide, source, scale, bias, made);
    S::pack(level, made, out);
}

/// Columns of one vertical block: four AVX-512 registers, enough to hide the latency of a fused product.
pub(super) const BLOCK: usize = 64;

#[inline(always)]
fn vertical_loop<L: Load>(src: &[L::Raw], start: usize, pitch: usize, weights: &[f32], out: &mut [f32]) {
    let n = out.len();
    let mut done = 0;
    while done + BLOCK <= n {
        vertical_block::<L, BLOCK>(src, start + done, pitch, weights, &mut out[done..]);
        done += BLOCK;
    }
    if done < n && n >= BLOCK {
        // The last block overlaps the one before it and writes the same values again.
        let last = n - BLOCK;
        vertical_block::<L, BLOCK>(src, start + last, pitch, weights, &mut out[last..]);
        return;
    }
    while done + 8 <= n {
        vertical_block::<L, 8>(src, start + done, pitch, weights, &mut out[done..]);
        done += 8;
    }
    while done < n {
        vertical_block::<L, 1>(src, start + done, pitch, weights, &mut out[done..]);
        done += 1;
    }
}

#[inline(always)]
fn vertical_block<L: Load, const N: usize>(
    src: &[L::Raw],
    start: usize,
    pitch: usize,
    weights: &[f32],
    out: &mut [f32],
) {
    let mut sums = [0.0f32; N];
    let mut at = start;
    for &weight in weights {
        let pixels: &[L::Raw; N] = src[at..].first_chunk().expect("rows of the source hold all columns");
        for i in 0..N {
            sums[i] = weight.mul_add(L::f32(pixels[i]), sums[i]);
        }
        at += pitch;
    }
    *out.first_chunk_mut().expect("blocks end within the row") = sums;
}

#[inline(always)]
fn split_loop<L: Load>(src: &[L::Raw], channels: usize, plane: usize, out: &mut [f32]) {
    macro_rules! by_channels {
        ($($n:literal)*) => {
            match channels {
                $($n => split_fixed::<L, $n>(src, plane, out),)*
                _ => {
                    for (c, out) in out.chunks_mut(plane).take(channels).enumerate() {
                        for (value, pixel) in out.iter_mut().zip(src.chunks_exact(channels)) {
                            *value = L::f32(pixel[c]);
                        }
                    }
                }
            }
        };
    }
    by_channels!(1 2 3 4 5 6 7 8 9)
}

/// Channel by channel, so that each is stored in whole vectors.
#[inline(always)]
fn split_fixed<L: Load, const N: usize>(src: &[L::Raw], plane: usize, out: &mut [f32]) {
    let pixels = src.as_chunks::<N>().0;
    for (c, out) in out.chunks_mut(plane).take(N).enumerate() {
        for (value, pixel) in out.iter_mut().zip(pixels) {
            *value = L::f32(pixel[c]);
        }
    }
}

#[inline(always)]
fn horizontal_loop(row: &[f32], channels: usize, taps: &Taps, exact: bool, line: &mut [f32]) {
    if exact {
        return horizontal_any(row, channels, taps, line);
    }
    macro_rules! by_taps {
        ($C:literal, $W:literal) => {
            match taps.most {
                1 => horizontal_fixed::<$C, $W, 1>(row, taps, line),
                2 => horizontal_fixed::<$C, $W, 2>(row, taps, line),
                3 => horizontal_fixed::<$C, $W, 3>(row, taps, line),
                4 => horizontal_fixed::<$C, $W, 4>(row, taps, line),
                5 => horizontal_fixed::<$C, $W, 5>(row, taps, line),
                6 => horizontal_fixed::<$C, $W, 6>(row, taps, line),
                7 => horizontal_fixed::<$C, $W, 7>(row, taps, line),
                8 => horizontal_fixed::<$C, $W, 8>(row, taps, line),
                _ => horizontal_fixed::<$C, $W, 0>(row, taps, line),
            }
        };
    }
    match channels {
        1 => by_taps!(1, 1),
        2 => by_taps!(2, 4),
        3 => by_taps!(3, 4),
        4 => by_taps!(4, 4),
        5 => by_taps!(5, 8),
        6 => by_taps!(6, 8),
        7 => by_taps!(7, 8),
        8 => by_taps!(8, 8),
        _ => horizontal_any(row, channels, taps, line),
    }
}

/// Adds `N` taps to the sums of one pixel. There are `WIDE` lanes for `C` channels: the other lanes hold the next
/// pixel's first values, which cost nothing, and their results are not used.
#[inline(always)]
pub(super) fn add_taps<const C: usize, const WIDE: usize, const N: usize>(
    row: &[f32],
    pixel: usize,
    weights: &[f32],
    sums: &mut [f32; WIDE],
) {
    let weights: &[f32; N] = weights.first_chunk().expect("the stride holds the longest window");
    // One check for the whole window.
    let window = &row[pixel * C..][..(N - 1) * C + WIDE];
    for t in 0..N {
        for i in 0..WIDE {
            sums[i] = weights[t].mul_add(window[t * C + i], sums[i]);
        }
    }
}

/// `N` taps for each output, or blocks of four when `N` is 0.
#[inline(always)]
fn horizontal_fixed<const C: usize, const WIDE: usize, const N: usize>(row: &[f32], taps: &Taps, line: &mut [f32]) {
    // One output at a time: the processor overlaps their chains of sums.
    let weights = taps.weights.chunks_exact(taps.stride);
    for (((stored, &first), &count), weights) in
        line.as_chunks_mut().0.iter_mut().zip(&taps.first).zip(&taps.count).zip(weights)
    {
        let mut sums = [0.0f32; WIDE];
        if N > 0 {
            add_taps::<C, WIDE, N>(row, first as usize, weights, &mut sums);
        } else {
            for at in (0..count as usize).step_by(4) {
                add_taps::<C, WIDE, 4>(row, first as usize + at, &weights[at..], &mut sums);
            }
        }
        // All lanes are stored, including unused ones: this keeps the sums in one register.
        *stored = sums;
    }
}

/// Any number of channels; only an output's own taps are read.
#[inline(always)]
fn horizontal_any(row: &[f32], channels: usize, taps: &Taps, line: &mut [f32]) {
    let wide = lanes_of(channels);
    for (o, stored) in line.chunks_exact_mut(wide).enumerate() {
        let (first, count) = (taps.first[o] as usize, taps.count[o] as usize);
        let weights = &taps.weights[o * taps.stride..][..count];
        if wide == 1 {
            stored[0] =
                weights.iter().zip(&row[first..]).fold(0.0, |sum, (&weight, &pixel)| weight.mul_add(pixel, sum));
            continue;
        }
        for (block, stored) in stored.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let mut sums = [0.0f32; 4];
            for (t, &weight) in weights.iter().enumerate() {
                let pixel: &[f32; 4] =
                    row[(first + t) * channels + 4 * block..].first_chunk().expect("rows end with zeros");
                for i in 0..4 {
                    sums[i] = weight.mul_add(pixel[i], sums[i]);
                }
            }
            *stored = sums;
        }
    }
}

#[inline(always)]
fn cut_loop(line: &mut [f32], most: f32) {
    for value in line {
        *value = value.max(0.0).min(most);
    }
}

#[inline(always)]
fn finish_loop<S: Store>(line: &[f32], wide: usize, channel: usize, scale: f32, bias: f32, out: &mut [S::Raw]) {
    match wide {
        1 => {
            for (stored, &value) in out.iter_mut().zip(line) {
                *stored = S::of(value.mul_add(scale, bias));
            }
        }
        4 => {
            for (stored, pixel) in out.iter_mut().zip(line.as_chunks::<4>().0) {
                *stored = S::of(pixel[channel & 3].mul_add(scale, bias));
            }
        }
        8 => {
            for (stored, pixel) in out.iter_mut().zip(line.as_chunks::<8>().0) {
                *stored = S::of(pixel[channel & 7].mul_add(scale, bias));
            }
        }
        _ => {
            for (stored, pixel) in out.iter_mut().zip(line.chunks_exact(wide)) {
                *stored = S::of(pixel[channel].mul_add(scale, bias));
            }
        }
    }
}

#[inline(always)]
fn interleave_loop<S: Store>(
    line: &[f32],
    wide: usize,
    source: &[usize],
    scale: &[f32],
    bias: &[f32],
    out: &mut [S::Raw],
) {
    if let (4, &[0, 1, 2], &[sa, sb, sc], &[ba, bb, bc]) = (wide, source, scale, bias) {
        for (stored, [a, b, c, _]) in out.as_chunks_mut::<3>().0.iter_mut().zip(line.as_chunks::<4>().0) {
            *stored = [S::of(a.mul_add(sa, ba)), S::of(b.mul_add(sb, bb)), S::of(c.mul_add(sc, bc))];
        }
        return;
    }
    for (stored, pixel) in out.chunks_exact_mut(source.len()).zip(line.chunks_exact(wide)) {
        for (c, stored) in stored.iter_mut().enumerate() {
            *stored = S::of(pixel[source[c]].mul_add(scale[c], bias[c]));
        }
    }
}

/// Lanes of one output in a line: one for gray, otherwise whole vectors of four.
pub(super) const fn lanes_of(channels: usize) -> usize {
    if channels == 1 { 1 } else { channels.next_multiple_of(4) }
}

/// One plane of a source, or a gray image.
#[derive(Debug)]
pub(super) struct Plane<'a, L: Load> {
    /// All values of the source.
    pub(super) values: &'a [L::Raw],
    /// Position of source pixel (0, 0) of this plane; below 0 if the first rows are not held.
    pub(super) origin: isize,
    /// Columns.
    pub(super) width: usize,
}

/// How an image is moved. Outputs are counted before the flips.
#[derive(Debug)]
pub(super) struct Move {
    /// Source pixel of output 0: row, column. It may be outside.
    pub(super) start: [isize; 2],
    /// Outputs that show the image, first and end: rows, columns.
    pub(super) from: [usize; 2],
    pub(super) to: [usize; 2],
    pub(super) flip: [bool; 2],
    /// Columns of the output.
    pub(super) width: usize,
}

/// The arithmetic for a value, and the fill value.
#[derive(Debug)]
pub(super) struct Value {
    pub(super) scale: f32,
    pub(super) bias: f32,
    pub(super) fill: f32,
}

/// Outputs per step: one AVX-512 register, or two of AVX2.
const STEP: usize = 16;

#[inline(always)]
fn shift_loop<L: Load, S: Store>(
    plane: &Plane<'_, L>,
    by: &Move,
    value: &Value,
    spare: &mut [L::Raw],
    out: &mut [S::Raw],
) {
    let width = by.width;
    let height = out.len() / width;
    // A whole row is read at once, even if it starts before the image or ends after it: the values read there belong to
    // a neighbouring row and are replaced by the fill value. Only the ends of the buffer need care.
    for (stored, row) in out.chunks_exact_mut(width).enumerate() {
        let o = if by.flip[0] { height - 1 - stored } else { stored };
        if o < by.from[0] || o >= by.to[0] {
            row.fill(S::of(value.fill));
            continue;
        }
        let at = plane.origin + (o as isize + by.start[0]) * plane.width as isize + by.start[1];
        let held = usize::try_from(at).ok().and_then(|at| plane.values.get(at..at + width));
        let pixels = match held {
            Some(pixels) => pixels,
            None => {
                copy_held(plane.values, at, spare);
                &*spare
            }
        };
        let over = (by.from[1], by.to[1]);
        if by.flip[1] {
            shift_row::<L, S, true>(pixels, over, value, row)
        } else {
            shift_row::<L, S, false>(pixels, over, value, row)
        }
    }
}

/// Copies the existing values from `at` on.
#[inline(never)]
fn copy_held<T: Copy>(values: &[T], at: isize, spare: &mut [T]) {
    for (i, value) in spare.iter_mut().enumerate() {
        if let Some(held) = usize::try_from(at + i as isize).ok().and_then(|at| values.get(at)) {
            *value = *held;
        }
    }
}

#[inline(always)]
fn shift_row<L: Load, S: Store, const FLIP: bool>(
    pixels: &[L::Raw],
    over: (usize, usize),
    value: &Value,
    row: &mut [S::Raw],
) {
    let width = row.len();
    let pixels = &pixels[..width];
    // Loops, not closures: closures would not be compiled for the instructions of this level.
    if FLIP {
        // The rest at the end of the pixels is at the start of a flipped row.
        for (from, to) in pixels.as_chunks().0.iter().zip(row.as_rchunks_mut().1.iter_mut().rev()) {
            shift_step::<L, S, FLIP>(from, value, to);
        }
    } else {
        for (from, to) in pixels.as_chunks().0.iter().zip(row.as_chunks_mut().0) {
            shift_step::<L, S, FLIP>(from, value, to);
        }
    }
    let at = width - width % STEP;
    if at < width {
        let to = if FLIP { row.first_chunk_mut() } else { row.last_chunk_mut() };
        // The last step overlaps the one before it and writes the same values again.
        if let (Some(from), Some(to)) = (pixels.last_chunk(), to) {
            shift_step::<L, S, FLIP>(from, value, to);
        } else {
            for o in at..width {
                row[if FLIP { width - 1 - o } else { o }] = S::of(L::f32(pixels[o]).mul_add(value.scale, value.bias));
            }
        }
    }
    // Afterwards: a choice in each step took twice as long as everything else, and a few columns are cheap.
    let (before, behind) = if FLIP { (width - over.1, over.0) } else { (over.0, width - over.1) };
    let fill = S::of(value.fill);
    row[..before].fill(fill);
    row[width - behind..].fill(fill);
}

#[inline(always)]
fn shift_step<L: Load, S: Store, const FLIP: bool>(from: &[L::Raw; STEP], value: &Value, to: &mut [S::Raw; STEP]) {
    for i in 0..STEP {
        to[if FLIP { STEP - 1 - i } else { i }] = S::of(L::f32(from[i]).mul_add(value.scale, value.bias));
    }
}

#[inline(always)]
fn pick_loop<L: Load, S: Store>(
    src: &[L::Raw],
    index: &[u32],
    scale: f32,
    bias: f32,
    every: usize,
    out: &mut [S::Raw],
) {
    for (stored, &at) in out.iter_mut().step_by(every).zip(index) {
        *stored = S::of(L::f32(src[at as usize]).mul_add(scale, bias));
    }
}
