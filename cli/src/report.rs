//! The summary of a run: JSON for machines, tables for people, from the same figures.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, Table, presets};
use infeed::{
    BadSample, CacheReport, Cause, CauseReport, CostEstimate, FirstBatchPart, LateBatch, QueueReport, RequestReport,
    StageReport, Times, TuneReport, Tuned,
};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{
    checksum::{Checksum, ChecksumOf},
    gpu::GpuUse,
    process::ThreadTime,
    sampler::Sampled,
    signals::Signal,
    units,
};

/// The JSON of `run`; its keys are stable. Times are in seconds.
#[derive(Debug, Serialize)]
pub(crate) struct RunReport {
    pub version: u32,
    pub url: String,
    pub format: String,
    /// Of the dataset.
    pub records: u64,
    pub batches: u64,
    /// Rows without padding.
    pub samples: u64,
    pub epochs: u64,
    /// From the call of `epoch` to the end of the last step.
    pub seconds: f64,
    pub samples_per_second: f64,
    pub bytes_read: u64,
    pub open_seconds: f64,
    pub build_seconds: f64,
    pub first_batch_seconds: Option<f64>,
    pub data_wait: Times,
    pub step: Step,
    pub au: Option<f64>,
    /// Of all threads, over `seconds`.
    pub cpu_seconds: Option<f64>,
    pub peak_rss_bytes: Option<u64>,
    /// The first thousand.
    pub bad_samples: Vec<Bad>,
    pub bad_sample_count: u64,
    pub checksum: Option<Checksum>,
    /// What the checksum is taken over; `None` without one.
    pub checksum_of: Option<ChecksumOf>,
    pub bottleneck: Option<&'static str>,
    pub stages: Vec<StageReport>,
    /// What the first batch did until it came.
    pub first_batch_parts: Vec<FirstBatchPart>,
    /// The longest waits after it, with their causes.
    pub late_batches: Vec<LateBatch>,
    /// All late batches by cause.
    pub late_causes: Vec<CauseReport>,
    /// How full the queues were when the trainer asked.
    pub queues: Vec<QueueReport>,
    /// What became of settings on `auto`.
    pub autotune: TuneReport,
    /// What came after the warm-up; `None` without one, or when nothing came.
    pub settled: Option<Settled>,
    /// To a remote store; `None` for data that is read otherwise.
    pub requests: Option<Requests>,
    /// What `--cache` did; `None` without it.
    pub cache: Option<CacheReport>,
    pub device: String,
    /// What that GPU did meanwhile.
    pub gpu: Option<GpuUse>,
    /// What the system said of the process meanwhile; `None` with `--accounting off`.
    pub sampled: Option<Sampled>,
    pub workers: Option<usize>,
    /// Everything that decided the run.
    pub config: Map<String, Value>,
    /// The signal that ended it early.
    #[serde(skip)]
    pub stopped: Option<Signal>,
    /// Wait and time of batches, for pictures.
    #[serde(skip)]
    pub line: TimeLine,
    /// What each thread had used when the last batch was done.
    #[serde(skip)]
    pub threads: Vec<ThreadTime>,
}

/// Wait and time of each batch, seconds; of many batches each n-th alone, so that an endless run fits.
#[derive(Clone, Debug, Default)]
pub(crate) struct TimeLine {
    /// End of the step since the start of the run, wait, whole time.
    pub steps: Vec<[f64; 3]>,
    every: u64,
    seen: u64,
}

impl TimeLine {
    const MOST: usize = 4000;

    pub(crate) fn add(&mut self, at: f64, wait: f64, time: f64) {
        let every = self.every.max(1);
        if self.seen.is_multiple_of(every) {
            self.steps.push([at, wait, time]);
            if self.steps.len() == Self::MOST {
                let mut keep = false;
                self.steps.retain(|_| {
                    keep = !keep;
                    keep
                });
                self.every = every * 2;
            }
        }
        self.seen += 1;
    }
}

/// The part of a run after its warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Settled {
    /// Since the first batch.
    pub after_seconds: f64,
    pub seconds: f64,
    pub batches: u64,
    pub samples: u64,
    pub samples_per_second: f64,
    pub wait_seconds: f64,
}

#[derive(Debug, Serialize)]
pub(crate) struct Step {
    pub p50: f64,
    pub sum: f64,
}

#[derive(Debug, Serialize)]
pub(crate) struct Requests {
    #[serde(flatten)]
    pub report: RequestReport,
    /// What an epoch's requests may cost; `None` for stores without a list price.
    pub cost_estimate: Option<CostEstimate>,
}

impl Requests {
    /// `share` of an epoch of all ranks was read.
    pub(crate) fn new(report: RequestReport, url: &str, share: f64) -> Self {
        let cost_estimate = report.cost_estimate(url, share);
        Self { report, cost_estimate }
    }

