//! Where batches are made: in host memory or on a GPU, and by which decoder.

use std::{num::NonZeroUsize, sync::Arc};

use super::LoaderConfig;
use crate::{
    engine::READY_BYTES,
    sys::{
        cuda::{self, Context, Kernels},
        devices::of_rank,
    },
};
use infeed_core::{
    buffer::GpuBuffers,
    error::{
        Error, ErrorKind, Result,
        setting::{DECODE, DECODE_GPU, DEVICE},
    },
    rows::Pool,
    types::Device,
};
use infeed_pixels::{
    codec::{Cpu, Decode, Decoder, ImageCodec, Several},
    kernels::{Mixer, RowRoom},
};

/// A device that was found to work. Clones are of the same.
#[derive(Clone, Debug)]
pub(super) enum Place {
    Host,
    /// Host memory whose rows are page-locked, for copies to this GPU.
    Pinned(Context),
    /// For the built-in decoders.
    Gpu(Arc<Kernels>),
    /// For a decoder of the user's.
    Foreign(Context),
}

/// Makes a decoder for images of at most so many bytes, with so many threads that read.
type Make = Box<dyn Fn(u64, NonZeroUsize) -> Arc<dyn Decoder>>;

/// What a built-in decoder has to do on one device.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(
    not(all(feature = "cuda", feature = "jpeg", target_os = "linux")),
    allow(dead_code, reason = "the CPU's decoder asks for less")
)]
pub(super) struct Workload {
    /// Decoding threads that read, at most.
    pub(super) most_threads: NonZeroUsize,
    /// Bytes of the longest row.
    pub(super) row_bytes: usize,
    /// What steps on a row's pictures take there.
    pub(super) steps: RowRoom,
    /// Whether there are image files to decode.
    pub(super) has_files: bool,
    /// Bytes of a batch on the device, of all ranks that have theirs there.
    pub(super) device_batch: u64,
    /// Devices that share the threads.
    pub(super) devices: usize,
}

/// How to get the decoder, asked for its needs before there is one: given, or made for a largest image, with a part for
/// each device.
pub(super) enum Recipe {
    Given(Arc<dyn Decoder>),
    Made(Vec<(Device, Make)>),
}

impl Place {
    /// The device of the config, or the best there is where that is `auto`.
    pub(super) fn find(config: &LoaderConfig, decoder: Option<&Arc<dyn Decoder>>) -> Result<Self> {
        let place = match (config.device, decoder) {
            (device, Some(decoder)) => Self::of_decoder(device, &**decoder)?,
            (Some(device), None) => Self::of_device(device)?,
            (None, None) => Self::best(config)?,
        };
        place.pinned(config)
    }

    /// Host memory as the config wants it; on a GPU there is nothing to page-lock.
    fn pinned(self, config: &LoaderConfig) -> Result<Self> {
        if !config.pin_memory || self.is_device() {
            return Ok(self);
        }
        let gpus = cuda::gpus().map_err(|why| {
            Error::new(ErrorKind::Device, format!("pin_memory needs a GPU that copies from the memory: {why}"))
                .hint("leave pin_memory out")
        })?;
        let context = Context::open(of_rank(config.shard.local_rank(), gpus.len()))?;
        context.check_marks().map_err(|error| error.at_object("pin_memory"))?;
        Ok(Self::Pinned(context))
    }

    /// These devices, in this order. One that is named twice is opened once.
    pub(super) fn each(
        devices: &[Device],
        config: &LoaderConfig,
        decoder: Option<&Arc<dyn Decoder>>,
    ) -> Result<Vec<Self>> {
        let mut places: Vec<Self> = Vec::new();
        for device in devices {
            let known = places.iter().find(|place| place.device() == *device).cloned();
            let found = || match decoder {
                // It has rows on one device; who wants others has to leave it out.
                Some(decoder) => Self::of_decoder(Some(*device), &**decoder),
                None => Self::of_device(*device),
            };
            let known = known.map_or_else(found, Ok)?;
            places.push(known.pinned(config)?);
        }
        Ok(places)
    }

    fn of_device(device: Device) -> Result<Self> {
        match device {
            Device::Cpu => Ok(Self::Host),
            Device::Cuda(index) => Self::gpu(index),
        }
    }

