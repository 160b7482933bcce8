//! Makes shards in advance: reads a dataset once, resizes and encodes its images, and packs them into tars that are
//! read faster.
//!
//! ```text
//! dataset ─ order ─▶ cut into shards by the sizes of the source ─▶ this rank's ─▶ Loader ─▶ Pack (on the decoding threads:
//! decode, resize, encode, one piece of tar a record) ─▶ in order ─▶ shard-000017.tar + shard-000017.infeed … shards.infeed
//! ```
//!
//! ```no_run
//! # async fn f() -> infeed::Result<()> {
//! use infeed::prepare::{Prepare, Size};
//! let dataset = infeed::open("s3://photos/caltech256").await?;
//! let done = Prepare::new(dataset, "/data/caltech-256px").size(Size::Exact(256, 256)).quality(90).shuffle(7).run().await?;
//! println!("{} records in {} shards", done.records, done.shards);
//! # Ok(()) }
//! ```
//!
//! Easy to get wrong:
//!
//! - **The sizes of the source determine where a shard ends**, before anything is encoded: each rank computes this
//!   without the others.
//! - **The bytes of a shard depend on the dataset and the settings**, not on the number of workers and ranks, and not
//!   on interruptions.
//! - **A shard that exists is complete**: it appears at once, after its sidecar (which names the job and has a crc32c
//!   of each member). A resumed run reads finished local shards again and compares these sums. The manifest appears
//!   with the last shard.
//! - **Foreign files are safe**: a tar without a sidecar is never overwritten, and nothing is written into a folder
//!   that holds other files and no sidecar.

#![forbid(unsafe_code)]

mod cut;
mod options;
mod pack;

use std::{
    collections::{HashMap, HashSet},
    num::NonZeroU64,
    ops::Range,
    pin::pin,
    sync::Arc,
};

use bytes::Bytes;
use futures::{
    StreamExt, TryStreamExt,
    future::{Either, select},
    stream,
};
use infeed_core::{
    error::{
        Error, ErrorKind, Result,
        setting::{FIELD, SKIP},
    },
    fingerprint::Fingerprint,
    random::SampleRng,
    report::{BadSample, Stage},
    types::{DType, Device},
};
use infeed_data::{
    Dataset, Field, FieldKind,
    sampler::{LastBatch, ListSampler, Order, Shard},
    tar::{self, BLOCK, INDEX, Index},
};
use infeed_pixels::codec::{self, Orientation};
use infeed_store::{Beside, Extent, Object, ObjectWriter, Source};

pub use self::options::{Size, Store};
use self::pack::{Pack, Packing};
use crate::loader::{Loader, LoaderBuilder, OnBadSample};

/// Rows of a batch: few, since each may be large, and enough for all threads.
const BATCH: usize = 32;
/// The default of [`Prepare::shard_size`].
const SHARD_SIZE: u64 = 256 << 20;
/// The largest image that is decoded: 44 million pixels.
const MAX_IMAGE: u64 = 128 << 20;

/// The result of [`Prepare::run`] on one rank.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let out = folder.path().display().to_string();
/// # let pixels = vec![120; 6 * 32 * 48 * 3];
/// # let images = infeed::dataset::MemoryDataset::builder().images_u8(pixels, 6, 32, 48, 3, false);
/// # let dataset = std::sync::Arc::new(images.labels(vec![0, 1, 2, 0, 1, 2]).build()?);
/// use infeed::prepare::Prepare;
///
/// let done = Prepare::new(dataset, out).quality(90).parts(2.try_into().expect("not 0")).run().await?;
/// assert_eq!((done.records, done.own_shards, done.shards), (6, 2, 2));
/// assert!(done.complete && done.bad_samples.is_empty());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Prepared {
    /// Shards of the whole job.
    pub shards: u64,
    /// Shards of this rank.
    pub own_shards: u64,
    /// Shards of this rank that an earlier run had finished.
    pub found: u64,
    /// Records that were read and packed.
    pub records: u64,
    /// Bytes that were read for them.
    pub bytes_read: u64,
    /// Bytes of the shards that were written.
    pub bytes_written: u64,
    /// Records that were left out, see [`Prepare::on_bad_sample`].
    pub bad_samples: Vec<BadSample>,
    /// Whether all shards of all ranks exist, and therefore the manifest.
    pub complete: bool,
}

