//! What one epoch learns of a file for the next: where in its data places of the image begin, and how long blocks are.

#![forbid(unsafe_code)]

use std::{
    collections::HashMap,
    fmt,
    hash::{BuildHasherDefault, Hasher},
    io::{self, Read, Write},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
};

use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// Units (8 to 32 pixels wide) from point to point.
pub(crate) const EVERY: usize = 16;

/// First words of a side file; the last digit is the version.
const MAGIC: &[u8; 16] = b"infeed jpeg ix 2";
/// What an entry takes beside its points and lengths: its key twice over, pointers, counters, and what the allocator adds.
const OVERHEAD: u64 = 160;

/// Where in a file's data a unit of the image begins, and the values its blocks build on.
///
/// From the top: 28 bits of place (in bits from the scan's first byte, stuffing included), three values of 12 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point(u64);

impl Point {
    /// `None` when a number is out of range: in files of more than 32 MiB and in damaged ones.
    pub(crate) fn new(byte: usize, bit: usize, sums: &[i32; 4]) -> Option<Self> {
        let place = u64::try_from(byte).ok().filter(|byte| *byte < 1 << 25)? << 3 | (bit & 7) as u64;
        let mut point = place;
        for &sum in &sums[..3] {
            if !(-2048..2048).contains(&sum) {
                return None;
            }
            point = point << 12 | (sum & 0xfff) as u64;
        }
        Some(Self(point))
    }

    /// Byte of the scan's data.
    pub(crate) fn byte(self) -> usize {
        (self.0 >> 39) as usize
    }

    pub(crate) fn bit(self) -> usize {
        (self.0 >> 36 & 7) as usize
    }

    pub(crate) fn sums(self) -> [i32; 4] {
        let sum = |n: u32| ((self.0 << (28 + 12 * n)) as i64 >> 52) as i32;
        [sum(0), sum(1), sum(2), 0]
    }
}

/// How many bits each block of a scan takes, in the order of the data without stuffing; 0 while that is not known, and for
/// longer ones. Threads write into it as they go: what one writes, any other would.
#[derive(Debug)]
pub(crate) struct Lengths(Box<[AtomicU8]>);

impl Lengths {
    /// From a block on.
    pub(crate) fn from(&self, block: usize) -> &[AtomicU8] {
        self.0.get(block..).unwrap_or_default()
    }
}

/// What is known of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entry {
    /// From the first unit on.
    pub(crate) points: Arc<[Point]>,
    pub(crate) lengths: Option<Arc<Lengths>>,
}

/// What earlier decodes learned of files, so that later ones begin where a window begins.
///
/// A JPEG can only be read from its first byte on: what lies above and beside a window is skipped, which takes half the
/// time of decoding it. While a file is decoded, the index notes where in the data each row of blocks begins (and every
/// 16th unit in it): 8 bytes a point, about 800 bytes for a photograph of 500x375 pixels. When the same file comes
/// again, decoding starts at the point before the window and goes from row to row without what lies between.
///
/// Of images that are decoded at a quarter or an eighth of their size, it also notes how long each block is (a byte a
/// block, about a ninth of a file of quality 90; they may take half of the budget): of each block only the first
/// coefficients are read then, whatever follows them.
///
/// Pixels are the same, bit for bit, with or without it. A file is known by a hash of 128 bits of all its bytes, whatever
/// its name; one index may serve any number of threads. Files with restart markers do not need it, progressive ones
/// can't use it. What somebody falsified may give other pixels, never a panic: read your own.
///
/// Memory: at most the budget, taken as files come; when it is used up, what is there stays and nothing is added.
/// Cloning gives another handle.
///
/// ```
/// # fn f() -> std::io::Result<()> {
/// use infeed_jpeg::{Decoder, Index};
///
/// let index = Index::new(64 << 20);
/// let decoder = Decoder::new().index(index.clone());
/// // … decode windows; then keep what was learned …
/// index.write(&mut std::fs::File::create("photographs.index")?)?;
/// // … and begin the next run with it.
/// Index::new(64 << 20).read(&mut std::io::BufReader::new(std::fs::File::open("photographs.index")?))?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Index(Arc<Shared>);

type Entries = HashMap<u128, Entry, BuildHasherDefault<LowBits>>;

struct Shared {
    budget: u64,
    used: AtomicU64,
    /// By the highest bits of the key. A lock is held for a look or an insertion, once an image: of 64 threads one
    /// finds it taken about every millionth time.
    shards: [Mutex<Entries>; 256],
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { budget, .. } = &*self.0;
        f.debug_struct("Index").field("budget", budget).field("bytes", &self.bytes()).finish_non_exhaustive()
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

impl Index {
    /// An empty index that takes at most `budget` bytes.
    #[must_use]
    pub fn new(budget: u64) -> Self {
        let shards = std::array::from_fn(|_| Mutex::default());
        Self(Arc::new(Shared { budget, used: AtomicU64::new(0), shards }))
    }

