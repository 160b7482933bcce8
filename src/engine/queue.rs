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

use super::workers::Task;
use crate::codec::{Class, ClassSet};

/// Encoded bytes of samples that wait for a class that does not read; counted in the memory budget.
pub(crate) const READY_BYTES: u64 = 32 << 20;

#[derive(Debug, Default)]
pub(super) struct QueueState {
    /// Records that nobody has read, in plan order.
    pub(super) fresh: VecDeque<Task>,
    /// Samples that were read and routed.
    pub(super) ready: VecDeque<Task>,
    /// Encoded bytes of `ready`.
    pub(super) ready_bytes: u64,
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
pub(super) struct Work {
    rows: AtomicU64,
    jobs: AtomicU64,
    /// Nanoseconds: until a job was ready to be decoded, and processor time.
    read: AtomicU64,
    read_cpu: AtomicU64,
    /// Likewise: decoding and transforming.
    made: AtomicU64,
    made_cpu: AtomicU64,
}

/// A copy of [`Work`] with the time in jobs.
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

impl Work {
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
pub(super) struct Queue {
    state: Mutex<QueueState>,
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
    pub(super) work: Work,
}

impl Queue {
    pub(super) fn new(classes: &[Class]) -> Self {
        let (mut readers, mut others, mut appetite) = (0, 0, 0);
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
        let state = Mutex::new(QueueState { shift, ..QueueState::default() });
        let (ready, parked, work) = (Condvar::new(), Condvar::new(), Work::default());
        Self { state, ready, parked, readers, others, shifts, appetite, work }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The only class that reads.
    pub(super) const fn shifts(&self) -> Option<usize> {
        self.shifts
    }

    /// Takes a task that nobody has read.
    pub(super) fn push(&self, task: Task) {
        self.lock().fresh.push_back(task);
        self.wake();
    }

    /// Takes samples that were read.
    pub(super) fn push_ready(&self, tasks: impl IntoIterator<Item = Task>) {
        {
            let mut state = self.lock();
            for task in tasks {
                state.ready_bytes += task.encoded_bytes();
                state.ready.push_back(task);
            }
        }
        self.wake();
    }

    /// Puts a task before all others: its batch is already late.
    pub(super) fn push_front(&self, task: Task) {
        {
            let mut state = self.lock();
            state.ready_bytes += task.encoded_bytes();
            state.ready.push_front(task);
        }
        self.wake();
    }

    pub(super) fn wake(&self) {
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
    pub(super) fn pop(&self, class: usize, n: usize, wait: bool) -> Option<(Task, Duration)> {
        let mut began = Instant::now();
        let shifts = self.shifts == Some(class);
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            if shifts && n >= state.shift.active {
                if !wait {
                    return None;
                }
                state.shift.count(false, true);
                if n >= state.shift.kept {
                    state.shift.alive[n] = false;
                    return None;
                }
                state = self.parked.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.shift.count(true, false);
                // It was not hungry meanwhile.
                began = Instant::now();
                continue;
            }
            if let Some(task) = self.next(&mut state, class) {
                drop(state);
                // A thread that reads may have waited for room.
                if !self.is_plain() {
                    self.ready.notify_all();
                }
                return Some((task, began.elapsed()));
            }
            if !wait {
                return None;
            }
            if shifts {
                state.shift.count(false, true);
            }
            state = self.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
            if shifts {
                state.shift.count(true, false);
            }
        }
    }

    fn next(&self, state: &mut QueueState, class: usize) -> Option<Task> {
        let reads = self.readers.contains(class);
        let wanted_elsewhere = |task: &Task| task.allowed.and(self.others) != ClassSet::NONE;
        let mine = |task: &Task| task.allowed.contains(class);
        // What only threads that read can do comes first; then the others' supply; then what they are too slow for.
        let mut at = state.ready.iter().position(|task| mine(task) && (!reads || !wanted_elsewhere(task)));
        if at.is_none() && reads {
            let supply = state.ready.iter().filter(|task| wanted_elsewhere(task)).count();
            let hungry = supply < self.appetite && state.ready_bytes < READY_BYTES;
            let fresh = if hungry || self.is_plain() { state.fresh.pop_front() } else { None };
            if fresh.is_some() {
                return fresh;
            }
            at = state.ready.iter().position(mine);
        }
        let task = state.ready.remove(at?)?;
        state.ready_bytes -= task.encoded_bytes();
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
            let mut state = self.lock();
            let shift = &mut state.shift;
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
        let mut state = self.lock();
        let Some(first) = missing.first() else { return };
        missing.iter().for_each(|n| state.shift.alive[*n] = false);
        state.shift.active = state.shift.active.min(*first).max(1);
    }

    /// Threads that may take jobs.
    pub(super) fn active(&self) -> usize {
        self.lock().shift.active
    }

    /// What was done so far.
    pub(super) fn worked(&self) -> Worked {
        let worked = {
            let mut state = self.lock();
            state.shift.count(false, false);
            state.shift.worked
        };
        let count = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
        let time = |sum: &AtomicU64| Duration::from_nanos(count(sum));
        let Work { rows, jobs, read, read_cpu, made, made_cpu } = &self.work;
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
            let mut state = self.lock();
            state.closed = true;
            (std::mem::take(&mut state.fresh), std::mem::take(&mut state.ready))
        };
        self.ready.notify_all();
        self.parked.notify_all();
        // Outside the lock: dropping rows may free memory.
        drop(tasks);
    }
}
