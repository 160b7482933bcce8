//! Late batches are explained: a planted fault is named, with its object, however far ahead the loader was.

use std::{
    future::Future,
    num::NonZeroUsize,
    pin::pin,
    sync::Arc,
    task::{Context, Waker},
    thread,
    time::{Duration, Instant},
};

use futures::StreamExt;
use infeed::{
    Device, Loader, Report, Result,
    report::{Cause, Stage},
    spi::{Class, Decoder, Finished, Job, Lowered, Outcome, Wait, Worker},
};

use crate::support::{
    PATIENCE, builder,
    records::{Records, name},
    store::Fault,
};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The report of a run in which something takes `long` and is to blame for it. It is where nothing else takes longer, and on
/// a busy machine something may: then once more, with twice as long.
fn blamed(mut long: Duration, run: impl Fn(Duration) -> Report, is_to_blame: impl Fn(&Report) -> bool) -> Report {
    let began = Instant::now();
    loop {
        let report = run(long);
        if is_to_blame(&report) {
            return report;
        }
        assert!(began.elapsed() < PATIENCE, "{long:?}: {report:#?}");
        long *= 2;
    }
}

/// The worst of them: why, which one, and the object.
fn worst(report: &Report) -> Option<(Cause, u64, Option<&str>)> {
    report.late_batches.first().map(|late| (late.cause, late.batch, late.object.as_deref()))
}

/// What made the trainer wait for longest, in how many batches.
fn most(report: &Report) -> Option<(Cause, u64)> {
    report.late_causes.first().map(|most| (most.cause, most.batches))
}

/// All batches of an epoch.
fn whole(loader: &Loader) -> Report {
    let mut batches = loader.epoch(0).blocking();
    batches.by_ref().for_each(|batch| drop(batch.unwrap()));
    batches.report()
}

/// A decoder that takes so long for one record, or for each, and says so.
#[derive(Debug)]
struct Slow {
    classes: Vec<Class>,
    only: Option<u64>,
    takes: Duration,
}

impl Slow {
    fn new(workers: usize, only: Option<u64>, takes: Duration) -> Arc<Self> {
        let workers = NonZeroUsize::new(workers).expect("at least one");
        Arc::new(Self { classes: vec![Class::new("slow", Device::Cpu, workers)], only, takes })
    }
}

impl Decoder for Slow {
    fn name(&self) -> &'static str {
        "slow"
    }
    fn classes(&self) -> &[Class] {
        &self.classes
    }
    fn scratch_bytes(&self, _class: usize) -> u64 {
        0
    }
    fn worker(&self, _class: usize, _n: usize, _programs: &Arc<[Option<Lowered>]>) -> Result<Box<dyn Worker>> {
        Ok(Box::new(SlowWorker { only: self.only, takes: self.takes, done: Vec::new() }))
    }
}

struct SlowWorker {
    only: Option<u64>,
    takes: Duration,
    done: Vec<Finished>,
}

impl Worker for SlowWorker {
    fn submit(&mut self, job: Job) {
        let slow = job.items.iter().filter(|item| self.only.is_none_or(|only| only == item.record));
        let time = self.takes * slow.count() as u32;
        thread::sleep(time);
        let outcomes = vec![Outcome::Done; job.items.len()];
        let mut finished = Finished::new(job, outcomes);
        finished.decode = time;
        self.done.push(finished);
    }
    fn poll(&mut self, _wait: Wait) -> Vec<Finished> {
        std::mem::take(&mut self.done)
    }
}

fn stage(report: &Report, stage: Stage) -> &infeed::report::StageReport {
    report.stages.iter().find(|known| known.stage == stage).expect("it is reported")
}

#[test]
fn a_stuck_request_is_named() {
    let run = |long| {
        let (dataset, tracker) = Records::remote(400);
        tracker.fail(&name(237), Fault::Delay(long));
        whole(&builder(dataset).batch_size(10).prefetch(3).workers(1).build_blocking().unwrap())
    };
    let named = Some((Cause::Request, 23, Some("tracked://store/000237.bin")));
    // The others were late for it alone, if at all: the stream waited for this one.
    let report = blamed(ms(50), run, |report| {
        worst(report) == named && most(report).is_some_and(|(cause, _)| cause == Cause::Request)
    });
    let late = &report.late_batches[0];
    assert_eq!((late.epoch, late.position), (0, 230), "{report:#?}");
    assert_eq!(report.samples, 400);
    let encoded = report.queues.iter().find(|queue| queue.name == "encoded").expect("bytes were read ahead");
    assert!(encoded.max > 0 && encoded.capacity.is_some_and(|most| encoded.max <= most), "{encoded:?}");
}

