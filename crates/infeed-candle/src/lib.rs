//! Batches of [`infeed`] as tensors of [`candle_core`].
//!
//! ```text
//!  Loader ──▶ Batch ──▶ batch.candle(&device)? ──▶ by name ──▶ net.forward(&tensors["image"])
//!               │        one copy, in candle's memory
//!               └─▶ batch.state(), batch.records(), batch.bytes("text"): stay with the batch
//! ```
//!
//! - **One copy, which cannot be avoided**: candle keeps values in its own `Vec` and cannot take over memory. The batch
//!   may be dropped at once; its memory returns to the loader. The copy of 128 images of 224×224 in `f32` (77 MB) is
//!   one pass over memory, negligible compared with a step.
//! - **The batch stays usable**: take [`infeed::Batch::state`] from it after the step.
//! - **candle has fewer types**. A missing type is widened to one that holds it exactly, see the table; nothing is
//!   rounded.
//!
//! | infeed | candle | |
//! |---|---|---|
//! | `u8`, `i16`, `i32`, `u32`, `i64`, `f16`, `bf16`, `f32`, `f64` | the same | |
//! | `bool` | `u8` | 0 and 1 |
//! | `i8` | `i16` | |
//! | `u16` | `u32` | pixels of 16 bits keep their values |
//! | `u64` | `i64` | an error if a value is 2⁶³ or more |
//!
//! Labels are `i64`, which candle's `gather` and `cross_entropy` take.
//!
//! **GPUs.** Rows in host memory can go to any candle device. To CUDA the driver makes one copy, fastest from
//! [pinned](infeed::LoaderBuilder::pin_memory) rows (see there for several GPUs). Batches on a GPU are an error here:
//! build the loader with `.device(infeed::Device::Cpu)`. The code that copies on the device is in `docs/frameworks.md`
//! of infeed's repository, since candle's CUDA support needs NVIDIA's compiler to build.
#![forbid(unsafe_code)]

use std::collections::HashMap;

use candle_core::{Device, Result, Tensor, WithDType, bail};
use infeed::{Batch, DType, tensor::Element};

/// Copies a tensor to candle.
///
/// ```
/// # use infeed::{Loader, dataset::MemoryDataset};
/// use candle_core::{DType, Device};
/// use infeed_candle::TensorExt;
///
/// # let dataset = MemoryDataset::builder().labels(vec![3, 1, 4, 1]).build()?;
/// # let loader = Loader::builder(std::sync::Arc::new(dataset)).batch_size(4).build_blocking()?;
/// let batch = loader.epoch(0).blocking().next().expect("one batch")?;
/// let label = batch["label"].candle(&Device::Cpu)?;
/// assert_eq!((label.dims(), label.dtype()), (&[4][..], DType::I64));
/// assert_eq!(label.to_vec1::<i64>()?, [3, 1, 4, 1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait TensorExt {
    /// The values in candle's memory, on `device`: one copy, types as in the [table](crate).
    ///
    /// # Errors
    /// If the tensor is on a GPU, or holds a `u64` of 2⁶³ or more; and candle's errors of the device.
    fn candle(&self, device: &Device) -> Result<Tensor>;
}

impl TensorExt for infeed::Tensor {
    fn candle(&self, device: &Device) -> Result<Tensor> {
        copied(self, device, "the tensor")
    }
}

