//! `infeed stage`: a dataset copied to a local folder or a RAM disk.
//!
//! ```text
//! list ─ plan: what is there and whole ─ room and limit ─ copy: ranges ─▶ DIR/.infeed-stage/N.part ─ rename ─▶ DIR/name
//!                                                           └ a line of the manifest for each file that is whole
//! ```
//!
//! It may be stopped at any moment, by any signal, and started again: what the manifest names and whose hash is right
//! stays, everything else is copied anew. The folder's own records begin with a dot, so that no dataset sees them.

mod archive;
mod manifest;

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Write},
    path::{Component, Path, PathBuf},
    time::Instant,
};

use futures::{StreamExt, TryStreamExt, stream};
use infeed::{
    Source,
    source::{Extent, Object},
    sys::disk,
};
use serde::Serialize;
use xxhash_rust::xxh3::Xxh3;

use self::{
    archive::Packing,
    manifest::{Entry, Manifest},
};
use crate::{
    args::StageArgs,
    failure::Failure,
    out::{JsonTarget, Out},
    units,
};

/// Bytes of one read: few enough requests, and small enough to be repeated.
const RANGE: u64 = 8 << 20;
/// Reads of one file at a time: of many files, and of an archive, which is alone.
const AHEAD: usize = 2;
const AHEAD_ALONE: usize = 16;
/// What a file takes beyond its bytes, at least half a block on average.
const BLOCK: u64 = 4096;

/// The JSON of `stage`; its keys are stable.
#[derive(Debug, Serialize)]
struct StageReport {
    version: u32,
    url: String,
    dir: String,
    /// Files in the folder now, and their bytes.
    files: u64,
    bytes: u64,
    /// Those that this call copied; of an archive, its own bytes.
    copied_files: u64,
    copied_bytes: u64,
    /// Those that were there.
    kept_files: u64,
    kept_bytes: u64,
    seconds: f64,
    bytes_per_second: f64,
    /// Whether the files were unpacked from an archive, and the entries that are not files (links) left out.
    unpacked: bool,
    left_out: u64,
}

/// `infeed stage`.
pub(crate) async fn command(args: StageArgs) -> Result<(), Failure> {
    let mut out = Out::new(args.json.as_ref());
    args.json.as_ref().map_or(Ok(()), JsonTarget::check)?;
    if args.limit.is_some_and(|limit| limit.0 == 0) {
        return Err(Failure::Usage("--limit 0: nothing could be copied; give it room or leave it away".into()));
    }
    let start = Instant::now();
    let (source, objects) = list(&args.url).await?;
    let target = Target::open(&args, &objects)?;
    let packing = match (source.only(), &objects[..]) {
        (Some(_), [object]) => Packing::of(&object.name),
        _ => None,
    };
    let done = match packing {
        Some(packing) => archive::stage(&args, &source, &objects[0], packing, target, &mut out).await?,
        None => copy_all(&args, &source, &objects, target, &mut out).await?,
    };
    let seconds = start.elapsed().as_secs_f64();
    let report = StageReport {
        version: 1,
        url: args.url.clone(),
        dir: args.dir.display().to_string(),
        files: done.kept.0 + done.copied.0,
        bytes: done.kept.1 + done.copied.1,
        copied_files: done.copied.0,
        copied_bytes: done.moved,
        kept_files: done.kept.0,
        kept_bytes: done.kept.1,
        seconds,
        bytes_per_second: done.moved as f64 / seconds.max(f64::MIN_POSITIVE),
        unpacked: packing.is_some(),
        left_out: done.left_out,
    };
    out.line(report.words())?;
    if let Some(top) = &done.top {
        out.line(format_args!("all files lie in one folder; open {}", args.dir.join(top).display()))?;
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
        if self.kept_files > 0 {
            words.push_str(&format!("; {} were there", files(self.kept_files)));
        }
        if self.left_out > 0 {
            words.push_str(&format!("; {} links left out", units::count(self.left_out)));
        }
        words
    }
}

/// What a copy came to: files and bytes.
#[derive(Debug, Default)]
struct Done {
    kept: (u64, u64),
    copied: (u64, u64),
    /// Bytes that came from the source.
    moved: u64,
    left_out: u64,
    /// The only folder at the top of an archive.
    top: Option<String>,
}

