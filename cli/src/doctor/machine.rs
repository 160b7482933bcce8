//! Properties of the machine and the data that make loading slow with any settings.

use std::path::Path;

use infeed::{
    Dataset,
    internal::{disk, machine, process},
    report::Stage,
};
use serde::Serialize;

use crate::{alone::Sizes, busy::Busy, report::RunReport, units};

/// One check.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Check {
    pub name: &'static str,
    /// Whether there is nothing to do.
    pub ok: bool,
    pub words: String,
}

impl Check {
    fn new(name: &'static str, ok: bool, words: impl Into<String>) -> Self {
        Self { name, ok, words: words.into() }
    }
}

/// An image with more pixels takes more memory than many others together.
const HUGE_PIXELS: u64 = 20_000_000;
/// For a smaller object, the request costs more than its bytes: a request takes as long as some hundred KB.
const TINY_BYTES: u64 = 64 << 10;
/// Below this rate per thread, the disk limits.
const SLOW_DISK: f64 = 100e6;
/// What programs that pass batches between processes need in /dev/shm.
const SMALL_SHM: u64 = 1 << 30;
/// Each request and each open file takes one file descriptor.
const FEW_FILES: u64 = 4096;

/// All checks of the machine, the run and the data.
pub(crate) fn checks(run: &RunReport, busy: Option<&Busy>, sizes: Option<&Sizes>, dataset: &dyn Dataset) -> Vec<Check> {
    let cores = infeed::internal::machine::cores().get();
    let all = machine::processors().unwrap_or(0);
    let mut checks = vec![cores_words(run.workers.unwrap_or(0), cores, all, machine::cpu_quota())];
    checks.extend(busy.map(others_words));
    if let Some(sizes) = sizes {
        checks.extend(object_words(&sizes.bytes, dataset.needs_fetch()));
        checks.extend(image_words(&sizes.pixels));
    }
    checks.extend(disk_words(run, dataset.needs_fetch()));
    if let Some(space) = disk::free_space(Path::new("/dev/shm")) {
        let words = format!("{} free", units::size(space.free));
        checks.push(Check::new("/dev/shm", space.free >= SMALL_SHM, words));
    }
    if let Some(most) = process::open_files() {
        let words = match most {
            u64::MAX => "no limit".into(),
            most => format!(
                "{} at a time{}",
                units::count(most),
                if most < FEW_FILES { "; raise it with ulimit -n" } else { "" }
            ),
        };
        checks.push(Check::new("open files", most >= FEW_FILES, words));
    }
    let devices = infeed::device::devices();
    checks.push(Check::new("GPU", true, devices.to_string().lines().collect::<Vec<_>>().join("; ")));
    checks
}

fn cores_words(workers: usize, cores: usize, machine: usize, quota: Option<f64>) -> Check {
    let mut words = format!("{cores} usable");
    if machine > cores {
        words += &format!(" of {machine}");
    }
    if let Some(quota) = quota.filter(|quota| *quota < cores as f64) {
        words +=
            &format!("; the container may use the time of {quota:.1} cores, so more threads than that are throttled");
        return Check::new("cores", workers as f64 <= quota.ceil(), format!("{words}; {workers} workers"));
    }
    words += &format!("; {workers} workers");
    if workers > cores {
        words += ", more than there are cores";
    }
    Check::new("cores", workers <= cores, words)
}

/// Use of the cores by other processes.
fn others_words(busy: &Busy) -> Check {
    let mut words = format!("held {:.1} of {} cores during the runs", busy.others, busy.cores);
    if busy.steal >= 0.05 {
        words += &format!("; the host of this virtual machine kept {:.1}", busy.steal);
    }
    if busy.is_short() {
        words += ", too short to judge";
    }
    if busy.is_crowded() {
        words += "; run again on a quiet machine";
    }
    Check::new("other processes", !busy.is_crowded(), words)
}

fn object_words(bytes: &[u64], remote: bool) -> Option<Check> {
    let mut sorted: Vec<u64> = bytes.iter().copied().filter(|len| *len > 0).collect();
    sorted.sort_unstable();
    let median = *sorted.get(sorted.len() / 2)?;
    let words = format!("the median record reads {}", units::size(median));
    let tiny = remote && median < TINY_BYTES;
    let words = if tiny {
        format!("{words}: a request costs more than these bytes; pack the records into shards")
    } else {
        words
    };
    Some(Check::new("object sizes", !tiny, words))
}

fn image_words(pixels: &[u64]) -> Option<Check> {
    let largest = *pixels.iter().max()?;
    let huge = pixels.iter().filter(|pixels| **pixels > HUGE_PIXELS).count();
    let words = format!("the largest in the sample has {:.1} megapixels", largest as f64 / 1e6);
    let words =
        if huge > 0 { format!("{words}; {huge} have more than 20 megapixels: store them smaller") } else { words };
    Some(Check::new("image sizes", huge == 0, words))
}

/// The rate at which each decode thread reads local files.
fn disk_words(run: &RunReport, remote: bool) -> Option<Check> {
    let fetch = run
        .stream
        .stages
        .iter()
        .find(|stage| stage.stage == Stage::Fetch)
        .filter(|stage| stage.bytes > 0 && !remote)?;
    // The rate of one thread. Several threads read in parallel.
    let rate = fetch.bytes as f64 / fetch.busy.as_secs_f64().max(f64::MIN_POSITIVE);
    // A few small reads do not measure a disk.
    let enough = fetch.bytes > 8 << 20;
    let words = format!("{}/s per thread", units::size(rate as u64));
    let words = if enough { words } else { format!("{words}, too few bytes to judge") };
    Some(Check::new("disk", !enough || rate >= SLOW_DISK, words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said_and_what_is_not_is_ok() {
        assert!(cores_words(8, 8, 8, None).ok);
        let few = cores_words(8, 8, 64, Some(2.0));
        assert!(!few.ok && few.words.contains("time of 2.0") && few.words.contains("8 usable of 64"), "{few:?}");
        assert!(!cores_words(16, 8, 8, None).ok);
        let busy = Busy { others: 0.02, cores: 2, usable: 2.0, seconds: 9.0, ..Busy::default() };
        assert!(others_words(&busy).ok);
        let crowd = others_words(&Busy { others: 1.4, steal: 0.2, ..busy });
        assert!(
            !crowd.ok && crowd.words.starts_with("held 1.4 of 2 cores") && crowd.words.contains("kept 0.2"),
            "{crowd:?}"
        );
        assert!(!object_words(&[100, 200, 300], true).unwrap().ok);
        assert!(object_words(&[100, 200, 300], false).unwrap().ok);
        assert_eq!(object_words(&[], true), None);
        assert!(!image_words(&[1000, 30_000_000]).unwrap().ok && image_words(&[1000]).unwrap().ok);
    }
}
