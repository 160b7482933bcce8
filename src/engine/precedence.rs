//! Whether CPU threads or the engines of a GPU decode an image first, if both can.
//!
//! ```text
//! engines, too ─────── this many batches without a wait ─────▶ CPU threads alone
//!         ▲                                                       │
//!         └──────────────── the trainer waits ────────────────────┘
//! ```
//!
//! An image on the engines costs a fifth of the CPU time, but slows the trainer down: ResNet-50 on an H200 took 58.7 ms
//! a step with engines, 55.06 ms by this rule, and 54.93 ms on a ready batch
//! (`benches/results/2026-11-27-gpu-days.md`). So by default the engines are used only if CPU threads are not enough,
//! that is, if the trainer waits. Whether CPU threads are enough again shows only after the engines are given up; so
//! they are kept longer each time.
//!
//! With `decode = "gpu"` engines come first, and CPU threads help while the trainer waits or no complete batch is
//! ready. With a user's decoder no class comes first: its routes determine the classes.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// Engines are given up after this many batches without a wait: enough that a short stall of the machine is over.
const PATIENCE: u32 = 32;
/// The maximum, if the trainer waited each time after they were given up.
const MOST_PATIENCE: u32 = 2048;

/// Which class decodes samples that both can decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum First {
    /// Any idle class.
    Nobody,
    /// CPU threads, while they keep the trainer's pace.
    Threads,
    /// Engines of a GPU; CPU threads help if the engines are too slow.
    Engines,
}

/// The precedence of a stream.
#[derive(Debug)]
pub(super) struct Precedence {
    first: First,
    /// Whether engines may decode.
    engines: AtomicBool,
    /// Whether the trainer waits for an incomplete batch (later batches may be complete).
    waits: AtomicBool,
    /// Batches in a row for which the trainer did not wait.
    calm: AtomicU32,
    patience: AtomicU32,
}

impl Precedence {
    pub(super) const fn new(first: First) -> Self {
        Self {
            first,
            // The trainer always waits for the first batch.
            engines: AtomicBool::new(true),
            waits: AtomicBool::new(false),
            calm: AtomicU32::new(0),
            patience: AtomicU32::new(PATIENCE),
        }
    }

    /// The trainer waits for a batch. Returns whether a further class may decode now.
    pub(super) fn waits(&self) -> bool {
        if self.waits.swap(true, Relaxed) {
            return false;
        }
        self.calm.store(0, Relaxed);
        if self.engines.swap(true, Relaxed) {
            return self.first == First::Engines;
        }
        let patience = self.patience.load(Relaxed);
        self.patience.store(patience.saturating_mul(2).min(MOST_PATIENCE), Relaxed);
        true
    }

    /// The trainer got a batch; `left` complete ones remain. Returns whether a further class may decode now.
    pub(super) fn got(&self, left: usize) -> bool {
        if !self.waits.swap(false, Relaxed) {
            let calm = self.calm.fetch_add(1, Relaxed).saturating_add(1);
            if self.first == First::Threads && calm >= self.patience.load(Relaxed) {
                self.engines.store(false, Relaxed);
            }
        }
        self.first == First::Engines && left == 0
    }

    /// Whether threads that read may decode what engines can, if this many complete batches are ready.
    pub(super) fn cpu_may(&self, whole: usize) -> bool {
        self.first != First::Engines || whole == 0 || self.waits.load(Relaxed)
    }

