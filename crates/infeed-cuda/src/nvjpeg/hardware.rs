//! Decodes batches on the JPEG engines, or on the GPU's cores.
//!
//! ```text
//! stage(file) × n ─▶ pinned bitstreams ─ decode() ─▶ arena of planes ─ colour ─▶ pixels ─ row() × n, launch() ─▶ rows
//!                       └────────────── one of three generations ──┘              └ one buffer for all
//! ```
//!
//! Generations are filled in turn. The GPU works on at most two flights while a third one is staged. So the *host* has
//! seen the end of the launch that last read a generation before anything is written there. Engines of Hopper GPUs
//! ignore what their stream waits for when they write (torchvision PR 9606, torchcodec PR 1634: with an event 100 of
//! 100 batches were written too early, after a host wait none). For the same reason the arenas are plain allocations,
//! made once: memory of a stream-ordered pool may still be in use by running work.
//!
//! The engines make planes; `cuda/colour.cu` converts them to pixels.
//!
//! Each of the two flights has its own handle, in a [`Lane`]: the batched decoder belongs to the handle, and NVIDIA's
//! guide requires that a handle's batch is finished before it is set up for the next one.
//!
//! Engines may leave an image undecoded and report success (seen on RTX 50xx: MrNeRF/LichtFeld-Studio#1924). The row
//! would show an older image with a new label. So an arena has *canaries*, a pattern unlike pixels, at regular
//! distances, where images begin. After each batch's last read one strided fill writes them, and after the next batch
//! one strided copy brings these places to the host. Both are a few kilobytes on the stream.
//!
//! Engines may have written a part of a failed batch, and the host can't wait for them. So its generation is not the
//! next one to be filled, and its lane gets a new state.

use std::{
    collections::VecDeque,
    ffi::c_uchar,
    fmt, mem,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use cudarc::driver::sys::{CUDA_MEMCPY2D, CUmemorytype};
use infeed_core::{
    error::{Error, ErrorKind, Result},
    report::DeviceTimes,
    rows::Rows,
    types::ImageInfo,
};
use infeed_pixels::kernels::{ChannelTable, RowScratch, RowWork, device::DeviceItem};
use nvjpeg_sys::{
    cudaStream_t, nvjpegBackend_t, nvjpegBackend_t_NVJPEG_BACKEND_GPU_HYBRID as GPU_HYBRID,
    nvjpegBackend_t_NVJPEG_BACKEND_HARDWARE as HARDWARE, nvjpegChromaSubsampling_t_NVJPEG_CSS_444 as CSS_444,
    nvjpegDecodeParams_t, nvjpegImage_t, nvjpegJpegEncoding_t_NVJPEG_ENCODING_BASELINE_DCT as BASELINE,
};

use super::{
    result::check,
    safe::{Chroma, Coded, DecodeState, Failure, Handle, JpegStream, PIXEL, PLANES, Params, WHOLE},
};
use crate::cuda::{
    Context, DeviceMemory, DevicePixels, DevicePlanes, HeldWindow, Kernels, Pinned, Priority, Stream, Ticket,
    UploadSize, UploadStream,
};

/// One more than the flights at a time.
const GENERATIONS: usize = 3;
/// Lanes alternate too: while one decodes, the other is set up. There is at least one.
const LANES: usize = 2;
/// Arenas of device memory: a generation's planes, the pixels, and what nvJPEG may use for a lane.
const ARENAS: usize = GENERATIONS + 1 + LANES;
/// The least distance of the places where images may start: the alignment of a plain allocation.
const ALIGN: usize = 256;
/// The largest such distance, with a canary at each place. It wastes little memory per photograph, and few canaries are
/// copied.
const MOST_SLOT: usize = 64 << 10;
/// The four words at a place where no image was written yet.
const CANARY: [u32; 4] = [0xa53c_0ff1; 4];
/// Bytes of a canary.
const CANARY_BYTES: usize = size_of_val(&CANARY);
/// An image may take at most 1/4 of an arena, and a file at most 1/4 of the pinned memory. Larger ones would make
/// batches of one, which leave most engines idle.
const SHARE: usize = 4;

/// JPEG engines of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engines {
    /// Number of engines.
    pub engines: u32,
    /// Images that each engine decodes at a time.
    pub cores: u32,
}

