//! The loader that burn's training loops take.

use std::{fmt, ops::Range, sync::Arc};

use burn_core::{
    data::dataloader::{DataLoader, DataLoaderIterator},
    tensor::Device,
};
use infeed::{Batch, Loader, LoaderState, Result, loader::Monitor};

use crate::{
    FromBatch,
    epoch::{BlockingEpoch, Epoch},
    place::{Ahead, Make, Shared},
    slice::{Refused, slice_of},
};

/// A [`Loader`] as burn's [`DataLoader`].
///
/// Each [`iter`](DataLoader::iter) is the next epoch: in the loader's exact order, whatever the number of threads. Batches are
/// read ahead within the loader's memory budget.
///
/// Clones, and what [`to_device`](DataLoader::to_device) gives, are the same loader in the same place: keep one, and its
/// [`state`](Self::state) tells how far burn's learner came with another.
///
/// ```
/// use std::sync::Arc;
///
/// use burn_core::{data::dataloader::DataLoader, tensor::Device};
/// use infeed_burn::{ClassificationBatch, InfeedLoader, burn_core, infeed};
///
/// let dataset = infeed::open("synthetic://?count=100&height=8&width=8&classes=10").blocking()?;
/// let loader = infeed::Loader::builder(dataset).batch_size(20).shuffle(42).device(infeed::Device::Cpu).build_blocking()?;
/// let data = InfeedLoader::<ClassificationBatch>::new(loader, &Device::default()).epochs(0..3);
///
/// // What `SupervisedTraining::new` takes.
/// let train: Arc<dyn DataLoader<ClassificationBatch>> = Arc::new(data.clone());
/// for batch in train.iter() {
///     assert_eq!(batch.expect("no error").images.dims(), [20, 3, 8, 8]);
/// }
/// // Into the checkpoint, as `to_json()` or by serde.
/// assert_eq!(data.state().epoch, 1);
/// # Ok::<(), infeed::Error>(())
/// ```
pub struct InfeedLoader<O> {
    pub(crate) shared: Arc<Shared>,
    pub(crate) make: Make<O>,
    pub(crate) device: Device,
}

