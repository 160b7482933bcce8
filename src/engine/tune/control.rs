//! Computes the values of `auto` settings from measurements: a state machine without a clock, locks or threads.

use std::time::Duration;

use infeed_core::report::{TuneDecision, TuneReason, Tuned};

/// Length of a window; a shorter one would measure the scheduler. A trial costs at most one window at another setting.
const WINDOW: Duration = Duration::from_millis(500);
/// If work is slow, a window waits for its jobs and steps: up to this time for a few of them,
const LONG: Duration = Duration::from_secs(5);
/// and up to this time for at least one.
const LONGEST: Duration = Duration::from_secs(20);
/// Jobs of each thread, and steps, in a window: enough for a meaningful mean.
const ENOUGH: u64 = 8;
/// If there was no measurement for this time, the machine was suspended, and the interval is ignored.
const GAP: Duration = Duration::from_secs(2);
/// Time after a change until its first job is done. Longer with long jobs.
const SETTLE: Duration = Duration::from_millis(100);

/// Below this share of the time the trainer counts as not waiting: that is an AU of 99 %, our goal.
const FED: f64 = 0.01;
/// From this share on it counts as waiting. Between the two nothing is changed.
const HUNGRY: f64 = 0.02;
/// If threads are busy for this share of the time, the trainer waits for them.
const BUSY: f64 = 0.85;
/// Threads that are busy for this share of the time count as never idle.
const FULL: f64 = 0.97;
/// If there was no room for another batch for this share of the time and threads were idle, more batches ahead may
/// help.
const BLOCKED: f64 = 0.3;
/// If threads wait for files for less than this share of their time, more threads bring little.
const READING: f64 = 0.05;
/// From this share on the files are on a network: many times more threads are needed, and each step takes long.
const FAR: f64 = 0.9;
/// If a computing thread gets less than this share of a core, it shares the core. (Virtual machines take a few
/// percent.)
const CROWDED: f64 = 0.9;
/// A smaller rise does not count: three times the difference between two runs on a quiet machine.
const RISE: f64 = 0.03;
/// Loss that a trial of fewer threads may have if cores are free, because it saves threads.
const LOSS: f64 = 0.01;
/// Threads kept for each one that is needed: a reserve if cores are free, almost none if the trainer needs the cores.
const RESERVE: f64 = 1.5;
const NO_RESERVE: f64 = 1.15;
/// A change without a gain is tried again after this time, then after twice the time, …
const FIRST_PAUSE: Duration = Duration::from_secs(8);
/// The same for a trial of fewer threads on free cores, which saves little.
const LAZY_PAUSE: Duration = Duration::from_secs(30);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// Batches ahead that were not needed for this time are given up.
const UNUSED: Duration = Duration::from_secs(60);

/// The start and the limits of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) start: usize,
    pub(crate) least: usize,
    pub(crate) most: usize,
}

impl Range {
    /// A fixed number.
    pub(crate) const fn fixed(n: usize) -> Self {
        Self { start: n, least: n, most: n }
    }

    pub(crate) const fn is_fixed(&self) -> bool {
        self.least >= self.most
    }
}

/// The settings to adjust.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope {
    /// Cores that this process may use, the limit of computing threads.
    pub(crate) cores: usize,
    /// Whether threads wait for files, so that more threads than cores may help.
    pub(crate) reads: bool,
    /// Whether decoding only computes. With a GPU it also waits, so processor time does not show crowded cores.
    pub(crate) computes: bool,
    pub(crate) workers: Range,
    pub(crate) prefetch: Range,
}

/// Sums since a stream began.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sums {
    /// Since the stream began.
    pub(super) at: Duration,
    /// Batches that the trainer took.
    pub(super) batches: u64,
    /// Rows made, and the number of their jobs.
    pub(super) rows: u64,
    pub(super) jobs: u64,
    /// The trainer's waits for unfinished batches, without the first batch, including the current wait.
    pub(super) waited: Duration,
    /// Time in which no batch could be begun because the limit of batches ahead was reached.
    pub(super) blocked: Duration,
    /// How often all batches ahead were finished, and later none was finished when the trainer polled.
    pub(super) swings: u64,
    /// Time of decode threads in jobs, all threads together,
    pub(super) worked: Duration,
    /// the part of it in which they read files, and the processor time of that part,
    pub(super) read: Duration,
    pub(super) read_cpu: Duration,
    /// and the part in which they decoded and transformed.
    pub(super) made: Duration,
    pub(super) made_cpu: Duration,
    /// Processor time of the whole process; zero if the system does not report it.
    pub(super) cpu: Duration,
}

