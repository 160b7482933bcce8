//! The header of numpy's `.npy` files.

use std::ops::Range;

use crate::{
    error::{Error, ErrorKind, Result},
    types::DType,
};

/// The most that a header of ours or numpy's takes, by far.
pub(crate) const LONGEST: usize = 4096;

/// What an array holds, and where its numbers lie in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Npy {
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    pub(crate) data: Range<usize>,
}

fn bad(what: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::corrupt(what).hint("save the array again with numpy.save")
}

/// Reads the beginning of a `.npy` file. Numbers must be little-endian and in C order. `data` may reach beyond `bytes`,
/// when they are the beginning only.
pub(crate) fn parse_npy(bytes: &[u8]) -> Result<Npy> {
    let Some([major, _minor]) = bytes.strip_prefix(b"\x93NUMPY").and_then(|rest| rest.first_chunk::<2>()) else {
        return Err(bad("no .npy file: it does not begin with \\x93NUMPY"));
    };
    let length = match (major, bytes.get(8..12)) {
        (1, Some(n)) => u16::from_le_bytes([n[0], n[1]]) as usize + 10,
        (2 | 3, Some(n)) => u32::from_le_bytes([n[0], n[1], n[2], n[3]]) as usize + 12,
        (_, None) => return Err(bad("the .npy header is cut")),
        _ => return Err(Error::new(ErrorKind::Unsupported, format!(".npy of version {major}")).hint("use 1, 2 or 3")),
    };
    let start = if *major == 1 { 10 } else { 12 };
    let text = bytes.get(start..length).filter(|_| length <= LONGEST);
    let text = text.and_then(|text| str::from_utf8(text).ok()).ok_or_else(|| bad("the .npy header is cut"))?;
    let value = |key: &str| {
        let at = text.find(&format!("'{key}'"))? + key.len() + 2;
        Some(text[at..].trim_start().strip_prefix(':')?.trim_start())
    };
    let lacks = || bad("the .npy header lacks descr, fortran_order or shape");
    let descr = value("descr").and_then(|v| v.strip_prefix('\'')?.split('\'').next()).ok_or_else(lacks)?;
    let dtype = match descr {
        "|u1" => DType::U8,
        "<u2" => DType::U16,
        "<f2" => DType::F16,
        "<f4" => DType::F32,
        "<i8" => DType::I64,
        other => {
            let what = format!(".npy of type `{other}`");
            return Err(Error::new(ErrorKind::Unsupported, what).hint("save u1, <u2, <f2, <f4 or <i8"));
        }
    };
    if !value("fortran_order").ok_or_else(lacks)?.starts_with("False") {
        let what = ".npy in Fortran order";
        return Err(Error::new(ErrorKind::Unsupported, what).hint("save numpy.ascontiguousarray of it"));
    }
    let inside = value("shape").and_then(|v| v.strip_prefix('(')?.split(')').next()).ok_or_else(lacks)?;
    let axes = inside.split(',').map(str::trim).filter(|axis| !axis.is_empty());
    let shape: Option<Vec<usize>> = axes.map(|axis| axis.parse().ok()).collect();
    let shape = shape.filter(|shape| shape.len() <= 32).ok_or_else(lacks)?;
    let bytes = shape.iter().try_fold(dtype.size(), |bytes, n| bytes.checked_mul(*n));
    let end = bytes.and_then(|bytes| length.checked_add(bytes)).ok_or_else(|| bad("the .npy shape overflows"))?;
    Ok(Npy { dtype, shape, data: length..end })
}

#[cfg(any(test, feature = "prepare"))]
/// A header of version 1, padded so that the numbers begin at a multiple of 64, as numpy writes it.
pub(crate) fn npy_header(dtype: DType, shape: &[usize]) -> Vec<u8> {
    let descr = match dtype {
        DType::U8 => "|u1",
        DType::U16 => "<u2",
        DType::F16 => "<f2",
        DType::F32 => "<f4",
        DType::I64 => "<i8",
        // Numpy has no name for it: its bytes.
        DType::Bf16 => "|V2",
    };
    let axes: Vec<String> = shape.iter().map(ToString::to_string).collect();
    let comma = if axes.len() == 1 { "," } else { "" };
    let dict = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}{comma}), }}", axes.join(", "));
    let length = (10 + dict.len() + 1).next_multiple_of(64) - 10;
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    header.extend_from_slice(&(length as u16).to_le_bytes());
    header.extend_from_slice(dict.as_bytes());
    header.resize(10 + length - 1, b' ');
    header.push(b'\n');
    header
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for (dtype, shape) in [(DType::U8, vec![4, 5, 3]), (DType::F32, vec![7]), (DType::I64, vec![])] {
            let header = npy_header(dtype, &shape);
            assert_eq!(header.len() % 64, 0);
            let len = shape.iter().product::<usize>() * dtype.size();
            let read = parse_npy(&header).unwrap();
            assert_eq!(read, Npy { dtype, shape, data: header.len()..header.len() + len });
        }
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        let with = |dict: &str| {
            let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
            bytes.extend_from_slice(&(dict.len() as u16).to_le_bytes());
            bytes.extend_from_slice(dict.as_bytes());
            parse_npy(&bytes).unwrap_err().to_string()
        };
        assert!(with("{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }").contains("`>f4`"));
        assert!(with("{'descr': '<f4', 'fortran_order': True, 'shape': (2,), }").contains("Fortran"));
        assert!(with("{'descr': '<f4', 'fortran_order': False}").contains("lacks"));
        let huge = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, 8), }}", usize::MAX / 8);
        assert!(with(&huge).contains("overflows"));
        assert!(parse_npy(b"").is_err() && parse_npy(b"\x93NUMPY\x01\x00").is_err());
        assert!(parse_npy(b"\x93NUMPY\x09\x00\x00\x00\x00\x00").unwrap_err().to_string().contains("version 9"));
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_shape_or_an_error(at in 0usize..128, flip in any::<u8>(), cut in 0usize..129) {
            let mut bytes = npy_header(DType::U16, &[3, 99, 7]);
            bytes[at] ^= flip;
            let _ = parse_npy(&bytes[..cut.min(bytes.len())]);
        }
    }
}