/// How far the work of this rank is; see [`Prepare::progress`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let out = folder.path().display().to_string();
/// # let pixels = vec![120; 6 * 32 * 48 * 3];
/// # let images = infeed::dataset::MemoryDataset::builder().images_u8(pixels, 6, 32, 48, 3, false);
/// # let dataset = std::sync::Arc::new(images.labels(vec![0, 1, 2, 0, 1, 2]).build()?);
/// use infeed::prepare::Prepare;
///
/// let mut last = None;
/// let prepare = Prepare::new(dataset, out).quality(90).progress(|now| {
///     println!("{} of {} records, {} bytes", now.records, now.of, now.bytes);
///     last = Some(now);
/// });
/// prepare.run().await?;
/// let last = last.expect("progress was called");
/// assert_eq!((last.records, last.of, last.shards, last.of_shards), (6, 6, 1, 1));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Records packed.
    pub records: u64,
    /// Records to pack.
    pub of: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Finished shards of this rank, including those of earlier runs.
    pub shards: u64,
    /// Shards of this rank.
    pub of_shards: u64,
}

/// Settings for making shards; [`run`](Self::run) makes them.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let out = folder.path().display().to_string();
/// # let pixels = vec![120; 6 * 32 * 48 * 3];
/// # let images = infeed::dataset::MemoryDataset::builder().images_u8(pixels, 6, 32, 48, 3, false);
/// # let dataset = std::sync::Arc::new(images.labels(vec![0, 1, 2, 0, 1, 2]).build()?);
/// use infeed::prepare::{Prepare, Size};
///
/// let prepare = Prepare::new(dataset, &out).size(Size::Shorter(16)).quality(90).shuffle(42);
/// prepare.run().await?;
/// let shards = infeed::open(out).await?;
/// assert_eq!(shards.len(), 6);
/// # Ok(()) }
/// ```
#[must_use = "`run` does the work"]
pub struct Prepare<'a> {
    dataset: Arc<dyn Dataset>,
    url: String,
    name: String,
    size: Size,
    store: Store,
    restarts: bool,
    orientation: Orientation,
    shuffle: Option<u64>,
    shard_size: u64,
    parts: Option<NonZeroU64>,
    shard: Shard,
    workers: Option<usize>,
    bad: OnBadSample,
    max_unreadable: Option<u64>,
    progress: Option<Box<dyn FnMut(Progress) + Send + Sync + 'a>>,
}

impl std::fmt::Debug for Prepare<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepare").field("dataset", &self.dataset).field("url", &self.url).finish_non_exhaustive()
    }
}

impl<'a> Prepare<'a> {
    /// Packs `dataset` into shards at `url`: a local folder (created if it does not exist), or a bucket and prefix.
    pub fn new(dataset: Arc<dyn Dataset>, url: impl Into<String>) -> Self {
        Self {
            dataset,
            url: url.into(),
            name: "shard".into(),
            size: Size::default(),
            store: Store::default(),
            restarts: false,
            orientation: Orientation::default(),
            shuffle: None,
            shard_size: SHARD_SIZE,
            parts: None,
            shard: Shard::default(),
            workers: None,
            bad: OnBadSample::Stop,
            max_unreadable: None,
            progress: None,
        }
    }

    /// First part of the shards' names: `train` for `train-000000.tar`. Default `shard`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Resizes the field `image`, with the antialiased filter that transforms use. Default: no.
    pub fn size(mut self, size: Size) -> Self {
        self.size = size;
        self
    }

    /// How images are stored. Default: [`Store::Keep`].
    pub fn store(mut self, store: Store) -> Self {
        self.store = store;
        self
    }

    /// Stores JPEG of this quality.
    pub fn quality(self, quality: u8) -> Self {
        self.store(Store::Jpeg(quality))
    }

