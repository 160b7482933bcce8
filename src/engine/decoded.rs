//! Decoded samples that are kept from epoch to epoch: in memory, or in a folder that processes and runs share.
//!
//! ```text
//! decode thread ─ look ─┬─ held: the sample, its images as pixels; nothing is read, cut or decoded
//!                       └─ missing: read, cut ─▶ worker: decodes all of the image ─ keep ─▶ memory
//!                                                                                      └──▶ queue ─ writing thread ─▶ folder
//! ```
//!
//! An entry holds everything that no draw changes: all pixels of an image as its codec gives them, and the sample's
//! other values as they were cut out of its bytes. Rows are always made from such pixels, cached or not, so they do not
//! depend on the cache.
//!
//! Easy to get wrong:
//! - **Nothing is replaced.** Each record comes once in an epoch, so all entries are worth the same, and a cache of
//!   half the pixels serves half of the reads.
//! - **A file may change under its name.** Entries of a folder are keyed by name, range and version (ETag; time and
//!   length of local files), by their codecs, and by this crate's version. Entries in memory belong to one run.
//! - **Some values of a sample do not come from its bytes**, such as labels of a list: these are fetched again from
//!   [`Dataset::known`]. The fingerprint of the dataset decides which row of a shared part a record is.
//! - **A folder's entries may disappear** while they are read: then the decode thread reads the record's bytes.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread,
};

use bytes::{Buf, BufMut, Bytes};
use infeed_core::{
    error::{Error, Result, setting::DECODED_CACHE},
    fingerprint::{Fingerprint, Fingerprinter},
    report::{CacheRecorder, CacheReport},
    types::{DType, ImageInfo},
};
use infeed_data::{Dataset, FieldKind, ReadPlan, Sample, Schema, SharedRead, Value};
use infeed_pixels::codec::{ImageCodec, KeepPixels};
use infeed_store::{BlobRead, Blobs, CacheSpec, Extent};

use super::buffers::Buffers;

/// Subfolder of the entries; another layout has another name.
const FOLDER: &str = "infeed-decoded-v1";
/// Most bytes that wait to be written. If the disk is slower than the decoders, fewer samples of the first epoch are
/// kept.
const WAITING: u64 = 64 << 20;
/// Parts of the table, each with a lock, so that threads rarely wait for one another.
const PARTS: u64 = 64;

/// Samples with their pixels.
#[derive(Debug)]
pub(crate) struct DecodedCache {
    tier: Tier,
    /// A sample did not fit: from now on images are not decoded whole in vain.
    full: Arc<AtomicBool>,
    warned: AtomicBool,
}

enum Tier {
    Memory { size: u64, used: AtomicU64, parts: Vec<RwLock<HashMap<u64, Sample>>> },
    Folder(Folder),
}

struct Folder {
    blobs: Arc<Blobs>,
    /// Fingerprint of everything that makes the pixels.
    what: Fingerprinter,
    /// Fingerprint of the numbering of records.
    dataset: Fingerprint,
    queue: OnceLock<mpsc::Sender<Written>>,
    /// Samples that wait to be written; they are served from here until then.
    waiting: Arc<Mutex<Waiting>>,
    full: Arc<AtomicBool>,
    /// Other processes write, too.
    shared: bool,
}

#[derive(Default)]
struct Waiting {
    samples: HashMap<u128, Sample>,
    bytes: u64,
}

/// An entry on its way to the folder.
struct Written {
    hash: u128,
    sample: Sample,
    bytes: u64,
    recorder: CacheRecorder,
}

/// The result of a lookup.
pub(super) enum Lookup {
    /// The sample, and the number of bytes that were read for it.
    Here(Sample, u64),
    /// Missing; with a receiver for its pixels, if there is room for them.
    Missing(Option<Box<dyn KeepPixels>>),
}

impl fmt::Debug for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory { size, .. } => write!(f, "Memory({size})"),
            Self::Folder(folder) => write!(f, "Folder({:?})", folder.blobs),
        }
    }
}

