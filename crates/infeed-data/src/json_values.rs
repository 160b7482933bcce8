//! Values inside texts of JSON, as fields of their own: `json.boxes` of the text `json`.
//!
//! ```text
//! ("json.boxes", list) ─ the text `json`, the keys ["boxes"] ─ the first records ─ json_kinds ─▶ type of its numbers
//!   parse ─▶ text ─▶ value at the keys ─▶ its numbers, beside the text
//! ```
//!
//! A whole text can be such a value, too: `[1, 2]` in `tokens.json`. Its field then replaces the text.

use std::{
    collections::{HashMap, HashSet},
    iter,
    sync::Arc,
};

use infeed_core::{
    error::{Error, ErrorKind, Result, setting::SKIP},
    report::Stage,
};
use serde_json::value::RawValue;

use super::{
    declared::Said,
    json_kinds::{KeyKind, Number, kind_of, shown},
    look::look,
    record::{Dataset, Sample, Value},
    schema::{Field, FieldKind, Schema},
    wrapped::{Wrap, Wrapped},
};

/// Records at the beginning that show of which type the numbers are. Other fields of them are read too.
const FIRST: u64 = 64;

/// A value in the texts of a field.
#[derive(Debug)]
struct JsonValue {
    /// The field of the texts.
    text: usize,
    /// From the outermost; none: the whole text.
    keys: Vec<String>,
    kind: KeyKind,
    /// Bytes of each record's numbers, if these are an array.
    array: Option<usize>,
}

/// See [`with_json`].
#[derive(Debug)]
struct WithJson {
    schema: Schema,
    /// Those that replace their text, by its field.
    whole: Vec<Option<JsonValue>>,
    /// Those of fields that come after the dataset's own.
    added: Vec<JsonValue>,
}

/// The dataset with a field for each value inside of JSON that `said` names, and with lists and arrays in place of the
/// texts that it declares so. These are taken out of `said`.
///
/// # Errors
/// `Unsupported` if the values of the first records are of another kind, or if these have none; those of reading the
/// first records.
pub(crate) async fn with_json(dataset: Arc<dyn Dataset>, said: &mut Vec<(String, Said)>) -> Result<Arc<dyn Dataset>> {
    let mut found = Vec::new();
    said.retain(|(name, said)| match place_of(dataset.schema(), name, *said) {
        Some((text, keys)) => {
            found.push((name.clone(), *said, text, keys));
            false
        }
        None => true,
    });
    if found.is_empty() {
        return Ok(dataset);
    }
    let records: Vec<u64> = (0..dataset.len().min(FIRST)).collect();
    let mut seen: Vec<Vec<Option<Box<RawValue>>>> = found.iter().map(|_| Vec::new()).collect();
    look(&*dataset, &records, |record, sample| {
        for (seen, (name, _, text, keys)) in seen.iter_mut().zip(&found) {
            let value = text_of(sample, *text).and_then(|text| value_at(text, keys));
            let value = value.map_err(|e| named(e, &*dataset, record, name).at_stage(Stage::Open))?;
            seen.push(value.map(ToOwned::to_owned));
        }
        Ok(())
    })
    .await?;
    let fields = &dataset.schema().fields;
    let mut with =
        WithJson { schema: dataset.schema().clone(), whole: fields.iter().map(|_| None).collect(), added: Vec::new() };
    for ((name, said, text, keys), seen) in found.into_iter().zip(&seen) {
        let most = match fields[text].kind {
            FieldKind::Text { most } | FieldKind::Bytes { most } => most,
            _ => 0,
        };
        let (kind, field) = become_said(&name, said, seen, most)?;
        let array = match &field.kind {
            FieldKind::Array { dtype, shape } => dtype.len_bytes(shape),
            _ => None,
        };
        let value = JsonValue { text, keys, kind, array };
        if value.keys.is_empty() {
            with.schema.fields[text] = field;
            with.whole[text] = Some(value);
        } else {
            with.schema.fields.push(field);
            with.added.push(value);
        }
    }
    Ok(Arc::new(Wrapped::new(dataset, with)))
}

