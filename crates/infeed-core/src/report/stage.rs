//! The stages that a sample passes through, and what each did.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use super::times::seconds;

/// A stage that a sample passes through.
///
/// ```
/// # use futures::StreamExt;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
/// # let dataset = infeed::open("synthetic://?count=100&height=8&width=8&classes=10").await?;
/// # let loader = infeed::Loader::builder(dataset).batch_size(20).build().await?;
/// let mut batches = loader.epoch(0);
/// while batches.next().await.transpose()?.is_some() {}
/// let report = batches.report();
/// use infeed::report::Stage;
///
/// match report.bottleneck() {
///     Some(Stage::Yield) => println!("the trainer limits the rate"),
///     Some(stage) => println!("{stage} limits the rate"),
///     None => println!("too early to tell"),
/// }
/// # assert!(report.stages.iter().any(|stage| stage.stage == Stage::Yield));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Stage {
    /// Listing and opening a dataset.
    Open,
    /// From positions to records to rows.
    Plan,
    /// Reading bytes from a disk or a store.
    Fetch,
    /// Cutting a record into fields.
    Parse,
    /// From encoded bytes to pixels.
    Decode,
    /// From pixels to a finished row.
    Transform,
    /// Work on whole batches: mixing rows, turning labels into class weights, the user's own functions.
    Mix,
    /// Copying from host to device.
    Transfer,
    /// Handing batches to the trainer.
    Yield,
    /// Writing prepared data.
    Write,
}

impl Stage {
    /// The stages that a [`Report`](super::Report) lists, in the order in which a sample passes them;
    /// [`Mix`](Self::Mix) only if something is done to batches.
    pub const REPORTED: [Self; 6] =
        [Self::Fetch, Self::Decode, Self::Transform, Self::Mix, Self::Transfer, Self::Yield];

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
            Self::Mix => "mix",
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
///
/// ```
/// # use futures::StreamExt;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
/// # let dataset = infeed::open("synthetic://?count=100&height=8&width=8&classes=10").await?;
/// # let loader = infeed::Loader::builder(dataset).batch_size(20).build().await?;
/// let mut batches = loader.epoch(0);
/// while batches.next().await.transpose()?.is_some() {}
/// let report = batches.report();
/// for stage in &report.stages {
///     println!("{}: {:?} of work for {} items, p99 {:?}", stage.stage, stage.busy, stage.items, stage.p99);
/// }
/// # assert!(!report.stages.is_empty());
/// # Ok(()) }
/// ```
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
    /// Time on the GPU, as GPU events measure it. It overlaps with `busy`, which is host time, and is not part of it.
    #[serde(serialize_with = "seconds")]
    pub device: Duration,
    /// Processor time of the decode threads in this stage: `busy` without the time that a thread waited for a disk or
    /// for its turn on a core. Zero if the system does not report it, and for requests, which other threads make.
    #[serde(serialize_with = "seconds")]
    pub cpu: Duration,
    /// How often a thread did this: number of jobs, chunks of reads, or batches.
    pub calls: u64,
    /// Samples. For the decode stage images, for the yield stage batches.
    pub items: u64,
    /// Bytes of output.
    pub bytes: u64,
    /// Median time of one item.
    #[serde(serialize_with = "seconds")]
    pub p50: Duration,
    /// 99th percentile of the time of one item.
    #[serde(serialize_with = "seconds")]
    pub p99: Duration,
}

/// Time on the GPU, measured by GPU events. Never add it to host times: the two overlap.
///
/// ```
/// use std::time::Duration;
///
/// use infeed::report::DeviceTimes;
///
/// // The times that a GPU decoder adds up until its next finished job.
/// let mut copy = DeviceTimes::ZERO;
/// copy.transfer = Duration::from_micros(300);
/// let mut sum = DeviceTimes::ZERO;
/// sum.add(copy);
/// sum.add(copy);
/// assert_eq!((sum.transfer, sum.decode), (Duration::from_micros(600), Duration::ZERO));
/// ```
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
