//! The queue, the gate, the reads under way and the permits of the engine under thousands of schedules.
//!
//! ```text
//! ../../src/engine/{queue,gate,under_way,permits}.rs ─ build.rs ─▶ the same text over shuttle's primitives ─▶ models, below
//! ```
//!
//! [shuttle](https://docs.rs/shuttle) runs threads one at a time and decides at each lock, atomic and wake-up who goes on.
//! A model ends with all its threads: one that waits for a wake-up that never comes is found as a deadlock. What fails
//! prints its schedule, which `shuttle::replay` repeats.

#[allow(dead_code, reason = "as much of the two as the files under test may need")]
mod checked;
mod stubs;

use std::{collections::HashSet, num::NonZeroUsize, time::Instant};

use shuttle::{
    future::block_on,
    rand::{Rng, thread_rng},
    sync::{
        Arc, Barrier,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Sender, channel},
    },
    thread,
};
use stubs::codec;
pub(crate) use stubs::{error, source};

macro_rules! under_test {
    ($($name:ident)*) => {$(
        #[allow(dead_code, reason = "models use a part of it")]
        mod $name {
            include!(concat!(env!("OUT_DIR"), "/", stringify!($name), ".rs"));
        }
    )*};
}

/// Where the files find each other, as in the crate.
mod engine {
    under_test! { gate permits queue under_way }

    /// A job that is known by its number.
    #[derive(Debug, PartialEq, Eq)]
    pub(crate) struct Job {
        pub(crate) number: usize,
        pub(crate) allowed: crate::codec::ClassSet,
        pub(crate) lane: usize,
    }

    impl queue::Queued for Job {
        fn allowed(&self) -> crate::codec::ClassSet {
            self.allowed
        }

        fn encoded_bytes(&self) -> u64 {
            1
        }

        fn lane(&self) -> usize {
            self.lane
        }

        fn cpu_may(&self) -> bool {
            true
        }

        fn engines_may(&self) -> bool {
            true
        }
    }

    pub(crate) use gate::Gate;
    pub(crate) use permits::RowPermits;
    pub(crate) use queue::Queue;
    pub(crate) use under_way::UnderWay;
}

use codec::{Class, ClassSet};
use engine::{Gate, Job, Queue, RowPermits, UnderWay};

type Model = fn();

const MODELS: [(&str, Model); 11] = [
    ("queue: every job is taken once, in order, and all threads end", jobs_are_taken_once),
    ("queue: threads that park and come back lose no wake-up", threads_park),
    ("queue: threads that come back work beside the others", threads_come_back),
    ("queue: jobs that are given back reach the class that may take them", jobs_are_given_back),
    ("queue: engines of two devices get what is theirs, and all of it", devices_get_their_own),
    ("queue: jobs of a stream that is gone are forgotten, the others are done", jobs_are_forgotten),
    ("gate: nothing begins once it was closed", nothing_begins_behind_the_gate),
    ("gate: whoever waits wakes when it closes", the_gate_wakes),
    ("reads: none begins once they are closed", no_read_begins_once_they_are_closed),
    ("permits: as many as there are, whatever grows and shrinks", permits_hold),
    ("permits: shrinking that is given up loses none", shrinking_is_given_up),
];

fn main() {
    let schedules = std::env::args().nth(1).map_or(2000, |n| n.parse().expect("a number of schedules"));
    for (name, model) in MODELS {
        let began = Instant::now();
        shuttle::check_random(model, schedules);
        // Few changes between threads find what a random walk seldom does.
        shuttle::check_pct(model, schedules, 3);
        println!("{name}: {} schedules, {:.1} s", 2 * schedules, began.elapsed().as_secs_f64());
    }
}

fn class(workers: usize, batch: usize, reads: bool) -> Class {
    let number = |n| NonZeroUsize::new(n).expect("not 0");
    Class { workers: number(workers), batch: number(batch), reads }
}

fn job(number: usize, allowed: ClassSet) -> Job {
    Job { number, allowed, lane: 0 }
}

