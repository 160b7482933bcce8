//! The only room that runs things: tasks, threads, channels and limits.
//!
//! ```text
//!  the caller's thread          the I/O runtime's thread (one, or several)                  decode threads
//!  ───────────────────          ──────────────────────────────────────────                  ──────────────
//!  epoch() ─ Run::start ──────▶ admit: for each batch, in plan order
//!                                 seat in the channel           ◀─ freed when polled
//!                                 local, resident: rows, then jobs ───────────────────────▶ queue ─▶ read, parse,
//!                                 remote: encoded bytes ─▶ fetch ─▶ place: rows, then jobs ▶        decode into rows
//!                                 parts that records share ─▶ fetch ──────────────────────▶         decode, kept for all
//!                                 by the dataset: the same, each read a blocking thread's
//!                                 cached: look up at fetch, read with the job; fresh bytes ─▶ a blocking thread writes
//!                                 decoded before: nothing to read; the job takes the pixels (`decoded.rs`)
//!  poll_next ◀──────────────────── one oneshot per batch ◀──────────── the last job of a batch mixes and seals it
//! ```
//!
//! Nothing runs on the caller's runtime but `poll_next`: a trainer that blocks its thread for a step, a
//! `current_thread` runtime, `select!`, or no runtime at all make no difference to how far the engine reads ahead.
//!
//! **Limits** are semaphores whose permit travels with what it guards:
//! - *seats*: batches announced to the stream and not yet polled;
//! - *rows*: batches that may own memory for their rows, until the poll that hands them over (`permits.rs`); in host memory they
//!   take it when the first of their jobs writes;
//! - *volumes*: batches of them that are begun before the oldest is whole, and while the trainer may give buffers back
//!   (`run_ahead.rs`); their rows are all that is large;
//! - *threads*: decode threads at work, the others park (`queue.rs`); whether these or a GPU's engines decode first
//!   (`precedence.rs`);
//! - *encoded*: bytes read ahead and not yet decoded, those of parts among them, in units of 64 KiB;
//! - *parts*: what records share, decoded, such as volumes and row groups, within a reserve of its own (`shared_parts.rs`);
//! - *requests*: in flight, of this stream if `io_concurrency` is set, and of the whole process for each store;
//! - *slots*: calls in which the dataset reads records itself, of all streams of the loader (`read_slots.rs`).
//!
//! Threads and rows that are on `auto` follow the run (`tune`); requests and the bytes read ahead do so by themselves.
//!
//! **What decode threads share** is touched once or twice a job, not a record: the queue's lock, the totals of a stage,
//! a count of jobs in the batch. A job is 0.7 ms of work ([`ChunkSize`]), so 64 threads take some 90,000 of them a
//! second. Batches of one record, which need a job, a seat, rows and a channel each, pass through all of it at 63,000
//! to 92,000 a second on two cores, every other cost included (CIFAR-100, `infeed run --batch-size 1`): holding locks
//! is a small part of those 20 µs. What an image touches is the decode index, a lock of 256 for a look. More than two
//! cores were not at hand to measure it there.
//!
//! **No deadlock**: seats, rows and encoded bytes are taken in plan order, so the batch that the trainer waits for
//! always holds what it needs, or waits only for jobs that wait for nothing.
//!
//! **Several devices**: loaders that were built together share the [`Workers`] and most of [`LoaderShared`]. Each has seats,
//! rows, encoded bytes and a lane of the queue of its own, so one whose trainer stands still, or whose GPU is lost, holds
//! nothing that another waits for; jobs in hand always end.
//!
//! **What records share** (a row group, a chunk of an array, a compressed shard or volume) is named by their plans. With the
//! first record ahead that needs a part and finds it neither decoded nor on its way, its bytes are read: in plan order, within
//! the permits of that record's group, through the same cache, limits and retries (`fetch.rs`). When they are here, a job
//! decodes the part if there is memory for it, on half of the threads at most; its records follow as soon as all their parts
//! have come. A decode thread that finds a part missing nevertheless (it gave way to others, or lies in a file) reads it
//! itself, and waits.
//!
//! **Cancellation**: dropping the stream closes the [`Gate`](gate::Gate) and the [`LocalReads`](local_reads::LocalReads) (no
//! read begins afterwards, and whoever waits for something of the stream wakes), aborts the tasks and empties the queue. A
//! running job owns its rows and ends in peace. A file system that hangs keeps the threads that it hangs, and nobody else.
//!
//! **Files**, each of which imports files to its right only:
//!
//! ```text
//! run ─ admit ─ fetch ─ workers ─ decode_thread ─ task ─┬ assembly ────────┬ stream ─┬ plan ──────────┬ batch, timeline, fields,
//!   └── tune/follow ──┤                                 └ read_parts ──────┤         ├ loader_shared ─┤ chunk, permits, gate, map,
//!                     └ dataset_reads ──────────────────── encoded ────────┤         ├ shared_parts ──┤ queue, io_runtime, mix,
//!                                                          read_here ──────┤         ├ decoded ───────┤ read_slots, run_ahead,
//!                                                          cached ─────────┘         └ local_reads ───┘ precedence, pieces,
//!                                                                                                       kept_files, under_way,
//!                                                                                                       block_on
//! ```
//!
//! What the streams of a loader share ([`LoaderShared`]) owns nothing that runs: a loader and its streams hold the
//! [`Workers`], whose threads know streams by the jobs they bring.

#![forbid(unsafe_code)]

mod admit;
mod assembly;
mod batch;
mod batch_rows;
mod block_on;
mod buffers;
#[cfg(test)]
mod by_hand;
mod cached;
mod chunk;
mod dataset_reads;
mod decode_thread;
mod decoded;
mod encoded;
mod fetch;
mod fields;
mod gate;
mod instances;
mod io_runtime;
mod kept_files;
mod loader_shared;
mod local_reads;
mod map;
mod mix;
mod permits;
mod pieces;
mod plan;
mod precedence;
mod queue;
mod read_here;
mod read_parts;
mod read_slots;
mod riding;
mod run;
mod run_ahead;
mod shared_parts;
mod stream;
mod task;
mod timeline;
mod tune;
mod under_way;
mod workers;
mod write_fields;

pub use batch::Batch;
pub(crate) use block_on::block_on;
#[cfg(test)]
pub(crate) use by_hand::Hands;
pub(crate) use chunk::{ChunkSize, READ_BYTES};
pub(crate) use decode_thread::Meters;
pub(crate) use decoded::DecodedCache;
pub(crate) use fields::{FieldInstances, FieldRows, LoweredField, SoftLabels, fill, lower_field};
pub use instances::{BatchInstances, RowInstances};
pub(crate) use io_runtime::off_thread;
pub use io_runtime::{IoRuntime, can_start_threads};
pub(crate) use loader_shared::{BadRows, Limits, LoaderShared, reads_ahead};
pub(crate) use map::Maps;
pub use map::{BatchMut, FieldMut, SampleMut};
pub(crate) use mix::BatchMix;
pub(crate) use permits::whole_units;
pub(crate) use plan::RecordOrder;
pub(crate) use precedence::First;
pub(crate) use queue::READY_BYTES;
pub(crate) use read_slots::ReadSlots;
pub(crate) use run::{Levels, Run};
pub(crate) use shared_parts::SharedParts;
pub(crate) use stream::{Facts, Watch};
pub(crate) use timeline::Timeline;
pub(crate) use tune::{Range, Scope, Tuning};
pub(crate) use workers::{Workers, check_decoder};
