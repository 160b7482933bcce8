//! A trainer whose step keeps the GPU busy for a fixed time, on batches of the loader and on one that stays.
//!
//! The step is copies within the device on a stream of its own, as many as take the time that was asked for (that of a
//! real model's step; `integration/gpu/step_torch.py` measures one). They take the whole bandwidth of the memory, which
//! a model leaves a part of: whatever the loader does on the GPU shows at least as much as it would there.

use std::time::{Duration, Instant};

use infeed::{
    BatchStream, Result, Tensor,
    internal::cuda::{Context, Copies, Meter},
};
use serde_json::json;

use super::{
    Bench,
    loaders::{self, GPU},
    out::Out,
    sampler::GpuSampler,
};

/// A step's work.
struct Trainer {
    meter: Meter,
    bytes: usize,
    copies: usize,
}

impl Trainer {
    fn step(&mut self, image: &Tensor) -> Result<()> {
        // As a trainer asks for it: its memory comes back behind this stream's work.
        let _ = image.device_ptr(self.meter.stream());
        self.meter.start(Copies::Within, self.bytes, self.copies)?;
        self.meter.wait()
    }
}

/// Steps with their waits.
#[derive(Default)]
struct Steps {
    steps: Vec<f64>,
    waits: f64,
}

pub(super) fn train(bench: &mut Bench, out: &mut Out) -> Result<()> {
    let context = Context::open(0)?;
    let bytes = bench.scale.of(256usize << 20, 256 << 20, 1 << 16);
    let mut meter = Meter::new(&context, bytes)?;
    meter.time(Copies::Within, bytes, 20)?;
    let one = meter.time(Copies::Within, bytes, 20)? / 20;
    let copies = (bench.step.as_secs_f64() / one.as_secs_f64().max(1e-6)).round().clamp(1.0, 1e5) as usize;
    let copies = if bench.scale == super::Scale::Tiny { 2 } else { copies };
    let mut trainer = Trainer { meter, bytes, copies };

    let loader = loaders::builder(bench)?.device(GPU).build_blocking()?;
    let config = loader.config().clone();
    let mut batches = loader.epochs(0..u64::MAX);
    let seconds = Duration::from_secs_f64(bench.scale.of(8.0, 4.0, 0.05));
    let (mut resident, mut loaded) = (Vec::new(), Vec::new());
    let mut utilisation = Vec::new();
    let mut kept = None;
    let mut rounds = 0;
    // One after the other in turn, so that a drift of the machine is in both.
    for round in 0..=out.runs() {
        let batch = match kept.take() {
            Some(batch) => batch,
            None => next(&mut batches)?,
        };
        let still = steps(seconds / 2, || {
            let begin = Instant::now();
            trainer.step(&batch["image"])?;
            Ok((begin.elapsed(), Duration::ZERO))
        })?;
        kept = Some(batch);
        // What was made ahead meanwhile does not count.
        for _ in 0..config.prefetch.unwrap_or(1) + 1 {
            trainer.step(&next(&mut batches)?["image"])?;
        }
        let sampler = GpuSampler::start(0);
        let moving = steps(seconds, || {
            let begin = Instant::now();
            let batch = next(&mut batches)?;
            let wait = begin.elapsed();
            trainer.step(&batch["image"])?;
            drop(batch);
            Ok((begin.elapsed(), wait))
        })?;
        let used = sampler.and_then(GpuSampler::finish);
        // The first round warms up.
        if round > 0 {
            utilisation.extend(used.map(|used| used.utilisation_mean));
            resident.push(mean(&still.steps));
            loaded.push((mean(&moving.steps), 1.0 - moving.waits / moving.steps.iter().sum::<f64>().max(1e-9)));
            rounds += moving.steps.len();
        }
    }
    let more = json!({
        "asked_ms": bench.step.as_secs_f64() * 1e3, "copies": copies, "bytes": bytes, "batch": config.batch_size,
        "workers": config.workers, "prefetch": config.prefetch, "steps": rounds,
    });
    let milliseconds = |values: &[f64]| values.iter().map(|s| s * 1e3).collect::<Vec<_>>();
    let steps_loaded: Vec<f64> = loaded.iter().map(|(step, _)| *step).collect();
    out.values("step on a resident batch", "ms", more.clone(), milliseconds(&resident));
    out.values("step on the loader's batches", "ms", more.clone(), milliseconds(&steps_loaded));
    let longer = steps_loaded.iter().zip(&resident).map(|(with, without)| (with / without - 1.0) * 100.0).collect();
    out.values("step is longer by", "%", more, longer);
    out.values("AU", "of 1", json!({}), loaded.iter().map(|(_, au)| *au).collect());
    if utilisation.is_empty() {
        out.note("GPU utilisation", json!("NVML tells nothing"));
    } else {
        out.values("GPU utilisation", "of 1", json!({}), utilisation);
    }
    let rate = steps_loaded.iter().map(|step| config.batch_size as f64 / step).collect();
    out.values("pace", "images/s", json!({}), rate);
    Ok(())
}

fn next(batches: &mut BatchStream) -> Result<infeed::Batch> {
    let batch = futures::executor::block_on(futures::StreamExt::next(batches));
    batch.ok_or_else(|| infeed::Error::config("fewer records than a batch has rows"))?
}

/// Steps for this long, at least three.
fn steps(time: Duration, mut step: impl FnMut() -> Result<(Duration, Duration)>) -> Result<Steps> {
    let mut done = Steps::default();
    let begin = Instant::now();
    while begin.elapsed() < time || done.steps.len() < 3 {
        let (took, waited) = step()?;
        done.steps.push(took.as_secs_f64());
        done.waits += waited.as_secs_f64();
    }
    Ok(done)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}