    /// Whether re-encoded images are first rotated by the orientation in their files; shards do not store an
    /// orientation. Files that are kept as they are keep it. Default: [`Orientation::Auto`].
    pub fn orientation(mut self, orientation: Orientation) -> Self {
        self.orientation = orientation;
        self
    }

    /// Writes a restart marker after each row of blocks of the JPEGs that are encoded or written anew here, so that a
    /// decoder can start there. Costs about 1 % of space. Default: no.
    pub fn restart_markers(mut self, wanted: bool) -> Self {
        self.restarts = wanted;
        self
    }

    /// Packs in a random order. Default: the dataset's order.
    pub fn shuffle(mut self, seed: u64) -> Self {
        self.shuffle = Some(seed);
        self
    }

    /// Most bytes of the source in a shard; a larger record gets its own shard. Default 256 MiB. Shards of resized
    /// images become smaller in proportion.
    pub fn shard_size(mut self, bytes: u64) -> Self {
        self.shard_size = bytes;
        self
    }

    /// Makes this many shards of equal numbers of records, in place of [`shard_size`](Self::shard_size).
    pub fn parts(mut self, parts: NonZeroU64) -> Self {
        self.parts = Some(parts);
        self
    }

    /// Rank and world size, if several processes share the work: rank `i % world` makes shard `i`. Default: rank 0 of
    /// 1.
    pub fn shard(mut self, shard: Shard) -> Self {
        self.shard = shard;
        self
    }

    /// Threads that decode and encode. Default: one for each core.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// What to do with images that cannot be decoded, and with records whose files or objects cannot be read: `Stop`
    /// (default), or `Skip`, which leaves them out. An interrupted run may be resumed with the other policy, but with
    /// `Stop` finished shards that lack records are an error.
    pub fn on_bad_sample(mut self, policy: OnBadSample) -> Self {
        self.bad = policy;
        self
    }

    /// How many records may be left out because they cannot be read, see
    /// [`LoaderBuilder::max_unreadable`](crate::LoaderBuilder::max_unreadable). Default: 16, or 1 %, whichever is more.
    /// No effect with [`OnBadSample::Stop`], which ends at the first.
    pub fn max_unreadable(mut self, records: u64) -> Self {
        self.max_unreadable = Some(records);
        self
    }

    /// Calls `progress` after every few records and after each shard.
    pub fn progress(mut self, progress: impl FnMut(Progress) + Send + Sync + 'a) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    fn check(&self) -> Result<()> {
        let config = |what: &str, hint: &'static str| Err(Error::config(what.to_owned()).with_hint(hint));
        match (self.size, self.store) {
            (Size::Shorter(0) | Size::Exact(0, _) | Size::Exact(_, 0), _) => config("a size of 0", "use 1 or more"),
            (Size::Shorter(n) | Size::Exact(n, _) | Size::Exact(_, n), _) if n > 65_535 => {
                config("a size above 65535", "use 65535 or less, as JPEG does")
            }
            (_, Store::Jpeg(0 | 101..)) => {
                config("a quality that is not 1 to 100", "use 90, which is hard to tell from the original")
            }
            _ if self.shard_size == 0 => config("a shard size of 0", "use some megabytes"),
            _ if self.name.is_empty() || self.name.contains(['/', '.', '#', '%', '\\']) => {
                config("the name of the shards is empty or has one of / . # % \\", "use letters, digits, - and _")
            }
            _ if matches!(self.bad, OnBadSample::Substitute) => {
                config("a bad sample can't be substituted in shards", "use stop or skip")
            }
            _ if self.dataset.is_empty() => {
                Err(Error::new(ErrorKind::Empty, "the dataset has no records").with_hint("check the path"))
            }
            _ => self.dataset.schema().fields.iter().try_for_each(|field| self.check_field(field)),
        }
    }

