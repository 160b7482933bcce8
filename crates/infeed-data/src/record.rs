//! What a record is: the bytes that hold it, and the values that are cut out of them.

use std::{fmt::Debug, num::NonZeroUsize, ops::Range, sync::Arc};

use bytes::Bytes;
use infeed_core::{
    error::{Error, ErrorKind, Result},
    fingerprint::Fingerprint,
    random::SampleRng,
    types::ImageInfo,
};
use infeed_store::Extent;
use smallvec::SmallVec;

use super::{
    instances::Instances,
    schema::Schema,
    volume::{Narrow, Volume},
};

/// Records that can be read in any order.
///
/// All I/O happens while the dataset is opened, except for lookups in a file on this machine: an index, kept
/// annotations. After that, each method is pure, quick and callable from any thread. Only [`read`](Self::read) may
/// block; it serves records that are in no file and no store.
///
/// ```
/// use bytes::Bytes;
/// use infeed::{
///     Dataset, Error, Result,
///     dataset::{Field, Fingerprint, ReadPlan, Sample, SampleRng, Schema, Value, dataset_contract},
/// };
///
/// /// The numbers from 0 to 99, each with its last digit as the label.
/// #[derive(Debug)]
/// struct Digits(Schema);
///
/// impl Digits {
///     fn check(&self, record: u64) -> Result<()> {
///         let beyond = || Error::config("there are 100 records").at_record(record);
///         (record < self.len()).then_some(()).ok_or_else(beyond)
///     }
/// }
///
/// impl Dataset for Digits {
///     fn len(&self) -> u64 {
///         100
///     }
///     fn schema(&self) -> &Schema {
///         &self.0
///     }
///     fn format(&self) -> &str {
///         "digits"
///     }
///     fn plan(&self, record: u64, _rng: SampleRng) -> Result<ReadPlan> {
///         // Nothing is read.
///         self.check(record).map(|()| ReadPlan::default())
///     }
///     fn parse(&self, record: u64, _plan: &ReadPlan, _bytes: &[Bytes]) -> Result<Sample> {
///         self.check(record)?;
///         Ok(Sample::new([Value::Label(record as i64 % 10)]))
///     }
///     fn object(&self, record: u64) -> String {
///         format!("number {record}")
///     }
///     fn largest_read(&self) -> u64 {
///         0
///     }
///     fn needs_fetch(&self) -> bool {
///         false
///     }
///     fn fingerprint(&self) -> Fingerprint {
///         Fingerprint::of("digits").number(self.len()).finish()
///     }
/// }
///
/// let digits = Digits(Schema::new(vec![Field::label()]));
/// futures::executor::block_on(dataset_contract(&digits))?;
/// # Ok::<(), infeed::Error>(())
/// ```
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
    /// The bytes that hold `record`. Empty for records that the dataset holds in memory.
    fn plan(&self, record: u64, rng: SampleRng) -> Result<ReadPlan>;
    /// Cuts bytes into fields, in the schema's order. The fields are slices; nothing is copied.
    ///
    /// `bytes` are those of the plan's extents in the same order, or those that [`read`](Self::read) returned, followed
    /// by the decoded shared parts.
    fn parse(&self, record: u64, plan: &ReadPlan, bytes: &[Bytes]) -> Result<Sample>;
    /// Reads records whose plans have [`by_dataset`](ReadPlan::by_dataset) set. Returns for each record its bytes, in
    /// any number of pieces, as [`parse`](Self::parse) wants them, or an error.
    ///
    /// If a record is damaged (`Corrupt`), not supported or [unreadable](Error::into_unreadable), its error concerns only
    /// this record and is handled as `on_bad_sample` says, as with any other read. Any other error ends the stream.
    ///
    /// This method may block, compute, and call another language. The engine calls it ahead of the decode threads, on
    /// threads used for nothing else. Each call takes as many records as need about a millisecond together, in the
    /// order of the plan. At most [`concurrent_reads`](Self::concurrent_reads) calls run at a time, and only while
    /// there is memory for the bytes that they are expected to return.
    ///
    /// The engine does not retry a call, sets no deadline, and does not cache the result. A dropped stream does not
    /// wait for a running call, whose thread may outlive the stream.
    fn read(&self, records: &[u64]) -> Vec<Result<Vec<Bytes>>> {
        let none = |_: &u64| Err(Error::new(ErrorKind::Internal, "the dataset reads no record itself"));
        records.iter().map(none).collect()
    }
    /// How many calls of [`read`](Self::read) are worth making at a time, unless the setting `io_concurrency` is given.
    /// Default: `None`, the dataset has no records that it reads itself.
    fn concurrent_reads(&self) -> Option<NonZeroUsize> {
        None
    }
    /// Decodes a shared part from the bytes of its extents. The loader calls it once for all records that use the part,
    /// as long as its memory holds the result. The result has at most [`SharedRead::bytes`] bytes.
    fn decode_shared(&self, key: u64, bytes: &[Bytes]) -> Result<Bytes> {
        let _ = bytes;
        Err(Error::new(ErrorKind::Internal, format!("the dataset shares no part {key}")))
    }
    /// Memory that the shared parts need.
    fn shared_bytes(&self) -> SharedBytes {
        SharedBytes::default()
    }
    /// The same records, for a loader that uses only a box of each volume; the plans of the result may read less.
    /// Default: `None`, they would not read less.
    fn narrowed(&self, to: &Arc<dyn Narrow>) -> Option<Arc<dyn Dataset>> {
        let _ = to;
        None
    }
    /// Height and width of the record's image, if they are known before the record is read, for example from
    /// annotations. Needed by `Transform::pad_to_largest` (rows as large as the largest image of their batch) and by
    /// [`BucketSampler`](crate::sampler::BucketSampler) (batches by aspect ratio). Default: `None`, not known.
    fn image_size(&self, record: u64) -> Option<[u32; 2]> {
        let _ = record;
        None
    }
    /// The value of this field in `record`, if it is known before the record is read: labels from folder names, columns
    /// of a table that comes with the images. [Filters](super::filter()) and [weights](super::labels()) then need not
    /// read the record. Default: `None`, not known.
    fn known(&self, record: u64, field: &str) -> Option<Value> {
        let _ = (record, field);
        None
    }
    /// Name of the object that holds `record`, for messages.
    fn object(&self, record: u64) -> String;
    /// Name of the object that holds this field of `record`, for messages. Differs from [`object`](Self::object), the
    /// default, if fields are in objects of their own, such as masks in files next to the images.
    fn object_of(&self, record: u64, field: &str) -> String {
        let _ = field;
        self.object(record)
    }
    /// The most bytes that the plan of one record reads or expects.
    fn largest_read(&self) -> u64;
    /// The most bytes that the plan of a usual record reads, without records that are far larger than the others, such
    /// as a film among photographs. The loader divides its memory by this number. It still reads a larger record if
    /// there is memory for it; otherwise the record is a bad sample. Default: [`largest_read`](Self::largest_read), so
    /// that no record is too large.
    fn usual_read(&self) -> u64 {
        self.largest_read()
    }
    /// Bytes of all fields of [bytes](super::FieldKind::Bytes), [text](super::FieldKind::Text),
    /// [texts](super::FieldKind::Texts) and [lists](super::FieldKind::List) in a usual record. The memory budget counts this many for each row of a batch,
    /// so a format without an index of lengths returns about their mean. Default: `None`, the budget counts
    /// the most that these fields can have.
    fn usual_varying(&self) -> Option<u64> {
        None
    }
    /// Whether some records are read over a network, by tasks ahead of the decode threads
    /// ([`Source::reads_inline`](infeed_store::Source::reads_inline) is false). False if the decode threads read all
    /// records themselves, if [`read`](Self::read) does, or if nothing is read.
    fn needs_fetch(&self) -> bool {
        true
    }
    /// Bytes that the dataset itself keeps in memory for its records.
    fn resident_bytes(&self) -> u64 {
        0
    }
    /// First record of each group that should be read together (a shard, a patient), ascending, starting with 0.
    fn groups(&self) -> Option<Arc<[u64]>> {
        None
    }
    /// First record of each dataset that this one was put together from, in their order, starting with 0. An empty
    /// dataset begins where the next one does. A [`Mixture`](crate::sampler::Mixture) sets which share of an epoch each
    /// of them gets. Default: `None`, there is only one.
    fn parts(&self) -> Option<Arc<[u64]>> {
        None
    }
    /// Identity: format, relative names, sizes and number of records.
    fn fingerprint(&self) -> Fingerprint;
}

