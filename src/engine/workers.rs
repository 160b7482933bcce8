//! The decode threads: they read and parse what nobody fetched, hand samples to their decoder, and bring rows back.

use std::{
    collections::VecDeque,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::Span;

use super::{
    ChunkSize,
    assembly::Assembly,
    cached::Piece,
    fetch::units,
    queue::{Queue, QueueState, Worked},
    run::{Gate, StreamShared},
    shared_parts,
    timeline::{Asked, CpuMeter, JobTimeline},
};
use crate::{
    codec::{ClassSet, Decoder, Finished, Item, Job, Outcome, Wait, Worker, write_volume},
    dataset::{Dataset, ReadPlan, Sample, Value},
    error::{Error, ErrorKind, Result},
    random::SampleRng,
    report::Stage,
    source::InlineRead,
    sys::rows::Rows,
    transform::Lowered,
};

/// Some rows of one batch on their way to a worker.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) assembly: Arc<Assembly>,
    /// First row of the batch.
    pub(super) first: usize,
    /// One for each field.
    pub(super) rows: Vec<Rows>,
    /// One for each row: bytes that were fetched or lie in the cache; empty when the worker reads from the source.
    pub(super) fetched: Vec<Result<Vec<Piece>>>,
    /// Samples that were read already; empty for a fresh task.
    samples: Vec<Item>,
    /// Who may take it.
    pub(super) allowed: ClassSet,
    /// Classes that have not given its rows back.
    untried: ClassSet,
    /// Room for the fetched bytes, given back when all samples that were cut out of them are decoded.
    encoded: Option<Arc<OwnedSemaphorePermit>>,
    /// Processor time spent on its samples that no stage has yet.
    cpu: Duration,
    /// When it was made, and how its bytes came.
    queued: Instant,
    reading: Reading,
}

/// What the decode threads measure beside what they do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meters {
    /// Where the time of each job goes.
    pub(crate) stages: bool,
    /// Its processor time.
    pub(crate) cpu: bool,
}

/// How the bytes of a job came.
#[derive(Clone, Debug, Default)]
struct Reading {
    /// From a store.
    asked: Option<Asked>,
    /// By a decode thread, in all.
    time: Duration,
    /// The record that took longest, with its time.
    slowest: Option<(u64, Duration)>,
}

impl Task {
    pub(super) fn new(assembly: &Arc<Assembly>, first: usize, rows: Vec<Rows>) -> Self {
        let assembly = Arc::clone(assembly);
        let (allowed, untried) = (ClassSet::ALL, ClassSet::ALL);
        let (fetched, samples, queued, reading) = (Vec::new(), Vec::new(), Instant::now(), Reading::default());
        let (encoded, cpu) = (None, Duration::ZERO);
        Self { assembly, first, rows, fetched, samples, allowed, untried, encoded, cpu, queued, reading }
    }

    pub(super) fn fetched(
        mut self,
        fetched: Vec<Result<Vec<Piece>>>,
        asked: Asked,
        encoded: Arc<OwnedSemaphorePermit>,
    ) -> Self {
        (self.fetched, self.encoded, self.reading.asked) = (fetched, Some(encoded), Some(asked));
        self
    }

    fn len(&self) -> usize {
        self.rows.first().map_or(0, Rows::rows)
    }

    pub(super) fn encoded_bytes(&self) -> u64 {
        self.samples.iter().map(encoded_bytes).sum()
    }
}

/// Bytes of a sample's files.
fn encoded_bytes(item: &Item) -> u64 {
    let bytes = |value: &Value| match value {
        Value::Encoded(bytes) => bytes.len() as u64,
        Value::Channels(files) => files.iter().map(|file| file.len() as u64).sum(),
        _ => 0,
    };
    item.sample.iter().flat_map(|sample| &sample.values).map(bytes).sum()
}

