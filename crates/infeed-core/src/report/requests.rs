//! What the requests to a remote store did, and what they may cost.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use serde::Serialize;

use super::times::{Clock, Times, seconds};

/// The most slow reads that are listed.
const SLOWEST: usize = 10;

/// What the requests of one stream to a remote store did so far. A call of `Dataset::read` counts as one request, and
/// as failed if all its records failed.
///
/// `requests` is `answered + failed + dropped`, plus the requests still in flight.
///
/// ```
/// # #[cfg(feature = "png")] {
/// # use futures::StreamExt;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
/// # let mut png = std::io::Cursor::new(Vec::new());
/// # image::RgbImage::new(8, 8).write_to(&mut png, image::ImageFormat::Png).unwrap();
/// # let png = bytes::Bytes::from(png.into_inner());
/// # use object_store::ObjectStoreExt;
/// # let store = object_store::memory::InMemory::new();
/// # for name in ["cats/1.png", "cats/2.png", "dogs/3.png", "dogs/4.png"] {
/// #     store.put(&name.into(), png.clone().into()).await.unwrap();
/// # }
/// # let source = infeed::source::Source::from_store(std::sync::Arc::new(store), Default::default(), "s3://pets/train");
/// # let dataset = infeed::dataset::open_source(source).await?;
/// # let transform = infeed::Transform::new().resize_exact(8, 8);
/// # let loader = infeed::Loader::builder(dataset).batch_size(2).transform(transform).build().await?;
/// # let mut batches = loader.epoch(0);
/// # while batches.next().await.transpose()?.is_some() {}
/// // After an epoch of four objects of a bucket.
/// let requests = batches.report().requests.expect("a remote store");
/// println!("{} requests, half of them within {:?}", requests.requests, requests.time.p50);
/// assert!(requests.answered >= 4 && requests.failed == 0);
/// # Ok(()) } main().unwrap() }
/// ```
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct RequestReport {
    /// Requests sent, including retries and hedged copies.
    pub requests: u64,
    /// Requests that were answered in full, including answers that came too late to be used.
    pub answered: u64,
    /// Requests that ended with an error, a short body or a refusal.
    pub failed: u64,
    /// Requests that were given up: the slower of two copies, after a deadline, or when the stream was dropped.
    pub dropped: u64,
    /// New requests after a failed one.
    pub retries: u64,
    /// Second copies of slow requests.
    pub hedges: u64,
    /// Hedged copies that answered before the first request.
    pub hedges_won: u64,
    /// Answers by which the store asked for fewer requests.
    pub throttled: u64,
    /// Bytes of answered requests.
    pub bytes: u64,
    /// Time from a request to its last byte, for answered requests.
    pub time: Times,
    /// Time from a request to its first byte, for answered requests.
    pub first_byte: Times,
    /// The most requests in flight at once.
    pub most_in_flight: u64,
    /// How many requests this process may now have in flight to this store.
    pub limit: u64,
    /// The ten slowest reads, slowest first. A read that is still running counts with its time so far.
    pub slowest: Vec<SlowRequest>,
}

/// A read that took long.
///
/// ```
/// # #[cfg(feature = "png")] {
/// # use futures::StreamExt;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
/// # let mut png = std::io::Cursor::new(Vec::new());
/// # image::RgbImage::new(8, 8).write_to(&mut png, image::ImageFormat::Png).unwrap();
/// # let png = bytes::Bytes::from(png.into_inner());
/// # use object_store::ObjectStoreExt;
/// # let store = object_store::memory::InMemory::new();
/// # for name in ["cats/1.png", "cats/2.png", "dogs/3.png", "dogs/4.png"] {
/// #     store.put(&name.into(), png.clone().into()).await.unwrap();
/// # }
/// # let source = infeed::source::Source::from_store(std::sync::Arc::new(store), Default::default(), "s3://pets/train");
/// # let dataset = infeed::dataset::open_source(source).await?;
/// # let transform = infeed::Transform::new().resize_exact(8, 8);
/// # let loader = infeed::Loader::builder(dataset).batch_size(2).transform(transform).build().await?;
/// # let mut batches = loader.epoch(0);
/// # while batches.next().await.transpose()?.is_some() {}
/// let requests = batches.report().requests.expect("a remote store");
/// for slow in &requests.slowest {
///     println!("{:?} for {} @ {:?}, {} attempts", slow.time, slow.object, slow.range, slow.attempts);
/// }
/// # assert!(requests.slowest.len() >= 4);
/// # Ok(()) } main().unwrap() }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SlowRequest {
    /// The object, as the user would type it.
    pub object: String,
    /// The bytes of it that were read.
    pub range: Range<u64>,
    /// From the first request for these bytes to their last byte.
    #[serde(rename = "seconds", serialize_with = "seconds")]
    pub time: Duration,
    /// Requests sent one after another; hedged copies are not counted.
    pub attempts: u32,
}

