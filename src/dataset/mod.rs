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

mod cifar;
mod concat;
mod contract;
mod folder;
mod labels;
mod mds;
mod memory;
pub(crate) mod npy;
mod open;
mod pattern;
mod subset;
mod synthetic;
pub(crate) mod tar;
mod tfrecord;

use std::{fmt::Debug, sync::Arc};

use bytes::Bytes;
use futures::future::BoxFuture;
use smallvec::SmallVec;

pub use cifar::{Cifar, CifarRecord, parse_record as parse_cifar_record};
pub use concat::concat;
pub use contract::dataset_contract;
pub use memory::{MemoryBuilder, MemoryDataset};
pub use open::{Open, OpenOptions, open, open_source};
pub use subset::{Records, split, subset};
pub use synthetic::SyntheticDataset;

use crate::{
    error::{Error, ErrorKind, Result},
    fingerprint::Fingerprint,
    random::SampleRng,
    source::{Extent, Object, Source},
    types::{DType, ImageInfo},
};

macro_rules! formats {
    ($($format:expr),+ $(,)?) => {
        /// The formats that [`open()`] tries, in this order.
        #[must_use]
        pub fn formats() -> &'static [&'static dyn Format] {
            &[$(&$format),+]
        }
    };
}

// The narrower names first: a folder of CIFAR files may hold a picture as well.
formats! { Cifar::Ten, Cifar::Hundred, mds::Mds, folder::Folder, tar::Tar, tfrecord::TfRecord }

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
    /// Cuts the bytes of the plan's extents (same order) into fields, in the schema's order. Slices, no copies.
    fn parse(&self, record: u64, plan: &ReadPlan, bytes: &[Bytes]) -> Result<Sample>;
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
}

impl Schema {
    /// A schema without class names.
    #[must_use]
    pub const fn new(fields: Vec<Field>) -> Self {
        Self { fields, classes: None }
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
}

impl Field {
    /// A field of any kind.
    #[must_use]
    pub fn new(name: impl Into<String>, kind: FieldKind) -> Self {
        Self { name: name.into(), kind }
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
}

impl ReadPlan {
    /// A plan that reads these extents, in the order in which `parse` wants their bytes.
    #[must_use]
    pub fn new(extents: impl IntoIterator<Item = Extent>) -> Self {
        Self { extents: extents.into_iter().collect() }
    }

    /// A plan that reads one extent.
    #[must_use]
    pub fn one(extent: Extent) -> Self {
        Self { extents: SmallVec::from_buf([extent]) }
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
    /// Pixels, ready to resample.
    Pixels {
        /// Their shape.
        info: ImageInfo,
        /// `info.len_bytes()` bytes in the machine's order.
        data: Bytes,
    },
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
