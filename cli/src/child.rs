//! Starts each `infeed run` in its own process, for commands that measure several runs. So peak memory, processor time
//! and warm state belong to one run, and a run that fails, or is killed for its memory, does not affect others.

use std::{
    ffi::OsString,
    process::{ExitStatus, Stdio},
};

use serde_json::Value;
use tokio::process::Command;

use crate::{
    failure::Failure,
    invocation,
    signals::{Signal, Signals},
};

/// Options that set the end of a run.
pub(crate) const ENDS: [&str; 3] = ["epochs", "max-batches", "max-time"];

/// The end of a run without such an option. An epoch may take a millisecond or a day, and neither is good for a
/// comparison.
pub(crate) const FOR_A_WHILE: [&str; 4] = ["--epochs", "1000000000", "--max-time", "3s"];

/// Starts runs, one after another.
pub(crate) struct Runner {
    signals: Signals,
}

/// The outcome of a run.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Its JSON, and its warnings.
    Done(Box<Value>, Vec<String>),
    /// Its error, and whether its arguments were wrong.
    Failed { words: String, usage: bool },
    /// The signal that ended it, or this process.
    Stopped(Signal),
}

impl Runner {
    pub(crate) fn new() -> Result<Self, Failure> {
        Ok(Self { signals: Signals::new()? })
    }

    /// `infeed run` with these arguments.
    pub(crate) async fn run(&mut self, arguments: &[OsString]) -> Result<Outcome, Failure> {
        let mut child = Command::from(invocation::again()?);
        // Its lines are not shown. The labels parsed below must have no colours.
        child.args(["run", "--quiet", "--json", "-"]).args(arguments).env_remove("CLICOLOR_FORCE");
        child.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let ran = tokio::select! {
            ran = child.output() => ran?,
            signal = self.signals.next() => return Ok(Outcome::Stopped(signal)),
        };
        let said = String::from_utf8_lossy(&ran.stderr);
        Ok(match ran.status.code() {
            Some(0) => {
                let told = serde_json::from_slice(&ran.stdout)
                    .map_err(|error| Failure::Failed(format!("the figures of a run cannot be read: {error}")))?;
                let warnings = said.lines().filter_map(|line| line.strip_prefix("warning: ")).map(str::to_owned);
                Outcome::Done(Box::new(told), warnings.collect())
            }
            // The terminal's Ctrl-C reached the run first.
            Some(130) => Outcome::Stopped(Signal::Interrupt),
            Some(143) => Outcome::Stopped(Signal::Terminate),
            code => Outcome::Failed { words: last_words(&said, ran.status), usage: code == Some(2) },
        })
    }
}

/// The error of a failed run.
fn last_words(said: &str, status: ExitStatus) -> String {
    let line = said.lines().find_map(|line| line.strip_prefix("error: "));
    line.map_or_else(|| format!("the run ended with {status}"), str::to_owned)
}

/// The rates of a run, without its first batch, whose time includes the start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    pub iterations_per_second: f64,
    pub samples_per_second: f64,
}

impl Rates {
    /// From the JSON of `infeed run`.
    pub(crate) fn of(told: &Value) -> Self {
        let float = |value: &Value| value.as_f64().unwrap_or(0.0);
        let batches = told["batches"].as_u64().unwrap_or(0);
        // A run of one batch has only its whole time.
        let step = float(&told["step"]["sum"]);
        let iterations_per_second = match batches {
            2.. if step > 0.0 => (batches - 1) as f64 / step,
            _ => batches as f64 / float(&told["seconds"]).max(f64::MIN_POSITIVE),
        };
        let rows = float(&told["samples"]) / batches.max(1) as f64;
        // With a warm-up, the rate after it counts.
        let settled = &told["settled"];
        let iterations_per_second = match float(&settled["seconds"]) {
            seconds if seconds > 0.0 => float(&settled["batches"]) / seconds,
            _ => iterations_per_second,
        };
        Self { iterations_per_second, samples_per_second: rows * iterations_per_second }
    }
}
