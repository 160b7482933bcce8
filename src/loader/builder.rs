//! Settings, checked together by `build()`.

use std::{num::NonZeroUsize, ops::Range, sync::Arc, thread};

use tokio::sync::Semaphore;

use super::{
    Loader, LoaderConfig, OnBadSample,
    memory::{self, Needs},
    place::{Place, Recipe, Work},
};
#[cfg(feature = "jpeg")]
use crate::codec::{DecodeIndex, Jpeg};
use crate::{
    codec::{Decoder, ImageCodec, Split, codecs as built_in_codecs},
    dataset::{Dataset, Field, FieldKind, Narrow},
    engine::{
        self, BadRows, ChunkSize, FieldRows, IoRuntime, Limits, LoaderShared, Meters, Range as TuneRange, RecordOrder,
        Scope, SharedParts, Tuning, Workers,
    },
    error::{Error, ErrorKind, Result},
    random::SampleRng,
    sampler::{Identity, LastBatch, LoaderState, Order, Sampler, Schedule, Shard},
    source::{Cache, CacheSpec},
    sys::rows::Pool,
    transform::{Foreground, LoweredVolume, Transform},
    types::{DType, Device, Layout},
};

/// The largest decoded image that `auto` allows: 89 megapixels of RGB.
const MAX_IMAGE: u64 = 256 << 20;
/// Room that images get before more batches do: 16 megapixels of RGB.
const USUAL_IMAGE: u64 = 48 << 20;
/// The smallest bound on an image that makes sense: 1.4 megapixels of RGB.
const MIN_IMAGE: u64 = 4 << 20;
/// Encoded bytes read ahead from a remote store; hides 2 s of small images (256 MB at 128 MB/s).
const WINDOW: u64 = 256 << 20;
/// Batches of a remote store that may be announced, and asked for, beyond those that have rows.
const READ_AHEAD: usize = 64;

