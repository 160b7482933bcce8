//! Tar shards as WebDataset makes them: the files of a sample lie together and share their name up to the first dot.
//!
//! ```text
//! n01440764/10026.jpg  n01440764/10026.cls  n01440764/10027.jpg  …
//! └ key ─────────────┘ └ extension
//! ```
//!
//! Records are read by ranges, each with the tar header before it, so any record can be read without those before it, and
//! an index that does not fit its tar is found out. What the extensions mean, [`open()`](super::open()) tells.
//!
//! Where the places of members come from, the first that is there: `shards.infeed` beside the shards; `NAME.infeed`, or
//! `NAME.idx` of DALI's `wds2idx`, beside `NAME.tar`; what an earlier opening kept in the folder of
//! [`Open::manifests`](super::Open::manifests); a pass over the headers, which is kept (beside local shards, else there).

mod header;
mod shard;
mod walk;

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    path::PathBuf,
    sync::Arc,
};

use bytes::Bytes;
use futures::{FutureExt, StreamExt, TryStreamExt, future::BoxFuture, stream};
use smallvec::SmallVec;

#[cfg(feature = "prepare")]
pub(crate) use self::header::{header, padded};
pub(crate) use self::{
    header::BLOCK,
    shard::{MANIFEST, Manifest, Member, Shard},
};
use super::{
    Dataset, Field, FieldKind, Format, OpenOptions, ReadPlan, Sample, Schema, Value, arrays, channels::looks_like_mask,
    folder, no_such_record, open::nothing_to_read,
};
use crate::{
    error::{Error, ErrorKind, Result},
    fingerprint::Fingerprint,
    random::SampleRng,
    report::Stage,
    source::{Extent, Object, Source},
    types::{DType, ImageInfo},
};

/// Members of a record that lie nearer than this are read in one go.
const NEAR: u64 = 64 << 10;
/// Shards of a remote store that are indexed at a time.
const AT_A_TIME: usize = 16;

const COMPRESSED: [&str; 8] = [".tar.gz", ".tgz", ".tar.zst", ".tzst", ".tar.bz2", ".tbz2", ".tar.xz", ".txz"];

fn ends(name: &str, end: &str) -> bool {
    let start = name.len().checked_sub(end.len());
    start.and_then(|start| name.get(start..)).is_some_and(|found| found.eq_ignore_ascii_case(end))
}

fn is_compressed(name: &str) -> bool {
    COMPRESSED.iter().any(|end| ends(name, end))
}

/// Shards of a dataset.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tar;

impl Format for Tar {
    fn name(&self) -> &'static str {
        "tar"
    }

    fn recognises(&self, objects: &[Object]) -> bool {
        objects.iter().any(|o| ends(&o.name, ".tar") || is_compressed(&o.name))
    }

    fn open<'a>(
        &'a self,
        source: &'a Source,
        objects: Vec<Object>,
        options: &'a OpenOptions,
    ) -> BoxFuture<'a, Result<Arc<dyn Dataset>>> {
        async move {
            if options.labels.is_some() {
                return Err(Error::config("tar shards hold their labels themselves").hint("leave out labels"));
            }
            let tars = choose(source, &objects, options)?;
            let known = Known::load(source, &objects, options).await?;
            let (shards, classes) = known.shards(source, &tars).await?;
            let dataset = TarDataset::new(source, shards, classes, options).await?;
            Ok(Arc::new(dataset) as Arc<dyn Dataset>)
        }
        .boxed()
    }
}

