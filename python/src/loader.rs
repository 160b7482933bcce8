//! A loader of the engine, and the streams that use its threads and buffers.

use std::{path::PathBuf, sync::Arc};

use engine::{
    LoaderState, Transform,
    codec::DecodeIndex,
    dataset::lengths as lengths_of,
    sampler::{LengthSampler, ListSampler, Shard},
    transform::View,
};
use infeed as engine;
use pyo3::{
    PyTraverseError, PyVisit,
    buffer::PyBuffer,
    exceptions::{PyIndexError, PyValueError},
    prelude::*,
};

use crate::{
    callbacks::{self, Called, Calls},
    dataset::Dataset,
    errors, log,
    process::Owned,
    stream::Stream,
    wait, words,
};

/// The engine's loader. Python's `infeed.Loader` wraps and documents it.
#[pyclass(frozen, module = "infeed._native")]
#[derive(Debug)]
pub(crate) struct Loader {
    engine: Owned<engine::Loader>,
    /// The decode index of JPEGs, and its file.
    index: Option<(PathBuf, DecodeIndex)>,
    calls: Calls,
}

/// The values of a Python `array("q")` as indices.
fn numbers(array: &Bound<'_, PyAny>, name: &str) -> PyResult<Vec<u64>> {
    // The pointer of an empty array may be unaligned, which a slice of numbers does not allow.
    if array.len()? == 0 {
        return Ok(Vec::new());
    }
    let numbers = PyBuffer::<i64>::get(array)?.to_vec(array.py())?;
    let number = |(at, number): (usize, i64)| {
        let negative = |_| PyIndexError::new_err(format!("{name}: record {number} at index {at} is negative"));
        u64::try_from(number).map_err(negative)
    };
    numbers.into_iter().enumerate().map(number).collect()
}

/// The end (exclusive) of a stream's epochs.
fn end(epoch: u64, alone: bool) -> u64 {
    if alone { epoch.saturating_add(1) } else { u64::MAX }
}

#[pymethods]
impl Loader {
    /// `config`: a `LoaderConfig` as JSON. `transform`: steps in one line, or the name of a preset or of a preset of
    /// views. `map`: a function for samples, and whether it takes a seed. `index`: the file of a decode index. `lengths`:
    /// a field or an `array("q")`, the most items of a batch, and a seed.
    #[new]
    #[pyo3(signature = (dataset, config, transform, map, index, lengths=None))]
    fn new(
        py: Python<'_>,
        dataset: &Bound<'_, Dataset>,
        config: &str,
        transform: Option<&str>,
        map: Option<(Bound<'_, PyAny>, bool)>,
        index: Option<PathBuf>,
        lengths: Option<(Bound<'_, PyAny>, u64, u64)>,
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
        let mut builder = engine::Loader::builder(Arc::clone(&dataset.get().opened)).config(config.clone());
        if let Some((_, index)) = &index {
            builder = builder.decode_index(index.clone());
        }
        if let Some((given, budget, seed)) = lengths {
            let opened = Arc::clone(&dataset.get().opened);
            let rows = config.batch_size;
            let lengths = match given.extract::<String>() {
                Ok(field) => wait::elsewhere(py, move || {
                    engine::internal::wait_for(async move { lengths_of(&*opened, &field).await })?
                })?,
                Err(_) => numbers(&given, "lengths")?,
            };
            if lengths.len() as u64 != dataset.get().opened.len() {
                let (given, records) = (lengths.len(), dataset.get().opened.len());
                return Err(PyValueError::new_err(format!("lengths: {given} numbers for {records} records")));
            }
            let sampler = LengthSampler::new(lengths, budget, rows, seed);
            builder = builder.sampler(Arc::new(sampler.map_err(|error| errors::raise(py, &error))?));
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

    /// A loader with the same threads and memory in the order of a sampler. `records`: an epoch's records
    /// (`array("q")`). `sizes`: the number of records in each batch, if the sampler sets it.
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

    /// Batches from the start of an epoch on, without an end; with `alone` only those of this epoch.
    fn stream_of(&self, py: Python<'_>, epoch: u64, alone: bool) -> PyResult<Stream> {
        let loader = self.engine.get()?;
        let stream = loader.epochs(epoch..end(epoch, alone));
        Stream::new(py, stream, loader.state_before(epoch), self.calls.clone_ref(py))
    }

    /// Batches after a state, without an end; with `alone` only those of its epoch.
    fn stream_behind(&self, py: Python<'_>, state: &str, alone: bool) -> PyResult<Stream> {
        let loader = self.engine.get()?;
        let resume = || {
            let state = LoaderState::from_json(state)?;
            // A state after an epoch's last batch has the order of the epoch that ended.
            let state = if alone { state.for_order(&loader.state_before(state.epoch))? } else { state };
            Ok((loader.resume_epochs(&state, ..end(state.epoch, alone))?, state))
        };
        let (stream, state) = resume().map_err(|error: engine::Error| errors::raise(py, &error))?;
        Stream::new(py, stream, state, self.calls.clone_ref(py))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.calls.traverse(&visit)
    }

    /// The state at the start of an epoch, as JSON.
    fn state_before(&self, epoch: u64) -> PyResult<String> {
        Ok(self.engine.get()?.state_before(epoch).to_json())
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(usize::try_from(self.engine.get()?.batches_per_epoch())?)
    }

    /// Adds the row positions found in JPEGs to the file of the index, if there is one.
    fn save_index(&self, py: Python<'_>) -> PyResult<()> {
        self.engine.get()?;
        let Some((path, index)) = self.index.clone() else { return Ok(()) };
        wait::elsewhere(py, move || index.save(path))
    }

    /// The settings in use, as JSON.
    fn config(&self) -> PyResult<String> {
        Ok(serde_json::to_string(self.engine.get()?.config()).expect("a config is always JSON"))
    }
}

/// From the launcher's variables: rank, world size, local rank, and number of processes on this machine.
#[pyfunction]
pub(crate) fn launcher(py: Python<'_>) -> PyResult<(u32, u32, u32, u32)> {
    let shard = Shard::from_env().map_err(|error| errors::raise(py, &error))?;
    Ok((shard.rank(), shard.world(), shard.local_rank(), shard.local_world()))
}

/// Adds folders in which to look for nvJPEG, in addition to the system's.
#[pyfunction]
pub(crate) fn look_for_nvjpeg(folders: Vec<PathBuf>) {
    infeed::internal::look_in(folders);
}

/// The GPU of a local rank if no GPU is named. Calls the driver, which may take a second the first time.
#[pyfunction]
pub(crate) fn gpu_of_rank(py: Python<'_>, local_rank: u32) -> u32 {
    py.detach(|| infeed::internal::gpu_of_rank(local_rank))
}
