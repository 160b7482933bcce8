//! What burn's training loops rely on.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    sync::Arc,
};

use burn::{
    data::{
        dataloader::{DataLoader, split::split_dataloader},
        dataset::Dataset,
    },
    prelude::*,
};
use futures::{FutureExt, StreamExt};
use infeed::{
    DType, LastBatch, Loader, LoaderBuilder, LoaderState, OnBadSample, Shard, Transform,
    dataset::{Instances, MemoryDataset, SyntheticDataset},
    sampler::ListSampler,
};
use infeed_burn::{
    ClassificationBatch, DetectionBatch, DeviceLoaders, InfeedDataset, InfeedLoader, SegmentationBatch, TensorExt,
};

/// Counts what this thread allocates in pieces as large as a batch.
struct Counting;

const LARGE: usize = 1 << 16;

thread_local! {
    static LARGE_ONES: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: the system's allocator does all the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() >= LARGE {
            // A thread that ends has no count any more.
            let _ = LARGE_ONES.try_with(|count| count.set(count.get() + 1));
        }
        // SAFETY: the caller's promises are those of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn builder(records: u64) -> LoaderBuilder {
    let dataset = SyntheticDataset::new(records, 8, 8, 10).unwrap();
    Loader::builder(Arc::new(dataset)).batch_size(10).shuffle(42).device(infeed::Device::Cpu)
}

/// Gives the records of each batch.
fn records(builder: LoaderBuilder) -> InfeedLoader<Vec<u64>> {
    of_loader(builder.build_blocking().unwrap())
}

fn of_loader(loader: Loader) -> InfeedLoader<Vec<u64>> {
    InfeedLoader::with(loader, &Device::flex(), |batch, _| Ok(batch.records().to_vec()))
}

fn all<O>(data: &dyn DataLoader<O>) -> Vec<O> {
    data.iter().map(Result::unwrap).collect()
}

fn error<O>(data: &dyn DataLoader<O>) -> String {
    let mut batches = data.iter();
    let error = batches.by_ref().find_map(Result::err).expect("an error").to_string();
    assert!(batches.next().is_none(), "an error ends the epoch");
    error
}

/// What the loader itself gives.
fn expected(builder: LoaderBuilder, epoch: u64) -> Vec<Vec<u64>> {
    let loader = builder.build_blocking().unwrap();
    loader.epoch(epoch).blocking().map(|batch| batch.unwrap().records().to_vec()).collect()
}

#[test]
fn each_iterator_is_the_next_epoch_in_the_loaders_order_with_any_threads() {
    for threads in [1, 8] {
        for data in [records(builder(95).workers(threads)), records(builder(95).workers(threads)).epochs(0..3)] {
            for epoch in 0..3 {
                assert_eq!(all(&data), expected(builder(95), epoch), "epoch {epoch}");
            }
        }
    }
}

#[test]
fn an_iterator_that_is_dropped_early_leaves_the_rest_of_its_epoch_out() {
    let data = records(builder(95)).epochs(3..7);
    assert_eq!(data.iter().nth(1).unwrap().unwrap(), expected(builder(95), 3)[1]);
    assert_eq!(all(&data), expected(builder(95), 4));
    // Two at a time are two epochs, whichever ends first.
    let first = data.iter();
    assert_eq!(all(&data), expected(builder(95), 6));
    assert_eq!(first.map(Result::unwrap).collect::<Vec<_>>(), expected(builder(95), 5));
    assert!(error(&data).contains("the epochs end before 7"));
}

#[test]
fn progress_ends_at_all_items_whatever_the_last_batch() {
    for (last, items) in [(LastBatch::Drop, 90), (LastBatch::Partial, 95), (LastBatch::Pad, 95)] {
        let data = records(builder(95).last_batch(last)).epochs(0..2);
        assert_eq!(data.num_items(), items);
        let mut batches = data.iter();
        let mut seen = 0;
        while let Some(batch) = batches.next() {
            seen = (seen + batch.unwrap().len()).min(items);
            let progress = batches.progress();
            assert_eq!((progress.items_processed, progress.items_total), (seen, items));
        }
        assert!(batches.progress().is_completed());
    }
}

