//! CUDA streams and events of other libraries. Their creators guarantee that they are valid.

use std::ffi::c_void;

/// A `CUstream` (the runtime's `cudaStream_t` is the same type): the queue of work that reads a tensor.
///
/// ```no_run
/// # fn launch(pixels: u64, stream: *mut std::ffi::c_void) {}
/// # fn train(loader: &infeed::Loader, raw: *mut std::ffi::c_void) -> infeed::Result<()> {
/// use infeed::device::CudaStream;
///
/// // SAFETY: a stream of this device, destroyed after the loop.
/// let stream = unsafe { CudaStream::from_raw(raw) };
/// for batch in loader.epoch(0).blocking() {
///     let batch = batch?;
///     if let Some(pixels) = batch["image"].device_ptr(stream) {
///         launch(pixels.as_raw(), stream.as_raw());
///     }
/// } // Each batch's memory is reused only after the work on `stream`.
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CudaStream(usize);

impl CudaStream {
    /// The legacy default stream of the tensor's device.
    pub const DEFAULT: Self = Self(0);

    /// The default stream of the calling thread, for programs that use one per thread. It is the stream of the thread
    /// that passes this handle, even if another thread drops the tensor.
    pub const PER_THREAD: Self = Self(2);

    /// A stream of another framework.
    ///
    /// # Safety
    /// - `stream` is null, or a stream of the device on which it will be used.
    /// - It lives until every tensor has been dropped whose address was requested with it, or that was lent or taken
    ///   with it.
    #[must_use]
    pub unsafe fn from_raw(stream: *mut c_void) -> Self {
        Self(stream as usize)
    }

    /// The handle.
    #[must_use]
    pub const fn as_raw(self) -> *mut c_void {
        self.0 as *mut c_void
    }
}

/// A `CUevent` that was recorded after the work that reads a tensor.
///
/// ```no_run
/// # fn train(batch: infeed::Batch, raw: *mut std::ffi::c_void) -> infeed::Result<()> {
/// use infeed::device::CudaEvent;
///
/// // SAFETY: it was recorded after the kernels that read the batch, on this device.
/// let event = unsafe { CudaEvent::from_raw(raw) };
/// batch["image"].release_after(event)?;
/// drop(batch); // The memory is used again once the event has passed.
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CudaEvent(usize);

impl CudaEvent {
    /// An event of another framework.
    ///
    /// # Safety
    /// - `event` is an event of the device on which it will be used, and lives as long as this value is used.
    /// - It was recorded after all work that reads the tensors to which it is passed, and not during the capture of a
    ///   graph.
    #[must_use]
    pub unsafe fn from_raw(event: *mut c_void) -> Self {
        Self(event as usize)
    }

    /// The handle.
    #[must_use]
    pub const fn as_raw(self) -> *mut c_void {
        self.0 as *mut c_void
    }
}
