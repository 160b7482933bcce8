//! Late batches are explained: a planted fault is named, with its object, however far ahead the loader was.

use std::{
    future::Future,
    num::NonZeroUsize,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use futures::StreamExt;
use infeed::{
    Device, Report, Result,
    codec::{Class, Decoder, Finished, Job, Outcome, Wait, Worker},
    report::{Cause, Stage},
    transform::Lowered,
};

use crate::support::{
    PATIENCE, builder,
    records::{Records, name},
    store::Fault,
};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A decoder that takes as long for a record as it is told, and says so.
#[derive(Debug)]
struct Slow {
    classes: Vec<Class>,
    takes: fn(u64) -> Duration,
}

impl Slow {
    fn new(workers: usize, takes: fn(u64) -> Duration) -> Arc<Self> {
        let workers = NonZeroUsize::new(workers).expect("at least one");
        Arc::new(Self { classes: vec![Class::new("slow", Device::Cpu, workers)], takes })
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
        Ok(Box::new(SlowWorker { takes: self.takes, done: Vec::new() }))
    }
}

struct SlowWorker {
    takes: fn(u64) -> Duration,
    done: Vec<Finished>,
}

impl Worker for SlowWorker {
    fn submit(&mut self, job: Job) {
        let time: Duration = job.items.iter().map(|item| (self.takes)(item.record)).sum();
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
    let (dataset, tracker) = Records::remote(400);
    tracker.fail(&name(237), Fault::Delay(ms(400)));
    let loader = builder(dataset).batch_size(10).prefetch(3).workers(1).build_blocking().unwrap();
    let mut batches = loader.epoch(0).blocking();
    assert_eq!(batches.by_ref().map(|batch| batch.unwrap().len()).sum::<usize>(), 400);
    let report = batches.report();
    let late = &report.late_batches[0];
    assert_eq!((late.cause, late.epoch, late.batch, late.position), (Cause::Request, 0, 23, 230), "{report:#?}");
    assert_eq!(late.object.as_deref(), Some("tracked://store/000237.bin"));
    assert!(late.wait <= report.data_wait.max.max(late.wait) && late.wait > Duration::ZERO);
    // The others were late for it alone, if at all: the stream waited for this one.
    assert_eq!(report.late_causes[0].cause, Cause::Request);
    let encoded = report.queues.iter().find(|queue| queue.name == "encoded").expect("bytes were read ahead");
    assert!(encoded.max > 0 && encoded.capacity.is_some_and(|most| encoded.max <= most), "{encoded:?}");
}

#[test]
fn a_record_that_decodes_for_long_is_named() {
    let slow = Slow::new(1, |record| if record == 33 { ms(300) } else { ms(0) });
    let dataset = Records::resident(60);
    let loader = builder(dataset).batch_size(1).prefetch(2).decoder(slow).build_blocking().unwrap();
    let mut batches = loader.epoch(0).blocking();
    batches.by_ref().for_each(|batch| drop(batch.unwrap()));
    let report = batches.report();
    let late = &report.late_batches[0];
    assert_eq!(
        (late.cause, late.batch, late.object.as_deref()),
        (Cause::Decode, 33, Some("000033.bin")),
        "{report:#?}"
    );
    // A thread that sleeps uses no processor.
    let decode = stage(&report, Stage::Decode);
    assert!(decode.busy >= ms(300) && decode.cpu * 2 < decode.busy, "{decode:?}");
    assert!(decode.calls >= 1 && stage(&report, Stage::Yield).calls == 60);
}

#[test]
fn decoding_that_is_always_slow_is_to_blame_as_a_whole() {
    let slow = Slow::new(1, |_| ms(10));
    let loader = builder(Records::resident(80)).batch_size(2).prefetch(4).decoder(slow).build_blocking().unwrap();
    let mut batches = loader.epoch(0).blocking();
    batches.by_ref().for_each(|batch| drop(batch.unwrap()));
    let report = batches.report();
    assert_eq!(report.late_causes[0].cause, Cause::Decode, "{report:#?}");
    let jobs = report.queues.iter().find(|queue| queue.name == "jobs").expect("there is a queue");
    assert!(jobs.max >= 1, "jobs wait for the one thread: {jobs:?}");
}

#[test]
fn a_loader_that_may_not_run_ahead_lacks_room() {
    // Four threads, and one batch of one record at a time: three have nothing to do.
    let slow = Slow::new(4, |_| ms(40));
    let loader = builder(Records::resident(20)).batch_size(1).prefetch(1).decoder(slow).build_blocking().unwrap();
    let mut batches = loader.epoch(0).blocking();
    batches.by_ref().for_each(|batch| drop(batch.unwrap()));
    let report = batches.report();
    assert_eq!(report.late_causes[0].cause, Cause::Room, "{report:#?}");
    assert!(report.late_causes[0].batches > 10);
}

#[test]
fn a_file_that_does_not_come_is_named() {
    let (dataset, tracker) = Records::inline(100);
    tracker.close_gate();
    tracker.let_through(57);
    let loader = builder(dataset).batch_size(5).prefetch(2).workers(1).build_blocking().unwrap();
    let report = thread::scope(|scope| {
        let trainer = scope.spawn(|| {
            let mut batches = loader.epoch(0).blocking();
            batches.by_ref().for_each(|batch| drop(batch.unwrap()));
            batches.report()
        });
        // The trainer took what came before it and waits.
        assert!(tracker.wait_for_requests(58, PATIENCE));
        thread::sleep(ms(200));
        tracker.open_gate();
        trainer.join().unwrap()
    });
    let late = &report.late_batches[0];
    assert_eq!((late.cause, late.batch, late.object.as_deref()), (Cause::Read, 11, Some("000057.bin")), "{report:#?}");
}

#[test]
fn a_trainer_that_does_not_come_back_is_told_so() {
    let slow = Slow::new(1, |_| ms(50));
    let loader = builder(Records::resident(20)).batch_size(1).prefetch(1).decoder(slow).build_blocking().unwrap();
    let mut batches = loader.epoch(0);
    let mut context = Context::from_waker(Waker::noop());
    let mut left = 0;
    for _ in 0..20 {
        let mut next = pin!(batches.next());
        if next.as_mut().poll(&mut context).is_pending() {
            left += 1;
            // Its runtime does something else for a while.
            while {
                thread::sleep(ms(400));
                matches!(next.as_mut().poll(&mut context), Poll::Pending)
            } {}
        }
        if left == 3 {
            break;
        }
    }
    let report = batches.report();
    assert_eq!(report.late_causes[0].cause, Cause::Consumer, "{report:#?}");
}

#[test]
fn the_first_batch_has_parts_of_its_own_and_is_not_late() {
    let slow = Slow::new(1, |record| if record == 0 { ms(100) } else { ms(0) });
    let loader = builder(Records::resident(4)).batch_size(4).decoder(slow).build_blocking().unwrap();
    let mut batches = loader.epoch(0).blocking();
    drop(batches.next().unwrap().unwrap());
    let report = batches.report();
    let most = report.first_batch_parts.iter().max_by_key(|part| part.time).expect("it has parts");
    assert_eq!(most.cause, Cause::Decode, "{report:#?}");
    assert!(report.late_batches.is_empty());
    let whole: Duration = report.first_batch_parts.iter().map(|part| part.time).sum();
    assert!(whole <= report.first_batch.unwrap());
}
