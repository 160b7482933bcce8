//! Checks what every dataset promises.

use std::{
    collections::HashSet,
    panic::{AssertUnwindSafe, catch_unwind},
};

use bytes::Bytes;
use infeed_core::{
    error::{Error, ErrorKind, Result},
    random::{SampleRng, hash64},
    types::DType,
};
use infeed_store::Extent;

use super::{
    record::{Dataset, ReadPlan, Sample, Value},
    schema::{Field, FieldKind, is_class},
};

/// Records that are checked, in addition to the first and the last.
const SAMPLED: u64 = 32;

/// Checks on up to 34 records that a dataset keeps the promises of [`Dataset`]. Call it in the tests of a format of
/// your own.
///
/// - Names of fields are unique, sizes are above 0; length, schema and fingerprint stay the same.
/// - Groups begin with 0 and ascend below the length.
/// - A second call of `plan` gives the same plan. Plans stay within their objects, and below `largest_read`.
/// - Records that the dataset reads itself have no extents, and `read` gives a result for each.
/// - The result of `parse` fits the schema: kinds, lengths, labels below the number of classes, or -1.
/// - A record beyond the end is an error. Nothing panics, even for such records or truncated bytes.
///
/// Reads the records with [`Extent::read`]: over a network it needs a tokio runtime. [`Dataset::read`] is called on
/// this thread, and may block.
///
/// # Errors
/// `Internal` for the first broken promise; otherwise the error of `plan`, of reading or of `parse`.
///
/// ```
/// # futures::executor::block_on(async {
/// let dataset = infeed::dataset::SyntheticDataset::new(100, 8, 8, 10)?;
/// infeed::dataset::dataset_contract(&dataset).await
/// # }).unwrap();
/// ```
pub async fn dataset_contract(dataset: &dyn Dataset) -> Result<()> {
    let len = dataset.len();
    check_schema(&dataset.schema().fields)?;
    ensure(!dataset.format().is_empty(), || "the format has no name".to_owned())?;
    ensure(dataset.fingerprint() == dataset.fingerprint(), || "the fingerprint changes".to_owned())?;
    check_groups(dataset.groups().as_deref(), len)?;
    let sampled = (0..SAMPLED.min(len)).map(|i| hash64(i) % len);
    for record in sampled.chain([0, len.wrapping_sub(1)]).filter(|r| *r < len) {
        check_record(dataset, record).await.map_err(|e| e.at_record(record))?;
    }
    for beyond in [len, len.saturating_add(1), u64::MAX] {
        check_beyond(dataset, beyond).map_err(|e| e.at_record(beyond))?;
    }
    ensure(dataset.len() == len, || "the length changes".to_owned())
}

fn ensure(kept: bool, broken: impl FnOnce() -> String) -> Result<()> {
    if kept { Ok(()) } else { Err(Error::new(ErrorKind::Internal, format!("dataset contract: {}", broken()))) }
}

/// Runs `f`, and turns a panic into an error.
fn calm<T>(what: &str, f: impl FnOnce() -> T) -> Result<T> {
    catch_unwind(AssertUnwindSafe(f)).or_else(|_| ensure(false, || format!("{what} panics")).map(|()| unreachable!()))
}

fn check_schema(fields: &[Field]) -> Result<()> {
    let mut names = HashSet::new();
    for field in fields {
        let name = &field.name;
        ensure(!name.is_empty() && names.insert(name), || format!("two fields are called `{name}`, or one nothing"))?;
        let sound = match &field.kind {
            FieldKind::Image { channels, size, .. } => *channels > 0 && size.is_none_or(|(h, w)| h > 0 && w > 0),
            FieldKind::Volume { channels, size, .. } => *channels > 0 && size.is_none_or(|size| !size.contains(&0)),
            FieldKind::Label => true,
            FieldKind::Array { shape, .. } => shape.iter().all(|n| *n > 0),
            FieldKind::List { item, .. } => item.iter().all(|n| *n > 0),
            FieldKind::Images { channels, .. } => *channels > 0,
            FieldKind::Bytes { .. }
            | FieldKind::Text { .. }
            | FieldKind::Texts { .. }
            | FieldKind::Instances { .. } => true,
        };
        ensure(sound, || format!("`{name}` has a size of 0"))?;
    }
    ensure(!fields.is_empty(), || "there are no fields".to_owned())
}

fn check_groups(groups: Option<&[u64]>, len: u64) -> Result<()> {
    let Some(groups) = groups else { return Ok(()) };
    let ascend = groups.windows(2).all(|w| w[0] < w[1]);
    let within = groups.first() == Some(&0) && groups.last().is_some_and(|last| *last < len);
    ensure(ascend && (within || len == 0), || "groups do not ascend from 0 to below the length".to_owned())
}

