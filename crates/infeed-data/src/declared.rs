//! Fields that get another kind than the one that their format found, because the user says so.
//!
//! ```text
//! "mask" ─ Said::parse ─▶ what the field was ─ way ─▶ what it becomes, and how each value of it does
//! ```
//!
//! This is done here, for all formats alike, so that a word has the same meaning for each of them.

use std::sync::Arc;

use bytes::Bytes;
use infeed_core::{
    error::{
        Error, ErrorKind, Result,
        setting::{COLUMNS, FIELD},
    },
    report::Stage,
    types::{DType, ImageInfo, similar::nearest},
};

use super::{
    record::{Dataset, Sample, Value},
    schema::{Field, FieldKind, Schema},
    wrapped::{Wrap, Wrapped},
};

/// The kinds that a user may give a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// Images of labels from 0 to 255, or of the type that opening found in their files.
    Mask,
    /// Images of labels from 0 to 65 535.
    Mask16,
    /// Images, whatever their name.
    Image,
    /// Class indices.
    Label,
    /// Bytes as they are, not decoded.
    Bytes,
    /// Text in UTF-8.
    Text,
    /// Numbers whose count differs from record to record.
    List,
    /// Numbers, as many in each record: in texts of JSON. `open()` itself does this, see `json_values`.
    Array,
    /// Names of image files, which are read in their place. `open()` itself does this, see `named_files`.
    Files,
}

const WORDS: [(&str, Said); 9] = [
    ("mask", Said::Mask),
    ("mask16", Said::Mask16),
    ("image", Said::Image),
    ("label", Said::Label),
    ("bytes", Said::Bytes),
    ("text", Said::Text),
    ("list", Said::List),
    ("array", Said::Array),
    ("files", Said::Files),
];

impl Said {
    /// The kind that a word stands for, for messages of the field `name`.
    pub fn parse(name: &str, said: &str) -> Result<Self> {
        let known = WORDS.iter().find(|(word, _)| *word == said);
        known.map(|(_, kind)| *kind).ok_or_else(|| {
            let all = WORDS.map(|(word, _)| word);
            let meant = nearest(said, all).map_or(String::new(), |near| format!("did you mean {near}? "));
            Error::config(format!("`{said}` is not a kind that the field `{name}` can have"))
                .with_hint(format!("{meant}use one of {}; only fields of volumes take names of files", all.join(", ")))
        })
    }

    pub(crate) fn word(self) -> &'static str {
        WORDS.iter().find(|(_, said)| *said == self).map_or("", |(word, _)| word)
    }
}

/// Sets the kinds of fields of `dataset`, if names and metadata do not show them: `declare(dataset, [("annotation",
/// "mask")])`. The same as [`Open::field`](super::Open::field), for a dataset that is open already. Nothing is read.
///
/// | word | the field has to hold | it becomes |
/// |---|---|---|
/// | `mask` | an image, or a list of images; bytes that are an image file; numbers `[H, W]` | a [mask](Field::mask) of values from 0 to 255; of the type of its labels if opening examines files of the field |
/// | `mask16` | the same | a mask of values from 0 to 65 535, whose rows are `f32` |
/// | `image` | the same; numbers `[H, W, C]` or `[C, H, W]` of `u8`, `u16` or `f32` | an image, whatever its name |
/// | `label` | integers, one in each record; bytes with such a number as text | a class index |
/// | `bytes` | images that are files; texts | the bytes as they are |
/// | `text` | bytes | text in UTF-8 |
/// | `files` | names of image files, in JSON lines or Parquet; only when a place is opened | the images |
/// | `list` | numbers `[N, …]`; in TFRecord and MDS, images or texts whose number differs | a list of items, see [`FieldKind::List`], [`FieldKind::Images`], [`FieldKind::Texts`] |
/// | `list`, `array` | texts of JSON, only when a place is opened | a list, or an array as long in all records, of the numbers that they hold |
///
/// When a place is opened, `json.boxes` is the value `boxes` in the texts of JSON of a field `json`, which becomes a
/// field of its own: a `list`, an `array` of as many numbers in all records, a `label`, or a `text`.
///
/// ```
/// use infeed::dataset::{Dataset, MemoryDataset, declare};
///
/// let files = vec![b"the bytes of a PNG".to_vec().into()];
/// let dataset = MemoryDataset::builder().encoded_images(files).named("gt").build()?;
/// let dataset = declare(std::sync::Arc::new(dataset), [("gt", "mask")])?;
/// assert!(dataset.schema().fields[0].mask);
/// # Ok::<(), infeed::Error>(())
/// ```
///
/// # Errors
/// `NotFound` for a field that is not there, `Config` for a word that is not in the table, `Unsupported` for a field
/// that can't become this kind.
pub fn declare<N: AsRef<str>, W: AsRef<str>>(
    dataset: Arc<dyn Dataset>,
    fields: impl IntoIterator<Item = (N, W)>,
) -> Result<Arc<dyn Dataset>> {
    let parse = |(name, word): (N, W)| {
        let said = Said::parse(name.as_ref(), word.as_ref())?;
        Ok((name.as_ref().to_owned(), said))
    };
    declared(dataset, &fields.into_iter().map(parse).collect::<Result<Vec<_>>>()?)
}

