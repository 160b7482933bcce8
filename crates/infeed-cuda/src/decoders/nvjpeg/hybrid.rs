//! Workers for single images: Huffman decoding on the thread, the rest on the GPU.

use std::{collections::VecDeque, sync::Arc, thread, time::Instant};

use infeed_core::{
    error::{Error, Result},
    report::Stage,
    rows::Rows,
};
use infeed_pixels::{
    codec::{ClassSet, Finished, Job, Outcome, Wait, Worker},
    kernels::{RowScratch, RowWork},
    transform::Lowered,
};

use super::{
    order::{Target, with_outcome},
    plan::HYBRID_JOBS,
    route::LARGE,
};
use crate::{
    cuda::{Kernels, Ticket},
    decoders::cuda_raw::{NAP, NAPS, of_device, tables},
    nvjpeg::{Failure, Hybrid, HybridSize},
};

pub(super) fn open(
    kernels: &Arc<Kernels>,
    (size, steps): (HybridSize, RowScratch),
    programs: &[Option<Lowered>],
    target: Target,
    elsewhere: ClassSet,
) -> Result<Result<Box<dyn Worker>, String>> {
    Ok(Ok(Box::new(HybridWorker {
        decoder: Hybrid::open(kernels, size, steps, &tables(programs))?,
        target,
        elsewhere,
        flights: VecDeque::new(),
        finished: Vec::new(),
        lost: None,
    })))
}

#[derive(Debug)]
struct HybridWorker {
    decoder: Hybrid,
    target: Target,
    elsewhere: ClassSet,
    flights: VecDeque<(Ticket, Finished)>,
    finished: Vec<Finished>,
    /// Set if the GPU is lost: the reason.
    lost: Option<Error>,
}

impl Worker for HybridWorker {
    fn submit(&mut self, job: Job) {
        if let Some(error) = &self.lost {
            let outcome = Outcome::Failed(error.clone());
            return self.finished.push(with_outcome(job, &outcome));
        }
        let start = Instant::now();
        let started = self.target.order(&job).map(|order| {
            order.map(|order| {
                let pixels = u64::from(order.coded.height) * u64::from(order.coded.width);
                let on_gpu = pixels > LARGE && !order.header.is_progressive();
                let rows: Vec<(&RowWork, &Rows)> =
                    order.rows.iter().map(|(field, work)| (work, &job.rows[*field])).collect();
                self.decoder.decode(&order.coded, on_gpu, &rows, 0)
            })
        });
        let started = match started {
            Some(Ok(started)) => started,
            Some(Err(error)) => return self.finished.push(with_outcome(job, &Outcome::Failed(error))),
            None => return self.finished.push(with_outcome(job, &Outcome::Elsewhere(self.elsewhere))),
        };
        match started {
            Ok(ticket) => {
                let mut finished = with_outcome(job, &Outcome::Done);
                finished.decode = start.elapsed();
                self.flights.push_back((ticket, finished));
            }
            Err(Failure::Images(error)) => {
                let record = job.items[0].record;
                tracing::debug!(record, error = %format!("{error:#}"), "nvJPEG does not decode an image");
                self.finished.push(with_outcome(job, &Outcome::Elsewhere(self.elsewhere)));
            }
            Err(Failure::Lost(error)) => self.lose(error, Some(job)),
        }
    }

    fn poll(&mut self, wait: Wait) -> Vec<Finished> {
        self.land();
        if wait == Wait::Block && self.finished.is_empty() {
            self.wait();
            self.land();
        }
        std::mem::take(&mut self.finished)
    }
}

impl HybridWorker {
    fn lose(&mut self, error: Error, job: Option<Job>) {
        let error = of_device(error).at_stage(Stage::Decode);
        let jobs = self.flights.drain(..).map(|(_, finished)| finished.job).chain(job);
        self.finished.extend(jobs.map(|job| with_outcome(job, &Outcome::Failed(error.clone()))));
        self.lost = Some(error);
    }

    fn land(&mut self) {
        while let Some((ticket, _)) = self.flights.front() {
            match self.decoder.is_done(*ticket) {
                Ok(false) => return,
                Ok(true) => {
                    let Some((_, mut finished)) = self.flights.pop_front() else { return };
                    finished.device = self.decoder.take_times();
                    self.finished.push(finished);
                }
                Err(error) => return self.lose(error, None),
            }
        }
    }

    /// Waits for the oldest job; only briefly if the worker can take another.
    fn wait(&mut self) {
        let Some(ticket) = self.flights.front().map(|flight| flight.0) else { return };
        if self.flights.len() >= HYBRID_JOBS {
            // A failure is reported again by the query of this launch.
            let _ = self.decoder.wait(ticket);
            return;
        }
        for _ in 0..NAPS {
            match self.decoder.is_done(ticket) {
                Ok(false) => thread::sleep(NAP),
                Ok(true) | Err(_) => return,
            }
        }
    }
}
