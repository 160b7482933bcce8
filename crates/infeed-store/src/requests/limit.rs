//! Decides how many requests may be in flight: a state machine without a clock of its own.
//!
//! The window doubles while the rate rises. After that it tries steps up and down from time to time. If the store
//! refuses more than one request in five, the window halves and all requests pause. Fewer refusals are handled by the
//! read concerned, which retries a little later. If all requests reacted, a store that always refuses one in ten
//! would hardly be used, and a store that limits requests per second would give no more. A step up is kept only if it
//! raises the rate of answers.
//!
//! By Little's law, the window stays below what three times the measured rate needs: more requests in flight would only
//! wait in a queue elsewhere.
//!
//! A queue costs something even if the rate stays: data in flight has left the processor's cache when its next part
//! arrives. A server on the same machine gave 12,600 objects of 107 KB per second with 8 requests in flight and 9,300
//! with 128. If the window is what limits the rate, trying a smaller one costs rate, so after failures it is tried more
//! and more rarely.
//!
//! In doubt the larger window is kept, because most stores are far away: a window slightly too small costs rate, one
//! slightly too large costs next to nothing. With a store so near that it answers within [`NEAR`], most of that time is
//! spent in a queue, and the rates of two rounds differ by more than a step changes. With the same rule the window
//! wandered between 20 and 110, while 8 to 16 were best. So for a near store the smaller window is kept.

use std::time::{Duration, Instant};

/// Requests in flight before anything was measured.
pub(super) const START: usize = 16;
/// With at most this many in flight, requests hardly delay each other.
const LIGHT: usize = 8;
/// The largest window, whatever was measured: 2.5 GB/s of 107 KB objects that answer after 30 ms need 730.
pub(super) const MOST: usize = 1024;
/// Little's law does not limit the window below this: on a fast link its figures are smaller than their noise, and 256
/// small objects in flight are 27 MB. A smaller value was not measured.
const LEAST_CEILING: usize = 256;
/// A shorter round would measure the thread scheduler.
const ROUND: Duration = Duration::from_millis(20);
/// If the rate rises by less than this factor while the window doubles, it counts as not risen: the additional requests
/// only queue.
const RISE: f64 = 1.25;
/// Number of such rounds before the doubling ends; one or two may be noise of the machine.
const PATIENCE: u32 = 3;
/// The same factor for a step of a quarter. In doubt the step is kept: a window that is too large costs little, one
/// that is too small costs rate.
const PROBE_RISE: f64 = 1.02;
/// Rounds between two such steps.
const PROBE_EVERY: u32 = 4;
/// A step down is kept if the rate stays above this fraction of the old one.
const HELD: f64 = 0.97;
/// A store that answers within this time is on this machine or next to it (`benches/requests.rs`: 0.4 to 3 ms; a bucket
/// takes 10 ms and more).
const NEAR: Duration = Duration::from_millis(5);
/// Replacements of the constants above for a near store: a step up has to gain a third of its size, and a step down may
/// lose as much as rounds differ by chance.
const NEAR_PROBE_RISE: f64 = 1.08;
const NEAR_HELD: f64 = 0.94;
/// The smallest window after a step down.
const LEAST: usize = 4;
/// The most steps up before the next step down, after several steps down in a row that were not kept.
const MOST_SKIPPED: u32 = 32;
/// The first pause. Each following pause without an answer in between is twice as long.
const LEAST_PAUSE: Duration = Duration::from_millis(100);
/// Short, so that a store that is back gets requests soon.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// The fraction of requests that may be refused before all requests slow down.
const TOLERATED: f64 = 0.2;
/// Number of requests over which the fraction is averaged. If one in ten is refused, chance exceeds the bound about
/// once in 10,000 samples; a store that refuses everything is detected after 15 requests.
const SAMPLE: f64 = 64.0;

/// Part of a window reserved for second copies, so that stragglers can't starve them.
pub(super) const fn spare(window: usize) -> usize {
    match window {
        0..4 => 0,
        4..32 => 1,
        // Twice the fraction of requests that may be hedged.
        _ if window / 10 < 64 => window / 10,
        _ => 64,
    }
}

/// This many refusals in a row are not chance: with one refusal in ten they happen once in a million requests.
const IN_A_ROW: u32 = 6;

