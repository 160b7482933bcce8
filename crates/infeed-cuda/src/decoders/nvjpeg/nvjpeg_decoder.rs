//! The decoder: its classes, and who works for each.

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
    codec::{Class, ClassSet, Decoder, Finished, Item, Job, Outcome, Split, Wait, Worker},
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

/// Why a transform's images stay with the CPU's class.
const NOT_FOR_IT: &str =
    "nvJPEG makes rows of one image in three channels, without steps of your own, and the transform asks for others";

/// Decodes JPEGs with nvJPEG and on CPU threads, everything else on CPU threads, and resamples on a GPU.
///
/// Classes: `cpu`, the threads of [`CudaRaw`], which read; `nvjpeg-hardware`, threads that give batches to the JPEG
/// engines; `nvjpeg-cores`, a thread that gives batches to the GPU's cores, if that was asked for; `nvjpeg-hybrid`, a
/// thread for each stream. Classes that the GPU or the library lacks are left out. Only samples with one image, an encoded
/// JPEG, in colour and without custom steps, leave the CPU threads, and only where the codec that recognises
/// the file is [interchangeable](infeed_pixels::codec::ImageCodec::is_interchangeable). Steps on pictures are done on the GPU, and
/// several views are made of one decode.
///
/// ```no_run
/// use infeed::{Device, Loader, codec::Split};
///
/// # async fn train(dataset: std::sync::Arc<dyn infeed::Dataset>) -> infeed::Result<()> {
/// // Where the GPU has it, a loader takes it by itself.
/// let loader = Loader::builder(dataset).device(Device::Cuda(0)).streams(4).split(Split::Fixed).build().await?;
/// # Ok(()) }
/// ```
///
/// # Memory
/// Each thread of `nvjpeg-hardware` holds about 40 MB of page-locked memory and 300 MB of device memory, each hybrid thread
/// 80 MB and 100 MB, that of `nvjpeg-cores` as much more than an engine's as its batches are larger than 32 images; nvJPEG's own
/// buffers are estimated; less device memory with [`NvJpegOptions::device_bytes`](super::NvJpegOptions::device_bytes).
///
/// # What is not deterministic
/// With [`Split::Adaptive`] whoever is idle decodes the next image, and decoders differ in the last bits of some pixels
/// (up to a few levels where nvJPEG is older than 12.1.1 and repeats chroma). Shapes, order, crops and flips never
/// differ. With [`Split::Fixed`] header and record alone choose, so runs with the same GPU, library and number of
/// threads repeat to the byte. Exceptions, for both: an image that fails on the engines takes its batch with it, which
/// is then decoded image by image elsewhere; so is an image that the engines leave out; engines that fail three batches in
/// a row, or leave images out of them, are left alone from then on, with a warning; and files that are damaged where no header shows it may be an error on the CPU and pixels on the GPU.
#[derive(Debug)]
pub struct NvJpeg {
    raw: CudaRaw,
    classes: Vec<Class>,
    plan: NvJpegPlan,
    routes: Routes,
    /// Classes that gave up, or have nothing to do with this transform.
    retired: Arc<AtomicU32>,
}

impl NvJpeg {
    /// A decoder beside the threads of `raw`, on its GPU. `plan` was made for the same GPU.
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
        // In hand: a batch that is filled, and two that are decoded.
        let hardware = plan.hardware.map(|of| add("nvjpeg-hardware", of.threads, of.size.images * (FLIGHTS + 1)));
        let cores = plan.cores.map(|size| add("nvjpeg-cores", NonZeroUsize::MIN, size.images * (FLIGHTS + 1)));
        let hybrid = plan.hybrid.map(|(streams, _)| add("nvjpeg-hybrid", streams, HYBRID_JOBS));
        let share = plan.hardware.map_or(0, |of| route::share(of.engines.engines, threads));
        let (split, max_image_bytes) = (plan.split, raw.max_image_bytes());
        let codecs = Arc::clone(raw.codecs());
        let routes = Routes { cpu: 0, hardware, cores, hybrid, codecs, split, share, max_image_bytes };
        Self { raw, classes, plan, routes, retired: Arc::default() }
    }

    /// What decodes the batches of a class that makes some, and how large they are.
    fn batches(&self, class: usize) -> Option<(BatchDecoder, HardwareSize)> {
        let hardware = self.plan.hardware.filter(|_| Some(class) == self.routes.hardware);
        let cores = self.plan.cores.filter(|_| Some(class) == self.routes.cores);
        let hardware = hardware.map(|of| (BatchDecoder::Engines, of.size));
        hardware.or(cores.map(|size| (BatchDecoder::Cores, size)))
    }

    /// Where images go that this class does not decode: to exactly one class when the split is fixed.
    fn elsewhere(&self, class: usize) -> ClassSet {
        let cpu = ClassSet::only(self.routes.cpu);
        let from_batches = Some(class) == self.routes.hardware || Some(class) == self.routes.cores;
        match (self.routes.hybrid.filter(|_| from_batches), self.plan.split) {
            (None, _) => cpu,
            (Some(hybrid), Split::Fixed) => ClassSet::only(hybrid),
            (Some(hybrid), Split::Adaptive) => ClassSet(cpu.0 | ClassSet::only(hybrid).0),
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
        // Beside the descriptors, which its size counts.
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
            // Less memory than was planned with, or a library that refuses: the CPU class can do all the work. A GPU
            // that is lost fails there too.
            Err(error) => {
                tracing::warn!(class = name, error = %format!("{error:#}"), "going on without a class of the decoder");
            }
        }
        retire.now();
        Ok(Box::new(Idle { elsewhere, finished: Vec::new() }))
    }
}

/// Gives everything away.
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
