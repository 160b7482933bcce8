//! Records: their number, the bytes that hold one, how bytes are cut into fields, and their order (`sampler`).
//! **Internal: no promise of stability**; users depend on `infeed`.
//!
//! ```text
//! open(url) ─ Source::list ─▶ names ─ Format::claim ─▶ Format::open ─▶ Dataset
//!                                                                            │ plan(record)  ─▶ which bytes
//!                                                                            └ parse(bytes)  ─▶ fields (slices)
//! ```
//!
//! Three things that are easy to get wrong:
//!
//! - **Formats are recognised by names alone**: a million objects are listed, none is opened. The kind of an image file
//!   is read from its first bytes, when the file is read.
//! - **All I/O happens while a dataset is opened**, except for lookups in the index of tars and in kept annotations of
//!   COCO, files on this machine. `plan` and `parse` are pure and must not panic, whatever the bytes are. Records that
//!   are in no file and no store are read by [`Dataset::read`], which may block.
//! - **Records are ordered by name bytes**, on every machine and store, because a saved state counts positions.
//!
//! To add a format: write a file with a [`Format`] and a [`Dataset`], add it to `src/dataset/formats.rs` of `infeed`,
//! and call [`dataset_contract`] in a test. Outside these crates, use [`Open::add_format`]. A format lists the options
//! that it takes ([`Format::options`]); any other option is an error before the format is called.
//!
//! Imports go one way, from records to formats; code that opens datasets gets the list of formats from outside
//! ([`Opener`]):
//!
//! ```text
//! schema volume mask ◀─ instances ◀─ record ◀─ format ◀─ names layout objects files labels label_table marked pairs table ◀─ folder coco voc yolo …
//!                                        ▲                  ▲
//!                                        └─ subset concat   └─ open ─▶ filter ─▶ look
//!                                                               ├─▶ declared
//!                                                               └─▶ named_files, json_values ─▶ look
//! ```
//!
//! Several datasets can be [put together](concat()) into one, which [has parts](Dataset::parts); a
//! [`Mixture`](crate::sampler::Mixture) sets each part's share of an epoch. Records are selected when a dataset is
//! opened ([`Filter`]), and renumbered.
#![forbid(unsafe_code)]
#![allow(clippy::len_without_is_empty, reason = "items are public for other crates of ours, which ask for no more")]

#[doc(hidden)]
pub mod arrays;
mod captions;
#[doc(hidden)]
pub mod channels;
mod cifar;
mod coco;
mod concat;
mod contract;
#[doc(hidden)]
pub mod declared;
mod detection;
#[doc(hidden)]
pub mod exif;
#[doc(hidden)]
pub mod files;
mod filter;
mod folder;
#[doc(hidden)]
pub mod format;
#[doc(hidden)]
pub mod instances;
#[doc(hidden)]
pub mod json_kinds;
mod json_values;
mod label_table;
mod labels;
mod layout;
mod look;
#[doc(hidden)]
pub mod marked;
#[doc(hidden)]
pub mod mask;
mod memory;
#[doc(hidden)]
pub mod named_files;
#[doc(hidden)]
pub mod names;
#[doc(hidden)]
pub mod objects;
mod open;
#[doc(hidden)]
pub mod packed;
mod pairs;
#[doc(hidden)]
pub mod passes;
#[doc(hidden)]
pub mod pattern;
#[doc(hidden)]
pub mod read_one;
#[doc(hidden)]
pub mod record;
pub mod sampler;
#[doc(hidden)]
pub mod schema;
#[doc(hidden)]
pub mod sizes;
#[doc(hidden)]
pub mod sniff;
mod subset;
mod synthetic;
#[doc(hidden)]
pub mod table;
#[doc(hidden)]
pub mod tar;
#[doc(hidden)]
pub mod tiff;
#[cfg(feature = "voc")]
mod voc;
#[doc(hidden)]
pub mod volume;
#[doc(hidden)]
pub mod wrapped;
#[cfg(feature = "yolo")]
mod yolo;

pub use cifar::Cifar;
pub use concat::concat;
#[doc(hidden)]
pub use concat::difference;
pub use contract::dataset_contract;
pub use declared::declare;
pub use filter::{Filter, filter, filter_with};
pub use format::{Claim, Evidence, Format, OpenOption, OpenOptions, Recognised};
pub use infeed_core::{
    fingerprint::{Fingerprint, Fingerprinter},
    random::{Draws, SampleRng},
    types::ImageInfo,
};
pub use infeed_store::{Extent, Source};
pub use instances::Instances;
pub use look::{labels, lengths};
pub use mask::{Mask, Rle};
pub use memory::{MemoryBuilder, MemoryDataset};
pub use open::{Open, open_together};
#[doc(hidden)]
pub use open::{Opener, Opening};
pub use pattern::names_many;
pub use record::{Dataset, ReadPlan, Sample, SharedBytes, SharedRead, Value};
pub use schema::{Field, FieldKind, Schema};
pub use subset::{Records, split, subset};
pub use synthetic::SyntheticDataset;
#[doc(hidden)]
pub use volume::Voxels;
pub use volume::{Narrow, Volume, VolumeChannel};

#[cfg(feature = "voc")]
#[doc(hidden)]
pub use voc::Voc;
#[cfg(feature = "yolo")]
#[doc(hidden)]
pub use yolo::Yolo;
#[doc(hidden)]
pub use {arrays::Arrays, coco::Coco, folder::Folder, tar::Tar};

/// The opener of tests in this crate. The full list of formats, in order, is in `src/dataset/formats.rs` of `infeed`.
#[cfg(test)]
static HERE: Opener = Opener {
    formats: &[
        &Cifar::Ten,
        &Cifar::Hundred,
        &Coco,
        #[cfg(feature = "voc")]
        &Voc,
        #[cfg(feature = "yolo")]
        &Yolo,
        &Folder { parquet: None, lines: None },
        &Arrays,
        &Tar,
    ],
    wait: |opening| futures::executor::block_on(opening),
};

#[cfg(test)]
fn open_source(source: Source) -> Open {
    Open::of_source(source, &HERE)
}
