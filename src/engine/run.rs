//! One stream's life: started by a loader, polled by its user, ended by its last batch, an error, or a drop.

use std::{
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use std::future::Future;

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    task::AbortHandle,
};
use tracing::Span;

use super::{
    Batch, LoaderShared, RecordOrder, Timeline, admit, fetch,
    permits::RowPermits,
    plan::Planner,
    tune::{self, Asking, Turn},
};
use crate::{
    dataset::Dataset,
    error::{Error, ErrorKind, Result},
    report::{
        CacheRecorder, CacheReport, Recorder, RequestRecorder, RequestReport, Stage, StageReport, TuneLog, TuneReport,
    },
    sampler::Sampler,
    source::Reader,
};

/// Open while the stream lives. Whoever begins a read holds the gate while the read *begins*, so that once
/// [`close`](Gate::close) returned, no read begins; one in progress may end.
#[derive(Debug, Default)]
pub(super) struct Gate {
    closed: RwLock<bool>,
}

impl Gate {
    /// `None` when the stream is gone.
    pub(super) fn pass(&self) -> Option<RwLockReadGuard<'_, bool>> {
        let guard = self.closed.read().unwrap_or_else(PoisonError::into_inner);
        (!*guard).then_some(guard)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.pass().is_none()
    }

    /// Waits for reads that are just beginning: for local files the opening, for requests one poll.
    pub(super) fn close(&self) {
        *self.closed.write().unwrap_or_else(PoisonError::into_inner) = true;
    }
}

