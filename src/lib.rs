//! An async data loader for training: batches as a [`Stream`](futures::Stream), in an exact order, in bounded memory.
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
//! // A folder of class folders, CIFAR's binary files, …; here made-up images.
//! let dataset = open("synthetic://?count=256&height=40&width=60&classes=10").await?;
//! let transform = Transform::new().random_resized_crop(32).horizontal_flip(0.5).to_float();
//! let loader = Loader::builder(dataset).batch_size(64).shuffle(42).transform(transform).build().await?;
//! let mut batches = loader.epoch(0);
//! while let Some(batch) = batches.next().await {
//!     let batch = batch?;
//!     // If the batch is on a GPU, this copies it to the host. `Tensor::device_ptr` is its address on the GPU.
//!     let image = batch["image"].to_host()?;
//!     let pixels: &[f32] = image.as_slice().expect("f32 is the default");
//!     assert_eq!(batch["image"].shape(), [64, 3, 32, 32]);
//!     assert_eq!(pixels.len(), 64 * 3 * 32 * 32);
//! }
//! println!("{:?}", batches.report().data_wait);
//! # Ok(()) }
//! ```
//!
//! # Which item you need
//!
//! | task | item |
//! |---|---|
//! | open a folder, shards, a bucket or a hub by its url | [`open`], with the options of [`Open`](dataset::Open) |
//! | see what a dataset holds | [`Dataset::schema`], [`Dataset::len`], [`dataset::labels`] |
//! | use a part of a dataset, several as one, or the records that meet a condition | [`dataset::subset`], [`split`](dataset::split); [`concat`](dataset::concat()), [`open_together`](dataset::open_together); [`Filter`](dataset::Filter) |
//! | hold a dataset in memory, or use made-up images | [`MemoryDataset`](dataset::MemoryDataset), [`SyntheticDataset`](dataset::SyntheticDataset) |
//! | build a loader | [`Loader::builder`], [`LoaderBuilder::build`]; without a runtime [`build_blocking`](LoaderBuilder::build_blocking) |
//! | write its settings into a file | [`LoaderConfig`] |
//! | train over batches | [`Loader::epoch`], [`epochs`](Loader::epochs): a [`BatchStream`]; a plain iterator: [`BatchStream::blocking`] |
//! | read a batch | [`Batch`], [`Tensor`]; lists: [`BatchList`]; boxes and masks: [`BatchInstances`] |
//! | validate: once, in order, every record | [`Order::Sequential`] and [`LastBatch::Partial`] |
//! | resume after a batch | [`Batch::state`], [`LoaderState`], [`Loader::resume_epochs`] |
//! | shard by rank | [`Shard`], [`Shard::from_env`]; several GPUs of one process: [`LoaderBuilder::build_each`] |
//! | shuffle, weight, balance, mix datasets | [`LoaderBuilder::shuffle`], [`Order`], [`WeightedSampler`](sampler::WeightedSampler), [`Mixture`](sampler::Mixture) |
//! | batches of records of similar length, within a budget of items | [`LengthSampler`](sampler::LengthSampler), [`BatchList`] |
//! | list the records yourself; compute an order without a loader | [`ListSampler`](sampler::ListSampler), [`Sampler`](sampler::Sampler); [`Schedule`](sampler::Schedule) |
//! | crop, resize, augment, normalise | [`Transform`], with [`Transform::preset`]; steps as data: [`transform::Op`] |
//! | make several views of an image; MixUp, CutMix | [`View`](transform::View); [`LoaderBuilder::mix`] |
//! | run your own function on pixels, samples or batches | [`Transform::custom`]; [`LoaderBuilder::map`], [`map_batch`](LoaderBuilder::map_batch) |
//! | choose shapes and types of batches | [`LoaderBuilder::batch_size`], [`DType`], [`Layout`] |
//! | get batches on a GPU | [`LoaderBuilder::device`], [`device_auto`](LoaderBuilder::device_auto), [`device::devices`], [`Tensor::device_ptr`]; [`Tensor::to_dlpack`] |
//! | continue after bad samples; handle errors | [`OnBadSample`]; [`Error`], [`ErrorKind`] |
//! | keep bytes, pixels or an index of the JPEG files from epoch to epoch | [`CacheSpec`](source::CacheSpec), for [`LoaderBuilder::cache`] and [`decoded_cache`](LoaderBuilder::decoded_cache); [`DecodeIndex`](codec::DecodeIndex) |
//! | find out where the time goes and what requests cost | [`BatchStream::report`], [`Report::bottleneck`]; from another thread [`Monitor`](loader::Monitor) |
//! | send metrics to Prometheus or OpenTelemetry | `metrics`, with the features `prometheus` and `otel` |
//! | set threads, prefetch and memory, or leave them to the loader | [`LoaderBuilder::workers`], [`prefetch`](LoaderBuilder::prefetch), [`memory_budget`](LoaderBuilder::memory_budget); [`autotune`](LoaderBuilder::autotune) |
//! | read your own format | [`Dataset`], [`dataset::Format`], [`Open::add_format`](dataset::Open::add_format); check it: [`dataset_contract`](dataset::dataset_contract) |
//! | decode your own kind of image file; replace the decoder | [`ImageCodec`](codec::ImageCodec), for [`LoaderBuilder::codec`]; [`Decoder`](spi::Decoder), for [`LoaderBuilder::decoder`] |
//! | read from your own store | [`Source::from_store`](source::Source::from_store), [`dataset::open_source`] |
//! | make shards in advance | `prepare`, with the feature `prepare` |
//!
//! # Guarantees
//!
//! - **Order.** The record in each row of each batch depends only on dataset, order, seed, epoch, rank, world size and
//!   batch size. The pixels of a row depend only on record, transform, seed and epoch; on how often the epoch had the
//!   record before, if the order [repeats](Order::Repeated) it; and on the batch, if batches are
//!   [mixed](LoaderBuilder::mix). Workers, prefetch, budget and store do not change a byte. Pixels of lossy formats may
//!   differ by one level between kinds of processors, and between CPU and GPU unless
//!   [`GpuSplit::Fixed`](codec::GpuSplit::Fixed) is set.
//! - **Shards.** Ranks divide the records of each epoch without overlap or gap and take the same number of steps.
//! - **Resume.** A batch's [`state`](Batch::state) resumes exactly after it, with any workers, batch size and world
//!   size.
//! - **Memory.** Host memory stays within [`memory_budget`](LoaderBuilder::memory_budget), GPU memory within
//!   [`device_budget`](LoaderBuilder::device_budget). Their documentation lists what counts.
//! - **Errors.** A bad sample follows [`OnBadSample`]; any other error is yielded once and ends the stream.
//!   Damaged data never panics.
//! - **Cancel safety.** Dropping a `.next()` future loses nothing. Dropping a stream stops its reads before the drop
//!   returns.
//!
//! # Threads
//!
//! A loader owns one thread for planning and network reads, and one decode thread for each core (two fewer with the
//! JPEG engines of a GPU). The decode threads also read local files. Your runtime, if any, only polls the stream.
//!
//! On a GPU ([`LoaderBuilder::device`]) there is one more thread for its JPEG engines and one for each decoding stream
//! ([`LoaderBuilder::streams`]); each decode thread has its own CUDA stream. Batches are complete when yielded;
//! [`Tensor::device_ptr`] is how a trainer reads them. For several GPUs in one process use
//! [`LoaderBuilder::build_each`].
//!
//! # Modules
//!
//! The root has what most trainings need. The modules have the rest:
//!
//! | module | for |
//! |---|---|
//! | [`loader`] | streams without a runtime ([`Blocking`](loader::Blocking)), watched from other threads ([`Monitor`](loader::Monitor)), with shared threads ([`IoRuntime`](loader::IoRuntime)) |
//! | [`report`] | the numbers of a [`Report`], and the diagnosis made of them |
//! | [`device`] | GPUs, and a trainer's streams and events on them; tensors for other frameworks |
//! | [`dataset`], [`source`] | formats, subsets, your own dataset; stores and caches |
//! | [`sampler`], [`transform`] | your own order; your own step |
//! | [`codec`] | your own kind of image file or decoder |
//! | `prepare`, `metrics` | shards made in advance; metrics for Prometheus and OpenTelemetry |
//!
//! # Features
//!
//! `default = ["gif", "http", "jpeg", "png", "s3", "voc", "yolo"]`: enough for a folder of JPEGs and a bucket. No
//! feature needs a C library on the machine: `webp` and the TLS of the stores are built with a C compiler.
//!
//! | feature | adds |
//! |---|---|
//! | `jpeg`, `png`, `gif`, `webp`, `bmp`, `tiff`, `jxl` | codecs of these image files; Netpbm's is always included |
//! | `webp-rust` | WebP without C, slower ([`RustWebp`](codec::RustWebp)); `webp` includes it for animations |
//! | `s3`, `http`, `gcs`, `azure` | `s3://`; `https://` and `hf://`; Google's and Microsoft's buckets |
//! | `shards`, `parquet`, `packed` | MDS, TFRecord and JSON lines; Parquet; compressed `.npz` |
//! | `voc` | the XMLs of Pascal VOC; without it only images are read |
//! | `yolo` | the texts of YOLO; without it only images are read |
//! | `volumes`, `dicom`, `hdf5`, `zarr` | NRRD and NIfTI; DICOM; HDF5; Zarr |
//! | `cuda` | NVIDIA GPUs on Linux. The driver's libraries are loaded at run time, no toolkit is needed. Without it batches are in host memory |
//! | `dlpack` | tensors lent to other frameworks, and borrowed from them, without a copy |
//! | `prepare` | shards made in advance |
//! | `prometheus`, `otel`, `nvtx` | metrics for Prometheus and OpenTelemetry, ranges for NVIDIA's profilers |
//! | `cloud` | all of `s3`, `http`, `gcs`, `azure` |
//! | `tables` | all of `shards`, `parquet`, `packed` |
//! | `science` | all of `volumes`, `dicom`, `hdf5`, `zarr`, `tiff` |
//! | `full` | everything |
//!
//! The command line is a separate package, `infeed-cli`. It and the Python package choose their own features.

