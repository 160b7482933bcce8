//! JPEG, by the package [`infeed_jpeg`], whose decoder reads only what a crop needs. This module holds its settings,
//! the text of its errors, and the way of its pixels into a [`PixelBuffer`].
//!
//! ```text
//! Header ─┬─ gray or colour ─ window ─▶ planes ─▶ kernels::Resampler
//!         └─ ink, odd sampling; masks; turned images ─ decode ─▶ pixels
//! ```

mod index;
mod words;

use std::ops::Range;

use infeed_core::{
    error::{Error, ErrorKind, Result},
    types::ImageInfo,
};
use infeed_jpeg::{Decoder, Header, Orientation, Scratch};

pub use self::index::{DecodeIndex, LearnScratch};
use self::words::in_our_words;
use super::{ImageCodec, ImageHeader, PixelBuffer, Window};
use crate::kernels::{Level, Plane};

/// JPEG: sequential and progressive; Huffman coding, 8 bits; gray, YCbCr, RGB, CMYK and YCCK.
///
/// Gray files give one channel, all others RGB. A file whose data ends early is an error (unless [`fill`](Self::fill)
/// is set). Other damage is an error if the needed pixels can't be decoded because of it; with
/// [`strict`](Self::strict), any damage is. Bytes after the end marker are ignored.
///
/// ```no_run
/// # async fn example() -> infeed::Result<()> {
/// use std::sync::Arc;
/// use infeed::{Loader, codec::Jpeg};
///
/// let dataset = infeed::open("/data/holiday").await?;
/// // Photographs from cameras and phones, turned upright.
/// let loader = Loader::builder(dataset).codec(Arc::new(Jpeg::new().orientation(true))).build().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Jpeg {
    decoder: Decoder,
    orientation: bool,
    fill: bool,
    strict: bool,
    exact: bool,
}

/// Memory that a thread keeps from image to image.
#[derive(Debug, Default)]
struct Memory {
    scratch: Scratch,
    /// An image before it is turned upright.
    lying: Vec<u8>,
}

/// The header of a file, parsed before it is decoded.
#[derive(Debug)]
pub struct JpegHeader {
    /// As the file stores it.
    pub file: Header,
    /// How to turn the decoded image.
    pub turn: Orientation,
}

impl JpegHeader {
    /// The only place that parses a header: everything else takes it from here.
    fn parse(bytes: &[u8], orientation: bool) -> Result<Self> {
        let file = Header::parse(bytes).map_err(in_our_words)?;
        let turn = if orientation { file.orientation() } else { Orientation::default() };
        Ok(Self { file, turn })
    }

    /// The size and type of the image after it is turned.
    fn info(&self) -> ImageInfo {
        let [height, width] = self.turn.size([self.file.height(), self.file.width()]);
        ImageInfo::interleaved_u8(height, width, self.file.channels() as u8)
    }

    /// The header that [`ImageCodec::header`] parsed.
    fn of(header: &ImageHeader) -> Result<&Self> {
        let own: &Self = header.own()?;
        if own.info() != header.info {
            return Err(Error::new(ErrorKind::Internal, "the header belongs to another JPEG"));
        }
        Ok(own)
    }
}

impl Jpeg {
    /// A progressive file, written anew as a baseline file with the same coefficients and notes (EXIF, ICC): every
    /// decoder gives the same pixels. `None` if the file is not progressive or baseline can't hold it, which no encoder
    /// of photographs causes. With `restarts`, a restart marker follows each row of blocks.
    ///
    /// Costs about as much as decoding the file.
    ///
    /// ```
    /// # let mut file = Vec::new();
    /// # let mut encoder = jpeg_encoder::Encoder::new(&mut file, 80);
    /// # encoder.set_progressive(true);
    /// # encoder.encode(&[120; 3 * 64 * 64], 64, 64, jpeg_encoder::ColorType::Rgb).unwrap();
    /// use infeed::{codec::Jpeg, spi::LearnScratch};
    ///
    /// let baseline = Jpeg::to_baseline(&file, false, &mut LearnScratch::default())?.expect("it is progressive");
    /// assert_eq!(Jpeg::to_baseline(&baseline, false, &mut LearnScratch::default())?, None);
    /// # Ok::<(), infeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Corrupt` and `Unsupported`, as for decoding the file.
    pub fn to_baseline(file: &[u8], restarts: bool, scratch: &mut LearnScratch) -> Result<Option<Vec<u8>>> {
        Decoder::new().to_baseline(file, restarts, &mut scratch.0).map_err(in_our_words)
    }

    /// The built-in codec's settings: no index, pixels as they are stored, damage is an error.
    #[must_use]
    pub const fn new() -> Self {
        Self { decoder: Decoder::new(), orientation: false, fill: false, strict: false, exact: false }
    }

    /// Uses this index, and adds to it where rows begin.
    #[must_use]
    pub fn index(mut self, index: DecodeIndex) -> Self {
        self.decoder = self.decoder.index(index.shared());
        self
    }

