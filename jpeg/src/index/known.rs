//! The index: what is known in memory, and what a file holds beside it.

use std::{
    collections::HashMap,
    fmt,
    fs::{File, TryLockError},
    hash::{BuildHasherDefault, Hasher},
    io::{self, BufWriter, Write},
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use xxhash_rust::xxh3::xxh3_128;

use super::{
    lengths::Lengths,
    point::{COARSEST, Point, Points, Spacing, head, pack, thin, unpack},
    stored::{Record, Stored, Writer},
};

/// Units (8 to 32 pixels wide) from point to point while memory is free, as a power of two. Every 8th instead of every 16th
/// saves 2 % of a crop's decoding (example `large_index`).
const FINEST: u8 = 3;
/// What an entry takes beside its points and lengths: its key and pointers in a table that is two thirds full, and what the
/// allocator adds.
const OVERHEAD: u64 = 96;
/// Parts of the table, each under a lock.
const SHARDS: usize = 256;

/// What earlier decodes learned of files, so that later ones begin where a window begins.
///
/// A JPEG can only be read from its first byte on: what lies above and beside a window is skipped, which takes half the
/// time of decoding it. While a file is decoded, the index notes where in the data each row of blocks begins, and every
/// 8th unit in it: 4 to 6 bytes a point, 700 bytes to 2 KB for a photograph of 500x375 pixels. When the same file comes
/// again, decoding starts at the point before the window and goes from row to row without what lies between.
///
/// Of images that are decoded at a quarter or an eighth of their size, it also notes how long each block is (a byte a
/// block, about a ninth of a file of quality 90; they may take half of the budget): of each block only the first
/// coefficients are read then, whatever follows them.
///
/// Pixels are the same, bit for bit, with or without it. A file is known by a hash of 128 bits of all its bytes, whatever
/// its name; one index may serve any number of threads. Files with restart markers do not need it; of progressive ones it notes
/// where rows begin in each of their scans (8 bytes for each 400 blocks of a scan). What somebody falsified may give other
/// pixels, never a panic: read your own.
///
/// Memory: at most the budget. When it is used up, points become half as many, of a part of the files at a time, until there
/// is one a row (150 to 300 bytes for such a photograph, and 100 for the entry); after that nothing is added.
/// What [`save`](Self::save) wrote and [`open`](Self::open) opened takes 8 bytes of memory for each 64 files. It is read where
/// it lies, in two reads of the file for each image, and the system keeps what is read once for all processes of a machine.
/// Cloning gives another handle.
///
/// ```
/// # fn f() -> std::io::Result<()> {
/// use infeed_jpeg::{Decoder, Index};
///
/// // Begin with what an earlier run learned, if there was one.
/// let index = Index::open("photographs.index", 64 << 20)?;
/// let decoder = Decoder::new().index(index.clone());
/// // … decode windows; then keep what was learned.
/// index.save("photographs.index")?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Index(Arc<Shared>);

struct Shared {
    budget: u64,
    used: AtomicU64,
    /// By the highest bits of the key. A lock is held for a look or an insertion, once an image: of 64 threads one
    /// finds it taken about every millionth time.
    shards: [Mutex<Shard>; SHARDS],
    /// How often a shard was thinned out: one after another, and then the first one again.
    thinned: AtomicUsize,
    stored: Option<Stored>,
}

struct Shard {
    entries: HashMap<u128, Known, BuildHasherDefault<LowBits>>,
    /// The spacing of what is added, as a power of two.
    log2: u8,
}

/// What memory holds of a file.
#[derive(Default)]
struct Known {
    /// Packed; empty when there are none.
    points: Box<[u8]>,
    lengths: Option<Arc<Lengths>>,
}

/// What is known of a file, beside its points.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// How its points lie, or would lie if there were some, as a power of two.
    pub(crate) log2: u8,
    pub(crate) lengths: Option<Arc<Lengths>>,
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { budget, stored, .. } = &*self.0;
        let stored = stored.as_ref().map_or(0, Stored::len);
        let bytes = self.bytes();
        f.debug_struct("Index")
            .field("budget", budget)
            .field("bytes", &bytes)
            .field("stored", &stored)
            .finish_non_exhaustive()
    }
}

