//! Runs of 0 and 1.

use std::ops::Range;

use infeed_core::error::{Error, Result};

/// A picture of one bit a pixel, in COCO's run-length encoding. Pixels go down each column, columns from left to right.
/// Runs of 0 and of 1 alternate; the first is a run of 0.
///
/// ```
/// use infeed::dataset::Rle;
/// // 0 1 1
/// // 0 1 0
/// let mask = Rle::new([2, 3], vec![2, 3, 1])?;
/// assert_eq!(mask.to_dense(), [0, 1, 1, 0, 1, 0]);
/// assert_eq!((mask.area(), mask.bounds()), (3, Some([1, 0, 3, 2])));
/// assert_eq!(mask.to_compressed(), "231");
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rle {
    size: [u32; 2],
    counts: Vec<u32>,
}

impl Rle {
    /// Runs that cover a picture of this height and width.
    ///
    /// # Errors
    /// `Corrupt` if the runs do not add up to the number of pixels.
    pub fn new(size: [u32; 2], counts: Vec<u32>) -> Result<Self> {
        let [height, width] = size.map(u64::from);
        let covered = counts.iter().map(|n| u64::from(*n)).sum::<u64>();
        if covered != height * width {
            return Err(Error::corrupt(format!("runs of {covered} pixels for a mask of {height}x{width}")));
        }
        Ok(Self { size, counts })
    }

    /// Height and width.
    #[must_use]
    pub const fn size(&self) -> [u32; 2] {
        self.size
    }

    /// The lengths of the runs.
    #[must_use]
    pub fn counts(&self) -> &[u32] {
        &self.counts
    }

    /// Number of pixels that are set.
    #[must_use]
    pub fn area(&self) -> u64 {
        self.counts.iter().skip(1).step_by(2).map(|n| u64::from(*n)).sum()
    }

    /// Left, top, right, bottom of the set pixels; pixel `n` covers `n` to `n + 1`. `None` if no pixel is set.
    ///
    /// ```
    /// # use infeed::dataset::Rle;
    /// assert_eq!(Rle::new([4, 4], vec![5, 2, 9])?.bounds(), Some([1, 1, 2, 3]));
    /// assert_eq!(Rle::new([4, 4], vec![16])?.bounds(), None);
    /// # Ok::<(), infeed::Error>(())
    /// ```
    #[must_use]
    pub fn bounds(&self) -> Option<[u32; 4]> {
        let height = u64::from(self.size[0]);
        let mut found: Option<[u64; 4]> = None;
        for run in self.ones() {
            let (first, last) = (run.start / height, (run.end - 1) / height);
            // A run that continues in the next column covers the bottom of the first and the top of the last column.
            let (top, bottom) =
                if first == last { (run.start % height, (run.end - 1) % height + 1) } else { (0, height) };
            let [left, above, _, below] = found.unwrap_or([first, top, 0, bottom]);
            found = Some([left, above.min(top), last + 1, below.max(bottom)]);
        }
        // Within the size, and sides are u32.
        found.map(|bounds| bounds.map(|n| n as u32))
    }

    /// The runs of 1 that are not empty, as ranges of places in the order of the runs.
    pub(super) fn ones(&self) -> impl Iterator<Item = Range<u64>> {
        let mut end = 0;
        let places = self.counts.iter().enumerate().map(move |(i, n)| {
            let start = end;
            end += u64::from(*n);
            (i, start..end)
        });
        places.filter(|(i, run)| i % 2 == 1 && !run.is_empty()).map(|(_, run)| run)
    }
}

/// Builds runs from the places where the picture changes.
#[derive(Debug, Default)]
pub(super) struct Changes {
    counts: Vec<u32>,
    last: u64,
}

impl Changes {
    /// From this place on, pixels have the other value. Places ascend; the first may be 0.
    pub(super) fn at(&mut self, place: u64) {
        let mut length = place - self.last;
        // No image that fits into memory has a run this long, but a size read from a file may be that large.
        while length > u64::from(u32::MAX) {
            self.counts.extend([u32::MAX, 0]);
            length -= u64::from(u32::MAX);
        }
        self.counts.push(length as u32);
        self.last = place;
    }

    /// The runs of a picture of this size. No change may be beyond its end.
    pub(super) fn end(mut self, size: [u32; 2]) -> Rle {
        self.at(u64::from(size[0]) * u64::from(size[1]));
        Rle { size, counts: self.counts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infeed_core::error::ErrorKind;

    #[test]
    fn runs_are_as_long_as_the_picture() {
        let error = Rle::new([2, 3], vec![2, 3]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains("runs of 5 pixels for a mask of 2x3"), "{error}");
        assert!(Rle::new([u32::MAX; 2], vec![u32::MAX; 3]).is_err());
        assert!(Rle::new([0, 3], vec![]).is_ok());
    }

    #[test]
    fn bounds_hold_all_that_is_set() {
        let bounds = |size, counts: &[u32]| Rle::new(size, counts.to_vec()).unwrap().bounds();
        assert_eq!(bounds([4, 5], &[20]), None);
        assert_eq!(bounds([4, 5], &[0, 20]), Some([0, 0, 5, 4]));
        assert_eq!(bounds([4, 5], &[7, 1, 12]), Some([1, 3, 2, 4]), "the last pixel of a column");
        assert_eq!(bounds([4, 5], &[7, 2, 11]), Some([1, 0, 3, 4]), "it and the next column's first");
        assert_eq!(bounds([4, 5], &[1, 1, 15, 2, 1]), Some([0, 1, 5, 3]));
        assert_eq!(bounds([4, 5], &[3, 0, 6, 0, 2, 0, 9]), None, "runs without a length");
        assert_eq!(bounds([0, 5], &[0]), None);
        assert_eq!(bounds([0, 5], &[]), None);
    }

    #[test]
    fn runs_longer_than_a_count_are_several() {
        let size = [1 << 20, 1 << 13];
        let rle = Changes::default().end(size);
        assert_eq!(rle.counts(), [u32::MAX, 0, u32::MAX, 0, 2]);
        assert_eq!(Rle::new(size, rle.counts().to_vec()).unwrap().area(), 0);
    }
}
