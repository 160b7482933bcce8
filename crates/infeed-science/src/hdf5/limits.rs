//! Limits of what is read of a file.

/// Most chunks of a dataset. Each takes 32 bytes of memory.
pub(super) const MOST_CHUNKS: u64 = 1 << 22;
