//! TFRecord files of `tf.train.Example`.
//!
//! A record is `u64 length, u32 crc of it, content, u32 crc of it`, little-endian, the crcs CRC-32C turned and shifted
//! ("masked"). Both are checked, the first when the file is indexed, the second when a record is read. The content is a
//! protocol buffer: a map from names to lists of bytes, floats or integers.
//!
//! Files are indexed by one pass over the lengths: local ones by a small read for each record, remote ones in long ranges.

use std::{
    io::{Read, Seek, SeekFrom},
    ops::Range,
    sync::Arc,
};

use bytes::Bytes;
use futures::{FutureExt, StreamExt, TryStreamExt, future::BoxFuture, stream};

use super::{
    Dataset, Field, FieldKind, Format, OpenOptions, ReadPlan, Sample, Schema, Value, no_such_record,
    open::nothing_to_read,
};
use crate::{
    error::{Error, ErrorKind, Result},
    fingerprint::Fingerprint,
    random::SampleRng,
    report::Stage,
    source::{Extent, Object, Source},
    types::DType,
};

/// Bytes before a record's content: its length and the length's crc.
const HEAD: u64 = 12;
/// Bytes after it.
const TAIL: u64 = 4;
/// Files of a remote store that are indexed at a time, and how much of each is read at a time.
const AT_A_TIME: usize = 8;
const RANGE: u64 = 8 << 20;

fn cut(what: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::corrupt(what).hint("the file is cut or damaged; fetch it again")
}

/// CRC-32C as TFRecord stores it.
fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Length of the record whose first bytes these are.
pub(super) fn parse_length(head: &[u8]) -> Result<u64> {
    let Some((length, crc)) = head.get(..HEAD as usize).and_then(|head| head.split_first_chunk::<8>()) else {
        return Err(cut(format!("{} bytes where a length and its crc belong", head.len())));
    };
    if masked_crc(length).to_le_bytes() != crc {
        return Err(cut("the crc of a record's length is wrong"));
    }
    Ok(u64::from_le_bytes(*length))
}

/// What a feature holds.
#[derive(Clone, Debug, PartialEq)]
enum Feature {
    Bytes(Vec<Range<usize>>),
    Floats(Vec<f32>),
    Ints(Vec<i64>),
}

/// One field of a protocol buffer.
enum Wire<'a> {
    Number(u64),
    Fixed(u32),
    /// With where it lies.
    Text(&'a [u8], usize),
}

/// Walks the fields of a message.
struct Message<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Where `bytes` begin in the whole.
    base: usize,
}

impl<'a> Message<'a> {
    const fn new(bytes: &'a [u8], base: usize) -> Self {
        Self { bytes, at: 0, base }
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = *self.bytes.get(self.at)?;
            self.at += 1;
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(taken)
    }

    /// Number and value of the next field; `Some(None)` at the end, `None` for what is no protocol buffer.
    #[expect(clippy::option_option, reason = "the end is not an error")]
    fn next(&mut self) -> Option<Option<(u64, Wire<'a>)>> {
        if self.at == self.bytes.len() {
            return Some(None);
        }
        let key = self.varint()?;
        let value = match key & 7 {
            0 => Wire::Number(self.varint()?),
            1 => Wire::Number(u64::from_le_bytes(self.take(8)?.try_into().ok()?)),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                let place = self.base + self.at;
                Wire::Text(self.take(length)?, place)
            }
            5 => Wire::Fixed(u32::from_le_bytes(self.take(4)?.try_into().ok()?)),
            _ => return None,
        };
        Some(Some((key >> 3, value)))
    }
}

/// Features of an example: names and values, in the order of the file.
fn parse_example(bytes: &[u8]) -> Result<Vec<(&str, Feature)>> {
    features(bytes).ok_or_else(|| cut("the record is no tf.train.Example"))
}

fn features(bytes: &[u8]) -> Option<Vec<(&str, Feature)>> {
    let mut found = Vec::new();
    let mut example = Message::new(bytes, 0);
    while let Some((number, value)) = example.next()? {
        let (1, Wire::Text(inner, place)) = (number, value) else { continue };
        let mut map = Message::new(inner, place);
        while let Some((number, value)) = map.next()? {
            let (1, Wire::Text(inner, place)) = (number, value) else { continue };
            let (mut entry, mut name, mut feature) = (Message::new(inner, place), "", None);
            while let Some((number, value)) = entry.next()? {
                match (number, value) {
                    (1, Wire::Text(text, _)) => name = str::from_utf8(text).ok()?,
                    (2, Wire::Text(inner, place)) => feature = self::feature(inner, place)?,
                    _ => {}
                }
            }
            found.extend(feature.map(|feature| (name, feature)));
        }
    }
    Some(found)
}

