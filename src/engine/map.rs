//! The user's functions on samples and batches, called where these are made.
//!
//! ```text
//! rows of a sample are written ─ map ─▶ … all rows of a batch are there ─ bad ones left out ─ mix ─ map_batch ─▶ sealed
//! ```

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use bytemuck::Pod;
use bytes::Bytes;
use infeed_core::{
    error::{Error, ErrorKind, Result, panic_words},
    random::Draws,
    rows::Rows,
    types::{DType, Element},
};
use infeed_data::{Instances, Mask, Sample, Value};
use infeed_pixels::transform::RowView;

use super::fields::{FieldRows, Side};

type OnSample = dyn Fn(&mut SampleMut<'_>, Draws) -> Result<()> + Send + Sync;
type OnBatch = dyn Fn(&mut BatchMut<'_>, Draws) -> Result<()> + Send + Sync;

/// The functions of a loader.
#[derive(Clone, Default)]
pub(crate) struct Maps {
    pub(crate) sample: Option<Arc<OnSample>>,
    pub(crate) batch: Option<Arc<OnBatch>>,
}

impl fmt::Debug for Maps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sample, batch } = self;
        f.debug_struct("Maps").field("sample", &sample.is_some()).field("batch", &batch.is_some()).finish()
    }
}

impl Maps {
    /// Calls the user's function for a sample, if there is one, and checks the instances and labels that it leaves.
    pub(super) fn sample(&self, sample: &mut SampleMut<'_>, draws: Draws) -> Result<()> {
        let Some(map) = &self.sample else { return Ok(()) };
        guard("map", || map(sample, draws))?;
        let lowered = sample.fields.iter().filter_map(|field| Some(&field.instances()?.lowered));
        for (instances, lowered) in sample.instances.iter().zip(lowered) {
            let outlines = instances.masks.as_ref();
            let moved = outlines.is_none_or(|all| all.iter().all(|mask| matches!(mask, Mask::Rle(_))));
            let masks = outlines.is_some() == lowered.has_masks() && moved;
            if !(instances.is_sound() && masks && instances.has_keypoints(lowered.keypoints())) {
                let what = "the function given to map left instances whose lists do not fit each other";
                return Err(Error::config(what)
                    .with_hint("keep one entry per box in each list, all key points of a box, and masks as runs"));
            }
        }
        sample.fields.iter().zip(&*sample.rows).try_for_each(|(field, rows)| {
            let row = &rows.bytes()[sample.row * rows.row_bytes()..];
            let label = row.first_chunk().filter(|_| field.soft.is_some());
            label.map_or(Ok(()), |label| field.check_label(i64::from_ne_bytes(*label)))
        })
    }

    /// The same for a batch.
    pub(super) fn batch(&self, batch: &mut BatchMut<'_>, draws: Draws) -> Result<()> {
        self.batch.as_ref().map_or(Ok(()), |map| guard("map_batch", || map(batch, draws)))
    }
}

/// A panic of the user's function is an error of the run, not the end of a thread.
fn guard(name: &str, call: impl FnOnce() -> Result<()>) -> Result<()> {
    // Unwind safe: the run ends, and with it everything that the function may have left half changed.
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let words = panic_words(&*panic);
        Err(Error::new(ErrorKind::Internal, format!("the function given to {name} panicked: {words}")))
    })
}

/// A finished sample for the function of [`LoaderBuilder::map`](crate::LoaderBuilder::map): its rows of the batch,
/// which the function changes in place. Shapes and types stay.
///
/// ```
/// # use futures::StreamExt;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
/// use infeed::Loader;
///
/// # let dataset = infeed::open("synthetic://?count=100&height=8&width=8&classes=10").await?;
/// // Every tenth record gets a random label, to test how a model handles noise.
/// let loader = Loader::builder(dataset).batch_size(20).map(|sample, mut draws| {
///     if sample.record() % 10 == 0 {
///         sample.values_mut::<i64>("label")?[0] = draws.below(10) as i64;
///     }
///     Ok(())
/// });
/// assert_eq!(loader.build().await?.epoch(0).count().await, 5);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct SampleMut<'a> {
    pub(super) fields: &'a [FieldRows],
    pub(super) rows: &'a mut [Rows],
    pub(super) row: usize,
    pub(super) record: u64,
    pub(super) sample: &'a Sample,
    /// One entry for each field of instances.
    pub(super) instances: &'a mut [Instances],
    /// Size of the rows of images, if each batch has its own.
    pub(super) size: Option<[u32; 2]>,
}

