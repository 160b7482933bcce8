//! Who may send a request now: the permits of one store, shared by all readers in this process.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use infeed_core::{process, random::jitter};
use tokio::sync::Semaphore;

use super::{
    clock::{has_timers, now},
    hedge::Hedging,
    limit::{self, Limit, Measured, spare},
    trouble::{News, Trouble},
};

/// The requests of this process to one store: endpoint and bucket.
#[derive(Debug)]
pub(crate) struct Requests {
    /// Permits for first requests. `held` counts them, so they are forgotten when taken.
    pub(super) regular: Semaphore,
    state: Mutex<Control>,
}

#[derive(Debug)]
pub(super) struct Control {
    pub(super) limit: Limit,
    pub(super) hedging: Hedging,
    pub(super) trouble: Trouble,
    /// How many permits for first requests there should be.
    pub(super) size: usize,
    /// How many permits are to be removed when they come back.
    pub(super) debt: usize,
    /// Second copies in flight.
    pub(super) copies: usize,
    /// Number of requests begun, to spread the first ones.
    begun: u32,
    first_began: Option<Instant>,
    refusals: u64,
}

/// The first requests begin this far apart, because each opens a connection.
const SPREAD: Duration = Duration::from_millis(2);

/// The most connections of this process: three quarters of the files that it may open, less those that are not
/// connections. Other stores and other users of files share the rest. If that is still too little, requests that can't
/// connect report it ([`Requests::exhausted`]).
static FILES: LazyLock<usize> = LazyLock::new(|| {
    let files = process::open_files().map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX));
    files.saturating_sub(OTHER_FILES) / 4 * 3
});
/// Libraries, logs, the runtime's own handles, one file per decode thread.
const OTHER_FILES: usize = 64;

static STORES: LazyLock<Mutex<HashMap<String, Weak<Requests>>>> = LazyLock::new(Mutex::default);

impl Requests {
    /// For a store with a single handle.
    pub(crate) fn new() -> Arc<Self> {
        let limit = Limit::new(*FILES);
        let size = limit.window() - spare(limit.window());
        let state = Control {
            limit,
            hedging: Hedging::default(),
            trouble: Trouble::default(),
            size,
            debt: 0,
            copies: 0,
            begun: 0,
            first_began: None,
            refusals: 0,
        };
        Arc::new(Self { regular: Semaphore::new(size), state: Mutex::new(state) })
    }

    /// The requests to the store named `key`, shared by all its readers in this process.
    pub(crate) fn shared(key: &str) -> Arc<Self> {
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
        // Each critical section leaves the state consistent, even if a thread panics elsewhere.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn window(&self) -> usize {
        self.state().limit.window()
    }

    /// Waits for a place among the requests in flight, in the order of the calls, and until no pause is in effect. After
    /// a pause, and among the first requests, which are spread over some milliseconds, the order may change.
    pub(super) async fn turn(&self) -> RequestPermit<'_> {
        let permit = match self.regular.try_acquire() {
            Ok(permit) => permit,
            Err(_) => {
                let _waiting = Waiting::new(self);
                self.regular.acquire().await.expect("the limit is never closed")
            }
        };
        permit.forget();
        self.begin_when_wanted().await
    }

    /// The same for a retry: it goes ahead of requests that wait for their first attempt, which are needed later. It
    /// takes the place of the next request that ends, so until then slightly more than the window is in flight.
    pub(super) async fn turn_again(&self) -> RequestPermit<'_> {
        if !self.take_ahead() {
            return self.turn().await;
        }
        self.begin_when_wanted().await
    }

    /// Takes a free permit, or the next one that comes back.
    fn take_ahead(&self) -> bool {
        let mut state = self.state();
        if let Ok(permit) = self.regular.try_acquire() {
            permit.forget();
            return true;
        }
        let may = state.debt < (state.size / 4).max(1);
        state.debt += usize::from(may);
        may
    }

    /// Begins the request once pauses are over; the permit was taken before.
    async fn begin_when_wanted(&self) -> RequestPermit<'_> {
        let turn = RequestPermit { requests: self, copy: false, began: false, light: false };
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
    pub(super) fn turn_of_copy(&self) -> Option<RequestPermit<'_>> {
        let (mut state, now) = (self.state(), now());
        let is_free = state.copies < spare(state.limit.window()) && state.limit.paused_until(now).is_none();
        if !(is_free && state.hedging.take(now)) {
            return None;
        }
        state.copies += 1;
        drop(state);
        Some(RequestPermit { requests: self, copy: true, began: false, light: false }.begin(now))
    }

    /// Counts a read in progress until the returned guard is dropped.
    pub(super) fn join(&self) -> Joined<'_> {
        self.state().trouble.joined();
        Joined(self)
    }

    pub(super) fn answered(&self, answer: &Measured) {
        let (mut state, now) = (self.state(), now());
        state.limit.answered(now, answer);
        state.hedging.took(answer.bytes, answer.whole);
        self.resize(&mut state);
        let news = state.trouble.answered(now);
        drop(state);
        Self::tell(news);
    }

    /// Records that the store answered without bytes: it is reachable.
    pub(super) fn heard(&self) {
        let news = self.state().trouble.answered(now());
        Self::tell(news);
    }

    /// Records that a request that began at `began` failed for a reason that may be the store's.
    pub(super) fn failed(&self, began: Instant) {
        let now = now();
        let news = self.state().trouble.failed(now, began);
        Self::tell(news);
    }

    fn tell(news: Option<News>) {
        match news {
            Some(News::Out(lasted)) => {
                tracing::warn!(seconds = lasted.as_secs(), "the store does not answer; waiting for it");
            }
            Some(News::Back(lasted)) => tracing::info!(seconds = lasted.as_secs(), "the store answers again"),
            None => {}
        }
    }

    /// Records that the store refused a request that began at `began`.
    pub(super) fn throttled(&self, began: Instant) {
        let (mut state, now) = (self.state(), now());
        state.refusals += 1;
        let jitter = jitter(state.refusals);
        state.limit.throttled(now, began, jitter);
        state.hedging.throttled(now);
        self.resize(&mut state);
        tracing::debug!(window = state.limit.window(), "the store asks for fewer requests");
    }

    /// Records that this process has no file left for the connection of a request that began at `began`.
    pub(super) fn exhausted(&self, began: Instant) {
        let mut state = self.state();
        state.limit.exhausted(now(), began);
        self.resize(&mut state);
        tracing::debug!(window = state.limit.window(), "too many files are open: fewer requests");
    }

    /// Adapts the number of permits to the window.
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

impl Control {
    /// Until when a request with a permit must wait.
    fn held_until(&self, now: Instant) -> Option<Instant> {
        let spread = match self.first_began {
            // A single request need not be spread, since no other goes out with it.
            Some(first) if (self.begun as usize) < limit::START && self.limit.in_flight() > 0 => {
                Some(first + SPREAD * self.begun)
            }
            _ => None,
        };
        [spread, self.limit.paused_until(now)].into_iter().flatten().max().filter(|until| *until > now)
    }
}

/// A read in progress.
#[derive(Debug)]
pub(super) struct Joined<'a>(&'a Requests);

impl Drop for Joined<'_> {
    fn drop(&mut self) {
        self.0.state().trouble.left();
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
pub(super) struct RequestPermit<'a> {
    requests: &'a Requests,
    copy: bool,
    began: bool,
    /// Few others are in flight.
    pub(super) light: bool,
}

impl RequestPermit<'_> {
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

impl Drop for RequestPermit<'_> {
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
