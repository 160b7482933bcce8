//! TFRecord files of `tf.train.Example`.
//!
//! A record is `u64 length, u32 crc of it, content, u32 crc of it`, little-endian. The crcs are CRC-32C, rotated and
//! shifted ("masked"). Both are checked: the first when the file is indexed, the second when a record is read. The
//! content is a protocol buffer: a map from names to lists of bytes, floats or integers.
//!
//! Files are indexed by one pass over the lengths, and the index is kept (`places`). Small records are passed with long
//! reads, others with a read for each length. A compressed file (gzip, zlib; feature `packed`) is decompressed for the
//! pass, and then once for all its records, see `records`.
//!
//! The features are those of the first record. More records (those at the beginning, and the first ones of other files)
//! are examined for images and labels that it lacks, and for the lengths of numbers: if these differ, or some records
//! have none, the field is a list. Left out, with one warning, are lists of texts. Lists with a value for each object of
//! an image are left out too, unless columns name them: they are lists then, whatever their lengths.

mod example;
mod framing;

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use infeed_core::{
    error::{
        Error, ErrorKind, Result,
        setting::{COLUMNS, FIELD, SKIP},
    },
    fingerprint::Fingerprint,
    random::SampleRng,
    report::Stage,
    types::DType,
};
use infeed_data::{
    format::{Format, OpenOption, OpenOptions},
    names::{self, looks_like_mask, of_split},
    objects::nothing_to_read,
    record::{Dataset, ReadPlan, Sample, SharedBytes, Value},
    schema::{Field, FieldKind, Schema},
    sniff,
};
use infeed_store::{Object, Source};

use self::{
    example::{Feature, has_feature_lists, parse_example},
    framing::{FIRST, FIRST_BYTES, content_of},
};
use crate::{
    packed::cut,
    places::places,
    records::{RecordFile, Records},
};

/// The TFRecord format.
#[derive(Clone, Copy, Debug)]
pub struct TfRecord;

fn is_tfrecord(name: &str) -> bool {
    let base = names::base(name).to_ascii_lowercase();
    let base = base.strip_suffix(".gz").unwrap_or(&base);
    // `train-00017-of-01024` is the name of ImageNet's files, without an extension.
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

    fn reads(&self, name: &str) -> bool {
        !names::is_table(name)
    }

    fn options(&self) -> &'static [OpenOption] {
        &[OpenOption::Columns, OpenOption::Classes, OpenOption::Split]
    }

    fn open<'a>(
        &'a self,
        source: &'a Source,
        objects: Vec<Object>,
        options: &'a OpenOptions,
    ) -> BoxFuture<'a, Result<Arc<dyn Dataset>>> {
        async move {
            // Files with other names are read if the user named the format and no file has such a name.
            let any = options.format.is_some() && !objects.iter().any(|o| is_tfrecord(&o.name));
            let named = objects.iter().filter(|o| any || is_tfrecord(&o.name));
            let objects: Vec<&Object> = named.filter(|o| o.size > 0).collect();
            if objects.is_empty() {
                return Err(nothing_to_read(source, &[], "TFRecord files"));
            }
            let objects = of_split(source, objects, options.split.as_deref(), "files", "-00000-of-00100.tfrecord")?;
            let kept = source.manifest("places", options.manifests.as_deref());
            let index = |source, object| async move { framing::index(&source, &object).await }.boxed();
            let mut files = places(source, &objects, kept.as_ref(), index).await?;
            // Compressed files may hold no records.
            files.retain(|file| file.count() > 0);
            Ok(Arc::new(TfRecords::new(source, files, options).await?) as Arc<dyn Dataset>)
        }
        .boxed()
    }
}

/// The kind of field that a feature becomes.
#[derive(Clone, Debug, PartialEq)]
enum FeatureKind {
    Image,
    Label,
    /// A text that is the name of a given class.
    TextLabel,
    Bytes,
    /// This many numbers.
    Ints(usize),
    Floats(usize),
    /// Any number of them.
    IntList,
    FloatList,
    Images,
    Texts,
}

