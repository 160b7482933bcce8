//! MDS shards of MosaicML's streaming: `index.json` and `shard.00000.mds`, ….
//!
//! A shard is `u32 samples, u32 offsets[samples + 1], JSON, samples`, little-endian; a sample is a `u32` size for each column
//! whose size varies, then the columns. The offsets of a shard are read when it is opened, samples by range.
//!
//! A shard that exists only compressed (zstd, gzip, bzip2, Snappy; feature `packed`) is read whole, and decompressed
//! once for all its samples as long as the loader's memory holds it. Its beginning, with the offsets, is also read
//! while the dataset is opened. The hashes in the index are then checked, both of the shard and of its compressed file:
//! MD5, SHA-1, SHA-2 and xxHash. Other shards are read by range, and hashes of ranges do not exist.
//!
//! | encoding | field |
//! |---|---|
//! | `jpeg`, `png`, `jpeg:QUALITY` | an image, by its first bytes |
//! | `pil` | an image: pixels of Pillow's modes `RGB`, `RGBA`, `L`, `LA`, `1`, `I;16` and `F`; of masks `P` too, the indices |
//! | `jpeg_array`, `jpegarray`, `list[jpeg]`, `list[png]`, `list[pil]` | an image, if the lists of the first samples hold one |
//! | `int`, `int8` … `int64`, `uint8` … `uint64`, `str_int` of a column `label`, `class`, `cls`, `target` or `y` | a label |
//! | `int`, `int8` … `int64`, `uint8` … `uint64`, `float16` … `float64` | one number |
//! | `str_int`, `str_float` | one number, `int64` and `float64` |
//! | `ndarray:TYPE:SHAPE` | an array of these types |
//! | `ndarray:TYPE`, `ndarray` | an array, if those of the first samples have one type and shape; a list, if they differ in the first axis |
//! | `bytes` | an image, if the first sample's begins like one; otherwise bytes |
//! | `str`, `json`, `str_decimal` | text |
//!
//! Other columns are left out, with one warning. If that leaves a dataset without its images, opening it is an error
//! unless columns are named.

mod layout;
mod shard;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    ops::Range,
    sync::Arc,
};

use bytes::Bytes;
use futures::{FutureExt, StreamExt, TryStreamExt, future::BoxFuture, stream};
use infeed_core::{
    error::{
        Error, ErrorKind, Result,
        setting::{COLUMNS, FIELD, SKIP, SPLIT},
    },
    fingerprint::Fingerprint,
    random::SampleRng,
    report::Stage,
    types::DType,
};
use infeed_data::{
    arrays::{differ_in_length, is_usual_list},
    format::{Format, OpenOption, OpenOptions},
    names,
    objects::nothing_to_read,
    record::{Dataset, ReadPlan, Sample, SharedBytes, SharedRead, Value},
    schema::{Field, FieldKind, Schema},
    sizes::Sizes,
    sniff,
    table::ShardTable,
};
use infeed_store::{Beside, KeptParts, Object, Source};

use self::{
    layout::{
        Column, ColumnKind, Index, Listed, bad, field_name, kind_of, may_be_images, parse_array, parse_label,
        parse_list, parse_pil, parse_sample, parse_text,
    },
    shard::{Finder, Shard, Within},
};

const INDEX: &str = "index.json";
/// Number of shards whose offsets are read at a time.
const AT_A_TIME: usize = 16;
/// Number of samples that are examined: until none of the `bytes` values is empty, and to check that lists and arrays
/// are alike. Below, the most bytes of them that are read at a time.
const LOOKED_INTO: usize = 8;
const LOOKED_INTO_BYTES: u64 = 1 << 20;

/// The MDS format.
#[derive(Clone, Copy, Debug)]
pub struct Mds;

fn is_shard(object: &Object) -> bool {
    object.name.ends_with(".mds") || object.name.contains(".mds.")
}

