//! The report of a whole stream.

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;

use super::{
    CacheReport, Cause, CauseReport, LateBatch, QueueReport, RequestReport, Stage, StageReport, Times, TuneReport,
    WaitBucket,
    times::{optional_seconds, seconds},
};
use crate::error::Error;

/// What the first batch did for part of the time until it was handed over.
///
/// ```
/// # use futures::StreamExt;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
/// # let dataset = infeed::open("synthetic://?count=100&height=8&width=8&classes=10").await?;
/// # let loader = infeed::Loader::builder(dataset).batch_size(20).build().await?;
/// let mut batches = loader.epoch(0);
/// while batches.next().await.transpose()?.is_some() {}
/// let report = batches.report();
/// println!("the first batch came after {:?}", report.first_batch.expect("it came"));
/// for part in &report.first_batch_parts {
///     println!("{:?} of it: {}", part.time, part.cause);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FirstBatchPart {
    /// What it did.
    pub cause: Cause,
    /// For how long.
    #[serde(rename = "seconds", serialize_with = "seconds")]
    pub time: Duration,
}

impl FirstBatchPart {
    /// A part of this length.
    #[doc(hidden)]
    #[must_use]
    pub const fn new(cause: Cause, time: Duration) -> Self {
        Self { cause, time }
    }
}

/// A sample that could not be used, and why.
///
/// ```
/// # #[cfg(feature = "png")] {
/// # use futures::StreamExt;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
/// # let mut png = std::io::Cursor::new(Vec::new());
/// # image::RgbImage::new(8, 8).write_to(&mut png, image::ImageFormat::Png).unwrap();
/// # let png = bytes::Bytes::from(png.into_inner());
/// # let files = vec![png, bytes::Bytes::from_static(b"no picture")];
/// # let dataset = std::sync::Arc::new(infeed::dataset::MemoryDataset::builder().encoded_images(files).build()?);
/// # let transform = infeed::Transform::new().resize_exact(8, 8);
/// # let builder = infeed::Loader::builder(dataset).batch_size(2).transform(transform);
/// use infeed::OnBadSample;
///
/// let loader = builder.on_bad_sample(OnBadSample::Skip { at_most: 10 }).build().await?;
/// let mut batches = loader.epoch(0);
/// while batches.next().await.transpose()?.is_some() {}
/// for bad in &batches.report().bad_samples {
///     println!("record {} ({:?}): {}", bad.record, bad.object, bad.error);
/// }
/// assert_eq!(batches.report().bad_samples[0].record, 1);
/// # Ok(()) } main().unwrap() }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BadSample {
    /// The epoch in which the sample came up.
    pub epoch: u64,
    /// Its place in the epoch's order.
    pub position: u64,
    /// Index in the dataset.
    pub record: u64,
    /// File or object.
    pub object: Option<String>,
    /// The error with its whole chain of causes.
    pub error: String,
    /// Whether the object could not be read at all, as opposed to having bad content:
    /// [`Error::is_unreadable`](crate::error::Error::is_unreadable).
    pub unreadable: bool,
}

impl BadSample {
    /// A bad record at a position of an epoch, with its error.
    #[doc(hidden)]
    #[must_use]
    pub fn new(epoch: u64, position: u64, record: u64, error: &Error) -> Self {
        let (object, unreadable) = (error.context().object.clone(), error.is_unreadable());
        Self { epoch, position, record, object, error: format!("{error:#}"), unreadable }
    }
}

