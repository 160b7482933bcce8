//! Which rank takes which positions at which step: pure arithmetic.
//!
//! ```text
//! world 2, batch 3, from position 4:      row 0    row 1    row 2
//!                          step 0  rank 0   4        6        8
//!                                  rank 1   5        7        9       state after it: position 10
//!                          step 1  rank 0  10       12       14
//!                                  rank 1  11       13       15
//! ```
//!
//! Rows are dealt in turn to all ranks, so a step takes one range of the epoch, whatever the number of ranks. So one
//! number describes what has been seen, and a run with another world size can continue from it.
#![forbid(unsafe_code)]

use std::{fmt, num::NonZeroUsize, ops::Range, str::FromStr};

use infeed_core::error::{Error, Result};
use serde::{Deserialize, Serialize};

use super::shard::Shard;

/// What to do with records that do not fill a batch on every rank.
///
/// ```
/// # use std::sync::Arc;
/// use infeed::{LastBatch, Loader};
///
/// # let dataset = Arc::new(infeed::dataset::SyntheticDataset::new(10, 4, 4, 2)?);
/// for (last, sizes) in [(LastBatch::Drop, vec![4, 4]), (LastBatch::Partial, vec![4, 4, 2]), (LastBatch::Pad, vec![4, 4, 4])] {
///     let loader = Loader::builder(dataset.clone()).batch_size(4).last_batch(last).build_blocking()?;
///     let rows = loader.epoch(0).blocking().map(|batch| Ok(batch?.len())).collect::<infeed::Result<Vec<_>>>()?;
///     assert_eq!(rows, sizes);
/// }
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LastBatch {
    /// They are left out. With a shuffled order, other records are left out in each epoch.
    #[default]
    Drop,
    /// They are dealt evenly: ranks differ by at most one row. All ranks have the same number of steps, so the last
    /// batch of a rank may have no rows if fewer records are left than there are ranks.
    Partial,
    /// The batch is filled up with records from the beginning of the same epoch; the batch has the number of real rows.
    Pad,
}

impl LastBatch {
    /// The name used by the command line and in JSON: `drop`, `partial`, `pad`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Partial => "partial",
            Self::Pad => "pad",
        }
    }
}

impl fmt::Display for LastBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for LastBatch {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        [Self::Drop, Self::Partial, Self::Pad]
            .into_iter()
            .find(|policy| policy.name() == text)
            .ok_or_else(|| Error::config(format!("last batch is {text:?}")).with_hint("use drop, partial or pad"))
    }
}

/// The steps of one rank through the rest of an epoch.
///
/// Together with an order it gives the records of a rank without a loader.
///
/// ```
/// use std::num::NonZeroUsize;
///
/// use infeed::{LastBatch, Order, Shard, sampler::Schedule};
///
/// let order = Order::Sequential.sampler(16, None, 1)?;
/// let rank_1_of_2 = Shard::new(1, 2)?;
/// let batch = NonZeroUsize::new(3).expect("above 0");
/// let schedule = Schedule::new(order.len(), 0, batch, rank_1_of_2, LastBatch::Partial);
/// assert_eq!((schedule.steps(), schedule.rows_of_rank()), (3, 8));
/// let records: Vec<u64> = schedule.rows(0).map(|position| order.record(0, position)).collect();
/// assert_eq!(records, [1, 3, 5]);
/// assert_eq!(schedule.place_after(0, 0), (0, 6));
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    len: u64,
    start: u64,
    batch: u64,
    rank: u64,
    world: u64,
    last: LastBatch,
}

impl Schedule {
    /// The steps through an epoch of `len` positions from position `start` on (0, or the position of a saved state).
    /// Each rank of `shard`'s world gets batches of up to `batch` rows.
    #[must_use]
    pub fn new(len: u64, start: u64, batch: NonZeroUsize, shard: Shard, last: LastBatch) -> Self {
        let (rank, world) = (u64::from(shard.rank()), u64::from(shard.world()));
        Self { len, start: start.min(len), batch: batch.get() as u64, rank, world, last }
    }

    /// Number of positions that all ranks together take in a full step.
    const fn stride(&self) -> u64 {
        self.world.saturating_mul(self.batch)
    }

