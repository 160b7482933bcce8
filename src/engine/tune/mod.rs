//! Settings on `auto` that follow the run: decode threads at work, and batches ahead of the trainer.
//!
//! ```text
//! ten times a second, for the first of a loader's streams:
//!   what the trainer waited ─┐
//!   what the threads did ────┼─▶ control: a state machine on figures alone ─▶ one change ─▶ threads park or wake,
//!   processor time ──────────┘                                                              places for batches
//! ```
//!
//! **What it is after**, in this order:
//! 1. the trainer does not wait;
//! 2. no more threads compute than this process has cores, and batches ahead stay within the memory budget;
//! 3. what is left over is not spent: a trainer that computes on the same cores is faster beside fewer threads.
//!
//! ```text
//! the trainer waits ┬ threads idle, no room for a batch; or all batches were there, then none ─▶ twice as many ahead
//!                   ├ fewer threads than cores ────▶ all of them, at once
//!                   ├ threads wait for files ──────▶ try more, up to what keeps the cores busy; kept if the rate rises
//!                   └ threads hinder each other ───▶ try three quarters; kept if the rate does not fall
//! it does not wait ─── threads idle ───────────────▶ as many as keep up; back when it waits
//! ```
//!
//! What did not pay is tried again later, each time after twice as long; for whichever reason, as a trainer that waits now
//! and then on cores that others use would give one reason after the other. Order and content of batches never depend on any
//! of it. A number that the user set is never touched.
//!
//! What follows the run elsewhere: requests in flight to a store (`source::requests`), how far bytes are read ahead
//! (`engine::fetch`), records in a job ([`ChunkSize`](super::ChunkSize)), and who decodes which image on a GPU: CPU
//! threads, streams and engines take from one queue, so each gets what it can do.

mod asking;
mod control;
mod follow;
mod shared;
#[cfg(test)]
mod sim;
#[cfg(test)]
mod tests;

pub(super) use asking::Asking;
pub(crate) use control::{Range, Scope};
pub(super) use follow::tune;
pub(crate) use shared::Tuning;
pub(super) use shared::Turn;