    /// Turns and mirrors images as their EXIF orientation says. Images that need turning are decoded whole, so a crop
    /// of them saves no time.
    #[must_use]
    pub const fn orientation(mut self, orientation: bool) -> Self {
        self.orientation = orientation;
        self
    }

    /// Accepts a file whose data is truncated or damaged, as libjpeg does: blocks from there on are gray, or in
    /// progressive files show what earlier scans hold. Headers and tables must still be whole.
    #[must_use]
    pub fn fill(mut self, fill: bool) -> Self {
        self.decoder = self.decoder.fill(fill);
        self.fill = fill;
        self
    }

    /// Accepts a file only if all of its data is good, whatever the crop, and the data ends with the image: see
    /// [`infeed_jpeg::Decoder::strict`]. Each file is Huffman-decoded completely, so an index is of no use; decoding
    /// takes a third more time than with one.
    #[must_use]
    pub fn strict(mut self, strict: bool) -> Self {
        self.decoder = self.decoder.strict(strict);
        self.strict = strict;
        self
    }

    /// Converts to RGB pixels of 8 bits first and resamples those, as torchvision, Pillow and OpenCV do. Otherwise
    /// brightness and colour are resampled separately, from blocks of reduced size if the image shrinks much, and
    /// converted to RGB last.
    ///
    /// The default is faster, and closer to the photographed scene. But values outside of 0 to 255 are clipped after
    /// the resampling, not before it, so at edges of strong colours some values differ by tens of levels.
    ///
    /// Costs about 6 % of the processor time of a training epoch; `docs/promises.md` has figures for both. Has no
    /// effect on files that are decoded to RGB first anyway: [turned](Self::orientation) ones, CMYK and YCCK, and files
    /// that a GPU decodes.
    #[must_use]
    pub const fn exact(mut self, exact: bool) -> Self {
        self.exact = exact;
        self
    }

    /// Uses at most the instructions of `level`, for tests and comparisons. All levels give the same bits. Default:
    /// [`Best`](Level::Best).
    #[must_use]
    pub fn level(mut self, level: Level) -> Self {
        self.decoder = self.decoder.level(match level {
            Level::Best | Level::Avx2 => infeed_jpeg::Level::Best,
            Level::Portable => infeed_jpeg::Level::Portable,
        });
        self
    }

    /// Rows of the image as the file stores it, interleaved.
    fn rows(&self, bytes: &[u8], header: &Header, rows: Range<u32>, out: &mut PixelBuffer) -> Result<()> {
        self.part(bytes, header, [rows, 0..header.width()], out)
    }

    /// The same for some columns only; the bytes of other columns are undefined.
    fn part(&self, bytes: &[u8], header: &Header, [rows, cols]: [Range<u32>; 2], out: &mut PixelBuffer) -> Result<()> {
        let mut memory = out.take_state::<Memory>();
        let pixels = out.hold(rows.clone(), header.len_bytes(&rows) as usize)?;
        let decoded = self.decoder.pixels_of_columns(bytes, header, [rows, cols], &mut memory.scratch, pixels);
        out.put_state(memory);
        decoded.map_err(in_our_words)
    }
}

