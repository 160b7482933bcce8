//! The boxes and key points of a sample while its steps run.

use infeed_core::{
    error::{Error, Result, setting::SKIP},
    report::Stage,
    types::ImageInfo,
};
use infeed_data::Instances;

use super::iou::{Box4, Window};
use crate::kernels::{Map, PixelOp};

/// Boxes and key points within a picture. Each method does to them what a step of that kind does to the picture. Boxes
/// are clipped to it as in torchvision; a point outside of it is no longer labelled, as in Detectron2.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::transform) struct Marked {
    pub(in crate::transform) boxes: Vec<Box4>,
    /// For each box, whether it is still there.
    pub(in crate::transform) kept: Vec<bool>,
    /// The key points of all boxes, as many for each: x, y, and visibility, which is 0 if the point is not labelled.
    pub(in crate::transform) points: Vec<[f64; 3]>,
    /// Whether the picture is a mirror image of the original.
    pub(in crate::transform) mirrored: bool,
    /// Height and width of the image within the row, without padding that was added last on the right and at the
    /// bottom. Set once the image is drawn.
    pub(in crate::transform) size: [u32; 2],
    padded: Option<[i64; 2]>,
}

impl Marked {
    /// The boxes of an image. If `sanitizes` is set, a later step drops boxes outside of the image; otherwise such
    /// boxes are refused.
    pub(in crate::transform) fn new(instances: &Instances, info: &ImageInfo, sanitizes: bool) -> Result<Self> {
        let bad = |what: String, hint: String| Err(Error::corrupt(what).with_hint(hint).at_stage(Stage::Transform));
        if !instances.is_sound() {
            let what = format!("lists of instances differ in length, for {} boxes", instances.len());
            return bad(what, "give each list an entry for each box".to_owned());
        }
        let ([height, width], size) = (instances.size, [info.height, info.width]);
        if instances.size != size {
            let what = format!("boxes of an image of {height}x{width} for one of {}x{}", info.height, info.width);
            return bad(what, format!("look at the annotations of this image, or set {SKIP}"));
        }
        let (right, bottom) = (f64::from(width), f64::from(height));
        let mut boxes = Vec::with_capacity(instances.len());
        for (given, id) in instances.boxes.iter().zip(&instances.ids) {
            let [x1, y1, x2, y2] = given.map(f64::from);
            // Written so that NaN fails. Infinite boxes have no middle.
            if !(x1 <= x2 && y1 <= y2 && given.iter().all(|v| v.is_finite())) {
                let what = format!("box {given:?} of instance {id}: it must be left, top, right, bottom");
                return bad(what, format!("correct the annotation, or set {SKIP}"));
            }
            let cut = [x1.clamp(0.0, right), y1.clamp(0.0, bottom), x2.clamp(0.0, right), y2.clamp(0.0, bottom)];
            // Boxes without width or height are kept: datasets have them, and crops make more.
            let is_flat = x1 == x2 || y1 == y2;
            if !sanitizes && !is_flat && (cut[0] >= cut[2] || cut[1] >= cut[3]) {
                let what = format!("box {given:?} of instance {id} has nothing inside its image of {height}x{width}");
                return bad(what, "add sanitize_bounding_boxes, which drops such boxes".to_owned());
            }
            boxes.push(cut);
        }
        let mut marked = Self::of(boxes, size);
        for (points, id) in instances.keypoints.iter().flatten().zip(&instances.ids) {
            if let Some(wrong) = points.iter().flatten().find(|number| !number.is_finite()) {
                let what = format!("a key point of instance {id} has {wrong}: it must be x, y, visibility");
                return bad(what, format!("correct the annotation, or set {SKIP}"));
            }
            marked.points.extend(points.iter().map(|point| point.map(f64::from)));
        }
        marked.cut(size.map(i64::from));
        Ok(marked)
    }

    pub(super) fn of(boxes: Vec<Box4>, size: [u32; 2]) -> Self {
        Self { kept: vec![true; boxes.len()], boxes, points: Vec::new(), mirrored: false, size, padded: None }
    }

    /// Moves the corners of boxes, and key points.
    fn each(&mut self, to: impl Fn([f64; 2]) -> [f64; 2]) {
        for found in &mut self.boxes {
            let [x1, y1, x2, y2] = *found;
            let corners = [[x1, y1], [x2, y1], [x2, y2], [x1, y2]].map(&to);
            let ends = |axis: usize| {
                let along = corners.iter().map(|corner| corner[axis]);
                (along.clone().fold(f64::INFINITY, f64::min), along.fold(f64::NEG_INFINITY, f64::max))
            };
            let ((left, right), (top, bottom)) = (ends(0), ends(1));
            *found = [left, top, right, bottom];
        }
        for [x, y, _] in &mut self.points {
            [*x, *y] = to([*x, *y]);
        }
    }

    /// Sets the size of the image within the picture, after the last step padded it.
    pub(in crate::transform) const fn padded(&mut self, image: [i64; 2]) {
        self.padded = Some(image);
    }

