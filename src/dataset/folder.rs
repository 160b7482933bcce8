//! Image files, in class folders or not; a file for each channel; masks beside them.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use smallvec::smallvec;

use super::{
    Dataset, Field, FieldKind, Format, OpenOptions, ReadPlan, Sample, Schema, Value,
    channels::{self, Groups},
    index, labels,
    open::{nothing_to_read, read_beside},
    tiff::parse_tiff,
};
use crate::{
    error::{Error, ErrorKind, Result},
    fingerprint::Fingerprint,
    random::SampleRng,
    source::{Extent, Object, Source},
    types::{DType, ImageInfo},
};

/// What makes a file an image here; in lower case.
pub(super) const EXTENSIONS: [&str; 7] = [".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff"];

/// Folders that hold class folders rather than images of a class.
pub(super) const SPLITS: [&str; 6] = ["train", "training", "val", "valid", "validation", "test"];

pub(super) fn is_image(name: &str) -> bool {
    EXTENSIONS.iter().any(|extension| has_extension(name, extension))
}

fn has_extension(name: &str, extension: &str) -> bool {
    let start = name.len().checked_sub(extension.len());
    start.and_then(|s| name.get(s..)).is_some_and(|end| end.eq_ignore_ascii_case(extension))
}

fn is_tiff(name: &str) -> bool {
    [".tif", ".tiff"].iter().any(|extension| has_extension(name, extension))
}

/// Class folders of images (ImageNet, Caltech-256), or a flat folder.
#[derive(Clone, Copy, Debug)]
pub(super) struct Folder;

impl Format for Folder {
    fn name(&self) -> &'static str {
        "folder"
    }

    fn recognises(&self, objects: &[Object]) -> bool {
        objects.iter().any(|o| is_image(&o.name))
    }

    fn open<'a>(
        &'a self,
        source: &'a Source,
        objects: Vec<Object>,
        options: &'a OpenOptions,
    ) -> BoxFuture<'a, Result<Arc<dyn Dataset>>> {
        async move {
            let labels = match &options.labels {
                Some(name) => {
                    let (object, bytes) = read_beside(source, &objects, name).await?;
                    let table = labels::parse(&object, &bytes).and_then(|t| t.resolve(options.classes.clone()));
                    Some((table.map_err(|e| e.at_object(object.clone()))?, object))
                }
                None => None,
            };
            let (source, objects) = match &options.split {
                Some(split) => (source.child(split)?, below(source, objects, split)?),
                None => (source.clone(), objects),
            };
            if !self.recognises(&objects) {
                return Err(nothing_to_read(&source, &objects, "images"));
            }
            let mut files = Files::of_images(source, &objects);
            drop(objects);
            let groups = channels::group(files.iter(), options.channels.as_deref());
            let groups = groups.map_err(|e| e.at_object(files.source.url()))?;
            let names: Vec<&str> = match &groups {
                Some(groups) => groups.names.iter().map(String::as_str).collect(),
                None => files.iter().collect(),
            };
            let (labels, classes) = match labels {
                Some((table, object)) => {
                    let labels = table.labels_of(names.iter().copied()).map_err(|e| e.at_object(object))?;
                    (Some(labels), table.classes)
                }
                None => classes_of(&names, &files.source, options.classes.clone())?,
            };
            drop(names);
            files.tighten();
            let groups = groups.map(|Groups { per, channels, order, .. }| Several { per, channels, order });
            let fields = image_fields(&files, groups.as_ref()).await?;
            Ok(Arc::new(FolderDataset::new(files, groups, labels, classes, fields)) as Arc<dyn Dataset>)
        }
        .boxed()
    }
}

/// The objects in the folder `split`, named relative to it.
fn below(source: &Source, objects: Vec<Object>, split: &str) -> Result<Vec<Object>> {
    let prefix = format!("{split}/");
    let tops: BTreeSet<String> =
        objects.iter().filter_map(|o| o.name.split_once('/')).map(|(top, _)| top.to_owned()).collect();
    let inside = objects.into_iter().filter_map(|mut o| {
        o.name = o.name.strip_prefix(&prefix)?.to_owned();
        Some(o)
    });
    let inside: Vec<Object> = inside.collect();
    if inside.is_empty() {
        let tops: Vec<_> = tops.iter().take(5).map(String::as_str).collect();
        return Err(Error::new(ErrorKind::NotFound, format!("there is no folder `{split}`"))
            .at_object(source.url())
            .hint(format!("the first folders are {}", if tops.is_empty() { "none".into() } else { tops.join(", ") })));
    }
    Ok(inside)
}

