//! Parts that several records share, such as decoded volumes: read and decoded once, lent to whoever needs them.
//!
//! - **Single flight**: of several threads that need a part, one makes it, the others wait.
//! - **Leased**: a part is lent as `Bytes` that hold it; what is lent is never dropped.
//! - **Bounded**: parts, the bytes they are made of included, stay within the reserve. A part that is not lent makes
//!   room for a new one, the one that was used longest ago first. Who finds no room waits until another gives back.
//! - **No deadlock**: whoever waits holds no part. All parts of a record are taken together or not at all, and the reserve
//!   holds those of the largest record.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Condvar, Mutex, PoisonError, mpsc},
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};

use super::run::StreamShared;
use crate::{
    dataset::{Dataset, ReadPlan, SharedRead},
    error::{Error, ErrorKind, Result},
    report::Stage,
    source::Extent,
};

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
    shared: Arc<Shared>,
}

struct Shared {
    reserve: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    parts: HashMap<u64, Part>,
    /// Bytes of all parts, those being made included.
    used: u64,
    most: u64,
    clock: u64,
}

enum Part {
    Making,
    Made { data: Bytes, counted: u64, lent: usize, used: u64 },
}

/// A part in somebody's hands.
struct Lease {
    shared: Arc<Shared>,
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
        // The bytes first: the room is free only when they are.
        self.data = Bytes::new();
        let mut state = self.shared.lock();
        if let Some(Part::Made { lent, .. }) = state.parts.get_mut(&self.key) {
            *lent -= 1;
        }
        drop(state);
        self.shared.changed.notify_all();
    }
}

/// Parts that this thread has promised to make. What is not made when it is dropped is not there.
struct Promise<'a> {
    shared: &'a Arc<Shared>,
    left: Vec<Need>,
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        for need in &self.left {
            state.parts.remove(&need.key);
            state.used -= need.bytes + need.making;
        }
        drop(state);
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // Each section leaves the state whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Drops parts that nobody holds, the longest unused first, until `bytes` more fit. None that `wanted` names.
    fn make_room(&mut self, bytes: u64, reserve: u64, wanted: &[Need]) -> Vec<Bytes> {
        let mut dropped = Vec::new();
        while self.used + bytes > reserve {
            let idle = self.parts.iter().filter_map(|(key, part)| match part {
                Part::Made { lent: 0, used, .. } if wanted.iter().all(|need| need.key != *key) => Some((*used, *key)),
                _ => None,
            });
            let Some((_, key)) = idle.min() else { break };
            if let Some(Part::Made { data, counted, .. }) = self.parts.remove(&key) {
                self.used -= counted;
                dropped.push(data);
            }
        }
        dropped
    }

    fn lend(&mut self, shared: &Arc<Shared>, key: u64) -> Option<Bytes> {
        self.clock += 1;
        let Some(Part::Made { data, lent, used, .. }) = self.parts.get_mut(&key) else { return None };
        (*lent, *used) = (*lent + 1, self.clock);
        Some(Bytes::from_owner(Lease { shared: Arc::clone(shared), key, data: data.clone() }))
    }
}

impl SharedParts {
    /// Parts within `reserve` bytes, which must hold those of the largest record.
    pub(crate) fn new(reserve: u64) -> Self {
        Self { shared: Arc::new(Shared { reserve, state: Mutex::default(), changed: Condvar::new() }) }
    }

