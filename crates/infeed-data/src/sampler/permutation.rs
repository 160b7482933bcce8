//! A random order by arithmetic: a keyed bijection of `0..n` with an inverse, and no list.
//!
//! An alternating Feistel network permutes the smallest power of two that covers `n`. A result outside `0..n` goes
//! through the network again until it is inside ("cycle walking", [Black and Rogaway
//! 2002](https://doi.org/10.1007/3-540-45760-7_9)). This takes less than two passes on average, because the power of
//! two is less than twice `n`.
#![forbid(unsafe_code)]

use infeed_core::random::hash64;

/// First positions and gaps look uniform from 4 rounds on (chi-square over 200,000 keys at n = 1000); two more are the
/// usual margin.
const ROUNDS: usize = 6;

/// Networks below 8 bits have too few random bits a round: the orders of 5 records over 3 bits are uneven with 16
/// rounds (chi-square 1,128 where 173 is the 99.9 % line), and over 4 bits, where every round is an even permutation,
/// with any number. Over 8 bits they pass with 6.
const LEAST_BITS: u32 = 8;

/// Up to this many numbers are shuffled in a table on the stack. That is exactly uniform, and quicker than walking
/// through the 256 numbers of the smallest network to find the few that count.
const TABLE: usize = 32;

/// The purpose of a key. Keys of different purposes never coincide, although all are made from the same few seeds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    Records = 1,
    Groups = 2,
    Window = 3,
    Weighted = 4,
    Repeated = 5,
    Buckets = 6,
    Mixture = 7,
    Part = 8,
    Lengths = 9,
}

/// Hashes the parts of a key one after another. They are never added: with `seed + epoch`, epoch 1 of seed 7 would be
/// epoch 0 of seed 8.
pub(super) const fn key(purpose: Purpose, seed: u64, epoch: u64) -> u64 {
    hash64(hash64(hash64(purpose as u64) ^ seed) ^ epoch)
}

/// A keyed bijection of `0..len`.
///
/// Making one costs nothing, so one is made for each lookup; it holds no list. [`get`](Self::get) and
/// [`inverse`](Self::inverse) take one to two passes of 6 rounds on average, and up to 8 passes below 256 numbers.
///
/// ```
/// use infeed::sampler::Permutation;
/// let order = Permutation::new(1000, 42);
/// assert_eq!(order.inverse(order.get(7)), 7);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Permutation {
    len: u64,
    key: u64,
    low_bits: u32,
    high_bits: u32,
}

impl Permutation {
    /// The bijection of `0..len` with this key. Different keys, even neighbouring ones, give unrelated orders; equal
    /// keys give equal orders. So hash the parts of a key.
    #[must_use]
    #[inline]
    pub const fn new(len: u64, key: u64) -> Self {
        // Bits of the largest number, len - 1.
        let bits = u64::BITS - len.saturating_sub(1).leading_zeros();
        let bits = if bits < LEAST_BITS { LEAST_BITS } else { bits };
        let high_bits = bits / 2;
        Self { len, key, low_bits: bits - high_bits, high_bits }
    }

    /// Number of values.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are no values.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value at `index`.
    ///
    /// # Panics
    /// If `index` is not below `len`: a walk that starts outside may never get inside.
    #[must_use]
    #[inline]
    pub fn get(&self, index: u64) -> u64 {
        assert!(index < self.len, "index {index} of a permutation of {}", self.len);
        if self.len <= TABLE as u64 {
            return self.table()[index as usize].into();
        }
        let mut x = self.forward(index);
        // The walk follows the cycle of `index`, so at the latest it gets inside at `index`.
        while x >= self.len {
            x = self.forward(x);
        }
        x
    }

    /// The index of `value`; the inverse of `get`.
    ///
    /// # Panics
    /// If `value` is not below `len`.
    #[must_use]
    #[inline]
    pub fn inverse(&self, value: u64) -> u64 {
        assert!(value < self.len, "value {value} of a permutation of {}", self.len);
        if self.len <= TABLE as u64 {
            let here = self.table().iter().position(|&x| u64::from(x) == value);
            return here.expect("a shuffled table still holds every number") as u64;
        }
        let mut x = self.backward(value);
        while x >= self.len {
            x = self.backward(x);
        }
        x
    }

    #[inline]
    fn forward(&self, x: u64) -> u64 {
        let (mut high, mut low) = self.split(x);
        for round in (0..ROUNDS).step_by(2) {
            high ^= self.round(low, round) & mask(self.high_bits);
            low ^= self.round(high, round + 1) & mask(self.low_bits);
        }
        self.join(high, low)
    }

    #[inline]
    fn backward(&self, x: u64) -> u64 {
        let (mut high, mut low) = self.split(x);
        for round in (0..ROUNDS).step_by(2).rev() {
            low ^= self.round(high, round + 1) & mask(self.low_bits);
            high ^= self.round(low, round) & mask(self.high_bits);
        }
        self.join(high, low)
    }