impl FeatureKind {
    /// The kind and number of values, for messages.
    fn in_words(&self) -> String {
        match self {
            Self::Image | Self::Bytes | Self::TextLabel => number_of(1, "text"),
            Self::Label => number_of(1, "integer"),
            Self::Ints(n) => number_of(*n, "integer"),
            Self::Floats(n) => number_of(*n, "float"),
            Self::IntList => "a list of integers".to_owned(),
            Self::FloatList => "a list of floats".to_owned(),
            Self::Images => "a list of images".to_owned(),
            Self::Texts => "a list of texts".to_owned(),
        }
    }

    /// The same as a list.
    fn listed(&self) -> Option<Self> {
        match self {
            Self::Ints(_) | Self::IntList => Some(Self::IntList),
            Self::Floats(_) | Self::FloatList => Some(Self::FloatList),
            Self::Image | Self::Images => Some(Self::Images),
            Self::Bytes | Self::Texts => Some(Self::Texts),
            Self::Label | Self::TextLabel => None,
        }
    }

    const fn is_image(&self) -> bool {
        matches!(self, Self::Image | Self::Images)
    }

    const fn is_list(&self) -> bool {
        matches!(self, Self::IntList | Self::FloatList | Self::Images | Self::Texts)
    }

    /// Whether a feature has the right values for this kind.
    fn fits(&self, feature: &Feature) -> bool {
        match (self, feature) {
            (Self::Image | Self::Bytes | Self::TextLabel, Feature::Bytes(texts)) => texts.len() == 1,
            (Self::Label, Feature::Ints(ints)) => ints.len() == 1,
            (Self::Ints(n), Feature::Ints(ints)) => ints.len() == *n,
            (Self::Floats(n), Feature::Floats(floats)) => floats.len() == *n,
            (Self::IntList, Feature::Ints(_))
            | (Self::FloatList, Feature::Floats(_))
            | (Self::Images | Self::Texts, Feature::Bytes(_)) => true,
            _ => false,
        }
    }
}

