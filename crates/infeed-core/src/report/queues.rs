//! How full the queues between the stages were.

use serde::Serialize;

/// How full a queue was. It is looked at each time the trainer requests a batch.
///
/// ```
/// # use futures::StreamExt;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
/// # let dataset = infeed::open("synthetic://?count=100&height=8&width=8&classes=10").await?;
/// # let loader = infeed::Loader::builder(dataset).batch_size(20).build().await?;
/// let mut batches = loader.epoch(0);
/// while batches.next().await.transpose()?.is_some() {}
/// let report = batches.report();
/// let finished = report.queues.iter().find(|queue| queue.name == "finished").expect("it is always told");
/// println!("{:.1} batches were ready on average, none at {:.0} % of the steps", finished.mean, finished.empty * 100.0);
/// assert!(finished.mean <= finished.max as f64);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct QueueReport {
    /// One of: `finished`, batches that were done and not taken; `ahead`, batches that were begun and not taken;
    /// `jobs`, jobs that waited for a decode thread; `encoded`, bytes that were read or being read and not yet decoded.
    pub name: &'static str,
    /// The most it may hold; `None` if only the other queues bound it.
    pub capacity: Option<u64>,
    /// Mean.
    pub mean: f64,
    /// Maximum.
    pub max: u64,
    /// Share of the looks at which it was empty, 0 to 1.
    pub empty: f64,
    /// At the last look.
    #[serde(skip)]
    pub last: u64,
}

/// Sums up the looks at one queue.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gauge {
    sum: u64,
    max: u64,
    empty: u64,
    seen: u64,
    last: u64,
}

impl Gauge {
    #[doc(hidden)]
    pub fn look(&mut self, level: u64) {
        (self.sum, self.last) = (self.sum + level, level);
        self.max = self.max.max(level);
        self.empty += u64::from(level == 0);
        self.seen += 1;
    }

    #[doc(hidden)]
    pub fn report(&self, name: &'static str, capacity: Option<u64>) -> QueueReport {
        let seen = self.seen.max(1) as f64;
        let (mean, empty) = (self.sum as f64 / seen, self.empty as f64 / seen);
        QueueReport { name, capacity, mean, max: self.max, empty, last: self.last }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_tells_mean_maximum_and_emptiness() {
        let mut gauge = Gauge::default();
        [0, 4, 2, 0].into_iter().for_each(|level| gauge.look(level));
        let told = gauge.report("jobs", Some(8));
        assert_eq!((told.mean, told.max, told.empty, told.capacity, told.last), (1.5, 4, 0.5, Some(8), 0));
        assert_eq!(Gauge::default().report("jobs", None).mean, 0.0);
    }
}
