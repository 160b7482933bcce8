//! Steps of detection and segmentation: sizes that differ from image to image, crops that look at boxes, and what becomes
//! of boxes and masks.
//!
//! ```text
//! Drawn ── axes and maps of its resamples ──▶ boxes       by arithmetic, corner by corner
//!                                         └─▶ masks       the same resamples of eight outlines at a time, one bit each
//! ```
//!
//! What moves boxes is what was drawn for the image, so there is nothing that could fall otherwise for them. Names,
//! settings and meaning are those of torchvision's `transforms.v2`, but where a step says otherwise.

mod boxes;
mod build;
mod crop;
mod iou;
mod resize;
mod settings;
#[cfg(test)]
mod tests;

pub(super) use self::boxes::Marked;
pub use self::{
    crop::{FixedSizeCrop, PadTo, PadToLargest, RandomZoomOut},
    iou::RandomIouCrop,
    resize::{RandomShortestSize, ScaleJitter},
    settings::{BoxFormat, ConvertBoundingBoxFormat, SanitizeBoundingBoxes},
};
