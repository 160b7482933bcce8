//! What every order is.

use std::fmt::Debug;

use infeed_core::fingerprint::Fingerprint;

use super::batches::Batches;

/// Maps places in an epoch to records. Pure and quick: O(1), or O(log groups) for [`Order::Blocks`](super::Order::Blocks).
///
/// ```
/// # use std::sync::Arc;
/// use infeed::{Loader, sampler::{Fingerprint, Sampler}};
///
/// /// From the last record to the first.
/// #[derive(Debug)]
/// struct Backwards(u64);
///
/// impl Sampler for Backwards {
///     fn len(&self) -> u64 { self.0 }
///     fn record(&self, _epoch: u64, position: u64) -> u64 { self.0 - 1 - position }
///     fn position(&self, _epoch: u64, record: u64) -> Option<u64> { (record < self.0).then(|| self.0 - 1 - record) }
///     fn describe(&self) -> String { "backwards".to_owned() }
///     fn fingerprint(&self) -> Fingerprint { Fingerprint::of("backwards").number(self.0).finish() }
/// }
///
/// # let dataset = Arc::new(infeed::dataset::SyntheticDataset::new(8, 4, 4, 2)?);
/// let loader = Loader::builder(dataset).batch_size(3).sampler(Arc::new(Backwards(8))).build_blocking()?;
/// let batch = loader.epoch(0).blocking().next().expect("two batches")?;
/// assert_eq!(batch.records(), [7, 6, 5]);
/// # Ok::<(), infeed::Error>(())
/// ```
pub trait Sampler: Debug + Send + Sync + 'static {
    /// Positions in an epoch.
    fn len(&self) -> u64;
    /// Whether an epoch has no positions.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Records of the dataset that this sampler was made for; each `record` is below it.
    fn records(&self) -> u64 {
        self.len()
    }
    /// The record at `position` (below `len`, or it may panic) of `epoch`.
    fn record(&self, epoch: u64, position: u64) -> u64;
    /// Which of the times that its record comes in this epoch: samples of one record with other numbers draw other
    /// augmentation. Any different numbers will do. Default: 0, for records that come once.
    fn occurrence(&self, epoch: u64, position: u64) -> u64 {
        let _ = (epoch, position);
        0
    }
    /// The inverse of `record`, of a record that comes several times its first position; `None` when it does not come in
    /// this epoch, there is no such record, or the sampler can't tell.
    fn position(&self, epoch: u64, record: u64) -> Option<u64>;
    /// Whether each record comes exactly once an epoch.
    fn is_bijection(&self) -> bool {
        true
    }
    /// Which stretches of an epoch are batches, where the sampler says so; they end where the epoch does. `None`: the loader
    /// cuts even ones of its `batch_size`.
    ///
    /// For one rank alone, and `batch_size` is the most rows that a batch may have: a loader refuses others. Which records do
    /// not fill a batch is the sampler's to say then, so `last_batch` has no part in it. A state is the same as ever, the
    /// position behind a batch; where it lies within one (it was saved with other batches), the rest of that one comes first.
    fn batches(&self) -> Option<&Batches> {
        None
    }
    /// One line for people and for state mismatches, such as `random, seed 42`.
    fn describe(&self) -> String;
    /// Identity of the order.
    fn fingerprint(&self) -> Fingerprint;
}