/// An estimate of what the operator of a store charges for the requests of one epoch.
///
/// ```
/// # #[cfg(feature = "png")] {
/// # use futures::StreamExt;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
/// # let mut png = std::io::Cursor::new(Vec::new());
/// # image::RgbImage::new(8, 8).write_to(&mut png, image::ImageFormat::Png).unwrap();
/// # let png = bytes::Bytes::from(png.into_inner());
/// # use object_store::ObjectStoreExt;
/// # let store = object_store::memory::InMemory::new();
/// # for name in ["cats/1.png", "cats/2.png", "dogs/3.png", "dogs/4.png"] {
/// #     store.put(&name.into(), png.clone().into()).await.unwrap();
/// # }
/// # let source = infeed::source::Source::from_store(std::sync::Arc::new(store), Default::default(), "s3://pets/train");
/// # let dataset = infeed::dataset::open_source(source).await?;
/// # let transform = infeed::Transform::new().resize_exact(8, 8);
/// # let loader = infeed::Loader::builder(dataset).batch_size(2).transform(transform).build().await?;
/// # let mut batches = loader.epoch(0);
/// # while batches.next().await.transpose()?.is_some() {}
/// // What one epoch of this bucket costs in requests.
/// let requests = batches.report().requests.expect("a remote store");
/// let cost = requests.cost_estimate("s3://pets/train", 1.0).expect("S3 has a list price");
/// println!("{:.6} USD for {} requests", cost.usd_per_epoch, cost.requests_per_epoch);
/// println!("at the price of {} of {}", cost.price_of, cost.price_date);
/// assert!(cost.requests_per_epoch >= 4.0);
/// # Ok(()) } main().unwrap() }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CostEstimate {
    /// US dollars for the requests of one epoch of all ranks. Excludes traffic, storage and listing.
    pub usd_per_epoch: f64,
    /// Requests of one epoch of all ranks, computed from those that were sent.
    pub requests_per_epoch: f64,
    /// The list price used, in US dollars.
    pub usd_per_1000_requests: f64,
    /// The store and operation that the price is for. A store behind another endpoint has its own price.
    pub price_of: &'static str,
    /// When the price was looked up.
    pub price_date: &'static str,
}

/// List prices of read requests: scheme, dollars for 1,000 requests, description.
const PRICES: [(&str, f64, &str); 3] = [
    ("s3", 0.000_4, "GET, Amazon S3 Standard, us-east-1"),
    ("gs", 0.000_4, "class B operation, Google Cloud Storage Standard, us-central1"),
    ("az", 0.000_5, "read operation, Azure Blob Storage hot tier, East US, rounded up"),
];
const PRICE_DATE: &str = "2025-06";

impl RequestReport {
    /// What the requests of one epoch may cost at list price. `share` is how much of an epoch was read from `url` so
    /// far (1.5: one and a half epochs). `None` for stores without a list price, and when nothing was read.
    #[must_use]
    pub fn cost_estimate(&self, url: &str, share: f64) -> Option<CostEstimate> {
        let (scheme, _) = url.split_once("://")?;
        let (_, usd_per_1000_requests, price_of) =
            *PRICES.iter().find(|(known, ..)| known.eq_ignore_ascii_case(scheme))?;
        if !(share.is_finite() && share > 0.0) {
            return None;
        }
        let requests_per_epoch = self.requests as f64 / share;
        let usd_per_epoch = requests_per_epoch / 1000.0 * usd_per_1000_requests;
        let price_date = PRICE_DATE;
        Some(CostEstimate { usd_per_epoch, requests_per_epoch, usd_per_1000_requests, price_of, price_date })
    }
}

/// Why a request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The first request of a read.
    First,
    /// Another request after a failure.
    Retry,
    /// A second copy while the first request is slow.
    Hedge,
}

/// How a request ended.
#[derive(Clone, Copy, Debug)]
enum End {
    Answered { first_byte: Duration, bytes: u64 },
    Failed { throttled: bool },
    Dropped,
}

