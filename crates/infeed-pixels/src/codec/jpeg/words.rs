//! The decoder's errors as errors of infeed.

use infeed_core::error::{Error, ErrorKind};

use super::super::{corrupt, unsupported};

/// Keeps the text of the decoder's error and adds what to do.
pub(super) fn in_our_words(error: infeed_jpeg::Error) -> Error {
    let what = error.to_string();
    match error.kind() {
        infeed_jpeg::ErrorKind::Damaged => corrupt(what),
        infeed_jpeg::ErrorKind::Unsupported => unsupported(what),
        infeed_jpeg::ErrorKind::OutOfMemory => Error::new(ErrorKind::OutOfMemory, what).of_machine(),
        _ => Error::new(ErrorKind::Internal, what),
    }
}
