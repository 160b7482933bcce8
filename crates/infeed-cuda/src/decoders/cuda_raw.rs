//! Makes rows on a GPU from pixels: the CPU decodes, if needed, and the GPU resamples.
//!
//! ```text
//! worker thread: file ─ ImageCodec ─▶ pixels ─┬─ window ─▶ pinned page ─ copy ─▶ kernels ─▶ row (device)
//!                              │              └─ all steps ─▶ pinned page ─ copy ────────▶ row
//!                              └─▶ planes ─ resample ─▶ pinned page ─ copy ──────────────▶ row
//! ```
//!
//! The smaller of pixels and finished row is uploaded (the first two lines of the drawing). A CIFAR picture or a crop
//! of a photograph is smaller than its row, so its pixels are uploaded; a large scan that becomes a small row is
//! resampled on the CPU. Custom steps run on the CPU, so their rows are uploaded finished. The same holds for rows with
//! pictures whose size has no bound that is known in advance.
//!
//! A JPEG that is only cropped and resized is resampled on the CPU, from planes decoded at the size that the row needs.
//! The result equals the row of the CPU decoder to the bit. Pixels for the GPU's kernel would be the whole crop, at
//! full size and in colour, which costs a third more CPU time (16 threads with an H100: 12,000 images/s against
//! 16,500).

use std::{
    collections::VecDeque,
    num::NonZeroUsize,
    ops::Range,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use infeed_core::{
    error::{
        Error, ErrorKind, Result,
        setting::{DEVICE_BUDGET, STREAMS},
    },
    report::Stage,
    rows::Rows,
    types::Device,
};
use infeed_pixels::codec::{
    Class, Decoder, Finished, ImageCodec, Item, Job, Outcome, Wait, Worker,
    reader::{Drawing, Image, Reader, blame, fits_mask, images, sized},
};
use infeed_pixels::{
    kernels::{ChannelTable, Pixels, RowScratch, RowWork},
    transform::{Lowered, RowMaker},
};

use crate::cuda::{HeldWindow, Kernels, Priority, Ticket, UploadSize, UploadStream};

/// Pages of a worker's upload: one is filled while two are being copied.
const PAGES: usize = 3;
/// Most jobs that share a launch (one copy, its kernels and events), as long as more jobs are waiting. An image decoded
/// from a file is one job. It takes about a millisecond; a launch takes the driver a little over ten microseconds.
const JOBS: usize = 4;
/// A launch starts at once if its page holds this many items.
const ITEMS: usize = 8;
/// Bytes of a page, unless rows are longer: room for a few hundred CIFAR pictures or several crops of photographs.
const PAGE_BYTES: usize = 2 << 20;

/// Decodes on CPU threads, then resamples and does the steps on pictures on a GPU. It has one class, `cpu`.
///
/// Memory: each worker holds at most `max_image_bytes` for pixels and 6 MiB of page-locked memory (more if rows are
/// longer than 2 MiB). It also holds the same 6 MiB in device memory. [`with_steps`](Self::with_steps) adds to both.
///
/// A loader whose device is a GPU without nvJPEG makes this decoder itself. By hand:
///
/// ```no_run
/// # use infeed::internal::cuda::{Context, Kernels};
/// use std::{num::NonZeroUsize, sync::Arc};
///
/// use infeed::{codec::codecs, spi::{CudaRaw, Decoder}};
///
/// # fn main() -> infeed::Result<()> {
/// let kernels = Kernels::load(&Context::open(0)?)?;
/// let threads = NonZeroUsize::new(8).expect("8 is not 0");
/// // Rows of 3 x 224 x 224 f32.
/// let decoder = CudaRaw::new(threads, codecs(), 64 << 20, &kernels, 3 * 224 * 224 * 4);
/// println!("{} bytes of the GPU for each thread", decoder.device_bytes(0));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct CudaRaw {
    classes: [Class; 1],
    codecs: Arc<[Arc<dyn ImageCodec>]>,
    max_image_bytes: u64,
    kernels: Arc<Kernels>,
    page_bytes: usize,
    steps: RowScratch,
}

