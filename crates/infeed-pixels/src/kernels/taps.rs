//! Which source pixels make an output pixel, and with which weights.

use std::ops::Range;

use super::params::{Axis, Filter};

impl Axis {
    /// The source pixels that `len` outputs read. Never empty, so that a decoder always decodes something.
    #[must_use]
    pub fn reads(&self, len: u32, filter: Filter) -> Range<u32> {
        let last = self.to.min(len);
        if self.from >= last {
            return self.low..self.low.saturating_add(1);
        }
        // Windows move forward with the output, so the ends are those of the first and the last output.
        let first = self.window(self.from, filter).0;
        first..self.window(last - 1, filter).1.max(first + 1)
    }

    /// Whether each output copies the source pixel `start` pixels further on.
    #[must_use]
    pub fn is_shift(&self) -> bool {
        // From 2^23 on, an f32 has no halves.
        let exact = self.start.abs() < 8_388_608.0 && self.start.trunc() == self.start;
        exact && self.step == 1.0 && {
            let shift = self.start as i64;
            self.from >= self.to
                || i64::from(self.from) + shift >= i64::from(self.low)
                    && i64::from(self.to) + shift <= i64::from(self.high)
        }
    }

    /// Centre of output `o`, in source pixels.
    #[inline(always)]
    fn centre(&self, o: u32) -> f32 {
        self.step.mul_add(o as f32 + 0.5, self.start)
    }

    /// The readable pixel under the centre of output `o`; with [`Filter::Nearest`] the one under its start.
    #[inline(always)]
    fn nearest(&self, o: u32, filter: Filter) -> u32 {
        let place = match filter {
            // Only the fraction of the window's start is added before truncation, as if the window were an image: torch
            // rounds there.
            Filter::Nearest => {
                let whole = self.start.floor();
                whole + self.step.mul_add(o as f32, self.start - whole).floor()
            }
            _ => self.centre(o),
        };
        // `as` truncates, and turns NaN and negative numbers to 0.
        (place as u32).clamp(self.low, self.high - 1)
    }

    /// First pixel and end of the filter's reach around output `o`, clamped to readable pixels; at least one pixel.
    #[inline(always)]
    fn window(&self, o: u32, filter: Filter) -> (u32, u32) {
        let (centre, widened) = (self.centre(o), self.step.max(1.0));
        let around = |centre: f32, reach: f32| (centre - reach + 0.5, centre + reach + 0.5);
        let (first, end) = match filter.shape() {
            Filter::Triangle => around(centre, widened),
            Filter::Cubic => around(centre, 2.0 * widened),
            Filter::Lanczos => around(centre, 3.0 * widened),
            Filter::Box => around(centre.mul_add(TIE, centre), 0.5 * widened),
            Filter::Linear => (centre - 0.5, centre + 1.5),
            Filter::CubicFour => {
                let base = (centre - 0.5).floor();
                (base - 1.0, base + 3.0)
            }
            Filter::NearestExact | Filter::Nearest => {
                let pixel = self.nearest(o, filter);
                return (pixel, pixel + 1);
            }
            // Not a shape.
            Filter::CubicOfFloats | Filter::CubicFourOfFloats | Filter::LanczosOfFloats => (centre, centre),
        };
        let first = (first as u32).clamp(self.low, self.high - 1);
        (first, (end as u32).clamp(first + 1, self.high))
    }

    /// The most taps of an output, by the width of its window.
    #[inline(always)]
    fn widest(&self, filter: Filter) -> f32 {
        let reach = match filter.shape() {
            Filter::NearestExact | Filter::Nearest => return 1.0,
            Filter::Linear => return 2.0,
            Filter::CubicFour => return 4.0,
            Filter::Triangle => 1.0,
            Filter::Cubic => 2.0,
            Filter::Lanczos => 3.0,
            Filter::Box => 0.5,
            // Not a shape.
            Filter::CubicOfFloats | Filter::CubicFourOfFloats | Filter::LanczosOfFloats => 0.0,
        };
        // A window is at most 2 * reach + 1 wide, plus one by rounding.
        (2.0 * reach * self.step.max(1.0)).ceil() + 2.0
    }
}

