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
//! Three things that are easy to get wrong:
//!
//! - **Each file is looked up**, although a folder's listing says what is a file: sizes are part of the dataset's
//!   fingerprint, and tell on reading that a file has changed since.
//! - **More threads help where calls wait**, not where they compute. As many threads as cores list a warm disk, sixteen
//!   one that answers slowly (`pace.rs`).
//! - **Looking up goes before reading folders**: open folders hold a file handle each, and stay few that way.

mod folder;
mod found;
mod pace;
mod pool;

pub(super) use folder::is_hidden;
pub(super) use pool::{Walk, all};

#[cfg(test)]
mod tests;