impl Sums {
    fn with(&self, other: &Self, time: fn(Duration, Duration) -> Duration, count: fn(u64, u64) -> u64) -> Self {
        Self {
            at: time(self.at, other.at),
            batches: count(self.batches, other.batches),
            rows: count(self.rows, other.rows),
            jobs: count(self.jobs, other.jobs),
            waited: time(self.waited, other.waited),
            blocked: time(self.blocked, other.blocked),
            swings: count(self.swings, other.swings),
            worked: time(self.worked, other.worked),
            read: time(self.read, other.read),
            read_cpu: time(self.read_cpu, other.read_cpu),
            made: time(self.made, other.made),
            made_cpu: time(self.made_cpu, other.made_cpu),
            cpu: time(self.cpu, other.cpu),
        }
    }

    /// The difference to `earlier`; zero if a clock went backwards.
    fn since(&self, earlier: &Self) -> Self {
        self.with(earlier, Duration::saturating_sub, u64::saturating_sub)
    }

    fn plus(&self, more: &Self) -> Self {
        self.with(more, Duration::saturating_add, u64::saturating_add)
    }
}

/// A measurement, ten times a second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Look {
    pub(super) sums: Sums,
    /// Whether the trainer waits now.
    pub(super) polling: bool,
    /// Finished batches that were not taken; and the fewest of them at a poll of the trainer since the last
    /// measurement.
    pub(super) finished: u64,
    pub(super) fewest: Option<u64>,
    /// Whether other streams of the loader run.
    pub(super) shared: bool,
}

/// The figures of a window.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    /// Share of the time in which the trainer waited, and in which no batch could be begun.
    wait: f64,
    blocked: f64,
    /// Threads at work on average, and as a share of the active threads.
    threads: f64,
    busy: f64,
    /// The part of their work in which they wait for files.
    reading: f64,
    /// The share of a core that a thread gets while it computes.
    core: f64,
    crowded: bool,
    /// Rows a second.
    rate: f64,
    swings: u64,
}

impl Figures {
    fn new(window: &Sums, workers: usize, scope: &Scope) -> Self {
        let time = window.at.as_secs_f64().max(1e-9);
        let share = |part: Duration, whole: f64| if whole > 0.0 { (part.as_secs_f64() / whole).min(1.0) } else { 0.0 };
        let threads = window.worked.as_secs_f64() / time;
        let (worked, made) = (window.worked.as_secs_f64(), window.made.as_secs_f64());
        // With little work, or without processor times, assume that cores are free.
        let known = scope.computes && made > 0.05 * worked && !window.made_cpu.is_zero();
        let core = if known { share(window.made_cpu, made).max(0.05) } else { 1.0 };
        // A thread also computes while it reads, and waits for cores there, too.
        let reads = if scope.reads && !window.cpu.is_zero() { window.read } else { Duration::ZERO };
        let reading = reads.saturating_sub(window.read_cpu.div_f64(core));
        let cores_used = window.cpu.as_secs_f64() / time;
        Self {
            wait: share(window.waited, time),
            blocked: share(window.blocked, time),
            threads,
            busy: (threads / workers.max(1) as f64).min(1.0),
            reading: share(reading, worked),
            core,
            crowded: core < CROWDED || cores_used >= CROWDED * scope.cores as f64,
            rate: window.rows as f64 / time,
            swings: window.swings,
        }
    }

    /// Threads that the same work would need if it had the cores to itself.
    fn needed(&self) -> f64 {
        self.threads * (self.reading + (1.0 - self.reading) * self.core)
    }

    /// The part of their time in which they would then compute.
    fn computing(&self) -> f64 {
        let computes = (1.0 - self.reading) * self.core;
        computes / (self.reading + computes).max(f64::MIN_POSITIVE)
    }
}

