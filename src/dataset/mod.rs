//! What a record is: how many there are, which bytes hold one, how to cut them into fields.
//!
//! ```text
//! open(url) ─ Source::list ─▶ names ─ Format::recognises ─▶ Format::open ─▶ Dataset
//!                                                                            │ plan(record)  ─▶ which bytes
//!                                                                            └ parse(bytes)  ─▶ fields (slices)
//! ```
//!
//! Three things that are easy to get wrong:
//!
//! - **Formats are recognised by names alone**: a million objects are listed, none is opened. What kind of image a file
//!   is, its first bytes tell when it is read.
//! - **All I/O happens in opening.** `plan` and `parse` are pure and must not panic, whatever the bytes are. Records that lie in
//!   no file and no store are read by [`Dataset::read`], which may block.
//! - **Records are ordered by name bytes**, on every machine and store, because a saved state counts positions.
//!
//! To add a format: a file with a [`Format`] and a [`Dataset`], its word in `formats.rs`, and a test that calls
//! [`dataset_contract`]. Outside this crate, [`Open::add_format`] takes it. A format says itself which options it takes
//! ([`Format::options`]); the others are refused before it is asked.
//!
//! Imports run one way, from what a record is to all formats:
//!
//! ```text
//! schema volume mask ◀─ instances ◀─ record ◀─ format ◀─ names objects files labels marked table ◀─ folder coco voc … ◀─ formats ◀─ open
//!                                        ▲
//!                                        └─ subset concat, look ◀─ filter ◀─ open
//! ```
//!
//! Several datasets are [one](concat()), which [tells its parts](Dataset::parts); which share of an epoch each is, the order says
//! ([`Mixture`](crate::sampler::Mixture)). Records are chosen when a dataset is opened ([`Filter`]), and numbered anew.
#![forbid(unsafe_code)]

pub(crate) mod arrays;
mod channels;
#[cfg(any(feature = "hdf5", feature = "zarr"))]
mod chunked;
mod cifar;
mod coco;
mod concat;
mod contract;
mod detection;
mod files;
mod filter;
mod folder;
mod format;
mod formats;
#[cfg(feature = "hdf5")]
mod hdf5;
mod instances;
mod labels;
mod look;
mod marked;
mod mask;
mod mds;
mod memory;
mod names;
mod netpbm;
mod objects;
mod open;
mod opening;
mod packed;
#[cfg(feature = "parquet")]
mod parquet;
mod pattern;
#[cfg(test)]
mod read_one;
mod record;
mod schema;
mod sizes;
mod sniff;
mod subset;
mod synthetic;
mod table;
pub(crate) mod tar;
mod tfrecord;
pub(crate) mod tiff;
#[cfg(feature = "voc")]
mod voc;
mod volume;
#[cfg(feature = "volumes")]
mod volumes;
#[cfg(feature = "zarr")]
mod zarr;

pub use cifar::{Cifar, CifarRecord, parse_record as parse_cifar_record};
pub use concat::concat;
pub use contract::dataset_contract;
pub use filter::{Filter, filter, filter_with};
pub use format::{Format, OpenOption, OpenOptions};
pub use formats::formats;
pub use infeed_core::{
    fingerprint::{Fingerprint, Fingerprinter},
    random::{Draws, SampleRng},
    types::ImageInfo,
};
pub use infeed_store::{Extent, Source};
pub use instances::Instances;
pub use look::labels;
pub use mask::{Mask, Rle};
pub use memory::{MemoryBuilder, MemoryDataset};
pub use open::{open, open_source};
pub use opening::{Open, open_together};
pub use pattern::names_many;
pub use record::{Dataset, ReadPlan, Sample, SharedBytes, SharedRead, Value};
pub use schema::{Field, FieldKind, Schema};
pub use subset::{Records, split, subset};
pub use synthetic::SyntheticDataset;
#[doc(hidden)]
pub use volume::Voxels;
pub use volume::{Narrow, Volume, VolumeChannel};
#[cfg(feature = "dicom")]
pub use volumes::Dicom;
#[cfg(feature = "volumes")]
pub use volumes::{Volumes, fuzz};
