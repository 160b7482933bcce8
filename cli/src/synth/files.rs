//! Generates and writes files on all cores.

use std::{
    fs,
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread,
};

use infeed::internal::can_start_threads;

use crate::{
    failure::Failure,
    out::{BarOf, Out},
};

/// Files by number: each one's path below the folder, and how to make its bytes.
pub(super) trait Files: Sync {
    fn len(&self) -> usize;
    fn path(&self, index: usize) -> String;
    fn bytes(&self, index: usize) -> Result<Vec<u8>, Failure>;
}

/// What was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    pub files: u64,
    pub bytes: u64,
}

/// Writes all files, on all cores: the first error stops the rest.
pub(super) fn write_all(files: &impl Files, dir: &Path, out: &mut Out) -> Result<Made, Failure> {
    out.start_bar(files.len() as u64, BarOf::Things("files"));
    out.bar().set_message("writing");
    let bar = out.bar();
    let next = AtomicUsize::new(0);
    let bytes = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let failed = Mutex::new(None);
    let work = || {
        while !stop.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= files.len() {
                return;
            }
            match write_one(files, index, dir) {
                Ok(len) => bytes.fetch_add(len, Ordering::Relaxed),
                Err(failure) => {
                    stop.store(true, Ordering::Relaxed);
                    failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
                    return;
                }
            };
            bar.inc(1);
        }
    };
    let cores = infeed::internal::machine::cores().get().min(files.len());
    // With fewer threads it takes longer; this one is always there.
    let others = (0..cores).rev().find(|n| can_start_threads(*n).is_ok()).unwrap_or(0);
    thread::scope(|scope| {
        (0..others).for_each(|_| drop(scope.spawn(work)));
        work();
    });
    out.end_bar();
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(failure) => Err(failure),
        None => Ok(Made { files: files.len() as u64, bytes: bytes.into_inner() }),
    }
}

fn write_one(files: &impl Files, index: usize, dir: &Path) -> Result<u64, Failure> {
    let path = dir.join(files.path(index));
    let bytes = files.bytes(index)?;
    let folder = path.parent().unwrap_or(dir);
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(&path, &bytes));
    written.map_err(|error| Failure::file("cannot write", &path, error))?;
    Ok(bytes.len() as u64)
}
