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
mod index;
mod scan;
#[cfg(test)]
mod tests;
mod turn;
mod zune;

use std::ops::Range;

pub(in crate::codec) use self::header::{Colour, Header};
pub use self::index::DecodeIndex;
use self::{
    header::SOI,
    scan::{How, Kept},
    turn::Turn,
};
use super::{ImageCodec, PixelBuffer, Window};
use crate::{
    error::{Error, ErrorKind, Result},
    sys::kernels::{Interleaver, Level, Planes},
    types::ImageInfo,
};

/// JPEG: sequential and progressive; Huffman coding, 8 bits; gray, YCbCr, RGB, CMYK and YCCK.
///
/// Gray files give one channel, all others RGB. A file that lacks data is an error, not gray rows (but see
/// [`fill`](Self::fill)); other damage is found where it makes the needed pixels undecodable. Whatever follows the end
/// marker is not looked at.
///
/// ```no_run
/// # async fn example() -> infeed::Result<()> {
/// use std::sync::Arc;
/// use infeed::{Loader, codec::Jpeg};
///
/// let dataset = infeed::open("/data/holiday").await?;
/// // Photographs from cameras and phones, upright.
/// let loader = Loader::builder(dataset).codec(Arc::new(Jpeg::new().orientation(true))).build().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Jpeg {
    index: Option<DecodeIndex>,
    orientation: bool,
    fill: bool,
    level: Level,
}

/// What a thread keeps from image to image.
#[derive(Debug, Default)]
struct State {
    kept: Kept,
    planes: Vec<u8>,
    interleaver: Interleaver,
    /// An image before it is turned.
    lying: Vec<u8>,
}

impl Jpeg {
    /// As the built-in codec is: no index, pixels as they are stored, damage is an error.
    #[must_use]
    pub const fn new() -> Self {
        Self { index: None, orientation: false, fill: false, level: Level::Best }
    }

    /// Learns where rows begin, and uses what is known.
    #[must_use]
    pub fn index(mut self, index: DecodeIndex) -> Self {
        self.index = Some(index);
        self
    }

    /// Turns and mirrors images as their EXIF orientation says. Such images are decoded whole: crops save nothing.
    #[must_use]
    pub const fn orientation(mut self, orientation: bool) -> Self {
        self.orientation = orientation;
        self
    }

    /// Takes a file whose data is cut off or damaged, as libjpeg does: blocks from there on are gray. Headers and tables
    /// must be whole still.
    #[must_use]
    pub const fn fill(mut self, fill: bool) -> Self {
        self.fill = fill;
        self
    }

    /// Uses at most the instructions of `level`, for tests and comparisons: all give the same bits. [`Best`](Level::Best)
    /// by default.
    #[must_use]
    pub const fn level(mut self, level: Level) -> Self {
        self.level = level;
        self
    }

    fn parse<'a>(&self, bytes: &'a [u8], info: &ImageInfo) -> Result<(Header<'a>, Turn)> {
        let header = Header::parse(bytes)?;
        let turn = if self.orientation { header.turn() } else { Turn::default() };
        if turn.info(header.info()) != *info {
            return Err(Error::new(ErrorKind::Internal, "the JPEG is not the one that was asked about"));
        }
        Ok((header, turn))
    }

    /// Rows of the image as it lies in the file, interleaved.
    fn rows(&self, bytes: &[u8], header: &Header<'_>, rows: Range<u32>, out: &mut PixelBuffer) -> Result<()> {
        if header.steps().is_none() {
            return zune::decode(bytes, header, self.fill, out);
        }
        let info = header.info();
        let mut state = out.take_state::<State>();
        let State { kept, planes: data, interleaver, .. } = &mut *state;
        let decoded = scan::decode(bytes, header, &Window::of_rows(&info, rows.clone()), self.how(), kept, data);
        let decoded = decoded.map(|planes| {
            let part = ImageInfo { height: rows.len() as u32, ..info };
            let planes = Planes { info, planes: &planes, ycbcr: header.colour == Colour::YCbCr, data };
            interleaver.set_level(self.level);
            interleaver.run(&planes, rows.clone(), out.room(rows, part.len_bytes() as usize));
        });
        out.put_state(state);
        decoded
    }

    const fn how(&self) -> How<'_> {
        How { index: self.index.as_ref(), fill: self.fill, level: self.level }
    }
}

impl ImageCodec for Jpeg {
    fn name(&self) -> &'static str {
        "jpeg"
    }

    fn recognises(&self, head: &[u8]) -> bool {
        head.starts_with(&[0xff, SOI])
    }

    fn info(&self, bytes: &[u8]) -> Result<ImageInfo> {
        let header = Header::parse(bytes)?;
        Ok(if self.orientation { header.turn().info(header.info()) } else { header.info() })
    }

    fn peak_bytes(&self, bytes: &[u8], _info: &ImageInfo) -> Result<u64> {
        let header = Header::parse(bytes)?;
        let turned = if self.orientation && header.turn() != Turn::default() { header.info().len_bytes() } else { 0 };
        Ok(header.peak_bytes(bytes.len()).saturating_add(turned))
    }

    fn decode(&self, bytes: &[u8], info: &ImageInfo, rows: Range<u32>, out: &mut PixelBuffer) -> Result<()> {
        let (header, turn) = self.parse(bytes, info)?;
        if turn == Turn::default() {
            return self.rows(bytes, &header, rows, out);
        }
        let lying = header.info();
        self.rows(bytes, &header, 0..lying.height, out)?;
        let mut state = out.take_state::<State>();
        std::mem::swap(&mut state.lying, &mut out.data);
        turn.run(&lying, &state.lying, out.room(0..info.height, info.len_bytes() as usize));
        out.put_state(state);
        Ok(())
    }

    fn window(&self, bytes: &[u8], info: &ImageInfo, window: &Window, out: &mut PixelBuffer) -> Result<()> {
        let (header, turn) = self.parse(bytes, info)?;
        if header.steps().is_none() || !header.frame.is_finest_first() || turn != Turn::default() {
            return self.decode(bytes, info, window.rows.clone(), out);
        }
        let mut state = out.take_state::<State>();
        let mut data = std::mem::take(&mut out.data);
        let decoded = scan::decode(bytes, &header, window, self.how(), &mut state.kept, &mut data);
        out.data = data;
        out.put_state(state);
        out.set_planes(decoded?, header.colour == Colour::YCbCr);
        Ok(())
    }
}
