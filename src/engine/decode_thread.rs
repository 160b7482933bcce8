//! A decode thread: reads records that were not fetched, parses them, submits samples to its decoder, and returns rows.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use infeed_core::{
    error::{Error, ErrorKind, Result},
    random::SampleRng,
    report::Stage,
    rows::Rows,
};
use infeed_data::{Dataset, ReadPlan, Sample};
use infeed_pixels::{
    codec::{ClassSet, Decoder, Finished, Item, Job, KeepPixels, Outcome, Wait, Worker},
    transform::{Lowered, Placer},
};
use smallvec::SmallVec;
use tracing::Span;

use super::{
    assembly::Assembly,
    buffers::Buffers,
    byte_permits::BytePermits,
    cached,
    chunk::ChunkSize,
    decoded::Lookup,
    gate::answered,
    image_lists::{ImageLists, ListMaker, ListTimes},
    pieces::Fetched,
    queue::{Queue, ThreadWaits},
    read_here::{collect, read_own},
    read_parts::{fetch, read_here, read_parts},
    side_values::SideValues,
    stream::StreamShared,
    task::{ReadTimes, Task, Ticket, Work, largest},
    timeline::{CpuMeter, JobTimeline},
    write_fields::write_fields,
};

/// Where decode threads record their times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meters {
    /// Where the time of each job goes.
    pub(crate) stages: bool,
    /// Its processor time.
    pub(crate) cpu: bool,
}

/// The state of a decode thread. It holds no loader and no stream, so that these can end while it works.
pub(super) struct DecodeThread {
    pub(super) class: usize,
    pub(super) n: usize,
    pub(super) depth: usize,
    pub(super) queue: Arc<Queue<Work>>,
    pub(super) dataset: Arc<dyn Dataset>,
    pub(super) decoder: Arc<dyn Decoder>,
    pub(super) programs: Arc<[Option<Lowered>]>,
    pub(super) chunk: Arc<ChunkSize>,
    pub(super) meters: Meters,
    /// For lists of images, if the records have some.
    pub(super) lists: Option<ImageLists>,
}

/// A job in a worker: where its rows go when it comes back.
struct InWork {
    tag: u64,
    ticket: Ticket,
    facts: JobFacts,
}

/// A job without its rows.
struct JobFacts {
    /// It was read before, and could not be decoded.
    again: bool,
    /// Classes that have not given its rows back.
    untried: ClassSet,
    /// Time spent on it before it was submitted.
    prepared: Duration,
    /// The part of it that made rows of volumes.
    placed: Duration,
    /// The part of it that made lists of images.
    listed: ListTimes,
    /// Processor time that no stage has yet.
    cpu: Duration,
    encoded: Option<BytePermits>,
    moments: Moments,
    /// `infeed.decode`
    span: Span,
}

/// The jobs of a thread, and its clock.
pub(super) struct Serving {
    tag: u64,
    cpu: CpuMeter,
    in_work: Vec<InWork>,
    placer: Placer,
    lists: Option<ListMaker>,
}

impl Serving {
    pub(super) fn new(meters: Meters, lists: Option<&ImageLists>) -> Self {
        Self {
            tag: 0,
            cpu: CpuMeter::start(meters.cpu),
            in_work: Vec::new(),
            placer: Placer::new(),
            lists: lists.map(ListMaker::new),
        }
    }
}

/// When a job was made and taken, and how its bytes came.
struct Moments {
    queued: Instant,
    taken: Instant,
    /// The longest time that this or another thread had nothing to do.
    idle: Duration,
    reading: ReadTimes,
}

/// A record as it is found.
enum Got {
    /// Its bytes, to be cut.
    Bytes(ReadPlan, SmallVec<[Bytes; 1]>),
    Sample(Sample),
}

/// A job that can be submitted.
struct Prepared {
    job: Job,
    ticket: Ticket,
    again: bool,
    encoded: Option<BytePermits>,
    placed: Duration,
    listed: ListTimes,
    /// Processor time that no stage has yet.
    cpu: Duration,
    queued: Instant,
    reading: ReadTimes,
}

impl DecodeThread {
    pub(super) fn worker(&self) -> Result<Box<dyn Worker>> {
        let make = || self.decoder.worker(self.class, self.n, &self.programs);
        catch_unwind(AssertUnwindSafe(make)).unwrap_or_else(|_| {
            let what = format!("decoder {} panicked while making a worker", self.decoder.name());
            Err(Error::new(ErrorKind::Internal, what))
        })
    }

