//! `infeed prepare`: a dataset resized, encoded and packed into shards.

use std::time::Instant;

use infeed::{
    OnBadSample,
    prepare::{Prepare, Size, Store},
    sampler::Launch,
};
use serde::Serialize;

use crate::{
    args::{Auto, PrepareArgs},
    failure::Failure,
    options,
    out::{JsonTarget, Out},
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
    let encodes = args.quality.is_some() || args.shorter.is_some() || args.resize.is_some();
    if args.restart_markers && !encodes {
        let what = "--restart-markers is for JPEGs that are encoded; add --quality, --shorter or --resize";
        return Err(Failure::Usage(what.into()));
    }
    let launch = match options::given(args.rank, args.world_size)? {
        Some(launch) => launch,
        None => Launch::of_array_task()?,
    };
    let shard = launch.shard;
    if shard.world() > 1 {
        let by = launch.variables.join(", ");
        out.line(format_args!("rank {} of {} by {by}", shard.rank(), shard.world()))?;
    }
    if args.dataset.parts(&args.url)?.iter().any(|part| part.share.is_some()) {
        return Err(Failure::Usage("prepare packs each record once: leave out the shares of parts".into()));
    }
    let dataset = args.dataset.open(&args.url, || Ok(shard.rank())).await?;
    let size = match (args.shorter, args.resize) {
        (Some(side), _) => Size::Shorter(side),
        (None, Some(pair)) => Size::Exact(pair.0, pair.1),
        (None, None) => Size::Keep,
    };
    let store = match (args.quality, args.raw) {
        (Some(quality), _) => Store::Jpeg(quality),
        (None, true) => Store::Raw,
        (None, false) => Store::Keep,
    };
    out.start_bar(0, "{wide_bar} {pos}/{len} records, {per_sec}, {eta} left");
    let bar = out.bar().clone();
    let mut prepare = Prepare::new(dataset, args.out.as_str())
        .name(args.name.as_str())
        .size(size)
        .store(store)
        .restart_markers(args.restart_markers)
        .shard_size(args.shard_size.0)
        .shard(shard)
        .progress(move |done| {
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
    if let Some(at_most) = args.skip_bad {
        prepare = prepare.on_bad_sample(OnBadSample::Skip { at_most });
    }
    let start = Instant::now();
    let done = prepare.run().await.inspect_err(|_| out.end_bar())?;
    out.end_bar();
    let seconds = start.elapsed().as_secs_f64();
    let rate = done.records as f64 / seconds;
    for bad in done.bad_samples.iter().take(10) {
        out.warn(format_args!("left out: {}", bad.error));
    }
    if done.bad_samples.len() > 10 {
        out.warn(format_args!("and {} others", done.bad_samples.len() - 10));
    }
    let found = if done.found > 0 { format!(", {} were there", units::count(done.found)) } else { String::new() };
    out.line(format_args!(
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
        out.line(format_args!(
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