/// Measurements of an answered request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    pub(super) bytes: u64,
    /// From the request to the first byte.
    pub(super) first_byte: Duration,
    /// From the request to the last byte.
    pub(super) whole: Duration,
    /// Few others were in flight when it began, as returned by [`Limit::began`].
    pub(super) light: bool,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Limit {
    window: usize,
    /// The largest window: [`MOST`], or less if this process may open fewer files.
    most: usize,
    in_flight: usize,
    /// Requests waiting for their turn.
    waiting: usize,
    /// Whether the window still doubles.
    starting: bool,
    round: Option<Round>,
    /// The rate to beat, in bytes per second.
    rate: f64,
    /// Mean rate over the rounds of the step being tried, or over the rounds since the last step.
    recent: f64,
    /// Rounds without a rise, or rounds since the last step.
    flat: u32,
    /// The window before the step being tried.
    tried_from: Option<usize>,
    /// Whether the next step, or the one being tried, is a step down.
    down: bool,
    /// Number of steps down to leave out, and how many were left out.
    skip: u32,
    skipped: u32,
    /// Below this, the window grows again whatever the rate.
    recover_to: usize,
    means: Means,
    cut_at: Option<Instant>,
    /// Whether a request was answered since then.
    answered_since: bool,
    /// The fraction of requests that were refused.
    refused: f64,
    /// Refusals since the last answer.
    in_a_row: u32,
    pause: Duration,
    paused_until: Option<Instant>,
}

/// Figures since the last decision. Counts only time with requests in flight.
#[derive(Clone, Copy, Debug)]
struct Round {
    began: Instant,
    answered: usize,
    bytes: u64,
    /// A request waited, so the window limits the rate.
    bound: bool,
    /// Total time of the answered requests.
    took: Duration,
}

impl Round {
    fn new(began: Instant, bound: bool) -> Self {
        Self { began, answered: 0, bytes: 0, bound, took: Duration::ZERO }
    }
}

/// Moving averages over about 16 answers, in seconds and bytes. Only of requests with few others in flight: the queue
/// of a busy store would justify any window.
#[derive(Clone, Copy, Debug, Default)]
struct Means {
    first_byte: f64,
    body: f64,
    bytes: f64,
    count: u64,
}

impl Means {
    fn add(&mut self, answer: &Measured) {
        self.count += 1;
        let weight = (1.0 / self.count as f64).max(1.0 / 16.0);
        let body = answer.whole.saturating_sub(answer.first_byte);
        for (mean, value) in [
            (&mut self.first_byte, answer.first_byte.as_secs_f64()),
            (&mut self.body, body.as_secs_f64()),
            (&mut self.bytes, answer.bytes as f64),
        ] {
            *mean += weight * (value - *mean);
        }
    }
}

impl Limit {
    /// At most `most` requests in flight, at least one.
    pub(super) fn new(most: usize) -> Self {
        let most = most.clamp(1, MOST);
        Self {
            window: START.min(most),
            most,
            in_flight: 0,
            waiting: 0,
            starting: true,
            round: None,
            rate: 0.0,
            recent: 0.0,
            flat: 0,
            tried_from: None,
            down: true,
            skip: 0,
            skipped: 0,
            recover_to: 0,
            means: Means { first_byte: 0.0, body: 0.0, bytes: 0.0, count: 0 },
            cut_at: None,
            answered_since: false,
            refused: 0.0,
            in_a_row: 0,
            pause: Duration::ZERO,
            paused_until: None,
        }
    }

    /// The number of requests that may be in flight, including second copies. At least 1.
    pub(super) const fn window(&self) -> usize {
        self.window
    }

    pub(super) const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Until when no request may begin.
    pub(super) fn paused_until(&self, now: Instant) -> Option<Instant> {
        self.paused_until.filter(|until| *until > now)
    }

    /// Little's law for three times the rate, `C = B·(t0 + s/b)/s`.
    fn ceiling(&self) -> usize {
        let Means { first_byte, body, bytes, .. } = self.means;
        let wanted = 3.0 * self.rate * (first_byte + body) / bytes.max(1.0);
        // A float too large for usize becomes the largest usize.
        (wanted.ceil() as usize).clamp(LEAST_CEILING.min(self.most), self.most)
    }

    /// How long a request takes with few others in flight; zero if that is not known.
    pub(super) fn usual(&self) -> Duration {
        Duration::from_secs_f64(self.means.first_byte + self.means.body)
    }

    /// Records that a request waits for its turn.
    pub(super) fn waits(&mut self) {
        self.waiting += 1;
        self.note_bound();
    }

