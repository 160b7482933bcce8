//! The errors of codecs: what happened, and what to do about it.

use std::borrow::Cow;

use infeed_core::error::{Error, ErrorKind, setting::SKIP};

/// An error for damaged data.
pub(super) fn corrupt(what: impl Into<Cow<'static, str>>) -> Error {
    Error::corrupt(what).hint(format!("fetch the object again or set {SKIP}"))
}

/// An error for valid data that no codec here reads.
pub(super) fn unsupported(what: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Unsupported, what).hint(format!("convert the file or set {SKIP}"))
}

/// The words of a library about a file.
#[cfg(any(feature = "gif", feature = "jxl", feature = "png", feature = "tiff", feature = "webp"))]
pub(super) fn cause(words: impl AsRef<str>) -> std::io::Error {
    std::io::Error::other(words.as_ref().trim().to_owned())
}
