//! State that the tasks and jobs of one stream share, and the channel to its receiving end.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicUsize},
    },
    time::{Duration, Instant},
};

use infeed_core::{
    error::{Error, Result},
    report::{
        CacheRecorder, CacheReport, DecodedBy, Recorder, RequestRecorder, RequestReport, StageReport, TuneLog,
        TuneReport,
    },
};
use infeed_data::sampler::Sampler;
use infeed_store::Reader;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tracing::Span;

use super::{
    batch::Batch,
    gate::Gate,
    loader_shared::LoaderShared,
    local_reads::LocalReads,
    permits::RowPermits,
    precedence::Precedence,
    run_ahead::RunAhead,
    timeline::Timeline,
    tune::{PollTimes, StreamStart},
};

/// State that the tasks and jobs of a stream share.
#[derive(Debug)]
pub(super) struct StreamShared {
    pub(super) loader: Arc<LoaderShared>,
    pub(super) gate: Gate,
    /// Reads on decode threads.
    pub(super) local: Arc<LocalReads>,
    pub(super) recorder: Recorder,
    /// Number of rows that each class of decode threads made.
    pub(super) decoded_by: DecodedBy,
    /// Statistics of the requests to remote stores.
    pub(super) requests: RequestRecorder,
    /// Reads within the stream's limit.
    pub(super) reader: Reader,
    /// Statistics of the cache.
    pub(super) cache_recorder: CacheRecorder,
    /// Statistics of the cache of decoded samples.
    pub(super) decoded_recorder: CacheRecorder,
    /// Computes when a record comes again, for the cache.
    pub(super) sampler: Arc<dyn Sampler>,
    pub(super) started: Instant,
    /// Whether every batch of the plan has its seat. If not, a closed channel means that planning was aborted.
    pub(super) planned: AtomicBool,
    /// Batches that may own rows.
    pub(super) row_permits: RowPermits,
    /// Limit of the batches being made, if rows are large.
    pub(super) run_ahead: RunAhead,
    /// Whether some of the row permits were given up because a GPU had no memory left.
    pub(super) gave_up: AtomicBool,
    /// Permits for batches whose reads may start; see `RAMP` in `fetch.rs`.
    pub(super) ramp: Semaphore,
    /// Permits for encoded bytes that are read ahead, filled by the fetcher.
    pub(super) encoded: Arc<Semaphore>,
    /// Complete batches that the trainer has not taken.
    pub(super) finished: AtomicUsize,
    /// Which class decodes first.
    pub(super) precedence: Precedence,
    /// Notified when the trainer takes a batch.
    pub(super) handed_over: Notify,
    /// When the trainer polled, and for what it waited.
    pub(super) poll_times: Mutex<PollTimes>,
    /// Changes of workers and prefetch during the run.
    pub(super) tuned: Mutex<TuneLog>,
    /// Its number among the loader's streams, and its first values of workers and prefetch.
    pub(super) start: StreamStart,
}

/// Numbers of a stream's tasks and jobs, for its report.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// Since the stream began.
    pub(crate) elapsed: Duration,
    pub(crate) stages: Vec<StageReport>,
    pub(crate) decoded_by: BTreeMap<&'static str, u64>,
    /// `None` if the dataset makes no requests.
    pub(crate) requests: Option<RequestReport>,
    /// `None` if there is no cache.
    pub(crate) cache: Option<CacheReport>,
    /// The same of decoded samples.
    pub(crate) decoded_cache: Option<CacheReport>,
    /// Settings on `auto`, and their changes.
    pub(crate) autotune: TuneReport,
}

/// A weak handle to a stream, for monitors.
#[derive(Clone, Debug)]
pub(crate) struct Watch(Weak<StreamShared>);

impl Watch {
    /// `None` if the stream was dropped and all its jobs have ended.
    pub(crate) fn facts(&self) -> Option<Facts> {
        self.0.upgrade().map(|shared| shared.facts())
    }
}

impl StreamShared {
    /// Ends the stream: no read begins after this returned, and all waits of the stream end.
    pub(super) fn close(&self) {
        self.gate.close();
        self.local.close();
        self.loader.shared_parts.wake();
    }

    pub(super) fn watch(self: &Arc<Self>) -> Watch {
        Watch(Arc::downgrade(self))
    }

    pub(super) fn facts(&self) -> Facts {
        let (loader, now) = (&self.loader, Instant::now());
        Facts {
            elapsed: now.saturating_duration_since(self.started),
            stages: self.recorder.stages(),
            decoded_by: self.decoded_by.report(),
            requests: loader.reads_ahead().then(|| self.requests.report(now)),
            cache: loader.cache.as_ref().map(|cache| cache.report(&self.cache_recorder)),
            decoded_cache: loader.decoded.as_ref().map(|decoded| decoded.report(&self.decoded_recorder)),
            autotune: loader.tuning.report(&self.start, self.row_permits.size(), &self.tuned()),
        }
    }

    pub(super) fn poll_times(&self) -> MutexGuard<'_, PollTimes> {
        // Each critical section leaves the state whole, so a panic elsewhere cannot have broken it.
        self.poll_times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn tuned(&self) -> MutexGuard<'_, TuneLog> {
        self.tuned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A sealed batch on its way to the stream, and the permit for its rows.
#[derive(Debug)]
pub(super) struct Sealed {
    pub(super) result: Result<Batch>,
    pub(super) permit: OwnedSemaphorePermit,
    /// The history of the batch; errors have none.
    pub(super) timeline: Option<Box<Timeline>>,
    /// `infeed.batch`
    pub(super) span: Span,
}

impl Sealed {
    /// No batch.
    pub(super) fn failed(error: Error, permit: OwnedSemaphorePermit) -> Self {
        Self { result: Err(error), permit, timeline: None, span: Span::none() }
    }
}

/// A seat in the stream's channel: the batch comes later, the order is fixed now.
pub(super) type Seat = oneshot::Receiver<Sealed>;

/// A batch with its history; errors have no timeline.
pub(crate) type HandedOver = (Result<Batch>, Option<Box<Timeline>>);