/// Warns of shards in the folder, or below it, that the index does not list.
fn warn_of_unlisted(source: &Source, objects: &[Object], folder: &str, index: &Index) {
    let files = index.shards.iter().flat_map(|listed| [Some(&listed.raw_data), listed.zip_data.as_ref()]).flatten();
    let listed: HashSet<&str> = files.map(|file| file.basename.as_str()).collect();
    let is_other = |object: &&Object| {
        object.name.strip_prefix(folder).is_some_and(|name| is_shard(object) && !listed.contains(name))
    };
    if let Some(first) = objects.iter().find(is_other) {
        let count = objects.iter().filter(is_other).count();
        tracing::warn!(
            url = source.url(),
            first = first.name,
            "{count} shards that {folder}{INDEX} does not list are not read; merge the indexes (merge_index of streaming) \
             or open each folder"
        );
    }
}

/// The error of shards whose index is missing.
fn no_index(source: &Source, shard: &Object) -> Error {
    Error::new(ErrorKind::NotFound, "MDS shards without index.json, which lists them")
        .at_stage(Stage::Open)
        .at_object(source.display_name(&shard.name))
        .with_hint("fetch index.json to the folder of the shards; if none was written, call `finish` of MDSWriter")
}

impl Format for Mds {
    fn name(&self) -> &'static str {
        "mds"
    }

    /// Also shards without an index, if nothing else that could be a dataset is there: opening them returns an error
    /// that names what is missing.
    fn recognises(&self, objects: &[Object]) -> bool {
        let is_note = |o: &Object| [".json", ".md", ".txt"].iter().any(|ending| names::ends_with(&o.name, ending));
        objects.iter().any(is_shard)
            && (objects.iter().any(|o| o.name == INDEX || o.name.ends_with("/index.json"))
                || objects.iter().all(|o| is_shard(o) || is_note(o)))
    }

    fn reads(&self, name: &str) -> bool {
        !names::is_table(name)
    }

    fn options(&self) -> &'static [OpenOption] {
        &[OpenOption::Split, OpenOption::Columns, OpenOption::Classes]
    }

    fn open<'a>(
        &'a self,
        source: &'a Source,
        objects: Vec<Object>,
        options: &'a OpenOptions,
    ) -> BoxFuture<'a, Result<Arc<dyn Dataset>>> {
        async move {
            let folder = options.split.as_ref().map_or(String::new(), |split| format!("{split}/"));
            let index = format!("{folder}{INDEX}");
            let by_name =
                |name: &str| objects.binary_search_by(|o| o.name.as_str().cmp(name)).ok().map(|i| &objects[i]);
            let Some(index) = by_name(&index) else {
                let below = objects.iter().filter_map(|o| o.name.strip_suffix("/index.json"));
                let splits: Vec<_> = below.take(5).collect();
                return Err(match splits[..] {
                    [] => match objects.iter().find(|object| is_shard(object)) {
                        Some(shard) => no_index(source, shard),
                        None => nothing_to_read(source, &objects, "index.json of MDS shards"),
                    },
                    _ => Error::config(format!("the MDS shards are in {}", splits.join(", ")))
                        .at_object(source.url())
                        .with_hint(format!("open one of these folders{}", SPLIT.or_set(splits[0]))),
                });
            };
            let at = |e: Error| e.at_object(source.display_name(&index.name));
            let kept = KeptParts::of(source, options.manifests.as_deref());
            let bytes = kept.get(index, "whole", Beside::Table.read(source, index)).await?;
            let listed: Index = serde_json::from_slice(&bytes)
                .map_err(|e| at(bad("index.json is not that of MDS shards").with_source(e)))?;
            let mut columns = columns_of(&listed, options).map_err(at)?;
            let mut finder =
                Finder { source, objects: &objects, folder: &folder, unknown: BTreeSet::new(), unchecked: false };
            let mut reads = Vec::new();
            for listed in listed.shards.iter().filter(|listed| listed.samples > 0) {
                let (object, packed) = finder.find(listed)?;
                reads.push(shard::read(&kept, object, packed, listed.samples).boxed());
            }
            warn_of_unlisted(source, &objects, &folder, &listed);
            let Finder { unknown, unchecked, .. } = finder;
            if !unknown.is_empty() {
                let hashes = unknown.into_iter().collect::<Vec<_>>().join(", ");
                tracing::warn!(hashes, "some hashes in index.json are of unknown kinds and not checked");
            }
            if unchecked {
                tracing::info!(
                    "hashes in index.json are of whole shards; shards that are read by range are not checked"
                );
            }
            let shards: Vec<Shard> = stream::iter(reads).buffered(AT_A_TIME).try_collect().await?;
            for column in columns.iter_mut().filter(|column| options.is_list(&column.name)) {
                if let Some(ColumnKind::Array { is_list, .. } | ColumnKind::List { several: is_list, .. }) =
                    &mut column.kind
                {
                    *is_list = true;
                }
            }
            let unsure = unsure_columns(&listed, &columns, options);
            let mut left = Vec::new();
            if let Some(first) = shards.first().filter(|_| !unsure.is_empty()) {
                let named = |e: Error| e.at_object(source.display_name(&first.name));
                left = look_into(&kept, &objects, first, &unsure, &mut columns).await.map_err(named)?;
            }
            kept.keep();
            for column in &mut columns {
                let why = match &column.kind {
                    Some(ColumnKind::Array { first: None, .. }) => "damaged in the first samples",
                    Some(ColumnKind::Array { first: Some((_, shape)), is_list: true, .. })
                        if shape.is_empty() || shape[1..].contains(&0) =>
                    {
                        "not a list of numbers"
                    }
                    _ => continue,
                };
                column.kind = None;
                left.push((column.name.clone(), why.to_owned()));
            }
            check_left_out(&listed, &columns, &left, options).map_err(at)?;
            Ok(Arc::new(MdsDataset::new(source, shards, columns, options)?) as Arc<dyn Dataset>)
        }
        .boxed()
    }
}

