//! A task for a decode thread: some rows of one batch, and their samples as far as they are read.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use infeed_core::{
    error::{Error, ErrorKind, Result},
    report::Stage,
    rows::Rows,
};
use infeed_data::Value;
use infeed_pixels::codec::{ClassSet, Item};

use super::{
    assembly::Assembly, byte_permits::BytePermits, pieces::Fetched, queue::Queued, read_parts::PartJob,
    stream::StreamShared, timeline::FetchTimes,
};

/// A task that waits for a decode thread.
#[derive(Debug)]
pub(super) enum Work {
    Rows(Task),
    Part(PartJob),
}

/// Some rows of one batch on their way to a worker.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) assembly: Arc<Assembly>,
    /// First row of the batch.
    pub(super) first: usize,
    /// One for each field.
    pub(super) rows: Vec<Rows>,
    /// One for each row: bytes that were fetched or are in the cache. Empty if the worker reads from the source.
    pub(super) fetched: Vec<Result<Fetched>>,
    /// Whether it was read before, and could not be decoded.
    pub(super) again: bool,
    /// Samples that were read already; empty for a fresh task.
    pub(super) samples: Vec<Item>,
    /// Classes that may take it.
    pub(super) allowed: ClassSet,
    /// Classes that have not given its rows back.
    pub(super) untried: ClassSet,
    /// Permits for the fetched bytes, released when all samples that were cut out of them are decoded.
    pub(super) encoded: Option<BytePermits>,
    /// Processor time spent on its samples that no stage has yet.
    pub(super) cpu: Duration,
    /// When it was made, and how its bytes were read.
    pub(super) queued: Instant,
    pub(super) reading: ReadTimes,
}

/// How the bytes of a job were read.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadTimes {
    /// From a store.
    pub(super) fetched: Option<FetchTimes>,
    /// By a decode thread, summed.
    pub(super) time: Duration,
    /// The record that took longest, with its time.
    pub(super) slowest: Option<(u64, Duration)>,
}

impl Task {
    pub(super) fn new(assembly: &Arc<Assembly>, first: usize, rows: Vec<Rows>) -> Self {
        Self {
            assembly: Arc::clone(assembly),
            first,
            rows,
            fetched: Vec::new(),
            again: false,
            samples: Vec::new(),
            allowed: ClassSet::ALL,
            untried: ClassSet::ALL,
            encoded: None,
            cpu: Duration::ZERO,
            queued: Instant::now(),
            reading: ReadTimes::default(),
        }
    }

    /// With bytes that were fetched.
    pub(super) fn fetched(mut self, fetched: Vec<Result<Fetched>>, times: FetchTimes, encoded: BytePermits) -> Self {
        self.fetched = fetched;
        self.encoded = Some(encoded);
        self.reading.fetched = Some(times);
        self
    }

    pub(super) fn len(&self) -> usize {
        self.rows.first().map_or(0, Rows::rows)
    }
}

impl Work {
    pub(super) fn stream(&self) -> &Arc<StreamShared> {
        match self {
            Self::Rows(task) => &task.assembly.stream,
            Self::Part(part) => &part.stream,
        }
    }
}

impl Queued for Work {
    fn allowed(&self) -> ClassSet {
        match self {
            Self::Rows(task) => task.allowed,
            Self::Part(_) => ClassSet::ALL,
        }
    }

    fn encoded_bytes(&self) -> u64 {
        match self {
            Self::Rows(task) => task.samples.iter().map(encoded_bytes).sum(),
            Self::Part(_) => 0,
        }
    }

    fn lane(&self) -> usize {
        self.stream().loader.lane
    }

    fn cpu_may(&self) -> bool {
        let stream = self.stream();
        stream.precedence.cpu_may(stream.finished.load(Ordering::Relaxed))
    }

    fn engines_may(&self) -> bool {
        self.stream().precedence.engines_may()
    }

    fn is_ahead(&self) -> bool {
        matches!(self, Self::Part(_))
    }
}

/// Bytes of a sample's files; views of one image, which are adjacent, count once.
fn encoded_bytes(item: &Item) -> u64 {
    let mut before = None;
    let mut sum = 0;
    for value in item.sample.iter().flat_map(|sample| &sample.values) {
        let (first, bytes) = match value {
            Value::Encoded(bytes) => (bytes.as_ptr(), bytes.len() as u64),
            Value::Channels(files) => (
                files.first().map_or(std::ptr::null(), |file| file.as_ptr()),
                files.iter().map(|file| file.len() as u64).sum(),
            ),
            _ => continue,
        };
        if before.replace((first, bytes)) != Some((first, bytes)) {
            sum += bytes;
        }
    }
    sum
}

/// The record that caused most of a job's work, if there is one: the only record, or the one with most of the bytes.
pub(super) fn largest(items: &[Item]) -> Option<u64> {
    if let [only] = items {
        return Some(only.record);
    }
    let largest = items.iter().map(|item| (encoded_bytes(item), item.record)).max()?;
    (largest.0 * 2 > items.iter().map(encoded_bytes).sum()).then_some(largest.1)
}

/// Fails the batch if the rows of a job do not come back for any reason.
#[derive(Debug)]
pub(super) struct Ticket {
    assembly: Option<Arc<Assembly>>,
    first: usize,
}

impl Ticket {
    pub(super) fn new(assembly: &Arc<Assembly>, first: usize) -> Self {
        Self { assembly: Some(Arc::clone(assembly)), first }
    }

    /// Disarms the ticket: the rows came back, or no batch waits for them.
    pub(super) fn redeem(mut self) -> (Arc<Assembly>, usize) {
        (self.assembly.take().expect("taken only here"), self.first)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(assembly) = &self.assembly {
            let what = "a decode worker panicked";
            assembly.fail(
                Error::new(ErrorKind::Internal, what)
                    .at_stage(Stage::Decode)
                    .with_hint("see the panic's message on stderr; please report it unless the decoder is yours"),
            );
        }
    }
}