    /// The parts of one record, in order: those that are there, and those that `make` makes, which is told what else is
    /// still to be made. Its error ends this
    /// record's attempt alone; the next record that needs the part tries again. `None`: `gone` said so while waiting.
    pub(super) fn take(
        &self,
        needs: &[Need],
        gone: impl Fn() -> bool,
        mut make: impl FnMut(usize, &[Need]) -> Option<Result<Bytes>>,
    ) -> Option<Result<Vec<Bytes>>> {
        let shared = &self.shared;
        let (mut promise, mut lent, _dropped) = {
            let mut state = shared.lock();
            loop {
                let making = needs.iter().any(|need| matches!(state.parts.get(&need.key), Some(Part::Making)));
                if !making {
                    let mut missing: Vec<Need> =
                        needs.iter().filter(|need| !state.parts.contains_key(&need.key)).copied().collect();
                    missing.sort_by_key(|need| need.key);
                    missing.dedup_by_key(|need| need.key);
                    let bytes = missing.iter().map(|need| need.bytes + need.making).sum();
                    let dropped = state.make_room(bytes, shared.reserve, needs);
                    if state.used + bytes <= shared.reserve || missing.is_empty() {
                        state.used += bytes;
                        state.most = state.most.max(state.used);
                        for need in &missing {
                            state.parts.insert(need.key, Part::Making);
                        }
                        let lent: Vec<Option<Bytes>> = needs.iter().map(|need| state.lend(shared, need.key)).collect();
                        break (Promise { shared, left: missing }, lent, dropped);
                    }
                }
                if gone() {
                    return None;
                }
                // A stream that is dropped wakes nobody here.
                let waited = shared.changed.wait_timeout(state, Duration::from_millis(50));
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        };
        while let Some(need) = promise.left.first().copied() {
            let at = needs.iter().position(|other| other.key == need.key).unwrap_or_default();
            let data = match make(at, &promise.left)? {
                Ok(data) => data,
                Err(error) => return Some(Err(error)),
            };
            let mut state = shared.lock();
            // Counted as promised: a part may say a little more than it turns out to be, never less.
            state.used -= need.making;
            state.parts.insert(need.key, Part::Made { data, counted: need.bytes, lent: 0, used: 0 });
            lent[at] = state.lend(shared, need.key);
            promise.left.remove(0);
            drop(state);
            shared.changed.notify_all();
        }
        // A record that names a part twice gets it twice.
        let mut state = shared.lock();
        let all = needs.iter().zip(lent).map(|(need, part)| part.or_else(|| state.lend(shared, need.key)));
        all.collect::<Option<Vec<Bytes>>>().map(Ok)
    }
}

/// The shared parts of a record's plan. `None`: the stream is gone.
pub(super) fn take(stream: &Arc<StreamShared>, dataset: &dyn Dataset, plan: &ReadPlan) -> Option<Result<Vec<Bytes>>> {
    let need = |part: &SharedRead| Need { key: part.key, bytes: part.bytes, making: part.encoded() };
    let needs: Vec<Need> = plan.shared.iter().map(need).collect();
    // Reads of a network go on together, whichever part is made first.
    let mut coming: HashMap<u64, Vec<mpsc::Receiver<Result<Bytes>>>> = HashMap::new();
    let mut begun = false;
    let make = |at: usize, left: &[Need]| {
        if !std::mem::replace(&mut begun, true) {
            let parts = plan.shared.iter().filter(|part| left.iter().any(|need| need.key == part.key));
            for part in parts {
                let remote = part.extents.iter().filter(|extent| !extent.source.reads_inline());
                coming.insert(part.key, remote.map(|extent| fetch(stream, extent.clone())).collect());
            }
        }
        let part = &plan.shared[at];
        let began = Instant::now();
        let mut remote = coming.remove(&part.key).unwrap_or_default().into_iter();
        let mut encoded = Vec::with_capacity(part.extents.len());
        for extent in &part.extents {
            let bytes =
                if extent.source.reads_inline() { read_here(stream, extent)? } else { wait(stream, &remote.next()?)? };
            match bytes {
                Ok(bytes) => encoded.push(bytes),
                Err(error) => return Some(Err(error.at_stage(Stage::Fetch))),
            }
        }
        let read = Instant::now();
        let len = encoded.iter().map(|bytes| bytes.len() as u64).sum();
        stream.recorder.busy(Stage::Fetch, read - began, 1, len);
        let data =
            dataset.decode_shared(part.key, &encoded).map(|data| data.slice(..data.len().min(part.bytes as usize)));
        stream.recorder.busy(Stage::Decode, read.elapsed(), 1, data.as_ref().map_or(0, |data| data.len() as u64));
        Some(data)
    };
    stream.loader.shared_parts.take(&needs, || stream.gate.is_closed(), make)
}

/// Not into the thread's own buffers: what was read may be kept.
fn read_here(stream: &StreamShared, extent: &Extent) -> Option<Result<Bytes>> {
    let opened = {
        let _open = stream.gate.pass()?;
        extent.open_inline()
    };
    let mut buffer = BytesMut::new();
    Some(opened.and_then(|opened| opened.read_into(&mut buffer)).map(|()| buffer.freeze()))
}

fn fetch(stream: &Arc<StreamShared>, extent: Extent) -> mpsc::Receiver<Result<Bytes>> {
    let (done, answer) = mpsc::channel();
    let (stream, engine) = (Arc::clone(stream), stream.loader.io.clone());
    engine.spawn(async move {
        let _ = done.send(super::fetch::read(&stream.gate, &stream.reader, extent).await);
    });
    answer
}

/// `None`: the stream is gone.
fn wait(stream: &StreamShared, answer: &mpsc::Receiver<Result<Bytes>>) -> Option<Result<Bytes>> {
    loop {
        match answer.recv_timeout(Duration::from_millis(50)) {
            Ok(bytes) => return Some(bytes),
            // A closed gate never wakes the read.
            Err(_) if stream.gate.is_closed() => return None,
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                let what = "reading a shared part panicked";
                return Some(Err(Error::new(ErrorKind::Internal, what).hint("please report it")));
            }
        }
    }
}

