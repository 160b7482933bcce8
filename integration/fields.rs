//! Values of any length (bytes, texts, lists) come with the batch beside the tensors: in row order, through every policy.

use std::sync::Arc;

use bytes::Bytes;
use infeed::{
    Batch, DType, Dataset, Device, ErrorKind, LastBatch, Loader, LoaderBuilder, OnBadSample, Shard, Transform,
    dataset::{MemoryDataset, concat, dataset_contract, declare, lengths},
    sampler::{LengthSampler, Sampler},
    transform::{View, augment::Mix},
};

use crate::support::{builder, drain};

/// The words of record `i`, of another length in each.
fn words(i: usize) -> Bytes {
    format!("record {i} {}", "x".repeat(i * 7 % 23)).into()
}

/// The tokens of record `i`, and its points: another number in each, sometimes none.
fn tokens(i: usize) -> Vec<i32> {
    (0..i * 5 % 7).map(|k| (i * 10 + k) as i32).collect()
}

fn points(i: usize) -> Vec<f32> {
    (0..i % 3 * 2).map(|k| i as f32 + k as f32 / 8.0).collect()
}

/// Whether the lists of a batch are those of its records.
fn check_lists(batch: &Batch) {
    let (all_tokens, all_points) = (batch.list("tokens").unwrap(), batch.list("points").unwrap());
    assert_eq!((all_tokens.len(), all_points.len()), (batch.len(), batch.len()));
    for (row, record) in batch.records().iter().enumerate() {
        assert_eq!(all_tokens.row::<i32>(row).unwrap(), tokens(*record as usize));
        assert_eq!(all_points.row::<f32>(row).unwrap(), points(*record as usize));
    }
    let rows: Vec<&[i32]> = all_tokens.rows().unwrap().collect();
    let total: usize = rows.iter().map(|row| row.len()).sum();
    assert_eq!(
        (rows.concat().as_slice(), all_tokens.values().shape()),
        (all_tokens.values().as_slice().unwrap(), &[total][..])
    );
    assert_eq!(all_points.values().shape()[1..], [2]);
    assert_eq!(all_tokens.offsets().shape(), [batch.len() + 1]);
    assert!(all_tokens.row::<i64>(0).is_none(), "of another type");
    // Rows of zeros have no items.
    assert!(rows[batch.records().len()..].iter().all(|row| row.is_empty()));
}

/// `count` records of a gray picture, a label, words and lists; the pictures of `bad` can't be decoded.
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
    let floats = |i| points(i).iter().flat_map(|number| number.to_ne_bytes()).collect::<Vec<u8>>().into();
    let dataset = MemoryDataset::builder().encoded_images(pictures).labels(labels).bytes("words", texts);
    let dataset = dataset.lists("tokens", (0..count).map(tokens).collect());
    let dataset = dataset.list_bytes("points", DType::F32, vec![2], (0..count).map(floats).collect());
    Arc::new(dataset.texts("caption", (0..count).map(|i| format!("picture {i}"))).build().unwrap())
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
        assert!(batch.bytes("label").is_none() && batch.bytes("tokens").is_none() && batch.list("words").is_none());
        assert_eq!(batch.byte_fields().map(|(name, _)| name).collect::<Vec<_>>(), ["words", "caption"]);
        assert_eq!(batch.list_fields().map(|(name, _)| name).collect::<Vec<_>>(), ["tokens", "points"]);
        assert!(batch.texts("words").is_none(), "bytes may not be text");
        let captions: Vec<String> = batch.records().iter().map(|record| format!("picture {record}")).collect();
        assert!(batch.texts("caption").unwrap().eq(captions.iter().map(String::as_str)));
        check_lists(&batch);
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
        check_lists(&batch);
    }
    let padded = loader(dataset(16, &bad), |b| b.on_bad_sample(OnBadSample::SkipPadded { at_most: 9 }));
    for batch in drain(padded.epoch(0)).unwrap() {
        let texts = batch.bytes("words").unwrap();
        let expected: Vec<Bytes> = batch.records().iter().map(|r| words(*r as usize)).collect();
        assert_eq!(texts[..batch.valid()], expected);
        assert!(texts[batch.valid()..].iter().all(Bytes::is_empty));
        assert_eq!((batch.valid(), texts.len()), (6, 8));
        check_lists(&batch);
    }
    let substitutes = loader(dataset(16, &bad), |b| b.on_bad_sample(OnBadSample::Substitute));
    for batch in drain(substitutes.epoch(0)).unwrap() {
        let expected: Vec<Bytes> = batch.records().iter().map(|r| words(*r as usize)).collect();
        assert_eq!(batch.bytes("words").unwrap(), expected);
        assert!(batch.records().iter().all(|r| !bad.contains(&(*r as usize))));
        check_lists(&batch);
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
    rest.iter().for_each(check_lists);
}

