//! From encoded bytes to finished rows.
//!
//! ```text
//! engine queue ─ Job (some rows of one batch) ─▶ Worker::submit … Worker::poll ─▶ Finished (rows + one outcome each)
//!                                                  │ CPU: ImageCodec (JPEG, PNG, …) → pixels or planes → resample into the row
//!                                                  └ GPU: bitstream or pixels up, decode and resample on one stream
//! ```
//!
//! What a newcomer would get wrong:
//!
//! 1. A file's kind is told by its first bytes, never by its name: photo collections hold PNGs called `.JPEG`.
//! 2. A codec decodes what the transform will read, not the whole image: rows at least ([`ImageCodec::decode`]), or a
//!    window with its columns, at a size, as planes of brightness and colour ([`ImageCodec::window`]).
//! 3. Sizes come from headers, which may lie: nothing is allocated for pixels before [`ImageCodec::peak_bytes`] was
//!    compared with `max_image_bytes`.

mod contract;
mod cpu;
#[cfg(all(feature = "cuda", target_os = "linux"))]
mod cuda_raw;

#[cfg(feature = "bmp")]
mod bmp;
#[cfg(feature = "jpeg")]
mod jpeg;
#[cfg(all(feature = "cuda", feature = "jpeg", target_os = "linux"))]
mod nvjpeg;
#[cfg(feature = "png")]
mod png;
#[cfg(any(feature = "bmp", feature = "png", feature = "webp"))]
mod still;
#[cfg(feature = "tiff")]
mod tiff;
mod volume;
#[cfg(feature = "webp")]
mod webp;

use std::{any::Any, borrow::Cow, fmt::Debug, num::NonZeroUsize, ops::Range, sync::Arc, time::Duration};

use smallvec::SmallVec;

#[cfg(feature = "prepare")]
pub(crate) use self::cpu::Renderer;
#[cfg(all(feature = "cuda", target_os = "linux"))]
pub use self::cuda_raw::CudaRaw;
#[cfg(feature = "jpeg")]
pub use self::jpeg::DecodeIndex;
#[cfg(all(feature = "cuda", feature = "jpeg", target_os = "linux"))]
pub use self::nvjpeg::{NvJpeg, NvJpegOptions, NvJpegPlan};
pub(crate) use self::volume::write_volume;
pub use self::{contract::codec_contract, cpu::Cpu};

use crate::{
    dataset::Sample,
    error::{Error, ErrorKind, Result},
    random::SampleRng,
    report::DeviceTimes,
    sys::{
        kernels::{Plane, Planes, ResampleParams, RowSpec},
        rows::Rows,
    },
    transform::Lowered,
    types::{Device, ImageInfo},
};

/// How decoders of different kinds share the images that several of them can decode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Split {
    /// Whoever is idle takes the next image. Fastest; which decoder made a row decides the last level of its pixels.
    #[default]
    Adaptive,
    /// By the file's header and the record alone: runs on one machine repeat to the byte.
    Fixed,
}

/// A set of worker classes of one decoder, by index; at most 32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassSet(pub u32);

impl ClassSet {
    /// Every class.
    pub const ALL: Self = Self(u32::MAX);
    /// No class.
    pub const NONE: Self = Self(0);
    /// One class.
    #[must_use]
    pub const fn only(class: usize) -> Self {
        Self(1 << class)
    }
    /// Whether `class` is in the set.
    #[must_use]
    pub const fn contains(self, class: usize) -> bool {
        class < 32 && self.0 & (1 << class) != 0
    }
    /// The classes in both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
    /// The set without `class`.
    #[must_use]
    pub const fn without(self, class: usize) -> Self {
        Self(self.0 & !(1 << class))
    }
}

/// A kind of worker: CPU threads, the thread of a hardware engine, …
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Class {
    /// For reports and thread names.
    pub name: &'static str,
    /// Where its rows are made.
    pub device: Device,
    /// Threads.
    pub workers: NonZeroUsize,
    /// Jobs that one worker takes at a time, at most.
    pub batch: NonZeroUsize,
    /// Whether its workers take records that nobody has read yet. The others get samples, one to a job, that such a
    /// worker has read and [`route`](Decoder::route)d to them. At least one class of a decoder reads.
    pub reads: bool,
}

/// A recipe for workers, shared by all threads.
pub trait Decoder: Debug + Send + Sync + 'static {
    /// Short name for reports.
    fn name(&self) -> &'static str;
    /// The kinds of workers it runs.
    fn classes(&self) -> &[Class];
    /// Which classes may take this sample. Asked once for each sample when there are several, by the worker that read
    /// it: of the classes in the set, whichever is idle first takes it.
    fn route(&self, _record: u64, _sample: &Sample) -> ClassSet {
        ClassSet::ALL
    }
    /// Most bytes of host memory that one worker of `class` holds, page-locked bytes included; counted in
    /// `memory_budget`.
    fn scratch_bytes(&self, class: usize) -> u64;
    /// Most bytes of device memory that one worker of `class` holds; counted in `device_budget`.
    fn device_bytes(&self, _class: usize) -> u64 {
        0
    }
    /// Makes worker `n` of `class`, on the thread that will use it. `programs` has an entry for each field of the
    /// schema: the lowered transform of images, `None` for the rest (the engine writes those itself).
    fn worker(&self, class: usize, n: usize, programs: &Arc<[Option<Lowered>]>) -> Result<Box<dyn Worker>>;
}