/// The shards to read, in the order of names.
fn choose<'a>(source: &Source, objects: &'a [Object], options: &OpenOptions) -> Result<Vec<&'a Object>> {
    let mut tars: Vec<&Object> = objects.iter().filter(|o| ends(&o.name, ".tar")).collect();
    if let Some(split) = &options.split {
        tars.retain(|o| {
            split_of(&o.name).is_some_and(|of| of.eq_ignore_ascii_case(split))
                || o.name.split('/').any(|part| part == split)
        });
        if tars.is_empty() {
            return Err(Error::new(ErrorKind::NotFound, format!("no shards of the split `{split}`"))
                .at_object(source.url())
                .hint("they are called SPLIT-000000.tar, or lie in a folder SPLIT"));
        }
        return Ok(tars);
    }
    if let Some(packed) = objects.iter().find(|o| is_compressed(&o.name))
        && tars.is_empty()
    {
        return Err(Error::new(ErrorKind::Unsupported, "a compressed tar can't be read at any place")
            .at_object(source.display_name(&packed.name))
            .hint("unpack it with `infeed stage URL DIR`, or take the compression off (gunzip, unzstd)"));
    }
    let splits: std::collections::BTreeSet<&str> = tars.iter().filter_map(|o| split_of(&o.name)).collect();
    if splits.len() > 1 {
        let names: Vec<_> = splits.into_iter().collect();
        return Err(Error::config(format!("shards of several splits: {}", names.join(", ")))
            .at_object(source.url())
            .hint(format!("name one with split(\"{0}\"), or open {0}-{{000000..000099}}.tar", names[0])));
    }
    match tars.is_empty() {
        true => Err(nothing_to_read(source, objects, "tar shards")),
        false => Ok(tars),
    }
}

/// `train` of `x/train-000017.tar`.
pub(super) fn split_of(name: &str) -> Option<&str> {
    let base = name.rsplit('/').next().unwrap_or(name);
    let word = base.split(['-', '_', '.']).next().unwrap_or(base);
    folder::SPLITS.iter().any(|split| split.eq_ignore_ascii_case(word)).then_some(word)
}

/// What manifests and sidecars tell.
#[derive(Debug, Default)]
struct Known {
    shards: HashMap<Arc<str>, Shard>,
    classes: Vec<String>,
    /// DALI's indices, by the name without ending.
    foreign: HashMap<String, Object>,
    /// What is kept beside local shards, and so goes on being kept.
    beside: Vec<Arc<str>>,
    /// What an earlier opening of this place kept elsewhere.
    elsewhere: Option<PathBuf>,
}

impl Known {
    async fn load(source: &Source, objects: &[Object], options: &OpenOptions) -> Result<Self> {
        let mut known = Self::default();
        // The manifest of the whole folder last, as what is told twice is taken from it.
        let mut files: Vec<&Object> = objects.iter().filter(|o| o.name.ends_with(shard::ENDING)).collect();
        files.sort_by_key(|o| base(&o.name) == MANIFEST);
        let whole: std::collections::HashSet<&str> =
            files.iter().filter(|o| base(&o.name) == MANIFEST).map(|o| parent(&o.name)).collect();
        // Sidecars are read only in folders without a manifest.
        files.retain(|o| base(&o.name) == MANIFEST || !whole.contains(parent(&o.name)));
        let read = |object: &Object| {
            let (extent, name) = (object.extent(source), object.name.clone());
            async move { extent.read().await.map(|bytes| (name, bytes)) }
        };
        let reads: Vec<_> = files.iter().map(|o| read(o)).collect();
        let mut reads = stream::iter(reads).buffered(AT_A_TIME);
        while let Some((name, bytes)) = reads.try_next().await? {
            match Manifest::parse(&bytes) {
                Ok(manifest) => known.add(manifest, parent(&name), name == MANIFEST),
                Err(wrong) => {
                    let file = source.display_name(&name);
                    tracing::warn!(file, "the index of shards is not used: {wrong}");
                }
            }
        }
        known.elsewhere = crate::source::manifest_file(source, options.manifests.as_deref(), "shards");
        if let Some(bytes) = known.elsewhere.as_ref().and_then(|file| std::fs::read(file).ok()) {
            match Manifest::parse(&bytes) {
                Ok(manifest) => known.add(manifest, "", false),
                Err(wrong) => tracing::warn!(file = ?known.elsewhere, "the index of shards is not used: {wrong}"),
            }
        }
        for object in objects.iter().filter(|o| o.name.ends_with(".idx")) {
            let stem = object.name.trim_end_matches(".idx");
            known.foreign.insert(stem.trim_end_matches(".tar").to_owned(), object.clone());
        }
        Ok(known)
    }