/// The bytes that hold a record.
///
/// ```
/// use infeed::{
///     dataset::ReadPlan,
///     source::{Extent, Source},
/// };
///
/// # let store = std::sync::Arc::new(object_store::memory::InMemory::new());
/// # let source = Source::from_store(store, Default::default(), "memory://doc");
/// // Record 3 of a file with records of 3073 bytes.
/// let plan = ReadPlan::one(Extent::part(&source, "train.bin", 3 * 3073..4 * 3073));
/// assert_eq!((plan.extents.len(), plan.len_bytes()), (1, 3073));
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ReadPlan {
    /// Reads, in the order in which `parse` wants their bytes.
    pub extents: SmallVec<[Extent; 1]>,
    /// Parts that other records use as well.
    pub shared: Vec<SharedRead>,
    /// The box of the volume that is read; `None`: all of it.
    pub window: Option<[Range<usize>; 3]>,
    /// If set, [`Dataset::read`] reads the record, and there are no extents. The number is how many bytes it is
    /// expected to return: the loader reserves memory for them before the call. If more bytes arrive, the loader begins
    /// no further read until there is memory for all of them.
    pub by_dataset: Option<u64>,
}

/// A part that is read and decoded once for several records, such as a compressed volume.
///
/// ```
/// use infeed::{
///     dataset::{ReadPlan, SharedRead},
///     source::{Extent, Source},
/// };
///
/// # let store = std::sync::Arc::new(object_store::memory::InMemory::new());
/// # let source = Source::from_store(store, Default::default(), "memory://doc");
/// // The compressed volume of patient 5, out of which every record of the patient is cut.
/// let volume = Extent::whole(&source, "patient5/ct.nii.gz", 9_400_000);
/// let mut plan = ReadPlan::default();
/// plan.shared.push(SharedRead::new(5, [volume], 67_108_864));
/// assert_eq!(plan.shared[0].encoded(), 9_400_000);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SharedRead {
    /// Identifies the part: the same key in all plans of the dataset means the same part.
    pub key: u64,
    /// Reads, in the order in which [`Dataset::decode_shared`] wants their bytes.
    pub extents: SmallVec<[Extent; 1]>,
    /// Bytes of the decoded part, at most.
    pub bytes: u64,
}

