//! Decode threads that are none: a test does their jobs, one at a time, on its own thread.
//!
//! While [`Hands`] live, whoever starts decode threads on the same thread gives them to it instead. With a tokio runtime that
//! runs nothing by itself either, the test decides what happens next, so a seed decides all of it.

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

/// What would be a decode thread.
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

    /// Thread `n` takes a job and does it, if there is one for it. `each` is what a record shall have cost, which
    /// decides how many make a job: a clock would have it differ from run to run.
    pub(crate) fn step(&self, n: usize, each: Duration) -> bool {
        // Nobody is added while a job is done: threads are added by tasks.
        let mut hands = self.0.borrow_mut();
        let Hand { thread, worker, serving, buffers, .. } = &mut hands[n];
        let did = thread.turn(&mut **worker, serving, buffers, false);
        thread.chunk.set_cost(each);
        did
    }

    /// Lets the threads of loaders that are gone go, too.
    pub(crate) fn clear(&self) {
        self.0.borrow_mut().clear();
    }
}

impl Drop for Hands {
    fn drop(&mut self) {
        HANDS.set(None);
    }
}

/// Whether threads are done by hand here.
pub(super) fn installed() -> bool {
    HANDS.with_borrow(Option::is_some)
}

/// Takes what would be a thread.
pub(super) fn take(thread: DecodeThread, memory: Option<OwnedSemaphorePermit>) -> Result<()> {
    let worker = thread.worker()?;
    thread.queue.entered(thread.class);
    let serving = Serving::new(thread.meters);
    let hand = Hand { thread, worker, serving, buffers: Buffers::default(), _memory: memory };
    HANDS.with_borrow(|hands| hands.as_ref().expect("it is installed").borrow_mut().push(hand));
    Ok(())
}
