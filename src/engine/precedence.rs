//! Who decodes first where both CPU threads and the engines of a GPU can.
//!
//! ```text
//! engines are asked ── so many batches came without a wait ──▶ CPU threads alone
//!         ▲                                                       │
//!         └──────────────── the trainer waits ────────────────────┘
//! ```
//!
//! Engines cost a sixth of the CPU's time for an image, and the trainer's own work on the GPU: ResNet-50 on an H200 took 59 ms a
//! step beside them and 54.9 ms beside CPU threads that copy finished rows up, where its batch alone took 54.6 ms. So whoever does
//! not say otherwise gets them when CPU threads are not enough, which the trainer tells by waiting. That it does is seen
//! again only when they are given up; so they are kept for longer each time.
//!
//! With `decode = "gpu"` engines come first, and CPU threads help while the trainer waits or has no whole batch at hand.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// Batches without a wait behind which engines are given up: enough that a stumble of the machine has ended.
const PATIENCE: u32 = 32;
/// And at most, when giving them up made the trainer wait again and again.
const MOST_PATIENCE: u32 = 2048;

/// The precedence of a stream.
#[derive(Debug)]
pub(super) struct Precedence {
    engines_first: bool,
    /// Engines may decode.
    engines: AtomicBool,
    /// The trainer has asked for a batch that is not whole yet; later ones may be.
    waits: AtomicBool,
    /// Batches that came without a wait, since one did not.
    calm: AtomicU32,
    patience: AtomicU32,
}

impl Precedence {
    pub(super) const fn new(engines_first: bool) -> Self {
        Self {
            engines_first,
            // The first batch is waited for.
            engines: AtomicBool::new(true),
            waits: AtomicBool::new(false),
            calm: AtomicU32::new(0),
            patience: AtomicU32::new(PATIENCE),
        }
    }

    /// The trainer waits for a batch. Whether somebody may decode now who might not before.
    pub(super) fn waits(&self) -> bool {
        if self.waits.swap(true, Relaxed) {
            return false;
        }
        self.calm.store(0, Relaxed);
        if self.engines.swap(true, Relaxed) {
            return self.engines_first;
        }
        let patience = self.patience.load(Relaxed);
        self.patience.store(patience.saturating_mul(2).min(MOST_PATIENCE), Relaxed);
        true
    }

    /// It got one, `left` whole ones are left. Whether somebody may decode now who might not before.
    pub(super) fn got(&self, left: usize) -> bool {
        if !self.waits.swap(false, Relaxed) {
            let calm = self.calm.fetch_add(1, Relaxed).saturating_add(1);
            if !self.engines_first && calm >= self.patience.load(Relaxed) {
                self.engines.store(false, Relaxed);
            }
        }
        self.engines_first && left == 0
    }

    /// Whether threads that read may decode what engines can, with so many whole batches at hand.
    pub(super) fn cpu_may(&self, whole: usize) -> bool {
        !self.engines_first || whole == 0 || self.waits.load(Relaxed)
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
        let precedence = Precedence::new(false);
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
        let precedence = Precedence::new(true);
        assert!(precedence.cpu_may(0) && !precedence.cpu_may(1));
        assert!(precedence.waits() && precedence.cpu_may(1), "it waits for one, and a later one is whole");
        assert!(!precedence.got(1) && precedence.got(0));
        (0..9 * MOST_PATIENCE).for_each(|_| assert!(!precedence.got(3)));
        assert!(precedence.engines_may());
    }
}
