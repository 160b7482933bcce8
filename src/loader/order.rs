//! The order of a dataset's records, and the state that describes it.

use std::sync::Arc;

use infeed_core::error::{Error, Result};
use infeed_data::{
    Dataset,
    sampler::{Identity, LoaderState, Order, Sampler},
};

use crate::engine::RecordOrder;

/// The order, completed from `dataset`: for a mixture, the number of records of its parts.
pub(super) fn for_dataset(order: Order, dataset: &dyn Dataset) -> Result<Order> {
    let Order::Mixture(mixture) = order else { return Ok(order) };
    let len = dataset.len();
    let starts = dataset.parts().unwrap_or_else(|| Arc::new([0]));
    let ends = starts.iter().skip(1).copied().chain([len]);
    let records: Vec<u64> = starts.iter().zip(ends).map(|(start, end)| end.saturating_sub(*start)).collect();
    mixture.with_records(&records).map(Order::Mixture)
}

/// The order of `dataset`; `lanes` is used if the order does not fix their number.
pub(super) fn ordering(order: &Order, dataset: &dyn Dataset, seed: u64, lanes: u64) -> Result<RecordOrder> {
    let sampler = order.sampler(dataset.len(), dataset.groups(), lanes)?;
    Ok(identified(sampler, dataset, seed, order.lanes(lanes)))
}

pub(super) fn order_of_sampler(sampler: Arc<dyn Sampler>, dataset: &dyn Dataset, seed: u64) -> Result<RecordOrder> {
    if sampler.records() != dataset.len() {
        let what = format!("the sampler draws from {} records, the dataset has {}", sampler.records(), dataset.len());
        return Err(Error::config(what).with_hint("make the sampler for this dataset"));
    }
    Ok(identified(sampler, dataset, seed, 1))
}

fn identified(sampler: Arc<dyn Sampler>, dataset: &dyn Dataset, seed: u64, lanes: u64) -> RecordOrder {
    let identity = Identity::new(dataset.format(), dataset.len(), dataset.fingerprint(), &*sampler);
    RecordOrder { sampler, state: LoaderState::new(identity, seed, lanes) }
}
