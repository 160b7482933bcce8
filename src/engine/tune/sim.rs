//! Simulates a loader and a trainer in virtual time, to test the tuner: threads that read and compute, cores
//! and a disk that they share, batches in plan order, a bounded number of them ahead.

use std::{collections::VecDeque, time::Duration};

use infeed_core::report::{TuneDecision, Tuned};

use super::control::{Look, Scope, Sums, Tuner};

/// Times of the jobs of a pipeline, in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    /// On average; each takes half to one and a half of it.
    pub(super) mean: f64,
    /// One in this many takes this long instead.
    pub(super) rare: (u64, f64),
}

impl Cost {
    pub(super) const fn of(mean: f64) -> Self {
        Self { mean, rare: (u64::MAX, 0.0) }
    }

    fn job(&self, n: u64) -> f64 {
        let (every, slow) = self.rare;
        if n % every == every - 1 { slow } else { self.mean * (0.5 + noise(n)) }
    }
}

/// A simulated pipeline. Times in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pipe {
    pub(super) cores: f64,
    pub(super) jobs_per_batch: usize,
    /// Of a job: waiting for a file, and computing.
    pub(super) read: Cost,
    pub(super) compute: Cost,
    /// Extra computing time for each thread above a number.
    pub(super) thrash: (f64, usize),
    /// Reads that the disk serves at a time without slowing down.
    pub(super) disk: f64,
    /// The trainer's step: on the cores that the threads use, and elsewhere.
    pub(super) step_cpu: f64,
    pub(super) step_gpu: f64,
    /// Bytes of a batch come this long after those of the one before.
    pub(super) arrives: f64,
    /// Cores that other processes hold, in and out at random with this seed.
    pub(super) others: (f64, u64),
}

pub(super) const PIPE: Pipe = Pipe {
    cores: 8.0,
    jobs_per_batch: 32,
    read: Cost::of(0.0),
    compute: Cost::of(0.001),
    thrash: (0.0, 0),
    disk: f64::INFINITY,
    step_cpu: 0.0,
    step_gpu: 0.0,
    arrives: 0.0,
    others: (0.0, 0),
};

/// Seconds after which other processes may begin or end.
const TURN: f64 = 0.35;

