//! The trait of every order.

use std::fmt::Debug;

use infeed_core::fingerprint::Fingerprint;

use super::batches::Batches;

/// Maps positions in an epoch to records. Methods are pure and quick: O(1), or O(log groups) for
/// [`Order::Blocks`](super::Order::Blocks).
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
    /// Number of positions in an epoch.
    fn len(&self) -> u64;
    /// Whether an epoch has no positions.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Number of records of the dataset that this sampler was made for; each `record` is below it.
    fn records(&self) -> u64 {
        self.len()
    }
    /// The record at `position` of `epoch`. May panic if `position` is not below `len`.
    fn record(&self, epoch: u64, position: u64) -> u64;
    /// A number for this occurrence of the record in this epoch. Samples of one record with different numbers draw
    /// different augmentation; any distinct numbers will do. Default: 0, for records that occur once.
    fn occurrence(&self, epoch: u64, position: u64) -> u64 {
        let _ = (epoch, position);
        0
    }
    /// The inverse of `record`. For a record that occurs several times, its first position. `None` if the record does
    /// not occur in this epoch, if there is no such record, or if the sampler has no inverse.
    fn position(&self, epoch: u64, record: u64) -> Option<u64>;
    /// Whether each record occurs exactly once per epoch.
    fn is_bijection(&self) -> bool {
        true
    }
    /// The batches of an epoch, if the sampler sets them; the last one ends with the epoch. Default: `None`, the loader
    /// cuts batches of `batch_size` rows.
    ///
    /// A loader accepts them only with one rank, unless they are [for ranks](Batches::for_ranks), and only if no batch has
    /// more than `batch_size` rows. The sampler then
    /// decides about records that do not fill a batch, so `last_batch` has no effect. The state is the usual one, the
    /// position after a batch. If that position is within a batch (the state was saved with other batches), the run
    /// resumes with the rest of that batch.
    fn batches(&self) -> Option<&Batches> {
        None
    }
    /// One line for people and for messages about state mismatches, such as `random, seed 42`.
    fn describe(&self) -> String;
    /// Identity of the order.
    fn fingerprint(&self) -> Fingerprint;
}
