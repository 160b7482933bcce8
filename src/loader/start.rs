//! From a builder to a running loader: looks at the dataset, the machine and its devices, has [`resolve`](fn@resolve) do the arithmetic,
//! then takes memory and starts threads.

use std::{num::NonZeroUsize, ops::Range, sync::Arc, thread};

use tokio::sync::Semaphore;

use super::{
    Loader, LoaderBuilder, LoaderConfig, memory,
    order::{order_of_sampler, ordering},
    place::{Place, Workload},
    resolve::{self, BatchBytes, Checked, DecoderFacts, DeviceFacts, Facts, Machine, Resolved, resolve},
};
use crate::{
    codec::codecs as built_in_codecs,
    dataset::{Dataset, FieldKind, Narrow},
    engine::{self, ChunkSize, FieldRows, IoRuntime, LoaderShared, LoweredField, Meters, SharedParts, Tuning, Workers},
    error::{ErrorKind, Result},
    random::SampleRng,
    source::Cache,
    sys::rows::Pool,
    transform::{Foreground, LoweredVolume, Transform},
};

impl Loader {
    /// Starts a loader of `dataset`. See [`LoaderBuilder`] for the settings and their defaults.
    pub fn builder(dataset: Arc<dyn Dataset>) -> LoaderBuilder {
        LoaderBuilder::new(dataset)
    }
}

impl LoaderBuilder {
    /// Checks all settings, fits the transform to the dataset, divides the memory and starts the threads.
    ///
    /// # Errors
    /// `Config` for a setting that can't be: batch size 0, prefetch 0, a rank outside the world, a budget below the
    /// least that works (the message names it), a transform that does not fold to one resample; and for records that do
    /// not fill one batch on every rank, when [`last_batch`](Self::last_batch) drops them: no epoch would have a step.
    /// `Device` and `OutOfMemory` when the GPU that was asked for can't be used.
    pub async fn build(self) -> Result<Loader> {
        // Waking a GPU up and compiling its kernels may take seconds.
        engine::off_thread("infeed-build", || start(self)).await?
    }

    /// [`build`](Self::build) for callers without an async runtime.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn build_blocking(self) -> Result<Loader> {
        start(self)
    }
}