#[derive(Debug, Default)]
struct Totals {
    /// All figures except the times and the list of slow reads.
    report: RequestReport,
    in_flight: u64,
    time: Clock,
    first_byte: Clock,
    /// Reads with a request in flight, by batch, then in the order in which they began.
    waiting: BTreeMap<(u64, u64), Read>,
    reads: u64,
}

#[derive(Clone, Debug)]
struct Read {
    object: String,
    range: Range<u64>,
    began: Instant,
    attempt: u32,
}

impl Read {
    fn slow(&self, now: Instant) -> SlowRequest {
        let Self { object, range, began, attempt } = self.clone();
        SlowRequest { object, range, time: now.saturating_duration_since(began), attempts: attempt }
    }
}

impl Totals {
    fn note_slow(list: &mut Vec<SlowRequest>, slow: impl FnOnce() -> SlowRequest, time: Duration) {
        if list.len() == SLOWEST && list.last().is_some_and(|last| last.time >= time) {
            return;
        }
        let at = list.partition_point(|other| other.time >= time);
        list.insert(at, slow());
        list.truncate(SLOWEST);
    }
}

/// Collects what the requests of one stream did. A clone is another handle to the same counts.
#[derive(Clone, Debug, Default)]
pub struct RequestRecorder(Arc<Mutex<Totals>>);

impl RequestRecorder {
    fn totals(&self) -> MutexGuard<'_, Totals> {
        // The counters are usable in whatever state a panicking thread left them.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a request was sent at `now`. If the guard is dropped before its end was recorded, the request
    /// counts as dropped.
    pub fn sent(&self, why: Sent, limit: usize, now: Instant) -> SentRequest<'_> {
        let mut totals = self.totals();
        totals.in_flight += 1;
        let in_flight = totals.in_flight;
        let report = &mut totals.report;
        report.requests += 1;
        report.retries += u64::from(why == Sent::Retry);
        report.hedges += u64::from(why == Sent::Hedge);
        report.most_in_flight = report.most_in_flight.max(in_flight);
        report.limit = limit as u64;
        SentRequest { recorder: self, began: now, end: End::Dropped, at: now }
    }

    /// Records that a hedged copy answered first.
    pub fn hedge_won(&self) {
        self.totals().report.hedges_won += 1;
    }

    /// Records that a read of a batch waits for its first request from `now` on, until the guard is dropped.
    pub fn reading(&self, batch: u64, object: String, range: Range<u64>, now: Instant) -> Reading<'_> {
        let mut totals = self.totals();
        totals.reads += 1;
        let key = (batch, totals.reads);
        totals.waiting.insert(key, Read { object, range, began: now, attempt: 1 });
        Reading { recorder: self, key, at: None }
    }

    /// Of the first batch with a waiting read: its oldest read, if that has waited longer than `limit`.
    pub fn late(&self, now: Instant, limit: Duration) -> Option<SlowRequest> {
        let totals = self.totals();
        let (&(batch, _), _) = totals.waiting.first_key_value()?;
        let oldest = totals.waiting.range((batch, 0)..=(batch, u64::MAX)).map(|(_, read)| read);
        let oldest = oldest.min_by_key(|read| read.began)?.slow(now);
        (oldest.time > limit).then_some(oldest)
    }

    /// The figures so far.
    pub fn report(&self, now: Instant) -> RequestReport {
        let totals = self.totals();
        let mut report = totals.report.clone();
        (report.time, report.first_byte) = (totals.time.times(), totals.first_byte.times());
        for read in totals.waiting.values() {
            let time = now.saturating_duration_since(read.began);
            Totals::note_slow(&mut report.slowest, || read.slow(now), time);
        }
        report
    }
}

/// A request in flight.
#[derive(Debug)]
pub struct SentRequest<'a> {
    recorder: &'a RequestRecorder,
    began: Instant,
    end: End,
    at: Instant,
}

impl SentRequest<'_> {
    #[doc(hidden)]
    pub fn answered(mut self, now: Instant, first_byte: Duration, bytes: u64) {
        (self.end, self.at) = (End::Answered { first_byte, bytes }, now);
    }

    #[doc(hidden)]
    pub fn failed(mut self, throttled: bool) {
        self.end = End::Failed { throttled };
    }
}

impl Drop for SentRequest<'_> {
    fn drop(&mut self) {
        let mut totals = self.recorder.totals();
        totals.in_flight -= 1;
        match self.end {
            End::Answered { first_byte, bytes } => {
                totals.report.answered += 1;
                totals.report.bytes += bytes;
                totals.time.record(self.at.saturating_duration_since(self.began));
                totals.first_byte.record(first_byte);
            }
            End::Failed { throttled } => {
                totals.report.failed += 1;
                totals.report.throttled += u64::from(throttled);
            }
            End::Dropped => totals.report.dropped += 1,
        }
    }
}

