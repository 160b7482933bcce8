//! Workers that decode in batches: on the JPEG engines, or on the GPU's cores.
//!
//! ```text
//! submit ─▶ waiting ─ copy, read the header ─▶ batch ─ full, or nothing else to do ─▶ flight (two at most) ─▶ finished
//!              │                                 │ fails                                  └ not written: other class
//!              │                                 ├ files were cut: retry with whole files
//!              └ refused: other class            └ otherwise: other class, for the whole batch
//! ```
//!
//! Only the rows down to the last of the crop are decoded: the height is reduced in the copy of the file that the
//! engines get, so the file has data after its last block. No documentation guarantees that engines accept this. So if
//! a batch of cut files fails, it is retried with whole files. If the retry works for two batches (one may be chance),
//! all later files are whole.

use std::{
    collections::VecDeque,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use infeed_core::{
    error::{Error, ErrorKind, Result},
    report::Stage,
};
use infeed_pixels::{
    codec::{ClassSet, Finished, Job, Outcome, Wait, Worker},
    kernels::{RowScratch, RowWork},
    transform::Lowered,
};

use super::{
    order::{Order, Retire, Target, with_outcome},
    plan::FLIGHTS,
};
use crate::{
    cuda::{Kernels, Ticket},
    decoders::cuda_raw::{NAP, NAPS, of_device, tables},
    nvjpeg::{BatchDecoder, Failure, Hardware, HardwareSize, Staged},
};

/// After this many failed batches in a row, the images are not to blame: the engines are given up.
const MOST_FAILURES: u32 = 3;

/// After this many batches that fail with cut files and work with whole ones, files are not cut any more.
const MOST_TRIALS: u32 = 2;

/// The configuration of a worker.
#[derive(Debug)]
pub(super) struct Duty {
    pub(super) decoder: BatchDecoder,
    pub(super) size: HardwareSize,
    pub(super) steps: RowScratch,
    pub(super) target: Target,
    pub(super) elsewhere: ClassSet,
    pub(super) retire: Retire,
    /// Whether files are cut after the crop's last row.
    pub(super) cut: bool,
}

/// Makes a worker. The inner error is the reason why the GPU has no engines.
pub(super) fn open(
    kernels: &Arc<Kernels>,
    programs: &[Option<Lowered>],
    duty: Duty,
) -> Result<Result<Box<dyn Worker>, String>> {
    let engines = match Hardware::open(kernels, duty.decoder, duty.size, duty.steps, &tables(programs))? {
        Ok(engines) => engines,
        Err(reason) => return Ok(Err(reason)),
    };
    let cut = if duty.cut { Cut::Yes } else { Cut::No };
    Ok(Ok(Box::new(HardwareWorker {
        engines,
        duty,
        cut,
        trials: 0,
        least_rows: 0,
        waiting: VecDeque::new(),
        batch: Vec::new(),
        flights: VecDeque::new(),
        finished: Vec::new(),
        failures: 0,
        skips: 0,
        health: Health::Good,
    })))
}

#[derive(Debug)]
struct HardwareWorker {
    engines: Hardware,
    duty: Duty,
    cut: Cut,
    /// Batches that failed with cut files and worked with whole ones.
    trials: u32,
    /// Images cut to fewer rows than this are refused, though the whole ones are not.
    least_rows: u32,
    /// Jobs that arrived while the batch was full.
    waiting: VecDeque<Job>,
    batch: Vec<Taken>,
    flights: VecDeque<Flight>,
    finished: Vec<Finished>,
    /// Failed batches since the last good one.
    failures: u32,
    /// Batches with undecoded images since the last batch without any.
    skips: u32,
    health: Health,
}

/// Whether files are cut after the crop's last row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    Yes,
    /// A batch of cut files failed: this many of its images are retried as whole files.
    Trial(usize),
    No,
}

#[derive(Debug)]
enum Health {
    Good,
    /// The engines fail for any file.
    GaveUp,
    /// Nothing on the GPU works.
    Lost(Error),
}

/// A job in the batch.
#[derive(Debug)]
struct Taken {
    job: Job,
    /// Its index in the batch of the engines.
    image: usize,
    rows: Vec<(usize, RowWork)>,
    /// Whether the file was cut.
    is_cut: bool,
    /// Time spent on it.
    decode: Duration,
}

#[derive(Debug)]
struct Flight {
    ticket: Ticket,
    jobs: Vec<Finished>,
    /// The indices of their images in the batch.
    images: Vec<usize>,
}

