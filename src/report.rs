//! Where the time goes: clocks and counters that any room may write to.
//!
//! A [`Recorder`] is shared by all threads of a run; each thread adds what it measured once per job, so the locks are
//! taken about a thousand times a second. Host times come from `Instant`.

mod cache;
mod diagnosis;
mod late;
mod queues;
mod requests;
mod tune;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize, Serializer};

pub(crate) use cache::CacheRecorder;
pub use cache::CacheReport;
pub use diagnosis::{Change, Diagnosis, Figures, Limit, Stalls, diagnose};
pub use late::{Cause, CauseReport, LateBatch};
pub(crate) use late::{Lateness, Part, blame, shares};
pub(crate) use queues::Gauge;
pub use queues::QueueReport;
pub use requests::{CostEstimate, RequestReport, SlowRequest};
pub(crate) use requests::{Reading, RequestRecorder, Sent};
pub(crate) use tune::TuneLog;
pub use tune::{TuneDecision, TuneReason, TuneReport, Tuned, TunedSetting};

/// A step on the way of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Stage {
    /// Listing and opening a dataset.
    Open,
    /// Position to record to row.
    Plan,
    /// Reading bytes from a disk or store.
    Fetch,
    /// Cutting a record into fields.
    Parse,
    /// Encoded bytes to pixels.
    Decode,
    /// Pixels to a finished row.
    Transform,
    /// Host to device.
    Transfer,
    /// Handing batches to the trainer.
    Yield,
    /// Writing what was prepared.
    Write,
}

impl Stage {
    /// The stages that a [`Report`] lists, in the order of a sample's way.
    pub const REPORTED: [Self; 5] = [Self::Fetch, Self::Decode, Self::Transform, Self::Transfer, Self::Yield];

    /// Lower-case name, as in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Plan => "plan",
            Self::Fetch => "fetch",
            Self::Parse => "parse",
            Self::Decode => "decode",
            Self::Transform => "transform",
            Self::Transfer => "transfer",
            Self::Yield => "yield",
            Self::Write => "write",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What one stage did.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct StageReport {
    /// Which stage.
    #[serde(rename = "name")]
    pub stage: Stage,
    /// Time spent working, summed over threads.
    #[serde(serialize_with = "seconds")]
    pub busy: Duration,
    /// Time spent waiting for input, summed over threads.
    #[serde(serialize_with = "seconds")]
    pub starved: Duration,
    /// Time spent waiting for room downstream, summed over threads.
    #[serde(serialize_with = "seconds")]
    pub blocked: Duration,
    /// Time on the GPU as its own events tell it. It passes beside `busy`, which is the host's, and is not part of it.
    #[serde(serialize_with = "seconds")]
    pub device: Duration,
    /// Processor time of the decode threads in this stage; it is part of `busy`, less what the thread waited for a disk
    /// or for its turn on a core. Zero where the system does not tell, and for requests, which other threads make.
    #[serde(serialize_with = "seconds")]
    pub cpu: Duration,
    /// How often a thread did this: jobs, chunks of reads, or batches.
    pub calls: u64,
    /// Samples (batches for the yield stage).
    pub items: u64,
    /// Bytes out.
    pub bytes: u64,
    /// Median time of one item.
    #[serde(serialize_with = "seconds")]
    pub p50: Duration,
    /// 99th percentile of the time of one item.
    #[serde(serialize_with = "seconds")]
    pub p99: Duration,
}

/// Percentiles of a repeated time.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Times {
    /// Sum of all.
    #[serde(serialize_with = "seconds")]
    pub sum: Duration,
    /// Median.
    #[serde(serialize_with = "seconds")]
    pub p50: Duration,
    /// 95th percentile.
    #[serde(serialize_with = "seconds")]
    pub p95: Duration,
    /// 99th percentile.
    #[serde(serialize_with = "seconds")]
    pub p99: Duration,
    /// Longest.
    #[serde(serialize_with = "seconds")]
    pub max: Duration,
    /// How many.
    #[serde(skip)]
    pub count: u64,
}