/// The queue of one loader.
fn queue(classes: &[Class]) -> Arc<Queue<Job>> {
    Arc::new(Queue::new(classes, vec![0; classes.len()], vec![0]))
}

/// Takes jobs of a class until the queue says to end, and tells of each; gives their numbers.
fn drain(queue: &Queue<Job>, class: usize, n: usize, done: &Sender<usize>) -> Vec<usize> {
    let mut taken = Vec::new();
    queue.entered(class);
    while let Some((job, _)) = queue.pop(class, n, true) {
        taken.push(job.number);
        done.send(job.number).expect("the model waits");
    }
    taken
}

/// Threads that drain a queue of one class, and what they tell.
fn workers(queue: &Arc<Queue<Job>>, done: &Sender<usize>, threads: usize) -> Vec<thread::JoinHandle<Vec<usize>>> {
    let start = |n| {
        let (queue, done) = (Arc::clone(queue), done.clone());
        thread::spawn(move || drain(&queue, 0, n, &done))
    };
    (0..threads).map(start).collect()
}

fn jobs_are_taken_once() {
    const JOBS: usize = 6;
    let queue = queue(&[class(2, 1, true)]);
    let (tell, done) = channel();
    let workers = workers(&queue, &tell, 2);
    (0..JOBS).for_each(|number| queue.push(job(number, ClassSet::ALL)));
    assert_eq!(done.iter().take(JOBS).count(), JOBS);
    queue.close();
    let taken: Vec<Vec<usize>> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
    assert!(taken.iter().all(|taken| taken.is_sorted()), "each thread takes them in order: {taken:?}");
    let all: HashSet<usize> = taken.iter().flatten().copied().collect();
    assert_eq!((all.len(), taken.iter().map(Vec::len).sum::<usize>()), (JOBS, JOBS), "{taken:?}");
}

fn threads_park() {
    const JOBS: usize = 5;
    let queue = queue(&[class(2, 1, true)]);
    let (tell, done) = channel();
    let start = |n: usize| {
        let (queue, tell) = (Arc::clone(&queue), tell.clone());
        thread::spawn(move || drain(&queue, 0, n, &tell))
    };
    let mut workers: Vec<_> = (0..2).map(start).collect();
    let pusher = {
        let queue = Arc::clone(&queue);
        thread::spawn(move || (0..JOBS).for_each(|number| queue.push(job(number, ClassSet::ALL))))
    };
    for _ in 0..3 {
        // One to three: beyond the two that it was built for, threads are started and end again.
        let missing = queue.set_active(thread_rng().gen_range(1..4usize));
        workers.extend(missing.into_iter().map(start));
    }
    pusher.join().unwrap();
    assert_eq!(done.iter().take(JOBS).count(), JOBS);
    queue.close();
    let taken: Vec<usize> = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
    assert_eq!((taken.iter().collect::<HashSet<_>>().len(), taken.len()), (JOBS, JOBS), "{taken:?}");
}

fn threads_come_back() {
    let queue = queue(&[class(2, 1, true)]);
    // Each job waits for the other: one thread alone can't do them.
    let together = Arc::new(Barrier::new(2));
    let (tell, done) = channel();
    let workers: Vec<_> = (0..2)
        .map(|n| {
            let (queue, together, tell) = (Arc::clone(&queue), Arc::clone(&together), tell.clone());
            thread::spawn(move || {
                queue.entered(0);
                while let Some((job, _)) = queue.pop(0, n, true) {
                    together.wait();
                    tell.send(job.number).expect("the model waits");
                }
            })
        })
        .collect();
    queue.set_active(1);
    assert!(queue.set_active(2).is_empty(), "both are there");
    (0..2).for_each(|number| queue.push(job(number, ClassSet::ALL)));
    assert_eq!(done.iter().take(2).count(), 2);
    queue.close();
    workers.into_iter().for_each(|worker| worker.join().unwrap());
}

