//! A file on the disk: its hash, and errors of writing it.

use std::{
    fs::File,
    io::{self, Write},
    path::Path,
};

use infeed::internal::no_files;
use xxhash_rust::xxh3::Xxh3;

use crate::failure::Failure;

/// Whether a file has this length and hash.
pub(super) fn holds(path: &Path, size: u64, hash: &str) -> bool {
    let hash_of = |mut file: File| -> io::Result<String> {
        let mut hasher = Hasher::default();
        io::copy(&mut file, &mut hasher)?;
        Ok(hasher.hex())
    };
    let Ok(file) = File::open(path) else { return false };
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.len() == size)
        && hash_of(file).is_ok_and(|found| found == hash)
}

/// Hashes what is written to it.
#[derive(Default)]
pub(super) struct Hasher(Xxh3);

impl Hasher {
    pub(super) fn hex(&self) -> String {
        format!("{:032x}", self.0.digest128())
    }
}

impl Write for Hasher {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An error of writing, with what to do about a full disk or too many open files.
pub(super) fn unwritable(path: &Path, error: io::Error) -> Failure {
    match error.kind() {
        _ if no_files(&error) => Failure::Failed(format!(
            "cannot write {}: {error}; raise the limit (`ulimit -n`), or lower --jobs",
            path.display()
        )),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => Failure::Failed(
            format!("cannot write {}: {error}; free space and run the same command again", path.display()),
        ),
        _ => Failure::file("cannot write", path, error),
    }
}
