//! The history of a batch from its plan to the trainer: enough to find out why it was late.
//!
//! The *last* job of a batch is its critical path: anything that delayed this job delayed the batch. So a batch keeps
//! the times of its last job, and only the summed times of the other jobs.

use std::time::{Duration, Instant};

use infeed_core::{
    report::{BatchPart, Cause, LateBatch, blame, shares},
    threads,
};
use infeed_data::Dataset;
use infeed_store::Extent;

/// Moments before the first job of a batch. Part of its plan.
#[derive(Clone, Debug)]
pub(super) struct Waits {
    planned: [Instant; 2],
    /// Waits for a permit: rows, a seat, bytes, or the turn of its batch.
    permits: Vec<[Instant; 2]>,
}

impl Waits {
    /// Planning began at `began` and ends now.
    pub(super) fn planned(began: Instant) -> Self {
        Self { planned: [began, Instant::now()], permits: Vec::new() }
    }

    /// The batch waited for a permit from `began` until now.
    pub(super) fn permit(&mut self, began: Instant) {
        self.permits.push([began, Instant::now()]);
    }

    /// How much of the time between two moments the batch waited for permits.
    pub(super) fn permits_within(&self, from: Instant, to: Instant) -> Duration {
        self.permits.iter().map(|[began, came]| (*came).min(to).saturating_duration_since((*began).max(from))).sum()
    }
}

/// The read of a chunk that finished last.
#[derive(Clone, Debug)]
pub(super) struct FetchTimes {
    pub(super) began: Instant,
    pub(super) came: Instant,
    /// `None` if no request was needed, or if it is unknown which of several records was the last.
    pub(super) last: Option<LastRead>,
}

/// What a chunk waited for last.
#[derive(Clone, Debug)]
pub(super) enum LastRead {
    Extent(Extent),
    /// By its dataset.
    Record(u64),
}

/// One job of a batch.
#[derive(Debug)]
pub(super) struct JobTimeline {
    /// `None` if the decode threads read.
    pub(super) fetched: Option<FetchTimes>,
    pub(super) queued: Instant,
    pub(super) taken: Instant,
    /// The longest time that this or another thread had nothing to do.
    pub(super) idle: Duration,
    pub(super) read: Duration,
    pub(super) decode: Duration,
    pub(super) transform: Duration,
    /// The record that took longest to read, with that time; or that held most of the bytes to decode.
    pub(super) slowest_read: Option<(u64, Duration)>,
    pub(super) largest: Option<u64>,
}

/// All jobs of a batch so far.
#[derive(Debug, Default)]
pub(super) struct JobTotals {
    first_taken: Option<Instant>,
    read: Duration,
    decode: Duration,
    transform: Duration,
    slowest_read: Option<(u64, Duration)>,
    slowest_job: Option<(u64, Duration)>,
    last: Option<JobTimeline>,
}

impl JobTotals {
    /// Another job is done.
    pub(super) fn add(&mut self, job: JobTimeline) {
        self.first_taken = Some(self.first_taken.map_or(job.taken, |first| first.min(job.taken)));
        self.read += job.read;
        self.decode += job.decode;
        self.transform += job.transform;
        let slower = |a: Option<(u64, Duration)>, b: Option<(u64, Duration)>| match (a, b) {
            (Some(a), Some(b)) => Some(if b.1 > a.1 { b } else { a }),
            (a, b) => a.or(b),
        };
        self.slowest_read = slower(self.slowest_read, job.slowest_read);
        let made = job.largest.map(|record| (record, job.decode + job.transform));
        self.slowest_job = slower(self.slowest_job, made);
        self.last = Some(job);
    }
}

/// The history of one batch.
#[derive(Debug)]
pub(crate) struct Timeline {
    epoch: u64,
    step: u64,
    position: u64,
    waits: Waits,
    jobs: JobTotals,
    /// When the last row was finished, when the batch was mixed, and when it was complete.
    sealing: Instant,
    mixed: Instant,
    sealed: Instant,
}

