//! The GPU driver of this build, or functions that find no GPU. Other files call these without a `cfg`.

#[cfg(not(all(feature = "cuda", target_os = "linux")))]
pub use absent::look_in;
#[cfg(not(all(feature = "cuda", target_os = "linux")))]
pub(crate) use absent::{gpus, nvcuvid, nvjpeg, open};
#[cfg(all(feature = "cuda", target_os = "linux"))]
pub use infeed_cuda::nvjpeg::look_in;
#[cfg(all(feature = "cuda", target_os = "linux"))]
pub(crate) use infeed_cuda::{
    gpus,
    nvjpeg::{find as nvjpeg, nvcuvid},
    open,
};

#[cfg(not(all(feature = "cuda", target_os = "linux")))]
mod absent {
    use std::{path::PathBuf, sync::Arc};

    use infeed_core::{
        error::{Error, ErrorKind, Result, setting::DEVICE_CPU},
        gpu::{Gpu, NvJpegLibrary},
    };
    use infeed_pixels::accelerator::Accelerator;

    /// Why a build without a driver finds no GPU.
    const MISSING: &str = if cfg!(target_os = "linux") {
        "this infeed was built without the feature `cuda`"
    } else {
        "infeed uses GPUs on Linux only"
    };

    pub(crate) fn gpus() -> Result<Vec<Gpu>, String> {
        Err(MISSING.into())
    }

    pub(crate) fn nvjpeg() -> Result<NvJpegLibrary, String> {
        Err(MISSING.into())
    }

    pub(crate) fn nvcuvid() -> Result<String, String> {
        Err(MISSING.into())
    }

    /// No effect: this build does not look for libraries.
    pub fn look_in(_folders: impl IntoIterator<Item = PathBuf>) {}

    pub(crate) fn open(index: u32) -> Result<Arc<dyn Accelerator>> {
        Err(Error::new(ErrorKind::Device, format!("cuda:{index} can't be used: {MISSING}"))
            .with_hint(format!("use {DEVICE_CPU}, or build with the feature `cuda` on Linux")))
    }
}
