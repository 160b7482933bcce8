//! The results of `infeed doctor`: trials, checks of the machine, and a verdict.

use infeed::Device;
use serde::Serialize;

use super::{
    diagnosis::{Diagnosis, Measured},
    machine::Check,
};
use crate::{
    busy::Busy,
    report::{self, RunReport, cause_words},
    units, width,
};

/// The JSON of `doctor`; its keys are stable. Times are in seconds.
#[derive(Debug, Serialize)]
pub(crate) struct DoctorReport {
    pub version: u32,
    pub url: String,
    pub figures: Measured,
    pub diagnosis: Diagnosis,
    pub trials: Vec<Trial>,
    /// Use of the cores by other processes during the trials; `None` if the system does not report it.
    pub busy: Option<Busy>,
    pub checks: Vec<Check>,
    /// The cold run, in full.
    pub cold: RunReport,
}

/// One of the runs.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Trial {
    pub name: &'static str,
    /// Mean step over the whole run, including the first batch, during which other batches are read ahead.
    pub step_seconds: f64,
    /// The part of it that was spent waiting.
    pub wait_seconds: f64,
    pub samples_per_second: Option<f64>,
    pub batches: u64,
}

impl Trial {
    pub(super) fn of(name: &'static str, run: &RunReport) -> Self {
        let batches = run.stream.batches;
        let each = |seconds: f64| seconds / batches.max(1) as f64;
        let seconds = run.seconds();
        let waited = run.first_batch_seconds().unwrap_or(0.0) + run.stream.data_wait.sum.as_secs_f64();
        Self {
            name,
            step_seconds: each(seconds),
            wait_seconds: each(waited),
            samples_per_second: (seconds > 0.0).then(|| run.stream.samples as f64 / seconds),
            batches,
        }
    }
}

impl DoctorReport {
    pub(super) fn words(&self) -> String {
        let mut table = report::table();
        table.set_header(["run", "step", "waiting", "samples/s", "batches"]);
        for trial in &self.trials {
            table.add_row([
                trial.name.to_owned(),
                units::time(trial.step_seconds),
                units::time(trial.wait_seconds),
                trial.samples_per_second.map_or("no bound".into(), |rate| units::count(rate.round() as u64)),
                units::count(trial.batches),
            ]);
        }
        report::align_right(&mut table, 1..);
        let mut parts = vec![table.trim_fmt()];
        let mut table = report::table();
        let stalls = &self.diagnosis.stalls;
        let share = |time: f64| format!("{:.1} %", 100.0 * time / self.figures.cold.max(f64::MIN_POSITIVE));
        let gpu = self.cold.device != Device::Cpu.to_string();
        let transfer = if gpu { share(stalls.transfer) } else { format!("{} (no GPU)", share(stalls.transfer)) };
        // Not AU, which leaves out the first batch and its stalls.
        table.add_row(["trainer's own".to_owned(), format!("{:.1} %", 100.0 * self.diagnosis.au)]);
        table.add_row(["fetch stall".into(), share(stalls.fetch)]);
        table.add_row(["prep stall".into(), share(stalls.prep)]);
        table.add_row(["transfer stall".into(), transfer]);
        for cause in self.cold.stream.late_causes.iter().take(3) {
            let batches = if cause.batches == 1 { "batch" } else { "batches" };
            let words = format!("{} {batches} waited for {}", cause.batches, cause_words(cause.cause));
            table.add_row([units::time(cause.wait.as_secs_f64()), words]);
        }
        parts.push(table.trim_fmt());
        parts.extend(
            self.checks
                .iter()
                .map(|check| {
                    let mark = if check.ok { "ok  " } else { "look" };
                    width::fit(&format!("{mark} {}: {}", check.name, check.words), 5)
                })
                .reduce(|a, b| format!("{a}\n{b}")),
        );
        parts.push(width::fit(&self.diagnosis.words, 0));
        let others = self.diagnosis.changes.iter().skip(1).filter(|change| change.gain > 1.05);
        parts.extend(
            others
                .map(|change| width::fit(&format!("Then: {} ({:.2} times the rate).", change.change, change.gain), 2)),
        );
        parts.join("\n\n")
    }
}
