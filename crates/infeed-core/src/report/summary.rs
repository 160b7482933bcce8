//! What a stream did, all of it.

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;

use super::{
    CacheReport, Cause, CauseReport, LateBatch, QueueReport, RequestReport, Stage, StageReport, Times, TuneReport,
    WaitBucket,
    times::{optional_seconds, seconds},
};
use crate::error::Error;

/// What the first batch did for some of the time until it came.
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
    /// What.
    pub cause: Cause,
    /// For how long.
    #[serde(rename = "seconds", serialize_with = "seconds")]
    pub time: Duration,
}

impl FirstBatchPart {
    /// As a stream saw it.
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
    /// It could not be read, whatever is in it: [`Error::is_unreadable`](crate::error::Error::is_unreadable).
    pub unreadable: bool,
}

impl BadSample {
    /// A record at a position of an epoch, and what is wrong with it.
    #[doc(hidden)]
    #[must_use]
    pub fn new(epoch: u64, position: u64, record: u64, error: &Error) -> Self {
        let (object, unreadable) = (error.context().object.clone(), error.is_unreadable());
        Self { epoch, position, record, object, error: format!("{error:#}"), unreadable }
    }
}

/// What a stream did so far. Times are sums over the run; see the fields.
///
/// As JSON (`Serialize`) it is what `infeed run --json` tells of the stream, under the same keys; times are in seconds.
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
/// // Here there is one class; with a GPU there are those of nvJPEG, too.
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
    /// Samples by the class of decode threads that made their rows, such as `cpu`, `nvjpeg-hardware` and `nvjpeg-hybrid`:
    /// each class of the decoder, also where it made none. Those of batches ahead count too, and of pixels that nobody had to
    /// decode. After the last batch they add up to the rows that were not bad.
    pub decoded_by: BTreeMap<&'static str, u64>,
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
    /// Requests to a remote store, and calls in which the dataset reads records itself; `None` where none are made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<RequestReport>,
    /// The cache; `None` where there is none.
    pub cache: Option<CacheReport>,
    /// The decoded cache, whose hits are records; `None` where there is none.
    pub decoded_cache: Option<CacheReport>,
    /// Samples that were skipped or substituted (the first 1,000).
    pub bad_samples: Vec<BadSample>,
    /// How many samples were bad in all.
    pub bad_sample_count: u64,
    /// How many of these could not be read.
    pub unreadable_count: u64,
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
