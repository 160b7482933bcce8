//! Settings, checked together by `build()`.

use std::sync::Arc;

use infeed_core::{
    error::Result,
    random::Draws,
    types::{DType, Device, Layout},
};
use infeed_data::{
    Dataset,
    sampler::{LastBatch, Order, Sampler, Shard},
};
use infeed_pixels::{
    codec::{Decode, Decoder, GpuSplit, ImageCodec, Orientation},
    transform::{Transform, View, augment::Mix},
};
use infeed_store::{CacheSpec, Verify};

use super::{LoaderConfig, OnBadSample};
use crate::engine::{BatchMut, IoRuntime, Maps, SampleMut};
#[cfg(feature = "jpeg")]
use infeed_pixels::codec::{DecodeIndex, Jpeg};

/// Settings of a [`Loader`](super::Loader). [`Loader::builder`](super::Loader::builder) makes it,
/// [`build`](Self::build) checks the settings and starts the loader.
///
/// Each setter replaces the [`LoaderConfig`] value of the same name; [`config`](Self::config) starts from a file.
#[derive(Debug)]
#[must_use = "nothing is started before build()"]
pub struct LoaderBuilder {
    pub(super) dataset: Arc<dyn Dataset>,
    pub(super) config: LoaderConfig,
    pub(super) sampler: Option<Arc<dyn Sampler>>,
    pub(super) decoder: Option<Arc<dyn Decoder>>,
    pub(super) codecs: Vec<Arc<dyn ImageCodec>>,
    pub(super) io_runtime: Option<IoRuntime>,
    pub(super) maps: Maps,
    #[cfg(feature = "jpeg")]
    decode_index: Option<DecodeIndex>,
}

impl LoaderBuilder {
    pub(super) fn new(dataset: Arc<dyn Dataset>) -> Self {
        let config = LoaderConfig::default();
        Self {
            dataset,
            config,
            sampler: None,
            decoder: None,
            codecs: Vec::new(),
            io_runtime: None,
            maps: Maps::default(),
            #[cfg(feature = "jpeg")]
            decode_index: None,
        }
    }

    /// All settings at once.
    pub fn config(mut self, config: LoaderConfig) -> Self {
        self.config = config;
        self
    }

    /// Rows of a batch on each rank; the maximum if the sampler [lists the batches](Sampler::batches). Default 256.
    pub fn batch_size(mut self, rows: usize) -> Self {
        self.config.batch_size = rows;
        self
    }

    /// A new random order each epoch: `Order::Random { seed }`. Default: the order of the dataset.
    pub fn shuffle(self, seed: u64) -> Self {
        self.order(Order::Random { seed })
    }

    /// The order of records; may be a [`Mixture`](infeed_data::sampler::Mixture) of datasets.
    ///
    /// ```
    /// # use futures::StreamExt;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
    /// use infeed::{Loader, dataset::concat, sampler::{Mixture, Share}};
    ///
    /// # let web = infeed::open("synthetic://?count=500&height=8&width=8&classes=10").await?;
    /// # let drawings = infeed::open("synthetic://?count=20&height=8&width=8&classes=10").await?;
    /// let dataset = concat([web, drawings])?;
    /// let mixture = Mixture::new(42).part("web", Share::Repeat(1.0)).part("drawings", Share::Repeat(5.0));
    /// let loader = Loader::builder(dataset).batch_size(20).order(mixture).build().await?;
    /// assert_eq!(loader.batches_per_epoch(), (500 + 5 * 20) / 20);
    /// # Ok(()) }
    /// ```
    pub fn order(mut self, order: impl Into<Order>) -> Self {
        self.config.order = order.into();
        self
    }

    /// An order of your own, such as [`WeightedSampler`](infeed_data::sampler::WeightedSampler) or
    /// [`ListSampler`](infeed_data::sampler::ListSampler); replaces `order`. For a different sampler in each epoch see
    /// [`Loader::with_sampler`](super::Loader::with_sampler).
    pub fn sampler(mut self, sampler: Arc<dyn Sampler>) -> Self {
        self.sampler = Some(sampler);
        self
    }

