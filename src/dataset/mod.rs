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
//! - **All I/O happens in opening.** `plan` and `parse` are pure and must not panic, whatever the bytes are.
//! - **Records are ordered by name bytes**, on every machine and store, because a saved state counts positions.
//!
//! To add a format: a file with a [`Format`] and a [`Dataset`], its word in `formats!` below, and a test that calls
//! [`dataset_contract`]. Outside this crate, [`Open::add_format`] takes it.
#![forbid(unsafe_code)]

pub(crate) mod arrays;
mod channels;
mod cifar;
mod concat;
mod contract;
mod folder;
mod labels;
mod mds;
mod memory;
mod open;
#[cfg(feature = "parquet")]
mod parquet;
mod pattern;
mod subset;
mod synthetic;
pub(crate) mod tar;
mod tfrecord;
pub(crate) mod tiff;
mod volume;
#[cfg(feature = "volumes")]
mod volumes;

use std::{fmt::Debug, ops::Range, sync::Arc};

use bytes::Bytes;
use futures::future::BoxFuture;
use smallvec::SmallVec;

pub use cifar::{Cifar, CifarRecord, parse_record as parse_cifar_record};
pub use concat::concat;
pub use contract::dataset_contract;
pub use memory::{MemoryBuilder, MemoryDataset};
pub use open::{Open, OpenOptions, open, open_source};
pub use pattern::names_many;
pub use subset::{Records, split, subset};
pub use synthetic::SyntheticDataset;
pub use volume::{Narrow, Volume, VolumeChannel};
#[cfg(feature = "volumes")]
pub use volumes::{Volumes, fuzz};

use crate::{
    error::{Error, ErrorKind, Result},
    fingerprint::Fingerprint,
    random::SampleRng,
    source::{Extent, Object, Source},
    types::{DType, ImageInfo},
};

macro_rules! formats {
    ($($(#[$when:meta])? $format:path),+ $(,)?) => {
        /// The formats that [`open()`] tries, in this order.
        #[must_use]
        pub fn formats() -> &'static [&'static dyn Format] {
            &[$($(#[$when])? &$format),+]
        }
    };
}

// The narrower names first: a folder of CIFAR files may hold a picture as well.
formats! {
    Cifar::Ten,
    Cifar::Hundred,
    #[cfg(feature = "volumes")]
    Volumes,
    mds::Mds,
    folder::Folder,
    arrays::Arrays,
    tar::Tar,
    tfrecord::TfRecord,
    // The last, so that the feature changes nothing else: tables of metadata lie beside images and tars.
    #[cfg(feature = "parquet")]
    parquet::Parquet,
}

/// Records that can be read in any order.
///
/// All I/O happens in opening; afterwards each method is pure, quick and callable from any thread.
pub trait Dataset: Debug + Send + Sync + 'static {
    /// Number of records.
    fn len(&self) -> u64;
    /// Whether there are no records.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The fields of each record.
    fn schema(&self) -> &Schema;
    /// Name of the format, as `inspect` prints it.
    fn format(&self) -> &str;
    /// Which bytes hold `record`. Empty for records that the dataset holds in memory.
    fn plan(&self, record: u64, rng: SampleRng) -> Result<ReadPlan>;
    /// Cuts the bytes of the plan's extents (same order), and behind them those of its shared parts, decoded, into
    /// fields, in the schema's order. Slices, no copies.
    fn parse(&self, record: u64, plan: &ReadPlan, bytes: &[Bytes]) -> Result<Sample>;
    /// Decodes a shared part out of the bytes of its extents: done once for all records that use it, as long as the
    /// loader's memory holds it. At most [`SharedRead::bytes`] long.
    fn decode_shared(&self, key: u64, bytes: &[Bytes]) -> Result<Bytes> {
        let _ = bytes;
        Err(Error::new(ErrorKind::Internal, format!("the dataset shares no part {key}")))
    }
    /// What shared parts take.
    fn shared_bytes(&self) -> SharedBytes {
        SharedBytes::default()
    }
    /// The same records for a loader that uses only a box of each volume: its plans may read less. `None`: no less.
    fn narrowed(&self, to: &Arc<dyn Narrow>) -> Option<Arc<dyn Dataset>> {
        let _ = to;
        None
    }
    /// Name of the object that holds `record`, for messages.
    fn object(&self, record: u64) -> String;
    /// The most bytes that one record's plan reads.
    fn largest_read(&self) -> u64;
    /// Whether some records are read over a network, by tasks ahead of the decoding threads ([`Source::reads_inline`]
    /// says no), rather than by these threads themselves or not at all.
    fn needs_fetch(&self) -> bool {
        true
    }
    /// Bytes the dataset itself keeps in memory for its records.
    fn resident_bytes(&self) -> u64 {
        0
    }
    /// First records of groups that should be read together (a shard, a patient), ascending, starting with 0.
    fn groups(&self) -> Option<Arc<[u64]>> {
        None
    }
    /// Identity of format, relative names, sizes and record count.
    fn fingerprint(&self) -> Fingerprint;
}

/// A way to lay out records in objects.
pub trait Format: Debug + Send + Sync + 'static {
    /// Short lower-case name.
    fn name(&self) -> &'static str;
    /// Whether the listed objects look like this format. Names only: nothing is opened.
    fn recognises(&self, objects: &[Object]) -> bool;
    /// Opens the dataset. `objects` are all of the source's, sorted by the bytes of their names.
    fn open<'a>(
        &'a self,
        source: &'a Source,
        objects: Vec<Object>,
        options: &'a OpenOptions,
    ) -> BoxFuture<'a, Result<Arc<dyn Dataset>>>;
}

/// The fields of a record and the names of classes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Schema {
    /// In the order in which [`Sample`] holds them.
    pub fields: Vec<Field>,
    /// Class names; a label is an index into them.
    pub classes: Option<Arc<[String]>>,
    /// Names that other index fields count, such as those of patients.
    pub names: Vec<(String, Arc<[String]>)>,
}

