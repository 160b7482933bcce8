//! Parts of a store's objects that opening a dataset reads, such as footers and offsets, kept for later openings and
//! for other processes of the machine.
//!
//! ```text
//! "infeed parts 01\n", the parts, then the table (`table_file.rs`):
//!   varint parts; of each: text kind and name of the object, varint size and text ETag of the object,
//!   varint bytes of the part, u64 xxh3 of them
//! ```
//!
//! A part is used while its object has the listed size and ETag. Objects without an ETag, and local files, are read
//! each time. Parts of objects that an opening does not look at stay.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    future::Future,
    io::{self, BufWriter, Write},
    ops::Range,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use infeed_core::error::Result;
use tokio::sync::OnceCell;
use xxhash_rust::xxh3::xxh3_64;

use super::{MachineLock, Manifest, Object, Parts, Rest, Source, end_table, number, text};

const MAGIC: &[u8; 16] = b"infeed parts 01\n";

/// What opening reads of a source's objects. One process of the machine at a time reads what is not kept; the others
/// wait for [`keep`](Self::keep).
#[derive(Debug)]
pub struct KeptParts {
    source: Source,
    /// `None` if nothing is kept.
    manifest: Option<Manifest>,
    kept: Mutex<Kept>,
    /// Taken before the first part is read, until all are kept.
    turn: OnceCell<Option<MachineLock>>,
    read: Mutex<BTreeMap<String, Read>>,
}

/// Parts in the file, by kind and name.
#[derive(Debug, Default)]
struct Kept {
    file: Option<Parts>,
    parts: BTreeMap<String, Part>,
}

#[derive(Debug, PartialEq)]
struct Part {
    size: u64,
    etag: String,
    range: Range<u64>,
    hash: u64,
}

/// A part that was read.
#[derive(Debug)]
struct Read {
    size: u64,
    etag: String,
    bytes: Bytes,
}

impl KeptParts {
    /// What is kept of a source; `manifests` is the folder of kept files, if the user chose one.
    #[must_use]
    pub fn of(source: &Source, manifests: Option<&Path>) -> Self {
        let manifest = source.manifest("parts", manifests).filter(|_| source.folder().is_none());
        let kept = manifest.as_ref().map(Kept::open).unwrap_or_default();
        let (source, turn) = (source.clone(), OnceCell::new());
        Self { source, manifest, kept: Mutex::new(kept), turn, read: Mutex::default() }
    }

    /// The source of the objects.
    #[must_use]
    pub const fn source(&self) -> &Source {
        &self.source
    }

    /// A part of an object: the kept one, otherwise what `read` returns. `kind` says which part it is. Cancel safe.
    ///
    /// # Errors
    /// Those of `read`.
    pub async fn get(&self, object: &Object, kind: &str, read: impl Future<Output = Result<Bytes>>) -> Result<Bytes> {
        let (Some(manifest), Some(etag)) = (&self.manifest, &object.etag) else { return read.await };
        let key = format!("{kind} {}", object.name);
        if let Some(kept) = self.kept(manifest, &key, object.size, etag) {
            return Ok(kept);
        }
        let turn = self.turn.get_or_init(|| async {
            let turn = self.source.machine_lock(Some(manifest)).await;
            if turn.as_ref().is_some_and(|turn| turn.waited) {
                *lock(&self.kept) = Kept::open(manifest);
            }
            turn
        });
        if turn.await.as_ref().is_some_and(|turn| turn.waited)
            && let Some(kept) = self.kept(manifest, &key, object.size, etag)
        {
            return Ok(kept);
        }
        let bytes = read.await?;
        // A copy, because the part may be a slice of a longer read.
        let part = Read { size: object.size, etag: etag.clone(), bytes: Bytes::copy_from_slice(&bytes) };
        lock(&self.read).insert(key, part);
        Ok(bytes)
    }

    /// A range of an object.
    ///
    /// # Errors
    /// Those of [`Source::read`].
    pub async fn range(&self, object: &Object, range: Range<u64>) -> Result<Bytes> {
        let kind = format!("{}-{}", range.start, range.end);
        let mut extent = object.extent(&self.source);
        extent.range = range;
        self.get(object, &kind, extent.read()).await
    }

