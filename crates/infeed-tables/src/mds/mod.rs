//! MDS shards of MosaicML's streaming: `index.json` and `shard.00000.mds`, ….
//!
//! A shard is `u32 samples, u32 offsets[samples + 1], JSON, samples`, little-endian; a sample is a `u32` size for each column
//! whose size varies, then the columns. The offsets of a shard are read when it is opened, samples by range.
//!
//! A shard that is there only compressed (zstd, gzip, bzip2, Snappy; feature `packed`) is read whole and unpacked once for
//! all its samples, as long as the loader's memory holds it; its beginning, with the offsets, in opening too. Then the
//! hashes that the index names are checked, of the shard and of its compressed file: MD5, SHA-1, SHA-2 and xxHash. Ranges
//! of other shards have no hashes that could be checked.
//!
//! | encoding | is |
//! |---|---|
//! | `jpeg`, `png` | an image, by its first bytes |
//! | `pil` | an image: pixels of Pillow's modes `RGB`, `RGBA`, `L`, `LA`, `1`, `I;16` and `F` |
//! | `int`, `int64` of a column `label`, `class`, `cls`, `target` or `y` | a label |
//! | `int`, `int8` … `int64`, `uint8` … `uint64`, `float16` … `float64` | one number |
//! | `ndarray:TYPE:SHAPE` | an array of these types |
//! | `bytes` | an image, when the first sample's begins like one; else bytes |
//! | `str`, `json` | bytes |
//!
//! Other columns are left out, which a warning says once.

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
        setting::{COLUMNS, SPLIT},
    },
    fingerprint::Fingerprint,
    random::SampleRng,
    report::Stage,
};
use infeed_data::{
    format::{Format, OpenOption, OpenOptions},
    objects::nothing_to_read,
    record::{Dataset, ReadPlan, Sample, SharedBytes, SharedRead, Value},
    schema::{Field, FieldKind, Schema},
    sizes::Sizes,
    sniff,
    table::ShardTable,
};
use infeed_store::{Object, Source};

use self::{
    layout::{Column, Index, Kind, Listed, bad, field_name, kind_of, parse_pil, parse_sample},
    shard::{Finder, Shard, Within},
};

const INDEX: &str = "index.json";
/// Shards whose offsets are read at a time.
const AT_A_TIME: usize = 16;
/// Samples that are asked what their bytes are, until none is empty.
const LOOKED_INTO: usize = 8;

/// The format.
#[derive(Clone, Copy, Debug)]
pub struct Mds;

impl Format for Mds {
    fn name(&self) -> &'static str {
        "mds"
    }

    fn recognises(&self, objects: &[Object]) -> bool {
        let shard = |o: &Object| o.name.ends_with(".mds") || o.name.contains(".mds.");
        objects.iter().any(shard) && objects.iter().any(|o| o.name == INDEX || o.name.ends_with("/index.json"))
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
                    [] => nothing_to_read(source, &objects, "index.json of MDS shards"),
                    _ => Error::config(format!("MDS shards lie in {}", splits.join(", ")))
                        .at_object(source.url())
                        .hint(format!("open one of these folders{}", SPLIT.or_set(splits[0]))),
                });
            };
            let at = |e: Error| e.at_object(source.display_name(&index.name));
            let bytes = index.extent(source).read().await?;
            let listed: Index = serde_json::from_slice(&bytes)
                .map_err(|e| at(bad("index.json is not what MDS shards have").with_source(e)))?;
            let mut columns = columns_of(&listed, options).map_err(at)?;
            let mut finder =
                Finder { source, objects: &objects, folder: &folder, unknown: BTreeSet::new(), unchecked: false };
            let mut reads = Vec::new();
            for listed in listed.shards.iter().filter(|listed| listed.samples > 0) {
                let (object, packed) = finder.find(listed)?;
                reads.push(shard::read(source, object, packed, listed.samples).boxed());
            }
            let Finder { unknown, unchecked, .. } = finder;
            if !unknown.is_empty() {
                let hashes = unknown.into_iter().collect::<Vec<_>>().join(", ");
                tracing::warn!(hashes, "hashes of index.json that are not known and not checked");
            }
            if unchecked {
                tracing::info!(
                    "hashes of index.json are of whole shards: those that are read by range are not checked"
                );
            }
            let shards: Vec<Shard> = stream::iter(reads).buffered(AT_A_TIME).try_collect().await?;
            let plain = bytes_columns(&listed, &columns);
            if let Some(first) = shards.first().filter(|_| !plain.is_empty()) {
                let named = |e: Error| e.at_object(source.display_name(&first.name));
                look_into(source, &objects, first, &plain, &mut columns).await.map_err(named)?;
            }
            Ok(Arc::new(MdsDataset::new(source, shards, columns, options)?) as Arc<dyn Dataset>)
        }
        .boxed()
    }
}

