//! The queue that feeds the decode threads, and the rules which thread takes which task.
//!
//! ```text
//! fresh: records not read yet ────▶ a class that reads ─▶ one class in all: its worker
//!   a lane for each loader               └ several: route each sample ─▶ ready ─▶ whichever class of its set is idle
//! given back (Elsewhere) ────────────────────────────────────────────────▶ ready, at the head
//!                                                               what engines may take: a supply for each device
//! ```
//!
//! Threads that read keep as many samples ready as the other classes can take at once, while these may take any. If
//! more are ready, they decode some themselves. `precedence` decides for the stream which class may decode samples that
//! both can decode.
//!
//! **Lanes.** Loaders of several devices share the queue. Each has a *lane*, whose records are taken in plan order.
//! Lanes take turns, one job each: trainers that run in step need a batch of every device before any of them continues,
//! so the first batch of the last device must not wait for all prefetched batches of the others. A slow trainer has an
//! empty lane, and the others get its turns. Supply is counted for each *device*, because each device has its own
//! engines.
//!
//! **Ahead.** Tasks that are done ahead, such as decoding a row group before its records' turn, come first for at most
//! half of the threads, and last for the others.
//!
//! **Parking.** Of the threads that read, the [`ActiveThreads::active`] ones with the lowest numbers take jobs. The others
//! *park*: they finish their job and wait separately, so that a wake-up never reaches a thread that may not work.
//! Threads above the number that the loader was built for end instead, and free their memory.