#[test]
fn bad_samples_that_are_skipped_leave_progress_complete() {
    let files = (0..25).map(|n| bytes::Bytes::from(if n >= 20 { vec![0; 9] } else { png() })).collect();
    let dataset = MemoryDataset::builder().encoded_images(files).build().unwrap();
    let skipping = Loader::builder(Arc::new(dataset)).batch_size(10).last_batch(LastBatch::Partial).transform(pixel());
    let data =
        records(skipping.device(infeed::Device::Cpu).on_bad_sample(OnBadSample::Skip { at_most: 100 })).epochs(0..2);
    for _ in 0..2 {
        let mut batches = data.iter();
        let rows: usize = batches.by_ref().map(|batch| batch.unwrap().len()).sum();
        assert_eq!((rows, batches.progress().is_completed()), (20, true));
    }
}

#[test]
fn a_state_goes_on_behind_the_last_batch_that_was_handed_over() {
    let data = records(builder(95).last_batch(LastBatch::Partial)).epochs(0..3);
    all(&data);
    let before: Vec<_> = data.iter().take(4).map(Result::unwrap).collect();
    let state = LoaderState::from_json(&data.state().to_json()).unwrap();
    assert_eq!((state.epoch, state.position), (1, 40));

    // Another batch size, and other threads.
    let other = || records(builder(95).batch_size(7).workers(3).last_batch(LastBatch::Partial));
    let resumed = other().epochs(0..3).resume(&state).unwrap();
    // Said in the other order.
    let again = other().resume(&state).unwrap().epochs(0..3);
    assert_eq!((all(&again).len(), all(&again).len()), (8, 14));
    assert!(error(&again).contains("the epochs end before 3"));
    let mut batches = resumed.iter();
    let first = batches.next().unwrap().unwrap();
    assert_eq!(batches.progress().items_processed, 47);
    let rest: Vec<_> = first.into_iter().chain(batches.flat_map(Result::unwrap)).collect();
    assert_eq!([before.concat(), rest].concat(), expected(builder(95).last_batch(LastBatch::Partial), 1).concat());
    assert_eq!(all(&resumed).concat(), expected(builder(95).last_batch(LastBatch::Partial), 2).concat());
    assert!(error(&resumed).contains("the epochs end before 3"));

    let other = records(builder(94)).resume(&state).unwrap_err();
    assert_eq!(other.kind(), infeed::ErrorKind::State);
}

#[test]
fn what_goes_to_a_device_is_in_the_same_place() {
    let data = records(builder(30)).epochs(0..2);
    let moved = data.to_device(&Device::flex());
    assert_eq!(all(&*moved), expected(builder(30), 0));
    assert_eq!((data.state().epoch, data.state().position), (1, 0));
    assert_eq!(all(&data), expected(builder(30), 1));
    assert_eq!(data.monitor().unwrap().report().batches, 6);
}

#[test]
fn slices_are_those_records_in_a_shuffled_order_of_their_own() {
    let whole = records(builder(95));
    let parts = [whole.slice(0, 30), whole.slice(30, 90)];
    let mut seen = Vec::new();
    for (part, range) in parts.iter().zip([0..30, 30..95]) {
        let [mut first, second] = [all(&**part).concat(), all(&**part).concat()];
        assert_ne!(first, second, "each epoch has its own order");
        first.sort_unstable();
        assert!(first.iter().all(|record| range.contains(record)) && first.is_sorted_by(|a, b| a < b));
        seen.extend(first);
    }
    // The last one has what the dropped batch would have had, as far as it fills batches.
    assert_eq!(seen.len(), 90);
    assert_eq!(all(&*whole.slice(0, 30)), all(&*records(builder(95)).slice(0, 30)));

    let ranked = records(builder(95).shard(Shard::new(0, 2).unwrap()));
    assert!(error(&*ranked.slice(0, 10)).contains("rank 0 of 2"));
    assert!(error(&*whole.slice(50, 91)).contains("90 items"));
    assert!(error(&*whole.slice(50, 50)).contains("within them"));
    let list = ListSampler::new(95, (0..50).collect::<Vec<u64>>()).unwrap();
    assert!(error(&*records(builder(95).sampler(Arc::new(list))).slice(0, 10)).contains("an order of its own"));
}

