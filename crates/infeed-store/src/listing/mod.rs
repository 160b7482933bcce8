//! Which objects there are below a source.
//!
//! ```text
//! Source::list, objects ─┬ a folder of this machine ─ local/    each file is looked up; with a manifest, each folder
//!  (source.rs)           ├ a bucket ─ bucket.rs               with a manifest, 16 of its pages are compared
//!                        └ any other store                    its own listing
//! SharedList (shared.rs): rank 0 lists and writes a file, the others read it
//! ```
//!
//! `format.rs` is the form in which a bucket's listing is kept. `connect/keys.rs` refuses listings that repeat keys or
//! never end.

#[cfg(feature = "s3")]
mod bucket;
mod format;
pub(crate) mod local;
mod shared;
mod source;

pub(crate) use format::{MAGIC, decode};
pub(crate) use local::{KEPT, check_kept};
pub use shared::SharedList;
