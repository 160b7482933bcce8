//! A local file that stays open between reads: a shard with many records.

use std::{
    fs::{self, File},
    path::PathBuf,
    sync::Arc,
};

use bytes::BytesMut;
use infeed_core::error::Result;

use super::{
    Extent, Source,
    errors::{check_range, open_error},
    inline::read_local,
    listing::local::Stamp,
    read_at::read_at,
};

impl Extent {
    /// Whether it is a part of a local file: then other parts of the file are likely to be read too.
    #[doc(hidden)]
    #[must_use]
    pub fn is_part_of_file(&self) -> bool {
        self.source.reads_inline() && self.source.folder().is_some() && self.size.is_none_or(|size| self.len() < size)
    }
}

/// An open file. Several threads may read from it at a time. A clone is another handle to it.
#[doc(hidden)]
#[derive(Clone)]
pub struct OpenFile(Arc<Inner>);

struct Inner {
    source: Source,
    name: Arc<str>,
    path: PathBuf,
    file: File,
    stamp: Option<Stamp>,
}

impl OpenFile {
    /// Opens the file of an extent. `None` if it is not a file that can be opened without its store.
    pub fn open(extent: &Extent) -> Result<Option<Self>> {
        let Extent { source, name, range, .. } = extent;
        let at = |error| source.at(error, name, range);
        check_range(range, extent.size).map_err(at)?;
        let Some(path) = source.local_path(name) else { return Ok(None) };
        let file = File::open(&path).map_err(|e| at(open_error(e)))?;
        // On other systems files can't be identified, and threads can't share one.
        let stamp = if cfg!(unix) { file.metadata().ok().map(|meta| Stamp::of(&meta)) } else { None };
        Ok(Some(Self(Arc::new(Inner { source: source.clone(), name: Arc::clone(name), path, file, stamp }))))
    }

    /// Whether an extent is of this file.
    #[must_use]
    pub fn is_of(&self, extent: &Extent) -> bool {
        let Inner { source, name, .. } = &*self.0;
        source.identity() == extent.source.identity() && (Arc::ptr_eq(name, &extent.name) || *name == extent.name)
    }

    /// Whether opening the file again would give the same file, unchanged. Looks up the name, because the open handle
    /// does not show that the file was removed, replaced, moved away, or may no longer be read. Network file systems
    /// answer the look-up from their cache, but ask the server to open a file.
    #[must_use]
    pub fn is_current(&self) -> bool {
        let Inner { path, stamp, .. } = &*self.0;
        stamp.is_some_and(|stamp| fs::metadata(path).is_ok_and(|meta| Stamp::of(&meta) == stamp))
    }

    /// Whether keeping it open is useful.
    #[must_use]
    pub fn can_stay(&self) -> bool {
        self.0.stamp.is_some()
    }

    /// Whether both are handles of the same opening.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Reads the bytes of an extent of this file into `buffer`, replacing its content and reusing its memory.
    ///
    /// # Errors
    /// Those of [`InlineRead::read_into`](super::InlineRead::read_into).
    pub fn read(&self, extent: &Extent, buffer: &mut BytesMut) -> Result<()> {
        let Extent { source, name, range, size, .. } = extent;
        let read = check_range(range, *size).and_then(|()| {
            if range.is_empty() && *size != Some(0) {
                buffer.clear();
                return Ok(());
            }
            read_local(&self.0.file, read_at, range, *size, buffer)
        });
        read.map_err(|error| source.at(error, name, range))
    }
}