/// The same, with parsed words.
pub(crate) fn declared(dataset: Arc<dyn Dataset>, fields: &[(String, Said)]) -> Result<Arc<dyn Dataset>> {
    if fields.is_empty() {
        return Ok(dataset);
    }
    let mut schema = dataset.schema().clone();
    let mut ways = vec![Conversion::Kept; schema.fields.len()];
    for (name, said) in fields {
        let Some(at) = schema.fields.iter().position(|field| field.name == *name) else {
            let names = || schema.fields.iter().map(|field| field.name.as_str());
            let meant = nearest(name, names()).map_or(String::new(), |near| format!("did you mean {near}? "));
            let all = names().collect::<Vec<_>>().join(", ");
            return Err(Error::new(ErrorKind::NotFound, format!("there is no field `{name}`, which {FIELD} names"))
                .with_hint(format!(
                    "{meant}there are {all}; a field that was left out is read if {COLUMNS} names it"
                )));
        };
        let field = &dataset.schema().fields[at];
        let Some((field, way)) = become_said(field, *said, dataset.largest_read()) else {
            let what =
                format!("the field `{name}` is {}, which can't be read as {}", in_words(&field.kind), said.word());
            return Err(Error::new(ErrorKind::Unsupported, what).with_hint(
                "images, bytes and texts can be masks, images, bytes or texts; numbers [H, W] masks or images; numbers \
                 [N, …] lists; one integer a label; texts of JSON lists or arrays; texts of JSON lines and Parquet files",
            ));
        };
        (schema.fields[at], ways[at]) = (field, way);
    }
    Ok(Arc::new(Wrapped::new(dataset, Declared { schema, ways })))
}

fn in_words(kind: &FieldKind) -> String {
    match kind {
        FieldKind::Array { dtype, shape } => format!("{dtype} {shape:?}"),
        kind => kind.name().to_owned(),
    }
}

/// How the values of a field are converted.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Conversion {
    Kept,
    /// Bytes become an image file.
    Encoded,
    /// An image file becomes bytes.
    Bytes,
    /// Numbers of this type become pixels.
    Pixels(DType, ImageInfo),
    /// A number of this type becomes a label.
    Number(DType),
    /// A text becomes a label.
    Text,
    /// Numbers become a list.
    List,
}

