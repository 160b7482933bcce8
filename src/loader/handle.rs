//! The loader: a handle that makes streams.

use std::{
    fmt, mem,
    ops::{Range, RangeTo},
    sync::Arc,
};

use infeed_core::error::{Error, ErrorKind, Result, setting::SEED};
use infeed_data::{
    Dataset,
    sampler::{LoaderState, Order, Sampler},
};

use super::{
    BatchStream, LoaderConfig, OnBadSample,
    order::{order_of_sampler, ordering},
    resolve::check_steps,
    stream::BadLimits,
};
use crate::engine::{LoaderShared, RecordOrder, Run, Workers};

/// Makes streams of batches from a dataset. Cloning gives another handle to the same threads and buffers.
///
/// [`Loader::builder`] makes one; [`build_each`](super::LoaderBuilder::build_each) makes one for each of several
/// devices.
///
/// Several streams of one loader may run at a time. They share its decode threads, and each yields its own batches in
/// order. Each stream after the first has its own rows and prefetch, in addition to the memory budget. Dropping the
/// last handle and the last stream ends the threads.
#[derive(Clone)]
pub struct Loader {
    pub(super) shared: Arc<LoaderShared>,
    /// Threads; they live as long as the loader or one of its streams.
    pub(super) workers: Arc<Workers>,
    pub(super) order: RecordOrder,
    /// The order came from the user's own sampler, not from `config.order`.
    pub(super) own_sampler: bool,
    pub(super) config: Arc<LoaderConfig>,
}