#[test]
fn slices_in_blocks_keep_to_the_groups_of_the_dataset() {
    let order = infeed::Order::Blocks { seed: 1, window: 10, lanes: None };
    let data = records(builder(95).order(order));
    let mut seen = [all(&*data.slice(0, 50)).concat(), all(&*data.slice(50, 90)).concat()].concat();
    seen.sort_unstable();
    assert!(seen.len() == 90 && seen.is_sorted_by(|a, b| a < b));
}

#[test]
fn devices_take_equal_steps_and_all_records_between_them() {
    let devices = [Device::flex(), Device::flex(), Device::flex()];
    let loaders = || builder(95).last_batch(LastBatch::Partial).build_each_blocking([infeed::Device::Cpu; 3]).unwrap();
    let make = |batch: &infeed::Batch, _: &Device| Ok(batch.records().to_vec());
    let each = DeviceLoaders::with(loaders(), &devices[0], make).epochs(0..2);
    let parts = split_dataloader(Arc::new(each.clone()), &devices);
    let of_parts: Vec<_> = parts.iter().map(|part| all(&**part)).collect();
    assert!(of_parts.iter().all(|batches| batches.len() == 4), "{of_parts:?}");
    let mut seen = of_parts.concat().concat();
    seen.sort_unstable();
    assert_eq!(seen, (0..95).collect::<Vec<u64>>());
    let state = each.state().unwrap();
    assert_eq!((state.epoch, state.position), (1, 0));
    // Two go on where three stopped.
    let two = builder(95).build_each_blocking([infeed::Device::Cpu; 2]).unwrap();
    let two = DeviceLoaders::with(two, &devices[0], make).epochs(0..2).resume(&state).unwrap();
    let steps: Vec<_> = split_dataloader(Arc::new(two), &devices[..2]).iter().map(|part| part.iter().count()).collect();
    assert_eq!(steps, [4, 4]);

    assert!(error(&each).contains("3 devices are iterated over as one"));
    assert!(error(&*split_dataloader(Arc::new(each), &devices[..2])[0]).contains("none of 3 devices"));
}

#[test]
fn an_error_ends_the_epoch_and_names_the_record() {
    let files = [png(), vec![1, 2, 3], png()].map(bytes::Bytes::from).to_vec();
    let dataset = MemoryDataset::builder().encoded_images(files).build().unwrap();
    let data = records(Loader::builder(Arc::new(dataset)).batch_size(3).transform(pixel()).device(infeed::Device::Cpu));
    assert!(error(&data).contains("record 1"));
    let unlabelled = MemoryDataset::builder().images_u8(vec![0; 12], 1, 2, 2, 3, false).build().unwrap();
    let loader =
        Loader::builder(Arc::new(unlabelled)).batch_size(1).device(infeed::Device::Cpu).build_blocking().unwrap();
    let data = InfeedLoader::<ClassificationBatch>::new(loader, &Device::flex());
    assert!(error(&data).contains("no field \"label\""));
}

#[test]
fn a_stream_gives_what_the_iterator_gives_and_its_futures_may_be_dropped() {
    let data = records(builder(95)).epochs(0..2);
    let seen = futures::executor::block_on(async {
        let mut batches = data.stream();
        let mut seen = Vec::new();
        loop {
            // Asked and given up, as `select!` does.
            if let Some(next) = batches.next().now_or_never() {
                match next {
                    Some(batch) => seen.push(batch.unwrap()),
                    None => break,
                }
            }
        }
        seen
    });
    assert_eq!(seen, expected(builder(95), 0));
    fn sendable<T: Send + Unpin + 'static>(_: &T) {}
    sendable(&data.stream());
}

#[test]
fn the_iterator_works_within_a_task_of_tokio() {
    let (done, count) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        // More batches than a task may take without giving way.
        runtime.block_on(async { done.send(all(&records(builder(2000))).len()).unwrap() });
    });
    assert_eq!(count.recv_timeout(std::time::Duration::from_secs(60)), Ok(200));
}