    fn add(&mut self, manifest: Manifest, folder: &str, beside: bool) {
        if !manifest.classes.is_empty() {
            self.classes = manifest.classes;
        }
        for mut shard in manifest.shards {
            if !folder.is_empty() {
                shard.name = format!("{folder}/{}", shard.name).into();
            }
            if beside {
                self.beside.push(Arc::clone(&shard.name));
            }
            // What lies beside the shards was read first, and is right.
            self.shards.entry(Arc::clone(&shard.name)).or_insert(shard);
        }
    }

    /// All samples of `tars`: as they are known, or else found out and kept.
    async fn shards(mut self, source: &Source, tars: &[&Object]) -> Result<(Vec<Shard>, Vec<String>)> {
        let mut shards: Vec<Option<Shard>> = Vec::with_capacity(tars.len());
        let mut unknown = Vec::new();
        for (i, tar) in tars.iter().enumerate() {
            let known = self.shards.get(tar.name.as_str());
            if let Some(known) = known.filter(|known| !known.is_of(tar)) {
                let (file, told) = (source.display_name(&tar.name), known.size);
                tracing::warn!(
                    file,
                    size = tar.size,
                    told,
                    "the tar has changed since it was indexed; indexing it again"
                );
            }
            let known = known.filter(|known| known.is_of(tar)).cloned();
            if known.is_none() {
                unknown.push(i);
            }
            // The version that is there now, so that a later one is told apart.
            shards.push(known.map(|mut shard| {
                shard.etag = tar.etag.as_deref().map(Into::into);
                shard
            }));
        }
        if unknown.is_empty() {
            return Ok((shards.into_iter().flatten().collect(), self.classes));
        }
        tracing::info!(shards = unknown.len(), url = source.url(), "indexing tar shards");
        let foreign = std::mem::take(&mut self.foreign);
        let index = |i: usize| index(source, tars[i], &foreign).map(move |shard| shard.map(|shard| (i, shard)));
        let futures: Vec<_> = unknown.iter().map(|i| index(*i).boxed()).collect();
        let mut indexed = stream::iter(futures).buffer_unordered(AT_A_TIME);
        while let Some((i, shard)) = indexed.try_next().await? {
            shards[i] = Some(shard);
        }
        drop(indexed);
        let shards: Vec<Shard> = shards.into_iter().flatten().collect();
        let classes = self.classes.clone();
        self.keep(source, &shards).await;
        Ok((shards, classes))
    }

    /// Writes what was found out where the next opening finds it.
    async fn keep(self, source: &Source, shards: &[Shard]) {
        // One shard of a folder says nothing about the others, and is indexed at once.
        if source.folder().is_some() && source.only().is_some() {
            return;
        }
        let here: std::collections::HashSet<&str> = shards.iter().map(|shard| &*shard.name).collect();
        // Of shards that were not asked for this time, too.
        let mut all: Vec<Shard> = self.shards.into_values().filter(|known| !here.contains(&*known.name)).collect();
        all.extend(shards.iter().cloned());
        all.sort_by(|a, b| a.name.cmp(&b.name));
        let bytes = Manifest { classes: self.classes, shards: all }.encode();
        if source.folder().is_some() {
            match source.put(MANIFEST, bytes.clone().into()).await {
                Ok(_) => return,
                Err(error) => tracing::debug!(%error, "the index of shards is kept elsewhere"),
            }
        }
        let Some(file) = self.elsewhere else { return };
        if let Err(error) = crate::source::keep_file(&file, &bytes) {
            tracing::warn!(file = %file.display(), %error, "the index of shards cannot be kept; set INFEED_MANIFEST_DIR to a folder that can be written, or to off");
        }
    }
}

fn base(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

fn parent(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(parent, _)| parent)
}

async fn index(source: &Source, tar: &Object, foreign: &HashMap<String, Object>) -> Result<Shard> {
    let stem = &tar.name[..tar.name.len() - ".tar".len()];
    if let Some(object) = foreign.get(stem) {
        let bytes = object.extent(source).read().await?;
        match shard::parse_wds2idx(&bytes, tar) {
            Ok(shard) => return Ok(shard),
            Err(wrong) => {
                let file = source.display_name(&object.name);
                tracing::warn!(file, "the index is not used: {wrong}");
            }
        }
    }
    walk::walk(source, tar).await
}

