//! Blocking waits for a future, on any thread, also within async code that cannot yield.

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

/// Blocks the thread until the future is ready; works inside any executor. (`futures::executor::block_on` panics inside
/// one of its executors, tokio's inside a runtime.)
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let (bell, rung) = mpsc::sync_channel(1);
    let waker = Waker::from(Arc::new(Bell(bell)));
    // Within a task of tokio, its channels are never ready from the 64th batch on, because the task should yield first,
    // which it cannot do here.
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
        // If it is full, a wake-up is already pending.
        let _ = self.0.try_send(());
    }
}
