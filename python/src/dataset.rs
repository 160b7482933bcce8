//! Datasets opened by URL, and the Python class `Dataset`.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use infeed as engine;
use pyo3::{
    PyTraverseError, PyVisit,
    prelude::*,
    pybacked::PyBackedStr,
    types::{PyDict, PyInt, PyTuple},
};
use serde::Deserialize;

use crate::{
    callbacks::{self, Called},
    log,
    objects::PythonDataset,
    wait, words,
};

/// An opened dataset. It runs no threads. Usable from any thread; unpickling, also in other processes, opens it again.
#[pyclass(frozen, module = "infeed")]
#[derive(Debug)]
pub(crate) struct Dataset {
    pub(crate) opened: Arc<dyn engine::Dataset>,
    /// What users call it.
    name: String,
    /// A function and its arguments that make it again, for pickling.
    made: (Py<PyAny>, Py<PyTuple>),
    /// The Python object whose `__getitem__` returns the records.
    called: Option<Py<Called>>,
}

impl Dataset {
    pub(crate) fn named(&self) -> &str {
        &self.name
    }

    pub(crate) fn called(&self, py: Python<'_>) -> Option<Py<Called>> {
        self.called.as_ref().map(|called| called.clone_ref(py))
    }

    pub(crate) fn new(
        opened: Arc<dyn engine::Dataset>,
        name: String,
        made: (&Bound<'_, PyAny>, &Bound<'_, PyTuple>),
        called: Option<Py<Called>>,
    ) -> Self {
        Self { opened, name, made: (made.0.clone().unbind(), made.1.clone().unbind()), called }
    }
}

/// The kind of a field, or the files that are its channels.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a field is the name of a kind, or a list of files")]
enum Words {
    One(String),
    Several(Vec<String>),
}

/// The settings of [`engine::dataset::Open`] by their names.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
struct Options {
    format: Option<String>,
    split: Option<String>,
    labels: Option<String>,
    labels_only: bool,
    label_column: Option<String>,
    image_root: Option<String>,
    classes: Option<Vec<String>>,
    columns: Option<Vec<String>>,
    annotations: Option<String>,
    masks: Option<Masks>,
    channels: Option<String>,
    pattern: Option<String>,
    samples_per_patient: Option<u64>,
    fields: BTreeMap<String, Words>,
    manifests: Option<PathBuf>,
    patience: Option<f64>,
    listing: Option<String>,
    /// Rank of this process. Rank 0 makes the listing.
    rank: u32,
    allow_incomplete: bool,
    filters: Vec<String>,
    records: Option<String>,
}

/// Outlines of annotations, or files that a pattern names.
#[derive(Deserialize)]
#[serde(untagged, expecting = "masks are True, False, or how files of masks are named")]
enum Masks {
    Outlines(bool),
    Files(String),
}

impl Options {
    fn apply(self, py: Python<'_>, mut open: engine::dataset::Open) -> PyResult<engine::dataset::Open> {
        let Self { format, split, labels, classes, columns, annotations, masks, .. } = self;
        let Self {
            channels,
            pattern,
            samples_per_patient,
            fields,
            manifests,
            patience,
            listing,
            rank,
            allow_incomplete,
            filters,
            records,
            labels_only,
            label_column,
            image_root,
            ..
        } = self;
        if let Some(format) = format {
            open = open.format(format);
        }
        if let Some(split) = split {
            open = open.split(split);
        }
        if let Some(labels) = labels {
            open = open.labels(labels);
        }
        if let Some(column) = label_column {
            open = open.label_column(column);
        }
        if let Some(root) = image_root {
            open = open.image_root(root);
        }
        if let Some(classes) = classes {
            open = open.classes(classes);
        }
        if let Some(columns) = columns {
            open = open.columns(columns);
        }
        if let Some(annotations) = annotations {
            open = open.annotations(annotations);
        }
        match masks {
            Some(Masks::Outlines(read)) => open = open.masks(read),
            Some(Masks::Files(pattern)) => open = open.mask_files(pattern),
            None => {}
        }
        if let Some(channels) = channels {
            open = open.channels(channels);
        }
        if let Some(pattern) = pattern {
            open = open.pattern(pattern);
        }
        if let Some(samples) = samples_per_patient {
            open = open.samples_per_patient(samples);
        }
        for (name, words) in fields {
            open = match words {
                Words::One(word) => open.field(name, [word]),
                Words::Several(words) => open.field(name, words),
            };
        }
        if let Some(file) = listing {
            open = open.listing(file, rank);
        }
        for filter in filters {
            open = open.filter(filter.parse().map_err(|error| crate::errors::raise(py, &error))?);
        }
        if let Some(file) = records {
            open = open.records(file);
        }
        open = open.allow_incomplete(allow_incomplete).labels_only(labels_only);
        if let Some(dir) = manifests {
            open = open.manifests(dir);
        }
        if let Some(seconds) = patience {
            let patience = Duration::try_from_secs_f64(seconds).map_err(|_| {
                words::wrong(py, &format!("patience={seconds:?}: must be a number of seconds, not negative"))
            })?;
            open = open.patience(patience);
        }
        Ok(open)
    }
}

/// Opens the dataset at a URL. `options`: JSON of [`Options`].
#[pyfunction]
pub(crate) fn open(py: Python<'_>, url: String, options: String) -> PyResult<Dataset> {
    let parsed: Options = words::read(py, &options)?;
    log::listen(py)?;
    let opening = parsed.apply(py, engine::open(url.as_str()))?;
    let opened = wait::elsewhere(py, move || opening.blocking());
    log::deliver(py)?;
    let opened = opened?;
    let function = py.import("infeed._native")?.getattr("open")?;
    let args = (url.as_str(), options).into_pyobject(py)?;
    Ok(Dataset::new(opened, url, (&function, &args), None))
}

