//! JPEGs decoded on a GPU, by engines and by CPU and GPU together, beside the CPU threads.
//!
//! ```text
//! cpu threads ─ read ─ route ─▶ queue ─┬─▶ cpu               decode, upload the window, resample
//!                                      ├─▶ nvjpeg-hardware   one thread, batches for the JPEG engines
//!                                      └─▶ nvjpeg-hybrid     Huffman on the thread, the rest on the GPU
//! ```
//!
//! What a newcomer would get wrong:
//!
//! 1. A batch is not waited for: the engines get what there is when they are idle.
//! 2. A class that fails gives the image back; the CPU class has the last word on whether a file is good.
//! 3. Damage in the image data that no header shows is found by the CPU's decoder; engines may make pixels of it.

mod hardware;
mod hybrid;
mod route;

use std::{
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

use infeed_jpeg::Header;

use self::route::Routes;
use super::{
    Class, ClassSet, CudaRaw, Decoder, Finished, Job, Outcome, Split, Wait, Worker,
    cuda_raw::{table_of, tables},
};
use crate::{
    dataset::Sample,
    error::{Error, ErrorKind, Result},
    report::Stage,
    sys::{
        cuda::Context,
        kernels::ResampleParams,
        nvjpeg::{self as sys, Coded, Engines, HardwareSize, HybridSize},
    },
    transform::Lowered,
    types::{DType, Device, ImageInfo},
};

/// Images in a batch, about: enough to keep every core of the engines busy while the next batch is set up.
const BATCH: usize = 32;
/// Pixels of a batch: 32 photographs of 500x375 take 18 MB, larger ones find room too (up to 4 million pixels each).
const ARENA_BYTES: usize = 48 << 20;
/// Files of a batch: 32 photographs of 110 KB take 3.5 MB.
const PINNED_BYTES: usize = 8 << 20;
/// Below this a batch holds too few images to be worth its memory.
const LEAST_ARENA_BYTES: usize = 2 << 20;
/// Images of up to 4 million pixels; the rest is the CPU's.
const HYBRID_SIZE: HybridSize = HybridSize { image_bytes: 12 << 20, file_bytes: 4 << 20 };
/// Below this ordinary photographs would not fit.
const LEAST_IMAGE_BYTES: usize = 1 << 20;
/// A hybrid thread decodes one image while the GPU works on another.
const HYBRID_JOBS: usize = 2;

/// Settings of [`NvJpeg`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NvJpegOptions {
    /// Threads for images that engines do not take, each with a CUDA stream; 0 for none. `None`: one for each four
    /// cores, at most four.
    pub streams: Option<usize>,
    /// Who takes which image.
    pub split: Split,
    /// Device memory that both classes may use together; `None`: about 250 MB for the engines and 60 MB for each stream.
    pub device_bytes: Option<u64>,
}

impl NvJpegOptions {
    /// Sets [`streams`](Self::streams).
    #[must_use]
    pub const fn with_streams(mut self, streams: usize) -> Self {
        self.streams = Some(streams);
        self
    }

    /// Sets [`split`](Self::split).
    #[must_use]
    pub const fn with_split(mut self, split: Split) -> Self {
        self.split = split;
        self
    }

    /// Sets [`device_bytes`](Self::device_bytes).
    #[must_use]
    pub const fn with_device_bytes(mut self, bytes: u64) -> Self {
        self.device_bytes = Some(bytes);
        self
    }
}

/// What of nvJPEG there is on a GPU and how much memory it gets. Cheap to copy; making it asks the library, which may
/// take a second.
#[derive(Clone, Copy, Debug)]
pub struct NvJpegPlan {
    hardware: Option<(Engines, HardwareSize)>,
    hybrid: Option<(NonZeroUsize, HybridSize)>,
    split: Split,
}