impl Engines {
    /// Images that all engines decode at a time; 1 or more.
    #[must_use]
    pub fn cores(&self) -> usize {
        (self.engines.max(1) as usize).saturating_mul(self.cores.max(1) as usize)
    }
}

/// The JPEG engines of a GPU; the inner error is the reason why there are none. Takes most of a second.
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
    Ok(if found.engines == 0 { Err("nvJPEG finds no JPEG engine on this GPU".into()) } else { Ok(found) })
}

/// The part of the GPU that decodes batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BatchDecoder {
    /// Its JPEG engines.
    #[default]
    Engines,
    /// Its cores, including Huffman decoding: nvJPEG does that for batches of more than 50 images.
    Cores,
}

impl fmt::Display for BatchDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Engines => "JPEG engines",
            Self::Cores => "GPU's cores",
        })
    }
}

impl BatchDecoder {
    const fn backend(self) -> nvjpegBackend_t {
        match self {
            Self::Engines => HARDWARE,
            Self::Cores => GPU_HYBRID,
        }
    }
}

/// Host time spent on batches, by kind of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostTimes {
    /// Images that were staged.
    pub images: u64,
    /// Copying their files to page-locked memory.
    pub copy: Duration,
    /// Parsing their headers, and checking whether they are supported.
    pub parse: Duration,
    /// Batches that were started.
    pub batches: u64,
    /// Setting up the decoder for batches.
    pub initialise: Duration,
    /// The calls that start decoding.
    pub decode: Duration,
}

/// The size of the batches of [`Hardware`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HardwareSize {
    /// Number of images.
    pub images: usize,
    /// Bytes of decoded pixels.
    pub arena_bytes: usize,
    /// Bytes of files.
    pub pinned_bytes: usize,
}

impl HardwareSize {
    /// Page-locked bytes of a [`Hardware`]: its own, and for each of two batches as many again that nvJPEG may use.
    #[must_use]
    pub fn host_bytes(&self) -> u64 {
        let upload = self.upload().page_bytes.saturating_mul(GENERATIONS);
        let canaries = self.slots().saturating_mul(CANARY_BYTES * GENERATIONS);
        self.pinned_bytes.saturating_mul(GENERATIONS + LANES).saturating_add(upload).saturating_add(canaries) as u64
    }

    /// Device bytes of a [`Hardware`]: its own, and an estimate for nvJPEG: the bytes of the pixels for each of two
    /// batches.
    #[must_use]
    pub fn device_bytes(&self) -> u64 {
        let upload = self.upload().page_bytes.saturating_mul(GENERATIONS);
        self.arena_bytes.saturating_mul(ARENAS).saturating_add(upload) as u64
    }

    /// The largest size, at most `self`, with at most `bytes` device bytes; `None` if it would have less than `least`
    /// bytes of pixels.
    #[must_use]
    pub fn within(self, bytes: u64, least: usize) -> Option<Self> {
        let upload = self.upload().page_bytes.saturating_mul(GENERATIONS) as u64;
        let arena = bytes.saturating_sub(upload) / ARENAS as u64;
        let arena = usize::try_from(arena).unwrap_or(usize::MAX).min(self.arena_bytes) / ALIGN * ALIGN;
        (arena >= least).then_some(Self { arena_bytes: arena, ..self })
    }

    /// Distance in bytes of the places where images may begin: at most an eighth of an average image of a full batch.
    fn slot(&self) -> usize {
        let most = self.arena_bytes / self.images.max(1) / 8;
        (1 << most.max(ALIGN).ilog2()).min(MOST_SLOT)
    }

    /// The number of these places.
    fn slots(&self) -> usize {
        self.arena_bytes / self.slot()
    }

    /// Bytes of an arena that images may use: those after the last whole place have no canary.
    fn room(&self) -> usize {
        self.slots() * self.slot()
    }

    /// Pages large enough for the descriptors of a whole batch.
    fn upload(&self) -> UploadSize {
        let each = size_of::<DeviceItem>() + size_of::<DevicePlanes>();
        let items = self.images.saturating_add(2).saturating_mul(each);
        UploadSize { page_bytes: items.saturating_add(256), pages: GENERATIONS, scratch_bytes: 0 }
    }
}

/// The outcome of offering a file to a batch.
#[derive(Debug)]
pub enum Staged {
    /// It has this index in the batch.
    Taken(usize),
    /// The batch is full: decode it and offer the file again.
    Full,
    /// The engines do not decode it, or it is too large for a batch.
    Refused(Error),
}