use std::{
    collections::VecDeque,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use infeed_pixels::codec::{Class, ClassSet};

/// Encoded bytes of samples that wait for a class that does not read; counted in the memory budget.
pub(crate) const READY_BYTES: u64 = 32 << 20;

/// A task that waits in the queue.
pub(super) trait Queued {
    /// Classes of threads that may take it.
    fn allowed(&self) -> ClassSet;

    /// Encoded bytes of samples that were read.
    fn encoded_bytes(&self) -> u64;

    /// Lane, that is, loader, to which it belongs.
    fn lane(&self) -> usize;

    /// Whether threads that read may decode it now, if engines can too.
    fn cpu_may(&self) -> bool;

    /// Whether engines may decode it now, if threads that read can too.
    fn engines_may(&self) -> bool;

    /// Whether it is done ahead: no batch waits for it yet.
    fn is_ahead(&self) -> bool {
        false
    }
}

#[derive(Debug)]
struct Waiting<T> {
    /// Records that are not read yet, in plan order, for each lane.
    fresh: Vec<VecDeque<T>>,
    /// The lane that is next.
    turn: usize,
    /// Tasks to be done ahead, and the number of threads that work ahead now.
    ahead: VecDeque<T>,
    busy_ahead: usize,
    /// Samples that were read and that only classes that read may take.
    own: VecDeque<T>,
    /// Samples that other classes may take, for each device.
    supplies: Vec<Supply<T>>,
    active_threads: ActiveThreads,
    closed: bool,
}

/// Samples that were read for one device.
#[derive(Debug)]
struct Supply<T> {
    /// Samples that its engines may take.
    ready: VecDeque<T>,
    /// Encoded bytes of all samples that were read for it and wait.
    bytes: u64,
}

impl<T> Default for Supply<T> {
    fn default() -> Self {
        Self { ready: VecDeque::new(), bytes: 0 }
    }
}

impl<T> Waiting<T> {
    fn all(&mut self) -> impl Iterator<Item = &mut VecDeque<T>> {
        let Self { fresh, own, ahead, supplies, .. } = self;
        let ready = supplies.iter_mut().map(|supply| &mut supply.ready);
        fresh.iter_mut().chain([own, ahead]).chain(ready)
    }
}

/// Which of the threads that read take jobs.
#[derive(Debug, Default)]
struct ActiveThreads {
    /// Threads with a lower number take jobs.
    active: usize,
    /// Threads with a lower number park, others end.
    kept: usize,
    /// Running threads, by number.
    alive: Vec<bool>,
    /// When each thread that waits for a job began to wait.
    idle: Vec<Instant>,
    /// Threads that are not waiting for a job, and the time of all of them together until `since`.
    working: usize,
    worked: Duration,
    since: Option<Instant>,
}

impl ActiveThreads {
    /// Adds the time since the last call, then changes the number of working threads.
    fn count(&mut self, begin: bool, end: bool) {
        let now = Instant::now();
        let since = self.since.replace(now).unwrap_or(now);
        let threads = u32::try_from(self.working).unwrap_or(u32::MAX);
        self.worked += now.saturating_duration_since(since).saturating_mul(threads);
        self.working = (self.working + usize::from(begin)).saturating_sub(usize::from(end));
    }
}

/// How long threads had waited when a task was taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct ThreadWaits {
    /// Wait of the thread that took it.
    pub(super) waited: Duration,
    /// Longest wait among the threads that may take this task, including those that still wait. Which of several idle
    /// threads takes a task is arbitrary, so the own wait of the taker does not represent the others.
    pub(super) idle: Duration,
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

/// First in, first out in each lane, for each class the first task that it may take.
#[derive(Debug)]
pub(super) struct Queue<T> {
    waiting: Mutex<Waiting<T>>,
    /// Signal for threads that read and wait for a task.
    hungry: Condvar,
    /// Signals for threads that do not read and wait for a task, one for each class, so that a task wakes a thread that
    /// may take it. (With one signal for all, each task woke all threads: with 16 other threads, an engine's thread of
    /// an H200 took 0.3 ms of CPU per image, of which nvJPEG needs 0.06 ms.)
    idle: Vec<Condvar>,
    /// Signal for threads that read and are parked.
    parked: Condvar,
    /// Classes that read, and classes that do not.
    readers: ClassSet,
    others: ClassSet,
    /// The only class that reads, whose threads may park. `None`: there are several, and all work.
    shifts: Option<usize>,
    /// The device of each class, and of each lane, by number.
    homes: Vec<usize>,
    lanes: Vec<usize>,
    /// Samples that the other classes can take at once, for each device.
    appetites: Vec<usize>,
    pub(super) work: WorkClocks,
}

impl<T: Queued> Queue<T> {
    /// A queue for `classes`, each with the number of its device (ignored for classes that read); `lanes` has the
    /// device of each loader.
    pub(super) fn new(classes: &[Class], homes: Vec<usize>, lanes: Vec<usize>) -> Self {
        let mut readers = 0;
        let mut others = 0;
        let devices = homes.iter().chain(&lanes).max().map_or(1, |most| most + 1);
        let mut appetites = vec![0; devices];
        for (i, class) in classes.iter().enumerate() {
            if class.reads {
                readers |= 1 << i;
            } else {
                others |= 1 << i;
                appetites[homes[i]] += class.workers.get() * class.batch.get();
            }
        }
        let (readers, others) = (ClassSet(readers), ClassSet(others));
        let mut reading = classes.iter().enumerate().filter(|(_, class)| class.reads);
        let (shifts, threads) = match (reading.next(), reading.next()) {
            (Some((class, kind)), None) => (Some(class), kind.workers.get()),
            _ => (None, 0),
        };
        let active_threads =
            ActiveThreads { active: threads, kept: threads, alive: vec![true; threads], ..ActiveThreads::default() };
        let waiting = Waiting {
            fresh: lanes.iter().map(|_| VecDeque::new()).collect(),
            turn: 0,
            ahead: VecDeque::new(),
            busy_ahead: 0,
            own: VecDeque::new(),
            supplies: (0..devices).map(|_| Supply::default()).collect(),
            active_threads,
            closed: false,
        };
        Self {
            waiting: Mutex::new(waiting),
            hungry: Condvar::new(),
            idle: classes.iter().map(|_| Condvar::new()).collect(),
            parked: Condvar::new(),
            readers,
            others,
            shifts,
            homes,
            lanes,
            appetites,
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

    /// Adds a task whose records are not read yet.
    pub(super) fn push(&self, task: T) {
        self.add([task], |waiting, task| match task.is_ahead() {
            true => waiting.ahead.push_back(task),
            false => waiting.fresh[task.lane()].push_back(task),
        });
        self.wake_reader();
    }

    /// Adds samples that a thread has read. No wake-up for threads that read: this thread looks for work next and
    /// helps.
    pub(super) fn push_ready(&self, tasks: impl IntoIterator<Item = T>) {
        let (for_others, count) = self.add(tasks, |waiting, task| self.read(waiting, &task).push_back(task));
        self.wake_others(for_others, count);
        if count > 1 || self.shifts.is_none() {
            self.hungry.notify_all();
        }
    }

    /// Puts a task before all others: its batch is already late.
    pub(super) fn push_front(&self, task: T) {
        let (for_others, count) = self.add([task], |waiting, task| self.read(waiting, &task).push_front(task));
        self.wake_others(for_others, count);
        self.wake_reader();
    }

    /// Counts a sample that was read; returns the line in which it waits.
    fn read<'a>(&self, waiting: &'a mut Waiting<T>, task: &T) -> &'a mut VecDeque<T> {
        let supply = &mut waiting.supplies[self.lanes[task.lane()]];
        supply.bytes += task.encoded_bytes();
        if task.allowed().and(self.others) == ClassSet::NONE { &mut waiting.own } else { &mut supply.ready }
    }

    /// Adds tasks; returns the other classes that may take some of them, and how many were added. If the queue is
    /// closed, the tasks are dropped, outside the lock.
    fn add(&self, tasks: impl IntoIterator<Item = T>, place: impl Fn(&mut Waiting<T>, T)) -> (ClassSet, usize) {
        let mut tasks = tasks.into_iter();
        let (mut allowed, mut count) = (ClassSet::NONE, 0);
        {
            let mut waiting = self.lock();
            if !waiting.closed {
                tasks.by_ref().for_each(|task| {
                    if self.others_may(&task) {
                        allowed = ClassSet(allowed.0 | task.allowed().0);
                    }
                    count += 1;
                    place(&mut waiting, task);
                });
            }
        }
        drop(tasks);
        (allowed, count)
    }

    /// How many tasks wait for a thread.
    pub(super) fn len(&self) -> usize {
        self.lock().all().map(|tasks| tasks.len()).sum()
    }

    /// Drops the tasks for which `gone` is true, and frees their memory.
    pub(super) fn forget(&self, gone: impl Fn(&T) -> bool) {
        let dropped: Vec<VecDeque<T>> = {
            let mut waiting = self.lock();
            let part = |tasks: &mut VecDeque<T>| {
                let (gone, left) = tasks.drain(..).partition(&gone);
                *tasks = left;
                gone
            };
            let dropped: Vec<VecDeque<T>> = waiting.all().map(part).collect();
            for task in dropped[self.lanes.len()..].iter().flatten() {
                waiting.supplies[self.lanes[task.lane()]].bytes -= task.encoded_bytes();
            }
            dropped
        };
        // Threads that read may have waited until fewer samples are ready.
        self.hungry.notify_all();
        drop(dropped);
    }

    /// Wakes threads after a stream has allowed a further class to decode.
    pub(super) fn urge(&self) {
        if !self.is_plain() {
            // Under the lock: a thread that has just found no task is asleep by now, and gets the wake-up.
            let _waiting = self.lock();
            self.hungry.notify_all();
            self.idle.iter().for_each(Condvar::notify_all);
        }
    }

    /// Wakes a thread that reads; all of them if there are several such classes, because one class may not take the
    /// task.
    fn wake_reader(&self) {
        if self.shifts.is_some() { self.hungry.notify_one() } else { self.hungry.notify_all() }
    }

    /// Wakes one thread of each class that does not read and may take the task; all threads if several tasks came.
    fn wake_others(&self, allowed: ClassSet, count: usize) {
        let wanted = self.others.and(allowed);
        for (_, idle) in self.idle.iter().enumerate().filter(|(class, _)| wanted.contains(*class)) {
            if count > 1 { idle.notify_all() } else { idle.notify_one() }
        }
    }

    /// Whether a device has fewer samples ready than its engines can take at once.
    fn is_hungry(&self, waiting: &Waiting<T>, device: usize) -> bool {
        let Supply { ready, bytes } = &waiting.supplies[device];
        ready.len() < self.appetites[device] && *bytes < READY_BYTES
    }

    /// Whether there are records to be read for a device.
    fn has_fresh(&self, waiting: &Waiting<T>, device: usize) -> bool {
        self.lanes.iter().zip(&waiting.fresh).any(|(of, fresh)| *of == device && !fresh.is_empty())
    }

    /// Registers a thread. It is removed by a [`pop`](Self::pop) that may wait and returns `None`.
    pub(super) fn entered(&self, class: usize) {
        if self.shifts == Some(class) {
            self.lock().active_threads.count(true, false);
        }
    }

    /// The next task for thread `n` of `class`, and how long this and other threads waited for one. `None` if the
    /// thread is to end; also if there is no task and `wait` is false.
    pub(super) fn pop(&self, class: usize, n: usize, wait: bool) -> Option<(T, ThreadWaits)> {
        let mut began = Instant::now();
        let shifts = self.shifts == Some(class);
        let mut waiting = self.lock();
        loop {
            if waiting.closed {
                return None;
            }
            if shifts && n >= waiting.active_threads.active {
                if !wait {
                    return None;
                }
                waiting.active_threads.count(false, true);
                if !self.is_plain() {
                    // The samples that it has just read may be for threads of its class.
                    self.wake_reader();
                }
                if n >= waiting.active_threads.kept {
                    waiting.active_threads.alive[n] = false;
                    return None;
                }
                waiting = self.parked.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                waiting.active_threads.count(true, false);
                // Time parked does not count as waiting.
                began = Instant::now();
                continue;
            }
            if let Some(task) = self.next(&mut waiting, class) {
                let longest = waiting.active_threads.idle.iter().copied().min().filter(|_| shifts);
                // A thread that reads may have waited until fewer samples are ready.
                let device = self.lanes[task.lane()];
                let refill = !self.is_plain() && self.is_hungry(&waiting, device) && self.has_fresh(&waiting, device);
                drop(waiting);
                if refill {
                    self.wake_reader();
                }
                let idle = longest.map_or(began, |longest| longest.min(began)).elapsed();
                return Some((task, ThreadWaits { waited: began.elapsed(), idle }));
            }
            if !wait {
                return None;
            }
            if shifts {
                waiting.active_threads.count(false, true);
                waiting.active_threads.idle.push(began);
            }
            let signal = if self.readers.contains(class) { &self.hungry } else { &self.idle[class] };
            waiting = signal.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            if shifts {
                waiting.active_threads.count(true, false);
                let own = waiting.active_threads.idle.iter().position(|since| *since == began);
                own.map(|own| waiting.active_threads.idle.swap_remove(own));
            }
        }
    }

    fn next(&self, waiting: &mut Waiting<T>, class: usize) -> Option<T> {
        if !self.readers.contains(class) {
            let may = |task: &T| task.allowed().contains(class) && self.others_may(task);
            return Self::take_ready(&mut waiting.supplies[self.homes[class]], may);
        }
        // First samples that only threads that read can decode; then reading, until the other classes have enough; then
        // samples that the other classes are too slow for.
        if let Some(at) = waiting.own.iter().position(|task| task.allowed().contains(class)) {
            let task = waiting.own.remove(at)?;
            waiting.supplies[self.lanes[task.lane()]].bytes -= task.encoded_bytes();
            return Some(task);
        }
        // At most half of the threads work ahead, so that a batch that the trainer waits for is not delayed by all of
        // them.
        let active = self.shifts.map_or(2, |_| waiting.active_threads.active);
        if waiting.busy_ahead < active / 2
            && let Some(task) = Self::take_ahead(waiting)
        {
            return Some(task);
        }
        let lanes = self.lanes.len();
        let turns = (waiting.turn..lanes).chain(0..waiting.turn);
        let may = |task: &T| task.allowed().contains(class) && task.cpu_may();
        for lane in turns.clone() {
            let device = self.lanes[lane];
            let Some(first) = waiting.fresh[lane].front() else { continue };
            // If engines may not decode this lane now, threads that read decode its ready samples.
            let alone = !self.is_plain() && !first.engines_may();
            let own = if alone { Self::take_ready(&mut waiting.supplies[device], may) } else { None };
            let hungry = self.is_plain() || self.is_hungry(waiting, device);
            if let Some(task) = own.or_else(|| hungry.then(|| waiting.fresh[lane].pop_front()).flatten()) {
                waiting.turn = (lane + 1) % lanes;
                return Some(task);
            }
        }
        for lane in turns {
            if let Some(task) = Self::take_ready(&mut waiting.supplies[self.lanes[lane]], may) {
                waiting.turn = (lane + 1) % lanes;
                return Some(task);
            }
        }
        Self::take_ahead(waiting)
    }

    fn take_ahead(waiting: &mut Waiting<T>) -> Option<T> {
        let task = waiting.ahead.pop_front()?;
        waiting.busy_ahead += 1;
        Some(task)
    }

    /// A guard to drop when a task that was taken [ahead](Queued::is_ahead) is done.
    pub(super) const fn busy_ahead(&self) -> BusyAhead<'_, T> {
        BusyAhead(self)
    }

    fn take_ready(supply: &mut Supply<T>, may: impl Fn(&T) -> bool) -> Option<T> {
        let at = supply.ready.iter().position(may)?;
        let task = supply.ready.remove(at)?;
        supply.bytes -= task.encoded_bytes();
        Some(task)
    }

    /// Whether classes that do not read may decode it now, as far as they can.
    fn others_may(&self, task: &T) -> bool {
        self.is_plain() || task.engines_may() || task.allowed().and(self.readers) == ClassSet::NONE
    }

    /// Whether all classes read.
    const fn is_plain(&self) -> bool {
        self.others.0 == 0
    }

    /// Lets threads with a number below `active` (at least one) take jobs. Returns the numbers of threads to start;
    /// these count as running from now on.
    pub(super) fn set_active(&self, active: usize) -> Vec<usize> {
        let mut missing = Vec::new();
        {
            let mut waiting = self.lock();
            let active_threads = &mut waiting.active_threads;
            active_threads.active = active.max(1);
            active_threads.alive.resize(active_threads.alive.len().max(active_threads.active), false);
            for n in active_threads.kept..active_threads.active {
                if !std::mem::replace(&mut active_threads.alive[n], true) {
                    missing.push(n);
                }
            }
        }
        // All threads check their number again. A thread that waited for a job and may no longer take one parks, so
        // that it does not consume a wake-up.
        self.hungry.notify_all();
        self.parked.notify_all();
        missing
    }

    /// Removes thread `n` and those above it, which could not be started.
    pub(super) fn not_started(&self, missing: &[usize]) {
        let mut waiting = self.lock();
        let Some(first) = missing.first() else { return };
        missing.iter().for_each(|n| waiting.active_threads.alive[*n] = false);
        waiting.active_threads.active = waiting.active_threads.active.min(*first).max(1);
    }

    /// Threads that may take jobs.
    pub(super) fn active(&self) -> usize {
        self.lock().active_threads.active
    }

    /// The clocks so far.
    pub(super) fn worked(&self) -> Worked {
        let worked = {
            let mut waiting = self.lock();
            waiting.active_threads.count(false, false);
            waiting.active_threads.worked
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
        let tasks: Vec<VecDeque<T>> = {
            let mut waiting = self.lock();
            waiting.closed = true;
            waiting.all().map(std::mem::take).collect()
        };
        self.hungry.notify_all();
        self.idle.iter().for_each(Condvar::notify_all);
        self.parked.notify_all();
        // Outside the lock: dropping rows may free memory.
        drop(tasks);
    }
}

/// Counts a thread that works ahead.
pub(super) struct BusyAhead<'a, T: Queued>(&'a Queue<T>);

