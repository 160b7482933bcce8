//! The memory of one batch on a GPU, and the streams that still read it.
//!
//! ```text
//! jobs write, each waits for its own kernels ─▶ sealed ─▶ yielded: readers' streams are recorded
//!                                                               └ dropped: a mark on each of them; the memory is free
//!                                                                 when the host has seen all marks passed
//! ```
//!
//! No stream of ours waits for a reader. Streams share a few hardware queues of the GPU, so a stream that waits for a
//! trainer's step would delay the uploads and decodes that are queued behind it.
//!
//! A stream that is being captured for a graph when its batch is dropped can't be marked: the graph reads the memory
//! again each time it runs. So the memory is never reused or freed. The per-thread default stream of another thread
//! can't be marked either; the legacy default stream is marked instead, as it waits for those of all threads.
//!
//! Nothing here blocks except [`sync`](DeviceBlock::sync) and functions whose documentation says so: the trainer's
//! threads drop blocks.

use std::{
    ffi::c_void,
    fmt, mem,
    sync::{Mutex, MutexGuard, PoisonError},
    thread::{self, ThreadId},
};

use cudarc::driver::sys::{CUdeviceptr, CUstream};
use infeed_core::{
    buffer::{DeviceBuffer, ReadBehind},
    error::{Error, ErrorKind, Result},
    handles::{CudaEvent, CudaStream},
};

use super::context::{Context, Event, Priority, Stream};

/// One allocation of device memory. A new one has no work on it.
pub(crate) struct DeviceBlock {
    context: Context,
    address: CUdeviceptr,
    len: usize,
    /// For copies within the block and to the host.
    stream: Stream,
    readers: Mutex<Readers>,
    /// Set for memory of another library, which is never freed here.
    foreign: Option<Foreign>,
}

/// A stream handle, and the thread on which it was given: a default stream depends on the thread.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Named {
    stream: CudaStream,
    thread: ThreadId,
}

impl Named {
    fn here(stream: CudaStream) -> Self {
        Self { stream, thread: thread::current().id() }
    }

    /// A handle that on this thread means the same stream, or one that waits for it.
    fn raw(self) -> CUstream {
        let elsewhere = self.stream == CudaStream::PER_THREAD && self.thread != thread::current().id();
        if elsewhere { CudaStream::DEFAULT.as_raw().cast() } else { self.stream.as_raw().cast() }
    }
}

/// The owner of memory of another library.
struct Foreign {
    /// The library reuses the memory in the order of this stream.
    stream: Named,
    /// Returns the memory when dropped.
    owner: Box<dyn Send + Sync>,
}

struct Readers {
    /// The streams for which the address was given out.
    streams: Vec<Named>,
    /// Our events, to be recorded on readers' streams.
    marks: Vec<Event>,
    /// The number of marks that were recorded and not yet seen passed.
    pending: usize,
    /// Whether the block's stream waits for an event of a reader. The reader may record that event again, which our
    /// marks do not show.
    waits: bool,
    /// Whether a reader could not be marked, so that it is unknown when the memory is free.
    lost: bool,
}

impl Readers {
    /// No readers, and one mark in advance: most batches have one reader.
    fn new(context: &Context) -> Result<Self> {
        Ok(Self { streams: Vec::new(), marks: vec![Event::new(context)?], pending: 0, waits: false, lost: false })
    }
}

impl DeviceBlock {
    /// Allocates memory and waits for it (microseconds if the driver has some in its pool).
    pub(crate) fn new(context: &Context, len: usize) -> Result<Self> {
        let stream = Stream::new(context, Priority::Usual)?;
        let readers = Readers::new(context)?;
        let bound = context.bind()?;
        let (calls, mut address) = (&context.driver().calls, 0);
        if context.ordered_free() {
            // SAFETY: `address` outlives the call.
            let code = unsafe { (calls.cuMemAllocAsync)(&raw mut address, len.max(1), stream.raw()) };
            context.check("cuMemAllocAsync", code)?;
        } else {
            // SAFETY: `address` outlives the call.
            let code = unsafe { (calls.cuMemAlloc_v2)(&raw mut address, len.max(1)) };
            context.check("cuMemAlloc", code)?;
        }
        drop(bound);
        let block =
            Self { context: context.clone(), address, len, stream, readers: Mutex::new(readers), foreign: None };
        // Other streams may use the memory only after the allocation.
        block.stream.sync()?;
        Ok(block)
    }

