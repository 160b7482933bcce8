//! A selection of records of a dataset, and a random split in two.

use std::{ops::Range, sync::Arc};

use infeed_core::{
    error::{Error, Result},
    fingerprint::Fingerprint,
    random::hash64,
};

use super::{
    record::Dataset,
    wrapped::{Wrap, Wrapped},
};

/// Records of a dataset, in an order: a range, or a list (which may name a record twice).
///
/// ```
/// # futures::executor::block_on(async {
/// use infeed::dataset::{Records, subset};
///
/// let dataset = infeed::open("synthetic://?count=50&classes=5").await?;
/// // A fold of a cross-validation: every tenth record, and all others.
/// let (val, train): (Vec<u64>, Vec<u64>) = (0..50).partition(|record| record % 10 == 3);
/// let val = subset(dataset.clone(), Records::List(val))?;
/// let train = subset(dataset, Records::List(train))?;
/// assert_eq!((val.len(), train.len()), (5, 45));
/// # Ok::<(), infeed::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Records {
    /// Consecutive records.
    Range(Range<u64>),
    /// These records, in this order.
    List(Vec<u64>),
}

impl From<Range<u64>> for Records {
    fn from(range: Range<u64>) -> Self {
        Self::Range(range)
    }
}

impl From<Vec<u64>> for Records {
    fn from(list: Vec<u64>) -> Self {
        Self::List(list)
    }
}

impl Records {
    fn len(&self) -> u64 {
        match self {
            Self::Range(range) => range.end.saturating_sub(range.start),
            Self::List(list) => list.len() as u64,
        }
    }

    fn get(&self, record: u64) -> Option<u64> {
        match self {
            Self::Range(range) => range.start.checked_add(record).filter(|r| range.contains(r)),
            Self::List(list) => usize::try_from(record).ok().and_then(|i| list.get(i).copied()),
        }
    }
}

/// The given records of `dataset`, numbered from 0. Messages name the new numbers.
///
/// ```
/// # futures::executor::block_on(async {
/// let dataset = infeed::open("synthetic://?count=50&classes=5").await?;
/// let first = infeed::dataset::subset(dataset.clone(), 0..10)?;
/// let these = infeed::dataset::subset(dataset, vec![40, 7, 7])?;
/// assert_eq!((first.len(), these.len()), (10, 3));
/// # Ok::<(), infeed::Error>(()) }).unwrap();
/// ```
///
/// # Errors
/// `Config` for a record that the dataset does not have.
pub fn subset(dataset: Arc<dyn Dataset>, records: impl Into<Records>) -> Result<Arc<dyn Dataset>> {
    let records = records.into();
    let len = dataset.len();
    let beyond = match &records {
        Records::Range(range) => (range.end > len).then_some(range.end),
        Records::List(list) => list.iter().copied().find(|r| *r >= len),
    };
    if let Some(beyond) = beyond {
        return Err(Error::config(format!("a subset up to {beyond} of a dataset of {len} records")));
    }
    Ok(Subset::of(dataset, records))
}

/// Splits `dataset` at random: `fraction` of its records (rounded) go to the first part, the others to the second, as
/// in `let (train, val) = split(dataset, 0.9, seed)?`.
///
/// Each record is in exactly one part, and the parts keep the old order. The same seed gives the same split on any
/// machine.
///
/// ```
/// # futures::executor::block_on(async {
/// let dataset = infeed::open("synthetic://?count=50&classes=5").await?;
/// let (train, val) = infeed::dataset::split(dataset, 0.9, 42)?;
/// assert_eq!((train.len(), val.len()), (45, 5));
/// # Ok::<(), infeed::Error>(()) }).unwrap();
/// ```
///
/// # Errors
/// `Config` if the fraction leaves one part empty.
pub fn split(dataset: Arc<dyn Dataset>, fraction: f64, seed: u64) -> Result<(Arc<dyn Dataset>, Arc<dyn Dataset>)> {
    let len = dataset.len();
    let first = (len as f64 * fraction).round();
    if !(first >= 1.0 && first <= len as f64 - 1.0) {
        let what = format!("a fraction of {fraction} leaves one part of {len} records empty");
        return Err(Error::config(what).with_hint("use one between 0 and 1"));
    }
    // A random permutation by the order of hashes. Only the position of the cut matters, so neither part is sorted by
    // hash.
    let key = hash64(seed ^ 0x5117);
    let mut order: Vec<(u64, u64)> = (0..len).map(|record| (hash64(key ^ hash64(record)), record)).collect();
    order.select_nth_unstable(first as usize);
    let part = |part: &[(u64, u64)]| {
        let mut records: Vec<u64> = part.iter().map(|(_, record)| *record).collect();
        records.sort_unstable();
        Subset::of(Arc::clone(&dataset), Records::List(records))
    };
    let (train, val) = order.split_at(first as usize);
    Ok((part(train), part(val)))
}

