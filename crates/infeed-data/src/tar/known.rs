//! The positions of the samples of shards: taken from an index, otherwise found by a pass over the tar, and kept.
//!
//! ```text
//! Known::load: shards.infeed, NAME.infeed, what is kept elsewhere ─▶ entries by name
//!       └ shards: those of the tars that are there; others ─ one process at a time ─ walk ─▶ spool ─▶ kept, and opened
//! write_index: the same, but all of them into a shards.infeed next to the tars
//! ```
//!
//! Opening writes nothing next to the data: a folder may be a snapshot, or read by others at the same time.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    io,
    sync::Arc,
};

use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use infeed_core::error::{Error, ErrorKind, Result, setting::ALLOW_INCOMPLETE};
use infeed_store::{Beside, Manifest, Object, Parts, Source};
use tempfile::{SpooledData, SpooledTempFile};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    index::{ENDING, Entry, INDEX, IndexFile, IndexWriter, Shape, Table, unwritten},
    shard::Shard,
    walk, wds2idx,
};
use crate::{
    format::{Findings, OpenOptions},
    names::{base, parent},
    passes::{AT_A_TIME, pass_each},
};

/// Indexes of this many bytes or more are copied to a local file; smaller ones are kept in memory, which is cheaper.
const COPIED: u64 = 1 << 20;

/// For a local folder the index is kept from this number of samples on. Indexing fewer takes 30 ms.
const KEPT: u64 = 20_000;

/// While an index is being made, at most this many of its bytes stay in memory.
const SPOOLED: usize = 32 << 20;

/// An index that [`write_index`](super::write_index) has written.
///
/// ```no_run
/// # async fn f(source: infeed::source::Source) -> infeed::Result<()> {
/// let written = infeed::dataset::write_index(&source).await?;
/// println!("{}: {} bytes, {} samples a tar", written.name, written.bytes, written.records / written.shards);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WrittenIndex {
    /// Path or url of the file.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Tars in it.
    pub shards: u64,
    /// Samples in these.
    pub records: u64,
}

/// The content of indexes, of a folder and of single shards.
#[derive(Debug, Default)]
pub(super) struct Known {
    entries: HashMap<Arc<str>, Entry>,
    classes: Vec<String>,
    /// DALI's indexes, by the name without extension.
    foreign: HashMap<String, Object>,
    /// The index of this place that an earlier opening kept elsewhere.
    elsewhere: Option<Manifest>,
    /// Indexes that are kept nowhere, for a second opening by the same [`Open`](crate::Open).
    findings: Findings,
}

impl Known {
    pub(super) async fn load(source: &Source, objects: &[Object], options: &OpenOptions) -> Result<Self> {
        let mut known = Self { findings: options.findings.clone(), ..Self::default() };
        // Indexes of single shards are read only in folders without a common index.
        let mut files: Vec<&Object> = objects.iter().filter(|o| o.name.ends_with(ENDING)).collect();
        let whole: HashSet<&str> = files.iter().filter(|o| base(&o.name) == INDEX).map(|o| parent(&o.name)).collect();
        files.retain(|o| base(&o.name) == INDEX || !whole.contains(parent(&o.name)));
        files.sort_by_key(|o| base(&o.name) == INDEX);
        let reads: Vec<_> = files.into_iter().map(|object| open_index(source, object, options)).collect();
        let mut reads = stream::iter(reads).buffered(AT_A_TIME);
        while let Some((name, parts, copy)) = reads.try_next().await? {
            known.add_file(source, &name, parts, copy);
        }
        known.elsewhere = source.manifest("shards", options.manifests.as_deref());
        known.add_elsewhere();
        for entry in options.findings.get::<Vec<Entry>>(source.url()).iter().flat_map(|found| found.iter()) {
            known.entries.entry(Arc::clone(&entry.name)).or_insert_with(|| entry.clone());
        }
        for object in objects.iter().filter(|o| o.name.ends_with(".idx")) {
            let stem = object.name.trim_end_matches(".idx");
            known.foreign.insert(stem.trim_end_matches(".tar").to_owned(), object.clone());
        }
        Ok(known)
    }

