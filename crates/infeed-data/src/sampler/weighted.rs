//! Random draws with replacement, by weight.
#![forbid(unsafe_code)]

use std::collections::HashMap;

use infeed_core::{
    error::{Error, Result},
    fingerprint::Fingerprint,
    random::SampleRng,
};

use super::{
    base::Sampler,
    permutation::{Purpose, key},
};

/// Draws the record of each position by weight, independently, with replacement.
///
/// In an epoch a record may occur several times or not at all. Everything else is as with an order: a draw is a
/// function of (seed, epoch, position), so shards, resume and other world sizes stay exact.
///
/// Memory: 16 bytes per record. A draw takes the same time for any weights (alias method,
/// [Vose 1991](https://doi.org/10.1109/32.92917)).
///
/// ```
/// use infeed::sampler::{Sampler, WeightedSampler};
/// // Nine draws of record 1 for one of record 0, never record 2.
/// let sampler = WeightedSampler::new(&[1.0, 9.0, 0.0], 42)?.with_len(1000);
/// assert!((0..1000).all(|position| sampler.record(0, position) != 2));
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct WeightedSampler {
    cells: Box<[Cell]>,
    len: u64,
    seed: u64,
    weights: Fingerprint,
}

/// One of `n` equally likely cells: its own record below `keep`, another one above.
#[derive(Clone, Copy)]
struct Cell {
    /// In units of 2^-64. The other record gets the rest. A record that fills its cell is its own `other`.
    keep: u64,
    other: u64,
}

impl WeightedSampler {
    /// Weights of all records, in the dataset's order; they need not sum to 1. By default an epoch has as many
    /// positions as there are records.
    ///
    /// # Errors
    /// `Config` if a weight is negative, infinite or not a number, or if none is above 0.
    pub fn new(weights: &[f64], seed: u64) -> Result<Self> {
        if let Some((record, weight)) = weights.iter().enumerate().find(|(_, w)| !w.is_finite() || **w < 0.0) {
            return Err(Error::config(format!("the weight of record {record} is {weight}"))
                .with_hint("use 0 or a positive number"));
        }
        let largest = weights.iter().copied().fold(0.0, f64::max);
        if largest == 0.0 {
            return Err(Error::config(format!("none of {} weights is above 0", weights.len()))
                .with_hint("give at least one record a positive weight"));
        }
        let mut print = Fingerprint::of("weights");
        for weight in weights {
            print = print.number(weight.to_bits());
        }
        let len = weights.len() as u64;
        Ok(Self { cells: cells(weights, largest), len, seed, weights: print.finish() })
    }

    /// Class-balanced: each class that has records is drawn equally often, and so are the records within a class.
    /// `labels` are those of all records, in the dataset's order ([`dataset::labels`](crate::labels())).
    ///
    /// ```
    /// use infeed::sampler::{Sampler, WeightedSampler};
    /// // Of 99 cats and a dog, every second draw is the dog.
    /// let labels: Vec<i64> = (0..100).map(|record| i64::from(record == 7)).collect();
    /// let sampler = WeightedSampler::balanced(&labels, 42)?.with_len(1000);
    /// let dogs = (0..1000).filter(|position| sampler.record(0, *position) == 7).count();
    /// assert!((400..600).contains(&dogs));
    /// # Ok::<(), infeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Config` if there are no records.
    pub fn balanced(labels: &[i64], seed: u64) -> Result<Self> {
        let mut counts: HashMap<i64, u64> = HashMap::new();
        labels.iter().for_each(|label| *counts.entry(*label).or_default() += 1);
        let weights: Vec<f64> = labels.iter().map(|label| 1.0 / counts[label] as f64).collect();
        Self::new(&weights, seed)
    }

    /// Sets the number of positions in an epoch.
    pub fn with_len(mut self, len: u64) -> Self {
        self.len = len;
        self
    }
}

/// Gives each cell a light record, and a heavy one that fills it up.
fn cells(weights: &[f64], largest: f64) -> Box<[Cell]> {
    let n = weights.len() as f64;
    // Dividing by the largest first keeps the sum finite.
    let sum: f64 = weights.iter().map(|w| w / largest).sum();
    // A share of 1 fills one cell.
    let mut shares: Vec<f64> = weights.iter().map(|w| w / largest / sum * n).collect();
    let mut cells: Vec<Cell> = (0..weights.len() as u64).map(|other| Cell { keep: 0, other }).collect();
    let (mut light, mut heavy): (Vec<usize>, Vec<usize>) = (0..weights.len()).partition(|&i| shares[i] < 1.0);
    while let (Some(&small), Some(&big)) = (light.last(), heavy.last()) {
        light.pop();
        // `as` saturates at u64::MAX; a share of 0 keeps nothing.
        cells[small] = Cell { keep: (shares[small] * 2f64.powi(64)) as u64, other: big as u64 };
        shares[big] -= 1.0 - shares[small];
        if shares[big] < 1.0 {
            heavy.pop();
            light.push(big);
        }
    }
    // Rounding may leave a few cells over. Heavy ones are full: their cells name themselves already. Light ones are
    // full except for rounding errors, unless their weight is 0: a record of weight 0 must not be drawn, so the
    // heaviest record takes its cell.
    let heaviest = weights.iter().position(|&w| w == largest).unwrap_or(0) as u64;
    for left in light {
        if weights[left] == 0.0 {
            cells[left] = Cell { keep: 0, other: heaviest };
        }
    }
    cells.into()
}

