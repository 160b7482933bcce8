//! Filters that overshoot, on bytes: horizontal pass first, clamped and rounded to bytes, then the vertical pass.
//!
//! ```text
//! a few rows ─▶ woven f32 pixels ─ horizontal ─▶ cut, rounded ─▶ rows of bytes ─ vertical ─▶ cut ─▶ scale, bias, round ─▶ out
//! ```
//!
//! Pillow and torch do the same: values beyond black and white are clamped after the horizontal pass, before the
//! vertical one. No other order, and no single clamp, gives their values: at hard edges the difference was up to 50
//! levels.
//!
//! An image is narrower after this pass, and each output row reads several of its rows, so rows are kept while windows
//! need them.

use std::ops::Range;

use super::{
    convert::Store,
    lanes::{self, BLOCK, add_taps},
    level::{Level, at_each_level},
    taps::Taps,
};

/// Lanes of woven pixels: pixels of several rows side by side, as many as a register holds.
const WOVEN: usize = 16;

/// A byte between the passes. Halves are rounded up, as in Pillow, by rounding a slightly larger number to the nearest.
/// The addition exceeds the noise of f32, which would otherwise decide at halves; it is as large as the errors of
/// Pillow's integer weights.
#[inline(always)]
#[expect(clippy::manual_clamp, reason = "clamp keeps what is no number")]
fn whole(sum: f32) -> u8 {
    const LITTLE: f32 = 1.0 / (1u32 << 12) as f32;
    // From 2^23 on, an f32 has no fraction.
    const WHOLE: f32 = (1u32 << 23) as f32;
    (sum.max(0.0).min(255.0) + LITTLE + WHOLE).to_bits() as u8
}

/// The layout of a source of bytes.
pub(super) struct Bytes<'a, A> {
    pub(super) data: &'a [u8],
    pub(super) channels: usize,
    /// Distance from pixel to pixel, in values.
    pub(super) pixel: usize,
    /// Index of a channel's value in a row, at the leftmost column that is read.
    pub(super) at: A,
}

/// One pixel of several rows, aligned to a cache line: a register's load then never touches two lines.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
struct Pixel([f32; WOVEN]);

// SAFETY: sixteen floats without padding; any bits are valid.
unsafe impl bytemuck::Zeroable for Pixel {}
// SAFETY: as above, and plain data: `Copy`, no references.
unsafe impl bytemuck::Pod for Pixel {}
const _: () = assert!(size_of::<Pixel>() == WOVEN * 4);

/// Rows of bytes between the passes, and the memory to make them.
#[derive(Debug, Default)]
pub(super) struct Between {
    /// Pixels of the rows that are made together.
    woven: Vec<Pixel>,
    /// The results for these pixels.
    made: Vec<u8>,
    /// A line of sums, used if pixels have so many channels that a register holds only one pixel.
    sums: Vec<f32>,
    /// Planes joined to pixels.
    joined: Vec<u8>,
    /// A buffer of rows, starting with row `base`; `have` of them are made.
    pub(super) rows: Vec<u8>,
    room: usize,
    base: usize,
    have: Range<usize>,
}

impl Between {
    pub(super) fn held_bytes(&self) -> usize {
        size_of::<Pixel>() * self.woven.capacity()
            + 4 * self.sums.capacity()
            + self.made.capacity()
            + self.joined.capacity()
            + self.rows.capacity()
    }
}

/// The horizontal pass.
pub(super) struct Across<'a, A> {
    pub(super) src: &'a Bytes<'a, A>,
    pub(super) x: &'a Taps,
    pub(super) columns: usize,
    pub(super) wide: usize,
    /// Whether rows between the passes are planes.
    pub(super) planar: bool,
    /// All rows that the image's windows read.
    pub(super) reads: Range<usize>,
    pub(super) level: Level,
}

