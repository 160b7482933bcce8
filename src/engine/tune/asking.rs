//! What the trainer's asking tells.

use std::time::{Duration, Instant};

/// When the trainer asks for batches, and what it waits for.
#[derive(Debug, Default)]
pub(in crate::engine) struct Asking {
    asked: Option<Instant>,
    waited: Duration,
    batches: u64,
    swings: u64,
    /// All batches that may be ahead were finished, and none was missing since.
    full: bool,
    fewest: Option<u64>,
}

/// What is seen of it at a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) asking: bool,
    pub(super) waited: Duration,
    pub(super) batches: u64,
    pub(super) swings: u64,
    pub(super) fewest: Option<u64>,
}

impl Asking {
    /// It asks now, with `finished` batches there of `most` that may be ahead.
    pub(in crate::engine) fn asks(&mut self, now: Instant, finished: u64, most: u64) {
        self.asked = Some(now);
        self.fewest = Some(self.fewest.map_or(finished, |fewest| fewest.min(finished)));
        // The place of the batch that was taken last may not be filled yet.
        self.full |= finished >= most.saturating_sub(1).max(1);
        if finished == 0 && std::mem::take(&mut self.full) {
            self.swings += 1;
        }
    }

    /// It got a batch that was ready at that moment: what it waited afterwards was its own runtime's fault.
    pub(in crate::engine) fn got(&mut self, ready: Instant) {
        self.batches += 1;
        let Some(asked) = self.asked.take() else { return };
        self.waited += ready.saturating_duration_since(asked);
    }

    pub(super) fn look(&mut self, now: Instant, finished: u64) -> Asked {
        // With batches there it may be that nobody polls. How long it did wait is known when it gets one.
        let waits =
            self.asked.filter(|_| finished == 0).map_or(Duration::ZERO, |asked| now.saturating_duration_since(asked));
        Asked {
            asking: self.asked.is_some(),
            waited: self.waited + waits,
            batches: self.batches,
            swings: self.swings,
            fewest: self.fewest.take(),
        }
    }
}
