//! Dropping is enough: no read begins afterwards, nothing is lost by a dropped future, threads end.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use futures::{FutureExt, StreamExt};

use crate::support::{
    PATIENCE, builder, drain,
    records::{Obedient, Records, Told},
};

#[test]
fn no_read_begins_after_a_stream_was_dropped() {
    for round in 0..30 {
        for (dataset, tracker) in [Records::inline(5000), Records::remote(5000)] {
            let loader = builder(dataset).batch_size(16).prefetch(8).workers(2).build_blocking().unwrap();
            let mut batches = loader.epoch(0).blocking();
            for _ in 0..round % 4 {
                batches.next().unwrap().unwrap();
            }
            std::thread::sleep(Duration::from_micros(round * 50));
            drop(batches);
            let begun = tracker.requests();
            std::thread::sleep(Duration::from_millis(5));
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
        let (dataset, _) = Records::remote(500);
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
                () = tokio::task::yield_now() => given_up += 1,
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
    let end = Instant::now() + PATIENCE;
    while alive.load(Ordering::SeqCst) > 0 {
        assert!(Instant::now() < end, "decode threads still run");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn an_ended_stream_stays_ended() {
    let loader = builder(Records::resident(20)).batch_size(10).build_blocking().unwrap();
    let mut batches = loader.epoch(0).blocking();
    assert_eq!(batches.by_ref().count(), 2);
    assert!(batches.next().is_none() && batches.next().is_none());
}
