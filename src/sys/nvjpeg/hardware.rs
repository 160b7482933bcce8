//! Batches for the JPEG engines.
//!
//! ```text
//! stage(file) × n ─▶ pinned bitstreams ─ decode() ─▶ arena ─ resample() × n ─ launch() ─▶ rows
//!                       └──────────── one of three generations ────────────┘
//! ```
//!
//! Generations are filled in turn. The GPU works on two flights at most while a third one is staged, so the *host* has
//! seen the end of the launch that last read a generation before anything is written there: engines of Hopper GPUs
//! ignore what their stream waits for when they write (torchvision PR 9606, torchcodec PR 1634: 100 of 100 batches
//! too early behind an event, none after a host wait). For the same reason the arenas are plain allocations, made once:
//! memory of a stream-ordered pool may still belong to work that runs.

use std::{
    collections::VecDeque,
    ffi::c_uchar,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use nvjpeg_sys::{
    cudaStream_t, nvjpegBackend_t_NVJPEG_BACKEND_HARDWARE as HARDWARE,
    nvjpegChromaSubsampling_t_NVJPEG_CSS_444 as CSS_444, nvjpegDecodeParams_t, nvjpegImage_t,
};

use super::{
    result::check,
    safe::{Coded, DecodeState, FORMAT, Failure, Handle, JpegStream, PIXEL, Params},
};
use crate::{
    error::{Error, ErrorKind, Result},
    report::DeviceTimes,
    sys::{
        cuda::{
            Context, DeviceMemory, DevicePixels, Held, Kernels, Pinned, Priority, Ticket, UploadSize, UploadStream,
        },
        kernels::{ChannelTable, ResampleParams, RowSpec, device::DeviceItem},
        rows::Rows,
    },
    types::ImageInfo,
};

/// One more than the flights that may be under way.
const GENERATIONS: usize = 3;
/// States take turns too: while one decodes, the other is set up.
const STATES: usize = 2;
/// Images start at multiples of this: what a plain allocation is aligned to.
const ALIGN: usize = 256;
/// An image may take up to this part of an arena, and a file of the pinned memory: larger ones would make batches of
/// one, which leave most engines idle.
const SHARE: usize = 4;

/// JPEG engines of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engines {
    /// Engines.
    pub engines: u32,
    /// Images that one engine decodes at a time.
    pub cores: u32,
}

impl Engines {
    /// Images that are decoded at a time; 1 or more.
    #[must_use]
    pub fn cores(&self) -> usize {
        (self.engines.max(1) as usize).saturating_mul(self.cores.max(1) as usize)
    }
}

/// The JPEG engines of a GPU, or the reason why there are none. Takes a good part of a second.
///
/// # Errors
/// `Device`: no nvJPEG, or one that does not work with the driver.
pub fn engines(context: &Context) -> Result<Result<Engines, String>> {
    let handle = match Handle::new(context, HARDWARE)? {
        Ok(handle) => handle,
        Err(reason) => return Ok(Err(reason)),
    };
    let _bound = context.bind()?;
    let mut found = Engines { engines: 0, cores: 0 };
    // SAFETY: the handle lives; both numbers outlive the call.
    let status = unsafe {
        (handle.calls().nvjpegGetHardwareDecoderInfo)(handle.raw(), &raw mut found.engines, &raw mut found.cores)
    };
    check("nvjpegGetHardwareDecoderInfo", status)?;
    Ok(if found.engines == 0 { Err("nvJPEG sees no JPEG engine on this GPU".into()) } else { Ok(found) })
}

/// How large the batches of [`Hardware`] are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HardwareSize {
    /// Images.
    pub images: usize,
    /// Bytes of decoded pixels.
    pub arena_bytes: usize,
    /// Bytes of files.
    pub pinned_bytes: usize,
}

impl HardwareSize {
    /// Page-locked bytes of a [`Hardware`]: its own, and as many that nvJPEG may use for each of two batches.
    #[must_use]
    pub fn host_bytes(&self) -> u64 {
        let upload = self.upload().page_bytes.saturating_mul(GENERATIONS);
        self.pinned_bytes.saturating_mul(GENERATIONS + STATES).saturating_add(upload) as u64
    }

