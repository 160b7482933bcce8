//! Waiting for a future on a thread that is not async, or that is and may not give way.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc,
        mpsc::{self, SyncSender},
    },
    task::{Context, Poll, Wake, Waker},
};

use tokio::task::unconstrained;

/// Blocks the thread, within whatever executor runs it. That of futures panics on a thread that is within one, tokio's within a
/// runtime.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let (bell, rung) = mpsc::sync_channel(1);
    let waker = Waker::from(Arc::new(Bell(bell)));
    // Within a task of tokio, its channels are never ready from the 64th batch on: the task is to give way first, which it
    // can't from here.
    let mut future = pin!(unconstrained(future));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        // The waker lives here, so that there is a bell.
        let _ = rung.recv();
    }
}

/// Wakes the thread that waits.
struct Bell(SyncSender<()>);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        // Full: it was rung, and not heard yet.
        let _ = self.0.try_send(());
    }
}
