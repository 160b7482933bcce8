//! The sections, and which of them to run.

mod decoders;
mod device;
mod loaders;
mod out;
mod photos;
mod threads;

use std::{num::NonZeroUsize, path::PathBuf, process::ExitCode, thread};

use infeed::Result;

use self::{out::Out, photos::Photos};

/// How much work a figure is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    Full,
    Quick,
    /// For the mock GPU.
    Tiny,
}

/// What the sections know.
struct Bench {
    scale: Scale,
    /// Numbers of threads to try, ascending.
    workers: Vec<usize>,
    /// Who decodes in `photos`, by the beginnings of their names; empty for all.
    ways: Vec<String>,
    photos: Photos,
}

impl Scale {
    /// One of three numbers.
    fn of<T>(self, full: T, quick: T, tiny: T) -> T {
        match self {
            Self::Full => full,
            Self::Quick => quick,
            Self::Tiny => tiny,
        }
    }
}

type Section = fn(&mut Bench, &mut Out) -> Result<()>;

const SECTIONS: [(&str, Section); 10] = [
    ("machine", device::machine),
    ("bounds", device::bounds),
    ("kernels", device::kernels),
    ("engines", decoders::engines),
    ("gpu_hybrid", decoders::gpu_hybrid),
    ("hybrid", decoders::hybrid),
    ("cpu", decoders::cpu),
    ("photos", loaders::photos),
    ("recipes", loaders::recipes),
    ("memory", loaders::memory),
];

#[derive(Default)]
struct Args {
    sections: Vec<String>,
    quick: bool,
    photos: Option<PathBuf>,
    workers: Vec<usize>,
    ways: Vec<String>,
    list: bool,
}

fn args() -> std::result::Result<Args, String> {
    let photos = std::env::var_os("INFEED_PHOTOS").map(PathBuf::from);
    let mut args = Args { photos, ..Args::default() };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match &*word {
            // What cargo adds.
            "--bench" => {}
            "--quick" => args.quick = true,
            "--photos" => args.photos = Some(value()?.into()),
            "--list" => args.list = true,
            "--ways" => args.ways = value()?.split(',').map(str::to_owned).collect(),
            "--workers" => {
                let numbers = value()?.split(',').map(str::parse).collect::<std::result::Result<Vec<usize>, _>>();
                args.workers = numbers.map_err(|_| "--workers needs numbers, as 1,4,16")?;
            }
            name if SECTIONS.iter().any(|section| section.0 == name) => args.sections.push(word),
            // Filters of `cargo bench` for other benches.
            _ if !word.starts_with('-') => {}
            _ => return Err(format!("unknown option {word}")),
        }
    }
    Ok(args)
}

pub(crate) fn run() -> ExitCode {
    let args = match args() {
        Ok(args) => args,
        Err(why) => {
            println!("{why}");
            return ExitCode::from(2);
        }
    };
    if args.list {
        SECTIONS.iter().for_each(|(name, _)| println!("{name}"));
        return ExitCode::SUCCESS;
    }
    let devices = infeed::device::devices();
    let Some(gpu) = devices.gpus.first() else {
        println!("no GPU, so nothing to measure: {}", devices.note);
        return ExitCode::SUCCESS;
    };
    let scale = match (gpu.name.contains("mock"), args.quick) {
        (true, _) => Scale::Tiny,
        (false, true) => Scale::Quick,
        (false, false) => Scale::Full,
    };
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let mut workers = args.workers;
    if workers.is_empty() {
        workers = scale.of(vec![1, 2, 4, 8, 16], vec![1, 2, 4, 8, 16], vec![2]);
        workers.retain(|n| *n <= cores);
        workers.push(cores);
    }
    workers.sort_unstable();
    workers.dedup();
    let mut bench = Bench { scale, workers, ways: args.ways, photos: Photos::new(args.photos, scale) };
    let mut out = Out::new(scale.of(5, 3, 2));
    for (name, section) in SECTIONS {
        if args.sections.is_empty() || args.sections.iter().any(|wanted| wanted == name) {
            out.section(name, |out| section(&mut bench, out));
        }
    }
    if out.failed() > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
