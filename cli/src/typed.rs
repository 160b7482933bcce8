//! Splits the arguments of a command into options with their values, and other words.

use std::ffi::OsString;

use clap::{Arg, ArgAction, CommandFactory, Parser};

use crate::args::Cli;

/// An option with its value, or another word.
#[derive(Debug, PartialEq)]
pub(crate) struct Typed {
    /// The option's long name; `None` if it is not an option.
    pub(crate) name: Option<String>,
    /// As typed: `--epochs 3`, `--epochs=3`, `-e 3`, `-e3`.
    pub(crate) words: Vec<OsString>,
}

/// The options of a command, including those of all commands.
#[derive(Debug)]
pub(crate) struct Options(Vec<Arg>);

impl Options {
    pub(crate) fn of(command: &str) -> Self {
        let cli = Cli::command();
        let own = cli.find_subcommand(command).into_iter().chain([&cli]);
        Self(own.flat_map(|command| command.get_arguments()).filter(|arg| !arg.is_positional()).cloned().collect())
    }

    /// Whether an option may be repeated.
    pub(crate) fn repeats(&self, name: &str) -> bool {
        let option = self.0.iter().find(|option| option.get_long() == Some(name));
        option.is_some_and(|option| matches!(option.get_action(), ArgAction::Append))
    }

    /// Splits words. Assumes that each option that takes a value has one.
    pub(crate) fn typed(&self, given: impl IntoIterator<Item = OsString>) -> Vec<Typed> {
        let mut given = given.into_iter();
        let mut all = Vec::new();
        while let Some(word) = given.next() {
            let named = self.named(&word.to_string_lossy());
            // The value may look like an option, or like the url.
            let value = named.filter(|(option, with)| takes_value(option) && !with).and_then(|_| given.next());
            let name = named.and_then(|(option, _)| option.get_long()).map(str::to_owned);
            all.push(Typed { name, words: [word].into_iter().chain(value).collect() });
        }
        all
    }

    /// The option that a word names, and whether the word also holds a value. For `-qe3`, it is the last option.
    fn named(&self, word: &str) -> Option<(&Arg, bool)> {
        if let Some(long) = word.strip_prefix("--") {
            let (name, with) = long.split_once('=').map_or((long, false), |(name, _)| (name, true));
            return self.0.iter().find(|option| option.get_long() == Some(name)).map(|option| (option, with));
        }
        let mut letters = word.strip_prefix('-')?.chars();
        let mut found = None;
        while let Some(letter) = letters.next() {
            let option = self.0.iter().find(|option| option.get_short() == Some(letter))?;
            found = Some((option, !letters.as_str().is_empty()));
            // An option that takes a value is followed by it, a switch by the next option.
            if takes_value(option) {
                break;
            }
        }
        found
    }
}

fn takes_value(option: &Arg) -> bool {
    option.get_action().takes_values()
}

/// Splits the arguments of `command`. Clap accepted them, so each option that takes a value has one.
pub(crate) fn typed(command: &str, given: impl IntoIterator<Item = OsString>) -> Vec<Typed> {
    Options::of(command).typed(given)
}

/// Parses all arguments after the program's name.
pub(crate) fn parse(name: OsString, args: &[OsString]) -> Result<Cli, clap::Error> {
    Cli::try_parse_from([name].into_iter().chain(with_quoted(args)))
}

/// A configuration of `infeed compare` may be options of `infeed run` in quotes: `'-b 64 -w 2'`. Clap rejects words
/// that begin like options but are not options of the command. With a space in front, which has no effect in such a
/// line, clap takes them as words.
fn with_quoted(args: &[OsString]) -> Vec<OsString> {
    let mut all = args.to_vec();
    let command = args.iter().position(|arg| !arg.to_string_lossy().starts_with('-'));
    let Some(at) = command.filter(|at| args[*at] == "compare") else { return all };
    let (own, run) = (Options::of("compare"), Options::of("run"));
    let mut at = at + 1;
    while let Some(word) = all.get(at).map(|word| word.to_string_lossy().into_owned()) {
        match own.named(&word) {
            // Arguments after `--` go to the runs unchanged.
            _ if word == "--" => break,
            Some((option, with)) => at += usize::from(takes_value(option) && !with),
            None if !word.starts_with('-') => {}
            None => {
                // An option without its value has lost its quotes. Clap reports this.
                let whole = run.named(&word).is_some_and(|(option, with)| with || !takes_value(option));
                if whole || word.contains(char::is_whitespace) {
                    all[at] = format!(" {word}").into();
                }
            }
        }
        at += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_their_values_and_switches_none() {
        let given =
            ["-w", "1,2", "--masks", "-b64", "-qe3", "--out", "--masks", "/data", "--epochs=4", "-q", "-t=none", "-x"];
        let told = typed("sweep", given.map(OsString::from));
        let told: Vec<(Option<&str>, Vec<&str>)> = told
            .iter()
            .map(|typed| (typed.name.as_deref(), typed.words.iter().filter_map(|word| word.to_str()).collect()))
            .collect();
        let want = [
            (Some("workers"), vec!["-w", "1,2"]),
            (Some("masks"), vec!["--masks"]),
            (Some("batch-size"), vec!["-b64"]),
            (Some("epochs"), vec!["-qe3"]),
            (Some("out"), vec!["--out", "--masks"]),
            (None, vec!["/data"]),
            (Some("epochs"), vec!["--epochs=4"]),
            (Some("quiet"), vec!["-q"]),
            (Some("transform"), vec!["-t=none"]),
            (None, vec!["-x"]),
        ];
        assert_eq!(told, want);
    }

    #[test]
    fn some_options_may_stand_several_times() {
        let options = Options::of("run");
        assert!(options.repeats("filter") && options.repeats("view"));
        assert!(!options.repeats("workers") && !options.repeats("jpeg-exact") && !options.repeats("no-such"));
    }

    #[test]
    fn a_quoted_configuration_may_begin_with_an_option() {
        let read = |args: &[&str]| -> Vec<String> {
            let args: Vec<OsString> = args.iter().map(OsString::from).collect();
            with_quoted(&args).into_iter().map(|word| word.into_string().unwrap()).collect()
        };
        let given = ["-q", "compare", "-w 2", "--rounds", "3", "--jpeg-exact", "-w4", "--", "/data", "--cache", "-x y"];
        let want =
            ["-q", "compare", " -w 2", "--rounds", "3", " --jpeg-exact", " -w4", "--", "/data", "--cache", "-x y"];
        assert_eq!(read(&given), want);
        // Values of its own options stay, as do options that nobody has and those that lost their quotes.
        let given = ["compare", "--name", "-w 2", "--export-markdown=a b.md", "--round", "-h", "--workers", "2", "-q"];
        assert_eq!(read(&given), given);
        let other = ["run", "/data", "-w 2", "--jpeg-exact"];
        assert_eq!(read(&other), other);
    }
}
