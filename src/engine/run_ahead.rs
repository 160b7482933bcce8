//! How far threads go ahead of a batch that is not whole yet, where rows are large.
//!
//! Whoever runs out of work at one batch begins the next, and touches its memory: 120 MB for four samples of 144³. Each
//! stumble of one thread let the others begin another batch, up to all that may be ahead, and buffers that were touched
//! once stay. So a new batch waits until the oldest that is not whole is near enough, which keeps as many jobs at hand as
//! there are threads. What is whole and waits for the trainer does not count: permits for rows bound that.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

/// Batches that were begun and are not whole, of one stream.
#[derive(Debug, Default)]
pub(super) struct RunAhead {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Told when the oldest batch is whole.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Batches that were begun.
    begun: u64,
    /// All before this one are whole.
    oldest: u64,
    /// Whole ones behind it.
    whole: BTreeSet<u64>,
}

/// A batch that is being made. When it is dropped the batch is whole, or nobody makes it any more.
#[derive(Debug)]
pub(super) struct Begun {
    shared: Arc<Shared>,
    number: u64,
}

/// Batches that may be begun from the oldest one on that is not whole: that one, and jobs for each thread behind it.
pub(super) const fn width(threads: usize, jobs: usize) -> u64 {
    1 + threads.div_ceil(if jobs == 0 { 1 } else { jobs }) as u64
}

impl RunAhead {
    /// Begins the next batch as soon as it is among the first `width` from the oldest on that is not whole. One caller at a
    /// time. Cancel safe.
    pub(super) async fn begin(&self, width: u64) -> Begun {
        loop {
            let changed = self.shared.changed.notified();
            {
                let mut state = self.shared.lock();
                if state.begun < state.oldest + width.max(1) {
                    state.begun += 1;
                    return Begun { shared: Arc::clone(&self.shared), number: state.begun - 1 };
                }
            }
            changed.await;
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Each section leaves it whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.whole.insert(self.number);
        while state.whole.first() == Some(&state.oldest) {
            state.whole.pop_first();
            state.oldest += 1;
        }
        drop(state);
        self.shared.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_batch_waits_for_the_oldest_that_is_not_whole() {
        let ahead = RunAhead::default();
        let begin = |width| ahead.begin(width).now_or_never();
        let (first, second) = (begin(2).unwrap(), begin(2).unwrap());
        assert!(begin(2).is_none());
        drop(second);
        assert!(begin(2).is_none(), "the second says nothing of the first");
        drop(first);
        // Both are whole.
        let _third = begin(2).unwrap();
        assert!(begin(1).is_none(), "one at a time");
        let _fourth = begin(2).unwrap();
        assert!(begin(2).is_none());
        assert!(begin(3).is_some());
    }

    #[test]
    fn whoever_waits_wakes_when_the_oldest_is_whole() {
        let ahead = RunAhead::default();
        let first = ahead.begin(1).now_or_never().unwrap();
        let mut second = std::pin::pin!(ahead.begin(1));
        assert!(second.as_mut().now_or_never().is_none());
        drop(first);
        assert_eq!(second.now_or_never().map(|begun| begun.number), Some(1));
    }

    #[test]
    fn each_thread_has_a_job_behind_the_oldest_batch() {
        assert_eq!([(1, 4), (4, 4), (5, 4), (16, 4), (4, 1), (4, 0)].map(|(t, j)| width(t, j)), [2, 2, 3, 5, 5, 5]);
    }
}
