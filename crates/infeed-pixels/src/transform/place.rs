//! Moves the instances of an image into its row.

use std::sync::Arc;

use infeed_core::{
    error::{Error, Result},
    random::SampleRng,
    types::{DType, ImageInfo, Layout},
};
use infeed_data::{FieldKind, Instances, Mask, Rle};

use super::{
    chain::Transform,
    detection::{ConvertBoundingBoxFormat, Marked, PadToLargest},
    lower::Lowered,
    make::{Decoded, RowMaker},
    op::Op,
};
use crate::kernels::Pixels;

/// A transform that fits a field of instances (boxes and outlines). Cheap to clone.
///
/// ```
/// use infeed::{dataset::{FieldKind, Instances}, spi::Placer, transform::{SampleRng, Transform}};
///
/// let mut marked = Instances::new([40, 60]); // Height and width of the image.
/// marked.push([10.0, 10.0, 20.0, 30.0], 3);
/// let field = FieldKind::Instances { most: 1, masks: false, keypoints: 0 };
/// let lowered = Transform::new().horizontal_flip(1.0).resize_exact(80, 120).lower_instances(&field, None)?;
/// assert_eq!((lowered.row(), lowered.has_masks()), ([80, 120], false));
/// let placed = Placer::new().run(&lowered, &marked, SampleRng::new(42, 0, 7))?;
/// assert_eq!((placed.boxes[0], placed.labels[0]), ([80.0, 20.0, 100.0, 60.0], 3));
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct LoweredInstances {
    /// The same transform, lowered for a mask.
    lowered: Lowered,
    format: ConvertBoundingBoxFormat,
    masks: bool,
    /// For each key point, the one that takes its place in a mirror image.
    mirror: Arc<[usize]>,
}

impl Transform {
    /// Fits the transform to a field of instances, which move with the images of their record. `size`: height and width
    /// of the images, if all have the same.
    ///
    /// # Errors
    /// As [`lower_mask`](Self::lower_mask).
    pub fn lower_instances(&self, field: &FieldKind, size: Option<(u32, u32)>) -> Result<LoweredInstances> {
        let FieldKind::Instances { masks, keypoints, .. } = *field else {
            return Err(Error::config("the field holds no instances").with_hint("name the field that holds the boxes"));
        };
        let kind = FieldKind::Image { channels: 1, size, dtype: Some(DType::U8) };
        let lowered = self.lower_mask(&kind, Layout::Nchw)?;
        let format = self.ops().iter().rev().find_map(|op| match op {
            Op::ConvertBoundingBoxFormat(format) => Some(*format),
            _ => None,
        });
        let mirror = (0..keypoints).collect();
        Ok(LoweredInstances { lowered, format: format.unwrap_or_default(), masks, mirror })
    }
}

impl LoweredInstances {
    /// Whether instances have masks, which must be moved.
    #[must_use]
    pub const fn has_masks(&self) -> bool {
        self.masks
    }

    /// Number of key points of each object; 0 if there are none.
    #[must_use]
    pub fn keypoints(&self) -> usize {
        self.mirror.len()
    }

    /// The same for key points of these names: in a mirror image, `left_eye` and `right_eye` change places, and so do
    /// all names that differ only in the word `left` or `right`. Without names no points change places.
    #[must_use]
    pub fn with_keypoint_names(mut self, names: &[String]) -> Self {
        let opposite = |n: usize| {
            let theirs = mirrored(&names[n]);
            names.iter().position(|name| *name == theirs)
        };
        let partner = |n: usize| opposite(n).filter(|other| opposite(*other) == Some(n)).unwrap_or(n);
        if names.len() == self.mirror.len() {
            self.mirror = (0..names.len()).map(partner).collect();
        }
        self
    }

    /// The same for rows of this height and width, as in [`Lowered::of_size`].
    #[must_use]
    pub fn of_size(mut self, size: Option<[u32; 2]>) -> Self {
        self.lowered = self.lowered.of_size(size);
        self
    }