/// A value that was tried without a gain.
#[derive(Clone, Copy, Debug, Default)]
struct Barrier {
    at: usize,
    until: Duration,
    pause: Duration,
}

impl Barrier {
    /// Closes `at` for twice as long as the last time, or for `first`.
    fn close(&mut self, at: usize, now: Duration, first: Duration) {
        let pause = if self.pause.is_zero() { first } else { (self.pause * 2).min(LONGEST_PAUSE) };
        *self = Self { at, until: now + pause, pause };
    }

    /// Closes `at` for exactly this time.
    fn hold(&mut self, at: usize, now: Duration, pause: Duration) {
        self.at = at;
        self.until = now + pause;
    }

    fn at(&self, now: Duration) -> Option<usize> {
        (now < self.until).then_some(self.at)
    }
}

/// A change on trial.
#[derive(Clone, Copy, Debug)]
struct Trial {
    kind: StepKind,
    from: usize,
    to: usize,
    /// Rows a second before it, and their variation from window to window as a share.
    rate: f64,
    spread: f64,
    /// Windows since the change.
    windows: u32,
}

impl Trial {
    const fn new(kind: StepKind, [from, to]: [usize; 2], rate: f64, spread: f64) -> Self {
        Self { kind, from, to, rate, spread, windows: 0 }
    }

