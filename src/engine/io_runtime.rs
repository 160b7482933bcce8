//! The runtime that admits batches and reads from stores, and its threads.

use std::{
    fmt,
    future::Future,
    io,
    num::NonZeroUsize,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use infeed_core::error::{Error, ErrorKind, Result};
use infeed_store::HashThreads;
use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::oneshot,
    task::AbortHandle,
};

use super::threads::Alive;

/// The threads that admit batches and do remote I/O. Cheap to clone; they end with the last handle.
///
/// Each loader starts its own runtime, unless you pass one with
/// [`LoaderBuilder::io_runtime`](crate::LoaderBuilder::io_runtime): share one if many loaders exist at a time.
///
/// Number of threads: one for local data. A loader of remote data on a machine with 8 cores or more has one for every 4
/// cores, at most 8, because CPU limits what a thread can read: plain HTTP took 0.7 s of CPU per GB in large ranges and
/// 1.7 s in objects of 107 KB (benches/results/2026-11-21-s3.md). The rate of several threads was not measured.
///
/// Blocking and computing work runs on other threads of the runtime (called `infeed-aside` if one thread reads), which
/// start when needed: checksums of the bytes read (at most one thread per core), lookups in a cache and writes to it,
/// host name lookups.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
/// use infeed::{Loader, loader::IoRuntime, open};
///
/// // One thread for the reading of both.
/// let io = IoRuntime::start()?;
/// let train = open("synthetic://?count=100&classes=10").await?;
/// let val = open("synthetic://?count=50&classes=10").await?;
/// let train = Loader::builder(train).batch_size(20).io_runtime(&io).build().await?;
/// let val = Loader::builder(val).batch_size(10).io_runtime(&io).build().await?;
/// assert_eq!((train.batches_per_epoch(), val.batches_per_epoch()), (5, 5));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct IoRuntime {
    inner: Arc<Inner>,
}

struct Inner {
    handle: Handle,
    hash_threads: Arc<HashThreads>,
    // Dropping it ends the thread. `None` for a runtime of the user.
    _stop: Option<oneshot::Sender<()>>,
}

impl IoRuntime {
    /// Starts one thread.
    ///
    /// # Errors
    /// `OutOfMemory` if the system cannot start a thread.
    pub fn start() -> Result<Self> {
        Self::of(NonZeroUsize::MIN, false, None)
    }

    /// Starts this many threads, and one for blocking work (name lookups, writes of a cache).
    ///
    /// # Errors
    /// `OutOfMemory` if the system cannot start the threads.
    pub fn with_threads(threads: NonZeroUsize) -> Result<Self> {
        Self::of(threads, true, None)
    }

    fn of(threads: NonZeroUsize, blocks: bool, alive: Option<Alive>) -> Result<Self> {
        let mut builder = match threads.get() {
            1 => Builder::new_current_thread(),
            // The thread below only waits for the runtime to end.
            n => {
                // If the system cannot start one of these threads, tokio waits forever. If it cannot start the first
                // blocking thread, tokio panics. Later blocking threads are optional.
                can_start_threads(n + 3).map_err(no_thread)?;
                let mut builder = Builder::new_multi_thread();
                builder.worker_threads(n);
                builder
            }
        };
        builder.on_thread_start(infeed_core::threads::yield_to_others);
        // With several threads, tokio does not report whether a new thread will read or block.
        let name = if threads.get() == 1 { "infeed-aside" } else { "infeed-io" };
        builder.thread_name(name).enable_all();
        if blocks {
            // Keep the blocking thread: the system may refuse a new one later.
            builder.thread_keep_alive(Duration::from_secs(24 * 3600));
            can_start_threads(2).map_err(no_thread)?;
        }
        let runtime = builder.build().map_err(no_thread)?;
        if blocks {
            // At once: between the check above and a later start, other threads may take the limit.
            runtime.spawn_blocking(|| ());
        }
        Self::drive(runtime, alive)
    }

