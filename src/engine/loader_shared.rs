//! State that all streams of a loader share; it owns no threads. Loaders that were built together share most of it;
//! each has its own shard, its device, and rows there.

use std::{num::NonZeroUsize, sync::Arc};

use infeed_core::{
    error::{
        Error, ErrorKind, Result,
        setting::{MAX_RECORD_BYTES, MEMORY_BUDGET},
    },
    random::SampleRng,
    report::Stage,
    types::Device,
};
use infeed_data::{
    Dataset, ReadPlan,
    sampler::{LastBatch, Sampler, Shard, Steps},
};
use infeed_pixels::transform::BatchSize;
use infeed_store::{Cache, Member, Reader, Verify};

use super::{
    batch_mix::BatchMix, chunk::ChunkSize, decoded::DecodedCache, fields::FieldRows, io_runtime::IoRuntime, map::Maps,
    precedence::First, read_slots::ReadSlots, shared_parts::SharedParts, threads::Alive, tune::Tuning,
};

/// State that a loader's streams share.
#[derive(Debug)]
pub(crate) struct LoaderShared {
    pub(crate) dataset: Arc<dyn Dataset>,
    pub(crate) shard: Shard,
    /// Device of its batches.
    pub(crate) device: Device,
    /// Its number among the loaders that share the threads.
    pub(crate) lane: usize,
    pub(crate) batch_size: NonZeroUsize,
    pub(crate) last_batch: LastBatch,
    pub(crate) fields: Vec<FieldRows>,
    pub(crate) limits: Limits,
    pub(crate) bad: BadRows,
    /// Size of the rows of images, if each batch has its own.
    pub(crate) size: Option<BatchSize>,
    /// How batches are mixed.
    pub(crate) mix: Option<BatchMix>,
    /// The user's functions on samples and batches.
    pub(crate) maps: Maps,
    /// Number of records in a job, by the measured cost of records.
    pub(crate) chunk: Arc<ChunkSize>,
    /// Settings on `auto`.
    pub(crate) tuning: Arc<Tuning>,
    /// Which class decodes samples that both CPU threads and engines of a GPU can.
    pub(crate) first: First,
    /// Whether streams measure where their time goes.
    pub(crate) accounting: bool,
    /// The runtime that admits batches and reads.
    pub(crate) io: IoRuntime,
    /// Cache for bytes of a remote store.
    pub(crate) cache: Option<Arc<Cache>>,
    /// Cache of samples with their pixels.
    pub(crate) decoded: Option<Arc<DecodedCache>>,
    /// Its number among the ranks that share the cache.
    pub(crate) cache_member: Option<Member>,
    /// Parts that records share, for all streams.
    pub(crate) shared_parts: SharedParts,
    /// Limit of calls in which the dataset reads records itself.
    pub(crate) read_slots: Arc<ReadSlots>,
    /// Limit of requests for all streams of jointly built loaders; `None` if each stream has its own.
    pub(crate) reader: Option<Reader>,
    /// Dropped last: tasks that hold this count among the threads.
    pub(crate) _alive: Alive,
}

/// How far a stream may run ahead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Batches announced: as many as may ever own rows; more if bytes are fetched ahead of the rows.
    pub(crate) seats: usize,
    /// Encoded bytes of remote reads.
    pub(crate) encoded: u64,
    /// Remote requests in flight; `None` for the store's own limit.
    pub(crate) requests: Option<usize>,
    /// How objects are compared with the store's checksums.
    pub(crate) verify: Verify,
    /// Encoded bytes of one record.
    pub(crate) record: u64,
}

impl Limits {
    /// A plan, if it may be read: memory was divided for records up to a maximum size.
    pub(super) fn admit(&self, plan: ReadPlan) -> Result<ReadPlan> {
        self.check(plan.len_bytes()).map(|()| plan)
    }

    /// An error for a record of more bytes than memory was divided for.
    pub(super) fn check(&self, asked: u64) -> Result<()> {
        let most = self.record;
        if asked <= most {
            return Ok(());
        }
        let what = format!("the record has {asked} encoded bytes, more than the {most} that are read");
        let hint = format!("set {MAX_RECORD_BYTES} to {asked} or more, raise {MEMORY_BUDGET}, or leave the record out");
        Err(Error::new(ErrorKind::OutOfMemory, what).at_stage(Stage::Fetch).with_hint(hint))
    }
}

/// See [`LoaderShared::reads_ahead`].
pub(crate) fn reads_ahead(dataset: &dyn Dataset) -> bool {
    dataset.needs_fetch() || dataset.concurrent_reads().is_some()
}

/// What to do with rows of bad samples. The stream counts them in batch order and ends the run at the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadRows {
    Stop,
    /// The batch gets shorter.
    Skip,
    /// Rows of zeros lie at its end instead.
    SkipPadded,
    Substitute,
}

impl LoaderShared {
    /// Whether bytes are read ahead of the decode threads: from a store, or by a dataset that reads itself.
    pub(super) fn reads_ahead(&self) -> bool {
        reads_ahead(&*self.dataset)
    }

    /// The steps of one of `sampler`'s epochs from `position` on.
    pub(crate) fn steps(&self, sampler: &dyn Sampler, position: u64) -> Steps {
        Steps::of(sampler, position, self.batch_size, self.shard, self.last_batch)
    }

    /// Height and width of the rows of a batch of these records with these draws, if each batch has its own.
    pub(super) fn size_of(&self, records: &[u64], rngs: &[SampleRng]) -> Option<[u32; 2]> {
        let size = self.size.as_ref()?;
        let images = records.iter().zip(rngs);
        Some(size.of(images.filter_map(|(record, rng)| Some((self.dataset.image_size(*record)?, *rng)))))
    }
}