impl Sampler for WeightedSampler {
    fn len(&self) -> u64 {
        self.len
    }

    fn records(&self) -> u64 {
        self.cells.len() as u64
    }

    fn record(&self, epoch: u64, position: u64) -> u64 {
        // A purpose of its own in the key, because augmentation draws with the same seed.
        let bits = SampleRng::new(key(Purpose::Weighted, self.seed, 0), epoch, position).op(0).bits();
        // The integer part chooses the cell, the fraction decides within it: 64 bits minus those of the number of
        // records.
        let scaled = u128::from(bits) * self.cells.len() as u128;
        let (index, coin) = ((scaled >> 64) as u64, scaled as u64);
        let cell = self.cells[index as usize];
        if coin < cell.keep { index } else { cell.other }
    }

    fn occurrence(&self, _epoch: u64, position: u64) -> u64 {
        // The number of earlier draws of a record is known only by counting them; the position is as good.
        position
    }

    fn position(&self, _epoch: u64, _record: u64) -> Option<u64> {
        None
    }

    fn is_bijection(&self) -> bool {
        false
    }

    fn describe(&self) -> String {
        format!("weighted, seed {}, {} draws", self.seed, self.len)
    }

    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of("weighted").number(self.len).number(self.seed).part(self.weights).finish()
    }
}

impl std::fmt::Debug for WeightedSampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WeightedSampler")
            .field("records", &self.cells.len())
            .field("len", &self.len)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The probability that the table gives each record.
    fn shares(sampler: &WeightedSampler) -> Vec<f64> {
        let n = sampler.cells.len() as f64;
        let mut shares = vec![0.0; sampler.cells.len()];
        for (record, cell) in sampler.cells.iter().enumerate() {
            let keep = cell.keep as f64 / 2f64.powi(64);
            shares[record] += keep / n;
            shares[cell.other as usize] += (1.0 - keep) / n;
        }
        shares
    }

    #[test]
    fn the_table_holds_the_weights() {
        let skewed: Vec<f64> = (0..1000).map(|i| f64::from(i % 10) * 1.7f64.powi(i % 37)).collect();
        for weights in
            [&[1.0][..], &[1.0, 1.0, 1.0], &[0.0, 3.0, 0.0, 1.0], &[1e300, 1e300], &[1e-300, 3e-300], &skewed]
        {
            let sampler = WeightedSampler::new(weights, 1).unwrap();
            let largest = weights.iter().copied().fold(0.0, f64::max);
            let sum: f64 = weights.iter().map(|w| w / largest).sum();
            for (share, weight) in shares(&sampler).iter().zip(weights) {
                let want = weight / largest / sum;
                assert!((share - want).abs() < 1e-12, "{share} for {want}");
                assert!(*weight > 0.0 || *share == 0.0, "a weight of 0 is drawn");
            }
        }
    }

    #[test]
    fn balanced_classes_have_equal_shares_and_so_have_their_records() {
        let labels = [4, 4, 9, 4, 9, -1];
        let sampler = WeightedSampler::balanced(&labels, 3).unwrap();
        for (share, label) in shares(&sampler).iter().zip(labels) {
            let want = 1.0 / 3.0 / labels.iter().filter(|other| **other == label).count() as f64;
            assert!((share - want).abs() < 1e-12, "{share} for {want}");
        }
        assert!(WeightedSampler::balanced(&[], 3).is_err());
    }

    #[test]
    fn impossible_weights_are_refused_by_name() {
        for (weights, want) in [
            (&[1.0, -2.0][..], "record 1 is -2"),
            (&[f64::NAN], "record 0 is NaN"),
            (&[1.0, f64::INFINITY], "record 1 is inf"),
            (&[0.0, 0.0], "none of 2 weights"),
            (&[], "none of 0 weights"),
        ] {
            let error = WeightedSampler::new(weights, 0).unwrap_err();
            assert!(error.to_string().contains(want), "{error}");
        }
    }

    #[test]
    fn weights_and_length_are_in_the_fingerprint() {
        let print =
            |weights: &[f64], seed, len| WeightedSampler::new(weights, seed).unwrap().with_len(len).fingerprint();
        let first = print(&[1.0, 2.0], 0, 2);
        for other in [print(&[1.0, 3.0], 0, 2), print(&[1.0, 2.0], 1, 2), print(&[1.0, 2.0], 0, 3)] {
            assert_ne!(first, other);
        }
    }
}
