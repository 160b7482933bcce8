//! Images, and what is marked in them: what formats of detection have in common.

use std::{mem::size_of_val, sync::Arc};

use bytes::Bytes;
use infeed_core::{
    error::{Error, ErrorKind, Result},
    fingerprint::Fingerprint,
    random::SampleRng,
};

use super::{
    files::Files,
    marked::Marked,
    record::{Dataset, ReadPlan, Sample, Value, index},
    schema::{Field, FieldKind, Schema},
    sizes::Sizes,
};

/// Each file is a record; so is an entry of every list.
#[derive(Debug)]
pub(crate) struct DetectionDataset {
    format: &'static str,
    files: Files,
    /// What the dataset calls its images.
    ids: Vec<i64>,
    /// Height and width of the images, as the annotations say them.
    sizes: Vec<[u32; 2]>,
    marked: Marked,
    schema: Schema,
    reads: Sizes,
    fingerprint: Fingerprint,
}

impl DetectionDataset {
    /// As many files, ids and sizes as `marked` was made for.
    pub(crate) fn new(
        format: &'static str,
        mut files: Files,
        ids: Vec<i64>,
        sizes: Vec<[u32; 2]>,
        marked: Marked,
        classes: Arc<[String]>,
    ) -> Self {
        files.tighten();
        let instances = Field::instances(marked.most(), marked.has_masks());
        let fields = vec![Field::image(), instances, Field::new("image_id", FieldKind::Label)];
        let mut print = Fingerprint::of(format).number(files.len() as u64);
        for i in 0..files.len() {
            let [height, width] = sizes[i].map(u64::from);
            print = print.text(files.name(i)).number(files.sizes[i]).number(ids[i] as u64).number(height).number(width);
        }
        let fingerprint = marked.print(print).finish();
        let reads = Sizes::of(files.sizes.iter().copied());
        let schema = Schema::new(fields).with_classes(Some(classes));
        Self { format, files, ids, sizes, marked, schema, reads, fingerprint }
    }
}

impl Dataset for DetectionDataset {
    fn len(&self) -> u64 {
        self.files.len() as u64
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn format(&self) -> &str {
        self.format
    }

    fn plan(&self, record: u64, _rng: SampleRng) -> Result<ReadPlan> {
        Ok(ReadPlan::one(self.files.extent(index(record, self.files.len())?)))
    }

    fn parse(&self, record: u64, _plan: &ReadPlan, bytes: &[Bytes]) -> Result<Sample> {
        let i = index(record, self.files.len())?;
        let [image] = bytes else {
            let what = format!("{} buffers where the plan has 1", bytes.len());
            return Err(Error::new(ErrorKind::Internal, what).at_record(record));
        };
        let instances = self.marked.instances(i, self.sizes[i]);
        let instances = instances.map_err(|e| e.at_record(record).at_object(self.files.display(i)))?;
        Ok(Sample::new([
            Value::Encoded(image.clone()),
            Value::Instances(Box::new(instances)),
            Value::Label(self.ids[i]),
        ]))
    }

    fn image_size(&self, record: u64) -> Option<[u32; 2]> {
        self.sizes.get(usize::try_from(record).ok()?).copied()
    }

    /// Broken ones are found when their record is read.
    fn known(&self, record: u64, field: &str) -> Option<Value> {
        let i = index(record, self.files.len()).ok()?;
        match field {
            "instances" => Some(Value::Instances(Box::new(self.marked.instances(i, self.sizes[i]).ok()?))),
            "image_id" => Some(Value::Label(self.ids[i])),
            _ => None,
        }
    }

    fn object(&self, record: u64) -> String {
        index(record, self.files.len())
            .map_or_else(|_| self.files.source.url().to_owned(), |record| self.files.display(record))
    }

    fn needs_fetch(&self) -> bool {
        !self.files.source.reads_inline()
    }

    fn largest_read(&self) -> u64 {
        self.reads.largest
    }

    fn usual_read(&self) -> u64 {
        self.reads.usual
    }

    fn resident_bytes(&self) -> u64 {
        let lists = size_of_val(&*self.ids) + size_of_val(&*self.sizes);
        (self.files.bytes() + lists + self.marked.bytes()) as u64
    }

    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}
