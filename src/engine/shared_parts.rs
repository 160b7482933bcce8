//! Parts that several records share, such as decoded volumes: read and decoded once, lent to the records that need
//! them.
//!
//! ```text
//!  fetch (I/O runtime)                                       decode threads
//!  expect: what records ahead need ─ not there ─▶ read ─▶ encoded ─▶ make_ahead, if there is memory ──┐
//!                                  └ there, or on its way: it gives way last                          ├▶ decoded, lent
//!                                                         take: a thread that finds it missing ───────┘
//! ```
//!
//! - **Single flight**: of several threads that need a part, one makes it, the others wait.
//! - **Read ahead**: the bytes of a part that records ahead need are read once for all streams of the loader. They wait
//!   here for the first thread that makes the part. They count as bytes that the stream reads ahead, not in this
//!   reserve.
//! - **Leased**: a part is lent as `Bytes` that hold it. A lent part is never dropped.
//! - **Bounded**: parts, and the bytes from which they are made, stay within the reserve. Parts that are not lent are
//!   evicted for a new one: first parts that no record ahead needs, then the least recently used. A thread that finds
//!   no memory waits until another returns a part.
//! - **No deadlock**: a thread that waits holds no part, and expecting a part holds none. All parts of a record are
//!   taken together or not at all, and the reserve can hold the parts of the largest record.

use std::{
    collections::HashMap,
    fmt,
    pin::pin,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use infeed_core::error::{Error, Result};
use infeed_data::SharedRead;
use tokio::sync::Notify;

use super::pieces::Piece;

/// A part that a record needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Need {
    pub(super) key: u64,
    /// Bytes when it is made.
    pub(super) bytes: u64,
    /// Additional bytes while it is made.
    pub(super) making: u64,
}

impl From<&SharedRead> for Need {
    fn from(part: &SharedRead) -> Self {
        Self { key: part.key, bytes: part.bytes, making: part.encoded() }
    }
}

/// The shared parts of a loader.
#[derive(Clone)]
pub(crate) struct SharedParts {
    store: Arc<Store>,
}

struct Store {
    reserve: u64,
    held: Mutex<HeldParts>,
    changed: Condvar,
}

#[derive(Default)]
struct HeldParts {
    parts: HashMap<u64, SharedPart>,
    /// Parts that records ahead need.
    ahead: HashMap<u64, Ahead>,
    /// Bytes of all parts, those being made included.
    used: u64,
    most: u64,
    clock: u64,
}

enum SharedPart {
    Making,
    Made { data: Bytes, counted: u64, lent: usize, used: u64 },
}

/// A part that records ahead need.
struct Ahead {
    /// Handles to it.
    held: usize,
    encoded: Encoded,
    came: Arc<Notify>,
}

/// Bytes of a part that is read ahead.
enum Encoded {
    Coming,
    /// The bytes, or the error of reading or decoding them.
    Here(Result<Vec<Piece>>),
    /// A thread has taken them, or no task reads them.
    Gone,
}

/// Marks a part as needed by a record ahead, until it is dropped.
pub(super) struct PartAhead {
    store: Arc<Store>,
    key: u64,
}

/// A part whose bytes are being read. If this is dropped without them, a thread that needs the part reads it itself.
pub(super) struct Arriving(PartAhead);

/// A lent part.
struct Lease {
    store: Arc<Store>,
    key: u64,
    data: Bytes,
}

impl AsRef<[u8]> for Lease {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Drop the bytes first: their memory must be free before it is counted as free.
        self.data = Bytes::new();
        let mut held = self.store.lock();
        if let Some(SharedPart::Made { lent, .. }) = held.parts.get_mut(&self.key) {
            *lent -= 1;
        }
        drop(held);
        self.store.changed.notify_all();
    }
}

/// Parts that this thread has promised to make. Dropping it withdraws the promise for parts that are not made.
struct Promise<'a> {
    store: &'a Arc<Store>,
    left: Vec<Need>,
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        let mut held = self.store.lock();
        for need in &self.left {
            held.parts.remove(&need.key);
            held.used -= need.bytes + need.making;
        }
        drop(held);
        self.store.changed.notify_all();
    }
}