    /// Rejects a field that would not be the same when it is read from the shards.
    fn check_field(&self, field: &Field) -> Result<()> {
        let name = &field.name;
        let refuse = |what: String, hint: &'static str| Err(Error::new(ErrorKind::Unsupported, what).with_hint(hint));
        let changed = self.size != Size::Keep || !matches!(self.store, Store::Keep | Store::Baseline);
        let by_name = Field::picture(&**name).mask;
        if matches!(field.kind, FieldKind::Image { .. }) && by_name != field.mask {
            // Shards hold names and files, but not the options with which this dataset was opened.
            let kind = if field.mask { "mask" } else { "image" };
            tracing::warn!(
                field = name,
                kind,
                "its name means another kind of field: set {FIELD} when you open the shards"
            );
        }
        match &field.kind {
            FieldKind::Image { .. } if changed && name != "image" => {
                let what = format!("only the field `image` is resized or encoded, and there is `{name}`");
                refuse(what, "keep size and encoding, or open the dataset without it")
            }
            FieldKind::Image { channels, dtype, .. } if field.mask => match (channels, dtype) {
                // Masks are files, which are kept.
                (1, None | Some(DType::U8 | DType::U16)) => Ok(()),
                _ => refuse(
                    format!("the mask `{name}` is not an image of one channel of u8 or u16"),
                    "read the original",
                ),
            },
            FieldKind::Image { channels, dtype, .. } => match (channels, dtype) {
                (3, None | Some(DType::U8)) => Ok(()),
                (3, Some(_)) if !changed => Ok(()),
                (3, Some(dtype)) => {
                    refuse(format!("`{name}` is of {dtype}, JPEG and raw pixels of shards are u8"), "keep its encoding")
                }
                (n, _) => refuse(format!("`{name}` has {n} channels, images of shards have 3"), "read the original"),
            },
            FieldKind::Volume { .. } => {
                refuse(format!("`{name}` is a volume, shards hold images"), "use the volumes without shards")
            }
            FieldKind::Instances { .. } => refuse(
                format!("`{name}` holds boxes of images, and shards cannot hold boxes"),
                "use the dataset without shards",
            ),
            FieldKind::Images { .. } | FieldKind::Texts { .. } => {
                let what = format!("`{name}` holds any number of {} a record, and shards hold one", field.kind.name());
                refuse(what, "open the dataset without it")
            }
            FieldKind::List { item, .. } if item.len() > 1 => {
                let what =
                    format!("the items of the list `{name}` are {item:?}, and shards hold rows of numbers at most");
                refuse(what, "open the dataset without it")
            }
            FieldKind::Array { .. } | FieldKind::List { .. } if name == "image" => {
                refuse("numbers called `image` would be read as pixels".into(), "rename the field")
            }
            _ => Ok(()),
        }
    }

    /// Identity of the content of the shards.
    fn job(&self) -> Fingerprint {
        // Without the policy for bad samples: shards with all of their records are the same under every policy, and
        // `has_all` checks the others.
        let job = Fingerprint::of("prepare 2")
            .part(self.dataset.fingerprint())
            .text(&format!("{:?} {:?} {:?} {:?}", self.size, self.store, self.shuffle, self.parts))
            .text(&format!("{}", self.restarts))
            .number(self.shard_size);
        let job = match self.orientation.of_dataset(self.dataset.schema().upright) {
            Orientation::Auto | Orientation::Ignore => job,
            turned => job.text(&format!("{turned:?}")),
        };
        job.finish()
    }