/// The JPEG engines of a GPU, for one thread.
pub struct Hardware {
    // Destroyed in this order, after `drop` has waited for the stream.
    lanes: Vec<Lane>,
    generations: Vec<Generation>,
    /// The pixels of a batch. One buffer is enough, as the kernels that write and read it run one after another.
    pixels: DeviceMemory,
    upload: UploadStream,
    decoder: BatchDecoder,
    size: HardwareSize,
    /// The generation that is being filled.
    current: usize,
    /// The lane that is next.
    turn: usize,
    images: Vec<Image>,
    /// Whether the batch was given to the engines and needs its launch.
    decoded: bool,
    times: HostTimes,
    /// Launches that `unwritten` was not called for yet, the latest at the end.
    checks: VecDeque<Check>,
}

/// Whether the images of a launch were written.
struct Check {
    ticket: Ticket,
    generation: usize,
    /// The place where each image began.
    slots: Vec<usize>,
    /// The images that were not written, once the host has checked.
    unwritten: Option<Vec<usize>>,
}

/// nvJPEG's objects for one flight.
struct Lane {
    // Destroyed in this order.
    /// `None` after a failure, until the next batch.
    state: Option<DecodeState>,
    /// One to check whether a file is supported, then one per image of a batch. nvJPEG writes the first image's size
    /// into the parameters and refuses a later, smaller image (13.0 on an H100: with shared ones every batch of
    /// photographs failed).
    params: Vec<Params>,
    stream: JpegStream,
    handle: Rc<Handle>,
    /// The arguments of the last batch.
    lists: Lists,
    /// The last launch that used it.
    used_by: Option<Ticket>,
}

/// The arguments of a batch for nvJPEG, an entry per image. NVIDIA does not document that the call copies these lists,
/// and nvImageCodec keeps its own. So they stay unchanged until the lane is used again.
#[derive(Default)]
struct Lists {
    files: Vec<*const c_uchar>,
    lengths: Vec<usize>,
    images: Vec<nvjpegImage_t>,
    params: Vec<nvjpegDecodeParams_t>,
}

struct Generation {
    arena: DeviceMemory,
    pinned: Pinned,
    /// The content of the arena's places after its last launch.
    canaries: Pinned,
    /// The last launch that read it.
    used_by: Option<Ticket>,
}

#[derive(Clone, Copy, Debug)]
struct Image {
    /// Offset of the file in the pinned memory.
    file: usize,
    len: usize,
    /// Offset of the planes in the arena.
    at: usize,
    width: u32,
    rows: u32,
    height: u32,
    chroma: Chroma,
}

impl Image {
    fn bytes(&self) -> usize {
        (self.width as usize).saturating_mul(self.rows as usize).saturating_mul(PIXEL)
    }

    /// Addresses of its planes, one after another, in an arena that begins at `arena`. They take no more bytes than its
    /// pixels.
    fn planes(&self, arena: u64) -> [u64; 3] {
        let [rows, columns] = self.chroma.size([self.rows, self.width]).map(u64::from);
        let first = arena + self.at as u64;
        let second = first + u64::from(self.width) * u64::from(self.rows);
        [first, second, second + rows * columns]
    }
}

impl Lane {
    fn new(handle: Rc<Handle>, images: usize) -> Result<Self> {
        Ok(Self {
            state: None,
            params: (0..=images).map(|_| Params::new(&handle, PLANES)).collect::<Result<_>>()?,
            stream: JpegStream::new(&handle)?,
            handle,
            lists: Lists::default(),
            used_by: None,
        })
    }

    /// The state, made if there is none. Making one is slow.
    fn state(&mut self, size: &HardwareSize) -> Result<&DecodeState> {
        if self.state.is_none() {
            let state = DecodeState::batched(&self.handle)?;
            self.allocate_before(&state, size);
            self.state = Some(state);
        }
        self.state.as_ref().ok_or_else(|| Error::new(ErrorKind::Internal, "a state was made but is missing"))
    }