/// The columns, which are to be those of each shard.
fn columns_of(index: &Index, options: &OpenOptions) -> Result<Vec<Column>> {
    let mut all: Option<Vec<Column>> = None;
    let mut left_out = Vec::new();
    for listed in &index.shards {
        let mut left = Vec::new();
        let Listed { format, column_names: names, column_encodings: encodings, column_sizes: sizes, .. } = listed;
        if !["mds", ""].contains(&format.as_str()) {
            return Err(Error::new(ErrorKind::Unsupported, format!("shards of the format `{format}`"))
                .hint("write them with MDSWriter"));
        }
        if names.len() != encodings.len() || names.len() != sizes.len() {
            return Err(bad("a shard has not as many column names, encodings and sizes"));
        }
        let column = |((name, encoding), size): ((&String, &String), &Option<u32>)| {
            let kind = kind_of(name, encoding);
            let field = field_name(name, kind.as_ref());
            let wanted = options.columns.as_ref().is_none_or(|names| names.iter().any(|n| n == name || n == field));
            let kind = kind.filter(|_| wanted);
            if kind.is_none() && wanted {
                left.push(format!("{name} ({encoding})"));
            }
            Column { name: name.clone(), size: *size, kind }
        };
        let columns: Vec<Column> = names.iter().zip(encodings).zip(sizes).map(column).collect();
        match &all {
            None => (all, left_out) = (Some(columns), left),
            Some(all) if *all == columns => {}
            Some(_) => {
                let what = format!("`{}` has other columns than the first shard", listed.raw_data.basename);
                return Err(Error::new(ErrorKind::Unsupported, what).hint("open the kinds of shards apart"));
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
        return Err(Error::new(ErrorKind::NotFound, format!("no column `{unknown}`"))
            .hint(format!("there are {}", names.join(", "))));
    }
    if !left_out.is_empty() && options.columns.is_none() {
        tracing::warn!(columns = left_out.join(", "), "columns that are left out: their encodings are not read");
    }
    match columns.iter().any(|column| column.kind.is_some()) {
        true => Ok(columns),
        false => Err(Error::new(ErrorKind::Unsupported, "no column of a kind that is read")
            .hint("jpeg, png, pil, int, str, json, bytes and ndarray:TYPE:SHAPE are")),
    }
}

/// The columns of the encoding `bytes` that are read, which may be images or anything.
fn bytes_columns(index: &Index, columns: &[Column]) -> Vec<usize> {
    let encodings = index.shards.first().map_or(&[][..], |listed| &listed.column_encodings);
    let plain = columns.iter().zip(encodings).map(|(column, encoding)| column.kind.is_some() && encoding == "bytes");
    plain.enumerate().filter_map(|(at, plain)| plain.then_some(at)).collect()
}

/// Makes images of those of the columns `plain` whose first value, if there is one in the first samples, begins like one.
async fn look_into(
    source: &Source,
    objects: &[Object],
    shard: &Shard,
    plain: &[usize],
    columns: &mut [Column],
) -> Result<()> {
    let object = objects.binary_search_by(|o| o.name.as_str().cmp(&shard.name));
    let object = object.map(|at| &objects[at]).map_err(|_| bad("the shard is not there"))?;
    let Within { offsets, packed } = &shard.of;
    let mut left = plain.to_vec();
    for pair in offsets.windows(2).take(LOOKED_INTO) {
        let range = u64::from(pair[0])..u64::from(pair[1]);
        let bytes = shard::part(source, object, packed.as_ref(), range.clone()).await?;
        let places = parse_sample(&bytes, columns.iter().map(|column| column.size)).map_err(|e| e.at_range(range))?;
        left.retain(|at| {
            let value = &bytes[places[*at].clone()];
            if let Some(found) = sniff::picture(value) {
                if found.is_read {
                    columns[*at].kind = Some(Kind::Image);
                } else {
                    let column = &columns[*at].name;
                    tracing::warn!(
                        column,
                        kind = found.name,
                        "images of a kind that no codec reads: their files are given as bytes"
                    );
                }
            }
            value.is_empty()
        });
        if left.is_empty() {
            break;
        }
    }
    Ok(())
}

/// See [`Mds`].
#[derive(Debug)]
struct MdsDataset {
    shards: ShardTable<Within>,
    columns: Vec<Column>,
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
        // The same however the shards are compressed.
        let print = shards.print("mds", |print, shard| {
            let (name, size) = match &shard.of.packed {
                Some(packed) => (&packed.name, packed.length),
                None => (&shard.name, shard.size),
            };
            print.text(name).number(size).number(shard.records.end)
        });
        let mut shared = SharedBytes::default();
        for shard in shards.shards() {
            let length = shard.of.packed.as_ref().map_or(0, |packed| packed.length);
            shared.one = shared.one.max(if length == 0 { 0 } else { length + shard.size });
            shared.all = shared.all.saturating_add(length);
        }
        let field = |column: &Column| {
            let kind = match column.kind.clone()? {
                Kind::Image | Kind::Pil => return Some(Field::picture(&*column.name)),
                Kind::Label => FieldKind::Label,
                Kind::Bytes => FieldKind::Bytes { most: column.size.map_or(sizes.largest, u64::from) as usize },
                Kind::Numbers(dtype, shape) => FieldKind::Array { dtype, shape },
            };
            Some(Field::new(field_name(&column.name, column.kind.as_ref()), kind))
        };
        let fields: Vec<Field> = columns.iter().filter_map(field).collect();
        let mut seen = HashSet::new();
        if let Some(twice) = fields.iter().find(|field| !seen.insert(field.name.clone())) {
            return Err(Error::new(ErrorKind::Unsupported, format!("two columns are the field `{}`", twice.name))
                .at_object(source.url())
                .hint(format!("name those to read with {COLUMNS}")));
        }
        let schema = Schema::new(fields).with_classes(options.classes.clone());
        let fingerprint = print.finish();
        Ok(Self { shards, columns, schema, sizes, shared, fingerprint })
    }

    /// Shard and range.
    fn find(&self, record: u64) -> Result<(&Shard, Range<u64>)> {
        let (shard, i) = self.shards.find(record)?;
        let offsets = &shard.of.offsets;
        Ok((shard, offsets[i].into()..offsets[i + 1].into()))
    }

    fn value(&self, kind: &Kind, data: Bytes) -> Result<Value> {
        Ok(match kind {
            Kind::Image => Value::Encoded(data),
            Kind::Pil => parse_pil(&data)?,
            Kind::Bytes => Value::Bytes(data),
            Kind::Label => {
                let label = data[..].try_into().map(i64::from_le_bytes);
                let label = label.map_err(|_| bad(format!("a label of {} bytes, 8 belong there", data.len())))?;
                Value::Label(self.schema.label(label)?)
            }
            Kind::Numbers(dtype, shape) => {
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
        let mut bytes = bytes.first().ok_or_else(|| at(bad("the sample is cut")))?.clone();
        if shard.of.packed.is_some() {
            let sample = bytes.get(range.start as usize..range.end as usize);
            // Copied, so that the shard may go.
            bytes = sample.map(Bytes::copy_from_slice).ok_or_else(|| at(bad("the shard is cut")))?;
        }
        let places = parse_sample(&bytes, self.columns.iter().map(|column| column.size)).map_err(at)?;
        let columns = self.columns.iter().zip(places).filter_map(|(c, place)| Some((c, c.kind.as_ref()?, place)));
        let value = |(column, kind, place): (&Column, &Kind, Range<usize>)| {
            let named = |e: Error| at(e.at_object(format!("{}, {}", self.object(record), column.name)));
            self.value(kind, bytes.slice(place)).map_err(named)
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
