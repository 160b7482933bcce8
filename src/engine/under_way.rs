//! The reads in progress on decode threads; after they are closed none begins.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Number of locks: this many threads read without waiting for one another.
const PLACES: usize = 32;

thread_local! {
    static PLACE: usize = {
        // By its full name: loom's models do not track it.
        static THREADS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        THREADS.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % PLACES
    };
}

/// The target of a read.
#[derive(Debug)]
struct Read<T> {
    number: u64,
    what: T,
    /// Whether the file is still being opened.
    begins: bool,
}

#[derive(Debug)]
struct Reads<T> {
    closed: bool,
    /// Reads begun so far.
    begun: u64,
    all: Vec<Read<T>>,
}

/// In its own cache line, because each read locks it three times.
#[derive(Debug)]
#[repr(align(128))]
struct Slot<T> {
    reads: Mutex<Reads<T>>,
    /// Signalled when a file is open, or its read has ended.
    changed: Condvar,
}

impl<T> Slot<T> {
    fn lock(&self) -> MutexGuard<'_, Reads<T>> {
        // The code under this lock cannot panic halfway.
        self.reads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads in progress. No lock is held while a file is opened or read, because a file system may hang in either.
#[derive(Debug)]
pub(super) struct UnderWay<T>([Slot<T>; PLACES]);

impl<T> Default for UnderWay<T> {
    fn default() -> Self {
        let place =
            |_| Slot { reads: Mutex::new(Reads { closed: false, begun: 0, all: Vec::new() }), changed: Condvar::new() };
        Self(std::array::from_fn(place))
    }
}

impl<T> UnderWay<T> {
    /// Begins to read `what` on this thread. `None` if the reads are closed.
    pub(super) fn begin(&self, what: T) -> Option<Reading<'_, T>> {
        let place = &self.0[PLACE.with(|place| *place)];
        let mut reads = place.lock();
        if reads.closed {
            return None;
        }
        let number = reads.begun;
        reads.begun += 1;
        reads.all.push(Read { number, what, begins: true });
        Some(Reading { place, number })
    }

    /// No read begins after this returned. Waits at most `patience` for files that are being opened: an opening that
    /// takes longer may be on a file system that never answers.
    pub(super) fn close(&self, patience: Duration) {
        // Close all parts first, so that no read which begins later is waited for.
        let open = self.0.iter().filter(|place| !std::mem::replace(&mut place.lock().closed, true));
        let open: Vec<&Slot<T>> = open.collect();
        let end = Instant::now() + patience;
        for place in open {
            let mut reads = place.lock();
            while reads.all.iter().any(|read| read.begins) {
                let left = end.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return;
                }
                reads = place.changed.wait_timeout(reads, left).unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }

    /// The reads in progress, each with a unique key.
    pub(super) fn each(&self, mut tell: impl FnMut((usize, u64), &T)) {
        for (at, place) in self.0.iter().enumerate() {
            place.lock().all.iter().for_each(|read| tell((at, read.number), &read.what));
        }
    }
}

/// A read in progress.
#[derive(Debug)]
pub(super) struct Reading<'a, T> {
    place: &'a Slot<T>,
    number: u64,
}

impl<T> Reading<'_, T> {
    /// The file is open: from now on `close` does not wait for it.
    pub(super) fn begun(&self) {
        let mut reads = self.place.lock();
        reads.all.iter_mut().filter(|read| read.number == self.number).for_each(|read| read.begins = false);
        self.tell(&reads);
    }

    fn tell(&self, reads: &Reads<T>) {
        if reads.closed {
            self.place.changed.notify_all();
        }
    }
}

impl<T> Drop for Reading<'_, T> {
    fn drop(&mut self) {
        let mut reads = self.place.lock();
        reads.all.retain(|read| read.number != self.number);
        self.tell(&reads);
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use super::*;

    /// Longer than any test takes.
    const PATIENCE: Duration = Duration::from_secs(3600);

    fn told(reads: &UnderWay<&'static str>) -> Vec<&'static str> {
        let mut all = Vec::new();
        reads.each(|_, what| all.push(*what));
        all.sort_unstable();
        all
    }

    #[test]
    fn closing_waits_for_what_is_being_opened_and_nothing_begins_behind_it() {
        let reads = UnderWay::default();
        let (opening, open) = (reads.begin("opening").unwrap(), reads.begin("open").unwrap());
        open.begun();
        assert_eq!(told(&reads), ["open", "opening"]);
        let (ended, end) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                reads.close(PATIENCE);
                ended.send(()).unwrap();
            });
            while reads.begin("more").is_some() {
                thread::yield_now();
            }
            assert!(end.try_recv().is_err(), "one is being opened");
            opening.begun();
            end.recv().unwrap();
        });
        thread::scope(|scope| {
            let elsewhere = (0..PLACES * 2).map(|_| scope.spawn(|| reads.begin("behind").is_none()));
            assert!(elsewhere.collect::<Vec<_>>().into_iter().all(|none| none.join().unwrap()));
        });
        assert_eq!(told(&reads), ["open", "opening"], "they may end");
        drop((opening, open));
        assert!(told(&reads).is_empty());
    }

    #[test]
    fn what_hangs_while_it_is_opened_is_not_waited_for() {
        let reads = UnderWay::default();
        let hangs = reads.begin("hangs").unwrap();
        reads.close(Duration::ZERO);
        assert!(reads.begin("behind").is_none());
        // The second call does not wait.
        reads.close(PATIENCE);
        assert_eq!(told(&reads), ["hangs"]);
        drop(hangs);
    }
}
