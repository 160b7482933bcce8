//! Datasets that read their records themselves, by calls that block: ahead of decode threads and trainer, in plan order,
//! bounded in number and bytes, and never what a drop waits for.

use std::{
    collections::HashMap,
    num::NonZeroUsize,
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use bytes::Bytes;
use futures::executor::block_on;
use infeed::{
    DType, Dataset, Device, Error, ErrorKind, LastBatch, LoaderBuilder, OnBadSample, Result,
    dataset::{
        Field, FieldKind, Fingerprint, ReadPlan, Sample, SampleRng, Schema, Value, concat, dataset_contract, subset,
    },
    report::{Report, Stage},
};
use proptest::prelude::*;

use crate::{
    properties::properties,
    support::{
        PATIENCE, Plain, builder,
        clock::Clockwork,
        drain, plain,
        records::{LEN, Records, content, record_of},
        until,
    },
};

/// Records as those of [`Records`], which the dataset brings itself as far as the test lets it.
#[derive(Debug)]
struct Brings {
    count: u64,
    at_once: Option<NonZeroUsize>,
    /// What a plan expects of each record, and what comes behind its content.
    expects: u64,
    more: usize,
    /// What becomes of some records in place of being read.
    script: HashMap<u64, Told>,
    schema: Schema,
    calls: Mutex<Calls>,
    changed: Condvar,
    live: Arc<Live>,
}

#[derive(Clone, Debug)]
enum Told {
    Fail(ErrorKind),
    Panic,
    /// Gives no result at all.
    Forget,
}

#[derive(Debug, Default)]
struct Calls {
    /// Records, in the order in which their calls began.
    begun: Vec<u64>,
    ended: usize,
    in_flight: usize,
    most_in_flight: usize,
    /// Calls that may end; `None`: all.
    may_end: Option<usize>,
    threads: Vec<String>,
}

/// Bytes that were brought and are in memory.
#[derive(Debug, Default)]
struct Live {
    now: AtomicU64,
    most: AtomicU64,
}

struct Piece(Vec<u8>, Arc<Live>);

impl Piece {
    fn brought(bytes: Vec<u8>, live: &Arc<Live>) -> Bytes {
        let now = live.now.fetch_add(bytes.len() as u64, Ordering::SeqCst) + bytes.len() as u64;
        live.most.fetch_max(now, Ordering::SeqCst);
        Bytes::from_owner(Self(bytes, Arc::clone(live)))
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.1.now.fetch_sub(self.0.len() as u64, Ordering::SeqCst);
    }
}

impl Brings {
    fn new(count: u64) -> Self {
        let bytes = FieldKind::Array { dtype: DType::U8, shape: vec![LEN] };
        let schema = Schema::new(vec![Field::new("bytes", bytes), Field::new("label", FieldKind::Label)]);
        Self {
            count,
            at_once: NonZeroUsize::new(3),
            expects: LEN as u64,
            more: 0,
            script: HashMap::new(),
            schema,
            calls: Mutex::default(),
            changed: Condvar::new(),
            live: Arc::default(),
        }
    }

    fn at_once(self, calls: usize) -> Self {
        Self { at_once: NonZeroUsize::new(calls), ..self }
    }

    fn told(mut self, record: u64, told: Told) -> Self {
        self.script.insert(record, told);
        self
    }

    /// No call ends before the test says so.
    fn closed(self) -> Self {
        self.calls().may_end = Some(0);
        self
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap()
    }

    fn open(&self) {
        self.calls().may_end = None;
        self.changed.notify_all();
    }

    fn let_end(&self, calls: usize) {
        *self.calls().may_end.get_or_insert(0) += calls;
        self.changed.notify_all();
    }

    /// Waits until `so` is true of the calls.
    fn wait(&self, what: &str, so: impl Fn(&Calls) -> bool) {
        let (_calls, late) = self.changed.wait_timeout_while(self.calls(), PATIENCE, |calls| !so(calls)).unwrap();
        assert!(!late.timed_out(), "{what}: {:?}", self.calls().begun.len());
    }
}

impl Dataset for Brings {
    fn len(&self) -> u64 {
        self.count
    }
    fn schema(&self) -> &Schema {
        &self.schema
    }
    fn format(&self) -> &str {
        "brings"
    }
    fn plan(&self, record: u64, _rng: SampleRng) -> Result<ReadPlan> {
        if record >= self.count {
            return Err(Error::new(ErrorKind::Internal, "beyond the end"));
        }
        Ok(ReadPlan::by_dataset(self.expects))
    }
    fn read(&self, records: &[u64]) -> Vec<Result<Vec<Bytes>>> {
        let mut calls = self.calls();
        calls.begun.extend_from_slice(records);
        calls.in_flight += 1;
        calls.most_in_flight = calls.most_in_flight.max(calls.in_flight);
        calls.threads.push(thread::current().name().unwrap_or("?").to_owned());
        self.changed.notify_all();
        let mut calls = self.changed.wait_while(calls, |calls| calls.may_end == Some(0)).unwrap();
        if let Some(left) = &mut calls.may_end {
            *left -= 1;
        }
        calls.in_flight -= 1;
        calls.ended += records.len();
        self.changed.notify_all();
        drop(calls);
        let read = |record: &u64| match self.script.get(record) {
            None if *record >= self.count => Some(Err(Error::new(ErrorKind::Internal, "beyond the end"))),
            // In two pieces: a call may bring any number.
            None => {
                let bytes = content(*record);
                let rest = [&bytes[8..], &vec![0; self.more]].concat();
                Some(Ok(vec![Piece::brought(bytes[..8].to_vec(), &self.live), Piece::brought(rest, &self.live)]))
            }
            // Of this record alone: another one may be found.
            Some(Told::Fail(ErrorKind::NotFound)) => {
                Some(Err(Error::new(ErrorKind::NotFound, "told to fail").into_unreadable()))
            }
            Some(Told::Fail(kind)) => Some(Err(Error::new(*kind, "told to fail"))),
            Some(Told::Panic) => panic!("told to panic"),
            Some(Told::Forget) => None,
        };
        records.iter().filter_map(read).collect()
    }
    fn concurrent_reads(&self) -> Option<NonZeroUsize> {
        self.at_once
    }
    fn parse(&self, record: u64, _plan: &ReadPlan, bytes: &[Bytes]) -> Result<Sample> {
        let all = bytes.concat();
        let row = all.get(..LEN).ok_or_else(|| Error::corrupt("its bytes are cut short"))?;
        Ok(Sample::new([Value::Array(Bytes::copy_from_slice(row)), Value::Label(record as i64)]))
    }
    fn object(&self, record: u64) -> String {
        format!("brought {record}")
    }
    fn largest_read(&self) -> u64 {
        self.expects
    }
    fn needs_fetch(&self) -> bool {
        false
    }
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of("brings").number(self.count).finish()
    }
}

