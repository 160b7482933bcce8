//! `infeed run`: a training loop that does not train. All commands that measure use it: `demo`, `profile` and `doctor`
//! call it; `sweep` and `compare` start it as a process each time, so that what one configuration left in memory does not
//! help the next.

mod trainer;

use std::{sync::Arc, time::Instant};

use futures::Stream;
use infeed::{
    Dataset, Device, Loader, LoaderBuilder, LoaderState, OnBadSample, Order,
    codec::{Decode, DecodeIndex, GpuSplit, Jpeg, Orientation},
    metrics::Metrics,
    sampler::Launch,
};
use serde_json::{Map, Value, json};
use trainer::{Meters, Parts, Trainer};
use xxhash_rust::xxh3::Xxh3;

use crate::{
    args::{RunArgs, WatchedArgs},
    busy::{Busy, Cores},
    checksum::{Checksum, ChecksumOf},
    console,
    failure::Failure,
    gpu::GpuSampler,
    html,
    live::{self, About, Live, LiveInputs},
    options::{self, Steps},
    out::{self, JsonTarget, Out},
    process,
    report::{Requests, RunReport, TimeLine},
    scrape::Server,
    signals::{Signal, Signals},
    state::StateFile,
    units,
    usage::UsageSampler,
};

/// What shows a run to others while it is in progress.
#[derive(Debug, Default)]
pub(crate) struct Observers {
    live: bool,
    metrics: Metrics,
    /// Signals since the stream began, for the wait of `--metrics-linger`.
    signals: Option<Signals>,
}

/// `infeed run`. `metrics` may also be exported elsewhere, such as by OpenTelemetry.
pub(crate) async fn command(args: WatchedArgs, metrics: Metrics) -> Result<(), Failure> {
    let WatchedArgs { observers: watching, run: args } = args;
    let mut out = Out::new(args.json.as_ref());
    // Check now, so that an hour of work does not end in a path that cannot be written.
    args.json.as_ref().map_or(Ok(()), JsonTarget::check)?;
    args.state.as_deref().map_or(Ok(()), out::check_writable)?;
    args.html.as_deref().map_or(Ok(()), out::check_writable)?;
    args.decode_index.as_deref().map_or(Ok(()), out::check_writable)?;
    let from = args.resume.as_deref().map(StateFile::read).transpose()?;
    // The same for an address in use.
    let server = watching.metrics.map(|address| Server::start(metrics.clone(), address)).transpose()?;
    if let Some(server) = server.as_ref().filter(|_| !console::is_quiet()) {
        console::to_stderr(format_args!("metrics: http://{}/metrics", server.address()));
    }
    let mut observers = Observers { live: watching.live, metrics, ..Observers::default() };
    if let Err(why) = live::possible()
        && watching.live
    {
        console::to_stderr(format_args!("--live: {why}, so lines are printed instead"));
        observers.live = false;
    }
    let report = run(&args, from, &mut out, &mut observers).await?;
    out.line(format_args!("\n{}", report.table()))?;
    if let Some(warning) = report.busy.as_ref().and_then(Busy::warning) {
        out.warn(warning);
    }
    args.html.as_deref().map_or(Ok(()), |path| out::replace(path, html::run_page(&report).as_bytes()))?;
    args.json.as_ref().map_or(Ok(()), |json| json.write(&report))?;
    if let (Some(_), None, false) = (&server, report.stopped, watching.metrics_linger.is_zero()) {
        let mut signals = observers.signals.expect("the stream has begun");
        tokio::select! {
            _ = signals.next() => {}
            () = tokio::time::sleep(watching.metrics_linger) => {}
        }
    }
    match report.stopped {
        None => Ok(()),
        Some(Signal::Quit) => Ok(()),
        Some(signal) => {
            let hint = match args.state.is_some() {
                true => "continue with --resume and the state file",
                false => "with --state, --resume could continue",
            };
            Err(Failure::Stopped { signal, after: report.stopped_after(), hint })
        }
    }
}

/// Opens the dataset, builds the loader and streams. Gives the figures.
pub(crate) async fn run(
    args: &RunArgs,
    from: Option<StateFile>,
    out: &mut Out,
    observers: &mut Observers,
) -> Result<RunReport, Failure> {
    Steps::check(args.loader.fixed.transform.as_deref())?;
    let start = Instant::now();
    let dataset = args.dataset.open(&args.url, || options::rank(&args.loader.fixed)).await?;
    on(args, &dataset, start.elapsed().as_secs_f64(), from, out, observers).await
}

