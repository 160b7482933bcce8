//! What every crate of infeed uses. **Internal: no promise of stability**; users depend on `infeed`.
//!
//! ```text
//! types     element types, layouts, devices, the shape of an image; printing names, suggestions for mistyped ones
//! error     one error type: what, where, what to do     setting   how errors name a setting
//! random    counter-based draws                          fingerprint   hashes of datasets
//! report    the figures of a run
//! rows      memory of batches ◀─ buffer  what a GPU driver implements for it;  handles, gpu  facts about a GPU
//! machine, numa, process, threads, disk     what the system reports about the machine and this process
//! ```
//!
//! **Boundary**: no I/O except reading what the system reports about itself; no task, no thread, no GPU driver.
//!
//! `unsafe` is used in `rows`, for memory that several threads write at once, and in `threads` and `disk`, for system
//! calls. What each file promises to safe callers:
//!
//! | file | promise |
//! |---|---|
//! | [`rows`] | disjoint mutable rows of one allocation can be sent to different threads and put together again; memory is always initialised |
//! | [`buffer`] | the traits that `rows` requires of memory from a driver; each implementor guarantees what is written there |
//! | [`handles`] | names of streams and events; their creators guarantee that they are valid |
//! | [`disk`] | asks the system for the free space, or to drop a file from the page cache; a refusal is not an error |
//! | [`machine`], [`numa`], [`process`] | read what the system reports; anything it does not report is `None` or changes nothing |
//! | [`memory`] | asks the allocator to return freed memory to the system |
//! | [`threads`] | changes how and where the calling thread is scheduled, or reads its processor time; a refusal is not an error |
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
#[allow(unsafe_code, reason = "a call of the allocator")]
pub mod memory;
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