    /// Whether the rate rose by more than two windows differ.
    fn rose(&self, figures: &Figures) -> bool {
        figures.rate > self.rate * (1.0 + RISE.max(2.0 * self.spread))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StepKind {
    /// Fewer workers, while the trainer does not wait: it must not begin to wait.
    Spare,
    /// More workers, while the trainer waits: the rate must rise.
    More,
    /// Fewer workers, while the trainer waits: the rate must not fall.
    Fewer,
    /// More batches ahead, while the trainer waits: the rate must rise.
    Deeper,
}

/// The setting to change, its new value, and the reason.
type Change = (Tuned, usize, TuneReason);

/// Rates of the last windows in which the trainer waited, with these settings.
#[derive(Clone, Copy, Debug, Default)]
struct Rates {
    last: [f64; 4],
    count: usize,
}

impl Rates {
    fn add(&mut self, rate: f64) {
        self.last[self.count % self.last.len()] = rate;
        self.count += 1;
    }

    fn known(&self) -> &[f64] {
        &self.last[..self.count.min(self.last.len())]
    }

    fn mean(&self) -> f64 {
        let known = self.known();
        known.iter().sum::<f64>() / known.len().max(1) as f64
    }

    /// Deviation of a rate from the mean, as a share of the mean.
    fn spread(&self) -> f64 {
        let (mean, known) = (self.mean(), self.known());
        let off: f64 = known.iter().map(|rate| (rate - mean).abs()).sum();
        if mean > 0.0 { off / known.len().max(1) as f64 / mean } else { 0.0 }
    }
}

/// A pause after a change, because the first measurements still show the time before it.
#[derive(Clone, Copy, Debug)]
struct Settling {
    jobs: u64,
    time: Duration,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Tuner {
    scope: Scope,
    workers: usize,
    prefetch: usize,
    /// Measured time.
    now: Duration,
    last: Option<Sums>,
    window: Sums,
    /// The fewest finished batches in the window, and since the trainer last waited.
    fewest: Option<u64>,
    fewest_calm: Option<u64>,
    settling: Option<Settling>,
    trial: Option<Trial>,
    rates: Rates,
    /// The smallest share of waiting for files in one of these windows.
    reading: f64,
    /// Windows, and time, without waits; and the threads that were needed in the last such window.
    calm: u32,
    calm_for: Duration,
    needed: f64,
    /// The best rate since the first of several steps to fewer workers.
    best: f64,
    /// Whether fewer workers were as good; and whether the last step was better.
    held: bool,
    keen: bool,
    /// Stay above this number of workers; stay below this one.
    floor: Barrier,
    ceiling: Barrier,
    /// As `floor`, for trials of fewer workers while the trainer waits. A trial without a gain closes both, see
    /// `too_few`.
    sparing: Barrier,
    /// As `floor` and `ceiling`, for batches ahead; and the number after the last reduction of unneeded batches.
    shallow: Barrier,
    deep: Barrier,
    gave_up: Option<usize>,
    /// The number of workers at the end of the previous stream.
    learned: Option<usize>,
}

impl Tuner {
    pub(super) fn new(scope: Scope) -> Self {
        Self {
            workers: scope.workers.start,
            prefetch: scope.prefetch.start,
            scope,
            now: Duration::ZERO,
            last: None,
            window: Sums::default(),
            fewest: None,
            fewest_calm: None,
            settling: None,
            trial: None,
            rates: Rates::default(),
            reading: 1.0,
            calm: 0,
            calm_for: Duration::ZERO,
            needed: 0.0,
            best: 0.0,
            held: false,
            keen: false,
            floor: Barrier::default(),
            ceiling: Barrier::default(),
            sparing: Barrier::default(),
            shallow: Barrier::default(),
            deep: Barrier::default(),
            gave_up: None,
            learned: None,
        }
    }

    pub(super) const fn workers(&self) -> usize {
        self.workers
    }

    pub(super) const fn prefetch(&self) -> usize {
        self.prefetch
    }

    /// A new stream begins: all threads make its first batches, even if fewer are enough afterwards.
    pub(super) fn begin(&mut self) {
        // A trial ends with its stream, without a result.
        if let Some(trial) = self.trial.take().filter(|trial| trial.kind != StepKind::Deeper) {
            self.workers = trial.from;
        }
        if self.workers < self.scope.workers.start {
            self.learned = Some(self.workers);
            self.workers = self.scope.workers.start;
            self.window = Sums::default();
        }
        self.last = None;
        self.settling = None;
        self.calm = 0;
    }

    /// Records a change that was made, as far as there was memory for it.
    pub(super) fn reached(&mut self, decision: &TuneDecision, reached: usize) {
        let (from, to) = (decision.from, decision.to);
        let setting = match decision.what {
            Tuned::Workers => &mut self.workers,
            Tuned::Prefetch => &mut self.prefetch,
        };
        *setting = reached;
        if reached < to && decision.what == Tuned::Workers {
            self.ceiling.close(reached + 1, self.now, FIRST_PAUSE);
            self.trial = self.trial.filter(|_| reached > from);
        }
        if reached < to && decision.what == Tuned::Prefetch {
            self.scope.prefetch.most = reached.max(self.scope.prefetch.start);
        }
        let jobs = from.max(reached) as u64;
        self.settling = Some(Settling { jobs, time: Duration::ZERO });
        self.window = Sums::default();
        self.fewest = None;
    }

    /// Takes a measurement; returns the change to make now.
    pub(super) fn look(&mut self, look: &Look) -> Option<TuneDecision> {
        let sums = look.sums;
        let last = self.last.replace(sums)?;
        let step = sums.since(&last);
        if sums.at < last.at || step.at > GAP {
            self.window = Sums::default();
            return None;
        }
        // The wait for the first batch does not count.
        if last.batches == 0 {
            return None;
        }
        self.now += step.at;
        if look.shared {
            return self.together();
        }
        if let Some(settling) = &mut self.settling {
            settling.time += step.at;
            settling.jobs = settling.jobs.saturating_sub(step.jobs);
            if settling.time >= SETTLE && (settling.jobs == 0 || settling.time >= LONG) {
                self.settling = None;
            }
            return None;
        }
        self.window = self.window.plus(&step);
        let fewest = [self.fewest, look.fewest].into_iter().flatten().min();
        self.fewest = fewest;
        if !self.is_full() {
            return None;
        }
        let window = std::mem::take(&mut self.window);
        self.fewest = None;
        // The trainer did not poll.
        let paused = window.batches == 0 && (!look.polling || look.finished > 0);
        if paused {
            return None;
        }
        let figures = Figures::new(&window, self.workers, &self.scope);
        let (what, to, why) = self.decide(&figures, window.at, fewest)?;
        let from = match what {
            Tuned::Workers => self.workers,
            Tuned::Prefetch => self.prefetch,
        };
        if to == from {
            return None;
        }
        let mut decision = TuneDecision::new(what, [from, to], why);
        decision.at = sums.at;
        decision.samples_per_second = figures.rate;
        decision.waiting = figures.wait;
        decision.busy = figures.busy;
        self.rates = Rates::default();
        self.calm = 0;
        self.calm_for = Duration::ZERO;
        self.fewest_calm = None;
        Some(decision)
    }

    /// With several streams the workers are raised to their number at the start, and nothing is tried: the streams
    /// share the threads, and the waits of one do not represent the others.
    fn together(&mut self) -> Option<TuneDecision> {
        self.window = Sums::default();
        self.trial = None;
        self.calm = 0;
        let Range { start, .. } = self.scope.workers;
        (self.workers < start).then(|| {
            let mut decision = TuneDecision::new(Tuned::Workers, [self.workers, start], TuneReason::Shared);
            decision.at = self.last.unwrap_or_default().at;
            decision
        })
    }

    fn is_full(&self) -> bool {
        let window = &self.window;
        if window.at < WINDOW {
            return false;
        }
        let workers = self.workers as u64;
        let figures = Figures::new(window, self.workers, &self.scope);
        let enough = match figures.wait >= HUNGRY {
            true => window.jobs >= ENOUGH * workers,
            false => window.batches >= ENOUGH,
        };
        let some = window.batches >= 2 || window.jobs >= 2 * workers;
        enough || window.at >= LONG && some || window.at >= LONGEST
    }

    /// The change after a window of `time`.
    fn decide(&mut self, figures: &Figures, time: Duration, fewest: Option<u64>) -> Option<Change> {
        let fed = figures.wait < FED;
        let hungry = figures.wait >= HUNGRY;
        if hungry {
            // A single window may be a thread that lost its core while it read.
            self.reading = if self.rates.count == 0 { figures.reading } else { self.reading.min(figures.reading) };
            self.rates.add(figures.rate);
        }
        if fed {
            self.calm += 1;
            self.calm_for += time;
            self.fewest_calm = [self.fewest_calm, fewest].into_iter().flatten().min();
            self.held = false;
        } else {
            self.calm = 0;
            self.calm_for = Duration::ZERO;
            self.fewest_calm = None;
        }
        if let Some(trial) = self.trial.take() {
            let verdict = self.judge(trial, figures, fed, hungry);
            // One thing at a time.
            if verdict.is_some() || self.trial.is_some() {
                return verdict;
            }
        }
        if let Some(too_many) = self.more_than_cores(figures) {
            return Some(too_many);
        }
        if hungry {
            return self.deeper(figures).or_else(|| self.hungry(figures));
        }
        if !fed {
            return None;
        }
        self.spare(figures).or_else(|| self.shallower())
    }

    /// Ends a trial, or continues it.
    fn judge(&mut self, trial: Trial, figures: &Figures, fed: bool, hungry: bool) -> Option<Change> {
        let Trial { from, to, windows, .. } = trial;
        let back = (Tuned::Workers, from, TuneReason::NoGain);
        match trial.kind {
            // The trainer waits now, but makes more steps: it uses the freed cores.
            StepKind::Spare if hungry && figures.crowded && trial.rose(figures) => {
                self.held = true;
                self.best = figures.rate;
                self.ceiling.hold(to + 1, self.now, FIRST_PAUSE);
                // One step down at a time: if other programs come and go, a rate may rise by chance.
                self.sparing.hold(to.saturating_sub(1), self.now, FIRST_PAUSE);
                None
            }
            StepKind::Spare if hungry => {
                self.too_few(to, FIRST_PAUSE);
                Some((Tuned::Workers, from, TuneReason::Waited))
            }
            StepKind::Spare => {
                // Batches ahead hide a lack of threads for a while: threads that are never idle may be too few.
                let windows = if fed && figures.busy < FULL { windows + 1 } else { windows };
                self.trial = (windows < 2).then_some(Trial { windows, ..trial });
                None
            }
            StepKind::More if !hungry || trial.rose(figures) => {
                self.held &= self.workers < self.scope.workers.start;
                // The trainer waited with this number.
                self.too_few(from, FIRST_PAUSE);
                None
            }
            StepKind::More => {
                // There are now more threads than batches in work.
                if let Some(deeper) = self.lacks_room(figures) {
                    self.trial = Some(trial);
                    return Some(deeper);
                }
                self.ceiling.close(from + 1, self.now, FIRST_PAUSE);
                Some(back)
            }
            StepKind::Fewer => {
                self.keen = trial.rose(figures);
                let least = if figures.crowded { self.best } else { self.best * (1.0 - LOSS) };
                // If rates vary by more from window to window, a rate that did not fall proves nothing.
                let as_good = figures.rate >= least && trial.spread < RISE;
                if !hungry || as_good || self.keen {
                    self.best = self.best.max(figures.rate);
                    self.held = true;
                    self.ceiling.hold(to + 1, self.now, FIRST_PAUSE);
                    return None;
                }
                let pause = if figures.crowded { FIRST_PAUSE } else { LAZY_PAUSE };
                self.too_few(to, pause);
                self.best = 0.0;
                Some(back)
            }
            StepKind::Deeper if !hungry || trial.rose(figures) => None,
            StepKind::Deeper => {
                self.deep.close(to, self.now, LAZY_PAUSE);
                Some((Tuned::Prefetch, from, TuneReason::NoGain))
            }
        }
    }

    /// This number of threads was too small: for a while it is tried for neither reason. With a separate pause for each
    /// reason one trial would follow the other, and the threads would oscillate as long as the trainer waits.
    fn too_few(&mut self, workers: usize, first: Duration) {
        self.floor.close(workers, self.now, first);
        self.sparing.close(workers, self.now, first);
    }

    /// Reduces threads beyond the cores that do not wait for files.
    fn more_than_cores(&self, figures: &Figures) -> Option<Change> {
        // Threads without work give no measurement.
        if self.workers <= self.scope.workers.start || figures.threads < 0.5 {
            return None;
        }
        let most = self.worth(figures).max(self.scope.workers.start);
        // With a margin, so that a value is not tried and given up in turn.
        (self.workers > most + most / 4).then_some((Tuned::Workers, most, TuneReason::Cores))
    }

    /// The number of threads that keeps the cores busy while some of them wait: twice as many as if they waited in
    /// turn, because they wait at random.
    fn worth(&self, figures: &Figures) -> usize {
        (2.0 * self.scope.cores as f64 / figures.computing().max(0.001)).ceil() as usize
    }

    /// More batches ahead, if their number makes the trainer wait.
    fn deeper(&mut self, figures: &Figures) -> Option<Change> {
        if let Some(deeper) = self.lacks_room(figures) {
            return Some(deeper);
        }
        let more = self.twice_as_many()?;
        let idle = figures.busy < FULL && figures.blocked >= BLOCKED && self.rates.count >= 2;
        if !idle || self.deep.at(self.now).is_some_and(|barred| more >= barred) {
            return None;
        }
        let (rate, spread) = (self.rates.mean(), self.rates.spread());
        self.trial = Some(Trial::new(StepKind::Deeper, [self.prefetch, more], rate, spread));
        Some((Tuned::Prefetch, more, TuneReason::Room))
    }

    fn twice_as_many(&self) -> Option<usize> {
        let more = self.prefetch.saturating_mul(2).min(self.scope.prefetch.most);
        (more > self.prefetch).then_some(more)
    }

    /// The same in the clear case: threads are idle.
    fn lacks_room(&mut self, figures: &Figures) -> Option<Change> {
        let more = self.twice_as_many().filter(|_| figures.busy < BUSY)?;
        let why = match figures {
            // It waits most of the time, so a short stall is not the cause.
            Figures { swings: 1.., wait, .. } if *wait < 0.5 => TuneReason::Uneven,
            Figures { blocked, .. } if *blocked >= BLOCKED => TuneReason::Room,
            _ => return None,
        };
        if let Some(shallow) = self.gave_up.take() {
            self.shallow.close(shallow, self.now, UNUSED);
        }
        Some((Tuned::Prefetch, more, why))
    }

    /// The change if the trainer waits.
    fn hungry(&mut self, figures: &Figures) -> Option<Change> {
        let (now, at, range) = (self.now, self.workers, self.scope.workers);
        let to = |to, why| Some((Tuned::Workers, to, why));
        self.learned = None;
        if at < range.start && !self.held {
            // At once, without a trial: one thread per core is never wrong.
            self.too_few(at, FIRST_PAUSE);
            return to(range.start, TuneReason::Waited);
        }
        if figures.busy < BUSY {
            return None;
        }
        let (seen, rate, spread) = (self.rates.count, self.rates.mean(), self.rates.spread());
        let below = self.ceiling.at(now).map_or(usize::MAX, |ceiling| ceiling.saturating_sub(1));
        let (most, why) = match at < range.start {
            // The best number may be between two steps.
            true => ((at + (at / 8).max(1)).min(range.start), TuneReason::Waited),
            // A run on a GPU begins with fewer threads than cores, to leave cores to engines and trainer.
            false if at < self.scope.cores => (self.scope.cores, TuneReason::Waited),
            false if self.reading < READING => (at, TuneReason::Reading),
            false => {
                let times = if self.reading > FAR { 4 } else { 2 };
                (at.saturating_mul(times).min(self.worth(figures)), TuneReason::Reading)
            }
        };
        let more = most.min(range.most).min(below);
        if seen >= 2 && more > at {
            self.trial = Some(Trial::new(StepKind::More, [at, more], rate, spread));
            return to(more, why);
        }
        let fewer = at - (at / 4).max(1).min(at);
        // On free cores, fewer threads can only be as good from several threads on, which share memory and caches.
        let wait = match self.keen {
            true => 2,
            false if figures.crowded => 3,
            false => 5,
        };
        let worth_it = figures.crowded || at >= 4;
        let barred = self.sparing.at(now).is_some_and(|barred| fewer <= barred);
        if seen >= wait && worth_it && fewer >= range.least && !barred {
            // Step by step, each compared with the best of all steps: many small losses add up.
            self.best = if self.held { self.best.max(rate) } else { rate };
            self.trial = Some(Trial::new(StepKind::Fewer, [at, fewer], rate, spread));
            return to(fewer, TuneReason::Crowded);
        }
        None
    }

    /// The change if the trainer does not wait.
    fn spare(&mut self, figures: &Figures) -> Option<Change> {
        let (now, at, range) = (self.now, self.workers, self.scope.workers);
        let before = std::mem::replace(&mut self.needed, figures.needed());
        if let Some(learned) = self.learned.take().filter(|learned| *learned < at) {
            return Some((Tuned::Workers, learned, TuneReason::Started));
        }
        if self.calm < 2 || figures.swings > 0 || self.fewest_calm == Some(0) {
            return None;
        }
        let reserve = if figures.crowded { NO_RESERVE } else { RESERVE };
        // A trainer that pauses within a window needs no threads meanwhile.
        let enough = (figures.needed().max(before) * reserve).ceil() as usize;
        let floor = self.floor.at(now).map_or(0, |floor| floor + 1);
        // If cores are short, one thread less may be right even if the trainer then waits a little.
        let enough = if figures.crowded { enough.min(at - (at / 4).max(1).min(at)) } else { enough };
        // A quarter at a time; the batches ahead show whether it was right.
        let to = enough.max(at / 4).max(floor).clamp(range.least, range.most);
        if to >= at {
            return None;
        }
        self.trial = Some(Trial::new(StepKind::Spare, [at, to], figures.rate, 0.0));
        Some((Tuned::Workers, to, TuneReason::Spare))
    }

    /// Fewer batches ahead, if they were not needed for long.
    fn shallower(&mut self) -> Option<Change> {
        let (at, range) = (self.prefetch, self.scope.prefetch);
        let fewer = (at / 2).max(range.start).max(range.least);
        let needed = self.fewest_calm.is_none_or(|fewest| fewest * 4 < at as u64 * 3);
        let barred = self.shallow.at(self.now).is_some_and(|barred| fewer <= barred);
        if fewer >= at || needed || barred || self.calm_for < UNUSED {
            return None;
        }
        self.gave_up = Some(fewer);
        Some((Tuned::Prefetch, fewer, TuneReason::Unused))
    }
}