/// Names and sizes of a million files in one text and two vectors: 16 bytes and the name for each.
#[derive(Debug)]
struct Files {
    source: Source,
    text: String,
    /// Where each name ends in `text`.
    ends: Vec<u64>,
    sizes: Vec<u64>,
    tags: Tags,
}

/// Version tags, where the store has them: 16 bytes for each that is a quoted MD5, as S3's are.
#[derive(Debug, Default)]
struct Tags {
    /// One for each file, or none at all.
    digests: Vec<u128>,
    /// All others.
    others: HashMap<usize, Box<str>>,
}

impl Tags {
    fn new<'a>(tags: impl ExactSizeIterator<Item = Option<&'a str>> + Clone) -> Self {
        if tags.clone().all(|tag| tag.is_none()) {
            return Self::default();
        }
        let (mut digests, mut others) = (Vec::with_capacity(tags.len()), HashMap::new());
        for (i, tag) in tags.enumerate() {
            let digest = tag.and_then(Self::digest);
            digests.push(digest.unwrap_or(0));
            if digest.is_none() {
                // An empty text: no tag.
                others.insert(i, tag.unwrap_or_default().into());
            }
        }
        Self { digests, others }
    }

    /// `"0123…cdef"`: 32 lower-case hex digits in quotes.
    fn digest(tag: &str) -> Option<u128> {
        let hex = tag.strip_prefix('"')?.strip_suffix('"')?;
        let plain = hex.len() == 32 && hex.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
        plain.then(|| u128::from_str_radix(hex, 16).ok())?
    }

    fn get(&self, i: usize) -> Option<String> {
        match self.others.get(&i) {
            Some(tag) => (!tag.is_empty()).then(|| tag.to_string()),
            None => self.digests.get(i).map(|digest| format!("\"{digest:032x}\"")),
        }
    }

    fn bytes(&self) -> usize {
        self.digests.len() * 16 + self.others.values().map(|tag| tag.len() + 32).sum::<usize>()
    }
}

impl Files {
    /// `objects` are sorted.
    fn of_images(source: Source, objects: &[Object]) -> Self {
        let images: Vec<&Object> = objects.iter().filter(|o| is_image(&o.name)).collect();
        let tags = Tags::new(images.iter().map(|o| o.etag.as_deref()));
        let mut files = Self { source, text: String::new(), ends: Vec::new(), sizes: Vec::new(), tags };
        for object in images {
            files.text.push_str(&object.name);
            files.ends.push(files.text.len() as u64);
            files.sizes.push(object.size);
        }
        files
    }

    fn tighten(&mut self) {
        self.text.shrink_to_fit();
        self.ends.shrink_to_fit();
        self.sizes.shrink_to_fit();
    }

    fn len(&self) -> usize {
        self.sizes.len()
    }

    /// `i` is below `len`.
    fn name(&self, i: usize) -> &str {
        let start = i.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[start as usize..self.ends[i] as usize]
    }

    fn iter(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        (0..self.len()).map(|i| self.name(i))
    }
}