    /// Adds an index that is next to the shards, or the local copy of it.
    fn add_file(&mut self, source: &Source, name: &str, parts: Parts, copy: Option<Manifest>) {
        let file = source.display_name(name);
        match Table::open(parts, file.clone(), copy) {
            Ok(table) => {
                if table.old {
                    tracing::warn!(
                        file,
                        "the index of shards has an earlier version: write it again with infeed index"
                    );
                }
                self.add(table, parent(name));
            }
            Err(wrong) => tracing::warn!(file, "the index of shards is not used: {wrong}"),
        }
    }

    fn add_elsewhere(&mut self) {
        let Some(kept) = &self.elsewhere else { return };
        let Some(parts) = kept.open() else { return };
        match Table::open(parts, kept.file().display().to_string(), Some(kept.clone())) {
            Ok(table) => self.add(table, ""),
            Err(wrong) => kept.forget(&wrong),
        }
    }

    fn add(&mut self, table: Table, folder: &str) {
        if !table.classes.is_empty() {
            self.classes = table.classes;
        }
        for mut entry in table.shards {
            if !folder.is_empty() {
                entry.name = format!("{folder}/{}", entry.name).into();
            }
            // Indexes next to the shards were read first, and take precedence.
            self.entries.entry(Arc::clone(&entry.name)).or_insert(entry);
        }
    }

    /// An error if shards of a `prepare` are missing: a rank has not finished, or a copy was interrupted. Not checked
    /// for shards that the user names one by one.
    pub(super) fn check_complete(&self, source: &Source, objects: &[Object], tars: &[&Object]) -> Result<()> {
        if source.only().is_some() {
            return Ok(());
        }
        let mut jobs = BTreeMap::new();
        for tar in tars {
            // Entries of other tars may be out of date.
            if let Some(entry) = self.entries.get(tar.name.as_str()).filter(|entry| entry.job != 0 && entry.is_of(tar))
                && let Some((name, _)) = entry.name.rsplit_once('-')
            {
                jobs.insert((name, entry.job), entry.job_shards);
            }
        }
        let here: HashSet<&str> = objects.iter().map(|object| object.name.as_str()).collect();
        for ((name, _), of) in jobs {
            let missing: Vec<String> =
                (0..of).map(|i| format!("{name}-{i:06}.tar")).filter(|tar| !here.contains(tar.as_str())).collect();
            let [first, ..] = &missing[..] else { continue };
            let some = missing.iter().take(8).map(|tar| base(tar)).collect::<Vec<_>>().join(", ");
            let others = if missing.len() > 8 { ", …" } else { "" };
            let what = format!("{} of {of} shards of a `prepare` are not there: {some}{others}", missing.len());
            return Err(Error::new(ErrorKind::NotFound, what).at_object(source.display_name(first)).with_hint(format!(
                "let the other ranks finish, or run `infeed prepare` again with the same settings, which makes what is \
                 missing; {ALLOW_INCOMPLETE} takes what is there",
            )));
        }
        Ok(())
    }

    /// All of `tars` with their samples: from indexes, otherwise found and kept.
    pub(super) async fn shards(mut self, source: &Source, tars: &[&Object]) -> Result<(Vec<Entry>, Vec<String>)> {
        let (mut entries, mut unknown) = self.take(source, tars);
        // A single shard of a folder says nothing about the others, and indexing it is quick, so its index is not kept.
        let keeps = source.folder().is_none() || source.only().is_none();
        let turn = match keeps && !unknown.is_empty() {
            true => source.machine_lock(self.elsewhere.as_ref()).await,
            false => None,
        };
        if turn.as_ref().is_some_and(|turn| turn.waited) {
            self.load_again(source, entries);
            (entries, unknown) = self.take(source, tars);
        }
        if !unknown.is_empty() {
            self.find(source, tars, &mut entries, &unknown, keeps).await?;
        }
        let all: Option<Vec<Entry>> = entries.into_iter().collect();
        let all = all.ok_or_else(|| Error::new(ErrorKind::Internal, "a shard was not indexed"))?;
        Ok((all, self.classes))
    }

    /// Writes the index of all of `tars` next to them.
    pub(super) async fn write(mut self, source: &Source, tars: &[&Object]) -> Result<WrittenIndex> {
        let (mut entries, unknown) = self.take(source, tars);
        let mut spool = Spool::new()?;
        self.find_into(&mut spool, source, tars, &mut entries, &unknown).await?;
        spool.add_known(&entries)?;
        let parts = spool.finish(&self.classes)?;
        let object = source.put_parts(INDEX, &parts).await?;
        let records = entries.iter().flatten().map(Entry::samples).sum();
        let (name, shards) = (source.display_name(INDEX), tars.len() as u64);
        Ok(WrittenIndex { name, bytes: object.size, shards, records })
    }