    /// Lets nvJPEG allocate memory for batches of usual images in advance. NVIDIA claims a gain of 20 %.
    fn allocate_before(&self, state: &DecodeState, size: &HardwareSize) {
        let Ok(_bound) = self.handle.context().bind() else { return };
        // Square images that fill the arena, with chroma at full size.
        let side = (size.arena_bytes / size.images.saturating_mul(PIXEL).max(1)).isqrt().clamp(16, 8192) as i32;
        let images = i32::try_from(size.images).unwrap_or(i32::MAX);
        // SAFETY: handle and state live.
        let status = unsafe {
            (self.handle.calls().nvjpegDecodeBatchedPreAllocate)(
                self.handle.raw(),
                state.raw(),
                images,
                side,
                side,
                CSS_444,
                PLANES,
            )
        };
        if let Err(error) = check("nvjpegDecodeBatchedPreAllocate", status) {
            // The first batch allocates instead.
            tracing::debug!(error = %error, images, side, "nvJPEG allocates no memory before the first batch");
        }
    }

    /// Parses a file's header and checks whether the decoder supports it. Does not check that the rest of the file is
    /// complete: the routing has done that, and a full parse takes three times as long.
    fn parse(&mut self, decoder: BatchDecoder, file: &[u8], rows: u32, width: u32) -> Result<()> {
        let _bound = self.handle.context().bind()?;
        // SAFETY: the stream is used below and not after that.
        unsafe { self.stream.parse_header(file, rows, width) }?;
        let taken = match decoder {
            BatchDecoder::Engines => {
                let (calls, mut refused) = (self.handle.calls(), 1);
                let [asks, ..] = &mut self.params[..] else {
                    return Err(Error::new(ErrorKind::Internal, "no parameters"));
                };
                asks.set_roi(WHOLE)?;
                let (handle, stream, params) = (self.handle.raw(), self.stream.raw(), asks.raw());
                // SAFETY: all three live; the number outlives the call.
                let status =
                    unsafe { (calls.nvjpegDecodeBatchedSupportedEx)(handle, stream, params, &raw mut refused) };
                check("nvjpegDecodeBatchedSupportedEx", status)?;
                refused == 0
            }
            // The other call is only for engines.
            BatchDecoder::Cores => self.stream.encoding()? == BASELINE,
        };
        if !taken {
            return Err(Error::new(ErrorKind::Unsupported, format!("the {decoder} do not decode this kind of JPEG")));
        }
        Ok(())
    }
}

impl Hardware {
    /// Makes a decoder for batches of this size. The inner error is the reason why the GPU has no engines.
    ///
    /// # Errors
    /// `Device` and `OutOfMemory`, as CUDA and nvJPEG report them.
    pub fn open(
        kernels: &Arc<Kernels>,
        decoder: BatchDecoder,
        size: HardwareSize,
        steps: RowScratch,
        tables: &[&ChannelTable],
    ) -> Result<Result<Self, String>> {
        let context = kernels.context();
        let mut lanes = Vec::with_capacity(LANES);
        for n in 0..LANES {
            let reason = match Handle::new(context, decoder.backend()) {
                Ok(Ok(handle)) => {
                    lanes.push(Lane::new(handle, size.images)?);
                    continue;
                }
                Ok(Err(reason)) if n == 0 => return Ok(Err(reason)),
                Err(error) if n == 0 => return Err(error),
                Ok(Err(reason)) => reason,
                Err(error) => format!("{error:#}"),
            };
            // With one lane, each batch waits for the one before.
            tracing::info!(reason, "nvJPEG gives no second handle; batches are not set up in advance");
            break;
        }
        let upload = UploadStream::new(kernels, size.upload().with_steps(steps), Priority::High, tables)?;
        let generation = |_| {
            let arena = DeviceMemory::new(context, size.arena_bytes)?;
            let pinned = Pinned::new(context, size.pinned_bytes)?;
            let canaries = Pinned::new(context, size.slots() * CANARY_BYTES)?;
            put_canaries(upload.stream(), context, &arena, size.slot(), size.slots())?;
            Ok(Generation { arena, pinned, canaries, used_by: None })
        };
        // Load the kernel now, rather than during the first batch.
        kernels.colour()?;
        let pixels = DeviceMemory::new(context, size.arena_bytes)?;
        let generations = (0..GENERATIONS).map(generation).collect::<Result<Vec<_>>>()?;
        upload.stream().sync()?;
        for lane in &mut lanes {
            lane.state(&size)?;
        }
        Ok(Ok(Self {
            lanes,
            generations,
            pixels,
            upload,
            decoder,
            size,
            current: 0,
            turn: 0,
            images: Vec::new(),
            decoded: false,
            times: HostTimes::default(),
            checks: VecDeque::new(),
        }))
    }