/// What the tasks and jobs of a stream share.
#[derive(Debug)]
pub(super) struct StreamShared {
    pub(super) loader: Arc<LoaderShared>,
    pub(super) gate: Gate,
    pub(super) recorder: Recorder,
    /// What the requests to remote stores did.
    pub(super) requests: RequestRecorder,
    /// Reads within the stream's limit.
    pub(super) reader: Reader,
    /// What the cache did.
    pub(super) cached: CacheRecorder,
    /// Says when a record comes again.
    pub(super) sampler: Arc<dyn Sampler>,
    pub(super) started: Instant,
    /// Every batch of the plan has its seat. Without it a closed channel means that planning broke off.
    pub(super) planned: AtomicBool,
    /// Batches that may own rows.
    pub(super) row_permits: RowPermits,
    /// Some of these places were given up when a GPU had no memory left.
    pub(super) gave_up: AtomicBool,
    /// Batches whose bytes may be asked for; see [`RAMP`](super::fetch::RAMP).
    pub(super) ramp: Semaphore,
    /// Room for encoded bytes of remote reads, filled by the fetcher.
    pub(super) encoded: Arc<Semaphore>,
    /// Batches that are whole and not taken.
    pub(super) finished: AtomicUsize,
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
    /// `None` where the dataset makes none.
    pub(crate) requests: Option<RequestReport>,
    /// `None` where there is none.
    pub(crate) cache: Option<CacheReport>,
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
    fn facts(&self) -> Facts {
        let (loader, now) = (&self.loader, Instant::now());
        Facts {
            elapsed: now.saturating_duration_since(self.started),
            stages: self.recorder.stages(),
            requests: loader.dataset.needs_fetch().then(|| self.requests.report(now)),
            cache: loader.cache.as_ref().map(|cache| cache.report(&self.cached)),
            autotune: loader.tuning.report(&self.turn, self),
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

/// How full the queues of a stream are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Levels {
    /// Batches that are whole and not taken, and the most there can be.
    pub(crate) finished: (u64, u64),
    /// Batches that were begun and not taken.
    pub(crate) ahead: (u64, u64),
    /// Jobs that wait for a decode thread, those of other streams of the loader included.
    pub(crate) jobs: u64,
    /// Encoded bytes in memory or on their way; `None` where the decode threads read.
    pub(crate) encoded: Option<(u64, u64)>,
}

/// A sealed batch on its way to the stream, and the permit for its rows.
#[derive(Debug)]
pub(super) struct Sealed {
    pub(super) result: Result<Batch>,
    pub(super) permit: OwnedSemaphorePermit,
    /// How it came about; errors have none.
    pub(super) way: Option<Box<Timeline>>,
    /// `infeed.batch`
    pub(super) span: Span,
}

impl Sealed {
    /// No batch.
    pub(super) fn failed(error: Error, permit: OwnedSemaphorePermit) -> Self {
        Self { result: Err(error), permit, way: None, span: Span::none() }
    }
}

/// A seat in the stream's channel: the batch comes later, the order is fixed now.
pub(super) type Seat = oneshot::Receiver<Sealed>;

/// A batch, and how it came about; errors have no way.
pub(crate) type HandedOver = (Result<Batch>, Option<Box<Timeline>>);

/// The receiving end of a stream.
#[derive(Debug)]
pub(crate) struct Run {
    shared: Arc<StreamShared>,
    seats: mpsc::Receiver<Seat>,
    head: Option<Seat>,
    admit: AbortHandle,
    /// Adjusts what is on `auto`.
    tuner: Option<AbortHandle>,
}

impl Run {
    pub(crate) fn start(loader: &Arc<LoaderShared>, order: RecordOrder, epochs: Range<u64>, position: u64) -> Self {
        let requests = RequestRecorder::default();
        let turn = loader.tuning.join(&loader.workers);
        let shared = Arc::new(StreamShared {
            loader: Arc::clone(loader),
            gate: Gate::default(),
            recorder: if loader.accounting { Recorder::default() } else { Recorder::off() },
            reader: Reader::new(loader.limits.requests, requests.clone()),
            requests,
            cached: CacheRecorder::default(),
            sampler: Arc::clone(&order.sampler),
            started: Instant::now(),
            planned: AtomicBool::new(false),
            row_permits: RowPermits::new(turn.prefetch()),
            gave_up: AtomicBool::new(false),
            ramp: Semaphore::new(fetch::first_batches(loader.batch_size)),
            encoded: Arc::new(Semaphore::new(0)),
            finished: AtomicUsize::new(0),
            asking: Mutex::default(),
            tuned: Mutex::default(),
            turn,
        });
        let (announce, seats) = mpsc::channel(loader.limits.seats);
        let planner = Planner::new(Arc::clone(loader), order, epochs, position);
        let admit = loader.io.spawn(admit::admit(Arc::clone(&shared), planner, announce));
        let follows = loader.tuning.follows();
        let tuner = follows.then(|| loader.io.spawn(tune::tune(Arc::clone(&shared), turn.id())));
        Self { shared, seats, head: None, admit, tuner }
    }

    /// The next batch in plan order. `None` after the last. Cancel safe: a seat that was taken is kept.
    pub(crate) fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<Option<HandedOver>> {
        if self.head.is_none() {
            let Some(seat) = ready!(self.seats.poll_recv(cx)) else {
                let ended = self.shared.planned.load(Ordering::Acquire);
                return Poll::Ready((!ended).then(|| (Err(broken_off()), None)));
            };
            self.head = Some(seat);
        }
        let Some(head) = self.head.as_mut() else { return Poll::Ready(None) };
        let sealed = ready!(std::pin::Pin::new(head).poll(cx));
        self.head = None;
        self.shared.ramp.add_permits(fetch::RAMP);
        let Ok(Sealed { result, permit, way, span }) = sealed else {
            return Poll::Ready(Some((Err(broken_off()), None)));
        };
        if let Some(way) = &way {
            self.shared.finished.fetch_sub(1, Ordering::Relaxed);
            self.shared.asking().got(way.ready());
        }
        // Here a batch that is handed over leaves the budget, and its span ends.
        drop((permit, span));
        Poll::Ready(Some((result, way)))
    }

    pub(crate) fn facts(&self) -> Facts {
        self.shared.facts()
    }

    pub(crate) fn watch(&self) -> Watch {
        Watch(Arc::downgrade(&self.shared))
    }

    /// Whether it writes down where its time goes.
    pub(crate) fn accounts(&self) -> bool {
        self.shared.loader.accounting
    }

    /// This process among all.
    pub(crate) fn rank(&self) -> u32 {
        self.shared.loader.shard.rank()
    }

    /// The trainer asks for a batch. Says how full the queues are now, if anybody keeps it.
    pub(crate) fn asks(&self) -> Option<Levels> {
        let (shared, limits) = (&self.shared, self.shared.loader.limits);
        let finished = shared.finished.load(Ordering::Relaxed) as u64;
        if !self.accounts() {
            shared.asking().asks(Instant::now(), finished, shared.row_permits.size() as u64);
            return None;
        }
        let ahead = self.seats.len() as u64 + u64::from(self.head.is_some());
        let (room, fetches) = (shared.row_permits.size() as u64, shared.loader.dataset.needs_fetch());
        let encoded = fetches.then(|| {
            let all = u64::from(fetch::units(limits.encoded));
            (all.saturating_sub(shared.encoded.available_permits() as u64) * fetch::UNIT, limits.encoded)
        });
        shared.asking().asks(Instant::now(), finished, room);
        let (finished, ahead) = ((finished, room), (ahead, if fetches { limits.seats as u64 } else { room }));
        Some(Levels { finished, ahead, jobs: shared.loader.workers.waiting() as u64, encoded })
    }

    /// What the batches are made of.
    pub(crate) fn dataset(&self) -> &dyn Dataset {
        &*self.shared.loader.dataset
    }

    pub(crate) fn started(&self) -> Instant {
        self.shared.started
    }

    /// Ends all work of this stream: no read begins once this returned. Does nothing the second time.
    pub(crate) fn cancel(&mut self) {
        self.shared.gate.close();
        self.admit.abort();
        self.tuner.iter().for_each(AbortHandle::abort);
        self.shared.loader.tuning.leave(self.shared.turn.id());
        self.seats.close();
        self.shared.loader.workers.forget(&self.shared);
    }
}

/// A batch was promised and is not coming, or the plan has no end: some task died.
fn broken_off() -> Error {
    Error::new(ErrorKind::Internal, "planning a batch or putting it together panicked")
        .at_stage(Stage::Plan)
        .hint("see the panic's message on stderr; please report it unless the sampler or dataset is yours")
}

impl Drop for Run {
    fn drop(&mut self) {
        self.cancel();
    }
}
