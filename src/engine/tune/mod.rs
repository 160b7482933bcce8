//! Autotune: adjusts settings on `auto` during the run, namely the decode threads at work and the batches ahead.
//!
//! ```text
//! ten times a second, for the first of a loader's streams:
//!   what the trainer waited ─┐
//!   what the threads did ────┼─▶ control: a state machine on figures alone ─▶ one change ─▶ threads park or wake,
//!   processor time ──────────┘                                                              places for batches
//! ```
//!
//! **Goals**, in this order:
//! 1. the trainer does not wait;
//! 2. no more threads compute than this process has cores, and batches ahead stay within the memory budget;
//! 3. threads that are not needed rest: a trainer that computes on the same cores is faster with fewer decode threads.
//!
//! ```text
//! the trainer waits ┬ threads idle, no room for a batch; or all batches were there, then none ─▶ twice as many ahead
//!                   ├ fewer threads than cores ────▶ all of them, at once
//!                   ├ threads wait for files ──────▶ try more, up to what keeps the cores busy; kept if the rate rises
//!                   └ threads hinder each other ───▶ try three quarters; kept if the rate does not fall
//! it does not wait ─── threads idle ───────────────▶ as many as keep up; back when it waits
//! ```
//!
//! A change that had no gain is tried again later, each time after twice the time. The pause holds for all reasons of a
//! change, because a trainer that waits occasionally on shared cores would give one reason after the other. Order and
//! content of batches never depend on these numbers. A number that the user set never changes.
//!
//! Other code adjusts: requests in flight to a store (`source::requests`), how far bytes are read ahead
//! (`engine::fetch`), and records in a job ([`ChunkSize`](super::ChunkSize)). On a GPU, CPU threads, streams and
//! engines take images from one queue, so the division adjusts itself.

mod control;
mod follow;
mod poll_times;
mod shared;
#[cfg(test)]
mod sim;
#[cfg(test)]
mod tests;

pub(crate) use control::{Range, Scope};
pub(super) use follow::tune;
pub(super) use poll_times::PollTimes;
pub(super) use shared::StreamStart;
pub(crate) use shared::Tuning;
