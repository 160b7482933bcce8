//! Samples of tar shards as records: which members are read, and what they become.

use std::{
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use infeed_core::{
    error::{
        Error, ErrorKind, Result,
        setting::{CLASSES, COLUMNS, FIELD, SKIP},
    },
    fingerprint::Fingerprint,
    random::{SampleRng, hash64},
    report::Stage,
    types::{DType, ImageInfo},
};
use infeed_store::{Object, Source};
use smallvec::SmallVec;

use super::{
    columns::{Column, FieldNames, MemberField, columns_of, look_at_labels, look_at_numbers},
    header::{self, BLOCK},
    index::{Blob, Entry, SAMPLES, Shape},
    samples::{Member, Samples},
    shard::{LABEL, class_index},
};
use crate::arrays;
use crate::{
    format::OpenOptions,
    layout,
    names::{base, looks_like_mask},
    record::{Dataset, ReadPlan, Sample, Value},
    schema::{Field, Schema},
    sizes::{Histogram, Sizes},
    table::{ShardTable, Stored},
};

/// Members of a record with a smaller gap than this are read in one request.
const NEAR: u64 = 64 << 10;

/// Number of index blocks in memory: enough for the records in progress, because a record is looked up when it is
/// planned and when it is parsed. Each takes about 2 KB.
const BLOCKS: usize = 1024;
/// Approximate memory of one block.
const BLOCK_BYTES: u64 = 2 << 10;

/// A shard's index, and the column of each of its extensions.
struct Indexed {
    blob: Blob,
    shape: Arc<Shape>,
    columns: Columns,
}

/// The column of each extension of a shape.
type Columns = Arc<[Option<u8>]>;

/// A block, with the number of its shard and its number in the shard.
type Slot = Mutex<Option<((usize, usize), Arc<Samples>)>>;

/// See [`Tar`](super::Tar).
#[derive(Debug)]
pub(super) struct TarDataset {
    shards: ShardTable<Indexed>,
    /// Each block has one possible slot, which may hold another block.
    blocks: Box<[Slot]>,
    columns: Vec<Column>,
    with_keys: bool,
    schema: Schema,
    sizes: Sizes,
    resident: u64,
    fingerprint: Fingerprint,
}

/// The wanted members of a record in the order of the tar, and the reads that cover them.
struct Places<'a> {
    stored: &'a Stored<Indexed>,
    block: Arc<Samples>,
    /// The sample within the block.
    sample: usize,
    members: SmallVec<[(u8, Member); 4]>,
    reads: SmallVec<[Range<u64>; 1]>,
}

/// Warns if some of the first samples may be masks of others, by keys such as `7` and `7_mask`, `images/7` and `masks/7`.
fn warn_of_masks(source: &Source, shard: &Entry) -> Result<()> {
    let block = shard.blob.block(0, &shard.shape)?;
    let keys = || block.iter().map(|(key, _)| key);
    let is_mask = |key: &&str| layout::is_mark(key) || looks_like_mask(base(key));
    if let (Some(mask), Some(other)) = (keys().find(is_mask), keys().find(|key| !is_mask(key))) {
        let object = source.display_name(&shard.name);
        tracing::warn!(
            object,
            "the sample `{mask}` is named like a mask of another, such as `{other}`, and is a sample of its own; files \
             of one sample have one name up to the first dot: 7.jpg and 7.mask.png"
        );
    }
    Ok(())
}

