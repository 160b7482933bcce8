//! Data with the statistics of the real thing, for demos, benches and tests.
//!
//! Everything is a function of (kind, seed, index): any number of cores writes the same bytes, and a larger `--count`
//! with as many classes begins with the pictures of a smaller one.

mod cifar;
mod folder;
mod nrrd;
mod picture;
mod tar;
mod tiff;

use std::{
    fs,
    num::NonZeroUsize,
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::Instant,
};

use crate::{
    args::{SynthArgs, SynthKind, TiffArgs},
    failure::Failure,
    out::Out,
    units,
};

/// What to make.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub kind: SynthKind,
    pub count: u64,
    pub classes: u64,
    pub seed: u64,
    /// Of volumes: voxels along each axis, and whether they are left uncompressed.
    pub side: u32,
    pub raw: bool,
}

/// What was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    pub files: u64,
    pub bytes: u64,
}

/// One file: its path below the folder, and how to make its bytes.
trait Files: Sync {
    fn len(&self) -> usize;
    fn path(&self, index: usize) -> String;
    fn bytes(&self, index: usize) -> Result<Vec<u8>, Failure>;
}

/// `infeed synth`.
pub(crate) fn command(args: &SynthArgs) -> Result<(), Failure> {
    let plan = Plan::new(args)?;
    let mut out = Out::new(None);
    let start = Instant::now();
    let made = make(plan, &args.tiff, &args.dir, &mut out)?;
    let seconds = start.elapsed().as_secs_f64();
    out.line(format_args!(
        "{}: {}, {} files, {} (seed {}) in {}",
        args.dir.display(),
        match plan.kind {
            SynthKind::Nrrd =>
                format!("{} patients of {side}x{side}x{side}", units::count(plan.count), side = plan.side),
            _ => format!("{} records of {} classes", units::count(plan.count), plan.classes),
        },
        units::count(made.files),
        units::size(made.bytes),
        plan.seed,
        units::time(seconds),
    ))
}

impl Plan {
    fn new(args: &SynthArgs) -> Result<Self, Failure> {
        let usage = |message: String| Err(Failure::Usage(message));
        let (default, most) = match args.kind {
            SynthKind::Imagenet | SynthKind::Tar => (1000, 1000),
            SynthKind::Caltech => (257, 257),
            SynthKind::Cifar10 => (10, 10),
            SynthKind::Cifar100 => (100, 100),
            SynthKind::Tiff => (10, 1000),
            SynthKind::Nrrd => (1, 1),
        };
        if args.kind != SynthKind::Tiff
            && let Some(option) = args.tiff.given()
        {
            return usage(format!("{option}: for tiff alone; the other kinds are as the real data are"));
        }
        if args.kind != SynthKind::Nrrd && (args.raw || args.side.is_some()) {
            return usage("--raw and --side are for nrrd".into());
        }
        let fixed = matches!(args.kind, SynthKind::Cifar10 | SynthKind::Cifar100);
        match args.classes {
            Some(n) if fixed && n != default => {
                return usage(format!("--classes: this format has {default} classes"));
            }
            Some(n) if n == 0 || n > most => return usage(format!("--classes: use 1 to {most}")),
            _ => {}
        }
        if args.count == 0 {
            return usage("--count: use 1 or more".into());
        }
        let wanted = args.classes.unwrap_or(default);
        // An empty class folder would be no class to a reader.
        let classes = if fixed { wanted } else { wanted.min(args.count) };
        Ok(Self {
            kind: args.kind,
            count: args.count,
            classes,
            seed: args.seed,
            side: args.side.unwrap_or(144),
            raw: args.raw,
        })
    }
}

/// Makes the files of `plan` in `dir`, which must be new or empty: data of two runs mixed would be a nasty surprise.
pub(crate) fn make(plan: Plan, tiff: &TiffArgs, dir: &Path, out: &mut Out) -> Result<Made, Failure> {
    let shape = tiff::Shape::new(tiff)?;
    fs::create_dir_all(dir).map_err(|error| Failure::file("cannot make folder", dir, error))?;
    let mut entries = fs::read_dir(dir).map_err(|error| Failure::file("cannot list", dir, error))?;
    if entries.next().is_some() {
        let message = format!("{} is not empty; name a new folder, or remove this one first", dir.display());
        return Err(Failure::Failed(message));
    }
    match plan.kind {
        SynthKind::Imagenet | SynthKind::Caltech => write_all(&folder::Folder::new(plan), dir, out),
        SynthKind::Nrrd => write_all(&nrrd::Nrrd::new(plan), dir, out),
        SynthKind::Tar => write_all(&tar::Shards::new(plan), dir, out),
        SynthKind::Cifar10 | SynthKind::Cifar100 => write_all(&cifar::Cifar::new(plan), dir, out),
        SynthKind::Tiff => write_all(&tiff::Tiffs::new(plan, shape), dir, out),
    }
}

/// Writes all files, on all cores: the first error stops the rest.
fn write_all(files: &impl Files, dir: &Path, out: &mut Out) -> Result<Made, Failure> {
    out.start_bar(files.len() as u64, "{msg} {wide_bar} {pos}/{len} files, {eta} left");
    out.bar().set_message("writing");
    let bar = out.bar();
    let (next, bytes) = (AtomicUsize::new(0), AtomicU64::new(0));
    let (stop, failed) = (AtomicBool::new(false), Mutex::new(None));
    let work = || {
        while !stop.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= files.len() {
                return;
            }
            match write_one(files, index, dir) {
                Ok(len) => bytes.fetch_add(len, Ordering::Relaxed),
                Err(failure) => {
                    stop.store(true, Ordering::Relaxed);
                    failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
                    return;
                }
            };
            bar.inc(1);
        }
    };
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get).min(files.len());
    thread::scope(|scope| {
        (0..cores).for_each(|_| drop(scope.spawn(work)));
    });
    out.end_bar();
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(failure) => Err(failure),
        None => Ok(Made { files: files.len() as u64, bytes: bytes.into_inner() }),
    }
}

fn write_one(files: &impl Files, index: usize, dir: &Path) -> Result<u64, Failure> {
    let path = dir.join(files.path(index));
    let bytes = files.bytes(index)?;
    let folder = path.parent().unwrap_or(dir);
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(&path, &bytes));
    written.map_err(|error| Failure::file("cannot write", &path, error))?;
    Ok(bytes.len() as u64)
}
