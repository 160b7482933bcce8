//! The most that is read of a file.

/// Chunks of a dataset: their places take 32 bytes each.
pub(super) const MOST_CHUNKS: u64 = 1 << 22;
