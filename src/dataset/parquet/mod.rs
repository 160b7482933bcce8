//! Parquet files whose columns hold images, labels and numbers, as Hugging Face's `datasets` writes them.
//!
//! ```text
//! names ─ footer.rs ─▶ row groups × columns: where each chunk lies (read once, in opening)
//!   plan ─▶ a shared part for each column of the record's group ─ decode.rs ─▶ table of values ─ parse ─▶ the row's
//! ```
//!
//! The `parquet` crate reads the footer: schema, types, statistics of all versions. Pages are read here; `decode.rs` says
//! why.
//!
//! Three things that are easy to get wrong:
//!
//! - **A row group is read and decoded as a whole**, once for all its rows as long as memory holds it: an order that jumps
//!   between groups (a shuffle over more groups than memory holds) reads a group for each record.
//! - **Values are copied out of the parts**: who waits for a part must hold none, and images stay with a job.
//! - **Footers and pages may lie**: what is set aside for a chunk was compared with the footer, and that with memory.

mod decode;
mod encodings;
mod footer;
mod thrift;
mod unpack;

use std::{collections::HashSet, ops::Range, sync::Arc};

use bytes::Bytes;
use futures::{FutureExt, StreamExt, TryStreamExt, future::BoxFuture, stream};

use self::{
    decode::{Chunk, Physical},
    footer::{Footer, Leaf},
};
use super::{
    Dataset, Field, FieldKind, Format, OpenOptions, ReadPlan, Sample, Schema, SharedBytes, SharedRead, Value,
    no_such_record, open::nothing_to_read, tar::split_of,
};
use crate::{
    error::{Error, ErrorKind, Result},
    fingerprint::Fingerprint,
    random::SampleRng,
    report::Stage,
    source::{Extent, Object, Source},
    types::DType,
};

/// Footers that are read at a time.
const AT_A_TIME: usize = 16;
/// The longest first page that is looked into for what a column holds.
const PROBE: u64 = 256 << 20;
/// Integers that are class indices, beside those that the file's metadata call so.
const LABELS: [&str; 2] = ["label", "cls"];

fn damaged(what: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::corrupt(what).hint("the file is cut or damaged; fetch it again or set on_bad_sample(Skip)")
}

/// The format.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parquet;

fn is_parquet(name: &str) -> bool {
    let start = name.len().checked_sub(8);
    start.and_then(|start| name.get(start..)).is_some_and(|end| end.eq_ignore_ascii_case(".parquet"))
}

impl Format for Parquet {
    fn name(&self) -> &'static str {
        "parquet"
    }

    fn recognises(&self, objects: &[Object]) -> bool {
        objects.iter().any(|o| is_parquet(&o.name))
    }

    fn open<'a>(
        &'a self,
        source: &'a Source,
        objects: Vec<Object>,
        options: &'a OpenOptions,
    ) -> BoxFuture<'a, Result<Arc<dyn Dataset>>> {
        async move {
            if options.labels.is_some() {
                return Err(Error::config("Parquet files hold their labels themselves").hint("leave out labels"));
            }
            let chosen = choose(source, &objects, options)?;
            load(source, chosen, options).await.map(|dataset| Arc::new(dataset) as Arc<dyn Dataset>)
        }
        .boxed()
    }
}

