//! The watched streams, and the counts of streams that have ended.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use infeed_core::report::Report;

use super::families::Sheet;
use crate::loader::Monitor;

/// Metrics of some loaders, and of the process in which they run. Cloning gives another handle.
///
/// ```
/// # #[cfg(feature = "prometheus")] {
/// # use futures::StreamExt;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
/// let dataset = infeed::open("synthetic://?count=100&height=8&width=8&classes=10").await?;
/// let loader = infeed::Loader::builder(dataset).batch_size(32).build().await?;
/// let metrics = infeed::metrics::Metrics::new();
/// for epoch in 0..2 {
///     let mut batches = loader.epoch(epoch);
///     metrics.watch("train", batches.monitor());
///     while batches.next().await.transpose()?.is_some() {}
/// }
/// assert!(metrics.render().contains("infeed_batches_total{loader=\"train\",rank=\"0\"} 6\n"));
/// # Ok(()) } main().unwrap() }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Metrics(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    streams: Vec<Watched>,
    /// Counts of streams that were dropped.
    ended: Sheet,
}

#[derive(Debug)]
struct Watched {
    loader: String,
    monitor: Monitor,
}

impl Metrics {
    /// Metrics of the process only; [`watch`](Self::watch) adds streams.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a stream; its series get `loader` and the stream's rank as labels. Streams of the same name and rank are
    /// summed, so the epochs of a loader continue the same series.
    pub fn watch(&self, loader: &str, monitor: Monitor) {
        self.state().streams.push(Watched { loader: loader.to_owned(), monitor });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each critical section leaves the state whole, so a panic elsewhere cannot have broken it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All values now. Ended streams are folded into `ended`, so that a thousand epochs cost no more than one.
    pub(super) fn sheet(&self) -> Sheet {
        let mut state = self.state();
        let State { streams, ended } = &mut *state;
        let mut running = Sheet::default();
        streams.retain(|Watched { loader, monitor }| {
            // Before the report, so that the report of a dropped stream is its last one.
            let gone = monitor.is_ended();
            let report: Report = monitor.report();
            let sheet = Sheet::of(&report, loader, monitor.rank());
            if gone {
                ended.add(sheet.lasting());
            } else {
                running.add(sheet);
            }
            !gone
        });
        let mut all = ended.clone();
        drop(state);
        all.add(running);
        all.add(Sheet::of_process());
        all
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;

    use super::*;

    #[tokio::test]
    async fn streams_of_one_name_go_on_counting_and_others_stand_beside_them() {
        let dataset = crate::open("synthetic://?count=64&height=8&width=8&classes=10").await.unwrap();
        let loader = crate::Loader::builder(dataset).batch_size(16).build().await.unwrap();
        let metrics = Metrics::new();
        let samples = |loader: &str| metrics.sheet().whole("infeed_samples", loader);
        let mut seen = Vec::new();
        for epoch in 0..3 {
            let mut batches = loader.epoch(epoch);
            metrics.watch("train", batches.monitor());
            while batches.next().await.transpose().unwrap().is_some() {
                seen.push(samples("train"));
            }
        }
        assert_eq!(seen, (1..=12).map(|n| Some(16 * n)).collect::<Vec<_>>());
        assert_eq!(metrics.state().streams.len(), 1, "streams that are gone are folded in when they are looked at");
        let mut other = loader.epoch(0);
        metrics.watch("val", other.monitor());
        other.next().await.unwrap().unwrap();
        assert_eq!((samples("train"), samples("val"), samples("test")), (Some(192), Some(16), None));
        assert_eq!(metrics.state().streams.len(), 1);
        let workers = |loader: &str| metrics.sheet().whole("infeed_workers", loader);
        assert!(workers("val").is_some() && workers("train").is_none(), "a stream that is gone has no workers");
    }
}