/// The field that results, and how its values are converted; `None` if it can't become this kind. A record of it has at
/// most `most` bytes.
fn become_said(field: &Field, said: Said, most: u64) -> Option<(Field, Conversion)> {
    let name = field.name.clone();
    let files = |mask: bool, channels, dtype| {
        let kind = FieldKind::Image { channels, size: None, dtype };
        if mask { Field::mask(name.clone(), kind) } else { Field::new(name.clone(), kind) }
    };
    let of_mask = if said == Said::Mask16 { DType::U16 } else { DType::U8 };
    let is_mask = matches!(said, Said::Mask | Said::Mask16);
    Some(match (&field.kind, said) {
        (FieldKind::Image { channels, size, dtype }, Said::Mask | Said::Mask16) => {
            // Headers of files, or the owner of the pixels, may have given the size and type.
            let unknown = size.is_none() && (dtype.is_none() || field.mask);
            let channels = if unknown { 1 } else { *channels };
            let dtype = dtype.filter(|known| *known != DType::U8).or(Some(of_mask));
            (Field::mask(name, FieldKind::Image { channels, size: *size, dtype }), Conversion::Kept)
        }
        (FieldKind::Images { most, usual, .. }, Said::Mask | Said::Mask16) => {
            let kind = FieldKind::Images { channels: 1, dtype: Some(of_mask), most: *most, usual: *usual };
            (Field::mask(name, kind), Conversion::Kept)
        }
        // A mask in files: its header was not read.
        (FieldKind::Image { channels: 1, size: None, dtype: Some(DType::U8) }, Said::Image) if field.mask => {
            (files(false, 3, None), Conversion::Kept)
        }
        (kind @ FieldKind::Image { .. }, Said::Image) => (Field::new(name, kind.clone()), Conversion::Kept),
        (FieldKind::Image { .. }, Said::Bytes) => {
            (Field::bytes(name, usize::try_from(most).unwrap_or(usize::MAX)), Conversion::Bytes)
        }
        (FieldKind::Bytes { .. } | FieldKind::Text { .. }, Said::Mask | Said::Mask16) => {
            (files(true, 1, Some(of_mask)), Conversion::Encoded)
        }
        (FieldKind::Bytes { .. } | FieldKind::Text { .. }, Said::Image) => (files(false, 3, None), Conversion::Encoded),
        (FieldKind::Images { .. }, Said::Image | Said::List)
        | (FieldKind::Texts { .. }, Said::Text | Said::List)
        | (FieldKind::Bytes { .. }, Said::Bytes)
        | (FieldKind::Text { .. }, Said::Text)
        | (FieldKind::List { .. }, Said::List)
        | (FieldKind::Array { .. }, Said::Array)
        | (FieldKind::Label, Said::Label) => (field.clone(), Conversion::Kept),
        (FieldKind::Bytes { most }, Said::Text) => (Field::text(name, *most), Conversion::Kept),
        (FieldKind::Text { most }, Said::Bytes) => (Field::bytes(name, *most), Conversion::Kept),
        (FieldKind::Bytes { .. } | FieldKind::Text { .. }, Said::Label) => {
            (Field::new(name, FieldKind::Label), Conversion::Text)
        }
        (FieldKind::Array { dtype, shape }, Said::List) => {
            let (most, item) = shape.split_first()?;
            (Field::new(name, FieldKind::List { dtype: *dtype, item: item.to_vec(), most: *most }), Conversion::List)
        }
        (FieldKind::Array { dtype, shape }, Said::Label) => {
            let one = shape.iter().all(|side| *side == 1) && integer(*dtype, &[0; 8]).is_some();
            (one.then(|| Field::new(name, FieldKind::Label))?, Conversion::Number(*dtype))
        }
        (FieldKind::Array { dtype, shape }, Said::Mask | Said::Mask16 | Said::Image) => {
            let pixels = match dtype {
                DType::U8 | DType::U16 | DType::F32 => *dtype,
                DType::Bool if is_mask => DType::U8,
                // Labels of any integer type, as long as the values fit.
                other if is_mask && integer(*other, &[0; 8]).is_some() => of_mask,
                _ => return None,
            };
            let info = info_of(shape, pixels)?;
            let size = Some((info.height, info.width));
            let kind = FieldKind::Image { channels: info.channels, size, dtype: Some(pixels) };
            (if is_mask { Field::mask(name, kind) } else { Field::new(name, kind) }, Conversion::Pixels(*dtype, info))
        }
        _ => return None,
    })
}

/// `[H, W]`, `[H, W, C]` or `[C, H, W]` of up to four channels.
fn info_of(shape: &[usize], dtype: DType) -> Option<ImageInfo> {
    let few = |channels: usize| (1..=4).contains(&channels);
    let (height, width, channels, planar) = match *shape {
        [height, width] => (height, width, 1, false),
        [height, width, channels] if few(channels) => (height, width, channels, false),
        [channels, height, width] if few(channels) => (height, width, channels, true),
        _ => return None,
    };
    let side = |side: usize| u32::try_from(side).ok().filter(|side| *side > 0);
    Some(ImageInfo { height: side(height)?, width: side(width)?, channels: channels as u8, dtype, planar })
}

/// The integer at the start of `bytes`, in the machine's order; `None` for a type that is not an integer.
pub(crate) fn integer(dtype: DType, bytes: &[u8]) -> Option<i128> {
    Some(match dtype {
        DType::U8 | DType::Bool => i128::from(*bytes.first()?),
        DType::I8 => i128::from(i8::from_ne_bytes(*bytes.first_chunk()?)),
        DType::U16 => i128::from(u16::from_ne_bytes(*bytes.first_chunk()?)),
        DType::I16 => i128::from(i16::from_ne_bytes(*bytes.first_chunk()?)),
        DType::U32 => i128::from(u32::from_ne_bytes(*bytes.first_chunk()?)),
        DType::I32 => i128::from(i32::from_ne_bytes(*bytes.first_chunk()?)),
        DType::U64 => i128::from(u64::from_ne_bytes(*bytes.first_chunk()?)),
        DType::I64 => i128::from(i64::from_ne_bytes(*bytes.first_chunk()?)),
        _ => return None,
    })
}