    /// Half a number in, 64 random bits out. Round keys are multiples of the golden ratio added to the key, as in
    /// SplitMix64. They need no table and no hash of their own, because `hash64` hashes them together with the half.
    #[inline]
    const fn round(&self, half: u64, round: usize) -> u64 {
        hash64(half ^ self.key.wrapping_add((round as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// All numbers, shuffled (Fisher and Yates); those from `len` on stay in place.
    fn table(&self) -> [u8; TABLE] {
        let mut table = std::array::from_fn(|i| i as u8);
        for last in (1..self.len as usize).rev() {
            let bits = u128::from(self.round(0, last));
            table.swap(last, ((bits * (last as u128 + 1)) >> 64) as usize);
        }
        table
    }

    #[inline]
    const fn split(&self, x: u64) -> (u64, u64) {
        (x >> self.low_bits, x & mask(self.low_bits))
    }

    #[inline]
    const fn join(&self, high: u64, low: u64) -> u64 {
        high << self.low_bits | low
    }
}

/// The lowest `bits` bits; at most 32 here.
#[inline]
const fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn chi_square(counts: impl IntoIterator<Item = u64>, cells: usize) -> f64 {
        let counts: Vec<u64> = counts.into_iter().collect();
        let expected = counts.iter().sum::<u64>() as f64 / cells as f64;
        let seen: f64 = counts.iter().map(|&n| (n as f64 - expected).powi(2) / expected).sum();
        // Cells that were never hit.
        seen + (cells - counts.len()) as f64 * expected
    }

    #[test]
    fn small_sizes_are_bijections_with_an_inverse() {
        for n in (0..70).chain([127, 128, 129, 255, 256, 257, 1000, 4096, 4097]) {
            for key in [0, 1, u64::MAX] {
                let order = Permutation::new(n, hash64(key));
                let mut seen = vec![false; n as usize];
                for i in 0..n {
                    let x = order.get(i);
                    assert!(!std::mem::replace(&mut seen[x as usize], true), "n {n}: {x} comes twice");
                    assert_eq!(order.inverse(x), i, "n {n}");
                }
            }
        }
    }

    #[test]
    fn the_largest_sizes_do_not_overflow() {
        for n in [u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) + 1, 1 << 32, (1 << 32) + 1] {
            let order = Permutation::new(n, 5);
            for i in [0, 1, n / 2, n - 1] {
                assert!(order.get(i) < n);
                assert_eq!(order.inverse(order.get(i)), i);
            }
        }
    }

    #[test]
    fn all_orders_of_a_few_records_are_equally_likely() {
        // (records, orders, 99.9 % line of chi-square with orders - 1 degrees of freedom)
        for (n, orders, line) in [(2, 2, 10.83), (3, 6, 20.52), (4, 24, 49.73), (5, 120, 172.7)] {
            let mut counts = HashMap::new();
            for epoch in 0..2_000 * orders as u64 {
                let order = Permutation::new(n, key(Purpose::Records, 1, epoch));
                let list = (0..n).fold(0, |list, i| list * n + order.get(i));
                *counts.entry(list).or_insert(0) += 1;
            }
            let chi = chi_square(counts.into_values(), orders);
            assert!(chi < line, "{n} records: chi-square {chi:.1}, 99.9 % lie below {line}");
        }
    }

    #[test]
    fn first_positions_and_gaps_are_uniform() {
        // (records, 99.9 % line of chi-square with records - 1 degrees of freedom); 33 is the smallest network.
        for (n, line) in [(32, 61.1), (33, 62.5), (200, 267.6), (257, 333.6), (1000, 1143.9)] {
            let (mut first, mut gap) = (HashMap::new(), HashMap::new());
            for epoch in 0..100 * n {
                let order = Permutation::new(n, key(Purpose::Records, 5, epoch));
                *first.entry(order.get(0)).or_insert(0) += 1;
                *gap.entry((order.get(1) + n - order.get(0)) % n).or_insert(0) += 1;
            }
            for (what, counts, cells) in [("first positions", first, n), ("gaps", gap, n - 1)] {
                let chi = chi_square(counts.into_values(), cells as usize);
                assert!(chi < line, "{what} of {n} records: chi-square {chi:.1}, 99.9 % lie below {line}");
            }
        }
    }

    #[test]
    fn a_walk_takes_less_than_two_passes_on_average() {
        let order = Permutation::new((1 << 16) + 1, 3);
        let mut passes = 0u64;
        for i in 0..order.len() {
            let mut x = order.forward(i);
            passes += 1;
            while x >= order.len() {
                x = order.forward(x);
                passes += 1;
            }
        }
        assert!(passes < 2 * order.len(), "{passes} passes for {} numbers", order.len());
    }

    #[test]
    #[should_panic(expected = "index 4 of a permutation of 4")]
    fn an_index_outside_is_refused_at_once() {
        let _ = Permutation::new(4, 0).get(4);
    }
}