    /// Makes the shards of this rank; continues an earlier run with the same settings that was interrupted.
    ///
    /// A finished shard is made again if one of its source files now has another length, modification time or version
    /// tag.
    ///
    /// Needs a tokio runtime for remote datasets and outputs. Cancel safety: if the future is dropped, finished shards
    /// stay. In a bucket, an unfinished upload stays invisible until the bucket's rule for incomplete uploads removes
    /// it.
    ///
    /// # Errors
    /// `Config` for invalid settings, and for an output that holds shards of another job, or other files but no shards
    /// of this job; any error of reading, decoding and writing.
    pub async fn run(mut self) -> Result<Prepared> {
        self.check()?;
        let out = Source::create(&self.url)?;
        out.connect().await?;
        let order = self.shuffle.map_or(Order::Sequential, |seed| Order::Random { seed });
        let order = order.sampler(self.dataset.len(), self.dataset.groups(), 1)?;
        let order = |position| order.record(0, position);
        let starts = match self.parts {
            Some(parts) => cut::equal(self.dataset.len(), parts),
            None => cut::by_size(&*self.dataset, &order, self.shard_size)?,
        };
        let job = self.job().0;
        let present = self.present(&out, starts.len(), job).await?;

        let (rank, world) = (self.shard.rank() as usize, self.shard.world() as usize);
        let own: Vec<usize> = (rank..starts.len()).step_by(world).collect();
        let mut done = Prepared { shards: starts.len() as u64, own_shards: own.len() as u64, ..Prepared::default() };
        let range = |shard: usize| {
            let end = starts.get(shard + 1).copied().unwrap_or(self.dataset.len());
            starts[shard]..end
        };
        let mut todo = Vec::new();
        for shard in own {
            let name = self.file(shard);
            let known = present.get(&name);
            let records: Vec<u64> = range(shard).map(&order).collect();
            let sources = self.sources(&records);
            match known {
                Some(known) if is_of(known, sources) && is_whole(&out, known).await? => {
                    self.has_all(known, range(shard), &out)?;
                    done.found += 1;
                }
                _ => todo.push(Todo { name, records, sources, again: known.is_some() }),
            }
        }
        if !todo.is_empty() {
            let classes = self.dataset.schema().classes.as_deref().unwrap_or_default().to_vec();
            let count = u32::try_from(starts.len())
                .map_err(|_| Error::config("more than 2^32 shards").with_hint("make larger ones"))?;
            let told = SidecarJob { job, shards: count, classes };
            self.pack(&out, &told, todo, &mut done).await?;
        }
        done.complete = self.complete(&out, starts.len(), job).await?;
        Ok(done)
    }

    /// Rejects a finished shard from which an earlier run left records out, if this run stops at bad records.
    fn has_all(&self, found: &tar::Shard, records: Range<u64>, out: &Source) -> Result<()> {
        let lacks = (records.end - records.start).saturating_sub(found.len() as u64);
        if lacks == 0 || !matches!(self.bad, OnBadSample::Stop) {
            return Ok(());
        }
        let what = match lacks {
            1 => "a finished shard lacks a record that an earlier run left out".to_owned(),
            _ => format!("a finished shard lacks {lacks} records that an earlier run left out"),
        };
        Err(Error::config(what)
            .at_object(out.display_name(&found.name))
            .with_hint(format!("set {SKIP} to leave bad samples out again, or name a new folder")))
    }

    fn file(&self, shard: usize) -> String {
        format!("{}-{shard:06}.tar", self.name)
    }

    /// The existing shards of this job, with the content of their sidecars.
    async fn present(&self, out: &Source, shards: usize, job: u128) -> Result<HashMap<String, tar::Shard>> {
        let objects: Vec<Object> = out.list().try_collect().await?;
        let ours: HashSet<String> = (0..shards).map(|shard| self.file(shard)).collect();
        let foreign = |name: &str| {
            Error::config("shards of another dataset, or of other settings, are there")
                .at_object(out.display_name(name))
                .with_hint("name a new folder, or remove them first")
        };
        let objects: HashMap<&str, &Object> = objects.iter().map(|o| (o.name.as_str(), o)).collect();
        let reads: Vec<_> = objects
            .values()
            .filter(|o| o.name.ends_with(".infeed"))
            .map(|object| read_index(out, Object::clone(object)))
            .collect();
        let mut reads = stream::iter(reads).buffer_unordered(16);
        let (mut present, mut told) = (HashMap::new(), HashSet::new());
        while let Some((object, shards)) = reads.try_next().await? {
            // A damaged sidecar only shows that its shard was begun here.
            told.insert(format!("{}.tar", object.name.trim_end_matches(".infeed")));
            for mut shard in shards {
                if shard.job != job {
                    return Err(foreign(&object.name));
                }
                let name = shard.name.to_string();
                if let Some(tar) = objects.get(name.as_str()).filter(|tar| tar.size == shard.size) {
                    shard.etag = tar.etag.as_deref().map(Into::into);
                    // The own index of a shard that was made again is newer than the manifest.
                    if object.name != INDEX || !present.contains_key(&name) {
                        present.insert(name.clone(), shard);
                    }
                }
                told.insert(name);
            }
        }
        let mut tars = objects.keys().filter(|name| name.ends_with(".tar"));
        if let Some(other) = tars.find(|name| !ours.contains(**name) || !told.contains(**name)) {
            return Err(foreign(other));
        }
        // Other files next to our shards are fine. Without shards of ours, the folder is more likely a mistake.
        match objects.keys().filter(|_| told.is_empty()).min() {
            Some(other) => Err(Error::config("other files are there, and no shards of an earlier run")
                .at_object(out.display_name(other))
                .with_hint("name a new or empty folder")),
            None => Ok(present),
        }
    }