impl<T: Queued> Drop for BusyAhead<'_, T> {
    fn drop(&mut self) {
        self.0.lock().busy_ahead -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::{num::NonZeroUsize, thread};

    use super::*;
    use infeed_core::{random::hash64, types::Device};

    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Job {
        lane: usize,
        number: usize,
        allowed: ClassSet,
        bytes: u64,
        cpu_may: bool,
        engines_may: bool,
    }

    impl Queued for Job {
        fn allowed(&self) -> ClassSet {
            self.allowed
        }
        fn encoded_bytes(&self) -> u64 {
            self.bytes
        }
        fn lane(&self) -> usize {
            self.lane
        }
        fn cpu_may(&self) -> bool {
            self.cpu_may
        }
        fn engines_may(&self) -> bool {
            self.engines_may
        }
        fn is_ahead(&self) -> bool {
            self.number >= AHEAD
        }
    }

    /// Jobs with these numbers are done ahead.
    const AHEAD: usize = 1000;

    fn job(lane: usize, number: usize) -> Job {
        Job { lane, number, allowed: ClassSet::ALL, bytes: 0, cpu_may: true, engines_may: true }
    }

    fn class(reads: bool, batch: usize) -> Class {
        let mut class = Class::new("test", Device::Cpu, NonZeroUsize::MIN);
        (class.reads, class.batch) = (reads, NonZeroUsize::new(batch).unwrap());
        class
    }

    /// Threads that read, and an engine that takes `batch` at a time on each of two devices.
    fn two_gpus(batch: usize) -> Queue<Job> {
        Queue::new(&[class(true, 1), class(false, batch), class(false, batch)], vec![0, 0, 1], vec![0, 1])
    }

    /// Does the work of a thread that reads: the sample goes to the engine of its device or stays.
    fn read(job: Job, bytes: u64) -> Job {
        Job { allowed: ClassSet(1 | 2 << job.lane), bytes, ..job }
    }

    fn pop(queue: &Queue<Job>, class: usize) -> Option<Job> {
        queue.pop(class, 0, false).map(|(job, _)| job)
    }

    #[test]
    fn lanes_take_turns_and_each_keeps_its_order() {
        let queue = Queue::new(&[class(true, 1)], vec![0], vec![0, 1, 2]);
        (0..6).for_each(|number| queue.push(job(0, number)));
        (0..2).for_each(|number| queue.push(job(2, number)));
        let taken = |count: usize| -> Vec<_> {
            (0..count).map_while(|_| pop(&queue, 0)).map(|job| (job.lane, job.number)).collect()
        };
        assert_eq!(taken(3), [(0, 0), (2, 0), (0, 1)]);
        // The lane that gets a task late is next.
        (0..3).for_each(|number| queue.push(job(1, number)));
        assert_eq!(taken(99), [(1, 0), (2, 1), (0, 2), (1, 1), (0, 3), (1, 2), (0, 4), (0, 5)]);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn what_is_done_ahead_takes_half_of_the_threads_and_those_that_have_nothing_else() {
        let readers = |n| {
            let mut class = class(true, 1);
            class.workers = NonZeroUsize::new(n).unwrap();
            Queue::new(&[class], vec![0], vec![0])
        };
        let numbers = |queue: &Queue<Job>, count| -> Vec<usize> {
            (0..count).map_while(|_| pop(queue, 0)).map(|job| job.number).collect()
        };
        let fill = |queue: &Queue<Job>| [0, 1, AHEAD, AHEAD + 1, AHEAD + 2].map(|number| queue.push(job(0, number)));
        let queue = readers(2);
        fill(&queue);
        assert_eq!(numbers(&queue, 2), [AHEAD, 0]);
        let one = queue.busy_ahead();
        assert_eq!(numbers(&queue, 1), [1]);
        drop(one);
        assert_eq!(numbers(&queue, 9), [AHEAD + 1, AHEAD + 2]);
        // A single thread first does the tasks that batches wait for.
        let queue = readers(1);
        fill(&queue);
        assert_eq!(numbers(&queue, 9), [0, 1, AHEAD, AHEAD + 1, AHEAD + 2]);
        fill(&queue);
        queue.forget(|_| true);
        assert_eq!(queue.len(), 0);
    }

    /// Random work for up to four loaders: no lane that has work is passed over for longer than all others have a turn.
    #[test]
    fn no_lane_starves_and_none_is_taken_out_of_order() {
        for seed in 0..300u64 {
            let lanes = 1 + seed as usize % 4;
            let queue = Queue::new(&[class(true, 1)], vec![0], (0..lanes).collect());
            let (mut pushed, mut taken, mut passed) = (vec![0; lanes], vec![0; lanes], vec![0; lanes]);
            let mut draw = seed;
            for _ in 0..400 {
                draw = hash64(draw);
                if draw.is_multiple_of(2) {
                    let lane = (draw >> 8) as usize % lanes;
                    queue.push(job(lane, pushed[lane]));
                    pushed[lane] += 1;
                } else if let Some(job) = pop(&queue, 0) {
                    assert_eq!(job.number, taken[job.lane], "seed {seed}: out of order");
                    taken[job.lane] += 1;
                    passed[job.lane] = 0;
                    for lane in (0..lanes).filter(|lane| *lane != job.lane && taken[*lane] < pushed[*lane]) {
                        passed[lane] += 1;
                        assert!(passed[lane] < lanes, "seed {seed}: lane {lane} waits while others go twice");
                    }
                } else {
                    assert_eq!(pushed, taken, "seed {seed}: nothing came though there was something");
                }
            }
        }
    }

    #[test]
    fn a_device_with_enough_to_do_does_not_keep_threads_from_reading_for_another() {
        let queue = two_gpus(2);
        (0..9).for_each(|number| queue.push(job(0, number)));
        // Its engine is stopped: two samples wait for it, which is what it can take.
        for _ in 0..2 {
            let job = pop(&queue, 0).unwrap();
            queue.push_ready([read(job, 10)]);
        }
        (0..3).for_each(|number| queue.push(job(1, number)));
        let next = pop(&queue, 0).unwrap();
        assert_eq!((next.lane, next.number), (1, 0), "the other device is hungry");
        queue.push_ready([read(next, 10)]);
        queue.push_ready([read(pop(&queue, 0).unwrap(), 10)]);
        // Both have enough: threads that read decode samples, and read again for a device that has too few samples
        // then.
        let own: Vec<_> = (0..2).map(|_| pop(&queue, 0).unwrap()).map(|job| (job.lane, job.number)).collect();
        assert_eq!(own, [(0, 0), (0, 2)]);
        queue.push_ready([read(job(0, 2), 10)]);
        assert_eq!(pop(&queue, 0).map(|job| (job.lane, job.number)), Some((1, 0)), "in turn");
        // Engines get only samples for their device.
        assert_eq!(pop(&queue, 2).map(|job| (job.lane, job.number)), Some((1, 1)));
        assert_eq!(pop(&queue, 2), None);
        assert_eq!(pop(&queue, 1).map(|job| (job.lane, job.number)), Some((0, 1)));
        assert_eq!(queue.len(), 8, "7 of 9 and 1 of 3");
    }

    /// Hangs if a wake-up is lost.
    #[test]
    fn whoever_sleeps_is_woken_by_what_it_may_take() {
        // Calls while a thread that reads sleeps, on a queue in which the engine has all samples that it can take.
        let wakes: [fn(&Queue<Job>); 4] = [
            |queue| assert!(pop(queue, 1).is_some()),
            |queue| queue.forget(|job| job.number == 0),
            |queue| queue.push_front(read(job(1, 5), 10)),
            |queue| queue.push(job(1, 5)),
        ];
        for wake in wakes {
            let queue = two_gpus(4);
            queue.push_ready((0..4).map(|_| Job { allowed: ClassSet::only(1), bytes: 10, ..job(0, 0) }));
            queue.push(job(0, 5));
            thread::scope(|scope| {
                let reader = scope.spawn(|| queue.pop(0, 0, true).map(|(job, _)| job.number));
                while queue.lock().active_threads.idle.is_empty() {
                    thread::yield_now();
                }
                wake(&queue);
                assert_eq!(reader.join().unwrap(), Some(5));
            });
        }
        // Whether an engine sleeps cannot be observed; in most runs it does.
        for round in 0..200 {
            let queue = two_gpus(4);
            thread::scope(|scope| {
                let engine = scope.spawn(|| queue.pop(2, 0, true).map(|(job, _)| job.number));
                (0..round % 8).for_each(|_| thread::yield_now());
                match round % 3 {
                    0 => queue.push_ready([read(job(1, 7), 10)]),
                    1 => queue.push_front(read(job(1, 7), 10)),
                    _ => queue.close(),
                }
                assert_eq!(engine.join().unwrap(), (round % 3 < 2).then_some(7));
            });
        }
    }

    #[test]
    fn engines_come_first_where_cpu_threads_may_not() {
        let queue = two_gpus(2);
        let ready = |number, cpu_may| Job { cpu_may, ..read(job(0, number), 10) };
        queue.push_ready((0..4).map(|number| ready(number, false)));
        queue.push(job(0, 9));
        // The engine has more samples than it can take at once: nothing is read, and nothing is taken from it.
        assert_eq!(pop(&queue, 0), None);
        assert_eq!(pop(&queue, 1).map(|job| job.number), Some(0));
        // A sample of another stream may be taken, at any place in the line.
        queue.push_ready([ready(4, true)]);
        assert_eq!(pop(&queue, 0).map(|job| job.number), Some(4));
        assert_eq!(pop(&queue, 0), None);
        // Threads that read always take samples that only they can decode.
        queue.push_ready([Job { allowed: ClassSet::only(0), cpu_may: false, ..job(0, 5) }]);
        assert_eq!(pop(&queue, 0).map(|job| job.number), Some(5));
    }

    #[test]
    fn who_read_a_sample_decodes_it_where_engines_may_not() {
        let queue = two_gpus(2);
        let alone = |number| Job { engines_may: false, ..job(0, number) };
        (0..3).for_each(|number| queue.push(alone(number)));
        for number in 0..3 {
            let fresh = pop(&queue, 0).unwrap();
            assert_eq!((fresh.number, fresh.bytes), (number, 0), "nothing waits: the next is read");
            queue.push_ready([read(fresh, 10)]);
            assert_eq!(pop(&queue, 1), None);
            let own = pop(&queue, 0).unwrap();
            assert_eq!((own.number, own.bytes), (number, 10));
        }
        // Engines always take samples that only they can decode, and no more of these are read than they can take at
        // once.
        (3..9).for_each(|number| queue.push(alone(number)));
        for number in 3..5 {
            let job = pop(&queue, 0).unwrap();
            assert_eq!(job.number, number);
            queue.push_ready([Job { allowed: ClassSet::only(1), ..read(job, 10) }]);
        }
        assert_eq!(pop(&queue, 0), None);
        assert_eq!(pop(&queue, 1).map(|job| job.number), Some(3));
        assert_eq!(pop(&queue, 0).map(|job| job.number), Some(5));
    }

    /// A thread sleeps while samples wait that it may not take, and is woken when it may.
    #[test]
    fn a_thread_that_may_help_now_is_woken() {
        use std::sync::atomic::AtomicBool;

        #[derive(Debug)]
        struct Shared<'a>(&'a AtomicBool);
        impl Queued for Shared<'_> {
            fn allowed(&self) -> ClassSet {
                ClassSet::ALL
            }
            fn encoded_bytes(&self) -> u64 {
                10
            }
            fn lane(&self) -> usize {
                0
            }
            fn cpu_may(&self) -> bool {
                self.0.load(Ordering::Relaxed)
            }
            fn engines_may(&self) -> bool {
                self.0.load(Ordering::Relaxed)
            }
        }
        let may = AtomicBool::new(false);
        let queue = Queue::new(&[class(true, 1), class(false, 1)], vec![0, 0], vec![0]);
        queue.push_ready([Shared(&may), Shared(&may)]);
        std::thread::scope(|scope| {
            let helpers = [0, 1].map(|class| {
                scope.spawn({
                    let queue = &queue;
                    move || queue.pop(class, 0, true).is_some()
                })
            });
            // Whether they sleep already or check later, each gets one.
            may.store(true, Ordering::Relaxed);
            queue.urge();
            assert!(helpers.map(|helper| helper.join().unwrap()) == [true; 2]);
        });
    }

    #[test]
    fn bytes_that_wait_are_counted_for_each_device_and_forgotten_with_their_stream() {
        let queue = two_gpus(100);
        (0..2).for_each(|lane| (0..9).for_each(|number| queue.push(job(lane, number))));
        queue.push_ready([read(job(0, 100), READY_BYTES)]);
        // The first device has as many bytes as it may have.
        let taken: Vec<_> = (0..9).map(|_| pop(&queue, 0).unwrap().lane).collect();
        assert_eq!(taken, [1; 9]);
        queue.push_ready([Job { allowed: ClassSet::only(0), bytes: READY_BYTES, ..job(1, 200) }]);
        queue.push(job(1, 9));
        assert_eq!(pop(&queue, 0).unwrap().number, 200, "only threads that read can do it");
        assert_eq!(pop(&queue, 0).unwrap(), job(1, 9), "its bytes are gone");
        queue.forget(|job| job.lane == 0 && job.number == 100);
        assert_eq!(pop(&queue, 0).unwrap(), job(0, 0), "so are those of a stream that is gone");
        assert_eq!(queue.len(), 8);
        queue.close();
        assert_eq!((queue.len(), pop(&queue, 0)), (0, None));
    }
}