fn start(builder: LoaderBuilder) -> Result<Loader> {
    let indexed = builder.indexed();
    let LoaderBuilder { dataset, config, sampler, decoder, codecs, io_runtime, .. } = builder;
    let cores = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let checked = resolve::check(&config, dataset.len(), cores)?;
    let own_sampler = sampler.is_some();
    let order = match sampler {
        Some(sampler) => order_of_sampler(sampler, &*dataset, checked.seed)?,
        None => ordering(config.order, &*dataset, checked.seed, u64::from(config.shard.world()))?,
    };
    resolve::check_steps(order.sampler.len(), checked.batch_size, &config)?;
    let fields = Fields::lower(&*dataset, &config)?;
    let dataset = narrowed(dataset, &fields, &config.transform);

    let place = Place::find(&config, decoder.as_ref())?;
    let batch = fields.batch_bytes(config.batch_size, place.is_device());
    let schema = dataset.schema();
    let has_files = schema.fields.iter().any(|field| matches!(field.kind, FieldKind::Image { size: None, .. }));
    let workload = Workload {
        workers: checked.workers,
        row_bytes: fields.longest_row(),
        has_files,
        device_batch: batch.on_device,
    };
    let codecs: Arc<[_]> = codecs.into_iter().chain(indexed).chain(built_in_codecs()).collect();
    let recipe = place.decoders(&config, decoder, codecs, &workload)?;
    let device = place.context().map(|context| -> Result<DeviceFacts> {
        let decoding = recipe.device_bytes();
        Ok(DeviceFacts { index: context.index(), free: context.memory()?.0, decoding })
    });
    let facts = Facts {
        records: dataset.len(),
        needs_fetch: dataset.needs_fetch(),
        largest_read: dataset.largest_read(),
        shared: dataset.shared_bytes(),
        has_files,
        batch,
        machine: Machine { cores, memory: memory::machine_bytes() },
        device: device.transpose()?,
        decoder: DecoderFacts {
            built_in: recipe.decodes_on_cpu(),
            reading: recipe.reading(),
            scratch: &|max_image| recipe.scratch_bytes(max_image),
            ready: recipe.ready_bytes(),
        },
    };
    let mut resolved = resolve(&config, &checked, &facts)?;
    let decoder = recipe.decoder(resolved.max_image.unwrap_or(0));
    engine::check_decoder(&*decoder)?;

    let rows = take_rows(&fields, &place, &checked, &mut resolved)?;
    let chunk = Arc::new(ChunkSize::new(&dataset, &rows));
    // What settings on `auto` share when they grow.
    let more = Arc::new(Semaphore::new(engine::whole_units(resolved.shares.more) as usize));
    let tuning = Tuning::new(resolved.scope(), (&more, resolved.batch_bytes));
    let meters = Meters { stages: config.accounting, cpu: config.accounting || tuning.follows() };
    let programs: Arc<[_]> = fields.0.into_iter().map(|field| field.lowered.image).collect();
    let workers = Workers::start(&dataset, &decoder, &programs, &chunk, (&more, resolved.thread_bytes), meters)?;
    let io = io_runtime.map_or_else(|| IoRuntime::for_loader(dataset.needs_fetch()), Ok)?;
    let limits = resolved.limits();
    tracing::debug!(shares = ?resolved.shares, ?limits, decoder = decoder.name(), "loader built");

    let device = facts.device.map(|device| device.index);
    let config = resolved.in_force(config, &checked, device);
    let shared = LoaderShared {
        shard: config.shard,
        batch_size: checked.batch_size,
        last_batch: config.last_batch,
        fields: rows,
        limits,
        bad: resolve::bad_rows(config.on_bad_sample),
        chunk,
        tuning,
        accounting: config.accounting,
        io,
        cache: open_cache(&config, &*dataset, facts.machine.memory)?,
        shared_parts: SharedParts::new(resolved.shares.shared),
        dataset,
    };
    Ok(Loader { shared: Arc::new(shared), workers: Arc::new(workers), order, own_sampler, config: Arc::new(config) })
}

/// A field of the schema, and how its rows are made.
struct Field {
    name: String,
    lowered: LoweredField,
    /// Of a field of bytes: the most in a row.
    most: Option<usize>,
}

impl Field {
    fn row_bytes(&self) -> u64 {
        FieldRows::row_bytes(&self.lowered.shape, self.lowered.dtype) as u64
    }

    /// Whether the workers write its rows where the decoder is.
    const fn is_image(&self) -> bool {
        self.lowered.image.is_some()
    }
}

struct Fields(Vec<Field>);

impl Fields {
    /// Fits the transform to all fields.
    fn lower(dataset: &dyn Dataset, config: &LoaderConfig) -> Result<Self> {
        let lower = |field: &crate::dataset::Field| {
            let lowered = engine::lower_field(field, &config.transform, config.dtype, config.layout);
            let lowered = lowered.map_err(|error| error.at_object(format!("field {}", field.name)))?;
            let most = if let FieldKind::Bytes { most } = field.kind { Some(most) } else { None };
            Ok(Field { name: field.name.clone(), lowered, most })
        };
        dataset.schema().fields.iter().map(lower).collect::<Result<_>>().map(Self)
    }

