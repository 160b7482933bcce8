//! What one thread gives to a GPU: a stream, and pages of pinned memory with as much device memory behind each.
//!
//! ```text
//! resample(pixels) ─▶ page: pixels → │ descriptors │            ← finished rows │
//! put_row(bytes)   ─▶   (pinned)     └──── launch: one copy up ────┘   └ one copy each, straight into their rows
//!                                            └▶ page (device) ─▶ one kernel for each group of like images ─▶ rows
//! ```
//!
//! It is safe to use: what a kernel reads and writes stays alive until its event has passed, windows are checked
//! against what was uploaded before the launch, and rows can't be frozen, copied or cleared before the host has seen the
//! end of what writes them. What a newcomer would get wrong:
//!
//! 1. A page is written again only after the *host* has seen the event of the launch that used it.
//! 2. Rows are full when the host has seen the launch's end, by [`UploadStream::wait`] or [`UploadStream::is_done`], and not before: a
//!    [`Writing`] refuses whoever hands them on earlier.
//! 3. One upload for many small images: a copy costs microseconds however small it is.

use std::{
    collections::VecDeque,
    ffi::{c_uint, c_void},
    fmt,
    marker::PhantomData,
    mem,
    ops::Range,
    ptr,
    sync::Arc,
    time::Duration,
};

use cudarc::driver::sys::CUdeviceptr;

use super::{
    context::{Context, DeviceMemory, Event, Pinned, Priority, Stream},
    kernels::Kernels,
};
use crate::{
    error::{Error, ErrorKind, Result},
    report::DeviceTimes,
    sys::{
        kernels::{
            ChannelTable, ResampleParams, RowSpec, channel_source,
            device::{self, DeviceItem},
        },
        rows::{Rows, Writing},
    },
    types::{DType, ImageInfo},
};

/// The part of an image that is held: what a resample reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The whole image.
    pub info: ImageInfo,
    /// Rows held.
    pub rows: Range<u32>,
    /// Columns held.
    pub cols: Range<u32>,
}

impl Held {
    /// Bytes of the pixels, without padding; `usize::MAX`, which no memory has, when there is no such number.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        let pixel = usize::from(self.info.channels) * self.info.dtype.size();
        self.rows.len().saturating_mul(self.cols.len()).saturating_mul(pixel)
    }
}

/// Pixels in device memory that outlive the stream's work on them.
#[derive(Clone, Debug)]
pub(in crate::sys) struct DevicePixels {
    pub(in crate::sys) held: Held,
    pub(in crate::sys) address: CUdeviceptr,
    /// Bytes from row to row.
    pub(in crate::sys) pitch: u32,
}

/// How much staging memory an upload stream has: `pages * page_bytes` pinned, and the same on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UploadSize {
    /// Bytes of a page; a finished row and its neighbours in a job must fit.
    pub page_bytes: usize,
    /// Pages: one is filled while the others are copied.
    pub pages: usize,
}

/// Names a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// See the module.
pub struct UploadStream {
    // Dropped in this order, after the stream was waited for.
    kernels: Arc<Kernels>,
    stream: Stream,
    tables: DeviceMemory,
    /// Offset in `tables` and number of channels of each table.
    places: Vec<(usize, u32)>,
    pages: Vec<Page>,
    page_bytes: usize,
    /// The page that is being filled.
    current: usize,
    groups: Vec<Group>,
    copies: Vec<RowCopy>,
    /// Of the buffers whose rows the next launch writes.
    writing: Vec<Writing>,
    /// Decoding was started since the last launch; it ends at this mark.
    decoded: Option<[Event; 2]>,
    flights: VecDeque<Flight>,
    /// The first failure, after which nothing is started any more, and the flight that met it: some of it may run.
    broken: Option<(Error, Flight)>,
    events: Vec<Event>,
    launched: u64,
    /// Of flights that are done and were not asked about yet.
    times: DeviceTimes,
    /// Not sent: its worker is born, used and dropped on one thread.
    here: PhantomData<*const ()>,
}