    /// Runs until the queue is closed. If a worker panics, the batches of its jobs fail, and the thread continues with
    /// a new worker.
    pub(super) fn run(&self, mut worker: Box<dyn Worker>) {
        let mut buffers = Buffers::default();
        loop {
            let mut serving = Serving::new(self.meters, self.lists.as_ref());
            let serve = || while self.turn(&mut *worker, &mut serving, &mut buffers, true) {};
            if catch_unwind(AssertUnwindSafe(serve)).is_ok() {
                return;
            }
            drop(serving);
            match self.worker() {
                Ok(fresh) => worker = fresh,
                // Without a worker the thread fails all its jobs, so that streams end.
                Err(error) => return self.refuse(&error),
            }
        }
    }

    fn refuse(&self, error: &Error) {
        while let Some((work, _)) = self.queue.pop(self.class, self.n, true) {
            if let Work::Rows(task) = work {
                task.assembly.fail(error.clone());
            }
        }
    }

    /// Takes a task if the worker has room (waits for one if `may_wait` and the worker has none), and delivers finished
    /// jobs. Returns whether there may be more to do; otherwise the queue is closed, this thread is to park, or no task
    /// waits.
    pub(super) fn turn(
        &self,
        worker: &mut dyn Worker,
        serving: &mut Serving,
        buffers: &mut Buffers,
        may_wait: bool,
    ) -> bool {
        let Serving { tag, cpu, in_work, placer, lists } = serving;
        let idle = in_work.is_empty();
        let next = if in_work.len() < self.depth { self.queue.pop(self.class, self.n, idle && may_wait) } else { None };
        let wait = match next {
            Some((Work::Part(part), _)) => {
                let _busy = self.queue.busy_ahead();
                let began = Instant::now();
                part.run(&*self.dataset);
                let cpu = cpu.lap();
                self.queue.work.read(began.elapsed(), cpu);
                part.stream.recorder.used(Stage::Decode, cpu);
                Wait::Now
            }
            Some((Work::Rows(task), ThreadWaits { waited, idle: longest })) => {
                if task.assembly.stream.gate.is_closed() {
                    return true;
                }
                let stream = Arc::clone(&task.assembly.stream);
                // Time before the stream began does not count as waiting for it.
                let waited = waited.min(stream.started.elapsed());
                let now = Instant::now();
                let waits = &task.assembly.plan.waits;
                let blocked = now.checked_sub(waited).map_or(Duration::ZERO, |idle| waits.permits_within(idle, now));
                stream.recorder.blocked(Stage::Decode, blocked);
                stream.recorder.starved(Stage::Decode, waited.saturating_sub(blocked));
                *tag += 1;
                let began = Instant::now();
                let untried = task.untried;
                let fresh = task.samples.is_empty();
                let span = self.span(&task);
                let _inside = span.enter();
                if let Some(prepared) = self.prepare(task, *tag, buffers, (cpu, lists.as_mut())) {
                    if fresh && self.decoder.classes().len() > 1 {
                        self.deal(prepared);
                        return true;
                    }
                    let Prepared { job, ticket, again, encoded, placed, listed, cpu, queued, reading } = prepared;
                    let moments = Moments { queued, taken: began, idle: longest, reading };
                    let prepared = began.elapsed();
                    let (tag, span) = (*tag, span.clone());
                    let facts = JobFacts { again, untried, prepared, placed, listed, cpu, encoded, moments, span };
                    in_work.push(InWork { tag, ticket, facts });
                    worker.submit(job);
                }
                Wait::Now
            }
            None if idle => return false,
            None => Wait::Block,
        };
        for finished in worker.poll(wait) {
            let Some(at) = in_work.iter().position(|work| work.tag == finished.job.tag) else {
                // The owner of these rows is unknown, and the batches in work would wait for them forever.
                let (name, tag) = (self.decoder.name(), finished.job.tag);
                let what = format!("decoder {name} gave back a job of the tag {tag}, which was not submitted to it");
                for work in in_work.drain(..) {
                    let hint = "give each job back once, with the tag with which it was submitted";
                    work.ticket.redeem().0.fail(Error::new(ErrorKind::Internal, what.clone()).with_hint(hint));
                }
                continue;
            };
            self.deliver(in_work.swap_remove(at), finished, cpu, placer);
        }
        true
    }