/// The record that most of a job's work was for, if there is one: the only one, or that of most of the bytes.
fn largest(items: &[Item]) -> Option<u64> {
    if let [only] = items {
        return Some(only.record);
    }
    let largest = items.iter().map(|item| (encoded_bytes(item), item.record)).max()?;
    (largest.0 * 2 > items.iter().map(encoded_bytes).sum()).then_some(largest.1)
}

/// The decode threads of a loader. Dropping it lets them end after the job in hand; nobody waits for them.
pub(crate) struct Workers {
    queue: Arc<Queue>,
    dataset: Arc<dyn Dataset>,
    decoder: Arc<dyn Decoder>,
    programs: Arc<[Option<Lowered>]>,
    chunk: Arc<ChunkSize>,
    /// Room for more threads than the decoder's classes have.
    more: Arc<Semaphore>,
    /// What one of them takes of it.
    each: u32,
    meters: Meters,
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers").field("decoder", &self.decoder.name()).finish_non_exhaustive()
    }
}

impl Workers {
    /// Starts all threads of the decoder's classes and waits until each has made its worker.
    ///
    /// Further threads of the class that reads may be started later, as far as `more` goes; each takes `bytes`.
    pub(crate) fn start(
        dataset: &Arc<dyn Dataset>,
        decoder: &Arc<dyn Decoder>,
        programs: &Arc<[Option<Lowered>]>,
        chunk: ChunkSize,
        (more, bytes): (&Arc<Semaphore>, u64),
        meters: Meters,
    ) -> Result<Self> {
        // From here on an early return closes the queue, which ends the threads that did start.
        let workers = Self {
            queue: Arc::new(Queue::new(decoder.classes())),
            dataset: Arc::clone(dataset),
            decoder: Arc::clone(decoder),
            programs: Arc::clone(programs),
            chunk: Arc::new(chunk),
            more: Arc::clone(more),
            each: units(bytes),
            meters,
        };
        let (report, reports) = mpsc::channel::<Result<()>>();
        let mut started = 0;
        for (class, kind) in decoder.classes().iter().enumerate() {
            for n in 0..kind.workers.get() {
                let report = report.clone();
                workers.spawn(class, n, None, move |ready| {
                    let _ = report.send(ready);
                })?;
                started += 1;
            }
        }
        drop(report);
        for _ in 0..started {
            let gone = || Error::new(ErrorKind::Internal, "a decode thread ended while it started");
            reports.recv().map_err(|_| gone())??;
        }
        Ok(workers)
    }

    /// Starts a thread; `ready` is told whether it has its worker. `room` is given back when it ends.
    fn spawn(
        &self,
        class: usize,
        n: usize,
        room: Option<OwnedSemaphorePermit>,
        ready: impl FnOnce(Result<()>) + Send + 'static,
    ) -> Result<()> {
        let kind = &self.decoder.classes()[class];
        let thread = Thread {
            class,
            n,
            depth: kind.batch.get(),
            queue: Arc::clone(&self.queue),
            dataset: Arc::clone(&self.dataset),
            decoder: Arc::clone(&self.decoder),
            programs: Arc::clone(&self.programs),
            chunk: Arc::clone(&self.chunk),
            meters: self.meters,
        };
        let failed = |e| Error::new(ErrorKind::OutOfMemory, "cannot start a decode thread").with_source(e);
        let body = move || {
            crate::sys::threads::yield_to_others();
            match thread.worker() {
                Ok(worker) => {
                    ready(Ok(()));
                    thread.queue.entered(class);
                    // The worker is gone when this returns, and its memory with it.
                    thread.run(worker);
                }
                Err(error) => ready(Err(error)),
            }
            drop(room);
        };
        thread::Builder::new().name(format!("infeed-{}-{n}", kind.name)).spawn(body).map_err(failed)?;
        Ok(())
    }