/// Builds the loader and streams, for an open dataset.
pub(crate) async fn on(
    args: &RunArgs,
    dataset: &Arc<dyn Dataset>,
    open_seconds: f64,
    from: Option<StateFile>,
    out: &mut Out,
    observers: &mut Observers,
) -> Result<RunReport, Failure> {
    let start = Instant::now();
    let (mut config, transform_name, launch) = options::loader_config(args, &**dataset, args.epochs)?;
    config.jpeg_exact |= args.jpeg_exact;
    let exact = config.jpeg_exact;
    if args.loader.fixed.max_unreadable.is_some() && matches!(config.on_bad_sample, OnBadSample::Stop) {
        out.warn(options::NO_MAX_UNREADABLE);
    }
    let weighted = options::weighted(&args.loader.fixed, &config.order, dataset.len(), labels(args, dataset)).await?;
    let by_length = options::by_length(&args.loader.fixed, &config, lengths(args, dataset)).await?;
    let most = config.index_bytes();
    let index = args.decode_index.as_deref().map(|path| DecodeIndex::open(path, most)).transpose()?;
    let turned = config.orientation.of_dataset(dataset.schema().upright) == Orientation::Apply;
    let builder = Loader::builder(Arc::clone(dataset)).config(config);
    let builder = weighted.or(by_length).into_iter().fold(builder, LoaderBuilder::sampler);
    let builder = match args.jpeg_strict {
        true => {
            let index = index.clone().unwrap_or_else(|| DecodeIndex::new(most));
            let codec = Jpeg::new().index(index).exact(exact).strict(true).orientation(turned);
            builder.codec(Arc::new(codec))
        }
        false => index.iter().cloned().fold(builder, LoaderBuilder::decode_index),
    };
    let loader = builder.build().await?;
    let build_seconds = start.elapsed().as_secs_f64();

    let rank = loader.config().shard.rank();
    let mut config = describe(&loader, args, &transform_name, &launch)?;
    // If only CPU threads decode, nothing is shared with a GPU.
    let shares = loader.config().gpu_split == GpuSplit::Adaptive && loader.config().decode != Decode::Cpu;
    let of = match loader.config().device {
        Some(Device::Cuda(_)) if shares => ChecksumOf::Records,
        _ => ChecksumOf::Rows,
    };
    config.insert("resumed".into(), resumed(from.as_ref(), rank, of));
    let checksum = match (&from, args.checksum) {
        (_, false) => None,
        (None, true) => Some(Checksum::default()),
        (Some(from), true) => Some(from.checksum_for(rank, of).unwrap_or_else(|| {
            out.warn(
                "the state file has no checksum of this kind, so this one covers only the rest; \
                 run the first part with --checksum too",
            );
            Checksum::default()
        })),
    };

    let gpu = match loader.config().device {
        Some(Device::Cuda(index)) => GpuSampler::start(index),
        _ => None,
    };
    let sampler = (loader.config().accounting || observers.live).then(UsageSampler::start);
    let cpu = process::cpu_seconds();
    let cores = Cores::now();
    // Before the first request, because a signal may follow it at once.
    let signals = Signals::new()?;
    observers.signals = Some(Signals::new()?);
    let (stream, step_offset) = match &from {
        Some(from) => {
            let stride = loader.config().shard.world() as u64 * loader.config().batch_size as u64;
            (loader.resume_epochs(&from.state, ..args.epochs)?, (from.state.epoch, from.state.position / stride))
        }
        None => (loader.epochs(0..args.epochs), (0, 0)),
    };
    if let (Some(from), (0, _)) = (&from, stream.size_hint()) {
        let LoaderState { epoch, position, .. } = &from.state;
        return Err(Failure::Usage(format!(
            "--resume: nothing is left of {} epochs after position {position} of epoch {epoch}; raise --epochs, \
             which counts all epochs of the run",
            args.epochs
        )));
    }
    observers.metrics.watch("run", stream.monitor());
    let live = match (observers.live, &sampler) {
        (true, Some(sampler)) => {
            let config = loader.config();
            let records = units::count(dataset.len());
            let device = config.device.unwrap_or_default();
            let about = About {
                url: args.url.clone(),
                what: format!("{}, {records} records, {device}, batch {}", dataset.format(), config.batch_size),
                batches_per_epoch: loader.batches_per_epoch(),
                epochs: args.epochs,
                done_before: step_offset.0 * loader.batches_per_epoch() + step_offset.1,
                wanted: args.max_batches.unwrap_or(u64::MAX),
            };
            let gpu = gpu.as_ref().map(GpuSampler::latest);
            let inputs = LiveInputs { about, monitor: stream.monitor(), process: sampler.latest(), gpu };
            let live = Live::start(inputs, signals.keys());
            live.inspect_err(|error| out.warn(format_args!("--live: cannot draw on this terminal: {error}"))).ok()
        }
        _ => None,
    };
    let mut trainer = Trainer {
        args,
        out,
        rank,
        batches_per_epoch: loader.batches_per_epoch(),
        batch_size: loader.config().batch_size as u64,
        step_offset,
        checksum,
        of,
        hasher: Xxh3::new(),
        meters: Meters::default(),
        samples_before: from.as_ref().filter(|from| from.rank == rank).map_or(0, |from| from.samples),
        batches: 0,
        samples: 0,
        batches_wanted: args.max_batches.unwrap_or(u64::MAX),
        signals,
        stopped: None,
        at: None,
        line: TimeLine::default(),
        first: None,
        warmed: None,
        settled: None,
        out_of_time: false,
        parts: Parts::of(&loader),
    };
    let trained = trainer.train(stream).await;
    // From here on lines go to the terminal again, first of all those of a failure.
    drop(live);
    // Also after a failure: the entries found so far are valid.
    index.as_ref().zip(args.decode_index.as_deref()).map_or(Ok(()), |(index, path)| index.save(path))?;
    // Keep the stream until the end, so that its threads are counted.
    let stream = trained?;
    let epoch = match &loader.config().order {
        Order::Mixture(mixture) => mixture.counts(0)?.iter().sum(),
        _ => args.loader.fixed.samples.unwrap_or(dataset.len()),
    };
    let mut report = stream.report();
    let busy = cores.since().known();
    let cpu_seconds = cpu.zip(process::cpu_seconds()).map(|(before, after)| after - before);
    let gpu = gpu.and_then(GpuSampler::finish);
    let sampled = sampler.map(UsageSampler::finish);
    let ended = trainer.ended();
    let Trainer { checksum, settled, stopped, line, parts, .. } = trainer;
    Ok(RunReport {
        version: 1,
        url: args.url.clone(),
        format: dataset.format().to_owned(),
        records: dataset.len(),
        epochs: args.epochs,
        samples_per_second: report.samples as f64 / report.elapsed.as_secs_f64().max(f64::MIN_POSITIVE),
        open_seconds,
        build_seconds,
        au: report.au(),
        bottleneck: report.bottleneck(),
        cpu_seconds,
        peak_rss_bytes: process::peak_rss_bytes(),
        checksum,
        checksum_of: checksum.map(|_| of),
        settled,
        requests: Requests::take(&mut report, &args.url, epoch),
        stream: report,
        device: loader.config().device.unwrap_or_default().to_string(),
        gpu,
        sampled,
        busy,
        workers: loader.config().workers,
        parts: parts.reports(),
        config,
        stopped,
        ended,
        line,
        threads: process::threads(),
    })
}