/// The parts of a record: those that exist, and the promise to make the others.
struct Claim<'a> {
    promise: Promise<'a>,
    lent: Vec<Option<Bytes>>,
    /// Evicted parts, to be freed outside the lock.
    _dropped: Vec<Bytes>,
}

impl Store {
    fn lock(&self) -> MutexGuard<'_, HeldParts> {
        // Each section leaves it whole.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HeldParts {
    /// Evicts parts that are not lent, so that `bytes` more fit: first parts that no record ahead needs, then, if they
    /// `may` go, the others; least recently used first; never a part in `wanted`. `None`, and no eviction, if that is
    /// not enough.
    fn evict(&mut self, bytes: u64, reserve: u64, wanted: &[Need], may: bool) -> Option<Vec<Bytes>> {
        if self.used + bytes <= reserve {
            return Some(Vec::new());
        }
        let idle = self.parts.iter().filter_map(|(key, part)| match part {
            SharedPart::Made { lent: 0, used, counted, .. } if wanted.iter().all(|need| need.key != *key) => {
                Some((self.ahead.contains_key(key), *used, *key, *counted))
            }
            _ => None,
        });
        let mut idle: Vec<(bool, u64, u64, u64)> = idle.filter(|(expected, ..)| may || !expected).collect();
        idle.sort_unstable();
        let mut left = self.used + bytes;
        let enough = idle.iter().position(|(.., counted)| {
            left -= counted;
            left <= reserve
        })?;
        Some(idle[..=enough].iter().filter_map(|(_, _, key, _)| self.remove(*key)).collect())
    }

    fn remove(&mut self, key: u64) -> Option<Bytes> {
        let Some(SharedPart::Made { data, counted, .. }) = self.parts.remove(&key) else { return None };
        self.used -= counted;
        Some(data)
    }

    fn lend(&mut self, store: &Arc<Store>, key: u64) -> Option<Bytes> {
        self.clock += 1;
        let Some(SharedPart::Made { data, lent, used, .. }) = self.parts.get_mut(&key) else { return None };
        *lent += 1;
        *used = self.clock;
        Some(Bytes::from_owner(Lease { store: Arc::clone(store), key, data: data.clone() }))
    }

    /// All parts that are needed. `None` if another thread makes one of them, or if there is no memory for them.
    fn claim<'a>(&mut self, store: &'a Arc<Store>, needs: &[Need], may_evict: bool) -> Option<Claim<'a>> {
        if needs.iter().any(|need| matches!(self.parts.get(&need.key), Some(SharedPart::Making))) {
            return None;
        }
        let mut missing: Vec<Need> = needs.iter().filter(|need| !self.parts.contains_key(&need.key)).copied().collect();
        missing.sort_by_key(|need| need.key);
        missing.dedup_by_key(|need| need.key);
        let bytes = missing.iter().map(|need| need.bytes + need.making).sum();
        let dropped = self.evict(bytes, store.reserve, needs, may_evict)?;
        self.used += bytes;
        self.most = self.most.max(self.used);
        for need in &missing {
            self.parts.insert(need.key, SharedPart::Making);
        }
        let lent = needs.iter().map(|need| self.lend(store, need.key)).collect();
        Some(Claim { promise: Promise { store, left: missing }, lent, _dropped: dropped })
    }

    fn expect(&mut self, store: &Arc<Store>, key: u64) -> PartAhead {
        let gone = || Ahead { held: 0, encoded: Encoded::Gone, came: Arc::default() };
        self.ahead.entry(key).or_insert_with(gone).held += 1;
        PartAhead { store: Arc::clone(store), key }
    }
}

