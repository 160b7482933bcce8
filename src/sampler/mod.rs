//! The order of samples: arithmetic, no lists.
//!
//! ```text
//! Schedule: step, row, rank ─▶ position ─▶ Sampler: record          LoaderState: (epoch, position) after a step
//!                                 ▲ one number, the same on all ranks, is all that a resume needs
//! ```
//!
//! Three things a newcomer would get wrong:
//! - A *position* is a place in an epoch's order, a *record* an index in the dataset. Ranks share positions out, never
//!   records, so the order does not depend on the number of ranks.
//! - Keys are hashed from (purpose, seed, epoch), never added up: `seed + epoch` makes neighbouring runs share orders.
//! - [`Order::Blocks`] has a default for its lanes that must come from the saved state on resume, not from the new
//!   world size; otherwise the state does not fit (and says so).
#![forbid(unsafe_code)]

use std::fmt::Debug;

pub use crate::fingerprint::{Fingerprint, Fingerprinter};

mod order;
mod permutation;
mod sagemaker;
mod schedule;
mod shard;
mod state;
mod weighted;

pub use order::{DEFAULT_GROUP, Order};
pub use permutation::Permutation;
pub use sagemaker::{Channel, Distribution, InputMode, SageMaker};
pub use schedule::{LastBatch, Schedule, StepRows};
pub use shard::Shard;
pub use state::{Identity, LoaderState};
pub use weighted::WeightedSampler;

/// Maps places in an epoch to records. Pure and quick: O(1), or O(log groups) for [`Order::Blocks`].
pub trait Sampler: Debug + Send + Sync + 'static {
    /// Positions in an epoch.
    fn len(&self) -> u64;
    /// Whether an epoch has no positions.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Records of the dataset that this sampler was made for; each `record` is below it.
    fn records(&self) -> u64 {
        self.len()
    }
    /// The record at `position` (below `len`, or it may panic) of `epoch`.
    fn record(&self, epoch: u64, position: u64) -> u64;
    /// The inverse of `record`; `None` when the sampler is no bijection or there is no such record.
    fn position(&self, epoch: u64, record: u64) -> Option<u64>;
    /// Whether each record comes exactly once an epoch.
    fn is_bijection(&self) -> bool {
        true
    }
    /// One line for people and for state mismatches, such as `random, seed 42`.
    fn describe(&self) -> String;
    /// Identity of the order.
    fn fingerprint(&self) -> Fingerprint;
}