/// `Some(None)`: a feature without values.
#[expect(clippy::option_option, reason = "nothing is not an error")]
fn feature(bytes: &[u8], base: usize) -> Option<Option<Feature>> {
    let mut feature = None;
    let mut message = Message::new(bytes, base);
    while let Some((number, value)) = message.next()? {
        let Wire::Text(inner, place) = value else { continue };
        let mut list = Message::new(inner, place);
        let (mut texts, mut floats, mut ints) = (Vec::new(), Vec::new(), Vec::new());
        while let Some((field, value)) = list.next()? {
            match (number, field, value) {
                (1, 1, Wire::Text(text, at)) => texts.push(at..at + text.len()),
                (2, 1, Wire::Fixed(bits)) => floats.push(f32::from_bits(bits)),
                (2, 1, Wire::Text(packed, _)) => {
                    let (values, []) = packed.as_chunks::<4>() else { return None };
                    floats.extend(values.iter().map(|value| f32::from_le_bytes(*value)));
                }
                (3, 1, Wire::Number(value)) => ints.push(value as i64),
                (3, 1, Wire::Text(packed, at)) => {
                    let mut packed = Message::new(packed, at);
                    while packed.at < packed.bytes.len() {
                        ints.push(packed.varint()? as i64);
                    }
                }
                _ => {}
            }
        }
        feature = match number {
            1 => Some(Feature::Bytes(texts)),
            2 => Some(Feature::Floats(floats)),
            3 => Some(Feature::Ints(ints)),
            _ => feature,
        };
    }
    Some(feature)
}

/// The format.
#[derive(Clone, Copy, Debug)]
pub(super) struct TfRecord;

fn is_tfrecord(name: &str) -> bool {
    let base = name.rsplit('/').next().unwrap_or(name).to_ascii_lowercase();
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

    fn open<'a>(
        &'a self,
        source: &'a Source,
        objects: Vec<Object>,
        options: &'a OpenOptions,
    ) -> BoxFuture<'a, Result<Arc<dyn Dataset>>> {
        async move {
            if options.labels.is_some() || options.split.is_some() {
                return Err(Error::config("TFRecord files hold their labels, and no splits")
                    .hint("leave out labels; name the files of a split, train-{00000..01023}-of-01024"));
            }
            let named = objects.iter().filter(|o| is_tfrecord(&o.name) || options.format.is_some());
            let objects: Vec<&Object> = named.filter(|o| o.size > 0).collect();
            if objects.is_empty() {
                return Err(nothing_to_read(source, &[], "TFRecord files"));
            }
            let reads: Vec<_> = objects.iter().map(|o| index(source, o).boxed()).collect();
            let files: Vec<File> = stream::iter(reads).buffered(AT_A_TIME).try_collect().await?;
            Ok(Arc::new(TfRecords::new(source, files, options).await?) as Arc<dyn Dataset>)
        }
        .boxed()
    }
}

/// A file and where the contents of its records begin.
#[derive(Debug)]
struct File {
    object: Object,
    name: Arc<str>,
    /// Of each record, and where one more would begin.
    starts: Vec<u64>,
    /// Records of this file and those before.
    end: u64,
}

