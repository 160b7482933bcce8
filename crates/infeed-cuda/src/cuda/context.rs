//! A GPU's context, and its streams, events and memory.
//!
//! Handles are owned and destroyed once. Every call makes the context current for its duration and then restores the
//! previous one: a tensor may be dropped on any thread, in the middle of other CUDA work.
//!
//! **Graphs**: while a trainer captures a graph in the default mode, CUDA refuses calls that may wait or allocate on
//! *every* thread of the process, and a refused call invalidates the capture (pytorch/pytorch#104487, #148594). Our
//! calls do not concern the captured work. So while the context is bound, the thread is in the capture mode that allows
//! such calls. Our own threads stay in it.

use std::{
    cell::Cell,
    ffi::{c_int, c_uint, c_void},
    fmt, ptr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use cudarc::driver::sys::{
    CUcontext, CUdevice_attribute, CUdeviceptr, CUevent, CUstream, CUstreamCaptureMode,
    CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_RELAXED as RELAXED, CUstreamCaptureStatus,
    CUstreamCaptureStatus_enum::CU_STREAM_CAPTURE_STATUS_NONE as NOT_CAPTURING,
};
use infeed_core::{
    buffer::GpuBuffers,
    error::{
        Error, ErrorKind, Result,
        setting::{DEVICE_CPU, MEMORY_BUDGET, PREFETCH, WORKERS},
    },
};

use super::{
    driver::{Driver, driver, probe},
    exit,
};

/// A GPU's primary context, the one that nvJPEG and all frameworks use. Cheap to clone.
///
/// It is retained once per GPU and kept until the process ends, as in frameworks. Releasing the last handle would
/// destroy the context, which is slow, on the thread that drops the last tensor.
#[derive(Clone)]
pub struct Context {
    inner: Arc<Inner>,
}

struct Inner {
    driver: &'static Driver,
    raw: CUcontext,
    index: u32,
    /// Whether memory can be freed in the order of a stream, which never blocks.
    ordered_free: bool,
    /// Least and greatest priority of streams.
    priorities: (c_int, c_int),
}

// SAFETY: any thread may use a context handle; the driver does its own locking.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

/// The priority of a stream, relative to others and to the trainer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// The same as a trainer's own streams.
    Usual,
    /// Higher than those: for short work that others wait for.
    High,
}

impl Context {
    /// The context of `cuda:index`. The first call for a GPU may take a second.
    ///
    /// # Errors
    /// `Device`: no driver, no such GPU, or the GPU can't be used. The message gives the reason.
    pub fn open(index: u32) -> Result<Self> {
        static OPEN: Mutex<Vec<Context>> = Mutex::new(Vec::new());
        let refused = |why: String| {
            let hint = "check nvidia-smi and CUDA_VISIBLE_DEVICES, give the container GPUs (`docker run --gpus all`)";
            Error::new(ErrorKind::Device, format!("cuda:{index} can't be used: {why}"))
                .with_hint(format!("{hint}, or use {DEVICE_CPU}"))
        };
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(context) = open.iter().find(|context| context.index() == index) {
            return Ok(context.clone());
        }
        let gpus = probe().map_err(refused)?;
        if index as usize >= gpus.len() {
            let what = format!("no cuda:{index}: this machine has {}", count(gpus.len()));
            return Err(Error::new(ErrorKind::Device, what).with_hint("`infeed inspect --devices` lists them"));
        }
        let driver = driver().map_err(refused)?;
        let device = driver.device(index).map_err(refused)?;
        let mut raw: CUcontext = ptr::null_mut();
        // SAFETY: `raw` outlives the call; the device comes from the driver.
        let code = unsafe { (driver.calls.cuDevicePrimaryCtxRetain)(&raw mut raw, device) };
        driver.check("cuDevicePrimaryCtxRetain", code).map_err(|e| e.at_object(format!("cuda:{index}")))?;
        let pools = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED;
        let ordered_free = driver.attribute(device, pools).is_ok_and(|yes| yes != 0);
        let inner = Inner { driver, raw, index, ordered_free, priorities: (0, 0) };
        let priorities = inner.priorities()?;
        let context = Self { inner: Arc::new(Inner { priorities, ..inner }) };
        if open.is_empty() {
            exit::register();
        }
        open.push(context.clone());
        Ok(context)
    }

