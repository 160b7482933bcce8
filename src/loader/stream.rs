//! The stream of batches and the iterator over it.

use std::{
    fmt,
    iter::FusedIterator,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant,
};

use futures::{Stream, StreamExt, stream::FusedStream};
use infeed_core::{
    error::{Error, ErrorKind, Result, setting::MAX_UNREADABLE},
    report::{BadSample, FirstBatchPart, Report},
};
use tracing::Span;

use super::monitor::{BAD_SAMPLES_KEPT, Monitor, Progress};
use crate::engine::{Batch, Run, Timeline, block_on};

/// Batches in plan order, made by [`Loader::epoch`](crate::Loader::epoch) and its kin.
///
/// - **Items** are complete [`Batch`]es. An error that ends the run is yielded once, in place of its batch; after the
///   end every poll returns `None` ([`FusedStream`]). `size_hint` is the exact number of batches left, unless an error
///   ends the stream before; it is unknown only if the number does not fit a `usize`.
/// - **Ahead of you**: reading and decoding start when the stream is made and continue while you do not poll, up to
///   `prefetch` batches.
/// - **Cancel safe**: dropping the future of `.next()` loses nothing.
/// - **Dropping the stream** ends its work: no read begins after the drop has returned. A read in progress may finish,
///   and a running decoder frees its own memory.
/// - **Executors**: works on any, inside `select!`, and without one ([`blocking`](Self::blocking)).
#[must_use = "dropping the stream ends its reads"]
pub struct BatchStream {
    run: Run,
    /// `None` or an error was yielded.
    ended: bool,
    /// Batches still to come; `None` if the number does not fit.
    left: Option<u64>,
    /// When the poll that is waiting for the next batch began.
    waiting: Option<Instant>,
    last: Option<Instant>,
    /// Bad samples of the run so far, those of resumed parts included.
    bad_count: u64,
    limits: BadLimits,
    /// Whether a short last batch without a good row may be left out: no other rank counts steps.
    alone: bool,
    /// Shared with monitors.
    progress: Arc<Progress>,
    /// `infeed.wait`, while the trainer waits.
    wait_span: Span,
}

/// How many samples may be bad.
#[derive(Clone, Copy, Debug)]
pub(super) struct BadLimits {
    /// Of the run, for whatever reason.
    pub(super) at_most: Option<u64>,
    /// Of this stream because they can't be read; `None`: [`FEW_UNREADABLE`], or one in [`UNREADABLE_PART`].
    pub(super) unreadable: Option<u64>,
}

/// Small enough that a failed mount ends the run within a batch or two; large enough that a dataset of a million files
/// may lack a handful.
const FEW_UNREADABLE: u64 = 16;
/// One in this many of the samples so far: a stream of many epochs meets the same lost files in each epoch.
const UNREADABLE_PART: u64 = 100;

impl BadLimits {
    /// Unreadable ones among `samples`.
    fn unreadable_of(&self, samples: u64) -> u64 {
        self.unreadable.unwrap_or_else(|| FEW_UNREADABLE.max(samples / UNREADABLE_PART))
    }
}

impl BatchStream {
    pub(super) fn new(run: Run, left: Option<u64>, limits: BadLimits, bad_count: u64, alone: bool) -> Self {
        Self {
            run,
            ended: false,
            left,
            waiting: None,
            last: None,
            bad_count,
            limits,
            alone,
            progress: Arc::default(),
            wait_span: Span::none(),
        }
    }

    /// What the stream did so far, and where the time went. Cheap; may be called at any time, also after the end.
    #[must_use]
    pub fn report(&self) -> Report {
        self.progress.counts().report(self.run.facts())
    }

