//! The dataset of the tests in `loader`: each record repeats its number. Records are in memory, in one object each,
//! several in a shared part, or read by the dataset itself.

use std::{collections::HashSet, num::NonZeroUsize};

use bytes::Bytes;
use infeed_core::{error::Error, fingerprint::Fingerprint, random::SampleRng, types::DType};
use infeed_data::{Dataset, Field, FieldKind, ReadPlan, Sample, Schema, SharedBytes, SharedRead, Value};
use infeed_store::{Extent, Source};

use crate::Result;

/// Bytes of a record.
pub(super) const LEN: usize = 64;
/// Records of a part.
pub(super) const IN_PART: u64 = 10;
/// Decoded bytes of a part, by its plan.
const PROMISED: u64 = 1 << 20;

/// How records are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// One object each.
    Objects,
    /// Ten in one object.
    Parts,
    /// The dataset reads them.
    Calls,
}

#[derive(Debug)]
pub(super) struct Numbers {
    pub(super) source: Option<Source>,
    pub(super) layout: Layout,
    pub(super) count: u64,
    /// Damaged records, and parts.
    pub(super) bad: HashSet<u64>,
    pub(super) bad_parts: HashSet<u64>,
    pub(super) schema: Schema,
}

pub(super) fn name(record: u64) -> String {
    format!("{record:04}")
}

pub(super) fn content(record: u64) -> Bytes {
    record.to_le_bytes().repeat(LEN / 8).into()
}

pub(super) fn part_name(part: u64) -> String {
    format!("part-{part:04}")
}

/// All records of a part.
pub(super) fn part_content(part: u64) -> Bytes {
    let records = part * IN_PART..(part + 1) * IN_PART;
    records.flat_map(|record| content(record).to_vec()).collect::<Vec<u8>>().into()
}

impl Numbers {
    /// Records that `source` holds by [`name`]; in memory without one.
    pub(super) fn new(source: Option<Source>, count: u64) -> Self {
        let kind = FieldKind::Array { dtype: DType::U8, shape: vec![LEN] };
        Self {
            source,
            layout: Layout::Objects,
            count,
            bad: HashSet::new(),
            bad_parts: HashSet::new(),
            schema: Schema::new(vec![Field::new("number", kind)]),
        }
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
        let Some(source) = &self.source else { return Ok(ReadPlan::default()) };
        Ok(match self.layout {
            Layout::Objects => ReadPlan::one(Extent::whole(source, name(record), LEN as u64)),
            Layout::Calls => ReadPlan::by_dataset(LEN as u64),
            Layout::Parts => {
                let part = record / IN_PART;
                let all = Extent::whole(source, part_name(part), LEN as u64 * IN_PART);
                ReadPlan::of_shared(vec![SharedRead::new(part, [all], PROMISED)])
            }
        })
    }
    fn parse(&self, record: u64, _plan: &ReadPlan, bytes: &[Bytes]) -> Result<Sample> {
        if self.bad.contains(&record) || self.bad_parts.contains(&(record / IN_PART)) {
            return Err(Error::corrupt("it says so"));
        }
        let number = match (bytes.first(), self.layout) {
            (None, _) => content(record),
            (Some(bytes), Layout::Parts) => {
                let at = (record % IN_PART) as usize * LEN;
                bytes.slice(at..at + LEN)
            }
            (Some(bytes), _) => bytes.clone(),
        };
        Ok(Sample::new([Value::Array(number)]))
    }
    fn read(&self, records: &[u64]) -> Vec<Result<Vec<Bytes>>> {
        records.iter().map(|record| Ok(vec![content(*record)])).collect()
    }
    fn concurrent_reads(&self) -> Option<NonZeroUsize> {
        if self.source.is_some() && self.layout == Layout::Calls { NonZeroUsize::new(3) } else { None }
    }
    fn decode_shared(&self, key: u64, bytes: &[Bytes]) -> Result<Bytes> {
        if self.bad_parts.contains(&key) {
            return Err(Error::corrupt("the part says so"));
        }
        Ok(bytes[0].clone())
    }
    fn shared_bytes(&self) -> SharedBytes {
        if self.source.is_none() || self.layout != Layout::Parts {
            return SharedBytes::default();
        }
        let encoded = LEN as u64 * IN_PART;
        SharedBytes { encoded, one: encoded + PROMISED, all: self.count.div_ceil(IN_PART) * PROMISED }
    }
    fn object(&self, record: u64) -> String {
        name(record)
    }
    fn largest_read(&self) -> u64 {
        if self.source.is_some() { LEN as u64 } else { 0 }
    }
    fn needs_fetch(&self) -> bool {
        self.layout != Layout::Calls && self.source.as_ref().is_some_and(|source| !source.reads_inline())
    }
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of("numbers").number(self.count).finish()
    }
}
