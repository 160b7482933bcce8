//! Converts a batch's tensor to burn, in the same memory.

use burn_core::tensor::{
    AllocationProperty, BoolStore, Bytes, DType, Device, Tensor, TensorData,
    kind::{Basic, Kind},
};
use infeed::{Error, ErrorKind, Result};

/// Converts an [`infeed::Tensor`] to burn's types, without a copy on the host.
///
/// burn's data shares the memory, which returns to the loader once nothing made from the tensor exists any more. A
/// write in place makes a copy first, so the batch does not change.
///
/// | infeed | burn's kind | burn's type |
/// |---|---|---|
/// | `f16`, `bf16`, `f32`, `f64` | `Float` | the same |
/// | `u8` to `u64`, `i8` to `i64` | `Int` | the same |
/// | `bool` | `Bool` | as the device stores it |
pub trait TensorExt {
    /// The values and their shape.
    ///
    /// ```
    /// use infeed_burn::{TensorExt, infeed};
    ///
    /// let dataset = infeed::open("synthetic://?count=8&height=4&width=4&classes=10").blocking()?;
    /// let loader = infeed::Loader::builder(dataset).batch_size(8).device(infeed::Device::Cpu).build_blocking()?;
    /// let batch = loader.epoch(0).blocking().next().expect("one batch")?;
    /// let data = batch["image"].burn_data()?;
    /// assert_eq!(data.as_bytes().as_ptr(), batch["image"].bytes().expect("on the host").as_ptr());
    /// # Ok::<(), infeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Device` for a tensor on a GPU: burn's runtimes cannot take over memory from outside there.
    fn burn_data(&self) -> Result<TensorData>;

    /// A tensor on `device`, with the same element type.
    ///
    /// On the CPU the tensor shares the loader's memory. To a GPU the values are copied once, directly from page-locked
    /// memory if the loader was built with [`pin_memory`](infeed::LoaderBuilder::pin_memory).
    ///
    /// ```
    /// use burn_core::tensor::{Device, Tensor};
    /// use infeed_burn::{TensorExt, burn_core, infeed};
    ///
    /// # let dataset = infeed::open("synthetic://?count=8&height=4&width=4&classes=10").blocking()?;
    /// # let loader = infeed::Loader::builder(dataset).batch_size(8).device(infeed::Device::Cpu).build_blocking()?;
    /// # let batch = loader.epoch(0).blocking().next().expect("one batch")?;
    /// let images: Tensor<4> = batch["image"].burn(&Device::default())?;
    /// assert_eq!(images.dims(), [8, 3, 4, 4]);
    /// # Ok::<(), infeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`burn_data`](Self::burn_data); `Config` if the tensor does not have `D` axes, or its values are not of kind
    /// `K` (integers are not `Float`: [`float`](Tensor::float) converts on the device).
    fn burn<const D: usize, K: Basic>(&self, device: &Device) -> Result<Tensor<D, K>>;
}

impl TensorExt for infeed::Tensor {
    fn burn_data(&self) -> Result<TensorData> {
        if let infeed::Device::Cuda(gpu) = self.device() {
            let what = format!("the batch is on GPU {gpu}, and burn's runtimes cannot take over memory there");
            return Err(Error::new(ErrorKind::Device, what)
                .with_hint("build the loader with .device(Device::Cpu), and .pin_memory(true) if burn runs on a GPU"));
        }
        let property = if self.is_pinned() { AllocationProperty::Pinned } else { AllocationProperty::Other };
        let bytes = bytes::Bytes::from_owner(HostValues(self.clone()));
        Ok(TensorData::from_bytes(Bytes::from_shared(bytes, property), self.shape(), dtype(self.dtype())))
    }

    fn burn<const D: usize, K: Basic>(&self, device: &Device) -> Result<Tensor<D, K>> {
        let axes = self.shape().len();
        if axes != D {
            return Err(Error::config(format!("the tensor has the shape {:?}, {axes} axes, not {D}", self.shape()))
                .with_hint("request a tensor with as many axes as it has"));
        }
        let data = self.burn_data()?;
        let found = kind(data.dtype());
        if found != K::KIND {
            let what = format!("the tensor has values of {}, which are {found:?}, not {:?}", self.dtype(), K::KIND);
            return Err(
                Error::config(what).with_hint("request that kind and convert the tensor, or set the loader's dtype")
            );
        }
        let dtype = data.dtype();
        Ok(Tensor::from_data(data, (device, dtype)))
    }
}

/// Keeps the memory of a tensor on the host.
struct HostValues(infeed::Tensor);

impl AsRef<[u8]> for HostValues {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes().unwrap_or_default()
    }
}

const fn dtype(dtype: infeed::DType) -> DType {
    match dtype {
        infeed::DType::U8 => DType::U8,
        infeed::DType::U16 => DType::U16,
        infeed::DType::U32 => DType::U32,
        infeed::DType::U64 => DType::U64,
        infeed::DType::I8 => DType::I8,
        infeed::DType::I16 => DType::I16,
        infeed::DType::I32 => DType::I32,
        infeed::DType::I64 => DType::I64,
        infeed::DType::F16 => DType::F16,
        infeed::DType::Bf16 => DType::BF16,
        infeed::DType::F32 => DType::F32,
        infeed::DType::F64 => DType::F64,
        // A byte, 0 or 1, as Rust's `bool`.
        infeed::DType::Bool => DType::Bool(BoolStore::Native),
    }
}

const fn kind(dtype: DType) -> Kind {
    match dtype {
        DType::F64 | DType::F32 | DType::Flex32 | DType::F16 | DType::BF16 | DType::QFloat(_) => Kind::Float,
        DType::Bool(_) => Kind::Bool,
        _ => Kind::Int,
    }
}