impl Timeline {
    pub(super) fn new(place: (u64, u64, u64), waits: Waits, jobs: JobTotals, [sealing, mixed]: [Instant; 2]) -> Self {
        let (epoch, step, position) = place;
        Self { epoch, step, position, waits, jobs, sealing, mixed, sealed: Instant::now() }
    }

    /// When it was complete.
    pub(super) fn ready(&self) -> Instant {
        self.sealed
    }

    /// The parts of its history in order; `got` is the time when the stream handed it over.
    fn parts(&self, got: Instant) -> Vec<BatchPart> {
        let part = |cause, from, to| BatchPart { cause, from, to };
        let [from, to] = self.waits.planned;
        let mut parts = vec![part(Cause::Plan, from, to)];
        parts.extend(self.waits.permits.iter().map(|[from, to]| part(Cause::Room, *from, *to)));
        if let Some(job) = &self.jobs.last {
            if let Some(fetched) = &job.fetched {
                parts.push(part(Cause::Request, fetched.began, fetched.came));
            }
            // While a job waits and threads work on other jobs of the batch, the batch is worked on.
            let begun = self.jobs.first_taken.unwrap_or(job.taken).clamp(job.queued, job.taken.max(job.queued));
            parts.push(part(Cause::Queue, job.queued, begun));
            let JobTotals { read, decode, transform, .. } = &self.jobs;
            let busy = (*read + *decode + *transform).as_secs_f64();
            let whole = self.sealing.saturating_duration_since(begun);
            let share = |time: &Duration| match busy > 0.0 {
                true => whole.mul_f64((time.as_secs_f64() / busy).clamp(0.0, 1.0)),
                // Rows without an image: the work was to write them.
                false => Duration::ZERO,
            };
            let (read, decode) = (begun + share(read), begun + share(read) + share(decode));
            parts.push(part(Cause::Read, begun, read));
            parts.push(part(Cause::Decode, read, decode));
            parts.push(part(Cause::Augmentation, decode, self.sealing));
        }
        parts.push(part(Cause::Augmentation, self.sealing, self.mixed));
        parts.push(part(Cause::Copy, self.mixed, self.sealed));
        parts.push(part(Cause::Consumer, self.sealed, got));
        parts
    }

    /// How much earlier the last job could have begun: a thread was idle while its batch waited for a permit.
    fn idle_for_permits(&self) -> Duration {
        let Some(job) = &self.jobs.last else { return Duration::ZERO };
        // Before a request, permits may be missing because requests are slow: then the idle thread is not to blame.
        let since = job.fetched.as_ref().map(|fetched| fetched.came);
        let waits = self.waits.permits.iter().filter(|[from, _]| since.is_none_or(|since| *from >= since));
        waits.map(|[from, to]| to.saturating_duration_since(*from)).sum::<Duration>().min(job.idle)
    }

    /// Why the trainer waited for it from `asked` to `got`; `None` if it did not wait.
    pub(crate) fn late(&self, asked: Instant, got: Instant, dataset: &dyn Dataset) -> Option<LateBatch> {
        let cause = blame(&self.parts(got), self.idle_for_permits(), asked, got)?;
        let wait = got.saturating_duration_since(asked);
        let (epoch, batch, position) = (self.epoch, self.step, self.position);
        Some(LateBatch::new((epoch, batch, position), wait, cause, self.object(cause, dataset)))
    }

    /// The object that caused most of a part, if there is one.
    fn object(&self, cause: Cause, dataset: &dyn Dataset) -> Option<String> {
        let job = self.jobs.last.as_ref()?;
        let half = |(record, time): (u64, Duration)| {
            let begun = self.jobs.first_taken.unwrap_or(job.taken);
            (time * 2 >= self.sealing.saturating_duration_since(begun)).then(|| dataset.object(record))
        };
        match cause {
            Cause::Request => Some(match job.fetched.as_ref()?.last.as_ref()? {
                LastRead::Extent(extent) => extent.source.display_name(&extent.name),
                LastRead::Record(record) => dataset.object(*record),
            }),
            Cause::Read => self.jobs.slowest_read.and_then(half),
            Cause::Decode | Cause::Augmentation => self.jobs.slowest_job.and_then(half),
            _ => None,
        }
    }

