//! Our loader: files to batches on the GPU, by routing and workers, beside the decoders alone.

use std::{
    collections::BTreeMap,
    future::IntoFuture as _,
    num::NonZeroUsize,
    sync::Arc,
    time::{Duration, Instant},
};

use infeed::{
    DType, Dataset, Device, Error, ErrorKind, Loader, LoaderBuilder, Result, Transform,
    codec::{GpuSplit, codecs},
    dataset::MemoryDataset,
    internal::cuda::{Context, Kernels},
    spi::{Class, ClassSet, CudaRaw, Decoder, Item, Lowered, NvJpeg, NvJpegOptions, NvJpegPlan, Worker},
    transform::{View, augment::Mix},
};
use serde_json::json;

use super::{
    Bench, Scale,
    decoders::{bare_cpu, bare_engines},
    out::Out,
    threads::{self, Threads},
};

pub(super) const GPU: Device = Device::Cuda(0);

/// Stretches of one stream after the first, each this long.
fn stretch(scale: Scale) -> Duration {
    Duration::from_secs_f64(scale.of(2.0, 1.0, 0.05))
}

/// What a stream gave.
pub(super) struct Rates {
    pub(super) samples: Vec<f64>,
    /// Milliseconds of CPU for a sample, of all threads.
    pub(super) cpu_ms: Vec<f64>,
    /// What the threads did in all runs together.
    pub(super) threads: Threads,
    /// Rows by the class that made them, of the warm-up too.
    pub(super) decoded_by: BTreeMap<&'static str, u64>,
}

/// Takes batches and drops them, as fast as they come.
pub(super) fn rates(loader: &Loader, runs: usize, stretch: Duration) -> Result<Rates> {
    if loader.batches_per_epoch() == 0 {
        return Err(Error::config("fewer records than a batch has rows"));
    }
    let mut batches = loader.epochs(0..u64::MAX).blocking();
    let ended = || Error::new(ErrorKind::Internal, "the stream ended");
    // To warm up: more than what is made ahead, and at least a part of a stretch.
    let begin = Instant::now();
    let mut taken = 0;
    while taken < loader.config().prefetch.unwrap_or(1) + 2 || begin.elapsed() < stretch / 2 {
        batches.next().ok_or_else(ended)??;
        taken += 1;
    }
    let (threads, decoded_by) = (Threads::default(), BTreeMap::new());
    let mut rates = Rates { samples: Vec::new(), cpu_ms: Vec::new(), threads, decoded_by };
    for _ in 0..runs {
        let (begin, cpu, before) = (Instant::now(), threads::cpu_seconds(), threads::times());
        let mut samples = 0;
        while begin.elapsed() < stretch {
            samples += batches.next().ok_or_else(ended)??.valid();
        }
        let (took, cpu) = (begin.elapsed(), threads::cpu_seconds() - cpu);
        rates.threads.add(&before, &threads::times(), cpu, took);
        rates.samples.push(samples as f64 / took.as_secs_f64());
        rates.cpu_ms.push(cpu * 1e3 / samples.max(1) as f64);
    }
    rates.decoded_by = batches.report().decoded_by;
    Ok(rates)
}

/// A decoder whose threads are known by their class, and that sends everything to one class if told so.
#[derive(Debug)]
struct Named {
    inner: NvJpeg,
    only: Option<&'static str>,
}

impl Decoder for Named {
    fn name(&self) -> &'static str {
        self.inner.name()
    }
    fn classes(&self) -> &[Class] {
        self.inner.classes()
    }
    fn route(&self, item: &mut Item) -> ClassSet {
        let only = self.only.and_then(|only| self.classes().iter().position(|class| class.name == only));
        // Asked in any case: it reads the header.
        let routed = self.inner.route(item);
        only.map_or(routed, ClassSet::only)
    }
    fn scratch_bytes(&self, class: usize) -> u64 {
        self.inner.scratch_bytes(class)
    }
    fn device_bytes(&self, class: usize) -> u64 {
        self.inner.device_bytes(class)
    }
    fn worker(&self, class: usize, n: usize, programs: &Arc<[Option<Lowered>]>) -> Result<Box<dyn Worker>> {
        // On the thread that will decode. The kernel keeps 15 letters of its name, in which classes look the same.
        threads::call_this(self.classes()[class].name);
        self.inner.worker(class, n, programs)
    }
}

/// Rows of a batch of photographs.
pub(super) fn batch_size(scale: Scale) -> usize {
    scale.of(256, 256, 8)
}

