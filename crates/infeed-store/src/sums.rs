//! MD5s of objects that come at about the same time, made beside each other ([`md5_each`](super::md5_each)).
//!
//! ```text
//! an object is here ─ waits ─▶ others that are ready come, too ─▶ whoever is first sums all of them
//! ```
//!
//! Nobody waits for a request: who waits lets others have the thread once. At a trainer's pace hardly anything comes
//! together, and there are cores to spare; when they are short, reads pile up, and each costs least.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

use super::md5_each::{Running, Sum, md5_each};

/// Larger objects are summed alone, and others get the thread in between.
const LARGE: usize = 1 << 20;
/// Summed at a time: two milliseconds of a thread. With 1 MiB a run from a bucket took a seventh more processor time: there is
/// always one that is summed alone at the end.
const TOGETHER: usize = 4 << 20;

/// Objects that wait to be summed.
#[derive(Debug, Default)]
pub(super) struct Sums(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<Waiting>,
    /// The number of the next one.
    next: u64,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    bytes: Bytes,
    done: Arc<Done>,
}

/// Dropped with its sum, or without it by a thread that panicked: whoever waits goes on.
impl Drop for Waiting {
    fn drop(&mut self) {
        self.done.over.notify_one();
    }
}

#[derive(Debug, Default)]
struct Done {
    sum: OnceLock<Sum>,
    over: Notify,
}

/// An object that waits. Dropping it takes it back.
struct Ticket<'a> {
    sums: &'a Sums,
    number: u64,
    done: Arc<Done>,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.sums.lock().waiting.retain(|waiting| waiting.number != self.number);
    }
}

impl Sums {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Each section leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sum of an object. Cancel safe.
    pub(super) async fn of(&self, bytes: &Bytes) -> Sum {
        if bytes.len() > LARGE {
            return alone(bytes).await;
        }
        let ticket = self.wait(bytes.clone());
        tokio::task::yield_now().await;
        // Several times, if many came before it.
        while let Some(waiting) = self.take(ticket.number) {
            let buffers: Vec<&[u8]> = waiting.iter().map(|waiting| &*waiting.bytes).collect();
            for (sum, waiting) in md5_each(&buffers).into_iter().zip(&waiting) {
                // Set only here.
                let _ = waiting.done.sum.set(sum);
            }
        }
        ticket.done.over.notified().await;
        match ticket.done.sum.get() {
            Some(sum) => *sum,
            // Whoever took it panicked.
            None => alone(bytes).await,
        }
    }

    fn wait(&self, bytes: Bytes) -> Ticket<'_> {
        let done = Arc::<Done>::default();
        let mut queue = self.lock();
        let number = queue.next;
        queue.next += 1;
        queue.waiting.push(Waiting { number, bytes, done: Arc::clone(&done) });
        Ticket { sums: self, number, done }
    }

    /// The first of those that wait, as many as are summed at a time; `None` when somebody has taken this one.
    fn take(&self, number: u64) -> Option<Vec<Waiting>> {
        let mut queue = self.lock();
        queue.waiting.iter().find(|waiting| waiting.number == number)?;
        let mut bytes = 0;
        let fits = |waiting: &&Waiting| {
            bytes += waiting.bytes.len();
            bytes <= TOGETHER
        };
        let count = queue.waiting.iter().take_while(fits).count();
        Some(queue.waiting.drain(..count).collect())
    }
}

/// Without keeping the thread for long.
async fn alone(bytes: &[u8]) -> Sum {
    let mut running = Running::new(bytes);
    while running.take(LARGE) {
        tokio::task::yield_now().await;
    }
    running.sum()
}

#[cfg(test)]
mod tests {
    use std::{
        future::Future,
        pin::pin,
        task::{Context, Waker},
    };

    use futures::future::join_all;
    use md5::{Digest, Md5};

    use super::*;

    fn object(n: usize) -> Bytes {
        (0..1000 + 997 * n).map(|i| (i * n) as u8).collect::<Vec<_>>().into()
    }

    fn wanted(bytes: &[u8]) -> Sum {
        Md5::digest(bytes).into()
    }

    #[test]
    fn sums_are_right_however_many_come_and_on_however_many_threads() {
        for threads in [1, 4] {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).build().unwrap();
            runtime.block_on(async {
                let sums = std::sync::Arc::<Sums>::default();
                for count in [1, 3, 5, 16, 200] {
                    let one = |n| {
                        let (sums, bytes) = (std::sync::Arc::clone(&sums), object(n));
                        tokio::spawn(async move { (sums.of(&bytes).await, wanted(&bytes)) })
                    };
                    for done in join_all((0..count).map(one)).await {
                        let (sum, wanted) = done.unwrap();
                        assert_eq!(sum, wanted);
                    }
                    assert!(sums.lock().waiting.is_empty());
                }
                let large = Bytes::from(vec![7; LARGE + 1]);
                assert_eq!(sums.of(&large).await, wanted(&large));
            });
        }
    }

    #[test]
    fn what_nobody_waits_for_any_more_is_not_kept() {
        let sums = Sums::default();
        let bytes: Vec<Bytes> = (0..40).map(object).collect();
        let mut cx = Context::from_waker(Waker::noop());
        {
            let mut all: Vec<_> = bytes.iter().map(|bytes| Box::pin(sums.of(bytes))).collect();
            all.iter_mut().for_each(|sum| assert!(sum.as_mut().poll(&mut cx).is_pending()));
            assert_eq!(sums.lock().waiting.len(), 40);
            all.truncate(2);
            assert_eq!(sums.lock().waiting.len(), 2);
        }
        assert!(sums.lock().waiting.is_empty());
        // Taken by one that is gone before the other looks.
        let mut first = Box::pin(sums.of(&bytes[0]));
        let mut others: Vec<_> = bytes[1..9].iter().map(|bytes| Box::pin(sums.of(bytes))).collect();
        assert!(first.as_mut().poll(&mut cx).is_pending());
        others.iter_mut().for_each(|sum| assert!(sum.as_mut().poll(&mut cx).is_pending()));
        assert!(first.as_mut().poll(&mut cx).is_ready());
        drop(first);
        for (sum, bytes) in others.into_iter().zip(&bytes[1..]) {
            let std::task::Poll::Ready(sum) = pin!(sum).poll(&mut cx) else { panic!("it was summed") };
            assert_eq!(sum, wanted(bytes));
        }
    }
}
