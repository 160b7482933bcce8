//! Parquet files whose columns hold images, labels, numbers, texts and lists of numbers, as Hugging Face's `datasets` writes them.
//!
//! ```text
//! names ─ footer.rs ─▶ row groups × columns: where each chunk lies (read once, in opening)
//!   plan ─▶ a shared part for each column of the record's group ─ decode.rs ─▶ table of values ─ parse ─▶ the row's
//! ```
//!
//! The `parquet` crate reads the footer: schema, types, statistics of all versions. Pages are read here, for the
//! reasons in `decode.rs`.
//!
//! Three things that are easy to get wrong:
//!
//! - **A row group is read and decoded as a whole**, once for all its rows as long as memory holds it. An order that
//!   jumps between groups (a shuffle over more groups than memory holds) reads a group for each record.
//! - **Values are copied out of the parts**: a thread that waits for a part must not hold one, and images stay with a
//!   job.
//! - **Footers and pages may be wrong**: memory for a chunk was compared with the footer, and the footer with the
//!   memory.

mod chunk;
mod columns;
mod decode;
mod encodings;
mod footer;
#[cfg(test)]
mod tests;
mod thrift;
mod unpack;
mod wire;

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use futures::{FutureExt, StreamExt, TryStreamExt, future::BoxFuture, stream};
use infeed_core::{
    error::{
        Error, ErrorKind, Result,
        setting::{CLASSES, COLUMNS, SKIP},
    },
    fingerprint::Fingerprint,
    random::SampleRng,
    report::Stage,
    types::DType,
};
use infeed_data::{
    format::{Format, OpenOption, OpenOptions},
    names::{ends_with, is_table, of_split},
    objects::nothing_to_read,
    record::{Dataset, ReadPlan, Sample, SharedBytes, SharedRead, Value},
    schema::{Field, FieldKind, Schema, is_class},
    table::{ShardTable, Stored},
};
use infeed_store::{KeptParts, Object, Source};

use self::{
    chunk::{Chunk, Physical},
    columns::{Chosen, Column, ColumnKind},
    wire::damaged,
};

/// Footers that are read at a time.
const AT_A_TIME: usize = 16;

/// The Parquet format.
#[derive(Clone, Copy, Debug)]
pub struct Parquet;

fn is_parquet(name: &str) -> bool {
    ends_with(name, ".parquet")
}

impl Format for Parquet {
    fn name(&self) -> &'static str {
        "parquet"
    }

    fn recognises(&self, objects: &[Object]) -> bool {
        objects.iter().any(|o| is_parquet(&o.name))
    }

    fn reads(&self, name: &str) -> bool {
        !is_table(name)
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
            let chosen = choose(source, &objects, options)?;
            load(source, chosen, options).await.map(|dataset| Arc::new(dataset) as Arc<dyn Dataset>)
        }
        .boxed()
    }
}

/// The files to read, ordered by name.
fn choose(source: &Source, objects: &[Object], options: &OpenOptions) -> Result<Vec<Object>> {
    let named = objects.iter().any(|o| is_parquet(&o.name));
    let takes = |o: &&Object| is_parquet(&o.name) || !named && options.format.is_some();
    let files: Vec<&Object> = objects.iter().filter(takes).collect();
    if files.is_empty() {
        return Err(nothing_to_read(source, objects, "Parquet files"));
    }
    let files = of_split(source, files, options.split.as_deref(), "files", "-00000-of-00001.parquet")?;
    Ok(files.into_iter().cloned().collect())
}

/// A row group's place and meaning in its file.
#[derive(Debug)]
struct InFile {
    /// Its number in its file.
    number: u32,
    /// The index among the given classes of each class of the file, if that has another order.
    classes: Option<Arc<[i64]>>,
}

/// A row group; it is read as a whole.
type Group = Stored<InFile>;