/// See [`subset`].
#[derive(Debug)]
struct Subset {
    records: Records,
    groups: Option<Arc<[u64]>>,
    parts: Option<Arc<[u64]>>,
    fingerprint: Fingerprint,
}

impl Subset {
    /// The `records`, which are all within the dataset.
    fn of(inner: Arc<dyn Dataset>, records: Records) -> Arc<dyn Dataset> {
        let print = Fingerprint::of("subset").part(inner.fingerprint()).number(records.len());
        let fingerprint = match &records {
            Records::Range(range) => print.number(range.start).finish(),
            Records::List(list) => list.iter().fold(print, |print, record| print.number(*record)).finish(),
        };
        let groups = inner.groups().and_then(|groups| regroup(&groups, &records));
        let parts = inner.parts().and_then(|parts| repart(&parts, &records));
        Arc::new(Wrapped::new(inner, Self { records, groups, parts, fingerprint }))
    }
}

/// The first chosen record of each group; `None` if the records jump back and forth, so that groups do not stay
/// together.
fn regroup(groups: &[u64], records: &Records) -> Option<Arc<[u64]>> {
    match records {
        Records::Range(range) => {
            let inside = groups.iter().filter(|g| range.contains(g)).map(|g| g - range.start).filter(|g| *g > 0);
            Some([0].into_iter().chain(inside).collect())
        }
        Records::List(list) => {
            if !list.is_sorted() {
                return None;
            }
            let group = |record: u64| groups.partition_point(|g| *g <= record);
            let mut starts = vec![0];
            let changes = list.windows(2).zip(1..).filter(|(w, _)| group(w[0]) != group(w[1]));
            starts.extend(changes.map(|(_, at)| at));
            Some(starts.into())
        }
    }
}

/// The first chosen record of each part, or where the next part begins if none of its records is chosen; `None` if the
/// records of a part do not stay together in the order of the parts.
fn repart(parts: &[u64], records: &Records) -> Option<Arc<[u64]>> {
    match records {
        Records::Range(range) => {
            let end = range.end.max(range.start);
            Some(parts.iter().map(|part| (*part).clamp(range.start, end) - range.start).collect())
        }
        Records::List(list) => {
            let part = |record: &u64| parts.partition_point(|start| start <= record);
            let together = list.is_sorted_by_key(part);
            together.then(|| parts.iter().map(|start| list.partition_point(|r| part(r) < part(start)) as u64).collect())
        }
    }
}

impl Wrap for Subset {
    fn len(&self, _inner: &dyn Dataset) -> u64 {
        self.records.len()
    }

    fn renumber(&self, record: u64) -> Option<u64> {
        self.records.get(record)
    }

    fn own_bytes(&self) -> u64 {
        if let Records::List(list) = &self.records { size_of_val(&**list) as u64 } else { 0 }
    }

    fn groups(&self, _inner: &dyn Dataset) -> Option<Arc<[u64]>> {
        self.groups.clone()
    }

    fn parts(&self, _inner: &dyn Dataset) -> Option<Arc<[u64]>> {
        self.parts.clone()
    }

    fn fingerprint(&self, _inner: &dyn Dataset) -> Fingerprint {
        self.fingerprint
    }
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;
    use crate::{MemoryDataset, ReadPlan, Value, concat, dataset_contract};