impl DecodedCache {
    /// Opens the cache for a dataset whose images these codecs decode. `shared`: other processes use the folder.
    ///
    /// # Errors
    /// `Config` for a size of 0, records without images, or a path that is not a folder; for a folder also if a codec
    /// has no identity, or if a field cannot be written to files.
    pub(crate) fn open(
        spec: &CacheSpec,
        dataset: &dyn Dataset,
        codecs: &[Arc<dyn ImageCodec>],
        shared: bool,
    ) -> Result<Arc<Self>> {
        let schema = dataset.schema();
        if spec.bytes() == 0 {
            return Err(Error::config("the decoded cache's size is 0").with_hint("omit it, or give it a size above 0"));
        }
        if !schema.fields.iter().any(|field| matches!(field.kind, FieldKind::Image { .. })) {
            return Err(Error::config("the records hold no images, so there is nothing for the decoded cache to keep")
                .with_hint(format!("leave {DECODED_CACHE} out")));
        }
        if let Some(field) = schema.fields.iter().find(|field| matches!(field.kind, FieldKind::Images { .. })) {
            return Err(Error::config(format!(
                "the decoded cache does not keep lists of images, as `{}` is",
                field.name
            ))
            .with_hint(format!("leave {DECODED_CACHE} out")));
        }
        let full = Arc::<AtomicBool>::default();
        let tier = match spec.folder() {
            None => {
                let parts = (0..PARTS).map(|_| RwLock::default()).collect();
                Tier::Memory { size: spec.bytes(), used: AtomicU64::new(0), parts }
            }
            Some(dir) => {
                let what = identity(schema, codecs)?;
                let blobs = Arc::new(Blobs::open(dir, FOLDER, spec.bytes())?);
                let (dataset, queue, waiting) = (dataset.fingerprint(), OnceLock::new(), Arc::default());
                Tier::Folder(Folder { blobs, what, dataset, queue, waiting, full: Arc::clone(&full), shared })
            }
        };
        Ok(Arc::new(Self { tier, full, warned: AtomicBool::new(false) }))
    }

    /// Finds entries of other processes; called at the beginning of an epoch. May list a folder.
    pub(super) fn refresh(&self) {
        if let Tier::Folder(Folder { blobs, shared: true, .. }) = &self.tier {
            blobs.refresh();
        }
    }

    /// Whether [`holds`](Self::holds) may access a file system, for the versions of files.
    pub(super) const fn asks_files(&self) -> bool {
        matches!(self.tier, Tier::Folder(_))
    }

    /// Whether a record need not be read. Its entry may still disappear before it is used.
    pub(super) fn holds(&self, record: u64, plan: &ReadPlan) -> bool {
        match &self.tier {
            Tier::Memory { parts, .. } => read(parts, record).contains_key(&record),
            Tier::Folder(folder) => folder
                .hash(record, plan)
                .is_some_and(|hash| lock(&folder.waiting).samples.contains_key(&hash) || folder.blobs.holds(hash)),
        }
    }

    /// Looks up a record. Blocks this thread while a file is read.
    pub(super) fn look(
        self: &Arc<Self>,
        (dataset, record): (&dyn Dataset, u64),
        plan: &ReadPlan,
        buffers: &mut Buffers,
        recorder: &CacheRecorder,
    ) -> Lookup {
        let hash = match &self.tier {
            Tier::Memory { parts, .. } => {
                if let Some(sample) = read(parts, record).get(&record) {
                    recorder.hit(len_bytes(sample));
                    return Lookup::Here(sample.clone(), 0);
                }
                0
            }
            Tier::Folder(folder) => {
                let Some(hash) = folder.hash(record, plan) else {
                    if !self.warned.swap(true, Ordering::Relaxed) {
                        let what = "records without a file or version are not kept in the folder of the decoded cache";
                        tracing::warn!(record, "{what}");
                    }
                    recorder.miss();
                    recorder.not_kept();
                    return Lookup::Missing(None);
                };
                let waiting = lock(&folder.waiting).samples.get(&hash).cloned();
                if let Some(sample) = waiting {
                    recorder.hit(len_bytes(&sample));
                    return Lookup::Here(sample, 0);
                }
                let mut buffer = buffers.take();
                match folder.blobs.read(hash, &mut buffer) {
                    BlobRead::Here => {
                        let bytes = buffer.len() as u64;
                        if let Some(mut sample) = unpack(&buffers.lend(buffer)) {
                            recall(dataset, record, &mut sample);
                            recorder.hit(bytes);
                            return Lookup::Here(sample, bytes);
                        }
                    }
                    BlobRead::Damaged => recorder.damaged(),
                    BlobRead::Gone => {}
                }
                hash
            }
        };
        recorder.miss();
        if self.full.load(Ordering::Relaxed) {
            recorder.not_kept();
            return Lookup::Missing(None);
        }
        let keeper = Keeper { cache: Arc::clone(self), record, hash, recorder: recorder.clone() };
        Lookup::Missing(Some(Box::new(keeper)))
    }

