//! Measures one stage: a dataset that leaves out the other stages, which a loader runs at full speed.
//!
//! The measurement includes the loader, with its threads, queue and rows. Only the work per record is less.

use std::{fmt, num::NonZeroUsize, sync::Arc};

use bytes::Bytes;
use futures::{StreamExt, stream};
use infeed::{
    DType, Dataset, Error, Result,
    codec::{ImageCodec, PixelBuffer, codecs},
    dataset::{
        Field, FieldKind, Fingerprint, ImageInfo, Narrow, ReadPlan, Sample, SampleRng, Schema, SharedBytes, Value,
        subset,
    },
};

/// Most bytes and records that are held in memory.
const MOST_BYTES: u64 = 256 << 20;
const MOST_RECORDS: u64 = 2000;

/// The work left for each record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Only {
    /// Read its bytes, and do nothing with them.
    Fetch,
    /// Decode its files, which are in memory, and drop the pixels.
    Decode,
    /// Make rows of its pixels, which are in memory.
    Transform,
    /// Do everything but reading: its bytes are in memory.
    Prepare,
}

impl Only {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Fetch => "fetch",
            Self::Decode => "decode",
            Self::Transform => "transform",
            Self::Prepare => "decode and transform",
        }
    }
}

/// A dataset with only one stage.
pub(crate) struct Alone {
    inner: Arc<dyn Dataset>,
    only: Only,
    schema: Schema,
    /// For each record its plan and bytes, or the error of reading them.
    loaded: Arc<[Loaded]>,
    codecs: Vec<Arc<dyn ImageCodec>>,
}

type Loaded = Result<(ReadPlan, Vec<Bytes>)>;

impl fmt::Debug for Alone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Alone({:?} of {:?})", self.only, self.inner)
    }
}

/// Some records of a dataset with their bytes, evenly spread over it.
pub(crate) struct HeldRecords {
    /// These records as a dataset, read in the usual way.
    pub dataset: Arc<dyn Dataset>,
    loaded: Arc<[Loaded]>,
}

/// Sizes of held records.
#[derive(Debug, Default)]
pub(crate) struct Sizes {
    /// Bytes read for each record.
    pub bytes: Vec<u64>,
    /// Pixels of each image.
    pub pixels: Vec<u64>,
    /// Bytes of decoded pixels of each record.
    pub decoded: Vec<u64>,
}

impl Sizes {
    /// Bytes of decoded pixels of this many such records; 0 if there is nothing to decode.
    pub(crate) fn decoded_of(&self, records: u64) -> u64 {
        let known = self.decoded.len().max(1) as f64;
        (self.decoded.iter().sum::<u64>() as f64 / known * records as f64) as u64
    }
}

impl HeldRecords {
    /// Reads the records. `None` if records share parts, such as decoded volumes, because stages cannot be separated
    /// then.
    pub(crate) async fn read(dataset: &Arc<dyn Dataset>, wanted: u64) -> Result<Option<Self>> {
        if dataset.shared_bytes().one > 0 {
            return Ok(None);
        }
        let len = dataset.len();
        let fits = (MOST_BYTES / dataset.largest_read().max(1)).max(1);
        // Records that the dataset holds take no additional memory.
        let fits = if dataset.largest_read() == 0 { len } else { fits };
        let count = wanted.min(len).min(MOST_RECORDS).min(fits).max(1);
        let spread = |n: u64| (u128::from(n) * u128::from(len) / u128::from(count)) as u64;
        let dataset = subset(Arc::clone(dataset), (0..count).map(spread).collect::<Vec<_>>())?;
        let read = |record| {
            let dataset = Arc::clone(&dataset);
            async move {
                let plan = dataset.plan(record, SampleRng::new(0, 0, record))?;
                let mut bytes = Vec::with_capacity(plan.extents.len());
                for extent in &plan.extents {
                    bytes.push(extent.read().await?);
                }
                Ok((plan, bytes))
            }
        };
        let loaded: Vec<Loaded> = stream::iter(0..count).map(read).buffered(16).collect().await;
        Ok(Some(Self { dataset, loaded: loaded.into() }))
    }