impl TarDataset {
    pub(super) async fn new(
        source: &Source,
        shards: Vec<Entry>,
        classes: Vec<String>,
        options: &OpenOptions,
    ) -> Result<Self> {
        let shards: Vec<Entry> = shards.into_iter().filter(|shard| shard.len() > 0).collect();
        if shards.is_empty() {
            return Err(Error::new(ErrorKind::NotFound, "the shards hold no samples")
                .at_object(source.url())
                .with_hint("members are called KEY.EXTENSION, such as 000017.jpg"));
        }
        warn_of_masks(source, &shards[0])?;
        let names = FieldNames::of(&shards);
        let mut columns = columns_of(source, &shards, &names, options)?;
        for column in &mut columns {
            match column.kind {
                MemberField::Numbers => {
                    let is_said = options.said.iter().any(|(name, _)| *name == column.name);
                    look_at_numbers(source, &shards, &names, column, is_said).await?;
                }
                MemberField::Image if options.is_mask(&column.name) => {
                    look_at_labels(source, &shards, &names, column).await?
                }
                _ => {}
            }
        }
        let classes = match (&options.classes, classes.is_empty()) {
            (Some(given), false) if given[..] != classes[..] => {
                let differs = given.iter().zip(&classes).find(|(a, b)| a != b);
                let what = differs.map_or_else(
                    || format!("{} classes given, the shards have {}", given.len(), classes.len()),
                    |(a, b)| format!("class `{b}` is called `{a}` in the classes given"),
                );
                return Err(Error::config(what).at_object(source.url()).with_hint("open it without classes"));
            }
            (Some(given), _) => Some(Arc::clone(given)),
            (None, false) => Some(classes.into()),
            (None, true) => None,
        };
        let with_keys = columns.iter().all(|column| column.name != "key");
        let wanted = |name: &str| options.columns.as_ref().is_none_or(|fields| fields.iter().any(|f| f == name));
        let with_keys = with_keys && wanted("key");
        let mut fields: Vec<Field> = columns.iter().map(|column| column.field(options)).collect();
        if with_keys {
            let longest = shards.iter().map(|shard| shard.longest_key).max().unwrap_or(0);
            fields.push(Field::text("key", longest as usize));
        }
        let sizes = sizes_of(&shards, &columns);
        let columns_of = |shape: &Shape| -> Columns {
            let column = |extension: &String| {
                let (name, _) = names.field(extension);
                columns.iter().position(|column| column.name == name).map(|at| at as u8)
            };
            shape.extensions.iter().map(column).collect()
        };
        let mut known: Option<(Arc<Shape>, Columns)> = None;
        // Shards in which a sample may lack a field or have it twice.
        let mut doubtful = Vec::new();
        let mut index = |(at, shard): (usize, Entry)| {
            let (shape, of) = match &known {
                Some((shape, of)) if Arc::ptr_eq(shape, &shard.shape) || *shape == shard.shape => (shape, of),
                _ => {
                    let of = columns_of(&shard.shape);
                    let (shape, of) = known.insert((Arc::clone(&shard.shape), of));
                    (&*shape, &*of)
                }
            };
            let each_once = |layout: &[u16]| {
                let here = |column: u8| layout.iter().filter(|at| of[usize::from(**at)] == Some(column)).count();
                (0..columns.len() as u8).all(|column| here(column) == 1)
            };
            if shape.layouts.iter().zip(&shard.layouts).any(|(layout, count)| *count > 0 && !each_once(layout)) {
                doubtful.push(at);
            }
            let mut object = Object::new(&*shard.name, shard.size);
            object.etag = shard.etag.as_deref().map(Into::into);
            let of = Indexed { columns: Arc::clone(of), shape: Arc::clone(shape), blob: shard.blob };
            Stored::new(&object, of.blob.samples().into(), of)
        };
        let shards: Vec<Stored<Indexed>> = shards.into_iter().enumerate().map(&mut index).collect();
        let shards = ShardTable::new(source, shards);
        let print =
            shards.print("tar", |print, shard| print.text(base(&shard.name)).number(shard.size).number(shard.count()));
        let print = fields.iter().fold(print, |print, field| print.text(&field.name));
        let blocks: usize = shards.shards().iter().map(|stored| stored.of.blob.count()).sum();
        let slots = blocks.clamp(1, BLOCKS);
        let of_shards: u64 = shards.shards().iter().map(|stored| stored.of.blob.resident_bytes()).sum();
        let resident = of_shards + slots as u64 * BLOCK_BYTES;
        let schema = Schema::new(fields).with_classes(classes);
        let blocks = std::iter::repeat_with(Slot::default).take(slots).collect();
        let fingerprint = print.finish();
        let dataset = Self { shards, blocks, columns, with_keys, schema, sizes, resident, fingerprint };
        for at in doubtful {
            let records = dataset.shards.shards()[at].records.clone();
            records.into_iter().try_for_each(|record| dataset.places(record).map(drop))?;
        }
        if let [Column { kind: MemberField::Image, .. }] = dataset.columns[..]
            && options.columns.is_none()
        {
            dataset.warn_of_folders(source);
        }
        Ok(dataset)
    }

