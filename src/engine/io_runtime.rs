//! The runtime that admits and reads, and its threads.

use std::{fmt, future::Future, num::NonZeroUsize, sync::Arc, thread};

use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
    task::AbortHandle,
};

use crate::error::{Error, ErrorKind, Result};

/// The threads that admit batches and do remote I/O. Cheap to clone; they end with the last handle.
///
/// Each loader starts a runtime of its own unless it is given one: share one when many loaders live at a time. One thread
/// is all that local data need. Reading over plain HTTP took 0.7 s of CPU for a GB in large ranges and 1.7 s in objects of
/// 107 KB (benches/results/2026-11-21-s3.md), which bounds what one thread can read; so on a machine of eight cores or more
/// a loader of remote data has a thread for every four, at most eight. The rate of several was not measured.
#[derive(Clone)]
pub struct IoRuntime {
    inner: Arc<Inner>,
}

struct Inner {
    handle: Handle,
    // Dropping it ends the thread.
    _stop: oneshot::Sender<()>,
}

impl IoRuntime {
    /// Starts one thread.
    ///
    /// # Errors
    /// `OutOfMemory` when the system gives no thread.
    pub fn start() -> Result<Self> {
        Self::with_threads(NonZeroUsize::MIN)
    }

    /// Starts so many threads.
    ///
    /// # Errors
    /// `OutOfMemory` when the system gives no threads.
    pub fn with_threads(threads: NonZeroUsize) -> Result<Self> {
        let failed =
            |e: std::io::Error| Error::new(ErrorKind::OutOfMemory, "cannot start an I/O thread").with_source(e);
        let mut builder = match threads.get() {
            1 => Builder::new_current_thread(),
            // The thread below only waits for the end.
            n => {
                let mut builder = Builder::new_multi_thread();
                builder
                    .worker_threads(n)
                    .thread_name("infeed-io")
                    .on_thread_start(crate::sys::threads::yield_to_others);
                builder
            }
        };
        let runtime = builder.enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let body = move || {
            crate::sys::threads::yield_to_others();
            // Alone, drives all spawned tasks until the last handle is gone.
            let _ = runtime.block_on(stopped);
            // Never wait for a blocking call here: nobody is left to use its result.
            runtime.shutdown_background();
        };
        thread::Builder::new().name("infeed-io".into()).spawn(body).map_err(failed)?;
        Ok(Self { inner: Arc::new(Inner { handle, _stop: stop }) })
    }

    /// As many threads as remote data want on this machine, or one.
    pub(crate) fn for_loader(remote: bool) -> Result<Self> {
        let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let threads = if remote { (cores / 4).clamp(1, 8) } else { 1 };
        Self::with_threads(NonZeroUsize::new(threads).unwrap_or(NonZeroUsize::MIN))
    }

    /// Watchers such as tokio-console show a task by the place that asked for it.
    #[track_caller]
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
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

impl fmt::Debug for IoRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IoRuntime").finish_non_exhaustive()
    }
}