impl CudaRaw {
    /// A decoder with `workers` threads for the GPU of `kernels`. `codecs` and `max_image_bytes` are as for
    /// [`Cpu`](infeed_pixels::codec::Cpu); `row_bytes` is the length of the longest row.
    #[must_use]
    pub fn new(
        workers: NonZeroUsize,
        codecs: impl IntoIterator<Item = Arc<dyn ImageCodec>>,
        max_image_bytes: u64,
        kernels: &Arc<Kernels>,
        row_bytes: usize,
    ) -> Self {
        let device = Device::Cuda(kernels.context().index());
        let batch = NonZeroUsize::MIN.saturating_add(PAGES * JOBS - 1);
        let mut class = Class::new("cpu", device, workers);
        class.batch = batch;
        // A few more bytes than a row, so that a row always fits with the other things that an upload writes into a
        // page.
        let page_bytes = PAGE_BYTES.max(row_bytes.saturating_add(4096));
        let (codecs, kernels) = (codecs.into_iter().collect(), Arc::clone(kernels));
        Self { classes: [class], codecs, max_image_bytes, kernels, page_bytes, steps: RowScratch::default() }
    }

    /// Reserves memory for steps on pictures on the GPU, for rows that need `room`. Without this, these steps run on
    /// the CPU.
    #[must_use]
    pub const fn with_steps(mut self, room: RowScratch) -> Self {
        self.steps = room;
        self
    }

    /// Device memory for steps on pictures, for each thread that makes rows.
    pub(crate) const fn steps_bytes(&self) -> u64 {
        Self::NONE.with_steps(self.steps).device_bytes()
    }

    /// Page-locked memory for steps on pictures, for each thread that makes rows.
    pub(super) const fn steps_host_bytes(&self) -> u64 {
        (PAGES * Self::NONE.with_steps(self.steps).page_bytes) as u64
    }

    const NONE: UploadSize = UploadSize { page_bytes: 0, pages: PAGES, scratch_bytes: 0 };

    const fn upload(&self) -> UploadSize {
        UploadSize { page_bytes: self.page_bytes, pages: PAGES, scratch_bytes: 0 }.with_steps(self.steps)
    }

    /// The memory that steps on a row's pictures may use.
    pub(super) const fn steps(&self) -> RowScratch {
        self.steps
    }

    /// The kernels, with the GPU that they are loaded on.
    #[must_use]
    pub fn kernels(&self) -> &Arc<Kernels> {
        &self.kernels
    }

    /// The codecs, in order of precedence.
    pub(super) const fn codecs(&self) -> &Arc<[Arc<dyn ImageCodec>]> {
        &self.codecs
    }

    /// Most bytes of memory for decoding an image on the CPU.
    pub(super) const fn max_image_bytes(&self) -> u64 {
        self.max_image_bytes
    }
}

impl Decoder for CudaRaw {
    fn name(&self) -> &'static str {
        "cuda-raw"
    }

    fn classes(&self) -> &[Class] {
        &self.classes
    }

    fn scratch_bytes(&self, _class: usize) -> u64 {
        self.max_image_bytes.saturating_add((PAGES * self.upload().page_bytes) as u64)
    }

    fn device_bytes(&self, _class: usize) -> u64 {
        self.upload().device_bytes()
    }

    fn worker(&self, _class: usize, _n: usize, programs: &Arc<[Option<Lowered>]>) -> Result<Box<dyn Worker>> {
        Ok(Box::new(RawWorker {
            reader: Reader::new(&self.codecs, self.max_image_bytes),
            images: images(programs)
                .into_iter()
                .map(|fields| (from_planes(&programs[fields.clone()]), fields))
                .collect(),
            maker: RowMaker::new(),
            upload: UploadStream::new(&self.kernels, self.upload(), Priority::High, &tables(programs))?,
            programs: Arc::clone(programs),
            work: RowWork::default(),
            staged: Vec::new(),
            flights: VecDeque::new(),
            lost: Vec::new(),
        }))
    }
}

/// Whether no view of an image has steps on pictures for the GPU: then the CPU makes the rows.
fn from_planes(views: &[Option<Lowered>]) -> bool {
    views.iter().flatten().all(|lowered| lowered.device_room().is_none())
}

/// The channel tables of all fields, for an upload stream.
pub(super) fn tables(programs: &[Option<Lowered>]) -> Vec<&ChannelTable> {
    programs.iter().flatten().flat_map(Lowered::tables).collect()
}

/// The index of a field's first table among [`tables`].
pub(super) fn first_table(programs: &[Option<Lowered>], field: usize) -> usize {
    programs[..field].iter().flatten().map(|lowered| lowered.tables().count()).sum()
}

#[derive(Debug)]
struct RawWorker {
    reader: Reader,
    maker: RowMaker,
    upload: UploadStream,
    programs: Arc<[Option<Lowered>]>,
    /// For each image, the fields that show it, and whether their rows are made from its planes if its codec gives
    /// planes.
    images: Vec<(bool, Range<usize>)>,
    /// Scratch for the row that is being made.
    work: RowWork,
    /// Jobs whose pixels are in the page.
    staged: Vec<Finished>,
    flights: VecDeque<(Ticket, Vec<Finished>)>,
    /// Jobs that could not be launched.
    lost: Vec<Finished>,
}