/// A read in progress. If it is dropped without [`done`](Self::done), its time is not recorded.
#[derive(Debug)]
pub struct Reading<'a> {
    recorder: &'a RequestRecorder,
    key: (u64, u64),
    at: Option<Instant>,
}

impl Reading<'_> {
    /// Records the next request, after one that failed.
    pub fn attempt(&self, attempt: u32) {
        if let Some(read) = self.recorder.totals().waiting.get_mut(&self.key) {
            read.attempt = attempt;
        }
    }

    /// Records that the read ended, whether it succeeded or failed.
    pub fn done(mut self, now: Instant) {
        self.at = Some(now);
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let mut totals = self.recorder.totals();
        let Some(read) = totals.waiting.remove(&self.key) else { return };
        if let Some(now) = self.at {
            let time = now.saturating_duration_since(read.began);
            Totals::note_slow(&mut totals.report.slowest, || read.slow(now), time);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn every_request_ends_in_one_way() {
        let (recorder, now) = (RequestRecorder::default(), Instant::now());
        recorder.sent(Sent::First, 8, now).answered(now + ms(30), ms(10), 100);
        recorder.sent(Sent::First, 8, now).failed(true);
        recorder.sent(Sent::Retry, 4, now).failed(false);
        let straggler = recorder.sent(Sent::Retry, 4, now);
        recorder.sent(Sent::Hedge, 4, now).answered(now + ms(20), ms(10), 50);
        recorder.hedge_won();
        drop(straggler);
        let report = recorder.report(now);
        assert_eq!((report.requests, report.answered, report.failed, report.dropped), (5, 2, 2, 1));
        assert_eq!((report.retries, report.hedges, report.hedges_won, report.throttled), (2, 1, 1, 1));
        assert_eq!((report.bytes, report.most_in_flight, report.limit), (150, 2, 4));
        assert_eq!((report.time.sum, report.first_byte.sum), (ms(50), ms(20)));
    }

    #[test]
    fn the_slowest_reads_are_listed_finished_or_not() {
        let (recorder, now) = (RequestRecorder::default(), Instant::now());
        for n in 0..15u64 {
            let reading = recorder.reading(0, format!("x{n}"), 0..10, now);
            reading.attempt(2);
            reading.done(now + ms(n * 10));
        }
        let _stuck = recorder.reading(1, "stuck".into(), 5..10, now);
        let report = recorder.report(now + ms(95));
        let names: Vec<&str> = report.slowest.iter().map(|slow| slow.object.as_str()).collect();
        assert_eq!(names, ["x14", "x13", "x12", "x11", "x10", "stuck", "x9", "x8", "x7", "x6"]);
        assert_eq!((report.slowest[0].time, report.slowest[0].attempts), (ms(140), 2));
    }

    #[test]
    fn the_watchdog_sees_the_oldest_read_of_the_first_batch() {
        let (recorder, now) = (RequestRecorder::default(), Instant::now());
        let late = |after| recorder.late(now + ms(after), ms(5000)).map(|slow| slow.object);
        assert_eq!(late(9000), None);
        let behind = recorder.reading(4, "later batch".into(), 0..1, now);
        let quick = recorder.reading(3, "quick".into(), 0..1, now + ms(10));
        let head = recorder.reading(3, "head".into(), 0..1, now + ms(5));
        assert_eq!(late(5004), None);
        assert_eq!(late(5006).as_deref(), Some("head"));
        head.done(now + ms(5006));
        quick.done(now + ms(5006));
        assert_eq!(late(5006).as_deref(), Some("later batch"));
        drop(behind);
        assert_eq!(late(9000), None);
    }

    #[test]
    fn cost_is_the_list_price_of_an_epochs_requests() {
        let report = RequestReport { requests: 1_281_167 * 2, ..RequestReport::default() };
        let cost = report.cost_estimate("s3://imagenet/train", 2.0).unwrap();
        assert!((cost.usd_per_epoch - 0.51).abs() < 0.01, "{cost:?}");
        assert_eq!(report.cost_estimate("/data/train", 2.0), None);
        assert_eq!(report.cost_estimate("memory://x", 2.0), None);
        assert_eq!(report.cost_estimate("s3://imagenet/train", 0.0), None);
    }
}
