//! The only room that runs things: tasks, threads, channels and limits.
//!
//! ```text
//!  the caller's thread          the engine's thread (own current-thread runtime)             worker threads
//!  ───────────────────          ───────────────────────────────────────────────             ──────────────
//!  epoch() ─ Run::start ──────▶ admit: for each batch, in plan order
//!                                 seat in the channel           ◀─ freed when polled
//!                                 local, resident: rows, then jobs ───────────────────────▶ queue ─▶ read, parse,
//!                                 remote: encoded bytes ─▶ fetch ─▶ place: rows, then jobs ▶        decode into rows
//!                                 cached: look up at fetch, read with the job; fresh bytes ─▶ a blocking thread writes
//!  poll_next ◀──────────────────── one oneshot per batch ◀──────────── the last job of a batch seals it
//! ```
//!
//! Nothing runs on the caller's runtime but `poll_next`: a trainer that blocks its thread for a step, a
//! `current_thread` runtime, `select!`, or no runtime at all make no difference to how far the engine reads ahead.
//!
//! **Limits** are semaphores whose permit travels with what it guards:
//! - *seats*: batches announced to the stream and not yet polled;
//! - *rows*: batches that may own memory for their rows, until the poll that hands them over (`room.rs`); in host memory they
//!   take it when the first of their jobs writes;
//! - *threads*: decode threads at work, the others park (`queue.rs`);
//! - *encoded*: bytes read from a remote store and not yet decoded, in units of 64 KiB;
//! - *parts*: what records share, such as decoded volumes, within a reserve of its own (`assets.rs`);
//! - *requests*: in flight, of this stream if `io_concurrency` is set, and of the whole process for each store.
//!
//! Threads and rows that are on `auto` follow the run (`tune`); requests and the bytes read ahead do so by themselves.
//!
//! **What decode threads share** is touched once or twice a job, not a record: the queue's lock, the totals of a stage,
//! a count of jobs in the batch. A job is 0.7 ms of work ([`ChunkSize`]), so 64 threads take some 90,000 of them a
//! second. Batches of one record, which need a job, a seat, rows and a channel each, pass through all of it at 63,000
//! to 92,000 a second on two cores, every other cost included (CIFAR-100, `infeed run --batch-size 1`): holding locks
//! is a small part of those 20 µs. What an image touches is the decode index, a lock of 256 for a look. More than two
//! cores were not at hand to measure it there.
//!
//! **No deadlock**: seats, rows and encoded bytes are taken in plan order, so the batch that the trainer waits for
//! always holds what it needs, or waits only for jobs that wait for nothing.
//!
//! **Cancellation**: dropping the stream closes the [`Gate`](run::Gate) (no read begins afterwards), aborts the tasks and empties
//! the queue. A running job owns its rows and ends in peace.

#![forbid(unsafe_code)]

mod admit;
mod assembly;
mod batch;
mod cached;
mod fetch;
mod io_runtime;
mod permits;
mod plan;
mod queue;
mod run;
mod shared_parts;
mod timeline;
mod tune;
mod workers;

use std::{num::NonZeroUsize, sync::Arc};

pub use batch::Batch;
pub(crate) use fetch::whole_units;
pub use io_runtime::IoRuntime;
pub(crate) use io_runtime::off_thread;
pub(crate) use queue::READY_BYTES;
pub(crate) use run::{Facts, Levels, Run, Watch};
pub(crate) use shared_parts::SharedParts;
pub(crate) use timeline::Timeline;
pub(crate) use tune::{Range, Scope, Tuning};
pub(crate) use workers::{Meters, Workers};

use run::StreamShared;

use crate::{
    codec::Decoder,
    dataset::{Dataset, Field, FieldKind},
    error::{Error, Result},
    sampler::{LastBatch, LoaderState, Sampler, Schedule, Shard},
    source::Cache,
    sys::rows::{Pool, Rows},
    tensor::Tensor,
    transform::{Lowered, LoweredVolume},
    types::{DType, Layout},
};

/// Everything a loader's streams share.
#[derive(Debug)]
pub(crate) struct LoaderShared {
    pub(crate) dataset: Arc<dyn Dataset>,
    pub(crate) shard: Shard,
    pub(crate) batch_size: NonZeroUsize,
    pub(crate) last_batch: LastBatch,
    pub(crate) fields: Vec<FieldRows>,
    pub(crate) limits: Limits,
    pub(crate) bad: BadRows,
    pub(crate) workers: Workers,
    /// What is on `auto`.
    pub(crate) tuning: Tuning,
    /// Whether streams write down where their time goes.
    pub(crate) accounting: bool,
    pub(crate) io: IoRuntime,
    /// Where bytes of a remote store are kept near.
    pub(crate) cache: Option<Arc<Cache>>,
    /// Parts that records share, for all streams.
    pub(crate) shared_parts: SharedParts,
}

