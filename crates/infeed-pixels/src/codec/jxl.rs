//! JPEG XL by the `jxl` crate, the Rust decoder of the format's authors.

use std::ops::Range;

use infeed_core::{
    error::{Error, ErrorKind, Result},
    types::{DType, ImageInfo},
};
use jxl::{
    api::{
        Endianness, Event, ExtraChannel, JxlBitDepth, JxlColorType, JxlDataFormat, JxlDecoder, JxlDecoderOptions,
        JxlOutputBuffer, JxlPixelFormat, ProfileLevel,
    },
    error::Error as DecodingError,
};

use super::{ImageCodec, ImageHeader, PixelBuffer, still, unsupported};

/// JPEG XL: lossy, lossless, and embedded JPEGs; gray or RGB, alpha, up to 16 bits; the first picture of an animation.
/// More than eight bits give `u16` pixels. The orientation is applied, as the format requires.
///
/// Colours are in the file's own profile; colours of lossy files are in sRGB.
///
/// ```
/// # let file = [
/// #     0xff, 0x0a, 0x08, 0x10, 0xb0, 0x12, 0x08, 0x08, 0x10, 0x00, 0x5c, 0x00, 0x4b, 0x12, 0xc5, 0x82,
/// #     0x45, 0x80, 0x1c, 0xbd, 0x31, 0xaa, 0x70, 0x81, 0x09, 0x5d, 0x2a, 0x0e, 0x9f, 0x74, 0xd5, 0x37,
/// #     0xbf, 0xe5, 0x03
/// # ];
/// use infeed::codec::{ImageCodec, Jxl, PixelBuffer};
///
/// let header = Jxl.header(&file)?;
/// let mut pixels = PixelBuffer::default();
/// Jxl.decode(&file, &header, 0..header.height, &mut pixels)?;
/// assert_eq!(pixels.data.len() as u64, header.info.len_bytes());
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Jxl;

impl ImageCodec for Jxl {
    fn name(&self) -> &'static str {
        "jxl"
    }

    fn identity(&self) -> Option<String> {
        Some(self.name().to_owned())
    }

    fn recognises(&self, head: &[u8]) -> bool {
        // A bare codestream, or one in a container.
        head.starts_with(b"\xff\x0a") || head.starts_with(b"\0\0\0\x0cJXL \r\n\x87\n")
    }

    fn header(&self, bytes: &[u8]) -> Result<ImageHeader> {
        let (_, _, info) = open(bytes, None)?;
        // Lossless files: channels as integers or floats, and the same again for blending.
        let beside = info.len_bytes().saturating_mul(8 / info.dtype.size() as u64);
        Ok(ImageHeader::from(info).with_peak_bytes(info.len_bytes().saturating_add(beside)))
    }

    fn decode(&self, bytes: &[u8], header: &ImageHeader, _rows: Range<u32>, out: &mut PixelBuffer) -> Result<()> {
        // Frames may be larger than the canvas that shows them, up to a limit.
        let pixels = u64::from(header.info.height).saturating_mul(u64::from(header.info.width));
        let samples = pixels.saturating_mul(4 * (u64::from(header.info.channels) + 1)).saturating_add(1 << 20);
        let (mut decoder, mut rest, info) = open(bytes, Some(usize::try_from(samples).unwrap_or(usize::MAX)))?;
        let pixels = still::hold("JPEG XL", info, header, out)?;
        if info.dtype == DType::U16 && !pixels.as_ptr().cast::<u16>().is_aligned() {
            return Err(Error::new(ErrorKind::Internal, "pixels of two bytes at an odd address"));
        }
        let row = pixels.len() / info.height as usize;
        let mut buffer = [JxlOutputBuffer::new(pixels, info.height as usize, row)];
        loop {
            match decoder.process(&mut rest, Some(&mut buffer), None).map_err(|found| error(bytes, &found))? {
                Event::FrameComplete { .. } | Event::Complete => return Ok(()),
                Event::NeedMoreInput { .. } => return Err(still::cut("JPEG XL", bytes)),
                Event::BasicInfo | Event::FrameHeader => {}
            }
        }
    }
}

/// Reads what precedes the pixels and sets their format. `samples`: the most that a frame may have.
fn open(file: &[u8], samples: Option<usize>) -> Result<(JxlDecoder, &[u8], ImageInfo)> {
    let mut options = JxlDecoderOptions::default();
    options.sample_limit = samples;
    options.max_profile_level = ProfileLevel::Main10;
    let mut decoder = JxlDecoder::new(options);
    let mut rest = file;
    match decoder.process(&mut rest, None, None).map_err(|found| error(file, &found))? {
        Event::NeedMoreInput { .. } => return Err(still::cut("JPEG XL", file)),
        Event::BasicInfo => {}
        Event::FrameHeader | Event::FrameComplete { .. } | Event::Complete => return Err(still::damaged("JPEG XL")),
    }
    let (Some(basic), Some(format)) = (decoder.basic_info(), decoder.current_pixel_format()) else {
        return Err(still::damaged("JPEG XL"));
    };
    if basic.extra_channels.iter().any(|extra| extra.ec_type == ExtraChannel::Black) {
        return Err(unsupported("JPEG XL of CMYK"));
    }
    let dtype = match basic.bit_depth {
        JxlBitDepth::Int { bits_per_sample: ..=8 } => DType::U8,
        JxlBitDepth::Int { bits_per_sample: ..=16 } => DType::U16,
        JxlBitDepth::Int { .. } => return Err(unsupported("JPEG XL of more than 16 bits")),
        JxlBitDepth::Float { .. } => return Err(unsupported("JPEG XL of floating-point pixels")),
    };
    let alpha = basic.extra_channels.iter().any(|extra| extra.ec_type == ExtraChannel::Alpha);
    let (colour, channels) = match (format.color_type.is_grayscale(), alpha) {
        (true, false) => (JxlColorType::Grayscale, 1),
        (true, true) => (JxlColorType::GrayscaleAlpha, 2),
        (false, false) => (JxlColorType::Rgb, 3),
        (false, true) => (JxlColorType::Rgba, 4),
    };
    let side = |length: usize| u32::try_from(length).map_err(|_| still::too_large("JPEG XL"));
    let (width, height) = (side(basic.size.0)?, side(basic.size.1)?);
    let wanted = JxlPixelFormat {
        color_type: colour,
        color_data_format: Some(match dtype {
            DType::U16 => JxlDataFormat::U16 { endianness: Endianness::native(), bit_depth: 16 },
            _ => JxlDataFormat::U8 { bit_depth: 8 },
        }),
        extra_channel_format: vec![None; basic.extra_channels.len()],
    };
    decoder.set_pixel_format(wanted).map_err(|found| error(file, &found))?;
    let info = still::checked(ImageInfo { height, width, channels, dtype, planar: false })?;
    Ok((decoder, rest, info))
}

fn error(file: &[u8], found: &DecodingError) -> Error {
    let ours = match found {
        DecodingError::ImageSizeTooLarge(..)
        | DecodingError::ImageDimensionTooLarge(_)
        | DecodingError::OutOfMemory(_)
        | DecodingError::ImageOutOfMemory(..) => still::too_large("JPEG XL"),
        DecodingError::OutOfBounds(_) => still::cut("JPEG XL", file),
        _ => still::damaged("JPEG XL"),
    };
    still::because(ours, found)
}
