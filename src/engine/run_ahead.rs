//! How far threads work ahead of an incomplete batch, if rows are large.
//!
//! A thread without work at one batch begins the next one and touches its memory: 120 MB for four samples of 144³. So
//! each delay of one thread let the others begin another batch, up to the whole prefetch, and touched buffers stay
//! allocated. Therefore a new batch waits
//! - until it is close enough to the oldest incomplete batch: close enough to keep one job for each thread;
//! - until no more buffers are in use than these batches need, or the trainer waits for a batch (then it keeps the
//!   buffers that it has).
//!
//! The oldest batch waits only for a moment, so complete batches for the trainer accumulate as the permits for rows
//! allow.

use std::{
    collections::BTreeSet,
    future::Future,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{FutureExt, future::FusedFuture, select};
use tokio::sync::Notify;

/// How long the oldest batch waits for a buffer that the trainer may give back soon, before another buffer is
/// allocated. About the time of four samples of 144³ on two cores: a trainer that takes longer has one batch ahead and
/// does not wait.
pub(super) const MOMENT: Duration = Duration::from_millis(20);

/// Begun and incomplete batches of one stream.
#[derive(Debug, Default)]
pub(super) struct RunAhead {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Notified when a batch is complete, and when the trainer waits.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Batches that were begun.
    begun: u64,
    /// All batches before this one are complete.
    oldest: u64,
    /// Complete batches after it.
    whole: BTreeSet<u64>,
    /// Whether the trainer waits for a batch.
    asked: bool,
}

/// A batch that is being made. It is dropped when the batch is complete or given up.
#[derive(Debug)]
pub(super) struct Begun {
    shared: Arc<Shared>,
    number: u64,
}

/// How many batches may be begun from the oldest incomplete one on: that batch, and a job for each thread after it.
pub(super) const fn width(threads: usize, jobs: usize) -> u64 {
    1 + threads.div_ceil(if jobs == 0 { 1 } else { jobs }) as u64
}

impl RunAhead {
    /// Begins the next batch when it is among the first `width` batches from the oldest incomplete one on, and fewer
    /// than `width` buffers are `lent`. `returned` resolves when a buffer comes back; the oldest batch waits for one
    /// only until `moment` resolves. One caller at a time. Cancel safe.
    pub(super) async fn begin<R: Future<Output = ()>>(
        &self,
        width: u64,
        lent: impl Fn() -> u64,
        returned: impl Fn() -> R,
        moment: impl Future<Output = ()>,
    ) -> Begun {
        let mut moment = pin!(moment.fuse());
        loop {
            // Registered from now on, polled or not.
            let (changed, returned) = (self.shared.changed.notified(), returned());
            {
                let mut state = self.shared.lock();
                let next = state.begun;
                let near = next < state.oldest + width;
                let room = state.asked || lent() < width || next == state.oldest && moment.is_terminated();
                if near && room {
                    state.begun += 1;
                    return Begun { shared: Arc::clone(&self.shared), number: next };
                }
            }
            let (mut changed, mut returned) = (pin!(changed.fuse()), pin!(returned.fuse()));
            // Ignored after it has resolved: a batch that is not the oldest continues to wait.
            select! { () = changed => {}, () = returned => {}, () = moment => {} }
        }
    }

    /// Sets whether the trainer waits for a batch.
    pub(super) fn asked(&self, asked: bool) {
        let told = std::mem::replace(&mut self.shared.lock().asked, asked);
        if asked && !told {
            self.shared.changed.notify_waiters();
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
        // The trainer gets what it asked for.
        state.asked &= self.number != state.oldest;
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
    use std::{
        cell::Cell,
        future::{pending, ready},
    };

    use super::*;

    fn begin(ahead: &RunAhead, width: u64, lent: u64) -> Option<Begun> {
        ahead.begin(width, || lent, pending, ready(())).now_or_never()
    }

    #[test]
    fn a_batch_waits_for_the_oldest_that_is_not_whole() {
        let ahead = RunAhead::default();
        let begin = |width| begin(&ahead, width, 0);
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
    fn a_batch_ahead_waits_for_a_buffer_unless_the_trainer_waits() {
        let ahead = RunAhead::default();
        let first = begin(&ahead, 2, 9).expect("the moment is over");
        assert!(begin(&ahead, 2, 2).is_none());
        ahead.asked(true);
        let second = begin(&ahead, 2, 2).expect("the trainer keeps what it has until it gets another");
        drop(first);
        assert!(begin(&ahead, 2, 2).is_none(), "it gets the first, and may give back the one before");
        drop(second);
        let waits = ahead.begin(2, || 2, pending::<()>, pending());
        assert!(waits.now_or_never().is_none(), "the trainer may be about to give one back");
        assert!(begin(&ahead, 2, 9).is_some(), "after a moment what is whole piles up");
    }

    #[test]
    fn whoever_waits_wakes_when_the_oldest_is_whole_a_buffer_comes_back_or_the_trainer_waits() {
        let ahead = RunAhead::default();
        let first = begin(&ahead, 1, 0).unwrap();
        {
            let mut second = pin!(ahead.begin(1, || 0, pending, ready(())));
            assert!(second.as_mut().now_or_never().is_none());
            drop(first);
            assert_eq!(second.now_or_never().map(|begun| begun.number), Some(1));
        }
        let ahead = RunAhead::default();
        let _first = begin(&ahead, 1, 0).unwrap();
        {
            let mut second = pin!(ahead.begin(2, || 2, pending, ready(())));
            assert!(second.as_mut().now_or_never().is_none());
            ahead.asked(true);
            assert!(second.now_or_never().is_some());
            ahead.asked(false);
        }
        let lent = Cell::new(3);
        let back = || {
            lent.set(lent.get() - 1);
            ready(())
        };
        assert!(ahead.begin(3, || lent.get(), back, pending()).now_or_never().is_some());
    }

    #[test]
    fn each_thread_has_a_job_behind_the_oldest_batch() {
        assert_eq!([(1, 4), (4, 4), (5, 4), (16, 4), (4, 1), (4, 0)].map(|(t, j)| width(t, j)), [2, 2, 3, 5, 5, 5]);
    }
}