impl<A: Fn(usize, usize) -> usize> Across<'_, A> {
    /// Number of rows that are made together.
    fn together(&self) -> usize {
        (WOVEN / self.wide).max(1)
    }

    pub(super) fn pitch(&self) -> usize {
        self.x.outputs() * if self.planar { self.src.channels } else { self.wide }
    }

    pub(super) fn prepare(&self, between: &mut Between, most: usize) {
        let lanes = self.src.channels.max(WOVEN).div_ceil(WOVEN);
        // Zeros after the last pixel: taps of weight 0 and unused lanes end there.
        between.woven.clear();
        between.woven.resize((self.columns + self.x.stride + 1) * lanes + 1, Pixel([0.0; WOVEN]));
        between.made.clear();
        between.made.resize(self.x.outputs().next_multiple_of(WOVEN) * WOVEN, 0);
        between.room = 2 * most + self.together();
        between.rows.resize(between.room * self.pitch(), 0);
        (between.base, between.have) = (0, 0..0);
    }

    /// Makes the rows of `window` that are missing; returns the position of its first row. Windows come in order, or in
    /// reverse order.
    pub(super) fn need(&self, between: &mut Between, window: Range<usize>, reverse: bool) -> usize {
        let (pitch, room) = (self.pitch(), between.room);
        if window.start < between.base || window.end - between.base > room {
            let base = if reverse { window.end.saturating_sub(room) } else { window.start };
            let keep = between.have.start.max(base)..between.have.end.min(base + room);
            if keep.start < keep.end {
                let from = (keep.start - between.base) * pitch..(keep.end - between.base) * pitch;
                between.rows.copy_within(from, (keep.start - base) * pitch);
                between.have = keep;
            } else {
                between.have = 0..0;
            }
            between.base = base;
        }
        let beside = between.have.end < window.start || window.end < between.have.start;
        if between.have.is_empty() || beside {
            let start = if reverse { window.end } else { window.start };
            between.have = start..start;
        }
        while between.have.start > window.start {
            let least = self.reads.start.max(between.base).min(window.start);
            let start = between.have.start.saturating_sub(self.together()).max(least);
            self.make(between, start..between.have.start);
            between.have.start = start;
        }
        while between.have.end < window.end {
            let most = self.reads.end.min(between.base + room).max(window.end);
            let end = (between.have.end + self.together()).min(most);
            self.make(between, between.have.end..end);
            between.have.end = end;
        }
        (window.start - between.base) * pitch
    }

    /// Makes a few of the rows that are made together.
    fn make(&self, between: &mut Between, rows: Range<usize>) {
        let Self { src: Bytes { data, channels, pixel, at }, x, columns, wide, level, .. } = self;
        let (level, columns, wide, channels, pixel) = (*level, *columns, *wide, *channels, *pixel);
        let (pitch, n) = (self.pitch(), x.outputs());
        let Between { woven, made, sums, joined, rows: out, base, .. } = between;
        let woven: &mut [f32] = bytemuck::cast_slice_mut(woven);
        let out = &mut out[(rows.start - *base) * pitch..(rows.end - *base) * pitch];
        if n == 0 {
            return;
        }
        let interleaved = pixel == channels;
        // Loops that only move bytes: with AVX-512, compilers generate scatter stores to sixteen places, which take
        // twice the time.
        let narrow = if level == Level::Best { Level::Avx2 } else { level };
        let plane = |c: usize, y: usize| &data[at(c, y)..][..columns];
        let pixels = |y: usize| &data[at(0, y)..][..columns * channels];
        if wide > WOVEN / 2 {
            for (out, y) in out.chunks_exact_mut(pitch).zip(rows) {
                for c in 0..channels {
                    let values = if interleaved { &pixels(y)[c..] } else { plane(c, y) };
                    for (pixel, value) in woven.chunks_exact_mut(channels).zip(values.iter().step_by(pixel)) {
                        pixel[c] = f32::from(*value);
                    }
                }
                sums.resize(n * wide, 0.0);
                made.resize(n * wide, 0);
                lanes::horizontal(level, woven, channels, x, false, sums);
                wholes(level, sums, made);
                if !self.planar {
                    out.copy_from_slice(made);
                    continue;
                }
                for (c, plane) in out.chunks_exact_mut(n).enumerate() {
                    plane.iter_mut().zip(made.chunks_exact(wide)).for_each(|(value, made)| *value = made[c]);
                }
            }
            return;
        }
        // Rows that are not needed repeat the last one.
        let row = |n: usize| (rows.start + n).min(rows.end - 1);
        if wide == 1 {
            weave_gray(narrow, std::array::from_fn(|n| plane(0, row(n))), woven);
        } else if interleaved {
            weave_pixels(narrow, std::array::from_fn(|n| pixels(row(n))), channels, woven);
        } else {
            // As pixels all of whose lanes are channels.
            joined.resize(4 * columns * wide, 0);
            for (n, joined) in joined.chunks_exact_mut(columns * wide).take(rows.len()).enumerate() {
                if wide == 4 {
                    join(narrow, std::array::from_fn(|c| plane(c.min(channels - 1), row(n))), joined);
                } else {
                    for c in 0..channels {
                        joined[c..].iter_mut().step_by(wide).zip(plane(c, row(n))).for_each(|(to, from)| *to = *from);
                    }
                }
            }
            let joined = std::array::from_fn(|n| &joined[n * columns * wide..][..columns * wide]);
            weave_pixels(narrow, joined, wide, woven);
        }
        across(level, woven, x, made);
        if self.planar {
            part(narrow, made, wide, channels, pitch, out);
        } else {
            unweave(narrow, made, wide, pitch, out);
        }
    }
}

