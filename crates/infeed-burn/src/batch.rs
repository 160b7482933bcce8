//! Batch types of common tasks.

use burn_core::tensor::{Device, Int, Tensor};
use infeed::{Batch, Error, Result};

use crate::TensorExt;

/// A type that is made from a loader's batch; see [`InfeedLoader::new`](crate::InfeedLoader::new).
///
/// ```
/// use burn_core::tensor::{Device, Tensor};
/// use infeed_burn::{FromBatch, InfeedLoader, TensorExt, burn_core, infeed};
///
/// /// Images without labels, and their records.
/// struct Pictures {
///     images: Tensor<4>,
///     records: Vec<u64>,
/// }
///
/// impl FromBatch for Pictures {
///     fn from_batch(batch: &infeed::Batch, device: &Device) -> infeed::Result<Self> {
///         Ok(Self { images: batch["image"].burn(device)?, records: batch.records().to_vec() })
///     }
/// }
///
/// # let dataset = infeed::open("synthetic://?count=8&height=4&width=4&classes=10").blocking()?;
/// # let loader = infeed::Loader::builder(dataset).batch_size(4).device(infeed::Device::Cpu).build_blocking()?;
/// let data = InfeedLoader::<Pictures>::new(loader, &Device::default());
/// # use burn_core::data::dataloader::DataLoader;
/// # let batch = data.iter().next().expect("two batches").expect("no error");
/// # assert_eq!((batch.images.dims(), &batch.records[..]), ([4, 3, 4, 4], &[0, 1, 2, 3][..]));
/// # Ok::<(), infeed::Error>(())
/// ```
pub trait FromBatch: Sized {
    /// Makes the value from a batch, with tensors on `device`.
    ///
    /// # Errors
    /// For example a field that the batch lacks. An error ends the epoch.
    fn from_batch(batch: &Batch, device: &Device) -> Result<Self>;
}

/// Images and their classes.
///
/// ```
/// # use burn_core::{data::dataloader::DataLoader, tensor::Device};
/// # use infeed_burn::{ClassificationBatch, InfeedLoader, burn_core, infeed};
/// # let dataset = infeed::open("synthetic://?count=8&height=4&width=4&classes=10").blocking()?;
/// # let loader = infeed::Loader::builder(dataset).batch_size(4).device(infeed::Device::Cpu).build_blocking()?;
/// let data = InfeedLoader::<ClassificationBatch>::new(loader, &Device::default());
/// let batch = data.iter().next().expect("two batches").expect("no error");
/// assert_eq!((batch.images.dims(), batch.targets.dims()), ([4, 3, 4, 4], [4]));
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ClassificationBatch {
    /// `[N, C, H, W]`, of the field `image`.
    pub images: Tensor<4>,
    /// `[N]`, of the field `label`, in the device's integer type.
    pub targets: Tensor<1, Int>,
}

impl FromBatch for ClassificationBatch {
    fn from_batch(batch: &Batch, device: &Device) -> Result<Self> {
        Ok(Self { images: images(batch, device)?, targets: integers(batch, "label", device)? })
    }
}

/// Images and the class of each of their pixels.
///
/// ```
/// # use burn_core::{data::dataloader::DataLoader, tensor::Device};
/// # use infeed_burn::{InfeedLoader, SegmentationBatch, burn_core, infeed};
/// # let images = infeed::dataset::MemoryDataset::builder().images_u8(vec![7; 2 * 12], 2, 2, 2, 3, false);
/// # let masks = images.images_u8(vec![1; 2 * 4], 2, 2, 2, 1, false).named("mask").mask();
/// # let dataset = std::sync::Arc::new(masks.build()?);
/// # let loader = infeed::Loader::builder(dataset).batch_size(2).device(infeed::Device::Cpu).build_blocking()?;
/// let data = InfeedLoader::<SegmentationBatch>::new(loader, &Device::default());
/// let batch = data.iter().next().expect("one batch").expect("no error");
/// assert_eq!((batch.images.dims(), batch.masks.dims()), ([2, 3, 2, 2], [2, 2, 2]));
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct SegmentationBatch {
    /// `[N, C, H, W]`, of the field `image`.
    pub images: Tensor<4>,
    /// `[N, H, W]`, of the field `mask`, in the device's integer type.
    pub masks: Tensor<3, Int>,
}

