//! Part of a loader's records, in its kind of order and with its threads.

use std::sync::Arc;

use burn_core::{
    data::{
        dataloader::{DataLoader, DataLoaderIterator, Progress},
        dataset::DatasetError,
    },
    tensor::Device,
};
use infeed::{
    Error, Loader, Result,
    sampler::{Fingerprint, Sampler},
};

/// The records from `start` to `end`.
pub(crate) fn slice_of(loader: &Loader, start: u64, end: u64) -> Result<Loader> {
    let (records, items) = (loader.dataset().len(), loader.samples_per_epoch());
    let refused = |why: String| Error::config(format!("a slice from {start} to {end}: {why}"));
    if start >= end || end > items {
        return Err(
            refused(format!("the loader has {items} items")).with_hint("slice within them, with at least one item")
        );
    }
    let config = loader.config();
    if config.shard.world() > 1 {
        return Err(refused(format!("the loader is rank {} of {}", config.shard.rank(), config.shard.world()))
            .with_hint("slice a loader of all records, or build one loader for each device: DeviceLoaders"));
    }
    let whole = loader.state_before(0);
    let order = |records, groups| config.order.sampler(records, groups, whole.lanes);
    if order(records, loader.dataset().groups())?.fingerprint() != whole.identity.order_fingerprint {
        return Err(refused(format!("the loader has an order of its own ({})", whole.identity.order))
            .with_hint("make a sampler of the slice's records"));
    }
    // The last slice also gets the records that a dropped last batch would omit.
    let end = if end == items { records } else { end };
    let groups = loader.dataset().groups().map(|groups| {
        let inside = groups.iter().filter(|group| (start + 1..end).contains(group)).map(|group| group - start);
        std::iter::once(0).chain(inside).collect::<Arc<[u64]>>()
    });
    loader.with_sampler(Arc::new(Slice { order: order(end - start, groups)?, start, records }))
}

/// An order of a part of the records, which begins at `start`.
#[derive(Debug)]
struct Slice {
    order: Arc<dyn Sampler>,
    start: u64,
    records: u64,
}

impl Sampler for Slice {
    fn len(&self) -> u64 {
        self.order.len()
    }

    fn records(&self) -> u64 {
        self.records
    }

    fn record(&self, epoch: u64, position: u64) -> u64 {
        self.start + self.order.record(epoch, position)
    }

    fn occurrence(&self, epoch: u64, position: u64) -> u64 {
        self.order.occurrence(epoch, position)
    }

    fn position(&self, epoch: u64, record: u64) -> Option<u64> {
        let record = record.checked_sub(self.start).filter(|record| *record < self.order.records())?;
        self.order.position(epoch, record)
    }

    fn is_bijection(&self) -> bool {
        self.order.is_bijection() && self.order.records() == self.records
    }

    fn describe(&self) -> String {
        format!("{}, records {} to {}", self.order.describe(), self.start, self.start + self.order.records())
    }

    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of("burn's slice").number(self.start).number(self.records).part(self.order.fingerprint()).finish()
    }
}

/// A loader that yields an error instead of batches, since burn's methods that return loaders cannot return an error.
#[derive(Clone)]
pub(crate) struct Refused(pub(crate) Error);

impl Refused {
    pub(crate) fn failure<'a, O: 'a>(error: Error) -> Box<dyn DataLoaderIterator<O> + 'a> {
        Box::new(Failure(std::iter::once(Err(DatasetError::new(error)))))
    }
}

impl<O: Send + 'static> DataLoader<O> for Refused {
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<O> + 'a> {
        Self::failure(self.0.clone())
    }

    fn num_items(&self) -> usize {
        0
    }

    fn to_device(&self, _device: &Device) -> Arc<dyn DataLoader<O>> {
        Arc::new(self.clone())
    }

    fn slice(&self, _start: usize, _end: usize) -> Arc<dyn DataLoader<O>> {
        Arc::new(self.clone())
    }
}

/// An iterator of one error.
struct Failure<O>(std::iter::Once<std::result::Result<O, DatasetError>>);

impl<O> Iterator for Failure<O> {
    type Item = std::result::Result<O, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}

impl<O> DataLoaderIterator<O> for Failure<O> {
    fn progress(&self) -> Progress {
        Progress::new(0, 0, Some("items".to_owned()))
    }
}
