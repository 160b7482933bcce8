//! Settings on `auto` that follow the run: decode threads at work, and batches ahead of the trainer.
//!
//! ```text
//! ten times a second, for the first of a loader's streams:
//!   what the trainer waited ─┐
//!   what the threads did ────┼─▶ control: a state machine on figures alone ─▶ one change ─▶ threads park or wake,
//!   processor time ──────────┘                                                              places for batches
//! ```
//!
//! **What it is after**, in this order:
//! 1. the trainer does not wait;
//! 2. no more threads compute than this process has cores, and batches ahead stay within the memory budget;
//! 3. what is left over is not spent: a trainer that computes on the same cores is faster beside fewer threads.
//!
//! ```text
//! the trainer waits ┬ threads idle, no room for a batch; or all batches were there, then none ─▶ twice as many ahead
//!                   ├ fewer threads than cores ────▶ all of them, at once
//!                   ├ threads wait for files ──────▶ try more, up to what keeps the cores busy; kept if the rate rises
//!                   └ threads hinder each other ───▶ try three quarters; kept if the rate does not fall
//! it does not wait ─── threads idle ───────────────▶ as many as keep up; back when it waits
//! ```
//!
//! What did not pay is tried again later, each time after twice as long. Order and content of batches never depend on any
//! of it. A number that the user set is never touched.
//!
//! What follows the run elsewhere: requests in flight to a store (`source::requests`), how far bytes are read ahead
//! (`engine::fetch`), records in a job ([`ChunkSize`](super::ChunkSize)), and who decodes which image on a GPU: CPU
//! threads, streams and engines take from one queue, so each gets what it can do.

mod control;
#[cfg(test)]
mod sim;
#[cfg(test)]
mod tests;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use control::{Look, Sums, Tuner};
pub(crate) use control::{Range, Scope};

use super::{Workers, fetch::units, run::StreamShared};
use crate::{
    report::{TuneDecision, TuneReport, Tuned, TunedSetting},
    sys::threads,
};

/// Between two looks: often enough to bound a window to half a second, seldom enough to cost nothing.
const TICK: Duration = Duration::from_millis(100);

/// What the streams of a loader share about `auto`.
#[derive(Debug)]
pub(crate) struct Tuning {
    scope: Scope,
    state: Mutex<State>,
    /// Room for more batches than the loader was built for, and what each takes of it.
    more: Arc<Semaphore>,
    each: u32,
}

#[derive(Debug)]
struct State {
    tuner: Tuner,
    /// Streams that live, by number; the first is listened to.
    streams: Vec<u64>,
    /// The one that was listened to last.
    heard: Option<u64>,
    next: u64,
    /// The room of batches beyond those that the loader was built for.
    held: Option<OwnedSemaphorePermit>,
    #[cfg(test)]
    wild: Option<u64>,
}

/// A stream's place among those of its loader.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    id: u64,
    /// What it began with.
    workers: usize,
    prefetch: usize,
}

impl Turn {
    pub(super) const fn id(&self) -> u64 {
        self.id
    }

    pub(super) const fn prefetch(&self) -> usize {
        self.prefetch
    }
}

