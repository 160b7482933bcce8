//! Batches of [`infeed`] as tensors of [`tch`], in the loader's memory.
//!
//! ```text
//!  Loader ──▶ Batch ──▶ batch.tch()? ──▶ by name ──▶ net.forward(&tensors["image"])
//!               │        no copy: moved                    │
//!               │                                          └─▶ the last view, clone or graph of gradients is dropped:
//!               └─▶ batch.state(), batch.records()             the memory goes back to the loader
//! ```
//!
//! - **The tensors are moved out of the batch**, which keeps its state, records, text and instances. libtorch then owns
//!   them: keep them as long as you like, write to them, compute gradients through them. Drop batch, tensors and loader
//!   in any order.
//! - **No copy, if the batch has the only reference to a tensor.** libtorch may write to its memory, and infeed's
//!   tensors never change under a reader. So one copy is made if there is a clone ([`infeed::Tensor::clone`]), if the
//!   memory belongs to another library, and for instances, which stay in the batch.
//! - **tch has fewer types**. A missing type is widened to one that holds it exactly, in one copy; nothing is rounded.
//!
//! | infeed | tch | |
//! |---|---|---|
//! | `u8`, `i8`, `i16`, `i32`, `i64`, `f16`, `bf16`, `f32`, `f64`, `bool` | the same | no copy |
//! | `u16` | `Int` | one copy |
//! | `u32` | `Int64` | one copy |
//! | `u64` | `Int64` | one copy; an error if a value is 2⁶³ or more |
//!
//! **Pinned rows** ([`pin_memory`](infeed::LoaderBuilder::pin_memory)) become pinned tensors:
//! `to_device_(…, non_blocking, …)` copies them while kernels run, and the batch may be dropped meanwhile.
//!
//! **Rows on a GPU** are also moved, for use on CUDA's default stream (libtorch's default too). Their memory is reused
//! only after the work that was given to that stream before the drop. Only the types of the table's first line. *This
//! part compiles, but has not run yet on a GPU with libtorch.*
#![deny(unsafe_code)]

mod lent;

use std::collections::HashMap;

use infeed::{Batch, DType, Device, device::CudaStream, tensor::Element};
use tch::{TchError, Tensor};

use crate::lent::{Place, Type};

/// Moves a tensor to tch.
///
/// ```
/// # use infeed::{Loader, dataset::MemoryDataset};
/// use infeed_tch::TensorExt;
///
/// # let dataset = MemoryDataset::builder().labels(vec![3, 1, 4, 1]).build()?;
/// # let loader = Loader::builder(std::sync::Arc::new(dataset)).batch_size(4).build_blocking()?;
/// let mut batch = loader.epoch(0).blocking().next().expect("one batch")?;
/// let label = batch.take("label").expect("a field of that name").tch()?;
/// assert_eq!((label.size(), label.kind()), (vec![4], tch::Kind::Int64));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait TensorExt {
    /// The values as a tensor of libtorch: without a copy if this is the only reference to them, otherwise with one.
    /// Types as in the [table](crate).
    ///
    /// # Errors
    /// A `u64` of 2⁶³ or more; on a GPU, a type that would need a copy; and libtorch's errors.
    fn tch(self) -> Result<Tensor, TchError>;
}

impl TensorExt for infeed::Tensor {
    fn tch(self) -> Result<Tensor, TchError> {
        handed_over(self, "the tensor")
    }
}

/// Moves the tensors of a batch to tch.
///
/// ```
/// # use futures::StreamExt;
/// use infeed_tch::BatchExt;
/// use tch::Kind;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let dataset = infeed::open("synthetic://?count=100&height=8&width=8&classes=10").await?;
/// let loader = infeed::Loader::builder(dataset).batch_size(20).device(infeed::Device::Cpu).build().await?;
/// let mut batches = loader.epoch(0);
/// while let Some(batch) = batches.next().await {
///     let mut batch = batch?;
///     let tensors = batch.tch()?;
///     let brightness = tensors["image"].mean_dim([1, 2, 3].as_slice(), false, Kind::Float);
///     println!("{brightness} of classes {}", tensors["label"]);
///     // Into the checkpoint, when this step is in it.
///     let _ = batch.state();
/// }
/// # Ok(()) }
/// ```
pub trait BatchExt {
    /// All tensors of the batch by name: the [fields](infeed::Batch::fields) (images, masks, labels, arrays), which are
    /// moved out of it, and copies of the tensors of instances with their field's name in front, as
    /// [`infeed::BatchInstances::tensors`] names them: `instances.boxes`, `instances.labels`, `instances.offsets`, …;
    /// lists likewise: `tokens.values`, `tokens.offsets`. Types as in the [table](crate).
    ///
    /// Fields of bytes (text) and outlines of instances are not tensors and stay in the batch. A second call returns
    /// only the lists and instances.
    ///
    /// # Errors
    /// As [`TensorExt::tch`], with the field's name. The failing tensor, and those
    /// that were moved before it, are then lost.
    fn tch(&mut self) -> Result<HashMap<String, Tensor>, TchError>;
}

