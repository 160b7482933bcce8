//! A list of batches of different sizes.
#![forbid(unsafe_code)]

use std::sync::Arc;

use infeed_core::error::{Error, Result};

/// The batches of an epoch, as ranges of positions whose sizes may differ; see
/// [`Sampler::batches`](super::Sampler::batches).
///
/// Memory: 8 bytes a batch, shared by clones.
///
/// ```
/// use infeed::sampler::Batches;
/// let batches = Batches::new([3, 1, 2])?;
/// assert_eq!((batches.ends(), batches.positions()), (&[3, 4, 6][..], 6));
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batches {
    /// Strictly ascending, the first above 0, so each batch has at least one row.
    ends: Arc<[u64]>,
    /// Whether ranks share them.
    of_ranks: bool,
}

impl Batches {
    /// Batches of these numbers of rows, one after another from an epoch's first position on.
    ///
    /// # Errors
    /// `Config` if a batch has no rows (the message names its index in the list), or if there are more than 2^64 - 1
    /// positions.
    pub fn new(sizes: impl IntoIterator<Item = usize>) -> Result<Self> {
        let mut positions = 0u64;
        let end = |(batch, size): (usize, usize)| {
            if size == 0 {
                return Err(Error::config(format!("batch {batch} of the list has no rows")).with_hint("omit it"));
            }
            let end = positions.checked_add(size as u64);
            positions = end.ok_or_else(|| Error::config("the batches of the list have more than 2^64 - 1 rows"))?;
            Ok(positions)
        };
        let ends = sizes.into_iter().enumerate().map(end).collect::<Result<_>>()?;
        Ok(Self { ends, of_ranks: false })
    }

    /// The same for any number of ranks: the batches of a step follow one another, one for each rank. If an epoch ends
    /// with fewer batches than ranks, these are left out.
    ///
    /// ```
    /// use infeed::sampler::Batches;
    /// assert!(Batches::new([3, 1, 2])?.for_ranks().is_for_ranks());
    /// # Ok::<(), infeed::Error>(())
    /// ```
    #[must_use]
    pub fn for_ranks(self) -> Self {
        Self { of_ranks: true, ..self }
    }

    /// Whether ranks share the batches; otherwise they are those of one rank.
    #[must_use]
    pub const fn is_for_ranks(&self) -> bool {
        self.of_ranks
    }

    /// The position after each batch.
    #[must_use]
    pub fn ends(&self) -> &[u64] {
        &self.ends
    }

    /// Number of positions of all batches together.
    #[must_use]
    pub fn positions(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Number of rows of each batch.
    pub fn sizes(&self) -> impl Iterator<Item = u64> {
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        self.ends.iter().zip(starts).map(|(end, start)| end - start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_and_sizes_are_those_that_were_given() {
        let batches = Batches::new([4, 1, 7]).unwrap();
        assert_eq!(batches.sizes().collect::<Vec<_>>(), [4, 1, 7]);
        assert_eq!((batches.ends(), batches.positions()), (&[4, 5, 12][..], 12));
        let none = Batches::new([]).unwrap();
        assert_eq!((none.sizes().count(), none.positions()), (0, 0));
    }

    #[test]
    fn batches_that_can_not_be_are_refused_by_their_place() {
        for (sizes, want) in
            [(&[2, 0, 1][..], "batch 1 of the list has no rows"), (&[usize::MAX; 2], "more than 2^64 - 1 rows")]
        {
            let error = Batches::new(sizes.iter().copied()).unwrap_err();
            assert!(error.to_string().contains(want), "{error}");
        }
    }
}
