//! infeed's kernels, loaded on a GPU.

use std::{
    ffi::{CStr, CString, c_uint, c_void},
    fmt, io, ptr,
    sync::{Arc, Mutex, OnceLock, PoisonError, Weak},
};

use cudarc::driver::sys::{CUfunction, CUjit_option, CUmodule};
use infeed_core::{
    error::{Error, ErrorKind, Result},
    types::DType,
};
use infeed_pixels::kernels::{
    device,
    picture::{self, RowKernels},
};

use super::{
    colour::PLANES_TO_RGB,
    context::Context,
    ptx::{COLOUR_PTX, PICTURE_PTX, RESAMPLE_PTX},
};

/// infeed's kernels on one GPU, shared by all loaders of the process that use it.
///
/// Loading compiles them for the GPU, which takes one core a few seconds. The driver caches the result on disk if it
/// can.
pub struct Kernels {
    resample: Vec<(DType, DType, CUfunction)>,
    /// Loaded when first needed: compiling takes more than a second if the driver's cache is empty.
    pictures: OnceLock<Result<PictureKernels>>,
    /// For the planes that nvJPEG makes. Loaded when first needed.
    colour: OnceLock<Result<(CUfunction, Module)>>,
    // Unloaded last.
    module: Module,
}

/// The kernels for pictures between two resamples, and for finished rows.
#[derive(Debug)]
pub(super) struct PictureKernels {
    /// For pictures of bytes, and of f32.
    steps: [CUfunction; 2],
    rows: Vec<(DType, RowFunctions)>,
    _module: Module,
}

/// A loaded module.
struct Module {
    context: Context,
    raw: CUmodule,
}

/// The kernels for finished rows of one type.
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
    /// Returns the kernels that are already loaded on this GPU, or loads them. They are unloaded with the last handle.
    ///
    /// # Errors
    /// `Device`: the driver or the GPU (compute capability below 7.0) is too old for the kernels. The source is the
    /// output of the driver's compiler.
    pub fn load(context: &Context) -> Result<Arc<Self>> {
        static LOADED: Mutex<Vec<Weak<Kernels>>> = Mutex::new(Vec::new());
        // Locked during the compilation: if two loaders start at the same time, the second waits for the first.
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        let known = loaded.iter().filter_map(Weak::upgrade).find(|known| known.context().index() == context.index());
        if let Some(known) = known {
            return Ok(known);
        }
        let kernels = Arc::new(Self::compile(context)?);
        loaded.retain(|known| known.strong_count() > 0);
        loaded.push(Arc::downgrade(&kernels));
        Ok(kernels)
    }

    fn compile(context: &Context) -> Result<Self> {
        let module = Module::load(context, RESAMPLE_PTX)?;
        let mut resample = Vec::new();
        for src in [DType::U8, DType::U16, DType::F32] {
            for dst in STORED {
                let Some(name) = device::kernel_name(src, dst) else { continue };
                resample.push((src, dst, module.function(name)?));
            }
        }
        Ok(Self { resample, pictures: OnceLock::new(), colour: OnceLock::new(), module })
    }

    /// The GPU that they are loaded on.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.module.context
    }

    pub(super) fn resample(&self, src: DType, dst: DType) -> Option<CUfunction> {
        self.resample.iter().find(|(a, b, _)| (*a, *b) == (src, dst)).map(|found| found.2)
    }

    /// # Errors
    /// As [`load`](Self::load), for these kernels. A failure is kept: each later call returns it again.
    pub(super) fn pictures(&self) -> Result<&PictureKernels> {
        self.pictures.get_or_init(|| PictureKernels::load(self.context())).as_ref().map_err(Error::clone)
    }

    /// The kernel that converts planes to RGB.
    ///
    /// # Errors
    /// As [`load`](Self::load), for this kernel. A failure is kept: each later call returns it again.
    pub(crate) fn colour(&self) -> Result<CUfunction> {
        let load = || {
            let module = Module::load(self.context(), COLOUR_PTX)?;
            Ok((module.function(PLANES_TO_RGB)?, module))
        };
        self.colour.get_or_init(load).as_ref().map(|(function, _)| *function).map_err(Error::clone)
    }
}

impl PictureKernels {
    fn load(context: &Context) -> Result<Self> {
        let module = Module::load(context, PICTURE_PTX)?;
        let steps = [module.function(picture::picture_kernel(false))?, module.function(picture::picture_kernel(true))?];
        let mut rows = Vec::new();
        for dtype in STORED {
            let Some(RowKernels { fill, roll, swap }) = picture::row_kernels(dtype) else { continue };
            let of = |name| module.function(name);
            rows.push((dtype, RowFunctions { fill: of(fill)?, roll: of(roll)?, swap: of(swap)? }));
        }
        Ok(Self { steps, rows, _module: module })
    }

    pub(super) const fn steps(&self, float: bool) -> CUfunction {
        self.steps[float as usize]
    }

    pub(super) fn rows(&self, dtype: DType) -> Option<RowFunctions> {
        self.rows.iter().find(|(of, _)| *of == dtype).map(|found| found.1)
    }
}

impl Module {
    fn load(context: &Context, ptx: &str) -> Result<Self> {
        let _bound = context.bind()?;
        let source =
            CString::new(ptx).map_err(|e| Error::new(ErrorKind::Internal, "the PTX has a zero byte").with_source(e))?;
        let mut raw: CUmodule = ptr::null_mut();
        // Room for a few lines of the compiler; more are cut off.
        let mut log = [0u8; 4 << 10];
        let mut options = [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        // The driver takes the size as a number in place of a pointer. One byte less, so that the log always ends with
        // a zero.
        let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), ptr::without_provenance_mut(log.len() - 1)];
        // SAFETY: `raw`, the log and both lists outlive the call, and have the lengths that are passed; the source ends
        // with a zero.
        let code = unsafe {
            (context.driver().calls.cuModuleLoadDataEx)(
                &raw mut raw,
                source.as_ptr().cast(),
                options.len() as c_uint,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        context.check("cuModuleLoadDataEx", code).map_err(|error| refused(error, &log))?;
        Ok(Self { context: context.clone(), raw })
    }

    fn function(&self, name: &CStr) -> Result<CUfunction> {
        let _bound = self.context.bind()?;
        let mut function: CUfunction = ptr::null_mut();
        // SAFETY: `function` outlives the call; the module is loaded; the name ends with a zero.
        let code =
            unsafe { (self.context.driver().calls.cuModuleGetFunction)(&raw mut function, self.raw, name.as_ptr()) };
        self.context.check("cuModuleGetFunction", code)?;
        Ok(function)
    }
}

/// An error of loading, with the output of the driver's compiler as its source.
fn refused(error: Error, log: &[u8]) -> Error {
    let log = CStr::from_bytes_until_nul(log).map(CStr::to_string_lossy).unwrap_or_default();
    let log: Vec<&str> = log.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if log.is_empty() { error } else { error.with_source(io::Error::other(log.join("; "))) }
}

impl Drop for Module {
    fn drop(&mut self) {
        let Ok(_bound) = self.context.bind() else { return };
        // SAFETY: loaded in `load`, unloaded once; users of its functions hold the kernels until their launches are
        // done.
        let _ = unsafe { (self.context.driver().calls.cuModuleUnload)(self.raw) };
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Module on {:?}", self.context)
    }
}

impl fmt::Debug for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kernels on {:?}", self.context())
    }
}
