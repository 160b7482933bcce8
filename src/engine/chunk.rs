//! How many records make a job.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use infeed_data::{Dataset, Field, FieldKind};

use super::fields::FieldRows;

/// Encoded bytes that one decode thread holds, unless a single record is larger.
pub(crate) const READ_BYTES: u64 = 4 << 20;

/// Records in a job, so that one takes about a millisecond.
#[derive(Debug)]
pub(crate) struct ChunkSize {
    /// Mean cost of a record, nanoseconds; moving average over jobs.
    cost: AtomicU64,
    /// Most records, so that the encoded bytes of a job stay within [`READ_BYTES`] or one record.
    most: usize,
}

impl ChunkSize {
    /// Long enough that handing a job over (a few microseconds) does not count, short enough that the cores finish a
    /// batch together.
    const TARGET_NANOS: u64 = 700_000;

    /// A first guess from what the rows and records look like; no record of more than `max_record` bytes is read.
    pub(crate) fn new(dataset: &Arc<dyn Dataset>, fields: &[FieldRows], max_record: u64) -> Self {
        let row = |f: &FieldRows| FieldRows::row_bytes(&f.shape, f.dtype) / f.dtype.size();
        let values = fields.iter().map(row).fold(0, usize::saturating_add);
        let encoded = |f: &Field| matches!(f.kind, FieldKind::Image { size: None, .. } | FieldKind::Images { .. });
        let decodes = dataset.schema().fields.iter().any(encoded);
        // 0.3 ns for each value written; an image of unknown size counts as a photograph until the first job is done.
        let guess = if decodes { Self::TARGET_NANOS } else { (values as u64).saturating_mul(3) / 10 };
        let most =
            READ_BYTES.checked_div(dataset.largest_read().min(max_record)).map_or(usize::MAX, |n| n.max(1) as usize);
        Self { cost: guess.max(1).into(), most }
    }

    /// For calls that read several records: one record, until it is known how long that takes.
    pub(super) fn of_calls() -> Self {
        Self { cost: Self::TARGET_NANOS.into(), most: usize::MAX }
    }

    /// Sets the cost of a record, overriding the measured cost.
    #[cfg(test)]
    pub(super) fn set_cost(&self, each: Duration) {
        self.cost.store(u64::try_from(each.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Number of records in the next jobs of a batch of this many.
    pub(super) fn get(&self, batch: usize) -> usize {
        let cost = self.cost.load(Ordering::Relaxed).max(1);
        usize::try_from(Self::TARGET_NANOS / cost).unwrap_or(batch).clamp(1, batch.max(1)).min(self.most)
    }

    /// Updates the mean with a job of `records` records that took this time.
    pub(super) fn learn(&self, took: Duration, records: usize) {
        let Some(each) = (took.as_nanos() as u64).checked_div(records as u64) else { return };
        // A lost update between threads only delays the average.
        let old = self.cost.load(Ordering::Relaxed);
        self.cost.store((old * 7 + each) / 8, Ordering::Relaxed);
    }
}
