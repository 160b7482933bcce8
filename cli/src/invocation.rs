//! How this process was started as `infeed`, and how to start another one: the program itself, or Python's module.

use std::{ffi::OsString, process::Command, sync::OnceLock};

/// The program and its arguments.
#[derive(Debug)]
struct Invocation {
    /// A program and its first arguments; empty for this program.
    starter: Vec<OsString>,
    args: Vec<OsString>,
}

static GIVEN: OnceLock<Invocation> = OnceLock::new();

/// Sets the invocation. Call it before the other functions; only the first call counts.
pub(crate) fn set(starter: Vec<OsString>, args: Vec<OsString>) {
    let _ = GIVEN.set(Invocation { starter, args: masks_of_files(args) });
}

/// Replaces `--masks PATTERN` by `--mask-files PATTERN`. `--masks` itself takes no value, so that a dataset may follow
/// it.
fn masks_of_files(args: Vec<OsString>) -> Vec<OsString> {
    let mut told: Vec<OsString> = Vec::with_capacity(args.len());
    for arg in args {
        let pattern = arg.to_str().is_some_and(|text| text.contains("{stem}"));
        match (told.last_mut(), arg.to_str().and_then(|text| text.strip_prefix("--masks="))) {
            (_, Some(given)) if pattern => told.push(format!("--mask-files={given}").into()),
            (Some(before), _) if pattern && before == "--masks" => {
                *before = "--mask-files".into();
                told.push(arg);
            }
            _ => told.push(arg),
        }
    }
    told
}

fn given() -> &'static Invocation {
    GIVEN
        .get_or_init(|| Invocation { starter: Vec::new(), args: masks_of_files(std::env::args_os().skip(1).collect()) })
}

/// The arguments after the program's name.
pub(crate) fn args() -> &'static [OsString] {
    &given().args
}

/// The command line, as far as it is known.
fn line() -> impl Iterator<Item = OsString> {
    let program = match &given().starter[..] {
        [] => std::env::args_os().take(1).collect(),
        starter => starter.to_vec(),
    };
    program.into_iter().chain(args().iter().cloned())
}

/// The command line, quoted for a shell.
pub(crate) fn shell_line() -> String {
    line().map(|word| quoted(&word.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

/// A word, quoted for a shell if needed.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=,+@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// A command that starts this program again; the caller adds arguments.
pub(crate) fn again() -> std::io::Result<Command> {
    match &given().starter[..] {
        [] => Ok(Command::new(std::env::current_exe()?)),
        [program, first @ ..] => {
            let mut command = Command::new(program);
            command.args(first);
            Ok(command)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_with_a_pattern_are_those_of_files() {
        let told = |args: &[&str]| -> Vec<OsString> { masks_of_files(args.iter().map(OsString::from).collect()) };
        assert_eq!(told(&["x", "--masks", "m/{stem}.png"]), ["x", "--mask-files", "m/{stem}.png"]);
        assert_eq!(told(&["x", "--masks=m/{stem}.png"]), ["x", "--mask-files=m/{stem}.png"]);
        assert_eq!(told(&["run", "--masks", "coco"]), ["run", "--masks", "coco"]);
    }

    #[test]
    fn a_shell_reads_words_as_they_were() {
        assert_eq!(quoted("--step-time=5ms"), "--step-time=5ms");
        assert_eq!(quoted("s3://bucket/a-b_c.tar"), "s3://bucket/a-b_c.tar");
        assert_eq!(quoted("train-{000..146}.tar"), "'train-{000..146}.tar'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("a b;$c~*"), "'a b;$c~*'");
    }
}