/// What the first batch did for some of the time until it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FirstBatchPart {
    /// What.
    pub cause: Cause,
    /// For how long.
    #[serde(rename = "seconds", serialize_with = "seconds")]
    pub time: Duration,
}

/// How many waits for data took so long or less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WaitBucket {
    /// The bound.
    #[serde(serialize_with = "seconds")]
    pub at_most: Duration,
    /// Waits up to it.
    pub batches: u64,
}

/// Counts waits by length.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WaitCounts([u64; Self::BOUNDS.len()]);

impl WaitCounts {
    /// Microseconds. From a hand-over between threads to a store that hangs, three to a factor of ten: quantiles read
    /// off them are right within half of a bucket.
    const BOUNDS: [u64; 19] = [
        10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000,
        2_000_000, 5_000_000, 30_000_000,
    ];

    pub(crate) fn add(&mut self, wait: Duration) {
        let at = Self::BOUNDS.partition_point(|bound| Duration::from_micros(*bound) < wait);
        if let Some(count) = self.0.get_mut(at) {
            *count += 1;
        }
    }

    pub(crate) fn report(&self) -> Vec<WaitBucket> {
        let mut batches = 0;
        let each = Self::BOUNDS.iter().zip(self.0).map(|(bound, count)| {
            batches += count;
            WaitBucket { at_most: Duration::from_micros(*bound), batches }
        });
        each.collect()
    }
}

/// A sample that could not be used, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BadSample {
    /// Epoch in which it came up.
    pub epoch: u64,
    /// Its place in the epoch's order.
    pub position: u64,
    /// Index in the dataset.
    pub record: u64,
    /// File or object.
    pub object: Option<String>,
    /// The whole chain of errors.
    pub error: String,
}

/// What a stream did so far. Times are sums over the run; see the fields.
///
/// As JSON (`Serialize`) it is what `infeed run --json` tells of the stream, under the same keys; times are in seconds.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// Batches handed over.
    pub batches: u64,
    /// Rows handed over, without padding.
    pub samples: u64,
    /// Bytes read from the source.
    pub bytes_read: u64,
    /// Since the start of the stream; once it was dropped, until then.
    #[serde(rename = "seconds", serialize_with = "seconds")]
    pub elapsed: Duration,
    /// From the start of the stream to the first batch.
    #[serde(rename = "first_batch_seconds", serialize_with = "optional_seconds")]
    pub first_batch: Option<Duration>,
    /// How long the trainer has been waiting for the batch that it asked for; `None` while it does not.
    #[serde(rename = "waiting_seconds", serialize_with = "optional_seconds", skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Duration>,
    /// Whole time inside `.next()`, polls included, first batch excluded.
    pub data_wait: Times,
    /// The same waits by length, each count with those of the shorter ones; what is longer than the last bound is in
    /// `data_wait.count` alone. Bounds are the same for every stream.
    pub wait_buckets: Vec<WaitBucket>,
    /// From one batch to the next, wait included; the first is left out.
    pub step: Times,
    /// Per stage.
    pub stages: Vec<StageReport>,
    /// What the first batch did from the start of the stream until it was handed over.
    pub first_batch_parts: Vec<FirstBatchPart>,
    /// Batches after the first that the trainer had to wait for, a millisecond or longer: the hundred longest waits,
    /// longest first, each with its cause.
    pub late_batches: Vec<LateBatch>,
    /// How many batches were late for which cause, all of them, the longest wait first.
    pub late_causes: Vec<CauseReport>,
    /// How full the queues were when the trainer asked for a batch.
    pub queues: Vec<QueueReport>,
    /// Settings on `auto`, and what was changed of them while the stream ran.
    pub autotune: TuneReport,
    /// Requests to a remote store; `None` where none are made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<RequestReport>,
    /// The cache; `None` where there is none.
    pub cache: Option<CacheReport>,
    /// Samples that were skipped or substituted (the first 1,000).
    pub bad_samples: Vec<BadSample>,
    /// How many samples were bad in all.
    pub bad_sample_count: u64,
}