at_each_level! {
    /// `out[16 * p + r]` = pixel `p` of row `r`.
    fn weave_gray[](rows: [&[u8]; WOVEN], out: &mut [f32]) = weave_gray_loop;
    /// `out[16 * p + wide * r + c]` = value `c` of pixel `p` of row `r`; `wide` is 4 or 8.
    fn weave_pixels[](rows: [&[u8]; 4], channels: usize, out: &mut [f32]) = weave_pixels_loop;
    /// Joins planes to pixels.
    fn join[](planes: [&[u8]; 4], out: &mut [u8]) = join_loop;
    /// `out[16 * o + i]` = the weighted sum of `woven[16 * (first[o] + t) + i]` over taps `t`, clamped and rounded.
    fn across[](woven: &[f32], taps: &Taps, out: &mut [u8]) = across_loop;
    /// `out[r * pitch + o * wide..]` = the `wide` values of output `o` in row `r`.
    fn unweave[](made: &[u8], wide: usize, pitch: usize, out: &mut [u8]) = unweave_loop;
    /// The same, to planes of each row.
    fn part[](made: &[u8], wide: usize, channels: usize, pitch: usize, out: &mut [u8]) = part_loop;
    /// Clamps and rounds sums.
    fn wholes[](sums: &[f32], out: &mut [u8]) = wholes_loop;
    /// `out[i]` = the weighted sum of `rows[start + t * pitch + i]` over taps `t`, clamped, times `affine[0]` plus
    /// `affine[1]`, rounded.
    fn down[S: Store](rows: &[u8], start: usize, pitch: usize, weights: &[f32], affine: [f32; 2], out: &mut [S::Raw]) = down_loop;
}

/// Transposes a block: four times, rows that are eight apart are interleaved.
#[inline(always)]
fn transposed(mut block: [[u8; WOVEN]; WOVEN]) -> [[u8; WOVEN]; WOVEN] {
    for _ in 0..4 {
        let before = block;
        for i in 0..WOVEN / 2 {
            let (a, b) = (before[i], before[i + WOVEN / 2]);
            for j in 0..WOVEN / 2 {
                (block[2 * i][2 * j], block[2 * i][2 * j + 1]) = (a[j], b[j]);
                (block[2 * i + 1][2 * j], block[2 * i + 1][2 * j + 1]) = (a[j + WOVEN / 2], b[j + WOVEN / 2]);
            }
        }
    }
    block
}

#[inline(always)]
fn weave_gray_loop(rows: [&[u8]; WOVEN], out: &mut [f32]) {
    let blocks = rows.map(|row| row.as_chunks::<WOVEN>().0);
    let n = blocks[0].len();
    let blocks = blocks.map(|blocks| &blocks[..n]);
    let rest = out.as_chunks_mut::<WOVEN>().0;
    let (whole, rest) = rest.split_at_mut(n * WOVEN);
    for (block, out) in whole.as_chunks_mut::<WOVEN>().0.iter_mut().enumerate() {
        let mut bytes = [[0; WOVEN]; WOVEN];
        for r in 0..WOVEN {
            bytes[r] = blocks[r][block];
        }
        let bytes = transposed(bytes);
        for p in 0..WOVEN {
            for i in 0..WOVEN {
                out[p][i] = f32::from(bytes[p][i]);
            }
        }
    }
    for (p, out) in (n * WOVEN..rows[0].len()).zip(rest) {
        for i in 0..WOVEN {
            out[i] = f32::from(rows[i][p]);
        }
    }
}