    /// Number of images in the batch that is being filled.
    #[must_use]
    pub fn staged(&self) -> usize {
        self.images.len()
    }

    /// Adds an image to the batch: copies the file to page-locked memory, lets nvJPEG parse the header there and checks
    /// whether the engines support it. Only the image's first `rows` rows will be decoded.
    ///
    /// # Errors
    /// Only if the GPU is lost.
    pub fn stage(&mut self, image: &Coded<'_>, rows: u32) -> Result<Staged, Failure> {
        let Coded { file, height, width, height_at, chroma } = *image;
        if chroma == Chroma::Other {
            return Ok(Staged::Refused(Error::new(
                ErrorKind::Unsupported,
                "JPEG engines do not decode this kind of colour",
            )));
        }
        let rows = rows.clamp(1, height.max(1));
        let image = Image { file: 0, len: file.len(), at: 0, width, rows, height, chroma };
        if image.bytes() > self.size.arena_bytes / SHARE || file.len() > self.size.pinned_bytes / SHARE {
            let what = format!("{width}x{rows} pixels of a JPEG of {} bytes are too many for a batch", file.len());
            return Ok(Staged::Refused(Error::new(ErrorKind::Unsupported, what)));
        }
        let (file_at, at) = self.images.last().map_or((0, 0), |last| {
            ((last.file + last.len).next_multiple_of(16), (last.at + last.bytes()).next_multiple_of(self.size.slot()))
        });
        let full = self.images.len() >= self.size.images
            || file_at + file.len() > self.size.pinned_bytes
            || at + image.bytes() > self.size.room();
        if full || self.decoded {
            return Ok(Staged::Full);
        }
        self.wait_for_generation()?;
        let begin = Instant::now();
        // SAFETY: the host has just seen the end of the launch that last used the generation, and nvJPEG reads the
        // files of this one only after `decode`, which stages no more.
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
        let copied = Instant::now();
        let parsed = self.lanes[self.turn].parse(self.decoder, copy, rows, width);
        self.times.copy += copied - begin;
        self.times.parse += copied.elapsed();
        self.times.images += 1;
        if let Err(error) = parsed {
            return Ok(Staged::Refused(error));
        }
        self.images.push(Image { file: file_at, at, ..image });
        Ok(Staged::Taken(self.images.len() - 1))
    }

    /// Waits on the host for the launch that last used the generation; the module documentation gives the reason.
    fn wait_for_generation(&mut self) -> Result<(), Failure> {
        let Some(ticket) = self.generations[self.current].used_by.take() else { return Ok(()) };
        self.upload.wait(ticket).map_err(Failure::Lost)?;
        // Check them before the next launch overwrites them.
        self.look(ticket);
        Ok(())
    }

    /// Checks the canaries of a launch, whose end the host must have seen.
    fn look(&mut self, ticket: Ticket) {
        let Some(check) = self.checks.iter_mut().find(|check| check.ticket == ticket && check.unwritten.is_none())
        else {
            return;
        };
        let canaries = &mut self.generations[check.generation].canaries;
        // SAFETY: the copy that wrote them is done, as the caller guarantees; the next copy belongs to a later launch
        // of the generation, which starts only after this.
        let canaries = unsafe { canaries.bytes_mut() };
        let intact = |slot: usize| {
            canaries.get(slot * CANARY_BYTES..).is_some_and(|bytes| bytes.starts_with(bytemuck::bytes_of(&CANARY)))
        };
        check.unwritten = Some((0..check.slots.len()).filter(|image| intact(check.slots[*image])).collect());
    }

    /// The indices in the batch of the images that were not written although the decoder reported no failure. Their
    /// rows show something else. Call this once per launch, after the launch is done.
    ///
    /// # Errors
    /// `Device` if the GPU failed.
    pub fn unwritten(&mut self, ticket: Ticket) -> Result<Vec<usize>> {
        // Returns at once if the host has already seen its end.
        self.upload.wait(ticket)?;
        self.look(ticket);
        let Some(at) = self.checks.iter().position(|check| check.ticket == ticket) else { return Ok(Vec::new()) };
        Ok(self.checks.remove(at).and_then(|check| check.unwritten).unwrap_or_default())
    }

