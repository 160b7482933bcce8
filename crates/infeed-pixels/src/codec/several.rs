//! One decoder for several devices. They share the threads that read; each device has its other classes for itself.
//!
//! ```text
//! parts:    cuda:0 [cpu, hardware, hybrid]      cuda:1 [cpu, hardware, hybrid]      one for each device
//!              └──────┐      │       └────────┐    │      │         └──────┐
//! classes:           cpu   hardware:0   hybrid:0   └ cpu  hardware:1   hybrid:1     the one that reads is merged
//! ```
//!
//! A thread that reads holds a worker of every part, so any idle thread decodes for any device, and one pool of threads
//! serves devices of different speeds. The cost: each of these threads holds the scratch of each part (page-locked
//! memory, and the pixels of an image once it has decoded one for that device).

use std::{num::NonZeroUsize, sync::Arc};

use infeed_core::{
    error::{Error, ErrorKind, Result},
    types::Device,
};

use super::{Class, ClassSet, Decoder, Finished, Item, Job, Outcome, Wait, Worker};
use crate::transform::Lowered;

/// One decoder made of parts, one for each device. Each part has exactly one class that reads.
#[derive(Debug)]
pub struct Several {
    /// The first class is the one that reads.
    classes: Vec<Class>,
    parts: Vec<DeviceDecoder>,
}

#[derive(Clone, Debug)]
struct DeviceDecoder {
    device: Device,
    decoder: Arc<dyn Decoder>,
    /// For each class of the part, its index among all classes.
    places: Vec<usize>,
}

impl Several {
    /// `threads` is the number of threads that read; the parts' own numbers are ignored. Decisions that a part bases on
    /// its own number are for its share of `threads`.
    pub fn new(threads: NonZeroUsize, parts: Vec<(Device, Arc<dyn Decoder>)>) -> Self {
        let mut classes: Vec<Class> = Vec::new();
        let mut all = Vec::new();
        for (device, decoder) in parts {
            let mut places = Vec::new();
            for class in decoder.classes() {
                match classes.first_mut() {
                    // A part never gets more jobs than it can take: all parts together have as many in progress as one
                    // alone.
                    Some(first) if class.reads => {
                        first.batch = first.batch.max(class.batch);
                        places.push(0);
                    }
                    _ => {
                        debug_assert!(class.reads || !classes.is_empty(), "the class that reads comes first");
                        let workers = if class.reads { threads } else { class.workers };
                        places.push(classes.len());
                        classes.push(Class { workers, ..class.clone() });
                    }
                }
            }
            all.push(DeviceDecoder { device, decoder, places });
        }
        Self { classes, parts: all }
    }

    fn part(&self, device: Device) -> Option<&DeviceDecoder> {
        self.parts.iter().find(|part| part.device == device)
    }

    /// Sums a value over the parts for a worker of `class`.
    fn sum(&self, class: usize, of: impl Fn(&dyn Decoder, usize) -> u64) -> u64 {
        let own = |part: &DeviceDecoder| part.own(class).map_or(0, |own| of(&*part.decoder, own));
        self.parts.iter().map(own).fold(0, u64::saturating_add)
    }
}

impl DeviceDecoder {
    /// The index within this part of a class.
    fn own(&self, class: usize) -> Option<usize> {
        self.places.iter().position(|place| *place == class)
    }

    /// A set of the part's classes as a set of all classes.
    fn all(&self, own: ClassSet) -> ClassSet {
        let places = self.places.iter().enumerate().filter(|(class, _)| own.contains(*class));
        ClassSet(places.fold(0, |set, (_, place)| set | ClassSet::only(*place).0))
    }

    fn hand(&self, class: usize, n: usize, programs: &Arc<[Option<Lowered>]>) -> Result<Hand> {
        let worker =
            self.decoder.worker(class, n, programs).map_err(|error| error.at_object(self.device.to_string()))?;
        Ok(Hand { part: self.clone(), worker, jobs: 0 })
    }
}

impl Decoder for Several {
    fn name(&self) -> &'static str {
        let mut names = self.parts.iter().map(|part| part.decoder.name());
        let first = names.next().unwrap_or("several");
        if names.all(|name| name == first) { first } else { "several" }
    }

    fn classes(&self) -> &[Class] {
        &self.classes
    }

    fn route(&self, item: &mut Item) -> ClassSet {
        self.part(item.device).map_or(ClassSet::NONE, |part| part.all(part.decoder.route(item)))
    }

    fn scratch_bytes(&self, class: usize) -> u64 {
        self.sum(class, |part, own| part.scratch_bytes(own))
    }

    fn device_bytes(&self, class: usize) -> u64 {
        self.sum(class, |part, own| part.device_bytes(own))
    }

    fn worker(&self, class: usize, n: usize, programs: &Arc<[Option<Lowered>]>) -> Result<Box<dyn Worker>> {
        let hands = self.parts.iter().filter_map(|part| Some(part.hand(part.own(class)?, n, programs)));
        Ok(Box::new(SeveralWorker { hands: hands.collect::<Result<_>>()?, turn: 0, lost: Vec::new() }))
    }
}