/// Settings of a [`Loader`]; made by [`Loader::builder`], ended by [`build`](Self::build).
///
/// Each setter replaces the value of [`LoaderConfig`] of the same name; start from a file with [`config`](Self::config).
#[derive(Debug)]
#[must_use = "nothing is started before build()"]
pub struct LoaderBuilder {
    dataset: Arc<dyn Dataset>,
    config: LoaderConfig,
    sampler: Option<Arc<dyn Sampler>>,
    decoder: Option<Arc<dyn Decoder>>,
    codecs: Vec<Arc<dyn ImageCodec>>,
    io_runtime: Option<IoRuntime>,
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
            #[cfg(feature = "jpeg")]
            decode_index: None,
        }
    }

    /// All settings at once.
    pub fn config(mut self, config: LoaderConfig) -> Self {
        self.config = config;
        self
    }

    /// Rows of a batch on each rank. Default 256.
    pub fn batch_size(mut self, rows: usize) -> Self {
        self.config.batch_size = rows;
        self
    }

    /// A new random order each epoch: `Order::Random { seed }`. Without it, records come as they lie.
    pub fn shuffle(self, seed: u64) -> Self {
        self.order(Order::Random { seed })
    }

    /// The order of records.
    pub fn order(mut self, order: Order) -> Self {
        self.config.order = order;
        self
    }

    /// An order of your own, such as [`WeightedSampler`](crate::sampler::WeightedSampler); replaces `order`.
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

    /// From decoded image to row, for every image field.
    pub fn transform(mut self, transform: Transform) -> Self {
        self.config.transform = transform;
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

    /// Where batches lie. Default: on a GPU when this process can use one, else in host memory.
    ///
    /// Of several GPUs, the default is that of the local rank (what `CUDA_VISIBLE_DEVICES` hides does not count). A GPU
    /// that is there and fails is a warning and the CPU by default, and an error when it was asked for.
    pub fn device(mut self, device: Device) -> Self {
        self.config.device = Some(device);
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

    /// CUDA streams, each with a thread, that decode images which the hardware engines can't, and what is too much for
    /// them. Default: chosen by the GPU. Without effect on the CPU. How many of them work follows the run by itself: they
    /// take from the queue that CPU threads and engines take from.
    pub fn streams(mut self, streams: usize) -> Self {
        self.config.streams = Some(streams);
        self
    }

    /// How the engines of a GPU, its streams and the CPU share images. Default: whoever is idle takes the next one.
    pub fn split(mut self, split: Split) -> Self {
        self.config.split = split;
        self
    }

    /// Decoding threads. Never changes what comes out.
    ///
    /// Default: one for each core this process may use at first; then the run decides ([`autotune`](Self::autotune)): fewer
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
    /// Without it a [`Report`](crate::Report) counts batches, samples, bad samples, requests and reads of the cache; stages,
    /// waits, steps, late batches, queues and bytes read are empty or zero. What the loader steers by is measured in any
    /// case: how long jobs take, and whatever [`autotune`](Self::autotune) needs while something is on `auto`. What comes
    /// out is the same.
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

    /// The largest decoded image; a larger one is a bad sample. Default: what the budget allows, at most 256 MiB.
    pub fn max_image_bytes(mut self, bytes: u64) -> Self {
        self.config.max_image_bytes = Some(bytes);
        self
    }

    /// Requests in flight to a remote store, at most. Local files are read by the decoding threads.
    ///
    /// Default: found while reading, for all streams of this process that read from one store: 16 at first, more while
    /// the rate rises (up to 1,024), half as many when the store throttles. With a number, this stream stays below it
    /// too; of 4 or more, a tenth (at least one) is kept for second copies of slow requests, below 4 there are none.
    pub fn io_concurrency(mut self, requests: usize) -> Self {
        self.config.io_concurrency = Some(requests);
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

    /// What to do with samples that can't be used. Default: stop with the error.
    pub fn on_bad_sample(mut self, policy: OnBadSample) -> Self {
        self.config.on_bad_sample = policy;
        self
    }

    /// Bytes for what is learned of JPEG files while they are decoded on the CPU: later epochs then begin to decode
    /// where the crop begins. Default 256 MiB, taken as files come (800 bytes for a photograph of 500x375 pixels; 300 KB
    /// for one of 12 megapixels that is shrunk to a quarter or less, while half of it is free) and beside
    /// [`memory_budget`](Self::memory_budget); 0 keeps nothing. Pixels do not depend on it.
    pub fn decode_index_bytes(mut self, bytes: u64) -> Self {
        self.config.decode_index_bytes = bytes;
        self
    }

    /// An index of JPEG files of your own in place of one that ends with the loader: shared with other loaders, or kept
    /// for later runs.
    #[cfg(feature = "jpeg")]
    pub fn decode_index(mut self, index: DecodeIndex) -> Self {
        self.decode_index = Some(index);
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

    /// Checks all settings, fits the transform to the dataset, divides the memory and starts the threads.
    ///
    /// # Errors
    /// `Config` for a setting that can't be: batch size 0, prefetch 0, a rank outside the world, a budget below the
    /// least that works (the message names it), a transform that does not fold to one resample; and for records that do
    /// not fill one batch on every rank, when [`last_batch`](Self::last_batch) drops them: no epoch would have a step. `Device` and
    /// `OutOfMemory` when the GPU that was asked for can't be used.
    pub async fn build(self) -> Result<Loader> {
        // Waking a GPU up and compiling its kernels may take seconds.
        engine::off_thread("infeed-build", || self.build_now()).await?
    }

    /// [`build`](Self::build) for callers without an async runtime.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn build_blocking(self) -> Result<Loader> {
        self.build_now()
    }

    /// The built-in decoder of JPEG with an index.
    #[cfg(feature = "jpeg")]
    fn indexed(&self) -> Option<Arc<dyn ImageCodec>> {
        let bytes = Some(self.config.decode_index_bytes).filter(|bytes| *bytes > 0);
        let index = self.decode_index.clone().or_else(|| bytes.map(DecodeIndex::new))?;
        Some(Arc::new(Jpeg::new().index(index)))
    }

    fn build_now(self) -> Result<Loader> {
        #[cfg(feature = "jpeg")]
        let indexed = self.indexed();
        #[cfg(not(feature = "jpeg"))]
        let indexed: Option<Arc<dyn ImageCodec>> = None;
        let Self { dataset, mut config, sampler, decoder, codecs, io_runtime, .. } = self;
        check(&config)?;
        let workers = resolve_workers(&config)?;
        let batch_size = NonZeroUsize::new(config.batch_size)
            .ok_or_else(|| Error::config("batch_size is 0").hint("use 1 or more"))?;
        if dataset.is_empty() {
            return Err(
                Error::config("the dataset has no records").hint("check the path or the subset it was made from")
            );
        }

        let seed = config.seed.or(config.order.seed()).unwrap_or(0);
        if let Some(sampler) = sampler.as_ref().filter(|sampler| sampler.records() != dataset.len()) {
            let what =
                format!("the sampler draws from {} records, the dataset has {}", sampler.records(), dataset.len());
            return Err(Error::config(what).hint("make the sampler for this dataset"));
        }
        let own_sampler = sampler.is_some();
        let order = match sampler {
            Some(sampler) => identified(sampler, &*dataset, seed, 1),
            None => ordering(config.order, &*dataset, seed, u64::from(config.shard.world()))?,
        };
        check_steps(order.sampler.len(), batch_size, &config)?;

        let (mut programs, mut volumes) = (Vec::new(), Vec::new());
        let mut fields = Vec::new();
        for field in &dataset.schema().fields {
            let named = |e: Error| e.at_object(format!("field {}", field.name));
            let lowered = engine::lower_field(field, &config.transform, config.dtype, config.layout).map_err(named)?;
            fields.push((field.name.clone(), lowered.shape, lowered.dtype));
            programs.push(lowered.image);
            volumes.push(lowered.volume);
        }
        let boxes = volumes.iter().flatten().next().map(|volume| Arc::new(Boxes::new(volume, &config.transform)));
        let dataset = match boxes.map(|boxes| dataset.narrowed(&(boxes as Arc<dyn Narrow>))) {
            Some(Some(narrowed)) => narrowed,
            _ => dataset,
        };

        let place = Place::find(&config, decoder.as_ref())?;
        let image_fields: Vec<bool> = programs.iter().map(Option::is_some).collect();
        let bytes_where = |on_device: bool| -> u64 {
            let rows = fields.iter().zip(&image_fields).filter(|(_, image)| place.holds(**image) == on_device);
            let rows = rows.map(|((_, shape, dtype), _)| FieldRows::row_bytes(shape, *dtype) as u64);
            let rows = rows.fold(0, u64::saturating_add);
            rows.saturating_mul(config.batch_size as u64)
        };
        // One thread reads a record, or a few small ones, at a time.
        let reads_inline = !dataset.needs_fetch() && dataset.largest_read() > 0;
        // Of fields of bytes: in host memory wherever the tensors are.
        let most = |field: &Field| if let FieldKind::Bytes { most } = field.kind { Some(most) } else { None };
        let of_bytes =
            dataset.schema().fields.iter().filter_map(most).fold(0u64, |sum, most| sum.saturating_add(most as u64));
        let of_bytes = of_bytes.saturating_mul(config.batch_size as u64);
        let needs = Needs {
            batch: bytes_where(false).saturating_add(of_bytes),
            of_bytes,
            reads: if reads_inline {
                dataset.largest_read().max(engine::READ_BYTES).saturating_mul(workers.get() as u64)
            } else {
                0
            },
            window: if dataset.needs_fetch() { dataset.largest_read().next_multiple_of(64 << 10) } else { 0 },
            scratch: 0,
            shared: dataset.shared_bytes().one,
            // One record's more: the last is made beside all others.
            all_shared: dataset.shared_bytes().all.saturating_add(dataset.shared_bytes().one),
            more: 0,
            processes: u64::from(config.shard.local_world()),
        };
        // Volumes are no work of the decoder.
        let decoded = fields.iter().zip(&volumes).filter(|(_, volume)| volume.is_none()).map(|(field, _)| field);
        let longest_row = decoded.map(|(_, shape, dtype)| FieldRows::row_bytes(shape, *dtype)).max();
        let codecs: Arc<[_]> = codecs.into_iter().chain(indexed).chain(built_in_codecs()).collect();
        // On a GPU every field ends there, and how far to run ahead is decided there.
        let device_batch = bytes_where(true).saturating_add(if place.is_device() { bytes_where(false) } else { 0 });
        let has_files = dataset.schema().fields.iter().any(|f| matches!(f.kind, FieldKind::Image { size: None, .. }));
        let work = Work { workers, row_bytes: longest_row.unwrap_or(0), has_files, device_batch };
        let make = place.decoders(&config, decoder, codecs, &work)?;
        let growth = Growth::new(&config, &make, &place, &needs, reads_inline);
        if let Some(context) = place.context() {
            let decoders = make.device_bytes();
            let (budget, prefetch) = memory::divide_device(
                config.device_budget,
                context.memory()?.0,
                device_batch,
                decoders,
                config.prefetch,
            )?;
            (config.device_budget, config.prefetch) = (Some(budget), Some(prefetch));
        } else {
            config.device_budget = None;
        }
        let (decoder, shares, max_image) = decoder_and_shares(&config, &make, needs, &growth, has_files)?;
        engine::check_decoder(&*decoder)?;

        let mut prefetch = shares.prefetch;
        let make_fields = |prefetch: usize| -> Result<Vec<FieldRows>> {
            type Made<'a> = ((&'a (String, Vec<usize>, DType), &'a Field), (&'a bool, &'a Option<LoweredVolume>));
            let make = |(((name, shape, dtype), field), (image, volume)): Made<'_>| -> Result<FieldRows> {
                let (rows, bytes) = (config.batch_size, FieldRows::row_bytes(shape, *dtype));
                let named = |e: Error| e.at_object(format!("field {name}"));
                let most = most(field);
                let on_host = || Pool::new(rows, bytes, prefetch + 1).map_err(named);
                let context = place.context().filter(|_| most.is_none());
                let on_device = context.map(|context| Pool::on_device(context, rows, bytes, prefetch + 1));
                let on_device = on_device.transpose().map_err(named)?;
                let (pool, upload) = match on_device {
                    Some(pool) if *image => (pool, None),
                    upload => (on_host()?, upload),
                };
                Ok(FieldRows {
                    name: name.clone(),
                    shape: shape.clone(),
                    dtype: *dtype,
                    most,
                    pool,
                    upload,
                    volume: Option::clone(volume),
                })
            };
            fields.iter().zip(&dataset.schema().fields).zip(image_fields.iter().zip(&volumes)).map(make).collect()
        };
        let mut rows = make_fields(prefetch)?;
        if place.is_device() {
            // Taken now: a trainer that takes all memory afterwards can't break an epoch in its middle.
            if let Err(error) = engine::fill(&rows, prefetch + 1) {
                if error.kind() != ErrorKind::OutOfMemory || prefetch == 1 {
                    return Err(error);
                }
                drop(rows);
                let fewer = (prefetch / 2).max(1);
                tracing::warn!(prefetch = fewer, wanted = prefetch, %error, "out of device memory: fewer batches ahead");
                prefetch = fewer;
                rows = make_fields(prefetch)?;
                engine::fill(&rows, prefetch + 1)?;
            }
        }
        let scope = growth.scope(prefetch, &*decoder, dataset.needs_fetch());
        let limits = Limits {
            // Bytes are read further ahead than rows are made; the window of bytes is the true limit.
            seats: if dataset.needs_fetch() {
                prefetch + fetched_ahead(&config, dataset.len())
            } else {
                scope.prefetch.most
            },
            encoded: shares.window,
            requests: config.io_concurrency,
        };
        let fields = rows;
        let programs: Arc<[_]> = programs.into();
        let chunk = Arc::new(ChunkSize::new(&dataset, &fields));
        // What settings on `auto` share when they grow.
        let more = Arc::new(Semaphore::new(engine::whole_units(shares.more) as usize));
        let each = (shares.scratch + needs.reads) / workers.get() as u64;
        let tuning = Tuning::new(scope, (&more, needs.batch));
        let meters = Meters { stages: config.accounting, cpu: config.accounting || tuning.follows() };
        let workers_started = Workers::start(&dataset, &decoder, &programs, &chunk, (&more, each), meters)?;
        let io = io_runtime.map_or_else(|| IoRuntime::for_loader(dataset.needs_fetch()), Ok)?;

        config.device = Some(place.device());
        config.seed = Some(seed);
        config.workers =
            Some(decoder.classes().iter().filter(|class| class.reads).map(|class| class.workers.get()).sum());
        config.prefetch = Some(prefetch);
        config.memory_budget = Some(shares.budget);
        config.max_image_bytes = max_image;
        let cache = open_cache(&config, &*dataset)?;
        let bad = match config.on_bad_sample {
            OnBadSample::Stop => BadRows::Stop,
            OnBadSample::Skip { .. } => BadRows::Skip,
            OnBadSample::SkipPadded { .. } => BadRows::SkipPadded,
            OnBadSample::Substitute => BadRows::Substitute,
        };
        let shared = LoaderShared {
            shard: config.shard,
            batch_size,
            last_batch: config.last_batch,
            fields,
            limits,
            bad,
            chunk,
            tuning,
            accounting: config.accounting,
            io,
            cache,
            shared_parts: SharedParts::new(shares.shared),
            dataset,
        };
        tracing::debug!(?shares, ?limits, decoder = decoder.name(), "loader built");
        let workers = Arc::new(workers_started);
        Ok(Loader { shared: Arc::new(shared), workers, order, own_sampler, config: Arc::new(config) })
    }
}

/// How far settings on `auto` may go.
#[derive(Debug)]
struct Growth {
    cores: usize,
    /// The decode threads wait for files.
    reads: bool,
    on_device: bool,
    /// Whether they follow the run, and how many there may be.
    workers: Option<usize>,
    prefetch: Option<usize>,
}

impl Growth {
    fn new(config: &LoaderConfig, make: &Recipe, place: &Place, needs: &Needs, reads_inline: bool) -> Self {
        let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let on_device = place.is_device();
        let reads = reads_inline || config.cache.as_ref().is_some_and(|cache| !cache.is_ram());
        // A decoder of the user's has the threads that it says; one on a GPU holds memory there for each.
        let own = config.autotune && config.workers.is_none() && make.decodes_on_cpu();
        // A file on a network takes 10 ms, decoding it 1: then eight threads keep a core busy.
        let most = if reads && !on_device { (8 * cores).clamp(16, 128).max(cores) } else { cores };
        // What a GPU has for batches is taken when the loader is built: a trainer that takes the rest afterwards can't
        // break an epoch in its middle.
        let ahead = config.autotune && config.prefetch.is_none() && !on_device;
        let (workers, prefetch) = (own.then_some(most), ahead.then(|| needs.most_prefetch()));
        Self { cores, reads, on_device, workers, prefetch }
    }

    /// Memory for all of it; `scratch` and `reads` are those of `workers` threads.
    fn bytes(&self, needs: &Needs, scratch: u64, workers: usize) -> u64 {
        let thread = (scratch + needs.reads) / workers.max(1) as u64;
        let threads = self.workers.map_or(0, |most| most.saturating_sub(workers)) as u64;
        let batches = self.prefetch.map_or(0, |most| most.saturating_sub(needs.auto_prefetch())) as u64;
        threads.saturating_mul(thread).saturating_add(batches.saturating_mul(needs.batch))
    }

    fn scope(&self, prefetch: usize, decoder: &dyn Decoder, fetches: bool) -> Scope {
        let threads = decoder.classes().iter().filter(|class| class.reads).map(|class| class.workers.get()).sum();
        let range = |start: usize, least, most: Option<usize>| match most {
            Some(most) => TuneRange { start, least, most: most.max(start) },
            None => TuneRange::fixed(start),
        };
        // Batches are announced before they have rows; no more of them than may be announced.
        let most = if fetches { self.prefetch.map(|most| most.min(prefetch + READ_AHEAD)) } else { self.prefetch };
        Scope {
            cores: self.cores,
            reads: self.reads,
            computes: !self.on_device,
            workers: range(threads, 1, self.workers),
            prefetch: range(prefetch, prefetch, most),
        }
    }
}

/// The boxes of volumes that a transform uses. Fields of one record move together, so one speaks for all.
#[derive(Debug)]
struct Boxes {
    volume: LoweredVolume,
    foreground: bool,
}

impl Boxes {
    fn new(volume: &LoweredVolume, transform: &Transform) -> Self {
        Self { volume: volume.clone(), foreground: transform.wants_foreground() }
    }
}

impl Narrow for Boxes {
    fn reads(&self, shape: [usize; 3], rng: SampleRng) -> Result<[Range<usize>; 3]> {
        Ok(LoweredVolume::reads(&self.volume.axes(shape, &Foreground::default(), rng)?))
    }

    fn most(&self) -> u64 {
        self.volume.shape()[1..].iter().map(|n| *n as u64).product()
    }

    fn wants_foreground(&self) -> bool {
        self.foreground
    }
}

/// The cache of a dataset that is read from afar.
fn open_cache(config: &LoaderConfig, dataset: &dyn Dataset) -> Result<Option<Arc<Cache>>> {
    let Some(spec) = &config.cache else { return Ok(None) };
    if !dataset.needs_fetch() {
        tracing::warn!("the dataset is not read from a remote store: the cache is not used");
        return Ok(None);
    }
    memory::check_ram_cache(spec)?;
    Cache::open(spec, config.shard.local_rank(), config.shard.local_world()).map(Some)
}

/// The order of `dataset`; `lanes` where the order leaves their number open.
pub(super) fn ordering(order: Order, dataset: &dyn Dataset, seed: u64, lanes: u64) -> Result<RecordOrder> {
    let sampler = order.sampler(dataset.len(), dataset.groups(), lanes)?;
    Ok(identified(sampler, dataset, seed, order.lanes(lanes)))
}

fn identified(sampler: Arc<dyn Sampler>, dataset: &dyn Dataset, seed: u64, lanes: u64) -> RecordOrder {
    let identity = Identity::new(dataset.format(), dataset.len(), dataset.fingerprint(), &*sampler);
    RecordOrder { sampler, state: LoaderState::new(identity, seed, lanes) }
}

fn resolve_workers(config: &LoaderConfig) -> Result<NonZeroUsize> {
    match config.workers {
        // One for each core, not one more: a decode thread never waits for anything but memory.
        None => Ok(thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)),
        Some(n) => {
            NonZeroUsize::new(n).ok_or_else(|| Error::config("workers is 0").hint("use 1 or more, or leave it on auto"))
        }
    }
}