/// Which record comes when, and the state that says so.
#[derive(Clone, Debug)]
pub(crate) struct RecordOrder {
    pub(crate) sampler: Arc<dyn Sampler>,
    /// At the beginning of epoch 0; batches carry it with their own place.
    pub(crate) state: LoaderState,
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
}

/// What happens to rows whose sample is bad. The count that ends a run is kept by the stream, in batch order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadRows {
    Stop,
    Skip,
    Substitute,
}

/// One field of a batch: its shape and where its memory comes from.
#[derive(Debug)]
pub(crate) struct FieldRows {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) dtype: DType,
    /// Of a field of bytes: the most in a row. It has no tensor, and no memory of its own in `pool`.
    pub(crate) most: Option<usize>,
    /// Rows that the workers write.
    pub(crate) pool: Pool,
    /// Where a field that is written on the host is copied to when its batch is whole: labels of batches on a GPU.
    pub(crate) upload: Option<Pool>,
    /// How rows of volumes are made, by the thread that reads them.
    pub(crate) volume: Option<LoweredVolume>,
}

/// Memory for the rows of a batch.
struct BatchRows {
    /// For the workers, one for each field.
    rows: Vec<Rows>,
    /// For the copies at the end, likewise.
    uploads: Vec<Option<Rows>>,
}

impl FieldRows {
    /// Bytes of a row of this shape, which [`lower_field`] gave: it has refused those that are no number.
    pub(crate) fn row_bytes(shape: &[usize], dtype: DType) -> usize {
        dtype.len_bytes(shape).expect("`lower_field` saw that it is a number")
    }

    /// Memory for `rows` rows of a batch, and for their copy. `None`: a GPU still reads what came back.
    fn take(&self, rows: usize) -> Result<Option<(Rows, Option<Rows>)>> {
        let bytes = Self::row_bytes(&self.shape, self.dtype);
        let cut = |pool: &Pool| -> Result<Option<Rows>> {
            let full = pool.len_bytes().checked_div(bytes).unwrap_or(rows);
            Ok(pool.try_take(full, bytes)?.map(|mut whole| whole.split_to(rows)))
        };
        let Some(taken) = cut(&self.pool)? else { return Ok(None) };
        match &self.upload {
            None => Ok(Some((taken, None))),
            Some(pool) => Ok(cut(pool)?.map(|upload| (taken, Some(upload)))),
        }
    }

    /// The finished tensor. No copy, but for the small fields of a batch on a GPU.
    fn seal(&self, rows: Rows, upload: Option<Rows>) -> Result<Tensor> {
        let shape = std::iter::once(rows.rows()).chain(self.shape.iter().copied()).collect();
        let rows = match upload {
            Some(mut on_device) => {
                on_device.upload(&rows)?;
                on_device
            }
            None => rows,
        };
        Ok(Tensor::new(shape, self.dtype, rows.freeze()))
    }
}

impl LoaderShared {
    /// Memory for a batch of `rows` rows, or nothing when one field has to wait.
    fn take_rows(&self, rows: usize) -> Result<Option<BatchRows>> {
        let mut batch = BatchRows { rows: Vec::new(), uploads: Vec::new() };
        for field in &self.fields {
            let Some((rows, upload)) = field.take(rows)? else { return Ok(None) };
            batch.rows.push(rows);
            batch.uploads.push(upload);
        }
        Ok(Some(batch))
    }

    /// Lets a stream have `to` batches with rows, as far as there is memory; says how many. Waits until the trainer has
    /// taken the others.
    async fn set_prefetch(&self, stream: &StreamShared, to: usize) -> usize {
        let keep = |batches: usize| self.fields.iter().for_each(|field| field.pool.set_most(batches + 1));
        if to > stream.row_permits.size() {
            let reached = self.tuning.hold(to);
            keep(reached);
            stream.row_permits.grow_to(reached);
        } else {
            stream.row_permits.shrink_to(to).await;
            keep(to);
            self.tuning.hold(to);
        }
        stream.row_permits.size()
    }

    /// The arithmetic of an epoch of `len` positions that starts at `position`.
    pub(crate) fn schedule(&self, len: u64, position: u64) -> Schedule {
        Schedule::new(len, position, self.batch_size, self.shard, self.last_batch)
    }
}

/// Shape and type of the rows that one field gives, and how they are made.
#[derive(Debug)]
pub(crate) struct LoweredField {
    pub(crate) shape: Vec<usize>,
    pub(crate) dtype: DType,
    /// Of an image.
    pub(crate) image: Option<Lowered>,
    /// Of a volume.
    pub(crate) volume: Option<LoweredVolume>,
}