async fn load(source: &Source, objects: Vec<Object>, options: &OpenOptions) -> Result<ParquetDataset> {
    let kept = KeptParts::of(source, options.manifests.as_deref());
    let named = |file: &Object, e: Error| e.at_stage(Stage::Open).at_object(source.display_name(&file.name));
    let (first, others) = objects.split_first().ok_or_else(|| nothing_to_read(source, &[], "Parquet files"))?;
    let footer = footer::read(&kept, first).await.map_err(|e| named(first, e))?;
    // The columns are chosen before any other footer is asked for: reads that nobody polls keep their places among the
    // requests, and those of the first pages could wait for ever.
    let mut chosen = Chosen::new(&kept, first, &footer, options).await.map_err(|e| named(first, e))?;
    let others: Vec<_> = others.iter().map(|file| footer::read(&kept, file).boxed()).collect();
    let mut footers = stream::once(async { Ok(footer) }.boxed()).chain(stream::iter(others).buffered(AT_A_TIME));
    let mut groups: Vec<Group> = Vec::new();
    let (mut chunks, mut more) = (Vec::new(), None);
    let mut print = Fingerprint::of("parquet").number(objects.len() as u64);
    for file in &objects {
        let at = |e: Error| named(file, e);
        let Some(footer) = footers.try_next().await.map_err(at)? else { break };
        let leaves = chosen.leaves_of(&footer).map_err(at)?;
        if options.columns.is_none() && more.is_none() {
            more = chosen.lacks(&footer).map(|column| (source.display_name(&file.name), column.to_owned()));
        }
        let classes = chosen.classes_of(&source.display_name(&file.name), &footer, options.classes.as_deref());
        let classes = classes.map_err(at)?;
        print = print.text(&file.name).number(file.size);
        for (in_file, group) in footer.groups.into_iter().enumerate().filter(|(_, group)| group.rows > 0) {
            for (column, leaf) in chosen.columns.iter().zip(&leaves) {
                let mut place = group.chunks[*leaf].clone().map_err(|why| {
                    let what = format!("column `{}` of row group {in_file} can't be read: {why}", column.name);
                    at(Error::new(ErrorKind::Unsupported, what))
                })?;
                if let (ColumnKind::List(_, Some(inner)), Some(lists)) = (column.kind, &mut place.0.lists) {
                    lists.inner = Some(inner);
                }
                chunks.push(place);
            }
            print = print.number(group.rows.into());
            let in_file = InFile { number: in_file as u32, classes: classes.clone() };
            groups.push(Stored::new(file, group.rows.into(), in_file));
        }
    }
    drop(footers);
    kept.keep();
    if let Some((file, column)) = more {
        tracing::warn!(file, column, "columns that the first file lacks are no fields, and are left out");
    }
    if groups.is_empty() {
        return Err(Error::new(ErrorKind::NotFound, "the files hold no rows")
            .at_stage(Stage::Open)
            .at_object(source.url()));
    }
    let groups = ShardTable::new(source, groups);
    Ok(ParquetDataset::new(chosen, groups, chunks, print.finish(), options))
}

/// See [`Parquet`].
#[derive(Debug)]
struct ParquetDataset {
    groups: ShardTable<InFile>,
    columns: Vec<Column>,
    /// For each group, the chunk and range of each column.
    chunks: Vec<(Chunk, Range<u64>)>,
    schema: Schema,
    shared: SharedBytes,
    largest: u64,
    /// The largest mean of a group of the bytes of a row's values of different lengths.
    varying: u64,
    fingerprint: Fingerprint,
}

