//! The recorder that all threads of a run write to.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{Clock, DeviceTimes, Stage, StageReport, Times};

#[derive(Debug, Default)]
struct StageTotals {
    clock: Clock,
    starved: Duration,
    blocked: Duration,
    device: Duration,
    cpu: Duration,
    calls: u64,
    bytes: u64,
}

/// Collects what the stages of one stream did. A clone is another handle to the same recorder.
#[derive(Clone, Debug)]
pub struct Recorder(Option<Arc<AllTotals>>);

type AllTotals = [Mutex<StageTotals>; Stage::REPORTED.len()];

impl Default for Recorder {
    fn default() -> Self {
        Self(Some(Arc::default()))
    }
}

impl Recorder {
    /// A recorder that keeps nothing.
    #[inline]
    pub const fn off() -> Self {
        Self(None)
    }

    fn totals(&self, stage: Stage) -> Option<MutexGuard<'_, StageTotals>> {
        let all = self.0.as_ref()?;
        let index = Stage::REPORTED.iter().position(|s| *s == stage)?;
        // The counters are usable in whatever state a panicking thread left them.
        Some(all[index].lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records that `items` took `time` in `stage` and produced `bytes`. Stages outside [`Stage::REPORTED`] are
    /// ignored.
    #[inline]
    pub fn busy(&self, stage: Stage, time: Duration, items: u64, bytes: u64) {
        self.worked(stage, time, Duration::ZERO, items, bytes);
    }

    /// As [`busy`](Self::busy), with the processor time that the thread used.
    #[inline]
    pub fn worked(&self, stage: Stage, time: Duration, cpu: Duration, items: u64, bytes: u64) {
        if let Some(mut totals) = self.totals(stage) {
            totals.clock.record_many(time, items);
            totals.cpu += cpu;
            totals.calls += 1;
            totals.bytes += bytes;
        }
    }

    /// Adds processor time for work that was recorded already.
    #[inline]
    pub fn used(&self, stage: Stage, cpu: Duration) {
        if let Some(mut totals) = self.totals(stage) {
            totals.cpu += cpu;
        }
    }

    /// Records that `stage` had nothing to do for `time`.
    #[inline]
    pub fn starved(&self, stage: Stage, time: Duration) {
        if let Some(mut totals) = self.totals(stage) {
            totals.starved += time;
        }
    }

    /// Records that `stage` had no room to go on for `time`.
    #[inline]
    pub fn blocked(&self, stage: Stage, time: Duration) {
        if let Some(mut totals) = self.totals(stage) {
            totals.blocked += time;
        }
    }

    /// Adds GPU times.
    #[inline]
    pub fn device(&self, times: DeviceTimes) {
        if times == DeviceTimes::ZERO {
            return;
        }
        let DeviceTimes { transfer, decode, transform } = times;
        for (stage, time) in [(Stage::Transfer, transfer), (Stage::Decode, decode), (Stage::Transform, transform)] {
            if let Some(mut totals) = self.totals(stage) {
                totals.device += time;
            }
        }
    }

    /// The totals so far.
    #[must_use]
    pub fn stages(&self) -> Vec<StageReport> {
        let report = |stage| {
            let totals = self.totals(stage)?;
            let Times { sum, p50, p99, count, .. } = totals.clock.times();
            let StageTotals { starved, blocked, device, cpu, calls, bytes, .. } = *totals;
            // Most loaders mix nothing: the stage is listed only if it was called.
            let is_there = stage != Stage::Mix || calls > 0;
            is_there.then_some(StageReport {
                stage,
                busy: sum,
                starved,
                blocked,
                device,
                cpu,
                calls,
                items: count,
                bytes,
                p50,
                p99,
            })
        };
        Stage::REPORTED.into_iter().filter_map(report).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorder_that_is_off_keeps_nothing() {
        let recorder = Recorder::off();
        recorder.busy(Stage::Decode, Duration::from_millis(8), 4, 100);
        recorder.device(DeviceTimes { decode: Duration::from_secs(1), ..DeviceTimes::ZERO });
        assert!(recorder.stages().is_empty());
    }

    #[test]
    fn items_of_one_job_share_its_time() {
        let recorder = Recorder::default();
        recorder.busy(Stage::Decode, Duration::from_millis(8), 4, 100);
        recorder.starved(Stage::Decode, Duration::from_millis(1));
        let decode = recorder.stages().into_iter().find(|s| s.stage == Stage::Decode).unwrap();
        assert_eq!((decode.items, decode.bytes, decode.busy), (4, 100, Duration::from_millis(8)));
        assert!((decode.p50.as_secs_f64() - 0.002).abs() < 0.0001);
    }
}