fn jobs_are_given_back() {
    const JOBS: usize = 4;
    // Class 0 reads and routes, class 1 is an engine that refuses every second job.
    let queue = queue(&[class(1, 1, true), class(1, 1, false)]);
    let (tell, done) = channel();
    let (reader, engine) = (ClassSet::only(0), ClassSet::only(1));
    let workers: Vec<_> = (0..2)
        .map(|class| {
            let (queue, tell) = (Arc::clone(&queue), tell.clone());
            thread::spawn(move || {
                queue.entered(class);
                while let Some((taken, _)) = queue.pop(class, 0, true) {
                    assert!(taken.allowed.contains(class), "{taken:?} for class {class}");
                    match class {
                        0 if taken.allowed == ClassSet::ALL => queue.push_ready([job(taken.number, engine)]),
                        1 if taken.number % 2 == 1 => queue.push_front(job(taken.number, reader)),
                        _ => tell.send(taken.number).expect("the model waits"),
                    }
                }
            })
        })
        .collect();
    (0..JOBS).for_each(|number| queue.push(job(number, ClassSet::ALL)));
    let mut taken: Vec<usize> = (0..JOBS).map(|_| done.recv().expect("a job is done")).collect();
    queue.close();
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    taken.sort_unstable();
    assert_eq!(taken, (0..JOBS).collect::<Vec<_>>());
}

fn devices_get_their_own() {
    const JOBS: usize = 6;
    // Two threads of class 0 read for both; classes 1 and 2 are the engines of a device each, which take one at a time.
    let classes = [class(2, 1, true), class(1, 1, false), class(1, 1, false)];
    let queue = Arc::new(Queue::<Job>::new(&classes, vec![0, 0, 1], vec![0, 1]));
    let (tell, done) = channel();
    let workers: Vec<_> = [(0, 0), (0, 1), (1, 0), (2, 0)]
        .map(|(class, n)| {
            let (queue, tell) = (Arc::clone(&queue), tell.clone());
            thread::spawn(move || {
                queue.entered(class);
                while let Some((taken, _)) = queue.pop(class, n, true) {
                    let engine = ClassSet::only(1 + taken.lane);
                    match class {
                        // Every third may be decoded by either, the others by the engine alone.
                        0 if taken.allowed == ClassSet::ALL => {
                            let both = ClassSet(engine.0 | 1);
                            let allowed = if taken.number % 3 == 0 { both } else { engine };
                            queue.push_ready([Job { allowed, ..taken }]);
                        }
                        _ => {
                            assert!(class == 0 || class == 1 + taken.lane, "{taken:?} for class {class}");
                            tell.send(taken.number).expect("the model waits");
                        }
                    }
                }
            })
        })
        .into_iter()
        .collect();
    (0..JOBS).for_each(|number| queue.push(Job { lane: number % 2, ..job(number, ClassSet::ALL) }));
    let mut taken: Vec<usize> = (0..JOBS).map(|_| done.recv().expect("a job is done")).collect();
    queue.close();
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    taken.sort_unstable();
    assert_eq!(taken, (0..JOBS).collect::<Vec<_>>());
}

fn jobs_are_forgotten() {
    const JOBS: usize = 6;
    let is_gone = |number: usize| number % 2 == 1;
    let queue = queue(&[class(2, 1, true)]);
    let (tell, done) = channel();
    let workers = workers(&queue, &tell, 2);
    (0..JOBS).for_each(|number| queue.push(job(number, ClassSet::ALL)));
    queue.forget(|job| is_gone(job.number));
    let mut left: HashSet<usize> = (0..JOBS).filter(|number| !is_gone(*number)).collect();
    while !left.is_empty() {
        // One that is gone may have been taken before.
        left.remove(&done.recv().expect("those of other streams are done"));
    }
    queue.close();
    let taken: Vec<usize> = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
    assert_eq!(taken.iter().collect::<HashSet<_>>().len(), taken.len(), "{taken:?}");
}