    /// How many files are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    /// Whether no file is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes in use.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.used.load(Ordering::Relaxed)
    }

    /// By what a file is known: 10 µs for 100 KB.
    pub(crate) fn key(file: &[u8]) -> u128 {
        xxh3_128(file)
    }

    fn shard(&self, key: u128) -> MutexGuard<'_, Entries> {
        lock(&self.0.shards[(key >> 120) as usize])
    }

    /// What is known of a file.
    pub(crate) fn find(&self, key: u128) -> Option<Entry> {
        self.shard(key).get(&key).cloned()
    }

    /// Points and lengths that mean nothing.
    #[cfg(test)]
    pub(crate) fn lie(&self, file: &[u8], count: usize, blocks: usize, mut number: impl FnMut() -> u64) {
        let key = Self::key(file);
        self.put(key, &(0..count).map(|_| Point(number())).collect::<Vec<_>>());
        if let Some(lengths) = self.lengths(key, blocks) {
            lengths.from(0).iter().for_each(|length| length.store(number() as u8, Ordering::Relaxed));
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

    /// Keeps what is known of a file, if it is more than before.
    pub(crate) fn put(&self, key: u128, points: &[Point]) {
        let mut shard = self.shard(key);
        let known = shard.get(&key);
        let before = known.map_or(0, |known| OVERHEAD + 8 * known.points.len() as u64);
        let after = OVERHEAD + 8 * points.len() as u64;
        if after > before && self.take(after - before, self.0.budget) {
            shard.entry(key).or_default().points = points.into();
        }
    }

    /// Where the lengths of a file's blocks are noted: there already, or new if they fit half of the budget.
    pub(crate) fn lengths(&self, key: u128, blocks: usize) -> Option<Arc<Lengths>> {
        let mut shard = self.shard(key);
        let known = shard.get(&key);
        if let Some(lengths) = known.and_then(|known| known.lengths.clone()) {
            return Some(lengths).filter(|lengths| lengths.0.len() == blocks);
        }
        let overhead = if known.is_some() { 0 } else { OVERHEAD };
        if !self.take(overhead + blocks as u64, self.0.budget / 2) {
            return None;
        }
        let lengths = Arc::new(Lengths((0..blocks).map(|_| AtomicU8::new(0)).collect()));
        shard.entry(key).or_default().lengths = Some(Arc::clone(&lengths));
        Some(lengths)
    }

    /// Writes all that is known.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let mut sum = Xxh3::new();
        let mut put = |bytes: &[u8]| {
            sum.update(bytes);
            to.write_all(bytes)
        };
        put(MAGIC)?;
        for shard in &self.0.shards {
            // Writing takes time: the lock is not held for it.
            let entries: Vec<_> = lock(shard).iter().map(|(key, entry)| (*key, entry.clone())).collect();
            for (key, Entry { points, lengths }) in entries {
                let lengths: Vec<u8> =
                    lengths.iter().flat_map(|l| l.from(0)).map(|l| l.load(Ordering::Relaxed)).collect();
                put(&key.to_le_bytes())?;
                put(&(points.len() as u32).to_le_bytes())?;
                put(&(lengths.len() as u32).to_le_bytes())?;
                points.iter().try_for_each(|point| put(&point.0.to_le_bytes()))?;
                put(&lengths)?;
            }
        }
        // No entry has neither points nor lengths: the end.
        put(&[0; 24])?;
        to.write_all(&sum.digest().to_le_bytes())
    }

    /// Adds what [`write`](Self::write) wrote. Entries beyond the budget are left out.
    ///
    /// # Errors
    /// `InvalidData` or `UnexpectedEof` when it is no index or was damaged; those of the reader. Entries before the damage
    /// may have been added: drop the index.
    pub fn read(&self, from: &mut impl Read) -> io::Result<()> {
        let mut sum = Xxh3::new();
        let mut take = |bytes: &mut [u8]| {
            from.read_exact(bytes)?;
            sum.update(bytes);
            io::Result::Ok(())
        };
        let mut magic = [0; 16];
        take(&mut magic)?;
        if magic != *MAGIC {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "its first bytes are others"));
        }
        let (mut points, mut lengths) = (Vec::new(), Vec::new());
        loop {
            let (mut key, mut counts, mut point) = ([0; 16], [[0; 4]; 2], [0; 8]);
            take(&mut key)?;
            take(counts.as_flattened_mut())?;
            let [count, blocks] = counts.map(u32::from_le_bytes);
            if (count, blocks) == (0, 0) {
                break;
            }
            points.clear();
            for _ in 0..count {
                take(&mut point)?;
                points.push(Point(u64::from_le_bytes(point)));
            }
            // In parts: a damaged count does not take memory for what is not there.
            lengths.clear();
            while lengths.len() < blocks as usize {
                let begun = lengths.len();
                lengths.resize((begun + (1 << 16)).min(blocks as usize), 0);
                take(&mut lengths[begun..])?;
            }
            let key = u128::from_le_bytes(key);
            if !points.is_empty() {
                self.put(key, &points);
            }
            let noted = if lengths.is_empty() { None } else { self.lengths(key, lengths.len()) };
            for (to, length) in noted.iter().flat_map(|noted| noted.from(0)).zip(&lengths) {
                to.store(*length, Ordering::Relaxed);
            }
        }
        let mut digest = [0; 8];
        from.read_exact(&mut digest)?;
        if u64::from_le_bytes(digest) == sum.digest() {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "its checksum is another"))
    }
}

