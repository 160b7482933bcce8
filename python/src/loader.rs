//! A loader: threads and buffers, and the streams that use them.

use engine::{LoaderState, Transform, sampler::Shard, transform::View};
use infeed as engine;
use pyo3::{exceptions::PyTypeError, prelude::*};

use crate::{dataset::Dataset, errors, process::Owned, stream::Stream, wait};

/// The engine's loader. Python's `infeed.Loader` has the words for it.
#[pyclass(frozen, module = "infeed._native")]
#[derive(Debug)]
pub(crate) struct Loader(Owned<engine::Loader>);

/// What serde says, without a place in text that no user wrote.
pub(crate) fn without_place(error: &serde_json::Error) -> String {
    let words = error.to_string();
    words.split(" at line ").next().unwrap_or(&words).to_owned()
}

#[pymethods]
impl Loader {
    /// `config`: a `LoaderConfig` as JSON. `transform`: one as a line, or the name of one or of several views.
    #[new]
    fn new(py: Python<'_>, dataset: &Dataset, config: &str, transform: Option<&str>) -> PyResult<Self> {
        let mut config: engine::LoaderConfig = serde_json::from_str(config)
            .map_err(|error| PyTypeError::new_err(format!("Loader(): {}", without_place(&error))))?;
        if let Some(line) = transform {
            match View::preset(line) {
                Ok(views) => config.views = views,
                Err(_) => config.transform = line.parse::<Transform>().map_err(|error| errors::raise(py, &error))?,
            }
        }
        let builder = engine::Loader::builder(std::sync::Arc::clone(&dataset.opened)).config(config);
        let loader = wait::elsewhere(py, move || builder.build_blocking())?;
        Ok(Self(Owned::new(loader)))
    }

    /// Batches from the first of an epoch on, without an end.
    fn stream_of(&self, py: Python<'_>, epoch: u64) -> PyResult<Stream> {
        let loader = self.0.get()?;
        Stream::new(py, loader.epochs(epoch..u64::MAX), loader.state_before(epoch))
    }

    /// Batches behind a state, without an end.
    fn stream_behind(&self, py: Python<'_>, state: &str) -> PyResult<Stream> {
        let loader = self.0.get()?;
        let resume = || {
            let state = LoaderState::from_json(state)?;
            Ok((loader.resume_epochs(&state, ..u64::MAX)?, state))
        };
        let (stream, state) = resume().map_err(|error: engine::Error| errors::raise(py, &error))?;
        Stream::new(py, stream, state)
    }

    /// The state before an epoch, as JSON.
    fn state_before(&self, epoch: u64) -> PyResult<String> {
        Ok(self.0.get()?.state_before(epoch).to_json())
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(usize::try_from(self.0.get()?.batches_per_epoch())?)
    }

    /// The settings in force, as JSON.
    fn config(&self) -> PyResult<String> {
        Ok(serde_json::to_string(self.0.get()?.config()).expect("a config is always JSON"))
    }
}

/// This process among all, by the launcher's variables: rank, world size, and the same on its machine.
#[pyfunction]
pub(crate) fn launcher(py: Python<'_>) -> PyResult<(u32, u32, u32, u32)> {
    let shard = Shard::from_env().map_err(|error| errors::raise(py, &error))?;
    Ok((shard.rank(), shard.world(), shard.local_rank(), shard.local_world()))
}