    /// The versions of everything from which these records are read: tags of a store's objects, times and lengths of
    /// local files. Objects of Python have no version.
    fn sources(&self, records: &[u64]) -> u128 {
        let mut print = Fingerprint::of("sources");
        let mut last: Option<Extent> = None;
        for record in records {
            // If this fails, reading the record reports a bad sample.
            let Ok(plan) = self.dataset.plan(*record, SampleRng::new(0, 0, *record)) else { continue };
            let shared = plan.shared.into_iter().flat_map(|part| part.extents);
            for extent in plan.extents.into_iter().chain(shared) {
                // Thousands of records may lie in one file.
                let seen =
                    |last: &Extent| last.source.identity() == extent.source.identity() && last.name == extent.name;
                if !last.as_ref().is_some_and(seen) {
                    print = print.text(&extent.name).text(&extent.version().unwrap_or_default());
                    last = Some(extent);
                }
            }
        }
        print.finish().0
    }

    /// Reads, encodes and writes shards.
    async fn pack(&mut self, out: &Source, told: &SidecarJob, todo: Vec<Todo>, done: &mut Prepared) -> Result<()> {
        let records: Vec<u64> = todo.iter().flat_map(|shard| &shard.records).copied().collect();
        let of = records.len() as u64;
        let workers = match self.workers {
            Some(workers) => workers,
            None => infeed_core::machine::cores().get(),
        };
        let Some(workers) = std::num::NonZeroUsize::new(workers) else {
            return Err(Error::config("workers is 0").with_hint("use 1 or more"));
        };
        let recipe = pack::Recipe { size: self.size, store: self.store, restarts: self.restarts };
        let orientation = self.orientation.of_dataset(self.dataset.schema().upright);
        let pack = Pack::new(self.dataset.schema(), recipe, workers, orientation.of(codec::codecs())?, MAX_IMAGE)?;
        // A sampler, so that errors have the numbers of the dataset.
        let sampler = ListSampler::new(self.dataset.len(), records)?;
        let loader = Loader::builder(Packing::of(Arc::clone(&self.dataset), &pack))
            .sampler(Arc::new(sampler))
            .device(Device::Cpu)
            .decoder(Arc::new(pack))
            .batch_size(BATCH)
            .last_batch(LastBatch::Partial)
            .on_bad_sample(match self.bad {
                // So that a batch without a good row is no error: only samples are written, batches do not matter here.
                OnBadSample::Skip { at_most } => OnBadSample::SkipPadded { at_most },
                other => other,
            });
        let loader = self.max_unreadable.into_iter().fold(loader, LoaderBuilder::max_unreadable).build().await?;
        let mut batches = loader.epoch(0);
        let mut end = 0;
        let ends: Vec<u64> = (todo.iter())
            .map(|shard| {
                end += shard.records.len() as u64;
                end
            })
            .collect();
        let mut ends = ends.into_iter();
        let mut shards = todo.into_iter();
        let mut open: Option<(u64, Tar)> = None;
        let mut finished = done.found;
        loop {
            // Parts are uploaded while the next records are made.
            let uploading = async {
                match &mut open {
                    Some((_, tar)) => tar.writer.advance().await,
                    None => std::future::pending().await,
                }
            };
            let batch = match select(batches.next(), pin!(uploading)).await {
                Either::Left((Some(batch), _)) => batch?,
                Either::Left((None, _)) => break,
                Either::Right((error, _)) => return Err(error),
            };
            let pieces = batch.bytes(pack::FIELD).unwrap_or_default();
            // The last rows were moved into the places of skipped ones.
            let mut rows: Vec<usize> = (0..batch.valid()).collect();
            rows.sort_unstable_by_key(|row| batch.positions()[*row]);
            for (n, row) in rows.into_iter().enumerate() {
                let position = batch.positions()[row];
                while open.as_ref().is_none_or(|(end, _)| position >= *end) {
                    if let Some((_, tar)) = open.take() {
                        self.is_unchanged(&tar.todo, out)?;
                        done.bytes_written += tar.finish(out, told).await?;
                        finished += 1;
                        let records = done.records + n as u64 + batches.report().bad_sample_count;
                        let (bytes, of_shards) = (done.bytes_written, done.own_shards);
                        self.tell(Progress { records, of, bytes, shards: finished, of_shards });
                    }
                    let (Some(end), Some(shard)) = (ends.next(), shards.next()) else { return Err(lost()) };
                    open = Some((end, Tar::begin(out, shard)?));
                }
                let (_, tar) = open.as_mut().ok_or_else(lost)?;
                tar.add(&pieces[row]).await?;
            }
            done.records += batch.valid() as u64;
            let bytes = done.bytes_written + open.as_ref().map_or(0, |(_, tar)| tar.size);
            let records = done.records + batches.report().bad_sample_count;
            self.tell(Progress { records, of, bytes, shards: finished, of_shards: done.own_shards });
        }
        // Also write the shards all of whose records were skipped: they are empty.
        loop {
            if let Some((_, tar)) = open.take() {
                self.is_unchanged(&tar.todo, out)?;
                done.bytes_written += tar.finish(out, told).await?;
                finished += 1;
                let records = done.records + batches.report().bad_sample_count;
                let (bytes, of_shards) = (done.bytes_written, done.own_shards);
                self.tell(Progress { records, of, bytes, shards: finished, of_shards });
            }
            let Some(shard) = shards.next() else { break };
            open = Some((0, Tar::begin(out, shard)?));
        }
        let report = batches.report();
        (done.bytes_read, done.bad_samples) = (report.bytes_read, report.bad_samples);
        Ok(())
    }