/// The files to read, in the order of names.
fn choose(source: &Source, objects: &[Object], options: &OpenOptions) -> Result<Vec<Object>> {
    let named = objects.iter().filter(|o| is_parquet(&o.name) || options.format.is_some());
    let mut files: Vec<Object> = named.cloned().collect();
    if files.is_empty() {
        return Err(nothing_to_read(source, objects, "Parquet files"));
    }
    if let Some(split) = &options.split {
        files.retain(|o| {
            split_of(&o.name).is_some_and(|of| of.eq_ignore_ascii_case(split))
                || o.name.split('/').any(|part| part == split)
        });
        if files.is_empty() {
            return Err(Error::new(ErrorKind::NotFound, format!("no files of the split `{split}`"))
                .at_object(source.url())
                .hint("they are called SPLIT-00000-of-00001.parquet, or lie in a folder SPLIT"));
        }
        return Ok(files);
    }
    let splits: std::collections::BTreeSet<&str> = files.iter().filter_map(|o| split_of(&o.name)).collect();
    if splits.len() > 1 {
        let names: Vec<_> = splits.into_iter().collect();
        return Err(Error::config(format!("files of several splits: {}", names.join(", ")))
            .at_object(source.url())
            .hint(format!("name one with split(\"{}\")", names[0])));
    }
    Ok(files)
}

/// What a column becomes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Image,
    Label,
    Numbers(DType),
    Bytes,
}

/// A column that may be read, and whether it is when none are named.
#[derive(Debug)]
struct Candidate {
    leaf: usize,
    name: String,
    usual: bool,
}

/// A column that is read.
#[derive(Clone, Debug)]
struct Column {
    leaf: usize,
    name: String,
    kind: Kind,
}

/// The columns of a file, as fields are called.
fn candidates(leaves: &[Leaf]) -> Vec<Candidate> {
    let beside = |leaf: &Leaf, other: &str| {
        leaves.iter().any(|l| l.path.len() == 2 && l.path[0] == leaf.path[0] && l.path[1] == other)
    };
    let candidate = |(at, leaf): (usize, &Leaf)| {
        // A picture or sound of `datasets`: `struct<bytes, path>`.
        let of_struct = leaf.path.len() == 2 && leaf.path[1] == "bytes" && beside(leaf, "path");
        let name = if of_struct { leaf.path[0].clone() } else { leaf.path.join(".") };
        Candidate { leaf: at, name, usual: (of_struct || leaf.path.len() == 1) && leaf.physical.is_ok() }
    };
    leaves.iter().enumerate().map(candidate).collect()
}

/// Where the chunks of a file's columns lie, as far as they are read.
#[derive(Debug)]
struct Group {
    /// Of the files.
    file: u32,
    /// Within its file.
    number: u32,
    /// Rows of this group and those before.
    end: u64,
    rows: u32,
}

#[derive(Debug)]
struct File {
    object: Object,
    name: Arc<str>,
}

async fn load(source: &Source, objects: Vec<Object>, options: &OpenOptions) -> Result<ParquetDataset> {
    let reads: Vec<_> = objects.iter().map(|object| read_footer(source, object).boxed()).collect();
    let mut footers = stream::iter(reads).buffered(AT_A_TIME);
    let mut chosen: Option<Chosen> = None;
    let (mut groups, mut chunks, mut end) = (Vec::new(), Vec::new(), 0);
    let mut number = 0;
    while let Some(footer) = footers.try_next().await? {
        let file: &Object = &objects[number];
        let at = |e: Error| e.at_stage(Stage::Open).at_object(source.display_name(&file.name));
        match &chosen {
            None => chosen = Some(Chosen::new(source, file, &footer, options).await.map_err(at)?),
            Some(chosen) => chosen.check(&footer).map_err(at)?,
        }
        let columns = chosen.as_ref().map_or(&[][..], |chosen| &chosen.columns);
        for (in_file, group) in footer.groups.into_iter().enumerate().filter(|(_, group)| group.rows > 0) {
            for column in columns {
                let place = group.chunks[column.leaf].clone().map_err(|why| {
                    let what = format!("column `{}` of row group {in_file} can't be read: {why}", column.name);
                    at(Error::new(ErrorKind::Unsupported, what))
                })?;
                chunks.push(place);
            }
            end += u64::from(group.rows);
            groups.push(Group { file: number as u32, number: in_file as u32, end, rows: group.rows });
        }
        number += 1;
    }
    drop(footers);
    let chosen = chosen.filter(|_| end > 0);
    let chosen = chosen.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, "the files hold no rows").at_stage(Stage::Open).at_object(source.url())
    })?;
    Ok(ParquetDataset::new(source, objects, chosen, groups, chunks, options))
}