/// Keys are hashes already.
#[derive(Default)]
struct LowBits(u64);

impl Hasher for LowBits {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().rev().fold(self.0, |sum, byte| sum << 8 | u64::from(*byte));
    }

    fn write_u128(&mut self, key: u128) {
        self.0 = key as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Default for Shard {
    fn default() -> Self {
        Self { entries: HashMap::default(), log2: FINEST }
    }
}

impl Shard {
    /// Thins out what has more points than that; gives the bytes that are free now.
    fn thin(&mut self, log2: u8) -> u64 {
        self.log2 = log2;
        let (mut points, mut freed) = (Vec::new(), 0);
        for known in self.entries.values_mut() {
            let Some(mut spacing) = unpack(&known.points, &mut points) else { continue };
            // One a row is left to each.
            if spacing.log2 >= log2 || spacing.a_row <= 1 {
                continue;
            }
            while spacing.log2 < log2 {
                spacing = thin(&mut points, spacing);
            }
            let packed = pack(&points, spacing);
            freed += known.points.len() as u64 - packed.len() as u64;
            known.points = packed;
        }
        freed
    }
}

impl Index {
    /// An empty index that takes at most `budget` bytes of memory.
    #[must_use]
    pub fn new(budget: u64) -> Self {
        Self::with(budget, None)
    }

    fn with(budget: u64, stored: Option<Stored>) -> Self {
        let shards = std::array::from_fn(|_| Mutex::default());
        Self(Arc::new(Shared { budget, used: AtomicU64::new(0), shards, thinned: AtomicUsize::new(0), stored }))
    }

    /// What [`save`](Self::save) wrote to `path`, or an empty index if there is no such file. What is learned beside it
    /// takes at most `budget` bytes of memory.
    ///
    /// The file stays open and is read as images come: do not write to it but by `save`, which puts another in its place.
    /// What is damaged in it later is not known any more, as if it had never been.
    ///
    /// # Errors
    /// `InvalidData` or `UnexpectedEof` when it is no index, one of another version, or was cut short; those of reading it.
    pub fn open(path: impl AsRef<Path>, budget: u64) -> io::Result<Self> {
        Ok(Self::with(budget, stored(path.as_ref())?))
    }

    /// How many files are known. Looks at every one that was learned beside a stored index: some microseconds each.
    #[must_use]
    pub fn len(&self) -> usize {
        let Shared { stored, shards, .. } = &*self.0;
        let Some(stored) = stored else { return shards.iter().map(|shard| lock(shard).entries.len()).sum() };
        let keys = shards.iter().flat_map(|shard| lock(shard).entries.keys().copied().collect::<Vec<_>>());
        stored.len() as usize + keys.filter(|key| stored.find(*key).is_none()).count()
    }

    /// Whether no file is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.stored.as_ref().is_none_or(|stored| stored.len() == 0) && self.is_unlearned()
    }

    /// Whether nothing was learned beside what is stored.
    fn is_unlearned(&self) -> bool {
        self.0.shards.iter().all(|shard| lock(shard).entries.is_empty())
    }

    /// Bytes of memory in use.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.used.load(Ordering::Relaxed)
    }

    /// By what a file is known: 10 µs for 100 KB.
    pub(crate) fn key(file: &[u8]) -> u128 {
        xxh3_128(file)
    }

    fn shard(&self, key: u128) -> MutexGuard<'_, Shard> {
        lock(&self.0.shards[(key >> 120) as usize])
    }

    /// What is known of a file whose rows have so many units: its points take the place of those in `points`. Lengths are
    /// looked for only if they are wanted.
    pub(crate) fn find(&self, key: u128, units: usize, wants_lengths: bool, points: &mut Points) -> Found {
        let (mut spacing, mut lengths, log2) = {
            let shard = self.shard(key);
            let known = shard.entries.get(&key);
            let packed = known.map_or(&[][..], |known| &known.points);
            let spacing = points.read(units, |bytes| {
                bytes.extend_from_slice(packed);
                Some(())
            });
            (spacing, known.and_then(|known| known.lengths.clone()).filter(|_| wants_lengths), shard.log2)
        };
        let wants_lengths = wants_lengths && lengths.is_none();
        let stored = self.0.stored.as_ref().filter(|_| spacing.is_none() || wants_lengths);
        if let Some((stored, record)) = stored.and_then(|stored| Some((stored, stored.find(key)?))) {
            if spacing.is_none() {
                spacing = points.read(units, |bytes| stored.read_points(&record, bytes));
            }
            if wants_lengths {
                let mut bytes = Vec::new();
                lengths = stored.read_lengths(&record, &mut bytes).map(|()| self.take_lengths(key, &bytes));
            }
        }
        Found { log2: spacing.map_or(log2, |spacing| spacing.log2), lengths }
    }

    /// Lengths that were stored. Where many are lacking they are kept, so that what is learned is not lost.
    fn take_lengths(&self, key: u128, stored: &[u8]) -> Arc<Lengths> {
        let lacking = stored.iter().filter(|length| **length == 0).count();
        let kept = if lacking > stored.len() / 50 { self.lengths(key, stored.len()) } else { None };
        let lengths = kept.unwrap_or_else(|| Arc::new(Lengths::new(stored.len())));
        lengths.fill(stored);
        lengths
    }

    /// Points and lengths that mean nothing.
    #[cfg(test)]
    pub(crate) fn lie(
        &self,
        file: &[u8],
        (count, spacing): (usize, Spacing),
        blocks: usize,
        mut number: impl FnMut() -> u64,
    ) {
        let key = Self::key(file);
        let mut points: Vec<_> = (0..count).map(|_| Point::any(number())).collect();
        self.put(key, &mut points, spacing);
        if let Some(lengths) = self.lengths(key, blocks) {
            lengths.fill(&(0..blocks).map(|_| number() as u8).collect::<Vec<_>>());
        }
    }

    /// Takes bytes of the budget, up to `most` of it.
    fn take(&self, bytes: u64, most: u64) -> bool {
        // Taken first, given back when it was too much: the bound holds whatever other threads add.
        let taken = self.0.used.fetch_add(bytes, Ordering::Relaxed) + bytes <= most;
        if !taken {
            self.0.used.fetch_sub(bytes, Ordering::Relaxed);
        }
        taken
    }

    /// Thins out the shard whose turn it is; `false` when there is nothing left to be thinned.
    fn make_room(&self) -> bool {
        let Shared { thinned, shards, used, .. } = &*self.0;
        loop {
            let turn = thinned.fetch_add(1, Ordering::Relaxed);
            let log2 = FINEST as usize + 1 + turn / SHARDS;
            if log2 > usize::from(COARSEST) {
                // Never further than that, however often it is asked for.
                thinned.fetch_sub(1, Ordering::Relaxed);
                return false;
            }
            let freed = lock(&shards[turn % SHARDS]).thin(log2 as u8);
            used.fetch_sub(freed, Ordering::Relaxed);
            if freed > 0 {
                return true;
            }
        }
    }

    /// Keeps what is known of a file, if it is more than before. `points` may be fewer afterwards.
    pub(crate) fn put(&self, key: u128, points: &mut Vec<Point>, mut spacing: Spacing) {
        loop {
            let mut shard = self.shard(key);
            while spacing.log2 < shard.log2 {
                spacing = thin(points, spacing);
            }
            let known = shard.entries.get(&key);
            if known.is_some_and(|known| reach(&known.points) >= spacing.reach(points.len())) {
                return;
            }
            let packed = pack(points, spacing);
            let after = OVERHEAD + packed.len() as u64;
            let before = known.map_or(0, |known| OVERHEAD + known.points.len() as u64);
            // More rows of fewer points can be less than before.
            if after <= before {
                self.0.used.fetch_sub(before - after, Ordering::Relaxed);
            } else if !self.take(after - before, self.0.budget) {
                // One shard at a time: no lock is held while another is taken.
                drop(shard);
                if self.make_room() {
                    continue;
                }
                return;
            }
            shard.entries.entry(key).or_default().points = packed;
            return;
        }
    }

    /// Where the lengths of a file's blocks are noted: there already, or new if they fit half of the budget.
    pub(crate) fn lengths(&self, key: u128, blocks: usize) -> Option<Arc<Lengths>> {
        let mut shard = self.shard(key);
        let known = shard.entries.get(&key);
        if let Some(lengths) = known.and_then(|known| known.lengths.clone()) {
            return Some(lengths).filter(|lengths| lengths.from(0).len() == blocks);
        }
        let overhead = if known.is_some() { 0 } else { OVERHEAD };
        if !self.take(overhead + blocks as u64, self.0.budget / 2) {
            return None;
        }
        let lengths = Arc::new(Lengths::new(blocks));
        shard.entries.entry(key).or_default().lengths = Some(Arc::clone(&lengths));
        Some(lengths)
    }

    /// Leaves all that is known in a file, whole or not at all: it is written beside `path` and then takes its name. What the
    /// file held before stays known, also what others have put there since this index was opened: processes that learn of
    /// parts of the same files may all save to one. Nothing is written when there is nothing to add.
    ///
    /// Two that save at the same moment wait for each other, a minute at most, where the file system has locks of folders (those of
    /// Linux and macOS do; without them, what one of the two adds may be lost, and nothing is damaged). Takes the time of writing the file anew, and 32 bytes
    /// of memory for each file that is known.
    ///
    /// # Errors
    /// `InvalidData` or `UnexpectedEof` when there is a file that is no index; those of reading and writing.
    pub fn save(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // Held until the end.
        let _turn = wait_for_turn(folder);
        let current = stored(path)?;
        let own = self.0.stored.as_ref();
        let own = own.filter(|own| current.as_ref().is_none_or(|current| !current.is(own)));
        if current.is_some() && own.is_none() && self.is_unlearned() {
            return Ok(());
        }
        let mut beside = path.as_os_str().to_owned();
        // Also beside those of other machines, whose processes have the same numbers.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.subsec_nanos());
        beside.push(format!(".{}-{now:x}.part", std::process::id()));
        let written = File::create_new(&beside).and_then(|file| {
            let file = self.write([own, current.as_ref()], BufWriter::with_capacity(1 << 20, file))?;
            file.into_inner()?.sync_all()?;
            std::fs::rename(&beside, path)
        });
        written.inspect_err(|_| {
            let _ = std::fs::remove_file(&beside);
        })
    }

    /// Writes what memory and files know, of each of them what is known best.
    fn write<W: Write>(&self, stored: [Option<&Stored>; 2], to: W) -> io::Result<W> {
        let mut to = Writer::new(to)?;
        let mut stored: Vec<_> =
            stored.into_iter().flatten().map(|stored| (stored, stored.records().peekable())).collect();
        let mut bytes = Vec::new();
        for (n, shard) in self.0.shards.iter().enumerate() {
            // Writing takes time: the lock is not held for it.
            let mut entries: Vec<_> = lock(shard).entries.iter().map(|(key, known)| (*key, Best::of(known))).collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            let mut entries = entries.into_iter().peekable();
            loop {
                let heads = stored.iter_mut().filter_map(|(_, records)| Some(records.peek()?.key));
                let heads = heads.chain(entries.peek().map(|(key, _)| *key));
                let Some(key) = heads.min().filter(|key| (key >> 120) as usize == n) else { break };
                let mut best = entries.next_if(|(next, _)| *next == key).map(|(_, best)| best).unwrap_or_default();
                for (from, records) in &mut stored {
                    if let Some(record) = records.next_if(|record| record.key == key) {
                        best.take(from, &record, &mut bytes);
                    }
                }
                to.put(key, &best.points, &best.lengths)?;
            }
        }
        to.end()
    }
}

