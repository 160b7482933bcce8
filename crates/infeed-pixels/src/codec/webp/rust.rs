//! WebP by the `image-webp` crate.

use std::{
    io::{Cursor, ErrorKind as IoErrorKind},
    ops::Range,
};

use image_webp::{DecodingError, WebPDecoder};
use infeed_core::{
    error::{Error, Result},
    types::{DType, ImageInfo},
};

use crate::codec::{ImageCodec, ImageHeader, PixelBuffer, still, unsupported};

/// WebP in Rust alone, for files that nobody trusts and for builds without a C compiler: lossy, lossless, alpha; the
/// first picture of an animation. Lossy files take about twice the time of `Webp`, which gives the same pixels.
///
/// With the feature `webp-rust` and without `webp`, [`codecs`](crate::codec::codecs) has this one. Otherwise pass it to
/// `LoaderBuilder::codec`: codecs given there are tried first.
///
/// ```
/// # let mut file = std::io::Cursor::new(Vec::new());
/// # image::RgbImage::from_pixel(4, 2, image::Rgb([10, 20, 30])).write_to(&mut file, image::ImageFormat::WebP).unwrap();
/// # let file = file.into_inner();
/// use infeed::codec::{ImageCodec, PixelBuffer, RustWebp};
///
/// // A file of 2 rows of 4 pixels.
/// let header = RustWebp.header(&file)?;
/// let mut pixels = PixelBuffer::default();
/// RustWebp.decode(&file, &header, 0..header.height, &mut pixels)?;
/// assert_eq!((header.height, header.width, &pixels.data[..3]), (2, 4, &[10, 20, 30][..]));
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct RustWebp;

impl ImageCodec for RustWebp {
    fn name(&self) -> &'static str {
        "webp"
    }

    fn identity(&self) -> Option<String> {
        Some(self.name().to_owned())
    }

    fn recognises(&self, head: &[u8]) -> bool {
        head.starts_with(b"RIFF") && head.get(8..12) == Some(b"WEBP")
    }

    fn header(&self, bytes: &[u8]) -> Result<ImageHeader> {
        let (_, info) = open(bytes)?;
        // The planes of a lossy file, or the RGBA to which a lossless file without alpha is decoded first.
        let beside = u64::from(info.height).saturating_mul(u64::from(info.width)).saturating_mul(4);
        Ok(ImageHeader::from(info).with_peak_bytes(info.len_bytes().saturating_add(beside)))
    }

    fn decode(&self, bytes: &[u8], header: &ImageHeader, _rows: Range<u32>, out: &mut PixelBuffer) -> Result<()> {
        let (mut decoder, info) = open(bytes)?;
        let pixels = still::hold("WebP", info, header, out)?;
        decoder.read_image(pixels).map_err(|found| error(bytes, found))
    }
}

fn open(file: &[u8]) -> Result<(WebPDecoder<Cursor<&[u8]>>, ImageInfo)> {
    // The crate does not look, and fills up what is missing of a lossy file with pixels of its own.
    let size = file.get(4..8).and_then(<[u8]>::first_chunk).map_or(0, |size| u32::from_le_bytes(*size));
    if (file.len() as u64).saturating_sub(8) < u64::from(size) {
        return Err(still::cut("WebP", file));
    }
    let decoder = WebPDecoder::new(Cursor::new(file)).map_err(|found| error(file, found))?;
    let (width, height) = decoder.dimensions();
    let channels = if decoder.has_alpha() { 4 } else { 3 };
    let info = still::checked(ImageInfo { height, width, channels, dtype: DType::U8, planar: false })?;
    if !agree(file.get(12..).unwrap_or_default(), [height, width], true) {
        return Err(still::damaged("WebP"));
    }
    Ok((decoder, info))
}

/// Whether the pictures in these chunks have the size that their container says. The crate takes memory by what each
/// picture claims, and panics if its alpha has another size. `animated`: chunks may be frames, which must fit.
fn agree(mut chunks: &[u8], size: [u32; 2], animated: bool) -> bool {
    let mut has_alpha = false;
    while let Some((head, rest)) = chunks.split_first_chunk::<8>() {
        let [name @ .., a, b, c, d] = head;
        let len = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
        let body = &rest[..len.min(rest.len())];
        let good = match name {
            b"VP8 " => body.get(6..).and_then(<[u8]>::first_chunk).is_none_or(|&[w0, w1, h0, h1]| {
                [[h0, h1], [w0, w1]].map(|side| u32::from(u16::from_le_bytes(side) & 0x3fff)) == size
            }),
            b"VP8L" => body.get(1..).and_then(<[u8]>::first_chunk).is_none_or(|bits| {
                let bits = u32::from_le_bytes(*bits);
                [bits >> 14, bits].map(|side| (side & 0x3fff) + 1) == size
            }),
            b"ANMF" if animated => body.get(6..).and_then(<[u8]>::split_first_chunk).is_none_or(|(sides, rest)| {
                let [w0, w1, w2, h0, h1, h2] = *sides;
                let frame = [[h0, h1, h2, 0], [w0, w1, w2, 0]].map(|side| u32::from_le_bytes(side) + 1);
                let fits = frame[0] <= size[0] && frame[1] <= size[1];
                // Behind the duration and flags.
                fits && agree(rest.get(4..).unwrap_or_default(), frame, false)
            }),
            // Whatever follows a frame's alpha is taken for a lossy picture.
            _ => !has_alpha,
        };
        if !good {
            return false;
        }
        has_alpha = name == b"ALPH";
        chunks = rest.get(len.saturating_add(len % 2)..).unwrap_or_default();
    }
    true
}

fn error(file: &[u8], found: DecodingError) -> Error {
    let ours = match &found {
        DecodingError::MemoryLimitExceeded => still::too_large("WebP"),
        DecodingError::UnsupportedFeature(_) => unsupported("WebP of a kind that is not read"),
        DecodingError::IoError(io) if io.kind() == IoErrorKind::UnexpectedEof => still::cut("WebP", file),
        _ => still::damaged("WebP"),
    };
    still::because(ours, &found)
}
