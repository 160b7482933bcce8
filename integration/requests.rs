//! Reading over a network: whatever it does to a request, the bytes are right or there is one clear error; slow answers
//! are hidden, refusals are obeyed, and nothing begins after a drop.
//!
//! Most tests run on tokio's paused clock: hours pass at once, and no figure depends on the machine.

use std::{future::Future, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, stream};
use infeed::{
    DType, ErrorKind, Result,
    dataset::{Dataset, Field, FieldKind, Fingerprint, ReadPlan, Sample, SampleRng, Schema, Value},
    loader::IoRuntime,
    source::{Extent, Object, Source},
};

use crate::support::{
    PATIENCE, builder,
    clock::Clockwork,
    drain, noise, plain,
    records::{LEN, Records, name},
    store::{Fault, Tracker},
    until,
};

/// Runs on a clock that jumps to the next timer when nothing else is to be done.
fn paused<T>(work: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().start_paused(true).build().unwrap().block_on(work)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn content(seed: usize, len: usize) -> Vec<u8> {
    noise(seed as u64, len)
}

/// `count` objects of `len` bytes.
fn store(count: usize, len: usize) -> (Arc<Tracker>, Source) {
    let tracker = Tracker::holding((0..count).map(|n| (name(n as u64), content(n, len))));
    let source = tracker.source();
    (tracker, source)
}

/// Reads all objects, many at a time; gives how long each took, on tokio's clock. Checks every byte.
async fn read_all(source: &Source, count: usize, len: usize) -> Vec<Duration> {
    read_some_ahead(source, count, len, 400).await
}

/// The same with so many begun before the first is there.
async fn read_some_ahead(source: &Source, count: usize, len: usize, ahead: usize) -> Vec<Duration> {
    let one = |n: usize| async move {
        let began = tokio::time::Instant::now();
        let bytes = Extent::whole(source, name(n as u64), len as u64).read().await.unwrap();
        assert!(bytes == content(n, len), "object {n}");
        began.elapsed()
    };
    stream::iter(0..count).map(one).buffered(ahead).collect().await
}

#[test]
fn faults_that_pass_leave_no_trace_in_the_bytes() {
    let faults = [
        Fault::Io("connection refused"),
        Fault::Answer(500),
        Fault::Io("Server returned non-2xx status code: 500 Internal Server Error: "),
        Fault::SlowDown,
        Fault::Short(0),
        Fault::Short(999),
        Fault::Reset(500),
        Fault::Stall(500),
        Fault::Silence,
        Fault::Delay(Duration::from_secs(3600)),
    ];
    for fault in faults {
        for times in [1, 3] {
            let (tracker, source) = store(1, 1000);
            tracker.in_frames(300);
            tracker.fail_times(&name(0), times, fault.clone());
            let bytes = paused(Extent::whole(&source, name(0), 1000).read()).unwrap();
            assert!(bytes == content(0, 1000), "{fault:?}");
            assert_eq!(tracker.requests(), times + 1, "{fault:?}");
        }
    }
}

#[test]
fn an_object_that_stays_wrong_is_one_error_after_a_few_requests() {
    let faults = [
        // The store answers, and not with what was asked for: it will say the same again.
        (Fault::Short(999), 4, "the answer holds 999 of the 1000 bytes asked for"),
        // Words alone say nothing, whoever writes them.
        (Fault::Io("connection refused"), 8, "cannot be read"),
        (Fault::Io("Server returned non-2xx status code: 400 Bad Request: <Code>x</Code>"), 8, "cannot be read"),
        (Fault::Io("Server returned non-2xx status code: 503 Busy: <Code>SlowDown</Code>"), 8, "cannot be read"),
    ];
    for (fault, requests, says) in faults {
        let (tracker, source) = store(1, 1000);
        tracker.fail(&name(0), fault.clone());
        let error = paused(Extent::whole(&source, name(0), 1000).read()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        let text = format!("{error:#}");
        let whole = format!(
            "fetch: gave up after {requests} requests, the last: {says} (tracked://store/000000.bin @ 0..1000);"
        );
        assert!(text.starts_with(&whole), "{text}");
        if let Fault::Io(cause) = fault {
            assert!(text.contains(cause), "{text}");
        }
        assert_eq!(tracker.requests(), requests, "{fault:?}");
    }
}

/// Faults by which a whole store may be out, and how an error of them reads.
fn outages() -> [(Fault, &'static str); 5] {
    [
        (Fault::Answer(500), "gave nothing for 60 s, the last: cannot be read"),
        (Fault::SlowDown, "refused all requests for 60 s"),
        (Fault::Reset(500), "gave nothing for 60 s, the last: reading broke off"),
        (Fault::Stall(500), "gave nothing for 60 s, the last: no whole answer within "),
        (Fault::Silence, "gave nothing for 60 s, the last: no whole answer within "),
    ]
}

#[test]
fn an_outage_shorter_than_the_patience_is_ridden_out() {
    for (fault, _) in outages() {
        for seconds in [2, 20, 45] {
            let (tracker, source) = store(600, 1000);
            tracker.latency(|_| ms(20));
            let met = fault.clone();
            // In the middle: hundreds wait, some are in flight.
            let outage = ms(60)..ms(60) + Duration::from_secs(seconds);
            tracker.weather(move |_, at| outage.contains(&at).then(|| met.clone()));
            let took = paused(async {
                let began = tokio::time::Instant::now();
                read_all(&source, 600, 1000).await;
                began.elapsed()
            });
            // Half a deadline of those that were silent, and a back-off.
            let most = Duration::from_secs(seconds) + Duration::from_secs(13);
            assert!(took < most, "{fault:?}, {seconds} s: {took:?}");
        }
    }
}

#[test]
fn a_store_that_gives_nothing_is_an_error_to_all_when_the_patience_ends() {
    for (fault, says) in outages() {
        for count in [1, 500] {
            let (tracker, source) = store(count, 1000);
            let met = fault.clone();
            tracker.weather(move |_, _| Some(met.clone()));
            paused(async {
                let began = tokio::time::Instant::now();
                let extents: Vec<_> = (0..count).map(|n| Extent::whole(&source, name(n as u64), 1000)).collect();
                let errors: Vec<_> = stream::iter(&extents).map(Extent::read).buffered(400).collect().await;
                let took = began.elapsed().as_secs();
                // Those that begin when all others have gone would wait for themselves; 400 began together.
                let most = if count == 1 { 64 } else { 130 };
                assert!((60..most).contains(&took), "{fault:?}, {count} reads: {took} s");
                let mut told = 0;
                for error in errors {
                    let text = format!("{:#}", error.unwrap_err());
                    assert!(text.starts_with("fetch: the store ") && text.contains("for 60 s"), "{text}");
                    assert!(text.contains("000") && text.contains("patience sets"), "{text}");
                    told += usize::from(text.contains(says));
                }
                // Some never got their turn, and so have no failure of their own to tell.
                assert!(told >= count.min(16), "{told} of {count} say `{says}`");
            });
        }
    }
}

#[test]
fn patience_is_what_was_asked_for() {
    for patience in [1, 5, 300] {
        let (tracker, source) = store(1, 1000);
        tracker.fail(&name(0), Fault::Silence);
        let source = source.with_patience(Duration::from_secs(patience));
        let (error, took) = paused(async {
            let began = tokio::time::Instant::now();
            let error = source.read(&name(0), 0..1000).await.unwrap_err();
            (error.to_string(), began.elapsed().as_secs())
        });
        assert!((patience..=patience + 3).contains(&took), "{took} s of {patience}");
        assert!(error.contains(&format!("gave nothing for {patience} s")), "{error}");
    }
}

#[test]
fn one_object_that_fails_does_not_wait_for_the_store() {
    for fault in [Fault::Answer(500), Fault::Reset(500)] {
        let (tracker, source) = store(2000, 1000);
        tracker.latency(|_| ms(20));
        tracker.fail(&name(7), fault.clone());
        paused(async {
            let began = tokio::time::Instant::now();
            let others = async {
                loop {
                    for n in 8..2000 {
                        source.read(&name(n), 0..1000).await.unwrap();
                    }
                }
            };
            let bad = name(7);
            let error = tokio::select! {
                error = source.read(&bad, 0..1000) => error.unwrap_err(),
                () = others => unreachable!("they go on"),
            };
            // Some may have failed before anybody else was answered since the one before.
            let says = |n: u32| error.to_string().contains(&format!("gave up after {n} requests"));
            assert!((8..12).any(says), "{error}");
            assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        });
    }
}

#[test]
fn one_refusal_in_ten_costs_less_than_half_of_the_speed() {
    for latency in [20, 100] {
        let run = |draws: Option<u64>| {
            let (tracker, source) = store(24_000, 64);
            tracker.latency(move |_| ms(latency));
            // A tenth of them, at random and whatever is asked.
            let refused = move |n: u64| draws.is_some_and(|draws| unlike(n ^ draws << 32).is_multiple_of(10));
            tracker.weather(move |n, _| refused(n as u64).then_some(Fault::SlowDown));
            paused(async {
                let began = tokio::time::Instant::now();
                // No order holds anything up here: an engine has as much ahead as its memory allows.
                read_some_ahead(&source, 24_000, 64, 24_000).await;
                began.elapsed()
            })
        };
        let clean = run(None);
        // Six refusals in a row are a matter of luck, and stop everybody for a moment.
        let quick = (0..8).any(|draws| run(Some(draws)) < 2 * clean);
        assert!(quick, "{latency} ms: it never took less than twice the {clean:?} without refusals");
    }
}

/// A number that looks random.
fn unlike(n: u64) -> u64 {
    let mut x = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d;
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (x ^ (x >> 27)) >> 8
}

/// Some milliseconds, other ones for each request.
fn uneven(request: usize) -> Duration {
    ms((request as u64 * 37) % 11)
}

#[test]
fn an_engine_of_several_threads_changes_nothing() {
    let count = 600;
    let run = |threads: usize| {
        let (dataset, tracker) = Records::remote(count);
        tracker.latency(uneven);
        let io = IoRuntime::with_threads(threads.try_into().unwrap()).unwrap();
        let builder = || builder(Arc::clone(&dataset)).batch_size(7).shuffle(5).io_runtime(&io);
        let batches = drain(builder().build_blocking().unwrap().epochs(0..2)).unwrap();
        // A stream that is dropped begins no read afterwards, whatever thread was about to.
        for polled in 0..5 {
            let mut stream = builder().build_blocking().unwrap().epoch(2).blocking();
            (0..polled).for_each(|_| _ = stream.next().unwrap().unwrap());
            drop(stream);
            let begun = tracker.requests();
            until("a thread or a task still reads", || Arc::strong_count(&dataset) == 1);
            assert_eq!(tracker.requests(), begun);
        }
        batches.iter().map(plain).collect::<Vec<_>>()
    };
    let one = run(1);
    assert_eq!(one.len(), 600 / 7 * 2);
    assert!(one == run(4));
}

/// Answers so many requests that, with those `in_flight` beside them, there can be as many as batch 0 has records: whatever goes
/// before its turn keeps one of these from being made.
fn asks_for_the_first_batch_first(size: usize, threads: usize, concurrency: Option<usize>, in_flight: usize) {
    let (dataset, tracker) = Records::remote(6 * size as u64);
    tracker.close_gate();
    let io = IoRuntime::with_threads(threads.try_into().unwrap()).unwrap();
    let settings = builder(dataset).batch_size(size).io_runtime(&io);
    let loader = concurrency.into_iter().fold(settings, |b, n| b.io_concurrency(n)).build_blocking().unwrap();
    let mut batches = loader.epoch(0).blocking();
    tracker.let_through(size - in_flight);
    let first: Vec<_> = (0..size as u64).map(name).collect();
    let case = format!("{threads} threads, {concurrency:?} in flight, batches of {size}");
    until(&case, || {
        let asked = tracker.names();
        first.iter().all(|name| asked.contains(name))
    });
    // The limit that nobody gave may have grown meanwhile.
    let asked = tracker.names();
    assert!(concurrency.is_none() || asked.iter().all(|name| first.contains(name)), "{case}: {asked:?}");
    tracker.let_through(in_flight);
    assert!(tracker.wait_for_requests(size + in_flight, PATIENCE), "{case}: {}", tracker.requests());
    tracker.open_gate();
    assert_eq!(batches.by_ref().map(Result::unwrap).count(), 6);
}

#[test]
fn what_an_earlier_batch_wants_is_asked_for_before_what_a_later_one_wants() {
    // Of 16 requests one is kept for a second copy.
    for (size, threads, concurrency, in_flight) in [
        (64, 1, Some(2), 2),
        (300, 1, Some(2), 2),
        (64, 2, Some(2), 2),
        (300, 2, Some(2), 2),
        (64, 4, Some(2), 2),
        (64, 4, Some(16), 15),
        (300, 4, Some(16), 15),
        (64, 4, None, 15),
        (300, 4, None, 15),
    ] {
        (0..4).for_each(|_| asks_for_the_first_batch_first(size, threads, concurrency, in_flight));
    }
}

#[test]
fn reading_ahead_begins_small_and_grows_with_each_batch() {
    let batch = 64;
    let (dataset, tracker) = Records::remote(64 * 200);
    tracker.latency(|_| ms(1));
    let clock = Clockwork::new();
    let loader = builder(dataset).batch_size(batch).io_runtime(&clock.io).build_blocking().unwrap();
    let mut stream = loader.epoch(0).blocking();
    for polled in 0..12 {
        let allowed = polled * batch + (4 + polled) * batch;
        assert!(tracker.wait_for_requests(allowed, PATIENCE), "{} of {allowed}", tracker.requests());
        // Time for much more, if it were allowed.
        clock.pass(Duration::from_secs(10));
        assert_eq!(tracker.requests(), allowed, "after {polled}");
        stream.next().unwrap().unwrap();
    }
    drop(stream);
    let all = drain(loader.epoch(1)).unwrap();
    assert_eq!(all.len(), 200, "it never runs dry");
}

#[test]
fn what_no_further_request_mends_is_asked_once() {
    let faults = [
        (Fault::NotFound, ErrorKind::NotFound),
        (Fault::Denied, ErrorKind::Denied),
        (Fault::Answer(400), ErrorKind::Io),
        (Fault::Answer(301), ErrorKind::Io),
    ];
    for (fault, kind) in faults {
        let (tracker, source) = store(1, 1000);
        tracker.fail(&name(0), fault);
        let error = paused(Extent::whole(&source, name(0), 1000).read()).unwrap_err();
        assert_eq!((error.kind(), tracker.requests()), (kind, 1), "{error}");
    }
}

#[test]
fn without_a_runtime_reads_are_repeated_too() {
    let (tracker, source) = store(1, 1000);
    tracker.fail_times(&name(0), 3, Fault::Short(3));
    assert!(futures::executor::block_on(source.read(&name(0), 0..1000)).unwrap() == content(0, 1000));
    tracker.fail(&name(0), Fault::SlowDown);
    assert!(futures::executor::block_on(source.read(&name(0), 0..1000)).is_err());
}

#[test]
fn a_replaced_object_is_an_error_and_never_a_mix() {
    for ignored in [false, true] {
        for len in [1000, 20 << 20] {
            let (tracker, source) = store(1, len);
            let object: Object = paused(async {
                let objects: Vec<_> = source.list().collect().await;
                objects.into_iter().next().unwrap().unwrap()
            });
            assert!(paused(object.extent(&source).read()).unwrap() == content(0, len));
            if ignored {
                tracker.ignore_if_match();
            }
            // As long as the old one: only the tag tells.
            tracker.replace(&name(0), content(1, len));
            let before = tracker.requests();
            let error = paused(object.extent(&source).read()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            let text = error.to_string();
            assert!(text.contains("another version") && text.contains("tracked://store/000000.bin @ 0.."), "{text}");
            assert!(text.ends_with("it changed since it was listed: open the dataset again"), "{text}");
            assert!(tracker.requests() - before <= 2, "no further request mends it");
        }
    }
}

#[test]
fn large_objects_are_read_in_pieces_of_8_to_16_mib() {
    let len = 40 << 20;
    let (tracker, source) = store(1, len);
    tracker.in_frames(1 << 20);
    // One piece of three breaks off, which one is left to chance.
    tracker.fail_times(&name(0), 1, Fault::Reset(3 << 20));
    assert!(paused(Extent::whole(&source, name(0), len as u64).read()).unwrap() == content(0, len));
    let ranges: Vec<_> = tracker.log_of_requests().into_iter().map(|request| request.range.unwrap()).collect();
    assert_eq!(ranges.len(), 4);
    assert!(ranges.iter().all(|range| (8 << 20..=16 << 20).contains(&(range.end - range.start))), "{ranges:?}");
}

#[test]
fn the_first_requests_are_spread_and_no_more_than_sixteen() {
    let (tracker, source) = store(100, 64);
    tracker.latency(|_| ms(500));
    paused(async {
        let reads = read_all(&source, 100, 64);
        // Before the first answer.
        assert!(tokio::time::timeout(ms(400), reads).await.is_err());
    });
    let begun = tracker.begun_at();
    assert!((15..=16).contains(&begun.len()), "{}", begun.len());
    assert!(begun.windows(2).all(|pair| pair[1] - pair[0] >= ms(1)), "{begun:?}");
}

#[test]
fn a_second_copy_hides_the_slow_tail() {
    let (tracker, source) = store(4000, 64);
    // One request in a hundred takes two seconds, copies too.
    tracker.latency(|n| if n % 100 == 50 { ms(2000) } else { ms(50) });
    let mut times = paused(read_all(&source, 4000, 64));
    let extra = tracker.requests() - 4000;
    assert!((20..120).contains(&extra), "{extra} requests more");
    // The first have no usual time to compare with. A read waits for its turn too, hence the bound's room.
    times.drain(..400);
    times.sort_unstable();
    let (p50, worst) = (times[times.len() / 2], times[times.len() - 1]);
    assert!(worst < p50 + ms(600), "p50 {p50:?}, worst {worst:?}");
}

#[test]
fn copies_are_not_sent_to_a_store_that_throttles() {
    let (tracker, source) = store(600, 64);
    tracker.latency(|_| ms(50));
    paused(async {
        read_all(&source, 500, 64).await;
        assert_eq!(tracker.requests(), 500);
        tracker.fail_times(&name(500), 1, Fault::SlowDown);
        source.read(&name(500), 0..64).await.unwrap();
        // Would be hedged after 0.1 s, but for the ten quiet seconds.
        tracker.fail_times(&name(501), 1, Fault::Delay(ms(5000)));
        source.read(&name(501), 0..64).await.unwrap();
        assert_eq!(tracker.requests(), 503);
        tokio::time::sleep(ms(10_000)).await;
        tracker.fail_times(&name(502), 1, Fault::Delay(ms(5000)));
        source.read(&name(502), 0..64).await.unwrap();
        assert_eq!(tracker.requests(), 505, "afterwards they are again");
    });
}

#[test]
fn refusals_pause_everybody_and_are_recovered_from() {
    let (tracker, source) = store(6000, 64);
    tracker.latency(|_| ms(50));
    tracker.refuse_above(20);
    paused(read_all(&source, 3000, 64));
    let refused = tracker.refused();
    assert!(refused > 0, "the limit never tried more than the store takes");
    assert!(refused < 300, "{refused} of 3000 were refused: the limit does not learn");
    // Somewhere nothing began for the length of a pause, although hundreds waited.
    let begun = tracker.begun_at();
    assert!(begun.windows(2).any(|pair| pair[1] - pair[0] >= ms(100)));
    // Calm again: the limit grows.
    tracker.refuse_above(usize::MAX);
    tracker.reset();
    paused(read_all(&source, 6000, 64));
    assert!(tracker.most_in_flight() > 30, "{}", tracker.most_in_flight());
}

#[test]
fn a_process_without_files_asks_for_less_at_once() {
    let (tracker, source) = store(3000, 64);
    tracker.latency(|_| ms(50));
    tracker.no_files_above(20);
    paused(read_all(&source, 3000, 64));
    let refused = tracker.refused();
    assert!(refused > 0, "there were files for all");
    assert!(refused < 300, "{refused} of 3000 had no file: the limit does not learn");
}

#[test]
fn a_store_that_refuses_is_asked_less_and_less() {
    let (tracker, source) = store(1, 64);
    tracker.fail(&name(0), Fault::SlowDown);
    paused(source.read(&name(0), 0..64)).unwrap_err();
    assert!(tracker.requests() < 50, "{} requests in a minute", tracker.requests());
}

#[test]
fn the_window_grows_with_the_distance() {
    let (tracker, source) = store(8000, 64);
    tracker.latency(|_| ms(50));
    paused(read_all(&source, 8000, 64));
    let most = tracker.most_in_flight();
    assert!((100..=400).contains(&most), "{most} in flight where 400 were wanted");
}

#[test]
fn faults_change_no_batch() {
    let expected: Vec<_> = drain(builder(Records::inline(300).0).batch_size(10).build_blocking().unwrap().epoch(0))
        .unwrap()
        .iter()
        .map(plain)
        .collect();
    let (dataset, tracker) = Records::remote(300);
    let faults = [
        Fault::Io("reset"),
        Fault::SlowDown,
        Fault::Short(17),
        Fault::Reset(40),
        Fault::Delay(ms(30)),
        Fault::Answer(500),
    ];
    for (n, fault) in faults.iter().cycle().take(30).enumerate() {
        tracker.fail_times(&name(n as u64 * 10 + n as u64 % 7), 1, fault.clone());
    }
    let clock = Clockwork::new();
    let loader = builder(dataset).batch_size(10).io_runtime(&clock.io).build_blocking().unwrap();
    let mut batches = loader.epoch(0).blocking();
    let got: Vec<_> = batches.by_ref().map(|batch| plain(&batch.unwrap())).collect();
    assert!(got == expected);

    // Every request is accounted for, and every fault.
    let report = batches.report().requests.unwrap();
    assert_eq!(report.requests as usize, tracker.requests());
    assert_eq!(report.requests, report.answered + report.failed + report.dropped, "{report:?}");
    assert_eq!((report.failed, report.retries, report.throttled), (25, 25, 5), "{report:?}");
    assert_eq!(report.requests, 300 + report.retries + report.hedges);
    assert_eq!(report.bytes, (300 + report.answered - 300) * LEN as u64);
    assert_eq!(report.time.count, report.answered);
    assert_eq!(report.slowest.len(), 10);
    assert!(report.slowest.windows(2).all(|pair| pair[0].time >= pair[1].time));
    assert!(report.most_in_flight >= 1 && report.limit >= 1);
    let json = serde_json::to_value(&report).unwrap();
    let slow = &json["slowest"][0];
    assert!(slow["object"].as_str().unwrap().starts_with("tracked://store/") && slow["seconds"].is_number(), "{slow}");
}

#[test]
fn a_fault_that_stays_ends_the_stream_with_its_object() {
    let (dataset, tracker) = Records::remote(50);
    tracker.fail(&name(12), Fault::Short(3));
    let clock = Clockwork::new();
    let loader = builder(dataset).batch_size(10).io_runtime(&clock.io).build_blocking().unwrap();
    let results: Vec<_> = loader.epoch(0).blocking().collect();
    assert_eq!(results.len(), 2);
    let error = format!("{:#}", results[1].as_ref().unwrap_err());
    for part in ["4 requests", "record 12", "000012.bin", "0..64", "3 of the 64 bytes"] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn only_remote_datasets_report_requests() {
    for (dataset, reports) in
        [(Records::resident(20), false), (Records::inline(20).0, false), (Records::remote(20).0, true)]
    {
        let stream = builder(dataset).batch_size(10).build_blocking().unwrap().epoch(0);
        assert_eq!(stream.report().requests.is_some(), reports);
    }
}

#[test]
fn a_ceiling_holds_with_retries_and_copies() {
    let clock = Clockwork::new();
    for most in [1, 3, 6] {
        let (dataset, tracker) = Records::remote(400);
        tracker.latency(|n| if n % 40 == 39 { ms(300) } else { ms(1) });
        (0..400).step_by(37).for_each(|n| tracker.fail_times(&name(n), 1, Fault::Io("reset")));
        let builder = builder(dataset).batch_size(10).io_concurrency(most).io_runtime(&clock.io);
        let mut batches = builder.build_blocking().unwrap().epoch(0).blocking();
        assert_eq!(batches.by_ref().map(Result::unwrap).count(), 40);
        assert!(tracker.most_in_flight() <= most, "{} of {most}", tracker.most_in_flight());
        let report = batches.report().requests.unwrap();
        assert!(report.hedges * 20 <= report.requests, "{report:?}");
    }
}

#[test]
fn no_retry_and_no_copy_begins_after_a_drop() {
    let clock = Clockwork::new();
    // The first hundred teach the usual time; then everything fails or hangs.
    for fault in [Fault::Io("reset"), Fault::Silence, Fault::SlowDown] {
        let (dataset, tracker) = Records::remote(600);
        tracker.latency(|_| ms(1));
        (100..600).for_each(|n| tracker.fail(&name(n), fault.clone()));
        let loader = builder(dataset).batch_size(10).io_runtime(&clock.io).build_blocking().unwrap();
        let store = Arc::clone(&tracker);
        let [begun, later] = clock.run(async move {
            let batches = loader.epoch(0);
            while store.requests() < 104 {
                tokio::time::sleep(ms(1)).await;
            }
            // In the middle of back-offs, and around the time of the first copies.
            tokio::time::sleep(ms(110)).await;
            drop(batches);
            let begun = store.requests();
            tokio::time::sleep(Duration::from_secs(1000)).await;
            [begun, store.requests()]
        });
        assert_eq!(begun, later, "{fault:?}");
        assert_eq!(tracker.in_flight(), 0, "{fault:?}: they hang");
    }
}

/// Records of [`LEN`] bytes in one object, with `gap` bytes between them.
#[derive(Debug)]
struct Packed {
    source: Source,
    count: u64,
    gap: u64,
    schema: Schema,
}

impl Packed {
    fn new(count: u64, gap: u64) -> (Arc<Self>, Arc<Tracker>) {
        let tracker = Tracker::holding([("shard", content(3, (count * (LEN as u64 + gap)) as usize))]);
        let bytes = FieldKind::Array { dtype: DType::U8, shape: vec![LEN] };
        let schema = Schema::new(vec![Field::new("bytes", bytes)]);
        (Arc::new(Self { source: tracker.source(), count, gap, schema }), tracker)
    }

    fn at(&self, record: u64) -> u64 {
        record * (LEN as u64 + self.gap)
    }
}

impl Dataset for Packed {
    fn len(&self) -> u64 {
        self.count
    }
    fn schema(&self) -> &Schema {
        &self.schema
    }
    fn format(&self) -> &str {
        "packed"
    }
    fn plan(&self, record: u64, _rng: SampleRng) -> Result<ReadPlan> {
        let start = self.at(record);
        // In two halves, the second first: plans may have several extents, in any order.
        let (middle, end) = (start + LEN as u64 / 2, start + LEN as u64);
        let part = |range| Extent::part(&self.source, "shard", range);
        Ok(ReadPlan::new([part(middle..end), part(start..middle)]))
    }
    fn parse(&self, _record: u64, _plan: &ReadPlan, bytes: &[Bytes]) -> Result<Sample> {
        Ok(Sample::new([Value::Array([&bytes[1][..], &bytes[0][..]].concat().into())]))
    }
    fn object(&self, _record: u64) -> String {
        "shard".into()
    }
    fn largest_read(&self) -> u64 {
        LEN as u64
    }
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of("packed").number(self.count).finish()
    }
}

#[test]
fn near_records_of_a_shard_are_read_together_and_far_ones_are_not() {
    for (gap, requests) in [(0, 1..=80), (1000, 1..=80), (200_000, 320..=320)] {
        let (dataset, tracker) = Packed::new(320, gap);
        let shard = content(3, (320 * (LEN as u64 + gap)) as usize);
        let loader = builder(Arc::<Packed>::clone(&dataset)).batch_size(32).shuffle(5).build_blocking().unwrap();
        for batch in drain(loader.epoch(0)).unwrap() {
            let rows = batch["bytes"].bytes().unwrap().chunks(LEN);
            for (record, row) in batch.records().iter().zip(rows) {
                let start = dataset.at(*record) as usize;
                assert!(row == &shard[start..start + LEN], "record {record}");
            }
        }
        assert!(requests.contains(&tracker.requests()), "gap {gap}: {} requests", tracker.requests());
        if gap > 64 << 10 {
            assert_eq!(tracker.bytes(), 320 * LEN as u64);
        }
    }
}

#[test]
fn a_late_answer_costs_the_trainer_little() {
    let (dataset, tracker) = Records::remote(2000);
    tracker.latency(|_| ms(5));
    // One in a hundred would hold its batch up for two seconds.
    let late: Vec<_> = (250..2000).step_by(100).map(name).collect();
    late.iter().for_each(|name| tracker.fail_times(name, 1, Fault::Delay(ms(2000))));
    let clock = Clockwork::new();
    let builder = builder(dataset).batch_size(20).io_concurrency(16).io_runtime(&clock.io);
    let mut batches = builder.build_blocking().unwrap().epoch(0).blocking();
    assert_eq!(batches.by_ref().map(Result::unwrap).count(), 100);
    let requests = batches.report().requests.unwrap();
    let copies = late.len() as u64;
    assert_eq!((requests.hedges, requests.hedges_won), (copies, copies), "{requests:?}");
    // A tenth of a second after the request, unless the place for copies is taken at that moment.
    let (asked, begun) = (tracker.names(), tracker.begun_at());
    for name in &late {
        let at: Vec<_> = asked.iter().zip(&begun).filter(|(asked, _)| *asked == name).map(|(_, at)| *at).collect();
        assert!(at.len() == 2 && at[1] - at[0] < ms(500), "{name}: {at:?}");
    }
}

/// The same over HTTP: what `object_store` makes of an answer is part of what is tested.
mod over_http {
    use futures::TryStreamExt;

    use super::*;
    use crate::support::{
        records::content as record_content,
        s3::{Config, Fault, Rule, S3Server},
    };

    const COUNT: u64 = 400;

    fn serve(config: Config) -> (S3Server, Arc<dyn Dataset>) {
        let server = S3Server::with(config);
        (0..COUNT).for_each(|n| server.put(&format!("r/{}", name(n)), record_content(n)));
        let dataset = Records::over(server.source("r"), COUNT);
        (server, dataset)
    }

    #[test]
    fn every_fault_that_passes_gives_the_local_batches() {
        let local = builder(Records::resident(COUNT)).batch_size(20).shuffle(3).build_blocking().unwrap();
        let expected: Vec<_> = drain(local.epoch(0)).unwrap().iter().map(plain).collect();
        let error = Fault::Status { status: 500, code: "InternalError", retry_after: None };
        let faults = [
            Fault::slow_down(),
            error,
            Fault::Reset,
            Fault::ResetInBody,
            Fault::Garbage,
            Fault::StallBeforeHead(ms(200)),
            Fault::StallInBody(ms(200)),
            Fault::Cut,
            Fault::Short,
            Fault::Trickle { piece: 16, pause: ms(20) },
            Fault::Delay(ms(300)),
        ];
        for fault in faults {
            // One each: what was dropped may reach a server after its run.
            let (server, dataset) = serve(Config::default());
            server.rule(Rule::new(fault.clone()).one_in(25).times(12));
            let loader = builder(dataset).batch_size(20).shuffle(3).build_blocking().unwrap();
            let mut batches = loader.epoch(0).blocking();
            let got: Vec<_> = batches.by_ref().map(|batch| plain(&batch.unwrap())).collect();
            assert!(got == expected, "{fault:?}");
            let report = batches.report().requests.unwrap();
            assert_eq!(report.requests, report.answered + report.failed + report.dropped, "{fault:?}: {report:?}");
            let told = report.requests.abs_diff(server.gets() as u64);
            // A copy may be dropped before it reaches the server.
            assert!(told <= report.dropped, "{fault:?}: {report:?}, the server saw {}", server.gets());
            assert_eq!(report.requests, COUNT + report.retries + report.hedges, "{fault:?}: {report:?}");
            assert!(report.retries <= 12 && report.hedges * 20 <= report.requests, "{fault:?}: {report:?}");
        }
    }

    #[test]
    fn refusals_are_seen_and_obeyed() {
        let (server, dataset) = serve(Config { throttle: Some((400.0, 20.0)), ..Config::default() });
        let loader = builder(dataset).batch_size(20).build_blocking().unwrap();
        let mut batches = loader.epoch(0).blocking();
        assert_eq!(batches.by_ref().map(Result::unwrap).count() as u64, COUNT / 20);
        let report = batches.report().requests.unwrap();
        let refused = server.log().iter().filter(|seen| seen.status == 503).count() as u64;
        // A copy that was refused may have been dropped by then.
        assert!((report.throttled..=report.throttled + report.dropped).contains(&refused), "{report:?}: {refused}");
        assert!(refused < COUNT / 2, "{refused} refusals for {COUNT} objects");
    }

    #[test]
    fn an_object_replaced_after_the_listing_is_an_error_that_names_it() {
        let (server, _) = serve(Config::default());
        let source = server.source("r");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let objects: Vec<Object> = source.list().try_collect().await.unwrap();
            let object = objects.iter().find(|object| object.name == name(7)).unwrap();
            assert_eq!(object.extent(&source).read().await.unwrap(), record_content(7));
            assert!(server.log().last().unwrap().if_match.is_some());
            server.put(&format!("r/{}", name(7)), record_content(8));
            let error = object.extent(&source).read().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            assert!(
                error.to_string().contains("000007.bin") && error.to_string().contains("another version"),
                "{error}"
            );
            server.delete(&format!("r/{}", name(7)));
            assert_eq!(object.extent(&source).read().await.unwrap_err().kind(), ErrorKind::NotFound);
        });
    }
}
