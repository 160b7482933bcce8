//! Volumes: one pass gives the reference's bits; patients are read once; boxes read little more than themselves.

use std::{collections::BTreeMap, io::Write, sync::Arc};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use half::f16;
use infeed::{
    Batch, DType, Dataset, ErrorKind, Loader, LoaderBuilder, OnBadSample,
    dataset::{dataset_contract, open_source},
    internal::kernels::{Intensity, Level, VolumeAxis, Voxels, write_volume},
    sampler::{LastBatch, Order},
    source::Source,
    transform::{Axis, Transform, reference},
};
use proptest::prelude::*;

use crate::{
    properties::properties,
    support::{Plain, builder, drain, plain, store::Tracker},
};

const TYPES: [DType; 10] = [
    DType::I8,
    DType::U8,
    DType::I16,
    DType::U16,
    DType::I32,
    DType::U32,
    DType::I64,
    DType::U64,
    DType::F32,
    DType::F64,
];

fn number(dtype: DType, bytes: &[u8]) -> f64 {
    macro_rules! read {
        ($rust:ty) => {
            <$rust>::from_ne_bytes(bytes.try_into().unwrap()) as f64
        };
    }
    match dtype {
        DType::I8 => read!(i8),
        DType::U8 => read!(u8),
        DType::I16 => read!(i16),
        DType::U16 => read!(u16),
        DType::I32 => read!(i32),
        DType::U32 => read!(u32),
        DType::I64 => read!(i64),
        DType::U64 => read!(u64),
        DType::F32 => f64::from(f32::from_ne_bytes(bytes.try_into().unwrap())),
        DType::F64 => f64::from_ne_bytes(bytes.try_into().unwrap()),
        other => panic!("no file holds voxels of {other}"),
    }
}

/// Voxels of numbers up to a few thousand, of a box of `shape`, cut into pieces that begin off their alignment.
fn voxels(
    dtype: DType,
    shape: [usize; 3],
    cut: usize,
    skip: usize,
    mut bits: impl FnMut() -> u64,
) -> (Vec<u8>, Vec<Bytes>) {
    let count = shape.iter().product::<usize>();
    let mut all = Vec::new();
    for _ in 0..count {
        let v = bits();
        let small = (v % 4096) as i64 - 1024;
        match dtype {
            DType::F32 => all.extend((small as f32 / 8.0).to_ne_bytes()),
            DType::F64 => all.extend((small as f64 / 16.0).to_ne_bytes()),
            DType::I8 | DType::U8 => all.push(v as u8),
            DType::I16 => all.extend((small as i16).to_ne_bytes()),
            DType::U16 => all.extend((v as u16).to_ne_bytes()),
            DType::I32 => all.extend((small as i32).to_ne_bytes()),
            DType::U32 => all.extend((v as u32 >> 8).to_ne_bytes()),
            DType::I64 => all.extend(small.to_ne_bytes()),
            DType::U64 => all.extend((v >> 40).to_ne_bytes()),
            other => panic!("no file holds voxels of {other}"),
        }
    }
    let each = all.len() / shape[..cut].iter().product::<usize>();
    let pieces = all.chunks(each).map(|piece| {
        let mut with = vec![0xee; skip];
        with.extend_from_slice(piece);
        Bytes::from(with)
    });
    let pieces = pieces.collect();
    (all, pieces)
}

