//! Decides which parts of nvJPEG are used, and how much memory each gets.

use std::{num::NonZeroUsize, sync::Arc};

use infeed_core::error::{
    Error, ErrorKind, Result,
    setting::{DECODE, DECODE_GPU, DEVICE_BUDGET},
};
use infeed_pixels::codec::GpuSplit;

use crate::{
    cuda::{Context, gpus},
    nvjpeg::{self, Engines, HardwareSize, HybridSize},
};

/// Approximate number of images in a batch of the engines: enough to keep all cores of the engines busy while the next
/// batch is set up.
const BATCH: usize = 32;
/// Bytes for the pixels of a batch. 32 photographs of 500x375 take 18 MB; larger ones fit too (up to 4 million pixels
/// each).
const ARENA_BYTES: usize = 48 << 20;
/// Bytes for the files of a batch. 32 photographs of 110 KB take 3.5 MB.
const PINNED_BYTES: usize = 8 << 20;
/// With less memory for pixels, a batch holds too few images to pay.
const LEAST_ARENA_BYTES: usize = 2 << 20;
/// Engines that one thread keeps busy: an engine decodes about 3,700 photographs/s, and a thread supplies 13,400/s
/// (H200).
const ENGINES_OF_A_THREAD: u32 = 4;
/// Images of up to 4 million pixels; the CPU decodes larger ones.
const HYBRID_SIZE: HybridSize = HybridSize { image_bytes: 12 << 20, file_bytes: 4 << 20 };
/// With less, ordinary photographs would not fit.
const LEAST_IMAGE_BYTES: usize = 1 << 20;
/// A hybrid thread decodes one image while the GPU works on another.
pub(super) const HYBRID_JOBS: usize = 2;

/// Flights at a time: one is being decoded, one is queued behind it.
pub(super) const FLIGHTS: usize = 2;

/// Settings of [`NvJpeg`](super::NvJpeg).
///
/// ```
/// use infeed::{codec::GpuSplit, spi::NvJpegOptions};
///
/// // The engines and two streams, in at most a gigabyte of the GPU.
/// let options = NvJpegOptions::default().with_streams(2).with_device_bytes(1 << 30).with_split(GpuSplit::Fixed);
/// assert_eq!((options.streams, options.cut), (2, true));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NvJpegOptions {
    /// Threads for images that the engines do not decode, each with a CUDA stream; 0 (default): none. The CPU still
    /// does the Huffman decoding of these images; the GPU's cores do the rest, so this saves little.
    pub streams: usize,
    /// How images are divided between the classes.
    pub split: GpuSplit,
    /// Most bytes of device memory for all classes together. `None`: about 300 MB for each thread of the engines and
    /// 100 MB for each stream.
    pub device_bytes: Option<u64>,
    /// Threads that supply the engines, each with its own handles and batches. `None`: one per four engines. On an H200
    /// with seven engines, one thread reached 13,400 photographs/s and two reached 19,100.
    pub engine_threads: Option<NonZeroUsize>,
    /// Whether files for the engines are cut after the crop's last row, so that the engines decode no further rows;
    /// `true` by default. If the engines refuse cut files, infeed stops cutting them.
    pub cut: bool,
    /// Images in a batch for the GPU's cores, which decode the same files as the engines, including Huffman decoding; 0
    /// (default): none. nvJPEG needs more than 50.
    pub cores_batch: usize,
}

impl Default for NvJpegOptions {
    fn default() -> Self {
        let (split, device_bytes, engine_threads) = (GpuSplit::default(), None, None);
        Self { streams: 0, split, device_bytes, engine_threads, cut: true, cores_batch: 0 }
    }
}

impl NvJpegOptions {
    /// Sets [`streams`](Self::streams).
    #[must_use]
    pub const fn with_streams(mut self, streams: usize) -> Self {
        self.streams = streams;
        self
    }

    /// Sets [`split`](Self::split).
    #[must_use]
    pub const fn with_split(mut self, split: GpuSplit) -> Self {
        self.split = split;
        self
    }

    /// Sets [`device_bytes`](Self::device_bytes).
    #[must_use]
    pub const fn with_device_bytes(mut self, bytes: u64) -> Self {
        self.device_bytes = Some(bytes);
        self
    }

    /// Sets [`engine_threads`](Self::engine_threads).
    #[must_use]
    pub const fn with_engine_threads(mut self, threads: NonZeroUsize) -> Self {
        self.engine_threads = Some(threads);
        self
    }

