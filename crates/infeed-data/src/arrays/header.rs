//! Parsers for the headers of array files: pure functions on bytes.

use std::{collections::HashSet, ops::Range};

use infeed_core::{
    error::{Error, ErrorKind, Result},
    types::DType,
};

/// An array in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    /// The range of its numbers, with the number of bytes that type and shape need.
    pub(crate) data: Range<u64>,
    /// Whether the byte order has to be swapped for this machine.
    pub(crate) swapped: bool,
    /// Whether the first axis is contiguous (Fortran order); always false with one axis.
    pub(crate) fortran: bool,
}

fn corrupt(what: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::corrupt(what).with_hint("fetch the file again, or save it again")
}

fn unsupported(what: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Unsupported, what)
}

/// More axes than numpy allows.
const MOST_AXES: usize = 64;

/// Bytes of an array, if they fit into a machine's memory.
fn len_bytes(dtype: DType, shape: &[usize]) -> Option<u64> {
    if shape.len() > MOST_AXES {
        return None;
    }
    dtype.len_bytes(shape).map(|bytes| bytes as u64)
}

/// Reads the beginning of a `.npy` file (versions 1 to 3). `Ok(Err(n))`: the header has `n` bytes, but `bytes` has
/// fewer.
///
/// # Errors
/// `Corrupt` for any other content, `Unsupported` for types without a [`DType`].
pub(crate) fn parse_npy(bytes: &[u8]) -> Result<Result<Array, u64>> {
    if bytes.len() < 12 {
        let begins = bytes.starts_with(b"\x93NUMPY") || b"\x93NUMPY".starts_with(bytes);
        return if begins { Ok(Err(12)) } else { Err(corrupt("it does not begin as .npy files do")) };
    }
    if !bytes.starts_with(b"\x93NUMPY") {
        return Err(corrupt("it does not begin as .npy files do"));
    }
    let (start, len) = match bytes[6] {
        1 => (10, u64::from(u16::from_le_bytes([bytes[8], bytes[9]]))),
        2 | 3 => (12, u64::from(u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]))),
        other => return Err(unsupported(format!(".npy of version {other}")).with_hint("save it with numpy.save")),
    };
    let end = start as u64 + len;
    let Some(text) = usize::try_from(end).ok().and_then(|end| bytes.get(start..end)) else { return Ok(Err(end)) };
    let text = str::from_utf8(text).map_err(|_| corrupt("its header is not a text"))?;
    let value = |key: &str| {
        // Keys are the only quoted words followed by a colon.
        let key = [format!("'{key}'"), format!("\"{key}\"")];
        let rest = key.iter().find_map(|key| text.split_once(key.as_str()))?.1;
        Some(rest.trim_start().strip_prefix(':')?.trim_start())
    };
    let missing = |key: &str| corrupt(format!("its header has no {key}"));
    let descr = value("descr").ok_or_else(|| missing("descr"))?;
    let quoted = descr.strip_prefix(['\'', '"']).and_then(|rest| rest.split(['\'', '"']).next());
    let Some(descr) = quoted else {
        return Err(unsupported("an array of records of several types").with_hint("save an array for each"));
    };
    let (dtype, swapped) = numpy_type(descr).ok_or_else(|| {
        unsupported(format!("an array of numpy's type `{descr}`")).with_hint("convert it to numbers of 8 to 64 bits")
    })?;
    let order = value("fortran_order").ok_or_else(|| missing("fortran_order"))?;
    let shape = parse_shape(value("shape").ok_or_else(|| missing("shape"))?).ok_or_else(|| missing("proper shape"))?;
    let fortran = match (order.starts_with("True"), order.starts_with("False")) {
        // With one axis, both orders are the same.
        (true, _) => shape.len() > 1,
        (_, true) => false,
        _ => return Err(missing("proper fortran_order")),
    };
    let bytes = len_bytes(dtype, &shape).ok_or_else(|| corrupt(format!("its shape {shape:?} is too large")))?;
    Ok(Ok(Array { dtype, shape, data: end..end + bytes, swapped, fortran }))
}

/// `(3, 4)`, `(3,)`, `()`.
fn parse_shape(text: &str) -> Option<Vec<usize>> {
    let inside = text.strip_prefix('(')?.split_once(')')?.0;
    let axes = inside.split(',').map(str::trim);
    axes.filter(|axis| !axis.is_empty()).map(|axis| axis.trim_end_matches('L').parse().ok()).collect()
}