    /// Of images alone, in several folders or in tars that are named like their members: these are no labels.
    fn warn_of_folders(&self, source: &Source) {
        let is_named = |shard: &Stored<Indexed>| {
            let place = self.places(shard.records.start).ok()?;
            let rest = base(place.block.key(place.sample)).strip_prefix(layout::stem(base(&shard.name)))?;
            Some(!rest.starts_with(char::is_alphanumeric))
        };
        let shards = self.shards.shards();
        // `00000.tar` and `train-1.tar` are numbered parts, `n01440764.tar` is a class of ImageNet.
        let numbered = |shard: &Stored<Indexed>| {
            layout::stem(base(&shard.name)).trim_end_matches(|c: char| !c.is_alphabetic()).to_owned()
        };
        let words = shards.first().map(numbered).zip(shards.last().map(numbered));
        let are_parts = words.is_some_and(|(first, last)| first == last && first != "n");
        if shards.len() > 1
            && !are_parts
            && [shards.first(), shards.last()].into_iter().flatten().all(|s| is_named(s) == Some(true))
        {
            tracing::warn!(
                url = source.url(),
                first = base(&shards[0].name),
                "the images have no labels; if each tar is a class, unpack each into a folder of its name"
            );
        }
        let folder = |record| {
            let place = self.places(record).ok()?;
            Some(place.block.key(place.sample).rsplit_once('/')?.0.to_owned())
        };
        let folders = folder(0).zip(folder(self.len().saturating_sub(1)));
        if let Some((first, last)) = folders.filter(|(first, last)| first != last) {
            tracing::warn!(
                first,
                last,
                "the images have no labels; if their folders are classes, unpack the tar (`infeed stage URL DIR`) and open DIR"
            );
        }
    }

