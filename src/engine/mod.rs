//! The engine: all tasks, threads, channels and limits of the crate are here.
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
//! Only `poll_next` runs on the caller's runtime. So the engine reads equally far ahead with a trainer that blocks its
//! thread for a step, with a `current_thread` runtime, inside `select!`, or without a runtime.
//!
//! **Limits** are semaphores; each permit travels with the thing that it guards:
//! - *seats*: batches announced to the stream and not yet polled;
//! - *rows*: batches that may own memory for their rows, until the poll that hands them over (`permits.rs`); in host
//!   memory they allocate it when their first job writes;
//! - *volumes*: batches of volumes that are begun before the oldest is complete, and while the trainer may give buffers
//!   back (`run_ahead.rs`), because their rows are large;
//! - *threads*: decode threads at work, the others park (`queue.rs`); whether decode threads or a GPU's engines decode
//!   first (`precedence.rs`);
//! - *encoded*: bytes read ahead and not yet decoded, parts included, in units of 64 KiB;
//! - *parts*: decoded data that records share, such as volumes and row groups, in a separate reserve
//!   (`shared_parts.rs`);
//! - *requests*: requests in flight, of this stream if `io_concurrency` is set, and of the whole process for each
//!   store;
//! - *slots*: calls in which the dataset reads records itself, of all streams of the loader (`read_slots.rs`).
//!
//! `tune` adjusts threads and rows that are on `auto`; requests and the bytes read ahead adjust themselves.
//!
//! **Contention between decode threads.** A job, not a record, uses shared state once or twice: the queue's lock, the
//! totals of a stage, a count of jobs in the batch. A job is 0.7 ms of work ([`ChunkSize`]), so 64 threads take about
//! 90,000 jobs a second. Batches of one record need a job, a seat, rows and a channel each; two cores made 63,000 to
//! 92,000 of them a second, all other costs included (CIFAR-100, `infeed run --batch-size 1`). So locks are a small
//! part of these 20 µs. Per image only the decode index is shared: one of 256 locks. Not measured beyond two cores.
//!
//! **No deadlock**: seats, rows and encoded bytes are taken in plan order, so the batch that the trainer waits for
//! always holds what it needs, or waits only for jobs that wait for nothing.
//!
//! **Several devices**: loaders that were built together share the [`Workers`] and most of [`LoaderShared`]. Each has
//! its own seats, rows, encoded bytes and lane of the queue. So if a trainer pauses or a GPU is lost, its loader holds
//! nothing that another waits for; running jobs always end.
//!
//! **Shared parts** (a row group, a chunk of an array, a compressed shard or volume) are named by the plans of records.
//! The first record ahead that needs a part which is neither decoded nor being read starts the read: in plan order,
//! within the permits of that record's group, through the same cache, limits and retries (`fetch.rs`). When the bytes
//! have arrived, a job decodes the part if there is memory for it, on at most half of the threads. Its records follow
//! as soon as all their parts are decoded. If a part is still missing when a decode thread needs it (it was evicted, or
//! is in a local file), the thread reads it and waits.
//!
//! **Cancellation**: dropping the stream closes the [`Gate`](gate::Gate) and the
//! [`LocalReads`](local_reads::LocalReads) (no read begins afterwards, and all waits of the stream end), aborts the
//! tasks and empties the queue. A running job owns its rows and finishes. If a file system hangs, only the threads that
//! read from it hang.
//!
//! **Files.** Each imports only files to its right:
//!
//! ```text
//! run ─ admit ─ fetch ─ workers ─ decode_thread ─ task ─┬ assembly ────────┬ stream ─┬ plan ──────────┬ batch, timeline, fields,
//!   └── tune/follow ──┤                                 └ read_parts ──────┤         ├ loader_shared ─┤ chunk, permits, gate, map,
//!                     └ dataset_reads ──────────────────── byte_permits ───┤         ├ shared_parts ──┤ queue, io_runtime, batch_mix,
//!                                                          read_here ──────┤         ├ decoded ───────┤ read_slots, run_ahead,
//!                                                          cached ─────────┘         └ local_reads ───┘ precedence, pieces,
//!                                                                                                       kept_files, under_way,
//!                                                                                                       block_on
//! ```
//!
//! [`LoaderShared`], the state that the streams of a loader share, owns no threads. A loader and its streams hold the
//! [`Workers`]; their threads see a stream only through its jobs.

#![forbid(unsafe_code)]

mod admit;
mod assembly;
mod batch;
mod batch_mix;
mod batch_rows;
mod block_on;
mod buffers;
#[cfg(test)]
mod by_hand;
mod byte_permits;
mod cached;
mod chunk;
mod dataset_reads;
mod decode_thread;
mod decoded;
mod fetch;
mod fields;
mod gate;
mod image_lists;
mod instances;
mod io_runtime;
mod kept_files;
mod list;
mod loader_shared;
mod local_reads;
mod map;
mod permits;
mod pieces;
mod plan;
mod precedence;
mod queue;
mod read_here;
mod read_parts;
mod read_slots;
mod run;
mod run_ahead;
mod shared_parts;
mod side_values;
mod stream;
mod task;
mod threads;
mod timeline;
mod tune;
mod under_way;
mod workers;
mod write_fields;

pub use batch::Batch;
pub(crate) use batch_mix::BatchMix;
pub(crate) use block_on::block_on;
#[cfg(test)]
pub(crate) use by_hand::Hands;
pub(crate) use chunk::{ChunkSize, READ_BYTES};
pub(crate) use decode_thread::Meters;
pub(crate) use decoded::DecodedCache;
pub(crate) use fields::{FieldRows, LoweredField, Side, SoftLabels, fill, lower_field};
pub(crate) use image_lists::ImageLists;
pub use instances::{BatchInstances, RowInstances};
pub(crate) use io_runtime::off_thread;
pub use io_runtime::{IoRuntime, can_start_threads, wait_for};
pub use list::BatchList;
pub(crate) use loader_shared::{BadRows, Limits, LoaderShared, reads_ahead};
pub(crate) use map::Maps;
pub use map::{BatchMut, FieldMut, SampleMut};
pub(crate) use permits::whole_units;
pub(crate) use plan::RecordOrder;
pub(crate) use precedence::First;
pub(crate) use queue::READY_BYTES;
pub(crate) use read_slots::ReadSlots;
pub(crate) use run::{Levels, Run};
pub(crate) use shared_parts::SharedParts;
pub(crate) use side_values::lengths_of;
pub(crate) use stream::{Facts, Watch};
pub(crate) use timeline::Timeline;
pub(crate) use tune::{Range, Scope, Tuning};
pub(crate) use workers::{Workers, check_decoder};
