//! Codecs of image files: how one recognises a file, which part it reads, and the buffer for its pixels.

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

/// Decodes one kind of image file to pixels on the CPU. Pass your own to `LoaderBuilder::codec` and check it with
/// [`codec_contract`](super::codec_contract).
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
/// /// `GRAY`, height and width in one byte each, then the pixels.
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
///             _ => Err(Error::corrupt("no header of GRAY").with_hint("write the file again")),
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
    /// Parses the header. Called once for each image, whichever decoder decodes it.
    fn header(&self, bytes: &[u8]) -> Result<ImageHeader>;
    /// Only the sizes and the type.
    fn info(&self, bytes: &[u8]) -> Result<ImageInfo> {
        self.header(bytes).map(|header| header.info)
    }
    /// Parses the header of a mask. [`decode`](Self::decode) with this header gives the numbers that the file stores,
    /// not the colours that they stand for: palette indices, or 0 and 1 for pixels of one bit. Default:
    /// [`header`](Self::header).
    fn mask_header(&self, bytes: &[u8]) -> Result<ImageHeader> {
        self.header(bytes)
    }
    /// Whether another decoder of the same format, such as a GPU's, may decode a file instead of this codec. Return
    /// `true` if the pixels follow from the format alone. If it is `false`, only this codec decodes the files that it
    /// recognises.
    fn is_interchangeable(&self) -> bool {
        false
    }
    /// The codec's name and all settings that change its pixels. A cache of decoded pixels on disk uses it to
    /// check that its pixels are still valid. `None`, the default: its pixels are cached in memory only.
    fn identity(&self) -> Option<String> {
        None
    }
    /// If the file holds the pixels of the whole image exactly as [`decode`](Self::decode) would give them: the image's
    /// size and type, and the byte range of the pixels. The pixels are then read in place, without a copy, and no other
    /// method is called. `None`: they must be decoded.
    fn in_place(&self, _bytes: &[u8]) -> Result<Option<(ImageInfo, Range<usize>)>> {
        Ok(None)
    }
    /// Decodes at least `rows` of the image into `out` and reuses its memory. All columns, interleaved unless
    /// `ImageInfo::planar` is set. If `out` holds more rows, those may hold anything. `header` is the result of
    /// [`header`](Self::header) for the same bytes.
    fn decode(&self, bytes: &[u8], header: &ImageHeader, rows: Range<u32>, out: &mut PixelBuffer) -> Result<()>;
    /// Decodes at least `window` of the image: either as pixels like [`decode`](Self::decode), where columns outside
    /// the window may hold anything too, or as planes ([`PixelBuffer::set_planes`]). Override it in codecs that can skip
    /// columns, give fewer values than pixels, or keep brightness apart from colour. Default: [`decode`](Self::decode)
    /// of the window's rows.
    fn window(&self, bytes: &[u8], header: &ImageHeader, window: &Window, out: &mut PixelBuffer) -> Result<()> {
        self.decode(bytes, header, window.rows.clone(), out)
    }
}

/// What a codec read of a file before decoding it: an [`ImageInfo`], to which it dereferences, and more. It travels
/// with the file, also to another thread, so that each header is parsed once. Cloning is cheap.
///
/// ```
/// use infeed::{codec::ImageHeader, dataset::ImageInfo};
///
/// // The pixels of this file begin at byte 54; `decode` need not find that out again.
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
    /// Most bytes that `decode` holds at a time, pixels included. The image is refused if this is above
    /// `max_image_bytes`.
    pub peak_bytes: u64,
    own: Option<Arc<dyn Any + Send + Sync>>,
}

impl From<ImageInfo> for ImageHeader {
    /// For a codec that holds only the pixels and stores nothing else from the header.
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
    /// Sets the most bytes that `decode` holds at a time, for a codec that holds more than the pixels.
    #[must_use]
    pub const fn with_peak_bytes(mut self, bytes: u64) -> Self {
        self.peak_bytes = bytes;
        self
    }

    /// Adds what the codec parsed; it gets it back with [`own`](Self::own).
    #[must_use]
    pub fn with_own<T: Any + Send + Sync>(self, own: T) -> Self {
        Self { own: Some(Arc::new(own)), ..self }
    }

