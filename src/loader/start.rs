//! Builds loaders, one or one for each of several devices: collects facts about the dataset, the machine and its
//! devices, calls [`resolve`](fn@resolve) for the arithmetic, then allocates memory and starts threads.

use std::{num::NonZeroUsize, ops::Range, sync::Arc};

use infeed_core::{
    error::{
        Error, ErrorKind, Result,
        setting::{DECODED_CACHE, DEVICE_CPU},
    },
    machine,
    numa::Near,
    random::SampleRng,
    report::RequestRecorder,
    types::Device,
};
use infeed_data::{Dataset, FieldKind, Narrow, sampler::Shard};
use infeed_pixels::{
    codec::{Decode, ImageCodec, codecs as built_in_codecs},
    transform::{Foreground, LoweredVolume, Transform},
};
use infeed_store::{Cache, Reader};
use tokio::sync::Semaphore;

use super::{
    Loader, LoaderBuilder, LoaderConfig,
    fields::Fields,
    memory, mix,
    order::{for_dataset, order_of_sampler, ordering},
    place::{self, BatchDevice, Recipe, Workload},
    resolve::{self, BatchBytes, Checked, DecoderFacts, DeviceFacts, Facts, Machine, Resolved, resolve},
    views,
};
use crate::engine::{
    self, BatchMix, ChunkSize, DecodedCache, FieldRows, First, ImageLists, IoRuntime, LoaderShared, Meters, ReadSlots,
    SharedParts, Tuning, Workers,
};

impl Loader {
    /// A builder of a loader for `dataset`. See [`LoaderBuilder`] for the settings and their defaults.
    pub fn builder(dataset: Arc<dyn Dataset>) -> LoaderBuilder {
        LoaderBuilder::new(dataset)
    }
}

impl LoaderBuilder {
    /// Checks all settings, fits the transform to the dataset, divides the memory and starts the threads.
    ///
    /// # Errors
    ///
    /// | kind | cause |
    /// |---|---|
    /// | `Config` | an invalid setting: batch size 0, prefetch 0, a budget below the minimum (the message names it), a transform that does not fold to one resample, … |
    /// | `Empty` | an epoch without a step: no records, or too few for one batch on every rank if [`last_batch`](Self::last_batch) drops them |
    /// | `Device`, `OutOfMemory` | the GPU cannot be used, or threads cannot be started |
    pub async fn build(self) -> Result<Loader> {
        // Waking a GPU and compiling its kernels may take seconds.
        engine::off_thread("infeed-build", || self.build_blocking()).await?
    }