    /// Adds what another process has found meanwhile to what was known before.
    fn load_again(&mut self, source: &Source, taken: Vec<Option<Entry>>) {
        let before = std::mem::take(&mut self.entries).into_values().chain(taken.into_iter().flatten());
        if let Some(Ok(file)) = source.open_file(INDEX)
            && let Ok(parts) = Parts::of_file(file)
        {
            self.add_file(source, INDEX, parts, None);
        }
        self.add_elsewhere();
        for entry in before {
            self.entries.entry(Arc::clone(&entry.name)).or_insert(entry);
        }
    }

    /// Takes the entry of each tar if there is one, and returns the indices of the tars without.
    fn take(&mut self, source: &Source, tars: &[&Object]) -> (Vec<Option<Entry>>, Vec<usize>) {
        let mut unknown = Vec::new();
        let mut entry = |(i, tar): (usize, &&Object)| {
            let known = self.entries.remove(tar.name.as_str());
            if let Some(known) = known.as_ref().filter(|known| !known.is_of(tar)) {
                let file = source.display_name(&tar.name);
                let (size, told) = (tar.size, known.size);
                tracing::warn!(file, size, told, "the tar has changed since it was indexed; indexing it again");
            }
            let known = known.filter(|known| known.is_of(tar));
            if known.is_none() {
                unknown.push(i);
            }
            // With the ETag of the current version, so that a later one is recognised as different.
            known.map(|known| known.with_etag(tar.etag.as_deref()))
        };
        let entries = tars.iter().enumerate().map(&mut entry).collect();
        (entries, unknown)
    }

    /// Indexes shards. If `keeps` is set, keeps the result for the next opening, together with all that was known
    /// before.
    async fn find(
        &self,
        source: &Source,
        tars: &[&Object],
        entries: &mut [Option<Entry>],
        unknown: &[usize],
        keeps: bool,
    ) -> Result<()> {
        let mut spool = Spool::new()?;
        self.find_into(&mut spool, source, tars, entries, unknown).await?;
        let records: u64 = entries.iter().flatten().map(Entry::samples).sum();
        let kept = self.elsewhere.as_ref().filter(|_| keeps && (source.folder().is_none() || records >= KEPT));
        if kept.is_some() {
            spool.add_known(entries)?;
            // Including shards that were not asked for this time.
            for other in self.entries.values() {
                spool.add(other)?;
            }
        }
        let places = std::mem::take(&mut spool.places);
        let file = Arc::new(keep(spool.finish(&self.classes)?, kept));
        for (i, at) in places {
            entries[i] = entries[i].take().map(|known| known.moved(&file, at));
        }
        if file.kept.is_none() {
            let found: Vec<Entry> = entries.iter().flatten().cloned().collect();
            self.findings.put(source.url(), found);
        }
        Ok(())
    }

    /// Indexes shards into a spool.
    async fn find_into(
        &self,
        spool: &mut Spool,
        source: &Source,
        tars: &[&Object],
        entries: &mut [Option<Entry>],
        unknown: &[usize],
    ) -> Result<()> {
        if !unknown.is_empty() {
            tracing::info!(shards = unknown.len(), url = source.url(), "indexing tar shards");
        }
        let mut shapes: HashSet<Arc<Shape>> = HashSet::new();
        let mut endless = Vec::new();
        let mut found = find_each(source, tars, unknown, &self.foreign);
        while let Some(one) = found.next().await {
            let (i, mut entry, samples, has_no_end) = one?;
            if has_no_end {
                endless.push(i);
            }
            match shapes.get(&entry.shape) {
                Some(shape) => entry.shape = Arc::clone(shape),
                None => _ = shapes.insert(Arc::clone(&entry.shape)),
            }
            let at = spool.writer.add(&entry, &samples).map_err(no_room)?;
            spool.places.push((i, at));
            entries[i] = Some(entry);
        }
        if let Some(first) = endless.iter().min() {
            tracing::warn!(
                count = endless.len(),
                first = source.display_name(&tars[*first].name),
                "tars have no zeros at their ends: members may be missing, if they were cut or their writers were stopped; \
                 write or fetch them again"
            );
        }
        Ok(())
    }
}