/// What the members with some extension are.
#[derive(Clone, Debug, PartialEq)]
enum Kind {
    Image,
    /// `image.npy`: pixels, rows first, channels last.
    Pixels,
    Label,
    Numbers,
    Bytes,
    /// Read only when it is asked for.
    Unknown,
}

/// Field and kind of an extension.
fn field_of(extension: &str) -> (String, Kind) {
    let (stem, last) = extension.rsplit_once('.').map_or((None, extension), |(stem, last)| (Some(stem), last));
    let named = |default: &str| stem.unwrap_or(default).to_owned();
    match last {
        _ if folder::EXTENSIONS.iter().any(|known| known[1..] == *last) => (named("image"), Kind::Image),
        "cls" => (named("label"), Kind::Label),
        "npy" if stem == Some("image") => (named("image"), Kind::Pixels),
        "npy" => (named("npy"), Kind::Numbers),
        "json" | "txt" => (named(last), Kind::Bytes),
        _ => (extension.to_owned(), Kind::Unknown),
    }
}

/// A field and how it is read.
#[derive(Clone, Debug)]
struct Column {
    name: String,
    kind: Kind,
    /// Of numbers.
    array: Option<(DType, Vec<usize>)>,
    /// The longest member.
    most: u32,
}

/// A shard among the others.
#[derive(Debug)]
struct Placed {
    shard: Shard,
    /// Records of this shard and those before.
    end: u64,
    /// For each extension its column.
    columns: Vec<Option<u8>>,
}

/// See [`Tar`].
#[derive(Debug)]
struct TarDataset {
    source: Source,
    shards: Vec<Placed>,
    columns: Vec<Column>,
    with_keys: bool,
    schema: Schema,
    largest: u64,
    groups: Arc<[u64]>,
    resident: u64,
    fingerprint: Fingerprint,
}

/// Where the wanted members of a record lie: in the order of the tar, and which reads cover them.
struct Places<'a> {
    placed: &'a Placed,
    /// Sample within the shard.
    sample: usize,
    members: SmallVec<[(u8, Member); 4]>,
    reads: SmallVec<[Range<u64>; 1]>,
}

impl TarDataset {
    async fn new(source: &Source, shards: Vec<Shard>, classes: Vec<String>, options: &OpenOptions) -> Result<Self> {
        let shards: Vec<Shard> = shards.into_iter().filter(|shard| shard.len() > 0).collect();
        let count: u64 = shards.iter().map(|shard| shard.len() as u64).sum();
        if count == 0 {
            return Err(Error::new(ErrorKind::NotFound, "the shards hold no samples")
                .at_object(source.url())
                .hint("members are called KEY.EXTENSION, such as 000017.jpg"));
        }
        let mut columns = columns_of(source, &shards, options)?;
        for column in columns.iter_mut().filter(|column| column.kind == Kind::Numbers) {
            column.array = Some(array_of(source, &shards, column).await?);
        }
        let classes = match (&options.classes, classes.is_empty()) {
            (Some(given), false) if given[..] != classes[..] => {
                let differs = given.iter().zip(&classes).find(|(a, b)| a != b);
                let what = differs.map_or_else(
                    || format!("{} classes given, the shards have {}", given.len(), classes.len()),
                    |(a, b)| format!("class `{b}` is called `{a}` in the classes given"),
                );
                return Err(Error::config(what).at_object(source.url()).hint("open it without classes"));
            }
            (Some(given), _) => Some(Arc::clone(given)),
            (None, false) => Some(classes.into()),
            (None, true) => None,
        };
        let with_keys = columns.iter().all(|column| column.name != "key");
        let wanted = |name: &str| options.columns.as_ref().is_none_or(|fields| fields.iter().any(|f| f == name));
        let with_keys = with_keys && wanted("key");
        let mut fields: Vec<Field> = columns.iter().map(Column::field).collect();
        if with_keys {
            let keys = shards.iter().flat_map(|shard| (0..shard.len()).map(|i| shard.key(i).len()));
            fields.push(Field::bytes("key", keys.max().unwrap_or(0)));
        }
        let mut print = Fingerprint::of("tar").number(shards.len() as u64);
        for shard in &shards {
            print = print.text(base(&shard.name)).number(shard.size).number(shard.len() as u64);
        }
        for field in &fields {
            print = print.text(&field.name);
        }
        let mut end = 0;
        let place = |shard: Shard| {
            end += shard.len() as u64;
            let column = |extension: &String| {
                let (name, _) = field_of(extension);
                columns.iter().position(|column| column.name == name).map(|at| at as u8)
            };
            Placed { columns: shard.extensions.iter().map(column).collect(), shard, end }
        };
        let shards: Vec<Placed> = shards.into_iter().map(place).collect();
        let groups = shards.iter().map(|placed| placed.end - placed.shard.len() as u64).collect();
        let resident = shards.iter().map(|placed| placed.shard.resident_bytes() as u64).sum();
        let schema = Schema::new(fields).with_classes(classes);
        let fingerprint = print.finish();
        let source = source.clone();
        let mut dataset =
            Self { source, shards, columns, with_keys, schema, largest: 0, groups, resident, fingerprint };
        for record in 0..count {
            let bytes = dataset.places(record)?.reads.iter().map(|read| read.end - read.start).sum();
            dataset.largest = dataset.largest.max(bytes);
        }
        Ok(dataset)
    }

