//! Which nvJPEG there is.

use std::fmt;

use serde::Serialize;

/// The nvJPEG library.
///
/// ```
/// use infeed::device::devices;
///
/// let machine = devices();
/// match &machine.nvjpeg {
///     Some(library) => println!("{library}"), // nvJPEG 13.0.0 (libnvjpeg.so.13)
///     None => println!("{}", machine.nvjpeg_note),
/// }
/// # assert_eq!(machine.nvjpeg.is_none(), !machine.nvjpeg_note.is_empty());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NvJpegLibrary {
    /// Major, minor, patch.
    pub version: (u32, u32, u32),
    /// The name or path it was loaded by.
    pub library: String,
}

impl fmt::Display for NvJpegLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ((major, minor, patch), library) = (self.version, &self.library);
        write!(f, "nvJPEG {major}.{minor}.{patch} ({library})")
    }
}

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
