//! The face of infeed: a [`Loader`] made by its builder, giving streams of batches.
//!
//! ```text
//! Loader::builder(dataset) ─ settings ─ build().await ─▶ Loader ─ epoch(n) ─▶ BatchStream ─ .next().await ─▶ Batch
//!                                                           │                    └ .blocking(): a plain iterator
//!                                                           └ resume_epochs(&state, ..end): exactly the records not yet seen
//! ```
//!
//! Three things a newcomer gets wrong:
//! - A loader is cheap to clone and makes many streams; its decoding threads are started once, by `build()`.
//! - Reading starts with the call of `epoch()`, not with the first poll: make the stream when you want the data.
//! - A batch that was handed over is yours. It no longer counts in the memory budget, and holding many is your choice.

#![forbid(unsafe_code)]

mod builder;
mod config;
mod handle;
mod memory;
mod monitor;
mod order;
mod place;
mod resolve;
mod start;
mod stream;
#[cfg(test)]
mod tests;

pub use crate::engine::{Batch, IoRuntime};
pub use builder::LoaderBuilder;
pub use config::{LoaderConfig, OnBadSample};
pub use handle::Loader;
pub use monitor::Monitor;
pub use stream::{BatchStream, Blocking};
