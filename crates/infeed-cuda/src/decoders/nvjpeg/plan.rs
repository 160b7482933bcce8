//! What of nvJPEG is used, and how much memory it gets.

use std::{num::NonZeroUsize, sync::Arc};

use infeed_core::error::{
    Error, ErrorKind, Result,
    setting::{DECODE, DECODE_GPU, DEVICE_BUDGET},
};
use infeed_pixels::codec::Split;

use crate::{
    cuda::{Context, gpus},
    nvjpeg::{self, Engines, HardwareSize, HybridSize},
};

/// Images in a batch of the engines, about: enough to keep every core of the engines busy while the next batch is set up.
const BATCH: usize = 32;
/// Pixels of a batch: 32 photographs of 500x375 take 18 MB, larger ones fit too (up to 4 million pixels each).
const ARENA_BYTES: usize = 48 << 20;
/// Files of a batch: 32 photographs of 110 KB take 3.5 MB.
const PINNED_BYTES: usize = 8 << 20;
/// Below this a batch holds too few images to be worth its memory.
const LEAST_ARENA_BYTES: usize = 2 << 20;
/// Engines that one thread keeps busy: each decodes some 3,700 photographs a second, and a thread gives them 13,400 (H200).
const ENGINES_OF_A_THREAD: u32 = 4;
/// Images of up to 4 million pixels; the rest is the CPU's.
const HYBRID_SIZE: HybridSize = HybridSize { image_bytes: 12 << 20, file_bytes: 4 << 20 };
/// Below this ordinary photographs would not fit.
const LEAST_IMAGE_BYTES: usize = 1 << 20;
/// A hybrid thread decodes one image while the GPU works on another.
pub(super) const HYBRID_JOBS: usize = 2;

/// Flights under way at a time: one is decoded, one waits for its turn.
pub(super) const FLIGHTS: usize = 2;

/// Settings of [`NvJpeg`](super::NvJpeg).
///
/// ```
/// use infeed::codec::{NvJpegOptions, Split};
///
/// // The engines and two streams, in at most a gigabyte of the GPU.
/// let options = NvJpegOptions::default().with_streams(2).with_device_bytes(1 << 30).with_split(Split::Fixed);
/// assert_eq!((options.streams, options.cut), (2, true));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NvJpegOptions {
    /// Threads for images that engines do not take, each with a CUDA stream; 0, the default, for none. Huffman coding is the
    /// CPU's there as well, so little is saved: what CPU threads take for the rest of such an image, by the GPU's cores.
    pub streams: usize,
    /// Who takes which image.
    pub split: Split,
    /// Device memory that all classes may use together; `None`: about 300 MB for each thread of the engines and 100 MB for
    /// each stream.
    pub device_bytes: Option<u64>,
    /// Threads that feed the engines, each with handles and batches of its own. `None`: one for each four engines. On an H200
    /// with seven, one gave them 13,400 photographs a second and two gave them 19,100.
    pub engine_threads: Option<NonZeroUsize>,
    /// Gives the engines files that end with the crop's last row, so that they decode no more; yes by default. Where they
    /// refuse such files, that ends by itself.
    pub cut: bool,
    /// Images in a batch for the GPU's cores, which decode whatever the engines could, Huffman coding included; 0, the
    /// default, for none. nvJPEG wants more than 50.
    pub cores_batch: usize,
}

