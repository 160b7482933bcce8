//! An async data loader for training.
#![deny(unsafe_code)]

pub mod codec;
pub mod dataset;
mod engine;
mod error;
mod fingerprint;
mod loader;
mod random;
mod report;
pub mod sampler;
pub mod source;
pub mod sys;
mod tensor;
pub mod transform;
mod types;

pub use dataset::{Dataset, Open, open, open_source};
pub use engine::{Batch, Engine};
pub use error::{Error, ErrorContext, ErrorKind, Result};
pub use fingerprint::{Fingerprint, Fingerprinter};
pub use loader::{BatchStream, Blocking, Loader, LoaderBuilder, LoaderConfig, OnBadSample};
pub use random::{Draws, SampleRng};
pub use report::{BadSample, Clock, Recorder, Report, Stage, StageReport, Times};
pub use sampler::{LastBatch, LoaderState, Order, Sampler, Shard, WeightedSampler};
pub use source::Source;
pub use sys::cuda::{Devices, Gpu, NvJpeg, devices};
pub use tensor::{Element, Tensor};
pub use transform::{CIFAR10_MEAN, CIFAR10_STD, IMAGENET_MEAN, IMAGENET_STD, Op, RowView, Transform};
pub use types::{DType, Device, ImageInfo, Layout};