#[inline(always)]
fn weave_pixels_loop(rows: [&[u8]; 4], channels: usize, out: &mut [f32]) {
    match channels {
        2 => weave_fixed::<2, 4>(rows, out),
        3 => weave_fixed::<3, 4>(rows, out),
        4 => weave_fixed::<4, 4>(rows, out),
        5 => weave_fixed::<5, 8>(rows, out),
        6 => weave_fixed::<6, 8>(rows, out),
        7 => weave_fixed::<7, 8>(rows, out),
        _ => weave_fixed::<8, 8>(rows, out),
    }
}

/// Lanes beyond the channels hold the next pixel's values, which are not used.
#[inline(always)]
fn weave_fixed<const C: usize, const WIDE: usize>(rows: [&[u8]; 4], out: &mut [f32]) {
    let len = rows[0].len();
    let rows = rows.map(|row| &row[..len]);
    let out = &mut out.as_chunks_mut::<WOVEN>().0[..len / C];
    let whole = if len < WIDE { 0 } else { (len - WIDE) / C + 1 };
    let (whole, rest) = out.split_at_mut(whole);
    let n = whole.len();
    for (p, out) in whole.iter_mut().enumerate() {
        let mut pixels = [0; WOVEN];
        for r in 0..WOVEN / WIDE {
            pixels[r * WIDE..][..WIDE].copy_from_slice(&rows[r][p * C..][..WIDE]);
        }
        for i in 0..WOVEN {
            out[i] = f32::from(pixels[i]);
        }
    }
    for (p, out) in rest.iter_mut().enumerate() {
        for r in 0..WOVEN / WIDE {
            for c in 0..C {
                out[r * WIDE + c] = f32::from(rows[r][(n + p) * C + c]);
            }
        }
    }
}

#[inline(always)]
fn join_loop([a, b, c, d]: [&[u8]; 4], out: &mut [u8]) {
    for ((((out, &a), &b), &c), &d) in out.as_chunks_mut::<4>().0.iter_mut().zip(a).zip(b).zip(c).zip(d) {
        *out = [a, b, c, d];
    }
}

#[inline(always)]
fn across_loop(woven: &[f32], taps: &Taps, out: &mut [u8]) {
    match taps.most {
        1 => across_fixed::<1>(woven, taps, out),
        2 => across_fixed::<2>(woven, taps, out),
        3 => across_fixed::<3>(woven, taps, out),
        4 => across_fixed::<4>(woven, taps, out),
        5 => across_fixed::<5>(woven, taps, out),
        6 => across_fixed::<6>(woven, taps, out),
        7 => across_fixed::<7>(woven, taps, out),
        8 => across_fixed::<8>(woven, taps, out),
        _ => across_fixed::<0>(woven, taps, out),
    }
}

/// `N` taps for each output, or blocks of four when `N` is 0.
#[inline(always)]
fn across_fixed<const N: usize>(woven: &[f32], taps: &Taps, out: &mut [u8]) {
    let weights = taps.weights.chunks_exact(taps.stride);
    for (((stored, &first), &count), weights) in
        out.as_chunks_mut::<WOVEN>().0.iter_mut().zip(&taps.first).zip(&taps.count).zip(weights)
    {
        let mut sums = [0.0f32; WOVEN];
        if N > 0 {
            add_taps::<WOVEN, WOVEN, N>(woven, first as usize, weights, &mut sums);
        } else {
            for at in (0..count as usize).step_by(4) {
                add_taps::<WOVEN, WOVEN, 4>(woven, first as usize + at, &weights[at..], &mut sums);
            }
        }
        for i in 0..WOVEN {
            stored[i] = whole(sums[i]);
        }
    }
}

#[inline(always)]
fn unweave_loop(made: &[u8], wide: usize, pitch: usize, out: &mut [u8]) {
    match wide {
        1 => unweave_fixed::<1>(made, pitch, out),
        4 => unweave_fixed::<4>(made, pitch, out),
        _ => unweave_fixed::<8>(made, pitch, out),
    }
}

