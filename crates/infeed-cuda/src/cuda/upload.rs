//! The work of one thread on a GPU: a stream, and pages of pinned memory, each with a copy in device memory.
//!
//! ```text
//! row(pixels)    ─▶ page: pixels, words of steps → │ descriptors │   ← finished rows │
//! put_row(bytes) ─▶   (pinned)     └──── launch: one copy up ────────┘   └ one copy each, straight into their rows
//!                                            └▶ page (device) ─▶ one kernel for each group of like images ─▶ rows
//!
//! planes of nvJPEG:  colour ─ before all of these
//! with steps on pictures:  images ─ resample ─▶ scratch ─ steps, one kernel for all ─▶ scratch ─ resample ─▶ rows ─ fills ─▶ rows
//! ```
//!
//! The interface is safe: memory that a kernel reads or writes stays alive until its event has passed; windows are
//! checked against the uploaded pixels before the launch; and rows can't be frozen, copied or cleared before the host
//! has seen the end of the work that writes them. Four things that are easy to get wrong:
//!
//! 1. A page is written again only after the *host* has seen the event of the launch that used it.
//! 2. Rows are complete only after the host has seen the launch's end, by [`UploadStream::wait`] or
//!    [`UploadStream::is_done`]. A [`Writing`] prevents handing them on earlier.
//! 3. One upload serves many small images: a copy costs microseconds, however small it is.
//! 4. There is one piece of scratch memory, which each launch reuses: launches of a stream run one after another.

use std::{
    collections::VecDeque,
    ffi::{c_uint, c_void},
    fmt,
    marker::PhantomData,
    mem,
    ops::Range,
    ptr,
    sync::Arc,
};

use cudarc::driver::sys::{CUdeviceptr, CUfunction};
use infeed_core::{
    error::{Error, ErrorKind, Result},
    report::DeviceTimes,
    rows::{Rows, Writing},
    types::{DType, ImageInfo},
};
use infeed_pixels::kernels::{
    ChannelTable, ResampleParams, RowFill, RowPass, RowScratch, RowSpec, RowWork, SCRATCH_ALIGN, WORDS_ALIGN,
    channel_source,
    device::{self, DeviceItem, LaunchShape},
    picture::{DevicePicture, DeviceRectangle, PICTURE_THREADS},
};

use super::{
    colour::{DevicePlanes, ROWS as COLOUR_ROWS, THREADS as COLOUR_THREADS},
    context::{Context, DeviceMemory, Event, Pinned, Priority, Stream},
    kernels::Kernels,
};

/// The part of an image that a resample reads: the part that is in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldWindow {
    /// The whole image.
    pub info: ImageInfo,
    /// The rows in memory.
    pub rows: Range<u32>,
    /// The columns in memory.
    pub cols: Range<u32>,
}

impl HeldWindow {
    /// Bytes of the pixels, without padding. On overflow `usize::MAX`, which is more than any memory.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        let pixel = usize::from(self.info.channels) * self.info.dtype.size();
        self.rows.len().saturating_mul(self.cols.len()).saturating_mul(pixel)
    }
}

/// Pixels in device memory. They must outlive the stream's work on them.
#[derive(Clone, Debug)]
pub(crate) struct DevicePixels {
    pub(crate) held: HeldWindow,
    pub(crate) address: CUdeviceptr,
    /// Bytes from one row to the next.
    pub(crate) pitch: u32,
}

/// How much staging memory an upload stream has: `pages * page_bytes` pinned, and the same on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UploadSize {
    /// Bytes of a page. A finished row must fit, with what else is uploaded with it.
    pub page_bytes: usize,
    /// Pages: one is filled while the others are copied.
    pub pages: usize,
    /// Bytes of device memory for pictures between two resamples; 0 without steps on pictures.
    pub scratch_bytes: usize,
}

/// Scratch memory has room for this many rows at a time in the worst case, and for several times as many rows that need
/// only their picture and one more.
const STEPS_ROWS: usize = 4;

