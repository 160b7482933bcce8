//! What a GPU's memory and its link can do: the bounds that infeed's own rates are compared with.
//!
//! Part of no loader. A trainer that only keeps the GPU's memory busy is made of it too.

use std::{fmt, time::Duration};

use infeed_core::error::{Error, ErrorKind, Result};
use infeed_core::handles::CudaStream;

use super::context::{Context, DeviceMemory, Event, Pinned, Priority, Stream};

/// Copies on a stream of its own, timed on the GPU. Holds two stretches of device memory of the same length.
///
/// Its stream is never destroyed: a tensor may have been asked for its address with it.
pub struct Meter {
    context: Context,
    stream: &'static Stream,
    marks: [Event; 2],
    memory: [DeviceMemory; 2],
    len: usize,
    pinned: Option<Pinned>,
}

/// What is copied.
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
    /// Takes twice `len` bytes of device memory, and fills them.
    ///
    /// # Errors
    /// `OutOfMemory` and `Device` as CUDA says.
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

    /// Bytes that a copy may have.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.len
    }

    /// The stream that all copies are given to.
    #[must_use]
    pub fn stream(&self) -> CudaStream {
        // SAFETY: a stream of this context that lives as long as the process.
        unsafe { CudaStream::from_raw(self.stream.raw().cast()) }
    }

    /// Time on the GPU of `times` copies of `bytes` one after another. Waits for them.
    ///
    /// # Errors
    /// `Config` when there is less memory than that; `Device` when the GPU failed.
    pub fn time(&mut self, what: Copies, bytes: usize, times: usize) -> Result<Duration> {
        self.reserve(what, bytes)?;
        self.marks[0].record(self.stream)?;
        self.start(what, bytes, times)?;
        self.marks[1].record(self.stream)?;
        self.marks[1].sync()?;
        self.marks[0].until(&self.marks[1])
    }

    /// Starts `times` copies of `bytes` one after another, and does not wait.
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
            // In each: `reserve` saw that both sides have the bytes; they live until `drop` has waited for the stream.
            let (call, code) = match what {
                Copies::Up => {
                    // SAFETY: as above; nobody writes the host's bytes.
                    let code = unsafe { (calls.cuMemcpyHtoDAsync_v2)(to, host.cast(), bytes, raw) };
                    ("cuMemcpyHtoDAsync", code)
                }
                Copies::Down => {
                    // SAFETY: as above; nobody reads or writes the host's bytes.
                    let code = unsafe { (calls.cuMemcpyDtoHAsync_v2)(host.cast_mut().cast(), from, bytes, raw) };
                    ("cuMemcpyDtoHAsync", code)
                }
                Copies::Within => {
                    // SAFETY: as above, of two allocations.
                    let code = unsafe { (calls.cuMemcpyDtoDAsync_v2)(to, from, bytes, raw) };
                    ("cuMemcpyDtoDAsync", code)
                }
                Copies::Fill => {
                    // SAFETY: as above, of one.
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
    /// `Device` when the GPU failed.
    pub fn wait(&mut self) -> Result<()> {
        self.marks[1].record(self.stream)?;
        self.marks[1].sync()
    }

    /// Whether so many bytes can be copied; page-locks host memory for them when that is new.
    fn reserve(&mut self, what: Copies, bytes: usize) -> Result<()> {
        if bytes > self.len {
            return Err(Error::new(ErrorKind::Config, format!("{bytes} bytes where {} were set aside", self.len)));
        }
        let host = matches!(what, Copies::Up | Copies::Down);
        if host && self.pinned.as_ref().is_none_or(|pinned| pinned.len() < bytes) {
            // The old memory may be under a copy.
            self.wait()?;
            self.pinned = Some(Pinned::new(&self.context, bytes)?);
        }
        Ok(())
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        // Memory under a running copy must not go. When the wait fails the GPU is lost, and nothing runs.
        let _ = self.stream.sync();
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Meter(2 x {} bytes on {:?})", self.len, self.context)
    }
}
