//! Batches for the JPEG engines, or for the GPU's own cores.
//!
//! ```text
//! stage(file) × n ─▶ pinned bitstreams ─ decode() ─▶ arena of planes ─ colour ─▶ pixels ─ row() × n, launch() ─▶ rows
//!                       └────────────── one of three generations ──┘              └ the same for all
//! ```
//!
//! Generations are filled in turn. The GPU works on two flights at most while a third one is staged, so the *host* has
//! seen the end of the launch that last read a generation before anything is written there: engines of Hopper GPUs
//! ignore what their stream waits for when they write (torchvision PR 9606, torchcodec PR 1634: 100 of 100 batches
//! too early behind an event, none after a host wait). For the same reason the arenas are plain allocations, made once:
//! memory of a stream-ordered pool may still belong to work that runs.
//!
//! The engines make planes, which `cuda/colour.cu` makes pixels: see there.
//!
//! Each of the two flights has a handle of its own, a [`Lane`]: the batched decoder belongs to the handle, and NVIDIA's
//! guide asks that the batch before is finished before a handle is set up for the next one.
//!
//! Engines may leave an image undecoded and report success (seen on RTX 50xx: MrNeRF/LichtFeld-Studio#1924). The row
//! would show the image that lay there before, under a new label. So places at regular distances of an arena, where images
//! begin, hold a *canary* that nobody's pixels look like: one strided fill behind each batch's last read, and one strided
//! copy that brings home what stands there after the next batch. Both are a few kilobytes on the stream.
//!
//! A batch that failed may have been written in part, by engines that nobody can wait for: its generation is not the
//! next one to be filled, and its lane's state is made anew.

use std::{
    collections::VecDeque,
    ffi::c_uchar,
    fmt,
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
use infeed_pixels::kernels::{ChannelTable, RowRoom, RowWork, device::DeviceItem};
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
    Context, DeviceMemory, DevicePixels, DevicePlanes, Held, Kernels, Pinned, Priority, Stream, Ticket, UploadSize,
    UploadStream,
};

/// One more than the flights that may be under way.
const GENERATIONS: usize = 3;
/// Lanes take turns too: while one decodes, the other is set up. There is one at least.
const LANES: usize = 2;
/// Arenas of device memory: a generation's planes, the pixels, and what nvJPEG may use for a lane.
const ARENAS: usize = GENERATIONS + 1 + LANES;
/// Images start at multiples of this or more: what a plain allocation is aligned to.
const ALIGN: usize = 256;
/// And of this at most, with a canary at each: little of the room of a photograph is lost, and few are copied.
const MOST_SLOT: usize = 64 << 10;
/// What stands where no image was written yet: four words.
const CANARY: [u32; 4] = [0xa53c_0ff1; 4];
/// Bytes of it.
const CANARY_BYTES: usize = size_of_val(&CANARY);
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

/// What of the GPU decodes batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BatchDecoder {
    /// Its JPEG engines.
    #[default]
    Engines,
    /// Its cores, Huffman decoding included: nvJPEG does that for batches of more than 50 images.
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