/// An index while it is made.
struct Spool {
    writer: IndexWriter<SpooledTempFile>,
    /// The shards in it, by their number among all, and where each is.
    places: Vec<(usize, u64)>,
}

impl Spool {
    fn new() -> Result<Self> {
        let writer = IndexWriter::new(SpooledTempFile::new(SPOOLED)).map_err(no_room)?;
        Ok(Self { writer, places: Vec::new() })
    }

    /// Adds a shard that another index holds; returns its place.
    fn add(&mut self, entry: &Entry) -> Result<u64> {
        self.writer.add(entry, &entry.blob.bytes()?).map_err(no_room)
    }

    /// Adds those of all shards that are not in it.
    fn add_known(&mut self, entries: &[Option<Entry>]) -> Result<()> {
        let here: HashSet<usize> = self.places.iter().map(|(i, _)| *i).collect();
        for (i, entry) in entries.iter().enumerate().filter(|(i, _)| !here.contains(i)) {
            let Some(entry) = entry else { continue };
            let at = self.add(entry)?;
            self.places.push((i, at));
        }
        Ok(())
    }

    fn finish(self, classes: &[String]) -> Result<Parts> {
        match self.writer.finish(classes).map_err(no_room)?.into_inner() {
            SpooledData::InMemory(bytes) => Ok(Parts::Held(bytes.into_inner().into())),
            SpooledData::OnDisk(file) => Parts::of_file(file).map_err(no_room),
        }
    }
}

fn no_room(error: io::Error) -> Error {
    unwritten(error).with_hint("set TMPDIR to a folder with room for it")
}

/// Writes an index to the folder for manifests. If that is not possible, the index is used only this time.
fn keep(spool: Parts, kept: Option<&Manifest>) -> IndexFile {
    // Another process may have written one meanwhile: of other shards, or of the same at other places in the file.
    let stored =
        kept.and_then(|kept| Some((kept, kept.store_parts(&spool).filter(|parts| parts.is_same_table(&spool))?)));
    match stored {
        Some((kept, parts)) => IndexFile { parts, name: kept.file().display().to_string(), kept: Some(kept.clone()) },
        None => in_memory(spool),
    }
}

fn in_memory(parts: Parts) -> IndexFile {
    IndexFile { parts, ..IndexFile::default() }
}

/// An index, and the manifest that keeps a copy of it. An index of all shards is an open file; others are held in
/// memory, because there may be thousands of single ones.
async fn open_index(
    source: &Source,
    object: &Object,
    options: &OpenOptions,
) -> Result<(String, Parts, Option<Manifest>)> {
    let name = object.name.clone();
    let file = if base(&name) == INDEX { source.open_file(&name) } else { None };
    if let Some(parts) = file.and_then(|file| Parts::of_file(file.ok()?).ok()) {
        return Ok((name, parts, None));
    }
    // For a bucket a copy is kept, which all processes of this machine read.
    let copy = copy_of(source, object, options);
    let whole = |parts: &Parts| parts.len() == object.size;
    if let Some(copy) = &copy
        && let Some(parts) = copy.open().filter(whole)
    {
        return Ok((name, parts, Some(copy.clone())));
    }
    let held = Parts::Held(Beside::Table.read(source, object).await?);
    let kept = copy.and_then(|copy| {
        copy.forget_versions();
        Some((copy.store_parts(&held).filter(whole)?, copy))
    });
    Ok(match kept {
        Some((parts, copy)) => (name, parts, Some(copy)),
        None => (name, held, None),
    })
}

/// The file for a copy of a store's index: named by the index's name and, after the last `-`, its version.
fn copy_of(source: &Source, object: &Object, options: &OpenOptions) -> Option<Manifest> {
    let is_worth = source.folder().is_none() && base(&object.name) == INDEX && object.size >= COPIED;
    let etag = object.etag.as_deref().filter(|_| is_worth)?;
    let (name, version) = (xxh3_64(object.name.as_bytes()), xxh3_64(etag.as_bytes()));
    source.manifest(&format!("index-{name:016x}-{version:016x}"), options.manifests.as_deref())
}