    fn gpu(index: u32) -> Result<Self> {
        Ok(Self::Gpu(Kernels::load(&Context::open(index)?)?))
    }

    fn best(config: &LoaderConfig) -> Result<Self> {
        let must = config.decode == Decode::Gpu;
        let gpus = match cuda::gpus() {
            Ok(gpus) => gpus.len(),
            Err(why) if must => {
                let what = format!("{DECODE_GPU} needs a GPU: {why}");
                return Err(Error::new(ErrorKind::Device, what).hint(format!("leave {DECODE} on auto")));
            }
            Err(why) => {
                tracing::debug!(why, "batches stay in host memory");
                return Ok(Self::Host);
            }
        };
        Self::gpu(of_rank(config.shard.local_rank(), gpus)).or_else(|error| {
            if must {
                return Err(error);
            }
            tracing::warn!(error = %format!("{error:#}"), "the GPU can't be used; batches stay in host memory");
            Ok(Self::Host)
        })
    }

    /// A decoder of the user's says by its classes where rows are made.
    fn of_decoder(wanted: Option<Device>, decoder: &dyn Decoder) -> Result<Self> {
        let mut devices = decoder.classes().iter().map(|class| class.device);
        let device = devices.next().unwrap_or_default();
        if let Some(other) = devices.find(|other| *other != device) {
            let what = format!("decoder {} makes rows on {device} and on {other}", decoder.name());
            return Err(Error::config(what).hint("use a decoder for each device"));
        }
        if let Some(wanted) = wanted.filter(|wanted| *wanted != device) {
            let what = format!("decoder {} makes rows on {device}, {DEVICE} is {wanted}", decoder.name());
            return Err(Error::config(what).hint(format!("set {DEVICE} to {device}")));
        }
        match device {
            Device::Cpu => Ok(Self::Host),
            Device::Cuda(index) => Context::open(index).map(Self::Foreign),
        }
    }

    pub(super) fn context(&self) -> Option<&Context> {
        match self {
            Self::Host | Self::Pinned(_) => None,
            Self::Gpu(kernels) => Some(kernels.context()),
            Self::Foreign(context) => Some(context),
        }
    }

    /// Memory for `rows` rows that whoever is given a batch gets, with `most` buffers kept.
    pub(super) fn pool(&self, rows: usize, row_bytes: usize, most: usize) -> Result<Pool> {
        match self {
            Self::Host => Pool::new(rows, row_bytes, most),
            Self::Pinned(context) => Pool::pinned(context, rows, row_bytes, most),
            Self::Gpu(kernels) => Pool::on_device(kernels.context(), rows, row_bytes, most),
            Self::Foreign(context) => Pool::on_device(context, rows, row_bytes, most),
        }
    }

    /// What mixes the rows of batches here, where that is no work of the CPU.
    pub(super) fn mixer(&self, batch_size: usize) -> Result<Option<Arc<dyn Mixer>>> {
        let kernels = match self {
            Self::Host | Self::Pinned(_) => return Ok(None),
            Self::Gpu(kernels) => Arc::clone(kernels),
            Self::Foreign(context) => Kernels::load(context)?,
        };
        let mixer = cuda::Mixer::new(&kernels, batch_size)?;
        Ok(Some(mixer))
    }

    pub(super) fn is_device(&self) -> bool {
        self.context().is_some()
    }

    pub(super) fn device(&self) -> Device {
        self.context().map_or(Device::Cpu, |context| Device::Cuda(context.index()))
    }

    /// How to make the built-in decoder here.
    pub(super) fn make(
        &self,
        config: &LoaderConfig,
        codecs: Arc<[Arc<dyn ImageCodec>]>,
        workload: &Workload,
    ) -> Result<(Device, Make)> {
        let make: Make = match self {
            Self::Gpu(kernels) => gpu_decoder(config, kernels, codecs, workload)?,
            Self::Host | Self::Pinned(_) => {
                let of_pixels = config.decoded_cache.is_some();
                Box::new(move |most, threads| {
                    Arc::new(Cpu::new(threads, codecs.iter().cloned(), most).of_pixels(of_pixels))
                })
            }
            Self::Foreign(_) => {
                return Err(Error::new(ErrorKind::Internal, "a device was found for a decoder that is not there"));
            }
        };
        Ok((self.device(), make))
    }
}

