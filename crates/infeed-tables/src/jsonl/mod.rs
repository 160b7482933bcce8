//! JSON lines: a JSON object in each line is a record, its keys are the fields. Also a JSON list of such objects.
//!
//! ```text
//! lines, lists ─ index.rs ─▶ positions (kept, see `places`)      some records ─ json_kinds ─▶ the kind of each key
//!   plan ─▶ the range of a line ─▶ parse ─ a value of its kind for each key
//! ```
//!
//! | values of a key, in the records that are examined | field |
//! |---|---|
//! | texts | text |
//! | integers in all; of a key `label`, `class`, `cls` or `target` | one number, i64 (u64 from 2^63 on); a label |
//! | integers and fractions in all; booleans in all | one number, f64; bool |
//! | lists of integers, of integers and fractions, of booleans | a list of i64, f64, bool |
//! | lists of such lists with one length | a list of items of that length |
//! | texts of the key `label`, if classes are given | a label: the index of the class of this name |
//! | lists of texts | texts |
//! | anything else: objects, values of several kinds | text: a text as it is, of any other value the JSON |
//!
//! A compressed file (gzip, zstd, bzip2; feature `packed`) is read and decompressed whole, see `records`.
//!
//! A text that is missing or null is empty, and so is a list. A record without a number is a bad sample, unless the
//! user declares the field a list. Any other value of another kind is an error of its record. Warnings of opening name the
//! fields that are not what each examined record has.

mod index;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use infeed_core::{
    error::{
        Error, ErrorKind, Result,
        setting::{ANNOTATIONS, COLUMNS, FIELD, FORMAT, SKIP},
    },
    fingerprint::Fingerprint,
    random::SampleRng,
    report::Stage,
};
use infeed_data::{
    format::{Format, OpenOption, OpenOptions},
    json_kinds::{Doubt, KeyKind, Number, doubt, kinds, like_files},
    named_files::LikeFiles,
    names::{self, ends_with, of_split},
    objects::nothing_to_read,
    record::{Dataset, ReadPlan, Sample, SharedBytes, Value},
    schema::Schema,
};
use infeed_store::{Object, Source};
use serde_json::value::RawValue;

use crate::{
    places::places,
    records::{RecordFile, Records},
};

/// The JSON lines format.
#[derive(Clone, Copy, Debug)]
pub struct JsonLines;

/// The name without the extension of a compressed file.
fn unpacked(name: &str) -> &str {
    let packed = [".gz", ".zst", ".bz2"].into_iter().find(|ending| ends_with(name, ending));
    &name[..name.len() - packed.map_or(0, str::len)]
}

fn is_lines(name: &str) -> bool {
    [".jsonl", ".ndjson"].iter().any(|ending| ends_with(unpacked(name), ending))
}

/// The object if it is a file of JSON and nothing is beside it. It should be a list of records.
fn lone_json(objects: &[Object]) -> Option<&Object> {
    let [object] = objects else { return None };
    let is_known = ["zarr.json", "index.json"].contains(&names::base(&object.name));
    (ends_with(&object.name, ".json") && !is_known).then_some(object)
}

/// An error if a file of JSON is not a list.
async fn is_list(source: &Source, object: &Object) -> Result<()> {
    let head = object.extent(source).with_range(0..object.size.min(4096)).read().await?;
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&head).trim_ascii_start();
    if head.starts_with(b"[") {
        return Ok(());
    }
    let hint = format!(
        "for COCO's JSON open the folder of the images and set {ANNOTATIONS}; if each line is a record, set {}",
        FORMAT.to("jsonl")
    );
    Err(Error::corrupt("the file is not a list of JSON objects")
        .at_object(source.display_name(&object.name))
        .with_hint(hint))
}

/// Files that may hold anything in JSON.
fn is_json(name: &str) -> bool {
    ends_with(unpacked(name), ".json")
}

/// Records at the beginning that are examined, and the most bytes of them.
const FIRST: usize = 256;
const FIRST_BYTES: u64 = 1 << 20;

