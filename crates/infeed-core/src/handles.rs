//! Streams and events of other libraries, whose makers vouch for them.

use std::ffi::c_void;

/// A `CUstream` (the runtime's `cudaStream_t` is the same thing): the queue of work that reads a tensor.
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
/// } // Each batch's memory waits for the work that `stream` has.
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CudaStream(usize);

impl CudaStream {
    /// The legacy default stream of the tensor's device.
    pub const DEFAULT: Self = Self(0);

    /// The default stream of the calling thread, in programs that use one for each thread: of the thread that names it,
    /// wherever the tensor is dropped.
    pub const PER_THREAD: Self = Self(2);

    /// A stream of some framework.
    ///
    /// # Safety
    /// - `stream` is null, or a stream of the device on which it will be used.
    /// - It lives until every tensor whose address was asked for with it, or that was lent or taken with it, has been
    ///   dropped.
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

/// A `CUevent` that was recorded behind the work that reads a tensor.
///
/// ```no_run
/// # fn train(batch: infeed::Batch, raw: *mut std::ffi::c_void) -> infeed::Result<()> {
/// use infeed::device::CudaEvent;
///
/// // SAFETY: it was recorded behind the kernels that read the batch, on this device.
/// let event = unsafe { CudaEvent::from_raw(raw) };
/// batch["image"].release_after(event)?;
/// drop(batch); // The memory is used again once the event has passed.
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CudaEvent(usize);

impl CudaEvent {
    /// An event of some framework.
    ///
    /// # Safety
    /// - `event` is an event of the device on which it will be used, and lives as long as this value is used.
    /// - It was recorded behind all work that reads the tensors which it is given to, and not in the capture of a graph.
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
