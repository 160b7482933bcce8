//! The one queue that feeds the decode threads, and who of them takes from it.
//!
//! ```text
//! fresh: records nobody has read ─▶ a class that reads ─▶ one class in all: its worker
//!                                        └ several: route each sample ─▶ ready ─▶ whichever class of its set is idle
//! given back (Elsewhere) ────────────────────────────────────────────────▶ ready, at the head
//! ```
//!
//! Threads that read keep as many samples ready as the other classes can take in one go, and decode ready ones
//! themselves when there are more. So engines of a GPU never wait for a file, and no thread idles while one has work.
//!
//! Of the threads that read, as many as [`Shift::active`] says take jobs: those with the lowest numbers. The others
//! *park*: they finish what they have in hand and wait apart, so that a wake-up never goes to one that may not work.
//! Those above the number that the loader was built for end instead, and give their memory back.

use std::{
    collections::VecDeque,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::codec::{Class, ClassSet};

/// Encoded bytes of samples that wait for a class that does not read; counted in the memory budget.
pub(crate) const READY_BYTES: u64 = 32 << 20;

/// What waits here.
pub(super) trait Queued {
    /// Who may take it.
    fn allowed(&self) -> ClassSet;

    /// Encoded bytes of samples that were read.
    fn encoded_bytes(&self) -> u64;
}

#[derive(Debug)]
struct Waiting<T> {
    /// Records that nobody has read, in plan order.
    fresh: VecDeque<T>,
    /// Samples that were read and routed.
    ready: VecDeque<T>,
    /// Encoded bytes of `ready`.
    ready_bytes: u64,
    shift: Shift,
    closed: bool,
}

/// Who works of the threads that read.
#[derive(Debug, Default)]
struct Shift {
    /// Threads with a lower number take jobs.
    active: usize,
    /// Threads with a lower number park, others end.
    kept: usize,
    /// Threads that there are, by number.
    alive: Vec<bool>,
    /// Threads that are not waiting for a job, and the time of all of them together until `since`.
    working: usize,
    worked: Duration,
    since: Option<Instant>,
}

impl Shift {
    /// One thread begins or ends to work, or none does.
    fn count(&mut self, begin: bool, end: bool) {
        let now = Instant::now();
        let since = self.since.replace(now).unwrap_or(now);
        let threads = u32::try_from(self.working).unwrap_or(u32::MAX);
        self.worked += now.saturating_duration_since(since).saturating_mul(threads);
        self.working = (self.working + usize::from(begin)).saturating_sub(usize::from(end));
    }
}

/// What the threads did, summed over them.
#[derive(Debug, Default)]
pub(super) struct WorkClocks {
    rows: AtomicU64,
    jobs: AtomicU64,
    /// Nanoseconds: until a job was ready to be decoded, and processor time.
    read: AtomicU64,
    read_cpu: AtomicU64,
    /// Likewise: decoding and transforming.
    made: AtomicU64,
    made_cpu: AtomicU64,
}

/// A copy of [`WorkClocks`] with the time in jobs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Worked {
    pub(super) rows: u64,
    pub(super) jobs: u64,
    pub(super) worked: Duration,
    pub(super) read: Duration,
    pub(super) read_cpu: Duration,
    pub(super) made: Duration,
    pub(super) made_cpu: Duration,
}

impl WorkClocks {
    fn nanos(time: Duration) -> u64 {
        u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
    }

    pub(super) fn read(&self, time: Duration, cpu: Duration) {
        self.read.fetch_add(Self::nanos(time), Ordering::Relaxed);
        self.read_cpu.fetch_add(Self::nanos(cpu), Ordering::Relaxed);
    }

    pub(super) fn made(&self, rows: usize, time: Duration, cpu: Duration) {
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
        self.jobs.fetch_add(1, Ordering::Relaxed);
        self.made.fetch_add(Self::nanos(time), Ordering::Relaxed);
        self.made_cpu.fetch_add(Self::nanos(cpu), Ordering::Relaxed);
    }
}

/// First in, first out, for each class the first task that it may take.
#[derive(Debug)]
pub(super) struct Queue<T> {
    waiting: Mutex<Waiting<T>>,
    ready: Condvar,
    /// Threads that read and do not work now.
    parked: Condvar,
    /// Classes that read, and those that do not.
    readers: ClassSet,
    others: ClassSet,
    /// The only class that reads, whose threads may park. `None`: there are several, and all work.
    shifts: Option<usize>,
    /// Samples that the others can take in one go.
    appetite: usize,
    pub(super) work: WorkClocks,
}