    /// The block of samples that holds this one. Blocks until it is read from disk.
    fn block(&self, at: usize, of: &Indexed, block: usize) -> Result<Arc<Samples>> {
        let key = (at, block);
        let slot = &self.blocks[hash64((at as u64) << 32 ^ block as u64) as usize % self.blocks.len()];
        let held = || slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, samples)) = &*held()
            && *of == key
        {
            return Ok(Arc::clone(samples));
        }
        let samples = Arc::new(of.blob.block(block, &of.shape)?);
        *held() = Some((key, Arc::clone(&samples)));
        Ok(samples)
    }

    fn places(&self, record: u64) -> Result<Places<'_>> {
        let (at, stored) = self.shards.find_at(record)?;
        let sample = (record - stored.records.start) as usize;
        let block = self.block(at, &stored.of, sample / SAMPLES).map_err(|e| e.at_record(record))?;
        let (sample, columns) = (sample % SAMPLES, &stored.of.columns);
        let wanted = block.members(sample).iter();
        let wanted = wanted.filter_map(|member| Some((columns[usize::from(member.extension)]?, *member)));
        let mut members: SmallVec<[(u8, Member); 4]> = wanted.collect();
        members.sort_unstable_by_key(|(_, member)| member.block);
        let named = |column: usize| &self.columns[column].name;
        let wrong = |what: String| {
            let key = block.key(sample);
            let object = self.shards.name_of(stored);
            Error::corrupt(format!("{what} for key `{key}`")).at_object(object).at_record(record)
        };
        for column in 0..self.columns.len() {
            match members.iter().filter(|(of, _)| usize::from(*of) == column).count() {
                1 => {}
                0 => {
                    return Err(wrong(format!("no `{}`", named(column)))
                        .with_hint(format!("use {COLUMNS} to choose fields that all samples have")));
                }
                n => {
                    return Err(
                        wrong(format!("{n} members that are `{}`", named(column))).with_hint("keep one of each")
                    );
                }
            }
        }
        let mut reads: SmallVec<[Range<u64>; 1]> = SmallVec::new();
        for (_, member) in &members {
            // Including its header, which shows whether the index is right.
            let range = member.start() - BLOCK..member.end();
            match reads.last_mut() {
                Some(last) if range.start <= last.end + NEAR => last.end = last.end.max(range.end),
                _ => reads.push(range),
            }
        }
        let bytes: u64 = reads.iter().map(|read| read.end - read.start).sum();
        if bytes > self.sizes.largest {
            return Err(wrong(format!("{bytes} bytes, but at most {} by the index,", self.sizes.largest)));
        }
        Ok(Places { stored, block, sample, members, reads })
    }

    fn value(&self, column: &Column, content: Bytes) -> Result<Value> {
        Ok(match column.kind {
            MemberField::Image => Value::Encoded(content),
            MemberField::Label => Value::Label(self.label(&content)?),
            MemberField::Text | MemberField::Bytes | MemberField::Unknown => Value::Bytes(content),
            MemberField::Pixels => {
                let (dtype, shape, data) = arrays::npy_of(&content)?;
                let (height, width, channels) = match shape[..] {
                    [height, width] => (height, width, 1),
                    [height, width, channels] => (height, width, channels),
                    _ => (0, 0, 0),
                };
                let (Ok(height), Ok(width), Ok(channels @ (1 | 3 | 4))) =
                    (u32::try_from(height), u32::try_from(width), u8::try_from(channels))
                else {
                    let what = format!("pixels of shape {shape:?}, not of rows, columns and 1, 3 or 4 channels");
                    return Err(Error::new(ErrorKind::Unsupported, what));
                };
                if !matches!(dtype, DType::U8 | DType::U16 | DType::F32) {
                    let what = format!("pixels of {dtype}");
                    return Err(Error::new(ErrorKind::Unsupported, what).with_hint("save them as u8, u16 or f32"));
                }
                let info = ImageInfo { height, width, channels, dtype, planar: false };
                if info.len_bytes() == 0 {
                    return Err(Error::corrupt("an image without pixels"));
                }
                Value::Pixels { info, data }
            }
            MemberField::Numbers => {
                let (dtype, shape, data) = arrays::npy_of(&content)?;
                let (of, like) = column.array.clone().unwrap_or((DType::U8, vec![]));
                let may_be_list = dtype == of && arrays::differ_in_length(&shape, &like);
                match column.is_list {
                    true if may_be_list => Value::List(data),
                    false if (dtype, &shape) == (of, &like) => Value::Array(data),
                    _ => {
                        let what = format!("numbers of {dtype} {shape:?}, the first record has {of} {like:?}");
                        let hint = match may_be_list {
                            true => format!("set {}", FIELD.to_pair(&column.name, "list")),
                            false => "save arrays of one type and shape".to_owned(),
                        };
                        return Err(Error::new(ErrorKind::Unsupported, what).with_hint(hint));
                    }
                }
            }
        })
    }

    fn label(&self, content: &[u8]) -> Result<i64> {
        match class_index(content) {
            Some(label) => self.schema.label(label),
            None => self.schema.label_of(content),
        }
        .map_err(|e| e.with_hint(format!("a .cls file holds a number, or one of the names in {CLASSES}")))
    }
}

