//! An order given as a list of records.
#![forbid(unsafe_code)]

use std::{fmt, sync::Arc};

use infeed_core::{
    error::{Error, Result},
    fingerprint::Fingerprint,
};

use super::{base::Sampler, batches::Batches};

/// The records of an epoch as a list: any records, any number of times, in any order, such as torch's samplers and
/// batch samplers give.
///
/// Every epoch has the same list. For a new list in each epoch, give it to `Loader::with_sampler` when the epoch
/// begins. Ranks share the list like any other order. For [listed batches](Self::with_batches), or for a list that is
/// already one rank's share, use a loader of world size 1.
///
/// A record that occurs several times gets different augmentation each time. The first occurrence gets the same
/// augmentation as without repeats.
///
/// Memory: 8 bytes for each entry of the list, 4 more if any record repeats.
///
/// ```
/// use infeed::sampler::{ListSampler, Sampler};
/// let sampler = ListSampler::new(10, [7, 1, 7, 4])?;
/// assert_eq!((sampler.len(), sampler.record(0, 2)), (4, 7));
/// assert_eq!((sampler.occurrence(0, 0), sampler.occurrence(0, 2)), (0, 1));
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct ListSampler {
    records: u64,
    list: Arc<[u64]>,
    /// How often the record of each entry occurred before; `None`: each record occurs once.
    times: Option<Arc<[u32]>>,
    batches: Option<Batches>,
    print: Fingerprint,
}

impl ListSampler {
    /// The records of an epoch, by their index in a dataset of `records_of_dataset` records.
    ///
    /// # Errors
    /// `Config` for an index beyond the dataset; the message has its place in the list.
    pub fn new(records_of_dataset: u64, list: impl Into<Arc<[u64]>>) -> Result<Self> {
        let (records, list) = (records_of_dataset, list.into());
        if let Some((place, record)) = list.iter().enumerate().find(|(_, record)| **record >= records) {
            let what = format!("place {place} of the list is record {record}, the dataset has {records}");
            return Err(Error::config(what).with_hint("list record numbers, counted from 0"));
        }
        let print =
            list.iter().fold(Fingerprint::of("list").number(list.len() as u64), |print, record| print.number(*record));
        Ok(Self { records, times: times(&list), list, batches: None, print: print.finish() })
    }

    /// Cuts the list into batches of these numbers of rows, one after another, instead of the loader's equal ones. See
    /// [`Sampler::batches`].
    ///
    /// ```
    /// # use futures::StreamExt;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
    /// use std::sync::Arc;
    ///
    /// use infeed::{Loader, sampler::ListSampler};
    ///
    /// # let dataset = infeed::open("synthetic://?count=100&height=8&width=8&classes=10").await?;
    /// let batches = [vec![4, 9, 2], vec![7], vec![30, 31]];
    /// let sampler = ListSampler::new(dataset.len(), batches.concat())?.with_batches(batches.iter().map(Vec::len))?;
    /// // The most rows that a batch may have.
    /// let loader = Loader::builder(dataset).batch_size(3).sampler(Arc::new(sampler)).build().await?;
    /// let sizes = loader.epoch(0).map(|batch| batch.map(|batch| batch.len())).collect::<Vec<_>>().await;
    /// assert_eq!(sizes.into_iter().collect::<infeed::Result<Vec<_>>>()?, [3, 1, 2]);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`Batches::new`]; `Config` if the batches together are not as long as the list.
    pub fn with_batches(mut self, sizes: impl IntoIterator<Item = usize>) -> Result<Self> {
        let batches = Batches::new(sizes)?;
        let (rows, places) = (batches.positions(), self.list.len());
        if rows != places as u64 {
            return Err(Error::config(format!("the batches together have {rows} rows, the list has {places} places"))
                .with_hint("give batches whose rows add up to the list's length"));
        }
        self.batches = Some(batches);
        Ok(self)
    }
}