    /// Lets so many threads of the class that reads take jobs, one at least; more than were built for as far as there is
    /// memory. Says how many may now.
    pub(super) fn set_active(&self, active: usize) -> usize {
        let Some(class) = self.queue.shifts() else { return self.queue.active() };
        let missing = self.queue.set_active(active);
        for (at, n) in missing.iter().enumerate() {
            let room = Arc::clone(&self.more).try_acquire_many_owned(self.each).ok();
            let queue = Arc::clone(&self.queue);
            let n = *n;
            let ready = move |ready: Result<()>| {
                if let Err(error) = ready {
                    tracing::debug!(error = %format!("{error:#}"), "a further decode thread could not be started");
                    queue.not_started(&[n]);
                }
            };
            let started = room.is_some_and(|room| self.spawn(class, n, Some(room), ready).is_ok());
            if !started {
                self.queue.not_started(&missing[at..]);
                break;
            }
        }
        self.queue.active()
    }

    /// What the threads did so far.
    pub(super) fn worked(&self) -> Worked {
        self.queue.worked()
    }

    pub(super) fn submit(&self, task: Task) {
        self.queue.push(task);
    }

    /// How many records the next tasks of a batch of `rows` should hold.
    pub(super) fn chunk(&self, rows: usize) -> usize {
        self.chunk.get(rows)
    }

    /// Jobs that wait for a thread.
    pub(super) fn waiting(&self) -> usize {
        let state = self.queue.lock();
        state.fresh.len() + state.ready.len()
    }

    /// Drops the queued tasks of a stream that is gone, and with them their memory.
    pub(super) fn forget(&self, stream: &Arc<StreamShared>) {
        let gone: [VecDeque<Task>; 2] = {
            let mut state = self.queue.lock();
            let QueueState { fresh, ready, ready_bytes, .. } = &mut *state;
            let gone = [fresh, ready].map(|tasks| {
                let (gone, kept) = tasks.drain(..).partition(|task| Arc::ptr_eq(&task.assembly.stream, stream));
                *tasks = kept;
                gone
            });
            *ready_bytes -= gone[1].iter().map(Task::encoded_bytes).sum::<u64>();
            gone
        };
        // Threads that read may have waited for room.
        self.queue.wake();
        drop(gone);
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// What a decode thread needs. It holds no loader and no stream, so that these can end while it works.
struct Thread {
    class: usize,
    n: usize,
    depth: usize,
    queue: Arc<Queue>,
    dataset: Arc<dyn Dataset>,
    decoder: Arc<dyn Decoder>,
    programs: Arc<[Option<Lowered>]>,
    chunk: Arc<ChunkSize>,
    meters: Meters,
}

/// A job in a worker: where its rows go when it comes back.
struct InWork {
    tag: u64,
    ticket: Ticket,
    /// Classes that have not given its rows back.
    untried: ClassSet,
    /// Time spent on it before it was submitted.
    prepared: Duration,
    /// The part of it that made rows of volumes.
    placed: Duration,
    /// Processor time that no stage has yet.
    cpu: Duration,
    encoded: Option<Arc<OwnedSemaphorePermit>>,
    moments: Moments,
    /// `infeed.decode`
    span: Span,
}

/// When a job was made and taken, and how its bytes came.
struct Moments {
    queued: Instant,
    taken: Instant,
    /// How long its thread had had nothing to do.
    idle: Duration,
    reading: Reading,
}

/// A job that can be submitted.
struct Prepared {
    job: Job,
    ticket: Ticket,
    encoded: Option<Arc<OwnedSemaphorePermit>>,
    placed: Duration,
    /// Processor time that no stage has yet.
    cpu: Duration,
    queued: Instant,
    reading: Reading,
}

/// Fails the batch when the rows of a job do not come back, whatever the reason.
struct Ticket {
    assembly: Option<Arc<Assembly>>,
    first: usize,
}

impl Ticket {
    fn redeem(mut self) -> (Arc<Assembly>, usize) {
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
                    .hint("see the panic's message on stderr; please report it unless the decoder is yours"),
            );
        }
    }
}

