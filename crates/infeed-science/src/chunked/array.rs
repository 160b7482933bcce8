//! An array and the places of its chunks.

use infeed_core::{
    error::{Error, Result, setting::COLUMNS},
    types::DType,
};

use super::{filters::Filter, unpack::Unpacking};

/// The description of an array, with the places of its chunks.
#[derive(Clone, Debug)]
pub(crate) struct ChunkedArray {
    /// The name of its field.
    pub(crate) name: String,
    pub(crate) dtype: DType,
    /// Whether numbers have to be byte-swapped on this machine.
    pub(crate) swapped: bool,
    pub(crate) shape: Vec<u64>,
    /// Shape of a chunk, with as many axes as the array.
    pub(crate) chunk: Vec<u64>,
    /// The axes in stored order within a chunk, the slowest first: `0, 1, …` in C order.
    pub(crate) order: Vec<usize>,
    /// The fill value: one element in the machine's byte order, for missing chunks.
    pub(crate) fill: Vec<u8>,
    /// The filters to undo, in this order.
    pub(crate) filters: Vec<Filter>,
    /// How values are computed from the stored numbers, if they are packed.
    pub(crate) unpacking: Option<Unpacking>,
    /// The chunks that exist, ascending by number.
    pub(crate) places: Vec<ChunkPlace>,
}

/// Where a chunk is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkPlace {
    /// The number of the chunk in the grid, in C order.
    pub(crate) number: u64,
    pub(crate) start: u64,
    pub(crate) len: u64,
    /// Index of the object among the dataset's objects.
    pub(crate) object: u32,
    /// Bit `i` is set if filter `i` was not applied to this chunk.
    pub(crate) skipped: u32,
}

impl ChunkedArray {
    /// Number of chunks along each axis.
    pub(crate) fn grid(&self) -> Vec<u64> {
        grid(&self.shape, &self.chunk)
    }

    /// Number of chunks that a row intersects: the product over all axes but the first. [`check`](Self::check) rules
    /// out overflow.
    pub(super) fn across(&self) -> u64 {
        self.grid().iter().skip(1).product()
    }

    /// Bytes of a row.
    pub(super) fn row_bytes(&self) -> u64 {
        self.shape.iter().skip(1).product::<u64>() * self.dtype.size() as u64
    }

    /// The type of the values.
    pub(super) fn value_dtype(&self) -> DType {
        self.unpacking.as_ref().map_or(self.dtype, |unpacking| unpacking.to)
    }

    /// Bytes of one row of a chunk.
    pub(super) fn chunk_row_bytes(&self) -> u64 {
        self.chunk.iter().skip(1).product::<u64>() * self.dtype.size() as u64
    }

    /// Bytes of a decoded chunk.
    pub(super) fn chunk_bytes(&self) -> u64 {
        self.chunk[0] * self.chunk_row_bytes()
    }

    pub(super) fn in_c_order(&self) -> bool {
        self.order.iter().enumerate().all(|(at, axis)| at == *axis)
    }

    /// Rows of the chunk that are within the array.
    pub(super) fn rows_in(&self, number: u64) -> u64 {
        let first = number / self.across() * self.chunk[0];
        self.chunk[0].min(self.shape[0].saturating_sub(first))
    }

    /// Checks that the array has rows for records, and that its sizes do not overflow.
    ///
    /// # Errors
    /// `Config` for an array without rows or values, `Corrupt` for shapes that contradict each other.
    pub(super) fn check(&self) -> Result<()> {
        let Self { name, shape, chunk, .. } = self;
        if shape.is_empty() {
            return Err(Error::config(format!("`{name}` is one number: it has no axis of records"))
                .with_hint(format!("leave it out with {COLUMNS}")));
        }
        if shape[1..].contains(&0) {
            return Err(Error::config(format!("records of `{name}` have no values: its shape is {shape:?}"))
                .with_hint(format!("leave it out with {COLUMNS}")));
        }
        let bytes = |shape: &[u64]| {
            let shape: Option<Vec<usize>> = shape.iter().map(|n| usize::try_from(*n).ok()).collect();
            self.dtype.len_bytes(&shape?)
        };
        let fits = chunk.len() == shape.len() && self.order.len() == shape.len() && !chunk.contains(&0);
        let counted = fits && bytes(&shape[1..]).is_some() && bytes(chunk).is_some();
        let cells = || self.grid().iter().try_fold(1u64, |cells, n| cells.checked_mul(*n));
        match counted && cells().is_some() && self.fill.len() == self.dtype.size() {
            true => Ok(()),
            false => Err(Error::corrupt(format!("`{name}` of shape {shape:?} in chunks of {chunk:?}"))
                .with_hint("no array of this shape fits into memory: fetch its metadata again")),
        }
    }
}

/// Number of chunks along each axis; 0 if the chunks have no length along it.
pub(crate) fn grid(shape: &[u64], chunk: &[u64]) -> Vec<u64> {
    shape.iter().zip(chunk).map(|(n, chunk)| if *chunk == 0 { 0 } else { n.div_ceil(*chunk) }).collect()
}
