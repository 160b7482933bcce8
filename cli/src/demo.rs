//! `infeed demo`: generates data, streams it, shows the figures, and removes the data.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
    process::{self, Child, Stdio},
    thread,
    time::Instant,
};

use clap::Parser;

use crate::{
    args::{self, Cli, RunArgs, SynthKind, TiffArgs},
    failure::Failure,
    invocation,
    out::Out,
    report::RunReport,
    run, synth, units,
};

/// Debug builds are slow, and their figures do not matter: they do a sixteenth of the work.
const PART: u64 = if cfg!(debug_assertions) { 16 } else { 1 };
/// Enough for a steady rate, and little enough (42 MB) for the 64 MB of RAM disk in containers.
const PHOTOS: u64 = 384 / PART;
const PHOTO_BATCH: u64 = 64 / PART;
/// Training records; with test records, 18 MB.
const CIFAR: u64 = 5_000 / PART;
const CIFAR_EPOCHS: u64 = 20;
/// The trainer's time as a multiple of the loader's. So the loader is fast enough, and the trainer should not wait.
const SLOWER: f64 = 1.4;

/// The beginning of the folder's name, which [`sweep_up`] requires.
const PREFIX: &str = "infeed-demo-";

/// `infeed demo`.
pub(crate) async fn command() -> Result<(), Failure> {
    let start = Instant::now();
    let mut out = Out::new(None);
    let (folder, photos) = Folder::with(&mut out)?;
    let cifar = folder.join("cifar10");
    synth::make(
        synth::Plan { kind: SynthKind::Cifar10, count: CIFAR, classes: 10, seed: 1, side: 144, raw: false },
        &TiffArgs::default(),
        &cifar,
        &mut out,
    )?;
    out.words(format_args!(
        "Made {} photographs like ImageNet's ({}) and {} CIFAR-10 records in {}, in {}.",
        units::count(photos.files),
        units::size(photos.bytes),
        units::count(CIFAR),
        folder.dir.display(),
        units::time(start.elapsed().as_secs_f64()),
    ))?;

    let photos = folder.join("photos").display().to_string();
    let batch = PHOTO_BATCH.to_string();
    let base = ["--transform", "imagenet-train", "--batch-size", &batch, "--shuffle", "42"];

    out.words("\n1. The loader alone, at full speed: random crops to 224x224, flips, normalised f32, shuffled.")?;
    let alone = step(&photos, &[&base[..], &["--epochs", "2", "--checksum"]].concat(), Some(&out)).await?;
    out.words(format_args!(
        "   {} images/s, first batch after {}.",
        units::count(alone.samples_per_second.round() as u64),
        units::time(alone.first_batch_seconds().unwrap_or(0.0)),
    ))?;

    let each = PHOTO_BATCH as f64 / alone.samples_per_second * SLOWER;
    let trainer = format!("{}ms", (each * 1e3).ceil().max(1.0));
    // About five seconds, even on a slow machine.
    let batches = (PHOTOS / PHOTO_BATCH) as f64;
    let epochs = (5.0 / PART as f64 / (each * batches)).clamp(1.0, 8.0).floor().to_string();
    out.words(format_args!(
        "\n2. With a simulated trainer that takes {trainer} per batch. Its waiting time is the cost of loading."
    ))?;
    let mut lines = Out::new(None);
    let options = [&base[..], &["--epochs", &epochs, "--log-every", "6", "--step-time", &trainer]].concat();
    let trained = run_step(&photos, &options, &mut lines, Some(&out)).await?;
    out.line(format_args!("\n{}", trained.table()))?;

    out.words("\n3. The same rows in the same order, with any number of workers and batches ahead.")?;
    let mut same = true;
    for (workers, prefetch) in [("1", "1"), ("3", "8")] {
        let options = ["--epochs", "2", "--checksum", "--workers", workers, "--prefetch", prefetch];
        let report = step(&photos, &[&base[..], &options].concat(), Some(&out)).await?;
        same &= report.checksum == alone.checksum;
        let checksum = report.checksum.map(|sum| sum.to_string()).unwrap_or_default();
        out.words(format_args!("   workers {workers}, prefetch {prefetch}: checksum {checksum}"))?;
    }
    if !same {
        return Err(Failure::Failed("the checksums differ: this is a bug in infeed, please report it".into()));
    }

    out.words("\n4. CIFAR-10 from its binary files, batch 256, padded random crops and flips.")?;
    let epochs = CIFAR_EPOCHS.to_string();
    let options = ["--transform", "cifar-train", "--batch-size", "256", "--shuffle", "42", "--epochs", &epochs];
    let small = step(&cifar.display().to_string(), &options, Some(&out)).await?;
    out.words(format_args!(
        "   {} records/s over {CIFAR_EPOCHS} epochs.",
        units::count(small.samples_per_second.round() as u64)
    ))?;

    drop(folder);
    out.words(format_args!(
        "\nDone in {}: the loader alone gives {} images/s; the trainer was busy {:.1} % of its time, with a median \
         wait of {} per batch.\nThe data is removed. Next: infeed run YOUR_FOLDER, \
         infeed synth imagenet DIR --count 10000",
        units::time(start.elapsed().as_secs_f64()),
        units::count(alone.samples_per_second.round() as u64),
        trained.au.unwrap_or(0.0) * 100.0,
        units::time(trained.stream.data_wait.p50.as_secs_f64()),
    ))
}

