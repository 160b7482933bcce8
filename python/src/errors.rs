//! Errors of the engine as Python's, see `infeed/errors.py`.

use infeed::{
    Error, ErrorKind,
    internal::{Front, SETTINGS},
};
use pyo3::{exceptions::PyException, prelude::*};

/// The class of a kind, in `infeed.errors`.
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

/// What the engine's errors call its settings here, for the tests.
#[pyfunction]
pub(crate) fn settings() -> Vec<&'static str> {
    SETTINGS.iter().map(|setting| setting.name(Front::Python)).collect()
}

/// What Python itself raised, somewhere below.
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

/// The exception for an error of the engine. What was raised to end the program, such as `KeyboardInterrupt`, stays itself.
pub(crate) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    let cause = cause(py, error);
    if let Some(raised) = cause.as_ref().filter(|raised| !raised.is_instance_of::<PyException>(py)) {
        return raised.clone_ref(py);
    }
    let made = || -> PyResult<PyErr> {
        let context = error.context();
        // The whole chain: what is below it are errors of Rust, which have no exceptions.
        let exception = py.import("infeed.errors")?.getattr(class(error.kind()))?.call1((format!("{error:#}"),))?;
        exception.setattr("record", context.record)?;
        exception.setattr("object", &context.object)?;
        exception.setattr("field", &context.field)?;
        exception.setattr("hint", error.help())?;
        let raised = PyErr::from_value(exception);
        raised.set_cause(py, cause);
        Ok(raised)
    };
    made().unwrap_or_else(|failed| failed)
}
