//! The values of a pixel: how they are stored, and which colours they mean.
//!
//! One tag alone decides whether numbers of the same layout are gray, RGB, inks or points of Lab. Anything else than
//! gray, RGB or plain numbers is converted to RGB here, or is an error that names it; it is never taken for RGB.

use std::borrow::Cow;

use infeed_core::{
    error::{Error, ErrorKind, Result, setting::SKIP},
    types::DType,
};

/// How one value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// 1, 2 or 4 bits, the first value in the highest ones; rows begin at bytes.
    Bits(u8),
    /// Whole bytes. u8, u16 and f32 stay as they are. Others become f32: i8, i16 and f16 exactly; i32, u32, i64 and u64
    /// have to be representable; f64 is rounded.
    Whole(DType),
}

impl Stored {
    /// Values of `bits` bits, in a format of the tag SampleFormat.
    pub(super) fn of(bits: u64, format: u64) -> Result<Self> {
        // 4: unspecified.
        Ok(match (bits, format) {
            (1 | 2 | 4, 1 | 4) => Self::Bits(bits as u8),
            (8, 1 | 4) => Self::Whole(DType::U8),
            (16, 1 | 4) => Self::Whole(DType::U16),
            (8, 2) => Self::Whole(DType::I8),
            (16, 2) => Self::Whole(DType::I16),
            (16, 3) => Self::Whole(DType::F16),
            (32, 1 | 4) => Self::Whole(DType::U32),
            (64, 1 | 4) => Self::Whole(DType::U64),
            (32, 2) => Self::Whole(DType::I32),
            (64, 2) => Self::Whole(DType::I64),
            (32, 3) => Self::Whole(DType::F32),
            (64, 3) => Self::Whole(DType::F64),
            (bits, format) => {
                let name = match format {
                    1 | 4 => "unsigned",
                    2 => "signed",
                    3 => "floating-point",
                    5 | 6 => "complex",
                    _ => "unknown",
                };
                return Err(unsupported(format!("TIFF values of {bits} bits ({name})"))
                    .with_hint("convert them to u8, u16 or f32"));
            }
        })
    }

    /// Bits of a value in the file.
    pub(crate) const fn bits(self) -> u8 {
        match self {
            Self::Bits(bits) => bits,
            Self::Whole(dtype) => 8 * dtype.size() as u8,
        }
    }

    /// The type of a decoded value.
    pub(super) const fn given(self) -> DType {
        match self {
            Self::Bits(_) => DType::U8,
            Self::Whole(dtype @ (DType::U8 | DType::U16)) => dtype,
            Self::Whole(_) => DType::F32,
        }
    }

    /// The name in messages.
    pub(super) fn name(self) -> Cow<'static, str> {
        match self {
            Self::Bits(1) => "1 bit".into(),
            Self::Bits(bits) => format!("{bits} bits").into(),
            Self::Whole(dtype) => dtype.name().into(),
        }
    }
}

/// The conversion that values need to become gray, RGB or numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Colours {
    /// None.
    Plain,
    /// Gray whose 0 is white.
    Inverted,
    /// Indices become RGB. There is an entry for each possible index.
    Palette(Box<[[u8; 3]]>),
    /// Labels: numbers as stored, but with these bits inverted.
    Labels(u8),
    /// This many colours are premultiplied by the next value, and are divided by it.
    Premultiplied(u8),
}

/// The tags about a page's colours.
pub(super) struct Said {
    /// PhotometricInterpretation.
    pub(super) photometric: u64,
    /// SamplesPerPixel.
    pub(super) samples: u8,
    pub(super) stored: Stored,
    /// Whether the pixels are compressed as JPEG, whose decoder converts YCbCr to RGB.
    pub(super) jpeg: bool,
}

impl Said {
    /// The meaning, apart from palettes and alpha. `Some(n)`: the first n samples are colours, the rest something else.
    pub(super) fn colours(&self) -> Result<Option<u8>> {
        let Self { photometric, samples, stored, jpeg } = *self;
        let named = |name: &str| Err(unsupported(format!("a TIFF with {name}")).with_hint("convert it to RGB or gray"));
        match photometric {
            // Gray, and any number of channels that are not colours.
            0 | 1 => Ok(Some(1)),
            2 if samples < 3 => {
                Err(corrupt(format!("a TIFF of RGB (photometric interpretation 2) with {samples} samples in a pixel")))
            }
            2 => Ok(Some(3)),
            3 if samples == 1 && matches!(stored, Stored::Bits(_) | Stored::Whole(DType::U8)) => Ok(None),
            3 => named(&format!("a palette for {samples} samples of {}", stored.name())),
            6 if jpeg && samples == 3 => Ok(Some(3)),
            4 => named("a transparency mask and no image"),
            5 => named("inks (photometric interpretation 5: CMYK)"),
            6 => named("YCbCr colours"),
            8..=10 => named(&format!("Lab colours (photometric interpretation {photometric})")),
            32803 => named("the raw values of a sensor (colour filter array)"),
            32844 | 32845 => named("logarithmic colours (LogL or LogLuv)"),
            34892 => named("the raw values of a sensor (linear)"),
            other => named(&format!("photometric interpretation {other}")),
        }
    }
}

/// A palette of `3 * n` values of 16 bits: all reds, all greens, all blues.
pub(super) fn palette(values: &[u16]) -> Colours {
    let each = values.len() / 3;
    // As in libtiff: old writers used 8 bits, so that no value is above 255.
    let shift = if values.iter().any(|value| *value > 255) { 8 } else { 0 };
    Colours::Palette((0..each).map(|n| [0, 1, 2].map(|c| (values[c * each + n] >> shift) as u8)).collect())
}

pub(super) fn corrupt(what: impl Into<Cow<'static, str>>) -> Error {
    Error::corrupt(what).with_hint(format!("fetch the object again or set {SKIP}"))
}

pub(super) fn unsupported(what: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Unsupported, what).with_hint(format!("convert the file or set {SKIP}"))
}