impl Thread {
    fn worker(&self) -> Result<Box<dyn Worker>> {
        let make = || self.decoder.worker(self.class, self.n, &self.programs);
        catch_unwind(AssertUnwindSafe(make)).unwrap_or_else(|_| {
            let what = format!("decoder {} panicked while making a worker", self.decoder.name());
            Err(Error::new(ErrorKind::Internal, what))
        })
    }

    /// Runs until the queue is closed. A panic of the worker fails the batches it had in hand and costs the worker;
    /// the thread goes on with a new one.
    fn run(&self, mut worker: Box<dyn Worker>) {
        let mut buffers = Buffers::default();
        loop {
            let mut in_work = Vec::new();
            let serve = || self.serve(&mut *worker, &mut in_work, &mut buffers);
            if catch_unwind(AssertUnwindSafe(serve)).is_ok() {
                return;
            }
            drop(in_work);
            match self.worker() {
                Ok(fresh) => worker = fresh,
                // Without a worker the thread can only refuse: better than a stream that never ends.
                Err(error) => return self.refuse(&error),
            }
        }
    }

    fn refuse(&self, error: &Error) {
        while let Some((task, _)) = self.queue.pop(self.class, self.n, true) {
            task.assembly.fail(error.clone());
        }
    }

    fn serve(&self, worker: &mut dyn Worker, in_work: &mut Vec<InWork>, buffers: &mut Buffers) {
        let mut tag = 0;
        let mut cpu = CpuMeter::start(self.meters.cpu);
        loop {
            let idle = in_work.is_empty();
            let next = if in_work.len() < self.depth { self.queue.pop(self.class, self.n, idle) } else { None };
            let wait = match next {
                Some((task, waited)) => {
                    if task.assembly.stream.gate.is_closed() {
                        continue;
                    }
                    let stream = Arc::clone(&task.assembly.stream);
                    // Time before the stream began is not its hunger.
                    let waited = waited.min(stream.started.elapsed());
                    let now = Instant::now();
                    let waits = &task.assembly.plan.waits;
                    let blocked = now.checked_sub(waited).map_or(Duration::ZERO, |idle| waits.room_within(idle, now));
                    stream.recorder.blocked(Stage::Decode, blocked);
                    stream.recorder.starved(Stage::Decode, waited.saturating_sub(blocked));
                    tag += 1;
                    let (began, untried, fresh) = (Instant::now(), task.untried, task.samples.is_empty());
                    let span = self.span(&task);
                    let _inside = span.enter();
                    if let Some(prepared) = self.prepare(task, tag, buffers, &mut cpu) {
                        if fresh && self.decoder.classes().len() > 1 {
                            self.deal(prepared);
                            continue;
                        }
                        let Prepared { job, ticket, encoded, placed, cpu, queued, reading } = prepared;
                        let moments = Moments { queued, taken: began, idle: waited, reading };
                        let (prepared, span) = (began.elapsed(), span.clone());
                        in_work.push(InWork { tag, ticket, untried, prepared, placed, cpu, encoded, moments, span });
                        worker.submit(job);
                    }
                    Wait::Now
                }
                // Nothing in hand and nothing came: the queue is closed, or there are threads enough.
                None if idle => return,
                None => Wait::Block,
            };
            for finished in worker.poll(wait) {
                let Some(at) = in_work.iter().position(|work| work.tag == finished.job.tag) else { continue };
                self.deliver(in_work.swap_remove(at), finished, &mut cpu);
            }
        }
    }

    /// What a trace shows of a job.
    fn span(&self, task: &Task) -> Span {
        let (class, batch) = (self.decoder.classes()[self.class].name, task.assembly.span.clone());
        let (rows, none) = (task.len(), tracing::field::Empty);
        tracing::trace_span!(
            parent: batch, "infeed.decode", worker = self.n, class, rows, read_us = none, decode_us = none, transform_us = none
        )
    }

