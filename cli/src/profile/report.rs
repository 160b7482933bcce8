//! The results of `infeed profile`: rows of times, threads, and single stages.

use infeed::report::{Stage, StageReport};
use serde::Serialize;

use crate::{
    process::ThreadTime,
    report::{self, RunReport, cause_words},
    units, width,
};

/// The part of a step in which the trainer waits.
const WAIT: &str = "wait for data";

/// The JSON of `profile`; its keys are stable. Times are in seconds.
#[derive(Debug, Serialize)]
pub(crate) struct ProfileReport {
    pub version: u32,
    pub run: RunReport,
    /// One row for the trainer's step, its wait, and each stage.
    pub table: Vec<Row>,
    /// Processor time by name of thread, during the run.
    pub threads: Vec<ThreadGroup>,
    /// Rates of single stages by the number of decode threads; empty if stages cannot be separated.
    pub alone: Vec<AloneReport>,
    /// The cost of augmentations; empty without any, or if stages cannot be separated.
    pub steps: Vec<StepReport>,
}

/// A line of the table.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub name: &'static str,
    pub calls: u64,
    /// Host time without the row below that is part of it.
    pub self_seconds: f64,
    /// Host time.
    pub total_seconds: f64,
    /// Of one call.
    pub average_seconds: f64,
    /// Processor time; `None` if unknown.
    pub cpu_seconds: Option<f64>,
    /// Time on the GPU; `None` without one.
    pub device_seconds: Option<f64>,
}

/// Threads of one name.
#[derive(Debug, Serialize)]
pub(crate) struct ThreadGroup {
    pub name: String,
    pub threads: u64,
    pub cpu_seconds: f64,
}

/// A stage at one number of workers.
#[derive(Debug, Serialize)]
pub(crate) struct AloneReport {
    /// `fetch`, `decode`, `transform`, `decode and transform`, or `all`.
    pub stage: &'static str,
    pub workers: usize,
    pub samples_per_second: f64,
    pub first_batch_seconds: Option<f64>,
    pub samples: u64,
}

/// One augmentation: the additional time of the transform with it.
#[derive(Debug, Serialize)]
pub(crate) struct StepReport {
    /// The view; `None` without views.
    pub view: Option<String>,
    /// Its place among the steps, from 1, as messages count them.
    pub step: usize,
    pub name: String,
    /// Processor time of one decode thread per sample; for a view with a count, of all its rows.
    pub seconds: f64,
    /// Share of the time of all steps.
    pub share: f64,
}

impl ProfileReport {
    pub(crate) fn new(
        run: RunReport,
        threads: Vec<ThreadGroup>,
        (alone, steps): (Vec<AloneReport>, Vec<StepReport>),
    ) -> Self {
        Self { version: 1, table: table(&run), run, threads, alone, steps }
    }

    pub(crate) fn words(&self) -> String {
        [
            Some(self.run.table()),
            Some(self.table_words()),
            self.first_words(),
            self.thread_words(),
            self.alone_words(),
            self.step_words(),
        ]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join("\n\n")
    }

    fn table_words(&self) -> String {
        let mut table = report::table();
        table.set_header(["", "self", "self %", "total", "average", "calls", "CPU", "on GPU"]);
        let all: f64 = self.table.iter().map(|row| row.self_seconds).sum();
        for row in &self.table {
            let or = |seconds: Option<f64>, none: &str| seconds.map_or(none.into(), units::time);
            table.add_row([
                // Part of the step above it.
                if row.name == WAIT { format!("  {WAIT}") } else { row.name.to_owned() },
                units::time(row.self_seconds),
                format!("{:.1} %", 100.0 * row.self_seconds / all.max(f64::MIN_POSITIVE)),
                units::time(row.total_seconds),
                units::time(row.average_seconds),
                units::count(row.calls),
                or(row.cpu_seconds, ""),
                or(row.device_seconds, "no GPU"),
            ]);
        }
        report::align_right(&mut table, 1..);
        let words = width::fit("Stages run in parallel with the trainer's steps; each is summed over its threads.", 0);
        format!("{}\n{words}", table.trim_fmt())
    }

    /// The parts of the first batch's time.
    fn first_words(&self) -> Option<String> {
        let first = self.run.first_batch_seconds()?;
        let mut table = report::table();
        table.add_row(["first batch".to_owned(), units::time(first)]);
        table.add_row(["  before it: open".to_owned(), units::time(self.run.open_seconds)]);
        table.add_row(["  before it: build".to_owned(), units::time(self.run.build_seconds)]);
        for part in &self.run.stream.first_batch_parts {
            table.add_row([format!("  {}", cause_words(part.cause)), units::time(part.time.as_secs_f64())]);
        }
        report::align_right(&mut table, 1..);
        Some(table.trim_fmt())
    }

    fn thread_words(&self) -> Option<String> {
        let mut table = report::table();
        table.set_header(["threads", "count", "CPU"]);
        for threads in &self.threads {
            table.add_row([threads.name.clone(), threads.threads.to_string(), units::time(threads.cpu_seconds)]);
        }
        report::align_right(&mut table, 1..);
        (!self.threads.is_empty()).then(|| table.trim_fmt())
    }

