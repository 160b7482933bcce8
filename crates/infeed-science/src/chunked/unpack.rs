//! Unpacks numbers by the conventions of netCDF: `stored * scale_factor + add_offset`, with values that mean missing.
//! The types of the result are those of xarray.
//!
//! <https://cfconventions.org/cf-conventions/cf-conventions.html#packed-data>

use bytes::Bytes;
use half::{bf16, f16};
use infeed_core::{error::Result, types::DType};
use infeed_data::packed::no_memory;

/// The number in an attribute, and its type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Number {
    pub(crate) value: f64,
    pub(crate) dtype: DType,
}

/// The attributes that give the numbers of an array their meaning.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Attributes {
    pub(crate) scale: Option<Number>,
    pub(crate) offset: Option<Number>,
    /// Values of `_FillValue` and `missing_value`.
    pub(crate) missing: Vec<f64>,
    /// Whether integers are unsigned (`_Unsigned`).
    pub(crate) unsigned: Option<bool>,
}

/// How to compute values from stored numbers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Unpacking {
    /// The type of the stored numbers.
    from: DType,
    /// `F32` or `F64`; for floats without a scale, their own type.
    pub(crate) to: DType,
    scale: Option<f64>,
    offset: Option<f64>,
    missing: Vec<f64>,
}

const fn is_float(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::Bf16 | DType::F32 | DType::F64)
}

impl Attributes {
    /// The type of the stored numbers, after `_Unsigned`; and how to unpack them, if they are packed. Integers without
    /// a scale are returned as stored, including missing values: classes must not become floats.
    pub(crate) fn of(&self, dtype: DType) -> (DType, Option<Unpacking>) {
        let from = match (self.unsigned, dtype) {
            (Some(true), DType::I8) => DType::U8,
            (Some(true), DType::I16) => DType::U16,
            (Some(true), DType::I32) => DType::U32,
            (Some(true), DType::I64) => DType::U64,
            (Some(false), DType::U8) => DType::I8,
            (Some(false), DType::U16) => DType::I16,
            (Some(false), DType::U32) => DType::I32,
            (Some(false), DType::U64) => DType::I64,
            _ => dtype,
        };
        let scaled = self.scale.is_some() || self.offset.is_some();
        // A missing value may be written with the other signedness.
        let missing = self.missing.iter().map(|value| match from != dtype {
            true if is_signed(from) && *value > 0.0 => wrapped(*value, -1.0, from),
            true if !is_signed(from) && *value < 0.0 => wrapped(*value, 1.0, from),
            _ => *value,
        });
        let missing: Vec<f64> = missing.filter(|value| !value.is_nan()).collect();
        if !scaled && (!is_float(from) || missing.is_empty()) {
            return (from, None);
        }
        let to = match (self.scale, self.offset) {
            (None, None) => from,
            (Some(scale), Some(offset)) if scale.dtype == offset.dtype && is_wide(scale.dtype) => {
                if from.size() == 4 && !is_float(from) { DType::F64 } else { scale.dtype }
            }
            (Some(scale), None) if is_wide(scale.dtype) => scale.dtype,
            _ => DType::F64,
        };
        let value = |number: Option<Number>| number.map(|number| number.value);
        (from, Some(Unpacking { from, to, scale: value(self.scale), offset: value(self.offset), missing }))
    }
}

const fn is_wide(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F64)
}

const fn is_signed(dtype: DType) -> bool {
    matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64)
}

/// The number with the same bits in the other signedness, if there is one.
fn wrapped(value: f64, direction: f64, to: DType) -> f64 {
    let range = 2f64.powi(to.size() as i32 * 8);
    if direction > 0.0 || value >= range / 2.0 { value + direction * range } else { value }
}