async fn read_footer(source: &Source, object: &Object) -> Result<Footer> {
    let read = footer::read(source, object).await;
    read.map_err(|e| e.at_stage(Stage::Open).at_object(source.display_name(&object.name)))
}

/// What is read of each file, as the first one tells.
#[derive(Debug)]
struct Chosen {
    leaves: Vec<Leaf>,
    columns: Vec<Column>,
    /// Names of classes of fields.
    names: Vec<(String, Arc<[String]>)>,
}

impl Chosen {
    async fn new(source: &Source, file: &Object, footer: &Footer, options: &OpenOptions) -> Result<Self> {
        let all = candidates(&footer.leaves);
        let listed = || all.iter().map(|c| c.name.as_str()).collect::<Vec<_>>().join(", ");
        let mut wanted: Vec<&Candidate> = Vec::new();
        match &options.columns {
            None => wanted.extend(all.iter().filter(|candidate| candidate.usual)),
            Some(names) => {
                for name in names {
                    let found = all.iter().find(|candidate| candidate.name == *name).ok_or_else(|| {
                        Error::new(ErrorKind::NotFound, format!("no column `{name}`"))
                            .hint(format!("there are {}", listed()))
                    })?;
                    if let Err(why) = footer.leaves[found.leaf].physical {
                        let what = format!("column `{name}` is {why}, which is not read");
                        return Err(Error::new(ErrorKind::Unsupported, what).hint("leave it out"));
                    }
                    wanted.push(found);
                }
            }
        }
        if wanted.is_empty() {
            return Err(Error::new(ErrorKind::Unsupported, format!("no columns that are read among {}", listed()))
                .hint("images, bytes, texts, integers and floats are, one in each row"));
        }
        let mut seen = HashSet::new();
        if let Some(twice) = wanted.iter().find(|candidate| !seen.insert(&candidate.name)) {
            return Err(Error::new(ErrorKind::Unsupported, format!("two columns are called `{}`", twice.name))
                .hint("name each column to read once, with columns(…)"));
        }
        let (mut columns, mut names) = (Vec::new(), Vec::new());
        for candidate in wanted {
            let told = footer.features.as_ref().map(|features| &features[candidate.name.as_str()]);
            let feature = told.and_then(|told| told["_type"].as_str());
            let leaf = &footer.leaves[candidate.leaf];
            let kind = match leaf.physical {
                Ok(Physical::Bytes) if feature == Some("Image") => Kind::Image,
                Ok(Physical::Bytes) if leaf.text || feature == Some("Audio") => Kind::Bytes,
                Ok(Physical::Bytes) => {
                    let holds = holds_images(source, file, footer, candidate.leaf).await.map_err(|e| {
                        e.at_object(format!("{}, column {}", source.display_name(&file.name), candidate.name))
                    })?;
                    if holds { Kind::Image } else { Kind::Bytes }
                }
                Ok(Physical::I32 | Physical::I64)
                    if feature == Some("ClassLabel") || LABELS.contains(&&*candidate.name) =>
                {
                    Kind::Label
                }
                Ok(Physical::I32) => Kind::Numbers(DType::I32),
                Ok(Physical::I64) => Kind::Numbers(DType::I64),
                Ok(Physical::F32) => Kind::Numbers(DType::F32),
                Ok(Physical::F64) => Kind::Numbers(DType::F64),
                Ok(Physical::Bool) | Err(_) => Kind::Numbers(DType::Bool),
            };
            let classes = told.filter(|_| kind == Kind::Label).and_then(|told| told["names"].as_array());
            let classes = classes.map(|list| list.iter().filter_map(|name| name.as_str().map(str::to_owned)));
            names.extend(classes.map(|classes| (candidate.name.clone(), classes.collect::<Arc<[String]>>())));
            columns.push(Column { leaf: candidate.leaf, name: candidate.name.clone(), kind });
        }
        // Images first, as everywhere.
        columns.sort_by_key(|column| (column.kind != Kind::Image, column.kind != Kind::Label, column.leaf));
        Ok(Self { leaves: footer.leaves.clone(), columns, names })
    }

