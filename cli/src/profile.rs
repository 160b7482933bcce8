//! `infeed profile`: where the time of a run goes, as the profilers of frameworks show it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::StreamExt;
use infeed::{Dataset, Loader, LoaderConfig, OnBadSample, Stage, StageReport, sampler::Order};
use serde::Serialize;

use crate::{
    alone::{Held, Only},
    args::{ProfileArgs, RunArgs},
    failure::Failure,
    html,
    out::{self, JsonTarget, Out},
    process::{self, ThreadTime},
    report::{self, RunReport, cause_words},
    run::{self, Onlookers},
    trace::Trace,
    units,
};

/// How long a stage is measured alone: long enough for a rate, short enough that four stages at five numbers of workers
/// take less than half a minute.
const ALONE: Duration = Duration::from_millis(500);

/// What the step's row holds besides the trainer's own time.
const WAIT: &str = "wait for data";

/// The JSON of `profile`; its keys are stable. Times are in seconds.
#[derive(Debug, Serialize)]
pub(crate) struct ProfileReport {
    pub version: u32,
    pub run: RunReport,
    /// One row for each thing that takes time.
    pub table: Vec<Row>,
    /// Processor time by kind of thread, while the loader was there.
    pub threads: Vec<Threads>,
    /// Rates of single stages by the number of decode threads; empty where they can't be taken apart.
    pub alone: Vec<AloneReport>,
}

/// A line of the table.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub name: &'static str,
    pub calls: u64,
    /// Host time without what is listed below it.
    pub self_seconds: f64,
    /// Host time.
    pub total_seconds: f64,
    /// Of one call.
    pub average_seconds: f64,
    /// Processor time; `None` where it is not known.
    pub cpu_seconds: Option<f64>,
    /// On the GPU; `None` without one.
    pub device_seconds: Option<f64>,
}

/// Threads of one name.
#[derive(Debug, Serialize)]
pub(crate) struct Threads {
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

/// `infeed profile`.
pub(crate) async fn command(args: ProfileArgs, trace: Option<Trace>) -> Result<(), Failure> {
    let mut out = Out::new(args.run.json.as_ref());
    args.run.json.as_ref().map_or(Ok(()), JsonTarget::check)?;
    args.run.html.as_deref().map_or(Ok(()), out::check_writable)?;
    if args.run.state.is_some() || args.run.resume.is_some() {
        return Err(Failure::Usage("--state and --resume are for infeed run".into()));
    }
    let start = Instant::now();
    let dataset = args.run.dataset.apply(infeed::open(&args.run.url)).await?;
    let open_seconds = start.elapsed().as_secs_f64();
    let before = process::threads();
    let run = run::on(&args.run, &dataset, open_seconds, None, &mut out, &Onlookers::default()).await?;
    let threads = grown(&before, &run.threads);
    // What follows are other runs: they have no place in the trace.
    let traced = trace.as_ref().map(Trace::finish).transpose()?;
    let stopped = run.stopped;
    let alone = match stopped.is_some() || args.no_stages {
        true => Vec::new(),
        false => alone(&args.run, &dataset, &mut out).await?,
    };
    let report = ProfileReport { version: 1, table: table(&run), run, threads, alone };
    out.line(format_args!("\n{}", report.words()))?;
    if let (Some(path), Some((events, left_out))) = (&args.trace, traced) {
        out.line(format_args!(
            "\ntrace: {} events in {}; open it at https://ui.perfetto.dev",
            units::count(events),
            path.display()
        ))?;
        if left_out > 0 {
            out.warn(format_args!("{} events found no place; use --max-batches", units::count(left_out)));
        }
    }
    if let Some(path) = &args.run.html {
        out::replace(path, html::profile(&report).as_bytes())?;
    }
    args.run.json.as_ref().map_or(Ok(()), |json| json.write(&report))?;
    match stopped {
        Some(signal) => Err(Failure::Stopped(signal, "the table is of what was done until then")),
        None => Ok(()),
    }
}

/// The rows: the trainer's loop first, then the loader's stages, which pass beside it.
fn table(run: &RunReport) -> Vec<Row> {
    let steps = run.batches.saturating_sub(1);
    let (step, wait) = (run.step.sum, run.data_wait.sum.as_secs_f64());
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
    let stages = run.stages.iter().filter(there);
    rows.extend(stages.map(|stage: &StageReport| {
        let busy = stage.busy.as_secs_f64();
        let cpu = (!stage.cpu.is_zero()).then_some(stage.cpu.as_secs_f64());
        let device_seconds = on_gpu.then_some(stage.device.as_secs_f64());
        Row { cpu_seconds: cpu, device_seconds, ..row(stage.stage.name(), stage.calls, busy, busy) }
    }));
    rows
}

impl ProfileReport {
    fn words(&self) -> String {
        [Some(self.run.table()), Some(self.table_words()), self.first_words(), self.thread_words(), self.alone_words()]
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
                // A part of the step above it.
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
        format!("{}\nStages pass beside the trainer's steps, each summed over its threads.", table.trim_fmt())
    }

    /// The first batch, apart.
    fn first_words(&self) -> Option<String> {
        let first = self.run.first_batch_seconds?;
        let mut table = report::table();
        table.add_row(["first batch".to_owned(), units::time(first)]);
        table.add_row(["  before it: open".to_owned(), units::time(self.run.open_seconds)]);
        table.add_row(["  before it: build".to_owned(), units::time(self.run.build_seconds)]);
        for part in &self.run.first_batch_parts {
            table.add_row([format!("  {}", cause_words(part.cause)), units::time(part.time.as_secs_f64())]);
        }
        report::align_right(&mut table, 1..);
        Some(table.trim_fmt())
    }

