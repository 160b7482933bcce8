//! Arrays that are stored in chunks: what Zarr and HDF5 have in common.
//!
//! ```text
//! metadata ─ zarr, hdf5 ─▶ ChunkedArray: type, shape, shape of a chunk, filters, where each chunk lies ─ dataset.rs ─▶ Dataset
//!   plan ─▶ the chunks that a row meets ─ filters.rs, blosc.rs ─▶ numbers of a chunk, in C order ─ copy.rs ─▶ the row
//! ```
//!
//! A record is an index along the first axis, its fields are the arrays. A format says where chunks lie and what was done to
//! them; how rows are read follows from that, here:
//!
//! - A chunk of several rows is a *shared part*: read and decoded once for all of them, as a row group of Parquet is.
//! - A chunk of one row belongs to that record alone: its bytes are the record's own, read ahead, and decoded in `parse`.
//! - Of a large chunk without filters the row is read by range, and nothing else of it.
//!
//! Three things that are easy to get wrong:
//!
//! - **Chunks at the edge are whole**: behind the array's end they hold padding, which no row sees.
//! - **A chunk that is not there is no error**: its numbers are the fill value.
//! - **Shapes may lie**: only chunks that exist are listed, and a decoder sets aside what its input can hold.

mod blosc;
mod copy;
mod dataset;
mod filters;
mod of_hdf5;

pub(super) use self::{dataset::ChunkedDataset, filters::Filter};
use crate::{
    error::{Error, ErrorKind, Result},
    types::DType,
};

/// An array and its chunks.
#[derive(Clone, Debug)]
pub(super) struct ChunkedArray {
    /// The field.
    pub(super) name: String,
    pub(super) dtype: DType,
    /// Whether numbers have to be turned round for this machine.
    pub(super) swapped: bool,
    pub(super) shape: Vec<u64>,
    /// Shape of a chunk: as many axes.
    pub(super) chunk: Vec<u64>,
    /// The axes as they lie in a chunk, the slowest first: `0, 1, …` in C order.
    pub(super) order: Vec<usize>,
    /// One element in the machine's order, for chunks that are not there.
    pub(super) fill: Vec<u8>,
    /// What is undone, in this order.
    pub(super) filters: Vec<Filter>,
    /// The chunks that are there, ascending by their numbers.
    pub(super) places: Vec<Place>,
}

/// Where a chunk lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Which chunk of the grid, in C order.
    pub(super) number: u64,
    pub(super) start: u64,
    pub(super) len: u64,
    /// Which of the dataset's objects.
    pub(super) object: u32,
    /// Bit `i`: filter `i` was left out for this chunk.
    pub(super) skipped: u32,
}

impl ChunkedArray {
    /// Chunks along each axis.
    pub(super) fn grid(&self) -> Vec<u64> {
        grid(&self.shape, &self.chunk)
    }

    /// Chunks that a row meets: those of all axes but the first. Checked by [`check`](Self::check).
    fn across(&self) -> u64 {
        self.grid().iter().skip(1).product()
    }

    /// Bytes of a row.
    fn row_bytes(&self) -> u64 {
        self.shape.iter().skip(1).product::<u64>() * self.dtype.size() as u64
    }

    /// Bytes of a row of a chunk.
    fn chunk_row_bytes(&self) -> u64 {
        self.chunk.iter().skip(1).product::<u64>() * self.dtype.size() as u64
    }

    /// Bytes of a decoded chunk.
    fn chunk_bytes(&self) -> u64 {
        self.chunk[0] * self.chunk_row_bytes()
    }

    fn in_c_order(&self) -> bool {
        self.order.iter().enumerate().all(|(at, axis)| at == *axis)
    }

    /// Rows of the chunk that the array has.
    fn rows_in(&self, number: u64) -> u64 {
        let first = number / self.across() * self.chunk[0];
        self.chunk[0].min(self.shape[0].saturating_sub(first))
    }

    /// Whether its numbers can be counted on, and its rows be records.
    ///
    /// # Errors
    /// `Config` for an array without rows or values, `Corrupt` for shapes that contradict each other.
    fn check(&self) -> Result<()> {
        let Self { name, shape, chunk, .. } = self;
        if shape.is_empty() {
            return Err(Error::config(format!("`{name}` is one number: it has no axis of records"))
                .hint("leave it out with columns(…)"));
        }
        if shape[1..].contains(&0) {
            return Err(Error::config(format!("records of `{name}` have no values: its shape is {shape:?}"))
                .hint("leave it out with columns(…)"));
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
pub(super) fn grid(shape: &[u64], chunk: &[u64]) -> Vec<u64> {
    shape.iter().zip(chunk).map(|(n, chunk)| if *chunk == 0 { 0 } else { n.div_ceil(*chunk) }).collect()
}

/// An error about bytes that are not what they should be.
pub(super) fn damaged(what: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::corrupt(what).hint("fetch the object again")
}

/// An error about what this reader lacks.
pub(super) fn unsupported(what: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Unsupported, what)
}
