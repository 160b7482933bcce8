//! The target folder: its lock, its manifest and its free space.

use std::{
    fs::{self, File},
    io,
    path::{Component, Path, PathBuf},
};

use infeed::{internal::disk, source::Object};

use super::manifest::{self, Manifest};
use crate::{args::StageArgs, failure::Failure, units};

/// Space reserved per file beyond its bytes. A file wastes half a block on average.
const BLOCK: u64 = 4096;

/// The target folder.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) dir: PathBuf,
    pub(super) manifest: Manifest,
    /// The lock. Two copies into one folder would overwrite each other's files.
    _lock: File,
}

impl Target {
    pub(super) fn open(args: &StageArgs, objects: &[Object]) -> Result<Self, Failure> {
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
        // Left by a process that has ended, since the lock is free.
        for part in fs::read_dir(&own).map_err(|e| failed("cannot read", e))?.flatten() {
            if part.path().extension().is_some_and(|extension| extension == "part") {
                let _ = fs::remove_file(part.path());
            }
        }
        Ok(Self { dir, manifest, _lock: lock })
    }

    /// Whether `more` bytes in `files` files fit, with `there` bytes in the folder already.
    pub(super) fn check_space(&self, args: &StageArgs, there: u64, more: u64, files: u64) -> Result<(), Failure> {
        let all = there + more;
        if let Some(limit) = args.limit.filter(|limit| all > limit.0) {
            let (all, limit, over) = (units::size(all), units::size(limit.0), units::size(all - limit.0));
            let what =
                format!("{} holds {all}, --limit is {limit}: {over} too much; raise --limit or copy a part", args.url);
            return Err(Failure::Failed(what));
        }
        let needed = more + files * BLOCK;
        match disk::free_space(&self.dir) {
            Some(space) if space.free < needed => {
                let (dir, free) = (self.dir.display(), units::size(space.free));
                let (needed, short) = (units::size(needed), units::size(needed - space.free));
                let what =
                    format!("{dir} has {free} free, the copy needs {needed}: {short} too little; nothing was copied");
                Err(Failure::Failed(what))
            }
            _ => Ok(()),
        }
    }
}

/// The path of a file while it is incomplete.
pub(super) fn part_in(dir: &Path, number: usize) -> PathBuf {
    dir.join(manifest::FOLDER).join(format!("{number}.part"))
}

/// The path of an object of this name. It is always below `dir`.
pub(super) fn inside(dir: &Path, name: &str) -> Result<PathBuf, Failure> {
    let plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    let path = Path::new(name);
    let own = path.components().next().is_some_and(|first| first.as_os_str() == manifest::FOLDER);
    if name.is_empty() || own || !path.components().all(plain) {
        let what = format!("{name:?} would be written outside of {}: refused", dir.display());
        return Err(Failure::Failed(what));
    }
    Ok(dir.join(path))
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
