//! An index in a file, from which entries are read on demand.
//!
//! ```text
//! "infeed jpeg ix 3"
//! data: of each file, in the order of keys: packed points and their hash, lengths of blocks and their hash (u64 each)
//! table: blocks of 64 records in the order of keys, and a hash (u64) after each block
//!     u128 key, u64 where its data is, u32 bytes of points, u32 bytes of lengths
//! fences: the highest 64 bits of each block's first key
//! end: u64 records, u64 where the table is, u64 bytes of all, u64 hash of the fences and of these three, the first 16 bytes again
//! ```
//!
//! Numbers are little-endian, hashes are xxh3. Parts that are damaged after opening count as missing.

use std::{
    fs::File,
    io::{self, Write},
};

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// First and last bytes of a file; the last digit is the version.
const MAGIC: &[u8; 16] = b"infeed jpeg ix 3";
/// The part that all versions begin with.
const NAME: &[u8; 15] = b"infeed jpeg ix ";
/// Records of a block of the table.
const BLOCK: usize = 64;
/// Bytes of a record.
const RECORD: usize = 32;
/// Bytes of the end.
const END: usize = 48;
/// Bytes of a hash.
const SUM: usize = 8;

/// The place of a file's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) key: u128,
    offset: u64,
    points: u32,
    lengths: u32,
}

impl Record {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend(self.key.to_le_bytes());
        out.extend(self.offset.to_le_bytes());
        [self.points, self.lengths].iter().for_each(|n| out.extend(n.to_le_bytes()));
    }

    fn of(bytes: &[u8; RECORD]) -> Self {
        let (key, rest) = bytes.split_first_chunk().expect("a record is longer than its key");
        let (offset, rest) = rest.split_first_chunk().expect("a record is longer than its place");
        let number = |at: usize| u32::from_le_bytes([rest[at], rest[at + 1], rest[at + 2], rest[at + 3]]);
        let (key, offset) = (u128::from_le_bytes(*key), u64::from_le_bytes(*offset));
        Self { key, offset, points: number(0), lengths: number(4) }
    }

    /// Number of bytes of the data.
    fn bytes(&self) -> u64 {
        let with_sum = |len: u32| if len > 0 { u64::from(len) + SUM as u64 } else { 0 };
        with_sum(self.points) + with_sum(self.lengths)
    }
}

/// An open file. Several threads may read it at the same time.
#[derive(Debug)]
pub(super) struct Stored {
    file: File,
    /// Number of files in the index.
    records: u64,
    /// Byte at which the table begins, after all data.
    table: u64,
    fences: Box<[u64]>,
    /// Hash of its end.
    sum: u64,
}

impl Stored {
    /// Reads the end of a file: 8 bytes per 64 files in the index.
    pub(super) fn open(file: File) -> io::Result<Self> {
        let len = file.metadata()?.len();
        let (mut magic, mut end) = ([0; 16], [0; END]);
        read_at(&file, &mut magic, 0)?;
        if magic != *MAGIC {
            let other = if magic.starts_with(NAME) { "it has another version" } else { "its first bytes are wrong" };
            return Err(invalid(other));
        }
        let at = len.checked_sub(END as u64).ok_or_else(|| invalid("it is truncated"))?;
        read_at(&file, &mut end, at)?;
        let number = |n: usize| u64::from_le_bytes(*end[8 * n..].first_chunk().expect("the end holds four numbers"));
        let [records, table, all, sum] = [0, 1, 2, 3].map(number);
        if end[32..] != *MAGIC || all != len {
            return Err(invalid("it is truncated, or something was appended"));
        }
        let blocks = records.div_ceil(BLOCK as u64);
        // Checked before memory is allocated: 32 bytes per record and 16 per block must be there.
        let table_len = records.checked_mul(RECORD as u64).and_then(|bytes| bytes.checked_add(blocks * SUM as u64));
        let fences_at = table_len.and_then(|bytes| bytes.checked_add(table)).filter(|at| *at <= len);
        let fits = |at: &u64| at.checked_add(8 * blocks + END as u64) == Some(len);
        let at = fences_at.filter(fits).ok_or_else(|| invalid("its parts do not fit"))?;
        let mut fences = vec![0; 8 * blocks as usize];
        read_at(&file, &mut fences, at)?;
        let mut hash = Xxh3::new();
        hash.update(&fences);
        hash.update(&end[..24]);
        if hash.digest() != sum {
            return Err(invalid("its checksum is wrong"));
        }
        let fences = fences.as_chunks().0.iter().map(|fence| u64::from_le_bytes(*fence)).collect();
        Ok(Self { file, records, table, fences, sum })
    }

    /// Number of files in the index.
    pub(super) fn len(&self) -> u64 {
        self.records
    }

    /// Whether two files have the same content, as far as their ends show.
    pub(super) fn is(&self, other: &Self) -> bool {
        (self.records, self.table, self.sum) == (other.records, other.table, other.sum)
    }

