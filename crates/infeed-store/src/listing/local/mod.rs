//! Lists a local folder.
//!
//! ```text
//! threads:  a folder ─ readdir ─▶ 64 names ─ stat ─▶ found of the folder ─ sort ─▶ channel ─▶ objects, in the order of names
//!              ▲                     │
//!              └──── subfolders ─────┘
//! ```
//!
//! It does not use the store: the store's listing silently leaves out dangling links and some names (`a#1`), fails on
//! links that loop, and takes several times as long (about 10 µs per file).
//!
//! With a manifest ([`all_since`]), a folder that is in the manifest takes one call:
//!
//! ```text
//! threads:  a folder ─ stat ─▶ inode, length, times as kept? ─ yes ─▶ what was kept ─ links, files read in parts: stat ─▶ sort
//!                                                            └ no ──▶ readdir, as above
//! ```
//!
//! If all folders are as they were kept, nothing is listed: [`KeptFiles`](crate::KeptFiles) are blocks of files in the
//! manifest, of which a dataset reads one when a record needs it. Otherwise the files of unchanged folders are read from
//! the manifest, which is written again.
//!
//! The calls are what a manifest saves: 30,000 files in 30 folders took 30,311 of them without one, and 244 with it
//! (`strace -c infeed inspect`, 2026-11-29). On a local disk that is half a second for a million files. On a network
//! file system, where each call may be a round trip, it is minutes. So it is kept only where the user names a place.
//!
//! Four points to keep in mind:
//!
//! - **Each file is looked up**, although a folder's listing contains the types of its entries. Sizes are part of the
//!   dataset's fingerprint, and show on reading that a file has changed. With a manifest, a file that was overwritten
//!   in place is detected only on reading, because its folder does not change. So this is done only for files that are
//!   read whole, and the manifest is [forgotten](crate::manifest::Manifest::forget) at the first file with another
//!   size.
//! - **A folder that has just changed is not kept**: its next change may leave the same time (`stamp.rs`).
//! - **More threads help if calls wait**, not if they compute. A disk in memory is listed by as many threads as there
//!   are cores, a slow one by sixteen (`pace.rs`).
//! - **Looking up has priority over reading folders**: each open folder holds a file handle, so this keeps their number
//!   small.

mod folder;
mod found;
mod kept;
mod objects;
mod pace;
mod pool;
mod since;
mod stamp;

pub(crate) use folder::is_hidden;
pub(crate) use kept::MAGIC as KEPT;
pub(crate) use pool::{Walk, all};
pub(crate) use since::all_since;
pub(crate) use stamp::Stamp;

/// For fuzzing: decodes what is kept of a folder, and drops it.
pub(crate) fn check_kept(bytes: &[u8], place: infeed_core::fingerprint::Fingerprint) {
    if let Ok(saved) = kept::decode(crate::Parts::Held(bytes.to_vec().into()), None, place) {
        for (folder, (_, blocks)) in &saved.folders {
            drop(kept::files_of(&saved.files.table, folder, blocks.clone()));
        }
    }
}

#[cfg(test)]
mod tests;