    /// Device bytes of a [`Hardware`]: its own, and what nvJPEG may use, estimated as the pixels again for each of two
    /// batches (planes at full size, before they become RGB).
    #[must_use]
    pub fn device_bytes(&self) -> u64 {
        let upload = self.upload().page_bytes.saturating_mul(GENERATIONS);
        self.arena_bytes.saturating_mul(GENERATIONS + STATES).saturating_add(upload) as u64
    }

    /// The largest whose device bytes are at most `bytes`, but no more than `self`; at least `least` bytes of pixels.
    #[must_use]
    pub fn within(self, bytes: u64, least: usize) -> Option<Self> {
        let upload = self.upload().page_bytes.saturating_mul(GENERATIONS) as u64;
        let arena = bytes.saturating_sub(upload) / (GENERATIONS + STATES) as u64;
        let arena = usize::try_from(arena).unwrap_or(usize::MAX).min(self.arena_bytes) / ALIGN * ALIGN;
        (arena >= least).then_some(Self { arena_bytes: arena, ..self })
    }

    /// Pages that hold the descriptors of a whole batch.
    fn upload(&self) -> UploadSize {
        let items = self.images.saturating_add(2).saturating_mul(size_of::<DeviceItem>());
        UploadSize { page_bytes: items.saturating_add(256), pages: GENERATIONS }
    }
}

/// What became of a file that was offered to a batch.
#[derive(Debug)]
pub enum Staged {
    /// It is image so many of the batch.
    Taken(usize),
    /// The batch is full: decode it and offer the file again.
    Full,
    /// The engines do not take it, or it is too large for a batch.
    Refused(Error),
}

/// The JPEG engines of a GPU, for one thread.
pub struct Hardware {
    // Destroyed in this order, after the stream was waited for.
    states: [(DecodeState, Option<Ticket>); STATES],
    params: Params,
    stream: JpegStream,
    generations: Vec<Generation>,
    handle: Rc<Handle>,
    upload: UploadStream,
    size: HardwareSize,
    /// The generation that is being filled.
    current: usize,
    /// The state that is next.
    turn: usize,
    images: Vec<Image>,
    /// The batch was given to the engines and waits for its launch.
    decoded: bool,
}

struct Generation {
    arena: DeviceMemory,
    pinned: Pinned,
    /// The launch that read it last.
    used_by: Option<Ticket>,
}

#[derive(Clone, Copy, Debug)]
struct Image {
    /// Of the file in the pinned memory.
    file: usize,
    len: usize,
    /// Of the pixels in the arena.
    at: usize,
    width: u32,
    rows: u32,
    height: u32,
    kind: u8,
}

impl Image {
    fn bytes(&self) -> usize {
        (self.width as usize).saturating_mul(self.rows as usize).saturating_mul(PIXEL)
    }
}

impl Hardware {
    /// Makes everything that batches of this size need. The inner error is the reason why the GPU has no engines.
    ///
    /// # Errors
    /// `Device` and `OutOfMemory` as CUDA and nvJPEG say.
    pub fn open(kernels: &Arc<Kernels>, size: HardwareSize, tables: &[&ChannelTable]) -> Result<Result<Self, String>> {
        let context = kernels.context();
        let handle = match Handle::new(context, HARDWARE)? {
            Ok(handle) => handle,
            Err(reason) => return Ok(Err(reason)),
        };
        let upload = UploadStream::new(kernels, size.upload(), Priority::High, tables)?;
        let generation = |_| {
            let arena = DeviceMemory::new(context, size.arena_bytes)?;
            Ok(Generation { arena, pinned: Pinned::new(context, size.pinned_bytes)?, used_by: None })
        };
        let generations = (0..GENERATIONS).map(generation).collect::<Result<Vec<_>>>()?;
        let states = [(DecodeState::batched(&handle)?, None), (DecodeState::batched(&handle)?, None)];
        let hardware = Self {
            params: Params::new(&handle)?,
            stream: JpegStream::new(&handle)?,
            states,
            generations,
            handle,
            upload,
            size,
            current: 0,
            turn: 0,
            images: Vec::new(),
            decoded: false,
        };
        hardware.allocate_before();
        Ok(Ok(hardware))
    }