/// A worker of one part.
struct Hand {
    part: DeviceDecoder,
    worker: Box<dyn Worker>,
    /// Jobs that it has not returned yet.
    jobs: usize,
}

impl Hand {
    fn poll(&mut self, wait: Wait) -> Vec<Finished> {
        if self.jobs == 0 {
            return Vec::new();
        }
        let mut finished = self.worker.poll(wait);
        self.jobs = self.jobs.saturating_sub(finished.len());
        for outcome in finished.iter_mut().flat_map(|finished| &mut finished.outcomes) {
            if let Outcome::Elsewhere(classes) = outcome {
                *classes = self.part.all(*classes);
            }
        }
        finished
    }
}

/// Gives each job to the worker of its device.
struct SeveralWorker {
    hands: Vec<Hand>,
    /// The hand to wait for next.
    turn: usize,
    /// Jobs for an unknown device.
    lost: Vec<Finished>,
}

impl Worker for SeveralWorker {
    fn submit(&mut self, job: Job) {
        let device = job.items.first().map(|item| item.device);
        if let Some(hand) = self.hands.iter_mut().find(|hand| Some(hand.part.device) == device) {
            hand.jobs += 1;
            return hand.worker.submit(job);
        }
        let error = || Error::new(ErrorKind::Internal, "a job for a device that the decoder does not serve");
        let outcomes = job.items.iter().map(|_| Outcome::Failed(error())).collect();
        self.lost.push(Finished::new(job, outcomes));
    }

    fn poll(&mut self, wait: Wait) -> Vec<Finished> {
        let mut finished = std::mem::take(&mut self.lost);
        self.hands.iter_mut().for_each(|hand| finished.extend(hand.poll(Wait::Now)));
        if wait == Wait::Now || !finished.is_empty() {
            return finished;
        }
        // Waits for one part, in turn: a slow device then delays the others by no longer than one worker may wait. If
        // one part has all the jobs that the thread can take, the others have none to wait for.
        let hands = self.hands.len();
        let waiting = (0..hands).map(|n| (self.turn + n) % hands).find(|at| self.hands[*at].jobs > 0);
        let Some(at) = waiting else { return finished };
        self.turn = (at + 1) % hands;
        self.hands[at].poll(Wait::Block)
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, rc::Rc};

    use super::*;
    use infeed_core::{random::SampleRng, rows::Rows};
    use infeed_data::Sample;

    /// A class that reads and others that do not; routes an image to the classes that its record number names.
    #[derive(Debug)]
    struct Fake {
        classes: Vec<Class>,
    }

    thread_local! {
        /// What workers did: device, class, record.
        static DONE: RefCell<Vec<(Device, usize, u64)>> = const { RefCell::new(Vec::new()) };
    }

    impl Fake {
        fn part(device: Device, others: &[usize], batch: usize) -> Arc<dyn Decoder> {
            let number = |n| NonZeroUsize::new(n).unwrap();
            let reads = Class { batch: number(batch), ..Class::new("cpu", device, number(2)) };
            let other = |n: &usize| Class { reads: false, batch: number(8), ..Class::new("other", device, number(*n)) };
            Arc::new(Self { classes: [reads].into_iter().chain(others.iter().map(other)).collect() })
        }
    }

