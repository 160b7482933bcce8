//! Told once a process: JPEGs of a GPU's loader are decoded on the CPU for want of something that could be had.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use infeed_pixels::codec::{Finished, Job, Wait, Worker};

use super::route::file_of;

static TOLD: AtomicBool = AtomicBool::new(false);

/// The CPU's worker of a plan that lacks something. Whether it matters is seen at the first JPEG: a dataset may have none.
pub(super) struct Lacking {
    pub(super) worker: Box<dyn Worker>,
    /// What is missing, and what to do.
    pub(super) why: Arc<str>,
}

impl Worker for Lacking {
    fn submit(&mut self, job: Job) {
        // Of later jobs a load, nothing more.
        if !TOLD.load(Ordering::Relaxed) && has_jpeg(&job) && !TOLD.swap(true, Ordering::Relaxed) {
            let why = &self.why;
            // Python's package makes a warning of the target, see `python/src/log.rs`.
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
