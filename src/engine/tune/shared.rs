//! Autotune state that the streams of a loader share: which stream is measured, and the results.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use infeed_core::report::{TuneDecision, TuneLog, TuneReport, TunedSetting};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    super::permits::units,
    control::{Look, Range, Scope, Tuner},
};

/// Time between two measurements: short enough for windows of half a second, long enough to cost nothing.
const TICK: Duration = Duration::from_millis(100);

/// Autotune state that the streams of a loader share.
#[derive(Debug)]
pub(crate) struct Tuning {
    scope: Scope,
    state: Mutex<TuningState>,
    /// Memory for more batches than the loader was built for, and the bytes of each.
    more: Arc<Semaphore>,
    each: u32,
}

#[derive(Debug)]
struct TuningState {
    tuner: Tuner,
    /// Living streams, by number; the first is measured.
    streams: Vec<u64>,
    /// The stream that was measured last.
    heard: Option<u64>,
    next: u64,
    /// The memory of batches beyond those that the loader was built for.
    held: Option<OwnedSemaphorePermit>,
    #[cfg(test)]
    wild: Option<u64>,
}

/// A stream's number among the streams of its loader, and its first values of workers and prefetch.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct StreamStart {
    id: u64,
    /// The numbers with which it began.
    workers: usize,
    prefetch: usize,
}

impl StreamStart {
    pub(in crate::engine) const fn id(&self) -> u64 {
        self.id
    }

    pub(in crate::engine) const fn prefetch(&self) -> usize {
        self.prefetch
    }
}

impl Tuning {
    /// `more` is memory beyond that of the starting numbers; each further batch takes `batch_bytes`.
    pub(crate) fn new(scope: Scope, (more, batch_bytes): (&Arc<Semaphore>, u64)) -> Self {
        let state = TuningState {
            tuner: Tuner::new(scope),
            streams: Vec::new(),
            heard: None,
            next: 0,
            held: None,
            #[cfg(test)]
            wild: None,
        };
        Self { scope, state: Mutex::new(state), more: Arc::clone(more), each: units(batch_bytes) }
    }

    fn state(&self) -> MutexGuard<'_, TuningState> {
        // Each section leaves the state whole, so a panic elsewhere cannot have broken it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether any setting is on `auto`.
    pub(crate) const fn follows(&self) -> bool {
        !(self.scope.workers.is_fixed() && self.scope.prefetch.is_fixed())
    }

    /// Threads that work now.
    pub(in crate::engine) fn workers(&self) -> usize {
        self.state().tuner.workers()
    }

    /// A stream begins. The first stream of the loader begins with the last results, which `set_active` sets for the
    /// threads.
    pub(in crate::engine) fn join(&self, set_active: impl FnOnce(usize)) -> StreamStart {
        let mut state = self.state();
        let id = state.next;
        state.next += 1;
        state.streams.push(id);
        let alone = state.streams.len() == 1;
        if alone {
            state.listen_to(id);
            if !self.scope.workers.is_fixed() {
                set_active(state.tuner.workers());
            }
        }
        // Of several concurrent streams only one uses the last results.
        let prefetch = if alone { state.tuner.prefetch() } else { self.scope.prefetch.start };
        StreamStart { id, workers: state.tuner.workers(), prefetch }
    }

    /// A stream ends. May be called twice.
    pub(in crate::engine) fn leave(&self, id: u64) {
        self.state().streams.retain(|stream| *stream != id);
    }

    /// Reserves memory for `prefetch` batches with rows, as far as there is any; returns the number for which there is.
    pub(in crate::engine) fn hold(&self, prefetch: usize) -> usize {
        let start = self.scope.prefetch.start;
        let wanted = prefetch.saturating_sub(start);
        let mut state = self.state();
        let have = |held: &Option<OwnedSemaphorePermit>| {
            held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits) / self.each as usize
        };
        while have(&state.held) < wanted {
            let Ok(more) = Arc::clone(&self.more).try_acquire_many_owned(self.each) else { break };
            match &mut state.held {
                Some(held) => held.merge(more),
                none => *none = Some(more),
            }
        }
        let surplus = have(&state.held).saturating_sub(wanted) * self.each as usize;
        drop(state.held.as_mut().and_then(|held| held.split(surplus)));
        prefetch.min(start + have(&state.held))
    }

    /// The change to make now, if this stream is the measured one. A stream that has just become the measured one
    /// continues with the last results: `go_on_with` gets these numbers of threads and batches.
    pub(super) fn look(&self, look: Look, id: u64, go_on_with: impl FnOnce(usize, usize)) -> Option<TuneDecision> {
        let mut state = self.state();
        if state.streams.first() != Some(&id) {
            return None;
        }
        if state.heard != Some(id) {
            // The previous stream ended.
            state.listen_to(id);
            go_on_with(state.tuner.workers(), state.tuner.prefetch());
        }
        let shared = state.streams.len() > 1;
        #[cfg(test)]
        if let Some(wild) = state.wild.as_mut() {
            *wild = infeed_core::random::hash64(*wild);
            let draw = *wild;
            return Some(state.at_random(&self.scope, draw));
        }
        state.tuner.look(&Look { shared, ..look })
    }

    /// Records a change that was made, maybe only in part.
    pub(super) fn reached(&self, decision: TuneDecision, reached: usize) -> Option<TuneDecision> {
        self.state().tuner.reached(&decision, reached);
        let mut done = decision;
        done.to = reached;
        (done.to != done.from).then_some(done)
    }

    /// The report of a stream that may now have `prefetch` batches ahead.
    pub(in crate::engine) fn report(&self, start: &StreamStart, prefetch: usize, log: &TuneLog) -> TuneReport {
        let setting =
            |range: Range, start, now| TunedSetting::new(!range.is_fixed(), now, start, [range.least, range.most]);
        let workers = setting(self.scope.workers, start.workers, self.state().tuner.workers());
        let prefetch = setting(self.scope.prefetch, start.prefetch, prefetch);
        log.report(workers, prefetch)
    }

    /// From now on changes are random, one each time that the task runs.
    #[cfg(test)]
    pub(crate) fn go_wild(&self, seed: u64) {
        self.state().wild = Some(seed);
    }

    /// Time until the next measurement.
    pub(super) async fn tick(&self) {
        #[cfg(test)]
        if self.state().wild.is_some() {
            return tokio::task::yield_now().await;
        }
        tokio::time::sleep(TICK).await;
    }
}

impl TuningState {
    fn listen_to(&mut self, id: u64) {
        self.heard = Some(id);
        self.tuner.begin();
    }

    #[cfg(test)]
    fn at_random(&self, scope: &Scope, draw: u64) -> TuneDecision {
        use infeed_core::report::{TuneReason, Tuned};
        let within = |range: Range| 1 + (draw >> 8) as usize % range.most;
        match draw % 2 {
            0 => TuneDecision::new(Tuned::Workers, [self.tuner.workers(), within(scope.workers)], TuneReason::Crowded),
            _ => TuneDecision::new(Tuned::Prefetch, [self.tuner.prefetch(), within(scope.prefetch)], TuneReason::Room),
        }
    }
}
