//! Several datasets as one.

use std::{fmt::Write, num::NonZeroUsize, sync::Arc};

use bytes::Bytes;
use infeed_core::{
    error::{Error, Result},
    fingerprint::Fingerprint,
    random::SampleRng,
    types::DType,
};

use super::{
    record::{Dataset, ReadPlan, Sample, SharedBytes, Value, read_renamed},
    schema::{Field, FieldKind, Schema},
    sniff::wider,
    table::Starts,
    volume::Narrow,
};

/// The records of all `datasets`, one after another.
///
/// ```
/// use infeed::{dataset::concat, open};
///
/// # futures::executor::block_on(async {
/// let first = open("synthetic://?count=50&classes=5").await?;
/// let second = open("synthetic://?count=30&classes=5&seed=1").await?;
/// let both = concat([first, second])?;
/// assert_eq!((both.len(), both.parts().as_deref()), (80, Some(&[0, 50][..])));
/// # Ok::<(), infeed::Error>(()) }).unwrap();
/// ```
///
/// # Errors
/// `Config` if there are no datasets, or if their fields or classes differ. If classes differ, open the later datasets
/// with the classes of the first.
pub fn concat(datasets: impl IntoIterator<Item = Arc<dyn Dataset>>) -> Result<Arc<dyn Dataset>> {
    let parts: Vec<_> = datasets.into_iter().collect();
    let Some(first) = parts.first() else {
        return Err(Error::config("no datasets to put together"));
    };
    for (i, part) in parts.iter().enumerate().skip(1) {
        if let Some(difference) = difference(first.schema(), part.schema()) {
            return Err(Error::config(format!("dataset {i} does not fit dataset 0: {difference}")));
        }
    }
    let mut schema = first.schema().clone();
    for part in &parts[1..] {
        for (field, other) in schema.fields.iter_mut().zip(&part.schema().fields) {
            if let (FieldKind::Bytes { most }, FieldKind::Bytes { most: other })
            | (FieldKind::Text { most }, FieldKind::Text { most: other })
            | (FieldKind::Texts { most }, FieldKind::Texts { most: other })
            | (FieldKind::List { most, .. }, FieldKind::List { most: other, .. })
            | (FieldKind::Images { most, .. }, FieldKind::Images { most: other, .. })
            | (FieldKind::Instances { most, .. }, FieldKind::Instances { most: other, .. }) =
                (&mut field.kind, &other.kind)
            {
                *most = (*most).max(*other);
            }
            if let (FieldKind::Images { usual, .. }, FieldKind::Images { usual: other, .. }) =
                (&mut field.kind, &other.kind)
            {
                *usual = (*usual).max(*other);
            }
            if let (FieldKind::Image { dtype: Some(dtype), .. }, FieldKind::Image { dtype: Some(other), .. }) =
                (&mut field.kind, &other.kind)
            {
                *dtype = wider(*dtype, *other);
            }
        }
    }
    let starts = Starts::of(parts.iter().map(|part| part.len()));
    schema.upright = parts.iter().all(|part| part.schema().upright);
    let starts = starts.ok_or_else(|| Error::config("more than 2^64 records"))?;
    // Names of index fields, such as patients, are kept only if all parts have the same.
    let is_same = |names: &mut (String, Arc<[String]>)| parts.iter().all(|part| part.schema().names.contains(names));
    for (field, _) in schema.names.extract_if(.., |names| !is_same(names)) {
        tracing::warn!(field, "the parts have other names for the values of a field: one number means another in each");
    }
    Ok(Arc::new(Concat { parts, starts, schema }))
}