impl NvJpegPlan {
    /// Looks for nvJPEG and its engines on the GPU of `context`. What is missing is left out, with a line in the log at
    /// level `info`: the CPU class does its work.
    #[must_use]
    pub fn find(context: &Context, options: NvJpegOptions) -> Self {
        let NvJpegOptions { streams, split, device_bytes } = options;
        let nothing = Self { hardware: None, hybrid: None, split };
        let index = context.index();
        if let Err(error) = sys::usable(context) {
            let reason = format!("{error:#}");
            tracing::info!(cuda = index, reason, "no nvJPEG; JPEGs are decoded on the CPU and resampled on the GPU");
            return nothing;
        }
        let engines = match sys::engines(context) {
            Ok(engines) => engines,
            Err(error) => Err(format!("{error:#}")),
        };
        let streams = streams.unwrap_or_else(|| {
            let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
            (cores / 4).clamp(1, 4)
        });
        let mut left = device_bytes.unwrap_or(u64::MAX);
        let hardware = engines.and_then(|engines| {
            let cores = engines.cores();
            // All cores do the same number of images.
            let images = BATCH.div_ceil(cores).saturating_mul(cores).min(4 * BATCH);
            let size = HardwareSize { images, arena_bytes: ARENA_BYTES, pinned_bytes: PINNED_BYTES };
            // Half of what there is, unless nobody else wants it.
            let most = if streams > 0 { left / 2 } else { left };
            let size = size.within(most, LEAST_ARENA_BYTES);
            size.map(|size| (engines, size)).ok_or_else(|| format!("{most} bytes of device memory are too few"))
        });
        let hardware = match hardware {
            Ok(hardware) => {
                left -= hardware.1.device_bytes();
                Some(hardware)
            }
            Err(reason) => {
                tracing::info!(cuda = index, reason, "the JPEG engines are not used");
                None
            }
        };
        let hybrid = NonZeroUsize::new(streams).and_then(|streams| {
            let size = HYBRID_SIZE.within(left / streams.get() as u64, LEAST_IMAGE_BYTES);
            if size.is_none() {
                tracing::info!(cuda = index, left, "too little device memory for nvJPEG's hybrid decoder");
            }
            size.map(|size| (streams, size))
        });
        Self { hardware, hybrid, split }
    }
}

