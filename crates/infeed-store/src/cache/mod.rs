//! Keeps bytes read from a remote store: in files of a folder, or in memory.
//!
//! ```text
//! plan ─ look ─┬─ hit: read and verified by the decode thread ─ damaged, gone, or does not decode ─▶ store
//!              └─ miss: store ─▶ trainer
//!                          └ keep ─▶ queue ─ Writer::run (a blocking thread): aside, renamed
//! ```
//!
//! **Keys** are a hash of store, name and version tag (ETag), plus the range, never only a path. Objects without a
//! version tag are not kept: a changed object of the same length could not be distinguished from the old one.
//!
//! **Which entries stay** is decided in [`policy`]; [`disk`] stores them as files. Decoded pixels are stored in the
//! same way, but all of them stay ([`blobs`]); the engine decides what they contain.
//!
//! **Why not a cache engine.** A folder of immutable files was compared with foyer 0.22 (hybrid, on disk), with 2,000
//! entries of 107 KB on 2 cores. It writes 2,300 MB/s (foyer 845 to 1,374, silently dropping entries that come too
//! fast), reads 6,544 MB/s (1,041 to 1,689) and takes 0.15 CPU-s per GB (0.6 to 1.0), and several processes can share
//! it.
//!
//! Four things that are easy to get wrong:
//! - **A hit may still fail**: another process may remove the file between `look` and `read`.
//! - **A checksum covers the bytes as they came from the store.** They may have been damaged on the way if the store
//!   sends nothing to check them by. So an entry that can't be decoded is dropped and read again, once per process
//!   ([`Cache::doubt`]).
//! - **The cache never stops a run.** If the disk refuses anything, there is one warning, and the read is a miss.
//! - **Bytes waiting to be written** are served from memory, and occupy their part of the window of encoded bytes.

mod blobs;
mod disk;
mod entries;
mod key;
mod policy;
mod ranks;
mod spec;

pub use blobs::{BlobRead, Blobs};
pub use entries::{Cache, Doubted, Flight, Keep, Looked, Writer};
pub use policy::{NextUse, Use};
pub use ranks::Member;
pub use spec::CacheSpec;
pub(crate) use spec::parse_size;
