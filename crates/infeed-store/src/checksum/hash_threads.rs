//! Threads that hash received bytes, so that the thread that reads goes on reading.

use std::sync::Arc;

use bytes::Bytes;
use tokio::{
    runtime::Handle,
    sync::Semaphore,
    task::{AbortHandle, yield_now},
};

/// Bytes hashed before other tasks get the thread, if there are no threads for it.
const AT_ONCE: usize = 256 << 10;

/// The blocking threads of a runtime, some of them at a time; or none, and the task that awaits a hash computes it.
#[derive(Debug, Default)]
pub struct HashThreads(Option<(Handle, Semaphore)>);

impl HashThreads {
    /// Hashes on at most `most` blocking threads of the runtime at a time.
    #[must_use]
    pub fn of(runtime: Handle, most: usize) -> Arc<Self> {
        Arc::new(Self(Some((runtime, Semaphore::new(most.max(1))))))
    }

    /// Adds `bytes` to a hash by `take`; up to `here` bytes in this task. Cancel safe: work that has not begun is given
    /// up.
    pub(crate) async fn hash<H: Clone + Send + 'static>(
        &self,
        mut hash: H,
        bytes: &Bytes,
        here: usize,
        take: fn(&mut H, &[u8]),
    ) -> H {
        if let Some((runtime, permits)) = self.0.as_ref().filter(|_| bytes.len() > here)
            && let Ok(_permit) = permits.acquire().await
        {
            let (mut next, of) = (hash.clone(), bytes.clone());
            let work = runtime.spawn_blocking(move || {
                take(&mut next, &of);
                next
            });
            let _given_up = GiveUp(work.abort_handle());
            // The runtime may have been shut down.
            if let Ok(done) = work.await {
                return done;
            }
        }
        for (n, some) in bytes.chunks(AT_ONCE).enumerate() {
            if n > 0 {
                yield_now().await;
            }
            take(&mut hash, some);
        }
        hash
    }
}

struct GiveUp(AbortHandle);

impl Drop for GiveUp {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::mpsc,
        thread::{self, ThreadId},
    };

    use futures::{FutureExt, executor::block_on};

    use super::*;

    const HERE: usize = 4;

    /// The bytes that were taken, and on which threads.
    type Seen = (Vec<u8>, Vec<ThreadId>);

    fn see(seen: &mut Seen, bytes: &[u8]) {
        seen.0.extend(bytes);
        seen.1.push(thread::current().id());
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().build().unwrap()
    }

    #[test]
    fn what_costs_more_than_to_hand_it_on_is_hashed_elsewhere() {
        let (runtime, here) = (runtime(), thread::current().id());
        let threads = HashThreads::of(runtime.handle().clone(), 2);
        for (bytes, elsewhere) in [(&b"four"[..], false), (b"fives", true)] {
            let (taken, at) = block_on(threads.hash(Seen::default(), &Bytes::from(bytes), HERE, see));
            assert_eq!(taken, bytes);
            assert_eq!(at != [here], elsewhere, "{bytes:?}");
        }
    }

    #[test]
    fn without_threads_large_bytes_are_hashed_in_turns() {
        let bytes = Bytes::from(vec![7; 2 * AT_ONCE + 1]);
        let threads = HashThreads::default();
        let mut turns = 1;
        let mut hash = Box::pin(threads.hash(Seen::default(), &bytes, HERE, see));
        let (taken, at) = loop {
            match (&mut hash).now_or_never() {
                Some(done) => break done,
                None => turns += 1,
            }
        };
        assert_eq!((taken, at.len(), turns), (bytes.to_vec(), 3, 3));
    }

    #[test]
    fn a_runtime_that_has_ended_hashes_nothing_and_loses_nothing() {
        let runtime = runtime();
        let threads = HashThreads::of(runtime.handle().clone(), 2);
        drop(runtime);
        let (taken, at) = block_on(threads.hash(Seen::default(), &Bytes::from_static(b"fives"), HERE, see));
        assert_eq!((&taken[..], at), (&b"fives"[..], vec![thread::current().id()]));
    }

    #[test]
    fn as_many_as_there_are_threads_and_what_is_dropped_gives_way() {
        let runtime = runtime();
        let threads = HashThreads::of(runtime.handle().clone(), 1);
        let (go, wait) = mpsc::channel::<()>();
        type Gate = Arc<std::sync::Mutex<mpsc::Receiver<()>>>;
        let gate: Gate = Arc::new(wait.into());
        let hold = |gate: &mut Gate, _: &[u8]| _ = gate.lock().unwrap().recv();
        let bytes = Bytes::from_static(b"fives");
        let mut first = Box::pin(threads.hash(gate, &bytes, HERE, hold));
        assert!((&mut first).now_or_never().is_none());
        let mut second = Box::pin(threads.hash(Seen::default(), &bytes, HERE, see));
        assert!((&mut second).now_or_never().is_none(), "the thread is taken");
        drop(second);
        let third = threads.hash(Seen::default(), &bytes, HERE, see);
        go.send(()).unwrap();
        assert_eq!(
            block_on(async {
                first.await;
                third.await.0
            }),
            bytes
        );
    }
}
