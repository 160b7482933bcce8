//! One archive: copied as it is, then unpacked.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Read, Write},
    path::Path,
};

use futures::StreamExt;
use infeed::source::{Object, Source};

use super::{
    copy::{AHEAD_ALONE, Done, Files, PartFile, RANGE, check, is_as_stored, ranges, version},
    file::{Hasher, holds, unwritable},
    manifest::{self, Entry},
    target::{Target, inside, part_in},
};
use crate::{
    args::StageArgs,
    failure::Failure,
    out::{BarOf, Out},
    units,
};

/// How a tar is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    Plain,
    Gzip,
    Zstd,
}

impl Packing {
    /// By the extension; `None` if it is not an archive.
    pub(super) fn of(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let ends = |ends: &[&str]| ends.iter().any(|end| name.ends_with(end));
        if ends(&[".tar"]) {
            Some(Self::Plain)
        } else if ends(&[".tar.gz", ".tgz"]) {
            Some(Self::Gzip)
        } else if ends(&[".tar.zst", ".tzst"]) {
            Some(Self::Zstd)
        } else {
            None
        }
    }

    fn reader<'a>(self, file: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
        Ok(match self {
            Self::Plain => Box::new(file),
            // Several members in one file, as parallel compressors write them.
            Self::Gzip => Box::new(flate2::read::MultiGzDecoder::new(file)),
            Self::Zstd => Box::new(ruzstd::decoding::StreamingDecoder::new(file).map_err(io::Error::other)?),
        })
    }
}

/// The name of the manifest's line that marks an archive as unpacked.
const UNPACKED: &str = "*unpacked";

/// Copies and unpacks an archive. Skips what was done before.
pub(super) async fn stage(
    args: &StageArgs,
    source: &Source,
    object: &Object,
    packing: Packing,
    mut target: Target,
    out: &mut Out,
) -> Result<Done, Failure> {
    let known = target.manifest.take();
    let files = || known.values().filter(|entry| !entry.name.starts_with('*'));
    let here = |entry: &Entry| holds(&target.dir.join(&entry.name), entry.size, &entry.xxh3);
    let found = version(source, object);
    let same = |entry: &Entry| entry.size == object.size && entry.etag == found;
    if known.get(UNPACKED).is_some_and(same) && files().all(here) {
        let bytes = files().map(|entry| entry.size).sum();
        let top = top_of(files().map(|entry| entry.name.as_str()));
        return Ok(Done { found: Files { count: files().count() as u64, bytes }, top, ..Done::default() });
    }
    let path = target.dir.join(manifest::FOLDER).join("archive");
    let (copied, fetched) = fetch(args, source, object, &path, &known, &mut target, out).await?;
    let mut done = unpack(args, object, packing, &path, &mut target, out)?;
    target.manifest.add(&Entry::file(UNPACKED, object.size, copied.as_deref(), ""))?;
    fs::remove_file(&path).map_err(|error| Failure::file("cannot remove", &path, error))?;
    done.fetched = fetched;
    Ok(done)
}

