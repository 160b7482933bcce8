//! NVIDIA's JPEG decoder, in three layers.
//!
//! ```text
//! hardware.rs  Hardware: batches for the JPEG engines   ┐ safe: lengths come from nvJPEG's own parse, memory lives until
//! hybrid.rs    Hybrid: single images, Huffman on the CPU┘ the work on it is done, every object is destroyed once
//! safe.rs      owned handles, states, streams, parameters, buffers
//! result.rs    errors from status codes
//! ffi.rs       the functions, loaded by name and compared with the header
//! places.rs    where the library is searched
//! ```
//!
//! Five things that are easy to get wrong:
//!
//! 1. Engines of Hopper GPUs ignore the order of their stream when they write pixels: the *host* must make sure that an
//!    output is idle before it calls `nvjpegDecodeBatchedEx`. An event that the stream waits for is not enough.
//! 2. One bad image fails its whole batch. So each header is checked with nvJPEG before, and the images of a failed
//!    batch are decoded by another class.
//! 3. A container may have the driver and the engines, but not `nvcuvid`, the library through which nvJPEG uses them.
//! 4. The engines are used for planes, not for RGB. For RGB with interpolated colour, nvJPEG 13 creates a new decoder
//!    whenever the size of images changes, which takes 6 ms per batch and the driver's locks. `cuda/colour.cu` makes
//!    RGB.
//! 5. nvJPEG returns the same status for a bad image and for a lost GPU. They differ in whether the stream still works.

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
