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

#[doc(no_inline)]
pub use infeed_core::types::Element;
#[doc(inline)]
pub use infeed_core::{
    random::{Draws, SampleRng},
    types::ImageInfo,
};
#[doc(hidden)]
pub use infeed_pixels::transform::reference;
#[doc(inline)]
pub use infeed_pixels::transform::{
    Axis, BatchSize, CIFAR10_MEAN, CIFAR10_STD, ChannelTable, Custom, Decoded, Drawn, Filter, Foreground,
    IMAGENET_MEAN, IMAGENET_STD, Intensity, Interpolation, Interpolations, Lowered, LoweredInstances, LoweredVolume,
    Map, Op, PRESETS, PixelOp, Pixels, Placer, Plane, Planes, ResampleParams, RowMaker, RowSpec, RowView, Sampling,
    Transform, VIEW_PRESETS, View, VolumeAxis, Voxels, augment, detection,
};
