//! How MDS lays things out: `index.json`, the offsets of a shard, the columns of a sample.

use std::{collections::BTreeMap, ops::Range};

use bytes::Bytes;
use infeed_core::{
    error::{Error, ErrorKind, Result},
    types::{DType, ImageInfo},
};
use infeed_data::record::Value;
use serde::Deserialize;

/// `index.json`, as far as it counts here.
#[derive(Debug, Deserialize)]
pub(super) struct Index {
    pub(super) shards: Vec<Listed>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Listed {
    #[serde(default)]
    pub(super) format: String,
    pub(super) column_names: Vec<String>,
    pub(super) column_encodings: Vec<String>,
    pub(super) column_sizes: Vec<Option<u32>>,
    pub(super) raw_data: File,
    pub(super) zip_data: Option<File>,
    pub(super) samples: u32,
    pub(super) compression: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct File {
    pub(super) basename: String,
    pub(super) bytes: u64,
    /// Hexadecimal digits by the names of hashes.
    #[serde(default)]
    pub(super) hashes: BTreeMap<String, String>,
}

pub(super) fn bad(what: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::corrupt(what).hint("the shard is cut or damaged; fetch it again")
}

/// What a column is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    Image,
    /// Size, mode and pixels, as Pillow has them.
    Pil,
    Label,
    Bytes,
    Numbers(DType, Vec<usize>),
}

/// A column of each sample.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Column {
    pub(super) name: String,
    /// Bytes, when they are the same in each sample.
    pub(super) size: Option<u32>,
    /// Nothing for what is not read.
    pub(super) kind: Option<Kind>,
}

/// What a column of this encoding is; nothing for what is not read here.
pub(super) fn kind_of(name: &str, encoding: &str) -> Option<Kind> {
    let dtype = |name: &str| {
        Some(match name {
            "uint8" => DType::U8,
            "uint16" => DType::U16,
            "uint32" => DType::U32,
            "uint64" => DType::U64,
            "int8" => DType::I8,
            "int16" => DType::I16,
            "int32" => DType::I32,
            "int" | "int64" => DType::I64,
            "float16" => DType::F16,
            "float32" => DType::F32,
            "float64" => DType::F64,
            _ => return None,
        })
    };
    match encoding {
        "jpeg" | "png" => Some(Kind::Image),
        "pil" => Some(Kind::Pil),
        "str" | "json" | "bytes" => Some(Kind::Bytes),
        "int" | "int64" if ["label", "class", "cls", "target", "y"].contains(&name) => Some(Kind::Label),
        _ => match encoding.strip_prefix("ndarray:") {
            Some(rest) => {
                let (name, shape) = rest.split_once(':')?;
                let shape: Option<Vec<usize>> = shape.split(',').map(|n| n.parse().ok().filter(|n| *n > 0)).collect();
                Some(Kind::Numbers(dtype(name)?, shape?))
            }
            None => Some(Kind::Numbers(dtype(encoding)?, vec![])),
        },
    }
}

/// Labels are called that, other columns as they are.
pub(super) fn field_name<'a>(name: &'a str, kind: Option<&Kind>) -> &'a str {
    if matches!(kind, Some(Kind::Label)) { "label" } else { name }
}

