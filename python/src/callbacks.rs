//! Python functions and datasets that the engine's threads call.
//!
//! A thread must not attach to the interpreter while the interpreter ends. So at exit no new call starts, and the exit
//! waits up to a second for running calls.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use engine::{DType, Error, ErrorKind, Result, loader::SampleMut, transform::Draws};
use infeed as engine;
use pyo3::{
    PyTraverseError, PyVisit,
    exceptions::{PyException, PyMemoryError},
    prelude::*,
    types::{PyByteArray, PyDict, PyMapping},
};

use crate::{dataset::Dataset, objects::Array, tensor};

static INSIDE: AtomicUsize = AtomicUsize::new(0);
static ENDED: AtomicBool = AtomicBool::new(false);

/// How long the exit waits for running calls: a call that hangs must not keep the process alive.
const PATIENCE: Duration = Duration::from_secs(1);

/// A Python function or dataset that the engine calls.
///
/// The garbage collector must see the reference to it. Otherwise a trainer that holds a loader, which calls a method of
/// that trainer, would never be collected. The collector cannot look into the engine. So every user of an engine holds
/// this object, which alone reports the one shared reference. It needs no `__clear__`: it is made after the object that
/// it holds, and holds no other.
#[pyclass(frozen, module = "infeed._native")]
#[derive(Debug)]
pub(crate) struct Called(Arc<Py<PyAny>>);

impl Called {
    /// The handle for Python objects, and the reference for the engine.
    pub(crate) fn new(object: &Bound<'_, PyAny>) -> PyResult<(Py<Self>, Arc<Py<PyAny>>)> {
        let shared = Arc::new(object.clone().unbind());
        Ok((Py::new(object.py(), Self(Arc::clone(&shared)))?, shared))
    }
}

#[pymethods]
impl Called {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&*self.0)
    }
}

/// All Python objects that a loader's engine calls. Every user of that engine holds one.
#[derive(Debug)]
pub(crate) struct Calls {
    pub(crate) dataset: Py<Dataset>,
    pub(crate) map: Option<Py<Called>>,
}

impl Calls {
    pub(crate) fn clone_ref(&self, py: Python<'_>) -> Self {
        Self { dataset: self.dataset.clone_ref(py), map: self.map.as_ref().map(|map| map.clone_ref(py)) }
    }

    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.dataset)?;
        visit.call(&self.map)
    }
}

/// Runs a call into Python with Rust frames below it, which must not be unwound: the interpreter's exit waits for it.
pub(crate) fn inside<T>(run: impl FnOnce() -> T) -> T {
    struct Counted;
    impl Drop for Counted {
        fn drop(&mut self) {
            INSIDE.fetch_sub(1, Ordering::SeqCst);
        }
    }
    INSIDE.fetch_add(1, Ordering::SeqCst);
    let _counted = Counted;
    run()
}