    /// Drives a runtime on its own thread. Public only for tests, which pass one with a paused clock.
    #[doc(hidden)]
    pub fn driving(runtime: Runtime) -> Result<Self> {
        Self::drive(runtime, None)
    }

    fn drive(runtime: Runtime, alive: Option<Alive>) -> Result<Self> {
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let body = move || {
            infeed_core::threads::yield_to_others();
            // If the runtime has one thread, this drives all its tasks until the last handle is dropped.
            let _ = runtime.block_on(stopped);
            // Waits for blocking calls, such as writes of a cache. Only `Loader::shutdown` waits for this thread.
            drop(runtime);
            drop(alive);
        };
        thread::Builder::new().name("infeed-io".into()).spawn(body).map_err(no_thread)?;
        Ok(Self::of_handle(handle, Some(stop)))
    }

    /// Uses your runtime, which you continue to drive. Its threads admit batches and read remote bytes in addition to
    /// your tasks, and tokio-console and metrics show infeed's tasks, too. The runtime needs I/O and time
    /// ([`enable_all`](tokio::runtime::Builder::enable_all)).
    ///
    /// A runtime of one thread reads only while you are in its `block_on` and your task waits, so a trainer that
    /// computes there stops the reading. If the runtime is shut down, the streams end with an error.
    ///
    /// ```
    /// use infeed::{Loader, loader::IoRuntime, open};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    /// let io = IoRuntime::from_handle(runtime.handle().clone());
    /// let loader = runtime.block_on(async {
    ///     let dataset = open("synthetic://?count=100&classes=10").await?;
    ///     Loader::builder(dataset).batch_size(20).io_runtime(&io).build().await
    /// })?;
    /// assert_eq!(loader.epoch(0).blocking().count(), 5);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn from_handle(handle: Handle) -> Self {
        Self::of_handle(handle, None)
    }

    fn of_handle(handle: Handle, stop: Option<oneshot::Sender<()>>) -> Self {
        let hash_threads = HashThreads::of(handle.clone(), infeed_core::machine::cores().get());
        Self { inner: Arc::new(Inner { handle, hash_threads, _stop: stop }) }
    }

    /// Other threads than those that read.
    pub(super) fn hash_threads(&self) -> &Arc<HashThreads> {
        &self.inner.hash_threads
    }

    /// For remote data, the number of threads that suits this machine, otherwise one; and a blocking thread if
    /// `blocks`. `alive` is dropped when they have ended.
    pub(crate) fn for_loader(remote: bool, blocks: bool, alive: Alive) -> Result<Self> {
        let cores = infeed_core::machine::cores().get();
        let threads = if remote { (cores / 4).clamp(1, 8) } else { 1 };
        Self::of(NonZeroUsize::new(threads).unwrap_or(NonZeroUsize::MIN), remote || blocks, Some(alive))
    }

    /// `track_caller`: tokio-console shows a task by the place that spawned it.
    #[track_caller]
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.inner.handle.spawn(task).abort_handle()
    }
}

impl IoRuntime {
    /// Runs a future on the runtime and waits for it on this thread, with or without another runtime here.
    ///
    /// # Errors
    /// `Internal` if the future panicked.
    pub(crate) fn wait_for<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> Result<T> {
        let (done, result) = std::sync::mpsc::channel();
        self.spawn(async move {
            let _ = done.send(future.await);
        });
        result.recv().map_err(|_| {
            Error::new(ErrorKind::Internal, "the awaited task panicked")
                .with_hint("see the panic's message on stderr; please report it")
        })
    }
}

fn no_thread(error: io::Error) -> Error {
    if infeed_store::no_files(&error) {
        return infeed_store::files_ran_out().with_source(error);
    }
    Error::new(ErrorKind::OutOfMemory, "cannot start an I/O thread").with_source(error)
}