/// Does jobs on one thread. Not `Send`: born, used and dropped there.
pub trait Worker {
    /// Takes a job. May do it at once or start it.
    fn submit(&mut self, job: Job);
    /// Gives back finished jobs, in any order; their rows are written, on a GPU too. With [`Wait::Block`] waits for
    /// one, though not longer than a fraction of a millisecond when it has room for more jobs: it may return none, and
    /// is asked again.
    fn poll(&mut self, wait: Wait) -> Vec<Finished>;
}

/// Whether [`Worker::poll`] may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Return what is finished.
    Now,
    /// Wait for at least one job in progress.
    Block,
}

/// Some rows of one batch.
#[derive(Debug)]
#[non_exhaustive]
pub struct Job {
    /// Told back in [`Finished`].
    pub tag: u64,
    /// What to decode, in row order.
    pub items: Vec<Item>,
    /// For each field of the schema, the rows to write: row `i` belongs to `items[i]`.
    pub rows: Vec<Rows>,
}

/// One sample of a [`Job`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Item {
    /// Index in the dataset.
    pub record: u64,
    /// Draws for this sample in this epoch.
    pub rng: SampleRng,
    /// Its fields; a failed read is an error that the worker passes through as the outcome.
    pub sample: Result<Sample>,
}

/// A job that is done, rows and all.
#[derive(Debug)]
#[non_exhaustive]
pub struct Finished {
    /// The job, with its rows written where the outcome says `Done`.
    pub job: Job,
    /// One for each item.
    pub outcomes: Vec<Outcome>,
    /// Time spent decoding, summed over items.
    pub decode: Duration,
    /// Time spent resampling, summed over items.
    pub transform: Duration,
    /// Time on the GPU, if there was any since the worker's last finished job.
    pub device: DeviceTimes,
}

/// What became of one row.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// Every image field is written.
    Done,
    /// The sample can't be used; the row's bytes are unspecified.
    Failed(Error),
    /// Try again with these classes.
    Elsewhere(ClassSet),
}

/// Turns one kind of image file into pixels on the CPU. One file in this folder each; add your own with
/// `LoaderBuilder::codec`, and let [`codec_contract`] check it.
pub trait ImageCodec: Debug + Send + Sync + 'static {
    /// Short lower-case name: `jpeg`.
    fn name(&self) -> &'static str;
    /// Whether a file that begins with these bytes (up to 64) is of this kind.
    fn recognises(&self, head: &[u8]) -> bool;
    /// Reads the header. `channels` and `dtype` are what `decode` will give.
    fn info(&self, bytes: &[u8]) -> Result<ImageInfo>;
    /// Most bytes that `decode` holds at a time, pixels included; the image is refused when `max_image_bytes` is less.
    fn peak_bytes(&self, _bytes: &[u8], info: &ImageInfo) -> Result<u64> {
        Ok(info.len_bytes())
    }
    /// Where the pixels of the whole image lie in the file, when they lie there just as [`decode`](Self::decode) would give
    /// them: then they are read in place, without a copy, and nothing else is called. `None`: they have to be decoded.
    fn in_place(&self, _bytes: &[u8]) -> Result<Option<(ImageInfo, Range<usize>)>> {
        Ok(None)
    }
    /// Decodes at least `rows` of the image into `out` (reusing its memory), all columns, interleaved unless
    /// `info.planar`. `info` is what [`info`](Self::info) said of the same bytes.
    fn decode(&self, bytes: &[u8], info: &ImageInfo, rows: Range<u32>, out: &mut PixelBuffer) -> Result<()>;
    /// Decodes at least a window of the image, as pixels like [`decode`](Self::decode) or as planes
    /// ([`PixelBuffer::set_planes`]). For codecs that can leave out columns, give fewer values than pixels, or keep
    /// brightness apart from colour.
    fn window(&self, bytes: &[u8], info: &ImageInfo, window: &Window, out: &mut PixelBuffer) -> Result<()> {
        self.decode(bytes, info, window.rows.clone(), out)
    }
}

/// The part of an image that is read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Window {
    /// Rows that are read.
    pub rows: Range<u32>,
    /// Columns that are read.
    pub cols: Range<u32>,
    /// Rows and columns that have a meaning here: nothing is interpolated across their ends.
    pub within: [Range<u32>; 2],
    /// 1, 2, 4 or 8: so many pixels may become one value, in each direction.
    pub scale: u32,
}

