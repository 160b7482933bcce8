//! What errors about chunks say.

use infeed_core::error::{Error, ErrorKind};

/// An error about bytes that are not what they should be.
pub(crate) fn damaged(what: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::corrupt(what).hint("fetch the object again")
}

/// An error about what this reader lacks.
pub(crate) fn unsupported(what: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Unsupported, what)
}
