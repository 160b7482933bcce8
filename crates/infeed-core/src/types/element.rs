//! Rust types of tensor elements.

use bytemuck::AnyBitPattern;
use half::{bf16, f16};

use super::dtype::DType;

/// A Rust type as which a tensor can be read. There is one for each [`DType`]; no others can be added.
///
/// ```
/// # use std::sync::Arc;
/// use infeed::{Tensor, tensor::Element};
///
/// /// The mean of a tensor's values; `None`: they are of another type, or on a GPU.
/// fn mean<T: Element + Into<f64>>(tensor: &Tensor) -> Option<f64> {
///     let values = tensor.as_slice::<T>()?;
///     Some(values.iter().map(|value| (*value).into()).sum::<f64>() / values.len() as f64)
/// }
///
/// # let images = infeed::dataset::MemoryDataset::builder().images_u8(vec![1, 2, 3, 6], 1, 2, 2, 1, false).build()?;
/// # let loader = infeed::Loader::builder(Arc::new(images)).batch_size(1).device(infeed::Device::Cpu);
/// # let loader = loader.dtype(infeed::DType::U8).build_blocking()?;
/// let batch = loader.epoch(0).blocking().next().expect("one batch")?;
/// assert_eq!(mean::<u8>(&batch["image"]), Some(3.0));
/// assert_eq!(mean::<f32>(&batch["image"]), None);
/// # Ok::<(), infeed::Error>(())
/// ```
pub trait Element: AnyBitPattern + Copy + sealed::Sealed {
    /// The element type that it corresponds to.
    const DTYPE: DType;
}

mod sealed {
    /// Values are reinterpreted as `Self`, so only types that match their [`DType`](super::DType) may implement this.
    pub trait Sealed {}
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),* $(,)?) => {
        $(impl sealed::Sealed for $rust {}
        impl Element for $rust { const DTYPE: DType = DType::$dtype; })*
    };
}
elements! {
    u8 => U8, u16 => U16, i16 => I16, f16 => F16, bf16 => Bf16, f32 => F32, i64 => I64,
    i8 => I8, i32 => I32, u32 => U32, u64 => U64, f64 => F64,
}
