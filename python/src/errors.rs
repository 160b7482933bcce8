//! Converts the engine's errors to Python exceptions, see `infeed/errors.py`.

use infeed::{
    Error, ErrorKind,
    internal::{Front, SETTINGS},
};
use pyo3::{exceptions::PyException, prelude::*};

/// The name of a kind's class in `infeed.errors`.
fn class(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Config => "ConfigError",
        ErrorKind::Empty => "EmptyError",
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

/// The names of settings in the engine's errors when it runs in Python. For the tests.
#[pyfunction]
pub(crate) fn settings() -> Vec<&'static str> {
    SETTINGS.iter().map(|setting| setting.name(Front::Python)).collect()
}

/// The Python exception in the chain of sources, if there is one.
fn cause(py: Python<'_>, error: &Error) -> Option<PyErr> {
    let mut below = std::error::Error::source(error);
    while let Some(error) = below {
        if let Some(raised) = error.downcast_ref::<PyErr>() {
            return Some(raised.clone_ref(py));
        }
        below = error.source();
    }
    None
}

/// The exception for an error of the engine. An exception that ends the program, such as `KeyboardInterrupt`, stays
/// unchanged.
pub(crate) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    let cause = cause(py, error);
    if let Some(raised) = cause.as_ref().filter(|raised| !raised.is_instance_of::<PyException>(py)) {
        return raised.clone_ref(py);
    }
    let made = || -> PyResult<PyErr> {
        let context = error.context();
        // The text of the whole chain: its sources are Rust errors, without exceptions of their own.
        let exception = py.import("infeed.errors")?.getattr(class(error.kind()))?.call1((format!("{error:#}"),))?;
        exception.setattr("record", context.record)?;
        exception.setattr("object", &context.object)?;
        exception.setattr("field", &context.field)?;
        exception.setattr("hint", error.hint())?;
        let raised = PyErr::from_value(exception);
        raised.set_cause(py, cause);
        Ok(raised)
    };
    made().unwrap_or_else(|failed| failed)
}
