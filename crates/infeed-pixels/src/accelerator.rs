//! The interface between a loader and a GPU. Crates that drive a GPU implement it; a build without such a crate has no
//! GPU.

use std::{num::NonZeroUsize, sync::Arc};

use infeed_core::{
    buffer::{DeviceBuffer, GpuBuffers},
    error::Result,
    handles::CudaStream,
};

use crate::{
    codec::{Decode, Decoder, GpuSplit, ImageCodec},
    kernels::{Mixer, RowScratch},
};

/// A GPU that was checked and works.
pub trait Accelerator: GpuBuffers {
    /// The number in `cuda:0`.
    fn index(&self) -> u32;

    /// Bytes of its memory: free, and total.
    ///
    /// # Errors
    /// `Device` if the GPU failed.
    fn memory(&self) -> Result<(u64, u64)>;

    /// Loads the code that makes rows on the GPU, once. The first call may take a second. Methods that need the code
    /// call it.
    ///
    /// # Errors
    /// `Device` if the driver does not accept the code.
    fn load(&self) -> Result<()>;

    /// A mixer for batches of at most `batch_size` rows.
    ///
    /// # Errors
    /// `OutOfMemory` and `Device` as the driver reports them.
    fn mixer(&self, batch_size: usize) -> Result<Arc<dyn Mixer>>;

    /// Returns a function that makes the built-in decoder for this GPU.
    ///
    /// # Errors
    /// `Config` and `Device` if the GPU must decode and can't.
    fn decoder(&self, wanted: &DecoderWanted) -> Result<MakeDecoder>;

    /// Wraps memory of this GPU that another library lends. Waits on the host for the work that was queued on `stream`
    /// so far, so that the bytes are complete. When the last owner of the result is dropped, `stream` waits for all
    /// readers, then `owner` is dropped.
    ///
    /// # Errors
    /// `Device` if the GPU failed.
    ///
    /// # Safety
    /// `address` begins `len` bytes in the memory of this GPU. They stay valid, and nothing writes them, until `owner`
    /// is dropped. They were written before this call or on `stream`. The memory is reused for something else only by
    /// work that follows on `stream`.
    #[allow(unsafe_code, reason = "a promise that implementations rely on")]
    unsafe fn lent(
        &self,
        address: u64,
        len: usize,
        stream: CudaStream,
        owner: Box<dyn Send + Sync>,
    ) -> Result<Box<dyn DeviceBuffer>>;
}

/// Makes a decoder, given the most bytes of an image and the number of threads that read.
pub type MakeDecoder = Box<dyn Fn(u64, NonZeroUsize) -> Arc<dyn Decoder>>;

/// What a GPU's decoder must do.
#[derive(Clone, Debug)]
pub struct DecoderWanted {
    /// The codecs that decode files on the CPU.
    pub codecs: Arc<[Arc<dyn ImageCodec>]>,
    /// Whether the CPU or the GPU decodes JPEGs.
    pub decode: Decode,
    /// Whether there are image files to decode.
    pub has_files: bool,
    /// Most decoding threads that read.
    pub most_threads: NonZeroUsize,
    /// Bytes of the longest row.
    pub row_bytes: usize,
    /// GPU memory that steps on a row's pictures need.
    pub steps: RowScratch,
    /// Bytes of the batches on the device, for all ranks that use it.
    pub device_batch: u64,
    /// Number of streams that decode single images; `None`: no such streams.
    pub streams: Option<usize>,
    /// Most GPU memory that may be used; `None`: half of the free memory.
    pub device_budget: Option<u64>,
    /// How images are divided between decoders.
    pub gpu_split: GpuSplit,
    /// Whether the engines decode only the rows that the crop needs.
    pub cut: bool,
}
