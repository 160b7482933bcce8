//! Batches of records of similar length, within a budget of items.
//!
//! ```text
//! lengths      sorted, cut into buckets of similar lengths       ≤ 5: 3 8 1 …      ≤ 6: 9 0 …      ≤ 9: 2 7 …
//! batches      rows of a bucket = budget / its longest           [3 8] [1 …]       [9 0] …         [2] [7] …
//! positions    the batches of all buckets in one random order, the same in each epoch
//! records      each bucket in a random order, another in each epoch
//! ```
#![forbid(unsafe_code)]

use infeed_core::{
    error::{Error, Result},
    fingerprint::Fingerprint,
};

use super::{
    base::Sampler,
    batches::Batches,
    bucket::sorted,
    permutation::{Permutation, Purpose, key},
};

/// A bucket has at least this many whole batches, if there are as many records: so few batches are not full.
const LEAST_BATCHES: u64 = 4;
/// A bucket ends where lengths are this much above its shortest, in eighths: longer rows would be padded more.
const WIDEST_EIGHTHS: u64 = 1;

/// Shuffles records into batches of similar lengths: the number of rows times the longest row is at most a budget. So a
/// batch has about as many tokens as any other, and little padding.
///
/// Each record occurs once per epoch, with other records in each epoch. Each bucket of lengths has one batch that is not
/// full. The order of lengths is the same in every epoch.
///
/// Ranks take the batches of a step one after another; at the end of an epoch, batches that are fewer than the ranks are
/// left out. A run resumes with any world size.
///
/// Memory: 8 bytes a record and 8 a batch.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
/// use std::sync::Arc;
///
/// use futures::StreamExt;
/// use infeed::{Loader, dataset::MemoryDataset, sampler::LengthSampler};
///
/// let rows: Vec<Vec<i32>> = (0..100).map(|i| vec![7; 1 + i % 10]).collect();
/// let lengths = rows.iter().map(|row| row.len() as u64);
/// // At most 64 tokens with padding, and 32 rows.
/// let order = LengthSampler::new(lengths, 64, 32, 42)?;
/// let dataset = MemoryDataset::builder().lists("tokens", rows).build()?;
/// let loader = Loader::builder(Arc::new(dataset)).batch_size(32).sampler(Arc::new(order)).pad("tokens", 0);
/// let mut batches = loader.build().await?.epoch(0);
/// while let Some(batch) = batches.next().await {
///     let shape = batch?["tokens"].shape().to_vec();
///     assert!(shape[0] * shape[1] <= 64);
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct LengthSampler {
    seed: u64,
    budget: u64,
    /// Records, bucket after bucket.
    members: Box<[u32]>,
    /// The index of each record in `members`.
    places: Box<[u32]>,
    buckets: Box<[Bucket]>,
    batches: Batches,
    print: Fingerprint,
}

/// Records of similar lengths.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// Its first record in `members`, and its number of records.
    start: u64,
    len: u64,
    /// Rows of its batches; the last one may have fewer.
    rows: u64,
    /// The number of batches of all buckets before it.
    first: u64,
}

