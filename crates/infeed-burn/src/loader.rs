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
/// Each [`iter`](DataLoader::iter) is the next epoch, in the loader's exact order for any number of threads. Batches
/// are read ahead within the loader's memory budget.
///
/// Clones, and the results of [`to_device`](DataLoader::to_device), share one loader and one place. Keep a clone: its
/// [`state`](Self::state) is the place that burn's learner reached.
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
    /// Yields batches of one of this crate's types, or of your own type.
    ///
    /// Build the loader with [`device(Device::Cpu)`](infeed::LoaderBuilder::device), and
    /// [`pin_memory(true)`](infeed::LoaderBuilder::pin_memory) if burn runs on an NVIDIA GPU.
    pub fn new(loader: Loader, device: &Device) -> Self
    where
        O: FromBatch,
    {
        Self::with(loader, device, O::from_batch)
    }

    /// Yields what a function makes from each batch.
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

    /// Sets the epochs of the iterators. The next epoch is then read while the trainer still uses the last batches of
    /// the one before, and while it validates. An iterator after the last epoch yields an error.
    ///
    /// Default: epochs from 0 without end; each is read only once its iterator is made. A place that was
    /// [resumed](Self::resume) is kept.
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

    /// Resumes at `state`, also within an epoch: the next iterator is the rest of that epoch. Reading starts now. The
    /// world size, the batch size and the number of threads may differ from those of the state.
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

    /// The place after the last batch that an iterator or stream yielded, regardless of read-ahead. Save it in a
    /// checkpoint, with the model and the optimiser.
    #[must_use]
    pub fn state(&self) -> LoaderState {
        self.shared.place().state.clone()
    }

    /// Statistics of the latest epoch and where the time went; `None` before the first epoch.
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

    /// Samples of an epoch on this rank; fewer than the dataset's if the last batch is dropped.
    fn num_items(&self) -> usize {
        self.shared.loader.samples_per_epoch() as usize
    }

    fn to_device(&self, device: &Device) -> Arc<dyn DataLoader<O>> {
        Arc::new(self.on(device))
    }

    /// The records from `start` to `end`, in this loader's kind of order and with its threads. A slice up to the last
    /// item also contains the records that a dropped last batch would omit. For training on several devices use
    /// [`DeviceLoaders`](crate::DeviceLoaders), whose parts have the same number of steps.
    ///
    /// A loader with its own sampler, or of one of several ranks, cannot be sliced: its slice's iterator yields an
    /// error.
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
