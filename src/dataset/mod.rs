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
pub use infeed_data::{
    Cifar, CifarRecord, Claim, Dataset, Evidence, Field, FieldKind, Filter, Format, Instances, Mask, MemoryBuilder,
    MemoryDataset, Narrow, Open, OpenOption, OpenOptions, ReadPlan, Recognised, Records, Rle, Sample, Schema,
    SharedBytes, SharedRead, SyntheticDataset, Value, Volume, VolumeChannel, concat, dataset_contract, declare, filter,
    filter_with, labels, names_many, open_together, parse_cifar_record, split, subset,
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
