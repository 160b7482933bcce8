//! `infeed run`: a training loop without the training.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::StreamExt;
use infeed::{
    Batch, BatchStream, Dataset, Device, Loader, LoaderBuilder,
    codec::{DecodeIndex, Split},
    metrics::Metrics,
    sampler::LoaderState,
};
use serde_json::{Map, Value, json};
use tracing::Instrument;
use xxhash_rust::xxh3::Xxh3;

use crate::{
    args::{RunArgs, WatchedArgs},
    checksum::{Checksum, ChecksumOf},
    console,
    failure::Failure,
    gpu::GpuSampler,
    html,
    live::{self, About, Live, Sights},
    options,
    out::{self, JsonTarget, Out},
    process,
    report::{Requests, RunReport, Settled, TimeLine},
    sampler::Sampler,
    signals::{Signal, Signals},
    state::{self, StateFile},
    units,
};

/// Who looks on while a run lasts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Onlookers {
    live: bool,
    metrics: Metrics,
}

/// `infeed run`. `metrics` are those that are exported elsewhere, too.
pub(crate) async fn command(args: WatchedArgs, metrics: Metrics) -> Result<(), Failure> {
    let WatchedArgs { onlookers: watching, run: args } = args;
    let mut out = Out::new(args.json.as_ref());
    // An hour of work must not end in a path that can't be written.
    args.json.as_ref().map_or(Ok(()), JsonTarget::check)?;
    args.state.as_deref().map_or(Ok(()), out::check_writable)?;
    args.html.as_deref().map_or(Ok(()), out::check_writable)?;
    args.decode_index.as_deref().map_or(Ok(()), out::check_writable)?;
    let from = args.resume.as_deref().map(StateFile::read).transpose()?;
    // And neither in an address that was taken.
    let server = watching.metrics.map(|address| metrics.serve(address)).transpose()?;
    if let Some(server) = &server {
        console::to_stderr(format_args!("metrics: http://{}/metrics", server.address()));
    }
    let mut onlookers = Onlookers { live: watching.live, metrics };
    if let Err(why) = live::possible()
        && watching.live
    {
        console::to_stderr(format_args!("--live: {why}, so the usual lines follow"));
        onlookers.live = false;
    }
    let report = run(&args, from, &mut out, &onlookers).await?;
    out.line(format_args!("\n{}", report.table()))?;
    args.html.as_deref().map_or(Ok(()), |path| out::replace(path, html::run_page(&report).as_bytes()))?;
    args.json.as_ref().map_or(Ok(()), |json| json.write(&report))?;
    if let (Some(_), None, false) = (&server, report.stopped, watching.metrics_linger.is_zero()) {
        let mut signals = Signals::new()?;
        tokio::select! {
            _ = signals.next() => {}
            () = tokio::time::sleep(watching.metrics_linger) => {}
        }
    }
    match report.stopped {
        None => Ok(()),
        Some(Signal::Quit) => Ok(()),
        Some(signal) if args.state.is_some() => Err(Failure::Stopped(signal, "go on with --resume and the state file")),
        Some(signal) => Err(Failure::Stopped(signal, "with --state it could go on later")),
    }
}

/// Opens, builds, streams; gives the figures.
pub(crate) async fn run(
    args: &RunArgs,
    from: Option<StateFile>,
    out: &mut Out,
    onlookers: &Onlookers,
) -> Result<RunReport, Failure> {
    let start = Instant::now();
    let dataset = args.dataset.apply(infeed::open(&args.url)).await?;
    on(args, &dataset, start.elapsed().as_secs_f64(), from, out, onlookers).await
}

