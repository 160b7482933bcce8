//! The end of a loader's threads.

use tokio::sync::watch;

/// The threads of a loader. Each, and what the threads share, holds an [`Alive`] until it has dropped all else.
#[derive(Clone, Debug)]
pub(crate) struct Threads(watch::Sender<()>);

/// See [`Threads`].
#[derive(Debug)]
pub(crate) struct Alive(#[expect(dead_code, reason = "it is dropped")] watch::Receiver<()>);

impl Threads {
    pub(super) fn new() -> Self {
        Self(watch::channel(()).0)
    }

    pub(crate) fn alive(&self) -> Alive {
        Alive(self.0.subscribe())
    }

    /// Waits until all threads have ended.
    pub(crate) async fn ended(&self) {
        self.0.closed().await;
    }
}