/// If a pixel's centre is at the edge between two outputs, it belongs to the first of them. Noise of f32, a few units
/// in the last place of the centre, must not decide this. Sizes such as 500 to 224 have such pixels.
const TIE: f32 = 1.0 / (1 << 21) as f32;

/// The taps of all stored outputs of an axis.
#[derive(Debug, Default)]
pub(super) struct Taps {
    /// First stored output that shows the image, and the end of these outputs.
    pub(super) from: usize,
    pub(super) to: usize,
    /// First source pixel of each of these outputs.
    pub(super) first: Vec<u32>,
    /// Number of taps of each.
    pub(super) count: Vec<u32>,
    /// Weights of each, at `n * stride`, followed by zeros.
    pub(super) weights: Vec<f32>,
    pub(super) stride: usize,
    /// The largest count.
    pub(super) most: usize,
}

impl Taps {
    /// Number of outputs that show the image.
    pub(super) fn outputs(&self) -> usize {
        self.first.len()
    }
}

/// Fills the table for `len` outputs, in the order in which they are stored.
#[inline(always)]
pub(super) fn build_loop(taps: &mut Taps, axis: &Axis, len: u32, filter: Filter) {
    // A separate loop for each filter, known at compile time, so that weights are computed without branches.
    match filter.shape() {
        Filter::Triangle => fill(taps, axis, len, Filter::Triangle),
        Filter::NearestExact => fill(taps, axis, len, Filter::NearestExact),
        Filter::Nearest => fill(taps, axis, len, Filter::Nearest),
        Filter::Linear => fill(taps, axis, len, Filter::Linear),
        Filter::Cubic => fill(taps, axis, len, Filter::Cubic),
        Filter::CubicFour => fill(taps, axis, len, Filter::CubicFour),
        Filter::Lanczos => fill(taps, axis, len, Filter::Lanczos),
        Filter::Box => fill(taps, axis, len, Filter::Box),
        // Not a shape.
        Filter::CubicOfFloats | Filter::CubicFourOfFloats | Filter::LanczosOfFloats => {}
    }
}

#[inline(always)]
fn fill(taps: &mut Taps, axis: &Axis, len: u32, filter: Filter) {
    let (from, to) = (axis.from.min(len), axis.to.min(len));
    let flip = axis.flip != 0;
    let ends = if flip { (len - to, len - from) } else { (from, to) };
    (taps.from, taps.to) = (ends.0 as usize, ends.1 as usize);
    let outputs = (to - from) as usize;
    // A multiple of 4, for the blocks of the long kernel.
    taps.stride = ((axis.widest(filter) as usize).min((axis.high - axis.low) as usize)).next_multiple_of(4);
    taps.most = 1;
    taps.first.clear();
    taps.count.clear();
    taps.weights.clear();
    taps.weights.resize(outputs * taps.stride, 0.0);
    for n in 0..outputs as u32 {
        let o = if flip { to - 1 - n } else { from + n };
        let weights = &mut taps.weights[n as usize * taps.stride..][..taps.stride];
        // A match: a function pointer would not be compiled for the level's instructions.
        let (first, count) = match filter {
            Filter::Triangle => triangle(axis, o, weights),
            Filter::NearestExact | Filter::Nearest => (0, 0),
            Filter::Linear => linear(axis, o, weights),
            Filter::CubicFour => cubic_four(axis, o, weights),
            _ => convolve(axis, o, filter, weights),
        };
        if count == 0 {
            weights.fill(0.0);
            weights[0] = 1.0;
        }
        taps.first.push(if count == 0 { axis.nearest(o, filter) } else { first });
        taps.count.push(count.max(1) as u32);
        taps.most = taps.most.max(count);
    }
}

/// Writes the weights of output `o`; returns the first pixel and the number of taps, which is 0 if no weight is above
/// 0.
#[inline(always)]
fn triangle(axis: &Axis, o: u32, weights: &mut [f32]) -> (u32, usize) {
    let centre = axis.centre(o);
    let inverse = 1.0 / axis.step.max(1.0);
    let (start, end) = axis.window(o, Filter::Triangle);
    let mut first = start;
    let (mut count, mut sum) = (0, 0.0f32);
    for pixel in start..end {
        let weight = (-(pixel as f32 + 0.5 - centre).abs()).mul_add(inverse, 1.0).max(0.0);
        if count == 0 && weight == 0.0 {
            // A pixel outside of the triangle must not be read: infinity times 0 is not 0.
            first = pixel + 1;
            continue;
        }
        let Some(slot) = weights.get_mut(count) else { break };
        *slot = weight;
        sum += weight;
        count += 1;
    }
    while count > 0 && weights[count - 1] == 0.0 {
        count -= 1;
    }
    for weight in &mut weights[..count] {
        *weight /= sum;
    }
    (first, count)
}

