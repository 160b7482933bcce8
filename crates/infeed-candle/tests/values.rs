//! What a batch holds, in candle's memory: values, shapes, types, names, errors.
use std::sync::Arc;

use candle_core::{DType as CandleDType, Device};
use infeed::{
    Batch, DType, LastBatch, Loader, Transform,
    dataset::{Instances, MemoryBuilder, MemoryDataset},
};
use infeed_candle::{BatchExt, TensorExt};

fn loader(dataset: MemoryBuilder, batch_size: usize) -> infeed::LoaderBuilder {
    let dataset = dataset.build().expect("a sound dataset");
    Loader::builder(Arc::new(dataset)).batch_size(batch_size).device(infeed::Device::Cpu)
}

fn only_batch(loader: infeed::LoaderBuilder) -> Batch {
    let loader = loader.build_blocking().expect("sound settings");
    loader.epoch(0).blocking().next().expect("one batch").expect("good data")
}

/// Numbers that each type holds, as bytes, and as what candle should have.
fn numbers(dtype: DType) -> (Vec<u8>, CandleDType, [f64; 4]) {
    macro_rules! bytes {
        ($($value:expr),*) => { [$($value.to_ne_bytes()),*].concat() };
    }
    let half = |v: f32| infeed::half::f16::from_f32(v);
    let brain = |v: f32| infeed::half::bf16::from_f32(v);
    match dtype {
        DType::U8 => (bytes![0u8, 1u8, 127u8, 255u8], CandleDType::U8, [0.0, 1.0, 127.0, 255.0]),
        DType::Bool => (bytes![0u8, 1u8, 1u8, 0u8], CandleDType::U8, [0.0, 1.0, 1.0, 0.0]),
        DType::I8 => (bytes![0i8, 1i8, -128i8, 127i8], CandleDType::I16, [0.0, 1.0, -128.0, 127.0]),
        DType::U16 => (bytes![0u16, 1u16, 32768u16, 65535u16], CandleDType::U32, [0.0, 1.0, 32768.0, 65535.0]),
        DType::I16 => (bytes![0i16, 1i16, -32768i16, 32767i16], CandleDType::I16, [0.0, 1.0, -32768.0, 32767.0]),
        DType::U32 => (bytes![0u32, 1u32, 2u32, u32::MAX], CandleDType::U32, [0.0, 1.0, 2.0, 4_294_967_295.0]),
        DType::I32 => (bytes![0i32, 1i32, -7i32, i32::MAX], CandleDType::I32, [0.0, 1.0, -7.0, 2_147_483_647.0]),
        DType::U64 => (bytes![0u64, 1u64, 2u64, 1u64 << 62], CandleDType::I64, [0.0, 1.0, 2.0, 2f64.powi(62)]),
        DType::I64 => (bytes![0i64, 1i64, -7i64, 1i64 << 62], CandleDType::I64, [0.0, 1.0, -7.0, 2f64.powi(62)]),
        DType::F16 => {
            (bytes![half(0.0), half(0.5), half(-2.0), half(65504.0)], CandleDType::F16, [0.0, 0.5, -2.0, 65504.0])
        }
        DType::Bf16 => {
            (bytes![brain(0.0), brain(0.5), brain(-2.0), brain(256.0)], CandleDType::BF16, [0.0, 0.5, -2.0, 256.0])
        }
        DType::F32 => {
            (bytes![0f32, 0.1f32, -2f32, 1e30f32], CandleDType::F32, [0.0, 0.1f32.into(), -2.0, 1e30f32.into()])
        }
        DType::F64 => (bytes![0f64, 0.1f64, -2f64, 1e300f64], CandleDType::F64, [0.0, 0.1, -2.0, 1e300]),
    }
}

#[test]
fn every_type_keeps_its_values() {
    for dtype in DType::ALL {
        let (bytes, theirs, values) = numbers(dtype);
        // Two records of two.
        let batch = only_batch(loader(MemoryDataset::builder().array("numbers", dtype, vec![2], bytes), 2));
        let tensor = batch["numbers"].candle(&Device::Cpu).unwrap();
        assert_eq!((tensor.dims(), tensor.dtype()), (&[2, 2][..], theirs), "{dtype}");
        let read = tensor.to_dtype(CandleDType::F64).unwrap().flatten_all().unwrap().to_vec1::<f64>().unwrap();
        assert_eq!(read, values, "{dtype}");
        if dtype == DType::I64 || dtype == DType::U64 {
            assert_eq!(tensor.flatten_all().unwrap().to_vec1::<i64>().unwrap()[3], 1 << 62);
        }
    }
}

#[test]
fn a_number_that_candle_cannot_hold_is_an_error_with_the_fields_name() {
    let bytes = [1u64, u64::MAX].map(u64::to_ne_bytes).concat();
    let mut batch =
        only_batch(loader(MemoryDataset::builder().array("hash", DType::U64, vec![], bytes).labels(vec![4, 5]), 2));
    let error = batch.candle(&Device::Cpu).unwrap_err().to_string();
    assert!(error.starts_with("infeed: the field `hash` has the u64 18446744073709551615"), "{error}");
    // What the error says helps.
    let hash = batch.take("hash").unwrap();
    assert_eq!(hash.as_slice::<u64>().unwrap(), [1, u64::MAX]);
    assert_eq!(batch.candle(&Device::Cpu).unwrap()["label"].to_vec1::<i64>().unwrap(), [4, 5]);
}

