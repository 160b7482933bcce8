//! Single stages, measured one at a time by the number of decode threads.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::StreamExt;
use infeed::{Dataset, Loader, LoaderConfig, OnBadSample, Shard, sampler::Order};

use super::report::AloneReport;
use crate::{
    alone::{Held, Only},
    args::RunArgs,
    failure::Failure,
    options,
    out::Out,
};

/// How long a stage is measured alone: long enough for a rate, short enough that four stages at five numbers of workers
/// take less than half a minute.
const ALONE: Duration = Duration::from_millis(500);

/// What a run does.
const ALL: &str = "all";

/// Each stage by itself at 1, 2, 4, … workers, up to the cores.
pub(super) async fn measure_all(
    args: &RunArgs,
    dataset: &Arc<dyn Dataset>,
    out: &mut Out,
) -> Result<Vec<AloneReport>, Failure> {
    let (config, _) = options::loader_config(&args.loader, &**dataset, u64::MAX)?;
    let Some(held) = Held::read(dataset, 4 * config.batch_size as u64).await? else {
        out.line("\nStages alone: left out, the records of this dataset share decoded parts.")?;
        return Ok(Vec::new());
    };
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
    out.start_bar((stages.len() * counts.len()) as u64, "{msg} {wide_bar} {pos}/{len} measurements of single stages");
    let mut rows = Vec::new();
    for (stage, dataset) in stages {
        for workers in &counts {
            let mut config = quick(config.clone(), dataset.len());
            config.workers = Some(*workers);
            if [Only::Fetch.name(), Only::Decode.name()].contains(&stage) {
                // Their samples hold no image, for which a transform would be.
                let LoaderConfig { transform, views, .. } = LoaderConfig::default();
                (config.transform, config.views) = (transform, views);
            }
            if stage != ALL {
                // Batches are mixed when they are whole: no part of what is measured one by one.
                config.mix = None;
            }
            rows.push(measure(stage, &dataset, config, *workers).await?);
            out.bar().inc(1);
        }
    }
    out.end_bar();
    Ok(rows)
}

/// Settings for a few records again and again: whole batches, in sequence, whatever is wrong with some.
fn quick(mut config: LoaderConfig, records: u64) -> LoaderConfig {
    config.batch_size = config.batch_size.min(usize::try_from(records).unwrap_or(usize::MAX)).max(1);
    config.order = Order::Sequential;
    config.shard = Shard::default();
    if config.on_bad_sample == OnBadSample::Stop {
        // Also where a whole batch is bad: these runs are about time.
        config.on_bad_sample = OnBadSample::SkipPadded { at_most: u64::MAX };
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