    /// The columns that are read must be where they are in the first file, and of the same type.
    fn check(&self, footer: &Footer) -> Result<()> {
        let same = |a: &Leaf, b: &Leaf| a.path == b.path && a.physical == b.physical;
        let other = self
            .columns
            .iter()
            .find(|column| !footer.leaves.get(column.leaf).is_some_and(|leaf| same(leaf, &self.leaves[column.leaf])));
        match other {
            None => Ok(()),
            Some(column) => {
                let what = format!("column `{}` is not where it is in the first file, or of another type", column.name);
                Err(Error::new(ErrorKind::Unsupported, what).hint("open the kinds of files apart"))
            }
        }
    }
}

/// Whether a codec knows the first value of a column, which takes reading its first page.
async fn holds_images(source: &Source, file: &Object, footer: &Footer, leaf: usize) -> Result<bool> {
    let first = footer.groups.iter().find(|group| group.rows > 0);
    let Some(Ok((chunk, range))) = first.map(|group| &group.chunks[leaf]) else { return Ok(false) };
    let read = |length: u64| {
        let mut extent = file.extent(source);
        extent.range = range.start..range.start + length.min(range.end - range.start);
        async move { extent.read().await }
    };
    let near = |e: Error| e.at_range(range.clone());
    // Statistics in the header may hold two whole values.
    let mut head = read(64 << 10).await?;
    let header = loop {
        match thrift::page_header(&head) {
            Some(header) => break header,
            None if (head.len() as u64) < (range.end - range.start).min(PROBE) => {
                head = read(head.len() as u64 * 8).await?
            }
            None => return Err(near(damaged("a column without a page header"))),
        }
    };
    let (header, length) = header;
    let end = length as u64 + u64::from(header.packed);
    if end.max(header.unpacked.into()) > PROBE {
        let what = format!("a page of {end} bytes, {PROBE} are read to see what a column holds");
        return Err(near(Error::new(ErrorKind::Unsupported, what))
            .hint("write the file with smaller pages, or leave the column out with columns(…)"));
    }
    if (head.len() as u64) < end {
        head = read(end).await?;
    }
    let body = head.get(length..end as usize).ok_or_else(|| near(damaged("the first page of a column is cut")))?;
    let value = decode::first_value(chunk, &header, body).map_err(near)?;
    let Some(value) = value else { return Ok(false) };
    let head = &value[..value.len().min(64)];
    Ok(is_image(head))
}

/// Whether a value begins as files of images do, of the formats that folders may hold.
fn is_image(head: &[u8]) -> bool {
    const BEGINNINGS: [&[u8]; 5] = [b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"BM", b"II*\0", b"MM\0*"];
    let webp = head.starts_with(b"RIFF") && head.get(8..12) == Some(b"WEBP");
    webp || BEGINNINGS.iter().any(|beginning| head.starts_with(beginning))
}

/// See [`Parquet`].
#[derive(Debug)]
struct ParquetDataset {
    source: Source,
    files: Vec<File>,
    groups: Vec<Group>,
    columns: Vec<Column>,
    /// Of each group those of each column.
    chunks: Vec<(Chunk, Range<u64>)>,
    starts: Arc<[u64]>,
    schema: Schema,
    shared: SharedBytes,
    largest: u64,
    fingerprint: Fingerprint,
}