/// The difference between two schemas in words.
pub fn difference(a: &Schema, b: &Schema) -> Option<String> {
    let names = |s: &Schema| s.fields.iter().map(|f| f.name.clone()).collect::<Vec<_>>();
    if names(a) != names(b) {
        return Some(format!("its fields are {}, not {}", names(b).join(", "), names(a).join(", ")));
    }
    // Fields of bytes, texts and lists are alike whatever their longest value is; so are images and instances, whatever
    // their number.
    let alike = |a: &Field, b: &Field| match (&a.kind, &b.kind) {
        // Labels of masks keep their values in a larger type.
        (
            FieldKind::Image { channels, size, dtype: Some(wide) },
            FieldKind::Image { channels: c, size: s, dtype: Some(other) },
        ) if a.mask && b.mask => {
            (channels, size) == (c, s) && (wide == other || *wide == DType::U8 || *other == DType::U8)
        }
        (FieldKind::Bytes { .. }, FieldKind::Bytes { .. })
        | (FieldKind::Text { .. }, FieldKind::Text { .. })
        | (FieldKind::Texts { .. }, FieldKind::Texts { .. }) => true,
        (of @ FieldKind::Images { .. }, other @ FieldKind::Images { .. }) => of.each_image() == other.each_image(),
        (FieldKind::List { dtype: a, item: x, .. }, FieldKind::List { dtype: b, item: y, .. }) => (a, x) == (b, y),
        (FieldKind::Instances { masks: a, keypoints: x, .. }, FieldKind::Instances { masks: b, keypoints: y, .. }) => {
            (a, x) == (b, y)
        }
        (a, b) => a == b,
    };
    if let Some((a, b)) = a.fields.iter().zip(&b.fields).find(|(a, b)| !alike(a, b)) {
        return Some(format!("`{}` is {:?}, not {:?}", a.name, b.kind, a.kind));
    }
    // A flip swaps left and right points by their names.
    let points = |schema: &Schema| schema.names_of("keypoints").map(|names| names.join(", "));
    if points(a) != points(b) {
        let [a, b] = [a, b].map(|schema| points(schema).unwrap_or_else(|| "not named".to_owned()));
        return Some(format!("its key points are {b}; the others' are {a}"));
    }
    match (&a.classes, &b.classes) {
        (Some(a), Some(b)) if a != b => {
            let mut text = format!("it has {} classes, not {}", b.len(), a.len());
            if let Some((i, (a, b))) = a.iter().zip(b.iter()).enumerate().find(|(_, (a, b))| a != b) {
                let _ = write!(text, "; class {i} is `{b}`, not `{a}`");
            }
            Some(text)
        }
        (Some(_), None) => Some("it has no class names".to_owned()),
        (None, Some(_)) => Some("it has class names".to_owned()),
        _ => None,
    }
}

/// See [`concat()`].
#[derive(Debug)]
struct Concat {
    parts: Vec<Arc<dyn Dataset>>,
    starts: Starts,
    schema: Schema,
}

impl Concat {
    /// The index of the part, the part, and the record's number in it.
    fn child(&self, record: u64) -> Result<(usize, &dyn Dataset, u64)> {
        let (at, record) = self.starts.find(record)?;
        Ok((at, &*self.parts[at], record))
    }
}

