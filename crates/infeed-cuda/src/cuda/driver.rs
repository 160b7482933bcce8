//! The driver's functions, loaded once.
//!
//! cudarc panics at the first call if there is no driver or it lacks a function. Its result type is an enum, so a code
//! of a newer driver would be undefined behaviour. So infeed has its own table of functions, loaded at once: a missing
//! function is an error before any is called. Types come from cudarc, and the compiler checks our signatures against
//! its prototypes.

use std::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    sync::OnceLock,
};

use cudarc::driver::sys::{
    CUDA_MEMCPY2D, CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUfunction, CUjit_option, CUmodule,
    CUresult, CUstream, CUstreamCaptureMode, CUstreamCaptureStatus,
};
use infeed_core::error::{
    Error, ErrorKind, Result,
    setting::{BATCH_SIZE, DEVICE_BUDGET, PREFETCH},
};
use infeed_core::gpu::Gpu;
use libloading::Library;

use crate::library::load;

macro_rules! calls {
    ($($name:ident($($argument:ty),*);)*) => {
        /// Every function of the driver that infeed calls. All exist since CUDA 11.2, unless noted.
        #[allow(non_snake_case)]
        pub(crate) struct Calls {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) -> c_uint,)*
            /// Drivers of CUDA 13 still have it. cudarc's bindings name the newer variant, which older drivers lack.
            pub(crate) cuEventElapsedTime: unsafe extern "C" fn(*mut f32, CUevent, CUevent) -> c_uint,
            /// Since CUDA 12.5; `None` with an older driver.
            pub(crate) cuCtxRecordEvent: Option<unsafe extern "C" fn(CUcontext, CUevent) -> c_uint>,
        }

        // The compiler compares our signatures with cudarc's. A result is read as a number, so any code is valid.
        $(const _: unsafe fn($($argument),*) -> CUresult = cudarc::driver::sys::$name;)*

        impl Calls {
            #[allow(non_snake_case)]
            fn load(library: &'static Library) -> Result<Self, String> {
                $(
                    // SAFETY: the signature is the prototype's, checked above.
                    let $name = unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) }
                        .map_err(|_| concat!("the CUDA driver lacks ", stringify!($name), "; update it").to_owned())?;
                )*
                // SAFETY: `CUresult cuEventElapsedTime(float *, CUevent, CUevent)`, unchanged since CUDA 2.
                let elapsed = unsafe { library.get(c"cuEventElapsedTime".to_bytes_with_nul()) }
                    .map_err(|_| "the CUDA driver lacks cuEventElapsedTime; update it".to_owned())?;
                // SAFETY: `CUresult cuCtxRecordEvent(CUcontext, CUevent)`, of CUDA 12.5 as of CUDA 13.
                let record = unsafe { library.get(c"cuCtxRecordEvent".to_bytes_with_nul()) };
                let cuCtxRecordEvent = record.ok().map(|record| *record);
                Ok(Self { $($name: *$name,)* cuEventElapsedTime: *elapsed, cuCtxRecordEvent })
            }
        }
    };
}

