//! The objects that are marked in an image: boxes, classes, outlines, key points.

use super::mask::Mask;

/// The objects that are marked in one image, for detection and segmentation.
///
/// Each list has one entry for each object, in the order of the dataset; `masks` and `keypoints` may be absent.
///
/// ```
/// use infeed::dataset::Instances;
///
/// // Two objects in an image of 480 rows and 640 columns.
/// let mut marked = Instances::new([480, 640]);
/// marked.push([10.0, 20.0, 110.0, 220.0], 3);
/// marked.push([300.0, 0.0, 640.0, 480.0], 7);
/// assert_eq!((marked.len(), &marked.labels[..]), (2, &[3, 7][..]));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Instances {
    /// Height and width, in pixels, of the image that the coordinates refer to.
    pub size: [u32; 2],
    /// Left, top, right, bottom in pixels (`xyxy`). Coordinates go from 0 to the width or height; pixel `n` covers `n`
    /// to `n + 1`.
    pub boxes: Vec<[f32; 4]>,
    /// Class indices.
    pub labels: Vec<i64>,
    /// The id of each object: COCO's annotation id, otherwise its index in the image.
    pub ids: Vec<i64>,
    /// Whether the object is a crowd (COCO) or difficult (VOC). Losses and evaluations leave these out.
    pub crowd: Vec<bool>,
    /// One outline for each object, if the field has masks.
    pub masks: Option<Vec<Mask>>,
    /// The key points of each object, if the field has them: equally many for all objects. Each is `[x, y, v]`: x and y
    /// in the coordinates of boxes, then COCO's visibility: 0 not labelled, 1 labelled but hidden, 2 visible. Loaders
    /// write 0, 0, 0 for a point that is not labelled.
    pub keypoints: Option<Vec<Vec<[f32; 3]>>>,
}

impl Instances {
    /// No objects, in an image of this height and width.
    #[must_use]
    pub fn new(size: [u32; 2]) -> Self {
        Self { size, ..Self::default() }
    }

    /// Adds an object without an outline and without key points.
    pub fn push(&mut self, r#box: [f32; 4], label: i64) {
        self.ids.push(self.boxes.len() as i64);
        self.boxes.push(r#box);
        self.labels.push(label);
        self.crowd.push(false);
    }

    /// Number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.boxes.len()
    }

    /// Whether there are no objects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.boxes.is_empty()
    }

    /// Bytes that the lists take.
    #[doc(hidden)]
    pub fn bytes(&self) -> usize {
        let corners = |mask: &Mask| match mask {
            Mask::Polygons(polygons) => polygons.iter().map(|polygon| polygon.len() * 16).sum(),
            Mask::Rle(rle) => rle.counts().len() * 4,
        };
        let points = self.keypoints.iter().flatten().map(|points| size_of_val(&**points)).sum::<usize>();
        self.len() * (16 + 8 + 8 + 1) + self.masks.iter().flatten().map(corners).sum::<usize>() + points
    }

    /// Whether each object has this many key points; for 0, whether there are none.
    #[doc(hidden)]
    pub fn has_keypoints(&self, each: usize) -> bool {
        self.keypoints.as_ref().map_or(each == 0, |all| all.iter().all(|points| points.len() == each))
    }

    /// Whether all lists have the length of `boxes`.
    #[doc(hidden)]
    pub fn is_sound(&self) -> bool {
        let len = self.boxes.len();
        self.labels.len() == len
            && self.ids.len() == len
            && self.crowd.len() == len
            && self.masks.as_ref().is_none_or(|masks| masks.len() == len)
            && self.keypoints.as_ref().is_none_or(|points| points.len() == len)
    }
}
