//! The few calls that list GPUs, through our own handle on the driver.
//!
//! cudarc panics at the first call where there is no driver, and its result type is an enum, for which a code of a newer
//! driver would be undefined behaviour. So this first look takes plain integers, and of cudarc only the names of codes
//! and attributes. Whoever uses cudarc's calls asks [`probe`] first.

use std::ffi::{CStr, c_char, c_int, c_uint};

use cudarc::driver::sys::{CUdevice, CUdevice_attribute, CUresult};
use libloading::{Library, Symbol};

use super::Gpu;
use crate::sys::library::load;

type Init = unsafe extern "C" fn(flags: c_uint) -> c_uint;
type GetNumber = unsafe extern "C" fn(number: *mut c_int) -> c_uint;
type Get = unsafe extern "C" fn(device: *mut CUdevice, index: c_int) -> c_uint;
type GetName = unsafe extern "C" fn(name: *mut c_char, len: c_int, device: CUdevice) -> c_uint;
type TotalMem = unsafe extern "C" fn(bytes: *mut usize, device: CUdevice) -> c_uint;
type GetAttribute = unsafe extern "C" fn(value: *mut c_int, attribute: c_int, device: CUdevice) -> c_uint;

/// At least one GPU, or the reason why there is none, through the first of these libraries that loads.
pub(super) fn probe(libraries: &[&str]) -> Result<Vec<Gpu>, String> {
    let driver = Driver::load(libraries)?;
    driver.init()?;
    let version = driver.number(c"cuDriverGetVersion")?;
    let count = driver.number(c"cuDeviceGetCount")?;
    if count == 0 {
        return Err("the driver sees no GPU".into());
    }
    // Encoded as 1000 * major + 10 * minor.
    let version = (version / 1000, version % 1000 / 10);
    (0..count).map(|index| driver.gpu(index, version)).collect()
}

struct Driver {
    /// Never unloaded: the driver keeps threads that run its code.
    library: &'static Library,
}

impl Driver {
    fn load(libraries: &[&str]) -> Result<Self, String> {
        let (library, _) = load(libraries)
            .map_err(|reason| if reason.ends_with("not found") { reason + " (no NVIDIA driver)" } else { reason })?;
        Ok(Self { library })
    }