    /// What the codec added with [`with_own`](Self::with_own).
    ///
    /// # Errors
    /// `Internal` if another codec made this header.
    pub fn own<T: Any>(&self) -> Result<&T> {
        let own = self.own.as_ref().and_then(|own| own.downcast_ref());
        own.ok_or_else(|| Error::new(ErrorKind::Internal, "the header of an image comes from another codec"))
    }
}

/// The part of an image that a row needs.
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
    /// Rows and columns that the filter may use: nothing is interpolated across their ends.
    pub within: [Range<u32>; 2],
    /// 1, 2, 4 or 8: the codec may combine this many pixels into one value, in each direction.
    pub scale: u32,
}

impl Window {
    /// Whole rows, every pixel.
    #[must_use]
    pub fn of_rows(info: &ImageInfo, rows: Range<u32>) -> Self {
        Self { rows, cols: 0..info.width, within: [0..info.height, 0..info.width], scale: 1 }
    }

    /// What a resample by `params` to `row` reads.
    #[must_use]
    pub fn of_params(params: &ResampleParams, row: &RowSpec) -> Self {
        let (y, x, filter) = (&params.y, &params.x, params.filter);
        // Without antialias the filter needs these very pixels, so the scale is 1. Otherwise the filter does at least
        // half of the shrinking: if blocks did all of it, the difference would be visible.
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
/// // A codec does this for each image. A thread allocates the memory once.
/// let mut out = PixelBuffer::default();
/// for gray in [10, 200] {
///     out.hold(0..4, 4 * 6)?.fill(gray);
///     assert_eq!((&out.rows, out.data[23]), (&(0..4), gray));
/// }
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct PixelBuffer {
    /// The rows of the image that `data` holds, with all columns. Not used when it holds planes.
    pub rows: Range<u32>,
    /// Pixels in the machine's byte order. Longer than the rows need if an earlier image was larger.
    pub data: Vec<u8>,
    /// Memory that a codec may keep from image to image.
    pub scratch: Vec<u8>,
    planes: SmallVec<[Plane; 3]>,
    ycbcr: bool,
    state: Option<Box<dyn Any + Send>>,
}

/// The error when the system has no memory for the pixels of an image.
pub(super) fn no_memory(len: usize) -> Error {
    Error::new(ErrorKind::OutOfMemory, format!("no memory for the {len} bytes of an image"))
        .with_hint(format!("free memory of the machine, or lower {WORKERS}, {MAX_IMAGE_BYTES} or {MEMORY_BUDGET}"))
        .of_machine()
}

impl PixelBuffer {
    /// Sets the rows that will be held and returns memory for their `len` bytes. The memory may contain old pixels.
    ///
    /// # Errors
    /// `OutOfMemory` if the system has no memory. The image is not at fault.
    pub fn hold(&mut self, rows: Range<u32>, len: usize) -> Result<&mut [u8]> {
        self.rows = rows;
        self.planes.clear();
        // Never shrunk: growing again would clear the memory for nothing.
        if self.data.len() < len {
            self.data.try_reserve(len - self.data.len()).map_err(|_| no_memory(len))?;
            self.data.resize(len, 0);
        }
        Ok(&mut self.data[..len])
    }

    /// Declares that `data` holds 8-bit planes, one for each channel. With `ycbcr` they are Y, Cb and Cr of RGB pixels.
    pub fn set_planes(&mut self, planes: impl IntoIterator<Item = Plane>, ycbcr: bool) {
        self.rows = 0..0;
        self.planes = planes.into_iter().collect();
        self.ycbcr = ycbcr;
    }

    /// The planes, if the buffer holds planes.
    #[must_use]
    pub fn planes(&self, info: &ImageInfo) -> Option<Planes<'_>> {
        let Self { planes, ycbcr, data, .. } = self;
        (!planes.is_empty()).then_some(Planes { info: *info, planes, ycbcr: *ycbcr, data })
    }

    /// Takes out the state that a codec stored with [`put_state`](Self::put_state), or a new one if there is none of
    /// type `T`.
    #[must_use]
    pub fn take_state<T: Any + Default + Send>(&mut self) -> Box<T> {
        self.state.take().and_then(|state| state.downcast().ok()).unwrap_or_default()
    }

    /// Stores what a codec needs for the next image, such as tables and memory.
    pub fn put_state<T: Any + Send>(&mut self, state: Box<T>) {
        self.state = Some(state);
    }
}
