//! The gate of a stream: requests to stores begin only while it is open, and closing it ends all waits of the stream.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{PoisonError, RwLock, RwLockReadGuard, mpsc},
    task::Poll,
};

use bytes::Bytes;
use infeed_core::error::{Error, ErrorKind, Result};
use infeed_store::{Extent, Reader};
use tokio::sync::Notify;
use tracing::Instrument;

/// Open while the stream lives. A task that reads from a store holds the gate for one poll, in which requests *begin*.
/// So no request begins after [`close`](Gate::close) has returned; one in progress may finish. The gate is not held
/// while a file is opened, because that may hang: see `local_reads.rs`.
#[derive(Debug, Default)]
pub(super) struct Gate {
    closed: RwLock<bool>,
    closing: Notify,
}

impl Gate {
    /// `None` if the stream was dropped.
    pub(super) fn pass(&self) -> Option<RwLockReadGuard<'_, bool>> {
        let guard = self.closed.read().unwrap_or_else(PoisonError::into_inner);
        (!*guard).then_some(guard)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.pass().is_none()
    }

    /// Waits for polls in progress, then wakes all tasks that wait for [`closed`](Self::closed).
    pub(super) fn close(&self) {
        *self.closed.write().unwrap_or_else(PoisonError::into_inner) = true;
        self.closing.notify_waiters();
    }

    /// Ends when the gate closes.
    pub(super) async fn closed(&self) {
        let mut closing = pin!(self.closing.notified());
        // Registered before the check, so that a close in between wakes this task.
        closing.as_mut().enable();
        if !self.is_closed() {
            closing.await;
        }
    }

    /// Reads an extent. `None` if the stream was dropped; then no further request begins.
    pub(super) async fn read(&self, reader: &Reader, extent: Extent) -> Option<Result<Bytes>> {
        let (start, len) = (extent.range.start, extent.len());
        let object = || extent.source.display_name(&extent.name);
        let span = tracing::trace_span!("infeed.read", object = object(), start, len);
        let mut read = Box::pin(extent.source.fetch(&extent, reader).instrument(span));
        let mut closed = pin!(self.closed());
        // Each poll passes the gate: a request, a retry or a second copy that a poll would begin does not begin once
        // the stream is dropped.
        poll_fn(|cx| {
            if closed.as_mut().poll(cx).is_ready() {
                return Poll::Ready(None);
            }
            match self.pass() {
                Some(_open) => read.as_mut().poll(cx).map(Some),
                None => Poll::Ready(None),
            }
        })
        .await
    }
}

/// The answer of a task that reads for this thread. `None` if the stream was dropped, which ended the task.
pub(super) fn answered(gate: &Gate, answer: &mpsc::Receiver<Result<Bytes>>) -> Option<Result<Bytes>> {
    answer.recv().map_or_else(
        |_| {
            let panicked = || Error::new(ErrorKind::Internal, "reading for a decode thread panicked");
            (!gate.is_closed()).then(|| Err(panicked().with_hint("please report it")))
        },
        Some,
    )
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, thread};

    use futures::{FutureExt, executor::block_on};

    use super::*;

    #[test]
    fn closing_wakes_whoever_waits_for_it() {
        let gate = Arc::new(Gate::default());
        let mut early = pin!(gate.closed());
        assert!(early.as_mut().now_or_never().is_none(), "it is open");
        // They wait for nothing else: without the wake-up the test would not end.
        let waiters: Vec<_> = (0..4)
            .map(|_| {
                let gate = Arc::clone(&gate);
                thread::spawn(move || block_on(gate.closed()))
            })
            .collect();
        gate.close();
        assert!(gate.is_closed());
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        block_on(early);
        assert!(gate.closed().now_or_never().is_some(), "it stays closed");
    }

    #[test]
    fn a_task_that_ends_without_an_answer_panicked_unless_the_stream_is_gone() {
        let gate = Gate::default();
        let (done, answer) = mpsc::channel();
        done.send(Ok(Bytes::from_static(b"x"))).unwrap();
        assert_eq!(answered(&gate, &answer).unwrap().unwrap(), "x");
        drop(done);
        assert_eq!(answered(&gate, &answer).unwrap().unwrap_err().kind(), ErrorKind::Internal);
        gate.close();
        assert!(answered(&gate, &answer).is_none());
    }
}
