//! `affine`, `rotate` and `perspective`: torchvision's grid, sampled as `grid_sample` does.
//!
//! ```text
//! row of outputs: coordinates ─▶ nearest: one index each ─▶ for each plane: copy, or pick
//!                            └▶ between pixels, 64 at once: first column, weights ─▶ for each plane: taps of 2 or 4 rows ─▶ sum
//! ```
//!
//! Coordinates are computed in f32 as in torch, rounding after each product and sum: a pixel halfway between two others
//! then gets the same one.

use super::{
    colour::of_white,
    picture::{Sides, Tile},
    pixel_op::{Map, Sampling},
    values::Value,
};
use crate::kernels::level::{Level, at_each_level};

at_each_level! {
    fn nearest[V: Value](job: &Job, values: &[V], index: &mut [[i32; STEP]], out: &mut [V]) = nearest_loop;
    fn bilinear[V: Value](job: &Job, values: &[V], out: &mut [V]) = bilinear_loop;
    fn bicubic[V: Value](job: &Job, values: &[V], out: &mut [V]) = bicubic_loop;
}

/// Outputs per step.
pub(super) const STEP: usize = 64;

type Floats = [f32; STEP];
type Ints = [i32; STEP];

/// Everything that is the same for all rows of a picture.
#[derive(Debug)]
pub(super) struct Job {
    height: usize,
    width: usize,
    /// The grid's rows: coefficients of x, y and 1, divided by half a side; and those of a perspective's divisor.
    grid: [[f32; 3]; 3],
    perspective: bool,
    /// In the type's range.
    fill: Option<[f32; 4]>,
}

impl Job {
    fn new(map: &Map, height: usize, width: usize, fill: Option<[f32; 4]>) -> Self {
        let half = [0.5 * width as f64, 0.5 * height as f64].map(|side| side as f32);
        let row = |m: &[f64], half: f32| [m[0], m[1], m[2]].map(|v| v as f32 / half);
        match map {
            Map::Affine(m) => {
                let grid = [row(&m[..3], half[0]), row(&m[3..], half[1]), [0.0; 3]];
                Self { height, width, grid, perspective: false, fill }
            }
            Map::Perspective(m) => {
                let divisor = [m[6] as f32, m[7] as f32, 1.0];
                let grid = [row(&m[..3], half[0]), row(&m[3..6], half[1]), divisor];
                Self { height, width, grid, perspective: true, fill }
            }
        }
    }

    #[inline(always)]
    fn fill_of(&self, channel: usize) -> f32 {
        self.fill.map_or(0.0, |fill| fill[channel & 3])
    }
}

/// Everything that is the same for a row of outputs.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// torch counts from the picture's centre, or from its corner; halves are exact.
    first: f32,
    across: [f32; 3],
    /// Products with the row, and the addends.
    down: [f32; 3],
    rest: [f32; 3],
    half: [f32; 2],
    most: [f32; 2],
}

impl Row {
    #[inline(always)]
    fn new(job: &Job, y: usize) -> Self {
        let sides = [job.width as f32, job.height as f32];
        let (first, y) = if job.perspective {
            (0.5, y as f32 + 0.5)
        } else {
            ((1.0 - sides[0]) * 0.5, (1.0 - sides[1]) * 0.5 + y as f32)
        };
        let grid = &job.grid;
        Self {
            first,
            across: [grid[0][0], grid[1][0], grid[2][0]],
            down: [y * grid[0][1], y * grid[1][1], y * grid[2][1]],
            rest: [grid[0][2], grid[1][2], grid[2][2]],
            half: [sides[0] * 0.5, sides[1] * 0.5],
            most: [sides[0] + 1.0, sides[1] + 1.0],
        }
    }

    #[inline(always)]
    fn sum(&self, x: f32, of: usize) -> f32 {
        ((self.first + x) * self.across[of] + self.down[of]) + self.rest[of]
    }

    /// From the grid's -1..1 to pixels. The result is always between -2 and the side plus 1.
    #[inline(always)]
    fn pixel(&self, place: f32, axis: usize) -> f32 {
        let place = (place + 1.0) * self.half[axis] - 0.5;
        // Comparisons that move NaN outside.
        let place = if place > -2.0 { place } else { -2.0 };
        if place < self.most[axis] { place } else { self.most[axis] }
    }

    /// Source column and row of output `x`.
    #[inline(always)]
    fn affine(&self, x: f32) -> [f32; 2] {
        [0, 1].map(|axis| self.pixel(self.sum(x, axis), axis))
    }

