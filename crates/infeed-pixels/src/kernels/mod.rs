//! Resample kernels: one block of parameters, several implementations. `transform::reference` defines what a block
//! means.
//!
//! ```text
//! Axis y, Axis x ──▶ taps.rs: first pixel and weights of each output
//!                       │
//! Pixels ─▶ one output row: vertical taps ─▶ f32 row ─▶ horizontal taps ─▶ f32 line ─▶ scale, bias, round ─▶ out
//!           (lanes.rs: flat over columns and channels)   (lanes across a pixel)          (convert.rs)
//! ```
//!
//! Filters that overshoot process bytes horizontally first (`bytes.rs`): the values between the two passes are bytes
//! again.
//!
//! Values of f16 are packed afterwards, and lines of large rows are stored past the caches (`target.rs`, `stream.rs`).
//!
//! JPEGs come as planes; `planes.rs` resamples them without making pixels first.
//!
//! Steps on pictures between two resamples are in `tile`; mixing of a batch's rows is in `mix.rs`. A GPU does the same
//! with `resample.cu` and `picture.cu`; `device.rs`, `picture.rs` and `row_work.rs` define the arguments of their
//! launches.
//!
//! Four things that are easy to get wrong:
//! - Arithmetic is part of the meaning: f32, vertical taps first (for bytes and a filter that overshoots, horizontal
//!   ones), taps in ascending order, every product fused into its sum. So each SIMD level, and a GPU, gives the same
//!   bits for the same pixels. (Planes are a different input: their results differ from those of pixels because pixels
//!   were rounded.)
//! - A flip is not a step: tables are built in the order in which outputs are *stored*.
//! - Filters differ in their tables (taps.rs), and in this: weights below 0 can give values outside the pixels' range,
//!   so sums of whole numbers are clamped to it before scale and bias. For Y, Cb and Cr, the RGB is clamped.
//! - Padding comes from `from..to`, never from reading outside: nothing outside `low..high` has any weight.

#![allow(unsafe_code)]

mod bytes;
mod cache_prefetch;
mod convert;
pub mod device;
mod lanes;
mod level;
mod mix;
mod params;
pub mod picture;
mod planes;
mod resample;
mod row;
mod row_work;
mod stream;
mod stretch;
mod taps;
mod target;
mod tile;
mod volume;

pub use infeed_data::Voxels;
pub use level::Level;
pub use mix::{Mixer, Mixture, mix_rolled, mix_swapped};
pub use params::{Axis, ChannelTable, Filter, Pixels, ResampleParams, RowSpec, channel_source};
pub use planes::{Plane, Planes};
pub use resample::Resampler;
pub use row::fill_rect;
pub use row_work::{RowFill, RowPass, RowScratch, RowWork, SCRATCH_ALIGN, WORDS_ALIGN};
pub use tile::{Map, PLACES, PixelOp, Program, Sampling, Tile, TileRunner};
pub use volume::{Intensity, VolumeAxis, write_volume};
