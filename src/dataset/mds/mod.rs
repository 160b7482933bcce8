//! MDS shards of MosaicML's streaming: `index.json` and `shard.00000.mds`, ….
//!
//! A shard is `u32 samples, u32 offsets[samples + 1], JSON, samples`, little-endian; a sample is a `u32` size for each column
//! whose size varies, then the columns. The offsets of a shard are read when it is opened, samples by range.
//!
//! | encoding | is |
//! |---|---|
//! | `jpeg`, `png` | an image, by its first bytes |
//! | `int`, `int64` of a column `label`, `class`, `cls`, `target` or `y` | a label |
//! | `int`, `int8` … `int64`, `uint8` … `uint64`, `float16` … `float64` | one number |
//! | `ndarray:TYPE:SHAPE` | an array of these types |
//! | `str`, `json`, `bytes` | bytes |
//!
//! Other columns are left out. Compressed shards are refused: nothing within them can be read alone.

mod layout;

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    sync::Arc,
};

use bytes::Bytes;
use futures::{FutureExt, StreamExt, TryStreamExt, future::BoxFuture, stream};

use self::layout::{Column, Index, Kind, Listed, bad, field_name, kind_of, parse_offsets, parse_sample};
use super::{
    format::{Format, OpenOption, OpenOptions},
    objects::nothing_to_read,
    record::{Dataset, ReadPlan, Sample, Value},
    schema::{Field, FieldKind, Schema},
    table::{ShardTable, Stored},
};
use crate::{
    error::{Error, ErrorKind, Result},
    fingerprint::Fingerprint,
    random::SampleRng,
    report::Stage,
    source::{Object, Source},
};

const INDEX: &str = "index.json";
/// Shards whose offsets are read at a time.
const AT_A_TIME: usize = 16;

/// The format.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mds;

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
                        .hint(format!("open one of these folders, or set split(\"{}\")", splits[0])),
                });
            };
            let at = |e: Error| e.at_object(source.display_name(&index.name));
            let bytes = index.extent(source).read().await?;
            let listed: Index = serde_json::from_slice(&bytes)
                .map_err(|e| at(bad("index.json is not what MDS shards have").with_source(e)))?;
            let columns = columns_of(&listed, options).map_err(at)?;
            let mut reads = Vec::new();
            for listed in listed.shards.iter().filter(|listed| listed.samples > 0) {
                let name = format!("{folder}{}", listed.raw_data.basename);
                let packed = listed.compression.as_deref().filter(|kind| !kind.is_empty());
                let object = match (by_name(&name), packed) {
                    (Some(object), _) => object,
                    (None, Some(kind)) => {
                        let what = format!("a shard compressed with {kind} can't be read at any place");
                        return Err(Error::new(ErrorKind::Unsupported, what)
                            .at_object(source.display_name(&name))
                            .hint("unpack the shards beside index.json, or write them with compression=None"));
                    }
                    (None, None) => {
                        return Err(Error::new(ErrorKind::NotFound, "a shard that index.json names is not there")
                            .at_object(source.display_name(&name)));
                    }
                };
                if object.size != listed.raw_data.bytes {
                    let what = format!("{} bytes, index.json says {}", object.size, listed.raw_data.bytes);
                    return Err(bad(what).at_object(source.display_name(&name)));
                }
                reads.push(read_shard(source, object, listed.samples).boxed());
            }
            let shards: Vec<Shard> = stream::iter(reads).buffered(AT_A_TIME).try_collect().await?;
            Ok(Arc::new(MdsDataset::new(source, shards, columns, options)?) as Arc<dyn Dataset>)
        }
        .boxed()
    }
}

/// The columns, which are to be those of each shard.
fn columns_of(index: &Index, options: &OpenOptions) -> Result<Vec<Column>> {
    let mut all: Option<Vec<Column>> = None;
    for listed in &index.shards {
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
                tracing::info!(column = name, encoding, "a column that is left out");
            }
            Column { name: name.clone(), size: *size, kind }
        };
        let columns: Vec<Column> = names.iter().zip(encodings).zip(sizes).map(column).collect();
        match &all {
            None => all = Some(columns),
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
    match columns.iter().any(|column| column.kind.is_some()) {
        true => Ok(columns),
        false => Err(Error::new(ErrorKind::Unsupported, "no column of a kind that is read")
            .hint("jpeg, png, int, str, json, bytes and ndarray:TYPE:SHAPE are")),
    }
}