    /// Seed of augmentation. Default: the order's seed, 0 for a sequential order.
    pub fn seed(mut self, seed: u64) -> Self {
        self.config.seed = Some(seed);
        self
    }

    /// Rank and world size of this process. Default: rank 0 of 1; [`Shard::from_env`] reads them from the launcher's
    /// variables.
    pub fn shard(mut self, shard: Shard) -> Self {
        self.config.shard = shard;
        self
    }

    /// What to do with the records that do not fill a batch. Default: drop them.
    pub fn last_batch(mut self, last: LastBatch) -> Self {
        self.config.last_batch = last;
        self
    }

    /// Steps from the decoded image to the row, for every image field. For several rows of each image see
    /// [`views`](Self::views).
    pub fn transform(mut self, transform: Transform) -> Self {
        self.config.transform = transform;
        self
    }

    /// Several rows of each image, which is read and decoded once: each [`View`] has its own steps. Replaces the
    /// transform. The field `image` becomes `image.NAME` for each view, and a mask likewise; other fields stay.
    ///
    /// The draws of a view depend on its place in the list: the first view has the draws of a single transform, and
    /// views added at the end do not change the others. An image is decoded once, at the largest size that a view
    /// needs. So if one view alone would have decoded a JPEG at half its size or less, its pixels depend on the other
    /// views, within the differences that [`exact`](infeed_pixels::codec::Jpeg::exact) describes.
    ///
    /// The rows of all views count in the memory budget. Not for volumes.
    ///
    /// ```
    /// # use futures::StreamExt;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
    /// use infeed::{Loader, Transform, transform::View};
    ///
    /// # let dataset = infeed::open("synthetic://?count=100&height=40&width=60&classes=10").await?;
    /// let [global, local] = [32, 12].map(|side| Transform::new().random_resized_crop(side).to_float());
    /// // Of DINO: View::preset("dino")?
    /// let views = [View::new("global", global).count(2), View::new("local", local).count(4)];
    /// let mut batches = Loader::builder(dataset).batch_size(20).shuffle(1).views(views).build().await?.epoch(0);
    /// let batch = batches.next().await.expect("five batches")?;
    /// assert_eq!(batch["image.global1"].shape(), [20, 3, 32, 32]);
    /// assert_eq!(batch["image.local3"].shape(), [20, 3, 12, 12]);
    /// # Ok(()) }
    /// ```
    ///
    /// `build()` returns an error for two views of the same name, for views together with a transform, and for a
    /// dataset without images.
    pub fn views(mut self, views: impl IntoIterator<Item = View>) -> Self {
        self.config.views = views.into_iter().collect();
        self
    }

    /// MixUp, CutMix and label smoothing of whole batches: the label becomes `[N, classes]` f32. [`Mix`] describes the
    /// arithmetic and what the draws depend on.
    ///
    /// Needs one label field, and the number of classes: from the dataset's class names or [`Mix::num_classes`]. MixUp
    /// needs images of floats (`f32`, `f16`, `bf16`), CutMix images of one size. `build()` returns an error for masks
    /// and volumes. A batch on a GPU is mixed there, by one kernel. A label outside the classes makes a bad sample.
    pub fn mix(mut self, mix: Mix) -> Self {
        self.config.mix = Some(mix);
        self
    }

