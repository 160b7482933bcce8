//! Augmentations that need a picture: their settings, and how each sample draws them.
//!
//! ```text
//! RandAugment, ColorJitter, … ── draw(Draws, picture) ──▶ [PixelOp]  short list with all numbers ──▶ TileRunner
//! ```
//!
//! Names, settings and meaning are those of torchvision's `transforms.v2`, or of timm where a step says so. A step
//! takes all its draws from its own [`Draws`](crate::transform::Draws), in the order that its documentation lists. They
//! do not depend on what other steps drew. Thresholds and fill values are parts of white, 0 to 1, whatever the pixels'
//! type.
//!
//! [`Mix`] works on whole batches and is not a step of a transform.

mod blur;
mod build;
mod colour;
mod compose;
mod erasing;
mod mix;
mod policy;
mod step;
mod tables;
mod timm;
mod warp;

pub use self::{
    blur::{GaussianBlur, KernelSize},
    colour::{
        ColorJitter, Grayscale, RandomAdjustSharpness, RandomAutocontrast, RandomChannelPermutation, RandomEqualize,
        RandomGrayscale, RandomInvert, RandomPhotometricDistort, RandomPosterize, RandomSolarize,
    },
    compose::{RandomApply, RandomChoice, RandomOrder, ThreeAugment},
    erasing::{Erasing, Noise, RandomErasing},
    mix::{Mix, PerMix},
    policy::{AugMix, AutoAugment, Policy, RandAugment, TrivialAugmentWide},
    step::{Spread, Value},
    timm::TimmRandAugment,
    warp::{RandomAffine, RandomPerspective, RandomRotation, Shear},
};
pub(super) use self::{
    compose::Nested,
    erasing::Erased,
    step::{Augment, Moves, Picture, PictureShape, check_fill, half, ordered, probability},
};
pub use mix::Mixing;