    /// The number in `cuda:0`.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.inner.index
    }

    /// Bytes of device memory: free, and total.
    ///
    /// # Errors
    /// `Device` if the GPU failed.
    pub fn memory(&self) -> Result<(u64, u64)> {
        let _bound = self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both outlive the call.
        let code = unsafe { (self.driver().calls.cuMemGetInfo_v2)(&raw mut free, &raw mut total) };
        self.check("cuMemGetInfo", code)?;
        Ok((free as u64, total as u64))
    }

    pub(crate) fn driver(&self) -> &'static Driver {
        self.inner.driver
    }

    /// Whether `stream` is capturing its work for a graph instead of running it.
    ///
    /// # Safety
    /// `stream` is a live stream of this context.
    pub(crate) unsafe fn is_capturing(&self, stream: CUstream) -> Result<bool> {
        let _bound = self.bind()?;
        let mut status: CUstreamCaptureStatus = NOT_CAPTURING;
        // SAFETY: the number outlives the call; the caller guarantees that the stream is alive.
        let code = unsafe { (self.driver().calls.cuStreamIsCapturing)(stream, &raw mut status) };
        self.check("cuStreamIsCapturing", code)?;
        Ok(status != NOT_CAPTURING)
    }

    pub(crate) fn check(&self, call: &'static str, code: c_uint) -> Result<()> {
        self.inner.check(call, code)
    }

    /// Whether memory can be freed in the order of a stream, which never blocks.
    pub(crate) fn ordered_free(&self) -> bool {
        self.inner.ordered_free
    }

    /// Makes this the thread's current context until the guard is dropped.
    pub(crate) fn bind(&self) -> Result<Bound> {
        self.inner.bind()
    }
}

impl Inner {
    /// Converts a result code. The error names the GPU, as a process may use several.
    fn check(&self, call: &'static str, code: c_uint) -> Result<()> {
        self.driver.check(call, code).map_err(|error| error.at_object(format!("cuda:{}", self.index)))
    }

    fn bind(&self) -> Result<Bound> {
        let inside = exit::enter()?;
        let mut before: CUcontext = ptr::null_mut();
        // SAFETY: `before` outlives the call.
        let code = unsafe { (self.driver.calls.cuCtxGetCurrent)(&raw mut before) };
        self.check("cuCtxGetCurrent", code)?;
        let mode = relax(self.driver)?;
        let changed = before != self.raw;
        if changed {
            // SAFETY: the context is retained until the process ends.
            let code = unsafe { (self.driver.calls.cuCtxSetCurrent)(self.raw) };
            self.check("cuCtxSetCurrent", code)?;
        }
        Ok(Bound { driver: self.driver, before: changed.then_some(before), mode, _inside: inside })
    }

    fn priorities(&self) -> Result<(c_int, c_int)> {
        let _bound = self.bind()?;
        let (mut least, mut greatest) = (0, 0);
        // SAFETY: both outlive the call.
        let code = unsafe { (self.driver.calls.cuCtxGetStreamPriorityRange)(&raw mut least, &raw mut greatest) };
        self.check("cuCtxGetStreamPriorityRange", code)?;
        Ok((least, greatest))
    }
}

fn count(gpus: usize) -> String {
    if gpus == 1 { "1 GPU".into() } else { format!("{gpus} GPUs") }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context(cuda:{})", self.inner.index)
    }
}

thread_local! {
    /// Whether this is one of infeed's threads, which stay in the mode that captures do not restrict.
    static OURS: Cell<bool> = const { Cell::new(false) };
}

