//! The same steps for a GPU, encoded as words.
//!
//! ```text
//! place 0 ◀▶ 1 ◀▶ 2   the picture, and what steps write that can't be done in place; AugMix keeps the picture in the third
//! place 3             f32: a blur's rows
//! place 4             f32: AugMix' sums
//! ```
//!
//! A step is two words, followed by its numbers. The first word encodes the kind, the source and destination places,
//! and the number of channels; the second is the count of numbers that follow. The picture's place after each step is
//! known here, so the kernel does not track it. [`TileRunner`](super::TileRunner) defines the result: numbers that the
//! CPU computes once per picture are computed here, by the same functions.

use infeed_core::{
    error::{Error, ErrorKind, Result},
    types::DType,
};

use super::{colour, filter, pixel_op::PixelOp, values, warp};
use crate::kernels::params::RowSpec;

/// picture.cu has the same numbers.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
enum OpCode {
    Brightness,
    Contrast,
    Saturation,
    Hue,
    Sharpness,
    Grayscale,
    Invert,
    Posterize,
    Solarize,
    SolarizeAdd,
    Autocontrast,
    Equalize,
    Permute,
    Blur,
    Warp,
    Erase,
    Copy,
    SumBegin,
    SumAdd,
    SumEnd,
}

/// Number of places of a program.
pub const PLACES: usize = 5;
/// The places of pictures.
const PICTURES: u32 = 3;
const FLOATS: usize = 3;
const SUMS: usize = 4;
/// Pictures with more values are not for a GPU: its numbers have 32 bits.
const MOST_VALUES: u64 = 1 << 31;

/// The steps on one picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    spec: RowSpec,
    words: Vec<u32>,
    /// The picture's current place.
    at: u32,
    /// A place that must not be overwritten now.
    kept: Option<u32>,
    used: [bool; PLACES],
}

impl Program {
    /// For a picture in planes, u8 or f32. `None` if it is too large.
    #[must_use]
    pub fn new(spec: &RowSpec) -> Option<Self> {
        let values =
            u64::from(spec.height).checked_mul(u64::from(spec.width))?.checked_mul(u64::from(spec.channels))?;
        let fits = values < MOST_VALUES && spec.channels < 1 << 16;
        let used = [true, false, false, false, false];
        fits.then(|| Self { spec: *spec, words: Vec::new(), at: 0, kept: None, used })
    }

    /// The words; empty if there is nothing to do.
    #[must_use]
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// The picture's place at the end. At the beginning it is the first place.
    #[must_use]
    pub const fn place(&self) -> usize {
        self.at as usize
    }

    /// The picture at the end.
    #[must_use]
    pub const fn spec(&self) -> &RowSpec {
        &self.spec
    }

    /// Bytes of each place, for a picture that has this many bytes at the beginning; 0 for unused places.
    #[must_use]
    pub fn room(&self, picture_bytes: usize) -> [usize; PLACES] {
        let floats = if self.is_float() { picture_bytes } else { picture_bytes.saturating_mul(4) };
        std::array::from_fn(|place| match (self.used[place], place) {
            (false, _) => 0,
            (true, FLOATS | SUMS) => floats,
            (true, _) => picture_bytes,
        })
    }

    const fn is_float(&self) -> bool {
        matches!(self.spec.dtype, DType::F32)
    }

    /// Keeps only the first planes.
    pub const fn keep(&mut self, channels: u32) {
        self.spec.channels = channels;
    }

    fn put(&mut self, kind: OpCode, from: u32, to: u32, numbers: &[u32]) {
        self.words.push(kind as u32 | from << 8 | to << 12 | self.spec.channels << 16);
        self.words.push(numbers.len() as u32);
        self.words.extend_from_slice(numbers);
        (self.used[from as usize], self.used[to as usize]) = (true, true);
    }

    fn in_place(&mut self, kind: OpCode, numbers: &[u32]) {
        self.put(kind, self.at, self.at, numbers);
    }

    /// Writes to another place, which becomes the picture's.
    fn across(&mut self, kind: OpCode, numbers: &[u32]) {
        let free = (0..PICTURES).find(|place| *place != self.at && Some(*place) != self.kept);
        let to = free.expect("one of three places is neither the picture's nor kept");
        self.put(kind, self.at, to, numbers);
        self.at = to;
    }