    /// Sets [`cut`](Self::cut).
    #[must_use]
    pub const fn with_cut(mut self, cut: bool) -> Self {
        self.cut = cut;
        self
    }

    /// Sets [`cores_batch`](Self::cores_batch).
    #[must_use]
    pub const fn with_cores_batch(mut self, images: usize) -> Self {
        self.cores_batch = images;
        self
    }
}

/// The engines, and the threads that supply them.
#[derive(Clone, Copy, Debug)]
pub(super) struct EnginePlan {
    pub(super) engines: Engines,
    pub(super) size: HardwareSize,
    pub(super) threads: NonZeroUsize,
}

/// The parts of nvJPEG that a GPU has, and the memory for each. Cheap to clone. Making one calls the library and may
/// take a second.
///
/// ```no_run
/// # use infeed::internal::cuda::{Context, Kernels};
/// use std::{num::NonZeroUsize, sync::Arc};
///
/// use infeed::{codec::codecs, spi::{CudaRaw, NvJpeg, NvJpegOptions, NvJpegPlan}};
///
/// # async fn train(dataset: Arc<dyn infeed::Dataset>) -> infeed::Result<()> {
/// let gpu = Context::open(0)?;
/// let plan = NvJpegPlan::find(&gpu, NvJpegOptions::default().with_streams(2));
/// let threads = NonZeroUsize::new(8).expect("8 is not 0");
/// let raw = CudaRaw::new(threads, codecs(), 64 << 20, &Kernels::load(&gpu)?, 3 * 224 * 224 * 4);
/// let decoder = NvJpeg::new(raw, plan);
/// let loader = infeed::Loader::builder(dataset).decoder(Arc::new(decoder)).build().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct NvJpegPlan {
    pub(super) hardware: Option<EnginePlan>,
    pub(super) cores: Option<HardwareSize>,
    pub(super) hybrid: Option<(NonZeroUsize, HybridSize)>,
    pub(super) split: GpuSplit,
    pub(super) cut: bool,
    /// Whether missing engines are an error.
    pub(super) required: bool,
    /// What is missing and how the user can provide it.
    pub(super) lacks: Option<Arc<str>>,
}

impl NvJpegPlan {
    /// Looks for nvJPEG and its engines on the GPU of `context`. Missing parts are omitted, with a line in the log at
    /// level `info`, and the CPU class does their work. If the user can provide what is missing, the first JPEG that is
    /// decoded on the CPU causes a warning, once per process.
    #[must_use]
    pub fn find(context: &Context, options: NvJpegOptions) -> Self {
        Self::look(context, options).0
    }

    /// As [`find`](Self::find), but missing engines are an error: here, and again when the threads of the decoder
    /// start.
    ///
    /// # Errors
    /// `Device`: no nvJPEG, an nvJPEG that does not work with the driver, no engines, or no access to them;
    /// `OutOfMemory`: too little device memory.
    pub fn require(context: &Context, options: NvJpegOptions) -> Result<Self> {
        match Self::look(context, options) {
            (plan, None) => Ok(Self { required: true, ..plan }),
            (_, Some(missing)) => Err(required(&missing, context.index())),
        }
    }