    /// Reads and parses what was not fetched, writes the fields that need no decoding. `None`: the stream is gone.
    fn prepare(&self, task: Task, tag: u64, buffers: &mut Buffers, cpu: &mut CpuMeter) -> Option<Prepared> {
        let count = task.len();
        let Task { assembly, first, mut rows, fetched, samples, encoded, cpu: before, queued, mut reading, .. } = task;
        let stream = Arc::clone(&assembly.stream);
        // From here on the batch fails if the rows do not come back.
        let ticket = Ticket { assembly: Some(Arc::clone(&assembly)), first };
        if !samples.is_empty() {
            let job = Job { tag, items: samples, rows };
            let placed = Duration::ZERO;
            return Some(Prepared { job, ticket, encoded, placed, cpu: before, queued, reading });
        }
        let began = Instant::now();
        let mut mark = began;
        let (mut items, mut read) = (Vec::with_capacity(count), 0);
        // Shared parts and volumes keep clocks of their own.
        let mut placed = Duration::ZERO;
        let mut fetched = fetched.into_iter();
        for i in 0..count {
            let record = assembly.plan.records[first + i];
            let rng = assembly.plan.rng(first + i);
            let own = match fetched.next() {
                Some(pieces) => {
                    let Some(bytes) = pieces.map(|pieces| self.collect(&stream, pieces, buffers)).transpose() else {
                        let _ = ticket.redeem();
                        return None;
                    };
                    bytes.and_then(|bytes| bytes).and_then(|bytes| Ok((self.dataset.plan(record, rng)?, bytes)))
                }
                None => {
                    let Some(own) = self.read(record, rng, &stream.gate, buffers, &mut read) else {
                        // The stream is gone: its batch needs no error.
                        let _ = ticket.redeem();
                        return None;
                    };
                    own
                }
            };
            if self.meters.stages {
                let took = mark.elapsed();
                reading.time += took;
                if reading.slowest.is_none_or(|(_, most)| took > most) {
                    reading.slowest = Some((record, took));
                }
            }
            let Some(sample) = own.map(|(plan, bytes)| self.parse(&stream, record, &plan, bytes)).transpose() else {
                let _ = ticket.redeem();
                return None;
            };
            let sample = sample.and_then(|sample| sample).and_then(|mut sample| {
                placed += place_fields(&mut sample, &stream, rng, i, &mut rows)?;
                Ok(sample)
            });
            if self.meters.stages {
                mark = Instant::now();
            }
            let named = |e: Error| e.at_record(record).at_object(self.dataset.object(record));
            items.push(Item { record, rng, sample: sample.map_err(named) });
        }
        let mut cpu = cpu.lap();
        self.queue.work.read(began.elapsed(), cpu);
        if read > 0 {
            stream.recorder.worked(Stage::Fetch, reading.time, std::mem::take(&mut cpu), count as u64, read);
        }
        Some(Prepared { job: Job { tag, items, rows }, ticket, encoded, placed, cpu, queued, reading })
    }

    /// Hands samples that were read here to the classes that may take them, one by one. What only this class may take
    /// stays together.
    fn deal(&self, prepared: Prepared) {
        let Prepared { job, ticket, encoded, mut cpu, queued, reading, .. } = prepared;
        let (assembly, first) = ticket.redeem();
        let Job { items, mut rows, .. } = job;
        let mut tasks: Vec<Task> = Vec::new();
        let mut last: Option<ClassSet> = None;
        for (i, item) in items.into_iter().enumerate() {
            let own = ClassSet::only(self.class);
            let allowed = match &item.sample {
                Ok(sample) => self.decoder.route(item.record, sample),
                // A worker passes it on as the outcome.
                Err(_) => own,
            };
            let known = (0..self.decoder.classes().len()).any(|class| allowed.contains(class));
            // A set that names nobody would wait for ever.
            let allowed = if known { allowed } else { own };
            let one: Vec<Rows> = rows.iter_mut().map(|rows| rows.split_to(1)).collect();
            match tasks.last_mut() {
                Some(task) if allowed == own && last == Some(own) => {
                    task.samples.push(item);
                    let joined = std::mem::take(&mut task.rows).into_iter().zip(one);
                    let join = |(all, one): (Rows, Rows)| all.join(one).expect("rows of one job are neighbours");
                    task.rows = joined.map(join).collect();
                }
                _ => {
                    let mut task = Task::new(&assembly, first + i, one);
                    (task.samples, task.allowed, task.encoded) = (vec![item], allowed, encoded.clone());
                    (task.queued, task.reading, task.cpu) = (queued, reading.clone(), std::mem::take(&mut cpu));
                    tasks.push(task);
                }
            }
            last = Some(allowed);
        }
        self.queue.push_ready(tasks);
    }

