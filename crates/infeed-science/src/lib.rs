//! Readers of scientific arrays and medical volumes: HDF5, Zarr, NRRD, NIfTI, DICOM. **Internal: no promise of
//! stability**; users depend on `infeed`.
//!
//! ```text
//! hdf5 zarr ─▶ chunked   arrays in chunks: one dataset; chunks are read and decoded on demand
//! volumes ─▶ dicom       series of slices as volumes
//! ```
//!
//! **Boundary**: a format here implements [`Format`](infeed_data::Format) and does nothing else: it makes no rows, and
//! reads bytes only through `infeed-store`. No C library is linked.
#![forbid(unsafe_code)]

#[cfg(any(feature = "hdf5", feature = "zarr"))]
mod chunked;
#[cfg(feature = "hdf5")]
mod hdf5;
#[cfg(feature = "volumes")]
mod volumes;
#[cfg(feature = "zarr")]
mod zarr;

#[cfg(feature = "hdf5")]
pub use hdf5::Hdf5;
#[cfg(feature = "dicom")]
pub use volumes::Dicom;
#[cfg(feature = "volumes")]
pub use volumes::{Volumes, fuzz};
#[cfg(feature = "zarr")]
pub use zarr::Zarr;

#[cfg(all(test, feature = "volumes"))]
fn open_source(source: infeed_store::Source) -> infeed_data::Open {
    static HERE: infeed_data::Opener = infeed_data::Opener {
        formats: &[
            &Volumes,
            #[cfg(feature = "dicom")]
            &Dicom,
        ],
        wait: |opening| futures::executor::block_on(opening),
    };
    infeed_data::Open::of_source(source, &HERE)
}
