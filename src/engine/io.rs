//! The engine's thread and its runtime.

use std::{fmt, future::Future, sync::Arc, thread};

use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
    task::AbortHandle,
};

use crate::error::{Error, ErrorKind, Result};

/// The thread that admits batches and does remote I/O. Cheap to clone; the thread ends with the last handle.
///
/// Each loader starts one of its own unless it is given one: share an engine when many loaders live at a time.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    handle: Handle,
    // Dropping it ends the thread.
    _stop: oneshot::Sender<()>,
}

impl Engine {
    /// Starts the thread.
    ///
    /// # Errors
    /// `OutOfMemory` when the system gives no thread.
    pub fn start() -> Result<Self> {
        let failed =
            |e: std::io::Error| Error::new(ErrorKind::OutOfMemory, "cannot start the engine's thread").with_source(e);
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let body = move || {
            crate::sys::threads::yield_to_others();
            // Drives all spawned tasks until the last handle is gone.
            let _ = runtime.block_on(stopped);
            // Never wait for a blocking call here: nobody is left to use its result.
            runtime.shutdown_background();
        };
        thread::Builder::new().name("infeed-engine".into()).spawn(body).map_err(failed)?;
        Ok(Self { inner: Arc::new(Inner { handle, _stop: stop }) })
    }

    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.inner.handle.spawn(task).abort_handle()
    }
}

/// Runs what blocks on a thread of its own, so that the caller's runtime goes on. Dropping the future abandons the
/// result, not the work.
///
/// # Errors
/// `OutOfMemory` when the system gives no thread; `Internal` when `work` panicked.
pub(crate) async fn off_thread<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let (done, result) = oneshot::channel();
    let body = move || {
        let _ = done.send(work());
    };
    let failed = |e| Error::new(ErrorKind::OutOfMemory, "cannot start a thread").with_source(e);
    thread::Builder::new().name(name.into()).spawn(body).map_err(failed)?;
    let panicked = |_| {
        Error::new(ErrorKind::Internal, "building a loader panicked")
            .hint("see the panic's message on stderr; please report it")
    };
    result.await.map_err(panicked)
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}
