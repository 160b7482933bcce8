//! A loader: threads and buffers, and the streams that use them.

use std::{path::PathBuf, sync::Arc};

use engine::{
    LoaderState, Transform,
    codec::DecodeIndex,
    sampler::{ListSampler, Shard},
    transform::View,
};
use infeed as engine;
use pyo3::{PyTraverseError, PyVisit, buffer::PyBuffer, exceptions::PyIndexError, prelude::*};

use crate::{
    callbacks::{self, Called, Calls},
    dataset::Dataset,
    errors, log,
    process::Owned,
    stream::Stream,
    wait, words,
};

/// The engine's loader. Python's `infeed.Loader` has the words for it.
#[pyclass(frozen, module = "infeed._native")]
#[derive(Debug)]
pub(crate) struct Loader {
    engine: Owned<engine::Loader>,
    /// What it knows of JPEGs, and where that is kept.
    index: Option<(PathBuf, DecodeIndex)>,
    calls: Calls,
}

/// What a Python `array("q")` holds, of numbers that are places.
fn numbers(array: &Bound<'_, PyAny>, name: &str) -> PyResult<Vec<u64>> {
    // The memory of an empty array may lie anywhere, which no slice of numbers may.
    if array.len()? == 0 {
        return Ok(Vec::new());
    }
    let numbers = PyBuffer::<i64>::get(array)?.to_vec(array.py())?;
    let number = |(at, number): (usize, i64)| {
        let negative = |_| PyIndexError::new_err(format!("{name}: record {number} at place {at} is negative"));
        u64::try_from(number).map_err(negative)
    };
    numbers.into_iter().enumerate().map(number).collect()
}

/// The epoch before which a stream ends.
fn end(epoch: u64, alone: bool) -> u64 {
    if alone { epoch.saturating_add(1) } else { u64::MAX }
}

#[pymethods]
impl Loader {
    /// `config`: a `LoaderConfig` as JSON. `transform`: one as a line, or the name of one or of several views.
    /// `map`: a function for samples, and whether it takes a number of its own for each. `index`: the file of a decode index.
    #[new]
    fn new(
        py: Python<'_>,
        dataset: &Bound<'_, Dataset>,
        config: &str,
        transform: Option<&str>,
        map: Option<(Bound<'_, PyAny>, bool)>,
        index: Option<PathBuf>,
    ) -> PyResult<Self> {
        log::listen(py)?;
        let mut config: engine::LoaderConfig = words::read(py, config)?;
        if let Some(line) = transform {
            match View::preset(line) {
                Ok(views) => config.views = views,
                Err(_) => config.transform = line.parse::<Transform>().map_err(|error| errors::raise(py, &error))?,
            }
        }
        let open = |path: PathBuf| DecodeIndex::open(&path, config.index_bytes()).map(|index| (path, index));
        let index = index.map(open).transpose().map_err(|error| errors::raise(py, &error))?;
        let mut builder = engine::Loader::builder(Arc::clone(&dataset.get().opened)).config(config);
        if let Some((_, index)) = &index {
            builder = builder.decode_index(index.clone());
        }
        let mut calls = Calls { dataset: dataset.clone().unbind(), map: None };
        if let Some((function, seeded)) = map {
            let (called, shared) = Called::new(&function)?;
            calls.map = Some(called);
            builder = builder.map(callbacks::map(shared, seeded));
        }
        let loader = wait::elsewhere(py, move || builder.build_blocking());
        log::deliver(py)?;
        Ok(Self { engine: Owned::new(loader?), index, calls })
    }

    /// The same threads and memory in the order of a sampler: records of an epoch (`array("q")`), and how many of them are
    /// in each batch, where that is said.
    fn listed(&self, py: Python<'_>, records: &Bound<'_, PyAny>, sizes: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let loader = self.engine.get()?;
        let records = numbers(records, "sampler")?;
        let sizes = sizes.map(|sizes| numbers(sizes, "batch_sampler")).transpose()?;
        let listed = || {
            let list = ListSampler::new(loader.dataset().len(), records)?;
            let list = match sizes {
                Some(sizes) => list.with_batches(sizes.into_iter().map(|size| size as usize))?,
                None => list,
            };
            loader.with_sampler(Arc::new(list))
        };
        let engine = Owned::new(listed().map_err(|error: engine::Error| errors::raise(py, &error))?);
        Ok(Self { engine, index: None, calls: self.calls.clone_ref(py) })
    }

    /// Batches from the first of an epoch on, without an end, or those of this epoch alone.
    fn stream_of(&self, py: Python<'_>, epoch: u64, alone: bool) -> PyResult<Stream> {
        let loader = self.engine.get()?;
        let stream = loader.epochs(epoch..end(epoch, alone));
        Stream::new(py, stream, loader.state_before(epoch), self.calls.clone_ref(py))
    }

    /// Batches behind a state, without an end, or those of its epoch alone.
    fn stream_behind(&self, py: Python<'_>, state: &str, alone: bool) -> PyResult<Stream> {
        let loader = self.engine.get()?;
        let resume = || {
            let state = LoaderState::from_json(state)?;
            // Behind an epoch's last batch it has the order that ended.
            let state = if alone { state.for_order(&loader.state_before(state.epoch))? } else { state };
            Ok((loader.resume_epochs(&state, ..end(state.epoch, alone))?, state))
        };
        let (stream, state) = resume().map_err(|error: engine::Error| errors::raise(py, &error))?;
        Stream::new(py, stream, state, self.calls.clone_ref(py))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.calls.traverse(&visit)
    }

    /// The state before an epoch, as JSON.
    fn state_before(&self, epoch: u64) -> PyResult<String> {
        Ok(self.engine.get()?.state_before(epoch).to_json())
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(usize::try_from(self.engine.get()?.batches_per_epoch())?)
    }

    /// Leaves what was learned of JPEGs in the file of the index, if there is one.
    fn save_index(&self, py: Python<'_>) -> PyResult<()> {
        self.engine.get()?;
        let Some((path, index)) = self.index.clone() else { return Ok(()) };
        wait::elsewhere(py, move || index.save(path))
    }

    /// The settings in force, as JSON.
    fn config(&self) -> PyResult<String> {
        Ok(serde_json::to_string(self.engine.get()?.config()).expect("a config is always JSON"))
    }
}

/// This process among all, by the launcher's variables: rank, world size, and the same on its machine.
#[pyfunction]
pub(crate) fn launcher(py: Python<'_>) -> PyResult<(u32, u32, u32, u32)> {
    let shard = Shard::from_env().map_err(|error| errors::raise(py, &error))?;
    Ok((shard.rank(), shard.world(), shard.local_rank(), shard.local_world()))
}

/// Where nvJPEG is looked for, beside the places that the system knows.
#[pyfunction]
pub(crate) fn look_for_nvjpeg(folders: Vec<PathBuf>) {
    infeed::internal::look_in(folders);
}

/// Which GPU a rank of this machine takes where none is named. Asks the driver, which may take a second the first time.
#[pyfunction]
pub(crate) fn gpu_of_rank(py: Python<'_>, local_rank: u32) -> u32 {
    py.detach(|| infeed::internal::gpu_of_rank(local_rank))
}