#[inline(always)]
fn unweave_fixed<const WIDE: usize>(made: &[u8], pitch: usize, out: &mut [u8]) {
    for (r, out) in out.chunks_exact_mut(pitch).enumerate() {
        for (out, made) in out.as_chunks_mut::<WIDE>().0.iter_mut().zip(made.as_chunks::<WOVEN>().0) {
            // As a whole; otherwise the compiler would move each byte separately.
            *out = *made[r * WIDE..].first_chunk().expect("rows lie within the lanes");
        }
    }
}

#[inline(always)]
fn part_loop(made: &[u8], wide: usize, channels: usize, pitch: usize, out: &mut [u8]) {
    let n = pitch / channels;
    for (block, made) in made.as_chunks::<WOVEN>().0.as_chunks::<WOVEN>().0.iter().enumerate() {
        let at = block * WOVEN;
        let lanes = transposed(*made);
        for (r, row) in out.chunks_exact_mut(pitch).enumerate() {
            for (plane, lane) in row.chunks_exact_mut(n).zip(&lanes[r * wide..]) {
                match plane[at..].first_chunk_mut() {
                    Some(plane) => *plane = *lane,
                    None => plane[at..].copy_from_slice(&lane[..n - at]),
                }
            }
        }
    }
}

/// Columns of one block: see [`lanes::BLOCK`].
#[inline(always)]
fn down_loop<S: Store>(rows: &[u8], start: usize, pitch: usize, weights: &[f32], affine: [f32; 2], out: &mut [S::Raw]) {
    let n = out.len();
    let mut done = 0;
    while done + BLOCK <= n {
        down_block::<S, BLOCK>(rows, start + done, pitch, weights, affine, &mut out[done..]);
        done += BLOCK;
    }
    if done < n && n >= BLOCK {
        // The last block overlaps the one before it and writes the same values again.
        let last = n - BLOCK;
        return down_block::<S, BLOCK>(rows, start + last, pitch, weights, affine, &mut out[last..]);
    }
    while done + 8 <= n {
        down_block::<S, 8>(rows, start + done, pitch, weights, affine, &mut out[done..]);
        done += 8;
    }
    while done < n {
        down_block::<S, 1>(rows, start + done, pitch, weights, affine, &mut out[done..]);
        done += 1;
    }
}

#[inline(always)]
#[expect(clippy::manual_clamp, reason = "as in lanes.rs")]
fn down_block<S: Store, const N: usize>(
    rows: &[u8],
    start: usize,
    pitch: usize,
    weights: &[f32],
    affine: [f32; 2],
    out: &mut [S::Raw],
) {
    let mut sums = [0.0f32; N];
    let mut at = start;
    for &weight in weights {
        let pixels: &[u8; N] = rows[at..].first_chunk().expect("rows hold all columns");
        for i in 0..N {
            sums[i] = weight.mul_add(f32::from(pixels[i]), sums[i]);
        }
        at += pitch;
    }
    let out: &mut [S::Raw; N] = out.first_chunk_mut().expect("blocks end within the row");
    for i in 0..N {
        out[i] = S::of(sums[i].max(0.0).min(255.0).mul_add(affine[0], affine[1]));
    }
}

#[inline(always)]
fn wholes_loop(sums: &[f32], out: &mut [u8]) {
    for (out, &sum) in out.iter_mut().zip(sums) {
        *out = whole(sum);
    }
}

#[cfg(test)]
mod tests {
    use infeed_core::{
        random::SampleRng,
        types::{DType, ImageInfo, Layout},
    };

    use super::*;
    use crate::kernels::{
        Axis, ChannelTable, Filter, Pixels, Plane, Planes, ResampleParams, Resampler, RowSpec, channel_source,
    };