/// Builds and streams a dataset that was opened already.
pub(crate) async fn on(
    args: &RunArgs,
    dataset: &Arc<dyn Dataset>,
    open_seconds: f64,
    from: Option<StateFile>,
    out: &mut Out,
    onlookers: &Onlookers,
) -> Result<RunReport, Failure> {
    let start = Instant::now();
    let (config, transform_name) = options::loader_config(&args.loader, &**dataset, args.epochs)?;
    let most = config.decode_index_bytes;
    let index = args.decode_index.as_deref().map(|path| DecodeIndex::open(path, most)).transpose()?;
    let builder = Loader::builder(Arc::clone(dataset)).config(config);
    let loader = index.iter().cloned().fold(builder, LoaderBuilder::decode_index).build().await?;
    let build_seconds = start.elapsed().as_secs_f64();

    let rank = loader.config().shard.rank();
    let mut config = describe(&loader, args, &transform_name)?;
    let of = match (loader.config().device, loader.config().split) {
        (Some(Device::Cuda(_)), Split::Adaptive) => ChecksumOf::Records,
        _ => ChecksumOf::Rows,
    };
    config.insert("resumed".into(), resumed(from.as_ref(), rank, of));
    let checksum = match (&from, args.checksum) {
        (_, false) => None,
        (None, true) => Some(Checksum::default()),
        (Some(from), true) => Some(from.checksum_for(rank, of).unwrap_or_else(|| {
            out.warn("the resumed run kept no checksum of this kind, so this one covers the rest alone; run the first part with --checksum too");
            Checksum::default()
        })),
    };

    let gpu = match loader.config().device {
        Some(Device::Cuda(index)) => GpuSampler::start(index),
        _ => None,
    };
    let sampler = (loader.config().accounting || onlookers.live).then(Sampler::start);
    let (cpu, start) = (process::cpu_seconds(), Instant::now());
    let (stream, step_offset) = match &from {
        Some(from) => {
            let stride = loader.config().shard.world() as u64 * loader.config().batch_size as u64;
            (loader.resume_until(&from.state, args.epochs)?, (from.state.epoch, from.state.position / stride))
        }
        None => (loader.epochs(0..args.epochs), (0, 0)),
    };
    onlookers.metrics.watch("run", stream.monitor());
    let signals = Signals::new()?;
    let live = match (onlookers.live, &sampler) {
        (true, Some(sampler)) => {
            let config = loader.config();
            let (records, device) = (units::count(dataset.len()), config.device.unwrap_or_default());
            let about = About {
                url: args.url.clone(),
                what: format!("{}, {records} records, {device}, batch {}", dataset.format(), config.batch_size),
                batches_per_epoch: loader.batches_per_epoch(),
                epochs: args.epochs,
                done_before: step_offset.0 * loader.batches_per_epoch() + step_offset.1,
                wanted: args.max_batches.unwrap_or(u64::MAX),
            };
            let gpu = gpu.as_ref().map(GpuSampler::eye);
            let sights = Sights { about, monitor: stream.monitor(), process: sampler.eye(), gpu };
            let live = Live::start(sights, signals.keys());
            live.inspect_err(|error| out.warn(format_args!("--live: no view on this terminal: {error}"))).ok()
        }
        _ => None,
    };
    let samples_before = from.as_ref().filter(|from| from.rank == rank).map_or(0, |from| from.samples);
    let mut trainer = Trainer {
        args,
        out,
        rank,
        batches_per_epoch: loader.batches_per_epoch(),
        step_offset,
        checksum,
        of,
        hasher: Xxh3::new(),
        meters: Meters::default(),
        samples_before,
        batches: 0,
        samples: 0,
        batches_wanted: args.max_batches.unwrap_or(u64::MAX),
        signals,
        stopped: None,
        line: TimeLine::default(),
        first: None,
        warm: None,
        settled: None,
    };
    let trained = trainer.train(stream).await;
    // From here on words go to the terminal as ever, those of a failure first of all.
    drop(live);
    // Also when the run failed: what was learned is true.
    index.as_ref().zip(args.decode_index.as_deref()).map_or(Ok(()), |(index, path)| index.save(path))?;
    let stream = trained?;
    let seconds = start.elapsed().as_secs_f64();
    let cpu_seconds = cpu.zip(process::cpu_seconds()).map(|(before, after)| after - before);
    let gpu = gpu.and_then(GpuSampler::finish);
    let sampled = sampler.map(Sampler::finish);
    // Now, while the loader's threads are there.
    let threads = process::threads();

    let (checksum, batches, samples) = (trainer.checksum, trainer.batches, trainer.samples);
    let report = stream.report();
    let epochs_read = samples as f64 / dataset.len() as f64;
    Ok(RunReport {
        version: 1,
        url: args.url.clone(),
        format: dataset.format().to_owned(),
        records: dataset.len(),
        batches,
        samples,
        epochs: args.epochs,
        seconds,
        samples_per_second: samples as f64 / seconds.max(f64::MIN_POSITIVE),
        bytes_read: report.bytes_read,
        open_seconds,
        build_seconds,
        first_batch_seconds: report.first_batch.map(|time| time.as_secs_f64()),
        au: report.au(),
        bottleneck: report.bottleneck().map(|stage| stage.name()),
        data_wait: report.data_wait,
        step: report.step.into(),
        cpu_seconds,
        peak_rss_bytes: process::peak_rss_bytes(),
        bad_sample_count: report.bad_sample_count,
        bad_samples: report.bad_samples.into_iter().map(Into::into).collect(),
        checksum,
        checksum_of: checksum.map(|_| of),
        stages: report.stages,
        first_batch_parts: report.first_batch_parts,
        late_batches: report.late_batches,
        late_causes: report.late_causes,
        queues: report.queues,
        autotune: report.autotune,
        settled: trainer.settled,
        line: std::mem::take(&mut trainer.line),
        threads,
        cache: report.cache,
        requests: report.requests.map(|requests| Requests::new(requests, &args.url, epochs_read)),
        stopped: trainer.stopped,
        device: loader.config().device.unwrap_or_default().to_string(),
        gpu,
        sampled,
        workers: loader.config().workers,
        config,
    })
}