/// The type of `<f4`, and whether its bytes are in the other order.
pub fn numpy_type(descr: &str) -> Option<(DType, bool)> {
    let (order, kind) = descr.split_at_checked(1)?;
    let dtype = match kind {
        "b1" => DType::Bool,
        "u1" => DType::U8,
        "i1" => DType::I8,
        "u2" => DType::U16,
        "i2" => DType::I16,
        "u4" => DType::U32,
        "i4" => DType::I32,
        "u8" => DType::U64,
        "i8" => DType::I64,
        "f2" => DType::F16,
        "f4" => DType::F32,
        "f8" => DType::F64,
        // numpy has no bfloat16: ml_dtypes and `npy_header` write it so.
        "V2" => DType::Bf16,
        _ => return None,
    };
    let swapped = match order {
        "|" | "=" => false,
        "<" => cfg!(target_endian = "big"),
        ">" => cfg!(target_endian = "little"),
        _ => return None,
    };
    Some((dtype, swapped && dtype.size() > 1))
}

/// A header of version 1, padded so that the numbers begin at a multiple of 64 bytes, as numpy writes it.
pub fn npy_header(dtype: DType, shape: &[usize]) -> Vec<u8> {
    let kind = match dtype {
        DType::Bool => "b1",
        DType::U8 => "u1",
        DType::I8 => "i1",
        DType::U16 => "u2",
        DType::I16 => "i2",
        DType::U32 => "u4",
        DType::I32 => "i4",
        DType::U64 => "u8",
        DType::I64 => "i8",
        DType::F16 => "f2",
        DType::F32 => "f4",
        DType::F64 => "f8",
        // Numpy has no name for this type: raw bytes.
        DType::Bf16 => "V2",
    };
    let order = match dtype.size() {
        1 => '|',
        _ if cfg!(target_endian = "big") => '>',
        _ => '<',
    };
    let axes: Vec<String> = shape.iter().map(ToString::to_string).collect();
    let comma = if axes.len() == 1 { "," } else { "" };
    let dict = format!("{{'descr': '{order}{kind}', 'fortran_order': False, 'shape': ({}{comma}), }}", axes.join(", "));
    let length = (10 + dict.len() + 1).next_multiple_of(64) - 10;
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    // At most 64 axes of 20 digits, far below the limit of two bytes.
    header.extend_from_slice(&(length as u16).to_le_bytes());
    header.extend_from_slice(dict.as_bytes());
    header.resize(10 + length - 1, b' ');
    header.push(b'\n');
    header
}

/// The tensors of a safetensors header, in the order of their data; ranges are relative to the end of the header. A
/// tensor of an unsupported type is an error `Unsupported` in the list.
///
/// # Errors
/// `Corrupt` for a header that contradicts itself or the number of bytes `data` after it.
pub(crate) fn parse_safetensors(header: &[u8], data: u64) -> Result<Vec<(String, Result<Array>)>> {
    let json = serde_json::from_slice(header).map_err(|e| corrupt("its header is not JSON").with_source(e))?;
    let serde_json::Value::Object(map) = json else { return Err(corrupt("its header is not a JSON object")) };
    let mut arrays = Vec::new();
    let mut others = Vec::new();
    for (name, value) in map {
        if name == "__metadata__" {
            continue;
        }
        let wrong = |what: &str| corrupt(format!("tensor `{name}` {what}"));
        let text = value["dtype"].as_str().ok_or_else(|| wrong("has no type"))?;
        let dtype = match text {
            "BOOL" => DType::Bool,
            "U8" => DType::U8,
            "I8" => DType::I8,
            "U16" => DType::U16,
            "I16" => DType::I16,
            "U32" => DType::U32,
            "I32" => DType::I32,
            "U64" => DType::U64,
            "I64" => DType::I64,
            "F16" => DType::F16,
            "BF16" => DType::Bf16,
            "F32" => DType::F32,
            "F64" => DType::F64,
            other => {
                others.push((name.clone(), Err(unsupported(format!("a tensor of type {other}")))));
                continue;
            }
        };
        let whole = |value: &serde_json::Value| -> Option<Vec<u64>> {
            value.as_array()?.iter().map(serde_json::Value::as_u64).collect()
        };
        let shape = whole(&value["shape"]).and_then(|axes| axes.into_iter().map(|n| usize::try_from(n).ok()).collect());
        let shape: Vec<usize> = shape.ok_or_else(|| wrong("has no valid shape"))?;
        let Some(&[start, end]) = whole(&value["data_offsets"]).as_deref() else {
            return Err(wrong("has no valid data_offsets"));
        };
        let bytes = len_bytes(dtype, &shape).ok_or_else(|| wrong("is too large"))?;
        if start > end || end > data || end - start != bytes {
            let what = format!("is at {start}..{end} of {data}, but needs {bytes} bytes");
            return Err(wrong(&what));
        }
        let swapped = cfg!(target_endian = "big");
        arrays.push((name.clone(), Array { dtype, shape, data: start..end, swapped, fortran: false }));
    }
    arrays.sort_by(|a, b| (a.1.data.start, &a.0).cmp(&(b.1.data.start, &b.0)));
    Ok(arrays.into_iter().map(|(name, array)| (name, Ok(array))).chain(others).collect())
}