    /// The same for a perspective.
    #[inline(always)]
    fn perspective(&self, x: f32) -> [f32; 2] {
        let divisor = self.sum(x, 2);
        [0, 1].map(|axis| self.pixel(self.sum(x, axis) / divisor - 1.0, axis))
    }

    /// For the outputs from `x` on.
    #[inline(always)]
    fn step(&self, perspective: bool, x: usize) -> [Floats; 2] {
        let [mut columns, mut rows] = [[0.0; STEP]; 2];
        let x_of = |i: usize| (x as i32 + i as i32) as f32;
        if perspective {
            for i in 0..STEP {
                [columns[i], rows[i]] = self.perspective(x_of(i));
            }
        } else {
            for i in 0..STEP {
                [columns[i], rows[i]] = self.affine(x_of(i));
            }
        }
        [columns, rows]
    }
}

/// Whether a map only moves whole pixels to whole pixels, so that interpolation would add only rounding errors.
fn moves_whole_pixels(map: &Map, height: usize, width: usize) -> bool {
    let Map::Affine([a, b, c, d, e, f]) = *map else { return false };
    let straight = a.abs() == 1.0 && e.abs() == 1.0 && b == 0.0 && d == 0.0;
    let turned = b.abs() == 1.0 && d.abs() == 1.0 && a == 0.0 && e == 0.0 && height % 2 == width % 2;
    (straight || turned) && c.fract() == 0.0 && f.fract() == 0.0
}

