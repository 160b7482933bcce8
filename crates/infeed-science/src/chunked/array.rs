//! An array and where its chunks lie.

use infeed_core::{
    error::{Error, Result, setting::COLUMNS},
    types::DType,
};

use super::{filters::Filter, unpack::Unpacking};

/// An array and its chunks.
#[derive(Clone, Debug)]
pub(crate) struct ChunkedArray {
    /// The field.
    pub(crate) name: String,
    pub(crate) dtype: DType,
    /// Whether numbers have to be turned round for this machine.
    pub(crate) swapped: bool,
    pub(crate) shape: Vec<u64>,
    /// Shape of a chunk: as many axes.
    pub(crate) chunk: Vec<u64>,
    /// The axes as they lie in a chunk, the slowest first: `0, 1, …` in C order.
    pub(crate) order: Vec<usize>,
    /// One element in the machine's order, for chunks that are not there.
    pub(crate) fill: Vec<u8>,
    /// What is undone, in this order.
    pub(crate) filters: Vec<Filter>,
    /// How values are made of the numbers, where they are packed.
    pub(crate) unpacking: Option<Unpacking>,
    /// The chunks that are there, ascending by their numbers.
    pub(crate) places: Vec<Place>,
}

/// Where a chunk lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Which chunk of the grid, in C order.
    pub(crate) number: u64,
    pub(crate) start: u64,
    pub(crate) len: u64,
    /// Which of the dataset's objects.
    pub(crate) object: u32,
    /// Bit `i`: filter `i` was left out for this chunk.
    pub(crate) skipped: u32,
}

impl ChunkedArray {
    /// Chunks along each axis.
    pub(crate) fn grid(&self) -> Vec<u64> {
        grid(&self.shape, &self.chunk)
    }

    /// Chunks that a row meets: those of all axes but the first. Checked by [`check`](Self::check).
    pub(super) fn across(&self) -> u64 {
        self.grid().iter().skip(1).product()
    }

    /// Bytes of a row.
    pub(super) fn row_bytes(&self) -> u64 {
        self.shape.iter().skip(1).product::<u64>() * self.dtype.size() as u64
    }

    /// The type of its values.
    pub(super) fn value_dtype(&self) -> DType {
        self.unpacking.as_ref().map_or(self.dtype, |unpacking| unpacking.to)
    }

    /// Bytes of a row of a chunk.
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

    /// Rows of the chunk that the array has.
    pub(super) fn rows_in(&self, number: u64) -> u64 {
        let first = number / self.across() * self.chunk[0];
        self.chunk[0].min(self.shape[0].saturating_sub(first))
    }

    /// Whether its numbers can be counted on, and its rows be records.
    ///
    /// # Errors
    /// `Config` for an array without rows or values, `Corrupt` for shapes that contradict each other.
    pub(super) fn check(&self) -> Result<()> {
        let Self { name, shape, chunk, .. } = self;
        if shape.is_empty() {
            return Err(Error::config(format!("`{name}` is one number: it has no axis of records"))
                .hint(format!("leave it out with {COLUMNS}")));
        }
        if shape[1..].contains(&0) {
            return Err(Error::config(format!("records of `{name}` have no values: its shape is {shape:?}"))
                .hint(format!("leave it out with {COLUMNS}")));
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
                .hint("no such array fits into memory: fetch its metadata again")),
        }
    }
}

/// Chunks along each axis; an axis of chunks without length has none.
pub(crate) fn grid(shape: &[u64], chunk: &[u64]) -> Vec<u64> {
    shape.iter().zip(chunk).map(|(n, chunk)| if *chunk == 0 { 0 } else { n.div_ceil(*chunk) }).collect()
}
