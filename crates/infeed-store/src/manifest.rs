//! Keeps what was found out about a place for the next time, with one policy for all kinds.
//!
//! ```text
//! Open::manifests, else INFEED_MANIFEST_DIR (`off`: nowhere), else $XDG_CACHE_HOME/infeed, else ~/.cache/infeed
//!   └ PLACE.KIND    a place is a folder of this machine, or endpoint, bucket and prefix
//!       └ "infeed … N\n", u64 bytes of the body, u128 xxh3 of the body, the body             little-endian
//! ```
//!
//! | kind | contains | is kept | is trusted |
//! |---|---|---|---|
//! | `manifest` | names, sizes and ETags of a bucket (`listing/format.rs`) | from 20,000 objects on | after a comparison with the store (`listing/bucket.rs`); after one difference the bucket is listed again |
//! | `folder` | names and sizes of a local folder, with stamps that identify the state of its folders (`listing/local/kept.rs`) | from 20,000 files on, if a place for it was set | folder by folder, after a look at each; until a file turns out to have another size |
//! | `images-…` | classes, labels, sizes and identity of a folder of images (`dataset::folder`) | after opening a folder whose listing is kept | if the listing is the same, with the same options |
//! | `shards` | places of samples in tars (`dataset::tar`) | after indexing shards of a store, or 20,000 samples of a folder | shard by shard, if it has the listed size and ETag |
//! | `index-…` | a copy of an index of tars in a bucket | if it has 1 MiB or more | as long as the bucket's index has its ETag |
//! | `coco-…` | annotations of COCO's JSON (`dataset::coco`) | after parsing a JSON of 16 MiB or more | if the JSON has the same bytes (local) or ETag (store), and the same options |
//! | `places`, `json` | places of records in TFRecords, in JSON lines and lists | after indexing files of a store, compressed files, or 20,000 records of a folder | file by file, if it has the listed size and ETag |
//! | `parts` | footers of Parquet, offsets and `index.json` of MDS in a store (`kept_parts.rs`) | after reading them | object by object, if it has the listed size and ETag |
//!
//! Each file is written aside and renamed, so that a crash leaves the old one and two jobs do not mix. A file that is
//! damaged, of another version, unreadable, or found to be wrong is removed and made again, with a warning. If a file
//! can't be written, that is a warning, not an error. A store made by the caller has no name that another process would
//! recognise, and an in-memory store ends with its process: for these, files are kept only in a folder that the user
//! set.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use infeed_core::fingerprint::Fingerprint;
use xxhash_rust::xxh3::xxh3_128;

use super::{Beside, Parts, connect::Vars};

/// A draft that nobody has written for this long was left by a process that was killed.
const LEFT_OVER: Duration = Duration::from_secs(24 * 60 * 60);

/// The file that keeps something about a place.
#[derive(Clone, Debug)]
pub struct Manifest {
    file: PathBuf,
}

impl Manifest {
    /// The folder of all manifests: `chosen`, or the folder set by the variables; `None` if there is none.
    pub(super) fn folder(vars: &Vars, chosen: Option<&Path>) -> Option<PathBuf> {
        match vars.get("INFEED_MANIFEST_DIR") {
            _ if chosen.is_some() => chosen.map(Path::to_owned),
            Some(_) => Self::named(vars, chosen),
            None => {
                let home = || vars.get("HOME").map(|home| Path::new(home).join(".cache"));
                vars.get("XDG_CACHE_HOME").map(PathBuf::from).or_else(home).map(|cache| cache.join("infeed"))
            }
        }
    }

    /// That folder, if the user set it.
    pub(super) fn named(vars: &Vars, chosen: Option<&Path>) -> Option<PathBuf> {
        let told = || vars.get("INFEED_MANIFEST_DIR").filter(|dir| *dir != "off").map(Path::new);
        chosen.or_else(told).map(Path::to_owned)
    }

    /// The file of this kind about `place`. `dir` is created if needed.
    pub(super) fn new(dir: &Path, place: Fingerprint, kind: &str) -> Self {
        Self { file: dir.join(format!("{place}.{kind}")) }
    }