/// Where the samples of a shard lie: the offset of each, and where one more would begin.
type Shard = Stored<Vec<u32>>;

async fn read_shard(source: &Source, object: &Object, samples: u32) -> Result<Shard> {
    let mut extent = object.extent(source);
    extent.range = 0..8 + 4 * u64::from(samples);
    if extent.range.end > object.size {
        let what = format!("index.json says {samples} samples, whose offsets alone are longer than the shard");
        return Err(bad(what).at_object(source.display_name(&object.name)).at_range(0..object.size));
    }
    let bytes = extent.read().await?;
    let offsets = parse_offsets(&bytes, samples, object.size);
    let offsets = offsets.map_err(|e| e.at_object(source.display_name(&object.name)).at_range(extent.range))?;
    Ok(Stored::new(object, samples.into(), offsets))
}

/// See [`Mds`].
#[derive(Debug)]
struct MdsDataset {
    shards: ShardTable<Vec<u32>>,
    columns: Vec<Column>,
    schema: Schema,
    largest: u64,
    fingerprint: Fingerprint,
}

impl MdsDataset {
    fn new(source: &Source, shards: Vec<Shard>, columns: Vec<Column>, options: &OpenOptions) -> Result<Self> {
        let shards = ShardTable::new(source, shards);
        if shards.len() == 0 {
            return Err(Error::new(ErrorKind::NotFound, "the shards hold no samples").at_object(source.url()));
        }
        let sizes = shards.shards().iter().flat_map(|shard| shard.of.windows(2).map(|pair| pair[1] - pair[0]));
        let largest = sizes.max().unwrap_or(0);
        let print =
            shards.print("mds", |print, shard| print.text(&shard.name).number(shard.size).number(shard.records.end));
        let field = |column: &Column| {
            let kind = match column.kind.clone()? {
                Kind::Image => FieldKind::Image { channels: 3, size: None, dtype: None },
                Kind::Label => FieldKind::Label,
                Kind::Bytes => FieldKind::Bytes { most: column.size.unwrap_or(largest) as usize },
                Kind::Numbers(dtype, shape) => FieldKind::Array { dtype, shape },
            };
            Some(Field::new(field_name(&column.name, column.kind.as_ref()), kind))
        };
        let fields: Vec<Field> = columns.iter().filter_map(field).collect();
        let mut seen = HashSet::new();
        if let Some(twice) = fields.iter().find(|field| !seen.insert(field.name.clone())) {
            return Err(Error::new(ErrorKind::Unsupported, format!("two columns are the field `{}`", twice.name))
                .at_object(source.url())
                .hint("name those to read with columns(…)"));
        }
        let schema = Schema::new(fields).with_classes(options.classes.clone());
        let fingerprint = print.finish();
        Ok(Self { shards, columns, schema, largest: largest.into(), fingerprint })
    }

    /// Shard and range.
    fn find(&self, record: u64) -> Result<(&Shard, Range<u64>)> {
        let (shard, i) = self.shards.find(record)?;
        Ok((shard, shard.of[i].into()..shard.of[i + 1].into()))
    }

