use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use futures::{StreamExt, stream::FuturesUnordered};
use infeed_core::random::{hash64, jitter};

use super::{
    limit::{self, Measured, spare},
    permits::{RequestPermit, Requests},
};

fn paused<T>(work: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().start_paused(true).build().unwrap().block_on(work)
}

#[test]
fn the_window_is_never_exceeded_while_it_grows_and_shrinks() {
    let requests = Requests::new();
    let in_flight = AtomicUsize::new(0);
    let one = |n: u64| {
        let (requests, in_flight) = (&requests, &in_flight);
        async move {
            let turn = requests.turn().await;
            let now_in_flight = in_flight.fetch_add(1, SeqCst) + 1;
            let window = requests.window();
            // A window that has just shrunk waits for the requests that were in flight before.
            let debt = requests.state().debt;
            assert!(now_in_flight <= window + debt, "{now_in_flight} in flight of {window} and {debt}");
            let latency = Duration::from_millis(20 + hash64(n) % 20);
            tokio::time::sleep(latency).await;
            match n % 500 {
                // In a row, as a store refuses; one in five over all.
                400..500 => requests.throttled(tokio::time::Instant::now().into_std()),
                _ => {
                    requests.answered(&Measured { bytes: 1000, first_byte: latency, whole: latency, light: turn.light })
                }
            }
            in_flight.fetch_sub(1, SeqCst);
            drop(turn);
        }
    };
    paused(async {
        let mut reads: FuturesUnordered<_> = (0..5000).map(one).collect();
        // Some are dropped while waiting or in flight.
        for _ in 0..4000 {
            reads.next().await;
        }
        drop(reads);
    });
    let state = requests.state();
    assert_eq!((state.limit.in_flight(), state.copies, state.debt), (0, 0, 0));
    assert_eq!(requests.regular.available_permits(), state.size, "every permit came back");
    assert_eq!(state.size, state.limit.window() - spare(state.limit.window()));
}

#[test]
fn stragglers_leave_room_for_their_copies() {
    let requests = Requests::new();
    (0..100).for_each(|_| requests.state().hedging.began());
    paused(async {
        // As many as fit: the window less its spare part.
        let turns: Vec<RequestPermit<'_>> =
            futures::stream::iter(0..limit::START - 1).then(|_| requests.turn()).collect().await;
        assert!(tokio::time::timeout(Duration::from_secs(1), requests.turn()).await.is_err());
        let copy = requests.turn_of_copy().expect("the spare place is free");
        assert!(requests.turn_of_copy().is_none(), "there is one");
        drop(copy);
        assert!(requests.turn_of_copy().is_some());
        drop(turns);
    });
}

#[test]
fn one_store_has_one_limit_as_long_as_somebody_reads_from_it() {
    let (a, b) = (Requests::shared("endpoint bucket-a"), Requests::shared("endpoint bucket-a"));
    assert!(Arc::ptr_eq(&a, &b));
    assert!(!Arc::ptr_eq(&a, &Requests::shared("endpoint bucket-b")));
    (0..30).for_each(|_| a.state().limit.throttled(Instant::now(), Instant::now(), 0.0));
    assert!(a.window() < limit::START);
    drop((a, b));
    assert_eq!(Requests::shared("endpoint bucket-a").window(), limit::START, "a new run starts afresh");
}

#[test]
fn jitter_is_a_share() {
    let draws: Vec<f64> = (0..1000).map(jitter).collect();
    assert!(draws.iter().all(|draw| (0.0..1.0).contains(draw)));
    assert!((draws.iter().sum::<f64>() / 1000.0 - 0.5).abs() < 0.05);
}
