//! What a batch holds, as tensors of libtorch: addresses, values, shapes, types, names, errors.
use std::sync::Arc;

use infeed::{
    Batch, DType, LastBatch, Loader, Transform,
    dataset::{Instances, MemoryBuilder, MemoryDataset},
};
use infeed_tch::{BatchExt, TensorExt};
use tch::{Kind, Tensor};

fn loader(dataset: MemoryBuilder, batch_size: usize) -> infeed::LoaderBuilder {
    let dataset = dataset.build().expect("a sound dataset");
    Loader::builder(Arc::new(dataset)).batch_size(batch_size).device(infeed::Device::Cpu)
}

fn only_batch(loader: infeed::LoaderBuilder) -> Batch {
    let loader = loader.build_blocking().expect("sound settings");
    loader.epoch(0).blocking().next().expect("one batch").expect("good data")
}

fn address(tensor: &infeed::Tensor) -> usize {
    tensor.bytes().expect("in host memory").as_ptr().addr()
}

fn doubles(tensor: &Tensor) -> Vec<f64> {
    Vec::try_from(tensor.to_kind(Kind::Double).reshape([-1])).expect("of one axis")
}

fn longs(tensor: &Tensor) -> Vec<i64> {
    Vec::try_from(tensor.reshape([-1])).expect("of one axis, of i64")
}

/// Numbers that each type holds, as bytes, and as what libtorch should have.
fn numbers(dtype: DType) -> (Vec<u8>, Kind, [f64; 4]) {
    macro_rules! bytes {
        ($($value:expr),*) => { [$($value.to_ne_bytes()),*].concat() };
    }
    let half = |v: f32| infeed::half::f16::from_f32(v);
    let brain = |v: f32| infeed::half::bf16::from_f32(v);
    match dtype {
        DType::U8 => (bytes![0u8, 1u8, 127u8, 255u8], Kind::Uint8, [0.0, 1.0, 127.0, 255.0]),
        DType::Bool => (bytes![0u8, 1u8, 1u8, 0u8], Kind::Bool, [0.0, 1.0, 1.0, 0.0]),
        DType::I8 => (bytes![0i8, 1i8, -128i8, 127i8], Kind::Int8, [0.0, 1.0, -128.0, 127.0]),
        DType::U16 => (bytes![0u16, 1u16, 32768u16, 65535u16], Kind::Int, [0.0, 1.0, 32768.0, 65535.0]),
        DType::I16 => (bytes![0i16, 1i16, -32768i16, 32767i16], Kind::Int16, [0.0, 1.0, -32768.0, 32767.0]),
        DType::U32 => (bytes![0u32, 1u32, 2u32, u32::MAX], Kind::Int64, [0.0, 1.0, 2.0, 4_294_967_295.0]),
        DType::I32 => (bytes![0i32, 1i32, -7i32, i32::MAX], Kind::Int, [0.0, 1.0, -7.0, 2_147_483_647.0]),
        DType::U64 => (bytes![0u64, 1u64, 2u64, 1u64 << 62], Kind::Int64, [0.0, 1.0, 2.0, 2f64.powi(62)]),
        DType::I64 => (bytes![0i64, 1i64, -7i64, 1i64 << 62], Kind::Int64, [0.0, 1.0, -7.0, 2f64.powi(62)]),
        DType::F16 => (bytes![half(0.0), half(0.5), half(-2.0), half(65504.0)], Kind::Half, [0.0, 0.5, -2.0, 65504.0]),
        DType::Bf16 => {
            (bytes![brain(0.0), brain(0.5), brain(-2.0), brain(256.0)], Kind::BFloat16, [0.0, 0.5, -2.0, 256.0])
        }
        DType::F32 => (bytes![0f32, 0.1f32, -2f32, 1e30f32], Kind::Float, [0.0, 0.1f32.into(), -2.0, 1e30f32.into()]),
        DType::F64 => (bytes![0f64, 0.1f64, -2f64, 1e300f64], Kind::Double, [0.0, 0.1, -2.0, 1e300]),
    }
}

#[test]
fn every_type_keeps_its_values_and_those_that_both_have_their_place() {
    for dtype in DType::ALL {
        let (bytes, theirs, values) = numbers(dtype);
        // Two records of two.
        let mut batch = only_batch(loader(MemoryDataset::builder().array("numbers", dtype, vec![2], bytes), 2));
        let before = address(&batch["numbers"]);
        let tensor = batch.take("numbers").unwrap().tch().unwrap();
        assert_eq!((tensor.size(), tensor.kind()), (vec![2, 2], theirs), "{dtype}");
        assert_eq!(doubles(&tensor), values, "{dtype}");
        let widened = matches!(dtype, DType::U16 | DType::U32 | DType::U64);
        assert_eq!(tensor.data_ptr().addr() != before, widened, "{dtype}");
        assert!(tensor.is_contiguous());
    }
}

