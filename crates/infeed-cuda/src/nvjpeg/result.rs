//! Converts nvJPEG's status codes to errors.

use infeed_core::error::{Error, ErrorKind, Result};
use nvjpeg_sys::{
    nvjpegStatus_t, nvjpegStatus_t_NVJPEG_STATUS_ALLOCATOR_FAILURE as ALLOCATOR_FAILURE,
    nvjpegStatus_t_NVJPEG_STATUS_ARCH_MISMATCH as ARCH_MISMATCH, nvjpegStatus_t_NVJPEG_STATUS_BAD_JPEG as BAD_JPEG,
    nvjpegStatus_t_NVJPEG_STATUS_EXECUTION_FAILED as EXECUTION_FAILED,
    nvjpegStatus_t_NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED as IMPLEMENTATION_NOT_SUPPORTED,
    nvjpegStatus_t_NVJPEG_STATUS_INCOMPLETE_BITSTREAM as INCOMPLETE_BITSTREAM,
    nvjpegStatus_t_NVJPEG_STATUS_INTERNAL_ERROR as INTERNAL_ERROR,
    nvjpegStatus_t_NVJPEG_STATUS_INVALID_PARAMETER as INVALID_PARAMETER,
    nvjpegStatus_t_NVJPEG_STATUS_JPEG_NOT_SUPPORTED as JPEG_NOT_SUPPORTED,
    nvjpegStatus_t_NVJPEG_STATUS_NOT_INITIALIZED as NOT_INITIALIZED, nvjpegStatus_t_NVJPEG_STATUS_SUCCESS as SUCCESS,
};

/// The status if the GPU has no engine.
pub(super) const NO_ENGINE: nvjpegStatus_t = ARCH_MISMATCH;

/// An error for a status. `Corrupt` and `Unsupported` are about the image, `OutOfMemory` about memory, `Internal` is a
/// bug of infeed; `Device` is a failure of the GPU, or one that nvJPEG does not explain.
pub(super) fn check(call: &'static str, status: nvjpegStatus_t) -> Result<()> {
    words(call, status).map_err(|why| Error::new(kind(status), why))
}

const fn kind(status: nvjpegStatus_t) -> ErrorKind {
    match status {
        BAD_JPEG | INCOMPLETE_BITSTREAM => ErrorKind::Corrupt,
        JPEG_NOT_SUPPORTED | IMPLEMENTATION_NOT_SUPPORTED => ErrorKind::Unsupported,
        ALLOCATOR_FAILURE => ErrorKind::OutOfMemory,
        NOT_INITIALIZED | INVALID_PARAMETER => ErrorKind::Internal,
        _ => ErrorKind::Device,
    }
}

/// A status in words.
pub(super) fn words(call: &str, status: nvjpegStatus_t) -> Result<(), String> {
    let why = match status {
        SUCCESS => return Ok(()),
        NOT_INITIALIZED => "nvJPEG was not initialised",
        INVALID_PARAMETER => "nvJPEG was given an invalid parameter",
        BAD_JPEG => "nvJPEG can't parse the JPEG",
        JPEG_NOT_SUPPORTED => "nvJPEG does not decode this kind of JPEG",
        ALLOCATOR_FAILURE => "nvJPEG got no memory",
        EXECUTION_FAILED => "nvJPEG failed on the GPU, or the driver is too old for it",
        ARCH_MISMATCH => "this GPU has no JPEG engine",
        INTERNAL_ERROR => "nvJPEG failed",
        IMPLEMENTATION_NOT_SUPPORTED => "this backend of nvJPEG does not decode this kind of JPEG",
        INCOMPLETE_BITSTREAM => "the JPEG is not complete",
        _ => "nvJPEG error",
    };
    Err(format!("{why} ({call} returned {status})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_tells_whose_fault_it_is() {
        let cases = [
            (1, ErrorKind::Internal, "not initialised"),
            (2, ErrorKind::Internal, "parameter"),
            (3, ErrorKind::Corrupt, "can't parse"),
            (4, ErrorKind::Unsupported, "this kind of JPEG"),
            (5, ErrorKind::OutOfMemory, "no memory"),
            (6, ErrorKind::Device, "failed on the GPU"),
            (7, ErrorKind::Device, "no JPEG engine"),
            (8, ErrorKind::Device, "nvJPEG failed"),
            (9, ErrorKind::Unsupported, "backend"),
            (10, ErrorKind::Corrupt, "not complete"),
            (4711, ErrorKind::Device, "nvJPEG error (nvjpegX returned 4711)"),
        ];
        assert!(check("nvjpegX", 0).is_ok());
        for (status, kind, part) in cases {
            let error = check("nvjpegX", status).unwrap_err();
            assert_eq!(error.kind(), kind, "{status}");
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
