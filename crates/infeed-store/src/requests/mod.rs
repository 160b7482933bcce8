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
//! - **Nothing is spawned.** A read with its retries and copies is one future: dropping it drops its requests, and who
//!   polls it through a gate knows that no request begins behind it. Its bytes may be hashed on a thread that is lent
//!   (`sums.rs`), which ends unheard then.
//! - **The client of a bucket retries no read.** `object_store` would back off each request alone, and a refusal would
//!   never get here.
//! - **Timers are made late.** A store that answers at once works without a runtime; where there is none, nothing is
//!   hedged and nothing has a deadline.

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