    /// A handle from which other threads get the [`report`](Self::report) while the stream is polled: for a metrics
    /// server, a live view, a logger.
    ///
    /// ```
    /// # use futures::StreamExt;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
    /// # let dataset = infeed::open("synthetic://?count=100&height=8&width=8&classes=10").await?;
    /// # let loader = infeed::Loader::builder(dataset).batch_size(32).build().await?;
    /// let mut batches = loader.epoch(0);
    /// let monitor = batches.monitor();
    /// while batches.next().await.transpose()?.is_some() {}
    /// drop(batches);
    /// assert_eq!(monitor.report().batches, 3);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        Monitor { progress: Arc::clone(&self.progress), watch: self.run.watch(), rank: self.run.rank() }
    }

    /// The next batch, as `.next().await` returns it; `None` at the end. Blocks the thread while it waits: within async
    /// code that blocks the other tasks of the thread, too.
    ///
    /// ```
    /// # let dataset = infeed::open("synthetic://?count=100&height=8&width=8&classes=10").blocking()?;
    /// # let loader = infeed::Loader::builder(dataset).batch_size(20).build_blocking()?;
    /// let mut batches = loader.epoch(0);
    /// while let Some(batch) = batches.next_blocking() {
    ///     assert_eq!(batch?.len(), 20);
    /// }
    /// # Ok::<(), infeed::Error>(())
    /// ```
    pub fn next_blocking(&mut self) -> Option<Result<Batch>> {
        block_on(self.next())
    }

    /// The same batches as a plain iterator, for trainers without an async runtime. Blocks the thread while it waits:
    /// within async code that blocks the other tasks of the thread, too.
    pub fn blocking(self) -> Blocking {
        Blocking(self)
    }

    /// Forgets the stream without ending its work, waiting or freeing memory. For the child of a `fork`, which does not
    /// have the threads that a drop needs; see [`Loader::abandon`](crate::Loader::abandon).
    pub fn abandon(self) {
        mem::forget(self);
    }

    /// Counts a batch's bad samples, in plan order, so that the limit does not depend on which worker was first.
    fn admit_bad(&mut self, batch: &mut Batch) -> Result<()> {
        let Some(last) = batch.bad_samples().last().cloned() else {
            batch.set_bad_count(self.bad_count);
            return Ok(());
        };
        let (samples, unreadable) = {
            let mut counts = self.progress.counts();
            for bad in batch.bad_samples() {
                self.bad_count += 1;
                counts.bad_here += 1;
                counts.unreadable += u64::from(bad.unreadable);
                if counts.bad_samples.len() < BAD_SAMPLES_KEPT {
                    counts.bad_samples.push(bad.clone());
                }
            }
            // This batch included. A substituted row counts as valid and as bad.
            (counts.samples + (batch.valid() + batch.bad_samples().len()) as u64, counts.unreadable)
        };
        batch.set_bad_count(self.bad_count);
        let lost = batch.bad_samples().iter().rev().find(|bad| bad.unreadable);
        match (self.limits.at_most, lost) {
            (_, Some(lost)) if unreadable > self.limits.unreadable_of(samples) => {
                Err(too_unreadable(lost, unreadable, samples, self.limits.unreadable_of(samples)))
            }
            (Some(at_most), _) if self.bad_count > at_most => Err(over_limit(&last, self.bad_count, at_most)),
            _ => Ok(()),
        }
    }

    /// Records why the batch that was polled for since `asked` came at `now`.
    fn account(&mut self, timeline: Option<Box<Timeline>>, asked: Instant, now: Instant) {
        let Some(last) = self.last.replace(now) else {
            let parts = timeline.iter().flat_map(|timeline| timeline.between(self.run.started(), now));
            let parts = parts.map(|(cause, time)| FirstBatchPart::new(cause, time)).collect();
            let mut counts = self.progress.counts();
            (counts.waiting, counts.first_batch) = (None, Some(now - self.run.started()));
            counts.first_parts = if self.run.accounts() { parts } else { Vec::new() };
            return;
        };
        if !self.run.accounts() {
            return;
        }
        let late = timeline.and_then(|timeline| timeline.late(asked, now, self.run.dataset()));
        if let Some(late) = &late {
            tracing::debug!(
                epoch = late.epoch,
                step = late.batch,
                wait_us = late.wait.as_micros() as u64,
                cause = late.cause.name(),
                object = late.object.as_deref().unwrap_or_default(),
                "late batch"
            );
        }
        let mut counts = self.progress.counts();
        counts.waiting = None;
        counts.wait.record(now - asked);
        counts.waits.add(now - asked);
        counts.step.record(now - last);
        late.into_iter().for_each(|late| counts.late.add(late));
    }

    fn end(&mut self) {
        self.ended = true;
        self.left = Some(0);
        self.run.cancel();
    }
}

