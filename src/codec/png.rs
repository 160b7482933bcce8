//! PNG by the `image` crate.

use std::{io::Cursor, ops::Range};

use image::{Limits, codecs::png::PngDecoder};

use super::{ImageCodec, ImageHeader, PixelBuffer, still};
use crate::error::Result;

/// PNG: gray, palette, RGB, alpha, 1 to 16 bits, interlaced. Sixteen bits give `u16` pixels.
#[derive(Clone, Copy, Debug, Default)]
pub struct Png;

impl ImageCodec for Png {
    fn name(&self) -> &'static str {
        "png"
    }

    fn recognises(&self, head: &[u8]) -> bool {
        head.starts_with(b"\x89PNG\r\n\x1a\n")
    }

    fn header(&self, bytes: &[u8]) -> Result<ImageHeader> {
        let decoder = PngDecoder::with_limits(Cursor::new(bytes), limits(0))
            .map_err(|found| still::error("PNG", bytes, found))?;
        still::info(&decoder).map(Into::into)
    }
    fn decode(&self, bytes: &[u8], header: &ImageHeader, _rows: Range<u32>, out: &mut PixelBuffer) -> Result<()> {
        let decoder = PngDecoder::with_limits(Cursor::new(bytes), limits(header.len_bytes()))
            .map_err(|found| still::error("PNG", bytes, found))?;
        still::decode("PNG", decoder, header, bytes, out)
    }
}

/// What the decoder may allocate for an image of so many bytes: rows, compressed chunks, colour profiles.
fn limits(bytes: u64) -> Limits {
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(bytes.saturating_mul(2).saturating_add(16 << 20));
    limits
}
