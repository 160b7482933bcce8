//! What a [`Decoder`] of your own gets from the engine, and what it returns, for example to decode on other hardware.
//! **No promise of stability**: any version may change these items.
//!
//! A new kind of image file needs only an [`ImageCodec`](crate::codec::ImageCodec), and a step of your own only
//! [`Op::Custom`](crate::transform::Op::Custom).
//!
//! ```text
//! engine queue ─ Job (some rows of one batch) ─▶ Worker::submit … Worker::poll ─▶ Finished (rows + one outcome each)
//!                                                  │ CPU: ImageCodec (JPEG, PNG, …) → pixels or planes → resample into the row
//!                                                  └ GPU: bitstream or pixels up, decode and resample on one stream
//! ```
//!
//! With several devices in one process there is one decoder for each.

#[doc(no_inline)]
pub use infeed_core::random::SampleRng;
#[doc(inline)]
pub use infeed_core::rows::Rows;
#[cfg(all(feature = "cuda", target_os = "linux"))]
#[doc(inline)]
pub use infeed_cuda::decoders::{CudaRaw, NvJpeg, NvJpegOptions, NvJpegPlan};
#[cfg(feature = "jpeg")]
#[doc(inline)]
pub use infeed_pixels::codec::LearnScratch;
#[doc(inline)]
pub use infeed_pixels::{
    codec::{Class, ClassSet, Cpu, Decoder, Finished, Item, Job, Outcome, Wait, Worker, decoder_contract},
    kernels::{Pixels, Plane, Planes, Resampler},
    transform::{
        BatchSize, ChannelTable, Decoded, Drawn, Filter, Foreground, Intensity, Lowered, LoweredInstances,
        LoweredVolume, Map, PixelOp, Placer, ResampleParams, RowMaker, RowSpec, Sampling, VolumeAxis, Voxels,
    },
};
