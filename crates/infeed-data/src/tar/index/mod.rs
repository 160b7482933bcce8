//! The index file of shards: a table, which is read when a dataset is opened, and the samples of each shard in blocks,
//! of which a loader reads only those that it needs.
//!
//! ```text
//! "infeed shards 4\n"
//! of each shard, anywhere before the table: blocks of 16 samples, ends, labels        each ends with its u64 hash
//!   block: varint where the member before it ended, in blocks of 512 bytes
//!          samples, each:
//!            varint bytes shared with the key before (of the block), text the rest of the key (varint length, UTF-8)
//!            varint twice the number of the layout, plus 1 if gaps are stored
//!            members, each: varint gap, if stored, varint size, u32 crc32c if there are any
//!            a gap is the number of blocks of 512 bytes from the end of the member before to this one's content: 1, a header
//!   ends: u32 of each block, from the first on
//!   labels, where all samples have one: of 1, 2, 4 or 8 bytes, signed
//! table: classes: varint count, texts, 0 for none
//!        shapes, which shards share: varint count, each:
//!          u8 1 when members have a crc32c, else 0
//!          varint extensions, texts
//!          varint layouts, each: varint members, varint extension of each
//!        shards: varint count, each:
//!          text name (relative to this file), varint size, text etag (empty: none)
//!          u8 1: u128 job, u128 sources, varint shards of the job follow; 0: unknown
//!          varint shape; of each layout varint samples; of each extension varint bytes of the largest member
//!          varint sizes of samples: u8 power of two, varint count, varint the largest
//!          varint bytes of the longest key, varint where its blocks begin, varint their bytes, u8 bytes of a label or 0
//! u64 where the table begins, u128 xxh3 of the table, "infeed shards 4\n"                             little-endian
//! ```
//!
//! `shards.infeed` is the index of all shards of a folder, `NAME.infeed` next to `NAME.tar` that of one. If the size or
//! ETag of a shard differs from its entry, the shard is indexed again. Hashes are 64-bit xxh3, with the size of the tar
//! and the number of the block as seed, so that bytes from another place do not match. A picture with a label takes 8.5
//! bytes if keys are numbers, and 2 for the label. Files of versions 2 and 3 are read and converted in memory.

mod blob;
mod entry;
mod old;
mod shape;

use std::{
    collections::HashMap,
    io::{self, Write},
    sync::Arc,
};

use infeed_core::error::{Error, Result};
use infeed_store::{Beside, Manifest, Parts, Rest, end_table, io_kind, number, text};

#[cfg(test)]
pub(super) use self::old::tests::encode as as_version_3;
pub(super) use self::{
    blob::{Blob, IndexFile, SAMPLES},
    entry::Entry,
    shape::Shape,
};
use super::shard::Shard;

/// Name of the index of a folder.
pub const INDEX: &str = "shards.infeed";
/// Extension of index files, of a folder or of one shard.
pub(super) const ENDING: &str = ".infeed";

const MAGIC: &[u8; 16] = b"infeed shards 4\n";

/// An index that is being written: the samples of shards as they are added, then the table.
#[derive(Debug)]
pub(super) struct IndexWriter<W> {
    out: W,
    at: u64,
    shapes: HashMap<Arc<Shape>, usize>,
    shapes_table: Vec<u8>,
    /// Name and table line of each shard, in the order of `add`.
    shards: Vec<(Arc<str>, Vec<u8>)>,
}

impl<W: Write> IndexWriter<W> {
    pub(super) fn new(mut out: W) -> io::Result<Self> {
        out.write_all(MAGIC)?;
        let at = MAGIC.len() as u64;
        Ok(Self { out, at, shapes: HashMap::new(), shapes_table: Vec::new(), shards: Vec::new() })
    }

