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
    codec::{Decode, Decoder, ImageCodec, Orientation, Split},
    transform::{Transform, View, augment::Mix},
};
use infeed_store::{CacheSpec, Verify};

use super::{LoaderConfig, OnBadSample};
use crate::engine::{BatchMut, IoRuntime, Maps, SampleMut};
#[cfg(feature = "jpeg")]
use infeed_pixels::codec::{DecodeIndex, Jpeg};

/// Settings of a [`Loader`](super::Loader); made by [`Loader::builder`](super::Loader::builder), ended by [`build`](Self::build).
///
/// Each setter replaces the value of [`LoaderConfig`] of the same name; start from a file with [`config`](Self::config).
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

    /// Rows of a batch on each rank; the most that one may have where the sampler [lists them](Sampler::batches). Default 256.
    pub fn batch_size(mut self, rows: usize) -> Self {
        self.config.batch_size = rows;
        self
    }

    /// A new random order each epoch: `Order::Random { seed }`. Without it, records come as they lie.
    pub fn shuffle(self, seed: u64) -> Self {
        self.order(Order::Random { seed })
    }

    /// The order of records; a [`Mixture`](infeed_data::sampler::Mixture) of datasets is one, too.
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
    /// [`ListSampler`](infeed_data::sampler::ListSampler); replaces `order`. For another one in each epoch see
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

    /// This process among all. Default: rank 0 of 1; [`Shard::from_env`] asks the launcher.
    pub fn shard(mut self, shard: Shard) -> Self {
        self.config.shard = shard;
        self
    }

    /// What becomes of the records that do not fill a batch. Default: dropped.
    pub fn last_batch(mut self, last: LastBatch) -> Self {
        self.config.last_batch = last;
        self
    }

    /// From decoded image to row, for every image field. For several rows of each image see [`views`](Self::views).
    pub fn transform(mut self, transform: Transform) -> Self {
        self.config.transform = transform;
        self
    }

    /// Several rows of each image, read and decoded once: [`View`]s with steps of their own, in place of a transform. The
    /// field `image` becomes `image.NAME` for each view, a mask likewise; other fields stay.
    ///
    /// Draws of a view are those of its place in the list; the first one's are those of a transform alone, and views added
    /// at the end change nothing of the others. What is decoded is what all views together need, at the size that the one
    /// which needs most of it needs: so where a JPEG shrinks to less than half for one view alone, that one's pixels depend
    /// on the others (no more than [`exact`](infeed_pixels::codec::Jpeg::exact) says).
    ///
    /// Memory is that of all rows, and counted. Not for volumes.
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
    /// `build()` refuses two views of one name, views beside a transform, and views of a dataset without images.
    pub fn views(mut self, views: impl IntoIterator<Item = View>) -> Self {
        self.config.views = views.into_iter().collect();
        self
    }

    /// MixUp, CutMix and label smoothing of whole batches: the label becomes `[N, classes]` f32. See [`Mix`] for what it
    /// does and what its draws depend on.
    ///
    /// Needs one label field, and classes that the dataset names or [`Mix::num_classes`] counts; for MixUp images of floats
    /// or halves, for CutMix images of one size. Not for masks and volumes: `build()` refuses them. Batches on a GPU are mixed
    /// there, by one kernel each. A label that is none of the classes makes a bad sample.
    pub fn mix(mut self, mix: Mix) -> Self {
        self.config.mix = Some(mix);
        self
    }

    /// Runs a function of yours on each sample when all of its rows are written: image, label and whatever else it has, to
    /// be changed in place. On the decoding threads, so many at a time; of batches in host memory alone, `build()` refuses
    /// others.
    ///
    /// Draws are the record's, and of which time it comes in the epoch: with them, and without anything that changes from
    /// call to call, the guarantees of order and resume hold. An error of kind `Corrupt` or `Unsupported` makes the sample
    /// a bad one, any other, and a panic, ends the run. Its time stands in the report's transform stage. For pixels of
    /// images by themselves there is [`Transform::custom`].
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

    /// Runs a function of yours on each batch when it is whole, behind [`mix`](Self::mix), by the thread that finished it.
    /// As [`map`](Self::map), but that draws are those of seed, epoch and the place of the batch's first sample in the
    /// epoch's order, that every error ends the run, and that the time stands in the report's mix stage.
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

    /// Element type of image fields: `f32` (default), `f16`, `bf16`, `u8`; of volumes also `i16`. Masks keep their own.
    pub fn dtype(mut self, dtype: DType) -> Self {
        self.config.dtype = dtype;
        self
    }

    /// Axes of image fields. Default NCHW.
    pub fn layout(mut self, layout: Layout) -> Self {
        self.config.layout = layout;
        self
    }

    /// Where batches lie. Default: in host memory, also where there is a GPU. One that is named and can't be used is an
    /// error. For several at a time see [`build_each`](Self::build_each).
    ///
    /// A [`decoder`](Self::decoder) of your own makes rows on the device of its classes, which is to be this one.
    pub fn device(mut self, device: Device) -> Self {
        self.config.device = Some(device);
        self
    }

    /// Batches lie on a GPU when this process can use one, else in host memory.
    ///
    /// Of several GPUs, it is that of the local rank (what `CUDA_VISIBLE_DEVICES` hides does not count). A GPU that is there
    /// and fails is a warning, and the CPU. A [`decoder`](Self::decoder) of your own says by its classes where rows are.
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

    /// Page-locks the rows of batches in host memory, so that a trainer's copies to the GPU run while it goes on
    /// (`non_blocking=True` in PyTorch). Default: no. They stay tensors of `Device::Cpu`, and count in
    /// [`memory_budget`](Self::memory_budget) as ever; fields of bytes and boxes are not page-locked. Rows on a GPU have no
    /// use for it.
    ///
    /// **A batch may be dropped while it is copied**: its memory is written again only when the GPU has done all that it was
    /// given before the drop, on whichever stream. That GPU is the local rank's, whose context the loader opens (some hundred
    /// MB of device memory, unless the trainer has it anyway); a batch that another one copies is to be held until that is
    /// done. A batch that is dropped while a CUDA graph is captured on the GPU spoils the capture.
    ///
    /// Locking takes about a third of a millisecond for each megabyte, once for each buffer. `build()` gives an error of kind
    /// `Device` where there is no GPU, and where the driver is for a CUDA older than 12.5, which can't tell when copies are
    /// done.
    pub fn pin_memory(mut self, pin: bool) -> Self {
        self.config.pin_memory = pin;
        self
    }

    /// Device memory in bytes: rows of batches not yet handed over, and one more for the batch that comes back; what
    /// the decoders hold. Default: what the settings can use, at most half of what is free.
    ///
    /// A batch that was handed over is the trainer's; its memory returns when the trainer's work on it is done.
    pub fn device_budget(mut self, bytes: u64) -> Self {
        self.config.device_budget = Some(bytes);
        self
    }

    /// Who decodes JPEGs where batches are made on a GPU: CPU threads, and its engines and streams while the trainer waits
    /// ([`Auto`](Decode::Auto), the default), the engines first, or an error where there are none ([`Gpu`](Decode::Gpu)), or CPU
    /// threads alone ([`Cpu`](Decode::Cpu)). [`Report::decoded_by`](crate::Report::decoded_by) tells who did how many.
    ///
    /// Other files than JPEGs are decoded by CPU threads in any case, and a decoder of your own decides by itself. In host
    /// memory `Auto` and `Cpu` are the same. `build()` gives an error for `Gpu` of kind `Device` where there is no GPU, no
    /// nvJPEG for its driver, or no engines; of kind `OutOfMemory` where `device_budget` or the GPU has no room for them; of
    /// kind `Config` where batches are made in host memory, and where a codec of your own takes the JPEGs.
    pub fn decode(mut self, who: Decode) -> Self {
        self.config.decode = who;
        self
    }

    /// Whether the engines of a GPU get files that end with the crop's last row, so that they decode no more. Default: yes.
    /// Engines that refuse such files get whole ones by themselves; this is for those that take them and make other pixels.
    pub fn decode_cut(mut self, cut: bool) -> Self {
        self.config.decode_cut = cut;
        self
    }

    /// CUDA streams of each GPU, each with a thread, that decode images which the hardware engines can't, and what is too much for
    /// them. Default: none, CPU threads decode these; Huffman coding, most of the work, is the CPU's in either case. Without
    /// effect on the CPU.
    pub fn streams(mut self, streams: usize) -> Self {
        self.config.streams = Some(streams);
        self
    }

    /// How the engines of a GPU, its streams and the CPU share images. Default: CPU threads as long as they keep the trainer's pace,
    /// else whoever is idle takes the next one.
    pub fn split(mut self, split: Split) -> Self {
        self.config.split = split;
        self
    }

    /// Whether threads that work for a GPU stay on the processors near it, on machines with several sockets. Default: yes.
    ///
    /// Their page-locked memory then lies there, too. Threads of engines and streams stay on the socket of their GPU; of the
    /// threads that read and decode as many as it has processors, if all GPUs of the loader are on one. Nothing is changed
    /// where the system does not tell, on one socket, without a GPU, or where this process may use one socket alone.
    pub fn numa(mut self, stay_near: bool) -> Self {
        self.config.numa = stay_near;
        self
    }

    /// Decoding threads. Never changes what comes out.
    ///
    /// Default: one for each core this process may use at first, over the processes of the machine ([`Shard::local_world`](crate::Shard::local_world)) where these are not bound to
    /// cores of their own (two fewer beside JPEG engines or streams of a GPU); then the run decides ([`autotune`](Self::autotune)): fewer
    /// where they keep up with the trainer, more where they wait for files.
    pub fn workers(mut self, workers: usize) -> Self {
        self.config.workers = Some(workers);
        self
    }

    /// Batches that are finished or in work ahead of the trainer. Never changes what comes out; a budget too small for it
    /// lowers it.
    ///
    /// Default: about 256 MiB of rows, 3 to 16 batches; more when the run shows that it helps ([`autotune`](Self::autotune)).
    pub fn prefetch(mut self, batches: usize) -> Self {
        self.config.prefetch = Some(batches);
        self
    }

    /// Whether `workers` and `prefetch` follow the run where they are left on `auto`. Default: yes. Numbers that were set
    /// stay in any case, and so does everything that comes out: order, records, pixels.
    ///
    /// Ten times a second the loader looks at how long the trainer waited, how busy its threads were and with what, and
    /// changes one thing when half a second of it says so: first of all the trainer is not to wait; then no more threads
    /// compute than there are cores (the container's, where it has fewer), and batches ahead stay within
    /// `memory_budget`; then threads that are not needed rest, so that a trainer on the same cores has them. It settles
    /// within seconds. [`Report::autotune`](crate::Report::autotune) lists what was changed and why.
    ///
    /// On a GPU, memory for batches is taken when the loader is built, so there `prefetch` stays. A decoder of your own has
    /// the threads that it says.
    pub fn autotune(mut self, follow: bool) -> Self {
        self.config.autotune = follow;
        self
    }

    /// Whether streams write down where their time goes. Default: yes; it is there to be turned off for measuring what it
    /// costs.
    ///
    /// Without it a [`Report`](crate::Report) counts batches, samples, bad samples, rows by who decoded them, requests and
    /// reads of the cache; stages, waits, steps, late batches, queues and bytes read are empty or zero. What the loader
    /// steers by is measured in any case: how long jobs take, and whatever [`autotune`](Self::autotune) needs while
    /// something is on `auto`. What comes out is the same.
    pub fn accounting(mut self, on: bool) -> Self {
        self.config.accounting = on;
        self
    }

    /// Host memory in bytes: rows of batches not yet handed over, and one more for the batch that comes back; scratch of
    /// the decoders; encoded bytes; what records share, such as decoded volumes. Default: what the settings can use, at most a quarter of the machine.
    ///
    /// A batch that was handed over is the trainer's. Not counted: the dataset's own tables
    /// ([`Dataset::resident_bytes`] and names), code, and stacks. A second stream of one loader at the same time has
    /// rows and encoded bytes of its own.
    pub fn memory_budget(mut self, bytes: u64) -> Self {
        self.config.memory_budget = Some(bytes);
        self
    }

    /// The largest decoded image; a larger one is a bad sample. Default: what the budget allows, at most 320 MiB.
    pub fn max_image_bytes(mut self, bytes: u64) -> Self {
        self.config.max_image_bytes = Some(bytes);
        self
    }

    /// Largest record in encoded bytes: its files, or what of a shard it needs. A larger one is not read; it is a bad
    /// sample, whose error names it and this setting. Memory for one such record is set aside for each decode thread that
    /// reads, or in the window of a remote store.
    ///
    /// Default: whatever usual records have ([`Dataset::usual_read`]), and above that
    /// an eighth of the budget, shared by the threads, up to 256 MiB. So one file of 3 GB beside photographs takes neither
    /// the memory of their decoding nor that of the batches.
    pub fn max_record_bytes(mut self, bytes: u64) -> Self {
        self.config.max_record_bytes = Some(bytes);
        self
    }

    /// Requests in flight to a remote store, at most. Local files are read by the decoding threads.
    ///
    /// Default: found while reading, for all streams of this process that read from one store: 16 at first, more while
    /// the rate rises (up to 1,024), half as many when the store throttles. With a number, this stream stays below it
    /// too; of 4 or more, a tenth (at least one) is kept for second copies of slow requests, below 4 there are none.
    ///
    /// Of a dataset that reads its records itself ([`Dataset::read`]): so many calls at a time, of all streams of the
    /// loader. Default: as many as the dataset says ([`Dataset::concurrent_reads`]).
    pub fn io_concurrency(mut self, requests: usize) -> Self {
        self.config.io_concurrency = Some(requests);
        self
    }

    /// Whether whole objects that come from a remote store are compared with what the store tells of them; see
    /// [`Verify`] for what that is, and what it costs. Default auto.
    pub fn verify(mut self, verify: Verify) -> Self {
        self.config.verify = verify;
        self
    }

    /// Keeps what is read from a remote store near, in a folder or in memory, so that the next epoch reads it there.
    ///
    /// Entries are known by store, name, version tag (ETag) and range; objects without a tag are not kept. Each is
    /// verified when it is read; a damaged one is removed and read from the store. When the cache is full, what is
    /// needed soonest stays: on one machine, which reads everything each epoch, that is what is there already; with
    /// several, what this machine reads in the next epoch replaces what it reads later
    /// ([`Sampler::position`] tells). A folder may be shared by all processes of a
    /// machine, and is usable after any crash. What its disk refuses is a warning: the run goes on without. Reading
    /// it is the decoding threads' work. Datasets of local files do not use it.
    ///
    /// Memory: `ram:SIZE` comes on top of [`memory_budget`](Self::memory_budget); the table of entries takes about
    /// 150 bytes each.
    pub fn cache(mut self, cache: CacheSpec) -> Self {
        self.config.cache = Some(cache);
        self
    }

    /// Keeps decoded pixels, in memory or in a folder, so that later epochs neither read nor decode. For datasets whose pixels
    /// fit there: `infeed doctor` says what it would bring and how much they are.
    ///
    /// What is kept is what no draw changes: all pixels of each image as its codec gives them (3 bytes a pixel of a JPEG, some
    /// 5 times the file), with the sample's other values. Crops, flips and augmentations are drawn anew in each epoch. The
    /// first epoch decodes images whole, where it would decode only what its crops read: it is the slower one. When it is
    /// full, the samples that are there stay, as one machine needs all equally often: half of the pixels serve half of the
    /// reads.
    ///
    /// Rows are made of whole pixels of 8 bits then, whether they were kept or not: those of JPEGs are bit for bit those of
    /// [`Jpeg::exact`](infeed_pixels::codec::Jpeg::exact), in all epochs and with any size.
    ///
    /// `ram:SIZE` is memory of this process, beside [`memory_budget`](Self::memory_budget), of all its devices together; the
    /// ranks of a machine in processes of their own should share a folder. `DIR:SIZE` is a folder for all processes and runs
    /// of a machine, a fast disk or a RAM disk. Entries are known by name, range and version (ETag; of local files time and
    /// length), by the schema, the codecs' [identity](infeed_pixels::codec::ImageCodec::identity) and this crate's version; each is
    /// verified when it is read, and a damaged one is removed and made anew. What the dataset knows beside its files, such as
    /// labels of a list, is not taken from there ([`Dataset::known`]); a dataset of your own that makes values of anything but
    /// a record's bytes has to know them. What others have put there stays: a folder that
    /// is full of another dataset's pixels is the user's to empty. A rank learns at the beginning of an epoch what others
    /// have written.
    ///
    /// Not kept: images of f32, images whose channels are files, TIFFs that are read as they lie, and pixels that the
    /// dataset has in memory: nothing would be saved. Folders keep no boxes and no masks of them.
    ///
    /// # Errors
    /// [`build`](Self::build) gives `Config` where images are not decoded by the CPU, or not at all, and for what can't be
    /// written to a folder.
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

    /// What to do with samples that can't be used. Default: stop with the error.
    pub fn on_bad_sample(mut self, policy: OnBadSample) -> Self {
        self.config.on_bad_sample = policy;
        self
    }

    /// How many samples of a stream may be unreadable (a missing file, a refused object, a disk's error) before it ends with
    /// an error that counts them and tells the last cause; those that [`on_bad_sample`](Self::on_bad_sample) lets pass.
    ///
    /// Default: 16, or one in a hundred of the stream's samples so far, whichever is more. A few lost files cost a run
    /// nothing; a disk, a mount or a prefix that is gone ends it within 17 samples of its failing, instead of an epoch
    /// that holds a tenth of the data. Nothing to [`OnBadSample::Stop`], which ends at the first.
    pub fn max_unreadable(mut self, samples: u64) -> Self {
        self.config.max_unreadable = Some(samples);
        self
    }

    /// Bytes for what is learned of JPEG files while they are decoded on the CPU: later epochs then begin to decode
    /// where the crop begins. Default: an eighth of the memory of this machine or container, divided among its ranks (as
    /// [`Shard::with_local`](crate::Shard::with_local) says), and at most 1 GiB; beside
    /// [`memory_budget`](Self::memory_budget). It is taken as files come: 700 bytes to 2 KB for a photograph of 500x375 pixels
    /// (by how its colour is stored); 300 KB for one of 12 megapixels that is shrunk to a quarter or less, while half of it is
    /// free. Where it does not hold all that there is to know, it knows less of each file (see
    /// [decode index](infeed_pixels::codec::DecodeIndex)): 1 GiB is enough for ImageNet's 1.28 million, within 3 % of the speed with 2.6
    /// GB. 0 keeps nothing. Pixels do not depend on it.
    pub fn decode_index_bytes(mut self, bytes: u64) -> Self {
        self.config.decode_index_bytes = Some(bytes);
        self
    }

    /// An index of JPEG files of your own in place of one that ends with the loader: shared with other loaders, or kept
    /// for later runs.
    #[cfg(feature = "jpeg")]
    pub fn decode_index(mut self, index: DecodeIndex) -> Self {
        self.decode_index = Some(index);
        self
    }

    /// Whether images are turned and mirrored as their files say: EXIF of JPEG, WebP and PNG, the tag Orientation of TIFF.
    /// Default: no, as in torchvision's folders. Codecs of your own turn what they turn.
    ///
    /// Those that lie are decoded whole, by the CPU. `Apply` takes the feature `jpeg`.
    pub fn orientation(mut self, orientation: Orientation) -> Self {
        self.config.orientation = orientation;
        self
    }

    /// A kind of image file beside the built-in ones; asked before them.
    pub fn codec(mut self, codec: Arc<dyn ImageCodec>) -> Self {
        self.codecs.push(codec);
        self
    }

    /// A decoder of your own in place of the CPU's; `workers`, `max_image_bytes` and `codec` are then its own matter.
    pub fn decoder(mut self, decoder: Arc<dyn Decoder>) -> Self {
        self.decoder = Some(decoder);
        self
    }

    /// Uses the threads of this runtime for reading instead of starting some.
    pub fn io_runtime(mut self, runtime: &IoRuntime) -> Self {
        self.io_runtime = Some(runtime.clone());
        self
    }

    /// The built-in decoder of JPEG with an index.
    #[cfg(feature = "jpeg")]
    pub(super) fn indexed(&self) -> Option<Arc<dyn ImageCodec>> {
        let bytes = Some(self.config.index_bytes()).filter(|bytes| *bytes > 0);
        let index = self.decode_index.clone().or_else(|| bytes.map(DecodeIndex::new))?;
        Some(Arc::new(Jpeg::new().index(index).orientation(self.config.orientation == Orientation::Apply)))
    }

    #[cfg(not(feature = "jpeg"))]
    pub(super) fn indexed(&self) -> Option<Arc<dyn ImageCodec>> {
        None
    }
}
