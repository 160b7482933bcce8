//! WebP by the `image` crate.

use std::{io::Cursor, ops::Range};

use image::codecs::webp::WebPDecoder;

use super::{ImageCodec, ImageHeader, PixelBuffer, still};
use crate::error::Result;

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

    fn header(&self, bytes: &[u8]) -> Result<ImageHeader> {
        let decoder = WebPDecoder::new(Cursor::new(bytes)).map_err(|found| still::error("WebP", bytes, found))?;
        let info = still::info(&decoder)?;
        // Planes of lossy files, or RGBA that a lossless file without alpha is decoded to first.
        let beside = u64::from(info.height).saturating_mul(u64::from(info.width)).saturating_mul(4);
        Ok(ImageHeader::from(info).with_peak_bytes(info.len_bytes().saturating_add(beside)))
    }

    fn decode(&self, bytes: &[u8], header: &ImageHeader, _rows: Range<u32>, out: &mut PixelBuffer) -> Result<()> {
        let decoder = WebPDecoder::new(Cursor::new(bytes)).map_err(|found| still::error("WebP", bytes, found))?;
        still::decode("WebP", decoder, header, bytes, out)
    }
}
