//! infeed's kernels, loaded on a GPU.

use std::{fmt, ptr, sync::Arc};

use cudarc::driver::sys::{CUfunction, CUmodule};

use super::context::Context;
use crate::{
    error::{Error, ErrorKind, Result},
    sys::kernels::device,
    types::DType,
};

/// infeed's kernels on one GPU. Loading compiles them for it once (the driver keeps the result on disk).
pub struct Kernels {
    context: Context,
    module: CUmodule,
    resample: Vec<(DType, DType, CUfunction)>,
}

// SAFETY: modules and functions belong to the context; any thread may launch them.
unsafe impl Send for Kernels {}
// SAFETY: as above.
unsafe impl Sync for Kernels {}

impl Kernels {
    /// # Errors
    /// `Device`: the driver is too old for the kernels, or the GPU is (compute capability below 7.0).
    pub fn load(context: &Context) -> Result<Arc<Self>> {
        let bound = context.bind()?;
        let source = std::ffi::CString::new(device::PTX)
            .map_err(|e| Error::new(ErrorKind::Internal, "the kernels are no text").with_source(e))?;
        let mut module: CUmodule = ptr::null_mut();
        // SAFETY: `module` outlives the call; the source ends with a zero.
        let code = unsafe { (context.driver().calls.cuModuleLoadData)(&raw mut module, source.as_ptr().cast()) };
        context.check("cuModuleLoadData", code)?;
        // From here on dropping unloads the module.
        let mut kernels = Self { context: context.clone(), module, resample: Vec::new() };
        for src in [DType::U8, DType::U16, DType::F32] {
            for dst in [DType::U8, DType::F16, DType::Bf16, DType::F32] {
                let Some(name) = device::kernel_name(src, dst) else { continue };
                let mut function: CUfunction = ptr::null_mut();
                // SAFETY: `function` outlives the call; the module is loaded; the name ends with a zero.
                let code = unsafe {
                    (context.driver().calls.cuModuleGetFunction)(&raw mut function, kernels.module, name.as_ptr())
                };
                context.check("cuModuleGetFunction", code)?;
                kernels.resample.push((src, dst, function));
            }
        }
        drop(bound);
        Ok(Arc::new(kernels))
    }

    /// The GPU they are on.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    pub(super) fn resample(&self, src: DType, dst: DType) -> Option<CUfunction> {
        self.resample.iter().find(|(a, b, _)| (*a, *b) == (src, dst)).map(|found| found.2)
    }
}

impl Drop for Kernels {
    fn drop(&mut self) {
        let Ok(_bound) = self.context.bind() else { return };
        // SAFETY: loaded in `load`, unloaded once; upload streams hold the kernels until they are idle.
        let _ = unsafe { (self.context.driver().calls.cuModuleUnload)(self.module) };
    }
}

impl fmt::Debug for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kernels on {:?}", self.context)
    }
}