/// The photographs as a dataset, and the loader's settings that all runs share.
pub(super) fn builder(bench: &mut Bench) -> Result<LoaderBuilder> {
    let folder = bench.photos.folder()?.display().to_string();
    let dataset = futures::executor::block_on(infeed::open(folder).into_future())?;
    let transform = Transform::preset("imagenet-train")?;
    let builder = Loader::builder(dataset).device_auto().batch_size(batch_size(bench.scale)).shuffle(1);
    let builder = builder.transform(transform).dtype(DType::F16);
    Ok(if bench.scale == Scale::Tiny { builder.prefetch(2) } else { builder })
}

/// Who decodes.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// As a user gets it.
    Auto(GpuSplit),
    /// On CPU threads; resampled on the GPU.
    Raw,
    /// CPU threads and the engines.
    Hardware(GpuSplit),
    /// The same with one thread that feeds the engines.
    HardwareOnce,
    /// The same with files that are not cut to the crop.
    HardwareWhole,
    /// CPU threads, engines, and batches of so many images on the GPU's cores.
    Cores(usize),
    /// CPU threads, engines and hybrid threads, by the classes' own routes.
    All(GpuSplit),
    /// Everything to one class.
    Only(&'static str, usize),
    /// Without a GPU, batches in host memory.
    Cpu,
}

impl Way {
    fn name(self) -> String {
        match self {
            Self::Auto(split) => format!("auto {}", word(split)),
            Self::Raw => "cpu + raw".into(),
            Self::Hardware(split) => format!("cpu + hardware {}", word(split)),
            Self::HardwareOnce => "cpu + hardware by one thread".into(),
            Self::HardwareWhole => "cpu + hardware of whole files".into(),
            Self::Cores(images) => format!("cpu + hardware + cores batch={images}"),
            Self::All(split) => format!("cpu + hardware + hybrid {}", word(split)),
            Self::Only(class, streams) if class == HYBRID => format!("{class} only, streams={streams}"),
            Self::Only(class, _) => format!("{class} only"),
            Self::Cpu => "no GPU".into(),
        }
    }
}

const HYBRID: &str = "nvjpeg-hybrid";

fn word(split: GpuSplit) -> &'static str {
    match split {
        GpuSplit::Adaptive => "adaptive",
        GpuSplit::Fixed => "fixed",
    }
}

pub(super) fn photos(bench: &mut Bench, out: &mut Out) -> Result<()> {
    let scale = bench.scale;
    let context = Context::open(0)?;
    let kernels = Kernels::load(&context)?;
    let most = *bench.workers.last().unwrap_or(&1);
    let wanted =
        |bench: &Bench, name: &str| bench.ways.is_empty() || bench.ways.iter().any(|way| name.starts_with(&**way));
    // The bounds, in this process. One that could not be measured is no bound at all.
    let mut engines = Vec::new();
    for (name, cut) in [("bare engines, whole", false), ("bare engines, height cut", true)] {
        if !wanted(bench, name) {
            continue;
        }
        match bare_engines(&kernels, &mut bench.photos, cut, scale) {
            Ok(rate) => {
                out.values(name, "images/s", json!({ "cut": cut }), vec![rate]);
                engines.push(Some(rate));
            }
            Err(error) => {
                out.error(name, &format!("{error:#}"));
                engines.push(None);
            }
        }
    }
    let workers = bench.workers.clone();
    // Before the loaders, so that a run that is cut short tells shares too.
    let mut pools = Vec::new();
    for &workers in workers.iter().filter(|_| wanted(bench, "bare cpu pool")).collect::<Vec<_>>() {
        let resample = bare_cpu(&mut bench.photos, workers, true, scale)?;
        let decode = bare_cpu(&mut bench.photos, workers, false, scale)?;
        let more = json!({ "threads": workers, "decode_alone": decode });
        out.values(&format!("bare cpu pool threads={workers}"), "images/s", more, vec![resample]);
        pools.push((workers, resample, decode));
    }
    let fewer: Vec<usize> = workers.iter().copied().filter(|n| *n == most || *n == 4).collect();
    let cases: Vec<(Way, &[usize])> = vec![
        (Way::Auto(GpuSplit::Adaptive), &workers),
        (Way::Raw, &fewer),
        (Way::Auto(GpuSplit::Fixed), &fewer),
        (Way::Hardware(GpuSplit::Adaptive), &fewer),
        (Way::HardwareOnce, &fewer),
        (Way::HardwareWhole, &fewer),
        (Way::Cores(scale.of(128, 128, 8)), &fewer),
        (Way::All(GpuSplit::Adaptive), &fewer),
        (Way::Only("nvjpeg-hardware", 0), &fewer),
        (Way::Only(HYBRID, 4), &fewer),
        (Way::Only(HYBRID, most), &fewer),
        (Way::Cpu, &fewer),
    ];
    for (way, workers) in cases {
        if !wanted(bench, &way.name()) {
            continue;
        }
        for &workers in workers {
            let name = format!("{} workers={workers}", way.name());
            match one(bench, &kernels, way, workers, &name, out) {
                Ok(Some(median)) if !matches!(way, Way::Raw | Way::Only(..) | Way::Cpu) => {
                    let pool = pools.iter().find(|pool| pool.0 == workers);
                    let (Some((_, resample, decode)), [Some(whole), Some(cut)]) = (pool, &engines[..]) else {
                        continue;
                    };
                    let share = |bound: f64| median / bound.max(1e-9);
                    let note = json!({
                        "of_best_engines_and_cpu": share(whole.max(*cut) + resample),
                        "of_engines_and_cpu": share(whole + resample),
                        "of_engines_with_height_cut_and_cpu": share(cut + resample),
                        "of_engines_with_height_cut_and_cpu_that_only_decodes": share(cut + decode),
                    });
                    out.note(&format!("{name}, shares"), note);
                }
                Ok(_) => {}
                Err(error) => out.error(&name, &format!("{error:#}")),
            }
        }
    }
    Ok(())
}

