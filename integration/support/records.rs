//! A dataset whose rows tell which record they are, over any store; and a decoder that does as it is told.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;
use infeed::{
    DType, Device, Error, Result,
    dataset::{Dataset, Field, FieldKind, Fingerprint, ReadPlan, Sample, SampleRng, Schema, Value},
    source::{Extent, Source},
    spi::{Class, Decoder, Finished, Job, Lowered, Outcome, Wait, Worker},
};

use super::store::Tracker;

/// Bytes of one record.
pub(crate) const LEN: usize = 64;

/// `count` records of [`LEN`] bytes, each repeating its index; field `bytes` (`u8` `[LEN]`) and `label`.
#[derive(Debug)]
pub(crate) struct Records {
    source: Option<Source>,
    count: u64,
    schema: Schema,
    /// Whether the plan names versions.
    tagged: bool,
    first_tag: u64,
}

pub(crate) fn content(record: u64) -> Bytes {
    record.to_le_bytes().repeat(LEN / 8).into()
}

/// The record that a row of `bytes` was made from.
pub(crate) fn record_of(row: &[u8]) -> u64 {
    let (words, _) = row.as_chunks::<8>();
    assert!(words.iter().all(|word| word == &words[0]), "the row is torn: {row:?}");
    u64::from_le_bytes(words[0])
}

impl Records {
    fn new(source: Option<Source>, count: u64) -> Self {
        let bytes = FieldKind::Array { dtype: DType::U8, shape: vec![LEN] };
        let schema = Schema::new(vec![Field::new("bytes", bytes), Field::new("label", FieldKind::Label)]);
        Self { source, count, schema, tagged: false, first_tag: 0 }
    }

    /// Held in memory.
    pub(crate) fn resident(count: u64) -> Arc<dyn Dataset> {
        Arc::new(Self::new(None, count))
    }

    /// One object each, which a source holds already: [`name`] and [`content`].
    pub(crate) fn over(source: Source, count: u64) -> Arc<dyn Dataset> {
        Arc::new(Self::new(Some(source), count))
    }

    /// One object each, read as from a network.
    pub(crate) fn remote(count: u64) -> (Arc<dyn Dataset>, Arc<Tracker>) {
        let tracker = Tracker::holding((0..count).map(|record| (name(record), content(record))));
        (Arc::new(Self::new(Some(tracker.source()), count)), tracker)
    }

    /// As [`remote`](Self::remote), in the version that the store has: caches keep only what has a version.
    pub(crate) fn tagged(count: u64) -> (Arc<dyn Dataset>, Arc<Tracker>) {
        let tracker = Tracker::holding((0..count).map(|record| (name(record), content(record))));
        (Arc::new(Self { tagged: true, ..Self::new(Some(tracker.source()), count) }), tracker)
    }

    /// As [`tagged`](Self::tagged), over objects that were put into this source one after another.
    pub(crate) fn tagged_over(source: Source, count: u64) -> Arc<dyn Dataset> {
        Arc::new(Self { tagged: true, ..Self::new(Some(source), count) })
    }

    /// As [`tagged`](Self::tagged), each object in a later version of the same bytes.
    pub(crate) fn tagged_again(count: u64) -> (Arc<dyn Dataset>, Arc<Tracker>) {
        let twice = (0..2 * count).map(|put| (name(put % count), content(put % count)));
        let tracker = Tracker::holding(twice);
        (Arc::new(Self { tagged: true, first_tag: count, ..Self::new(Some(tracker.source()), count) }), tracker)
    }

    /// One object each, read by the decode threads.
    pub(crate) fn inline(count: u64) -> (Arc<dyn Dataset>, Arc<Tracker>) {
        let tracker = Tracker::holding((0..count).map(|record| (name(record), content(record))));
        (Arc::new(Self::new(Some(tracker.inline_source()), count)), tracker)
    }
}

pub(crate) fn name(record: u64) -> String {
    format!("{record:06}.bin")
}

impl Dataset for Records {
    fn len(&self) -> u64 {
        self.count
    }
    fn schema(&self) -> &Schema {
        &self.schema
    }
    fn format(&self) -> &str {
        "records"
    }
    fn plan(&self, record: u64, _rng: SampleRng) -> Result<ReadPlan> {
        // The store in memory counts its versions.
        let tag = self.tagged.then(|| format!("\"{}\"", self.first_tag + record));
        let whole = |source| Extent::whole(source, name(record), LEN as u64).with_etag(tag.as_deref());
        let extents = self.source.iter().map(whole);
        Ok(ReadPlan::new(extents))
    }
    fn parse(&self, record: u64, _plan: &ReadPlan, bytes: &[Bytes]) -> Result<Sample> {
        let data = bytes.first().cloned().unwrap_or_else(|| content(record));
        if data.starts_with(b"BAD") {
            return Err(Error::corrupt("the record says that it is bad").at_record(record));
        }
        Ok(Sample::new([Value::Array(data), Value::Label(record as i64)]))
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
        Fingerprint::of("records").number(self.count).finish()
    }
}

/// What the [`Told`] decoder does with a record.
pub(crate) type Script = Arc<dyn Fn(u64, usize) -> Told + Send + Sync>;

/// An instruction for one record.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    Done,
    Fail,
    Panic,
    /// Give it to the other classes.
    Elsewhere,
}

/// A decoder of two classes that follows a script of (record, class) and counts its workers.
pub(crate) struct Obedient {
    script: Script,
    classes: Vec<Class>,
    pub(crate) alive: Arc<AtomicUsize>,
}

impl Obedient {
    pub(crate) fn new(script: impl Fn(u64, usize) -> Told + Send + Sync + 'static) -> Self {
        let one = std::num::NonZeroUsize::MIN;
        let classes = vec![Class::new("first", Device::Cpu, one), Class::new("second", Device::Cpu, one)];
        Self { script: Arc::new(script), classes, alive: Arc::default() }
    }
}

impl std::fmt::Debug for Obedient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Obedient")
    }
}

impl Decoder for Obedient {
    fn name(&self) -> &'static str {
        "obedient"
    }
    fn classes(&self) -> &[Class] {
        &self.classes
    }
    fn scratch_bytes(&self, _class: usize) -> u64 {
        0
    }
    fn worker(&self, class: usize, _n: usize, _programs: &Arc<[Option<Lowered>]>) -> Result<Box<dyn Worker>> {
        self.alive.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(Servant {
            class,
            script: Arc::clone(&self.script),
            alive: Arc::clone(&self.alive),
            done: Vec::new(),
        }))
    }
}

struct Servant {
    class: usize,
    script: Script,
    alive: Arc<AtomicUsize>,
    done: Vec<Finished>,
}

impl Drop for Servant {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Worker for Servant {
    fn submit(&mut self, job: Job) {
        let outcome = |item: &infeed::spi::Item| match (&item.sample, (self.script)(item.record, self.class)) {
            (Err(error), _) => Outcome::Failed(error.clone()),
            (_, Told::Done) => Outcome::Done,
            (_, Told::Fail) => Outcome::Failed(Error::corrupt("told to fail").at_record(item.record)),
            (_, Told::Panic) => panic!("told to panic at record {}", item.record),
            (_, Told::Elsewhere) => Outcome::Elsewhere(infeed::spi::ClassSet::ALL.without(self.class)),
        };
        let outcomes = job.items.iter().map(outcome).collect();
        self.done.push(Finished::new(job, outcomes));
    }
    fn poll(&mut self, _wait: Wait) -> Vec<Finished> {
        std::mem::take(&mut self.done)
    }
}