    /// Adds a shard and the bytes of its samples. Returns the position of the samples.
    pub(super) fn add(&mut self, entry: &Entry, samples: &[u8]) -> io::Result<u64> {
        self.out.write_all(samples)?;
        let at = self.at;
        self.at += samples.len() as u64;
        let shapes = self.shapes.len();
        let shape = *self.shapes.entry(Arc::clone(&entry.shape)).or_insert_with_key(|shape| {
            shape.encode(&mut self.shapes_table);
            shapes
        });
        let mut line = Vec::new();
        entry.encode(shape, at, &mut line);
        self.shards.push((Arc::clone(&entry.name), line));
        Ok(at)
    }

    /// Writes the table, with shards ordered by name.
    pub(super) fn finish(mut self, classes: &[String]) -> io::Result<W> {
        let mut table = Vec::new();
        number(&mut table, classes.len() as u64);
        classes.iter().for_each(|class| text(&mut table, class));
        number(&mut table, self.shapes.len() as u64);
        table.extend_from_slice(&self.shapes_table);
        number(&mut table, self.shards.len() as u64);
        self.shards.sort_by(|(a, _), (b, _)| a.cmp(b));
        self.shards.iter().for_each(|(_, line)| table.extend_from_slice(line));
        end_table(MAGIC, self.at, &mut table);
        self.out.write_all(&table)?;
        Ok(self.out)
    }
}

/// The table of an index: its shards without their samples.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) classes: Vec<String>,
    pub(super) shards: Vec<Entry>,
    /// Whether the file has an earlier version.
    pub(super) old: bool,
}

impl Table {
    /// Returns a table, or words for a warning. Never panics, whatever the bytes are.
    pub(super) fn open(parts: Parts, name: String, kept: Option<Manifest>) -> Result<Self, String> {
        let broken = |e: io::Error| e.to_string();
        let start = parts.read(0..parts.len().min(MAGIC.len() as u64)).map_err(broken)?;
        if old::is_old(&start) {
            Beside::Table.check(parts.len()).map_err(|e| e.to_string())?;
            let (classes, shards) = old::parse(&parts.read(0..parts.len()).map_err(broken)?)?;
            let bytes = Index { classes, shards }.encode().map_err(|e| e.to_string())?;
            return Ok(Self { old: true, ..Self::open(Parts::Held(bytes.into()), name, None)? });
        }
        let (table, begins) = parts.table(MAGIC)?;
        let file = Arc::new(IndexFile { parts, name, kept });
        Self::parse(&table, &file, begins).ok_or_else(|| "its content is invalid".into())
    }

    fn parse(table: &[u8], file: &Arc<IndexFile>, end: u64) -> Option<Self> {
        let mut rest = Rest::of(table);
        let classes = rest.list(1, |rest| rest.text().map(str::to_owned))?;
        let shapes = rest.list(3, |rest| Shape::parse(rest).map(Arc::new))?;
        let shards = rest.list(10, |rest| Entry::parse(rest, &shapes, file, end))?;
        rest.is_empty().then_some(Self { classes, shards, old: false })
    }
}

/// The error for an index that could not be written to a disk.
pub(super) fn unwritten(error: io::Error) -> Error {
    Error::new(io_kind(&error), "the index of shards cannot be written").with_source(error)
}

/// A whole index in memory: of all shards of a folder, or of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    #[doc(hidden)]
    pub classes: Vec<String>,
    #[doc(hidden)]
    pub shards: Vec<Shard>,
}

impl Index {
    /// The bytes of the file.
    ///
    /// # Errors
    /// `Corrupt` if a shard has 4 GiB of names.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut writer = IndexWriter::new(Vec::new()).map_err(unwritten)?;
        for shard in &self.shards {
            let (entry, samples) = Entry::of(shard)?;
            writer.add(&entry, &samples).map_err(unwritten)?;
        }
        writer.finish(&self.classes).map_err(unwritten)
    }

    /// Returns an index, or words for a warning. Never panics, whatever the bytes are.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let table = Table::open(Parts::Held(bytes.to_vec().into()), String::new(), None)?;
        let shards = table.shards.iter().map(|entry| entry.shard().map_err(|e| e.to_string()));
        Ok(Self { shards: shards.collect::<Result<_, _>>()?, classes: table.classes })
    }
}

