//! A cache: which reads it has, which it keeps, and who writes them.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    path::PathBuf,
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use bytes::{Bytes, BytesMut};
use infeed_core::{
    error::{Error, Result},
    report::{CacheRecorder, CacheReport},
};
use tokio::sync::{Notify, OwnedSemaphorePermit, futures::OwnedNotified};

use super::{
    CacheSpec,
    disk::{Disk, Lost},
    key::Key,
    policy::{Ranking, Renew, Use},
    ranks::{Member, Ranks},
};
use crate::Extent;

/// A read that is worth keeping.
#[derive(Clone, Copy, Debug)]
pub struct Keep {
    pub(super) key: Key,
    pub(super) coming: Use,
    pub(super) record: u64,
}

/// What the cache has of a read.
#[derive(Debug)]
pub enum Looked {
    /// Bytes in memory, now.
    Memory(Bytes),
    /// An entry on the disk, for [`Cache::read`].
    File(Keep),
    /// Nothing; the read may be kept when it is there.
    Miss(Option<Keep>),
}

/// What came of doubting an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubted {
    /// It was dropped.
    Now,
    /// It was dropped before. What the cache has came later; what could not be decoded may have been read before.
    Before,
    /// It is not there.
    No,
}

/// A cache, shared by the loaders of a process.
#[derive(Debug)]
pub struct Cache {
    tier: Tier,
    ranking: Mutex<Ranking>,
    /// Held by the thread that takes room: two that choose the same entries would take what the other has freed.
    room: Mutex<()>,
    queue: Mutex<Queue>,
    /// Reads from the store that will be kept: who wants the same waits for them.
    reading: Mutex<HashMap<Key, Arc<Notify>>>,
    /// Entries that were dropped because they could not be decoded.
    doubted: Mutex<HashSet<Key>>,
    warned_of_tags: AtomicBool,
    ranks: Arc<Ranks>,
}

#[derive(Debug)]
enum Tier {
    Ram { size: u64, used: AtomicU64, entries: Mutex<HashMap<Key, Bytes>> },
    Disk(Box<Disk>),
}

/// Entries that wait to be written.
#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Waiting and in writing.
    pending: HashMap<Key, Bytes>,
    /// In writing, and to be removed then: until it is, nobody is served what was written.
    unwanted: HashSet<Key>,
    bytes: u64,
    writers: usize,
}

#[derive(Debug)]
struct Job {
    keep: Keep,
    bytes: Bytes,
    recorder: CacheRecorder,
    /// Its bytes of the window of encoded bytes.
    _permit: Arc<OwnedSemaphorePermit>,
}

/// A read from the store that is under way. Dropping it, when the bytes are with the cache or will never come, wakes
/// those who wait for them.
#[derive(Debug)]
pub struct Flight {
    cache: Arc<Cache>,
    key: Key,
}

impl Drop for Flight {
    fn drop(&mut self) {
        let waiting = lock(&self.cache.reading).remove(&self.key);
        if let Some(waiting) = waiting {
            waiting.notify_waiters();
        }
    }
}

/// The right to write what waits, for one thread. Dropped unused, as with a stream, it is given to the next one who asks.
#[derive(Debug)]
pub struct Writer {
    cache: Arc<Cache>,
    done: bool,
}

