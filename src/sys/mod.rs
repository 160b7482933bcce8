//! The only room with `unsafe`. What each file promises to safe callers:
//!
//! | file | promise |
//! |---|---|
//! | [`rows`] | disjoint mutable rows of one allocation can be sent to different threads and put together again; memory is always initialised |
//! | [`buffer`] | what rows ask of memory that a driver gave; whoever implements it promises what is said there |
//! | [`handles`] | names of streams and events, whose makers vouch for them |
//! | [`kernels`] | reads and writes stay inside the slices they are given, whatever the parameters |
//! | [`cuda`] | never panics or aborts when there is no driver, GPU or library |
//! | [`devices`] | never panics: what is missing is told in words |
//! | `dlpack` | a managed tensor is given back exactly once; what it says of itself is checked before its memory is read |
//! | [`disk`] | asks the system how much room there is, or to forget what it keeps of a file; a refusal is no error |
//! | [`machine`] | reads what the system says of the machine; what it does not say is `None` |
//! | `numa` | reads what the system says of sockets; what it does not say changes nothing |
//! | `nvtx` | loads the library that a profiler names and calls only what it put into our table |
//! | [`process`] | reads what the system says of this process; what it does not say is `None` |
//! | `threads` | changes how and where the calling thread is scheduled, or tells its processor time, and nothing else; a refusal is no error |
//! | [`nvjpeg`] | the same for the JPEG decoder; calls only functions whose signatures were compared with its header, and no pixel is written outside the memory that was set aside for it |

#![allow(unsafe_code)]

pub(crate) mod buffer;
pub mod cuda;
pub mod devices;
pub mod disk;
#[cfg(feature = "dlpack")]
pub mod dlpack;
pub(crate) mod gpu;
pub(crate) mod handles;
pub mod kernels;
#[cfg(all(any(feature = "cuda", feature = "nvtx"), target_os = "linux"))]
mod library;
pub mod machine;
pub(crate) mod numa;
pub mod nvjpeg;
#[cfg(all(feature = "nvtx", target_os = "linux"))]
pub mod nvtx;
pub mod process;
pub mod rows;
pub(crate) mod threads;