/// The text field and the keys that a declared name stands for. A field of that name comes first, then the longest name
/// before a dot.
fn place_of(schema: &Schema, name: &str, said: Said) -> Option<(usize, Vec<String>)> {
    let text = |name: &str| {
        let is_text = |field: &Field| matches!(field.kind, FieldKind::Text { .. } | FieldKind::Bytes { .. });
        schema.fields.iter().position(|field| field.name == name && is_text(field))
    };
    if schema.fields.iter().any(|field| field.name == name) {
        return matches!(said, Said::List | Said::Array).then(|| text(name)).flatten().map(|at| (at, Vec::new()));
    }
    let dots = name.rmatch_indices('.').map(|(at, _)| name.split_at(at));
    let mut found = dots.filter_map(|(field, keys)| Some((text(field)?, &keys[1..])));
    found.next().map(|(at, keys)| (at, keys.split('.').map(str::to_owned).collect()))
}

/// What the values become, by those of the first records; a text has at most `most` bytes.
fn become_said(name: &str, said: Said, seen: &[Option<Box<RawValue>>], most: usize) -> Result<(KeyKind, Field)> {
    let kind = kind_of(seen.iter().map(|value| value.as_deref().map(RawValue::get)));
    let field = |kind: &KeyKind| {
        // A number of a list takes at least two bytes of JSON.
        let is_list = matches!(kind, KeyKind::List { .. });
        kind.field(name, if is_list { most / 2 + 1 } else { most })
    };
    let array = |dtype, shape| Field::new(name, FieldKind::Array { dtype, shape });
    let found = match (said, kind) {
        (Said::List, KeyKind::One(of)) => Some(KeyKind::List { of, item: None }),
        (Said::List, kind @ (KeyKind::List { .. } | KeyKind::Texts)) | (Said::Array, kind @ KeyKind::One(_)) => {
            Some(kind)
        }
        (Said::Array, KeyKind::List { of, item }) => {
            let lengths = seen.iter().map(|value| items(value.as_deref()?.get())).collect::<Option<HashSet<usize>>>();
            let length = lengths.filter(|lengths| lengths.len() == 1).and_then(|lengths| lengths.into_iter().next());
            if let Some(length) = length.filter(|length| *length > 0) {
                let shape = iter::once(length).chain(item).collect();
                return Ok((KeyKind::List { of, item }, array(of.dtype(), shape)));
            }
            None
        }
        (Said::Label, KeyKind::Label | KeyKind::One(Number::Integer)) => Some(KeyKind::Label),
        (Said::Text, KeyKind::Text) => Some(KeyKind::Text),
        (Said::Text, _) => Some(KeyKind::Json),
        _ => None,
    };
    let kind = found.ok_or_else(|| {
        let is_there = seen.iter().flatten().find(|value| value.get() != "null");
        let what = match is_there {
            Some(value) => {
                let lacking = if seen.iter().all(Option::is_some) { "" } else { ", and other records have no value" };
                let (shown, word) = (shown(value.get()), said.word());
                format!("`{name}` is `{shown}` in JSON, which can't be read as {word}{lacking}")
            }
            None => format!("none of the first {} records has a value `{name}` in its JSON", seen.len()),
        };
        Error::new(ErrorKind::Unsupported, what).with_hint(
            "lists of numbers, of equally long lists of numbers, or of texts can be lists; those that have the same \
             length in all records, and numbers, arrays; integers labels; any value text",
        )
    })?;
    let field = field(&kind);
    Ok((kind, field))
}

/// The number of items of a list; a value that is none is an array of one number.
fn items(json: &str) -> Option<usize> {
    if !json.starts_with('[') {
        return Some(1);
    }
    serde_json::from_str::<Vec<&RawValue>>(json).ok().map(|items| items.len())
}