impl Loader {
    /// The batches of one epoch, from its first. Reading begins with this call.
    ///
    /// ```
    /// # use futures::StreamExt;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
    /// let dataset = infeed::open("synthetic://?count=100&height=8&width=8&classes=10").await?;
    /// let loader = infeed::Loader::builder(dataset).batch_size(32).shuffle(42).build().await?;
    /// let mut batches = loader.epoch(0);
    /// while let Some(batch) = batches.next().await {
    ///     let batch = batch?;
    ///     assert_eq!(batch["image"].shape(), [32, 3, 8, 8]);
    ///     assert_eq!(batch["label"].shape(), [32]);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn epoch(&self, epoch: u64) -> BatchStream {
        self.epochs(epoch..epoch.saturating_add(1))
    }

    /// The batches of several epochs without a gap: the loader begins to read the next epoch while the last batches of
    /// the previous one are still in use. An empty range returns a stream that has ended.
    pub fn epochs(&self, epochs: Range<u64>) -> BatchStream {
        self.start(self.order.clone(), epochs, 0, 0)
    }

    /// The rest of the epoch of `state`: exactly the records that were in no batch up to and including the one with
    /// this state, also if world size, batch size or workers have changed. To resume a training of many epochs, use
    /// [`resume_epochs`](Self::resume_epochs).
    ///
    /// - The state of an epoch's last batch is at the beginning of the next epoch (`state.epoch`), so the stream is
    ///   then that whole epoch.
    /// - With `LastBatch::Drop` and a larger batch size than before, the rest may not fill a batch: then the stream has
    ///   ended.
    ///
    /// # Errors
    /// `State` when the state belongs to another dataset, order or seed; the message names the part.
    pub fn resume_epoch(&self, state: &LoaderState) -> Result<BatchStream> {
        self.resume_epochs(state, ..state.epoch.saturating_add(1))
    }

    /// The rest of `epochs(0..end)` after `state`: the rest of the state's epoch as in
    /// [`resume_epoch`](Self::resume_epoch), then all later epochs before `end`. The state may come from any stream of
    /// the same order.
    ///
    /// `end` is the number of an epoch, not a count. If the state's epoch is `end` or later, the stream has ended: a
    /// script that is started again after its last epoch is done at once.
    ///
    /// ```
    /// # use futures::StreamExt;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
    /// # let dataset = infeed::open("synthetic://?count=100&height=8&width=8&classes=10").await?;
    /// # let loader = infeed::Loader::builder(dataset).batch_size(20).build().await?;
    /// let mut batches = loader.epochs(0..3);
    /// let third = batches.by_ref().skip(2).next().await.expect("an epoch has five")?;
    /// // … the process ends and comes back:
    /// assert_eq!(loader.resume_epochs(third.state(), ..3)?.count().await, 2 + 5 + 5);
    /// assert_eq!(loader.resume_epoch(third.state())?.count().await, 2);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`resume_epoch`](Self::resume_epoch).
    pub fn resume_epochs(&self, state: &LoaderState, epochs: RangeTo<u64>) -> Result<BatchStream> {
        let order = self.order_of(state)?;
        state.check(&order.state.identity)?;
        if state.seed != order.state.seed {
            let what = format!("augmentation has seed {}, the state was saved with {}", order.state.seed, state.seed);
            return Err(Error::new(ErrorKind::State, what).with_hint(format!("set the {SEED} it was saved with")));
        }
        Ok(self.start(order, state.epoch..epochs.end, state.position, state.bad_samples))
    }

    /// The order of `state`: it keeps the lanes of the first run's world size, so that a run with another world size
    /// continues in the same order.
    fn order_of(&self, state: &LoaderState) -> Result<RecordOrder> {
        match self.config.order {
            Order::Blocks { lanes: None, .. } if state.lanes != self.order.state.lanes && !self.own_sampler => {
                ordering(&self.config.order, &*self.shared.dataset, self.order.state.seed, state.lanes)
            }
            _ => Ok(self.order.clone()),
        }
    }

    /// Another handle to the same threads, buffers and caches, whose streams have this order. Use it if the records of
    /// an epoch are known only when it begins, for example with a [`ListSampler`](infeed_data::sampler::ListSampler)
    /// for each epoch.
    ///
    /// The states of its streams belong to this order, and resuming checks that. If a run stopped within an epoch,
    /// resume with the order of that epoch. If it stopped after the last batch of an epoch, resume with the order of
    /// the next epoch: [`LoaderState::for_order`] changes the state for it, and leaves all other states as they are.
    ///
    /// The seed of augmentation stays, and so does [`config`](Self::config), whose `order` is that of the loader as it
    /// was built. [`batches_per_epoch`](Self::batches_per_epoch) is that of the new order.
    ///
    /// ```
    /// # use futures::StreamExt;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
    /// use std::sync::Arc;
    ///
    /// use infeed::{Loader, sampler::{LastBatch, ListSampler}};
    ///
    /// # let dataset = infeed::open("synthetic://?count=100&height=8&width=8&classes=10").await?;
    /// let loader = Loader::builder(dataset).batch_size(16).last_batch(LastBatch::Partial).build().await?;
    /// // From a curriculum, a hard-example miner or a sampler in Python.
    /// let in_epoch = |epoch| -> infeed::Result<Loader> {
    ///     let list: Vec<u64> = (0..100).filter(|record| record % (epoch + 1) == 0).collect();
    ///     loader.with_sampler(Arc::new(ListSampler::new(100, list)?))
    /// };
    /// let mut state = None;
    /// for epoch in 0..2 {
    ///     let mut batches = in_epoch(epoch)?.epoch(epoch);
    ///     while let Some(batch) = batches.next().await {
    ///         state = Some(batch?.state().clone());
    ///     }
    /// }
    /// // … the process ends and comes back:
    /// let state = state.expect("epochs have batches");
    /// let epoch = in_epoch(state.epoch)?;
    /// let state = state.for_order(&epoch.state_before(state.epoch))?;
    /// assert_eq!(epoch.resume_epoch(&state)?.count().await, 34_usize.div_ceil(16));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Config` for a sampler of another dataset, and for [batches](Sampler::batches) that are larger than `batch_size`
    /// or for several ranks; `Empty` for an epoch without a batch.
    pub fn with_sampler(&self, sampler: Arc<dyn Sampler>) -> Result<Self> {
        let order = order_of_sampler(sampler, &*self.shared.dataset, self.order.state.seed)?;
        check_steps(&*order.sampler, self.shared.batch_size, &self.config)?;
        Ok(Self { order, own_sampler: true, ..self.clone() })
    }

    fn start(&self, order: RecordOrder, epochs: Range<u64>, position: u64, bad_samples: u64) -> BatchStream {
        let at_most = match self.config.on_bad_sample {
            OnBadSample::Skip { at_most } | OnBadSample::SkipPadded { at_most } => Some(at_most),
            OnBadSample::Stop | OnBadSample::Substitute => None,
        };
        let steps = self.steps(&order, &epochs, position);
        let run = Run::start(&self.shared, &self.workers, order, epochs, position);
        // How many ranks use a user's own sampler is unknown.
        let alone = self.config.shard.world() == 1 && !self.own_sampler;
        BatchStream::new(run, steps, BadLimits { at_most, unreadable: self.config.max_unreadable }, bad_samples, alone)
    }

    /// Batches of `epochs`, the first from `position`; `None` if the number does not fit.
    fn steps(&self, order: &RecordOrder, epochs: &Range<u64>, position: u64) -> Option<u64> {
        let Some(others) = epochs.end.saturating_sub(epochs.start).checked_sub(1) else { return Some(0) };
        let of = |position| self.shared.steps(&*order.sampler, position).count();
        of(0).checked_mul(others)?.checked_add(of(position))
    }

    /// Steps of one whole epoch, at least one; the same on every rank.
    #[must_use]
    pub fn batches_per_epoch(&self) -> u64 {
        self.shared.steps(&*self.order.sampler, 0).count()
    }

    /// Samples of one whole epoch on this rank, without padding: the total for a progress bar, if no sample is bad.
    ///
    /// ```
    /// # use infeed::{LastBatch, Loader, dataset::SyntheticDataset};
    /// # let dataset = std::sync::Arc::new(SyntheticDataset::new(10, 4, 4, 2)?);
    /// for (last, samples) in [(LastBatch::Drop, 8), (LastBatch::Partial, 10), (LastBatch::Pad, 10)] {
    ///     let loader = Loader::builder(dataset.clone()).batch_size(4).last_batch(last).build_blocking()?;
    ///     assert_eq!(loader.samples_per_epoch(), samples);
    /// }
    /// # Ok::<(), infeed::Error>(())
    /// ```
    #[must_use]
    pub fn samples_per_epoch(&self) -> u64 {
        self.shared.steps(&*self.order.sampler, 0).samples()
    }

    /// The state before the first batch of an epoch, for a checkpoint that is written before the first batch.
    ///
    /// ```
    /// # use futures::StreamExt;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
    /// # let dataset = infeed::open("synthetic://?count=100&height=8&width=8&classes=10").await?;
    /// let loader = infeed::Loader::builder(dataset).batch_size(20).build().await?;
    /// let last = loader.epoch(0).collect::<Vec<_>>().await.pop().expect("an epoch has five")?;
    /// assert_eq!(loader.state_before(1), *last.state());
    /// assert_eq!(loader.resume_epoch(&loader.state_before(7))?.count().await, 5);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn state_before(&self, epoch: u64) -> LoaderState {
        self.order.state.at(epoch, 0)
    }

    /// Drops this handle and waits until the loader's threads have ended: then its files are closed, its caches written
    /// and its memory freed, apart from batches that you hold. Without it they end at some time after the drop.
    ///
    /// Drop streams and other handles before: as long as one of them lives, the threads do not end and this waits. So
    /// do loaders that were [built together](super::LoaderBuilder::build_each), which share their threads. An
    /// [`IoRuntime`](super::IoRuntime) that you passed to the builder does not end. A file system that does not answer
    /// may hold up a thread; the wait needs no runtime, so any timeout works. A dropped future stops only the wait.
    ///
    /// ```
    /// # use futures::StreamExt;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
    /// # let dataset = infeed::open("synthetic://?count=100&height=8&width=8&classes=10").await?;
    /// let loader = infeed::Loader::builder(dataset.clone()).batch_size(20).build().await?;
    /// assert_eq!(loader.epoch(0).count().await, 5);
    /// loader.shutdown().await;
    /// // Nobody else has the dataset any more.
    /// assert_eq!(std::sync::Arc::strong_count(&dataset), 1);
    /// # Ok(()) }
    /// ```
    pub async fn shutdown(self) {
        let threads = self.workers.threads().clone();
        drop(self);
        threads.ended().await;
    }

    /// Forgets this handle without waiting, ending threads or freeing memory. For the child of a `fork`: it has the
    /// parent's memory but none of its threads, so a drop could wait forever for a lock that one of them held at the
    /// fork. In the parent, drop the loader as usual.
    ///
    /// The child cannot use the loader and must build its own. Forget all other copies too: streams with
    /// [`BatchStream::abandon`], batches and tensors with [`std::mem::forget`], because a drop returns their memory to
    /// the loader. Parent and child share the pages until one of them writes, so this costs almost no memory.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
    /// # let dataset = infeed::open("synthetic://?count=100&height=8&width=8&classes=10").await?;
    /// # let loader = infeed::Loader::builder(dataset).batch_size(20).build().await?;
    /// let built_by = std::process::id();
    /// // … and after a fork, where the loader is no longer needed:
    /// match std::process::id() == built_by {
    ///     true => drop(loader),
    ///     false => loader.abandon(),
    /// }
    /// # Ok(()) }
    /// ```
    pub fn abandon(self) {
        mem::forget(self);
    }

    /// The settings in force; each `auto` is replaced by its value.
    #[must_use]
    pub fn config(&self) -> &LoaderConfig {
        &self.config
    }

    /// The dataset of the batches.
    #[must_use]
    pub fn dataset(&self) -> &Arc<dyn Dataset> {
        &self.shared.dataset
    }
}

impl fmt::Debug for Loader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loader").field("dataset", &self.shared.dataset).field("config", &self.config).finish()
    }
}