/// Labels from the first folder of each name, and the class names; neither for a flat folder.
#[expect(clippy::type_complexity, reason = "both or neither")]
pub(super) fn classes_of(
    names: &[&str],
    source: &Source,
    given: Option<Arc<[String]>>,
) -> Result<(Option<Vec<i64>>, Option<Arc<[String]>>)> {
    let top = |name: &str| name.split_once('/').map(|(top, _)| top.to_owned());
    let mut found = BTreeSet::new();
    let (mut flat, mut shallow) = (None, false);
    for &name in names {
        match name.split_once('/') {
            // Looked up before it is copied: a thousand classes, a million files.
            Some((top, rest)) => {
                shallow |= !rest.contains('/');
                if !found.contains(top) {
                    found.insert(top.to_owned());
                }
            }
            None => flat = flat.or(Some(name)),
        }
    }
    if found.is_empty() {
        return Ok((None, given));
    }
    if let Some(stray) = flat {
        return Err(Error::config(format!("images both in class folders and beside them, such as `{stray}`"))
            .at_object(source.url())
            .hint("move them into folders, or give labels for all"));
    }
    if !shallow && found.iter().all(|top| SPLITS.contains(&top.to_ascii_lowercase().as_str())) {
        let splits = found.into_iter().collect::<Vec<_>>();
        return Err(Error::config(format!("the folders {} hold splits, not images of a class", splits.join(", ")))
            .at_object(source.url())
            .hint(format!("open {}, or set split(\"{}\")", source.display_name(&splits[0]), splits[0])));
    }
    let classes = given.unwrap_or_else(|| found.iter().cloned().collect());
    let index = labels::index_of(&classes)?;
    if let Some(unknown) = found.iter().find(|name| !index.contains_key(name.as_str())) {
        let what = format!("class `{unknown}` is not among the {} given classes", classes.len());
        return Err(Error::config(what)
            .at_object(source.display_name(unknown))
            .hint("open it with the classes that it has, or remove the folder"));
    }
    let label = |name: &str| top(name).and_then(|top| index.get(top.as_str()).copied());
    let labels = names.iter().map(|name| label(name).expect("each name has a folder that is a class")).collect();
    drop(index);
    Ok((Some(labels), Some(classes)))
}

/// Files of a record, where there are several.
#[derive(Debug)]
struct Several {
    per: usize,
    /// The first of them are channels of the image; a mask may follow.
    channels: usize,
    order: Vec<u32>,
}

/// What the headers say of the images and masks: how many channels, which type, and the size where it is one for all
/// that were looked at (the first, the middle and the last record). Only TIFFs are asked: all else becomes RGB.
async fn image_fields(files: &Files, groups: Option<&Several>) -> Result<Vec<Field>> {
    let (per, channels) = groups.map_or((1, 1), |g| (g.per, g.channels));
    let records = groups.map_or(files.len(), |g| g.order.len() / g.per);
    let file = |record: usize, n: usize| groups.map_or(record, |g| g.order[record * g.per + n] as usize);
    let all_tiff = |n: usize| (0..records).all(|record| is_tiff(files.name(file(record, n))));
    let image = match all_tiff(0) {
        true => {
            let ImageInfo { height, width, channels: in_file, dtype, .. } =
                probe(files, records, |r| file(r, 0)).await?;
            if channels > 1 && in_file != 1 {
                let name = files.source.display_name(files.name(file(0, 0)));
                let what = format!("{in_file} channels in a file that should hold one");
                return Err(Error::config(what).at_object(name).hint("leave the pattern of channels out"));
            }
            let channels = if channels > 1 { channels as u8 } else { in_file };
            FieldKind::Image { channels, size: (height > 0).then_some((height, width)), dtype: Some(dtype) }
        }
        false if channels > 1 => FieldKind::Image { channels: channels as u8, size: None, dtype: None },
        false => Field::image().kind,
    };
    let mut fields = vec![Field::new("image", image)];
    if per > channels {
        let mask = match all_tiff(channels) {
            true => {
                let found = probe(files, records, |r| file(r, channels)).await?;
                let size = (found.height > 0).then_some((found.height, found.width));
                FieldKind::Image { channels: found.channels, size, dtype: Some(found.dtype) }
            }
            false => FieldKind::Image { channels: 1, size: None, dtype: Some(DType::U8) },
        };
        fields.push(Field::mask("mask", mask));
    }
    Ok(fields)
}

/// What the first, the middle and the last file say; height and width are 0 where they differ.
async fn probe(files: &Files, records: usize, file: impl Fn(usize) -> usize) -> Result<ImageInfo> {
    let mut found: Result<ImageInfo> = Err(Error::new(ErrorKind::NotFound, "no images"));
    let mut looked = BTreeSet::new();
    for record in [0, records / 2, records.saturating_sub(1)] {
        let i = file(record);
        if !looked.insert(i) {
            continue;
        }
        let extent = Extent::whole(&files.source, files.name(i), files.sizes[i]).with_etag(files.tags.get(i));
        let info = match extent.read().await {
            Ok(bytes) => parse_tiff(&bytes).map(|tiff| tiff.info),
            Err(error) => Err(error),
        };
        let info = info.map_err(|e| e.at_object(files.source.display_name(files.name(i))));
        found = match (found, info) {
            (Ok(a), Ok(b)) if (a.height, a.width) != (b.height, b.width) => Ok(ImageInfo { height: 0, width: 0, ..a }),
            (Ok(a), _) => Ok(a),
            // A damaged file is a bad sample when its turn comes; another one tells what the rest is.
            (Err(_), Ok(b)) => Ok(b),
            (Err(first), Err(error)) => Err(if looked.len() == 1 { error } else { first }),
        };
    }
    found
}