impl ParquetDataset {
    fn new(
        chosen: Chosen,
        groups: ShardTable<InFile>,
        chunks: Vec<(Chunk, Range<u64>)>,
        fingerprint: Fingerprint,
        options: &OpenOptions,
    ) -> Self {
        let Chosen { columns, mut names, upright, .. } = chosen;
        let of_column = |at: usize| chunks.iter().skip(at).step_by(columns.len()).map(|(chunk, _)| chunk);
        let longest = |at: usize| of_column(at).map(|chunk| chunk.unpacked as usize).max().unwrap_or(0);
        let field = |(at, column): (usize, &Column)| {
            let kind = match column.kind {
                ColumnKind::Image => return options.picture(&column.name, column.labels),
                ColumnKind::Images => {
                    let most = of_column(at).map(|chunk| chunk.values as usize).max().unwrap_or(0);
                    // No footer has the longest list: twice the largest mean of a group.
                    let mean = |chunk: &Chunk| chunk.values.div_ceil(chunk.rows.max(1));
                    let usual = 2 * of_column(at).map(mean).max().unwrap_or(0) as usize;
                    return options.picture(&column.name, column.labels).several(most, usual.min(most));
                }
                ColumnKind::Texts => FieldKind::Texts { most: longest(at) },
                ColumnKind::Label | ColumnKind::TextLabel => FieldKind::Label,
                ColumnKind::Numbers(dtype) => FieldKind::Array { dtype, shape: Vec::new() },
                // A value is at most as long as the pages of its chunk.
                ColumnKind::Bytes => FieldKind::Bytes { most: longest(at) },
                ColumnKind::Text => FieldKind::Text { most: longest(at) },
                ColumnKind::List(dtype, inner) => {
                    let numbers = of_column(at).map(|chunk| chunk.values as usize).max().unwrap_or(0);
                    let most = numbers / inner.unwrap_or(1).max(1) as usize;
                    FieldKind::List { dtype, item: inner.map(|inner| inner as usize).into_iter().collect(), most }
                }
            };
            Field::new(column.name.clone(), kind)
        };
        let mut schema = Schema::new(columns.iter().enumerate().map(field).collect());
        let own = names.iter().position(|(name, _)| name == "label").map(|at| names.remove(at).1);
        schema = schema.with_classes(options.classes.clone().or(own));
        schema.names = names;
        schema.upright = upright;

        let mut shared = SharedBytes::default();
        let mut largest = 0;
        let mut varying = 0;
        for (group, chunks) in groups.shards().iter().zip(chunks.chunks(columns.len())) {
            let decoded: u64 = chunks.iter().map(|(chunk, _)| chunk.decoded()).sum();
            let encoded: u64 = chunks.iter().map(|(_, range)| range.end - range.start).sum();
            shared.encoded = shared.encoded.max(encoded);
            shared.one = shared.one.max(decoded + encoded);
            shared.all = shared.all.saturating_add(decoded);
            let unpacked: u64 = chunks.iter().map(|(chunk, _)| u64::from(chunk.unpacked)).sum();
            largest = largest.max(unpacked.div_ceil(group.count()));
            let of_lengths = chunks.iter().zip(&columns).filter(|(_, column)| column.kind.varies());
            let bytes: u64 = of_lengths.map(|((chunk, _), _)| chunk.values_bytes()).sum();
            varying = varying.max(bytes.div_ceil(group.count()));
        }
        Self { groups, columns, chunks, schema, shared, largest, varying, fingerprint }
    }

    /// The group of a record, and the index of the group's first chunk.
    fn find(&self, record: u64) -> Result<(&Group, usize)> {
        let (at, group) = self.groups.find_at(record)?;
        Ok((group, at * self.columns.len()))
    }

    /// Adds the column and row group to an error.
    fn at(&self, error: Error, key: usize) -> Error {
        let group = &self.groups.shards()[key / self.columns.len()];
        let file = self.groups.name_of(group);
        let (number, name) = (group.of.number, &self.columns[key % self.columns.len()].name);
        let range = &self.chunks[key].1;
        error.at_object(format!("{file}, row group {number}, column {name}")).at_range(range.clone())
    }