/// Converts labels of another integer type to the type of `info`.
fn narrow(data: &[u8], from: DType, info: ImageInfo) -> Result<Bytes> {
    let wide = info.dtype == DType::U16;
    let most = if wide { i128::from(u16::MAX) } else { i128::from(u8::MAX) };
    let mut out = Vec::with_capacity(data.len() / from.size() * info.dtype.size());
    for number in data.chunks_exact(from.size()) {
        let value = integer(from, number).unwrap_or(0);
        match u16::try_from(value) {
            Ok(value) if i128::from(value) <= most && wide => out.extend(value.to_ne_bytes()),
            Ok(value) if i128::from(value) <= most => out.push(value as u8),
            _ => {
                let hint = if wide { "masks hold values from 0 to 65535" } else { "use mask16 for values up to 65535" };
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!("a mask with the value {value}, outside of 0 to {most}"),
                )
                .with_hint(hint));
            }
        }
    }
    Ok(out.into())
}

impl Conversion {
    fn take(self, value: Value) -> Result<Value> {
        Ok(match (self, value) {
            (Self::Encoded, Value::Bytes(bytes)) => Value::Encoded(bytes),
            (Self::Bytes, Value::Encoded(bytes)) => Value::Bytes(bytes),
            (Self::List, Value::Array(numbers)) => Value::List(numbers),
            (Self::Bytes, _) => {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    "the image is stored as pixels, not as a file whose bytes could be read",
                )
                .with_hint("use image or mask"));
            }
            (Self::Pixels(from, info), Value::Array(data)) => {
                let as_they_are = from == info.dtype || (from, info.dtype) == (DType::Bool, DType::U8);
                let data = if as_they_are { data } else { narrow(&data, from, info)? };
                match data.len() as u64 == info.len_bytes() {
                    true => Value::Pixels { info, data },
                    false => return Err(Error::corrupt(format!("{} bytes of pixels of {info:?}", data.len()))),
                }
            }
            (Self::Number(dtype), Value::Array(data)) => {
                let number = integer(dtype, &data).and_then(|number| i64::try_from(number).ok());
                Value::Label(number.ok_or_else(|| Error::corrupt("a label that does not fit into 64 bits"))?)
            }
            (Self::Text, Value::Bytes(text)) => {
                let number = std::str::from_utf8(&text).ok().and_then(|text| text.trim().parse().ok());
                Value::Label(number.ok_or_else(|| {
                    let shown: String = String::from_utf8_lossy(&text).chars().take(24).collect();
                    Error::corrupt(format!("`{}` is not an integer, as a label has to be", shown.escape_debug()))
                        .with_hint("read it as bytes")
                })?)
            }
            (_, value) => value,
        })
    }
}

/// See [`declare`].
#[derive(Debug)]
struct Declared {
    schema: Schema,
    /// One for each field.
    ways: Vec<Conversion>,
}

impl Wrap for Declared {
    fn schema<'a>(&'a self, _inner: &'a dyn Dataset) -> &'a Schema {
        &self.schema
    }

    fn sample(&self, inner: &dyn Dataset, record: u64, sample: Sample) -> Result<Sample> {
        let value = |((value, way), field): ((Value, &Conversion), &Field)| {
            let taken = way.take(value).and_then(|value| match (value, way) {
                (Value::Label(label), Conversion::Number(_) | Conversion::Text) if field.name == "label" => {
                    self.schema.label(label).map(Value::Label)
                }
                (value, _) => Ok(value),
            });
            taken.map_err(|e| {
                let place = format!("{}, field {}", inner.object(record), field.name);
                e.at_stage(Stage::Parse).at_object(place).at_record(record)
            })
        };
        let values = sample.values.into_iter().zip(&self.ways).zip(&self.schema.fields);
        Ok(Sample::new(values.map(value).collect::<Result<Vec<_>>>()?))
    }

