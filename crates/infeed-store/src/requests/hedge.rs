//! Decides when a request gets a second copy: a state machine without a clock of its own.
//!
//! If 1 % of the requests take a second, a batch of 256 has to wait with 92 % probability. A second copy after twice
//! the usual time hides them for about 1 % more requests ([Dean and Barroso, The Tail at
//! Scale](https://doi.org/10.1145/2408776.2408794)).

use std::time::{Duration, Instant};

/// No copy is sent earlier: a shorter delay hardly matters to a batch.
const LEAST_DELAY: Duration = Duration::from_millis(100);
/// Number of times remembered per class.
const REMEMBERED: usize = 256;
/// Number of times before the percentile of a class is used.
const ENOUGH: usize = 20;
/// The most copies per request.
const SHARE: f64 = 0.05;
/// The most copies that may be saved up for a burst of stragglers.
const MOST_CREDIT: f64 = 32.0;
/// Time without copies after throttling, when a store can least bear more requests.
const QUIET: Duration = Duration::from_secs(10);
/// Size classes: up to 64 KiB, then a factor of four each.
const CLASSES: usize = 6;

/// The running 95th percentile of a class.
#[derive(Debug, Default)]
struct Class {
    times: Vec<Duration>,
    next: usize,
    since_sorted: usize,
    p95: Option<Duration>,
}

impl Class {
    fn add(&mut self, time: Duration) {
        if self.times.len() < REMEMBERED {
            self.times.push(time);
        } else {
            self.times[self.next] = time;
            self.next = (self.next + 1) % REMEMBERED;
        }
        self.since_sorted += 1;
        // The percentile of 256 times changes little with 16 more.
        if self.times.len() >= ENOUGH && (self.p95.is_none() || self.since_sorted >= 16) {
            self.since_sorted = 0;
            let mut sorted = self.times.clone();
            let at = sorted.len() * 95 / 100;
            self.p95 = Some(*sorted.select_nth_unstable(at).1);
        }
    }
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(super) struct Hedging {
    classes: [Class; CLASSES],
    credit: f64,
    quiet_until: Option<Instant>,
}

fn class(bytes: u64) -> usize {
    (0..CLASSES - 1).find(|class| bytes <= 64 << 10 << (2 * class)).unwrap_or(CLASSES - 1)
}

impl Hedging {
    /// How long a request for `bytes` may take before it gets another copy. `None` if not known yet.
    pub(super) fn delay(&self, bytes: u64) -> Option<Duration> {
        self.classes[class(bytes)].p95.map(|p95| (2 * p95).max(LEAST_DELAY))
    }

    /// Records that a first request (not a copy) goes out.
    pub(super) fn began(&mut self) {
        self.credit = (self.credit + SHARE).min(MOST_CREDIT);
    }

    /// Records that a request was answered after this time.
    pub(super) fn took(&mut self, bytes: u64, time: Duration) {
        self.classes[class(bytes)].add(time);
    }

    /// Records that a request was dropped after this time. The slower of two copies counts: without it, a store that is
    /// always slow would seem fast. A request dropped early, with its stream, reveals nothing and is ignored.
    pub(super) fn dropped(&mut self, bytes: u64, time: Duration) {
        let class = &mut self.classes[class(bytes)];
        if class.p95.is_some_and(|p95| time > p95) {
            class.add(time);
        }
    }

    /// Whether a copy may go out now. If so, its credit is used up.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        // Slightly below 1, because twenty times 0.05 is less than 1 in floating point.
        let may = self.credit > 1.0 - 1e-9 && self.quiet_until.is_none_or(|until| now >= until);
        if may {
            self.credit -= 1.0;
        }
        may
    }

    /// Records that the store asked for fewer requests.
    pub(super) fn throttled(&mut self, now: Instant) {
        self.quiet_until = Some(now + QUIET);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_delay_is_twice_the_95th_percentile_of_the_size() {
        let mut hedging = Hedging::default();
        assert_eq!(hedging.delay(1000), None);
        // One in a hundred takes two seconds, like the tail of a real store.
        for n in 0..500 {
            hedging.took(1000, if n % 100 == 7 { ms(2000) } else { ms(60) });
            hedging.took(8 << 20, ms(400));
        }
        assert_eq!(hedging.delay(1000), Some(ms(120)));
        assert_eq!(hedging.delay(8 << 20), Some(ms(800)));
        assert_eq!(hedging.delay(1 << 20), None, "a class of its own");
    }

    #[test]
    fn fast_stores_are_given_a_tenth_of_a_second() {
        let mut hedging = Hedging::default();
        (0..50).for_each(|_| hedging.took(1000, ms(1)));
        assert_eq!(hedging.delay(1000), Some(LEAST_DELAY));
    }

    #[test]
    fn a_store_that_became_slow_is_not_hedged_for_long() {
        let mut hedging = Hedging::default();
        (0..256).for_each(|_| hedging.took(1000, ms(50)));
        (0..64).for_each(|_| hedging.took(1000, ms(900)));
        assert_eq!(hedging.delay(1000), Some(ms(1800)));
    }

    #[test]
    fn nothing_is_hedged_after_throttling() {
        let (mut hedging, now) = (Hedging::default(), Instant::now());
        (0..100).for_each(|_| hedging.began());
        assert!(hedging.take(now));
        hedging.throttled(now);
        assert!(!hedging.take(now) && !hedging.take(now + ms(9_999)));
        assert!(hedging.take(now + QUIET));
    }

    #[test]
    fn sizes_have_their_classes() {
        for (bytes, expected) in [(0, 0), (64 << 10, 0), ((64 << 10) + 1, 1), (1 << 20, 2), (16 << 20, 4), (1 << 40, 5)]
        {
            assert_eq!(class(bytes), expected, "{bytes}");
        }
    }

    proptest! {
        #[test]
        fn copies_stay_below_one_in_twenty(wishes in prop::collection::vec(any::<bool>(), 0..2000)) {
            let (mut hedging, now) = (Hedging::default(), Instant::now());
            let (mut requests, mut copies) = (0u64, 0u64);
            for wish in wishes {
                hedging.began();
                requests += 1;
                copies += u64::from(wish && hedging.take(now));
                prop_assert!(copies * 20 <= requests);
            }
        }
    }
}
