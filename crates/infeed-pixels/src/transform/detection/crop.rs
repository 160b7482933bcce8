//! Steps that put the image on a larger canvas, or crop or pad it to a size.

use infeed_core::{
    error::{Error, Result},
    random::Draws,
};
use serde::{Deserialize, Serialize};

use crate::transform::augment::{PictureShape, Value, check_fill, half, ordered, probability};

/// Puts the image at a random place of a larger canvas; torchvision's `RandomZoomOut`.
///
/// Draws: whether it happens; the sides of the canvas relative to the image; the place of the image, horizontal and
/// vertical.
///
/// ```
/// use infeed::transform::{Transform, augment::Value, detection::RandomZoomOut};
///
/// // A canvas of ImageNet's mean, at most twice as large, before SSD's crop.
/// let zoom = RandomZoomOut { fill: Value::Each(vec![0.485, 0.456, 0.406]), side_range: [1.0, 2.0], p: 0.5 };
/// let ssd = Transform::new().push(zoom).random_iou_crop().resize_exact(300, 300).sanitize_bounding_boxes(1.0);
/// # let same = "random_zoom_out:0.5,0.485/0.456/0.406,1/2;random_iou_crop;resize_exact:300;sanitize_bounding_boxes";
/// # assert_eq!(ssd, same.parse()?);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RandomZoomOut {
    /// Value around the image, a part of white.
    pub fill: Value,
    /// Least and greatest side, where 1 is the image's side.
    pub side_range: [f64; 2],
    /// Probability.
    pub p: f32,
}

impl Default for RandomZoomOut {
    fn default() -> Self {
        Self { fill: Value::All(0.0), side_range: [1.0, 4.0], p: half() }
    }
}

impl RandomZoomOut {
    pub(in crate::transform) fn check(&self, name: &str, at: &PictureShape) -> Result<()> {
        check_fill(name, Some(&self.fill), at)?;
        ordered(name, "side_range", self.side_range, 1.0, 64.0)?;
        probability(name, self.p)
    }

    /// Top, left, height and width of the canvas in coordinates of the image; `None`: no canvas.
    pub(in crate::transform) fn canvas(&self, height: i64, width: i64, draws: &mut Draws) -> Option<[i64; 4]> {
        if !draws.chance(self.p) {
            return None;
        }
        let [low, high] = self.side_range;
        let side = draws.between(low, high);
        let across = draws.unit();
        Some(around(height, width, side as f32, [across, draws.unit()]))
    }
}

/// A canvas of relative side `side`; `across` and `down` are the parts of the spare space left of and above the image.
/// Rounded in f32, as torchvision does.
pub(super) fn around(height: i64, width: i64, side: f32, [across, down]: [f32; 2]) -> [i64; 4] {
    let [canvas_height, canvas_width] = [height, width].map(|own| ((own as f32 * side) as i64).max(own));
    let left = ((canvas_width - width) as f32 * across) as i64;
    let top = ((canvas_height - height) as f32 * down) as i64;
    [-top, -left, canvas_height, canvas_width]
}

/// Crops to a size at a random place. A smaller image is padded on the right and at the bottom. torchvision's
/// references and Detectron2 use it after a scale jitter. Draws: one number for both offsets.
///
/// ```
/// # use std::sync::Arc;
/// use infeed::{Loader, transform::{Transform, detection::FixedSizeCrop}};
///
/// # let dataset = Arc::new(infeed::dataset::SyntheticDataset::new(4, 30, 50, 2)?);
/// // Images of 30x50: wider than the crop, and padded at the bottom.
/// let transform = Transform::new().push(FixedSizeCrop { size: [40, 40] });
/// let loader = Loader::builder(dataset).batch_size(4).transform(transform).build_blocking()?;
/// let batch = loader.epoch(0).blocking().next().expect("one batch")?;
/// assert_eq!(batch["image"].shape(), [4, 3, 40, 40]);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FixedSizeCrop {
    /// Height, width.
    #[serde(deserialize_with = "crate::transform::op::one_or_two")]
    pub size: [u32; 2],
}

