//! Single stages, each measured alone for several numbers of decode threads.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::StreamExt;
use infeed::{
    Dataset, Loader, LoaderConfig, OnBadSample, Shard, Transform,
    report::Stage,
    sampler::Order,
    transform::{Op, augment::RandomApply},
};

use super::report::{AloneReport, StepReport};
use crate::{
    alone::{HeldRecords, Only},
    args::RunArgs,
    failure::Failure,
    options,
    out::{BarOf, Out},
};

/// Time of each measurement, unless --max-time is less: long enough for a rate, and short enough that four stages at
/// five numbers of workers take less than half a minute.
const ALONE: Duration = Duration::from_millis(500);

/// The name of all stages together.
const ALL: &str = "all";

/// Measures each stage alone at 1, 2, 4, … workers, up to the number of cores.
pub(super) async fn measure_all(
    args: &RunArgs,
    dataset: &Arc<dyn Dataset>,
    out: &mut Out,
) -> Result<(Vec<AloneReport>, Vec<StepReport>), Failure> {
    let (config, ..) = options::loader_config(args, &**dataset, u64::MAX)?;
    let Some(held) = HeldRecords::read(dataset, 4 * config.batch_size as u64).await? else {
        out.line("\nStages alone: not measured, because the records of this dataset share decoded parts.")?;
        return Ok((Vec::new(), Vec::new()));
    };
    let time = args.max_time.map_or(ALONE, |most| most.min(ALONE));
    let cores = infeed::internal::machine::cores().get();
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
    stages.push((ALL, Arc::clone(&held.dataset)));
    let steps = augmentations(&config);
    let rounds = if steps.is_empty() { 0 } else { ROUNDS };
    let measurements = stages.len() * counts.len() + rounds * (steps.len() + 1);
    out.start_bar(measurements as u64, BarOf::Things("measurements of single stages"));
    let mut rows = Vec::new();
    for (stage, dataset) in stages {
        for workers in &counts {
            let mut config = quick(config.clone(), dataset.len());
            config.workers = Some(*workers);
            if [Only::Fetch.name(), Only::Decode.name()].contains(&stage) {
                // Their samples hold no image, so a transform does not apply.
                let LoaderConfig { transform, views, .. } = LoaderConfig::default();
                (config.transform, config.views) = (transform, views);
            }
            if stage != ALL {
                // Mixing works on whole batches and is not part of a single stage.
                config.mix = None;
            }
            rows.push(measure(stage, &dataset, config, *workers, time).await?.0);
            out.bar().inc(1);
        }
    }
    let pixels = held.only(Only::Transform);
    let mut all = Vec::new();
    let mut without: Vec<Vec<f64>> = steps.iter().map(|_| Vec::new()).collect();
    // In turn, so that a change in the machine's speed affects all of them.
    for _ in 0..rounds {
        all.push(seconds_a_sample(&pixels, &config, time).await?);
        out.bar().inc(1);
        for (step, seconds) in steps.iter().zip(&mut without) {
            seconds.push(seconds_a_sample(&pixels, &step.without(&config), time).await?);
            out.bar().inc(1);
        }
    }
    out.end_bar();
    let all = median(&mut all);
    let report = |(step, mut seconds): (Augmentation, Vec<f64>)| {
        // Noise may make the difference negative.
        let seconds = (all - median(&mut seconds)).max(0.0);
        let Augmentation { view, index, name } = step;
        let view = view.map(|view| config.views[view].name.clone());
        StepReport { view, step: index + 1, name, seconds, share: seconds / all.max(f64::MIN_POSITIVE) }
    };
    let steps = steps.into_iter().zip(without).map(report).collect();
    Ok((rows, steps))
}

/// Measurements of each step, of which the median counts.
const ROUNDS: usize = 3;

/// An augmentation of a transform or of a view.
struct Augmentation {
    view: Option<usize>,
    index: usize,
    name: String,
}

fn augmentations(config: &LoaderConfig) -> Vec<Augmentation> {
    let of = |view: Option<usize>, transform: &Transform| {
        // Grayscale changes the shape of rows, so it cannot be left out. It costs almost nothing.
        let counts = |op: &Op| op.is_augmentation() && !matches!(op, Op::Grayscale(_));
        let steps = transform.ops().iter().enumerate().filter(|(_, op)| counts(op));
        steps.map(|(index, op)| Augmentation { view, index, name: op.name().to_owned() }).collect::<Vec<_>>()
    };
    let views = config.views.iter().enumerate().flat_map(|(n, view)| of(Some(n), &view.transform));
    of(None, &config.transform).into_iter().chain(views).collect()
}