impl SampleMut<'_> {
    /// Index of the record in the dataset.
    #[must_use]
    pub const fn record(&self) -> u64 {
        self.record
    }

    /// The values of a field, such as `values_mut::<i64>("label")`.
    ///
    /// # Errors
    /// `Config` for a field that the dataset does not have, or that holds another type.
    pub fn values_mut<T: Element + Pod>(&mut self, field: &str) -> Result<&mut [T]> {
        let at = place(self.fields, field)?;
        cast(&self.fields[at].name, self.fields[at].dtype, self.rows[at].row_mut(self.row))
    }

    /// An image with its shape and layout: [`RowView::map_pixels`] visits its pixels.
    ///
    /// # Errors
    /// `Config` for a field that the dataset does not have, or that is not an image.
    pub fn image_mut(&mut self, field: &str) -> Result<RowView<'_>> {
        let at = place(self.fields, field)?;
        let Some(spec) = self.fields[at].spec_of(self.size) else {
            return Err(
                Error::config(format!("field `{field}` is not an image")).with_hint("use values_mut for its values")
            );
        };
        Ok(RowView::new(spec, self.rows[at].row_mut(self.row)))
    }

    /// All fields that have values in the batch, to change several at the same time.
    pub fn fields_mut(&mut self) -> impl Iterator<Item = FieldMut<'_>> {
        let (row, size) = (self.row, self.size);
        let with_rows = self.fields.iter().zip(&mut *self.rows).filter(|(field, _)| field.side.is_none());
        with_rows.map(move |(field, rows)| FieldMut { field, soft: false, bytes: rows.row_mut(row), rows: None, size })
    }

    /// The instances of a field, as the batch will hold them. You may change, remove or add entries; all lists must
    /// stay equally long. `None` if the field has no instances.
    #[must_use]
    pub fn instances_mut(&mut self, field: &str) -> Option<&mut Instances> {
        let of_instances = self.fields.iter().filter(|field| field.instances().is_some());
        let at = of_instances.into_iter().position(|other| other.name == field)?;
        self.instances.get_mut(at)
    }

    /// The value of a field of bytes or text; `None` for another kind of field.
    #[must_use]
    pub fn bytes(&self, field: &str) -> Option<&Bytes> {
        let at = self.fields.iter().position(|other| other.name == field)?;
        match self.sample.values.get(at)? {
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The texts of a field with any number of texts in a record; `None` for another kind of field.
    #[must_use]
    pub fn texts(&self, field: &str) -> Option<&[Bytes]> {
        let at = self.fields.iter().position(|other| other.name == field)?;
        match self.sample.values.get(at)? {
            Value::Texts(texts) => Some(texts),
            _ => None,
        }
    }

    /// The numbers of a list, or the rows of its images, item after item. They are copied, because a record's numbers may begin anywhere in its
    /// bytes.
    ///
    /// # Errors
    /// `Config` for a field that the dataset does not have, that is not a list, or that holds another type.
    pub fn list<T: Element>(&self, field: &str) -> Result<Vec<T>> {
        let at = self.fields.iter().position(|other| other.name == field);
        let of = at.and_then(|at| Some((self.fields[at].side.as_ref()?, self.sample.values.get(at)?)));
        match of {
            Some((Side::List(list), Value::List(_))) if list.dtype != T::DTYPE => {
                Err(Error::config(format!("field `{field}` holds {}, not {}", list.dtype, T::DTYPE)))
            }
            Some((Side::List(_), Value::List(items))) => {
                let numbers = items.chunks_exact(size_of::<T>());
                Ok(numbers.map(bytemuck::pod_read_unaligned).collect())
            }
            _ => Err(Error::config(format!("field `{field}` is not a list"))),
        }
    }
}

/// A complete batch for the function of [`LoaderBuilder::map_batch`](crate::LoaderBuilder::map_batch), which changes it
/// in place. Shapes and types stay.
///
/// ```
/// # use futures::StreamExt;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
/// use infeed::{Device, Loader};
///
/// # let dataset = infeed::open("synthetic://?count=100&height=8&width=8&classes=10").await?;
/// // Labels count the classes of this batch from 0.
/// let loader = Loader::builder(dataset).batch_size(20).device(Device::Cpu).map_batch(|batch, _draws| {
///     let valid = batch.valid();
///     let labels = &mut batch.values_mut::<i64>("label")?[..valid];
///     let least = labels.iter().copied().min().unwrap_or(0);
///     labels.iter_mut().for_each(|label| *label -= least);
///     Ok(())
/// });
/// let batch = loader.build().await?.epoch(0).next().await.expect("five batches")?;
/// assert_eq!(batch["label"].as_slice::<i64>().and_then(|labels| labels.iter().min()), Some(&0));
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct BatchMut<'a> {
    pub(super) fields: &'a [FieldRows],
    pub(super) rows: &'a mut [Rows],
    pub(super) bytes: &'a [Vec<Bytes>],
    pub(super) records: &'a [u64],
    pub(super) valid: usize,
    pub(super) epoch: u64,
    pub(super) step: u64,
    pub(super) size: Option<[u32; 2]>,
}

