//! A cache: which reads it has, which it keeps, and which threads write them.

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

/// A read that may be kept.
#[derive(Clone, Copy, Debug)]
pub struct Keep {
    pub(super) key: Key,
    pub(super) coming: Use,
    pub(super) record: u64,
}

/// What the cache has for a read.
#[derive(Debug)]
pub enum Looked {
    /// Bytes in memory, available now.
    Memory(Bytes),
    /// An entry on the disk, for [`Cache::read`].
    File(Keep),
    /// Nothing. The read may be kept once its bytes have arrived.
    Miss(Option<Keep>),
}

/// The result of [`Cache::doubt`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubted {
    /// The entry was dropped now.
    Now,
    /// It was dropped before. The cache's present entry is newer; the bytes that could not be decoded may come from the
    /// dropped one.
    Before,
    /// There is no such entry.
    No,
}

/// A cache, shared by the loaders of a process.
#[derive(Debug)]
pub struct Cache {
    tier: Tier,
    ranking: Mutex<Ranking>,
    /// Held by the thread that makes room: two threads that choose the same entries would each take what the other has
    /// freed.
    room: Mutex<()>,
    queue: Mutex<Queue>,
    /// Reads from the store whose bytes will be kept. Other threads that need the same bytes wait for them.
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

/// Entries waiting to be written.
#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// Waiting, or being written.
    pending: HashMap<Key, Bytes>,
    /// Being written, and to be removed afterwards. Until then no reader gets the written entry.
    unwanted: HashSet<Key>,
    bytes: u64,
    writers: usize,
}

#[derive(Debug)]
struct Job {
    keep: Keep,
    bytes: Bytes,
    recorder: CacheRecorder,
    /// The part of the window of encoded bytes that its bytes occupy.
    _permit: Arc<OwnedSemaphorePermit>,
}

/// A read from the store in progress. Dropping it wakes the threads that wait for its bytes: the cache has them, or
/// they will never come.
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

/// The right of one thread to write the waiting entries. If it is dropped unused, for example with a stream, the next
/// caller gets it.
#[derive(Debug)]
pub struct Writer {
    cache: Arc<Cache>,
    done: bool,
}