impl SharedRead {
    /// A part of at most `bytes` bytes when decoded.
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

/// Memory that the shared parts of a dataset need.
///
/// ```
/// use infeed::dataset::SharedBytes;
///
/// // Encoded and decoded lengths of a dataset's parts, as `Dataset::shared_bytes` returns them.
/// let parts = [(9_400_000, 67_108_864), (8_100_000, 50_331_648)];
/// let bytes = SharedBytes {
///     encoded: parts.iter().map(|(encoded, _)| *encoded).max().unwrap_or(0),
///     one: parts.iter().map(|(encoded, decoded)| encoded + decoded).max().unwrap_or(0),
///     all: parts.iter().map(|(_, decoded)| decoded).sum(),
/// };
/// assert_eq!((bytes.encoded, bytes.one, bytes.all), (9_400_000, 76_508_864, 117_440_512));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedBytes {
    /// The shared parts of one record, encoded, at most. Read-ahead from a store holds these.
    pub encoded: u64,
    /// The shared parts of one record, encoded and decoded, at most. The loader needs at least this much memory.
    pub one: u64,
    /// All shared parts, decoded. More memory than this has no effect.
    pub all: u64,
}

impl ReadPlan {
    /// A plan that reads only shared parts.
    #[doc(hidden)]
    #[must_use]
    pub fn of_shared(shared: Vec<SharedRead>) -> Self {
        Self { shared, ..Self::default() }
    }

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

