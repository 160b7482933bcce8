//! The kind of each key of JSON records, by the values in some of them.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use infeed_core::{
    error::{Error, ErrorKind, Result},
    types::DType,
};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::{
    names::is_image,
    record::Value,
    schema::{Field, FieldKind},
};

/// Keys whose integers are class indices.
const LABELS: [&str; 4] = ["label", "class", "cls", "target"];

/// The type of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Number {
    /// True and false.
    Bool,
    /// Integers of 64 bits.
    Integer,
    /// Integers of 64 bits without a sign, of which one is 2^63 or above.
    Unsigned,
    /// Of integers and fractions.
    Fraction,
}

/// What some numbers have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Numbers {
    of: Number,
    /// Whether one is an integer below 0.
    is_negative: bool,
    /// Whether one is an integer that 64 bits of a fraction do not hold.
    is_wide: bool,
}

/// What a key becomes.
#[derive(Clone, Debug, PartialEq)]
pub enum KeyKind {
    /// Texts.
    Text,
    /// Texts, and of any other value the JSON.
    Json,
    /// Class indices.
    Label,
    /// One number.
    One(Number),
    /// A list of numbers.
    List {
        /// Their type.
        of: Number,
        /// Items of so many numbers; `None`: of one.
        item: Option<usize>,
    },
    /// A list of texts.
    Texts,
}

/// What one value looks like.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Shape {
    Nothing,
    Text,
    One(Numbers),
    /// Without items.
    Empty,
    List(Numbers, Option<usize>),
    Texts,
    Other,
}

impl Number {
    /// Of the tensor.
    pub(crate) const fn dtype(self) -> DType {
        match self {
            Self::Bool => DType::Bool,
            Self::Integer => DType::I64,
            Self::Unsigned => DType::U64,
            Self::Fraction => DType::F64,
        }
    }
}

impl Numbers {
    /// Of one number in JSON.
    fn of(json: &str) -> Option<Self> {
        let one = |of| Self { of, is_negative: false, is_wide: false };
        if ["true", "false"].contains(&json) {
            return Some(one(Number::Bool));
        }
        let value: serde_json::Number = serde_json::from_str(json).ok()?;
        if json.contains(['.', 'e', 'E']) {
            return Some(one(Number::Fraction));
        }
        let of = match (value.as_i64(), value.as_u64()) {
            (Some(_), _) => Number::Integer,
            (None, Some(_)) => Number::Unsigned,
            // It does not fit into 64 bits.
            (None, None) => return Some(Self { is_wide: true, ..one(Number::Fraction) }),
        };
        let exact = value.as_i128();
        let is_wide = exact.is_none_or(|exact| exact as f64 as i128 != exact);
        Some(Self { of, is_negative: json.starts_with('-'), is_wide })
    }

    /// What holds both; `None` for a boolean and a number.
    fn and(self, other: Self) -> Option<Self> {
        let is_bool = |numbers: Self| numbers.of == Number::Bool;
        let is_negative = self.is_negative || other.is_negative;
        let of = match self.of.max(other.of) {
            Number::Unsigned if is_negative => Number::Fraction,
            of => of,
        };
        let both = Self { of, is_negative, is_wide: self.is_wide || other.is_wide };
        (is_bool(self) == is_bool(other)).then_some(both)
    }

    /// Of all numbers in the JSON of a list, or of a list of lists.
    fn all(json: &str) -> Option<Self> {
        let is_between = |c: char| c.is_ascii_whitespace() || "[],".contains(c);
        let mut numbers = json.split(is_between).filter(|part| !["", "null"].contains(part)).map(Self::of);
        let first = numbers.next()??;
        numbers.try_fold(first, |all, number| all.and(number?))
    }

    /// Whether an integer changes when it becomes a fraction, as all these numbers do.
    fn is_rounded(self) -> bool {
        self.of == Number::Fraction && self.is_wide
    }
}

impl Shape {
    fn of(json: &str) -> Self {
        serde_json::from_str(json).map_or(Self::Other, |value| Self::of_value(&value, json))
    }

