//! Who may send a request now: the permits of one store, shared by all of this process.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use tokio::sync::Semaphore;

use super::{
    clock::{has_timers, now},
    hedge::Hedging,
    limit::{self, Limit, Measured, spare},
};
use crate::random::mix;

/// The requests of this process to one store: endpoint and bucket.
#[derive(Debug)]
pub(in crate::source) struct Requests {
    /// Permits for requests of their own; `held` counts, so they are forgotten when taken.
    pub(super) regular: Semaphore,
    state: Mutex<Control>,
}

#[derive(Debug)]
pub(super) struct Control {
    pub(super) limit: Limit,
    pub(super) hedging: Hedging,
    /// Permits there should be for requests of their own.
    pub(super) size: usize,
    /// Permits that are to disappear when they come back.
    pub(super) debt: usize,
    /// Second copies in flight.
    pub(super) copies: usize,
    /// Requests that began, to spread the first.
    begun: u32,
    first_began: Option<Instant>,
    refusals: u64,
}

/// The first requests begin this far apart: each opens a connection.
const SPREAD: Duration = Duration::from_millis(2);

static STORES: LazyLock<Mutex<HashMap<String, Weak<Requests>>>> = LazyLock::new(Mutex::default);

impl Requests {
    /// For a store that only one handle knows.
    pub(in crate::source) fn new() -> Arc<Self> {
        let limit = Limit::new();
        let size = limit.window() - spare(limit.window());
        let state = Control {
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
    pub(in crate::source) fn shared(key: &str) -> Arc<Self> {
        let mut stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
        stores.retain(|_, requests| requests.strong_count() > 0);
        if let Some(requests) = stores.get(key).and_then(Weak::upgrade) {
            return requests;
        }
        let requests = Self::new();
        stores.insert(key.to_owned(), Arc::downgrade(&requests));
        requests
    }

    pub(super) fn state(&self) -> MutexGuard<'_, Control> {
        // Each section leaves the state whole, so a panic elsewhere cannot have broken it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn window(&self) -> usize {
        self.state().limit.window()
    }

    /// Waits for a place among the requests in flight, in the order of the calls, and until the store wants to be asked.
    pub(super) async fn turn(&self) -> Turn<'_> {
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
                Some(until) if has_timers() => tokio::time::sleep_until(until.into()).await,
                _ => return turn.begin(now),
            }
        }
    }

    /// A place for a second copy, if one may be sent now.
    pub(super) fn turn_of_copy(&self) -> Option<Turn<'_>> {
        let (mut state, now) = (self.state(), now());
        let is_free = state.copies < spare(state.limit.window()) && state.limit.paused_until(now).is_none();
        if !(is_free && state.hedging.take(now)) {
            return None;
        }
        state.copies += 1;
        drop(state);
        Some(Turn { requests: self, copy: true, began: false, light: false }.begin(now))
    }

    pub(super) fn answered(&self, answer: &Measured) {
        let mut state = self.state();
        state.limit.answered(now(), answer);
        state.hedging.took(answer.bytes, answer.whole);
        self.resize(&mut state);
    }

    pub(super) fn throttled(&self) {
        let (mut state, now) = (self.state(), now());
        state.refusals += 1;
        let jitter = jitter(state.refusals);
        state.limit.throttled(now, jitter);
        state.hedging.throttled(now);
        self.resize(&mut state);
        tracing::debug!(window = state.limit.window(), "the store asks for fewer requests");
    }

    /// Makes the permits fit the window.
    fn resize(&self, state: &mut Control) {
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
pub(super) fn jitter(n: u64) -> f64 {
    (mix(mix(u64::from(std::process::id())) ^ n) >> 11) as f64 / (1u64 << 53) as f64
}

impl Control {
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
#[derive(Debug)]
pub(super) struct Turn<'a> {
    requests: &'a Requests,
    copy: bool,
    began: bool,
    /// Few others are in flight.
    pub(super) light: bool,
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