    /// Its path.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Its content; `None` if there is none or it is wrong. `parse` returns a description of what is wrong, for a
    /// warning.
    pub fn load<T>(&self, parse: impl FnOnce(&[u8]) -> Result<T, String>) -> Option<T> {
        let wrong = match Beside::Table.read_file(&self.file) {
            Ok(bytes) => match parse(&bytes) {
                Ok(found) => return Some(found),
                Err(wrong) => wrong,
            },
            Err(e) if e.kind() == io::ErrorKind::NotFound => return None,
            Err(e) => format!("it cannot be read: {e}"),
        };
        self.forget(&wrong);
        None
    }

    /// Removes a file that was found wrong, with a warning.
    pub fn forget(&self, wrong: &str) {
        let file = self.file.display();
        tracing::warn!(%file, "a kept file is not used and will be made again: {wrong}");
        if let Err(error) = fs::remove_file(&self.file)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%file, %error, "remove it by hand, or set INFEED_MANIFEST_DIR to another folder or to off");
        }
    }

    /// Replaces the file's content, or warns that it can't be kept.
    pub fn store(&self, bytes: &[u8]) {
        let _ = self.store_by(|file| file.write_all(bytes));
    }

    /// Opens the file to read parts of it; `None` if there is none or it can't be opened.
    #[must_use]
    pub fn open(&self) -> Option<Parts> {
        match File::open(&self.file).and_then(Parts::of_file) {
            Ok(parts) => Some(parts),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => {
                self.forget(&format!("it cannot be read: {e}"));
                None
            }
        }
    }

    /// Replaces the file's content and opens it, or warns that it can't be kept.
    #[must_use]
    pub fn store_parts(&self, parts: &Parts) -> Option<Parts> {
        self.store_by(|file| parts.pieces().try_for_each(|piece| file.write_all(&piece?)))
    }

    /// Replaces the file's content by what `write` writes and opens it, or warns that it can't be kept.
    #[must_use]
    pub fn store_by(&self, write: impl FnOnce(&mut File) -> io::Result<()>) -> Option<Parts> {
        let stored = self.draft().and_then(|mut draft| {
            write(&mut draft.file)?;
            draft.commit(self)
        });
        stored.inspect_err(|error| self.is_not_kept(error)).ok().and_then(|()| self.open())
    }

    /// Begins the content that is to replace the file's.
    ///
    /// # Errors
    /// Those of the system.
    pub(super) fn draft(&self) -> io::Result<Draft> {
        fs::create_dir_all(self.file.parent().unwrap_or(Path::new(".")))?;
        self.remove_leftovers();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_nanos());
        let aside = self.file.with_extension(format!("{}-{now}.tmp", std::process::id()));
        let file = File::create(&aside)?;
        Ok(Draft { file, aside })
    }

    /// Removes drafts of this file whose process was killed: nobody has written them for a day.
    fn remove_leftovers(&self) {
        let stem = self.file.file_stem().map(|stem| format!("{}.", stem.to_string_lossy())).unwrap_or_default();
        let files = self.file.parent().and_then(|dir| fs::read_dir(dir).ok()).into_iter().flatten().flatten();
        for file in files {
            let name = file.file_name().to_string_lossy().into_owned();
            let is_old = || {
                let written = file.metadata().and_then(|of| of.modified()).ok();
                written.and_then(|written| written.elapsed().ok()).is_some_and(|age| age > LEFT_OVER)
            };
            if name.starts_with(&stem) && name.ends_with(".tmp") && is_old() {
                let _ = fs::remove_file(file.path());
            }
        }
    }

    /// Removes the files whose names differ from this one only after the last `-`: copies of other versions.
    pub fn forget_versions(&self) {
        let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
        let Some(own) = name(&self.file).and_then(|name| Some(name.rsplit_once('-')?.0.to_owned())) else { return };
        let files = self.file.parent().and_then(|dir| fs::read_dir(dir).ok()).into_iter().flatten().flatten();
        for path in files.map(|file| file.path()).filter(|path| *path != self.file) {
            if name(&path).is_some_and(|name| name.rsplit_once('-').is_some_and(|(other, _)| other == own)) {
                let _ = fs::remove_file(path);
            }
        }
    }

    /// Warns that the file can't be written.
    pub(super) fn is_not_kept(&self, error: &io::Error) {
        let file = self.file.display();
        tracing::warn!(%file, %error, "nothing is kept; set INFEED_MANIFEST_DIR to a writable folder or to off");
    }
}

