//! TFRecord files of `tf.train.Example`.
//!
//! A record is `u64 length, u32 crc of it, content, u32 crc of it`, little-endian, the crcs CRC-32C turned and shifted
//! ("masked"). Both are checked, the first when the file is indexed, the second when a record is read. The content is a
//! protocol buffer: a map from names to lists of bytes, floats or integers.
//!
//! Files are indexed by one pass over the lengths: local ones by a small read for each record, remote ones in long ranges.

mod example;
mod framing;

use std::{collections::HashSet, sync::Arc};

use bytes::Bytes;
use futures::{FutureExt, StreamExt, TryStreamExt, future::BoxFuture, stream};

use self::{
    example::{Feature, parse_example},
    framing::{content_of, cut, index},
};
use super::{
    format::{Format, OpenOption, OpenOptions},
    names,
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
    source::{Extent, Object, Source},
    types::DType,
};

/// Files of a remote store that are indexed at a time.
const AT_A_TIME: usize = 8;

/// The format.
#[derive(Clone, Copy, Debug)]
pub(super) struct TfRecord;

fn is_tfrecord(name: &str) -> bool {
    let base = names::base(name).to_ascii_lowercase();
    // `train-00017-of-01024` is ImageNet's own, without an ending.
    let numbered = base.rsplit_once("-of-").is_some_and(|(start, count)| {
        let number = start.rsplit('-').next().unwrap_or_default();
        let digits = |text: &str| text.len() >= 4 && text.bytes().all(|b| b.is_ascii_digit());
        digits(count) && digits(number)
    });
    base.ends_with(".tfrecord") || base.ends_with(".tfrecords") || base.contains(".tfrecord-") || numbered
}

impl Format for TfRecord {
    fn name(&self) -> &'static str {
        "tfrecord"
    }

    fn recognises(&self, objects: &[Object]) -> bool {
        objects.iter().any(|o| is_tfrecord(&o.name))
    }

    fn options(&self) -> &'static [OpenOption] {
        &[OpenOption::Columns, OpenOption::Classes]
    }

    fn open<'a>(
        &'a self,
        source: &'a Source,
        objects: Vec<Object>,
        options: &'a OpenOptions,
    ) -> BoxFuture<'a, Result<Arc<dyn Dataset>>> {
        async move {
            let named = objects.iter().filter(|o| is_tfrecord(&o.name) || options.format.is_some());
            let objects: Vec<&Object> = named.filter(|o| o.size > 0).collect();
            if objects.is_empty() {
                return Err(nothing_to_read(source, &[], "TFRecord files"));
            }
            let file = async |object: &Object| {
                let starts = index(source, object).await?;
                Ok::<_, Error>(Stored::new(object, starts.len() as u64 - 1, starts))
            };
            let reads: Vec<_> = objects.iter().map(|object| file(object).boxed()).collect();
            let files: Vec<File> = stream::iter(reads).buffered(AT_A_TIME).try_collect().await?;
            Ok(Arc::new(TfRecords::new(source, files, options).await?) as Arc<dyn Dataset>)
        }
        .boxed()
    }
}

/// Where the records of a file begin, and where one more would.
type File = Stored<Vec<u64>>;

/// What a feature becomes.
#[derive(Clone, Debug, PartialEq)]
enum Kind {
    Image,
    Label,
    Bytes,
    /// So many numbers.
    Ints(usize),
    Floats(usize),
}

/// See [`TfRecord`].
#[derive(Debug)]
struct TfRecords {
    files: ShardTable<Vec<u64>>,
    /// Feature and kind of each field.
    columns: Vec<(String, Kind)>,
    schema: Schema,
    largest: u64,
    fingerprint: Fingerprint,
}

/// Names under which pictures and class indices are known.
const IMAGES: [&str; 4] = ["image/encoded", "image", "jpg", "image_raw"];
const LABELS: [&str; 3] = ["image/class/label", "label", "cls"];

