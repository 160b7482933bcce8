//! Files whose records lie one after another: TFRecords and lines.
//!
//! Of a file that is not compressed, a record is a range. A compressed file can't be read in parts: it is read and
//! decompressed whole, once for all its records, as long as the loader's memory holds it.

use std::collections::BTreeSet;

use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream};
use infeed_core::{
    error::{Error, ErrorKind, Result},
    report::Stage,
};
use infeed_data::{
    packed::{Packing, unpack},
    record::{ReadPlan, SharedBytes, SharedRead},
    sizes::Sizes,
    table::{ShardTable, Stored},
};
use infeed_store::{Extent, Source};

use crate::packed::{cut, packed_head};

/// Files of which the first record is examined.
const FILES: usize = 16;

/// Where the records of a file are.
#[derive(Debug, PartialEq)]
pub(crate) struct Within {
    /// The position of each record, then the end of the last; in the content if the file is compressed.
    pub(crate) starts: Vec<u64>,
    /// How the file is compressed.
    pub(crate) packing: Option<Packing>,
}

pub(crate) type RecordFile = Stored<Within>;

impl Within {
    /// Number of records.
    pub(crate) const fn records(&self) -> usize {
        self.starts.len() - 1
    }

    /// Bytes of the content.
    fn length(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// The records at the beginning that are examined: at most so many, in so many bytes, unless the first has more.
    fn first(&self, (count, bytes): (usize, u64)) -> usize {
        let fits = self.starts.iter().skip(1).take(count).take_while(|end| **end <= bytes).count();
        fits.max(1).min(self.records())
    }
}

/// The records of files.
#[derive(Debug)]
pub(crate) struct Records {
    pub(crate) files: ShardTable<Within>,
    pub(crate) sizes: Sizes,
    pub(crate) shared: SharedBytes,
}

impl Records {
    pub(crate) fn new(source: &Source, files: Vec<RecordFile>) -> Self {
        let files = ShardTable::new(source, files);
        let sizes = files.shards().iter().flat_map(|file| file.of.starts.windows(2).map(|pair| pair[1] - pair[0]));
        let sizes = Sizes::of(sizes);
        let mut shared = SharedBytes::default();
        for file in files.shards().iter().filter(|file| file.of.packing.is_some()) {
            let length = file.of.length();
            shared.encoded = shared.encoded.max(file.size);
            shared.one = shared.one.max(length + file.size);
            shared.all = shared.all.saturating_add(length);
        }
        Self { files, sizes, shared }
    }

    /// The range of a record, in the content if its file is compressed.
    pub(crate) fn extent(&self, record: u64) -> Result<Extent> {
        let (file, i) = self.files.find(record)?;
        Ok(self.files.extent(file, file.of.starts[i]..file.of.starts[i + 1]))
    }

    pub(crate) fn plan(&self, record: u64) -> Result<ReadPlan> {
        let (at, file) = self.files.find_at(record)?;
        if file.of.packing.is_none() {
            return self.extent(record).map(ReadPlan::one);
        }
        let whole = self.files.extent(file, 0..file.size);
        Ok(ReadPlan::of_shared(vec![SharedRead::new(at as u64, [whole], file.of.length())]))
    }

    /// A record of what its plan has read.
    pub(crate) fn cut_out(&self, record: u64, read: &[Bytes]) -> Result<Bytes> {
        let bytes = read.first().ok_or_else(|| cut("the record is truncated"))?;
        if self.shared.all == 0 {
            // No file is compressed.
            return Ok(bytes.clone());
        }
        let (file, i) = self.files.find(record)?;
        if file.of.packing.is_none() {
            return Ok(bytes.clone());
        }
        let range = file.of.starts[i] as usize..file.of.starts[i + 1] as usize;
        // Copied, so that the file can be freed.
        bytes.get(range).map(Bytes::copy_from_slice).ok_or_else(|| cut("the file is truncated"))
    }

    /// Decompresses the file that `key` names in a plan.
    pub(crate) fn decode_shared(&self, key: u64, bytes: &[Bytes]) -> Result<Bytes> {
        let file = usize::try_from(key).ok().and_then(|key| self.files.shards().get(key));
        let packed = file.and_then(|file| Some((file, file.of.packing?)));
        let (file, packing) = packed
            .ok_or_else(|| Error::new(ErrorKind::Internal, format!("the dataset has no compressed file {key}")))?;
        let bytes = bytes.first().ok_or_else(|| cut("the file was not read"));
        let unpacked = bytes.and_then(|bytes| unpack(packing, bytes, file.of.length() as usize));
        unpacked.map(Bytes::from).map_err(|e| e.at_stage(Stage::Decode).at_object(self.files.name_of(file)))
    }

    /// The first `end` bytes of a file's content.
    async fn head(&self, file: &RecordFile, end: u64) -> Result<Bytes> {
        let Some(packing) = file.of.packing else { return self.files.extent(file, 0..end).read().await };
        let head = packed_head(self.files.extent(file, 0..file.size), packing, end, file.of.length()).await;
        head.map_err(|e| e.at_object(self.files.name_of(file)))
    }

    /// A record, which is the first of its file if that is compressed.
    async fn read(&self, record: u64) -> Result<Bytes> {
        match self.files.find(record)? {
            (file, 0) => self.head(file, file.of.starts[1]).await,
            _ => self.extent(record)?.read().await,
        }
    }

    /// The records that opening examines, or why one can't be read: those at the beginning of the first file, at most so
    /// many in so many bytes, and some of all files. There is at least one record.
    pub(crate) async fn examined(&self, most: (usize, u64)) -> Vec<(u64, Result<Bytes>)> {
        let shards = self.files.shards();
        let file = &shards[0];
        let first = file.of.first(most);
        let head = self.head(file, file.of.starts[first]).await;
        let one = |record: usize| {
            let range = file.of.starts[record] as usize..file.of.starts[record + 1] as usize;
            let line = head.clone().map(|head| (range.end <= head.len()).then(|| head.slice(range)));
            let short = || cut("the file is truncated").at_object(self.files.name_of(file));
            (record as u64, line.and_then(|line| line.ok_or_else(short)))
        };
        let mut found: Vec<(u64, Result<Bytes>)> = (0..first).map(one).collect();
        let step = shards.len().div_ceil(FILES).max(1);
        let mut others: BTreeSet<u64> = shards.iter().step_by(step).map(|file| file.records.start).collect();
        others.extend([1, self.files.len() / 2, self.files.len() - 1]);
        // Records within a compressed file would need decompressing it.
        let is_near = |record: u64| self.files.find(record).is_ok_and(|(file, i)| i == 0 || file.of.packing.is_none());
        others.retain(|record| *record >= first as u64 && is_near(*record));
        let read = async |record| (record, self.read(record).await);
        let reads: Vec<_> = others.into_iter().map(|record| read(record).boxed()).collect();
        found.extend(stream::iter(reads).buffered(FILES).collect::<Vec<_>>().await);
        found
    }

    /// Bytes of memory.
    pub(crate) fn resident_bytes(&self) -> u64 {
        self.files.shards().iter().map(|file| file.of.starts.len() as u64 * 8).sum()
    }
}