/// All objects of the url, or the one that it names.
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

/// The folder that is copied to.
#[derive(Debug)]
struct Target {
    dir: PathBuf,
    manifest: Manifest,
    /// Holds the lock: two copies into one folder would undo each other's work.
    _lock: File,
}

impl Target {
    fn open(args: &StageArgs, objects: &[Object]) -> Result<Self, Failure> {
        let dir = args.dir.clone();
        let own = dir.join(manifest::FOLDER);
        let failed = |what: &str, error: io::Error| Failure::file(what, &args.dir, error);
        let foreign = !own.is_dir() && fs::read_dir(&dir).is_ok_and(|mut entries| entries.next().is_some());
        if foreign {
            let what = format!("{} is not empty and holds no copy; name a new or empty folder", dir.display());
            return Err(Failure::Failed(what));
        }
        objects.iter().try_for_each(|object| inside(&dir, &object.name).map(drop))?;
        fs::create_dir_all(&own).map_err(|e| failed("cannot make", e))?;
        let lock = File::create(own.join("lock")).map_err(|e| failed("cannot write", e))?;
        if lock.try_lock().is_err() {
            return Err(Failure::Failed(format!("another infeed stage is copying to {}", dir.display())));
        }
        let manifest = Manifest::open(&own, &args.url)?;
        // Whoever wrote these is gone.
        for part in fs::read_dir(&own).map_err(|e| failed("cannot read", e))?.flatten() {
            if part.path().extension().is_some_and(|extension| extension == "part") {
                let _ = fs::remove_file(part.path());
            }
        }
        Ok(Self { dir, manifest, _lock: lock })
    }

    /// Whether the folder may take `more` bytes in `files` files when `there` bytes are there already.
    fn check_room(&self, args: &StageArgs, there: u64, more: u64, files: u64) -> Result<(), Failure> {
        let all = there + more;
        if let Some(limit) = args.limit.filter(|limit| all > limit.0) {
            let (all, limit, over) = (units::size(all), units::size(limit.0), units::size(all - limit.0));
            let what =
                format!("{} holds {all}, --limit is {limit}: {over} too much; raise it or copy a part", args.url);
            return Err(Failure::Failed(what));
        }
        let needed = more + files * BLOCK;
        match disk::room(&self.dir) {
            Some(room) if room.free < needed => {
                let (dir, free) = (self.dir.display(), units::size(room.free));
                let (needed, short) = (units::size(needed), units::size(needed - room.free));
                let what =
                    format!("{dir} has {free} free, the copy needs {needed}: {short} too little; nothing was copied");
                Err(Failure::Failed(what))
            }
            _ => Ok(()),
        }
    }
}

/// Where a file is written before it is whole.
fn part_in(dir: &Path, number: usize) -> PathBuf {
    dir.join(manifest::FOLDER).join(format!("{number}.part"))
}

/// Where an object of this name goes: below `dir` and nowhere else.
fn inside(dir: &Path, name: &str) -> Result<PathBuf, Failure> {
    let plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    let path = Path::new(name);
    let own = path.components().next().is_some_and(|first| first.as_os_str() == manifest::FOLDER);
    if name.is_empty() || own || !path.components().all(plain) {
        let what = format!("{name:?} would lie outside of {}: refused", dir.display());
        return Err(Failure::Failed(what));
    }
    Ok(dir.join(path))
}