async fn check_record(dataset: &dyn Dataset, record: u64) -> Result<()> {
    let rng = SampleRng::new(1, 2, record);
    let plan = calm("plan", || dataset.plan(record, rng))??;
    ensure(same_plan(&plan, &dataset.plan(record, rng)?), || "the plan comes out differently again".to_owned())?;
    for extent in &plan.extents {
        let within = extent.range.start <= extent.range.end && extent.size.is_none_or(|s| extent.range.end <= s);
        ensure(within, || format!("the plan reads {:?} of `{}`, which ends before", extent.range, extent.name))?;
    }
    let (reads, most) = (plan.len_bytes(), dataset.largest_read());
    ensure(reads <= most, || format!("the plan reads {reads} bytes, largest_read says {most}"))?;
    ensure(!dataset.object(record).is_empty(), || "the object has no name".to_owned())?;

    let mut bytes = Vec::with_capacity(plan.extents.len());
    for extent in &plan.extents {
        bytes.push(extent.read().await?);
    }
    if plan.by_dataset.is_some() {
        let alone = plan.extents.is_empty() && dataset.concurrent_reads().is_some();
        ensure(alone, || "a record that the dataset reads has extents, or concurrent_reads denies it".to_owned())?;
        let mut read = calm("read", || dataset.read(&[record, record]))?;
        ensure(read.len() == 2, || format!("read gives {} results for 2 records", read.len()))?;
        bytes.extend(read.swap_remove(0)?);
    }
    for shared in &plan.shared {
        let mut encoded = Vec::with_capacity(shared.extents.len());
        for extent in &shared.extents {
            encoded.push(extent.read().await?);
        }
        let decoded = calm("decode_shared", || dataset.decode_shared(shared.key, &encoded))??;
        let (len, most) = (decoded.len() as u64, shared.bytes);
        ensure(len <= most, || format!("a shared part has {len} bytes, the plan says {most}"))?;
        bytes.push(decoded);
        let cut: Vec<Bytes> = encoded.iter().map(|b| b.slice(..b.len() / 2)).collect();
        for damaged in [&cut[..], &[]] {
            let _ = calm("decode_shared of damaged bytes", || dataset.decode_shared(shared.key, damaged))?;
        }
    }
    let sample = calm("parse", || dataset.parse(record, &plan, &bytes))??;
    check_sample(dataset, &sample)?;
    let cut: Vec<Bytes> = bytes.iter().map(|b| b.slice(..b.len() / 2)).collect();
    for damaged in [&cut[..], &[]] {
        // Either an error or a sample is right; the codec checks the bytes next.
        let _ = calm("parse of damaged bytes", || dataset.parse(record, &plan, damaged))?;
    }
    Ok(())
}

fn same_plan(a: &ReadPlan, b: &ReadPlan) -> bool {
    let same = |a: &Extent, b: &Extent| {
        (a.source.url(), &a.name, &a.range, a.size, &a.etag) == (b.source.url(), &b.name, &b.range, b.size, &b.etag)
    };
    let parts = |plan: &ReadPlan| plan.shared.iter().map(|s| (s.key, s.bytes, s.extents.len())).collect::<Vec<_>>();
    a.extents.len() == b.extents.len()
        && a.extents.iter().zip(&b.extents).all(|(a, b)| same(a, b))
        && parts(a) == parts(b)
        && a.window == b.window
        && a.by_dataset == b.by_dataset
}