fn text_of(sample: &Sample, field: usize) -> Result<&str> {
    let bytes = match sample.values.get(field) {
        Some(Value::Bytes(bytes)) => &bytes[..],
        _ => &[],
    };
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    std::str::from_utf8(bytes).map_err(|e| Error::corrupt("the text is not UTF-8").with_source(e))
}

/// The JSON at these keys; `None`: there is no such key, or it is null.
fn value_at<'a>(text: &'a str, keys: &[String]) -> Result<Option<&'a RawValue>> {
    let json = |e| Error::corrupt(format!("`{}` is not JSON", shown(text))).with_source(e);
    let mut value: &RawValue = serde_json::from_str(text).map_err(json)?;
    for key in keys {
        if value.get() == "null" {
            return Ok(None);
        }
        let object: HashMap<String, &RawValue> = serde_json::from_str(value.get()).map_err(|_| {
            Error::corrupt(format!("`{}` is not a JSON object, so it has no key `{key}`", shown(value.get())))
        })?;
        match object.get(key) {
            Some(found) => value = found,
            None => return Ok(None),
        }
    }
    Ok(Some(value).filter(|value| value.get() != "null"))
}

impl JsonValue {
    fn of(&self, sample: &Sample) -> Result<Value> {
        let value = value_at(text_of(sample, self.text)?, &self.keys)?;
        let json = value.map(RawValue::get);
        // If only some values are texts, these are texts nevertheless.
        let is_text = self.kind == KeyKind::Json && json.is_some_and(|json| json.starts_with('"'));
        let value = if is_text { &KeyKind::Text } else { &self.kind }.value(json)?;
        match (value, self.array) {
            (Value::List(numbers), Some(bytes)) if numbers.len() == bytes => Ok(Value::Array(numbers)),
            (Value::List(_), Some(_)) => {
                let hint = format!("declare it a list, or set {SKIP}");
                Err(Error::new(ErrorKind::Unsupported, "it has another length than in the first record")
                    .with_hint(hint))
            }
            (value, _) => Ok(value),
        }
    }
}

fn named(error: Error, dataset: &dyn Dataset, record: u64, field: &str) -> Error {
    error.at_object(format!("{}, field {field}", dataset.object(record))).at_record(record)
}

impl Wrap for WithJson {
    fn schema<'a>(&'a self, _inner: &'a dyn Dataset) -> &'a Schema {
        &self.schema
    }

    fn sample(&self, inner: &dyn Dataset, record: u64, sample: Sample) -> Result<Sample> {
        let value = |(at, value): (usize, &JsonValue)| {
            let name = &self.schema.fields[at].name;
            value.of(&sample).map_err(|e| named(e, inner, record, name).at_stage(Stage::Parse))
        };
        let own = self.whole.len();
        let added = self.added.iter().enumerate().map(|(at, of)| value((own + at, of))).collect::<Result<Vec<_>>>()?;
        let whole = self.whole.iter().enumerate().map(|(at, of)| of.as_ref().map(|of| value((at, of))).transpose());
        let whole = whole.collect::<Result<Vec<_>>>()?;
        let own = sample.values.into_iter().zip(whole).map(|(text, value)| value.unwrap_or(text));
        Ok(Sample::new(own.chain(added)))
    }

    fn known(&self, field: &str, value: Value) -> Option<Value> {
        // A text that a dataset has without reading was not converted.
        let is_whole =
            self.schema.fields.iter().zip(&self.whole).any(|(of, whole)| of.name == field && whole.is_some());
        (!is_whole).then_some(value)
    }

    fn usual_varying(&self, inner: &dyn Dataset) -> Option<u64> {
        // Numbers of one digit and a comma become eight bytes.
        let is_list = |value: &JsonValue| matches!(value.kind, KeyKind::List { .. });
        let any = self.whole.iter().flatten().chain(&self.added).any(is_list);
        Some(inner.usual_varying()?.saturating_mul(if any { 5 } else { 2 }))
    }
}
