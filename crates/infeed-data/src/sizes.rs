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

impl Sizes {
    /// One pass, no list: a count and the largest for each power of two.
    pub fn of(sizes: impl IntoIterator<Item = u64>) -> Self {
        let (mut counts, mut most) = ([0u64; 65], [0u64; 65]);
        for size in sizes {
            let bucket = (u64::BITS - size.leading_zeros()) as usize;
            counts[bucket] += 1;
            most[bucket] = most[bucket].max(size);
        }
        let all: u64 = counts.iter().sum();
        let mut below = 0;
        let middle = counts.iter().position(|count| {
            below += count;
            // The lower of two: one of two files may be the outlier.
            below * 2 >= all
        });
        let far = (middle.unwrap_or(0) + FAR_LOG2).min(64);
        let largest = |buckets: &[u64]| buckets.iter().copied().max().unwrap_or(0);
        Self { largest: largest(&most), usual: largest(&most[..=far]) }
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
