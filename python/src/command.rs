//! The command line, in this process.

use std::ffi::OsString;

use pyo3::prelude::*;

/// `infeed` with these arguments, as a program of that name does it; gives the exit code. `starter`: what starts another
/// one. It takes over signals, so a process does it once, and nothing else.
#[pyfunction]
pub(crate) fn command(py: Python<'_>, starter: Vec<OsString>, args: Vec<OsString>) -> u8 {
    py.detach(|| infeed_cli::main_of(starter, args))
}
