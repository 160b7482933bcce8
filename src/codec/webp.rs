//! WebP by the `image` crate.

use std::{io::Cursor, ops::Range};

use image::codecs::webp::WebPDecoder;

use super::{ImageCodec, PixelBuffer, still};
use crate::{error::Result, types::ImageInfo};

/// WebP: lossy, lossless, alpha; the first picture of an animation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Webp;

impl ImageCodec for Webp {
    fn name(&self) -> &'static str {
        "webp"
    }

    fn recognises(&self, head: &[u8]) -> bool {
        head.starts_with(b"RIFF") && head.get(8..12) == Some(b"WEBP")
    }

    fn info(&self, bytes: &[u8]) -> Result<ImageInfo> {
        let decoder = WebPDecoder::new(Cursor::new(bytes)).map_err(|found| still::error("WebP", bytes, found))?;
        still::info(&decoder)
    }
    fn peak_bytes(&self, _bytes: &[u8], info: &ImageInfo) -> Result<u64> {
        // Planes of lossy files, or RGBA that a lossless file without alpha is decoded to first.
        let pixels = u64::from(info.height) * u64::from(info.width);
        Ok(info.len_bytes().saturating_add(pixels.saturating_mul(4)))
    }

    fn decode(&self, bytes: &[u8], info: &ImageInfo, _rows: Range<u32>, out: &mut PixelBuffer) -> Result<()> {
        let decoder = WebPDecoder::new(Cursor::new(bytes)).map_err(|found| still::error("WebP", bytes, found))?;
        still::decode("WebP", decoder, info, bytes, out)
    }
}