/// Refuses host memory where JPEGs are to be decoded on a GPU.
pub(super) fn check_decode(decode: Decode, device: Device) -> Result<()> {
    if (decode, device) != (Decode::Gpu, Device::Cpu) {
        return Ok(());
    }
    let what = format!("{DECODE_GPU} decodes on a GPU, and {DEVICE} is cpu");
    Err(Error::config(what).hint(format!("set {DEVICE} to cuda:0 or another GPU, or leave {DECODE} on auto")))
}

/// Refuses a choice that a decoder of the user's does not know.
pub(super) fn check_decoder(decode: Decode, decoder: Option<&Arc<dyn Decoder>>) -> Result<()> {
    match decoder {
        Some(decoder) if decode != Decode::Auto => {
            let what = format!("{DECODE} is for this crate's decoders, and {} is another", decoder.name());
            Err(Error::config(what).hint(format!("leave {DECODE} on auto")))
        }
        _ => Ok(()),
    }
}

#[cfg(all(feature = "cuda", target_os = "linux"))]
#[cfg_attr(not(feature = "jpeg"), allow(unused_variables, reason = "the settings are nvJPEG's"))]
fn gpu_decoder(
    config: &LoaderConfig,
    kernels: &Arc<Kernels>,
    codecs: Arc<[Arc<dyn ImageCodec>]>,
    workload: &Workload,
) -> Result<Make> {
    if workload.has_files && config.decode == Decode::Gpu {
        check_codec(&codecs)?;
    }
    let kernels = Arc::clone(kernels);
    let &Workload { most_threads, row_bytes, steps, .. } = workload;
    let raw = {
        let kernels = Arc::clone(&kernels);
        move |most, threads| {
            crate::codec::CudaRaw::new(threads, codecs.iter().cloned(), most, &kernels, row_bytes).with_steps(steps)
        }
    };
    #[cfg(feature = "jpeg")]
    if workload.has_files && config.decode != Decode::Cpu {
        use crate::codec::{NvJpeg, NvJpegOptions, NvJpegPlan};
        // The batches and the other threads come first; nvJPEG makes do with what is left.
        let threads = raw(0, most_threads).device_bytes(0).saturating_mul(most_threads.get() as u64);
        // For steps on pictures, of the engines' thread and of up to four streams as well.
        let others = 1 + config.streams.unwrap_or(4) as u64;
        let steps = raw(0, most_threads).steps_bytes().saturating_mul(others);
        let taken = workload.device_batch.saturating_mul(4).saturating_add(threads).saturating_add(steps);
        let rest = |budget: u64| budget.saturating_sub(taken);
        let most = match config.device_budget {
            Some(budget) => rest(budget),
            None => rest(kernels.context().memory()?.0 / 2),
        };
        let options = NvJpegOptions::default().with_split(config.split).with_device_bytes(most);
        let mut options = options.with_cut(config.decode_cut);
        // Its threads decode on the CPU, too: of several devices each has its part of what one would have.
        let several = (workload.devices > 1).then(|| (most_threads.get() / (4 * workload.devices)).clamp(1, 4));
        options.streams = config.streams.or(several);
        let plan = match config.decode {
            Decode::Gpu => NvJpegPlan::require(kernels.context(), options)?,
            _ => NvJpegPlan::find(kernels.context(), options),
        };
        return Ok(Box::new(move |most, threads| Arc::new(NvJpeg::new(raw(most, threads), plan.clone()))));
    }
    Ok(Box::new(move |most, threads| Arc::new(raw(most, threads))))
}

/// Refuses a codec that keeps JPEGs to itself where a GPU is to decode them, and a build that does not know them.
#[cfg(all(feature = "cuda", target_os = "linux"))]
fn check_codec(codecs: &[Arc<dyn ImageCodec>]) -> Result<()> {
    if cfg!(not(feature = "jpeg")) {
        let what = format!("{DECODE_GPU} decodes JPEGs, and this build has no feature `jpeg`");
        return Err(Error::config(what).hint(format!("build with it, or leave {DECODE} on auto")));
    }
    let taking = codecs.iter().find(|codec| codec.recognises(&[0xff, 0xd8, 0xff, 0xe0]));
    match taking.filter(|codec| !codec.is_interchangeable()) {
        Some(codec) => {
            let what = format!("the codec `{}` decodes JPEGs on the CPU alone, and {DECODE_GPU} is set", codec.name());
            Err(Error::config(what).hint(format!("leave the codec or its settings out, or leave {DECODE} on auto")))
        }
        None => Ok(()),
    }
}