impl std::fmt::Debug for OpenFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OpenFile({})", self.0.path.display())
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

    use super::*;

    fn extent(source: &Source, range: std::ops::Range<u64>) -> Extent {
        Extent::whole(source, "a", 10).with_range(range)
    }

    fn read(file: &OpenFile, extent: &Extent) -> Result<Vec<u8>> {
        let mut buffer = BytesMut::from(&b"what was there"[..]);
        file.read(extent, &mut buffer).map(|()| buffer.to_vec())
    }

    #[test]
    fn parts_come_in_any_order_and_each_is_compared_with_the_length() {
        let dir = tempfile::tempdir().unwrap();
        let (source, path) = (Source::parse(&dir.path().display().to_string()).unwrap(), dir.path().join("a"));
        fs::write(&path, "0123456789").unwrap();
        let file = OpenFile::open(&extent(&source, 0..1)).unwrap().unwrap();
        for (range, bytes) in [(7..10, "789"), (0..3, "012"), (4..4, ""), (0..10, "0123456789")] {
            assert_eq!(read(&file, &extent(&source, range)).unwrap(), bytes.as_bytes());
        }
        assert!(file.is_of(&extent(&source, 2..3)) && !file.is_of(&Extent::part(&source, "b", 0..1)));
        fs::write(&path, "0123").unwrap();
        let error = read(&file, &extent(&source, 2..6)).unwrap_err();
        assert!(error.to_string().contains("ends after 4 of 6 bytes"), "{error}");
        fs::write(&path, "0123456789x").unwrap();
        let error = read(&file, &extent(&source, 8..10)).unwrap_err();
        assert!(error.to_string().contains("has 11 bytes, 10 when it was listed"), "{error}");
        assert!(read(&file, &extent(&source, 8..11)).is_err(), "no such range");
    }

    #[test]
    fn a_file_that_another_stands_in_for_is_not_current() {
        type Change = fn(&Path);
        let changes: [(&str, Change); 5] = [
            ("removed", |path| fs::remove_file(path).unwrap()),
            ("moved away", |path| fs::rename(path, path.with_extension("old")).unwrap()),
            ("replaced", |path| {
                fs::write(path.with_extension("new"), "0123456789").unwrap();
                fs::rename(path.with_extension("new"), path).unwrap();
            }),
            ("with its folder", |path| {
                let folder = path.parent().unwrap();
                fs::rename(folder, folder.with_extension("old")).unwrap();
                fs::create_dir(folder).unwrap();
                fs::write(path, "0123456789").unwrap();
            }),
            ("cut", |path| File::options().write(true).open(path).unwrap().set_len(3).unwrap()),
        ];
        for (what, change) in changes {
            let dir = tempfile::tempdir().unwrap();
            let folder = dir.path().join("data");
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("a"), "0123456789").unwrap();
            let source = Source::parse(&folder.display().to_string()).unwrap();
            let file = OpenFile::open(&extent(&source, 0..1)).unwrap().unwrap();
            assert!(file.is_current(), "not {what} yet");
            change(&folder.join("a"));
            assert!(!file.is_current(), "{what}");
        }
    }

    #[test]
    fn a_file_whose_permissions_changed_is_not_current() {
        let dir = tempfile::tempdir().unwrap();
        let (source, path) = (Source::parse(&dir.path().display().to_string()).unwrap(), dir.path().join("a"));
        fs::write(&path, "0123456789").unwrap();
        let file = OpenFile::open(&extent(&source, 0..1)).unwrap().unwrap();
        // The clock that files are dated by may stand still for some milliseconds.
        let modes = [0o400, 0o600].into_iter().cycle();
        for mode in modes.take_while(|_| file.is_current()) {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
    }

    #[test]
    fn only_parts_of_files_stay_open() {
        let dir = tempfile::tempdir().unwrap();
        let source = Source::parse(&dir.path().display().to_string()).unwrap();
        assert!(extent(&source, 0..9).is_part_of_file() && Extent::part(&source, "a", 0..10).is_part_of_file());
        assert!(!extent(&source, 0..10).is_part_of_file(), "all of it");
        drop(Source::memory("only-parts"));
        let memory = Source::parse("memory://only-parts").unwrap();
        assert!(!Extent::part(&memory, "a", 0..1).is_part_of_file());
    }
}
