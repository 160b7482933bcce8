//! What was read from a remote store, kept near: files in a folder, or memory.
//!
//! ```text
//! plan ─ look ─┬─ hit: read and verified by the decode thread ─ damaged, gone, or does not decode ─▶ store
//!              └─ miss: store ─▶ trainer
//!                          └ keep ─▶ queue ─ Writer::run (a blocking thread): aside, renamed
//! ```
//!
//! **Keys** are a hash of store, name and version tag (ETag), and the range: never a path alone. Objects without a
//! version tag are not kept: a changed one of the same length could not be told from the old one.
//!
//! **Which entries stay** is [`policy`]'s matter; how they lie on a disk, [`disk`]'s. Decoded pixels lie on a disk in the same
//! way, and all of them stay ([`blobs`]); what they are is the engine's matter.
//!
//! **Why not a cache engine.** A folder of immutable files was compared with foyer 0.22 (hybrid, on disk), 2,000
//! entries of 107 KB on 2 cores: it writes 2,300 MB/s (foyer 845 to 1,374, dropping entries in silence when they come
//! fast), reads 6,544 MB/s (1,041 to 1,689), takes 0.15 CPU-s per GB (0.6 to 1.0), and processes can share it.
//!
//! Four things that are easy to get wrong:
//! - **A hit is a promise that may break**: another process may remove the file between `look` and `read`.
//! - **A checksum is of what came from the store**, which may have been damaged on the way where nobody tells what it must
//!   be. So what does not decode is dropped and read again, once in a process ([`Cache::doubt`]).
//! - **The cache never stops a run.** Whatever its disk refuses is a warning, once, and a miss.
//! - **Bytes that wait to be written** are served from memory, and hold their part of the window of encoded bytes.

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
