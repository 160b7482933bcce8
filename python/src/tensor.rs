//! Values of a batch, shared with other libraries without a copy. `infeed/_tensor.py` calls those libraries.

use std::{ffi::c_void, ptr};

use engine::{
    DType, Device,
    device::{CudaStream, Dlpack, DlpackAbi},
};
use infeed as engine;
use pyo3::{
    exceptions::{PyBufferError, PyTypeError},
    ffi,
    prelude::*,
    types::PyTuple,
};

use crate::errors;

/// Device numbers of DLPack's `DLDeviceType`.
const CPU: i32 = 1;
const CUDA: i32 = 2;

/// Byte offset of the flags in a `DLManagedTensorVersioned` (DLPack 1.0), after `version`, `manager_ctx` and `deleter`.
/// Bit 0 marks the values as read-only.
const FLAGS: usize = 8 + 2 * size_of::<*const c_void>();
const READ_ONLY: u64 = 1;

/// The values of one field of a batch. The memory returns to the loader once nothing uses it any more: neither this
/// object, nor any array or tensor made from it. It may outlive loader and iterator.
#[pyclass(frozen, module = "infeed")]
#[derive(Debug)]
pub(crate) struct Tensor {
    values: engine::Tensor,
    /// Only this object, and the arrays made from it, use the memory.
    writable: bool,
}

impl Tensor {
    pub(crate) fn new(values: engine::Tensor) -> Self {
        match values.try_into_mut() {
            Ok(sole) => Self { values: sole.freeze(), writable: true },
            Err(values) => Self { values, writable: false },
        }
    }

    pub(crate) fn values(&self) -> &engine::Tensor {
        &self.values
    }

    fn address(&self) -> (i32, i32) {
        match self.values.device() {
            Device::Cuda(index) => (CUDA, i32::try_from(index).unwrap_or(i32::MAX)),
            _ => (CPU, 0),
        }
    }

    fn lend(&self, py: Python<'_>, abi: DlpackAbi, stream: CudaStream) -> PyResult<Py<PyAny>> {
        let managed = self.values.to_dlpack_on(abi, stream).map_err(|error| errors::raise(py, &error))?.into_raw();
        if self.writable && abi == DlpackAbi::Versioned {
            // SAFETY: within a DLManagedTensorVersioned.
            let flags = unsafe { managed.byte_add(FLAGS) }.cast::<u64>();
            // SAFETY: no other code has this pointer yet. Writing to the values is sound: `new` found that the engine
            // has no other reference to them, and all other users got them from this object.
            unsafe { *flags &= !READ_ONLY };
        }
        // SAFETY: the capsule owns `managed` until a consumer renames the capsule; `unused` checks the name.
        let capsule = unsafe { ffi::PyCapsule_New(managed, abi.capsule_name().as_ptr(), Some(unused)) };
        // SAFETY: a reference of our own, or null with an exception set.
        Ok(unsafe { Bound::from_owned_ptr_or_err(py, capsule) }?.unbind())
    }
}

/// Frees the contents of a capsule that no consumer took.
unsafe extern "C" fn unused(capsule: *mut ffi::PyObject) {
    for abi in [DlpackAbi::Versioned, DlpackAbi::Legacy] {
        let name = abi.capsule_name().as_ptr();
        // SAFETY: Python calls this destructor with the capsule, while this thread is attached.
        if unsafe { ffi::PyCapsule_IsValid(capsule, name) } == 1 {
            // SAFETY: it is valid under this name.
            let managed = unsafe { ffi::PyCapsule_GetPointer(capsule, name) };
            // SAFETY: a capsule with an unchanged name still owns what `lend` put into it.
            drop(unsafe { Dlpack::from_raw(abi, managed) });
        }
    }
}

/// A function of numpy.
pub(crate) fn numpy_function<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("numpy")?.getattr(name)
}

/// torch's name of a type, which is numpy's and JAX's as well.
pub(crate) fn name(dtype: DType) -> &'static str {
    match dtype {
        DType::U8 => "uint8",
        DType::U16 => "uint16",
        DType::I16 => "int16",
        DType::F16 => "float16",
        DType::Bf16 => "bfloat16",
        DType::F32 => "float32",
        DType::F64 => "float64",
        DType::I8 => "int8",
        DType::U32 => "uint32",
        DType::I32 => "int32",
        DType::U64 => "uint64",
        DType::I64 => "int64",
        DType::Bool => "bool",
    }
}

/// The type of a name; `None` for one that the engine does not have.
pub(crate) fn dtype(named: &str) -> Option<DType> {
    use DType::{Bool, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
    [U8, U16, I16, F16, F32, F64, I8, U32, I32, U64, I64, Bool].into_iter().find(|dtype| name(*dtype) == named)
}

#[pymethods]
impl Tensor {
    /// Sizes of the axes; the first axis counts the rows of the batch.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.values.shape())
    }

    /// Element type by the name of torch and numpy: float32, uint8, int64, …
    #[getter]
    fn dtype(&self) -> &'static str {
        name(self.values.dtype())
    }

    /// The device of the memory: cpu, cuda:0, …
    #[getter]
    fn device(&self) -> String {
        self.values.device().to_string()
    }

    /// Number of rows.
    fn __len__(&self) -> PyResult<usize> {
        let rows = self.values.shape().first();
        rows.copied().ok_or_else(|| PyTypeError::new_err("a tensor without axes has no length"))
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        self.address()
    }

    /// A DLPack capsule of the values, without a copy. `stream`: the CUDA stream that will read them, as in the array
    /// API.
    ///
    /// Raises BufferError if a copy or another device than the tensor's is requested.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__(
        &self,
        py: Python<'_>,
        stream: Option<isize>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Py<PyAny>> {
        if copy == Some(true) {
            return Err(PyBufferError::new_err("copy=True: the values are shared without a copy; copy the result"));
        }
        if dl_device.is_some_and(|wanted| wanted != self.address()) {
            let here = self.device();
            return Err(PyBufferError::new_err(format!(
                "the values are on {here}; request them there, then move the result"
            )));
        }
        let abi =
            if max_version.is_some_and(|(major, _)| major >= 1) { DlpackAbi::Versioned } else { DlpackAbi::Legacy };
        let stream = match stream {
            Some(-1) if self.address().0 == CUDA => {
                return Err(PyBufferError::new_err(
                    "stream=-1: name the stream that will read, or the memory could be reused too early",
                ));
            }
            Some(handle) if handle > 0 => {
                // SAFETY: the consumer guarantees that the handle is its stream, and that the stream lives while it
                // reads.
                unsafe { CudaStream::from_raw(ptr::without_provenance_mut::<c_void>(handle.unsigned_abs())) }
            }
            _ => CudaStream::DEFAULT,
        };
        self.lend(py, abi, stream)
    }

    fn __repr__(&self) -> String {
        let axes: Vec<String> = self.values.shape().iter().map(usize::to_string).collect();
        let comma = if axes.len() == 1 { "," } else { "" };
        format!("<infeed.Tensor ({}{comma}) {} on {}>", axes.join(", "), self.dtype(), self.values.device())
    }
}