    /// Starts decoding the batch. Waits on the host for the flight before the last one.
    ///
    /// # Errors
    /// Any failure; then the batch is dropped and none of its images is decoded.
    pub fn decode(&mut self) -> Result<(), Failure> {
        if self.images.is_empty() || self.decoded {
            return Ok(());
        }
        self.wait_for_generation()?;
        if let Some(ticket) = self.lanes[self.turn].used_by.take() {
            self.upload.wait(ticket).map_err(Failure::Lost)?;
        }
        match self.start() {
            Ok(()) => {
                self.decoded = true;
                Ok(())
            }
            Err(error) => Err(self.fail(error)),
        }
    }

    /// Drops the batch. Engines may still write its memory, see the module documentation.
    fn fail(&mut self, error: Error) -> Failure {
        self.images.clear();
        self.decoded = false;
        let failure = Failure::after(error, &mut self.upload);
        let lane = &mut self.lanes[self.turn];
        // All work that the host has started is done by now, or the GPU is lost.
        (lane.state, lane.used_by) = (None, None);
        if matches!(failure, Failure::Images(_))
            && let Err(lost) = self.put_canaries_again()
        {
            return Failure::Lost(lost);
        }
        self.advance();
        failure
    }

    /// Writes the canaries again, as some of the batch's images may have been written.
    fn put_canaries_again(&mut self) -> Result<()> {
        let (stream, context) = (self.upload.stream(), self.upload.context());
        let arena = &self.generations[self.current].arena;
        put_canaries(stream, context, arena, self.size.slot(), self.size.slots())?;
        stream.sync()
    }

    fn advance(&mut self) {
        self.current = (self.current + 1) % GENERATIONS;
        self.turn = (self.turn + 1) % self.lanes.len();
    }

    fn start(&mut self) -> Result<()> {
        // The engines are faster if similar images are adjacent. The largest come first, so that no engine ends with a
        // large one.
        let mut order: Vec<&Image> = self.images.iter().collect();
        order.sort_by_key(|image| (image.chroma, std::cmp::Reverse(image.bytes())));
        let Generation { arena, pinned, .. } = &self.generations[self.current];
        let lane = &mut self.lanes[self.turn];
        let state = lane.state(&self.size)?.raw();
        let params = &mut lane.params[1..=order.len()];
        params.iter_mut().try_for_each(|params| params.set_roi(WHOLE))?;
        lane.lists = Lists {
            // These are within the page-locked memory, where `stage` put each file.
            files: order.iter().map(|image| pinned.start().wrapping_add(image.file).cast()).collect(),
            lengths: order.iter().map(|image| image.len).collect(),
            images: order
                .iter()
                .map(|image| {
                    let mut to = nvjpegImage_t::new();
                    let [_, columns] = image.chroma.size([image.rows, image.width]);
                    let pitches = [image.width, columns, columns];
                    for (n, (plane, pitch)) in image.planes(arena.address()).into_iter().zip(pitches).enumerate() {
                        (to.channel[n], to.pitch[n]) = (plane as *mut c_uchar, pitch as usize);
                    }
                    to
                })
                .collect(),
            params: params.iter().map(Params::raw).collect(),
        };
        let lists = &mut lane.lists;
        self.upload.mark_decode(false)?;
        let (handle, calls) = (lane.handle.raw(), lane.handle.calls());
        let stream: cudaStream_t = self.upload.stream().raw().cast();
        let _bound = lane.handle.context().bind()?;
        let begin = Instant::now();
        // SAFETY: handle and state live, and the last decode with them is done.
        let status =
            unsafe { (calls.nvjpegDecodeBatchedInitialize)(handle, state, lists.files.len() as i32, 1, PLANES) };
        check("nvjpegDecodeBatchedInitialize", status)?;
        let initialised = Instant::now();
        // SAFETY: four lists with the same number of entries, which the lane keeps until the launch is done. Until then
        // the files stay unchanged. The planes fit: nvJPEG's own parse of each file gave the size that was reserved,
        // and the host has seen the end of the generation's last use.
        let status = unsafe {
            (calls.nvjpegDecodeBatchedEx)(
                handle,
                state,
                lists.files.as_ptr(),
                lists.lengths.as_ptr(),
                lists.images.as_mut_ptr(),
                lists.params.as_mut_ptr(),
                stream,
            )
        };
        self.times.initialise += initialised - begin;
        self.times.decode += initialised.elapsed();
        self.times.batches += 1;
        check("nvjpegDecodeBatchedEx", status)?;
        self.upload.mark_decode(true)?;
        for image in &self.images {
            self.upload.colour(DevicePlanes {
                planes: image.planes(self.generations[self.current].arena.address()),
                rgb: self.pixels.address() + image.at as u64,
                width: image.width,
                height: image.rows,
                chroma: if let Chroma::Each(chroma) = image.chroma { chroma } else { [0; 2] },
            })?;
        }
        Ok(())
    }