    /// The report: hits and misses of the stream of `recorder`, and the bytes held.
    pub(super) fn report(&self, recorder: &CacheRecorder) -> CacheReport {
        match &self.tier {
            Tier::Memory { size, used, .. } => recorder.report(used.load(Ordering::Relaxed), *size),
            Tier::Folder(folder) => recorder.report(folder.blobs.used(), folder.blobs.size()),
        }
    }
}

/// Replaces values from an earlier run by those that the dataset knows without reading the record.
fn recall(dataset: &dyn Dataset, record: u64, sample: &mut Sample) {
    for (field, value) in dataset.schema().fields.iter().zip(&mut sample.values) {
        if !matches!(value, Value::Pixels { .. })
            && let Some(known) = dataset.known(record, &field.name)
        {
            *value = known;
        }
    }
}

fn lock(waiting: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
    // Each section leaves it whole, so a panic elsewhere cannot have broken it.
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read(parts: &[RwLock<HashMap<u64, Sample>>], record: u64) -> std::sync::RwLockReadGuard<'_, HashMap<u64, Sample>> {
    parts[(record % PARTS) as usize].read().unwrap_or_else(PoisonError::into_inner)
}

/// Fingerprint of everything, except the bytes, on which pixels and values depend.
fn identity(schema: &Schema, codecs: &[Arc<dyn ImageCodec>]) -> Result<Fingerprinter> {
    let mut what = Fingerprint::of("decoded").text(env!("CARGO_PKG_VERSION"));
    for field in &schema.fields {
        if matches!(field.kind, FieldKind::Instances { .. } | FieldKind::Volume { .. }) {
            let (name, kind) = (&field.name, field.kind.name());
            return Err(Error::config(format!("the decoded cache can't write {kind} to files, and `{name}` holds it"))
                .with_hint("keep it in memory: ram:SIZE"));
        }
        what = what.text(&field.name).text(&format!("{:?} {}", field.kind, field.mask));
    }
    // The first codec that recognises a file decodes it, so a second one with the same identity has no effect.
    let mut all: Vec<String> = Vec::new();
    for codec in codecs {
        let Some(own) = codec.identity() else {
            let what = format!("the codec `{}` has no identity, which a decoded cache in a folder needs", codec.name());
            return Err(
                Error::config(what).with_hint("implement ImageCodec::identity, or keep the pixels in memory: ram:SIZE")
            );
        };
        if !all.contains(&own) {
            all.push(own);
        }
    }
    Ok(all.iter().fold(what, |what, own| what.text(own)))
}

impl Folder {
    /// The key of a record's sample; `None` if it is not read from a file, or from one without a version.
    fn hash(&self, record: u64, plan: &ReadPlan) -> Option<u128> {
        let parts = plan.shared.iter().flat_map(|part: &SharedRead| &part.extents);
        if plan.by_dataset.is_some() || plan.extents.is_empty() && plan.shared.is_empty() {
            return None;
        }
        let extent = |print: Fingerprinter, extent: &Extent| {
            let name = extent.source.display_name(&extent.name);
            let print = print.text(extent.source.store()).text(&name).text(&extent.version()?);
            Some(print.number(extent.range.start).number(extent.range.end))
        };
        let own = plan.extents.iter().try_fold(self.what.clone(), extent)?;
        if plan.shared.is_empty() {
            return Some(own.finish().0);
        }
        // Which row of the part it is.
        let own = own.part(self.dataset).number(record);
        parts.into_iter().try_fold(own, extent).map(|print| print.finish().0)
    }

