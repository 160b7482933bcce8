//! What records share is read once, and ahead of them.

use std::sync::Arc;

use bytes::Bytes;
use infeed::{
    Batch, DType, Dataset, Error, ErrorKind, Loader, OnBadSample, Result,
    dataset::{Field, FieldKind, Fingerprint, ReadPlan, Sample, SampleRng, Schema, SharedBytes, SharedRead, Value},
    source::{CacheSpec, Extent, Source},
};

use crate::support::{
    PATIENCE, builder, drain,
    records::{LEN, content, name, record_of},
    store::{Fault, Tracker},
    until,
};

/// A hundred records of which ten share a part.
#[derive(Debug)]
struct Sharing {
    source: Source,
    schema: Schema,
    /// What a plan says that a part has.
    promised: u64,
    /// Whether the loader is told that reads go over a network. Else decode threads find out.
    ahead: bool,
    /// A part that can't be decoded.
    damaged: Option<u64>,
}

impl Sharing {
    fn new() -> (Self, Arc<Tracker>) {
        let tracker = Tracker::holding((0..10).map(|part| (name(part), content(part))));
        let bytes = FieldKind::Array { dtype: DType::U8, shape: vec![LEN] };
        let schema = Schema::new(vec![Field::new("bytes", bytes)]);
        let source = tracker.source();
        (Self { source, schema, promised: LEN as u64, ahead: true, damaged: None }, tracker)
    }

    fn dataset() -> (Arc<dyn Dataset>, Arc<Tracker>) {
        let (sharing, tracker) = Self::new();
        (Arc::new(sharing), tracker)
    }

    fn late() -> (Arc<dyn Dataset>, Arc<Tracker>) {
        let (sharing, tracker) = Self::new();
        (Arc::new(Self { ahead: false, ..sharing }), tracker)
    }
}

impl Dataset for Sharing {
    fn len(&self) -> u64 {
        100
    }
    fn schema(&self) -> &Schema {
        &self.schema
    }
    fn format(&self) -> &str {
        "sharing"
    }
    fn plan(&self, record: u64, _rng: SampleRng) -> Result<ReadPlan> {
        let part = record / 10;
        // The store in memory counts its versions.
        let all = Extent::whole(&self.source, name(part), LEN as u64).with_etag(Some(format!("\"{part}\"")));
        let mut plan = ReadPlan::default();
        plan.shared.push(SharedRead::new(part, [all], self.promised));
        Ok(plan)
    }
    fn parse(&self, _record: u64, _plan: &ReadPlan, bytes: &[Bytes]) -> Result<Sample> {
        Ok(Sample::new([Value::Array(bytes[0].clone())]))
    }
    fn decode_shared(&self, key: u64, bytes: &[Bytes]) -> Result<Bytes> {
        if self.damaged == Some(key) || bytes[0] != content(key) {
            return Err(Error::corrupt("the part is damaged"));
        }
        Ok(bytes[0].clone())
    }
    fn shared_bytes(&self) -> SharedBytes {
        let encoded = LEN as u64;
        SharedBytes { encoded, one: encoded + self.promised, all: 10 * self.promised }
    }
    fn object(&self, record: u64) -> String {
        name(record / 10)
    }
    fn largest_read(&self) -> u64 {
        0
    }
    fn needs_fetch(&self) -> bool {
        self.ahead
    }
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of("sharing").finish()
    }
}

#[test]
fn a_part_of_more_bytes_than_were_promised_is_an_error_and_not_cut() {
    let (sharing, _tracker) = Sharing::new();
    let dataset = Sharing { promised: LEN as u64 - 1, ..sharing };
    let mut batches = builder(Arc::new(dataset)).batch_size(10).build_blocking().unwrap().epoch(0).blocking();
    let error = batches.next().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal, "{error}");
    let says = format!("the format sharing made {LEN} bytes of a shared part that has {} by its plan", LEN - 1);
    assert!(error.to_string().contains(&says), "{error}");
}

/// The part that the first row of each batch was cut out of.
fn parts_of(batches: &[Batch]) -> Vec<u64> {
    batches.iter().map(|batch| record_of(&batch["bytes"].to_host().unwrap().bytes().unwrap()[..LEN])).collect()
}

/// Batches of ten records, each of one part.
fn loader(dataset: Arc<dyn Dataset>) -> Loader {
    builder(dataset).batch_size(10).build_blocking().unwrap()
}

#[test]
fn parts_are_asked_for_ahead_in_plan_order_and_once() {
    let (dataset, tracker) = Sharing::dataset();
    tracker.close_gate();
    let stream = loader(dataset).epoch(0);
    // Nobody has asked for a batch, and no part has come.
    assert!(tracker.wait_for_requests(10, PATIENCE), "only {} parts were asked for", tracker.requests());
    tracker.open_gate();
    assert_eq!(parts_of(&drain(stream).unwrap()), (0..10).collect::<Vec<u64>>());
    // The first requests to a store are spread over some milliseconds, and may overtake one another.
    let mut names = tracker.names();
    names.sort_unstable();
    assert_eq!(names, (0..10).map(name).collect::<Vec<String>>());

    let (dataset, tracker) = Sharing::dataset();
    let stream = builder(dataset).batch_size(10).io_concurrency(1).build_blocking().unwrap().epoch(0);
    assert_eq!(parts_of(&drain(stream).unwrap()), (0..10).collect::<Vec<u64>>());
    assert_eq!(tracker.names(), (0..10).map(name).collect::<Vec<String>>());
}

