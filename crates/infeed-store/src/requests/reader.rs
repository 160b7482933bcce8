//! How a stream reads.

use std::sync::{Arc, LazyLock};

use infeed_core::report::RequestRecorder;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{
    limit::{self, spare},
    permits::RequestPermit,
};
use crate::{HashThreads, Verify};

/// How a stream reads: its own limit of requests, and the recorder of what they did.
#[derive(Clone, Debug)]
pub struct Reader {
    pub(super) ceiling: Option<Arc<Ceiling>>,
    pub(super) recorder: RequestRecorder,
    /// The batch to which the reads belong, for the watchdog.
    pub(super) batch: u64,
    /// How bytes are compared with what the store sends about them.
    verify: Verify,
    hash_threads: Arc<HashThreads>,
}

/// Reads that belong to no stream share a recorder that is never read: its histograms cost more than a small read.
static NOBODYS: LazyLock<RequestRecorder> = LazyLock::new(RequestRecorder::default);
/// For readers without threads of their own.
static HERE: LazyLock<Arc<HashThreads>> = LazyLock::new(Arc::default);

impl Default for Reader {
    fn default() -> Self {
        Self::new(None, NOBODYS.clone())
    }
}

/// Permits of one stream; a part is reserved for second copies.
#[derive(Debug)]
pub(super) struct Ceiling {
    pub(super) regular: Semaphore,
    pub(super) copies: Semaphore,
}

impl Reader {
    /// At most `most` requests in flight (`None`: as many as the store's limit allows).
    pub fn new(most: Option<usize>, recorder: RequestRecorder) -> Self {
        let ceiling = most.map(|most| {
            // 0 would wait forever.
            let most = most.clamp(1, limit::MOST);
            let copies = spare(most);
            Arc::new(Ceiling { regular: Semaphore::new(most - copies), copies: Semaphore::new(copies) })
        });
        // Reads outside of a run are few but important: indexes, labels.
        Self { ceiling, recorder, batch: 0, verify: Verify::Checksums, hash_threads: Arc::clone(&HERE) }
    }

    /// A reader under the same limit with another recorder.
    pub fn with_recorder(&self, recorder: RequestRecorder) -> Self {
        Self { recorder, ..self.clone() }
    }

    /// A reader whose bytes are compared in this way.
    pub fn verifying(self, verify: Verify) -> Self {
        Self { verify, ..self }
    }

    /// A reader whose bytes are compared on these threads. Without threads, they are compared in the task that awaits
    /// them.
    pub fn comparing(self, threads: &Arc<HashThreads>) -> Self {
        Self { hash_threads: Arc::clone(threads), ..self }
    }

    pub(crate) fn hash_threads(&self) -> &HashThreads {
        &self.hash_threads
    }

    pub(crate) const fn verify(&self) -> Verify {
        self.verify
    }

    /// A reader for one batch; batches are numbered in the order in which they are needed.
    pub fn of_batch(&self, batch: u64) -> Self {
        Self { batch, ..self.clone() }
    }
}

/// Permits of one request, under the stream's limit and the store's.
pub(super) struct Permits<'a> {
    pub(super) _ceiling: Option<SemaphorePermit<'a>>,
    pub(super) turn: RequestPermit<'a>,
}
