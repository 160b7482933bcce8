//! A tensor: a shape over bytes. No arithmetic; it is what a batch hands to a framework.

use std::fmt;

use bytemuck::AnyBitPattern;
use half::{bf16, f16};

use crate::{
    sys::rows::Frozen,
    types::{DType, Device},
};

/// Dense values of one field of a batch, row-major, in host memory.
///
/// Cheap to clone: clones share the memory, which returns to the loader's pool with the last of them. Keep a tensor
/// as long as you like: a batch that was handed over is yours and no longer counts in `memory_budget`.
#[derive(Clone)]
pub struct Tensor {
    shape: Vec<usize>,
    dtype: DType,
    device: Device,
    data: Frozen,
}

/// A Rust type that a [`Tensor`] can be read as.
pub trait Element: AnyBitPattern + Copy {
    /// The element type it stands for.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),* $(,)?) => {
        $(impl Element for $rust { const DTYPE: DType = DType::$dtype; })*
    };
}
elements! { u8 => U8, u16 => U16, f16 => F16, bf16 => Bf16, f32 => F32, i64 => I64 }

impl Tensor {
    /// A tensor over finished rows.
    ///
    /// # Panics
    /// When the shape's size is not the rows' length.
    pub(crate) fn new(shape: Vec<usize>, dtype: DType, data: Frozen) -> Self {
        let len = shape.iter().product::<usize>() * dtype.size();
        assert_eq!(len, data.bytes().len(), "shape {shape:?} of {dtype} does not fit the data");
        Self { shape, dtype, device: Device::Cpu, data }
    }

    /// Sizes of the axes; the first is the batch.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Element type.
    #[must_use]
    pub const fn dtype(&self) -> DType {
        self.dtype
    }

    /// Where the memory lies.
    #[must_use]
    pub const fn device(&self) -> Device {
        self.device
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All values as bytes in the machine's order; the first is aligned to 64.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.data.bytes()
    }

    /// All values, or `None` when `T` is another type than [`dtype`](Self::dtype). Costs nothing.
    #[must_use]
    pub fn as_slice<T: Element>(&self) -> Option<&[T]> {
        // Aligned: buffers start at 64 bytes.
        (T::DTYPE == self.dtype).then(|| bytemuck::cast_slice(self.bytes()))
    }

    /// All values in a vector of your own (one copy), or `None` when `T` is another type.
    #[must_use]
    pub fn to_vec<T: Element>(&self) -> Option<Vec<T>> {
        self.as_slice().map(<[T]>::to_vec)
    }

    /// Bytes of one row of the batch.
    #[must_use]
    pub fn row_bytes(&self) -> usize {
        self.shape[1..].iter().product::<usize>() * self.dtype.size()
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({:?} {} on {})", self.shape, self.dtype, self.device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::rows::Rows;

    #[test]
    fn values_are_read_only_as_their_own_type() {
        let mut rows = Rows::zeroed(2, 8);
        rows.row_mut(1)[..4].copy_from_slice(&1.5f32.to_ne_bytes());
        let tensor = Tensor::new(vec![2, 2], DType::F32, rows.freeze());
        assert_eq!(tensor.as_slice::<f32>(), Some(&[0.0, 0.0, 1.5, 0.0][..]));
        assert_eq!(tensor.as_slice::<u8>(), None);
        assert_eq!(tensor.row_bytes(), 8);
    }
}