#[deny(clippy::missing_trait_methods, reason = "a method that asks no part changes the dataset in silence")]
impl Dataset for Concat {
    fn len(&self) -> u64 {
        self.starts.len()
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn format(&self) -> &str {
        let first = self.parts[0].format();
        if self.parts.iter().all(|p| p.format() == first) { first } else { "concat" }
    }

    fn plan(&self, record: u64, rng: SampleRng) -> Result<ReadPlan> {
        let (at, part, child) = self.child(record)?;
        let mut plan = part.plan(child, rng).map_err(|e| e.rename_record(record))?;
        // Each part numbers its shared parts from 0.
        for shared in &mut plan.shared {
            shared.key = shared.key * self.parts.len() as u64 + at as u64;
        }
        Ok(plan)
    }

    fn parse(&self, record: u64, plan: &ReadPlan, bytes: &[Bytes]) -> Result<Sample> {
        let (_, part, child) = self.child(record)?;
        part.parse(child, plan, bytes).map_err(|e| e.rename_record(record))
    }

    /// Consecutive records of one part are read together.
    fn read(&self, records: &[u64]) -> Vec<Result<Vec<Bytes>>> {
        let found = match records.iter().map(|record| self.starts.find(*record)).collect::<Result<Vec<_>>>() {
            Ok(found) => found,
            Err(error) => return records.iter().map(|_| Err(error.clone())).collect(),
        };
        let mut read = Vec::with_capacity(records.len());
        for run in found.chunk_by(|a, b| a.0 == b.0) {
            let children: Vec<u64> = run.iter().map(|(_, child)| *child).collect();
            let records = &records[read.len()..][..run.len()];
            let more = read_renamed(&*self.parts[run[0].0], &children, records);
            let short = more.len() < run.len();
            read.extend(more);
            if short {
                // Otherwise the results of the next run would be taken for these records.
                break;
            }
        }
        read
    }

    fn concurrent_reads(&self) -> Option<NonZeroUsize> {
        self.parts.iter().filter_map(|part| part.concurrent_reads()).max()
    }

    fn decode_shared(&self, key: u64, bytes: &[Bytes]) -> Result<Bytes> {
        let parts = self.parts.len() as u64;
        self.parts[(key % parts) as usize].decode_shared(key / parts, bytes)
    }

    fn shared_bytes(&self) -> SharedBytes {
        let parts = self.parts.iter().map(|part| part.shared_bytes());
        parts.fold(SharedBytes::default(), |sum, part| SharedBytes {
            encoded: sum.encoded.max(part.encoded),
            one: sum.one.max(part.one),
            all: sum.all.saturating_add(part.all),
        })
    }

    fn narrowed(&self, to: &Arc<dyn Narrow>) -> Option<Arc<dyn Dataset>> {
        let narrow = |part: &Arc<dyn Dataset>| part.narrowed(to).unwrap_or_else(|| Arc::clone(part));
        let parts = self.parts.iter().map(narrow).collect();
        Some(Arc::new(Self { parts, starts: self.starts.clone(), schema: self.schema.clone() }))
    }

    fn image_size(&self, record: u64) -> Option<[u32; 2]> {
        let (_, part, child) = self.child(record).ok()?;
        part.image_size(child)
    }

    fn known(&self, record: u64, field: &str) -> Option<Value> {
        let (_, part, child) = self.child(record).ok()?;
        part.known(child, field)
    }

    fn object(&self, record: u64) -> String {
        self.child(record).map_or_else(|_| "concat".to_owned(), |(_, part, child)| part.object(child))
    }

    fn object_of(&self, record: u64, field: &str) -> String {
        self.child(record).map_or_else(|_| "concat".to_owned(), |(_, part, child)| part.object_of(child, field))
    }

    fn needs_fetch(&self) -> bool {
        self.parts.iter().any(|part| part.needs_fetch())
    }

    fn largest_read(&self) -> u64 {
        self.parts.iter().map(|p| p.largest_read()).max().unwrap_or(0)
    }

    fn usual_read(&self) -> u64 {
        self.parts.iter().map(|p| p.usual_read()).max().unwrap_or(0)
    }

    fn usual_varying(&self) -> Option<u64> {
        let of_parts: Option<Vec<u64>> = self.parts.iter().map(|p| p.usual_varying()).collect();
        of_parts?.into_iter().max()
    }

    fn resident_bytes(&self) -> u64 {
        self.parts.iter().map(|p| p.resident_bytes()).sum()
    }

    /// A part without groups counts as one group, because its records have no better neighbours.
    fn groups(&self) -> Option<Arc<[u64]>> {
        let groups: Vec<_> = self.parts.iter().map(|p| p.groups()).collect();
        if groups.iter().all(Option::is_none) {
            return None;
        }
        let mut starts = Vec::new();
        for (i, groups) in groups.iter().enumerate().filter(|(i, _)| !self.parts[*i].is_empty()) {
            let start = self.starts.start_of(i);
            starts.extend(groups.as_deref().unwrap_or(&[0]).iter().map(|g| start + g));
        }
        Some(starts.into())
    }

    fn parts(&self) -> Option<Arc<[u64]>> {
        Some((0..self.parts.len()).map(|at| self.starts.start_of(at)).collect())
    }

    fn fingerprint(&self) -> Fingerprint {
        let print = Fingerprint::of("concat").number(self.parts.len() as u64);
        self.parts.iter().fold(print, |print, part| print.part(part.fingerprint())).finish()
    }
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;
    use crate::{MemoryDataset, SyntheticDataset, dataset_contract, subset};

    fn labels(labels: &[i64], classes: &[&str]) -> Arc<dyn Dataset> {
        let builder = MemoryDataset::builder().labels(labels.to_vec());
        let classes: Vec<String> = classes.iter().map(|c| (*c).to_owned()).collect();
        Arc::new(if classes.is_empty() { builder } else { builder.classes(classes) }.build().unwrap())
    }

    #[test]
    fn records_follow_one_another() {
        let all = concat([labels(&[1, 2], &[]), labels(&[], &[]), labels(&[3], &[])]).unwrap();
        let label = |r| match all.parse(r, &ReadPlan::default(), &[]).unwrap().values[0] {
            Value::Label(label) => label,
            ref other => panic!("{other:?}"),
        };
        assert_eq!((0..all.len()).map(label).collect::<Vec<_>>(), [1, 2, 3]);
        block_on(dataset_contract(&*all)).unwrap();
        assert_eq!(&all.parts().unwrap()[..], [0, 2, 2]);
        assert!(concat([]).is_err());
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let synthetic = || -> Arc<dyn Dataset> { Arc::new(SyntheticDataset::new(3, 4, 4, 2).unwrap()) };
        let larger: Arc<dyn Dataset> = Arc::new(SyntheticDataset::new(3, 4, 5, 2).unwrap());
        for (a, b, says) in [
            (synthetic(), labels(&[1], &[]), "fields are label, not image, label"),
            (synthetic(), larger, "(4, 5)"),
            (labels(&[0], &["cat", "dog"]), labels(&[0], &["cat", "eel"]), "class 1 is `eel`, not `dog`"),
            (labels(&[0], &["cat"]), labels(&[0], &["cat", "dog"]), "2 classes, not 1"),
            (labels(&[0], &["cat"]), labels(&[0], &[]), "no class names"),
        ] {
            let error = concat([a, b]).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        }
    }

    /// Fails for each record, naming it.
    #[derive(Debug)]
    struct Failing(Schema);

    impl Dataset for Failing {
        fn len(&self) -> u64 {
            3
        }
        fn schema(&self) -> &Schema {
            &self.0
        }
        fn format(&self) -> &str {
            "failing"
        }
        fn plan(&self, _record: u64, _rng: SampleRng) -> Result<ReadPlan> {
            Ok(ReadPlan::default())
        }
        fn parse(&self, record: u64, _plan: &ReadPlan, _bytes: &[Bytes]) -> Result<Sample> {
            Err(Error::corrupt("bad").at_record(record))
        }
        fn object(&self, record: u64) -> String {
            record.to_string()
        }
        fn largest_read(&self) -> u64 {
            0
        }
        fn groups(&self) -> Option<Arc<[u64]>> {
            Some(Arc::new([0, 2]))
        }
        fn fingerprint(&self) -> Fingerprint {
            Fingerprint(1)
        }
    }

    #[test]
    fn errors_name_the_record_of_the_whole() {
        let part = || -> Arc<dyn Dataset> { Arc::new(Failing(Schema::new(vec![]))) };
        let all = concat([part(), part()]).unwrap();
        let inner = subset(Arc::clone(&all), vec![0, 5]).unwrap();
        assert_eq!(all.parse(5, &ReadPlan::default(), &[]).unwrap_err().context().record, Some(5));
        assert_eq!(all.object(5), "2");
        assert_eq!(inner.parse(1, &ReadPlan::default(), &[]).unwrap_err().context().record, Some(1));
        assert_eq!(&all.groups().unwrap()[..], [0, 2, 3, 5]);
        assert_eq!(&inner.groups().unwrap()[..], [0, 1]);
        assert!(block_on(dataset_contract(&*all)).is_err());
    }
}
