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
    collections::BTreeMap,
    future::Future,
    io::{self, Write},
    ops::Range,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use infeed_core::error::Result;
use tokio::sync::OnceCell;
use xxhash_rust::xxh3::xxh3_64;

use super::{MachineLock, Manifest, Object, Parts, Rest, Source, end_table, manifest::Draft, number, text};

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
    new: Mutex<New>,
}

/// The file that replaces the kept one, with the parts that were read so far.
#[derive(Debug, Default)]
struct New {
    /// `None` before the first part, and after a failure.
    draft: Option<Draft>,
    end: u64,
    parts: BTreeMap<String, Part>,
    has_failed: bool,
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

impl KeptParts {
    /// What is kept of a source; `manifests` is the folder of kept files, if the user chose one.
    #[must_use]
    pub fn of(source: &Source, manifests: Option<&Path>) -> Self {
        let manifest = source.manifest("parts", manifests).filter(|_| source.folder().is_none());
        let kept = manifest.as_ref().map(Kept::open).unwrap_or_default();
        let (source, turn) = (source.clone(), OnceCell::new());
        Self { source, manifest, kept: Mutex::new(kept), turn, new: Mutex::default() }
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
        lock(&self.new).add(manifest, key, (object.size, etag), &bytes);
        Ok(bytes)
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
        let (kept, mut new) = (unlocked(self.kept), unlocked(self.new));
        let Some(manifest) = self.manifest.filter(|_| new.draft.is_some()) else { return };
        for (key, part) in &kept.parts {
            // One that is damaged is read again when it is needed.
            if !new.parts.contains_key(key)
                && let Ok(bytes) = kept.bytes(part)
            {
                new.add(&manifest, key.clone(), (part.size, &part.etag), &bytes);
            }
        }
        if let Some(mut draft) = new.draft {
            let table = table(new.end, &new.parts);
            let kept = draft.file.write_all(&table).and_then(|()| draft.commit(&manifest));
            let _ = kept.inspect_err(|error| manifest.is_not_kept(error));
        }
    }
}

impl New {
    /// Adds a part, or warns that nothing can be kept.
    fn add(&mut self, manifest: &Manifest, key: String, (size, etag): (u64, &str), bytes: &[u8]) {
        if self.has_failed || self.parts.contains_key(&key) {
            return;
        }
        let draft = self.draft.take().map_or_else(|| self.begin(manifest), Ok);
        let added = draft.and_then(|mut draft| draft.file.write_all(bytes).map(|()| draft));
        match added {
            Ok(draft) => {
                let range = self.end..self.end + bytes.len() as u64;
                self.end = range.end;
                self.parts.insert(key, Part { size, etag: etag.to_owned(), range, hash: xxh3_64(bytes) });
                self.draft = Some(draft);
            }
            Err(error) => {
                manifest.is_not_kept(&error);
                self.has_failed = true;
            }
        }
    }

    fn begin(&mut self, manifest: &Manifest) -> io::Result<Draft> {
        let mut draft = manifest.draft()?;
        draft.file.write_all(MAGIC)?;
        self.end = MAGIC.len() as u64;
        Ok(draft)
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

/// The table of the parts of a file, and what follows it.
fn table(end: u64, parts: &BTreeMap<String, Part>) -> Vec<u8> {
    // The table has no positions: parts are listed in the order in which they lie in the file.
    let mut parts: Vec<_> = parts.iter().collect();
    parts.sort_unstable_by_key(|(_, part)| part.range.start);
    let mut out = Vec::new();
    number(&mut out, parts.len() as u64);
    for (key, Part { size, etag, range, hash }) in parts {
        text(&mut out, key);
        number(&mut out, *size);
        text(&mut out, etag);
        number(&mut out, range.end - range.start);
        out.extend_from_slice(&hash.to_le_bytes());
    }
    end_table(MAGIC, end, &mut out);
    out
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
    async fn where_nothing_can_be_kept_parts_are_read_each_time() {
        let dir = TempDir::new().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "no folder").unwrap();
        for _ in 0..2 {
            let kept = KeptParts::of(&source(), Some(&file));
            for kind in ["head", "end"] {
                assert_eq!(get(&kept, &object("a", 10, "1"), kind, "x").await, ("x".into(), true));
            }
            kept.keep();
        }
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
