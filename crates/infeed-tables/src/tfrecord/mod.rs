//! TFRecord files of `tf.train.Example`.
//!
//! A record is `u64 length, u32 crc of it, content, u32 crc of it`, little-endian, the crcs CRC-32C turned and shifted
//! ("masked"). Both are checked, the first when the file is indexed, the second when a record is read. The content is a
//! protocol buffer: a map from names to lists of bytes, floats or integers.
//!
//! Files are indexed by one pass over the lengths: local ones by a small read for each record, remote ones in long ranges.
//! Of a file that is compressed (gzip, zlib; feature `packed`) nothing can be read alone: it is read and unpacked once for
//! the pass, and then once for all its records, as long as the loader's memory holds it.
//!
//! The first record says which features there are; more records are asked whether pictures and labels are among them that it
//! lacks. A list of texts is no field, an empty list tells nothing: both are left out, which a warning says once.

mod example;
mod framing;

use std::{
    collections::{BTreeSet, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use futures::{FutureExt, StreamExt, TryStreamExt, future::BoxFuture, stream};
use infeed_core::{
    error::{
        Error, ErrorKind, Result,
        setting::{COLUMNS, SKIP},
    },
    fingerprint::Fingerprint,
    random::SampleRng,
    report::Stage,
    types::DType,
};
use infeed_data::{
    format::{Format, OpenOption, OpenOptions},
    names::{self, looks_like_mask},
    objects::nothing_to_read,
    packed::unpack,
    record::{Dataset, ReadPlan, Sample, SharedBytes, SharedRead, Value},
    schema::{Field, FieldKind, Schema},
    sizes::Sizes,
    sniff,
    table::{ShardTable, Stored},
};
use infeed_store::{Extent, Object, Source};

use self::{
    example::{Feature, parse_example},
    framing::{Within, content_of, cut, index},
};

/// Files of a remote store that are indexed at a time.
const AT_A_TIME: usize = 8;

/// The format.
#[derive(Clone, Copy, Debug)]
pub struct TfRecord;

fn is_tfrecord(name: &str) -> bool {
    let base = names::base(name).to_ascii_lowercase();
    let base = base.strip_suffix(".gz").unwrap_or(&base);
    // `train-00017-of-01024` is ImageNet's own, without an ending.
    let numbered = base.rsplit_once("-of-").is_some_and(|(start, count)| {
        let number = start.rsplit('-').next().unwrap_or_default();
        let digits = |text: &str| text.len() >= 4 && text.bytes().all(|b| b.is_ascii_digit());
        digits(count) && digits(number)
    });
    let ends = [".tfrecord", ".tfrecords", ".tfrec", ".record", ".records"].iter().any(|ending| base.ends_with(ending));
    ends || base.contains(".tfrecord-") || numbered
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
                let within = index(source, object).await?;
                Ok::<_, Error>(Stored::new(object, within.starts.len() as u64 - 1, within))
            };
            let reads: Vec<_> = objects.iter().map(|object| file(object).boxed()).collect();
            let mut files: Vec<File> = stream::iter(reads).buffered(AT_A_TIME).try_collect().await?;
            // Compressed ones may hold nothing.
            files.retain(|file| file.count() > 0);
            Ok(Arc::new(TfRecords::new(source, files, options).await?) as Arc<dyn Dataset>)
        }
        .boxed()
    }
}

type File = Stored<Within>;

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
    files: ShardTable<Within>,
    /// Feature and kind of each field.
    columns: Vec<(String, Kind)>,
    schema: Schema,
    sizes: Sizes,
    shared: SharedBytes,
    /// Whether features beyond the columns are worth a word: they were not chosen, and none was said yet.
    watching: AtomicBool,
    fingerprint: Fingerprint,
}

/// Files whose first records are asked for pictures and labels.
const LOOKED_INTO: usize = 16;
/// Names under which pictures and class indices are known.
const IMAGES: [&str; 4] = ["image/encoded", "image", "jpg", "image_raw"];
const LABELS: [&str; 3] = ["image/class/label", "label", "cls"];

