//! Entries as files of a folder.
//!
//! ```text
//! DIR/infeed-cache-v1/
//!   in-use       locked (shared) by every process that uses the folder; a sole user sweeps and recounts
//!   ledger       8 bytes: the number of bytes of all entries; changed under a lock that is held for microseconds
//!   writing/     half-written entries
//!   ranks/       the ranks that use it, see `ranks.rs`
//!   3f/9a..-0-107042   an entry: <hash of store, name, version>-<range>, its first two digits as folder
//! ```
//!
//! Locks are `flock`, which the kernel releases when the process ends, so no stale lock remains. An entry is never
//! changed, only removed; a process that has it open can read on. Nothing is synced to the disk: after a power failure
//! an entry may be empty or zeros, which its checksum detects.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use bytes::BytesMut;
use infeed_core::error::{Error, Result};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::key::{FOOTER, Key};
use crate::errors::make_room;

const MARK: u64 = u64::from_le_bytes(*b"infeed-1");

/// Why an entry could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// Another process removed it to make room.
    Gone,
    /// Its bytes differ from what was written.
    Damaged,
}

#[derive(Debug)]
pub(super) struct Disk {
    root: PathBuf,
    /// The most bytes that all entries may have, and the size that the user set.
    size: u64,
    asked: u64,
    ledger: Mutex<Option<File>>,
    /// As last read from the ledger.
    used: AtomicU64,
    writable: AtomicBool,
    /// Holds the shared lock.
    _in_use: Option<File>,
    written: AtomicU64,
}

impl Disk {
    /// Opens `name` in the folder. If the machine refuses anything, there is a warning and the cache keeps nothing.
    ///
    /// # Errors
    /// `Config` if `dir` is not a folder.
    pub(super) fn open(dir: &Path, name: &str, size: u64) -> Result<Self> {
        if dir.exists() && !dir.is_dir() {
            return Err(Error::config("the cache's folder is not a folder").at_object(dir.display().to_string()));
        }
        let root = dir.join(name);
        let asked = size;
        let disk = |size, ledger: Option<File>, in_use, used: u64| Self {
            root: root.clone(),
            size,
            asked,
            writable: AtomicBool::new(ledger.is_some()),
            ledger: Mutex::new(ledger),
            used: used.into(),
            _in_use: in_use,
            written: AtomicU64::new(0),
        };
        match Self::prepare(&root) {
            Ok((ledger, in_use, used)) => {
                let size = Self::within_room(&root, size, used);
                Ok(disk(size, Some(ledger), Some(in_use), used))
            }
            Err(error) => {
                let what = "the cache's folder can't be written; entries that are there are read, none are added";
                tracing::warn!(folder = %dir.display(), %error, "{what}");
                Ok(disk(size, None, None, 0))
            }
        }
    }