    /// The sizes of the records.
    pub(crate) fn sizes(&self) -> Sizes {
        let mut sizes = Sizes::default();
        let codecs = codecs();
        for (record, loaded) in self.loaded.iter().enumerate() {
            let Ok((plan, parts)) = loaded else { continue };
            sizes.bytes.push(parts.iter().map(|part| part.len() as u64).sum());
            let Ok(sample) = self.dataset.parse(record as u64, plan, parts) else { continue };
            let mut decoded = 0;
            for value in &sample.values {
                let info = match value {
                    Value::Pixels { info, .. } => Some(*info),
                    Value::Encoded(file) => {
                        let codec = codecs.iter().find(|codec| codec.recognises(&file[..file.len().min(64)]));
                        let info = codec.and_then(|codec| codec.info(file).ok());
                        // Pixels that are used directly from the file are not kept in a cache.
                        let as_it_is = codec.is_some_and(|codec| !matches!(codec.in_place(file), Ok(None)));
                        decoded +=
                            info.filter(|info| !as_it_is && info.dtype != DType::F32).map_or(0, |i| i.len_bytes());
                        info
                    }
                    _ => None,
                };
                sizes.pixels.extend(info.map(|info| u64::from(info.width) * u64::from(info.height)));
            }
            sizes.decoded.push(decoded);
        }
        sizes
    }

    /// The same records with only one stage.
    pub(crate) fn only(&self, only: Only) -> Arc<dyn Dataset> {
        let inner = Arc::clone(&self.dataset);
        let schema = match only {
            Only::Transform | Only::Prepare => inner.schema().clone(),
            Only::Fetch | Only::Decode => {
                Schema::new(vec![Field::new("done", FieldKind::Array { dtype: DType::U8, shape: vec![1] })])
            }
        };
        let mut alone = Alone { inner, only, schema, loaded: Arc::clone(&self.loaded), codecs: codecs() };
        if only == Only::Transform {
            alone = alone.decoded();
        }
        Arc::new(alone)
    }
}

impl Alone {
    /// Replaces files by pixels, up to the memory limit. Further records repeat the first ones.
    fn decoded(self) -> Self {
        let mut samples = Vec::new();
        let mut held = 0;
        for (record, files) in self.loaded.iter().enumerate() {
            let pixels = files.as_ref().map_err(Error::clone).and_then(|(plan, bytes)| {
                let mut sample = self.inner.parse(record as u64, plan, bytes)?;
                for value in &mut sample.values {
                    if let Some((info, data)) = pixels(value, &self.codecs)? {
                        held += data.len() as u64;
                        *value = Value::Pixels { info, data };
                    }
                }
                Ok(sample)
            });
            samples.push(pixels);
            if held > MOST_BYTES {
                break;
            }
        }
        let pixels = Pixels { schema: self.schema.clone(), samples, len: self.loaded.len() as u64 };
        Self { inner: Arc::new(pixels), ..self }
    }
}

/// Decoded samples.
#[derive(Debug)]
struct Pixels {
    schema: Schema,
    samples: Vec<Result<Sample>>,
    len: u64,
}

impl Dataset for Pixels {
    fn len(&self) -> u64 {
        self.len
    }
    fn schema(&self) -> &Schema {
        &self.schema
    }
    fn format(&self) -> &str {
        "pixels"
    }
    fn plan(&self, _record: u64, _rng: SampleRng) -> Result<ReadPlan> {
        Ok(ReadPlan::new([]))
    }
    fn parse(&self, record: u64, _plan: &ReadPlan, _bytes: &[Bytes]) -> Result<Sample> {
        self.samples[record as usize % self.samples.len()].clone()
    }
    fn image_size(&self, record: u64) -> Option<[u32; 2]> {
        let sample = self.samples[record as usize % self.samples.len()].as_ref().ok()?;
        sample.values.iter().find_map(|value| match value {
            Value::Pixels { info, .. } => Some([info.height, info.width]),
            _ => None,
        })
    }
    fn object(&self, record: u64) -> String {
        format!("pixels of {record}")
    }
    fn largest_read(&self) -> u64 {
        0
    }
    fn needs_fetch(&self) -> bool {
        false
    }
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of("pixels").number(self.len).finish()
    }
}

