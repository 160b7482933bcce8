//! Managed tensors of [DLPack](https://dmlc.github.io/dlpack/latest/): C structs with which array libraries lend each
//! other memory.
//!
//! The crate `dlpark` provides the structs, their owners and the checks of shapes and versions. Its types stay in this
//! file, so that a new version of it does not break our API: only the address of the C struct goes in and out.

use std::{
    ffi::{CStr, c_void},
    fmt,
    ptr::NonNull,
};

use dlpark::{
    DlpackFlags, Managed, ManagedTensorBase,
    dlpack::FromRawError,
    ffi::{DLDataType, DLDataTypeCode, DLDevice, DLDeviceType, DLManagedTensor, DLManagedTensorVersioned},
    metadata::Dynamic,
};
use infeed_core::handles::CudaStream;
use infeed_core::rows::{ALIGN, Frozen};
use infeed_core::{
    error::{Error, ErrorKind, Result},
    types::{DType, Device},
};

use super::driver;

/// Which of the two structs of DLPack.
///
/// ```
/// # use std::sync::Arc;
/// use infeed::device::{Dlpack, DlpackAbi};
///
/// # let images = infeed::dataset::MemoryDataset::builder().images_u8(vec![7; 12], 1, 2, 2, 3, false).build()?;
/// # let loader = infeed::Loader::builder(Arc::new(images)).batch_size(1).device(infeed::Device::Cpu).build_blocking()?;
/// # let batch = loader.epoch(0).blocking().next().expect("one batch")?;
/// // The consumer's newest version decides: `max_version` of Python's `__dlpack__`.
/// let lend = |major: u32| -> infeed::Result<Dlpack> {
///     let abi = if major >= 1 { DlpackAbi::Versioned } else { DlpackAbi::Legacy };
///     batch["image"].to_dlpack(abi)
/// };
/// assert_eq!(lend(1)?.abi().capsule_name(), c"dltensor_versioned");
/// assert_eq!(lend(0)?.abi().capsule_name(), c"dltensor");
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DlpackAbi {
    /// `DLManagedTensorVersioned`, since DLPack 1.0. It marks the values as read-only, as infeed's are.
    Versioned,
    /// `DLManagedTensor`, for older consumers. It cannot mark values as read-only, but consumers must not write them.
    Legacy,
}

impl DlpackAbi {
    /// The name of a Python capsule (`PyCapsule`) over this struct: `dltensor_versioned` or `dltensor`.
    #[must_use]
    pub const fn capsule_name(self) -> &'static CStr {
        match self {
            Self::Versioned => c"dltensor_versioned",
            Self::Legacy => c"dltensor",
        }
    }
}

/// An owned managed tensor of DLPack, on its way out of infeed or into it.
///
/// - Out: [`Tensor::to_dlpack`](crate::Tensor::to_dlpack) makes one, [`into_raw`](Self::into_raw) hands it to another
///   library.
/// - In: [`from_raw`](Self::from_raw) takes one, [`Tensor::from_dlpack`](crate::Tensor::from_dlpack) reads it.
///
/// Dropping it calls its deleter, which gives the memory back.
///
/// ```
/// # use std::sync::Arc;
/// use infeed::{Tensor, device::{Dlpack, DlpackAbi}};
///
/// # let images = infeed::dataset::MemoryDataset::builder().images_u8(vec![7; 12], 1, 2, 2, 3, false).build()?;
/// # let loader = infeed::Loader::builder(Arc::new(images)).batch_size(1).device(infeed::Device::Cpu).build_blocking()?;
/// # let batch = loader.epoch(0).blocking().next().expect("one batch")?;
/// let managed = batch["image"].to_dlpack(DlpackAbi::Versioned)?.into_raw(); // For another library.
///
/// // And back, as from any library.
/// // SAFETY: `managed` was made above and has no other owner.
/// let taken = unsafe { Dlpack::from_raw(DlpackAbi::Versioned, managed) }?;
/// assert_eq!(Tensor::from_dlpack(taken)?.shape(), batch["image"].shape());
/// # Ok::<(), infeed::Error>(())
/// ```
pub struct Dlpack(Abi);

enum Abi {
    Versioned(Managed<DLManagedTensorVersioned>),
    Legacy(Managed<DLManagedTensor>),
}

