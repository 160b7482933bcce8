//! A folder, and what its entries are.

use std::{
    fs::{self, DirEntry},
    path::{Path, PathBuf},
    sync::Arc,
};

use infeed_core::{
    error::{Error, ErrorKind, Result},
    report::Stage,
};

use crate::{
    Source,
    errors::{files_ran_out, io_kind, is_loop, no_files, not_unicode},
};

/// Whether a part of a name is left out of listings: those that begin with a dot. Not the three by which Zarr arrays of version 2
/// are known.
pub(crate) fn is_hidden(part: &[u8]) -> bool {
    part.starts_with(b".") && !matches!(part, b".zarray" | b".zgroup" | b".zattrs")
}

/// A folder to be read.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    /// Where it really is, without links.
    pub(super) real: PathBuf,
    /// Its name relative to the source: empty, or ending with `/`.
    pub(super) name: String,
    /// The folders on the way to it. Links that lead to one of them, or above it, loop.
    above: Option<Arc<Self>>,
}

/// What an entry of a folder is.
#[derive(Debug)]
pub(super) enum Entry {
    /// A file of this length.
    File(u64),
    Folder(Folder),
    /// What is not listed: a pipe, or a link that loops or leads nowhere.
    Other,
}

impl Folder {
    /// `real` is canonical.
    pub(super) fn root(real: PathBuf) -> Self {
        Self { real, name: String::new(), above: None }
    }

    fn holds(&self, real: &Path) -> bool {
        self.real.starts_with(real) || self.above.as_ref().is_some_and(|above| above.holds(real))
    }

    /// What is wrong with the folder, or with what it holds by the name `base`.
    pub(super) fn error(&self, error: std::io::Error, base: &str, source: &Source) -> Error {
        let object = source.display_name(format!("{}{base}", self.name).trim_end_matches('/'));
        if no_files(&error) {
            return files_ran_out().at_stage(Stage::Open).at_object(object).with_source(error);
        }
        let what = match io_kind(&error) {
            ErrorKind::Denied => "reading is not allowed",
            _ => "cannot be listed",
        };
        Error::new(io_kind(&error), what).at_stage(Stage::Open).at_object(object).with_source(error)
    }

    /// Looks `entry` up, and hands its name to `with`, what it is and whether by a link; not, if it is not shown.
    pub(super) fn look(
        self: &Arc<Self>,
        entry: &DirEntry,
        source: &Source,
        with: impl FnOnce(&str, Entry, bool),
    ) -> Result<()> {
        let base = entry.file_name();
        if is_hidden(base.as_encoded_bytes()) {
            return Ok(());
        }
        let Some(base) = base.to_str() else {
            let name = format!("{}{}", self.name, base.to_string_lossy());
            return Err(not_unicode().at_stage(Stage::Open).at_object(source.display_name(&name)));
        };
        // Most file systems tell in the folder's listing what an entry is; others are asked here.
        let found = entry.file_type().and_then(|kind| match kind.is_symlink() {
            true => Ok(None),
            false if kind.is_dir() => Ok(Some((kind, 0))),
            // Pipes, sockets and devices hold no samples.
            false if !kind.is_file() => Ok(Some((kind, 0))),
            false => Ok(Some((kind, entry.metadata()?.len()))),
        });
        match found {
            Ok(Some((kind, size))) => with(base, self.entry(kind, size, None, base, source), false),
            Ok(None) => with(base, self.follow(base, source)?, true),
            // Removed between the listing and the look-up, as a temporary file is.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(self.error(e, base, source)),
        }
        Ok(())
    }

    /// Looks up a file or link that was there.
    pub(super) fn look_again(self: &Arc<Self>, base: &str, source: &Source) -> Result<Entry> {
        let path = self.real.join(base);
        match fs::metadata(&path) {
            Ok(meta) if meta.is_file() => Ok(Entry::File(meta.len())),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && !path.is_symlink() => Ok(Entry::Other),
            // Tells what is wrong.
            _ => self.follow(base, source),
        }
    }

    /// One of its folders, which is no link.
    pub(super) fn child(self: &Arc<Self>, base: &str) -> Self {
        Self { real: self.real.join(base), name: format!("{}{base}/", self.name), above: Some(Arc::clone(self)) }
    }

    fn entry(
        self: &Arc<Self>,
        kind: fs::FileType,
        size: u64,
        real: Option<PathBuf>,
        base: &str,
        source: &Source,
    ) -> Entry {
        if kind.is_file() {
            return Entry::File(size);
        }
        if !kind.is_dir() {
            return Entry::Other;
        }
        let mut folder = self.child(base);
        folder.real = real.unwrap_or(folder.real);
        if self.holds(&folder.real) {
            let folder = source.display_name(folder.name.trim_end_matches('/'));
            tracing::warn!(%folder, "a link leads back into its own path; not followed");
            return Entry::Other;
        }
        Entry::Folder(folder)
    }

    /// What a link leads to.
    fn follow(self: &Arc<Self>, base: &str, source: &Source) -> Result<Entry> {
        let path = self.real.join(base);
        let found = fs::metadata(&path).and_then(|meta| {
            // Only folders can loop: of a file it need not be known where it is, which takes a call for each part of the path.
            let real = if meta.is_dir() { Some(path.canonicalize()?) } else { None };
            Ok((meta.file_type(), meta.len(), real))
        });
        let why = match found {
            Ok((kind, size, real)) => return Ok(self.entry(kind, size, real, base, source)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => "leads nowhere",
            Err(e) if is_loop(&e) => "leads back to itself",
            Err(e) => return Err(self.error(e, base, source)),
        };
        // In silence it would make the dataset smaller than its owner thinks.
        let link = source.display_name(&format!("{}{base}", self.name));
        tracing::warn!(%link, "a link {why}; it is left out");
        Ok(Entry::Other)
    }
}