fn dataset(brings: &Arc<Brings>) -> Arc<dyn Dataset> {
    Arc::clone(brings) as Arc<dyn Dataset>
}

fn all(dataset: Arc<dyn Dataset>, settings: impl FnOnce(LoaderBuilder) -> LoaderBuilder) -> Vec<Plain> {
    let loader = settings(builder(dataset).shuffle(5)).build_blocking().unwrap();
    drain(loader.epochs(0..2)).unwrap().iter().map(plain).collect()
}

#[test]
fn records_are_read_ahead_of_the_decode_threads_and_of_the_trainer() {
    let brings = Arc::new(Brings::new(100));
    let loader = builder(dataset(&brings)).batch_size(10).prefetch(1).workers(1).build_blocking().unwrap();
    let batches = loader.epoch(0);
    // Nobody has asked for a batch, and one may own rows.
    brings.wait("all are read", |calls| calls.ended == 100);
    assert!(brings.calls().threads.iter().all(|thread| !thread.starts_with("infeed-cpu")), "a decode thread read");
    let records: Vec<u64> = drain(batches).unwrap().iter().flat_map(|batch| batch.records().to_vec()).collect();
    assert_eq!(records, (0..100).collect::<Vec<_>>());
    assert_eq!(brings.live.now.load(Ordering::SeqCst), 0);
}

#[test]
fn calls_begin_in_plan_order_and_never_more_at_a_time_than_may_be() {
    for (at_once, asked) in [(1, None), (3, None), (3, Some(2)), (2, Some(5))] {
        let brings = Arc::new(Brings::new(200).at_once(at_once).closed());
        let settings = |b: LoaderBuilder| asked.into_iter().fold(b, LoaderBuilder::io_concurrency);
        let loader = settings(builder(dataset(&brings)).shuffle(3).batch_size(20)).build_blocking().unwrap();
        let batches = loader.epoch(0);
        let most = asked.unwrap_or(at_once);
        brings.wait("as many calls as may be", |calls| calls.in_flight == most);
        assert_eq!(brings.calls().begun.len(), most, "one record each: how long they take is not known yet");
        for ended in 1..=10 {
            brings.let_end(1);
            brings.wait("another one", |calls| calls.begun.len() >= most + ended && calls.in_flight == most);
        }
        brings.open();
        let records: Vec<u64> = drain(batches).unwrap().iter().flat_map(|batch| batch.records().to_vec()).collect();
        let calls = brings.calls();
        assert_eq!(calls.most_in_flight, most);
        // Which of the calls in flight comes first to its dataset is up to their threads.
        let place: HashMap<u64, usize> = records.iter().enumerate().map(|(place, record)| (*record, place)).collect();
        let mut order: Vec<usize> = calls.begun.iter().map(|record| place[record]).collect();
        if most == 1 {
            assert!(order.is_sorted(), "{order:?}");
        }
        order.sort_unstable();
        assert_eq!(order, (0..200).collect::<Vec<_>>(), "each once");
    }
}