/// A dataset of a Python object, see [`PythonDataset::new`]. `one_size`: all images have the size of those in the first
/// record. `made`: a function and its arguments that make it again.
#[pyfunction]
#[pyo3(signature = (dataset, kinds, classes, identity, name, one_size, made))]
pub(crate) fn objects(
    dataset: &Bound<'_, PyAny>,
    kinds: &Bound<'_, PyDict>,
    classes: Option<Vec<String>>,
    identity: &str,
    name: String,
    one_size: bool,
    made: (Bound<'_, PyAny>, Bound<'_, PyTuple>),
) -> PyResult<Dataset> {
    let (called, shared) = Called::new(dataset)?;
    let opened = callbacks::inside(|| PythonDataset::new(dataset, shared, kinds, classes, identity, one_size))?;
    Ok(Dataset::new(Arc::new(opened), name, (&made.0, &made.1), Some(called)))
}

#[pymethods]
impl Dataset {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.made.0)?;
        visit.call(&self.made.1)?;
        visit.call(&self.called)
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(usize::try_from(self.opened.len())?)
    }

    /// Class names in the order of their indices; None if the dataset does not name its classes.
    #[getter]
    fn classes(&self) -> Option<Vec<String>> {
        self.opened.schema().classes.as_ref().map(|classes| classes.to_vec())
    }

    /// Names of the key points of each box; None if the dataset does not name any.
    #[getter]
    fn keypoints(&self) -> Option<Vec<String>> {
        self.opened.schema().names_of("keypoints").map(<[String]>::to_vec)
    }

    /// The fields of a record and their kinds ([`FieldKind::name`](engine::dataset::FieldKind::name)).
    #[getter]
    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let fields = PyDict::new(py);
        for field in &self.opened.schema().fields {
            fields.set_item(&field.name, field.kind.name())?;
        }
        Ok(fields)
    }

    /// The image fields that are masks.
    #[getter]
    fn masks(&self) -> Vec<String> {
        self.opened.schema().fields.iter().filter(|field| field.mask).map(|field| field.name.to_string()).collect()
    }

    /// The URL it was opened with, or the class of the Python object.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// The format that was recognised or named.
    #[getter]
    fn format(&self) -> &str {
        self.opened.format()
    }

    /// The file or object that holds a record.
    ///
    /// Raises IndexError beyond the last record.
    fn object(&self, record: u64) -> PyResult<String> {
        if record >= self.opened.len() {
            let len = self.opened.len();
            return Err(pyo3::exceptions::PyIndexError::new_err(format!("record {record} of {len}")));
        }
        Ok(self.opened.object(record))
    }

    /// Whether the records are exactly these files below `root`, in this order, each with the class of its folder.
    /// `samples`: pairs of path and class index, as `ImageFolder` has them.
    fn has_samples(&self, root: &str, samples: &Bound<'_, PyAny>) -> PyResult<bool> {
        let classes = self.opened.schema().classes.as_deref().unwrap_or_default();
        if samples.len()? as u64 != self.opened.len() {
            return Ok(false);
        }
        for (record, sample) in (0..).zip(samples.try_iter()?) {
            // Other items are not the samples of an `ImageFolder`.
            let Ok((path, class)) = sample?.extract::<(PyBackedStr, Bound<'_, PyAny>)>() else { return Ok(false) };
            // Types such as numpy's would be those of the batch.
            if !class.is_exact_instance_of::<PyInt>() {
                return Ok(false);
            }
            let Ok(class) = class.extract::<usize>() else { return Ok(false) };
            let path = Path::new(&*path);
            let place = path.strip_prefix(root).ok().and_then(|place| place.components().next());
            let named = place.zip(classes.get(class)).is_some_and(|(place, class)| place.as_os_str() == class.as_str());
            if !named || path != Path::new(&self.opened.object(record)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn __reduce__(&self, py: Python<'_>) -> (Py<PyAny>, Py<PyTuple>) {
        (self.made.0.clone_ref(py), self.made.1.clone_ref(py))
    }

    /// Whether the engine's threads call Python code for each record.
    #[getter]
    fn is_python(&self) -> bool {
        self.opened.format() == PythonDataset::FORMAT
    }

    /// An HTML table, for notebooks.
    fn _repr_html_(&self) -> String {
        let mut rows = vec![
            ("dataset", self.name.clone()),
            ("format", self.opened.format().to_owned()),
            ("records", self.opened.len().to_string()),
        ];
        let fields: Vec<String> = (self.opened.schema().fields.iter())
            .map(|field| format!("{}: {}", field.name, field.kind.name()))
            .collect();
        rows.push(("fields", fields.join(", ")));
        if let Some(classes) = &self.opened.schema().classes {
            let first: Vec<&str> = classes.iter().take(8).map(String::as_str).collect();
            let more = if classes.len() > first.len() { ", …" } else { "" };
            rows.push(("classes", format!("{}: {}{more}", classes.len(), first.join(", "))));
        }
        let rows: Vec<String> = (rows.iter())
            .map(|(name, value)| {
                format!("<tr><th style=\"text-align:left\">{name}</th><td>{}</td></tr>", escaped(value))
            })
            .collect();
        format!("<table>{}</table>", rows.concat())
    }

    fn __repr__(&self) -> String {
        let (len, format) = (self.opened.len(), self.opened.format());
        let names: Vec<&str> = self.opened.schema().fields.iter().map(|field| field.name.as_str()).collect();
        format!("<infeed.Dataset {:?}: {len} records of {format}, {}>", self.name, names.join(", "))
    }
}

/// Text escaped for HTML.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