/// Puts the thread in the mode that captures of other threads do not restrict. Returns the previous mode; `None` for
/// infeed's own threads, which stay in the mode.
fn relax(driver: &Driver) -> Result<Option<CUstreamCaptureMode>> {
    if OURS.get() {
        return Ok(None);
    }
    let mut mode = RELAXED;
    // SAFETY: a valid mode, which the call replaces by the previous one.
    let code = unsafe { (driver.calls.cuThreadExchangeStreamCaptureMode)(&raw mut mode) };
    driver.check("cuThreadExchangeStreamCaptureMode", code)?;
    Ok(Some(mode))
}

/// While this exists, the context is current on this thread; dropping it restores the previous one.
pub(crate) struct Bound {
    driver: &'static Driver,
    before: Option<CUcontext>,
    mode: Option<CUstreamCaptureMode>,
    _inside: exit::Inside,
}

impl Bound {
    /// Keeps the context current on this thread, and the thread in the mode that captures do not restrict. Only for
    /// infeed's own threads: binding for each call would cost five more calls.
    pub(crate) fn keep(mut self) {
        (self.before, self.mode) = (None, None);
        OURS.set(true);
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if let Some(mut mode) = self.mode {
            // SAFETY: the mode that the earlier call returned.
            let _ = unsafe { (self.driver.calls.cuThreadExchangeStreamCaptureMode)(&raw mut mode) };
        }
        if let Some(before) = self.before {
            // SAFETY: this context was current on the thread, or it is null, which unbinds.
            let _ = unsafe { (self.driver.calls.cuCtxSetCurrent)(before) };
        }
    }
}

/// A queue of work that does not wait for the default stream.
pub(crate) struct Stream {
    context: Context,
    raw: CUstream,
}

// SAFETY: stream handles may be used by any thread.
unsafe impl Send for Stream {}
// SAFETY: as above; the driver orders concurrent calls.
unsafe impl Sync for Stream {}

impl Stream {
    pub(crate) fn new(context: &Context, priority: Priority) -> Result<Self> {
        const NON_BLOCKING: c_uint = 1;
        let _bound = context.bind()?;
        let (least, greatest) = context.inner.priorities;
        let priority = if priority == Priority::High { greatest } else { least };
        let mut raw: CUstream = ptr::null_mut();
        // SAFETY: `raw` outlives the call.
        let code = unsafe { (context.driver().calls.cuStreamCreateWithPriority)(&raw mut raw, NON_BLOCKING, priority) };
        context.check("cuStreamCreateWithPriority", code)?;
        Ok(Self { context: context.clone(), raw })
    }

    pub(crate) fn raw(&self) -> CUstream {
        self.raw
    }

    /// Waits on the host until all work is done.
    pub(crate) fn sync(&self) -> Result<()> {
        let _bound = self.context.bind()?;
        // SAFETY: the stream lives.
        let code = unsafe { (self.context.driver().calls.cuStreamSynchronize)(self.raw) };
        self.context.check("cuStreamSynchronize", code)
    }

    /// Makes later work of this stream wait for the latest record of the event.
    ///
    /// # Safety
    /// `event` is a live event of this context.
    pub(crate) unsafe fn wait_raw(&self, event: CUevent) -> Result<()> {
        let _bound = self.context.bind()?;
        // SAFETY: the stream lives; the caller guarantees that the event does.
        let code = unsafe { (self.context.driver().calls.cuStreamWaitEvent)(self.raw, event, 0) };
        self.context.check("cuStreamWaitEvent", code)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let Ok(_bound) = self.context.bind() else { return };
        // SAFETY: created in `new`, destroyed once. Its remaining work still runs to the end.
        let _ = unsafe { (self.context.driver().calls.cuStreamDestroy_v2)(self.raw) };
    }
}

/// A mark in a stream (a CUDA event).
pub(crate) struct Event {
    context: Context,
    raw: CUevent,
}