    /// A block over memory of another library. Blocks until the work that `stream` has so far is done, so the content
    /// is complete.
    ///
    /// When the block has no users any more, `stream` waits for all readers, then `owner` is dropped.
    ///
    /// # Safety
    /// `len` bytes begin at `address` in the memory of `context`'s GPU. They stay valid, and are not written, until
    /// `owner` is dropped. They were written before or on `stream`, and the memory is reused only in the order of
    /// `stream`.
    pub(crate) unsafe fn foreign(
        context: &Context,
        address: u64,
        len: usize,
        stream: CudaStream,
        owner: Box<dyn Send + Sync>,
    ) -> Result<Self> {
        let (own, readers) = (Stream::new(context, Priority::Usual)?, Readers::new(context)?);
        let stream = Named::here(stream);
        // SAFETY: the creator of the `CudaStream` guarantees that it is alive.
        if unsafe { context.is_capturing(stream.raw()) }? {
            let what = "memory can't be taken from a stream that is captured for a graph";
            return Err(Error::new(ErrorKind::Config, what).with_hint("take it before the capture begins"));
        }
        for mark in &readers.marks {
            // SAFETY: as above.
            unsafe { mark.record_raw(stream.raw()) }?;
            mark.sync()?;
        }
        let foreign = Some(Foreign { stream, owner });
        Ok(Self { context: context.clone(), address, len, stream: own, readers: Mutex::new(readers), foreign })
    }

    fn readers(&self) -> MutexGuard<'_, Readers> {
        // Each critical section leaves them consistent.
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn holds(&self, at: usize, len: usize) -> bool {
        at.checked_add(len).is_some_and(|end| end <= self.len)
    }

    fn sync(&self) -> Result<()> {
        self.stream.sync()
    }
}

impl ReadBehind for DeviceBlock {
    fn retire(&self) {
        let mut readers = self.readers();
        let Readers { streams, marks, pending, waits, lost } = &mut *readers;
        let (streams, waits) = (mem::take(streams), mem::take(waits));
        let mut mark = |stream: CUstream| -> Result<()> {
            if marks.len() == *pending {
                marks.push(Event::new(&self.context)?);
            }
            // SAFETY: the creator of the `CudaStream` guarantees that it outlives the tensor.
            unsafe { marks[*pending].record_raw(stream) }?;
            *pending += 1;
            if let Some(foreign) = &self.foreign {
                // SAFETY: as above.
                unsafe { marks[*pending - 1].hold_raw(foreign.stream.raw()) }?;
            }
            Ok(())
        };
        let mut end = || -> Result<()> {
            for reader in &streams {
                // SAFETY: the creator of the `CudaStream` guarantees that it outlives the tensor.
                if unsafe { self.context.is_capturing(reader.raw()) }? {
                    let what = "the stream is captured for a graph, which will read the batch again";
                    return Err(Error::new(ErrorKind::Device, what));
                }
                mark(reader.raw())?;
            }
            if waits { mark(self.stream.raw()) } else { Ok(()) }
        };
        if let Err(error) = end() {
            *lost = true;
            let what = "a stream that reads a batch can't be marked; the batch's memory is never freed";
            tracing::warn!(error = %format!("{error:#}"), bytes = self.len, "{what}");
        }
    }

    fn is_free(&self) -> bool {
        let mut readers = self.readers();
        let Readers { marks, pending, lost, .. } = &mut *readers;
        while let Some(mark) = pending.checked_sub(1).and_then(|last| marks.get(last))
            && mark.is_done().unwrap_or(false)
        {
            *pending -= 1;
        }
        *pending == 0 && !*lost
    }

    fn wait_until_free(&self) {
        let (marks, pending) = {
            let mut readers = self.readers();
            if readers.pending == 0 || readers.lost {
                return;
            }
            (mem::take(&mut readers.marks), readers.pending)
        };
        // Wait without the lock. The block has no users, so no mark is recorded meanwhile.
        let read = marks.iter().take(pending).try_for_each(Event::sync);
        let mut readers = self.readers();
        readers.marks = marks;
        match read {
            Ok(()) => readers.pending = 0,
            Err(error) => {
                readers.lost = true;
                let what = "can't wait for the readers of a batch; its memory is never freed";
                tracing::warn!(error = %format!("{error:#}"), bytes = self.len, "{what}");
            }
        }
    }

    fn is_lost(&self) -> bool {
        self.readers().lost
    }
}

impl DeviceBuffer for DeviceBlock {
    fn index(&self) -> u32 {
        self.context.index()
    }

    fn address(&self) -> u64 {
        self.address
    }

    fn len(&self) -> usize {
        self.len
    }