impl Report {
    /// Accelerator utilisation as MLPerf Storage counts it: the share of the steps' time that was not spent waiting
    /// for data, 0 to 1; `None` before the second batch.
    #[must_use]
    pub fn au(&self) -> Option<f64> {
        let step = self.step.sum.as_secs_f64();
        (step > 0.0).then(|| (1.0 - self.data_wait.sum.as_secs_f64() / step).max(0.0))
    }

    /// The stage that limits the rate: the trainer (`Yield`) when data was waiting for it, else the busiest stage.
    #[must_use]
    pub fn bottleneck(&self) -> Option<Stage> {
        // 5 %: below it the trainer hardly notices, so a faster loader would change nothing.
        if self.au()? > 0.95 {
            return Some(Stage::Yield);
        }
        let work = self.stages.iter().filter(|s| s.stage != Stage::Yield);
        work.max_by_key(|s| s.busy).filter(|s| s.busy > Duration::ZERO).map(|s| s.stage)
    }
}

fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

fn optional_seconds<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => serializer.serialize_some(&time.as_secs_f64()),
        None => serializer.serialize_none(),
    }
}

/// Time on the GPU, told by events. Never to be added to host times: it passes beside them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceTimes {
    /// Copies to the device.
    pub transfer: Duration,
    /// JPEG decoding.
    pub decode: Duration,
    /// The resample kernels.
    pub transform: Duration,
}

impl DeviceTimes {
    /// No time.
    pub const ZERO: Self = Self { transfer: Duration::ZERO, decode: Duration::ZERO, transform: Duration::ZERO };

    /// Adds another span of work.
    pub fn add(&mut self, other: Self) {
        self.transfer += other.transfer;
        self.decode += other.decode;
        self.transform += other.transform;
    }
}

/// A histogram of durations with 1 % precision.
#[derive(Clone)]
pub struct Clock {
    histogram: Histogram<u64>,
    sum: Duration,
}

impl Default for Clock {
    fn default() -> Self {
        // Two significant digits: 1 % precision in about 20 KB.
        let histogram = Histogram::new(2).expect("2 is a valid number of digits");
        Self { histogram, sum: Duration::ZERO }
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").field("count", &self.histogram.len()).field("sum", &self.sum).finish()
    }
}

impl Clock {
    /// Adds one duration.
    pub fn record(&mut self, time: Duration) {
        self.record_many(time, 1);
    }

    /// Adds `items` that took `time` together, each counted with the mean.
    pub fn record_many(&mut self, time: Duration, items: u64) {
        if items > 0 {
            self.sum += time;
            let each = u64::try_from(time.as_nanos() / u128::from(items)).unwrap_or(u64::MAX);
            // The histogram grows to what it is given; it refuses only above its 64 bits.
            let _ = self.histogram.record_n(each.max(1), items);
        }
    }

    /// Percentiles so far.
    #[must_use]
    pub fn times(&self) -> Times {
        let count = self.histogram.len();
        if count == 0 {
            return Times::default();
        }
        let at = |q| Duration::from_nanos(self.histogram.value_at_quantile(q));
        Times { sum: self.sum, p50: at(0.5), p95: at(0.95), p99: at(0.99), max: at(1.0), count }
    }
}

#[derive(Debug, Default)]
struct StageTotals {
    clock: Clock,
    starved: Duration,
    blocked: Duration,
    device: Duration,
    cpu: Duration,
    calls: u64,
    bytes: u64,
}

/// Collects what the stages of one stream did. Cloning gives another handle.
#[derive(Clone, Debug)]
pub struct Recorder(Option<Arc<AllTotals>>);

type AllTotals = [Mutex<StageTotals>; Stage::REPORTED.len()];

impl Default for Recorder {
    fn default() -> Self {
        Self(Some(Arc::default()))
    }
}

impl Recorder {
    /// One that keeps nothing.
    pub(crate) const fn off() -> Self {
        Self(None)
    }

