//! Batches of [`infeed`] as tensors of [`tch`], in the memory where they were made.
//!
//! ```text
//!  Loader ──▶ Batch ──▶ batch.tch()? ──▶ by name ──▶ net.forward(&tensors["image"])
//!               │        no copy: moved                    │
//!               │                                          └─▶ the last view, clone or graph of gradients is dropped:
//!               └─▶ batch.state(), batch.records()             the memory goes back to the loader
//! ```
//!
//! - **The tensors are moved out of the batch**, which keeps its state, records, text and instances. They are libtorch's from
//!   then on: keep them as long as you like, write into them, compute gradients through them. Nothing has to be dropped in an
//!   order.
//! - **No copy, if nobody else has the tensor.** libtorch may write into what it has, and tensors of infeed never change under
//!   their readers. So where there is a clone ([`infeed::Tensor::clone`]), where another library lent the memory to infeed, and
//!   of instances, which stay in the batch, it is one copy.
//! - **tch has fewer types**: what it lacks is widened where that is exact, in one copy; nothing is rounded.
//!
//! | infeed | tch | |
//! |---|---|---|
//! | `u8`, `i8`, `i16`, `i32`, `i64`, `f16`, `bf16`, `f32`, `f64`, `bool` | the same | no copy |
//! | `u16` | `Int` | one copy |
//! | `u32` | `Int64` | one copy |
//! | `u64` | `Int64` | one copy; an error where a value is 2⁶³ or more |
//!
//! **Pinned rows** ([`pin_memory`](infeed::LoaderBuilder::pin_memory)) are pinned tensors: `to_device_(…, non_blocking, …)` copies
//! them beside the kernels, and the batch may be dropped meanwhile.
//! **Rows on a GPU** are taken over in the same way, for work on CUDA's default stream, which is libtorch's own unless somebody set
//! another; their memory is reused only behind what that stream was given. The types of the table's first line alone. *This part
//! was compiled, and had no GPU with libtorch to run on yet.*
#![deny(unsafe_code)]

mod lent;

use std::collections::HashMap;

use infeed::{Batch, DType, Device, device::CudaStream, tensor::Element};
use tch::{TchError, Tensor};

use crate::lent::{Place, Type};

/// `tch` of a tensor.
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
    /// The values as a tensor of libtorch: no copy if nobody else has them, else one. Types by the [table](crate).
    ///
    /// # Errors
    /// A `u64` that is no `i64`; a type that would have to be copied, on a GPU; what libtorch says.
    fn tch(self) -> Result<Tensor, TchError>;
}

impl TensorExt for infeed::Tensor {
    fn tch(self) -> Result<Tensor, TchError> {
        handed_over(self, "the tensor")
    }
}

/// `tch` of a batch.
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
    /// All tensors of the batch: those of [`infeed::Batch::fields`] by their names (images, masks, labels, arrays), which are
    /// moved out of it, and copies of those of instances behind their field's: `instances.boxes`, `instances.labels`,
    /// `instances.offsets` and what else [`infeed::BatchInstances::tensors`] names. Types by the [table](crate).
    ///
    /// Fields of bytes (text) and outlines of instances are no tensors and stay in the batch. Called again, there are only the
    /// instances.
    ///
    /// # Errors
    /// As [`TensorExt::tch`], with the field's name. Tensors that were moved before are lost then, with the rest of the batch.
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
        for (field, instances) in self.instance_fields() {
            for (name, tensor) in instances.tensors() {
                let name = format!("{field}.{name}");
                let tensor = copied(tensor, &format!("the field `{name}`"))?;
                tensors.insert(name, tensor);
            }
        }
        Ok(tensors)
    }
}

/// `what` is who has the values, for errors.
fn handed_over(tensor: infeed::Tensor, what: &str) -> Result<Tensor, TchError> {
    let (sizes, kind) = (sizes(&tensor), Type::of(tensor.dtype()));
    let kind = match (kind, tensor.device()) {
        (Some(kind), _) => kind,
        (None, Device::Cpu) => return copied(&tensor, what),
        (None, device) => {
            return Err(TchError::Kind(format!(
                "infeed: {what} is of {} on {device}, which tch lacks; build the loader with `.device(infeed::Device::Cpu)`",
                tensor.dtype()
            )));
        }
    };
    if let Device::Cuda(index) = tensor.device() {
        let place =
            Place::Cuda(i32::try_from(index).map_err(|_| TchError::Convert(format!("there is no cuda:{index}")))?);
        // libtorch's, as long as nobody sets another.
        let Some(at) = tensor.device_ptr(CudaStream::DEFAULT).map(|at| at.as_raw()) else {
            return Err(TchError::Torch(format!("infeed: {what} has no address on cuda:{index}")));
        };
        // SAFETY: a clone keeps the rows, and gives them back behind what the stream was given. No reference to memory of a GPU
        // is ever made in Rust; who has another clone sees what is written, as with any two tensors of one memory.
        #[expect(unsafe_code, reason = "memory is handed over")]
        return unsafe { lent::lend(at as *mut _, &sizes, kind, place, tensor) };
    }
    match tensor.try_into_mut() {
        Ok(mut own) => {
            let at = own.bytes_mut().as_mut_ptr();
            // SAFETY: nobody else has the rows, which do not move when their owner does; they are row-major, aligned to 64,
            // initialised, and as many as the shape says.
            #[expect(unsafe_code, reason = "memory is handed over")]
            unsafe {
                lent::lend(at.cast(), &sizes, kind, Place::Host, own)
            }
        }
        // Somebody reads it beside, and libtorch may write.
        Err(shared) => copied(&shared, what),
    }
}

/// In libtorch's own memory.
fn copied(tensor: &infeed::Tensor, what: &str) -> Result<Tensor, TchError> {
    let Some(bytes) = tensor.bytes() else {
        return Err(TchError::Torch(format!("infeed: {what} lies on {}", tensor.device())));
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
                     batch before, and read it by `as_slice`"
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
