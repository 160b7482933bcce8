//! Dropping is enough: no read begins afterwards, nothing is lost by a dropped future, threads end.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use futures::{FutureExt, StreamExt};
use infeed::{
    DType, Dataset, ErrorKind, Result,
    dataset::{Field, FieldKind, Fingerprint, ReadPlan, Sample, SampleRng, Schema, SharedBytes, SharedRead, Value},
    source::{Extent, Source},
};

use crate::support::{
    PATIENCE, builder, drain,
    records::{LEN, Obedient, Records, Told, content, name, record_of},
    store::Tracker,
    until,
};

#[test]
fn no_read_begins_after_a_stream_was_dropped() {
    for (dataset, tracker) in [Records::inline(5000), Records::remote(5000)] {
        for round in 0..30 {
            let loader = builder(Arc::clone(&dataset)).batch_size(16).prefetch(8).workers(2).build_blocking().unwrap();
            let mut batches = loader.epoch(0).blocking();
            for _ in 0..round % 4 {
                batches.next().unwrap().unwrap();
            }
            // At another moment each time.
            std::thread::sleep(Duration::from_micros(round * 50));
            drop(batches);
            let begun = tracker.requests();
            // Whoever might read has gone.
            drop(loader);
            until("a thread or a task still reads", || Arc::strong_count(&dataset) == 1);
            assert_eq!(tracker.requests(), begun, "round {round}");
        }
    }
}

#[test]
fn requests_in_flight_end_with_the_stream() {
    let (dataset, tracker) = Records::remote(100);
    tracker.close_gate();
    let loader = builder(dataset).batch_size(10).build_blocking().unwrap();
    let batches = loader.epoch(0);
    assert!(tracker.wait_for_requests(1, PATIENCE));
    drop(batches);
    assert!(tracker.wait_until_idle(PATIENCE), "{} requests hang", tracker.in_flight());
}

/// What a forked child needs, in which the threads are not: here they are, and go on.
#[test]
fn what_is_abandoned_is_neither_ended_nor_freed() {
    let (dataset, tracker) = Records::remote(100);
    tracker.close_gate();
    let loader = builder(Arc::clone(&dataset)).batch_size(10).io_concurrency(4).build_blocking().unwrap();
    let batches = loader.epoch(0);
    assert!(tracker.wait_for_requests(1, PATIENCE));
    // Nobody answers: whoever waited for the work's end would wait for good.
    batches.abandon();
    loader.abandon();
    let before = tracker.requests();
    assert!(tracker.in_flight() > 0);
    tracker.open_gate();
    assert!(tracker.wait_for_requests(before + 1, PATIENCE), "the work went on");
    assert!(Arc::strong_count(&dataset) > 1, "what was forgotten is still there");
}

#[test]
fn a_dropped_stream_leaves_the_loader_usable() {
    let (dataset, _) = Records::remote(100);
    let loader = builder(dataset).batch_size(10).workers(1).prefetch(1).build_blocking().unwrap();
    for _ in 0..20 {
        let mut batches = loader.epoch(0).blocking();
        batches.next().unwrap().unwrap();
    }
    assert_eq!(drain(loader.epoch(0)).unwrap().len(), 10);
}

#[test]
fn a_dropped_next_loses_no_batch() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let (dataset, tracker) = Records::remote(500);
        // The first is not there at once.
        tracker.close_gate();
        let loader = builder(dataset).batch_size(10).prefetch(1).build().await.unwrap();
        let mut batches = loader.epoch(0);
        let (mut records, mut given_up) = (Vec::new(), 0);
        loop {
            // The other branch wins whenever the batch is not there at once.
            tokio::select! {
                biased;
                batch = batches.next() => match batch {
                    Some(batch) => records.extend_from_slice(batch.unwrap().records()),
                    None => break,
                },
                () = tokio::task::yield_now() => {
                    given_up += 1;
                    if given_up == 1 {
                        tracker.open_gate();
                    }
                }
            }
        }
        assert_eq!(records, (0..500).collect::<Vec<u64>>());
        assert!(given_up > 0, "the test never dropped a pending next()");
    });
}

#[test]
fn streams_work_in_spawned_tasks_and_without_any_runtime() {
    let (dataset, _) = Records::remote(50);
    let loader = builder(Arc::clone(&dataset)).batch_size(10).build_blocking().unwrap();
    assert_eq!(loader.epoch(0).blocking().count(), 5);
    assert_eq!(futures::executor::block_on(loader.epoch(0).count()), 5);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let mut batches = loader.epoch(0);
    let task = runtime.spawn(async move {
        let mut count = 0;
        while let Some(batch) = batches.next().await {
            batch.unwrap();
            count += 1;
        }
        count
    });
    assert_eq!(runtime.block_on(task).unwrap(), 5);
}