impl fmt::Debug for SharedParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.lock();
        write!(
            f,
            "SharedParts({} parts, {} of {} bytes, {} at most)",
            state.parts.len(),
            state.used,
            self.shared.reserve,
            state.most
        )
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        thread,
    };

    use super::*;

    fn need(key: u64, bytes: u64) -> Need {
        Need { key, bytes, making: 1 }
    }

    fn part(key: u64, bytes: u64) -> Bytes {
        vec![key as u8; bytes as usize].into()
    }

    fn take(assets: &SharedParts, needs: &[Need], made: &AtomicUsize) -> Vec<Bytes> {
        let make = |at: usize, _: &[Need]| {
            made.fetch_add(1, Ordering::Relaxed);
            Some(Ok(part(needs[at].key, needs[at].bytes)))
        };
        assets.take(needs, || false, make).expect("not gone").expect("made")
    }

    #[test]
    fn many_threads_make_each_part_once_within_the_reserve() {
        for (reserve, once) in [(10_000, true), (2 * 202, false)] {
            let (assets, made) = (SharedParts::new(reserve), AtomicUsize::new(0));
            thread::scope(|scope| {
                for worker in 0..8u64 {
                    let (assets, made) = (&assets, &made);
                    scope.spawn(move || {
                        for i in 0..200u64 {
                            let record = (i * 7 + worker) % 10;
                            let parts = take(assets, &[need(2 * record, 100), need(2 * record + 1, 100)], made);
                            assert_eq!((parts[0][99], parts[1][0]), (2 * record as u8, 2 * record as u8 + 1));
                        }
                    });
                }
            });
            let state = assets.shared.lock();
            assert!(state.most <= reserve, "{} of {reserve}", state.most);
            let lent = state.parts.values().filter(|part| !matches!(part, Part::Made { lent: 0, .. })).count();
            assert_eq!((lent, state.used), (0, 100 * state.parts.len() as u64));
            assert_eq!(made.load(Ordering::Relaxed) == 20, once);
        }
    }

    #[test]
    fn what_is_lent_stays_and_what_is_idle_makes_room() {
        let (assets, made) = (SharedParts::new(301), AtomicUsize::new(0));
        let held = take(&assets, &[need(1, 100)], &made);
        drop(take(&assets, &[need(2, 100)], &made));
        drop(take(&assets, &[need(3, 100)], &made));
        drop(take(&assets, &[need(4, 100)], &made));
        assert_eq!(made.load(Ordering::Relaxed), 4);
        drop(take(&assets, &[need(1, 100), need(4, 100)], &made));
        assert_eq!(made.load(Ordering::Relaxed), 4, "1 is lent, 4 is new");
        // The other is gone, or was used longest ago.
        drop(take(&assets, &[need(2, 100)], &made));
        assert_eq!(made.load(Ordering::Relaxed), 5);
        assert_eq!(held[0][..], [1; 100]);
    }

    #[test]
    fn a_failure_is_its_callers_alone() {
        let assets = SharedParts::new(1000);
        let needs = [need(1, 100), need(2, 100)];
        let fail = |at: usize, _: &[Need]| Some(if at == 0 { Ok(part(1, 100)) } else { Err(Error::corrupt("bad")) });
        assert!(assets.take(&needs, || false, fail).unwrap().is_err());
        assert!(assets.take(&needs, || false, |_, _| None).is_none(), "the stream went away while a part was made");
        let made = AtomicUsize::new(0);
        assert_eq!(take(&assets, &needs, &made).len(), 2);
        assert_eq!(made.load(Ordering::Relaxed), 1, "the part that was good is there");
        // A panic while making is as good as an error.
        let boom = || assets.take(&[need(9, 100)], || false, |_, _| panic!("boom"));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(boom)).is_err());
        assert_eq!(take(&assets, &[need(9, 100)], &made).len(), 1);
        assert_eq!(assets.shared.lock().used, 300);
    }

    #[test]
    fn whoever_waits_for_room_ends_when_the_stream_does() {
        let (assets, made) = (SharedParts::new(101), AtomicUsize::new(0));
        let held = take(&assets, &[need(1, 100)], &made);
        assert!(assets.take(&[need(2, 100)], || true, |_, _| panic!("there is no room")).is_none());
        drop(held);
        assert_eq!(take(&assets, &[need(2, 100)], &made).len(), 1);
    }
}
