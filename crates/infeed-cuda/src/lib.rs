//! infeed on GPUs of NVIDIA. **Internal: no promise of stability**; users depend on `infeed`.
//!
//! ```text
//! gpu        Gpu: what a loader asks of one ([`Accelerator`](infeed_pixels::accelerator::Accelerator))
//! decoders   CudaRaw: the CPU decodes, a kernel makes the row ◀─ nvjpeg: engines decode beside it
//! nvjpeg     the library, loaded by name, in three storeys
//! cuda       the driver, loaded by name: contexts, streams, memory of batches, kernels, uploads
//! nvtx       ranges for NVIDIA's profilers
//! ```
//!
//! The `.ptx` are made of the `.cu` beside them by `integration/gpu/ptx.py`, and a test says whether they still are.
//!
//! **Boundary**: empty but on Linux. Never panics or aborts when there is no driver, GPU or library, and links none of them. No
//! thread is started here: workers run on the engine's.
//!
//! | room | promises, although it has `unsafe` |
//! |---|---|
//! | [`cuda`] | handles are destroyed once; memory under running work stays |
//! | [`nvjpeg`] | calls only functions whose signatures were compared with its header; no pixel is written outside the memory that was set aside for it |
//! | [`nvtx`] | loads the library that a profiler names and calls only what it put into our table |
#![cfg(target_os = "linux")]

pub mod cuda;
pub mod decoders;
mod gpu;
mod library;
pub mod nvjpeg;
pub mod nvtx;

pub use cuda::gpus;
pub use gpu::open;
