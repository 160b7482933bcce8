//! The engine behind Python's `infeed`: the module `infeed._native`.
//!
//! ```text
//! infeed/loader.py ─ arguments as a LoaderConfig in JSON ─▶ Loader ─ stream(state) ─▶ Stream ─ next ─▶ Batch ─ [field] ─▶ Tensor
//! ```
//!
//! The Python code interprets arguments, and starts and ends epochs. This crate contains what needs the engine. Five
//! rules:
//!
//! - **The engine's threads do not attach to the interpreter**, so they never wait for the GIL. Exception: threads that
//!   call the user's dataset or function (`callbacks`).
//! - **A wait polls once while attached, and detaches only if nothing is ready** (`wait`): while another thread
//!   computes, getting the GIL back takes up to a switch interval. A wait checks for Ctrl-C every 50 ms.
//! - **The garbage collector sees the Python objects that the engine calls** through one object (`callbacks::Called`),
//!   which every user of the engine holds. It cannot look into the engine.
//! - **Python code that may run long has no Rust frame below it** (`infeed/_tensor.py`), or the exit waits for it
//!   (`callbacks::inside`): CPython ends a daemon thread by unwinding, and a Rust frame then aborts the process.
//! - **Everything with threads stores its process id** (`process::Owned`): in a forked child these threads do not
//!   exist.

mod callbacks;
mod columns;
mod command;
mod dataset;
mod errors;
mod held;
mod loader;
mod log;
mod notebook;
mod objects;
mod process;
mod stream;
mod tensor;
mod wait;
mod words;

use pyo3::pymodule;

#[pymodule(gil_used = false)]
mod _native {
    #[pymodule_export]
    use super::{
        callbacks::end_calls,
        columns::{columns, subset},
        command::command,
        dataset::{Dataset, objects, open},
        errors::settings,
        loader::{Loader, gpu_of_rank, launcher, look_for_nvjpeg},
        stream::{Batch, Place, Stream},
        tensor::Tensor,
    };
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        infeed::internal::speak_as(infeed::internal::Front::Python);
        // Registered, since a subclass would be a Python object, and slower.
        let mapping = module.py().import("collections.abc")?.getattr("Mapping")?;
        mapping.call_method1("register", (module.py().get_type::<Batch>(),))?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