#![deny(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod codec;
pub mod dataset;
pub mod device;
mod engine;
pub mod error;
pub mod guide;
pub mod loader;
#[cfg(any(feature = "otel", feature = "prometheus"))]
pub mod metrics;
#[cfg(feature = "prepare")]
pub mod prepare;
pub mod report;
pub mod sampler;
pub mod source;
pub mod spi;
pub mod tensor;
pub mod transform;

#[doc(inline)]
pub use dataset::{Dataset, open};
pub use engine::{Batch, BatchInstances, BatchList, RowInstances};
#[doc(inline)]
pub use error::{Error, ErrorKind, Result};
#[doc(inline)]
pub use infeed_core::types::{DType, Device, Layout};
#[doc(inline)]
pub use loader::{BatchStream, Loader, LoaderBuilder, LoaderConfig, OnBadSample};
#[doc(inline)]
pub use report::Report;
#[doc(inline)]
pub use sampler::{LastBatch, LoaderState, Order, Shard};
#[doc(inline)]
pub use tensor::Tensor;
#[doc(inline)]
pub use transform::{CIFAR10_MEAN, CIFAR10_STD, IMAGENET_MEAN, IMAGENET_STD, Transform};

/// The crates whose types appear in signatures here. Use these, or depend on the same versions.
pub use {bytes, futures, half, object_store};

/// Private to this project: used by its command line, benchmarks and tests. Any version may change or remove it.
#[doc(hidden)]
pub mod internal {
    #[cfg(feature = "dlpack")]
    pub use crate::device::dlpack;
    pub use crate::{
        device::{driver::look_in, gpu_of_rank},
        engine::{can_start_threads, wait_for},
    };
    pub use infeed_core::{
        disk, machine, process,
        report::times::Clock,
        rows,
        setting::{Front, SETTINGS, Setting, speak_as},
        types::printable,
    };
    #[cfg(all(feature = "nvtx", target_os = "linux"))]
    pub use infeed_cuda::nvtx;
    #[cfg(all(feature = "cuda", target_os = "linux"))]
    pub use infeed_cuda::{cuda, nvjpeg};
    pub use infeed_data::sniff::depth_of;
    pub use infeed_pixels::kernels;
    pub use infeed_store::{Beside, listings, no_files};
}

/// The README's code is compiled and run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