proptest! {
    #![proptest_config(properties(256, 4000))]

    #[test]
    fn the_kernel_gives_the_references_bits(
        kind in 0usize..10, out in 0usize..5, mask: bool, plain_values in prop::bool::weighted(0.3), portable: bool, seed: u64, cut in 0usize..3,
        skip in 0usize..5, shape in [1usize..7, 1usize..7, 1usize..40], turn in 0usize..6, large in prop::bool::weighted(0.1),
    ) {
        let dtype = TYPES[kind];
        let mask = mask && dtype.whole().is_some();
        let row = match dtype.whole().filter(|_| mask) {
            Some(whole) => whole,
            None => [DType::U8, DType::I16, DType::F16, DType::Bf16, DType::F32][out],
        };
        // Rows above 256 KiB are stored past the caches.
        let shape = if large { [shape[0] + 8, shape[1] + 40, shape[2] + 180] } else { shape };
        let mut draws = infeed::dataset::SampleRng::new(seed, 0, 0).op(0);
        let (all, pieces) = voxels(dtype, shape, cut, skip, || draws.bits());
        let size = dtype.size();
        let voxels = Voxels {
            dtype, begin: [0; 3], shape, pieces: &pieces, skip,
            pitch: [shape[1] * shape[2] * size, shape[2] * size, size],
        };
        let from = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]][if large { 0 } else { turn }];
        let axes = from.map(|from| {
            let len = shape[from] as i64;
            if draws.chance(0.4) {
                let axis = VolumeAxis::whole(from, shape[from]);
                return if draws.chance(0.5) { axis } else { VolumeAxis { start: len - 1, step: -1, ..axis } };
            }
            // Cut, padded or both, in either direction.
            let step = if draws.chance(0.5) { 1 } else { -1 };
            let low = draws.below(len as u64 + 1) as i64;
            let high = low + draws.below((len - low) as u64 + 1) as i64;
            let start = draws.below(len as u64 + 6) as i64 - 3;
            VolumeAxis { from, start, step, len: 1 + draws.below(len as u64 + 4) as usize, low, high }
        });
        let intensity = if plain_values { Intensity::NONE } else {
            Intensity { scale: 0.37, bias: -3.5, low: -200.0, high: 190.5, fill: 7.25 }
        };
        let voxel = |[z, y, x]: [usize; 3]| {
            let at = ((z * shape[1] + y) * shape[2] + x) * size;
            number(dtype, &all[at..at + size])
        };
        let want = reference::volume(voxel, &axes, &intensity, mask, row);
        let mut got = vec![0xaa; want.len()];
        let level = if portable { Level::Portable } else { Level::Best };
        write_volume(&voxels, &axes, &intensity, mask, row, level, &mut got).unwrap();
        prop_assert!(want == got, "{dtype} to {row} by {axes:?}");
    }
}

#[test]
fn a_kernel_refuses_what_does_not_fit() {
    let pieces = [Bytes::from(vec![0; 24])];
    let voxels =
        Voxels { dtype: DType::U8, begin: [1, 1, 1], shape: [2, 3, 4], pieces: &pieces, pitch: [12, 4, 1], skip: 0 };
    let whole = [0, 1, 2].map(|from| VolumeAxis { low: 1, start: 1, ..VolumeAxis::whole(from, [2, 3, 4][from]) });
    let whole = whole.map(|axis| VolumeAxis { high: axis.len as i64 + 1, ..axis });
    let run = |voxels: &Voxels<'_>, axes: [VolumeAxis; 3], len: usize| {
        write_volume(voxels, &axes, &Intensity::NONE, false, DType::U8, Level::Best, &mut vec![0; len])
    };
    run(&voxels, whole, 24).unwrap();
    assert!(run(&voxels, whole, 23).is_err());
    assert!(run(&Voxels { begin: [0, 1, 1], ..voxels }, whole, 24).is_err(), "voxels that are not there");
    assert!(run(&Voxels { skip: 1, ..voxels }, whole, 24).is_err(), "a piece too short");
    assert!(run(&Voxels { shape: [2, 3, usize::MAX], ..voxels }, whole, 24).is_err());
    assert!(run(&voxels, [whole[0], whole[0], whole[2]], 16).is_err(), "an axis twice");
    let i64s = write_volume(&voxels, &whole, &Intensity::NONE, false, DType::I64, Level::Best, &mut [0; 192]);
    assert!(i64s.is_err(), "no such row");
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut gz = GzEncoder::new(Vec::new(), Compression::fast());
    gz.write_all(bytes).unwrap();
    gz.finish().unwrap()
}

