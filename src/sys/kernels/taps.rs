//! Which source pixels make an output pixel, and with which weights.

use std::ops::Range;

use super::params::Axis;

impl Axis {
    /// Source pixels that `len` outputs read. Never empty, so that a decoder always has something to do.
    #[must_use]
    pub fn reads(&self, len: u32) -> Range<u32> {
        let last = self.to.min(len);
        if self.from >= last {
            return self.low..self.low.saturating_add(1);
        }
        // Windows move forward with the output, so the ends are those of the first and the last one.
        let first = self.window(self.from).0;
        first..self.window(last - 1).1.max(first + 1)
    }

    /// Whether each output is a copy of one source pixel, `start` pixels further on.
    #[must_use]
    pub fn is_shift(&self) -> bool {
        // Beyond 2^23 an f32 can't tell half pixels.
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

    /// The pixel under the centre of output `o`, within the readable ones.
    #[inline(always)]
    pub(super) fn nearest(&self, o: u32) -> u32 {
        // `as` cuts the fraction off and turns NaN and negatives to 0.
        (self.centre(o) as u32).clamp(self.low, self.high - 1)
    }

    /// First pixel and end of the triangle's reach around output `o`, within the readable ones; at least one.
    #[inline(always)]
    fn window(&self, o: u32) -> (u32, u32) {
        let (centre, reach) = (self.centre(o), self.step.max(1.0));
        let first = ((centre - reach + 0.5) as u32).clamp(self.low, self.high - 1);
        let end = ((centre + reach + 0.5) as u32).clamp(first + 1, self.high);
        (first, end)
    }
}

/// The taps of all stored outputs of an axis.
#[derive(Debug, Default)]
pub(super) struct Taps {
    /// First stored output over the image, and the end of them.
    pub(super) from: usize,
    pub(super) to: usize,
    /// First source pixel of each of them.
    pub(super) first: Vec<u32>,
    /// Number of its taps.
    pub(super) count: Vec<u32>,
    /// Its weights, at `n * stride`, followed by zeros.
    pub(super) weights: Vec<f32>,
    pub(super) stride: usize,
    /// The largest count.
    pub(super) most: usize,
}

impl Taps {
    /// Number of outputs over the image.
    pub(super) fn outputs(&self) -> usize {
        self.first.len()
    }
}

/// Fills the table for `len` outputs, in the order in which they are stored.
#[inline(always)]
pub(super) fn build_loop(taps: &mut Taps, axis: &Axis, len: u32, nearest: bool) {
    let (from, to) = (axis.from.min(len), axis.to.min(len));
    let flip = axis.flip != 0;
    let ends = if flip { (len - to, len - from) } else { (from, to) };
    (taps.from, taps.to) = (ends.0 as usize, ends.1 as usize);
    let outputs = (to - from) as usize;
    // A window is at most 2 * step + 1 wide, and one more by rounding; a multiple of 4 lets the long kernel go in blocks.
    let widest = if nearest { 1.0 } else { (2.0 * axis.step.max(1.0)).ceil() + 2.0 };
    taps.stride = ((widest as usize).min((axis.high - axis.low) as usize)).next_multiple_of(4);
    taps.most = 1;
    taps.first.clear();
    taps.count.clear();
    taps.weights.clear();
    taps.weights.resize(outputs * taps.stride, 0.0);
    for n in 0..outputs as u32 {
        let o = if flip { to - 1 - n } else { from + n };
        let weights = &mut taps.weights[n as usize * taps.stride..][..taps.stride];
        let (first, count) = if nearest { (axis.nearest(o), 0) } else { triangle(axis, o, weights) };
        if count == 0 {
            weights.fill(0.0);
            weights[0] = 1.0;
        }
        taps.first.push(if count == 0 { axis.nearest(o) } else { first });
        taps.count.push(count.max(1) as u32);
        taps.most = taps.most.max(count);
    }
}

/// Writes the weights of output `o`; gives the first pixel and the number of taps, 0 when no weight is above 0.
#[inline(always)]
fn triangle(axis: &Axis, o: u32, weights: &mut [f32]) -> (u32, usize) {
    let centre = axis.centre(o);
    let inverse = 1.0 / axis.step.max(1.0);
    let (start, end) = axis.window(o);
    let mut first = start;
    let (mut count, mut sum) = (0, 0.0f32);
    for pixel in start..end {
        let weight = (-(pixel as f32 + 0.5 - centre).abs()).mul_add(inverse, 1.0).max(0.0);
        if count == 0 && weight == 0.0 {
            // A pixel outside the triangle must not be read: infinity times 0 is not 0.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(start: f32, step: f32, high: u32, len: u32) -> Axis {
        Axis { start, step, low: 0, high, from: 0, to: len, flip: 0 }
    }

    fn built(axis: &Axis, len: u32) -> Taps {
        let mut taps = Taps::default();
        build_loop(&mut taps, axis, len, false);
        taps
    }

    #[test]
    fn weights_are_a_triangle_that_sums_to_one() {
        let taps = built(&axis(0.0, 2.0, 8, 4), 4);
        assert_eq!(&taps.weights[taps.stride..][..4], &[0.125, 0.375, 0.375, 0.125]);
        assert_eq!((taps.first[1], taps.count[1]), (1, 4));
        // Cut at the edge: 0.75, 0.75, 0.25 of 1.75.
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
        for (start, step, high, len) in
            [(0.0, 1.6733, 375, 224), (0.3, 0.01, 7, 64), (5.5, 89.3, 20_000, 224), (0.0, 1.0001, 99, 99)]
        {
            let axis = axis(start, step, high, len);
            let taps = built(&axis, len);
            let reads = axis.reads(len);
            for n in 0..taps.outputs() {
                let sum: f32 = taps.weights[n * taps.stride..][..taps.count[n] as usize].iter().sum();
                assert!((sum - 1.0).abs() < 1e-4, "step {step}, output {n}: {sum}");
                assert!(taps.first[n] >= reads.start && taps.first[n] + taps.count[n] <= reads.end);
            }
        }
    }

    #[test]
    fn senseless_numbers_stay_inside_the_readable_pixels() {
        let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -1.0, 0.0, 1e-30, 1e30, f32::MAX];
        for (start, step) in odd.iter().flat_map(|&a| odd.iter().map(move |&b| (a, b))) {
            let axis = Axis { start, step, low: 3, high: 9, from: 0, to: 5, flip: 1 };
            let taps = built(&axis, 5);
            for n in 0..5 {
                assert!(taps.first[n] >= 3 && taps.first[n] + taps.count[n] <= 9);
                assert!(taps.weights[n * taps.stride..][..taps.count[n] as usize].iter().all(|w| w.is_finite()));
            }
            let reads = axis.reads(5);
            assert!(reads.start >= 3 && reads.end <= 9 && !reads.is_empty());
        }
    }
}
