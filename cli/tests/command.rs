//! The command line as a user has it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use crate::support::skipped;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_infeed");

/// A program with nothing of the tester's environment: no launcher, no log filter, no terminal width.
pub(crate) fn program(name: &str) -> Command {
    let mut command = Command::new(name);
    // What is expected here is the CPU's, whatever GPU there is.
    command.env_clear().env("CUDA_VISIBLE_DEVICES", "").stdin(Stdio::null());
    command
}

pub(crate) fn infeed() -> Command {
    program(BINARY)
}

/// The binary in a pseudo terminal of so many columns and 40 rows. `None`: there is no `script` here, which gives one.
pub(crate) fn in_terminal(columns: usize, args: &str) -> Option<Command> {
    let there = Command::new("script").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !there.is_ok_and(|status| status.success()) {
        skipped("no `script` here that gives a pseudo terminal");
        return None;
    }
    let mut command = program("script");
    command.args(["-qec", &format!("stty cols {columns} rows 40; exec {BINARY} {args}"), "/dev/null"]);
    command
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("SHELL", "/bin/sh")
        .env("TERM", "xterm-256color");
    Some(command)
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

/// All files below a folder with their bytes, by relative name.
pub(crate) fn tree(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    let mut folders = vec![dir.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push((path.strip_prefix(dir).unwrap().to_path_buf(), fs::read(&path).unwrap()));
            }
        }
    }
    files.sort();
    files
}

/// Names first: they say more than bytes that differ.
pub(crate) fn assert_same(a: &[(PathBuf, Vec<u8>)], b: &[(PathBuf, Vec<u8>)]) {
    let names = |tree: &[(PathBuf, Vec<u8>)]| tree.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(a), names(b));
    assert!(a == b, "the bytes differ");
}