#[test]
fn padded_lists_are_tensors_with_their_lengths() {
    let bad = [3];
    let padded = loader(dataset(16, &bad), |b| {
        b.shuffle(1).pad("tokens", -100).pad("points", 0.5).on_bad_sample(OnBadSample::SkipPadded { at_most: 9 })
    });
    for batch in drain(padded.epoch(0)).unwrap() {
        assert!(batch.list_fields().next().is_none());
        let lengths: &[i64] = batch["tokens.lengths"].as_slice().unwrap();
        let longest = *lengths.iter().max().unwrap() as usize;
        assert_eq!(batch["tokens"].shape(), [8, longest]);
        let all: &[i32] = batch["tokens"].as_slice().unwrap();
        for (row, length) in lengths.iter().enumerate() {
            let (own, rest) = all[row * longest..(row + 1) * longest].split_at(*length as usize);
            let want = batch.records().get(row).map(|record| tokens(*record as usize)).unwrap_or_default();
            assert_eq!((own, rest), (&want[..], &vec![-100; longest - want.len()][..]));
        }
        let [rows, most, 2] = *batch["points"].shape() else { panic!("{:?}", batch["points"].shape()) };
        let points: &[f32] = batch["points"].as_slice().unwrap();
        let lengths: &[i64] = batch["points.lengths"].as_slice().unwrap();
        assert_eq!(rows, 8);
        assert!((0..rows).all(|row| {
            points[(row * most + lengths[row] as usize) * 2..(row + 1) * most * 2].iter().all(|n| *n == 0.5)
        }));
    }
    let refused = |set: fn(LoaderBuilder) -> LoaderBuilder| {
        let sized = builder(dataset(4, &[])).batch_size(2).transform(Transform::new().resize_exact(4, 4));
        set(sized).build_blocking().unwrap_err().to_string()
    };
    for (error, want) in [
        (
            refused(|b| b.pad("words", 0)),
            "pad names `words`, which is not a list; use one of the lists: tokens, points",
        ),
        (refused(|b| b.pad("tokens", 0.5)), "fills `tokens` with 0.5, which i32 does not hold"),
        (refused(|b| b.pad("tokens", 3e9)), "which i32 does not hold"),
    ] {
        assert!(error.contains(want), "{error}");
    }
    let taken = MemoryDataset::builder().lists("a", vec![vec![1i32]]).labels(vec![0]).named("a.lengths").build();
    let error = builder(Arc::new(taken.unwrap())).batch_size(1).pad("a", 0).build_blocking().unwrap_err().to_string();
    assert!(error.contains("a field `a.lengths`, and the dataset has one"), "{error}");
}

