//! Lists the GPUs, or the reason why there are none, and runs work on them.
//!
//! ```text
//! driver.rs   the driver's functions, loaded at run time; the list of GPUs
//! context.rs  Context, Stream, Event, DeviceMemory, Pinned: handles, owned and destroyed once
//! exit.rs     prevents calls while the process exits
//! block.rs    the memory of a batch, and the streams that still read it
//! pinned.rs   the same in page-locked host memory
//! buffers.rs  allocates both for `Rows`
//! colour.rs   arguments of the kernel that converts planes to RGB
//! kernels.rs  infeed's kernels, loaded on a GPU
//! upload.rs   UploadStream: the work of one thread on a GPU: upload pixels, resample, write rows
//! mixer.rs    mixes the rows of a batch
//! measure.rs  the speed of memory and link, for benchmarks
//! ```
//!
//! The driver (`libcuda.so.1`) and nvJPEG are loaded by name at run time, so one binary works on machines with and
//! without them. Three things that are easy to get wrong:
//!
//! 1. `driver` looks up every function before any is called: machines without a GPU are common.
//! 2. Host waits order the use of memory between our threads, and events between us and the trainer. Nothing relies on
//!    the default stream.
//! 3. A `Drop` may run on the trainer's thread, so it must not wait, see `block`.

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
pub use upload::{HeldWindow, Ticket, UploadSize, UploadStream};
