//! What a record is: how many there are, which bytes hold one, how to cut them into fields.
//!
//! ```text
//! open(url) ─ Source::list ─▶ names ─ Format::recognises ─▶ Format::open ─▶ Dataset
//!                                                                            │ plan(record)  ─▶ which bytes
//!                                                                            └ parse(bytes)  ─▶ fields (slices)
//! ```
//!
//! Several datasets are [one](concat()), which [tells its parts](Dataset::parts); which share of an epoch each is, the order says
//! ([`Mixture`](crate::sampler::Mixture)). Records are chosen when a dataset is opened ([`Filter`]), and numbered anew.
//!
//! A format of your own is a [`Format`] that [`Open::add_format`] takes; [`dataset_contract`] checks its [`Dataset`].

#[cfg(any(feature = "hdf5", feature = "zarr"))]
mod chunked;
mod formats;
#[cfg(feature = "hdf5")]
mod hdf5;
mod mds;
mod open;
#[cfg(feature = "parquet")]
mod parquet;
mod tfrecord;
#[cfg(feature = "volumes")]
mod volumes;
#[cfg(feature = "zarr")]
mod zarr;

pub use formats::formats;
#[doc(inline)]
pub use infeed_core::{
    fingerprint::{Fingerprint, Fingerprinter},
    random::{Draws, SampleRng},
    types::ImageInfo,
};
#[doc(inline)]
pub use infeed_data::{
    Cifar, CifarRecord, Dataset, Field, FieldKind, Filter, Format, Instances, Mask, MemoryBuilder, MemoryDataset,
    Narrow, Open, OpenOption, OpenOptions, ReadPlan, Records, Rle, Sample, Schema, SharedBytes, SharedRead,
    SyntheticDataset, Value, Volume, VolumeChannel, concat, dataset_contract, filter, filter_with, labels, names_many,
    open_together, parse_cifar_record, split, subset,
};
#[doc(inline)]
pub use infeed_store::{Extent, Source};
pub use open::{open, open_source};
#[cfg(feature = "dicom")]
pub use volumes::Dicom;
#[cfg(feature = "volumes")]
pub use volumes::{Volumes, fuzz};
