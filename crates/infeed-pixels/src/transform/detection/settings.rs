//! Steps that do not move boxes: their format, and dropping small ones.

use infeed_core::error::{Error, Result};
use serde::{Deserialize, Serialize};

use super::iou::Box4;

/// The four numbers of a box.
///
/// ```
/// # use std::sync::Arc;
/// use infeed::{Loader, Transform, dataset::Instances, transform::detection::BoxFormat};
///
/// # let mut marked = Instances::new([40, 60]);
/// marked.push([10.0, 10.0, 30.0, 20.0], 3); // Left, top, right, bottom.
/// # let images = infeed::dataset::MemoryDataset::builder().images_u8(vec![0; 40 * 60], 1, 40, 60, 1, false);
/// # let dataset = Arc::new(images.instances(vec![marked]).build()?);
/// let transform = Transform::new().box_format(BoxFormat::Cxcywh, false);
/// let loader = Loader::builder(dataset).batch_size(1).transform(transform).build_blocking()?;
/// let batch = loader.epoch(0).blocking().next().expect("one batch")?;
/// let instances = batch.instances("instances").expect("a field of that name");
/// assert_eq!(instances.row(0).boxes, [[20.0, 15.0, 20.0, 10.0]]);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BoxFormat {
    /// Left, top, right, bottom.
    #[default]
    Xyxy,
    /// Left, top, width, height.
    Xywh,
    /// Centre x, centre y, width, height.
    Cxcywh,
}

impl BoxFormat {
    pub(in crate::transform) fn of(self, [x1, y1, x2, y2]: Box4) -> Box4 {
        match self {
            Self::Xyxy => [x1, y1, x2, y2],
            Self::Xywh => [x1, y1, x2 - x1, y2 - y1],
            Self::Cxcywh => [0.5 * (x1 + x2), 0.5 * (y1 + y2), x2 - x1, y2 - y1],
        }
    }
}

/// Sets the format of the batch's boxes, at any place in the list; torchvision's `ConvertBoundingBoxFormat`.
///
/// ```
/// # use std::sync::Arc;
/// use infeed::{
///     Loader, Transform,
///     dataset::Instances,
///     transform::detection::{BoxFormat, ConvertBoundingBoxFormat},
/// };
///
/// # let mut marked = Instances::new([40, 60]);
/// marked.push([15.0, 10.0, 30.0, 20.0], 3); // In an image of 40x60.
/// # let images = infeed::dataset::MemoryDataset::builder().images_u8(vec![0; 40 * 60], 1, 40, 60, 1, false);
/// # let dataset = Arc::new(images.instances(vec![marked]).build()?);
/// // DETR's and YOLO's format: centre and sides, in parts of the row's sides.
/// let format = ConvertBoundingBoxFormat { format: BoxFormat::Cxcywh, normalized: true };
/// let loader = Loader::builder(dataset).batch_size(1).transform(Transform::new().push(format)).build_blocking()?;
/// let batch = loader.epoch(0).blocking().next().expect("one batch")?;
/// let instances = batch.instances("instances").expect("a field of that name");
/// assert_eq!(instances.row(0).boxes, [[0.375, 0.375, 0.25, 0.25]]);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConvertBoundingBoxFormat {
    /// The four numbers.
    pub format: BoxFormat,
    /// Whether they are parts of the row's width and height, 0 to 1, instead of pixels.
    pub normalized: bool,
}

/// Drops boxes that are too small at this point of the list, with their labels and masks; torchvision's
/// `SanitizeBoundingBoxes`. Boxes outside of their image are also dropped.
///
/// ```
/// # use std::sync::Arc;
/// use infeed::{Loader, Transform, dataset::Instances, transform::detection::SanitizeBoundingBoxes};
///
/// # let mut marked = Instances::new([40, 60]);
/// marked.push([0.0, 0.0, 3.0, 3.0], 1);
/// marked.push([10.0, 10.0, 30.0, 20.0], 2);
/// # let images = infeed::dataset::MemoryDataset::builder().images_u8(vec![0; 40 * 60], 1, 40, 60, 1, false);
/// # let dataset = Arc::new(images.instances(vec![marked]).build()?);
/// let transform = Transform::new().push(SanitizeBoundingBoxes { min_size: 2.0, min_area: 16.0 });
/// let loader = Loader::builder(dataset).batch_size(1).transform(transform).build_blocking()?;
/// let batch = loader.epoch(0).blocking().next().expect("one batch")?;
/// let instances = batch.instances("instances").expect("a field of that name");
/// assert_eq!(instances.row(0).labels, [2]); // Too small: 9 square pixels.
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SanitizeBoundingBoxes {
    /// Least width and height, in pixels.
    pub min_size: f64,
    /// Least area, in square pixels.
    pub min_area: f64,
}

impl Default for SanitizeBoundingBoxes {
    fn default() -> Self {
        Self { min_size: 1.0, min_area: 1.0 }
    }
}

impl SanitizeBoundingBoxes {
    pub(in crate::transform) fn check(&self, name: &str) -> Result<()> {
        for (what, least) in [("min_size", self.min_size), ("min_area", self.min_area)] {
            if !(least >= 0.0 && least.is_finite()) {
                return Err(Error::config(format!("{name} has {what} {least}")).with_hint("use 0 or more pixels"));
            }
        }
        Ok(())
    }
}