    /// The parts that exist, and the reason why the engines are not among them.
    fn look(context: &Context, options: NvJpegOptions) -> (Self, Option<Error>) {
        let NvJpegOptions { streams, split, device_bytes, engine_threads, cut, cores_batch } = options;
        let nothing = Self { hardware: None, cores: None, hybrid: None, split, cut, required: false, lacks: None };
        let index = context.index();
        if let Err(error) = nvjpeg::usable(context) {
            let reason = format!("{error:#}");
            tracing::info!(cuda = index, reason, "no nvJPEG; JPEGs are decoded on the CPU and resampled on the GPU");
            return (Self { lacks: Some(in_short(&error).into()), ..nothing }, Some(error));
        }
        let found = nvjpeg::engines(context);
        let lacking = match &found {
            Ok(Ok(_)) => None,
            Ok(Err(reason)) => remedy(index, reason),
            Err(error) => Some(in_short(error)),
        };
        let engines = found.and_then(|found| found.map_err(|reason| Error::new(ErrorKind::Device, reason)));
        let has_engines = engines.is_ok();
        let mut left = device_bytes.unwrap_or(u64::MAX);
        let hardware = engines.and_then(|engines| {
            let cores = engines.cores();
            // A multiple of the cores, so that all decode the same number of images.
            let images = BATCH.div_ceil(cores).saturating_mul(cores).min(4 * BATCH);
            let size = HardwareSize { images, arena_bytes: ARENA_BYTES, pinned_bytes: PINNED_BYTES };
            // Half of the memory if other classes need some, otherwise all of it.
            let most = if streams > 0 || cores_batch > 0 { left / 2 } else { left };
            let threads = engine_threads.unwrap_or_else(|| {
                NonZeroUsize::new(engines.engines.div_ceil(ENGINES_OF_A_THREAD) as usize).unwrap_or(NonZeroUsize::MIN)
            });
            let within =
                |threads: NonZeroUsize| Some((size.within(most / threads.get() as u64, LEAST_ARENA_BYTES)?, threads));
            // If memory is too small for the default number of threads, try one.
            let found = within(threads).or_else(|| within(engine_threads.is_none().then_some(NonZeroUsize::MIN)?));
            let too_few = || {
                let what = format!("{most} bytes of device memory are too few");
                Error::new(ErrorKind::OutOfMemory, what)
                    .with_hint(format!("free memory of the GPU, or raise {DEVICE_BUDGET}"))
            };
            found.map(|(size, threads)| EnginePlan { engines, size, threads }).ok_or_else(too_few)
        });
        let lacking = lacking.or_else(|| hardware.as_ref().err().filter(|_| has_engines).map(in_short));
        let (hardware, missing) = match hardware {
            Ok(hardware) => {
                left -= hardware.size.device_bytes() * hardware.threads.get() as u64;
                (Some(hardware), None)
            }
            Err(error) => {
                let reason = format!("{error:#}");
                tracing::info!(cuda = index, reason, "the JPEG engines are not used");
                (None, Some(error))
            }
        };
        let cores = NonZeroUsize::new(cores_batch).and_then(|images| {
            let images = images.get();
            let size = HardwareSize {
                images,
                arena_bytes: ARENA_BYTES / BATCH * images,
                pinned_bytes: PINNED_BYTES / BATCH * images,
            };
            let most = if streams > 0 { left / 2 } else { left };
            let size = size.within(most, LEAST_ARENA_BYTES);
            if size.is_none() {
                tracing::info!(cuda = index, most, "too little device memory for batches on the GPU's cores");
            }
            size
        });
        left -= cores.map_or(0, |size| size.device_bytes());
        let hybrid = NonZeroUsize::new(streams).and_then(|streams| {
            let size = HYBRID_SIZE.within(left / streams.get() as u64, LEAST_IMAGE_BYTES);
            if size.is_none() {
                tracing::info!(cuda = index, left, "too little device memory for nvJPEG's hybrid decoder");
            }
            size.map(|size| (streams, size))
        });
        (Self { hardware, cores, hybrid, lacks: lacking.map(Into::into), ..nothing }, missing)
    }
}

/// The error for missing engines if the user required them.
pub(super) fn required(missing: &Error, index: u32) -> Error {
    let what = format!("{DECODE_GPU} needs the JPEG engines of cuda:{index}: {}", missing.what());
    let auto = format!("leave {DECODE} on auto to use what is available");
    Error::new(missing.kind(), what).with_hint(missing.hint().map_or(auto.clone(), |help| format!("{help}; or {auto}")))
}

/// An error's text and hint, without its place: only one GPU is involved.
fn in_short(error: &Error) -> String {
    error.hint().map_or_else(|| error.what().to_owned(), |help| format!("{}; {help}", error.what()))
}

/// The reason why no engines can be used, with a remedy. `None` if the GPU simply has no engines, which is common.
fn remedy(index: u32, reason: &str) -> Option<String> {
    if nvjpeg::nvcuvid().is_err_and(|missing| reason.contains(&missing)) {
        return Some(reason.to_owned());
    }
    let gpu = gpus().ok()?.into_iter().nth(index as usize)?;
    // The driver's name for a slice: NVIDIA A100-SXM4-40GB MIG 1g.5gb.
    let in_slice = || format!("{reason}: {}; use a MIG profile with media engines (+me), or the whole GPU", gpu.name);
    gpu.name.contains(" MIG ").then(in_slice)
}