    /// Lets nvJPEG allocate for batches of usual images now. In NVIDIA's words that is worth 20 %.
    fn allocate_before(&self) {
        let Ok(_bound) = self.handle.context().bind() else { return };
        // Square images that fill the arena, with chroma at full size.
        let side =
            (self.size.arena_bytes / self.size.images.saturating_mul(PIXEL).max(1)).isqrt().clamp(16, 8192) as i32;
        let images = i32::try_from(self.size.images).unwrap_or(i32::MAX);
        for (state, _) in &self.states {
            // SAFETY: handle and state live.
            let status = unsafe {
                (self.handle.calls().nvjpegDecodeBatchedPreAllocate)(
                    self.handle.raw(),
                    state.raw(),
                    images,
                    side,
                    side,
                    CSS_444,
                    FORMAT,
                )
            };
            if let Err(error) = check("nvjpegDecodeBatchedPreAllocate", status) {
                // The first batch will allocate then.
                tracing::debug!(error = %error, images, side, "nvJPEG allocates no memory before the first batch");
            }
        }
    }

    /// Number of images in the batch that is being filled.
    #[must_use]
    pub fn staged(&self) -> usize {
        self.images.len()
    }

    /// Adds an image to the batch: copies the file to page-locked memory, lets nvJPEG parse it there and asks whether
    /// the engines take it. Only its first `rows` rows will be decoded. `kind` is any number that is the same for
    /// images of the same subsampling.
    ///
    /// # Errors
    /// When the GPU is lost.
    pub fn stage(&mut self, image: &Coded<'_>, rows: u32, kind: u8) -> Result<Staged, Failure> {
        let Coded { file, height, width, height_at } = *image;
        let rows = rows.clamp(1, height.max(1));
        let image = Image { file: 0, len: file.len(), at: 0, width, rows, height, kind };
        if image.bytes() > self.size.arena_bytes / SHARE || file.len() > self.size.pinned_bytes / SHARE {
            let what = format!("{width}x{rows} pixels of a JPEG of {} bytes are too many for a batch", file.len());
            return Ok(Staged::Refused(Error::new(ErrorKind::Unsupported, what)));
        }
        let (file_at, at) = self.images.last().map_or((0, 0), |last| {
            ((last.file + last.len).next_multiple_of(16), (last.at + last.bytes()).next_multiple_of(ALIGN))
        });
        let full = self.images.len() >= self.size.images
            || file_at + file.len() > self.size.pinned_bytes
            || at + image.bytes() > self.size.arena_bytes;
        if full || self.decoded {
            return Ok(Staged::Full);
        }
        self.wait_for_generation()?;
        // SAFETY: the host has just seen the end of the launch that last used the generation, and nvJPEG reads the files of
        // this one only after `decode`, which stages no more.
        let pinned = unsafe { self.generations[self.current].pinned.bytes_mut() };
        let copy = &mut pinned[file_at..file_at + file.len()];
        copy.copy_from_slice(file);
        if rows < height {
            let told = height_at.checked_add(2).and_then(|end| copy.get_mut(height_at..end));
            match (told, u16::try_from(rows)) {
                (Some(told), Ok(rows)) => told.copy_from_slice(&rows.to_be_bytes()),
                _ => return Ok(Staged::Refused(Error::new(ErrorKind::Internal, "a JPEG header outside its file"))),
            }
        }
        if let Err(error) = parse(&self.handle, &mut self.stream, &self.params, copy, rows, width) {
            return Ok(Staged::Refused(error));
        }
        self.images.push(Image { file: file_at, at, ..image });
        Ok(Staged::Taken(self.images.len() - 1))
    }

    /// The host sees the end of the launch that last used the generation. See the module.
    fn wait_for_generation(&mut self) -> Result<(), Failure> {
        match self.generations[self.current].used_by.take() {
            Some(ticket) => self.upload.wait(ticket).map_err(Failure::Lost),
            None => Ok(()),
        }
    }

    /// Starts decoding the batch. Waits on the host for the flight before the last one.
    ///
    /// # Errors
    /// The images are forgotten then, and none of them is decoded.
    pub fn decode(&mut self) -> Result<(), Failure> {
        if self.images.is_empty() || self.decoded {
            return Ok(());
        }
        self.wait_for_generation()?;
        if let Some(ticket) = self.states[self.turn].1.take() {
            self.upload.wait(ticket).map_err(Failure::Lost)?;
        }
        match self.start() {
            Ok(()) => {
                self.decoded = true;
                Ok(())
            }
            Err(error) => {
                self.images.clear();
                Err(Failure::after(error, &mut self.upload))
            }
        }
    }

