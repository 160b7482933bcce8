//! infeed on NVIDIA GPUs. **Internal: no promise of stability**; users depend on `infeed`.
//!
//! ```text
//! gpu        Gpu: what a loader needs of a GPU ([`Accelerator`](infeed_pixels::accelerator::Accelerator))
//! decoders   CudaRaw: the CPU decodes, a kernel makes the row ◀─ nvjpeg: in addition, JPEG engines decode
//! nvjpeg     the library, loaded by name, in three layers
//! cuda       the driver, loaded by name: contexts, streams, memory of batches, kernels, uploads
//! nvtx       ranges for NVIDIA's profilers
//! ```
//!
//! `integration/gpu/ptx.py` compiles each `.cu` to the `.ptx` next to it. A test checks that they match.
//!
//! **Boundary**: empty except on Linux. Without a driver, GPU or library it returns errors, never panics or aborts, and
//! it links none of them. It starts no threads: workers run on the engine's threads.
//!
//! | module | guarantees, although it has `unsafe` |
//! |---|---|
//! | [`cuda`] | each handle is destroyed once; memory stays alive until the work that uses it is done |
//! | [`nvjpeg`] | calls only functions whose signatures were compared with nvJPEG's header; no pixel is written outside the memory allocated for it |
//! | [`nvtx`] | loads the library that a profiler names and calls only the functions that it put into our table |
#![cfg(target_os = "linux")]

pub mod cuda;
pub mod decoders;
mod gpu;
mod library;
pub mod nvjpeg;
pub mod nvtx;

pub use cuda::gpus;
pub use gpu::open;
