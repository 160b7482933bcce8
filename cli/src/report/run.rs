//! The report of a run: the run's own figures and the loader's report.

use std::{fmt::Write as _, time::Duration};

use infeed::{
    Report,
    internal::printable,
    report::{CostEstimate, RequestReport, Stage},
    sampler::MixturePart,
};
use serde::Serialize;
use serde_json::{Map, Value};

use super::{
    table::{align_right, table},
    verdict::Verdict,
    words::{autotune_words, bottleneck_words, cache_words, decoded_by_words, gpu_words, late_words, traffic_words},
};
use crate::{
    busy::Busy,
    checksum::{Checksum, ChecksumOf},
    gpu::GpuUse,
    process::ThreadTime,
    signals::Signal,
    units,
    usage::Sampled,
};

/// The JSON of `run`; its keys are stable. Times are in seconds.
#[derive(Debug, Serialize)]
pub(crate) struct RunReport {
    pub version: u32,
    pub url: String,
    pub format: String,
    /// Records of the dataset.
    pub records: u64,
    pub epochs: u64,
    pub samples_per_second: f64,
    pub open_seconds: f64,
    pub build_seconds: f64,
    /// The loader's report of the stream, taken at the end of the last step.
    #[serde(flatten)]
    pub stream: Report,
    pub au: Option<f64>,
    pub bottleneck: Option<Stage>,
    /// Processor time of all threads, over the run.
    pub cpu_seconds: Option<f64>,
    pub peak_rss_bytes: Option<u64>,
    pub checksum: Option<Checksum>,
    /// What the checksum is taken over; `None` without one.
    pub checksum_of: Option<ChecksumOf>,
    /// The figures after the warm-up; `None` without a warm-up, or without batches after it.
    pub settled: Option<Settled>,
    /// Requests to the store, with an estimate of their cost; `None` for data that needs no requests.
    pub requests: Option<Requests>,
    pub device: String,
    /// Use of that GPU during the run.
    pub gpu: Option<GpuUse>,
    /// Use of processor, disk and network during the run; `None` with `--accounting off`.
    pub sampled: Option<Sampled>,
    /// Use of the cores by other processes; `None` if the system does not report it.
    pub busy: Option<Busy>,
    pub workers: Option<usize>,
    /// Datasets of a mixture.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartReport>,
    /// All settings of the run.
    pub config: Map<String, Value>,
    /// The signal that ended it early.
    #[serde(skip)]
    pub stopped: Option<Signal>,
    /// What ended it early, and where; `None` if nothing did.
    pub ended: Option<Ended>,
    /// Wait and time of batches, for charts.
    #[serde(skip)]
    pub line: TimeLine,
    /// Processor time of each thread after the last batch.
    #[serde(skip)]
    pub threads: Vec<ThreadTime>,
}

/// What ended a run before its last epoch, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Ended {
    /// The option or the signal.
    pub by: &'static str,
    /// Counted from 0, as in the lines of the log, in states and in the library.
    pub epoch: u64,
    /// Finished batches of this epoch, including those before a resume.
    pub batches_of_epoch: u64,
    pub batches_per_epoch: u64,
    /// Epochs of the whole run.
    pub epochs: u64,
}

impl Ended {
    /// `after 11 of 24 batches`.
    pub(crate) fn after(&self) -> String {
        let Self { epoch, batches_of_epoch, batches_per_epoch, epochs, .. } = *self;
        let done = epoch.saturating_mul(batches_per_epoch).saturating_add(batches_of_epoch);
        let all = epochs.saturating_mul(batches_per_epoch);
        format!("after {} of {} batches", units::count(done), units::count(all))
    }

    /// `by --max-batches after 11 of 24 batches: 3 of 8 in epoch 1 (of epochs 0 to 2)`.
    fn words(&self, stopped: Option<Signal>) -> String {
        let Self { epoch, batches_of_epoch, batches_per_epoch, epochs, .. } = *self;
        let by = stopped.map_or(self.by, Signal::words);
        let place = match epochs {
            0 | 1 => String::new(),
            _ => format!(
                ": {} of {} in epoch {} (of epochs 0 to {})",
                units::count(batches_of_epoch),
                units::count(batches_per_epoch),
                units::count(epoch),
                units::count(epochs - 1),
            ),
        };
        format!("by {by} {}{place}", self.after())
    }
}

/// One dataset of a mixture: its name, records and share, and its samples on this rank.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PartReport {
    #[serde(flatten)]
    pub part: MixturePart,
    pub samples: u64,
}

