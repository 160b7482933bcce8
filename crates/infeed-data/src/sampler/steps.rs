//! The steps of a rank through the rest of an epoch: equal ones, or batches that the sampler lists.
#![forbid(unsafe_code)]

use std::num::NonZeroUsize;

use super::{
    base::Sampler,
    batches::Batches,
    schedule::{LastBatch, Schedule, StepRows},
    shard::Shard,
};

/// Which rank takes which positions at which step.
#[derive(Clone, Debug)]
pub enum Steps {
    /// Batches of one size, on any number of ranks.
    Even(Schedule),
    /// Batches of different sizes.
    Listed(Listed),
}

/// The remaining listed batches.
#[derive(Clone, Debug)]
pub struct Listed {
    batches: Batches,
    start: u64,
    /// The first batch that ends after `start`. If `start` is within a batch, the first step begins with the rest of it.
    first: usize,
    /// The number of batches in a step, and which of them this rank takes.
    world: u64,
    rank: u64,
}

impl Steps {
    /// The steps of an epoch of `sampler` from position `start` on. Listed batches ignore the other settings.
    pub fn of(sampler: &dyn Sampler, start: u64, batch: NonZeroUsize, shard: Shard, last: LastBatch) -> Self {
        match sampler.batches() {
            None => Self::Even(Schedule::new(sampler.len(), start, batch, shard, last)),
            Some(batches) => Self::Listed(Listed::new(batches.clone(), start, shard)),
        }
    }

    /// Number of steps, the same on every rank.
    pub fn count(&self) -> u64 {
        match self {
            Self::Even(schedule) => schedule.steps(),
            Self::Listed(listed) => listed.count(),
        }
    }

    /// Number of samples of this rank over all steps, without padding.
    pub fn samples(&self) -> u64 {
        match self {
            Self::Even(schedule) => schedule.rows_of_rank(),
            Self::Listed(listed) => (0..listed.count()).map(|step| listed.rows(step).count() as u64).sum(),
        }
    }

    /// The positions that this rank takes at `step`, in row order; none if `step` is not below [`count`](Self::count).
    pub fn rows(&self, step: u64) -> StepRows {
        match self {
            Self::Even(schedule) => schedule.rows(step),
            Self::Listed(listed) => StepRows::of(listed.rows(step)),
        }
    }

    /// Epoch and position after `step` of `epoch`, where a run continues; see [`Schedule::place_after`].
    pub fn place_after(&self, epoch: u64, step: u64) -> (u64, u64) {
        match self {
            Self::Even(schedule) => schedule.place_after(epoch, step),
            Self::Listed(listed) if step.saturating_add(1) >= listed.count() => (epoch.saturating_add(1), 0),
            Self::Listed(listed) => (epoch, listed.end(listed.world * (step + 1) - 1)),
        }
    }
}

impl Listed {
    fn new(batches: Batches, start: u64, shard: Shard) -> Self {
        let first = batches.ends().partition_point(|end| *end <= start);
        let (world, rank) = if batches.is_for_ranks() { (shard.world(), shard.rank()) } else { (1, 0) };
        Self { batches, start, first, world: world.into(), rank: rank.into() }
    }

    fn count(&self) -> u64 {
        (self.batches.ends().len() - self.first) as u64 / self.world
    }

    /// The positions that this rank takes at `step`; none if there is no such step.
    fn rows(&self, step: u64) -> std::ops::Range<u64> {
        if step >= self.count() {
            return 0..0;
        }
        let batch = self.world * step + self.rank;
        let start = batch.checked_sub(1).map_or(self.start, |before| self.end(before));
        start..self.end(batch)
    }

    /// The position after a batch, counted from the first one, or after all batches if there are fewer.
    fn end(&self, batch: u64) -> u64 {
        let batch = usize::try_from(batch).unwrap_or(usize::MAX).saturating_add(self.first);
        self.batches.ends().get(batch).copied().unwrap_or_else(|| self.batches.positions().max(self.start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The positions of each step, and where a run that stops behind it goes on.
    fn walk(sizes: &[usize], start: u64) -> Vec<(Vec<u64>, (u64, u64))> {
        let steps = Steps::Listed(Listed::new(Batches::new(sizes.iter().copied()).unwrap(), start, Shard::default()));
        for beyond in [steps.count(), steps.count() + 1, u64::MAX] {
            assert_eq!((steps.rows(beyond).len(), steps.place_after(7, beyond)), (0, (8, 0)));
        }
        let rows = |step| {
            assert_eq!(steps.rows(step).valid(), steps.rows(step).len());
            steps.rows(step).collect()
        };
        let walked: Vec<(Vec<u64>, _)> =
            (0..steps.count()).map(|step| (rows(step), steps.place_after(7, step))).collect();
        assert_eq!(steps.samples(), walked.iter().map(|(rows, _)| rows.len() as u64).sum::<u64>());
        walked
    }

    #[test]
    fn steps_are_the_batches_of_the_list() {
        let want = [(vec![0, 1, 2], (7, 3)), (vec![3], (7, 4)), (vec![4, 5], (8, 0))];
        assert_eq!(walk(&[3, 1, 2], 0), want);
        assert_eq!(walk(&[3, 1, 2], 3), want[1..]);
        assert_eq!(walk(&[3, 1, 2], 4), want[2..]);
    }

    #[test]
    fn the_rest_of_a_batch_comes_first() {
        assert_eq!(walk(&[3, 1, 2], 1), [(vec![1, 2], (7, 3)), (vec![3], (7, 4)), (vec![4, 5], (8, 0))]);
        assert_eq!(walk(&[3, 1, 2], 5), [(vec![5], (8, 0))]);
    }

    #[test]
    fn ranks_take_the_batches_of_a_step_one_after_another() {
        let batches = Batches::new([3, 1, 2, 4, 1]).unwrap().for_ranks();
        let of = |rank, start| Steps::Listed(Listed::new(batches.clone(), start, Shard::new(rank, 2).unwrap()));
        let rows = |steps: &Steps| -> Vec<Vec<u64>> { (0..4).map(|step| steps.rows(step).collect()).collect() };
        let [first, second] = [of(0, 0), of(1, 0)];
        assert_eq!(rows(&first), [vec![0, 1, 2], vec![4, 5], vec![], vec![]]);
        assert_eq!(rows(&second), [vec![3], vec![6, 7, 8, 9], vec![], vec![]]);
        assert_eq!((first.count(), first.samples(), second.samples()), (2, 5, 5));
        // All ranks go on at the same place; what does not fill a step is left out.
        assert_eq!([0, 1].map(|step| second.place_after(7, step)), [(7, 4), (8, 0)]);
        assert_eq!(first.place_after(7, 0), (7, 4));
        // Resumed by one rank, or within a batch.
        assert_eq!(
            rows(&Steps::Listed(Listed::new(batches.clone(), 4, Shard::default())))[..2],
            [vec![4, 5], vec![6, 7, 8, 9]]
        );
        assert_eq!(rows(&of(0, 1))[..1], [vec![1, 2]]);
    }

    #[test]
    fn nothing_is_left_at_the_end_and_of_nothing() {
        for (sizes, start) in [(&[3, 1][..], 4), (&[3, 1], 9), (&[], 0), (&[], u64::MAX)] {
            assert_eq!(walk(sizes, start), []);
        }
    }
}