    fn alone_words(&self) -> Option<String> {
        let mut workers: Vec<usize> = self.alone.iter().map(|row| row.workers).collect();
        workers.sort_unstable();
        workers.dedup();
        let mut stages: Vec<&str> = self.alone.iter().map(|row| row.stage).collect();
        stages.dedup();
        let mut table = report::table();
        let head = workers.iter().map(|n| format!("{n} {}", if *n == 1 { "worker" } else { "workers" }));
        table.set_header(["samples/s, alone".to_owned()].into_iter().chain(head));
        let find = |stage: &str, n: usize| self.alone.iter().find(|row| row.stage == stage && row.workers == n);
        for stage in &stages {
            let rates = workers.iter().map(|n| {
                find(stage, *n).map_or(String::new(), |row| units::count(row.samples_per_second.round() as u64))
            });
            table.add_row([(*stage).to_owned()].into_iter().chain(rates));
        }
        let firsts = workers.iter().map(|n| {
            let first = find("all", *n).and_then(|row| row.first_batch_seconds);
            first.map_or(String::new(), units::time)
        });
        table.add_row(["first batch of all".to_owned()].into_iter().chain(firsts));
        report::align_right(&mut table, 1..);
        (!self.alone.is_empty()).then(|| table.trim_fmt())
    }
}

impl ProfileReport {
    fn step_words(&self) -> Option<String> {
        let mut table = report::table();
        table.set_header(["augmentation", "per sample", "of the transform"]);
        for StepReport { view, step, name, seconds, share } in &self.steps {
            let of = view.as_ref().map_or(String::new(), |view| format!("{view}: "));
            table.add_row([format!("{of}{step} {name}"), units::time(*seconds), format!("{:.0} %", 100.0 * share)]);
        }
        report::align_right(&mut table, 1..);
        let words =
            width::fit("Measured on one thread, with and without the step. One step may save work of another.", 0);
        (!self.steps.is_empty()).then(|| format!("{}\n{words}", table.trim_fmt()))
    }
}

/// The rows: first the trainer's loop, then the loader's stages, which run in parallel with it.
fn table(run: &RunReport) -> Vec<Row> {
    let steps = run.stream.batches.saturating_sub(1);
    let step = run.stream.step.sum.as_secs_f64();
    let wait = run.stream.data_wait.sum.as_secs_f64();
    let on_gpu = run.device != "cpu";
    let row = |name, calls: u64, own: f64, total: f64| Row {
        name,
        calls,
        self_seconds: own,
        total_seconds: total,
        average_seconds: total / calls.max(1) as f64,
        cpu_seconds: None,
        device_seconds: on_gpu.then_some(0.0),
    };
    let mut rows = vec![row("step", steps, (step - wait).max(0.0), step), row(WAIT, steps, wait, wait)];
    let there = |stage: &&StageReport| stage.stage != Stage::Yield && (stage.calls > 0 || !stage.device.is_zero());
    let stages = run.stream.stages.iter().filter(there);
    rows.extend(stages.map(|stage: &StageReport| {
        let busy = stage.busy.as_secs_f64();
        let cpu = (!stage.cpu.is_zero()).then_some(stage.cpu.as_secs_f64());
        let device_seconds = on_gpu.then_some(stage.device.as_secs_f64());
        Row { cpu_seconds: cpu, device_seconds, ..row(stage.stage.name(), stage.calls, busy, busy) }
    }));
    rows
}

/// Processor time of threads since `before`, by name.
pub(super) fn grown(before: &[ThreadTime], after: &[ThreadTime]) -> Vec<ThreadGroup> {
    let mut all: Vec<ThreadGroup> = Vec::new();
    for ThreadTime { id, name, cpu_seconds: cpu } in after {
        let was = before.iter().find(|known| known.id == *id).map_or(0.0, |known| known.cpu_seconds);
        match all.iter_mut().find(|threads| threads.name == *name) {
            Some(threads) => {
                threads.threads += 1;
                threads.cpu_seconds += cpu - was;
            }
            None => all.push(ThreadGroup { name: name.clone(), threads: 1, cpu_seconds: cpu - was }),
        }
    }
    all.sort_by(|a, b| b.cpu_seconds.total_cmp(&a.cpu_seconds));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_one_name_are_one_row_and_old_time_is_not_counted() {
        let thread = |id, name: &str, cpu_seconds| ThreadTime { id, name: name.into(), cpu_seconds };
        let after = [thread(1, "main", 5.5), thread(2, "infeed-cpu", 2.0), thread(3, "infeed-cpu", 1.0)];
        let grown = grown(&[thread(1, "main", 5.0)], &after);
        assert_eq!((grown[0].name.as_str(), grown[0].threads, grown[0].cpu_seconds), ("infeed-cpu", 2, 3.0));
        assert_eq!((grown[1].name.as_str(), grown[1].cpu_seconds), ("main", 0.5));
    }
}
