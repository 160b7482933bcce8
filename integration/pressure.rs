//! Memory is bounded, and the bound never stops the work.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{FutureExt, StreamExt};
use infeed::{ErrorKind, Loader, loader::IoRuntime};

use crate::support::{
    PATIENCE, builder,
    clock::Clockwork,
    drain,
    records::{LEN, Obedient, Records, Told, name, record_of},
    store::Fault,
    until,
};

#[test]
fn local_reads_run_prefetch_batches_ahead_of_polling_and_no_further() {
    let (dataset, tracker) = Records::inline(400);
    let loader = builder(dataset).batch_size(10).prefetch(3).workers(2).build_blocking().unwrap();
    let mut batches = loader.epoch(0).blocking();
    assert!(tracker.wait_for_requests(30, PATIENCE), "{} reads", tracker.requests());
    // What else there was to do has been done when another stream has come to its end behind it.
    let another = |epoch| assert_eq!(drain(loader.epoch(epoch)).unwrap().len(), 40);
    another(1);
    assert_eq!(tracker.requests(), 30 + 400, "prefetch is 3 batches of 10");
    let first = batches.next().unwrap().unwrap();
    assert!(tracker.wait_for_requests(40 + 400, PATIENCE), "a polled batch makes room for one more");
    another(2);
    assert_eq!(tracker.requests(), 40 + 800);
    assert_eq!(first.len(), 10);
}

#[test]
fn prefetch_runs_over_the_epoch_edge() {
    let (dataset, tracker) = Records::inline(20);
    let loader = builder(dataset).batch_size(10).prefetch(4).build_blocking().unwrap();
    let _batches = loader.epochs(0..3);
    assert!(tracker.wait_for_requests(40, PATIENCE), "two epochs of 20 fit in 4 batches: {}", tracker.requests());
}

#[test]
fn held_batches_never_stall_the_stream() {
    for (dataset, _tracker) in [Records::inline(300), Records::remote(300)] {
        let loader = builder(dataset).batch_size(10).prefetch(2).build_blocking().unwrap();
        let held = drain(loader.epoch(0)).unwrap();
        assert_eq!(held.len(), 30);
        // Their memory was not used again behind our back.
        for (n, batch) in held.iter().enumerate() {
            for (row, bytes) in batch["bytes"].bytes().unwrap().chunks(LEN).enumerate() {
                assert_eq!(record_of(bytes), (n * 10 + row) as u64);
            }
        }
    }
}

#[test]
fn a_stream_that_nobody_polls_does_not_stall_another() {
    let (dataset, tracker) = Records::remote(200);
    let loader = builder(dataset).batch_size(10).prefetch(2).workers(1).build_blocking().unwrap();
    let _idle = loader.epoch(0);
    assert!(tracker.wait_for_requests(200, PATIENCE), "it is read for: {}", tracker.requests());
    assert_eq!(drain(loader.epoch(1)).unwrap().len(), 20);
}

