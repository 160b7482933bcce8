//! The share of a node's reads that its cache serves, when each epoch distributes the records anew.
//!
//! A node reads a given record in an epoch with probability `p = 1 / nodes`, independent of earlier epochs. So its next
//! use is `k` epochs ahead with probability `p (1 - p)^(k - 1)`. The cache keeps what this node needs soonest
//! (`source::cache::policy`); it can compute next uses 8 epochs ahead (`engine::cached::next_use`). A record that waits
//! `k` epochs for its next use occupies space for `k` epochs. So serving a share `h` of the reads, the soonest first,
//! takes
//!
//! ```text
//! need(h) = p · Σ k · x_k      of the dataset; x_k = p (1 - p)^(k - 1) while Σ x_k <= h; uses after 8 epochs
//!                              are not told apart and wait 8 + 1 / p on average
//! ```
//!
//! The hit rate of a settled cache is the `h` with `need(h) = size`. Before that, it serves the records read in earlier
//! epochs: `1 - (1 - p)^e` of the reads of epoch `e`, counted from 0.
//!
//! Compared with a simulation that runs the policy's code and the real permutation (1,670 points: 1 to 256 nodes,
//! caches of 1 to 100 % of the data, 5 to 90 epochs, 1 to 8 processes): the mean over the epochs from the second is at
//! most 0.032 off.

use std::ops::Range;

/// Epochs that the cache looks ahead: `FAR` of `next_use`.
const FAR: u32 = 8;

/// Epochs that an entry keeps its space after another process of the machine used it, although it is not needed soon:
/// the process that wrote the entry sees this use only in the next epoch. Fitted to the simulation (75 points, root
/// mean square 0.010).
const UNNOTICED: f64 = 0.9;

/// The part of its epoch that a rank may read ahead before the cache serves less than this model states, with one
/// process per node and with several. Entries then wait longer to be read (simulated: up to 0.03 less at these values,
/// 0.3 less at a whole epoch).
pub(super) const fn most_ahead(processes: f64) -> f64 {
    if processes > 1.0 { 1.0 / 3.0 } else { 0.05 }
}

/// A cache of one node.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeCache {
    /// Nodes that share an epoch.
    pub(super) nodes: f64,
    /// Its size as a fraction of the dataset.
    pub(super) part: f64,
    /// Processes that share it.
    pub(super) processes: f64,
}

impl NodeCache {
    /// The share of the reads that it serves once it has settled.
    pub(super) fn settled(&self) -> f64 {
        if self.nodes <= 1.0 {
            // Every entry is needed in the next epoch, so none is replaced.
            return self.part.min(1.0);
        }
        // `need` grows with the share, so bisect.
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            if self.need(middle) <= self.part { low = middle } else { high = middle }
        }
        low
    }

    /// The size, as a fraction of the dataset, that serves this share of the reads.
    fn need(&self, hits: f64) -> f64 {
        let p = 1.0 / self.nodes;
        let (mut left, mut waits, mut share) = (hits, 0.0, p);
        for k in 1..=FAR {
            let served = share.min(left);
            waits += served * f64::from(k);
            left -= served;
            share *= 1.0 - p;
        }
        waits += left * (f64::from(FAR) + self.nodes);
        let others = 1.0 - 1.0 / self.processes;
        p * (waits + UNNOTICED * others * hits * (1.0 - hits))
    }

    /// The share of the reads of an epoch that it serves, epochs counted from 0.
    pub(super) fn hits(&self, epochs: Range<u64>) -> impl Iterator<Item = f64> {
        let (cache, settled) = (*self, self.settled());
        epochs.map(move |epoch| cache.hits_of(epoch, settled))
    }

    fn hits_of(&self, epoch: u64, settled: f64) -> f64 {
        // After 2^31 epochs every record was read.
        let epoch = i32::try_from(epoch).unwrap_or(i32::MAX);
        let seen = 1.0 - (1.0 - 1.0 / self.nodes).powi(epoch);
        seen.min(settled)
    }

    /// The mean over the epochs from the second to the last; 0 for fewer than two epochs.
    pub(super) fn mean_hits(&self, epochs: u64) -> f64 {
        if epochs < 2 {
            return 0.0;
        }
        self.hits(1..epochs).sum::<f64>() / (epochs - 1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(nodes: f64, part: f64) -> NodeCache {
        NodeCache { nodes, part, processes: 1.0 }
    }

    #[test]
    fn one_node_is_served_what_its_cache_holds_of_the_data() {
        for part in [0.0, 0.01, 0.5, 0.99, 1.0, 7.0] {
            assert_eq!(cache(1.0, part).settled(), part.min(1.0));
            assert!((cache(1.0, part).mean_hits(9) - part.min(1.0)).abs() < 1e-9);
        }
    }

    #[test]
    fn a_cache_of_all_of_it_serves_all_in_the_end() {
        for nodes in [1.0, 2.0, 7.0, 64.0, 1000.0] {
            for part in [1.0, 3.0] {
                let settled = cache(nodes, part).settled();
                assert!(settled > 1.0 - 1e-9, "{nodes} nodes: {settled}");
            }
            assert!(cache(nodes, 0.0).settled() < 1e-9);
        }
    }

    #[test]
    fn by_hand() {
        // Half of what is read is needed in the next epoch, and waits for it one epoch: a quarter of the data.
        assert!((cache(2.0, 0.25).settled() - 0.5).abs() < 1e-9);
        // A quarter more after two epochs, for as much space again.
        assert!((cache(2.0, 0.5).settled() - 0.75).abs() < 1e-9);
        assert!((cache(2.0, 0.25).mean_hits(90) - 0.5).abs() < 1e-9);
        // Never full: what was seen before.
        let tenth = cache(1000.0, 0.5).hits(10..11).next().unwrap();
        assert!((tenth - (1.0 - 0.999_f64.powi(10))).abs() < 1e-9);
    }

    #[test]
    fn more_space_serves_more_and_never_less_than_keeping_what_came_first() {
        for nodes in [2.0, 3.0, 16.0, 64.0, 1000.0] {
            let mut before = 0.0;
            for part in (0..=100).map(|percent| f64::from(percent) / 100.0) {
                let settled = cache(nodes, part).settled();
                assert!(settled >= before && settled >= part - 1e-9, "{nodes} nodes, {part}: {settled} after {before}");
                before = settled;
                for processes in [2.0, 8.0] {
                    let shared = NodeCache { processes, ..cache(nodes, part) };
                    assert!(shared.settled() <= settled + 1e-9, "{nodes} nodes, {part}");
                }
            }
        }
    }
}
