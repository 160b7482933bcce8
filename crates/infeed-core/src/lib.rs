//! What every crate of infeed uses. **Internal: no promise of stability**; users depend on `infeed`.
//!
//! ```text
//! types     element types, layouts, devices, the shape of an image; names as they are printed, and those that were meant
//! error     one error type: what, where, what to do     setting   what errors call a setting
//! random    draws by counters                            fingerprint   hashes of datasets
//! report    the figures of a run
//! rows      memory of batches ◀─ buffer  what a driver of a GPU implements for it;  handles, gpu  what is told of one
//! machine, numa, process, threads, disk     what the system says of the machine and of this process
//! ```
//!
//! **Boundary**: no I/O but what the system says of itself, no task, no thread, no driver of a GPU.
//!
//! `unsafe` stands in `rows`, for memory that several threads write at once, and in `threads` and `disk`, for calls
//! of the system. What each promises to safe callers:
//!
//! | file | promise |
//! |---|---|
//! | [`rows`] | disjoint mutable rows of one allocation can be sent to different threads and put together again; memory is always initialised |
//! | [`buffer`] | what rows ask of memory that a driver gave; whoever implements it promises what is said there |
//! | [`handles`] | names of streams and events, whose makers vouch for them |
//! | [`disk`] | asks the system how much room there is, or to forget what it keeps of a file; a refusal is no error |
//! | [`machine`], [`numa`], [`process`] | read what the system says; what it does not say is `None`, or changes nothing |
//! | [`threads`] | changes how and where the calling thread is scheduled, or tells its processor time; a refusal is no error |
#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "what is implemented is a promise, see there")]
pub mod buffer;
#[allow(unsafe_code, reason = "calls of the system")]
pub mod disk;
pub mod error;
pub mod fingerprint;
pub mod gpu;
#[allow(unsafe_code, reason = "names whose makers vouch for them")]
pub mod handles;
pub mod machine;
pub mod numa;
pub mod process;
pub mod random;
pub mod report;
#[allow(unsafe_code, reason = "memory that several threads write at once")]
pub mod rows;
pub mod setting;
#[allow(unsafe_code, reason = "calls of the system")]
pub mod threads;
pub mod types;
