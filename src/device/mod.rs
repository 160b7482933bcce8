//! GPUs of this machine, and handles of a trainer's CUDA streams and events.
//!
//! - [`devices()`] lists the GPUs, or why there are none.
//! - A trainer's [`CudaStream`] or [`CudaEvent`] tells the loader until when a tensor is read, see
//!   [`Tensor::device_ptr`](crate::Tensor::device_ptr).
//! - With the feature `dlpack` a tensor goes to another framework without a copy.

mod devices;
#[cfg(feature = "dlpack")]
#[allow(unsafe_code, reason = "memory that others describe; each use says why it is sound")]
#[doc(hidden)]
pub mod dlpack;
pub(crate) mod driver;

#[doc(hidden)]
pub use devices::gpu_of_rank;
pub(crate) use devices::of_rank;
pub use devices::{Devices, devices};
#[cfg(feature = "dlpack")]
pub use dlpack::{Dlpack, DlpackAbi};
#[doc(inline)]
pub use infeed_core::{
    gpu::{Gpu, NvJpegLibrary},
    handles::{CudaEvent, CudaStream},
    types::Device,
};

pub use crate::tensor::DevicePtr;