/// What is known of a file, of several places.
#[derive(Default)]
struct Best {
    points: Vec<u8>,
    lengths: Vec<u8>,
}

impl Best {
    fn of(known: &Known) -> Self {
        let lengths = known.lengths.as_ref().map(|lengths| lengths.to_bytes());
        Self { points: known.points.to_vec(), lengths: lengths.unwrap_or_default() }
    }

    fn take(&mut self, from: &Stored, record: &Record, bytes: &mut Vec<u8>) {
        if from.read_points(record, bytes).is_some() && reach(bytes) > reach(&self.points) {
            self.points.clone_from(bytes);
        }
        if self.lengths.is_empty() && from.read_lengths(record, bytes).is_some() {
            self.lengths.clone_from(bytes);
        }
    }
}

/// Rows of units that packed points reach, and how many points there are.
fn reach(packed: &[u8]) -> (usize, usize) {
    head(packed).map_or((0, 0), |(spacing, count)| spacing.reach(count))
}

/// Waits while others save to this folder: the handle holds a lock, which the system gives up when it closes. `None` where
/// there are no such locks, and after a minute: whoever holds it so long does something else.
fn wait_for_turn(folder: &Path) -> Option<File> {
    const PAUSE: Duration = Duration::from_millis(50);
    let handle = File::open(folder).ok()?;
    for _ in 0..Duration::from_secs(60).as_millis() / PAUSE.as_millis() {
        match handle.try_lock() {
            Ok(()) => return Some(handle),
            Err(TryLockError::WouldBlock) => thread::sleep(PAUSE),
            Err(TryLockError::Error(_)) => return None,
        }
    }
    None
}