#[test]
fn first_calls_are_those_of_the_first_records() {
    let brings = Arc::new(Brings::new(200).at_once(4).closed());
    let loader = builder(dataset(&brings)).shuffle(3).batch_size(20).build_blocking().unwrap();
    let batches = loader.epoch(0);
    brings.wait("four calls", |calls| calls.in_flight == 4);
    let mut begun = brings.calls().begun.clone();
    brings.open();
    let mut first = drain(batches).unwrap()[0].records()[..4].to_vec();
    begun.sort_unstable();
    first.sort_unstable();
    assert_eq!(begun, first);
}

#[test]
fn quick_calls_hold_several_records() {
    let brings = Arc::new(Brings::new(4000));
    // On this clock no call takes any time.
    let clock = Clockwork::new();
    let loader = builder(dataset(&brings)).batch_size(100).io_runtime(&clock.io).build_blocking().unwrap();
    assert_eq!(drain(loader.epoch(0)).unwrap().len(), 40);
    // A third of a batch each, once that is known.
    let calls = brings.calls().threads.len();
    assert!((40 * 3..40 * 3 + 200).contains(&calls), "{calls} calls");
}

#[test]
fn ranks_of_one_process_share_the_bound() {
    let brings = Arc::new(Brings::new(200).at_once(2).closed());
    let loaders = builder(dataset(&brings)).batch_size(10).build_each_blocking([Device::Cpu, Device::Cpu]).unwrap();
    let streams: Vec<_> = loaders.iter().map(|loader| loader.epoch(0)).collect();
    for ended in 0..20 {
        brings.wait("two calls", |calls| calls.begun.len() >= ended + 2 && calls.in_flight == 2);
        brings.let_end(1);
    }
    brings.open();
    for batches in streams {
        assert_eq!(drain(batches).unwrap().len(), 10);
    }
    assert_eq!(brings.calls().most_in_flight, 2);
}

/// How many bytes of a stream may be read ahead.
fn window(report: &Report) -> u64 {
    report.queues.iter().find(|queue| queue.name == "encoded").unwrap().capacity.unwrap()
}

#[test]
fn what_was_read_and_not_decoded_is_bounded_in_bytes() {
    // What is expected, and what comes: as much, less, far more, more than the whole window.
    for (expects, brought) in [(256 << 10, 256 << 10), (512 << 10, 200 << 10), (64 << 10, 700 << 10), (1, 5 << 20)] {
        let brings = Brings { expects, more: brought - LEN, ..Brings::new(120) }.at_once(2);
        let brings = Arc::new(brings);
        let clock = Clockwork::new();
        let settings = |budget| {
            let small = builder(dataset(&brings)).batch_size(4).prefetch(1).workers(1).autotune(false);
            let small = small.io_runtime(&clock.io);
            small.max_image_bytes(1 << 20).max_record_bytes(8 << 20).memory_budget(budget).build_blocking()
        };
        // The least that works and 8 MiB, which reading ahead is the first to get.
        let least = (1..).map(|step| step << 18).find(|budget| settings(*budget).is_ok()).unwrap();
        let loader = settings(least + (8 << 20)).unwrap();
        let mut batches = loader.epoch(0).blocking();
        // What blocks holds the clock: then all calls that may begin have begun, and ended.
        clock.pass(Duration::from_secs(1));
        let begun = brings.calls().begun.len();
        let mut read = 0;
        for batch in batches.by_ref() {
            let batch = batch.unwrap();
            for (record, row) in batch.records().iter().zip(batch["bytes"].bytes().unwrap().chunks(LEN)) {
                assert_eq!(record_of(row), *record);
            }
            read += batch.len();
        }
        assert_eq!(read, 120);
        let window = window(&batches.report());
        assert!((8 << 20..9 << 20).contains(&window), "{window}");
        let (most, brought) = (brings.live.most.load(Ordering::SeqCst), brought as u64);
        // Of two records each: what three calls underestimate, and what the decode thread is about to give back.
        let slack = 3 * 2 * brought.saturating_sub(expects) + 2 * brought + (64 << 10) * 4;
        assert!(most <= window + slack, "{expects} {brought}: {most} of {window}");
        assert!(begun < 120 || brought * 120 < window, "{expects} {brought}: nothing held it back");
    }
}

