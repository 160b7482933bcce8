//! Facts about a column chunk before it is read.

use super::unpack::Codec;

/// Type of the values as they are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Physical {
    Bool,
    I32,
    I64,
    /// Two bytes of fixed length with the logical type half.
    F16,
    F32,
    F64,
    Bytes,
}

impl Physical {
    /// Bytes of a decoded value; for byte arrays, of its position.
    pub(super) const fn size(self) -> usize {
        match self {
            Self::Bool => 1,
            Self::F16 => 2,
            Self::I32 | Self::F32 => 4,
            Self::I64 | Self::F64 | Self::Bytes => 8,
        }
    }
}

/// How a column stores lists, one in each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lists {
    /// 1 for lists of numbers or bytes, 2 for lists of lists of numbers.
    pub(super) depth: u8,
    /// The definition level from which on a list has an item.
    pub(super) item: u8,
    /// Numbers in each item of a list of lists, if known; 1 otherwise.
    pub(super) inner: Option<u32>,
}

/// The footer's description of a column chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    pub(super) physical: Physical,
    pub(super) codec: Codec,
    pub(super) rows: u32,
    /// Values with the places of those that are missing: as many as rows, unless there are lists.
    pub(super) values: u32,
    pub(super) lists: Option<Lists>,
    /// The definition level of a value that is not null; 0 if there are no nulls.
    pub(super) defined: u8,
    /// Bytes of all pages and their headers, decompressed.
    pub(super) unpacked: u32,
}

impl Chunk {
    /// Bytes of the table before the pages, or before the items of lists; for numbers there is only the table.
    pub(super) const fn table(&self) -> usize {
        let has_places = matches!(self.physical, Physical::Bytes) || self.lists.is_some();
        self.rows as usize * if has_places { 8 } else { 1 + self.physical.size() }
    }

    /// Bytes before the pages: the table, and for lists of bytes the position of each item.
    pub(super) const fn before_pages(&self) -> usize {
        self.table() + if matches!(self.physical, Physical::Bytes) { self.items() } else { 0 }
    }

    /// The most bytes of the items of all lists; of bytes, of their positions.
    pub(super) const fn items(&self) -> usize {
        if self.lists.is_some() { self.values as usize * self.physical.size() } else { 0 }
    }

    /// The most bytes of the positions in a dictionary. Most dictionaries have no more values than the column.
    /// One with categories may be written whole into each group, and is rarely longer than the usual limit of writers,
    /// 1 MiB.
    pub(super) fn places(&self) -> u64 {
        if self.physical == Physical::Bytes {
            (u64::from(self.values) * 4).max(1 << 20).min(self.unpacked.into())
        } else {
            0
        }
    }

    /// Bytes of the values as they are given to records. Of bytes that a dictionary holds once, fewer than that.
    pub(super) const fn values_bytes(&self) -> u64 {
        match (self.lists, self.physical) {
            // Integers of 32 bits may become 64.
            (Some(_), Physical::I32) => self.values as u64 * 8,
            (None, _) | (Some(_), Physical::Bytes) => self.unpacked as u64,
            (Some(_), _) => self.items() as u64,
        }
    }

    /// The most bytes that the decoded column needs, including those needed while decoding it.
    pub(super) fn decoded(&self) -> u64 {
        // For numbers, a page and a dictionary are decompressed in addition to the table.
        (self.table() + self.items()) as u64 + u64::from(self.unpacked) + self.places()
    }
}