impl Claim<'_> {
    /// The parts of `needs`, in order. `make` also gets the parts that are still to be made.
    fn fill(
        mut self,
        needs: &[Need],
        mut make: impl FnMut(usize, &[Need]) -> Option<Result<Bytes>>,
    ) -> Option<Result<Vec<Bytes>>> {
        let store = self.promise.store;
        while let Some(need) = self.promise.left.first().copied() {
            let at = needs.iter().position(|other| other.key == need.key).unwrap_or_default();
            let data = match make(at, &self.promise.left)? {
                Ok(data) => data,
                Err(error) => return Some(Err(error)),
            };
            let mut held = store.lock();
            // Counted as promised: a part may turn out a little smaller than promised, never larger.
            held.used -= need.making;
            held.parts.insert(need.key, SharedPart::Made { data, counted: need.bytes, lent: 0, used: 0 });
            self.lent[at] = held.lend(store, need.key);
            self.promise.left.remove(0);
            drop(held);
            store.changed.notify_all();
        }
        // A record that names a part twice gets it twice.
        let mut held = store.lock();
        let all = needs.iter().zip(self.lent).map(|(need, part)| part.or_else(|| held.lend(store, need.key)));
        all.collect::<Option<Vec<Bytes>>>().map(Ok)
    }
}

impl SharedParts {
    /// Parts within `reserve` bytes, which must hold those of the largest record.
    pub(crate) fn new(reserve: u64) -> Self {
        Self { store: Arc::new(Store { reserve, held: Mutex::default(), changed: Condvar::new() }) }
    }

    /// Wakes all waiting threads after a stream was dropped, so that those of this stream end.
    pub(super) fn wake(&self) {
        // With the lock, every thread that checked before the drop is waiting now.
        drop(self.store.lock());
        self.store.changed.notify_all();
    }

    /// The parts of one record, in order: existing ones, and those that `make` makes (it also gets the parts that are
    /// still to be made). An error of `make` ends only the attempt of this record; the next record that needs the part
    /// tries again. `None` if `gone` became true while waiting; the code that makes it true must call
    /// [`wake`](Self::wake).
    pub(super) fn take(
        &self,
        needs: &[Need],
        gone: impl Fn() -> bool,
        make: impl FnMut(usize, &[Need]) -> Option<Result<Bytes>>,
    ) -> Option<Result<Vec<Bytes>>> {
        let claim = {
            let mut held = self.store.lock();
            loop {
                if let Some(claim) = held.claim(&self.store, needs, true) {
                    break claim;
                }
                if gone() {
                    return None;
                }
                held = self.store.changed.wait(held).unwrap_or_else(PoisonError::into_inner);
            }
        };
        claim.fill(needs, make)
    }

    /// Makes a part before a record needs it, if there is memory without evicting parts that other records ahead need.
    pub(super) fn make_ahead(&self, need: Need, make: impl FnOnce() -> Option<Result<Bytes>>) {
        let claim = {
            let mut held = self.store.lock();
            if held.parts.contains_key(&need.key) {
                return;
            }
            held.claim(&self.store, &[need], false)
        };
        let mut make = Some(make);
        claim.map(|claim| claim.fill(&[need], |_, _| make.take()?()));
    }

    /// Marks a part as needed by a record ahead. `None` if it neither exists nor is being read: then it must be read.
    pub(super) fn expect(&self, key: u64) -> Option<PartAhead> {
        let mut held = self.store.lock();
        let coming = held.ahead.get(&key).is_some_and(|ahead| !matches!(ahead.encoded, Encoded::Gone));
        let there = coming || held.parts.contains_key(&key);
        there.then(|| held.expect(&self.store, key))
    }

    /// Marks a part as being read from now on.
    pub(super) fn arriving(&self, key: u64) -> Arriving {
        let mut held = self.store.lock();
        let part = held.expect(&self.store, key);
        if let Some(ahead) = held.ahead.get_mut(&key)
            && matches!(ahead.encoded, Encoded::Gone)
        {
            // Otherwise another stream has just begun to read it, too.
            ahead.encoded = Encoded::Coming;
        }
        Arriving(part)
    }

    /// Whether its bytes are here and no thread has taken them.
    pub(super) fn has_encoded(&self, key: u64) -> bool {
        self.store.lock().ahead.get(&key).is_some_and(|ahead| matches!(ahead.encoded, Encoded::Here(_)))
    }

    /// The bytes that were read ahead, for the thread that makes the part; an error goes to every thread.
    pub(super) fn take_encoded(&self, key: u64) -> Option<Result<Vec<Piece>>> {
        let mut held = self.store.lock();
        let encoded = &mut held.ahead.get_mut(&key)?.encoded;
        match encoded {
            Encoded::Here(Err(error)) => Some(Err(error.clone())),
            Encoded::Here(Ok(pieces)) => {
                let pieces = std::mem::take(pieces);
                *encoded = Encoded::Gone;
                Some(Ok(pieces))
            }
            Encoded::Coming | Encoded::Gone => None,
        }
    }

