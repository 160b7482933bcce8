//! A tensor: a shape over bytes. No arithmetic; it is what a batch hands to a framework.

use std::{fmt, marker::PhantomData};

use bytemuck::NoUninit;
use infeed_core::handles::{CudaEvent, CudaStream};
use infeed_core::{
    error::Result,
    rows::{Frozen, Rows},
    types::{DType, Device},
};

#[cfg(feature = "dlpack")]
use crate::device::dlpack::{Dlpack, DlpackAbi};

pub use infeed_core::types::Element;

/// Dense values of one field of a batch, row-major, in host memory or on a GPU.
///
/// Cheap to clone: clones share the memory, which returns to the loader's pool with the last of them. Keep a tensor
/// as long as you like: a batch that was handed over is yours and no longer counts in `memory_budget` or
/// `device_budget`.
///
/// **On a GPU** the values are complete when the batch is yielded: no stream has to wait for anything. Ask for the
/// address with the stream that will read it ([`device_ptr`](Self::device_ptr)); then the tensor may be dropped as
/// soon as the work is queued, and its memory is reused only behind that work. Dropping never blocks.
/// [Batches in other frameworks](crate::guide::frameworks) tells how burn, candle, tch, PyTorch and plain CUDA code take one.
#[derive(Clone)]
pub struct Tensor {
    shape: Vec<usize>,
    dtype: DType,
    device: Device,
    data: Frozen,
}

impl Tensor {
    /// A tensor over finished rows.
    ///
    /// # Panics
    /// When the shape's size is not the rows' length.
    pub(crate) fn new(shape: Vec<usize>, dtype: DType, data: Frozen) -> Self {
        // Products of some of the axes are numbers too, then.
        assert_eq!(dtype.len_bytes(&shape), Some(data.len()), "shape {shape:?} of {dtype} does not fit the data");
        Self { shape, dtype, device: data.device(), data }
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

    /// Whether it lies in page-locked host memory ([`pin_memory`](crate::LoaderBuilder::pin_memory)): a GPU copies from it
    /// at full speed while the host goes on.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.data.is_pinned()
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

    /// All values as bytes in the machine's order, the first aligned to 64 (but see `from_dlpack`); `None` on a GPU.
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
        self.data.bytes()
    }

    /// All values, or `None` when `T` is another type than [`dtype`](Self::dtype) or the tensor lies on a GPU. Costs
    /// nothing.
    #[must_use]
    pub fn as_slice<T: Element>(&self) -> Option<&[T]> {
        // Aligned: buffers start at 64 bytes, and memory of other libraries is refused unless it is.
        self.bytes().filter(|_| T::DTYPE == self.dtype).map(bytemuck::cast_slice)
    }

    /// All values in a vector of your own (one copy), or `None` when `T` is another type or the tensor lies on a GPU.
    #[must_use]
    pub fn to_vec<T: Element>(&self) -> Option<Vec<T>> {
        self.as_slice().map(<[T]>::to_vec)
    }

    /// The same values in host memory: this tensor again when it lies there, else a copy. Blocks the thread while the
    /// GPU copies (about a millisecond for 25 MB).
    ///
    /// # Errors
    /// `Device` when the GPU failed, `OutOfMemory` when the host has no memory for it.
    pub fn to_host(&self) -> Result<Self> {
        if self.device == Device::Cpu {
            return Ok(self.clone());
        }
        let mut rows = Rows::zeroed(1, self.data.len())?;
        self.data.download(rows.bytes_mut())?;
        Ok(Self::new(self.shape.clone(), self.dtype, rows.freeze()))
    }

    /// The same memory to be changed, if nobody else has the tensor or another of its memory, and it is the host's and a
    /// loader's; else the tensor again. Costs nothing.
    ///
    /// ```
    /// # use infeed::{Loader, Transform, dataset::MemoryDataset};
    /// # let images = MemoryDataset::builder().images_u8(vec![7; 2 * 12], 2, 2, 2, 3, false);
    /// # let loader = Loader::builder(std::sync::Arc::new(images.build()?)).batch_size(2).transform(Transform::new().to_float()).build_blocking()?;
    /// let mut batch = loader.epoch(0).blocking().next().expect("there is one")?;
    /// let image = batch.take("image").expect("a field of that name");
    /// let mut image = image.try_into_mut().expect("nobody else has it");
    /// image.as_mut_slice::<f32>().expect("it was made f32").fill(0.5);
    /// assert_eq!(image.freeze().as_slice::<f32>().expect("it still is")[3], 0.5);
    /// # Ok::<(), infeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// The tensor itself, unchanged.
    pub fn try_into_mut(self) -> std::result::Result<TensorMut, Self> {
        let Self { shape, dtype, device, data } = self;
        match data.into_rows() {
            Ok(rows) => Ok(TensorMut { shape, dtype, rows }),
            Err(data) => Err(Self { shape, dtype, device, data }),
        }
    }

