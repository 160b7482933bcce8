#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod batch;
mod dataset;
mod devices;
mod epoch;
mod loader;
mod place;
mod slice;
mod tensor;

pub use batch::{ClassificationBatch, DetectionBatch, FromBatch, SegmentationBatch};
pub use dataset::{InfeedDataset, Row};
pub use devices::DeviceLoaders;
pub use epoch::Epoch;
pub use loader::InfeedLoader;
pub use tensor::TensorExt;

/// The crates whose types this crate's signatures use, in matching versions.
pub use {burn_core, infeed};
