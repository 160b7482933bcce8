//! Counter-based random draws: a record gets the same numbers on any thread, at any time.
//!
//! A draw is a pure function of (seed, epoch, record, op index, draw index), and, if a record is used several times, of
//! (occurrence in the epoch, image, view). So augmentation does not depend on the number of workers, on the order in which
//! they run, on a resume, or on the device.

use std::sync::atomic::{AtomicBool, Ordering};

/// SplitMix64's finaliser ([Steele, Lea, Flood 2014](https://doi.org/10.1145/2714064.2660195)): a bijection of 64-bit
/// words whose output bits each depend on all input bits.
#[must_use]
#[inline]
pub const fn hash64(z: u64) -> u64 {
    let z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The random source of one sample in one epoch.
///
/// ```
/// use infeed::transform::SampleRng;
///
/// // Seed 42, epoch 3, record 17.
/// let rng = SampleRng::new(42, 3, 17);
/// let [first, second] = [rng.op(0).bits(), rng.op(1).bits()];
/// assert_ne!(first, second, "each step has draws of its own");
/// assert_eq!(first, SampleRng::new(42, 3, 17).op(0).bits(), "and they come again");
/// assert_ne!(first, SampleRng::new(42, 4, 17).op(0).bits());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleRng {
    key: u64,
}

impl SampleRng {
    /// Keyed by run, epoch and record. The parts are hashed one after another, not added, so that neighbouring seeds
    /// and epochs have no draws in common.
    #[must_use]
    #[inline]
    pub const fn new(seed: u64, epoch: u64, record: u64) -> Self {
        Self { key: hash64(hash64(hash64(seed) ^ epoch) ^ record) }
    }

    /// The source for another occurrence of the record in the same epoch. 0 is the first occurrence, and changes
    /// nothing.
    #[must_use]
    #[inline]
    pub const fn again(self, occurrence: u64) -> Self {
        self.other(occurrence, 0x5851_f42d_4c95_7f2d)
    }

    /// The source for another view of the record. 0 is the first view, and changes nothing.
    #[must_use]
    #[inline]
    pub const fn view(self, view: u32) -> Self {
        self.other(view as u64, 0x1405_7b7e_f767_814f)
    }

    /// The source for another image of a record that has several. 0 is the first image, and changes nothing.
    #[must_use]
    #[inline]
    pub const fn image(self, image: u64) -> Self {
        self.other(image, 0x2545_f491_4f6c_dd1d)
    }

    #[inline]
    const fn other(self, n: u64, purpose: u64) -> Self {
        if n == 0 { self } else { Self { key: hash64(hash64(self.key ^ purpose) ^ n) } }
    }

    /// The draws for the transform step with this index.
    #[must_use]
    #[inline]
    pub const fn op(self, index: u32) -> Draws {
        Draws { key: hash64(self.key ^ (index as u64 + 1).wrapping_mul(0xd6e8_feb8_6659_fd93)), next: 0 }
    }
}

/// A sequence of draws for one transform step of one sample.
///
/// ```
/// use infeed::transform::SampleRng;
///
/// let mut draws = SampleRng::new(42, 3, 17).op(0);
/// let flip = draws.chance(0.5);
/// let angle = draws.between(-30.0, 30.0);
/// let start = draws.below(33);
/// assert!((-30.0..30.0).contains(&angle) && start < 33);
/// # let _ = flip;
/// ```
#[derive(Clone, Debug)]
pub struct Draws {
    key: u64,
    next: u64,
}

impl Draws {
    /// 64 random bits.
    #[inline]
    pub const fn bits(&mut self) -> u64 {
        self.next += 1;
        hash64(self.key ^ hash64(self.next))
    }