    fn batch_bytes(&self, batch_size: usize, has_device: bool) -> BatchBytes {
        let of = |bytes: &dyn Fn(&Field) -> u64| {
            let row = self.0.iter().map(bytes).fold(0, u64::saturating_add);
            row.saturating_mul(batch_size as u64)
        };
        let is_there = |field: &Field| has_device && field.is_image();
        let of_bytes = of(&|field| field.most.map_or(0, |most| most as u64));
        let on_host = of(&|field| if is_there(field) { 0 } else { field.row_bytes() });
        // Every field ends on the device; those of bytes have no rows.
        let on_device = if has_device { of(&Field::row_bytes) } else { 0 };
        BatchBytes { on_host: on_host.saturating_add(of_bytes), of_bytes, on_device }
    }

    /// Volumes are no work of the decoder.
    fn longest_row(&self) -> usize {
        let decoded = self.0.iter().map(|field| &field.lowered).filter(|lowered| lowered.volume.is_none());
        decoded.map(|lowered| FieldRows::row_bytes(&lowered.shape, lowered.dtype)).max().unwrap_or(0)
    }

    /// The pools of all fields, for one batch more than may be ahead: the one that comes back.
    fn pools(&self, place: &Place, batch_size: usize, prefetch: usize) -> Result<Vec<FieldRows>> {
        let pool = |field: &Field| -> Result<FieldRows> {
            let LoweredField { shape, dtype, volume, .. } = &field.lowered;
            let bytes = FieldRows::row_bytes(shape, *dtype);
            let on_host = || Pool::new(batch_size, bytes, prefetch + 1);
            let context = place.context().filter(|_| field.most.is_none());
            let on_device =
                context.map(|context| Pool::on_device(context, batch_size, bytes, prefetch + 1)).transpose()?;
            let (pool, upload) = match on_device {
                Some(pool) if field.is_image() => (pool, None),
                upload => (on_host()?, upload),
            };
            Ok(FieldRows {
                name: field.name.clone(),
                shape: shape.clone(),
                dtype: *dtype,
                most: field.most,
                pool,
                upload,
                volume: volume.clone(),
            })
        };
        let named = |field: &Field| pool(field).map_err(|error| error.at_object(format!("field {}", field.name)));
        self.0.iter().map(named).collect()
    }
}

/// The memory of batches. On a GPU it is taken now: a trainer that takes the rest afterwards can't break an epoch in its
/// middle. When there is less of it than the GPU said, half as many batches are ahead.
fn take_rows(fields: &Fields, place: &Place, checked: &Checked, resolved: &mut Resolved) -> Result<Vec<FieldRows>> {
    let batch_size = checked.batch_size.get();
    let wanted = resolved.prefetch;
    let rows = fields.pools(place, batch_size, wanted)?;
    if !place.is_device() {
        return Ok(rows);
    }
    let Err(error) = engine::fill(&rows, wanted + 1) else { return Ok(rows) };
    if error.kind() != ErrorKind::OutOfMemory || wanted == 1 {
        return Err(error);
    }
    drop(rows);
    let fewer = (wanted / 2).max(1);
    tracing::warn!(prefetch = fewer, wanted, %error, "out of device memory: fewer batches ahead");
    resolved.prefetch = fewer;
    let rows = fields.pools(place, batch_size, fewer)?;
    engine::fill(&rows, fewer + 1)?;
    Ok(rows)
}

/// The dataset that reads of volumes only what the transform uses, if it can.
fn narrowed(dataset: Arc<dyn Dataset>, fields: &Fields, transform: &Transform) -> Arc<dyn Dataset> {
    // Fields of one record move together, so one speaks for all.
    let volume = fields.0.iter().find_map(|field| field.lowered.volume.clone());
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

/// The cache of a dataset that is read from afar.
fn open_cache(config: &LoaderConfig, dataset: &dyn Dataset, memory: u64) -> Result<Option<Arc<Cache>>> {
    let Some(spec) = &config.cache else { return Ok(None) };
    if !dataset.needs_fetch() {
        tracing::warn!("the dataset is not read from a remote store: the cache is not used");
        return Ok(None);
    }
    memory::check_ram_cache(spec, memory)?;
    Cache::open(spec, config.shard.local_rank(), config.shard.local_world()).map(Some)
}
