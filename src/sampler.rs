//! The order of samples: computed, or listed by the user ([`ListSampler`]).
//!
//! ```text
//! Schedule: step, row, rank ─▶ position ─▶ Sampler: record          LoaderState: (epoch, position) after a step
//!                                 ▲ one number, the same on all ranks, is all that a resume needs
//! ```
//!
//! Easy to get wrong:
//! - A *position* is a place in an epoch's order, a *record* an index in the dataset. Ranks divide positions, not
//!   records, so the order does not depend on the number of ranks.
//! - Keys are hashed from (purpose, seed, epoch), never added: with `seed + epoch` neighbouring runs would share
//!   orders.
//! - An epoch may hold a record more than once or not at all: with a [`Mixture`] it holds shares of several datasets.
//!   The records of each part follow from the number of the epoch alone, so no counter has to be saved.
//! - The default number of lanes of [`Order::Blocks`] follows the world size. On resume it must come from the saved
//!   state, not from the new world size; otherwise resuming fails with an error.

#[doc(inline)]
pub use infeed_core::fingerprint::{Fingerprint, Fingerprinter};
#[doc(inline)]
pub use infeed_data::sampler::{
    Batches, BucketSampler, DEFAULT_GROUP, Identity, LastBatch, Launch, LengthSampler, ListSampler, LoaderState,
    Mixture, MixturePart, Order, Permutation, Sampler, Schedule, Shard, Share, StepRows, WeightedSampler,
};
