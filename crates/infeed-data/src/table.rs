//! Shards and their records: the part that formats with several records per file share.
//!
//! ```text
//! record ─ Starts ─▶ shard, number within it ─ what the format knows of the shard ─▶ range ─ extent ─▶ Extent
//! ```
//!
//! For each shard, a format keeps what it needs to find a record in it (offsets, an index, the bytes themselves). This
//! module has the sums, names, versions, groups and messages.

use std::{fmt, ops::Range, sync::Arc};

use infeed_core::{
    error::Result,
    fingerprint::{Fingerprint, Fingerprinter},
};
use infeed_store::{Extent, Object, Source};

use super::record::no_such_record;

/// The first record of each of several consecutive parts.
#[derive(Clone, Debug)]
pub struct Starts {
    starts: Arc<[u64]>,
    len: u64,
}

impl Starts {
    /// `None` if there are more records than fit into a u64.
    pub(crate) fn of(counts: impl Iterator<Item = u64>) -> Option<Self> {
        let mut len = 0u64;
        let mut starts = Vec::with_capacity(counts.size_hint().0);
        for count in counts {
            starts.push(len);
            len = len.checked_add(count)?;
        }
        Some(Self { starts: starts.into(), len })
    }

    /// Number of records of all parts.
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// The first record of part `at`, which has to exist.
    pub(crate) fn start_of(&self, at: usize) -> u64 {
        self.starts[at]
    }

    /// The part that holds `record`, and the record's number in it.
    pub fn find(&self, record: u64) -> Result<(usize, u64)> {
        if record >= self.len {
            return Err(no_such_record(record, self.len));
        }
        // If several parts begin here, all but the last are empty.
        let at = self.starts.partition_point(|start| *start <= record) - 1;
        Ok((at, record - self.starts[at]))
    }
}

/// One shard.
pub struct Stored<T> {
    /// Relative to the source.
    pub name: Arc<str>,
    /// Bytes of the whole object.
    pub size: u64,
    pub(crate) etag: Option<Arc<str>>,
    /// The range of the dataset's records in this shard.
    pub records: Range<u64>,
    /// Data of the format.
    pub of: T,
}

impl<T> Stored<T> {
    /// A shard of `count` records.
    pub fn new(object: &Object, count: u64, of: T) -> Self {
        let etag = object.etag.as_deref().map(Into::into);
        Self { name: object.name.as_str().into(), size: object.size, etag, records: 0..count, of }
    }

    /// Number of its records.
    pub const fn count(&self) -> u64 {
        self.records.end - self.records.start
    }
}

impl<T> fmt::Debug for Stored<T> {
    /// Without the format's data, which may be all bytes of the shard.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stored({}, records {:?})", self.name, self.records)
    }
}

/// The shards of a dataset, in the order of their records.
pub struct ShardTable<T> {
    source: Source,
    shards: Vec<Stored<T>>,
    starts: Starts,
}

impl<T> ShardTable<T> {
    /// Numbers the records of `shards` from 0 on.
    pub fn new(source: &Source, shards: impl IntoIterator<Item = Stored<T>>) -> Self {
        let mut shards: Vec<Stored<T>> = shards.into_iter().collect();
        let starts = Starts::of(shards.iter().map(Stored::count)).expect("records that were found have bytes");
        for (shard, start) in shards.iter_mut().zip(&*starts.starts) {
            shard.records = *start..start + shard.count();
        }
        Self { source: source.clone(), shards, starts }
    }

    /// Number of records of all shards.
    pub const fn len(&self) -> u64 {
        self.starts.len()
    }

    #[doc(hidden)]
    pub fn shards(&self) -> &[Stored<T>] {
        &self.shards
    }

    /// The shard that holds `record`, and the record's number in it.
    pub fn find(&self, record: u64) -> Result<(&Stored<T>, usize)> {
        let (_, shard) = self.find_at(record)?;
        // Fits: the format's data for each of a shard's records is in memory.
        Ok((shard, (record - shard.records.start) as usize))
    }

    /// The shard that holds `record`, with its index among the shards.
    pub fn find_at(&self, record: u64) -> Result<(usize, &Stored<T>)> {
        let (at, _) = self.starts.find(record)?;
        Ok((at, &self.shards[at]))
    }

    /// A read of some bytes of a shard, in the listed version.
    pub fn extent(&self, shard: &Stored<T>, range: Range<u64>) -> Extent {
        let whole = Extent::whole(&self.source, Arc::clone(&shard.name), shard.size);
        whole.with_etag(shard.etag.clone()).with_range(range)
    }

    /// The name of the shard in messages.
    pub fn name_of(&self, shard: &Stored<T>) -> String {
        self.source.display_name(&shard.name)
    }

    /// The name of a record's shard in messages; `format` if there is no such record.
    pub fn object(&self, record: u64, format: &str) -> String {
        self.find(record).map_or_else(|_| format.to_owned(), |(shard, _)| self.name_of(shard))
    }

    #[doc(hidden)]
    pub fn needs_fetch(&self) -> bool {
        !self.source.reads_inline()
    }

