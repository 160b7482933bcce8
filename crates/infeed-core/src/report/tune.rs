//! What `auto` did while a stream ran.

use std::{collections::VecDeque, fmt, time::Duration};

use serde::{Deserialize, Serialize};

use super::times::seconds;

/// The most decisions that are listed: the last ones. All are counted. A loader that has settled makes one every few
/// minutes.
const LISTED: usize = 100;

/// A setting that follows the run while it is on `auto`.
///
/// ```
/// # use futures::StreamExt;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
/// # let dataset = infeed::open("synthetic://?count=100&height=8&width=8&classes=10").await?;
/// # let loader = infeed::Loader::builder(dataset).batch_size(20).build().await?;
/// let mut batches = loader.epoch(0);
/// while batches.next().await.transpose()?.is_some() {}
/// let report = batches.report();
/// use infeed::report::Tuned;
///
/// let changes = report.autotune.decisions.iter().filter(|change| change.what == Tuned::Workers);
/// println!("the number of threads was changed {} times", changes.count());
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tuned {
    /// Decode threads in use.
    Workers,
    /// Batches finished or begun ahead of the trainer.
    Prefetch,
}

impl Tuned {
    /// Lower-case name, as in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Workers => "workers",
            Self::Prefetch => "prefetch",
        }
    }
}

impl fmt::Display for Tuned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a setting was changed.
///
/// ```
/// # use futures::StreamExt;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
/// # let dataset = infeed::open("synthetic://?count=100&height=8&width=8&classes=10").await?;
/// # let loader = infeed::Loader::builder(dataset).batch_size(20).build().await?;
/// let mut batches = loader.epoch(0);
/// while batches.next().await.transpose()?.is_some() {}
/// let report = batches.report();
/// use infeed::report::TuneReason;
///
/// for change in &report.autotune.decisions {
///     match change.why {
///         TuneReason::Crowded | TuneReason::NoGain => println!("a trial at {:?}", change.at),
///         why => println!("{} is {} from now on: {why}", change.what, change.to),
///     }
/// }
/// assert_eq!(TuneReason::Spare.words(), "fewer keep up with the trainer");
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TuneReason {
    /// The trainer did not wait, and fewer threads can keep up with it.
    Spare,
    /// The trainer waited while the threads were busy.
    Waited,
    /// The threads wait for files. With more threads, more of these waits overlap.
    Reading,
    /// The threads may slow down each other or the trainer: a trial whether fewer decode as much.
    Crowded,
    /// More threads than cores have something to compute.
    Cores,
    /// The end of a trial that gained nothing.
    NoGain,
    /// At one moment all batches ahead were finished, and soon after none was. The work is uneven, and more batches
    /// ahead hide that.
    Uneven,
    /// Threads were idle because no more batches were allowed ahead.
    Room,
    /// Batches ahead that were not needed for a long time.
    Unused,
    /// Another stream of the loader runs too: all threads work until it ends.
    Shared,
    /// The stream started with all threads, and now all batches ahead are finished.
    Started,
}

impl TuneReason {
    /// Name as in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Spare => "spare",
            Self::Waited => "waited",
            Self::Reading => "reading",
            Self::Crowded => "crowded",
            Self::Cores => "cores",
            Self::NoGain => "no_gain",
            Self::Uneven => "uneven",
            Self::Room => "room",
            Self::Unused => "unused",
            Self::Shared => "shared",
            Self::Started => "started",
        }
    }

    /// A short description.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Spare => "fewer keep up with the trainer",
            Self::Waited => "the trainer waited",
            Self::Reading => "threads wait for files",
            Self::Crowded => "a trial: fewer may be as fast",
            Self::Cores => "more than the cores can run",
            Self::NoGain => "the trial gained nothing",
            Self::Uneven => "the work is uneven",
            Self::Room => "threads had no room to work",
            Self::Unused => "not needed for long",
            Self::Shared => "another stream runs too",
            Self::Started => "the first batches are there",
        }
    }
}

impl fmt::Display for TuneReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

/// One change of a setting, with the figures that led to it.
///
/// ```
/// # use futures::StreamExt;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
/// # let dataset = infeed::open("synthetic://?count=100&height=8&width=8&classes=10").await?;
/// # let loader = infeed::Loader::builder(dataset).batch_size(20).build().await?;
/// let mut batches = loader.epoch(0);
/// while batches.next().await.transpose()?.is_some() {}
/// let report = batches.report();
/// for change in &report.autotune.decisions {
///     // workers 8 → 3: fewer keep up with the trainer
///     println!("{change}, at {:.0} samples/s after {:?}", change.samples_per_second, change.at);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TuneDecision {
    /// Since the start of the stream.
    #[serde(serialize_with = "seconds")]
    pub at: Duration,
    /// Which setting.
    pub what: Tuned,
    /// Its value before.
    pub from: usize,
    /// Its value from then on.
    pub to: usize,
    /// Why.
    pub why: TuneReason,
    /// Share of the time before the change in which the trainer waited, 0 to 1.
    pub waiting: f64,
    /// Share of that time in which the allowed decode threads had work, 0 to 1.
    pub busy: f64,
    /// Samples per second during that time.
    pub samples_per_second: f64,
}