fn check_sample(dataset: &dyn Dataset, sample: &Sample) -> Result<()> {
    let schema = dataset.schema();
    let (want, got) = (schema.fields.len(), sample.values.len());
    ensure(want == got, || format!("parse gives {got} values for {want} fields"))?;
    for (field, value) in schema.fields.iter().zip(&sample.values) {
        let fits = match (&field.kind, value) {
            (kind @ FieldKind::Image { .. }, value) => is_image(kind, field.mask, value),
            (kind @ FieldKind::Images { most, .. }, Value::Images(images)) => {
                let each = kind.each_image();
                let fits = |each: FieldKind| images.iter().all(|image| is_image(&each, field.mask, image));
                images.len() <= *most && each.is_some_and(fits)
            }
            (FieldKind::Volume { channels, size, .. }, Value::Volume(volume)) => {
                volume.is_sound()
                    && volume.channels.len() == *channels as usize
                    && size.is_none_or(|size| size.map(|n| n as usize) == volume.shape)
            }
            (FieldKind::Label, Value::Label(label)) => {
                // Class names belong to `label`; another field has its own names.
                field.name != "label" || schema.classes.as_ref().is_none_or(|classes| is_class(*label, classes))
            }
            (FieldKind::Array { dtype, shape }, Value::Array(data)) => Some(data.len()) == dtype.len_bytes(shape),
            (FieldKind::Bytes { most }, Value::Bytes(data)) => data.len() <= *most,
            (FieldKind::Text { most }, Value::Bytes(data)) => data.len() <= *most && str::from_utf8(data).is_ok(),
            (FieldKind::Texts { most }, Value::Texts(texts)) => {
                texts.iter().map(Bytes::len).sum::<usize>() <= *most
                    && texts.iter().all(|text| str::from_utf8(text).is_ok())
            }
            (kind @ FieldKind::List { most, .. }, Value::List(data)) => {
                kind.item_bytes().is_some_and(|each| data.len().is_multiple_of(each) && data.len() / each <= *most)
            }
            (FieldKind::Instances { most, masks, keypoints }, Value::Instances(marked)) => {
                let known = |label: &i64| schema.classes.as_ref().is_none_or(|c| (0..c.len() as i64).contains(label));
                marked.is_sound()
                    && marked.len() <= *most
                    && marked.masks.is_some() == *masks
                    && marked.has_keypoints(*keypoints)
                    && marked.labels.iter().all(known)
            }
            _ => false,
        };
        ensure(fits, || format!("`{}` is {:?}, parse gives {}", field.name, field.kind, describe(value)))?;
    }
    Ok(())
}

/// Whether the value is an image of this kind.
fn is_image(kind: &FieldKind, is_mask: bool, value: &Value) -> bool {
    let FieldKind::Image { channels, size, dtype } = kind else { return false };
    match value {
        Value::Encoded(_) => true,
        Value::Channels(files) => files.len() == usize::from(*channels),
        Value::Pixels { info, data } => {
            // Gray is repeated and alpha dropped; otherwise the number of channels stays.
            let channels_fit = info.channels == *channels || (*channels == 3 && [1, 4].contains(&info.channels));
            info.len_bytes() == data.len() as u64
                && channels_fit
                && size.is_none_or(|size| size == (info.height, info.width))
                // A mask's labels keep their values in a larger type.
                && dtype.is_none_or(|dtype| dtype == info.dtype || is_mask && info.dtype == DType::U8)
        }
        _ => false,
    }
}

fn describe(value: &Value) -> String {
    match value {
        Value::Encoded(data) => format!("an image file of {} bytes", data.len()),
        Value::Channels(files) => format!("{} files of one channel", files.len()),
        Value::Pixels { info, data } => format!("{info:?} in {} bytes", data.len()),
        Value::Volume(volume) => format!("a volume of {:?} with {} channels", volume.shape, volume.channels.len()),
        Value::Label(label) => format!("label {label}"),
        Value::Array(data) => format!("{} bytes of numbers", data.len()),
        Value::Bytes(data) => format!("{} bytes", data.len()),
        Value::List(data) => format!("a list of {} bytes", data.len()),
        Value::Images(images) => format!("{} images", images.len()),
        Value::Texts(texts) => format!("{} texts", texts.len()),
        Value::Instances(marked) => {
            let masks = marked.masks.as_ref().map_or("no", |_| "with");
            format!("{} instances, {} labels, {masks} masks", marked.len(), marked.labels.len())
        }
    }
}

fn check_beyond(dataset: &dyn Dataset, record: u64) -> Result<()> {
    let plan = calm("plan beyond the end", || dataset.plan(record, SampleRng::new(0, 0, record)))?;
    let sample = calm("parse beyond the end", || dataset.parse(record, &ReadPlan::default(), &[]))?;
    calm("object beyond the end", || dataset.object(record))?;
    let read = calm("read beyond the end", || dataset.read(&[record]))?;
    let refused = read.iter().all(Result::is_err);
    ensure(plan.is_err() && sample.is_err() && refused, || "a record beyond the end is no error".to_owned())
}

#[cfg(test)]
mod tests {
    use std::{
        num::NonZeroUsize,
        sync::{
            Arc,
            atomic::{AtomicU64, Ordering},
        },
    };

    use futures::executor::block_on;
    use smallvec::smallvec;

    use super::*;
    use crate::{Schema, SyntheticDataset};
    use infeed_core::fingerprint::Fingerprint;

    /// A sound dataset with one promise broken.
    #[derive(Debug)]
    struct Broken {
        sound: SyntheticDataset,
        schema: Schema,
        promise: &'static str,
        calls: AtomicU64,
    }