struct Page {
    pinned: Pinned,
    device: DeviceMemory,
    /// Bytes used from the front, which are copied to the device, and from the back, which are not.
    front: usize,
    back: usize,
    /// The launch that it was filled for: it is written again only after that.
    used_by: Option<u64>,
}

/// Images that one launch can do.
struct Group {
    src: DType,
    table: usize,
    row: RowSpec,
    items: Vec<DeviceItem>,
}

/// A finished row on its way from the page.
struct RowCopy {
    from: usize,
    len: usize,
    to: CUdeviceptr,
}

/// A launch that may still be running.
struct Flight {
    number: u64,
    /// Start, copied, done.
    events: [Event; 3],
    decode: Option<[Event; 2]>,
    writing: Vec<Writing>,
}

/// Launches take at most so many images: the third dimension of a grid.
const MOST_ITEMS: usize = 65_535;
/// Pixels and descriptors start at multiples of this.
const ALIGN: usize = 16;

impl UploadStream {
    /// One with these channel tables, which are named by their index. The GPU's context stays current on this thread,
    /// which is the stream's own.
    ///
    /// # Errors
    /// `OutOfMemory` and `Device` as CUDA says.
    pub fn new(kernels: &Arc<Kernels>, size: UploadSize, priority: Priority, tables: &[&ChannelTable]) -> Result<Self> {
        let context = kernels.context();
        context.bind()?.keep();
        let stream = Stream::new(context, priority)?;
        let mut places = Vec::new();
        let mut numbers: Vec<f32> = Vec::new();
        for table in tables {
            let channels = table.scale.len();
            let parts = [&table.scale, &table.bias, &table.fill, &table.cutout];
            if parts.iter().any(|part| part.len() != channels) {
                return Err(Error::new(ErrorKind::Internal, "a channel table has parts of different lengths"));
            }
            places.push((numbers.len() * size_of::<f32>(), channels as u32));
            parts.into_iter().for_each(|part| numbers.extend(part));
        }
        let bytes: &[u8] = bytemuck::cast_slice(&numbers);
        let memory = DeviceMemory::new(context, bytes.len())?;
        let page_bytes = size.page_bytes.max(bytes.len()).checked_next_multiple_of(ALIGN).ok_or_else(|| {
            Error::new(ErrorKind::OutOfMemory, format!("pages of {} bytes", size.page_bytes)).hint("use smaller rows")
        })?;
        let pages = (0..size.pages.max(1))
            .map(|_| {
                let (pinned, device) = (Pinned::new(context, page_bytes)?, DeviceMemory::new(context, page_bytes)?);
                Ok(Page { pinned, device, front: 0, back: 0, used_by: None })
            })
            .collect::<Result<Vec<_>>>()?;
        let mut upload = Self {
            kernels: Arc::clone(kernels),
            stream,
            tables: memory,
            places,
            pages,
            page_bytes,
            current: 0,
            groups: Vec::new(),
            copies: Vec::new(),
            writing: Vec::new(),
            decoded: None,
            flights: VecDeque::new(),
            broken: None,
            events: Vec::new(),
            launched: 0,
            times: DeviceTimes::default(),
            here: PhantomData,
        };
        if !bytes.is_empty() {
            // SAFETY: no copy was started yet.
            let pinned = unsafe { upload.pages[0].pinned.bytes_mut() };
            pinned[..bytes.len()].copy_from_slice(bytes);
            let (to, from) = (upload.tables.address(), upload.pages[0].pinned.start());
            upload.copy_up(to, from, bytes.len())?;
            upload.stream.sync()?;
        }
        Ok(upload)
    }

    /// The most bytes that one image may have to be uploaded.
    #[must_use]
    pub fn most_bytes(&self) -> usize {
        self.page_bytes.saturating_sub(2 * size_of::<DeviceItem>() + 2 * ALIGN)
    }

