//! An async data loader for training: batches as a [`Stream`](futures::Stream), exact order, bounded memory.
//!
//! ```text
//! open(url) ─▶ Dataset ─▶ Loader::builder(…).build() ─▶ Loader ─ epoch(n) ─▶ BatchStream ─ .next().await ─▶ Batch
//!                                                         │  threads and buffers live here      └ state: resume after it
//!                                                         └ resume_epochs(&state, ..end)
//! ```
//!
//! ```
//! use futures::StreamExt;
//! use infeed::{Loader, Transform, open};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
//! // A folder of class folders, CIFAR's binary files, …; here made-up pixels.
//! let dataset = open("synthetic://?count=256&height=40&width=60&classes=10").await?;
//! let transform = Transform::new().random_resized_crop(32).horizontal_flip(0.5).to_float();
//! let loader = Loader::builder(dataset).batch_size(64).shuffle(42).transform(transform).build().await?;
//! let mut batches = loader.epoch(0);
//! while let Some(batch) = batches.next().await {
//!     let batch = batch?;
//!     // On a machine with a GPU the batch lies there; see `Tensor::device_ptr` for how a trainer takes it.
//!     let image = batch["image"].to_host()?;
//!     let pixels: &[f32] = image.as_slice().expect("f32 is the default");
//!     assert_eq!(batch["image"].shape(), [64, 3, 32, 32]);
//!     assert_eq!(pixels.len(), 64 * 3 * 32 * 32);
//! }
//! println!("{:?}", batches.report().data_wait);
//! # Ok(()) }
//! ```
//!
//! # Guarantees
//!
//! - **Order.** Which record is in which row of which batch is a pure function of dataset, order, seed, epoch, rank, world
//!   and batch size; the pixels of a row are one of record, transform, seed and epoch. Workers, prefetch, budget and store
//!   change nothing, not a byte. Between kinds of processors, lossy formats may differ in the last level of a pixel; so
//!   they may on a GPU, unless [`Split::Fixed`](codec::Split::Fixed) is set.
//! - **Shards.** Ranks share each epoch's records out without overlap or gap and take the same number of steps.
//! - **Resume.** A batch's [`state`](Batch::state) resumes exactly after it, with any workers, batch size and world size.
//! - **Memory.** Host memory stays within [`memory_budget`](LoaderBuilder::memory_budget), a GPU's within
//!   [`device_budget`](LoaderBuilder::device_budget) (what counts is said there).
//! - **Errors.** A bad sample follows [`OnBadSample`]; everything else ends the stream with one error, then `None`.
//!   Damaged data never panics.
//! - **Cancel safety.** Dropping a `.next()` future loses nothing. Dropping a stream stops its reads before the drop returns.
//!
//! # What runs where
//!
//! A loader owns one thread for planning and network reads, and one decoding thread for each core; local files are read
//! by the decoding threads. Your runtime, if any, runs only the polls of the stream.
//!
//! On a GPU ([`LoaderBuilder::device`]) there is one more thread for its JPEG engines and one for each decoding stream
//! ([`LoaderBuilder::streams`]); each decoding thread has a CUDA stream of its own. Batches are complete when yielded;
//! [`Tensor::device_ptr`] says how a trainer takes them.
//!
//! # Features
//!
//! `default = ["cli", "cuda", "dlpack", "jpeg", "png", "webp", "bmp", "tiff", "s3", "volumes"]`; libraries take
//! `default-features = false` and pick. `volumes` reads NRRD and NIfTI, `prepare` writes shards,
//! `prometheus` and `otel` tell others where the time goes. `cuda` looks for a GPU at run time and needs nothing
//! at build time.

#![deny(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod codec;
pub mod dataset;
mod engine;
mod error;
mod fingerprint;
mod loader;
#[cfg(any(feature = "otel", feature = "prometheus"))]
pub mod metrics;
#[cfg(feature = "prepare")]
pub mod prepare;
mod random;
mod report;
pub mod sampler;
pub mod source;
pub mod sys;
mod tensor;
pub mod transform;
mod types;

pub use dataset::{Dataset, Open, open, open_source};
pub use engine::{Batch, IoRuntime};
pub use error::{Error, ErrorContext, ErrorKind, Result};
pub use fingerprint::{Fingerprint, Fingerprinter};
pub use loader::{BatchStream, Blocking, Loader, LoaderBuilder, LoaderConfig, Monitor, OnBadSample};
pub use random::{Draws, SampleRng};
pub use report::{
    BadSample, CacheReport, Cause, CauseReport, Change, Clock, CostEstimate, DeviceTimes, Diagnosis, Figures,
    FirstBatchPart, LateBatch, Limit, QueueReport, Recorder, Report, RequestReport, SlowRequest, Stage, StageReport,
    Stalls, Times, TuneDecision, TuneReason, TuneReport, Tuned, TunedSetting, WaitBucket, diagnose,
};
pub use sampler::{LastBatch, LoaderState, Order, Sampler, Shard, WeightedSampler};
pub use source::{CacheSpec, Source};
pub use sys::cuda::{CudaEvent, CudaStream, Gpu};
pub use sys::devices::{Devices, devices};
#[cfg(feature = "dlpack")]
pub use sys::dlpack::{Dlpack, DlpackAbi};
pub use sys::nvjpeg::NvJpeg;
pub use tensor::{DevicePtr, Element, Tensor};
pub use transform::{CIFAR10_MEAN, CIFAR10_STD, IMAGENET_MEAN, IMAGENET_STD, Op, RowView, Transform};
pub use types::{DType, Device, ImageInfo, Layout};

/// The README's code is compiled and run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
