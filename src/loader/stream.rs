//! The stream of batches and the iterator over it.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use futures::{Stream, StreamExt, executor::block_on};
use tracing::Span;

use crate::{
    engine::{Batch, Levels, Run, Way},
    error::{Error, Result},
    report::{BadSample, Clock, FirstBatchPart, Gauge, Lateness, QueueReport, Report, Stage},
};

/// Batches in plan order, made by [`Loader::epoch`](crate::Loader::epoch) and its kin.
///
/// Each item is a whole [`Batch`]. The stream ends after the last one. An error that ends the run is yielded once, in
/// the place of its batch; then comes `None`.
///
/// **Ahead of you**: reading and decoding started when the stream was made and go on while you do not poll, up to
/// `prefetch` batches. **Cancel safe**: dropping the future of `.next()` loses nothing. **Dropping the stream** ends its work:
/// no read begins once the drop returned, one in progress may end, and memory under a running decoder is freed by
/// that decoder. Works on any executor, inside `select!`, and on none ([`blocking`](Self::blocking)).
#[must_use = "dropping the stream ends its reads"]
pub struct BatchStream {
    run: Run,
    state: State,
    /// When the poll that is waiting for the next batch began.
    waiting: Option<Instant>,
    last: Option<Instant>,
    first_batch: Option<Duration>,
    wait: Clock,
    step: Clock,
    batches: u64,
    samples: u64,
    /// Bad samples of the run so far, those of resumed parts included.
    bad_count: u64,
    bad_at_most: Option<u64>,
    bad_samples: Vec<BadSample>,
    bad_here: u64,
    /// What the first batch did until it came, and the late ones after it.
    first_parts: Vec<FirstBatchPart>,
    late: Lateness,
    gauges: Gauges,
    /// `infeed.wait`, while the trainer waits.
    wait_span: Span,
}

/// How full the queues were when the trainer asked.
#[derive(Default)]
struct Gauges {
    finished: Gauge,
    ahead: Gauge,
    jobs: Gauge,
    encoded: Gauge,
    /// The last look, which has the capacities.
    last: Option<Levels>,
}

impl Gauges {
    fn look(&mut self, levels: Levels) {
        self.finished.look(levels.finished.0);
        self.ahead.look(levels.ahead.0);
        self.jobs.look(levels.jobs);
        levels.encoded.iter().for_each(|(level, _)| self.encoded.look(*level));
        self.last = Some(levels);
    }

    fn report(&self) -> Vec<QueueReport> {
        let Some(Levels { finished, ahead, encoded, .. }) = self.last else { return Vec::new() };
        let encoded = encoded.map(|(_, most)| self.encoded.report("encoded", Some(most)));
        let others = [
            self.finished.report("finished", Some(finished.1)),
            self.ahead.report("ahead", Some(ahead.1)),
            self.jobs.report("jobs", None),
        ];
        others.into_iter().chain(encoded).collect()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    Ended,
}

/// Bad samples kept with their messages; the rest is only counted.
const BAD_SAMPLES_KEPT: usize = 1000;

impl BatchStream {
    pub(super) fn new(run: Run, bad_at_most: Option<u64>, bad_count: u64) -> Self {
        Self {
            run,
            state: State::Running,
            waiting: None,
            last: None,
            first_batch: None,
            wait: Clock::default(),
            step: Clock::default(),
            batches: 0,
            samples: 0,
            bad_count,
            bad_at_most,
            bad_samples: Vec::new(),
            bad_here: 0,
            first_parts: Vec::new(),
            late: Lateness::default(),
            gauges: Gauges::default(),
            wait_span: Span::none(),
        }
    }

    /// What the stream did so far, and where the time went. Cheap; may be asked at any time, also after the end.
    #[must_use]
    pub fn report(&self) -> Report {
        let mut stages = self.run.recorder().stages();
        let bytes_read = stages.iter().find(|s| s.stage == Stage::Fetch).map_or(0, |s| s.bytes);
        let (data_wait, step) = (self.wait.times(), self.step.times());
        if let Some(stage) = stages.iter_mut().find(|s| s.stage == Stage::Yield) {
            // The trainer is the last stage: it works during its step and starves while it waits.
            stage.busy = step.sum.saturating_sub(data_wait.sum);
            stage.starved = data_wait.sum;
            stage.items = self.batches;
            stage.calls = self.batches;
            (stage.p50, stage.p99) = (step.p50, step.p99);
        }
        Report {
            batches: self.batches,
            samples: self.samples,
            bytes_read,
            first_batch: self.first_batch,
            data_wait,
            step,
            stages,
            first_batch_parts: self.first_parts.clone(),
            late_batches: self.late.worst(),
            late_causes: self.late.causes(),
            queues: self.gauges.report(),
            autotune: self.run.tune(),
            requests: self.run.requests(),
            cache: self.run.cache(),
            bad_samples: self.bad_samples.clone(),
            bad_sample_count: self.bad_here,
        }
    }

