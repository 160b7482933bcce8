//! NVIDIA's JPEG decoder: for now, whether it is there.

#[cfg(all(feature = "cuda", target_os = "linux"))]
mod ffi;

use super::cuda::NvJpeg;

/// The library, or the reason why there is none.
#[cfg(all(feature = "cuda", target_os = "linux"))]
pub(super) fn find() -> Result<NvJpeg, String> {
    ffi::find(std::env::var("INFEED_NVJPEG").ok().as_deref())
}

#[cfg(not(all(feature = "cuda", target_os = "linux")))]
pub(super) fn find() -> Result<NvJpeg, String> {
    Err(super::cuda::MISSING.into())
}
