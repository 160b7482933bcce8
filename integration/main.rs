//! Every promise the library makes to its users, one file each, in one binary. Those of the command line are in `cli/tests`.
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
mod codecs;
mod damaged;
mod dataset_reads;
mod datasets;
mod decoded;
mod detection;
mod detection_formats;
#[cfg(target_os = "linux")]
mod device;
mod dicom;
mod errors;
mod exact;
mod fields;
mod filters;
mod hdf5;
mod hub;
mod integrity;
mod jpegs;
mod json_values;
mod kept_parts;
mod kernels;
#[cfg(target_os = "linux")]
mod kit;
mod ladder;
mod late;
mod layouts;
mod machine;
mod map;
mod masks;
mod mix;
mod mixtures;
#[cfg(target_os = "linux")]
mod mock;
mod named_files;
#[cfg(target_os = "linux")]
mod nvjpeg;
#[cfg(target_os = "linux")]
mod on_gpu;
mod order;
mod orientation;
mod parquet;
mod parts;
mod pictures;
#[cfg(target_os = "linux")]
mod pinned;
mod prepare;
mod pressure;
mod profiles;
mod properties;
mod requests;
mod resume;
mod s3;
mod sampling;
mod settings;
mod several;
mod shards;
mod suites;
#[allow(dead_code, reason = "shared with the tests of the command line: each uses its own part")]
mod support;
mod tiff;
mod tiff_kinds;
mod views;
mod volumes;
mod web;
mod zarr;
