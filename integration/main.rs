//! Every promise infeed makes to its users, one file each, in one binary.
//!
//! Tests make their own data and run offline. Those of the GPU path run on a mock of the driver and of nvJPEG, which
//! takes a C++ compiler; without one they say so and pass. `INFEED_SLOW_TESTS=1` widens the property tests.

mod agreement;
mod api;
mod arrays;
mod augment;
mod autotune;
mod cache;
mod cancel;
mod cli;
mod codecs;
mod compare;
mod damaged;
mod dataset_reads;
mod datasets;
mod decoded;
mod detection;
mod detection_formats;
#[cfg(all(feature = "cuda", target_os = "linux"))]
mod device;
#[cfg(feature = "dicom")]
mod dicom;
mod doctor;
mod errors;
mod exact;
mod fields;
mod filters;
#[cfg(all(feature = "http", feature = "s3"))]
#[cfg(feature = "hdf5")]
mod hdf5;
mod hub;
#[cfg(feature = "s3")]
mod integrity;
mod jpegs;
mod kernels;
#[cfg(all(feature = "cuda", target_os = "linux"))]
mod kit;
mod ladder;
mod late;
mod machine;
mod map;
mod mix;
mod mixtures;
#[cfg(all(feature = "cuda", target_os = "linux"))]
mod mock;
#[cfg(all(feature = "cuda", target_os = "linux"))]
mod nvjpeg;
#[cfg(all(feature = "cuda", target_os = "linux"))]
mod on_gpu;
mod order;
#[cfg(feature = "otel")]
mod otel;
#[cfg(feature = "parquet")]
mod parquet;
mod pictures;
#[cfg(all(feature = "cuda", target_os = "linux"))]
mod pinned;
mod plan;
mod prepare;
mod pressure;
mod requests;
mod resume;
#[cfg(feature = "s3")]
mod s3;
mod sampling;
mod several;
mod shards;
mod shell;
mod stage;
mod suites;
mod support;
mod terminal;
mod tiff;
mod tiff_kinds;
mod views;
mod volumes;
mod watch;
#[cfg(feature = "http")]
mod web;
#[cfg(feature = "zarr")]
mod zarr;