    /// Cuts a record whose own bytes are here, with the parts that it shares. `None`: the stream is gone.
    fn parse(
        &self,
        stream: &Arc<StreamShared>,
        record: u64,
        plan: &ReadPlan,
        mut bytes: SmallVec<[Bytes; 1]>,
    ) -> Option<Result<Sample>> {
        if !plan.shared.is_empty() {
            match shared_parts::take(stream, &*self.dataset, plan)? {
                Ok(parts) => bytes.extend(parts),
                Err(error) => return Some(Err(error)),
            }
        }
        Some(self.dataset.parse(record, plan, &bytes))
    }

    /// Reads a record's own bytes on this thread. `None`: the stream is gone and nothing was read.
    fn read(
        &self,
        record: u64,
        rng: SampleRng,
        gate: &Gate,
        buffers: &mut Buffers,
        read: &mut u64,
    ) -> Option<Result<(ReadPlan, SmallVec<[Bytes; 1]>)>> {
        let plan = match self.dataset.plan(record, rng) {
            Ok(plan) => plan,
            Err(error) => return Some(Err(error)),
        };
        let mut bytes = SmallVec::new();
        let mut file: Option<InlineRead> = None;
        for extent in &plan.extents {
            let mut buffer = buffers.take();
            let other = {
                let _open = gate.pass()?;
                file.as_mut().and_then(|file| file.read_other(extent, &mut buffer))
            };
            let done = match other {
                Some(done) => done,
                None => {
                    let opened = {
                        let _open = gate.pass()?;
                        extent.open_inline()
                    };
                    opened.and_then(|mut opened| {
                        if plan.extents.len() > 1
                            && let Some(done) = opened.read_other(extent, &mut buffer)
                        {
                            file = Some(opened);
                            return done;
                        }
                        opened.read_into(&mut buffer)
                    })
                }
            };
            if let Err(error) = done {
                return Some(Err(error.at_stage(Stage::Fetch)));
            }
            *read += buffer.len() as u64;
            bytes.push(buffers.lend(buffer));
        }
        Some(Ok((plan, bytes)))
    }

    /// Bytes of one record, those in the cache read on this thread. `None`: the stream is gone.
    fn collect(
        &self,
        stream: &Arc<StreamShared>,
        pieces: Vec<Piece>,
        buffers: &mut Buffers,
    ) -> Option<Result<SmallVec<[Bytes; 1]>>> {
        let mut all = SmallVec::new();
        for piece in pieces {
            let bytes = match piece {
                Piece::Bytes(bytes) => bytes,
                Piece::Cached(cached) => {
                    let mut buffer = buffers.take();
                    if cached.read(stream, &mut buffer)? {
                        buffers.lend(buffer)
                    } else {
                        match cached.read_again(stream)? {
                            Ok(bytes) => bytes,
                            Err(error) => return Some(Err(error.at_stage(Stage::Fetch))),
                        }
                    }
                }
            };
            all.push(bytes);
        }
        Some(Ok(all))
    }

