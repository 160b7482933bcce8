//! Your own format: records of fixed size in one file, each a number and a small picture.
//!
//! `cargo run --release --example custom_dataset`
#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use infeed::{
    Error, Loader, Result,
    dataset::{
        Dataset, Field, FieldKind, Fingerprint, ImageInfo, ReadPlan, Sample, SampleRng, Schema, Value, dataset_contract,
    },
    source::{Extent, Source},
    transform::Transform,
};

/// A number of 8 bytes, then 16×16 gray pixels.
#[derive(Debug)]
struct Stamps {
    source: Source,
    name: Arc<str>,
    count: u64,
    schema: Schema,
}

const SIDE: u32 = 16;
const RECORD: u64 = 8 + (SIDE * SIDE) as u64;

impl Stamps {
    /// All I/O of a dataset happens when it is opened; here the caller has already read the file's size.
    fn new(source: Source, name: &str, size: u64) -> Result<Self> {
        if !size.is_multiple_of(RECORD) {
            let what = format!("{size} bytes are not a multiple of the {RECORD} bytes of a record");
            return Err(Error::corrupt(what).at_object(name));
        }
        let image = FieldKind::Image { channels: 1, size: Some((SIDE, SIDE)), dtype: Some(infeed::DType::U8) };
        let schema = Schema::new(vec![Field::new("image", image), Field::new("label", FieldKind::Label)]);
        Ok(Self { source, name: name.into(), count: size / RECORD, schema })
    }
}

impl Dataset for Stamps {
    fn len(&self) -> u64 {
        self.count
    }
    fn schema(&self) -> &Schema {
        &self.schema
    }
    fn format(&self) -> &str {
        "stamps"
    }
    fn plan(&self, record: u64, _rng: SampleRng) -> Result<ReadPlan> {
        if record >= self.count {
            return Err(Error::config(format!("there are {} records", self.count)).at_record(record));
        }
        let start = record * RECORD;
        Ok(ReadPlan::new([Extent::part(&self.source, Arc::clone(&self.name), start..start + RECORD)]))
    }
    fn parse(&self, record: u64, _plan: &ReadPlan, bytes: &[Bytes]) -> Result<Sample> {
        let short = || Error::corrupt("the record is cut off").at_record(record);
        let bytes = bytes.first().filter(|bytes| bytes.len() as u64 == RECORD).ok_or_else(short)?;
        let (number, _) = bytes.split_first_chunk::<8>().ok_or_else(short)?;
        let info = ImageInfo::interleaved_u8(SIDE, SIDE, 1);
        // A slice of the bytes that were read: no copy.
        Ok(Sample::new([Value::Pixels { info, data: bytes.slice(8..) }, Value::Label(i64::from_le_bytes(*number))]))
    }
    fn object(&self, _record: u64) -> String {
        self.name.to_string()
    }
    fn largest_read(&self) -> u64 {
        RECORD
    }
    fn needs_fetch(&self) -> bool {
        !self.source.reads_inline()
    }
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of("stamps").text(&self.name).number(self.count).finish()
    }
}

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let mut file = Vec::new();
    for number in 0..500u64 {
        file.extend_from_slice(&number.to_le_bytes());
        file.extend((0..SIDE * SIDE).map(|i| (number as u32 + i) as u8));
    }
    std::fs::write(folder.path().join("all.stamps"), &file)?;

    let source = Source::parse(&folder.path().display().to_string())?;
    let stamps = Stamps::new(source, "all.stamps", file.len() as u64)?;
    // Checks all rules that the loader relies on; call it in your tests.
    dataset_contract(&stamps).await?;

    let transform = Transform::new().random_crop(12, 2).horizontal_flip(0.5).to_float();
    let loader = Loader::builder(Arc::new(stamps)).batch_size(100).shuffle(1).transform(transform).build().await?;
    let mut batches = loader.epoch(0);
    while let Some(batch) = batches.next().await {
        let batch = batch?;
        println!(
            "{:?} {:?}",
            batch["image"],
            &batch["label"].to_host()?.as_slice::<i64>().map(|labels| labels[..4].to_vec())
        );
    }
    Ok(())
}
