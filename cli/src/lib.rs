//! The `infeed` command: a demo, measurements and tools on the library's public API.
//!
//! This is a library only because cargo can then compile it while it still generates code for `infeed`. Its function
//! [`main`] is the program.
#![forbid(unsafe_code)]

mod alone;
mod args;
mod busy;
mod checksum;
mod child;
mod compare;
mod console;
mod demo;
mod doctor;
mod failure;
mod gpu;
mod help;
mod html;
mod index;
mod inspect;
mod invocation;
mod learn;
mod live;
mod log;
pub mod notebook;
mod options;
#[cfg(feature = "otel")]
mod otel;
mod out;
mod pages;
mod parts;
mod plan;
mod prepare;
mod process;
mod profile;
#[cfg(all(feature = "nvtx", target_os = "linux"))]
mod ranges;
mod report;
mod rgb_png;
mod run;
mod scrape;
mod sheet;
mod signals;
mod spread;
mod stage;
mod state;
mod stats;
mod sweep;
mod synth;
mod trace;
mod typed;
mod units;
mod usage;
mod width;

use std::{ffi::OsString, future::Future, io::Write, process::ExitCode};

use infeed::{
    internal::{Front, can_start_threads, printable, speak_as},
    metrics::Metrics,
};
use tracing::Level;
use tracing_subscriber::{Layer as _, filter::Targets, layer::SubscriberExt as _, util::SubscriberInitExt as _};

use crate::{args::Command, failure::Failure, trace::Trace};

/// The program `infeed`, with the arguments and the environment of this process.
#[must_use]
pub fn main() -> ExitCode {
    let name = std::env::args_os().next();
    ExitCode::from(perform(name))
}

/// The same inside another program, with these arguments. Gives the exit code. A command that needs more processes
/// starts `starter` (`python -m infeed`). The function takes over signals and the log permanently, so call it once per
/// process.
#[must_use]
pub fn main_of(starter: Vec<OsString>, args: Vec<OsString>) -> u8 {
    invocation::set(starter, args);
    perform(None)
}

/// The exit code.
fn perform(name: Option<OsString>) -> u8 {
    // First, because errors name settings, also errors of parsing arguments.
    speak_as(Front::Command);
    let name = name.unwrap_or_else(|| "infeed".into());
    let cli = match typed::parse(name, invocation::args()) {
        Ok(cli) => cli,
        Err(error) => {
            // Arguments may be file names with control characters, from a shell's pattern.
            if invocation::args().iter().any(|arg| arg.to_string_lossy().contains(printable::is_order)) {
                console::to_stderr(format_args!("{}", error.render()));
            } else {
                // A closed pipe while help is printed is not a failure.
                let _ = error.print();
            }
            return u8::try_from(error.exit_code()).unwrap_or(2);
        }
    };
    if cli.quiet {
        console::be_quiet();
    }
    let asked = match log::from_env() {
        Ok(asked) => asked,
        Err(failure) => return failure.report(),
    };
    let command = cli.command.unwrap_or(Command::Demo);
    let trace = match &command {
        Command::Profile(args) => match args.trace.as_deref().map(Trace::create).transpose() {
            Ok(trace) => trace,
            Err(failure) => return failure.report(),
        },
        _ => None,
    };
    let spans = trace.clone().map(|trace| trace.with_filter(Targets::new().with_target("infeed", Level::TRACE)));
    let metrics = Metrics::new();
    #[cfg(feature = "otel")]
    let otel = match otel::Otel::from_env() {
        Ok(otel) => otel,
        Err(failure) => return failure.report(),
    };
    #[cfg(feature = "otel")]
    otel.iter().for_each(|otel| otel.observe(&metrics));
    let registry = tracing_subscriber::registry().with(log::layer(asked)).with(spans);
    // Spans of epochs and batches only. `profile --trace` has the spans of their parts.
    #[cfg(feature = "otel")]
    let registry = registry.with(
        otel.as_ref()
            .and_then(otel::Otel::layer)
            .map(|layer| layer.with_filter(Targets::new().with_target("infeed", Level::DEBUG))),
    );
    #[cfg(all(feature = "nvtx", target_os = "linux"))]
    let registry = registry.with(
        ranges::Ranges::start().map(|layer| layer.with_filter(Targets::new().with_target("infeed", Level::TRACE))),
    );
    // If another program has installed its own log, events go there.
    let _ = registry.try_init();

    let done = match command {
        Command::Demo => on_runtime(demo::command()),
        Command::Run(args) => on_runtime(run::command(*args, metrics)),
        Command::Profile(args) => on_runtime(profile::command(*args, trace.clone())),
        Command::Sweep(args) => on_runtime(sweep::command(*args)),
        Command::Compare(args) => on_runtime(compare::command(*args)),
        Command::Doctor(args) => on_runtime(doctor::command(*args)),
        Command::Inspect(args) => on_runtime(inspect::command(args)),
        Command::Stage(args) => on_runtime(stage::command(args)),
        Command::Prepare(args) => on_runtime(prepare::command(args)),
        Command::Index(args) => on_runtime(index::command(args)),
        Command::Plan(args) => on_runtime(plan::command(*args)),
        Command::Synth(args) => synth::command(&args),
        Command::Completions { shell } => pages::completions(shell),
        Command::Man { dir } => pages::manual(dir.as_deref()),
        Command::SweepUp { dir } => demo::sweep_up(&dir),
    };
    #[cfg(feature = "otel")]
    otel.into_iter().for_each(otel::Otel::finish);
    // Finish the trace however the command ended.
    let traced = trace.map_or(Ok(()), |trace| trace.finish().map(drop));
    let done = done.and(traced);
    match done.and_then(|()| Ok(std::io::stdout().flush()?)) {
        Ok(()) => 0,
        Err(failure) => failure.report(),
    }
}

/// Runs a command as a task of a multi-thread runtime, as a training program would.
fn on_runtime(command: impl Future<Output = Result<(), Failure>> + Send + 'static) -> Result<(), Failure> {
    // Two threads: one for the trainer's loop and one for its timers. The loader starts its own. Checked before,
    // because tokio panics or hangs if the system refuses threads.
    can_start_threads(3).map_err(|error| Failure::Failed(format!("cannot start a thread: {error}")))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        match tokio::spawn(command).await {
            Ok(done) => done,
            // The panic's message is on stderr already.
            Err(_) => Err(Failure::Failed("infeed stopped on a bug; please report the message above".into())),
        }
    })
}