    /// Number of steps, the same on every rank.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        let rest = self.len - self.start;
        match self.last {
            LastBatch::Drop => rest / self.stride(),
            LastBatch::Partial | LastBatch::Pad => rest.div_ceil(self.stride()),
        }
    }

    /// Number of rows of this rank over all steps, without padding.
    #[must_use]
    pub const fn rows_of_rank(&self) -> u64 {
        match self.last {
            LastBatch::Drop => self.steps() * self.batch,
            // Full steps deal evenly, so all that is left can be dealt in turn.
            LastBatch::Partial | LastBatch::Pad => self.dealt(self.len - self.start),
        }
    }

    /// How many of `count` positions go to this rank when they are dealt in turn.
    const fn dealt(&self, count: u64) -> u64 {
        count.saturating_sub(self.rank).div_ceil(self.world)
    }

    /// The positions that this rank takes at `step`, in row order; none if `step` is not below [`steps`](Self::steps).
    pub const fn rows(&self, step: u64) -> StepRows {
        let none = StepRows { next: 0, world: 1, left: 0, valid: 0, len: self.len };
        if step >= self.steps() {
            return none;
        }
        let first = self.start + step * self.stride();
        let there = self.len - first;
        // `first` is within the epoch, so `there` is at least 1. Only the last step may have less than a stride.
        let valid = if there < self.stride() { self.dealt(there) } else { self.batch };
        let left = if matches!(self.last, LastBatch::Pad) { self.batch } else { valid };
        StepRows { next: first + self.rank, world: self.world, left, valid, len: self.len }
    }

    /// The position after `step` within this epoch, where a run that stops there continues.
    #[must_use]
    pub const fn position_after(&self, step: u64) -> u64 {
        let after = self.start.saturating_add(step.saturating_add(1).saturating_mul(self.stride()));
        if after < self.len { after } else { self.len }
    }

    /// Epoch and position after `step` of `epoch`, where a run continues. After the last step of an epoch this is
    /// position 0 of the next one, even if records are dropped: a resumed run must not read a rest that the first run
    /// left out.
    #[must_use]
    pub const fn place_after(&self, epoch: u64, step: u64) -> (u64, u64) {
        if step.saturating_add(1) >= self.steps() {
            (epoch.saturating_add(1), 0)
        } else {
            (epoch, self.position_after(step))
        }
    }
}

/// Positions of one rank at one step, in row order: the rows of a batch.
///
/// ```
/// # use std::num::NonZeroUsize;
/// use infeed::{LastBatch, Shard, sampler::Schedule};
///
/// # let batch = NonZeroUsize::new(4).expect("above 0");
/// let schedule = Schedule::new(5, 0, batch, Shard::new(0, 1)?, LastBatch::Pad); // Batches of 4.
/// let rows = schedule.rows(1);
/// assert_eq!((rows.len(), rows.valid()), (4, 1));
/// assert_eq!(rows.collect::<Vec<_>>(), [4, 0, 1, 2]);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct StepRows {
    next: u64,
    world: u64,
    left: u64,
    valid: u64,
    len: u64,
}

impl StepRows {
    /// A range of an epoch that one rank takes.
    pub(super) const fn of(positions: Range<u64>) -> Self {
        let rows = positions.end.saturating_sub(positions.start);
        Self { next: positions.start, world: 1, left: rows, valid: rows, len: positions.end }
    }

    /// Number of real rows. They come first; the others are padding, which repeats records.
    #[must_use]
    pub const fn valid(&self) -> usize {
        self.valid as usize
    }
}

impl Iterator for StepRows {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.left = self.left.checked_sub(1)?;
        let position = self.next;
        // Padding wraps around, several times if a step is longer than the whole epoch.
        self.next = position.wrapping_add(self.world);
        Some(if position < self.len { position } else { position % self.len })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for StepRows {}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(len: u64, start: u64, batch: usize, rank: u32, world: u32, last: LastBatch) -> Schedule {
        Schedule::new(len, start, NonZeroUsize::new(batch).unwrap(), Shard::new(rank, world).unwrap(), last)
    }

    /// All rows of a rank, one list for each step, with the number of real ones.
    fn rows(schedule: Schedule) -> Vec<(Vec<u64>, usize)> {
        (0..schedule.steps()).map(|step| (schedule.rows(step).collect(), schedule.rows(step).valid())).collect()
    }

