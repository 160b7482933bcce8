//! Reads records one after another while a dataset is opened, for filters and weights.

use std::collections::HashMap;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use infeed_core::{
    error::{Error, Result},
    random::SampleRng,
};

use super::{
    record::{Dataset, ReadPlan, Sample, Value},
    schema::FieldKind,
};

/// Records that are read at the same time: enough to hide the latency of a store, few enough for memory.
const WINDOW: usize = 64;

/// Reads records in ascending order.
#[derive(Debug, Default)]
struct Look {
    /// Decoded shared parts of the previous window; the next one often uses them too.
    shared: HashMap<u64, Bytes>,
}

impl Look {
    async fn at(&mut self, dataset: &dyn Dataset, records: &[u64]) -> Result<Vec<Sample>> {
        let plan = |record: &u64| dataset.plan(*record, SampleRng::new(0, 0, *record));
        let plans = records.iter().map(plan).collect::<Result<Vec<ReadPlan>>>()?;
        let mut used = HashMap::new();
        for part in plans.iter().flat_map(|plan| &plan.shared) {
            if used.contains_key(&part.key) {
                continue;
            }
            let decoded = match self.shared.remove(&part.key) {
                Some(decoded) => decoded,
                None => {
                    let reads = stream::iter(part.extents.clone()).map(|extent| async move { extent.read().await });
                    dataset.decode_shared(part.key, &reads.buffered(WINDOW).try_collect::<Vec<_>>().await?)?
                }
            };
            used.insert(part.key, decoded);
        }
        self.shared = used;
        let by_dataset: Vec<u64> = records
            .iter()
            .zip(&plans)
            .filter(|(_, plan)| plan.by_dataset.is_some())
            .map(|(record, _)| *record)
            .collect();
        let mut brought = if by_dataset.is_empty() { Vec::new() } else { dataset.read(&by_dataset) }.into_iter();
        let extents: Vec<_> = plans.iter().flat_map(|plan| plan.extents.iter().cloned()).collect();
        let reads = stream::iter(extents).map(|extent| async move { extent.read().await });
        let mut read = reads.buffered(WINDOW).try_collect::<Vec<_>>().await?.into_iter();
        let sample = |(record, plan): (&u64, &ReadPlan)| {
            let mut bytes: Vec<Bytes> = read.by_ref().take(plan.extents.len()).collect();
            if plan.by_dataset.is_some() {
                let none = || Err(Error::new(infeed_core::error::ErrorKind::Internal, "the dataset brought no bytes"));
                bytes.extend(brought.next().unwrap_or_else(none)?);
            }
            bytes.extend(plan.shared.iter().filter_map(|part| self.shared.get(&part.key).cloned()));
            dataset.parse(*record, plan, &bytes).map_err(|e| e.at_record(*record))
        };
        records.iter().zip(&plans).map(sample).collect()
    }
}

/// Reads `records`, which ascend, and calls `each` with each number and its content.
pub(crate) async fn look(
    dataset: &dyn Dataset,
    records: &[u64],
    mut each: impl FnMut(u64, &Sample) -> Result<()> + Send,
) -> Result<()> {
    let mut look = Look::default();
    for window in records.chunks(WINDOW) {
        let samples = look.at(dataset, window).await?;
        window.iter().zip(&samples).try_for_each(|(record, sample)| each(*record, sample))?;
    }
    Ok(())
}

/// The number of items of a list, of images or of texts in each record, or the bytes of a text, for batches by
/// [length](crate::sampler::LengthSampler).
///
/// Reads every record whole: open only that [column](super::Open::columns). Blocks if [`Dataset::read`] does.
///
/// ```
/// # futures::executor::block_on(async {
/// use infeed::dataset::{MemoryDataset, lengths};
///
/// let dataset = MemoryDataset::builder().lists("tokens", vec![vec![5i32, 9, 2], vec![7, 1]]).build()?;
/// assert_eq!(lengths(&dataset, "tokens").await?, [3, 2]);
/// # Ok::<(), infeed::Error>(()) }).unwrap();
/// ```
///
/// # Errors
/// `Config` for a field that is neither a list of any kind nor text or bytes; otherwise the error of reading a record.
pub async fn lengths(dataset: &dyn Dataset, field: &str) -> Result<Vec<u64>> {
    let fields = &dataset.schema().fields;
    let found = fields.iter().enumerate().find(|(_, of)| of.name == field);
    let each = found.and_then(|(at, of)| match &of.kind {
        kind @ FieldKind::List { .. } => Some((at, kind.item_bytes()?)),
        FieldKind::Text { .. } | FieldKind::Bytes { .. } | FieldKind::Images { .. } | FieldKind::Texts { .. } => {
            Some((at, 1))
        }
        _ => None,
    });
    let Some((at, each)) = each else {
        let names: Vec<_> = fields.iter().map(|of| format!("{} ({})", of.name, of.kind.name())).collect();
        return Err(Error::config(format!("there is no list or text `{field}`"))
            .with_hint(format!("there are {}", names.join(", "))));
    };
    let mut lengths = Vec::new();
    let records: Vec<u64> = (0..dataset.len()).collect();
    look(dataset, &records, |_, sample| {
        lengths.extend(sample.values.get(at).and_then(|value| match value {
            Value::List(bytes) | Value::Bytes(bytes) => Some((bytes.len() / each) as u64),
            Value::Images(images) => Some(images.len() as u64),
            Value::Texts(texts) => Some(texts.len() as u64),
            _ => None,
        }));
        Ok(())
    })
    .await?;
    Ok(lengths)
}

/// The field `label` of all records, for weights that depend on classes.
///
/// If the dataset [knows](Dataset::known) its labels, this reads nothing. Otherwise it reads every record whole; for
/// shards, open only the [column](super::Open::columns) `label`. Blocks if [`Dataset::read`] does.
///
/// ```
/// # futures::executor::block_on(async {
/// let dataset = infeed::open("synthetic://?count=5&classes=2").await?;
/// assert_eq!(infeed::dataset::labels(&*dataset).await?, [0, 1, 0, 1, 0]);
/// # Ok::<(), infeed::Error>(()) }).unwrap();
/// ```
///
/// # Errors
/// `Config` for a dataset without labels; otherwise the error of reading a record.
pub async fn labels(dataset: &dyn Dataset) -> Result<Vec<i64>> {
    let fields = &dataset.schema().fields;
    let Some(at) = fields.iter().position(|field| field.name == "label" && field.kind == FieldKind::Label) else {
        let names: Vec<_> = fields.iter().map(|field| field.name.as_str()).collect();
        return Err(Error::config(format!("there is no field `label` of class indices among {}", names.join(", ")))
            .with_hint("open a dataset with labels, or give a file with labels when opening it"));
    };
    let known = |record| match dataset.known(record, "label") {
        Some(Value::Label(label)) => Some(label),
        _ => None,
    };
    if let Some(labels) = (0..dataset.len()).map(known).collect() {
        return Ok(labels);
    }
    let mut labels = Vec::new();
    let records: Vec<u64> = (0..dataset.len()).collect();
    look(dataset, &records, |_, sample| {
        if let Some(Value::Label(label)) = sample.values.get(at) {
            labels.push(*label);
        }
        Ok(())
    })
    .await?;
    Ok(labels)
}