/// A new content of a kept file. It is removed unless it is committed.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) file: File,
    aside: PathBuf,
}

impl Draft {
    /// Makes it the content of the kept file.
    pub(super) fn commit(self, manifest: &Manifest) -> io::Result<()> {
        fs::rename(&self.aside, &manifest.file)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // After a commit there is none.
        let _ = fs::remove_file(&self.aside);
    }
}

/// Bytes between the magic bytes and the body: its length and its hash.
const HEAD: usize = 8 + 16;

/// Begins a file for [`seal`]: append the body to these bytes.
pub fn unsealed(magic: &[u8], body: usize) -> Vec<u8> {
    let mut file = Vec::with_capacity(magic.len() + HEAD + body);
    file.extend_from_slice(magic);
    file.resize(magic.len() + HEAD, 0);
    file
}

/// Writes length and hash of the body in front of it.
pub fn seal(magic: &[u8], mut file: Vec<u8>) -> Vec<u8> {
    let start = magic.len() + HEAD;
    let body = &file[start..];
    let head = [&(body.len() as u64).to_le_bytes()[..], &xxh3_128(body).to_le_bytes()].concat();
    file[magic.len()..start].copy_from_slice(&head);
    file
}

/// The body of a sealed file, if it is intact.
///
/// # Errors
/// A description of what is wrong, for a warning.
pub fn body<'a>(magic: &[u8], file: &'a [u8]) -> Result<&'a [u8], String> {
    let Some((head, body)) = file.split_at_checked(magic.len() + HEAD) else { return Err("it is truncated".into()) };
    let Some(head) = head.strip_prefix(magic) else { return Err("it has another version".into()) };
    let (length, sum) = head.split_at(8);
    if length != (body.len() as u64).to_le_bytes() {
        return Err(format!("it has {} bytes of another length", body.len()));
    }
    match sum == xxh3_128(body).to_le_bytes() {
        true => Ok(body),
        false => Err("its checksum is wrong".into()),
    }
}

