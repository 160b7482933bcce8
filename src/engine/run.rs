//! One stream's life: started by a loader, polled by its user, ended by its last batch, an error, or a drop.

use std::{
    future::Future,
    ops::Range,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Instant,
};

use infeed_core::{
    error::{Error, ErrorKind},
    report::{CacheRecorder, DecodedBy, Recorder, RequestRecorder, Stage},
};
use infeed_data::Dataset;
use infeed_store::Reader;
use tokio::{
    sync::{Notify, Semaphore, mpsc},
    task::AbortHandle,
};

use super::{
    admit, fetch,
    gate::Gate,
    loader_shared::LoaderShared,
    local_reads,
    permits::{RowPermits, UNIT, units},
    plan::{Planner, RecordOrder},
    precedence::Precedence,
    run_ahead::RunAhead,
    stream::{Facts, HandedOver, Sealed, Seat, StreamShared, Watch},
    tune,
    workers::Workers,
};

/// How full the queues of a stream are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Levels {
    /// Complete batches that were not taken, and the limit.
    pub(crate) finished: (u64, u64),
    /// Batches that were begun and not taken.
    pub(crate) ahead: (u64, u64),
    /// Jobs that wait for a decode thread, those of other streams of the loader included.
    pub(crate) jobs: u64,
    /// Encoded bytes in memory or on their way; `None` if the decode threads read.
    pub(crate) encoded: Option<(u64, u64)>,
}

/// The receiving end of a stream.
#[derive(Debug)]
pub(crate) struct Run {
    stream: Arc<StreamShared>,
    /// They live as long as the loader or one of its streams.
    workers: Arc<Workers>,
    seats: mpsc::Receiver<Seat>,
    head: Option<Seat>,
    admit: AbortHandle,
    /// The task that watches the reads of decode threads.
    watch: AbortHandle,
    /// The task that adjusts settings on `auto`.
    tuner: Option<AbortHandle>,
}

impl Run {
    pub(crate) fn start(
        loader: &Arc<LoaderShared>,
        workers: &Arc<Workers>,
        order: RecordOrder,
        epochs: Range<u64>,
        position: u64,
    ) -> Self {
        let requests = RequestRecorder::default();
        let start = loader.tuning.join(|active| {
            workers.set_active(active);
        });
        let stream = Arc::new(StreamShared {
            loader: Arc::clone(loader),
            gate: Gate::default(),
            local: Arc::default(),
            recorder: if loader.accounting { Recorder::default() } else { Recorder::off() },
            decoded_by: DecodedBy::new(workers.classes().iter().map(|class| class.name)),
            reader: match &loader.reader {
                Some(shared) => shared.with_recorder(requests.clone()),
                None => Reader::new(loader.limits.requests, requests.clone()),
            }
            .verifying(loader.limits.verify)
            .comparing(loader.io.hash_threads()),
            requests,
            cache_recorder: CacheRecorder::default(),
            decoded_recorder: CacheRecorder::default(),
            sampler: Arc::clone(&order.sampler),
            started: Instant::now(),
            planned: AtomicBool::new(false),
            row_permits: RowPermits::new(start.prefetch()),
            run_ahead: RunAhead::default(),
            gave_up: AtomicBool::new(false),
            ramp: Semaphore::new(fetch::first_batches(loader.batch_size)),
            encoded: Arc::new(Semaphore::new(0)),
            finished: AtomicUsize::new(0),
            precedence: Precedence::new(loader.first),
            handed_over: Notify::new(),
            poll_times: Mutex::default(),
            tuned: Mutex::default(),
            start,
        });
        let (announce, seats) = mpsc::channel(loader.limits.seats);
        let planner = Planner::new(Arc::clone(loader), order, epochs, position);
        let admit = loader.io.spawn(admit::admit(Arc::clone(&stream), Arc::clone(workers), planner, announce));
        let watch = loader.io.spawn(local_reads::watch(Arc::clone(&stream.local)));
        let follows = loader.tuning.follows();
        let tuner = follows.then(|| loader.io.spawn(tune::tune(Arc::clone(&stream), Arc::clone(workers), start.id())));
        Self { stream, workers: Arc::clone(workers), seats, head: None, admit, watch, tuner }
    }