impl<T: Queued> Queue<T> {
    pub(super) fn new(classes: &[Class]) -> Self {
        let mut readers = 0;
        let mut others = 0;
        let mut appetite = 0;
        for (i, class) in classes.iter().enumerate() {
            if class.reads {
                readers |= 1 << i;
            } else {
                others |= 1 << i;
                appetite += class.workers.get() * class.batch.get();
            }
        }
        let (readers, others) = (ClassSet(readers), ClassSet(others));
        let mut reading = classes.iter().enumerate().filter(|(_, class)| class.reads);
        let (shifts, threads) = match (reading.next(), reading.next()) {
            (Some((class, kind)), None) => (Some(class), kind.workers.get()),
            _ => (None, 0),
        };
        let shift = Shift { active: threads, kept: threads, alive: vec![true; threads], ..Shift::default() };
        let waiting = Waiting { fresh: VecDeque::new(), ready: VecDeque::new(), ready_bytes: 0, shift, closed: false };
        Self {
            waiting: Mutex::new(waiting),
            ready: Condvar::new(),
            parked: Condvar::new(),
            readers,
            others,
            shifts,
            appetite,
            work: WorkClocks::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<T>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The only class that reads.
    pub(super) const fn shifts(&self) -> Option<usize> {
        self.shifts
    }

    /// Takes a task that nobody has read.
    pub(super) fn push(&self, task: T) {
        self.add([task], |waiting, task| waiting.fresh.push_back(task));
    }

    /// Takes samples that were read.
    pub(super) fn push_ready(&self, tasks: impl IntoIterator<Item = T>) {
        self.add(tasks, |waiting, task| {
            waiting.ready_bytes += task.encoded_bytes();
            waiting.ready.push_back(task);
        });
    }

    /// Puts a task before all others: its batch is already late.
    pub(super) fn push_front(&self, task: T) {
        self.add([task], |waiting, task| {
            waiting.ready_bytes += task.encoded_bytes();
            waiting.ready.push_front(task);
        });
    }

    /// Nobody would take what comes once the queue is closed: it is dropped, outside the lock.
    fn add(&self, tasks: impl IntoIterator<Item = T>, place: impl Fn(&mut Waiting<T>, T)) {
        let mut tasks = tasks.into_iter();
        {
            let mut waiting = self.lock();
            if !waiting.closed {
                tasks.by_ref().for_each(|task| place(&mut waiting, task));
            }
        }
        drop(tasks);
        self.wake();
    }

    /// How many tasks wait for a thread.
    pub(super) fn len(&self) -> usize {
        let waiting = self.lock();
        waiting.fresh.len() + waiting.ready.len()
    }

    /// Drops what is `gone`, and with it its memory.
    pub(super) fn forget(&self, gone: impl Fn(&T) -> bool) {
        let dropped: [VecDeque<T>; 2] = {
            let mut waiting = self.lock();
            let Waiting { fresh, ready, ready_bytes, .. } = &mut *waiting;
            let dropped = [fresh, ready].map(|tasks| {
                let (gone, left) = tasks.drain(..).partition(&gone);
                *tasks = left;
                gone
            });
            *ready_bytes -= dropped[1].iter().map(T::encoded_bytes).sum::<u64>();
            dropped
        };
        // Threads that read may have waited until fewer samples are ready.
        self.wake();
        drop(dropped);
    }

    fn wake(&self) {
        // One waiting thread is enough when each may take the task.
        if self.is_plain() { self.ready.notify_one() } else { self.ready.notify_all() }
    }

    /// A thread begins its work. It ends with a [`pop`](Self::pop) that gives nothing though it may wait.
    pub(super) fn entered(&self, class: usize) {
        if self.shifts == Some(class) {
            self.lock().shift.count(true, false);
        }
    }

    /// The next task for thread `n` of `class`, and how long it waited for it. `None` at once when `wait` is false and
    /// there is none, or when the thread is to end.
    pub(super) fn pop(&self, class: usize, n: usize, wait: bool) -> Option<(T, Duration)> {
        let mut began = Instant::now();
        let shifts = self.shifts == Some(class);
        let mut waiting = self.lock();
        loop {
            if waiting.closed {
                return None;
            }
            if shifts && n >= waiting.shift.active {
                if !wait {
                    return None;
                }
                waiting.shift.count(false, true);
                if n >= waiting.shift.kept {
                    waiting.shift.alive[n] = false;
                    return None;
                }
                waiting = self.parked.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                waiting.shift.count(true, false);
                // It was not hungry meanwhile.
                began = Instant::now();
                continue;
            }
            if let Some(task) = self.next(&mut waiting, class) {
                drop(waiting);
                // A thread that reads may have waited until fewer samples are ready.
                if !self.is_plain() {
                    self.ready.notify_all();
                }
                return Some((task, began.elapsed()));
            }
            if !wait {
                return None;
            }
            if shifts {
                waiting.shift.count(false, true);
            }
            waiting = self.ready.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            if shifts {
                waiting.shift.count(true, false);
            }
        }
    }

    fn next(&self, waiting: &mut Waiting<T>, class: usize) -> Option<T> {
        let reads = self.readers.contains(class);
        let wanted_elsewhere = |task: &T| task.allowed().and(self.others) != ClassSet::NONE;
        let mine = |task: &T| task.allowed().contains(class);
        // What only threads that read can do comes first; then the others' supply; then what they are too slow for.
        let mut at = waiting.ready.iter().position(|task| mine(task) && (!reads || !wanted_elsewhere(task)));
        if at.is_none() && reads {
            let supply = waiting.ready.iter().filter(|task| wanted_elsewhere(task)).count();
            let hungry = supply < self.appetite && waiting.ready_bytes < READY_BYTES;
            let fresh = if hungry || self.is_plain() { waiting.fresh.pop_front() } else { None };
            if fresh.is_some() {
                return fresh;
            }
            at = waiting.ready.iter().position(mine);
        }
        let task = waiting.ready.remove(at?)?;
        waiting.ready_bytes -= task.encoded_bytes();
        Some(task)
    }

    /// Whether all classes read.
    const fn is_plain(&self) -> bool {
        self.others.0 == 0
    }

    /// Lets threads with a number below `active`, one at least, take jobs. Says which of these are missing; they count
    /// as there from now on.
    pub(super) fn set_active(&self, active: usize) -> Vec<usize> {
        let mut missing = Vec::new();
        {
            let mut waiting = self.lock();
            let shift = &mut waiting.shift;
            shift.active = active.max(1);
            shift.alive.resize(shift.alive.len().max(shift.active), false);
            for n in shift.kept..shift.active {
                if !std::mem::replace(&mut shift.alive[n], true) {
                    missing.push(n);
                }
            }
        }
        // Everybody looks who he is now. One that waited for a job and may not take one goes to the others that park, so
        // that no wake-up is lost on it.
        self.ready.notify_all();
        self.parked.notify_all();
        missing
    }

    /// Thread `n` and those above it could not be started.
    pub(super) fn not_started(&self, missing: &[usize]) {
        let mut waiting = self.lock();
        let Some(first) = missing.first() else { return };
        missing.iter().for_each(|n| waiting.shift.alive[*n] = false);
        waiting.shift.active = waiting.shift.active.min(*first).max(1);
    }

    /// Threads that may take jobs.
    pub(super) fn active(&self) -> usize {
        self.lock().shift.active
    }

    /// What was done so far.
    pub(super) fn worked(&self) -> Worked {
        let worked = {
            let mut waiting = self.lock();
            waiting.shift.count(false, false);
            waiting.shift.worked
        };
        let count = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
        let time = |sum: &AtomicU64| Duration::from_nanos(count(sum));
        let WorkClocks { rows, jobs, read, read_cpu, made, made_cpu } = &self.work;
        Worked {
            rows: count(rows),
            jobs: count(jobs),
            worked,
            read: time(read),
            read_cpu: time(read_cpu),
            made: time(made),
            made_cpu: time(made_cpu),
        }
    }

    pub(super) fn close(&self) {
        let tasks = {
            let mut waiting = self.lock();
            waiting.closed = true;
            (std::mem::take(&mut waiting.fresh), std::mem::take(&mut waiting.ready))
        };
        self.ready.notify_all();
        self.parked.notify_all();
        // Outside the lock: dropping rows may free memory.
        drop(tasks);
    }
}
