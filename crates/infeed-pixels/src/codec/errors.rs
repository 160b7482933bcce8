//! Errors of codecs: what is wrong, and what to do.

use std::borrow::Cow;

use infeed_core::error::{Error, ErrorKind, setting::SKIP};

/// An error for damaged data.
pub(super) fn corrupt(what: impl Into<Cow<'static, str>>) -> Error {
    Error::corrupt(what).with_hint(format!("fetch the object again or set {SKIP}"))
}

/// An error for valid data that no built-in codec reads.
pub(super) fn unsupported(what: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Unsupported, what).with_hint(format!("convert the file or set {SKIP}"))
}

/// A library's error message as an error source.
#[cfg(any(feature = "gif", feature = "jxl", feature = "png", feature = "tiff", feature = "webp-rust"))]
pub(super) fn cause(words: impl AsRef<str>) -> std::io::Error {
    std::io::Error::other(words.as_ref().trim().to_owned())
}