impl FixedSizeCrop {
    /// Top and left of the crop.
    pub(in crate::transform) fn place(&self, height: i64, width: i64, draws: &mut Draws) -> [i64; 2] {
        let part = draws.between(0.0, 1.0);
        let offset = |have: i64, size: u32| ((have - i64::from(size)).max(0) as f64 * part) as i64;
        [offset(height, self.size[0]), offset(width, self.size[1])]
    }
}

/// Pads on the right and at the bottom up to a size. A larger image is a bad sample.
///
/// ```
/// # use std::sync::Arc;
/// use infeed::{Loader, transform::{Transform, detection::PadTo}};
///
/// # let dataset = Arc::new(infeed::dataset::SyntheticDataset::new(4, 30, 50, 2)?);
/// // Images of 30x50 fit into 64x64 for every draw.
/// let transform = Transform::new().random_shortest_size([24, 32], 64).push(PadTo { size: [64, 64] });
/// let loader = Loader::builder(dataset).batch_size(4).transform(transform).build_blocking()?;
/// let batch = loader.epoch(0).blocking().next().expect("one batch")?;
/// assert_eq!(batch["image"].shape(), [4, 3, 64, 64]);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PadTo {
    /// Height, width.
    #[serde(deserialize_with = "crate::transform::op::one_or_two")]
    pub size: [u32; 2],
}

/// Pads on the right and at the bottom, up to the size of the batch's largest image.
///
/// Rows are as high and wide as that, so they differ from batch to batch. The dataset must give the sizes of its images
/// before they are read ([`Dataset::image_size`](infeed_data::Dataset::image_size)). A later step may not move pixels
/// or draw places.
///
/// Pixels do not depend on the size of the rows, except for the last bits of their values in flipped images: there,
/// positions are counted from the other end of the row.
///
/// ```
/// # use std::sync::Arc;
/// use infeed::{Loader, transform::{Transform, detection::PadToLargest}};
///
/// # let images = infeed::dataset::MemoryDataset::builder().images_u8(vec![0; 2 * 30 * 50], 2, 30, 50, 1, false);
/// # let dataset = Arc::new(images.build()?);
/// // Images of 30x50, in multiples of 16.
/// let transform = Transform::new().push(PadToLargest { max_size: [1024, 1024], multiple_of: 16 });
/// let loader = Loader::builder(dataset).batch_size(2).transform(transform).build_blocking()?;
/// let batch = loader.epoch(0).blocking().next().expect("one batch")?;
/// assert_eq!(batch["image"].shape(), [2, 1, 32, 64]);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PadToLargest {
    /// Greatest height and width; a larger image is a bad sample. Memory is reserved for rows of this size.
    #[serde(deserialize_with = "crate::transform::op::one_or_two")]
    pub max_size: [u32; 2],
    /// Heights and widths are rounded up to multiples of this.
    #[serde(default = "one")]
    pub multiple_of: u32,
}

const fn one() -> u32 {
    1
}

impl PadToLargest {
    pub(in crate::transform) fn check(&self, name: &str) -> Result<()> {
        if self.multiple_of == 0 || self.max_size.iter().any(|side| !side.is_multiple_of(self.multiple_of)) {
            let ([h, w], n) = (self.max_size, self.multiple_of);
            return Err(Error::config(format!("{name} has max_size {h}x{w}, and multiples of {n}"))
                .with_hint("set multiple_of to 1 or more, and max_size to multiples of it"));
        }
        Ok(())
    }

    /// Height and width of the rows of a batch whose images have these sizes.
    pub(in crate::transform) fn rows(&self, images: impl IntoIterator<Item = [u32; 2]>) -> [u32; 2] {
        let largest = images.into_iter().fold([1; 2], |[a, b], [h, w]| [h.max(a), w.max(b)]);
        [0, 1].map(|side| {
            let rounded = u64::from(largest[side]).next_multiple_of(self.multiple_of.into());
            u32::try_from(rounded).unwrap_or(u32::MAX).min(self.max_size[side])
        })
    }
}