    /// Address of the first value on the GPU, for work on `stream`; `None` in host memory.
    ///
    /// The values are there already. When the last clone of the tensor is dropped, its memory is reused only behind
    /// what `stream` was given until then: keep the tensor until your work is queued, not until it is done.
    ///
    /// ```no_run
    /// # fn launch(pixels: u64, stream: *mut std::ffi::c_void) {}
    /// # fn train(batch: infeed::Batch, raw_stream: *mut std::ffi::c_void) {
    /// // SAFETY: the trainer's stream lives as long as the trainer, which outlives its batches.
    /// let stream = unsafe { infeed::device::CudaStream::from_raw(raw_stream) };
    /// if let Some(pixels) = batch["image"].device_ptr(stream) {
    ///     launch(pixels.as_raw(), raw_stream);
    /// }
    /// drop(batch); // The kernel may still be running: the memory waits for it.
    /// # }
    /// ```
    #[must_use]
    pub fn device_ptr(&self, stream: CudaStream) -> Option<DevicePtr<'_>> {
        let address = self.data.address_for(stream)?;
        Some(DevicePtr { address, tensor: PhantomData })
    }

    /// Keeps the memory until `event` has passed, for readers whose stream can't be named. The event may be destroyed once
    /// this returned. Does nothing in host memory.
    ///
    /// # Errors
    /// `Device` when the event is refused.
    pub fn release_after(&self, event: CudaEvent) -> Result<()> {
        self.data.release_after(event)
    }

    /// Bytes of one row of the batch.
    #[must_use]
    pub fn row_bytes(&self) -> usize {
        self.shape.iter().skip(1).product::<usize>() * self.dtype.size()
    }
}

#[cfg(feature = "dlpack")]
impl Tensor {
    /// Lends the values to another library, without a copy: numpy, PyTorch, JAX, CuPy, Rust crates.
    ///
    /// What is lent keeps the memory as a clone of the tensor does. It is read-only: clones may be read meanwhile.
    ///
    /// ```
    /// # fn consume(_managed: *mut std::ffi::c_void) {}
    /// # fn lend(batch: infeed::Batch) -> infeed::Result<()> {
    /// use infeed::device::DlpackAbi;
    ///
    /// // For Python: a `PyCapsule` over this address, named `DlpackAbi::Versioned.capsule_name()`.
    /// let managed = batch["image"].to_dlpack(DlpackAbi::Versioned)?.into_raw();
    /// consume(managed); // It calls the deleter when it is done.
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Config` when the tensor lies on a GPU: name the stream, with [`to_dlpack_on`](Self::to_dlpack_on).
    pub fn to_dlpack(&self, abi: DlpackAbi) -> Result<Dlpack> {
        Dlpack::lend(abi, &self.shape, self.dtype, self.data.clone(), None)
    }

    /// [`to_dlpack`](Self::to_dlpack) for work on `stream`, which means nothing in host memory.
    ///
    /// The values are there already. The memory is reused only behind what `stream` was given until the deleter is
    /// called. In Python's `__dlpack__(stream=…)`, numbers above 0 are handles of streams and go to
    /// [`CudaStream::from_raw`] as they are; none means [`CudaStream::DEFAULT`]; with -1 the consumer names no stream, and
    /// should be asked to.
    ///
    /// # Errors
    /// `Internal` when the shape can't be said in DLPack.
    pub fn to_dlpack_on(&self, abi: DlpackAbi, stream: CudaStream) -> Result<Dlpack> {
        Dlpack::lend(abi, &self.shape, self.dtype, self.data.clone(), Some(stream))
    }

    /// A tensor over host memory of another library, without a copy. The library gets it back with the last clone, also
    /// when this is an error. Its first value may be aligned to its type only.
    ///
    /// # Errors
    /// `Unsupported`: other types than ours, not row-major, not aligned, memory of other devices. `Config`: it lies on a
    /// GPU, see [`from_dlpack_on`](Self::from_dlpack_on).
    pub fn from_dlpack(dlpack: Dlpack) -> Result<Self> {
        let (shape, dtype, data) = dlpack.borrow(None)?;
        Ok(Self::new(shape, dtype, data))
    }

    /// [`from_dlpack`](Self::from_dlpack) that also takes memory of a GPU, which the other library fills and reuses in
    /// order of `stream`: the one that its `__dlpack__(stream=…)` was called with.
    ///
    /// Blocks the thread until `stream` has done what it was given so far. When the last clone is dropped, `stream`, which
    /// lives as long as the tensor by the promise of who made it, waits for all readers
    /// ([`device_ptr`](Self::device_ptr)) before the memory goes back.
    ///
    /// # Errors
    /// As `from_dlpack`; `Device` when the GPU is not there or failed.
    pub fn from_dlpack_on(dlpack: Dlpack, stream: CudaStream) -> Result<Self> {
        let (shape, dtype, data) = dlpack.borrow(Some(stream))?;
        Ok(Self::new(shape, dtype, data))
    }
}

/// Where a tensor's values begin in device memory; lives no longer than the tensor.
///
/// ```no_run
/// # fn launch(pixels: u64, values: usize, stream: *mut std::ffi::c_void) {}
/// # fn train(batch: &infeed::Batch, stream: infeed::device::CudaStream) {
/// let image = &batch["image"];
/// match image.device_ptr(stream) {
///     Some(pixels) => launch(pixels.as_raw(), image.len(), stream.as_raw()),
///     None => println!("the batch lies in host memory"),
/// }
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct DevicePtr<'a> {
    address: u64,
    tensor: PhantomData<&'a Tensor>,
}

