//! Values with threads, which work only in the process that made them.

use std::{mem::ManuallyDrop, process};

use pyo3::{PyResult, Python, exceptions::PyRuntimeError};

/// A value that belongs to the process that made it. In another process (after a fork) access is an error and the value
/// is never dropped: its threads do not exist there, and locks that they held stay locked.
#[derive(Debug)]
pub(crate) struct Owned<T: Send> {
    value: ManuallyDrop<T>,
    pid: u32,
}

impl<T: Send> Owned<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: ManuallyDrop::new(value), pid: process::id() }
    }

    /// # Errors
    /// `RuntimeError` in another process.
    pub(crate) fn get(&self) -> PyResult<&T> {
        if self.pid == process::id() {
            return Ok(&self.value);
        }
        Err(PyRuntimeError::new_err(format!(
            "this loader was made in process {}, and its threads run only there: make a loader after the fork, or \
             start processes with spawn or forkserver",
            self.pid
        )))
    }
}

impl<T: Send> Drop for Owned<T> {
    fn drop(&mut self) {
        if self.pid != process::id() {
            return;
        }
        let mut end = || {
            // SAFETY: dropped only here, once, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.value) }
        };
        // Detached from the interpreter: the threads that end here may be in a call into Python, which needs the GIL.
        match Python::try_attach(|py| py.detach(&mut end)) {
            Some(()) => {}
            None => end(),
        }
    }
}