    /// Records that the bytes make no part, so that they are not read again for each record.
    pub(super) fn is_damaged(&self, key: u64, error: &Error) {
        let mut held = self.store.lock();
        if let Some(ahead) = held.ahead.get_mut(&key).filter(|ahead| matches!(ahead.encoded, Encoded::Gone)) {
            ahead.encoded = Encoded::Here(Err(error.clone()));
        }
    }

    /// Drops a part, or its bytes, that may be damaged: the next record that needs it reads it again.
    pub(super) fn doubt(&self, key: u64) {
        let mut held = self.store.lock();
        let here = held.ahead.get_mut(&key).filter(|ahead| matches!(ahead.encoded, Encoded::Here(_)));
        let encoded = here.map(|ahead| std::mem::replace(&mut ahead.encoded, Encoded::Gone));
        let idle = matches!(held.parts.get(&key), Some(SharedPart::Made { lent: 0, .. }));
        let data = if idle { held.remove(key) } else { None };
        drop(held);
        drop((encoded, data));
    }
}

impl PartAhead {
    /// Waits until the bytes of the part are here, or no task reads them any more; returns whether it waited. Cancel
    /// safe.
    pub(super) async fn came(&self) -> bool {
        let mut waited = false;
        let coming = || {
            let held = self.store.lock();
            let ahead = held.ahead.get(&self.key).filter(|ahead| matches!(ahead.encoded, Encoded::Coming));
            ahead.map(|ahead| Arc::clone(&ahead.came))
        };
        while let Some(came) = coming() {
            let mut came = pin!(came.notified());
            // Registered before the check, so that an arrival in between wakes this task.
            came.as_mut().enable();
            if coming().is_none() {
                break;
            }
            came.await;
            waited = true;
        }
        waited
    }
}

impl Drop for PartAhead {
    fn drop(&mut self) {
        let mut held = self.store.lock();
        let Some(ahead) = held.ahead.get_mut(&self.key) else { return };
        ahead.held -= 1;
        let gone = if ahead.held == 0 { held.ahead.remove(&self.key) } else { None };
        drop(held);
        // Outside the lock.
        drop(gone);
    }
}

impl fmt::Debug for PartAhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PartAhead").field(&self.key).finish()
    }
}

impl Arriving {
    /// Stores its bytes, or the error of reading them. Returns the handle.
    pub(super) fn came(self, pieces: Result<Vec<Piece>>) {
        self.0.end(Encoded::Here(pieces));
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        self.0.end(Encoded::Gone);
    }
}

impl PartAhead {
    /// No task reads the bytes any more.
    fn end(&self, encoded: Encoded) {
        let mut held = self.store.lock();
        let Some(ahead) = held.ahead.get_mut(&self.key) else { return };
        if !matches!(ahead.encoded, Encoded::Coming) {
            return;
        }
        ahead.encoded = encoded;
        ahead.came.notify_waiters();
    }
}