    /// The value of a row in the decoded chunk `at` of a group.
    fn value(&self, group: &Group, at: usize, row: usize, decoded: &Bytes) -> Result<Value> {
        let Column { kind, name, unsigned, .. } = &self.columns[at % self.columns.len()];
        let chunk = &self.chunks[at].0;
        let none = || {
            Error::corrupt(format!("row {row} of the group has no value"))
                .with_hint(format!("omit the column with {COLUMNS}, or set {SKIP}"))
        };
        // Copied, so that the part can be freed.
        let copy = |range: Range<usize>| Bytes::copy_from_slice(&decoded[range]);
        if let ColumnKind::List(dtype, _) = kind {
            let place = decode::bytes_of(decoded, row)?.ok_or_else(|| {
                Error::corrupt(format!(
                    "row {row} of the group has a list without a number, or with items of several lengths"
                ))
                .with_hint(format!("omit the column with {COLUMNS}, or set {SKIP}"))
            })?;
            let is_wide = *dtype == DType::I64 && chunk.physical == Physical::I32;
            return Ok(Value::List(if is_wide { widened(&decoded[place]) } else { copy(place) }));
        }
        if matches!(kind, ColumnKind::Images | ColumnKind::Texts) {
            let items = decode::items_of(decoded, row, chunk)?.ok_or_else(|| {
                Error::corrupt(format!("row {row} of the group has a list of which a value is missing"))
                    .with_hint(format!("omit the column with {COLUMNS}, or set {SKIP}"))
            })?;
            let items = items.map(|place| place.map(copy));
            return Ok(match kind {
                ColumnKind::Images => Value::Images(items.map(|item| item.map(Value::Encoded)).collect::<Result<_>>()?),
                _ => Value::Texts(items.collect::<Result<_>>()?),
            });
        }
        if chunk.physical == Physical::Bytes {
            let place = decode::bytes_of(decoded, row)?;
            return match kind {
                ColumnKind::Image => place.map(|place| Value::Encoded(copy(place))).ok_or_else(none),
                ColumnKind::TextLabel => {
                    let label = self.schema.label_of(&decoded[place.ok_or_else(none)?]).map_err(|e| {
                        e.with_hint(format!("add that of row {row} of the group to {CLASSES}, or set {SKIP}; without {CLASSES} labels are texts"))
                    });
                    label.map(Value::Label)
                }
                _ => Ok(Value::Bytes(place.map_or_else(Bytes::new, copy))),
            };
        }
        let bytes = &decoded[decode::number_of(decoded, row, chunk)?.ok_or_else(none)?];
        match kind {
            ColumnKind::Label => {}
            // The type that holds all values of `uint32`.
            ColumnKind::Numbers(DType::I64) if bytes.len() == 4 => {
                let wide = whole(bytes, *unsigned, row)?;
                return Ok(Value::Array(Bytes::copy_from_slice(&wide.to_ne_bytes())));
            }
            _ => return Ok(Value::Array(Bytes::copy_from_slice(bytes))),
        }
        let label = whole(bytes, *unsigned, row)?;
        let classes = self.schema.classes.as_ref().filter(|_| name == "label");
        let found = match (&group.of.classes, classes) {
            (Some(places), Some(_)) if label != -1 => {
                usize::try_from(label).ok().and_then(|label| places.get(label)).copied()
            }
            (_, Some(classes)) => is_class(label, classes).then_some(label),
            (_, None) => Some(label),
        };
        match found {
            Some(label) => Ok(Value::Label(label)),
            None => Err(Error::corrupt(format!("label {label} of row {row} of the group is not among the classes"))
                .with_hint(format!("to read it without labels, use {}", COLUMNS.to_list(&["image"])))),
        }
    }
}

/// Numbers of `uint32` in the type that holds all of them.
fn widened(numbers: &[u8]) -> Bytes {
    let (numbers, _) = numbers.as_chunks();
    let wide = numbers.iter().flat_map(|number| i64::from(u32::from_ne_bytes(*number)).to_ne_bytes());
    wide.collect::<Vec<u8>>().into()
}

