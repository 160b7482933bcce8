//! Where batches are made: in host memory or on a GPU, and by which decoder.

use std::{num::NonZeroUsize, sync::Arc};

use super::LoaderConfig;
use crate::{
    codec::{Cpu, Decoder, ImageCodec},
    engine::READY_BYTES,
    error::{Error, ErrorKind, Result},
    sys::cuda::{self, Context, Kernels},
    types::Device,
};

/// A device that was found to work.
#[derive(Debug)]
pub(super) enum Place {
    Host,
    /// For the built-in decoders.
    Gpu(Arc<Kernels>),
    /// For a decoder of the user's.
    Foreign(Context),
}

/// Makes a decoder for images of at most so many bytes.
type Make = Box<dyn Fn(u64) -> Arc<dyn Decoder>>;

/// What a built-in decoder has to do.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(
    not(all(feature = "cuda", feature = "jpeg", target_os = "linux")),
    allow(dead_code, reason = "the CPU's decoder asks for less")
)]
pub(super) struct Workload {
    /// Decoding threads.
    pub(super) workers: NonZeroUsize,
    /// Bytes of the longest row.
    pub(super) row_bytes: usize,
    /// Whether there are image files to decode.
    pub(super) has_files: bool,
    /// Bytes of a batch on the device.
    pub(super) device_batch: u64,
}

/// How to get the decoder, asked for its needs before there is one: given, or made for a largest image.
pub(super) enum Recipe {
    Given(Arc<dyn Decoder>),
    Made(Make),
}

impl Place {
    /// The device of the config, or the best there is.
    pub(super) fn find(config: &LoaderConfig, decoder: Option<&Arc<dyn Decoder>>) -> Result<Self> {
        if let Some(decoder) = decoder {
            return Self::of_decoder(config, &**decoder);
        }
        match config.device {
            Some(Device::Cpu) => Ok(Self::Host),
            Some(Device::Cuda(index)) => Self::gpu(index),
            None => Ok(Self::best(config)),
        }
    }

    fn gpu(index: u32) -> Result<Self> {
        Ok(Self::Gpu(Kernels::load(&Context::open(index)?)?))
    }

    fn best(config: &LoaderConfig) -> Self {
        let gpus = match cuda::gpus() {
            Ok(gpus) => gpus.len() as u32,
            Err(why) => {
                tracing::debug!(why, "batches stay in host memory");
                return Self::Host;
            }
        };
        let index = config.shard.local_rank() % gpus.max(1);
        Self::gpu(index).unwrap_or_else(|error| {
            tracing::warn!(error = %format!("{error:#}"), "the GPU can't be used; batches stay in host memory");
            Self::Host
        })
    }

    /// A decoder of the user's says by its classes where rows are made.
    fn of_decoder(config: &LoaderConfig, decoder: &dyn Decoder) -> Result<Self> {
        let mut devices = decoder.classes().iter().map(|class| class.device);
        let device = devices.next().unwrap_or_default();
        if let Some(other) = devices.find(|other| *other != device) {
            let what = format!("decoder {} makes rows on {device} and on {other}", decoder.name());
            return Err(Error::config(what).hint("use a decoder for each device"));
        }
        if let Some(wanted) = config.device.filter(|wanted| *wanted != device) {
            let what = format!("decoder {} makes rows on {device}, device is {wanted}", decoder.name());
            return Err(Error::config(what).hint(format!("leave device on auto, or set it to {device}")));
        }
        match device {
            Device::Cpu => Ok(Self::Host),
            Device::Cuda(index) => Context::open(index).map(Self::Foreign),
        }
    }

    pub(super) fn context(&self) -> Option<&Context> {
        match self {
            Self::Host => None,
            Self::Gpu(kernels) => Some(kernels.context()),
            Self::Foreign(context) => Some(context),
        }
    }

    pub(super) fn is_device(&self) -> bool {
        self.context().is_some()
    }

    /// The recipe for the decoder here.
    pub(super) fn decoders(
        &self,
        config: &LoaderConfig,
        decoder: Option<Arc<dyn Decoder>>,
        codecs: Arc<[Arc<dyn ImageCodec>]>,
        workload: &Workload,
    ) -> Result<Recipe> {
        if let Some(decoder) = decoder {
            return Ok(Recipe::Given(decoder));
        }
        let workers = workload.workers;
        let make: Make = match self {
            Self::Gpu(kernels) => gpu_decoder(config, kernels, codecs, workload)?,
            Self::Host => Box::new(move |most| Arc::new(Cpu::new(workers, codecs.iter().cloned(), most))),
            Self::Foreign(_) => {
                return Err(Error::new(ErrorKind::Internal, "a device was found for a decoder that is not there"));
            }
        };
        Ok(Recipe::Made(make))
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
    let kernels = Arc::clone(kernels);
    let &Workload { workers, row_bytes, .. } = workload;
    let raw = {
        let kernels = Arc::clone(&kernels);
        move |most| crate::codec::CudaRaw::new(workers, codecs.iter().cloned(), most, &kernels, row_bytes)
    };
    #[cfg(feature = "jpeg")]
    if workload.has_files {
        use crate::codec::{NvJpeg, NvJpegOptions, NvJpegPlan};
        // The batches and the other threads come first; nvJPEG makes do with what is left.
        let threads = raw(0).device_bytes(0).saturating_mul(workers.get() as u64);
        let rest = |budget: u64| budget.saturating_sub(workload.device_batch.saturating_mul(4)).saturating_sub(threads);
        let most = match config.device_budget {
            Some(budget) => rest(budget),
            None => rest(kernels.context().memory()?.0 / 2),
        };
        let mut options = NvJpegOptions::default().with_split(config.split).with_device_bytes(most);
        options.streams = config.streams;
        let plan = NvJpegPlan::find(kernels.context(), options);
        return Ok(Box::new(move |most| Arc::new(NvJpeg::new(raw(most), plan))));
    }
    Ok(Box::new(move |most| Arc::new(raw(most))))
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
    fn sum(decoder: &dyn Decoder, bytes: impl Fn(usize) -> u64) -> u64 {
        let classes = decoder.classes().iter().enumerate();
        classes.map(|(i, class)| bytes(i).saturating_mul(class.workers.get() as u64)).fold(0, u64::saturating_add)
    }

    /// The decoder for images of at most so many bytes.
    pub(super) fn decoder(&self, max_image_bytes: u64) -> Arc<dyn Decoder> {
        match self {
            Self::Given(decoder) => Arc::clone(decoder),
            Self::Made(make) => make(max_image_bytes),
        }
    }

    /// Host memory of all workers when images may be as large as this.
    pub(super) fn scratch_bytes(&self, max_image_bytes: u64) -> u64 {
        let decoder = self.decoder(max_image_bytes);
        Self::sum(&*decoder, |class| decoder.scratch_bytes(class))
    }

    /// Threads that read.
    pub(super) fn reading(&self) -> usize {
        self.decoder(0).classes().iter().filter(|class| class.reads).map(|class| class.workers.get()).sum()
    }

    /// Device memory of all workers.
    pub(super) fn device_bytes(&self) -> u64 {
        let decoder = self.decoder(0);
        Self::sum(&*decoder, |class| decoder.device_bytes(class))
    }

    /// Host memory of samples on their way between classes.
    pub(super) fn ready_bytes(&self) -> u64 {
        if self.decoder(0).classes().iter().all(|class| class.reads) { 0 } else { READY_BYTES }
    }

    /// Whether the largest image decides how much scratch there is.
    pub(super) const fn decodes_on_cpu(&self) -> bool {
        matches!(self, Self::Made(_))
    }
}