fn nrrd(dtype: &str, sizes: [usize; 3], packed: bool, voxels: &[u8]) -> Vec<u8> {
    let [z, y, x] = sizes;
    let encoding = if packed { "gzip" } else { "raw" };
    let mut file = format!(
        "NRRD0004\ntype: {dtype}\ndimension: 3\nsizes: {x} {y} {z}\nspace directions: (1,0,0) (0,2,0) (0,0,3)\n\
         space origin: (4,5,6)\nendian: little\nencoding: {encoding}\n\n"
    )
    .into_bytes();
    file.extend(if packed { gzip(voxels) } else { voxels.to_vec() });
    file
}

const SIDE: [usize; 3] = [12, 14, 16];

/// Patients whose CT and labels count their voxels, so that one tells of the other; `spot` marks a few voxels.
fn patients(count: usize, packed: bool) -> BTreeMap<String, Vec<u8>> {
    let voxels = SIDE.iter().product::<usize>();
    let mut files = BTreeMap::new();
    for p in 0..count {
        let numbers: Vec<u8> = (0..voxels).flat_map(|v| ((v * 3 + p) as u16 % 30_000).to_le_bytes()).collect();
        let mut spot = vec![0; voxels];
        spot[(3 * SIDE[1] + 2) * SIDE[2] + 13] = 1 + p as u8;
        files.insert(format!("p{p}/ct.nrrd"), nrrd("int16", SIDE, packed, &numbers));
        files.insert(format!("p{p}/label.nrrd"), nrrd("ushort", SIDE, packed, &numbers));
        files.insert(format!("p{p}/mask.nrrd"), nrrd("uint8", SIDE, packed, &spot));
    }
    files
}

fn tracked(files: &BTreeMap<String, Vec<u8>>) -> Arc<Tracker> {
    Tracker::holding(files.iter().map(|(name, bytes)| (name, bytes.clone())))
}

/// Three fields: the CT, the mask that patches are centred on, and the labels that repeat the CT.
fn dataset(source: Source, samples: u64) -> Arc<dyn Dataset> {
    let open = open_source(source).samples_per_patient(samples);
    let open = open.field("image", ["ct"]).field("mask", ["mask"]).field("label", ["label"]);
    // The reads of a remote source take a runtime.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(open.into_future()).unwrap()
}

use std::future::IntoFuture;

fn loader(dataset: &Arc<dyn Dataset>, settings: impl FnOnce(LoaderBuilder) -> LoaderBuilder) -> Loader {
    let order = Order::Random { seed: 3 };
    let base = builder(Arc::clone(dataset)).batch_size(4).order(order).last_batch(LastBatch::Partial);
    settings(base).build_blocking().unwrap()
}

fn all(loader: &Loader, epochs: std::ops::Range<u64>) -> Vec<Plain> {
    drain(loader.epochs(epochs)).unwrap().iter().map(plain).collect()
}

fn moved() -> Transform {
    let steps = Transform::new().pad_or_crop([14, 14, 16], -5.0).patch([6, 8, 8], 0.5);
    steps.flip_axis(Axis::Z, 0.5).flip_axis(Axis::X, 0.5).rot90([Axis::Y, Axis::X], 0.7)
}

#[test]
fn image_and_masks_move_alike_and_labels_stay_what_they_are() {
    for packed in [true, false] {
        let data = dataset(tracked(&patients(3, packed)).inline_source(), 5);
        let loader = loader(&data, |b| b.transform(moved()));
        let mut different = std::collections::HashSet::new();
        let batches = drain(loader.epochs(0..2)).unwrap();
        assert_eq!(batches.iter().map(Batch::valid).sum::<usize>(), 30);
        for batch in &batches {
            let shape = [batch.len(), 1, 6, 8, 8];
            assert_eq!((batch["image"].shape(), batch["label"].dtype()), (&shape[..], DType::U16));
            assert_eq!((batch["mask"].shape(), batch["mask"].dtype()), (&shape[..], DType::U8));
            let (ct, label) = (batch["image"].as_slice::<f32>().unwrap(), batch["label"].as_slice::<u16>().unwrap());
            let same = |(ct, label): (&f32, &u16)| *ct == f32::from(*label) || (*ct == -5.0 && *label == 0);
            assert!(ct.iter().zip(label).all(same));
            different.extend(label.chunks(6 * 8 * 8).map(<[u16]>::to_vec));
            assert_eq!(batch["spacing"].as_slice::<f32>().unwrap()[..3], [3.0, 2.0, 1.0]);
            assert_eq!(batch["origin"].as_slice::<f32>().unwrap()[..3], [6.0, 5.0, 4.0]);
            let patient = batch["patient"].as_slice::<i64>().unwrap();
            assert!(patient.iter().zip(batch.records()).all(|(p, r)| *p as u64 == r / 5));
            assert_eq!(data.schema().names_of("patient").unwrap()[patient[0] as usize], format!("p{}", patient[0]));
        }
        assert!(different.len() > 25, "each sample of each epoch has a draw of its own: {}", different.len());
    }
}

