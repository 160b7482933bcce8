//! The layout of MDS: `index.json`, the offsets of a shard, the columns of a sample.

use std::{collections::BTreeMap, ops::Range};

use bytes::Bytes;
use infeed_core::{
    error::{
        Error, ErrorKind, Result,
        setting::{COLUMNS, SKIP},
    },
    types::{DType, ImageInfo},
};
use infeed_data::record::Value;
use serde::Deserialize;

/// The fields of `index.json` that are used here.
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
    /// Hexadecimal digits, by the names of hashes.
    #[serde(default)]
    pub(super) hashes: BTreeMap<String, String>,
}

pub(super) fn bad(what: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::corrupt(what).with_hint("the shard is truncated or damaged; fetch it again")
}

/// The kind of a column.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ColumnKind {
    Image,
    /// Size, mode and pixels, in Pillow's form.
    Pil,
    /// A list of images: an image, if each sample that was examined has one.
    List {
        /// Bytes before the number of images.
        head: usize,
        /// Whether images are in Pillow's form; otherwise they are files.
        pil: bool,
        /// Whether a sample may have another number of images than one.
        several: bool,
        /// The most images in a sample that was examined.
        most: usize,
    },
    /// Integers of this type.
    Label(DType),
    Bytes,
    Text,
    Numbers(DType, Vec<usize>),
    /// An array that contains its shape, and its type if there is none for the whole column. All samples have to have
    /// the type and shape of the first, except that the first axis of a list may have any length.
    Array {
        said: Option<DType>,
        first: Option<(DType, Vec<usize>)>,
        is_list: bool,
    },
    /// Numbers as text.
    TextLabel,
    TextInt,
    TextFloat,
}

/// A column of each sample.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Column {
    pub(super) name: String,
    /// Bytes, if they are the same in each sample.
    pub(super) size: Option<u32>,
    /// `None` for a column that is not read.
    pub(super) kind: Option<ColumnKind>,
    /// For a mask, the type that labels have in the first samples.
    pub(super) labels: Option<DType>,
}

/// Integer columns with these names are labels.
const LABELS: [&str; 5] = ["label", "class", "cls", "target", "y"];

fn dtype(name: &str) -> Option<DType> {
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
}

/// The kind of a column with this encoding; `None` if it is not read.
pub(super) fn kind_of(name: &str, encoding: &str) -> Option<ColumnKind> {
    let is_label = LABELS.contains(&name);
    // `jpeg:90` is the quality with which images were written.
    let (word, rest) = encoding.split_once(':').map_or((encoding, None), |(word, rest)| (word, Some(rest)));
    match word {
        "jpeg" | "png" => Some(ColumnKind::Image),
        "pil" => Some(ColumnKind::Pil),
        "jpeg_array" | "jpegarray" => Some(of_images(0, false)),
        "list[jpeg]" | "list[png]" => Some(of_images(4, false)),
        "list[pil]" => Some(of_images(4, true)),
        // Decimals have any precision, which no numeric type here holds.
        "str" | "json" | "str_decimal" => Some(ColumnKind::Text),
        "bytes" => Some(ColumnKind::Bytes),
        "str_int" if is_label => Some(ColumnKind::TextLabel),
        "str_int" => Some(ColumnKind::TextInt),
        "str_float" => Some(ColumnKind::TextFloat),
        "ndarray" => {
            match rest.map(|rest| rest.split_once(':').map_or((rest, None), |(of, shape)| (of, Some(shape)))) {
                None => Some(ColumnKind::Array { said: None, first: None, is_list: false }),
                Some((of, None)) => Some(ColumnKind::Array { said: Some(dtype(of)?), first: None, is_list: false }),
                Some((of, Some(shape))) => {
                    let shape: Option<Vec<usize>> =
                        shape.split(',').map(|n| n.parse().ok().filter(|n| *n > 0)).collect();
                    Some(ColumnKind::Numbers(dtype(of)?, shape?))
                }
            }
        }
        _ => match dtype(encoding)? {
            DType::F16 | DType::F32 | DType::F64 => Some(ColumnKind::Numbers(dtype(encoding)?, vec![])),
            integer if is_label => Some(ColumnKind::Label(integer)),
            integer => Some(ColumnKind::Numbers(integer, vec![])),
        },
    }
}

