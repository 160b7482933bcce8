//! A folder, and what its entries are.

use std::{
    fs::{self, DirEntry},
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    error::{Error, ErrorKind, Result},
    report::Stage,
    source::{
        Source,
        errors::{io_kind, not_unicode},
    },
};

/// Whether a part of a name is left out of listings: those that begin with a dot. Not the two by which Zarr arrays of version 2
/// are known.
pub(in crate::source) fn is_hidden(part: &[u8]) -> bool {
    part.starts_with(b".") && !matches!(part, b".zarray" | b".zgroup")
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
        let what = match io_kind(&error) {
            ErrorKind::Denied => "reading is not allowed",
            _ => "cannot be listed",
        };
        let object = source.display_name(format!("{}{base}", self.name).trim_end_matches('/'));
        Error::new(io_kind(&error), what).at_stage(Stage::Open).at_object(object).with_source(error)
    }

    /// Looks `entry` up, and hands its name to `with`; not, if it is not shown.
    pub(super) fn look(
        self: &Arc<Self>,
        entry: &DirEntry,
        source: &Source,
        with: impl FnOnce(&str, Entry),
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
        let (kind, size, real) = match found {
            Ok(Some((kind, size))) => (kind, size, None),
            Ok(None) => self.follow(entry, base, source)?,
            // Removed between the listing and the look-up, as a temporary file is.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(self.error(e, base, source)),
        };
        if kind.is_file() {
            with(base, Entry::File(size));
        } else if kind.is_dir() {
            let real = real.unwrap_or_else(|| self.real.join(base));
            let name = format!("{}{base}/", self.name);
            if self.holds(&real) {
                let folder = source.display_name(name.trim_end_matches('/'));
                tracing::warn!(%folder, "a link leads back into its own path; not followed");
            } else {
                with(base, Entry::Folder(Self { real, name, above: Some(Arc::clone(self)) }));
            }
        }
        Ok(())
    }

    /// What a link leads to, and of a folder where that is.
    fn follow(&self, entry: &DirEntry, base: &str, source: &Source) -> Result<(fs::FileType, u64, Option<PathBuf>)> {
        let path = entry.path();
        let found = fs::metadata(&path).and_then(|meta| {
            // Only folders can loop: of a file it need not be known where it is, which takes a call for each part of the path.
            let real = if meta.is_dir() { Some(path.canonicalize()?) } else { None };
            Ok((meta.file_type(), meta.len(), real))
        });
        found.map_err(|e| match e.kind() {
            // Leaving it out in silence would make the dataset smaller than its owner thinks.
            std::io::ErrorKind::NotFound => Error::new(ErrorKind::NotFound, "the link leads nowhere")
                .at_stage(Stage::Open)
                .at_object(source.display_name(&format!("{}{base}", self.name)))
                .hint("restore what it pointed to, or remove it"),
            _ => self.error(e, base, source),
        })
    }
}