    fn find(&self, record: u64) -> Option<(&Placed, usize)> {
        let placed = self.shards.get(self.shards.partition_point(|placed| placed.end <= record))?;
        let before = placed.end - placed.shard.len() as u64;
        Some((placed, usize::try_from(record - before).ok()?))
    }

    fn places(&self, record: u64) -> Result<Places<'_>> {
        let (placed, sample) = self.find(record).ok_or_else(|| no_such_record(record, self.len()))?;
        let wanted = placed.shard.members(sample).iter();
        let wanted = wanted.filter_map(|member| Some((placed.columns[usize::from(member.extension)]?, *member)));
        let mut members: SmallVec<[(u8, Member); 4]> = wanted.collect();
        members.sort_unstable_by_key(|(_, member)| member.block);
        let named = |column: usize| &self.columns[column].name;
        let wrong = |what: String| {
            let key = placed.shard.key(sample);
            let object = self.source.display_name(&placed.shard.name);
            Error::corrupt(format!("{what} for key `{key}`")).at_object(object).at_record(record)
        };
        for column in 0..self.columns.len() {
            match members.iter().filter(|(of, _)| usize::from(*of) == column).count() {
                1 => {}
                0 => {
                    return Err(wrong(format!("no `{}`", named(column)))
                        .hint("name the fields that all samples have with columns(…)"));
                }
                n => return Err(wrong(format!("{n} members that are `{}`", named(column))).hint("leave one of each")),
            }
        }
        let mut reads: SmallVec<[Range<u64>; 1]> = SmallVec::new();
        for (_, member) in &members {
            // With its header, which tells whether the index is right.
            let range = member.start() - BLOCK..member.end();
            match reads.last_mut() {
                Some(last) if range.start <= last.end + NEAR => last.end = last.end.max(range.end),
                _ => reads.push(range),
            }
        }
        Ok(Places { placed, sample, members, reads })
    }

    fn value(&self, column: &Column, content: Bytes) -> Result<Value> {
        Ok(match column.kind {
            Kind::Image => Value::Encoded(content),
            Kind::Label => Value::Label(self.label(&content)?),
            Kind::Bytes | Kind::Unknown => Value::Bytes(content),
            Kind::Pixels => {
                let (dtype, shape, data) = arrays::npy_of(&content)?;
                let (height, width, channels) = match shape[..] {
                    [height, width] => (height, width, 1),
                    [height, width, channels] => (height, width, channels),
                    _ => (0, 0, 0),
                };
                let (Ok(height), Ok(width), Ok(channels @ (1 | 3 | 4))) =
                    (u32::try_from(height), u32::try_from(width), u8::try_from(channels))
                else {
                    let what = format!("pixels of shape {shape:?}, rows, columns and 1, 3 or 4 channels belong there");
                    return Err(Error::new(ErrorKind::Unsupported, what));
                };
                if !matches!(dtype, DType::U8 | DType::U16 | DType::F32) {
                    let what = format!("pixels of {dtype}");
                    return Err(Error::new(ErrorKind::Unsupported, what).hint("save them as u8, u16 or f32"));
                }
                let info = ImageInfo { height, width, channels, dtype, planar: false };
                if info.len_bytes() == 0 {
                    return Err(Error::corrupt("an image without pixels"));
                }
                Value::Pixels { info, data }
            }
            Kind::Numbers => {
                let (dtype, shape, data) = arrays::npy_of(&content)?;
                let here = (dtype, shape);
                if column.array.as_ref() != Some(&here) {
                    let first = column.array.clone().unwrap_or((DType::U8, vec![]));
                    let what =
                        format!("numbers of {} {:?}, the first record has {} {:?}", here.0, here.1, first.0, first.1);
                    return Err(Error::new(ErrorKind::Unsupported, what).hint("arrays of one shape make a batch"));
                }
                Value::Array(data)
            }
        })
    }

    fn label(&self, content: &[u8]) -> Result<i64> {
        let text = str::from_utf8(content).unwrap_or_default().trim();
        let classes = self.schema.classes.as_deref();
        if let Ok(label) = text.parse::<i64>() {
            let known = classes.is_none_or(|classes| usize::try_from(label).is_ok_and(|label| label < classes.len()));
            let count = classes.map_or(0, <[_]>::len);
            return match known {
                true => Ok(label),
                false => Err(Error::corrupt(format!("label {label}, there are {count} classes"))),
            };
        }
        let named = classes.and_then(|classes| classes.iter().position(|class| class == text));
        named.map(|label| label as i64).ok_or_else(|| {
            let shown: String = String::from_utf8_lossy(content).chars().take(40).collect();
            Error::corrupt(format!("`{}` is no class index", shown.escape_debug()))
                .hint("a .cls file holds a number, or a name of the classes that are given")
        })
    }
}