    /// Whether engines may decode what CPU threads can.
    pub(super) fn engines_may(&self) -> bool {
        self.engines.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_asked_while_cpu_threads_are_not_enough() {
        let precedence = Precedence::new(First::Threads);
        assert!(precedence.engines_may() && precedence.cpu_may(9), "at first");
        let calm = |batches: u32| (0..batches).for_each(|_| assert!(!precedence.got(1)));
        assert!(!precedence.waits(), "they are asked already");
        precedence.got(0);
        calm(PATIENCE - 1);
        assert!(precedence.engines_may());
        calm(1);
        assert!(!precedence.engines_may() && precedence.cpu_may(0), "the trainer has not waited for long");
        let mut patience = PATIENCE;
        while patience < MOST_PATIENCE {
            assert!(precedence.waits() && precedence.engines_may(), "it waits: who sleeps has to be woken");
            assert!(!precedence.waits(), "once");
            precedence.got(0);
            patience *= 2;
            calm(patience - 1);
            assert!(precedence.engines_may(), "for longer than the last time");
            calm(1);
            assert!(!precedence.engines_may());
        }
    }

    #[test]
    fn engines_come_first_where_the_gpu_is_to_decode() {
        let precedence = Precedence::new(First::Engines);
        assert!(precedence.cpu_may(0) && !precedence.cpu_may(1));
        assert!(precedence.waits() && precedence.cpu_may(1), "it waits for one, and a later one is whole");
        assert!(!precedence.got(1) && precedence.got(0));
        (0..9 * MOST_PATIENCE).for_each(|_| assert!(!precedence.got(3)));
        assert!(precedence.engines_may());
    }

    /// Simulates threads that read and engines of a given speed with a trainer of a given pace, in virtual time.
    mod simulated {
        use std::{cell::Cell, num::NonZeroUsize, rc::Rc};

        use infeed_core::types::Device;
        use infeed_pixels::codec::{Class, ClassSet};

        use super::super::{
            super::queue::{Queue, Queued},
            First, Precedence,
        };

        const THREADS: usize = 4;
        const READ: u64 = 10;
        const DECODE: u64 = 190;
        const ENGINES: u64 = 30;
        const ROWS: u64 = 16;
        const AHEAD: u64 = 4;

        struct Stream {
            precedence: Precedence,
            whole: Cell<usize>,
        }

        struct Job {
            stream: Rc<Stream>,
            batch: u64,
            read: bool,
        }

        impl Queued for Job {
            fn allowed(&self) -> ClassSet {
                ClassSet::ALL
            }
            fn encoded_bytes(&self) -> u64 {
                u64::from(self.read)
            }
            fn lane(&self) -> usize {
                0
            }
            fn cpu_may(&self) -> bool {
                self.stream.precedence.cpu_may(self.stream.whole.get())
            }
            fn engines_may(&self) -> bool {
                self.stream.precedence.engines_may()
            }
        }

        /// Samples per unit of time, the engines' share of them, and the share of time that the trainer waited, without
        /// the start.
        pub(super) fn run(first: First, step: u64) -> [f64; 3] {
            let class = |reads, threads, batch| {
                let mut class = Class::new("simulated", Device::Cpu, NonZeroUsize::new(threads).unwrap());
                (class.reads, class.batch) = (reads, NonZeroUsize::new(batch).unwrap());
                class
            };
            let queue = Queue::new(&[class(true, THREADS, 1), class(false, 1, 8)], vec![0, 0], vec![0]);
            let stream = Rc::new(Stream { precedence: Precedence::new(first), whole: Cell::new(0) });
            // The engines are the last of the workers; each worker has a job and the time when it ends.
            let mut work: Vec<Option<(u64, Job)>> = (0..=THREADS).map(|_| None).collect();
            let (mut missing, mut taken, mut now, mut steps_until) = (Vec::<u64>::new(), 0u64, 0u64, 0u64);
            let (mut made, mut by_engines, mut waited, mut waits_since) = (0u64, 0u64, 0u64, None);
            let (begin, end) = (1000u64, 3000u64);
            let mut began = 0;
            while taken < end {
                while (missing.len() as u64) < taken + AHEAD {
                    let batch = missing.len() as u64;
                    missing.push(ROWS);
                    (0..ROWS).for_each(|_| queue.push(Job { stream: Rc::clone(&stream), batch, read: false }));
                }
                // The trainer.
                if now >= steps_until {
                    if missing[taken as usize] == 0 {
                        stream.whole.set(stream.whole.get() - 1);
                        stream.precedence.got(stream.whole.get());
                        waited += waits_since.take().map_or(0, |since| now - since);
                        (taken, steps_until) = (taken + 1, now + step);
                        if taken == begin {
                            (began, made, by_engines, waited) = (now, 0, 0, 0);
                        }
                        continue;
                    }
                    if waits_since.is_none() {
                        waits_since = Some(now);
                        stream.precedence.waits();
                    }
                }
                for (n, work) in work.iter_mut().enumerate() {
                    let engines = n == THREADS;
                    if work.is_none()
                        && let Some((job, _)) = queue.pop(usize::from(engines), if engines { 0 } else { n }, false)
                    {
                        let time = if engines {
                            ENGINES
                        } else if job.read {
                            DECODE
                        } else {
                            READ
                        };
                        *work = Some((now + time, job));
                    }
                }
                let next =
                    work.iter().flatten().map(|(end, _)| *end).chain((now < steps_until).then_some(steps_until)).min();
                now = next.expect("somebody works, or the trainer does");
                for (n, work) in work.iter_mut().enumerate() {
                    let Some((_, mut job)) = work.take_if(|(end, _)| *end <= now) else { continue };
                    if !job.read {
                        job.read = true;
                        queue.push_ready([job]);
                        continue;
                    }
                    (made, by_engines) = (made + 1, by_engines + u64::from(n == THREADS));
                    missing[job.batch as usize] -= 1;
                    if missing[job.batch as usize] == 0 {
                        stream.whole.set(stream.whole.get() + 1);
                    }
                }
            }
            let time = (now - began) as f64;
            [made as f64 / time, by_engines as f64 / made as f64, waited as f64 / time]
        }

        /// Pace of all together, and of the threads alone.
        pub(super) fn capacities() -> [f64; 2] {
            [run(First::Threads, 0)[0], THREADS as f64 / (READ + DECODE) as f64]
        }

        /// The trainer's time for a batch at a pace.
        pub(super) fn step(pace: f64) -> u64 {
            (ROWS as f64 / pace) as u64
        }
    }

    #[test]
    fn a_trainer_of_any_pace_gets_what_there_is() {
        let [all, threads] = simulated::capacities();
        assert!(all > 0.9 * (threads + 1.0 / 30.0), "{all}: nobody is idle before a trainer that only takes");
        for percent in (10..=150).step_by(10) {
            let pace = all * f64::from(percent) / 100.0;
            for first in [First::Nobody, First::Threads, First::Engines] {
                let [rate, engines, waited] = simulated::run(first, simulated::step(pace));
                let told = format!("{percent} %, {first:?} first: {rate:.4} of {pace:.4}, {engines:.2}, {waited:.3}");
                assert!(rate > 0.93 * pace.min(all), "{told}");
                if first == First::Threads && pace < 0.9 * threads {
                    assert!(engines < 0.01 && waited < 0.01, "threads are enough: {told}");
                }
                if first == First::Engines && pace < 0.8 / 30.0 {
                    assert!(engines > 0.8 && waited < 0.01, "engines are enough: {told}");
                }
            }
        }
    }
}
