//! The decoder, its classes and their workers.

use std::{
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use infeed_core::{
    error::{Error, ErrorKind, Result},
    types::Device,
};
use infeed_pixels::{
    codec::{Class, ClassSet, Decoder, Finished, GpuSplit, Item, Job, Outcome, Wait, Worker},
    transform::Lowered,
};

use super::{
    hardware::{self, Duty},
    hybrid,
    lack::Lacking,
    order::{Retire, Target, with_outcome},
    plan::{FLIGHTS, HYBRID_JOBS, NvJpegPlan, required},
    route::{self, Routes},
};
use crate::{
    decoders::CudaRaw,
    nvjpeg::{BatchDecoder, HardwareSize},
};

/// The reason why all images of a transform are decoded on the CPU.
const NOT_FOR_IT: &str =
    "nvJPEG makes rows of one image in three channels, without custom steps, but the transform needs others";

/// Decodes JPEGs with nvJPEG and on CPU threads, everything else on CPU threads, and resamples on a GPU.
///
/// | class | threads |
/// |---|---|
/// | `cpu` | those of [`CudaRaw`], which also read the records and parse the headers |
/// | `nvjpeg-hardware` | give batches to the JPEG engines |
/// | `nvjpeg-cores` | one, which gives batches to the GPU's cores; only with [`NvJpegOptions::cores_batch`](super::NvJpegOptions::cores_batch) |
/// | `nvjpeg-hybrid` | one per stream |
///
/// Classes that the GPU or the library does not support are omitted. nvJPEG decodes only samples with one image, a JPEG
/// file, that is decoded to three channels and has no custom steps, and whose codec is
/// [interchangeable](infeed_pixels::codec::ImageCodec::is_interchangeable). CPU threads decode all others. Steps on
/// pictures run on the GPU, and several views of an image share one decode.
///
/// ```no_run
/// use infeed::{Device, Loader, codec::GpuSplit};
///
/// # async fn train(dataset: std::sync::Arc<dyn infeed::Dataset>) -> infeed::Result<()> {
/// // A loader uses this decoder by itself if the GPU and the library support it.
/// let loader = Loader::builder(dataset).device(Device::Cuda(0)).streams(4).gpu_split(GpuSplit::Fixed).build().await?;
/// # Ok(()) }
/// ```
///
/// # Memory
/// Each thread of `nvjpeg-hardware` holds about 40 MB of page-locked memory and 300 MB of device memory, each hybrid
/// thread 80 MB and 100 MB. The thread of `nvjpeg-cores` holds as much as a thread of the engines, times its batch size
/// / 32. nvJPEG's own buffers are included as an estimate.
/// [`NvJpegOptions::device_bytes`](super::NvJpegOptions::device_bytes) limits the device memory.
///
/// # What is not deterministic
/// With [`GpuSplit::Adaptive`] any idle class decodes the next image, and decoders differ in the last bits of some pixels
/// (by a few levels if nvJPEG is older than 12.1.1, which repeats chroma). Shapes, order, crops and flips never differ.
/// With [`GpuSplit::Fixed`] only the header and the record decide, so runs with the same GPU, library and number of
/// threads repeat to the byte. Exceptions, for both:
/// - If an image fails on the engines, its whole batch fails, and each of its images is decoded by another class.
/// - An image that the engines leave undecoded is decoded by another class.
/// - After three batches in a row that fail, or have undecoded images, the engines are not used any more, with a
///   warning.
/// - A file with damage that its header does not show may be an error on the CPU, but give pixels on the GPU.
#[derive(Debug)]
pub struct NvJpeg {
    raw: CudaRaw,
    classes: Vec<Class>,
    plan: NvJpegPlan,
    routes: Routes,
    /// Classes that gave up, or that this transform has no work for.
    retired: Arc<AtomicU32>,
}

impl NvJpeg {
    /// Adds nvJPEG to the threads of `raw`, on its GPU. `plan` must be for the same GPU.
    #[must_use]
    pub fn new(raw: CudaRaw, plan: NvJpegPlan) -> Self {
        let mut classes = raw.classes().to_vec();
        let device = Device::Cuda(raw.kernels().context().index());
        let threads = classes.iter().map(|class| class.workers.get()).sum();
        let mut add = |name, workers, batch: usize| {
            let batch = NonZeroUsize::new(batch).unwrap_or(NonZeroUsize::MIN);
            let mut class = Class::new(name, device, workers);
            (class.batch, class.reads) = (batch, false);
            classes.push(class);
            classes.len() - 1
        };
        // Jobs in hand: one batch that is being filled, and two that are being decoded.
        let hardware = plan.hardware.map(|of| add("nvjpeg-hardware", of.threads, of.size.images * (FLIGHTS + 1)));
        let cores = plan.cores.map(|size| add("nvjpeg-cores", NonZeroUsize::MIN, size.images * (FLIGHTS + 1)));
        let hybrid = plan.hybrid.map(|(streams, _)| add("nvjpeg-hybrid", streams, HYBRID_JOBS));
        let share = plan.hardware.map_or(0, |of| route::share(of.engines.engines, threads));
        let (split, max_image_bytes) = (plan.split, raw.max_image_bytes());
        let codecs = Arc::clone(raw.codecs());
        let routes = Routes { cpu: 0, hardware, cores, hybrid, codecs, split, share, max_image_bytes };
        Self { raw, classes, plan, routes, retired: Arc::default() }
    }

    /// The decoder and the batch size of a class that decodes in batches; `None` for other classes.
    fn batches(&self, class: usize) -> Option<(BatchDecoder, HardwareSize)> {
        let hardware = self.plan.hardware.filter(|_| Some(class) == self.routes.hardware);
        let cores = self.plan.cores.filter(|_| Some(class) == self.routes.cores);
        let hardware = hardware.map(|of| (BatchDecoder::Engines, of.size));
        hardware.or(cores.map(|size| (BatchDecoder::Cores, size)))
    }

    /// The classes that get the images that this class does not decode; exactly one if the split is fixed.
    fn elsewhere(&self, class: usize) -> ClassSet {
        let cpu = ClassSet::only(self.routes.cpu);
        let from_batches = Some(class) == self.routes.hardware || Some(class) == self.routes.cores;
        match (self.routes.hybrid.filter(|_| from_batches), self.plan.split) {
            (None, _) => cpu,
            (Some(hybrid), GpuSplit::Fixed) => ClassSet::only(hybrid),
            (Some(hybrid), GpuSplit::Adaptive) => ClassSet(cpu.0 | ClassSet::only(hybrid).0),
        }
    }
}

impl Decoder for NvJpeg {
    fn name(&self) -> &'static str {
        "nvjpeg"
    }

    fn classes(&self) -> &[Class] {
        &self.classes
    }

    fn route(&self, item: &mut Item) -> ClassSet {
        self.routes.route(item, ClassSet(!self.retired.load(Ordering::Relaxed)))
    }

    fn scratch_bytes(&self, class: usize) -> u64 {
        let steps = self.raw.steps_host_bytes();
        if let Some((_, size)) = self.batches(class) {
            return size.host_bytes().saturating_add(steps);
        }
        match self.plan.hybrid {
            Some((_, size)) if Some(class) == self.routes.hybrid => size.host_bytes().saturating_add(steps),
            _ => self.raw.scratch_bytes(class),
        }
    }

    fn device_bytes(&self, class: usize) -> u64 {
        // In addition to the descriptors, which the size includes.
        let steps = self.raw.steps_bytes();
        if let Some((_, size)) = self.batches(class) {
            return size.device_bytes().saturating_add(steps);
        }
        match self.plan.hybrid {
            Some((_, size)) if Some(class) == self.routes.hybrid => size.device_bytes().saturating_add(steps),
            _ => self.raw.device_bytes(class),
        }
    }

    fn worker(&self, class: usize, n: usize, programs: &Arc<[Option<Lowered>]>) -> Result<Box<dyn Worker>> {
        let name = self.classes.get(class).map_or("unknown", |class| class.name);
        if class == self.routes.cpu {
            let worker = self.raw.worker(class, n, programs)?;
            return Ok(match &self.plan.lacks {
                Some(why) => Box::new(Lacking { worker, why: Arc::clone(why) }),
                None => worker,
            });
        }
        let retire = Retire { class, retired: Arc::clone(&self.retired) };
        let elsewhere = self.elsewhere(class);
        let (kernels, steps) = (self.raw.kernels(), self.raw.steps());
        let must = self.plan.required && Some(class) == self.routes.hardware;
        let index = kernels.context().index();
        let made: Result<Result<Box<dyn Worker>, String>> = match (Target::find(programs), self.batches(class)) {
            (None, _) if must => return Err(required(&Error::config(NOT_FOR_IT), index)),
            (None, _) => Ok(Err(NOT_FOR_IT.into())),
            (Some(target), Some((decoder, size))) => {
                let (retire, cut) = (retire.clone(), self.plan.cut);
                hardware::open(kernels, programs, Duty { decoder, size, steps, target, elsewhere, retire, cut })
            }
            (Some(target), None) => match self.plan.hybrid {
                Some((_, size)) if Some(class) == self.routes.hybrid => {
                    hybrid::open(kernels, (size, steps), programs, target, elsewhere)
                }
                _ => return Err(Error::new(ErrorKind::Internal, format!("decoder nvjpeg has no class {class}"))),
            },
        };
        match made {
            Ok(Ok(worker)) => return Ok(worker),
            Ok(Err(reason)) if must => return Err(required(&Error::new(ErrorKind::Device, reason), index)),
            Err(error) if must => return Err(required(&error, index)),
            Ok(Err(reason)) => tracing::info!(class = name, reason, "a class of the decoder has nothing to do"),
            // Less memory than planned, or an error of the library: the CPU class can do all the work. If the GPU is
            // lost, that class fails too.
            Err(error) => {
                tracing::warn!(class = name, error = %format!("{error:#}"), "continuing without a class of the decoder");
            }
        }
        retire.now();
        Ok(Box::new(Idle { elsewhere, finished: Vec::new() }))
    }
}

/// A worker that passes every job on to other classes.
#[derive(Debug)]
struct Idle {
    elsewhere: ClassSet,
    finished: Vec<Finished>,
}

impl Worker for Idle {
    fn submit(&mut self, job: Job) {
        self.finished.push(with_outcome(job, &Outcome::Elsewhere(self.elsewhere)));
    }

    fn poll(&mut self, _wait: Wait) -> Vec<Finished> {
        std::mem::take(&mut self.finished)
    }
}
