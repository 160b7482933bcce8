//! Arrays that are stored in chunks: what Zarr and HDF5 have in common.
//!
//! ```text
//! metadata ─ zarr, hdf5 ─▶ ChunkedArray: type, shape, shape of a chunk, filters, where each chunk lies ─ dataset.rs ─▶ Dataset
//!   plan ─▶ the chunks that a row meets ─ decode.rs, filters.rs ─▶ numbers of a chunk, in C order ─ copy.rs ─▶ the row
//! ```
//!
//! A record is an index along the first axis, its fields are the arrays; or each array is a record (series.rs). A format says where chunks lie and what was done to
//! them; how rows are read follows from that, here:
//!
//! - A chunk of several rows is a *shared part*: read and decoded once for all of them, as a row group of Parquet is.
//! - A chunk of one row belongs to that record alone: its bytes are the record's own, and decoded in `parse`.
//! - Of a large chunk without filters the row is read by range, and nothing else of it.
//!
//! Three things that are easy to get wrong:
//!
//! - **Chunks at the edge are whole**: behind the array's end they hold padding, which no row sees.
//! - **A chunk that is not there is no error**: its numbers are the fill value.
//! - **Shapes may lie**: only chunks that exist are listed, and a decoder sets aside what its input can hold.

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
    array::{ChunkedArray, Place},
    dataset::ChunkedDataset,
    errors::{damaged, unsupported},
    filters::Filter,
    series::{Series, Sight, series, stacked},
    unpack::{Attributes, Number},
};