#[test]
fn tensors_lie_in_the_batchs_memory() {
    let dataset = SyntheticDataset::new(8, 64, 64, 10).unwrap();
    let loader = Loader::builder(Arc::new(dataset)).batch_size(8).device(infeed::Device::Cpu).build_blocking().unwrap();
    let batch = loader.epoch(0).blocking().next().unwrap().unwrap();
    let (start, values) = (batch["image"].bytes().unwrap().as_ptr(), batch["image"].to_vec::<f32>().unwrap());
    assert!(batch["image"].bytes().unwrap().len() >= LARGE);
    let device = Device::flex();
    LARGE_ONES.set(0);
    let image = batch["image"].burn::<4, Float>(&device).unwrap();
    drop(batch);
    assert_eq!(image.dims(), [8, 3, 64, 64]);
    let data = image.into_data();
    assert_eq!((LARGE_ONES.get(), data.as_bytes().as_ptr()), (0, start));
    assert_eq!(data.as_slice::<f32>().unwrap(), values);
}

#[test]
fn writing_in_place_leaves_the_batch_as_it_was() {
    let loader = builder(10).build_blocking().unwrap();
    let batch = loader.epoch(0).blocking().next().unwrap().unwrap();
    let before = batch["image"].to_vec::<f32>().unwrap();
    let image = batch["image"].burn::<4, Float>(&Device::flex()).unwrap();
    let doubled = image.mul_scalar(2.0).add_scalar(1.0).into_data();
    assert_eq!(batch["image"].as_slice::<f32>().unwrap(), before);
    let want: Vec<f32> = before.iter().map(|value| value * 2.0 + 1.0).collect();
    assert_eq!(doubled.as_slice::<f32>().unwrap(), want);
}

#[test]
fn every_type_comes_as_it_is() {
    let device = Device::flex();
    for dtype in DType::ALL {
        let values: Vec<u8> = match dtype {
            DType::Bool => vec![0, 1, 1, 0],
            _ => (0..4 * dtype.size()).map(|n| if n % dtype.size() == 0 { n as u8 } else { 0 }).collect(),
        };
        let dataset = MemoryDataset::builder().array("x", dtype, vec![2], values.clone()).build().unwrap();
        let loader =
            Loader::builder(Arc::new(dataset)).batch_size(2).device(infeed::Device::Cpu).build_blocking().unwrap();
        let batch = loader.epoch(0).blocking().next().unwrap().unwrap();
        let tensor = &batch["x"];
        let data = match dtype {
            DType::Bool => tensor.burn::<2, Bool>(&device).unwrap().into_data(),
            DType::F16 | DType::Bf16 | DType::F32 | DType::F64 => tensor.burn::<2, Float>(&device).unwrap().into_data(),
            _ => tensor.burn::<2, Int>(&device).unwrap().into_data(),
        };
        assert_eq!((data.as_bytes(), data.shape().as_slice()), (&values[..], &[2, 2][..]), "{dtype}");
        let wrong = tensor.burn::<3, Int>(&device).unwrap_err().to_string();
        assert!(wrong.contains("2 axes, not 3"), "{wrong}");
    }
    let loader = builder(10).build_blocking().unwrap();
    let batch = loader.epoch(0).blocking().next().unwrap().unwrap();
    let wrong = batch["image"].burn::<4, Int>(&device).unwrap_err().to_string();
    assert!(wrong.contains("f32") && wrong.contains("Float"), "{wrong}");
}