    /// Height and width of rows.
    #[must_use]
    pub fn row(&self) -> [u32; 2] {
        let row = self.lowered.row();
        [row.height, row.width]
    }

    /// Host memory for moving masks of images of up to `max_image_bytes`: eight outlines of the image and of the row,
    /// and the memory of one resample.
    #[doc(hidden)]
    pub fn scratch_bytes(&self, max_image_bytes: u64) -> u64 {
        if !self.masks {
            return 0;
        }
        // One byte per pixel, for an image of three bytes per pixel.
        let picture = max_image_bytes / 3;
        let row = self.lowered.row().len_bytes() as u64;
        picture.saturating_add(row).saturating_add(self.lowered.tile_bytes(picture))
    }

    /// Most bytes that `instances` instances of a record take in a batch, if each column of a mask has two edges.
    #[doc(hidden)]
    pub fn most_bytes(&self, instances: usize) -> usize {
        let mask = if self.masks { self.row()[1] as usize * 8 } else { 0 };
        instances.saturating_mul(16 + 8 + 8 + 1 + mask + self.keypoints() * 12)
    }
}

/// The name with left and right exchanged.
fn mirrored(name: &str) -> String {
    [("left", "right"), ("Left", "Right"), ("LEFT", "RIGHT")].iter().fold(name.to_owned(), |name, (left, right)| {
        name.split(left).map(|part| part.replace(right, left)).collect::<Vec<_>>().join(right)
    })
}

/// The size of a batch's rows, if they are as large as its largest image.
///
/// ```
/// use infeed::transform::{SampleRng, Transform};
///
/// let transform = Transform::new().pad_to_largest(1024, 1024, 32);
/// let size = transform.batch_size()?.expect("rows differ from batch to batch");
/// let draws = |record| SampleRng::new(42, 0, record);
/// assert_eq!(size.of([([480, 640], draws(0)), ([500, 333], draws(1))]), [512, 640]);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct BatchSize {
    lowered: Lowered,
    step: PadToLargest,
}

impl BatchSize {
    /// Height and width of the rows of a batch, given the heights and widths of its images and their draws. Images that
    /// can't be drawn are bad samples and do not count.
    #[must_use]
    pub fn of(&self, images: impl IntoIterator<Item = ([u32; 2], SampleRng)>) -> [u32; 2] {
        let drawn = |([height, width], rng): ([u32; 2], SampleRng)| {
            let info = ImageInfo::interleaved_u8(height, width, 1);
            let (_, marked) = self.lowered.draw_instances(&info, rng, &Instances::new([height, width])).ok()?;
            Some(marked.size)
        };
        self.step.rows(images.into_iter().filter_map(drawn))
    }
}

impl Transform {
    /// The rule for the size of each batch's rows, if they are as large as its largest image
    /// ([`pad_to_largest`](Self::pad_to_largest)). `None` if all batches have rows of one size.
    ///
    /// # Errors
    /// As [`lower_mask`](Self::lower_mask).
    pub fn batch_size(&self) -> Result<Option<BatchSize>> {
        let steps = self.ops().iter();
        let step = steps.filter_map(|op| if let Op::PadToLargest(step) = op { Some(*step) } else { None }).next();
        let kind = FieldKind::Image { channels: 1, size: None, dtype: Some(DType::U8) };
        step.map(|step| Ok(BatchSize { lowered: self.lower_mask(&kind, Layout::Nchw)?, step })).transpose()
    }
}

/// Moves instances with their images. Keeps its memory from image to image.
///
/// ```
/// use infeed::{dataset::{FieldKind, Instances}, spi::Placer, transform::{SampleRng, Transform}};
///
/// let field = FieldKind::Instances { most: 2, masks: false, keypoints: 0 };
/// let lowered = Transform::new().center_crop(20).sanitize_bounding_boxes(1.0).lower_instances(&field, None)?;
/// let mut placer = Placer::new(); // One for each thread, for all its images.
/// let mut marked = Instances::new([40, 40]);
/// marked.push([0.0, 0.0, 5.0, 5.0], 1);
/// marked.push([5.0, 15.0, 25.0, 25.0], 2);
/// let placed = placer.run(&lowered, &marked, SampleRng::new(42, 0, 7))?;
/// assert_eq!((placed.labels, placed.boxes), (vec![2], vec![[0.0, 5.0, 15.0, 15.0]]));
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Placer {
    maker: RowMaker,
    picture: Vec<u8>,
    row: Vec<u8>,
}