impl Writer {
    /// Writes until no entry is waiting. Blocks this thread.
    pub fn run(mut self, renew: Renew<'_>) {
        loop {
            let job = {
                let mut queue = lock(&self.cache.queue);
                let Some(job) = queue.jobs.pop_front() else {
                    // Under this lock, so that any entry queued from here on gets a new writer.
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
                // Only now: the mark must stay as long as the entry exists, because readers rely on it.
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

/// The most entries that are doubted. With more, the cache is not the cause.
const DOUBTS: usize = 1 << 16;

/// The subfolder that is used in the user's folder.
const FOLDER: &str = "infeed-cache-v1";

/// More threads would wait for the same disk.
const WRITERS: usize = 2;

static FOLDERS: LazyLock<Mutex<HashMap<PathBuf, Weak<Cache>>>> = LazyLock::new(Mutex::default);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each critical section leaves the state consistent, even if a thread panics elsewhere.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cache {
    /// Opens a cache. Loaders of one process that name the same folder share it. This process is `local_rank` of
    /// `local_world` on its machine; each of these manages its part of the entries that exist already.
    ///
    /// # Errors
    /// `Config` for a size of 0, for a path that is not a folder, and for a folder that is open with another size.
    pub fn open(spec: &CacheSpec, local_rank: u32, local_world: u32) -> Result<Arc<Self>> {
        if spec.bytes == 0 {
            return Err(Error::config("the cache's size is 0").with_hint("omit the cache, or give it a size above 0"));
        }
        let Some(dir) = &spec.dir else {
            let tier = Tier::Ram { size: spec.bytes, used: 0.into(), entries: Mutex::default() };
            return Ok(Arc::new(Self::new(tier, Ranking::new(1))));
        };
        let mut folders = lock(&FOLDERS);
        folders.retain(|_, cache| cache.strong_count() > 0);
        // Created before it is canonicalized: only an existing folder has one canonical name.
        let _ = std::fs::create_dir_all(dir);
        let name = dir.canonicalize().unwrap_or_else(|_| dir.clone());
        if let Some((cache, size)) =
            folders.get(&name).and_then(Weak::upgrade).map(|cache| (Arc::clone(&cache), cache.asked()))
        {
            if size.is_some_and(|size| size != spec.bytes) {
                return Err(Error::config("another loader of this process uses the cache's folder with another size")
                    .at_object(name.display().to_string())
                    .with_hint("give both the same size"));
            }
            return Ok(cache);
        }
        let disk = Disk::open(dir, FOLDER, spec.bytes)?;
        // An entry comes up in this process about once in `local_world` epochs.
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

    /// Registers a rank that uses the cache. It reads for all ranks that share the cache.
    pub fn join(&self, rank: u32, world: u32) -> Member {
        self.ranks.join(rank, world)
    }

    /// The size with which a folder was opened.
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

    /// Whether [`look`](Self::look) makes file system calls, to find what other processes wrote.
    pub const fn asks_files(&self) -> bool {
        matches!(self.tier, Tier::Disk(_))
    }

    /// Looks up an extent that `record` reads. Costs at most one look-up of a file name.
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

    /// Records when an entry is needed again, now that its bytes were read. Not earlier: otherwise a thread that makes
    /// room would remove it as one that is not needed for a long time.
    fn used_by(&self, Keep { key, coming, record }: &Keep) {
        let mut ranking = lock(&self.ranking);
        if ranking.contains(key) {
            ranking.put(*key, *coming, *record);
        }
    }

    /// Looks up an extent that was looked up before, without accessing the disk: entries that this process wrote since
    /// then are known. An entry that another process wrote since then is read from the store once more, and kept once.
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
            // Other processes write entries too.
            Tier::Disk(disk) if lock(&self.ranking).contains(&key) || asks && disk.holds(&key) => Looked::File(keep),
            Tier::Disk(_) => Looked::Miss(Some(keep)),
        }
    }

    /// Starts a read from the store that may be kept. An error means that another read of the same bytes is in
    /// progress: wait for it, then call [`look`](Self::look) again. Use this only for reads that need nothing but the
    /// store to finish.
    pub fn begin(self: &Arc<Self>, keep: &Keep) -> Result<Flight, OwnedNotified> {
        let mut reading = lock(&self.reading);
        if let Some(other) = reading.get(&keep.key) {
            // Created under the lock, so that the notification can't be missed.
            return Err(Arc::clone(other).notified_owned());
        }
        reading.insert(keep.key, Arc::default());
        Ok(Flight { cache: Arc::clone(self), key: keep.key })
    }

    /// Reads an entry that [`look`](Self::look) found. `false`: it is missing or damaged (then it is removed), and must
    /// be read from the store. Blocks this thread.
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
                    tracing::warn!(entry = %disk.path(key).display(), "removed a damaged cache entry; reading again");
                }
                false
            }
        }
    }

    /// The identity under which a read of an extent is kept; `None` if it can't be kept.
    pub fn keep_of(extent: &Extent, coming: Use, record: u64) -> Option<Keep> {
        Key::of(extent).map(|key| Keep { key, coming, record })
    }

    /// Drops an entry that could not be decoded: even with the right checksum, it may have come damaged from the store.
    pub fn doubt(&self, keep: &Keep, recorder: &CacheRecorder) -> Doubted {
        let key = &keep.key;
        // Held to the end: another thread that doubts the same entry finds it missing, and must see the reason.
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

    /// Takes bytes that came from the store, unless `most` bytes are waiting to be written already. Returns a writer if
    /// one more thread should write.
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
        // Bytes that would be refused later are not queued.
        let fits = || {
            let over = (self.used() + key.disk_bytes()).saturating_sub(self.size());
            over == 0 || lock(&self.ranking).victims(over.min(key.disk_bytes()), coming).is_some()
        };
        let mut queue = lock(&self.queue);
        if queue.pending.contains_key(&key) || lock(&self.ranking).contains(&key) {
            return None;
        }
        // The entry that it replaces is still to be removed, and this one would be removed with it.
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

    /// Returns whether the entry existed.
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
                // A copy, because a slice would keep the whole larger read in memory.
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

    /// Reserves space. If none is free, removes entries that are worth less.
    fn reserve(&self, key: &Key, coming: Use, recorder: &CacheRecorder) -> bool {
        let _alone = lock(&self.room);
        // Several attempts, because another process may take the space that was freed here.
        for _ in 0..3 {
            if self.try_reserve(key.disk_bytes()) {
                return true;
            }
            let over = (self.used() + key.disk_bytes()).saturating_sub(self.size());
            let Some(victims) = lock(&self.ranking).victims(over.min(key.disk_bytes()), coming) else { return false };
            for victim in victims {
                // The entry may have been removed in the meantime.
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

    /// Every thread that got bytes that do not decode reads others afterwards, whatever the order of their doubts and
    /// of the thread that writes the entry.
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
                    // From before the entry is written until after it.
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
