//! infeed's kernels, loaded on a GPU.

use std::{
    ffi::{CStr, CString},
    fmt, ptr,
    sync::Arc,
};

use cudarc::driver::sys::{CUfunction, CUmodule};

use super::context::Context;
use crate::{
    error::{Error, ErrorKind, Result},
    sys::kernels::{
        device,
        picture::{self, RowKernels},
    },
    types::DType,
};

/// infeed's kernels on one GPU. Loading compiles them for it once (the driver keeps the result on disk).
pub struct Kernels {
    context: Context,
    modules: Vec<CUmodule>,
    resample: Vec<(DType, DType, CUfunction)>,
    /// For bytes and for f32.
    pictures: [CUfunction; 2],
    rows: Vec<(DType, RowFunctions)>,
}

/// What is done to finished rows of a type.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowFunctions {
    pub(super) fill: CUfunction,
    pub(super) roll: CUfunction,
    pub(super) swap: CUfunction,
}

const STORED: [DType; 4] = [DType::U8, DType::F16, DType::Bf16, DType::F32];

// SAFETY: modules and functions belong to the context; any thread may launch them.
unsafe impl Send for Kernels {}
// SAFETY: as above.
unsafe impl Sync for Kernels {}

impl Kernels {
    /// # Errors
    /// `Device`: the driver is too old for the kernels, or the GPU is (compute capability below 7.0).
    pub fn load(context: &Context) -> Result<Arc<Self>> {
        let bound = context.bind()?;
        // From here on dropping unloads the modules.
        let mut kernels = Self {
            context: context.clone(),
            modules: Vec::new(),
            resample: Vec::new(),
            pictures: [ptr::null_mut(); 2],
            rows: Vec::new(),
        };
        let module = kernels.module(device::PTX)?;
        for src in [DType::U8, DType::U16, DType::F32] {
            for dst in STORED {
                let Some(name) = device::kernel_name(src, dst) else { continue };
                kernels.resample.push((src, dst, kernels.function(module, name)?));
            }
        }
        let module = kernels.module(picture::PICTURE_PTX)?;
        for float in [false, true] {
            kernels.pictures[usize::from(float)] = kernels.function(module, picture::picture_kernel(float))?;
        }
        for dtype in STORED {
            let Some(RowKernels { fill, roll, swap }) = picture::row_kernels(dtype) else { continue };
            let of = |name| kernels.function(module, name);
            let functions = RowFunctions { fill: of(fill)?, roll: of(roll)?, swap: of(swap)? };
            kernels.rows.push((dtype, functions));
        }
        drop(bound);
        Ok(Arc::new(kernels))
    }

    fn module(&mut self, ptx: &str) -> Result<CUmodule> {
        let source =
            CString::new(ptx).map_err(|e| Error::new(ErrorKind::Internal, "the kernels are no text").with_source(e))?;
        let mut module: CUmodule = ptr::null_mut();
        // SAFETY: `module` outlives the call; the source ends with a zero. `load` has bound the context.
        let code = unsafe { (self.context.driver().calls.cuModuleLoadData)(&raw mut module, source.as_ptr().cast()) };
        self.context.check("cuModuleLoadData", code)?;
        self.modules.push(module);
        Ok(module)
    }

    fn function(&self, module: CUmodule, name: &CStr) -> Result<CUfunction> {
        let mut function: CUfunction = ptr::null_mut();
        // SAFETY: `function` outlives the call; the module is loaded; the name ends with a zero.
        let code =
            unsafe { (self.context.driver().calls.cuModuleGetFunction)(&raw mut function, module, name.as_ptr()) };
        self.context.check("cuModuleGetFunction", code)?;
        Ok(function)
    }

    /// The GPU they are on.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    pub(super) fn resample(&self, src: DType, dst: DType) -> Option<CUfunction> {
        self.resample.iter().find(|(a, b, _)| (*a, *b) == (src, dst)).map(|found| found.2)
    }

    pub(super) const fn picture(&self, float: bool) -> CUfunction {
        self.pictures[float as usize]
    }

    pub(super) fn rows(&self, dtype: DType) -> Option<RowFunctions> {
        self.rows.iter().find(|(of, _)| *of == dtype).map(|found| found.1)
    }
}

impl Drop for Kernels {
    fn drop(&mut self) {
        let Ok(_bound) = self.context.bind() else { return };
        for module in self.modules.drain(..) {
            // SAFETY: loaded in `load`, unloaded once; upload streams hold the kernels until they are idle.
            let _ = unsafe { (self.context.driver().calls.cuModuleUnload)(module) };
        }
    }
}

impl fmt::Debug for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kernels on {:?}", self.context)
    }
}
