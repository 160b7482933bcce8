//! Functions of the user's on samples and batches: where they run, what they see, and that their mistakes are told.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use infeed::{
    Batch, DType, Dataset, Error, ErrorKind, LastBatch, Layout, Loader, LoaderBuilder, OnBadSample, Transform,
    dataset::MemoryDataset, report::Stage, transform::augment::Mix,
};

use crate::support::{Plain, builder, drain, plain};

/// Gray pictures of 3x4 whose values are their record's number, labels from 100 on, and words.
fn dataset(count: u8) -> Arc<dyn Dataset> {
    let pixels: Vec<u8> = (0..count).flat_map(|record| [record; 12]).collect();
    let words = (0..count).map(|record| format!("record {record}").into()).collect();
    let images = MemoryDataset::builder().images_u8(pixels, count.into(), 3, 4, 1, false);
    Arc::new(
        images
            .labels((0..count).map(|record| 100 + i64::from(record)).collect())
            .bytes("words", words)
            .build()
            .unwrap(),
    )
}

fn loader(dataset: Arc<dyn Dataset>, set: impl FnOnce(LoaderBuilder) -> LoaderBuilder) -> Loader {
    set(builder(dataset).batch_size(8).shuffle(3).workers(2)).build_blocking().unwrap()
}

/// Adds the label and a draw to the picture, and says in the label that it was there.
fn add(b: LoaderBuilder) -> LoaderBuilder {
    b.map(|sample, mut draws| {
        let record = sample.record();
        assert_eq!(sample.bytes("words").unwrap(), format!("record {record}").as_bytes());
        assert!(sample.bytes("image").is_none() && sample.bytes("other").is_none());
        let label = &mut sample.values_mut::<i64>("label")?[0];
        assert_eq!(*label as u64, 100 + record);
        *label += 1000;
        let add = draws.below(1000) as f32;
        let image = sample.image_mut("image")?;
        assert_eq!((image.spec().height, image.spec().width, image.spec().layout), (3, 4, Layout::Nchw));
        let values = sample.values_mut::<f32>("image")?;
        assert!(values.iter().all(|value| *value as u64 == record), "the row is finished");
        values.iter_mut().for_each(|value| *value += 1000.0 * add);
        let fields: Vec<_> =
            sample.fields_mut().map(|field| (field.name().to_owned(), field.shape(), field.dtype())).collect();
        assert_eq!(fields, [("image".into(), vec![1, 3, 4], DType::F32), ("label".into(), vec![], DType::I64)]);
        Ok(())
    })
}

fn all(loader: &Loader) -> Vec<Plain> {
    drain(loader.epochs(0..2)).unwrap().iter().map(plain).collect()
}

#[test]
fn a_sample_is_changed_as_a_whole_and_alike_by_anyone() {
    let set = |b: LoaderBuilder| add(b).last_batch(LastBatch::Pad);
    let first = loader(dataset(43), set);
    let want = all(&first);
    assert!(want == all(&loader(dataset(43), |b| set(b).workers(3).prefetch(2))));
    let batches = drain(first.epochs(0..2)).unwrap();
    let rest: Vec<Plain> =
        drain(first.resume_epochs(batches[4].state(), ..2).unwrap()).unwrap().iter().map(plain).collect();
    assert!(rest == want[5..]);
    let mut draws = Vec::new();
    for batch in &batches[..6] {
        let (labels, images) = (batch["label"].to_vec::<i64>().unwrap(), batch["image"].to_vec::<f32>().unwrap());
        for ((label, row), record) in labels.iter().zip(images.chunks(12)).zip(batch.records()) {
            assert_eq!(*label as u64, 1100 + record, "copies that pad a batch, too");
            draws.push(row[0] as u64 / 1000);
        }
    }
    draws.sort_unstable();
    draws.dedup();
    assert!(draws.len() > 30, "{} draws of 43 records", draws.len());
}

