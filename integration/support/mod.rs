//! Shared by the tests of the library and those of the command line.

pub(crate) mod arrays;
pub(crate) mod children;
pub(crate) mod clock;
pub(crate) mod detection;
pub(crate) mod host_kernels;
pub(crate) mod hub;
// Of the decoder's own tests: they write what no encoder does.
#[path = "../../jpeg/src/draws.rs"]
pub(crate) mod jpeg_draws;
#[path = "../../jpeg/src/tests/writer.rs"]
pub(crate) mod jpeg_writer;
// Shared with the fuzz targets, another crate.
#[allow(unreachable_pub, reason = "public for the fuzz targets")]
pub(crate) mod jpeg_check;
#[cfg(target_os = "linux")]
pub(crate) mod mock;
pub(crate) mod photos;
#[allow(unreachable_pub, reason = "public for the fuzz targets")]
pub(crate) mod plain_jpeg;
pub(crate) mod records;
pub(crate) mod s3;
pub(crate) mod store;
pub(crate) mod web;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

pub(crate) use self::jpeg_draws::Draws;
use infeed::{Batch, BatchStream, Dataset, Device, Loader, LoaderBuilder, Result};

/// The root of the repository: packages with tests lie right below it.
pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("packages lie in the repository")
}

/// Long enough for any machine; a test that needs it has hung.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until it is so, where nobody tells when; fails with these words where it never is.
pub(crate) fn until(what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

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

/// Bytes of no pattern, so that no piece is like another.
pub(crate) fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let (mut state, mut noise) = (seed, vec![0; bytes]);
    for word in noise.chunks_mut(8) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        word.copy_from_slice(&(state ^ state >> 32).to_le_bytes()[..word.len()]);
    }
    noise
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
