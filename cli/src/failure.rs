//! How a command ends when it fails or is stopped.

use std::{fmt::Display, io, path::Path};

use infeed::{Error, ErrorKind};

use crate::{
    console::{Label, labelled, to_stderr},
    signals::Signal,
};

/// Why a command stopped, which decides the exit code.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Wrong options: exit 2.
    Usage(String),
    /// An error of the data or the machine: exit 1.
    Failed(String),
    /// The reader of stdout closed the pipe: exit 0.
    Pipe,
    /// A signal ended the run, and all requested files were written: exit 130 or 143.
    Stopped {
        signal: Signal,
        /// Such as `after 3 of 8 runs`; `None` if the command prints this itself.
        after: Option<String>,
        /// How to continue, or what is lost.
        hint: &'static str,
    },
}

impl Failure {
    /// An error of one of the user's files; `what` is a verb phrase such as `cannot read`.
    pub(crate) fn file(what: &str, path: &Path, error: impl Display) -> Self {
        Self::Failed(format!("{what} {}: {error}", path.display()))
    }

    /// Prints the error to stderr and returns the exit code.
    pub(crate) fn report(&self) -> u8 {
        match self {
            Self::Usage(message) => {
                labelled(Label::Error, &format_args!("{message}\n\nFor more information, try '--help'."));
                2
            }
            Self::Failed(message) => {
                labelled(Label::Error, message);
                1
            }
            Self::Pipe => 0,
            Self::Stopped { signal, after, hint } => {
                let after = after.as_ref().map_or(String::new(), |after| format!(" {after}"));
                to_stderr(format_args!("stopped by {}{after}; {hint}", signal.words()));
                signal.exit_code()
            }
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::Config => Self::Usage(format!("{error:#}")),
            _ => Self::Failed(format!("{error:#}")),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Pipe,
            _ => Self::Failed(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use clap::{CommandFactory as _, Parser as _};
    use infeed::internal::{Front, SETTINGS};

    use crate::args::Cli;

    #[test]
    fn every_option_that_an_error_names_exists() {
        let cli = Cli::command();
        let longs = cli.get_subcommands().flat_map(|command| command.get_arguments().filter_map(|arg| arg.get_long()));
        let all: HashSet<String> = longs.map(|long| format!("--{long}")).collect();
        assert!(all.len() > 50);
        for setting in SETTINGS {
            let name = setting.name(Front::Command);
            assert!(name.is_empty() || all.contains(name.split(' ').next().unwrap_or_default()), "{name}");
        }
    }

    #[test]
    fn options_that_are_named_with_a_value_can_be_typed_so() {
        let mut typed = 0;
        for setting in SETTINGS {
            let name = setting.name(Front::Command).replace(" N", " 1");
            if name.contains(' ') && !name.contains('…') && !name.contains(" or ") {
                let args = ["infeed", "run", "x"].into_iter().chain(name.split(' '));
                Cli::try_parse_from(args).unwrap_or_else(|error| panic!("{name}: {error}"));
                typed += 1;
            }
        }
        assert!(typed >= 3, "{typed}");
        Cli::try_parse_from(["infeed", "prepare", "x", "y", "--on-bad-sample", "skip"]).unwrap();
    }
}
