//! Data that is compressed as a whole. No range of it can be read alone, so all of it is decompressed, once for all
//! records in it.
//!
//! Memory is not reserved by what a header claims, and no more is decompressed than the header claims.

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
pub use self::none::{Digest, inflate, is_crc, read_head, reader, supported, unpack};
pub use self::packing::{Packing, no_memory};
#[cfg(any(feature = "packed", feature = "zstd"))]
pub use self::zstd::Zstd;
#[cfg(feature = "packed")]
pub use self::{
    digest::Digest,
    unpack::{inflate, is_crc, read_head, reader, supported, unpack},
};