    /// Uniform in `[0, 1)`, 24 bits.
    #[inline]
    pub const fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 * (1.0 / (1u64 << 24) as f32)
    }

    /// Uniform in `[0, 1)`, 53 bits.
    #[inline]
    pub const fn unit_f64(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Uniform in `[low, high)`.
    #[inline]
    pub const fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit_f64()
    }

    /// Uniform in `0..n`; 0 if `n` is 0. The bias is below n / 2^64.
    #[inline]
    pub const fn below(&mut self, n: u64) -> u64 {
        ((self.bits() as u128 * n as u128) >> 64) as u64
    }

    /// `true` with probability `p`.
    #[inline]
    pub const fn chance(&mut self, p: f32) -> bool {
        self.unit() < p
    }

    /// Normally distributed, mean 0 and standard deviation 1 ([Box and Muller
    /// 1958](https://doi.org/10.1214/aoms/1177706645)): two draws.
    #[inline]
    pub fn normal(&mut self) -> f64 {
        // Above 0, so that the logarithm is finite.
        let radius = (-2.0 * (1.0 - self.unit_f64()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit_f64()).cos()
    }

    /// Two normally distributed values in f32 from one draw: 24 bits for the radius, 24 for the angle.
    #[doc(hidden)]
    #[inline]
    pub fn normal_pair(&mut self) -> [f32; 2] {
        const PART: f32 = 1.0 / (1u64 << 24) as f32;
        let bits = self.bits();
        // From 2^-24 to 1.
        let radius = (-2.0 * (((bits >> 40) + 1) as f32 * PART).ln()).sqrt();
        let (sin, cos) = (std::f32::consts::TAU * ((bits >> 8 & 0xff_ffff) as f32 * PART)).sin_cos();
        [radius * cos, radius * sin]
    }

    /// Gamma distributed with this shape (above 0) and scale 1 ([Marsaglia and Tsang
    /// 2000](https://doi.org/10.1145/358407.358414)). The number of draws varies.
    pub fn gamma(&mut self, shape: f64) -> f64 {
        if shape < 1.0 {
            // A gamma value of shape + 1, times a power of a uniform number.
            return self.gamma(shape + 1.0) * (1.0 - self.unit_f64()).powf(1.0 / shape);
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            if v > 0.0 && (1.0 - self.unit_f64()).ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return d * v;
            }
        }
    }

    /// Beta distributed; both parameters are above 0.
    #[inline]
    pub fn beta(&mut self, a: f64, b: f64) -> f64 {
        let (x, y) = (self.gamma(a), self.gamma(b));
        // With tiny parameters both values may underflow to 0. Then the result is 0 or 1.
        if x + y > 0.0 { x / (x + y) } else { f64::from(u8::from(self.unit_f64() * (a + b) < a)) }
    }
}

/// Set for simulations, which must repeat themselves in any process.
static REPEATS: AtomicBool = AtomicBool::new(false);

/// A number in 0 to 1 that differs between processes and between `n`, so that many waiting clients do not return at the
/// same time.
#[inline]
pub fn jitter(n: u64) -> f64 {
    let process = if REPEATS.load(Ordering::Relaxed) { 0 } else { std::process::id() };
    (hash64(hash64(u64::from(process)) ^ n) >> 11) as f64 / (1u64 << 53) as f64
}

