//! A tensor: a shape over bytes, without arithmetic. A batch hands tensors to a framework.

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
/// Cheap to clone: clones share the memory, which returns to the loader's pool when the last clone is dropped. Keep a
/// tensor as long as you like: after its batch was handed over it no longer counts in `memory_budget` or
/// `device_budget`.
///
/// **On a GPU** the values are complete when the batch is yielded: no stream has to wait. Get the address with
/// [`device_ptr`](Self::device_ptr) and the stream that reads it. Then the tensor may be dropped as soon as the work is
/// queued: its memory is reused only after that work. Dropping never blocks.
///
/// [Batches in other frameworks](crate::guide::frameworks) has the code for burn, candle, tch, PyTorch and plain CUDA.
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
    /// If the size of the shape is not the length of the rows.
    pub(crate) fn new(shape: Vec<usize>, dtype: DType, data: Frozen) -> Self {
        // So products of some of the axes do not overflow either.
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

    /// Device of the memory.
    #[must_use]
    pub const fn device(&self) -> Device {
        self.device
    }

    /// Whether the tensor is in page-locked host memory ([`pin_memory`](crate::LoaderBuilder::pin_memory)): a GPU
    /// copies from it at full speed while the host continues.
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

    /// All values as bytes in native byte order; `None` on a GPU. The first value is aligned to 64 bytes, except in
    /// tensors of `from_dlpack`.
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
        self.data.bytes()
    }

    /// All values, without a copy; `None` if `T` is not the type of [`dtype`](Self::dtype) or the tensor is on a GPU.
    #[must_use]
    pub fn as_slice<T: Element>(&self) -> Option<&[T]> {
        // Aligned: our buffers start at multiples of 64 bytes, and `from_dlpack` rejects unaligned memory.
        self.bytes().filter(|_| T::DTYPE == self.dtype).map(bytemuck::cast_slice)
    }

    /// A copy of all values; `None` if `T` is not the type of [`dtype`](Self::dtype) or the tensor is on a GPU.
    #[must_use]
    pub fn to_vec<T: Element>(&self) -> Option<Vec<T>> {
        self.as_slice().map(<[T]>::to_vec)
    }

    /// The values in host memory: a clone of this tensor if it is there, otherwise a copy. Blocks the thread while the
    /// GPU copies (about 1 ms for 25 MB).
    ///
    /// # Errors
    /// `Device` if the GPU failed, `OutOfMemory` if the host has no memory for the copy.
    pub fn to_host(&self) -> Result<Self> {
        if self.device == Device::Cpu {
            return Ok(self.clone());
        }
        let mut rows = Rows::zeroed(1, self.data.len())?;
        self.data.download(rows.bytes_mut())?;
        Ok(Self::new(self.shape.clone(), self.dtype, rows.freeze()))
    }

    /// A mutable tensor over the same memory, without a copy. Works if this is the only clone of the tensor, in host
    /// memory that a loader allocated; otherwise the tensor is returned as the error.
    ///
    /// ```
    /// # use infeed::{Loader, Transform, dataset::MemoryDataset};
    /// # let images = MemoryDataset::builder().images_u8(vec![7; 2 * 12], 2, 2, 2, 3, false);
    /// # let loader = Loader::builder(std::sync::Arc::new(images.build()?)).batch_size(2).transform(Transform::new().to_float()).build_blocking()?;
    /// let mut batch = loader.epoch(0).blocking().next().expect("there is one")?;
    /// let image = batch.take("image").expect("a field of that name");
    /// let mut image = image.try_into_mut().expect("there is no other clone");
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
    /// The values are complete. After the last clone of the tensor is dropped, its memory is reused only when `stream`
    /// has done all work that was queued until then: keep the tensor until your work is queued, not until it is done.
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

    /// Keeps the memory until `event` has passed, for readers that cannot name their stream. The event may be destroyed
    /// after this call. No effect in host memory.
    ///
    /// # Errors
    /// `Device` if the driver rejects the event.
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
    /// Lends the values to another library without a copy: numpy, PyTorch, JAX, CuPy, Rust crates.
    ///
    /// The loan keeps the memory, as a clone of the tensor does. It is read-only, because clones may be read meanwhile.
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
    /// `Config` if the tensor is on a GPU: name the stream with [`to_dlpack_on`](Self::to_dlpack_on).
    pub fn to_dlpack(&self, abi: DlpackAbi) -> Result<Dlpack> {
        Dlpack::lend(abi, &self.shape, self.dtype, self.data.clone(), None)
    }

    /// [`to_dlpack`](Self::to_dlpack) for work on `stream`; in host memory the stream is ignored.
    ///
    /// The values are complete. The memory is reused only when `stream` has done all work that was queued before the
    /// call of the deleter. For Python's `__dlpack__(stream=…)`:
    ///
    /// | `stream` | use |
    /// |---|---|
    /// | above 0 | [`CudaStream::from_raw`] with this handle |
    /// | `None` | [`CudaStream::DEFAULT`] |
    /// | -1 | the consumer names no stream: require one |
    ///
    /// # Errors
    /// `Internal` if DLPack cannot express the shape.
    pub fn to_dlpack_on(&self, abi: DlpackAbi, stream: CudaStream) -> Result<Dlpack> {
        Dlpack::lend(abi, &self.shape, self.dtype, self.data.clone(), Some(stream))
    }

    /// A tensor over host memory of another library, without a copy. The library gets the memory back when the last
    /// clone is dropped, or at once on an error. The first value may be aligned to its type only.
    ///
    /// # Errors
    /// `Unsupported`: a type that infeed does not have, not row-major, not aligned, memory of other devices. `Config`:
    /// the memory is on a GPU, see [`from_dlpack_on`](Self::from_dlpack_on).
    pub fn from_dlpack(dlpack: Dlpack) -> Result<Self> {
        let (shape, dtype, data) = dlpack.borrow(None)?;
        Ok(Self::new(shape, dtype, data))
    }

    /// As [`from_dlpack`](Self::from_dlpack), also for memory of a GPU. The other library must fill and reuse the
    /// memory in the order of `stream`: the stream that you passed to its `__dlpack__(stream=…)`.
    ///
    /// Blocks the thread until `stream` has done all work that was queued so far. When the last clone is dropped,
    /// `stream` waits for all readers ([`device_ptr`](Self::device_ptr)) before the memory goes back. So `stream` must
    /// live as long as the tensor, as [`CudaStream::from_raw`] requires.
    ///
    /// # Errors
    /// As `from_dlpack`; `Device` if there is no such GPU or it failed.
    pub fn from_dlpack_on(dlpack: Dlpack, stream: CudaStream) -> Result<Self> {
        let (shape, dtype, data) = dlpack.borrow(Some(stream))?;
        Ok(Self::new(shape, dtype, data))
    }
}

