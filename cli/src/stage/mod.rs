//! `infeed stage`: a dataset copied to a local folder or a RAM disk.
//!
//! ```text
//! list ─ plan: what is there and whole ─ space and limit ─ copy: ranges ─▶ DIR/.infeed-stage/N.part ─ rename ─▶ DIR/name
//!                                                            └ a line of the manifest for each file that is whole
//! ```
//!
//! Each object is compared with what its store reports: a checksum, else the MD5 that most ETags are, else its length.
//! An object above 8 MiB is read in ranges, and a HEAD request gets these values. The report has the number of
//! objects for each of these three.
//!
//! A copy may be stopped at any moment, by any signal, and started again. Files that the manifest names and whose hash
//! is right stay; all others are copied again. The manifest's folder begins with a dot, so that datasets ignore it.

mod archive;
mod copy;
mod file;
mod manifest;
mod target;

use std::time::Instant;

use archive::Packing;
use futures::TryStreamExt;
use infeed::source::{Object, Source};
use serde::Serialize;
use target::Target;

use crate::{
    args::StageArgs,
    failure::Failure,
    out::{JsonTarget, Out},
    units,
};

/// The JSON of `stage`; its keys are stable.
#[derive(Debug, Serialize)]
struct StageReport {
    version: u32,
    url: String,
    dir: String,
    /// Files in the folder now, and their bytes.
    files: u64,
    bytes: u64,
    /// Files copied by this call; for an archive, `copied_bytes` are the archive's own bytes.
    copied_files: u64,
    copied_bytes: u64,
    /// Files that were there before.
    kept_files: u64,
    kept_bytes: u64,
    seconds: f64,
    bytes_per_second: f64,
    /// How the objects copied by this call were verified. An archive is one object.
    verified: VerifiedReport,
    /// Whether the files were unpacked from an archive, and the entries that are not files (links) left out.
    unpacked: bool,
    left_out: u64,
}

/// Numbers of objects by way of verification.
#[derive(Debug, Serialize)]
struct VerifiedReport {
    /// By a checksum of the whole object.
    checksum: u64,
    /// By an ETag that is the MD5.
    md5: u64,
    /// By length and version only: the store reports nothing else.
    length_only: u64,
}

/// `infeed stage`.
pub(crate) async fn command(args: StageArgs) -> Result<(), Failure> {
    let mut out = Out::new(args.json.as_ref());
    args.json.as_ref().map_or(Ok(()), JsonTarget::check)?;
    if args.limit.is_some_and(|limit| limit.0 == 0) {
        return Err(Failure::Usage("--limit is 0, so nothing can be copied; give a size above 0, or omit it".into()));
    }
    let start = Instant::now();
    let (source, objects) = list(&args.url).await?;
    let target = Target::open(&args, &objects)?;
    let packing = match (source.only(), &objects[..]) {
        (Some(_), [object]) => Packing::of(&object.name),
        _ => None,
    };
    let before = source.verified();
    let done = match packing {
        Some(packing) => archive::stage(&args, &source, &objects[0], packing, target, &mut out).await?,
        None => copy::copy_all(&args, &source, &objects, target, &mut out).await?,
    };
    let seconds = start.elapsed().as_secs_f64();
    let after = source.verified();
    let objects = if packing.is_some() { u64::from(done.fetched > 0) } else { done.copied.count };
    let (checksum, md5) = (after.checksum - before.checksum, after.md5 - before.md5);
    let verified = VerifiedReport { checksum, md5, length_only: objects.saturating_sub(checksum + md5) };
    let report = StageReport {
        version: 1,
        url: args.url.clone(),
        dir: args.dir.display().to_string(),
        files: done.found.count + done.copied.count,
        bytes: done.found.bytes + done.copied.bytes,
        copied_files: done.copied.count,
        copied_bytes: done.fetched,
        kept_files: done.found.count,
        kept_bytes: done.found.bytes,
        seconds,
        bytes_per_second: done.fetched as f64 / seconds.max(f64::MIN_POSITIVE),
        verified,
        unpacked: packing.is_some(),
        left_out: done.left_out,
    };
    out.words(report.words())?;
    if let Some(top) = &done.top {
        out.words(format_args!("all files are in one folder; open {}", args.dir.join(top).display()))?;
    }
    args.json.as_ref().map_or(Ok(()), |json| json.write(&report))
}

impl StageReport {
    fn words(&self) -> String {
        let files = |n: u64| if n == 1 { "1 file".to_owned() } else { format!("{} files", units::count(n)) };
        let mut words = format!("{}: {}, {}", self.dir, files(self.files), units::size(self.bytes));
        if self.copied_bytes > 0 {
            let rate = units::size(self.bytes_per_second as u64);
            let (copied, time) = (units::size(self.copied_bytes), units::time(self.seconds));
            words.push_str(&format!("; copied {copied} in {time} ({rate}/s)"));
        }
        let VerifiedReport { checksum, md5, length_only } = self.verified;
        let by = [(checksum, "by checksum"), (md5, "by MD5"), (length_only, "by length only")];
        let by: Vec<String> =
            by.iter().filter(|(n, _)| *n > 0).map(|(n, how)| format!("{} {how}", units::count(*n))).collect();
        if !by.is_empty() {
            words.push_str(&format!("; verified: {}", by.join(", ")));
        }
        if self.kept_files > 0 {
            words.push_str(&format!("; {} were there before", files(self.kept_files)));
        }
        if self.left_out > 0 {
            words.push_str(&format!("; {} links left out", units::count(self.left_out)));
        }
        words
    }
}

/// All objects below the url, or the one object that it names.
async fn list(url: &str) -> Result<(Source, Vec<Object>), Failure> {
    let mut source = Source::parse(url)?;
    let mut objects: Vec<Object> = source.list().try_collect().await?;
    if objects.is_empty()
        && let Some(only) = source.as_object().await?
    {
        source = only;
        objects = source.list().try_collect().await?;
    }
    if objects.is_empty() {
        return Err(Failure::Failed(format!("there is nothing to copy at {url}")));
    }
    objects.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok((source, objects))
}