/// Makes [`jitter`] the same in each process from now on. For tests.
#[doc(hidden)]
pub fn repeat_jitter() {
    REPEATS.store(true, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_depend_on_each_part_of_the_key() {
        let bits = |seed, epoch, record, op| SampleRng::new(seed, epoch, record).op(op).bits();
        let all = [bits(0, 0, 0, 0), bits(1, 0, 0, 0), bits(0, 1, 0, 0), bits(0, 0, 1, 0), bits(0, 0, 0, 1)];
        for (i, a) in all.iter().enumerate() {
            assert!(all[i + 1..].iter().all(|b| a != b));
        }
        assert_eq!(bits(3, 4, 5, 6), bits(3, 4, 5, 6));
    }

    #[test]
    fn other_times_images_and_views_of_a_record_share_no_draws() {
        let first = SampleRng::new(1, 2, 3);
        let times = (0..4).map(|n| first.again(n)).flat_map(|rng| (0..4).map(move |image| rng.image(image)));
        let all: Vec<SampleRng> = times.flat_map(|rng| (0..4).map(move |view| rng.view(view))).collect();
        assert_eq!(all[0], first);
        for (i, a) in all.iter().enumerate() {
            assert!(all[i + 1..].iter().all(|b| a != b), "{i}");
        }
    }

    #[test]
    fn units_are_uniform() {
        let mut bins = [0u32; 64];
        for record in 0..64_000 {
            bins[(SampleRng::new(7, 1, record).op(0).unit() * 64.0) as usize] += 1;
        }
        let chi: f64 = bins.iter().map(|&n| (f64::from(n) - 1000.0).powi(2) / 1000.0).sum();
        assert!(chi < 104.0, "chi-square {chi} with 63 degrees of freedom; 99.9 % lie below 104");
    }

    /// Mean and variance of many draws.
    fn moments(draw: impl Fn(&mut Draws) -> f64) -> (f64, f64) {
        const N: u64 = 100_000;
        let values: Vec<f64> = (0..N).map(|n| draw(&mut SampleRng::new(9, 2, n).op(0))).collect();
        let mean = values.iter().sum::<f64>() / N as f64;
        (mean, values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / N as f64)
    }

    #[test]
    fn distributions_have_their_moments() {
        let near = |(mean, variance): (f64, f64), of: (f64, f64)| {
            // Five standard deviations of the mean; the deviation of the variance is about twice that of a normal
            // variable's.
            let bound = 5.0 * (of.1 / 1e5).sqrt();
            assert!((mean - of.0).abs() < bound, "mean {mean}, not {}", of.0);
            assert!((variance / of.1 - 1.0).abs() < 0.06, "variance {variance}, not {}", of.1);
        };
        near(moments(Draws::normal), (0.0, 1.0));
        near(moments(|draws| f64::from(draws.normal_pair()[0])), (0.0, 1.0));
        near(moments(|draws| f64::from(draws.normal_pair()[1])), (0.0, 1.0));
        near(moments(|draws| draws.normal_pair().map(f64::from).iter().product()), (0.0, 1.0));
        for shape in [0.2, 0.8, 1.0, 2.5, 30.0] {
            near(moments(|draws| draws.gamma(shape)), (shape, shape));
        }
        for (a, b) in [(1.0f64, 1.0f64), (0.2, 0.2), (0.8, 0.8), (5.0, 1.0)] {
            let sum = a + b;
            near(moments(|draws| draws.beta(a, b)), (a / sum, a * b / (sum * sum * (sum + 1.0))));
        }
        let tiny = moments(|draws| draws.beta(1e-300, 1e-300));
        assert!((tiny.0 - 0.5).abs() < 0.01 && tiny.1 > 0.24, "{tiny:?}");
    }

    #[test]
    fn normal_numbers_fall_into_bins_as_they_should() {
        // Edges of eight bins of equal probability.
        const EDGES: [f64; 7] = [-1.150_349, -0.674_490, -0.318_639, 0.0, 0.318_639, 0.674_490, 1.150_349];
        let mut bins = [0u32; 8];
        for record in 0..80_000 {
            let value = SampleRng::new(11, 1, record).op(0).normal();
            bins[EDGES.iter().filter(|edge| value >= **edge).count()] += 1;
        }
        let chi: f64 = bins.iter().map(|&n| (f64::from(n) - 10_000.0).powi(2) / 10_000.0).sum();
        assert!(chi < 24.3, "chi-square {chi} with 7 degrees of freedom; 99.9 % lie below 24.3");
    }

    #[test]
    fn below_stays_below() {
        let mut draws = SampleRng::new(1, 2, 3).op(4);
        for n in 1..200 {
            assert!(draws.below(n) < n);
        }
        assert_eq!(draws.below(0), 0);
    }
}