impl Dataset for TarDataset {
    fn len(&self) -> u64 {
        self.shards.len()
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn format(&self) -> &str {
        "tar"
    }

    fn plan(&self, record: u64, _rng: SampleRng) -> Result<ReadPlan> {
        let Places { stored, reads, .. } = self.places(record)?;
        Ok(ReadPlan::new(reads.into_iter().map(|range| self.shards.extent(stored, range))))
    }

    fn parse(&self, record: u64, _plan: &ReadPlan, bytes: &[Bytes]) -> Result<Sample> {
        let Places { stored, block, sample, members, reads } = self.places(record)?;
        let key = block.key(sample);
        let mut values: SmallVec<[Option<Value>; 4]> = SmallVec::from_elem(None, self.columns.len());
        for (column, member) in members {
            let at = |e: Error| {
                let range = member.start() - BLOCK..member.end();
                e.at_stage(Stage::Parse).at_object(self.shards.name_of(stored)).at_range(range)
            };
            let read =
                reads.iter().zip(bytes).find(|(read, _)| read.start < member.start() && member.end() <= read.end);
            let cut = read.and_then(|(read, bytes)| {
                let start = (member.start() - read.start) as usize;
                let end = start + member.size as usize;
                (end <= bytes.len()).then(|| (&bytes[start - BLOCK as usize..start], bytes.slice(start..end)))
            });
            let (head, content) = cut.ok_or_else(|| at(Error::corrupt("the record is truncated")))?;
            check(&stored.of.shape, key, &member, head, &content).map_err(at)?;
            let column = usize::from(column);
            values[column] = Some(self.value(&self.columns[column], content).map_err(at)?);
        }
        let mut values: SmallVec<[Value; 2]> = values.into_iter().flatten().collect();
        if self.with_keys {
            values.push(Value::Bytes(Bytes::copy_from_slice(key.as_bytes())));
        }
        Ok(Sample { values })
    }

    fn known(&self, record: u64, field: &str) -> Option<Value> {
        let column =
            self.columns.iter().position(|column| column.name == field && column.kind == MemberField::Label)?;
        let (_, stored) = self.shards.find_at(record).ok()?;
        let Indexed { blob, shape, columns } = &stored.of;
        // The field may also come from other extensions.
        let of = |extension: &str| shape.extensions.iter().position(|known| known == extension);
        of(LABEL).filter(|at| columns[*at] == Some(column as u8))?;
        // Damage is found again when the record is read, and reported then.
        let label = blob.label_of((record - stored.records.start) as usize).ok()??;
        self.schema.label(label).ok().map(Value::Label)
    }

    fn object(&self, record: u64) -> String {
        self.shards.object(record, "tar")
    }

    fn needs_fetch(&self) -> bool {
        self.shards.needs_fetch()
    }

    fn largest_read(&self) -> u64 {
        self.sizes.largest
    }

    fn usual_read(&self) -> u64 {
        self.sizes.usual
    }

    fn resident_bytes(&self) -> u64 {
        self.resident
    }

    fn groups(&self) -> Option<Arc<[u64]>> {
        Some(self.shards.groups())
    }

    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}

/// Sizes of records: those of their samples, and at most the sum of the members that are read.
fn sizes_of(shards: &[Entry], columns: &[Column]) -> Sizes {
    let mut all = Histogram::default();
    for (power, count, most) in shards.iter().flat_map(|shard| &shard.spans) {
        // The powers were checked when the index was read.
        let _ = all.add_all((*power).into(), (*count).into(), *most);
    }
    let all = all.sizes();
    let members: u64 = columns.iter().map(|column| u64::from(column.most) + BLOCK + NEAR).sum();
    let members = members.saturating_sub(NEAR);
    Sizes { largest: all.largest.min(members), usual: all.usual.min(members) }
}

/// Checks that the tar has the whole member where the index says.
fn check(shape: &Shape, key: &str, member: &Member, head: &[u8], content: &[u8]) -> Result<()> {
    let stale = |what: String| {
        Error::corrupt(format!("the index does not fit the tar: {what}"))
            .with_hint("remove the index (.infeed, .idx), or pack the tar again")
    };
    let found = header::parse_header(head).map_err(|_| stale("there is no header".into()))?;
    let found =
        found.filter(|found| found.kind == header::MemberKind::File).ok_or_else(|| stale("there is no file".into()))?;
    let extension = &shape.extensions[usize::from(member.extension)];
    if found.size != u64::from(member.size) {
        return Err(stale(format!("`{key}.{extension}` has {} bytes, not {}", found.size, member.size)));
    }
    // Long names are cut in their header, and names with other alphabets may be encoded differently.
    if key.len() + extension.len() < 99 && found.name.len() < 100 && found.name.is_ascii() && key.is_ascii() {
        let name = String::from_utf8_lossy(&found.name);
        let fits = header::split_name(&name).is_some_and(|(k, e)| k == key && e.eq_ignore_ascii_case(extension));
        if !fits {
            return Err(stale(format!("`{name}` is where `{key}.{extension}` belongs")));
        }
    }
    if shape.has_crc && crc32c::crc32c(content) != member.crc {
        return Err(Error::corrupt(format!("`{key}.{extension}` is damaged: its crc32c is wrong"))
            .with_hint(format!("fetch the tar again or set {SKIP}")));
    }
    Ok(())
}
