//! BMP by the `image` crate.

use std::{io::Cursor, ops::Range};

use image::codecs::bmp::BmpDecoder;

use super::{ImageCodec, ImageHeader, PixelBuffer, still};
use crate::error::Result;

/// BMP: 1 to 32 bits, palettes, run lengths.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bmp;

impl ImageCodec for Bmp {
    fn name(&self) -> &'static str {
        "bmp"
    }

    fn recognises(&self, head: &[u8]) -> bool {
        head.starts_with(b"BM")
    }

    fn header(&self, bytes: &[u8]) -> Result<ImageHeader> {
        let decoder = BmpDecoder::new(Cursor::new(bytes)).map_err(|found| still::error("BMP", bytes, found))?;
        still::info(&decoder).map(Into::into)
    }

    fn decode(&self, bytes: &[u8], header: &ImageHeader, _rows: Range<u32>, out: &mut PixelBuffer) -> Result<()> {
        let decoder = BmpDecoder::new(Cursor::new(bytes)).map_err(|found| still::error("BMP", bytes, found))?;
        still::decode("BMP", decoder, header, bytes, out)
    }
}