impl Schema {
    /// A schema without class names.
    #[must_use]
    pub const fn new(fields: Vec<Field>) -> Self {
        Self { fields, classes: None, names: Vec::new() }
    }

    /// What the values of an index field are called: `names_of("patient")`.
    #[must_use]
    pub fn names_of(&self, field: &str) -> Option<&[String]> {
        self.names.iter().find(|(name, _)| name == field).map(|(_, names)| &**names)
    }

    /// The same with class names, if there are any.
    #[must_use]
    pub fn with_classes(mut self, classes: Option<Arc<[String]>>) -> Self {
        self.classes = classes;
        self
    }
}

/// One named value of each record.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Field {
    /// The key in a batch: `image`, `label`, `coarse_label`, …
    pub name: String,
    /// What it holds.
    pub kind: FieldKind,
    /// Whether it is an image of labels: it takes the geometry of the transform, with the draws of the record's other
    /// images, but each value stays as it is, for nothing is blended, scaled or blanked.
    pub mask: bool,
}

impl Field {
    /// A field of any kind.
    #[must_use]
    pub fn new(name: impl Into<String>, kind: FieldKind) -> Self {
        Self { name: name.into(), kind, mask: false }
    }

    /// An image of labels.
    #[must_use]
    pub fn mask(name: impl Into<String>, kind: FieldKind) -> Self {
        Self { mask: true, ..Self::new(name, kind) }
    }

    /// Encoded images of any size, decoded to RGB, named `image`.
    #[must_use]
    pub fn image() -> Self {
        Self::new("image", FieldKind::Image { channels: 3, size: None, dtype: None })
    }

    /// Class indices, named `label`.
    #[must_use]
    pub fn label() -> Self {
        Self::new("label", FieldKind::Label)
    }

    /// Text, JSON or other bytes, up to `most` in a record.
    #[must_use]
    pub fn bytes(name: impl Into<String>, most: usize) -> Self {
        Self::new(name, FieldKind::Bytes { most })
    }
}

