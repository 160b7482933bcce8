//! Everything between "read this range of this object" and one request to a remote store.
//!
//! ```text
//! Extent ─ cut (16 MiB) ─▶ piece ─ attempt 1..n ─▶ race ─┬─ copy: permit, GET, check, drain ─▶ bytes
//!                            │ retry, back off      │    └─ second copy when the first is slow (hedge)
//!                            │                      └ deadline
//!                            └ Requests, one for each store and process: limit (AIMD), pause, p95, credit for copies,
//!                              since when nothing was answered (trouble)
//! ```
//!
//! Three things that are easy to get wrong:
//!
//! - **Nothing is spawned.** A read with its retries and copies is one future. Dropping it drops its requests, and a
//!   caller that polls it through a gate can rely on no request beginning after the gate is closed. Its bytes may be
//!   hashed on a thread that the engine provides (`checksum/hash_threads.rs`); after a drop that result is ignored.
//! - **The client of a bucket never retries a read.** `object_store` would back off each request by itself, and a
//!   refusal would never be seen here.
//! - **Timers are created late.** A store that answers at once works without a runtime. Without a runtime there is no
//!   hedging and there are no deadlines.

mod clock;
mod hedge;
mod limit;
mod permits;
mod read;
mod reader;
mod trouble;

pub(super) use permits::Requests;
pub(super) use read::read;
pub use reader::Reader;

#[cfg(test)]
mod tests;