#[test]
fn what_a_function_says_of_a_sample_is_followed() {
    let fails = |kind: fn() -> Error| {
        move |b: LoaderBuilder| b.map(move |sample, _| if sample.record() == 5 { Err(kind()) } else { Ok(()) })
    };
    let skip = OnBadSample::Skip { at_most: 1 };
    let bad = loader(dataset(16), |b| fails(|| Error::new(ErrorKind::Corrupt, "too dark"))(b).on_bad_sample(skip));
    let batches = drain(bad.epoch(0)).unwrap();
    let bad: Vec<_> = batches.iter().flat_map(Batch::bad_samples).collect();
    assert_eq!((bad.len(), bad[0].record), (1, 5));
    assert!(bad[0].error.contains("transform: too dark (record 5"), "{}", bad[0].error);
    assert_eq!(batches.iter().map(Batch::len).sum::<usize>(), 15);

    let ends = loader(dataset(16), |b| fails(|| Error::new(ErrorKind::Io, "no room"))(b).on_bad_sample(skip));
    let error = drain(ends.epoch(0)).unwrap_err().to_string();
    assert!(error.contains("no room") && error.contains("record 5"), "{error}");

    let panics = loader(dataset(16), |b| {
        b.on_bad_sample(skip).map(|sample, _| {
            assert!(sample.record() != 5, "a function with a mistake");
            Ok(())
        })
    });
    let error = drain(panics.epoch(0)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
    assert!(error.to_string().contains("given to map panicked: a function with a mistake"), "{error}");
    // The threads are there still.
    assert!(drain(loader(dataset(8), add).epoch(0)).is_ok());

    for (field, want) in [
        ("image", "field `image` holds f32, not i64"),
        ("words", "no field \"words\" has values"),
        ("x", "there are image, label, words"),
    ] {
        let wrong = loader(dataset(8), |b| b.map(move |sample, _| sample.values_mut::<i64>(field).map(|_| ())));
        let error = drain(wrong.epoch(0)).unwrap_err().to_string();
        assert!(error.contains(want), "{error}");
    }
    let wrong = loader(dataset(8), |b| b.map(|sample, _| sample.image_mut("label").map(|_| ())));
    let error = drain(wrong.epoch(0)).unwrap_err().to_string();
    assert!(error.contains("field `label` is not an image"), "{error}");
}

#[test]
fn a_batch_is_changed_when_it_is_whole_and_mixed() {
    let calls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&calls);
    let mix = Mix { mixup: 1.0, num_classes: Some(200), ..Mix::default() };
    let set = |b: LoaderBuilder| {
        let counted = Arc::clone(&counted);
        b.transform(Transform::new().to_float()).mix(mix.clone()).map_batch(move |batch, mut draws| {
            counted.fetch_add(1, Ordering::Relaxed);
            assert_eq!((batch.len(), batch.valid(), batch.records().len()), (8, 8, 8));
            assert_eq!(batch.bytes("words").unwrap()[3], format!("record {}", batch.records()[3]));
            let fields: Vec<_> =
                batch.fields_mut().map(|field| (field.name().to_owned(), field.shape(), field.dtype())).collect();
            assert_eq!(
                fields,
                [("image".into(), vec![8, 1, 3, 4], DType::F32), ("label".into(), vec![8, 200], DType::F32)]
            );
            let (_, step) = batch.place();
            let weights = batch.values_mut::<f32>("label")?;
            assert!(weights.chunks(200).all(|row| (row.iter().sum::<f32>() - 1.0).abs() < 1e-5));
            weights[0] = draws.unit();
            weights[1] = step as f32;
            Ok(())
        })
    };
    let first = loader(dataset(40), set);
    let mut stream = first.epochs(0..2).blocking();
    let batches: Vec<Batch> = stream.by_ref().collect::<Result<_, _>>().unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 10);
    let told = |n: usize| batches[n]["label"].to_vec::<f32>().unwrap()[..2].to_vec();
    assert!((0..10).all(|n| told(n)[1] as usize == n % 5));
    assert!((1..10).all(|n| told(n)[0] != told(0)[0]), "each draws for itself");
    let report = stream.report();
    let told = report.stages.iter().find(|told| told.stage == Stage::Mix).unwrap();
    assert_eq!((told.calls, told.items), (20, 160), "mixed, and changed");
    let want: Vec<Plain> = batches.iter().map(plain).collect();
    assert!(want == all(&loader(dataset(40), |b| set(b).workers(3).prefetch(2))));

    let error = |map: fn() -> infeed::Result<()>| {
        let loader = loader(dataset(16), |b| b.map_batch(move |_, _| map()));
        drain(loader.epoch(0)).unwrap_err()
    };
    let refused = error(|| Err(Error::new(ErrorKind::Corrupt, "not so")));
    assert!(refused.to_string().contains("mix: not so"), "{refused}");
    assert!(error(|| panic!("oh")).to_string().contains("given to map_batch panicked: oh"));
}

#[test]
fn a_label_that_a_function_makes_none_of_the_classes_is_a_bad_sample() {
    let mix = Mix { mixup: 1.0, num_classes: Some(200), ..Mix::default() };
    let set = |b: LoaderBuilder| {
        let b = b.transform(Transform::new().to_float()).mix(mix).on_bad_sample(OnBadSample::Skip { at_most: 16 });
        b.map(|sample, _| {
            if sample.record() % 4 == 0 {
                sample.values_mut::<i64>("label")?[0] = -1;
            }
            Ok(())
        })
    };
    let batches = drain(loader(dataset(16), set).epoch(0)).unwrap();
    let bad: Vec<_> = batches.iter().flat_map(Batch::bad_samples).collect();
    assert_eq!(bad.len(), 4);
    assert!(bad[0].error.contains("label -1 of `label` is not among the 200 classes"), "{}", bad[0].error);
}

#[test]
fn fields_of_a_sample_are_changed_side_by_side() {
    let set = |b: LoaderBuilder| {
        b.map(|sample, _| {
            let mut fields: Vec<_> = sample.fields_mut().collect();
            let [image, label] = &mut fields[..] else { panic!("an image and a label") };
            image.values_mut::<f32>()?.fill(label.values_mut::<i64>()?[0] as f32);
            assert!(label.values_mut::<f32>().is_err());
            Ok(())
        })
    };
    let batch = drain(loader(dataset(8), set).epoch(0)).unwrap().remove(0);
    let (labels, images) = (batch["label"].to_vec::<i64>().unwrap(), batch["image"].to_vec::<f32>().unwrap());
    assert!(images.chunks(12).zip(labels).all(|(row, label)| row.iter().all(|value| *value as i64 == label)));
    assert_eq!(batch.bytes("words").unwrap().len(), 8);
}

#[cfg(target_os = "linux")]
#[test]
fn functions_are_for_batches_in_host_memory() {
    use crate::{device::GPU, support::mock::on_mock};
    on_mock("map::functions_are_for_batches_in_host_memory", &[], |_| {
        let on_gpu = || Loader::builder(dataset(8)).batch_size(8).device(GPU);
        for (builder, name) in [(on_gpu().map(|_, _| Ok(())), "map"), (on_gpu().map_batch(|_, _| Ok(())), "map_batch")]
        {
            let error = builder.build_blocking().unwrap_err().to_string();
            assert!(error.contains(&format!("{name} of batches on cuda:0 is not there yet")), "{error}");
        }
    });
}
