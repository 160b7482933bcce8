//! One batch, whole.

use std::ops::Index;

use bytes::Bytes;
use infeed_core::{error::Error, report::BadSample};
use infeed_data::sampler::LoaderState;

use super::instances::BatchInstances;
use crate::tensor::Tensor;

/// The rows of one step on this rank: named tensors, which records they are, and the state to resume after them.
///
/// Every field has [`len`](Self::len) rows: a tensor, [`bytes`](Self::bytes), or [`instances`](Self::instances). `image` is `[N, C, H, W]` (or NHWC), `label` is `[N]` `i64`;
/// where batches are mixed ([`LoaderBuilder::mix`](crate::LoaderBuilder::mix)) `[N, classes]` `f32`. The first
/// [`valid`](Self::valid) rows are samples; the rest is padding, which somebody asked for: copies of records with
/// `LastBatch::Pad`, zeros with `OnBadSample::SkipPadded`. Without either, all rows are samples.
///
/// ```
/// # use futures::StreamExt;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
/// # let dataset = infeed::open("synthetic://?count=100&height=8&width=8&classes=10").await?;
/// # let loader = infeed::Loader::builder(dataset).batch_size(20).device(infeed::Device::Cpu).build().await?;
/// let mut batches = loader.epoch(0);
/// let batch = batches.next().await.expect("five batches")?;
/// assert_eq!(batch["image"].shape(), [20, 3, 8, 8]);
/// let labels: &[i64] = batch["label"].as_slice().expect("labels in host memory");
/// println!("record {} is of class {}", batch.records()[0], labels[0]);
/// // Later, with another process: what comes behind this batch.
/// let rest = loader.resume_epoch(batch.state())?;
/// assert_eq!(rest.count().await, 4);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Batch {
    pub(super) fields: Vec<(String, Tensor)>,
    pub(super) bytes: Vec<(String, Vec<Bytes>)>,
    pub(super) instances: Vec<(String, BatchInstances)>,
    pub(super) records: Vec<u64>,
    pub(super) positions: Vec<u64>,
    pub(super) rows: usize,
    pub(super) valid: usize,
    pub(super) epoch: u64,
    pub(super) step: u64,
    pub(super) state: LoaderState,
    pub(super) bad_samples: Vec<BadSample>,
    /// Why it has no rows; nobody is handed such a batch.
    pub(super) none_left: Option<Error>,
}

impl Batch {
    /// The error that ends a stream that may not leave this batch out: it was the short one at the end of an epoch, and no row
    /// of it is good.
    pub(crate) fn none_left(&mut self) -> Option<Error> {
        self.none_left.take()
    }

    /// The tensor of a field, if there is one of that name.
    #[must_use]
    pub fn get(&self, field: &str) -> Option<&Tensor> {
        self.fields.iter().find(|(name, _)| name == field).map(|(_, tensor)| tensor)
    }

    /// Takes a tensor out, to move it elsewhere.
    pub fn take(&mut self, field: &str) -> Option<Tensor> {
        let at = self.fields.iter().position(|(name, _)| name == field)?;
        Some(self.fields.swap_remove(at).1)
    }

    /// All tensors with their names, in the schema's order, to own them.
    #[must_use]
    pub fn into_fields(self) -> Vec<(String, Tensor)> {
        self.fields
    }

    /// The values of a field of bytes ([`FieldKind::Bytes`](infeed_data::FieldKind::Bytes): text, JSON, keys), one for
    /// each row; empty in rows of zeros (`OnBadSample::SkipPadded`).
    #[must_use]
    pub fn bytes(&self, field: &str) -> Option<&[Bytes]> {
        self.bytes.iter().find(|(name, _)| name == field).map(|(_, values)| &values[..])
    }

    /// All fields of bytes by name, in the schema's order.
    pub fn byte_fields(&self) -> impl Iterator<Item = (&str, &[Bytes])> {
        self.bytes.iter().map(|(name, values)| (name.as_str(), &values[..]))
    }

    /// What is marked in the images ([`FieldKind::Instances`](infeed_data::FieldKind::Instances)): boxes, labels, masks.
    #[must_use]
    pub fn instances(&self, field: &str) -> Option<&BatchInstances> {
        self.instances.iter().find(|(name, _)| name == field).map(|(_, instances)| instances)
    }

    /// All fields of instances by name, in the schema's order.
    pub fn instance_fields(&self) -> impl Iterator<Item = (&str, &BatchInstances)> {
        self.instances.iter().map(|(name, instances)| (name.as_str(), instances))
    }

    /// All tensors by name, in the schema's order; those of instances are within
    /// [`instance_fields`](Self::instance_fields).
    pub fn fields(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.fields.iter().map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// Rows, padding included. Fewer than `batch_size` in a last partial batch, and where bad samples were skipped.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.rows
    }

    /// Whether there are no rows (a rank's share of a last partial batch may be empty).
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Rows that are samples; the rest, at the end, is padding.
    #[must_use]
    pub const fn valid(&self) -> usize {
        self.valid
    }

    /// Index in the dataset of the record in each row. Rows of zeros (`OnBadSample::SkipPadded`) have none, so with them
    /// this is shorter than [`len`](Self::len). A substituted row names the record whose data it holds.
    #[must_use]
    pub fn records(&self) -> &[u64] {
        &self.records
    }

    /// Place in the epoch's order of each row of [`records`](Self::records).
    #[must_use]
    pub fn positions(&self) -> &[u64] {
        &self.positions
    }

    /// Epoch.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Step within the epoch, counted from where this stream started in it.
    #[must_use]
    pub const fn step(&self) -> u64 {
        self.step
    }

    /// Where to resume *after* this batch. Prefetch does not skew it: it rides on the batch.
    #[must_use]
    pub const fn state(&self) -> &LoaderState {
        &self.state
    }

    /// Bad samples of the run up to and with this batch, known only in batch order.
    pub(crate) fn set_bad_count(&mut self, count: u64) {
        self.state.bad_samples = count;
    }

    /// Samples of this batch that were skipped or substituted.
    #[must_use]
    pub fn bad_samples(&self) -> &[BadSample] {
        &self.bad_samples
    }
}

impl Index<&str> for Batch {
    type Output = Tensor;

    /// The tensor of a field.
    ///
    /// # Panics
    /// When there is no field of that name; [`get`](Batch::get) returns an `Option`.
    fn index(&self, field: &str) -> &Tensor {
        self.get(field).unwrap_or_else(|| {
            let names: Vec<&str> = self.fields().map(|(name, _)| name).collect();
            panic!("no field {field:?} in the batch; there are {names:?}")
        })
    }
}