impl Column {
    fn field(&self) -> Field {
        let kind = match (&self.kind, &self.array) {
            (Kind::Image, _) if looks_like_mask(&self.name) => {
                return Field::mask(&*self.name, FieldKind::Image { channels: 1, size: None, dtype: Some(DType::U8) });
            }
            (Kind::Image | Kind::Pixels, _) => FieldKind::Image { channels: 3, size: None, dtype: None },
            (Kind::Label, _) => FieldKind::Label,
            (Kind::Numbers, Some((dtype, shape))) => FieldKind::Array { dtype: *dtype, shape: shape.clone() },
            (Kind::Numbers | Kind::Bytes | Kind::Unknown, _) => FieldKind::Bytes { most: self.most as usize },
        };
        Field::new(self.name.clone(), kind)
    }
}

/// The fields: those that every sample has, or those that were asked for.
fn columns_of(source: &Source, shards: &[Shard], options: &OpenOptions) -> Result<Vec<Column>> {
    let mut found: BTreeMap<String, (Kind, u64, u32)> = BTreeMap::new();
    for shard in shards {
        let kinds: Vec<_> = shard.extensions.iter().map(|extension| field_of(extension)).collect();
        let mut counts = vec![(0u64, 0u32); kinds.len()];
        for member in shard.all_members() {
            let (count, most) = &mut counts[usize::from(member.extension)];
            (*count, *most) = (*count + 1, (*most).max(member.size));
        }
        for ((name, kind), (count, most)) in kinds.into_iter().zip(counts) {
            let entry = found.entry(name.clone()).or_insert((kind.clone(), 0, 0));
            if entry.0 != kind {
                let what = format!("`{name}` is an image file in some samples and numbers in others");
                return Err(Error::new(ErrorKind::Unsupported, what).at_object(source.display_name(&shard.name)));
            }
            (entry.1, entry.2) = (entry.1 + count, entry.2.max(most));
        }
    }
    let names = found.keys().map(String::as_str).chain(["key"]).collect::<Vec<_>>().join(", ");
    if let Some(fields) = &options.columns {
        if let Some(unknown) = fields.iter().find(|name| !found.contains_key(*name) && *name != "key") {
            return Err(Error::new(ErrorKind::NotFound, format!("no member is a field `{unknown}`"))
                .at_object(source.url())
                .hint(format!("there are {names}")));
        }
        found.retain(|name, _| fields.contains(name));
    } else {
        let unknown: Vec<_> =
            found.iter().filter(|(_, (kind, ..))| *kind == Kind::Unknown).map(|(n, _)| n.clone()).collect();
        if !unknown.is_empty() && unknown.len() < found.len() {
            tracing::info!(extensions = unknown.join(", "), "members that are left out; columns(…) would read them");
            found.retain(|_, (kind, ..)| *kind != Kind::Unknown);
        }
    }
    let count: u64 = shards.iter().map(|shard| shard.len() as u64).sum();
    if let Some((name, (_, have, _))) = found.iter().find(|(_, (_, have, _))| *have < count) {
        let lacks = |shard: &&Shard| {
            let of = |i: &usize| {
                let mut members = shard.members(*i).iter();
                members.all(|member| field_of(&shard.extensions[usize::from(member.extension)]).0 != *name)
            };
            (0..shard.len()).find(of)
        };
        let first = shards.iter().find_map(|shard| Some((shard, lacks(&shard)?)));
        let what = format!("{} of {count} samples have no `{name}`", count - have);
        let error = match first {
            Some((shard, i)) => Error::corrupt(format!("{what}, the first is key `{}`", shard.key(i)))
                .at_object(source.display_name(&shard.name)),
            None => Error::corrupt(what).at_object(source.url()),
        };
        return Err(error.hint(format!("name the fields that all have with columns(…), among {names}")));
    }
    let column = |(name, (kind, _, most))| Column { name, kind, array: None, most };
    let mut columns: Vec<Column> = found.into_iter().map(column).collect();
    // Images first, then labels, as everywhere.
    columns.sort_by_key(|column| match column.kind {
        // Masks follow the images whose draws they take.
        Kind::Image if looks_like_mask(&column.name) => (1, false),
        Kind::Image | Kind::Pixels => (0, column.name != "image"),
        Kind::Label => (2, column.name == "label"),
        _ => (3, false),
    });
    if columns.len() > 64 {
        return Err(Error::new(ErrorKind::Unsupported, format!("{} fields", columns.len()))
            .at_object(source.url())
            .hint("name those that you need with columns(…)"));
    }
    Ok(columns)
}

