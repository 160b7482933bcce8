//! Opening a dataset where nobody awaits.

use std::{future::IntoFuture, num::NonZeroUsize, sync::Arc};

use crate::{
    dataset::{Dataset, Open},
    engine::IoRuntime,
};
use infeed_core::error::Result;

impl Open {
    /// Opens the dataset and waits for it, for code that is not async: threads of its own do the asking, so it needs no
    /// runtime here, whatever the store. Within async code, await it instead: this blocks the thread.
    ///
    /// ```
    /// let dataset = infeed::open("synthetic://?count=50&classes=5").blocking()?;
    /// assert_eq!(dataset.len(), 50);
    /// # Ok::<(), infeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// As of awaiting it; `OutOfMemory` when the system gives no threads.
    pub fn blocking(self) -> Result<Arc<dyn Dataset>> {
        IoRuntime::with_threads(NonZeroUsize::MIN)?.wait_for(self.into_future())?
    }
}