/// The columns, which all shards have to have.
fn columns_of(index: &Index, options: &OpenOptions) -> Result<Vec<Column>> {
    let mut all: Option<Vec<Column>> = None;
    for listed in &index.shards {
        let Listed { format, column_names: names, column_encodings: encodings, column_sizes: sizes, .. } = listed;
        if !["mds", ""].contains(&format.as_str()) {
            return Err(Error::new(ErrorKind::Unsupported, format!("shards of the format `{format}`"))
                .with_hint("write them with MDSWriter"));
        }
        if names.len() != encodings.len() || names.len() != sizes.len() {
            return Err(bad("a shard has different numbers of column names, encodings and sizes"));
        }
        let column = |((name, encoding), size): ((&String, &String), &Option<u32>)| {
            let kind = kind_of(name, encoding);
            let field = field_name(name, kind.as_ref());
            let wanted = options.columns.as_ref().is_none_or(|names| names.iter().any(|n| n == name || n == field));
            Column { name: name.clone(), size: *size, kind: kind.filter(|_| wanted), labels: None }
        };
        let columns: Vec<Column> = names.iter().zip(encodings).zip(sizes).map(column).collect();
        match &all {
            None => all = Some(columns),
            Some(all) if *all == columns => {}
            Some(_) => {
                let what = format!("`{}` has other columns than the first shard", listed.raw_data.basename);
                return Err(Error::new(ErrorKind::Unsupported, what).with_hint("open each kind of shards separately"));
            }
        }
    }
    let columns = all.ok_or_else(|| bad("index.json names no shards"))?;
    let mut seen = HashMap::new();
    if let Some(twice) = columns.iter().find(|column| seen.insert(&column.name, ()).is_some()) {
        return Err(bad(format!("two columns are called `{}`", twice.name)));
    }
    let there = |name: &String| columns.iter().any(|c| c.name == *name || field_name(&c.name, c.kind.as_ref()) == name);
    if let Some(unknown) = options.columns.iter().flatten().find(|name| !there(name)) {
        let names: Vec<_> = columns.iter().map(|column| column.name.as_str()).collect();
        return Err(Error::new(ErrorKind::NotFound, format!("there is no column `{unknown}`"))
            .with_hint(format!("there are {}", names.join(", "))));
    }
    Ok(columns)
}