impl UploadSize {
    /// Adds memory for rows with steps on pictures, which need up to `room` each.
    #[must_use]
    pub const fn with_steps(self, room: RowScratch) -> Self {
        let page_bytes = self.page_bytes.saturating_add(room.page.saturating_mul(STEPS_ROWS));
        let scratch_bytes = self.scratch_bytes.saturating_add(room.scratch.saturating_mul(STEPS_ROWS));
        Self { page_bytes, scratch_bytes, ..self }
    }

    /// Device bytes of an upload stream.
    #[must_use]
    pub const fn device_bytes(&self) -> u64 {
        self.page_bytes.saturating_mul(self.pages).saturating_add(self.scratch_bytes) as u64
    }
}

/// Identifies a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// A stream for uploads, and its memory. See the module documentation.
pub struct UploadStream {
    // Dropped in this order, after `drop` has waited for the stream.
    kernels: Arc<Kernels>,
    stream: Stream,
    tables: DeviceMemory,
    /// Offset in `tables` and number of channels of each table.
    places: Vec<(usize, u32)>,
    pages: Vec<Page>,
    page_bytes: usize,
    scratch: DeviceMemory,
    scratch_bytes: usize,
    /// Bytes used by the launch that is being filled.
    scratch_used: usize,
    /// The page that is being filled.
    current: usize,
    /// Images whose planes are converted to pixels, before all other work of the launch.
    planes: Vec<DevicePlanes>,
    groups: Vec<Group>,
    pictures: Vec<Pictures>,
    fills: Vec<Fills>,
    copies: Vec<RowCopy>,
    /// Guards of the buffers whose rows the next launch writes.
    writing: Vec<Writing>,
    /// The events before and after decoding, if decoding was started since the last launch.
    decoded: Option<[Event; 2]>,
    flights: VecDeque<Flight>,
    /// The first failure, and its flight, some of whose work may run. Nothing is started after a failure.
    broken: Option<(Error, Flight)>,
    events: Vec<Event>,
    launched: u64,
    /// Times of finished flights that `take_times` has not returned yet.
    times: DeviceTimes,
    /// Makes it `!Send`: a worker is made, used and dropped on one thread.
    here: PhantomData<*const ()>,
}

struct Page {
    pinned: Pinned,
    device: DeviceMemory,
    /// Bytes used at the front, which are copied to the page's device memory, and at the back (finished rows), which
    /// are not.
    front: usize,
    back: usize,
    /// The launch that it was filled for. It is written again only after that launch.
    used_by: Option<u64>,
}

/// Images that one kernel launch can resample.
struct Group {
    /// The number of resamples before this one.
    level: u32,
    src: DType,
    table: usize,
    row: RowSpec,
    items: Vec<DeviceItem>,
}

/// Pictures whose steps one kernel launch can do.
struct Pictures {
    /// They follow the resamples of this level.
    level: u32,
    float: bool,
    items: Vec<DevicePicture>,
}

/// Rectangles that one kernel launch can write.
struct Fills {
    /// The number of rectangles of the same row before this one.
    level: u32,
    row: RowSpec,
    items: Vec<DeviceRectangle>,
}

/// A kernel launch; the address of its descriptors is kept separately.
enum Start {
    /// Converts planes of images with at most this many rows.
    Colour {
        height: u32,
    },
    Resample {
        src: DType,
        table: usize,
        row: RowSpec,
    },
    Pictures {
        float: bool,
    },
    Fill {
        row: RowSpec,
    },
}

/// Where a kernel writes.
#[derive(Clone, Copy, Debug)]
enum Target<'a> {
    Row(&'a Rows, usize),
    Scratch(CUdeviceptr),
}

/// A finished row to be copied from the page.
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

/// Most images of a launch: the limit of the third dimension of a grid.
const MOST_ITEMS: usize = 65_535;
/// Pixels and descriptors start at multiples of this.
const ALIGN: usize = 16;
/// The level of rectangles, which are written after all resamples and steps.
const FILLS: u32 = 1 << 16;
/// Blocks and threads per rectangle. A rectangle of a third of a row of 224x224x3 has 50,000 values.
const FILL_BLOCKS: u32 = 8;
const FILL_THREADS: u32 = 256;

