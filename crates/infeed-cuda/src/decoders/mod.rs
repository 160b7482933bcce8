//! Decoders whose rows are in GPU memory.
#![forbid(unsafe_code)]

mod cuda_raw;
mod nvjpeg;

pub use cuda_raw::CudaRaw;
pub use nvjpeg::{NvJpeg, NvJpegOptions, NvJpegPlan};
