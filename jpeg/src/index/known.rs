//! The index: entries in memory, and entries in a file.

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

/// Distance of points while memory is free, in units (8 to 32 pixels wide), as a power of two. Every 8th instead of
/// every 16th unit saves 2 % of a crop's decode time (example `large_index`).
const FINEST: u8 = 3;
/// Bytes of an entry in addition to its points and lengths: its key and pointers in a table that is two thirds full,
/// and the allocator's overhead.
const OVERHEAD: u64 = 96;
/// Parts of the table, each with its own lock.
const SHARDS: usize = 256;

/// An index of files that were decoded before. With it, decoding starts where a window begins.
///
/// A JPEG can only be decoded from its first byte: skipping what lies above and beside a window takes half of the
/// decode time. While a file is decoded, the index records where in the data each row of blocks begins, and every 8th
/// unit in the row. A point takes 4 to 6 bytes; a photograph of 500x375 pixels takes 700 bytes to 2 KB. When the same
/// file comes again, decoding starts at the point before the window and jumps from row to row.
///
/// For images that are decoded at a quarter or an eighth of their size, the index also records the length of each
/// block. Only the first coefficients of each block are then read. The lengths take one byte per block (about a ninth
/// of a file of quality 90), and at most half of the budget.
///
/// Pixels are the same, bit for bit, with and without the index. A file is identified by a 128-bit hash of all its
/// bytes, not by its name. One index may serve any number of threads. Files with restart markers do not need it. For
/// progressive files it records where rows begin in each scan (8 bytes per 400 blocks of a scan). A forged index file
/// may give wrong pixels, but never a panic: use only files from a source that you trust.
///
/// Memory: at most the budget. When the budget is used up, the index drops every other point of part of the files, down
/// to one point per row (for such a photograph 150 to 300 bytes, plus 100 for its entry). After that, nothing is added.
/// An index that [`save`](Self::save) wrote and [`open`](Self::open) opened takes 8 bytes of memory per 64 files. Each
/// image needs two reads of the file, which the operating system caches once for all processes of a machine. Cloning
/// returns another handle to the same index.
///
/// ```
/// # fn f() -> std::io::Result<()> {
/// use infeed_jpeg::{Decoder, Index};
///
/// // Start with what an earlier run saved, if anything.
/// let index = Index::open("photographs.index", 64 << 20)?;
/// let decoder = Decoder::new().index(index.clone());
/// // … decode windows, then save the index.
/// index.save("photographs.index")?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Index(Arc<Shared>);

struct Shared {
    budget: u64,
    used: AtomicU64,
    /// By the highest bits of the key. A lock is held for one look-up or insertion per image: with 64 threads, about
    /// one of a million finds it taken.
    shards: [Mutex<Shard>; SHARDS],
    /// Number of thinned shards, counting repeated rounds: shards are thinned one after another, then again from the
    /// first.
    thinned: AtomicUsize,
    stored: Option<Stored>,
}

struct Shard {
    entries: HashMap<u128, Known, BuildHasherDefault<LowBits>>,
    /// Distance of new points, as a power of two.
    log2: u8,
}

/// The entry of a file in memory.
#[derive(Default)]
struct Known {
    /// Packed; empty if there are none.
    points: Box<[u8]>,
    lengths: Option<Arc<Lengths>>,
}