    /// Makes a tensor of a list ([`FieldKind::List`](infeed_data::FieldKind::List)): `[N, L, …]`, where `L` is the length
    /// of the batch's longest row, and shorter rows are filled with `number`. The field `FIELD.lengths`, `[N]` i64, has
    /// the number of items of each row; a mask of attention is where the index of an item is below it.
    ///
    /// Both tensors are in host memory, even if the images are on a GPU. Call it once for each field.
    ///
    /// ```
    /// # use futures::StreamExt;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
    /// use infeed::{Loader, dataset::MemoryDataset};
    ///
    /// let dataset = MemoryDataset::builder().lists("tokens", vec![vec![5i32, 9, 2], vec![7, 1]]).build()?;
    /// let loader = Loader::builder(std::sync::Arc::new(dataset)).batch_size(2).pad("tokens", -1).build().await?;
    /// let batch = loader.epoch(0).next().await.expect("one batch")?;
    /// assert_eq!(batch["tokens"].as_slice::<i32>(), Some(&[5, 9, 2, 7, 1, -1][..]));
    /// assert_eq!(batch["tokens.lengths"].as_slice::<i64>(), Some(&[3, 2][..]));
    /// # Ok(()) }
    /// ```
    ///
    /// `build()` returns an error for a field that is not a list, and for a number that its type does not hold.
    pub fn pad(mut self, field: impl Into<String>, number: impl Into<f64>) -> Self {
        self.config.pad.insert(field.into(), number.into());
        self
    }