/// Copies the archive, starting where an earlier copy stopped. Gives its version and the bytes fetched.
async fn fetch(
    args: &StageArgs,
    source: &Source,
    object: &Object,
    path: &Path,
    known: &HashMap<String, Entry>,
    target: &mut Target,
    out: &mut Out,
) -> Result<(Option<String>, u64), Failure> {
    let failed = |error| unwritable(path, error);
    let mut file = File::options().read(true).write(true).create(true).truncate(false).open(path).map_err(failed)?;
    let mut fetched = 0;
    let mut attempt = 1;
    loop {
        let copied = version(source, object);
        let mut check = check(source, object).await?;
        let mut at = 0;
        let mut buffer = Vec::new();
        // Keep ranges in order, as long as the file holds what the manifest lists.
        let fits = |entry: &&Entry, at: u64| (1..=RANGE.min(object.size - at)).contains(&entry.size);
        let written = |at: u64| known.get(&format!("*{at}")).filter(|_| attempt == 1);
        while let Some(entry) = written(at).filter(|entry| entry.etag == copied && fits(entry, at)) {
            buffer.resize(entry.size as usize, 0);
            let mut hasher = Hasher::default();
            let read = file.read_exact(&mut buffer).and_then(|()| hasher.write_all(&buffer));
            if read.is_err() || hasher.hex() != entry.xxh3 {
                break;
            }
            check.iter_mut().for_each(|check| check.update(&buffer));
            at += entry.size;
        }
        drop(buffer);
        file.set_len(at).map_err(failed)?;
        let rest = object.size - at;
        // The archive stays until its files are there. The unpacked size of a compressed archive is not known before.
        let unpacked = if Packing::of(&object.name) == Some(Packing::Plain) { object.size } else { 0 };
        target.check_space(args, at, rest + unpacked, 0)?;
        out.start_bar(rest, BarOf::Bytes);
        io::Seek::seek(&mut file, io::SeekFrom::Start(at)).map_err(failed)?;
        let mut reads = ranges(source, object, at, AHEAD_ALONE).boxed();
        while let Some(bytes) = reads.next().await {
            let bytes = bytes.inspect_err(|_| out.end_bar())?;
            let mut hasher = Hasher::default();
            file.write_all(&bytes).and_then(|()| hasher.write_all(&bytes)).map_err(failed)?;
            check.iter_mut().for_each(|check| check.update(&bytes));
            let (name, size) = (format!("*{at}"), bytes.len() as u64);
            target.manifest.add(&Entry::file(&name, size, copied.as_deref(), &hasher.hex()))?;
            at += size;
            out.bar().inc(size);
        }
        out.end_bar();
        fetched += rest;
        if is_as_stored(source, object, check, copied.as_deref(), attempt).await? {
            return Ok((copied, fetched));
        }
        // Copy all of it again: the damage may be in any part, from an earlier copy or from this one.
        attempt += 1;
    }
}

/// Writes the files of an archive. A hard link gets the bytes of the file that it names. Symbolic links and devices are
/// left out.
fn unpack(
    args: &StageArgs,
    object: &Object,
    packing: Packing,
    path: &Path,
    target: &mut Target,
    out: &mut Out,
) -> Result<Done, Failure> {
    let bad = |error: io::Error| Failure::Failed(format!("{}: cannot be unpacked: {error}", args.url));
    let file = File::open(path).map_err(bad)?;
    out.start_bar(object.size, BarOf::Bytes);
    out.bar().set_message("unpacking");
    let counted = Counted { inner: io::BufReader::with_capacity(1 << 20, file), bar: out.bar().clone() };
    let mut archive = tar::Archive::new(packing.reader(counted).map_err(bad)?);
    let mut done = Done::default();
    // Files written so far, with length and hash. A hard link may name only these.
    let mut written: HashMap<String, (u64, String)> = HashMap::new();
    // Bytes of files, without hard links.
    let mut on_disk = 0u64;
    let part = part_in(&target.dir, 0);
    let _gone_after = PartFile(&part);
    for entry in archive.entries().map_err(bad)? {
        let mut entry = entry.map_err(bad)?;
        let kind = entry.header().entry_type();
        if kind.is_dir() || kind.is_pax_global_extensions() || kind.is_pax_local_extensions() {
            continue;
        }
        if !kind.is_file() && !kind.is_contiguous() && !kind.is_hard_link() {
            done.left_out += 1;
            continue;
        }
        let unicode = |name: &Path| match name.to_str() {
            // As `tar c .` writes them.
            Some(name) => Ok(name.trim_start_matches("./").to_owned()),
            None => Err(Failure::Failed(format!("{}: a name in it is not Unicode", args.url))),
        };
        let name = unicode(&entry.path().map_err(bad)?)?;
        let path = inside(&target.dir, &name)?;
        if kind.is_hard_link() {
            let to = entry.link_name().map_err(bad)?;
            let to = to.ok_or_else(|| bad(io::Error::other(format!("{name:?} is a hard link without a target"))))?;
            let to = unicode(&to)?;
            // Checked first, because a target outside the folder is an attack, not a mistake.
            let from = inside(&target.dir, &to)?;
            // Only files written from this archive, not others in the folder.
            let Some((size, hash)) = written.get(&to).cloned() else {
                let what = format!("{name:?} is a hard link to {to:?}, which is not a file before it in the archive");
                return Err(bad(io::Error::other(what)));
            };
            if from != path {
                link(&from, &part, &path)?;
            }
            target.manifest.add(&Entry::file(&name, size, None, &hash))?;
            done.copied.add(size);
            written.insert(name, (size, hash));
            continue;
        }
        let size = entry.size();
        on_disk = on_disk.saturating_add(size);
        let all = on_disk;
        if let Some(limit) = args.limit.filter(|limit| all.saturating_add(object.size) > limit.0) {
            let what =
                format!("{} and its files take more than --limit {}; raise --limit", args.url, units::size(limit.0));
            return Err(Failure::Failed(what));
        }
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|error| unwritable(&path, error))?;
        }
        let file = File::create(&part).map_err(|error| unwritable(&path, error))?;
        let mut out_file = HashedFile { file, hasher: Hasher::default(), failed: None };
        let copied = io::copy(&mut entry, &mut out_file);
        if let Some(error) = out_file.failed {
            return Err(unwritable(&path, error));
        }
        let copied = copied.map_err(bad)?;
        if copied != size {
            return Err(bad(io::Error::other(format!("{name} ends after {copied} of {size} bytes"))));
        }
        fs::rename(&part, &path).map_err(|error| unwritable(&path, error))?;
        let hash = out_file.hasher.hex();
        target.manifest.add(&Entry::file(&name, size, None, &hash))?;
        done.copied.add(size);
        written.insert(name, (size, hash));
    }
    out.end_bar();
    if written.is_empty() {
        return Err(Failure::Failed(format!("{}: the archive holds no files", args.url)));
    }
    done.top = top_of(written.keys().map(String::as_str));
    Ok(done)
}