/// Warns about columns that are not read: those with other encodings, and those of `left`, each with its reason. An
/// error if no columns, or no images, would remain.
fn check_left_out(index: &Index, columns: &[Column], left: &[(String, String)], options: &OpenOptions) -> Result<()> {
    let encodings = index.shards.first().map_or(&[][..], |listed| &listed.column_encodings);
    let wanted = |column: &Column| options.columns.as_ref().is_none_or(|names| names.contains(&column.name));
    let why = |(column, encoding): (&Column, &String)| {
        if column.kind.is_some() || !wanted(column) {
            return None;
        }
        let reason = left.iter().find(|(name, _)| *name == column.name).map(|(_, why)| format!(", {why}"));
        let words = format!("{} ({encoding}{})", column.name, reason.unwrap_or_default());
        Some((words, may_be_images(&column.name, encoding)))
    };
    let left: Vec<(String, bool)> = columns.iter().zip(encodings).filter_map(why).collect();
    let list = |only_images: bool| {
        let of = left.iter().filter(|(_, may_be)| *may_be || !only_images);
        of.map(|(words, _)| words.as_str()).collect::<Vec<_>>().join(", ")
    };
    let read = "jpeg, png, pil, lists of one of these, int, float, str, json, bytes, and ndarray whose shapes differ only in the first \
         axis are read";
    if columns.iter().all(|column| column.kind.is_none()) {
        let what = format!("no column of a kind that is read: {}", list(false));
        return Err(Error::new(ErrorKind::Unsupported, what).with_hint(read));
    }
    if options.columns.is_some() {
        return match left.is_empty() {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Unsupported, format!("not read: {}", list(false)))
                .with_hint(format!("leave it out of {COLUMNS}: {read}"))),
        };
    }
    let is_image = |column: &Column| {
        matches!(column.kind, Some(ColumnKind::Image | ColumnKind::Pil | ColumnKind::List { .. }))
            || matches!(&column.kind, Some(ColumnKind::Numbers(_, shape)) if shape.len() > 1)
            || matches!(&column.kind, Some(ColumnKind::Array { first: Some((_, shape)), .. }) if shape.len() > 1)
    };
    if left.iter().any(|(_, may_be)| *may_be) && !columns.iter().any(is_image) {
        let rest = columns.iter().filter(|column| column.kind.is_some());
        let rest: Vec<_> = rest.map(|column| field_name(&column.name, column.kind.as_ref())).collect();
        return Err(Error::new(ErrorKind::Unsupported, format!("the images are not read: {}", list(true)))
            .with_hint(format!("{read}; to read only the others, name them with {COLUMNS}: {}", rest.join(", "))));
    }
    if !left.is_empty() {
        tracing::warn!(columns = list(false), "columns are left out: they are not read");
    }
    Ok(())
}

/// The columns whose field depends on the samples: `bytes`, which may be images or anything else, lists, arrays, and
/// masks, which may have more than 8 bits.
fn unsure_columns(index: &Index, columns: &[Column], options: &OpenOptions) -> Vec<usize> {
    let encodings = index.shards.first().map_or(&[][..], |listed| &listed.column_encodings);
    let unsure = columns.iter().zip(encodings).map(|(column, encoding)| match column.kind {
        Some(ColumnKind::Bytes) => encoding == "bytes",
        Some(ColumnKind::List { .. } | ColumnKind::Array { .. }) => true,
        Some(ColumnKind::Image | ColumnKind::Pil) => options.is_mask(&column.name),
        _ => false,
    });
    unsure.enumerate().filter_map(|(at, unsure)| unsure.then_some(at)).collect()
}