impl Default for NvJpegOptions {
    fn default() -> Self {
        let (split, device_bytes, engine_threads) = (Split::default(), None, None);
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

/// The engines, and who feeds them.
#[derive(Clone, Copy, Debug)]
pub(super) struct EnginePlan {
    pub(super) engines: Engines,
    pub(super) size: HardwareSize,
    pub(super) threads: NonZeroUsize,
}

/// What of nvJPEG there is on a GPU and how much memory it gets. Cheap to clone; making it asks the library, which may
/// take a second.
///
/// ```no_run
/// # use infeed::internal::cuda::{Context, Kernels};
/// use std::{num::NonZeroUsize, sync::Arc};
///
/// use infeed::codec::{CudaRaw, NvJpeg, NvJpegOptions, NvJpegPlan, codecs};
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
    pub(super) split: Split,
    pub(super) cut: bool,
    /// The engines are not to be left out.
    pub(super) required: bool,
    /// What is missing and could be had, and how.
    pub(super) lacks: Option<Arc<str>>,
}

impl NvJpegPlan {
    /// Looks for nvJPEG and its engines on the GPU of `context`. What is missing is left out, with a line in the log at
    /// level `info`: the CPU class does its work. Where something could be done about it, the first JPEG that is decoded on
    /// the CPU is a warning, once a process.
    #[must_use]
    pub fn find(context: &Context, options: NvJpegOptions) -> Self {
        Self::look(context, options).0
    }

    /// As [`find`](Self::find), for those who want the engines or nothing: a decoder of this plan does not go on without
    /// them when its threads start, either.
    ///
    /// # Errors
    /// `Device`: no nvJPEG, one that does not work with the driver, no engines, or no way to them; `OutOfMemory`: too little
    /// device memory.
    pub fn require(context: &Context, options: NvJpegOptions) -> Result<Self> {
        match Self::look(context, options) {
            (plan, None) => Ok(Self { required: true, ..plan }),
            (_, Some(missing)) => Err(required(&missing, context.index())),
        }
    }

    /// What there is, and why the engines are not in it.
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
            // All cores do the same number of images.
            let images = BATCH.div_ceil(cores).saturating_mul(cores).min(4 * BATCH);
            let size = HardwareSize { images, arena_bytes: ARENA_BYTES, pinned_bytes: PINNED_BYTES };
            // Half of what there is, unless nobody else wants it.
            let most = if streams > 0 || cores_batch > 0 { left / 2 } else { left };
            let threads = engine_threads.unwrap_or_else(|| {
                NonZeroUsize::new(engines.engines.div_ceil(ENGINES_OF_A_THREAD) as usize).unwrap_or(NonZeroUsize::MIN)
            });
            let within =
                |threads: NonZeroUsize| Some((size.within(most / threads.get() as u64, LEAST_ARENA_BYTES)?, threads));
            // Better one thread than none.
            let found = within(threads).or_else(|| within(engine_threads.is_none().then_some(NonZeroUsize::MIN)?));
            let too_few = || {
                let what = format!("{most} bytes of device memory are too few");
                Error::new(ErrorKind::OutOfMemory, what)
                    .hint(format!("free memory of the GPU, or raise {DEVICE_BUDGET}"))
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

/// The same error for those who wanted nothing else.
pub(super) fn required(missing: &Error, index: u32) -> Error {
    let what = format!("{DECODE_GPU} needs the JPEG engines of cuda:{index}: {}", missing.what());
    let auto = format!("leave {DECODE} on auto, for whatever is there");
    Error::new(missing.kind(), what).hint(missing.help().map_or(auto.clone(), |help| format!("{help}; or {auto}")))
}

/// What failed and what to do, without where: there is one GPU to speak of.
fn in_short(error: &Error) -> String {
    error.help().map_or_else(|| error.what().to_owned(), |help| format!("{}; {help}", error.what()))
}

/// The reason why no engines can be used, with what to do; `None`: the GPU has none, as many have not.
fn remedy(index: u32, reason: &str) -> Option<String> {
    if nvjpeg::nvcuvid().is_err_and(|missing| reason.contains(&missing)) {
        return Some(reason.to_owned());
    }
    let gpu = gpus().ok()?.into_iter().nth(index as usize)?;
    // As the driver calls them: NVIDIA A100-SXM4-40GB MIG 1g.5gb.
    let in_slice = || format!("{reason}: {}; take a MIG profile with media engines (+me), or the whole GPU", gpu.name);
    gpu.name.contains(" MIG ").then(in_slice)
}
