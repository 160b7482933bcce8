//! One complete batch.

use std::{ops::Index, sync::Arc};

use bytes::Bytes;
use infeed_core::{error::Error, report::BadSample};
use infeed_data::sampler::LoaderState;

use super::{instances::BatchInstances, list::BatchList};
use crate::tensor::Tensor;

/// The fields of a batch whose values differ in length.
#[derive(Debug, Default)]
pub(super) struct SideFields {
    /// The fields of `bytes` that are text.
    pub(super) texts: Vec<String>,
    pub(super) bytes: Vec<(String, Vec<Bytes>)>,
    pub(super) text_lists: Vec<(String, Vec<Arc<[Bytes]>>)>,
    pub(super) lists: Vec<(String, BatchList)>,
    /// Lists as tensors of equally long rows, and the lengths of these.
    pub(super) padded: Vec<(String, Tensor)>,
    pub(super) instances: Vec<(String, BatchInstances)>,
}

/// The rows of one step on this rank: named tensors, the index of each row's record, and the state to resume after
/// them.
///
/// A field is a tensor, [`bytes`](Self::bytes), [`texts`](Self::texts), [`text_lists`](Self::text_lists), a
/// [`list`](Self::list) or [`instances`](Self::instances), with [`len`](Self::len) rows:
///
/// | field | shape and type |
/// |---|---|
/// | `image` | `[N, C, H, W]` (or NHWC), see [`LoaderBuilder::dtype`](crate::LoaderBuilder::dtype) |
/// | `label` | `[N]` `i64`; in mixed batches ([`LoaderBuilder::mix`](crate::LoaderBuilder::mix)) `[N, classes]` `f32` |
///
/// The first [`valid`](Self::valid) rows are samples. The rest is padding: copies of records with `LastBatch::Pad`,
/// zeros with `OnBadSample::SkipPadded`. Without these settings all rows are samples.
///
/// A batch is yours: keep it as long as you like, it no longer counts in the memory budget.
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
/// // Later, maybe in another process: the batches after this one.
/// let rest = loader.resume_epoch(batch.state())?;
/// assert_eq!(rest.count().await, 4);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Batch {
    pub(super) fields: Vec<(String, Tensor)>,
    pub(super) side: SideFields,
    pub(super) records: Vec<u64>,
    pub(super) positions: Vec<u64>,
    pub(super) rows: usize,
    pub(super) valid: usize,
    pub(super) epoch: u64,
    pub(super) step: u64,
    pub(super) state: LoaderState,
    pub(super) bad_samples: Vec<BadSample>,
    /// Why it has no rows; such a batch is never yielded.
    pub(super) none_left: Option<Error>,
}

impl Batch {
    /// The error of a short last batch of an epoch without a good row. It ends the stream, unless the stream may leave
    /// the batch out.
    pub(crate) fn none_left(&mut self) -> Option<Error> {
        self.none_left.take()
    }

    /// The tensor of a field; `None` if there is no tensor of that name.
    #[must_use]
    pub fn get(&self, field: &str) -> Option<&Tensor> {
        self.fields.iter().find(|(name, _)| name == field).map(|(_, tensor)| tensor)
    }

    /// Takes a tensor out of the batch.
    pub fn take(&mut self, field: &str) -> Option<Tensor> {
        let at = self.fields.iter().position(|(name, _)| name == field)?;
        Some(self.fields.swap_remove(at).1)
    }

    /// All tensors with their names, in the schema's order.
    #[must_use]
    pub fn into_fields(self) -> Vec<(String, Tensor)> {
        self.fields
    }

    /// The values of a field of bytes or text ([`FieldKind::Bytes`](infeed_data::FieldKind::Bytes),
    /// [`FieldKind::Text`](infeed_data::FieldKind::Text): captions, JSON, keys), one for each row; empty bytes for rows
    /// of zeros (`OnBadSample::SkipPadded`).
    #[must_use]
    pub fn bytes(&self, field: &str) -> Option<&[Bytes]> {
        self.side.bytes.iter().find(|(name, _)| name == field).map(|(_, values)| &values[..])
    }