    /// Rejects a shard if its files changed while it was made: it may mix both versions.
    fn is_unchanged(&self, shard: &Todo, out: &Source) -> Result<()> {
        if self.sources(&shard.records) == shard.sources {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Io, "the dataset changed while it was prepared")
            .at_object(out.display_name(&shard.name))
            .with_hint("wait until it is complete, then run the same command again"))
    }

    fn tell(&mut self, done: Progress) {
        if let Some(progress) = &mut self.progress {
            progress(done);
        }
    }

    /// Writes the manifest if the shards of all ranks exist.
    async fn complete(&self, out: &Source, shards: usize, job: u128) -> Result<bool> {
        let mut present = self.present(out, shards, job).await?;
        if present.len() < shards {
            return Ok(false);
        }
        let in_order = (0..shards).filter_map(|shard| present.remove(&self.file(shard)));
        let mut all: Vec<tar::Shard> = in_order.collect();
        // If the manifest is copied with its shards, their tags change.
        all.iter_mut().for_each(|shard| shard.etag = None);
        let classes = self.dataset.schema().classes.as_deref().unwrap_or_default().to_vec();
        // Several ranks may finish last at the same time: they write the same bytes.
        out.put(INDEX, Index { classes, shards: all }.encode()?.into()).await?;
        Ok(true)
    }
}

fn lost() -> Error {
    Error::new(ErrorKind::Internal, "a record belongs to no shard").with_hint("please report this")
}

