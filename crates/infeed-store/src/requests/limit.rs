//! How many requests may be in flight: a state machine without a clock of its own.
//!
//! The window doubles while the rate rises; then it tries a little more and a little less from time to time. When the store
//! refuses more than one request in five, it halves and everybody pauses; fewer are each their read's own business, which
//! asks again a little later: a store that refuses one in ten whatever is asked would be starved by any common answer to it,
//! and one that counts requests a second gives no more when a few are too many. Steps up still have to pay in answers.
//!
//! The window stays below what Little's law needs for three times the rate that was reached: more in
//! flight would only wait in a queue elsewhere.
//!
//! A queue is not free even where the rate stays: what is in flight has left the cache when its next part comes. A server
//! on the same machine gave 12,600 objects of 107 KB a second with 8 in flight and 9,300 with 128. Where the window is
//! what bounds the rate, trying less costs; so it is tried more and more seldom.
//!
//! Who is in doubt keeps the larger window, because most stores are far: there a step too low costs rate, one too high next to
//! nothing. Of a store so near that answers come within [`NEAR`], most of that time is spent in a queue, and rates of rounds
//! differ by more than a step brings: with the same rule the window wandered between 20 and 110, where 8 to 16 were best. There
//! the smaller one is kept.

use std::time::{Duration, Instant};

/// Requests in flight before anything was measured.
pub(super) const START: usize = 16;
/// With so many in flight, a request hardly waits for another.
const LIGHT: usize = 8;
/// No more, whatever was measured: 2.5 GB/s of 107 KB objects that answer after 30 ms need 730.
pub(super) const MOST: usize = 1024;
/// Little's law bounds nothing below this: on a fast link its figures are smaller than their noise, and 256
/// small objects in flight are 27 MB. Not measured against a smaller bound.
const LEAST_CEILING: usize = 256;
/// A shorter round measures the scheduler.
const ROUND: Duration = Duration::from_millis(20);
/// A rate that rose by less than this while the window doubled did not rise: more of the same is a queue.
const RISE: f64 = 1.25;
/// Rounds in which it did not, before the doubling ends: one or two may be the machine's mood.
const PATIENCE: u32 = 3;
/// Likewise for a step of a quarter. In doubt the step is kept: too large a window costs little, too small a one the rate.
const PROBE_RISE: f64 = 1.02;
/// Rounds between two such steps.
const PROBE_EVERY: u32 = 4;
/// A step down is kept when the rate stays above this part of what it was.
const HELD: f64 = 0.97;
/// A store that answers within this time is on this machine or beside it (`benches/requests.rs`: 0.4 to 3 ms; a bucket takes 10
/// and more).
const NEAR: Duration = Duration::from_millis(5);
/// What takes the place of the three figures above there: a step up has to bring a third of itself, and a step down may cost
/// as much as rounds differ by chance.
const NEAR_PROBE_RISE: f64 = 1.08;
const NEAR_HELD: f64 = 0.94;
/// The least window that a step down leaves.
const LEAST: usize = 4;
/// Steps up that may come before the next step down, after several in a row that were not kept.
const MOST_SKIPPED: u32 = 32;
/// The first pause; doubled by each that follows without an answer between.
const LEAST_PAUSE: Duration = Duration::from_millis(100);
/// A store that is back is asked again soon.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// The part of the requests that may be refused before everybody slows down.
const TOLERATED: f64 = 0.2;
/// The part is that of about so many requests. With one refused in ten, chance alone takes it over the bound once in some
/// 10,000 samples; a store that refuses all is known after 15.
const SAMPLE: f64 = 64.0;

/// Requests of a window that are kept for second copies, so that stragglers cannot starve them.
pub(super) const fn spare(window: usize) -> usize {
    match window {
        0..4 => 0,
        4..32 => 1,
        // Twice the share of requests that may be hedged.
        _ if window / 10 < 64 => window / 10,
        _ => 64,
    }
}

/// So many refusals with no answer between are no chance: one in ten makes them once in a million requests.
const IN_A_ROW: u32 = 6;

/// What a request that was answered tells.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    pub(super) bytes: u64,
    /// From the request to the first byte.
    pub(super) first_byte: Duration,
    /// From the request to the last byte.
    pub(super) whole: Duration,
    /// Few others were in flight when it began, as [`Limit::began`] told.
    pub(super) light: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Limit {
    window: usize,
    /// The largest window: [`MOST`], or what the files let be that this process may have open.
    most: usize,
    in_flight: usize,
    /// Requests that wait for their turn.
    waiting: usize,
    /// The window still doubles.
    starting: bool,
    round: Option<Round>,
    /// Bytes per second to beat.
    rate: f64,
    /// Mean over the rounds of a step that is being tried, or over those since.
    recent: f64,
    /// Rounds without a rise, or since the last step.
    flat: u32,
    /// The window before a step that is being tried.
    tried_from: Option<usize>,
    /// The next step, or the one that is being tried, is one down.
    down: bool,
    /// Steps down that are left out, and those that were.
    skip: u32,
    skipped: u32,
    /// Below this the window grows again whatever the rate.
    recover_to: usize,
    means: Means,
    cut_at: Option<Instant>,
    /// Something was answered since then.
    answered_since: bool,
    /// The part of the requests that were refused.
    refused: f64,
    /// Refusals since the last answer.
    in_a_row: u32,
    pause: Duration,
    paused_until: Option<Instant>,
}