impl DevicePtr<'_> {
    /// The address, as `CUdeviceptr`.
    #[must_use]
    pub const fn as_raw(&self) -> u64 {
        self.address
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({:?} {} on {})", self.shape, self.dtype, self.device)
    }
}

/// A tensor in host memory that nobody else has: its values may be changed. See [`Tensor::try_into_mut`].
///
/// ```
/// # use std::sync::Arc;
/// # let images = infeed::dataset::MemoryDataset::builder().images_u8(vec![1, 2, 3, 6], 1, 2, 2, 1, false).build()?;
/// # let loader = infeed::Loader::builder(Arc::new(images)).batch_size(1).device(infeed::Device::Cpu);
/// # let loader = loader.dtype(infeed::DType::U8).build_blocking()?;
/// let mut batch = loader.epoch(0).blocking().next().expect("one batch")?;
/// let image = batch.take("image").expect("a field of that name");
/// let mut image = image.try_into_mut().expect("nobody else has it");
/// for value in image.as_mut_slice::<u8>().expect("bytes") {
///     *value *= 10;
/// }
/// assert_eq!(image.freeze().as_slice::<u8>(), Some(&[10, 20, 30, 60][..]));
/// # Ok::<(), infeed::Error>(())
/// ```
pub struct TensorMut {
    shape: Vec<usize>,
    dtype: DType,
    rows: Rows,
}

impl TensorMut {
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

    /// All values as bytes in the machine's order, the first aligned to 64 (but see [`Tensor::bytes`]).
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.rows.bytes_mut()
    }

    /// All values, or `None` when `T` is another type than [`dtype`](Self::dtype).
    #[must_use]
    pub fn as_mut_slice<T: Element + NoUninit>(&mut self) -> Option<&mut [T]> {
        // Aligned: buffers start at 64 bytes.
        let fits = T::DTYPE == self.dtype;
        fits.then(|| bytemuck::cast_slice_mut(self.rows.bytes_mut()))
    }

    /// A tensor again, to be shared. Costs nothing.
    #[must_use]
    pub fn freeze(self) -> Tensor {
        Tensor::new(self.shape, self.dtype, self.rows.freeze())
    }
}

impl fmt::Debug for TensorMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TensorMut({:?} {})", self.shape, self.dtype)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infeed_core::rows::Rows;

    #[test]
    fn values_are_read_only_as_their_own_type() {
        let mut rows = Rows::zeroed(2, 8).unwrap();
        rows.row_mut(1)[..4].copy_from_slice(&1.5f32.to_ne_bytes());
        let tensor = Tensor::new(vec![2, 2], DType::F32, rows.freeze());
        assert_eq!(tensor.as_slice::<f32>(), Some(&[0.0, 0.0, 1.5, 0.0][..]));
        assert_eq!(tensor.as_slice::<u8>(), None);
        assert_eq!(tensor.row_bytes(), 8);
    }

    #[test]
    fn only_a_sole_owner_may_change_values() {
        let tensor = || Tensor::new(vec![2, 2], DType::F32, Rows::zeroed(2, 8).unwrap().freeze());
        let (one, other) = {
            let one = tensor();
            (one.clone(), one)
        };
        let one = one.try_into_mut().expect_err("there is a clone");
        assert_eq!((one.shape(), one.as_slice::<f32>()), (&[2, 2][..], Some(&[0.0; 4][..])));
        drop(other);
        let start = one.bytes().unwrap().as_ptr();
        let mut one = one.try_into_mut().expect("it is alone");
        assert!(one.as_mut_slice::<i32>().is_none() && one.bytes_mut().as_ptr() == start);
        one.as_mut_slice::<f32>().unwrap()[3] = 2.0;
        assert_eq!((one.shape(), one.dtype()), (&[2, 2][..], DType::F32));
        let frozen = one.freeze();
        assert_eq!((frozen.as_slice::<f32>().unwrap()[3], frozen.bytes().unwrap().as_ptr()), (2.0, start));
        let empty = Tensor::new(vec![0, 3], DType::U8, Rows::zeroed(1, 0).unwrap().freeze());
        assert!(empty.try_into_mut().unwrap().bytes_mut().is_empty());
    }
}
