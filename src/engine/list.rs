//! The lists of a batch: the items of all rows in one tensor, without padding unless the user asks for it.

use bytemuck::NoUninit;
use bytes::Bytes;
use infeed_core::{
    error::{Error, Result},
    rows::Rows,
    types::{DType, Element},
};

use infeed_pixels::transform::Lowered;

use crate::tensor::Tensor;

/// The lists of a batch: the items of all rows in one tensor, and offsets where each row begins.
///
/// `N` is the number of rows, `T` the number of items in the batch. Both tensors are in host memory, even if the images
/// are on a GPU. With [`LoaderBuilder::pad`](crate::LoaderBuilder::pad) the batch has a tensor of equally long rows
/// instead.
///
/// ```
/// # use futures::StreamExt;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
/// use infeed::{Loader, dataset::MemoryDataset};
///
/// let dataset = MemoryDataset::builder().lists("tokens", vec![vec![5i32, 9, 2], vec![7, 1]]).build()?;
/// let loader = Loader::builder(std::sync::Arc::new(dataset)).batch_size(2).build().await?;
/// let batch = loader.epoch(0).next().await.expect("one batch")?;
/// let tokens = batch.list("tokens").expect("a list");
/// assert_eq!(tokens.offsets().as_slice::<i64>(), Some(&[0, 3, 5][..]));
/// assert_eq!(tokens.row::<i32>(1), Some(&[7, 1][..]));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct BatchList {
    values: Tensor,
    offsets: Tensor,
}

/// How the rows of a list become a part of the batch.
#[derive(Clone, Debug)]
pub(crate) struct FieldList {
    pub(crate) dtype: DType,
    /// Shape of an item.
    pub(crate) item: Vec<usize>,
    /// Bytes of an item, at least 1.
    pub(crate) each: usize,
    /// Most items of a record.
    pub(crate) most: usize,
    /// How items are made of images; `None` for numbers.
    pub(crate) images: Option<ListedImages>,
    /// The bytes of the number that fills short rows, if they are to be filled.
    pub(crate) pad: Option<Vec<u8>>,
}

/// How the images of a list become its items.
#[derive(Clone, Debug)]
pub(crate) struct ListedImages {
    pub(crate) lowered: Lowered,
    /// Images in a usual record.
    pub(crate) usual: usize,
}

impl FieldList {
    /// A tensor whose memory `write` fills.
    fn written(&self, first: &[usize], write: impl FnOnce(&mut [u8])) -> Result<Tensor> {
        let shape: Vec<usize> = first.iter().chain(&self.item).copied().collect();
        let bytes = self.dtype.len_bytes(&shape).ok_or_else(|| Error::config("the lists of a batch are too long"))?;
        let mut rows = Rows::zeroed(1, bytes)?;
        write(rows.bytes_mut());
        Ok(Tensor::new(shape, self.dtype, rows.freeze()))
    }

    /// The items of all rows, one after another. Each row is freed when it is copied, so that a batch is in memory once.
    pub(super) fn gather(&self, rows: Vec<Bytes>) -> Result<BatchList> {
        let offsets = offsets(rows.iter().map(|row| row.len() / self.each))?;
        let total: usize = rows.iter().map(Bytes::len).sum();
        let values = self.written(&[total / self.each], |out| {
            let mut rest = out;
            for row in rows {
                let (place, after) = rest.split_at_mut(row.len());
                place.copy_from_slice(&row);
                rest = after;
            }
        })?;
        Ok(BatchList { values, offsets })
    }

    /// Rows as long as the longest, filled with `number`, and the length of each. Rows are freed as in `gather`.
    pub(super) fn fill(&self, rows: Vec<Bytes>, number: &[u8]) -> Result<(Tensor, Tensor)> {
        let lengths = rows.iter().map(|row| (row.len() / self.each) as i64);
        let lengths = tensor(&[rows.len()], DType::I64, lengths)?;
        let longest = rows.iter().map(Bytes::len).max().unwrap_or(0);
        let values = self.written(&[rows.len(), longest / self.each], |out| {
            for (place, row) in out.chunks_exact_mut(longest.max(1)).zip(rows) {
                let (place, rest) = place.split_at_mut(row.len());
                place.copy_from_slice(&row);
                rest.chunks_exact_mut(number.len()).for_each(|place| place.copy_from_slice(number));
            }
        })?;
        Ok((values, lengths))
    }
}

impl BatchList {
    /// Number of rows of the batch.
    #[must_use]
    pub fn len(&self) -> usize {
        self.offsets.shape()[0] - 1
    }

    /// Whether the batch has no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// `[T, …]`: the items of all rows, one row after another.
    #[must_use]
    pub const fn values(&self) -> &Tensor {
        &self.values
    }

    /// `[N + 1]` i64: the items of row `n` are `offsets[n]` to `offsets[n + 1]` (excluded). Rows of zeros
    /// (`OnBadSample::SkipPadded`) have no items.
    #[must_use]
    pub const fn offsets(&self) -> &Tensor {
        &self.offsets
    }

    /// Both tensors with their names.
    pub fn tensors(&self) -> impl Iterator<Item = (&'static str, &Tensor)> {
        [("values", &self.values), ("offsets", &self.offsets)].into_iter()
    }

    /// The numbers of a row, item after item; `None` if they are of another type than `T`.
    ///
    /// # Panics
    /// If the batch has no such row.
    #[must_use]
    pub fn row<T: Element>(&self, row: usize) -> Option<&[T]> {
        let offsets: &[i64] = self.offsets.as_slice().unwrap_or_default();
        let each: usize = self.values.shape()[1..].iter().product();
        let (start, end) = (offsets[row] as usize * each, offsets[row + 1] as usize * each);
        Some(&self.values.as_slice::<T>()?[start..end])
    }

    /// The numbers of each row; `None` if they are of another type than `T`.
    pub fn rows<T: Element>(&self) -> Option<impl ExactSizeIterator<Item = &[T]>> {
        let all: Vec<&[T]> = (0..self.len()).map(|row| self.row(row)).collect::<Option<_>>()?;
        Some(all.into_iter())
    }
}

/// `[N + 1]` i64: where each row begins, and the end of the last.
pub(super) fn offsets(lengths: impl ExactSizeIterator<Item = usize>) -> Result<Tensor> {
    let rows = lengths.len();
    let ends = lengths.scan(0, |end, length| {
        *end += length as i64;
        Some(*end)
    });
    tensor(&[rows + 1], DType::I64, std::iter::once(0).chain(ends))
}

/// A tensor of these values, in its own memory.
pub(super) fn tensor<T: NoUninit>(shape: &[usize], dtype: DType, values: impl Iterator<Item = T>) -> Result<Tensor> {
    let len = shape.iter().product::<usize>() * dtype.size();
    let mut rows = Rows::zeroed(1, len)?;
    let out = rows.bytes_mut();
    let mut at = 0;
    for value in values {
        let bytes = bytemuck::bytes_of(&value);
        out[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    }
    Ok(Tensor::new(shape.to_vec(), dtype, rows.freeze()))
}