impl Worker for RawWorker {
    fn submit(&mut self, mut job: Job) {
        let start = Instant::now();
        let mut decode = Duration::ZERO;
        let Job { items, rows, .. } = &mut job;
        let mut outcome = |(row, item): (usize, &Item)| match self.item(item, row, rows, &mut decode) {
            Ok(()) => Outcome::Done,
            Err(error) => Outcome::Failed(error.at_stage(Stage::Decode).at_record(item.record)),
        };
        let outcomes = items.iter().enumerate().map(&mut outcome).collect();
        let transform = start.elapsed().saturating_sub(decode);
        let images = self.reader.take_decoded();
        let mut finished = Finished::new(job, outcomes);
        (finished.images, finished.decode, finished.transform) = (images, decode, transform);
        self.staged.push(finished);
        let items: usize = self.staged.iter().map(|finished| finished.job.items.len()).sum();
        if self.staged.len() >= JOBS || items >= ITEMS {
            self.launch();
        }
    }

    fn poll(&mut self, wait: Wait) -> Vec<Finished> {
        let mut finished = std::mem::take(&mut self.lost);
        if wait == Wait::Block && finished.is_empty() {
            // A caller that waits has no more work for now.
            self.launch();
            self.wait();
        }
        while let Some(ticket) = self.flights.front().map(|flight| flight.0) {
            let done = self.upload.is_done(ticket);
            if let Ok(false) = done {
                break;
            }
            let Some((_, mut jobs)) = self.flights.pop_front() else { break };
            if let Some(first) = jobs.first_mut() {
                first.device = self.upload.take_times();
            }
            match done {
                Ok(_) => finished.append(&mut jobs),
                Err(error) => finished.extend(jobs.into_iter().map(|job| failed(job, &error))),
            }
        }
        finished
    }
}

/// The sleep between two queries of work on the GPU: short against a job (a millisecond), long against a query (a
/// microsecond).
pub(super) const NAP: Duration = Duration::from_micros(50);
/// Sleeps before the worker looks for another job.
pub(super) const NAPS: usize = 4;

impl RawWorker {
    /// Launches the jobs in the page.
    fn launch(&mut self) {
        if self.staged.is_empty() {
            return;
        }
        let (start, mut jobs) = (Instant::now(), std::mem::take(&mut self.staged));
        match self.upload.launch() {
            Ok(ticket) => {
                if let Some(last) = jobs.last_mut() {
                    last.transform += start.elapsed();
                }
                self.flights.push_back((ticket, jobs));
            }
            Err(error) => self.lost.extend(jobs.into_iter().map(|job| failed(job, &error))),
        }
    }

    /// Waits for the oldest jobs. If the worker can take another job, which may arrive at any time, it waits only
    /// briefly.
    fn wait(&mut self) {
        let Some(ticket) = self.flights.front().map(|flight| flight.0) else { return };
        let in_hand: usize = self.flights.iter().map(|flight| flight.1.len()).sum();
        if in_hand >= PAGES * JOBS {
            // A failure is reported again by the query of this launch.
            let _ = self.upload.wait(ticket);
            return;
        }
        for _ in 0..NAPS {
            match self.upload.is_done(ticket) {
                Ok(false) => thread::sleep(NAP),
                Ok(true) | Err(_) => return,
            }
        }
    }

