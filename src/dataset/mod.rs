//! Datasets: how many records there are, which bytes hold a record, and how to cut these bytes into fields.
//!
//! ```text
//! open(url) ─ Source::list ─▶ names ─ Format::recognises ─▶ Format::open ─▶ Dataset
//!                                                                            │ plan(record)  ─▶ which bytes
//!                                                                            └ parse(bytes)  ─▶ fields (slices)
//! ```
//!
//! [`concat()`] joins several datasets; [`Dataset::parts`] lists them, and an order
//! ([`Mixture`](crate::sampler::Mixture)) sets the share of each in an epoch. A [`Filter`] chooses records when a
//! dataset is opened; these are numbered from 0.
//!
//! For your own format implement [`Format`] and pass it to [`Open::add_format`]; [`dataset_contract`] checks its
//! [`Dataset`].

mod formats;
mod open;

pub use formats::formats;
#[doc(inline)]
pub use infeed_core::{
    fingerprint::{Fingerprint, Fingerprinter},
    random::{Draws, SampleRng},
    types::ImageInfo,
};
#[doc(inline)]
pub use infeed_data::tar::{WrittenIndex, write_index};
#[doc(inline)]
pub use infeed_data::{
    Cifar, Claim, Dataset, Evidence, Field, FieldKind, Filter, Format, Instances, Mask, MemoryBuilder, MemoryDataset,
    Narrow, Open, OpenOption, OpenOptions, ReadPlan, Recognised, Records, Rle, Sample, Schema, SharedBytes, SharedRead,
    SyntheticDataset, Value, Volume, VolumeChannel, concat, dataset_contract, declare, filter, filter_with, labels,
    lengths, names_many, open_together, split, subset,
};
#[cfg(feature = "dicom")]
#[doc(inline)]
pub use infeed_science::Dicom;
#[cfg(feature = "volumes")]
#[doc(inline)]
pub use infeed_science::Volumes;
#[cfg(feature = "volumes")]
#[doc(hidden)]
pub use infeed_science::fuzz;
#[doc(no_inline)]
pub use infeed_store::{Extent, Source};
pub use open::{open, open_source};
