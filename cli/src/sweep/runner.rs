//! Cells, each in a process of its own.

use std::{
    ffi::OsString,
    process::{ExitStatus, Stdio},
};

use serde_json::Value;
use tokio::process::Command;

use super::cell::{Cell, Settings};
use crate::{
    failure::Failure,
    invocation,
    signals::{Signal, Signals},
};

/// Runs cells.
pub(super) struct Runner {
    url: String,
    signals: Signals,
}

impl Runner {
    pub(super) fn new(url: &str) -> Result<Self, Failure> {
        Ok(Self { url: url.into(), signals: Signals::new()? })
    }

    /// A cell, one that failed too; or the signal that ended it.
    pub(super) async fn run(
        &mut self,
        options: &[OsString],
        settings: &Settings,
    ) -> Result<Result<Cell, Signal>, Failure> {
        let mut child = Command::from(invocation::again()?);
        child.arg("run").arg(&self.url).args(options).args(settings.options()).args(["--json", "-"]);
        child.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let ran = tokio::select! {
            ran = child.output() => ran?,
            signal = self.signals.next() => return Ok(Err(signal)),
        };
        match ran.status.success() {
            true => {
                let told: Value = serde_json::from_slice(&ran.stdout)
                    .map_err(|error| Failure::Failed(format!("a cell's figures can't be read: {error}")))?;
                Ok(Ok(Cell::new(settings.clone(), &told)))
            }
            // The terminal's Ctrl-C reached the cell first.
            false if matches!(ran.status.code(), Some(130 | 143)) => {
                Ok(Err(if ran.status.code() == Some(130) { Signal::Interrupt } else { Signal::Terminate }))
            }
            false => Ok(Ok(Cell::failed(settings.clone(), &last_words(&ran.stderr, ran.status)))),
        }
    }
}

/// The end of what a failed cell said.
fn last_words(stderr: &[u8], status: ExitStatus) -> String {
    let said = String::from_utf8_lossy(stderr);
    let line = said.lines().find_map(|line| line.strip_prefix("error: "));
    match line {
        Some(line) => line.to_owned(),
        None => format!("the cell ended with {status}"),
    }
}
