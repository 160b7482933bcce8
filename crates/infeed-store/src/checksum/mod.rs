//! Whether the received bytes are those that were stored.
//!
//! ```text
//! answer ─ Connector ─▶ SentChecksums ─┐
//! bytes ───────────────────────────────┴ Check ─┬ equal ─▶ the reader
//!                                               └ other ─▶ read again, up to three times ─▶ an error with both hashes
//! ```
//!
//! **Only whole objects can be checked**: a store sends hashes of objects, never of ranges. Objects above 16 MiB are
//! read in several ranges. If these cover the whole object of a bucket, a HEAD request in parallel gets the expected
//! hash.
//!
//! **An ETag of 32 hex digits** is the MD5 of most objects of S3 and compatible stores. With some stores it is not. So:
//!
//! - Once one object of a store had the MD5 of its ETag (by chance: 1 in 2^128), the store's ETags are MD5s, and an
//!   object that differs is damaged.
//! - Before that, an object that differs is read again. The same bytes may come again, and once more when the object is
//!   read in other parts (an error on the way would then hit other bits). In that case either the ETag is not an MD5,
//!   or the object is damaged in the store: it is delivered, with a warning that names it. After eight such objects,
//!   ETags of that store are no longer compared. If an MD5 agrees before that, an error in the log names the objects
//!   that were delivered.
//!
//! So one kind of damage passes with only a warning: damage in the store, of objects of a store of which no object has
//! agreed yet. This does not apply to Amazon, whose ETags are known to be MD5s. A store that sends checksums is never
//! in doubt.

#![cfg_attr(not(feature = "tls"), allow(dead_code, reason = "nothing is compared without HTTP"))]

#[cfg(feature = "tls")]
mod check;
#[cfg(not(feature = "tls"))]
#[path = "unchecked.rs"]
mod check;
mod hash_threads;
#[cfg(feature = "tls")]
mod sent;
mod verify;

pub use check::Check;
pub(crate) use check::{SentChecksums, told};
pub use hash_threads::HashThreads;
#[cfg(feature = "http")]
pub(crate) use sent::Sum;
pub(crate) use verify::Trust;
#[cfg(feature = "s3")]
pub(crate) use verify::hex;
pub use verify::{Verified, Verify};
