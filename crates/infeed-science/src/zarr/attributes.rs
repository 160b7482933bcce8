//! Reads the attributes that give an array's numbers their meaning (scale, offset, missing values), as xarray writes
//! them.

use base64::{Engine, prelude::BASE64_STANDARD};
use infeed_core::{error::Result, types::DType};
use serde_json::Value;

use crate::chunked::{Attributes, Number, damaged};

/// Parses the attributes of an array of type `dtype`. `fill` is the fill value in its metadata.
pub(super) fn attributes(json: &Value, fill: &Value, dtype: DType) -> Result<Attributes> {
    let number = |name: &str| match &json[name] {
        Value::Null => Ok(None),
        value => match number(value) {
            // A whole number in JSON is an integer, not a float: the type decides the type of the values.
            Some(number) => {
                Ok(Some(Number { value: number, dtype: if value.is_f64() { DType::F64 } else { DType::I64 } }))
            }
            None => Err(damaged(format!("its attribute `{name}` is not a number"))),
        },
    };
    let (scale, offset) = (number("scale_factor")?, number("add_offset")?);
    let mut missing: Vec<f64> = ["_FillValue", "missing_value"].iter().flat_map(|name| numbers(&json[*name])).collect();
    // In version 2 xarray keeps `_FillValue` in the metadata. Other writers put 0 there, which is not a missing value.
    let own = json.get("_ARRAY_DIMENSIONS").is_some();
    missing.extend(self::number(fill).filter(|fill| own && (*fill != 0.0 || scale.is_some() || offset.is_some())));
    if dtype == DType::Bool {
        missing.clear();
    }
    let unsigned = match &json["_Unsigned"] {
        Value::Null => None,
        value => match value.as_str().map(str::to_ascii_lowercase).as_deref() {
            Some("true") => Some(true),
            Some("false") => Some(false),
            _ => return Err(damaged("its attribute `_Unsigned` is neither true nor false")),
        },
    };
    Ok(Attributes { scale, offset, missing, unsigned })
}

fn numbers(value: &Value) -> Vec<f64> {
    match value.as_array() {
        Some(list) => list.iter().filter_map(number).collect(),
        None => number(value).into_iter().collect(),
    }
}

/// A JSON number, or the bytes of a float in base64.
fn number(value: &Value) -> Option<f64> {
    match value.as_str() {
        None => match value.as_array().map(Vec::as_slice) {
            Some([one]) => number(one),
            _ => value.as_f64(),
        },
        Some(text) => {
            let bytes: [u8; 8] = BASE64_STANDARD.decode(text).ok()?.try_into().ok()?;
            Some(f64::from_le_bytes(bytes))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn attributes_of_both_versions_are_read() {
        let of = |attributes: Value, fill: Value| attributes_of(&attributes, &fill);
        fn attributes_of(attributes: &Value, fill: &Value) -> Attributes {
            super::attributes(attributes, fill, DType::I16).unwrap()
        }
        let packed = of(json!({"scale_factor": 2.0, "add_offset": -20.0, "_ARRAY_DIMENSIONS": ["x"]}), json!(-9));
        assert_eq!(packed.scale, Some(Number { value: 2.0, dtype: DType::F64 }));
        assert_eq!((packed.offset.unwrap().value, packed.missing), (-20.0, vec![-9.0]));
        // A 0 of another writer, and an array without xarray's `_ARRAY_DIMENSIONS`.
        assert!(of(json!({"_ARRAY_DIMENSIONS": ["x"]}), json!(0)).missing.is_empty());
        assert!(of(json!({}), json!(7)).missing.is_empty());
        let version_3 = of(json!({"scale_factor": 1, "_FillValue": -1, "missing_value": "AAAAAAAAJEA="}), json!(0));
        assert_eq!((version_3.scale.unwrap().dtype, version_3.missing), (DType::I64, vec![-1.0, 10.0]));
        assert!(super::attributes(&json!({"scale_factor": "two"}), &Value::Null, DType::I16).is_err());
    }
}