#[test]
fn images_masks_labels_and_boxes_are_there_by_name() {
    let pixels: Vec<u8> = (0..2 * 4 * 4 * 3).map(|v| v as u8).collect();
    let classes: Vec<u8> = (0..2 * 4 * 4).map(|v| v % 3).collect();
    let marked = [vec![([0.0, 1.0, 2.0, 3.0], 5)], vec![([1.0, 1.0, 4.0, 4.0], 7), ([0.0, 0.0, 1.0, 2.0], 8)]];
    let instances = marked.map(|row| {
        let mut all = Instances::new([4, 4]);
        row.into_iter().for_each(|(corners, label)| all.push(corners, label));
        all
    });
    let dataset = MemoryDataset::builder().images_u8(pixels, 2, 4, 4, 3, false).labels(vec![6, 9]);
    let dataset = dataset.images_u8(classes, 2, 4, 4, 1, false).named("mask").mask();
    let dataset = dataset.instances(instances.to_vec()).bytes("text", vec!["a".into(), "bc".into()]);
    let batch = only_batch(loader(dataset, 2).transform(Transform::new().to_float()));
    let tensors = batch.candle(&Device::Cpu).unwrap();

    let image = &tensors["image"];
    assert_eq!((image.dims(), image.dtype()), (&[2, 3, 4, 4][..], CandleDType::F32));
    assert_eq!(image.flatten_all().unwrap().to_vec1::<f32>().unwrap(), batch["image"].as_slice::<f32>().unwrap());
    let mask = &tensors["mask"];
    assert_eq!(mask.dims(), batch["mask"].shape());
    assert_eq!(mask.flatten_all().unwrap().to_vec1::<u8>().unwrap(), batch["mask"].as_slice::<u8>().unwrap());
    assert_eq!(tensors["label"].to_vec1::<i64>().unwrap(), [6, 9]);
    let boxes = tensors["instances.boxes"].to_vec2::<f32>().unwrap();
    assert_eq!(boxes, [[0.0, 1.0, 2.0, 3.0], [1.0, 1.0, 4.0, 4.0], [0.0, 0.0, 1.0, 2.0]]);
    assert_eq!(tensors["instances.labels"].to_vec1::<i64>().unwrap(), [5, 7, 8]);
    assert_eq!(tensors["instances.offsets"].to_vec1::<i64>().unwrap(), [0, 1, 3]);
    assert_eq!(tensors["instances.crowd"].to_vec1::<u8>().unwrap(), [0, 0, 0]);
    assert_eq!(tensors["instances.sizes"].to_vec2::<i64>().unwrap(), [[4, 4], [4, 4]]);
    // The text is no tensor.
    assert_eq!(tensors.len(), 9);
}

#[test]
fn rows_without_anything_marked_have_tensors_of_no_values() {
    let dataset = MemoryDataset::builder().images_u8(vec![0; 48], 1, 4, 4, 3, false);
    let tensors = only_batch(loader(dataset.instances(vec![Instances::new([4, 4])]), 1)).candle(&Device::Cpu).unwrap();
    assert_eq!(tensors["instances.boxes"].dims(), [0, 4]);
    assert_eq!(tensors["instances.offsets"].to_vec1::<i64>().unwrap(), [0, 0]);
}

#[test]
fn a_ranks_share_of_the_last_batch_may_be_empty() {
    // Five records in global batches of four: the last has a row for the first of two ranks alone.
    let pixels = vec![3; 5 * 12];
    let dataset = MemoryDataset::builder().images_u8(pixels, 5, 2, 2, 3, false).labels(vec![0; 5]);
    let loader = loader(dataset, 2).shard(infeed::Shard::new(1, 2).unwrap()).last_batch(LastBatch::Partial);
    let loader = loader.build_blocking().unwrap();
    let last = loader.epoch(0).blocking().last().unwrap().unwrap();
    assert!(last.is_empty());
    let tensors = last.candle(&Device::Cpu).unwrap();
    assert_eq!((tensors["image"].dims(), tensors["label"].dims()), (&[0, 3, 2, 2][..], &[0][..]));
}

#[test]
fn tensors_outlive_batch_and_loader() {
    let labels: Vec<i64> = (0..64).collect();
    let loader = loader(MemoryDataset::builder().labels(labels), 8).build_blocking().unwrap();
    let mut batches = loader.epoch(0).blocking();
    let first = batches.next().unwrap().unwrap();
    let (tensors, records) = (first.candle(&Device::Cpu).unwrap(), first.records().to_vec());
    drop(first);
    // Its memory is used again by those behind it.
    assert_eq!(batches.by_ref().filter(Result::is_ok).count(), 7);
    drop((batches, loader));
    let labels: Vec<u64> = tensors["label"].to_vec1::<i64>().unwrap().into_iter().map(|label| label as u64).collect();
    assert_eq!(labels, records);
}
