//! Sizes of records: the largest, and the largest without outliers.

#![forbid(unsafe_code)]

/// Sizes of a dataset's records, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    #[doc(hidden)]
    pub largest: u64,
    /// The largest without outliers.
    pub usual: u64,
}

/// A record is an outlier if it is 2^6 times as large as the median record or larger. Photographs of one camera differ
/// by a factor of ten, a million scraped ones by a factor of fifty. (ImageNet: median 110 KB, largest 15 MB, a factor
/// of 136; memory for 15 MB is always there, see `loader::resolve`.)
const FAR_LOG2: usize = 6;

/// A histogram of sizes by powers of two: the number of sizes in each, and the largest. Histograms of many shards can
/// be added up.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    counts: [u64; 65],
    most: [u64; 65],
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: [0; 65], most: [0; 65] }
    }
}

impl Histogram {
    pub(crate) fn add(&mut self, size: u64) {
        let power = (u64::BITS - size.leading_zeros()) as usize;
        self.counts[power] += 1;
        self.most[power] = self.most[power].max(size);
    }

    /// Adds sizes of one of the 65 powers of two. `None` if `most` is not in that power.
    pub(crate) fn add_all(&mut self, power: usize, count: u64, most: u64) -> Option<()> {
        let counted = self.counts.get_mut(power)?;
        *counted = counted.checked_add(count)?;
        self.most[power] = self.most[power].max(most);
        (power == (u64::BITS - most.leading_zeros()) as usize).then_some(())
    }

    /// Power, number and largest size of each power that has sizes.
    pub(crate) fn filled(&self) -> impl Iterator<Item = (usize, u64, u64)> {
        (0..65).filter(|power| self.counts[*power] > 0).map(|power| (power, self.counts[power], self.most[power]))
    }

    pub(crate) fn sizes(&self) -> Sizes {
        let Self { counts, most } = self;
        let all: u64 = counts.iter().sum();
        let mut below = 0;
        let middle = counts.iter().position(|count| {
            below += count;
            // The lower median: of two files, one may be the outlier.
            below * 2 >= all
        });
        let far = (middle.unwrap_or(0) + FAR_LOG2).min(64);
        let largest = |buckets: &[u64]| buckets.iter().copied().max().unwrap_or(0);
        Sizes { largest: largest(most), usual: largest(&most[..=far]) }
    }
}

impl Sizes {
    /// One pass; no list is kept.
    pub fn of(sizes: impl IntoIterator<Item = u64>) -> Self {
        let mut histogram = Histogram::default();
        sizes.into_iter().for_each(|size| histogram.add(size));
        histogram.sizes()
    }
}

impl FromIterator<u64> for Sizes {
    fn from_iter<I: IntoIterator<Item = u64>>(sizes: I) -> Self {
        Self::of(sizes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_huge_file_is_an_outlier_and_large_ones_among_large_ones_are_not() {
        let photos = [90_000, 110_000, 130_000, 2_000_000];
        assert_eq!(Sizes::of(photos), Sizes { largest: 2_000_000, usual: 2_000_000 });
        assert_eq!(Sizes::of(photos.into_iter().chain([3 << 30])), Sizes { largest: 3 << 30, usual: 2_000_000 });
        assert_eq!(Sizes::of([110_000, 3 << 30]), Sizes { largest: 3 << 30, usual: 110_000 });
        assert_eq!(Sizes::of([3 << 30, 2 << 30, 5]), Sizes { largest: 3 << 30, usual: 3 << 30 });
        assert_eq!(Sizes::of([3 << 30]), Sizes { largest: 3 << 30, usual: 3 << 30 });
        assert_eq!(Sizes::of([]), Sizes::default());
        assert_eq!(Sizes::of([0, u64::MAX]), Sizes { largest: u64::MAX, usual: 0 });
    }
}