    /// Records that a request no longer waits.
    pub(super) fn waited(&mut self) {
        self.waiting = self.waiting.saturating_sub(1);
    }

    fn note_bound(&mut self) {
        let bound = self.waiting > 0;
        if let Some(round) = &mut self.round {
            round.bound |= bound;
        }
    }

    /// Records that a request goes out. Returns whether few others are in flight.
    pub(super) fn began(&mut self, now: Instant) -> bool {
        self.in_flight += 1;
        let bound = self.waiting > 0;
        self.round.get_or_insert(Round::new(now, bound));
        self.in_flight <= LIGHT
    }

    /// Records that a request is over: answered, failed or given up.
    pub(super) fn ended(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if self.in_flight == 0 && self.waiting == 0 {
            // The following time is idle and does not measure the store's rate.
            self.round = None;
        }
    }

    /// Records that a request was answered.
    pub(super) fn answered(&mut self, now: Instant, answer: &Measured) {
        if answer.light {
            self.means.add(answer);
        }
        self.note_bound();
        self.answered_since = true;
        self.refused -= self.refused / SAMPLE;
        self.in_a_row = 0;
        let Some(round) = &mut self.round else { return };
        round.answered += 1;
        round.bytes += answer.bytes.max(1);
        round.took += answer.whole;
        let took = now.saturating_duration_since(round.began);
        // While the window doubles, a round is one latency long, because the first batches wait for it.
        let enough = if self.starting { self.window } else { 2 * self.window };
        if round.answered < enough || took < ROUND {
            return;
        }
        let (rate, bound) = (round.bytes as f64 / took.as_secs_f64(), round.bound);
        let near = round.took < NEAR * u32::try_from(round.answered).unwrap_or(u32::MAX);
        *round = Round::new(now, self.waiting > 0);
        if bound {
            self.decide(rate, near);
        } else {
            // The window was not used up, so this rate does not show whether a larger window would help.
            self.rate = self.rate.max(rate);
        }
    }

    /// Decides after a round in which the window limited the rate; `near` is about the store.
    fn decide(&mut self, rate: f64, near: bool) {
        let (rise, held) = if near { (NEAR_PROBE_RISE, NEAR_HELD) } else { (PROBE_RISE, HELD) };
        let step = (self.window / 4).max(1);
        if self.starting {
            if rate > self.rate * RISE {
                self.flat = 0;
                self.window *= 2;
            } else {
                self.flat += 1;
                if self.flat == PATIENCE {
                    (self.starting, self.flat) = (false, 0);
                    if near {
                        self.window = (self.window / 2).max(1);
                    }
                }
            }
            self.rate = self.rate.max(rate);
        } else if self.window < self.recover_to {
            self.window += step;
            self.rate = self.rate.max(rate);
        } else {
            self.flat += 1;
            self.recent += (rate - self.recent) / f64::from(self.flat);
            match self.tried_from {
                Some(before) if self.flat == 2 => {
                    let kept = self.recent > self.rate * if self.down { held } else { rise };
                    if self.down {
                        self.skip = if kept { 0 } else { (2 * self.skip + 1).min(MOST_SKIPPED) };
                        self.skipped = 0;
                    }
                    if kept {
                        // The next step at once. Steps down are compared with the best rate, so that their losses do
                        // not add up.
                        self.step(if self.down { self.rate.max(self.recent) } else { self.recent });
                    } else {
                        (self.window, self.tried_from, self.down) = (before, None, !self.down);
                    }
                    (self.flat, self.recent) = (0, 0.0);
                }
                None if self.flat == PROBE_EVERY => {
                    if self.down && self.skipped < self.skip {
                        self.skipped += 1;
                        self.down = false;
                    }
                    self.step(self.recent);
                    (self.flat, self.recent) = (0, 0.0);
                }
                _ => {}
            }
        }
        self.window = self.window.min(self.ceiling()).max(1);
    }

    /// Tries another window. It is compared with `rate`, which this window reached.
    fn step(&mut self, rate: f64) {
        let step = (self.window / 4).max(1);
        (self.rate, self.tried_from) = (rate, Some(self.window));
        self.window = if self.down { (self.window - step).max(LEAST.min(self.window)) } else { self.window + step };
    }