    /// The texts of a field ([`FieldKind::Text`](infeed_data::FieldKind::Text)), one for each row; empty for rows of
    /// zeros. `None` for a field of bytes, which may not be UTF-8.
    ///
    /// ```
    /// # use futures::StreamExt;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
    /// use infeed::{Loader, dataset::MemoryDataset};
    ///
    /// let dataset = MemoryDataset::builder().texts("caption", ["a cat", "two dogs"]).build()?;
    /// let loader = Loader::builder(std::sync::Arc::new(dataset)).batch_size(2).build().await?;
    /// let batch = loader.epoch(0).next().await.expect("one batch")?;
    /// let captions: Vec<&str> = batch.texts("caption").expect("texts").collect();
    /// assert_eq!(captions, ["a cat", "two dogs"]);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn texts(&self, field: &str) -> Option<impl ExactSizeIterator<Item = &str>> {
        let values = self.bytes(field).filter(|_| self.side.texts.iter().any(|name| name == field))?;
        Some(values.iter().map(text))
    }

    /// The texts of each row, for a field with any number of texts in a record
    /// ([`FieldKind::Texts`](infeed_data::FieldKind::Texts)); none for rows of zeros.
    ///
    /// ```
    /// # use futures::StreamExt;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
    /// use infeed::{Loader, dataset::MemoryDataset};
    ///
    /// let captions = vec![vec!["a cat", "a cat on a mat"], vec!["a dog"]];
    /// let dataset = MemoryDataset::builder().text_lists("captions", captions).build()?;
    /// let loader = Loader::builder(std::sync::Arc::new(dataset)).batch_size(2).build().await?;
    /// let batch = loader.epoch(0).next().await.expect("one batch")?;
    /// let captions: Vec<Vec<&str>> = batch.text_lists("captions").expect("texts").collect();
    /// assert_eq!(captions, [vec!["a cat", "a cat on a mat"], vec!["a dog"]]);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn text_lists(&self, field: &str) -> Option<impl ExactSizeIterator<Item = Vec<&str>>> {
        let (_, rows) = self.side.text_lists.iter().find(|(name, _)| name == field)?;
        Some(rows.iter().map(|row| row.iter().map(text).collect()))
    }

    /// The names of all fields with any number of texts in a record, in the schema's order.
    pub fn text_list_fields(&self) -> impl Iterator<Item = &str> {
        self.side.text_lists.iter().map(|(name, _)| name.as_str())
    }

    /// The items of a list ([`FieldKind::List`](infeed_data::FieldKind::List)), or the rows of its images
    /// ([`FieldKind::Images`](infeed_data::FieldKind::Images)), and where each row begins; `None` also if
    /// [`LoaderBuilder::pad`](crate::LoaderBuilder::pad) made a tensor of it.
    #[must_use]
    pub fn list(&self, field: &str) -> Option<&BatchList> {
        self.side.lists.iter().find(|(name, _)| name == field).map(|(_, list)| list)
    }

    /// All lists by name, in the schema's order.
    pub fn list_fields(&self) -> impl Iterator<Item = (&str, &BatchList)> {
        self.side.lists.iter().map(|(name, list)| (name.as_str(), list))
    }

    /// All fields of bytes and texts by name, in the schema's order.
    pub fn byte_fields(&self) -> impl Iterator<Item = (&str, &[Bytes])> {
        self.side.bytes.iter().map(|(name, values)| (name.as_str(), &values[..]))
    }

    /// Boxes, labels, masks and key points of the images ([`FieldKind::Instances`](infeed_data::FieldKind::Instances)).
    #[must_use]
    pub fn instances(&self, field: &str) -> Option<&BatchInstances> {
        self.side.instances.iter().find(|(name, _)| name == field).map(|(_, instances)| instances)
    }

    /// All fields of instances by name, in the schema's order.
    pub fn instance_fields(&self) -> impl Iterator<Item = (&str, &BatchInstances)> {
        self.side.instances.iter().map(|(name, instances)| (name.as_str(), instances))
    }

    /// All tensors by name, in the schema's order, except those within [`list_fields`](Self::list_fields)
    /// and [`instance_fields`](Self::instance_fields).
    pub fn fields(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.fields.iter().map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// Number of rows, padding included. Fewer than `batch_size` in a last partial batch, and if bad samples were
    /// skipped.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.rows
    }

    /// Whether there are no rows (a rank's share of a last partial batch may be empty).
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Number of rows that are samples; the rows after them are padding.
    #[must_use]
    pub const fn valid(&self) -> usize {
        self.valid
    }

    /// For each row, the index of its record in the dataset. Rows of zeros (`OnBadSample::SkipPadded`) have none, so
    /// with them the list is shorter than [`len`](Self::len). A substituted row has the index of the record that it
    /// holds.
    #[must_use]
    pub fn records(&self) -> &[u64] {
        &self.records
    }

    /// For each of [`records`](Self::records), its position in the epoch's order.
    #[must_use]
    pub fn positions(&self) -> &[u64] {
        &self.positions
    }

    /// Number of the epoch.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Step within the epoch, from 0 where this stream started in it.
    #[must_use]
    pub const fn step(&self) -> u64 {
        self.step
    }

    /// The state to resume *after* this batch. It belongs to this batch, however many batches are prefetched.
    #[must_use]
    pub const fn state(&self) -> &LoaderState {
        &self.state
    }

    /// Sets the number of bad samples of the run up to and including this batch, which is known only in batch order.
    pub(crate) fn set_bad_count(&mut self, count: u64) {
        self.state.bad_samples = count;
    }

    /// Samples of this batch that were skipped or substituted.
    #[must_use]
    pub fn bad_samples(&self) -> &[BadSample] {
        &self.bad_samples
    }
}

/// `write_fields` has checked that it is UTF-8.
fn text(bytes: &Bytes) -> &str {
    str::from_utf8(bytes).unwrap_or_default()
}

impl Index<&str> for Batch {
    type Output = Tensor;

    /// The tensor of a field.
    ///
    /// # Panics
    /// If there is no tensor of that name; [`get`](Batch::get) returns an `Option`.
    fn index(&self, field: &str) -> &Tensor {
        self.get(field).unwrap_or_else(|| {
            let names: Vec<&str> = self.fields().map(|(name, _)| name).collect();
            panic!("no field {field:?} in the batch; there are {names:?}")
        })
    }
}