/// Batches come from a runtime of the user's as from one of infeed's; where it is shut down, they end with an error.
#[test]
fn a_runtime_of_the_users_gives_the_same_batches_and_ends_its_streams() {
    let (dataset, _tracker) = Records::remote(200);
    let build = |io: Option<&IoRuntime>| {
        let builder = builder(Arc::clone(&dataset)).batch_size(10).prefetch(2).shuffle(3);
        let builder = match io {
            Some(io) => builder.io_runtime(io),
            None => builder,
        };
        builder.build_blocking().unwrap()
    };
    let records = |loader: &Loader| -> Vec<Vec<u64>> {
        drain(loader.epoch(0)).unwrap().iter().map(|batch| batch.records().to_vec()).collect()
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let loader = build(Some(&IoRuntime::from_handle(runtime.handle().clone())));
    assert_eq!(records(&loader), records(&build(None)));
    let mut batches = loader.epoch(1).blocking();
    batches.next().unwrap().unwrap();
    runtime.shutdown_background();
    for mut batches in [batches, loader.epoch(2).blocking()] {
        let error = batches.find_map(Result::err).expect("the stream was not at its end");
        assert_eq!(error.kind(), ErrorKind::Internal, "{error:#}");
        assert!(batches.next().is_none());
    }
}

#[test]
fn encoded_bytes_ahead_stay_within_the_window() {
    // A batch of four 64-byte records takes one unit of 64 KiB of the window. One batch may own rows and gives its unit
    // back when it is decoded; all others wait with their bytes, far fewer than the seats would hold.
    let (dataset, tracker) = Records::remote(2000);
    let clock = Clockwork::new();
    let builder = builder(dataset).batch_size(4).prefetch(1).workers(1).io_runtime(&clock.io);
    let loader = builder.memory_budget(1 << 20).build_blocking().unwrap();
    let _batches = loader.epoch(0);
    assert!(tracker.wait_for_requests(5, PATIENCE), "{} reads", tracker.requests());
    clock.pass(Duration::from_secs(1));
    let most = 4 * (1 + loader.config().memory_budget.unwrap() / (64 << 10));
    let (requests, seats) = (tracker.requests() as u64, 4 * 65);
    assert!(requests <= most && most < seats, "{requests} reads, at most {most}");
}

#[test]
fn answers_in_any_order_and_a_late_head_do_not_lock_up() {
    let (dataset, tracker) = Records::remote(240);
    // Every seventh answer is late, the first of all most of all.
    for record in (0..240).step_by(7) {
        tracker.fail(&name(record), Fault::Delay(Duration::from_millis(5 + record % 20)));
    }
    tracker.fail(&name(0), Fault::Delay(Duration::from_millis(120)));
    let clock = Clockwork::new();
    for (prefetch, requests) in [(1, 1), (1, 16), (2, 64), (8, 5)] {
        let builder = builder(Arc::clone(&dataset)).batch_size(12).prefetch(prefetch).io_runtime(&clock.io);
        let loader = builder.io_concurrency(requests).memory_budget(2 << 20).workers(2).build_blocking().unwrap();
        let batches = drain(loader.epoch(0)).unwrap();
        let records: Vec<u64> = batches.iter().flat_map(|batch| batch.records().to_vec()).collect();
        assert_eq!(records, (0..240).collect::<Vec<_>>());
        assert!(tracker.most_in_flight() <= 64, "{}", tracker.most_in_flight());
    }
}

#[test]
fn requests_stay_within_their_limit() {
    let (dataset, tracker) = Records::remote(300);
    let loader = builder(dataset).batch_size(10).io_concurrency(3).build_blocking().unwrap();
    drain(loader.epoch(0)).unwrap();
    assert!(tracker.most_in_flight() <= 3, "{} requests at a time", tracker.most_in_flight());
}

#[test]
fn a_budget_below_the_least_is_refused_and_the_least_works() {
    let dataset = Records::resident(100);
    let build =
        |bytes: u64| builder(Arc::clone(&dataset)).batch_size(64).workers(1).memory_budget(bytes).build_blocking();
    let error = build(1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("memory_budget") && error.to_string().contains("least"), "{error}");
    // Found by halving: the first budget that builds also runs.
    let (mut low, mut high) = (1u64, 1 << 30);
    while low + 1 < high {
        let middle = low.midpoint(high);
        if build(middle).is_ok() { high = middle } else { low = middle }
    }
    assert_eq!(drain(build(high).unwrap().epoch(0)).unwrap().len(), 1);
}

#[test]
fn a_trainer_that_blocks_its_only_thread_finds_the_next_batch_ready() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let (dataset, _) = Records::remote(400);
        let decoded = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&decoded);
        let decoder = Arc::new(Obedient::new(move |_, _| {
            counted.fetch_add(1, Ordering::SeqCst);
            Told::Done
        }));
        let builder = builder(dataset).batch_size(10).prefetch(4).decoder(decoder);
        let mut batches = builder.build().await.unwrap().epoch(0);
        batches.next().await.unwrap().unwrap();
        for taken in 1..20 {
            // A step that never yields to the runtime: four batches are made meanwhile, and nobody asks for them.
            let ahead = || decoded.load(Ordering::SeqCst) >= 10 * (taken + 4);
            until("they are not made", ahead);
            let mut next = None;
            until("it is never whole", || {
                next = batches.next().now_or_never();
                next.is_some()
            });
            next.unwrap().unwrap().unwrap();
        }
    });
}