#[test]
fn a_drop_does_not_wait_for_a_call_that_is_stuck() {
    let brings = Arc::new(Brings::new(100).at_once(2).closed());
    let loader = builder(dataset(&brings)).batch_size(10).build_blocking().unwrap();
    let batches = loader.epoch(0);
    brings.wait("two calls", |calls| calls.in_flight == 2);
    let (dropped, is_dropped) = mpsc::channel();
    thread::spawn(move || {
        drop(batches);
        dropped.send(()).unwrap();
    });
    is_dropped.recv_timeout(PATIENCE).expect("a drop waits for nobody");
    // One slot is free again, the other one's call is still stuck.
    brings.let_end(1);
    brings.wait("a call that ends", |calls| calls.in_flight == 1);
    let next = loader.epoch(1);
    brings.wait("a call of the next stream", |calls| calls.in_flight == 2);
    let mut begun = brings.calls().begun.clone();
    begun.sort_unstable();
    assert_eq!(begun, [0, 0, 1], "nothing begins for a stream that is gone");
    drop(next);
    drop(loader);
    let alive = Arc::downgrade(&brings);
    brings.open();
    drop(brings);
    until("a call holds the dataset", || alive.strong_count() == 0);
}

#[test]
fn records_that_can_not_be_read_follow_the_policy_for_bad_samples() {
    let bad = |kind| {
        let brings = Brings::new(20).told(3, Told::Fail(kind)).told(7, Told::Fail(kind));
        Arc::new(brings) as Arc<dyn Dataset>
    };
    for kind in [ErrorKind::Corrupt, ErrorKind::Unsupported, ErrorKind::NotFound] {
        let run = |policy| {
            let loader = builder(bad(kind)).batch_size(10).on_bad_sample(policy).build_blocking().unwrap();
            drain(loader.epoch(0))
        };
        let error = run(OnBadSample::Stop).unwrap_err();
        assert_eq!((error.kind(), error.context().record), (kind, Some(3)));
        assert_eq!(error.context().object.as_deref(), Some("brought 3"));
        assert_eq!(error.context().stage, Some(Stage::Fetch));
        let skipped = run(OnBadSample::Skip { at_most: 5 }).unwrap();
        assert_eq!(skipped.iter().map(infeed::Batch::len).collect::<Vec<_>>(), [8, 10]);
        assert_eq!(skipped[0].bad_samples().len(), 2);
        let replaced = run(OnBadSample::Substitute).unwrap();
        let row = |batch: &infeed::Batch, row: usize| record_of(&batch["bytes"].bytes().unwrap()[row * LEN..][..LEN]);
        assert_eq!((row(&replaced[0], 3), row(&replaced[0], 7)), (2, 6));
    }
}