// SAFETY: event handles may be used by any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// A wait sleeps instead of spinning, as decode threads share the cores with the trainer.
    const BLOCKING_SYNC: c_uint = 1;
    const DISABLE_TIMING: c_uint = 2;

    pub(crate) fn new(context: &Context) -> Result<Self> {
        Self::with(context, Self::BLOCKING_SYNC | Self::DISABLE_TIMING)
    }

    /// An event that measures time.
    pub(crate) fn timed(context: &Context) -> Result<Self> {
        Self::with(context, Self::BLOCKING_SYNC)
    }

    fn with(context: &Context, flags: c_uint) -> Result<Self> {
        let _bound = context.bind()?;
        let mut raw: CUevent = ptr::null_mut();
        // SAFETY: `raw` outlives the call.
        let code = unsafe { (context.driver().calls.cuEventCreate)(&raw mut raw, flags) };
        context.check("cuEventCreate", code)?;
        Ok(Self { context: context.clone(), raw })
    }

    pub(crate) fn raw(&self) -> CUevent {
        self.raw
    }

    pub(crate) fn record(&self, stream: &Stream) -> Result<()> {
        // SAFETY: a live stream of the same context.
        unsafe { self.record_raw(stream.raw) }
    }

    /// Marks the work that `stream` has so far.
    ///
    /// # Safety
    /// `stream` is a live stream of this context.
    pub(crate) unsafe fn record_raw(&self, stream: CUstream) -> Result<()> {
        let _bound = self.context.bind()?;
        // SAFETY: the event lives; the caller guarantees that the stream does.
        let code = unsafe { (self.context.driver().calls.cuEventRecord)(self.raw, stream) };
        self.context.check("cuEventRecord", code)
    }

    /// Marks the work that all streams of the GPU have so far. Do not call this while one of them is captured for a
    /// graph: it would invalidate the capture.
    ///
    /// # Errors
    /// `Device` as [`Context::check_marks`], during a capture, and if the GPU failed.
    pub(crate) fn record_all(&self) -> Result<()> {
        self.context.check_marks()?;
        let Some(record) = self.context.driver().calls.cuCtxRecordEvent else { return Ok(()) };
        let _bound = self.context.bind()?;
        // SAFETY: the context is retained until the process ends; the event lives and belongs to it.
        let code = unsafe { record(self.context.inner.raw, self.raw) };
        self.context.check("cuCtxRecordEvent", code)
    }

    /// Makes later work of `stream` wait for the marked work.
    ///
    /// # Safety
    /// `stream` is a live stream of this context.
    pub(crate) unsafe fn hold_raw(&self, stream: CUstream) -> Result<()> {
        let _bound = self.context.bind()?;
        // SAFETY: the event lives; the caller guarantees that the stream does.
        let code = unsafe { (self.context.driver().calls.cuStreamWaitEvent)(stream, self.raw, 0) };
        self.context.check("cuStreamWaitEvent", code)
    }

    /// Whether the marked work is done.
    pub(crate) fn is_done(&self) -> Result<bool> {
        const NOT_READY: c_uint = cudarc::driver::sys::CUresult::CUDA_ERROR_NOT_READY as c_uint;
        let _bound = self.context.bind()?;
        // SAFETY: the event lives.
        match unsafe { (self.context.driver().calls.cuEventQuery)(self.raw) } {
            NOT_READY => Ok(false),
            code => self.context.check("cuEventQuery", code).map(|()| true),
        }
    }

    /// Waits on the host until the marked work is done.
    pub(crate) fn sync(&self) -> Result<()> {
        let _bound = self.context.bind()?;
        // SAFETY: the event lives.
        let code = unsafe { (self.context.driver().calls.cuEventSynchronize)(self.raw) };
        self.context.check("cuEventSynchronize", code)
    }

    /// Time on the GPU from this event to `end`. Both must be done, and made by [`timed`](Self::timed).
    pub(crate) fn until(&self, end: &Self) -> Result<Duration> {
        let _bound = self.context.bind()?;
        let mut milliseconds = 0.0f32;
        // SAFETY: both events live; the number outlives the call.
        let code =
            unsafe { (self.context.driver().calls.cuEventElapsedTime)(&raw mut milliseconds, self.raw, end.raw) };
        self.context.check("cuEventElapsedTime", code)?;
        Ok(Duration::try_from_secs_f32(milliseconds / 1e3).unwrap_or_default())
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let Ok(_bound) = self.context.bind() else { return };
        // SAFETY: created in `with`, destroyed once.
        let _ = unsafe { (self.context.driver().calls.cuEventDestroy_v2)(self.raw) };
    }
}

