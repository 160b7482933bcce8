//! The order of samples: computed, or taken from a list of the user ([`ListSampler`]).
//!
//! ```text
//! Schedule: step, row, rank ─▶ position ─▶ Sampler: record          LoaderState: (epoch, position) after a step
//!                                 ▲ one number, the same on all ranks, is all that a resume needs
//! ```
//!
//! Four things that are easy to get wrong:
//!
//! - A *position* is a place in an epoch's order, a *record* an index in the dataset. Ranks share positions, never
//!   records, so the order does not depend on the number of ranks.
//! - Keys are hashed from (purpose, seed, epoch), never added: with `seed + epoch`, runs with neighbouring seeds would
//!   share orders.
//! - An epoch need not hold each record once. In a [`Mixture`] it holds shares of several datasets, and positions count
//!   those. Which records of a part are next follows from the epoch's number; there are no counters, so none are saved.
//! - The default of `lanes` in [`Order::Blocks`] has to come from the saved state on resume, not from the new world
//!   size; otherwise the state does not fit, which is an error.
#![forbid(unsafe_code)]

pub use infeed_core::fingerprint::{Fingerprint, Fingerprinter};

mod base;
mod batches;
mod bucket;
mod launch;
mod length;
mod list;
mod mixture;
mod order;
mod permutation;
mod repeated;
mod schedule;
mod shard;
mod state;
mod steps;
mod weighted;

pub use base::Sampler;
pub use batches::Batches;
pub use bucket::BucketSampler;
pub use launch::Launch;
pub use length::LengthSampler;
pub use list::ListSampler;
pub use mixture::{Mixture, MixturePart, Share};
pub use order::{DEFAULT_GROUP, Order};
pub use permutation::Permutation;
pub use schedule::{LastBatch, Schedule, StepRows};
pub use shard::Shard;
pub use state::{Identity, LoaderState};
pub use steps::Steps;
pub use weighted::WeightedSampler;
