//! The only room with `unsafe`. What each file promises to safe callers:
//!
//! | file | promise |
//! |---|---|
//! | [`cuda`] | never panics or aborts when there is no driver, GPU or library |
//! | [`devices`] | never panics: what is missing is told in words |
//! | `dlpack` | a managed tensor is given back exactly once; what it says of itself is checked before its memory is read |
//! | `nvtx` | loads the library that a profiler names and calls only what it put into our table |
//! | [`nvjpeg`] | the same for the JPEG decoder; calls only functions whose signatures were compared with its header, and no pixel is written outside the memory that was set aside for it |

#![allow(unsafe_code)]

pub mod cuda;
pub mod devices;
#[cfg(feature = "dlpack")]
pub mod dlpack;
#[cfg(all(any(feature = "cuda", feature = "nvtx"), target_os = "linux"))]
mod library;
pub mod nvjpeg;
#[cfg(all(feature = "nvtx", target_os = "linux"))]
pub mod nvtx;