/// Examines the first samples for the columns `unsure`. A column becomes an image if its first value that is not empty
/// begins like one. Arrays whose first axis differs in length become lists. Lists of any other number than one image,
/// and other arrays of several shapes, are left out and returned with the reason.
async fn look_into(
    kept: &KeptParts,
    objects: &[Object],
    shard: &Shard,
    unsure: &[usize],
    columns: &mut [Column],
) -> Result<Vec<(String, String)>> {
    let object = objects.binary_search_by(|o| o.name.as_str().cmp(&shard.name));
    let object = object.map(|at| &objects[at]).map_err(|_| bad("the shard is not there"))?;
    let Within { offsets, packed } = &shard.of;
    let offsets: Vec<u64> = offsets.iter().take(LOOKED_INTO + 1).map(|offset| u64::from(*offset)).collect();
    let mut open = unsure.to_vec();
    let mut left_out = Vec::new();
    let mut from = 0;
    while from + 1 < offsets.len() && !open.is_empty() {
        // Small samples are read together, a large one by itself.
        let fits = offsets[from + 1..].iter().take_while(|end| **end - offsets[from] <= LOOKED_INTO_BYTES).count();
        let to = from + fits.max(1);
        let range = offsets[from]..offsets[to];
        let bytes = shard::part(kept, object, packed.as_ref(), range).await?;
        for pair in offsets[from..=to].windows(2) {
            let sample = (pair[0] - offsets[from]) as usize..(pair[1] - offsets[from]) as usize;
            let cut = || bad("a sample is truncated").at_range(pair[0]..pair[1]);
            let sample = (sample.end <= bytes.len()).then(|| bytes.slice(sample)).ok_or_else(cut)?;
            let places = parse_sample(&sample, columns.iter().map(|column| column.size));
            let places = places.map_err(|e| e.at_range(pair[0]..pair[1]))?;
            open.retain(|at| {
                let column = &mut columns[*at];
                let (stays, why) = look_at(column, &sample.slice(places[*at].clone()));
                if let Some(why) = why {
                    column.kind = None;
                    left_out.push((column.name.clone(), why));
                }
                stays && column.kind.is_some()
            });
        }
        from = to;
    }
    Ok(left_out)
}

/// Adds the type that labels have in one more image. Damage is reported when the sample is read.
fn add_labels(labels: &mut Option<DType>, image: &Bytes, pil: bool) {
    let found = match pil {
        true => parse_pil(image, true)
            .map(|image| if let Value::Pixels { info, .. } = image { info.dtype } else { DType::U8 }),
        false => sniff::depth(image),
    };
    if let Ok(found) = found {
        *labels = Some(labels.map_or(found, |labels| sniff::wider(labels, found)));
    }
}

/// Whether another sample has to be examined for the column, and the reason if it can't be read. Damage is reported
/// when the sample is read.
fn look_at(column: &mut Column, value: &Bytes) -> (bool, Option<String>) {
    match &mut column.kind {
        Some(ColumnKind::List { head, pil, several, most }) => {
            if let Ok(images) = parse_list(value, *head) {
                *several |= images.len() != 1;
                *most = images.len().max(*most);
                images.iter().for_each(|image| add_labels(&mut column.labels, image, *pil));
            }
            (true, None)
        }
        Some(kind @ (ColumnKind::Image | ColumnKind::Pil)) => {
            add_labels(&mut column.labels, value, *kind == ColumnKind::Pil);
            (false, None)
        }
        Some(ColumnKind::Array { said, first, is_list }) => match (parse_array(value, *said), &first) {
            (Ok((dtype, shape, _)), Some((of, like)))
                if dtype == *of && differ_in_length(&shape, like) && (*is_list || is_usual_list(dtype, &shape)) =>
            {
                *is_list |= shape != *like;
                (true, None)
            }
            (Ok((dtype, shape, _)), None) => {
                *first = Some((dtype, shape));
                (true, None)
            }
            (Ok((dtype, shape, _)), Some((of, like))) if (dtype, &shape) != (*of, like) => {
                (false, Some(format!("{of} {like:?} in one sample, {dtype} {shape:?} in another")))
            }
            _ => (true, None),
        },
        _ => {
            match sniff::picture(value) {
                Some(found) if found.is_read => {
                    column.kind = Some(ColumnKind::Image);
                    add_labels(&mut column.labels, value, false);
                }
                Some(found) => {
                    let (column, kind) = (&column.name, found.name);
                    tracing::warn!(
                        column,
                        kind,
                        "images of a kind that no codec reads: their files are given as bytes"
                    );
                }
                None => {}
            }
            (value.is_empty(), None)
        }
    }
}

