//! The command line as a user has it.

use std::process::{Command, Output, Stdio};

/// The binary, with nothing of the tester's environment: no launcher, no log filter, no terminal width.
pub(crate) fn infeed() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_infeed"));
    // What is expected here is the CPU's, whatever GPU there is.
    command.env_clear().env("CUDA_VISIBLE_DEVICES", "").stdin(Stdio::null());
    command
}

pub(crate) fn run(args: &[&str]) -> Output {
    infeed().args(args).output().expect("the binary starts")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("output is UTF-8")
}

/// Runs, expects success, gives stdout.
pub(crate) fn ok(args: &[&str]) -> String {
    let output = run(args);
    assert!(output.status.success(), "{args:?}: {:?}\n{}", output.status, text(&output.stderr));
    text(&output.stdout)
}
