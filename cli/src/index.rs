//! `infeed index`: writes the index of tars next to them.

use std::time::Instant;

use infeed::{dataset::write_index, source::Source};
use serde::Serialize;

use crate::{
    args::IndexArgs,
    failure::Failure,
    out::{JsonTarget, Out},
    units,
};

/// The JSON of `index`; its keys are stable.
#[derive(Debug, Serialize)]
struct IndexReport {
    version: u32,
    url: String,
    file: String,
    bytes: u64,
    shards: u64,
    records: u64,
    seconds: f64,
}

/// `infeed index`.
pub(crate) async fn command(args: IndexArgs) -> Result<(), Failure> {
    let out = Out::new(args.json.as_ref());
    args.json.as_ref().map_or(Ok(()), JsonTarget::check)?;
    let start = Instant::now();
    let written = write_index(&Source::parse(&args.url)?).await?;
    let seconds = start.elapsed().as_secs_f64();
    let count = |n: u64, what: &str| format!("{} {what}{}", units::count(n), if n == 1 { "" } else { "s" });
    let (file, size) = (written.name.clone(), units::size(written.bytes));
    let (records, shards) = (count(written.records, "sample"), count(written.shards, "shard"));
    out.words(format_args!("{file}: {size}, {records} in {shards}, in {}", units::time(seconds)))?;
    let report = IndexReport {
        version: 1,
        url: args.url,
        file,
        bytes: written.bytes,
        shards: written.shards,
        records: written.records,
        seconds,
    };
    args.json.as_ref().map_or(Ok(()), |json| json.write(&report))
}