async fn index(source: &Source, object: &Object) -> Result<File> {
    let at = |e: Error, range| e.at_stage(Stage::Open).at_object(source.display_name(&object.name)).at_range(range);
    let mut local = source.open_file(&object.name).transpose()?;
    let (mut window, mut window_start) = (Bytes::new(), 0);
    let (mut position, mut starts) = (0, Vec::new());
    while position < object.size {
        let end = (position + HEAD).min(object.size);
        let mut head = [0; HEAD as usize];
        let head = &mut head[..(end - position) as usize];
        if let Some(file) = &mut local {
            let read = file.seek(SeekFrom::Start(position)).and_then(|_| file.read_exact(head));
            read.map_err(|e| at(Error::new(ErrorKind::Io, "reading broke off").with_source(e), position..end))?;
        } else {
            if position < window_start || end > window_start + window.len() as u64 {
                let mut extent = object.extent(source);
                extent.range = position..(position + RANGE).min(object.size);
                (window_start, window) = (position, extent.read().await?);
            }
            let from = (position - window_start) as usize;
            head.copy_from_slice(&window[from..from + head.len()]);
        }
        if position == 0
            && (head.starts_with(&[0x1f, 0x8b]) || head.starts_with(&[0x78]))
            && parse_length(head).is_err()
        {
            let what = "a compressed TFRecord file can't be read at any place";
            return Err(at(Error::new(ErrorKind::Unsupported, what), position..end)
                .hint("take the compression off (gunzip), or write it without"));
        }
        let length = parse_length(head).map_err(|e| at(e, position..end))?;
        let next = position.checked_add(HEAD + TAIL).and_then(|n| n.checked_add(length)).filter(|n| *n <= object.size);
        starts.push(position);
        position = next.ok_or_else(|| {
            let what = format!("a record of {length} bytes ends after {}", object.size - position);
            at(cut(what), position..object.size)
        })?;
    }
    starts.push(position);
    Ok(File { object: object.clone(), name: object.name.as_str().into(), starts, end: 0 })
}

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
    source: Source,
    files: Vec<File>,
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
    async fn new(source: &Source, mut files: Vec<File>, options: &OpenOptions) -> Result<Self> {
        let mut end = 0;
        for file in &mut files {
            end += file.starts.len() as u64 - 1;
            file.end = end;
        }
        let sizes = files.iter().flat_map(|file| file.starts.windows(2).map(|pair| pair[1] - pair[0]));
        let largest = sizes.max().unwrap_or(0);
        let mut print = Fingerprint::of("tfrecord").number(files.len() as u64);
        for file in &files {
            let base = file.name.rsplit('/').next().unwrap_or_default();
            print = print.text(base).number(file.object.size).number(file.end);
        }
        let fingerprint = print.finish();
        let schema = Schema::new(vec![]).with_classes(options.classes.clone());
        let source = source.clone();
        let mut dataset = Self { source, files, columns: vec![], schema, largest, fingerprint };
        let extent = dataset.extent(0).ok_or_else(|| cut("the files hold no records"))?;
        let record = extent.read().await?;
        let content = dataset.content(0, &record)?;
        let at = |e: Error| e.at_object(dataset.object(0)).at_record(0);
        let features = parse_example(&content).map_err(at)?;
        let mut columns = Vec::new();
        for (name, feature) in &features {
            let wanted = options.columns.as_ref().is_none_or(|names| names.iter().any(|n| n == field_name(name)));
            columns.extend(wanted.then(|| kind_of(name, feature)).flatten().map(|kind| ((*name).to_owned(), kind)));
        }
        let mut seen = std::collections::HashSet::new();
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

    /// File and number within it.
    fn find(&self, record: u64) -> Option<(&File, usize)> {
        let file = self.files.get(self.files.partition_point(|file| file.end <= record))?;
        let before = file.end - (file.starts.len() as u64 - 1);
        Some((file, usize::try_from(record - before).ok()?))
    }

    fn extent(&self, record: u64) -> Option<Extent> {
        let (file, i) = self.find(record)?;
        let whole = Extent::whole(&self.source, Arc::clone(&file.name), file.object.size);
        Some(Extent { range: file.starts[i]..file.starts[i + 1], ..whole.with_etag(file.object.etag.as_deref()) })
    }

    /// Content of a record, checked.
    fn content(&self, record: u64, bytes: &Bytes) -> Result<Bytes> {
        let range = self.extent(record).ok_or_else(|| no_such_record(record, self.len()))?.range;
        let at = |e: Error| e.at_stage(Stage::Parse).at_object(self.object(record)).at_range(range.clone());
        let length = parse_length(bytes).map_err(at)?;
        let fits = length.checked_add(HEAD + TAIL) == Some(bytes.len() as u64);
        let content = fits.then(|| bytes.slice(HEAD as usize..bytes.len() - TAIL as usize));
        let content = content.ok_or_else(|| at(cut("the record is cut")))?;
        if masked_crc(&content).to_le_bytes() != bytes[bytes.len() - TAIL as usize..] {
            return Err(at(
                Error::corrupt("the record's crc32c is wrong").hint("fetch the file again or set on_bad_sample(Skip)")
            ));
        }
        Ok(content)
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
            (Kind::Label, Some(Feature::Ints(ints))) if ints.len() == 1 => {
                let classes = self.schema.classes.as_deref();
                let known = |c: &[String]| usize::try_from(ints[0]).is_ok_and(|label| label < c.len());
                match classes.is_none_or(known) {
                    true => Ok(Value::Label(ints[0])),
                    false => Err(Error::corrupt(format!("label {} is not among the classes", ints[0]))),
                }
            }
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
        self.files.last().map_or(0, |file| file.end)
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn format(&self) -> &str {
        "tfrecord"
    }

    fn plan(&self, record: u64, _rng: SampleRng) -> Result<ReadPlan> {
        self.extent(record).map(ReadPlan::one).ok_or_else(|| no_such_record(record, self.len()))
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
        self.find(record).map_or_else(|| "tfrecord".to_owned(), |(file, _)| self.source.display_name(&file.name))
    }

    fn needs_fetch(&self) -> bool {
        !self.source.reads_inline()
    }

    fn largest_read(&self) -> u64 {
        self.largest
    }

    fn resident_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.starts.len() as u64 * 8).sum()
    }

    fn groups(&self) -> Option<Arc<[u64]>> {
        Some(self.files.iter().map(|file| file.end - (file.starts.len() as u64 - 1)).collect())
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
