//! Lists a local folder.
//!
//! ```text
//! threads:  a folder ─ readdir ─▶ 64 names ─ stat ─▶ found of the folder ─ sort ─▶ channel ─▶ objects, in the order of names
//!              ▲                     │
//!              └──── subfolders ─────┘
//! ```
//!
//! Without the store: its listing leaves out dangling links and some names (`a#1`) in silence, fails on links that
//! loop, and takes several times as long (about 10 µs a file).
//!
//! With a manifest ([`all_since`]) a folder that it knows takes one call:
//!
//! ```text
//! threads:  a folder ─ stat ─▶ inode, length, times as kept? ─ yes ─▶ what was kept ─ links, files read in parts: stat ─▶ sort
//!                                                            └ no ──▶ readdir, as above
//! ```
//!
//! Five things that are easy to get wrong:
//!
//! - **Each file is looked up**, although a folder's listing says what is a file: sizes are part of the dataset's
//!   fingerprint, and tell on reading that a file has changed since. With a manifest, reading is where it is found out
//!   that a file was written again in its place, for its folder does not change: only of files that are read whole, then,
//!   and the manifest is [forgotten](super::manifest::Manifest::forget) at the first that has another size.
//! - **A folder that has just changed is not kept**: the next change may leave the same time (`stamp.rs`).
//! - **More threads help where calls wait**, not where they compute. As many threads as cores list a warm disk, sixteen
//!   one that answers slowly (`pace.rs`).
//! - **Looking up goes before reading folders**: open folders hold a file handle each, and stay few that way.

mod folder;
mod found;
mod kept;
mod objects;
mod pace;
mod pool;
mod since;
mod stamp;

pub(super) use folder::is_hidden;
pub(super) use kept::MAGIC as KEPT;
pub(super) use pool::{Walk, all};
pub(super) use since::all_since;
pub(super) use stamp::Stamp;

/// Reads what is kept of a folder, and drops it.
pub(super) fn check_kept(bytes: &[u8], place: infeed_core::fingerprint::Fingerprint) {
    drop(kept::decode(bytes, place));
}

#[cfg(test)]
mod tests;
