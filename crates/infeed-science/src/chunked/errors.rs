//! Errors about chunks.

use infeed_core::error::{Error, ErrorKind};

/// An error about damaged bytes.
pub(crate) fn damaged(what: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::corrupt(what).with_hint("fetch the object again")
}

/// An error about a feature of the format that is not read.
pub(crate) fn unsupported(what: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Unsupported, what)
}