/// Time of the host that batches took, by what was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostTimes {
    /// Images that were staged.
    pub images: u64,
    /// Copying their files to page-locked memory.
    pub copy: Duration,
    /// Reading their headers, and asking whether they are taken.
    pub parse: Duration,
    /// Batches that were started.
    pub batches: u64,
    /// Setting the decoder up for them.
    pub initialise: Duration,
    /// The calls that decode.
    pub decode: Duration,
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
        let canaries = self.slots().saturating_mul(CANARY_BYTES * GENERATIONS);
        self.pinned_bytes.saturating_mul(GENERATIONS + LANES).saturating_add(upload).saturating_add(canaries) as u64
    }

    /// Device bytes of a [`Hardware`]: its own, and what nvJPEG may use, estimated as the pixels again for each of two
    /// batches.
    #[must_use]
    pub fn device_bytes(&self) -> u64 {
        let upload = self.upload().page_bytes.saturating_mul(GENERATIONS);
        self.arena_bytes.saturating_mul(ARENAS).saturating_add(upload) as u64
    }

    /// The largest whose device bytes are at most `bytes`, but no more than `self`; at least `least` bytes of pixels.
    #[must_use]
    pub fn within(self, bytes: u64, least: usize) -> Option<Self> {
        let upload = self.upload().page_bytes.saturating_mul(GENERATIONS) as u64;
        let arena = bytes.saturating_sub(upload) / ARENAS as u64;
        let arena = usize::try_from(arena).unwrap_or(usize::MAX).min(self.arena_bytes) / ALIGN * ALIGN;
        (arena >= least).then_some(Self { arena_bytes: arena, ..self })
    }

    /// Distance of the places where images may begin: an eighth of an image that is as large as all others, or less.
    fn slot(&self) -> usize {
        let most = self.arena_bytes / self.images.max(1) / 8;
        (1 << most.max(ALIGN).ilog2()).min(MOST_SLOT)
    }

    /// How many such places there are.
    fn slots(&self) -> usize {
        self.arena_bytes / self.slot()
    }

    /// Bytes of an arena that images may take: what is behind the last whole place has no canary.
    fn room(&self) -> usize {
        self.slots() * self.slot()
    }

    /// Pages that hold the descriptors of a whole batch.
    fn upload(&self) -> UploadSize {
        let each = size_of::<DeviceItem>() + size_of::<DevicePlanes>();
        let items = self.images.saturating_add(2).saturating_mul(each);
        UploadSize { page_bytes: items.saturating_add(256), pages: GENERATIONS, scratch_bytes: 0 }
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
    lanes: Vec<Lane>,
    generations: Vec<Generation>,
    /// The pixels of a batch, written and read by kernels of the stream, which run one after another.
    pixels: DeviceMemory,
    upload: UploadStream,
    decoder: BatchDecoder,
    size: HardwareSize,
    /// The generation that is being filled.
    current: usize,
    /// The lane that is next.
    turn: usize,
    images: Vec<Image>,
    /// The batch was given to the engines and waits for its launch.
    decoded: bool,
    times: HostTimes,
    /// Launches that nobody has asked about yet, the latest at the end.
    checks: VecDeque<Check>,
}

/// Whether the images of a launch were written.
struct Check {
    ticket: Ticket,
    generation: usize,
    /// Where each image began.
    slots: Vec<usize>,
    /// Those that were not, once the host has looked.
    unwritten: Option<Vec<usize>>,
}

/// What one flight needs of nvJPEG.
struct Lane {
    // Destroyed in this order.
    /// `None` after a failure, until the next batch.
    state: Option<DecodeState>,
    /// For the question whether a file is taken, then one for each image of a batch: nvJPEG writes the first image's size into
    /// them, and refuses the next image that is smaller (13.0 on an H100: every batch of photographs failed with one for all).
    params: Vec<Params>,
    stream: JpegStream,
    handle: Rc<Handle>,
    /// What the last batch was started with.
    lists: Lists,
    /// The launch that used it last.
    used_by: Option<Ticket>,
}

/// What nvJPEG is given of a batch, an entry for each image. NVIDIA says nowhere that the call copies them, and nvImageCodec
/// keeps its own: they stay as they are until the lane is used again.
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
    /// What stood at the arena's places after its last launch.
    canaries: Pinned,
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
    chroma: Chroma,
}

impl Image {
    fn bytes(&self) -> usize {
        (self.width as usize).saturating_mul(self.rows as usize).saturating_mul(PIXEL)
    }

    /// Where its planes lie, one behind another, in an arena that begins there. They are no more than its pixels.
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

    /// The state, made if there is none. Making one takes long.
    fn state(&mut self, size: &HardwareSize) -> Result<&DecodeState> {
        if self.state.is_none() {
            let state = DecodeState::batched(&self.handle)?;
            self.allocate_before(&state, size);
            self.state = Some(state);
        }
        self.state.as_ref().ok_or_else(|| Error::new(ErrorKind::Internal, "a state was made and is not there"))
    }