    /// [`build`](Self::build) for callers without an async runtime.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn build_blocking(self) -> Result<Loader> {
        let mut loaders = start(self, None)?;
        loaders.pop().ok_or_else(|| Error::new(ErrorKind::Internal, "a loader was not built"))
    }

    /// A loader for each of `devices`, in their order: for a process that trains on several devices.
    ///
    /// **Ranks.** Each loader is a rank. With `d` devices, device `n` yields the same records and bytes as rank
    /// `rank * d + n` of `world * d` in a process of its own, where `rank` and `world` are those of
    /// [`shard`](Self::shard). So all processes of a run need the same number of devices. Each loader has its own
    /// epochs, states, reports and streams; a state of any of them resumes on any number of devices. The setting
    /// `device` is ignored. A device that is listed twice has two ranks; [`Device::Cpu`] makes ranks in host memory.
    ///
    /// **Shared** are the dataset, the decode threads, the threads that read from stores, the requests in flight
    /// ([`io_concurrency`](Self::io_concurrency) limits all together), the cache, and decoded volumes. The decode
    /// threads take work of the loaders in turn, so a trainer that pauses does not delay the others. Each GPU has its
    /// own JPEG engines and [`streams`](Self::streams). The threads end with the last loader and stream.
    ///
    /// **Memory.** [`memory_budget`](Self::memory_budget) is for all loaders together; each rank has an equal part of
    /// the rows and of the bytes that are read ahead. Each decode thread that reads holds scratch memory for each GPU:
    /// 6 MiB page-locked, and the pixels of an image. [`device_budget`](Self::device_budget) is for each GPU. If one
    /// GPU has less memory than others, its number of batches ahead is used for all.
    ///
    /// **Autotune** does not change the number of batches ahead, and changes the number of threads only while a single
    /// stream of all loaders runs.
    ///
    /// **Failures.** A GPU that fails ends its own stream with an error that names it; the others continue.
    ///
    /// ```
    /// # use futures::StreamExt;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
    /// use infeed::{Device, Loader};
    /// # let dataset = infeed::open("synthetic://?count=100&height=8&width=8&classes=10").await?;
    /// // On a machine with two GPUs: [Device::Cuda(0), Device::Cuda(1)].
    /// let loaders = Loader::builder(dataset).batch_size(10).shuffle(1).build_each([Device::Cpu, Device::Cpu]).await?;
    /// let trainers = loaders.into_iter().map(|loader| {
    ///     tokio::spawn(async move {
    ///         let mut batches = loader.epoch(0);
    ///         let mut samples = 0;
    ///         while let Some(batch) = batches.next().await {
    ///             samples += batch?.len();
    ///         }
    ///         Ok::<_, infeed::Error>(samples)
    ///     })
    /// });
    /// for trainer in futures::future::join_all(trainers).await {
    ///     assert_eq!(trainer.expect("no panic")?, 50);
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`build`](Self::build); `Config` if there are no devices, or if a decoder of your own does not make rows on
    /// all of them.
    pub async fn build_each(self, devices: impl IntoIterator<Item = Device>) -> Result<Vec<Loader>> {
        let devices: Vec<Device> = devices.into_iter().collect();
        engine::off_thread("infeed-build", || self.build_each_blocking(devices)).await?
    }

    /// [`build_each`](Self::build_each) for callers without an async runtime.
    ///
    /// # Errors
    /// As [`build_each`](Self::build_each).
    pub fn build_each_blocking(self, devices: impl IntoIterator<Item = Device>) -> Result<Vec<Loader>> {
        start(self, Some(devices.into_iter().collect()))
    }
}

