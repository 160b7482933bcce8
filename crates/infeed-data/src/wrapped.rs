//! A dataset that changes another one: some of its records, or its fields. The rest stays as the other has it.
//!
//! ```text
//! Wrapped { inner, by }     record ─ by.renumber ─▶ inner.plan, inner.parse ─▶ sample ─ by.sample ─▶ sample
//! ```
//!
//! [`Dataset`] has many methods with defaults. A wrapper that forgets one gets the default in silence, for example one
//! group where the inner dataset has many. So only this file passes calls on, and `named_files`, whose
//! records read more than the inner dataset's; clippy refuses both if a method is missing.

use std::{fmt::Debug, num::NonZeroUsize, sync::Arc};

use bytes::Bytes;
use infeed_core::{error::Result, fingerprint::Fingerprint, random::SampleRng};

use super::{
    record::{Dataset, ReadPlan, Sample, SharedBytes, Value, no_such_record, read_renamed},
    schema::Schema,
    volume::Narrow,
};

/// What a wrapper changes. Defaults change nothing.
pub trait Wrap: Debug + Send + Sync + 'static {
    /// See [`Dataset::len`].
    fn len(&self, inner: &dyn Dataset) -> u64 {
        inner.len()
    }

    /// The record's number in the inner dataset; `None` beyond the end. An implementation that changes numbers also
    /// implements [`groups`](Self::groups) and [`parts`](Self::parts).
    fn renumber(&self, record: u64) -> Option<u64> {
        Some(record)
    }

    /// See [`Dataset::schema`].
    fn schema<'a>(&'a self, inner: &'a dyn Dataset) -> &'a Schema {
        inner.schema()
    }

    /// Changes the sample of the record, whose number is the inner dataset's.
    fn sample(&self, inner: &dyn Dataset, record: u64, sample: Sample) -> Result<Sample> {
        let _ = (inner, record);
        Ok(sample)
    }

    /// Changes a value of [`Dataset::known`].
    fn known(&self, field: &str, value: Value) -> Option<Value> {
        let _ = field;
        Some(value)
    }

    /// See [`Dataset::usual_varying`].
    fn usual_varying(&self, inner: &dyn Dataset) -> Option<u64> {
        inner.usual_varying()
    }

    /// Bytes that the wrapper keeps in memory.
    fn own_bytes(&self) -> u64 {
        0
    }

    /// See [`Dataset::groups`].
    fn groups(&self, inner: &dyn Dataset) -> Option<Arc<[u64]>> {
        inner.groups()
    }

    /// See [`Dataset::parts`].
    fn parts(&self, inner: &dyn Dataset) -> Option<Arc<[u64]>> {
        inner.parts()
    }

    /// See [`Dataset::fingerprint`].
    fn fingerprint(&self, inner: &dyn Dataset) -> Fingerprint {
        inner.fingerprint()
    }
}

/// The dataset `inner`, changed by `by`.
#[derive(Debug)]
pub struct Wrapped<W> {
    inner: Arc<dyn Dataset>,
    by: Arc<W>,
}

impl<W: Wrap> Wrapped<W> {
    /// See the type.
    pub fn new(inner: Arc<dyn Dataset>, by: W) -> Self {
        Self { inner, by: Arc::new(by) }
    }

    fn child(&self, record: u64) -> Result<u64> {
        self.by.renumber(record).ok_or_else(|| no_such_record(record, self.len()))
    }
}

#[deny(clippy::missing_trait_methods, reason = "a method that is not passed on changes the dataset in silence")]
impl<W: Wrap> Dataset for Wrapped<W> {
    fn len(&self) -> u64 {
        self.by.len(&*self.inner)
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn schema(&self) -> &Schema {
        self.by.schema(&*self.inner)
    }

    fn format(&self) -> &str {
        self.inner.format()
    }

    fn plan(&self, record: u64, rng: SampleRng) -> Result<ReadPlan> {
        self.inner.plan(self.child(record)?, rng).map_err(|e| e.rename_record(record))
    }

    fn parse(&self, record: u64, plan: &ReadPlan, bytes: &[Bytes]) -> Result<Sample> {
        let child = self.child(record)?;
        let sample =
            self.inner.parse(child, plan, bytes).and_then(|sample| self.by.sample(&*self.inner, child, sample));
        sample.map_err(|e| e.rename_record(record))
    }

    fn read(&self, records: &[u64]) -> Vec<Result<Vec<Bytes>>> {
        match records.iter().map(|record| self.child(*record)).collect::<Result<Vec<u64>>>() {
            Ok(children) => read_renamed(&*self.inner, &children, records),
            Err(error) => records.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    fn concurrent_reads(&self) -> Option<NonZeroUsize> {
        self.inner.concurrent_reads()
    }

    fn decode_shared(&self, key: u64, bytes: &[Bytes]) -> Result<Bytes> {
        self.inner.decode_shared(key, bytes)
    }

    fn shared_bytes(&self) -> SharedBytes {
        self.inner.shared_bytes()
    }

    fn narrowed(&self, to: &Arc<dyn Narrow>) -> Option<Arc<dyn Dataset>> {
        let inner = self.inner.narrowed(to)?;
        Some(Arc::new(Self { inner, by: Arc::clone(&self.by) }))
    }

    fn image_size(&self, record: u64) -> Option<[u32; 2]> {
        self.inner.image_size(self.by.renumber(record)?)
    }

    fn known(&self, record: u64, field: &str) -> Option<Value> {
        let value = self.inner.known(self.by.renumber(record)?, field)?;
        self.by.known(field, value)
    }

    fn object(&self, record: u64) -> String {
        self.inner.object(self.by.renumber(record).unwrap_or(u64::MAX))
    }

    fn object_of(&self, record: u64, field: &str) -> String {
        self.inner.object_of(self.by.renumber(record).unwrap_or(u64::MAX), field)
    }

    fn largest_read(&self) -> u64 {
        self.inner.largest_read()
    }

    fn usual_read(&self) -> u64 {
        self.inner.usual_read()
    }

    fn usual_varying(&self) -> Option<u64> {
        self.by.usual_varying(&*self.inner)
    }

    fn needs_fetch(&self) -> bool {
        self.inner.needs_fetch()
    }

    fn resident_bytes(&self) -> u64 {
        self.inner.resident_bytes() + self.by.own_bytes()
    }

    fn groups(&self) -> Option<Arc<[u64]>> {
        self.by.groups(&*self.inner)
    }

    fn parts(&self) -> Option<Arc<[u64]>> {
        self.by.parts(&*self.inner)
    }

    fn fingerprint(&self) -> Fingerprint {
        self.by.fingerprint(&*self.inner)
    }
}