#[test]
fn decode_threads_end_with_the_last_handle() {
    let decoder = Arc::new(Obedient::new(|_, _| Told::Done));
    let alive = Arc::clone(&decoder.alive);
    let loader = builder(Records::resident(100)).decoder(decoder).batch_size(10).build_blocking().unwrap();
    assert_eq!(alive.load(Ordering::SeqCst), 2);
    let mut batches = loader.epoch(0);
    drop(loader);
    assert!(batches.next().now_or_never().is_none_or(|batch| batch.unwrap().is_ok()), "a stream outlives its loader");
    drop(batches);
    until("decode threads still run", || alive.load(Ordering::SeqCst) == 0);
}

#[test]
fn an_ended_stream_stays_ended() {
    let loader = builder(Records::resident(20)).batch_size(10).build_blocking().unwrap();
    let mut batches = loader.epoch(0).blocking();
    assert_eq!(batches.by_ref().count(), 2);
    assert!(batches.next().is_none() && batches.next().is_none());
}

/// Records of which ten share a part, read over a network by the decode threads' tasks.
#[derive(Debug)]
struct Sharing {
    source: Source,
    schema: Schema,
    /// What a plan says that a part has.
    promised: u64,
}

impl Sharing {
    fn dataset(parts: u64) -> (Arc<dyn Dataset>, Arc<Tracker>) {
        Self::promising(parts, LEN as u64)
    }

    fn promising(parts: u64, promised: u64) -> (Arc<dyn Dataset>, Arc<Tracker>) {
        let tracker = Tracker::holding((0..parts).map(|part| (name(part), content(part))));
        let bytes = FieldKind::Array { dtype: DType::U8, shape: vec![LEN] };
        let schema = Schema::new(vec![Field::new("bytes", bytes)]);
        (Arc::new(Self { source: tracker.source(), schema, promised }), tracker)
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
        let mut plan = ReadPlan::default();
        plan.shared.push(SharedRead::new(part, [Extent::whole(&self.source, name(part), LEN as u64)], self.promised));
        Ok(plan)
    }
    fn parse(&self, _record: u64, _plan: &ReadPlan, bytes: &[Bytes]) -> Result<Sample> {
        Ok(Sample::new([Value::Array(bytes[0].clone())]))
    }
    fn decode_shared(&self, _key: u64, bytes: &[Bytes]) -> Result<Bytes> {
        Ok(bytes[0].clone())
    }
    fn shared_bytes(&self) -> SharedBytes {
        SharedBytes { one: 2 * LEN as u64, all: 10 * LEN as u64 }
    }
    fn object(&self, record: u64) -> String {
        name(record / 10)
    }
    fn largest_read(&self) -> u64 {
        0
    }
    fn needs_fetch(&self) -> bool {
        false
    }
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of("sharing").finish()
    }
}

#[test]
fn a_part_of_more_bytes_than_were_promised_is_an_error_and_not_cut() {
    let (dataset, _tracker) = Sharing::promising(10, LEN as u64 - 1);
    let mut batches = builder(dataset).batch_size(10).build_blocking().unwrap().epoch(0).blocking();
    let error = batches.next().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal, "{error}");
    let says = format!("the format sharing made {LEN} bytes of a shared part that has {} by its plan", LEN - 1);
    assert!(error.to_string().contains(&says), "{error}");
}

/// One thread reads a part of a store that does not answer, others wait for that part, or for memory of another: no
/// clock wakes any of them, so only the drop can.
#[test]
fn threads_that_wait_for_shared_parts_wake_when_the_stream_is_dropped() {
    let (dataset, tracker) = Sharing::dataset(10);
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

#[test]
fn a_part_that_a_dropped_stream_was_reading_is_read_for_the_next() {
    let (dataset, tracker) = Sharing::dataset(10);
    tracker.close_gate();
    let loader = builder(dataset).workers(2).batch_size(5).prefetch(2).build_blocking().unwrap();
    let first = loader.epoch(0);
    assert!(tracker.wait_for_requests(1, PATIENCE));
    let second = loader.epoch(0);
    drop(first);
    tracker.open_gate();
    let batches = drain(second).unwrap();
    let parts: Vec<u64> =
        batches.iter().map(|batch| record_of(&batch["bytes"].to_host().unwrap().bytes().unwrap()[..LEN])).collect();
    assert_eq!(parts, (0..20).map(|batch| batch / 2).collect::<Vec<u64>>());
}