const fn of_images(head: usize, pil: bool) -> ColumnKind {
    ColumnKind::List { head, pil, several: false, most: 1 }
}

/// Whether a column that is not read may hold the images. If so, only labels and the like would remain.
pub(super) fn may_be_images(name: &str, encoding: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let of = |text: &str, words: &[&str]| words.iter().any(|word| text.contains(word));
    of(encoding, &["jpeg", "jpg", "png", "pil", "image", "webp", "tiff"])
        || of(&name, &["image", "img", "picture", "photo", "pixel", "jpg", "jpeg", "png"])
}

/// The images of a list: their number, the length of each, then the images one after another.
pub(super) fn parse_list(data: &Bytes, head: usize) -> Result<Vec<Bytes>> {
    let cut = || bad("a list of images is truncated");
    let word = |at: usize| data.get(at..)?.first_chunk::<4>().map(|word| u32::from_le_bytes(*word) as usize);
    let count = word(head).ok_or_else(cut)?;
    // Bounded by the number of bytes, whatever the count is.
    let mut at = count.checked_mul(4).and_then(|bytes| bytes.checked_add(head + 4)).ok_or_else(cut)?;
    if at > data.len() {
        return Err(cut());
    }
    let image = |i: usize| {
        let end = word(head + 4 + 4 * i).and_then(|length| at.checked_add(length)).filter(|end| *end <= data.len());
        let image = data.slice(at..end.ok_or_else(cut)?);
        at += image.len();
        Ok(image)
    };
    let images = (0..count).map(image).collect::<Result<Vec<_>>>()?;
    if at == data.len() { Ok(images) } else { Err(bad("a list of images has bytes after the last one")) }
}

/// Type and shape of an array that contains them, and the position of its numbers. First a byte for the type, unless it
/// is `said`; then a byte with the number of axes and the width of each length; then the lengths.
pub(super) fn parse_array(data: &[u8], said: Option<DType>) -> Result<(DType, Vec<usize>, usize)> {
    let cut = || bad("an array is truncated");
    let mut at = 0;
    let dtype = match said {
        Some(dtype) => dtype,
        None => {
            at = 1;
            match *data.first().ok_or_else(cut)? {
                8 => DType::U8,
                9 => DType::I8,
                16 => DType::U16,
                17 => DType::I16,
                18 => DType::F16,
                32 => DType::U32,
                33 => DType::I32,
                34 => DType::F32,
                64 => DType::U64,
                65 => DType::I64,
                66 => DType::F64,
                other => return Err(bad(format!("an array of the type {other}, which does not exist"))),
            }
        }
    };
    let byte = *data.get(at).ok_or_else(cut)?;
    let (axes, width) = (usize::from(byte >> 2), 1usize << (byte & 3));
    at += 1;
    let end = at + axes * width;
    let lengths = data.get(at..end).ok_or_else(cut)?.chunks_exact(width).map(|length| {
        let mut wide = [0; 8];
        wide[..width].copy_from_slice(length);
        usize::try_from(u64::from_le_bytes(wide)).map_err(|_| cut())
    });
    Ok((dtype, lengths.collect::<Result<Vec<_>>>()?, end))
}

/// Parses the text of a number.
pub(super) fn parse_text<T: std::str::FromStr>(data: &[u8], what: &str) -> Result<T> {
    let text = String::from_utf8_lossy(data);
    text.trim().parse().map_err(|_| {
        let shown: String = text.chars().take(24).collect();
        Error::corrupt(format!("`{}` is not a valid {what}", shown.escape_debug()))
    })
}

/// The integer of this type in a column of labels.
pub(super) fn parse_label(data: &[u8], dtype: DType) -> Result<i64> {
    let size = dtype.size();
    if data.len() != size || size > 8 {
        return Err(bad(format!("a label of {} bytes instead of {size}", data.len())));
    }
    let is_signed = matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64);
    let is_negative = is_signed && data.last().is_some_and(|byte| byte & 0x80 != 0);
    let mut wide = [if is_negative { 0xff } else { 0 }; 8];
    wide[..size].copy_from_slice(data);
    if is_signed {
        return Ok(i64::from_le_bytes(wide));
    }
    let label = u64::from_le_bytes(wide);
    i64::try_from(label).map_err(|_| {
        let what = format!("label {label} is above {}, the largest", i64::MAX);
        Error::new(ErrorKind::Unsupported, what)
            .with_hint(format!("write the column as int64, omit it with {COLUMNS}, or set {SKIP}"))
    })
}

