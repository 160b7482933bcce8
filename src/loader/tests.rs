//! Batches do not depend on the changes that `auto` makes, even random ones.

use std::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures::FutureExt;
use infeed_core::{
    error::ErrorKind,
    fingerprint::Fingerprint,
    machine,
    random::SampleRng,
    report::TuneReport,
    types::{DType, Device},
};
use infeed_data::{
    Dataset, Field, FieldKind, ReadPlan, Sample, Schema, Value, Volume, VolumeChannel,
    sampler::{LastBatch, Shard},
};
use infeed_store::Source;
use object_store::{ObjectStore, ObjectStoreExt, memory::InMemory, path::Path};

use super::{
    Loader, LoaderBuilder, LoaderConfig,
    numbers::{Numbers, content, name},
};
use crate::Result;

/// If a test waits this long, it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Numbers that are read from a store, by the decode threads, or are in memory.
fn numbers(kind: &str, count: u64) -> Arc<dyn Dataset> {
    let store = InMemory::new();
    for record in 0..count {
        let path = Path::from(name(record));
        let put = store.put(&path, content(record).into());
        put.now_or_never().expect("a store in memory answers at once").expect("it takes all");
    }
    let store: Arc<dyn ObjectStore> = Arc::new(store);
    let source = Source::from_store(store, Path::default(), "memory://numbers");
    let source = match kind {
        "remote" => Some(source),
        "inline" => Some(source.inline()),
        _ => None,
    };
    Arc::new(Numbers::new(source, count))
}

fn builder(kind: &str) -> LoaderBuilder {
    let builder = Loader::builder(numbers(kind, 203)).device(Device::Cpu).shuffle(7);
    builder.batch_size(8).last_batch(LastBatch::Partial)
}

#[test]
fn rows_that_no_memory_can_hold_are_refused_by_name() {
    for shape in [vec![1 << 33, 1 << 31], vec![usize::MAX], vec![0, usize::MAX, usize::MAX]] {
        let kind = FieldKind::Array { dtype: DType::I64, shape };
        let schema = Schema::new(vec![Field::new("number", kind)]);
        let numbers = Numbers { schema, ..Numbers::new(None, 8) };
        let builder = Loader::builder(Arc::new(numbers)).batch_size(8).device(Device::Cpu);
        let error = builder.build_blocking().unwrap_err();
        let said = error.to_string();
        assert!(said.contains("more than memory can hold") && said.contains("number"), "{said}");
    }
}

/// Epoch, records and bytes of a batch.
type Plain = (u64, Vec<u64>, Vec<u8>);

/// The batches of some epochs, and the changes during them.
fn all(loader: &Loader, epochs: u64) -> (Vec<Plain>, TuneReport) {
    let (done, batches) = mpsc::channel();
    let loader = loader.clone();
    let body = move || {
        let mut stream = loader.epochs(0..epochs).blocking();
        let plain = |batch: Result<crate::Batch>| {
            let batch = batch.expect("nothing fails");
            let bytes = batch["number"].bytes().expect("host memory").to_vec();
            (batch.epoch(), batch.records().to_vec(), bytes)
        };
        let all: Vec<_> = stream.by_ref().map(plain).collect();
        let _ = done.send((all, stream.report().autotune));
    };
    thread::spawn(body);
    batches.recv_timeout(PATIENCE).expect("a stream ends")
}

#[test]
fn batches_are_the_same_whatever_is_changed_while_they_are_made() {
    for kind in ["resident", "inline", "remote"] {
        let plain = builder(kind).workers(1).prefetch(1).build_blocking().unwrap();
        let (want, untouched) = all(&plain, 20);
        assert_eq!((untouched.decision_count, untouched.workers.auto, untouched.prefetch.auto), (0, false, false));
        for (seed, budget) in [(1, None), (2, Some(64 << 20)), (3, None)] {
            let builder = budget.into_iter().fold(builder(kind), LoaderBuilder::memory_budget);
            let loader = builder.build_blocking().unwrap();
            loader.shared.tuning.go_wild(seed);
            let (mut changes, began) = (0, Instant::now());
            while changes < 200 {
                let (got, tuned) = all(&loader, 20);
                assert!(got == want, "{kind}, seed {seed}: other batches after {changes} changes");
                changes += tuned.decision_count;
                if tuned.workers.most == 1 && budget.is_some() {
                    // On one core without memory for more batches nothing can be changed.
                    break;
                }
                assert!(began.elapsed() < PATIENCE, "{kind}, seed {seed}: only {changes} changes: {tuned:?}");
            }
        }
    }
}