/// One file in a zip file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    /// Position of its local header.
    pub(crate) at: u64,
    pub(crate) size: u64,
    /// Bytes in the zip file.
    pub(crate) stored: u64,
    /// Checksum of the unpacked file.
    pub(crate) crc: u32,
    /// Compression method: 0 none, 8 deflate.
    pub(crate) method: u16,
}

fn le(bytes: &[u8], at: usize, len: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(len)?)?;
    Some(bytes.iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte)))
}

/// The range of a zip file's directory, from the last bytes of the file, which begin at `at` of `size`.
pub(crate) fn parse_end(tail: &[u8], at: u64, size: u64) -> Result<Range<u64>> {
    let not_zip = || corrupt("no end of a zip file");
    // The last signature that fits, because a comment may contain anything.
    let fits = |i: &usize| {
        tail[*i..].starts_with(b"PK\x05\x06") && le(tail, i + 20, 2).is_some_and(|n| i + 22 + n as usize <= tail.len())
    };
    let end = (0..tail.len().saturating_sub(21)).rev().find(fits).ok_or_else(not_zip)?;
    let field = |offset: usize, len: usize| le(tail, end + offset, len).ok_or_else(not_zip);
    let (mut bytes, mut start) = (field(12, 4)?, field(16, 4)?);
    if bytes == 0xffff_ffff || start == 0xffff_ffff || field(10, 2)? == 0xffff {
        // Zip64: a locator before the end record has the position of the real one, which numpy writes just before it.
        let found = end.checked_sub(20).filter(|i| tail[*i..].starts_with(b"PK\x06\x07"));
        let record = found.and_then(|i| le(tail, i + 8, 8)).and_then(|record| record.checked_sub(at));
        let record = record.and_then(|i| usize::try_from(i).ok());
        let record = record.filter(|i| tail.get(*i..).is_some_and(|t| t.starts_with(b"PK\x06\x06")));
        let record = record.ok_or_else(|| corrupt("no end of a large zip file"))?;
        bytes = le(tail, record + 40, 8).ok_or_else(not_zip)?;
        start = le(tail, record + 48, 8).ok_or_else(not_zip)?;
    }
    let stop = start.checked_add(bytes).filter(|stop| *stop <= at + end as u64 && *stop <= size);
    stop.map(|stop| start..stop).ok_or_else(|| corrupt("a zip directory beyond the file's end"))
}