    /// The next batch in plan order. `None` after the last. Cancel safe: a seat that was taken is kept.
    pub(crate) fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<Option<HandedOver>> {
        if self.head.is_none() {
            let Some(seat) = ready!(self.seats.poll_recv(cx)) else {
                let ended = self.stream.planned.load(Ordering::Acquire);
                return Poll::Ready((!ended).then(|| (Err(broken_off()), None)));
            };
            self.head = Some(seat);
        }
        let Some(head) = self.head.as_mut() else { return Poll::Ready(None) };
        let Poll::Ready(sealed) = std::pin::Pin::new(head).poll(cx) else {
            self.stream.run_ahead.asked(true);
            if self.stream.precedence.waits() {
                self.workers.urge();
            }
            return Poll::Pending;
        };
        self.stream.run_ahead.asked(false);
        self.head = None;
        self.stream.ramp.add_permits(fetch::RAMP);
        let Ok(Sealed { result, permit, timeline, span }) = sealed else {
            return Poll::Ready(Some((Err(broken_off()), None)));
        };
        if let Some(timeline) = &timeline {
            let left = self.stream.finished.fetch_sub(1, Ordering::Relaxed).saturating_sub(1);
            if self.stream.precedence.got(left) {
                self.workers.urge();
            }
            self.stream.poll_times().got(timeline.ready());
        }
        // From here on the batch does not count in the budget, and its span ends.
        drop((permit, span));
        self.stream.handed_over.notify_waiters();
        Poll::Ready(Some((result, timeline)))
    }

    pub(crate) fn facts(&self) -> Facts {
        self.stream.facts()
    }

    pub(crate) fn watch(&self) -> Watch {
        self.stream.watch()
    }

    /// Whether it measures where its time goes.
    pub(crate) fn accounts(&self) -> bool {
        self.stream.loader.accounting
    }

    /// The rank of this stream.
    pub(crate) fn rank(&self) -> u32 {
        self.stream.loader.shard.rank()
    }

    /// The trainer polls for a batch. Returns how full the queues are, if the stream measures it.
    pub(crate) fn asks(&self) -> Option<Levels> {
        let stream = &self.stream;
        let limits = stream.loader.limits;
        let finished = stream.finished.load(Ordering::Relaxed) as u64;
        let may_own_rows = stream.row_permits.size() as u64;
        stream.poll_times().asks(Instant::now(), finished, may_own_rows);
        if !self.accounts() {
            return None;
        }
        let ahead = self.seats.len() as u64 + u64::from(self.head.is_some());
        let fetches = stream.loader.reads_ahead();
        let encoded = fetches.then(|| {
            let all = u64::from(units(limits.encoded));
            let free = stream.encoded.available_permits() as u64;
            (all.saturating_sub(free) * UNIT, limits.encoded)
        });
        let most_ahead = if fetches { limits.seats as u64 } else { may_own_rows };
        Some(Levels {
            finished: (finished, may_own_rows),
            ahead: (ahead, most_ahead),
            jobs: self.workers.waiting() as u64,
            encoded,
        })
    }

    /// The dataset of the batches.
    pub(crate) fn dataset(&self) -> &dyn Dataset {
        &*self.stream.loader.dataset
    }

    pub(crate) fn started(&self) -> Instant {
        self.stream.started
    }

    /// Ends all work of this stream: no read begins after this returned. Has no effect the second time.
    pub(crate) fn cancel(&mut self) {
        self.stream.close();
        self.admit.abort();
        self.watch.abort();
        self.tuner.iter().for_each(AbortHandle::abort);
        self.stream.loader.tuning.leave(self.stream.start.id());
        self.seats.close();
        self.workers.forget(&self.stream);
    }
}

/// The error if a promised batch does not arrive, or if the plan stops before its end: a task has panicked.
fn broken_off() -> Error {
    Error::new(ErrorKind::Internal, "planning a batch or putting it together panicked")
        .at_stage(Stage::Plan)
        .with_hint("see the panic's message on stderr; please report it unless the sampler or dataset is yours")
}

impl Drop for Run {
    fn drop(&mut self) {
        self.cancel();
    }
}