    /// Weights of each output as Pillow computes them; for `CubicFour` as torch does.
    fn weights(filter: Filter, size: usize, len: usize) -> Vec<Vec<(usize, i64)>> {
        let cubic = |x: f64, a: f64| match x.abs() {
            x if x < 1.0 => ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0,
            x if x < 2.0 => (((x - 5.0) * x + 8.0) * x - 4.0) * a,
            _ => 0.0,
        };
        let sinc = |x: f64| {
            let x = x * std::f64::consts::PI;
            if x == 0.0 { 1.0 } else { x.sin() / x }
        };
        let scale = size as f64 / len as f64;
        let fixed = |weight: f64| (weight * f64::from(1 << 22)).round() as i64;
        let output = |o: usize| {
            let centre = (o as f64 + 0.5) * scale;
            if filter == Filter::CubicFour {
                let base = (centre - 0.5).floor();
                let part = centre - 0.5 - base;
                let at = |n: i64| (base as i64 + n).clamp(0, size as i64 - 1) as usize;
                return (-1..3).map(|n| (at(n), fixed(cubic(part - n as f64, -0.75)))).collect();
            }
            let (widened, reach) = (scale.max(1.0), if filter == Filter::Lanczos { 3.0 } else { 2.0 });
            let first = (centre - reach * widened + 0.5).max(0.0) as usize;
            let end = ((centre + reach * widened + 0.5) as usize).min(size);
            let weight = |p: usize| {
                let x = (p as f64 - centre + 0.5) / widened;
                match filter {
                    Filter::Lanczos if x.abs() < 3.0 => sinc(x) * sinc(x / 3.0),
                    Filter::Lanczos => 0.0,
                    _ => cubic(x, -0.5),
                }
            };
            let sum: f64 = (first..end).map(weight).sum();
            (first..end).map(|p| (p, fixed(weight(p) / sum))).collect()
        };
        (0..len).map(output).collect()
    }

    /// A plane resized with Pillow's integer arithmetic, horizontally and then vertically.
    fn pillow(plane: &[u8], [height, width]: [usize; 2], to: [usize; 2], filter: Filter) -> Vec<u8> {
        let sum = |taps: &[(usize, i64)], value: &dyn Fn(usize) -> u8| {
            let sum: i64 = taps.iter().map(|&(p, weight)| weight * i64::from(value(p))).sum();
            ((sum + (1 << 21)) >> 22).clamp(0, 255) as u8
        };
        let (down, across) = (weights(filter, height, to[0]), weights(filter, width, to[1]));
        let between: Vec<u8> =
            plane.chunks(width).flat_map(|row| across.iter().map(|taps| sum(taps, &|x| row[x]))).collect();
        down.iter()
            .flat_map(|taps| (0..to[1]).map(|x| sum(taps, &|y| between[y * to[1] + x])).collect::<Vec<_>>())
            .collect()
    }

    fn axis(low: usize, size: usize, len: usize, flip: u32) -> Axis {
        let (low, high) = (low as u32, (low + size) as u32);
        Axis { start: low as f32, step: size as f32 / len as f32, low, high, from: 0, to: len as u32, flip }
    }

    /// Our row of bytes.
    fn ours(info: ImageInfo, data: &[u8], params: &ResampleParams, row: &RowSpec, level: Level) -> Vec<u8> {
        let same = |value: f32| vec![value; row.channels as usize];
        let table = ChannelTable { scale: same(1.0), bias: same(0.0), fill: same(0.0), cutout: same(0.0) };
        let mut out = vec![0; row.len_bytes()];
        let src = Pixels { info, rows: 0..info.height, data };
        Resampler::with_level(level).run(&src, params, &table, row, &mut out).unwrap();
        out
    }

    fn away(a: &[u8], b: &[u8]) -> u8 {
        assert_eq!(a.len(), b.len());
        a.iter().zip(b).map(|(a, b)| a.abs_diff(*b)).max().unwrap_or(0)
    }

    /// A picture of hard edges.
    fn edges(height: usize, width: usize) -> Vec<u8> {
        let at = |y: usize, x: usize| u8::from(((x * x * 3 + y * y * 5 + x * y * 7) / 4).is_multiple_of(3)) * 255;
        (0..height * width).map(|i| at(i / width, i % width)).collect()
    }

