//! Told once a process: JPEGs of a GPU's loader are decoded on the CPU for want of something that could be had.

use std::sync::{
    OnceLock,
    atomic::{AtomicBool, Ordering},
};

use super::route::file_of;
use crate::codec::{Finished, Job, Wait, Worker};

/// What is missing, and what to do: of the first plan that lacked something.
static WHY: OnceLock<String> = OnceLock::new();
static TOLD: AtomicBool = AtomicBool::new(false);

/// Notes what a plan lacks. Whether it matters is seen at the first JPEG: a dataset may have none.
pub(super) fn note(why: String) {
    // Another one's reason is as good.
    let _ = WHY.set(why);
}

/// The CPU's worker of a plan that lacks something.
pub(super) struct Lacking(pub(super) Box<dyn Worker>);

impl Worker for Lacking {
    fn submit(&mut self, job: Job) {
        // Of later jobs a load, nothing more.
        if !TOLD.load(Ordering::Relaxed) && has_jpeg(&job) && !TOLD.swap(true, Ordering::Relaxed) {
            let why = WHY.get().map_or("", String::as_str);
            // Python's package makes a warning of the target, see `python/src/log.rs`.
            tracing::warn!(target: "infeed::warning", "JPEGs are decoded on the CPU: {why}");
        }
        self.0.submit(job);
    }

    fn poll(&mut self, wait: Wait) -> Vec<Finished> {
        self.0.poll(wait)
    }
}

fn has_jpeg(job: &Job) -> bool {
    let mut files = job.items.iter().filter_map(|item| item.sample.as_ref().ok().and_then(file_of));
    files.any(|file| file.starts_with(&[0xff, 0xd8]))
}