    /// Opens the files that all processes share. The first process sweeps and counts.
    fn prepare(root: &Path) -> io::Result<(File, File, u64)> {
        fs::create_dir_all(root.join("writing"))?;
        let open =
            |name: &str| OpenOptions::new().read(true).write(true).create(true).truncate(false).open(root.join(name));
        let (ledger, in_use) = (open("ledger")?, open("in-use")?);
        match in_use.try_lock() {
            Ok(()) => {
                for entry in fs::read_dir(root.join("writing"))? {
                    // No other process uses the folder, so the processes that wrote these files have ended.
                    fs::remove_file(entry?.path())?;
                }
                for rank in fs::read_dir(root.join("ranks")).into_iter().flatten() {
                    fs::remove_file(rank?.path())?;
                }
                let used: u64 = entries(root).map(|key| key.disk_bytes()).sum();
                set_used(&ledger, used)?;
            }
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // Waits while another process sweeps.
        in_use.lock_shared()?;
        let used = get_used(&ledger)?;
        Ok((ledger, in_use, used))
    }

    /// Limits `size` to the room on the file system, including the entries that exist already.
    fn within_room(root: &Path, size: u64, used: u64) -> u64 {
        let Some(room) = infeed_core::disk::free_space(root) else { return size };
        // Leaves a tenth to other users; of a RAM disk half, because all programs need that memory.
        let most = if room.in_memory { room.free / 2 } else { room.free / 10 * 9 };
        let most = used.saturating_add(most);
        if most < size {
            let (folder, asked, free) = (root.display(), mib(size), mib(room.free));
            tracing::warn!(%folder, asked, free, bound = mib(most), "too little room for the cache: bound lowered");
        }
        size.min(most)
    }

    pub(super) fn path(&self, key: &Key) -> PathBuf {
        let name = format!("{:032x}-{}-{}", key.object, key.start, key.end);
        let (folder, name) = name.split_at(2);
        self.root.join(folder).join(name)
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// The existing entries.
    pub(super) fn entries(&self) -> impl Iterator<Item = Key> + use<> {
        entries(&self.root)
    }

    pub(super) fn holds(&self, key: &Key) -> bool {
        fs::metadata(self.path(key)).is_ok_and(|meta| meta.len() == key.disk_bytes())
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn asked(&self) -> u64 {
        self.asked
    }

    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    pub(super) fn is_writable(&self) -> bool {
        self.writable.load(Ordering::Relaxed)
    }

    /// Changes the ledger with `change`. `None` and an error leave it unchanged.
    fn account(&self, change: impl FnOnce(u64) -> Option<u64>) -> io::Result<bool> {
        // A file lock belongs to the process, so its threads take turns first.
        let ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(file) = &*ledger else { return Ok(false) };
        // Each process holds the lock for microseconds. A wait of a second means that a process was stopped while it
        // held it.
        let mut tries = 0;
        while let Err(error) = file.try_lock() {
            match error {
                TryLockError::WouldBlock if tries < 5000 => thread::sleep(Duration::from_micros(200)),
                TryLockError::WouldBlock => return Ok(false),
                TryLockError::Error(error) => return Err(error),
            }
            tries += 1;
        }
        let changed = get_used(file).and_then(|used| {
            let changed = change(used);
            self.used.store(changed.unwrap_or(used), Ordering::Relaxed);
            changed.map_or(Ok(false), |new| set_used(file, new).map(|()| true))
        });
        let unlocked = file.unlock();
        changed.and_then(|changed| unlocked.map(|()| changed))
    }

    /// Reserves room for an entry; `false` if there is none.
    pub(super) fn reserve(&self, bytes: u64) -> bool {
        let taken = self.account(|used| used.checked_add(bytes).filter(|sum| *sum <= self.size));
        self.or_stop(taken).unwrap_or(false)
    }

    fn release(&self, bytes: u64) {
        let given = self.account(|used| Some(used.saturating_sub(bytes)));
        let _ = self.or_stop(given);
    }

    /// Removes an entry; `false` if it did not exist.
    pub(super) fn remove(&self, key: &Key) -> bool {
        match fs::remove_file(self.path(key)) {
            Ok(()) => {
                self.release(key.disk_bytes());
                true
            }
            Err(_) => false,
        }
    }

    /// Writes an entry for which room was reserved; `false` if it does not exist afterwards.
    pub(super) fn write(&self, key: &Key, bytes: &[u8]) -> bool {
        let target = self.path(key);
        if self.holds(key) {
            // Another process was faster.
            self.release(key.disk_bytes());
            return true;
        }
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        // Containers may have equal process numbers, hence the hash. Two processes that write the same entry would do
        // the work twice anyway.
        let name = format!("{}-{number}-{:08x}", std::process::id(), key.object as u32);
        let aside = self.root.join("writing").join(name);
        let write = || {
            let mut file = OpenOptions::new().write(true).create_new(true).open(&aside)?;
            file.write_all(bytes)?;
            file.write_all(&footer(key, bytes))?;
            drop(file);
            match settle(&aside, &target) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    fs::create_dir_all(target.parent().expect("an entry lies in a folder"))?;
                    settle(&aside, &target)
                }
                settled => settled,
            }
        };
        let written = write();
        if !matches!(written, Ok(Named::Now)) {
            self.release(key.disk_bytes());
        }
        // The entry has its final name now, or none. (If it was renamed, this file is gone already.)
        let _ = fs::remove_file(&aside);
        self.or_stop(written).is_some()
    }

    /// Reads an entry into the buffer and compares it with what was written.
    pub(super) fn read(&self, key: &Key, buffer: &mut BytesMut) -> Result<(), Lost> {
        let mut file = match File::open(self.path(key)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Lost::Gone),
            Err(_) => return Err(Lost::Damaged),
        };
        let length = usize::try_from(key.disk_bytes()).map_err(|_| Lost::Damaged)?;
        // Checked before memory is allocated for the length that a damaged file claims.
        if file.metadata().map_or(true, |meta| meta.len() != key.disk_bytes()) {
            return Err(Lost::Damaged);
        }
        // Without memory for it the read goes to the store, which reports the lack of memory.
        make_room(buffer, length).map_err(|_| Lost::Gone)?;
        file.read_exact(buffer).map_err(|_| Lost::Damaged)?;
        let end = buffer.split_off(length - FOOTER as usize);
        if end[..] == footer(key, buffer) { Ok(()) } else { Err(Lost::Damaged) }
    }

