//! WebP by libwebp, its authors' C library, which is built from source.
//!
//! `unsafe` is needed to call it. libwebp is given slices with their lengths and checks every access against them; what
//! this file adds: sizes are known before memory is allocated, the rectangle lies inside the image, and no pointer
//! outlives its call.
#![allow(unsafe_code)]

use std::{ffi::c_int, ops::Range};

use infeed_core::{
    error::{Error, ErrorKind, Result},
    types::{DType, ImageInfo},
};
use libwebp_sys::{VP8StatusCode, WEBP_CSP_MODE, WebPDecode, WebPDecoderConfig, WebPGetFeatures, WebPRGBABuffer};

use super::rust::RustWebp;
use crate::codec::{ImageCodec, ImageHeader, PixelBuffer, Window, still, unsupported};

/// WebP by libwebp: lossy, lossless, alpha; the first picture of an animation ([`RustWebp`] decodes it). Only the part
/// that the row reads is filtered and converted, and of a lossy file nothing below it is read.
///
/// libwebp is C, built with the feature `webp`. [`RustWebp`] needs none.
///
/// ```
/// # let mut file = std::io::Cursor::new(Vec::new());
/// # image::RgbImage::from_pixel(4, 2, image::Rgb([10, 20, 30])).write_to(&mut file, image::ImageFormat::WebP).unwrap();
/// # let file = file.into_inner();
/// use infeed::codec::{ImageCodec, PixelBuffer, Webp};
///
/// // A file of 2 rows of 4 pixels.
/// let header = Webp.header(&file)?;
/// let mut pixels = PixelBuffer::default();
/// Webp.decode(&file, &header, 0..header.height, &mut pixels)?;
/// assert_eq!((header.height, header.width, &pixels.data[..3]), (2, 4, &[10, 20, 30][..]));
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Webp;

/// What to do with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WebpKind {
    Still,
    /// Lossy, with alpha. libwebp 1.6 predicts the alpha of a rectangle's first row as if it were the image's first, if
    /// it is packed with a palette and a horizontal filter. So rectangles begin at the top.
    LossyAlpha,
    /// libwebp refuses animations.
    Animation,
}

impl ImageCodec for Webp {
    fn name(&self) -> &'static str {
        RustWebp.name()
    }

    /// The same as [`RustWebp`]'s: the pixels are equal.
    fn identity(&self) -> Option<String> {
        RustWebp.identity()
    }

    fn recognises(&self, head: &[u8]) -> bool {
        RustWebp.recognises(head)
    }

    fn header(&self, bytes: &[u8]) -> Result<ImageHeader> {
        let mut config = config()?;
        // SAFETY: pointer and length are those of a slice, and `input` is written only.
        let status = unsafe { WebPGetFeatures(bytes.as_ptr(), bytes.len(), &raw mut config.input) };
        check(status, bytes)?;
        let found = config.input;
        if found.has_animation != 0 {
            return RustWebp.header(bytes).map(|header| header.with_own(WebpKind::Animation));
        }
        let side = |side: c_int| u32::try_from(side).unwrap_or(0);
        let channels = if found.has_alpha == 0 { 3 } else { 4 };
        let (height, width) = (side(found.height), side(found.width));
        let info = still::checked(ImageInfo { height, width, channels, dtype: DType::U8, planar: false })?;
        let (pixels, width) = (u64::from(height) * u64::from(width), u64::from(width));
        let (kind, beside) = match (found.format, channels) {
            // Rows of macroblocks: 2 KiB for each 16 columns.
            (LOSSY, 3) => (WebpKind::Still, 128 * (width + 16)),
            // The alpha of the whole image, and its own decoding as ARGB.
            (LOSSY, _) => (WebpKind::LossyAlpha, 128 * (width + 16) + 6 * pixels),
            // ARGB of the whole image, 17 more rows, and images of blocks for its transforms and codes.
            _ => (WebpKind::Still, 6 * pixels + 68 * width),
        };
        Ok(ImageHeader::from(info).with_peak_bytes(info.len_bytes().saturating_add(beside)).with_own(kind))
    }

    fn decode(&self, bytes: &[u8], header: &ImageHeader, rows: Range<u32>, out: &mut PixelBuffer) -> Result<()> {
        let cols = 0..header.width;
        rectangle(bytes, header, [rows, cols], out)
    }

    fn window(&self, bytes: &[u8], header: &ImageHeader, window: &Window, out: &mut PixelBuffer) -> Result<()> {
        rectangle(bytes, header, [window.rows.clone(), window.cols.clone()], out)
    }
}

