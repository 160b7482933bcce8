//! Errors of the engine as Python's, see `infeed/errors.py`.

use infeed::{Error, ErrorKind};
use pyo3::prelude::*;

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

/// What the engine says of its own settings, and what they are called here.
const WORDS: [(&str, &str); 6] = [
    ("set on_bad_sample(SkipPadded)", "give on_bad_sample={\"skip_padded\": {\"at_most\": …}}"),
    ("set on_bad_sample(Skip)", "give on_bad_sample={\"skip\": {\"at_most\": …}}"),
    ("set last_batch to partial or pad", "give drop_last=False"),
    ("columns(…)", "columns=[…]"),
    ("lower workers", "lower num_workers"),
    (" or workers", " or num_workers"),
];

fn in_python(words: &str) -> String {
    WORDS.iter().fold(words.to_owned(), |words, (ours, theirs)| words.replace(ours, theirs))
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

/// The exception for an error of the engine.
pub(crate) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    let made = || -> PyResult<PyErr> {
        let context = error.context();
        // The whole chain: what is below it are errors of Rust, which have no exceptions.
        let (words, hint) = (format!("{error:#}"), error.help().map(in_python));
        let words = match error.help().zip(hint.as_deref()) {
            Some((ours, theirs)) => words.replacen(ours, theirs, 1),
            None => words,
        };
        let words = words.replacen("config: workers is", "config: num_workers is", 1);
        let exception = py.import("infeed.errors")?.getattr(class(error.kind()))?.call1((words,))?;
        exception.setattr("record", context.record)?;
        exception.setattr("object", &context.object)?;
        exception.setattr("hint", hint)?;
        let raised = PyErr::from_value(exception);
        raised.set_cause(py, cause(py, error));
        Ok(raised)
    };
    made().unwrap_or_else(|failed| failed)
}