/// Pixels of `u32 width, u32 height, u32 length of the mode, mode, pixels`.
pub(super) fn parse_pil(data: &Bytes) -> Result<Value> {
    let cut = || bad("an image of the encoding `pil` is cut");
    let (head, rest) = data.split_first_chunk::<12>().ok_or_else(cut)?;
    let [width, height, length] =
        [0, 4, 8].map(|at| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]));
    let mode = rest.get(..length as usize).ok_or_else(cut)?;
    let pixels = data.slice(12 + mode.len()..);
    let info = |channels, dtype| ImageInfo { height, width, channels, dtype, planar: false };
    let (info, pixels) = match mode {
        b"L" => (info(1, DType::U8), pixels),
        b"RGB" => (info(3, DType::U8), pixels),
        // The fourth is alpha, or nothing.
        b"RGBA" | b"RGBX" => (info(4, DType::U8), pixels),
        // Gray and alpha, which is dropped as everywhere.
        b"LA" if pixels.len().is_multiple_of(2) => (info(1, DType::U8), pixels.iter().copied().step_by(2).collect()),
        b"1" => (info(1, DType::U8), bits(&pixels, width, height).ok_or_else(cut)?),
        b"I;16" => (info(1, DType::U16), in_order(pixels, 2)),
        b"F" => (info(1, DType::F32), in_order(pixels, 4)),
        mode => {
            let shown: String = String::from_utf8_lossy(mode).chars().take(16).collect();
            let what = format!("an image of Pillow's mode `{}`", shown.escape_debug());
            return Err(Error::new(ErrorKind::Unsupported, what)
                .hint("convert images to RGB, RGBA, L, I;16 or F; the encoding keeps no palette"));
        }
    };
    // No product of what a header says: it may be beyond all numbers.
    let want = [height as usize, width as usize, info.channels.into(), info.dtype.size()];
    let want = want.iter().try_fold(1usize, |all, n| all.checked_mul(*n)).filter(|bytes| *bytes > 0);
    match want == Some(pixels.len()) {
        true => Ok(Value::Pixels { info, data: pixels }),
        false => {
            let what = format!("{} bytes of pixels of {width} x {height}", pixels.len());
            Err(bad(what))
        }
    }
}

/// A byte of 0 or 255 for each bit; rows begin with a byte.
fn bits(packed: &[u8], width: u32, height: u32) -> Option<Bytes> {
    let row = (width as usize).div_ceil(8);
    if row == 0 || row.checked_mul(height as usize)? != packed.len() {
        return None;
    }
    let of_row = |row: &[u8]| -> Vec<u8> {
        (0..width as usize).map(|x| if row[x / 8] >> (7 - x % 8) & 1 == 1 { 255 } else { 0 }).collect()
    };
    Some(packed.chunks(row).flat_map(of_row).collect())
}

/// Little-endian numbers in the machine's order.
fn in_order(bytes: Bytes, size: usize) -> Bytes {
    if cfg!(target_endian = "little") {
        return bytes;
    }
    let mut own = bytes.to_vec();
    own.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    own.into()
}

/// Offsets of the samples of a shard of `size` bytes from its first bytes, `u32 samples` and so many offsets and one.
pub(super) fn parse_offsets(bytes: &[u8], samples: u32, size: u64) -> Result<Vec<u32>> {
    let (words, rest) = bytes.as_chunks::<4>();
    let mut words = words.iter().map(|word| u32::from_le_bytes(*word));
    let found = words.next().ok_or_else(|| bad("the shard is cut in its first bytes"))?;
    if found != samples {
        return Err(bad(format!("the shard holds {found} samples, index.json says {samples}")));
    }
    let offsets: Vec<u32> = words.collect();
    if !rest.is_empty() || offsets.len() as u64 != u64::from(samples) + 1 {
        return Err(bad("the shard is cut in its offsets"));
    }
    let least = bytes.len() as u64;
    let ascend = offsets.windows(2).all(|pair| pair[0] <= pair[1]);
    let within = offsets.first().is_some_and(|first| u64::from(*first) >= least)
        && offsets.last().is_some_and(|last| u64::from(*last) <= size);
    match ascend && within {
        true => Ok(offsets),
        false => Err(bad("the offsets of samples do not ascend within the shard")),
    }
}

/// Where each column lies in a sample.
pub(super) fn parse_sample(
    bytes: &[u8],
    sizes: impl Iterator<Item = Option<u32>> + Clone,
) -> Result<Vec<Range<usize>>> {
    let cut = || bad("a sample is shorter than its columns");
    let mut words = 0;
    let mut at = 4 * sizes.clone().filter(Option::is_none).count();
    let places = sizes.map(|size| {
        let size = match size {
            Some(size) => size,
            None => {
                let word = bytes.get(words..words + 4).and_then(|w| w.first_chunk()).ok_or_else(cut)?;
                words += 4;
                u32::from_le_bytes(*word)
            }
        };
        let place = at..at.checked_add(size as usize).ok_or_else(cut)?;
        at = place.end;
        (place.end <= bytes.len()).then_some(place).ok_or_else(cut)
    });
    let places = places.collect::<Result<Vec<_>>>()?;
    match at == bytes.len() {
        true => Ok(places),
        false => Err(bad(format!("a sample of {} bytes has columns of {at}", bytes.len()))),
    }
}