impl Unpacking {
    /// The numbers that distinguish two `Unpacking`s in a fingerprint.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> {
        let both =
            [self.scale, self.offset].into_iter().flat_map(|n| [u64::from(n.is_some()), n.unwrap_or(0.0).to_bits()]);
        both.chain(self.missing.iter().map(|value| value.to_bits()))
    }

    /// Computes the values of numbers in the machine's byte order.
    pub(super) fn values(&self, bytes: &[u8]) -> Result<Bytes> {
        let len = (bytes.len() / self.from.size()).checked_mul(self.to.size()).ok_or_else(|| no_memory(usize::MAX))?;
        let mut out = Vec::new();
        out.try_reserve_exact(len).map_err(|_| no_memory(len))?;
        let is_missing = |value: f64| self.missing.contains(&value);
        // Computed in the type of the result, as in numpy.
        let (scale, offset) = (self.scale.map(|s| s as f32), self.offset.map(|o| o as f32));
        let mut push = |value: f64, narrow: f32| match self.to {
            DType::F64 if is_missing(value) => out.extend_from_slice(&f64::NAN.to_ne_bytes()),
            DType::F64 => {
                let scaled = self.scale.map_or(value, |scale| value * scale);
                out.extend_from_slice(&self.offset.map_or(scaled, |offset| scaled + offset).to_ne_bytes());
            }
            DType::F16 => {
                let value = if is_missing(value) { f16::NAN } else { f16::from_f64(value) };
                out.extend_from_slice(&value.to_ne_bytes());
            }
            DType::Bf16 => {
                let value = if is_missing(value) { bf16::NAN } else { bf16::from_f64(value) };
                out.extend_from_slice(&value.to_ne_bytes());
            }
            _ => {
                let scaled = scale.map_or(narrow, |scale| narrow * scale);
                let value = if is_missing(value) { f32::NAN } else { offset.map_or(scaled, |offset| scaled + offset) };
                out.extend_from_slice(&value.to_ne_bytes());
            }
        };
        macro_rules! each {
            ($type:ty) => {
                bytes
                    .as_chunks::<{ size_of::<$type>() }>()
                    .0
                    .iter()
                    .map(|bytes| <$type>::from_ne_bytes(*bytes))
                    .for_each(|value| push(value as f64, value as f32))
            };
        }
        match self.from {
            DType::Bool | DType::U8 => each!(u8),
            DType::I8 => each!(i8),
            DType::U16 => each!(u16),
            DType::I16 => each!(i16),
            DType::U32 => each!(u32),
            DType::I32 => each!(i32),
            DType::U64 => each!(u64),
            DType::I64 => each!(i64),
            DType::F32 => each!(f32),
            DType::F64 => each!(f64),
            DType::F16 | DType::Bf16 => {
                let wide = |bytes: &[u8; 2]| match self.from {
                    DType::F16 => f16::from_ne_bytes(*bytes).to_f32(),
                    _ => bf16::from_ne_bytes(*bytes).to_f32(),
                };
                bytes.as_chunks::<2>().0.iter().map(wide).for_each(|value| push(value.into(), value));
            }
        }
        Ok(out.into())
    }
}

/// Numbers of a type, in the machine's byte order, as `f64`.
#[cfg(feature = "hdf5")]
pub(crate) fn wide(dtype: DType, bytes: &[u8]) -> Result<Vec<f64>> {
    let plain = Unpacking { from: dtype, to: DType::F64, scale: None, offset: None, missing: Vec::new() };
    let values = plain.values(bytes)?;
    Ok(values.as_chunks::<8>().0.iter().map(|bytes| f64::from_ne_bytes(*bytes)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(value: f64, dtype: DType) -> Option<Number> {
        Some(Number { value, dtype })
    }

    #[test]
    fn types_and_values_are_those_of_xarray() {
        // The type that `xarray.coding.variables` chooses for these types of numbers, scale and offset.
        let (f32, f64) = (DType::F32, DType::F64);
        for (dtype, scale, offset, to) in [
            (DType::I16, Some(f32), Some(f32), f32),
            (DType::I16, Some(f64), Some(f64), f64),
            (DType::I32, Some(f32), Some(f32), f64),
            (DType::I16, Some(f32), Some(f64), f64),
            (DType::I16, Some(f32), None, f32),
            (DType::I16, None, Some(f32), f64),
            (DType::U8, Some(DType::I64), None, f64),
        ] {
            let of = |dtype: Option<DType>| dtype.and_then(|dtype| number(0.5, dtype));
            let attributes = Attributes { scale: of(scale), offset: of(offset), ..Attributes::default() };
            assert_eq!(attributes.of(dtype).1.unwrap().to, to, "{dtype} {scale:?} {offset:?}");
        }
        let packed = Attributes {
            scale: number(f64::from(0.1f32), f32),
            offset: number(273.15f32.into(), f32),
            missing: vec![-9999.0],
            unsigned: None,
        };
        let bytes = [0i16, 100, -9999].map(i16::to_ne_bytes).concat();
        let values = packed.of(DType::I16).1.unwrap().values(&bytes).unwrap();
        let values: Vec<f32> = values.as_chunks::<4>().0.iter().map(|bytes| f32::from_ne_bytes(*bytes)).collect();
        assert_eq!(values[..2], [273.15, 100.0 * 0.1f32 + 273.15]);
        assert!(values[2].is_nan());
    }

    #[test]
    fn whole_numbers_without_a_scale_stay_and_signs_are_those_that_are_said() {
        let missing = Attributes { missing: vec![255.0], ..Attributes::default() };
        assert_eq!(missing.of(DType::U8), (DType::U8, None));
        let floats = missing.of(DType::F32).1.unwrap();
        let values = floats.values(&[1.5f32, 255.0].map(f32::to_ne_bytes).concat()).unwrap();
        assert_eq!(values[..4], 1.5f32.to_ne_bytes());
        assert!(f32::from_ne_bytes(values[4..].try_into().unwrap()).is_nan());
        let unsigned = Attributes {
            unsigned: Some(true),
            missing: vec![-1.0],
            scale: number(2.0, DType::F32),
            ..Attributes::default()
        };
        let (from, unpacking) = unsigned.of(DType::I8);
        let values = unpacking.unwrap().values(&[200, 255]).unwrap();
        assert_eq!((from, &values[..4]), (DType::U8, &400f32.to_ne_bytes()[..]));
        assert!(f32::from_ne_bytes(values[4..].try_into().unwrap()).is_nan());
        assert_eq!(Attributes { unsigned: Some(true), ..Attributes::default() }.of(DType::I16), (DType::U16, None));
    }
}
