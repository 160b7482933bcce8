//! An I/O runtime on a clock of its own, which jumps to the next timer whenever nothing else is to be done there: back-offs,
//! deadlines and late answers take no time, and no figure depends on the machine. What blocks holds the clock; decode threads
//! and trainers do not.

use std::{future::Future, sync::mpsc, time::Duration};

use infeed::loader::IoRuntime;
use tokio::runtime::{Builder, Handle};

use super::PATIENCE;

#[derive(Debug)]
pub(crate) struct Clockwork {
    pub(crate) io: IoRuntime,
    handle: Handle,
}

impl Clockwork {
    pub(crate) fn new() -> Self {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
        let handle = runtime.handle().clone();
        Self { io: IoRuntime::driving(runtime).expect("a thread"), handle }
    }

    /// Runs a future there, beside what a loader has under way, and waits for its end.
    pub(crate) fn run<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> T {
        let (done, result) = mpsc::channel();
        self.handle.spawn(async move { drop(done.send(future.await)) });
        result.recv_timeout(PATIENCE).expect("it ends")
    }

    /// Lets so much time pass there: what could begin without anything else's help has begun then.
    pub(crate) fn pass(&self, time: Duration) {
        self.run(async move { tokio::time::sleep(time).await });
    }
}
