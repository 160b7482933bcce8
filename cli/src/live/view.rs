//! Turns reports into what is shown: rates over the last seconds, texts, shares.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use infeed::{
    Report,
    internal::machine,
    report::{LateBatch, Stage},
};

use crate::{
    gpu::GpuNow,
    report::{autotune_words, cause_words},
    units,
    usage::Moment,
};

/// The time that `now` covers.
const WINDOW: Duration = Duration::from_secs(2);
/// Points of the curve of waits.
const CURVE: usize = 240;

/// Facts that do not change during a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct About {
    pub url: String,
    pub what: String,
    pub batches_per_epoch: u64,
    pub epochs: u64,
    /// Batches that were done before a resume.
    pub done_before: u64,
    /// Batches of this run, if it ends before its last epoch.
    pub wanted: u64,
}

/// A rate over the last seconds and over the run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rate {
    pub(super) now: f64,
    pub(super) mean: f64,
}

/// Numbers of threads that work, have no input, or have no room for output.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct StageBar {
    pub(super) name: &'static str,
    pub(super) busy: f64,
    pub(super) starved: f64,
    pub(super) blocked: f64,
    /// Threads of this stage, including their other work.
    pub(super) of: f64,
}

impl StageBar {
    fn new(name: &'static str, [busy, starved, blocked]: [f64; 3]) -> Self {
        Self { name, busy, starved, blocked, of: busy + starved + blocked }
    }

    /// The fraction of its threads' time that it takes.
    pub(super) fn load(&self) -> f64 {
        share(self.busy, self.of)
    }
}

/// Decode threads decode and augment, and read local data. Each of these stages takes a part of their time.
fn share_threads(stages: &mut [StageBar]) {
    // A stage that reads from a store is sometimes starved or blocked.
    let waits = |bar: &StageBar| bar.starved + bar.blocked > 0.0;
    let theirs = |bar: &StageBar| match bar.name {
        "decode" | "transform" => true,
        "fetch" => !waits(bar),
        _ => false,
    };
    let of = stages.iter().filter(|bar| theirs(bar)).map(|bar| bar.of).sum();
    stages.iter_mut().filter(|bar| theirs(bar)).for_each(|bar| bar.of = of);
}

/// A figure of the process or the machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Load {
    pub(super) name: &'static str,
    pub(super) words: String,
    /// A fraction of 1, if there is a maximum.
    pub(super) of: Option<f64>,
}

impl Load {
    pub(super) const fn new(name: &'static str, words: String, of: Option<f64>) -> Self {
        Self { name, words, of }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct QueueBar {
    pub(super) name: &'static str,
    pub(super) level: String,
    pub(super) capacity: Option<String>,
    /// A fraction of 1, if there is a capacity.
    pub(super) fill: Option<f64>,
}

/// All contents of one draw.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    pub(super) url: String,
    pub(super) what: String,
    pub(super) elapsed: f64,
    /// `epoch 2 [37/391]`
    pub(super) place: String,
    /// A fraction of 1.
    pub(super) done: f64,
    pub(super) left: Option<f64>,
    pub(super) samples: Rate,
    pub(super) bytes: Rate,
    /// p50, p99, longest.
    pub(super) waits: [f64; 3],
    /// Share of the time spent waiting.
    pub(super) waiting: Rate,
    /// How long the current wait has lasted.
    pub(super) waits_now: Option<f64>,
    /// Shares of the time, the latest last.
    pub(super) curve: Vec<f64>,
    pub(super) stages: Vec<StageBar>,
    pub(super) queues: Vec<QueueBar>,
    pub(super) machine: Vec<Load>,
    pub(super) late: Vec<String>,
    pub(super) tuned: Vec<String>,
    pub(super) bad: u64,
    pub(super) lines: Vec<String>,
}

/// Totals at one moment.
#[derive(Debug)]
struct Totals {
    at: Instant,
    samples: u64,
    bytes: u64,
    waited: f64,
    /// Busy, starved, blocked.
    stages: Vec<[f64; 3]>,
}

/// Earlier totals.
#[derive(Debug)]
pub(super) struct History {
    about: About,
    totals: VecDeque<Totals>,
    curve: VecDeque<f64>,
}

impl History {
    pub(super) fn new(about: About) -> Self {
        Self { about, totals: VecDeque::new(), curve: VecDeque::new() }
    }