    fn numbered(n: i64) -> Arc<dyn Dataset> {
        Arc::new(MemoryDataset::builder().labels((0..n).collect()).build().unwrap())
    }

    fn labels(dataset: &dyn Dataset) -> Vec<i64> {
        let label = |r| match dataset.parse(r, &ReadPlan::default(), &[]).unwrap().values[0] {
            Value::Label(label) => label,
            ref other => panic!("{other:?}"),
        };
        (0..dataset.len()).map(label).collect()
    }

    #[test]
    fn a_subset_has_its_records_in_its_order() {
        let range = subset(numbered(10), 3..6).unwrap();
        assert_eq!(labels(&*range), [3, 4, 5]);
        let list = subset(numbered(10), vec![9, 0, 9]).unwrap();
        assert_eq!(labels(&*list), [9, 0, 9]);
        for dataset in [range, list, subset(numbered(10), 4..4).unwrap()] {
            block_on(dataset_contract(&*dataset)).unwrap();
        }
        assert!(subset(numbered(10), 5..11).unwrap_err().to_string().contains("11 of a dataset of 10"));
        assert!(subset(numbered(10), vec![10]).is_err());
        assert_ne!(
            subset(numbered(10), 0..5).unwrap().fingerprint(),
            subset(numbered(10), 1..6).unwrap().fingerprint()
        );
    }

    #[test]
    fn a_split_is_disjoint_covers_all_and_depends_on_the_seed_alone() {
        for (n, fraction) in [(1000, 0.8), (10, 0.05), (3, 0.5), (1000, 0.999)] {
            let (train, val) = split(numbered(n), fraction, 7).unwrap();
            let (a, b) = (labels(&*train), labels(&*val));
            assert_eq!(a.len(), (n as f64 * fraction).round() as usize);
            assert!(a.is_sorted() && b.is_sorted());
            let mut all = [a.clone(), b].concat();
            all.sort_unstable();
            assert_eq!(all, (0..n).collect::<Vec<_>>());
            assert_eq!(a, labels(&*split(numbered(n), fraction, 7).unwrap().0));
        }
        let first = |seed| labels(&*split(numbered(1000), 0.5, seed).unwrap().0);
        let common = first(1).iter().filter(|r| first(2).contains(r)).count();
        assert!((200..300).contains(&common), "{common} of 500 in common");
        for fraction in [0.0, 1.0, -1.0, 2.0, f64::NAN, 0.0001] {
            assert!(split(numbered(1000), fraction, 0).is_err(), "{fraction}");
        }
    }

    #[test]
    fn groups_follow_their_records() {
        let groups = [0, 4, 8];
        assert_eq!(&regroup(&groups, &(3..9).into()).unwrap()[..], [0, 1, 5]);
        assert_eq!(&regroup(&groups, &(4..6).into()).unwrap()[..], [0]);
        assert_eq!(&regroup(&groups, &vec![1, 3, 5, 9].into()).unwrap()[..], [0, 2, 3]);
        assert!(regroup(&groups, &vec![5, 1].into()).is_none());
    }

    #[test]
    fn parts_follow_their_records() {
        let parts = |records: Records| {
            let all = concat([numbered(4), numbered(0), numbered(3), numbered(3)]).unwrap();
            assert_eq!(&all.parts().unwrap()[..], [0, 4, 4, 7]);
            subset(all, records).unwrap().parts().map(|parts| parts.to_vec())
        };
        assert_eq!(parts((2..8).into()), Some(vec![0, 2, 2, 5]));
        assert_eq!(parts((5..6).into()), Some(vec![0, 0, 0, 1]));
        assert_eq!(parts(vec![1, 3, 8].into()), Some(vec![0, 2, 2, 2]));
        // In the order of the parts, whatever the order within each.
        assert_eq!(parts(vec![3, 1, 1, 5, 9, 7].into()), Some(vec![0, 3, 3, 4]));
        assert_eq!(parts(vec![8, 1].into()), None);
    }
}