/// [`triangle`] for other shapes.
#[inline(always)]
fn convolve(axis: &Axis, o: u32, filter: Filter, weights: &mut [f32]) -> (u32, usize) {
    let centre = axis.centre(o);
    let inverse = 1.0 / axis.step.max(1.0);
    let (start, end) = axis.window(o, filter);
    // Weights first, so that they can be vectorised.
    for (weight, pixel) in weights.iter_mut().zip(start..end) {
        let x = (pixel as f32 + 0.5 - centre).abs() * inverse;
        *weight = match filter {
            Filter::Cubic => cubic(x),
            Filter::Lanczos => lanczos(x),
            _ => 1.0,
        };
    }
    let count = trim(weights);
    let sum = weights[count.clone()].iter().fold(0.0f32, |sum, weight| sum + weight);
    // Far outside of the image there may be only weights below 0.
    if sum <= 0.0 {
        return (start, 0);
    }
    weights[count.clone()].iter_mut().for_each(|weight| *weight /= sum);
    (start + count.start as u32, moved_to_front(weights, count))
}

/// Interpolates between the two pixels around the centre; the first and last readable pixels are repeated.
#[inline(always)]
fn linear(axis: &Axis, o: u32, weights: &mut [f32]) -> (u32, usize) {
    let place = (axis.centre(o) - 0.5).max(axis.low as f32);
    let first = (place as u32).clamp(axis.low, axis.high - 1);
    let part = place - first as f32;
    if first + 1 == axis.high || part == 0.0 {
        weights[0] = 1.0;
        return (first, 1);
    }
    weights[..2].copy_from_slice(&[1.0 - part, part]);
    (first, 2)
}

/// Interpolates four pixels around the centre; the first and last readable pixels are repeated.
#[inline(always)]
#[expect(clippy::manual_clamp, reason = "clamp keeps what is no number")]
fn cubic_four(axis: &Axis, o: u32, weights: &mut [f32]) -> (u32, usize) {
    const A: f32 = -0.75;
    let place = axis.centre(o) - 0.5;
    let base = place.floor();
    // The clamp is for NaN.
    let part = (place - base).max(0.0).min(1.0);
    let four = [outer(1.0 + part, A), inner(part, A), inner(1.0 - part, A), outer(2.0 - part, A)];
    let first = ((base - 1.0) as u32).clamp(axis.low, axis.high - 1);
    for (n, weight) in four.into_iter().enumerate() {
        let pixel = ((base + (n as f32 - 1.0)) as u32).clamp(axis.low, axis.high - 1);
        weights[(pixel - first) as usize] += weight;
    }
    let count = trim(weights);
    (first + count.start as u32, moved_to_front(weights, count))
}

/// The range without zero weights at the ends: their pixels must not be read, because infinity times 0 is not 0.
#[inline(always)]
fn trim(weights: &[f32]) -> Range<usize> {
    let end = weights.iter().rposition(|weight| *weight != 0.0).map_or(0, |last| last + 1);
    let start = weights[..end].iter().take_while(|weight| **weight == 0.0).count();
    start..end
}

/// Moves the weights of `kept` to the front, followed by zeros; returns their number.
#[inline(always)]
fn moved_to_front(weights: &mut [f32], kept: Range<usize>) -> usize {
    let count = kept.len();
    if kept.start > 0 {
        weights.copy_within(kept, 0);
        weights[count..].fill(0.0);
    }
    count
}

/// Keys' cubic from 0 to 1.
#[inline(always)]
fn inner(x: f32, a: f32) -> f32 {
    (a + 2.0).mul_add(x, -(a + 3.0)).mul_add(x * x, 1.0)
}

/// Keys' cubic from 1 to 2, in a form whose differences are exact.
#[inline(always)]
fn outer(x: f32, a: f32) -> f32 {
    let far = x - 2.0;
    a * (x - 1.0) * (far * far)
}