/// See [`Folder`].
#[derive(Debug)]
struct FolderDataset {
    files: Files,
    /// `None`: each file is a record.
    several: Option<Several>,
    labels: Option<Vec<i64>>,
    schema: Schema,
    largest: u64,
    fingerprint: Fingerprint,
}

impl FolderDataset {
    fn new(
        files: Files,
        several: Option<Several>,
        labels: Option<Vec<i64>>,
        classes: Option<Arc<[String]>>,
        mut fields: Vec<Field>,
    ) -> Self {
        fields.extend(labels.is_some().then(Field::label));
        let schema = Schema::new(fields).with_classes(classes);
        let mut data = Self { files, several, labels, schema, largest: 0, fingerprint: Fingerprint(0) };
        let mut print = Fingerprint::of("folder").number(data.records() as u64);
        if let Some(several) = &data.several {
            print = print.number(several.per as u64);
        }
        for record in 0..data.records() {
            let mut bytes = 0u64;
            for i in data.files_of(record) {
                print = print.text(data.files.name(i)).number(data.files.sizes[i]);
                bytes = bytes.saturating_add(data.files.sizes[i]);
            }
            data.largest = data.largest.max(bytes);
        }
        data.fingerprint = print.finish();
        data
    }

    fn records(&self) -> usize {
        self.several.as_ref().map_or(self.files.len(), |several| several.order.len() / several.per)
    }

    /// Indices of a record's files.
    fn files_of(&self, record: usize) -> impl Iterator<Item = usize> {
        let one = self.several.is_none().then_some(record);
        let many = self.several.as_ref().map(|several| &several.order[record * several.per..][..several.per]);
        one.into_iter().chain(many.into_iter().flatten().map(|i| *i as usize))
    }

    fn extent(&self, i: usize) -> Extent {
        let extent = Extent::whole(&self.files.source, self.files.name(i), self.files.sizes[i]);
        extent.with_etag(self.files.tags.get(i))
    }
}

