//! From a batch in infeed's device memory to tensors in burn's: one copy on the GPU.
//!
//! cubecl, on which burn's CUDA backend stands, works on memory of its own pools and cannot wrap a foreign address. It does
//! tell the address of its own tensors; so a few of them are made once, and batches are copied into them in turn.
//!
//! cubecl keeps its streams to itself, so what it does is ordered by waiting on the host, in two places:
//! - after each copy, which takes microseconds and runs beside the kernels of the step before;
//! - each time all places were used, for the kernels that still read them. The queue of the GPU is empty then, for as long
//!   as it takes to queue the next step; with [`PLACES`] that is one step in 16.

use std::sync::Arc;

use burn::{
    backend::{Cuda, cuda::CudaDevice},
    prelude::{Backend, Int, Tensor},
};
use cudarc::driver::{CudaContext, result};
use infeed::{Batch, device::CudaStream};

use crate::{BATCH, Input, Result, from_host};

/// Labels are i64, as infeed's.
pub type Gpu = Cuda<f32, i64>;

const PLACES: usize = 16;
const PIXELS: usize = 3 * 32 * 32;

/// Burn's memory for batches.
pub struct Landing {
    device: CudaDevice,
    stream: Arc<cudarc::driver::CudaStream>,
    /// Of one axis, which is always contiguous: cubecl pads the rows of others.
    places: Vec<(Tensor<Gpu, 1>, Tensor<Gpu, 1, Int>)>,
    next: usize,
}

impl Landing {
    /// On the first GPU, as infeed numbers them.
    pub fn new() -> Result<(CudaDevice, Self)> {
        let device = CudaDevice::new(0);
        let stream = CudaContext::new(0)?.new_stream()?;
        let place = |_| (Tensor::empty([BATCH * PIXELS], &device), Tensor::empty([BATCH], &device));
        let places = (0..PLACES).map(place).collect();
        Ok((device.clone(), Self { device, stream, places, next: 0 }))
    }

    /// The batch as burn's tensors.
    pub fn input(&mut self, batch: &Batch) -> Result<Input<Gpu>> {
        let (pictures, labels) = (&batch["image"], &batch["label"]);
        if pictures.device() == infeed::Device::Cpu || labels.device() == infeed::Device::Cpu {
            return from_host(batch, &self.device);
        }
        if pictures.len() > BATCH * PIXELS || labels.len() > BATCH {
            return Err("the batch is larger than its place".into());
        }
        let at = self.next % PLACES;
        self.next += 1;
        if at == 0 {
            // The first time this waits for the allocations.
            Gpu::sync(&self.device).map_err(|error| format!("{error:?}"))?;
        }
        let (to_pictures, to_labels) = self.places[at].clone();
        self.copy(pictures, address(&to_pictures.clone().into_primitive().tensor())?)?;
        self.copy(labels, address(&to_labels.clone().into_primitive())?)?;
        self.stream.synchronize()?;
        let [count, channels, height, width] = pictures.shape() else { return Err("no pictures".into()) };
        let shape = [*count, *channels, *height, *width];
        if *count < BATCH {
            // The last batch of a test.
            let (pictures, labels) = (to_pictures.narrow(0, 0, pictures.len()), to_labels.narrow(0, 0, *count));
            return Ok((pictures.reshape(shape), labels));
        }
        Ok((to_pictures.reshape(shape), to_labels))
    }

    fn copy(&self, from: &infeed::Tensor, to: u64) -> Result<()> {
        // SAFETY: a stream of this GPU, which lives longer than any batch of the loop.
        let reader = unsafe { CudaStream::from_raw(self.stream.cu_stream().cast()) };
        let from_address = from.device_ptr(reader).ok_or("the tensor is not on the GPU")?;
        self.stream.context().bind_to_thread()?;
        let bytes = from.len() * from.dtype().size();
        // SAFETY: `bytes` lie at both addresses: the place was made for a whole batch, of the same types.
        Ok(unsafe { result::memcpy_dtod_async(to, from_address.as_raw(), bytes, self.stream.cu_stream()) }?)
    }
}

/// Where cubecl keeps a tensor. It stays there as long as the tensor lives.
fn address(tensor: &<Gpu as burn::tensor::backend::BackendTypes>::FloatTensorPrimitive) -> Result<u64> {
    let found = tensor.client.get_resource(tensor.handle.clone());
    Ok(found.map_err(|error| format!("{error:?}"))?.resource().ptr)
}
