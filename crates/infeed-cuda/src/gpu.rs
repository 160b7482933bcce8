//! A GPU as an accelerator of a loader.

use std::sync::{Arc, OnceLock};

use infeed_core::{
    buffer::{DeviceBuffer, GpuBuffers, PinnedBuffer},
    error::{
        Error, Result,
        setting::{DECODE, DECODE_GPU},
    },
    handles::CudaStream,
};
use infeed_pixels::{
    accelerator::{Accelerator, DecoderWanted, MakeDecoder},
    codec::{Decode, Decoder, ImageCodec},
    kernels,
};

use crate::{
    cuda::{Context, DeviceBlock, Kernels, Mixer},
    decoders::{CudaRaw, NvJpeg, NvJpegOptions, NvJpegPlan},
};

/// Opens the GPU `cuda:index`. The first call for a GPU may take a second.
///
/// # Errors
/// `Device`: there is no such GPU, or it can't be used. The message gives the reason.
pub fn open(index: u32) -> Result<Arc<dyn Accelerator>> {
    Ok(Arc::new(Gpu { context: Context::open(index)?, kernels: OnceLock::new() }))
}

#[derive(Debug)]
struct Gpu {
    context: Context,
    /// Loaded once: a second `Gpu` for the same device shares these kernels while they live.
    kernels: OnceLock<Arc<Kernels>>,
}

impl Gpu {
    fn kernels(&self) -> Result<&Arc<Kernels>> {
        if let Some(loaded) = self.kernels.get() {
            return Ok(loaded);
        }
        let loaded = Kernels::load(&self.context)?;
        Ok(self.kernels.get_or_init(|| loaded))
    }
}

impl GpuBuffers for Gpu {
    fn check_marks(&self) -> Result<()> {
        self.context.check_marks()
    }

    fn device_buffer(&self, len: usize) -> Result<Box<dyn DeviceBuffer>> {
        self.context.device_buffer(len)
    }

    fn pinned_buffer(&self, len: usize) -> Result<Box<dyn PinnedBuffer>> {
        self.context.pinned_buffer(len)
    }
}

impl Accelerator for Gpu {
    fn index(&self) -> u32 {
        self.context.index()
    }

    fn memory(&self) -> Result<(u64, u64)> {
        self.context.memory()
    }

    fn load(&self) -> Result<()> {
        self.kernels().map(drop)
    }

    fn mixer(&self, batch_size: usize) -> Result<Arc<dyn kernels::Mixer>> {
        let mixer = Mixer::new(self.kernels()?, batch_size)?;
        Ok(mixer)
    }

    fn decoder(&self, wanted: &DecoderWanted) -> Result<MakeDecoder> {
        let &DecoderWanted { decode, has_files, most_threads, row_bytes, steps, streams, .. } = wanted;
        if has_files && decode == Decode::Gpu {
            check_codec(&wanted.codecs)?;
        }
        let raw = {
            let (kernels, codecs) = (Arc::clone(self.kernels()?), Arc::clone(&wanted.codecs));
            move |most, threads| {
                CudaRaw::new(threads, codecs.iter().cloned(), most, &kernels, row_bytes).with_steps(steps)
            }
        };
        if !has_files || decode == Decode::Cpu {
            return Ok(Box::new(move |most, threads| Arc::new(raw(most, threads))));
        }
        // Memory of batches and of the other threads has priority; nvJPEG gets the rest.
        let threads = raw(0, most_threads).device_bytes(0).saturating_mul(most_threads.get() as u64);
        // Steps on pictures also need memory on the engines' two threads and on the streams.
        let others = 2 + streams.unwrap_or(0) as u64;
        let steps = raw(0, most_threads).steps_bytes().saturating_mul(others);
        let taken = wanted.device_batch.saturating_mul(4).saturating_add(threads).saturating_add(steps);
        let rest = |budget: u64| budget.saturating_sub(taken);
        let most = match wanted.device_budget {
            Some(budget) => rest(budget),
            None => rest(self.context.memory()?.0 / 2),
        };
        let options = NvJpegOptions::default().with_split(wanted.gpu_split).with_device_bytes(most);
        let options = options.with_cut(wanted.cut).with_streams(streams.unwrap_or(0));
        let plan = match decode {
            Decode::Gpu => NvJpegPlan::require(&self.context, options)?,
            _ => NvJpegPlan::find(&self.context, options),
        };
        Ok(Box::new(move |most, threads| Arc::new(NvJpeg::new(raw(most, threads), plan.clone()))))
    }

    unsafe fn lent(
        &self,
        address: u64,
        len: usize,
        stream: CudaStream,
        owner: Box<dyn Send + Sync>,
    ) -> Result<Box<dyn DeviceBuffer>> {
        // SAFETY: the caller guarantees it.
        let block = unsafe { DeviceBlock::foreign(&self.context, address, len, stream, owner) }?;
        Ok(Box::new(block))
    }
}

/// An error if a GPU is to decode JPEGs, but a codec allows only the CPU for them.
fn check_codec(codecs: &[Arc<dyn ImageCodec>]) -> Result<()> {
    let taking = codecs.iter().find(|codec| codec.recognises(&[0xff, 0xd8, 0xff, 0xe0]));
    match taking.filter(|codec| !codec.is_interchangeable()) {
        Some(codec) => {
            let what = format!("the codec `{}` decodes JPEGs only on the CPU, but {DECODE_GPU} is set", codec.name());
            Err(Error::config(what).with_hint(format!("omit the codec or its settings, or leave {DECODE} on auto")))
        }
        None => Ok(()),
    }
}