    /// The same of a key of records. A null in a list, or half of a surrogate pair in a text, makes its own record a
    /// bad sample, and changes nothing for the others.
    fn of_key(json: &str) -> Self {
        match serde_json::from_str(json) {
            Ok(serde_json::Value::Array(mut items)) => {
                items.retain(|item| !item.is_null());
                Self::of_value(&serde_json::Value::Array(items), json)
            }
            Ok(value) => Self::of_value(&value, json),
            Err(_) if json.starts_with('"') => Self::Text,
            Err(_) => Self::Other,
        }
    }

    fn of_value(value: &serde_json::Value, json: &str) -> Self {
        let are_numbers = |items: &[serde_json::Value]| items.iter().all(|item| item.is_number() || item.is_boolean());
        let list = |item| Numbers::all(json).map_or(Self::Other, |of| Self::List(of, item));
        match value {
            serde_json::Value::Null => Self::Nothing,
            serde_json::Value::String(_) => Self::Text,
            serde_json::Value::Array(items) if items.is_empty() => Self::Empty,
            serde_json::Value::Array(items) if items.iter().all(serde_json::Value::is_string) => Self::Texts,
            serde_json::Value::Array(items) if are_numbers(items) => list(None),
            serde_json::Value::Array(items) => {
                let inner: Option<Vec<&Vec<serde_json::Value>>> = items.iter().map(|item| item.as_array()).collect();
                match inner.as_deref() {
                    Some([first, others @ ..])
                        if !first.is_empty()
                            && are_numbers(first)
                            && others.iter().all(|item| item.len() == first.len() && are_numbers(item)) =>
                    {
                        list(Some(first.len()))
                    }
                    _ => Self::Other,
                }
            }
            _ => Numbers::of(json.trim_ascii()).map_or(Self::Other, Self::One),
        }
    }

    /// What holds both.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Nothing, shape) | (shape, Self::Nothing) => shape,
            (Self::Empty, list @ (Self::List(..) | Self::Texts))
            | (list @ (Self::List(..) | Self::Texts), Self::Empty) => list,
            (Self::One(a), Self::One(b)) => a.and(b).map_or(Self::Other, Self::One),
            (Self::List(a, x), Self::List(b, y)) if x == y => a.and(b).map_or(Self::Other, |of| Self::List(of, x)),
            (a, b) if a == b => a,
            _ => Self::Other,
        }
    }

    /// What such values become, which may be in every record.
    const fn kind(self, is_everywhere: bool) -> KeyKind {
        match self {
            Self::Text => KeyKind::Text,
            Self::One(numbers) if is_everywhere => KeyKind::One(numbers.of),
            Self::One(numbers) => KeyKind::List { of: numbers.of, item: None },
            Self::List(numbers, item) => KeyKind::List { of: numbers.of, item },
            Self::Texts => KeyKind::Texts,
            Self::Nothing | Self::Empty | Self::Other => KeyKind::Json,
        }
    }
}

/// What the values of a key become. `None`: a record without the key.
pub(crate) fn kind_of<'a>(values: impl Iterator<Item = Option<&'a str>>) -> KeyKind {
    let shapes: Vec<Shape> = values.map(|value| value.map_or(Shape::Nothing, Shape::of)).collect();
    let is_everywhere = !shapes.contains(&Shape::Nothing);
    shapes.into_iter().fold(Shape::Nothing, Shape::and).kind(is_everywhere)
}

/// The keys of some records with their kinds, in the order of their names. Numbers that some records lack are lists;
/// labels stay labels.
pub fn kinds(records: &[HashMap<String, &RawValue>]) -> Vec<(String, KeyKind)> {
    let mut found: HashMap<&str, (Shape, usize)> = HashMap::new();
    for (name, value) in records.iter().flatten() {
        let shape = Shape::of_key(value.get());
        let (all, there) = found.entry(name).or_insert((Shape::Nothing, 0));
        *all = all.and(shape);
        *there += usize::from(shape != Shape::Nothing);
    }
    let kind = |(name, (shape, there)): (&str, (Shape, usize))| {
        let kind = match shape.kind(there == records.len() || LABELS.contains(&name)) {
            KeyKind::One(Number::Integer | Number::Unsigned) if LABELS.contains(&name) => KeyKind::Label,
            kind => kind,
        };
        (name.to_owned(), kind)
    };
    let mut kinds: Vec<(String, KeyKind)> = found.into_iter().map(kind).collect();
    // Labels first, as in all formats.
    kinds.sort_by(|a, b| (a.1 != KeyKind::Label, &a.0).cmp(&(b.1 != KeyKind::Label, &b.0)));
    kinds
}

