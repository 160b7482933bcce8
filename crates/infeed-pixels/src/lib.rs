//! From encoded bytes to finished rows, on the CPU. **Internal: no promise of stability**; users depend on `infeed`.
//!
//! ```text
//! transform   steps, drawn for a sample ─ lowered ─▶ parameters of kernels
//! codec       an image file ─▶ pixels or planes, as much as the crop needs ─▶ rows, by workers that the engine drives
//! accelerator the interface to a GPU; crates that drive one implement it
//! kernels     resample, steps on pictures, mixing of batches: the same bits at each SIMD level, and on a GPU
//! ```
//!
//! **Boundary**: reads no files and starts no threads. One call makes one row, on the calling thread. `infeed-cuda`
//! does the GPU's work, with the parameters that this crate makes.
//!
//! Only `kernels` and the calls of libwebp (`codec/webp`) contain `unsafe` code. They promise that reads and writes stay
//! inside the slices they are given, whatever the parameters or the file.
#![deny(unsafe_code)]

pub mod accelerator;
pub mod codec;
pub mod kernels;
pub mod transform;