/// Calls `run` with the interpreter, unless the interpreter has ended.
pub(crate) fn call<T>(run: impl FnOnce(Python<'_>) -> Result<T>) -> Result<T> {
    inside(|| {
        let gone = || Err(Error::new(ErrorKind::Internal, "the Python interpreter is shutting down"));
        if ENDED.load(Ordering::SeqCst) {
            return gone();
        }
        Python::try_attach(run).unwrap_or_else(gone)
    })
}

/// Ends all calls, for the exit of the interpreter.
#[pyfunction]
pub(crate) fn end_calls(py: Python<'_>) {
    ENDED.store(true, Ordering::SeqCst);
    py.detach(|| {
        let end = Instant::now() + PATIENCE;
        while INSIDE.load(Ordering::SeqCst) > 0 && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
    });
}

/// A Python exception as an error of the engine: an `Exception` makes the sample a bad one, any other exception ends
/// the run.
pub(crate) fn failed(py: Python<'_>, error: &PyErr, who: &str) -> Error {
    let kind = if error.is_instance_of::<PyMemoryError>(py) {
        ErrorKind::OutOfMemory
    } else if error.is_instance_of::<PyException>(py) {
        ErrorKind::Corrupt
    } else {
        ErrorKind::Internal
    };
    Error::new(kind, format!("the {who} raised")).with_source(error.clone_ref(py))
}

/// A Python function for `LoaderBuilder::map`. It gets a dict of arrays, copies of the sample's values. What it writes
/// into them or returns is copied to the batch. With `seeded` it also gets a seed, which depends on the sample and the
/// epoch.
pub(crate) fn map(
    function: Arc<Py<PyAny>>,
    seeded: bool,
) -> impl Fn(&mut SampleMut<'_>, Draws) -> Result<()> + Send + Sync + 'static {
    move |sample, mut draws| {
        let record = sample.record();
        call(|py| {
            let seed = seeded.then(|| draws.bits());
            let raised = |error: PyErr| failed(py, &error, "function given to map");
            let arrays = Arrays::of(py, sample).map_err(raised)?;
            // A separate reference for this call, which the garbage collector counts.
            let function = function.bind(py).clone();
            let answer = match seed {
                Some(seed) => function.call1((&arrays.dict, seed)),
                None => function.call1((&arrays.dict,)),
            };
            arrays.keep(&answer.map_err(raised)?, sample)
        })
        .map_err(|error| error.at_record(record))
    }
}

/// Copies of a sample's values.
struct Arrays<'py> {
    dict: Bound<'py, PyDict>,
    given: Vec<Given<'py>>,
}

struct Given<'py> {
    name: String,
    memory: Bound<'py, PyByteArray>,
    array: Bound<'py, PyAny>,
    dtype: DType,
    shape: Vec<usize>,
}

impl<'py> Arrays<'py> {
    fn of(py: Python<'py>, sample: &mut SampleMut<'_>) -> PyResult<Self> {
        let from = tensor::numpy_function(py, "frombuffer")?;
        let (dict, mut given) = (PyDict::new(py), Vec::new());
        for mut field in sample.fields_mut() {
            let (name, dtype, shape) = (field.name().to_owned(), field.dtype(), field.shape());
            let memory = PyByteArray::new(py, field.bytes_mut());
            let array = from.call1((&memory, tensor::name(dtype)))?.call_method1("reshape", (shape.clone(),))?;
            dict.set_item(&name, &array)?;
            given.push(Given { name, memory, array, dtype, shape });
        }
        Ok(Self { dict, given })
    }

    /// Writes the function's result into the batch.
    fn keep(self, answer: &Bound<'py, PyAny>, sample: &mut SampleMut<'_>) -> Result<()> {
        let wrong = |what: String| Error::config(format!("the function given to map {what}"));
        let answer = if answer.is_none() { self.dict.as_any() } else { answer };
        let Ok(answer) = answer.cast::<PyMapping>() else {
            return Err(wrong(format!("returned {answer}")).with_hint("return a dict of arrays, or None"));
        };
        let py = answer.py();
        let raised = |error: PyErr| failed(py, &error, "function given to map");
        for name in answer.keys().map_err(raised)?.iter() {
            if !self.given.iter().any(|given| name.eq(&given.name).unwrap_or(false)) {
                let names: Vec<&str> = self.given.iter().map(|given| given.name.as_str()).collect();
                return Err(wrong(format!("returned a field {name}"))
                    .with_hint(format!("return only fields of the batch: {}", names.join(", "))));
            }
        }
        for (mut field, Given { name, memory, array, dtype, shape }) in sample.fields_mut().zip(self.given) {
            let value = match answer.contains(&name).map_err(raised)? {
                true => answer.get_item(&name).map_err(raised)?,
                false => array.clone(),
            };
            let bytes = if value.is(&array) {
                memory.to_vec()
            } else {
                let now = Array::of(&value).map_err(raised)?;
                if (now.dtype, &now.shape) != (dtype, &shape) {
                    let what = format!("returned {name:?} as {} {:?}, not {dtype} {shape:?}", now.dtype, now.shape);
                    return Err(
                        wrong(what).with_hint("keep type and shape: the rows of the batch are already allocated")
                    );
                }
                now.bytes().map_err(raised)?.to_vec()
            };
            field.bytes_mut().copy_from_slice(&bytes);
        }
        Ok(())
    }
}
