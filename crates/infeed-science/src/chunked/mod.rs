//! Arrays stored in chunks: the common part of Zarr and HDF5.
//!
//! ```text
//! metadata ─ zarr, hdf5 ─▶ ChunkedArray: type, shape, shape of a chunk, filters, where each chunk is ─ dataset.rs ─▶ Dataset
//!   plan ─▶ the chunks that a row intersects ─ decode.rs, filters.rs ─▶ numbers of a chunk, in C order ─ copy.rs ─▶ the row
//! ```
//!
//! A record is an index along the first axis, and its fields are the arrays. Or each array is a record (series.rs). A
//! format describes where chunks are stored and how they are encoded. This module decides how to read rows:
//!
//! - A chunk of several rows is a *shared part*: read and decoded once for all of them, like a row group of Parquet.
//! - A chunk of one row belongs to one record: it is read with the record and decoded in `parse`.
//! - From a large chunk without filters only the row is read, by range.
//!
//! Three things that are easy to get wrong:
//!
//! - **Chunks at the edge have the full shape**: beyond the array's end they hold padding, which is not part of any
//!   row.
//! - **A missing chunk is not an error**: its numbers are the fill value.
//! - **Shapes may be false**: only chunks that exist are listed, and a decoder allocates only what its input can hold.

mod array;
mod blosc;
mod copy;
mod dataset;
mod decode;
mod errors;
mod filters;
mod of_hdf5;
mod series;
mod steps;
mod unpack;

#[cfg(feature = "zarr")]
pub(super) use self::array::grid;
#[cfg(feature = "hdf5")]
pub(super) use self::unpack::{Unpacking, wide};
pub(super) use self::{
    array::{ChunkPlace, ChunkedArray},
    dataset::ChunkedDataset,
    errors::{damaged, unsupported},
    filters::Filter,
    series::{Series, Sight, series, stacked, tell_alike},
    unpack::{Attributes, Number},
};
