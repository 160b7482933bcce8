//! What one epoch learns of a file for the next: where in its data places of the image begin.

use std::{
    collections::HashMap,
    fmt,
    fs::File,
    hash::{BuildHasherDefault, Hasher},
    io::{self, BufReader, BufWriter, Read, Write},
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::{
    error::{Error, ErrorKind, Result},
    source::io_kind,
};

/// Units (8 to 32 pixels wide) from point to point.
pub(super) const EVERY: usize = 16;

/// First words of a side file; the last digit is the version.
const MAGIC: &[u8; 16] = b"infeed jpeg ix 1";
/// What an entry takes beside its points: its key twice over, a pointer, counters, and what the allocator adds.
const OVERHEAD: u64 = 112;

/// Where in a file's data a unit of the image begins, and the values its blocks build on.
///
/// From the top: 28 bits of place (in bits from the scan's first byte, stuffing included), three values of 12 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point(u64);

impl Point {
    /// `None` when a number is out of range: in files of more than 32 MiB and in damaged ones.
    pub(super) fn new(byte: usize, bit: usize, sums: &[i32; 4]) -> Option<Self> {
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
    pub(super) fn byte(self) -> usize {
        (self.0 >> 39) as usize
    }

    pub(super) fn bit(self) -> usize {
        (self.0 >> 36 & 7) as usize
    }

    pub(super) fn sums(self) -> [i32; 4] {
        let sum = |n: u32| ((self.0 << (28 + 12 * n)) as i64 >> 52) as i32;
        [sum(0), sum(1), sum(2), 0]
    }
}

/// What earlier epochs learned of JPEG files, so that later ones begin to decode where a crop begins.
///
/// A JPEG can only be read from its first byte on: what lies above and beside a crop is skipped, which takes half the
/// time of decoding it. While a file is decoded, the index notes where in the data each row of blocks begins (and every
/// 16th unit in it): 8 bytes a point, about 800 bytes for a photograph of 500x375 pixels. When the same file comes
/// again, decoding starts at the point before the crop and goes from row to row without what lies between.
///
/// Pixels are the same, bit for bit, with or without it. A file is known by a hash of 128 bits of all its bytes, so
/// one that was replaced is another file, whatever its name, store or record; and one index may serve any number of
/// loaders. Files with restart markers do not need it, progressive ones can't use it.
///
/// Memory: at most the budget, taken as files come; when it is used up, what is there stays and nothing is added.
/// Cloning gives another handle.
///
/// ```no_run
/// # async fn example() -> infeed::Result<()> {
/// use infeed::{Loader, codec::DecodeIndex};
///
/// // A later run begins with what this one learned.
/// let index = DecodeIndex::open("train.index", 256 << 20)?;
/// let dataset = infeed::open("/data/imagenet/train").await?;
/// let loader = Loader::builder(dataset).decode_index(index.clone()).build().await?;
/// // … epochs …
/// index.save("train.index")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct DecodeIndex(Arc<Shared>);

type Entries = HashMap<u128, Arc<[Point]>, BuildHasherDefault<LowBits>>;

struct Shared {
    budget: u64,
    used: AtomicU64,
    /// By the highest bits of the key. A lock is held for a look or an insertion, once an image: of 64 threads one
    /// finds it taken about every millionth time.
    shards: [Mutex<Entries>; 256],
}

impl fmt::Debug for DecodeIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { budget, .. } = &*self.0;
        f.debug_struct("DecodeIndex").field("budget", budget).field("bytes", &self.bytes()).finish_non_exhaustive()
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

impl DecodeIndex {
    /// An empty index that takes at most `budget` bytes.
    #[must_use]
    pub fn new(budget: u64) -> Self {
        let shards = std::array::from_fn(|_| Mutex::default());
        Self(Arc::new(Shared { budget, used: AtomicU64::new(0), shards }))
    }

    /// The index that was saved at `path`, or an empty one if there is no such file. Entries beyond the budget are left
    /// out.
    ///
    /// # Errors
    /// `Corrupt` when the file is none of an index or was damaged, `Io` or `Denied` when it can't be read.
    pub fn open(path: impl AsRef<Path>, budget: u64) -> Result<Self> {
        let (path, index) = (path.as_ref(), Self::new(budget));
        match File::open(path).and_then(|file| index.read(&mut BufReader::new(file))) {
            Ok(()) => Ok(index),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::new(budget)),
            Err(error) if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) => {
                let what = format!("{} is no decode index, or a damaged one", path.display());
                Err(Error::new(ErrorKind::Corrupt, what)
                    .hint("remove it: the next run makes it anew")
                    .with_source(error))
            }
            Err(error) => Err(broken(&error, path).with_source(error)),
        }
    }

    /// Writes the index to `path`, whole or not at all: to a file beside it, which then takes its name.
    ///
    /// # Errors
    /// `Io` or `Denied` when it can't be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let mut beside = path.as_os_str().to_owned();
        beside.push(format!(".{}.part", std::process::id()));
        let write = || {
            let mut to = BufWriter::new(File::create(&beside)?);
            self.write(&mut to)?;
            to.into_inner()?.sync_all()?;
            std::fs::rename(&beside, path)
        };
        write().map_err(|error| {
            let _ = std::fs::remove_file(&beside);
            broken(&error, path).with_source(error)
        })
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
    pub(super) fn key(file: &[u8]) -> u128 {
        xxh3_128(file)
    }

    fn shard(&self, key: u128) -> MutexGuard<'_, Entries> {
        lock(&self.0.shards[(key >> 120) as usize])
    }

    /// What is known of a file, the points from its first unit on.
    pub(super) fn find(&self, key: u128) -> Option<Arc<[Point]>> {
        self.shard(key).get(&key).cloned()
    }

    /// Points that mean nothing.
    #[cfg(test)]
    pub(super) fn lie(&self, file: &[u8], count: usize, mut point: impl FnMut() -> u64) {
        self.keep(Self::key(file), &(0..count).map(|_| Point(point())).collect::<Vec<_>>());
    }

    /// Keeps what is known of a file, if it is more than before.
    pub(super) fn keep(&self, key: u128, points: &[Point]) {
        let mut shard = self.shard(key);
        let before = shard.get(&key).map_or(0, |known| OVERHEAD + 8 * known.len() as u64);
        let after = OVERHEAD + 8 * points.len() as u64;
        if after <= before {
            return;
        }
        let more = after - before;
        // Taken first, given back when it was too much: the bound holds whatever other threads add.
        if self.0.used.fetch_add(more, Ordering::Relaxed) + more > self.0.budget {
            self.0.used.fetch_sub(more, Ordering::Relaxed);
            return;
        }
        shard.insert(key, points.into());
    }

    fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let mut sum = Xxh3::new();
        let mut put = |bytes: &[u8]| {
            sum.update(bytes);
            to.write_all(bytes)
        };
        put(MAGIC)?;
        for shard in &self.0.shards {
            // Writing takes time: the lock is not held for it.
            let entries: Vec<_> = lock(shard).iter().map(|(key, points)| (*key, Arc::clone(points))).collect();
            for (key, points) in entries {
                put(&key.to_le_bytes())?;
                put(&(points.len() as u32).to_le_bytes())?;
                points.iter().try_for_each(|point| put(&point.0.to_le_bytes()))?;
            }
        }
        // No entry has no points: the end.
        put(&[0; 20])?;
        to.write_all(&sum.digest().to_le_bytes())
    }

    fn read(&self, from: &mut impl Read) -> io::Result<()> {
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
        let mut points = Vec::new();
        loop {
            let (mut key, mut count, mut point) = ([0; 16], [0; 4], [0; 8]);
            take(&mut key)?;
            take(&mut count)?;
            points.clear();
            for _ in 0..u32::from_le_bytes(count) {
                take(&mut point)?;
                points.push(Point(u64::from_le_bytes(point)));
            }
            if points.is_empty() {
                break;
            }
            self.keep(u128::from_le_bytes(key), &points);
        }
        let mut digest = [0; 8];
        from.read_exact(&mut digest)?;
        if u64::from_le_bytes(digest) == sum.digest() {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "its checksum is another"))
    }
}