/// Loaders for these devices, or one loader for the device of the config.
fn start(builder: LoaderBuilder, devices: Option<Vec<Device>>) -> Result<Vec<Loader>> {
    let indexed = builder.indexed();
    let LoaderBuilder { dataset, config, sampler, decoder, codecs, io_runtime, maps, .. } = builder;
    let cores = machine::cores();
    let checked = resolve::check(&config, dataset.len())?;
    let process = config.shard;
    let shards = shards(process, devices.as_deref())?;
    let own_sampler = sampler.is_some();
    let order = if own_sampler { config.order } else { for_dataset(config.order, &*dataset)? };
    let config = LoaderConfig { shard: shards[0], order, ..config };
    let order = match sampler {
        Some(sampler) => order_of_sampler(sampler, &*dataset, checked.seed)?,
        None => ordering(&config.order, &*dataset, checked.seed, u64::from(config.shard.world()))?,
    };
    resolve::check_steps(&*order.sampler, checked.batch_size, &config)?;
    let (dataset, views) = views::fit(dataset, &config.views, &config.transform)?;
    let fields = Fields::lower(&*dataset, &views, &config)?;
    let dataset = narrowed(dataset, &fields, &config.transform);

    // Before a GPU is woken, which takes long.
    let asked = config.device.iter().filter(|_| devices.is_none()).chain(devices.iter().flatten());
    let check_device = |device| {
        mix::check_device(&maps, device)?;
        place::check_decode(config.decode, device)
    };
    place::check_decoder(config.decode, decoder.as_ref())?;
    asked.copied().try_for_each(check_device)?;
    let places = match &devices {
        Some(devices) => BatchDevice::each(devices, &config, decoder.as_ref())?,
        None => vec![BatchDevice::find(&config, decoder.as_ref())?],
    };
    let lanes: Vec<Device> = places.iter().map(BatchDevice::device).collect();
    lanes.iter().copied().try_for_each(check_device)?;
    let batch_on = |place: &BatchDevice| fields.batch_bytes(config.batch_size, place.is_device());
    // Each device once, with one batch of each rank on it.
    let mut found: Vec<(&BatchDevice, BatchBytes)> = Vec::new();
    for place in &places {
        match found.iter_mut().find(|(other, _)| other.device() == place.device()) {
            Some((_, batch)) => *batch = batch.and(batch_on(place)),
            None => found.push((place, batch_on(place))),
        }
    }
    let schema = dataset.schema();
    let of_kind = |is: fn(&FieldKind) -> bool| schema.fields.iter().any(|field| is(&field.kind));
    let has_lists = of_kind(|kind| matches!(kind, FieldKind::Images { .. }));
    let has_images = of_kind(|kind| matches!(kind, FieldKind::Image { size: None, .. }));
    let has_files = has_images || has_lists;
    let orientation = config.orientation.of_dataset(schema.upright);
    let codecs: Arc<[_]> = codecs.into_iter().chain(indexed).chain(orientation.of(built_in_codecs())?).collect();
    let most_threads = checked.most_threads(cores);
    let make = |(place, batch): &(&BatchDevice, BatchBytes)| {
        let device_batch = batch.on_device;
        let (row_bytes, steps) = (fields.longest_row(), fields.steps());
        let workload = Workload { most_threads, row_bytes, steps, has_files, device_batch };
        place.make(&config, Arc::clone(&codecs), &workload)
    };
    let recipe = match decoder {
        Some(decoder) => Recipe::Given(decoder),
        None => Recipe::Made(found.iter().map(make).collect::<Result<_>>()?),
    };
    let first = match (&recipe, config.decode) {
        (Recipe::Given(_), _) => First::Nobody,
        (Recipe::Made(_), Decode::Gpu) => First::Engines,
        (Recipe::Made(_), _) => First::Threads,
    };
    let processes = process.local_world() as usize / places.len().max(1);
    let own = if machine::is_bound() { cores } else { machine::share(cores, processes) };
    let threads = checked.threads(own, recipe.has_engines());
    let device_facts = |(place, batch): &(&BatchDevice, BatchBytes)| -> Option<Result<DeviceFacts>> {
        let gpu = place.gpu_of_batches()?;
        // Threads that `autotune` may add take memory there, too.
        let decoding = recipe.device_bytes(place.device(), most_threads);
        let facts = |free| DeviceFacts { index: gpu.index(), free, batch: batch.on_device, decoding };
        Some(gpu.memory().map(|(free, _)| facts(free)))
    };
    let facts = Facts {
        records: dataset.len(),
        reads_ahead: engine::reads_ahead(&*dataset),
        largest_read: dataset.largest_read(),
        usual_read: dataset.usual_read(),
        shared: dataset.shared_bytes(),
        has_files,
        batch: found.iter().fold(BatchBytes::default(), |all, (_, batch)| all.and(*batch)),
        machine: Machine { cores, memory: memory::machine_bytes() },
        ranks: places.len(),
        devices: found.iter().filter_map(device_facts).collect::<Result<_>>()?,
        decoder: DecoderFacts {
            built_in: recipe.decodes_on_cpu(),
            reading: recipe.reading(threads),
            scratch: &|max_image| {
                // Threads of engines are few and make no tiles.
                let tiles = fields.tile_bytes(max_image).saturating_mul(threads.get() as u64);
                // Lists have buffers of their own next to those of a decoder that has images as well.
                let lists = match has_lists && (has_images || !recipe.decodes_on_cpu()) {
                    true => resolve::largest_listed(max_image).saturating_mul(threads.get() as u64),
                    false => 0,
                };
                recipe.scratch_bytes(max_image, threads).saturating_add(tiles).saturating_add(lists)
            },
            ready: recipe.ready_bytes(),
        },
    };
    let mut resolved = resolve(&config, &facts)?;
    let decoder = recipe.decoder(resolved.max_image.unwrap_or(0), threads);
    engine::check_decoder(&*decoder)?;

    let rows = take_rows(&fields, &places, &checked, &mut resolved)?;
    let size = fields.size.clone();
    let mix_at = |place: &BatchDevice| -> Result<Option<BatchMix>> {
        let Some(mix) = &fields.mix else { return Ok(None) };
        // A dataset of labels only is the CPU's work.
        let mixer = if mix.images.is_empty() { None } else { place.mixer(config.batch_size)? };
        Ok(Some(BatchMix { mixer, ..mix.clone() }))
    };
    let mut mixes = places.iter().map(mix_at).collect::<Result<Vec<_>>>()?.into_iter();
    let chunk = Arc::new(ChunkSize::new(&dataset, &rows[0], resolved.max_record));
    // Memory for settings on `auto` that grow.
    let more = Arc::new(Semaphore::new(engine::whole_units(resolved.shares.more) as usize));
    let tuning = Arc::new(Tuning::new(resolved.scope(), (&more, resolved.batch_bytes)));
    let meters = Meters { stages: config.accounting, cpu: config.accounting || tuning.follows() };
    let programs: Arc<[_]> = fields.all.iter().map(|field| field.lowered.image.clone()).collect();
    let growth = (&more, resolved.thread_bytes);
    let near = if config.numa { Near::find(&lanes, crate::device::driver::gpus) } else { Near::default() };
    let max_image_bytes = resolve::largest_listed(resolved.max_image.unwrap_or(0));
    let lists = has_lists.then(|| ImageLists { codecs: Arc::clone(&codecs), max_image_bytes });
    let started = Workers::start(&dataset, &decoder, &programs, &chunk, (&lanes, near), growth, (meters, lists));
    let workers = Arc::new(started?);
    let calls = dataset.concurrent_reads();
    let own_io = || IoRuntime::for_loader(dataset.needs_fetch(), calls.is_some(), workers.threads().alive());
    let io = io_runtime.map_or_else(own_io, Ok)?;
    let limits = resolved.limits();
    tracing::debug!(shares = ?resolved.shares, ?limits, decoder = decoder.name(), ranks = lanes.len(), "loader built");

    let cache = open_cache(&config, &process, &*dataset, facts.machine.memory)?;
    let decoded = open_decoded(
        &config,
        &process,
        (&*dataset, &codecs),
        recipe.decodes_on_cpu() && !places.iter().any(BatchDevice::is_device),
        facts.machine.memory,
    )?;
    let shared_parts = SharedParts::new(resolved.shares.shared);
    let most_calls = config.io_concurrency.and_then(NonZeroUsize::new).or(calls).unwrap_or(NonZeroUsize::MIN);
    let read_slots = Arc::new(ReadSlots::new(most_calls));
    let reader = (lanes.len() > 1).then(|| Reader::new(limits.requests, RequestRecorder::default()));
    let budget_of = |device| {
        let index = facts.devices.iter().position(|facts| Device::Cuda(facts.index) == device)?;
        resolved.device_budgets.get(index).copied()
    };
    let loader = |(lane, (fields, shard)): (usize, (Vec<FieldRows>, Shard))| {
        let device = lanes[lane];
        let own = LoaderConfig { shard, ..config.clone() };
        let shared = LoaderShared {
            shard,
            device,
            lane,
            batch_size: checked.batch_size,
            last_batch: config.last_batch,
            fields,
            limits,
            bad: resolve::bad_rows(config.on_bad_sample),
            mix: mixes.next().flatten(),
            size: size.clone(),
            maps: maps.clone(),
            chunk: Arc::clone(&chunk),
            tuning: Arc::clone(&tuning),
            first,
            accounting: config.accounting,
            io: io.clone(),
            cache_member: cache.as_ref().map(|cache| cache.join(shard.rank(), shard.world())),
            cache: cache.clone(),
            decoded: decoded.clone(),
            shared_parts: shared_parts.clone(),
            read_slots: Arc::clone(&read_slots),
            reader: reader.clone(),
            dataset: Arc::clone(&dataset),
            _alive: workers.threads().alive(),
        };
        Loader {
            shared: Arc::new(shared),
            workers: Arc::clone(&workers),
            order: order.clone(),
            own_sampler,
            config: Arc::new(resolved.in_force(own, &checked, (device, budget_of(device)))),
        }
    };
    Ok(rows.into_iter().zip(shards).enumerate().map(loader).collect())
}