    /// Makes row `at` of `out` from an image of the decoded batch, as described by `work`, with the next launch. An
    /// image may make several rows.
    ///
    /// # Errors
    /// `Internal` if the window is not in the image, or there is no such image.
    ///
    /// # Panics
    /// When `at` is out of range.
    pub fn row(&mut self, image: usize, work: &RowWork, out: &Rows, at: usize) -> Result<()> {
        let image = self.images.get(image).filter(|_| self.decoded);
        let image = image.ok_or_else(|| Error::new(ErrorKind::Internal, "no such image in the batch"))?;
        let pixels = DevicePixels {
            held: HeldWindow {
                info: ImageInfo::interleaved_u8(image.height, image.width, PIXEL as u8),
                rows: 0..image.rows,
                cols: 0..image.width,
            },
            address: self.pixels.address() + image.at as u64,
            pitch: image.width * PIXEL as u32,
        };
        self.upload.row_of_device(&pixels, work, out, at)
    }

    /// Launches the rows since the last launch, and continues with the next batch.
    ///
    /// # Errors
    /// Any failure; then no row of the batch is written, and no work on it is under way.
    pub fn launch(&mut self) -> Result<Ticket, Failure> {
        let slot = self.size.slot();
        let slots: Vec<usize> = self.images.iter().map(|image| image.at / slot).collect();
        let used = slots.last().map_or(0, |last| last + 1);
        let Generation { arena, canaries, .. } = &self.generations[self.current];
        let context = self.upload.context().clone();
        let launched = self.upload.launch_then(|stream| {
            take_canaries(stream, &context, arena, canaries, slot, used)?;
            put_canaries(stream, &context, arena, slot, used)
        });
        let ticket = match launched {
            Ok(ticket) => ticket,
            Err(error) => return Err(self.fail(error)),
        };
        if self.checks.len() >= GENERATIONS {
            // `unwritten` was never called for it.
            self.checks.pop_front();
        }
        self.checks.push_back(Check { ticket, generation: self.current, slots, unwritten: None });
        self.images.clear();
        self.decoded = false;
        self.generations[self.current].used_by = Some(ticket);
        self.lanes[self.turn].used_by = Some(ticket);
        self.advance();
        Ok(ticket)
    }

    /// For benchmarks, measures the engines alone: decodes the staged batch `times` times, without parsing it again and
    /// without resampling, and continues with the next batch. With two `lanes`, the next decode is set up and given to
    /// the engines while one is running, as in a loader; with one, it waits for each. Returns the host time from the
    /// first call to the end of the last decode.
    ///
    /// # Errors
    /// Any failure; then the batch is dropped.
    pub fn measure(&mut self, times: usize, lanes: usize) -> Result<Duration, Failure> {
        let lanes = lanes.clamp(1, self.lanes.len());
        if self.images.is_empty() || self.decoded {
            return Ok(Duration::ZERO);
        }
        self.wait_for_generation()?;
        for lane in &mut self.lanes {
            if let Some(ticket) = lane.used_by.take() {
                self.upload.wait(ticket).map_err(Failure::Lost)?;
            }
        }
        let mut flights = VecDeque::with_capacity(LANES);
        let begin = Instant::now();
        for n in 0..times {
            self.turn = n % lanes;
            if flights.len() == lanes
                && let Some(ticket) = flights.pop_front()
            {
                self.upload.wait(ticket).map_err(Failure::Lost)?;
            }
            // Each decode writes the same pixels to the same places, and nothing reads them.
            match self.start().and_then(|()| self.upload.launch()) {
                Ok(ticket) => flights.push_back(ticket),
                Err(error) => return Err(self.fail(error)),
            }
        }
        for ticket in flights {
            self.upload.wait(ticket).map_err(Failure::Lost)?;
        }
        let time = begin.elapsed();
        self.images.clear();
        self.advance();
        Ok(time)
    }

