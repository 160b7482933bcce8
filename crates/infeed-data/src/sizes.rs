//! Sizes of records: the largest, and the largest of those that are no outliers.

#![forbid(unsafe_code)]

/// Of a dataset's records, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    #[doc(hidden)]
    pub largest: u64,
    /// Without outliers.
    pub usual: u64,
}

/// A record is an outlier when it is far beyond the middle one: photographs of one camera differ by a factor of ten, those
/// of a scraped million by fifty (ImageNet: 110 KB in the middle, 15 MB at most, which is 136; memory for 15 MB is never
/// what lacks, see `loader::resolve`).
const FAR_LOG2: usize = 6;

/// Sizes by their powers of two: a count of each, and the largest. What many shards know is put together so.
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

    /// Adds sizes of one power of two, of which there are 65. `None`: they are of another.
    pub(crate) fn add_all(&mut self, power: usize, count: u64, most: u64) -> Option<()> {
        let counted = self.counts.get_mut(power)?;
        *counted = counted.checked_add(count)?;
        self.most[power] = self.most[power].max(most);
        (power == (u64::BITS - most.leading_zeros()) as usize).then_some(())
    }

    /// Power, count and the largest of those that there are.
    pub(crate) fn filled(&self) -> impl Iterator<Item = (usize, u64, u64)> {
        (0..65).filter(|power| self.counts[*power] > 0).map(|power| (power, self.counts[power], self.most[power]))
    }

    pub(crate) fn sizes(&self) -> Sizes {
        let Self { counts, most } = self;
        let all: u64 = counts.iter().sum();
        let mut below = 0;
        let middle = counts.iter().position(|count| {
            below += count;
            // The lower of two: one of two files may be the outlier.
            below * 2 >= all
        });
        let far = (middle.unwrap_or(0) + FAR_LOG2).min(64);
        let largest = |buckets: &[u64]| buckets.iter().copied().max().unwrap_or(0);
        Sizes { largest: largest(most), usual: largest(&most[..=far]) }
    }
}

impl Sizes {
    /// One pass, no list.
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
