//! Bytes of a record on their way to a decode thread.

use bytes::Bytes;
use infeed_data::ReadPlan;
use infeed_store::{Extent, Keep, Reader};

/// A record with its plan, and the bytes that were read for it.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) plan: ReadPlan,
    /// Those of its own extents, or what its dataset read. `None`: nothing was read, for the decoded cache had the record.
    pub(super) pieces: Option<Vec<Piece>>,
}

/// Bytes of one extent.
#[derive(Debug)]
pub(super) enum Piece {
    /// Here.
    Bytes(Bytes),
    /// In the cache.
    Cached(Box<Cached>),
    /// To be read from the store, whatever the cache has.
    Anew(Box<Cached>),
}

impl Piece {
    pub(super) fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Cached(cached) | Self::Anew(cached) => cached.extent.len(),
        }
    }
}

/// A read that the cache can serve, and what it takes to ask the store after all.
#[derive(Debug)]
pub(super) struct Cached {
    pub(super) extent: Extent,
    pub(super) keep: Keep,
    pub(super) reader: Reader,
}
