//! PNG by the `png` crate.

use std::{
    io::{Cursor, ErrorKind as IoErrorKind},
    ops::Range,
};

use infeed_core::{
    error::{Error, Result},
    types::{DType, ImageInfo},
};
use png::{BitDepth, ColorType, Decoder, DecodingError, Limits, Reader, Transformations};

use super::{ImageCodec, ImageHeader, PixelBuffer, still};

/// PNG: gray, palette, RGB, alpha, 1 to 16 bits, interlaced. Sixteen bits give `u16` pixels.
///
/// ```
/// # let mut file = std::io::Cursor::new(Vec::new());
/// # let depths = image::ImageBuffer::from_pixel(4, 2, image::Luma([1234u16]));
/// # depths.write_to(&mut file, image::ImageFormat::Png).unwrap();
/// # let file = file.into_inner();
/// use infeed::{
///     DType,
///     codec::{ImageCodec, PixelBuffer, Png},
/// };
///
/// // A depth map of 16 bits.
/// let header = Png.header(&file)?;
/// assert_eq!((header.channels, header.dtype), (1, DType::U16));
/// let mut pixels = PixelBuffer::default();
/// Png.decode(&file, &header, 0..header.height, &mut pixels)?;
/// assert_eq!(pixels.data[..2], 1234u16.to_ne_bytes());
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Png;

impl ImageCodec for Png {
    fn name(&self) -> &'static str {
        "png"
    }

    fn identity(&self) -> Option<String> {
        Some(self.name().to_owned())
    }

    fn recognises(&self, head: &[u8]) -> bool {
        head.starts_with(b"\x89PNG\r\n\x1a\n")
    }

    fn header(&self, bytes: &[u8]) -> Result<ImageHeader> {
        info(&open(bytes, 0)?).map(Into::into)
    }

    fn decode(&self, bytes: &[u8], header: &ImageHeader, _rows: Range<u32>, out: &mut PixelBuffer) -> Result<()> {
        let mut reader = open(bytes, header.len_bytes())?;
        let info = info(&reader)?;
        let pixels = still::hold("PNG", info, header, out)?;
        reader.next_frame(pixels).map_err(|found| error(bytes, found))?;
        if info.dtype == DType::U16 {
            // The file's are big endian.
            for value in pixels.as_chunks_mut().0 {
                *value = u16::from_be_bytes(*value).to_ne_bytes();
            }
        }
        Ok(())
    }
}

/// Reads what comes before the pixels, which may be of so many bytes.
fn open(file: &[u8], len_bytes: u64) -> Result<Reader<Cursor<&[u8]>>> {
    // Rows and compressed chunks.
    let most = len_bytes.saturating_mul(2).saturating_add(16 << 20);
    let limits = Limits { bytes: usize::try_from(most).unwrap_or(usize::MAX) };
    let mut decoder = Decoder::new_with_limits(Cursor::new(file), limits);
    // Pixels are given as they are stored, and nobody reads the words beside them.
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    // Palettes, and less than eight bits.
    decoder.set_transformations(Transformations::EXPAND);
    decoder.read_info().map_err(|found| error(file, found))
}

fn info(reader: &Reader<Cursor<&[u8]>>) -> Result<ImageInfo> {
    let (width, height) = reader.info().size();
    let (colour, depth) = reader.output_color_type();
    let channels = match colour {
        ColorType::Grayscale => 1,
        ColorType::GrayscaleAlpha => 2,
        // Expanded.
        ColorType::Indexed | ColorType::Rgb => 3,
        ColorType::Rgba => 4,
    };
    let dtype = if depth == BitDepth::Sixteen { DType::U16 } else { DType::U8 };
    still::checked(ImageInfo { height, width, channels, dtype, planar: false })
}

fn error(file: &[u8], found: DecodingError) -> Error {
    let ours = match &found {
        DecodingError::LimitsExceeded => still::too_large("PNG"),
        DecodingError::IoError(io) if io.kind() == IoErrorKind::UnexpectedEof => still::cut("PNG", file),
        _ => still::damaged("PNG"),
    };
    still::because(ours, &found)
}
