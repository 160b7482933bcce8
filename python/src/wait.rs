//! Waits that release the GIL and handle signals.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::{Duration, Instant},
};

use pyo3::{PyResult, Python};

use crate::{errors, log};

/// The longest time until a signal's handler runs.
const SLICE: Duration = Duration::from_millis(50);

struct Parked {
    thread: Thread,
    woken: AtomicBool,
}

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Polls until an item is ready.
///
/// # Errors
/// The exception of a signal handler, usually `KeyboardInterrupt`. No item is lost: poll again.
pub(crate) fn wait<T: Send>(py: Python<'_>, mut poll: impl FnMut(&mut Context<'_>) -> Poll<T> + Send) -> PyResult<T> {
    // While attached: an item that is ready costs no handover of the GIL.
    if let Poll::Ready(item) = poll(&mut Context::from_waker(Waker::noop())) {
        return Ok(item);
    }
    let parked = Arc::new(Parked { thread: thread::current(), woken: AtomicBool::new(false) });
    let waker = Waker::from(Arc::clone(&parked));
    loop {
        let slice = py.detach(|| {
            let end = Instant::now() + SLICE;
            loop {
                if let Poll::Ready(item) = poll(&mut Context::from_waker(&waker)) {
                    return Poll::Ready(item);
                }
                while !parked.woken.swap(false, Ordering::Acquire) {
                    let left = end.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Poll::Pending;
                    }
                    thread::park_timeout(left);
                }
            }
        });
        match slice {
            Poll::Ready(item) => return Ok(item),
            Poll::Pending => {
                log::deliver(py)?;
                py.check_signals()?;
            }
        }
    }
}

/// Runs blocking work on a new thread, so that a signal can end the wait for it. After a signal the thread still
/// finishes its work, and drops the result.
///
/// # Errors
/// The error of the work, or the exception of a signal handler.
pub(crate) fn elsewhere<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> infeed::Result<T> + Send + 'static,
) -> PyResult<T> {
    let (done, answer) = mpsc::channel();
    thread::Builder::new().name("infeed-open".to_owned()).spawn(move || {
        let _ = done.send(work());
    })?;
    let mut answer = Some(answer);
    loop {
        let (came, again) = py.detach(|| {
            let answer = answer.take().expect("put back below");
            (answer.recv_timeout(SLICE), answer)
        });
        answer = Some(again);
        match came {
            Ok(done) => return done.map_err(|error| errors::raise(py, &error)),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                let error =
                    infeed::Error::new(infeed::ErrorKind::Internal, "a thread panicked; its message is on stderr");
                return Err(errors::raise(py, &error));
            }
        }
    }
}