    fn kept(&self, manifest: &Manifest, key: &str, size: u64, etag: &str) -> Option<Bytes> {
        let mut kept = lock(&self.kept);
        let part = kept.parts.get(key).filter(|part| part.size == size && part.etag == etag)?;
        match kept.bytes(part) {
            Ok(bytes) => Some(bytes),
            Err(wrong) => {
                // The file stays open, and `keep` takes over the other parts.
                manifest.forget(&wrong.to_string());
                kept.parts.remove(key);
                None
            }
        }
    }

    /// Keeps what was read, with what was kept before, and lets another process have its turn.
    pub fn keep(self) {
        let (kept, read) = (unlocked(self.kept), unlocked(self.read));
        if let Some(manifest) = self.manifest.filter(|_| !read.is_empty()) {
            // A file that can't be written is a warning.
            let _ = manifest.store_by(|file| write(file, &kept, &read));
        }
    }
}

impl Kept {
    fn open(manifest: &Manifest) -> Self {
        let Some(file) = manifest.open() else { return Self::default() };
        let parts = file
            .table(MAGIC)
            .and_then(|(table, end)| parse(&table, end).ok_or_else(|| "its content is invalid".to_owned()));
        match parts {
            Ok(parts) => Self { file: Some(file), parts },
            Err(wrong) => {
                manifest.forget(&wrong);
                Self::default()
            }
        }
    }

