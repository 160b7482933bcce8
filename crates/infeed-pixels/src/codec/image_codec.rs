//! Kinds of image files: what reads them, what of them is read, and where the pixels go.

use std::{
    any::Any,
    fmt::Debug,
    ops::{Deref, Range},
    sync::Arc,
};

use infeed_core::{
    error::{
        Error, ErrorKind, Result,
        setting::{MAX_IMAGE_BYTES, MEMORY_BUDGET, WORKERS},
    },
    types::ImageInfo,
};
use smallvec::SmallVec;

use crate::kernels::{Plane, Planes, ResampleParams, RowSpec};

/// Turns one kind of image file into pixels on the CPU. One file in this folder each; add your own with
/// `LoaderBuilder::codec`, and let [`codec_contract`](super::codec_contract) check it.
///
/// ```
/// use std::ops::Range;
///
/// use infeed::{
///     Error, Result,
///     codec::{ImageCodec, ImageHeader, PixelBuffer, codec_contract},
///     dataset::ImageInfo,
/// };
///
/// /// `GRAY`, height and width in a byte each, pixels.
/// #[derive(Debug)]
/// struct Gray;
///
/// impl ImageCodec for Gray {
///     fn name(&self) -> &'static str {
///         "gray"
///     }
///     fn recognises(&self, head: &[u8]) -> bool {
///         head.starts_with(b"GRAY")
///     }
///     fn header(&self, bytes: &[u8]) -> Result<ImageHeader> {
///         match bytes {
///             [b'G', b'R', b'A', b'Y', height @ 1..=255, width @ 1..=255, ..] => {
///                 Ok(ImageInfo::interleaved_u8((*height).into(), (*width).into(), 1).into())
///             }
///             _ => Err(Error::corrupt("no header of GRAY").hint("write the file again")),
///         }
///     }
///     fn decode(&self, bytes: &[u8], header: &ImageHeader, rows: Range<u32>, out: &mut PixelBuffer) -> Result<()> {
///         let at = |row: u32| 6 + row as usize * header.width as usize;
///         let pixels = bytes.get(at(rows.start)..at(rows.end)).ok_or_else(|| Error::corrupt("the file ends early"))?;
///         out.hold(rows, pixels.len())?.copy_from_slice(pixels);
///         Ok(())
///     }
/// }
/// codec_contract(&Gray, &[("one", b"GRAY\x02\x03abcdef")]);
/// ```
pub trait ImageCodec: Debug + Send + Sync + 'static {
    /// Short lower-case name: `jpeg`.
    fn name(&self) -> &'static str;
    /// Whether a file that begins with these bytes (up to 64) is of this kind.
    fn recognises(&self, head: &[u8]) -> bool;
    /// Reads the header: once for an image, whoever decodes it.
    fn header(&self, bytes: &[u8]) -> Result<ImageHeader>;
    /// The sizes alone.
    fn info(&self, bytes: &[u8]) -> Result<ImageInfo> {
        self.header(bytes).map(|header| header.info)
    }
    /// Reads the header of an image of labels. [`decode`](Self::decode), which gets it, gives the numbers that the file stores,
    /// not what they look like: indices into a palette, and 0 and 1 where a pixel is one bit. Default: as of any image.
    fn mask_header(&self, bytes: &[u8]) -> Result<ImageHeader> {
        self.header(bytes)
    }
    /// Whether another decoder of the same format, such as a GPU's, may decode a file in this one's place: pixels are what
    /// the format says and no more. Where this says no, nobody else is offered a file that the codec recognises.
    fn is_interchangeable(&self) -> bool {
        false
    }
    /// Its name, and whatever settings change the pixels that it gives: pixels that are
    /// kept in a folder are known again by it. `None`, the default: nobody knows, so that
    /// they are kept in memory at most.
    fn identity(&self) -> Option<String> {
        None
    }
    /// Where the pixels of the whole image lie in the file, when they lie there just as [`decode`](Self::decode) would give
    /// them: then they are read in place, without a copy, and nothing else is called. `None`: they have to be decoded.
    fn in_place(&self, _bytes: &[u8]) -> Result<Option<(ImageInfo, Range<usize>)>> {
        Ok(None)
    }
    /// Decodes at least `rows` of the image into `out` (reusing its memory), all columns, interleaved unless
    /// `planar`. `header` is what [`header`](Self::header) said of the same bytes.
    fn decode(&self, bytes: &[u8], header: &ImageHeader, rows: Range<u32>, out: &mut PixelBuffer) -> Result<()>;
    /// Decodes at least a window of the image, as pixels like [`decode`](Self::decode), of which the other columns may hold
    /// anything, or as planes
    /// ([`PixelBuffer::set_planes`]). For codecs that can leave out columns, give fewer values than pixels, or keep
    /// brightness apart from colour.
    fn window(&self, bytes: &[u8], header: &ImageHeader, window: &Window, out: &mut PixelBuffer) -> Result<()> {
        self.decode(bytes, header, window.rows.clone(), out)
    }
}

