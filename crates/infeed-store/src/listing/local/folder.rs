//! A folder, and the types of its entries.

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

/// Whether a part of a name is left out of listings: names that begin with a dot, except the three that identify Zarr
/// arrays of version 2.
pub(crate) fn is_hidden(part: &[u8]) -> bool {
    part.starts_with(b".") && !matches!(part, b".zarray" | b".zgroup" | b".zattrs")
}

/// A folder to be read.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    /// Its real path, without links.
    pub(super) real: PathBuf,
    /// Its name relative to the source: empty, or ending with `/`.
    pub(super) name: String,
    /// The folders on the way to it. A link that leads to one of them, or above it, is a loop.
    above: Option<Arc<Self>>,
}

/// The type of a folder's entry.
#[derive(Debug)]
pub(super) enum Entry {
    /// A file of this length.
    File(u64),
    Folder(Folder),
    /// An entry that is not listed: a pipe, or a link that loops or leads nowhere.
    Other,
}

impl Folder {
    /// `real` must be canonical.
    pub(super) fn root(real: PathBuf) -> Self {
        Self { real, name: String::new(), above: None }
    }

    fn holds(&self, real: &Path) -> bool {
        self.real.starts_with(real) || self.above.as_ref().is_some_and(|above| above.holds(real))
    }

    /// The error for the folder, or for its entry `base`.
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

    /// Looks `entry` up, and passes its name, its type and whether it is a link to `with`. Hidden entries are skipped.
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
        // Most file systems return an entry's type in the folder's listing; others are asked here.
        let found = entry.file_type().and_then(|kind| match kind.is_symlink() {
            true => Ok(None),
            false if kind.is_dir() => Ok(Some((kind, 0))),
            // Pipes, sockets and devices contain no samples.
            false if !kind.is_file() => Ok(Some((kind, 0))),
            false => Ok(Some((kind, entry.metadata()?.len()))),
        });
        match found {
            Ok(Some((kind, size))) => with(base, self.entry(kind, size, None, base, source), false),
            Ok(None) => with(base, self.follow(base, source)?, true),
            // Removed between the listing and the look-up, like a temporary file.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(self.error(e, base, source)),
        }
        Ok(())
    }

    /// Looks up a file or link that existed before.
    pub(super) fn look_again(self: &Arc<Self>, base: &str, source: &Source) -> Result<Entry> {
        let path = self.real.join(base);
        match fs::metadata(&path) {
            Ok(meta) if meta.is_file() => Ok(Entry::File(meta.len())),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && !path.is_symlink() => Ok(Entry::Other),
            // Returns the error.
            _ => self.follow(base, source),
        }
    }

    /// A subfolder that is not a link.
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

    /// Follows a link.
    fn follow(self: &Arc<Self>, base: &str, source: &Source) -> Result<Entry> {
        let path = self.real.join(base);
        let found = fs::metadata(&path).and_then(|meta| {
            // Only folders can loop. For a file the real path is not needed; finding it takes one call per part of the
            // path.
            let real = if meta.is_dir() { Some(path.canonicalize()?) } else { None };
            Ok((meta.file_type(), meta.len(), real))
        });
        let why = match found {
            Ok((kind, size, real)) => return Ok(self.entry(kind, size, real, base, source)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => "leads nowhere",
            Err(e) if is_loop(&e) => "leads back to itself",
            Err(e) => return Err(self.error(e, base, source)),
        };
        // A warning, because otherwise the dataset would be smaller than expected without any notice.
        let link = source.display_name(&format!("{}{base}", self.name));
        tracing::warn!(%link, "a link {why}; it is left out");
        Ok(Entry::Other)
    }
}