impl TuneDecision {
    #[doc(hidden)]
    pub fn new(what: Tuned, [from, to]: [usize; 2], why: TuneReason) -> Self {
        let at = Duration::ZERO;
        Self { at, what, from, to, why, waiting: 0.0, busy: 0.0, samples_per_second: 0.0 }
    }
}

impl fmt::Display for TuneDecision {
    /// `workers 8 → 3: fewer keep up with the trainer`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} → {}: {}", self.what, self.from, self.to, self.why)
    }
}

/// The value of a setting, and its bounds.
///
/// ```
/// # use futures::StreamExt;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
/// # let dataset = infeed::open("synthetic://?count=100&height=8&width=8&classes=10").await?;
/// # let loader = infeed::Loader::builder(dataset).batch_size(20).build().await?;
/// let mut batches = loader.epoch(0);
/// while batches.next().await.transpose()?.is_some() {}
/// let report = batches.report();
/// let prefetch = report.autotune.prefetch;
/// println!("{} batches ahead, {} at the start", prefetch.now, prefetch.start);
/// assert!((prefetch.least..=prefetch.most).contains(&prefetch.now));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TunedSetting {
    /// Whether it follows the run. A number that the user set stays.
    pub auto: bool,
    /// Its value now.
    pub now: usize,
    /// Its value at the start of the stream.
    pub start: usize,
    /// The lower bound.
    pub least: usize,
    /// The upper bound. The memory budget may stop it earlier.
    pub most: usize,
}

impl TunedSetting {
    /// A setting with its value now, its value at the start, and `[least, most]`.
    #[doc(hidden)]
    #[must_use]
    pub const fn new(auto: bool, now: usize, start: usize, [least, most]: [usize; 2]) -> Self {
        Self { auto, now, start, least, most }
    }
}

/// What `auto` chose, and what it changed while the stream ran.
///
/// ```
/// # use futures::StreamExt;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
/// # let dataset = infeed::open("synthetic://?count=100&height=8&width=8&classes=10").await?;
/// # let loader = infeed::Loader::builder(dataset).batch_size(20).build().await?;
/// let mut batches = loader.epoch(0);
/// while batches.next().await.transpose()?.is_some() {}
/// let report = batches.report();
/// let tuned = report.autotune;
/// println!("{} threads, {} batches ahead; {} changes", tuned.workers.now, tuned.prefetch.now, tuned.decision_count);
/// // Values with which a later run may start.
/// assert!(tuned.workers.now >= 1);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TuneReport {
    /// Decode threads in use.
    pub workers: TunedSetting,
    /// Batches ahead of the trainer.
    pub prefetch: TunedSetting,
    /// The last hundred changes, in order.
    pub decisions: Vec<TuneDecision>,
    /// Number of all changes.
    pub decision_count: u64,
}

/// The decisions of one stream.
#[derive(Debug, Default)]
pub struct TuneLog {
    last: VecDeque<TuneDecision>,
    count: u64,
}

impl TuneLog {
    #[doc(hidden)]
    pub fn add(&mut self, decision: TuneDecision) {
        if self.last.len() == LISTED {
            self.last.pop_front();
        }
        self.last.push_back(decision);
        self.count += 1;
    }

    #[doc(hidden)]
    pub fn report(&self, workers: TunedSetting, prefetch: TunedSetting) -> TuneReport {
        let decisions = self.last.iter().copied().collect();
        TuneReport { workers, prefetch, decisions, decision_count: self.count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_bounded_and_keeps_the_last() {
        let mut log = TuneLog::default();
        for n in 0..250 {
            log.add(TuneDecision::new(Tuned::Workers, [n, n + 1], TuneReason::Reading));
        }
        let told = log.report(TunedSetting::default(), TunedSetting::default());
        assert_eq!((told.decision_count, told.decisions.len(), told.decisions[0].from), (250, LISTED, 150));
        assert_eq!(told.decisions[99].to_string(), "workers 249 → 250: threads wait for files");
    }

    #[test]
    fn names_are_those_of_the_json() {
        let why = [
            TuneReason::Spare,
            TuneReason::Waited,
            TuneReason::Reading,
            TuneReason::Crowded,
            TuneReason::Cores,
            TuneReason::NoGain,
            TuneReason::Uneven,
            TuneReason::Room,
            TuneReason::Unused,
            TuneReason::Shared,
            TuneReason::Started,
        ];
        for why in why {
            assert_eq!(serde_json::to_value(why).unwrap(), why.name());
            assert!(!why.words().is_empty());
        }
        for what in [Tuned::Workers, Tuned::Prefetch] {
            assert_eq!(serde_json::to_value(what).unwrap(), what.name());
        }
    }
}