impl Writer {
    /// Writes until nothing waits. Blocks this thread.
    pub fn run(mut self, renew: Renew<'_>) {
        loop {
            let job = {
                let mut queue = lock(&self.cache.queue);
                let Some(job) = queue.jobs.pop_front() else {
                    // Under this lock: what is queued from here on finds a writer too few.
                    queue.writers -= 1;
                    self.done = true;
                    return;
                };
                job
            };
            let key = job.keep.key;
            if self.cache.put(&job, renew) {
                job.recorder.written(key.len());
            } else {
                job.recorder.not_kept();
            }
            let mut queue = lock(&self.cache.queue);
            if queue.unwanted.contains(&key) {
                drop(queue);
                self.cache.drop_entry(&key);
                queue = lock(&self.cache.queue);
                // Only now: as long as it is there, it is told from others by this.
                queue.unwanted.remove(&key);
            }
            queue.pending.remove(&key);
            queue.bytes -= key.len();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.done {
            lock(&self.cache.queue).writers -= 1;
        }
    }
}

/// Entries that are doubted, at most: with more of them it is not the cache that is bad.
const DOUBTS: usize = 1 << 16;

/// What it lies in, in the folder that was given.
const FOLDER: &str = "infeed-cache-v1";

/// More threads would wait for the same disk.
const WRITERS: usize = 2;

static FOLDERS: LazyLock<Mutex<HashMap<PathBuf, Weak<Cache>>>> = LazyLock::new(Mutex::default);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each section leaves the state whole, so a panic elsewhere cannot have broken it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cache {
    /// Opens a cache; the loaders of one process that name the same folder share it. `local_rank` of `local_world`:
    /// this process among those of this machine, each of which answers for its part of the entries that are there.
    ///
    /// # Errors
    /// `Config` for a size of 0, a path that is no folder, and a folder that is open with another size.
    pub fn open(spec: &CacheSpec, local_rank: u32, local_world: u32) -> Result<Arc<Self>> {
        if spec.bytes == 0 {
            return Err(Error::config("the cache's size is 0").hint("leave the cache away, or give it space"));
        }
        let Some(dir) = &spec.dir else {
            let tier = Tier::Ram { size: spec.bytes, used: 0.into(), entries: Mutex::default() };
            return Ok(Arc::new(Self::new(tier, Ranking::new(1))));
        };
        let mut folders = lock(&FOLDERS);
        folders.retain(|_, cache| cache.strong_count() > 0);
        // Made before it is named: only what is there has one canonical name.
        let _ = std::fs::create_dir_all(dir);
        let name = dir.canonicalize().unwrap_or_else(|_| dir.clone());
        if let Some((cache, size)) =
            folders.get(&name).and_then(Weak::upgrade).map(|cache| (Arc::clone(&cache), cache.asked()))
        {
            if size.is_some_and(|size| size != spec.bytes) {
                return Err(Error::config("another loader of this process uses the cache's folder with another size")
                    .at_object(name.display().to_string())
                    .hint("give both the same size"));
            }
            return Ok(cache);
        }
        let disk = Disk::open(dir, FOLDER, spec.bytes)?;
        // Entries come up in this process once in about `local_world` epochs.
        let patience = if local_world <= 1 { 1 } else { 2 * u64::from(local_world) };
        let mut ranking = Ranking::new(patience);
        if disk.is_writable() {
            let mine = |key: &Key| key.object % u128::from(local_world.max(1)) == u128::from(local_rank);
            disk.entries().filter(mine).for_each(|key| ranking.adopt(key));
        }
        let cache = Arc::new(Self::new(Tier::Disk(Box::new(disk)), ranking));
        folders.insert(name, Arc::downgrade(&cache));
        Ok(cache)
    }

    fn new(tier: Tier, ranking: Ranking) -> Self {
        let ranks = Ranks::new(match &tier {
            Tier::Ram { .. } => None,
            Tier::Disk(disk) => Some(disk.root()),
        });
        Self {
            ranks,
            tier,
            ranking: Mutex::new(ranking),
            room: Mutex::default(),
            queue: Mutex::default(),
            reading: Mutex::default(),
            doubted: Mutex::default(),
            warned_of_tags: AtomicBool::new(false),
        }
    }

    /// Takes a rank in: what it reads, it reads for all that share the cache.
    pub fn join(&self, rank: u32, world: u32) -> Member {
        self.ranks.join(rank, world)
    }

    /// The size that a folder was opened with.
    fn asked(&self) -> Option<u64> {
        match &self.tier {
            Tier::Disk(disk) => Some(disk.asked()),
            Tier::Ram { .. } => None,
        }
    }

    fn used(&self) -> u64 {
        match &self.tier {
            Tier::Ram { used, .. } => used.load(Ordering::Relaxed),
            Tier::Disk(disk) => disk.used(),
        }
    }

    fn size(&self) -> u64 {
        match &self.tier {
            Tier::Ram { size, .. } => *size,
            Tier::Disk(disk) => disk.size(),
        }
    }

    /// What it did for the stream of `recorder`, and what it holds.
    pub fn report(&self, recorder: &CacheRecorder) -> CacheReport {
        recorder.report(self.used(), self.size())
    }

    /// Whether [`look`](Self::look) asks a file system, for what other processes wrote.
    pub const fn asks_files(&self) -> bool {
        matches!(self.tier, Tier::Disk(_))
    }

    /// Asks for an extent that `record` reads: at most one look-up of a file's name.
    pub fn look(&self, extent: &Extent, coming: Use, record: u64) -> Looked {
        let Some(key) = Key::of(extent) else {
            if !extent.is_empty() && !self.warned_of_tags.swap(true, Ordering::Relaxed) {
                let object = extent.source.display_name(&extent.name);
                tracing::warn!(object, "the store gives no version tags (ETag): such objects are not cached");
            }
            return Looked::Miss(None);
        };
        let keep = Keep { key, coming, record };
        lock(&self.ranking).at(coming.now);
        let looked = self.look_for(keep, true);
        if matches!(looked, Looked::Memory(_)) {
            self.used_by(&keep);
        }
        looked
    }

    /// Notes when an entry is needed again, now that its bytes were read. Not before: whoever needs room would take it
    /// for one that is not needed for long.
    fn used_by(&self, Keep { key, coming, record }: &Keep) {
        let mut ranking = lock(&self.ranking);
        if ranking.contains(key) {
            ranking.put(*key, *coming, *record);
        }
    }

    /// The same for a read that was asked for before, with no look at the disk: what this process wrote meanwhile it knows.
    /// What another one wrote meanwhile is read twice, and kept once.
    pub fn look_again(&self, keep: &Keep) -> Looked {
        self.look_for(*keep, false)
    }

    fn look_for(&self, keep: Keep, asks: bool) -> Looked {
        let key = keep.key;
        {
            let queue = lock(&self.queue);
            if let Some(bytes) = queue.pending.get(&key) {
                return Looked::Memory(bytes.clone());
            }
            if queue.unwanted.contains(&key) {
                return Looked::Miss(Some(keep));
            }
        }
        match &self.tier {
            Tier::Ram { entries, .. } => match lock(entries).get(&key) {
                Some(bytes) => Looked::Memory(bytes.clone()),
                None => Looked::Miss(Some(keep)),
            },
            // Other processes write too.
            Tier::Disk(disk) if lock(&self.ranking).contains(&key) || asks && disk.holds(&key) => Looked::File(keep),
            Tier::Disk(_) => Looked::Miss(Some(keep)),
        }
    }

    /// Before a read of the store that may be kept. An error is the end of another read of the same bytes: wait for it
    /// and [`look`](Self::look) again. Only for reads that need nothing but the store to end.
    pub fn begin(self: &Arc<Self>, keep: &Keep) -> Result<Flight, OwnedNotified> {
        let mut reading = lock(&self.reading);
        if let Some(other) = reading.get(&keep.key) {
            // Made under the lock, so that its end can't be missed.
            return Err(Arc::clone(other).notified_owned());
        }
        reading.insert(keep.key, Arc::default());
        Ok(Flight { cache: Arc::clone(self), key: keep.key })
    }

    /// Reads an entry that [`look`](Self::look) found. `false`: it is gone or damaged (then it is removed), and the
    /// store has to be asked. Blocks this thread.
    pub fn read(&self, found: &Keep, buffer: &mut BytesMut, recorder: &CacheRecorder) -> bool {
        let Tier::Disk(disk) = &self.tier else { return false };
        let key = &found.key;
        if lock(&self.queue).unwanted.contains(key) {
            return false;
        }
        match disk.read(key, buffer) {
            Ok(()) => {
                self.used_by(found);
                true
            }
            Err(lost) => {
                lock(&self.ranking).remove(key);
                if lost == Lost::Damaged {
                    recorder.damaged();
                    disk.remove(key);
                    tracing::warn!(entry = %disk.path(key).display(), "a damaged cache entry: removed, read from the store");
                }
                false
            }
        }
    }

    /// By what a read of an extent is known; `None` where it can't be kept.
    pub fn keep_of(extent: &Extent, coming: Use, record: u64) -> Option<Keep> {
        Key::of(extent).map(|key| Keep { key, coming, record })
    }

    /// Drops an entry that could not be decoded: whatever its checksum says, it may have come damaged from the store.
    pub fn doubt(&self, keep: &Keep, recorder: &CacheRecorder) -> Doubted {
        let key = &keep.key;
        // To the end: who doubts the same meanwhile finds it gone, and has to know why.
        let mut doubted = lock(&self.doubted);
        if doubted.contains(key) {
            return Doubted::Before;
        }
        if doubted.len() >= DOUBTS {
            return Doubted::No;
        }
        let waited = {
            let mut queue = lock(&self.queue);
            let jobs = queue.jobs.len();
            queue.jobs.retain(|job| job.keep.key != *key);
            let waited = queue.pending.remove(key).is_some();
            if queue.jobs.len() < jobs {
                queue.bytes -= key.len();
            } else if waited {
                queue.unwanted.insert(*key);
            }
            waited
        };
        let there = self.drop_entry(key);
        if !waited && !there {
            return Doubted::No;
        }
        recorder.undecodable();
        doubted.insert(*key);
        Doubted::Now
    }

    /// Takes bytes that came from the store; gives a writer when one more thread should write. `most`: how many bytes may wait to be written.
    pub fn keep(
        self: &Arc<Self>,
        keep: Keep,
        bytes: &Bytes,
        permit: &Arc<OwnedSemaphorePermit>,
        most: u64,
        recorder: &CacheRecorder,
    ) -> Option<Writer> {
        let Keep { key, coming, .. } = keep;
        let writable = match &self.tier {
            Tier::Ram { .. } => true,
            Tier::Disk(disk) => disk.is_writable(),
        };
        // What is sure to be refused later is not queued.
        let fits = || {
            let over = (self.used() + key.disk_bytes()).saturating_sub(self.size());
            over == 0 || lock(&self.ranking).victims(over.min(key.disk_bytes()), coming).is_some()
        };
        let mut queue = lock(&self.queue);
        if queue.pending.contains_key(&key) || lock(&self.ranking).contains(&key) {
            return None;
        }
        // What it replaces would be removed with it.
        let replaces = queue.unwanted.contains(&key);
        if replaces || !writable || queue.bytes + key.len() > most || !fits() {
            recorder.not_kept();
            return None;
        }
        queue.bytes += key.len();
        queue.pending.insert(key, bytes.clone());
        let job = Job { keep, bytes: bytes.clone(), recorder: recorder.clone(), _permit: Arc::clone(permit) };
        queue.jobs.push_back(job);
        if queue.writers == WRITERS {
            return None;
        }
        queue.writers += 1;
        Some(Writer { cache: Arc::clone(self), done: false })
    }

    /// Whether it was there.
    fn drop_entry(&self, key: &Key) -> bool {
        lock(&self.ranking).remove(key);
        self.remove(key)
    }

    fn put(&self, job: &Job, renew: Renew<'_>) -> bool {
        let Keep { key, coming, record } = job.keep;
        lock(&self.ranking).renew(coming.now, renew);
        if !self.reserve(&key, coming, &job.recorder) {
            return false;
        }
        let put = match &self.tier {
            Tier::Ram { entries, .. } => {
                // Not a slice of a larger read, which would hold all of it.
                lock(entries).insert(key, Bytes::copy_from_slice(&job.bytes));
                true
            }
            Tier::Disk(disk) => disk.write(&key, &job.bytes),
        };
        if put {
            lock(&self.ranking).put(key, coming, record);
        }
        put
    }

    /// Takes space, from what is worth less where none is free.
    fn reserve(&self, key: &Key, coming: Use, recorder: &CacheRecorder) -> bool {
        let _alone = lock(&self.room);
        // Another process may take what was freed here.
        for _ in 0..3 {
            if self.try_reserve(key.disk_bytes()) {
                return true;
            }
            let over = (self.used() + key.disk_bytes()).saturating_sub(self.size());
            let Some(victims) = lock(&self.ranking).victims(over.min(key.disk_bytes()), coming) else { return false };
            for victim in victims {
                // It may have gone meanwhile.
                if lock(&self.ranking).remove(&victim) && self.remove(&victim) {
                    recorder.evicted();
                }
            }
        }
        false
    }

    fn try_reserve(&self, bytes: u64) -> bool {
        match &self.tier {
            Tier::Ram { size, used, .. } => {
                let more = |used: u64| used.checked_add(bytes).filter(|sum| sum <= size);
                used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
            }
            Tier::Disk(disk) => disk.reserve(bytes),
        }
    }

    fn remove(&self, key: &Key) -> bool {
        match &self.tier {
            Tier::Ram { used, entries, .. } => {
                let removed = lock(entries).remove(key).is_some();
                if removed {
                    used.fetch_sub(key.disk_bytes(), Ordering::Relaxed);
                }
                removed
            }
            Tier::Disk(disk) => disk.remove(key),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::{NextUse, Source};

    #[test]
    fn who_looks_again_asks_no_disk() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("cache");
        let cache = Cache::open(&CacheSpec::dir(&folder, 1 << 30), 0, 1).unwrap();
        let _store = Source::memory("cache.again");
        let source = Source::parse("memory://cache.again").unwrap();
        let extent = Extent::whole(&source, "a", 5).with_etag(Some("1"));
        let coming = Use { now: 0, next: NextUse { epoch: 1, position: 0 } };
        let Looked::Miss(Some(keep)) = cache.look(&extent, coming, 0) else { panic!("it is empty") };
        // Another process writes it.
        let other = Disk::open(&folder, FOLDER, 1 << 30).unwrap();
        assert!(other.reserve(keep.key.disk_bytes()) && other.write(&keep.key, b"bytes"));
        assert!(matches!(cache.look_again(&keep), Looked::Miss(Some(_))));
        assert!(matches!(cache.look(&extent, coming, 0), Looked::File(_)));
    }

    /// Each of those who met bytes that do not decode reads others afterwards, however their doubts meet one another and
    /// the thread that writes the entry.
    #[test]
    fn doubted_bytes_are_never_served_again() {
        const LEN: usize = 64;
        let dir = tempfile::tempdir().unwrap();
        for spec in [CacheSpec::dir(dir.path().join("cache"), 1 << 30), CacheSpec::ram(1 << 30)] {
            let cache = Cache::open(&spec, 0, 1).unwrap();
            let recorder = CacheRecorder::default();
            let permits = Arc::new(tokio::sync::Semaphore::new(1));
            let permit = Arc::new(permits.try_acquire_owned().unwrap());
            let next = |_, _| NextUse { epoch: 1, position: 0 };
            for object in 0..3000 {
                let key = Key { object, start: 0, end: LEN as u64 };
                let keep = Keep { key, coming: Use { now: 0, next: next(0, 0) }, record: object as u64 };
                let bad = Bytes::from_static(&[b'x'; LEN]);
                let writer = cache.keep(keep, &bad, &permit, u64::MAX, &recorder).expect("nobody writes");
                let doubt = |delay: usize| {
                    (0..delay).for_each(|_| std::hint::spin_loop());
                    let doubted = cache.doubt(&keep, &recorder);
                    let looked = cache.look_again(&keep);
                    let mut buffer = BytesMut::new();
                    let read = cache.read(&keep, &mut buffer, &recorder);
                    (doubted, looked, read)
                };
                let answers = thread::scope(|scope| {
                    scope.spawn(|| writer.run(&next));
                    // From before the entry is written to after it.
                    let others = [0, 7].map(|more| scope.spawn(move || doubt((object as usize % 400) * 16 + more)));
                    others.map(|other| other.join().unwrap())
                });
                for (doubted, looked, read) in answers {
                    assert_ne!(doubted, Doubted::No, "{spec}, {object}");
                    assert!(matches!(looked, Looked::Miss(Some(_))) && !read, "{spec}, {object}: {looked:?}");
                }
            }
            assert_eq!(cache.used(), 0, "{spec}");
        }
    }
}