/// What may surprise the user of a key: which of the examined records shows it first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// Values of several kinds, so that any that is no text becomes its JSON.
    Mixed(usize),
    /// A record without a value of the key's kind, which is a bad sample; and why.
    Bad(usize, String),
    /// An integer that changes when it becomes a fraction of 64 bits.
    Rounded(usize),
    /// A record without the number that others have, so that the key is a list.
    Lacking(usize),
}

/// What may surprise the user of the key `name`, which has become `kind`.
pub fn doubt(records: &[HashMap<String, &RawValue>], name: &str, kind: &KeyKind) -> Option<Doubt> {
    let values = || records.iter().map(|record| record.get(name).map(|value| value.get()));
    let bad = values().enumerate().find_map(|(at, value)| Some((at, kind.value(value).err()?)));
    if let Some((at, error)) = bad {
        return Some(Doubt::Bad(at, error.what().to_owned()));
    }
    let mut all = Shape::Nothing;
    for (at, value) in values().enumerate() {
        let (before, one) = (all, value.map_or(Shape::Nothing, Shape::of_key));
        all = before.and(one);
        let is_known = |shape| !matches!(shape, Shape::Nothing | Shape::Empty);
        if all == Shape::Other && is_known(before) && is_known(one) && (before, one) != (all, all) {
            return Some(Doubt::Mixed(at));
        }
        if let Shape::One(numbers) | Shape::List(numbers, _) = all
            && numbers.is_rounded()
        {
            return Some(Doubt::Rounded(at));
        }
    }
    let is_list = matches!((all, kind), (Shape::One(_), KeyKind::List { .. }));
    let lacking = values().position(|value| value.is_none_or(|json| Shape::of_key(json) == Shape::Nothing));
    lacking.filter(|_| is_list).map(Doubt::Lacking)
}

/// The kind of a column of lists, by all of its cells in JSON; an empty cell has no value. `None`: the cells are no lists
/// of one kind.
pub(crate) fn kind_of_lists<'a>(cells: impl Iterator<Item = &'a str>) -> Option<KeyKind> {
    let shapes = cells.map(|cell| if cell.is_empty() { Shape::Nothing } else { Shape::of(cell) });
    match shapes.fold(Shape::Nothing, Shape::and) {
        Shape::List(numbers, item) => Some(KeyKind::List { of: numbers.of, item }),
        Shape::Texts => Some(KeyKind::Texts),
        _ => None,
    }
}

/// The keys of texts that look like names of image files in all these records.
pub fn like_files(records: &[HashMap<String, &RawValue>], kinds: &[(String, KeyKind)]) -> Vec<String> {
    let texts = |key: &str| -> Vec<String> {
        let values = records.iter().filter_map(|record| serde_json::from_str(record.get(key)?.get()).ok());
        let texts = values.flat_map(|value| match value {
            serde_json::Value::String(text) => vec![text],
            serde_json::Value::Array(all) => all.iter().filter_map(|one| Some(one.as_str()?.to_owned())).collect(),
            _ => Vec::new(),
        });
        texts.filter(|text| !text.is_empty()).collect()
    };
    let is_file = |text: &String| is_image(text) && !text.starts_with("http://") && !text.starts_with("https://");
    let are_texts = kinds.iter().filter(|(_, kind)| matches!(kind, KeyKind::Text | KeyKind::Texts));
    let names = are_texts.map(|(name, _)| (name, texts(name)));
    names.filter(|(_, texts)| !texts.is_empty() && texts.iter().all(is_file)).map(|(name, _)| name.clone()).collect()
}