impl TfRecords {
    async fn new(source: &Source, files: Vec<File>, options: &OpenOptions) -> Result<Self> {
        let files = ShardTable::new(source, files);
        let sizes = files.shards().iter().flat_map(|file| file.of.windows(2).map(|pair| pair[1] - pair[0]));
        let largest = sizes.max().unwrap_or(0);
        let print = files.print("tfrecord", |print, file| {
            print.text(names::base(&file.name)).number(file.size).number(file.records.end)
        });
        let fingerprint = print.finish();
        let schema = Schema::new(vec![]).with_classes(options.classes.clone());
        let mut dataset = Self { files, columns: vec![], schema, largest, fingerprint };
        let extent = dataset.extent(0).map_err(|_| cut("the files hold no records"))?;
        let record = extent.read().await?;
        let content = dataset.content(0, &record)?;
        let at = |e: Error| e.at_object(dataset.object(0)).at_record(0);
        let features = parse_example(&content).map_err(at)?;
        let mut columns = Vec::new();
        for (name, feature) in &features {
            let wanted = options.columns.as_ref().is_none_or(|names| names.iter().any(|n| n == field_name(name)));
            columns.extend(wanted.then(|| kind_of(name, feature)).flatten().map(|kind| ((*name).to_owned(), kind)));
        }
        let mut seen = HashSet::new();
        if let Some((twice, _)) = columns.iter().find(|(name, _)| !seen.insert(field_name(name))) {
            let what = format!("two features are the field `{}`, `{twice}` one of them", field_name(twice));
            return Err(at(Error::new(ErrorKind::Unsupported, what)).hint("name those to read with columns(…)"));
        }
        if let Some(unknown) = options.columns.iter().flatten().find(|name| !seen.contains(name.as_str())) {
            let names: Vec<_> = features.iter().map(|(name, _)| field_name(name)).collect();
            return Err(at(Error::new(ErrorKind::NotFound, format!("no feature of one value or list is `{unknown}`")))
                .hint(format!("there are {}", names.join(", "))));
        }
        columns.sort_by_key(|(name, kind)| (!matches!(kind, Kind::Image), *kind != Kind::Label, name.clone()));
        if columns.is_empty() {
            let names: Vec<_> = features.iter().map(|(name, _)| *name).collect();
            return Err(at(Error::new(ErrorKind::NotFound, format!("no features to read among {}", names.join(", "))))
                .hint("name some with columns(…)"));
        }
        let most = dataset.largest as usize;
        let field = |(name, kind): &(String, Kind)| {
            let kind = match kind {
                Kind::Image => FieldKind::Image { channels: 3, size: None, dtype: None },
                Kind::Label => FieldKind::Label,
                Kind::Bytes => FieldKind::Bytes { most },
                Kind::Ints(n) => FieldKind::Array { dtype: DType::I64, shape: vec![*n] },
                Kind::Floats(n) => FieldKind::Array { dtype: DType::F32, shape: vec![*n] },
            };
            Field::new(field_name(name), kind)
        };
        dataset.schema.fields = columns.iter().map(field).collect();
        dataset.columns = columns;
        Ok(dataset)
    }

    fn extent(&self, record: u64) -> Result<Extent> {
        let (file, i) = self.files.find(record)?;
        Ok(self.files.extent(file, file.of[i]..file.of[i + 1]))
    }

    /// Content of a record, checked.
    fn content(&self, record: u64, bytes: &Bytes) -> Result<Bytes> {
        let range = self.extent(record)?.range;
        let at = |e: Error| e.at_stage(Stage::Parse).at_object(self.object(record)).at_range(range.clone());
        content_of(bytes).map_err(at)
    }

    fn value(&self, kind: &Kind, feature: Option<&Feature>, content: &Bytes) -> Result<Value> {
        let numbers = |n: usize, found: usize, bytes: Vec<u8>| match n == found {
            true => Ok(Value::Array(bytes.into())),
            false => Err(Error::new(ErrorKind::Unsupported, format!("{found} numbers, the first record has {n}"))
                .hint("lists of one length make a batch; name other fields")),
        };
        match (kind, feature) {
            (Kind::Image, Some(Feature::Bytes(texts))) if texts.len() == 1 => {
                Ok(Value::Encoded(content.slice(texts[0].clone())))
            }
            (Kind::Bytes, Some(Feature::Bytes(texts))) if texts.len() == 1 => {
                Ok(Value::Bytes(content.slice(texts[0].clone())))
            }
            (Kind::Label, Some(Feature::Ints(ints))) if ints.len() == 1 => self.schema.label(ints[0]).map(Value::Label),
            (Kind::Ints(n), Some(Feature::Ints(ints))) => {
                numbers(*n, ints.len(), ints.iter().flat_map(|value| value.to_ne_bytes()).collect())
            }
            (Kind::Floats(n), Some(Feature::Floats(floats))) => {
                numbers(*n, floats.len(), floats.iter().flat_map(|value| value.to_ne_bytes()).collect())
            }
            (_, None) => Err(Error::corrupt("a feature is missing that the first record has")),
            _ => Err(Error::corrupt("a feature is of another kind than in the first record")),
        }
    }
}