/// Columns of labels get the name `label`; others keep theirs.
pub(super) fn field_name<'a>(name: &'a str, kind: Option<&ColumnKind>) -> &'a str {
    if matches!(kind, Some(ColumnKind::Label(_) | ColumnKind::TextLabel)) { "label" } else { name }
}

/// Pixels as `u32 width, u32 height, u32 length of the mode, mode, pixels`. Images with a palette are read only as
/// masks, by their indices, because the palette is not stored.
pub(super) fn parse_pil(data: &Bytes, is_mask: bool) -> Result<Value> {
    let cut = || bad("an image of the encoding `pil` is truncated");
    let (head, rest) = data.split_first_chunk::<12>().ok_or_else(cut)?;
    let [width, height, length] =
        [0, 4, 8].map(|at| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]));
    let mode = rest.get(..length as usize).ok_or_else(cut)?;
    let pixels = data.slice(12 + mode.len()..);
    let info = |channels, dtype| ImageInfo { height, width, channels, dtype, planar: false };
    let (info, pixels) = match mode {
        b"L" => (info(1, DType::U8), pixels),
        b"P" if is_mask => (info(1, DType::U8), pixels),
        b"RGB" => (info(3, DType::U8), pixels),
        // The fourth channel is alpha, or unused.
        b"RGBA" | b"RGBX" => (info(4, DType::U8), pixels),
        // Gray and alpha; alpha is dropped, as in all formats.
        b"LA" if pixels.len().is_multiple_of(2) => (info(1, DType::U8), pixels.iter().copied().step_by(2).collect()),
        b"1" => {
            let white = if is_mask { 1 } else { 255 };
            (info(1, DType::U8), bits(&pixels, width, height, white).ok_or_else(cut)?)
        }
        b"I;16" => (info(1, DType::U16), in_order(pixels, 2)),
        b"F" => (info(1, DType::F32), in_order(pixels, 4)),
        mode => {
            let shown: String = String::from_utf8_lossy(mode).chars().take(16).collect();
            let what = format!("an image of Pillow's mode `{}`", shown.escape_debug());
            return Err(Error::new(ErrorKind::Unsupported, what)
                .with_hint("convert images to RGB, RGBA, L, I;16 or F; the encoding does not store palettes"));
        }
    };
    // The numbers of a header are not multiplied directly, because the product may overflow.
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

/// A byte of 0 or `white` for each bit; each row begins at a byte.
fn bits(packed: &[u8], width: u32, height: u32, white: u8) -> Option<Bytes> {
    let row = (width as usize).div_ceil(8);
    if row == 0 || row.checked_mul(height as usize)? != packed.len() {
        return None;
    }
    let of_row = |row: &[u8]| -> Vec<u8> {
        (0..width as usize).map(|x| if row[x / 8] >> (7 - x % 8) & 1 == 1 { white } else { 0 }).collect()
    };
    Some(packed.chunks(row).flat_map(of_row).collect())
}

/// Converts little-endian numbers to the machine's order.
fn in_order(bytes: Bytes, size: usize) -> Bytes {
    if cfg!(target_endian = "little") {
        return bytes;
    }
    let mut own = bytes.to_vec();
    own.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    own.into()
}

/// The offsets of the samples of a shard of `size` bytes, from its first bytes: `u32 samples`, then that many offsets
/// plus one.
pub(super) fn parse_offsets(bytes: &[u8], samples: u32, size: u64) -> Result<Vec<u32>> {
    let (words, rest) = bytes.as_chunks::<4>();
    let mut words = words.iter().map(|word| u32::from_le_bytes(*word));
    let found = words.next().ok_or_else(|| bad("the shard is truncated in its first bytes"))?;
    if found != samples {
        return Err(bad(format!("the shard has {found} samples, but {samples} by index.json")));
    }
    let offsets: Vec<u32> = words.collect();
    if !rest.is_empty() || offsets.len() as u64 != u64::from(samples) + 1 {
        return Err(bad("the shard is truncated in its offsets"));
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

/// The range of each column in a sample.
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
