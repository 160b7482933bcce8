//! Bytes of a record on their way to a decode thread.

use bytes::Bytes;
use infeed_data::ReadPlan;
use infeed_store::{Extent, Keep, Reader};

/// A record with its plan, and the bytes that were read for it.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) plan: ReadPlan,
    /// Bytes of its own extents, or the bytes that its dataset read. `None` if nothing was read, because the decoded
    /// cache has the record.
    pub(super) pieces: Option<Vec<Piece>>,
}

/// Bytes of one extent.
#[derive(Debug)]
pub(super) enum Piece {
    /// In memory.
    Bytes(Bytes),
    /// In the cache.
    Cached(Box<Cached>),
    /// To be read from the store, even if the cache has it.
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

/// A read that the cache can serve, and the extent to read from the store if the entry is gone.
#[derive(Debug)]
pub(super) struct Cached {
    pub(super) extent: Extent,
    pub(super) keep: Keep,
    pub(super) reader: Reader,
}
