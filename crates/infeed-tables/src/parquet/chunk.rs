//! What is known of a column chunk before it is read.

use super::unpack::Codec;

/// Type of the values as they are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Physical {
    Bool,
    I32,
    I64,
    /// Two bytes of fixed length that are called a half.
    F16,
    F32,
    F64,
    Bytes,
}

impl Physical {
    /// Bytes of a decoded value; of bytes, of its place.
    pub(super) const fn size(self) -> usize {
        match self {
            Self::Bool => 1,
            Self::F16 => 2,
            Self::I32 | Self::F32 => 4,
            Self::I64 | Self::F64 | Self::Bytes => 8,
        }
    }
}

/// What the footer tells of a column chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    pub(super) physical: Physical,
    pub(super) codec: Codec,
    pub(super) rows: u32,
    /// Level of a value that is there; 0 where all are.
    pub(super) defined: u8,
    /// Bytes of all pages and their headers, unpacked.
    pub(super) unpacked: u32,
}

impl Chunk {
    /// Bytes of the table before the pages; for numbers there is nothing else.
    pub(super) const fn table(&self) -> usize {
        self.rows as usize * if matches!(self.physical, Physical::Bytes) { 8 } else { 1 + self.physical.size() }
    }

    /// The most bytes that the places of a dictionary take. Most have no more values than rows; one of categories may be
    /// written whole into each group, and is rarely longer than the usual limit of writers, 1 MiB.
    pub(super) fn places(&self) -> u64 {
        if self.physical == Physical::Bytes {
            (u64::from(self.rows) * 4).max(1 << 20).min(self.unpacked.into())
        } else {
            0
        }
    }

    /// The most bytes of the decoded column, what is needed to make it included.
    pub(super) fn decoded(&self) -> u64 {
        // Of numbers: a page and a dictionary are unpacked beside the table.
        self.table() as u64 + u64::from(self.unpacked) + self.places()
    }
}