fn number_of(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// One number in each record is a number, not a list of one.
fn shape_of(count: usize) -> Vec<usize> {
    if count == 1 { Vec::new() } else { vec![count] }
}

fn in_words(feature: &Feature) -> String {
    let what = match feature {
        Feature::Bytes(_) => "text",
        Feature::Ints(_) => "integer",
        Feature::Floats(_) => "float",
    };
    number_of(feature.len(), what)
}

/// See [`TfRecord`].
#[derive(Debug)]
struct TfRecords {
    records: Records,
    /// Feature and kind of each field.
    columns: Vec<(String, FeatureKind)>,
    schema: Schema,
    /// The most bytes of the texts, bytes and lists of a record that was examined.
    varying: u64,
    /// Whether to warn about features that are not columns: true until the first warning, if the user did not choose
    /// columns.
    watching: AtomicBool,
    fingerprint: Fingerprint,
}

/// Usual names of features with images; below, with class indices.
const IMAGES: [&str; 4] = ["image/encoded", "image", "jpg", "image_raw"];
const LABELS: [&str; 3] = ["image/class/label", "label", "cls"];
/// Prefixes of lists with a value for each object of an image: those of TensorFlow's object detection and datasets.
const OF_OBJECTS: [&str; 2] = ["image/object/", "objects/"];

impl TfRecords {
    async fn new(source: &Source, files: Vec<RecordFile>, options: &OpenOptions) -> Result<Self> {
        let records = Records::new(source, files);
        let print = records.files.print("tfrecord", |print, file| {
            print.text(names::base(&file.name)).number(file.size).number(file.records.end)
        });
        let fingerprint = print.finish();
        let schema = Schema::new(vec![]).with_classes(options.classes.clone());
        let watching = AtomicBool::new(options.columns.is_none());
        let mut dataset = Self { records, columns: vec![], schema, varying: 0, watching, fingerprint };
        if dataset.len() == 0 {
            return Err(cut("the files hold no records").at_object(source.url()));
        }
        let mut examined = dataset.records.examined((FIRST, FIRST_BYTES)).await.into_iter();
        let first = examined.next().map_or_else(|| Err(cut("no record was read")), |(_, first)| first);
        let content = dataset.content(0, &first?)?;
        let at = |e: Error| e.at_object(dataset.object(0)).at_record(0);
        let features = parse_example(&content).map_err(at)?;
        let is_wanted =
            |name: &str| options.columns.as_ref().is_none_or(|names| names.iter().any(|n| n == field_name(name)));
        let kind = |(name, feature): &(&str, Feature)| {
            let kind = is_wanted(name).then(|| kind_of(name, feature, &content)).flatten();
            kind.map(|kind| ((*name).to_owned(), kind))
        };
        let mut columns: Vec<(String, FeatureKind)> = features.iter().filter_map(kind).collect();
        // Those that can't be read are skipped.
        let content_of =
            |(record, bytes): (u64, Result<Bytes>)| Some((record, dataset.content(record, &bytes.ok()?).ok()?));
        let others: Vec<(u64, Bytes)> = examined.filter_map(content_of).collect();
        let others = others.iter().filter_map(|(record, content)| {
            // Damage is reported when the record is read.
            Some((*record, content, parse_example(content).ok()?))
        });
        let others: Vec<Looked<'_>> = others.collect();
        let first: Looked<'_> = (0, &content, features);
        let features = &first.2;
        let looked: Vec<&Looked<'_>> = others.iter().chain(std::iter::once(&first)).collect();
        let is_text = |name: &str| looked.iter().all(|(_, content, found)| holds_texts(name, found, content));
        let of_objects = |name: &str| OF_OBJECTS.iter().any(|beginning| name.starts_with(beginning));
        // A feature without values has no type in the first record.
        let has_values = |name: &str| first.2.iter().any(|(first, feature)| *first == name && feature.len() > 0);
        for (_, content, found) in &others {
            for (name, feature) in found {
                let is_new = is_wanted(name) && !has_values(name) && columns.iter().all(|(known, _)| known != name);
                // A missing image is an error of its record.
                let kind = kind_of(name, feature, content).filter(|kind| *kind != FeatureKind::Image);
                let listed = kind.and_then(|kind| kind.listed());
                let listed = listed.filter(|kind| *kind != FeatureKind::Texts || is_text(name));
                columns.extend(listed.filter(|_| is_new).map(|kind| ((*name).to_owned(), kind)));
            }
        }
        let mut left = left_out(features, &content);
        left.retain(|(name, _)| columns.iter().all(|(known, _)| known != name));
        let has_to_be_list = |name: &str| options.is_list(name) || of_objects(name);
        for (name, why) in varying(&mut columns, &others, (has_to_be_list, is_text)) {
            if options.columns.is_some() {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!("different kinds of values in `{name}`: {why}"),
                )
                .at_object(source.url())
                .with_hint(format!("leave it out of {COLUMNS}")));
            }
            columns.retain(|(column, _)| *column != name);
            left.push((name, why));
        }
        if options.columns.is_none() {
            let named = columns.extract_if(.., |(name, _)| of_objects(name));
            left.extend(named.map(|(name, _)| (name, "a list with a value for each object".to_owned())));
        }
        for (name, kind) in pictures_and_labels(&others) {
            if is_wanted(&name) && columns.iter().all(|(known, _)| *known != name) {
                columns.push((name, kind));
            }
        }
        if options.columns.is_none() {
            for (_, _, found) in &others {
                for (name, _) in found {
                    let known = features.iter().any(|(first, _)| first == name)
                        || columns.iter().any(|(column, _)| column == name);
                    if !known && left.iter().all(|(other, _)| other != name) {
                        left.push(((*name).to_owned(), "not in the first record".to_owned()));
                    }
                }
            }
            tell_left_out(&left, features, &content);
        }
        let mut seen = HashSet::new();
        if let Some((twice, _)) = columns.iter().find(|(name, _)| !seen.insert(field_name(name))) {
            let what = format!("two features are the field `{}`, one of them is `{twice}`", field_name(twice));
            return Err(
                at(Error::new(ErrorKind::Unsupported, what)).with_hint(format!("choose one of them with {COLUMNS}"))
            );
        }
        if let Some(unknown) = options.columns.iter().flatten().find(|name| !seen.contains(name.as_str())) {
            let names: Vec<_> = features.iter().map(|(name, _)| field_name(name)).collect();
            return Err(at(Error::new(
                ErrorKind::NotFound,
                format!("there is no feature `{unknown}` with one value or list"),
            ))
            .with_hint(format!("there are {}", names.join(", "))));
        }
        let is_named = |(name, kind): &&mut (String, FeatureKind)| {
            options.classes.is_some() && field_name(name) == "label" && *kind == FeatureKind::Bytes
        };
        columns.iter_mut().filter(is_named).for_each(|(_, kind)| *kind = FeatureKind::TextLabel);
        // Masks come after the images whose draws they use.
        columns.sort_by_key(|(name, kind)| {
            (
                !kind.is_image(),
                !matches!(kind, FeatureKind::Label | FeatureKind::TextLabel),
                kind.is_image() && looks_like_mask(field_name(name)),
                name.clone(),
            )
        });
        if columns.is_empty() {
            let names: Vec<_> = features.iter().map(|(name, _)| *name).collect();
            return Err(at(Error::new(ErrorKind::NotFound, format!("no features to read among {}", names.join(", "))))
                .with_hint(format!("name some with {COLUMNS}")));
        }
        let most = dataset.records.sizes.largest as usize;
        let field = |(name, kind): &(String, FeatureKind)| {
            let kind = match kind {
                FeatureKind::Image | FeatureKind::Images => {
                    let files = looked.iter().flat_map(|(_, content, found)| files_of(name, content, found));
                    let one = options.picture(field_name(name), Some(sniff::depth_of(files)));
                    if *kind == FeatureKind::Image {
                        return one;
                    }
                    let count = |(_, content, found): &&Looked<'_>| files_of(name, content, found).count();
                    return one.several(most, looked.iter().map(count).max().unwrap_or(1));
                }
                FeatureKind::Label | FeatureKind::TextLabel => FieldKind::Label,
                FeatureKind::Bytes => FieldKind::Bytes { most },
                FeatureKind::Ints(n) => FieldKind::Array { dtype: DType::I64, shape: shape_of(*n) },
                FeatureKind::Floats(n) => FieldKind::Array { dtype: DType::F32, shape: shape_of(*n) },
                // An integer takes a byte or more.
                FeatureKind::IntList => FieldKind::List { dtype: DType::I64, item: vec![], most },
                FeatureKind::FloatList => FieldKind::List { dtype: DType::F32, item: vec![], most: most / 4 },
                FeatureKind::Texts => FieldKind::Texts { most },
            };
            Field::new(field_name(name), kind)
        };
        dataset.schema.fields = columns.iter().map(field).collect();
        dataset.varying = looked.iter().map(|(_, _, found)| varying_bytes(&columns, found)).max().unwrap_or(0);
        dataset.columns = columns;
        Ok(dataset)
    }

    /// Warns once if a record has an image or a label that is not a field.
    fn watch(&self, record: u64, features: &[(&str, Feature)]) {
        let is_known = |name: &str| self.columns.iter().any(|(known, _)| field_name(known) == field_name(name));
        let unknown =
            |(name, _): &&(&str, Feature)| (IMAGES.contains(name) || LABELS.contains(name)) && !is_known(name);
        if let Some((feature, _)) = features.iter().find(unknown)
            && self.watching.swap(false, Ordering::Relaxed)
        {
            let object = self.object(record);
            tracing::warn!(feature, record, object, "an image or label that the first records do not have is left out");
        }
    }

    /// The content of a record, checked.
    fn content(&self, record: u64, bytes: &Bytes) -> Result<Bytes> {
        let range = self.records.extent(record)?.range;
        let at = |e: Error| e.at_stage(Stage::Parse).at_object(self.object(record)).at_range(range.clone());
        content_of(bytes).map_err(at)
    }

    fn value(&self, (name, kind): (&str, &FeatureKind), feature: Option<&Feature>, content: &Bytes) -> Result<Value> {
        let Some(feature) = feature else {
            // A list without items has no feature.
            match kind {
                FeatureKind::IntList | FeatureKind::FloatList => return Ok(Value::List(Bytes::new())),
                FeatureKind::Images => return Ok(Value::Images(Arc::default())),
                FeatureKind::Texts => return Ok(Value::Texts(Arc::default())),
                _ => {}
            }
            return Err(Error::corrupt("a feature is missing that other records have")
                .with_hint(format!("omit the field with {COLUMNS}, or set {SKIP}")));
        };
        if !kind.fits(feature) {
            let what = format!("{}, but {} in the first record", in_words(feature), kind.in_words());
            let error = Error::new(ErrorKind::Unsupported, what);
            let listed = kind.listed().filter(|listed| listed.fits(feature));
            return Err(error.with_hint(match listed {
                Some(_) => {
                    format!("set {} if records have different numbers of values", FIELD.to_pair(name, "list"))
                }
                None => format!("choose the other fields with {COLUMNS}"),
            }));
        }
        let listed = matches!(kind, FeatureKind::IntList | FeatureKind::FloatList);
        let numbers = |bytes: Vec<u8>| if listed { Value::List(bytes.into()) } else { Value::Array(bytes.into()) };
        Ok(match (kind, feature) {
            (FeatureKind::Images, Feature::Bytes(files)) => {
                Value::Images(files.iter().map(|file| Value::Encoded(content.slice(file.clone()))).collect())
            }
            (FeatureKind::Texts, Feature::Bytes(texts)) => {
                Value::Texts(texts.iter().map(|text| content.slice(text.clone())).collect())
            }
            (FeatureKind::Image, Feature::Bytes(texts)) => Value::Encoded(content.slice(texts[0].clone())),
            (FeatureKind::TextLabel, Feature::Bytes(texts)) => {
                Value::Label(self.schema.label_of(&content[texts[0].clone()])?)
            }
            (_, Feature::Bytes(texts)) => Value::Bytes(content.slice(texts[0].clone())),
            (FeatureKind::Label, Feature::Ints(ints)) => Value::Label(self.schema.label(ints[0])?),
            (_, Feature::Ints(ints)) => numbers(ints.iter().flat_map(|value| value.to_ne_bytes()).collect()),
            (_, Feature::Floats(floats)) => numbers(floats.iter().flat_map(|value| value.to_ne_bytes()).collect()),
        })
    }
}

