//! How a command ends when it does not end well.

use std::{fmt::Display, io, path::Path};

use infeed::{Error, ErrorKind};

use crate::{console::to_stderr, signals::Signal};

/// Why a command stopped, which decides the exit code.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Options that can't be: exit 2.
    Usage(String),
    /// The data or the machine refused: exit 1.
    Failed(String),
    /// Whoever read our output has read enough: exit 0.
    Pipe,
    /// A signal ended the run, after everything was written that was asked for: exit 130 or 143.
    Stopped(Signal, &'static str),
}

impl Failure {
    /// A file of the user's that could not be used; `what` is a verb phrase such as `cannot read`.
    pub(crate) fn file(what: &str, path: &Path, error: impl Display) -> Self {
        Self::Failed(format!("{what} {}: {error}", path.display()))
    }

    /// Tells the user on stderr, and gives the exit code.
    pub(crate) fn report(&self) -> u8 {
        match self {
            Self::Usage(message) => {
                to_stderr(format_args!("error: {message}\n\nFor more information, try '--help'."));
                2
            }
            Self::Failed(message) => {
                to_stderr(format_args!("error: {message}"));
                1
            }
            Self::Pipe => 0,
            Self::Stopped(signal, hint) => {
                to_stderr(format_args!("stopped by {}; {hint}", signal.name()));
                signal.exit_code()
            }
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::Config => Self::Usage(format!("{error:#}")),
            _ => Self::Failed(format!("{error:#}")),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Pipe,
            _ => Self::Failed(error.to_string()),
        }
    }
}
