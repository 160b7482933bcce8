//! What `rows` needs of memory that a GPU driver allocated. The driver's crate implements it. Methods are called per
//! batch or part of a batch, never per sample.

use std::{fmt, sync::Arc};

use super::handles::{CudaEvent, CudaStream};
use crate::error::Result;

/// A GPU on which batches are allocated.
pub trait GpuBuffers: fmt::Debug + Send + Sync {
    /// Checks that the driver can report when all copies from page-locked memory are done.
    ///
    /// # Errors
    /// `Device` if it can't.
    fn check_marks(&self) -> Result<()>;

    /// Allocates `len` bytes on the GPU.
    ///
    /// # Errors
    /// `OutOfMemory`; `Device` if the GPU failed.
    fn device_buffer(&self, len: usize) -> Result<Box<dyn DeviceBuffer>>;

    /// Allocates `len` page-locked bytes on the host, zeroed.
    ///
    /// # Errors
    /// Those of [`device_buffer`](Self::device_buffer).
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

/// Memory that work outside this crate may still read after its last owner is gone.
pub trait ReadBehind: fmt::Debug + Send + Sync {
    /// Called when no owner is left: notes the end of all work that reads the memory. Does not block.
    fn retire(&self);

    /// Whether the memory may be written again.
    fn is_free(&self) -> bool;

    /// Waits until the memory may be written again. If that can't be determined, the memory is lost.
    fn wait_until_free(&self);

    /// Whether it can never be determined that the memory is free.
    fn is_lost(&self) -> bool;
}

/// Page-locked memory of the host.
///
/// # Safety
/// `start` always returns the same address, aligned to [`ALIGN`](super::rows::ALIGN), of as many initialised bytes as
/// were requested. They stay valid until the value is dropped, and no other code writes them.
pub unsafe trait PinnedBuffer: ReadBehind {
    /// Address of the first byte.
    fn start(&self) -> *mut u8;

    /// The memory is handed to a trainer: from now on copies from it may be started.
    fn lend(&self);
}

/// Memory of a GPU. A range outside it panics. All calls that copy wait for the copy.
#[allow(clippy::len_without_is_empty, reason = "a length in bytes; nobody asks for none")]
pub trait DeviceBuffer: ReadBehind {
    /// The number in `cuda:0`.
    fn index(&self) -> u32;

    /// Address of the first byte.
    fn address(&self) -> u64;

    /// Length in bytes.
    fn len(&self) -> usize;

    /// Notes that `stream` reads the memory from now on.
    fn read_by(&self, stream: CudaStream);

    /// The memory is in use until `event` has passed, as it was recorded last.
    ///
    /// # Errors
    /// `Device` if the event is refused.
    fn release_after(&self, event: CudaEvent) -> Result<()>;

    /// Copies `len` bytes within the memory. The two ranges must not overlap.
    ///
    /// # Errors
    /// `Device` if the GPU failed; the same for the methods below.
    fn copy_within(&self, from: usize, to: usize, len: usize) -> Result<()>;

    /// Sets bytes to zero.
    ///
    /// # Errors
    /// As above.
    fn clear(&self, at: usize, len: usize) -> Result<()>;

    /// Copies bytes from the host to the GPU.
    ///
    /// # Errors
    /// As above.
    fn upload(&self, at: usize, bytes: &[u8]) -> Result<()>;

    /// Copies bytes from the GPU to the host.
    ///
    /// # Errors
    /// As above.
    fn download(&self, at: usize, bytes: &mut [u8]) -> Result<()>;
}