fn check(config: &LoaderConfig) -> Result<()> {
    let zero = |name: &str| Err(Error::config(format!("{name} is 0")).hint("use 1 or more"));
    if config.prefetch == Some(0) {
        return zero("prefetch");
    }
    if config.io_concurrency == Some(0) {
        return zero("io_concurrency");
    }
    if config.streams == Some(0) {
        return zero("streams");
    }
    if config.max_image_bytes == Some(0) {
        return zero("max_image_bytes");
    }
    if !matches!(config.dtype, DType::F32 | DType::F16 | DType::Bf16 | DType::U8 | DType::I16) {
        return Err(Error::config(format!("dtype {} is no type for images", config.dtype))
            .hint("use f32, f16, bf16, u8, or for volumes i16"));
    }
    Ok(())
}

/// Refuses an epoch without a batch: a training of no steps would look like one that succeeded.
fn check_steps(records: u64, batch_size: NonZeroUsize, config: &LoaderConfig) -> Result<()> {
    if Schedule::new(records, 0, batch_size, config.shard, config.last_batch).steps() > 0 {
        return Ok(());
    }
    let world = config.shard.world();
    let ranks = if world == 1 { String::new() } else { format!(" on each of {world} ranks") };
    let error = Error::config(format!("{records} records do not fill one batch of {batch_size}{ranks}"));
    Err(match records / u64::from(world) {
        0 if records == 0 => error.hint("use a sampler that draws records"),
        0 => error.hint("use fewer ranks, or set last_batch to partial or pad"),
        most => error.hint(format!("lower batch_size to {most} or less, or set last_batch to partial or pad")),
    })
}