fn too_unreadable(last: &BadSample, count: u64, samples: u64, at_most: u64) -> Error {
    let what =
        format!("{count} of {samples} samples could not be read, at most {at_most} may; the last: {}", last.error);
    let error = Error::new(ErrorKind::Io, what).at_record(last.record).with_hint(
        format!("see whether the disk, mount or store is there and whether access is allowed, then resume; or raise {MAX_UNREADABLE}"),
    );
    match &last.object {
        Some(object) => error.at_object(object.clone()),
        None => error,
    }
}

fn over_limit(last: &BadSample, count: u64, at_most: u64) -> Error {
    let error = Error::corrupt(format!("{count} bad samples, at most {at_most} are allowed; the last: {}", last.error));
    let error = error
        .at_record(last.record)
        .with_hint("look at the report's bad_samples, then raise the limit or repair the data");
    match &last.object {
        Some(object) => error.at_object(object.clone()),
        None => error,
    }
}

impl Stream for BatchStream {
    type Item = Result<Batch>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.ended {
            return Poll::Ready(None);
        }
        let began = match this.waiting {
            Some(began) => began,
            None => {
                let levels = this.run.asks();
                this.wait_span = tracing::trace_span!(parent: None, "infeed.wait");
                let now = Instant::now();
                if let Some(levels) = levels {
                    let mut counts = this.progress.counts();
                    counts.gauges.look(levels);
                    counts.waiting = Some(now);
                }
                *this.waiting.insert(now)
            }
        };
        let item = ready!(this.run.poll_batch(cx));
        this.waiting = None;
        this.wait_span = Span::none();
        let Some((item, timeline)) = item else {
            this.progress.counts().waiting = None;
            this.end();
            return Poll::Ready(None);
        };
        this.account(timeline, began, Instant::now());
        let item = item.and_then(|mut batch| match batch.none_left() {
            Some(error) if !this.alone => Err(error),
            none => this.admit_bad(&mut batch).map(|()| (batch, none.is_some())),
        });
        let item = match item {
            Ok((_, true)) => {
                this.left = this.left.map(|left| left.saturating_sub(1));
                // Usually the first batch of the next epoch.
                return Pin::new(this).poll_next(cx);
            }
            Ok((batch, false)) => Ok(batch),
            Err(error) => Err(error),
        };
        match &item {
            Ok(batch) => {
                this.left = this.left.map(|left| left.saturating_sub(1));
                let mut counts = this.progress.counts();
                counts.batches += 1;
                counts.samples += batch.valid() as u64;
            }
            Err(_) => this.end(),
        }
        Poll::Ready(Some(item))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.left.and_then(|left| usize::try_from(left).ok());
        (left.unwrap_or(usize::MAX), left)
    }
}

impl FusedStream for BatchStream {
    /// Whether `None` or an error was yielded: nothing more comes.
    fn is_terminated(&self) -> bool {
        self.ended
    }
}

impl fmt::Debug for BatchStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchStream").field("batches", &self.progress.counts().batches).finish_non_exhaustive()
    }
}

impl Drop for BatchStream {
    fn drop(&mut self) {
        // The run's threads may end with it, so keep the last report for the monitors.
        if Arc::strong_count(&self.progress) > 1 {
            self.run.cancel();
            let facts = self.run.facts();
            let mut counts = self.progress.counts();
            counts.waiting = None;
            let last = counts.report(facts);
            counts.last = Some(Box::new(last));
        }
    }
}

/// A [`BatchStream`] as an iterator; made by [`BatchStream::blocking`].
///
/// ```
/// use infeed::{Loader, open};
///
/// let dataset = open("synthetic://?count=100&height=8&width=8&classes=10").blocking()?;
/// let loader = futures::executor::block_on(Loader::builder(dataset).batch_size(20).build())?;
/// let mut batches = loader.epoch(0).blocking();
/// for batch in &mut batches {
///     assert_eq!(batch?.len(), 20);
/// }
/// assert_eq!(batches.report().batches, 5);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "dropping the iterator ends its reads"]
pub struct Blocking(BatchStream);

impl Blocking {
    /// See [`BatchStream::report`].
    #[must_use]
    pub fn report(&self) -> Report {
        self.0.report()
    }

    /// See [`BatchStream::monitor`].
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        self.0.monitor()
    }
}

impl Iterator for Blocking {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next_blocking()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl FusedIterator for Blocking {}
