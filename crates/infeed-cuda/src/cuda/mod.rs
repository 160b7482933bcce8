//! GPUs: which there are, or why there are none, and work on them.
//!
//! ```text
//! driver.rs   the driver's functions, loaded at run time; the look for GPUs
//! context.rs  Context, Stream, Event, DeviceMemory, Pinned: handles, owned and destroyed once
//! exit.rs     no call when the process ends
//! block.rs    the memory of a batch, and who still reads it
//! buffers.rs  both, as rows ask for them
//! colour.rs   what the kernel takes that makes RGB of planes
//! pinned.rs   the same in page-locked host memory
//! kernels.rs  infeed's kernels, loaded on a GPU
//! upload.rs   UploadStream: what one thread gives to a GPU: pixels up, resample, rows out
//! measure.rs  what memory and link can do, for benchmarks
//! ```
//!
//! The driver (`libcuda.so.1`) and nvJPEG are loaded by name at run time, so one binary serves machines with and without
//! them. What a newcomer would get wrong:
//!
//! 1. No call of the driver is made before `driver` has found every function of it: a machine without a GPU is usual.
//! 2. Memory is ordered by host waits between our threads and by events towards the trainer; nothing relies on the
//!    default stream.
//! 3. A `Drop` may run on the trainer's thread. What would wait there is a mistake, see `block`.

mod block;
mod buffers;
mod colour;
mod context;
mod driver;
mod exit;
mod kernels;
mod measure;
mod mixer;
mod pinned;
mod ptx;
mod upload;

pub(crate) use block::DeviceBlock;
pub use colour::{DevicePlanes, PLANES_TO_RGB, ROWS as COLOUR_ROWS, THREADS as COLOUR_THREADS};
pub use context::{Context, Priority};
pub(crate) use context::{DeviceMemory, Pinned, Stream};
pub use driver::probe as gpus;
pub(crate) use exit::register as before_exit;
pub use infeed_core::gpu::Gpu;
pub use infeed_core::handles::{CudaEvent, CudaStream};
pub use kernels::Kernels;
pub use measure::{Copies, Meter};
pub use mixer::Mixer;
pub use ptx::{COLOUR_PTX, PICTURE_PTX, RESAMPLE_PTX};
pub(crate) use upload::DevicePixels;
pub use upload::{Held, Ticket, UploadSize, UploadStream};
