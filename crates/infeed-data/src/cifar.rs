//! CIFAR-10 and CIFAR-100, the [binary version](https://www.cs.toronto.edu/~kriz/cifar.html).
//!
//! A record is one label byte (CIFAR-100: coarse, then fine) and 3072 pixels: 32×32 red, green, blue planes. The files
//! are read once, when the dataset is opened, and records are slices of them: 50,000 records take 154 MB, and reading
//! 3 KB at a time would cost more than decoding it.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use futures::{
    FutureExt,
    future::{BoxFuture, try_join_all},
};
use infeed_core::{
    error::{Error, ErrorKind, Result},
    fingerprint::Fingerprint,
    random::SampleRng,
    report::Stage,
    types::{DType, ImageInfo},
};
use infeed_store::{Beside, Object, Source};
use smallvec::smallvec;

use super::{
    format::{Format, OpenOption, OpenOptions},
    names::{base, parent},
    objects::nothing_to_read,
    record::{Dataset, ReadPlan, Sample, Value, no_such_record},
    schema::{Field, FieldKind, Schema},
    table::{ShardTable, Stored},
};

const IMAGE: ImageInfo = ImageInfo { height: 32, width: 32, channels: 3, dtype: DType::U8, planar: true };
const PIXELS: usize = 3 * 32 * 32;

/// Which of the two datasets, as a format for `open`.
///
/// ```
/// use infeed::dataset::Cifar;
///
/// // `data_batch_1.bin` has 30,730,000 bytes.
/// assert_eq!(30_730_000 / Cifar::Ten.record_bytes(), 10_000);
/// assert_eq!((Cifar::Ten.classes(), Cifar::Hundred.classes()), (10, 100));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cifar {
    /// CIFAR-10: 3073-byte records, ten classes.
    Ten,
    /// CIFAR-100: 3074-byte records, 20 coarse and 100 fine classes.
    Hundred,
}

