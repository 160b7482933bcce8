//! A method of [`Transform`] for each step.

use super::{
    crop::{FixedSizeCrop, PadTo, PadToLargest, RandomZoomOut},
    iou::RandomIouCrop,
    resize::{RandomShortestSize, ScaleJitter},
    settings::{BoxFormat, ConvertBoundingBoxFormat, SanitizeBoundingBoxes},
};
use crate::transform::chain::Transform;

/// Steps of detection and segmentation. The boxes and masks of a record ([`Instances`](infeed_data::Instances)) move
/// with its images through these and all others.
///
/// ```
/// use infeed::transform::Transform;
///
/// // SSD, and Mask R-CNN by large scale jitter, as torchvision's references train them.
/// let ssd = Transform::new()
///     .random_photometric_distort()
///     .random_zoom_out(0.5)
///     .random_iou_crop()
///     .horizontal_flip(0.5)
///     .resize_exact(300, 300)
///     .sanitize_bounding_boxes(1.0);
/// let jitter = Transform::new().large_scale_jitter(1024).horizontal_flip(0.5).sanitize_bounding_boxes(1.0);
/// # let _ = (ssd, jitter);
/// ```
impl Transform {
    /// Brings the shorter side to one of these lengths, drawn evenly; the longer one to at most `max_size`, which goes
    /// before. Images come out in different sizes: [`pad_to`](Self::pad_to) or another crop makes rows of them.
    pub fn random_shortest_size(self, min_size: impl Into<Vec<u32>>, max_size: impl Into<Option<u32>>) -> Self {
        self.push(RandomShortestSize::new(min_size, max_size))
    }

    /// Fits images into a size and scales that by 0.1 to 2. They come out in different sizes.
    pub fn scale_jitter(self, height: u32, width: u32) -> Self {
        self.push(ScaleJitter::new(height, width))
    }

    /// [`scale_jitter`](Self::scale_jitter) for a square, and a random crop of it, padded where the image is smaller
    /// ([Ghiasi and others 2021](https://arxiv.org/abs/2012.07177)).
    pub fn large_scale_jitter(self, size: u32) -> Self {
        self.scale_jitter(size, size).fixed_size_crop(size, size)
    }

    /// Puts images on a black canvas of up to four times their sides, with probability `p`.
    /// [`RandomZoomOut`] has other colours and sizes.
    pub fn random_zoom_out(self, p: f32) -> Self {
        self.push(RandomZoomOut { p, ..RandomZoomOut::default() })
    }

    /// A random crop that keeps enough of one of the boxes; [`RandomIouCrop`] has the settings. Only for records with
    /// boxes. Those whose middle is outside come out with no size: put
    /// [`sanitize_bounding_boxes`](Self::sanitize_bounding_boxes) behind it.
    pub fn random_iou_crop(self) -> Self {
        self.push(RandomIouCrop::default())
    }

    /// Cuts a size out at a random place; what is missing is black (the mean behind
    /// [`normalize`](Self::normalize)), on the right and at the bottom.
    pub fn fixed_size_crop(self, height: u32, width: u32) -> Self {
        self.push(FixedSizeCrop { size: [height, width] })
    }

    /// Adds black (the mean behind [`normalize`](Self::normalize)) on the right and at the bottom, up to this size. A
    /// larger image is a bad sample.
    pub fn pad_to(self, height: u32, width: u32) -> Self {
        self.push(PadTo { size: [height, width] })
    }

    /// Adds black (the mean behind [`normalize`](Self::normalize)) on the right and at the bottom, up to the size of the
    /// largest image of the batch, in multiples of `multiple_of`, at most this size: rows differ from batch to batch.
    /// [`PadToLargest`] says what it needs, and [`BucketSampler`](infeed_data::sampler::BucketSampler) puts images of one
    /// proportion into a batch.
    pub fn pad_to_largest(self, max_height: u32, max_width: u32, multiple_of: u32) -> Self {
        self.push(PadToLargest { max_size: [max_height, max_width], multiple_of })
    }

    /// Drops boxes of less than `min_size` pixels across or down, and of less than one square pixel.
    pub fn sanitize_bounding_boxes(self, min_size: f64) -> Self {
        self.push(SanitizeBoundingBoxes { min_size, ..SanitizeBoundingBoxes::default() })
    }

    /// How batches have their boxes: which numbers, in pixels of the row or, `normalized`, in parts of its sides.
    pub fn box_format(self, format: BoxFormat, normalized: bool) -> Self {
        self.push(ConvertBoundingBoxFormat { format, normalized })
    }
}