    fn start(&mut self) -> Result<()> {
        // The engines like neighbours of a kind, and the largest first, so that none is left with a large one at the end.
        let mut order: Vec<&Image> = self.images.iter().collect();
        order.sort_by_key(|image| (image.kind, std::cmp::Reverse(image.bytes())));
        let Generation { arena, pinned, .. } = &self.generations[self.current];
        // Within the page-locked memory: `stage` put each file there.
        let files: Vec<*const c_uchar> =
            order.iter().map(|image| pinned.start().wrapping_add(image.file).cast()).collect();
        let lengths: Vec<usize> = order.iter().map(|image| image.len).collect();
        let mut images: Vec<nvjpegImage_t> = order
            .iter()
            .map(|image| {
                let mut to = nvjpegImage_t::new();
                to.channel[0] = (arena.address() + image.at as u64) as *mut c_uchar;
                to.pitch[0] = image.width as usize * PIXEL;
                to
            })
            .collect();
        let mut params: Vec<nvjpegDecodeParams_t> = vec![self.params.raw(); images.len()];
        self.upload.mark_decode(false)?;
        let (handle, calls) = (self.handle.raw(), self.handle.calls());
        let state = self.states[self.turn].0.raw();
        let stream: cudaStream_t = self.upload.stream().raw().cast();
        let _bound = self.handle.context().bind()?;
        // SAFETY: handle and state live, and the state's last decode is done. One thread parses: a full parse was made.
        let status = unsafe { (calls.nvjpegDecodeBatchedInitialize)(handle, state, images.len() as i32, 1, FORMAT) };
        check("nvjpegDecodeBatchedInitialize", status)?;
        // SAFETY: four lists of as many entries, copied by the call. The files stay as they are and the pixels have
        // their place until the launch is done: nvJPEG's own parse of each file gave the size that was set aside, and
        // the host has seen the end of the generation's last use.
        let status = unsafe {
            (calls.nvjpegDecodeBatchedEx)(
                handle,
                state,
                files.as_ptr(),
                lengths.as_ptr(),
                images.as_mut_ptr(),
                params.as_mut_ptr(),
                stream,
            )
        };
        check("nvjpegDecodeBatchedEx", status)?;
        self.upload.mark_decode(true)
    }

    /// Resamples an image of the batch that was decoded into row `at` of `out`, with the next launch.
    ///
    /// # Errors
    /// `Internal` when the window is not in the image, or there is no such image.
    ///
    /// # Panics
    /// When `at` is out of range.
    pub fn resample(
        &mut self,
        image: usize,
        params: &ResampleParams,
        table: usize,
        row: &RowSpec,
        out: &Rows,
        at: usize,
    ) -> Result<()> {
        let image = self.images.get(image).filter(|_| self.decoded);
        let image = image.ok_or_else(|| Error::new(ErrorKind::Internal, "no such image in the batch"))?;
        let pixels = DevicePixels {
            held: Held {
                info: ImageInfo::interleaved_u8(image.height, image.width, PIXEL as u8),
                rows: 0..image.rows,
                cols: 0..image.width,
            },
            address: self.generations[self.current].arena.address() + image.at as u64,
            pitch: image.width * PIXEL as u32,
        };
        self.upload.resample_device(&pixels, params, table, row, out, at)
    }

    /// Starts what was given since the last launch, and goes on to the next batch.
    ///
    /// # Errors
    /// No row of the batch is written then, and nothing of it is under way.
    pub fn launch(&mut self) -> Result<Ticket, Failure> {
        self.images.clear();
        self.decoded = false;
        let ticket = self.upload.launch().map_err(|error| Failure::after(error, &mut self.upload))?;
        self.generations[self.current].used_by = Some(ticket);
        self.states[self.turn].1 = Some(ticket);
        self.current = (self.current + 1) % GENERATIONS;
        self.turn = (self.turn + 1) % STATES;
        Ok(ticket)
    }

