//! A method of [`Transform`] for each step of this module.

use super::{
    crop::{FixedSizeCrop, PadTo, PadToLargest, RandomZoomOut},
    iou::RandomIouCrop,
    resize::{RandomShortestSize, ScaleJitter},
    settings::{BoxFormat, ConvertBoundingBoxFormat, SanitizeBoundingBoxes},
};
use crate::transform::chain::Transform;

/// Steps for detection and segmentation. The boxes and masks of a record ([`Instances`](infeed_data::Instances)) move
/// with its images through these and all other steps.
///
/// ```
/// use infeed::transform::Transform;
///
/// // SSD, and Mask R-CNN with large scale jitter, as torchvision's references train them.
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
    /// Resizes the shorter side to one of these lengths, with equal probability. The longer side gets at most
    /// `max_size`, which takes precedence. The images then have different sizes: add [`pad_to`](Self::pad_to) or a crop
    /// to make rows of them.
    pub fn random_shortest_size(self, min_size: impl Into<Vec<u32>>, max_size: impl Into<Option<u32>>) -> Self {
        self.push(RandomShortestSize::new(min_size, max_size))
    }

    /// Fits images into a size and scales that by a factor from 0.1 to 2. The images then have different sizes.
    pub fn scale_jitter(self, height: u32, width: u32) -> Self {
        self.push(ScaleJitter::new(height, width))
    }

    /// [`scale_jitter`](Self::scale_jitter) for a square, then a random crop of that square, padded if the image is
    /// smaller ([Ghiasi and others 2021](https://arxiv.org/abs/2012.07177)).
    pub fn large_scale_jitter(self, size: u32) -> Self {
        self.scale_jitter(size, size).fixed_size_crop(size, size)
    }

    /// Puts images on a black canvas of up to four times their sides, with probability `p`. For other colours and sizes
    /// use [`RandomZoomOut`].
    pub fn random_zoom_out(self, p: f32) -> Self {
        self.push(RandomZoomOut { p, ..RandomZoomOut::default() })
    }

    /// A random crop that keeps enough of one of the boxes; [`RandomIouCrop`] has the settings. Only for records with
    /// boxes. Boxes whose middle is outside of the crop get no size: add
    /// [`sanitize_bounding_boxes`](Self::sanitize_bounding_boxes) after it.
    pub fn random_iou_crop(self) -> Self {
        self.push(RandomIouCrop::default())
    }

    /// Crops to a size at a random place. If the image is smaller, it is padded on the right and at the bottom with
    /// black (with the mean after [`normalize`](Self::normalize)).
    pub fn fixed_size_crop(self, height: u32, width: u32) -> Self {
        self.push(FixedSizeCrop { size: [height, width] })
    }

    /// Pads with black (with the mean after [`normalize`](Self::normalize)) on the right and at the bottom, up to this
    /// size. A larger image is a bad sample.
    pub fn pad_to(self, height: u32, width: u32) -> Self {
        self.push(PadTo { size: [height, width] })
    }

    /// Pads with black (with the mean after [`normalize`](Self::normalize)) on the right and at the bottom, up to the
    /// size of the batch's largest image, rounded up to multiples of `multiple_of`, and at most this size. Rows then
    /// differ from batch to batch. [`PadToLargest`] lists its requirements.
    /// [`BucketSampler`](infeed_data::sampler::BucketSampler) puts images of similar proportion into one batch.
    pub fn pad_to_largest(self, max_height: u32, max_width: u32, multiple_of: u32) -> Self {
        self.push(PadToLargest { max_size: [max_height, max_width], multiple_of })
    }

    /// Drops boxes whose width or height is below `min_size` pixels, or whose area is below one square pixel.
    pub fn sanitize_bounding_boxes(self, min_size: f64) -> Self {
        self.push(SanitizeBoundingBoxes { min_size, ..SanitizeBoundingBoxes::default() })
    }

    /// The format of boxes in batches: which four numbers, in pixels of the row or, if `normalized`, in parts of the
    /// row's sides.
    pub fn box_format(self, format: BoxFormat, normalized: bool) -> Self {
        self.push(ConvertBoundingBoxFormat { format, normalized })
    }
}
