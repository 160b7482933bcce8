//! JPEG: a decoder that looks only at what a crop needs, and [`zune_jpeg`] for what is rare.
//!
//! ```text
//! file ─ header ─┬─ sequential, gray or colour ─ scan (huffman) ─▶ planes ─┬─▶ kernels::Resampler (window)
//!                │                                                         └─▶ kernels::Interleaver (decode)
//!                └─ progressive, ink, odd sampling ─ zune ─▶ pixels
//! ```
//!
//! Two thirds of a decode is Huffman decoding, whose symbols can't be jumped over; but it ends with the last block that
//! is needed, and blocks outside the crop are skipped several symbols at a time, without their values. What a newcomer
//! would get wrong:
//!
//! 1. The values are libjpeg's, bit for bit: its integer transform, its interpolation of colour, its conversion.
//! 2. Colour is told by several markers that contradict each other; libjpeg's rule decides.
//! 3. Nothing that a file says is believed before it is compared with what is there: damage is an error that names a
//!    byte, and a file without its end is decoded to its end, so that whether it is good does not depend on the crop.

mod header;
mod huffman;
mod scan;
#[cfg(test)]
mod tests;
mod zune;

use std::ops::Range;

pub(in crate::codec) use self::header::{Colour, Header};
use self::{header::SOI, scan::Kept};
use super::{ImageCodec, PixelBuffer, Window};
use crate::{
    error::{Error, ErrorKind, Result},
    sys::kernels::{Interleaver, Planes},
    types::ImageInfo,
};

/// JPEG: sequential and progressive; Huffman coding, 8 bits; gray, YCbCr, RGB, CMYK and YCCK.
///
/// Gray files give one channel, all others RGB. A file that lacks data is an error, not gray rows;
/// other damage is found where it makes the needed pixels undecodable.
#[derive(Clone, Copy, Debug, Default)]
pub struct Jpeg;

/// What a thread keeps from image to image.
#[derive(Debug, Default)]
struct State {
    kept: Kept,
    planes: Vec<u8>,
    interleaver: Interleaver,
}

impl ImageCodec for Jpeg {
    fn name(&self) -> &'static str {
        "jpeg"
    }

    fn recognises(&self, head: &[u8]) -> bool {
        head.starts_with(&[0xff, SOI])
    }

    fn info(&self, bytes: &[u8]) -> Result<ImageInfo> {
        Header::parse(bytes).map(|header| header.info())
    }

    fn peak_bytes(&self, bytes: &[u8], _info: &ImageInfo) -> Result<u64> {
        Header::parse(bytes).map(|header| header.peak_bytes(bytes.len()))
    }

    fn decode(&self, bytes: &[u8], info: &ImageInfo, rows: Range<u32>, out: &mut PixelBuffer) -> Result<()> {
        let header = parse(bytes, info)?;
        if header.steps().is_none() {
            return zune::decode(bytes, &header, out);
        }
        let mut state = out.take_state::<State>();
        let State { kept, planes: data, interleaver } = &mut *state;
        let decoded = scan::decode(bytes, &header, &Window::of_rows(info, rows.clone()), kept, data);
        let decoded = decoded.map(|planes| {
            let part = ImageInfo { height: rows.len() as u32, ..*info };
            let planes = Planes { info: *info, planes: &planes, ycbcr: header.colour == Colour::YCbCr, data };
            interleaver.run(&planes, rows.clone(), out.room(rows, part.len_bytes() as usize));
        });
        out.put_state(state);
        decoded
    }

    fn window(&self, bytes: &[u8], info: &ImageInfo, window: &Window, out: &mut PixelBuffer) -> Result<()> {
        let header = parse(bytes, info)?;
        if header.steps().is_none() {
            return zune::decode(bytes, &header, out);
        }
        let mut state = out.take_state::<State>();
        let mut data = std::mem::take(&mut out.data);
        let decoded = scan::decode(bytes, &header, window, &mut state.kept, &mut data);
        out.data = data;
        out.put_state(state);
        out.set_planes(decoded?, header.colour == Colour::YCbCr);
        Ok(())
    }
}

fn parse<'a>(bytes: &'a [u8], info: &ImageInfo) -> Result<Header<'a>> {
    let header = Header::parse(bytes)?;
    if header.info() != *info {
        return Err(Error::new(ErrorKind::Internal, "the JPEG is not the one that was asked about"));
    }
    Ok(header)
}