/// The pixels of an image file; `None` if the value is not a file.
fn pixels(value: &Value, codecs: &[Arc<dyn ImageCodec>]) -> Result<Option<(ImageInfo, Bytes)>> {
    let Value::Encoded(file) = value else { return Ok(None) };
    let codec = codecs.iter().find(|codec| codec.recognises(&file[..file.len().min(64)]));
    let codec = codec.ok_or_else(|| Error::corrupt("no decoder knows this kind of file"))?;
    if let Some((info, at)) = codec.in_place(file)? {
        return Ok(Some((info, file.slice(at))));
    }
    let header = codec.header(file)?;
    if header.peak_bytes > MOST_BYTES {
        return Err(Error::corrupt("the image is too large to be measured alone"));
    }
    let mut out = PixelBuffer::default();
    codec.decode(file, &header, 0..header.height, &mut out)?;
    out.data.truncate(header.len_bytes() as usize);
    Ok(Some((header.info, out.data.into())))
}

#[deny(clippy::missing_trait_methods, reason = "a method that is left out measures another dataset in silence")]
impl Dataset for Alone {
    fn len(&self) -> u64 {
        self.loaded.len() as u64
    }
    fn is_empty(&self) -> bool {
        self.loaded.is_empty()
    }
    fn schema(&self) -> &Schema {
        &self.schema
    }
    fn format(&self) -> &str {
        self.inner.format()
    }
    fn plan(&self, record: u64, rng: SampleRng) -> Result<ReadPlan> {
        match self.only {
            Only::Fetch => self.inner.plan(record, rng),
            _ => Ok(ReadPlan::new([])),
        }
    }
    fn parse(&self, record: u64, plan: &ReadPlan, bytes: &[Bytes]) -> Result<Sample> {
        let whole = |record: u64| -> Result<Sample> {
            let (plan, bytes) = self.loaded[record as usize].as_ref().map_err(Error::clone)?;
            self.inner.parse(record, plan, bytes)
        };
        match self.only {
            Only::Transform => self.inner.parse(record, plan, bytes),
            Only::Prepare => whole(record),
            Only::Fetch => Ok(Sample::new([Value::Array(Bytes::from_static(&[1]))])),
            Only::Decode => {
                for value in &whole(record)?.values {
                    pixels(value, &self.codecs)?;
                }
                Ok(Sample::new([Value::Array(Bytes::from_static(&[1]))]))
            }
        }
    }
    fn read(&self, records: &[u64]) -> Vec<Result<Vec<Bytes>>> {
        self.inner.read(records)
    }
    fn concurrent_reads(&self) -> Option<NonZeroUsize> {
        self.inner.concurrent_reads().filter(|_| self.only == Only::Fetch)
    }
    fn decode_shared(&self, key: u64, bytes: &[Bytes]) -> Result<Bytes> {
        self.inner.decode_shared(key, bytes)
    }
    fn shared_bytes(&self) -> SharedBytes {
        self.inner.shared_bytes()
    }
    fn narrowed(&self, _to: &Arc<dyn Narrow>) -> Option<Arc<dyn Dataset>> {
        // The loaded bytes are those of whole records.
        None
    }
    fn image_size(&self, record: u64) -> Option<[u32; 2]> {
        self.inner.image_size(record)
    }
    fn known(&self, record: u64, field: &str) -> Option<Value> {
        self.inner.known(record, field)
    }
    fn object(&self, record: u64) -> String {
        self.inner.object(record)
    }
    fn object_of(&self, record: u64, field: &str) -> String {
        self.inner.object_of(record, field)
    }
    fn largest_read(&self) -> u64 {
        if self.only == Only::Fetch { self.inner.largest_read() } else { 0 }
    }
    fn usual_read(&self) -> u64 {
        if self.only == Only::Fetch { self.inner.usual_read() } else { 0 }
    }
    fn usual_varying(&self) -> Option<u64> {
        self.inner.usual_varying()
    }
    fn needs_fetch(&self) -> bool {
        self.only == Only::Fetch && self.inner.needs_fetch()
    }
    fn resident_bytes(&self) -> u64 {
        self.inner.resident_bytes()
    }
    fn groups(&self) -> Option<Arc<[u64]>> {
        self.inner.groups()
    }
    fn parts(&self) -> Option<Arc<[u64]>> {
        self.inner.parts()
    }
    fn fingerprint(&self) -> Fingerprint {
        self.inner.fingerprint()
    }
}
