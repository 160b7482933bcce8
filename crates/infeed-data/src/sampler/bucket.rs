//! Puts similar records next to each other, such as images of one aspect ratio.
//!
//! ```text
//! buckets      0: 2 5 7 1 9 …      1: 4 0 3 …            shuffled inside, each epoch
//! runs of 2    [2 5] [7 1] …       [4 0] …   9  3        whole runs of all buckets in random order, what is left last
//! positions    0 1   2 3   4 5 …
//! record       4 0   7 1   2 5 …   9 3
//! ```
#![forbid(unsafe_code)]

use infeed_core::{
    error::{Error, Result},
    fingerprint::Fingerprint,
};

use super::{
    base::Sampler,
    permutation::{Permutation, Purpose, key},
};

/// Shuffles records so that `run` consecutive records are of one bucket. So a batch holds images of similar shape, as
/// with torchvision's `GroupedBatchSampler`.
///
/// Each record occurs once per epoch. If `run` is a multiple of the batch size times the world size, each batch is of
/// one bucket. The exception is the end of an epoch: the records that do not fill a run come there, bucket after
/// bucket. The order depends on `run`, not on the batch size, so a run can resume with another batch size.
///
/// Memory: 12 bytes a record.
///
/// ```
/// use infeed::sampler::{BucketSampler, Sampler};
/// // Height and width of each image, and the aspect ratio (width / height) between two buckets: 1.
/// let sizes = [[480, 640], [640, 480], [500, 333], [333, 500], [427, 640]];
/// let order = BucketSampler::by_aspect_ratio(sizes, &[1.0], 2, 42)?;
/// assert_eq!(order.buckets(), 2);
/// let landscape = |position| sizes[order.record(0, position) as usize][1] > 480;
/// assert_eq!((landscape(0), landscape(2)), (landscape(1), landscape(3)));
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct BucketSampler {
    seed: u64,
    run: u64,
    /// Records, bucket after bucket.
    members: Box<[u32]>,
    /// The index of each record in `members`.
    places: Box<[u32]>,
    buckets: Box<[Bucket]>,
    /// Number of whole runs of all buckets.
    runs: u64,
    print: Fingerprint,
}

/// Where a bucket begins: in `members`, among the whole runs, and among the leftover records.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    start: u64,
    len: u64,
    first_run: u64,
    first_left: u64,
}

impl BucketSampler {
    /// `bucket_of` has the bucket of each record, numbered from 0; `run` is the number of consecutive records of one
    /// bucket.
    ///
    /// # Errors
    /// `Config` for a run of 0, or for more than 2^32 records.
    pub fn new(bucket_of: impl IntoIterator<Item = u32>, run: u64, seed: u64) -> Result<Self> {
        if run == 0 {
            return Err(
                Error::config("runs of buckets have 0 records").with_hint("use the batch size times the world size")
            );
        }
        let bucket_of: Vec<u32> = bucket_of.into_iter().collect();
        let len = u32::try_from(bucket_of.len())
            .map_err(|_| Error::config(format!("{} records in buckets, 2^32 is the limit", bucket_of.len())))?;
        let (members, places) = sorted(len, |record| bucket_of[record as usize]);
        let mut buckets: Vec<Bucket> = Vec::new();
        let (mut first_run, mut first_left, mut start) = (0, 0, 0);
        for chunk in members.chunk_by(|a, b| bucket_of[*a as usize] == bucket_of[*b as usize]) {
            let len = chunk.len() as u64;
            buckets.push(Bucket { start, len, first_run, first_left });
            (start, first_run, first_left) = (start + len, first_run + len / run, first_left + len % run);
        }
        let print = bucket_of.iter().fold(Fingerprint::of("buckets").number(run).number(seed), |print, bucket| {
            print.number(u64::from(*bucket))
        });
        Ok(Self { seed, run, members, places, buckets: buckets.into(), runs: first_run, print: print.finish() })
    }

    /// Buckets of images by aspect ratio. `sizes` are height and width of each image, as
    /// [`Dataset::image_size`](crate::Dataset::image_size) returns them. `bounds` are the ratios of width to height
    /// between buckets, ascending: `[1.0]` separates images that are higher than wide from the others.
    ///
    /// # Errors
    /// Those of [`new`](Self::new); `Config` if the bounds do not ascend or a size is 0.
    pub fn by_aspect_ratio(
        sizes: impl IntoIterator<Item = [u32; 2]>,
        bounds: &[f64],
        run: u64,
        seed: u64,
    ) -> Result<Self> {
        if !bounds.is_sorted_by(|a, b| a < b) || !bounds.iter().all(|bound| bound.is_finite()) {
            return Err(
                Error::config(format!("the bounds of aspect ratios are {bounds:?}")).with_hint("use ascending numbers")
            );
        }
        let bucket = |(record, [height, width]): (u64, [u32; 2])| {
            if height == 0 || width == 0 {
                return Err(Error::config(format!("an image of {height}x{width}")).at_record(record));
            }
            let ratio = f64::from(width) / f64::from(height);
            Ok(bounds.partition_point(|bound| *bound < ratio) as u32)
        };
        let buckets: Vec<u32> = (0..).zip(sizes).map(bucket).collect::<Result<_>>()?;
        Self::new(buckets, run, seed)
    }

    /// Number of buckets that have records.
    #[must_use]
    pub const fn buckets(&self) -> usize {
        self.buckets.len()
    }

    /// The order of the whole runs.
    const fn runs_of(&self, epoch: u64) -> Permutation {
        Permutation::new(self.runs, key(Purpose::Buckets, self.seed, epoch))
    }