impl Format for JsonLines {
    fn name(&self) -> &'static str {
        "jsonl"
    }

    fn recognises(&self, objects: &[Object]) -> bool {
        objects.iter().any(|object| is_lines(&object.name)) || lone_json(objects).is_some()
    }

    fn reads(&self, name: &str) -> bool {
        is_lines(name) || is_json(name) || names::is_image(name)
    }

    fn options(&self) -> &'static [OpenOption] {
        &[OpenOption::Split, OpenOption::Columns, OpenOption::Classes, OpenOption::ImageRoot]
    }

    fn open<'a>(
        &'a self,
        source: &'a Source,
        objects: Vec<Object>,
        options: &'a OpenOptions,
    ) -> BoxFuture<'a, Result<Arc<dyn Dataset>>> {
        async move {
            let named = |test: fn(&str) -> bool| objects.iter().filter(|object| test(&object.name)).collect::<Vec<_>>();
            let mut files = named(is_lines);
            if files.is_empty() && options.format.is_some() {
                files = named(is_json);
                files = if files.is_empty() { objects.iter().collect() } else { files };
            } else if let Some(object) = lone_json(&objects) {
                is_list(source, object).await?;
                files.push(object);
            }
            if files.is_empty() {
                return Err(nothing_to_read(source, &objects, "files of JSON lines"));
            }
            let files = of_split(source, files, options.split.as_deref(), "files", ".jsonl")?;
            let kept = source.manifest("json", options.manifests.as_deref());
            let index = |source, object| async move { index::index(&source, &object).await }.boxed();
            let mut files = places(source, &files, kept.as_ref(), index).await?;
            files.retain(|file| file.count() > 0);
            Ok(Arc::new(LinesDataset::new(source, files, options).await?) as Arc<dyn Dataset>)
        }
        .boxed()
    }
}

fn damaged(what: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::corrupt(what).with_hint(format!("correct the line, or set {SKIP}"))
}

/// The keys and values of a line, or of an item of a list with its comma or the list's brackets.
fn object(line: &[u8]) -> Result<HashMap<String, &RawValue>> {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line).trim_ascii();
    let line = line.strip_prefix(b"[").unwrap_or(line);
    let mut values = serde_json::Deserializer::from_slice(line).into_iter();
    let none = || damaged("the record is not a JSON object");
    let found = values.next().ok_or_else(none)?.map_err(|e| none().with_source(e))?;
    match line[values.byte_offset()..].iter().all(|byte| byte.is_ascii_whitespace() || b",]".contains(byte)) {
        true => Ok(found),
        false => Err(damaged("the line holds more than a JSON object")),
    }
}

/// Fields that are not what each examined record has, for a warning of each kind.
#[derive(Debug, Default, PartialEq)]
struct Doubts {
    mixed: Vec<String>,
    bad: Vec<String>,
    rounded: Vec<String>,
    lacking: Vec<String>,
}

/// What may surprise the user of these columns. `numbers` are those of the examined records; `is_said`: whether the
/// user declared a column.
fn doubts(
    records: &[HashMap<String, &RawValue>],
    numbers: &[u64],
    columns: &[(String, KeyKind)],
    is_said: impl Fn(&str) -> bool,
) -> Doubts {
    let mut found = Doubts::default();
    for (name, kind) in columns {
        let first = |at: usize| format!("{name} (record {})", numbers.get(at).copied().unwrap_or_default());
        match doubt(records, name, kind) {
            None => {}
            Some(Doubt::Mixed(at)) => found.mixed.push(first(at)),
            Some(Doubt::Bad(at, why)) => found.bad.push(format!("{}: {why}", first(at))),
            Some(Doubt::Rounded(at)) => found.rounded.push(first(at)),
            Some(Doubt::Lacking(at)) if !is_said(name) => found.lacking.push(first(at)),
            Some(Doubt::Lacking(_)) => {}
        }
    }
    found
}

fn warn(doubts: &Doubts) {
    let warn = |fields: &[String], what: &str| {
        if !fields.is_empty() {
            tracing::warn!(fields = fields.join(", "), "{what}");
        }
    };
    warn(&doubts.mixed, "values of several kinds: texts stay as they are, any other value becomes its JSON");
    let help = format!("declare the field a list with {FIELD}, or omit it with {COLUMNS}");
    warn(&doubts.bad, &format!("records that lack a value of a field's kind are bad samples; {help}"));
    warn(&doubts.lacking, "some records lack these numbers: the fields are lists, which are empty there");
    warn(
        &doubts.rounded,
        "integers are rounded to f64: among them are fractions, or integers that 64 bits do not hold",
    );
}

/// See [`JsonLines`].
#[derive(Debug)]
struct LinesDataset {
    records: Records,
    columns: Vec<(String, KeyKind)>,
    schema: Schema,
    fingerprint: Fingerprint,
}

