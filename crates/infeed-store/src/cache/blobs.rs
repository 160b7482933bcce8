//! Entries that are never removed, each found by a hash only. For data whose length is known only from the entry
//! itself, such as decoded pixels.
//!
//! Nothing is ever removed to make room: on one machine every record comes up once per epoch, so the first entries are
//! worth as much as any others, and are written once.

use std::{
    collections::HashMap,
    path::Path,
    sync::{PoisonError, RwLock},
};

use bytes::BytesMut;
use infeed_core::error::Result;

use super::{
    disk::{Disk, Lost},
    key::{FOOTER, Key},
};

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlobRead {
    /// The buffer holds the entry.
    Here,
    /// The entry does not exist, or no longer.
    Gone,
    /// The entry differed from what had been written, and was removed.
    Damaged,
}

/// A folder of entries, shared by several processes.
#[derive(Debug)]
pub struct Blobs {
    disk: Disk,
    /// The lengths of the entries that this process has seen.
    known: RwLock<HashMap<u128, u64>>,
}

impl Blobs {
    /// Opens the subfolder `name` of a folder.
    ///
    /// # Errors
    /// `Config` if `dir` is not a folder.
    pub fn open(dir: &Path, name: &str, size: u64) -> Result<Self> {
        let blobs = Self { disk: Disk::open(dir, name, size)?, known: RwLock::default() };
        blobs.refresh();
        Ok(blobs)
    }

    /// Finds the entries that other processes have written. Lists the folder.
    pub fn refresh(&self) {
        let there: HashMap<u128, u64> = self.disk.entries().map(|key| (key.object, key.len())).collect();
        self.known.write().unwrap_or_else(PoisonError::into_inner).extend(there);
    }

    #[doc(hidden)]
    pub fn holds(&self, hash: u128) -> bool {
        self.known.read().unwrap_or_else(PoisonError::into_inner).contains_key(&hash)
    }

    /// Reads an entry and compares it with what was written. Blocks this thread.
    pub fn read(&self, hash: u128, buffer: &mut BytesMut) -> BlobRead {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner).get(&hash).copied();
        let Some(len) = known else { return BlobRead::Gone };
        let key = key(hash, len);
        let Err(lost) = self.disk.read(&key, buffer) else { return BlobRead::Here };
        self.known.write().unwrap_or_else(PoisonError::into_inner).remove(&hash);
        match lost {
            Lost::Gone => BlobRead::Gone,
            Lost::Damaged => {
                self.disk.remove(&key);
                tracing::warn!(entry = %self.disk.path(&key).display(), "removed a damaged entry of the decoded cache");
                BlobRead::Damaged
            }
        }
    }

    /// Whether `bytes` more would fit, as far as this process can tell.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.disk.is_writable() && self.disk.used().saturating_add(bytes + FOOTER) <= self.disk.size()
    }

    /// Writes an entry. Returns `false` if the entry does not exist afterwards. Blocks this thread.
    pub fn write(&self, hash: u128, bytes: &[u8]) -> bool {
        let key = key(hash, bytes.len() as u64);
        let written = self.disk.is_writable() && self.disk.reserve(key.disk_bytes()) && self.disk.write(&key, bytes);
        if written {
            self.known.write().unwrap_or_else(PoisonError::into_inner).insert(hash, key.len());
        }
        written
    }

    #[doc(hidden)]
    pub fn used(&self) -> u64 {
        self.disk.used()
    }

    #[doc(hidden)]
    pub fn size(&self) -> u64 {
        self.disk.size()
    }
}

const fn key(object: u128, len: u64) -> Key {
    Key { object, start: 0, end: len }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_process_wrote_another_finds_after_a_look_and_damage_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Blobs::open(dir.path(), "blobs", 1000).unwrap();
        let (mine, yours) = (open(), open());
        assert!(mine.write(7, b"seven") && !yours.holds(7));
        yours.refresh();
        let mut buffer = BytesMut::new();
        assert_eq!((yours.read(7, &mut buffer), &buffer[..]), (BlobRead::Here, &b"seven"[..]));
        assert_eq!(yours.read(8, &mut buffer), BlobRead::Gone);

        let file = mine.disk.path(&key(7, 5));
        let mut bytes = std::fs::read(&file).unwrap();
        bytes[2] ^= 1;
        std::fs::write(&file, bytes).unwrap();
        assert_eq!(mine.read(7, &mut buffer), BlobRead::Damaged);
        assert!(!mine.holds(7) && !file.exists());
        assert_eq!(yours.read(7, &mut buffer), BlobRead::Gone, "and it is told once");
    }

    #[test]
    fn what_does_not_fit_is_not_kept_and_nothing_leaves_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(dir.path(), "blobs", 2 * (100 + FOOTER)).unwrap();
        assert!(blobs.write(1, &[1; 100]) && blobs.has_room(100));
        assert!(blobs.write(2, &[2; 100]) && !blobs.has_room(1));
        assert!(!blobs.write(3, &[3; 100]) && !blobs.holds(3));
        let again = Blobs::open(dir.path(), "blobs", 2 * (100 + FOOTER)).unwrap();
        assert!(again.holds(1) && again.holds(2) && !again.has_room(1));
    }
}
