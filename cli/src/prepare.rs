//! `infeed prepare`: resizes, encodes and packs a dataset into shards.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use infeed::{
    OnBadSample,
    codec::Orientation,
    prepare::{Prepare, Progress, Size, Store},
    sampler::Launch,
};
use serde::Serialize;

use crate::{
    args::{Auto, OnBadImage, PrepareArgs},
    failure::Failure,
    invocation, options,
    out::{BarOf, JsonTarget, Out},
    signals::{Signal, Signals},
    units,
};

/// The JSON of `prepare`.
#[derive(Debug, Serialize)]
struct Report<'a> {
    version: u32,
    url: &'a str,
    out: &'a str,
    rank: u32,
    world_size: u32,
    launcher: Option<&'static str>,
    launcher_variables: &'a [String],
    shards: u64,
    own_shards: u64,
    found: u64,
    records: u64,
    bytes_read: u64,
    bytes_written: u64,
    bad_samples: usize,
    complete: bool,
    seconds: f64,
    records_per_second: f64,
}

/// `infeed prepare`.
pub(crate) async fn command(args: PrepareArgs) -> Result<(), Failure> {
    let mut out = Out::new(args.json.as_ref());
    args.json.as_ref().map_or(Ok(()), JsonTarget::check)?;
    let encodes = args.quality.is_some() || args.shorter.is_some() || args.resize.is_some() || args.baseline;
    if args.restart_markers && !encodes {
        let what = "--restart-markers is for JPEGs that are encoded; add --quality, --shorter, --resize or --baseline";
        return Err(Failure::Usage(what.into()));
    }
    let launch = match options::given(args.rank, args.world_size)? {
        Some(launch) => launch,
        None => Launch::of_array_task()?,
    };
    let shard = launch.shard;
    if shard.world() > 1 {
        let by = launch.variables.join(", ");
        out.progress(format_args!("rank {} of {} by {by}", shard.rank(), shard.world()))?;
    }
    if args.dataset.parts(&args.url)?.iter().any(|part| part.share.is_some()) {
        return Err(Failure::Usage("prepare packs each record once: omit the shares of parts".into()));
    }
    let dataset = args.dataset.open(&args.url, || Ok(shard.rank())).await?;
    let records = dataset.len();
    let size = match (args.shorter, args.resize) {
        (Some(side), _) => Size::Shorter(side),
        (None, Some(pair)) => Size::Exact(pair.0, pair.1),
        (None, None) => Size::Keep,
    };
    let store = match (args.quality, args.raw) {
        (Some(quality), _) => Store::Jpeg(quality),
        (None, true) => Store::Raw,
        (None, false) if args.baseline => Store::Baseline,
        (None, false) => Store::Keep,
    };
    out.start_bar(0, BarOf::Things("records"));
    let bar = out.bar().clone();
    let seen = Arc::new(Mutex::new(None));
    let told = Arc::clone(&seen);
    let mut prepare = Prepare::new(dataset, args.out.as_str())
        .name(args.name.as_str())
        .size(size)
        .store(store)
        .restart_markers(args.restart_markers)
        .orientation(args.orientation.map_or_else(Orientation::default, Into::into))
        .shard_size(args.shard_size.0)
        .shard(shard)
        .progress(move |done| {
            *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
            bar.set_length(done.of);
            bar.set_position(done.records);
        });
    if let Some(seed) = args.shuffle {
        prepare = prepare.shuffle(seed);
    }
    if let Some(parts) = args.parts {
        prepare = prepare.parts(parts);
    }
    if let Some(Auto(Some(workers))) = args.workers {
        prepare = prepare.workers(workers);
    }
    let at_most = match args.on_bad_sample {
        Some(OnBadImage::Skip) => Some(records),
        Some(OnBadImage::Stop) | None => args.skip_bad,
    };
    if let Some(at_most) = at_most {
        prepare = prepare.on_bad_sample(OnBadSample::Skip { at_most });
    }
    if let Some(most) = args.max_unreadable {
        if at_most.is_none() {
            out.warn(options::NO_MAX_UNREADABLE);
        }
        prepare = prepare.max_unreadable(most);
    }
    let start = Instant::now();
    let mut signals = Signals::new()?;
    let ran = tokio::select! {
        ran = prepare.run() => Ok(ran),
        signal = signals.next() => Err(signal),
    };
    out.end_bar();
    let done = match ran {
        Ok(done) => done?,
        Err(signal) => {
            return Err(stopped(signal, &args.out, *seen.lock().unwrap_or_else(PoisonError::into_inner), &out));
        }
    };
    let seconds = start.elapsed().as_secs_f64();
    let rate = done.records as f64 / seconds;
    for bad in done.bad_samples.iter().take(10) {
        out.warn(format_args!("left out: {}", bad.error));
    }
    if done.bad_samples.len() > 10 {
        out.warn(format_args!("and {} others", done.bad_samples.len() - 10));
    }
    let found =
        if done.found > 0 { format!(", {} were there before", units::count(done.found)) } else { String::new() };
    out.words(format_args!(
        "{}: {} records in {} shards{found}, {} read, {} written in {}, {} records/s",
        args.out,
        units::count(done.records),
        units::count(done.own_shards),
        units::size(done.bytes_read),
        units::size(done.bytes_written),
        units::time(seconds),
        units::count(rate as u64),
    ))?;
    if !done.complete {
        out.words(format_args!(
            "rank {} of {} is done; the last rank to finish writes the manifest of all {} shards",
            shard.rank(),
            shard.world(),
            units::count(done.shards),
        ))?;
    }
    let report = Report {
        version: 1,
        url: &args.url,
        out: &args.out,
        rank: shard.rank(),
        world_size: shard.world(),
        launcher: launch.launcher,
        launcher_variables: &launch.variables,
        shards: done.shards,
        own_shards: done.own_shards,
        found: done.found,
        records: done.records,
        bytes_read: done.bytes_read,
        bytes_written: done.bytes_written,
        bad_samples: done.bad_samples.len(),
        complete: done.complete,
        seconds,
        records_per_second: rate,
    };
    args.json.as_ref().map_or(Ok(()), |json| json.write(&report))
}

/// Prints what is done and how to continue.
fn stopped(signal: Signal, folder: &str, seen: Option<Progress>, out: &Out) -> Failure {
    let done = match seen {
        Some(Progress { records, of, shards, of_shards, .. }) => format!(
            "{} of {} records were packed; {} of {} shards are finished and stay",
            units::count(records),
            units::count(of),
            units::count(shards),
            units::count(of_shards),
        ),
        None => "nothing was packed yet".into(),
    };
    let again = invocation::shell_line();
    match out.line(format_args!("{folder}: {done}. To continue: {again}")) {
        Ok(()) => Failure::Stopped {
            signal,
            after: None,
            hint: "the same command continues with the first shard that is not finished",
        },
        Err(failure) => failure,
    }
}
