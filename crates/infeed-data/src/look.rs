//! Reads records one after another while a dataset is opened, for filters and weights.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use infeed_core::{
    error::{Error, Result},
    random::SampleRng,
};
use infeed_store::{Extent, Merged, merge, merge_within};

use super::{
    passes::NEAR,
    record::{Dataset, ReadPlan, Sample, Value},
    schema::FieldKind,
};

/// Records that are read at the same time, at most, and their bytes: enough to hide the latency of a store, few enough
/// for memory. Small records that are near each other are read together.
const RECORDS: usize = if cfg!(test) { 7 } else { 4096 };
const BYTES: u64 = if cfg!(test) { 1 << 10 } else { 64 << 20 };
/// Reads at the same time.
const READS: usize = 64;

/// Reads records in ascending order.
#[derive(Debug)]
struct Look<'a> {
    dataset: &'a dyn Dataset,
    /// Decoded shared parts of the previous window; the next one often uses them too.
    shared: HashMap<u64, Bytes>,
}

impl Look<'_> {
    /// The plans of the first of these records, as many as are read at the same time.
    fn window(&self, records: &[u64]) -> Result<Vec<ReadPlan>> {
        let (mut plans, mut bytes, mut parts) = (Vec::new(), 0_u64, HashSet::new());
        for record in records.iter().take(RECORDS) {
            let plan = self.dataset.plan(*record, SampleRng::new(0, 0, *record))?;
            let new = plan.shared.iter().filter(|part| parts.insert(part.key));
            let own =
                new.map(|part| part.bytes.saturating_add(part.encoded())).fold(plan.len_bytes(), u64::saturating_add);
            bytes = bytes.saturating_add(own);
            if bytes > BYTES && !plans.is_empty() {
                break;
            }
            plans.push(plan);
        }
        Ok(plans)
    }

    async fn at(&mut self, records: &[u64], plans: &[ReadPlan]) -> Result<Vec<Sample>> {
        let mut used = HashMap::new();
        for part in plans.iter().flat_map(|plan| &plan.shared) {
            if used.contains_key(&part.key) {
                continue;
            }
            let decoded = match self.shared.remove(&part.key) {
                Some(decoded) => decoded,
                None => self.dataset.decode_shared(part.key, &read(part.extents.to_vec()).await?)?,
            };
            used.insert(part.key, decoded);
        }
        self.shared = used;
        let by_dataset: Vec<u64> = records
            .iter()
            .zip(plans)
            .filter(|(_, plan)| plan.by_dataset.is_some())
            .map(|(record, _)| *record)
            .collect();
        let mut brought = if by_dataset.is_empty() { Vec::new() } else { self.dataset.read(&by_dataset) }.into_iter();
        let mut read = read(plans.iter().flat_map(|plan| plan.extents.iter().cloned()).collect()).await?.into_iter();
        let sample = |(record, plan): (&u64, &ReadPlan)| {
            let mut bytes: Vec<Bytes> = read.by_ref().take(plan.extents.len()).collect();
            if plan.by_dataset.is_some() {
                let none = || Err(Error::new(infeed_core::error::ErrorKind::Internal, "the dataset brought no bytes"));
                bytes.extend(brought.next().unwrap_or_else(none)?);
            }
            bytes.extend(plan.shared.iter().filter_map(|part| self.shared.get(&part.key).cloned()));
            self.dataset.parse(*record, plan, &bytes).map_err(|e| e.at_record(*record))
        };
        records.iter().zip(plans).map(sample).collect()
    }
}

/// The bytes of each extent. Those near each other are read together.
async fn read(extents: Vec<Extent>) -> Result<Vec<Bytes>> {
    let mut bytes = vec![Bytes::new(); extents.len()];
    let is_local = extents.iter().all(|extent| extent.source.reads_inline());
    let merged = if is_local { merge_within(extents, NEAR) } else { merge(extents) };
    let reads = stream::iter(merged).map(|Merged { extent, parts }| async move { Ok((extent.read().await?, parts)) });
    let mut reads = reads.buffer_unordered(READS);
    while let Some((read, parts)) = reads.try_next().await? {
        parts.into_iter().for_each(|(at, range)| bytes[at] = read.slice(range));
    }
    Ok(bytes)
}

/// Reads `records`, which ascend, and calls `each` with each number and its content.
pub(crate) async fn look(
    dataset: &dyn Dataset,
    records: &[u64],
    mut each: impl FnMut(u64, &Sample) -> Result<()> + Send,
) -> Result<()> {
    let mut look = Look { dataset, shared: HashMap::new() };
    let mut rest = records;
    while !rest.is_empty() {
        let plans = look.window(rest)?;
        let (window, after) = rest.split_at(plans.len());
        let samples = look.at(window, &plans).await?;
        window.iter().zip(&samples).try_for_each(|(record, sample)| each(*record, sample))?;
        rest = after;
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

#[cfg(test)]
mod tests {
    use std::{future::IntoFuture, sync::Arc};

    use futures::executor::block_on;
    use infeed_store::Source;
    use object_store::{ObjectStoreExt, memory::InMemory, path::Path};
    use proptest::prelude::*;

    use super::*;
    use crate::{Open, read_one};

    fn holding(files: &[(String, Vec<u8>)]) -> Source {
        let store = InMemory::new();
        for (name, bytes) in files {
            block_on(store.put(&Path::from(name.as_str()), bytes.clone().into())).unwrap();
        }
        Source::from_store(Arc::new(store), Path::default(), "test://look")
    }

    proptest! {
        #[test]
        fn records_are_what_they_are_one_by_one_whatever_is_read_together(
            sizes in prop::collection::vec(0usize..2000, 1..40), skip in 1usize..4,
        ) {
            let file = |(i, size): (usize, &usize)| (format!("{i:03}.png"), vec![i as u8; *size]);
            let files: Vec<_> = sizes.iter().enumerate().map(file).collect();
            let dataset = block_on(Open::of_source(holding(&files), &crate::HERE).into_future()).unwrap();
            let records: Vec<u64> = (0..dataset.len()).step_by(skip).collect();
            let mut found = Vec::new();
            block_on(look(&*dataset, &records, |record, sample| {
                found.push((record, format!("{sample:?}")));
                Ok(())
            })).unwrap();
            let one = |record: &u64| (*record, format!("{:?}", read_one::read(&*dataset, *record).unwrap()));
            prop_assert_eq!(found, records.iter().map(one).collect::<Vec<_>>());
        }

        #[test]
        fn bytes_are_those_of_their_extents(
            ranges in prop::collection::vec((0u64..200_000, 0u64..3_000), 0..40), inline in any::<bool>(),
        ) {
            let bytes: Vec<u8> = (0..203_000_u32).map(|i| (i * 7 + i / 251) as u8).collect();
            let source = holding(&[("shard".to_owned(), bytes.clone())]);
            let source = if inline { source.inline() } else { source };
            let extents = ranges.iter().map(|(at, len)| Extent::part(&source, "shard", *at..at + len)).collect();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let read = runtime.block_on(read(extents)).unwrap();
            let want = ranges.iter().map(|(at, len)| &bytes[*at as usize..(at + len) as usize]);
            prop_assert!(read.iter().map(|bytes| &bytes[..]).eq(want));
        }
    }
}