/// The file at `path`, if there is one.
fn stored(path: &Path) -> io::Result<Option<Stored>> {
    match File::open(path) {
        Ok(file) => Stored::open(file).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    // Entries are whole whatever a panicking thread did.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(count: usize, seed: i32) -> Vec<Point> {
        (0..count).map(|n| Point::new(100 * n, n & 7, &[seed, -seed, 2047, 9]).unwrap()).collect()
    }

    /// Rows of 80 units: ten points each.
    const ROWS: usize = 80;

    fn put(index: &Index, key: u128, count: usize, seed: i32) {
        index.put(key, &mut points(count, seed), Spacing::new(FINEST, ROWS));
    }

    fn find(index: &Index, key: u128) -> Option<(u8, Vec<Point>)> {
        let mut points = Points::default();
        let found = index.find(key, ROWS, false, &mut points);
        (points.len() > 0).then(|| (found.log2, points.iter().collect()))
    }

    fn noted(index: &Index, key: u128) -> Option<Vec<u8>> {
        index.find(key, ROWS, true, &mut Points::default()).lengths.map(|lengths| lengths.to_bytes())
    }

    #[test]
    fn more_points_replace_fewer() {
        let index = Index::new(1000);
        [5, 3, 20].iter().for_each(|&count| put(&index, 1, count, 1));
        let bytes = OVERHEAD + pack(&points(20, 1), Spacing::new(FINEST, ROWS)).len() as u64;
        assert_eq!((find(&index, 1), index.bytes()), (Some((FINEST, points(20, 1))), bytes));
        // Lengths take half of it at most, and are there once.
        assert!(index.lengths(1, 500).is_none());
        let lengths = index.lengths(1, 100).unwrap();
        lengths.from(7)[0].store(9, Ordering::Relaxed);
        assert_eq!((noted(&index, 1).unwrap()[7], index.bytes()), (9, bytes + 100));
        assert!(index.lengths(1, 101).is_none() && index.lengths(2, 300).is_none() && lengths.from(101).is_empty());
    }

    #[test]
    fn when_memory_is_full_points_become_sparse_and_the_bound_holds() {
        // There is room for a little less than half of all points.
        const FILES: u128 = 6000;
        let all = points(241, 3);
        let budget = FILES as u64 * (OVERHEAD + pack(&all, Spacing::new(FINEST, ROWS)).len() as u64) / 2;
        let index = Index::new(budget);
        let key = |n: u128| xxh3_128(&n.to_le_bytes());
        for n in 0..FILES {
            put(&index, key(n), 241, 3);
            assert!(index.bytes() <= budget, "{} of {budget}", index.bytes());
        }
        // Of each file that is known there are the points of its spacing, none else, and rows begin all the way down.
        let mut spacings = [0; 8];
        for n in 0..FILES {
            let Some((log2, known)) = find(&index, key(n)) else { continue };
            spacings[usize::from(log2)] += 1;
            let step = 1 << (log2 - FINEST);
            let expected = all.iter().enumerate().filter(|(at, _)| at % 10 % step == 0).map(|(_, point)| *point);
            assert_eq!(known, expected.collect::<Vec<_>>());
        }
        assert!(
            spacings.iter().sum::<u32>() == FILES as u32 && spacings[4..6].iter().all(|files| *files > 0),
            "{spacings:?}"
        );
        let taken = |index: &Index| {
            let shards = index.0.shards.iter().map(lock);
            shards
                .map(|shard| shard.entries.values().map(|k| OVERHEAD + k.points.len() as u64).sum::<u64>())
                .sum::<u64>()
        };
        assert_eq!(taken(&index), index.bytes());
        // More of them than have room with one point a row: the bound holds, and what is there stays.
        for n in FILES..5 * FILES {
            put(&index, key(n), 241, 3);
        }
        assert!(index.bytes() <= budget && index.bytes() > budget * 9 / 10, "{} of {budget}", index.bytes());
        assert!(taken(&index) == index.bytes() && (0..FILES).all(|n| find(&index, key(n)).is_some()));
        assert!(find(&index, key(0)).is_some_and(|(log2, _)| log2 == COARSEST));
    }

    #[test]
    fn what_was_saved_is_known_again_and_added_to_what_others_saved() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index");
        let key = |n: u128| xxh3_128(&n.to_le_bytes());
        assert!(Index::open(&path, 1 << 20).unwrap().is_empty());
        let index = Index::new(1 << 20);
        (0..500).for_each(|n| put(&index, key(n), n as usize % 29 + 1, n as i32));
        let lengths: Vec<u8> = (0..70_000_u32).map(|n| n as u8 | 1).collect();
        for n in [7, 1000] {
            index.lengths(key(n), lengths.len()).unwrap().fill(&lengths);
        }
        index.save(&path).unwrap();

        // Two others begin with it. Nothing of it is in their memory.
        let [one, two] = [(); 2].map(|()| Index::open(&path, 1 << 20).unwrap());
        for again in [&one, &two] {
            assert_eq!((again.len(), again.bytes(), again.is_empty()), (501, 0, false));
            for n in 0..500 {
                assert_eq!(find(again, key(n)), Some((FINEST, points(n as usize % 29 + 1, n as i32))), "{n}");
            }
            assert_eq!((noted(again, key(1000)), noted(again, key(7))), (Some(lengths.clone()), Some(lengths.clone())));
            assert!(find(again, key(500)).is_none() && noted(again, key(8)).is_none());
        }
        // Both learn more, each something else, and something both.
        (600..700).for_each(|n| put(&one, key(n), 10, n as i32));
        (650..800).for_each(|n| put(&two, key(n), if n < 700 { 40 } else { 10 }, n as i32));
        put(&one, key(3), 290, 3);
        one.save(&path).unwrap();
        two.save(&path).unwrap();
        assert_eq!((one.len(), two.len()), (601, 651), "neither knows of the other");
        let all = Index::open(&path, 1 << 20).unwrap();
        assert_eq!(
            (all.len(), find(&all, key(3)).unwrap().1.len(), find(&all, key(4)).unwrap().1.len()),
            (701, 290, 5)
        );
        assert_eq!([600, 660, 750].map(|n| find(&all, key(n)).unwrap().1.len()), [10, 40, 10]);
        assert_eq!(noted(&all, key(1000)), Some(lengths));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no parts are left");

        // Nothing to add, nothing written.
        let before = std::fs::read(&path).unwrap();
        let at = std::fs::metadata(&path).unwrap().modified().unwrap();
        all.save(&path).unwrap();
        assert_eq!(
            (std::fs::read(&path).unwrap(), std::fs::metadata(&path).unwrap().modified().unwrap()),
            (before, at)
        );
        // Somewhere else all of it is.
        let other = folder.path().join("other");
        all.save(&other).unwrap();
        assert_eq!(Index::open(&other, 0).unwrap().len(), 701);
    }

    #[test]
    fn of_those_who_save_at_the_same_moment_nobody_loses_anything() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index");
        let key = |n: u128| xxh3_128(&n.to_le_bytes());
        thread::scope(|scope| {
            for part in 0..6 {
                let path = &path;
                scope.spawn(move || {
                    let index = Index::open(path, 1 << 20).unwrap();
                    for n in 0..5 {
                        put(&index, key(part * 10 + n), 7, 1);
                        index.save(path).unwrap();
                    }
                });
            }
        });
        let all = Index::open(&path, 0).unwrap();
        assert_eq!((all.len(), std::fs::read_dir(folder.path()).unwrap().count()), (30, 1));
    }

    #[test]
    fn lengths_that_lack_much_are_learned_further() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index");
        let index = Index::new(1 << 20);
        index.lengths(1, 1000).unwrap().fill(&[5; 300]);
        index.save(&path).unwrap();
        let again = Index::open(&path, 1 << 20).unwrap();
        assert_eq!(noted(&again, 1).unwrap()[..301], [[5; 300].as_slice(), &[0]].concat());
        again.find(1, ROWS, true, &mut Points::default()).lengths.unwrap().from(300)[0].store(6, Ordering::Relaxed);
        assert_eq!(noted(&again, 1).unwrap()[299..302], [5, 6, 0]);
        again.save(&path).unwrap();
        assert_eq!(noted(&Index::open(&path, 1 << 20).unwrap(), 1).unwrap()[299..302], [5, 6, 0]);
    }

    #[test]
    fn a_damaged_file_is_refused_or_what_is_damaged_is_not_known() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index");
        let index = Index::new(1 << 20);
        let key = |n: u128| xxh3_128(&n.to_le_bytes());
        (0..70).for_each(|n| put(&index, key(n), n as usize % 9 + 1, n as i32));
        index.lengths(key(5), 300).unwrap().fill(&[3; 300]);
        index.save(&path).unwrap();
        let whole = std::fs::read(&path).unwrap();
        let mut refused = 0;
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            std::fs::write(&path, &bytes).unwrap();
            let Ok(index) = Index::open(&path, 1 << 20) else {
                refused += 1;
                continue;
            };
            let lost = (0..70).filter(|n| {
                let found = find(&index, key(*n));
                assert!(
                    found.iter().all(|(log2, all)| (*log2, all) == (FINEST, &points(*n as usize % 9 + 1, *n as i32)))
                );
                found.is_none()
            });
            // One file, or a block of the table.
            let (lost, lengths) = (lost.count(), noted(&index, key(5)));
            assert!(lengths.is_none() || lengths == Some(vec![3; 300]));
            assert!(lost <= 64 && (lost > 0 || lengths.is_none()), "byte {at}: {lost}");
            // Writing it anew leaves it out.
            if at % 97 == 0 {
                put(&index, 1, 3, 3);
                index.save(folder.path().join("again")).unwrap();
                let again = Index::open(folder.path().join("again"), 1 << 20).unwrap();
                assert!((0..70).all(|n| find(&again, key(n)) == find(&index, key(n))), "byte {at}");
                std::fs::remove_file(folder.path().join("again")).unwrap();
            }
        }
        assert_eq!(refused, 16 + 2 * 8 + 48, "the beginning, fences, the end");
        for cut in (0..whole.len()).step_by(7) {
            std::fs::write(&path, &whole[..cut]).unwrap();
            assert!(Index::open(&path, 1 << 20).is_err(), "cut at {cut}");
        }
        // Not a word of it is lost to something else under its name.
        std::fs::write(&path, "my notes, longer than any magic number").unwrap();
        assert_eq!(index.save(&path).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(std::fs::read(&path).unwrap(), b"my notes, longer than any magic number");
    }
}