#[test]
fn ready_made_batches_hold_what_the_batch_does() {
    let device = Device::flex();
    let mut marked = Instances::new([4, 4]);
    marked.push([1.0, 0.0, 3.0, 2.0], 7);
    let images = || MemoryDataset::builder().images_u8((0..96).collect::<Vec<u8>>(), 2, 4, 4, 3, false);
    let loader = |dataset: MemoryDataset| {
        Loader::builder(Arc::new(dataset)).batch_size(2).device(infeed::Device::Cpu).build_blocking().unwrap()
    };
    let masks: Vec<u8> = (0..32).map(|n| n % 5).collect();
    let masked = images().images_u8(masks.clone(), 2, 4, 4, 1, false).named("mask").mask().build().unwrap();
    let batch = all(&InfeedLoader::<SegmentationBatch>::new(loader(masked), &device)).remove(0);
    assert_eq!((batch.images.dims(), batch.masks.dims()), ([2, 3, 4, 4], [2, 4, 4]));
    let want: Vec<i32> = masks.into_iter().map(i32::from).collect();
    assert_eq!(batch.masks.into_data().convert::<i32>().as_slice::<i32>().unwrap(), want);

    let labelled = images().labels(vec![3, 9]).build().unwrap();
    let batch = all(&InfeedLoader::<ClassificationBatch>::new(loader(labelled), &device)).remove(0);
    assert_eq!(batch.targets.into_data().convert::<i32>().as_slice::<i32>().unwrap(), [3, 9]);
    let missing = InfeedLoader::<SegmentationBatch>::new(loader(images().named("photo").build().unwrap()), &device);
    assert!(error(&missing).contains("no field \"mask\", but [\"photo\"]"));

    let mut marked = Instances::new([4, 4]);
    marked.push([1.0, 0.0, 3.0, 2.0], 7);
    let detection = images().instances(vec![Instances::new([4, 4]), marked]).build().unwrap();
    let batch = all(&InfeedLoader::<DetectionBatch>::new(loader(detection), &device)).remove(0);
    assert_eq!((batch.offsets.clone(), batch.rows().collect::<Vec<_>>()), (vec![0, 0, 1], vec![0..0, 0..1]));
    assert_eq!(batch.boxes.into_data().as_slice::<f32>().unwrap(), [1.0, 0.0, 3.0, 2.0]);
    assert_eq!(batch.labels.into_scalar::<i64>(), 7);
}

#[test]
fn burns_own_loader_reads_an_infeed_dataset() {
    use burn::data::dataloader::{DataLoaderBuilder, batcher::Batcher};

    #[derive(Clone)]
    struct Labels;
    impl Batcher<(u64, Vec<f32>), Vec<u64>> for Labels {
        fn batch(&self, items: Vec<(u64, Vec<f32>)>, _: &Device) -> Vec<u64> {
            items.into_iter().map(|(label, _)| label).collect()
        }
    }
    let labels: Vec<i64> = (0..95).collect();
    let images = MemoryDataset::builder().images_u8(vec![5; 95 * 12], 95, 2, 2, 3, false).labels(labels);
    let loader = Loader::builder(Arc::new(images.build().unwrap())).batch_size(8).device(infeed::Device::Cpu);
    let dataset = InfeedDataset::new(loader.build_blocking().unwrap(), |row| {
        Ok((row.values::<i64>("label")?[0] as u64, row.values::<f32>("image")?.to_vec()))
    });
    let dataset = dataset.unwrap();
    assert_eq!((dataset.len(), dataset.get(41).unwrap().0), (95, 41));
    assert_eq!(dataset.get_many(vec![9; 20]).unwrap().len(), 20);
    let data = DataLoaderBuilder::new(Labels).batch_size(10).num_workers(3).build(dataset);
    let mut seen: Vec<u64> = data.iter().flat_map(Result::unwrap).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..95).collect::<Vec<u64>>());

    let loader = builder(10).build_blocking().unwrap();
    let typed = InfeedDataset::new(loader, |row| row.values::<u8>("image").map(<[u8]>::to_vec)).unwrap();
    assert!(typed.get(0).unwrap_err().to_string().contains("values of f32 were requested as u8"));
    let ranked = builder(20).shard(Shard::new(0, 2).unwrap()).build_blocking().unwrap();
    assert!(InfeedDataset::new(ranked, |_| Ok(())).unwrap_err().to_string().contains("several ranks"));
}

fn pixel() -> Transform {
    Transform::new().resize_exact(1, 1)
}

/// A picture of one pixel.
fn png() -> Vec<u8> {
    const PNG: &[u8] = &[
        137, 80, 78, 71, 13, 10, 26, 10, 0, 0, 0, 13, 73, 72, 68, 82, 0, 0, 0, 1, 0, 0, 0, 1, 8, 0, 0, 0, 0, 58, 126,
        155, 85, 0, 0, 0, 10, 73, 68, 65, 84, 120, 156, 99, 104, 0, 0, 0, 130, 0, 129, 119, 205, 114, 182, 0, 0, 0, 0,
        73, 69, 78, 68, 174, 66, 96, 130,
    ];
    PNG.to_vec()
}