/// The description of a managed tensor, checked.
struct View {
    shape: Vec<usize>,
    dtype: DType,
    /// `None`: host memory.
    gpu: Option<u32>,
    /// The first value; dangling if there are none.
    start: NonNull<u8>,
    len: usize,
}

impl Dlpack {
    /// Takes over a managed tensor from another library. On an error it is given back, too.
    ///
    /// # Errors
    /// `Unsupported`: null, or a major version of DLPack other than 1.
    ///
    /// # Safety
    /// - `raw` is null, or points to a managed tensor of this kind that the caller owns: no other code calls its
    ///   deleter.
    /// - Until the call of the deleter its memory stays valid and **no code writes it**.
    /// - The deleter may be called from any thread and does not unwind.
    pub unsafe fn from_raw(abi: DlpackAbi, raw: *mut c_void) -> Result<Self> {
        let refused = |error: FromRawError| {
            Error::new(ErrorKind::Unsupported, "a DLPack tensor can't be taken").with_source(error)
        };
        Ok(Self(match abi {
            DlpackAbi::Versioned => {
                // SAFETY: as the caller says.
                Abi::Versioned(unsafe { Managed::from_raw(raw.cast()) }.map_err(refused)?)
            }
            DlpackAbi::Legacy => {
                // SAFETY: as the caller says.
                Abi::Legacy(unsafe { Managed::from_raw(raw.cast()) }.map_err(refused)?)
            }
        }))
    }

    /// The address of the C struct. The receiver now owns it and must call the deleter once, on any thread. That
    /// returns the memory to the loader and never blocks.
    #[must_use = "nobody else calls the deleter"]
    pub fn into_raw(self) -> *mut c_void {
        match self.0 {
            Abi::Versioned(managed) => managed.into_raw().cast(),
            Abi::Legacy(managed) => managed.into_raw().cast(),
        }
    }

    /// The kind of struct to which [`into_raw`](Self::into_raw) points.
    #[must_use]
    pub const fn abi(&self) -> DlpackAbi {
        match self.0 {
            Abi::Versioned(_) => DlpackAbi::Versioned,
            Abi::Legacy(_) => DlpackAbi::Legacy,
        }
    }

    /// Lends `data` out: row-major values of `shape`. On a GPU, for work on `stream`.
    pub(crate) fn lend(
        abi: DlpackAbi,
        shape: &[usize],
        dtype: DType,
        data: Frozen,
        stream: Option<CudaStream>,
    ) -> Result<Self> {
        let (device, start) = match (data.device(), stream) {
            (Device::Cpu, _) => (DLDevice::CPU, data.bytes().map_or(std::ptr::null(), <[u8]>::as_ptr)),
            (Device::Cuda(index), Some(stream)) => {
                let index = i32::try_from(index).map_err(|_| Error::config(format!("DLPack has no cuda:{index}")))?;
                (DLDevice::cuda(index), data.address_for(stream).map_or(std::ptr::null(), |at| at as *const u8))
            }
            (device @ Device::Cuda(_), None) => return Err(unnamed_stream(device, "to_dlpack_on")),
        };
        // DLPack requires null for a tensor without values.
        let start = if data.is_empty() { std::ptr::null() } else { start };
        Ok(Self(match abi {
            DlpackAbi::Versioned => Abi::Versioned(lend(shape, dtype, device, start, data)?),
            DlpackAbi::Legacy => Abi::Legacy(lend(shape, dtype, device, start, data)?),
        }))
    }

    /// Shape, type and memory. The memory is given back when its last clone is dropped, or at once on an error.
    pub(crate) fn borrow(self, stream: Option<CudaStream>) -> Result<(Vec<usize>, DType, Frozen)> {
        let (view, owner) = match self.0 {
            Abi::Versioned(managed) => (View::of(&managed)?, managed.into_deleter()),
            Abi::Legacy(managed) => (View::of(&managed)?, managed.into_deleter()),
        };
        let View { shape, dtype, gpu, start, len } = view;
        let owner = Box::new(owner);
        let data = match (gpu, stream) {
            // SAFETY: the struct says that `len` bytes are there, and `from_raw` asked for the rest.
            (None, _) => unsafe { Frozen::foreign(start, len, owner) },
            (Some(index), Some(stream)) => {
                let (gpu, at) = (driver::open(index)?, start.as_ptr() as u64);
                // SAFETY: as above; the maker of the `CudaStream` guarantees that it lives.
                Frozen::lent(unsafe { gpu.lent(at, len, stream, owner) }?)
            }
            (Some(index), None) => return Err(unnamed_stream(Device::Cuda(index), "from_dlpack_on")),
        };
        Ok((shape, dtype, data))
    }
}

