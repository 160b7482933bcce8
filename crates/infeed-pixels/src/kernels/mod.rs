//! Resample kernels: one parameter block, several machines. The meaning of a block is `transform::reference`.
//!
//! ```text
//! Axis y, Axis x ──▶ taps.rs: first pixel and weights of each output
//!                       │
//! Pixels ─▶ one output row: vertical taps ─▶ f32 row ─▶ horizontal taps ─▶ f32 line ─▶ scale, bias, round ─▶ out
//!           (lanes.rs: flat over columns and channels)   (lanes across a pixel)          (convert.rs)
//! ```
//!
//! Bytes go across first where the filter overshoots (`bytes.rs`): what is kept between the passes are bytes again.
//!
//! Values of f16 are packed after the fact, and lines of large rows leave past the caches (`target.rs`, `stream.rs`).
//!
//! JPEGs come as planes, which `planes.rs` resamples without making pixels first.
//!
//! What is done to pictures between two resamples is in `tile`, what is done to rows of a batch in `mix.rs`. A GPU does the
//! same by `resample.cu` and `picture.cu`; `device.rs`, `picture.rs` and `row_work.rs` say what their launches take.
//!
//! Four things that are easy to get wrong:
//! - Arithmetic is part of the meaning: f32, vertical taps first (of bytes, where the filter overshoots, horizontal ones), taps
//!   in ascending order, every product fused into its sum. So each SIMD level, and a GPU, gives the same bits of the same pixels. (Planes are other input: they differ from
//!   pixels by the rounding of these.)
//! - A flip is not a step: tables are built in the order in which outputs are *stored*.
//! - Filters differ in their tables (taps.rs) and in one thing more: what has weights below 0 leads out of the pixels'
//!   range, so sums of whole numbers are cut to it before scale and bias. Of Y, Cb and Cr it is the RGB that is cut.
//! - Padding comes from `from..to`, never from reading outside: nothing outside `low..high` has any weight.

#![allow(unsafe_code)]

mod bytes;
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
mod soon;
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
pub use row_work::{RowFill, RowPass, RowRoom, RowWork, SCRATCH_ALIGN, WORDS_ALIGN};
pub use tile::{Map, PLACES, PixelOp, Program, Sampling, Tile, TileRunner};
pub use volume::{Intensity, VolumeAxis, write_volume};