/// 0 to 1, the same for the same number.
pub(super) fn noise(n: u64) -> f64 {
    (infeed_core::random::hash64(n) >> 11) as f64 / (1u64 << 53) as f64
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Thread {
    Idle,
    Read { batch: u64, left: f64, compute: f64 },
    Compute { batch: u64, left: f64 },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Trainer {
    Asks,
    Cpu(f64),
    Gpu(f64),
}

/// Results from one moment to the end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Went {
    pub(super) batches_per_second: f64,
    /// Share of the time that the trainer waited.
    pub(super) waited: f64,
    /// Processor time of the threads for a batch.
    pub(super) cpu: f64,
}

pub(super) struct Sim {
    pipe: Pipe,
    now: f64,
    threads: Vec<Thread>,
    trainer: Trainer,
    queue: VecDeque<u64>,
    /// Jobs left of each batch from `taken` on.
    open: VecDeque<usize>,
    taken: u64,
    begun: u64,
    jobs: u64,
    full: bool,
    sums: Sums,
    fewest: Option<u64>,
    pub(super) workers: usize,
    pub(super) prefetch: usize,
    pub(super) decisions: Vec<TuneDecision>,
    /// Added to the clock that the tuner sees.
    pub(super) clock_error: fn(f64) -> f64,
}

fn add(sum: &mut Duration, seconds: f64) {
    *sum += Duration::from_secs_f64(seconds);
}

impl Sim {
    pub(super) fn new(pipe: Pipe, workers: usize, prefetch: usize) -> Self {
        Self {
            pipe,
            now: 0.0,
            threads: vec![Thread::Idle; workers],
            trainer: Trainer::Asks,
            queue: VecDeque::new(),
            open: VecDeque::new(),
            taken: 0,
            begun: 0,
            jobs: 0,
            full: false,
            sums: Sums::default(),
            fewest: None,
            workers,
            prefetch,
            decisions: Vec::new(),
            clock_error: |_| 0.0,
        }
    }

    fn finished(&self) -> u64 {
        self.open.iter().filter(|left| **left == 0).count() as u64
    }

    /// All events that take no time.
    fn settle(&mut self) {
        // Threads above the number that works end their job.
        self.threads.resize(self.threads.len().max(self.workers), Thread::Idle);
        loop {
            let arrived = self.begun as f64 * self.pipe.arrives <= self.now;
            if ((self.begun - self.taken) as usize) < self.prefetch && arrived {
                self.open.push_back(self.pipe.jobs_per_batch);
                self.queue.extend(std::iter::repeat_n(self.begun, self.pipe.jobs_per_batch));
                self.begun += 1;
                continue;
            }
            let idle = self.threads[..self.workers].iter().position(|thread| *thread == Thread::Idle);
            if let (Some(thread), Some(batch)) = (idle, self.queue.front().copied()) {
                self.queue.pop_front();
                let (each, above) = self.pipe.thrash;
                let busy = self.threads.iter().filter(|thread| **thread != Thread::Idle).count();
                let thrash = 1.0 + each * busy.saturating_sub(above) as f64;
                let (read, compute) = (self.pipe.read.job(self.jobs), self.pipe.compute.job(self.jobs) * thrash);
                self.jobs += 1;
                self.threads[thread] = Thread::Read { batch, left: read, compute };
                continue;
            }
            if self.trainer == Trainer::Asks && self.open.front() == Some(&0) {
                self.open.pop_front();
                self.taken += 1;
                self.sums.batches += 1;
                self.trainer = Trainer::Cpu(self.pipe.step_cpu);
                continue;
            }
            return;
        }
    }

    /// The trainer's step is over.
    fn asks(&mut self) {
        let finished = self.finished();
        self.fewest = Some(self.fewest.map_or(finished, |fewest| fewest.min(finished)));
        if finished >= (self.prefetch as u64).saturating_sub(1).max(1) {
            self.full = true;
        }
        if finished == 0 && std::mem::take(&mut self.full) {
            self.sums.swings += 1;
        }
        self.trainer = Trainer::Asks;
    }

    /// Cores that other processes hold now, and until when.
    fn held(&self) -> (f64, f64) {
        let (most, seed) = self.pipe.others;
        if most <= 0.0 {
            return (0.0, f64::INFINITY);
        }
        // Never stuck before the end of a turn by a rounding.
        let turn = ((self.now + 1e-9) / TURN).floor();
        (most * noise(seed.wrapping_mul(1 << 20).wrapping_add(turn as u64)), (turn + 1.0) * TURN)
    }

    /// Advances to the next event, at most to `end`.
    fn advance(&mut self, end: f64) {
        self.settle();
        let computing = self.threads.iter().filter(|thread| matches!(thread, Thread::Compute { .. })).count()
            + usize::from(matches!(self.trainer, Trainer::Cpu(_)));
        let reading = self.threads.iter().filter(|thread| matches!(thread, Thread::Read { .. })).count();
        let (held, until) = self.held();
        let core = ((self.pipe.cores - held) / computing.max(1) as f64).min(1.0);
        let disk = (self.pipe.disk / reading.max(1) as f64).min(1.0);
        let mut step = end.min(until) - self.now;
        for thread in &self.threads {
            step = match *thread {
                Thread::Idle => step,
                Thread::Read { left, .. } => step.min(left / disk),
                Thread::Compute { left, .. } => step.min(left / core),
            };
        }
        step = match self.trainer {
            Trainer::Asks => step,
            Trainer::Cpu(left) => step.min(left / core),
            Trainer::Gpu(left) => step.min(left),
        };
        let may_begin = ((self.begun - self.taken) as usize) < self.prefetch;
        if may_begin {
            step = step.min((self.begun as f64 * self.pipe.arrives - self.now).max(0.0));
        }
        self.now += step;
        add(&mut self.sums.at, step);
        if !may_begin {
            add(&mut self.sums.blocked, step);
        }
        // The rest of a time that has passed is rounding.
        let over = |left: f64| left < 1e-9;
        for thread in &mut self.threads {
            match thread {
                Thread::Idle => {}
                Thread::Read { left, batch, compute } => {
                    *left -= step * disk;
                    add(&mut self.sums.worked, step);
                    add(&mut self.sums.read, step);
                    if over(*left) {
                        *thread = Thread::Compute { batch: *batch, left: *compute };
                    }
                }
                Thread::Compute { left, batch } => {
                    *left -= step * core;
                    add(&mut self.sums.worked, step);
                    add(&mut self.sums.made, step);
                    add(&mut self.sums.made_cpu, step * core);
                    add(&mut self.sums.cpu, step * core);
                    if over(*left) {
                        self.open[(*batch - self.taken) as usize] -= 1;
                        (self.sums.jobs, self.sums.rows) = (self.sums.jobs + 1, self.sums.rows + 8);
                        *thread = Thread::Idle;
                    }
                }
            }
        }
        match &mut self.trainer {
            Trainer::Asks if self.sums.batches > 0 => add(&mut self.sums.waited, step),
            Trainer::Asks => {}
            Trainer::Cpu(left) => {
                *left -= step * core;
                add(&mut self.sums.cpu, step * core);
                if over(*left) {
                    self.trainer = Trainer::Gpu(self.pipe.step_gpu);
                }
            }
            Trainer::Gpu(left) => {
                *left -= step;
                if over(*left) {
                    self.asks();
                }
            }
        }
    }

    pub(super) fn look(&mut self) -> Look {
        let at = Duration::from_secs_f64((self.now + (self.clock_error)(self.now)).max(0.0));
        Look {
            sums: Sums { at, ..self.sums },
            polling: self.trainer == Trainer::Asks,
            finished: self.finished(),
            fewest: self.fewest.take(),
            shared: false,
        }
    }

    /// Runs until `end`, looked at by a tuner if there is one.
    pub(super) fn run(&mut self, end: f64, tuner: &mut Option<Tuner>) -> Went {
        let before = (self.now, self.sums);
        while self.now < end {
            let next = (self.now + 0.1).min(end);
            while self.now < next {
                self.advance(next);
            }
            let Some(tuner) = tuner else { continue };
            let look = self.look();
            let Some(decision) = tuner.look(&look) else { continue };
            match decision.what {
                Tuned::Workers => self.workers = decision.to,
                Tuned::Prefetch => self.prefetch = decision.to,
            }
            self.decisions.push(decision);
            tuner.reached(&decision, decision.to);
        }
        let (time, batches) = (self.now - before.0, (self.sums.batches - before.1.batches) as f64);
        Went {
            batches_per_second: batches / time,
            waited: (self.sums.waited - before.1.waited).as_secs_f64() / time,
            cpu: (self.sums.made_cpu - before.1.made_cpu).as_secs_f64() / batches.max(1.0),
        }
    }
}

/// Half a minute to settle, then the results of the next half minute.
pub(super) fn tuned(pipe: Pipe, scope: Scope) -> (Sim, Went) {
    let mut sim = Sim::new(pipe, scope.workers.start, scope.prefetch.start);
    let mut tuner = Some(Tuner::new(scope));
    sim.run(30.0, &mut tuner);
    let went = sim.run(60.0, &mut tuner);
    (sim, went)
}

/// The same with fixed settings.
pub(super) fn fixed(pipe: Pipe, workers: usize, prefetch: usize) -> Went {
    let mut sim = Sim::new(pipe, workers, prefetch);
    sim.run(2.0, &mut None);
    sim.run(14.0, &mut None)
}