    impl Dataset for Broken {
        fn len(&self) -> u64 {
            self.sound.len()
        }
        fn schema(&self) -> &Schema {
            &self.schema
        }
        fn format(&self) -> &str {
            if self.promise == "the format has no name" { "" } else { "broken" }
        }
        fn plan(&self, record: u64, rng: SampleRng) -> Result<ReadPlan> {
            let mut plan = match self.promise {
                "a record beyond the end is no error" => ReadPlan::default(),
                "plan beyond the end panics" => self.sound.plan(record, rng).unwrap(),
                _ => self.sound.plan(record, rng)?,
            };
            let store = Arc::new(object_store::memory::InMemory::new());
            let source = infeed_store::Source::from_store(store, object_store::path::Path::default(), "test://");
            match self.promise {
                "the plan comes out differently again" if self.calls.fetch_add(1, Ordering::Relaxed) % 2 == 1 => {
                    plan.extents.push(Extent::part(&source, "a", 0..0));
                }
                "which ends before" => {
                    let mut extent = Extent::whole(&source, "a", 3);
                    extent.range.end = 4;
                    plan.extents.push(extent);
                }
                "the plan reads 3 bytes, largest_read says 0" => plan.extents.push(Extent::whole(&source, "a", 3)),
                "concurrent_reads denies it" | "read gives 1 results for 2 records" | "read panics" => {
                    plan.by_dataset = Some(0);
                }
                _ => {}
            }
            Ok(plan)
        }
        fn parse(&self, record: u64, plan: &ReadPlan, bytes: &[Bytes]) -> Result<Sample> {
            let sound = match self.promise {
                "a record beyond the end is no error" => self.sound.parse(0, plan, bytes),
                _ => self.sound.parse(record, plan, bytes),
            };
            match self.promise {
                "parse gives 1 values for 2 fields" => Ok(Sample { values: smallvec![sound?.values.remove(0)] }),
                "parse gives label 9" => {
                    let mut sample = sound?;
                    sample.values[0] = Value::Label(9);
                    Ok(sample)
                }
                _ => sound,
            }
        }
        fn read(&self, records: &[u64]) -> Vec<Result<Vec<Bytes>>> {
            assert!(self.promise != "read panics" || records.len() == 1, "on purpose");
            let beyond = |_: &u64| Err(Error::new(ErrorKind::Internal, "beyond the end"));
            match self.promise {
                "read gives 1 results for 2 records" if records.len() == 2 => vec![Ok(Vec::new())],
                _ => records.iter().map(beyond).collect(),
            }
        }
        fn concurrent_reads(&self) -> Option<NonZeroUsize> {
            (self.promise != "concurrent_reads denies it").then_some(NonZeroUsize::MIN)
        }
        fn object(&self, record: u64) -> String {
            if self.promise == "the object has no name" { String::new() } else { self.sound.object(record) }
        }
        fn largest_read(&self) -> u64 {
            0
        }
        fn groups(&self) -> Option<Arc<[u64]>> {
            (self.promise == "groups do not ascend").then(|| Arc::from([0, 5, 5]))
        }
        fn fingerprint(&self) -> Fingerprint {
            let changes = self.promise == "the fingerprint changes";
            Fingerprint(if changes { self.calls.fetch_add(1, Ordering::Relaxed).into() } else { 1 })
        }
    }

    #[test]
    fn each_broken_promise_is_found() {
        let check = |promise, schema: fn(&mut Schema)| {
            let sound = SyntheticDataset::new(10, 4, 4, 3).unwrap();
            let mut changed = sound.schema().clone();
            schema(&mut changed);
            block_on(dataset_contract(&Broken { sound, schema: changed, promise, calls: AtomicU64::new(0) }))
        };
        check("", |_| ()).unwrap();
        for promise in [
            "the format has no name",
            "the fingerprint changes",
            "groups do not ascend",
            "the plan comes out differently again",
            "which ends before",
            "the plan reads 3 bytes, largest_read says 0",
            "the object has no name",
            "parse gives 1 values for 2 fields",
            "parse gives label 9",
            "concurrent_reads denies it",
            "read gives 1 results for 2 records",
            "read panics",
            "a record beyond the end is no error",
            "plan beyond the end panics",
        ] {
            let error = check(promise, |_| ()).expect_err(promise);
            assert_eq!(error.kind(), ErrorKind::Internal);
            assert!(error.to_string().contains(promise), "{error}");
        }
        for (change, says) in [
            ((|s| s.fields.truncate(0)) as fn(&mut Schema), "no fields"),
            (|s| s.fields[1].name = "image".into(), "two fields are called `image`"),
            (|s| s.fields[1].kind = FieldKind::Array { dtype: DType::U8, shape: vec![0] }, "size of 0"),
            (|s| s.classes = Some(Arc::new(["one".to_owned()])), "parse gives label"),
        ] {
            let error = check("", change).expect_err(says);
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
