//! Values of a batch, lent to other libraries without a copy.

use std::{ffi::c_void, ptr};

use engine::{
    DType, Device,
    device::{CudaStream, Dlpack, DlpackAbi},
};
use infeed as engine;
use pyo3::{
    exceptions::{PyBufferError, PyImportError, PyModuleNotFoundError, PyTypeError, PyValueError},
    ffi,
    prelude::*,
    sync::PyOnceLock,
    types::PyTuple,
};

use crate::errors;

/// Numbers of a DLPack device, of `DLDeviceType`.
const CPU: i32 = 1;
const CUDA: i32 = 2;

/// Behind `version`, `manager_ctx` and `deleter` of a `DLManagedTensorVersioned` (DLPack 1.0): its flags, of which bit 0
/// says that the values are only to be read.
const FLAGS: usize = 8 + 2 * size_of::<*const c_void>();
const READ_ONLY: u64 = 1;

/// Values of one field of a batch. Their memory goes back to the loader with the last of all that share it, and may
/// outlive loader and iterator.
#[pyclass(frozen, module = "infeed")]
#[derive(Debug)]
pub(crate) struct Tensor {
    values: engine::Tensor,
    /// Nobody but this object, and what it was lent to, has the memory.
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
            // SAFETY: nobody else has seen it yet. Its values may be written: the engine has given them away, as `new`
            // found, and all other holders had them from this object.
            unsafe { *flags &= !READ_ONLY };
        }
        // SAFETY: the capsule owns it until a consumer renames it; `unused` looks at the name.
        let capsule = unsafe { ffi::PyCapsule_New(managed, abi.capsule_name().as_ptr(), Some(unused)) };
        // SAFETY: a reference of our own, or null with an exception set.
        Ok(unsafe { Bound::from_owned_ptr_or_err(py, capsule) }?.unbind())
    }
}

/// Frees a capsule that nobody took.
unsafe extern "C" fn unused(capsule: *mut ffi::PyObject) {
    for abi in [DlpackAbi::Versioned, DlpackAbi::Legacy] {
        let name = abi.capsule_name().as_ptr();
        // SAFETY: called with a capsule, attached.
        if unsafe { ffi::PyCapsule_IsValid(capsule, name) } == 1 {
            // SAFETY: it is valid under this name.
            let managed = unsafe { ffi::PyCapsule_GetPointer(capsule, name) };
            // SAFETY: one whose name nobody changed still owns what `lend` put into it.
            drop(unsafe { Dlpack::from_raw(abi, managed) });
        }
    }
}

/// A function of another library, imported when it is first asked for.
fn imported<'py>(
    py: Python<'py>,
    cell: &'static PyOnceLock<Py<PyAny>>,
    (module, function): (&str, &str),
    package: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let import = || -> PyResult<Py<PyAny>> {
        match py.import(module).and_then(|module| module.getattr(function)) {
            Ok(found) => Ok(found.unbind()),
            Err(error) if error.is_instance_of::<PyModuleNotFoundError>(py) => {
                let words = format!("{package} is not installed here: pip install {package}");
                let missing = PyImportError::new_err(words);
                missing.set_cause(py, Some(error));
                Err(missing)
            }
            Err(error) => Err(error),
        }
    };
    Ok(cell.get_or_try_init(py, import)?.bind(py).clone())
}