    /// The same batches as a plain iterator, for trainers without an async runtime. Blocks the thread while it waits.
    pub fn blocking(self) -> Blocking {
        Blocking(self)
    }

    /// Counts a batch's bad samples, in plan order, so that the limit does not depend on which worker was first.
    fn admit_bad(&mut self, batch: &mut Batch) -> Result<()> {
        for bad in batch.bad_samples() {
            self.bad_count += 1;
            self.bad_here += 1;
            if self.bad_samples.len() < BAD_SAMPLES_KEPT {
                self.bad_samples.push(bad.clone());
            }
        }
        batch.set_bad_count(self.bad_count);
        match (self.bad_at_most, batch.bad_samples().last()) {
            (Some(at_most), Some(bad)) if self.bad_count > at_most => Err(over_limit(bad, self.bad_count, at_most)),
            _ => Ok(()),
        }
    }

    /// Writes down why the batch that was asked for at `asked` came when it did.
    fn account(&mut self, way: Option<Box<Way>>, asked: Instant, now: Instant) {
        match self.last.replace(now) {
            None => {
                self.first_batch = Some(now - self.run.started());
                let parts = way.iter().flat_map(|way| way.between(self.run.started(), now));
                self.first_parts = parts.map(|(cause, time)| FirstBatchPart { cause, time }).collect();
            }
            Some(last) => {
                self.wait.record(now - asked);
                self.step.record(now - last);
                if let Some(late) = way.and_then(|way| way.late(asked, now, self.run.dataset())) {
                    tracing::debug!(
                        epoch = late.epoch,
                        step = late.batch,
                        wait_us = late.wait.as_micros() as u64,
                        cause = late.cause.name(),
                        object = late.object.as_deref().unwrap_or_default(),
                        "late batch"
                    );
                    self.late.add(late);
                }
            }
        }
    }

    fn end(&mut self) {
        self.state = State::Ended;
        self.run.cancel();
    }
}

fn over_limit(last: &BadSample, count: u64, at_most: u64) -> Error {
    let error = Error::corrupt(format!("{count} bad samples, at most {at_most} are allowed; the last: {}", last.error));
    let error =
        error.at_record(last.record).hint("look at the report's bad_samples, then raise the limit or mend the data");
    match &last.object {
        Some(object) => error.at_object(object.clone()),
        None => error,
    }
}

impl Stream for BatchStream {
    type Item = Result<Batch>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.state == State::Ended {
            return Poll::Ready(None);
        }
        let began = match this.waiting {
            Some(began) => began,
            None => {
                this.gauges.look(this.run.asks());
                this.wait_span = tracing::trace_span!(parent: None, "infeed.wait");
                *this.waiting.insert(Instant::now())
            }
        };
        let item = ready!(this.run.poll_batch(cx));
        this.waiting = None;
        this.wait_span = Span::none();
        let Some((item, way)) = item else {
            this.end();
            return Poll::Ready(None);
        };
        this.account(way, began, Instant::now());
        let item = item.and_then(|mut batch| this.admit_bad(&mut batch).map(|()| batch));
        match &item {
            Ok(batch) => {
                this.batches += 1;
                this.samples += batch.valid() as u64;
            }
            Err(_) => this.end(),
        }
        Poll::Ready(Some(item))
    }
}

impl fmt::Debug for BatchStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchStream").field("batches", &self.batches).finish_non_exhaustive()
    }
}

/// A [`BatchStream`] as an iterator; made by [`BatchStream::blocking`].
#[derive(Debug)]
#[must_use = "dropping the iterator ends its reads"]
pub struct Blocking(BatchStream);

impl Blocking {
    /// See [`BatchStream::report`].
    #[must_use]
    pub fn report(&self) -> Report {
        self.0.report()
    }
}

impl Iterator for Blocking {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        block_on(self.0.next())
    }
}
