//! Everything between "read this range of this object" and one request to a remote store.
//!
//! ```text
//! Extent ─ cut (16 MiB) ─▶ piece ─ attempt 1..4 ─▶ race ─┬─ copy: permit, GET, check, drain ─▶ bytes
//!                            │ retry, back off      │    └─ second copy when the first is slow (hedge)
//!                            │                      └ deadline
//!                            └ Requests, one for each store and process: limit (AIMD), pause, p95, credit for copies
//! ```
//!
//! Three things that are easy to get wrong:
//!
//! - **Nothing is spawned.** A read with its retries and copies is one future: dropping it drops its requests, and who
//!   polls it through a gate knows that no request begins behind it.
//! - **The client of a bucket retries no read.** `object_store` would back off each request alone, and a refusal would
//!   never get here.
//! - **Timers are made late.** A store that answers at once works without a runtime; where there is none, nothing is
//!   hedged and nothing has a deadline.

mod hedge;
mod limit;
mod read;

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

pub(super) use read::read;

use tokio::sync::{Semaphore, SemaphorePermit};

use self::{
    hedge::Hedging,
    limit::{Limit, Measured, spare},
};
use crate::{random::mix, report::RequestRecorder};

/// The requests of this process to one store: endpoint and bucket.
#[derive(Debug)]
pub(super) struct Requests {
    /// Permits for requests of their own; `held` counts, so they are forgotten when taken.
    regular: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    limit: Limit,
    hedging: Hedging,
    /// Permits there should be for requests of their own.
    size: usize,
    /// Permits that are to disappear when they come back.
    debt: usize,
    /// Second copies in flight.
    copies: usize,
    /// Requests that began, to spread the first.
    begun: u32,
    first_began: Option<Instant>,
    refusals: u64,
}

/// The first requests begin this far apart: each opens a connection.
const SPREAD: Duration = Duration::from_millis(2);

static STORES: LazyLock<Mutex<HashMap<String, Weak<Requests>>>> = LazyLock::new(Mutex::default);

/// Now, on tokio's clock: tests move it.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

impl Requests {
    /// For a store that only one handle knows.
    pub(super) fn new() -> Arc<Self> {
        let limit = Limit::new();
        let size = limit.window() - spare(limit.window());
        let state = State {
            limit,
            hedging: Hedging::default(),
            size,
            debt: 0,
            copies: 0,
            begun: 0,
            first_began: None,
            refusals: 0,
        };
        Arc::new(Self { regular: Semaphore::new(size), state: Mutex::new(state) })
    }

    /// Those of the store that `key` names, for everyone in this process who reads from it.
    pub(super) fn shared(key: &str) -> Arc<Self> {
        let mut stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
        stores.retain(|_, requests| requests.strong_count() > 0);
        if let Some(requests) = stores.get(key).and_then(Weak::upgrade) {
            return requests;
        }
        let requests = Self::new();
        stores.insert(key.to_owned(), Arc::downgrade(&requests));
        requests
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each section leaves the state whole, so a panic elsewhere cannot have broken it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn window(&self) -> usize {
        self.state().limit.window()
    }

    /// Waits for a place among the requests in flight, in the order of the calls, and until the store wants to be asked.
    async fn turn(&self) -> Turn<'_> {
        let permit = match self.regular.try_acquire() {
            Ok(permit) => permit,
            Err(_) => {
                let _waiting = Waiting::new(self);
                self.regular.acquire().await.expect("the limit is never closed")
            }
        };
        permit.forget();
        let turn = Turn { requests: self, copy: false, began: false, light: false };
        loop {
            let now = now();
            let until = self.state().held_until(now);
            match until {
                Some(until) if read::has_timers() => tokio::time::sleep_until(until.into()).await,
                _ => return turn.begin(now),
            }
        }
    }