/// Fits the transform to one field.
pub(crate) fn lower_field(
    field: &Field,
    transform: &crate::transform::Transform,
    dtype: DType,
    layout: Layout,
) -> Result<LoweredField> {
    let plain = |shape, dtype| LoweredField { shape, dtype, image: None, volume: None };
    let lowered = match &field.kind {
        kind @ FieldKind::Image { .. } => {
            let lowered =
                if field.mask { transform.lower_mask(kind, layout)? } else { transform.lower(kind, dtype, layout)? };
            let row = lowered.row();
            let (h, w, c) = (row.height as usize, row.width as usize, row.channels as usize);
            let shape = match row.layout {
                Layout::Nchw => vec![c, h, w],
                Layout::Nhwc => vec![h, w, c],
            };
            LoweredField { image: Some(lowered.clone()), ..plain(shape, row.dtype) }
        }
        kind @ FieldKind::Volume { .. } => {
            let lowered = transform.lower_volume(kind, dtype)?;
            LoweredField { volume: Some(lowered.clone()), ..plain(lowered.shape().to_vec(), lowered.dtype()) }
        }
        FieldKind::Label => plain(Vec::new(), DType::I64),
        FieldKind::Array { dtype, shape } => plain(shape.clone(), *dtype),
        // Rows without width: its values travel with the samples.
        FieldKind::Bytes { .. } => plain(vec![0], DType::U8),
    };
    if lowered.dtype.len_bytes(&lowered.shape).is_none() {
        let what = format!("rows of shape {:?} of {} are more than memory can hold", lowered.shape, lowered.dtype);
        return Err(Error::config(what).hint("look at the dataset's schema, or make the rows smaller"));
    }
    Ok(lowered)
}

/// Records in a job, so that one takes about a millisecond.
#[derive(Debug)]
pub(crate) struct ChunkSize {
    /// Mean cost of a record, nanoseconds; moving average over jobs.
    cost: std::sync::atomic::AtomicU64,
    /// Bound on records, so that the encoded bytes of a job stay within [`READ_BYTES`] or one record.
    most: usize,
}

/// Encoded bytes that one decode thread holds, unless a single record is larger.
pub(crate) const READ_BYTES: u64 = 4 << 20;

impl ChunkSize {
    /// Long enough that handing a job over (a few microseconds) does not count, short enough that the cores finish a
    /// batch together.
    const TARGET_NANOS: u64 = 700_000;

    /// A first guess from what the rows and records look like.
    pub(crate) fn new(dataset: &Arc<dyn Dataset>, fields: &[FieldRows]) -> Self {
        let row = |f: &FieldRows| FieldRows::row_bytes(&f.shape, f.dtype) / f.dtype.size();
        let values = fields.iter().map(row).fold(0, usize::saturating_add);
        let encoded = |f: &Field| matches!(f.kind, FieldKind::Image { size: None, .. });
        let decodes = dataset.schema().fields.iter().any(encoded);
        // 0.3 ns for each value written; an image of unknown size is taken for a photograph until the first came back.
        let guess = if decodes { Self::TARGET_NANOS } else { (values as u64).saturating_mul(3) / 10 };
        let most = READ_BYTES.checked_div(dataset.largest_read()).map_or(usize::MAX, |n| n.max(1) as usize);
        Self { cost: guess.max(1).into(), most }
    }

    fn get(&self, batch: usize) -> usize {
        let cost = self.cost.load(std::sync::atomic::Ordering::Relaxed).max(1);
        usize::try_from(Self::TARGET_NANOS / cost).unwrap_or(batch).clamp(1, batch.max(1)).min(self.most)
    }

    fn learn(&self, took: std::time::Duration, records: usize) {
        let Some(each) = (took.as_nanos() as u64).checked_div(records as u64) else { return };
        // A lost update between threads only delays the average.
        let old = self.cost.load(std::sync::atomic::Ordering::Relaxed);
        self.cost.store((old * 7 + each) / 8, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Takes the device memory of the batches that may be ahead.
pub(crate) fn fill(fields: &[FieldRows], batches: usize) -> Result<()> {
    fields
        .iter()
        .flat_map(|field| [Some(&field.pool), field.upload.as_ref()])
        .flatten()
        .try_for_each(|pool| pool.fill(batches))
}

/// Refuses a decoder that promises more classes than a set can hold.
pub(crate) fn check_decoder(decoder: &dyn Decoder) -> Result<()> {
    match decoder.classes().len() {
        0 => Err(Error::config(format!("decoder {} has no worker classes", decoder.name()))),
        1..=32 => Ok(()),
        n => Err(Error::config(format!("decoder {} has {n} worker classes", decoder.name())).hint("use 32 at most")),
    }
}
