//! Element types.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Element type of a tensor, of decoded pixels, or of the voxels of a file. Multi-byte values are in the machine's byte order.
///
/// ```
/// # use std::sync::Arc;
/// use infeed::{DType, Device, Loader};
///
/// # let dataset = Arc::new(infeed::dataset::SyntheticDataset::new(4, 8, 8, 2)?);
/// let loader = Loader::builder(dataset).batch_size(4).dtype(DType::F16).device(Device::Cpu).build_blocking()?;
/// let batch = loader.epoch(0).blocking().next().expect("one batch")?;
/// assert_eq!((batch["image"].dtype(), batch["label"].dtype()), (DType::F16, DType::I64));
/// assert_eq!(batch["image"].row_bytes(), 3 * 8 * 8 * DType::F16.size());
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// Unsigned 8 bits.
    U8,
    /// Unsigned 16 bits.
    U16,
    /// Signed 16 bits.
    I16,
    /// IEEE half precision.
    F16,
    /// Brain float: the upper half of an `f32`.
    Bf16,
    /// IEEE single precision.
    F32,
    /// Signed 64 bits, the type of labels.
    I64,
    /// One byte, 0 or 1.
    Bool,
    /// Signed 8 bits.
    I8,
    /// Signed 32 bits.
    I32,
    /// Unsigned 32 bits.
    U32,
    /// Unsigned 64 bits.
    U64,
    /// IEEE double precision.
    F64,
}

impl DType {
    /// Every type.
    pub const ALL: [Self; 13] = [
        Self::U8,
        Self::U16,
        Self::I16,
        Self::F16,
        Self::Bf16,
        Self::F32,
        Self::I64,
        Self::Bool,
        Self::I8,
        Self::I32,
        Self::U32,
        Self::U64,
        Self::F64,
    ];

    /// Bytes of one element.
    #[must_use]
    #[inline]
    pub const fn size(self) -> usize {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::U16 | Self::I16 | Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    /// Bytes of an array of this shape. `None` if the element size times all non-zero axes is above `isize::MAX`: no
    /// memory holds that many bytes, and a product of some of the axes could overflow.
    #[must_use]
    #[inline]
    pub fn len_bytes(self, shape: &[usize]) -> Option<usize> {
        let bytes = shape.iter().try_fold(self.size(), |bytes, axis| bytes.checked_mul((*axis).max(1)))?;
        let len = if shape.contains(&0) { 0 } else { bytes };
        (bytes <= isize::MAX as usize).then_some(len)
    }

    /// The bytes of this number in the machine's order: rounded for floats, exact for integers up to 2^53. `None` if
    /// the type does not hold it.
    #[doc(hidden)]
    #[must_use]
    pub fn bytes_of(self, number: f64) -> Option<Vec<u8>> {
        let whole = (number.fract() == 0.0 && number.abs() <= (1u64 << 53) as f64).then_some(number as i64);
        let finite = |rounded: f64, bytes: Vec<u8>| (rounded.is_finite() || !number.is_finite()).then_some(bytes);
        macro_rules! integer {
            ($type:ty) => {
                <$type>::try_from(whole?).ok().map(|number| number.to_ne_bytes().to_vec())
            };
        }
        match self {
            Self::U8 => integer!(u8),
            Self::U16 => integer!(u16),
            Self::I16 => integer!(i16),
            Self::I64 => integer!(i64),
            Self::I8 => integer!(i8),
            Self::I32 => integer!(i32),
            Self::U32 => integer!(u32),
            Self::U64 => integer!(u64),
            Self::Bool => whole.filter(|number| matches!(number, 0 | 1)).map(|number| vec![number as u8]),
            Self::F16 => {
                let near = half::f16::from_f64(number);
                finite(near.to_f64(), near.to_ne_bytes().to_vec())
            }
            Self::Bf16 => {
                let near = half::bf16::from_f64(number);
                finite(near.to_f64(), near.to_ne_bytes().to_vec())
            }
            Self::F32 => finite(f64::from(number as f32), (number as f32).to_ne_bytes().to_vec()),
            Self::F64 => Some(number.to_ne_bytes().to_vec()),
        }
    }

    /// The smallest label type that holds every value of this integer type (for `u64`: every value up to 2^63). `None`
    /// for floats and for `bool`.
    #[must_use]
    #[inline]
    pub const fn whole(self) -> Option<Self> {
        match self {
            Self::U8 => Some(Self::U8),
            Self::U16 => Some(Self::U16),
            Self::I8 | Self::I16 => Some(Self::I16),
            Self::I32 | Self::U32 | Self::I64 | Self::U64 => Some(Self::I64),
            Self::F16 | Self::Bf16 | Self::F32 | Self::F64 | Self::Bool => None,
        }
    }

    /// The name on the command line and in JSON: `u8`, `bf16`, `i64`, `bool`, ….
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::I16 => "i16",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
            Self::I64 => "i64",
            Self::Bool => "bool",
            Self::I8 => "i8",
            Self::I32 => "i32",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::F64 => "f64",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_shape_are_a_number_or_none() {
        let most = isize::MAX as usize;
        assert_eq!(DType::F32.len_bytes(&[]), Some(4));
        assert_eq!(DType::F32.len_bytes(&[2, 3, 4]), Some(96));
        assert_eq!(DType::I64.len_bytes(&[5, 0, 7]), Some(0));
        assert_eq!(DType::U8.len_bytes(&[most]), Some(most));
        for shape in [&[most + 1][..], &[most, 2], &[1 << 33, 1 << 31], &[0, most, most], &[most, most, 0]] {
            assert_eq!(DType::U8.len_bytes(shape), None, "{shape:?}");
        }
        assert_eq!(DType::F64.len_bytes(&[1 << 60]), None);
    }

    #[test]
    fn a_number_has_bytes_in_the_types_that_hold_it() {
        let held = |number: f64| DType::ALL.into_iter().filter(move |dtype| dtype.bytes_of(number).is_some()).count();
        let floats = 4;
        assert_eq!([0.0, 1.0, 2.0, -1.0, -100.0].map(held), [13, 13, 12, floats + 4, floats + 4]);
        assert_eq!([255.0, 256.0, 0.5, f64::NAN, 2f64.powi(60)].map(held), [11, 10, floats, floats, 3]);
        assert_eq!(DType::I32.bytes_of(-100.0), Some((-100i32).to_ne_bytes().to_vec()));
        assert_eq!(DType::F32.bytes_of(0.1), Some(0.1f32.to_ne_bytes().to_vec()));
        assert_eq!(DType::U64.bytes_of(2f64.powi(53)), Some((1u64 << 53).to_ne_bytes().to_vec()));
        for dtype in DType::ALL {
            assert_eq!(dtype.bytes_of(1.0).map(|bytes| bytes.len()), Some(dtype.size()));
        }
    }
}