#[test]
fn a_patch_on_the_foreground_holds_some_whether_files_are_packed_or_not() {
    let run = |packed: bool| {
        let data = dataset(tracked(&patients(3, packed)).inline_source(), 6);
        let loader = loader(&data, |b| b.transform(Transform::new().patch([5, 5, 5], 1.0)));
        let batches = drain(loader.epoch(0)).unwrap();
        for batch in &batches {
            let masks = batch["mask"].as_slice::<u8>().unwrap();
            assert!(masks.chunks(125).all(|mask| mask.iter().any(|v| *v > 0)));
        }
        batches.iter().map(plain).collect::<Vec<_>>()
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn what_files_are_like_changes_no_byte() {
    let transform = || Transform::new().patch([4, 6, 7], 0.0).flip_axis(Axis::Y, 0.5).window(0.0, 9000.0);
    let run = |packed: bool, remote: bool| {
        let tracker = tracked(&patients(3, packed));
        let data = dataset(if remote { tracker.source() } else { tracker.inline_source() }, 4);
        all(&loader(&data, |b| b.transform(transform())), 0..2)
    };
    let want = run(true, false);
    for (packed, remote) in [(false, false), (true, true), (false, true)] {
        assert_eq!(run(packed, remote), want, "packed {packed}, remote {remote}");
    }
}

#[test]
fn each_volume_is_read_once_for_all_samples_and_workers() {
    for remote in [false, true] {
        for workers in [1, 3] {
            let tracker = tracked(&patients(4, true));
            let data = dataset(if remote { tracker.source() } else { tracker.inline_source() }, 10);
            tracker.reset();
            let loader = loader(&data, |b| b.workers(workers).transform(Transform::new().scale(0.5, 1.0)));
            all(&loader, 0..2);
            all(&loader, 2..3);
            let mut names = tracker.names();
            names.sort();
            let want: Vec<String> = patients(4, true).into_keys().collect();
            assert_eq!(names, want, "remote {remote}, {workers} workers: 80 samples, 12 files");
        }
    }
}

#[test]
fn a_box_of_a_raw_file_is_one_range_afar_and_little_more_than_itself_here() {
    let transform = || Transform::new().patch([4, 5, 6], 0.0);
    let exact = 4 * 5 * 6 * (2 + 1 + 2);
    let tracker = tracked(&patients(2, false));
    let data = dataset(tracker.source(), 3);
    tracker.reset();
    let whole: u64 = loader(&data, |b| b.transform(transform())).config().batch_size as u64;
    assert_eq!(whole, 4);
    all(&loader(&data, |b| b.transform(transform())), 0..1);
    let log = tracker.log_of_requests();
    // One for each of three files of six samples, fewer where two samples' ranges lie near each other.
    assert!(log.len() <= 18 && log.iter().all(|r| r.range.is_some()), "{log:?}");

    let tracker = tracked(&patients(2, false));
    let data = dataset(tracker.inline_source(), 3);
    tracker.reset();
    all(&loader(&data, |b| b.transform(transform())), 0..1);
    let bytes = tracker.bytes();
    assert!(bytes >= 6 * exact && bytes as f64 <= 1.6 * 6.0 * exact as f64, "{bytes} bytes for {}", 6 * exact);
}

proptest! {
    #![proptest_config(properties(12, 200))]

    #[test]
    fn workers_and_budget_change_no_byte(
        workers in 1usize..5, prefetch in 1usize..6, tight: bool, packed: bool, foreground: bool, blocks: bool,
    ) {
        let data = dataset(tracked(&patients(4, packed)).inline_source(), 3);
        let order = if blocks { Order::Blocks { seed: 9, window: 4, lanes: None } } else { Order::Random { seed: 9 } };
        let transform = Transform::new().patch([5, 6, 7], if foreground { 0.5 } else { 0.0 }).flip_axis(Axis::X, 0.5);
        let base = |b: LoaderBuilder| b.order(order.clone()).transform(transform.clone());
        let want = all(&loader(&data, |b| base(b).workers(1).prefetch(1)), 0..2);
        let got = loader(&data, |b| {
            let b = base(b).workers(workers).prefetch(prefetch);
            // The least that works, or a little more: volumes come and go.
            if tight { b.memory_budget(least(&data, &transform, workers)) } else { b }
        });
        prop_assert_eq!(want, all(&got, 0..2));
    }
}

/// What `build` names as the least budget.
fn least(data: &Arc<dyn Dataset>, transform: &Transform, workers: usize) -> u64 {
    let tiny = builder(Arc::clone(data)).batch_size(4).workers(workers).transform(transform.clone()).memory_budget(1);
    let error = tiny.build_blocking().unwrap_err().to_string();
    assert!(error.contains("memory_budget is 1 B"), "{error}");
    let number = error.split("works is ").nth(1).unwrap();
    let (number, unit) = number.split_once(' ').unwrap();
    let unit = if unit.starts_with("KiB") { 1 << 10 } else { 1 << 20 };
    number.parse::<u64>().unwrap() * unit
}

#[test]
fn a_resume_in_the_middle_of_a_patient_goes_on_with_the_next_sample() {
    let data = dataset(tracked(&patients(3, true)).inline_source(), 7);
    for order in [Order::Sequential, Order::Blocks { seed: 4, window: 3, lanes: None }] {
        let make = || loader(&data, |b| b.order(order.clone()).transform(moved()));
        let whole = drain(make().epoch(0)).unwrap();
        let want: Vec<Plain> = whole.iter().map(plain).collect();
        for at in [0, 2, 4] {
            let rest = drain(make().resume_epoch(whole[at].state()).unwrap());
            let rest: Vec<Plain> = rest.unwrap().iter().take(want.len() - at - 1).map(plain).collect();
            // Steps count from the start of a stream.
            let strip = |plain: &Plain| (plain.1.clone(), plain.2.clone(), plain.4.clone());
            assert!(rest.iter().map(strip).eq(want[at + 1..].iter().map(strip)), "{order:?} at {at}");
        }
    }
}

#[test]
fn a_damaged_volume_is_an_error_of_its_samples_alone() {
    let mut files = patients(3, true);
    let ct = files.get_mut("p1/ct.nrrd").unwrap();
    let end = ct.len() - 40;
    ct.truncate(end);
    let data = dataset(tracked(&files).inline_source(), 4);
    for workers in [1, 3] {
        let skip = OnBadSample::Skip { at_most: 4 };
        let loader = loader(&data, |b| b.workers(workers).on_bad_sample(skip).transform(moved()));
        let batches = drain(loader.epoch(0)).unwrap();
        let mut good: Vec<u64> = batches.iter().flat_map(|batch| batch.records().to_vec()).collect();
        good.sort_unstable();
        assert_eq!(good, [0, 1, 2, 3, 8, 9, 10, 11]);
        let bad: Vec<_> = batches.iter().flat_map(Batch::bad_samples).collect();
        assert_eq!(bad.len(), 4);
        assert!(bad.iter().all(|bad| (4..8).contains(&bad.record) && bad.error.contains("p1/ct.nrrd")), "{bad:?}");
    }
    let error = drain(loader(&data, |b| b.transform(moved())).epoch(0)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}

#[test]
fn volumes_of_different_shapes_are_cut_or_refused() {
    let mut files = patients(1, true);
    let voxels = 5 * 6 * 7;
    for (name, dtype, size) in [("ct", "int16", 2), ("label", "ushort", 2), ("mask", "uint8", 1)] {
        files.insert(format!("p9/{name}.nrrd"), nrrd(dtype, [5, 6, 7], true, &vec![1; voxels * size]));
    }
    let data = dataset(tracked(&files).inline_source(), 2);
    let build = |transform: Transform| builder(Arc::clone(&data)).batch_size(2).transform(transform).build_blocking();
    let error = build(Transform::new()).unwrap_err().to_string();
    assert!(error.contains("are not known before they are read (field image); add patch or pad_or_crop"), "{error}");
    let batches = drain(build(Transform::new().pad_or_crop([8, 8, 8], 0.0)).unwrap().epoch(0)).unwrap();
    assert_eq!(batches.len(), 2);
    assert_eq!(batches[1]["image"].shape(), [2, 1, 8, 8, 8]);
    let error = drain(build(Transform::new().patch([6, 6, 6], 0.0)).unwrap().epoch(0)).unwrap_err().to_string();
    assert!(error.contains("a volume of [5, 6, 7] where patch takes [6, 6, 6]") && error.contains("p9"), "{error}");
}

#[test]
fn a_patch_that_lies_in_the_padding_reads_nothing() {
    let data = dataset(tracked(&patients(1, false)).inline_source(), 20);
    let transform = Transform::new().pad_or_crop([60, 60, 60], 3.0).patch([4, 4, 4], 0.0);
    let batches = drain(loader(&data, |b| b.transform(transform)).epoch(0)).unwrap();
    let images = batches.iter().flat_map(|batch| batch["image"].as_slice::<f32>().unwrap().chunks(64));
    assert!(images.filter(|image| image.iter().all(|v| *v == 3.0)).count() > 10);
}

#[test]
fn rows_may_be_of_every_type() {
    let data = dataset(tracked(&patients(1, true)).inline_source(), 1);
    for dtype in [DType::F32, DType::F16, DType::Bf16, DType::I16, DType::U8] {
        let batch =
            &drain(loader(&data, |b| b.dtype(dtype).transform(Transform::new().scale(0.01, 0.0))).epoch(0)).unwrap()[0];
        assert_eq!((batch["image"].dtype(), batch["mask"].dtype()), (dtype, DType::U8));
        let third = match dtype {
            DType::F32 => batch["image"].as_slice::<f32>().unwrap()[2000],
            DType::F16 => batch["image"].as_slice::<f16>().unwrap()[2000].to_f32(),
            DType::I16 => f32::from(batch["image"].as_slice::<i16>().unwrap()[2000]),
            DType::U8 => f32::from(batch["image"].as_slice::<u8>().unwrap()[2000]),
            _ => batch["image"].as_slice::<half::bf16>().unwrap()[2000].to_f32(),
        };
        assert!((third - 60.0).abs() < 0.3, "{dtype}: {third}");
    }
}

#[test]
fn files_of_both_kinds_keep_the_contract_from_a_folder() {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in patients(2, true).into_iter().chain(
        patients(2, false)
            .into_iter()
            .map(|(name, bytes)| (name.replace("ct", "raw_ct"), bytes))
            .filter(|f| f.0.contains("raw")),
    ) {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let data = runtime.block_on(infeed::open(dir.path().to_str().unwrap()).into_future()).unwrap();
    runtime.block_on(dataset_contract(&*data)).unwrap();
    let names: Vec<_> = data.schema().fields.iter().map(|field| field.name.as_str()).collect();
    assert_eq!(names, ["ct", "raw_ct", "label", "mask", "spacing", "origin", "patient"]);
    let transform = Transform::new().patch([4, 5, 6], 0.0).flip_axis(Axis::X, 0.5);
    for batch in drain(loader(&data, |b| b.transform(transform)).epochs(0..3)).unwrap() {
        assert_eq!(batch["ct"].bytes(), batch["raw_ct"].bytes(), "a range of a file holds what the whole does");
    }
}