impl ParquetDataset {
    fn new(
        source: &Source,
        objects: Vec<Object>,
        chosen: Chosen,
        groups: Vec<Group>,
        chunks: Vec<(Chunk, Range<u64>)>,
        options: &OpenOptions,
    ) -> Self {
        let Chosen { columns, mut names, .. } = chosen;
        let of_column = |at: usize| chunks.iter().skip(at).step_by(columns.len()).map(|(chunk, _)| chunk);
        let field = |(at, column): (usize, &Column)| {
            let kind = match column.kind {
                Kind::Image => FieldKind::Image { channels: 3, size: None, dtype: None },
                Kind::Label => FieldKind::Label,
                Kind::Numbers(dtype) => FieldKind::Array { dtype, shape: vec![1] },
                // A value is no longer than the pages of its chunk.
                Kind::Bytes => {
                    FieldKind::Bytes { most: of_column(at).map(|chunk| chunk.unpacked as usize).max().unwrap_or(0) }
                }
            };
            Field::new(column.name.clone(), kind)
        };
        let mut schema = Schema::new(columns.iter().enumerate().map(field).collect());
        let own = names.iter().position(|(name, _)| name == "label").map(|at| names.remove(at).1);
        schema = schema.with_classes(options.classes.clone().or(own));
        schema.names = names;

        let mut shared = SharedBytes::default();
        let mut largest = 0;
        for (group, chunks) in groups.iter().zip(chunks.chunks(columns.len())) {
            let decoded: u64 = chunks.iter().map(|(chunk, _)| chunk.decoded()).sum();
            let encoded: u64 = chunks.iter().map(|(_, range)| range.end - range.start).sum();
            shared.one = shared.one.max(decoded + encoded);
            shared.all = shared.all.saturating_add(decoded);
            let unpacked: u64 = chunks.iter().map(|(chunk, _)| u64::from(chunk.unpacked)).sum();
            largest = largest.max(unpacked.div_ceil(group.rows.into()));
        }
        let mut print = Fingerprint::of("parquet").number(objects.len() as u64);
        let mut left = groups.iter().peekable();
        for (number, object) in objects.iter().enumerate() {
            print = print.text(&object.name).number(object.size);
            while let Some(group) = left.next_if(|group| group.file as usize == number) {
                print = print.number(group.rows.into());
            }
        }
        let file = |object: Object| File { name: object.name.as_str().into(), object };
        Self {
            source: source.clone(),
            files: objects.into_iter().map(file).collect(),
            starts: groups.iter().map(|group| group.end - u64::from(group.rows)).collect(),
            groups,
            columns,
            chunks,
            schema,
            shared,
            largest,
            fingerprint: print.finish(),
        }
    }

    /// Group and row within it.
    fn find(&self, record: u64) -> Option<(usize, usize)> {
        let group = self.starts.partition_point(|start| *start <= record).checked_sub(1)?;
        let row = record - self.starts[group];
        (row < u64::from(self.groups[group].rows)).then_some((group, row as usize))
    }

    fn file_of(&self, group: usize) -> &File {
        &self.files[self.groups[group].file as usize]
    }

    /// Says which column of which row group it is about.
    fn at(&self, error: Error, group: usize, column: usize) -> Error {
        let file = self.source.display_name(&self.file_of(group).name);
        let (number, name) = (self.groups[group].number, &self.columns[column].name);
        let range = &self.chunks[group * self.columns.len() + column].1;
        error.at_object(format!("{file}, row group {number}, column {name}")).at_range(range.clone())
    }

