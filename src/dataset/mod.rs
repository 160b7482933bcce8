//! What a record is: how many there are, which bytes hold one, how to cut them into fields.

use std::{fmt::Debug, sync::Arc};

use bytes::Bytes;
use futures::future::BoxFuture;
use smallvec::SmallVec;

use crate::{
    error::Result,
    fingerprint::Fingerprint,
    random::SampleRng,
    source::{Extent, Object, Source},
    types::{DType, ImageInfo},
};

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
    /// Opens the dataset.
    fn open<'a>(&'a self, source: &'a Source, objects: Vec<Object>, options: &'a OpenOptions)
    -> BoxFuture<'a, Result<Arc<dyn Dataset>>>;
}

/// What [`open`] may be told.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct OpenOptions {
    // dataset room's business
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

/// One named value of each record.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Field {
    /// The key in a batch: `image`, `label`, `coarse_label`, …
    pub name: String,
    /// What it holds.
    pub kind: FieldKind,
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
}

/// Which bytes hold a record.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ReadPlan {
    /// Reads, in the order in which `parse` wants their bytes.
    pub extents: SmallVec<[Extent; 1]>,
}

/// One record, cut into fields in the schema's order.
#[derive(Clone, Debug)]
pub struct Sample {
    /// One value for each field.
    pub values: SmallVec<[Value; 2]>,
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
}

impl Schema {
    /// Fields without class names.
    #[must_use]
    pub fn new(fields: Vec<Field>) -> Self {
        Self { fields, classes: None }
    }
}

impl Field {
    /// A named field.
    #[must_use]
    pub fn new(name: impl Into<String>, kind: FieldKind) -> Self {
        Self { name: name.into(), kind }
    }
}

impl ReadPlan {
    /// Reads in the order in which `parse` wants their bytes.
    #[must_use]
    pub fn new(extents: impl IntoIterator<Item = Extent>) -> Self {
        Self { extents: extents.into_iter().collect() }
    }
}

impl Sample {
    /// Values in the schema's order.
    #[must_use]
    pub fn new(values: impl IntoIterator<Item = Value>) -> Self {
        Self { values: values.into_iter().collect() }
    }
}