/// Shows a command and runs it without output.
async fn step(url: &str, options: &[&str], show: Option<&Out>) -> Result<RunReport, Failure> {
    run_step(url, options, &mut Out::quiet(), show).await
}

async fn run_step(url: &str, options: &[&str], lines: &mut Out, show: Option<&Out>) -> Result<RunReport, Failure> {
    if let Some(out) = show {
        out.line(format_args!("   $ infeed run {url} {}", options.join(" ")))?;
    }
    // One process, whatever launcher started it.
    let alone = ["--rank", "0", "--world-size", "1"];
    run::run(&parse(url, &[options, &alone].concat())?, None, lines, &mut run::Observers::default()).await
}

fn parse(url: &str, options: &[&str]) -> Result<RunArgs, Failure> {
    let words = ["infeed", "run", url].into_iter().chain(options.iter().copied());
    match Cli::try_parse_from(words).map(|cli| cli.command) {
        Ok(Some(args::Command::Run(args))) => Ok(args.run),
        Ok(_) => Err(Failure::Failed("the demo's commands are broken; please report it".into())),
        Err(error) => Err(Failure::Failed(error.to_string())),
    }
}

/// The demo's folder. It is removed on drop, or by a helper process if this process is killed.
struct Folder {
    dir: PathBuf,
    sweeper: Option<Child>,
}

impl Folder {
    /// Makes the folder and the photographs, on the RAM disk if it has space, else in the temp folder.
    fn with(out: &mut Out) -> Result<(Self, synth::Made), Failure> {
        let plan =
            synth::Plan { kind: SynthKind::Imagenet, count: PHOTOS, classes: 12, seed: 1, side: 144, raw: false };
        let make = |parent: &Path, out: &mut Out| {
            let folder = Self::new(parent)?;
            let made = synth::make(plan, &TiffArgs::default(), &folder.join("photos"), out)?;
            Ok((folder, made))
        };
        match make(Path::new("/dev/shm"), out) {
            Err(Failure::Failed(_)) => make(&std::env::temp_dir(), out),
            made => made,
        }
    }

    fn new(parent: &Path) -> Result<Self, Failure> {
        let mut dir = parent.join(format!("{PREFIX}{}", process::id()));
        let mut tries = 0;
        // A killed demo of a reused process id may have left its folder.
        while let Err(error) = fs::create_dir(&dir) {
            tries += 1;
            if error.kind() != io::ErrorKind::AlreadyExists || tries > 100 {
                return Err(Failure::file("cannot make folder", &dir, error));
            }
            dir = parent.join(format!("{PREFIX}{}-{tries}", process::id()));
        }
        // Without a helper, Ctrl-C leaves the folder behind, which is acceptable.
        let sweeper = start_sweeper(&dir).ok();
        Ok(Self { dir, sweeper })
    }

    fn join(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
        if let Some(mut sweeper) = self.sweeper.take() {
            drop(sweeper.stdin.take());
            let _ = sweeper.wait();
        }
    }
}

/// Starts this program as a helper that outlives it. When its stdin closes, however this process ended, it removes the
/// folder.
fn start_sweeper(dir: &Path) -> io::Result<Child> {
    let mut command = invocation::again()?;
    // Our stdout may be a pipe whose reader waits for its end, so the helper must not hold it.
    command.arg("sweep-up").arg(dir).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // A Ctrl-C goes to our whole process group; the helper must outlive it.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command.spawn()
}

/// The helper: waits for the demo's end, then removes its folder.
pub(crate) fn sweep_up(dir: &Path) -> Result<(), Failure> {
    let ours = dir.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
    if !ours || !dir.is_dir() {
        return Err(Failure::Usage(format!("{} is not a folder of infeed demo", dir.display())));
    }
    let _ = io::stdin().read_to_end(&mut Vec::new());
    // A writer that has just died may have added a file during the removal, so try again.
    for _ in 0..3 {
        if fs::remove_dir_all(dir).is_ok() || !dir.exists() {
            break;
        }
        thread::yield_now();
    }
    Ok(())
}
