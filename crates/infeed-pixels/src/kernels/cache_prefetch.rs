//! Prefetches what a thread reads next.

use super::stream::fetch;

/// More cache lines than a core can fetch at a time, and still a small part of its first-level cache.
const MOST: usize = 8 << 10;

/// Bytes that are read after the current work, prefetched in parts: 3 KB at a random address are 48 cache lines, and
/// from about the 20th on, a core waits for the first ones. Only the address is kept, since nothing is read here.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CachePrefetch {
    next: usize,
    left: usize,
}

impl CachePrefetch {
    /// These bytes, if they are so few that a kernel has read them before the hardware prefetcher starts.
    pub(super) fn of(bytes: &[u8]) -> Self {
        let left = if bytes.len() <= MOST { bytes.len() } else { 0 };
        Self { next: bytes.as_ptr().addr(), left }
    }

    /// Prefetches one of `parts` equal parts of the rest.
    pub(super) fn ask(&mut self, parts: usize) {
        let part = self.left.div_ceil(parts.max(1));
        fetch(self.next, part);
        *self = Self { next: self.next.wrapping_add(part), left: self.left - part };
    }
}
