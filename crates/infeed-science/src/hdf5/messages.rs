//! Parses the messages of a dataset: type, shape, layout, fill value and filters.

use infeed_core::{error::Result, types::DType};

use super::{cursor::Cursor, header::Message, unsupported};

/// Most axes of a dataset, as in the HDF5 library.
const MOST_AXES: usize = 32;

/// Type of the numbers, and whether they are big-endian. If it is not a type of numbers: what it is, in the plural.
pub(super) type Type = std::result::Result<(DType, bool), String>;

pub(super) fn datatype(body: &[u8]) -> Result<Type> {
    let mut cursor = Cursor::new(body, "the type of a dataset");
    number(&mut cursor, 0)
}

fn number(cursor: &mut Cursor<'_>, depth: u8) -> Result<Type> {
    let head = cursor.u8()?;
    let (class, version) = (head & 15, head >> 4);
    let bits = cursor.uint(3)?;
    let size = cursor.u32()?;
    let big = bits & 1 == 1;
    let whole = |cursor: &mut Cursor<'_>| -> Result<bool> {
        let (offset, precision) = (cursor.u16()?, cursor.u16()?);
        Ok(offset == 0 && u32::from(precision) == size.saturating_mul(8))
    };
    let integer = |signed: bool| match (size, signed) {
        (1, false) => Some(DType::U8),
        (1, true) => Some(DType::I8),
        (2, false) => Some(DType::U16),
        (2, true) => Some(DType::I16),
        (4, false) => Some(DType::U32),
        (4, true) => Some(DType::I32),
        (8, false) => Some(DType::U64),
        (8, true) => Some(DType::I64),
        _ => None,
    };
    let odd = || format!("integers of {size} bytes that do not use all bits");
    Ok(match class {
        0 => {
            let whole = whole(cursor)?;
            integer(bits & 8 != 0).filter(|_| whole).map(|dtype| (dtype, big)).ok_or_else(odd)
        }
        1 => {
            let whole = whole(cursor)?;
            let exponent = (cursor.u8()?, cursor.u8()?);
            let mantissa = (cursor.u8()?, cursor.u8()?);
            let bias = cursor.u32()?;
            // Bit 6 with bit 0 is the byte order of a VAX. Bits 4 and 5 = 2: the mantissa's first bit is implied.
            let ieee = whole && bits & 0x40 == 0 && bits & 0x30 == 0x20 && mantissa.0 == 0;
            let dtype = match (size, exponent, mantissa.1, bias) {
                (2, (10, 5), 10, 15) => Some(DType::F16),
                (2, (7, 8), 7, 127) => Some(DType::Bf16),
                (4, (23, 8), 23, 127) => Some(DType::F32),
                (8, (52, 11), 52, 1023) => Some(DType::F64),
                _ => None,
            };
            dtype
                .filter(|_| ieee)
                .map(|dtype| (dtype, big))
                .ok_or_else(|| format!("floats of {size} bytes that are not a standard type"))
        }
        3 => Err("texts".into()),
        // Bit fields: unsigned integers, as in h5py.
        4 => {
            let whole = whole(cursor)?;
            integer(false).filter(|_| whole).map(|dtype| (dtype, big)).ok_or_else(odd)
        }
        5 => Err("opaque bytes".into()),
        6 => Err("records of several fields (a compound type)".into()),
        7 => Err("references".into()),
        8 if depth == 0 => {
            let base = number(cursor, 1)?;
            match &base {
                Ok((DType::I8 | DType::U8, big)) if is_bool(*cursor, bits & 0xffff, version) => Ok((DType::Bool, *big)),
                _ => base,
            }
        }
        9 => Err("texts or lists of variable length".into()),
        10 => Err("arrays".into()),
        11 => Err("complex numbers".into()),
        class => Err(format!("of class {class}")),
    })
}