fn nothing_begins_behind_the_gate() {
    let gate = Arc::new(Gate::default());
    let began = Arc::new(AtomicUsize::new(0));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (gate, began) = (Arc::clone(&gate), Arc::clone(&began));
            thread::spawn(move || {
                for _ in 0..4 {
                    if let Some(_open) = gate.pass() {
                        began.fetch_add(1, Ordering::SeqCst);
                    }
                }
            })
        })
        .collect();
    gate.close();
    let before = began.load(Ordering::SeqCst);
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    assert_eq!(began.load(Ordering::SeqCst), before, "a read began behind the gate");
    assert!(gate.is_closed());
}

fn no_read_begins_once_they_are_closed() {
    let reads = Arc::new(UnderWay::default());
    let opened = Arc::new(AtomicUsize::new(0));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (reads, opened) = (Arc::clone(&reads), Arc::clone(&opened));
            thread::spawn(move || {
                for _ in 0..3 {
                    let Some(reading) = reads.begin(()) else { break };
                    opened.fetch_add(1, Ordering::SeqCst);
                    reading.begun();
                    thread::yield_now();
                }
            })
        })
        .collect();
    // Time does not pass here: it waits for as long as it takes.
    reads.close(std::time::Duration::from_secs(3600));
    let before = opened.load(Ordering::SeqCst);
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    assert_eq!(opened.load(Ordering::SeqCst), before, "a file was opened behind the end");
    let mut left = 0;
    reads.each(|_, ()| left += 1);
    assert!(left == 0 && reads.begin(()).is_none());
}

fn the_gate_wakes() {
    let gate = Arc::new(Gate::default());
    let waiters: Vec<_> = (0..3)
        .map(|_| {
            let gate = Arc::clone(&gate);
            thread::spawn(move || block_on(gate.closed()))
        })
        .collect();
    gate.close();
    waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    // Whoever comes late does not wait.
    block_on(gate.closed());
}

/// Batches that take a permit and give it back; at no time are more out than there are.
fn batches(permits: &Arc<RowPermits>, out: &Arc<AtomicUsize>, most: usize) -> Vec<thread::JoinHandle<()>> {
    (0..3)
        .map(|_| {
            let (permits, out) = (Arc::clone(permits), Arc::clone(out));
            thread::spawn(move || {
                for _ in 0..2 {
                    let permit = block_on(permits.acquire()).expect("nobody closes it");
                    let now = out.fetch_add(1, Ordering::SeqCst) + 1;
                    assert!(now <= most, "{now} are out of {most}");
                    thread::yield_now();
                    out.fetch_sub(1, Ordering::SeqCst);
                    drop(permit);
                }
            })
        })
        .collect()
}

fn permits_hold() {
    const MOST: usize = 3;
    let permits = Arc::new(RowPermits::new(2));
    let out = Arc::new(AtomicUsize::new(0));
    let batches = batches(&permits, &out, MOST);
    for _ in 0..3 {
        let to = thread_rng().gen_range(0..MOST + 1);
        if to > permits.size() {
            permits.grow_to(to);
        } else {
            block_on(permits.shrink_to(to));
        }
        assert_eq!(permits.size(), to.max(1));
        assert!(out.load(Ordering::SeqCst) <= to.max(1), "more are out than are left");
    }
    batches.into_iter().for_each(|batch| batch.join().unwrap());
    assert_eq!(permits.free(), permits.size(), "all came back");
}

fn shrinking_is_given_up() {
    const MOST: usize = 3;
    let permits = Arc::new(RowPermits::new(MOST));
    let out = Arc::new(AtomicUsize::new(0));
    let batches = batches(&permits, &out, MOST);
    let shrinking: Vec<_> = (1..3)
        .map(|to| {
            let permits = Arc::clone(&permits);
            shuttle::future::spawn(async move { permits.shrink_to(to).await })
        })
        .collect();
    thread::yield_now();
    // Dropped wherever it is: a permit that it holds goes back, one that it has made away with is counted.
    shrinking.iter().for_each(shuttle::future::JoinHandle::abort);
    batches.into_iter().for_each(|batch| batch.join().unwrap());
    for task in shrinking {
        let _ = block_on(task);
    }
    assert!((1..=MOST).contains(&permits.size()));
    assert_eq!(permits.free(), permits.size(), "all came back");
}
