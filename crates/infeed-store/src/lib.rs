//! Where bytes come from: an `object_store` and a prefix. **Internal: no promise of stability**; users depend on `infeed`.
//!
//! ```text
//! url ─ Source::parse ─▶ Source ─ list ─▶ Object (name, size) ─ dataset ─▶ Extent ─┬ read: a future (networks)
//!                                                                       (or what   └ open_inline, read_into: on
//!                                                                      the cache has) the thread that decodes (files)
//! ```
//!
//! A bucket finds its credentials in [`Source::connect`]. Its listing may be kept in a manifest (`listing/bucket.rs`
//! describes when it is trusted).
//!
//! Four things that are easy to get wrong:
//!
//! - **Names are raw.** `Path::from("a%b")` escapes, `Path::parse` does not. All code here uses `parse`, so a name from
//!   a listing is read back as the same object, whatever characters it has.
//! - **A short answer is not an error to `object_store`**, nor is another version. Each read here counts its bytes.
//!   Remote reads also compare the version, and are limited, retried and hedged; see `requests`.
//! - **A read that nobody polls keeps its place among the requests.** Code that takes reads from a stream of them
//!   (`buffered`) must not wait for another read in between: if the stream has all places, that waits for ever.
//! - **Local files are read by the thread that needs them**, a plain thread. Inside tokio each read would go through
//!   the blocking pool, at three times the cost.
//!
//! **Boundary**: has no notion of datasets, samples or order. It starts no tasks, and no threads except those that list
//! a folder (`listing/local/pool.rs`). It hashes on threads that the engine provides (`checksum/hash_threads.rs`).
#![forbid(unsafe_code)]

mod answer;
mod aside;
mod beside;
mod blocks;
mod cache;
mod checksum;
mod connect;
mod errors;
mod extent;
mod handle;
mod inline;
mod kept_files;
mod kept_parts;
mod listing;
mod machine_lock;
mod manifest;
mod object;
mod object_table;
mod open_file;
mod parse;
mod parts;
mod read;
mod read_at;
mod requests;
mod table_file;
mod whole;
mod write;

pub use answer::Refusal;
pub use aside::aside;
pub use beside::Beside;
pub use blocks::Blocks;
pub use cache::CacheSpec;
pub use cache::{BlobRead, Blobs, Cache, Doubted, Flight, Keep, Looked, Member, NextUse, Use, Writer};
#[doc(hidden)]
pub use checksum::{Check, Verified};
pub use checksum::{HashThreads, Verify};
pub use connect::Connection;
#[cfg(any(feature = "s3", feature = "gcs", feature = "azure", feature = "http"))]
pub use connect::Connector;
pub use errors::{files_ran_out, io_kind, no_files};
pub use extent::Extent;
pub use extent::{Merged, merge, merge_within};
pub use handle::Source;
pub use inline::InlineRead;
pub use kept_files::{KeptFiles, Listing};
pub use kept_parts::KeptParts;
pub use listing::SharedList;
pub use machine_lock::MachineLock;
pub use manifest::{Manifest, Rest, body, number, seal, text, unsealed};
pub use object::Object;
pub use object_table::ObjectTable;
pub use open_file::OpenFile;
pub use parts::Parts;
pub use requests::Reader;
use requests::Requests;
pub use table_file::end_table;
pub use write::Writer as ObjectWriter;

/// Reads a saved listing of a place.
#[doc(hidden)]
pub type ReadsListing = fn(&[u8], infeed_core::fingerprint::Fingerprint);

/// The magic bytes of saved listings, with their readers: for fuzzing.
#[doc(hidden)]
pub fn listings() -> [(&'static [u8], ReadsListing); 2] {
    [
        (listing::MAGIC, |bytes, place| drop(listing::decode(bytes, place))),
        (listing::KEPT, |bytes, place| listing::check_kept(bytes, place)),
    ]
}

#[cfg(test)]
mod tests;