    fn thread_words(&self) -> Option<String> {
        let mut table = report::table();
        table.set_header(["threads", "how many", "CPU"]);
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

/// Each stage by itself at 1, 2, 4, … workers, up to the cores.
async fn alone(args: &RunArgs, dataset: &Arc<dyn Dataset>, out: &mut Out) -> Result<Vec<AloneReport>, Failure> {
    let (config, _) = crate::options::loader_config(&args.loader, &**dataset, u64::MAX)?;
    let Some(held) = Held::read(dataset, 4 * config.batch_size as u64).await? else {
        out.line("\nStages alone: left out, the records of this dataset share decoded parts.")?;
        return Ok(Vec::new());
    };
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let counts = worker_counts(cores);
    let mut stages: Vec<(&'static str, Arc<dyn Dataset>)> = Vec::new();
    if dataset.largest_read() > 0 {
        stages.push((Only::Fetch.name(), held.only(Only::Fetch)));
    }
    let has_files = held
        .dataset
        .schema()
        .fields
        .iter()
        .any(|field| matches!(field.kind, infeed::dataset::FieldKind::Image { size: None, .. }) && !field.mask);
    if has_files {
        stages.push((Only::Decode.name(), held.only(Only::Decode)));
    }
    stages.push((Only::Transform.name(), held.only(Only::Transform)));
    stages.push((Only::Prepare.name(), held.only(Only::Prepare)));
    stages.push(("all", Arc::clone(&held.dataset)));
    out.start_bar((stages.len() * counts.len()) as u64, "{msg} {wide_bar} {pos}/{len} measurements of single stages");
    let mut rows = Vec::new();
    for (stage, dataset) in stages {
        for workers in &counts {
            let mut config = quick(config.clone(), dataset.len());
            config.workers = Some(*workers);
            rows.push(measure(stage, &dataset, config, *workers).await?);
            out.bar().inc(1);
        }
    }
    out.end_bar();
    Ok(rows)
}

/// Settings for a few records again and again: whole batches, in sequence, whatever is wrong with some.
pub(crate) fn quick(mut config: LoaderConfig, records: u64) -> LoaderConfig {
    config.batch_size = config.batch_size.min(usize::try_from(records).unwrap_or(usize::MAX)).max(1);
    config.order = Order::Sequential;
    config.shard = infeed::Shard::default();
    if config.on_bad_sample == OnBadSample::Stop {
        config.on_bad_sample = OnBadSample::Skip { at_most: u64::MAX };
    }
    config.cache = None;
    // Too short to settle in.
    config.autotune = false;
    config
}

async fn measure(
    stage: &'static str,
    dataset: &Arc<dyn Dataset>,
    config: LoaderConfig,
    workers: usize,
) -> Result<AloneReport, Failure> {
    let loader = Loader::builder(Arc::clone(dataset)).config(config).build().await?;
    let mut batches = loader.epochs(0..u64::MAX);
    let began = Instant::now();
    let mut samples = 0;
    let mut from = None;
    while let Some(batch) = batches.next().await {
        let batch = batch?;
        // The first batch is the start of everything, and told apart.
        match from {
            None => from = Some(Instant::now()),
            Some(_) => samples += batch.len() as u64,
        }
        if began.elapsed() >= ALONE && samples > 0 {
            break;
        }
    }
    let seconds = from.map_or(0.0, |from: Instant| from.elapsed().as_secs_f64());
    let first_batch_seconds = batches.report().first_batch.map(|time| time.as_secs_f64());
    let samples_per_second = samples as f64 / seconds.max(f64::MIN_POSITIVE);
    Ok(AloneReport { stage, workers, samples_per_second, first_batch_seconds, samples })
}

/// 1, 2, 4, … and the number of cores.
pub(crate) fn worker_counts(cores: usize) -> Vec<usize> {
    let mut counts: Vec<usize> = std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|n| *n < cores).collect();
    counts.push(cores.max(1));
    counts
}

/// What threads used since `before`, by name.
fn grown(before: &[ThreadTime], after: &[ThreadTime]) -> Vec<Threads> {
    let mut all: Vec<Threads> = Vec::new();
    for ThreadTime { id, name, cpu_seconds: cpu } in after {
        let was = before.iter().find(|known| known.id == *id).map_or(0.0, |known| known.cpu_seconds);
        match all.iter_mut().find(|threads| threads.name == *name) {
            Some(threads) => {
                threads.threads += 1;
                threads.cpu_seconds += cpu - was;
            }
            None => all.push(Threads { name: name.clone(), threads: 1, cpu_seconds: cpu - was }),
        }
    }
    all.sort_by(|a, b| b.cpu_seconds.total_cmp(&a.cpu_seconds));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_double_up_to_the_cores() {
        for (cores, want) in [(1, &[1][..]), (2, &[1, 2]), (6, &[1, 2, 4, 6]), (8, &[1, 2, 4, 8])] {
            assert_eq!(worker_counts(cores), want);
        }
    }

    #[test]
    fn threads_of_one_name_are_one_row_and_old_time_is_not_counted() {
        let thread = |id, name: &str, cpu_seconds| ThreadTime { id, name: name.into(), cpu_seconds };
        let after = [thread(1, "main", 5.5), thread(2, "infeed-cpu", 2.0), thread(3, "infeed-cpu", 1.0)];
        let grown = grown(&[thread(1, "main", 5.0)], &after);
        assert_eq!((grown[0].name.as_str(), grown[0].threads, grown[0].cpu_seconds), ("infeed-cpu", 2, 3.0));
        assert_eq!((grown[1].name.as_str(), grown[1].cpu_seconds), ("main", 0.5));
    }
}