impl fmt::Debug for Dlpack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dlpack({:?})", self.abi())
    }
}

fn unnamed_stream(device: Device, call: &'static str) -> Error {
    Error::config(format!("DLPack: a tensor on {device} needs the stream that uses it"))
        .with_hint(format!("call {call}"))
}

fn lend<M: ManagedTensorBase>(
    shape: &[usize],
    dtype: DType,
    device: DLDevice,
    start: *const u8,
    data: Frozen,
) -> Result<Managed<M>> {
    let internal = || Error::new(ErrorKind::Internal, "a tensor's shape does not fit DLPack");
    let prepared = Dynamic::compact(shape).prepare_as::<M>().map_err(|error| internal().with_source(error))?;
    let mut tensor = prepared.initialize(Box::new(data));
    tensor.set_data(start.cast_mut().cast()).set_device(device).set_dtype(to_dlpack(dtype)).set_byte_offset(0);
    // Clones of the tensor may be read at the same time.
    tensor.set_flags(DlpackFlags::READ_ONLY).map_err(|error| internal().with_source(error))?;
    // SAFETY: `data` keeps the values alive and is dropped by the deleter; `Frozen` may be dropped on any thread.
    Ok(unsafe { tensor.finish() })
}

const fn to_dlpack(dtype: DType) -> DLDataType {
    match dtype {
        DType::U8 => DLDataType::U8,
        DType::U16 => DLDataType::U16,
        DType::I16 => DLDataType::I16,
        DType::F16 => DLDataType::F16,
        DType::Bf16 => DLDataType::BF16,
        DType::F32 => DLDataType::F32,
        DType::I64 => DLDataType::I64,
        DType::Bool => DLDataType::BOOL,
        DType::I8 => DLDataType::I8,
        DType::I32 => DLDataType::I32,
        DType::U32 => DLDataType::U32,
        DType::U64 => DLDataType::U64,
        DType::F64 => DLDataType::F64,
    }
}

impl View {
    fn of<M: ManagedTensorBase>(managed: &Managed<M>) -> Result<Self> {
        let tensor = managed.validate().map_err(|error| refused("the description is wrong").with_source(error))?;
        let gpu = match tensor.device() {
            DLDevice { device_type: DLDeviceType::CPU | DLDeviceType::CUDAHOST, .. } => None,
            DLDevice { device_type: DLDeviceType::CUDA, device_id } => {
                Some(u32::try_from(device_id).map_err(|_| refused(format!("there is no cuda:{device_id}")))?)
            }
            DLDevice { device_type: DLDeviceType(kind), .. } => {
                return Err(refused(format!("the memory is of DLPack's device type {kind}"))
                    .with_hint("copy the tensor to the host or to a CUDA device first"));
            }
        };
        let dtype = DType::ALL.into_iter().find(|&dtype| to_dlpack(dtype) == tensor.dtype()).ok_or_else(|| {
            refused(format!("its values are {}", name(tensor.dtype())))
                .with_hint("convert it to a whole or floating-point type of 8 to 64 bits first")
        })?;
        // Not negative: checked above.
        let shape: Vec<usize> = tensor.shape().iter().map(|&axis| axis as usize).collect();
        if tensor.strides().is_some_and(|strides| !is_row_major(&shape, strides)) {
            let what =
                format!("shape {shape:?} with strides {:?} is not row-major", tensor.strides().unwrap_or_default());
            return Err(refused(what).with_hint("make it contiguous first"));
        }
        // Also if an axis is empty: the product of the other axes must not overflow.
        let len = dtype.len_bytes(&shape).filter(|len| *len == tensor.num_bytes());
        let len = len.ok_or_else(|| refused(format!("shape {shape:?} of {dtype} is more than memory can hold")))?;
        let start = if len == 0 {
            // Aligned as our own empty tensors are.
            std::ptr::without_provenance_mut(ALIGN)
        } else {
            let (base, offset) = (tensor.data_ptr().cast::<u8>().cast_mut(), tensor.byte_offset());
            let end = base.addr().checked_add(len).and_then(|end| end.checked_add(usize::try_from(offset).ok()?));
            if base.is_null() || end.is_none() {
                return Err(refused(format!("{len} bytes can't begin {offset} behind {base:?}")));
            }
            base.wrapping_add(offset as usize)
        };
        if !start.addr().is_multiple_of(dtype.size()) {
            return Err(refused(format!("its {dtype} values begin at {start:?}, which is not aligned"))
                .with_hint("copy it to memory of its own first"));
        }
        let start = NonNull::new(start).ok_or_else(|| refused("its values begin at null"))?;
        Ok(Self { shape, dtype, gpu, start, len })
    }
}

