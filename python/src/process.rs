//! Whatever has threads, in the process that has them.

use std::{mem::ManuallyDrop, process};

use pyo3::{PyResult, Python, exceptions::PyRuntimeError};

/// A value of the process that made it. Elsewhere (after a fork) it is refused, and never dropped: locks of threads that
/// are not there may be held for ever.
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
            "this loader was made in process {}, and its threads are there: make one after the fork, or start processes with \
             spawn or forkserver",
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
            // SAFETY: dropped once, here, and not touched again.
            unsafe { ManuallyDrop::drop(&mut self.value) }
        };
        // Without the GIL: threads that end with it may be in a call of Python's.
        match Python::try_attach(|py| py.detach(&mut end)) {
            Some(()) => {}
            None => end(),
        }
    }
}