/// Copies the objects that are not there.
async fn copy_all(
    args: &StageArgs,
    source: &Source,
    objects: &[Object],
    mut target: Target,
    out: &mut Out,
) -> Result<Done, Failure> {
    let known = target.manifest.take();
    let mut done = Done::default();
    let mut missing = Vec::new();
    let to_check: u64 = objects.iter().filter(|object| known.contains_key(&object.name)).map(|o| o.size).sum();
    out.start_bar(to_check, "verifying {wide_bar} {bytes}/{total_bytes}");
    for object in objects {
        if is_whole(&target.dir, object, &known) {
            done.kept = (done.kept.0 + 1, done.kept.1 + object.size);
            out.bar().inc(object.size);
        } else {
            missing.push(object.clone());
        }
    }
    let more: u64 = missing.iter().map(|object| object.size).sum();
    target.check_room(args, done.kept.1, more, missing.len() as u64)?;
    out.start_bar(more, "{wide_bar} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left");

    let ahead = if missing.len() == 1 { AHEAD_ALONE } else { AHEAD };
    let Target { dir, manifest, .. } = &mut target;
    let copies = missing.into_iter().enumerate().map(|(number, object)| {
        let (part, path) = (part_in(dir, number), inside(dir, &object.name));
        let (bar, source) = (out.bar().clone(), source.clone());
        async move {
            let hash = copy(&source, &object, &part, &path?, ahead, |bytes| bar.inc(bytes)).await?;
            Ok::<_, Failure>((object, hash))
        }
    });
    let mut copies = stream::iter(copies).buffer_unordered(args.jobs as usize);
    while let Some(copied) = copies.next().await {
        let (object, hash) = copied.inspect_err(|_| out.end_bar())?;
        manifest.add(&Entry::file(&object.name, object.size, object.etag.as_deref(), &hash))?;
        done.copied = (done.copied.0 + 1, done.copied.1 + object.size);
        done.moved += object.size;
    }
    out.end_bar();
    Ok(done)
}

/// Whether an object was copied in this version and its file is still what was written.
fn is_whole(dir: &Path, object: &Object, known: &HashMap<String, Entry>) -> bool {
    let Some(entry) = known.get(&object.name) else { return false };
    entry.size == object.size && entry.etag == object.etag && holds(&dir.join(&object.name), entry.size, &entry.xxh3)
}

/// Whether a file has this length and hash.
fn holds(path: &Path, size: u64, hash: &str) -> bool {
    let hash_of = |mut file: File| -> io::Result<String> {
        let mut hasher = Hasher::default();
        io::copy(&mut file, &mut hasher)?;
        Ok(hasher.hex())
    };
    let Ok(file) = File::open(path) else { return false };
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.len() == size)
        && hash_of(file).is_ok_and(|found| found == hash)
}

/// Hashes what is written to it.
#[derive(Default)]
struct Hasher(Xxh3);

impl Hasher {
    fn hex(&self) -> String {
        format!("{:032x}", self.0.digest128())
    }
}

impl Write for Hasher {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Copies an object to `part` and renames it to `path`; gives its hash. Each read is counted and tied to the version
/// that was listed.
async fn copy(
    source: &Source,
    object: &Object,
    part: &Path,
    path: &Path,
    ahead: usize,
    progress: impl Fn(u64),
) -> Result<String, Failure> {
    let failed = |error: io::Error| unwritable(path, error);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let mut file = File::create(part).map_err(failed)?;
    let mut hasher = Hasher::default();
    let mut reads = ranges(source, object, 0, ahead).boxed();
    while let Some(bytes) = reads.next().await {
        let bytes = bytes?;
        file.write_all(&bytes).and_then(|()| hasher.write_all(&bytes)).map_err(failed)?;
        progress(bytes.len() as u64);
    }
    drop(file);
    fs::rename(part, path).map_err(failed)?;
    Ok(hasher.hex())
}

/// The bytes of an object from `start`, in order, some ranges ahead.
fn ranges(
    source: &Source,
    object: &Object,
    start: u64,
    ahead: usize,
) -> impl stream::Stream<Item = infeed::Result<bytes::Bytes>> + use<> {
    let extent = object.extent(source);
    let starts = (start..object.size).step_by(RANGE as usize);
    // Stores refuse to read nothing of something, and an empty file has no range at all.
    let reads = starts.map(move |start| {
        let mut part: Extent = extent.clone();
        part.range = start..(start + RANGE).min(extent.range.end);
        async move { part.read().await }
    });
    stream::iter(reads).buffered(ahead)
}

/// A full disk is the likeliest reason, and what to do about it.
fn unwritable(path: &Path, error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => Failure::Failed(
            format!("cannot write {}: {error}; make room and run the same command again", path.display()),
        ),
        _ => Failure::file("cannot write", path, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_inside() {
        let dir = Path::new("/data/copy");
        assert_eq!(inside(dir, "a/b.jpg").ok(), Some(dir.join("a/b.jpg")));
        for name in ["../a", "a/../../b", "/etc/passwd", "", "..", ".infeed-stage/manifest"] {
            assert!(inside(dir, name).is_err(), "{name:?}");
        }
    }
}