/// Type and shape of the first sample's numbers, which are to be those of all.
async fn array_of(source: &Source, shards: &[Shard], column: &Column) -> Result<(DType, Vec<usize>)> {
    let shard = &shards[0];
    let mut members = shard.members(0).iter();
    let Some(member) = members.find(|m| field_of(&shard.extensions[usize::from(m.extension)]).0 == column.name) else {
        return Err(Error::corrupt(format!("the first sample has no `{}`", column.name)));
    };
    let mut object = Object::new(&*shard.name, shard.size);
    object.etag = shard.etag.as_deref().map(Into::into);
    let array = arrays::npy_at(source, &object, member.start(), member.end()).await;
    let array = array
        .map_err(|e| e.at_object(source.display_name(&shard.name)).at_range(member.start() - BLOCK..member.end()))?;
    if array.shape.contains(&0) {
        return Err(Error::corrupt(format!("`{}` has the shape {:?}", column.name, array.shape)));
    }
    Ok((array.dtype, array.shape))
}

impl Dataset for TarDataset {
    fn len(&self) -> u64 {
        self.shards.last().map_or(0, |placed| placed.end)
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn format(&self) -> &str {
        "tar"
    }

    fn plan(&self, record: u64, _rng: SampleRng) -> Result<ReadPlan> {
        let Places { placed: Placed { shard, .. }, reads, .. } = self.places(record)?;
        let extent = |range: Range<u64>| {
            let whole = Extent::whole(&self.source, Arc::clone(&shard.name), shard.size);
            Extent { range, ..whole.with_etag(shard.etag.clone()) }
        };
        Ok(ReadPlan::new(reads.into_iter().map(extent)))
    }

    fn parse(&self, record: u64, _plan: &ReadPlan, bytes: &[Bytes]) -> Result<Sample> {
        let Places { placed: Placed { shard, .. }, sample, members, reads } = self.places(record)?;
        let mut values: SmallVec<[Option<Value>; 4]> = SmallVec::from_elem(None, self.columns.len());
        for (column, member) in members {
            let at = |e: Error| {
                let range = member.start() - BLOCK..member.end();
                e.at_stage(Stage::Parse).at_object(self.source.display_name(&shard.name)).at_range(range)
            };
            let read =
                reads.iter().zip(bytes).find(|(read, _)| read.start < member.start() && member.end() <= read.end);
            let cut = read.and_then(|(read, bytes)| {
                let start = (member.start() - read.start) as usize;
                let end = start + member.size as usize;
                (end <= bytes.len()).then(|| (&bytes[start - BLOCK as usize..start], bytes.slice(start..end)))
            });
            let (head, content) = cut.ok_or_else(|| at(Error::corrupt("the record is cut")))?;
            check(shard, sample, &member, head, &content).map_err(at)?;
            let column = usize::from(column);
            values[column] = Some(self.value(&self.columns[column], content).map_err(at)?);
        }
        let mut values: SmallVec<[Value; 2]> = values.into_iter().flatten().collect();
        if self.with_keys {
            values.push(Value::Bytes(Bytes::copy_from_slice(shard.key(sample).as_bytes())));
        }
        Ok(Sample { values })
    }

    fn object(&self, record: u64) -> String {
        self.find(record).map_or_else(|| "tar".to_owned(), |(placed, _)| self.source.display_name(&placed.shard.name))
    }

    fn needs_fetch(&self) -> bool {
        !self.source.reads_inline()
    }

    fn largest_read(&self) -> u64 {
        self.largest
    }

    fn resident_bytes(&self) -> u64 {
        self.resident
    }

    fn groups(&self) -> Option<Arc<[u64]>> {
        Some(Arc::clone(&self.groups))
    }

    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}

/// Name and size of the file whose header is first in `bytes`, when all of it is there.
#[cfg(feature = "prepare")]
pub(crate) fn member(bytes: &[u8]) -> Option<(String, u64)> {
    let found = header::parse_header(bytes).ok()??;
    let whole = found.kind == header::Kind::File && BLOCK.checked_add(found.size)? <= bytes.len() as u64;
    Some((String::from_utf8(found.name).ok().filter(|_| whole)?, found.size))
}

/// Whether the tar has the member where the index says, and whole.
fn check(shard: &Shard, sample: usize, member: &Member, head: &[u8], content: &[u8]) -> Result<()> {
    let stale = |what: String| {
        Error::corrupt(format!("the index does not fit the tar: {what}"))
            .hint("remove the index (.infeed, .idx), or pack the tar anew")
    };
    let found = header::parse_header(head).map_err(|_| stale("there is no header".into()))?;
    let found =
        found.filter(|found| found.kind == header::Kind::File).ok_or_else(|| stale("there is no file".into()))?;
    let (key, extension) = (shard.key(sample), &shard.extensions[usize::from(member.extension)]);
    if found.size != u64::from(member.size) {
        return Err(stale(format!("`{key}.{extension}` has {} bytes, not {}", found.size, member.size)));
    }
    // Long names are cut in their header, and those of other alphabets may be spelt otherwise.
    if key.len() + extension.len() < 99 && found.name.is_ascii() && key.is_ascii() {
        let name = String::from_utf8_lossy(&found.name);
        let fits = header::split_name(&name).is_some_and(|(k, e)| k == key && e == *extension);
        if !fits {
            return Err(stale(format!("`{name}` is where `{key}.{extension}` belongs")));
        }
    }
    if shard.has_crc && crc32c::crc32c(content) != member.crc {
        return Err(Error::corrupt(format!("`{key}.{extension}` is damaged: its crc32c is wrong"))
            .hint("fetch the tar again or set on_bad_sample(Skip)"));
    }
    Ok(())
}