/// The loop. Nothing in it but the step costs more than a few microseconds: it is our benchmark.
struct Trainer<'a> {
    args: &'a RunArgs,
    out: &'a mut Out,
    rank: u32,
    batches_per_epoch: u64,
    /// Epoch in which the run starts, and the steps of it that were done before.
    step_offset: (u64, u64),
    checksum: Option<Checksum>,
    of: ChecksumOf,
    hasher: Xxh3,
    meters: Meters,
    samples_before: u64,
    batches: u64,
    samples: u64,
    batches_wanted: u64,
    signals: Signals,
    stopped: Option<Signal>,
    line: TimeLine,
    /// When the first batch came.
    first: Option<Instant>,
    /// When the warm-up was over, and the batches and samples until then.
    warm: Option<(Instant, u64, u64)>,
    settled: Option<Settled>,
}

impl Trainer<'_> {
    async fn train(&mut self, mut stream: BatchStream) -> Result<BatchStream, Failure> {
        let left = (self.args.epochs.saturating_sub(self.step_offset.0) * self.batches_per_epoch)
            .saturating_sub(self.step_offset.1);
        let template = "{msg} {wide_bar} {pos}/{len} batches, {eta} left";
        self.out.start_bar(left.min(self.batches_wanted), template);
        let mut unsaved = None;
        let done = self.steps(&mut stream, &mut unsaved).await;
        self.out.end_bar();
        // Also when the run failed: what was delivered need not be delivered again.
        let saved = unsaved.map_or(Ok(()), |state| self.save(state));
        done.and(saved).map(|()| stream)
    }

    /// Leaves the last batch's state in `unsaved` unless it is in the state file.
    async fn steps(&mut self, stream: &mut BatchStream, unsaved: &mut Option<LoaderState>) -> Result<(), Failure> {
        let began = Instant::now();
        let mut last = began;
        while self.batches < self.batches_wanted && self.stopped.is_none() {
            let asked = Instant::now();
            let next = tokio::select! {
                // A batch that is there is taken: only a wait is cut short.
                biased;
                batch = stream.next() => batch,
                signal = self.signals.next() => {
                    self.stopped = Some(signal);
                    break;
                }
            };
            let Some(batch) = next else {
                break;
            };
            let data = asked.elapsed();
            let batch = batch?;
            self.take(&batch)?;
            // The last batch's step is done, the state is saved, and then the run ends.
            tokio::select! {
                biased;
                signal = self.signals.next() => self.stopped = Some(signal),
                () = step(self.args.step_time).instrument(tracing::trace_span!("infeed.step")) => {}
            }
            let now = Instant::now();
            self.meters.add(batch.epoch(), now - last, data);
            self.line.add((now - began).as_secs_f64(), data.as_secs_f64(), (now - last).as_secs_f64());
            last = now;
            let running = now - *self.first.get_or_insert(now);
            self.settle(now, running, data);
            self.out.bar().inc(1);
            if self.args.state.is_some() {
                *unsaved = Some(batch.state().clone());
            }
            if self.is_logged(&batch) || self.stopped.is_some() {
                unsaved.take().map_or(Ok(()), |state| self.save(state))?;
                match self.log(&batch) {
                    // Nobody reads the lines, but files may still be wanted.
                    Err(Failure::Pipe) if self.writes_files() => {}
                    logged => logged?,
                }
            }
            if self.args.max_time.is_some_and(|most| running >= most) {
                break;
            }
        }
        Ok(())
    }

    /// Keeps the figures of what comes after the warm-up. `running`: since the first batch.
    fn settle(&mut self, now: Instant, running: Duration, wait: Duration) {
        let Some(warm_up) = self.args.warm_up.filter(|warm_up| running >= *warm_up) else { return };
        let Some((since, batches, samples)) = self.warm else {
            self.warm = Some((now, self.batches, self.samples));
            return;
        };
        let (seconds, before) = ((now - since).as_secs_f64(), self.settled.map_or(0.0, |known| known.wait_seconds));
        let (batches, samples) = (self.batches - batches, self.samples - samples);
        self.settled = Some(Settled {
            after_seconds: warm_up.as_secs_f64(),
            seconds,
            batches,
            samples,
            samples_per_second: samples as f64 / seconds.max(f64::MIN_POSITIVE),
            wait_seconds: before + wait.as_secs_f64(),
        });
    }

    fn take(&mut self, batch: &Batch) -> Result<(), Failure> {
        self.batches += 1;
        self.samples += batch.valid() as u64;
        if let Some(sum) = &mut self.checksum {
            sum.add_batch(&mut self.hasher, batch, self.of)?;
        }
        for bad in batch.bad_samples() {
            self.out.warn(format_args!("bad sample in epoch {}: {}", bad.epoch, bad.error));
        }
        Ok(())
    }

    /// Batches of this epoch that are done after `batch`, those before a resume included.
    fn done(&self, batch: &Batch) -> u64 {
        let (first, offset) = self.step_offset;
        batch.step() + 1 + if batch.epoch() == first { offset } else { 0 }
    }

    /// Each so many batches, and the last of each epoch.
    fn is_logged(&self, batch: &Batch) -> bool {
        self.done(batch).is_multiple_of(self.args.log_every) || batch.state().epoch > batch.epoch()
    }

    fn log(&self, batch: &Batch) -> Result<(), Failure> {
        let (epoch, done, all) = (batch.epoch(), self.done(batch), self.batches_per_epoch);
        self.out.line(format_args!("Epoch [{epoch}][{done}/{all}] {}", self.meters))
    }

    fn save(&self, state: LoaderState) -> Result<(), Failure> {
        let Some(path) = &self.args.state else {
            return Ok(());
        };
        let samples = self.samples_before + self.samples;
        let (checksum, rank) = (self.checksum, self.rank);
        StateFile { version: state::VERSION, state, checksum, checksum_of: self.of, samples, rank }.write(path)
    }

    fn writes_files(&self) -> bool {
        self.args.state.is_some() || matches!(self.args.json, Some(JsonTarget::File(_)))
    }
}