/// The files of a zip directory.
pub(crate) fn parse_directory(bytes: &[u8]) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    let mut names = HashSet::new();
    let mut at = 0;
    while at < bytes.len() {
        let cut = || corrupt("a truncated zip directory");
        if !bytes[at..].starts_with(b"PK\x01\x02") {
            return Err(corrupt("a damaged zip directory"));
        }
        let field = |offset: usize, len: usize| le(bytes, at + offset, len).ok_or_else(cut);
        let (flags, method) = (field(8, 2)?, field(10, 2)?);
        let (name_len, extra_len, comment_len) =
            (field(28, 2)? as usize, field(30, 2)? as usize, field(32, 2)? as usize);
        let (packed_size, size) = (field(20, 4)?, field(24, 4)?);
        let mut sizes = [size, packed_size, field(42, 4)?];
        let name = bytes.get(at + 46..at + 46 + name_len).ok_or_else(cut)?;
        let mut extra = bytes.get(at + 46 + name_len..at + 46 + name_len + extra_len).ok_or_else(cut)?;
        // Zip64: the values that did not fit into their fields, in this order.
        while let Some((tag, len)) = le(extra, 0, 2).zip(le(extra, 2, 2)) {
            let body = extra.get(4..4 + len as usize).ok_or_else(cut)?;
            if tag == 1 {
                let mut wide = 0;
                for size in sizes.iter_mut().filter(|size| **size == 0xffff_ffff) {
                    *size = le(body, wide, 8).ok_or_else(cut)?;
                    wide += 8;
                }
            }
            extra = &extra[4 + len as usize..];
        }
        let name = String::from_utf8_lossy(name).into_owned();
        if !names.insert(name.clone()) {
            return Err(corrupt(format!("`{name}` is twice in the zip file")));
        }
        if flags & 1 != 0 {
            return Err(unsupported(format!("`{name}` is encrypted")).with_hint("save it without encryption"));
        }
        let [size, packed_size, start] = sizes;
        if method == 0 && size != packed_size {
            return Err(corrupt(format!("`{name}` has two sizes, {size} and {packed_size}")));
        }
        let (crc, method) = (field(16, 4)? as u32, method as u16);
        entries.push(Entry { name, at: start, size, stored: packed_size, crc, method });
        at += 46 + name_len + extra_len + comment_len;
    }
    Ok(entries)
}