#[inline(always)]
fn cubic(x: f32) -> f32 {
    const A: f32 = -0.5;
    if x < 1.0 {
        inner(x, A)
    } else if x < 2.0 {
        outer(x, A)
    } else {
        0.0
    }
}

/// `sin(pi v) / v` by powers of `v²`, for `v` up to a half, with a relative error of 1e-7.
const SINE: [f32; 6] = [std::f32::consts::PI, -5.167_712_8, 2.550_164, -0.599_264_5, 0.082_145_89, -0.007_370_43];

/// `sinc(x) * sinc(x / 3)` for `x` from 0. With `s = sin(pi x / 3)` it is `(3 s / (pi x))² * (1 - 4 / 3 s²)`: only one
/// sine. The sine is a polynomial, because libraries differ in the last bits.
#[inline(always)]
fn lanczos(x: f32) -> f32 {
    // Exactly 0 where the filter is 0: an image that is only moved must be a copy.
    if x == 1.0 || x == 2.0 || x >= 3.0 || x.is_nan() {
        return 0.0;
    }
    let x = x.max(1e-6);
    let third = x * (1.0 / 3.0);
    let folded = third.min(1.0 - third);
    let square = folded * folded;
    let sine = SINE[..5].iter().rfold(SINE[5], |sum, &factor| sum.mul_add(square, factor)) * folded;
    let ratio = sine * 0.954_929_66 / x;
    ratio * ratio * (sine * (-4.0 / 3.0)).mul_add(sine, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(start: f32, step: f32, high: u32, len: u32) -> Axis {
        Axis { start, step, low: 0, high, from: 0, to: len, flip: 0 }
    }

    fn built_of(axis: &Axis, len: u32, filter: Filter) -> Taps {
        let mut taps = Taps::default();
        build_loop(&mut taps, axis, len, filter);
        taps
    }

    fn built(axis: &Axis, len: u32) -> Taps {
        built_of(axis, len, Filter::Triangle)
    }

    fn taps_of(taps: &Taps, n: usize) -> (u32, &[f32]) {
        (taps.first[n], &taps.weights[n * taps.stride..][..taps.count[n] as usize])
    }

    #[test]
    fn lanczos_is_a_product_of_sincs() {
        let sinc = |x: f64| if x == 0.0 { 1.0 } else { (std::f64::consts::PI * x).sin() / (std::f64::consts::PI * x) };
        for n in 0..=40_000 {
            let x = n as f32 / 10_000.0;
            let exact = if x < 3.0 { sinc(x.into()) * sinc(f64::from(x) / 3.0) } else { 0.0 };
            let away = (f64::from(lanczos(x)) - exact).abs();
            assert!(away < 1e-6, "{x}: {} and not {exact}", lanczos(x));
        }
        assert_eq!([0.0, 1.0, 2.0, 3.0].map(lanczos).map(|w| (w * 1e6).round()), [1e6, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn filters_without_antialias_take_their_pixels_and_repeat_the_ends() {
        let axis = axis(0.0, 3.0, 12, 4);
        let linear = built_of(&Axis { step: 2.5, ..axis }, 4, Filter::Linear);
        assert_eq!(taps_of(&linear, 0), (0, &[0.25, 0.75][..]));
        assert_eq!(taps_of(&linear, 3), (8, &[0.75, 0.25][..]));
        let up = Axis { step: 0.5, high: 2, ..axis };
        let linear = built_of(&up, 4, Filter::Linear);
        assert_eq!(
            [0, 1, 2, 3].map(|n| taps_of(&linear, n)).map(|(first, w)| (first, w.len())),
            [(0, 1), (0, 2), (0, 2), (1, 1)]
        );
        let cubic = built_of(&axis, 4, Filter::CubicFour);
        assert_eq!(taps_of(&cubic, 1), (4, &[1.0][..]), "a centre is a pixel's");
        let cubic = built_of(&Axis { step: 2.0, ..axis }, 4, Filter::CubicFour);
        // Halfway: -a / 8 and 1 / 2 + a / 8 on both sides; the first pixel replaces the one before it.
        assert_eq!(taps_of(&cubic, 1), (1, &[-0.09375, 0.59375, 0.59375, -0.09375][..]));
        assert_eq!(taps_of(&cubic, 0), (0, &[0.5, 0.59375, -0.09375][..]));
    }

    #[test]
    fn a_box_gives_each_pixel_to_one_output_where_sizes_have_a_common_part() {
        // The edge between outputs 27 and 28 of 224 is at the centre of pixel 62 of 500.
        let taps = built_of(&axis(0.0, 500.0 / 224.0, 500, 224), 224, Filter::Box);
        assert_eq!((taps_of(&taps, 27).0 + taps.count[27], taps_of(&taps, 28).0), (63, 63));
        let total: u32 = taps.count.iter().sum();
        assert_eq!(total, 500);
        for (start, step) in [(0.0, 1.5), (7.0, 3.5), (100.0, 2.0), (3.0, 0.25)] {
            let taps = built_of(&axis(start, step, 4000, 200), 200, Filter::Box);
            let ends = |n: usize| (taps.first[n], taps.first[n] + taps.count[n]);
            for n in 1..200 {
                let (before, this) = (ends(n - 1), ends(n));
                assert!(this.0 == before.1 || step < 1.0 && this == before, "{step}: {before:?} {this:?}");
            }
        }
    }

    #[test]
    fn nearest_takes_the_pixel_under_the_edge_or_the_centre() {
        let of = |filter| built_of(&axis(0.0, 2.5, 10, 4), 4, filter).first;
        assert_eq!(of(Filter::Nearest), [0, 2, 5, 7]);
        assert_eq!(of(Filter::NearestExact), [1, 3, 6, 8]);
    }

    #[test]
    fn weights_are_a_triangle_that_sums_to_one() {
        let taps = built(&axis(0.0, 2.0, 8, 4), 4);
        assert_eq!(&taps.weights[taps.stride..][..4], &[0.125, 0.375, 0.375, 0.125]);
        assert_eq!((taps.first[1], taps.count[1]), (1, 4));
        // Clamped at the edge: 0.75, 0.75, 0.25 of 1.75.
        assert_eq!((taps.first[0], taps.count[0]), (0, 3));
        assert!((taps.weights[0] - 0.75 / 1.75).abs() < 1e-7);
    }

    #[test]
    fn a_step_of_one_reads_one_pixel() {
        let taps = built(&axis(3.0, 1.0, 10, 7), 7);
        assert_eq!(taps.first, [3, 4, 5, 6, 7, 8, 9]);
        assert!(taps.count.iter().all(|&c| c == 1));
    }

    #[test]
    fn the_table_fits_every_window() {
        let axes = [(0.0, 1.6733, 375, 224), (0.3, 0.01, 7, 64), (5.5, 89.3, 20_000, 224), (0.0, 1.0001, 99, 99)];
        for ((start, step, high, len), filter) in axes.into_iter().flat_map(|a| Filter::ALL.map(|f| (a, f))) {
            let axis = axis(start, step, high, len);
            let taps = built_of(&axis, len, filter);
            let reads = axis.reads(len, filter);
            for n in 0..taps.outputs() {
                let sum: f32 = taps.weights[n * taps.stride..][..taps.count[n] as usize].iter().sum();
                assert!((sum - 1.0).abs() < 1e-4, "{filter:?}, step {step}, output {n}: {sum}");
                assert!(taps.first[n] >= reads.start && taps.first[n] + taps.count[n] <= reads.end);
            }
        }
    }

    #[test]
    fn senseless_numbers_stay_inside_the_readable_pixels() {
        let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -1.0, 0.0, 1e-30, 1e30, f32::MAX];
        let pairs = odd.iter().flat_map(|&a| odd.iter().map(move |&b| (a, b)));
        for ((start, step), filter) in pairs.flat_map(|pair| Filter::ALL.map(|filter| (pair, filter))) {
            let axis = Axis { start, step, low: 3, high: 9, from: 0, to: 5, flip: 1 };
            let taps = built_of(&axis, 5, filter);
            for n in 0..5 {
                assert!(taps.first[n] >= 3 && taps.first[n] + taps.count[n] <= 9);
                assert!(taps.weights[n * taps.stride..][..taps.count[n] as usize].iter().all(|w| w.is_finite()));
            }
            let reads = axis.reads(5, filter);
            assert!(reads.start >= 3 && reads.end <= 9 && !reads.is_empty());
        }
    }
}