    /// A place for a second copy, if one may be sent now.
    fn turn_of_copy(&self) -> Option<Turn<'_>> {
        let (mut state, now) = (self.state(), now());
        let room = state.copies < spare(state.limit.window()) && state.limit.paused_until(now).is_none();
        if !(room && state.hedging.take(now)) {
            return None;
        }
        state.copies += 1;
        drop(state);
        Some(Turn { requests: self, copy: true, began: false, light: false }.begin(now))
    }

    fn answered(&self, answer: &Measured) {
        let mut state = self.state();
        state.limit.answered(now(), answer);
        state.hedging.took(answer.bytes, answer.whole);
        self.resize(&mut state);
    }

    fn throttled(&self) {
        let (mut state, now) = (self.state(), now());
        state.refusals += 1;
        let jitter = jitter(state.refusals);
        state.limit.throttled(now, jitter);
        state.hedging.throttled(now);
        self.resize(&mut state);
        tracing::debug!(window = state.limit.window(), "the store asks for fewer requests");
    }

    /// Makes the permits fit the window.
    fn resize(&self, state: &mut State) {
        let window = state.limit.window();
        let size = window - spare(window);
        if size > state.size {
            let more = size - state.size;
            let kept = more.min(state.debt);
            state.debt -= kept;
            self.regular.add_permits(more - kept);
        } else {
            let fewer = state.size - size;
            state.debt += fewer - self.regular.forget_permits(fewer);
        }
        state.size = size;
    }
}

/// 0 to 1, another for each process and call.
fn jitter(n: u64) -> f64 {
    (mix(mix(u64::from(std::process::id())) ^ n) >> 11) as f64 / (1u64 << 53) as f64
}

impl State {
    /// Until when a request that has its place must wait.
    fn held_until(&self, now: Instant) -> Option<Instant> {
        let spread = match self.first_began {
            // Alone, a request need not be spread: nothing goes out beside it.
            Some(first) if (self.begun as usize) < limit::START && self.limit.in_flight() > 0 => {
                Some(first + SPREAD * self.begun)
            }
            _ => None,
        };
        [spread, self.limit.paused_until(now)].into_iter().flatten().max().filter(|until| *until > now)
    }
}

/// Counts a request that waits for its place.
struct Waiting<'a>(&'a Requests);

impl<'a> Waiting<'a> {
    fn new(requests: &'a Requests) -> Self {
        requests.state().limit.waits();
        Self(requests)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state().limit.waited();
    }
}

/// A place among the requests in flight, until it is dropped.
struct Turn<'a> {
    requests: &'a Requests,
    copy: bool,
    began: bool,
    /// Few others are in flight.
    light: bool,
}

impl Turn<'_> {
    fn begin(mut self, now: Instant) -> Self {
        let mut state = self.requests.state();
        self.light = state.limit.began(now);
        if !self.copy {
            state.hedging.began();
        }
        state.first_began.get_or_insert(now);
        state.begun = state.begun.saturating_add(1);
        drop(state);
        self.began = true;
        self
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.requests.state();
        if self.began {
            state.limit.ended();
        }
        if self.copy {
            state.copies -= 1;
        } else if state.debt > 0 {
            state.debt -= 1;
        } else {
            self.requests.regular.add_permits(1);
        }
    }
}

/// How a stream reads: a ceiling of its own, and who writes down what its requests did.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    ceiling: Option<Arc<Ceiling>>,
    recorder: RequestRecorder,
    /// Whose reads they are, for the watchdog.
    batch: u64,
}

/// Reads that belong to no stream share a recorder that nobody asks: its histograms cost more than a small read.
static NOBODYS: LazyLock<RequestRecorder> = LazyLock::new(RequestRecorder::default);

impl Default for Reader {
    fn default() -> Self {
        Self::new(None, NOBODYS.clone())
    }
}

/// Permits of one stream; a part is kept for second copies.
#[derive(Debug)]
struct Ceiling {
    regular: Semaphore,
    copies: Semaphore,
}

impl Reader {
    /// At most `most` requests in flight (`None`: as many as the store's limit allows).
    pub(crate) fn new(most: Option<usize>, recorder: RequestRecorder) -> Self {
        let ceiling = most.map(|most| {
            // 0 would wait for ever.
            let most = most.clamp(1, limit::MOST);
            let copies = spare(most);
            Arc::new(Ceiling { regular: Semaphore::new(most - copies), copies: Semaphore::new(copies) })
        });
        Self { ceiling, recorder, batch: 0 }
    }

    /// The same for the reads of one batch; batches are numbered in the order in which they are wanted.
    pub(crate) fn of_batch(&self, batch: u64) -> Self {
        Self { batch, ..self.clone() }
    }
}

/// Places of one request: under the stream's ceiling and under the store's limit.
struct Place<'a> {
    _ceiling: Option<SemaphorePermit<'a>>,
    turn: Turn<'a>,
}

#[cfg(test)]
mod tests;
