//! The counts of a stream, for its own report and for monitors.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use infeed_core::report::{BadSample, Clock, FirstBatchPart, Gauge, Lateness, QueueReport, Report, Stage, WaitCounts};

use crate::engine::{Facts, Levels, Watch};

/// Bad samples kept with their messages; the rest is only counted.
pub(super) const BAD_SAMPLES_KEPT: usize = 1000;

/// Reports on a stream from other threads; made by [`BatchStream::monitor`](crate::BatchStream::monitor).
///
/// `Send` and `Sync`; cloning gives another handle. It keeps no threads and no rows of the loader alive. After the
/// stream was dropped, it always returns the last report.
///
/// ```
/// # use futures::StreamExt;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
/// # let dataset = infeed::open("synthetic://?count=100&height=8&width=8&classes=10").await?;
/// # let loader = infeed::Loader::builder(dataset).batch_size(20).build().await?;
/// let mut batches = loader.epoch(0);
/// let monitor = batches.monitor();
/// // A thread that prints how far the training is.
/// let told = std::thread::spawn(move || {
///     while !monitor.is_ended() {
///         println!("{} samples", monitor.report().samples);
///         std::thread::sleep(std::time::Duration::from_millis(10));
///     }
///     monitor.report().samples
/// });
/// while batches.next().await.transpose()?.is_some() {}
/// drop(batches);
/// assert_eq!(told.join().expect("it does not panic"), 100);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Monitor {
    pub(super) progress: Arc<Progress>,
    pub(super) watch: Watch,
    pub(super) rank: u32,
}

impl Monitor {
    /// As [`BatchStream::report`](crate::BatchStream::report), at any time and from any thread. Takes a few tens of
    /// microseconds; if the stream hands over a batch at that moment, it waits for part of them. Ten calls a second
    /// cost almost nothing.
    #[must_use]
    pub fn report(&self) -> Report {
        if let Some(last) = self.last() {
            return last;
        }
        // Outside the lock: it takes locks of its own.
        let facts = self.watch.facts();
        let counts = self.progress.counts();
        match (&counts.last, facts) {
            (None, Some(facts)) => counts.report(facts),
            // The stream was dropped between the two calls.
            (Some(last), _) => (**last).clone(),
            (None, None) => counts.report(Facts::default()),
        }
    }

    /// Whether the stream was dropped, so that the report no longer changes.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.progress.counts().last.is_some()
    }

    /// The rank whose batches these are.
    #[must_use]
    pub const fn rank(&self) -> u32 {
        self.rank
    }

    fn last(&self) -> Option<Report> {
        self.progress.counts().last.as_deref().cloned()
    }
}

/// The counts of a stream, shared with its monitors.
#[derive(Debug, Default)]
pub(super) struct Progress(Mutex<Counts>);

impl Progress {
    pub(super) fn counts(&self) -> MutexGuard<'_, Counts> {
        // Counters stay usable after a panic of a thread that held the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts of the batches that are handed over.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// When the trainer began to wait.
    pub(super) waiting: Option<Instant>,
    pub(super) first_batch: Option<Duration>,
    pub(super) wait: Clock,
    pub(super) waits: WaitCounts,
    pub(super) step: Clock,
    pub(super) batches: u64,
    pub(super) samples: u64,
    pub(super) bad_samples: Vec<BadSample>,
    pub(super) bad_here: u64,
    /// Of these, samples that could not be read.
    pub(super) unreadable: u64,
    /// Where the time of the first batch went.
    pub(super) first_parts: Vec<FirstBatchPart>,
    pub(super) late: Lateness,
    pub(super) gauges: Gauges,
    /// The last report, once the stream is gone.
    pub(super) last: Option<Box<Report>>,
}

impl Counts {
    /// The report, with the numbers of the threads.
    pub(super) fn report(&self, facts: Facts) -> Report {
        let Facts { elapsed, mut stages, decoded_by, requests, cache, decoded_cache, autotune } = facts;
        let bytes_read = stages.iter().find(|s| s.stage == Stage::Fetch).map_or(0, |s| s.bytes);
        let (data_wait, step) = (self.wait.times(), self.step.times());
        if let Some(stage) = stages.iter_mut().find(|s| s.stage == Stage::Yield) {
            // The trainer is the last stage: busy during its step, starved while it waits.
            stage.busy = step.sum.saturating_sub(data_wait.sum);
            stage.starved = data_wait.sum;
            stage.items = self.batches;
            stage.calls = self.batches;
            (stage.p50, stage.p99) = (step.p50, step.p99);
        }
        let mut report = Report::default();
        report.batches = self.batches;
        report.samples = self.samples;
        report.bytes_read = bytes_read;
        report.elapsed = elapsed;
        report.first_batch = self.first_batch;
        report.waiting = self.waiting.map(|since| since.elapsed());
        report.data_wait = data_wait;
        report.wait_buckets = self.waits.report();
        report.step = step;
        report.stages = stages;
        report.decoded_by = decoded_by;
        report.first_batch_parts = self.first_parts.clone();
        report.late_batches = self.late.worst();
        report.late_causes = self.late.causes();
        report.queues = self.gauges.report();
        report.autotune = autotune;
        report.requests = requests;
        report.cache = cache;
        report.decoded_cache = decoded_cache;
        report.bad_samples = self.bad_samples.clone();
        report.bad_sample_count = self.bad_here;
        report.unreadable_count = self.unreadable;
        report
    }
}

/// How full the queues were when the trainer polled for a batch.
#[derive(Debug, Default)]
pub(super) struct Gauges {
    finished: Gauge,
    ahead: Gauge,
    jobs: Gauge,
    encoded: Gauge,
    /// The last measurement, with the capacities.
    last: Option<Levels>,
}

impl Gauges {
    pub(super) fn look(&mut self, levels: Levels) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use infeed_core::report::Recorder;

    /// The report of ten steps of 100 ms, each of which waited so long, and for whose batch a thread decoded for 50 ms.
    fn waited(wait: Duration) -> Report {
        let (mut counts, recorder) = (Counts::default(), Recorder::default());
        for _ in 0..10 {
            counts.wait.record(wait);
            counts.step.record(Duration::from_millis(100));
            counts.batches += 1;
            recorder.busy(Stage::Decode, Duration::from_millis(50), 4, 100);
            recorder.busy(Stage::Yield, Duration::ZERO, 1, 0);
        }
        counts.report(Facts { stages: recorder.stages(), ..Facts::default() })
    }

    #[test]
    fn a_trainer_that_waits_is_not_used_to_the_full() {
        let report = waited(Duration::from_millis(40));
        assert!((report.au().unwrap() - 0.6).abs() < 1e-9, "{report:?}");
        assert_eq!(report.bottleneck(), Some(Stage::Decode));
        let trainer = report.stages.iter().find(|s| s.stage == Stage::Yield).unwrap();
        assert_eq!((trainer.busy, trainer.starved), (Duration::from_millis(600), Duration::from_millis(400)));
        // Less than 5 % is no loss.
        let report = waited(Duration::from_millis(4));
        assert!((report.au().unwrap() - 0.96).abs() < 1e-9, "{report:?}");
        assert_eq!(report.bottleneck(), Some(Stage::Yield));
        assert_eq!(Counts::default().report(Facts::default()).au(), None);
    }
}
