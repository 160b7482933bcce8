//! Transforms as data: a list of ops, lowered once to a short recipe per sample.
//!
//! ```text
//! Transform ── lower(field, dtype, layout) ──▶ Lowered ── draw(image, rng) ──▶ Drawn ── RowMaker ──▶ row
//!  list of ops    once: shape, tables, checks             once per sample: windows, flips, all numbers
//! ```
//!
//! ```text
//! image ─▶ resample ─────────────────────────────────────────────▶ row        crops, resize, flips, normalise: one pass
//! image ─▶ resample ─▶ tile: op, op, op ─▶ resample ─▶ erase ─▶ row          with steps of `augment` between
//!            window      u8, or 0..1         flip, scale, type, layout
//! ```
//!
//! Volumes have steps of their own, from [`Transform::flip_axis`] to [`Transform::clamp`]: they fold to an index for each axis
//! and one line of arithmetic, and make one pass on the host.
//!
//! Crop and resize choose a window, a flip the order of storing, normalise a scale and a bias per channel: such a chain
//! folds to **one** resample, so pixels are touched once. A step of [`augment`] needs a picture: what stands before it
//! makes a tile that stays in the second cache, what stands behind it folds again, from the tile to the row or to the
//! next tile. Things that surprise:
//!
//! - Between two steps that fold there is no picture. What would need one (resize after resize, crop after cutout) is
//!   refused by [`Transform::lower`], which names the step.
//! - A tile is u8 where the image is and `to_float` has not come yet: then values are rounded there, as they are in
//!   torchvision's recipes, whether a policy drew something or not. Else it is f32 of 0..1.
//! - Meaning follows torchvision's `transforms.v2` on f32 tensors of the same pixels (of JPEGs: `codec::Jpeg::exact`):
//!   bilinear with antialias unless [`Transform::interpolation`] says otherwise, the same rounding of sizes and offsets, no
//!   rounding to 8 bits between steps. Where a filter overshoots (bicubic, Lanczos), pixels of u8 and u16 stay within their
//!   range, and u8 is bytes again between the pass across and the pass down, as in u8 tensors and in Pillow.
//!   `RandomResizedCrop` reads nothing outside its crop; a centre crop after a resize does look around it.
//! - Draws are keyed by the step's index in the list: the same for any number of workers and on any device. Adding a
//!   step at the end leaves the draws of the others as they were. Policies draw within the key of their own step.

pub mod augment;
mod chain;
pub mod detection;
mod device;
mod draw;
mod geometry;
mod inline;
mod interpolation;
mod lower;
mod make;
mod op;
mod pass;
mod place;
mod presets;
pub mod reference;
mod view;
mod volume;
mod warp;

pub use chain::Transform;
pub use draw::Drawn;
pub use interpolation::{Interpolation, Interpolations};
pub use lower::Lowered;
pub use make::{Decoded, RowMaker};
pub use op::{Axis, Custom, Op, RowView};
pub use place::{BatchSize, LoweredInstances, Placer};
pub use presets::{CIFAR10_MEAN, CIFAR10_STD, IMAGENET_MEAN, IMAGENET_STD, PRESETS};
pub use view::{VIEW_PRESETS, View};
pub use volume::{Foreground, LoweredVolume};

pub use crate::kernels::{
    ChannelTable, Filter, Intensity, Map, PixelOp, Pixels, Plane, Planes, ResampleParams, RowSpec, Sampling,
    VolumeAxis, Voxels,
};
pub use infeed_core::{
    random::{Draws, SampleRng},
    types::{Element, ImageInfo},
};