    fn read_by(&self, stream: CudaStream) {
        let mut readers = self.readers();
        let named = Named::here(stream);
        // The same handle from another thread means the same stream, unless it is the per-thread default stream.
        let same = |known: &Named| *known == named || known.stream == stream && stream != CudaStream::PER_THREAD;
        if !readers.streams.iter().any(same) {
            readers.streams.push(named);
        }
    }

    fn release_after(&self, event: CudaEvent) -> Result<()> {
        let mut readers = self.readers();
        // SAFETY: the creator of the `CudaEvent` guarantees that it is alive.
        unsafe { self.stream.wait_raw(event.as_raw().cast()) }?;
        readers.waits = true;
        Ok(())
    }

    fn copy_within(&self, from: usize, to: usize, len: usize) -> Result<()> {
        assert!(self.holds(from, len) && self.holds(to, len) && from.abs_diff(to) >= len, "ranges within the block");
        if len == 0 {
            return Ok(());
        }
        let bound = self.context.bind()?;
        let (to, from) = (self.address + to as u64, self.address + from as u64);
        // SAFETY: both ranges lie within the block, which outlives the wait below.
        let code = unsafe { (self.context.driver().calls.cuMemcpyDtoDAsync_v2)(to, from, len, self.stream.raw()) };
        self.context.check("cuMemcpyDtoDAsync", code)?;
        drop(bound);
        self.sync()
    }

    fn clear(&self, at: usize, len: usize) -> Result<()> {
        assert!(self.holds(at, len), "a range within the block");
        if len == 0 {
            return Ok(());
        }
        let bound = self.context.bind()?;
        // SAFETY: the range lies within the block, which outlives the wait below.
        let code = unsafe {
            (self.context.driver().calls.cuMemsetD8Async)(self.address + at as u64, 0, len, self.stream.raw())
        };
        self.context.check("cuMemsetD8Async", code)?;
        drop(bound);
        self.sync()
    }

    fn upload(&self, at: usize, bytes: &[u8]) -> Result<()> {
        assert!(self.holds(at, bytes.len()), "a range within the block");
        if bytes.is_empty() {
            return Ok(());
        }
        let bound = self.context.bind()?;
        let (to, from) = (self.address + at as u64, bytes.as_ptr().cast::<c_void>());
        // SAFETY: both ranges are whole, and outlive the wait below.
        let code =
            unsafe { (self.context.driver().calls.cuMemcpyHtoDAsync_v2)(to, from, bytes.len(), self.stream.raw()) };
        self.context.check("cuMemcpyHtoDAsync", code)?;
        drop(bound);
        self.sync()
    }

    fn download(&self, at: usize, bytes: &mut [u8]) -> Result<()> {
        assert!(self.holds(at, bytes.len()), "a range within the block");
        if bytes.is_empty() {
            return Ok(());
        }
        let bound = self.context.bind()?;
        let (to, from) = (bytes.as_mut_ptr().cast::<c_void>(), self.address + at as u64);
        // SAFETY: both ranges are whole, and outlive the wait below.
        let code =
            unsafe { (self.context.driver().calls.cuMemcpyDtoHAsync_v2)(to, from, bytes.len(), self.stream.raw()) };
        self.context.check("cuMemcpyDtoHAsync", code)?;
        drop(bound);
        self.sync()
    }
}

impl Drop for DeviceBlock {
    fn drop(&mut self) {
        let (lost, foreign) = (self.is_lost(), self.foreign.take());
        if let Some(Foreign { owner, .. }) = foreign {
            if lost {
                // Leak it: it may still be read.
                mem::forget(owner);
            }
            return;
        }
        if lost {
            return;
        }
        let Ok(_bound) = self.context.bind() else { return };
        let calls = &self.context.driver().calls;
        // The memory is freed after the work of the readers.
        let readers = self.readers.get_mut().unwrap_or_else(PoisonError::into_inner);
        for mark in readers.marks.iter().take(readers.pending) {
            // SAFETY: our own event.
            if unsafe { self.stream.wait_raw(mark.raw()) }.is_err() {
                return;
            }
        }
        if self.context.ordered_free() {
            // SAFETY: allocated in `new`, freed once.
            let _ = unsafe { (calls.cuMemFreeAsync)(self.address, self.stream.raw()) };
        } else {
            // SAFETY: as above. Waits for the GPU, which drivers without memory pools can't avoid.
            let _ = unsafe { (calls.cuMemFree_v2)(self.address) };
        }
    }
}

impl fmt::Debug for DeviceBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceBlock({} bytes on cuda:{})", self.len, self.context.index())
    }
}
