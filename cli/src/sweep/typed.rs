//! What was typed behind `infeed sweep`, told apart: options with their values, and other words.

use std::ffi::OsString;

use clap::{Arg, CommandFactory};

use crate::args::Cli;

/// An option with its value, or another word.
#[derive(Debug, PartialEq)]
pub(super) struct Typed {
    /// The option's long name; `None`: no option.
    pub(super) name: Option<String>,
    /// As typed: `--epochs 3`, `--epochs=3`, `-e 3`, `-e3`.
    pub(super) words: Vec<OsString>,
}

/// Clap has taken all of it, so each option that takes a value has one.
pub(super) fn typed(given: impl IntoIterator<Item = OsString>) -> Vec<Typed> {
    let cli = Cli::command();
    let options: Vec<&Arg> =
        cli.find_subcommand("sweep").into_iter().chain([&cli]).flat_map(|command| command.get_arguments()).collect();
    let mut given = given.into_iter();
    let mut all = Vec::new();
    while let Some(word) = given.next() {
        let named = named(&word.to_string_lossy(), &options);
        // The value may look like an option, or like the url.
        let value =
            named.filter(|(option, with)| option.get_action().takes_values() && !with).and_then(|_| given.next());
        let name = named.and_then(|(option, _)| option.get_long()).map(str::to_owned);
        all.push(Typed { name, words: [word].into_iter().chain(value).collect() });
    }
    all
}

/// The option that a word names, and whether the word holds a value, too. Of `-qe3` it is the last one.
fn named<'a>(word: &str, options: &[&'a Arg]) -> Option<(&'a Arg, bool)> {
    if let Some(long) = word.strip_prefix("--") {
        let (name, with) = long.split_once('=').map_or((long, false), |(name, _)| (name, true));
        return options.iter().find(|option| option.get_long() == Some(name)).map(|option| (*option, with));
    }
    let mut letters = word.strip_prefix('-')?.chars();
    let mut found = None;
    while let Some(letter) = letters.next() {
        let option = options.iter().find(|option| option.get_short() == Some(letter))?;
        found = Some((*option, !letters.as_str().is_empty()));
        // Behind one that takes a value stands the value, behind a switch the next one.
        if option.get_action().takes_values() {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_their_values_and_switches_none() {
        let given =
            ["-w", "1,2", "--masks", "-b64", "-qe3", "--out", "--masks", "/data", "--epochs=4", "-q", "-t=none", "-x"];
        let told = typed(given.map(OsString::from));
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
}