impl TfRecords {
    async fn new(source: &Source, files: Vec<File>, options: &OpenOptions) -> Result<Self> {
        let mut files = files;
        let firsts: Vec<Option<Bytes>> = files
            .iter_mut()
            .map(|file| file.of.packed.as_mut().map(|packed| std::mem::take(&mut packed.first)))
            .collect();
        let files = ShardTable::new(source, files);
        let sizes = files.shards().iter().flat_map(|file| file.of.starts.windows(2).map(|pair| pair[1] - pair[0]));
        let sizes = Sizes::of(sizes);
        let print = files.print("tfrecord", |print, file| {
            print.text(names::base(&file.name)).number(file.size).number(file.records.end)
        });
        let fingerprint = print.finish();
        let schema = Schema::new(vec![]).with_classes(options.classes.clone());
        let mut shared = SharedBytes::default();
        for file in files.shards() {
            let Some(packed) = &file.of.packed else { continue };
            shared.one = shared.one.max(packed.length + file.size);
            shared.all = shared.all.saturating_add(packed.length);
        }
        let watching = AtomicBool::new(options.columns.is_none());
        let mut dataset = Self { files, columns: vec![], schema, sizes, shared, watching, fingerprint };
        if dataset.len() == 0 {
            return Err(cut("the files hold no records").at_object(source.url()));
        }
        let content = dataset.first_of(0, 0, &firsts).await?;
        let at = |e: Error| e.at_object(dataset.object(0)).at_record(0);
        let features = parse_example(&content).map_err(at)?;
        let mut columns = Vec::new();
        for (name, feature) in &features {
            let wanted = options.columns.as_ref().is_none_or(|names| names.iter().any(|n| n == field_name(name)));
            columns.extend(
                wanted.then(|| kind_of(name, feature, &content)).flatten().map(|kind| ((*name).to_owned(), kind)),
            );
        }
        if options.columns.is_none() {
            tell_left_out(&features, &content);
        }
        for (name, kind) in dataset.pictures_and_labels(&firsts).await? {
            let wanted = options.columns.as_ref().is_none_or(|names| names.iter().any(|n| n == field_name(&name)));
            if wanted && columns.iter().all(|(known, _)| *known != name) {
                columns.push((name, kind));
            }
        }
        let mut seen = HashSet::new();
        if let Some((twice, _)) = columns.iter().find(|(name, _)| !seen.insert(field_name(name))) {
            let what = format!("two features are the field `{}`, `{twice}` one of them", field_name(twice));
            return Err(at(Error::new(ErrorKind::Unsupported, what)).hint(format!("name those to read with {COLUMNS}")));
        }
        if let Some(unknown) = options.columns.iter().flatten().find(|name| !seen.contains(name.as_str())) {
            let names: Vec<_> = features.iter().map(|(name, _)| field_name(name)).collect();
            return Err(at(Error::new(ErrorKind::NotFound, format!("no feature of one value or list is `{unknown}`")))
                .hint(format!("there are {}", names.join(", "))));
        }
        // Masks follow the images whose draws they take.
        columns.sort_by_key(|(name, kind)| {
            (!matches!(kind, Kind::Image), *kind != Kind::Label, *kind == Kind::Image && is_mask(name), name.clone())
        });
        if columns.is_empty() {
            let names: Vec<_> = features.iter().map(|(name, _)| *name).collect();
            return Err(at(Error::new(ErrorKind::NotFound, format!("no features to read among {}", names.join(", "))))
                .hint(format!("name some with {COLUMNS}")));
        }
        let most = dataset.sizes.largest as usize;
        let field = |(name, kind): &(String, Kind)| {
            let kind = match kind {
                // Blended, its labels would be others.
                Kind::Image if is_mask(name) => {
                    let kind = FieldKind::Image { channels: 1, size: None, dtype: Some(DType::U8) };
                    return Field::mask(field_name(name), kind);
                }
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
        Ok(self.files.extent(file, file.of.starts[i]..file.of.starts[i + 1]))
    }

    /// Content of a record of file `at`: the first of a compressed file was kept.
    async fn first_of(&self, at: usize, record: u64, firsts: &[Option<Bytes>]) -> Result<Bytes> {
        let bytes = match &firsts[at] {
            Some(first) => first.clone(),
            None => self.extent(record)?.read().await?,
        };
        self.content(record, &bytes)
    }

    /// Pictures and labels of some records: of a set whose first record lacks one, they would vanish without a word.
    async fn pictures_and_labels(&self, firsts: &[Option<Bytes>]) -> Result<Vec<(String, Kind)>> {
        let shards = self.files.shards();
        let step = shards.len().div_ceil(LOOKED_INTO).max(1);
        let mut records: BTreeSet<u64> = shards.iter().step_by(step).map(|file| file.records.start).collect();
        // Those within a compressed file take unpacking it.
        records.extend([1, self.len() / 2, self.len() - 1].into_iter().filter(|record| {
            let found = self.files.find(*record);
            found.is_ok_and(|(file, _)| file.of.packed.is_none())
        }));
        let mut found: Vec<(String, Kind)> = Vec::new();
        for record in records.into_iter().skip(1) {
            let (at, _) = self.files.find_at(record)?;
            // Damage is a matter of the sample, when its turn comes.
            let Ok(content) = self.first_of(at, record, firsts).await else { continue };
            let Ok(features) = parse_example(&content) else { continue };
            for (name, feature) in &features {
                let Some(kind @ (Kind::Image | Kind::Label)) = kind_of(name, feature, &content) else { continue };
                if found.iter().all(|(known, _)| known != name) {
                    found.push(((*name).to_owned(), kind));
                }
            }
        }
        Ok(found)
    }

    /// Says once that a record has a picture or a label that no field has.
    fn watch(&self, record: u64, features: &[(&str, Feature)]) {
        let is_known = |name: &str| self.columns.iter().any(|(known, _)| field_name(known) == field_name(name));
        let unknown =
            |(name, _): &&(&str, Feature)| (IMAGES.contains(name) || LABELS.contains(name)) && !is_known(name);
        if let Some((feature, _)) = features.iter().find(unknown)
            && self.watching.swap(false, Ordering::Relaxed)
        {
            let object = self.object(record);
            tracing::warn!(feature, record, object, "a picture or label that the first records lack is left out");
        }
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
            (_, None) => Err(Error::corrupt("a feature is missing that other records have")
                .hint(format!("leave the field out with {COLUMNS}, or set {SKIP}"))),
            _ => Err(Error::corrupt("a feature is of another kind than in other records")),
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

/// Names what the first record has and no field gives.
fn tell_left_out(features: &[(&str, Feature)], content: &[u8]) {
    let is_picture = |text: &std::ops::Range<usize>| sniff::picture(&content[text.clone()]).is_some();
    let left = features.iter().filter_map(|(name, feature)| match feature {
        Feature::Bytes(texts) if texts.len() > 1 => {
            let what = if texts.iter().any(is_picture) { "images" } else { "texts" };
            Some(format!("{name} (a list of {} {what})", texts.len()))
        }
        _ if kind_of(name, feature, content).is_none() => Some(format!("{name} (empty in the first record)")),
        _ => None,
    });
    let left: Vec<String> = left.collect();
    if !left.is_empty() {
        tracing::warn!(features = left.join(", "), "features that are left out");
    }
    for (name, feature) in features {
        if let Feature::Bytes(texts) = feature
            && let [text] = &texts[..]
            && let Some(found) = sniff::picture(&content[text.clone()]).filter(|found| !found.is_read)
        {
            tracing::warn!(feature = name, kind = found.name, "an image of a kind that no codec reads");
        }
    }
}

/// Whether a picture of this name holds labels.
fn is_mask(name: &str) -> bool {
    !IMAGES.contains(&name) && name.split('/').any(looks_like_mask)
}

/// What a feature of a record becomes; nothing for empty lists and lists of texts.
fn kind_of(name: &str, feature: &Feature, content: &[u8]) -> Option<Kind> {
    let is_picture = |text: &std::ops::Range<usize>| sniff::picture(&content[text.clone()]).is_some_and(|p| p.is_read);
    Some(match feature {
        Feature::Bytes(texts) if texts.len() == 1 && (IMAGES.contains(&name) || is_picture(&texts[0])) => Kind::Image,
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
        let (at, file) = self.files.find_at(record)?;
        let Some(packed) = &file.of.packed else { return self.extent(record).map(ReadPlan::one) };
        let whole = self.files.extent(file, 0..file.size);
        Ok(ReadPlan::of_shared(vec![SharedRead::new(at as u64, [whole], packed.length)]))
    }

    fn parse(&self, record: u64, _plan: &ReadPlan, bytes: &[Bytes]) -> Result<Sample> {
        let mut bytes = bytes.first().ok_or_else(|| cut("the record is cut"))?.clone();
        let (file, i) = self.files.find(record)?;
        if file.of.packed.is_some() {
            let range = file.of.starts[i] as usize..file.of.starts[i + 1] as usize;
            // Copied, so that the file may go.
            bytes = bytes.get(range).map(Bytes::copy_from_slice).ok_or_else(|| cut("the file is cut"))?;
        }
        let content = self.content(record, &bytes)?;
        let features = parse_example(&content)?;
        self.watch(record, &features);
        let value = |(name, kind): &(String, Kind)| {
            let feature = features.iter().find(|(found, _)| found == name).map(|(_, feature)| feature);
            let found = self.value(kind, feature, &content);
            found.map_err(|e| e.at_stage(Stage::Parse).at_object(format!("{}, feature {name}", self.object(record))))
        };
        Ok(Sample::new(self.columns.iter().map(value).collect::<Result<Vec<_>>>()?))
    }

    fn decode_shared(&self, key: u64, bytes: &[Bytes]) -> Result<Bytes> {
        let file = usize::try_from(key).ok().and_then(|key| self.files.shards().get(key));
        let packed = file.and_then(|file| Some((file, file.of.packed.as_ref()?)));
        let (file, packed) = packed
            .ok_or_else(|| Error::new(ErrorKind::Internal, format!("the dataset has no compressed file {key}")))?;
        let bytes = bytes.first().ok_or_else(|| cut("the file was not read"));
        let unpacked = bytes.and_then(|bytes| unpack(packed.packing, bytes, packed.length as usize));
        unpacked.map(Bytes::from).map_err(|e| e.at_stage(Stage::Decode).at_object(self.files.name_of(file)))
    }

    fn shared_bytes(&self) -> SharedBytes {
        self.shared
    }

    fn object(&self, record: u64) -> String {
        self.files.object(record, "tfrecord")
    }

    fn needs_fetch(&self) -> bool {
        self.files.needs_fetch()
    }

    fn largest_read(&self) -> u64 {
        self.sizes.largest
    }

    fn usual_read(&self) -> u64 {
        self.sizes.usual
    }

    fn resident_bytes(&self) -> u64 {
        self.files.shards().iter().map(|file| file.of.starts.len() as u64 * 8).sum()
    }

    fn groups(&self) -> Option<Arc<[u64]>> {
        Some(self.files.groups())
    }

    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}

#[cfg(test)]
mod tests;
