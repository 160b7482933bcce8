//! The command line, in this process.

use std::ffi::OsString;

use pyo3::prelude::*;

/// Runs the command line `infeed` with these arguments. Returns the exit code. `starter`: the command that starts
/// another one. It takes over signals, so a process must call it only once and do nothing else.
#[pyfunction]
pub(crate) fn command(py: Python<'_>, starter: Vec<OsString>, args: Vec<OsString>) -> u8 {
    py.detach(|| infeed_cli::main_of(starter, args))
}
