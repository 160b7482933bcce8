//! A tensor of a batch as burn's, in the same memory.

use burn_core::tensor::{
    AllocationProperty, BoolStore, Bytes, DType, Device, Tensor, TensorData,
    kind::{Basic, Kind},
};
use infeed::{Error, ErrorKind, Result};

/// [`infeed::Tensor`] as burn's types, without a copy on the host.
///
/// burn's data shares the memory: it goes back to the loader with the last of what was made of it. Whoever writes into it
/// in place gets a copy first, so the batch stays as it was.
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
    /// `Device` for a tensor on a GPU: burn's runtimes take no memory of others there.
    fn burn_data(&self) -> Result<TensorData>;

    /// A tensor on `device`, of the type that it has here.
    ///
    /// On the CPU the tensor lies in the loader's memory. To a GPU the values are copied once, straight from page-locked
    /// memory where the loader was built with [`pin_memory`](infeed::LoaderBuilder::pin_memory).
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
    /// As [`burn_data`](Self::burn_data); `Config` where the tensor has another number of axes than `D`, or another kind of
    /// values than `K` (integers are no `Float`: [`float`](Tensor::float) converts on the device).
    fn burn<const D: usize, K: Basic>(&self, device: &Device) -> Result<Tensor<D, K>>;
}

impl TensorExt for infeed::Tensor {
    fn burn_data(&self) -> Result<TensorData> {
        if let infeed::Device::Cuda(gpu) = self.device() {
            let what = format!("the batch lies on GPU {gpu}, and burn's runtimes take no memory of others there");
            return Err(Error::new(ErrorKind::Device, what)
                .hint("build the loader with .device(Device::Cpu), and .pin_memory(true) where burn runs on a GPU"));
        }
        let property = if self.is_pinned() { AllocationProperty::Pinned } else { AllocationProperty::Other };
        let bytes = bytes::Bytes::from_owner(HostValues(self.clone()));
        Ok(TensorData::from_bytes(Bytes::from_shared(bytes, property), self.shape(), dtype(self.dtype())))
    }

    fn burn<const D: usize, K: Basic>(&self, device: &Device) -> Result<Tensor<D, K>> {
        let axes = self.shape().len();
        if axes != D {
            return Err(Error::config(format!("the tensor has the shape {:?}, {axes} axes, not {D}", self.shape()))
                .hint("ask for a tensor of as many axes as it has"));
        }
        let data = self.burn_data()?;
        let found = kind(data.dtype());
        if found != K::KIND {
            let what = format!("the tensor has values of {}, which are {found:?}, not {:?}", self.dtype(), K::KIND);
            return Err(
                Error::config(what).hint("ask for that kind, and convert the tensor, or set the loader's dtype")
            );
        }
        let dtype = data.dtype();
        Ok(Tensor::from_data(data, (device, dtype)))
    }
}

/// Keeps the memory of a tensor that lies on the host.
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
        // A byte, 0 or 1, as Rust's own.
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
