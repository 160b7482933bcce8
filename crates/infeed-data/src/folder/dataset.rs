//! Images in files, opened.

use std::sync::Arc;

use bytes::Bytes;
use infeed_core::{
    error::{Error, ErrorKind, Result},
    fingerprint::Fingerprint,
    random::SampleRng,
};
use infeed_store::Object;
use smallvec::smallvec;

use super::{fields::Several, metadata};
use crate::{
    files::Files,
    labels::RecordLabels,
    record::{Dataset, ReadPlan, Sample, Value, index},
    schema::{Field, Schema},
    sizes::{Histogram, Sizes},
};

/// The reason for taking a place for a folder of images.
pub(super) fn why(first: &str) -> String {
    format!("images, the first is `{first}`")
}

/// What opening finds out about all records.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) labels: Option<RecordLabels>,
    pub(super) classes: Option<Arc<[String]>>,
    pub(super) sizes: Sizes,
    pub(super) fingerprint: Fingerprint,
}

impl Found {
    pub(super) fn of(
        files: &Files,
        several: Option<&Several>,
        labels: Option<Vec<i64>>,
        classes: Option<Arc<[String]>>,
    ) -> Result<Self> {
        let records = several.map_or(files.len(), Several::records);
        let mut print = Fingerprint::of("folder").number(records as u64);
        let mut sizes = Histogram::default();
        match several {
            None => {
                print = files.fold(print, |print, name, size| {
                    sizes.add(size);
                    print.text(name).number(size)
                })?;
            }
            Some(several) => {
                print = print.number(several.per as u64);
                for record in several.order.chunks_exact(several.per) {
                    let mut bytes = 0_u64;
                    for file in record {
                        let Object { name, size, .. } = files.get(*file as usize)?;
                        print = print.text(&name).number(size);
                        bytes = bytes.saturating_add(size);
                    }
                    sizes.add(bytes);
                }
            }
        }
        let labels = labels.map(RecordLabels::of);
        Ok(Self { labels, classes, sizes: sizes.sizes(), fingerprint: print.finish() })
    }
}

/// See [`Folder`](super::Folder).
#[derive(Debug)]
pub(super) struct FolderDataset {
    files: Files,
    /// `None`: each file is a record.
    several: Option<Several>,
    found: Found,
    /// Other fields of each record.
    metadata: Vec<metadata::Column>,
    schema: Schema,
}

impl FolderDataset {
    pub(super) fn new(
        files: Files,
        several: Option<Several>,
        found: Found,
        mut fields: Vec<Field>,
        metadata: Vec<metadata::Column>,
    ) -> Self {
        fields.extend(found.labels.is_some().then(Field::label));
        fields.extend(metadata.iter().map(metadata::Column::field));
        let schema = Schema::new(fields).with_classes(found.classes.clone());
        Self { files, several, found, metadata, schema }
    }

    /// Whether it is an ImageFolder of Hugging Face, with a table of metadata.
    pub(super) fn with_upright(mut self, upright: bool) -> Self {
        self.schema.upright = upright;
        self
    }

    fn records(&self) -> usize {
        self.several.as_ref().map_or(self.files.len(), Several::records)
    }

    /// Indices of a record's files.
    fn files_of(&self, record: usize) -> impl Iterator<Item = usize> {
        let one = self.several.is_none().then_some(record);
        let many = self.several.as_ref().map(|several| &several.order[record * several.per..][..several.per]);
        one.into_iter().chain(many.into_iter().flatten().map(|i| *i as usize))
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
            None => ReadPlan::one(self.files.extent(record)?),
            Some(_) => {
                let extents: Vec<_> = self.files_of(record).map(|i| self.files.extent(i)).collect::<Result<_>>()?;
                ReadPlan::new(extents)
            }
        })
    }

    fn parse(&self, record: u64, _plan: &ReadPlan, bytes: &[Bytes]) -> Result<Sample> {
        let i = index(record, self.records())?;
        let (per, channels) = self.several.as_ref().map_or((1, 1), |several| (several.per, several.channels));
        if bytes.len() != per {
            let what = format!("{} buffers, but the plan has {per}", bytes.len());
            return Err(Error::new(ErrorKind::Internal, what).at_record(record));
        }
        let (image, mask) = bytes.split_at(channels);
        let image = match image {
            [file] => Value::Encoded(file.clone()),
            files => Value::Channels(files.into()),
        };
        let mut values = smallvec![image];
        values.extend(mask.iter().cloned().map(Value::Encoded));
        values.extend(self.found.labels.as_ref().map(|labels| Value::Label(labels.get(i))));
        for column in &self.metadata {
            values.push(column.value(i).map_err(|e| e.at_record(record))?);
        }
        Ok(Sample { values })
    }

    fn known(&self, record: u64, field: &str) -> Option<Value> {
        let i = index(record, self.records()).ok()?;
        match &self.found.labels {
            Some(labels) if field == "label" => Some(Value::Label(labels.get(i))),
            _ => self.metadata.iter().find(|column| column.name() == field).and_then(|column| column.value(i).ok()),
        }
    }

    fn object(&self, record: u64) -> String {
        match index(record, self.records()).map(|record| self.files_of(record).next()) {
            Ok(Some(i)) => self.files.display(i),
            _ => self.files.source.url().to_owned(),
        }
    }

    fn object_of(&self, record: u64, field: &str) -> String {
        // Masks are the last of a record's files.
        let of_mask = self.schema.fields.iter().any(|known| known.mask && known.name == field);
        let mask = index(record, self.records()).ok().filter(|_| of_mask);
        let file = mask.and_then(|record| self.files_of(record).last());
        file.map_or_else(|| self.object(record), |file| self.files.display(file))
    }

    fn needs_fetch(&self) -> bool {
        !self.files.source.reads_inline()
    }

    fn largest_read(&self) -> u64 {
        self.found.sizes.largest
    }

    fn usual_read(&self) -> u64 {
        self.found.sizes.usual
    }

    fn resident_bytes(&self) -> u64 {
        let labels = self.found.labels.as_ref().map_or(0, RecordLabels::bytes);
        let order = self.several.as_ref().map_or(0, |several| several.order.len() * 4);
        let metadata: usize = self.metadata.iter().map(metadata::Column::bytes).sum();
        self.files.bytes() + (labels + order + metadata) as u64
    }

    fn fingerprint(&self) -> Fingerprint {
        self.found.fingerprint
    }
}