#[test]
fn a_batch_is_moved_and_nothing_is_copied() {
    let images =
        MemoryDataset::builder().images_u8((0..48).collect::<Vec<u8>>(), 4, 2, 2, 3, false).labels(vec![5, 6, 7, 8]);
    let masks = images.images_u8(vec![1; 16], 4, 2, 2, 1, false).named("mask").mask();
    let mut batch = only_batch(loader(masks, 4).transform(Transform::new().to_float()));
    let before: Vec<(String, usize)> = batch.fields().map(|(name, tensor)| (name.into(), address(tensor))).collect();
    let values = batch["image"].to_vec::<f32>().unwrap();
    let tensors = batch.tch().unwrap();
    let after: Vec<(String, usize)> =
        tensors.iter().map(|(name, tensor)| (name.into(), tensor.data_ptr().addr())).collect();
    assert_eq!(after, before);
    assert_eq!(tensors["image"].size(), [4, 3, 2, 2]);
    assert_eq!(Vec::<f32>::try_from(tensors["image"].reshape([-1])).unwrap(), values);
    assert_eq!(longs(&tensors["label"]), [5, 6, 7, 8]);
    // What the trainer needs of it besides is still there.
    assert!(batch.get("image").is_none());
    assert_eq!((batch.len(), batch.records(), batch.state().epoch), (4, &[0, 1, 2, 3][..], 1));
}

#[test]
fn memory_that_somebody_reads_is_copied_before_libtorch_may_write() {
    let mut batch = only_batch(loader(MemoryDataset::builder().labels(vec![1, 2, 3]), 3));
    let kept = batch["label"].clone();
    let mut tensor = batch.take("label").unwrap().tch().unwrap();
    let _ = tensor.fill_(9);
    assert_eq!((kept.as_slice::<i64>().unwrap(), longs(&tensor)), (&[1, 2, 3][..], vec![9; 3]));
    // Nobody else has it now.
    let before = address(&kept);
    let mut tensor = kept.tch().unwrap();
    assert_eq!(tensor.data_ptr().addr(), before);
    let _ = tensor.fill_(9);
    assert_eq!(longs(&tensor), [9; 3]);
}

#[test]
fn tensors_outlive_batch_and_loader_and_give_their_memory_back() {
    let labels: Vec<i64> = (0..64).collect();
    let loader = loader(MemoryDataset::builder().labels(labels), 8).build_blocking().unwrap();
    let mut batches = loader.epoch(0).blocking();
    let mut first = batches.next().unwrap().unwrap();
    let (tensors, records) = (first.tch().unwrap(), first.records().to_vec());
    let graph = {
        let weight = Tensor::ones([8], (Kind::Double, tch::Device::Cpu)).set_requires_grad(true);
        (weight * &tensors["label"]).sum(Kind::Double)
    };
    drop((first, tensors));
    assert_eq!(batches.by_ref().filter(Result::is_ok).count(), 7);
    drop((batches, loader));
    // Of the memory that went, too: those behind it did not write there.
    let sum: u64 = records.iter().sum();
    assert_eq!(f64::try_from(&graph).unwrap(), sum as f64);
    graph.backward();
}

#[test]
fn boxes_are_there_by_name() {
    let marked = [vec![([0.0, 1.0, 2.0, 3.0], 5)], vec![([1.0, 1.0, 4.0, 4.0], 7), ([0.0, 0.0, 1.0, 2.0], 8)]];
    let instances = marked.map(|row| {
        let mut all = Instances::new([4, 4]);
        row.into_iter().for_each(|(corners, label)| all.push(corners, label));
        all
    });
    let dataset = MemoryDataset::builder().images_u8(vec![0; 96], 2, 4, 4, 3, false).instances(instances.to_vec());
    let mut batch = only_batch(loader(dataset, 2));
    let tensors = batch.tch().unwrap();
    assert_eq!(tensors["instances.boxes"].size(), [3, 4]);
    assert_eq!(doubles(&tensors["instances.boxes"])[4..8], [1.0, 1.0, 4.0, 4.0]);
    assert_eq!(longs(&tensors["instances.offsets"]), [0, 1, 3]);
    assert_eq!((tensors["instances.crowd"].kind(), batch.instances("instances").unwrap().len()), (Kind::Bool, 2));
    assert_eq!(tensors.len(), 7);
}

#[test]
fn a_number_that_tch_cannot_hold_is_an_error_with_the_fields_name() {
    let bytes = [1u64, u64::MAX].map(u64::to_ne_bytes).concat();
    let mut batch = only_batch(loader(MemoryDataset::builder().array("hash", DType::U64, vec![], bytes), 2));
    let error = batch.tch().unwrap_err().to_string();
    assert!(error.contains("infeed: the field `hash` has the u64 18446744073709551615"), "{error}");
}

#[test]
fn a_ranks_share_of_the_last_batch_may_be_empty() {
    // Five records in global batches of four: the last has a row for the first of two ranks alone.
    let dataset = MemoryDataset::builder().images_u8(vec![3; 60], 5, 2, 2, 3, false).labels(vec![0; 5]);
    let loader = loader(dataset, 2).shard(infeed::Shard::new(1, 2).unwrap()).last_batch(LastBatch::Partial);
    let loader = loader.build_blocking().unwrap();
    let mut last = loader.epoch(0).blocking().last().unwrap().unwrap();
    assert!(last.is_empty());
    let tensors = last.tch().unwrap();
    assert_eq!((tensors["image"].size(), tensors["label"].size()), (vec![0, 3, 2, 2], vec![0]));
}