    /// One block of the table, unparsed; `None` if it is damaged.
    fn block<'a>(&self, block: usize, bytes: &'a mut [u8; BLOCK * RECORD + SUM]) -> Option<&'a [[u8; RECORD]]> {
        let records = (self.records - (block * BLOCK) as u64).min(BLOCK as u64) as usize;
        let bytes = &mut bytes[..records * RECORD + SUM];
        read_at(&self.file, bytes, self.table + (block * (BLOCK * RECORD + SUM)) as u64).ok()?;
        let (bytes, sum) = bytes.split_last_chunk::<SUM>()?;
        let records = bytes.as_chunks().0;
        (xxh3_64(bytes) == u64::from_le_bytes(*sum)).then_some(records)
    }

    /// The record of a file: one read.
    pub(super) fn find(&self, key: u128) -> Option<Record> {
        let block = self.fences.partition_point(|fence| *fence <= (key >> 64) as u64).checked_sub(1)?;
        let mut bytes = [0; BLOCK * RECORD + SUM];
        let records = self.block(block, &mut bytes)?;
        let at = records.binary_search_by_key(&key, |record| Record::of(record).key).ok()?;
        Some(Record::of(&records[at]))
    }

    /// All records in the order of keys, except those of damaged blocks.
    pub(super) fn records(&self) -> impl Iterator<Item = Record> {
        (0..self.fences.len()).flat_map(|block| {
            let mut bytes = [0; BLOCK * RECORD + SUM];
            self.block(block, &mut bytes).unwrap_or_default().iter().map(Record::of).collect::<Vec<_>>()
        })
    }

    /// Puts the packed points of a file into `bytes`: one read.
    pub(super) fn read_points(&self, record: &Record, bytes: &mut Vec<u8>) -> Option<()> {
        self.read(record.offset, record.points, bytes)
    }

    /// Puts the lengths of its blocks into `bytes`: one read.
    pub(super) fn read_lengths(&self, record: &Record, bytes: &mut Vec<u8>) -> Option<()> {
        let points = Record { lengths: 0, ..*record }.bytes();
        self.read(record.offset.checked_add(points)?, record.lengths, bytes)
    }

    fn read(&self, offset: u64, len: u32, bytes: &mut Vec<u8>) -> Option<()> {
        bytes.clear();
        let all = u64::from(len) + SUM as u64;
        if len == 0 || offset.checked_add(all)? > self.table {
            return None;
        }
        bytes.resize(all as usize, 0);
        read_at(&self.file, bytes, offset).ok()?;
        let (read, sum) = bytes.split_last_chunk::<SUM>()?;
        let good = xxh3_64(read) == u64::from_le_bytes(*sum);
        bytes.truncate(if good { len as usize } else { 0 });
        good.then_some(())
    }
}

/// Writes an index file from its beginning.
pub(super) struct Writer<W> {
    to: W,
    at: u64,
    table: Vec<u8>,
    fences: Vec<u8>,
    records: usize,
    block: usize,
}

impl<W: Write> Writer<W> {
    pub(super) fn new(mut to: W) -> io::Result<Self> {
        to.write_all(MAGIC)?;
        let at = MAGIC.len() as u64;
        Ok(Self { to, at, table: Vec::new(), fences: Vec::new(), records: 0, block: 0 })
    }

    /// Adds the entry of a file; keys must come in order.
    pub(super) fn put(&mut self, key: u128, points: &[u8], lengths: &[u8]) -> io::Result<()> {
        let len = |bytes: &[u8]| u32::try_from(bytes.len()).map_err(|_| invalid("more than 4 GB of one file"));
        let record = Record { key, offset: self.at, points: len(points)?, lengths: len(lengths)? };
        for bytes in [points, lengths].into_iter().filter(|bytes| !bytes.is_empty()) {
            self.to.write_all(bytes)?;
            self.to.write_all(&xxh3_64(bytes).to_le_bytes())?;
        }
        self.at += record.bytes();
        if self.records.is_multiple_of(BLOCK) {
            self.end_block();
            self.fences.extend(((key >> 64) as u64).to_le_bytes());
        }
        self.records += 1;
        record.put(&mut self.table);
        Ok(())
    }

    fn end_block(&mut self) {
        if self.table.len() > self.block {
            let sum = xxh3_64(&self.table[self.block..]);
            self.table.extend(sum.to_le_bytes());
            self.block = self.table.len();
        }
    }

    /// Writes the table and the end.
    pub(super) fn end(mut self) -> io::Result<W> {
        self.end_block();
        let Self { mut to, at, table, mut fences, records, .. } = self;
        to.write_all(&table)?;
        let fences_len = fences.len();
        let all = at + (table.len() + fences_len + END) as u64;
        [records as u64, at, all].iter().for_each(|number| fences.extend(number.to_le_bytes()));
        let sum = xxh3_64(&fences);
        to.write_all(&fences)?;
        to.write_all(&sum.to_le_bytes())?;
        to.write_all(MAGIC)?;
        Ok(to)
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Fills `bytes` from a position in a file. The file's cursor is not used.
fn read_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<()> {
    #[cfg(unix)]
    {
        std::os::unix::fs::FileExt::read_exact_at(file, bytes, at)
    }
    #[cfg(windows)]
    {
        let (mut bytes, mut at) = (bytes, at);
        while !bytes.is_empty() {
            let read = std::os::windows::fs::FileExt::seek_read(file, bytes, at)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            (bytes, at) = (&mut bytes[read..], at + read as u64);
        }
        Ok(())
    }
    #[cfg(not(any(unix, windows)))]
    {
        let _ = (file, bytes, at);
        Err(io::ErrorKind::Unsupported.into())
    }
}