/// What a codec reads of a file before it decodes it: an [`ImageInfo`], which it dereferences to, and more. It travels with
/// the file, to another thread if need be, so that no header is read twice. Cloning is cheap.
///
/// ```
/// use infeed::{codec::ImageHeader, dataset::ImageInfo};
///
/// // Of a file whose pixels begin at byte 54, which `decode` need not look for again.
/// let info = ImageInfo::interleaved_u8(480, 640, 3);
/// let header = ImageHeader::from(info).with_own(54usize);
/// assert_eq!((header.height, header.peak_bytes), (480, 480 * 640 * 3));
/// assert_eq!(*header.own::<usize>()?, 54);
/// assert!(header.own::<String>().is_err());
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ImageHeader {
    /// Sizes and type of the pixels that `decode` will give.
    pub info: ImageInfo,
    /// Most bytes that `decode` holds at a time, pixels included; the image is refused when `max_image_bytes` is less.
    pub peak_bytes: u64,
    own: Option<Arc<dyn Any + Send + Sync>>,
}

impl From<ImageInfo> for ImageHeader {
    /// Of a codec that holds nothing but the pixels, and finds what else it needs again.
    fn from(info: ImageInfo) -> Self {
        Self { info, peak_bytes: info.len_bytes(), own: None }
    }
}

impl Deref for ImageHeader {
    type Target = ImageInfo;

    fn deref(&self) -> &ImageInfo {
        &self.info
    }
}

impl ImageHeader {
    /// Of a codec that holds more than the pixels.
    #[must_use]
    pub const fn with_peak_bytes(mut self, bytes: u64) -> Self {
        self.peak_bytes = bytes;
        self
    }

    /// With what the codec read, for its [`own`](Self::own).
    #[must_use]
    pub fn with_own<T: Any + Send + Sync>(self, own: T) -> Self {
        Self { own: Some(Arc::new(own)), ..self }
    }

    /// What the codec that made this has put in.
    ///
    /// # Errors
    /// `Internal` when another one made it.
    pub fn own<T: Any>(&self) -> Result<&T> {
        let own = self.own.as_ref().and_then(|own| own.downcast_ref());
        own.ok_or_else(|| Error::new(ErrorKind::Internal, "the header of an image comes from another codec"))
    }
}

/// The part of an image that is read.
///
/// ```
/// use infeed::{codec::Window, dataset::ImageInfo};
///
/// let info = ImageInfo::interleaved_u8(480, 640, 3);
/// let window = Window::of_rows(&info, 100..324);
/// assert_eq!((window.rows, window.cols, window.scale), (100..324, 0..640, 1));
/// ```
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
        let (y, x, filter) = (&params.y, &params.x, params.filter);
        // Without antialias it is these very pixels that are asked for.
        // Half of the shrinking at least is left to the filter: shrinking all of it by means of blocks is seen.
        let step = y.step.min(x.step) / 2.0;
        let scale = [8, 4, 2].into_iter().find(|&scale| filter.is_antialiased() && step >= scale as f32).unwrap_or(1);
        let within = [y.low..y.high, x.low..x.high];
        Self { rows: y.reads(row.height, filter), cols: x.reads(row.width, filter), within, scale }
    }
}

/// Memory for decoded pixels, reused from image to image.
///
/// ```
/// use infeed::codec::PixelBuffer;
///
/// // What a codec does for each image of a thread: memory is made once.
/// let mut out = PixelBuffer::default();
/// for gray in [10, 200] {
///     out.hold(0..4, 4 * 6)?.fill(gray);
///     assert_eq!((&out.rows, out.data[23]), (&(0..4), gray));
/// }
/// # Ok::<(), infeed::Error>(())
/// ```
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

/// The system has no memory for the pixels of an image.
pub(super) fn no_memory(len: usize) -> Error {
    Error::new(ErrorKind::OutOfMemory, format!("no memory for the {len} bytes of an image"))
        .hint(format!("free memory of the machine, or lower {WORKERS}, {MAX_IMAGE_BYTES} or {MEMORY_BUDGET}"))
        .of_machine()
}

impl PixelBuffer {
    /// Names the rows that will be held and gives memory for their `len` bytes, with old pixels in it.
    ///
    /// # Errors
    /// `OutOfMemory` when the system has none, which is no fault of the image.
    pub fn hold(&mut self, rows: Range<u32>, len: usize) -> Result<&mut [u8]> {
        self.rows = rows;
        self.planes.clear();
        // Never shrunk: growing back would clear it for nothing.
        if self.data.len() < len {
            self.data.try_reserve(len - self.data.len()).map_err(|_| no_memory(len))?;
            self.data.resize(len, 0);
        }
        Ok(&mut self.data[..len])
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