/// Makes a hard link to a file, or a copy if the file system has no hard links. It is made at `part` and then renamed.
fn link(from: &Path, part: &Path, path: &Path) -> Result<(), Failure> {
    let failed = |error| unwritable(path, error);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    // Remove them first. Renaming a link over another link to the same file does nothing, so `part` would stay a link,
    // and the next file would be written into it.
    for old in [part, path] {
        match fs::remove_file(old) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
    }
    fs::hard_link(from, part).or_else(|_| fs::copy(from, part).map(drop)).map_err(failed)?;
    fs::rename(part, path).map_err(failed)
}

/// The folder that all names share as first part.
fn top_of<'a>(names: impl Iterator<Item = &'a str>) -> Option<String> {
    let mut tops = names.map(|name| name.split_once('/').map(|(top, _)| top));
    let first = tops.next()??;
    tops.all(|top| top == Some(first)).then(|| first.to_owned())
}

/// Advances the bar as the archive is read.
struct Counted<R> {
    inner: R,
    bar: indicatif::ProgressBar,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner.read(buffer).inspect(|n| self.bar.inc(*n as u64))
    }
}

/// A file and its hash. Keeps errors of the file apart from errors of the archive.
struct HashedFile {
    file: File,
    hasher: Hasher,
    failed: Option<io::Error>,
}

impl Write for HashedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Err(error) = self.file.write_all(bytes) {
            self.failed = Some(error);
            return Err(io::Error::other("the disk refused"));
        }
        self.hasher.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_are_known_by_their_names() {
        for (name, packing) in [
            ("a.tar", Some(Packing::Plain)),
            ("A.TAR", Some(Packing::Plain)),
            ("a.tar.gz", Some(Packing::Gzip)),
            ("a.tgz", Some(Packing::Gzip)),
            ("a.tar.zst", Some(Packing::Zstd)),
            ("a.zip", None),
            ("tar", None),
        ] {
            assert_eq!(Packing::of(name), packing, "{name}");
        }
    }

    #[test]
    fn one_folder_for_all_is_told() {
        assert_eq!(top_of(["a/1", "a/b/2"].into_iter()).as_deref(), Some("a"));
        assert_eq!(top_of(["a/1", "b/2"].into_iter()), None);
        assert_eq!(top_of(["a/1", "2"].into_iter()), None);
        assert_eq!(top_of([].into_iter()), None);
    }
}
