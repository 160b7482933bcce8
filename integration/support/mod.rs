//! Shared by the tests.

#[cfg(any(feature = "dicom", feature = "hdf5", feature = "zarr"))]
#[allow(dead_code, reason = "a tool kit: each promise uses its own part")]
pub(crate) mod arrays;
pub(crate) mod command;
pub(crate) mod host_kernels;
#[cfg(feature = "http")]
#[allow(dead_code, reason = "a tool kit: each promise uses its own part")]
pub(crate) mod hub;
// Shared with the fuzz targets, another crate.
#[allow(unreachable_pub, dead_code, reason = "public for the fuzz targets")]
pub(crate) mod jpeg_check;
#[cfg(all(feature = "cuda", target_os = "linux"))]
#[allow(dead_code, reason = "a tool kit: each promise uses its own part")]
pub(crate) mod mock;
#[allow(unreachable_pub, dead_code, reason = "public for the fuzz targets")]
pub(crate) mod plain_jpeg;
pub(crate) mod records;
#[cfg(feature = "s3")]
#[allow(dead_code, reason = "a tool kit: each promise uses its own part")]
pub(crate) mod s3;
#[allow(dead_code, reason = "a tool kit: each promise uses its own part")]
pub(crate) mod store;
#[cfg(feature = "http")]
#[allow(dead_code, reason = "a tool kit: each promise uses its own part")]
pub(crate) mod web;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use infeed::{Batch, BatchStream, Dataset, Device, Loader, LoaderBuilder, Result};

/// The root of the repository: the tests are built as a part of the command line's package.
pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("packages lie in the repository")
}

/// Long enough for any machine; a test that needs it has hung.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A loader whose batches lie in host memory, also on a machine with a GPU.
pub(crate) fn builder(dataset: Arc<dyn Dataset>) -> LoaderBuilder {
    Loader::builder(dataset).device(Device::Cpu)
}

/// Files below a folder, in order, but for those that no dataset sees.
pub(crate) fn files_below(dir: &Path) -> Vec<PathBuf> {
    let (mut files, mut folders) = (Vec::new(), vec![dir.to_path_buf()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.file_name().unwrap().to_str().unwrap() {
                name if name.starts_with('.') => {}
                _ if path.is_dir() => folders.push(path),
                _ => files.push(path),
            }
        }
    }
    files.sort();
    files
}

/// Says in one line what a test leaves out on this machine.
#[expect(clippy::print_stderr, reason = "a test that passes without testing has to say so")]
pub(crate) fn skipped(why: &str) {
    eprintln!("skipped: {why}");
}

/// All batches of a stream, on this thread.
pub(crate) fn drain(stream: BatchStream) -> Result<Vec<Batch>> {
    stream.blocking().collect()
}

/// Batches as plain values, to compare runs: step, records, positions, valid, bytes of all fields.
pub(crate) type Plain = (u64, Vec<u64>, Vec<u64>, usize, Vec<u8>);

pub(crate) fn plain(batch: &Batch) -> Plain {
    let bytes = batch.fields().flat_map(|(_, tensor)| tensor.bytes().expect("host memory").iter().copied()).collect();
    (batch.epoch(), batch.records().to_vec(), batch.positions().to_vec(), batch.valid(), bytes)
}

/// Whether slow, wide versions of the property tests were asked for.
pub(crate) fn cases(quick: u32, slow: u32) -> u32 {
    if std::env::var_os("INFEED_SLOW_TESTS").is_some() { slow } else { quick }
}