/// `image/encoded` is the field `image`, and so on; others keep their names.
fn field_name(feature: &str) -> &str {
    if IMAGES.contains(&feature) {
        "image"
    } else if LABELS.contains(&feature) {
        "label"
    } else {
        feature
    }
}

/// What a feature of the first record becomes; nothing for empty lists and lists of texts.
fn kind_of(name: &str, feature: &Feature) -> Option<Kind> {
    Some(match feature {
        Feature::Bytes(texts) if texts.len() == 1 && IMAGES.contains(&name) => Kind::Image,
        Feature::Bytes(texts) if texts.len() == 1 => Kind::Bytes,
        Feature::Ints(ints) if ints.len() == 1 && LABELS.contains(&name) => Kind::Label,
        Feature::Ints(ints) if !ints.is_empty() => Kind::Ints(ints.len()),
        Feature::Floats(floats) if !floats.is_empty() => Kind::Floats(floats.len()),
        _ => return None,
    })
}

impl Dataset for TfRecords {
    fn len(&self) -> u64 {
        self.files.len()
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn format(&self) -> &str {
        "tfrecord"
    }

    fn plan(&self, record: u64, _rng: SampleRng) -> Result<ReadPlan> {
        self.extent(record).map(ReadPlan::one)
    }

    fn parse(&self, record: u64, _plan: &ReadPlan, bytes: &[Bytes]) -> Result<Sample> {
        let bytes = bytes.first().ok_or_else(|| cut("the record is cut"))?;
        let content = self.content(record, bytes)?;
        let features = parse_example(&content)?;
        let value = |(name, kind): &(String, Kind)| {
            let feature = features.iter().find(|(found, _)| found == name).map(|(_, feature)| feature);
            let found = self.value(kind, feature, &content);
            found.map_err(|e| e.at_stage(Stage::Parse).at_object(format!("{}, feature {name}", self.object(record))))
        };
        Ok(Sample::new(self.columns.iter().map(value).collect::<Result<Vec<_>>>()?))
    }

    fn object(&self, record: u64) -> String {
        self.files.object(record, "tfrecord")
    }

    fn needs_fetch(&self) -> bool {
        self.files.needs_fetch()
    }

    fn largest_read(&self) -> u64 {
        self.largest
    }

    fn resident_bytes(&self) -> u64 {
        self.files.shards().iter().map(|file| file.of.len() as u64 * 8).sum()
    }

    fn groups(&self) -> Option<Arc<[u64]>> {
        Some(self.files.groups())
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

    use std::ops::Range;

    use super::{
        framing::{masked_crc, parse_length},
        *,
    };
    use crate::dataset::{dataset_contract, open_source};

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2];
        let mut length = bytes.len();
        while length >= 0x80 {
            out.push(length as u8 | 0x80);
            length >>= 7;
        }
        out.push(length as u8);
        out.extend_from_slice(bytes);
        out
    }

    /// As TensorFlow writes it: `kind` is 1 for bytes, 2 for floats, 3 for integers.
    fn entry(name: &str, kind: u8, list: &[u8]) -> Vec<u8> {
        field(1, &[field(1, name.as_bytes()), field(2, &field(kind, list))].concat())
    }

    fn example(i: u8) -> Vec<u8> {
        let entries = [
            entry("image/encoded", 1, &field(1, &[i; 200])),
            entry("image/class/label", 3, &field(1, &[i])),
            entry("image/object/box", 2, &field(1, &[1.5f32.to_le_bytes(), f32::from(i).to_le_bytes()].concat())),
            entry("image/filename", 1, &field(1, format!("{i}.jpg").as_bytes())),
            // Not packed, as old writers do.
            entry("sizes", 3, &[1 << 3, 200, 1, 1 << 3, 7]),
            entry("none", 3, &[]),
        ];
        field(1, &entries.concat())
    }

    fn record(content: &[u8]) -> Vec<u8> {
        let length = (content.len() as u64).to_le_bytes();
        [&length[..], &masked_crc(&length).to_le_bytes(), content, &masked_crc(content).to_le_bytes()].concat()
    }

    fn source(files: &[(&str, Vec<u8>)]) -> Source {
        let store = InMemory::new();
        for (name, bytes) in files {
            block_on(store.put(&Path::from(*name), bytes.clone().into())).unwrap();
        }
        Source::from_store(Arc::new(store), Path::default(), "test://x")
    }

    fn file(numbers: Range<u8>) -> Vec<u8> {
        numbers.flat_map(|i| record(&example(i))).collect()
    }

