//! JPEGs decoded on a GPU, by engines and by CPU and GPU together, beside the CPU threads.
//!
//! ```text
//! cpu threads ─ read ─ route ─▶ queue ─┬─▶ cpu               decode, upload the window, resample
//!                                      ├─▶ nvjpeg-hardware   batches for the JPEG engines; one thread, or more
//!                                      ├─▶ nvjpeg-cores      batches for the GPU's cores; only when asked for
//!                                      └─▶ nvjpeg-hybrid     Huffman on the thread, the rest on the GPU
//! ```
//!
//! What a newcomer would get wrong:
//!
//! 1. A batch is not waited for: the engines get what there is when they are idle.
//! 2. A class that fails gives the image back; the CPU class has the last word on whether a file is good.
//! 3. Damage in the image data that no header shows is found by the CPU's decoder; engines may make pixels of it.

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
