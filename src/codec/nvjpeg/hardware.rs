//! The thread of the JPEG engines.
//!
//! ```text
//! submit ─▶ waiting ─ parse, copy ─▶ batch ─ full, or nothing else to do ─▶ flight (two at most) ─▶ finished
//!              └ refused: elsewhere    └ fails: all of it elsewhere
//! ```

use std::{
    collections::VecDeque,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use super::{
    order::{Retire, Target, with_outcome},
    plan::FLIGHTS,
    route::kind,
};
use crate::{
    codec::{
        ClassSet, Finished, Job, Outcome, Wait, Worker,
        cuda_raw::{NAP, NAPS, of_device, tables},
    },
    error::{Error, Result},
    report::Stage,
    sys::{
        cuda::{Kernels, Ticket},
        kernels::ResampleParams,
        nvjpeg::{Failure, Hardware, HardwareSize, Staged},
    },
    transform::Lowered,
};

/// So many batches that fail one after another are no accident of their images.
const MOST_FAILURES: u32 = 3;

/// A worker, or the reason why the GPU has no engines after all.
pub(super) fn open(
    kernels: &Arc<Kernels>,
    size: HardwareSize,
    programs: &[Option<Lowered>],
    target: Target,
    elsewhere: ClassSet,
    retire: Retire,
) -> Result<Result<Box<dyn Worker>, String>> {
    let engines = match Hardware::open(kernels, size, &tables(programs))? {
        Ok(engines) => engines,
        Err(reason) => return Ok(Err(reason)),
    };
    Ok(Ok(Box::new(HardwareWorker {
        engines,
        images: size.images,
        target,
        elsewhere,
        retire,
        waiting: VecDeque::new(),
        batch: Vec::new(),
        flights: VecDeque::new(),
        finished: Vec::new(),
        failures: 0,
        health: Health::Good,
    })))
}

#[derive(Debug)]
struct HardwareWorker {
    engines: Hardware,
    /// Images of a full batch.
    images: usize,
    target: Target,
    elsewhere: ClassSet,
    retire: Retire,
    /// Jobs that came while the batch was full.
    waiting: VecDeque<Job>,
    batch: Vec<Taken>,
    flights: VecDeque<Flight>,
    finished: Vec<Finished>,
    /// Batches that failed since the last good one.
    failures: u32,
    health: Health,
}

#[derive(Debug)]
enum Health {
    Good,
    /// The engines fail whatever they get.
    GaveUp,
    /// Nothing on the GPU works.
    Lost(Error),
}

/// A job in the batch.
#[derive(Debug)]
struct Taken {
    job: Job,
    /// Its number in the batch of the engines.
    image: usize,
    params: ResampleParams,
    /// Time spent on it.
    decode: Duration,
}

#[derive(Debug)]
struct Flight {
    ticket: Ticket,
    jobs: Vec<Finished>,
}

impl Worker for HardwareWorker {
    fn submit(&mut self, job: Job) {
        match &self.health {
            Health::Good => {
                self.waiting.push_back(job);
                self.work(false);
            }
            Health::GaveUp => self.finished.push(with_outcome(job, &Outcome::Elsewhere(self.elsewhere))),
            Health::Lost(error) => self.finished.push(with_outcome(job, &Outcome::Failed(error.clone()))),
        }
    }

    fn poll(&mut self, wait: Wait) -> Vec<Finished> {
        self.land();
        // Whoever asks to wait has no more work for now: the batch goes as it is.
        self.work(wait == Wait::Block);
        if wait == Wait::Block && self.finished.is_empty() {
            self.wait();
            self.land();
            self.work(false);
        }
        std::mem::take(&mut self.finished)
    }
}

impl HardwareWorker {
    /// Fills the batch and launches it when it is full, or when it holds something and `now` is set.
    fn work(&mut self, now: bool) {
        loop {
            let full = self.fill();
            let ready = full || now && !self.batch.is_empty();
            if !ready || self.flights.len() >= FLIGHTS {
                return;
            }
            self.launch();
        }
    }

    /// Puts jobs into the batch while they fit. Whether it is full.
    fn fill(&mut self) -> bool {
        while let Some(job) = self.waiting.pop_front() {
            let start = Instant::now();
            let Some(order) = self.target.order(&job) else {
                self.give_away(job);
                continue;
            };
            let staged = order.map(|order| {
                let needed = order.params.y.reads(self.target.lowered.row().height);
                // A file with restart markers has more of them than a cut image should: not every decoder likes that.
                let rows = if order.header.has_restarts() {
                    order.coded.height
                } else {
                    order.header.enough_rows(needed.end).into()
                };
                let kind = kind(order.header).unwrap_or(u8::MAX);
                (self.engines.stage(&order.coded, rows, kind), order.params)
            });
            match staged {
                Ok((Ok(Staged::Taken(image)), params)) => {
                    self.batch.push(Taken { job, image, params, decode: start.elapsed() });
                    if self.batch.len() >= self.images {
                        return true;
                    }
                }
                Ok((Ok(Staged::Full), _)) => {
                    self.waiting.push_front(job);
                    return true;
                }
                Ok((Ok(Staged::Refused(why)), _)) => {
                    tracing::trace!(record = job.items[0].record, why = %format!("{why:#}"), "not for the engines");
                    self.give_away(job);
                }
                Ok((Err(failure), _)) => {
                    self.waiting.push_front(job);
                    self.fail(failure, Vec::new());
                    return false;
                }
                Err(error) => self.finished.push(with_outcome(job, &Outcome::Failed(error))),
            }
        }
        false
    }

    fn launch(&mut self) {
        let start = Instant::now();
        if let Err(failure) = self.engines.decode() {
            return self.fail(failure, Vec::new());
        }
        let count = self.batch.len() as u32;
        let decode = start.elapsed() / count.max(1);
        let start = Instant::now();
        let mut jobs: Vec<Finished> = Vec::with_capacity(self.batch.len());
        for taken in self.batch.drain(..) {
            let Target { field, table, lowered } = &self.target;
            let out = &taken.job.rows[*field];
            let done = self.engines.resample(taken.image, &taken.params, *table, lowered.row(), out, 0);
            let outcome = done.map_or_else(|error| Outcome::Failed(of_device(error)), |()| Outcome::Done);
            let finished = with_outcome(taken.job, &outcome);
            jobs.push(Finished { decode: taken.decode + decode, ..finished });
        }
        let launched = self.engines.launch();
        let transform = start.elapsed() / count.max(1);
        jobs.iter_mut().for_each(|job| job.transform = transform);
        match launched {
            Ok(ticket) => {
                self.failures = 0;
                self.flights.push_back(Flight { ticket, jobs });
            }
            Err(failure) => self.fail(failure, jobs),
        }
    }

    /// No row of the batch was made; `jobs` were taken out of it already.
    fn fail(&mut self, failure: Failure, jobs: Vec<Finished>) {
        let staged = self.batch.drain(..).map(|taken| taken.job);
        let jobs: Vec<Job> = jobs.into_iter().map(|finished| finished.job).chain(staged).collect();
        match failure {
            Failure::Lost(error) => self.lose(error, jobs),
            Failure::Images(error) => {
                let words = format!("{error:#}");
                tracing::debug!(images = jobs.len(), error = words, "a batch failed on the JPEG engines");
                jobs.into_iter().for_each(|job| self.give_away(job));
                self.failures += 1;
                if self.failures >= MOST_FAILURES {
                    let batches = self.failures;
                    tracing::warn!(batches, error = words, "the JPEG engines fail again and again; going on without");
                    self.health = Health::GaveUp;
                    self.retire.now();
                    while let Some(job) = self.waiting.pop_front() {
                        self.give_away(job);
                    }
                }
            }
        }
    }

    /// Nothing works any more: all jobs in hand fail, and all that come.
    fn lose(&mut self, error: Error, jobs: Vec<Job>) {
        let error = of_device(error).at_stage(Stage::Decode);
        let flights = self.flights.drain(..).flat_map(|flight| flight.jobs).map(|finished| finished.job);
        let all = flights.chain(jobs).chain(self.waiting.drain(..));
        self.finished.extend(all.map(|job| with_outcome(job, &Outcome::Failed(error.clone()))));
        self.health = Health::Lost(error);
    }

    fn give_away(&mut self, job: Job) {
        self.finished.push(with_outcome(job, &Outcome::Elsewhere(self.elsewhere)));
    }

    /// Takes what is done.
    fn land(&mut self) {
        while let Some(flight) = self.flights.front() {
            match self.engines.is_done(flight.ticket) {
                Ok(false) => return,
                Ok(true) => {
                    let Some(Flight { mut jobs, .. }) = self.flights.pop_front() else { return };
                    if let Some(first) = jobs.first_mut() {
                        first.device = self.engines.take_times();
                    }
                    self.finished.append(&mut jobs);
                }
                Err(error) => return self.lose(error, Vec::new()),
            }
        }
    }

    /// Waits for the oldest flight; only shortly when more jobs can be taken, which may come at any time.
    fn wait(&mut self) {
        let Some(ticket) = self.flights.front().map(|flight| flight.ticket) else { return };
        let in_hand = self.waiting.len() + self.batch.len();
        if self.flights.len() >= FLIGHTS && in_hand >= self.images {
            // A failure shows again when the launch is asked about.
            let _ = self.engines.wait(ticket);
            return;
        }
        for _ in 0..NAPS {
            match self.engines.is_done(ticket) {
                Ok(false) => thread::sleep(NAP),
                Ok(true) | Err(_) => return,
            }
        }
    }
}
