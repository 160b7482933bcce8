//! Parses the names of types, and fill values.

use half::{bf16, f16};
use infeed_core::types::DType;
use serde_json::Value;

/// A type by its name in version 3.
pub(super) fn named_type(text: &str) -> Option<DType> {
    Some(match text {
        "bool" => DType::Bool,
        "uint8" => DType::U8,
        "int8" => DType::I8,
        "uint16" => DType::U16,
        "int16" => DType::I16,
        "uint32" => DType::U32,
        "int32" => DType::I32,
        "uint64" => DType::U64,
        "int64" => DType::I64,
        "float16" => DType::F16,
        "bfloat16" => DType::Bf16,
        "float32" => DType::F32,
        "float64" => DType::F64,
        _ => return None,
    })
}

/// The bytes of a fill value in the machine's byte order; `None` if `value` is not of this type. A null is 0.
pub(super) fn fill(dtype: DType, value: &Value) -> Option<Vec<u8>> {
    if value.is_null() {
        return Some(vec![0; dtype.size()]);
    }
    macro_rules! whole {
        ($type:ty) => {
            <$type>::try_from(integer(value)?).ok()?.to_ne_bytes().to_vec()
        };
    }
    Some(match dtype {
        DType::Bool => vec![u8::from(value.as_bool().or_else(|| Some(integer(value)? != 0))?)],
        DType::U8 => whole!(u8),
        DType::I8 => whole!(i8),
        DType::U16 => whole!(u16),
        DType::I16 => whole!(i16),
        DType::U32 => whole!(u32),
        DType::I32 => whole!(i32),
        DType::U64 => whole!(u64),
        DType::I64 => whole!(i64),
        DType::F16 | DType::Bf16 | DType::F32 | DType::F64 => match bits(value) {
            // The bits in hexadecimal: there are many NaNs.
            Some(text) if text.len() == 2 * dtype.size() => {
                let bits = u64::from_str_radix(text, 16).ok()?.to_be_bytes();
                let mut bits = bits[8 - dtype.size()..].to_vec();
                if cfg!(target_endian = "little") {
                    bits.reverse();
                }
                bits
            }
            Some(_) => return None,
            None => float(dtype, real(value)?),
        },
    })
}

fn bits(value: &Value) -> Option<&str> {
    value.as_str()?.strip_prefix("0x").filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn integer(value: &Value) -> Option<i128> {
    let number = value.as_number()?;
    let exact = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
    // A whole number may be written as `0.0`.
    exact.or_else(|| number.as_f64().filter(|n| n.fract() == 0.0 && n.abs() < 1e15).map(|n| n as i128))
}

fn real(value: &Value) -> Option<f64> {
    match value.as_str() {
        Some("NaN") => Some(f64::NAN),
        Some("Infinity") => Some(f64::INFINITY),
        Some("-Infinity") => Some(f64::NEG_INFINITY),
        Some(_) => None,
        None => value.as_f64(),
    }
}

fn float(dtype: DType, value: f64) -> Vec<u8> {
    match dtype {
        DType::F16 => f16::from_f64(value).to_ne_bytes().to_vec(),
        DType::Bf16 => bf16::from_f64(value).to_ne_bytes().to_vec(),
        DType::F32 => (value as f32).to_ne_bytes().to_vec(),
        _ => value.to_ne_bytes().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fill_values_are_of_their_type_or_none() {
        let ne = |bytes: &[u8]| Some(bytes.to_vec());
        assert_eq!(fill(DType::I16, &json!(-3)), ne(&(-3i16).to_ne_bytes()));
        assert_eq!(fill(DType::U64, &json!(u64::MAX)), ne(&u64::MAX.to_ne_bytes()));
        assert_eq!(fill(DType::U8, &json!(7.0)), ne(&[7]));
        assert_eq!(fill(DType::Bool, &json!(true)), ne(&[1]));
        assert_eq!(fill(DType::F32, &json!(null)), ne(&[0; 4]));
        assert_eq!(fill(DType::F32, &json!(0.5)), ne(&0.5f32.to_ne_bytes()));
        assert_eq!(fill(DType::F64, &json!("-Infinity")), ne(&f64::NEG_INFINITY.to_ne_bytes()));
        assert_eq!(fill(DType::F32, &json!("0x7fc00001")), ne(&0x7fc0_0001u32.to_ne_bytes()));
        assert_eq!(fill(DType::F16, &json!("0x3c00")), ne(&0x3c00u16.to_ne_bytes()));
        assert_eq!(fill(DType::Bf16, &json!("NaN")).map(|bytes| bytes.len()), Some(2));
        for (dtype, wrong) in [
            (DType::U8, json!(256)),
            (DType::U8, json!(-1)),
            (DType::I32, json!(0.5)),
            (DType::I32, json!("NaN")),
            (DType::F32, json!("0x7fc0")),
            (DType::F32, json!("0x+fc00001")),
            (DType::F32, json!("none")),
            (DType::F32, json!([0])),
            (DType::Bool, json!("x")),
        ] {
            assert_eq!(fill(dtype, &wrong), None, "{dtype} {wrong}");
        }
    }
}