    fn item(&mut self, item: &Item, row: usize, rows: &[Rows], decode: &mut Duration) -> Result<()> {
        let sample = item.sample.as_ref().map_err(Error::clone)?;
        if sample.values.len() != self.programs.len() || rows.len() != self.programs.len() {
            return Err(Error::new(ErrorKind::Internal, "a sample has other fields than its schema"));
        }
        let (mut size, draws) = (None, Drawing::of(item.rng, sample));
        for (from_planes, fields) in &self.images {
            let (value, views) = (&sample.values[fields.start], &self.programs[fields.clone()]);
            let own = sized(views, item.size);
            let views = own.as_deref().unwrap_or(views);
            let blame = blame(views, self.images.len());
            let read = self.reader.read(value, item.header.as_ref(), views, draws, decode, *from_planes);
            let (info, image, drawn) = read.map_err(&blame)?;
            draws.fits(&info).map_err(&blame)?;
            for ((lowered, drawn), field) in views.iter().flatten().zip(drawn).zip(fields.clone()) {
                let rows = &rows[field];
                fits_mask(lowered, &info, &mut size).map_err(&blame)?;
                let (base, work, maker) = (first_table(&self.programs, field), &mut self.work, &mut self.maker);
                let Image::Pixels(pixels) = &image else {
                    self.upload
                        .put_row(rows, row, |out| maker.run(lowered, drawn, image.decoded(), out))
                        .map_err(of_device)?;
                    continue;
                };
                let [window_rows, cols] = [
                    drawn.params.y.reads(drawn.spec.height, drawn.params.filter),
                    drawn.params.x.reads(drawn.spec.width, drawn.params.filter),
                ];
                let held = HeldWindow { info: pixels.info, rows: window_rows, cols };
                let len = held.len_bytes();
                // Upload the pixels if they are smaller than the row and the GPU can do all steps.
                if len <= rows.row_bytes()
                    && lowered.row_work(drawn, pixels.info.dtype, base, work)?
                    && self.upload.takes(len, work)
                {
                    self.upload
                        .row(&held, work, rows, row, |page| copy_window(pixels, &held, page))
                        .map_err(of_device)?;
                } else {
                    self.upload
                        .put_row(rows, row, |out| maker.run(lowered, drawn, image.decoded(), out))
                        .map_err(of_device)?;
                }
            }
        }
        Ok(())
    }
}

/// Converts an error to one of the GPU, not of a sample: a lack of device memory is not the image's fault.
pub(super) fn of_device(error: Error) -> Error {
    if error.kind() == ErrorKind::OutOfMemory {
        return Error::new(ErrorKind::Device, "the GPU has no memory left to work with")
            .with_hint(format!("lower {DEVICE_BUDGET} or {STREAMS}, or free memory of the GPU"))
            .with_source(error);
    }
    error
}

/// A job that failed on the GPU.
pub(super) fn failed(mut finished: Finished, error: &Error) -> Finished {
    let error = of_device(error.clone()).at_stage(Stage::Transfer);
    finished.outcomes.fill_with(|| Outcome::Failed(error.clone()));
    finished
}

/// Copies the part of `pixels` that `held` describes, without gaps.
fn copy_window(pixels: &Pixels<'_>, held: &HeldWindow, out: &mut [u8]) {
    let Pixels { info, rows, data } = pixels;
    let size = info.dtype.size();
    // Planar images are gray ones, a channel after the other.
    let (planes, pixel) =
        if info.planar { (usize::from(info.channels), size) } else { (1, usize::from(info.channels) * size) };
    let (pitch, plane) = (info.width as usize * pixel, info.width as usize * pixel * rows.len());
    let part = bytes_of(&held.cols, pixel);
    if part.len() == pitch && *rows == held.rows {
        return out.copy_from_slice(&data[..out.len()]);
    }
    let mut lines = out.chunks_exact_mut(part.len().max(1));
    for n in 0..planes {
        for y in held.rows.clone() {
            let line = &data[n * plane + (y - rows.start) as usize * pitch..][part.clone()];
            if let Some(out) = lines.next() {
                out.copy_from_slice(line);
            }
        }
    }
}

fn bytes_of(range: &Range<u32>, size: usize) -> Range<usize> {
    range.start as usize * size..range.end as usize * size
}

#[cfg(test)]
mod tests {
    use super::*;
    use infeed_core::types::ImageInfo;

    #[test]
    fn a_window_is_cut_out_of_interleaved_and_planar_pixels() {
        let data: Vec<u8> = (0..4 * 5 * 2).collect();
        for planar in [false, true] {
            let info = ImageInfo { planar, ..ImageInfo::interleaved_u8(9, 5, 2) };
            // `pixels` has rows 3 to 6 of the image.
            let pixels = Pixels { info, rows: 3..7, data: &data };
            let held = HeldWindow { info, rows: 4..6, cols: 1..4 };
            let mut out = vec![0; held.len_bytes()];
            copy_window(&pixels, &held, &mut out);
            let at = |y: u8, x: u8, c: u8| if planar { c * 20 + (y - 3) * 5 + x } else { ((y - 3) * 5 + x) * 2 + c };
            let mut expected = Vec::new();
            if planar {
                (0..2).for_each(|c| (4..6).for_each(|y| (1..4).for_each(|x| expected.push(at(y, x, c)))));
            } else {
                (4..6).for_each(|y| (1..4).for_each(|x| (0..2).for_each(|c| expected.push(at(y, x, c)))));
            }
            assert_eq!(out, expected, "planar {planar}");
            let whole = HeldWindow { info, rows: 3..7, cols: 0..5 };
            let mut out = vec![0; whole.len_bytes()];
            copy_window(&pixels, &whole, &mut out);
            assert_eq!(out, data);
        }
    }
}