#[test]
fn lists_and_texts_that_are_not_what_the_schema_says_are_bad_samples() {
    let texts = vec![Bytes::from_static(b"good"), Bytes::from_static(b"\xff\xfe")];
    let dataset: Arc<dyn Dataset> = Arc::new(MemoryDataset::builder().texts("caption", texts).build().unwrap());
    let error = drain(builder(Arc::clone(&dataset)).batch_size(2).build_blocking().unwrap().epoch(0)).unwrap_err();
    let words = error.to_string();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(
        words.contains("the text of `caption` is not UTF-8 from byte 0 on") && words.contains("record 1"),
        "{words}"
    );
    let said = declare(dataset, [("caption", "bytes")]).unwrap();
    let batches = drain(builder(said).batch_size(2).build_blocking().unwrap().epoch(0)).unwrap();
    assert_eq!(batches[0].bytes("caption").unwrap()[1], b"\xff\xfe"[..]);
    let odd = MemoryDataset::builder().list_bytes("a", DType::I32, vec![2], vec![vec![0; 12].into()]).build();
    assert!(odd.unwrap_err().to_string().contains("12 bytes are not whole items of i32 [2]"));
}

#[test]
fn numbers_of_fixed_shape_are_lists_if_the_user_says_so() {
    let numbers: Vec<u8> = (0..12i16).flat_map(i16::to_ne_bytes).collect();
    let dataset = MemoryDataset::builder().array("a", DType::I16, vec![3, 2], numbers).build().unwrap();
    let dataset = declare(Arc::new(dataset), [("a", "list")]).unwrap();
    futures::executor::block_on(dataset_contract(&*dataset)).unwrap();
    let batch = drain(builder(dataset).batch_size(2).build_blocking().unwrap().epoch(0)).unwrap().remove(0);
    let list = batch.list("a").unwrap();
    assert_eq!((list.values().shape(), list.offsets().as_slice::<i64>().unwrap()), (&[6, 2][..], &[0, 3, 6][..]));
    assert_eq!(list.row::<i16>(1).unwrap(), [6, 7, 8, 9, 10, 11]);
}