/// A tar's number among all, its entry, the bytes of its samples, and whether it has no end.
type IndexedTar = Result<(usize, Entry, Vec<u8>, bool)>;

/// Indexes shards, in any order.
fn find_each(
    source: &Source,
    tars: &[&Object],
    unknown: &[usize],
    foreign: &HashMap<String, Object>,
) -> stream::BoxStream<'static, IndexedTar> {
    let todo = unknown.iter().map(|i| (*i, tars[*i].clone(), foreign.get(stem(tars[*i])).cloned()));
    let todo: Arc<[(usize, Object, Option<Object>)]> = todo.collect();
    let (of, count) = (source.clone(), todo.len());
    let one = move |at: usize| {
        let (source, todo) = (of.clone(), Arc::clone(&todo));
        async move {
            let (i, tar, foreign) = &todo[at];
            let shard = index(&source, tar, foreign.as_ref()).await?;
            let (entry, samples) = Entry::of(&shard)?;
            Ok((*i, entry, samples, shard.has_no_end))
        }
        .boxed()
    };
    pass_each(source, count, one)
}

/// The name of a tar without its extension, which may be upper case.
fn stem(tar: &Object) -> &str {
    &tar.name[..tar.name.len() - ".tar".len()]
}

async fn index(source: &Source, tar: &Object, foreign: Option<&Object>) -> Result<Shard> {
    if let Some(object) = foreign {
        let bytes = Beside::Table.read(source, object).await?;
        match wds2idx::parse(&bytes, tar) {
            Ok(shard) => return Ok(shard),
            Err(wrong) => {
                let file = source.display_name(&object.name);
                tracing::warn!(file, "the index is not used: {wrong}");
            }
        }
    }
    walk::walk(source, tar).await
}

#[cfg(test)]
mod tests {
    use std::fs;

    use futures::executor::block_on;

    use super::*;
    use crate::{
        Dataset, Open,
        tar::{BLOCK, Index, header, padded},
    };

    /// A tar of samples with a text and a label each.
    fn tar(first: usize, count: usize) -> Vec<u8> {
        let mut tar = Vec::new();
        for i in first..first + count {
            for (name, content) in
                [(format!("{i:05}.txt"), "x".repeat(i % 700)), (format!("{i:05}.cls"), i.to_string())]
            {
                tar.extend_from_slice(&header(&name, content.len() as u64).unwrap());
                tar.extend_from_slice(content.as_bytes());
                tar.resize(padded(tar.len() as u64) as usize, 0);
            }
        }
        tar.resize(tar.len() + 2 * BLOCK as usize, 0);
        tar
    }

