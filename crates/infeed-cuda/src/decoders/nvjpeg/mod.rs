//! Decodes JPEGs with the CPU threads, with the GPU's JPEG engines, and on CPU and GPU together.
//!
//! ```text
//! cpu threads ─ read ─ route ─▶ queue ─┬─▶ cpu               decode, upload the window, resample
//!                                      ├─▶ nvjpeg-hardware   batches for the JPEG engines; one or more threads
//!                                      ├─▶ nvjpeg-cores      batches for the GPU's cores; only if enabled
//!                                      └─▶ nvjpeg-hybrid     Huffman on the thread, the rest on the GPU
//! ```
//!
//! Three things that are easy to get wrong:
//!
//! 1. Idle engines do not wait for a full batch: they get the jobs that there are.
//! 2. A class that fails gives the image back. Only the CPU class decides whether a file is good.
//! 3. The CPU decoder detects damage in the image data; the engines may decode it to wrong pixels.

mod hardware;
mod hybrid;
mod lack;
mod nvjpeg_decoder;
mod order;
mod plan;
mod route;

pub use self::{
    nvjpeg_decoder::NvJpeg,
    plan::{NvJpegOptions, NvJpegPlan},
};