impl Placer {
    /// A placer that holds no memory yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The instances of an image, moved into the row that is made with the same draws. Boxes are in pixels of the row,
    /// in the transform's box format; key points are in pixels of the row; outlines are runs of the row's pixels. `size`
    /// is the size of the image within the row.
    ///
    /// # Errors
    /// `Corrupt`, naming the instance, if
    ///
    /// - the boxes are for another image size,
    /// - a box is not finite, or its right is left of its left (or its bottom above its top),
    /// - a box lies outside of the image and no step drops such boxes,
    /// - a key point is not finite, or the object has more or fewer than the field,
    /// - an outline is invalid.
    pub fn run(&mut self, lowered: &LoweredInstances, instances: &Instances, rng: SampleRng) -> Result<Instances> {
        let LoweredInstances { lowered, format, masks, mirror } = lowered;
        if !mirror.is_empty() && !instances.has_keypoints(mirror.len()) {
            let what = format!("instances without the {} key points that each of them must have", mirror.len());
            return Err(Error::corrupt(what).with_hint("write 0, 0, 0 for points that are not labelled"));
        }
        let [height, width] = instances.size;
        let info = ImageInfo::interleaved_u8(height, width, 1);
        let (drawn, marked) = lowered.draw_instances(&info, rng, instances)?;
        let Marked { boxes, kept, points, mirrored, size, .. } = marked;
        let kept: Vec<usize> = (0..boxes.len()).filter(|i| kept[*i]).collect();
        let row = lowered.row();
        let sides =
            if format.normalized { [row.width, row.height, row.width, row.height].map(f64::from) } else { [1.0; 4] };
        let written = |i: &usize| {
            let values = format.format.of(boxes[*i]);
            std::array::from_fn(|n| (values[n] / sides[n]) as f32)
        };
        let mut placed = Instances::new(size);
        placed.boxes = kept.iter().map(written).collect();
        placed.labels = kept.iter().map(|i| instances.labels[*i]).collect();
        placed.ids = kept.iter().map(|i| instances.ids[*i]).collect();
        placed.crowd = kept.iter().map(|i| instances.crowd[*i]).collect();
        if !mirror.is_empty() {
            let point = |i: usize, n: usize| match points[i * mirror.len() + if mirrored { mirror[n] } else { n }] {
                [_, _, 0.0] => [0.0; 3],
                labelled => labelled.map(|number| number as f32),
            };
            let of = |i: &usize| (0..mirror.len()).map(|n| point(*i, n)).collect();
            placed.keypoints = Some(kept.iter().map(of).collect());
        }
        let Some(outlines) = instances.masks.as_ref().filter(|_| *masks) else { return Ok(placed) };
        let mut moved: Vec<Mask> = Vec::with_capacity(kept.len());
        // A resample of labels blends nothing, so each of the eight bits of a byte can be a picture of its own.
        for eight in kept.chunks(8) {
            self.picture.clear();
            self.picture.resize(height as usize * width as usize, 0);
            for (bit, i) in (0..).zip(eight) {
                let outline = outlines[*i]
                    .rasterise(instances.size)
                    .map_err(|error| error.at_object(format!("instance {}", instances.ids[*i])))?;
                outline.set_bit(&mut self.picture, bit);
            }
            self.row.resize(row.len_bytes(), 0);
            let pixels = Pixels { info, rows: 0..height, data: &self.picture };
            self.maker.run(lowered, &drawn, Decoded::Pixels(&pixels), &mut self.row)?;
            moved.extend(Rle::from_bits([row.height, row.width], &self.row, eight.len()).into_iter().map(Mask::Rle));
        }
        placed.masks = Some(moved);
        Ok(placed)
    }
}
