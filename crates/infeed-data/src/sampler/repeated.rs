//! Repeated augmentation: each record several times in a row.
//!
//! ```text
//! 5 records, 3 times each:   slot 0 1 2 3 4 5 6 7 8 9 …       records in random order, for three epochs
//!                          record 4 4 4 0 0 0 3 3 3 1 …
//!                           epoch └─ 0 ───┘└─ 1 ───┘└ 2       as long as the dataset
//! ```
#![forbid(unsafe_code)]

use infeed_core::{
    error::{Error, Result},
    fingerprint::Fingerprint,
};

use super::{
    base::Sampler,
    permutation::{Permutation, Purpose, key},
};

/// See [`Order::Repeated`](super::Order::Repeated).
#[derive(Debug)]
pub(super) struct Repeated {
    records: u64,
    seed: u64,
    times: u32,
    all_records: bool,
}

impl Repeated {
    pub(super) fn new(records: u64, seed: u64, times: u32, all_records: bool) -> Result<Self> {
        if times == 0 {
            return Err(
                Error::config("the order repeats each record 0 times").with_hint("use 1 or more; 3 or 4 are usual")
            );
        }
        if records.checked_mul(u64::from(times)).is_none() {
            return Err(Error::config(format!("{records} records {times} times are more than 2^64 - 1 samples")));
        }
        Ok(Self { records, seed, times, all_records })
    }

    const fn times(&self) -> u64 {
        self.times as u64
    }

    /// The order of the records, and the slot in it that an epoch begins with.
    const fn place(&self, epoch: u64) -> (Permutation, u64) {
        let (cycle, part) = if self.all_records { (epoch, 0) } else { (epoch / self.times(), epoch % self.times()) };
        (Permutation::new(self.records, key(Purpose::Repeated, self.seed, cycle)), part * self.records)
    }
}

/// The order in words.
pub(super) fn describe(seed: u64, times: u32, all_records: bool) -> String {
    let all = if all_records { ", all records" } else { "" };
    format!("repeated {times} times, seed {seed}{all}")
}

impl Sampler for Repeated {
    fn len(&self) -> u64 {
        if self.all_records { self.records * self.times() } else { self.records }
    }

    fn records(&self) -> u64 {
        self.records
    }

    fn record(&self, epoch: u64, position: u64) -> u64 {
        let (order, first) = self.place(epoch);
        order.get((first + position) / self.times())
    }

    fn occurrence(&self, epoch: u64, position: u64) -> u64 {
        (self.place(epoch).1 + position) % self.times()
    }

    fn position(&self, epoch: u64, record: u64) -> Option<u64> {
        if record >= self.records {
            return None;
        }
        let (order, first) = self.place(epoch);
        let slot = order.inverse(record) * self.times();
        // An epoch may begin between two repeats of a record.
        let slot = if slot < first && first < slot + self.times() { first } else { slot };
        slot.checked_sub(first).filter(|position| *position < self.len())
    }

    fn is_bijection(&self) -> bool {
        self.times == 1
    }

    fn describe(&self) -> String {
        describe(self.seed, self.times, self.all_records)
    }

    fn fingerprint(&self) -> Fingerprint {
        let parts = Fingerprint::of("repeated").number(self.records).number(self.seed).number(self.times());
        parts.number(u64::from(self.all_records)).finish()
    }
}
