//! Errors of the engine as Python's, see `infeed/errors.py`.

use infeed::{Error, ErrorKind};
use pyo3::prelude::*;

/// The class of a kind, in `infeed.errors`.
fn class(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Config => "ConfigError",
        ErrorKind::NotFound => "NotFoundError",
        ErrorKind::Denied => "DeniedError",
        ErrorKind::Io => "IoError",
        ErrorKind::Corrupt => "CorruptError",
        ErrorKind::Unsupported => "UnsupportedError",
        ErrorKind::State => "StateError",
        ErrorKind::Device => "DeviceError",
        ErrorKind::OutOfMemory => "OutOfMemoryError",
        _ => "InternalError",
    }
}

/// The exception for an error of the engine.
pub(crate) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    let made = || -> PyResult<PyErr> {
        let context = error.context();
        // The whole chain: what is below it are errors of Rust, which have no exceptions.
        let exception = py.import("infeed.errors")?.getattr(class(error.kind()))?.call1((format!("{error:#}"),))?;
        exception.setattr("record", context.record)?;
        exception.setattr("object", &context.object)?;
        exception.setattr("hint", error.help())?;
        Ok(PyErr::from_value(exception))
    };
    made().unwrap_or_else(|failed| failed)
}
