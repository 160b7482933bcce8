//! Parts that several records share, such as decoded volumes: read and decoded once, lent to whoever needs them.
//!
//! - **Single flight**: of several threads that need a part, one makes it, the others wait.
//! - **Leased**: a part is lent as `Bytes` that hold it; what is lent is never dropped.
//! - **Bounded**: parts, the bytes they are made of included, stay within the reserve. A part that is not lent gives
//!   way to a new one, the one that was used longest ago first. Who finds no memory waits until another gives back.
//! - **No deadlock**: whoever waits holds no part. All parts of a record are taken together or not at all, and the reserve
//!   holds those of the largest record.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use infeed_core::error::Result;

/// A part that a record needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Need {
    pub(super) key: u64,
    /// Bytes when it is made.
    pub(super) bytes: u64,
    /// Bytes that it takes besides, while it is made.
    pub(super) making: u64,
}

/// The shared parts of a loader.
#[derive(Clone)]
pub(crate) struct SharedParts {
    store: Arc<Store>,
}

struct Store {
    reserve: u64,
    held: Mutex<Held>,
    changed: Condvar,
}

#[derive(Default)]
struct Held {
    parts: HashMap<u64, SharedPart>,
    /// Bytes of all parts, those being made included.
    used: u64,
    most: u64,
    clock: u64,
}

enum SharedPart {
    Making,
    Made { data: Bytes, counted: u64, lent: usize, used: u64 },
}

/// A part in somebody's hands.
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
        // The bytes first: their memory counts as free only when it is.
        self.data = Bytes::new();
        let mut held = self.store.lock();
        if let Some(SharedPart::Made { lent, .. }) = held.parts.get_mut(&self.key) {
            *lent -= 1;
        }
        drop(held);
        self.store.changed.notify_all();
    }
}

/// Parts that this thread has promised to make. What is not made when it is dropped is not there.
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

impl Store {
    fn lock(&self) -> MutexGuard<'_, Held> {
        // Each section leaves it whole.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// Drops parts that nobody holds, the longest unused first, until `bytes` more fit. None that `wanted` names.
    fn evict(&mut self, bytes: u64, reserve: u64, wanted: &[Need]) -> Vec<Bytes> {
        let mut dropped = Vec::new();
        while self.used + bytes > reserve {
            let idle = self.parts.iter().filter_map(|(key, part)| match part {
                SharedPart::Made { lent: 0, used, .. } if wanted.iter().all(|need| need.key != *key) => {
                    Some((*used, *key))
                }
                _ => None,
            });
            let Some((_, key)) = idle.min() else { break };
            if let Some(SharedPart::Made { data, counted, .. }) = self.parts.remove(&key) {
                self.used -= counted;
                dropped.push(data);
            }
        }
        dropped
    }

    fn lend(&mut self, store: &Arc<Store>, key: u64) -> Option<Bytes> {
        self.clock += 1;
        let Some(SharedPart::Made { data, lent, used, .. }) = self.parts.get_mut(&key) else { return None };
        *lent += 1;
        *used = self.clock;
        Some(Bytes::from_owner(Lease { store: Arc::clone(store), key, data: data.clone() }))
    }
}

impl SharedParts {
    /// Parts within `reserve` bytes, which must hold those of the largest record.
    pub(crate) fn new(reserve: u64) -> Self {
        Self { store: Arc::new(Store { reserve, held: Mutex::default(), changed: Condvar::new() }) }
    }

    /// Some stream is gone: all who wait look whether it is theirs.
    pub(super) fn wake(&self) {
        // Whoever looked before the stream was gone waits once this lock is had.
        drop(self.store.lock());
        self.store.changed.notify_all();
    }

    /// The parts of one record, in order: those that are there, and those that `make` makes, which is told what else is
    /// still to be made. Its error ends this record's attempt alone; the next record that needs the part tries again.
    /// `None`: `gone` said so while waiting; whoever makes it say so [wakes](Self::wake) those who wait.
    pub(super) fn take(
        &self,
        needs: &[Need],
        gone: impl Fn() -> bool,
        mut make: impl FnMut(usize, &[Need]) -> Option<Result<Bytes>>,
    ) -> Option<Result<Vec<Bytes>>> {
        let store = &self.store;
        let (mut promise, mut lent, _dropped) = {
            let mut held = store.lock();
            loop {
                let making = needs.iter().any(|need| matches!(held.parts.get(&need.key), Some(SharedPart::Making)));
                if !making {
                    let mut missing: Vec<Need> =
                        needs.iter().filter(|need| !held.parts.contains_key(&need.key)).copied().collect();
                    missing.sort_by_key(|need| need.key);
                    missing.dedup_by_key(|need| need.key);
                    let bytes = missing.iter().map(|need| need.bytes + need.making).sum();
                    let dropped = held.evict(bytes, store.reserve, needs);
                    if held.used + bytes <= store.reserve || missing.is_empty() {
                        held.used += bytes;
                        held.most = held.most.max(held.used);
                        for need in &missing {
                            held.parts.insert(need.key, SharedPart::Making);
                        }
                        let lent: Vec<Option<Bytes>> = needs.iter().map(|need| held.lend(store, need.key)).collect();
                        break (Promise { store, left: missing }, lent, dropped);
                    }
                }
                if gone() {
                    return None;
                }
                held = store.changed.wait(held).unwrap_or_else(PoisonError::into_inner);
            }
        };
        while let Some(need) = promise.left.first().copied() {
            let at = needs.iter().position(|other| other.key == need.key).unwrap_or_default();
            let data = match make(at, &promise.left)? {
                Ok(data) => data,
                Err(error) => return Some(Err(error)),
            };
            let mut held = store.lock();
            // Counted as promised: a part may say a little more than it turns out to be, never less.
            held.used -= need.making;
            held.parts.insert(need.key, SharedPart::Made { data, counted: need.bytes, lent: 0, used: 0 });
            lent[at] = held.lend(store, need.key);
            promise.left.remove(0);
            drop(held);
            store.changed.notify_all();
        }
        // A record that names a part twice gets it twice.
        let mut held = store.lock();
        let all = needs.iter().zip(lent).map(|(need, part)| part.or_else(|| held.lend(store, need.key)));
        all.collect::<Option<Vec<Bytes>>>().map(Ok)
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

    use super::*;
    use infeed_core::error::Error;

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
        // The other is gone, or was used longest ago.
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
            // Nothing else ends its wait: no part changes, and no clock runs.
            assert!(waiter.join().unwrap());
        });
        drop(lent);
    }
}