/// Device memory of a worker, allocated at its start and freed on its thread. Freeing waits for the GPU.
pub(crate) struct DeviceMemory {
    context: Context,
    address: CUdeviceptr,
}

impl DeviceMemory {
    /// Allocates memory, aligned to at least 256 bytes and not cleared.
    pub(crate) fn new(context: &Context, len: usize) -> Result<Self> {
        let _bound = context.bind()?;
        let mut address = 0;
        // SAFETY: `address` outlives the call. CUDA refuses a length of 0.
        let code = unsafe { (context.driver().calls.cuMemAlloc_v2)(&raw mut address, len.max(1)) };
        context.check("cuMemAlloc", code)?;
        Ok(Self { context: context.clone(), address })
    }

    pub(crate) fn address(&self) -> CUdeviceptr {
        self.address
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        let Ok(_bound) = self.context.bind() else { return };
        // SAFETY: allocated in `new`, freed once; the call waits for work that uses it.
        let _ = unsafe { (self.context.driver().calls.cuMemFree_v2)(self.address) };
    }
}

/// Page-locked host memory, from which the GPU can copy while the host continues. Zeroed when new.
pub(crate) struct Pinned {
    context: Context,
    start: ptr::NonNull<u8>,
    len: usize,
}

// SAFETY: plain bytes with one owner.
unsafe impl Send for Pinned {}

impl Pinned {
    pub(crate) fn new(context: &Context, len: usize) -> Result<Self> {
        // Not write-combined: nvJPEG reads headers from it.
        const PORTABLE: c_uint = 1;
        let _bound = context.bind()?;
        let mut start: *mut c_void = ptr::null_mut();
        // SAFETY: `start` outlives the call.
        let code = unsafe { (context.driver().calls.cuMemHostAlloc)(&raw mut start, len.max(1), PORTABLE) };
        context.check("cuMemHostAlloc", code).map_err(|e| match e.kind() {
            ErrorKind::OutOfMemory => Error::new(ErrorKind::OutOfMemory, format!("cannot page-lock {len} bytes"))
                .with_hint(
                    // The driver locks the pages itself, so the limit of locked memory (ulimit -l) does not apply.
                    format!(
                        "lower {MEMORY_BUDGET}, {PREFETCH} or {WORKERS}, or raise the memory limit of the container"
                    ),
                ),
            _ => e,
        })?;
        let start = ptr::NonNull::new(start.cast::<u8>())
            .ok_or_else(|| Error::new(ErrorKind::Device, "cuMemHostAlloc returned no memory"))?;
        // SAFETY: `len` bytes from `start` were allocated above.
        unsafe { start.write_bytes(0, len) };
        Ok(Self { context: context.clone(), start, len })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn start(&self) -> *const u8 {
        self.start.as_ptr()
    }

    /// The bytes, for writing.
    ///
    /// # Safety
    /// The host has seen the end of every copy that reads or writes them, and none is started while they are borrowed.
    pub(crate) unsafe fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: `len` initialised bytes, borrowed as long as `self`; no copy is running, as the caller guarantees.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let Ok(_bound) = self.context.bind() else { return };
        // SAFETY: allocated in `new`, freed once.
        let _ = unsafe { (self.context.driver().calls.cuMemFreeHost)(self.start.as_ptr().cast()) };
    }
}