    fn value(&self, kind: &Kind, data: Bytes) -> Result<Value> {
        Ok(match kind {
            Kind::Image => Value::Encoded(data),
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
        let (shard, range) = self.find(record)?;
        Ok(ReadPlan::one(self.shards.extent(shard, range)))
    }

    fn parse(&self, record: u64, _plan: &ReadPlan, bytes: &[Bytes]) -> Result<Sample> {
        let (shard, range) = self.find(record)?;
        let at = |e: Error| e.at_stage(Stage::Parse).at_object(self.shards.name_of(shard)).at_range(range.clone());
        let bytes = bytes.first().ok_or_else(|| at(bad("the sample is cut")))?;
        let places = parse_sample(bytes, self.columns.iter().map(|column| column.size)).map_err(at)?;
        let columns = self.columns.iter().zip(places).filter_map(|(c, place)| Some((c, c.kind.as_ref()?, place)));
        let value = |(column, kind, place): (&Column, &Kind, Range<usize>)| {
            let named = |e: Error| at(e.at_object(format!("{}, {}", self.object(record), column.name)));
            self.value(kind, bytes.slice(place)).map_err(named)
        };
        Ok(Sample::new(columns.map(value).collect::<Result<Vec<_>>>()?))
    }

    fn object(&self, record: u64) -> String {
        self.shards.object(record, "mds")
    }

    fn needs_fetch(&self) -> bool {
        self.shards.needs_fetch()
    }

    fn largest_read(&self) -> u64 {
        self.largest
    }

    fn resident_bytes(&self) -> u64 {
        self.shards.shards().iter().map(|shard| shard.of.len() as u64 * 4).sum()
    }

    fn groups(&self) -> Option<Arc<[u64]>> {
        Some(self.shards.groups())
    }

    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;
    use object_store::{ObjectStoreExt, memory::InMemory, path::Path};
    use proptest::prelude::*;

    use super::*;
    use crate::dataset::{Open, dataset_contract, open_source};

    /// Image, label, text, two floats and a pickle, as MDSWriter lays them out: columns in the order of their names.
    const COLUMNS: [(&str, &str, Option<u32>); 5] = [
        ("box", "ndarray:float32:2", Some(8)),
        ("class", "int", Some(8)),
        ("image", "jpeg", None),
        ("odd", "pkl", None),
        ("text", "str", None),
    ];

    fn sample(i: u8) -> Vec<u8> {
        let (image, odd, text) = (vec![i; 100 + usize::from(i)], vec![1, 2], format!("text {i}"));
        let sizes = [image.len(), odd.len(), text.len()].map(|n| (n as u32).to_le_bytes()).concat();
        let floats = [0.5f32.to_le_bytes(), f32::from(i).to_le_bytes()].concat();
        [&sizes[..], &floats, &i64::from(i).to_le_bytes(), &image, &odd, text.as_bytes()].concat()
    }

    fn shard(numbers: Range<u8>) -> Vec<u8> {
        let samples: Vec<Vec<u8>> = numbers.map(sample).collect();
        let config = b"{\"version\": 2}";
        let mut at = (8 + 4 * samples.len() + config.len()) as u32;
        let mut out = (samples.len() as u32).to_le_bytes().to_vec();
        for sample in &samples {
            out.extend_from_slice(&at.to_le_bytes());
            at += sample.len() as u32;
        }
        out.extend_from_slice(&at.to_le_bytes());
        out.extend_from_slice(config);
        out.extend(samples.concat());
        out
    }

    fn open(shards: &[(Vec<u8>, u32)], change: impl Fn(&mut serde_json::Value)) -> Open {
        let store = InMemory::new();
        let put = |name: &str, bytes: Vec<u8>| block_on(store.put(&Path::from(name), bytes.into())).unwrap();
        let mut listed = Vec::new();
        for (i, (bytes, samples)) in shards.iter().enumerate() {
            let name = format!("shard.{i:05}.mds");
            put(&name, bytes.clone());
            listed.push(serde_json::json!({
                "format": "mds", "version": 2, "samples": samples, "compression": null, "zip_data": null,
                "column_names": COLUMNS.map(|c| c.0), "column_encodings": COLUMNS.map(|c| c.1),
                "column_sizes": COLUMNS.map(|c| c.2), "raw_data": {"basename": name, "bytes": bytes.len(), "hashes": {}},
            }));
        }
        let mut index = serde_json::json!({"version": 2, "shards": listed});
        change(&mut index);
        put("index.json", index.to_string().into());
        open_source(Source::from_store(Arc::new(store), Path::default(), "test://x"))
    }

    #[test]
    fn samples_are_cut_into_columns() {
        let dataset = block_on(open(&[(shard(0..3), 3), (shard(3..8), 5)], |_| ()).into_future()).unwrap();
        block_on(dataset_contract(&*dataset)).unwrap();
        assert_eq!((dataset.len(), dataset.format(), &dataset.groups().unwrap()[..]), (8, "mds", &[0, 3][..]));
        // The identity that states of old runs hold.
        let sizes = [shard(0..3), shard(3..8)].map(|shard| shard.len() as u64);
        let print = Fingerprint::of("mds").number(2).text("shard.00000.mds").number(sizes[0]).number(3);
        assert_eq!(dataset.fingerprint(), print.text("shard.00001.mds").number(sizes[1]).number(8).finish());
        let names: Vec<_> = dataset.schema().fields.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["box", "label", "image", "text"]);
        let plan = dataset.plan(5, SampleRng::new(0, 0, 5)).unwrap();
        let sample = dataset.parse(5, &plan, &[block_on(plan.extents[0].read()).unwrap()]).unwrap();
        let floats = [0.5f32.to_ne_bytes(), 5f32.to_ne_bytes()].concat();
        assert!(matches!(&sample.values[0], Value::Array(values) if values[..] == floats));
        assert!(matches!(&sample.values[1], Value::Label(5)));
        assert!(matches!(&sample.values[2], Value::Encoded(image) if image[..] == [5; 105]));
        assert!(matches!(&sample.values[3], Value::Bytes(text) if text == "text 5"));
        let some = open(&[(shard(0..3), 3)], |_| ()).columns(["image"]);
        assert_eq!(block_on(some.into_future()).unwrap().schema().fields.len(), 1);
        let label = open(&[(shard(0..3), 3)], |_| ()).columns(["label"]);
        assert_eq!(block_on(label.into_future()).unwrap().schema().fields[0].name, "label");
        let unknown = open(&[(shard(0..3), 3)], |_| ()).columns(["image", "depth"]);
        let error = block_on(unknown.into_future()).unwrap_err().to_string();
        assert!(error.contains("no column `depth`") && error.contains("box, class, image"), "{error}");
    }

    #[test]
    fn what_is_wrong_is_told() {
        let one = shard(0..3);
        let fails = |bytes: &[u8], samples, change: fn(&mut serde_json::Value)| {
            block_on(open(&[(bytes.to_vec(), samples)], change).into_future()).unwrap_err().to_string()
        };
        assert!(fails(&one, 4, |_| ()).contains("holds 3 samples, index.json says 4"));
        assert!(fails(&one[..one.len() - 1], 3, |_| ()).contains("do not ascend within"));
        assert!(fails(&one[..10], 3, |_| ()).contains("longer than the shard"));
        assert!(fails(&one, u32::MAX, |_| ()).contains("longer than the shard"));
        assert!(fails(&one, 3, |i| i["shards"][0]["raw_data"]["bytes"] = 7.into()).contains("index.json says 7"));
        assert!(fails(&one, 3, |i| i["shards"][0]["column_sizes"] = serde_json::json!([])).contains("not as many"));
        assert!(fails(&one, 3, |i| i["shards"] = 7.into()).contains("not what MDS shards have"));
        let error = fails(&one, 3, |i| {
            i["shards"][0]["compression"] = "zstd".into();
            i["shards"][0]["raw_data"]["basename"] = "gone.mds".into();
        });
        assert!(error.contains("compressed with zstd") && error.contains("compression=None"), "{error}");
        let error = fails(&one, 3, |i| i["shards"][0]["raw_data"]["basename"] = "gone.mds".into());
        assert!(error.contains("is not there") && error.contains("gone.mds"), "{error}");
    }

    proptest! {
        #[test]
        fn any_bytes_give_columns_or_an_error(
            raw in prop::collection::vec(any::<u8>(), 0..80), at in 0usize..150, flip in any::<u8>(), end in 0usize..200,
        ) {
            let sizes = || COLUMNS.iter().map(|column| column.2);
            let mut damaged = sample(9);
            let at = at.min(damaged.len() - 1);
            damaged[at] ^= flip;
            damaged.truncate(end);
            for bytes in [&raw, &damaged] {
                if let Ok(places) = parse_sample(bytes, sizes()) {
                    prop_assert!(places.iter().all(|place| place.start <= place.end && place.end <= bytes.len()));
                }
                let _ = parse_offsets(bytes, 3, 1000);
            }
        }
    }
}
