//! Measures the speed of a GPU's memory and link: the bounds to compare infeed's rates with.
//!
//! Not part of any loader. Benchmarks also use it as a trainer that only keeps the GPU's memory busy.

use std::{fmt, time::Duration};

use infeed_core::error::{Error, ErrorKind, Result};
use infeed_core::handles::CudaStream;

use super::context::{Context, DeviceMemory, Event, Pinned, Priority, Stream};

/// Runs copies on its own stream and times them on the GPU. Holds two pieces of device memory of equal length.
///
/// The stream is never destroyed, as a tensor may have been exported with it.
pub struct Meter {
    context: Context,
    stream: &'static Stream,
    marks: [Event; 2],
    memory: [DeviceMemory; 2],
    len: usize,
    pinned: Option<Pinned>,
}

/// The kind of copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    /// From page-locked host memory to the device.
    Up,
    /// From the device to page-locked host memory.
    Down,
    /// Within the device: each byte is read and written.
    Within,
    /// Within the device: each byte is written.
    Fill,
}

impl Meter {
    /// Allocates two pieces of `len` bytes of device memory, and fills them.
    ///
    /// # Errors
    /// `OutOfMemory` and `Device`, as CUDA reports them.
    pub fn new(context: &Context, len: usize) -> Result<Self> {
        let stream: &'static Stream = Box::leak(Box::new(Stream::new(context, Priority::Usual)?));
        let marks = [Event::timed(context)?, Event::timed(context)?];
        let memory = [DeviceMemory::new(context, len)?, DeviceMemory::new(context, len)?];
        let mut meter = Self { context: context.clone(), stream, marks, memory, len, pinned: None };
        meter.start(Copies::Fill, len, 1)?;
        meter.start(Copies::Within, len, 1)?;
        meter.wait()?;
        Ok(meter)
    }

    /// The most bytes of a copy.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.len
    }

    /// The stream of all copies.
    #[must_use]
    pub fn stream(&self) -> CudaStream {
        // SAFETY: a stream of this context that lives as long as the process.
        unsafe { CudaStream::from_raw(self.stream.raw().cast()) }
    }

    /// The time on the GPU of `times` copies of `bytes` bytes, one after another. Waits for them.
    ///
    /// # Errors
    /// `Config` if `bytes` is more than [`len_bytes`](Self::len_bytes); `Device` if the GPU failed.
    pub fn time(&mut self, what: Copies, bytes: usize, times: usize) -> Result<Duration> {
        self.reserve(what, bytes)?;
        self.marks[0].record(self.stream)?;
        self.start(what, bytes, times)?;
        self.marks[1].record(self.stream)?;
        self.marks[1].sync()?;
        self.marks[0].until(&self.marks[1])
    }

    /// Starts `times` copies of `bytes` bytes, one after another, and does not wait.
    ///
    /// # Errors
    /// As [`time`](Self::time).
    pub fn start(&mut self, what: Copies, bytes: usize, times: usize) -> Result<()> {
        self.reserve(what, bytes)?;
        let (calls, raw) = (&self.context.driver().calls, self.stream.raw());
        let [from, to] = [self.memory[0].address(), self.memory[1].address()];
        let host = self.pinned.as_ref().map_or(std::ptr::null(), Pinned::start);
        let _bound = self.context.bind()?;
        for _ in 0..times {
            // For each case: `reserve` checked that both sides have the bytes; they live until `drop` has waited for
            // the stream.
            let (call, code) = match what {
                Copies::Up => {
                    // SAFETY: as above; nothing writes the host's bytes.
                    let code = unsafe { (calls.cuMemcpyHtoDAsync_v2)(to, host.cast(), bytes, raw) };
                    ("cuMemcpyHtoDAsync", code)
                }
                Copies::Down => {
                    // SAFETY: as above; nothing else reads or writes the host's bytes.
                    let code = unsafe { (calls.cuMemcpyDtoHAsync_v2)(host.cast_mut().cast(), from, bytes, raw) };
                    ("cuMemcpyDtoHAsync", code)
                }
                Copies::Within => {
                    // SAFETY: as above; these are two allocations.
                    let code = unsafe { (calls.cuMemcpyDtoDAsync_v2)(to, from, bytes, raw) };
                    ("cuMemcpyDtoDAsync", code)
                }
                Copies::Fill => {
                    // SAFETY: as above.
                    let code = unsafe { (calls.cuMemsetD8Async)(from, 0x5a, bytes, raw) };
                    ("cuMemsetD8Async", code)
                }
            };
            self.context.check(call, code)?;
        }
        Ok(())
    }

    /// Waits for all copies.
    ///
    /// # Errors
    /// `Device` if the GPU failed.
    pub fn wait(&mut self) -> Result<()> {
        self.marks[1].record(self.stream)?;
        self.marks[1].sync()
    }

    /// Checks that this many bytes can be copied. Page-locks more host memory if needed.
    fn reserve(&mut self, what: Copies, bytes: usize) -> Result<()> {
        if bytes > self.len {
            return Err(Error::new(
                ErrorKind::Config,
                format!("a copy of {bytes} bytes, but only {} were allocated", self.len),
            ));
        }
        let host = matches!(what, Copies::Up | Copies::Down);
        if host && self.pinned.as_ref().is_none_or(|pinned| pinned.len() < bytes) {
            // A running copy may use the old memory.
            self.wait()?;
            self.pinned = Some(Pinned::new(&self.context, bytes)?);
        }
        Ok(())
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        // Memory must outlive running copies. If this wait fails, nothing runs on a lost GPU,
        // or the process is ending and nothing is freed.
        let _ = self.stream.sync();
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Meter(2 x {} bytes on {:?})", self.len, self.context)
    }
}