#[test]
fn the_least_memory_is_enough_for_any_change() {
    for kind in ["resident", "inline", "remote"] {
        let build = |bytes: u64| builder(kind).memory_budget(bytes).build_blocking();
        // The smallest budget that builds, found by bisection.
        let (mut low, mut high) = (1u64, 1 << 32);
        while low + 1 < high {
            let middle = low.midpoint(high);
            if build(middle).is_ok() { high = middle } else { low = middle }
        }
        let loader = build(high).unwrap();
        let (want, _) = all(&builder(kind).workers(1).prefetch(1).build_blocking().unwrap(), 5);
        loader.shared.tuning.go_wild(high);
        for _ in 0..20 {
            let (got, tuned) = all(&loader, 5);
            assert!(got == want, "{kind}: other batches: {tuned:?}");
            // There is no memory for more batches than at the start.
            let grown = tuned.decisions.iter().find(|d| d.what == infeed_core::report::Tuned::Prefetch && d.to > 1);
            assert_eq!((grown, tuned.prefetch.start), (None, 1), "{kind}");
            let started = thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
            assert!(tuned.workers.now <= started, "{kind}: {tuned:?}");
        }
    }
}

#[test]
fn processes_of_a_machine_begin_with_their_share_of_its_cores() {
    let workers = |processes: u32| {
        let shard = Shard::new(0, 8).unwrap().with_local(0, processes).unwrap();
        builder("memory").shard(shard).build_blocking().unwrap().config().workers.unwrap()
    };
    let cores = machine::cores().get();
    // If this process is bound to some cores, the machine is already divided.
    let share = |processes: usize| if machine::is_bound() { cores } else { (cores / processes).max(1) };
    assert_eq!([workers(1), workers(2), workers(8)], [cores, share(2), share(8)]);
    let given = builder("memory").shard(Shard::new(0, 8).unwrap().with_local(0, 8).unwrap()).workers(3);
    assert_eq!(given.build_blocking().unwrap().config().workers, Some(3));
}

#[test]
fn without_a_gpu_page_locked_memory_is_an_error_that_says_so() {
    if !crate::device::devices().gpus.is_empty() {
        return;
    }
    let one = builder("resident").pin_memory(true).build_blocking();
    let each = builder("resident").pin_memory(true).build_each_blocking([Device::Cpu; 2]);
    let config = serde_json::from_str::<LoaderConfig>(r#"{ "pin_memory": true }"#).unwrap();
    assert!(!LoaderConfig::default().pin_memory);
    let automatic = Loader::builder(numbers("resident", 300)).config(config).build_blocking();
    for error in [one.unwrap_err(), each.unwrap_err(), automatic.unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Device);
        let said = error.to_string();
        assert!(said.contains("pin_memory needs a GPU that copies from the memory: "), "{said}");
        assert!(said.contains("omit pin_memory"), "{said}");
        assert!(cfg!(feature = "cuda") || said.contains("built without the feature `cuda`"), "{said}");
    }
}

#[test]
fn the_memory_of_a_batch_is_its_owners_alone() {
    for kind in ["resident", "inline", "remote"] {
        let loader = builder(kind).build_blocking().unwrap();
        for batch in loader.epochs(0..20).blocking() {
            let numbers = batch.unwrap().take("number").expect("the only field");
            assert!(numbers.try_into_mut().is_ok(), "{kind}: the engine still has rows of it");
        }
    }
}