    /// Runs your function on each sample after all its rows are written. It may change image, label and all other
    /// fields in place. Runs on the decode threads, one call per thread. Works only for batches in host memory;
    /// otherwise `build()` returns an error.
    ///
    /// - **Reproducible** if the function uses only the sample and `draws`: the draws depend on seed, epoch, record,
    ///   and on how often the epoch had the record before. Then the guarantees of order and resume hold.
    /// - **Errors.** An error of kind `Corrupt` or `Unsupported` makes the sample bad. Any other error, or a panic,
    ///   ends the run.
    /// - **Time** counts in the report's transform stage.
    ///
    /// For the pixels of images only, see [`Transform::custom`].
    ///
    /// ```
    /// # use futures::StreamExt;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
    /// use infeed::{Device, Loader, Transform};
    ///
    /// # let dataset = infeed::open("synthetic://?count=100&height=8&width=8&classes=10").await?;
    /// // A fifth of the pictures are negatives, and a class of their own.
    /// let loader = Loader::builder(dataset).batch_size(20).transform(Transform::new().to_float()).map(|sample, mut draws| {
    ///     if draws.chance(0.2) {
    ///         sample.image_mut("image")?.map_pixels(|rgb: [f32; 3]| rgb.map(|part| 1.0 - part))?;
    ///         sample.values_mut::<i64>("label")?[0] = 10;
    ///     }
    ///     Ok(())
    /// });
    /// let mut batches = loader.device(Device::Cpu).build().await?.epoch(0);
    /// let batch = batches.next().await.expect("five batches")?;
    /// assert!(batch["label"].as_slice::<i64>().expect("i64").contains(&10));
    /// # Ok(()) }
    /// ```
    pub fn map<F>(mut self, run: F) -> Self
    where
        F: Fn(&mut SampleMut<'_>, Draws) -> Result<()> + Send + Sync + 'static,
    {
        self.maps.sample = Some(Arc::new(run));
        self
    }

    /// Runs your function on each complete batch, after [`mix`](Self::mix), on the thread that finished the batch.
    ///
    /// As [`map`](Self::map), with three differences: the draws depend on seed, epoch and the position of the batch's
    /// first sample in the epoch's order; every error ends the run; the time counts in the report's mix stage.
    ///
    /// ```
    /// # use futures::StreamExt;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
    /// use infeed::{Device, Loader, Transform};
    ///
    /// # let dataset = infeed::open("synthetic://?count=100&height=8&width=8&classes=10").await?;
    /// // Every picture as bright as the others, on average over the batch.
    /// let steps = Transform::new().to_float();
    /// let loader = Loader::builder(dataset).batch_size(20).transform(steps).map_batch(|batch, _draws| {
    ///     let values = batch.values_mut::<f32>("image")?;
    ///     let mean = values.iter().sum::<f32>() / values.len() as f32;
    ///     values.iter_mut().for_each(|value| *value -= mean);
    ///     Ok(())
    /// });
    /// let mut batches = loader.device(Device::Cpu).build().await?.epoch(0);
    /// let batch = batches.next().await.expect("five batches")?;
    /// assert!(batch["image"].as_slice::<f32>().expect("f32").iter().sum::<f32>().abs() < 1.0);
    /// # Ok(()) }
    /// ```
    pub fn map_batch<F>(mut self, run: F) -> Self
    where
        F: Fn(&mut BatchMut<'_>, Draws) -> Result<()> + Send + Sync + 'static,
    {
        self.maps.batch = Some(Arc::new(run));
        self
    }

    /// Element type of image fields: `f32` (default), `f16`, `bf16`, `u8`; for volumes also `i16`. Masks keep their
    /// own.
    pub fn dtype(mut self, dtype: DType) -> Self {
        self.config.dtype = dtype;
        self
    }

    /// Axes of image fields. Default NCHW.
    pub fn layout(mut self, layout: Layout) -> Self {
        self.config.layout = layout;
        self
    }

    /// Device of the batches. Default: host memory, even if there is a GPU. `build()` returns an error if the device
    /// cannot be used. For several devices see [`build_each`](Self::build_each).
    ///
    /// A [`decoder`](Self::decoder) of your own makes rows on the device of its classes, which must be this one.
    pub fn device(mut self, device: Device) -> Self {
        self.config.device = Some(device);
        self
    }

    /// Puts batches on a GPU if this process can use one, otherwise in host memory.
    ///
    /// With several GPUs, it is the one with the number of the local rank (GPUs that `CUDA_VISIBLE_DEVICES` hides do
    /// not count). If a GPU is there but fails, a warning is logged and batches stay in host memory. With a
    /// [`decoder`](Self::decoder) of your own, its classes determine the device.
    ///
    /// ```
    /// use infeed::Loader;
    ///
    /// # let dataset = std::sync::Arc::new(infeed::dataset::SyntheticDataset::new(4, 8, 8, 2)?);
    /// let loader = Loader::builder(dataset).batch_size(4).device_auto().build_blocking()?;
    /// println!("batches lie on {}", loader.config().device.expect("what was found"));
    /// # Ok::<(), infeed::Error>(())
    /// ```
    pub fn device_auto(mut self) -> Self {
        self.config.device = None;
        self
    }

    /// Page-locks the rows of batches in host memory, so that copies to the GPU run asynchronously (`non_blocking=True`
    /// in PyTorch). Default: no. The rows are still tensors of `Device::Cpu` and count in
    /// [`memory_budget`](Self::memory_budget). Fields of bytes and boxes are not page-locked. No effect on batches on a
    /// GPU.
    ///
    /// - **A batch may be dropped while it is being copied**: its memory is reused only after the GPU has finished all
    ///   work that was queued before the drop, on any stream. This holds for the GPU of the local rank, whose context
    ///   the loader opens (some hundred MB of device memory, unless the trainer has it anyway). Hold a batch that
    ///   another GPU copies until the copy is done. Dropping a batch while a CUDA graph is captured on the GPU breaks
    ///   the capture.
    /// - **Cost.** Locking takes about 0.33 ms per MB, once for each buffer.
    /// - **Errors.** `build()` returns `Device` if there is no GPU, or if the driver is for a CUDA older than 12.5: it
    ///   cannot report when copies are done.
    pub fn pin_memory(mut self, pin: bool) -> Self {
        self.config.pin_memory = pin;
        self
    }

    /// Device memory in bytes: rows of batches not yet handed over, one more batch for the memory that comes back, and
    /// the memory of the decoders. Default: as much as the settings can use, at most half of the free memory.
    ///
    /// A batch that was handed over no longer counts. Its memory comes back when the trainer's work on it is done.
    pub fn device_budget(mut self, bytes: u64) -> Self {
        self.config.device_budget = Some(bytes);
        self
    }

    /// What decodes JPEGs of batches on a GPU:
    ///
    /// | value | decodes |
    /// |---|---|
    /// | [`Auto`](Decode::Auto) (default) | CPU threads; also the GPU's engines and streams while the trainer waits |
    /// | [`Gpu`](Decode::Gpu) | the GPU's engines first; an error if it has none |
    /// | [`Cpu`](Decode::Cpu) | only CPU threads |
    ///
    /// [`Report::decoded_by`](crate::Report::decoded_by) counts the images of each. CPU threads decode all other image
    /// files; a decoder of your own decides itself. For batches in host memory `Auto` and `Cpu` are the same.
    ///
    /// With `Gpu`, `build()` returns `Device` if there is no GPU, no nvJPEG for its driver, or no engines;
    /// `OutOfMemory` if `device_budget` or the GPU has no room for the engines; `Config` if batches are in host memory,
    /// or if a codec of your own takes the JPEGs.
    pub fn decode(mut self, who: Decode) -> Self {
        self.config.decode = who;
        self
    }

    /// Whether the JPEG engines of a GPU get files that are cut after the crop's last row, so that they decode fewer
    /// rows. Default: yes. Engines that reject such files automatically get whole ones. Set it to `false` if engines
    /// accept cut files but decode them to different pixels.
    pub fn decode_cut(mut self, cut: bool) -> Self {
        self.config.decode_cut = cut;
        self
    }

    /// CUDA streams of each GPU, each with a thread, that decode the images which the hardware engines cannot decode or
    /// are too busy for. Default: none, CPU threads decode these images. Huffman decoding, most of the work, is done on
    /// the CPU in either case. No effect on batches in host memory.
    pub fn streams(mut self, streams: usize) -> Self {
        self.config.streams = Some(streams);
        self
    }

    /// How the engines of a GPU, its streams and the CPU share images. Default: CPU threads as long as they keep the
    /// trainer's pace; otherwise the first idle one takes the next image.
    pub fn gpu_split(mut self, split: GpuSplit) -> Self {
        self.config.gpu_split = split;
        self
    }

    /// Whether threads that work for a GPU stay on the processors near it, on machines with several sockets. Default:
    /// yes.
    ///
    /// Their page-locked memory is then near the GPU, too. Threads of engines and streams stay on the socket of their
    /// GPU. If all GPUs of the loader are on one socket, so do as many read and decode threads as it has processors. No
    /// effect without a GPU, on a machine with one socket, if this process may use only one socket, or if the system
    /// does not report the sockets.
    pub fn numa(mut self, stay_near: bool) -> Self {
        self.config.numa = stay_near;
        self
    }

    /// Number of decode threads. Never changes the batches.
    ///
    /// Default, at first: one for each core that this process may use; divided by the processes of the machine
    /// ([`Shard::local_world`](crate::Shard::local_world)) if these are not bound to cores of their own; two fewer with
    /// JPEG engines or streams of a GPU. Then [`autotune`](Self::autotune) adjusts it: fewer if they keep up with the
    /// trainer, more if they wait for files.
    pub fn workers(mut self, workers: usize) -> Self {
        self.config.workers = Some(workers);
        self
    }

    /// Batches ahead of the trainer, finished or being made. Never changes the batches. If
    /// [`memory_budget`](Self::memory_budget) has no room for them, there are fewer.
    ///
    /// Default: about 256 MiB of rows, 3 to 16 batches. [`autotune`](Self::autotune) raises it if that helps the run.
    pub fn prefetch(mut self, batches: usize) -> Self {
        self.config.prefetch = Some(batches);
        self
    }

    /// Whether the loader adjusts `workers` and `prefetch` during the run, if they are `auto`. Default: yes. Numbers
    /// that you set stay. Order, records and pixels do not depend on it.
    ///
    /// Ten times a second the loader measures how long the trainer waited, and how busy its threads were and with what.
    /// It changes one number if half a second of measurements agrees. Its goals, in this order:
    ///
    /// 1. The trainer does not wait.
    /// 2. No more threads compute than there are cores (of the container, if it has fewer), and batches ahead stay
    ///    within `memory_budget`.
    /// 3. Threads that are not needed rest, so that a trainer on the same cores can use these.
    ///
    /// It settles within seconds. [`Report::autotune`](crate::Report::autotune) lists the changes and their reasons.
    ///
    /// On a GPU, memory for batches is allocated when the loader is built, so `prefetch` stays there. A decoder of your
    /// own determines its number of threads.
    pub fn autotune(mut self, follow: bool) -> Self {
        self.config.autotune = follow;
        self
    }

    /// Whether streams measure where their time goes. Default: yes. Turn it off only to measure its cost.
    ///
    /// Without it a [`Report`](crate::Report) still counts batches, samples, bad samples, rows by decoder, requests and
    /// reads of the cache; stages, waits, steps, late batches, queues and bytes read are empty or zero. The loader
    /// always measures what it needs for its own decisions: the time of jobs and, if a number is `auto`, the input of
    /// [`autotune`](Self::autotune). The batches are the same.
    pub fn accounting(mut self, on: bool) -> Self {
        self.config.accounting = on;
        self
    }

    /// Host memory in bytes. Default: as much as the settings can use, at most a quarter of the machine's memory.
    ///
    /// | counts | does not count |
    /// |---|---|
    /// | rows of batches not yet handed over, and one more batch for the memory that comes back | batches that were handed over |
    /// | scratch memory of the decoders | the dataset's own tables ([`Dataset::resident_bytes`] and names) |
    /// | encoded bytes | code and stacks |
    /// | what records share, such as decoded volumes | rows and encoded bytes of a second stream of the loader at the same time |
    pub fn memory_budget(mut self, bytes: u64) -> Self {
        self.config.memory_budget = Some(bytes);
        self
    }

    /// Largest decoded image in bytes; a larger one is a bad sample. Default: what the budget allows, at most 320 MiB.
    pub fn max_image_bytes(mut self, bytes: u64) -> Self {
        self.config.max_image_bytes = Some(bytes);
        self
    }

    /// Largest record in encoded bytes: its files, or its part of a shard. A larger record is not read. It is a bad
    /// sample, and the error names it and this setting. Memory for one record of this size is reserved for each decode
    /// thread that reads, or in the read window of a remote store.
    ///
    /// Default: the size of usual records ([`Dataset::usual_read`]); larger ones up to an eighth of the budget, shared
    /// by the threads, at most 256 MiB. A single 3 GB file among photographs therefore cannot take the memory of
    /// decoding and batches.
    pub fn max_record_bytes(mut self, bytes: u64) -> Self {
        self.config.max_record_bytes = Some(bytes);
        self
    }

    /// Most requests in flight to a remote store. (The decode threads read local files.)
    ///
    /// Default: measured while reading, for all streams of this process that read from the same store: 16 at first,
    /// more while the rate rises (up to 1,024), half as many when the store throttles. If you set a number, each stream
    /// also stays within it. A tenth of the number (at least one) is reserved for second copies of slow requests; below
    /// 4 there are no second copies.
    ///
    /// For a dataset that reads its records itself ([`Dataset::read`]): most calls at a time, of all streams of the
    /// loader. Default: [`Dataset::concurrent_reads`].
    pub fn io_concurrency(mut self, requests: usize) -> Self {
        self.config.io_concurrency = Some(requests);
        self
    }

    /// Whether whole objects from a remote store are compared with the checksums that the store has; [`Verify`] lists
    /// these, and the cost. Default auto.
    pub fn verify(mut self, verify: Verify) -> Self {
        self.config.verify = verify;
        self
    }

    /// Caches bytes read from a remote store, in a folder or in memory, for the next epochs. Datasets of local files
    /// do not use it.
    ///
    /// - **Keys** are store, name, version tag (ETag) and range. Objects without a tag are not cached.
    /// - **Checked**: each entry is verified when it is read. A damaged one is removed and read from the store again.
    /// - **When it is full**, the entries that are needed soonest stay. On one machine, which reads everything each
    ///   epoch, these are the entries already there. With several machines, records that this machine reads in the next
    ///   epoch ([`Sampler::position`]) replace records that it reads later.
    /// - **A folder** may be shared by all processes of a machine, and is usable after any crash. If its disk fails, a
    ///   warning is logged and the run continues without the cache. The decode threads read it.
    /// - **Memory**: `ram:SIZE` comes on top of [`memory_budget`](Self::memory_budget); the table takes about 150 bytes
    ///   an entry.
    pub fn cache(mut self, cache: CacheSpec) -> Self {
        self.config.cache = Some(cache);
        self
    }

    /// Caches decoded pixels, in memory or in a folder, so that later epochs neither read nor decode. For datasets
    /// whose pixels fit there: `infeed doctor` estimates their size and the gain.
    ///
    /// **Kept** is what no draw changes: all pixels of each image as its codec gives them (3 bytes a pixel for a JPEG,
    /// about 5 times the file), and the sample's other values. Crops, flips and augmentations are drawn anew in each
    /// epoch. Rows are always made from whole 8-bit pixels, cached or not: rows of JPEGs are bit for bit those of
    /// [`Jpeg::exact`](infeed_pixels::codec::Jpeg::exact), in all epochs and with any size of the cache.
    ///
    /// **Cost.** The first epoch is slower: it decodes whole images, not only the part that the crop reads. When the
    /// cache is full, the samples in it stay, because all are needed equally often: a cache for half of the pixels
    /// serves half of the reads.
    ///
    /// **Places**
    ///
    /// - `ram:SIZE` is memory of this process for all its devices, in addition to
    ///   [`memory_budget`](Self::memory_budget). If the ranks of a machine are separate processes, let them share a
    ///   folder.
    /// - `DIR:SIZE` is a folder for all processes and runs of a machine, on a fast disk or a RAM disk. Entries of other
    ///   runs are never evicted: if another dataset fills the folder, delete it yourself. A rank sees the entries of
    ///   other ranks from the beginning of the next epoch.
    ///
    /// **Keys** are name, range and version (ETag; for local files time and length), the schema, the codecs'
    /// [identity](infeed_pixels::codec::ImageCodec::identity) and this crate's version. Each entry is verified when it
    /// is read; a damaged one is removed and made again. Values that the dataset has from elsewhere than the record's
    /// bytes, such as labels of a list, are not taken from the cache: a dataset of your own must return them from
    /// [`Dataset::known`].
    ///
    /// **Not kept**: images of f32, images whose channels are separate files, TIFFs that are read as they are stored,
    /// and pixels that the dataset has in memory (caching them saves nothing). Folders keep no boxes and no masks of
    /// boxes.
    ///
    /// # Errors
    /// [`build`](Self::build) returns `Config` if the CPU does not decode the images, if there is nothing to decode, or
    /// if values cannot be written to a folder.
    ///
    /// ```
    /// # async fn f() -> infeed::Result<()> {
    /// let loader = infeed::Loader::builder(infeed::open("/data/flowers").await?)
    ///     .decoded_cache("ram:8GiB".parse()?)
    ///     .transform(infeed::Transform::preset("imagenet-train")?)
    ///     .build()
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub fn decoded_cache(mut self, cache: CacheSpec) -> Self {
        self.config.decoded_cache = Some(cache);
        self
    }

    /// What to do with samples that cannot be used. Default: stop with the error.
    pub fn on_bad_sample(mut self, policy: OnBadSample) -> Self {
        self.config.on_bad_sample = policy;
        self
    }

    /// How many samples of a stream may be unreadable (a missing file, an object without access, a disk error) if
    /// [`on_bad_sample`](Self::on_bad_sample) lets them pass. One more ends the stream with an error that has their
    /// number and the last cause.
    ///
    /// Default: 16, or 1 % of the stream's samples so far, whichever is more. So a few lost files do not stop a run,
    /// but if a disk, a mount or a prefix disappears, the run ends when this number is exceeded (early in a run at the
    /// 17th such sample), instead of training on a tenth of the data. No effect with [`OnBadSample::Stop`], which ends
    /// at the first.
    pub fn max_unreadable(mut self, samples: u64) -> Self {
        self.config.max_unreadable = Some(samples);
        self
    }

    /// Memory in bytes for the decode index: positions within JPEG files, recorded while the CPU decodes them, so that
    /// later epochs start decoding where the crop begins. In addition to [`memory_budget`](Self::memory_budget). 0
    /// keeps no index. Pixels do not depend on it.
    ///
    /// Default: an eighth of the memory of this machine or container, divided by its ranks
    /// ([`Shard::with_local`](crate::Shard::with_local)), at most 1 GiB. The memory is allocated as files are decoded:
    ///
    /// - 700 bytes to 2 KB for a photograph of 500x375 pixels, depending on how its colour is stored
    /// - 300 KB for one of 12 megapixels that is shrunk to a quarter or less, while half of the index is free
    ///
    /// If the index is too small for all positions, it keeps fewer of each file (see
    /// [decode index](infeed_pixels::codec::DecodeIndex)): 1 GiB is enough for ImageNet's 1.28 million files, at a
    /// speed within 3 % of that with 2.6 GB.
    pub fn decode_index_bytes(mut self, bytes: u64) -> Self {
        self.config.decode_index_bytes = Some(bytes);
        self
    }

    /// Your own index of JPEG files, shared with other loaders or kept for later runs. Default: the loader makes one
    /// and drops it at its end.
    #[cfg(feature = "jpeg")]
    pub fn decode_index(mut self, index: DecodeIndex) -> Self {
        self.decode_index = Some(index);
        self
    }

    /// Whether images are rotated and mirrored by the orientation in their files: EXIF of JPEG, WebP and PNG, the tag
    /// Orientation of TIFF. Default: as the dataset's own library does, that is, for Hugging Face's tables and folders
    /// and for YOLO.
    /// Does not apply to codecs of your own.
    ///
    /// Images that need turning are decoded whole, on the CPU. `Apply` needs the feature `jpeg`.
    pub fn orientation(mut self, orientation: Orientation) -> Self {
        self.config.orientation = orientation;
        self
    }

    /// Whether the CPU makes 8-bit RGB of JPEGs before it resizes them, as torchvision and Pillow do, see
    /// [`Jpeg::exact`](infeed_pixels::codec::Jpeg::exact). Default false. Does not apply to codecs of your own.
    pub fn jpeg_exact(mut self, exact: bool) -> Self {
        self.config.jpeg_exact = exact;
        self
    }

    /// Adds a codec for your own kind of image file; it is tried before the built-in ones.
    pub fn codec(mut self, codec: Arc<dyn ImageCodec>) -> Self {
        self.codecs.push(codec);
        self
    }

    /// Your own decoder in place of the CPU's; `workers`, `max_image_bytes` and `codec` then have no effect on
    /// decoding.
    pub fn decoder(mut self, decoder: Arc<dyn Decoder>) -> Self {
        self.decoder = Some(decoder);
        self
    }

    /// Uses the threads of this runtime for reading instead of starting new ones.
    pub fn io_runtime(mut self, runtime: &IoRuntime) -> Self {
        self.io_runtime = Some(runtime.clone());
        self
    }

    /// The built-in decoder of JPEG, if it has an index or other settings than the default.
    #[cfg(feature = "jpeg")]
    pub(super) fn indexed(&self) -> Option<Arc<dyn ImageCodec>> {
        let bytes = Some(self.config.index_bytes()).filter(|bytes| *bytes > 0);
        let index = self.decode_index.clone().or_else(|| bytes.map(DecodeIndex::new));
        if index.is_none() && !self.config.jpeg_exact {
            return None;
        }
        let turned = self.config.orientation.of_dataset(self.dataset.schema().upright) == Orientation::Apply;
        let codec = Jpeg::new().exact(self.config.jpeg_exact).orientation(turned);
        Some(Arc::new(index.into_iter().fold(codec, Jpeg::index)))
    }

    #[cfg(not(feature = "jpeg"))]
    pub(super) fn indexed(&self) -> Option<Arc<dyn ImageCodec>> {
        None
    }
}