impl BatchMut<'_> {
    /// Number of rows of every field.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.first().map_or(0, Rows::rows)
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of rows that are samples, see [`Batch::valid`](crate::Batch::valid); the rows after them are copies or
    /// zeros.
    #[must_use]
    pub const fn valid(&self) -> usize {
        self.valid
    }

    /// Records of the rows, see [`Batch::records`](crate::Batch::records).
    #[must_use]
    pub const fn records(&self) -> &[u64] {
        self.records
    }

    /// The epoch, and the step within it.
    #[must_use]
    pub const fn place(&self) -> (u64, u64) {
        (self.epoch, self.step)
    }

    /// The values of a field, row after row.
    ///
    /// # Errors
    /// `Config` for a field that the dataset does not have, or that holds another type.
    pub fn values_mut<T: Element + Pod>(&mut self, field: &str) -> Result<&mut [T]> {
        let at = place(self.fields, field)?;
        let field = &self.fields[at];
        let (soft, size) = (field.soft.is_some(), self.size);
        FieldMut { field, soft, rows: None, bytes: self.rows[at].bytes_mut(), size }.into_values()
    }

    /// All fields that have values, to change several at the same time.
    pub fn fields_mut(&mut self) -> impl Iterator<Item = FieldMut<'_>> {
        let size = self.size;
        let with_rows = self.fields.iter().zip(&mut *self.rows).filter(|(field, _)| field.side.is_none());
        with_rows.map(move |(field, rows)| {
            let count = Some(rows.rows());
            FieldMut { field, soft: field.soft.is_some(), rows: count, bytes: rows.bytes_mut(), size }
        })
    }

    /// The values of a field of bytes or text, one for each row; `None` for another kind of field.
    #[must_use]
    pub fn bytes(&self, field: &str) -> Option<&[Bytes]> {
        let of_bytes = self.fields.iter().filter(|field| field.side.is_some() && field.instances().is_none());
        let is_wanted = |other: &FieldRows| other.name == field && !matches!(other.side, Some(Side::List(_)));
        of_bytes.zip(self.bytes).find(|(other, _)| is_wanted(other)).map(|(_, values)| &values[..])
    }
}

/// One field of a sample, or of a batch.
///
/// ```
/// # use futures::StreamExt;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
/// use infeed::{DType, Device, Loader, Transform};
///
/// # let dataset = infeed::open("synthetic://?count=100&height=8&width=8&classes=10").await?;
/// // All f32 values are limited to 0.5.
/// let builder = Loader::builder(dataset).batch_size(20).device(Device::Cpu).transform(Transform::new().to_float());
/// let loader = builder.map_batch(|batch, _draws| {
///     for mut field in batch.fields_mut().filter(|field| field.dtype() == DType::F32) {
///         assert_eq!((field.name(), field.shape()), ("image", vec![20, 3, 8, 8]));
///         field.values_mut::<f32>()?.iter_mut().for_each(|value| *value = value.min(0.5));
///     }
///     Ok(())
/// });
/// let batch = loader.build().await?.epoch(0).next().await.expect("five batches")?;
/// assert!(batch["image"].as_slice::<f32>().expect("f32").iter().all(|value| *value <= 0.5));
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct FieldMut<'a> {
    field: &'a FieldRows,
    /// Whether labels already are weights of classes.
    soft: bool,
    /// Of a batch.
    rows: Option<usize>,
    bytes: &'a mut [u8],
    size: Option<[u32; 2]>,
}

impl<'a> FieldMut<'a> {
    /// Name of the field, as in [`Batch`](crate::Batch).
    #[must_use]
    pub fn name(&self) -> &'a str {
        &self.field.name
    }

    /// Shape of the sample's row, or of the batch's tensor.
    #[must_use]
    pub fn shape(&self) -> Vec<usize> {
        let row = match &self.field.soft {
            Some(soft) if self.soft => vec![soft.classes],
            _ => self.field.shape_of(self.size).into_owned(),
        };
        self.rows.into_iter().chain(row).collect()
    }

    /// Type of the values.
    #[must_use]
    pub const fn dtype(&self) -> DType {
        if self.soft { DType::F32 } else { self.field.dtype }
    }

    /// The values.
    ///
    /// # Errors
    /// `Config` if they have another type.
    pub fn values_mut<T: Element + Pod>(&mut self) -> Result<&mut [T]> {
        cast(&self.field.name, self.dtype(), self.bytes)
    }

    /// The bytes of the values, in native byte order.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes
    }

    fn into_values<T: Element + Pod>(self) -> Result<&'a mut [T]> {
        cast(&self.field.name, self.dtype(), self.bytes)
    }
}

fn place(fields: &[FieldRows], name: &str) -> Result<usize> {
    let with_rows = |field: &FieldRows| field.side.is_none() && field.name == name;
    fields.iter().position(with_rows).ok_or_else(|| {
        let names: Vec<&str> = fields.iter().map(|field| &*field.name).collect();
        Error::config(format!("no field {name:?} has values")).with_hint(format!("there are {}", names.join(", ")))
    })
}

fn cast<'a, T: Element + Pod>(name: &str, dtype: DType, bytes: &'a mut [u8]) -> Result<&'a mut [T]> {
    if T::DTYPE != dtype {
        return Err(Error::config(format!("field `{name}` holds {dtype}, not {}", T::DTYPE)));
    }
    bytemuck::try_cast_slice_mut(bytes)
        .map_err(|_| Error::new(ErrorKind::Internal, format!("the values of `{name}` are not aligned")))
}
