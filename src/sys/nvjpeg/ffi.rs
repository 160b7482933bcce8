//! The C signatures of what we call, compared with the header by the compiler.

use std::ffi::c_int;

use nvjpeg_sys::{
    libraryPropertyType, libraryPropertyType_t_MAJOR_VERSION as MAJOR, libraryPropertyType_t_MINOR_VERSION as MINOR,
    libraryPropertyType_t_PATCH_LEVEL as PATCH, nvjpegStatus_t, nvjpegStatus_t_NVJPEG_STATUS_SUCCESS as SUCCESS,
};

use super::NvJpeg;
use crate::sys::library::load;

type GetProperty = unsafe extern "C" fn(what: libraryPropertyType, value: *mut c_int) -> nvjpegStatus_t;

// The compiler compares the signature with the prototype; no symbol is used.
const _: GetProperty = nvjpeg_sys::nvjpegGetProperty;

/// Newest first. 13 needs a driver of CUDA 13, older ones run with newer drivers too.
const NAMES: [&str; 4] = ["libnvjpeg.so.13", "libnvjpeg.so.12", "libnvjpeg.so.11", "libnvjpeg.so"];

/// The version of the library at `path`, else of the first that has one of the usual names.
pub(super) fn find(path: Option<&str>) -> Result<NvJpeg, String> {
    // Whoever names a path wants that library or to be told, never another one.
    let (library, name) = match path {
        Some(path) => load(&[path]).map_err(|reason| format!("INFEED_NVJPEG: {reason}"))?,
        None => load(&NAMES)?,
    };
    // SAFETY: the type is the prototype's, checked above.
    let get = unsafe { library.get::<GetProperty>(c"nvjpegGetProperty".to_bytes_with_nul()) }
        .map_err(|_| format!("{name} lacks nvjpegGetProperty"))?;
    let property = |what| {
        let mut value = 0;
        // SAFETY: `value` outlives the call, which needs no handle, context or GPU.
        let status = unsafe { get(what, &raw mut value) };
        u32::try_from(value)
            .ok()
            .filter(|_| status == SUCCESS)
            .ok_or_else(|| format!("{name} does not tell its version"))
    };
    Ok(NvJpeg { version: (property(MAJOR)?, property(MINOR)?, property(PATCH)?), library: name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_a_reason() {
        assert_eq!(find(Some("/nowhere/libnvjpeg.so")).unwrap_err(), "INFEED_NVJPEG: /nowhere/libnvjpeg.so not found");
    }

    #[test]
    #[cfg(target_env = "gnu")]
    fn a_library_that_is_no_nvjpeg_is_a_reason() {
        assert_eq!(find(Some("libc.so.6")).unwrap_err(), "libc.so.6 lacks nvjpegGetProperty");
    }
}
