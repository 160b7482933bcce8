//! Transforms as data: a list of ops, lowered once to a small parameter block per sample.
//!
//! ```text
//! Transform ── lower(field, dtype, layout) ──▶ Lowered ── params(image, draws) ──▶ ResampleParams ──▶ kernel ──▶ row
//!  list of ops    once: shape, tables, checks             once per sample: window, flips         one pass over the pixels
//! ```
//!
//! Volumes have steps of their own, from [`Transform::flip_axis`] to [`Transform::clamp`]: they fold to an index for each axis
//! and one line of arithmetic, and make one pass on the host.
//!
//! Crop and resize choose a window, a flip the order of storing, normalise a scale and a bias per channel: a whole
//! chain folds to **one** resample, so pixels are touched once. Three things that surprise:
//!
//! - There is no picture between two steps. What would need one (resize after resize, crop after cutout) is refused by
//!   [`Transform::lower`], which names the step.
//! - Meaning follows torchvision's `transforms.v2` on f32 tensors of the same pixels (of JPEGs: `codec::Jpeg::exact`):
//!   bilinear with antialias unless [`Transform::interpolation`] says otherwise, the same rounding of sizes and offsets, no
//!   rounding to 8 bits between steps. Where a filter overshoots, pixels of u8 and u16 stay within their range, as in u8
//!   tensors. `RandomResizedCrop` reads nothing outside its crop; a centre crop after a resize does look around it.
//! - Draws are keyed by the step's index in the list: the same for any number of workers and on any device. Adding a
//!   step at the end leaves the draws of the others as they were.

mod chain;
mod geometry;
mod interpolation;
mod lower;
mod op;
mod presets;
pub mod reference;
mod volume;

pub use chain::Transform;
pub use interpolation::{Interpolation, Interpolations};
pub use lower::Lowered;
pub use op::{Axis, Custom, Op, RowView};
pub use presets::{CIFAR10_MEAN, CIFAR10_STD, IMAGENET_MEAN, IMAGENET_STD, PRESETS};
pub use volume::{Foreground, LoweredVolume};

pub use crate::{
    random::{Draws, SampleRng},
    sys::kernels::{
        ChannelTable, Filter, Intensity, Pixels, Plane, Planes, ResampleParams, RowSpec, VolumeAxis, Voxels,
    },
    tensor::Element,
    types::ImageInfo,
};
