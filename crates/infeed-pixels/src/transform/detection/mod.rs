//! Steps for detection and segmentation: sizes that differ from image to image, crops that depend on boxes, and the
//! movement of boxes, key points and masks.
//!
//! ```text
//! Drawn ── axes and maps of its resamples ──▶ boxes       by arithmetic, corner by corner; key points in the same way
//!                                         └─▶ masks       the same resamples of eight outlines at a time, one bit each
//! ```
//!
//! All of them move by what was drawn for the image, so they can't differ from it. Names, settings and meaning are those
//! of torchvision's `transforms.v2`, unless a step says otherwise.

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
