//! Data with the statistics of real datasets, for demos, benchmarks and tests.
//!
//! Everything is a function of (kind, seed, index): any number of cores writes the same bytes. With the same number
//! of classes, a larger `--count` begins with the images of a smaller one.

mod cifar;
mod files;
mod folder;
mod nrrd;
mod picture;
mod plan;
mod tar;
mod tiff;

use std::{fs, path::Path, time::Instant};

pub(crate) use files::Made;
use files::write_all;
pub(crate) use plan::Plan;

use crate::{
    args::{SynthArgs, SynthKind, TiffArgs},
    failure::Failure,
    out::Out,
    units,
};

/// `infeed synth`.
pub(crate) fn command(args: &SynthArgs) -> Result<(), Failure> {
    let plan = Plan::new(args)?;
    let mut out = Out::new(None);
    let start = Instant::now();
    let made = make(plan, &args.tiff, &args.dir, &mut out)?;
    let seconds = start.elapsed().as_secs_f64();
    out.words(format_args!(
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

/// Makes the files of `plan` in `dir`, which must be new or empty, so that data of two runs is never mixed.
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
