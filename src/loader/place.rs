//! The device of the batches (host memory or a GPU) and its decoder.

use std::{num::NonZeroUsize, sync::Arc};

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
    accelerator::{Accelerator, DecoderWanted, MakeDecoder},
    codec::{Cpu, Decode, Decoder, ImageCodec, Several},
    kernels::{Mixer, RowScratch},
};

use super::LoaderConfig;
use crate::{
    device::{driver, of_rank},
    engine::READY_BYTES,
};

/// A device that works. Clones are handles to the same device.
#[derive(Clone, Debug)]
pub(super) enum BatchDevice {
    Host,
    /// Host memory with page-locked rows, for copies to this GPU.
    Pinned(Arc<dyn Accelerator>),
    /// For the built-in decoders.
    Gpu(Arc<dyn Accelerator>),
    /// For a decoder of the user's.
    Foreign(Arc<dyn Accelerator>),
}

/// The requirements of a built-in decoder on one device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Workload {
    /// Most decode threads that read.
    pub(super) most_threads: NonZeroUsize,
    /// Bytes of the longest row.
    pub(super) row_bytes: usize,
    /// Memory there for the steps on a row's images.
    pub(super) steps: RowScratch,
    /// Whether there are image files to decode.
    pub(super) has_files: bool,
    /// Bytes of one batch of each rank on the device.
    pub(super) device_batch: u64,
}

/// The decoder before it is made, for questions about its memory: given by the user, or to be made for a largest image,
/// with a part for each device.
pub(super) enum Recipe {
    Given(Arc<dyn Decoder>),
    Made(Vec<(Device, MakeDecoder)>),
}

impl BatchDevice {
    /// The device of the config; for `auto` a GPU if one works, otherwise the CPU.
    pub(super) fn find(config: &LoaderConfig, decoder: Option<&Arc<dyn Decoder>>) -> Result<Self> {
        let place = match (config.device, decoder) {
            (device, Some(decoder)) => Self::of_decoder(device, &**decoder)?,
            (Some(device), None) => Self::of_device(device)?,
            (None, None) => Self::best(config)?,
        };
        place.pinned(config)
    }

    /// Host memory, page-locked if the config says so. No effect on a GPU.
    fn pinned(self, config: &LoaderConfig) -> Result<Self> {
        if !config.pin_memory || self.is_device() {
            return Ok(self);
        }
        let gpus = driver::gpus().map_err(|why| {
            Error::new(ErrorKind::Device, format!("pin_memory needs a GPU that copies from the memory: {why}"))
                .with_hint("omit pin_memory")
        })?;
        let gpu = driver::open(of_rank(config.shard.local_rank(), gpus.len()))?;
        gpu.check_marks().map_err(|error| error.at_object("pin_memory"))?;
        Ok(Self::Pinned(gpu))
    }