    /// Starts the thread that writes entries; it ends with the cache.
    fn queue(&self) -> &mpsc::Sender<Written> {
        self.queue.get_or_init(|| {
            let (queue, entries) = mpsc::channel::<Written>();
            let (blobs, waiting, full) = (Arc::clone(&self.blobs), Arc::clone(&self.waiting), Arc::clone(&self.full));
            let write = move || {
                for Written { hash, sample, bytes, recorder } in entries {
                    let written = pack(&sample).is_some_and(|entry| blobs.write(hash, &entry));
                    if written {
                        recorder.written(bytes);
                    } else {
                        full.store(true, Ordering::Relaxed);
                        recorder.not_kept();
                    }
                    let mut waiting = lock(&waiting);
                    waiting.samples.remove(&hash);
                    waiting.bytes -= bytes;
                }
            };
            if let Err(error) = thread::Builder::new().name("infeed-decoded".into()).spawn(write) {
                tracing::warn!(%error, "no thread for the decoded cache: nothing is added to its folder");
            }
            queue
        })
    }
}

/// Receives the pixels of a missing record.
#[derive(Debug)]
struct Keeper {
    cache: Arc<DecodedCache>,
    record: u64,
    hash: u128,
    recorder: CacheRecorder,
}

impl KeepPixels for Keeper {
    fn keep(&self, sample: &Sample) {
        let Self { cache, record, hash, recorder } = self;
        let bytes = len_bytes(sample);
        match &cache.tier {
            Tier::Memory { size, used, parts } => {
                // Reserved first, so that all threads together stay within the size.
                let reserve = |now: u64| now.checked_add(bytes).filter(|sum| sum <= size);
                if used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, reserve).is_err() {
                    cache.full.store(true, Ordering::Relaxed);
                    return recorder.not_kept();
                }
                let mut part = parts[(record % PARTS) as usize].write().unwrap_or_else(PoisonError::into_inner);
                if part.insert(*record, apart(sample)).is_some() {
                    // Two epochs at once: another thread was faster.
                    used.fetch_sub(bytes, Ordering::Relaxed);
                } else {
                    recorder.written(bytes);
                }
            }
            Tier::Folder(folder) => {
                let mut waiting = lock(&folder.waiting);
                if waiting.samples.contains_key(hash) || folder.blobs.holds(*hash) {
                    // Two epochs at once: another thread was faster.
                    return;
                }
                let sum = waiting.bytes.saturating_add(bytes);
                let room = folder.blobs.has_room(sum);
                cache.full.fetch_or(!room, Ordering::Relaxed);
                if !room || (waiting.bytes > 0 && sum > WAITING) {
                    return recorder.not_kept();
                }
                let sample = apart(sample);
                let entry = Written { hash: *hash, sample: sample.clone(), bytes, recorder: recorder.clone() };
                if folder.queue().send(entry).is_err() {
                    return recorder.not_kept();
                }
                waiting.samples.insert(*hash, sample);
                waiting.bytes = sum;
            }
        }
    }
}

/// Bytes of a sample; views of one image count once.
fn len_bytes(sample: &Sample) -> u64 {
    let mut before: Option<&Bytes> = None;
    let mut sum = 64 * sample.values.len() as u64;
    for value in &sample.values {
        match value {
            Value::Pixels { data, .. } => {
                sum += if same(before, data) { 0 } else { data.len() as u64 };
                before = Some(data);
            }
            Value::Array(data) | Value::Bytes(data) | Value::List(data) => sum += data.len() as u64,
            Value::Texts(texts) => sum += texts.iter().map(|text| text.len() as u64).sum::<u64>(),
            Value::Instances(marked) => sum += marked.bytes() as u64,
            _ => {}
        }
    }
    sum
}

fn same(before: Option<&Bytes>, data: &Bytes) -> bool {
    before.is_some_and(|before| before.as_ptr() == data.as_ptr() && before.len() == data.len())
}

