//! SSD's crop, which depends on the boxes.

use infeed_core::{
    error::{Error, Result},
    random::Draws,
};
use serde::{Deserialize, Serialize};

use crate::transform::augment::ordered;

/// Left, top, right, bottom.
pub(in crate::transform) type Box4 = [f64; 4];

/// After this many rounds of draws, the image stays as it is. torchvision loops forever if no crop fits and no option
/// keeps the whole image.
const ROUNDS: usize = 50;

/// A random crop that contains enough of a box; torchvision's `RandomIoUCrop`. Boxes whose middle is outside of the
/// crop get no size; [`SanitizeBoundingBoxes`](super::SanitizeBoundingBoxes) drops them. Images without boxes stay
/// unchanged.
///
/// Draws: the overlap; then up to `trials` times the horizontal and vertical scale and, if the proportion is allowed,
/// the horizontal and vertical place. If no crop fits, it starts again with another overlap.
///
/// ```
/// use infeed::transform::{Transform, detection::RandomIouCrop};
///
/// // At least half of a box, or the whole image. Boxes outside of the crop are dropped afterwards.
/// let crop = RandomIouCrop { sampler_options: vec![0.5, 1.0], ..RandomIouCrop::default() };
/// let ssd = Transform::new().push(crop).resize_exact(300, 300).sanitize_bounding_boxes(1.0);
/// assert_eq!(ssd, "random_iou_crop:sampler_options=0.5/1;resize_exact:300;sanitize_bounding_boxes".parse()?);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RandomIouCrop {
    /// Least part of each side.
    pub min_scale: f64,
    /// Greatest part of each side.
    pub max_scale: f64,
    /// Least width over height.
    pub min_aspect_ratio: f64,
    /// Greatest width over height.
    pub max_aspect_ratio: f64,
    /// Overlaps of the crop and a box (intersection over union), of which one is drawn as the minimum. 1 or more: no
    /// crop.
    pub sampler_options: Vec<f64>,
    /// Number of tries with one overlap.
    pub trials: u32,
}

impl Default for RandomIouCrop {
    fn default() -> Self {
        Self {
            min_scale: 0.3,
            max_scale: 1.0,
            min_aspect_ratio: 0.5,
            max_aspect_ratio: 2.0,
            sampler_options: vec![0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0],
            trials: 40,
        }
    }
}

/// The drawn window, and for each box whether its middle is in it.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::transform) struct Window {
    pub(in crate::transform) top: i64,
    pub(in crate::transform) left: i64,
    pub(in crate::transform) height: i64,
    pub(in crate::transform) width: i64,
    pub(in crate::transform) within: Vec<bool>,
}

impl RandomIouCrop {
    pub(in crate::transform) fn check(&self, name: &str) -> Result<()> {
        ordered(name, "scale", [self.min_scale, self.max_scale], f64::MIN_POSITIVE, 1.0)?;
        let ratios = [self.min_aspect_ratio, self.max_aspect_ratio];
        ordered(name, "aspect_ratio", ratios, f64::MIN_POSITIVE, f64::INFINITY)?;
        if self.sampler_options.is_empty() || !self.sampler_options.iter().all(|overlap| *overlap >= 0.0) {
            return Err(Error::config(format!("{name} has sampler_options {:?}", self.sampler_options))
                .with_hint("give overlaps from 0 to 1; 1 keeps the whole image"));
        }
        if self.trials == 0 {
            return Err(Error::config(format!("{name} has no trials")).with_hint("use 1 or more"));
        }
        Ok(())
    }

    /// A window of a picture with these boxes; `None`: the whole picture.
    pub(in crate::transform) fn draw(
        &self,
        height: i64,
        width: i64,
        boxes: &[Box4],
        draws: &mut Draws,
    ) -> Option<Window> {
        if boxes.is_empty() {
            return None;
        }
        for _ in 0..ROUNDS {
            let overlap = self.sampler_options[draws.below(self.sampler_options.len() as u64) as usize];
            if overlap >= 1.0 {
                return None;
            }
            for _ in 0..self.trials {
                let mut scale = || draws.between(self.min_scale, self.max_scale) as f32;
                let scales = [scale(), scale()];
                let Some(size) = self.size(height, width, scales) else { continue };
                let parts = [draws.unit(), draws.unit()];
                let window = place(height, width, size, parts, boxes);
                if window.takes(boxes, overlap) {
                    return Some(window);
                }
            }
        }
        None
    }

    /// Height and width for a horizontal and a vertical scale.
    pub(super) fn size(&self, height: i64, width: i64, [across, down]: [f32; 2]) -> Option<[i64; 2]> {
        let (w, h) = ((width as f32 * across) as i64, (height as f32 * down) as i64);
        let ratio = w as f64 / h as f64;
        let fits = (self.min_aspect_ratio..=self.max_aspect_ratio).contains(&ratio);
        (w > 0 && h > 0 && fits).then_some([h, w])
    }
}

/// The window at this place; `across` and `down` are parts of the spare width and height.
pub(super) fn place(height: i64, width: i64, [h, w]: [i64; 2], [across, down]: [f32; 2], boxes: &[Box4]) -> Window {
    let left = ((width - w) as f32 * across) as i64;
    let top = ((height - h) as f32 * down) as i64;
    let inside = |low: f64, high: f64, from: i64, len: i64| {
        let middle = 0.5 * (low as f32 + high as f32);
        (from as f32) < middle && middle < (from + len) as f32
    };
    let within = |[x1, y1, x2, y2]: &Box4| inside(*x1, *x2, left, w) && inside(*y1, *y2, top, h);
    Window { top, left, height: h, width: w, within: boxes.iter().map(within).collect() }
}

impl Window {
    /// Whether the window overlaps enough with one of the boxes whose middle is in it.
    pub(super) fn takes(&self, boxes: &[Box4], overlap: f64) -> bool {
        let most = boxes.iter().zip(&self.within).filter(|(_, within)| **within).map(|(b, _)| self.iou(b));
        most.reduce(f32::max).is_some_and(|most| most >= overlap as f32)
    }

    /// Intersection over union with a box, in f32, as in torchvision.
    fn iou(&self, found: &Box4) -> f32 {
        let [x1, y1, x2, y2] = found.map(|v| v as f32);
        let [left, top] = [self.left, self.top].map(|v| v as f32);
        let (right, bottom) = (left + self.width as f32, top + self.height as f32);
        let common = (x2.min(right) - x1.max(left)).max(0.0) * (y2.min(bottom) - y1.max(top)).max(0.0);
        let all = (x2 - x1) * (y2 - y1) + (right - left) * (bottom - top) - common;
        common / all
    }
}
