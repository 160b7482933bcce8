//! Streams of batches, and the Python class `Batch`.

use std::{
    io::{self, Read, Write},
    os::{fd::AsRawFd, unix::net::UnixStream},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use engine::{BatchStream, LoaderState, loader::Monitor};
use futures::Stream as _;
use infeed as engine;
use pyo3::{
    PyTraverseError, PyVisit,
    exceptions::{PyKeyError, PyRuntimeError},
    prelude::*,
    sync::PyOnceLock,
    types::{PyBytes, PyDict, PyList},
};

use crate::{
    callbacks::Calls,
    dataset::{Dataset, escaped},
    errors, log, notebook,
    process::Owned,
    tensor::Tensor,
    wait,
};

type Item = Option<engine::Result<engine::Batch>>;

/// A loader's batches from some place on, epoch after epoch. Reads into the next epoch while one ends.
#[pyclass(frozen, module = "infeed._native")]
#[derive(Debug)]
pub(crate) struct Stream {
    /// `None` when closed.
    ahead: Owned<Mutex<Option<Ahead>>>,
    closing: Arc<AtomicBool>,
    place: Py<Place>,
    bell: OnceLock<Arc<Bell>>,
    calls: Calls,
}

#[derive(Debug)]
struct Ahead {
    stream: BatchStream,
    /// A batch of an epoch that was not requested yet.
    held: Option<engine::Batch>,
    /// The earliest epoch of the next batch.
    epoch: u64,
}

impl Ahead {
    /// The next batch of `epoch`; `Ready(None)` after its last.
    fn poll(&mut self, epoch: u64, cx: &mut Context<'_>) -> Poll<Item> {
        if self.epoch > epoch {
            return Poll::Ready(None);
        }
        let item = match self.held.take() {
            Some(batch) => Some(Ok(batch)),
            None => std::task::ready!(Pin::new(&mut self.stream).poll_next(cx)),
        };
        if let Some(Ok(batch)) = item {
            if batch.epoch() > epoch {
                // The requested epoch has no batches left, which can happen after a resume.
                self.epoch = batch.epoch();
                self.held = Some(batch);
                return Poll::Ready(None);
            }
            self.epoch = batch.state().epoch;
            return Poll::Ready(Some(Ok(batch)));
        }
        Poll::Ready(item)
    }
}

/// The place of a stream and its statistics. Stays usable after the stream is dropped.
#[pyclass(frozen, module = "infeed._native")]
#[derive(Debug)]
pub(crate) struct Place {
    state: Mutex<LoaderState>,
    monitor: Owned<Monitor>,
}

#[pymethods]
impl Place {
    /// The state after the last batch that was handed out, as JSON.
    fn state(&self) -> String {
        lock(&self.state).to_json()
    }

    fn epoch(&self) -> u64 {
        lock(&self.state).epoch
    }

    /// The statistics so far, as a page of HTML.
    fn page(&self, dataset: &Dataset, title: &str, config: &str) -> PyResult<String> {
        let config = serde_json::from_str(config).map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        Ok(infeed_cli::notebook::report_page(title, &*dataset.opened, &config, self.monitor.get()?.report()))
    }

    /// The statistics so far, as JSON.
    fn report(&self) -> PyResult<String> {
        let report = self.monitor.get()?.report();
        serde_json::to_string(&report).map_err(|error| PyRuntimeError::new_err(error.to_string()))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakes an event loop: the thread that finished a batch writes to one end, the event loop watches the other.
#[derive(Debug)]
struct Bell {
    rung: UnixStream,
    heard: UnixStream,
}

impl Bell {
    fn new() -> io::Result<Self> {
        let (rung, heard) = UnixStream::pair()?;
        rung.set_nonblocking(true)?;
        heard.set_nonblocking(true)?;
        Ok(Self { rung, heard })
    }

    fn silence(&self) {
        let mut bytes = [0; 64];
        while (&self.heard).read(&mut bytes).is_ok_and(|n| n == bytes.len()) {}
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        // A full buffer does not matter: the other end is already readable.
        let _ = (&self.rung).write(&[1]);
    }
}

impl Stream {
    pub(crate) fn new(py: Python<'_>, stream: BatchStream, from: LoaderState, calls: Calls) -> PyResult<Self> {
        let epoch = from.epoch;
        let place = Place { state: Mutex::new(from), monitor: Owned::new(stream.monitor()) };
        Ok(Self {
            ahead: Owned::new(Mutex::new(Some(Ahead { stream, held: None, epoch }))),
            closing: Arc::default(),
            place: Py::new(py, place)?,
            bell: OnceLock::new(),
            calls,
        })
    }

    fn taken(&self) -> PyResult<MutexGuard<'_, Option<Ahead>>> {
        match self.ahead.get()?.try_lock() {
            Ok(guard) => Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Err(PyRuntimeError::new_err(
                "another thread waits in this iterator: give each thread a loader of its own",
            )),
        }
    }

    fn hand_out(&self, py: Python<'_>, item: Item) -> PyResult<Option<Batch>> {
        log::deliver(py)?;
        match item {
            None => Ok(None),
            Some(Ok(batch)) => {
                lock(&self.place.get().state).clone_from(batch.state());
                Ok(Some(Batch::new(batch)))
            }
            Some(Err(error)) => {
                // No batch follows an error: the stream must not be used again.
                self.closing.store(true, Ordering::Relaxed);
                Err(errors::raise(py, &error))
            }
        }
    }
}

#[pymethods]
impl Stream {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.calls.traverse(&visit)
    }

    #[getter]
    fn place(&self, py: Python<'_>) -> Py<Place> {
        self.place.clone_ref(py)
    }

    /// The next batch of an epoch; None after its last, and when closed. Releases the GIL while it waits.
    fn next(&self, py: Python<'_>, epoch: u64) -> PyResult<Option<Batch>> {
        let item = {
            let mut guard = self.taken()?;
            let ahead = &mut *guard;
            let closing = &self.closing;
            let poll = |cx: &mut Context<'_>| match ahead {
                Some(ahead) if !closing.load(Ordering::Relaxed) => ahead.poll(epoch, cx),
                _ => Poll::Ready(None),
            };
            let item = wait::wait(py, poll);
            if self.closing.load(Ordering::Relaxed) {
                let ended = guard.take();
                py.detach(|| drop(ended));
            }
            item?
        };
        self.hand_out(py, item)
    }

    /// `(True, batch or None)` as from `next`, or `(False, None)`. Then poll again when `fileno()` becomes readable.
    fn poll(&self, py: Python<'_>, epoch: u64) -> PyResult<(bool, Option<Batch>)> {
        let bell = self.bell()?;
        bell.silence();
        let polled = match &mut *self.taken()? {
            Some(ahead) => ahead.poll(epoch, &mut Context::from_waker(&Waker::from(bell))),
            None => Poll::Ready(None),
        };
        match polled {
            Poll::Ready(item) => Ok((true, self.hand_out(py, item)?)),
            Poll::Pending => Ok((false, None)),
        }
    }

    fn fileno(&self) -> PyResult<i32> {
        Ok(self.bell()?.heard.as_raw_fd())
    }

    /// Ends its reads; a thread that waits in `next` gets None. Has nothing to end in a forked child.
    fn close(&self, py: Python<'_>) {
        self.closing.store(true, Ordering::Relaxed);
        if let Some(bell) = self.bell.get() {
            Arc::clone(bell).wake();
        }
        let Ok(ahead) = self.ahead.get() else { return };
        if let Ok(mut guard) = ahead.try_lock() {
            let ended = guard.take();
            drop(guard);
            py.detach(|| drop(ended));
        }
    }

    /// Whether it was closed, or ended by an error.
    #[getter]
    fn closed(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }
}