impl FromBatch for SegmentationBatch {
    fn from_batch(batch: &Batch, device: &Device) -> Result<Self> {
        let masks: Tensor<4, Int> = integers(batch, "mask", device)?;
        let [rows, channels, .., last] = masks.dims();
        let [height, width] = match (channels, last) {
            (1, _) => [masks.dims()[2], last],
            // NHWC.
            (_, 1) => [channels, masks.dims()[2]],
            _ => {
                let what = format!("the shape is {:?}, and masks need one channel", masks.dims());
                return Err(Error::config(what)
                    .at_field("mask")
                    .with_hint("use a batch type of your own: InfeedLoader::with"));
            }
        };
        Ok(Self { images: images(batch, device)?, masks: masks.reshape([rows, height, width]) })
    }
}

/// Images and their boxes. The boxes of all rows are concatenated.
///
/// ```
/// # use burn_core::{data::dataloader::DataLoader, tensor::Device};
/// # use infeed_burn::{DetectionBatch, InfeedLoader, burn_core, infeed};
/// # let mut marked = infeed::dataset::Instances::new([8, 8]);
/// # marked.push([1.0, 2.0, 5.0, 8.0], 3);
/// # let images = infeed::dataset::MemoryDataset::builder().images_u8(vec![0; 8 * 8 * 3], 1, 8, 8, 3, false);
/// # let dataset = std::sync::Arc::new(images.instances(vec![marked]).build()?);
/// # let loader = infeed::Loader::builder(dataset).batch_size(1).device(infeed::Device::Cpu).build_blocking()?;
/// let data = InfeedLoader::<DetectionBatch>::new(loader, &Device::default());
/// let batch = data.iter().next().expect("one batch").expect("no error");
/// for (row, range) in batch.rows().enumerate() {
///     let boxes = batch.boxes.clone().slice([range]);
///     println!("row {row}: {} boxes", boxes.dims()[0]);
/// }
/// # assert_eq!((batch.boxes.dims(), batch.labels.dims(), &batch.offsets[..]), ([1, 4], [1], &[0, 1][..]));
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct DetectionBatch {
    /// `[N, C, H, W]`, of the field `image`.
    pub images: Tensor<4>,
    /// `[T, 4]`: left, top, right, bottom in pixels of the row, unless the transform sets another format.
    pub boxes: Tensor<2>,
    /// `[T]`, in the device's integer type.
    pub labels: Tensor<1, Int>,
    /// `N + 1` numbers: row `n` has the boxes `offsets[n]..offsets[n + 1]`.
    pub offsets: Vec<usize>,
}

impl DetectionBatch {
    /// For each row, the range of its boxes and labels.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = std::ops::Range<usize>> {
        self.offsets.windows(2).map(|ends| ends[0]..ends[1])
    }
}

impl FromBatch for DetectionBatch {
    fn from_batch(batch: &Batch, device: &Device) -> Result<Self> {
        let mut fields = batch.instance_fields();
        let (Some((_, marked)), None) = (fields.next(), fields.next()) else {
            let what = format!(
                "a DetectionBatch needs one field of boxes, this batch has {}",
                batch.instance_fields().count()
            );
            return Err(
                Error::config(what).with_hint("open the dataset with its annotations, or use a batch type of your own")
            );
        };
        let offsets: &[i64] = marked.offsets().as_slice().unwrap_or_default();
        Ok(Self {
            images: images(batch, device)?,
            boxes: marked.boxes().burn(device)?,
            labels: Tensor::from_data(marked.labels().burn_data()?, device),
            offsets: offsets.iter().map(|offset| *offset as usize).collect(),
        })
    }
}

fn images(batch: &Batch, device: &Device) -> Result<Tensor<4>> {
    field(batch, "image")?.burn(device).map_err(|error| error.at_field("image"))
}

/// A field in the device's integer type.
fn integers<const D: usize>(batch: &Batch, name: &str, device: &Device) -> Result<Tensor<D, Int>> {
    let values = field(batch, name)?;
    let (dtype, axes) = (values.dtype(), values.shape().len());
    if axes != D || dtype.whole().is_none() {
        let what = format!("the shape is {:?} of {dtype}, and classes are integers with {D} axes", values.shape());
        return Err(Error::config(what).at_field(name).with_hint("use a batch type of your own: InfeedLoader::with"));
    }
    Ok(Tensor::from_data(values.burn_data()?, device))
}

fn field<'a>(batch: &'a Batch, name: &str) -> Result<&'a infeed::Tensor> {
    batch.get(name).ok_or_else(|| {
        let names: Vec<&str> = batch.fields().map(|(name, _)| name).collect();
        Error::config(format!("the batch has no field {name:?}, but {names:?}"))
            .with_hint("use a batch type of your own: InfeedLoader::with")
    })
}