    /// Records that the store asked for fewer requests, when it refused a request that began at `began`. `jitter` is in
    /// 0 to 1, so that many processes do not return at the same time.
    pub(super) fn throttled(&mut self, now: Instant, began: Instant, jitter: f64) {
        // The requests that were in flight at a cut are refused as well: one event, one cut.
        if self.cut_at.is_some_and(|cut| began <= cut) {
            return;
        }
        self.refused += (1.0 - self.refused) / SAMPLE;
        self.in_a_row += 1;
        if self.refused < TOLERATED && self.in_a_row < IN_A_ROW {
            return;
        }
        // After an outage the store will bear as much as before it.
        let before = if self.answered_since { 0 } else { self.recover_to };
        self.recover_to = before.max(self.window * 3 / 4);
        self.halve();
        // The remaining average makes the next cut come sooner, if this one does not help.
        (self.refused, self.in_a_row) = (TOLERATED / 2.0, 0);
        let longer = if self.answered_since { LEAST_PAUSE } else { self.pause * 2 };
        (self.pause, self.answered_since) = (longer.clamp(LEAST_PAUSE, LONGEST_PAUSE), false);
        self.cut_at = Some(now);
        self.paused_until = Some(now + self.pause.mul_f64(1.0 + jitter.clamp(0.0, 1.0) / 2.0));
    }

    /// Records that this process could not open another connection for a request that began at `began`.
    pub(super) fn exhausted(&mut self, now: Instant, began: Instant) {
        if self.cut_at.is_some_and(|cut| began <= cut) {
            return;
        }
        // No fast recovery: another part of the process may hold the files for long. Steps up will find out.
        self.recover_to = 0;
        self.halve();
        self.cut_at = Some(now);
    }

    fn halve(&mut self) {
        self.window = (self.window / 2).max(1);
        (self.starting, self.flat, self.tried_from, self.round) = (false, 0, None, None);
        (self.rate, self.recent) = (0.0, 0.0);
    }
}

#[cfg(test)]
mod tests {
    use std::{cmp::Reverse, collections::BinaryHeap};

    use infeed_core::random::{jitter, repeat_jitter};
    use proptest::prelude::*;

    use super::*;

    const SIZE: u64 = 107_000;

    /// A store in virtual time: each request takes `latency`, at most `most` are served at a time, and requests above
    /// `refuse_at` in flight are refused.
    struct Store {
        latency: Duration,
        most: usize,
        refuse_at: usize,
        /// Every 20 ms it becomes up to 40 % slower than it could be, like a machine with other load.
        moody: bool,
    }

    /// Keeps `want` requests in flight if the limit allows it. Returns the window, its largest value, and the number of
    /// answers.
    fn drive(limit: &mut Limit, now: &mut Instant, store: &Store, want: usize, requests: usize) -> (usize, usize) {
        // Fixed jitter: with other values, one in eight leaves the window wide for a while.
        repeat_jitter();
        let mut ends: BinaryHeap<Reverse<(Instant, bool, Duration, bool)>> = BinaryHeap::new();
        let mut free: BinaryHeap<Reverse<Instant>> = (0..store.most).map(|_| Reverse(*now)).collect();
        let (mut begun, mut waiting, mut largest, epoch) = (0, false, 0, *now);
        while begun < requests || !ends.is_empty() {
            let room = limit.window().saturating_sub(ends.len());
            let paused = limit.paused_until(*now);
            if begun < requests && room > 0 && paused.is_none() && ends.len() < want {
                if std::mem::take(&mut waiting) {
                    limit.waited();
                }
                let light = limit.began(*now);
                let refused = ends.len() >= store.refuse_at;
                let start = free.pop().unwrap().0.max(*now);
                let mood = (start - epoch).as_millis() as u64 / 20;
                let slower = if store.moody { 0.4 * jitter(mood) } else { 0.0 };
                let takes = store.latency.mul_f64(1.0 + slower);
                let end = if refused { *now + Duration::from_millis(5) } else { start + takes };
                free.push(Reverse(if refused { start } else { end }));
                ends.push(Reverse((end, refused, end - *now, light)));
                begun += 1;
                continue;
            }
            if begun < requests && ends.len() < want && !waiting {
                waiting = true;
                limit.waits();
            }
            let Some(Reverse((end, refused, took, light))) = ends.pop() else {
                *now = paused.expect("nothing is in flight, so the pause is what holds");
                continue;
            };
            *now = (*now).max(end);
            if refused {
                limit.throttled(*now, *now - took, 0.5);
            } else {
                limit.answered(*now, &Measured { bytes: SIZE, first_byte: took, whole: took, light });
            }
            limit.ended();
            largest = largest.max(limit.window());
        }
        if waiting {
            limit.waited();
        }
        (limit.window(), largest)
    }

