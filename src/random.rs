//! Counter-based random draws: the same numbers for a record, whoever computes them and when.
//!
//! A draw is a pure function of (seed, epoch, record, op index, draw index), so augmentation does not depend on the
//! number of workers, on the order in which they run, on a resume, or on the device.

/// SplitMix64's finaliser ([Steele, Lea, Flood 2014](https://doi.org/10.1145/2714064.2660195)): a bijection of 64-bit
/// words whose output bits each depend on all input bits.
#[must_use]
#[inline]
pub(crate) const fn mix(z: u64) -> u64 {
    let z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The random source of one sample in one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleRng {
    key: u64,
}

impl SampleRng {
    /// Keyed by run, epoch and record. The parts are hashed one after another, never added: neighbouring seeds and
    /// epochs share nothing.
    #[must_use]
    #[inline]
    pub const fn new(seed: u64, epoch: u64, record: u64) -> Self {
        Self { key: mix(mix(mix(seed) ^ epoch) ^ record) }
    }

    /// The draws of the transform step with this index.
    #[must_use]
    #[inline]
    pub const fn op(self, index: u32) -> Draws {
        Draws { key: mix(self.key ^ (index as u64 + 1).wrapping_mul(0xd6e8_feb8_6659_fd93)), next: 0 }
    }
}

/// A sequence of draws for one step of one sample.
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
        mix(self.key ^ mix(self.next))
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

    /// Uniform in `0..n`; 0 when `n` is 0. The bias of the multiplication is below n / 2^64.
    #[inline]
    pub const fn below(&mut self, n: u64) -> u64 {
        ((self.bits() as u128 * n as u128) >> 64) as u64
    }

    /// `true` with probability `p`.
    #[inline]
    pub const fn chance(&mut self, p: f32) -> bool {
        self.unit() < p
    }
}

/// 0 to 1, another for each process and `n`: many who wait must not come back together.
pub(crate) fn jitter(n: u64) -> f64 {
    // Simulations repeat themselves.
    let process = if cfg!(test) { 0 } else { std::process::id() };
    (mix(mix(u64::from(process)) ^ n) >> 11) as f64 / (1u64 << 53) as f64
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
    fn units_are_uniform() {
        let mut bins = [0u32; 64];
        for record in 0..64_000 {
            bins[(SampleRng::new(7, 1, record).op(0).unit() * 64.0) as usize] += 1;
        }
        let chi: f64 = bins.iter().map(|&n| (f64::from(n) - 1000.0).powi(2) / 1000.0).sum();
        assert!(chi < 104.0, "chi-square {chi} with 63 degrees of freedom; 99.9 % lie below 104");
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