/// See [`Mds`].
#[derive(Debug)]
struct MdsDataset {
    shards: ShardTable<Within>,
    columns: Vec<Column>,
    /// The image columns that are masks.
    masks: HashSet<String>,
    schema: Schema,
    sizes: Sizes,
    shared: SharedBytes,
    fingerprint: Fingerprint,
}

impl MdsDataset {
    fn new(source: &Source, shards: Vec<Shard>, columns: Vec<Column>, options: &OpenOptions) -> Result<Self> {
        let shards = ShardTable::new(source, shards);
        if shards.len() == 0 {
            return Err(Error::new(ErrorKind::NotFound, "the shards hold no samples").at_object(source.url()));
        }
        let sizes = shards.shards().iter().flat_map(|shard| shard.of.offsets.windows(2).map(|pair| pair[1] - pair[0]));
        let sizes = Sizes::of(sizes.map(u64::from));
        // The same for compressed and uncompressed shards.
        let print = shards.print("mds", |print, shard| {
            let (name, size) = match &shard.of.packed {
                Some(packed) => (&packed.name, packed.length),
                None => (&shard.name, shard.size),
            };
            print.text(name).number(size).number(shard.records.end)
        });
        let mut shared = SharedBytes::default();
        for shard in shards.shards() {
            let Some(packed) = &shard.of.packed else { continue };
            shared.encoded = shared.encoded.max(shard.size);
            shared.one = shared.one.max(packed.length + shard.size);
            shared.all = shared.all.saturating_add(packed.length);
        }
        let field = |column: &Column| {
            let kind = match column.kind.clone()? {
                ColumnKind::List { several: true, most, .. } => {
                    // Each takes a word and a byte, or more.
                    let bound = sizes.largest as usize / 5;
                    return Some(options.picture(&column.name, column.labels).several(bound, most));
                }
                ColumnKind::Image | ColumnKind::Pil | ColumnKind::List { .. } => {
                    return Some(options.picture(&column.name, column.labels));
                }
                ColumnKind::Label(_) | ColumnKind::TextLabel => FieldKind::Label,
                ColumnKind::TextInt => FieldKind::Array { dtype: DType::I64, shape: vec![] },
                ColumnKind::TextFloat => FieldKind::Array { dtype: DType::F64, shape: vec![] },
                ColumnKind::Array { first, is_list, .. } => {
                    let (dtype, shape) = first?;
                    match shape.split_first() {
                        // The bytes of an item are not 0: opening looked.
                        Some((_, item)) if is_list => {
                            let most = sizes.largest as usize / dtype.len_bytes(item).unwrap_or(1).max(1);
                            FieldKind::List { dtype, item: item.to_vec(), most }
                        }
                        _ => FieldKind::Array { dtype, shape },
                    }
                }
                ColumnKind::Text => FieldKind::Text { most: column.size.map_or(sizes.largest, u64::from) as usize },
                ColumnKind::Bytes => FieldKind::Bytes { most: column.size.map_or(sizes.largest, u64::from) as usize },
                ColumnKind::Numbers(dtype, shape) => FieldKind::Array { dtype, shape },
            };
            Some(Field::new(field_name(&column.name, column.kind.as_ref()), kind))
        };
        let fields: Vec<Field> = columns.iter().filter_map(field).collect();
        let mut seen = HashSet::new();
        if let Some(twice) = fields.iter().find(|field| !seen.insert(field.name.clone())) {
            return Err(Error::new(ErrorKind::Unsupported, format!("two columns are the field `{}`", twice.name))
                .at_object(source.url())
                .with_hint(format!("choose one of them with {COLUMNS}")));
        }
        let schema = Schema::new(fields).with_classes(options.classes.clone());
        let fingerprint = print.finish();
        let masks = columns.iter().filter(|column| options.is_mask(&column.name));
        let masks = masks.map(|column| column.name.clone()).collect();
        Ok(Self { shards, columns, masks, schema, sizes, shared, fingerprint })
    }