impl Window {
    /// Whole rows, every pixel.
    #[must_use]
    pub fn of_rows(info: &ImageInfo, rows: Range<u32>) -> Self {
        Self { rows, cols: 0..info.width, within: [0..info.height, 0..info.width], scale: 1 }
    }

    /// What a resampling to `row` reads.
    #[must_use]
    pub fn of_params(params: &ResampleParams, row: &RowSpec) -> Self {
        let (y, x) = (&params.y, &params.x);
        // Half of the shrinking at least is left to the filter: shrinking all of it by means of blocks is seen.
        let step = y.step.min(x.step) / 2.0;
        let scale = [8, 4, 2].into_iter().find(|&scale| params.nearest == 0 && step >= scale as f32).unwrap_or(1);
        let within = [y.low..y.high, x.low..x.high];
        Self { rows: y.reads(row.height), cols: x.reads(row.width), within, scale }
    }
}

/// Memory for decoded pixels, reused from image to image.
#[derive(Debug, Default)]
pub struct PixelBuffer {
    /// The rows of the image that are held, all columns; unless it is held as planes.
    pub rows: Range<u32>,
    /// Pixels in the machine's byte order. Longer than the rows need when a larger image was here before.
    pub data: Vec<u8>,
    /// For whatever a codec wants to keep from image to image.
    pub scratch: Vec<u8>,
    planes: SmallVec<[Plane; 3]>,
    ycbcr: bool,
    state: Option<Box<dyn Any + Send>>,
}

impl PixelBuffer {
    /// Names the rows that will be held and gives room for their `len` bytes, with old pixels in it.
    pub fn room(&mut self, rows: Range<u32>, len: usize) -> &mut [u8] {
        self.rows = rows;
        self.planes.clear();
        // Never shrunk: growing back would clear it for nothing.
        if self.data.len() < len {
            self.data.resize(len, 0);
        }
        &mut self.data[..len]
    }

    /// Says that `data` holds 8-bit planes, one for each channel; with `ycbcr` they are Y, Cb and Cr of RGB pixels.
    pub fn set_planes(&mut self, planes: impl IntoIterator<Item = Plane>, ycbcr: bool) {
        self.rows = 0..0;
        self.planes = planes.into_iter().collect();
        self.ycbcr = ycbcr;
    }

    /// The planes that are held, if it is planes.
    #[must_use]
    pub fn planes(&self, info: &ImageInfo) -> Option<Planes<'_>> {
        let Self { planes, ycbcr, data, .. } = self;
        (!planes.is_empty()).then_some(Planes { info: *info, planes, ycbcr: *ycbcr, data })
    }

    /// Takes out what a codec has [put in](Self::put_state), or a new one when something else was there.
    #[must_use]
    pub fn take_state<T: Any + Default + Send>(&mut self) -> Box<T> {
        self.state.take().and_then(|state| state.downcast().ok()).unwrap_or_default()
    }

    /// Keeps what a codec needs again for the next image: tables, memory.
    pub fn put_state<T: Any + Send>(&mut self, state: Box<T>) {
        self.state = Some(state);
    }
}

/// The list of built-in codecs: a feature, and the type in the file of that name.
macro_rules! codecs {
    ($($feature:literal $module:ident $codec:ident)*) => {
        $(#[cfg(feature = $feature)]
        pub use self::$module::$codec;)*

        /// The codecs that are built in, one for each feature that is on.
        #[must_use]
        pub fn codecs() -> Vec<Arc<dyn ImageCodec>> {
            vec![$(
                #[cfg(feature = $feature)]
                Arc::new($codec::default()),
            )*]
        }
    };
}

codecs! {
    "jpeg" jpeg Jpeg
    "png" png Png
    "webp" webp Webp
    "bmp" bmp Bmp
    "tiff" tiff Tiff
}

/// An error for damaged data.
fn corrupt(what: impl Into<Cow<'static, str>>) -> Error {
    Error::corrupt(what).hint("fetch the object again or set on_bad_sample(Skip)")
}

/// An error for valid data that no codec here reads.
fn unsupported(what: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Unsupported, what).hint("convert the file or set on_bad_sample(Skip)")
}

/// The words of a library about a file.
#[cfg(any(feature = "bmp", feature = "jpeg", feature = "png", feature = "tiff", feature = "webp"))]
fn cause(words: impl AsRef<str>) -> std::io::Error {
    std::io::Error::other(words.as_ref().trim().to_owned())
}

impl Class {
    /// A class whose workers take one job at a time.
    #[must_use]
    pub const fn new(name: &'static str, device: Device, workers: NonZeroUsize) -> Self {
        Self { name, device, workers, batch: NonZeroUsize::MIN, reads: true }
    }
}

impl Finished {
    /// A job with one outcome for each of its items; the times are zero until set.
    #[must_use]
    pub const fn new(job: Job, outcomes: Vec<Outcome>) -> Self {
        let (decode, transform) = (Duration::ZERO, Duration::ZERO);
        Self { job, outcomes, decode, transform, device: DeviceTimes::ZERO }
    }
}
