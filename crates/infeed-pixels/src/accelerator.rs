//! What a loader asks of a GPU. Whoever drives one implements it; a build without such a crate has none.

use std::{num::NonZeroUsize, sync::Arc};

use infeed_core::{
    buffer::{DeviceBuffer, GpuBuffers},
    error::Result,
    handles::CudaStream,
};

use crate::{
    codec::{Decode, Decoder, ImageCodec, Split},
    kernels::{Mixer, RowRoom},
};

/// A GPU, found to work.
pub trait Accelerator: GpuBuffers {
    /// The number in `cuda:0`.
    fn index(&self) -> u32;

    /// Bytes of its memory: free, and in all.
    ///
    /// # Errors
    /// `Device` when the GPU failed.
    fn memory(&self) -> Result<(u64, u64)>;

    /// Loads what makes rows there, once; the first time may take a second. What needs it calls it.
    ///
    /// # Errors
    /// `Device` for a driver that does not take it.
    fn load(&self) -> Result<()>;

    /// What mixes batches of up to so many rows.
    ///
    /// # Errors
    /// `OutOfMemory` and `Device` as the driver says.
    fn mixer(&self, batch_size: usize) -> Result<Arc<dyn Mixer>>;

    /// How to make the built-in decoder for it.
    ///
    /// # Errors
    /// `Config` and `Device` where the GPU must decode and can't.
    fn decoder(&self, wanted: &DecoderWanted) -> Result<MakeDecoder>;

    /// Memory of this GPU that another library lends. Waits on the host for what `stream` was given so far, so that the bytes
    /// are complete. When its last owner is gone, `stream` waits for all readers, then `owner` is dropped.
    ///
    /// # Errors
    /// `Device` when the GPU failed.
    ///
    /// # Safety
    /// `len` bytes begin at `address` in the memory of this GPU; they stay valid, and nobody writes them, until `owner` is
    /// dropped. Whoever wrote them did so before or on `stream`, and will use the memory for something else only behind it.
    #[allow(unsafe_code, reason = "a promise that implementations rely on")]
    unsafe fn lent(
        &self,
        address: u64,
        len: usize,
        stream: CudaStream,
        owner: Box<dyn Send + Sync>,
    ) -> Result<Box<dyn DeviceBuffer>>;
}

/// Makes a decoder for images of at most so many bytes, with so many threads that read.
pub type MakeDecoder = Box<dyn Fn(u64, NonZeroUsize) -> Arc<dyn Decoder>>;

/// What a decoder on a GPU shall do.
#[derive(Clone, Debug)]
pub struct DecoderWanted {
    /// Who decodes which file on the CPU.
    pub codecs: Arc<[Arc<dyn ImageCodec>]>,
    /// Who decodes.
    pub decode: Decode,
    /// Whether there are image files to decode.
    pub has_files: bool,
    /// Decoding threads that read, at most.
    pub most_threads: NonZeroUsize,
    /// Bytes of the longest row.
    pub row_bytes: usize,
    /// What steps on a row's pictures take there.
    pub steps: RowRoom,
    /// Bytes of a batch on the device, of all ranks that have theirs there.
    pub device_batch: u64,
    /// Streams that decode single images; `None`: none.
    pub streams: Option<usize>,
    /// The most memory that may be taken there; `None`: half of what is free.
    pub device_budget: Option<u64>,
    /// How images are shared out.
    pub split: Split,
    /// Whether engines decode no more rows than the crop needs.
    pub cut: bool,
}
