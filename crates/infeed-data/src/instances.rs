//! The objects that are marked in an image: boxes, classes, outlines.

use super::mask::Mask;

/// The objects that are marked in one image, for detection and segmentation.
///
/// Each list except `masks` has one entry for each object, in the order of the dataset.
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
}

impl Instances {
    /// No objects, in an image of this height and width.
    #[must_use]
    pub fn new(size: [u32; 2]) -> Self {
        Self { size, ..Self::default() }
    }

    /// Adds an object without an outline.
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
    pub(crate) fn bytes(&self) -> usize {
        let corners = |mask: &Mask| match mask {
            Mask::Polygons(polygons) => polygons.iter().map(|polygon| polygon.len() * 16).sum(),
            Mask::Rle(rle) => rle.counts().len() * 4,
        };
        self.len() * (16 + 8 + 8 + 1) + self.masks.iter().flatten().map(corners).sum::<usize>()
    }

    /// Whether all lists have the length of `boxes`.
    #[doc(hidden)]
    pub fn is_sound(&self) -> bool {
        let len = self.boxes.len();
        self.labels.len() == len
            && self.ids.len() == len
            && self.crowd.len() == len
            && self.masks.as_ref().is_none_or(|masks| masks.len() == len)
    }
}