    /// For `edges(6, 7)` and `edges(12, 13)` as `a`: `Image.fromarray(a).resize((9, 10), BICUBIC)` and with `LANCZOS`,
    /// and `((5, 4), …)`, made with Pillow 13; torchvision 0.29's `F.resize(tensor, [10, 9], BICUBIC, antialias=False)`
    /// of three such planes. With antialias it gives Pillow's bytes.
    const MADE: [(Filter, [usize; 4], &[u8]); 5] = [
        (
            Filter::Cubic,
            [6, 7, 10, 9],
            &[
                255, 255, 255, 255, 255, 255, 255, 255, 255, 166, 233, 219, 156, 166, 166, 166, 166, 166, 0, 191, 163,
                0, 0, 0, 0, 0, 0, 0, 189, 226, 116, 0, 0, 0, 0, 0, 0, 142, 238, 235, 43, 4, 0, 14, 43, 0, 14, 130, 255,
                233, 26, 0, 75, 233, 0, 69, 121, 152, 177, 117, 40, 49, 177, 0, 191, 163, 0, 0, 228, 124, 0, 0, 0, 76,
                140, 133, 0, 222, 215, 109, 0, 0, 0, 121, 240, 0, 204, 255, 186, 0,
            ],
        ),
        (
            Filter::Lanczos,
            [6, 7, 10, 9],
            &[
                255, 255, 255, 255, 255, 255, 255, 255, 255, 169, 234, 220, 152, 173, 170, 168, 170, 173, 0, 192, 179,
                0, 0, 1, 0, 0, 0, 0, 187, 238, 84, 0, 0, 0, 0, 0, 8, 120, 237, 248, 60, 6, 5, 28, 60, 6, 1, 127, 255,
                239, 27, 0, 97, 238, 3, 75, 121, 136, 192, 131, 38, 56, 194, 0, 192, 185, 0, 0, 235, 141, 0, 5, 3, 84,
                168, 123, 0, 217, 228, 94, 0, 6, 0, 139, 252, 8, 175, 255, 177, 8,
            ],
        ),
        (
            Filter::CubicFour,
            [6, 7, 10, 9],
            &[
                255, 255, 255, 255, 255, 255, 255, 255, 255, 156, 237, 216, 141, 156, 156, 156, 156, 156, 0, 203, 170,
                0, 0, 0, 0, 0, 0, 0, 201, 231, 101, 0, 0, 0, 0, 0, 0, 137, 237, 239, 51, 5, 0, 16, 51, 0, 11, 134, 255,
                235, 25, 0, 74, 235, 0, 74, 122, 146, 184, 128, 43, 45, 184, 0, 203, 170, 0, 0, 230, 133, 0, 0, 0, 93,
                152, 118, 0, 223, 217, 101, 0, 0, 0, 129, 244, 0, 194, 255, 192, 0,
            ],
        ),
        (
            Filter::Cubic,
            [12, 13, 4, 5],
            &[162, 95, 112, 165, 147, 90, 114, 119, 78, 68, 68, 86, 133, 123, 81, 94, 115, 81, 61, 120],
        ),
        (
            Filter::Lanczos,
            [12, 13, 4, 5],
            &[168, 93, 109, 176, 149, 89, 111, 114, 79, 62, 66, 89, 141, 125, 80, 93, 124, 74, 59, 125],
        ),
    ];

    #[test]
    fn bytes_are_pillows_and_torchvisions() {
        for (filter, [height, width, out_h, out_w], made) in MADE {
            let plane = edges(height, width);
            assert!(away(&pillow(&plane, [height, width], [out_h, out_w], filter), made) <= 1, "{filter:?}");
            let params =
                ResampleParams { y: axis(0, height, out_h, 0), x: axis(0, width, out_w, 0), cutout: [0; 4], filter };
            let row = RowSpec {
                height: out_h as u32,
                width: out_w as u32,
                channels: 1,
                dtype: DType::U8,
                layout: Layout::Nchw,
            };
            let info = ImageInfo::interleaved_u8(height as u32, width as u32, 1);
            let away = away(&ours(info, &plane, &params, &row, Level::Best), made);
            assert!(away <= 1, "{filter:?} {height}x{width}: {away} levels");
            // The single plane of a JPEG.
            let planes = [Plane { at: 0, pitch: width, step: [1, 1], rows: 0..height as u32, cols: 0..width as u32 }];
            let src = Planes { info, planes: &planes, ycbcr: false, data: &plane };
            let table = ChannelTable { scale: vec![1.0], bias: vec![0.0], fill: vec![0.0], cutout: vec![0.0] };
            let mut out = vec![0; row.len_bytes()];
            Resampler::new().run_planes(&src, &params, &table, &row, &mut out).unwrap();
            assert_eq!(out, ours(info, &plane, &params, &row, Level::Best), "{filter:?}");
        }
    }

