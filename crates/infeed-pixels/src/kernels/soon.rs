//! What a thread reads next.

use super::stream::fetch;

/// More lines than a core has on their way at a time, and still a small part of its nearest cache.
const MOST: usize = 8 << 10;

/// Bytes that are read after the work at hand, to be asked for a part at a time: 3 KB at a random place are 48 lines, and
/// from about the 20th on a core waits for the first ones before it goes on. An address alone, since nothing is read here.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Soon {
    next: usize,
    left: usize,
}

impl Soon {
    /// These bytes, if they are so few that a kernel has read them before the machine sees where it goes on.
    pub(super) fn of(bytes: &[u8]) -> Self {
        let left = if bytes.len() <= MOST { bytes.len() } else { 0 };
        Self { next: bytes.as_ptr().addr(), left }
    }

    /// Asks for one of `parts` equal parts of what is left.
    pub(super) fn ask(&mut self, parts: usize) {
        let part = self.left.div_ceil(parts.max(1));
        fetch(self.next, part);
        *self = Self { next: self.next.wrapping_add(part), left: self.left - part };
    }
}