    fn bytes(&self, part: &Part) -> io::Result<Bytes> {
        let file = self.file.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let bytes = file.bytes(part.range.clone())?;
        match xxh3_64(&bytes) == part.hash {
            true => Ok(bytes),
            false => Err(io::Error::new(io::ErrorKind::InvalidData, "its checksum is wrong")),
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each critical section leaves it consistent.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unlocked<T>(of: Mutex<T>) -> T {
    of.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn parse(table: &[u8], end: u64) -> Option<BTreeMap<String, Part>> {
    let mut rest = Rest::of(table);
    let mut start = MAGIC.len() as u64;
    let part = |rest: &mut Rest<'_>| {
        let (key, size, etag) = (rest.text()?.to_owned(), rest.number()?, rest.text()?.to_owned());
        let range = start..start.checked_add(rest.number()?)?;
        start = range.end;
        let hash = u64::from_le_bytes(rest.take(8)?.try_into().ok()?);
        Some((key, Part { size, etag, range, hash }))
    };
    let parts = rest.list(12, part)?;
    (start == end && rest.is_empty()).then(|| parts.into_iter().collect())
}

fn write(file: &mut File, kept: &Kept, read: &BTreeMap<String, Read>) -> io::Result<()> {
    let mut out = BufWriter::new(file);
    out.write_all(MAGIC)?;
    let (mut end, mut parts, mut lines) = (MAGIC.len() as u64, 0, Vec::new());
    let mut add = |key: &str, size: u64, etag: &str, bytes: &[u8]| -> io::Result<()> {
        text(&mut lines, key);
        number(&mut lines, size);
        text(&mut lines, etag);
        number(&mut lines, bytes.len() as u64);
        lines.extend_from_slice(&xxh3_64(bytes).to_le_bytes());
        (end, parts) = (end + bytes.len() as u64, parts + 1);
        out.write_all(bytes)
    };
    for key in kept.parts.keys().chain(read.keys()).collect::<BTreeSet<_>>() {
        if let Some(Read { size, etag, bytes }) = read.get(key) {
            add(key, *size, etag, bytes)?;
        } else if let Some((part, bytes)) = kept.parts.get(key).and_then(|part| Some((part, kept.bytes(part).ok()?))) {
            // One that is damaged is read again when it is needed.
            add(key, part.size, &part.etag, &bytes)?;
        }
    }
    let mut table = Vec::new();
    number(&mut table, parts);
    table.append(&mut lines);
    end_table(MAGIC, end, &mut table);
    out.write_all(&table)?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use std::{
        path::PathBuf,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use proptest::prelude::*;
    use tempfile::TempDir;

    use super::*;

    /// A source whose objects are never read: tests have the parts.
    fn source() -> Source {
        let store = object_store::memory::InMemory::new();
        Source::from_store(std::sync::Arc::new(store), object_store::path::Path::default(), "test://parts")
    }

    fn object(name: &str, size: u64, etag: &str) -> Object {
        Object { etag: Some(etag.to_owned()), ..Object::new(name, size) }
    }

    /// A part, and whether it had to be read.
    async fn get(kept: &KeptParts, object: &Object, kind: &str, bytes: &'static str) -> (Bytes, bool) {
        let reads = AtomicUsize::new(0);
        let read = async {
            reads.fetch_add(1, Ordering::Relaxed);
            Ok(Bytes::from_static(bytes.as_bytes()))
        };
        (kept.get(object, kind, read).await.unwrap(), reads.into_inner() > 0)
    }

    fn file(dir: &TempDir) -> PathBuf {
        source().manifest("parts", Some(dir.path())).unwrap().file().to_owned()
    }

    #[tokio::test]
    async fn a_part_is_read_once_until_its_object_changes() {
        let dir = TempDir::new().unwrap();
        let open = || KeptParts::of(&source(), Some(dir.path()));
        let (a, b) = (object("a", 10, "1"), object("b", 10, "1"));
        let kept = open();
        for (object, kind, bytes) in [(&a, "head", "one"), (&a, "end", ""), (&b, "head", "two")] {
            assert_eq!(get(&kept, object, kind, bytes).await, (bytes.into(), true));
        }
        kept.keep();
        for (object, read) in
            [(object("a", 10, "1"), false), (object("a", 10, "2"), true), (object("a", 11, "2"), true)]
        {
            let kept = open();
            let want = if read { "new" } else { "one" };
            assert_eq!(get(&kept, &object, "head", "new").await, (want.into(), read), "{object:?}");
            kept.keep();
        }
        // Those that nobody asked for have stayed, and the others are not there.
        let kept = open();
        assert_eq!(get(&kept, &a, "end", "new").await, ("".into(), false));
        assert_eq!(get(&kept, &b, "head", "new").await, ("two".into(), false));
        assert_eq!(get(&kept, &a, "head", "old").await, ("old".into(), true));
        assert_eq!(get(&kept, &b, "end", "new").await, ("new".into(), true));
    }

    #[tokio::test]
    async fn nothing_is_kept_of_local_files_and_of_objects_without_a_version() {
        let (dir, data) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let local = Source::parse(data.path().to_str().unwrap()).unwrap();
        for (source, object) in [(local, object("a", 10, "1")), (source(), Object::new("a", 10))] {
            for _ in 0..2 {
                let kept = KeptParts::of(&source, Some(dir.path()));
                assert_eq!(get(&kept, &object, "head", "x").await, ("x".into(), true));
                kept.keep();
            }
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn who_waits_for_another_has_what_that_one_read() {
        let dir = TempDir::new().unwrap();
        let (first, second) = (KeptParts::of(&source(), Some(dir.path())), KeptParts::of(&source(), Some(dir.path())));
        let a = object("a", 10, "1");
        assert_eq!(get(&first, &a, "head", "first").await, ("first".into(), true));
        let waits = get(&second, &a, "head", "second");
        let (second, ()) = tokio::join!(waits, async { first.keep() });
        assert_eq!(second, ("first".into(), false));
    }

    proptest! {
        /// With a checksum that is right.
        #[test]
        fn any_table_is_read_or_refused(at in 0usize..200, flip in any::<u8>(), cut in 0usize..60) {
            let dir = TempDir::new().unwrap();
            let kept = KeptParts::of(&source(), Some(dir.path()));
            futures::executor::block_on(async {
                for name in ["a", "b/c"] {
                    get(&kept, &object(name, 300, "\"x\""), "head", "some bytes").await;
                }
            });
            kept.keep();
            let file = Parts::Held(std::fs::read(file(&dir)).unwrap().into());
            let (mut table, end) = file.table(MAGIC).unwrap();
            let at = at % table.len();
            table[at] ^= flip;
            table.truncate(table.len().saturating_sub(cut % 30));
            let Some(parts) = parse(&table, end) else { return Ok(()) };
            let kept = Kept { file: Some(file), parts };
            for part in kept.parts.values() {
                let bytes = kept.bytes(part);
                prop_assert!(bytes.is_err() || bytes.unwrap() == "some bytes");
            }
        }
    }
}
