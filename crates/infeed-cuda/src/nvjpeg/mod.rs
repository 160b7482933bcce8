//! NVIDIA's JPEG decoder, in three storeys.
//!
//! ```text
//! hardware.rs  Hardware: batches for the JPEG engines   ┐ safe: lengths come from nvJPEG's own parse, memory lives until
//! hybrid.rs    Hybrid: single images, Huffman on the CPU┘ the work on it is done, every object is destroyed once
//! safe.rs      owned handles, states, streams, parameters, buffers
//! result.rs    statuses as errors
//! ffi.rs       the functions, loaded by name and compared with the header
//! places.rs    where it is looked for
//! ```
//!
//! What a newcomer would get wrong:
//!
//! 1. Engines of Hopper GPUs ignore the order of their stream when they write pixels: the *host* must know that an
//!    output is idle before `nvjpegDecodeBatchedEx` is called. An event that the stream waits for is not enough.
//! 2. One bad image fails its whole batch. Each one's header is asked about before, and the batch's images are tried elsewhere.
//! 3. A container may have the driver and the engines, and not the library that nvJPEG reaches them by: `nvcuvid`.
//! 4. Engines make planes and no RGB: asked for RGB with interpolated colour, nvJPEG 13 makes a decoder anew whenever the
//!    size of images changes, which takes 6 ms a batch and the driver's locks. `cuda/colour.cu` makes RGB.
//! 5. nvJPEG says the same for a bad image and a lost GPU. Whether the stream still works tells them apart.

mod ffi;
mod hardware;
mod hybrid;
mod places;
mod result;
mod safe;

pub use ffi::find;
pub use ffi::nvcuvid;
pub use hardware::{BatchDecoder, Engines, Hardware, HardwareSize, HostTimes, Staged, engines};
pub use hybrid::{Hybrid, HybridSize, usable};
pub use infeed_core::gpu::NvJpegLibrary;
pub use places::look_in;
pub use safe::{Chroma, Coded, Failure};