    fn deliver(&self, work: InWork, finished: Finished, cpu: &mut CpuMeter) {
        let InWork { ticket, untried, prepared, placed, cpu: before, encoded, moments, span, .. } = work;
        let Finished { job, outcomes, decode, transform, device } = finished;
        let (assembly, first) = ticket.redeem();
        let Job { items, mut rows, .. } = job;
        let count = items.len();
        if outcomes.len() != count || rows.iter().any(|rows| rows.rows() != count) {
            let what =
                format!("decoder {} gave back {} outcomes for {count} rows", self.decoder.name(), outcomes.len());
            return assembly.fail(Error::new(ErrorKind::Internal, what).hint("one outcome for each item of the job"));
        }
        let recorder = &assembly.stream.recorder;
        let out: usize = rows.iter().map(Rows::len_bytes).sum();
        let cpu = cpu.lap();
        self.queue.work.made(count, decode + transform, cpu);
        let (cpu, transform) = (cpu + before, transform + placed);
        let share = decode.as_secs_f64() / (decode + transform).as_secs_f64().max(f64::MIN_POSITIVE);
        let decode_cpu = cpu.mul_f64(share.clamp(0.0, 1.0));
        if decode > Duration::ZERO {
            recorder.worked(Stage::Decode, decode, decode_cpu, count as u64, 0);
        }
        recorder.worked(Stage::Transform, transform, cpu.saturating_sub(decode_cpu), count as u64, out as u64);
        recorder.device(device);
        let Moments { queued, taken, idle, reading } = moments;
        let Reading { asked, time: read, slowest: slowest_read } = reading;
        if !span.is_disabled() {
            for (name, time) in [("read_us", read), ("decode_us", decode), ("transform_us", transform)] {
                span.record(name, time.as_micros() as u64);
            }
        }
        // It ends before its batch does.
        drop(span);
        let job = || {
            let largest = largest(&items);
            JobTimeline { asked, queued, taken, idle, read, decode, transform, slowest_read, largest }
        };
        let mut way = self.meters.stages.then(job);
        if self.decoder.classes()[self.class].reads {
            // Not the time in hand: a worker of a GPU has several jobs there at a time.
            self.chunk.learn(prepared + decode + transform - placed, count);
        }
        if assembly.stream.loader.fields.iter().any(|field| field.most.is_some()) {
            let done = items.iter().zip(&outcomes).enumerate().filter(|(_, (_, out))| matches!(out, Outcome::Done));
            let values =
                done.map(|(i, (item, _))| (first + i, item.sample.as_ref().map_or_else(|_| vec![], own_bytes)));
            assembly.keep(values);
        }
        let mut failed = Vec::new();
        let mut elsewhere = Vec::new();
        for (i, (item, outcome)) in items.into_iter().zip(outcomes).enumerate() {
            match outcome {
                Outcome::Done => {}
                Outcome::Failed(error) => {
                    let object = || self.dataset.object(item.record);
                    failed.push((first + i, error.at_stage(Stage::Decode).at_record(item.record).at_object(object())));
                }
                // Never back to a class that gave it away: each row is tried once by each class at most. Where it was
                // routed to does not matter here: that was a wish, this is who is left.
                Outcome::Elsewhere(classes) => elsewhere.push((i, item, untried.and(classes).without(self.class))),
            }
        }
        // Rows that go elsewhere leave the job; the stretches between them are finished.
        let mut at = 0;
        for (i, item, classes) in elsewhere {
            let done: Vec<Rows> = rows.iter_mut().map(|rows| rows.split_to(i - at)).collect();
            let one: Vec<Rows> = rows.iter_mut().map(|rows| rows.split_to(1)).collect();
            if i > at {
                let errors = failed.extract_if(.., |(row, _)| *row < first + i);
                assembly.deliver(first + at, done, errors, None);
            }
            at = i + 1;
            if !(0..self.decoder.classes().len()).any(|class| classes.contains(class)) {
                let error = Error::new(ErrorKind::Unsupported, "no class of the decoder takes this image")
                    .at_stage(Stage::Decode)
                    .at_record(item.record)
                    .at_object(self.dataset.object(item.record));
                assembly.deliver(first + i, one, [(first + i, error)], way.take_if(|_| i + 1 == count));
                continue;
            }
            let mut task = Task::new(&assembly, first + i, one);
            (task.samples, task.allowed, task.encoded) = (vec![item], classes, encoded.clone());
            task.untried = untried.without(self.class);
            task.queued = queued;
            self.queue.push_front(task);
        }
        if at < count {
            assembly.deliver(first + at, rows, failed, way);
        }
    }
}