    fn known(&self, field: &str, value: Value) -> Option<Value> {
        match self.schema.fields.iter().position(|of| of.name == field) {
            Some(at) => self.ways[at].take(value).ok(),
            None => Some(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;
    use crate::{MemoryDataset, dataset_contract, memory::MemoryBuilder, read_one::read};

    fn builder() -> MemoryBuilder {
        let integers: Vec<u8> = [3i32, 0, 7, 255].iter().flat_map(|n| n.to_ne_bytes()).collect();
        let lost: Vec<u8> = [3i64, -1, 7, 300].iter().flat_map(|n| n.to_ne_bytes()).collect();
        MemoryDataset::builder()
            .encoded_images(vec!["a file".into()])
            .named("gt")
            .array("ids", DType::I32, vec![2, 2], integers)
            .array("lost", DType::I64, vec![2, 2], lost)
            .array("here", DType::Bool, vec![2, 2], vec![0, 1, 1, 0])
            .array("one", DType::U16, vec![1], 7u16.to_ne_bytes().to_vec())
            .array("planes", DType::U8, vec![3, 5, 6], vec![9; 90])
            .array("weights", DType::F64, vec![2, 2], vec![0; 32])
            .bytes("text", vec![" 12\n".into()])
    }

    fn said(fields: &[(&str, &str)]) -> Result<Arc<dyn Dataset>> {
        declare(Arc::new(builder().build().unwrap()), fields.iter().copied())
    }

    fn one(name: &str, word: &str) -> (Field, Result<Value>) {
        let dataset = said(&[(name, word)]).unwrap();
        let at = dataset.schema().fields.iter().position(|field| field.name == name).unwrap();
        let value = read(&*dataset, 0).map(|sample| sample.values[at].clone());
        (dataset.schema().fields[at].clone(), value)
    }

    #[test]
    fn a_field_becomes_what_is_said_of_it() {
        let mask = |dtype| FieldKind::Image { channels: 1, size: None, dtype: Some(dtype) };
        let (field, value) = one("gt", "mask");
        assert_eq!(field, Field::mask("gt", mask(DType::U8)));
        assert!(matches!(value, Ok(Value::Encoded(file)) if file == "a file"));
        assert_eq!(one("gt", "mask16").0, Field::mask("gt", mask(DType::U16)));
        assert!(matches!(one("gt", "bytes"), (_, Ok(Value::Bytes(file))) if file == "a file"));
        assert!(matches!(one("text", "label"), (_, Ok(Value::Label(12)))));
        assert!(matches!(one("text", "image"), (field, Ok(Value::Encoded(_))) if !field.mask));
        assert!(matches!(one("one", "label"), (_, Ok(Value::Label(7)))));
        let (field, value) = one("ids", "mask");
        assert!(
            field.mask && field.kind == FieldKind::Image { channels: 1, size: Some((2, 2)), dtype: Some(DType::U8) }
        );
        assert!(matches!(value, Ok(Value::Pixels { data, .. }) if data[..] == [3, 0, 7, 255]));
        let (_, value) = one("ids", "mask16");
        let wide: Vec<u8> = [3u16, 0, 7, 255].iter().flat_map(|n| n.to_ne_bytes()).collect();
        assert!(matches!(value, Ok(Value::Pixels { data, .. }) if data[..] == wide));
        assert!(matches!(one("here", "mask"), (_, Ok(Value::Pixels { data, .. })) if data[..] == [0, 1, 1, 0]));
        let (field, value) = one("planes", "image");
        assert!(matches!(field.kind, FieldKind::Image { channels: 3, size: Some((5, 6)), .. }) && !field.mask);
        assert!(matches!(value, Ok(Value::Pixels { info, .. }) if info.planar));
        // Said the other way of what is one by its name.
        let named = MemoryDataset::builder().encoded_images(vec!["x".into()]).named("mask").mask().build().unwrap();
        assert!(named.schema().fields[0].mask);
        let image = declare(Arc::new(named), [("mask", "image")]).unwrap();
        assert_eq!(image.schema().fields[0], Field { name: "mask".into(), ..Field::image() });
        block_on(dataset_contract(&*said(&[("gt", "mask"), ("here", "mask"), ("text", "label")]).unwrap())).unwrap();
    }

    #[test]
    fn what_can_not_be_is_an_error_that_says_what_could() {
        let text = |fields: &[(&str, &str)]| said(fields).unwrap_err().to_string();
        let error = text(&[("gt", "masc")]);
        assert!(error.contains("`masc` is not a kind that the field `gt` can have"), "{error}");
        assert!(error.contains("did you mean mask? use one of mask, mask16, image, label, bytes"), "{error}");
        let error = text(&[("textt", "mask")]);
        assert!(
            error.contains("no field `textt`") && error.contains("did you mean text? there are gt, ids"),
            "{error}"
        );
        let error = text(&[("weights", "mask")]);
        assert!(error.contains("`weights` is f64 [2, 2], which can't be read as mask"), "{error}");
        assert!(text(&[("planes", "label")]).contains("`planes` is u8 [3, 5, 6]"));
        let error = one("lost", "mask").1.unwrap_err().to_string();
        assert!(
            error.contains("a mask with the value -1, outside of 0 to 255") && error.contains("field lost"),
            "{error}"
        );
    }
}