fn one(
    bench: &mut Bench,
    kernels: &Arc<Kernels>,
    way: Way,
    workers: usize,
    name: &str,
    out: &mut Out,
) -> Result<Option<f64>> {
    let builder = builder(bench)?.workers(workers);
    let threads = NonZeroUsize::new(workers).unwrap_or(NonZeroUsize::MIN);
    let row_bytes = 224 * 224 * 3 * DType::F16.size();
    let raw = || CudaRaw::new(threads, codecs(), 64 << 20, kernels, row_bytes);
    let nvjpeg = |options, only| {
        let inner = NvJpeg::new(raw(), NvJpegPlan::find(kernels.context(), options));
        Arc::new(Named { inner, only })
    };
    let options = NvJpegOptions::default();
    let has = |decoder: &Named, class: &str| decoder.classes().iter().any(|c| c.name == class);
    let loader = match way {
        Way::Auto(split) => builder.device(GPU).gpu_split(split).build_blocking()?,
        Way::Cpu => builder.device(Device::Cpu).build_blocking()?,
        Way::Raw => builder.decoder(Arc::new(raw())).build_blocking()?,
        Way::Hardware(_) | Way::HardwareOnce | Way::HardwareWhole | Way::Cores(_) | Way::All(_) => {
            let alone = options.with_streams(0);
            let options = match way {
                Way::Hardware(split) => alone.with_split(split),
                Way::HardwareOnce => alone.with_engine_threads(NonZeroUsize::MIN),
                Way::HardwareWhole => alone.with_cut(false),
                Way::Cores(images) => alone.with_cores_batch(images),
                Way::All(split) => options.with_streams(4).with_split(split),
                _ => options,
            };
            let decoder = nvjpeg(options, None);
            if !has(&decoder, "nvjpeg-hardware") {
                out.note(name, json!("no engines on this GPU"));
                return Ok(None);
            }
            builder.decoder(decoder).build_blocking()?
        }
        Way::Only(class, streams) => {
            let decoder = nvjpeg(options.with_streams(streams), Some(class));
            if !has(&decoder, class) {
                out.note(name, json!(format!("no class {class} on this GPU")));
                return Ok(None);
            }
            builder.decoder(decoder).build_blocking()?
        }
    };
    let Rates { samples, cpu_ms, threads, decoded_by } = rates(&loader, out.runs(), stretch(bench.scale))?;
    let more = json!({
        "workers": workers, "prefetch": loader.config().prefetch, "decoded_by": decoded_by, "threads": threads.cores(),
    });
    out.values(&format!("{name}, cpu"), "ms/image", json!({}), cpu_ms);
    Ok(out.values(name, "images/s", more, samples))
}