fn refused(why: impl fmt::Display) -> Error {
    Error::new(ErrorKind::Unsupported, format!("a DLPack tensor can't be taken: {why}"))
}

/// Whether the values are contiguous, the last axis first. The stride of an axis of length 1 does not matter.
fn is_row_major(shape: &[usize], strides: &[i64]) -> bool {
    if shape.contains(&0) {
        return true;
    }
    let mut expected = 1;
    shape.iter().zip(strides).rev().all(|(&axis, &stride)| {
        let right = axis == 1 || stride == expected;
        expected = expected.saturating_mul(axis as i64);
        right
    })
}

/// The name of a type, in the style of [`DType`].
fn name(DLDataType { code, bits, lanes }: DLDataType) -> String {
    let kind = match code {
        DLDataTypeCode::INT => "i",
        DLDataTypeCode::UINT => "u",
        DLDataTypeCode::FLOAT => "f",
        DLDataTypeCode::BFLOAT => "bf",
        DLDataTypeCode::COMPLEX => "complex ",
        DLDataTypeCode::BOOL => "bool ",
        DLDataTypeCode(other) => return format!("of DLPack's type {other} with {bits} bits"),
    };
    if lanes == 1 { format!("{kind}{bits}") } else { format!("{kind}{bits} in vectors of {lanes}") }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        thread,
    };

    use super::*;
    use crate::tensor::Tensor;
    use infeed_core::rows::{Pool, Rows};

    /// `dlpack.h` written again, so that the test would find a mistake of the crate.
    #[repr(C)]
    struct CTensor {
        data: *mut u8,
        device_type: i32,
        device_id: i32,
        ndim: i32,
        code: u8,
        bits: u8,
        lanes: u16,
        shape: *const i64,
        strides: *const i64,
        byte_offset: u64,
    }

    #[repr(C)]
    struct CVersioned {
        major: u32,
        minor: u32,
        context: *mut c_void,
        deleter: Option<unsafe extern "C" fn(*mut Self)>,
        flags: u64,
        tensor: CTensor,
    }

    #[repr(C)]
    struct CLegacy {
        tensor: CTensor,
        context: *mut c_void,
        deleter: Option<unsafe extern "C" fn(*mut Self)>,
    }

    /// A consumer that uses only the header.
    struct Consumer {
        raw: *mut c_void,
        abi: DlpackAbi,
    }

    // SAFETY: DLPack lets deleters run on any thread.
    unsafe impl Send for Consumer {}

    impl Consumer {
        fn new(dlpack: Dlpack) -> Self {
            Self { abi: dlpack.abi(), raw: dlpack.into_raw() }
        }

        fn tensor(&self) -> &CTensor {
            match self.abi {
                // SAFETY: it is ours until the deleter was called.
                DlpackAbi::Versioned => &unsafe { &*self.raw.cast::<CVersioned>() }.tensor,
                // SAFETY: as above.
                DlpackAbi::Legacy => &unsafe { &*self.raw.cast::<CLegacy>() }.tensor,
            }
        }

        fn shape_and_strides(&self) -> (&[i64], &[i64]) {
            let CTensor { ndim, shape, strides, .. } = *self.tensor();
            // SAFETY: both have as many numbers as the tensor has axes.
            let shape = unsafe { std::slice::from_raw_parts(shape, ndim as usize) };
            // SAFETY: as above.
            (shape, unsafe { std::slice::from_raw_parts(strides, ndim as usize) })
        }

        fn bytes(&self, len: usize) -> &[u8] {
            // SAFETY: the test knows the length.
            unsafe { std::slice::from_raw_parts(self.tensor().data, len) }
        }
    }

    impl Drop for Consumer {
        fn drop(&mut self) {
            match self.abi {
                DlpackAbi::Versioned => {
                    let raw = self.raw.cast::<CVersioned>();
                    // SAFETY: alive until here.
                    let deleter = unsafe { &*raw }.deleter.unwrap();
                    // SAFETY: called once, here.
                    unsafe { deleter(raw) };
                }
                DlpackAbi::Legacy => {
                    let raw = self.raw.cast::<CLegacy>();
                    // SAFETY: alive until here.
                    let deleter = unsafe { &*raw }.deleter.unwrap();
                    // SAFETY: called once, here.
                    unsafe { deleter(raw) };
                }
            }
        }
    }

    /// A tensor of a foreign library; counts how often it was given back.
    struct Lent {
        managed: CVersioned,
        data: Vec<f32>,
        shape: Vec<i64>,
        strides: Vec<i64>,
        returned: Arc<AtomicUsize>,
    }

    unsafe extern "C" fn take_back(managed: *mut CVersioned) {
        // SAFETY: alive until here.
        let lent = unsafe { &*managed }.context.cast::<Lent>();
        // SAFETY: made by `Box::into_raw` in `lend`.
        let lent = unsafe { Box::from_raw(lent) };
        lent.returned.fetch_add(1, Ordering::SeqCst);
    }

    /// 24 numbers as 2 x 3 x 4, changed by `change`.
    fn foreign(change: impl FnOnce(&mut Lent)) -> (Result<Dlpack>, Arc<AtomicUsize>) {
        let returned = Arc::new(AtomicUsize::new(0));
        let tensor = CTensor {
            data: std::ptr::null_mut(),
            device_type: 1,
            device_id: 0,
            ndim: 3,
            code: 2,
            bits: 32,
            lanes: 1,
            shape: std::ptr::null(),
            strides: std::ptr::null(),
            byte_offset: 0,
        };
        let context = std::ptr::null_mut();
        let mut lent = Box::new(Lent {
            managed: CVersioned { major: 1, minor: 0, context, deleter: Some(take_back), flags: 0, tensor },
            data: (0..24u8).map(f32::from).collect(),
            shape: vec![2, 3, 4],
            strides: vec![12, 4, 1],
            returned: Arc::clone(&returned),
        });
        let start = lent.data.as_mut_ptr().cast();
        lent.managed.tensor =
            CTensor { data: start, shape: lent.shape.as_ptr(), strides: lent.strides.as_ptr(), ..lent.managed.tensor };
        change(&mut lent);
        let lent = Box::into_raw(lent);
        // SAFETY: alive.
        let managed = unsafe { &raw mut (*lent).managed };
        // SAFETY: alive.
        unsafe { (*managed).context = lent.cast() };
        // SAFETY: a managed tensor without another owner.
        (unsafe { Dlpack::from_raw(DlpackAbi::Versioned, managed.cast()) }, returned)
    }

    fn import(change: impl FnOnce(&mut Lent)) -> (Result<Tensor>, Arc<AtomicUsize>) {
        let (dlpack, returned) = foreign(change);
        (dlpack.and_then(Tensor::from_dlpack), returned)
    }

    const ABIS: [DlpackAbi; 2] = [DlpackAbi::Versioned, DlpackAbi::Legacy];

    /// Kind and bits, as the header numbers them.
    const TYPES: [(DType, u8, u8); 13] = [
        (DType::U8, 1, 8),
        (DType::U16, 1, 16),
        (DType::F16, 2, 16),
        (DType::Bf16, 4, 16),
        (DType::F32, 2, 32),
        (DType::I64, 0, 64),
        (DType::I16, 0, 16),
        (DType::Bool, 6, 8),
        (DType::I8, 0, 8),
        (DType::I32, 0, 32),
        (DType::U32, 1, 32),
        (DType::U64, 1, 64),
        (DType::F64, 2, 64),
    ];

    #[test]
    fn a_consumer_sees_each_type_in_place_and_the_pool_gets_the_memory_back() {
        for ((dtype, code, bits), abi) in TYPES.into_iter().flat_map(|of| ABIS.map(|abi| (of, abi))) {
            let len = 2 * 3 * 5 * dtype.size();
            let pool = Pool::new(2, len / 2, 1).unwrap();
            let mut rows = pool.take(2, len / 2);
            rows.bytes_mut().iter_mut().enumerate().for_each(|(n, byte)| *byte = n as u8);
            let start = rows.bytes().as_ptr();
            let tensor = Tensor::new(vec![2, 3, 5], dtype, rows.freeze());
            let consumer = Consumer::new(tensor.to_dlpack(abi).unwrap());
            drop(tensor);
            assert_eq!(pool.lent(), 1, "{dtype}: the consumer still has it");
            let seen = consumer.tensor();
            assert_eq!(seen.data.cast_const(), start);
            assert_eq!((seen.device_type, seen.device_id, seen.byte_offset), (1, 0, 0));
            assert_eq!((seen.code, seen.bits, seen.lanes), (code, bits, 1), "{dtype}");
            assert_eq!(consumer.shape_and_strides(), (&[2, 3, 5][..], &[15, 5, 1][..]));
            assert!(consumer.bytes(len).iter().enumerate().all(|(n, &byte)| byte == n as u8));
            thread::spawn(move || drop(consumer)).join().unwrap();
            assert_eq!((pool.lent(), pool.idle_bytes()), (0, len), "{dtype}: back in the pool");
        }
    }

    #[test]
    fn the_versioned_kind_says_its_version_and_that_nobody_may_write() {
        let tensor = Tensor::new(vec![4], DType::I64, Rows::zeroed(4, 8).unwrap().freeze());
        let consumer = Consumer::new(tensor.to_dlpack(DlpackAbi::Versioned).unwrap());
        // SAFETY: alive, and of this kind.
        let managed = unsafe { &*consumer.raw.cast::<CVersioned>() };
        assert_eq!((managed.major, managed.flags), (1, 1));
    }

    #[test]
    fn a_tensor_comes_back_as_it_was_lent() {
        for ((dtype, ..), abi) in TYPES.into_iter().flat_map(|of| ABIS.map(|abi| (of, abi))) {
            let pool = Pool::new(3, 2 * dtype.size(), 1).unwrap();
            let mut rows = pool.take(3, 2 * dtype.size());
            rows.bytes_mut().fill(7);
            let tensor = Tensor::new(vec![3, 2], dtype, rows.freeze());
            let raw = tensor.to_dlpack(abi).unwrap().into_raw();
            // SAFETY: just made, without another owner.
            let back = Tensor::from_dlpack(unsafe { Dlpack::from_raw(abi, raw) }.unwrap()).unwrap();
            assert_eq!((back.shape(), back.dtype(), back.device()), (&[3, 2][..], dtype, Device::Cpu));
            assert_eq!(back.bytes(), tensor.bytes());
            assert_eq!(back.bytes().unwrap().as_ptr(), tensor.bytes().unwrap().as_ptr());
            drop(tensor);
            let clone = back.clone();
            drop(back);
            assert_eq!((pool.lent(), clone.bytes().unwrap()[0]), (1, 7));
            drop(clone);
            assert_eq!(pool.lent(), 0);
        }
    }

    #[test]
    fn what_is_lent_and_not_taken_comes_back() {
        let pool = Pool::new(1, 64, 1).unwrap();
        for abi in ABIS {
            let tensor = Tensor::new(vec![64], DType::U8, pool.take(1, 64).freeze());
            let dlpack = tensor.to_dlpack(abi).unwrap();
            drop(tensor);
            assert_eq!(pool.lent(), 1);
            drop(dlpack);
            assert_eq!(pool.lent(), 0);
        }
    }

    #[test]
    fn an_empty_tensor_is_lent_as_null() {
        let tensor = Tensor::new(vec![0, 3], DType::F32, Rows::zeroed(0, 12).unwrap().freeze());
        assert!(Consumer::new(tensor.to_dlpack(DlpackAbi::Versioned).unwrap()).tensor().data.is_null());
    }

    #[test]
    fn foreign_memory_is_read_in_place_and_given_back_once_with_the_last_clone() {
        let mut start = std::ptr::null();
        let (tensor, returned) = import(|lent| start = lent.data.as_ptr());
        let tensor = tensor.unwrap();
        assert_eq!((tensor.shape(), tensor.dtype()), (&[2, 3, 4][..], DType::F32));
        assert_eq!(tensor.as_slice::<f32>().unwrap().as_ptr(), start);
        assert_eq!(tensor.to_host().unwrap().as_slice::<f32>().unwrap()[23], 23.0);
        let (clone, lent) = (tensor.clone(), tensor.to_dlpack(DlpackAbi::Versioned).unwrap());
        drop(tensor);
        drop(clone);
        assert_eq!(returned.load(Ordering::SeqCst), 0);
        thread::spawn(move || drop(lent)).join().unwrap();
        assert_eq!(returned.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn what_can_be_said_is_taken() {
        // An offset, memory that only the GPU's driver calls special, strides that no value depends on.
        let (tensor, _) = import(|lent| {
            (lent.shape[0], lent.managed.tensor.byte_offset) = (1, 48);
            (lent.strides[0], lent.managed.tensor.device_type) = (77, 3);
        });
        assert_eq!(tensor.unwrap().as_slice::<f32>().unwrap()[0], 12.0);
        let (tensor, _) = import(|lent| lent.managed.tensor.strides = std::ptr::null());
        assert_eq!(tensor.unwrap().len(), 24);
        let (tensor, _) = import(|lent| (lent.shape[1], lent.managed.tensor.data) = (0, std::ptr::null_mut()));
        assert_eq!(tensor.unwrap().as_slice::<f32>(), Some(&[][..]));
        let (scalar, _) = import(|lent| lent.managed.tensor.ndim = 0);
        let scalar = scalar.unwrap();
        assert_eq!((scalar.as_slice::<f32>(), scalar.row_bytes()), (Some(&[0.0][..]), 4));
    }

    #[test]
    fn what_cannot_be_said_is_refused_in_words_and_given_back() {
        type Case = (fn(&mut Lent), &'static str);
        let cases: [Case; 16] = [
            (|lent| lent.managed.tensor.bits = 128, "its values are f128; convert it"),
            (|lent| (lent.managed.tensor.code, lent.managed.tensor.bits) = (5, 64), "its values are complex 64"),
            (|lent| lent.managed.tensor.lanes = 4, "f32 in vectors of 4"),
            (|lent| lent.managed.tensor.code = 12, "DLPack's type 12 with 32 bits"),
            (|lent| lent.strides.swap(1, 2), "[12, 1, 4] is not row-major; make it contiguous"),
            (|lent| lent.strides[0] = 0, "[0, 4, 1] is not row-major"),
            (|lent| lent.managed.tensor.device_type = 10, "device type 10; copy the tensor to the host"),
            (|lent| lent.managed.tensor.data = std::ptr::null_mut(), "96 bytes can't begin 0 behind 0x0"),
            (|lent| lent.managed.tensor.byte_offset = u64::MAX, "can't begin 18446744073709551615 behind"),
            (|lent| lent.managed.tensor.byte_offset = 2, "which is not aligned"),
            (|lent| lent.shape[1] = -3, "is negative: -3"),
            (|lent| (lent.shape[0], lent.shape[1]) = (i64::MAX, i64::MAX), "overflow"),
            (
                |lent| {
                    (lent.shape[0], lent.shape[1], lent.managed.tensor.strides) = (1 << 40, 1 << 19, std::ptr::null())
                },
                "number of bytes overflows",
            ),
            (
                |lent| (lent.shape[0], lent.shape[1], lent.shape[2]) = (0, i64::MAX, i64::MAX),
                "more than memory can hold",
            ),
            (|lent| lent.managed.major = 2, "expected 1, got 2"),
            (|lent| lent.managed.tensor.device_type = 2, "cuda:0 needs the stream that uses it; call from_dlpack_on"),
        ];
        for (change, words) in cases {
            let (tensor, returned) = import(change);
            let error = format!("{:#}", tensor.unwrap_err());
            assert!(error.contains(words), "{error}");
            assert_eq!(returned.load(Ordering::SeqCst), 1, "{error}");
        }
        // SAFETY: null is allowed.
        assert!(unsafe { Dlpack::from_raw(DlpackAbi::Legacy, std::ptr::null_mut()) }.is_err());
    }
}