calls! {
    cuInit(c_uint);
    cuDriverGetVersion(*mut c_int);
    cuDeviceGetCount(*mut c_int);
    cuDeviceGet(*mut CUdevice, c_int);
    cuDeviceGetName(*mut c_char, c_int, CUdevice);
    cuDeviceTotalMem_v2(*mut usize, CUdevice);
    cuDeviceGetAttribute(*mut c_int, CUdevice_attribute, CUdevice);
    cuDevicePrimaryCtxRetain(*mut CUcontext, CUdevice);
    cuCtxGetCurrent(*mut CUcontext);
    cuCtxSetCurrent(CUcontext);
    cuCtxGetStreamPriorityRange(*mut c_int, *mut c_int);
    cuMemGetInfo_v2(*mut usize, *mut usize);
    cuMemAlloc_v2(*mut CUdeviceptr, usize);
    cuMemFree_v2(CUdeviceptr);
    cuMemAllocAsync(*mut CUdeviceptr, usize, CUstream);
    cuMemFreeAsync(CUdeviceptr, CUstream);
    cuMemHostAlloc(*mut *mut c_void, usize, c_uint);
    cuMemFreeHost(*mut c_void);
    cuMemcpyHtoDAsync_v2(CUdeviceptr, *const c_void, usize, CUstream);
    cuMemcpyDtoHAsync_v2(*mut c_void, CUdeviceptr, usize, CUstream);
    cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, usize, CUstream);
    cuMemcpy2DAsync_v2(*const CUDA_MEMCPY2D, CUstream);
    cuMemsetD8Async(CUdeviceptr, u8, usize, CUstream);
    cuMemsetD2D32Async(CUdeviceptr, usize, c_uint, usize, usize, CUstream);
    cuStreamCreateWithPriority(*mut CUstream, c_uint, c_int);
    cuStreamDestroy_v2(CUstream);
    cuStreamSynchronize(CUstream);
    cuStreamWaitEvent(CUstream, CUevent, c_uint);
    cuStreamIsCapturing(CUstream, *mut CUstreamCaptureStatus);
    cuThreadExchangeStreamCaptureMode(*mut CUstreamCaptureMode);
    cuEventCreate(*mut CUevent, c_uint);
    cuEventDestroy_v2(CUevent);
    cuEventRecord(CUevent, CUstream);
    cuEventQuery(CUevent);
    cuEventSynchronize(CUevent);
    cuModuleLoadDataEx(*mut CUmodule, *const c_void, c_uint, *mut CUjit_option, *mut *mut c_void);
    cuModuleUnload(CUmodule);
    cuModuleGetFunction(*mut CUfunction, CUmodule, *const c_char);
    cuLaunchKernel(
        CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream, *mut *mut c_void, *mut *mut c_void
    );
}

/// The initialised driver. It is never unloaded, as its own threads run its code.
pub(crate) struct Driver {
    pub(crate) calls: Calls,
}

/// The names of the driver's library.
const LIBRARIES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];

/// The driver of this process, or the reason why there is none. Looked up once.
pub(super) fn driver() -> Result<&'static Driver, String> {
    static DRIVER: OnceLock<Result<Driver, String>> = OnceLock::new();
    DRIVER.get_or_init(|| Driver::load(&LIBRARIES)).as_ref().map_err(Clone::clone)
}

/// The GPUs, at least one; or the reason why there is none.
pub fn probe() -> Result<Vec<Gpu>, String> {
    let driver = driver()?;
    let version = driver.number("cuDriverGetVersion", driver.calls.cuDriverGetVersion)?;
    let count = driver.number("cuDeviceGetCount", driver.calls.cuDeviceGetCount)?;
    if count == 0 {
        return Err("the driver sees no GPU".into());
    }
    // Encoded as 1000 * major + 10 * minor.
    let version = (version / 1000, version % 1000 / 10);
    (0..count).map(|index| driver.gpu(index, version)).collect()
}

impl Driver {
    /// Loads the first of these libraries that exists, and initialises the driver.
    fn load(libraries: &[&str]) -> Result<Self, String> {
        let (library, _) = load(libraries)
            .map_err(|reason| if reason.ends_with("not found") { reason + " (no NVIDIA driver)" } else { reason })?;
        let calls = Calls::load(library)?;
        // SAFETY: takes no pointer; may be called any number of times.
        words("cuInit", unsafe { (calls.cuInit)(0) })?;
        Ok(Self { calls })
    }

    /// The result of a function with one `int *` parameter.
    fn number(&self, name: &str, call: unsafe extern "C" fn(*mut c_int) -> c_uint) -> Result<u32, String> {
        let mut value = 0;
        // SAFETY: `value` outlives the call.
        words(name, unsafe { call(&raw mut value) })?;
        u32::try_from(value).map_err(|_| format!("{name} says {value}"))
    }