    /// The span of a job.
    fn span(&self, task: &Task) -> Span {
        let class = self.decoder.classes()[self.class].name;
        let batch = task.assembly.span.clone();
        let rows = task.len();
        let none = tracing::field::Empty;
        tracing::trace_span!(
            parent: batch, "infeed.decode", worker = self.n, class, rows, read_us = none, decode_us = none, transform_us = none
        )
    }

    /// Reads records that were not fetched, parses them, writes the fields that need no decoding. `None` if the stream
    /// was dropped.
    fn prepare(
        &self,
        task: Task,
        tag: u64,
        buffers: &mut Buffers,
        (cpu, mut lists): (&mut CpuMeter, Option<&mut ListMaker>),
    ) -> Option<Prepared> {
        let count = task.len();
        let Task {
            assembly, first, mut rows, fetched, again, samples, encoded, cpu: before, queued, mut reading, ..
        } = task;
        let stream = Arc::clone(&assembly.stream);
        // From here on the batch fails if the rows do not come back.
        let ticket = Ticket::new(&assembly, first);
        if !samples.is_empty() {
            let job = Job::new(tag, samples, rows);
            let (placed, listed) = (Duration::ZERO, ListTimes::default());
            return Some(Prepared { job, ticket, again, encoded, placed, listed, cpu: before, queued, reading });
        }
        let began = Instant::now();
        let mut mark = began;
        let mut items = Vec::with_capacity(count);
        let mut read = 0;
        // Shared parts and volumes have separate clocks.
        let mut placed = Duration::ZERO;
        let mut fetched = fetched.into_iter();
        let mut claimed = false;
        for i in 0..count {
            let record = assembly.plan.records[first + i];
            let rng = assembly.plan.rng(first + i);
            let mut keep = None;
            let Some(got) = self.read(&stream, (record, rng), fetched.next(), buffers, &mut read, &mut keep) else {
                // The stream was dropped: its batch needs no error.
                let _ = ticket.redeem();
                return None;
            };
            if self.meters.stages {
                let took = mark.elapsed();
                reading.time += took;
                if reading.slowest.is_none_or(|(_, most)| took > most) {
                    reading.slowest = Some((record, took));
                }
            }
            let sample = match got {
                Ok(Got::Bytes(plan, bytes)) => self.parse(&stream, record, &plan, bytes),
                Ok(Got::Sample(sample)) => Some(Ok(sample)),
                Err(error) => Some(Err(error)),
            };
            let Some(sample) = sample else {
                let _ = ticket.redeem();
                return None;
            };
            // Not earlier, so that a batch that waits costs no memory.
            if !std::mem::replace(&mut claimed, true)
                && let Err(error) = rows.iter().try_for_each(Rows::claim)
            {
                // An error of the machine, not of the sample.
                assembly.fail(error.at_stage(Stage::Decode));
                let _ = ticket.redeem();
                return None;
            }
            let sample = sample.and_then(|mut sample| {
                let lists = lists.as_deref_mut();
                placed += write_fields(&mut sample, &stream.loader.fields, rng, i, &mut rows, lists)?;
                Ok(sample)
            });
            if self.meters.stages {
                mark = Instant::now();
            }
            let named = |e: Error| {
                let object = self.object_of(record, &e);
                e.at_record(record).at_object(object)
            };
            let device = stream.loader.device;
            let size = assembly.plan.size;
            let mut item = Item::new(record, rng, sample.map_err(named));
            (item.device, item.size, item.keep) = (device, size, keep);
            items.push(item);
        }
        let listed = lists.map(ListMaker::take).unwrap_or_default();
        let mut cpu = cpu.lap();
        self.queue.work.read(began.elapsed(), cpu);
        if read > 0 {
            // Making lists only computes, so its processor time is its time.
            let fetching = cpu.saturating_sub(listed.all);
            cpu -= fetching;
            stream.recorder.worked(Stage::Fetch, reading.time, fetching, count as u64, read);
        }
        Some(Prepared { job: Job::new(tag, items, rows), ticket, again, encoded, placed, listed, cpu, queued, reading })
    }

