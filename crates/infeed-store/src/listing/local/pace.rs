//! Decides how many threads list.

use std::time::Duration;

/// The most threads if calls wait, for a network or a disk. At 0.3 ms per call, 300,000 files take 7 s. The same number
/// as requests to a bucket.
const WAITING: usize = 16;
/// The most threads if calls compute: more would hinder each other.
const COMPUTING: usize = 8;
/// A longer call has waited: a call takes 1 to 2 µs if the data is in memory.
const WAITED: Duration = Duration::from_micros(20);
/// Number of calls after which the older half counts less: folders may be on different file systems.
const MEMORY: u32 = 1024;
/// Batches per thread for which another thread is started. Starting one takes as long as a batch from memory.
const WORTH: usize = 2;

/// How long calls took recently.
#[derive(Debug, Default)]
pub(super) struct Pace {
    calls: u32,
    took: Duration,
}

impl Pace {
    pub(super) fn add(&mut self, calls: u32, took: Duration) {
        self.calls = self.calls.saturating_add(calls);
        self.took += took;
        if self.calls > MEMORY {
            self.calls /= 2;
            self.took /= 2;
        }
    }

    fn waits(&self) -> bool {
        self.calls > 0 && self.took / self.calls > WAITED
    }

    /// Whether one more thread would help `threads` with `todo` batches and folders.
    pub(super) fn wants_more(&self, threads: usize, todo: usize, cores: impl FnOnce() -> usize) -> bool {
        match self.waits() {
            true => threads < WAITING && todo > 0,
            false => todo >= threads * WORTH && threads < cores().min(COMPUTING),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_threads_as_cores_compute_and_sixteen_wait() {
        let mut pace = Pace::default();
        let most = |pace: &Pace, cores| (1..100).find(|threads| !pace.wants_more(*threads, 1000, || cores)).unwrap();
        assert_eq!([1, 4, 96].map(|cores| most(&pace, cores)), [1, 4, 8]);
        pace.add(64, Duration::from_micros(80));
        assert_eq!([1, 4, 96].map(|cores| most(&pace, cores)), [1, 4, 8]);
        assert!(!pace.wants_more(1, 1, || 4), "a small folder is read by one");
        pace.add(1, Duration::from_millis(20));
        assert_eq!([1, 4, 96].map(|cores| most(&pace, cores)), [16; 3]);
        assert!(pace.wants_more(1, 1, || 1) && !pace.wants_more(1, 0, || 1));
    }

    #[test]
    fn a_slow_part_of_a_fast_tree_is_noticed_soon() {
        let mut pace = Pace::default();
        (0..10_000).for_each(|_| pace.add(64, Duration::from_micros(80)));
        pace.add(64, Duration::from_millis(20));
        pace.add(64, Duration::from_millis(20));
        assert!(pace.waits());
        (0..100).for_each(|_| pace.add(64, Duration::from_micros(80)));
        assert!(!pace.waits());
    }
}