/// Checks that the system can start this many threads now, by starting them all. For libraries that panic if a thread
/// cannot be started or, like tokio's runtime of several threads, wait forever. About 30 µs for each thread.
///
/// # Errors
/// The system's error for the first thread that it could not start.
pub fn can_start_threads(threads: usize) -> io::Result<()> {
    let all = Mutex::new(());
    // The threads end when this one releases the lock.
    let held = all.lock();
    thread::scope(|scope| {
        let mut started = Vec::with_capacity(threads);
        let mut refused = Ok(());
        while started.len() < threads && refused.is_ok() {
            let body = || drop(all.lock());
            match thread::Builder::new().name("infeed-probe".into()).spawn_scoped(scope, body) {
                Ok(thread) => started.push(thread),
                Err(error) => refused = Err(error),
            }
        }
        drop(held);
        // A scope would only wait until their work is done; `join` waits until the system no longer counts them.
        started.into_iter().for_each(|thread| drop(thread.join()));
        refused
    })
}

/// Waits for a future that may read from stores, on a thread of its own for these reads. Works inside any executor.
///
/// # Errors
/// `OutOfMemory` if the system cannot start a thread; `Internal` if the future panicked.
pub fn wait_for<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> Result<T> {
    IoRuntime::with_threads(NonZeroUsize::MIN)?.wait_for(future)
}

/// Runs blocking work on a new thread, so that the caller's runtime continues. Dropping the future drops the result,
/// but does not stop the work.
///
/// # Errors
/// `OutOfMemory` if the system cannot start a thread; `Internal` if `work` panicked.
pub(crate) async fn off_thread<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let (done, result) = oneshot::channel();
    let body = move || {
        let _ = done.send(work());
    };
    let failed = |e| Error::new(ErrorKind::OutOfMemory, "cannot start a thread").with_source(e);
    thread::Builder::new().name(name.into()).spawn(body).map_err(failed)?;
    let panicked = |_| {
        Error::new(ErrorKind::Internal, "building a loader panicked")
            .with_hint("see the panic's message on stderr; please report it")
    };
    result.await.map_err(panicked)
}

impl fmt::Debug for IoRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IoRuntime").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_can_be_had_end_again() {
        can_start_threads(0).unwrap();
        for _ in 0..20 {
            can_start_threads(5).unwrap();
        }
    }

    #[test]
    fn a_runtime_of_any_size_runs_what_it_is_given() {
        for threads in [1, 2, 4] {
            let io = IoRuntime::with_threads(NonZeroUsize::new(threads).unwrap()).unwrap();
            let (done, answer) = std::sync::mpsc::channel();
            io.spawn(async move {
                let blocked = tokio::task::spawn_blocking(|| 7).await;
                let _ = done.send(blocked.ok());
            });
            assert_eq!(answer.recv_timeout(Duration::from_secs(60)).unwrap(), Some(7), "{threads}");
        }
    }

    #[test]
    fn what_blocks_is_not_called_as_the_only_thread_that_reads() {
        let name = || thread::current().name().unwrap_or_default().to_owned();
        let both = async move { (name(), tokio::task::spawn_blocking(name).await.unwrap()) };
        assert_eq!(IoRuntime::start().unwrap().wait_for(both).unwrap(), ("infeed-io".into(), "infeed-aside".into()));
    }

    #[test]
    fn a_future_is_waited_for_within_a_runtime_and_without() {
        let wait = || {
            IoRuntime::start().unwrap().wait_for(async {
                tokio::task::yield_now().await;
                7
            })
        };
        assert_eq!(wait().unwrap(), 7);
        let runtime = Builder::new_current_thread().build().unwrap();
        assert_eq!(runtime.block_on(async { wait() }).unwrap(), 7);
        assert_eq!(futures::executor::block_on(async { wait() }).unwrap(), 7);
        let panicked = IoRuntime::start().unwrap().wait_for(async { panic!("on purpose") });
        let panicked: Result<()> = panicked;
        assert_eq!(panicked.unwrap_err().kind(), ErrorKind::Internal);
    }
}