/// Bytes of a local header, given its first 30.
pub(crate) fn parse_local(bytes: &[u8]) -> Result<u64> {
    let lens = le(bytes, 26, 2).zip(le(bytes, 28, 2)).filter(|_| bytes.starts_with(b"PK\x03\x04"));
    lens.map(|(name, extra)| 30 + name + extra).ok_or_else(|| corrupt("there is no file where the zip directory says"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As numpy writes it.
    fn npy(header: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x93NUMPY\x01\0".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        bytes
    }

    #[test]
    fn npy_headers_of_every_type_are_read() {
        for (descr, dtype, swapped) in [
            ("|u1", DType::U8, false),
            ("|b1", DType::Bool, false),
            ("|i1", DType::I8, false),
            ("<u2", DType::U16, false),
            ("<i2", DType::I16, false),
            ("<u4", DType::U32, false),
            ("<i4", DType::I32, false),
            ("<u8", DType::U64, false),
            ("<i8", DType::I64, false),
            ("<f2", DType::F16, false),
            ("<f4", DType::F32, false),
            ("<f8", DType::F64, false),
            (">f4", DType::F32, true),
            (">u2", DType::U16, true),
            (">i1", DType::I8, false),
        ] {
            let file = npy(&format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (3, 4), }}   \n"), &[]);
            let array = parse_npy(&file).unwrap().unwrap();
            let end = file.len() as u64;
            let data = end..end + 12 * dtype.size() as u64;
            assert_eq!(array, Array { dtype, shape: vec![3, 4], data, swapped, fortran: false }, "{descr}");
        }
        let scalar = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (), }", &[]);
        assert_eq!(parse_npy(&scalar).unwrap().unwrap().shape, [0usize; 0]);
        assert_eq!(parse_npy(&scalar[..30]).unwrap().unwrap_err(), scalar.len() as u64, "more is needed");
    }

    #[test]
    fn what_is_written_is_read() {
        for (dtype, shape) in [
            (DType::U8, vec![4, 5, 3]),
            (DType::F32, vec![7]),
            (DType::I64, vec![]),
            (DType::Bool, vec![2, 2]),
            (DType::F64, vec![1; MOST_AXES]),
        ] {
            let header = npy_header(dtype, &shape);
            assert_eq!(header.len() % 64, 0);
            let start = header.len() as u64;
            let data = start..start + (shape.iter().product::<usize>() * dtype.size()) as u64;
            assert_eq!(
                parse_npy(&header).unwrap().unwrap(),
                Array { dtype, shape, data, swapped: false, fortran: false }
            );
        }
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        let says = |header: &str| parse_npy(&npy(header, &[])).unwrap_err().to_string();
        for (header, words) in [
            ("{'descr': '<f4', 'fortran_order': maybe, 'shape': (3, 4)}", "proper fortran_order"),
            ("{'descr': '<c8', 'fortran_order': False, 'shape': (3,)}", "type `<c8`"),
            ("{'descr': '|O', 'fortran_order': False, 'shape': (3,)}", "type `|O`"),
            ("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,)}", "several types"),
            ("{'descr': '<f8', 'fortran_order': False, 'shape': (9223372036854775807, 4)}", "too large"),
            // No values in all, and rows whose length is no number.
            ("{'descr': '<f8', 'fortran_order': False, 'shape': (0, 9223372036854775807, 4)}", "too large"),
            ("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}", "proper shape"),
            ("{'descr': '<f8', 'fortran_order': False}", "no shape"),
        ] {
            assert!(says(header).contains(words), "{}", says(header));
        }
        assert!(parse_npy(b"PK\x03\x04 and so on").is_err());
        for (shape, fortran) in [("(3,)", false), ("(3, 4)", true)] {
            let file = npy(&format!("{{'descr': '<f4', 'fortran_order': True, 'shape': {shape}}}"), &[]);
            assert_eq!(parse_npy(&file).unwrap().unwrap().fortran, fortran, "{shape}");
        }
    }

    #[test]
    fn tensors_come_in_the_order_of_the_file() {
        let header = br#"{"b":{"dtype":"F32","shape":[2,3],"data_offsets":[8,32]},"a":{"dtype":"I64","shape":[1],
            "data_offsets":[0,8]},"__metadata__":{"format":"pt"}}"#;
        let arrays = parse_safetensors(header, 32).unwrap();
        assert_eq!(arrays.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["a", "b"]);
        let b = arrays[1].1.as_ref().unwrap();
        assert_eq!((b.data.clone(), &b.shape[..]), (8..32, &[2, 3][..]));
        let other = br#"{"a":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}"#;
        let found = parse_safetensors(other, 3).unwrap();
        assert_eq!((&*found[0].0, &*found[1].0), ("b", "a"));
        assert!(
            found[0].1.is_ok() && found[1].1.as_ref().unwrap_err().to_string().contains("a tensor of type F8_E4M3")
        );
        assert!(parse_safetensors(header, 31).unwrap_err().to_string().contains("`b` is at 8..32 of 31"));
        for bad in [
            &br#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}"#[..],
            br#"{"a":{"dtype":"F32","shape":[18446744073709551615,8],"data_offsets":[0,4]}}"#,
            br#"{"a":{"shape":[2],"data_offsets":[0,2]}}"#,
            br#"[]"#,
            b"",
        ] {
            assert!(parse_safetensors(bad, 100).is_err());
        }
    }

    proptest! {
        #[test]
        fn damaged_headers_never_panic(flips in prop::collection::vec((0usize..400, any::<u8>()), 1..5), cut in 0usize..400) {
            let mut file = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }", &[0; 48]);
            let mut json = br#"{"b":{"dtype":"F32","shape":[2,3],"data_offsets":[8,32]}}"#.to_vec();
            let mut directory = b"PK\x01\x02".to_vec();
            directory.resize(46, 0);
            directory[28] = 5;
            directory[30] = 12;
            directory.extend(b"a.npy\x01\0\x08\0________");
            let mut end = directory.clone();
            end.extend(b"PK\x06\x06");
            end.resize(end.len() + 52, 0);
            end.extend(b"PK\x06\x07\0\0\0\0");
            end.extend((directory.len() as u64).to_le_bytes());
            end.resize(end.len() + 4, 0);
            end.extend(b"PK\x05\x06");
            end.resize(end.len() + 18, 0xff);
            for (at, byte) in flips {
                for bytes in [&mut file, &mut json, &mut directory, &mut end] {
                    let at = at % bytes.len();
                    bytes[at] = byte;
                }
            }
            let cut = |bytes: &[u8]| bytes[..bytes.len().min(cut)].to_vec();
            let _ = parse_npy(&cut(&file));
            let _ = parse_npy(&file);
            let _ = parse_safetensors(&json, 32);
            let _ = parse_directory(&directory);
            let _ = parse_directory(&cut(&directory));
            let _ = parse_end(&end, 0, end.len() as u64);
            let _ = parse_end(&cut(&end), 7, end.len() as u64);
            let _ = parse_local(&cut(&directory));
        }
    }
}