/// The entry of a file, without its points.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Distance of its points, also if it has none yet, as a power of two.
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
    /// Thins files with denser points than this; returns the number of bytes freed.
    fn thin(&mut self, log2: u8) -> u64 {
        self.log2 = log2;
        let (mut points, mut freed) = (Vec::new(), 0);
        for known in self.entries.values_mut() {
            let Some(mut spacing) = unpack(&known.points, &mut points) else { continue };
            // Each row keeps one point.
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

    /// The index that [`save`](Self::save) wrote to `path`, or an empty one if there is no such file. What it adds
    /// later takes at most `budget` bytes of memory.
    ///
    /// The file stays open and is read while images are decoded. Do not write to it except by `save`, which replaces it
    /// by another file. Entries that are damaged later count as missing.
    ///
    /// # Errors
    /// `InvalidData` or `UnexpectedEof` if it is not an index, is of another version, or is truncated; errors of
    /// reading it.
    pub fn open(path: impl AsRef<Path>, budget: u64) -> io::Result<Self> {
        Ok(Self::with(budget, stored(path.as_ref())?))
    }

    /// Number of files in the index. Visits each file that was added since the index was opened: some microseconds
    /// each.
    #[must_use]
    pub fn len(&self) -> usize {
        let Shared { stored, shards, .. } = &*self.0;
        let Some(stored) = stored else { return shards.iter().map(|shard| lock(shard).entries.len()).sum() };
        let keys = shards.iter().flat_map(|shard| lock(shard).entries.keys().copied().collect::<Vec<_>>());
        stored.len() as usize + keys.filter(|key| stored.find(*key).is_none()).count()
    }

    /// Whether the index holds no file.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.stored.as_ref().is_none_or(|stored| stored.len() == 0) && self.is_unlearned()
    }

    /// Whether nothing was added to the stored entries.
    fn is_unlearned(&self) -> bool {
        self.0.shards.iter().all(|shard| lock(shard).entries.is_empty())
    }

    /// Bytes of memory that the index uses.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.used.load(Ordering::Relaxed)
    }

    /// The key of a file: takes 10 µs for 100 KB.
    pub(crate) fn key(file: &[u8]) -> u128 {
        xxh3_128(file)
    }

    fn shard(&self, key: u128) -> MutexGuard<'_, Shard> {
        lock(&self.0.shards[(key >> 120) as usize])
    }

    /// The entry of a file with `units` units per row. Its points replace those in `points`. Lengths are looked up only
    /// if they are wanted.
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

    /// Lengths that were stored. If many of them are missing, they are kept in memory, so that new ones are not lost.
    fn take_lengths(&self, key: u128, stored: &[u8]) -> Arc<Lengths> {
        let lacking = stored.iter().filter(|length| **length == 0).count();
        let kept = if lacking > stored.len() / 50 { self.lengths(key, stored.len()) } else { None };
        let lengths = kept.unwrap_or_else(|| Arc::new(Lengths::new(stored.len())));
        lengths.fill(stored);
        lengths
    }

    /// Adds wrong points and lengths, for tests.
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
        // Added first, and subtracted again if it was too much: the bound then holds whatever other threads add.
        let taken = self.0.used.fetch_add(bytes, Ordering::Relaxed) + bytes <= most;
        if !taken {
            self.0.used.fetch_sub(bytes, Ordering::Relaxed);
        }
        taken
    }

    /// Thins the next shard; returns `false` if nothing is left to thin.
    fn make_room(&self) -> bool {
        let Shared { thinned, shards, used, .. } = &*self.0;
        loop {
            let turn = thinned.fetch_add(1, Ordering::Relaxed);
            let log2 = FINEST as usize + 1 + turn / SHARDS;
            if log2 > usize::from(COARSEST) {
                // The counter stays at this limit, however often it is called.
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

    /// Stores the points of a file if they are more than before. `points` may be thinned.
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
            // More rows with fewer points each can be less than before.
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

    /// The lengths of a file's blocks: existing ones, or new ones if they fit into half of the budget.
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

    /// Saves the index at `path`. It writes a file next to it and renames that, so `path` always holds a whole index.
    /// Entries that the file already held are kept, also those that other processes have saved since this index was
    /// opened: several processes may save to one file. Writes nothing if there is nothing to add.
    ///
    /// Processes that save at the same time wait for each other, for at most a minute, if the file system supports
    /// locks of folders (those of Linux and macOS do). Without locks, additions of one process may be lost, but nothing
    /// is damaged. Takes as long as writing the whole file, and 32 bytes of memory per file in the index.
    ///
    /// # Errors
    /// `InvalidData` or `UnexpectedEof` if the file at `path` is not an index; errors of reading and writing.
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
        // Unique also across machines, whose processes may have the same numbers.
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

    /// Writes the entries of memory and files; for each file, the best entry.
    fn write<W: Write>(&self, stored: [Option<&Stored>; 2], to: W) -> io::Result<W> {
        let mut to = Writer::new(to)?;
        let mut stored: Vec<_> =
            stored.into_iter().flatten().map(|stored| (stored, stored.records().peekable())).collect();
        let mut bytes = Vec::new();
        for (n, shard) in self.0.shards.iter().enumerate() {
            // Writing takes time, so the lock is not held meanwhile.
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

/// The best entry of a file, from several sources.
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

/// Number of rows of units that packed points cover, and number of points.
fn reach(packed: &[u8]) -> (usize, usize) {
    head(packed).map_or((0, 0), |(spacing, count)| spacing.reach(count))
}

/// Waits while others save to this folder. The returned handle holds a lock, which the system releases when it is
/// closed. `None` if there are no such locks, and after a minute: a process that holds the lock longer is doing
/// something else.
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
    // Entries are whole even if a thread panicked.
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
        // Lengths take at most half of it, and are stored once.
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
        // Each file in the index has exactly the points of its spacing, for all of its rows.
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
        // More files than fit with one point per row: the bound holds, and existing entries stay.
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

        // Two others start with it; none of it is in their memory.
        let [one, two] = [(); 2].map(|()| Index::open(&path, 1 << 20).unwrap());
        for again in [&one, &two] {
            assert_eq!((again.len(), again.bytes(), again.is_empty()), (501, 0, false));
            for n in 0..500 {
                assert_eq!(find(again, key(n)), Some((FINEST, points(n as usize % 29 + 1, n as i32))), "{n}");
            }
            assert_eq!((noted(again, key(1000)), noted(again, key(7))), (Some(lengths.clone()), Some(lengths.clone())));
            assert!(find(again, key(500)).is_none() && noted(again, key(8)).is_none());
        }
        // Both add files, some different and some the same.
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
        // Saved elsewhere, all of it is there.
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
            // Saving again omits it.
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
        // A foreign file under its name is not overwritten.
        std::fs::write(&path, "my notes, longer than any magic number").unwrap();
        assert_eq!(index.save(&path).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(std::fs::read(&path).unwrap(), b"my notes, longer than any magic number");
    }
}