#[cfg(not(all(feature = "cuda", target_os = "linux")))]
fn gpu_decoder(
    _config: &LoaderConfig,
    kernels: &Arc<Kernels>,
    _codecs: Arc<[Arc<dyn ImageCodec>]>,
    _workload: &Workload,
) -> Result<Make> {
    Err(Error::new(ErrorKind::Internal, format!("{kernels:?} in a build that knows no GPU")))
}

impl Recipe {
    /// The parts, with `threads` that read for all of them.
    fn parts(&self, most: u64, threads: NonZeroUsize) -> Vec<(Device, Arc<dyn Decoder>)> {
        match self {
            Self::Given(decoder) => {
                let device = decoder.classes().first().map(|class| class.device).unwrap_or_default();
                vec![(device, Arc::clone(decoder))]
            }
            Self::Made(parts) => {
                let devices = NonZeroUsize::new(parts.len()).unwrap_or(NonZeroUsize::MIN);
                // What a device's engines are worth is seen against its share of the threads.
                let share = threads.get().div_ceil(devices.get());
                let share = NonZeroUsize::new(share).unwrap_or(NonZeroUsize::MIN);
                parts.iter().map(|(device, make)| (*device, make(most, share))).collect()
            }
        }
    }

    /// The decoder for images of at most so many bytes, with so many threads that read; a given one has its own.
    pub(super) fn decoder(&self, max_image_bytes: u64, threads: NonZeroUsize) -> Arc<dyn Decoder> {
        let mut parts = self.parts(max_image_bytes, threads);
        match parts.len() {
            1 => parts.swap_remove(0).1,
            _ => Arc::new(Several::new(threads, parts)),
        }
    }

    /// Whether there are threads that do not read, such as those of engines.
    pub(super) fn has_engines(&self) -> bool {
        let parts = self.parts(0, NonZeroUsize::MIN);
        parts.iter().any(|(_, part)| part.classes().iter().any(|class| !class.reads))
    }

    /// Host memory of all workers when images may be as large as this.
    pub(super) fn scratch_bytes(&self, max_image_bytes: u64, threads: NonZeroUsize) -> u64 {
        let decoder = self.decoder(max_image_bytes, threads);
        let classes = decoder.classes().iter().enumerate();
        let bytes = classes.map(|(i, class)| decoder.scratch_bytes(i).saturating_mul(class.workers.get() as u64));
        bytes.fold(0, u64::saturating_add)
    }

    /// Threads that read.
    pub(super) fn reading(&self, threads: NonZeroUsize) -> usize {
        self.decoder(0, threads).classes().iter().filter(|class| class.reads).map(|class| class.workers.get()).sum()
    }

    /// Memory of a device that all workers take there.
    pub(super) fn device_bytes(&self, device: Device, threads: NonZeroUsize) -> u64 {
        let parts = self.parts(0, threads);
        let own = parts.iter().filter(|(other, _)| *other == device);
        let bytes = own.flat_map(|(_, part)| {
            part.classes().iter().enumerate().map(|(i, class)| {
                // All threads that read have memory on each device; a given decoder says how many there are.
                let shared = class.reads && matches!(self, Self::Made(_));
                let workers = if shared { threads } else { class.workers };
                part.device_bytes(i).saturating_mul(workers.get() as u64)
            })
        });
        bytes.fold(0, u64::saturating_add)
    }

    /// Host memory of samples on their way between classes.
    pub(super) fn ready_bytes(&self) -> u64 {
        let parts = self.parts(0, NonZeroUsize::MIN);
        let with_engines = parts.iter().filter(|(_, part)| part.classes().iter().any(|class| !class.reads));
        READY_BYTES * with_engines.count() as u64
    }

    /// Whether the largest image decides how much scratch there is.
    pub(super) const fn decodes_on_cpu(&self) -> bool {
        matches!(self, Self::Made(_))
    }
}
