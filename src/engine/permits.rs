//! Limits as permits; each travels with the thing that it guards.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes are counted in these units: tokio's semaphores take `u32` permits.
pub(super) const UNIT: u64 = 64 << 10;

/// At least one.
pub(super) fn units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT).max(1)).unwrap_or(u32::MAX >> 4)
}

/// The permits that fit.
pub(crate) fn whole_units(bytes: u64) -> u32 {
    u32::try_from(bytes / UNIT).unwrap_or(u32::MAX >> 4)
}

/// How many batches may own rows; `tune` changes the number. A permit travels with its batch until the trainer has it.
#[derive(Debug)]
pub(super) struct RowPermits {
    permits: Arc<Semaphore>,
    /// All permits, including those in use.
    size: AtomicUsize,
    /// Nanoseconds that batches waited for a permit.
    blocked: AtomicU64,
}

impl RowPermits {
    pub(super) fn new(size: usize) -> Self {
        Self { permits: Arc::new(Semaphore::new(size)), size: size.into(), blocked: AtomicU64::new(0) }
    }

    /// Waits for a permit, in the order of the calls. `None` never happens while the stream lives; it avoids an
    /// `expect`.
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

    /// Permits that no batch has.
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

    /// Waits until the trainer has taken enough batches that the others fit; one permit always stays. Cancel safe.
    pub(super) async fn shrink_to(&self, size: usize) {
        // One by one: waiting for several at once would block later batches, and two such waits could deadlock.
        while self.size() > size.max(1) {
            let Ok(permit) = self.permits.acquire().await else { return };
            // Another call may have reduced it meanwhile.
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