    fn folder() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..3 {
            fs::write(dir.path().join(format!("{n}.tar")), tar(n * 100, 100)).unwrap();
        }
        dir
    }

    fn open(dir: &tempfile::TempDir, url: &str) -> Arc<dyn Dataset> {
        let url = dir.path().join(url).display().to_string();
        block_on(Open::of_url(url, &crate::HERE).into_future()).unwrap()
    }

    fn kept(dir: &tempfile::TempDir) -> Option<Index> {
        Some(Index::parse(&fs::read(dir.path().join(INDEX)).ok()?).unwrap())
    }

    fn write(dir: &tempfile::TempDir) -> Result<WrittenIndex> {
        let source = Source::parse(&dir.path().display().to_string()).unwrap();
        block_on(super::super::write_index(&source))
    }

    #[test]
    fn opening_writes_nothing_beside_the_shards_and_an_index_is_written_when_asked() {
        let dir = folder();
        let dataset = open(&dir, "");
        assert_eq!(kept(&dir), None);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
        let written = write(&dir).unwrap();
        let name = dir.path().join(INDEX);
        assert_eq!((written.name, written.shards, written.records), (name.display().to_string(), 3, 300));
        assert_eq!(written.bytes, fs::metadata(&name).unwrap().len());
        let with = open(&dir, "");
        assert_eq!((with.fingerprint(), with.len()), (dataset.fingerprint(), 300));
        // Written again it has the same samples (its blocks are in the order in which shards were read), and an entry of
        // a shard that has gone is left out.
        write(&dir).unwrap();
        let again = open(&dir, "");
        assert_eq!((again.fingerprint(), again.len()), (dataset.fingerprint(), 300));
        assert!((0..300).all(|record| again.object(record) == dataset.object(record)));
        fs::remove_file(dir.path().join("1.tar")).unwrap();
        assert_eq!(write(&dir).unwrap().records, 200);
        assert_eq!(kept(&dir).unwrap().shards.len(), 2);
    }

    #[test]
    fn an_index_is_of_a_folder_of_tars() {
        let dir = folder();
        let source = |name: &str| Source::parse(&dir.path().join(name).display().to_string()).unwrap();
        let error = |source: &Source| block_on(super::super::write_index(source)).unwrap_err().to_string();
        let one = error(&source("0.tar"));
        assert!(one.contains("name the folder"), "{one}");
        fs::create_dir(dir.path().join("empty")).unwrap();
        let none = error(&source("empty"));
        assert!(none.contains("tar"), "{none}");
    }

    #[test]
    fn an_index_of_an_earlier_version_is_read_and_written_again_when_asked() {
        let dir = folder();
        write(&dir).unwrap();
        let dataset = open(&dir, "");
        let mut known = kept(&dir).unwrap();
        let of_now = fs::read(dir.path().join(INDEX)).unwrap();
        known.shards.iter_mut().for_each(|shard| shard.labels.clear());
        let of_then = super::super::index::as_version_3(&known);
        fs::write(dir.path().join(INDEX), &of_then).unwrap();
        let of_before = open(&dir, "");
        assert_eq!((of_before.fingerprint(), of_before.len()), (dataset.fingerprint(), 300));
        assert_eq!(of_before.largest_read(), dataset.largest_read());
        assert_eq!(fs::read(dir.path().join(INDEX)).unwrap(), of_then);
        write(&dir).unwrap();
        // Without what version 3 did not tell.
        assert_eq!(kept(&dir).unwrap(), known);
        let written = fs::read(dir.path().join(INDEX)).unwrap();
        assert!(written.starts_with(&of_now[..16]) && written.len() < of_now.len());
    }

    #[test]
    fn shards_that_changed_are_indexed_again_and_the_others_are_kept() {
        let dir = folder();
        write(&dir).unwrap();
        let before = kept(&dir).unwrap();
        fs::write(dir.path().join("1.tar"), tar(100, 50)).unwrap();
        fs::write(dir.path().join("3.tar"), tar(300, 7)).unwrap();
        assert_eq!(open(&dir, "").len(), 257);
        assert_eq!(kept(&dir).unwrap(), before);
        write(&dir).unwrap();
        let after = kept(&dir).unwrap();
        let (before, after) = (before.shards, after.shards);
        assert_eq!([&after[0], &after[2]], [&before[0], &before[2]]);
        assert_eq!((after[1].len(), after[3].len(), after[3].labels[6]), (50, 7, 306));
        // One shard alone is known from the index of all.
        assert_eq!(open(&dir, "{1..2}.tar").len(), 150);
    }

    #[test]
    fn the_index_of_a_large_folder_is_kept_elsewhere_and_a_damaged_one_is_forgotten() {
        let (dir, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(dir.path().join("0.tar"), tar(0, KEPT as usize)).unwrap();
        let open = || {
            let url = dir.path().display().to_string();
            block_on(Open::of_url(url, &crate::HERE).manifests(kept.path()).into_future()).unwrap()
        };
        open();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        let files = || fs::read_dir(kept.path()).unwrap().map(|file| file.unwrap().path()).collect::<Vec<_>>();
        let [file] = &files()[..] else { panic!("{:?}", files()) };
        let mut bytes = fs::read(file).unwrap();
        bytes[200] ^= 1;
        fs::write(file, bytes).unwrap();
        let dataset = open();
        let plan = |record| dataset.plan(record, infeed_core::random::SampleRng::new(0, 0, record));
        assert!(
            (0..300)
                .any(|record| plan(record).is_err_and(|e| e.to_string().contains("the index of shards is damaged")))
        );
        assert!(files().is_empty(), "the next opening makes it anew");
        open();
        assert_eq!(files().len(), 1);
        // Of a small folder nothing is kept.
        fs::write(dir.path().join("0.tar"), tar(0, 100)).unwrap();
        fs::remove_file(&files()[0]).unwrap();
        open();
        assert!(files().is_empty());
    }
}
