//! Objects copied as they are: read in ranges, hashed on the way, renamed when they are whole.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Write},
    path::Path,
};

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use infeed::source::{Check, Extent, Object, Source};

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

/// Bytes of one read: few enough requests, and small enough to be repeated.
pub(super) const RANGE: u64 = 8 << 20;
/// Reads of one file at a time: of many files, and of an archive, which is alone.
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

/// What a copy came to.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// What was there.
    pub(super) found: Files,
    pub(super) copied: Files,
    /// Bytes that came from the source.
    pub(super) fetched: u64,
    pub(super) left_out: u64,
    /// The only folder at the top of an archive.
    pub(super) top: Option<String>,
}

/// Copies the objects that are not there.
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
        if is_whole(&target.dir, object, &known) {
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
            let hash = copy(&source, &object, &part, &path?, ahead, |bytes| bar.inc(bytes)).await?;
            Ok::<_, Failure>((object, hash))
        }
    });
    let mut copies = stream::iter(copies).buffer_unordered(args.jobs as usize);
    while let Some(copied) = copies.next().await {
        let (object, hash) = copied.inspect_err(|_| out.end_bar())?;
        manifest.add(&Entry::file(&object.name, object.size, object.etag.as_deref(), &hash))?;
        done.copied.add(object.size);
        done.fetched += object.size;
    }
    out.end_bar();
    Ok(done)
}

/// Whether an object was copied in this version and its file is still what was written.
fn is_whole(dir: &Path, object: &Object, known: &HashMap<String, Entry>) -> bool {
    let Some(entry) = known.get(&object.name) else { return false };
    entry.size == object.size && entry.etag == object.etag && holds(&dir.join(&object.name), entry.size, &entry.xxh3)
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
    let mut attempt = 1;
    loop {
        let mut file = File::create(part).map_err(failed)?;
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
        if is_as_stored(source, object, check, attempt).await? {
            fs::rename(part, path).map_err(failed)?;
            return Ok(hasher.hex());
        }
        attempt += 1;
    }
}

/// Copies of an object, before its damage is an error.
const ATTEMPTS: u32 = 4;

/// What an object must be that is read in ranges; one that is read whole is compared where it is read.
pub(super) async fn check(source: &Source, object: &Object) -> Result<Option<Check>, Failure> {
    if object.size <= RANGE {
        return Ok(None);
    }
    Ok(Some(object.extent(source).check().await?))
}

/// Whether all bytes that came are those that the store told of. `false`: they have to be read once more.
pub(super) async fn is_as_stored(
    source: &Source,
    object: &Object,
    check: Option<Check>,
    attempt: u32,
) -> Result<bool, Failure> {
    let Some(check) = check else { return Ok(true) };
    match check.finish(&object.extent(source)).await {
        Ok(()) => Ok(true),
        Err(error) if attempt == ATTEMPTS => Err(error.at_object(source.display_name(&object.name)).into()),
        Err(error) => {
            tracing::warn!(object = object.name, attempt, %error, "copied anew");
            Ok(false)
        }
    }
}

/// The bytes of an object from `start`, in order, some ranges ahead.
pub(super) fn ranges(
    source: &Source,
    object: &Object,
    start: u64,
    ahead: usize,
) -> impl Stream<Item = infeed::Result<Bytes>> + use<> {
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