    /// The shard of a record, and its range in it.
    fn find(&self, record: u64) -> Result<(&Shard, Range<u64>)> {
        let (shard, i) = self.shards.find(record)?;
        let offsets = &shard.of.offsets;
        Ok((shard, offsets[i].into()..offsets[i + 1].into()))
    }

    fn value(&self, name: &str, kind: &ColumnKind, data: Bytes) -> Result<Value> {
        let number = |bytes: [u8; 8]| Value::Array(Bytes::copy_from_slice(&bytes));
        Ok(match kind {
            ColumnKind::Image => Value::Encoded(data),
            ColumnKind::Pil => parse_pil(&data, self.masks.contains(name))?,
            ColumnKind::List { head, pil, several, .. } => {
                let images = parse_list(&data, *head)?;
                let image = |image: &Bytes| match pil {
                    true => parse_pil(image, self.masks.contains(name)),
                    false => Ok(Value::Encoded(image.clone())),
                };
                match (&images[..], several) {
                    ([one], false) => image(one)?,
                    (all, true) => Value::Images(all.iter().map(image).collect::<Result<_>>()?),
                    (images, false) => {
                        let what = format!("a list of {} images, but one in the first samples", images.len());
                        let list = FIELD.to_pair(name, "list");
                        return Err(Error::new(ErrorKind::Unsupported, what).with_hint(format!(
                            "set {list} if samples have different numbers of images, or set {SKIP}"
                        )));
                    }
                }
            }
            ColumnKind::TextLabel => Value::Label(self.schema.label(parse_text(&data, "label")?)?),
            ColumnKind::TextInt => number(parse_text::<i64>(&data, "integer of 64 bits")?.to_ne_bytes()),
            ColumnKind::TextFloat => number(parse_text::<f64>(&data, "number")?.to_ne_bytes()),
            ColumnKind::Array { said, first, is_list } => {
                let (dtype, shape, at) = parse_array(&data, *said)?;
                let want = shape.iter().try_fold(dtype.size(), |bytes, n| bytes.checked_mul(*n));
                if want != Some(data.len() - at) {
                    return Err(bad(format!("{} bytes of {dtype} {shape:?}", data.len() - at)));
                }
                match first {
                    Some((of, like)) if *is_list && *of == dtype && differ_in_length(&shape, like) => {
                        Value::List(data.slice(at..))
                    }
                    Some((of, like)) if !is_list && (*of, like) == (dtype, &shape) => Value::Array(data.slice(at..)),
                    _ => {
                        let is_longer =
                            first.as_ref().is_some_and(|(of, like)| *of == dtype && differ_in_length(&shape, like));
                        let first = first.as_ref().map_or(String::new(), |(of, like)| format!("{of} {like:?}"));
                        let what = format!("an array of {dtype} {shape:?}, but of {first} in the first sample");
                        let list = match is_longer {
                            true => {
                                format!("set {} if the first axis may have any length, ", FIELD.to_pair(name, "list"))
                            }
                            false => String::new(),
                        };
                        let error = Error::new(ErrorKind::Unsupported, what);
                        return Err(error.with_hint(format!("{list}omit the field with {COLUMNS}, or set {SKIP}")));
                    }
                }
            }
            ColumnKind::Bytes | ColumnKind::Text => Value::Bytes(data),
            ColumnKind::Label(dtype) => Value::Label(self.schema.label(parse_label(&data, *dtype)?)?),
            ColumnKind::Numbers(dtype, shape) => {
                let want = shape.iter().try_fold(dtype.size(), |bytes, n| bytes.checked_mul(*n));
                match want == Some(data.len()) {
                    true => Value::Array(data),
                    false => return Err(bad(format!("{} bytes of {dtype} {shape:?}", data.len()))),
                }
            }
        })
    }
}