    fn totals(&self, stage: Stage) -> Option<MutexGuard<'_, StageTotals>> {
        let all = self.0.as_ref()?;
        let index = Stage::REPORTED.iter().position(|s| *s == stage)?;
        // Counters stay usable whatever a panicking thread left in them.
        Some(all[index].lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// `items` took `time` in `stage` and gave `bytes`. Stages outside [`Stage::REPORTED`] are not kept.
    pub fn busy(&self, stage: Stage, time: Duration, items: u64, bytes: u64) {
        self.worked(stage, time, Duration::ZERO, items, bytes);
    }

    /// As [`busy`](Self::busy), with the processor time that the thread used meanwhile.
    pub fn worked(&self, stage: Stage, time: Duration, cpu: Duration, items: u64, bytes: u64) {
        if let Some(mut totals) = self.totals(stage) {
            totals.clock.record_many(time, items);
            totals.cpu += cpu;
            totals.calls += 1;
            totals.bytes += bytes;
        }
    }

    /// `stage` had nothing to do for `time`.
    pub fn starved(&self, stage: Stage, time: Duration) {
        if let Some(mut totals) = self.totals(stage) {
            totals.starved += time;
        }
    }

    /// `stage` had no room to go on for `time`.
    pub fn blocked(&self, stage: Stage, time: Duration) {
        if let Some(mut totals) = self.totals(stage) {
            totals.blocked += time;
        }
    }

    /// The GPU worked for these times.
    pub fn device(&self, times: DeviceTimes) {
        if times == DeviceTimes::ZERO {
            return;
        }
        let DeviceTimes { transfer, decode, transform } = times;
        for (stage, time) in [(Stage::Transfer, transfer), (Stage::Decode, decode), (Stage::Transform, transform)] {
            if let Some(mut totals) = self.totals(stage) {
                totals.device += time;
            }
        }
    }

    /// The totals so far.
    #[must_use]
    pub fn stages(&self) -> Vec<StageReport> {
        let report = |stage| {
            let totals = self.totals(stage)?;
            let Times { sum, p50, p99, count, .. } = totals.clock.times();
            let StageTotals { starved, blocked, device, cpu, calls, bytes, .. } = *totals;
            Some(StageReport { stage, busy: sum, starved, blocked, device, cpu, calls, items: count, bytes, p50, p99 })
        };
        Stage::REPORTED.into_iter().filter_map(report).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_a_percent() {
        let mut clock = Clock::default();
        (1..=1000).for_each(|ms| clock.record(Duration::from_millis(ms)));
        let times = clock.times();
        assert!((times.p50.as_secs_f64() - 0.5).abs() < 0.01, "{times:?}");
        assert!((times.p99.as_secs_f64() - 0.99).abs() < 0.01, "{times:?}");
        assert_eq!(times.sum, Duration::from_millis(500_500));
    }

    #[test]
    fn waits_are_counted_up_to_each_bound() {
        let mut counts = WaitCounts::default();
        [0, 10, 11, 1_000, 60_000_000].into_iter().for_each(|us| counts.add(Duration::from_micros(us)));
        let told = counts.report();
        let at = |us| told.iter().find(|bucket| bucket.at_most == Duration::from_micros(us)).unwrap().batches;
        assert_eq!((at(10), at(20), at(500), at(1_000), at(30_000_000)), (2, 3, 3, 4, 4));
        assert!(told.windows(2).all(|pair| pair[0].at_most < pair[1].at_most && pair[0].batches <= pair[1].batches));
    }

    #[test]
    fn a_recorder_that_is_off_keeps_nothing() {
        let recorder = Recorder::off();
        recorder.busy(Stage::Decode, Duration::from_millis(8), 4, 100);
        recorder.device(DeviceTimes { decode: Duration::from_secs(1), ..DeviceTimes::ZERO });
        assert!(recorder.stages().is_empty());
    }

    #[test]
    fn items_of_one_job_share_its_time() {
        let recorder = Recorder::default();
        recorder.busy(Stage::Decode, Duration::from_millis(8), 4, 100);
        recorder.starved(Stage::Decode, Duration::from_millis(1));
        let decode = recorder.stages().into_iter().find(|s| s.stage == Stage::Decode).unwrap();
        assert_eq!((decode.items, decode.bytes, decode.busy), (4, 100, Duration::from_millis(8)));
        assert!((decode.p50.as_secs_f64() - 0.002).abs() < 0.0001);
    }
}