    fn value(&self, column: usize, chunk: &Chunk, row: usize, decoded: &Bytes) -> Result<Value> {
        let Column { kind, name, .. } = &self.columns[column];
        let none = || {
            Error::corrupt(format!("row {row} of the group has no value"))
                .hint("leave the column out with columns(…), or set on_bad_sample(Skip)")
        };
        // Copied, so that the part may go.
        let copy = |range: Range<usize>| Bytes::copy_from_slice(&decoded[range]);
        if chunk.physical == Physical::Bytes {
            let place = decode::bytes_of(decoded, row)?;
            return match kind {
                Kind::Image => place.map(|place| Value::Encoded(copy(place))).ok_or_else(none),
                _ => Ok(Value::Bytes(place.map_or_else(Bytes::new, copy))),
            };
        }
        let bytes = &decoded[decode::number_of(decoded, row, chunk)?.ok_or_else(none)?];
        if *kind != Kind::Label {
            return Ok(Value::Array(Bytes::copy_from_slice(bytes)));
        }
        let label = match <[u8; 4]>::try_from(bytes) {
            Ok(bytes) => i32::from_ne_bytes(bytes).into(),
            Err(_) => bytes.try_into().map(i64::from_ne_bytes).map_err(|_| damaged("a label of no known size"))?,
        };
        let classes = self.schema.classes.as_ref().filter(|_| name == "label");
        let known = classes.is_none_or(|classes| usize::try_from(label).is_ok_and(|label| label < classes.len()));
        match known {
            true => Ok(Value::Label(label)),
            false => Err(Error::corrupt(format!("label {label} of row {row} of the group is not among the classes"))
                .hint("a set without labels is read with columns([\"image\"])")),
        }
    }
}

impl Dataset for ParquetDataset {
    fn len(&self) -> u64 {
        self.groups.last().map_or(0, |group| group.end)
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn format(&self) -> &str {
        "parquet"
    }

    fn plan(&self, record: u64, _rng: SampleRng) -> Result<ReadPlan> {
        let (group, _) = self.find(record).ok_or_else(|| no_such_record(record, self.len()))?;
        let file = self.file_of(group);
        let first = group * self.columns.len();
        let part = |(at, (chunk, range)): (usize, &(Chunk, Range<u64>))| {
            let whole = Extent::whole(&self.source, Arc::clone(&file.name), file.object.size);
            let extent = Extent { range: range.clone(), ..whole.with_etag(file.object.etag.as_deref()) };
            SharedRead::new((first + at) as u64, [extent], chunk.decoded())
        };
        let shared = self.chunks[first..first + self.columns.len()].iter().enumerate().map(part).collect();
        Ok(ReadPlan { shared, ..ReadPlan::default() })
    }

    fn parse(&self, record: u64, _plan: &ReadPlan, bytes: &[Bytes]) -> Result<Sample> {
        let (group, row) = self.find(record).ok_or_else(|| no_such_record(record, self.len()))?;
        let chunks = &self.chunks[group * self.columns.len()..];
        let value = |column: usize| {
            let decoded = bytes.get(column).ok_or_else(|| damaged("the decoded column is not there"));
            let value = decoded.and_then(|decoded| self.value(column, &chunks[column].0, row, decoded));
            value.map_err(|e| self.at(e.at_stage(Stage::Parse), group, column))
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
        let (group, column) = (key / self.columns.len(), key % self.columns.len());
        decoded.map(Bytes::from).map_err(|e| self.at(e.at_stage(Stage::Decode), group, column))
    }

    fn shared_bytes(&self) -> SharedBytes {
        self.shared
    }

    fn object(&self, record: u64) -> String {
        match self.find(record) {
            Some((group, _)) => self.source.display_name(&self.file_of(group).name),
            None => "parquet".to_owned(),
        }
    }

    fn needs_fetch(&self) -> bool {
        !self.source.reads_inline()
    }

    /// A record's own reads are none; but its values are copied, and room for them is kept as for reads. No footer tells
    /// the longest: the mean of the group with the largest.
    fn largest_read(&self) -> u64 {
        self.largest
    }

    fn resident_bytes(&self) -> u64 {
        let chunks = self.chunks.len() * size_of::<(Chunk, Range<u64>)>();
        (chunks + self.groups.len() * (size_of::<Group>() + 8)) as u64
    }

    fn groups(&self) -> Option<Arc<[u64]>> {
        Some(Arc::clone(&self.starts))
    }

    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}