impl KeyKind {
    /// The field; a record of it has at most `most` bytes.
    pub fn field(&self, name: &str, most: usize) -> Field {
        let kind = match self {
            Self::Text | Self::Json => FieldKind::Text { most },
            Self::Texts => FieldKind::Texts { most },
            Self::Label => FieldKind::Label,
            Self::One(of) => FieldKind::Array { dtype: of.dtype(), shape: Vec::new() },
            Self::List { of, item } => {
                FieldKind::List { dtype: of.dtype(), item: item.iter().copied().collect(), most }
            }
        };
        Field::new(name, kind)
    }

    /// The value of a record, from its JSON; `None`: the record has no such key.
    pub fn value(&self, json: Option<&str>) -> Result<Value> {
        let json = json.filter(|json| *json != "null");
        let Some(json) = json else {
            return match self {
                Self::Text | Self::Json => Ok(Value::Bytes(Bytes::new())),
                Self::List { .. } => Ok(Value::List(Bytes::new())),
                Self::Texts => Ok(Value::Texts(Arc::default())),
                Self::Label | Self::One(_) => Err(Error::corrupt("it has no value, and other records have one")),
            };
        };
        let other = |what: &'static str| {
            Error::new(ErrorKind::Unsupported, format!("`{}` is not {what}, as in other records", shown(json)))
        };
        Ok(match self {
            Self::Json => {
                let text = json.starts_with('"').then(|| serde_json::from_str::<String>(json).ok()).flatten();
                Value::Bytes(text.map_or_else(|| Bytes::copy_from_slice(json.as_bytes()), Bytes::from))
            }
            Self::Text => {
                let text: String = serde_json::from_str(json).map_err(|_| other("a text"))?;
                Value::Bytes(text.into())
            }
            Self::Texts => {
                let texts: Vec<String> = serde_json::from_str(json).map_err(|_| other("a list of texts"))?;
                Value::Texts(texts.into_iter().map(Bytes::from).collect())
            }
            Self::Label => Value::Label(serde_json::from_str(json).map_err(|_| other("an integer"))?),
            Self::One(of) => Value::Array(numbers(*of, json, Depth::One).ok_or_else(|| match of {
                Number::Bool => other("true or false"),
                Number::Integer => other("an integer"),
                Number::Unsigned => other("an integer from 0 on"),
                Number::Fraction => other("a number"),
            })?),
            Self::List { of, item } => {
                let depth = match item {
                    Some(length) => Depth::Lists(*length),
                    None if json.starts_with('[') => Depth::List,
                    // A key that some records lack has one number in the others.
                    None => Depth::One,
                };
                Value::List(numbers(*of, json, depth).ok_or_else(|| other("a list of numbers"))?)
            }
        })
    }
}

/// The beginning of a text, for messages.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(40).collect::<String>().escape_debug().to_string()
}

/// How numbers are nested.
#[derive(Clone, Copy)]
enum Depth {
    One,
    List,
    /// A list of lists of this length.
    Lists(usize),
}

/// The bytes of the numbers; `None` if they are of another type or nested otherwise.
fn numbers(of: Number, json: &str, depth: Depth) -> Option<Bytes> {
    fn parsed<T: DeserializeOwned>(json: &str, depth: Depth) -> Option<Vec<T>> {
        match depth {
            Depth::One => serde_json::from_str(json).ok().map(|one| vec![one]),
            Depth::List => serde_json::from_str(json).ok(),
            Depth::Lists(length) => {
                let lists: Vec<Vec<T>> = serde_json::from_str(json).ok()?;
                let is_even = lists.iter().all(|list| list.len() == length);
                is_even.then(|| lists.into_iter().flatten().collect())
            }
        }
    }
    let bytes: Vec<u8> = match of {
        Number::Bool => parsed::<bool>(json, depth)?.into_iter().map(u8::from).collect(),
        Number::Integer => parsed::<i64>(json, depth)?.iter().flat_map(|number| number.to_ne_bytes()).collect(),
        Number::Unsigned => parsed::<u64>(json, depth)?.iter().flat_map(|number| number.to_ne_bytes()).collect(),
        Number::Fraction => parsed::<f64>(json, depth)?.iter().flat_map(|number| number.to_ne_bytes()).collect(),
    };
    Some(bytes.into())
}