    /// Adds a step.
    ///
    /// # Errors
    /// `Internal` if it is not defined for the picture's channels or size, as on the CPU.
    pub fn add(&mut self, op: &PixelOp) -> Result<()> {
        let RowSpec { height, width, channels, .. } = self.spec;
        op.check([height, width], channels)?;
        let (float, rgb) = (self.is_float(), channels == 3);
        let with_complement = |factor: f32| [factor, colour::complement(factor)].map(f32::to_bits);
        match op {
            _ if height == 0 || width == 0 || channels == 0 => {}
            PixelOp::Brightness(factor) => self.in_place(OpCode::Brightness, &[factor.to_bits()]),
            PixelOp::Contrast(factor) => self.in_place(OpCode::Contrast, &with_complement(*factor)),
            PixelOp::Saturation(factor) if rgb => self.in_place(OpCode::Saturation, &with_complement(*factor)),
            PixelOp::Hue(shift) if rgb => self.in_place(OpCode::Hue, &[shift.to_bits()]),
            PixelOp::Grayscale if rgb => self.in_place(OpCode::Grayscale, &[]),
            PixelOp::Saturation(_) | PixelOp::Hue(_) | PixelOp::Grayscale => {}
            PixelOp::Sharpness(factor) if height > 2 && width > 2 => {
                self.across(OpCode::Sharpness, &[colour::complement(*factor).to_bits()]);
            }
            PixelOp::Sharpness(_) => {}
            PixelOp::Invert => self.in_place(OpCode::Invert, &[]),
            PixelOp::Posterize(bits) => {
                let (mask, levels) = colour::posterized(*bits);
                self.in_place(OpCode::Posterize, &[u32::from(mask), levels.to_bits()]);
            }
            PixelOp::Solarize(threshold) => {
                let byte = if float { Some(0) } else { colour::solarized(*threshold) };
                if let Some(byte) = byte {
                    self.in_place(OpCode::Solarize, &[u32::from(byte), threshold.to_bits()]);
                }
            }
            PixelOp::SolarizeAdd { add, threshold } => {
                let [add, below] = if float {
                    [*add, *threshold]
                } else {
                    [colour::of_white(*add).trunc(), colour::of_white(*threshold)]
                };
                self.in_place(OpCode::SolarizeAdd, &[add.to_bits(), below.to_bits()]);
            }
            PixelOp::Autocontrast => self.in_place(OpCode::Autocontrast, &[]),
            PixelOp::Equalize => self.in_place(OpCode::Equalize, &[]),
            PixelOp::Permute(from) => self.across(OpCode::Permute, &from.map(u32::from)[..channels.min(4) as usize]),
            PixelOp::Blur { kernel, sigma } => {
                let [down, across] = [0, 1].map(|axis| filter::half_kernel(kernel[axis], sigma[axis]));
                let mut numbers = vec![down.len() as u32, across.len() as u32];
                numbers.extend(down.iter().chain(&across).map(|weight| weight.to_bits()));
                self.in_place(OpCode::Blur, &numbers);
                self.used[FLOATS] = true;
            }
            PixelOp::Warp { map, sampling, fill } => {
                let fill = if float { *fill } else { fill.map(|fill| fill.map(colour::of_white)) };
                let words = warp::words(map, *sampling, [height, width], fill);
                self.across(OpCode::Warp, &words);
            }
            PixelOp::Erase { area: [top, bottom, left, right], value } => {
                let (top, bottom) = (*top.min(&height), *bottom.min(&height));
                let (left, right) = (*left.min(&width), *right.min(&width));
                if top < bottom && left < right {
                    let of = |value: f32| {
                        if float { value } else { f32::from(values::truncate(colour::of_white(value))) }
                    };
                    let value = value.map(|value| of(value).to_bits());
                    let [a, b, c, d] = value;
                    self.in_place(OpCode::Erase, &[top, bottom, left, right, a, b, c, d]);
                }
            }
            PixelOp::Mix { own, chains } => self.mix(*own, chains)?,
        }
        Ok(())
    }

    fn mix(&mut self, own: f32, chains: &[(f32, Vec<PixelOp>)]) -> Result<()> {
        if self.kept.is_some() {
            return Err(Error::new(ErrorKind::Internal, "a mix within a mix"));
        }
        let picture = self.at;
        self.put(OpCode::SumBegin, picture, picture, &[own.to_bits()]);
        self.used[SUMS] = true;
        self.kept = Some(picture);
        for (weight, ops) in chains {
            self.across(OpCode::Copy, &[]);
            let done = ops.iter().try_for_each(|op| self.add(op));
            self.put(OpCode::SumAdd, self.at, self.at, &[weight.to_bits()]);
            self.at = picture;
            done?;
        }
        self.kept = None;
        self.put(OpCode::SumEnd, picture, picture, &[]);
        Ok(())
    }
}