    #[test]
    fn the_window_grows_to_what_a_distant_store_needs() {
        let (mut limit, mut now) = (Limit::new(MOST), Instant::now());
        let store = Store { latency: Duration::from_millis(50), most: 300, refuse_at: usize::MAX, moody: false };
        let (window, _) = drive(&mut limit, &mut now, &store, 2000, 30_000);
        assert!((250..=MOST).contains(&window), "{window}");
    }

    #[test]
    fn the_window_stops_where_the_rate_stops() {
        let (mut limit, mut now) = (Limit::new(MOST), Instant::now());
        let store = Store { latency: Duration::from_millis(20), most: 16, refuse_at: usize::MAX, moody: false };
        let (window, largest) = drive(&mut limit, &mut now, &store, 2000, 20_000);
        assert!(window >= 16 && largest <= 80, "{window}, once {largest}");
    }

    #[test]
    fn where_requests_wait_for_each_other_the_window_shrinks() {
        let (mut limit, mut now) = (Limit::new(MOST), Instant::now());
        let store = Store { latency: Duration::from_micros(100), most: 1, refuse_at: usize::MAX, moody: false };
        let (window, _) = drive(&mut limit, &mut now, &store, 2000, 50_000);
        assert!((LEAST..=8).contains(&window), "{window}");
    }

    #[test]
    fn a_near_store_whose_rate_wavers_gets_no_queue() {
        let (mut limit, mut now) = (Limit::new(MOST), Instant::now());
        let store = Store { latency: Duration::from_micros(100), most: 2, refuse_at: usize::MAX, moody: true };
        // Looked at many times: a window that wanders is wide at some time.
        let windows: Vec<usize> = (0..50).map(|_| drive(&mut limit, &mut now, &store, 512, 20_000).0).collect();
        assert!(windows.iter().filter(|window| **window > 24).count() <= 2, "{windows:?}");
    }

    #[test]
    fn a_distant_store_whose_rate_wavers_keeps_its_window() {
        let (mut limit, mut now) = (Limit::new(MOST), Instant::now());
        let store = Store { latency: Duration::from_millis(30), most: 200, refuse_at: usize::MAX, moody: true };
        drive(&mut limit, &mut now, &store, 2000, 30_000);
        let windows: Vec<usize> = (0..20).map(|_| drive(&mut limit, &mut now, &store, 2000, 20_000).0).collect();
        assert!(windows.iter().filter(|window| **window < 150).count() <= 2, "{windows:?}");
    }

    #[test]
    fn a_store_that_became_distant_is_followed() {
        let (mut limit, mut now) = (Limit::new(MOST), Instant::now());
        let near = Store { latency: Duration::from_millis(1), most: 4, refuse_at: usize::MAX, moody: false };
        let (before, _) = drive(&mut limit, &mut now, &near, 2000, 20_000);
        let distant = Store { latency: Duration::from_millis(50), most: 300, refuse_at: usize::MAX, moody: false };
        let (after, _) = drive(&mut limit, &mut now, &distant, 2000, 60_000);
        assert!(before <= 24 && after >= 225, "{before}, then {after}");
    }

    #[test]
    fn a_reader_that_wants_little_keeps_a_small_window() {
        let (mut limit, mut now) = (Limit::new(MOST), Instant::now());
        let store = Store { latency: Duration::from_millis(20), most: 300, refuse_at: usize::MAX, moody: false };
        assert_eq!(drive(&mut limit, &mut now, &store, 4, 5000), (START, START));
    }

    #[test]
    fn throttling_halves_once_pauses_everybody_and_is_recovered_from() {
        let (mut limit, mut now) = (Limit::new(MOST), Instant::now());
        let calm = Store { latency: Duration::from_millis(20), most: 128, refuse_at: usize::MAX, moody: false };
        let (before, _) = drive(&mut limit, &mut now, &calm, 2000, 20_000);
        let began = now;
        now += Duration::from_millis(20);
        for _ in 0..before {
            // All requests in flight are refused: one event.
            limit.throttled(now, began, 0.0);
        }
        assert_eq!(limit.window(), before / 2);
        let pause = limit.paused_until(now).unwrap() - now;
        assert!((LEAST_PAUSE..2 * LEAST_PAUSE).contains(&pause), "{pause:?}");
        let refuse = |limit: &mut Limit, now: &mut Instant| {
            *now = limit.paused_until(*now).unwrap() + Duration::from_millis(20);
            (0..16).for_each(|_| limit.throttled(*now, *now, 0.0));
            limit.paused_until(*now).unwrap() - *now
        };
        assert!(refuse(&mut limit, &mut now) >= 2 * LEAST_PAUSE, "nothing came between: the second pause is longer");
        assert_eq!(limit.window(), before / 4);
        let took = Duration::from_millis(20);
        limit.answered(now, &Measured { bytes: SIZE, first_byte: took, whole: took, light: false });
        assert!(refuse(&mut limit, &mut now) < 2 * LEAST_PAUSE, "an answer came between");
        let (after, _) = drive(&mut limit, &mut now, &calm, 2000, 20_000);
        assert!(after >= calm.most, "{after}, {before} before");
    }