impl ImageCodec for Jpeg {
    fn name(&self) -> &'static str {
        "jpeg"
    }

    fn identity(&self) -> Option<String> {
        let Self { orientation, fill, strict, .. } = self;
        Some(format!("jpeg, orientation {orientation}, fill {fill}, strict {strict}"))
    }

    fn recognises(&self, head: &[u8]) -> bool {
        head.starts_with(&[0xff, 0xd8])
    }

    /// Not if it fills missing data, which each decoder does in its own way, or refuses files that others accept. The
    /// orientation is in the header, so it does not matter here.
    fn is_interchangeable(&self) -> bool {
        !self.fill && !self.strict
    }

    fn header(&self, bytes: &[u8]) -> Result<ImageHeader> {
        let own = JpegHeader::parse(bytes, self.orientation)?;
        let info = own.info();
        let turned = if own.turn.is_upright() { 0 } else { info.len_bytes() };
        let peak_bytes = own.file.peak_bytes().saturating_add(turned);
        Ok(ImageHeader::from(info).with_peak_bytes(peak_bytes).with_own(own))
    }

    fn decode(&self, bytes: &[u8], header: &ImageHeader, rows: Range<u32>, out: &mut PixelBuffer) -> Result<()> {
        let JpegHeader { file, turn } = JpegHeader::of(header)?;
        if turn.is_upright() {
            return self.rows(bytes, file, rows, out);
        }
        self.rows(bytes, file, 0..file.height(), out)?;
        let mut memory = out.take_state::<Memory>();
        std::mem::swap(&mut memory.lying, &mut out.data);
        let upright = out.hold(0..header.height, header.len_bytes() as usize)?;
        turn.turn([file.height(), file.width()], file.channels(), &memory.lying, upright);
        out.put_state(memory);
        Ok(())
    }

    fn window(&self, bytes: &[u8], header: &ImageHeader, window: &Window, out: &mut PixelBuffer) -> Result<()> {
        let JpegHeader { file, turn } = JpegHeader::of(header)?;
        // The kernels support only powers of two.
        let planes = file.has_planes() && file.is_finest_first() && !file.has_thirds();
        if self.exact && turn.is_upright() {
            let within = [window.rows.clone(), window.cols.start..window.cols.end.min(file.width())];
            return self.part(bytes, file, within, out);
        }
        if !planes || !turn.is_upright() {
            return self.decode(bytes, header, window.rows.clone(), out);
        }
        let Window { rows, cols, within, scale } = window.clone();
        let asked = infeed_jpeg::Window { rows, cols, within, scale };
        let mut memory = out.take_state::<Memory>();
        let mut data = std::mem::take(&mut out.data);
        let decoded = self.decoder.planes(bytes, file, &asked, &mut memory.scratch, &mut data);
        out.data = data;
        out.put_state(memory);
        let planes = decoded.map_err(in_our_words)?;
        let plane = |plane: &infeed_jpeg::Plane| {
            let infeed_jpeg::Plane { at, pitch, step, rows, cols } = plane.clone();
            Plane { at, pitch, step, rows, cols }
        };
        out.set_planes(planes.as_slice().iter().map(plane), planes.is_ycbcr());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use jpeg_encoder::{ColorType, Encoder};

    use super::*;

    /// An EXIF segment with this orientation.
    fn exif(number: u8) -> Vec<u8> {
        let tiff = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0";
        [b"Exif\0\0".as_slice(), tiff, &[number, 0, 0, 0]].concat()
    }

    #[test]
    fn images_are_turned_only_if_asked() {
        let pixels: Vec<u8> = (0..21 * 34 * 3).map(|i| (i * 7 % 251) as u8).collect();
        let mut lying = Vec::new();
        let mut encoder = Encoder::new(&mut lying, 90);
        encoder.add_app_segment(1, exif(6)).unwrap();
        encoder.encode(&pixels, 34, 21, ColorType::Rgb).unwrap();
        let (as_is, upright) = (Jpeg::new(), Jpeg::new().orientation(true));
        let stored_info = as_is.header(&lying).unwrap();
        let mut stored = PixelBuffer::default();
        as_is.decode(&lying, &stored_info, 0..21, &mut stored).unwrap();
        let info = upright.header(&lying).unwrap();
        assert_eq!((info.height, info.width), (34, 21));
        assert_eq!(stored_info.height, 21);
        let mut out = PixelBuffer::default();
        upright.decode(&lying, &info, 3..5, &mut out).unwrap();
        let at = |data: &[u8], width: usize, y: usize, x: usize| data[3 * (y * width + x)..][..3].to_vec();
        for (y, x) in (0..34).flat_map(|y| (0..21).map(move |x| (y, x))) {
            assert_eq!(at(&out.data, 21, y, x), at(&stored.data, 34, 20 - x, y));
        }
        upright.window(&lying, &info, &Window::of_rows(&info, 0..34), &mut out).unwrap();
        assert!(out.planes(&info).is_none() && at(&out.data, 21, 0, 0) == at(&stored.data, 34, 20, 0));
    }

    #[test]
    fn a_header_of_another_codec_or_file_is_refused() {
        let pixels = [9; 3 * 40 * 30];
        let mut file = Vec::new();
        Encoder::new(&mut file, 90).encode(&pixels, 40, 30, ColorType::Rgb).unwrap();
        let mut out = PixelBuffer::default();
        let foreign = ImageHeader::from(Jpeg::new().info(&file).unwrap());
        let error = Jpeg::new().decode(&file, &foreign, 0..30, &mut out).unwrap_err();
        assert_eq!(error.to_string(), "internal: the header of an image comes from another codec");
        let mut own = Jpeg::new().header(&file).unwrap();
        own.info.height = 29;
        let error = Jpeg::new().decode(&file, &own, 0..29, &mut out).unwrap_err();
        assert_eq!(error.to_string(), "internal: the header belongs to another JPEG");
    }

    #[test]
    fn errors_keep_their_words_and_say_what_to_do() {
        let error = Jpeg::new().info(b"\xff\xd8\xff\xd9").unwrap_err();
        assert_eq!(
            error.to_string(),
            "corrupt: JPEG has no image: its end marker comes before its first scan (FF D9 at byte 2); \
             fetch the object again or set on_bad_sample(Skip)"
        );
        let error = Jpeg::new().info(b"\xff\xd8\xff\xcc\0\x02").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(
            error.to_string().contains("JPEG with arithmetic coding (FF CC at byte 2); convert the file"),
            "{error}"
        );
    }
}