/// The coarse label, where there is one, and the label.
fn parse_labels(layout: Cifar, labels: &[u8]) -> Result<(Option<u8>, u8)> {
    let in_range = |what: &str, label: u8, classes: usize| match usize::from(label) < classes {
        true => Ok(label),
        false => Err(Error::corrupt(format!("{what} is {label}, there are {classes} classes"))),
    };
    match (layout, labels) {
        (Cifar::Ten, [label]) => Ok((None, in_range("the label", *label, 10)?)),
        (Cifar::Hundred, [coarse, fine]) => {
            let fine = in_range("the fine label", *fine, 100)?;
            Ok((Some(in_range("the coarse label", *coarse, 20)?), fine))
        }
        _ => unreachable!("a record is its labels and its pixels"),
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Split {
    Train,
    Test,
}

impl Cifar {
    /// Bytes of one record.
    #[must_use]
    pub const fn record_bytes(self) -> usize {
        self.label_bytes() + PIXELS
    }

    const fn label_bytes(self) -> usize {
        match self {
            Self::Ten => 1,
            Self::Hundred => 2,
        }
    }

    /// Classes of the field `label`.
    #[must_use]
    pub const fn classes(self) -> usize {
        match self {
            Self::Ten => 10,
            Self::Hundred => 100,
        }
    }

    const fn names_file(self) -> &'static str {
        match self {
            Self::Ten => "batches.meta.txt",
            Self::Hundred => "fine_label_names.txt",
        }
    }

    fn split(self, name: &str) -> Option<Split> {
        match (self, base(name)) {
            (Self::Ten, "test_batch.bin") | (Self::Hundred, "test.bin") => Some(Split::Test),
            (Self::Hundred, "train.bin") => Some(Split::Train),
            (Self::Ten, base) if base.starts_with("data_batch_") && base.ends_with(".bin") => Some(Split::Train),
            _ => None,
        }
    }

    /// The files to read, in name order.
    fn choose<'a>(self, source: &Source, objects: &'a [Object], options: &OpenOptions) -> Result<Vec<&'a Object>> {
        let split = match options.split.as_deref() {
            None => None,
            Some("train") => Some(Split::Train),
            Some("test") => Some(Split::Test),
            Some(other) => {
                return Err(
                    Error::config(format!("{} has no split `{other}`", self.name())).with_hint("use train or test")
                );
            }
        };
        let known: Vec<(&Object, Split)> = objects.iter().filter_map(|o| Some((o, self.split(&o.name)?))).collect();
        if known.is_empty() && split.is_none() {
            // The user named the format: then any name will do.
            let chosen: Vec<_> = objects.iter().filter(|o| o.name.to_ascii_lowercase().ends_with(".bin")).collect();
            return match chosen.is_empty() {
                true => Err(nothing_to_read(source, objects, "CIFAR files")),
                false => Ok(chosen),
            };
        }
        // Two copies side by side would otherwise be read as one larger dataset.
        if let Some(pair) = known.windows(2).find(|pair| parent(&pair[0].0.name) != parent(&pair[1].0.name)) {
            let what = format!("CIFAR files in two folders, such as `{}` and `{}`", pair[0].0.name, pair[1].0.name);
            return Err(Error::config(what).at_object(source.url()).with_hint("open one of the folders"));
        }
        let has_train = known.iter().any(|(_, split)| *split == Split::Train);
        let wanted = split.unwrap_or(if has_train { Split::Train } else { Split::Test });
        let chosen: Vec<_> = known.iter().filter(|(_, split)| *split == wanted).map(|(o, _)| *o).collect();
        if chosen.is_empty() {
            let what = format!("no files of the split `{}`", options.split.as_deref().unwrap_or_default());
            let have = known.first().map_or("none", |(o, _)| base(&o.name));
            return Err(Error::new(ErrorKind::NotFound, what)
                .at_object(source.url())
                .with_hint(format!("the CIFAR files begin with {have}")));
        }
        Ok(chosen)
    }

    async fn class_names(
        self,
        source: &Source,
        objects: &[Object],
        beside: &Object,
        given: Option<&Arc<[String]>>,
    ) -> Result<Option<Arc<[String]>>> {
        let folder = &beside.name[..beside.name.len() - base(&beside.name).len()];
        let name = format!("{folder}{}", self.names_file());
        let found: Option<Arc<[String]>> = match objects.iter().find(|o| o.name == name) {
            Some(object) => {
                let bytes = Beside::Table.read(source, object).await?;
                let text = String::from_utf8_lossy(&bytes);
                Some(text.lines().map(str::trim).filter(|l| !l.is_empty()).map(str::to_owned).collect())
            }
            None => None,
        };
        let count = self.classes();
        if let Some(found) = found.as_ref().filter(|f| f.len() != count) {
            let what = format!("{} class names where {count} belong", found.len());
            return Err(Error::corrupt(what).at_object(source.display_name(&name)));
        }
        if let Some(given) = given {
            let other = found.as_deref().unwrap_or(given).iter().zip(given.iter()).find(|(a, b)| a != b);
            if let Some((found, given)) = other {
                return Err(Error::config(format!("class `{given}` is called `{found}` here"))
                    .at_object(source.display_name(&name))
                    .with_hint("open it without classes, or with its own"));
            }
            if given.len() != count {
                return Err(Error::config(format!("{} classes given, {} has {count}", given.len(), self.name())));
            }
        }
        Ok(given.cloned().or(found))
    }

    /// The label bytes of all records.
    fn labels(self, records: &[u8]) -> Vec<u8> {
        records.chunks_exact(self.record_bytes()).flat_map(|record| &record[..self.label_bytes()]).copied().collect()
    }

    async fn load(self, source: &Source, objects: &[Object], options: &OpenOptions) -> Result<CifarDataset> {
        let chosen = self.choose(source, objects, options)?;
        let size = self.record_bytes() as u64;
        for object in &chosen {
            let (whole, rest) = (object.size / size, object.size % size);
            if rest != 0 {
                let what = format!(
                    "{} bytes are {whole} whole {}-byte records and {rest} bytes of another",
                    object.size, size
                );
                return Err(Error::corrupt(what)
                    .at_stage(Stage::Open)
                    .at_object(source.display_name(&object.name))
                    .with_hint("the file is truncated or of another kind; fetch it again"));
            }
        }
        if chosen.iter().all(|o| o.size == 0) {
            let name = source.display_name(&chosen[0].name);
            return Err(Error::corrupt("the file is empty").at_object(name).with_hint("fetch it again"));
        }
        let classes = self.class_names(source, objects, chosen[0], options.classes.as_ref()).await?;
        let files = try_join_all(chosen.iter().map(|o| async { Beside::Table.read(source, o).await })).await?;
        let held = |data: Bytes| HeldFile { labels: self.labels(&data), records: data };
        let files = chosen.iter().zip(files).map(|(object, data)| Stored::new(object, object.size / size, held(data)));
        let files = ShardTable::new(source, files);
        let print = files.print(self.name(), |print, file| print.text(base(&file.name)).number(file.size));
        let pixels = FieldKind::Image { channels: 3, size: Some((32, 32)), dtype: Some(DType::U8) };
        let mut fields = vec![Field::new("image", pixels)];
        if self == Self::Hundred {
            fields.push(Field::new("coarse_label", FieldKind::Label));
        }
        fields.push(Field::label());
        Ok(CifarDataset {
            layout: self,
            files,
            schema: Schema::new(fields).with_classes(classes),
            fingerprint: print.finish(),
        })
    }
}