impl PartReport {
    fn words(&self) -> String {
        let (share, records) = (self.part.share, units::count(self.part.records.unwrap_or(0)));
        let samples = units::count(self.samples);
        match self.part.name.as_str() {
            "" => format!("{share}: {samples} samples of {records} records"),
            name => format!("{}, {share}: {samples} samples of {records} records", printable::name(name)),
        }
    }
}

/// Wait and time of each batch in seconds. With many batches, only every n-th is kept, so that memory stays bounded.
#[derive(Clone, Debug, Default)]
pub(crate) struct TimeLine {
    /// End of the step since the start of the run, wait, whole time.
    pub steps: Vec<[f64; 3]>,
    every: u64,
    count: u64,
}

impl TimeLine {
    const MOST: usize = 4000;

    pub(crate) fn add(&mut self, at: f64, wait: f64, time: f64) {
        let every = self.every.max(1);
        if self.count.is_multiple_of(every) {
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
        self.count += 1;
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
pub(crate) struct Requests {
    #[serde(flatten)]
    pub report: RequestReport,
    /// What an epoch's requests may cost; `None` for stores without a list price.
    pub cost_estimate: Option<CostEstimate>,
}

impl Requests {
    /// Moves the requests out of a stream's report, and adds the estimate.
    pub(crate) fn take(stream: &mut Report, url: &str, records: u64) -> Option<Self> {
        let report = stream.requests.take()?;
        // The share of an epoch of all ranks that this stream delivered.
        let share = stream.samples as f64 / records as f64;
        Some(Self { cost_estimate: report.cost_estimate(url, share), report })
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
            let _ = write!(words, ", about ${:.4} per epoch at list price", cost.usd_per_epoch);
        }
        words
    }
}

impl RunReport {
    /// Time from the call of `epoch` to the end of the last step.
    pub(crate) fn seconds(&self) -> f64 {
        self.stream.elapsed.as_secs_f64()
    }

    /// Where a signal ended it, such as `after 11 of 24 batches`.
    pub(crate) fn stopped_after(&self) -> Option<String> {
        self.ended.filter(|_| self.stopped.is_some()).map(|ended| ended.after())
    }

    /// What ended it early, and where, as text.
    pub(crate) fn ended_words(&self) -> Option<String> {
        self.ended.map(|ended| ended.words(self.stopped))
    }

    pub(crate) fn first_batch_seconds(&self) -> Option<f64> {
        self.stream.first_batch.map(|time| time.as_secs_f64())
    }

    /// What limits the run, and what to try.
    pub(crate) fn verdict(&self) -> Verdict {
        let step = self.config.get("step_time").and_then(Value::as_f64);
        Verdict::of_stream(
            &self.stream,
            self.workers,
            step,
            self.busy.as_ref().filter(|busy| busy.is_crowded()),
            &self.url,
        )
    }

    /// Two tables: the run, and the time of its stages.
    pub(crate) fn table(&self) -> String {
        let mut table = table();
        self.rows().into_iter().for_each(|(name, value)| table.add_row([name.to_owned(), value]));
        let mut text = table.trim_fmt();
        // Writing to a string does not fail.
        let _ = write!(text, "\n\n{}", self.stage_table());
        text
    }

    /// Names and values, the same in the table and on the page.
    pub(crate) fn rows(&self) -> Vec<(&'static str, String)> {
        let mut rows: Vec<(&'static str, String)> = Vec::new();
        let epochs = if self.epochs == 1 { "1 epoch".into() } else { format!("{} epochs", self.epochs) };
        rows.push(("dataset", format!("{}: {} records, {}", self.url, units::count(self.records), self.format)));
        if self.device != "cpu" {
            rows.push(("device", self.device.clone()));
        }
        let delivered = format!(
            "{} samples in {} batches, {epochs}",
            units::count(self.stream.samples),
            units::count(self.stream.batches)
        );
        rows.push(("delivered", delivered));
        rows.extend(self.ended_words().map(|words| ("stopped", words)));
        rows.extend(self.parts.iter().map(|part| ("part", part.words())));
        let mut rate = format!("{} samples/s", units::count(self.samples_per_second.round() as u64));
        // Datasets in memory read nothing.
        if self.stream.bytes_read > 0 {
            let read = self.stream.bytes_read as f64 / self.seconds().max(f64::MIN_POSITIVE);
            let _ = write!(rate, ", {}/s read", units::size(read as u64));
        }
        rows.push(("rate", format!("{rate}, {} in all", units::time(self.seconds()))));
        if let Some(settled) = &self.settled {
            let rate = units::count(settled.samples_per_second.round() as u64);
            let (after, time) = (units::time(settled.after_seconds), units::time(settled.seconds));
            rows.push(("settled", format!("{rate} samples/s over {time}, after {after}")));
        }
        if let Some(requests) = &self.requests {
            rows.push(("requests", requests.words()));
        }
        if let Some(cache) = &self.stream.cache {
            rows.push(("cache", cache_words(cache, "reads")));
        }
        if let Some(cache) = &self.stream.decoded_cache {
            rows.push(("decoded", cache_words(cache, "records")));
        }
        if self.stream.decoded_by.len() > 1 {
            rows.push(("decoded by", decoded_by_words(&self.stream.decoded_by)));
        }
        if let Some(first) = self.first_batch_seconds() {
            let (open, build) = (units::time(self.open_seconds), units::time(self.build_seconds));
            rows.push(("first batch", format!("{} (before it: open {open}, build {build})", units::time(first))));
        }
        if let Some(au) = self.au {
            let wait = &self.stream.data_wait;
            let [p50, p99, max] = [wait.p50, wait.p99, wait.max].map(|time| units::time(time.as_secs_f64()));
            rows.push(("wait for data", format!("p50 {p50}, p99 {p99}, max {max}")));
            rows.push(("step", format!("p50 {}, wait included", units::time(self.stream.step.p50.as_secs_f64()))));
            rows.push(("AU", format!("{:.1} % of the trainer's time was not spent waiting", au * 100.0)));
        }
        if let (Some(cpu), true) = (self.cpu_seconds, self.stream.samples > 0) {
            let each = units::time(cpu / self.stream.samples as f64);
            rows.push((
                "CPU",
                format!("{} ({each} per sample), {} workers", units::time(cpu), self.workers.unwrap_or(0)),
            ));
        }
        if let Some(words) = autotune_words(&self.stream.autotune) {
            rows.push(("autotune", words));
        }
        if let Some(peak) = self.peak_rss_bytes {
            rows.push(("peak memory", units::size(peak)));
        }
        if let Some(gpu) = &self.gpu {
            rows.push(("GPU", gpu_words(gpu)));
        }
        rows.extend(self.sampled.iter().flat_map(traffic_words));
        if self.stream.bad_sample_count > 0 {
            let lost = match self.stream.unreadable_count {
                0 => String::new(),
                lost => format!(", {} of them unreadable", units::count(lost)),
            };
            rows.push(("bad samples", units::count(self.stream.bad_sample_count) + &lost));
        }
        if let Some(words) = late_words(&self.stream.late_causes, &self.stream.late_batches) {
            rows.push(("late batches", words));
        }
        if let Some(bottleneck) = self.bottleneck {
            rows.push(("bottleneck", bottleneck_words(bottleneck).into()));
        }
        rows.extend(self.verdict().next.map(|next| ("next", next)));
        if let Some(checksum) = self.checksum {
            let of = if self.checksum_of == Some(ChecksumOf::Records) { " (of records, not of pixels)" } else { "" };
            rows.push(("checksum", format!("{checksum}{of}")));
        }
        rows
    }

    pub(crate) fn stage_table(&self) -> String {
        let mut table = table();
        let on_device = self.stream.stages.iter().any(|stage| !stage.device.is_zero());
        let with_device = |mut cells: Vec<String>, device: String| {
            if on_device {
                cells.insert(2, device);
            }
            cells
        };
        let names = ["stage", "busy", "starved", "blocked", "items", "bytes", "p50", "p99"].map(String::from);
        table.set_header(with_device(names.into(), "on GPU".into()));
        for stage in self.stream.stages.iter().filter(|stage| stage.items > 0 || !stage.device.is_zero()) {
            let time = |time: Duration| units::time(time.as_secs_f64());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_in_one_line() {
        let mut report = RequestReport::default();
        (report.requests, report.retries, report.hedges, report.hedges_won) = (12_000, 3, 110, 98);
        report.time.p50 = std::time::Duration::from_millis(31);
        report.time.p99 = std::time::Duration::from_millis(140);
        let mut requests = Requests { report, cost_estimate: None };
        let plain = requests.words();
        assert!(plain.contains("12,000 (p50 31") && plain.contains("3 retries, 110 second copies (98 won)"), "{plain}");
        assert!(!plain.contains('$') && !plain.contains("throttled"), "{plain}");
        requests.report.throttled = 7;
        requests.cost_estimate = requests.report.cost_estimate("s3://bucket/x", 2.0);
        let full = requests.words();
        assert!(full.ends_with("throttled 7 times, about $0.0024 per epoch at list price"), "{full}");
    }
}