/// What a field holds.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum FieldKind {
    /// An image, encoded or as pixels. Decoded to this many channels (gray is repeated, alpha dropped).
    Image {
        /// Channels of the tensor before the transform.
        channels: u8,
        /// Height and width where all records share them.
        size: Option<(u32, u32)>,
        /// Element type of the pixels where it is known ahead.
        dtype: Option<DType>,
    },
    /// A volume: `[channels, depth, height, width]`, made on the host.
    Volume {
        /// Channels of the tensor.
        channels: u32,
        /// Depth, height and width where all records share them.
        size: Option<[u32; 3]>,
        /// Labels, kept as they are in this type; `None`: intensities.
        mask: Option<DType>,
    },
    /// A class index, `i64`.
    Label,
    /// Fixed-shape numbers, copied as they are.
    Array {
        /// Element type.
        dtype: DType,
        /// Shape of one record.
        shape: Vec<usize>,
    },
    /// Bytes of another length in each record: text, JSON, keys. No tensor: [`Batch::bytes`](crate::Batch::bytes) gives
    /// them.
    Bytes {
        /// The most in one record. The memory budget counts so much for each row of a batch.
        most: usize,
    },
}

/// Which bytes hold a record.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ReadPlan {
    /// Reads, in the order in which `parse` wants their bytes.
    pub extents: SmallVec<[Extent; 1]>,
    /// Parts that other records use too.
    pub shared: Vec<SharedRead>,
    /// The box of the volume that is read, when it is not all of it.
    pub window: Option<[Range<usize>; 3]>,
}

/// A part that is read and decoded once for several records, such as a compressed volume.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SharedRead {
    /// The same for the same part, in all plans of the dataset.
    pub key: u64,
    /// Reads, in the order in which [`Dataset::decode_shared`] wants their bytes.
    pub extents: SmallVec<[Extent; 1]>,
    /// Bytes of the part when it is decoded, at most.
    pub bytes: u64,
}

impl SharedRead {
    /// A part of at most `bytes` when decoded.
    #[must_use]
    pub fn new(key: u64, extents: impl IntoIterator<Item = Extent>, bytes: u64) -> Self {
        Self { key, extents: extents.into_iter().collect(), bytes }
    }

    /// Bytes to read.
    #[must_use]
    pub fn encoded(&self) -> u64 {
        self.extents.iter().map(Extent::len).sum()
    }
}

/// What the shared parts of a dataset take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedBytes {
    /// Those of one record at most, encoded and decoded: the loader's least.
    pub one: u64,
    /// All, decoded: more is of no use.
    pub all: u64,
}

impl ReadPlan {
    /// A plan that reads these extents, in the order in which `parse` wants their bytes.
    #[must_use]
    pub fn new(extents: impl IntoIterator<Item = Extent>) -> Self {
        Self { extents: extents.into_iter().collect(), ..Self::default() }
    }

    /// A plan that reads one extent.
    #[must_use]
    pub fn one(extent: Extent) -> Self {
        Self { extents: SmallVec::from_buf([extent]), ..Self::default() }
    }

    /// Bytes to read.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.extents.iter().map(Extent::len).sum()
    }
}

/// One record, cut into fields in the schema's order.
#[derive(Clone, Debug)]
pub struct Sample {
    /// One value for each field.
    pub values: SmallVec<[Value; 2]>,
}

impl Sample {
    /// Values in the schema's order.
    #[must_use]
    pub fn new(values: impl IntoIterator<Item = Value>) -> Self {
        Self { values: values.into_iter().collect() }
    }
}

/// One field of one record.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Value {
    /// An image file; its kind is told by its first bytes.
    Encoded(Bytes),
    /// An image file of one channel for each channel of the image, all of one size and type.
    Channels(Arc<[Bytes]>),
    /// Pixels, ready to resample.
    Pixels {
        /// Their shape.
        info: ImageInfo,
        /// `info.len_bytes()` bytes in the machine's order.
        data: Bytes,
    },
    /// A volume or the box of it that is needed.
    Volume(Box<Volume>),
    /// A class index.
    Label(i64),
    /// Numbers of the field's type and shape.
    Array(Bytes),
    /// Bytes as they are.
    Bytes(Bytes),
}

/// What every dataset says to a record that it does not have.
fn no_such_record(record: u64, len: u64) -> Error {
    Error::new(ErrorKind::Internal, format!("record {record} is beyond the dataset's {len} records")).at_record(record)
}

/// The place of a record in tables; an error for a record beyond them.
fn index(record: u64, len: usize) -> Result<usize> {
    usize::try_from(record).ok().filter(|i| *i < len).ok_or_else(|| no_such_record(record, len as u64))
}