impl Worker for HardwareWorker {
    fn submit(&mut self, job: Job) {
        match &self.health {
            Health::Good => {
                self.waiting.push_back(job);
                self.work(false);
            }
            Health::GaveUp => self.finished.push(with_outcome(job, &Outcome::Elsewhere(self.duty.elsewhere))),
            Health::Lost(error) => self.finished.push(with_outcome(job, &Outcome::Failed(error.clone()))),
        }
    }

    fn poll(&mut self, wait: Wait) -> Vec<Finished> {
        self.land();
        // A caller that waits has no more work for now: launch the batch even if it is not full.
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
    /// Fills the batch. Launches it if it is full, or if it is not empty and `now` is set.
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

    /// Puts jobs into the batch while they fit. Returns whether it is full.
    fn fill(&mut self) -> bool {
        while let Some(job) = self.waiting.pop_front() {
            let start = Instant::now();
            let Some(order) = self.duty.target.order(&job) else {
                self.give_away(job);
                continue;
            };
            let staged = order.map(|order| {
                let height = order.coded.height;
                let rows = self.rows(&order);
                let mut staged = self.engines.stage(&order.coded, rows);
                let mut is_cut = rows < height;
                if let (true, Ok(Staged::Refused(why))) = (is_cut, &staged) {
                    // Engines may refuse small images, and cutting makes images small.
                    let is_kind = why.kind() == ErrorKind::Unsupported;
                    staged = self.engines.stage(&order.coded, height);
                    is_cut = false;
                    if is_kind && matches!(staged, Ok(Staged::Taken(_))) {
                        self.least_rows = self.least_rows.max(rows.saturating_add(1));
                    }
                }
                (staged, order.rows, is_cut)
            });
            match staged {
                Ok((Ok(Staged::Taken(image)), rows, is_cut)) => {
                    self.batch.push(Taken { job, image, rows, is_cut, decode: start.elapsed() });
                    if self.batch.len() >= self.duty.size.images {
                        return true;
                    }
                }
                Ok((Ok(Staged::Full), ..)) => {
                    self.waiting.push_front(job);
                    return true;
                }
                Ok((Ok(Staged::Refused(why)), ..)) => {
                    tracing::trace!(record = job.items[0].record, why = %format!("{why:#}"), "not for the engines");
                    self.give_away(job);
                }
                Ok((Err(failure), ..)) => {
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
            let was_cut = self.cut == Cut::Yes && self.batch.iter().any(|taken| taken.is_cut);
            return match failure {
                Failure::Images(error) if was_cut => self.try_whole(&error),
                failure => self.fail(failure, Vec::new()),
            };
        }
        self.whole_worked();
        let count = self.batch.len() as u32;
        let decode = start.elapsed() / count.max(1);
        let start = Instant::now();
        let mut jobs: Vec<Finished> = Vec::with_capacity(self.batch.len());
        let images = self.batch.iter().map(|taken| taken.image).collect();
        for taken in self.batch.drain(..) {
            let rows = &taken.job.rows;
            let mut row = |(field, work): &(usize, RowWork)| self.engines.row(taken.image, work, &rows[*field], 0);
            let done = taken.rows.iter().try_for_each(&mut row);
            let outcome = done.map_or_else(|error| Outcome::Failed(of_device(error)), |()| Outcome::Done);
            let mut finished = with_outcome(taken.job, &outcome);
            finished.decode = taken.decode + decode;
            jobs.push(finished);
        }
        let launched = self.engines.launch();
        let transform = start.elapsed() / count.max(1);
        jobs.iter_mut().for_each(|job| job.transform = transform);
        match launched {
            Ok(ticket) => {
                self.failures = 0;
                self.flights.push_back(Flight { ticket, jobs, images });
            }
            Err(failure) => self.fail(failure, jobs),
        }
    }

    /// The number of rows of an image to decode: down to the crop's last.
    fn rows(&self, order: &Order<'_>) -> u32 {
        let height = order.coded.height;
        // A cut file would have more restart markers than rows need, which not every decoder accepts.
        if self.cut != Cut::Yes || order.header.has_restarts() {
            return height;
        }
        u32::from(order.header.enough_rows(order.end())).max(self.least_rows).min(height)
    }

    /// Puts the batch back, to be decoded from whole files.
    fn try_whole(&mut self, error: &Error) {
        let words = format!("{error:#}");
        tracing::debug!(images = self.batch.len(), error = words, "a batch of cut files failed; trying whole ones");
        self.cut = Cut::Trial(self.batch.len());
        for taken in self.batch.drain(..).rev() {
            self.waiting.push_front(taken.job);
        }
    }

    /// Called after a batch was decoded. Decides whether files are still cut.
    fn whole_worked(&mut self) {
        let Cut::Trial(left) = self.cut else { return };
        match left.saturating_sub(self.batch.len()) {
            0 => {
                self.trials += 1;
                self.cut = Cut::Yes;
                if self.trials >= MOST_TRIALS {
                    let who = self.duty.decoder;
                    tracing::warn!("the {who} refuse files that end with the crop; from now on they get whole files");
                    self.cut = Cut::No;
                }
            }
            left => self.cut = Cut::Trial(left),
        }
    }

    /// Handles a failed batch, of which no row was made. `jobs` were already taken out of it.
    fn fail(&mut self, failure: Failure, jobs: Vec<Finished>) {
        let staged = self.batch.drain(..).map(|taken| taken.job);
        let jobs: Vec<Job> = jobs.into_iter().map(|finished| finished.job).chain(staged).collect();
        match failure {
            Failure::Lost(error) => self.lose(error, jobs),
            Failure::Images(error) => {
                let words = format!("{error:#}");
                let who = self.duty.decoder;
                tracing::debug!(images = jobs.len(), error = words, "a batch failed on the {who}");
                if let Cut::Trial(_) = self.cut {
                    // Whole files fail too, so cutting was not the cause.
                    self.cut = Cut::Yes;
                }
                jobs.into_iter().for_each(|job| self.give_away(job));
                self.failures += 1;
                if self.failures >= MOST_FAILURES {
                    let batches = self.failures;
                    tracing::warn!(batches, error = words, "the {who} failed repeatedly; continuing without them");
                    self.give_up();
                }
            }
        }
    }

    fn give_up(&mut self) {
        self.health = Health::GaveUp;
        self.duty.retire.now();
        let batch = std::mem::take(&mut self.batch);
        batch.into_iter().for_each(|taken| self.give_away(taken.job));
        while let Some(job) = self.waiting.pop_front() {
            self.give_away(job);
        }
    }

    /// Counts images that the engines left undecoded without reporting a failure. Their rows show something else.
    fn skipped(&mut self, count: usize) {
        if count == 0 {
            self.skips = 0;
            return;
        }
        self.skips += 1;
        let who = self.duty.decoder;
        tracing::warn!(
            images = count,
            "the {who} left images undecoded but reported success; another class decodes these images"
        );
        if self.skips >= MOST_FAILURES {
            tracing::warn!(batches = self.skips, "the {who} left images undecoded repeatedly; continuing without them");
            self.give_up();
        }
    }

    /// The GPU is lost: all jobs in hand fail, and all later ones.
    fn lose(&mut self, error: Error, jobs: Vec<Job>) {
        let error = of_device(error).at_stage(Stage::Decode);
        let flights = self.flights.drain(..).flat_map(|flight| flight.jobs).map(|finished| finished.job);
        let all = flights.chain(jobs).chain(self.waiting.drain(..));
        self.finished.extend(all.map(|job| with_outcome(job, &Outcome::Failed(error.clone()))));
        self.health = Health::Lost(error);
    }

    fn give_away(&mut self, job: Job) {
        self.finished.push(with_outcome(job, &Outcome::Elsewhere(self.duty.elsewhere)));
    }

    /// Takes the finished flights.
    fn land(&mut self) {
        while let Some(ticket) = self.flights.front().map(|flight| flight.ticket) {
            match self.engines.is_done(ticket) {
                Ok(false) => return,
                Ok(true) => {}
                Err(error) => return self.lose(error, Vec::new()),
            }
            let unwritten = match self.engines.unwritten(ticket) {
                Ok(unwritten) => unwritten,
                Err(error) => return self.lose(error, Vec::new()),
            };
            let Some(Flight { mut jobs, images, .. }) = self.flights.pop_front() else { return };
            if let Some(first) = jobs.first_mut() {
                first.device = self.engines.take_times();
            }
            for (finished, image) in jobs.into_iter().zip(images) {
                let was_done = matches!(finished.outcomes[..], [Outcome::Done]);
                if was_done && unwritten.contains(&image) {
                    self.give_away(finished.job);
                } else {
                    self.finished.push(finished);
                }
            }
            self.skipped(unwritten.len());
        }
    }

    /// Waits for the oldest flight. If the worker can take more jobs, which may arrive at any time, it waits only
    /// briefly.
    fn wait(&mut self) {
        let Some(ticket) = self.flights.front().map(|flight| flight.ticket) else { return };
        let in_hand = self.waiting.len() + self.batch.len();
        if self.flights.len() >= FLIGHTS && in_hand >= self.duty.size.images {
            // A failure is reported again by the query of this launch.
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