#[test]
fn a_record_that_decodes_for_long_is_named() {
    let run = |long| {
        let slow = Slow::new(1, Some(33), long);
        let builder = builder(Records::resident(60)).batch_size(1).prefetch(2).decoder(slow);
        let report = whole(&builder.build_blocking().unwrap());
        let decode = stage(&report, Stage::Decode);
        assert!(decode.busy >= long && decode.calls >= 1, "{decode:?}");
        assert_eq!(stage(&report, Stage::Yield).calls, 60);
        report
    };
    let named = Some((Cause::Decode, 33, Some("000033.bin")));
    blamed(ms(50), run, |report| {
        // A thread that sleeps uses no processor.
        let decode = stage(report, Stage::Decode);
        worst(report) == named && decode.cpu * 2 < decode.busy
    });
}

#[test]
fn decoding_that_is_always_slow_is_to_blame_as_a_whole() {
    let run = |long| {
        let builder = builder(Records::resident(80)).batch_size(2).prefetch(4).decoder(Slow::new(1, None, long));
        whole(&builder.build_blocking().unwrap())
    };
    blamed(ms(2), run, |report| {
        let jobs = report.queues.iter().find(|queue| queue.name == "jobs").expect("there is a queue");
        // Jobs wait for the one thread.
        most(report).is_some_and(|(cause, _)| cause == Cause::Decode) && jobs.max >= 1
    });
}

#[test]
fn a_loader_that_may_not_run_ahead_lacks_room() {
    let run = |long| {
        // Four threads, and one batch of one record at a time: three have nothing to do.
        let builder = builder(Records::resident(20)).batch_size(1).prefetch(1).decoder(Slow::new(4, None, long));
        whole(&builder.build_blocking().unwrap())
    };
    blamed(ms(5), run, |report| most(report).is_some_and(|(cause, batches)| cause == Cause::Room && batches > 10));
}

#[test]
fn a_file_that_does_not_come_is_named() {
    let run = |long| {
        let (dataset, tracker) = Records::inline(100);
        tracker.close_gate();
        tracker.let_through(57);
        let loader = builder(dataset).batch_size(5).prefetch(2).workers(1).build_blocking().unwrap();
        thread::scope(|scope| {
            let trainer = scope.spawn(|| whole(&loader));
            // The trainer takes what came before it and waits.
            assert!(tracker.wait_for_requests(58, PATIENCE));
            thread::sleep(long);
            tracker.open_gate();
            trainer.join().unwrap()
        })
    };
    let named = Some((Cause::Read, 11, Some("000057.bin")));
    blamed(ms(25), run, |report| worst(report) == named);
}

#[test]
fn a_trainer_that_does_not_come_back_is_told_so() {
    let run = |long: Duration| {
        let builder = builder(Records::resident(20)).batch_size(1).prefetch(1).decoder(Slow::new(1, None, long));
        let mut batches = builder.build_blocking().unwrap().epoch(0);
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..3 {
            let mut next = pin!(batches.next());
            while next.as_mut().poll(&mut context).is_pending() {
                // Its runtime does something else for a while.
                thread::sleep(long * 8);
            }
        }
        batches.report()
    };
    blamed(ms(5), run, |report| most(report).is_some_and(|(cause, _)| cause == Cause::Consumer));
}

#[test]
fn the_first_batch_has_parts_of_its_own_and_is_not_late() {
    let run = |long| {
        let builder = builder(Records::resident(4)).batch_size(4).decoder(Slow::new(1, Some(0), long));
        let mut batches = builder.build_blocking().unwrap().epoch(0).blocking();
        drop(batches.next().unwrap().unwrap());
        let report = batches.report();
        assert!(report.late_batches.is_empty());
        let whole: Duration = report.first_batch_parts.iter().map(|part| part.time).sum();
        assert!(whole <= report.first_batch.unwrap());
        report
    };
    blamed(ms(25), run, |report| {
        report.first_batch_parts.iter().max_by_key(|part| part.time).is_some_and(|most| most.cause == Cause::Decode)
    });
}
