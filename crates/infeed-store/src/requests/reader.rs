//! How a stream reads.

use std::sync::{Arc, LazyLock};

use infeed_core::report::RequestRecorder;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{
    limit::{self, spare},
    permits::Turn,
};
use crate::{Sums, Verify};

/// How a stream reads: a ceiling of its own, and who writes down what its requests did.
#[derive(Clone, Debug)]
pub struct Reader {
    pub(super) ceiling: Option<Arc<Ceiling>>,
    pub(super) recorder: RequestRecorder,
    /// Whose reads they are, for the watchdog.
    pub(super) batch: u64,
    /// How what comes is compared with what the store tells.
    verify: Verify,
    /// Where.
    sums: Arc<Sums>,
}

/// Reads that belong to no stream share a recorder that nobody asks: its histograms cost more than a small read.
static NOBODYS: LazyLock<RequestRecorder> = LazyLock::new(RequestRecorder::default);
/// Whoever lends no thread.
static HERE: LazyLock<Arc<Sums>> = LazyLock::new(Arc::default);

impl Default for Reader {
    fn default() -> Self {
        Self::new(None, NOBODYS.clone())
    }
}

/// Permits of one stream; a part is kept for second copies.
#[derive(Debug)]
pub(super) struct Ceiling {
    pub(super) regular: Semaphore,
    pub(super) copies: Semaphore,
}

impl Reader {
    /// At most `most` requests in flight (`None`: as many as the store's limit allows).
    pub fn new(most: Option<usize>, recorder: RequestRecorder) -> Self {
        let ceiling = most.map(|most| {
            // 0 would wait for ever.
            let most = most.clamp(1, limit::MOST);
            let copies = spare(most);
            Arc::new(Ceiling { regular: Semaphore::new(most - copies), copies: Semaphore::new(copies) })
        });
        // Who reads for no run reads little that counts much: indexes, labels.
        Self { ceiling, recorder, batch: 0, verify: Verify::Auto, sums: Arc::clone(&HERE) }
    }

    /// One below the same ceiling that tells somebody else.
    pub fn with_recorder(&self, recorder: RequestRecorder) -> Self {
        Self { recorder, ..self.clone() }
    }

    /// One whose reads are compared so.
    pub fn verifying(self, verify: Verify) -> Self {
        Self { verify, ..self }
    }

    /// One whose reads are compared on such threads. Without them, they are where they are awaited.
    pub fn comparing(self, sums: &Arc<Sums>) -> Self {
        Self { sums: Arc::clone(sums), ..self }
    }

    pub(crate) const fn sums(&self) -> &Arc<Sums> {
        &self.sums
    }

    pub(crate) const fn verify(&self) -> Verify {
        self.verify
    }

    /// The same for the reads of one batch; batches are numbered in the order in which they are wanted.
    pub fn of_batch(&self, batch: u64) -> Self {
        Self { batch, ..self.clone() }
    }
}

/// Permits of one request: under the stream's ceiling and under the store's limit.
pub(super) struct Permits<'a> {
    pub(super) _ceiling: Option<SemaphorePermit<'a>>,
    pub(super) turn: Turn<'a>,
}