/// Batches that are only read, ahead of those that have their rows.
fn fetched_ahead(config: &LoaderConfig, records: u64) -> usize {
    if config.cache.is_none() {
        return READ_AHEAD;
    }
    // What is read before it was needed the last time is asked of the store again: with a cache, only a part of an epoch.
    let in_batch = u64::from(config.shard.world()).saturating_mul(config.batch_size as u64).max(1);
    usize::try_from(records / in_batch / 8).map_or(READ_AHEAD, |batches| batches.clamp(1, READ_AHEAD))
}

/// The decoder and its part of the memory. The CPU's decoder takes as large images as the budget allows.
fn decoder_and_shares(
    config: &LoaderConfig,
    make: &Recipe,
    mut needs: Needs,
    growth: &Growth,
    has_files: bool,
) -> Result<(Arc<dyn Decoder>, memory::Shares, Option<u64>)> {
    let total = |max_image: u64| make.scratch_bytes(max_image);
    let workers = resolve_workers(config)?.get();
    needs.more = growth.bytes(&needs, total(config.max_image_bytes.unwrap_or(MAX_IMAGE)), workers);
    // Samples that wait for classes that do not read them.
    needs.reads = needs.reads.saturating_add(make.ready_bytes());
    if !make.decodes_on_cpu() {
        needs.scratch = total(0);
        let shares = needs.divide(config.memory_budget, config.prefetch, [needs.scratch; 2], WINDOW)?;
        return Ok((make.decoder(0), shares, config.max_image_bytes));
    }
    let (min, max) = match config.max_image_bytes {
        Some(fixed) => (fixed, fixed),
        None if has_files => (MIN_IMAGE, MAX_IMAGE),
        // Ready pixels need no scratch for decoding.
        None => (64 << 10, MAX_IMAGE),
    };
    needs.scratch = total(min);
    let scratch = [total(max.min(USUAL_IMAGE)), total(max)];
    let shares = needs.divide(config.memory_budget, config.prefetch, scratch, WINDOW)?;
    // Scratch grows in proportion to the largest image; find the image that the share holds.
    let (least, most) = (total(min), total(max));
    let image = if most > least {
        min + ((max - min) as u128 * (shares.scratch - least) as u128 / (most - least) as u128) as u64
    } else {
        max
    };
    Ok((make.decoder(image), shares, Some(image)))
}
