//! Limits for calls in which a dataset reads records itself: calls at a time, and records in a call.

use std::{num::NonZeroUsize, sync::Arc};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::chunk::ChunkSize;

/// tokio's limit of the blocking threads of a runtime.
const MOST: usize = 512;

/// Slots for the calls of all streams of a loader, or of jointly built loaders.
#[derive(Debug)]
pub(crate) struct ReadSlots {
    slots: Arc<Semaphore>,
    most: usize,
    /// Number of records in a call, by the measured time of calls.
    pub(super) calls: ChunkSize,
}

impl ReadSlots {
    /// Slots for at most this many calls at a time.
    pub(crate) fn new(most: NonZeroUsize) -> Self {
        let most = most.get().min(MOST);
        Self { slots: Arc::new(Semaphore::new(most)), most, calls: ChunkSize::of_calls() }
    }

    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Records in a call, for a batch of this many: all slots share a batch.
    pub(super) fn in_call(&self, batch: usize) -> usize {
        self.calls.get(batch).min(batch.div_ceil(self.most)).max(1)
    }

    /// Waits until a call may begin, in the order of the calls.
    pub(super) async fn slot(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.slots).acquire_owned().await.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn calls_hold_as_many_records_as_take_a_moment_and_leave_none_of_the_slots_idle() {
        let slots = ReadSlots::new(NonZeroUsize::new(4).unwrap());
        assert_eq!(slots.in_call(64), 1, "nothing is known yet");
        for _ in 0..100 {
            slots.calls.learn(Duration::from_micros(10), 1);
        }
        assert_eq!((slots.in_call(64), slots.in_call(1000), slots.in_call(1)), (16, 70, 1));
        slots.calls.learn(Duration::from_secs(1), 1);
        assert_eq!(slots.in_call(64), 1);
    }
}