    /// A record's own bytes (read, unless they are here) or its sample from the decoded cache, and whether that cache
    /// wants its pixels. `None` if the stream was dropped.
    fn read(
        &self,
        stream: &Arc<StreamShared>,
        (record, rng): (u64, SampleRng),
        fetched: Option<Result<Fetched>>,
        buffers: &mut Buffers,
        read: &mut u64,
        keep: &mut Option<Box<dyn KeepPixels>>,
    ) -> Option<Result<Got>> {
        let dataset = &*self.dataset;
        let (plan, pieces) = match fetched {
            Some(Err(error)) => return Some(Err(error)),
            Some(Ok(Fetched { plan, pieces })) => (plan, Some(pieces)),
            None => match dataset.plan(record, rng).and_then(|plan| stream.loader.limits.admit(plan)) {
                Ok(plan) => (plan, None),
                Err(error) => return Some(Err(error)),
            },
        };
        if let Some(decoded) = &stream.loader.decoded {
            if stream.gate.is_closed() {
                return None;
            }
            match decoded.look((dataset, record), &plan, buffers, &stream.decoded_recorder) {
                Lookup::Here(sample, bytes) => {
                    *read += bytes;
                    return Some(Ok(Got::Sample(sample)));
                }
                Lookup::Missing(keeper) => *keep = keeper,
            }
        }
        let bytes = match pieces {
            None => read_own(stream, &plan, buffers, read)?,
            Some(Some(pieces)) => collect(stream, pieces, buffers)?,
            // The decoded cache had it when its batch was planned.
            Some(None) => self.read_lost(stream, record, &plan)?,
        };
        Some(bytes.map(|bytes| Got::Bytes(plan, bytes)))
    }

    /// Reads a record while this thread waits; rare. `None` if the stream was dropped.
    fn read_lost(
        &self,
        stream: &Arc<StreamShared>,
        record: u64,
        plan: &ReadPlan,
    ) -> Option<Result<SmallVec<[Bytes; 1]>>> {
        let lost = |error: Error| error.at_stage(Stage::Fetch);
        if plan.by_dataset.is_some() {
            let read = self.dataset.read(&[record]).pop();
            let none = || Err(Error::new(ErrorKind::Internal, "the dataset read no record where one was asked for"));
            return Some(read.unwrap_or_else(none).map(SmallVec::from_vec).map_err(lost));
        }
        let mut all = SmallVec::new();
        for extent in &plan.extents {
            let bytes = match extent.source.reads_inline() {
                true => read_here(stream, extent)?,
                false => answered(&stream.gate, &fetch(stream, extent.clone()))?,
            };
            match bytes {
                Ok(bytes) => all.push(bytes),
                Err(error) => return Some(Err(lost(error))),
            }
        }
        Some(Ok(all))
    }

