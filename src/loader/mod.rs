//! The face of infeed: a [`Loader`] made by its builder, giving streams of batches.
//!
//! ```text
//! Loader::builder(dataset) ─ settings ─ build().await ─▶ Loader ─ epoch(n) ─▶ BatchStream ─ .next().await ─▶ Batch
//!                                                           │                    └ .blocking(): a plain iterator
//!                                                           └ resume_epochs(&state, ..end): exactly the records not yet seen
//!
//!                          build_each([cuda:0, cuda:1]) ─▶ Loader (rank 0 of 2, on cuda:0) ─┐ decode threads, memory budget,
//!                                                          Loader (rank 1 of 2, on cuda:1) ─┴ cache, requests, parts: shared
//! ```
//!
//! One process with several devices is as many ranks as it has devices. What a rank is given then is what it would be given
//! in a process of its own, and nothing about order, state or report is new; what is saved is all that processes can't
//! share: threads that work for whoever lacks batches, the cache in memory, decoded volumes, and one budget.
//!
//! What a newcomer gets wrong:
//! - A loader is cheap to clone and makes many streams; its decoding threads are started once, by `build()`.
//! - Reading starts with the call of `epoch()`, not with the first poll: make the stream when you want the data.
//! - Loaders that were built together are for trainers on threads or tasks of their own. One trainer that takes from all in
//!   turn waits for the slowest, which is his doing.
//! - A batch that was handed over is yours. It no longer counts in the memory budget, and holding many is your choice.

#![forbid(unsafe_code)]

mod builder;
mod config;
mod fields;
mod handle;
mod memory;
mod mix;
mod monitor;
#[cfg(test)]
mod numbers;
mod order;
mod place;
mod resolve;
#[cfg(test)]
mod simulation;
mod start;
mod stream;
#[cfg(test)]
mod tests;
mod views;

pub use crate::engine::{Batch, BatchMut, FieldMut, IoRuntime, SampleMut};
pub use builder::LoaderBuilder;
pub use config::{LoaderConfig, OnBadSample};
pub use handle::Loader;
pub use monitor::Monitor;
pub use stream::{BatchStream, Blocking};
