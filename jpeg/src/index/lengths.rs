//! How long blocks are.

use std::sync::atomic::{AtomicU8, Ordering};

/// How many bits each block of a scan takes, in the order of the data without stuffing; 0 while that is not known, and for
/// longer ones. Threads write into it as they go: what one writes, any other would.
#[derive(Debug)]
pub(crate) struct Lengths(Box<[AtomicU8]>);

impl Lengths {
    /// Of so many blocks, none of which is known.
    pub(super) fn new(blocks: usize) -> Self {
        Self((0..blocks).map(|_| AtomicU8::new(0)).collect())
    }

    /// From a block on.
    pub(crate) fn from(&self, block: usize) -> &[AtomicU8] {
        self.0.get(block..).unwrap_or_default()
    }

    /// Takes over what was stored, as far as it is of these blocks.
    pub(super) fn fill(&self, stored: &[u8]) {
        for (to, length) in self.0.iter().zip(stored) {
            to.store(*length, Ordering::Relaxed);
        }
    }

    /// As they are stored.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        self.0.iter().map(|length| length.load(Ordering::Relaxed)).collect()
    }
}