/// How often the record of each entry occurred before; `None` if no record repeats.
fn times(list: &[u64]) -> Option<Arc<[u32]>> {
    let mut sorted = list.to_vec();
    sorted.sort_unstable();
    if sorted.is_sorted_by(|a, b| a < b) {
        return None;
    }
    drop(sorted);
    let mut places: Vec<usize> = (0..list.len()).collect();
    // The stable sort keeps the entries of one record in order.
    places.sort_by_key(|place| list[*place]);
    let mut times = vec![0; list.len()];
    for same in places.chunk_by(|a, b| list[*a] == list[*b]) {
        for (time, place) in (0..).zip(same) {
            times[*place] = time;
        }
    }
    Some(times.into())
}

impl Sampler for ListSampler {
    fn len(&self) -> u64 {
        self.list.len() as u64
    }

    fn records(&self) -> u64 {
        self.records
    }

    fn record(&self, _epoch: u64, position: u64) -> u64 {
        self.list[position as usize]
    }

    fn occurrence(&self, _epoch: u64, position: u64) -> u64 {
        self.times.as_ref().map_or(0, |times| u64::from(times[position as usize]))
    }

    /// Always `None`. A cache calls this for later epochs, which may have other lists.
    fn position(&self, _epoch: u64, _record: u64) -> Option<u64> {
        None
    }

    fn is_bijection(&self) -> bool {
        self.times.is_none() && self.len() == self.records
    }

    fn batches(&self) -> Option<&Batches> {
        self.batches.as_ref()
    }

    fn describe(&self) -> String {
        format!("a list of {} records", self.list.len())
    }

    /// Depends only on the list: a resumed run may use other batches, just as it may use another batch size.
    fn fingerprint(&self) -> Fingerprint {
        self.print
    }
}

impl fmt::Debug for ListSampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListSampler")
            .field("records", &self.records)
            .field("len", &self.list.len())
            .field("batches", &self.batches.as_ref().map(|batches| batches.ends().len()))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infeed_core::error::ErrorKind;

    fn list(records: &[u64]) -> ListSampler {
        ListSampler::new(10, records).unwrap()
    }

    #[test]
    fn only_a_list_of_all_records_is_a_bijection() {
        let all: Vec<u64> = (0..10).rev().collect();
        assert!(list(&all).is_bijection());
        assert!(!list(&all[1..]).is_bijection());
        assert!(!list(&[&all[1..], &[8]].concat()).is_bijection());
        assert!(!list(&[]).is_bijection());
    }

    #[test]
    fn lists_without_repeats_hold_the_list_alone() {
        assert!(list(&[3, 1, 2]).times.is_none());
        assert_eq!(list(&[3, 1, 3, 3, 1]).times.as_deref(), Some(&[0, 0, 1, 2, 1][..]));
    }

    #[test]
    fn what_decides_the_order_is_in_the_fingerprint() {
        let prints = [&[1, 2][..], &[2, 1], &[1, 2, 2], &[1], &[]].map(|records| list(records).fingerprint());
        for (i, one) in prints.iter().enumerate() {
            assert!(prints[i + 1..].iter().all(|other| one != other), "fingerprint {i} comes twice");
        }
        let batches = list(&[1, 2]).with_batches([1, 1]).unwrap();
        assert_eq!(batches.fingerprint(), prints[0], "batches may be cut otherwise");
    }

    #[test]
    fn what_is_not_in_the_dataset_or_the_list_is_refused_by_its_place() {
        let refused = [
            (ListSampler::new(10, [3, 10, 11]), "place 1 of the list is record 10, the dataset has 10"),
            (list(&[3, 1, 2]).with_batches([2]), "the batches together have 2 rows, the list has 3 places"),
            (list(&[3, 1, 2]).with_batches([2, 0, 1]), "batch 1 of the list has no rows"),
        ];
        for (made, want) in refused {
            let error = made.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains(want), "{error}");
        }
        // Nothing is as large as the dataset.
        assert_eq!(ListSampler::new(u64::MAX, [u64::MAX - 1]).unwrap().record(0, 0), u64::MAX - 1);
    }
}