/// A copy that does not keep the bytes from which the sample was cut.
fn apart(sample: &Sample) -> Sample {
    let own = |value: &Value| match value {
        Value::Array(data) => Value::Array(Bytes::copy_from_slice(data)),
        Value::Bytes(data) => Value::Bytes(Bytes::copy_from_slice(data)),
        Value::List(data) => Value::List(Bytes::copy_from_slice(data)),
        Value::Texts(texts) => Value::Texts(texts.iter().map(|text| Bytes::copy_from_slice(text)).collect()),
        value => value.clone(),
    };
    Sample { values: sample.values.iter().map(own).collect() }
}

const PIXELS: u8 = 0;
const LABEL: u8 = 1;
const ARRAY: u8 = 2;
const BYTES: u8 = 3;
/// Mark of an entry: the same pixels as before, for another view.
const AGAIN: u8 = 4;
const LIST: u8 = 5;
const TEXTS: u8 = 6;

/// A sample as an entry: the number of values, then each value as a mark, its sizes and its bytes. Numbers are
/// little-endian, pixels in native byte order. `None` if a value is of another kind.
fn pack(sample: &Sample) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(usize::try_from(len_bytes(sample)).ok()? + 64);
    out.put_u32_le(u32::try_from(sample.values.len()).ok()?);
    let mut before = None;
    for value in &sample.values {
        match value {
            Value::Pixels { data, .. } if same(before, data) => out.put_u8(AGAIN),
            Value::Pixels { info, data } => {
                let dtype = DType::ALL.iter().position(|dtype| *dtype == info.dtype)?;
                out.put_u8(PIXELS);
                out.put_u32_le(info.height);
                out.put_u32_le(info.width);
                out.put_slice(&[info.channels, dtype as u8, u8::from(info.planar)]);
                out.put_slice(data);
                before = Some(data);
            }
            Value::Label(label) => {
                out.put_u8(LABEL);
                out.put_i64_le(*label);
            }
            Value::Array(data) | Value::Bytes(data) | Value::List(data) => {
                out.put_u8(match value {
                    Value::Array(_) => ARRAY,
                    Value::Bytes(_) => BYTES,
                    _ => LIST,
                });
                out.put_u64_le(data.len() as u64);
                out.put_slice(data);
            }
            Value::Texts(texts) => {
                out.put_u8(TEXTS);
                out.put_u32_le(u32::try_from(texts.len()).ok()?);
                for text in &**texts {
                    out.put_u64_le(text.len() as u64);
                    out.put_slice(text);
                }
            }
            _ => return None,
        }
    }
    Some(out)
}

/// The sample of an entry; its values are slices of it. `None` if the entry is malformed.
fn unpack(entry: &Bytes) -> Option<Sample> {
    let mut rest = entry.clone();
    let take = |rest: &mut Bytes, len: u64| {
        let len = usize::try_from(len).ok().filter(|len| *len <= rest.len())?;
        Some(rest.split_to(len))
    };
    let mut sample = Sample::new([]);
    for _ in 0..rest.try_get_u32_le().ok()? {
        let value = match rest.try_get_u8().ok()? {
            PIXELS => {
                let (height, width) = (rest.try_get_u32_le().ok()?, rest.try_get_u32_le().ok()?);
                let (channels, dtype) = (rest.try_get_u8().ok()?, rest.try_get_u8().ok()?);
                let (dtype, planar) = (*DType::ALL.get(usize::from(dtype))?, rest.try_get_u8().ok()? == 1);
                let info = ImageInfo { height, width, channels, dtype, planar };
                Value::Pixels { info, data: take(&mut rest, info.len_bytes())? }
            }
            AGAIN => match sample.values.last()? {
                pixels @ Value::Pixels { .. } => pixels.clone(),
                _ => return None,
            },
            LABEL => Value::Label(rest.try_get_i64_le().ok()?),
            ARRAY => {
                let len = rest.try_get_u64_le().ok()?;
                Value::Array(take(&mut rest, len)?)
            }
            BYTES => {
                let len = rest.try_get_u64_le().ok()?;
                Value::Bytes(take(&mut rest, len)?)
            }
            LIST => {
                let len = rest.try_get_u64_le().ok()?;
                Value::List(take(&mut rest, len)?)
            }
            TEXTS => {
                let count = rest.try_get_u32_le().ok()?;
                let text = |_| {
                    let len = rest.try_get_u64_le().ok()?;
                    take(&mut rest, len)
                };
                Value::Texts((0..count).map(text).collect::<Option<_>>()?)
            }
            _ => return None,
        };
        sample.values.push(value);
    }
    rest.is_empty().then_some(sample)
}