/// Adds a number: seven bits a byte, the lowest first.
pub fn number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Adds a text, preceded by its length.
pub fn text(out: &mut Vec<u8>, text: &str) {
    number(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// The part of a body that is not parsed yet. Memory is never allocated for lengths in it without a check.
#[derive(Debug)]
pub struct Rest<'a>(pub(crate) &'a [u8]);

impl<'a> Rest<'a> {
    /// The whole body.
    #[must_use]
    pub const fn of(body: &'a [u8]) -> Self {
        Self(body)
    }

    /// Number of bytes left.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no bytes are left.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[doc(hidden)]
    #[inline]
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, more) = self.0.split_at_checked(count)?;
        self.0 = more;
        Some(taken)
    }

    #[doc(hidden)]
    #[inline]
    pub fn number(&mut self) -> Option<u64> {
        match self.0 {
            // Most numbers are small.
            [byte @ ..0x80, rest @ ..] => {
                self.0 = rest;
                Some((*byte).into())
            }
            _ => self.long_number(),
        }
    }

    fn long_number(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    #[doc(hidden)]
    #[inline]
    pub fn text(&mut self) -> Option<&'a str> {
        let length = usize::try_from(self.number()?).ok()?;
        str::from_utf8(self.take(length)?).ok()
    }

    /// A count of items of at least `least` bytes each.
    pub fn count(&mut self, least: usize) -> Option<usize> {
        let count = usize::try_from(self.number()?).ok()?;
        (count <= self.0.len() / least).then_some(count)
    }

    #[doc(hidden)]
    pub fn list<T>(&mut self, least: usize, mut one: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.count(least)?;
        let mut all = Vec::with_capacity(count);
        for _ in 0..count {
            all.push(one(self)?);
        }
        Some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Source;

    fn vars(of: &[(&str, &str)]) -> Vars {
        of.iter().copied().collect()
    }

    #[test]
    fn drafts_of_killed_processes_are_removed_and_those_being_written_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let manifest = Manifest::new(dir.path(), Fingerprint(1), "folder");
        // A process that is killed drops nothing.
        let left = [&manifest, &manifest, &Manifest::new(dir.path(), Fingerprint(2), "folder")].map(|of| {
            let draft = of.draft().unwrap();
            let path = draft.aside.clone();
            std::mem::forget(draft);
            path
        });
        let old = SystemTime::now() - 2 * LEFT_OVER;
        for path in [&left[0], &left[2]] {
            File::options().write(true).open(path).unwrap().set_modified(old).unwrap();
        }
        manifest.store(b"new");
        // The third is of another place, whose next opening removes it.
        assert_eq!(left.map(|path| path.exists()), [false, true, true]);
        assert_eq!(fs::read(manifest.file()).unwrap(), b"new");
    }

    #[test]
    fn one_that_is_huge_is_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let manifest = Manifest::new(dir.path(), Fingerprint(1), "folder");
        File::create(manifest.file()).unwrap().set_len(6 << 40).unwrap();
        assert_eq!(manifest.load(|_| -> Result<(), String> { unreachable!("it is not read") }), None);
        assert!(!manifest.file().exists());
    }

    #[test]
    fn the_folder_is_the_chosen_one_or_what_the_variables_say() {
        let home = [("HOME", "/h"), ("XDG_CACHE_HOME", "/x"), ("INFEED_MANIFEST_DIR", "/i")];
        let folder = |count, chosen: Option<&str>| Manifest::folder(&vars(&home[..count]), chosen.map(Path::new));
        assert_eq!(folder(3, Some("/c")), Some("/c".into()));
        assert_eq!(folder(3, None), Some("/i".into()));
        assert_eq!(folder(2, None), Some("/x/infeed".into()));
        assert_eq!(folder(1, None), Some("/h/.cache/infeed".into()));
        assert_eq!(folder(0, None), None);
        let named = |count, chosen: Option<&str>| Manifest::named(&vars(&home[..count]), chosen.map(Path::new));
        assert_eq!(
            (named(3, Some("/c")), named(3, None), named(2, None)),
            (Some("/c".into()), Some("/i".into()), None)
        );
        let off = vars(&[("HOME", "/h"), ("INFEED_MANIFEST_DIR", "off")]);
        assert_eq!(Manifest::folder(&off, None), None);
        assert_eq!(Manifest::folder(&off, Some(Path::new("/c"))), Some("/c".into()));
        assert_eq!(
            (Manifest::named(&off, None), Manifest::named(&off, Some(Path::new("/c")))),
            (None, Some("/c".into()))
        );
    }

    #[test]
    fn places_that_no_other_process_knows_keep_nothing_but_where_they_are_told_to() {
        let dir = tempfile::tempdir().unwrap();
        let own = object_store::memory::InMemory::new();
        let own = Source::from_store(std::sync::Arc::new(own), object_store::path::Path::default(), "own://x");
        let _store = Source::memory("manifest-of-memory");
        let memory = Source::parse("memory://manifest-of-memory/x").unwrap();
        for source in [own, memory] {
            assert!(source.manifest("shards", None).is_none(), "{source:?}");
            assert!(source.manifest("shards", Some(dir.path())).is_some(), "{source:?}");
        }
        let folder = Source::parse(dir.path().to_str().unwrap()).unwrap();
        let file = |kind| folder.manifest(kind, Some(dir.path())).unwrap().file().to_owned();
        assert_eq!(file("a").file_stem(), file("b").file_stem());
        assert_ne!(file("a"), file("b"));
    }

    #[test]
    fn what_is_kept_is_loaded_and_what_is_wrong_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let manifest = Manifest::new(&dir.path().join("new"), Fingerprint(7), "kind");
        let load = || manifest.load(|file| body(b"x 1\n", file).map(<[u8]>::to_vec));
        assert_eq!(load(), None);
        let keep = |magic: &[u8], content: &[u8]| {
            let mut file = unsealed(magic, content.len());
            file.extend_from_slice(content);
            manifest.store(&seal(magic, file));
        };
        for content in [&b"one"[..], b"", b"another"] {
            keep(b"x 1\n", content);
            assert_eq!(load().as_deref(), Some(content));
            assert_eq!(fs::read_dir(dir.path().join("new")).unwrap().count(), 1, "nothing is left beside it");
        }
        keep(b"x 2\n", b"of another version");
        assert_eq!((load(), manifest.file().exists()), (None, false));
        fs::create_dir(manifest.file()).unwrap();
        assert_eq!(load(), None, "what cannot be read is no error");
        keep(b"x 1\n", b"nor is what cannot be written");
    }
}
