//! A dataset for burn's own loader and your own batcher.

use std::{fmt, sync::Arc};

use burn_core::data::dataset::{Dataset, DatasetError};
use infeed::{Batch, Error, Loader, Result, bytes::Bytes, sampler::ListSampler, tensor::Element};

/// A dataset that infeed opened, as burn's [`Dataset`]: `hf://` without Python, buckets, shards, every format.
///
/// Records are read and decoded when burn requests them; the loader's threads process the records of a burn batch in
/// parallel. Nothing is read ahead of burn's own threads; use [`InfeedLoader`](crate::InfeedLoader) for that. A record
/// is the same each time, since random transforms draw the same numbers.
///
/// ```
/// use burn_core::data::dataset::Dataset;
/// use infeed_burn::{InfeedDataset, burn_core, infeed};
///
/// #[derive(Clone)]
/// struct Item {
///     image: Vec<f32>,
///     label: i64,
/// }
///
/// let dataset = infeed::open("synthetic://?count=100&height=8&width=8&classes=10").blocking()?;
/// let loader = infeed::Loader::builder(dataset).batch_size(32).device(infeed::Device::Cpu).build_blocking()?;
/// let dataset = InfeedDataset::new(loader, |row| {
///     Ok(Item { image: row.values("image")?.to_vec(), label: row.values("label")?[0] })
/// })?;
/// assert_eq!(dataset.len(), 100);
/// assert_eq!(dataset.get(7).expect("no error").image.len(), 3 * 8 * 8);
/// # assert!(dataset.get_many(vec![3, 99, 3]).expect("no error").iter().all(|item| (0..10).contains(&item.label)));
/// # Ok::<(), infeed::Error>(())
/// ```
pub struct InfeedDataset<I> {
    loader: Loader,
    make: Arc<dyn Fn(Row<'_>) -> Result<I> + Send + Sync>,
}

impl<I> InfeedDataset<I> {
    /// The loader decodes and transforms the records; its order has no effect.
    ///
    /// # Errors
    /// `Config` for a loader on a GPU, or a loader of one of several ranks.
    pub fn new(loader: Loader, make: impl Fn(Row<'_>) -> Result<I> + Send + Sync + 'static) -> Result<Self> {
        let config = loader.config();
        if config.shard.world() > 1 {
            return Err(Error::config("a burn dataset has all records, and the loader is one of several ranks")
                .with_hint("omit the loader's shard"));
        }
        if config.device != Some(infeed::Device::Cpu) {
            return Err(Error::config("the rows of a burn dataset are in host memory, and the loader's are on a GPU")
                .with_hint("build the loader with .device(Device::Cpu)"));
        }
        Ok(Self { loader, make: Arc::new(make) })
    }
}

impl<I: Send + Sync> Dataset<I> for InfeedDataset<I> {
    fn get(&self, index: usize) -> std::result::Result<I, DatasetError> {
        let item = self.get_many(vec![index])?.pop();
        item.ok_or_else(|| DatasetError::new(Error::config("a record gave no item")))
    }

    fn get_many(&self, indexes: Vec<usize>) -> std::result::Result<Vec<I>, DatasetError> {
        let records: Vec<u64> = indexes.into_iter().map(|index| index as u64).collect();
        let of = self.loader.dataset().len();
        // The trait requires this panic and its wording.
        assert!(records.iter().all(|record| *record < of), "index out of bounds: {records:?} of {of} records");
        self.read(&records).map_err(DatasetError::new)
    }

    fn len(&self) -> usize {
        self.loader.dataset().len() as usize
    }
}

impl<I> InfeedDataset<I> {
    fn read(&self, records: &[u64]) -> Result<Vec<I>> {
        let mut items = Vec::with_capacity(records.len());
        for records in records.chunks(self.loader.config().batch_size) {
            let list = ListSampler::new(self.loader.dataset().len(), records)?.with_batches([records.len()])?;
            for batch in self.loader.with_sampler(Arc::new(list))?.epoch(0).blocking() {
                let batch = batch?;
                if batch.records() != records {
                    return Err(Error::config(format!(
                        "records {records:?} were requested, {:?} came",
                        batch.records()
                    ))
                    .with_hint("use OnBadSample::Stop: a burn dataset needs an item for each index"));
                }
                for row in 0..batch.len() {
                    items.push((self.make)(Row { batch: &batch, row })?);
                }
            }
        }
        Ok(items)
    }
}

impl<I> fmt::Debug for InfeedDataset<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InfeedDataset").field("dataset", self.loader.dataset()).finish_non_exhaustive()
    }
}