    /// The order of the records of a bucket.
    fn members_of(&self, epoch: u64, bucket: usize) -> Permutation {
        let own = key(Purpose::Buckets, key(Purpose::Buckets, self.seed, epoch), bucket as u64);
        Permutation::new(self.buckets[bucket].len, own)
    }

    /// The last bucket that begins at or before `at`.
    fn bucket(&self, at: u64, begin: impl Fn(&Bucket) -> u64) -> usize {
        self.buckets.partition_point(|bucket| begin(bucket) <= at) - 1
    }
}

/// The records in the order of their keys, and the index of each record in it.
pub(super) fn sorted<K: Ord>(records: u32, key: impl Fn(u32) -> K) -> (Box<[u32]>, Box<[u32]>) {
    let mut members: Vec<u32> = (0..records).collect();
    members.sort_by_key(|record| key(*record));
    let mut places = vec![0; members.len()];
    for (place, record) in (0..).zip(&members) {
        places[*record as usize] = place;
    }
    (members.into(), places.into())
}

impl Sampler for BucketSampler {
    fn len(&self) -> u64 {
        self.members.len() as u64
    }

    fn record(&self, epoch: u64, position: u64) -> u64 {
        assert!(position < self.len(), "position {position} of {}", self.len());
        let whole = self.runs * self.run;
        let (bucket, at) = if position < whole {
            let run = self.runs_of(epoch).get(position / self.run);
            let bucket = self.bucket(run, |bucket| bucket.first_run);
            (bucket, (run - self.buckets[bucket].first_run) * self.run + position % self.run)
        } else {
            let left = position - whole;
            let bucket = self.bucket(left, |bucket| bucket.first_left);
            let Bucket { len, first_left, .. } = self.buckets[bucket];
            (bucket, len - len % self.run + left - first_left)
        };
        let place = self.buckets[bucket].start + self.members_of(epoch, bucket).get(at);
        u64::from(self.members[place as usize])
    }

    fn position(&self, epoch: u64, record: u64) -> Option<u64> {
        let place = u64::from(*self.places.get(usize::try_from(record).ok()?)?);
        let bucket = self.bucket(place, |bucket| bucket.start);
        let Bucket { start, len, first_run, first_left } = self.buckets[bucket];
        let at = self.members_of(epoch, bucket).inverse(place - start);
        let whole = len - len % self.run;
        Some(if at < whole {
            self.runs_of(epoch).inverse(first_run + at / self.run) * self.run + at % self.run
        } else {
            self.runs * self.run + first_left + at - whole
        })
    }

    fn describe(&self) -> String {
        format!("{} buckets, runs of {}, seed {}", self.buckets.len(), self.run, self.seed)
    }

    fn fingerprint(&self) -> Fingerprint {
        self.print
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_record_comes_once_and_runs_are_of_one_bucket(
            buckets in prop::collection::vec(0..5u32, 0..200),
            run in 1..20u64,
            seed in 0..50u64,
            epoch in 0..3u64,
        ) {
            let order = BucketSampler::new(buckets.clone(), run, seed).unwrap();
            let records: Vec<u64> = (0..order.len()).map(|position| order.record(epoch, position)).collect();
            let mut sorted = records.clone();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..buckets.len() as u64).collect::<Vec<_>>());
            for (position, record) in (0..).zip(&records) {
                prop_assert_eq!(order.position(epoch, *record), Some(position));
            }
            prop_assert_eq!(order.position(epoch, buckets.len() as u64), None);
            let bucket = |record: &u64| buckets[*record as usize];
            let whole: u64 = (0..5).map(|b| buckets.iter().filter(|own| **own == b).count() as u64 / run * run).sum();
            for chunk in records[..whole as usize].chunks(run as usize) {
                prop_assert!(chunk.iter().all(|record| bucket(record) == bucket(&chunk[0])));
            }
            // What is left comes bucket after bucket.
            prop_assert!(records[whole as usize..].is_sorted_by_key(bucket));
        }
    }

    #[test]
    fn epochs_and_seeds_differ() {
        let of = |seed, epoch| {
            let order = BucketSampler::new((0..500).map(|n| n % 3), 16, seed).unwrap();
            (0..500).map(|position| order.record(epoch, position)).collect::<Vec<_>>()
        };
        assert_eq!(of(1, 0), of(1, 0));
        assert!(of(1, 0) != of(1, 1) && of(1, 0) != of(2, 0) && of(1, 1) != of(2, 0));
        // A record is anywhere in its bucket, and a bucket's runs anywhere in the epoch.
        let mut first = std::collections::HashSet::new();
        (0..200).for_each(|epoch| {
            first.insert(of(1, epoch)[0]);
        });
        assert!(first.len() > 120, "{}", first.len());
    }

    #[test]
    fn images_are_parted_by_their_proportion() {
        let sizes = [[100, 50], [100, 100], [100, 101], [50, 100], [10, 100]];
        let order = BucketSampler::by_aspect_ratio(sizes, &[0.75, 1.0, 2.0], 1, 0).unwrap();
        assert_eq!((order.buckets(), order.len()), (4, 5));
        let refused = |sizes: [u32; 2], bounds: &[f64], run| {
            BucketSampler::by_aspect_ratio([[1, 1], sizes], bounds, run, 0).unwrap_err().to_string()
        };
        assert!(refused([0, 5], &[1.0], 1).contains("record 1"));
        assert!(refused([5, 5], &[1.0, 1.0], 1).contains("ascending"));
        assert!(refused([5, 5], &[f64::NAN], 1).contains("ascending"));
        assert!(refused([5, 5], &[1.0], 0).contains("batch size times"));
        assert!(BucketSampler::new([], 4, 0).unwrap().is_empty());
    }
}