/// A record that was examined: its number, content and features.
type Looked<'a> = (u64, &'a Bytes, Vec<(&'a str, Feature)>);

/// Images and labels in some records. If the first record lacked one, it would otherwise be dropped without a warning.
fn pictures_and_labels(others: &[Looked<'_>]) -> Vec<(String, FeatureKind)> {
    let mut found: Vec<(String, FeatureKind)> = Vec::new();
    for (_, content, features) in others {
        for (name, feature) in features {
            let Some(kind @ (FeatureKind::Image | FeatureKind::Label)) = kind_of(name, feature, content) else {
                continue;
            };
            if found.iter().all(|(known, _)| known != name) {
                found.push(((*name).to_owned(), kind));
            }
        }
    }
    found
}

/// Bytes of the values of a record whose length differs from record to record.
fn varying_bytes(columns: &[(String, FeatureKind)], found: &[(&str, Feature)]) -> u64 {
    let bytes = |(name, feature): &(&str, Feature)| {
        let (_, kind) = columns.iter().find(|(column, _)| column == name)?;
        match (kind, feature) {
            (FeatureKind::Bytes | FeatureKind::Texts, Feature::Bytes(texts)) => {
                Some(texts.iter().map(|text| text.len() as u64).sum())
            }
            (FeatureKind::IntList | FeatureKind::FloatList, feature) => Some(feature.len() as u64 * 8),
            _ => None,
        }
    };
    found.iter().filter_map(bytes).sum()
}

/// Whether the values of this feature, if there are some, are texts in UTF-8.
fn holds_texts(name: &str, found: &[(&str, Feature)], content: &[u8]) -> bool {
    let is_text = |text: &std::ops::Range<usize>| str::from_utf8(&content[text.clone()]).is_ok();
    let own = found.iter().find(|(other, _)| *other == name).map(|(_, feature)| feature);
    own.is_none_or(|feature| matches!(feature, Feature::Bytes(texts) if texts.iter().all(is_text)))
}

/// Makes lists of the values whose number differs between records, and of those that have to be lists. Returns the
/// columns whose values are of another kind in other records, with the difference in words. An image, and a missing image
/// or label, are not among them but errors of their record: otherwise nobody would notice that they are missing.
fn varying(
    columns: &mut [(String, FeatureKind)],
    others: &[Looked<'_>],
    (has_to_be_list, is_text): (impl Fn(&str) -> bool, impl Fn(&str) -> bool),
) -> Vec<(String, String)> {
    for (name, kind) in &mut *columns {
        let Some(listed) = kind.listed() else { continue };
        let values = || {
            let found = others.iter().map(|(_, _, features)| features.iter().find(|(found, _)| found == name));
            found.map(|found| found.map(|(_, feature)| feature))
        };
        if listed == FeatureKind::Texts && !is_text(name) {
            continue;
        }
        let differs = match kind {
            // A missing image is an error of its record.
            FeatureKind::Image => values().flatten().any(|feature| feature.len() > 1),
            _ => values().any(|feature| feature.is_none_or(|feature| !kind.fits(feature))),
        };
        let fits = values().flatten().all(|feature| listed.fits(feature));
        if has_to_be_list(name) || (differs && fits) {
            *kind = listed;
        }
    }
    let misfit = |(name, kind): &(String, FeatureKind)| {
        let why = others.iter().find_map(|(record, _, features)| {
            let feature = features.iter().find(|(found, _)| found == name).map(|(_, feature)| feature);
            match feature {
                Some(feature) if kind.fits(feature) || IMAGES.contains(&name.as_str()) => None,
                None if kind.is_list() || matches!(kind, FeatureKind::Image | FeatureKind::Label) => None,
                found => {
                    let found = found.map_or_else(|| "none".to_owned(), in_words);
                    Some(format!("{} in the first record, {found} in record {record}", kind.in_words()))
                }
            }
        });
        why.map(|why| (name.clone(), why))
    };
    columns.iter().filter_map(misfit).collect()
}

/// `image/encoded` is the field `image`, and so on; other features keep their names.
fn field_name(feature: &str) -> &str {
    if IMAGES.contains(&feature) {
        "image"
    } else if LABELS.contains(&feature) {
        "label"
    } else {
        feature
    }
}

/// The features of the first record that are not fields, with the reason in words.
fn left_out(features: &[(&str, Feature)], content: &[u8]) -> Vec<(String, String)> {
    let is_picture = |text: &std::ops::Range<usize>| sniff::picture(&content[text.clone()]).is_some();
    let left = features.iter().filter_map(|(name, feature)| {
        let why = match feature {
            Feature::Bytes(texts) if texts.len() > 1 && kind_of(name, feature, content).is_none() => {
                let what = if texts.iter().any(is_picture) { "images" } else { "texts" };
                format!("a list of {} {what}", texts.len())
            }
            _ if kind_of(name, feature, content).is_none() => "empty in the first record".to_owned(),
            _ => return None,
        };
        Some(((*name).to_owned(), why))
    });
    left.collect()
}

/// Warns once about features that are left out.
fn tell_left_out(left: &[(String, String)], features: &[(&str, Feature)], content: &[u8]) {
    if !left.is_empty() {
        let words: Vec<String> = left.iter().map(|(name, why)| format!("{name} ({why})")).collect();
        tracing::warn!(features = words.join(", "), "features are left out");
    }
    if has_feature_lists(content) {
        tracing::warn!("the feature lists of SequenceExamples are left out");
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

/// The files that a feature of a record has.
fn files_of<'a>(name: &str, content: &'a [u8], features: &'a [(&str, Feature)]) -> impl Iterator<Item = &'a [u8]> {
    let own = features.iter().find(|(found, _)| *found == name);
    let files = own.and_then(|(_, feature)| if let Feature::Bytes(files) = feature { Some(files) } else { None });
    files.into_iter().flatten().map(|file| &content[file.clone()])
}

/// The kind of field that a feature becomes; `None` for empty lists and lists of bytes that are no texts.
fn kind_of(name: &str, feature: &Feature, content: &[u8]) -> Option<FeatureKind> {
    let is_picture = |text: &std::ops::Range<usize>| sniff::picture(&content[text.clone()]).is_some_and(|p| p.is_read);
    Some(match feature {
        Feature::Bytes(texts) if texts.len() == 1 && (IMAGES.contains(&name) || is_picture(&texts[0])) => {
            FeatureKind::Image
        }
        Feature::Bytes(texts) if texts.len() == 1 => FeatureKind::Bytes,
        Feature::Bytes(files) if !files.is_empty() && files.iter().all(is_picture) => FeatureKind::Images,
        Feature::Bytes(texts)
            if !texts.is_empty() && texts.iter().all(|text| str::from_utf8(&content[text.clone()]).is_ok()) =>
        {
            FeatureKind::Texts
        }
        Feature::Ints(ints) if ints.len() == 1 && LABELS.contains(&name) => FeatureKind::Label,
        Feature::Ints(ints) if !ints.is_empty() => FeatureKind::Ints(ints.len()),
        Feature::Floats(floats) if !floats.is_empty() => FeatureKind::Floats(floats.len()),
        _ => return None,
    })
}

impl Dataset for TfRecords {
    fn len(&self) -> u64 {
        self.records.files.len()
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn format(&self) -> &str {
        "tfrecord"
    }

    fn plan(&self, record: u64, _rng: SampleRng) -> Result<ReadPlan> {
        self.records.plan(record)
    }

    fn parse(&self, record: u64, _plan: &ReadPlan, bytes: &[Bytes]) -> Result<Sample> {
        let bytes = self.records.cut_out(record, bytes)?;
        let content = self.content(record, &bytes)?;
        let features = parse_example(&content)?;
        self.watch(record, &features);
        let value = |(name, kind): &(String, FeatureKind)| {
            let feature = features.iter().find(|(found, _)| found == name).map(|(_, feature)| feature);
            let found = self.value((field_name(name), kind), feature, &content);
            found.map_err(|e| e.at_stage(Stage::Parse).at_object(format!("{}, feature {name}", self.object(record))))
        };
        Ok(Sample::new(self.columns.iter().map(value).collect::<Result<Vec<_>>>()?))
    }

    fn decode_shared(&self, key: u64, bytes: &[Bytes]) -> Result<Bytes> {
        self.records.decode_shared(key, bytes)
    }

    fn shared_bytes(&self) -> SharedBytes {
        self.records.shared
    }

    fn object(&self, record: u64) -> String {
        self.records.files.object(record, "tfrecord")
    }

    fn needs_fetch(&self) -> bool {
        self.records.files.needs_fetch()
    }

    fn largest_read(&self) -> u64 {
        self.records.sizes.largest
    }

    fn usual_read(&self) -> u64 {
        self.records.sizes.usual
    }

    /// No index has the longest: four times the most of those that were examined, and at least 4 KiB.
    fn usual_varying(&self) -> Option<u64> {
        Some(self.varying.saturating_mul(4).max(4 << 10))
    }

    fn resident_bytes(&self) -> u64 {
        self.records.resident_bytes()
    }

    fn groups(&self) -> Option<Arc<[u64]>> {
        Some(self.records.files.groups())
    }

    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}

#[cfg(test)]
mod tests;