impl Dataset for MdsDataset {
    fn len(&self) -> u64 {
        self.shards.len()
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn format(&self) -> &str {
        "mds"
    }

    fn plan(&self, record: u64, _rng: SampleRng) -> Result<ReadPlan> {
        let (at, shard) = self.shards.find_at(record)?;
        if let Some(packed) = &shard.of.packed {
            let whole = self.shards.extent(shard, 0..shard.size);
            return Ok(ReadPlan::of_shared(vec![SharedRead::new(at as u64, [whole], packed.length)]));
        }
        let (shard, range) = self.find(record)?;
        Ok(ReadPlan::one(self.shards.extent(shard, range)))
    }

    fn parse(&self, record: u64, _plan: &ReadPlan, bytes: &[Bytes]) -> Result<Sample> {
        let (shard, range) = self.find(record)?;
        let at = |e: Error| e.at_stage(Stage::Parse).at_object(self.shards.name_of(shard)).at_range(range.clone());
        let mut bytes = bytes.first().ok_or_else(|| at(bad("the sample is truncated")))?.clone();
        if shard.of.packed.is_some() {
            let sample = bytes.get(range.start as usize..range.end as usize);
            // Copied, so that the shard can be freed.
            bytes = sample.map(Bytes::copy_from_slice).ok_or_else(|| at(bad("the shard is truncated")))?;
        }
        let places = parse_sample(&bytes, self.columns.iter().map(|column| column.size)).map_err(at)?;
        let columns = self.columns.iter().zip(places).filter_map(|(c, place)| Some((c, c.kind.as_ref()?, place)));
        let value = |(column, kind, place): (&Column, &ColumnKind, Range<usize>)| {
            let named = |e: Error| at(e.at_object(format!("{}, {}", self.object(record), column.name)));
            self.value(&column.name, kind, bytes.slice(place)).map_err(named)
        };
        Ok(Sample::new(columns.map(value).collect::<Result<Vec<_>>>()?))
    }

    fn decode_shared(&self, key: u64, bytes: &[Bytes]) -> Result<Bytes> {
        let shard = usize::try_from(key).ok().and_then(|key| self.shards.shards().get(key));
        let packed = shard.and_then(|shard| Some((shard, shard.of.packed.as_ref()?)));
        let (shard, packed) = packed
            .ok_or_else(|| Error::new(ErrorKind::Internal, format!("the dataset has no compressed shard {key}")))?;
        let bytes = bytes.first().ok_or_else(|| bad("the shard was not read"));
        let unpacked = bytes.and_then(|bytes| packed.unpack(bytes, &shard.of.offsets));
        unpacked.map_err(|e| e.at_stage(Stage::Decode).at_object(self.shards.name_of(shard)))
    }

    fn shared_bytes(&self) -> SharedBytes {
        self.shared
    }

    fn object(&self, record: u64) -> String {
        self.shards.object(record, "mds")
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

    /// They are parts of the sample.
    fn usual_varying(&self) -> Option<u64> {
        Some(self.sizes.usual)
    }

    fn resident_bytes(&self) -> u64 {
        self.shards.shards().iter().map(|shard| shard.of.offsets.len() as u64 * 4).sum()
    }

    fn groups(&self) -> Option<Arc<[u64]>> {
        Some(self.shards.groups())
    }

    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}

#[cfg(test)]
mod tests;
