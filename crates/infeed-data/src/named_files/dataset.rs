//! The dataset of a table and the images that it names.

use std::{collections::HashSet, num::NonZeroUsize, sync::Arc};

use bytes::Bytes;
use infeed_core::{
    error::{Error, ErrorKind, Result, setting::SKIP},
    fingerprint::Fingerprint,
    random::SampleRng,
    report::Stage,
    types::DType,
};
use infeed_store::{Object, Source};

use super::names::{FileNumbers, MISSING, NameField, column_of, texts_of};
use crate::{
    files::Files,
    format::OpenOptions,
    record::{Dataset, ReadPlan, Sample, SharedBytes, Value},
    schema::{FieldKind, Schema},
    sizes::Sizes,
    sniff::depth_of,
    volume::Narrow,
};

/// A table whose texts name images, with the images in their place.
#[derive(Debug)]
pub(super) struct NamedFiles {
    format: &'static str,
    table: Arc<dyn Dataset>,
    files: Files,
    numbers: FileNumbers,
    /// For each field of `numbers`, its index in the schema.
    columns: Vec<usize>,
    schema: Schema,
    /// Of the files of each record.
    sizes: Sizes,
    fingerprint: Fingerprint,
}

impl NamedFiles {
    /// The images that `numbers` counts are `images` in `source`.
    pub(super) async fn new(
        (format, table): (&'static str, Arc<dyn Dataset>),
        (source, images): (&Source, &[Object]),
        mut numbers: FileNumbers,
        names: &[NameField],
        options: &OpenOptions,
    ) -> Result<Self> {
        let used: Vec<&Object> = numbers.renumber(images.len()).into_iter().map(|file| &images[file]).collect();
        used.iter().try_for_each(|file| source.check_name(&file.name))?;
        let sizes = (0..table.len()).map(|record| {
            let sizes = numbers.of_record(record).filter_map(|file| used.get(file as usize)).map(|file| file.size);
            sizes.fold(0, u64::saturating_add)
        });
        let sizes = Sizes::of(sizes);
        let files = Files::of(source.clone(), &used);
        let mut schema = table.schema().clone();
        schema.upright |= format == "folder";
        let mut columns = Vec::with_capacity(names.len());
        for (at, NameField { name, becomes, .. }) in names.iter().enumerate() {
            let column = column_of(&schema, name)?;
            let labels = match options.is_mask(becomes) {
                true => Some(depth(&files, &numbers, at).await?),
                false => None,
            };
            let image = options.picture(becomes, labels);
            let counts = || numbers.of_field(at).map(|files| files.len() as u64);
            let is_one =
                !matches!(schema.fields[column].kind, FieldKind::Texts { .. }) && counts().all(|count| count == 1);
            let Sizes { largest, usual } = Sizes::of(counts());
            schema.fields[column] = if is_one { image } else { image.several(largest as usize, usual as usize) };
            columns.push(column);
        }
        let mut known = HashSet::new();
        if let Some(twice) = schema.fields.iter().find(|field| !known.insert(&*field.name)) {
            return Err(Error::config(format!("two fields are called `{}`", twice.name)).at_object(source.url()));
        }
        let print = Fingerprint::of("named files").part(table.fingerprint()).number(files.len() as u64);
        let print = files.fold(print, |print, name, size| print.text(name).number(size))?;
        // Which record has which file: a table may change without another size.
        let fingerprint = numbers.numbers().fold(print, |print, number| print.number(number.into())).finish();
        Ok(Self { format, table, files, numbers, columns, schema, sizes, fingerprint })
    }

    /// Splits the plan of a record into the plan of the table and the number of files.
    fn split(&self, record: u64, plan: &ReadPlan) -> Option<(ReadPlan, usize)> {
        let files = self.numbers.of_record(record).count();
        let own = plan.extents.len().checked_sub(files)?;
        Some((ReadPlan { extents: plan.extents[..own].into(), ..plan.clone() }, files))
    }

    fn has_all(&self, record: u64) -> bool {
        self.numbers.of_record(record).all(|file| file != MISSING)
    }

    /// The error of a record that names a file that is not there.
    fn missing(&self, record: u64, sample: &Sample) -> Error {
        let name = |(at, column): (usize, &usize)| {
            let n = self.numbers.of(record, at).iter().position(|file| *file == MISSING)?;
            let text = String::from_utf8_lossy(texts_of(sample.values.get(*column)?).get(n)?).into_owned();
            Some((text, &self.table.schema().fields[*column].name))
        };
        let what = match self.columns.iter().enumerate().find_map(name) {
            Some((text, field)) => format!("there is no file `{text}`, which `{field}` names"),
            None => "the table has changed since it was opened".to_owned(),
        };
        Error::corrupt(what).with_hint(format!("add the file, correct the name, or set {SKIP}"))
    }
}

/// The type of the labels in the first, the middle and the last file of a field of masks.
async fn depth(files: &Files, numbers: &FileNumbers, field: usize) -> Result<DType> {
    let there = || numbers.of_field(field).flatten().filter(|file| **file != MISSING);
    let count = there().count();
    let mut read = Vec::new();
    for at in [0, count / 2, count.saturating_sub(1)] {
        if let Some(file) = there().nth(at) {
            read.push(files.extent(*file as usize)?.read().await?);
        }
    }
    Ok(depth_of(read.iter().map(|file| &**file)))
}

#[deny(clippy::missing_trait_methods, reason = "a method that is not passed on changes the table in silence")]
impl Dataset for NamedFiles {
    fn len(&self) -> u64 {
        self.table.len()
    }

    fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn format(&self) -> &str {
        self.format
    }

    fn plan(&self, record: u64, rng: SampleRng) -> Result<ReadPlan> {
        let mut plan = self.table.plan(record, rng)?;
        if self.has_all(record) {
            for file in self.numbers.of_record(record) {
                plan.extents.push(self.files.extent(file as usize)?);
            }
        }
        Ok(plan)
    }

    fn parse(&self, record: u64, plan: &ReadPlan, bytes: &[Bytes]) -> Result<Sample> {
        if !self.has_all(record) {
            let sample = self.table.parse(record, plan, bytes)?;
            return Err(self
                .missing(record, &sample)
                .at_stage(Stage::Parse)
                .at_object(self.object(record))
                .at_record(record));
        }
        let short = || Error::new(ErrorKind::Internal, format!("{} buffers, but the plan has more", bytes.len()));
        let (own, files) = self.split(record, plan).ok_or_else(short)?;
        let (before, rest) = bytes.split_at_checked(own.extents.len()).ok_or_else(short)?;
        let (images, shared) = rest.split_at_checked(files).ok_or_else(short)?;
        let mut sample = match (before, shared) {
            (all, []) | ([], all) => self.table.parse(record, &own, all)?,
            (before, shared) => self.table.parse(record, &own, &[before, shared].concat())?,
        };
        let mut rest = images;
        for (at, column) in self.columns.iter().enumerate() {
            let (files, after) = rest.split_at(self.numbers.of(record, at).len());
            rest = after;
            let value = match (&self.schema.fields[*column].kind, files) {
                (FieldKind::Image { .. }, [one]) => Value::Encoded(one.clone()),
                _ => Value::Images(files.iter().cloned().map(Value::Encoded).collect()),
            };
            if let Some(text) = sample.values.get_mut(*column) {
                *text = value;
            }
        }
        Ok(sample)
    }

    fn read(&self, records: &[u64]) -> Vec<Result<Vec<Bytes>>> {
        self.table.read(records)
    }

    fn concurrent_reads(&self) -> Option<NonZeroUsize> {
        self.table.concurrent_reads()
    }

    fn decode_shared(&self, key: u64, bytes: &[Bytes]) -> Result<Bytes> {
        self.table.decode_shared(key, bytes)
    }

    fn shared_bytes(&self) -> SharedBytes {
        self.table.shared_bytes()
    }

    fn narrowed(&self, _to: &Arc<dyn Narrow>) -> Option<Arc<dyn Dataset>> {
        // Tables hold no volumes.
        None
    }

    fn image_size(&self, _record: u64) -> Option<[u32; 2]> {
        None
    }

    fn known(&self, record: u64, field: &str) -> Option<Value> {
        let is_named = self.columns.iter().any(|column| self.schema.fields[*column].name == field);
        if is_named { None } else { self.table.known(record, field) }
    }

    fn object(&self, record: u64) -> String {
        self.table.object(record)
    }

    fn object_of(&self, record: u64, field: &str) -> String {
        // An image of several is called `images[1]`.
        let numbered = field.strip_suffix(']').and_then(|field| field.rsplit_once('['));
        let (name, n) = numbered.and_then(|(name, n)| Some((name, n.parse().ok()?))).unwrap_or((field, 0));
        let at = self.columns.iter().position(|column| self.schema.fields[*column].name == name);
        match at.and_then(|at| self.numbers.of(record, at).get(n)) {
            Some(file) if *file != MISSING => self.files.display(*file as usize),
            _ => self.table.object_of(record, field),
        }
    }

    fn largest_read(&self) -> u64 {
        self.table.largest_read().saturating_add(self.sizes.largest)
    }

    fn usual_read(&self) -> u64 {
        self.table.usual_read().saturating_add(self.sizes.usual)
    }

    fn usual_varying(&self) -> Option<u64> {
        self.table.usual_varying()
    }

    fn needs_fetch(&self) -> bool {
        self.table.needs_fetch() || !self.files.source.reads_inline()
    }

    fn resident_bytes(&self) -> u64 {
        self.table.resident_bytes() + self.files.bytes() + self.numbers.bytes()
    }

    fn groups(&self) -> Option<Arc<[u64]>> {
        self.table.groups()
    }

    fn parts(&self) -> Option<Arc<[u64]>> {
        self.table.parts()
    }

    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}
