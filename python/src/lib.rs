//! The engine behind Python's `infeed`: the module `infeed._native`.
//!
//! ```text
//! infeed/loader.py ─ arguments as a LoaderConfig in JSON ─▶ Loader ─ stream(state) ─▶ Stream ─ next ─▶ Batch ─ [field] ─▶ Tensor
//! ```
//!
//! Python decides what arguments mean, and when epochs begin and end; here is what needs the engine. Five rules:
//!
//! - **No thread of the engine attaches to the interpreter**, so none waits for the GIL; but for those that call a dataset
//!   or function of the user's (`callbacks`).
//! - **A wait polls once while attached, and detaches only when nothing is ready** (`wait`): getting the GIL back beside
//!   a computing thread costs up to a switch interval. Slices of a wait end often enough for Ctrl-C.
//! - **What the engine calls is told to the garbage collector** by one object (`callbacks::Called`), which whatever uses the
//!   engine holds: it does not see into the engine.
//! - **Python's code that may run for long has no frame of Rust below it** (`infeed/_tensor.py`), or is waited for by the exit
//!   (`callbacks::inside`): a daemon thread is ended by unwinding, which Rust answers by ending the process.
//! - **Whatever has threads knows its process** (`process::Owned`): in a forked child they are not there.

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
        // As a subclass it would be one of Python's own objects, and slower.
        let mapping = module.py().import("collections.abc")?.getattr("Mapping")?;
        mapping.call_method1("register", (module.py().get_type::<Batch>(),))?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