#[test]
fn streams_of_a_loader_ask_for_a_part_once() {
    let (dataset, tracker) = Sharing::dataset();
    tracker.close_gate();
    let loader = loader(dataset);
    let first = loader.epoch(0);
    assert!(tracker.wait_for_requests(10, PATIENCE));
    let second = loader.epoch(0);
    tracker.open_gate();
    for stream in [second, first] {
        assert_eq!(parts_of(&drain(stream).unwrap()), (0..10).collect::<Vec<u64>>());
    }
    assert_eq!(tracker.requests(), 10);
}

#[test]
fn a_stream_whose_trainer_stands_still_holds_no_part_that_another_waits_for() {
    let (sharing, _tracker) = Sharing::new();
    // The reserve holds one part.
    let dataset: Arc<dyn Dataset> = Arc::new(Sharing { promised: 400 << 20, ..sharing });
    let loader = builder(dataset).batch_size(10).memory_budget(500 << 20).build_blocking().unwrap();
    let still = loader.epoch(0);
    for _ in 0..3 {
        assert_eq!(parts_of(&drain(loader.epoch(0)).unwrap()), (0..10).collect::<Vec<u64>>());
    }
    assert_eq!(parts_of(&drain(still).unwrap()), (0..10).collect::<Vec<u64>>());
}

#[test]
fn a_part_that_does_not_come_or_is_damaged_costs_its_own_records() {
    for fault in [Some(Fault::NotFound), None] {
        let (mut sharing, tracker) = Sharing::new();
        match fault.clone() {
            Some(fault) => tracker.fail(&name(3), fault),
            None => sharing.damaged = Some(3),
        }
        let builder = builder(Arc::new(sharing)).batch_size(20).on_bad_sample(OnBadSample::Skip { at_most: 10 });
        let batches = drain(builder.build_blocking().unwrap().epoch(0)).unwrap();
        let bad = batches.iter().flat_map(|batch| batch.bad_samples().iter().map(|bad| bad.record));
        assert_eq!(bad.collect::<Vec<u64>>(), (30..40).collect::<Vec<u64>>(), "{fault:?}");
        assert_eq!(parts_of(&batches), [0, 2, 4, 6, 8], "{fault:?}");
        // What came is not read again for each record of a part that is damaged.
        if fault.is_none() {
            assert_eq!(tracker.requests(), 10);
        }
    }
}

#[test]
fn a_part_that_is_not_what_was_listed_ends_the_run_and_is_named() {
    let faults: [fn(&Tracker); 2] =
        [|tracker| tracker.fail(&name(3), Fault::Short(LEN / 2)), |tracker| tracker.replace(&name(3), content(7))];
    for fault in faults {
        let (dataset, tracker) = Sharing::dataset();
        fault(&tracker);
        let error = drain(loader(dataset).epoch(0)).unwrap_err().to_string();
        assert!(error.contains(&name(3)), "{error}");
    }
}

#[test]
fn a_part_that_fits_no_memory_is_refused_with_its_size() {
    let (sharing, _tracker) = Sharing::new();
    let dataset: Arc<dyn Dataset> = Arc::new(Sharing { promised: 400 << 20, ..sharing });
    let error = builder(dataset).batch_size(10).memory_budget(300 << 20).build_blocking().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    let text = error.to_string();
    assert!(text.contains("300 MiB") && text.contains("401 MiB for a patient's volumes"), "{text}");
}

#[test]
fn the_cache_keeps_parts_too_and_nothing_that_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let (dataset, tracker) = Sharing::dataset();
    // What came the first time is not what the store has, and nothing tells.
    tracker.fail_times(&name(3), 1, Fault::Begins(b"torn"));
    let drain_all = || {
        let cache = CacheSpec::dir(folder.path(), 1 << 20);
        let loader = builder(Arc::clone(&dataset)).batch_size(10).cache(cache).build_blocking().unwrap();
        assert_eq!(parts_of(&drain(loader.epoch(0)).unwrap()), (0..10).collect::<Vec<u64>>());
    };
    drain_all();
    assert_eq!(tracker.requests(), 11, "one part is read again");
    // Another loader has no part in memory.
    drain_all();
    assert!(tracker.requests() <= 12, "what the cache has was asked of the store again");
}

/// One thread reads a part of a store that does not answer, others wait for that part, or for memory of another: no
/// clock wakes any of them, so only the drop can.
#[test]
fn threads_that_wait_for_shared_parts_wake_when_the_stream_is_dropped() {
    for (dataset, tracker) in [Sharing::dataset(), Sharing::late()] {
        tracker.close_gate();
        let alive = Arc::downgrade(&dataset);
        let loader = builder(dataset).workers(4).batch_size(5).prefetch(6).build_blocking().unwrap();
        let batches = loader.epoch(0);
        assert!(tracker.wait_for_requests(1, PATIENCE));
        drop(batches);
        assert!(tracker.wait_until_idle(PATIENCE), "{} requests hang", tracker.in_flight());
        drop(loader);
        until("a decode thread or a task still waits", || alive.strong_count() == 0);
    }
}

#[test]
fn a_part_that_a_dropped_stream_was_reading_is_read_for_the_next() {
    for (dataset, tracker) in [Sharing::dataset(), Sharing::late()] {
        tracker.close_gate();
        let loader = builder(dataset).workers(2).batch_size(5).prefetch(2).build_blocking().unwrap();
        let first = loader.epoch(0);
        assert!(tracker.wait_for_requests(1, PATIENCE));
        let second = loader.epoch(0);
        drop(first);
        tracker.open_gate();
        let batches = drain(second).unwrap();
        assert_eq!(parts_of(&batches), (0..20).map(|batch| batch / 2).collect::<Vec<u64>>());
    }
}