    /// Hands samples that were read here to the classes that may take them, one by one. Samples that only this class
    /// may take stay together.
    fn deal(&self, prepared: Prepared) {
        let Prepared { job, ticket, again, encoded, mut cpu, queued, reading, .. } = prepared;
        let (assembly, first) = ticket.redeem();
        let Job { items, mut rows, .. } = job;
        let mut tasks: Vec<Task> = Vec::new();
        let mut last: Option<ClassSet> = None;
        for (i, mut item) in items.into_iter().enumerate() {
            let own = ClassSet::only(self.class);
            // A worker passes a failed read on as the outcome.
            let allowed = if item.sample.is_ok() { self.decoder.route(&mut item) } else { own };
            let known = (0..self.decoder.classes().len()).any(|class| allowed.contains(class));
            // A sample that no class may take would wait forever.
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
                    task.samples = vec![item];
                    task.again = again;
                    task.allowed = allowed;
                    task.encoded = encoded.clone();
                    task.queued = queued;
                    task.reading = reading.clone();
                    task.cpu = std::mem::take(&mut cpu);
                    tasks.push(task);
                }
            }
            last = Some(allowed);
        }
        self.queue.push_ready(tasks.into_iter().map(Work::Rows));
    }

    /// Cuts a record whose own bytes are here, with its shared parts, into fields. `None` if the stream was dropped.
    fn parse(
        &self,
        stream: &Arc<StreamShared>,
        record: u64,
        plan: &ReadPlan,
        mut bytes: SmallVec<[Bytes; 1]>,
    ) -> Option<Result<Sample>> {
        if !plan.shared.is_empty() {
            match read_parts(stream, &*self.dataset, plan)? {
                Ok(parts) => bytes.extend(parts),
                Err(error) => return Some(Err(error)),
            }
        }
        Some(self.dataset.parse(record, plan, &bytes))
    }

    /// Delivers the rows of a job: finished rows to their batch, the others to the queue to be tried again.
    fn deliver(&self, work: InWork, mut finished: Finished, clock: &mut CpuMeter, placer: &mut Placer) {
        let InWork { ticket, mut facts, .. } = work;
        let (assembly, first) = ticket.redeem();
        let Finished { job, outcomes, .. } = &mut finished;
        let count = job.items.len();
        if outcomes.len() != count || job.rows.iter().any(|rows| rows.rows() != count) {
            let what =
                format!("decoder {} gave back {} outcomes for {count} rows", self.decoder.name(), outcomes.len());
            return assembly
                .fail(Error::new(ErrorKind::Internal, what).with_hint("give one outcome per item of a job"));
        }
        let (instances, finishing) = assembly.finish(&job.items, &mut job.rows, outcomes, placer);
        facts.placed += finishing;
        let timeline = self.account(&assembly, &mut facts, &finished, clock);
        let Finished { job: Job { items, rows, .. }, outcomes, .. } = finished;
        if assembly.stream.loader.fields.iter().any(|field| field.side.is_some()) {
            let mut instances = instances.into_iter();
            let made = items.iter().zip(&outcomes).enumerate().map(|(i, made)| (i, made, instances.next()));
            assembly.keep(made.filter_map(|(i, (item, outcome), instances)| {
                let (Outcome::Done, Ok(sample)) = (outcome, &item.sample) else { return None };
                Some((first + i, SideValues::own(sample, instances.unwrap_or_default())))
            }));
        }
        let unfinished = self.unfinished(&assembly, &facts, items, outcomes, first);
        self.hand_over(&assembly, &facts, rows, first, unfinished, timeline);
        if assembly.stream.loader.mix.is_some() {
            // The last rows mix their batch, which counts that time itself: do not count it for the next job.
            clock.lap();
        }
    }

    /// Counts the times of a job.
    fn account(
        &self,
        assembly: &Assembly,
        facts: &mut JobFacts,
        finished: &Finished,
        clock: &mut CpuMeter,
    ) -> Option<JobTimeline> {
        let JobFacts { prepared, placed, listed, cpu: before, span, moments, .. } = facts;
        let Finished { job, outcomes, images, decode, transform, device, .. } = finished;
        let (count, decode, images) = (job.items.len(), *decode + listed.decode, *images + listed.images);
        let recorder = &assembly.stream.recorder;
        let out = job.rows.iter().map(Rows::len_bytes).sum::<usize>() + listed.bytes;
        let cpu = clock.lap();
        self.queue.work.made(count, decode + *transform, cpu);
        let before_submit = *placed + listed.all;
        let (cpu, transform) = (cpu + *before, *transform + before_submit - listed.decode);
        let share = decode.as_secs_f64() / (decode + transform).as_secs_f64().max(f64::MIN_POSITIVE);
        let decode_cpu = cpu.mul_f64(share.clamp(0.0, 1.0));
        if decode > Duration::ZERO {
            recorder.worked(Stage::Decode, decode, decode_cpu, images, 0);
        }
        recorder.worked(Stage::Transform, transform, cpu.saturating_sub(decode_cpu), count as u64, out as u64);
        recorder.device(*device);
        let done = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Done)).count();
        assembly.stream.decoded_by.add(self.class, done as u64);
        let Moments { queued, taken, idle, reading } = moments;
        if !span.is_disabled() {
            for (name, time) in [("read_us", reading.time), ("decode_us", decode), ("transform_us", transform)] {
                span.record(name, time.as_micros() as u64);
            }
        }
        // It ends before its batch does.
        *span = Span::none();
        if self.decoder.classes()[self.class].reads {
            // Not the time between submit and return: a GPU's worker has several jobs at a time.
            self.chunk.learn(*prepared + decode + transform - before_submit, count);
        }
        self.meters.stages.then(|| JobTimeline {
            fetched: reading.fetched.clone(),
            queued: *queued,
            taken: *taken,
            idle: *idle,
            read: reading.time,
            decode,
            transform,
            slowest_read: reading.slowest,
            largest: largest(&job.items),
        })
    }

    /// The name of the object in which a record is damaged.
    fn object_of(&self, record: u64, error: &Error) -> String {
        match &error.context().field {
            Some(field) => self.dataset.object_of(record, field),
            None => self.dataset.object(record),
        }
    }

    /// Sorts the unfinished samples by what happens to them next.
    fn unfinished(
        &self,
        assembly: &Arc<Assembly>,
        facts: &JobFacts,
        items: Vec<Item>,
        outcomes: Vec<Outcome>,
        first: usize,
    ) -> Unfinished {
        let mut unfinished = Unfinished::default();
        let Unfinished { failed, leaving } = &mut unfinished;
        for (i, (item, outcome)) in items.into_iter().zip(outcomes).enumerate() {
            match outcome {
                Outcome::Done => {}
                Outcome::Failed(error) => {
                    let Item { record, rng, .. } = item;
                    let object = self.object_of(record, &error);
                    let error = error.at_stage(Stage::Decode).at_record(record).at_object(object);
                    let epoch = assembly.plan.epoch;
                    let anew = || cached::doubt(&assembly.stream, &*self.dataset, epoch, (record, rng), &error);
                    match (!facts.again).then(anew).flatten() {
                        Some(fetched) => leaving.push((i, Next::Again(fetched))),
                        None => failed.push((first + i, error)),
                    }
                }
                // Never back to a class that gave it back: each class tries a row at most once. The routing of the
                // sample was only a preference, so all remaining classes are allowed.
                Outcome::Elsewhere(classes) => {
                    let allowed = facts.untried.and(classes).without(self.class);
                    if (0..self.decoder.classes().len()).any(|class| allowed.contains(class)) {
                        leaving.push((i, Next::Class(item, allowed)));
                    } else {
                        let error = Error::new(ErrorKind::Unsupported, "no class of the decoder takes this image")
                            .at_stage(Stage::Decode)
                            .at_record(item.record)
                            .at_object(self.dataset.object(item.record));
                        failed.push((first + i, error));
                    }
                }
                other => {
                    let error = Error::new(ErrorKind::Internal, format!("an unknown outcome of a decoder: {other:?}"));
                    failed.push((first + i, error.at_stage(Stage::Decode).at_record(item.record)));
                }
            }
        }
        unfinished
    }

    /// Rows that leave the job become jobs of their own; the stretches between them go to their batch.
    fn hand_over(
        &self,
        assembly: &Arc<Assembly>,
        facts: &JobFacts,
        mut rows: Vec<Rows>,
        first: usize,
        unfinished: Unfinished,
        timeline: Option<JobTimeline>,
    ) {
        let count = rows.first().map_or(0, Rows::rows);
        let Unfinished { mut failed, leaving } = unfinished;
        let mut at = 0;
        for (i, next) in leaving {
            let done: Vec<Rows> = rows.iter_mut().map(|rows| rows.split_to(i - at)).collect();
            let one: Vec<Rows> = rows.iter_mut().map(|rows| rows.split_to(1)).collect();
            if i > at {
                let errors = failed.extract_if(.., |(row, _)| *row < first + i);
                assembly.deliver(first + at, done, errors, None);
            }
            at = i + 1;
            let mut task = Task::new(assembly, first + i, one);
            match next {
                Next::Class(item, allowed) => {
                    task.samples = vec![item];
                    task.again = facts.again;
                    task.allowed = allowed;
                    task.untried = facts.untried.without(self.class);
                }
                Next::Again(fetched) => {
                    task.fetched = vec![Ok(fetched)];
                    task.again = true;
                    // It has to be read again.
                    let classes = self.decoder.classes().iter().enumerate();
                    let others = classes.filter(|(_, class)| !class.reads).map(|(class, _)| class);
                    task.allowed = others.fold(ClassSet::ALL, ClassSet::without);
                }
            }
            task.encoded = facts.encoded.clone();
            task.queued = facts.moments.queued;
            self.queue.push_front(Work::Rows(task));
        }
        if at < count {
            assembly.deliver(first + at, rows, failed, timeline);
        }
    }
}

/// Samples of a job that are not done.
#[derive(Default)]
struct Unfinished {
    /// By row of the batch.
    failed: Vec<(usize, Error)>,
    /// By row of the job.
    leaving: Vec<(usize, Next)>,
}

/// Where an unfinished row goes.
enum Next {
    /// To these classes.
    Class(Item, ClassSet),
    /// Back to be read again.
    Again(Fetched),
}