impl Augmentation {
    fn without(&self, config: &LoaderConfig) -> LoaderConfig {
        let mut config = config.clone();
        let transform = match self.view {
            Some(view) => &mut config.views[view].transform,
            None => &mut config.transform,
        };
        let ops = transform.ops().iter().enumerate();
        let ops: Vec<Op> = ops.map(|(n, op)| if n == self.index { never(op) } else { op.clone() }).collect();
        *transform = Transform::from(ops);
        config
    }
}

/// The step with probability 0. It keeps its place, so that the other steps keep their draws and their input.
fn never(op: &Op) -> Op {
    match op {
        Op::RandomErasing(step) => {
            let mut step = step.clone();
            step.p = 0.0;
            Op::RandomErasing(step)
        }
        op => Op::RandomApply(RandomApply { transforms: vec![op.clone()], p: 0.0 }),
    }
}

/// Time of one thread per sample, with decoded pixels in memory. This is processor time if the system reports it,
/// because other processes may use the cores meanwhile.
async fn seconds_a_sample(pixels: &Arc<dyn Dataset>, config: &LoaderConfig, time: Duration) -> Result<f64, Failure> {
    let mut config = quick(config.clone(), pixels.len());
    config.workers = Some(1);
    config.mix = None;
    let (measured, cpu) = measure(Only::Transform.name(), pixels, config, 1, time).await?;
    Ok(cpu.unwrap_or(1.0 / measured.samples_per_second.max(f64::MIN_POSITIVE)))
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Settings for repeated passes over a few records: whole batches, in sequence, with bad samples skipped.
fn quick(mut config: LoaderConfig, records: u64) -> LoaderConfig {
    config.batch_size = config.batch_size.min(usize::try_from(records).unwrap_or(usize::MAX)).max(1);
    config.order = Order::Sequential;
    config.shard = Shard::default();
    if config.on_bad_sample == OnBadSample::Stop {
        // Even if a whole batch is bad: these runs only measure time.
        config.on_bad_sample = OnBadSample::SkipPadded { at_most: u64::MAX };
    }
    config.cache = None;
    // The runs are too short for autotuning to settle.
    config.autotune = false;
    config
}

/// Measures a stage. Also gives the decode threads' processor time per row; `None` if the system does not report it.
async fn measure(
    stage: &'static str,
    dataset: &Arc<dyn Dataset>,
    config: LoaderConfig,
    workers: usize,
    time: Duration,
) -> Result<(AloneReport, Option<f64>), Failure> {
    let loader = Loader::builder(Arc::clone(dataset)).config(config).build().await?;
    let mut batches = loader.epochs(0..u64::MAX);
    let began = Instant::now();
    let mut samples = 0;
    let mut from = None;
    while let Some(batch) = batches.next().await {
        let batch = batch?;
        // The first batch includes the start of the loader, and is reported apart.
        match from {
            None => from = Some(Instant::now()),
            Some(_) => samples += batch.len() as u64,
        }
        if began.elapsed() >= time && samples > 0 {
            break;
        }
    }
    let seconds = from.map_or(0.0, |from: Instant| from.elapsed().as_secs_f64());
    let report = batches.report();
    let first_batch_seconds = report.first_batch.map(|time| time.as_secs_f64());
    let samples_per_second = samples as f64 / seconds.max(f64::MIN_POSITIVE);
    let rows = report.stages.iter().find(|known| known.stage == Stage::Transform).map_or(0, |known| known.items);
    let cpu: Duration = report.stages.iter().map(|known| known.cpu).sum();
    let cpu = (!cpu.is_zero()).then(|| cpu.as_secs_f64() / rows.max(1) as f64);
    Ok((AloneReport { stage, workers, samples_per_second, first_batch_seconds, samples }, cpu))
}

/// 1, 2, 4, … and the number of cores.
fn worker_counts(cores: usize) -> Vec<usize> {
    let mut counts: Vec<usize> = std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|n| *n < cores).collect();
    counts.push(cores.max(1));
    counts
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
}