    /// Host times since the last call.
    pub fn take_host_times(&mut self) -> HostTimes {
        mem::take(&mut self.times)
    }

    /// Whether a launch is done; then its rows are written.
    ///
    /// # Errors
    /// `Device` if the GPU failed.
    pub fn is_done(&mut self, ticket: Ticket) -> Result<bool> {
        self.upload.is_done(ticket)
    }

    /// Waits for a launch.
    ///
    /// # Errors
    /// `Device` if the GPU failed.
    pub fn wait(&mut self, ticket: Ticket) -> Result<()> {
        self.upload.wait(ticket)
    }

    /// Time on the GPU of the launches that finished, as far as `is_done` and `wait` saw, since the last call.
    pub fn take_times(&mut self) -> DeviceTimes {
        self.upload.take_times()
    }
}

/// Writes canaries at the first `count` places of an arena.
fn put_canaries(stream: &Stream, context: &Context, arena: &DeviceMemory, slot: usize, count: usize) -> Result<()> {
    if count == 0 {
        return Ok(());
    }
    let (calls, words) = (&context.driver().calls, CANARY.len());
    let _bound = context.bind()?;
    // SAFETY: `count` places of `slot` bytes are in the arena, and a place is longer than a canary. No other work uses
    // the arena then: earlier work is on the same stream, or the caller has seen its end.
    let code = unsafe { (calls.cuMemsetD2D32Async)(arena.address(), slot, CANARY[0], words, count, stream.raw()) };
    context.check("cuMemsetD2D32Async", code)
}

/// Copies the content of the first `count` places to the host.
fn take_canaries(
    stream: &Stream,
    context: &Context,
    arena: &DeviceMemory,
    to: &Pinned,
    slot: usize,
    count: usize,
) -> Result<()> {
    if count == 0 {
        return Ok(());
    }
    let copy = CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        srcHost: std::ptr::null(),
        srcDevice: arena.address(),
        srcArray: std::ptr::null_mut(),
        srcPitch: slot,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: CUmemorytype::CU_MEMORYTYPE_HOST,
        dstHost: to.start().cast_mut().cast(),
        dstDevice: 0,
        dstArray: std::ptr::null_mut(),
        dstPitch: CANARY_BYTES,
        WidthInBytes: CANARY_BYTES,
        Height: count,
    };
    let _bound = context.bind()?;
    // SAFETY: the call copies the description. Both sides have `count` lines, and live until the launch of this copy is
    // done; the host reads its side only after that.
    let code = unsafe { (context.driver().calls.cuMemcpy2DAsync_v2)(&raw const copy, stream.raw()) };
    context.check("cuMemcpy2DAsync", code)
}

impl Drop for Hardware {
    fn drop(&mut self) {
        // Memory must outlive running work.
        if self.upload.stream().sync().is_err() {
            // The GPU is lost, or the process is ending while work runs on. CUDA frees nothing then, and nvJPEG may
            // still read the lists.
            self.lanes.iter_mut().for_each(|lane| mem::forget(mem::take(&mut lane.lists)));
        }
    }
}

impl fmt::Debug for Hardware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let context = self.lanes.first().map(|lane| lane.handle.context());
        write!(f, "Hardware({:?}, {:?} on {context:?})", self.decoder, self.size)
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
        assert!(small.device_bytes() <= 100 << 20 && small.arena_bytes > 16 << 20, "{small:?}");
        assert_eq!(small.arena_bytes % ALIGN, 0);
        assert_eq!(size.within(4 << 20, 1 << 20), None);
    }

    #[test]
    fn places_lie_in_the_arena_and_the_largest_image_fits() {
        for images in [1, 2, 5, 7, 32, 64, 128] {
            for arena_bytes in (1..60).map(|n| n * 77 * ALIGN) {
                let size = HardwareSize { images, arena_bytes, pinned_bytes: 1 << 20 };
                assert!(size.slot() >= ALIGN && size.room() <= arena_bytes, "{size:?}");
                assert!(size.room() >= arena_bytes / SHARE && size.slots() > 0, "{size:?}");
            }
        }
        let photographs = HardwareSize { images: 32, arena_bytes: 48 << 20, pinned_bytes: 8 << 20 };
        assert_eq!((photographs.slot(), photographs.room()), (64 << 10, 48 << 20));
    }
}