    fn words(&self) -> String {
        let report = &self.report;
        let [p50, p99] = [report.time.p50, report.time.p99].map(|time| units::time(time.as_secs_f64()));
        let requests = units::count(report.requests);
        let mut words = format!("{requests} (p50 {p50}, p99 {p99}), {} retries", units::count(report.retries));
        let (hedges, won) = (units::count(report.hedges), units::count(report.hedges_won));
        let _ = write!(words, ", {hedges} second copies ({won} won)");
        if report.throttled > 0 {
            let _ = write!(words, ", throttled {} times", units::count(report.throttled));
        }
        if let Some(cost) = &self.cost_estimate {
            let _ = write!(words, ", about ${:.4} an epoch at list price", cost.usd_per_epoch);
        }
        words
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Bad {
    pub record: u64,
    pub object: Option<String>,
    pub error: String,
}

impl From<BadSample> for Bad {
    fn from(bad: BadSample) -> Self {
        Self { record: bad.record, object: bad.object, error: bad.error }
    }
}

impl From<Times> for Step {
    fn from(times: Times) -> Self {
        Self { p50: times.p50.as_secs_f64(), sum: times.sum.as_secs_f64() }
    }
}

impl RunReport {
    /// Two tables: the run, and where its time went.
    pub(crate) fn table(&self) -> String {
        let mut rows: Vec<(&str, String)> = Vec::new();
        let epochs = if self.epochs == 1 { "1 epoch".into() } else { format!("{} epochs", self.epochs) };
        rows.push(("dataset", format!("{}: {} records, {}", self.url, units::count(self.records), self.format)));
        if self.device != "cpu" {
            rows.push(("device", self.device.clone()));
        }
        let delivered =
            format!("{} samples in {} batches, {epochs}", units::count(self.samples), units::count(self.batches));
        rows.push(("delivered", delivered));
        let mut rate = format!("{} samples/s", units::count(self.samples_per_second.round() as u64));
        // Datasets that lie in memory read nothing.
        if self.bytes_read > 0 {
            let read = self.bytes_read as f64 / self.seconds.max(f64::MIN_POSITIVE);
            let _ = write!(rate, ", {}/s read", units::size(read as u64));
        }
        rows.push(("rate", format!("{rate}, {} in all", units::time(self.seconds))));
        if let Some(settled) = &self.settled {
            let rate = units::count(settled.samples_per_second.round() as u64);
            let (after, time) = (units::time(settled.after_seconds), units::time(settled.seconds));
            rows.push(("settled", format!("{rate} samples/s over {time}, after {after}")));
        }
        if let Some(requests) = &self.requests {
            rows.push(("requests", requests.words()));
        }
        if let Some(cache) = &self.cache {
            rows.push(("cache", cache_words(cache)));
        }
        if let Some(first) = self.first_batch_seconds {
            let (open, build) = (units::time(self.open_seconds), units::time(self.build_seconds));
            rows.push(("first batch", format!("{} (before it: open {open}, build {build})", units::time(first))));
        }
        if let Some(au) = self.au {
            let wait = &self.data_wait;
            let [p50, p99, max] = [wait.p50, wait.p99, wait.max].map(|time| units::time(time.as_secs_f64()));
            rows.push(("wait for data", format!("p50 {p50}, p99 {p99}, max {max}")));
            rows.push(("step", format!("p50 {}, wait included", units::time(self.step.p50))));
            rows.push(("AU", format!("{:.1} % of the trainer's time was not spent waiting", au * 100.0)));
        }
        if let (Some(cpu), true) = (self.cpu_seconds, self.samples > 0) {
            let each = units::time(cpu / self.samples as f64);
            rows.push((
                "CPU",
                format!("{} ({each} a sample), {} workers", units::time(cpu), self.workers.unwrap_or(0)),
            ));
        }
        if let Some(words) = autotune_words(&self.autotune) {
            rows.push(("autotune", words));
        }
        if let Some(peak) = self.peak_rss_bytes {
            rows.push(("peak memory", units::size(peak)));
        }
        if let Some(gpu) = &self.gpu {
            rows.push(("GPU", gpu_words(gpu)));
        }
        rows.extend(self.sampled.iter().flat_map(traffic_words));
        if self.bad_sample_count > 0 {
            rows.push(("bad samples", units::count(self.bad_sample_count)));
        }
        if let Some(words) = late_words(&self.late_causes, &self.late_batches) {
            rows.push(("late batches", words));
        }
        if let Some(bottleneck) = self.bottleneck {
            let words = if bottleneck == "yield" { "the trainer: data was always ready" } else { bottleneck };
            rows.push(("bottleneck", words.into()));
        }
        if let Some(checksum) = self.checksum {
            let of = if self.checksum_of == Some(ChecksumOf::Records) { " (of records, not of pixels)" } else { "" };
            rows.push(("checksum", format!("{checksum}{of}")));
        }
        let mut table = table();
        table.add_rows(rows.into_iter().map(|(name, value)| [name.to_owned(), value]));
        let mut text = table.trim_fmt();
        // Writing to a string does not fail.
        let _ = write!(text, "\n\n{}", self.stage_table());
        text
    }

    pub(crate) fn stage_table(&self) -> String {
        let mut table = table();
        let on_device = self.stages.iter().any(|stage| !stage.device.is_zero());
        let with_device = |mut cells: Vec<String>, device: String| {
            if on_device {
                cells.insert(2, device);
            }
            cells
        };
        let names = ["stage", "busy", "starved", "blocked", "items", "bytes", "p50", "p99"].map(String::from);
        table.set_header(with_device(names.into(), "on GPU".into()));
        for stage in self.stages.iter().filter(|stage| stage.items > 0 || !stage.device.is_zero()) {
            let time = |time: std::time::Duration| units::time(time.as_secs_f64());
            let cells = vec![
                stage.stage.to_string(),
                time(stage.busy),
                time(stage.starved),
                time(stage.blocked),
                units::count(stage.items),
                units::size(stage.bytes),
                time(stage.p50),
                time(stage.p99),
            ];
            table.add_row(with_device(cells, time(stage.device)));
        }
        align_right(&mut table, 1..);
        table.trim_fmt()
    }
}

/// What settings on `auto` came to, with the reason for the last change. `None`: all of them were given.
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

/// How many batches were late, and for what; the worst with its object.
fn late_words(causes: &[CauseReport], worst: &[LateBatch]) -> Option<String> {
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
        let _ = write!(words, "; the longest, epoch {epoch} batch {batch}, waited {wait} for {object}");
    }
    (all > 0).then_some(words)
}

/// A cause for people.
pub(crate) const fn cause_words(cause: Cause) -> &'static str {
    match cause {
        Cause::Plan => "the order of records",
        Cause::Room => "room to run ahead",
        Cause::Request => "requests to the store",
        Cause::Read => "reading files",
        Cause::Queue => "a free decode thread",
        Cause::Decode => "decoding",
        Cause::Augmentation => "augmentation",
        Cause::Copy => "putting rows together and up",
        Cause::Consumer => "the trainer's own runtime",
        _ => "something new",
    }
}