    /// These devices, in this order. A device that is listed twice is opened once.
    pub(super) fn each(
        devices: &[Device],
        config: &LoaderConfig,
        decoder: Option<&Arc<dyn Decoder>>,
    ) -> Result<Vec<Self>> {
        let mut places: Vec<Self> = Vec::new();
        for device in devices {
            let known = places.iter().find(|place| place.device() == *device).cloned();
            let found = || match decoder {
                // A user's decoder makes rows on one device, so all devices must be this one.
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
        let gpu = driver::open(index)?;
        gpu.load()?;
        Ok(Self::Gpu(gpu))
    }

    fn best(config: &LoaderConfig) -> Result<Self> {
        let must = config.decode == Decode::Gpu;
        let gpus = match driver::gpus() {
            Ok(gpus) => gpus.len(),
            Err(why) if must => {
                let what = format!("{DECODE_GPU} needs a GPU: {why}");
                return Err(Error::new(ErrorKind::Device, what).with_hint(format!("leave {DECODE} on auto")));
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

    /// The device of a user's decoder, by its classes.
    fn of_decoder(wanted: Option<Device>, decoder: &dyn Decoder) -> Result<Self> {
        let mut devices = decoder.classes().iter().map(|class| class.device);
        let device = devices.next().unwrap_or_default();
        if let Some(other) = devices.find(|other| *other != device) {
            let what = format!("decoder {} makes rows on {device} and on {other}", decoder.name());
            return Err(Error::config(what).with_hint("use a decoder for each device"));
        }
        if let Some(wanted) = wanted.filter(|wanted| *wanted != device) {
            let what = format!("decoder {} makes rows on {device}, {DEVICE} is {wanted}", decoder.name());
            return Err(Error::config(what).with_hint(format!("set {DEVICE} to {device}")));
        }
        match device {
            Device::Cpu => Ok(Self::Host),
            Device::Cuda(index) => driver::open(index).map(Self::Foreign),
        }
    }

    /// The GPU on which batches are made.
    pub(super) fn gpu_of_batches(&self) -> Option<&Arc<dyn Accelerator>> {
        match self {
            Self::Host | Self::Pinned(_) => None,
            Self::Gpu(gpu) | Self::Foreign(gpu) => Some(gpu),
        }
    }

    /// A pool of buffers of `rows` rows for batches that are handed over; it keeps at most `most` buffers.
    pub(super) fn pool(&self, rows: usize, row_bytes: usize, most: usize) -> Result<Pool> {
        match self {
            Self::Host => Pool::new(rows, row_bytes, most),
            Self::Pinned(gpu) => Pool::pinned(gpu, rows, row_bytes, most),
            Self::Gpu(gpu) | Self::Foreign(gpu) => Pool::on_device(gpu, rows, row_bytes, most),
        }
    }

    /// The mixer of batches on this device, if the CPU does not mix them.
    pub(super) fn mixer(&self, batch_size: usize) -> Result<Option<Arc<dyn Mixer>>> {
        self.gpu_of_batches().map(|gpu| gpu.mixer(batch_size)).transpose()
    }

    pub(super) fn is_device(&self) -> bool {
        self.gpu_of_batches().is_some()
    }

    pub(super) fn device(&self) -> Device {
        self.gpu_of_batches().map_or(Device::Cpu, |gpu| Device::Cuda(gpu.index()))
    }

    /// The part of the built-in decoder for this device.
    pub(super) fn make(
        &self,
        config: &LoaderConfig,
        codecs: Arc<[Arc<dyn ImageCodec>]>,
        workload: &Workload,
    ) -> Result<(Device, MakeDecoder)> {
        let make: MakeDecoder = match self {
            Self::Gpu(gpu) => {
                let &Workload { most_threads, row_bytes, steps, has_files, device_batch } = workload;
                gpu.decoder(&DecoderWanted {
                    codecs,
                    decode: config.decode,
                    has_files,
                    most_threads,
                    row_bytes,
                    steps,
                    device_batch,
                    streams: config.streams,
                    device_budget: config.device_budget,
                    gpu_split: config.gpu_split,
                    cut: config.decode_cut,
                })?
            }
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

/// Rejects batches in host memory if JPEGs are to be decoded on a GPU.
pub(super) fn check_decode(decode: Decode, device: Device) -> Result<()> {
    if (decode, device) != (Decode::Gpu, Device::Cpu) {
        return Ok(());
    }
    let what = format!("{DECODE_GPU} decodes on a GPU, and {DEVICE} is cpu");
    Err(Error::config(what).with_hint(format!("set {DEVICE} to cuda:0 or another GPU, or leave {DECODE} on auto")))
}

/// Rejects settings that have no effect on a user's decoder.
pub(super) fn check_decoder(decode: Decode, decoder: Option<&Arc<dyn Decoder>>) -> Result<()> {
    match decoder {
        Some(decoder) if decode != Decode::Auto => {
            let what = format!("{DECODE} is for this crate's decoders, and {} is another", decoder.name());
            Err(Error::config(what).with_hint(format!("leave {DECODE} on auto")))
        }
        _ => Ok(()),
    }
}

impl Recipe {
    /// The parts, with `threads` that read, shared by all parts.
    fn parts(&self, most: u64, threads: NonZeroUsize) -> Vec<(Device, Arc<dyn Decoder>)> {
        match self {
            Self::Given(decoder) => {
                let device = decoder.classes().first().map(|class| class.device).unwrap_or_default();
                vec![(device, Arc::clone(decoder))]
            }
            Self::Made(parts) => {
                let devices = NonZeroUsize::new(parts.len()).unwrap_or(NonZeroUsize::MIN);
                // The engines of a device are compared with its share of the threads.
                let share = threads.get().div_ceil(devices.get());
                let share = NonZeroUsize::new(share).unwrap_or(NonZeroUsize::MIN);
                parts.iter().map(|(device, make)| (*device, make(most, share))).collect()
            }
        }
    }

    /// The decoder for images of at most this many bytes, with this many threads that read; a user's decoder has its
    /// own number.
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

    /// Host memory of all workers if images may have this size.
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

    /// Device memory of all workers.
    pub(super) fn device_bytes(&self, device: Device, threads: NonZeroUsize) -> u64 {
        let parts = self.parts(0, threads);
        let own = parts.iter().filter(|(other, _)| *other == device);
        let bytes = own.flat_map(|(_, part)| {
            part.classes().iter().enumerate().map(|(i, class)| {
                // All threads that read have memory on each device; a user's decoder has its own number of threads.
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

    /// Whether the largest image determines the scratch memory.
    pub(super) const fn decodes_on_cpu(&self) -> bool {
        matches!(self, Self::Made(_))
    }
}