impl BatchExt for Batch {
    fn tch(&mut self) -> Result<HashMap<String, Tensor>, TchError> {
        let names: Vec<String> = self.fields().map(|(name, _)| name.to_owned()).collect();
        let mut tensors = HashMap::with_capacity(names.len());
        for name in names {
            let tensor = self.take(&name).expect("one of the batch's own names");
            let tensor = handed_over(tensor, &format!("the field `{name}`"))?;
            tensors.insert(name, tensor);
        }
        let of_instances = self.instance_fields().flat_map(|(field, of)| of.tensors().map(move |part| (field, part)));
        let of_lists = self.list_fields().flat_map(|(field, list)| list.tensors().map(move |part| (field, part)));
        for (field, (name, tensor)) in of_lists.chain(of_instances) {
            let name = format!("{field}.{name}");
            let tensor = copied(tensor, &format!("the field `{name}`"))?;
            tensors.insert(name, tensor);
        }
        Ok(tensors)
    }
}

/// `what`: the tensor's name in errors.
fn handed_over(tensor: infeed::Tensor, what: &str) -> Result<Tensor, TchError> {
    let (sizes, kind) = (sizes(&tensor), Type::of(tensor.dtype()));
    let kind = match (kind, tensor.device()) {
        (Some(kind), _) => kind,
        (None, Device::Cpu) => return copied(&tensor, what),
        (None, device) => {
            return Err(TchError::Kind(format!(
                "infeed: {what} has {} on {device}, which tch lacks; build the loader with `.device(infeed::Device::Cpu)`",
                tensor.dtype()
            )));
        }
    };
    if let Device::Cuda(index) = tensor.device() {
        let place =
            Place::Cuda(i32::try_from(index).map_err(|_| TchError::Convert(format!("there is no cuda:{index}")))?);
        // libtorch's current stream, unless the program sets another.
        let Some(at) = tensor.device_ptr(CudaStream::DEFAULT).map(|at| at.as_raw()) else {
            return Err(TchError::Torch(format!("infeed: {what} has no address on cuda:{index}")));
        };
        // SAFETY: `tensor` keeps the rows alive, and returns them after the work that the stream was given. Rust code
        // never makes a reference to GPU memory. Another clone sees writes, as any two tensors of one memory do.
        #[expect(unsafe_code, reason = "memory is handed over")]
        return unsafe { lent::lend(at as *mut _, &sizes, kind, place, tensor) };
    }
    match tensor.try_into_mut() {
        Ok(mut own) => {
            let at = own.bytes_mut().as_mut_ptr();
            // SAFETY: `own` has the only reference to the rows, which do not move when `own` does. They are row-major,
            // aligned to 64 bytes, initialised, and as many as `sizes` says.
            #[expect(unsafe_code, reason = "memory is handed over")]
            unsafe {
                lent::lend(at.cast(), &sizes, kind, Place::Host, own)
            }
        }
        // There may be another reader, and libtorch may write.
        Err(shared) => copied(&shared, what),
    }
}

/// A copy in libtorch's own memory.
fn copied(tensor: &infeed::Tensor, what: &str) -> Result<Tensor, TchError> {
    let Some(bytes) = tensor.bytes() else {
        return Err(TchError::Torch(format!("infeed: {what} is on {}, not in host memory", tensor.device())));
    };
    if let Some(Type(kind)) = Type::of(tensor.dtype()) {
        return Tensor::f_from_data_size(bytes, &sizes(tensor), kind);
    }
    let wide = match tensor.dtype() {
        DType::U16 => Tensor::f_from_slice(&widened(tensor, |v: u16| Ok(i32::from(v)))?),
        DType::U32 => Tensor::f_from_slice(&widened(tensor, |v: u32| Ok(i64::from(v)))?),
        _ => Tensor::f_from_slice(&widened(tensor, |v: u64| {
            let says = |_| {
                TchError::Kind(format!(
                    "infeed: {what} has the u64 {v}, which tch's largest integers, Int64, don't hold; `take` it out of the \
                     batch first, and read it with `as_slice`"
                ))
            };
            i64::try_from(v).map_err(says)
        })?),
    };
    wide?.f_view(sizes(tensor).as_slice())
}

fn widened<T: Element, W>(
    tensor: &infeed::Tensor,
    widen: impl Fn(T) -> Result<W, TchError>,
) -> Result<Vec<W>, TchError> {
    let values: &[T] = tensor.as_slice().expect("of the type that was matched, in host memory");
    values.iter().map(|value| widen(*value)).collect()
}

fn sizes(tensor: &infeed::Tensor) -> Vec<i64> {
    tensor.shape().iter().map(|axis| *axis as i64).collect()
}

/// The README's code.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