    /// Uploads the pixels that `fill` writes (interleaved or planar as `held` says, without padding) and resamples them
    /// into row `at` of `out`, with the next launch.
    ///
    /// # Errors
    /// `Internal` when the window or the row does not fit what is said of it; `Device` when the GPU failed.
    ///
    /// # Panics
    /// When `at` is out of range.
    #[allow(clippy::too_many_arguments)]
    pub fn resample(
        &mut self,
        held: &Held,
        params: &ResampleParams,
        table: usize,
        row: &RowSpec,
        out: &Rows,
        at: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<()> {
        let len = held.len_bytes();
        self.reserve(len.saturating_add(size_of::<DeviceItem>()), 0)?;
        let page = &self.pages[self.current];
        let size = held.info.dtype.size();
        let address = page.device.address() + page.front as u64;
        let channels = if held.info.planar { 1 } else { usize::from(held.info.channels) };
        // More than a page holds was refused above, unless no row is held.
        let pitch = u32::try_from(held.cols.len() * channels * size)
            .map_err(|_| Error::new(ErrorKind::Internal, format!("lines of {} pixels", held.cols.len())))?;
        self.add(&DevicePixels { held: held.clone(), address, pitch }, params, table, row, out, at)?;
        let page = &mut self.pages[self.current];
        // SAFETY: `reserve` has waited for the launch that last used the page.
        let pinned = unsafe { page.pinned.bytes_mut() };
        fill(&mut pinned[page.front..page.front + len]);
        page.front = (page.front + len).next_multiple_of(ALIGN);
        Ok(())
    }

    /// Resamples pixels that are on the device already, with the next launch.
    pub(in crate::sys) fn resample_device(
        &mut self,
        pixels: &DevicePixels,
        params: &ResampleParams,
        table: usize,
        row: &RowSpec,
        out: &Rows,
        at: usize,
    ) -> Result<()> {
        self.reserve(size_of::<DeviceItem>(), 0)?;
        self.add(pixels, params, table, row, out, at)
    }

    /// Copies a finished row that `fill` writes into row `at` of `out`, with the next launch. When `fill` fails nothing is
    /// copied.
    ///
    /// # Errors
    /// That of `fill`; `Internal` when a row is longer than a page; `Device` when the GPU failed.
    ///
    /// # Panics
    /// When `at` is out of range.
    pub fn put_row(&mut self, out: &Rows, at: usize, fill: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<()> {
        let len = out.row_bytes();
        let to = out.on_device(at).ok_or_else(in_host_memory)?;
        self.reserve(0, len)?;
        let from = self.pages[self.current].back_start(len);
        let page = &mut self.pages[self.current];
        // SAFETY: `reserve` has waited for the launch that last used the page.
        let pinned = unsafe { page.pinned.bytes_mut() };
        fill(&mut pinned[from..from + len])?;
        page.back = page.pinned.len() - from;
        self.copies.push(RowCopy { from, len, to });
        self.writes(out);
        Ok(())
    }

    pub(in crate::sys) fn stream(&self) -> &Stream {
        &self.stream
    }

    pub(in crate::sys) fn context(&self) -> &Context {
        self.kernels.context()
    }

    /// Whoever decodes on the stream marks the begin (`false`) and the end (`true`), for the times.
    pub(in crate::sys) fn mark_decode(&mut self, end: bool) -> Result<()> {
        if !end {
            let events = [self.event()?, self.event()?];
            events[0].record(&self.stream)?;
            self.decoded = Some(events);
        } else if let Some(events) = &self.decoded {
            events[1].record(&self.stream)?;
        }
        Ok(())
    }

    /// Starts everything since the last launch.
    ///
    /// # Errors
    /// `Device` when the GPU failed: then nothing that was given to it since may be used, and each later launch
    /// fails with the same error.
    pub fn launch(&mut self) -> Result<Ticket> {
        self.launch_then(|_| Ok(()))
    }

    /// [`launch`](Self::launch), with more work for the stream behind it, which is done when the launch is.
    pub(in crate::sys) fn launch_then(&mut self, more: impl FnOnce(&Stream) -> Result<()>) -> Result<Ticket> {
        if let Some((error, _)) = &self.broken {
            return Err(error.clone());
        }
        self.reap()?;
        self.page()?;
        let events = [self.event()?, self.event()?, self.event()?];
        self.launched += 1;
        let flight = Flight {
            number: self.launched,
            events,
            decode: self.decoded.take(),
            writing: mem::take(&mut self.writing),
        };
        let started = self.start(&flight.events).and_then(|()| more(&self.stream));
        let done = started.and_then(|()| flight.events[2].record(&self.stream));
        self.groups.clear();
        self.copies.clear();
        if let Err(error) = done {
            self.broken = Some((error.clone(), flight));
            return Err(error);
        }
        self.flights.push_back(flight);
        let page = &mut self.pages[self.current];
        page.used_by = Some(self.launched);
        self.current = (self.current + 1) % self.pages.len();
        Ok(Ticket(self.launched))
    }

    fn start(&mut self, [start, copied, _]: &[Event; 3]) -> Result<()> {
        start.record(&self.stream)?;
        let page = &mut self.pages[self.current];
        let mut launches = Vec::with_capacity(self.groups.len());
        for group in &self.groups {
            let bytes: &[u8] = bytemuck::cast_slice(&group.items);
            // SAFETY: `launch` has waited for the launch that last used the page, and copies begin below.
            let pinned = unsafe { page.pinned.bytes_mut() };
            pinned[page.front..page.front + bytes.len()].copy_from_slice(bytes);
            let items = page.device.address() + page.front as u64;
            page.front += bytes.len();
            launches.push((group.src, group.table, group.row, items, group.items.len() as u32));
        }
        let (device, pinned, front) = (page.device.address(), page.pinned.start(), page.front);
        if front > 0 {
            self.copy_up(device, pinned, front)?;
        }
        for RowCopy { from, len, to } in &self.copies {
            // SAFETY: `from` lies within the page.
            let from = unsafe { pinned.add(*from) };
            self.copy_up(*to, from, *len)?;
        }
        copied.record(&self.stream)?;
        for (src, table, row, items, count) in launches {
            self.launch_resample(src, table, &row, items, count)?;
        }
        Ok(())
    }

    /// Whether a launch is done. Its rows are written then.
    ///
    /// # Errors
    /// `Device` when the GPU failed.
    pub fn is_done(&mut self, ticket: Ticket) -> Result<bool> {
        self.reap()?;
        Ok(self.flights.front().is_none_or(|flight| flight.number > ticket.0))
    }

    /// Waits for a launch. Its rows are written then.
    ///
    /// # Errors
    /// `Device` when the GPU failed.
    pub fn wait(&mut self, ticket: Ticket) -> Result<()> {
        if let Some(flight) = self.flights.iter().rev().find(|flight| flight.number <= ticket.0) {
            flight.events[2].sync()?;
        }
        while self.flights.front().is_some_and(|flight| flight.number <= ticket.0) {
            self.land()?;
        }
        Ok(())
    }

    /// Time on the GPU of launches that were found done since the last call.
    pub fn take_times(&mut self) -> DeviceTimes {
        mem::take(&mut self.times)
    }

    /// Forgets what was given to it since the last launch.
    pub fn discard(&mut self) {
        self.groups.clear();
        self.copies.clear();
        self.writing.clear();
        if let Some(events) = self.decoded.take() {
            self.events.extend(events);
        }
        let page = &mut self.pages[self.current];
        (page.front, page.back) = (0, 0);
    }

    /// [`discard`](Self::discard), and waits for everything that was ever started: no row is written behind this.
    pub(in crate::sys) fn quiesce(&mut self) -> Result<()> {
        self.discard();
        self.stream.sync()?;
        // What a launch that failed did start is done too.
        if let Some((_, flight)) = &mut self.broken {
            flight.writing.clear();
        }
        Ok(())
    }

    /// Takes back what is done, without waiting.
    fn reap(&mut self) -> Result<()> {
        while let Some(flight) = self.flights.front() {
            if !flight.events[2].is_done()? {
                break;
            }
            self.land()?;
        }
        Ok(())
    }

    fn land(&mut self) -> Result<()> {
        let Some(Flight { events, decode, .. }) = self.flights.pop_front() else { return Ok(()) };
        let [start, copied, done] = &events;
        let mut times =
            DeviceTimes { transfer: start.until(copied)?, decode: Duration::ZERO, transform: copied.until(done)? };
        if let Some([begin, end]) = &decode {
            times.decode = begin.until(end)?;
        }
        self.times.add(times);
        self.events.extend(events.into_iter().chain(decode.into_iter().flatten()));
        Ok(())
    }

    fn event(&mut self) -> Result<Event> {
        self.events.pop().map_or_else(|| Event::timed(self.kernels.context()), Ok)
    }

    /// Bytes of the descriptors that the next launch will write.
    fn descriptors(&self) -> usize {
        self.groups.iter().map(|group| group.items.len()).sum::<usize>() * size_of::<DeviceItem>()
    }

    /// The page that is being filled, waited for if an earlier launch still uses it.
    fn page(&mut self) -> Result<&mut Page> {
        if let Some(launch) = self.pages[self.current].used_by.take() {
            self.wait(Ticket(launch))?;
            let page = &mut self.pages[self.current];
            (page.front, page.back) = (0, 0);
        }
        Ok(&mut self.pages[self.current])
    }

    /// Makes the current page hold this much more in front and at the back, launching what is there if need be.
    fn reserve(&mut self, front: usize, back: usize) -> Result<()> {
        let descriptors = self.descriptors();
        let waiting = self.groups.iter().map(|group| group.items.len()).max().unwrap_or(0);
        let page = self.page()?;
        let more = front.saturating_add(back).saturating_add(2 * ALIGN);
        if more > page.pinned.len() {
            let what = format!("{more} bytes do not fit a page of {}", page.pinned.len());
            return Err(Error::new(ErrorKind::Internal, what));
        }
        // None of them is more than a page; their sum is a number.
        if page.front + page.back + descriptors + more <= page.pinned.len() && waiting < MOST_ITEMS {
            return Ok(());
        }
        self.launch()?;
        self.page().map(drop)
    }

    /// The next launch writes one of these rows.
    fn writes(&mut self, out: &Rows) {
        if !self.writing.iter().any(|writing| writing.is_of(out)) {
            self.writing.push(out.writing());
        }
    }

    fn add(
        &mut self,
        pixels: &DevicePixels,
        params: &ResampleParams,
        table: usize,
        row: &RowSpec,
        out: &Rows,
        at: usize,
    ) -> Result<()> {
        let Held { info, rows, cols } = &pixels.held;
        let dst = out.on_device(at).ok_or_else(in_host_memory)?;
        let channels = u32::from(info.channels);
        let plane = (pixels.pitch as usize / info.dtype.size() * rows.len()) as u64;
        let item = DeviceItem {
            src: pixels.address,
            dst,
            plane: if info.planar { plane } else { 1 },
            pitch: pixels.pitch,
            pixel: if info.planar { 1 } else { channels },
            origin: [rows.start, cols.start],
            extent: [rows.len() as u32, cols.len() as u32],
            gray: u32::from(channels != row.channels && channels < 3),
            params: *params,
        };
        let broken = |what: String| Error::new(ErrorKind::Internal, what).hint("please report this");
        if channel_source(channels, row.channels, row.channels.saturating_sub(1)).is_none() {
            return Err(broken(format!("{channels} channels do not make {}", row.channels)));
        }
        if out.row_bytes() != row.len_bytes() || self.places.get(table).is_none_or(|place| place.1 != row.channels) {
            return Err(broken(format!("a row of {} bytes for {row:?}", out.row_bytes())));
        }
        if !device::fits(&item, row, info.dtype) || self.kernels.resample(info.dtype, row.dtype).is_none() {
            return Err(broken(format!("{params:?} reads outside rows {rows:?} and columns {cols:?} of {info:?}")));
        }
        let same = |group: &&mut Group| (group.src, group.table, group.row) == (info.dtype, table, *row);
        match self.groups.iter_mut().find(same) {
            Some(group) => group.items.push(item),
            None => self.groups.push(Group { src: info.dtype, table, row: *row, items: vec![item] }),
        }
        self.writes(out);
        Ok(())
    }

    fn copy_up(&self, to: CUdeviceptr, from: *const u8, len: usize) -> Result<()> {
        let context = self.kernels.context();
        let _bound = context.bind()?;
        // SAFETY: called with ranges of pages and rows, which live until the launch's event has passed.
        let code = unsafe { (context.driver().calls.cuMemcpyHtoDAsync_v2)(to, from.cast(), len, self.stream.raw()) };
        context.check("cuMemcpyHtoDAsync", code)
    }

    fn launch_resample(&self, src: DType, table: usize, row: &RowSpec, items: CUdeviceptr, count: u32) -> Result<()> {
        let context = self.kernels.context();
        let function = self.kernels.resample(src, row.dtype);
        let function = function.ok_or_else(|| Error::new(ErrorKind::Internal, "no kernel for these types"))?;
        let shape = device::launch_shape(row, count);
        let mut items = items;
        let mut table = self.tables.address() + self.places[table].0 as u64;
        let mut numbers: [c_uint; 5] =
            [row.height, row.width, row.channels, u32::from(row.layout == crate::types::Layout::Nhwc), count];
        let [height, width, channels, nhwc, count] = &mut numbers;
        let mut arguments: [*mut c_void; 7] = [
            (&raw mut items).cast(),
            (&raw mut table).cast(),
            (&raw mut *height).cast(),
            (&raw mut *width).cast(),
            (&raw mut *channels).cast(),
            (&raw mut *nhwc).cast(),
            (&raw mut *count).cast(),
        ];
        let [gx, gy, gz] = shape.grid;
        let [bx, by, bz] = shape.block;
        let _bound = context.bind()?;
        // SAFETY: the arguments are those of the kernel's signature and are copied by the call; what they point to
        // lives until the launch's event has passed, and `add` checked that no window leaves it.
        let code = unsafe {
            (context.driver().calls.cuLaunchKernel)(
                function,
                gx,
                gy,
                gz,
                bx,
                by,
                bz,
                shape.shared_bytes,
                self.stream.raw(),
                arguments.as_mut_ptr(),
                ptr::null_mut(),
            )
        };
        context.check("cuLaunchKernel", code)
    }
}

impl Page {
    fn back_start(&self, len: usize) -> usize {
        (self.pinned.len() - self.back - len) / ALIGN * ALIGN
    }
}

fn in_host_memory() -> Error {
    Error::new(ErrorKind::Internal, "a decoder for a GPU was given rows in host memory")
}

impl Drop for UploadStream {
    fn drop(&mut self) {
        // Memory under running work must not go. When the wait fails the GPU is lost, and nothing runs.
        let _ = self.stream.sync();
    }
}

impl fmt::Debug for UploadStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pages = self.pages.len();
        write!(f, "UploadStream({pages} pages of {} bytes on {:?})", self.page_bytes, self.kernels.context())
    }
}