fn broken(error: &io::Error, path: &Path) -> Error {
    Error::new(io_kind(error), "the decode index can't be read or written").at_object(path.display().to_string())
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
        let index = DecodeIndex::new(10 * (OVERHEAD + 80));
        (0..100).for_each(|n| index.keep((n << 120) | n, &points(10, n as i32)));
        assert_eq!((index.len(), index.bytes()), (10, 10 * (OVERHEAD + 80)));
        assert_eq!(index.find((3 << 120) | 3).unwrap()[..], points(10, 3));
        assert!(index.find((50 << 120) | 50).is_none());

        let index = DecodeIndex::new(1000);
        [5, 3, 20].iter().for_each(|&count| index.keep(1, &points(count, 1)));
        assert_eq!((index.find(1).unwrap().len(), index.bytes()), (20, OVERHEAD + 160));
        index.keep(1, &points(1000, 1));
        assert_eq!((index.find(1).unwrap().len(), index.bytes()), (20, OVERHEAD + 160), "more than fits");
    }

    #[test]
    fn a_saved_index_is_read_again_and_a_damaged_one_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index");
        let index = DecodeIndex::open(&path, 1 << 20).unwrap();
        assert!(index.is_empty());
        (0..50).for_each(|n| index.keep((n << 120) | (7 * n), &points(n as usize % 9 + 1, n as i32)));
        index.save(&path).unwrap();
        let again = DecodeIndex::open(&path, 1 << 20).unwrap();
        assert_eq!((again.len(), again.bytes()), (50, index.bytes()));
        assert_eq!(again.find((8 << 120) | 56), index.find(8 << 120 | 56));
        assert!(DecodeIndex::open(&path, 2000).unwrap().bytes() <= 2000);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no parts are left");

        let whole = std::fs::read(&path).unwrap();
        for (at, cut) in
            [(0, false), (40, false), (whole.len() - 1, false), (whole.len() - 1, true), (90, true), (0, true)]
        {
            let mut bytes = whole.clone();
            if cut {
                bytes.truncate(at);
            } else {
                bytes[at] ^= 1;
            }
            std::fs::write(&path, bytes).unwrap();
            let error = DecodeIndex::open(&path, 1 << 20).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        }
        let error = index.save(folder.path().join("none/index")).unwrap_err().to_string();
        assert!(error.contains("none/index"), "{error}");
    }
}
