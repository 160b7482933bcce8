//! Why batches came late: what each batch did while the trainer waited for it.

use std::{
    fmt,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::times::seconds;

/// The most late batches that are listed. All of them are counted.
const LISTED: usize = 100;
/// A shorter wait does not count as late. Handing a batch over and waking the trainer takes part of it, and no
/// trainer's step is short enough for the rest to matter.
const LATE: Duration = Duration::from_millis(1);

/// What a batch was doing while the trainer waited for it.
///
/// ```
/// # use futures::StreamExt;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
/// # let dataset = infeed::open("synthetic://?count=8&height=8&width=8&classes=2").await?;
/// # let builder = infeed::Loader::builder(dataset).batch_size(2).workers(1).map(|_sample, _draws| {
/// #     std::thread::sleep(std::time::Duration::from_millis(2));
/// #     Ok(())
/// # });
/// # let mut batches = builder.build().await?.epoch(0);
/// # while batches.next().await.transpose()?.is_some() {}
/// let report = batches.report();
/// use infeed::report::Cause;
///
/// for late in &report.late_batches {
///     match late.cause {
///         Cause::Request | Cause::Read => println!("step {} waited for bytes", late.batch),
///         Cause::Queue | Cause::Decode | Cause::Augmentation => println!("step {} waited for its pixels", late.batch),
///         cause => println!("step {}: {cause}", late.batch),
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Cause {
    /// The sampler and the dataset's plan determined its records. (A dataset is listed when it is opened, before any
    /// stream.)
    Plan,
    /// It had not begun for lack of room while a decode thread was idle: `prefetch` or the memory budget is too small.
    Room,
    /// Bytes from a remote store were on their way, or `Dataset::read` was running.
    Request,
    /// A decode thread read a local file or the cache.
    Read,
    /// It waited while the decode threads worked on earlier batches.
    Queue,
    /// Its files were being decoded to pixels.
    Decode,
    /// Its pixels were being turned into rows.
    Augmentation,
    /// Its rows were being put together or copied to a GPU.
    Copy,
    /// It was finished: the trainer's own async runtime took it late.
    Consumer,
}

impl Cause {
    /// All causes, in the order in which a batch passes through them.
    pub const ALL: [Self; 9] = [
        Self::Plan,
        Self::Room,
        Self::Request,
        Self::Read,
        Self::Queue,
        Self::Decode,
        Self::Augmentation,
        Self::Copy,
        Self::Consumer,
    ];

    /// Lower-case name, as in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Room => "room",
            Self::Request => "request",
            Self::Read => "read",
            Self::Queue => "queue",
            Self::Decode => "decode",
            Self::Augmentation => "augmentation",
            Self::Copy => "copy",
            Self::Consumer => "consumer",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A batch that the trainer had to wait for, for a millisecond or longer.
///
/// ```
/// # use futures::StreamExt;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
/// # let dataset = infeed::open("synthetic://?count=8&height=8&width=8&classes=2").await?;
/// # let builder = infeed::Loader::builder(dataset).batch_size(2).workers(1).map(|_sample, _draws| {
/// #     std::thread::sleep(std::time::Duration::from_millis(2));
/// #     Ok(())
/// # });
/// # let mut batches = builder.build().await?.epoch(0);
/// # while batches.next().await.transpose()?.is_some() {}
/// let report = batches.report();
/// // The longest wait of the run.
/// if let Some(late) = report.late_batches.first() {
///     let object = late.object.as_deref().unwrap_or("no file in particular");
///     println!("epoch {}, step {}: {:?} because of {} ({object})", late.epoch, late.batch, late.wait, late.cause);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LateBatch {
    /// Epoch.
    pub epoch: u64,
    /// Step within the epoch, as `Batch::step`.
    pub batch: u64,
    /// Place of its first row in the epoch's order.
    pub position: u64,
    /// How long the trainer waited.
    #[serde(serialize_with = "seconds")]
    pub wait: Duration,
    /// What the batch did for most of that time.
    pub cause: Cause,
    /// The object that it waited for most, if there is one: that of the last request to arrive, or the file that took
    /// longest.
    pub object: Option<String>,
}

impl LateBatch {
    /// A batch by epoch, step and position.
    #[doc(hidden)]
    #[must_use]
    pub const fn new(
        (epoch, batch, position): (u64, u64, u64),
        wait: Duration,
        cause: Cause,
        object: Option<String>,
    ) -> Self {
        Self { epoch, batch, position, wait, cause, object }
    }
}

/// How many batches were late for one cause.
///
/// ```
/// # use futures::StreamExt;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
/// # let dataset = infeed::open("synthetic://?count=8&height=8&width=8&classes=2").await?;
/// # let builder = infeed::Loader::builder(dataset).batch_size(2).workers(1).map(|_sample, _draws| {
/// #     std::thread::sleep(std::time::Duration::from_millis(2));
/// #     Ok(())
/// # });
/// # let mut batches = builder.build().await?.epoch(0);
/// # while batches.next().await.transpose()?.is_some() {}
/// let report = batches.report();
/// for late in &report.late_causes {
///     println!("{}: {} batches late, {:?} in all", late.cause, late.batches, late.wait);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CauseReport {
    /// The cause.
    pub cause: Cause,
    /// Batches that were late for this cause.
    pub batches: u64,
    /// The trainer's whole wait for these batches.
    #[serde(serialize_with = "seconds")]
    pub wait: Duration,
}

