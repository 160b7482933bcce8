//! Objects copied as they are: read in ranges, hashed while copying, renamed when complete.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Write},
    path::Path,
};

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use infeed::{
    Error, ErrorKind,
    source::{Check, Extent, Object, Source},
};

use super::{
    file::{Hasher, holds, unwritable},
    manifest::Entry,
    target::{Target, inside, part_in},
};
use crate::{
    args::StageArgs,
    failure::Failure,
    out::{BarOf, Out},
};

/// Bytes of one read: large enough for few requests, and small enough to be repeated.
pub(super) const RANGE: u64 = 8 << 20;
/// Concurrent reads of one file: when many files are copied, and for a single file or archive.
const AHEAD: usize = 2;
pub(super) const AHEAD_ALONE: usize = 16;

/// Files and their bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Files {
    pub(super) count: u64,
    pub(super) bytes: u64,
}

impl Files {
    pub(super) fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes += bytes;
    }
}

/// The result of a copy.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// Files that were there before.
    pub(super) found: Files,
    pub(super) copied: Files,
    /// Bytes read from the source.
    pub(super) fetched: u64,
    pub(super) left_out: u64,
    /// The only folder at the top of an archive.
    pub(super) top: Option<String>,
}

/// Copies the objects that are missing.
pub(super) async fn copy_all(
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
    out.start_bar(to_check, BarOf::Bytes);
    out.bar().set_message("verifying");
    for object in objects {
        if is_whole(&target.dir, source, object, &known) {
            done.found.add(object.size);
            out.bar().inc(object.size);
        } else {
            missing.push(object.clone());
        }
    }
    let more: u64 = missing.iter().map(|object| object.size).sum();
    target.check_space(args, done.found.bytes, more, missing.len() as u64)?;
    out.start_bar(more, BarOf::Bytes);

    let ahead = if missing.len() == 1 { AHEAD_ALONE } else { AHEAD };
    let Target { dir, manifest, .. } = &mut target;
    let copies = missing.into_iter().enumerate().map(|(number, object)| {
        let part = part_in(dir, number);
        let path = inside(dir, &object.name);
        let bar = out.bar().clone();
        let source = source.clone();
        async move {
            let (version, hash) = copy(&source, &object, &part, &path?, ahead, |bytes| bar.inc(bytes)).await?;
            Ok::<_, Failure>(Entry::file(&object.name, object.size, version.as_deref(), &hash))
        }
    });
    let mut copies = stream::iter(copies).buffer_unordered(args.jobs as usize);
    while let Some(copied) = copies.next().await {
        let entry = copied.inspect_err(|_| out.end_bar())?;
        manifest.add(&entry)?;
        done.copied.add(entry.size);
        done.fetched += entry.size;
    }
    out.end_bar();
    Ok(done)
}

/// Whether an object was copied in this version and its file is unchanged.
fn is_whole(dir: &Path, source: &Source, object: &Object, known: &HashMap<String, Entry>) -> bool {
    let Some(entry) = known.get(&object.name) else { return false };
    let same = entry.size == object.size && entry.etag == version(source, object);
    same && holds(&dir.join(&object.name), entry.size, &entry.xxh3)
}

/// The version of an object, which shows that it was rewritten even if its length is the same: the store's ETag, or the
/// modification time of a local file.
pub(super) fn version(source: &Source, object: &Object) -> Option<String> {
    object.extent(source).version()
}

/// Copies an object to `part` and renames it to `path`. Gives its version and hash. Each read is reported to
/// `progress`, and requires the listed version; a local file must have the same version before and after.
async fn copy(
    source: &Source,
    object: &Object,
    part: &Path,
    path: &Path,
    ahead: usize,
    progress: impl Fn(u64),
) -> Result<(Option<String>, String), Failure> {
    let failed = |error: io::Error| unwritable(path, error);
    let part = PartFile(part);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let mut attempt = 1;
    loop {
        let copied = version(source, object);
        let mut file = File::create(part.0).map_err(failed)?;
        let mut hasher = Hasher::default();
        let mut check = check(source, object).await?;
        let mut reads = ranges(source, object, 0, ahead).boxed();
        while let Some(bytes) = reads.next().await {
            let bytes = bytes?;
            file.write_all(&bytes).and_then(|()| hasher.write_all(&bytes)).map_err(failed)?;
            check.iter_mut().for_each(|check| check.update(&bytes));
            progress(bytes.len() as u64);
        }
        drop(file);
        if is_as_stored(source, object, check, copied.as_deref(), attempt).await? {
            fs::rename(part.0, path).map_err(failed)?;
            return Ok((copied, hasher.hex()));
        }
        attempt += 1;
    }
}

/// An incomplete file, which is removed on drop.
pub(super) struct PartFile<'a>(pub(super) &'a Path);

impl Drop for PartFile<'_> {
    fn drop(&mut self) {
        // Usually it was renamed, and this fails.
        let _ = fs::remove_file(self.0);
    }
}

/// Attempts to copy an object before damage is an error.
const ATTEMPTS: u32 = 4;

/// The check of an object that is read in ranges. An object that is read whole is checked by its read.
pub(super) async fn check(source: &Source, object: &Object) -> Result<Option<Check>, Failure> {
    if object.size <= RANGE {
        return Ok(None);
    }
    Ok(Some(object.extent(source).check().await?))
}

/// Whether all bytes match what the store reports, and the version did not change. `false`: read them again.
pub(super) async fn is_as_stored(
    source: &Source,
    object: &Object,
    check: Option<Check>,
    before: Option<&str>,
    attempt: u32,
) -> Result<bool, Failure> {
    let stored = match check {
        _ if version(source, object).as_deref() != before => {
            let changed = Error::new(ErrorKind::Io, "the file is being written while it is copied");
            Err(changed.with_hint("wait until it is complete, then run the same command again"))
        }
        Some(check) => check.finish(&object.extent(source)).await,
        None => Ok(()),
    };
    match stored {
        Ok(()) => Ok(true),
        Err(error) if attempt == ATTEMPTS => Err(error.at_object(source.display_name(&object.name)).into()),
        Err(error) => {
            tracing::warn!(object = object.name, attempt, %error, "copied anew");
            Ok(false)
        }
    }
}

/// The bytes of an object from `start`, in order, with `ahead` concurrent reads.
pub(super) fn ranges(
    source: &Source,
    object: &Object,
    start: u64,
    ahead: usize,
) -> impl Stream<Item = infeed::Result<Bytes>> + use<> {
    let extent = object.extent(source);
    let starts = (start..object.size).step_by(RANGE as usize);
    // An empty file gives no range. Stores refuse requests for empty ranges.
    let reads = starts.map(move |start| {
        let mut part: Extent = extent.clone();
        part.range = start..(start + RANGE).min(extent.range.end);
        async move { part.read().await }
    });
    stream::iter(reads).buffered(ahead)
}