/// What a stream did so far. Times are sums over the run unless a field says otherwise.
///
/// As JSON (`Serialize`) it has the keys that `infeed run --json` prints for the stream; times are in seconds.
///
/// ```
/// # use futures::StreamExt;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
/// # let dataset = infeed::open("synthetic://?count=100&height=8&width=8&classes=10").await?;
/// # let loader = infeed::Loader::builder(dataset).batch_size(20).build().await?;
/// let mut batches = loader.epoch(0);
/// while batches.next().await.transpose()?.is_some() {}
/// let report = batches.report();
/// assert_eq!((report.batches, report.samples), (5, 100));
/// // Here there is one class; a GPU adds the classes of nvJPEG.
/// println!("decoded by {:?}", report.decoded_by);
/// assert_eq!(report.decoded_by.values().sum::<u64>(), report.samples);
/// println!("{:.0} samples/s", report.samples as f64 / report.elapsed.as_secs_f64());
/// println!("the trainer waited {:?} in all, at most {:?}", report.data_wait.sum, report.data_wait.max);
/// println!("{}", serde_json::to_string_pretty(&report).expect("numbers and texts"));
/// # Ok(()) }
/// ```
#[derive(Default, Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// Batches handed over.
    pub batches: u64,
    /// Rows handed over, without padding.
    pub samples: u64,
    /// Bytes read from the source.
    pub bytes_read: u64,
    /// Time since the start of the stream; for a dropped stream, until it was dropped.
    #[serde(rename = "seconds", serialize_with = "seconds")]
    pub elapsed: Duration,
    /// From the start of the stream to the first batch.
    #[serde(rename = "first_batch_seconds", serialize_with = "optional_seconds")]
    pub first_batch: Option<Duration>,
    /// How long the trainer has been waiting for the batch that it requested; `None` if it is not waiting.
    #[serde(rename = "waiting_seconds", serialize_with = "optional_seconds", skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Duration>,
    /// Whole time inside `.next()`, including the time spent in polls. Excludes the first batch.
    pub data_wait: Times,
    /// The same waits by length. Each count includes the shorter waits; waits longer than the last bound are counted in
    /// `data_wait.count` only. The bounds are the same for every stream.
    pub wait_buckets: Vec<WaitBucket>,
    /// Time from one batch to the next, including the wait. Excludes the first batch.
    pub step: Times,
    /// Per stage.
    pub stages: Vec<StageReport>,
    /// Samples by the class of decode threads that made their rows, such as `cpu`, `nvjpeg-hardware` and
    /// `nvjpeg-hybrid`. Lists each class of the decoder, even if it made none. Counts batches ahead too, and pixels
    /// that needed no decoding. After the last batch the counts add up to the rows that were not bad.
    pub decoded_by: BTreeMap<&'static str, u64>,
    /// What the first batch did from the start of the stream until it was handed over.
    pub first_batch_parts: Vec<FirstBatchPart>,
    /// Batches after the first that the trainer waited for, a millisecond or longer: the hundred longest waits, longest
    /// first, each with its cause.
    pub late_batches: Vec<LateBatch>,
    /// How many batches were late for each cause, over all late batches, the longest total wait first.
    pub late_causes: Vec<CauseReport>,
    /// How full the queues were when the trainer requested a batch.
    pub queues: Vec<QueueReport>,
    /// The settings on `auto`, and how they were changed while the stream ran.
    pub autotune: TuneReport,
    /// Requests to a remote store, and calls of `Dataset::read`; `None` if none are made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<RequestReport>,
    /// The cache; `None` if there is none.
    pub cache: Option<CacheReport>,
    /// The decoded cache, whose hits count records; `None` if there is none.
    pub decoded_cache: Option<CacheReport>,
    /// Samples that were skipped or substituted (the first 1,000).
    pub bad_samples: Vec<BadSample>,
    /// Total number of bad samples.
    pub bad_sample_count: u64,
    /// How many of them could not be read.
    pub unreadable_count: u64,
}

impl Report {
    /// Accelerator utilisation as MLPerf Storage counts it: the share of the steps' time that was not spent waiting for
    /// data, 0 to 1; `None` before the second batch.
    #[must_use]
    pub fn au(&self) -> Option<f64> {
        let step = self.step.sum.as_secs_f64();
        (step > 0.0).then(|| (1.0 - self.data_wait.sum.as_secs_f64() / step).max(0.0))
    }

    /// The stage that limits the rate: the trainer (`Yield`) if data was waiting for it, otherwise the busiest stage.
    #[must_use]
    pub fn bottleneck(&self) -> Option<Stage> {
        // Above 95 % the trainer hardly waits, so a faster loader would change nothing.
        if self.au()? > 0.95 {
            return Some(Stage::Yield);
        }
        let work = self.stages.iter().filter(|s| s.stage != Stage::Yield);
        work.max_by_key(|s| s.busy).filter(|s| s.busy > Duration::ZERO).map(|s| s.stage)
    }
}
