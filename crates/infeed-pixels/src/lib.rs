//! From encoded bytes to finished rows, on the CPU. **Internal: no promise of stability**; users depend on `infeed`.
//!
//! ```text
//! transform   steps, drawn for a sample ─ lowered ─▶ parameters of kernels
//! codec       an image file ─▶ pixels or planes, as much as the crop needs ─▶ rows, by workers that the engine drives
//! accelerator what a loader asks of a GPU, for whoever drives one
//! kernels     resample, steps on pictures, mixing of batches: the same bits at each SIMD level, and on a GPU
//! ```
//!
//! **Boundary**: reads nothing, starts no thread; one call makes one row, on the thread that makes it. What a GPU does is in
//! `infeed-cuda`, by the parameters that are made here.
//!
//! `unsafe` stands in `kernels` alone, which promises: reads and writes stay inside the slices they are given, whatever the
//! parameters.
#![deny(unsafe_code)]

pub mod accelerator;
pub mod codec;
pub mod kernels;
pub mod transform;