impl LinesDataset {
    async fn new(source: &Source, files: Vec<RecordFile>, options: &OpenOptions) -> Result<Self> {
        let records = Records::new(source, files);
        if records.files.len() == 0 {
            return Err(Error::new(ErrorKind::NotFound, "the files hold no lines").at_object(source.url()));
        }
        let print = records.files.print("jsonl", |print, file| {
            print.text(names::base(&file.name)).number(file.size).number(file.records.end)
        });
        let fingerprint = print.finish();
        let schema = Schema::new(Vec::new()).with_classes(options.classes.clone());
        let mut dataset = Self { records, columns: Vec::new(), schema, fingerprint };
        let lines = dataset.records.examined((FIRST, FIRST_BYTES)).await;
        let lines = lines.into_iter().map(|(record, line)| Ok((record, line?))).collect::<Result<Vec<_>>>()?;
        let objects = lines.iter().map(|(record, line)| {
            let at = |e: Error| e.at_stage(Stage::Open).at_object(dataset.object(*record)).at_record(*record);
            object(line).map_err(at)
        });
        let objects = objects.collect::<Result<Vec<_>>>()?;
        let mut columns = kinds(&objects);
        options.findings.put(source.url(), LikeFiles(like_files(&objects, &columns)));
        if let Some(wanted) = &options.columns {
            if let Some(unknown) = wanted.iter().find(|name| columns.iter().all(|(known, _)| known != *name)) {
                let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
                return Err(Error::new(ErrorKind::NotFound, format!("no line has a key `{unknown}`"))
                    .at_object(source.url())
                    .with_hint(format!("there are {}", names.join(", "))));
            }
            columns.retain(|(name, _)| wanted.contains(name));
        }
        if columns.is_empty() {
            return Err(damaged("the lines have no keys").at_object(source.url()));
        }
        for (_, kind) in columns.iter_mut().filter(|(name, _)| options.is_list(name)) {
            let number = match kind {
                KeyKind::One(number) => *number,
                KeyKind::Label => Number::Integer,
                _ => continue,
            };
            *kind = KeyKind::List { of: number, item: None };
        }
        let numbers: Vec<u64> = lines.iter().map(|(record, _)| *record).collect();
        warn(&doubts(&objects, &numbers, &columns, |name| options.is_list(name)));
        let label = columns.iter().position(|(name, kind)| name == "label" && *kind == KeyKind::Text);
        if let Some(label) = label.filter(|_| options.classes.is_some()) {
            columns[label].1 = KeyKind::Label;
            columns[..=label].rotate_right(1);
        }
        let most = dataset.records.sizes.largest as usize;
        dataset.schema.fields = columns.iter().map(|(name, kind)| kind.field(name, most)).collect();
        dataset.columns = columns;
        Ok(dataset)
    }
}

impl Dataset for LinesDataset {
    fn len(&self) -> u64 {
        self.records.files.len()
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn format(&self) -> &str {
        "jsonl"
    }

    fn plan(&self, record: u64, _rng: SampleRng) -> Result<ReadPlan> {
        self.records.plan(record)
    }

    fn parse(&self, record: u64, _plan: &ReadPlan, bytes: &[Bytes]) -> Result<Sample> {
        let line = &self.records.cut_out(record, bytes)?;
        let at = |e: Error| {
            let range = self.records.extent(record).map_or(0..0, |extent| extent.range);
            e.at_stage(Stage::Parse).at_object(self.object(record)).at_range(range)
        };
        let found = object(line).map_err(at)?;
        let value = |(name, kind): &(String, KeyKind)| {
            let json = found.get(name).map(|value| value.get());
            let is_label = name == "label" && *kind == KeyKind::Label;
            let text = json.filter(|_| is_label).and_then(|json| serde_json::from_str::<String>(json).ok());
            let value = match text {
                Some(text) if self.schema.classes.is_some() => self.schema.label_of(text.as_bytes()).map(Value::Label),
                _ => match kind.value(json) {
                    Ok(Value::Label(label)) if is_label => self.schema.label(label).map(Value::Label),
                    other => other,
                },
            };
            value.map_err(|e| {
                let e = e.at_object(format!("{}, key {name}", self.object(record)));
                let list = match kind {
                    KeyKind::One(_) | KeyKind::Label if json.is_none_or(|json| json == "null") => {
                        format!("set {} to have an empty list here, ", FIELD.to_pair(name, "list"))
                    }
                    _ => String::new(),
                };
                at(e.with_hint(format!("{list}omit the field with {COLUMNS}, or set {SKIP}")))
            })
        };
        Ok(Sample::new(self.columns.iter().map(value).collect::<Result<Vec<_>>>()?))
    }

    fn decode_shared(&self, key: u64, bytes: &[Bytes]) -> Result<Bytes> {
        self.records.decode_shared(key, bytes)
    }

    fn shared_bytes(&self) -> SharedBytes {
        self.records.shared
    }

    fn object(&self, record: u64) -> String {
        self.records.files.object(record, "jsonl")
    }

    fn needs_fetch(&self) -> bool {
        self.records.files.needs_fetch()
    }

    fn largest_read(&self) -> u64 {
        self.records.sizes.largest
    }

    fn usual_read(&self) -> u64 {
        self.records.sizes.usual
    }

    fn usual_varying(&self) -> Option<u64> {
        // Numbers of one digit and a comma become eight bytes.
        let is_list = |(_, kind): &(String, KeyKind)| matches!(kind, KeyKind::List { .. });
        Some(self.records.sizes.usual.saturating_mul(if self.columns.iter().any(is_list) { 4 } else { 1 }))
    }

    fn resident_bytes(&self) -> u64 {
        self.records.resident_bytes()
    }

    fn groups(&self) -> Option<Arc<[u64]>> {
        Some(self.records.files.groups())
    }

    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}
