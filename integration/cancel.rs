//! Dropping is enough: no read begins afterwards, nothing is lost by a dropped future, threads end.

use std::{
    pin::pin,
    sync::{Arc, atomic::Ordering, mpsc},
    thread,
    time::Duration,
};

use futures::{FutureExt, StreamExt, executor::block_on};
use infeed::loader::IoRuntime;

use crate::support::{
    PATIENCE, builder, drain,
    records::{Obedient, Records, Told},
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
            thread::sleep(Duration::from_micros(round * 50));
            drop(batches);
            let begun = tracker.requests();
            // Whoever might read has gone.
            drop(loader);
            until("a thread or a task still reads", || Arc::strong_count(&dataset) == 1);
            assert_eq!(tracker.requests(), begun, "round {round}");
        }
    }
}

/// As a network's file system does that lost its server: the thread that opens the file never comes back.
#[test]
fn an_opening_that_hangs_holds_up_neither_the_drop_nor_others() {
    let (dataset, tracker) = Records::inline(100);
    tracker.close_gate();
    let loader = builder(Arc::clone(&dataset)).batch_size(10).workers(2).build_blocking().unwrap();
    let batches = loader.epoch(0);
    assert!(tracker.wait_for_requests(2, PATIENCE));
    let (dropped, drops) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            drop((batches, loader));
            dropped.send(()).unwrap();
        });
        let ended = drops.recv_timeout(PATIENCE);
        // What has an end of its own meanwhile.
        let others = drain(builder(Records::resident(20)).batch_size(10).build_blocking().unwrap().epoch(0));
        let begun = tracker.requests();
        tracker.open_gate();
        assert!(ended.is_ok(), "the drop waits for a file system that hangs");
        assert_eq!((others.unwrap().len(), begun), (2, 2));
    });
    until("a thread still reads", || Arc::strong_count(&dataset) == 1);
    assert_eq!(tracker.requests(), 2, "a read began after the drop");
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

/// As a function that is not async does, deep in a program that is.
#[test]
fn the_iterator_works_within_whatever_executor_runs_its_thread() {
    let dataset = Records::resident(2000);
    let loader = builder(dataset).batch_size(4).build_blocking().unwrap();
    let train = move || loader.epoch(0).blocking().map(Result::unwrap).count();
    let (within_tokio, within_futures) = (train.clone(), train);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    type Run = Box<dyn FnOnce() -> usize + Send>;
    let runs: [(&str, Run); 2] = [
        // Its tasks may do so many steps (128) without giving way; a batch is two.
        ("tokio", Box::new(move || runtime.block_on(async { within_tokio() }))),
        ("futures", Box::new(move || futures::executor::block_on(async { within_futures() }))),
    ];
    for (executor, run) in runs {
        let (done, count) = mpsc::channel();
        thread::spawn(move || done.send(run()));
        assert_eq!(count.recv_timeout(PATIENCE), Ok(500), "within {executor}");
    }
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

#[test]
fn when_a_shutdown_is_over_no_thread_and_no_task_is_left() {
    for lent in [false, true] {
        for (dataset, tracker) in [Records::inline(500), Records::remote(500)] {
            let reads_itself = !dataset.needs_fetch();
            let io = IoRuntime::start().unwrap();
            let mut builder = builder(Arc::clone(&dataset)).batch_size(16).workers(2);
            if lent {
                builder = builder.io_runtime(&io);
            }
            let loader = builder.build_blocking().unwrap();
            // A batch may live longer.
            let batch = loader.epoch(0).blocking().next().unwrap().unwrap();
            until("reads go on", || tracker.in_flight() == 0);
            tracker.close_gate();
            let stream = loader.epoch(1);
            until("nothing is read", || tracker.in_flight() > 0);
            let mut shutdown = pin!(loader.shutdown());
            assert!(shutdown.as_mut().now_or_never().is_none(), "a stream lives");
            drop(stream);
            if reads_itself {
                assert!(shutdown.as_mut().now_or_never().is_none(), "a thread reads");
            }
            tracker.open_gate();
            block_on(shutdown);
            assert_eq!(Arc::strong_count(&dataset), 1);
            assert_eq!(batch.len(), 16);
        }
    }
}