/// Whether an enumeration is `{FALSE: 0, TRUE: 1}`, as h5py writes booleans. `cursor` is after the type of the members.
fn is_bool(mut cursor: Cursor<'_>, members: u64, version: u8) -> bool {
    let mut names = Vec::new();
    for _ in 0..members.min(3) {
        let mut name = Vec::new();
        loop {
            match cursor.u8() {
                Ok(0) => break,
                Ok(byte) if name.len() < 8 => name.push(byte),
                _ => return false,
            }
        }
        // Before version 3 names are padded to a multiple of 8 bytes, which includes the 0 at their end.
        if version < 3 && cursor.skip((name.len() + 1).next_multiple_of(8) - name.len() - 1).is_err() {
            return false;
        }
        names.push(name);
    }
    let Ok(values) = cursor.take(names.len()) else { return false };
    let mut members: Vec<(&[u8], u8)> = names.iter().map(Vec::as_slice).zip(values.iter().copied()).collect();
    members.sort_unstable();
    members == [(&b"FALSE"[..], 0), (b"TRUE", 1)]
}

/// The shape, and the maximal shape: `None` for an unlimited axis.
#[derive(Debug, PartialEq)]
pub(super) struct Space {
    pub(super) shape: Vec<u64>,
    pub(super) most: Vec<Option<u64>>,
}

/// Parses a shape; `None` for a dataset without elements (a null dataspace).
pub(super) fn space(body: &[u8], lengths: usize) -> Result<Option<Space>> {
    let mut cursor = Cursor::new(body, "the shape of a dataset");
    let version = cursor.version(1, 2)?;
    let axes = usize::from(cursor.u8()?);
    let flags = cursor.u8()?;
    if axes > MOST_AXES {
        return Err(cursor.error(&format!("{axes} axes")));
    }
    if version == 1 {
        cursor.skip(5)?;
    } else if cursor.u8()? == 2 {
        return Ok(None);
    }
    let shape = (0..axes).map(|_| cursor.uint(lengths)).collect::<Result<Vec<_>>>()?;
    let most = match flags & 1 {
        0 => shape.iter().copied().map(Some).collect(),
        _ => (0..axes).map(|_| cursor.address(lengths)).collect::<Result<Vec<_>>>()?,
    };
    if shape.iter().zip(&most).any(|(n, most)| most.is_some_and(|most| most < *n)) {
        return Err(cursor.error(&format!("{shape:?} exceeds the maximal shape {most:?}")));
    }
    Ok(Some(Space { shape, most }))
}

/// How the numbers are stored.
#[derive(Debug, PartialEq)]
pub(super) enum Layout {
    /// In one piece at an address; `None` if nothing was written.
    Piece { at: Option<u64>, len: u64 },
    Chunks {
        shape: Vec<u64>,
        index: Index,
        at: Option<u64>,
        /// Whether chunks that extend beyond the array's end are stored without filters.
        plain_edges: bool,
    },
    /// Numbers of other files or datasets.
    Virtual,
}

/// The kind of index of the chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Index {
    Tree1,
    /// One chunk; with its length and mask if it has filters.
    Single(Option<(u64, u32)>),
    /// All chunks one after another.
    Implicit,
    Fixed,
    Extensible,
    Tree2,
}

