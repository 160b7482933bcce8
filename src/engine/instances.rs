//! The instances of a batch: one list for all rows, without padding.

use std::sync::Arc;

use infeed_core::{error::Result, types::DType};
use infeed_data::{Instances, Mask, Rle};
use infeed_pixels::transform::LoweredInstances;

use super::list::{offsets, tensor};
use crate::tensor::Tensor;

/// Boxes, labels, masks and key points in the images of a batch: one list for all rows, and offsets where each row
/// begins.
///
/// `N` is the number of rows, `T` the number of instances in the batch. All tensors are in host memory, even if the
/// images are on a GPU.
///
/// ```
/// # fn train(batch: &infeed::Batch) -> Option<()> {
/// let instances = batch.instances("instances")?;
/// for (row, marked) in instances.rows().enumerate() {
///     for (corners, label) in marked.boxes.iter().zip(marked.labels) {
///         println!("row {row}: class {label} at {corners:?}");
///     }
/// }
/// let targets = (instances.boxes(), instances.labels(), instances.offsets()); // [T, 4] f32, [T] i64, [N + 1] i64
/// # let _ = targets; Some(()) }
/// ```
#[derive(Clone, Debug)]
pub struct BatchInstances {
    offsets: Tensor,
    boxes: Tensor,
    labels: Tensor,
    ids: Tensor,
    crowd: Tensor,
    sizes: Tensor,
    masks: Option<Arc<[Rle]>>,
    keypoints: Option<Tensor>,
}

/// The instances of one row of a [`BatchInstances`].
///
/// ```
/// # use futures::StreamExt;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
/// use infeed::{
///     Loader,
///     dataset::{Instances, MemoryDataset},
/// };
///
/// let mut marked = Instances::new([8, 8]);
/// marked.push([1.0, 2.0, 5.0, 8.0], 3);
/// let images = MemoryDataset::builder().images_u8(vec![0; 8 * 8 * 3], 1, 8, 8, 3, false);
/// let dataset = std::sync::Arc::new(images.instances(vec![marked]).build()?);
/// let loader = Loader::builder(dataset).batch_size(1).build().await?;
/// let batch = loader.epoch(0).next().await.expect("one batch")?;
/// let row = batch.instances("instances").expect("of boxes").row(0);
/// assert_eq!((row.boxes, row.labels), (&[[1.0, 2.0, 5.0, 8.0]][..], &[3][..]));
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct RowInstances<'a> {
    /// Boxes: left, top, right and bottom, unless the transform has a
    /// [`ConvertBoundingBoxFormat`](infeed_pixels::transform::detection::ConvertBoundingBoxFormat).
    pub boxes: &'a [[f32; 4]],
    /// Class indices.
    pub labels: &'a [i64],
    /// Ids in the dataset.
    pub ids: &'a [i64],
    /// 1 for a crowd or a difficult object, otherwise 0.
    pub crowd: &'a [u8],
    /// Height and width of the image within the row, from its top left. The rest of the row was added by `pad_to` or
    /// `fixed_size_crop`.
    pub size: [i64; 2],
    /// Outlines, with the row's height and width.
    pub masks: Option<&'a [Rle]>,
    /// Key points, the same number for each object: x and y in pixels of the row, visibility.
    pub keypoints: Option<&'a [[f32; 3]]>,
}

impl BatchInstances {
    pub(super) fn new(lowered: &LoweredInstances, rows: &[Option<Arc<Instances>>]) -> Result<Self> {
        let all = || rows.iter().flatten();
        let total: usize = all().map(|row| row.len()).sum();
        let sizes: Vec<[i64; 2]> =
            rows.iter().map(|row| row.as_ref().map_or([0; 2], |row| row.size.map(i64::from))).collect();
        let masks = lowered.has_masks().then(|| {
            let outline = |mask: &Mask| if let Mask::Rle(rle) = mask { Some(rle.clone()) } else { None };
            all().flat_map(|row| row.masks.iter().flatten()).filter_map(outline).collect()
        });
        let points = || all().flat_map(|row| row.keypoints.iter().flatten().flatten().copied());
        let each = lowered.keypoints();
        let keypoints = (each > 0).then(|| tensor(&[total, each, 3], DType::F32, points())).transpose()?;
        Ok(Self {
            offsets: offsets(rows.iter().map(|row| row.as_ref().map_or(0, |row| row.len())))?,
            boxes: tensor(&[total, 4], DType::F32, all().flat_map(|row| row.boxes.iter().copied()))?,
            labels: tensor(&[total], DType::I64, all().flat_map(|row| row.labels.iter().copied()))?,
            ids: tensor(&[total], DType::I64, all().flat_map(|row| row.ids.iter().copied()))?,
            crowd: tensor(&[total], DType::Bool, all().flat_map(|row| row.crowd.iter().map(|crowd| u8::from(*crowd))))?,
            sizes: tensor(&[rows.len(), 2], DType::I64, sizes.into_iter())?,
            masks,
            keypoints,
        })
    }