/// A function of numpy's.
pub(crate) fn numpy_function<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    static NUMPY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    // The module is asked for as its function is: so its absence has the same words.
    imported(py, &NUMPY, ("numpy", "ndarray"), "numpy")?;
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
    /// Sizes of the axes; the first is the batch.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.values.shape())
    }

    /// Element type, by torch's and numpy's name: float32, uint8, int64, …
    #[getter]
    fn dtype(&self) -> &'static str {
        name(self.values.dtype())
    }

    /// Where the values lie: cpu, cuda:0, …
    #[getter]
    fn device(&self) -> String {
        self.values.device().to_string()
    }

    /// Rows.
    fn __len__(&self) -> PyResult<usize> {
        let rows = self.values.shape().first();
        rows.copied().ok_or_else(|| PyTypeError::new_err("a tensor without axes has no length"))
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        self.address()
    }

    /// Lends the values by DLPack, without a copy. `stream`: who will read them on a GPU, as the array API has it.
    ///
    /// Raises BufferError for a copy and for another device than the tensor's.
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
            return Err(PyBufferError::new_err("copy=True: what is lent is the memory itself; copy the result"));
        }
        if dl_device.is_some_and(|wanted| wanted != self.address()) {
            let here = self.device();
            return Err(PyBufferError::new_err(format!(
                "the values lie on {here}; take them there, then move the result"
            )));
        }
        let abi =
            if max_version.is_some_and(|(major, _)| major >= 1) { DlpackAbi::Versioned } else { DlpackAbi::Legacy };
        let stream = match stream {
            Some(-1) if self.address().0 == CUDA => {
                return Err(PyBufferError::new_err(
                    "stream=-1: name the stream that will read, so that memory is not reused before",
                ));
            }
            Some(handle) if handle > 0 => {
                // SAFETY: the consumer's promise: a stream of its own that lives while it reads.
                unsafe { CudaStream::from_raw(ptr::without_provenance_mut::<c_void>(handle.unsigned_abs())) }
            }
            _ => CudaStream::DEFAULT,
        };
        self.lend(py, abi, stream)
    }

    /// A torch tensor of the same memory. It may be written to.
    ///
    /// Raises ImportError where torch is not installed.
    fn torch<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        static FROM: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let (py, this) = (slf.py(), slf.get());
        let from = imported(py, &FROM, ("torch.utils.dlpack", "from_dlpack"), "torch")?;
        match this.values.device() {
            // The capsule itself, in the form that every torch knows: of an object it asks more, which costs as much again.
            Device::Cpu => from.call1((this.lend(py, DlpackAbi::Legacy, CudaStream::DEFAULT)?,)),
            // It names the stream on which it will read.
            _ => from.call1((slf,)),
        }
    }

    /// A numpy array of the same memory.
    ///
    /// Raises ImportError where numpy is not installed, TypeError for bfloat16 (which numpy has not) and for what lies on
    /// a GPU.
    fn numpy<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        static FROM: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let (py, this) = (slf.py(), slf.get());
        if this.address().0 != CPU {
            let words = format!("the values lie on {}, and numpy's in host memory: .torch().cpu()", this.device());
            return Err(PyTypeError::new_err(words));
        }
        if this.values.dtype() == DType::Bf16 {
            return Err(PyTypeError::new_err("numpy has no bfloat16: take .torch() or .jax(), or dtype=\"float32\""));
        }
        imported(py, &FROM, ("numpy", "from_dlpack"), "numpy")?.call1((slf,))
    }

    /// A JAX array of the same memory, where JAX takes it as it is.
    ///
    /// Raises ImportError where JAX is not installed.
    fn jax<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        static FROM: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        imported(slf.py(), &FROM, ("jax.dlpack", "from_dlpack"), "jax")?.call1((slf,))
    }

    /// As numpy asks: the same memory, or a copy where another type or a copy is asked for.
    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        slf: &Bound<'py, Self>,
        dtype: Option<&Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let array = Self::numpy(slf)?;
        let same = match dtype {
            Some(dtype) => array.getattr("dtype")?.eq(dtype)?,
            None => true,
        };
        match (same, copy) {
            (true, Some(true)) => array.call_method0("copy"),
            (true, _) => Ok(array),
            (false, Some(false)) => {
                let words = format!("{} as another type is a copy, which copy=False forbids", slf.get().dtype());
                Err(PyValueError::new_err(words))
            }
            (false, _) => array.call_method1("astype", (dtype,)),
        }
    }

    fn __repr__(&self) -> String {
        let axes: Vec<String> = self.values.shape().iter().map(usize::to_string).collect();
        let comma = if axes.len() == 1 { "," } else { "" };
        format!("<infeed.Tensor ({}{comma}) {} on {}>", axes.join(", "), self.dtype(), self.values.device())
    }
}
