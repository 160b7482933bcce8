//! The lengths of blocks.

use std::sync::atomic::{AtomicU8, Ordering};

/// The number of bits of each block of a scan, in the order of the data without stuffing; 0 if it is unknown, or too
/// long to store. Threads write into it while they decode; they all write the same values.
#[derive(Debug)]
pub(crate) struct Lengths(Box<[AtomicU8]>);

impl Lengths {
    /// For this number of blocks, all unknown.
    pub(super) fn new(blocks: usize) -> Self {
        Self((0..blocks).map(|_| AtomicU8::new(0)).collect())
    }

    /// The lengths from a block on.
    pub(crate) fn from(&self, block: usize) -> &[AtomicU8] {
        self.0.get(block..).unwrap_or_default()
    }

    /// Copies stored lengths, if their number matches.
    pub(super) fn fill(&self, stored: &[u8]) {
        for (to, length) in self.0.iter().zip(stored) {
            to.store(*length, Ordering::Relaxed);
        }
    }

    /// The bytes to store.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        self.0.iter().map(|length| length.load(Ordering::Relaxed)).collect()
    }
}
