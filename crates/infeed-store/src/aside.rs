//! Runs blocking work on separate threads, so that a task of any runtime, or of none, can wait for it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use futures::{StreamExt, stream, stream::BoxStream};
use infeed_core::error::{Error, ErrorKind, Result};
use tokio::sync::mpsc;

/// Calls `work` with each number below `count` on at most `threads` threads, and returns the results in any order. A
/// call that panics gives no result. Each thread holds at most one result that was not taken yet. Dropping the stream
/// ends the threads, each after its current call.
///
/// # Errors
/// `OutOfMemory` if no thread can be started.
pub fn aside<T: Send + 'static>(
    name: &str,
    threads: usize,
    count: usize,
    work: impl Fn(usize) -> T + Send + Sync + 'static,
) -> Result<BoxStream<'static, T>> {
    let threads = threads.min(count);
    let (send, found) = mpsc::channel(threads.max(1));
    let shared = Arc::new((work, AtomicUsize::new(0)));
    for started in 0..threads {
        let (send, shared) = (send.clone(), Arc::clone(&shared));
        let each = move || {
            let (work, next) = &*shared;
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= count || send.blocking_send(work(i)).is_err() {
                    return;
                }
            }
        };
        match thread::Builder::new().name(name.to_owned()).spawn(each) {
            Ok(_) => {}
            Err(error) if started == 0 => {
                return Err(Error::new(ErrorKind::OutOfMemory, "no thread can be started").with_source(error));
            }
            Err(error) => {
                tracing::debug!(%error, started, name, "no more threads can be started");
                break;
            }
        }
    }
    Ok(stream::unfold(found, |mut found| async { Some((found.recv().await?, found)) }).boxed())
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;

    #[test]
    fn each_is_done_once_and_a_panic_costs_one() {
        for (threads, count) in [(4, 100), (16, 3), (1, 10), (4, 0)] {
            let found = aside("each", threads, count, |i| i * 2).unwrap();
            let mut found: Vec<usize> = block_on(found.collect());
            found.sort_unstable();
            assert_eq!(found, (0..count).map(|i| i * 2).collect::<Vec<_>>());
        }
        let some = aside("some", 2, 2, |i| assert_eq!(i, 0)).unwrap();
        assert_eq!(block_on(some.count()), 1);
    }

    #[test]
    fn threads_end_when_nobody_waits() {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        drop(aside("none", 2, 1_000_000, move |_| _ = counted.fetch_add(1, Ordering::Relaxed)).unwrap());
        while Arc::strong_count(&calls) > 1 {
            thread::yield_now();
        }
        assert!(calls.load(Ordering::Relaxed) < 10);
    }
}