    /// Each shard is a group.
    pub fn groups(&self) -> Arc<[u64]> {
        Arc::clone(&self.starts.starts)
    }

    /// Begins the dataset's fingerprint: the number of shards, and `each` of them in order.
    pub fn print(&self, format: &str, each: impl FnMut(Fingerprinter, &Stored<T>) -> Fingerprinter) -> Fingerprinter {
        self.shards.iter().fold(Fingerprint::of(format).number(self.shards.len() as u64), each)
    }
}

impl<T> fmt::Debug for ShardTable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.shards).finish()
    }
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;
    use object_store::{ObjectStoreExt, memory::InMemory, path::Path};

    use super::*;
    use crate::{open_source, tar};
    use infeed_core::error::ErrorKind;

    #[test]
    fn a_record_is_found_in_the_shard_that_holds_it_whatever_shards_are_empty() {
        for counts in [vec![3, 2, 4], vec![0, 3, 0, 0, 2, 4, 0], vec![9], vec![]] {
            let starts = Starts::of(counts.iter().copied()).unwrap();
            let all: Vec<(usize, u64)> =
                counts.iter().enumerate().flat_map(|(at, count)| (0..*count).map(move |i| (at, i))).collect();
            assert_eq!(starts.len(), all.len() as u64);
            for (record, want) in (0..).zip(&all) {
                assert_eq!(starts.find(record).unwrap(), *want, "record {record} of {counts:?}");
            }
            for beyond in [starts.len(), u64::MAX] {
                assert_eq!(starts.find(beyond).unwrap_err().kind(), ErrorKind::Internal);
            }
        }
        assert!(Starts::of([u64::MAX, 1].into_iter()).is_none());
    }

    #[test]
    fn reads_are_of_the_version_that_was_listed() {
        let store = Arc::new(object_store::memory::InMemory::new());
        let source = Source::from_store(store, object_store::path::Path::default(), "test://x");
        let object = |name: &str, etag: Option<&str>| {
            let mut object = Object::new(name, 100);
            object.etag = etag.map(Into::into);
            object
        };
        let shards = [Stored::new(&object("a", None), 2, ()), Stored::new(&object("b", Some("7")), 3, ())];
        let table = ShardTable::new(&source, shards);
        let (shard, number) = table.find(4).unwrap();
        assert_eq!((&*shard.name, number, shard.records.clone(), table.len()), ("b", 2, 2..5, 5));
        let extent = table.extent(shard, 10..30);
        assert_eq!(
            (&*extent.name, extent.range, extent.size, extent.etag.as_deref()),
            ("b", 10..30, Some(100), Some("7"))
        );
        assert_eq!((table.object(1, "kind"), table.object(5, "kind")), ("test://x/a".to_owned(), "kind".to_owned()));
        assert_eq!(table.groups()[..], [0, 2]);
        assert_eq!(format!("{:?}", table.shards()[1]), "Stored(b, records 2..5)");
    }

    fn holding(files: &[(&str, Vec<u8>)]) -> Source {
        let store = InMemory::new();
        for (name, bytes) in files {
            block_on(store.put(&Path::from(*name), bytes.clone().into())).unwrap();
        }
        Source::from_store(Arc::new(store), Path::default(), "test://x")
    }

    /// The states of old runs hold them: written out, so that no change here changes them. MDS, TFRecord and Parquet
    /// have theirs in their own tests.
    #[test]
    fn identities_are_those_that_states_hold() {
        let identity = |files: &[(&str, Vec<u8>)]| {
            let dataset = block_on(open_source(holding(files)).into_future()).unwrap();
            (dataset.fingerprint(), dataset)
        };
        let (cifar, _) = identity(&[("d/data_batch_1.bin", vec![1; 2 * 3073]), ("d/data_batch_2.bin", vec![1; 3073])]);
        let want = Fingerprint::of("cifar10").number(2).text("data_batch_1.bin").number(2 * 3073);
        assert_eq!(cifar, want.text("data_batch_2.bin").number(3073).finish());

        let shard = |name: &str, samples: u64| {
            let mut shard = tar::Shard::of(&Object::new(name, 10 << 10));
            for i in 0..samples {
                shard.add(&format!("{i}.jpg"), 512 + i * 2048, 100, None).unwrap();
                shard.add(&format!("{i}.cls"), 1536 + i * 2048, 1, None).unwrap();
            }
            shard
        };
        let index = tar::Index { classes: vec![], shards: vec![shard("d/a.tar", 2), shard("d/b.tar", 3)] };
        let tars = ["d/a.tar", "d/b.tar"].map(|name| (name, vec![0; 10 << 10]));
        let (tar, dataset) = identity(&[&tars[..], &[(tar::INDEX, index.encode().unwrap())]].concat());
        let want = Fingerprint::of("tar").number(2).text("a.tar").number(10 << 10).number(2);
        let want = want.text("b.tar").number(10 << 10).number(3).text("image").text("label").text("key");
        assert_eq!((tar, dataset.len(), &dataset.groups().unwrap()[..]), (want.finish(), 5, &[0, 2][..]));
    }
}