impl LengthSampler {
    /// `lengths` has the number of items of each record; a batch has at most `budget` items, counting the padding of
    /// shorter rows, and at most `most_rows` rows, which the loader's `batch_size` must allow.
    ///
    /// # Errors
    /// `Config` if `budget` or `most_rows` is 0, if a record is longer than `budget`, or for 2^32 records or more.
    pub fn new(lengths: impl IntoIterator<Item = u64>, budget: u64, most_rows: usize, seed: u64) -> Result<Self> {
        if budget == 0 || most_rows == 0 {
            return Err(Error::config(format!("batches of at most {budget} items and {most_rows} rows"))
                .with_hint("use 1 or more of both"));
        }
        let lengths: Vec<u64> = lengths.into_iter().collect();
        let len = u32::try_from(lengths.len())
            .map_err(|_| Error::config(format!("{} records by length, 2^32 - 1 is the limit", lengths.len())))?;
        if let Some((record, length)) = lengths.iter().enumerate().find(|(_, length)| **length > budget) {
            return Err(Error::config(format!("{length} items, and batches have at most {budget}"))
                .at_record(record as u64)
                .with_hint("allow more items, or leave long records out with a filter"));
        }
        let (members, places) = sorted(len, |record| lengths[record as usize]);
        let length = |place: usize| lengths[members[place] as usize];
        let rows = |longest: u64| (budget / longest.max(1)).clamp(1, most_rows as u64);
        let mut buckets: Vec<Bucket> = Vec::new();
        let (mut start, mut first) = (0, 0);
        while start < members.len() {
            let widest = length(start) + length(start) * WIDEST_EIGHTHS / 8;
            let mut end = start + 1;
            while end < members.len()
                && (length(end) <= widest || ((end - start) as u64) < LEAST_BATCHES * rows(length(end)))
            {
                end += 1;
            }
            let (at, len, rows) = (start as u64, (end - start) as u64, rows(length(end - 1)));
            buckets.push(Bucket { start: at, len, rows, first });
            first += len.div_ceil(rows);
            start = end;
        }
        let print = lengths
            .iter()
            .fold(Fingerprint::of("lengths").number(budget).number(seed), |print, length| print.number(*length));
        let print = print.number(most_rows as u64).finish();
        let buckets = buckets.into();
        let mut made = Self { seed, budget, members, places, buckets, batches: Batches::new([])?, print };
        let sizes = (0..first).map(|batch| {
            let (bucket, own) = made.find(made.pattern(first).get(batch));
            (bucket.len - own * bucket.rows).min(bucket.rows) as usize
        });
        made.batches = Batches::new(sizes)?.for_ranks();
        Ok(made)
    }

    /// The order of `count` batches.
    const fn pattern(&self, count: u64) -> Permutation {
        Permutation::new(count, key(Purpose::Lengths, self.seed, 0))
    }

    fn order(&self) -> Permutation {
        self.pattern(self.batches.ends().len() as u64)
    }

    /// The bucket of a batch, and the batch's number in it; batches are numbered bucket after bucket.
    fn find(&self, batch: u64) -> (&Bucket, u64) {
        let at = self.buckets.partition_point(|bucket| bucket.first <= batch) - 1;
        (&self.buckets[at], batch - self.buckets[at].first)
    }

    /// The order of the records of a bucket.
    const fn members_of(&self, epoch: u64, bucket: &Bucket) -> Permutation {
        let own = key(Purpose::Lengths, key(Purpose::Lengths, self.seed, bucket.start), epoch);
        Permutation::new(bucket.len, own)
    }

    /// The first position of a batch in the epoch's order.
    fn start(&self, batch: usize) -> u64 {
        batch.checked_sub(1).map_or(0, |before| self.batches.ends()[before])
    }
}

impl Sampler for LengthSampler {
    fn len(&self) -> u64 {
        self.members.len() as u64
    }

    fn record(&self, epoch: u64, position: u64) -> u64 {
        assert!(position < self.len(), "position {position} of {}", self.len());
        let batch = self.batches.ends().partition_point(|end| *end <= position);
        let (bucket, own) = self.find(self.order().get(batch as u64));
        let at = own * bucket.rows + position - self.start(batch);
        let place = bucket.start + self.members_of(epoch, bucket).get(at);
        u64::from(self.members[place as usize])
    }

    fn position(&self, epoch: u64, record: u64) -> Option<u64> {
        let place = u64::from(*self.places.get(usize::try_from(record).ok()?)?);
        let bucket = &self.buckets[self.buckets.partition_point(|bucket| bucket.start <= place) - 1];
        let at = self.members_of(epoch, bucket).inverse(place - bucket.start);
        let batch = self.order().inverse(bucket.first + at / bucket.rows);
        Some(self.start(usize::try_from(batch).ok()?) + at % bucket.rows)
    }

