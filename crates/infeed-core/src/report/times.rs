//! Repeated times: percentiles, and counts by length.

use std::{fmt, time::Duration};

use hdrhistogram::Histogram;
use serde::{Serialize, Serializer};

/// Percentiles of a repeated time.
///
/// ```
/// # use futures::StreamExt;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
/// # let dataset = infeed::open("synthetic://?count=100&height=8&width=8&classes=10").await?;
/// # let loader = infeed::Loader::builder(dataset).batch_size(20).build().await?;
/// let mut batches = loader.epoch(0);
/// while batches.next().await.transpose()?.is_some() {}
/// let report = batches.report();
/// // All batches except the first.
/// let wait = report.data_wait;
/// println!("half of {} waits took {:?} or less, the longest {:?}", wait.count, wait.p50, wait.max);
/// assert_eq!(wait.count, 4);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Times {
    /// Sum of all times.
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
    /// Longest time.
    #[serde(serialize_with = "seconds")]
    pub max: Duration,
    /// Number of times.
    #[serde(skip)]
    pub count: u64,
}

/// How many waits for data were at most this long.
///
/// ```
/// # use futures::StreamExt;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
/// # let dataset = infeed::open("synthetic://?count=100&height=8&width=8&classes=10").await?;
/// # let loader = infeed::Loader::builder(dataset).batch_size(20).build().await?;
/// let mut batches = loader.epoch(0);
/// while batches.next().await.transpose()?.is_some() {}
/// let report = batches.report();
/// for bucket in &report.wait_buckets {
///     println!("{} of {} waits took {:?} or less", bucket.batches, report.data_wait.count, bucket.at_most);
/// }
/// # assert!(report.wait_buckets.iter().all(|bucket| bucket.batches <= report.data_wait.count));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WaitBucket {
    /// The bound.
    #[serde(serialize_with = "seconds")]
    pub at_most: Duration,
    /// Number of batches whose wait was at most that.
    pub batches: u64,
}

/// Counts waits by length.
#[derive(Clone, Copy, Debug, Default)]
pub struct WaitCounts([u64; Self::BOUNDS.len()]);

impl WaitCounts {
    /// In microseconds. They reach from a hand-over between threads to a store that hangs, three bounds per factor of
    /// ten: quantiles read off them are right within half of a bucket.
    const BOUNDS: [u64; 19] = [
        10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000,
        2_000_000, 5_000_000, 30_000_000,
    ];

    #[doc(hidden)]
    pub fn add(&mut self, wait: Duration) {
        let at = Self::BOUNDS.partition_point(|bound| Duration::from_micros(*bound) < wait);
        if let Some(count) = self.0.get_mut(at) {
            *count += 1;
        }
    }

    #[doc(hidden)]
    pub fn report(&self) -> Vec<WaitBucket> {
        let mut batches = 0;
        let each = Self::BOUNDS.iter().zip(self.0).map(|(bound, count)| {
            batches += count;
            WaitBucket { at_most: Duration::from_micros(*bound), batches }
        });
        each.collect()
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

    /// Adds `items` that took `time` together. Each is counted with the mean.
    pub fn record_many(&mut self, time: Duration, items: u64) {
        if items > 0 {
            self.sum += time;
            let each = u64::try_from(time.as_nanos() / u128::from(items)).unwrap_or(u64::MAX);
            // The histogram grows as needed. It refuses only values above 64 bits.
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

pub(super) fn seconds<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

pub(super) fn optional_seconds<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => serializer.serialize_some(&time.as_secs_f64()),
        None => serializer.serialize_none(),
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
}