/// The shard of each device; without a list there is one device.
fn shards(process: Shard, devices: Option<&[Device]>) -> Result<Vec<Shard>> {
    let count = devices.map_or(1, <[_]>::len);
    if count == 0 {
        return Err(Error::config("no devices to build loaders for")
            .with_hint("name one or more, or use build, which makes one loader"));
    }
    let count = u32::try_from(count).map_err(|_| Error::config(format!("{count} devices")))?;
    (0..count).map(|n| process.of_device(n, count)).collect()
}

/// The memory of batches, for each place. On a GPU it is allocated now, so that a trainer which takes the rest
/// afterwards cannot break an epoch in the middle. If a GPU has less memory than it reported, half as many batches are
/// ahead, on all GPUs.
fn take_rows(
    fields: &Fields,
    places: &[BatchDevice],
    checked: &Checked,
    resolved: &mut Resolved,
) -> Result<Vec<Vec<FieldRows>>> {
    let take = |prefetch: usize| -> Result<Vec<Vec<FieldRows>>> {
        let on = |place: &BatchDevice| {
            let rows = fields.pools(place, checked.batch_size.get(), prefetch)?;
            if place.is_device() {
                engine::fill(&rows, prefetch + 1)?;
            }
            Ok(rows)
        };
        places.iter().map(on).collect()
    };
    let wanted = resolved.prefetch;
    let error = match take(wanted) {
        Err(error) if error.kind() == ErrorKind::OutOfMemory && wanted > 1 => error,
        taken => return taken,
    };
    let fewer = (wanted / 2).max(1);
    tracing::warn!(prefetch = fewer, wanted, %error, "out of device memory: fewer batches ahead");
    resolved.prefetch = fewer;
    take(fewer)
}