#[cfg(test)]
mod tests {
    use super::*;
    use infeed_data::MemoryDataset;
    use infeed_store::Source;

    fn sample() -> Sample {
        let info = ImageInfo { planar: true, dtype: DType::U16, ..ImageInfo::interleaved_u8(2, 3, 1) };
        let data = Bytes::from_static(b"twelve bytes");
        let pixels = || Value::Pixels { info, data: data.clone() };
        let array = Value::Array(Bytes::from_static(&[1, 2, 3]));
        let list = Value::List(Bytes::from_static(&[7; 8]));
        let texts = Value::Texts([&b"one"[..], b"", b"two"].map(Bytes::from_static).into());
        let text = Value::Bytes(Bytes::from_static(b"a text"));
        Sample::new([pixels(), pixels(), Value::Label(-7), array, list, texts, text])
    }

    #[test]
    fn an_entry_is_the_sample_again_and_views_share_their_pixels() {
        let entry = Bytes::from(pack(&sample()).unwrap());
        let one_view = Sample::new(sample().values.into_iter().skip(1));
        assert_eq!(entry.len(), pack(&one_view).unwrap().len() + 1, "pixels of two views are written once");
        let again = unpack(&entry).unwrap();
        assert_eq!(format!("{again:?}"), format!("{:?}", sample()));
        let (Value::Pixels { data: a, .. }, Value::Pixels { data: b, .. }) = (&again.values[0], &again.values[1])
        else {
            panic!("{again:?}")
        };
        assert!(same(Some(a), b));
        assert!(pack(&Sample::new([Value::Encoded(Bytes::new())])).is_none());
    }

    #[test]
    fn once_something_did_not_fit_nobody_decodes_whole_images_for_it() {
        let pixels = vec![7; 3 * 2 * 2 * 3];
        let dataset = MemoryDataset::builder().images_u8(pixels, 3, 2, 2, 3, false).build().unwrap();
        let dir = tempfile::tempdir().unwrap();
        for spec in [CacheSpec::ram(150), CacheSpec::dir(dir.path(), 150)] {
            let recorder = CacheRecorder::default();
            let cache = DecodedCache::open(&spec, &dataset, &[], false).unwrap();
            (0..3).for_each(|record| std::fs::write(dir.path().join(record.to_string()), b"a file").unwrap());
            let source = Source::parse(dir.path().to_str().unwrap()).unwrap();
            let look = |record: u64| {
                let plan = ReadPlan::new([Extent::whole(&source, record.to_string(), 6)]);
                cache.look((&dataset, record), &plan, &mut Buffers::default(), &recorder)
            };
            for record in 0..2 {
                let Lookup::Missing(Some(keeper)) = look(record) else { panic!("{spec}: there is room") };
                keeper.keep(&dataset.parse(record, &ReadPlan::default(), &[]).unwrap());
            }
            assert!(matches!(look(2), Lookup::Missing(None)), "{spec}: the second did not fit");
            assert!(matches!(look(0), Lookup::Here(..)), "{spec}: and the first is there");
            assert!(cache.report(&recorder).used <= 150);
        }
    }

    #[test]
    fn a_cut_or_longer_entry_is_none_and_damage_never_panics() {
        let entry = pack(&sample()).unwrap();
        for len in 0..entry.len() {
            assert!(unpack(&Bytes::copy_from_slice(&entry[..len])).is_none(), "{len}");
        }
        assert!(unpack(&[&entry[..], b"x"].concat().into()).is_none());
        for at in 0..entry.len() {
            for flip in [1, 0x80, 0xff] {
                let mut entry = entry.clone();
                entry[at] ^= flip;
                let _ = unpack(&entry.into());
            }
        }
    }
}
