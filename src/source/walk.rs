//! Lists a local folder.
//!
//! Without the store: its listing leaves out dangling links and some names (`a#1`) in silence, fails on links that
//! loop, and takes several times as long (about 10 µs a file).

use std::{
    fs::{self, DirEntry, FileType, ReadDir},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    Object, Source,
    errors::{io_kind, not_unicode},
};
use crate::{
    error::{Error, ErrorKind, Result},
    report::Stage,
};

/// Whether a part of a name is left out of listings: those that begin with a dot. Not the two by which Zarr arrays of version 2
/// are known.
pub(super) fn is_hidden(part: &[u8]) -> bool {
    part.starts_with(b".") && !matches!(part, b".zarray" | b".zgroup")
}

/// Files below a folder, one folder after another.
#[derive(Debug)]
pub(super) struct Walk {
    source: Source,
    open: Option<(ReadDir, Arc<Folder>)>,
    todo: Vec<Folder>,
}

/// A folder still to be read.
#[derive(Clone, Debug)]
struct Folder {
    /// Where it really is, without links.
    real: PathBuf,
    /// Its name relative to the source: empty, or ending with `/`.
    name: String,
    /// The folders on the way to it. Links that lead to one of them, or above it, loop.
    above: Option<Arc<Self>>,
}

impl Folder {
    fn holds(&self, real: &Path) -> bool {
        self.real.starts_with(real) || self.above.as_ref().is_some_and(|above| above.holds(real))
    }
}

impl Walk {
    /// `root` is canonical.
    pub(super) fn new(root: PathBuf, source: Source) -> Self {
        let todo = vec![Folder { real: root, name: String::new(), above: None }];
        Self { source, open: None, todo }
    }

    fn error(&self, error: std::io::Error, name: &str) -> Error {
        let what = match io_kind(&error) {
            ErrorKind::Denied => "reading is not allowed",
            _ => "cannot be listed",
        };
        let object = self.source.display_name(name.trim_end_matches('/'));
        Error::new(io_kind(&error), what).at_stage(Stage::Open).at_object(object).with_source(error)
    }

    /// `None` for what is not a file; folders go on the list.
    fn visit(&mut self, entry: &DirEntry, folder: &Arc<Folder>) -> Result<Option<Object>> {
        let base = entry.file_name();
        if is_hidden(base.as_encoded_bytes()) {
            return Ok(None);
        }
        let Some(base) = base.to_str() else {
            let name = format!("{}{}", folder.name, base.to_string_lossy());
            return Err(not_unicode().at_stage(Stage::Open).at_object(self.source.display_name(&name)));
        };
        let name = format!("{}{base}", folder.name);
        let kind = entry.file_type().map_err(|e| self.error(e, &name))?;
        if kind.is_symlink() {
            return self.follow(entry, name, folder);
        }
        let size = || entry.metadata().map(|m| m.len());
        let real = || folder.real.join(base);
        self.take(kind, name, size, real, folder)
    }

    fn follow(&mut self, entry: &DirEntry, name: String, folder: &Arc<Folder>) -> Result<Option<Object>> {
        let found = fs::metadata(entry.path()).and_then(|meta| Ok((meta, entry.path().canonicalize()?)));
        let (meta, real) = found.map_err(|e| match e.kind() {
            // Leaving it out in silence would make the dataset smaller than its owner thinks.
            std::io::ErrorKind::NotFound => Error::new(ErrorKind::NotFound, "the link leads nowhere")
                .at_stage(Stage::Open)
                .at_object(self.source.display_name(&name))
                .hint("restore what it pointed to, or remove it"),
            _ => self.error(e, &name),
        })?;
        self.take(meta.file_type(), name, || Ok(meta.len()), || real, folder)
    }

    fn take(
        &mut self,
        kind: FileType,
        name: String,
        size: impl FnOnce() -> std::io::Result<u64>,
        real: impl FnOnce() -> PathBuf,
        folder: &Arc<Folder>,
    ) -> Result<Option<Object>> {
        if kind.is_dir() {
            let real = real();
            if folder.holds(&real) {
                tracing::warn!(folder = %self.source.display_name(&name), "a link leads back into its own path; not followed");
            } else {
                self.todo.push(Folder { real, name: name + "/", above: Some(Arc::clone(folder)) });
            }
            return Ok(None);
        }
        // Pipes, sockets and devices hold no samples.
        if !kind.is_file() {
            return Ok(None);
        }
        match size() {
            Ok(size) => Ok(Some(Object::new(name, size))),
            // Removed between the listing and the look-up, as a temporary file is.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(self.error(e, &name)),
        }
    }
}

impl Iterator for Walk {
    type Item = Result<Object>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Some((entries, folder)) = &mut self.open else {
                let folder = self.todo.pop()?;
                match fs::read_dir(&folder.real) {
                    Ok(entries) => self.open = Some((entries, Arc::new(folder))),
                    Err(error) => return Some(Err(self.error(error, &folder.name))),
                }
                continue;
            };
            let folder = Arc::clone(folder);
            match entries.next() {
                Some(Ok(entry)) => match self.visit(&entry, &folder) {
                    Ok(None) => {}
                    Ok(Some(object)) => return Some(Ok(object)),
                    Err(error) => return Some(Err(error)),
                },
                Some(Err(error)) => return Some(Err(self.error(error, &folder.name))),
                None => self.open = None,
            }
        }
    }
}