    impl Decoder for Fake {
        fn name(&self) -> &'static str {
            "fake"
        }
        fn classes(&self) -> &[Class] {
            &self.classes
        }
        fn route(&self, item: &mut Item) -> ClassSet {
            ClassSet(item.record as u32)
        }
        fn scratch_bytes(&self, class: usize) -> u64 {
            10 + class as u64
        }
        fn device_bytes(&self, class: usize) -> u64 {
            100 + class as u64
        }
        fn worker(&self, class: usize, _n: usize, _programs: &Arc<[Option<Lowered>]>) -> Result<Box<dyn Worker>> {
            Ok(Box::new(FakeWorker { device: self.classes[0].device, class, jobs: Rc::default() }))
        }
    }

    /// Finishes one job in each poll that may wait, and none in other polls.
    struct FakeWorker {
        device: Device,
        class: usize,
        jobs: Rc<RefCell<Vec<Job>>>,
    }

    impl Worker for FakeWorker {
        fn submit(&mut self, job: Job) {
            self.jobs.borrow_mut().push(job);
        }
        fn poll(&mut self, wait: Wait) -> Vec<Finished> {
            if wait == Wait::Now {
                return Vec::new();
            }
            assert!(!self.jobs.borrow().is_empty(), "asked to wait for nothing");
            let job = self.jobs.borrow_mut().remove(0);
            DONE.with_borrow_mut(|done| done.push((self.device, self.class, job.items[0].record)));
            let outcomes = job.items.iter().map(|_| Outcome::Elsewhere(ClassSet(0b101))).collect();
            vec![Finished::new(job, outcomes)]
        }
    }

    fn item(device: Device, record: u64) -> Item {
        Item { device, ..Item::new(record, SampleRng::new(0, 0, record), Ok(Sample::new([]))) }
    }

    fn job(tag: u64, device: Device) -> Job {
        Job::new(tag, vec![item(device, tag)], vec![Rows::zeroed(1, 4).unwrap()])
    }

    const GPUS: [Device; 3] = [Device::Cuda(0), Device::Cuda(5), Device::Cuda(1)];

    fn three() -> Several {
        let parts = [Fake::part(GPUS[0], &[1, 3], 3), Fake::part(GPUS[1], &[], 1), Fake::part(GPUS[2], &[1, 2], 3)];
        Several::new(NonZeroUsize::new(7).unwrap(), GPUS.into_iter().zip(parts).collect())
    }

    #[test]
    fn classes_that_read_are_one_and_the_others_stay_apart() {
        let all = three();
        let seen: Vec<_> = all.classes().iter().map(|c| (c.device, c.workers.get(), c.batch.get(), c.reads)).collect();
        let other = |device, workers| (device, workers, 8, false);
        assert_eq!(
            seen,
            [(GPUS[0], 7, 3, true), other(GPUS[0], 1), other(GPUS[0], 3), other(GPUS[2], 1), other(GPUS[2], 2)]
        );
        // A thread that reads holds the scratch of every part.
        let bytes = |class| (all.scratch_bytes(class), all.device_bytes(class));
        assert_eq!((0..5).map(bytes).collect::<Vec<_>>(), [(30, 300), (11, 101), (12, 102), (11, 101), (12, 102)]);
        assert_eq!(all.name(), "fake");
    }

    #[test]
    fn an_image_goes_to_the_classes_of_its_own_device() {
        let all = three();
        let route = |device, set| all.route(&mut item(device, set)).0;
        assert_eq!([0b001, 0b010, 0b111].map(|set| route(GPUS[0], set)), [0b00001, 0b00010, 0b00111]);
        assert_eq!([0b001, 0b010, 0b111].map(|set| route(GPUS[1], set)), [0b00001, 0, 0b00001]);
        assert_eq!([0b001, 0b110, 0xffff].map(|set| route(GPUS[2], set)), [0b00001, 0b11000, 0b11001]);
        assert_eq!(route(Device::Cpu, 0b111), 0, "nobody works for it");
    }

    #[test]
    fn a_thread_that_reads_works_for_all_and_waits_for_each_in_turn() {
        let all = three();
        let mut worker = all.worker(0, 4, &Vec::new().into()).unwrap();
        assert!(worker.poll(Wait::Block).is_empty(), "nothing in hand");
        [(1, 2), (2, 2), (3, 2), (4, 0), (5, 1)].into_iter().for_each(|(tag, at)| worker.submit(job(tag, GPUS[at])));
        assert!(worker.poll(Wait::Now).is_empty());
        let done: Vec<Finished> = (0..5).flat_map(|_| worker.poll(Wait::Block)).collect();
        assert_eq!(done.iter().map(|done| done.job.tag).collect::<Vec<_>>(), [4, 5, 1, 2, 3]);
        // The part's own indices of these classes are 0 and 2.
        let sets = done.iter().map(|done| match done.outcomes[..] {
            [Outcome::Elsewhere(ClassSet(set))] => set,
            _ => panic!("{done:?}"),
        });
        assert_eq!(sets.collect::<Vec<_>>(), [0b00101, 0b00001, 0b10001, 0b10001, 0b10001]);
        worker.submit(job(6, Device::Cpu));
        let unknown = worker.poll(Wait::Block);
        assert!(matches!(&unknown[0].outcomes[..], [Outcome::Failed(error)] if error.kind() == ErrorKind::Internal));
    }

    #[test]
    fn the_threads_of_a_device_work_for_it_alone() {
        let all = three();
        for (class, device, own) in [(1, GPUS[0], 1), (2, GPUS[0], 2), (3, GPUS[2], 1), (4, GPUS[2], 2)] {
            let mut worker = all.worker(class, 0, &Vec::new().into()).unwrap();
            worker.submit(job(9, device));
            assert_eq!(worker.poll(Wait::Block).len(), 1);
            assert_eq!(DONE.with_borrow_mut(Vec::pop), Some((device, own, 9)));
        }
    }
}