/// A trainer's work, if there is any.
async fn step(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

/// Time and wait of the last batch and on average over the epoch, as training scripts print them.
#[derive(Debug, Default)]
struct Meters {
    epoch: u64,
    /// Batches of the whole run.
    seen: u64,
    /// Batches of the averages.
    count: u32,
    last: (Duration, Duration),
    sum: (Duration, Duration),
}

impl Meters {
    fn add(&mut self, epoch: u64, time: Duration, data: Duration) {
        self.seen += 1;
        // The run's first batch is left out of the averages: its wait is the start of everything.
        if epoch != self.epoch || self.seen == 2 {
            *self = Self { epoch, seen: self.seen, ..Self::default() };
        }
        self.count += 1;
        self.last = (time, data);
        self.sum.0 += time;
        self.sum.1 += data;
    }
}

impl std::fmt::Display for Meters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mean = |sum: Duration| (sum / self.count.max(1)).as_secs_f64();
        let ((time, data), (times, datas)) = (self.last, self.sum);
        write!(
            f,
            "Time {:.3} ({:.3}) Data {:.3} ({:.3})",
            time.as_secs_f64(),
            mean(times),
            data.as_secs_f64(),
            mean(datas)
        )
    }
}

/// Everything that decided the run: the loader's settings with nothing on `auto`, and the run's own.
fn describe(loader: &Loader, args: &RunArgs, transform_name: &str) -> Result<Map<String, Value>, Failure> {
    let config = serde_json::to_value(loader.config());
    let config = config.map_err(|error| Failure::Failed(format!("cannot describe the settings: {error}")))?;
    let Value::Object(mut config) = config else {
        return Err(Failure::Failed("cannot describe the settings: they are no map".into()));
    };
    let shard = loader.config().shard;
    config.remove("shard");
    config.extend([
        ("rank".into(), json!(shard.rank())),
        ("world_size".into(), json!(shard.world())),
        ("local_rank".into(), json!(shard.local_rank())),
        ("transform_name".into(), json!(transform_name)),
        ("epochs".into(), json!(args.epochs)),
        ("max_batches".into(), json!(args.max_batches)),
        ("step_time".into(), json!(args.step_time.as_secs_f64())),
    ]);
    Ok(config)
}

/// Where the run went on from: `checksum` starts from the sum named here.
fn resumed(from: Option<&StateFile>, rank: u32, of: ChecksumOf) -> Value {
    from.map_or(Value::Null, |from| {
        json!({ "epoch": from.state.epoch, "position": from.state.position, "checksum": from.checksum_for(rank, of) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_leave_out_the_first_batch_and_restart_with_the_epoch() {
        let mut meters = Meters::default();
        let mut line = |epoch, time, data| {
            meters.add(epoch, Duration::from_millis(time), Duration::from_millis(data));
            meters.to_string()
        };
        assert_eq!(line(0, 900, 800), "Time 0.900 (0.900) Data 0.800 (0.800)");
        assert_eq!(line(0, 10, 2), "Time 0.010 (0.010) Data 0.002 (0.002)");
        assert_eq!(line(0, 20, 4), "Time 0.020 (0.015) Data 0.004 (0.003)");
        assert_eq!(line(1, 30, 0), "Time 0.030 (0.030) Data 0.000 (0.000)");
    }
}