/// Address of a tensor's first value in device memory; borrows the tensor.
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

/// The only tensor over its host memory, so its values may be changed. See [`Tensor::try_into_mut`].
///
/// ```
/// # use std::sync::Arc;
/// # let images = infeed::dataset::MemoryDataset::builder().images_u8(vec![1, 2, 3, 6], 1, 2, 2, 1, false).build()?;
/// # let loader = infeed::Loader::builder(Arc::new(images)).batch_size(1).device(infeed::Device::Cpu);
/// # let loader = loader.dtype(infeed::DType::U8).build_blocking()?;
/// let mut batch = loader.epoch(0).blocking().next().expect("one batch")?;
/// let image = batch.take("image").expect("a field of that name");
/// let mut image = image.try_into_mut().expect("there is no other clone");
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

    /// All values as bytes in native byte order. The first value is aligned to 64 bytes (see [`Tensor::bytes`]).
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.rows.bytes_mut()
    }

    /// All values; `None` if `T` is not the type of [`dtype`](Self::dtype).
    #[must_use]
    pub fn as_mut_slice<T: Element + NoUninit>(&mut self) -> Option<&mut [T]> {
        // Aligned: buffers start at multiples of 64 bytes.
        let fits = T::DTYPE == self.dtype;
        fits.then(|| bytemuck::cast_slice_mut(self.rows.bytes_mut()))
    }

    /// A tensor that can be shared again, without a copy.
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