/// A dataset that reads only the part of volumes that the transform uses, if possible.
fn narrowed(dataset: Arc<dyn Dataset>, fields: &Fields, transform: &Transform) -> Arc<dyn Dataset> {
    // All fields of a record use the same box.
    let volume = fields.all.iter().find_map(|field| field.lowered.volume.clone());
    let boxes = volume.map(|volume| Arc::new(Boxes { volume, foreground: transform.wants_foreground() }));
    boxes.and_then(|boxes| dataset.narrowed(&(boxes as Arc<dyn Narrow>))).unwrap_or(dataset)
}

/// The boxes of volumes that a transform uses.
#[derive(Debug)]
struct Boxes {
    volume: LoweredVolume,
    foreground: bool,
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

/// The cache of decoded pixels; the ranks of a process share it.
fn open_decoded(
    config: &LoaderConfig,
    process: &Shard,
    (dataset, codecs): (&dyn Dataset, &[Arc<dyn ImageCodec>]),
    on_cpu: bool,
    memory: u64,
) -> Result<Option<Arc<DecodedCache>>> {
    let Some(spec) = &config.decoded_cache else { return Ok(None) };
    if !on_cpu {
        let what =
            "the decoded cache keeps pixels of this crate's decoder on the CPU, and the images are decoded elsewhere";
        return Err(Error::config(what).with_hint(format!("leave {DECODED_CACHE} out, or use {DEVICE_CPU}")));
    }
    memory::check_ram_cache(spec, memory)?;
    DecodedCache::open(spec, dataset, codecs, process.local_world() > 1).map(Some)
}

/// The cache of a dataset in a remote store; the ranks of a process share it.
fn open_cache(
    config: &LoaderConfig,
    process: &Shard,
    dataset: &dyn Dataset,
    memory: u64,
) -> Result<Option<Arc<Cache>>> {
    let Some(spec) = &config.cache else { return Ok(None) };
    if !dataset.needs_fetch() {
        tracing::warn!("the dataset is not read from a remote store: the cache is not used");
        return Ok(None);
    }
    if dataset.concurrent_reads().is_some() {
        tracing::warn!("the cache does not keep the records that the dataset reads itself");
    }
    memory::check_ram_cache(spec, memory)?;
    Cache::open(spec, process.local_rank(), process.local_world()).map(Some)
}
