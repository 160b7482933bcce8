//! Fields of bytes (text, JSON, keys) ride on the batch beside the tensors: in row order, through every policy.

use std::sync::Arc;

use bytes::Bytes;
use infeed::{
    Dataset, Device, ErrorKind, LastBatch, Loader, LoaderBuilder, OnBadSample, Transform,
    dataset::{MemoryDataset, concat, dataset_contract},
};

use crate::support::{builder, drain};

/// The words of record `i`, of another length in each.
fn words(i: usize) -> Bytes {
    format!("record {i} {}", "x".repeat(i * 7 % 23)).into()
}

/// `count` records of a gray picture, a label and words; the pictures of `bad` can't be decoded.
fn dataset(count: usize, bad: &[usize]) -> Arc<dyn Dataset> {
    let picture = |i: usize| {
        if bad.contains(&i) {
            return Bytes::from_static(b"no picture");
        }
        let mut file = std::io::Cursor::new(Vec::new());
        let pixel = image::Rgb([i as u8; 3]);
        image::RgbImage::from_pixel(4, 4, pixel).write_to(&mut file, image::ImageFormat::Png).unwrap();
        file.into_inner().into()
    };
    let (pictures, texts) = ((0..count).map(picture).collect(), (0..count).map(words).collect());
    let labels = (0..count as i64).collect();
    Arc::new(MemoryDataset::builder().encoded_images(pictures).labels(labels).bytes("words", texts).build().unwrap())
}

fn loader(dataset: Arc<dyn Dataset>, set: impl FnOnce(LoaderBuilder) -> LoaderBuilder) -> Loader {
    let transform = Transform::new().resize_exact(4, 4);
    set(builder(dataset).batch_size(8).workers(3).transform(transform)).build_blocking().unwrap()
}

#[test]
fn bytes_lie_in_the_rows_of_their_records() {
    let dataset = dataset(43, &[]);
    futures::executor::block_on(dataset_contract(&*dataset)).unwrap();
    let loader = loader(Arc::clone(&dataset), |b| b.shuffle(5).last_batch(LastBatch::Pad));
    for batch in drain(loader.epoch(0)).unwrap() {
        let texts = batch.bytes("words").unwrap();
        assert_eq!(texts.len(), 8, "rows that pad the batch have theirs too");
        let expected: Vec<Bytes> = batch.records().iter().map(|r| words(*r as usize)).collect();
        assert_eq!(texts, expected);
        assert!(batch.get("words").is_none(), "they are no tensor");
        assert!(batch.bytes("label").is_none());
        assert_eq!(batch.byte_fields().map(|(name, _)| name).collect::<Vec<_>>(), ["words"]);
        assert_eq!(batch.fields().map(|(name, _)| name).collect::<Vec<_>>(), ["image", "label"]);
    }
}

#[test]
fn bytes_follow_their_row_when_samples_are_bad() {
    let bad = [1, 2, 9, 15];
    let skips = loader(dataset(16, &bad), |b| b.on_bad_sample(OnBadSample::Skip { at_most: 9 }));
    for batch in drain(skips.epoch(0)).unwrap() {
        let texts = batch.bytes("words").unwrap();
        let expected: Vec<Bytes> = batch.records().iter().map(|r| words(*r as usize)).collect();
        assert_eq!(texts[..batch.valid()], expected);
        assert_eq!((batch.valid(), texts.len(), batch["image"].shape()[0]), (6, 6, 6));
    }
    let padded = loader(dataset(16, &bad), |b| b.on_bad_sample(OnBadSample::SkipPadded { at_most: 9 }));
    for batch in drain(padded.epoch(0)).unwrap() {
        let texts = batch.bytes("words").unwrap();
        let expected: Vec<Bytes> = batch.records().iter().map(|r| words(*r as usize)).collect();
        assert_eq!(texts[..batch.valid()], expected);
        assert!(texts[batch.valid()..].iter().all(Bytes::is_empty));
        assert_eq!((batch.valid(), texts.len()), (6, 8));
    }
    let substitutes = loader(dataset(16, &bad), |b| b.on_bad_sample(OnBadSample::Substitute));
    for batch in drain(substitutes.epoch(0)).unwrap() {
        let expected: Vec<Bytes> = batch.records().iter().map(|r| words(*r as usize)).collect();
        assert_eq!(batch.bytes("words").unwrap(), expected);
        assert!(batch.records().iter().all(|r| !bad.contains(&(*r as usize))));
    }
}

#[test]
fn bytes_are_resumed_like_tensors() {
    let loader = loader(dataset(64, &[]), |b| b.shuffle(1));
    let all = drain(loader.epoch(3)).unwrap();
    let rest = drain(loader.resume_epoch(all[2].state()).unwrap()).unwrap();
    let texts = |batches: &[infeed::Batch]| -> Vec<Bytes> {
        batches.iter().flat_map(|batch| batch.bytes("words").unwrap().to_vec()).collect()
    };
    assert_eq!(texts(&rest), texts(&all[3..]));
}

#[test]
fn bytes_count_in_the_memory_budget() {
    let most = 1 << 20;
    let texts = vec![Bytes::from(vec![7; most]), Bytes::new()];
    let dataset: Arc<dyn Dataset> =
        Arc::new(MemoryDataset::builder().labels(vec![0, 1]).bytes("blob", texts).build().unwrap());
    let build = |budget| builder(Arc::clone(&dataset)).batch_size(2).memory_budget(budget).build_blocking();
    let error = build(3 << 20).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("2 batches of 2049 KiB"), "{error}");
    let batches = drain(build(64 << 20).unwrap().epoch(0)).unwrap();
    assert_eq!(batches[0].bytes("blob").unwrap()[0].len(), most);
}

#[test]
fn datasets_whose_longest_bytes_differ_are_put_together() {
    let both = concat([dataset(5, &[]), dataset(31, &[])]).unwrap();
    futures::executor::block_on(dataset_contract(&*both)).unwrap();
    let loader =
        Loader::builder(both).device(Device::Cpu).batch_size(36).transform(Transform::new().resize_exact(4, 4));
    let batches = drain(loader.build_blocking().unwrap().epoch(0)).unwrap();
    let expected: Vec<Bytes> = (0..5).chain(0..31).map(words).collect();
    assert_eq!(batches[0].bytes("words").unwrap(), expected);
}

#[test]
fn a_transform_without_an_image_is_an_error_that_tells_the_fields() {
    let dataset = || {
        let words = (0..8).map(words).collect();
        Arc::new(MemoryDataset::builder().labels((0..8).collect()).bytes("words", words).build().unwrap())
    };
    let error =
        builder(dataset()).batch_size(4).transform(Transform::new().center_crop(4)).build_blocking().unwrap_err();
    let text = error.to_string();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(text.contains("no field is one: there are label (label), words (bytes)"), "{text}");
    // Without steps there is nothing to miss.
    assert_eq!(drain(builder(dataset()).batch_size(4).build_blocking().unwrap().epoch(0)).unwrap().len(), 2);
}