/// What a batch did between two moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchPart {
    #[doc(hidden)]
    pub cause: Cause,
    #[doc(hidden)]
    pub from: Instant,
    #[doc(hidden)]
    pub to: Instant,
}

impl BatchPart {
    /// How much of this part is between two moments.
    fn within(&self, from: Instant, to: Instant) -> Duration {
        self.to.min(to).saturating_duration_since(self.from.max(from))
    }
}

/// Time that each cause took between two moments.
pub fn shares(parts: &[BatchPart], from: Instant, to: Instant) -> [(Cause, Duration); Cause::ALL.len()] {
    Cause::ALL.map(|cause| {
        let own = parts.iter().filter(|part| part.cause == cause);
        (cause, own.map(|part| part.within(from, to)).sum())
    })
}

/// Why the trainer waited from `asked` to `got`; `None` if the batch was not late. `room` is how much sooner the batch
/// would have come with more room.
pub fn blame(parts: &[BatchPart], room: Duration, asked: Instant, got: Instant) -> Option<Cause> {
    let wait = got.saturating_duration_since(asked);
    if wait < LATE {
        return None;
    }
    let most = shares(parts, asked, got).into_iter().max_by_key(|(_, time)| *time)?;
    // If more room would have saved half of the wait, room is what to change: the work itself was short enough. This
    // does not apply to a finished batch that the trainer takes late.
    if most.0 != Cause::Consumer && room * 2 >= wait {
        return Some(Cause::Room);
    }
    // A batch without any recorded part waited in the queue.
    Some(if most.1.is_zero() { Cause::Queue } else { most.0 })
}

/// The late batches of one stream.
#[derive(Clone, Debug, Default)]
pub struct Lateness {
    first: Vec<LateBatch>,
    causes: Vec<CauseReport>,
}

impl Lateness {
    #[doc(hidden)]
    pub fn add(&mut self, late: LateBatch) {
        match self.causes.iter_mut().find(|known| known.cause == late.cause) {
            Some(known) => {
                known.batches += 1;
                known.wait += late.wait;
            }
            None => self.causes.push(CauseReport { cause: late.cause, batches: 1, wait: late.wait }),
        }
        // The longest waits, longest first. A list of the first late batches would show the start of the run only.
        if self.first.len() == LISTED && self.first.last().is_some_and(|last| last.wait >= late.wait) {
            return;
        }
        let at = self.first.partition_point(|other| other.wait >= late.wait);
        self.first.insert(at, late);
        self.first.truncate(LISTED);
    }

    #[doc(hidden)]
    pub fn worst(&self) -> Vec<LateBatch> {
        self.first.clone()
    }

    /// By cause, the longest wait first.
    pub fn causes(&self) -> Vec<CauseReport> {
        let mut causes = self.causes.clone();
        causes.sort_by_key(|cause| std::cmp::Reverse(cause.wait));
        causes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_part_that_took_most_of_the_wait_is_to_blame() {
        let zero = Instant::now();
        let part = |cause, from, to| BatchPart { cause, from: zero + ms(from), to: zero + ms(to) };
        // A long request that ended before the trainer asked is not the cause of the wait.
        let parts = [part(Cause::Request, 0, 100), part(Cause::Queue, 100, 110), part(Cause::Decode, 110, 140)];
        let blame = |room, from, to| blame(&parts, ms(room), zero + ms(from), zero + ms(to));
        for (from, to, want) in [
            (100, 140, Some(Cause::Decode)),
            (60, 140, Some(Cause::Request)),
            (99, 111, Some(Cause::Queue)),
            (140, 140, None),
            (200, 210, Some(Cause::Queue)),
            // Times that were read in another order.
            (140, 100, None),
        ] {
            assert_eq!(blame(0, from, to), want, "{from}..{to}");
        }
        assert_eq!(blame(25, 100, 140), Some(Cause::Room));
        assert_eq!(blame(15, 100, 140), Some(Cause::Decode));
        let parts = [part(Cause::Decode, 100, 110), part(Cause::Consumer, 110, 140)];
        assert_eq!(super::blame(&parts, ms(30), zero + ms(100), zero + ms(140)), Some(Cause::Consumer));
    }

    #[test]
    fn the_list_is_bounded_and_keeps_the_longest_waits() {
        let mut lateness = Lateness::default();
        let late = |batch, wait, cause| LateBatch { epoch: 0, batch, position: 0, wait: ms(wait), cause, object: None };
        for batch in 0..500 {
            lateness.add(late(batch, 10 + batch % 7, Cause::Decode));
        }
        lateness.add(late(900, 9000, Cause::Request));
        let worst = lateness.worst();
        assert_eq!((worst.len(), worst[0].batch), (LISTED, 900));
        assert!(worst.windows(2).all(|pair| pair[0].wait >= pair[1].wait));
        let causes = lateness.causes();
        assert_eq!((causes[0].cause, causes[0].batches), (Cause::Request, 1));
        assert_eq!((causes[1].cause, causes[1].batches), (Cause::Decode, 500));
    }
}
