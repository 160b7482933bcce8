//! Figures as short texts, the same in tables, pages and the live view.

use std::{collections::BTreeMap, fmt::Write as _};

use infeed::report::{CacheReport, Cause, CauseReport, LateBatch, Stage, TuneReport, Tuned};

use crate::{gpu::GpuUse, units, usage::Sampled};

/// The values of settings on `auto`, with the reason for the last change. `None` if none is on `auto`.
pub(crate) fn autotune_words(tuned: &TuneReport) -> Option<String> {
    let each = [(Tuned::Workers, tuned.workers), (Tuned::Prefetch, tuned.prefetch)];
    let words = each.into_iter().filter(|(_, setting)| setting.auto).map(|(what, setting)| {
        let last = tuned.decisions.iter().rev().find(|decision| decision.what == what);
        match last.filter(|_| setting.now != setting.start) {
            Some(last) => format!("{what} {} → {} ({})", setting.start, setting.now, last.why),
            None => format!("{what} {}", setting.now),
        }
    });
    let words: Vec<String> = words.collect();
    let mut words = (!words.is_empty()).then(|| words.join(", "))?;
    // Writing to a string does not fail.
    let _ = match (tuned.decision_count, tuned.decisions.last()) {
        (1, Some(last)) => write!(words, "; one change, after {}", units::time(last.at.as_secs_f64())),
        (n, Some(last)) => write!(words, "; {n} changes, the last after {}", units::time(last.at.as_secs_f64())),
        (_, None) => write!(words, "; nothing to change"),
    };
    Some(words)
}

/// The number of late batches by cause, and the longest wait with its object.
pub(super) fn late_words(causes: &[CauseReport], worst: &[LateBatch]) -> Option<String> {
    let all: u64 = causes.iter().map(|cause| cause.batches).sum();
    let each = causes.iter().take(3).map(|c| {
        let wait = units::time(c.wait.as_secs_f64());
        format!("{} for {} ({wait})", units::count(c.batches), cause_words(c.cause))
    });
    let mut words = format!("{}: {}", units::count(all), each.collect::<Vec<_>>().join(", "));
    if let Some((LateBatch { epoch, batch, wait, .. }, object)) =
        worst.first().and_then(|late| Some((late, late.object.as_ref()?)))
    {
        let wait = units::time(wait.as_secs_f64());
        let _ = write!(
            words,
            "; the longest, epoch {epoch} batch {batch}, waited {wait} for {}",
            infeed::internal::printable::name(object)
        );
    }
    (all > 0).then_some(words)
}

/// Rows by class of decode threads.
pub(crate) fn decoded_by_words(counts: &BTreeMap<&str, u64>) -> String {
    let words = counts.iter().map(|(class, samples)| format!("{class} {}", units::count(*samples)));
    words.collect::<Vec<_>>().join(", ")
}

/// The text for a bottleneck.
pub(crate) const fn bottleneck_words(stage: Stage) -> &'static str {
    match stage {
        Stage::Yield => "the trainer: data was always ready",
        other => other.name(),
    }
}

/// The text for a cause.
pub(crate) const fn cause_words(cause: Cause) -> &'static str {
    match cause {
        Cause::Plan => "the order of records",
        Cause::Room => "room to run ahead",
        Cause::Request => "requests to the store",
        Cause::Read => "reading files",
        Cause::Queue => "a free decode thread",
        Cause::Decode => "decoding",
        Cause::Augmentation => "augmentation",
        Cause::Copy => "putting rows together and uploading them",
        Cause::Consumer => "the trainer's own runtime",
        _ => "something new",
    }
}

pub(super) fn cache_words(cache: &CacheReport, what: &str) -> String {
    let percent = 100.0 * cache.hits as f64 / (cache.hits + cache.misses).max(1) as f64;
    let mut words = format!(
        "{percent:.1} % of {} {what} served ({}), {} written, holds {} of {}",
        units::count(cache.hits + cache.misses),
        units::size(cache.bytes_hit),
        units::size(cache.bytes_written),
        units::size(cache.used),
        units::size(cache.size)
    );
    for (count, what) in [
        (cache.not_kept, "not kept"),
        (cache.evictions, "evicted"),
        (cache.damaged, "damaged"),
        (cache.undecodable, "undecodable"),
    ] {
        if count > 0 {
            let _ = write!(words, ", {} {what}", units::count(count));
        }
    }
    words
}