impl Stream {
    fn bell(&self) -> PyResult<Arc<Bell>> {
        if let Some(bell) = self.bell.get() {
            return Ok(Arc::clone(bell));
        }
        let made = Arc::new(Bell::new()?);
        Ok(Arc::clone(self.bell.get_or_init(|| made)))
    }
}

/// A batch of rows: a mapping from field names to values.
///
/// Images, labels and arrays are a Tensor, whose first axis counts the rows; a field of bytes is a list of bytes, a field
/// of text a list of str; lists and boxes are a dict of tensors. `len(batch)` is the number of fields, `batch.size` the number of rows.
#[pyclass(frozen, mapping, module = "infeed")]
pub(crate) struct Batch {
    batch: Mutex<engine::Batch>,
    /// Made at first use.
    fields: PyOnceLock<Py<PyDict>>,
}

impl Batch {
    fn new(batch: engine::Batch) -> Self {
        Self { batch: Mutex::new(batch), fields: PyOnceLock::new() }
    }

    fn dict<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PyDict>> {
        let make = || -> PyResult<Py<PyDict>> {
            let dict = PyDict::new(py);
            let mut batch = lock(&self.batch);
            let names: Vec<String> = batch.fields().map(|(name, _)| name.to_owned()).collect();
            for name in names {
                // Taken, not cloned: only a sole owner may allow writing to the values.
                let Some(tensor) = batch.take(&name) else { continue };
                dict.set_item(name, Tensor::new(tensor))?;
            }
            for (name, values) in batch.byte_fields() {
                let list = match batch.texts(name) {
                    Some(texts) => PyList::new(py, texts)?,
                    None => PyList::new(py, values.iter().map(|value| PyBytes::new(py, value)))?,
                };
                dict.set_item(name, list)?;
            }
            for name in batch.text_list_fields() {
                let rows = batch.text_lists(name).into_iter().flatten();
                let rows = rows.map(|row| PyList::new(py, row)).collect::<PyResult<Vec<_>>>()?;
                dict.set_item(name, PyList::new(py, rows)?)?;
            }
            for (name, list) in batch.list_fields() {
                let parts = PyDict::new(py);
                parts.set_item("values", Tensor::new(list.values().clone()))?;
                parts.set_item("offsets", Tensor::new(list.offsets().clone()))?;
                dict.set_item(name, parts)?;
            }
            for (name, marked) in batch.instance_fields() {
                dict.set_item(name, instances(py, marked)?)?;
            }
            Ok(dict.unbind())
        };
        Ok(self.fields.get_or_try_init(py, make)?.bind(py))
    }
}