    /// A function of the driver.
    ///
    /// # Safety
    /// `F` must be the C signature of the function called `name`.
    unsafe fn function<F>(&self, name: &CStr) -> Result<Symbol<'static, F>, String> {
        // SAFETY: the caller vouches for the type.
        let symbol = unsafe { self.library.get(name.to_bytes_with_nul()) };
        symbol.map_err(|_| format!("the CUDA driver lacks {}", name.to_string_lossy()))
    }

    fn init(&self) -> Result<(), String> {
        // SAFETY: `CUresult cuInit(unsigned int)`.
        let init = unsafe { self.function::<Init>(c"cuInit") }?;
        // SAFETY: takes no pointer; may be called any number of times.
        check("cuInit", unsafe { init(0) })
    }

    /// What a function with one `int *` parameter says.
    fn number(&self, name: &CStr) -> Result<u32, String> {
        let mut value = 0;
        // SAFETY: called for cuDriverGetVersion and cuDeviceGetCount, both `CUresult f(int *)`.
        let get = unsafe { self.function::<GetNumber>(name) }?;
        // SAFETY: `value` outlives the call.
        check(&name.to_string_lossy(), unsafe { get(&raw mut value) })?;
        u32::try_from(value).map_err(|_| format!("{} says {value}", name.to_string_lossy()))
    }

    fn gpu(&self, index: u32, driver: (u32, u32)) -> Result<Gpu, String> {
        let mut device: CUdevice = 0;
        // SAFETY: `CUresult cuDeviceGet(CUdevice *, int)`.
        let get = unsafe { self.function::<Get>(c"cuDeviceGet") }?;
        // SAFETY: `device` outlives the call.
        check("cuDeviceGet", unsafe { get(&raw mut device, index as c_int) })?;

        let mut name = [0u8; 256];
        // SAFETY: `CUresult cuDeviceGetName(char *, int, CUdevice)`.
        let get_name = unsafe { self.function::<GetName>(c"cuDeviceGetName") }?;
        // One byte less than there is, so that the name always ends.
        let len = name.len() as c_int - 1;
        // SAFETY: at most `len` bytes of `name` are written.
        check("cuDeviceGetName", unsafe { get_name(name.as_mut_ptr().cast(), len, device) })?;
        let name = CStr::from_bytes_until_nul(&name).map(|name| name.to_string_lossy().into_owned());

        let mut memory = 0;
        // SAFETY: `CUresult cuDeviceTotalMem_v2(size_t *, CUdevice)`.
        let total = unsafe { self.function::<TotalMem>(c"cuDeviceTotalMem_v2") }?;
        // SAFETY: `memory` outlives the call.
        check("cuDeviceTotalMem", unsafe { total(&raw mut memory, device) })?;

        let compute = (
            self.attribute(device, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            self.attribute(device, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        );
        let name = name.unwrap_or_else(|_| "unnamed".into());
        Ok(Gpu { index, name, memory_bytes: memory as u64, compute, driver })
    }

    fn attribute(&self, device: CUdevice, attribute: CUdevice_attribute) -> Result<u32, String> {
        let mut value = 0;
        // SAFETY: `CUresult cuDeviceGetAttribute(int *, CUdevice_attribute, CUdevice)`; the enum is a C int.
        let get = unsafe { self.function::<GetAttribute>(c"cuDeviceGetAttribute") }?;
        // SAFETY: `value` outlives the call.
        check("cuDeviceGetAttribute", unsafe { get(&raw mut value, attribute as c_int, device) })?;
        u32::try_from(value).map_err(|_| format!("cuDeviceGetAttribute says {value}"))
    }
}

/// A result code in words, for the codes that a machine without a usable GPU gives.
fn check(call: &str, code: c_uint) -> Result<(), String> {
    const OK: c_uint = CUresult::CUDA_SUCCESS as c_uint;
    const NO_DEVICE: c_uint = CUresult::CUDA_ERROR_NO_DEVICE as c_uint;
    const STUB: c_uint = CUresult::CUDA_ERROR_STUB_LIBRARY as c_uint;
    const MISMATCH: c_uint = CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH as c_uint;
    const COMPAT: c_uint = CUresult::CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE as c_uint;
    const NOT_READY: c_uint = CUresult::CUDA_ERROR_SYSTEM_NOT_READY as c_uint;
    let why = match code {
        OK => return Ok(()),
        NO_DEVICE => "the driver sees no GPU",
        STUB => "libcuda is the toolkit's stub, not a driver",
        MISMATCH => "the driver's library and its kernel module have different versions",
        COMPAT => "the compatibility library does not support this GPU",
        NOT_READY => "the system is not ready for CUDA yet",
        _ => "CUDA error",
    };
    Err(format!("{why} ({call} returned {code})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_driver_is_a_reason_and_no_panic() {
        let reason = probe(&["libno-such-driver.so.1", "libno-such-driver.so"]).unwrap_err();
        assert_eq!(reason, "libno-such-driver.so.1 not found (no NVIDIA driver)");
    }

    #[test]
    #[cfg(target_env = "gnu")]
    fn a_library_that_is_no_driver_is_a_reason() {
        // glibc is loaded already.
        let reason = probe(&["libc.so.6"]).unwrap_err();
        assert_eq!(reason, "the CUDA driver lacks cuInit");
    }

    #[test]
    fn codes_are_told_in_words() {
        assert_eq!(check("cuInit", 0), Ok(()));
        assert_eq!(check("cuInit", 100), Err("the driver sees no GPU (cuInit returned 100)".into()));
        assert_eq!(check("cuInit", 4242), Err("CUDA error (cuInit returned 4242)".into()));
    }
}
