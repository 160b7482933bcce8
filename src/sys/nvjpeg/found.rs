//! Which nvJPEG there is.

#[cfg(not(all(feature = "cuda", target_os = "linux")))]
use infeed_core::gpu::NvJpegLibrary;

/// Why there is none.
#[cfg(not(all(feature = "cuda", target_os = "linux")))]
pub(in crate::sys) fn find() -> Result<NvJpegLibrary, String> {
    Err(crate::sys::cuda::MISSING.into())
}

/// Why it is not looked for.
#[cfg(not(all(feature = "cuda", target_os = "linux")))]
pub(in crate::sys) fn nvcuvid() -> Result<String, String> {
    Err(crate::sys::cuda::MISSING.into())
}

/// Nothing: it is not looked for.
#[cfg(not(all(feature = "cuda", target_os = "linux")))]
pub fn look_in(_folders: impl IntoIterator<Item = std::path::PathBuf>) {}