    /// The parts of its history between two moments, without parts that took no time.
    pub(crate) fn between(&self, from: Instant, got: Instant) -> impl Iterator<Item = (Cause, Duration)> {
        shares(&self.parts(got), from, got).into_iter().filter(|(_, time)| !time.is_zero())
    }
}

/// Processor time of this thread between two readings.
#[derive(Debug)]
pub(super) struct CpuMeter(Option<Duration>);

impl CpuMeter {
    /// If it is off, it makes no system call and returns zero.
    pub(super) fn start(on: bool) -> Self {
        Self(on.then(threads::cpu_time).flatten())
    }

    /// Processor time since the last reading.
    pub(super) fn lap(&mut self) -> Duration {
        let Some(before) = self.0 else { return Duration::ZERO };
        let now = threads::cpu_time().unwrap_or(before);
        self.0 = Some(now);
        now.saturating_sub(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// A batch planned at 0 that waited for a permit until 10, whose only job was queued then, taken at `taken` and
    /// done at 40.
    fn timeline(zero: Instant, taken: u64, idle: u64, job: impl FnOnce(&mut JobTimeline)) -> Timeline {
        let at = |n| zero + ms(n);
        let mut last = JobTimeline {
            fetched: None,
            queued: at(10),
            taken: at(taken),
            idle: ms(idle),
            read: ms(1),
            decode: ms(8),
            transform: ms(1),
            slowest_read: None,
            largest: None,
        };
        job(&mut last);
        let mut jobs = JobTotals::default();
        jobs.add(last);
        let waits = Waits { planned: [zero, zero], permits: vec![[at(0), at(10)]] };
        Timeline { epoch: 1, step: 2, position: 3, waits, jobs, sealing: at(40), mixed: at(40), sealed: at(40) }
    }

    fn cause(timeline: &Timeline, zero: Instant, asked: u64) -> Cause {
        let (asked, got) = (zero + ms(asked), zero + ms(40));
        blame(&timeline.parts(got), timeline.idle_for_permits(), asked, got).expect("it was late")
    }

    #[test]
    fn an_idle_thread_means_that_room_was_missing() {
        let zero = Instant::now();
        assert_eq!(cause(&timeline(zero, 10, 10, |_| ()), zero, 25), Cause::Room);
        assert_eq!(cause(&timeline(zero, 10, 0, |_| ()), zero, 25), Cause::Decode);
        assert_eq!(cause(&timeline(zero, 38, 0, |_| ()), zero, 25), Cause::Queue);
        // A permit was there as soon as the bytes were.
        let remote = timeline(zero, 12, 10, |job| {
            job.fetched = Some(FetchTimes { began: zero + ms(1), came: zero + ms(12), last: None });
        });
        assert_eq!(cause(&remote, zero, 25), Cause::Decode);
    }

    #[test]
    fn time_in_the_queue_beside_jobs_of_the_same_batch_is_work() {
        let zero = Instant::now();
        let mut timeline = timeline(zero, 38, 0, |_| ());
        timeline.jobs.first_taken = Some(zero + ms(11));
        assert_eq!(cause(&timeline, zero, 15), Cause::Decode);
        let shares: Vec<_> = timeline.between(zero, zero + ms(40)).collect();
        let of = |cause| shares.iter().find(|(known, _)| *known == cause).map_or(0, |(_, time)| time.as_millis());
        assert_eq!((of(Cause::Room), of(Cause::Queue)), (10, 1));
        let worked = of(Cause::Read) + of(Cause::Decode) + of(Cause::Augmentation);
        assert!((27..=28).contains(&worked), "cut to milliseconds: {worked}");
    }
}
