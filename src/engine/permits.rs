//! How many batches may own rows: permits whose number follows the run.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Places for batches with rows. A permit travels with its batch until the trainer has it.
#[derive(Debug)]
pub(super) struct RowPermits {
    permits: Arc<Semaphore>,
    /// Permits there are, those that are out included.
    size: AtomicUsize,
    /// Nanoseconds that batches waited for one.
    blocked: AtomicU64,
}

impl RowPermits {
    pub(super) fn new(size: usize) -> Self {
        Self { permits: Arc::new(Semaphore::new(size)), size: size.into(), blocked: AtomicU64::new(0) }
    }

    /// Waits for a place, in the order of the calls. `None` never happens while the stream lives; it
    /// spares an `expect`.
    pub(super) async fn acquire(&self) -> Option<OwnedSemaphorePermit> {
        let began = Instant::now();
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok()?;
        let waited = began.elapsed();
        self.blocked.fetch_add(u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        Some(permit)
    }

    pub(super) fn size(&self) -> usize {
        self.size.load(Ordering::Relaxed)
    }

    /// Places that no batch has.
    pub(super) fn free(&self) -> usize {
        self.permits.available_permits()
    }

    pub(super) fn blocked(&self) -> Duration {
        Duration::from_nanos(self.blocked.load(Ordering::Relaxed))
    }

    pub(super) fn grow_to(&self, size: usize) {
        let more = size.saturating_sub(self.size());
        self.size.fetch_add(more, Ordering::Relaxed);
        self.permits.add_permits(more);
    }

    /// Waits until the trainer has taken so many that the others fit; one place always stays. Cancel safe.
    pub(super) async fn shrink_to(&self, size: usize) {
        // One by one: whoever waits for several at a time would keep them from the batches behind, and two who do so
        // could wait for ever.
        while self.size() > size.max(1) {
            let Ok(permit) = self.permits.acquire().await else { return };
            // Another one may have made it small meanwhile.
            if self
                .size
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| (now > size.max(1)).then(|| now - 1))
                .is_ok()
            {
                permit.forget();
            }
        }
    }
}