    fn batches(&self) -> Option<&Batches> {
        Some(&self.batches)
    }

    fn describe(&self) -> String {
        let Self { budget, seed, .. } = self;
        format!("batches of at most {budget} items, {} buckets of lengths, seed {seed}", self.buckets.len())
    }

    fn fingerprint(&self) -> Fingerprint {
        self.print
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn records(order: &LengthSampler, epoch: u64) -> Vec<u64> {
        (0..order.len()).map(|position| order.record(epoch, position)).collect()
    }

    proptest! {
        #[test]
        fn each_record_comes_once_in_batches_within_the_budget(
            lengths in prop::collection::vec(0..60u64, 0..300),
            budget in 60..500u64,
            rows in 1..40usize,
            seed in 0..50u64,
            epoch in 0..3u64,
        ) {
            let order = LengthSampler::new(lengths.clone(), budget, rows, seed).unwrap();
            let found = records(&order, epoch);
            let mut sorted = found.clone();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..lengths.len() as u64).collect::<Vec<_>>());
            for (position, record) in (0..).zip(&found) {
                prop_assert_eq!(order.position(epoch, *record), Some(position));
            }
            prop_assert_eq!(order.position(epoch, lengths.len() as u64), None);
            let batches = order.batches().unwrap();
            prop_assert_eq!(batches.positions(), order.len());
            let mut rest = &found[..];
            for size in batches.sizes() {
                let (batch, after) = rest.split_at(size as usize);
                let longest = batch.iter().map(|record| lengths[*record as usize]).max().unwrap();
                prop_assert!(longest * size <= budget && size as usize <= rows, "{} rows of {}", size, longest);
                rest = after;
            }
        }
    }

    #[test]
    fn batches_are_full_and_hardly_padded_if_there_are_many_records() {
        let mut draws = infeed_core::random::SampleRng::new(1, 2, 3).op(0);
        // Most are short, as in a corpus.
        let lengths: Vec<u64> = (0..20_000).map(|_| 1 + 2048 / (1 + draws.below(400))).collect();
        let order = LengthSampler::new(lengths.clone(), 8192, 1 << 20, 7).unwrap();
        let (items, mut padded, mut full) = (lengths.iter().sum::<u64>(), 0, 0);
        let all = records(&order, 0);
        let mut rest = &all[..];
        for size in order.batches().unwrap().sizes() {
            let (batch, after) = rest.split_at(size as usize);
            let longest = batch.iter().map(|record| lengths[*record as usize]).max().unwrap();
            padded += longest * size;
            full += usize::from(longest * size > 8192 * 3 / 4);
            rest = after;
        }
        let batches = order.batches().unwrap().sizes().count();
        assert!(padded * 100 <= items * 110, "{padded} of {items}");
        assert!(full * 100 >= batches * 85, "{full} of {batches}");
    }

    #[test]
    fn epochs_and_seeds_differ_and_what_can_not_be_is_refused() {
        let of = |seed, epoch| records(&LengthSampler::new((0..500).map(|n| n % 30), 60, 16, seed).unwrap(), epoch);
        assert_eq!(of(1, 0), of(1, 0));
        assert!(of(1, 0) != of(1, 1) && of(1, 0) != of(2, 0));
        let refused = |lengths: &[u64], budget, rows| {
            LengthSampler::new(lengths.iter().copied(), budget, rows, 0).unwrap_err().to_string()
        };
        let long = refused(&[1, 2, 9], 8, 4);
        assert!(long.contains("record 2") && long.contains("9 items, and batches have at most 8"), "{long}");
        assert!(refused(&[1], 0, 4).contains("at most 0 items and 4 rows"));
        assert!(refused(&[1], 4, 0).contains("use 1 or more of both"));
    }
}