    /// Called after the last step: rows have this height and width.
    pub(in crate::transform) fn end(&mut self, row: [u32; 2]) {
        self.size = self.padded.map_or(row, |image| image.map(|side| side as u32));
    }

    /// Resizes from one height and width to another.
    pub(in crate::transform) fn resize(&mut self, from: [i64; 2], to: [i64; 2]) {
        self.padded = None;
        let [down, across] = [0, 1].map(|axis| to[axis] as f64 / from[axis] as f64);
        self.each(|[x, y]| [x * across, y * down]);
    }

    /// Crops to a window of this height and width, which may extend beyond the picture.
    pub(in crate::transform) fn crop(&mut self, [top, left]: [i64; 2], size: [i64; 2]) {
        self.padded = None;
        let (top, left) = (top as f64, left as f64);
        self.each(|[x, y]| [x - left, y - top]);
        self.cut(size);
    }

    /// Crops to a window that was chosen by the boxes.
    pub(in crate::transform) fn window(&mut self, window: &Window) {
        self.crop([window.top, window.left], [window.height, window.width]);
        let each = self.points.len().checked_div(self.boxes.len()).unwrap_or(0);
        for (i, _) in window.within.iter().enumerate().filter(|(_, within)| !**within) {
            self.boxes[i] = [0.0; 4];
            self.points[i * each..][..each].fill([0.0; 3]);
        }
    }

    pub(in crate::transform) fn mirror_across(&mut self, width: i64) {
        let width = width as f64;
        self.mirrored ^= true;
        self.each(|[x, y]| [width - x, y]);
    }

    pub(in crate::transform) fn mirror_down(&mut self, height: i64) {
        let height = height as f64;
        self.mirrored ^= true;
        self.each(|[x, y]| [x, height - y]);
    }

    /// Does what steps on a picture of this height and width do.
    pub(in crate::transform) fn pixels(&mut self, ops: &[PixelOp], [height, width]: [u32; 2]) {
        for op in ops {
            let PixelOp::Warp { map, .. } = op else { continue };
            let Some(forward) = forward(map, f64::from(height), f64::from(width)) else { continue };
            self.each(|corner| moved(&forward, corner));
            self.cut([height, width].map(i64::from));
        }
    }

    fn cut(&mut self, [height, width]: [i64; 2]) {
        let (right, bottom) = (width as f64, height as f64);
        for [x1, y1, x2, y2] in &mut self.boxes {
            (*x1, *x2) = (x1.clamp(0.0, right), x2.clamp(0.0, right));
            (*y1, *y2) = (y1.clamp(0.0, bottom), y2.clamp(0.0, bottom));
        }
        // Its pixel is gone, even if a later step pads the picture again.
        for [x, y, visibility] in &mut self.points {
            if !((0.0..=right).contains(x) && (0.0..=bottom).contains(y)) {
                *visibility = 0.0;
            }
        }
    }

    /// Drops boxes that are too small.
    pub(in crate::transform) fn sanitize(&mut self, min_size: f64, min_area: f64) {
        for ([x1, y1, x2, y2], kept) in self.boxes.iter().zip(&mut self.kept) {
            // In f32, as torchvision does.
            let (w, h) = (*x2 as f32 - *x1 as f32, *y2 as f32 - *y1 as f32);
            *kept &= w >= min_size as f32 && h >= min_size as f32 && w * h >= min_area as f32;
        }
    }
}

type Matrix = [[f64; 3]; 3];

/// The map from input points to output points: the inverse of `map`, which maps outputs to inputs. `None` if it has no
/// inverse.
fn forward(map: &Map, height: f64, width: f64) -> Option<Matrix> {
    let (x, y) = (0.5 * width, 0.5 * height);
    inverse(&match map {
        Map::Affine([a, b, c, d, e, f]) => {
            // The map is around the middle; here it is from the corner.
            [[*a, *b, c + x - a * x - b * y], [*d, *e, f + y - d * x - e * y], [0.0, 0.0, 1.0]]
        }
        Map::Perspective([a, b, c, d, e, f, g, h]) => [[*a, *b, *c], [*d, *e, *f], [*g, *h, 1.0]],
    })
}

fn inverse(m: &Matrix) -> Option<Matrix> {
    let minor = |r: usize, c: usize| {
        let (r1, r2, c1, c2) = ((r + 1) % 3, (r + 2) % 3, (c + 1) % 3, (c + 2) % 3);
        m[r1][c1] * m[r2][c2] - m[r1][c2] * m[r2][c1]
    };
    let det: f64 = (0..3).map(|c| m[0][c] * minor(0, c)).sum();
    let inverse: Matrix = std::array::from_fn(|r| std::array::from_fn(|c| minor(c, r) / det));
    inverse.iter().flatten().all(|v| v.is_finite()).then_some(inverse)
}

fn moved(m: &Matrix, [x, y]: [f64; 2]) -> [f64; 2] {
    let [across, down, by] = m.map(|row| row[0] * x + row[1] * y + row[2]);
    let place = [across / by, down / by];
    // A corner beyond the horizon of a perspective has no position; use one that is very far away.
    place.map(|v| if v.is_nan() { 0.0 } else { v.clamp(-1e9, 1e9) })
}