/// `WebPBitstreamFeatures::format` of lossy files.
const LOSSY: c_int = 1;

fn config() -> Result<WebPDecoderConfig> {
    WebPDecoderConfig::new()
        .map_err(|()| Error::new(ErrorKind::Internal, "libwebp has another version than its header"))
}

/// Decodes at least these rows and columns. The rows are held with all columns; the others keep old values.
fn rectangle(bytes: &[u8], header: &ImageHeader, part: [Range<u32>; 2], out: &mut PixelBuffer) -> Result<()> {
    let info = header.info;
    let [mut rows, cols] = part;
    match header.own::<WebpKind>()? {
        WebpKind::Still => {}
        WebpKind::LossyAlpha => rows.start = 0,
        WebpKind::Animation => return RustWebp.decode(bytes, header, rows, out),
    }
    if rows.is_empty() || cols.is_empty() {
        out.hold(rows, 0)?;
        return Ok(());
    }
    let (rows, cols) = (with_neighbours(&rows, info.height), with_neighbours(&cols, info.width));
    let pixel = usize::from(info.channels);
    let pitch = info.width as usize * pixel;
    let pixels = out.hold(rows.clone(), rows.len() * pitch)?;
    // If libwebp leaves pixels of a damaged file untouched, they must not show another image.
    pixels.fill(0);
    let pixels = &mut pixels[cols.start as usize * pixel..];

    let int = |number: usize| {
        c_int::try_from(number)
            .map_err(|_| Error::new(ErrorKind::Internal, "a WebP has at most 16,383 rows or columns"))
    };
    let mut config = config()?;
    config.options.use_cropping = 1;
    config.options.crop_left = int(cols.start as usize)?;
    config.options.crop_top = int(rows.start as usize)?;
    config.options.crop_width = int(cols.len())?;
    config.options.crop_height = int(rows.len())?;
    config.output.colorspace = if pixel == 4 { WEBP_CSP_MODE::MODE_RGBA } else { WEBP_CSP_MODE::MODE_RGB };
    config.output.is_external_memory = 1;
    config.output.u.RGBA = WebPRGBABuffer { rgba: pixels.as_mut_ptr(), stride: int(pitch)?, size: pixels.len() };
    // SAFETY: `bytes` and `pixels` are slices that live through the call, and libwebp gets their lengths. It refuses a
    // rectangle that leaves the image of this file or does not fit into the memory, whatever `header` says. As the
    // memory is ours, it has none to free.
    let status = unsafe { WebPDecode(bytes.as_ptr(), bytes.len(), &raw mut config) };
    check(status, bytes)?;
    let found = [config.input.height, config.input.width];
    if found != [int(info.height as usize)?, int(info.width as usize)?] {
        return Err(Error::new(ErrorKind::Internal, "the header belongs to another WebP"));
    }
    Ok(())
}

/// The range and two pixels more at each end, from an even one: one value of chroma covers two pixels and is blended
/// with its neighbours. At the edge of a rectangle libwebp would mirror them.
fn with_neighbours(range: &Range<u32>, end: u32) -> Range<u32> {
    range.start.saturating_sub(2) & !1..range.end.saturating_add(2).next_multiple_of(2).min(end)
}

fn check(status: VP8StatusCode, file: &[u8]) -> Result<()> {
    use VP8StatusCode as Status;
    let ours = match status {
        Status::VP8_STATUS_OK => return Ok(()),
        Status::VP8_STATUS_OUT_OF_MEMORY => still::too_large("WebP"),
        Status::VP8_STATUS_UNSUPPORTED_FEATURE => unsupported("WebP of a kind that is not read"),
        Status::VP8_STATUS_NOT_ENOUGH_DATA | Status::VP8_STATUS_SUSPENDED => still::cut("WebP", file),
        _ => still::damaged("WebP"),
    };
    Err(ours)
}
