//! Simulated decode threads: a test does their jobs, one at a time, on its own thread.
//!
//! While [`Hands`] live, decode threads that are started on the same thread are handed to it instead. Together with a
//! tokio runtime that runs nothing by itself, the test decides each next event, so a seed determines the whole run.

use std::{cell::RefCell, rc::Rc, time::Duration};

use infeed_core::error::Result;
use infeed_pixels::codec::Worker;
use tokio::sync::OwnedSemaphorePermit;

use super::{
    buffers::Buffers,
    decode_thread::{DecodeThread, Serving},
};

type Shared = Rc<RefCell<Vec<Hand>>>;

thread_local! {
    static HANDS: RefCell<Option<Shared>> = const { RefCell::new(None) };
}

/// A simulated decode thread.
struct Hand {
    thread: DecodeThread,
    worker: Box<dyn Worker>,
    serving: Serving,
    buffers: Buffers,
    _memory: Option<OwnedSemaphorePermit>,
}

/// The decode threads of all loaders that are built on this thread while it lives.
pub(crate) struct Hands(Shared);

impl Hands {
    pub(crate) fn new() -> Self {
        let hands = Shared::default();
        HANDS.set(Some(Rc::clone(&hands)));
        Self(hands)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.borrow().len()
    }

    /// Thread `n` takes a job and does it, if there is one for it. `each` is the assumed cost of a record, which
    /// determines the number of records in a job: a measured cost would differ from run to run.
    pub(crate) fn step(&self, n: usize, each: Duration) -> bool {
        // No thread is added while a job is done: only tasks add threads.
        let mut hands = self.0.borrow_mut();
        let Hand { thread, worker, serving, buffers, .. } = &mut hands[n];
        let did = thread.turn(&mut **worker, serving, buffers, false);
        thread.chunk.set_cost(each);
        did
    }

    /// Drops the threads of dropped loaders.
    pub(crate) fn clear(&self) {
        self.0.borrow_mut().clear();
    }
}

impl Drop for Hands {
    fn drop(&mut self) {
        HANDS.set(None);
    }
}

/// Whether threads are simulated here.
pub(super) fn installed() -> bool {
    HANDS.with_borrow(Option::is_some)
}

/// Takes a simulated thread.
pub(super) fn take(thread: DecodeThread, memory: Option<OwnedSemaphorePermit>) -> Result<()> {
    let worker = thread.worker()?;
    thread.queue.entered(thread.class);
    let serving = Serving::new(thread.meters, thread.lists.as_ref());
    let hand = Hand { thread, worker, serving, buffers: Buffers::default(), _memory: memory };
    HANDS.with_borrow(|hands| hands.as_ref().expect("it is installed").borrow_mut().push(hand));
    Ok(())
}