impl Format for Cifar {
    fn name(&self) -> &'static str {
        match self {
            Self::Ten => "cifar10",
            Self::Hundred => "cifar100",
        }
    }

    fn recognises(&self, objects: &[Object]) -> bool {
        objects.iter().any(|o| self.split(&o.name).is_some())
    }

    fn options(&self) -> &'static [OpenOption] {
        &[OpenOption::Split, OpenOption::Classes]
    }

    fn open<'a>(
        &'a self,
        source: &'a Source,
        objects: Vec<Object>,
        options: &'a OpenOptions,
    ) -> BoxFuture<'a, Result<Arc<dyn Dataset>>> {
        async move { Ok(Arc::new(self.load(source, &objects, options).await?) as Arc<dyn Dataset>) }.boxed()
    }
}

/// A file in memory.
struct HeldFile {
    records: Bytes,
    /// Beside each other: where records are drawn at random, the thread that cuts one would wait for its first bytes.
    labels: Vec<u8>,
}

/// See [`Cifar`].
#[derive(Debug)]
struct CifarDataset {
    layout: Cifar,
    files: ShardTable<HeldFile>,
    schema: Schema,
    fingerprint: Fingerprint,
}

impl CifarDataset {
    /// The file that holds the record, where, and its labels.
    fn find(&self, record: u64) -> Result<(&Stored<HeldFile>, Range<usize>, &[u8])> {
        let (file, i) = self.files.find(record)?;
        let (size, labels) = (self.layout.record_bytes(), self.layout.label_bytes());
        Ok((file, i * size..(i + 1) * size, &file.of.labels[i * labels..(i + 1) * labels]))
    }
}

impl Dataset for CifarDataset {
    fn len(&self) -> u64 {
        self.files.len()
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn format(&self) -> &str {
        self.layout.name()
    }

    fn plan(&self, record: u64, _rng: SampleRng) -> Result<ReadPlan> {
        match record < self.len() {
            true => Ok(ReadPlan::default()),
            false => Err(no_such_record(record, self.len())),
        }
    }

    fn parse(&self, record: u64, _plan: &ReadPlan, _bytes: &[Bytes]) -> Result<Sample> {
        let (file, range, labels) = self.find(record)?;
        let (coarse_label, label) = parse_labels(self.layout, labels).map_err(|e| {
            let at = range.start as u64..range.end as u64;
            e.at_stage(Stage::Parse).at_record(record).at_object(self.files.name_of(file)).at_range(at)
        })?;
        let data = file.of.records.slice(range.start + self.layout.label_bytes()..range.end);
        let mut values = smallvec![Value::Pixels { info: IMAGE, data }];
        values.extend(coarse_label.map(|label| Value::Label(label.into())));
        values.push(Value::Label(label.into()));
        Ok(Sample { values })
    }

    fn object(&self, record: u64) -> String {
        self.files.object(record, self.layout.name())
    }

    fn needs_fetch(&self) -> bool {
        false
    }

    fn largest_read(&self) -> u64 {
        0
    }

    fn resident_bytes(&self) -> u64 {
        self.files.shards().iter().map(|file| (file.of.records.len() + file.of.labels.len()) as u64).sum()
    }

    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_of_their_classes() {
        assert_eq!(parse_labels(Cifar::Ten, &[7]).unwrap(), (None, 7));
        assert_eq!(parse_labels(Cifar::Hundred, &[19, 99]).unwrap(), (Some(19), 99));
        let bad = |layout, labels: &[u8]| parse_labels(layout, labels).unwrap_err().to_string();
        assert!(bad(Cifar::Ten, &[10]).contains("the label is 10, there are 10 classes"));
        assert!(bad(Cifar::Hundred, &[20, 0]).contains("coarse label is 20"));
        assert!(bad(Cifar::Hundred, &[0, 100]).contains("fine label is 100"));
    }
}