/// Class indices of all records. For shards with other fields, only the labels are read.
async fn labels(args: &RunArgs, dataset: &Arc<dyn Dataset>) -> Result<Vec<i64>, Failure> {
    let dataset = match dataset.known(0, "label") {
        Some(_) => Arc::clone(dataset),
        None => narrowed(args, dataset, "label").await?,
    };
    Ok(infeed::dataset::labels(&*dataset).await?)
}

/// The lengths of the field of `--lengths`.
async fn lengths(args: &RunArgs, dataset: &Arc<dyn Dataset>) -> Result<Vec<u64>, Failure> {
    let field = args.loader.fixed.lengths.as_deref().unwrap_or_default();
    let narrow = match dataset.schema().fields.iter().any(|of| of.name == field) {
        true => narrowed(args, dataset, field).await?,
        false => Arc::clone(dataset),
    };
    Ok(infeed::dataset::lengths(&*narrow, field).await?)
}

/// The dataset with one of its fields, if its format reads less for that.
async fn narrowed(args: &RunArgs, dataset: &Arc<dyn Dataset>, field: &str) -> Result<Arc<dyn Dataset>, Failure> {
    if dataset.schema().fields.len() > 1 {
        // Formats without columns give an error here, and all fields are read.
        let open = args.dataset.apply(infeed::open(&args.url), || options::rank(&args.loader.fixed))?;
        if let Some(narrow) = open.columns([field]).await.ok().filter(|narrow| narrow.len() == dataset.len()) {
            return Ok(narrow);
        }
    }
    Ok(Arc::clone(dataset))
}

/// All settings of the run: the loader's, with `auto` resolved, and the run's own.
fn describe(
    loader: &Loader,
    args: &RunArgs,
    transform_name: &str,
    launch: &Launch,
) -> Result<Map<String, Value>, Failure> {
    let config = serde_json::to_value(loader.config());
    let config = config.map_err(|error| Failure::Failed(format!("cannot describe the settings: {error}")))?;
    let Value::Object(mut config) = config else {
        return Err(Failure::Failed("cannot describe the settings: they are not a map".into()));
    };
    let shard = loader.config().shard;
    config.remove("shard");
    config.extend([
        ("rank".into(), json!(shard.rank())),
        ("world_size".into(), json!(shard.world())),
        ("local_rank".into(), json!(shard.local_rank())),
        ("local_world_size".into(), json!(shard.local_world())),
        ("launcher".into(), json!(launch.launcher)),
        ("launcher_variables".into(), json!(launch.variables)),
        ("transform_name".into(), json!(transform_name)),
        ("jpeg_strict".into(), json!(args.jpeg_strict)),
        ("epochs".into(), json!(args.epochs)),
        // The earlier name, which scripts read.
        ("split".into(), json!(loader.config().gpu_split)),
        ("max_batches".into(), json!(args.max_batches)),
        ("step_time".into(), json!(args.step_time.as_secs_f64())),
    ]);
    Ok(config)
}

/// The state that the run continued from. Its checksum starts from the sum named here.
fn resumed(from: Option<&StateFile>, rank: u32, of: ChecksumOf) -> Value {
    from.map_or(Value::Null, |from| {
        json!({ "epoch": from.state.epoch, "position": from.state.position, "checksum": from.checksum_for(rank, of) })
    })
}
