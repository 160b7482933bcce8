//! The order of samples: arithmetic, and lists where the user has one ([`ListSampler`]).
//!
//! ```text
//! Schedule: step, row, rank ─▶ position ─▶ Sampler: record          LoaderState: (epoch, position) after a step
//!                                 ▲ one number, the same on all ranks, is all that a resume needs
//! ```
//!
//! Four things a newcomer would get wrong:
//! - A *position* is a place in an epoch's order, a *record* an index in the dataset. Ranks share positions out, never
//!   records, so the order does not depend on the number of ranks.
//! - Keys are hashed from (purpose, seed, epoch), never added up: `seed + epoch` makes neighbouring runs share orders.
//! - An epoch need not hold each record once: of a [`Mixture`] it holds shares of several datasets, and positions count
//!   those. Whose turn it is in a part follows from the number of the epoch; nothing is counted up, so nothing is saved.
//! - [`Order::Blocks`] has a default for its lanes that must come from the saved state on resume, not from the new
//!   world size; otherwise the state does not fit (and says so).
#![forbid(unsafe_code)]

pub use infeed_core::fingerprint::{Fingerprint, Fingerprinter};

mod base;
mod batches;
mod bucket;
mod launch;
mod list;
mod mixture;
mod order;
mod permutation;
mod repeated;
mod sagemaker;
mod schedule;
mod shard;
mod state;
mod steps;
mod weighted;

pub use base::Sampler;
pub use batches::Batches;
pub use bucket::BucketSampler;
pub use launch::Launch;
pub use list::ListSampler;
pub use mixture::{Mixture, MixturePart, Share};
pub use order::{DEFAULT_GROUP, Order};
pub use permutation::Permutation;
pub use sagemaker::{Channel, Distribution, InputMode, SageMaker};
pub use schedule::{LastBatch, Schedule, StepRows};
pub use shard::Shard;
pub use state::{Identity, LoaderState};
pub use steps::Steps;
pub use weighted::WeightedSampler;