    /// The first failure ends writing for this process, for example on a full disk, an exceeded quota, or a folder made
    /// read-only.
    fn or_stop<T>(&self, done: io::Result<T>) -> Option<T> {
        done.inspect_err(|error| {
            if self.writable.swap(false, Ordering::Relaxed) {
                let folder = self.root.display();
                tracing::warn!(%folder, %error, "writing to the cache failed: the run goes on, nothing is added to it");
            }
        })
        .ok()
    }
}

/// How an entry got its name.
#[derive(Debug)]
enum Named {
    Now,
    /// Another process was faster, so the ledger counts the entry already.
    Before,
}

/// Gives a finished entry its name, unless the name exists: if two processes write the same entry, one of them
/// succeeds.
fn settle(aside: &Path, target: &Path) -> io::Result<Named> {
    match fs::hard_link(aside, target) {
        Ok(()) => Ok(Named::Now),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Named::Before),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(error),
        // A file system without hard links. Here two processes may count the same entry twice; the next start recounts.
        Err(_) => fs::rename(aside, target).map(|()| Named::Now),
    }
}

fn get_used(mut ledger: &File) -> io::Result<u64> {
    let mut used = [0; 8];
    ledger.seek(SeekFrom::Start(0))?;
    ledger.read_exact(&mut used)?;
    Ok(u64::from_le_bytes(used))
}

fn set_used(mut ledger: &File, used: u64) -> io::Result<()> {
    ledger.seek(SeekFrom::Start(0))?;
    ledger.write_all(&used.to_le_bytes())
}

/// The key is part of the checksum, so a renamed entry counts as damaged.
fn footer(key: &Key, bytes: &[u8]) -> [u8; FOOTER as usize] {
    let seed = key.object as u64 ^ (key.object >> 64) as u64 ^ key.start.rotate_left(32);
    let mut footer = [0; FOOTER as usize];
    footer[..8].copy_from_slice(&MARK.to_le_bytes());
    footer[8..16].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
    footer[16..].copy_from_slice(&xxh3_64_with_seed(bytes, seed).to_le_bytes());
    footer
}

/// Keys of the files below `root`. Files with other names are not entries.
fn entries(root: &Path) -> impl Iterator<Item = Key> + use<> {
    let root = root.to_path_buf();
    (0..=u8::MAX).flat_map(move |folder| {
        let folder = format!("{folder:02x}");
        let files = fs::read_dir(root.join(&folder)).into_iter().flatten().flatten();
        files.filter_map(move |file| parse_name(&folder, file.file_name().to_str()?))
    })
}

fn parse_name(folder: &str, name: &str) -> Option<Key> {
    let mut parts = name.split('-');
    let (hash, start, end) = (parts.next()?, parts.next()?, parts.next()?);
    if hash.len() != 30 || parts.next().is_some() {
        return None;
    }
    let key = Key {
        object: u128::from_str_radix(&format!("{folder}{hash}"), 16).ok()?,
        start: start.parse().ok()?,
        end: end.parse().ok()?,
    };
    (key.start <= key.end).then_some(key)
}

/// A size for messages.
fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_that_write_an_entry_one_gives_it_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let [mine, yours, entry] = ["mine", "yours", "entry"].map(|name| folder.path().join(name));
        fs::write(&mine, "mine").unwrap();
        fs::write(&yours, "yours").unwrap();
        assert!(matches!(settle(&mine, &entry), Ok(Named::Now)));
        assert!(matches!(settle(&yours, &entry), Ok(Named::Before)));
        assert_eq!(fs::read(&entry).unwrap(), b"mine");
        let nowhere = folder.path().join("no/such/folder");
        assert_eq!(settle(&mine, &nowhere).unwrap_err().kind(), io::ErrorKind::NotFound, "the folder is made then");
    }
}
