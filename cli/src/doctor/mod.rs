//! `infeed doctor`: why the trainer waits, and what to change.
//!
//! It makes a few short runs that leave out one part each (as DS-Analyzer does), one of them with decoded pixels
//! instead of files, and checks the machine. `diagnosis` derives the verdict from the figures.

mod diagnosis;
mod machine;
mod page;
mod report;

use std::{
    fs::File,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use infeed::{
    Dataset, Device, Order,
    internal::disk,
    report::{Cause, Stage},
};

use diagnosis::{Measured, diagnose};
use report::{DoctorReport, Trial};

use crate::{
    alone::{HeldRecords, Only},
    args::{DoctorArgs, OnBadSampleArg, OnOff, RunArgs},
    busy::{Busy, Cores},
    failure::Failure,
    options::{self, Steps},
    out::{self, BarOf, JsonTarget, Out},
    report::{RunReport, lies_in_memory},
    run::{self, Observers},
    signals::Signals,
};

/// Batches of each run without --max-batches: enough for a mean, and few enough for a minute.
const BATCHES: u64 = 40;

/// `infeed doctor`.
pub(crate) async fn command(args: DoctorArgs) -> Result<(), Failure> {
    let mut args = args.run;
    let out = Out::new(args.json.as_ref());
    args.json.as_ref().map_or(Ok(()), JsonTarget::check)?;
    args.html.as_deref().map_or(Ok(()), out::check_writable)?;
    if args.state.is_some() || args.resume.is_some() {
        return Err(Failure::Usage("--state and --resume are for infeed run; omit them".into()));
    }
    Steps::check(args.loader.fixed.transform.as_deref())?;
    let start = Instant::now();
    let dataset = args.dataset.open(&args.url, || options::rank(&args.loader.fixed)).await?;
    let open_seconds = start.elapsed().as_secs_f64();
    let wanted = *args.max_batches.get_or_insert(BATCHES);
    // Bad samples do not end the run but are part of the result, even if a whole batch is bad.
    args.loader.fixed.on_bad_sample.get_or_insert(OnBadSampleArg::SkipPadded);
    let (config, ..) = options::loader_config(&args, &*dataset, u64::MAX)?;
    // Entries of earlier runs would make the cold run warm.
    if config.cache.is_some() {
        let what = "doctor measures the waits of a run without a cache; omit --cache, or cache in the --config file";
        return Err(Failure::Usage(what.into()));
    }
    // The runs must differ only in the part that they leave out, not in tuned settings.
    if matches!(args.loader.fixed.autotune, Some(OnOff::On)) {
        return Err(Failure::Usage("doctor compares runs with equal settings; omit --autotune on".into()));
    }
    // A small dataset is read several times. A dataset smaller than a batch gives a smaller batch.
    let records = wanted.saturating_mul(config.batch_size as u64);
    let held = HeldRecords::read(&dataset, records).await?;
    let (subject, prepared) = match &held {
        Some(held) => (Arc::clone(&held.dataset), held.only(Only::Prepare)),
        None => (Arc::clone(&dataset), Arc::clone(&dataset)),
    };
    let of_rank = subject.len() / u64::from(config.shard.world());
    let batch = u64::try_from(config.batch_size).unwrap_or(u64::MAX).min(of_rank).max(1);
    // Parts and weights do not apply to the records held in memory.
    let chosen = matches!(config.order, Order::Mixture(_)) || args.loader.fixed.weights.is_some();
    args.loader.fixed.in_sequence = held.is_some() && chosen;
    args.loader.swept.batch_size = usize::try_from(batch).ok();
    args.loader.fixed.autotune = Some(OnOff::Off);
    args.epochs = wanted.div_ceil((subject.len() / batch).max(1)).max(args.epochs);

    let sizes = held.as_ref().map(HeldRecords::sizes);
    let decoded_bytes = sizes.as_ref().map_or(0, |sizes| sizes.decoded_of(dataset.len()));
    let decodes = decoded_bytes > 0 && config.decoded_cache.is_none();
    let mut trials = Vec::new();
    let mut shown = Out::new(args.json.as_ref());
    let runs = if decodes { 4 } else { 3 };
    shown.start_bar(runs, BarOf::Things("runs"));
    let cores = Cores::now();
    let after = |done: u64| format!("after {done} of {runs} runs");
    let headspace = trainer_alone(args.step_time, wanted, after(0)).await?;
    let alone = (headspace > 0.0).then(|| batch as f64 / headspace);
    let name = "headspace";
    let batches = if args.step_time.is_zero() { 0 } else { wanted.min(STEPS) };
    trials.push(Trial { name, step_seconds: headspace, wait_seconds: 0.0, samples_per_second: alone, batches });
    shown.bar().inc(1);
    forget(&*subject, held.is_some());
    let cold = trial(&args, &subject, open_seconds, after(1)).await?;
    trials.push(Trial::of("cold", &cold));
    shown.bar().inc(1);
    let cached = trial(&args, &prepared, open_seconds, after(2)).await?;
    trials.insert(1, Trial::of("cached", &cached));
    shown.bar().inc(1);
    if let Some(held) = held.as_ref().filter(|_| decodes && cold.device == Device::Cpu.to_string()) {
        let decoded = trial(&args, &held.only(Only::Transform), open_seconds, after(3)).await?;
        trials.push(Trial::of("decoded", &decoded));
        shown.bar().inc(1);
    }
    shown.end_bar();
    let busy = cores.since().known();
    if cold.stream.batches == 0 || cached.stream.batches == 0 {
        return Err(Failure::Failed(
            "no batch arrived, so there is nothing to judge; use a smaller --batch-size".into(),
        ));
    }

    let mut figures = figures(headspace, &trials, &cold, &cached, subject.needs_fetch());
    if held.is_none() && figures.remote {
        // Nothing was held in memory, so the causes of the batches' waits separate the stalls.
        let fetch: f64 = [Cause::Request, Cause::Read].map(|cause| per_step(&cold, cause)).iter().sum();
        figures.cached = Some((figures.cold - fetch).max(headspace));
    }
    if figures.decoded.is_some() {
        figures.decoded_bytes = decoded_bytes;
        // Leave half of the memory to the trainer and the page cache, and divide the rest among the machine's
        // processes.
        let half = infeed::internal::machine::memory().unwrap_or(0) / 2;
        figures.decoded_room = half / u64::from(config.shard.local_world().max(1));
    }
    figures.in_memory = lies_in_memory(&args.url);
    figures.cores_held = busy.filter(Busy::is_crowded).map_or(0.0, |busy| busy.held());
    let diagnosis = diagnose(&figures);
    let checks = machine::checks(&cold, busy.as_ref(), sizes.as_ref(), &*dataset);
    let report = DoctorReport { version: 1, url: args.url.clone(), figures, diagnosis, trials, busy, checks, cold };
    out.line(report.words())?;
    if let Some(warning) = report.busy.as_ref().and_then(Busy::warning) {
        out.warn(warning);
    }
    args.html.as_deref().map_or(Ok(()), |path| out::replace(path, page::page(&report).as_bytes()))?;
    args.json.as_ref().map_or(Ok(()), |json| json.write(&report))
}

/// Why the finished runs are of no use.
const ALL: &str = "a verdict needs all runs";

/// A run without output. `after` is the text of how many runs were finished before.
async fn trial(
    args: &RunArgs,
    dataset: &Arc<dyn Dataset>,
    open_seconds: f64,
    after: String,
) -> Result<RunReport, Failure> {
    let report = run::on(args, dataset, open_seconds, None, &mut Out::silent(), &mut Observers::default()).await?;
    match report.stopped {
        Some(signal) => Err(Failure::Stopped { signal, after: Some(after), hint: ALL }),
        None => Ok(report),
    }
}

/// Most steps that are timed without data: more would not make the mean better.
const STEPS: u64 = 20;

/// Time of a step with data ready: the simulated trainer, including its timer.
async fn trainer_alone(step: Duration, steps: u64, after: String) -> Result<f64, Failure> {
    if step.is_zero() {
        return Ok(0.0);
    }
    let steps = steps.clamp(1, STEPS);
    let began = Instant::now();
    let mut signals = Signals::new()?;
    for _ in 0..steps {
        tokio::select! {
            signal = signals.next() => return Err(Failure::Stopped { signal, after: Some(after), hint: ALL }),
            () = tokio::time::sleep(step) => {}
        }
    }
    Ok(began.elapsed().as_secs_f64() / steps as f64)
}

/// Removes local files from the page cache, so that the cold run is cold. Files on a RAM disk stay in memory.
fn forget(dataset: &dyn Dataset, were_read: bool) {
    if !were_read {
        return;
    }
    let mut done = std::collections::HashSet::new();
    for record in 0..dataset.len() {
        let Ok(plan) = dataset.plan(record, infeed::dataset::SampleRng::new(0, 0, record)) else { continue };
        for extent in plan.extents.iter().filter(|extent| extent.source.reads_inline()) {
            let path = extent.source.display_name(&extent.name);
            let path = path.strip_prefix("file://").unwrap_or(&path).to_owned();
            // Shards hold many records, so do each file once.
            if done.insert(path.clone())
                && let Ok(file) = File::open(Path::new(&path))
            {
                disk::forget(&file);
            }
        }
    }
}

/// Mean wait per step for one cause, including its part of the first batch's time.
fn per_step(run: &RunReport, cause: Cause) -> f64 {
    let waits = run.stream.late_causes.iter().filter(|known| known.cause == cause).map(|known| known.wait);
    let first = run.stream.first_batch_parts.iter().filter(|part| part.cause == cause).map(|part| part.time);
    let all: Duration = waits.chain(first).sum();
    all.as_secs_f64() / run.stream.batches.max(1) as f64
}

fn figures(headspace: f64, trials: &[Trial], cold: &RunReport, cached: &RunReport, remote: bool) -> Measured {
    let of = |name: &str| trials.iter().find(|trial| trial.name == name).map(|trial| trial.step_seconds);
    let busy = |stage: Stage| {
        let known = cached.stream.stages.iter().find(|known| known.stage == stage);
        known.map_or(0.0, |known| known.busy.as_secs_f64())
    };
    let work = busy(Stage::Decode) + busy(Stage::Transform);
    let bad = cold.stream.bad_sample_count as f64;
    let asked = cold.config.get("io_concurrency").and_then(serde_json::Value::as_u64);
    let in_flight = cold.requests.as_ref().map_or(0, |requests| requests.report.most_in_flight);
    Measured {
        headspace,
        cached: of("cached"),
        cold: of("cold").unwrap_or(0.0),
        decoded: of("decoded"),
        transfer: per_step(cached, Cause::Copy),
        room: per_step(cold, Cause::Room),
        decode_share: if work > 0.0 { busy(Stage::Decode) / work } else { 0.0 },
        bad_share: bad / (bad + cold.stream.samples as f64).max(1.0),
        workers: cold.workers.unwrap_or(1),
        cores: infeed::internal::machine::cores().get(),
        remote,
        requests_exhausted: asked.is_some_and(|most| in_flight + 1 >= most),
        ..Measured::default()
    }
}