impl UploadStream {
    /// An upload stream with these channel tables, which are referred to by their index. Makes the GPU's context
    /// current on this thread and keeps it so; the thread must belong to the stream.
    ///
    /// # Errors
    /// `OutOfMemory` and `Device`, as CUDA reports them.
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
            Error::new(ErrorKind::OutOfMemory, format!("pages of {} bytes", size.page_bytes))
                .with_hint("use smaller rows")
        })?;
        let pages = (0..size.pages.max(1))
            .map(|_| {
                let (pinned, device) = (Pinned::new(context, page_bytes)?, DeviceMemory::new(context, page_bytes)?);
                Ok(Page { pinned, device, front: 0, back: 0, used_by: None })
            })
            .collect::<Result<Vec<_>>>()?;
        if size.scratch_bytes > 0 {
            // Load the kernels now, rather than during the first batch.
            kernels.pictures()?;
        }
        let scratch = DeviceMemory::new(context, size.scratch_bytes)?;
        let mut upload = Self {
            kernels: Arc::clone(kernels),
            stream,
            tables: memory,
            places,
            pages,
            page_bytes,
            scratch,
            scratch_bytes: size.scratch_bytes,
            scratch_used: 0,
            current: 0,
            planes: Vec::new(),
            groups: Vec::new(),
            pictures: Vec::new(),
            fills: Vec::new(),
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
            // SAFETY: no copy has started yet.
            let pinned = unsafe { upload.pages[0].pinned.bytes_mut() };
            pinned[..bytes.len()].copy_from_slice(bytes);
            let (to, from) = (upload.tables.address(), upload.pages[0].pinned.start());
            upload.copy_up(to, from, bytes.len())?;
            upload.stream.sync()?;
        }
        Ok(upload)
    }

    /// The most bytes of an image that can be uploaded.
    #[must_use]
    pub fn most_bytes(&self) -> usize {
        self.page_bytes.saturating_sub(2 * size_of::<DeviceItem>() + 2 * ALIGN)
    }

    /// Whether an image of this many bytes can be uploaded together with its work.
    #[must_use]
    pub fn takes(&self, bytes: usize, work: &RowWork) -> bool {
        let RowScratch { scratch, page } = work.room();
        bytes <= self.most_bytes().saturating_sub(page) && scratch <= self.scratch_bytes
    }

    /// Uploads the pixels that `fill` writes (interleaved or planar as in `held`, without padding) and makes row `at`
    /// of `out` of them as described by `work`, with the next launch.
    ///
    /// # Errors
    /// `Internal` if the window or the row does not match its description, or if the image is larger than
    /// [`takes`](Self::takes) allows; `Device` if the GPU failed.
    ///
    /// # Panics
    /// When `at` is out of range.
    pub fn row(
        &mut self,
        held: &HeldWindow,
        work: &RowWork,
        out: &Rows,
        at: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<()> {
        let len = held.len_bytes();
        self.reserve_row(len, work)?;
        let page = &self.pages[self.current];
        let (start, size) = (page.front, held.info.dtype.size());
        let address = page.device.address() + start as u64;
        let channels = if held.info.planar { 1 } else { usize::from(held.info.channels) };
        // `reserve` refused more bytes than a page has; but with no rows, lines can still be too long.
        let pitch = u32::try_from(held.cols.len() * channels * size)
            .map_err(|_| Error::new(ErrorKind::Internal, format!("lines of {} pixels", held.cols.len())))?;
        let pixels = DevicePixels { held: held.clone(), address, pitch };
        self.add(&pixels, work, out, at, (start + len).next_multiple_of(ALIGN))?;
        let page = &mut self.pages[self.current];
        // SAFETY: `reserve` has waited for the launch that last used the page.
        let pinned = unsafe { page.pinned.bytes_mut() };
        fill(&mut pinned[start..start + len]);
        Ok(())
    }

    /// Makes a row from pixels that are already on the device, with the next launch.
    pub(crate) fn row_of_device(&mut self, pixels: &DevicePixels, work: &RowWork, out: &Rows, at: usize) -> Result<()> {
        self.reserve_row(0, work)?;
        let front = self.pages[self.current].front;
        self.add(pixels, work, out, at, front)
    }

    /// Converts an image on the device from planes to pixels, with the next launch and before its rows. The page must
    /// be sized for its descriptors.
    pub(crate) fn colour(&mut self, image: DevicePlanes) -> Result<()> {
        self.reserve(size_of_val(&image), 0)?;
        self.planes.push(image);
        Ok(())
    }

    /// Copies a finished row that `fill` writes into row `at` of `out`, with the next launch. If `fill` fails, nothing
    /// is copied.
    ///
    /// # Errors
    /// The error of `fill`; `Internal` if a row is longer than a page; `Device` if the GPU failed.
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

    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    pub(crate) fn context(&self) -> &Context {
        self.kernels.context()
    }

    /// To be called by a decoder on the stream before (`false`) and after (`true`) its work, to measure its time.
    pub(crate) fn mark_decode(&mut self, end: bool) -> Result<()> {
        if !end {
            let events = [self.event()?, self.event()?];
            events[0].record(&self.stream)?;
            self.decoded = Some(events);
        } else if let Some(events) = &self.decoded {
            events[1].record(&self.stream)?;
        }
        Ok(())
    }

    /// Launches all work since the last launch.
    ///
    /// # Errors
    /// `Device` if the GPU failed. Then no row since the last launch may be used, and each later launch fails with the
    /// same error.
    pub fn launch(&mut self) -> Result<Ticket> {
        self.launch_then(|_| Ok(()))
    }

    /// As [`launch`](Self::launch), followed by more work on the stream. The launch is done when this work is done too.
    pub(crate) fn launch_then(&mut self, more: impl FnOnce(&Stream) -> Result<()>) -> Result<Ticket> {
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
        self.forget();
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
        let mut launches = Vec::with_capacity(self.groups.len() + self.pictures.len() + self.fills.len());
        let mut put = |level: u32, start: Start, bytes: &[u8], count: usize| {
            // SAFETY: the launch that last used the page was waited for, and the copies begin below.
            let pinned = unsafe { page.pinned.bytes_mut() };
            pinned[page.front..page.front + bytes.len()].copy_from_slice(bytes);
            launches.push((level, start, page.device.address() + page.front as u64, count as u32));
            page.front += bytes.len();
        };
        if let Some(height) = self.planes.iter().map(|image| image.height).max() {
            put(0, Start::Colour { height }, bytemuck::cast_slice(&self.planes), self.planes.len());
        }
        for Group { level, src, table, row, items } in &self.groups {
            let start = Start::Resample { src: *src, table: *table, row: *row };
            put(2 * level + 1, start, bytemuck::cast_slice(items), items.len());
        }
        for Pictures { level, float, items } in &self.pictures {
            put(2 * level + 2, Start::Pictures { float: *float }, bytemuck::cast_slice(items), items.len());
        }
        for Fills { level, row, items } in &self.fills {
            // After all kernels that make rows.
            put(FILLS + level, Start::Fill { row: *row }, bytemuck::cast_slice(items), items.len());
        }
        launches.sort_by_key(|(level, ..)| *level);
        let (device, pinned, front) = (page.device.address(), page.pinned.start(), page.front);
        if front > 0 {
            self.copy_up(device, pinned, front)?;
        }
        for RowCopy { from, len, to } in &self.copies {
            // SAFETY: `from` is within the page.
            let from = unsafe { pinned.add(*from) };
            self.copy_up(*to, from, *len)?;
        }
        copied.record(&self.stream)?;
        for (_, start, items, count) in launches {
            match start {
                Start::Colour { height } => self.launch_colour(height, items, count)?,
                Start::Resample { src, table, row } => self.launch_resample(src, table, &row, items, count)?,
                Start::Pictures { float } => self.launch_pictures(float, items, count)?,
                Start::Fill { row } => self.launch_fill(&row, items, count)?,
            }
        }
        Ok(())
    }

    /// Whether a launch is done; then its rows are written.
    ///
    /// # Errors
    /// `Device` if the GPU failed.
    pub fn is_done(&mut self, ticket: Ticket) -> Result<bool> {
        self.reap()?;
        Ok(self.flights.front().is_none_or(|flight| flight.number > ticket.0))
    }

    /// Waits for a launch; then its rows are written.
    ///
    /// # Errors
    /// `Device` if the GPU failed.
    pub fn wait(&mut self, ticket: Ticket) -> Result<()> {
        if let Some(flight) = self.flights.iter().rev().find(|flight| flight.number <= ticket.0) {
            flight.events[2].sync()?;
        }
        while self.flights.front().is_some_and(|flight| flight.number <= ticket.0) {
            self.land()?;
        }
        Ok(())
    }

    /// Time on the GPU of the launches that finished, as far as `is_done` and `wait` saw, since the last call.
    pub fn take_times(&mut self) -> DeviceTimes {
        mem::take(&mut self.times)
    }

    /// Drops all work since the last launch.
    pub fn discard(&mut self) {
        self.forget();
        self.writing.clear();
        if let Some(events) = self.decoded.take() {
            self.events.extend(events);
        }
        let page = &mut self.pages[self.current];
        (page.front, page.back) = (0, 0);
    }

    /// As [`discard`](Self::discard), and waits for all work that was ever started: no row is written after this.
    pub(crate) fn quiesce(&mut self) -> Result<()> {
        self.discard();
        self.stream.sync()?;
        // Work that a failed launch had started is done too.
        if let Some((_, flight)) = &mut self.broken {
            flight.writing.clear();
        }
        Ok(())
    }

    fn forget(&mut self) {
        self.planes.clear();
        self.groups.clear();
        self.pictures.clear();
        self.fills.clear();
        self.copies.clear();
        self.scratch_used = 0;
    }

    /// Collects the finished flights, without waiting.
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
        let mut times = DeviceTimes::default();
        (times.transfer, times.transform) = (start.until(copied)?, copied.until(done)?);
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
        let images: usize = self.groups.iter().map(|group| size_of_val(&group.items[..])).sum();
        let pictures: usize = self.pictures.iter().map(|group| size_of_val(&group.items[..])).sum();
        let fills: usize = self.fills.iter().map(|group| size_of_val(&group.items[..])).sum();
        size_of_val(&self.planes[..]) + images + pictures + fills
    }

    /// The page that is being filled. Waits if an earlier launch still uses it.
    fn page(&mut self) -> Result<&mut Page> {
        if let Some(launch) = self.pages[self.current].used_by.take() {
            self.wait(Ticket(launch))?;
            let page = &mut self.pages[self.current];
            (page.front, page.back) = (0, 0);
        }
        Ok(&mut self.pages[self.current])
    }

    /// Makes room for this many more bytes at the front and at the back of the current page. Launches its content if
    /// necessary.
    fn reserve(&mut self, front: usize, back: usize) -> Result<()> {
        let descriptors = self.descriptors();
        let waiting = self.groups.iter().map(|group| group.items.len()).max().unwrap_or(0);
        let page = self.page()?;
        let more = front.saturating_add(back).saturating_add(2 * ALIGN);
        if more > page.pinned.len() {
            let what = format!("{more} bytes do not fit a page of {}", page.pinned.len());
            return Err(Error::new(ErrorKind::Internal, what));
        }
        // None of them is more than a page, so the sum does not overflow.
        if page.front + page.back + descriptors + more <= page.pinned.len() && waiting < MOST_ITEMS {
            return Ok(());
        }
        self.launch()?;
        self.page().map(drop)
    }

    /// As `reserve`, for an image of this many bytes with all its work.
    fn reserve_row(&mut self, bytes: usize, work: &RowWork) -> Result<()> {
        let RowScratch { scratch, page } = work.room();
        if scratch > self.scratch_bytes {
            let what = format!("pictures of {scratch} bytes do not fit {} of scratch memory", self.scratch_bytes);
            return Err(Error::new(ErrorKind::Internal, what));
        }
        if self.scratch_used + scratch > self.scratch_bytes {
            self.launch()?;
        }
        self.reserve(bytes.saturating_add(page), 0)
    }

    /// Notes that the next launch writes one of these rows.
    fn writes(&mut self, out: &Rows) {
        if !self.writing.iter().any(|writing| writing.is_of(out)) {
            self.writing.push(out.writing());
        }
    }

    /// Adds all work for one row. `front`: the offset in the page for its words and values, for which room must be
    /// reserved.
    fn add(&mut self, pixels: &DevicePixels, work: &RowWork, out: &Rows, at: usize, front: usize) -> Result<()> {
        let broken = |what: &str| Error::new(ErrorKind::Internal, what.to_owned()).with_hint("please report this");
        // Check everything first, so that nothing is kept of a refused row.
        let (mut front, mut used) = (front, self.scratch_used);
        let (mut resamples, mut pictures, mut words) = (Vec::new(), Vec::new(), Vec::new());
        let base = self.scratch.address();
        let device = self.pages[self.current].device.address();
        let mut take = |bytes: usize| {
            let address = base + used as u64;
            used += bytes.next_multiple_of(SCRATCH_ALIGN);
            address
        };
        let mut picture: Option<DevicePixels> = None;
        let mut level = 0;
        for (n, pass) in work.passes.iter().enumerate() {
            match pass {
                RowPass::Resample { params, table, spec } => {
                    let from = picture.as_ref().unwrap_or(pixels);
                    let last = n + 1 == work.passes.len();
                    let to = if last { Target::Row(out, at) } else { Target::Scratch(take(spec.len_bytes())) };
                    let item = self.item(from, params, *table, spec, to)?;
                    resamples.push((level, from.held.info.dtype, *table, *spec, item));
                    level += 1;
                    if let Target::Scratch(address) = to {
                        picture = Some(picture_at(address, spec)?);
                    }
                }
                RowPass::Steps(program) => {
                    let Some(from) = &picture else { return Err(broken("steps on a picture that does not exist")) };
                    let info = &from.held.info;
                    let is = RowSpec {
                        height: info.height,
                        width: info.width,
                        channels: u32::from(info.channels),
                        dtype: info.dtype,
                        ..*program.spec()
                    };
                    // Planes may have been dropped since.
                    if (RowSpec { channels: is.channels, ..*program.spec() }) != is
                        || program.spec().channels > is.channels
                    {
                        return Err(broken("steps for another picture"));
                    }
                    let room = program.room(is.len_bytes());
                    let address = from.address;
                    let places = std::array::from_fn(|place| match room[place] {
                        _ if place == 0 => address,
                        0 => 0,
                        bytes => take(bytes),
                    });
                    if !program.words().is_empty() {
                        let item = DevicePicture {
                            places,
                            words: device + front as u64,
                            count: program.words().len() as u32,
                            height: is.height,
                            width: is.width,
                            unused: 0,
                        };
                        pictures.push((level - 1, is.dtype == DType::F32, item));
                        let bytes: &[u8] = bytemuck::cast_slice(program.words());
                        words.push((front, bytes));
                        front += bytes.len().next_multiple_of(WORDS_ALIGN);
                    }
                    picture = Some(picture_at(places[program.place()], program.spec())?);
                }
            }
        }
        if !matches!(work.passes.last(), Some(RowPass::Resample { .. })) {
            return Err(broken("a row without a last resample"));
        }
        let row = resamples.last().map(|(_, _, _, spec, item)| (*spec, item.dst));
        let (row, dst) = row.ok_or_else(|| broken("a row without a last resample"))?;
        let mut rectangles = Vec::with_capacity(work.fills.len());
        for RowFill { area, values, each } in &work.fills {
            let [top, bottom, left, right] = *area;
            let inside = top < bottom && bottom <= row.height && left < right && right <= row.width;
            let places = if *each { u64::from(bottom - top) * u64::from(right - left) } else { 1 };
            if !inside || values.len() as u64 != places * u64::from(row.channels) {
                return Err(broken("a rectangle outside the row"));
            }
            let address = device + front as u64;
            let rectangle =
                DeviceRectangle { row: dst, values: address, area: *area, each: u32::from(*each), unused: 0 };
            rectangles.push(rectangle);
            let bytes: &[u8] = bytemuck::cast_slice(values);
            words.push((front, bytes));
            front += bytes.len().next_multiple_of(WORDS_ALIGN);
        }

        let page = &mut self.pages[self.current];
        // SAFETY: `reserve` has waited for the launch that last used the page.
        let pinned = unsafe { page.pinned.bytes_mut() };
        for (at, bytes) in words {
            pinned[at..at + bytes.len()].copy_from_slice(bytes);
        }
        (page.front, self.scratch_used) = (front, used);
        for (level, src, table, row, item) in resamples {
            let same =
                |group: &&mut Group| (group.level, group.src, group.table, group.row) == (level, src, table, row);
            match self.groups.iter_mut().find(same) {
                Some(group) => group.items.push(item),
                None => self.groups.push(Group { level, src, table, row, items: vec![item] }),
            }
        }
        for (level, float, item) in pictures {
            match self.pictures.iter_mut().find(|group| (group.level, group.float) == (level, float)) {
                Some(group) => group.items.push(item),
                None => self.pictures.push(Pictures { level, float, items: vec![item] }),
            }
        }
        for (level, rectangle) in (0..).zip(rectangles) {
            match self.fills.iter_mut().find(|group| (group.level, group.row) == (level, row)) {
                Some(group) => group.items.push(rectangle),
                None => self.fills.push(Fills { level, row, items: vec![rectangle] }),
            }
        }
        self.writes(out);
        Ok(())
    }

    /// The descriptor of one resample, after checks.
    fn item(
        &self,
        pixels: &DevicePixels,
        params: &ResampleParams,
        table: usize,
        row: &RowSpec,
        to: Target<'_>,
    ) -> Result<DeviceItem> {
        let HeldWindow { info, rows, cols } = &pixels.held;
        let broken = |what: String| Error::new(ErrorKind::Internal, what).with_hint("please report this");
        let (dst, len) = match to {
            Target::Row(out, at) => (out.on_device(at).ok_or_else(in_host_memory)?, out.row_bytes()),
            Target::Scratch(address) => (address, row.len_bytes()),
        };
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
        if channel_source(channels, row.channels, row.channels.saturating_sub(1)).is_none() {
            return Err(broken(format!("{channels} channels do not make {}", row.channels)));
        }
        if len != row.len_bytes() || self.places.get(table).is_none_or(|place| place.1 != row.channels) {
            return Err(broken(format!("a row of {len} bytes for {row:?}")));
        }
        if !device::fits(&item, row, info.dtype) || self.kernels.resample(info.dtype, row.dtype).is_none() {
            return Err(broken(format!("{params:?} reads outside rows {rows:?} and columns {cols:?} of {info:?}")));
        }
        Ok(item)
    }

    fn copy_up(&self, to: CUdeviceptr, from: *const u8, len: usize) -> Result<()> {
        let context = self.kernels.context();
        let _bound = context.bind()?;
        // SAFETY: called only with ranges of pages and rows, which live until the launch's event has passed.
        let code = unsafe { (context.driver().calls.cuMemcpyHtoDAsync_v2)(to, from.cast(), len, self.stream.raw()) };
        context.check("cuMemcpyHtoDAsync", code)
    }

    fn launch_resample(&self, src: DType, table: usize, row: &RowSpec, items: CUdeviceptr, count: u32) -> Result<()> {
        let function = self.kernels.resample(src, row.dtype);
        let function = function.ok_or_else(|| Error::new(ErrorKind::Internal, "no kernel for these types"))?;
        let shape = device::launch_shape(row, count);
        let mut items = items;
        let mut table = self.tables.address() + self.places[table].0 as u64;
        let mut numbers: [c_uint; 5] =
            [row.height, row.width, row.channels, u32::from(row.layout == infeed_core::types::Layout::Nhwc), count];
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
        self.launch_kernel(function, shape, &mut arguments)
    }

    fn launch_colour(&self, height: u32, items: CUdeviceptr, count: u32) -> Result<()> {
        let (mut items, mut number) = (items, count);
        let grid = [height.div_ceil(COLOUR_ROWS).max(1), count, 1];
        let shape = LaunchShape { grid, block: [COLOUR_THREADS, 1, 1], shared_bytes: 0 };
        let mut arguments: [*mut c_void; 2] = [(&raw mut items).cast(), (&raw mut number).cast()];
        self.launch_kernel(self.kernels.colour()?, shape, &mut arguments)
    }

    fn launch_pictures(&self, float: bool, items: CUdeviceptr, count: u32) -> Result<()> {
        let mut items = items;
        let shape = LaunchShape { grid: [count, 1, 1], block: [PICTURE_THREADS, 1, 1], shared_bytes: 0 };
        self.launch_kernel(self.kernels.pictures()?.steps(float), shape, &mut [(&raw mut items).cast()])
    }

    fn launch_fill(&self, row: &RowSpec, items: CUdeviceptr, count: u32) -> Result<()> {
        let function = self.kernels.pictures()?.rows(row.dtype).map(|kernels| kernels.fill);
        let function = function.ok_or_else(|| Error::new(ErrorKind::Internal, "no kernel for these rows"))?;
        let mut items = items;
        let mut numbers: [c_uint; 4] =
            [row.height, row.width, row.channels, u32::from(row.layout == infeed_core::types::Layout::Nhwc)];
        let [height, width, channels, nhwc] = &mut numbers;
        let mut arguments: [*mut c_void; 5] = [
            (&raw mut items).cast(),
            (&raw mut *height).cast(),
            (&raw mut *width).cast(),
            (&raw mut *channels).cast(),
            (&raw mut *nhwc).cast(),
        ];
        let shape = LaunchShape { grid: [FILL_BLOCKS, count, 1], block: [FILL_THREADS, 1, 1], shared_bytes: 0 };
        self.launch_kernel(function, shape, &mut arguments)
    }

    /// Launches a kernel. `arguments` must match its signature.
    fn launch_kernel(&self, function: CUfunction, shape: LaunchShape, arguments: &mut [*mut c_void]) -> Result<()> {
        let context = self.kernels.context();
        let [gx, gy, gz] = shape.grid;
        let [bx, by, bz] = shape.block;
        let _bound = context.bind()?;
        // SAFETY: the arguments are those of the kernel's signature, and the call copies them; the memory that they
        // point to lives until the launch's event has passed, and `add` checked that all windows are within it.
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

/// A whole picture, in planes.
fn picture_at(address: CUdeviceptr, spec: &RowSpec) -> Result<DevicePixels> {
    let what = || Error::new(ErrorKind::Internal, format!("a picture of {} channels", spec.channels));
    let channels = u8::try_from(spec.channels).map_err(|_| what())?;
    let info = ImageInfo { height: spec.height, width: spec.width, channels, dtype: spec.dtype, planar: true };
    let pitch = u32::try_from(spec.width as usize * spec.dtype.size()).map_err(|_| what())?;
    Ok(DevicePixels { held: HeldWindow { info, rows: 0..spec.height, cols: 0..spec.width }, address, pitch })
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
        // Memory must outlive running work. If this wait fails, nothing runs on a lost GPU,
        // or the process is ending and nothing is freed.
        let _ = self.stream.sync();
    }
}

impl fmt::Debug for UploadStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pages = self.pages.len();
        write!(f, "UploadStream({pages} pages of {} bytes on {:?})", self.page_bytes, self.kernels.context())
    }
}
