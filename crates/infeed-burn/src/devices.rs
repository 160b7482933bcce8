//! Loaders for training on several devices.

use std::{fmt, ops::Range, sync::Arc};

use burn_core::{
    data::dataloader::{DataLoader, DataLoaderIterator},
    tensor::Device,
};
use infeed::{Batch, Error, Loader, LoaderState, Result};

use crate::{FromBatch, InfeedLoader, slice::Refused};

/// The loaders of [`build_each`](infeed::LoaderBuilder::build_each) as one [`DataLoader`], for burn's training on
/// several devices: each device gets the part of its own rank, and all have the same number of steps.
///
/// burn slices a loader into one part per device; the last part gets the remainder. Parts of a single [`InfeedLoader`]
/// can therefore differ by a step. Here each slice is a rank.
///
/// ```
/// use std::sync::Arc;
///
/// use burn_core::{data::dataloader::{DataLoader, split::split_dataloader}, tensor::Device};
/// use infeed_burn::{ClassificationBatch, DeviceLoaders, burn_core, infeed};
///
/// let dataset = infeed::open("synthetic://?count=103&height=8&width=8&classes=10").blocking()?;
/// let builder = infeed::Loader::builder(dataset).batch_size(10).shuffle(42);
/// // One for each device of burn; their batches are in host memory.
/// let loaders = builder.build_each_blocking([infeed::Device::Cpu, infeed::Device::Cpu])?;
/// let train = DeviceLoaders::<ClassificationBatch>::new(loaders, &Device::default()).epochs(0..3);
///
/// // What burn does with it.
/// let parts = split_dataloader(Arc::new(train), &[Device::default(), Device::default()]);
/// let steps: Vec<usize> = parts.iter().map(|part| part.iter().count()).collect();
/// assert_eq!(steps, [5, 5]);
/// # Ok::<(), infeed::Error>(())
/// ```
pub struct DeviceLoaders<O> {
    parts: Vec<InfeedLoader<O>>,
}

impl<O: 'static> DeviceLoaders<O> {
    /// One loader per device, in the order of the devices. Tensors go to `device` until burn sets each loader's own
    /// device.
    pub fn new(loaders: impl IntoIterator<Item = Loader>, device: &Device) -> Self
    where
        O: FromBatch,
    {
        Self::with(loaders, device, O::from_batch)
    }

    /// Batches that a function makes, as in [`InfeedLoader::with`].
    pub fn with(
        loaders: impl IntoIterator<Item = Loader>,
        device: &Device,
        make: impl Fn(&Batch, &Device) -> Result<O> + Clone + Send + Sync + 'static,
    ) -> Self {
        let part = |loader| InfeedLoader::with(loader, device, make.clone());
        Self { parts: loaders.into_iter().map(part).collect() }
    }

    /// See [`InfeedLoader::epochs`].
    #[must_use]
    pub fn epochs(self, epochs: Range<u64>) -> Self {
        Self { parts: self.parts.into_iter().map(|part| part.epochs(epochs.clone())).collect() }
    }

    /// See [`InfeedLoader::resume`]. `state` may be from any of the devices, also from a run with another number of
    /// devices.
    ///
    /// # Errors
    /// As [`InfeedLoader::resume`].
    pub fn resume(self, state: &LoaderState) -> Result<Self> {
        let parts = self.parts.into_iter().map(|part| part.resume(state)).collect::<Result<_>>()?;
        Ok(Self { parts })
    }

    /// The state of the first device, see [`InfeedLoader::state`]. `None` without devices.
    #[must_use]
    pub fn state(&self) -> Option<LoaderState> {
        self.parts.first().map(InfeedLoader::state)
    }
}

impl<O: Send + 'static> DataLoader<O> for DeviceLoaders<O> {
    /// The batches of a single device; an error if there are several.
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<O> + 'a> {
        match &self.parts[..] {
            [part] => part.iter(),
            parts => Refused::failure(
                Error::config(format!("the loaders of {} devices are iterated over as one", parts.len()))
                    .with_hint("train with ExecutionStrategy::MultiDevice, or give the trainer an InfeedLoader"),
            ),
        }
    }

    fn num_items(&self) -> usize {
        self.parts.iter().map(DataLoader::num_items).sum()
    }

    fn to_device(&self, device: &Device) -> Arc<dyn DataLoader<O>> {
        Arc::new(Self { parts: self.parts.iter().map(|part| part.on(device)).collect() })
    }

    /// The loader of a device, if `start` and `end` are that device's part of [`num_items`](DataLoader::num_items) as
    /// burn divides it. The iterator of any other slice yields an error.
    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<O>> {
        let (items, parts) = (self.num_items(), self.parts.len());
        let each = items / parts.max(1);
        let fits = |part: &usize| start == part * each && end == if part + 1 == parts { items } else { start + each };
        match (0..parts).find(fits) {
            Some(part) => Arc::new(self.parts[part].clone()),
            None => Arc::new(Refused(
                Error::config(format!(
                    "a slice from {start} to {end} of {items} items matches none of {parts} devices"
                ))
                .with_hint("build as many loaders as the trainer has devices"),
            )),
        }
    }
}

impl<O> Clone for DeviceLoaders<O> {
    fn clone(&self) -> Self {
        Self { parts: self.parts.clone() }
    }
}

impl<O> fmt::Debug for DeviceLoaders<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceLoaders").field("parts", &self.parts).finish()
    }
}