impl fmt::Debug for SharedParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = self.store.lock();
        write!(
            f,
            "SharedParts({} parts, {} of {} bytes, {} at most)",
            held.parts.len(),
            held.used,
            self.store.reserve,
            held.most
        )
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            atomic::{AtomicBool, AtomicUsize, Ordering},
            mpsc,
        },
        thread,
    };

    use futures::FutureExt;

    use super::*;

    fn need(key: u64, bytes: u64) -> Need {
        Need { key, bytes, making: 1 }
    }

    fn part(key: u64, bytes: u64) -> Bytes {
        vec![key as u8; bytes as usize].into()
    }

    fn take(parts: &SharedParts, needs: &[Need], made: &AtomicUsize) -> Vec<Bytes> {
        let make = |at: usize, _: &[Need]| {
            made.fetch_add(1, Ordering::Relaxed);
            Some(Ok(part(needs[at].key, needs[at].bytes)))
        };
        parts.take(needs, || false, make).expect("not gone").expect("made")
    }

    #[test]
    fn many_threads_make_each_part_once_within_the_reserve() {
        for (reserve, once) in [(10_000, true), (2 * 202, false)] {
            let (parts, made) = (SharedParts::new(reserve), AtomicUsize::new(0));
            thread::scope(|scope| {
                for worker in 0..8u64 {
                    let (parts, made) = (&parts, &made);
                    scope.spawn(move || {
                        for i in 0..200u64 {
                            let record = (i * 7 + worker) % 10;
                            let taken = take(parts, &[need(2 * record, 100), need(2 * record + 1, 100)], made);
                            assert_eq!((taken[0][99], taken[1][0]), (2 * record as u8, 2 * record as u8 + 1));
                        }
                    });
                }
            });
            let held = parts.store.lock();
            assert!(held.most <= reserve, "{} of {reserve}", held.most);
            let lent = held.parts.values().filter(|part| !matches!(part, SharedPart::Made { lent: 0, .. })).count();
            assert_eq!((lent, held.used), (0, 100 * held.parts.len() as u64));
            assert_eq!(made.load(Ordering::Relaxed) == 20, once);
        }
    }

    #[test]
    fn what_is_lent_stays_and_what_is_idle_gives_way() {
        let (parts, made) = (SharedParts::new(301), AtomicUsize::new(0));
        let lent = take(&parts, &[need(1, 100)], &made);
        drop(take(&parts, &[need(2, 100)], &made));
        drop(take(&parts, &[need(3, 100)], &made));
        drop(take(&parts, &[need(4, 100)], &made));
        assert_eq!(made.load(Ordering::Relaxed), 4);
        drop(take(&parts, &[need(1, 100), need(4, 100)], &made));
        assert_eq!(made.load(Ordering::Relaxed), 4, "1 is lent, 4 is new");
        // The other part was evicted, because it was least recently used.
        drop(take(&parts, &[need(2, 100)], &made));
        assert_eq!(made.load(Ordering::Relaxed), 5);
        assert_eq!(lent[0][..], [1; 100]);
    }

    #[test]
    fn a_failure_is_its_callers_alone() {
        let parts = SharedParts::new(1000);
        let needs = [need(1, 100), need(2, 100)];
        let fail = |at: usize, _: &[Need]| Some(if at == 0 { Ok(part(1, 100)) } else { Err(Error::corrupt("bad")) });
        assert!(parts.take(&needs, || false, fail).unwrap().is_err());
        assert!(parts.take(&needs, || false, |_, _| None).is_none(), "the stream went away while a part was made");
        let made = AtomicUsize::new(0);
        assert_eq!(take(&parts, &needs, &made).len(), 2);
        assert_eq!(made.load(Ordering::Relaxed), 1, "the part that was good is there");
        // A panic while making is as good as an error.
        let boom = || parts.take(&[need(9, 100)], || false, |_, _| panic!("boom"));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(boom)).is_err());
        assert_eq!(take(&parts, &[need(9, 100)], &made).len(), 1);
        assert_eq!(parts.store.lock().used, 300);
    }

    #[test]
    fn whoever_waits_for_memory_ends_when_the_stream_does() {
        let (parts, made) = (SharedParts::new(101), AtomicUsize::new(0));
        let lent = take(&parts, &[need(1, 100)], &made);
        assert!(parts.take(&[need(2, 100)], || true, |_, _| panic!("there is no memory")).is_none());
        drop(lent);
        assert_eq!(take(&parts, &[need(2, 100)], &made).len(), 1);
    }

    #[test]
    fn a_stream_that_is_gone_wakes_whoever_waits_for_its_parts() {
        let (parts, made) = (SharedParts::new(101), AtomicUsize::new(0));
        let lent = take(&parts, &[need(1, 100)], &made);
        let gone = AtomicBool::new(false);
        thread::scope(|scope| {
            let (looked, looks) = mpsc::channel();
            let (parts, gone) = (&parts, &gone);
            let waiter = scope.spawn(move || {
                let look = || {
                    let _ = looked.send(());
                    gone.load(Ordering::SeqCst)
                };
                parts.take(&[need(2, 100)], look, |_, _| panic!("there is no memory")).is_none()
            });
            looks.recv().unwrap();
            gone.store(true, Ordering::SeqCst);
            parts.wake();
            // Only this ends its wait: no part changes, and there is no timer.
            assert!(waiter.join().unwrap());
        });
        drop(lent);
    }

    fn here(bytes: &'static [u8]) -> Result<Vec<Piece>> {
        Ok(vec![Piece::Bytes(Bytes::from_static(bytes))])
    }

    fn encoded(parts: &SharedParts, key: u64) -> Option<Result<u64>> {
        parts.take_encoded(key).map(|pieces| pieces.map(|pieces| pieces.iter().map(Piece::len).sum()))
    }

    #[test]
    fn what_is_read_ahead_waits_for_one_who_makes_it() {
        let parts = SharedParts::new(1000);
        assert!(parts.expect(1).is_none(), "it has to be read");
        let arriving = parts.arriving(1);
        let ahead = parts.expect(1).expect("it is on its way");
        assert!(encoded(&parts, 1).is_none());
        assert!(ahead.came().now_or_never().is_none());
        arriving.came(here(b"abc"));
        assert_eq!(ahead.came().now_or_never(), Some(false), "it need not wait");
        let later = parts.expect(1).expect("it is here");
        assert_eq!(encoded(&parts, 1).unwrap().unwrap(), 3);
        assert!(encoded(&parts, 1).is_none(), "somebody has them");
        // Damaged: all threads that need it get the error, and the next record that plans with it reads it again.
        parts.is_damaged(1, &Error::corrupt("bad"));
        assert!(encoded(&parts, 1).unwrap().is_err() && encoded(&parts, 1).unwrap().is_err());
        drop((ahead, later));
        assert!(encoded(&parts, 1).is_none() && parts.expect(1).is_none());
    }

    #[test]
    fn whoever_waits_for_bytes_wakes_when_nobody_reads_them_any_more() {
        let parts = SharedParts::new(1000);
        let (first, second) = (parts.arriving(1), parts.arriving(1));
        let ahead = parts.expect(1).unwrap();
        let mut came = Box::pin(ahead.came());
        assert!(came.as_mut().now_or_never().is_none());
        drop(first);
        assert_eq!(came.now_or_never(), Some(true), "its stream is gone");
        // Another stream had begun, too.
        second.came(here(b"abc"));
        assert!(encoded(&parts, 1).is_none_or(|bytes| bytes.is_ok()));
        parts.doubt(1);
        assert!(encoded(&parts, 1).is_none());
    }

    #[test]
    fn parts_that_records_ahead_need_give_way_last() {
        let (parts, made) = (SharedParts::new(301), AtomicUsize::new(0));
        drop(take(&parts, &[need(1, 100)], &made));
        let ahead = parts.expect(1).expect("it is made");
        drop(take(&parts, &[need(2, 100)], &made));
        drop(take(&parts, &[need(3, 100)], &made));
        assert_eq!(made.load(Ordering::Relaxed), 3);
        // 1 is least recently used, and stays.
        drop(take(&parts, &[need(1, 100), need(3, 100)], &made));
        assert_eq!(made.load(Ordering::Relaxed), 3);
        let ahead = (ahead, parts.expect(3));
        // Only 2 may be evicted, which is not enough, so it stays. A record that needs the memory still gets it.
        drop(take(&parts, &[need(2, 50)], &made));
        let before = made.load(Ordering::Relaxed);
        parts.make_ahead(need(4, 250), || panic!("there is no memory for it"));
        drop(take(&parts, &[need(2, 50)], &made));
        assert_eq!(made.load(Ordering::Relaxed), before);
        drop(take(&parts, &[need(4, 250)], &made));
        drop(ahead);
        assert_eq!(parts.store.lock().used, 250);
        drop(take(&parts, &[need(5, 40)], &made));
        parts.make_ahead(need(6, 200), || Some(Ok(part(6, 200))));
        assert_eq!(take(&parts, &[need(6, 200)], &made)[0][..], [6; 200], "made before it was needed");
        assert_eq!(made.load(Ordering::Relaxed), before + 2);
    }
}
