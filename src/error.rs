//! The only error type: what went wrong, where, and what to do about it.

#[doc(inline)]
pub use infeed_core::error::{Error, ErrorContext, ErrorKind, Result};