    /// The value of a picture's pixel.
    type Content = fn(usize, &mut infeed_core::random::Draws) -> u8;

    #[test]
    fn whatever_the_size_and_the_picture_bytes_are_a_level_from_pillows() {
        const SIZES: [[usize; 2]; 11] =
            [[1, 1], [1, 9], [9, 1], [2, 2], [7, 3], [3, 7], [17, 33], [33, 17], [64, 48], [5, 129], [40, 41]];
        let contents: [Content; 4] = [
            |_, draws| draws.bits() as u8,
            |_, draws| u8::from(draws.bits() & 1 == 1) * 255,
            |i, _| (127.0 + 120.0 * (i as f32 / 9.0).sin()) as u8,
            |_, _| 137,
        ];
        let mut draws = SampleRng::new(1, 2, 3).op(0);
        let (mut all, mut beyond) = (0u32, 0);
        let pairs = SIZES.iter().flat_map(|from| SIZES.iter().map(move |to| (*from, *to)));
        for (n, ((from, to), content)) in pairs.flat_map(|pair| contents.map(|content| (pair, content))).enumerate() {
            for filter in [Filter::Cubic, Filter::CubicFour, Filter::Lanczos] {
                // Everything that affects the order of values: channels, layouts, flips, a window, levels.
                let (channels, flip) = ([1, 3, 3, 2, 4, 5, 8, 9][n % 8], [n as u32 & 1, n as u32 >> 1 & 1]);
                let out_channels = if channels == 1 && n % 3 == 0 { 3 } else { channels };
                let (planar, level) = (n % 5 < 2, [Level::Best, Level::Avx2, Level::Portable][n / 4 % 3]);
                let layout = if n % 7 < 4 { Layout::Nchw } else { Layout::Nhwc };
                let (height, width) = (from[0] + 3, from[1] + 4);
                let planes: Vec<Vec<u8>> =
                    (0..channels).map(|_| (0..height * width).map(|i| content(i, &mut draws)).collect()).collect();
                let pixel = |i: usize| planes.iter().map(move |plane| plane[i]);
                let data = match planar {
                    true => planes.concat(),
                    false => (0..height * width).flat_map(pixel).collect(),
                };
                let info =
                    ImageInfo { planar, ..ImageInfo::interleaved_u8(height as u32, width as u32, channels as u8) };
                let params = ResampleParams {
                    y: axis(1, from[0], to[0], flip[0]),
                    x: axis(3, from[1], to[1], flip[1]),
                    cutout: [0; 4],
                    filter,
                };
                let row = RowSpec {
                    height: to[0] as u32,
                    width: to[1] as u32,
                    channels: out_channels as u32,
                    dtype: DType::U8,
                    layout,
                };
                let made = ours(info, &data, &params, &row, level);
                for c in 0..out_channels {
                    let source = channel_source(channels as u32, row.channels, c as u32).unwrap() as usize;
                    let window: Vec<u8> = planes[source]
                        .chunks(width)
                        .skip(1)
                        .take(from[0])
                        .flat_map(|row| &row[3..3 + from[1]])
                        .copied()
                        .collect();
                    let want = pillow(&window, from, to, filter);
                    let at = |y: usize, x: usize| match layout {
                        Layout::Nchw => (c * to[0] + y) * to[1] + x,
                        Layout::Nhwc => (y * to[1] + x) * out_channels + c,
                    };
                    let turned = |o: usize, len: usize, flip: u32| if flip == 1 { len - 1 - o } else { o };
                    for (y, x) in (0..to[0]).flat_map(|y| (0..to[1]).map(move |x| (y, x))) {
                        let want = want[turned(y, to[0], flip[0]) * to[1] + turned(x, to[1], flip[1])];
                        let away = made[at(y, x)].abs_diff(want);
                        assert!(away <= 2, "{away} levels: {info:?} {params:?} {row:?} {level:?} at {y}, {x}");
                        all += 1;
                        beyond += u32::from(away > 1);
                    }
                }
            }
        }
        // If a sum between the passes is within a ten thousandth of a half, rounding noise decides between two bytes.
        // At an edge, the weight of a byte may exceed 1.
        assert!(beyond * 500_000 <= all, "{beyond} of {all} values are two levels away");
    }
}