/// Decodes JPEGs with nvJPEG and on CPU threads, everything else on CPU threads, and resamples on a GPU.
///
/// Classes: `cpu`, the threads of [`CudaRaw`], which read; `nvjpeg-hardware`, one thread that gives batches to the JPEG
/// engines; `nvjpeg-hybrid`, a thread for each stream. Classes that the GPU or the library lacks are left out. Only
/// samples with one image, an encoded JPEG, for rows of three channels without custom steps leave the CPU threads.
///
/// # Memory
/// `nvjpeg-hardware` holds about 40 MB of page-locked memory and 250 MB of device memory, each hybrid thread 80 MB and
/// 60 MB, nvJPEG's own buffers estimated; less device memory with [`NvJpegOptions::device_bytes`].
///
/// # What is not deterministic
/// With [`Split::Adaptive`] whoever is idle decodes the next image, and decoders differ in the last bits of some pixels
/// (up to a few levels where nvJPEG is older than 12.1.1 and repeats chroma). Shapes, order, crops and flips never
/// differ. With [`Split::Fixed`] header and record alone choose, so runs with the same GPU, library and number of
/// threads repeat to the byte. Exceptions, for both: an image that fails on the engines takes its batch with it, which
/// is then decoded image by image elsewhere; engines that fail three batches in a row are left alone from then on, with
/// a warning; and files that are damaged where no header shows it may be an error on the CPU and pixels on the GPU.
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
            classes.push(Class { batch, reads: false, ..Class::new(name, device, workers) });
            classes.len() - 1
        };
        // In hand: a batch that is filled, and two that are decoded.
        let hardware =
            plan.hardware.map(|(_, size)| add("nvjpeg-hardware", NonZeroUsize::MIN, size.images * (FLIGHTS + 1)));
        let hybrid = plan.hybrid.map(|(streams, _)| add("nvjpeg-hybrid", streams, HYBRID_JOBS));
        let share = plan.hardware.map_or(0, |(engines, _)| route::share(engines.engines, threads));
        let (split, max_image_bytes) = (plan.split, raw.max_image_bytes());
        let routes = Routes { cpu: 0, hardware, hybrid, split, share, max_image_bytes };
        Self { raw, classes, plan, routes, retired: Arc::default() }
    }

    /// Where images go that this class does not decode: to exactly one class when the split is fixed.
    fn elsewhere(&self, class: usize) -> ClassSet {
        let cpu = ClassSet::only(self.routes.cpu);
        let from_hardware = Some(class) == self.routes.hardware;
        match (self.routes.hybrid.filter(|_| from_hardware), self.plan.split) {
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

    fn route(&self, record: u64, sample: &Sample) -> ClassSet {
        self.routes.route(record, sample, ClassSet(!self.retired.load(Ordering::Relaxed)))
    }

    fn scratch_bytes(&self, class: usize) -> u64 {
        match (self.plan.hardware, self.plan.hybrid) {
            (Some((_, size)), _) if Some(class) == self.routes.hardware => size.host_bytes(),
            (_, Some((_, size))) if Some(class) == self.routes.hybrid => size.host_bytes(),
            _ => self.raw.scratch_bytes(class),
        }
    }

    fn device_bytes(&self, class: usize) -> u64 {
        match (self.plan.hardware, self.plan.hybrid) {
            (Some((_, size)), _) if Some(class) == self.routes.hardware => size.device_bytes(),
            (_, Some((_, size))) if Some(class) == self.routes.hybrid => size.device_bytes(),
            _ => self.raw.device_bytes(class),
        }
    }

    fn worker(&self, class: usize, n: usize, programs: &Arc<[Option<Lowered>]>) -> Result<Box<dyn Worker>> {
        let name = self.classes.get(class).map_or("unknown", |class| class.name);
        if class == self.routes.cpu {
            return self.raw.worker(class, n, programs);
        }
        let retire = Retire { class, retired: Arc::clone(&self.retired) };
        let elsewhere = self.elsewhere(class);
        let kernels = self.raw.kernels();
        let made: Result<Result<Box<dyn Worker>, String>> = match (Target::find(programs), &self.plan) {
            (None, _) => Ok(Err("the transform is not one for nvJPEG".into())),
            (Some(target), NvJpegPlan { hardware: Some((_, size)), .. }) if Some(class) == self.routes.hardware => {
                hardware::open(kernels, *size, programs, target, elsewhere, retire.clone())
            }
            (Some(target), NvJpegPlan { hybrid: Some((_, size)), .. }) if Some(class) == self.routes.hybrid => {
                hybrid::open(kernels, *size, programs, target, elsewhere)
            }
            _ => return Err(Error::new(ErrorKind::Internal, format!("decoder nvjpeg has no class {class}"))),
        };
        match made {
            Ok(Ok(worker)) => return Ok(worker),
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

/// Flights under way at a time: one is decoded, one waits for its turn.
const FLIGHTS: usize = 2;

/// Takes a class out of the routes.
#[derive(Clone, Debug)]
struct Retire {
    class: usize,
    retired: Arc<AtomicU32>,
}

impl Retire {
    fn now(&self) {
        self.retired.fetch_or(ClassSet::only(self.class).0, Ordering::Relaxed);
    }
}

/// The one field that nvJPEG fills.
#[derive(Debug)]
struct Target {
    field: usize,
    table: usize,
    lowered: Lowered,
}

/// A file for nvJPEG, and what becomes of its pixels.
struct Order<'a> {
    header: Header,
    coded: Coded<'a>,
    params: ResampleParams,
}

impl Target {
    /// `None` when rows need more than one image, a custom step, or other than the three channels that nvJPEG makes.
    fn find(programs: &[Option<Lowered>]) -> Option<Self> {
        let mut images = programs.iter().enumerate().filter_map(|(field, program)| Some((field, program.as_ref()?)));
        let (field, lowered) = images.next()?;
        let fits = images.next().is_none() && !lowered.has_custom() && lowered.row().channels == 3;
        let table = table_of(programs, field, DType::U8);
        fits.then(|| Self { field, table, lowered: lowered.clone() })
    }

    /// What to do for a job of one sample. `None`: it is not for nvJPEG.
    fn order<'a>(&self, job: &'a Job) -> Option<Result<Order<'a>>> {
        let [item] = job.items.as_slice() else { return None };
        let sample = match &item.sample {
            Ok(sample) => sample,
            // A failed read is passed on.
            Err(error) => return Some(Err(error.clone())),
        };
        let file = route::file_of(sample)?;
        let header = Header::parse(file).ok()?;
        let coded = Coded { file, height: header.height(), width: header.width(), height_at: header.height_at() };
        let info = ImageInfo::interleaved_u8(header.height(), header.width(), header.channels() as u8);
        Some(self.lowered.params(&info, item.rng).map(|params| Order { header, coded, params }))
    }
}

/// A job with the same outcome for all its items.
fn with_outcome(job: Job, outcome: &Outcome) -> Finished {
    let outcomes = job
        .items
        .iter()
        .map(|item| match outcome {
            Outcome::Failed(error) => Outcome::Failed(error.clone().at_stage(Stage::Decode).at_record(item.record)),
            other => other.clone(),
        })
        .collect();
    Finished::new(job, outcomes)
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
