//! GPUs: which there are, or why there are none, and work on them.
//!
//! ```text
//! driver.rs   the driver's functions, loaded at run time; the look for GPUs
//! context.rs  Context, Stream, Event, DeviceMemory, Pinned: handles, owned and destroyed once
//! exit.rs     no call when the process ends
//! block.rs    the memory of a batch, and who still reads it
//! pinned.rs   the same in page-locked host memory
//! kernels.rs  infeed's kernels, loaded on a GPU
//! upload.rs   UploadStream: what one thread gives to a GPU: pixels up, resample, rows out
//! measure.rs  what memory and link can do, for benchmarks
//! absent.rs   the same names in builds that know no GPU
//! ```
//!
//! The driver (`libcuda.so.1`) and nvJPEG are loaded by name at run time, so one binary serves machines with and without
//! them. What a newcomer would get wrong:
//!
//! 1. No call of the driver is made before `driver` has found every function of it: a machine without a GPU is usual.
//! 2. Memory is ordered by host waits between our threads and by events towards the trainer; nothing relies on the
//!    default stream.
//! 3. A `Drop` may run on the trainer's thread. What would wait there is a mistake, see `block`.

#[cfg(not(all(feature = "cuda", target_os = "linux")))]
mod absent;
#[cfg(all(feature = "cuda", target_os = "linux"))]
mod block;
#[cfg(all(feature = "cuda", target_os = "linux"))]
mod context;
#[cfg(all(feature = "cuda", target_os = "linux"))]
mod driver;
#[cfg(all(feature = "cuda", target_os = "linux"))]
mod exit;
#[cfg(all(feature = "cuda", target_os = "linux"))]
mod kernels;
#[cfg(all(feature = "cuda", target_os = "linux"))]
mod measure;
#[cfg(all(feature = "cuda", target_os = "linux"))]
mod mixer;
#[cfg(all(feature = "cuda", target_os = "linux"))]
mod pinned;
#[cfg(all(feature = "cuda", target_os = "linux"))]
mod ptx;
#[cfg(all(feature = "cuda", target_os = "linux"))]
mod upload;

#[cfg(not(all(feature = "cuda", target_os = "linux")))]
pub(super) use absent::MISSING;
#[cfg(not(all(feature = "cuda", target_os = "linux")))]
pub(crate) use absent::probe as gpus;
#[cfg(not(all(feature = "cuda", target_os = "linux")))]
pub use absent::{Context, Kernels, Mixer};
#[cfg(all(feature = "cuda", target_os = "linux"))]
pub use context::{Context, Priority};
#[cfg(all(feature = "cuda", target_os = "linux"))]
pub(super) use context::{DeviceMemory, Pinned, Stream};
#[cfg(all(feature = "cuda", target_os = "linux"))]
pub(crate) use driver::probe as gpus;
#[cfg(all(feature = "cuda", target_os = "linux"))]
pub(super) use exit::register as before_exit;
pub use infeed_core::gpu::Gpu;
pub use infeed_core::handles::{CudaEvent, CudaStream};
#[cfg(all(feature = "cuda", target_os = "linux"))]
pub use kernels::Kernels;
#[cfg(all(feature = "cuda", target_os = "linux"))]
pub use measure::{Copies, Meter};
#[cfg(all(feature = "cuda", target_os = "linux"))]
pub use mixer::Mixer;
#[cfg(all(feature = "cuda", target_os = "linux"))]
pub use ptx::{PICTURE_PTX, RESAMPLE_PTX};
#[cfg(all(feature = "cuda", target_os = "linux"))]
pub(super) use upload::DevicePixels;
#[cfg(all(feature = "cuda", target_os = "linux"))]
pub use upload::{Held, Ticket, UploadSize, UploadStream};
