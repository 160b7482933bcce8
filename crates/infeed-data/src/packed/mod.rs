//! What is compressed as a whole: no range of it can be read, so all of it is unpacked, once for all records in it.
//!
//! Nothing is set aside for what a header says before the bytes are there, and no more is unpacked than was said.

#[cfg(feature = "packed")]
mod digest;
#[cfg(not(feature = "packed"))]
mod none;
mod packing;
#[cfg(feature = "packed")]
mod unpack;
#[cfg(any(feature = "packed", feature = "zstd"))]
mod zstd;

#[cfg(not(feature = "packed"))]
pub use self::none::{Digest, inflate, read_head, reader, supported, unpack};
pub use self::packing::{Packing, no_memory};
#[cfg(any(feature = "packed", feature = "zstd"))]
pub use self::zstd::Zstd;
#[cfg(feature = "packed")]
pub use self::{
    digest::Digest,
    unpack::{inflate, read_head, reader, supported, unpack},
};