    /// Number of rows of the batch.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sizes.shape()[0]
    }

    /// Whether the batch has no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `[N + 1]` i64: the instances of row `n` are `offsets[n]` to `offsets[n + 1]` (excluded).
    #[must_use]
    pub const fn offsets(&self) -> &Tensor {
        &self.offsets
    }

    /// `[T, 4]` f32: pixels of the row, left, top, right, bottom, unless the transform has a
    /// [`ConvertBoundingBoxFormat`](infeed_pixels::transform::detection::ConvertBoundingBoxFormat).
    #[must_use]
    pub const fn boxes(&self) -> &Tensor {
        &self.boxes
    }

    /// `[T]` i64: class indices.
    #[must_use]
    pub const fn labels(&self) -> &Tensor {
        &self.labels
    }

    /// `[T]` i64: ids in the dataset.
    #[must_use]
    pub const fn ids(&self) -> &Tensor {
        &self.ids
    }

    /// `[T]` bool: whether the instance is a crowd or a difficult object.
    #[must_use]
    pub const fn crowd(&self) -> &Tensor {
        &self.crowd
    }

    /// `[N, 2]` i64: height and width of the image within each row, from its top left. The rest of the row was added by
    /// `pad_to` or `fixed_size_crop`. 0 for rows of zeros (`OnBadSample::SkipPadded`).
    #[must_use]
    pub const fn sizes(&self) -> &Tensor {
        &self.sizes
    }

    /// The `T` outlines, with the rows' height and width; `None` if the dataset was opened without masks.
    #[must_use]
    pub fn masks(&self) -> Option<&[Rle]> {
        self.masks.as_deref()
    }

    /// `[T, K, 3]` f32: x and y of each object's `K` key points in pixels of the row, also if boxes have another format,
    /// and COCO's visibility: 0 not labelled or outside of the row, 1 labelled but hidden, 2 visible. `None` if the
    /// dataset has no key points.
    #[must_use]
    pub const fn keypoints(&self) -> Option<&Tensor> {
        self.keypoints.as_ref()
    }

    /// All tensors with their names.
    pub fn tensors(&self) -> impl Iterator<Item = (&'static str, &Tensor)> {
        let Self { offsets, boxes, labels, ids, crowd, sizes, masks: _, keypoints } = self;
        let named = [
            ("offsets", offsets),
            ("boxes", boxes),
            ("labels", labels),
            ("ids", ids),
            ("crowd", crowd),
            ("sizes", sizes),
        ];
        named.into_iter().chain(keypoints.as_ref().map(|keypoints| ("keypoints", keypoints)))
    }

    /// The instances of each row.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = RowInstances<'_>> {
        (0..self.len()).map(|row| self.row(row))
    }

    /// The instances of a row.
    ///
    /// # Panics
    /// If the batch has no such row.
    #[must_use]
    pub fn row(&self, row: usize) -> RowInstances<'_> {
        let offsets: &[i64] = self.offsets.as_slice().unwrap_or_default();
        let sizes: &[i64] = self.sizes.as_slice().unwrap_or_default();
        let own = offsets[row] as usize..offsets[row + 1] as usize;
        let boxes: &[f32] = self.boxes.as_slice().unwrap_or_default();
        RowInstances {
            boxes: &boxes.as_chunks().0[own.clone()],
            labels: &self.labels.as_slice().unwrap_or_default()[own.clone()],
            ids: &self.ids.as_slice().unwrap_or_default()[own.clone()],
            crowd: &self.crowd.bytes().unwrap_or_default()[own.clone()],
            size: [sizes[2 * row], sizes[2 * row + 1]],
            masks: self.masks.as_ref().map(|masks| &masks[own.clone()]),
            keypoints: self.keypoints.as_ref().map(|points| {
                let each = points.shape()[1];
                &points.as_slice().unwrap_or_default().as_chunks().0[own.start * each..own.end * each]
            }),
        }
    }
}