    #[test]
    fn rows_are_dealt_in_turn() {
        assert_eq!(rows(schedule(16, 4, 3, 0, 2, LastBatch::Drop)), [(vec![4, 6, 8], 3), (vec![10, 12, 14], 3)]);
        assert_eq!(rows(schedule(16, 4, 3, 1, 2, LastBatch::Drop)), [(vec![5, 7, 9], 3), (vec![11, 13, 15], 3)]);
    }

    #[test]
    fn the_three_ways_to_end_an_epoch() {
        // 10 positions, 2 ranks, batch 4: a full step of 8, then 2 left.
        let of = |rank, last| rows(schedule(10, 0, 4, rank, 2, last)).pop().unwrap();
        assert_eq!(of(0, LastBatch::Drop), (vec![0, 2, 4, 6], 4));
        assert_eq!(of(0, LastBatch::Partial), (vec![8], 1));
        assert_eq!(of(1, LastBatch::Partial), (vec![9], 1));
        assert_eq!(of(0, LastBatch::Pad), (vec![8, 0, 2, 4], 1));
        assert_eq!(of(1, LastBatch::Pad), (vec![9, 1, 3, 5], 1));
    }

    #[test]
    fn a_rank_may_end_with_no_rows_but_keeps_step() {
        // 9 positions, 4 ranks, batch 2: one left for rank 0.
        for rank in 0..4 {
            let plan = schedule(9, 0, 2, rank, 4, LastBatch::Partial);
            assert_eq!(plan.steps(), 2);
            assert_eq!(plan.rows(1).len(), usize::from(rank == 0));
            let plan = schedule(9, 0, 2, rank, 4, LastBatch::Pad);
            assert_eq!((plan.rows(1).len(), plan.rows(1).valid()), (2, usize::from(rank == 0)));
        }
    }

    #[test]
    fn padding_wraps_as_often_as_it_must() {
        assert_eq!(rows(schedule(3, 0, 8, 0, 1, LastBatch::Pad)), [(vec![0, 1, 2, 0, 1, 2, 0, 1], 3)]);
    }

    #[test]
    fn an_empty_epoch_has_no_steps() {
        for last in [LastBatch::Drop, LastBatch::Partial, LastBatch::Pad] {
            for (len, start) in [(0, 0), (5, 5), (5, 9)] {
                let plan = schedule(len, start, 2, 0, 1, last);
                assert_eq!((plan.steps(), plan.rows_of_rank()), (0, 0));
                assert_eq!(plan.rows(0).next(), None);
                assert_eq!(plan.place_after(3, 0), (4, 0));
            }
        }
    }

    #[test]
    fn the_last_step_leads_to_the_next_epoch() {
        let plan = schedule(10, 2, 3, 0, 1, LastBatch::Drop);
        assert_eq!((plan.steps(), plan.place_after(7, 0), plan.place_after(7, 1)), (2, (7, 5), (8, 0)));
        let plan = schedule(10, 2, 3, 0, 1, LastBatch::Partial);
        assert_eq!((plan.steps(), plan.place_after(7, 1), plan.place_after(7, 2)), (3, (7, 8), (8, 0)));
        assert_eq!(plan.position_after(2), 10);
    }

    #[test]
    fn absurd_batch_sizes_do_not_overflow() {
        let plan = schedule(10, 3, usize::MAX, u32::MAX - 1, u32::MAX, LastBatch::Partial);
        assert_eq!((plan.steps(), plan.rows(0).len(), plan.position_after(0)), (1, 0, 10));
        assert_eq!(schedule(10, 3, usize::MAX, 0, u32::MAX, LastBatch::Drop).steps(), 0);
        assert_eq!(schedule(10, 3, usize::MAX, 1, 3, LastBatch::Pad).rows(0).next(), Some(4));
    }

    #[test]
    fn policies_are_read_as_they_are_written() {
        for policy in [LastBatch::Drop, LastBatch::Partial, LastBatch::Pad] {
            assert_eq!(policy.to_string().parse::<LastBatch>().unwrap(), policy);
            assert_eq!(serde_json::to_string(&policy).unwrap(), format!("\"{policy}\""));
        }
        assert!("keep".parse::<LastBatch>().is_err());
    }
}