#[test]
fn records_are_filtered_by_the_number_of_items() {
    let filter = |line: &str| {
        let filtered = infeed::dataset::filter(dataset(40, &[]), [line.parse().unwrap()]);
        futures::executor::block_on(filtered).unwrap().len()
    };
    let want = (0..40).filter(|i| tokens(*i).len() >= 4).count() as u64;
    assert_eq!(filter("tokens>=4"), want);
    assert_eq!(filter("points=0"), (0..40).filter(|i| points(*i).is_empty()).count() as u64);
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
    let all: Vec<i32> = (0..5).chain(0..31).flat_map(tokens).collect();
    assert_eq!(batches[0].list("tokens").unwrap().values().as_slice::<i32>().unwrap(), all);
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

#[test]
fn batches_by_length_keep_the_budget_on_any_number_of_ranks_and_resume() {
    let rows: Vec<Vec<i32>> = (0..300).map(|i| vec![i; 1 + (i as usize * 7) % 40]).collect();
    let dataset: Arc<dyn Dataset> = Arc::new(MemoryDataset::builder().lists("tokens", rows).build().unwrap());
    let lengths = futures::executor::block_on(lengths(&*dataset, "tokens")).unwrap();
    assert_eq!((lengths.len(), lengths[1]), (300, 8));
    let order = Arc::new(LengthSampler::new(lengths, 200, 16, 3).unwrap());
    let whole = order.batches().unwrap().ends().len();
    let of = |rank, world| {
        let loader =
            builder(Arc::clone(&dataset)).batch_size(16).pad("tokens", -1).shard(Shard::new(rank, world).unwrap());
        loader.sampler(Arc::<LengthSampler>::clone(&order)).build_blocking().unwrap()
    };
    let records =
        |batches: &[Batch]| -> Vec<Vec<u64>> { batches.iter().map(|batch| batch.records().to_vec()).collect() };
    let alone = of(0, 1);
    let all = drain(alone.epoch(1)).unwrap();
    assert_eq!((all.len(), alone.batches_per_epoch()), (whole, whole as u64));
    for batch in &all {
        let [rows, longest] = *batch["tokens"].shape() else { panic!() };
        assert!(rows * longest <= 200 && rows <= 16, "{rows} x {longest}");
    }
    let mut seen = records(&all).concat();
    seen.sort_unstable();
    assert_eq!(seen, (0..300).collect::<Vec<u64>>());
    // Three ranks take the same batches, one after another.
    let ranks: Vec<Vec<Batch>> = (0..3).map(|rank| drain(of(rank, 3).epoch(1)).unwrap()).collect();
    let dealt: Vec<Vec<u64>> = (0..whole / 3 * 3).map(|batch| records(&ranks[batch % 3])[batch / 3].clone()).collect();
    assert_eq!(dealt, records(&all)[..whole / 3 * 3]);
    // After two steps of three ranks, one rank goes on with the seventh batch.
    let state = ranks[2][1].state();
    assert_eq!(ranks[0][1].state(), state);
    assert_eq!(records(&drain(alone.resume_epoch(state).unwrap()).unwrap()), records(&all)[6..]);
    let refused = builder(Arc::clone(&dataset)).batch_size(8).sampler(order).build_blocking().unwrap_err().to_string();
    assert!(refused.contains("of the sampler has") && refused.contains("set batch_size to"), "{refused}");
}

fn u8s(dataset: Arc<dyn Dataset>) -> LoaderBuilder {
    builder(dataset).dtype(DType::U8)
}

/// A picture of one colour, of another size for each `n`.
fn picture(n: usize) -> Bytes {
    let mut file = std::io::Cursor::new(Vec::new());
    let (width, height) = (8 + n as u32 % 5, 8 + n as u32 % 3);
    let pixel = |x, y| image::Rgb([n as u8, x as u8 * 9, y as u8 * 7]);
    image::RgbImage::from_fn(width, height, pixel).write_to(&mut file, image::ImageFormat::Png).unwrap();
    file.into_inner().into()
}

/// The pictures of record `i`: sometimes none.
fn pictures(i: usize) -> Vec<Bytes> {
    (0..i % 4).map(|k| picture(i * 4 + k)).collect()
}

fn captions(i: usize) -> Vec<String> {
    (0..(i + 1) % 3).map(|k| format!("caption {k} of {i}")).collect()
}

/// `count` records of pictures and captions, any number of them; those of `bad` have a picture that can't be decoded.
fn albums(count: usize, bad: &[usize]) -> Arc<dyn Dataset> {
    let own = |i: usize| match bad.contains(&i) {
        true => vec![picture(i), Bytes::from_static(b"no picture")],
        false => pictures(i),
    };
    let albums = MemoryDataset::builder().labels((0..count as i64).collect());
    let albums = albums.image_lists("images", (0..count).map(own).collect());
    Arc::new(albums.text_lists("captions", (0..count).map(captions).collect()).build().unwrap())
}

/// The rows of single pictures under the same transform, without draws.
fn rows_of(files: &[Bytes], transform: &Transform) -> Vec<u8> {
    if files.is_empty() {
        return Vec::new();
    }
    let single = MemoryDataset::builder().encoded_images(files.to_vec()).build().unwrap();
    let loader = u8s(Arc::new(single)).batch_size(files.len()).transform(transform.clone());
    let batch = drain(loader.build_blocking().unwrap().epoch(0)).unwrap().remove(0);
    batch["image"].bytes().unwrap().to_vec()
}

fn check_albums(batch: &Batch, transform: &Transform) {
    let images = batch.list("images").unwrap();
    assert_eq!(images.values().shape()[1..], [3, 6, 6]);
    let texts: Vec<Vec<&str>> = batch.text_lists("captions").unwrap().collect();
    assert_eq!((images.len(), texts.len()), (batch.len(), batch.len()));
    for (row, record) in batch.records().iter().map(|record| *record as usize).enumerate() {
        assert_eq!(images.row::<u8>(row).unwrap(), rows_of(&pictures(record), transform), "record {record}");
        assert_eq!(texts[row], captions(record));
    }
    let after = batch.records().len();
    assert!((after..batch.len()).all(|row| images.row::<u8>(row).unwrap().is_empty() && texts[row].is_empty()));
}

#[test]
fn any_number_of_images_and_texts_lie_in_the_rows_of_their_records() {
    let transform = Transform::new().resize_exact(6, 6);
    let build = |dataset, bad| {
        let builder = u8s(dataset).batch_size(8).workers(3).shuffle(5).transform(transform.clone());
        builder.on_bad_sample(bad).build_blocking().unwrap()
    };
    // The user's function sees them as the batch will hold them.
    let seen = u8s(albums(12, &[])).batch_size(4).transform(transform.clone()).map(|sample, _| {
        let record = sample.record() as usize;
        assert_eq!(sample.texts("captions").unwrap().len(), captions(record).len());
        assert_eq!(sample.list::<u8>("images")?.len(), pictures(record).len() * 108);
        Ok(())
    });
    assert_eq!(drain(seen.build_blocking().unwrap().epoch(0)).unwrap().len(), 3);
    let good = albums(43, &[]);
    futures::executor::block_on(dataset_contract(&*good)).unwrap();
    let loader = build(good, OnBadSample::Stop);
    let all = drain(loader.epoch(0)).unwrap();
    all.iter().for_each(|batch| check_albums(batch, &transform));
    let rest = drain(loader.resume_epoch(all[1].state()).unwrap()).unwrap();
    assert_eq!(rest.len(), all.len() - 2);
    rest.iter().for_each(|batch| check_albums(batch, &transform));

    for policy in [OnBadSample::Skip { at_most: 9 }, OnBadSample::SkipPadded { at_most: 9 }, OnBadSample::Substitute] {
        let batches = drain(build(albums(43, &[5, 9, 11]), policy).epoch(0)).unwrap();
        batches.iter().for_each(|batch| check_albums(batch, &transform));
        let bad: usize = batches.iter().map(|batch| batch.bad_samples().len()).sum();
        assert_eq!(bad, 3, "{policy:?}");
    }
    let error = drain(build(albums(12, &[5]), OnBadSample::Stop).epoch(0)).unwrap_err().to_string();
    assert!(error.contains("record 5") && error.contains("field images[1]"), "{error}");
}

#[test]
fn each_image_of_a_list_draws_for_itself_and_the_first_as_an_image_does() {
    let transform = Transform::new().random_resized_crop(6).horizontal_flip(0.5);
    let file = picture(3);
    let files = vec![vec![file.clone(), file.clone(), file.clone()]; 20];
    let listed = MemoryDataset::builder().image_lists("images", files);
    let dataset: Arc<dyn Dataset> = Arc::new(listed.encoded_images(vec![file; 20]).build().unwrap());
    let run = |workers| {
        let loader = u8s(Arc::clone(&dataset)).batch_size(5).workers(workers).shuffle(2).transform(transform.clone());
        drain(loader.build_blocking().unwrap().epoch(1)).unwrap()
    };
    let bytes = |batches: &[Batch]| -> Vec<u8> {
        batches.iter().flat_map(|batch| batch.list("images").unwrap().values().bytes().unwrap().to_vec()).collect()
    };
    let batches = run(1);
    assert_eq!(bytes(&batches), bytes(&run(3)), "whatever the number of threads");
    let mut alike = 0;
    for batch in &batches {
        let alone = batch["image"].bytes().unwrap().chunks_exact(3 * 36);
        let images = batch.list("images").unwrap();
        for (row, alone) in alone.enumerate() {
            let [first, second, third] = *images.row::<u8>(row).unwrap().as_chunks::<{ 3 * 36 }>().0 else { panic!() };
            assert_eq!(first, alone);
            alike += usize::from(first == second || second == third || first == third);
        }
    }
    assert!(alike < 10, "of 20 records, {alike} have equal draws for two images");
}

#[test]
fn lists_of_images_may_be_masks_padded_or_in_views_and_what_they_cannot_be_is_refused() {
    let transform = || Transform::new().resize_exact(6, 6);
    let padded = u8s(albums(8, &[])).batch_size(8).transform(transform()).pad("images", 114);
    let batch = drain(padded.build_blocking().unwrap().epoch(0)).unwrap().remove(0);
    assert_eq!(batch["images"].shape(), [8, 3, 3, 6, 6]);
    assert_eq!(batch["images.lengths"].as_slice::<i64>().unwrap(), [0, 1, 2, 3, 0, 1, 2, 3]);
    assert!(batch["images"].as_slice::<u8>().unwrap()[..3 * 108].iter().all(|value| *value == 114));

    let views = [View::new("a", transform()), View::new("b", transform().horizontal_flip(1.0))];
    let seen = u8s(albums(8, &[])).batch_size(8).views(views).build_blocking().unwrap();
    let batch = drain(seen.epoch(0)).unwrap().remove(0);
    let (a, b) = (batch.list("images.a").unwrap(), batch.list("images.b").unwrap());
    assert_eq!(a.offsets().as_slice::<i64>(), b.offsets().as_slice::<i64>());
    let mirrored = |row: &[u8]| row.chunks_exact(6).flat_map(|line| line.iter().rev().copied()).collect::<Vec<u8>>();
    assert_eq!(mirrored(a.row(3).unwrap()), b.row::<u8>(3).unwrap());

    let gray = |n: u8| {
        let mut file = std::io::Cursor::new(Vec::new());
        image::GrayImage::from_pixel(6, 6, image::Luma([n])).write_to(&mut file, image::ImageFormat::Png).unwrap();
        Bytes::from(file.into_inner())
    };
    let masks = MemoryDataset::builder().image_lists("parts", vec![vec![gray(7), gray(200)], vec![gray(3)]]);
    let masks = declare(Arc::new(masks.build().unwrap()), [("parts", "mask")]).unwrap();
    let batch = drain(u8s(masks).batch_size(2).transform(transform()).build_blocking().unwrap().epoch(0)).unwrap();
    let parts = batch[0].list("parts").unwrap();
    assert_eq!(parts.values().shape(), [3, 1, 6, 6]);
    assert_eq!(parts.row::<u8>(0).unwrap(), [[7; 36], [200; 36]].concat());

    let refused = |set: fn(LoaderBuilder) -> LoaderBuilder| {
        let error = set(u8s(albums(8, &[])).batch_size(2).transform(transform())).build_blocking();
        error.unwrap_err().to_string()
    };
    for (error, want) in [
        (refused(|b| b.transform(Transform::new())), "field images"),
        (refused(|b| b.decoded_cache("ram:64MiB".parse().unwrap())), "hold no images"),
        (
            refused(|b| b.mix(Mix { mixup: 0.2, num_classes: Some(8), ..Mix::default() }).dtype(DType::F32)),
            "mix on field `images`, a list of images",
        ),
    ] {
        assert!(error.contains(want), "{error}");
    }
}

#[test]
fn images_and_texts_are_counted_where_items_are() {
    let count = |line: &str| {
        let filtered = infeed::dataset::filter(albums(40, &[]), [line.parse().unwrap()]);
        futures::executor::block_on(filtered).unwrap().len()
    };
    assert_eq!(count("images>=2"), 20);
    assert_eq!(count("captions=0"), (0..40).filter(|i| captions(*i).is_empty()).count() as u64);
    let of_images = futures::executor::block_on(lengths(&*albums(6, &[]), "images")).unwrap();
    assert_eq!(of_images, [0, 1, 2, 3, 0, 1]);
    let both = concat([albums(5, &[]), albums(31, &[])]).unwrap();
    futures::executor::block_on(dataset_contract(&*both)).unwrap();
}