    /// A plan for a record that [`Dataset::read`] reads; it is expected to return this many bytes.
    #[must_use]
    pub fn by_dataset(bytes: u64) -> Self {
        Self { by_dataset: Some(bytes), ..Self::default() }
    }

    /// Bytes to read, as far as known.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.extents.iter().map(Extent::len).sum::<u64>() + self.by_dataset.unwrap_or(0)
    }
}

/// One record, cut into fields in the schema's order.
///
/// ```
/// # futures::executor::block_on(async {
/// use infeed::dataset::{SampleRng, Value};
///
/// // What a loader does for each record: plan, read, parse. This one is in memory.
/// let dataset = infeed::open("synthetic://?count=50&height=8&width=8&classes=5").await?;
/// let plan = dataset.plan(7, SampleRng::new(0, 0, 7))?;
/// let sample = dataset.parse(7, &plan, &[])?;
/// let [Value::Pixels { info, .. }, Value::Label(label)] = &sample.values[..] else { panic!("image and label") };
/// assert_eq!((info.height, *label), (8, 2));
/// # Ok::<(), infeed::Error>(()) }).unwrap();
/// ```
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
///
/// ```
/// use infeed::dataset::{ImageInfo, Sample, Value};
///
/// // A record of pixels, a class, and a text.
/// let pixels = Value::Pixels { info: ImageInfo::interleaved_u8(2, 2, 3), data: vec![0; 12].into() };
/// let sample = Sample::new([pixels, Value::Label(3), Value::Bytes("two by two".into())]);
/// let label = sample.values.iter().find_map(|value| match value {
///     Value::Label(label) => Some(*label),
///     _ => None,
/// });
/// assert_eq!(label, Some(3));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Value {
    /// An image file. Its first bytes give its kind.
    Encoded(Bytes),
    /// One image file of one channel for each channel of the image, all of one size and type.
    Channels(Arc<[Bytes]>),
    /// Pixels, ready to resample.
    Pixels {
        /// Their shape.
        info: ImageInfo,
        /// `info.len_bytes()` bytes in the machine's order.
        data: Bytes,
    },
    /// A volume, or the box of it that is needed.
    Volume(Box<Volume>),
    /// A class index.
    Label(i64),
    /// Numbers of the field's type and shape.
    Array(Bytes),
    /// Bytes as they are, or text.
    Bytes(Bytes),
    /// The items of a list, one after another, in the machine's byte order.
    List(Bytes),
    /// Images, each [encoded](Self::Encoded), as [channels](Self::Channels) or as [pixels](Self::Pixels).
    Images(Arc<[Self]>),
    /// Texts.
    Texts(Arc<[Bytes]>),
    /// The objects that are marked in the record's image.
    Instances(Box<Instances>),
}

/// Reads records of a part for the whole dataset: the part calls them `children`, the whole calls them `records`.
pub fn read_renamed(part: &dyn Dataset, children: &[u64], records: &[u64]) -> Vec<Result<Vec<Bytes>>> {
    let read = part.read(children).into_iter().zip(records);
    read.map(|(read, record)| read.map_err(|e| e.rename_record(*record))).collect()
}

/// The error of every dataset for a record that it does not have.
pub fn no_such_record(record: u64, len: u64) -> Error {
    Error::new(ErrorKind::Internal, format!("record {record} is beyond the dataset's {len} records")).at_record(record)
}

/// The record's index in tables; an error for a record beyond them.
pub fn index(record: u64, len: usize) -> Result<usize> {
    usize::try_from(record).ok().filter(|i| *i < len).ok_or_else(|| no_such_record(record, len as u64))
}