fn lock(shard: &Mutex<Entries>) -> MutexGuard<'_, Entries> {
    // Entries are whole whatever a panicking thread did.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(count: usize, seed: i32) -> Vec<Point> {
        (0..count).map(|n| Point::new(100 * n, n, &[seed, -seed, 2047, 9]).unwrap()).collect()
    }

    #[test]
    fn a_point_is_what_was_put_into_it() {
        for sums in [[0, 0, 0, 0], [-2048, 2047, -1, 0], [5, -6, 7, 0]] {
            let point = Point::new(33_554_431, 7, &sums).unwrap();
            assert_eq!((point.byte(), point.bit(), point.sums()), (33_554_431, 7, sums));
        }
        assert!(Point::new(1 << 25, 0, &[0; 4]).is_none());
        assert!(Point::new(0, 0, &[0, 2048, 0, 0]).is_none());
        assert!(Point::new(0, 0, &[0, 0, -2049, 0]).is_none());
    }

    #[test]
    fn the_budget_is_a_bound_and_more_points_replace_fewer() {
        let index = Index::new(10 * (OVERHEAD + 80));
        (0..100).for_each(|n| index.put((n << 120) | n, &points(10, n as i32)));
        assert_eq!((index.len(), index.bytes()), (10, 10 * (OVERHEAD + 80)));
        assert_eq!(index.find((3 << 120) | 3).unwrap().points[..], points(10, 3));
        assert!(index.find((50 << 120) | 50).is_none());

        let index = Index::new(1000);
        [5, 3, 20].iter().for_each(|&count| index.put(1, &points(count, 1)));
        assert_eq!((index.find(1).unwrap().points.len(), index.bytes()), (20, OVERHEAD + 160));
        index.put(1, &points(1000, 1));
        assert_eq!((index.find(1).unwrap().points.len(), index.bytes()), (20, OVERHEAD + 160), "more than fits");
        // Lengths take half of it at most, and are there once.
        assert!(index.lengths(1, 500).is_none());
        let lengths = index.lengths(1, 100).unwrap();
        lengths.from(7)[0].store(9, Ordering::Relaxed);
        assert_eq!(
            (index.lengths(1, 100).unwrap().from(7)[0].load(Ordering::Relaxed), index.bytes()),
            (9, OVERHEAD + 260)
        );
        assert!(index.lengths(1, 101).is_none() && index.lengths(2, 100).is_none() && lengths.from(101).is_empty());
    }

    #[test]
    fn a_written_index_is_read_again_and_a_damaged_one_refused() {
        let index = Index::new(1 << 20);
        (0..50).for_each(|n| index.put((n << 120) | (7 * n), &points(n as usize % 9 + 1, n as i32)));
        let lengths = [index.lengths((8 << 120) | 56, 70_000).unwrap(), index.lengths(3, 1).unwrap()];
        lengths
            .iter()
            .for_each(|lengths| lengths.from(0).iter().zip(1..).for_each(|(l, n)| l.store(n as u8, Ordering::Relaxed)));
        let mut whole = Vec::new();
        index.write(&mut whole).unwrap();
        let read = |budget, bytes: &[u8]| {
            let index = Index::new(budget);
            index.read(&mut &bytes[..]).map(|()| index)
        };
        let again = read(1 << 20, &whole).unwrap();
        assert_eq!((again.len(), again.bytes()), (51, index.bytes()));
        let told = |index: &Index, key| format!("{:?}", index.find(key).unwrap());
        assert_eq!(
            [(8 << 120) | 56, 3].map(|key| told(&again, key)),
            [(8 << 120) | 56, 3].map(|key| told(&index, key))
        );
        assert!(read(2000, &whole).unwrap().bytes() <= 2000);

        for (at, cut) in
            [(0, false), (40, false), (whole.len() - 1, false), (whole.len() - 1, true), (90, true), (0, true)]
        {
            let mut bytes = whole.clone();
            if cut {
                bytes.truncate(at);
            } else {
                bytes[at] ^= 1;
            }
            let error = read(1 << 20, &bytes).unwrap_err();
            assert!(matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof), "{error}");
        }
    }
}