#[test]
fn a_dataset_that_breaks_its_promises_ends_the_stream() {
    let ends = |brings: Brings, settings: fn(LoaderBuilder) -> LoaderBuilder| {
        let skips = builder(Arc::new(brings)).batch_size(10).on_bad_sample(OnBadSample::Skip { at_most: 100 });
        drain(settings(skips).build_blocking().unwrap().epoch(0))
    };
    let same = |b: LoaderBuilder| b;
    for (brings, says) in [
        (Brings::new(20).told(3, Told::Panic), "panicked while it read"),
        (Brings::new(20).told(3, Told::Forget), "were asked for"),
        // Then decode threads would read it.
        (Brings { at_once: None, ..Brings::new(20) }, "concurrent_reads says that it reads none"),
    ] {
        let error = ends(brings, same).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert!(error.to_string().contains(says), "{error}");
    }
    let error = ends(Brings::new(20).told(3, Told::Fail(ErrorKind::Io)), same).unwrap_err();
    assert_eq!((error.kind(), error.context().record), (ErrorKind::Io, Some(3)), "no fault of the sample");
    // More than the user allows is a bad sample, though nobody knew it before.
    let large = Brings { more: 1000, ..Brings::new(20) };
    let error = ends(large, |b| b.max_record_bytes(1000).on_bad_sample(OnBadSample::Stop)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(error.to_string().contains("1064 encoded bytes, more than the 1000"), "{error}");
}

proptest! {
    #![proptest_config(properties(16, 300))]

    /// Threads, calls and memory are about speed alone.
    #[test]
    fn who_reads_makes_no_difference(
        workers in 1usize..4, prefetch in 1usize..6, batch in 1usize..20, calls in 1usize..6, expects in 0u64..(200 << 10),
    ) {
        let base = |b: LoaderBuilder| b.batch_size(batch).last_batch(LastBatch::Partial);
        let want = all(Records::resident(60), |b| base(b).workers(1));
        let brings = Brings { expects, ..Brings::new(60) }.at_once(calls);
        let got = all(Arc::new(brings), |b| base(b).workers(workers).prefetch(prefetch));
        prop_assert_eq!(&want, &got);
    }
}

#[test]
fn parts_of_other_datasets_are_read_so_too() {
    let parts = || {
        let (remote, _) = Records::remote(20);
        concat([
            Arc::new(Brings::new(20)) as Arc<dyn Dataset>,
            remote,
            Arc::new(Brings::new(20)),
            Records::resident(20),
        ])
    };
    let resident = || concat((0..4).map(|_| Records::resident(20)));
    let picked: Vec<u64> = (0..80).rev().step_by(3).collect();
    for settings in [|b: LoaderBuilder| b.batch_size(7), |b: LoaderBuilder| b.batch_size(16).io_concurrency(1)] {
        assert_eq!(all(parts().unwrap(), settings), all(resident().unwrap(), settings));
        let some = |whole: Arc<dyn Dataset>| subset(whole, picked.clone()).unwrap();
        assert_eq!(all(some(parts().unwrap()), settings), all(some(resident().unwrap()), settings));
    }
    // Errors name the record of the whole.
    let broken = Brings::new(20).told(3, Told::Fail(ErrorKind::Corrupt));
    let whole = concat([Records::resident(20), Arc::new(broken)]).unwrap();
    let part = subset(whole, 10..40).unwrap();
    let error = drain(builder(part).batch_size(10).build_blocking().unwrap().epoch(0)).unwrap_err();
    assert_eq!((error.context().record, error.context().object.as_deref()), (Some(13), Some("brought 3")));
}

#[test]
fn the_contract_is_checked_for_such_datasets() {
    let brings = || Arc::new(Brings::new(20)) as Arc<dyn Dataset>;
    for dataset in [
        brings(),
        subset(brings(), 5..15).unwrap(),
        concat([brings(), Records::resident(5), brings()]).unwrap(),
        subset(concat([brings(), brings()]).unwrap(), vec![30, 2, 2]).unwrap(),
    ] {
        assert!(dataset.concurrent_reads().is_some());
        // Those of `Records` know no end.
        if dataset.format() == "brings" {
            block_on(dataset_contract(&*dataset)).unwrap();
        }
    }
}

#[test]
fn reports_count_what_the_dataset_read() {
    let brings = Arc::new(Brings::new(100));
    let loader = builder(dataset(&brings)).batch_size(10).build_blocking().unwrap();
    let mut batches = loader.epoch(0).blocking();
    assert_eq!(batches.by_ref().count(), 10);
    let report = batches.report();
    let fetch = report.stages.iter().find(|stage| stage.stage == Stage::Fetch).unwrap();
    assert_eq!((fetch.items, fetch.bytes), (100, 100 * LEN as u64));
    let requests = report.requests.unwrap();
    let calls = brings.calls().threads.len() as u64;
    assert_eq!((requests.requests, requests.answered, requests.bytes), (calls, calls, 100 * LEN as u64));
    assert!(requests.slowest.iter().all(|slow| slow.object.starts_with("brought ")));
    assert_eq!(requests.limit, 3);
}

#[test]
fn a_cache_is_not_used_for_them() {
    let brings = Arc::new(Brings::new(20));
    let cache = "ram:1MiB".parse().unwrap();
    let loader = builder(dataset(&brings)).batch_size(10).cache(cache).build_blocking().unwrap();
    for epoch in 0..2 {
        let mut batches = loader.epoch(epoch).blocking();
        assert_eq!(batches.by_ref().count(), 2);
        assert_eq!(batches.report().cache, None);
    }
    assert_eq!(brings.calls().begun.len(), 40);
    // Beside records of a store it keeps those.
    let (remote, tracker) = Records::tagged(20);
    let both = concat([dataset(&brings), remote]).unwrap();
    let cache = "ram:1MiB".parse().unwrap();
    let loader = builder(both).batch_size(10).cache(cache).build_blocking().unwrap();
    for epoch in 0..2 {
        assert_eq!(drain(loader.epoch(epoch)).unwrap().len(), 4);
    }
    assert_eq!((brings.calls().begun.len(), tracker.requests()), (80, 20));
}
