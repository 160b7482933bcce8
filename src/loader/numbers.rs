//! The dataset of this room's tests: records that repeat their number, one object each, or in memory.

use std::collections::HashSet;

use bytes::Bytes;
use infeed_core::{error::Error, fingerprint::Fingerprint, random::SampleRng, types::DType};
use infeed_data::{Dataset, Field, FieldKind, ReadPlan, Sample, Schema, Value};
use infeed_store::{Extent, Source};

use crate::Result;

/// Bytes of a record.
pub(super) const LEN: usize = 64;

#[derive(Debug)]
pub(super) struct Numbers {
    pub(super) source: Option<Source>,
    pub(super) count: u64,
    /// Damaged records.
    pub(super) bad: HashSet<u64>,
    pub(super) schema: Schema,
}

pub(super) fn name(record: u64) -> String {
    format!("{record:04}")
}

pub(super) fn content(record: u64) -> Bytes {
    record.to_le_bytes().repeat(LEN / 8).into()
}

impl Numbers {
    /// Records that `source` holds by [`name`]; in memory without one.
    pub(super) fn new(source: Option<Source>, count: u64) -> Self {
        let kind = FieldKind::Array { dtype: DType::U8, shape: vec![LEN] };
        Self { source, count, bad: HashSet::new(), schema: Schema::new(vec![Field::new("number", kind)]) }
    }
}

impl Dataset for Numbers {
    fn len(&self) -> u64 {
        self.count
    }
    fn schema(&self) -> &Schema {
        &self.schema
    }
    fn format(&self) -> &str {
        "numbers"
    }
    fn plan(&self, record: u64, _rng: SampleRng) -> Result<ReadPlan> {
        Ok(ReadPlan::new(self.source.iter().map(|source| Extent::whole(source, name(record), LEN as u64))))
    }
    fn parse(&self, record: u64, _plan: &ReadPlan, bytes: &[Bytes]) -> Result<Sample> {
        if self.bad.contains(&record) {
            return Err(Error::corrupt("it says so"));
        }
        Ok(Sample::new([Value::Array(bytes.first().cloned().unwrap_or_else(|| content(record)))]))
    }
    fn object(&self, record: u64) -> String {
        name(record)
    }
    fn largest_read(&self) -> u64 {
        if self.source.is_some() { LEN as u64 } else { 0 }
    }
    fn needs_fetch(&self) -> bool {
        self.source.as_ref().is_some_and(|source| !source.reads_inline())
    }
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of("numbers").number(self.count).finish()
    }
}
