//! What all streams of a loader share, and nothing that runs. Loaders that were built together share most of it with each
//! other: what they have alone is their shard, their device, and rows there.

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
    chunk::ChunkSize, decoded::DecodedCache, fields::FieldRows, io_runtime::IoRuntime, map::Maps, mix::BatchMix,
    precedence::First, read_slots::ReadSlots, shared_parts::SharedParts, tune::Tuning,
};

/// Everything a loader's streams share.
#[derive(Debug)]
pub(crate) struct LoaderShared {
    pub(crate) dataset: Arc<dyn Dataset>,
    pub(crate) shard: Shard,
    /// Where its batches are made.
    pub(crate) device: Device,
    /// Its number among those who share the threads.
    pub(crate) lane: usize,
    pub(crate) batch_size: NonZeroUsize,
    pub(crate) last_batch: LastBatch,
    pub(crate) fields: Vec<FieldRows>,
    pub(crate) limits: Limits,
    pub(crate) bad: BadRows,
    /// How large the rows of images are, where those of each batch have a size of their own.
    pub(crate) size: Option<BatchSize>,
    /// What is done to whole batches.
    pub(crate) mix: Option<BatchMix>,
    /// What the user does to samples and batches.
    pub(crate) maps: Maps,
    /// Records in a job, as the decode threads learn it.
    pub(crate) chunk: Arc<ChunkSize>,
    /// What is on `auto`.
    pub(crate) tuning: Arc<Tuning>,
    /// Who decodes what both CPU threads and engines of a GPU can.
    pub(crate) first: First,
    /// Whether streams write down where their time goes.
    pub(crate) accounting: bool,
    /// Admits and reads.
    pub(crate) io: IoRuntime,
    /// Where bytes of a remote store are kept near.
    pub(crate) cache: Option<Arc<Cache>>,
    /// Samples with their pixels.
    pub(crate) decoded: Option<Arc<DecodedCache>>,
    /// Its place among the ranks that share the cache.
    pub(crate) cache_member: Option<Member>,
    /// Parts that records share, for all streams.
    pub(crate) shared_parts: SharedParts,
    /// The bound on calls in which the dataset reads itself.
    pub(crate) read_slots: Arc<ReadSlots>,
    /// The bound on requests that streams of loaders built together share; `None`: each stream has one of its own.
    pub(crate) reader: Option<Reader>,
}

/// How far a stream may run ahead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Batches announced: as many as may ever own rows; more where bytes are fetched ahead of their rows.
    pub(crate) seats: usize,
    /// Encoded bytes of remote reads.
    pub(crate) encoded: u64,
    /// Remote requests in flight; `None`: what the store's own limit allows.
    pub(crate) requests: Option<usize>,
    /// How what comes is compared with what the store tells.
    pub(crate) verify: Verify,
    /// Encoded bytes of one record.
    pub(crate) record: u64,
}

impl Limits {
    /// A plan, if it is to be read: memory was divided for records of at most so many bytes.
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
        let hint = format!("set {MAX_RECORD_BYTES} to {asked} or more, or raise {MEMORY_BUDGET}; or leave it out");
        Err(Error::new(ErrorKind::OutOfMemory, what).at_stage(Stage::Fetch).hint(hint))
    }
}

/// See [`LoaderShared::reads_ahead`].
pub(crate) fn reads_ahead(dataset: &dyn Dataset) -> bool {
    dataset.needs_fetch() || dataset.concurrent_reads().is_some()
}

/// What happens to rows whose sample is bad. The count that ends a run is kept by the stream, in batch order.
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
    /// Whether bytes come ahead of the decode threads: from a store, or from a dataset that reads itself.
    pub(super) fn reads_ahead(&self) -> bool {
        reads_ahead(&*self.dataset)
    }

    /// What is left of each of `sampler`'s epochs from `position` on.
    pub(crate) fn steps(&self, sampler: &dyn Sampler, position: u64) -> Steps {
        Steps::of(sampler, position, self.batch_size, self.shard, self.last_batch)
    }

    /// Height and width of the rows of a batch of these records with these draws, where each batch has its own.
    pub(super) fn size_of(&self, records: &[u64], rngs: &[SampleRng]) -> Option<[u32; 2]> {
        let size = self.size.as_ref()?;
        let images = records.iter().zip(rngs);
        Some(size.of(images.filter_map(|(record, rng)| Some((self.dataset.image_size(*record)?, *rng)))))
    }
}