#[cfg(test)]
mod tests {
    use infeed_store::Object;
    use proptest::prelude::*;

    use super::*;
    use crate::tar::header::padded;

    pub(super) fn shard(samples: usize, crc: bool) -> Shard {
        let mut shard = Shard {
            etag: crc.then(|| "\"e\"".into()),
            job: 7,
            job_shards: 300,
            sources: 11,
            ..Shard::of(&Object::new("a/x.tar", 1 << 30))
        };
        let mut at = 512;
        for i in 0..samples {
            for (n, extension) in ["jpg", "cls", "seg.png"].iter().take(1 + i % 3).enumerate() {
                let size = (i * 977 + n * 13) as u64 % 3000;
                shard.add(&format!("ä{:05}/ö{i}.{extension}", i % 7), at, size, crc.then_some(i as u32 * 99)).unwrap();
                // Now and then something else lies between, a folder or a long name.
                at += padded(size) + 512 + u64::from(i % 11 == 3) * 1024;
            }
        }
        shard
    }

    /// With labels, wide ones from some sample on.
    pub(super) fn wide(samples: usize) -> Shard {
        let mut shard = Shard::of(&Object::new("wide.tar", 1 << 20));
        for i in 0..samples {
            let at = 1024 * i as u64 + 512;
            assert!(shard.add(&format!("{i}.CLS"), at, 9, None).unwrap());
            shard.set_label(match i % 3 {
                0 => b" -1\n",
                1 => b"200",
                _ => b"7",
            });
        }
        shard
    }

    fn some() -> Index {
        let (classes, many) = (vec!["a".into(), "b".into()], wide(70));
        let none = Shard::of(&Object::new("none.tar", 1024));
        Index { classes, shards: vec![shard(100, true), shard(9, false), none, many] }
    }

    #[test]
    fn what_is_kept_is_read() {
        let index = some();
        let bytes = index.encode().unwrap();
        assert_eq!(Index::parse(&bytes).unwrap(), index);
        assert_eq!(Index::parse(&Index::default().encode().unwrap()).unwrap(), Index::default());
        let one = &index.shards[0];
        assert_eq!((one.len(), one.samples.key(8), one.samples.members(8).len()), (100, "ä00001/ö8", 3));
        assert_eq!(one.extensions, ["jpg", "cls", "seg.png"]);

        let table = Table::open(Parts::Held(bytes.into()), "x".into(), None).unwrap();
        let [first, _, none, wide] = &table.shards[..] else { panic!("{table:?}") };
        assert_eq!((first.len(), none.len(), first.longest_key), (100, 0, 12));
        // A third each has one member, two and three; the largest of the second is known.
        assert_eq!((&first.layouts[..], first.most[1]), (&[34, 33, 33][..], 2966));
        assert_eq!(first.spans.iter().map(|(_, count, _)| count).sum::<u32>(), 100);
        let labels: Vec<_> = (0..6).map(|sample| wide.blob.label_of(sample).unwrap().unwrap()).collect();
        assert_eq!((labels, first.blob.label_of(0).unwrap()), (vec![-1, 200, 7, -1, 200, 7], None));
    }

    #[test]
    fn a_picture_with_its_label_takes_ten_bytes() {
        let mut shard = Shard::of(&Object::new("000.tar", 100 << 20));
        for i in 0..10_000 {
            shard.add(&format!("{i:09}.jpg"), 2560 * i + 512, 543 + i % 99, None).unwrap();
            shard.add(&format!("{i:09}.cls"), 2560 * i + 2048, 3, None).unwrap();
            shard.set_label(format!("{:03}", i % 1000).as_bytes());
        }
        let bytes = Index { classes: vec![], shards: vec![shard] }.encode().unwrap().len();
        assert!((100_000..110_000).contains(&bytes), "{bytes}");
    }

