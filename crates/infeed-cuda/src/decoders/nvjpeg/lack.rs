//! Warns, once per process, if a GPU loader decodes JPEGs on the CPU because something is missing that the user can
//! provide.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use infeed_pixels::codec::{Finished, Job, Wait, Worker};

use super::route::file_of;

static TOLD: AtomicBool = AtomicBool::new(false);

/// The CPU worker of a plan that lacks something. It warns at the first JPEG, as a dataset may have none.
pub(super) struct Lacking {
    pub(super) worker: Box<dyn Worker>,
    /// What is missing, and how to provide it.
    pub(super) why: Arc<str>,
}

impl Worker for Lacking {
    fn submit(&mut self, job: Job) {
        // For later jobs this costs one atomic load.
        if !TOLD.load(Ordering::Relaxed) && has_jpeg(&job) && !TOLD.swap(true, Ordering::Relaxed) {
            let why = &self.why;
            // The Python package turns this target into a Python warning, see `python/src/log.rs`.
            tracing::warn!(target: "infeed::warning", "JPEGs are decoded on the CPU: {why}");
        }
        self.worker.submit(job);
    }

    fn poll(&mut self, wait: Wait) -> Vec<Finished> {
        self.worker.poll(wait)
    }
}

fn has_jpeg(job: &Job) -> bool {
    let mut files = job.items.iter().filter_map(|item| item.sample.as_ref().ok().and_then(file_of));
    files.any(|file| file.starts_with(&[0xff, 0xd8]))
}
