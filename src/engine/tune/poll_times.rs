//! Measurements of the trainer's polls.

use std::time::{Duration, Instant};

/// When the trainer polls for batches, and for what it waits.
#[derive(Debug, Default)]
pub(in crate::engine) struct PollTimes {
    asked: Option<Instant>,
    waited: Duration,
    batches: u64,
    swings: u64,
    /// Whether all batches that may be ahead were finished, and none was missing since.
    full: bool,
    fewest: Option<u64>,
}

/// The measurements at a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct PollSnapshot {
    pub(super) polling: bool,
    pub(super) waited: Duration,
    pub(super) batches: u64,
    pub(super) swings: u64,
    pub(super) fewest: Option<u64>,
}

impl PollTimes {
    /// The trainer polls now; `finished` batches are there, of at most `most` ahead.
    pub(in crate::engine) fn asks(&mut self, now: Instant, finished: u64, most: u64) {
        self.asked = Some(now);
        self.fewest = Some(self.fewest.map_or(finished, |fewest| fewest.min(finished)));
        // The place of the batch taken last may still be empty.
        self.full |= finished >= most.saturating_sub(1).max(1);
        if finished == 0 && std::mem::take(&mut self.full) {
            self.swings += 1;
        }
    }

    /// The trainer got a batch that was ready at that moment; any later wait was caused by its own runtime.
    pub(in crate::engine) fn got(&mut self, ready: Instant) {
        self.batches += 1;
        let Some(asked) = self.asked.take() else { return };
        self.waited += ready.saturating_duration_since(asked);
    }

    pub(super) fn look(&mut self, now: Instant, finished: u64) -> PollSnapshot {
        // If batches are there, the trainer may just not poll. The length of its wait is known when it gets one.
        let waits =
            self.asked.filter(|_| finished == 0).map_or(Duration::ZERO, |asked| now.saturating_duration_since(asked));
        PollSnapshot {
            polling: self.asked.is_some(),
            waited: self.waited + waits,
            batches: self.batches,
            swings: self.swings,
            fewest: self.fewest.take(),
        }
    }
}