pub(super) fn layout(message: &Message, offsets: usize, lengths: usize) -> Result<Layout> {
    let mut cursor = Cursor::new(&message.body, "the layout of a dataset");
    let all = cursor.left();
    let version = cursor.version(1, 5)?;
    if version < 3 {
        let axes = usize::from(cursor.u8()?);
        let class = cursor.u8()?;
        cursor.skip(5)?;
        let at = if class == 0 { None } else { cursor.address(offsets)? };
        let shape = (0..axes).map(|_| cursor.u32().map(u64::from)).collect::<Result<Vec<_>>>()?;
        return match class {
            0 => {
                let len = cursor.u32()?.into();
                Ok(Layout::Piece { at: Some(message.at + (all - cursor.left()) as u64), len })
            }
            1 => {
                let len = shape.iter().try_fold(1u64, |len, n| len.checked_mul(*n));
                Ok(Layout::Piece { at, len: len.ok_or_else(|| cursor.error("a length beyond any file"))? })
            }
            2 => chunks(&cursor, shape, Index::Tree1, at, false),
            class => Err(cursor.error(&format!("class {class}"))),
        };
    }
    match cursor.u8()? {
        0 => {
            let len = cursor.u16()?.into();
            Ok(Layout::Piece { at: Some(message.at + (all - cursor.left()) as u64), len })
        }
        1 => Ok(Layout::Piece { at: cursor.address(offsets)?, len: cursor.uint(lengths)? }),
        2 if version == 3 => {
            let axes = usize::from(cursor.u8()?);
            let at = cursor.address(offsets)?;
            let shape = (0..axes).map(|_| cursor.u32().map(u64::from)).collect::<Result<Vec<_>>>()?;
            chunks(&cursor, shape, Index::Tree1, at, false)
        }
        2 => {
            let flags = cursor.u8()?;
            let axes = usize::from(cursor.u8()?);
            let size = usize::from(cursor.u8()?);
            let shape = (0..axes).map(|_| cursor.uint(size)).collect::<Result<Vec<_>>>()?;
            let index = match cursor.u8()? {
                1 if flags & 2 != 0 => Index::Single(Some((cursor.uint(lengths)?, cursor.u32()?))),
                1 => Index::Single(None),
                2 => Index::Implicit,
                3 => {
                    cursor.skip(1)?;
                    Index::Fixed
                }
                4 => {
                    cursor.skip(5)?;
                    Index::Extensible
                }
                5 => {
                    cursor.skip(6)?;
                    Index::Tree2
                }
                other => return Err(unsupported(format!("chunks found by an index of kind {other}"))),
            };
            let at = cursor.address(offsets)?;
            chunks(&cursor, shape, index, at, flags & 1 != 0)
        }
        3 => Ok(Layout::Virtual),
        class => Err(cursor.error(&format!("class {class}"))),
    }
}

/// The layout of chunks. The last axis in `shape` is the length of an element.
fn chunks(
    cursor: &Cursor<'_>,
    mut shape: Vec<u64>,
    index: Index,
    at: Option<u64>,
    plain_edges: bool,
) -> Result<Layout> {
    shape.pop();
    if shape.is_empty() || shape.len() > MOST_AXES || shape.contains(&0) {
        return Err(cursor.error(&format!("chunks of {shape:?}")));
    }
    Ok(Layout::Chunks { shape, index, at, plain_edges })
}

/// The fill value: one element in the file's byte order; empty for zeros.
pub(super) fn fill(body: &[u8], old: bool) -> Result<Vec<u8>> {
    let mut cursor = Cursor::new(body, "the fill value of a dataset");
    if !old {
        let version = cursor.version(1, 3)?;
        let there = if version == 3 {
            cursor.u8()? & 0x20 != 0
        } else {
            cursor.skip(2)?;
            let defined = cursor.u8()? != 0;
            version == 1 || defined
        };
        if !there || cursor.left() == 0 {
            return Ok(Vec::new());
        }
    }
    let len = cursor.u32()?;
    // A negative length means no fill value.
    if len == 0 || len > i32::MAX as u32 {
        return Ok(Vec::new());
    }
    Ok(cursor.take(len as usize)?.to_vec())
}

/// A filter that was applied to a chunk.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) id: u16,
    pub(super) name: String,
    pub(super) values: Vec<u32>,
}

/// Parses the filters, in the order in which they were applied.
pub(super) fn filters(body: &[u8]) -> Result<Vec<Step>> {
    let mut cursor = Cursor::new(body, "the filters of a dataset");
    let version = cursor.version(1, 2)?;
    let count = cursor.u8()?;
    // A chunk has 32 bits for the filters that were not applied.
    if count > 32 {
        return Err(cursor.error(&format!("{count} filters, at most 32 are possible")));
    }
    if version == 1 {
        cursor.skip(6)?;
    }
    let step = |_| {
        let id = cursor.u16()?;
        let named = if version == 1 || id >= 256 { usize::from(cursor.u16()?) } else { 0 };
        cursor.skip(2)?;
        let values = usize::from(cursor.u16()?);
        let name = cursor.take(if version == 1 { named.next_multiple_of(8) } else { named })?;
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        let name = String::from_utf8_lossy(name).into_owned();
        let all = cursor.take(values * 4)?;
        if version == 1 && values % 2 == 1 {
            cursor.skip(4)?;
        }
        let (all, _) = all.as_chunks::<4>();
        Ok(Step { id, name, values: all.iter().map(|value| u32::from_le_bytes(*value)).collect() })
    };
    (0..count).map(step).collect()
}