    /// What the engines alone can do, for benchmarks: decodes what is staged `times` times over, without parsing it
    /// again and without resampling, and goes on to the next batch. With two `states` the next decode is set up and
    /// given to the engines while one is under way, as a loader does; with one, each is waited for. Time on the host from
    /// the first call to the last end.
    ///
    /// # Errors
    /// The images are forgotten then.
    pub fn measure(&mut self, times: usize, states: usize) -> Result<Duration, Failure> {
        let states = states.clamp(1, STATES);
        if self.images.is_empty() || self.decoded {
            return Ok(Duration::ZERO);
        }
        self.wait_for_generation()?;
        for turn in 0..STATES {
            if let Some(ticket) = self.states[turn].1.take() {
                self.upload.wait(ticket).map_err(Failure::Lost)?;
            }
        }
        let mut flights = VecDeque::with_capacity(STATES);
        let begin = Instant::now();
        for n in 0..times {
            self.turn = n % states;
            if flights.len() == states
                && let Some(ticket) = flights.pop_front()
            {
                self.upload.wait(ticket).map_err(Failure::Lost)?;
            }
            // Each decode writes the same pixels to the same places, which nobody reads.
            if let Err(error) = self.start() {
                self.images.clear();
                return Err(Failure::after(error, &mut self.upload));
            }
            match self.upload.launch() {
                Ok(ticket) => flights.push_back(ticket),
                Err(error) => {
                    self.images.clear();
                    return Err(Failure::after(error, &mut self.upload));
                }
            }
        }
        for ticket in flights {
            self.upload.wait(ticket).map_err(Failure::Lost)?;
        }
        let time = begin.elapsed();
        self.images.clear();
        self.turn = 0;
        self.current = (self.current + 1) % GENERATIONS;
        Ok(time)
    }

    /// Whether a launch is done. Its rows are written then.
    ///
    /// # Errors
    /// `Device` when the GPU failed.
    pub fn is_done(&mut self, ticket: Ticket) -> Result<bool> {
        self.upload.is_done(ticket)
    }

    /// Waits for a launch.
    ///
    /// # Errors
    /// `Device` when the GPU failed.
    pub fn wait(&mut self, ticket: Ticket) -> Result<()> {
        self.upload.wait(ticket)
    }

    /// Time on the GPU of launches that were found done since the last call.
    pub fn take_times(&mut self) -> DeviceTimes {
        self.upload.take_times()
    }
}

/// Parses a file and asks whether the engines take it.
fn parse(handle: &Handle, stream: &mut JpegStream, params: &Params, file: &[u8], rows: u32, width: u32) -> Result<()> {
    let _bound = handle.context().bind()?;
    // SAFETY: the stream is used below and not after that.
    unsafe { stream.parse(file, rows, width) }?;
    let mut refused = 1;
    // SAFETY: all three live; the number outlives the call.
    let status = unsafe {
        (handle.calls().nvjpegDecodeBatchedSupportedEx)(handle.raw(), stream.raw(), params.raw(), &raw mut refused)
    };
    check("nvjpegDecodeBatchedSupportedEx", status)?;
    if refused != 0 {
        return Err(Error::new(ErrorKind::Unsupported, "the engines do not decode this kind of JPEG"));
    }
    Ok(())
}

impl Drop for Hardware {
    fn drop(&mut self) {
        // Nothing goes under running work. When the wait fails the GPU is lost, and nothing runs.
        let _ = self.upload.stream().sync();
    }
}

impl std::fmt::Debug for Hardware {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hardware({:?} on {:?})", self.size, self.handle.context())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_shrinks_to_the_memory_that_there_is() {
        let size = HardwareSize { images: 64, arena_bytes: 64 << 20, pinned_bytes: 16 << 20 };
        assert_eq!(size.within(u64::MAX, 1 << 20), Some(size));
        assert_eq!(size.within(size.device_bytes(), 1 << 20), Some(size));
        let small = size.within(100 << 20, 1 << 20).unwrap();
        assert!(small.device_bytes() <= 100 << 20 && small.arena_bytes > 19 << 20, "{small:?}");
        assert_eq!(small.arena_bytes % ALIGN, 0);
        assert_eq!(size.within(4 << 20, 1 << 20), None);
    }
}
