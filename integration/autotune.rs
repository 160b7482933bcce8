//! Settings on `auto` follow the run: threads, batches ahead, and never what comes out. What the controller decides on which
//! figures is tested in virtual time beside it; here it is seen to happen in a loader.
//!
//! No test asks how soon: each waits until it is so, or for as long as no machine takes.

use std::{
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use infeed::{
    BatchStream, Dataset, LoaderBuilder, Result,
    dataset::{Fingerprint, ReadPlan, Sample, SampleRng, Schema},
    report::{TuneReason, TuneReport, Tuned},
};

use crate::support::{PATIENCE, builder, records::Records};

/// Records that take their time to be cut, as if their file came from afar.
#[derive(Debug)]
struct Slow {
    inner: Arc<dyn Dataset>,
    takes: fn(u64) -> Duration,
}

impl Slow {
    /// Read by the decode threads.
    fn inline(count: u64, takes: fn(u64) -> Duration) -> Arc<dyn Dataset> {
        Arc::new(Self { inner: Records::inline(count).0, takes })
    }
}

impl Dataset for Slow {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn schema(&self) -> &Schema {
        self.inner.schema()
    }
    fn format(&self) -> &str {
        self.inner.format()
    }
    fn plan(&self, record: u64, rng: SampleRng) -> Result<ReadPlan> {
        self.inner.plan(record, rng)
    }
    fn parse(&self, record: u64, plan: &ReadPlan, bytes: &[Bytes]) -> Result<Sample> {
        thread::sleep((self.takes)(record));
        self.inner.parse(record, plan, bytes)
    }
    fn object(&self, record: u64) -> String {
        self.inner.object(record)
    }
    fn largest_read(&self) -> u64 {
        self.inner.largest_read()
    }
    fn usual_read(&self) -> u64 {
        self.inner.usual_read()
    }
    fn needs_fetch(&self) -> bool {
        self.inner.needs_fetch()
    }
    fn fingerprint(&self) -> Fingerprint {
        self.inner.fingerprint()
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// Takes batches in order, with a step of its own, until the report is as wanted.
fn until(stream: BatchStream, step: Duration, records: u64, mut wanted: impl FnMut(&TuneReport) -> bool) -> TuneReport {
    let (began, mut stream, mut next) = (Instant::now(), stream.blocking(), 0);
    while let Some(batch) = stream.next() {
        for record in batch.unwrap().records() {
            assert_eq!(*record, next % records, "the order of records is fixed");
            next += 1;
        }
        thread::sleep(step);
        let tuned = stream.report().autotune;
        if wanted(&tuned) {
            return tuned;
        }
        assert!(began.elapsed() < PATIENCE, "it never came: {tuned:#?}");
    }
    panic!("the stream ended before anything changed")
}

/// A loader of small batches.
fn small(dataset: &Arc<dyn Dataset>) -> LoaderBuilder {
    builder(Arc::clone(dataset)).batch_size(8)
}

#[test]
fn threads_that_wait_for_files_become_more_than_there_are_cores() {
    if cores() >= 64 {
        return crate::support::skipped("so many cores have threads enough");
    }
    let dataset = Slow::inline(800, |_| ms(4));
    let loader = small(&dataset).build_blocking().unwrap();
    // More than once, so that the first trial had a verdict.
    let tuned = until(loader.epochs(0..u64::MAX), Duration::ZERO, 800, |tuned| {
        tuned.workers.now >= (4 * cores()).min(tuned.workers.most) && tuned.decisions.len() > 1
    });
    assert!(tuned.workers.auto && tuned.workers.now <= tuned.workers.most, "{tuned:#?}");
    assert_eq!((tuned.workers.start, loader.config().workers), (cores(), Some(cores())));
    let grown = tuned.decisions.iter().filter(|d| d.what == Tuned::Workers && d.to > d.from);
    assert!(grown.clone().count() > 0 && grown.clone().all(|d| d.why == TuneReason::Reading), "{tuned:#?}");
    assert!(tuned.decision_count >= tuned.decisions.len() as u64);
    // What one stream found, the next one begins with, but for a trial that had no verdict yet.
    let next = loader.epoch(7).report().autotune.workers.start;
    assert!((2 * cores()..=tuned.workers.now).contains(&next), "{next}: {tuned:#?}");
}

#[test]
fn a_trainer_that_takes_its_time_leaves_threads_without_work() {
    if cores() < 2 {
        return crate::support::skipped("one core: there is no thread to spare");
    }
    let dataset = Slow::inline(800, |_| ms(0));
    let loader = small(&dataset).build_blocking().unwrap();
    // On a busy machine there may be other reasons, too.
    let spare = |tuned: &TuneReport| {
        tuned.decisions.iter().find(|d| d.what == Tuned::Workers && d.why == TuneReason::Spare).copied()
    };
    let tuned =
        until(loader.epochs(0..u64::MAX), ms(10), 800, |tuned| tuned.workers.now == 1 && spare(tuned).is_some());
    let fewer = spare(&tuned).expect("threads rest");
    assert!(fewer.to < fewer.from, "{tuned:#?}");
    assert!(fewer.waiting < 0.01 && fewer.busy < 1.0 && fewer.samples_per_second > 0.0, "{fewer:?}");
    // The next stream begins with all of them: its first batch is not to wait.
    assert_eq!(loader.epoch(1).report().autotune.workers.start, cores());
}

#[test]
fn a_stumble_that_the_batches_ahead_do_not_hide_gets_more_of_them() {
    // Every 200th record takes 200 ms; the trainer takes 5 ms for eight.
    let dataset = Slow::inline(800, |record| if record % 200 == 199 { ms(200) } else { ms(0) });
    let loader = small(&dataset).workers(1).build_blocking().unwrap();
    let tuned = until(loader.epochs(0..u64::MAX), ms(5), 800, |tuned| tuned.prefetch.now > tuned.prefetch.start);
    let more = tuned.decisions.iter().find(|d| d.what == Tuned::Prefetch).expect("there are more");
    assert!(more.to > more.from && [TuneReason::Uneven, TuneReason::Room].contains(&more.why), "{tuned:#?}");
    assert!(!tuned.workers.auto && tuned.workers.now == 1, "a number that was given stays: {tuned:#?}");
}

#[test]
fn numbers_that_were_given_stay_whatever_happens() {
    if cores() >= 64 {
        return crate::support::skipped("so many cores have threads enough");
    }
    let dataset = Slow::inline(400, |_| ms(2));
    let (began, tempted) = (Instant::now(), AtomicBool::new(false));
    let stay = |workers: Option<usize>, prefetch: Option<usize>, follow| {
        let builder = workers.into_iter().fold(small(&dataset), LoaderBuilder::workers);
        let builder = prefetch.into_iter().fold(builder, LoaderBuilder::prefetch).autotune(follow);
        let mut stream = builder.build_blocking().unwrap().epochs(0..u64::MAX).blocking();
        while !tempted.load(Ordering::Relaxed) && began.elapsed() < 2 * PATIENCE {
            drop(stream.next().unwrap().unwrap());
        }
        let tuned = stream.report().autotune;
        assert_eq!((tuned.decision_count, tuned.workers.auto, tuned.prefetch.auto), (0, false, false), "{tuned:#?}");
        assert_eq!(tuned.workers.now, workers.unwrap_or(cores()));
        assert_eq!(tuned.prefetch.now, prefetch.unwrap_or(tuned.prefetch.start));
    };
    thread::scope(|scope| {
        scope.spawn(|| stay(Some(2), Some(3), true));
        scope.spawn(|| stay(None, None, false));
        // As long as one that follows the run takes to change twice.
        let loader = small(&dataset).build_blocking().unwrap();
        until(loader.epochs(0..u64::MAX), Duration::ZERO, 400, |tuned| tuned.decision_count > 1);
        tempted.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_second_stream_has_all_threads() {
    if cores() < 2 {
        return crate::support::skipped("one core: there is no thread to spare");
    }
    let dataset = Slow::inline(800, |_| ms(0));
    let loader = small(&dataset).build_blocking().unwrap();
    let mut first = loader.epochs(0..u64::MAX).blocking();
    let began = Instant::now();
    let wait = |stream: &mut infeed::loader::Blocking, wanted: usize| {
        while stream.report().autotune.workers.now != wanted {
            drop(stream.next().unwrap().unwrap());
            thread::sleep(ms(10));
            assert!(began.elapsed() < 2 * PATIENCE, "{:#?}", stream.report().autotune);
        }
    };
    wait(&mut first, 1);
    let second = loader.epochs(0..u64::MAX);
    wait(&mut first, cores());
    assert!(first.report().autotune.decisions.iter().any(|d| d.why == TuneReason::Shared));
    drop(second);
    wait(&mut first, 1);
}