/// Boxes with their labels and other values, by name.
fn instances<'py>(py: Python<'py>, marked: &engine::BatchInstances) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, tensor) in marked.tensors() {
        dict.set_item(name, Tensor::new(tensor.clone()))?;
    }
    if let Some(masks) = marked.masks() {
        let list = PyList::empty(py);
        for mask in masks {
            let runs = PyDict::new(py);
            runs.set_item("size", mask.size().to_vec())?;
            runs.set_item("counts", mask.counts())?;
            list.append(runs)?;
        }
        dict.set_item("masks", list)?;
    }
    Ok(dict)
}

#[pymethods]
impl Batch {
    fn __getitem__<'py>(&self, py: Python<'py>, field: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let dict = self.dict(py)?;
        match dict.get_item(field)? {
            Some(value) => Ok(value),
            None => {
                let names: Vec<String> = dict.keys().iter().map(|name| name.to_string()).collect();
                Err(PyKeyError::new_err(format!("{}: the fields are {}", field.repr()?, names.join(", "))))
            }
        }
    }

    fn __contains__(&self, py: Python<'_>, field: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.dict(py)?.contains(field)
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.dict(py)?.try_iter()?.into_any())
    }

    /// Number of fields, as for every mapping. For the number of rows see `size`.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.dict(py)?.len())
    }

    /// The names of the fields.
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.dict(py)?.call_method0("keys")
    }

    /// The values of the fields.
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.dict(py)?.call_method0("values")
    }

    /// Names and values of the fields.
    fn items<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.dict(py)?.call_method0("items")
    }

    /// The value of a field, or `default` if there is no such field.
    #[pyo3(signature = (field, default=None, /))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        field: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Ok(self.dict(py)?.get_item(field)?.or(default))
    }

    /// Number of rows, including padding.
    #[getter]
    fn size(&self) -> usize {
        lock(&self.batch).len()
    }

    /// Number of rows that are samples. The rows after them are padding.
    #[getter]
    fn valid(&self) -> usize {
        lock(&self.batch).valid()
    }

    /// The record of each row: its index in the dataset.
    #[getter]
    fn records(&self) -> Vec<u64> {
        lock(&self.batch).records().to_vec()
    }

    /// The epoch of this batch, counted from 0.
    #[getter]
    fn epoch(&self) -> u64 {
        lock(&self.batch).epoch()
    }

    /// The number of this batch in its epoch, counted from the place where reading began in it.
    #[getter]
    fn step(&self) -> u64 {
        lock(&self.batch).step()
    }

    /// Samples that were omitted or replaced, as dicts with epoch, record, object and error.
    #[getter]
    fn bad_samples<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for bad in lock(&self.batch).bad_samples() {
            let dict = PyDict::new(py);
            dict.set_item("epoch", bad.epoch)?;
            dict.set_item("record", bad.record)?;
            dict.set_item("object", &bad.object)?;
            dict.set_item("error", bad.error.to_string())?;
            list.append(dict)?;
        }
        Ok(list)
    }

    /// The place after this batch, regardless of read-ahead. For `Loader.load_state_dict`.
    fn state_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let json = lock(&self.batch).state().to_json();
        py.import("json")?.call_method1("loads", (json,))
    }

    /// Its images with their labels, for notebooks. For floats, the smallest value (at most 0) is black and the largest
    /// (at least 1) is white, so normalised images look paler than they are.
    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        let mut html = format!("<p>{}</p>", escaped(&self.__repr__(py)?));
        let (valid, records) = (self.valid(), self.records());
        let dict = self.dict(py)?;
        let labels: Option<Vec<i64>> = dict
            .get_item("label")?
            .and_then(|label| label.cast::<Tensor>().ok()?.get().values().to_host().ok()?.to_vec());
        let words = |row: usize| {
            let label = labels.as_ref().and_then(|labels| labels.get(row)).map(|label| format!("label {label}"));
            label.into_iter().chain(records.get(row).map(|record| format!("record {record}"))).collect()
        };
        for (name, value) in dict.iter() {
            let Ok(tensor) = value.cast::<Tensor>() else { continue };
            if let Some(png) = notebook::sheet(tensor.get().values(), valid, words) {
                let encoded: String = py
                    .import("base64")?
                    .call_method1("b64encode", (PyBytes::new(py, &png),))?
                    .call_method0("decode")?
                    .extract()?;
                let name = escaped(&name.to_string());
                html += &format!("<p>{name}</p><img alt=\"{name}\" src=\"data:image/png;base64,{encoded}\">");
            }
        }
        Ok(html)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let (rows, epoch, step) = (self.size(), self.epoch(), self.step());
        let names: Vec<String> = self.dict(py)?.keys().iter().map(|name| name.to_string()).collect();
        Ok(format!("<infeed.Batch {step} of epoch {epoch}: {rows} rows of {}>", names.join(", ")))
    }
}