impl<O: 'static> InfeedLoader<O> {
    /// Batches of one of the ready-made kinds, or of a kind of yours.
    ///
    /// Build the loader with [`device(Device::Cpu)`](infeed::LoaderBuilder::device), and
    /// [`pin_memory(true)`](infeed::LoaderBuilder::pin_memory) where burn runs on an NVIDIA GPU.
    pub fn new(loader: Loader, device: &Device) -> Self
    where
        O: FromBatch,
    {
        Self::with(loader, device, O::from_batch)
    }

    /// Batches that a function makes.
    ///
    /// ```
    /// use burn_core::{data::dataloader::DataLoader, tensor::{Device, Tensor}};
    /// use infeed_burn::{InfeedLoader, TensorExt, burn_core, infeed};
    ///
    /// # let dataset = infeed::open("synthetic://?count=8&height=4&width=4&classes=10").blocking()?;
    /// # let loader = infeed::Loader::builder(dataset).batch_size(4).device(infeed::Device::Cpu).build_blocking()?;
    /// let data = InfeedLoader::with(loader, &Device::default(), |batch, device| batch["image"].burn::<4, _>(device));
    /// let images: Tensor<4> = data.iter().next().expect("two batches").expect("no error");
    /// # assert_eq!(images.dims(), [4, 3, 4, 4]);
    /// # Ok::<(), infeed::Error>(())
    /// ```
    pub fn with(
        loader: Loader,
        device: &Device,
        make: impl Fn(&Batch, &Device) -> Result<O> + Send + Sync + 'static,
    ) -> Self {
        Self { shared: Arc::new(Shared::new(loader)), make: Arc::new(make), device: device.clone() }
    }

    /// Which epochs the iterators are, in turn. Then the next epoch is read while the last batches of the one before are
    /// still in use, and while the trainer validates; behind the last one is an error. Without it they are counted from 0 on without
    /// end, and each is read from when its iterator is asked for. What was [resumed](Self::resume) stays where it is.
    #[must_use]
    pub fn epochs(self, epochs: Range<u64>) -> Self {
        let mut place = self.shared.place();
        (place.end, place.ahead) = (Some(epochs.end), None);
        if !place.resumed {
            (place.next, place.state) = (epochs.start, self.shared.loader.state_before(epochs.start));
        }
        drop(place);
        self
    }

    /// Goes on where `state` was taken, in the middle of an epoch as well: the next iterator is the rest of it. Reading begins
    /// now. The world size, the batch size and the number of threads may have changed.
    ///
    /// ```
    /// use burn_core::{data::dataloader::DataLoader, tensor::Device};
    /// use infeed_burn::{ClassificationBatch, InfeedLoader, burn_core, infeed};
    ///
    /// # let dataset = infeed::open("synthetic://?count=100&height=8&width=8&classes=10").blocking()?;
    /// # let loader = infeed::Loader::builder(dataset).batch_size(20).device(infeed::Device::Cpu).build_blocking()?;
    /// let data = InfeedLoader::<ClassificationBatch>::new(loader.clone(), &Device::default()).epochs(0..3);
    /// data.iter().nth(1).expect("an epoch has five").expect("no error");
    /// let saved = data.state().to_json();
    ///
    /// // … the process ends and comes back:
    /// let state = infeed::LoaderState::from_json(&saved)?;
    /// let data = InfeedLoader::<ClassificationBatch>::new(loader, &Device::default()).epochs(0..3).resume(&state)?;
    /// let left: Vec<usize> = (state.epoch..3).map(|_| data.iter().count()).collect();
    /// assert_eq!(left, [3, 5, 5]);
    /// # Ok::<(), infeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// `State` for a state of another dataset, order or seed.
    pub fn resume(self, state: &LoaderState) -> Result<Self> {
        let mut place = self.shared.place();
        let end = place.end.unwrap_or(state.epoch.saturating_add(1));
        let stream = self.shared.loader.resume_epochs(state, ..end)?;
        place.monitor = Some(stream.monitor());
        place.ahead = Some(Ahead { stream, batch: None });
        (place.next, place.state, place.resumed) = (state.epoch, state.clone(), true);
        drop(place);
        Ok(self)
    }

    /// Where to go on behind the last batch that an iterator or stream gave: for a checkpoint, beside those of the model and
    /// the optimiser. What was read ahead does not count.
    #[must_use]
    pub fn state(&self) -> LoaderState {
        self.shared.place().state.clone()
    }

    /// What the latest epoch did and where the time went; `None` before the first.
    #[must_use]
    pub fn monitor(&self) -> Option<Monitor> {
        self.shared.place().monitor.clone()
    }

    pub(crate) fn on(&self, device: &Device) -> Self {
        Self { device: device.clone(), ..self.clone() }
    }

    /// The next epoch as a stream, for async loops.
    ///
    /// ```
    /// use burn_core::tensor::Device;
    /// use futures::StreamExt;
    /// use infeed_burn::{ClassificationBatch, InfeedLoader, burn_core, infeed};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
    /// # let dataset = infeed::open("synthetic://?count=100&height=8&width=8&classes=10").await?;
    /// # let loader = infeed::Loader::builder(dataset).batch_size(20).device(infeed::Device::Cpu).build().await?;
    /// let data = InfeedLoader::<ClassificationBatch>::new(loader, &Device::default()).epochs(0..3);
    /// for epoch in 0..3 {
    ///     let mut batches = data.stream();
    ///     while let Some(batch) = batches.next().await {
    ///         assert_eq!(batch?.targets.dims(), [20]);
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    pub fn stream(&self) -> Epoch<O> {
        Epoch::begin(&self.shared, &self.make, &self.device)
    }
}

impl<O: Send + 'static> DataLoader<O> for InfeedLoader<O> {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<O> + 'a> {
        Box::new(BlockingEpoch(self.stream()))
    }

    /// Samples of an epoch on this rank; less than the dataset where the last batch is dropped.
    fn num_items(&self) -> usize {
        self.shared.loader.samples_per_epoch() as usize
    }

    fn to_device(&self, device: &Device) -> Arc<dyn DataLoader<O>> {
        Arc::new(self.on(device))
    }

    /// The records from `start` to `end` in this loader's order, by the same threads. A slice up to the last item has what a dropped
    /// last batch leaves out, too. For a training on several devices take [`DeviceLoaders`](crate::DeviceLoaders), whose
    /// parts have the same number of steps.
    ///
    /// What can't be sliced (a loader with a sampler of its own or of several ranks) gives an iterator with the error.
    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<O>> {
        match slice_of(&self.shared.loader, start as u64, end as u64) {
            Ok(loader) => Arc::new(Self { shared: Arc::new(Shared::like(loader, &self.shared)), ..self.clone() }),
            Err(error) => Arc::new(Refused(error)),
        }
    }
}

impl<O> Clone for InfeedLoader<O> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), make: Arc::clone(&self.make), device: self.device.clone() }
    }
}

impl<O> fmt::Debug for InfeedLoader<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = &self.shared.place().state;
        f.debug_struct("InfeedLoader")
            .field("loader", &self.shared.loader)
            .field("state", state)
            .finish_non_exhaustive()
    }
}
