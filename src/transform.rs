//! Transforms as data: a list of ops, lowered once, then drawn for each sample.
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
//! Volumes have separate steps, from [`Transform::flip_axis`] to [`Transform::clamp`]. These fold to one index for each
//! axis and one formula for the values, in one pass on the host.
//!
//! Crop and resize choose a window, a flip sets the order of the pixels, normalise is a scale and a bias per channel:
//! such a chain folds to **one** resample, so each pixel is computed once. A step of [`augment`] needs a whole picture.
//! The steps before it make a tile, which stays in the second-level cache. The steps after it fold again, from the tile
//! to the row or to the next tile. May surprise:
//!
//! - Between two steps that fold there is no picture. [`Transform::lower`] rejects a step that would need one (resize
//!   after resize, crop after cutout) and names it.
//! - A tile is u8 if the image is u8 and `to_float` has not come yet: then values are rounded there, as in
//!   torchvision's recipes, even if a policy drew no change. Otherwise it is f32 in 0..1.
//! - Results follow torchvision's `transforms.v2` on f32 tensors of the same pixels (for JPEGs: `codec::Jpeg::exact`):
//!   bilinear with antialias unless [`Transform::interpolation`] sets another filter, the same rounding of sizes and
//!   offsets, no rounding to 8 bits between steps. If a filter overshoots (bicubic, Lanczos), u8 and u16 pixels stay
//!   within their range, and u8 is rounded between the horizontal and the vertical pass, as in u8 tensors and in
//!   Pillow. `RandomResizedCrop` reads no pixel outside its crop; a centre crop after a resize does.
//! - Draws are keyed by the step's index in the list: they are the same for any number of workers and on any device. A
//!   step added at the end does not change the draws of the others. Policies draw within the key of their own step.

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
    Axis, CIFAR10_MEAN, CIFAR10_STD, Custom, IMAGENET_MEAN, IMAGENET_STD, Interpolation, Interpolations, Op, PRESETS,
    RowView, Transform, VIEW_PRESETS, View, augment, detection,
};