/// The values of the fields of bytes, in memory of their own: a key must not keep the buffer of the image beside it.
fn own_bytes(sample: &Sample) -> Vec<Bytes> {
    let own = |bytes: &Bytes| if bytes.is_unique() { bytes.clone() } else { Bytes::copy_from_slice(bytes) };
    let values = sample.values.iter();
    values.filter_map(|value| if let Value::Bytes(bytes) = value { Some(own(bytes)) } else { None }).collect()
}

/// Writes volumes, labels and arrays of one sample; images are the decoder's. Gives the time that volumes took.
fn place_fields(
    sample: &mut Sample,
    stream: &StreamShared,
    rng: SampleRng,
    row: usize,
    rows: &mut [Rows],
) -> Result<Duration> {
    let mut took = Duration::ZERO;
    for ((value, rows), field) in sample.values.iter_mut().zip(rows).zip(&stream.loader.fields) {
        let bytes: &[u8] = match value {
            Value::Label(label) => &label.to_ne_bytes(),
            Value::Array(data) => data,
            // It rides with the sample: there is no row to write.
            Value::Bytes(data) => match field.most {
                Some(most) if data.len() <= most => continue,
                Some(most) => {
                    let what = format!("{} bytes of `{}`, which has {most} at most", data.len(), field.name);
                    return Err(Error::corrupt(what).at_stage(Stage::Parse));
                }
                None => {
                    let what = format!("bytes in `{}`, a field of another kind", field.name);
                    return Err(Error::new(ErrorKind::Internal, what).at_stage(Stage::Parse));
                }
            },
            Value::Volume(volume) => {
                let began = Instant::now();
                write_volume(volume, field.volume.as_ref(), rng, rows.row_mut(row))?;
                // Given back at once: others may wait for the room.
                volume.channels.clear();
                volume.foreground = Bytes::new();
                took += began.elapsed();
                continue;
            }
            Value::Encoded(_) | Value::Channels(_) | Value::Pixels { .. } => continue,
        };
        let place = rows.row_mut(row);
        if place.len() != bytes.len() {
            let what = format!("a field has {} bytes where the schema says {}", bytes.len(), place.len());
            return Err(Error::corrupt(what).at_stage(Stage::Parse));
        }
        place.copy_from_slice(bytes);
    }
    Ok(took)
}

/// Read buffers of one thread. `Bytes` are lent out of a buffer; once they are dropped, its memory serves again.
#[derive(Default)]
struct Buffers {
    idle: Vec<BytesMut>,
    lent: VecDeque<Bytes>,
}

impl Buffers {
    fn take(&mut self) -> BytesMut {
        // A lent buffer that nobody holds any more can be written again.
        for _ in 0..self.lent.len() {
            let Some(bytes) = self.lent.pop_front() else { break };
            match bytes.try_into_mut() {
                Ok(buffer) => self.idle.push(buffer),
                Err(bytes) => self.lent.push_back(bytes),
            }
        }
        self.idle.pop().unwrap_or_default()
    }

    fn lend(&mut self, buffer: BytesMut) -> Bytes {
        let bytes = buffer.freeze();
        // A decoder that keeps slices (to start work on them) costs a buffer for each; 64 are plenty.
        if self.lent.len() < 64 {
            self.lent.push_back(bytes.clone());
        }
        bytes
    }
}