#[test]
fn a_stream_dropped_in_the_middle_of_changes_leaves_a_loader_that_works() {
    let loader = builder("inline").build_blocking().unwrap();
    loader.shared.tuning.go_wild(5);
    for n in 0..100 {
        let mut stream = loader.epochs(0..1000).blocking();
        stream.by_ref().take(n % 7).for_each(|batch| drop(batch.unwrap()));
    }
    let (got, _) = all(&loader, 2);
    assert_eq!(got.len(), 2 * 203_usize.div_ceil(8));
}

#[test]
fn streams_beside_each_other_all_end() {
    let loader = builder("inline").build_blocking().unwrap();
    loader.shared.tuning.go_wild(9);
    thread::scope(|scope| {
        let streams: Vec<_> = (0..4).map(|_| scope.spawn(|| all(&loader, 30).0)).collect();
        let all: Vec<_> = streams.into_iter().map(|stream| stream.join().unwrap()).collect();
        assert!(all.windows(2).all(|pair| pair[0] == pair[1]));
    });
}

/// Volumes in memory; the first one stays in work until others were begun.
#[derive(Debug)]
struct Volumes {
    schema: Schema,
    begun: Mutex<usize>,
    more: Condvar,
    /// Records that were begun when the first was complete.
    most: AtomicUsize,
}

impl Dataset for Volumes {
    fn len(&self) -> u64 {
        64
    }
    fn schema(&self) -> &Schema {
        &self.schema
    }
    fn format(&self) -> &str {
        "volumes"
    }
    fn plan(&self, _record: u64, _rng: SampleRng) -> Result<ReadPlan> {
        Ok(ReadPlan::default())
    }
    fn parse(&self, record: u64, _plan: &ReadPlan, _bytes: &[Bytes]) -> Result<Sample> {
        let mut begun = self.begun.lock().unwrap();
        *begun += 1;
        self.more.notify_all();
        if record == 0 {
            // Only the first record of its batch, and at least one batch after it.
            let short = |begun: &mut usize| *begun < 5;
            (begun, _) = self.more.wait_timeout_while(begun, PATIENCE, short).unwrap();
            drop(begun);
            // Time for the other threads to begin batches that they must not begin.
            thread::sleep(Duration::from_millis(50));
            self.most.store(*self.begun.lock().unwrap(), Ordering::Relaxed);
        }
        let channel = VolumeChannel {
            dtype: DType::U8,
            slope: 1.0,
            intercept: 0.0,
            begin: [0; 3],
            shape: [2; 3],
            pieces: [Bytes::from_static(&[7; 8])].into_iter().collect(),
            pitch: [4, 2, 1],
            skip: 0,
        };
        let volume = Volume { shape: [2; 3], channels: [channel].into_iter().collect(), foreground: Bytes::new() };
        Ok(Sample::new([Value::Volume(Box::new(volume))]))
    }
    fn needs_fetch(&self) -> bool {
        false
    }
    fn largest_read(&self) -> u64 {
        0
    }
    fn object(&self, record: u64) -> String {
        name(record)
    }
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of("volumes").finish()
    }
}

#[test]
fn no_batch_of_volumes_is_begun_while_one_far_before_it_is_not_whole() {
    for workers in [2, 4] {
        let kind = FieldKind::Volume { channels: 1, size: Some([2; 3]), mask: None };
        let volumes = Arc::new(Volumes {
            schema: Schema::new(vec![Field::new("ct", kind)]),
            begun: Mutex::new(0),
            more: Condvar::new(),
            most: AtomicUsize::new(0),
        });
        let builder = Loader::builder(Arc::clone(&volumes) as Arc<dyn Dataset>).device(Device::Cpu).batch_size(4);
        let loader = builder.workers(workers).prefetch(16).build_blocking().unwrap();
        assert_eq!(loader.epochs(0..1).blocking().map(|batch| batch.unwrap().len()).sum::<usize>(), 64);
        // A batch is at least one job, so one batch per thread after the first. The number of records in a job is
        // measured.
        let most = volumes.most.load(Ordering::Relaxed);
        assert!((5..=4 * (1 + workers)).contains(&most), "{workers} workers: {most} records");
    }
}