/// The shards in a sidecar or the manifest; none if it is damaged, because then its shard is made again.
async fn read_index(out: &Source, object: Object) -> Result<(Object, Vec<tar::Shard>)> {
    let bytes = Beside::Table.read(out, &object).await?;
    let shards = Index::parse(&bytes).map_or_else(|_| Vec::new(), |index| index.shards);
    Ok((object, shards))
}

/// Whether a finished shard is undamaged. Local shards are read. For shards in a bucket the size is enough, because a
/// bucket never shows a partial upload.
async fn is_whole(out: &Source, shard: &tar::Shard) -> Result<bool> {
    if !out.reads_inline() {
        return Ok(true);
    }
    for member in shard.all_members() {
        let mut extent = Extent::whole(out, Arc::clone(&shard.name), shard.size);
        extent.range = member.start()..member.end();
        if crc32c::crc32c(&extent.read().await?) != member.crc {
            tracing::warn!(shard = &*shard.name, "a finished shard is damaged; it is made again");
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a shard was made from the current source files.
fn is_of(shard: &tar::Shard, sources: u128) -> bool {
    if shard.sources == 0 {
        let shard = &*shard.name;
        tracing::warn!(shard, "made by an earlier version: it is not known whether its dataset has changed since");
        return true;
    }
    let same = shard.sources == sources;
    if !same {
        tracing::warn!(shard = &*shard.name, "files from which it was made have changed; it is made again");
    }
    same
}

/// A shard to make.
struct Todo {
    name: String,
    records: Vec<u64>,
    /// The result of [`Prepare::sources`] before anything was read.
    sources: u128,
    /// Whether it exists already, damaged or made from other files.
    again: bool,
}

/// What each sidecar stores about the job.
struct SidecarJob {
    job: u128,
    shards: u32,
    classes: Vec<String>,
}

/// A shard that is being written.
struct Tar {
    writer: ObjectWriter,
    shard: tar::Shard,
    size: u64,
    todo: Todo,
}

impl Tar {
    fn begin(out: &Source, todo: Todo) -> Result<Self> {
        let mut shard = tar::Shard::of(&Object::new(&*todo.name, 0));
        (shard.has_crc, shard.sources) = (true, todo.sources);
        Ok(Self { writer: out.writer(&todo.name)?, shard, size: 0, todo })
    }

    /// Adds the members of a record: headers, contents, padding.
    async fn add(&mut self, piece: &Bytes) -> Result<()> {
        let mut at = 0;
        while at < piece.len() as u64 {
            let (name, size) = tar::member(&piece[at as usize..]).ok_or_else(lost)?;
            let content = at + BLOCK;
            let crc = crc32c::crc32c(&piece[content as usize..(content + size) as usize]);
            let added = self.shard.add(&name, self.size + content, size, Some(crc));
            if added.map_err(|e| e.at_stage(Stage::Write).at_object(self.shard.name.to_string()))? {
                self.shard.set_label(&piece[content as usize..(content + size) as usize]);
            }
            at = content + tar::padded(size);
        }
        self.size += piece.len() as u64;
        self.writer.write(piece).await
    }

    /// Writes the sidecar, then makes the shard visible; returns its size. A shard that is made again becomes visible
    /// before its sidecar: after a kill between the two, the old sidecar belongs to other source files, so the next run
    /// makes the shard again.
    async fn finish(mut self, out: &Source, told: &SidecarJob) -> Result<u64> {
        let end = [0; 2 * BLOCK as usize];
        self.writer.write(end).await?;
        let mut shard = self.shard;
        shard.size = self.size + end.len() as u64;
        (shard.job, shard.job_shards) = (told.job, told.shards);
        shard.tighten();
        let size = shard.size;
        let sidecar = format!("{}.infeed", shard.name.trim_end_matches(".tar"));
        let classes = told.classes.clone();
        // Each has a fixed hidden name, so that the next run overwrites what a kill leaves.
        let mut writer = out.writer(&sidecar)?;
        writer.write(Index { classes, shards: vec![shard] }.encode()?).await?;
        let (first, second) = if self.todo.again { (self.writer, writer) } else { (writer, self.writer) };
        first.finish().await?;
        second.finish().await?;
        Ok(size)
    }
}