/// One record, decoded and transformed; see [`InfeedDataset`].
///
/// ```
/// # use burn_core::data::dataset::Dataset;
/// # use infeed_burn::{InfeedDataset, burn_core, infeed};
/// # let dataset = infeed::open("synthetic://?count=4&height=8&width=8&classes=10").blocking()?;
/// # let loader = infeed::Loader::builder(dataset).batch_size(4).device(infeed::Device::Cpu).build_blocking()?;
/// let dataset = InfeedDataset::new(loader, |row| {
///     let pixels: &[f32] = row.values("image")?;
///     Ok((row.shape("image")?.to_vec(), pixels[0]))
/// })?;
/// assert_eq!(dataset.get(0).expect("no error").0, [3, 8, 8]);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    batch: &'a Batch,
    row: usize,
}

impl<'a> Row<'a> {
    /// The values of a field; a label is one value.
    ///
    /// # Errors
    /// `Config` if there is no such field, or its values have another type.
    pub fn values<T: Element>(&self, field: &str) -> Result<&'a [T]> {
        let tensor = self.tensor(field)?;
        let each = tensor.shape()[1..].iter().product::<usize>();
        let all = tensor.as_slice::<T>().ok_or_else(|| {
            Error::config(format!("values of {} were requested as {}", tensor.dtype(), T::DTYPE))
                .at_field(field)
                .with_hint("request the type that they have, or set the loader's dtype")
        })?;
        Ok(&all[self.row * each..(self.row + 1) * each])
    }

    /// The shape of a field's values.
    ///
    /// # Errors
    /// `Config` if there is no such field.
    pub fn shape(&self, field: &str) -> Result<&'a [usize]> {
        Ok(&self.tensor(field)?.shape()[1..])
    }

    /// Text or other bytes.
    ///
    /// # Errors
    /// `Config` if there is no such field of bytes.
    pub fn bytes(&self, field: &str) -> Result<&'a Bytes> {
        let values =
            self.batch.bytes(field).ok_or_else(|| no_field(field, self.batch.byte_fields().map(|(name, _)| name)))?;
        Ok(&values[self.row])
    }

    /// The numbers of a list, item after item.
    ///
    /// # Errors
    /// `Config` if there is no such list, or its numbers have another type.
    pub fn list<T: Element>(&self, field: &str) -> Result<&'a [T]> {
        let names = || self.batch.list_fields().map(|(name, _)| name);
        let list = self.batch.list(field).ok_or_else(|| no_field(field, names()))?;
        let dtype = list.values().dtype();
        list.row(self.row).ok_or_else(|| {
            Error::config(format!("values of {dtype} were requested as {}", T::DTYPE))
                .at_field(field)
                .with_hint("request the type that they have")
        })
    }

    /// Boxes, labels and masks.
    ///
    /// # Errors
    /// `Config` if there is no such field of instances.
    pub fn instances(&self, field: &str) -> Result<infeed::RowInstances<'a>> {
        let marked = self.batch.instances(field);
        let names = || self.batch.instance_fields().map(|(name, _)| name);
        Ok(marked.ok_or_else(|| no_field(field, names()))?.row(self.row))
    }

    fn tensor(&self, field: &str) -> Result<&'a infeed::Tensor> {
        self.batch.get(field).ok_or_else(|| no_field(field, self.batch.fields().map(|(name, _)| name)))
    }
}

fn no_field<'a>(field: &str, there: impl Iterator<Item = &'a str>) -> Error {
    let there: Vec<&str> = there.collect();
    Error::config(format!("the records have no field {field:?} of that kind, but {there:?}"))
        .with_hint("see `infeed inspect` for the fields of a dataset")
}
