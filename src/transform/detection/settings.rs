//! What becomes of boxes, but for being moved.

use serde::{Deserialize, Serialize};

use super::iou::Box4;
use crate::error::{Error, Result};

/// What the four numbers of a box are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BoxFormat {
    /// Left, top, right, bottom.
    #[default]
    Xyxy,
    /// Left, top, width, height.
    Xywh,
    /// Middle across, middle down, width, height.
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

/// How the batch's boxes are written, wherever it stands in the list; torchvision's `ConvertBoundingBoxFormat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConvertBoundingBoxFormat {
    /// What the numbers are.
    pub format: BoxFormat,
    /// Whether they are parts of the row's width and height, 0 to 1, instead of pixels.
    pub normalized: bool,
}

/// Drops boxes that are too small at this place of the list, with their labels and masks; torchvision's
/// `SanitizeBoundingBoxes`. Those that lie outside their image are among them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SanitizeBoundingBoxes {
    /// Least width and height, in pixels.
    pub min_size: f64,
    /// Least area, in pixels.
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
                return Err(Error::config(format!("{name} has {what} {least}")).hint("use 0 or more pixels"));
            }
        }
        Ok(())
    }
}