/// Disk and network traffic, if any. Disk figures are of this process; network figures are of the machine, because
/// systems do not report them per process.
pub(crate) fn traffic_words(sampled: &Sampled) -> Vec<(&'static str, String)> {
    let part = |bytes: Option<u64>, most: Option<f64>, what: &str| {
        let bytes = bytes.filter(|bytes| *bytes > 0)?;
        let most = most.map_or(String::new(), |most| format!(" (at most {}/s)", units::size(most as u64)));
        Some(format!("{} {what}{most}", units::size(bytes)))
    };
    let disk = [
        part(sampled.disk_read_bytes, sampled.disk_read_max_bytes_per_second, "read"),
        part(sampled.disk_written_bytes, sampled.disk_written_max_bytes_per_second, "written"),
    ];
    let network = [
        part(sampled.network_received_bytes, sampled.network_received_max_bytes_per_second, "received"),
        part(sampled.network_sent_bytes, sampled.network_sent_max_bytes_per_second, "sent"),
        part(sampled.loopback_bytes, None, "over loopback"),
    ];
    let words = |parts: &[Option<String>]| parts.iter().flatten().cloned().collect::<Vec<_>>().join(", ");
    let rows = [("disk", words(&disk)), ("network (machine)", words(&network))];
    rows.into_iter().filter(|(_, words)| !words.is_empty()).collect()
}

pub(super) fn gpu_words(gpu: &GpuUse) -> String {
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let (mean, max) = (percent(gpu.utilisation_mean), percent(gpu.utilisation_max));
    let memory = percent(gpu.memory_utilisation_mean);
    let mut words = format!("{}: kernels {mean} of the time (max {max}), memory {memory}", gpu.name);
    if !gpu.jpeg_engines.is_empty() {
        let engines: Vec<_> = gpu.jpeg_engines.iter().map(|share| format!("{:.0}", 100.0 * share)).collect();
        let _ = write!(words, ", JPEG engines {} %", engines.join(" "));
    }
    let _ =
        write!(words, ", at most {} of {}", units::size(gpu.memory_peak_bytes), units::size(gpu.memory_total_bytes));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn autotune_is_told_in_one_line() {
        let mut tuned = TuneReport::default();
        assert_eq!(autotune_words(&tuned), None);
        (tuned.workers.auto, tuned.workers.start, tuned.workers.now) = (true, 8, 8);
        assert_eq!(autotune_words(&tuned).as_deref(), Some("workers 8; nothing to change"));
        (tuned.prefetch.auto, tuned.prefetch.start, tuned.prefetch.now) = (true, 4, 4);
        assert_eq!(autotune_words(&tuned).as_deref(), Some("workers 8, prefetch 4; nothing to change"));
    }

    #[test]
    fn disk_and_network_are_told_where_there_was_something() {
        let mut sampled = Sampled { disk_read_bytes: Some(0), ..Sampled::default() };
        assert!(traffic_words(&sampled).is_empty());
        (sampled.disk_read_bytes, sampled.disk_read_max_bytes_per_second) = (Some(3 << 30), Some(1048576.0));
        (sampled.disk_written_bytes, sampled.loopback_bytes) = (Some(1024), Some(2048));
        let disk = "3.0 GiB read (at most 1.0 MiB/s), 1.0 KiB written";
        let told = [("disk", disk.to_owned()), ("network (machine)", "2.0 KiB over loopback".to_owned())];
        assert_eq!(traffic_words(&sampled), told);
    }

    #[test]
    fn a_gpu_is_told_in_one_line() {
        let mut gpu = GpuUse {
            name: "NVIDIA H200".into(),
            utilisation_mean: 0.873,
            utilisation_max: 1.0,
            memory_utilisation_mean: 0.41,
            memory_peak_bytes: 3 << 30,
            memory_total_bytes: 139 << 30,
            ..GpuUse::default()
        };
        let plain = "NVIDIA H200: kernels 87 % of the time (max 100 %), memory 41 %, at most 3.0 GiB of 139.0 GiB";
        assert_eq!(gpu_words(&gpu), plain);
        gpu.jpeg_engines = vec![0.5, 0.49];
        assert!(gpu_words(&gpu).contains("memory 41 %, JPEG engines 50 49 %, at most"));
    }
}
