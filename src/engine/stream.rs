//! What the tasks and jobs of one stream share, and what they hand over to its receiving end.

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
    tune::{Asking, Turn},
};

/// What the tasks and jobs of a stream share.
#[derive(Debug)]
pub(super) struct StreamShared {
    pub(super) loader: Arc<LoaderShared>,
    pub(super) gate: Gate,
    /// What decode threads read themselves.
    pub(super) local: Arc<LocalReads>,
    pub(super) recorder: Recorder,
    /// Which class of decode threads made how many rows.
    pub(super) decoded_by: DecodedBy,
    /// What the requests to remote stores did.
    pub(super) requests: RequestRecorder,
    /// Reads within the stream's limit.
    pub(super) reader: Reader,
    /// What the cache did.
    pub(super) cache_recorder: CacheRecorder,
    /// What the cache of decoded samples did.
    pub(super) decoded_recorder: CacheRecorder,
    /// Says when a record comes again.
    pub(super) sampler: Arc<dyn Sampler>,
    pub(super) started: Instant,
    /// Every batch of the plan has its seat. Without it a closed channel means that planning broke off.
    pub(super) planned: AtomicBool,
    /// Batches that may own rows.
    pub(super) row_permits: RowPermits,
    /// Batches that are being made; where rows are large it bounds them.
    pub(super) run_ahead: RunAhead,
    /// Some of these permits were given up when a GPU had no memory left.
    pub(super) gave_up: AtomicBool,
    /// Batches whose bytes may be asked for; see `RAMP` in `fetch.rs`.
    pub(super) ramp: Semaphore,
    /// Permits for encoded bytes that are read ahead, filled by the fetcher.
    pub(super) encoded: Arc<Semaphore>,
    /// Batches that are whole and not taken.
    pub(super) finished: AtomicUsize,
    /// Who decodes first.
    pub(super) precedence: Precedence,
    /// Told when the trainer takes a batch.
    pub(super) handed_over: Notify,
    /// When the trainer asked, and what it waited for.
    pub(super) asking: Mutex<Asking>,
    /// What was changed while it ran.
    pub(super) tuned: Mutex<TuneLog>,
    /// Its place among the loader's streams.
    pub(super) turn: Turn,
}

/// What a stream's tasks and jobs tell of themselves.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// Since the stream began.
    pub(crate) elapsed: Duration,
    pub(crate) stages: Vec<StageReport>,
    pub(crate) decoded_by: BTreeMap<&'static str, u64>,
    /// `None` where the dataset makes none.
    pub(crate) requests: Option<RequestReport>,
    /// `None` where there is none.
    pub(crate) cache: Option<CacheReport>,
    /// The same of decoded samples.
    pub(crate) decoded_cache: Option<CacheReport>,
    /// What is on `auto`, and what became of it.
    pub(crate) autotune: TuneReport,
}

/// Looks at a stream from outside, and keeps nothing of it alive.
#[derive(Clone, Debug)]
pub(crate) struct Watch(Weak<StreamShared>);

impl Watch {
    /// `None` when the stream and all its jobs are gone.
    pub(crate) fn facts(&self) -> Option<Facts> {
        self.0.upgrade().map(|shared| shared.facts())
    }
}

impl StreamShared {
    /// The stream is gone: no read begins once this returned, and who waits for something of it wakes.
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
            autotune: loader.tuning.report(&self.turn, self.row_permits.size(), &self.tuned()),
        }
    }

    pub(super) fn asking(&self) -> MutexGuard<'_, Asking> {
        // Each section leaves the figures whole, so a panic elsewhere cannot have broken them.
        self.asking.lock().unwrap_or_else(PoisonError::into_inner)
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
    /// How it came about; errors have none.
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

/// A batch, and how it came about; errors have no timeline.
pub(crate) type HandedOver = (Result<Batch>, Option<Box<Timeline>>);
