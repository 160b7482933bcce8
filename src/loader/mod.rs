//! Loaders: the builder and its settings, the [`Loader`], its streams of batches, and monitors of streams.
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
//! In one process each device is a rank. A rank gets the same batches, states and reports as in a process of its own.
//! One process saves what processes cannot share: decode threads (they work for the rank that lacks batches), the cache
//! in memory, decoded volumes, and the memory budget.
//!
//! Easy to get wrong:
//! - A loader is cheap to clone and makes many streams; `build()` starts its decode threads once.
//! - Reading starts with the call of `epoch()`, not with the first poll: make the stream when you need the data.
//! - Give each jointly built loader its own thread or task. A single trainer that polls them in turn runs at the pace
//!   of the slowest.
//! - A batch that was handed over is yours. It no longer counts in the memory budget; keep as many as you like.

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