fn cache_words(cache: &CacheReport) -> String {
    let percent = 100.0 * cache.hits as f64 / (cache.hits + cache.misses).max(1) as f64;
    let mut words = format!(
        "{percent:.1} % of {} reads served ({}), {} written, holds {} of {}",
        units::count(cache.hits + cache.misses),
        units::size(cache.bytes_hit),
        units::size(cache.bytes_written),
        units::size(cache.used),
        units::size(cache.size)
    );
    for (count, what) in [(cache.not_kept, "not kept"), (cache.evictions, "evicted"), (cache.damaged, "damaged")] {
        if count > 0 {
            let _ = write!(words, ", {} {what}", units::count(count));
        }
    }
    words
}

/// Disk and network, where there was something.
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
    let rows = [("disk", words(&disk)), ("network", words(&network))];
    rows.into_iter().filter(|(_, words)| !words.is_empty()).collect()
}

fn gpu_words(gpu: &GpuUse) -> String {
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

/// Borders tell nothing: columns alone.
pub(crate) fn table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table
}

/// For columns of figures.
pub(crate) fn align_right(table: &mut Table, columns: std::ops::RangeFrom<usize>) {
    for column in table.column_iter_mut().skip(columns.start) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_in_one_line() {
        let mut report = RequestReport::default();
        (report.requests, report.retries, report.hedges, report.hedges_won) = (12_000, 3, 110, 98);
        report.time.p50 = std::time::Duration::from_millis(31);
        report.time.p99 = std::time::Duration::from_millis(140);
        let mut requests = Requests::new(report, "memory://x", 1.0);
        let plain = requests.words();
        assert!(plain.contains("12,000 (p50 31") && plain.contains("3 retries, 110 second copies (98 won)"), "{plain}");
        assert!(!plain.contains('$') && !plain.contains("throttled"), "{plain}");
        requests.report.throttled = 7;
        requests.cost_estimate = requests.report.cost_estimate("s3://bucket/x", 2.0);
        let full = requests.words();
        assert!(full.ends_with("throttled 7 times, about $0.0024 an epoch at list price"), "{full}");
    }

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
        let told = [("disk", disk.to_owned()), ("network", "2.0 KiB over loopback".to_owned())];
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
