//! What rows ask of memory that the driver of a GPU gave. Its owner implements it; a call is made for a batch or a part of
//! one, never for a sample's pixels.

use std::{fmt, sync::Arc};

use super::handles::{CudaEvent, CudaStream};
use crate::error::Result;

/// A GPU, as whoever allocates batches for it sees it.
pub trait GpuBuffers: fmt::Debug + Send + Sync {
    /// Whether the driver can tell when all copies from page-locked memory are done.
    ///
    /// # Errors
    /// `Device` when it can't.
    fn check_marks(&self) -> Result<()>;

    /// So many bytes on the GPU.
    ///
    /// # Errors
    /// `OutOfMemory`, or `Device` when the GPU failed.
    fn device_buffer(&self, len: usize) -> Result<Box<dyn DeviceBuffer>>;

    /// So many page-locked bytes on the host, zeroed.
    ///
    /// # Errors
    /// As [`device_buffer`](Self::device_buffer).
    fn pinned_buffer(&self, len: usize) -> Result<Box<dyn PinnedBuffer>>;
}

impl<T: GpuBuffers + ?Sized> GpuBuffers for Arc<T> {
    fn check_marks(&self) -> Result<()> {
        (**self).check_marks()
    }

    fn device_buffer(&self, len: usize) -> Result<Box<dyn DeviceBuffer>> {
        (**self).device_buffer(len)
    }

    fn pinned_buffer(&self, len: usize) -> Result<Box<dyn PinnedBuffer>> {
        (**self).pinned_buffer(len)
    }
}

/// Memory that may still be read, after its last owner is gone, by work that nobody here sees.
pub trait ReadBehind: fmt::Debug + Send + Sync {
    /// No owner is left: notes the end of all that reads it. Does not block.
    fn retire(&self);

    /// Whether it may be written again.
    fn is_free(&self) -> bool;

    /// Waits until it may be written again. When that can't be known, it is lost.
    fn wait_until_free(&self);

    /// Whether nobody will ever know that it is free.
    fn is_lost(&self) -> bool;
}

/// Page-locked memory of the host.
///
/// # Safety
/// `start` is always the same, aligned to [`ALIGN`](super::rows::ALIGN), and begins as many initialised bytes as were asked
/// for. They stay valid until the value is dropped, and nobody else writes them.
pub unsafe trait PinnedBuffer: ReadBehind {
    /// The first byte.
    fn start(&self) -> *mut u8;

    /// A trainer gets it: from now on copies from it may be started.
    fn lend(&self);
}

/// Memory of a GPU. Ranges outside it panic; all calls that copy wait for the copy.
#[allow(clippy::len_without_is_empty, reason = "a length in bytes; nobody asks for none")]
pub trait DeviceBuffer: ReadBehind {
    /// The number in `cuda:0`.
    fn index(&self) -> u32;

    /// Of the first byte.
    fn address(&self) -> u64;

    /// Bytes.
    fn len(&self) -> usize;

    /// Notes that `stream` reads the memory from now on.
    fn read_by(&self, stream: CudaStream);

    /// The memory is in use until `event` has passed, as recorded last.
    ///
    /// # Errors
    /// `Device` when the event is refused.
    fn release_after(&self, event: CudaEvent) -> Result<()>;

    /// Copies `len` bytes within it; the two ranges share nothing.
    ///
    /// # Errors
    /// `Device` when the GPU failed, as those below.
    fn copy_within(&self, from: usize, to: usize, len: usize) -> Result<()>;

    /// Sets bytes to zero.
    ///
    /// # Errors
    /// As above.
    fn clear(&self, at: usize, len: usize) -> Result<()>;

    /// Copies bytes of the host in.
    ///
    /// # Errors
    /// As above.
    fn upload(&self, at: usize, bytes: &[u8]) -> Result<()>;

    /// Copies bytes to the host.
    ///
    /// # Errors
    /// As above.
    fn download(&self, at: usize, bytes: &mut [u8]) -> Result<()>;
}