    #[test]
    fn the_crc_is_tensorflows() {
        // The first bytes of a file that TensorFlow wrote: a record of 24 bytes.
        assert_eq!(parse_length(&[24, 0, 0, 0, 0, 0, 0, 0, 0xa3, 0x7f, 0x4b, 0x22]).unwrap(), 24);
    }

    #[test]
    fn examples_are_cut_into_fields() {
        let files = [("train-00000-of-00002", file(0..3)), ("train-00001-of-00002", file(3..8))];
        let dataset = block_on(open_source(source(&files)).into_future()).unwrap();
        block_on(dataset_contract(&*dataset)).unwrap();
        assert_eq!((dataset.len(), dataset.format(), &dataset.groups().unwrap()[..]), (8, "tfrecord", &[0, 3][..]));
        // The identity that states of old runs hold.
        let sizes = files.each_ref().map(|(_, bytes)| bytes.len() as u64);
        let print = Fingerprint::of("tfrecord").number(2).text(files[0].0).number(sizes[0]).number(3);
        assert_eq!(dataset.fingerprint(), print.text(files[1].0).number(sizes[1]).number(8).finish());
        let names: Vec<_> = dataset.schema().fields.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["image", "label", "image/filename", "image/object/box", "sizes"]);
        let plan = dataset.plan(5, SampleRng::new(0, 0, 5)).unwrap();
        let sample = dataset.parse(5, &plan, &[block_on(plan.extents[0].read()).unwrap()]).unwrap();
        assert!(matches!(&sample.values[0], Value::Encoded(bytes) if bytes[..] == [5; 200]));
        assert!(matches!(&sample.values[1], Value::Label(5)));
        assert!(matches!(&sample.values[2], Value::Bytes(name) if name == "5.jpg"));
        let floats = [1.5f32.to_ne_bytes(), 5f32.to_ne_bytes()].concat();
        assert!(matches!(&sample.values[3], Value::Array(values) if values[..] == floats));
        let ints = [200i64.to_ne_bytes(), 7i64.to_ne_bytes()].concat();
        assert!(matches!(&sample.values[4], Value::Array(values) if values[..] == ints));
    }

    #[test]
    fn damage_is_told_with_its_place() {
        let whole = file(0..3);
        let open = |bytes: Vec<u8>| block_on(open_source(source(&[("a.tfrecord", bytes)])).into_future());
        let error = open(whole[..whole.len() - 5].to_vec()).unwrap_err().to_string();
        assert!(error.contains("ends after") && error.contains("a.tfrecord @"), "{error}");
        let error = open([0x1f, 0x8b].repeat(100)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("compressed") && error.to_string().contains("gunzip"), "{error}");
        let entry = || entry("image/encoded", 1, &field(1, &[1; 9]));
        let twice = field(1, &[entry(), self::entry("jpg", 1, &field(1, &[1; 9]))].concat());
        assert!(open(record(&twice)).unwrap_err().to_string().contains("two features are the field `image`"));
        let source = source(&[("a.tfrecord", whole.clone())]);
        let error = block_on(open_source(source).columns(["depth"]).into_future()).unwrap_err().to_string();
        assert!(error.contains("is `depth`") && error.contains("there are image, label"), "{error}");
        let error = open([&whole[..], &[1, 2, 3]].concat()).unwrap_err().to_string();
        assert!(error.contains("3 bytes where a length"), "{error}");
        let mut lies = whole.clone();
        lies[1] ^= 1;
        assert!(open(lies).unwrap_err().to_string().contains("crc of a record's length"));
        let mut flipped = whole.clone();
        let last = flipped.len() - 9;
        flipped[last] ^= 1;
        let dataset = open(flipped).unwrap();
        let plan = dataset.plan(2, SampleRng::new(0, 0, 2)).unwrap();
        let error = dataset.parse(2, &plan, &[block_on(plan.extents[0].read()).unwrap()]).unwrap_err().to_string();
        assert!(error.contains("the record's crc32c is wrong"), "{error}");
    }

    proptest! {
        #[test]
        fn any_bytes_give_features_or_an_error(
            raw in prop::collection::vec(any::<u8>(), 0..200), at in 0usize..300, flip in any::<u8>(), end in 0usize..400,
        ) {
            let _ = parse_example(&raw);
            let _ = parse_length(&raw);
            let mut damaged = example(9);
            let at = at.min(damaged.len() - 1);
            damaged[at] ^= flip;
            damaged.truncate(end);
            if let Ok(features) = parse_example(&damaged) {
                for (_, feature) in features {
                    if let Feature::Bytes(texts) = feature {
                        prop_assert!(texts.iter().all(|text| text.start <= text.end && text.end <= damaged.len()));
                    }
                }
            }
        }
    }
}