    #[test]
    fn a_store_that_refuses_above_a_rate_is_held_near_it() {
        let (mut limit, mut now) = (Limit::new(MOST), Instant::now());
        let store = Store { latency: Duration::from_millis(20), most: 1000, refuse_at: 40, moody: false };
        drive(&mut limit, &mut now, &store, 2000, 5000);
        let (_, largest) = drive(&mut limit, &mut now, &store, 2000, 20_000);
        assert!((20..=64).contains(&largest), "{largest}");
    }

    #[test]
    fn pauses_have_an_end() {
        let (mut limit, mut now) = (Limit::new(MOST), Instant::now());
        for _ in 0..50 {
            now += Duration::from_millis(1);
            (0..16).for_each(|_| limit.throttled(now, now, 1.0));
            let until = limit.paused_until(now).unwrap();
            assert!(until - now <= LONGEST_PAUSE * 3 / 2);
            now = until;
        }
        assert_eq!(limit.window(), 1);
    }

    #[test]
    fn one_refusal_in_ten_is_the_readers_own_business() {
        let (mut limit, mut now) = (Limit::new(MOST), Instant::now());
        let calm = Store { latency: Duration::from_millis(20), most: 128, refuse_at: usize::MAX, moody: false };
        let (before, _) = drive(&mut limit, &mut now, &calm, 2000, 20_000);
        let mut paused = Duration::ZERO;
        for n in 0..10_000_u64 {
            now += Duration::from_micros(100);
            if infeed_core::random::hash64(n).is_multiple_of(10) {
                limit.throttled(now, now, 0.5);
            } else {
                let took = Duration::from_millis(20);
                limit.answered(now, &Measured { bytes: SIZE, first_byte: took, whole: took, light: false });
            }
            if let Some(until) = limit.paused_until(now) {
                paused += until - now;
                now = until;
            }
        }
        assert!(limit.window() >= before / 2 && paused < Duration::from_millis(300), "{} {paused:?}", limit.window());
    }

    #[test]
    fn files_that_run_out_mean_fewer_and_no_pause() {
        let mut limit = Limit::new(5);
        let now = Instant::now();
        assert_eq!(limit.window(), 5, "what may be open bounds it from the first");
        let later = now + Duration::from_millis(1);
        (0..5).for_each(|_| limit.exhausted(later, now));
        assert_eq!((limit.window(), limit.paused_until(later)), (2, None), "one event");
        assert_eq!(Limit::new(0).window(), 1);
    }

    proptest! {
        #[test]
        fn the_window_stays_within_its_bounds(
            steps in prop::collection::vec((0u8..6, 0u64..400, 0u64..20_000_000), 0..400),
        ) {
            let (mut limit, mut now) = (Limit::new(MOST), Instant::now());
            for (kind, millis, bytes) in steps {
                now += Duration::from_millis(millis);
                let (first_byte, whole) = (Duration::from_millis(millis / 2), Duration::from_millis(millis));
                match kind {
                    0 => limit.waits(),
                    1 => limit.waited(),
                    2 => _ = limit.began(now),
                    3 => limit.ended(),
                    4 => limit.throttled(now, now - first_byte, bytes as f64 / 2e7),
                    _ => limit.answered(now, &Measured { bytes, first_byte, whole, light: bytes % 2 == 0 }),
                }
                prop_assert!((1..=MOST).contains(&limit.window()));
                prop_assert!(spare(limit.window()) < limit.window());
                if let Some(until) = limit.paused_until(now) {
                    prop_assert!(until - now <= LONGEST_PAUSE * 3 / 2);
                }
            }
        }
    }
}