    #[test]
    fn labels_are_those_of_all_samples_or_none() {
        let labels = |members: &[(&str, Option<&str>)]| {
            let mut shard = Shard::of(&Object::new("x.tar", 1 << 20));
            for (i, (name, label)) in members.iter().enumerate() {
                let is_label = shard.add(name, 1024 * i as u64 + 512, 2, None).unwrap();
                assert_eq!(is_label, label.is_some(), "{name}");
                label.inspect(|label| shard.set_label(label.as_bytes()));
            }
            let read = Index::parse(&Index { classes: vec![], shards: vec![shard] }.encode().unwrap()).unwrap();
            read.shards[0].labels.clone()
        };
        assert_eq!(labels(&[("a.cls", Some("3")), ("a.jpg", None), ("b.jpg", None), ("b.cls", Some("4\r\n"))]), [3, 4]);
        for none in [
            &[("a.jpg", None), ("b.cls", Some("3"))][..],
            &[("a.cls", Some("3")), ("b.jpg", None)],
            &[("a.cls", Some("cat")), ("b.cls", Some("3"))],
            &[("a.cls", Some("3")), ("b.cls", Some("cat")), (".hidden", None), ("c.cls", Some("3"))],
            &[("a.x.cls", None)],
        ] {
            assert_eq!(labels(none), [0; 0], "{none:?}");
        }
    }

    #[test]
    fn damage_is_found_wherever_it_is() {
        let bytes = some().encode().unwrap();
        for at in 0..bytes.len() {
            assert!(Index::parse(&bytes[..at]).is_err(), "cut at {at}");
            let mut other = bytes.clone();
            other[at] ^= 0x10;
            assert!(Index::parse(&other).is_err(), "byte {at}");
        }
    }

    #[test]
    fn the_same_shards_in_another_order_are_another_index() {
        let parts = |shards: Vec<Shard>| Parts::Held(Index { classes: vec![], shards }.encode().unwrap().into());
        let other = |name: &str| Shard { name: name.into(), ..shard(40, false) };
        let (one, two) = (parts(vec![other("a"), other("b")]), parts(vec![other("b"), other("a")]));
        assert!(one.len() == two.len() && !one.is_same_table(&two) && one.is_same_table(&one));
    }

    #[test]
    fn samples_of_another_index_do_not_fit() {
        let (one, mut other) = (shard(100, false), shard(100, false));
        other.size += 512;
        let [one, other] = [one, other].map(|shard| Index { classes: vec![], shards: vec![shard] }.encode().unwrap());
        let table = Table::open(Parts::Held(one.clone().into()), "x".into(), None).unwrap();
        let samples = MAGIC.len()..MAGIC.len() + table.shards[0].blob.bytes().unwrap().len();
        let mixed = [&one[..samples.start], &other[samples.clone()], &one[samples.end..]].concat();
        assert!(Index::parse(&mixed).unwrap_err().contains("a checksum is wrong"));
        // Nor do two blocks of one shard in each other's place.
        let mut swapped = one.clone();
        let half = samples.start + 64;
        swapped[samples.start..half].copy_from_slice(&one[half..half + 64]);
        assert!(Index::parse(&swapped).is_err());
    }

    proptest! {
        /// With a checksum that is right, as somebody's own writer would make it.
        #[test]
        fn any_table_gives_an_index_or_words(at in 0usize..400, flip in any::<u8>(), cut in 0usize..2000) {
            let bytes = some().encode().unwrap();
            let (mut table, begins) = Parts::Held(bytes.clone().into()).table(MAGIC).unwrap();
            let at = at.min(table.len() - 1);
            table[at] ^= flip;
            table.truncate(table.len().saturating_sub(cut % 40));
            end_table(MAGIC, begins, &mut table);
            let _ = Index::parse(&[&bytes[..begins as usize], &table].concat());
        }

        #[test]
        fn any_block_gives_samples_or_nothing(at in 0usize..300, flip in any::<u8>(), cut in 0usize..300) {
            let (entry, mut samples) = Entry::of(&shard(32, true)).unwrap();
            let at = at.min(samples.len() - 1);
            samples[at] ^= flip;
            samples.truncate(samples.len().saturating_sub(cut));
            let _ = blob::decode(&samples, 32, &entry.shape, entry.size);
        }
    }
}
