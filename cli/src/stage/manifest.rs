//! What was copied: a line for each file that is whole.

use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    io::Write,
    path::Path,
};

use infeed::internal::Beside;
use serde::{Deserialize, Serialize};

use super::file::unwritable;
use crate::failure::Failure;

/// The folder of the manifest. Datasets ignore names that begin with a dot.
pub(super) const FOLDER: &str = ".infeed-stage";
const VERSION: u32 = 1;

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    version: u32,
    url: String,
}

/// A complete file, or a range of an archive.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub(super) struct Entry {
    /// Relative to the folder; for a range of an archive, `*` and its start.
    pub(super) name: String,
    pub(super) size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) etag: Option<String>,
    /// XXH3, 128 bits, of its bytes, in hex.
    pub(super) xxh3: String,
}

impl Entry {
    pub(super) fn file(name: &str, size: u64, etag: Option<&str>, hash: &str) -> Self {
        Self { name: name.to_owned(), size, etag: etag.map(str::to_owned), xxh3: hash.to_owned() }
    }
}

/// The manifest, open for more lines.
#[derive(Debug)]
pub(super) struct Manifest {
    file: File,
    path: std::path::PathBuf,
    known: HashMap<String, Entry>,
}

impl Manifest {
    /// Opens or creates the manifest and reads its lines. The last line may be incomplete.
    pub(super) fn open(folder: &Path, url: &str) -> Result<Self, Failure> {
        let path = folder.join("manifest.jsonl");
        let failed = |error| Failure::file("cannot write", &path, error);
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(&path).map_err(failed)?;
        let text = Beside::Table.read_open(&mut file).map_err(|error| Failure::file("cannot read", &path, error))?;
        let text = String::from_utf8_lossy(&text);
        let url = url.trim_end_matches('/');
        let mut known = HashMap::new();
        let mut lines = text.lines();
        match lines.next().map(serde_json::from_str::<Header>) {
            Some(Ok(header)) if header.url != url || header.version != VERSION => {
                let what = format!("{} holds a copy of {}; name another folder", folder.display(), header.url);
                return Err(Failure::Failed(what));
            }
            Some(Ok(_)) => {
                let entries = lines.filter_map(|line| serde_json::from_str::<Entry>(line).ok());
                known.extend(entries.map(|entry| (entry.name.clone(), entry)));
                if !text.ends_with('\n') {
                    file.write_all(b"\n").map_err(failed)?;
                }
            }
            // No line, or an incomplete first line: nothing was copied.
            _ => {
                file.set_len(0).map_err(failed)?;
                write_line(&mut file, &Header { version: VERSION, url: url.to_owned() }).map_err(failed)?;
            }
        }
        Ok(Self { file, path, known })
    }

    /// The entries that were there when it was opened.
    pub(super) fn take(&mut self) -> HashMap<String, Entry> {
        std::mem::take(&mut self.known)
    }

    /// Adds a line, in one piece.
    pub(super) fn add(&mut self, entry: &Entry) -> Result<(), Failure> {
        write_line(&mut self.file, entry).map_err(|error| unwritable(&self.path, error))
    }
}

fn write_line(file: &mut File, line: &impl Serialize) -> std::io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    file.write_all(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_last_line_is_as_if_it_were_not_there() {
        let dir = tempfile::tempdir().unwrap();
        let entry = |name: &str| Entry::file(name, 3, Some("\"tag\""), "00");
        let mut manifest = Manifest::open(dir.path(), "s3://a/b").unwrap();
        manifest.add(&entry("one")).unwrap();
        manifest.add(&entry("two")).unwrap();
        let path = dir.path().join("manifest.jsonl");
        let text = std::fs::read(&path).unwrap();
        std::fs::write(&path, &text[..text.len() - 5]).unwrap();
        let mut manifest = Manifest::open(dir.path(), "s3://a/b/").unwrap();
        assert_eq!(manifest.take().into_keys().collect::<Vec<_>>(), ["one"]);
        manifest.add(&entry("two")).unwrap();
        assert_eq!(Manifest::open(dir.path(), "s3://a/b").unwrap().take().len(), 2);
        assert!(Manifest::open(dir.path(), "s3://a/c").is_err(), "another dataset");
    }
}