    pub(super) fn device(&self, index: u32) -> Result<CUdevice, String> {
        let mut device: CUdevice = 0;
        // SAFETY: `device` outlives the call.
        words("cuDeviceGet", unsafe { (self.calls.cuDeviceGet)(&raw mut device, index as c_int) })?;
        Ok(device)
    }

    fn gpu(&self, index: u32, driver: (u32, u32)) -> Result<Gpu, String> {
        let device = self.device(index)?;
        let mut name = [0u8; 256];
        // One byte less than the buffer, so that the name always ends with a zero.
        let len = name.len() as c_int - 1;
        // SAFETY: at most `len` bytes of `name` are written.
        words("cuDeviceGetName", unsafe { (self.calls.cuDeviceGetName)(name.as_mut_ptr().cast(), len, device) })?;
        let name = CStr::from_bytes_until_nul(&name).map(|name| name.to_string_lossy().into_owned());

        let mut memory = 0;
        // SAFETY: `memory` outlives the call.
        words("cuDeviceTotalMem", unsafe { (self.calls.cuDeviceTotalMem_v2)(&raw mut memory, device) })?;

        let compute = (
            self.attribute(device, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            self.attribute(device, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        );
        let name = name.unwrap_or_else(|_| "unnamed".into());
        let pci = |attribute| self.attribute(device, attribute).ok();
        let pci_bus_id = pci(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)
            .zip(pci(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID))
            .zip(pci(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID))
            // The GPU itself is PCI function 0; others are, for example, its audio.
            .map(|((domain, bus), device)| format!("{domain:04x}:{bus:02x}:{device:02x}.0"));
        Ok(Gpu::new(index, name, memory as u64, compute, driver, pci_bus_id))
    }

    pub(super) fn attribute(&self, device: CUdevice, attribute: CUdevice_attribute) -> Result<u32, String> {
        let mut value = 0;
        // SAFETY: `value` outlives the call.
        let code = unsafe { (self.calls.cuDeviceGetAttribute)(&raw mut value, attribute, device) };
        words("cuDeviceGetAttribute", code)?;
        u32::try_from(value).map_err(|_| format!("cuDeviceGetAttribute says {value}"))
    }

    /// An error for a result code, with the driver's own name for it.
    pub(super) fn check(&self, call: &'static str, code: c_uint) -> Result<()> {
        if code == CUresult::CUDA_SUCCESS as c_uint {
            return Ok(());
        }
        if code == CUresult::CUDA_ERROR_OUT_OF_MEMORY as c_uint {
            return Err(Error::new(ErrorKind::OutOfMemory, format!("out of device memory ({call})"))
                .with_hint(format!(
                    "lower {BATCH_SIZE}, {PREFETCH} or {DEVICE_BUDGET}, or free memory of the GPU (nvidia-smi lists its users)"
                )));
        }
        let what = words(call, code).err().unwrap_or_default();
        Err(Error::new(ErrorKind::Device, what).with_hint(advice(code)))
    }
}

/// The hint for a result code.
fn advice(code: c_uint) -> &'static str {
    const BUSY: c_uint = CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE as c_uint;
    const INVALID: c_uint = CUresult::CUDA_ERROR_INVALID_PTX as c_uint;
    const PTX: c_uint = CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION as c_uint;
    const IMAGE: c_uint = CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU as c_uint;
    const COMPILER: c_uint = CUresult::CUDA_ERROR_JIT_COMPILER_NOT_FOUND as c_uint;
    const FORBIDDEN: c_uint = CUresult::CUDA_ERROR_JIT_COMPILATION_DISABLED as c_uint;
    match code {
        BUSY => "end that process, or use another GPU; nvidia-smi lists the processes and the compute mode",
        // The kernels are PTX 8.0.
        PTX | INVALID => "update the driver to one for CUDA 12.0 or newer (525 or newer)",
        IMAGE => "use another GPU, or the CPU",
        COMPILER => {
            "install the complete driver; for a container, set NVIDIA_DRIVER_CAPABILITIES=compute,utility,video"
        }
        FORBIDDEN => "unset CUDA_DISABLE_PTX_JIT",
        _ => "check the driver's log (dmesg, nvidia-smi); restart a process whose GPU failed",
    }
}

/// The text for a result code.
fn words(call: &str, code: c_uint) -> Result<(), String> {
    const OK: c_uint = CUresult::CUDA_SUCCESS as c_uint;
    const NO_DEVICE: c_uint = CUresult::CUDA_ERROR_NO_DEVICE as c_uint;
    const STUB: c_uint = CUresult::CUDA_ERROR_STUB_LIBRARY as c_uint;
    const MISMATCH: c_uint = CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH as c_uint;
    const COMPAT: c_uint = CUresult::CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE as c_uint;
    const NOT_READY: c_uint = CUresult::CUDA_ERROR_SYSTEM_NOT_READY as c_uint;
    const BUSY: c_uint = CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE as c_uint;
    const MEMORY: c_uint = CUresult::CUDA_ERROR_OUT_OF_MEMORY as c_uint;
    const ADDRESS: c_uint = CUresult::CUDA_ERROR_ILLEGAL_ADDRESS as c_uint;
    const LAUNCH: c_uint = CUresult::CUDA_ERROR_LAUNCH_FAILED as c_uint;
    const ECC: c_uint = CUresult::CUDA_ERROR_ECC_UNCORRECTABLE as c_uint;
    const PTX: c_uint = CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION as c_uint;
    const IMAGE: c_uint = CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU as c_uint;
    const INVALID: c_uint = CUresult::CUDA_ERROR_INVALID_PTX as c_uint;
    const COMPILER: c_uint = CUresult::CUDA_ERROR_JIT_COMPILER_NOT_FOUND as c_uint;
    const FORBIDDEN: c_uint = CUresult::CUDA_ERROR_JIT_COMPILATION_DISABLED as c_uint;
    let why = match code {
        OK => return Ok(()),
        NO_DEVICE => "the driver sees no GPU",
        STUB => "libcuda is the toolkit's stub, not a driver",
        MISMATCH => "the driver's library and its kernel module have different versions",
        COMPAT => "the compatibility library does not support this GPU",
        NOT_READY => "the system is not ready for CUDA yet",
        BUSY => "another process uses the GPU exclusively",
        MEMORY => "out of device memory",
        ADDRESS => "a kernel read or wrote outside its memory; the GPU's context is lost",
        LAUNCH => "a kernel failed; the GPU's context is lost",
        ECC => "the GPU's memory has an uncorrectable error",
        PTX => "the driver is too old for infeed's kernels",
        IMAGE => "infeed's kernels need a GPU of compute capability 7.0 or newer",
        INVALID => "the driver can't compile infeed's kernels",
        COMPILER => "the driver's compiler, libnvidia-ptxjitcompiler, is missing",
        FORBIDDEN => "the driver is set not to compile kernels",
        _ => "CUDA error",
    };
    Err(format!("{why} ({call} returned {code})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_driver_is_a_reason_and_no_panic() {
        let reason = Driver::load(&["libno-such-driver.so.1", "libno-such-driver.so"]).err();
        assert_eq!(reason.as_deref(), Some("libno-such-driver.so.1 not found (no NVIDIA driver)"));
    }

    #[test]
    #[cfg(target_env = "gnu")]
    fn a_library_that_is_no_driver_is_a_reason() {
        // glibc is loaded already.
        let reason = Driver::load(&["libc.so.6"]).err();
        assert_eq!(reason.as_deref(), Some("the CUDA driver lacks cuInit; update it"));
    }

    #[test]
    fn codes_are_told_in_words() {
        assert_eq!(words("cuInit", 0), Ok(()));
        assert_eq!(words("cuInit", 100), Err("the driver sees no GPU (cuInit returned 100)".into()));
        assert_eq!(words("cuInit", 4242), Err("CUDA error (cuInit returned 4242)".into()));
    }
}