    /// Lets nvJPEG allocate for batches of usual images now. In NVIDIA's words that is worth 20 %.
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
            // The first batch will allocate then.
            tracing::debug!(error = %error, images, side, "nvJPEG allocates no memory before the first batch");
        }
    }

    /// Reads a file's header and asks whether the decoder takes it. Whether the rest is whole is not looked at: whoever
    /// read the file has seen its end, and a full parse takes three times as long.
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
            // That call answers for engines alone.
            BatchDecoder::Cores => self.stream.encoding()? == BASELINE,
        };
        if !taken {
            return Err(Error::new(ErrorKind::Unsupported, format!("the {decoder} do not decode this kind of JPEG")));
        }
        Ok(())
    }
}

impl Hardware {
    /// Makes everything that batches of this size need. The inner error is the reason why the GPU has no engines.
    ///
    /// # Errors
    /// `Device` and `OutOfMemory` as CUDA and nvJPEG say.
    pub fn open(
        kernels: &Arc<Kernels>,
        decoder: BatchDecoder,
        size: HardwareSize,
        steps: RowRoom,
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
            // One after another, then: each waits for the one before.
            tracing::info!(reason, "nvJPEG gives no second handle; its batches are not set up ahead");
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
        // Before the first batch, not in its middle.
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

    /// Adds an image to the batch: copies the file to page-locked memory, lets nvJPEG parse it there and asks whether
    /// the engines take it. Only its first `rows` rows will be decoded.
    ///
    /// # Errors
    /// When the GPU is lost.
    pub fn stage(&mut self, image: &Coded<'_>, rows: u32) -> Result<Staged, Failure> {
        let Coded { file, height, width, height_at, chroma } = *image;
        if chroma == Chroma::Other {
            return Ok(Staged::Refused(Error::new(ErrorKind::Unsupported, "JPEG engines do not take such colour")));
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

    /// The host sees the end of the launch that last used the generation. See the module.
    fn wait_for_generation(&mut self) -> Result<(), Failure> {
        let Some(ticket) = self.generations[self.current].used_by.take() else { return Ok(()) };
        self.upload.wait(ticket).map_err(Failure::Lost)?;
        // Before the next launch brings others.
        self.look(ticket);
        Ok(())
    }

    /// Looks at the canaries of a launch that the host has seen the end of.
    fn look(&mut self, ticket: Ticket) {
        let Some(check) = self.checks.iter_mut().find(|check| check.ticket == ticket && check.unwritten.is_none())
        else {
            return;
        };
        let canaries = &mut self.generations[check.generation].canaries;
        // SAFETY: the copy that wrote them is done, as the caller says; the next one belongs to a later launch of the
        // generation, which is made only behind this.
        let canaries = unsafe { canaries.bytes_mut() };
        let intact = |slot: usize| {
            canaries.get(slot * CANARY_BYTES..).is_some_and(|bytes| bytes.starts_with(bytemuck::bytes_of(&CANARY)))
        };
        check.unwritten = Some((0..check.slots.len()).filter(|image| intact(check.slots[*image])).collect());
    }

    /// Which images of a launch, by their numbers in the batch, nobody has written though the decoder reported no failure:
    /// their rows show something else. To be asked once, of a launch that is done.
    ///
    /// # Errors
    /// `Device` when the GPU failed.
    pub fn unwritten(&mut self, ticket: Ticket) -> Result<Vec<usize>> {
        // The host has seen its end, or sees it now.
        self.upload.wait(ticket)?;
        self.look(ticket);
        let Some(at) = self.checks.iter().position(|check| check.ticket == ticket) else { return Ok(Vec::new()) };
        Ok(self.checks.remove(at).and_then(|check| check.unwritten).unwrap_or_default())
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

    /// Forgets the batch, whose memory somebody may still write: see the module.
    fn fail(&mut self, error: Error) -> Failure {
        self.images.clear();
        self.decoded = false;
        let failure = Failure::after(error, &mut self.upload);
        let lane = &mut self.lanes[self.turn];
        // All that this host ever started is done by now, or the GPU is lost.
        (lane.state, lane.used_by) = (None, None);
        if matches!(failure, Failure::Images(_))
            && let Err(lost) = self.put_canaries_again()
        {
            return Failure::Lost(lost);
        }
        self.advance();
        failure
    }

    /// Some of the batch's images may have been written.
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
        // The engines like neighbours of a kind, and the largest first, so that none is left with a large one at the end.
        let mut order: Vec<&Image> = self.images.iter().collect();
        order.sort_by_key(|image| (image.chroma, std::cmp::Reverse(image.bytes())));
        let Generation { arena, pinned, .. } = &self.generations[self.current];
        let lane = &mut self.lanes[self.turn];
        let state = lane.state(&self.size)?.raw();
        let params = &mut lane.params[1..=order.len()];
        params.iter_mut().try_for_each(|params| params.set_roi(WHOLE))?;
        lane.lists = Lists {
            // Within the page-locked memory: `stage` put each file there.
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
        // SAFETY: four lists of as many entries, which the lane keeps until the launch is done. So long the files stay as
        // they are and the pixels have their place: nvJPEG's own parse of each file gave the size that was set aside, and
        // the host has seen the end of the generation's last use.
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

    /// Makes row `at` of `out` of an image of the batch that was decoded, as `work` says, with the next launch. An image
    /// may make several rows.
    ///
    /// # Errors
    /// `Internal` when the window is not in the image, or there is no such image.
    ///
    /// # Panics
    /// When `at` is out of range.
    pub fn row(&mut self, image: usize, work: &RowWork, out: &Rows, at: usize) -> Result<()> {
        let image = self.images.get(image).filter(|_| self.decoded);
        let image = image.ok_or_else(|| Error::new(ErrorKind::Internal, "no such image in the batch"))?;
        let pixels = DevicePixels {
            held: Held {
                info: ImageInfo::interleaved_u8(image.height, image.width, PIXEL as u8),
                rows: 0..image.rows,
                cols: 0..image.width,
            },
            address: self.pixels.address() + image.at as u64,
            pitch: image.width * PIXEL as u32,
        };
        self.upload.row_of_device(&pixels, work, out, at)
    }

    /// Starts what was given since the last launch, and goes on to the next batch.
    ///
    /// # Errors
    /// No row of the batch is written then, and nothing of it is under way.
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
            // Nobody asked.
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

    /// What the engines alone can do, for benchmarks: decodes what is staged `times` times over, without parsing it
    /// again and without resampling, and goes on to the next batch. With two `lanes` the next decode is set up and
    /// given to the engines while one is under way, as a loader does; with one, each is waited for. Time on the host from
    /// the first call to the last end.
    ///
    /// # Errors
    /// The images are forgotten then.
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
            // Each decode writes the same pixels to the same places, which nobody reads.
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

    /// Time of the host since this was asked last.
    pub fn take_host_times(&mut self) -> HostTimes {
        std::mem::take(&mut self.times)
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

/// Writes canaries at the first `count` places of an arena.
fn put_canaries(stream: &Stream, context: &Context, arena: &DeviceMemory, slot: usize, count: usize) -> Result<()> {
    if count == 0 {
        return Ok(());
    }
    let (calls, words) = (&context.driver().calls, CANARY.len());
    let _bound = context.bind()?;
    // SAFETY: `count` places of `slot` bytes lie in the arena, and a place is longer than a canary. Nobody else uses the
    // arena by then: the caller gives the stream what comes before, or has seen its end.
    let code = unsafe { (calls.cuMemsetD2D32Async)(arena.address(), slot, CANARY[0], words, count, stream.raw()) };
    context.check("cuMemsetD2D32Async", code)
}

/// Copies what stands at the first `count` places to the host.
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
    // SAFETY: the description is copied by the call. Both sides hold `count` lines, and live until the launch that this
    // belongs to is done; the host reads its side only then.
    let code = unsafe { (context.driver().calls.cuMemcpy2DAsync_v2)(&raw const copy, stream.raw()) };
    context.check("cuMemcpy2DAsync", code)
}

impl Drop for Hardware {
    fn drop(&mut self) {
        // Nothing goes under running work. When the wait fails the GPU is lost, and nothing runs.
        let _ = self.upload.stream().sync();
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