/// A warp of a picture of this height and width in a GPU's format: whether it is a perspective, the sampling, whether
/// it fills, the grid, and the fill in the type's range.
pub(super) fn words(map: &Map, sampling: Sampling, [height, width]: [u32; 2], fill: Option<[f32; 4]>) -> [u32; 16] {
    let (height, width) = (height as usize, width as usize);
    let job = Job::new(map, height, width, fill);
    let sampling = if moves_whole_pixels(map, height, width) { Sampling::Nearest } else { sampling };
    let mut words =
        [u32::from(job.perspective), sampling as u32, u32::from(fill.is_some()), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let numbers = job.grid.as_flattened().iter().copied().chain((0..4).map(|channel| job.fill_of(channel)));
    words[3..].iter_mut().zip(numbers).for_each(|(word, number)| *word = number.to_bits());
    words
}

/// From `tile` to `out`, which have the same shape and type. Planes have fewer than 2^31 pixels, sides are at most
/// 2^22.
pub(super) fn warp(
    level: Level,
    map: &Map,
    sampling: Sampling,
    fill: Option<[f32; 4]>,
    tile: &mut Tile,
    index: &mut Vec<[i32; STEP]>,
    out: &mut Tile,
) {
    index.resize((tile.width as usize).div_ceil(STEP), [0; STEP]);
    let (height, width) = (tile.height as usize, tile.width as usize);
    let sampling = if moves_whole_pixels(map, height, width) { Sampling::Nearest } else { sampling };
    let job = |fill| Job::new(map, height, width, fill);
    match (tile.sides(), out.sides()) {
        (Sides::Bytes(values), Sides::Bytes(out)) => {
            let job = job(fill.map(|fill| fill.map(of_white)));
            sample(level, sampling, &job, values, index, out);
        }
        (Sides::Floats(values), Sides::Floats(out)) => sample(level, sampling, &job(fill), values, index, out),
        _ => unreachable!("both tiles are of one type"),
    }
}

fn sample<V: Value>(
    level: Level,
    sampling: Sampling,
    job: &Job,
    values: &[V],
    index: &mut [[i32; STEP]],
    out: &mut [V],
) {
    match sampling {
        Sampling::Nearest => nearest(level, job, values, index, out),
        Sampling::Bilinear => bilinear(level, job, values, out),
        Sampling::Bicubic => bicubic(level, job, values, out),
    }
}

/// Calls `$step` with the start of each step of a row and the number of its outputs; the last overlaps the one before
/// it.
macro_rules! in_steps {
    ($width:expr, ($at:ident, $n:ident) => $step:expr) => {{
        let width = $width;
        let mut done = 0;
        while done < width {
            let ($at, $n) = if width < STEP { (0, width) } else { (done.min(width - STEP), STEP) };
            $step;
            done = $at + STEP;
        }
    }};
}

/// Rounds to the nearest whole number, ties to even, for values from -2 to 2^22.
#[inline(always)]
fn nearest_of(value: f32) -> i32 {
    // From 2^23 on, an f32 has no fraction, so the addition rounds.
    const WHOLE: f32 = 1.5 * (1u32 << 23) as f32;
    (value + WHOLE).to_bits() as i32 - WHOLE.to_bits() as i32
}

/// Indices of the nearest pixels of a row; -1 outside.
#[inline(always)]
fn index_row(job: &Job, y: usize, index: &mut [[i32; STEP]]) {
    let (height, width) = (job.height as i32, job.width as i32);
    let row = Row::new(job, y);
    for (x, index) in (0..).step_by(STEP).zip(index) {
        let [columns, rows] = row.step(job.perspective, x);
        for i in 0..STEP {
            let (column, row) = (nearest_of(columns[i]), nearest_of(rows[i]));
            // One comparison checks both ends.
            let inside = ((column as u32) < width as u32) & ((row as u32) < height as u32);
            index[i] = if inside { row * width + column } else { -1 };
        }
    }
}

/// The outputs that are inside of the source, if they are contiguous, and whether they are a piece of a source row.
#[inline(always)]
fn span_of(index: &[i32]) -> Option<(std::ops::Range<usize>, bool)> {
    let count = index.iter().map(|at| i32::from(*at >= 0)).sum::<i32>() as usize;
    let first = index.iter().position(|at| *at >= 0)?;
    let inside = &index[first..first + count];
    let (mut signs, mut bent) = (0, 0);
    for i in 0..count {
        signs |= inside[i];
        bent |= inside[i] ^ (inside[0] + i as i32);
    }
    if signs < 0 {
        return None;
    }
    Some((first..first + count, bent == 0))
}

#[inline(always)]
fn nearest_loop<V: Value>(job: &Job, values: &[V], index: &mut [[i32; STEP]], out: &mut [V]) {
    let (height, width) = (job.height, job.width);
    let plane = height * width;
    for y in 0..height {
        index_row(job, y, index);
        let index = &index.as_flattened()[..width];
        let span = span_of(index);
        for (channel, (values, out)) in values.chunks_exact(plane).zip(out.chunks_exact_mut(plane)).enumerate() {
            let out = &mut out[y * width..][..width];
            let fill = V::rounded(job.fill_of(channel));
            let Some((inside, straight)) = span.clone() else {
                for (out, &at) in out.iter_mut().zip(index) {
                    *out = if at < 0 { fill } else { values[at as usize] };
                }
                continue;
            };
            let (first, end) = (inside.start, inside.end);
            out[..first].fill(fill);
            out[end..].fill(fill);
            let (out, index) = (&mut out[first..end], &index[first..end]);
            if straight {
                out.copy_from_slice(&values[index[0] as usize..][..out.len()]);
                continue;
            }
            for (out, &at) in out.iter_mut().zip(index) {
                // SAFETY: all outputs between the first and the last are inside: the row offset is below the height
                // times the width, and the column is below the width.
                *out = unsafe { *values.get_unchecked(at as usize) };
            }
        }
    }
}

/// Rounds down; for values of -2 or more.
#[inline(always)]
fn floor_of(value: f32) -> i32 {
    // SAFETY: the coordinates' bounds are whole numbers of i32, and no coordinate is NaN.
    let whole = unsafe { (value + 2.0).to_int_unchecked::<i32>() } - 2;
    // Near a whole number the addition may round up to it.
    whole - i32::from(whole as f32 > value)
}

/// Taps on one axis: where `N` taps begin, and their weights. They are inside of the axis if it has `N` pixels.
#[derive(Debug)]
struct Taps<const N: usize> {
    first: Ints,
    weights: [Floats; N],
}

impl<const N: usize> Taps<N> {
    const NONE: Self = Self { first: [0; STEP], weights: [[0.0; STEP]; N] };
}

/// Interpolates two pixels. Pixels outside have no weight.
#[inline(always)]
fn two_taps(at: &Floats, len: usize, taps: &mut Taps<2>) {
    let last = len as i32 - 1;
    let most = if last > 0 { last - 1 } else { 0 };
    let [before_weights, behind_weights] = &mut taps.weights;
    for i in 0..STEP {
        let cell = floor_of(at[i]);
        let behind = at[i] - cell as f32;
        let before = 1.0 - behind;
        let first = if cell > 0 { cell } else { 0 };
        let first = if first < most { first } else { most };
        taps.first[i] = first;
        // If the taps are moved into the axis by one, they keep the weight of the pixel that they now read.
        let pick = |is: bool, a: f32, b: f32| if is { a } else { b };
        before_weights[i] = pick(first == cell, before, pick(first == cell + 1, behind, 0.0));
        // An axis of one pixel has no second pixel.
        behind_weights[i] = pick(last == 0, 0.0, pick(first == cell, behind, pick(first + 1 == cell, before, 0.0)));
    }
}

/// Interpolates four pixels, `a = -0.75`. Pixels outside have no weight.
#[inline(always)]
fn four_taps(at: &Floats, len: usize, taps: &mut Taps<4>) {
    const A: f32 = -0.75;
    let len = len as i32;
    let most = if len > 4 { len - 4 } else { 0 };
    for (stored, at) in taps.first.iter_mut().zip(at) {
        let first = floor_of(*at) - 1;
        let first = if first > 0 { first } else { 0 };
        *stored = if first < most { first } else { most };
    }
    for (t, weights) in (0..).zip(&mut taps.weights) {
        for i in 0..STEP {
            let pixel = taps.first[i] + t;
            let x = (at[i] - pixel as f32).abs();
            let near = ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0;
            let far = ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A;
            let weight = if x <= 1.0 { near } else { far };
            weights[i] = if (x < 2.0) & (pixel < len) { weight } else { 0.0 };
        }
    }
}

/// The sums of `N` times `N` taps of one step, and the weight of those inside.
#[inline(always)]
fn between_loop<V: Value, const N: usize>(
    job: &Job,
    values: &[V],
    out: &mut [V],
    taps: impl Fn(&Floats, usize, &mut Taps<N>),
) {
    let (height, width) = (job.height, job.width);
    let plane = height * width;
    // Allocated once: each step overwrites all of it.
    let (mut across, mut down, mut index) = (Taps::<N>::NONE, Taps::<N>::NONE, [[0i32; STEP]; N]);
    let mut pixels = [[[V::default(); N]; STEP]; N];
    let (mut mask, mut stored) = ([0.0f32; STEP], [V::default(); STEP]);
    for y in 0..height {
        let row = Row::new(job, y);
        in_steps!(width, (x, n) => {
            let [columns, rows] = row.step(job.perspective, x);
            taps(&columns, width, &mut across);
            taps(&rows, height, &mut down);
            let last = height as i32 - 1;
            for (t, index) in (0..).zip(&mut index) {
                for ((index, row), column) in index.iter_mut().zip(&down.first).zip(&across.first) {
                    // A short axis repeats its last pixel with weight 0.
                    let row = *row + t;
                    *index = (if row < last { row } else { last }) * width as i32 + *column;
                }
            }
            if job.fill.is_some() {
                for (i, mask) in mask.iter_mut().enumerate() {
                    *mask = sum_of(&across, &down, i, |_, _| 1.0);
                }
            }
            for (channel, (values, out)) in values.chunks_exact(plane).zip(out.chunks_exact_mut(plane)).enumerate() {
                for (pixels, index) in pixels.iter_mut().zip(&index) {
                    if width >= N {
                        for i in 0..STEP {
                            let at = index[i] as usize;
                            // SAFETY: `N` columns from the first on are inside of the row: the column is at most the
                            // width less `N`, and the row is at most the last.
                            let window = unsafe { values.get_unchecked(at..at + N) };
                            pixels[i] = window.try_into().expect("a window of N");
                        }
                    } else {
                        for i in 0..STEP {
                            for t in 0..N {
                                pixels[i][t] = values[index[i] as usize + t.min(width - 1)];
                            }
                        }
                    }
                }
                let pixel = |i: usize| {
                    let pixels = &pixels;
                    move |row: usize, column: usize| V::one_of(pixels[row][i], column)
                };
                if job.fill.is_some() {
                    let fill = job.fill_of(channel);
                    for i in 0..STEP {
                        stored[i] = V::rounded((sum_of(&across, &down, i, pixel(i)) - fill) * mask[i] + fill);
                    }
                } else {
                    for (i, stored) in stored.iter_mut().enumerate() {
                        *stored = V::rounded(sum_of(&across, &down, i, pixel(i)));
                    }
                }
                out[y * width + x..][..n].copy_from_slice(&stored[..n]);
            }
        });
    }
}

/// The weighted pixels of output `i`, row by row.
#[inline(always)]
fn sum_of<const N: usize>(across: &Taps<N>, down: &Taps<N>, i: usize, pixel: impl Fn(usize, usize) -> f32) -> f32 {
    let mut sum = 0.0;
    for row in 0..N {
        for column in 0..N {
            sum = pixel(row, column).mul_add(across.weights[column][i] * down.weights[row][i], sum);
        }
    }
    sum
}

#[inline(always)]
fn bilinear_loop<V: Value>(job: &Job, values: &[V], out: &mut [V]) {
    between_loop::<V, 2>(job, values, out, two_taps);
}

#[inline(always)]
fn bicubic_loop<V: Value>(job: &Job, values: &[V], out: &mut [V]) {
    between_loop::<V, 4>(job, values, out, four_taps);
}