impl Dataset for FolderDataset {
    fn len(&self) -> u64 {
        self.records() as u64
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn format(&self) -> &str {
        "folder"
    }

    fn plan(&self, record: u64, _rng: SampleRng) -> Result<ReadPlan> {
        let record = index(record, self.records())?;
        Ok(match &self.several {
            None => ReadPlan::one(self.extent(record)),
            Some(_) => ReadPlan::new(self.files_of(record).map(|i| self.extent(i))),
        })
    }

    fn parse(&self, record: u64, _plan: &ReadPlan, bytes: &[Bytes]) -> Result<Sample> {
        let i = index(record, self.records())?;
        let (per, channels) = self.several.as_ref().map_or((1, 1), |several| (several.per, several.channels));
        if bytes.len() != per {
            let what = format!("{} buffers where the plan has {per}", bytes.len());
            return Err(Error::new(ErrorKind::Internal, what).at_record(record));
        }
        let (image, mask) = bytes.split_at(channels);
        let image = match image {
            [file] => Value::Encoded(file.clone()),
            files => Value::Channels(files.into()),
        };
        let mut values = smallvec![image];
        values.extend(mask.iter().cloned().map(Value::Encoded));
        values.extend(self.labels.as_ref().map(|labels| Value::Label(labels[i])));
        Ok(Sample { values })
    }

    fn object(&self, record: u64) -> String {
        match index(record, self.records()).map(|record| self.files_of(record).next()) {
            Ok(Some(i)) => self.files.source.display_name(self.files.name(i)),
            _ => self.files.source.url().to_owned(),
        }
    }

    fn needs_fetch(&self) -> bool {
        !self.files.source.reads_inline()
    }

    fn largest_read(&self) -> u64 {
        self.largest
    }

    fn resident_bytes(&self) -> u64 {
        let labels = self.labels.as_ref().map_or(0, |l| l.len() * 8);
        let order = self.several.as_ref().map_or(0, |several| several.order.len() * 4);
        (self.files.text.len() + self.files.len() * 16 + self.files.tags.bytes() + labels + order) as u64
    }

    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects(names: &[&str]) -> Vec<Object> {
        let mut objects: Vec<_> = names.iter().map(|n| Object::new(*n, n.len() as u64)).collect();
        objects.sort_by(|a, b| a.name.cmp(&b.name));
        objects
    }

    fn files(names: &[&str]) -> Files {
        let store = Arc::new(object_store::memory::InMemory::new());
        let source = Source::from_store(store, object_store::path::Path::default(), "test://");
        Files::of_images(source, &objects(names))
    }

    #[expect(clippy::type_complexity, reason = "both or neither")]
    fn classes(files: &Files) -> Result<(Option<Vec<i64>>, Option<Arc<[String]>>)> {
        classes_of(&files.iter().collect::<Vec<_>>(), &files.source, None)
    }

    #[test]
    fn extensions_count_in_any_case_and_others_do_not() {
        for name in ["a.jpg", "a/b.JPEG", "x.Png", "x.webp", "x.bmp", "ü.jpg", ".jpg"] {
            assert!(is_image(name), "{name}");
        }
        for name in ["a.gif", "jpg", "a.jpg.txt", "ajpg", "", "é"] {
            assert!(!is_image(name), "{name}");
        }
    }

    #[test]
    fn classes_are_sorted_folder_names_even_where_names_sort_otherwise() {
        // `-` sorts before `/`: the records of `a-b` come first, its class does not.
        let files = files(&["a/1.jpg", "a-b/1.jpg", "a/deep/er/2.jpg", "c/readme.txt"]);
        let (labels, classes) = classes(&files).unwrap();
        assert_eq!(&classes.unwrap()[..], ["a", "a-b"]);
        assert_eq!(files.iter().collect::<Vec<_>>(), ["a-b/1.jpg", "a/1.jpg", "a/deep/er/2.jpg"]);
        assert_eq!(labels.unwrap(), [1, 0, 0]);
    }

    #[test]
    fn caltech_labels_are_the_folder_number_less_one() {
        let names: Vec<String> = (1..=257).map(|n| format!("{n:03}.thing-{}/{n:03}_0001.jpg", n % 7)).collect();
        let files = files(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let (labels, _) = classes(&files).unwrap();
        assert_eq!(labels.unwrap(), (0..257).collect::<Vec<i64>>());
    }

    #[test]
    fn a_folder_of_splits_is_not_taken_for_classes() {
        let error = classes(&files(&["train/cat/1.jpg", "val/cat/1.jpg"])).unwrap_err();
        assert!(error.to_string().contains("split(\"train\")"), "{error}");
        // A class may well be called train.
        assert!(classes(&files(&["train/1.jpg", "test/1.jpg"])).is_ok());
        assert!(classes(&files(&["train/a/1.jpg", "bus/a/1.jpg"])).is_ok());
    }

    #[test]
    fn version_tags_come_back_as_they_were() {
        let tags = [
            Some("\"0123456789abcdef0123456789abcdef\""),
            None,
            Some("\"0123456789ABCDEF0123456789abcdef\""),
            Some("\"00000000000000000000000000000000-7\""),
            Some("W/\"weak\""),
            Some("7"),
        ];
        let kept = Tags::new(tags.into_iter());
        assert_eq!(kept.others.len(), 5);
        for (i, tag) in tags.into_iter().enumerate() {
            assert_eq!(kept.get(i).as_deref(), tag);
        }
        assert_eq!(Tags::new([None, None].into_iter()).get(1), None);
    }

    #[test]
    fn a_million_names_take_little_more_than_their_letters() {
        let names: Vec<String> = (0..10_000).map(|i| format!("n{:08}/n{:08}_{i}.JPEG", i % 10, i % 10)).collect();
        let mut files = files(&names.iter().map(String::as_str).collect::<Vec<_>>());
        files.tighten();
        let letters: usize = names.iter().map(String::len).sum();
        let data = FolderDataset::new(files, None, Some(vec![0; 10_000]), None, vec![Field::image()]);
        assert_eq!(data.resident_bytes() as usize, letters + 10_000 * 24);
        assert_eq!(data.files.text.capacity(), letters);
    }
}