    /// The view at this instant.
    pub(super) fn look(
        &mut self,
        at: Instant,
        report: &Report,
        now: &Moment,
        gpu: Option<GpuNow>,
        lines: Vec<String>,
    ) -> View {
        let waits_now = report.waiting.map(|time| time.as_secs_f64());
        let stage = |s: &infeed::report::StageReport| [s.busy, s.starved, s.blocked].map(|time| time.as_secs_f64());
        let totals = Totals {
            at,
            samples: report.samples,
            bytes: report.bytes_read,
            // The first batch's wait, which includes the start, does not count. A current wait counts so far.
            waited: report.data_wait.sum.as_secs_f64() + waits_now.filter(|_| report.batches > 0).unwrap_or(0.0),
            stages: report.stages.iter().map(stage).collect(),
        };
        if let Some(last) = self.totals.back() {
            let seconds = (totals.at - last.at).as_secs_f64();
            if self.curve.len() == CURVE {
                self.curve.pop_front();
            }
            self.curve.push_back(share(totals.waited - last.waited, seconds));
        }
        self.totals.push_back(totals);
        while self.totals.len() > 2 && self.totals[self.totals.len() - 1].at - self.totals[1].at >= WINDOW {
            self.totals.pop_front();
        }
        let (Some(first), Some(last)) = (self.totals.front(), self.totals.back()) else { return View::default() };
        let seconds = (last.at - first.at).as_secs_f64();
        let elapsed = report.elapsed.as_secs_f64();
        let rate = |was: u64, is: u64| Rate {
            now: if seconds > 0.0 { is.saturating_sub(was) as f64 / seconds } else { 0.0 },
            mean: is as f64 / elapsed.max(f64::MIN_POSITIVE),
        };
        let About { url, what, batches_per_epoch, epochs, done_before, wanted } = &self.about;
        let in_all = (batches_per_epoch * epochs).saturating_sub(*done_before).min(*wanted);
        let place = (done_before + report.batches).saturating_sub(1);
        let each = (*batches_per_epoch).max(1);
        let done = report.batches as f64 / in_all.max(1) as f64;
        // Not from the first batches: they were made before they were requested.
        let left = (report.batches > 4 && done < 1.0).then(|| elapsed / done - elapsed);
        let stages = report.stages.iter().zip(first.stages.iter().zip(&last.stages));
        let stages = stages.map(|(stage, (was, is))| {
            let threads = |n: usize| if seconds > 0.0 { ((is[n] - was[n]) / seconds).max(0.0) } else { 0.0 };
            let name = if stage.stage == Stage::Yield { "trainer" } else { stage.stage.name() };
            StageBar::new(name, [0, 1, 2].map(threads))
        });
        let mut stages: Vec<StageBar> = stages.collect();
        stages.retain(|bar| bar.of > 0.0);
        share_threads(&mut stages);
        let queues = report.queues.iter().map(|queue| {
            let words = |n: u64| if queue.name == "encoded" { units::size(n) } else { units::count(n) };
            QueueBar {
                name: queue.name,
                level: words(queue.last),
                capacity: queue.capacity.map(words),
                fill: queue.capacity.map(|most| (queue.last as f64 / most.max(1) as f64).clamp(0.0, 1.0)),
            }
        });
        let wait = &report.data_wait;
        View {
            url: url.clone(),
            what: what.clone(),
            elapsed,
            place: match report.batches + done_before {
                0 => "no batch yet".into(),
                _ => format!("epoch {} [{}/{batches_per_epoch}]", place / each, place % each + 1),
            },
            done: done.clamp(0.0, 1.0),
            left,
            samples: rate(first.samples, last.samples),
            bytes: rate(first.bytes, last.bytes),
            waits: [wait.p50, wait.p99, wait.max].map(|time| time.as_secs_f64()),
            waiting: Rate {
                now: share(last.waited - first.waited, seconds),
                mean: share(wait.sum.as_secs_f64(), report.step.sum.as_secs_f64()),
            },
            waits_now,
            curve: self.curve.iter().copied().collect(),
            stages,
            queues: queues.collect(),
            machine: loads(now, gpu, report),
            late: late(report),
            tuned: tuned(report),
            bad: report.bad_sample_count,
            lines,
        }
    }
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { (part / whole).clamp(0.0, 1.0) } else { 0.0 }
}

fn loads(now: &Moment, gpu: Option<GpuNow>, report: &Report) -> Vec<Load> {
    let mut rows = Vec::new();
    let per_second = |rate: f64| format!("{}/s", units::size(rate as u64));
    if let Some(cores) = now.cores {
        let all = machine::cores().get();
        rows.push(Load::new("CPU", format!("{cores:.2} of {all} cores"), Some(share(cores, all as f64))));
    }
    if let Some(resident) = now.resident {
        let all = machine::memory();
        let of = all.map_or(String::new(), |all| format!(" of {}", units::size(all)));
        let part = all.map(|all| share(resident as f64, all as f64));
        rows.push(Load::new("memory", units::size(resident) + &of, part));
    }
    if let (Some(read), Some(written)) = (now.disk_read, now.disk_written) {
        let words = format!("{} read, {} written", per_second(read), per_second(written));
        rows.push(Load::new("disk", words, None));
    }
    if let (Some(received), Some(sent)) = (now.received, now.sent) {
        let mut words = format!("{} in, {} out", per_second(received), per_second(sent));
        if let Some(loopback) = now.loopback.filter(|rate| *rate >= 1024.0) {
            words.push_str(&format!(", {} loopback", per_second(loopback)));
        }
        rows.push(Load::new("network", format!("{words} (machine)"), None));
    }
    if let Some(requests) = &report.requests {
        let (n, limit) = (units::count(requests.requests), requests.limit);
        let again = requests.retries + requests.hedges;
        let words = format!("{n}, {} again, limit {limit}", units::count(again));
        rows.push(Load::new("requests", words, None));
    }
    for (name, cache, what) in [("cache", &report.cache, "reads"), ("decoded", &report.decoded_cache, "records")] {
        let Some(cache) = cache else { continue };
        let all = cache.hits + cache.misses;
        let percent = 100.0 * share(cache.hits as f64, all as f64);
        rows.push(Load::new(name, format!("{percent:.1} % of {} {what}", units::count(all)), None));
    }
    if let Some(gpu) = gpu {
        let memory = format!("{} of {}", units::size(gpu.memory_used), units::size(gpu.memory_total));
        rows.push(Load::new("GPU", format!("busy, {memory}"), Some(gpu.utilisation.clamp(0.0, 1.0))));
    }
    rows
}

/// Waits by cause, and the longest wait.
fn late(report: &Report) -> Vec<String> {
    let mut words: Vec<String> = report
        .late_causes
        .iter()
        .map(|cause| {
            let wait = units::time(cause.wait.as_secs_f64());
            format!("{} for {} ({wait})", units::count(cause.batches), cause_words(cause.cause))
        })
        .collect();
    if let Some(LateBatch { epoch, batch, wait, cause, object, .. }) = report.late_batches.first() {
        let name = object.as_deref().map(|object| infeed::internal::printable::name(object).into_owned());
        let what = name.unwrap_or_else(|| cause_words(*cause).to_owned());
        words.push(format!("longest: {} in epoch {epoch} batch {batch}: {what}", units::time(wait.as_secs_f64())));
    }
    words
}

/// The values of settings on `auto`, and the last changes.
fn tuned(report: &Report) -> Vec<String> {
    let mut words: Vec<String> = autotune_words(&report.autotune).into_iter().collect();
    let last = report.autotune.decisions.iter().rev().take(4);
    words.extend(last.map(|decision| format!("{} {decision}", units::time(decision.at.as_secs_f64()))));
    words
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;

    use super::*;

    #[test]
    fn stages_of_the_same_threads_are_parts_of_their_time() {
        let mut local = [
            StageBar::new("fetch", [0.2, 0.0, 0.0]),
            StageBar::new("decode", [1.2, 0.1, 0.0]),
            StageBar::new("transform", [0.5, 0.0, 0.0]),
            StageBar::new("trainer", [0.9, 0.1, 0.0]),
        ];
        let mut remote = local.clone();
        remote[0] = StageBar::new("fetch", [3.0, 0.0, 1.0]);
        let loads = |bars: &mut [StageBar]| {
            share_threads(bars);
            bars.iter().map(|bar| (100.0 * bar.load()).round()).collect::<Vec<_>>()
        };
        assert_eq!(loads(&mut local), [10.0, 60.0, 25.0, 90.0]);
        assert_eq!(loads(&mut remote), [75.0, 67.0, 28.0, 90.0]);
    }

    #[tokio::test]
    async fn a_stream_is_seen_from_its_start_to_its_end() {
        let dataset = infeed::open("synthetic://?count=64&height=8&width=8&classes=10").await.unwrap();
        let loader = infeed::Loader::builder(dataset).batch_size(16).build().await.unwrap();
        let mut batches = loader.epochs(0..2);
        let monitor = batches.monitor();
        let about = About { url: "x".into(), batches_per_epoch: 4, epochs: 2, wanted: u64::MAX, ..About::default() };
        let mut history = History::new(about);
        // A look each 5 ms by a clock of its own, for each batch of which the trainer takes at least as long.
        const EACH: Duration = Duration::from_millis(5);
        let mut at = Instant::now();
        let mut look = || {
            at += EACH;
            history.look(at, &monitor.report(), &Moment::default(), None, Vec::new())
        };
        let before = look();
        assert_eq!((before.place.as_str(), before.done), ("no batch yet", 0.0));
        let mut places = Vec::new();
        while batches.next().await.transpose().unwrap().is_some() {
            tokio::time::sleep(EACH).await;
            places.push(look().place);
        }
        assert_eq!((places[0].as_str(), places[4].as_str()), ("epoch 0 [1/4]", "epoch 1 [1/4]"));
        drop(batches);
        let after = look();
        assert_eq!((after.place.as_str(), after.done, after.left), ("epoch 1 [4/4]", 1.0, None));
        // From the first look to the last there are nine times 5 ms.
        let rate = 128.0 / 0.045;
        assert!(after.samples.mean > 0.0 && (after.samples.now - rate).abs() < 1e-6 * rate, "{after:?}");
        assert!(after.curve.len() == 9 && after.curve.iter().all(|share| (0.0..=1.0).contains(share)), "{after:?}");
        assert!(after.stages.iter().any(|bar| bar.name == "trainer" && bar.busy > 0.5), "{:?}", after.stages);
        assert!(
            after.queues.iter().any(|queue| queue.name == "finished" && queue.fill.is_some()),
            "{:?}",
            after.queues
        );
    }
}