/// Copies the tensors of a batch to candle.
///
/// ```
/// # use futures::StreamExt;
/// use candle_core::{D, Device};
/// use infeed_candle::BatchExt;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let dataset = infeed::open("synthetic://?count=100&height=8&width=8&classes=10").await?;
/// let loader = infeed::Loader::builder(dataset).batch_size(20).device(infeed::Device::Cpu).build().await?;
/// let mut batches = loader.epoch(0);
/// while let Some(batch) = batches.next().await {
///     let batch = batch?;
///     let tensors = batch.candle(&Device::Cpu)?;
///     let brightness = tensors["image"].flatten_from(1)?.mean(D::Minus1)?;
///     println!("{brightness} of classes {}", tensors["label"]);
///     // Into the checkpoint, when this step is in it.
///     let _ = batch.state();
/// }
/// # Ok(()) }
/// ```
pub trait BatchExt {
    /// All tensors of the batch in candle's memory, on `device`, by name: the [fields](infeed::Batch::fields) (images,
    /// masks, labels, arrays), and the tensors of instances with their field's name in front, as
    /// [`infeed::BatchInstances::tensors`] names them: `instances.boxes`, `instances.labels`, `instances.offsets`, …;
    /// lists likewise: `tokens.values`, `tokens.offsets`.
    ///
    /// One copy of each, types as in the [table](crate). Fields of bytes (text) and outlines of instances are not
    /// tensors and stay in the batch.
    ///
    /// # Errors
    /// As [`TensorExt::candle`], with the field's name.
    fn candle(&self, device: &Device) -> Result<HashMap<String, Tensor>>;
}

impl BatchExt for Batch {
    fn candle(&self, device: &Device) -> Result<HashMap<String, Tensor>> {
        let own = self.fields().map(|(name, tensor)| (name.to_owned(), tensor));
        let marked = self.instance_fields().flat_map(|(field, instances)| {
            instances.tensors().map(move |(name, tensor)| (format!("{field}.{name}"), tensor))
        });
        let lists = self
            .list_fields()
            .flat_map(|(field, list)| list.tensors().map(move |(name, tensor)| (format!("{field}.{name}"), tensor)));
        let copy = |(name, tensor): (String, _)| {
            let tensor = copied(tensor, device, &format!("the field `{name}`"))?;
            Ok((name, tensor))
        };
        own.chain(lists).chain(marked).map(copy).collect()
    }
}

/// `what`: the tensor's name in errors.
fn copied(tensor: &infeed::Tensor, device: &Device, what: &str) -> Result<Tensor> {
    let Some(bytes) = tensor.bytes() else {
        bail!(
            "infeed: {what} is on {}, which candle can't take over; build the loader with `.device(infeed::Device::Cpu)`, \
             or copy it with `to_host` first",
            tensor.device()
        )
    };
    match tensor.dtype() {
        DType::U8 | DType::Bool => Tensor::from_slice(bytes, tensor.shape(), device),
        DType::I16 => same::<i16>(tensor, device),
        DType::I32 => same::<i32>(tensor, device),
        DType::U32 => same::<u32>(tensor, device),
        DType::I64 => same::<i64>(tensor, device),
        DType::F16 => same::<infeed::half::f16>(tensor, device),
        DType::Bf16 => same::<infeed::half::bf16>(tensor, device),
        DType::F32 => same::<f32>(tensor, device),
        DType::F64 => same::<f64>(tensor, device),
        DType::I8 => widened(tensor, device, |v: i8| Ok(i16::from(v))),
        DType::U16 => widened(tensor, device, |v: u16| Ok(u32::from(v))),
        DType::U64 => widened(tensor, device, |v: u64| match i64::try_from(v) {
            Ok(v) => Ok(v),
            Err(_) => bail!(
                "infeed: {what} has the u64 {v}, which candle's largest integers, i64, don't hold; `take` it out of the \
                 batch first, and read it with `as_slice`"
            ),
        }),
    }
}

fn same<T: Element + WithDType>(tensor: &infeed::Tensor, device: &Device) -> Result<Tensor> {
    Tensor::from_slice(values::<T>(tensor), tensor.shape(), device)
}

fn widened<T: Element, W: WithDType>(
    tensor: &infeed::Tensor,
    device: &Device,
    widen: impl Fn(T) -> Result<W>,
) -> Result<Tensor> {
    let mut wide = Vec::with_capacity(tensor.len());
    for value in values(tensor) {
        wide.push(widen(*value)?);
    }
    Tensor::from_vec(wide, tensor.shape(), device)
}

fn values<T: Element>(tensor: &infeed::Tensor) -> &[T] {
    tensor.as_slice().expect("of the type that was matched, in host memory")
}

/// The README's code.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