impl Tuning {
    /// `more`: memory beyond that of the starting numbers; each further batch takes `batch_bytes`.
    pub(crate) fn new(scope: Scope, (more, batch_bytes): (&Arc<Semaphore>, u64)) -> Self {
        let state = State {
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

    fn state(&self) -> MutexGuard<'_, State> {
        // Each section leaves the state whole, so a panic elsewhere cannot have broken it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is anything to decide.
    pub(crate) const fn follows(&self) -> bool {
        !(self.scope.workers.is_fixed() && self.scope.prefetch.is_fixed())
    }

    /// A stream begins.
    pub(super) fn join(&self, workers: &Workers) -> Turn {
        let mut state = self.state();
        let id = state.next;
        state.next += 1;
        state.streams.push(id);
        let alone = state.streams.len() == 1;
        if alone {
            state.listen_to(id);
            if !self.scope.workers.is_fixed() {
                workers.set_active(state.tuner.workers());
            }
        }
        // Of streams beside each other only one has what was found.
        let prefetch = if alone { state.tuner.prefetch() } else { self.scope.prefetch.start };
        Turn { id, workers: state.tuner.workers(), prefetch }
    }

    /// It ends. May be told twice.
    pub(super) fn leave(&self, id: u64) {
        self.state().streams.retain(|stream| *stream != id);
    }

    /// Memory for `prefetch` batches with rows, as far as there is any: how many there is memory for.
    pub(super) fn hold(&self, prefetch: usize) -> usize {
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

    /// What is to be changed now, if the stream is the one that is listened to.
    fn look(&self, stream: &StreamShared, id: u64) -> Option<TuneDecision> {
        let look = {
            let (now, finished) = (Instant::now(), stream.finished.load(Ordering::Relaxed) as u64);
            let worked = stream.loader.workers.worked();
            let asked = stream.asking().look(now, finished);
            let sums = Sums {
                at: now.saturating_duration_since(stream.started),
                batches: asked.batches,
                rows: worked.rows,
                jobs: worked.jobs,
                waited: asked.waited,
                blocked: stream.row_permits.blocked(),
                swings: asked.swings,
                worked: worked.worked,
                read: worked.read,
                read_cpu: worked.read_cpu,
                made: worked.made,
                made_cpu: worked.made_cpu,
                cpu: threads::process_cpu_time().unwrap_or_default(),
            };
            Look { sums, asking: asked.asking, finished, fewest: asked.fewest, shared: false }
        };
        let mut state = self.state();
        if state.streams.first() != Some(&id) {
            return None;
        }
        if state.heard != Some(id) {
            // The one before it ended: it goes on with what was found.
            state.listen_to(id);
            stream.row_permits.grow_to(state.tuner.prefetch());
            stream.loader.workers.set_active(state.tuner.workers());
        }
        let shared = state.streams.len() > 1;
        #[cfg(test)]
        if let Some(wild) = state.wild.as_mut() {
            *wild = crate::random::mix(*wild);
            let draw = *wild;
            return Some(state.at_random(&self.scope, draw));
        }
        state.tuner.look(&Look { shared, ..look })
    }

    /// A change was made as far as it went.
    fn reached(&self, decision: TuneDecision, reached: usize) -> Option<TuneDecision> {
        self.state().tuner.reached(&decision, reached);
        let done = TuneDecision { to: reached, ..decision };
        (done.to != done.from).then_some(done)
    }

    /// What a stream did with what it began with.
    pub(super) fn report(&self, turn: &Turn, stream: &StreamShared) -> TuneReport {
        let setting = |range: Range, start, now| TunedSetting {
            auto: !range.is_fixed(),
            now,
            start,
            least: range.least,
            most: range.most,
        };
        let workers = setting(self.scope.workers, turn.workers, self.state().tuner.workers());
        let prefetch = setting(self.scope.prefetch, turn.prefetch, stream.row_permits.size());
        stream.tuned().report(workers, prefetch)
    }

    /// From now on changes come at random, a thousand a second.
    #[cfg(test)]
    pub(crate) fn go_wild(&self, seed: u64) {
        self.state().wild = Some(seed);
    }

    fn tick(&self) -> Duration {
        #[cfg(test)]
        if self.state().wild.is_some() {
            return Duration::from_millis(1);
        }
        TICK
    }
}

impl State {
    fn listen_to(&mut self, id: u64) {
        self.heard = Some(id);
        self.tuner.begin();
    }

    #[cfg(test)]
    fn at_random(&self, scope: &Scope, draw: u64) -> TuneDecision {
        use crate::report::TuneReason;
        let within = |range: Range| 1 + (draw >> 8) as usize % range.most;
        match draw % 2 {
            0 => TuneDecision::new(Tuned::Workers, [self.tuner.workers(), within(scope.workers)], TuneReason::Crowded),
            _ => TuneDecision::new(Tuned::Prefetch, [self.tuner.prefetch(), within(scope.prefetch)], TuneReason::Room),
        }
    }
}

/// Adjusts what is on `auto` while a stream runs.
pub(super) async fn tune(stream: Arc<StreamShared>, id: u64) {
    let loader = &stream.loader;
    loop {
        tokio::time::sleep(loader.tuning.tick()).await;
        let Some(decision) = loader.tuning.look(&stream, id) else { continue };
        let reached = match decision.what {
            Tuned::Workers => loader.workers.set_active(decision.to),
            Tuned::Prefetch => loader.set_prefetch(&stream, decision.to).await,
        };
        let Some(done) = loader.tuning.reached(decision, reached) else { continue };
        let TuneDecision { what, from, to, why, waiting, busy, samples_per_second, .. } = done;
        let (what, why) = (what.name(), why.name());
        tracing::debug!(what, from, to, why, waiting, busy, samples_per_second, "autotune");
        stream.tuned().add(done);
    }
}

/// When the trainer asks for batches, and what it waits for.
#[derive(Debug, Default)]
pub(super) struct Asking {
    asked: Option<Instant>,
    waited: Duration,
    batches: u64,
    swings: u64,
    /// All batches that may be ahead were finished, and none was missing since.
    full: bool,
    fewest: Option<u64>,
}

/// What is seen of it at a moment.
#[derive(Clone, Copy, Debug)]
struct Asked {
    asking: bool,
    waited: Duration,
    batches: u64,
    swings: u64,
    fewest: Option<u64>,
}

impl Asking {
    /// It asks now, with `finished` batches there of `room` that may be ahead.
    pub(super) fn asks(&mut self, now: Instant, finished: u64, room: u64) {
        self.asked = Some(now);
        self.fewest = Some(self.fewest.map_or(finished, |fewest| fewest.min(finished)));
        // The place of the batch that was taken last may not be filled yet.
        self.full |= finished >= room.saturating_sub(1).max(1);
        if finished == 0 && std::mem::take(&mut self.full) {
            self.swings += 1;
        }
    }

    /// It got a batch that was ready at that moment: what it waited afterwards was its own runtime's fault.
    pub(super) fn got(&mut self, ready: Instant) {
        self.batches += 1;
        let Some(asked) = self.asked.take() else { return };
        self.waited += ready.saturating_duration_since(asked);
    }

    fn look(&mut self, now: Instant, finished: u64) -> Asked {
        // With batches there it may be that nobody polls. How long it did wait is known when it gets one.
        let waits =
            self.asked.filter(|_| finished == 0).map_or(Duration::ZERO, |asked| now.saturating_duration_since(asked));
        Asked {
            asking: self.asked.is_some(),
            waited: self.waited + waits,
            batches: self.batches,
            swings: self.swings,
            fewest: self.fewest.take(),
        }
    }
}