/// Files to batches of today's recipes, as a user gets them: on the GPU, and without one.
pub(super) fn recipes(bench: &mut Bench, out: &mut Out) -> Result<()> {
    let mix = Mix { mixup: 0.2, cutmix: 1.0, num_classes: Some(1000), ..Mix::default() };
    let one_line = |line: &str| line.parse::<Transform>();
    type Set = Box<dyn Fn(LoaderBuilder) -> Result<LoaderBuilder>>;
    let of = |transform: Transform| -> Set { Box::new(move |b| Ok(b.transform(transform.clone()))) };
    let recipes: [(&str, Set); 5] = [
        (
            "torchvision-v2-train, mixup and cutmix",
            Box::new(move |b| Ok(b.transform(Transform::preset("torchvision-v2-train")?).mix(mix.clone()))),
        ),
        ("RandAugment(2, 9)", of(one_line("random_resized_crop:224;horizontal_flip;rand_augment:2,9;normalize")?)),
        ("deit-train", of(Transform::preset("deit-train")?)),
        ("simclr", of(Transform::preset("simclr")?)),
        ("dino's ten views", Box::new(|b| Ok(b.transform(Transform::new()).views(View::preset("dino")?)))),
    ];
    // In a short run those whose steps are most work.
    let short = |name: &str| bench.scale != Scale::Quick || name.starts_with("Rand") || name.starts_with("dino");
    let recipes: Vec<_> = recipes.into_iter().filter(|(name, _)| short(name)).collect();
    for (name, set) in recipes {
        for device in [GPU, Device::Cpu] {
            let name = format!("{name} on {device}");
            let loader = builder(bench)?.batch_size(bench.scale.of(256, 256, 4)).device(device);
            let measured = set(loader)
                .and_then(|b| b.build_blocking())
                .and_then(|loader| Ok((loader.config().workers, rates(&loader, out.runs(), stretch(bench.scale))?)));
            match measured {
                Ok((workers, Rates { samples, cpu_ms, .. })) => {
                    out.values(&format!("{name}, cpu"), "ms/image", json!({}), cpu_ms);
                    out.values(&name, "images/s", json!({ "workers": workers }), samples);
                }
                Err(error) => out.error(&name, &format!("{error:#}")),
            }
        }
    }
    Ok(())
}

/// Small images from memory, made rows on the device.
pub(super) fn memory(bench: &mut Bench, out: &mut Out) -> Result<()> {
    let scale = bench.scale;
    let pictures = |count: usize, side: u32, channels: u8| -> Result<Arc<dyn Dataset>> {
        let bytes = count * (side * side) as usize * usize::from(channels);
        let pixels: Vec<u8> = (0..bytes).map(|i| (i.wrapping_mul(2_654_435_761) >> 9) as u8).collect();
        let builder = MemoryDataset::builder().images_u8(pixels, count, side, side, channels, true);
        Ok(Arc::new(builder.labels((0..count as i64).map(|n| n % 10).collect()).build()?))
    };
    let cifar = pictures(scale.of(50_000, 50_000, 400), 32, 3)?;
    let cells = pictures(scale.of(20_000, 10_000, 40), 50, 5)?;
    let batches = scale.of(vec![256, 1024, 4096], vec![256, 1024, 4096], vec![64]);
    for &workers in &bench.workers {
        for &batch in &batches {
            let half = (batch == batches[batches.len() - 1]).then_some(DType::F16);
            for dtype in [Some(DType::F32), half].into_iter().flatten() {
                let builder = Loader::builder(Arc::clone(&cifar)).batch_size(batch);
                small(builder, "cifar-train", "CIFAR-10", dtype, (workers, batch), scale, out);
            }
        }
        for batch in scale.of(vec![64, 256], vec![256], vec![8]) {
            let builder = Loader::builder(Arc::clone(&cells)).batch_size(batch);
            small(builder, "cells", "50x50x5 to 220x220", DType::F32, (workers, batch), scale, out);
        }
    }
    Ok(())
}

fn small(
    builder: LoaderBuilder,
    preset: &str,
    name: &str,
    dtype: DType,
    (workers, batch): (usize, usize),
    scale: Scale,
    out: &mut Out,
) {
    let name = format!("{name} {dtype} batch={batch} workers={workers}");
    let stretch = Duration::from_secs_f64(scale.of(0.6, 0.3, 0.02));
    let measured = Transform::preset(preset).and_then(|transform| {
        let builder = builder.shuffle(1).transform(transform).dtype(dtype).workers(workers).device(GPU);
        rates(&builder.build_blocking()?, out.runs(), stretch)
    });
    match measured {
        Ok(Rates { samples, .. }) => {
            out.values(&name, "records/s", json!({ "workers": workers, "batch": batch }), samples);
        }
        Err(error) => out.error(&name, &format!("{error:#}")),
    }
}