/// Figures since the last decision. Only time in which something was in flight counts.
#[derive(Clone, Copy, Debug)]
struct Round {
    began: Instant,
    answered: usize,
    bytes: u64,
    /// Somebody waited: the window is what bounds the rate.
    bound: bool,
    /// The times of those that were answered, together.
    took: Duration,
}

impl Round {
    fn new(began: Instant, bound: bool) -> Self {
        Self { began, answered: 0, bytes: 0, bound, took: Duration::ZERO }
    }
}

/// Moving averages over about 16 answers, in seconds and bytes: of requests that few others kept waiting, for the queue
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
    /// Never more than `most` in flight, at least one.
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

    /// Requests that may be in flight, second copies included. At least 1.
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

    /// How long a request takes when few others are in flight; zero while that is not known.
    pub(super) fn usual(&self) -> Duration {
        Duration::from_secs_f64(self.means.first_byte + self.means.body)
    }

    /// A request waits for its turn.
    pub(super) fn waits(&mut self) {
        self.waiting += 1;
        self.note_bound();
    }

    /// It waits no longer.
    pub(super) fn waited(&mut self) {
        self.waiting = self.waiting.saturating_sub(1);
    }

    fn note_bound(&mut self) {
        let bound = self.waiting > 0;
        if let Some(round) = &mut self.round {
            round.bound |= bound;
        }
    }

    /// A request goes out. Says whether few others are in flight.
    pub(super) fn began(&mut self, now: Instant) -> bool {
        self.in_flight += 1;
        let bound = self.waiting > 0;
        self.round.get_or_insert(Round::new(now, bound));
        self.in_flight <= LIGHT
    }

    /// A request is over: answered, failed or given up.
    pub(super) fn ended(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if self.in_flight == 0 && self.waiting == 0 {
            // What follows is idleness, not the store's rate.
            self.round = None;
        }
    }

    /// A request was answered.
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
        // While the window doubles, a round is one latency long: the first batches wait for it.
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
            // Less than the window was wanted: that says nothing about a larger one.
            self.rate = self.rate.max(rate);
        }
    }

    /// A round has ended in which the window was what bounded the rate; the store is `near`.
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
                        // The next step at once. Steps down add up: none may be judged by what the last one has cost.
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

    /// Tries another window, to be judged by the rate that this one reached.
    fn step(&mut self, rate: f64) {
        let step = (self.window / 4).max(1);
        (self.rate, self.tried_from) = (rate, Some(self.window));
        self.window = if self.down { (self.window - step).max(LEAST.min(self.window)) } else { self.window + step };
    }

    /// The store asked for less, of a request that began at `began`. `jitter` is 0 to 1: many processes must not come
    /// back together.
    pub(super) fn throttled(&mut self, now: Instant, began: Instant, jitter: f64) {
        // What was in flight at a cut is refused as well: one event, one cut.
        if self.cut_at.is_some_and(|cut| began <= cut) {
            return;
        }
        self.refused += (1.0 - self.refused) / SAMPLE;
        self.in_a_row += 1;
        if self.refused < TOLERATED && self.in_a_row < IN_A_ROW {
            return;
        }
        // What a store took before an outage, it takes after it.
        let before = if self.answered_since { 0 } else { self.recover_to };
        self.recover_to = before.max(self.window * 3 / 4);
        self.halve();
        // What is left of the memory makes the next cut come sooner, if this one does not help.
        (self.refused, self.in_a_row) = (TOLERATED / 2.0, 0);
        let longer = if self.answered_since { LEAST_PAUSE } else { self.pause * 2 };
        (self.pause, self.answered_since) = (longer.clamp(LEAST_PAUSE, LONGEST_PAUSE), false);
        self.cut_at = Some(now);
        self.paused_until = Some(now + self.pause.mul_f64(1.0 + jitter.clamp(0.0, 1.0) / 2.0));
    }

    /// This process can have no more connections, for a request that began at `began`.
    pub(super) fn exhausted(&mut self, now: Instant, began: Instant) {
        if self.cut_at.is_some_and(|cut| began <= cut) {
            return;
        }
        // Not recovered to at once: whoever holds the files may hold them for long. Steps up find it out.
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

    /// A store of virtual time: each request takes `latency`, and at most `most` are served at a time; above
    /// `refuse_at` requests in flight are refused.
    struct Store {
        latency: Duration,
        most: usize,
        refuse_at: usize,
        /// Every 20 ms it is up to 40 % slower than it can be, as a machine is on which others work.
        moody: bool,
    }

    /// Keeps `want` requests in flight where the limit allows it; gives the window, its largest value, and the answers.
    fn drive(limit: &mut Limit, now: &mut Instant, store: &Store, want: usize, requests: usize) -> (usize, usize) {
        // Of other moods one in eight leaves the window wide for a while.
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
        // Looked at again and again: where it wanders it is wide at some time.
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
            // All that was in flight is refused: one event.
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
            if infeed_core::random::mix(n).is_multiple_of(10) {
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