/// The integer in these bytes.
fn whole(bytes: &[u8], unsigned: bool, row: usize) -> Result<i64> {
    if let Ok(bytes) = <[u8; 4]>::try_from(bytes) {
        return Ok(if unsigned { u32::from_ne_bytes(bytes).into() } else { i32::from_ne_bytes(bytes).into() });
    }
    let bytes = <[u8; 8]>::try_from(bytes).map_err(|_| damaged("an integer of an unknown size"))?;
    if !unsigned {
        return Ok(i64::from_ne_bytes(bytes));
    }
    let value = u64::from_ne_bytes(bytes);
    i64::try_from(value).map_err(|_| {
        let what = format!("label {value} of row {row} of the group is above {}, the largest", i64::MAX);
        Error::new(ErrorKind::Unsupported, what)
            .with_hint(format!("write the column as int64, or omit it with {COLUMNS}"))
    })
}

impl Dataset for ParquetDataset {
    fn len(&self) -> u64 {
        self.groups.len()
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn format(&self) -> &str {
        "parquet"
    }

    fn plan(&self, record: u64, _rng: SampleRng) -> Result<ReadPlan> {
        let (group, first) = self.find(record)?;
        let part = |(at, (chunk, range)): (usize, &(Chunk, Range<u64>))| {
            SharedRead::new((first + at) as u64, [self.groups.extent(group, range.clone())], chunk.decoded())
        };
        let shared = self.chunks[first..first + self.columns.len()].iter().enumerate().map(part).collect();
        Ok(ReadPlan::of_shared(shared))
    }

    fn parse(&self, record: u64, _plan: &ReadPlan, bytes: &[Bytes]) -> Result<Sample> {
        let (group, first) = self.find(record)?;
        let row = (record - group.records.start) as usize;
        let value = |column: usize| {
            let decoded = bytes.get(column).ok_or_else(|| damaged("the decoded column is not there"));
            let value = decoded.and_then(|decoded| self.value(group, first + column, row, decoded));
            value.map_err(|e| self.at(e.at_stage(Stage::Parse), first + column))
        };
        Ok(Sample::new((0..self.columns.len()).map(value).collect::<Result<Vec<_>>>()?))
    }

    fn decode_shared(&self, key: u64, bytes: &[Bytes]) -> Result<Bytes> {
        let place = usize::try_from(key).ok().and_then(|key| Some((key, self.chunks.get(key)?)));
        let Some((key, (chunk, range))) = place else {
            return Err(Error::new(ErrorKind::Internal, format!("the dataset has no column chunk {key}")));
        };
        let bytes = bytes.first().ok_or_else(|| damaged("the column chunk was not read"));
        let decoded = bytes.and_then(|bytes| decode::decode(chunk, bytes, range.start));
        decoded.map(Bytes::from).map_err(|e| self.at(e.at_stage(Stage::Decode), key))
    }

    fn shared_bytes(&self) -> SharedBytes {
        self.shared
    }

    fn object(&self, record: u64) -> String {
        self.groups.object(record, "parquet")
    }

    fn needs_fetch(&self) -> bool {
        self.groups.needs_fetch()
    }

    /// A record has no reads of its own, but its values are copied, and memory for them is counted like that of reads.
    /// No footer has the longest value, so this is the largest mean of a group.
    fn largest_read(&self) -> u64 {
        self.largest
    }

    /// No footer has the longest value: twice the largest mean of a group.
    fn usual_varying(&self) -> Option<u64> {
        Some(self.varying.saturating_mul(2))
    }

    fn resident_bytes(&self) -> u64 {
        let chunks = self.chunks.len() * size_of::<(Chunk, Range<u64>)>();
        (chunks + self.groups.shards().len() * (size_of::<Group>() + 8)) as u64
    }

    fn groups(&self) -> Option<Arc<[u64]>> {
        Some(self.groups.groups())
    }

    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}
