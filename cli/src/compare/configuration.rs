//! The configurations: from words as typed to the arguments of `infeed run`.

use std::{ffi::OsString, path::Path};

use clap::error::ErrorKind;

use crate::{
    args::{Cli, Command, CompareArgs, WatchedArgs},
    child::{ENDS, FOR_A_WHILE},
    failure::Failure,
    invocation,
    typed::{Options, Typed, parse},
};

/// Options of `infeed run` that write files, show progress or continue from a state. They are useless in one run of
/// many, and several runs would write the same file.
const REFUSED: [&str; 9] =
    ["json", "html", "state", "resume", "live", "metrics", "metrics-linger", "log-every", "quiet"];

/// What ends a run of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    /// All samples of its epochs: the same in each round.
    Whole,
    /// A number of batches. Runs may differ in how much they read ahead.
    Batches,
    /// Time.
    Time,
}

/// One of the compared configurations.
#[derive(Clone, Debug)]
pub(crate) struct Configuration {
    pub name: String,
    /// As typed.
    pub given: String,
    /// Arguments of `infeed run`, including the shared ones.
    pub arguments: Vec<String>,
    pub ends: Ends,
}

impl Configuration {
    /// The name as it stands in a sentence.
    pub(crate) fn quoted(&self) -> String {
        invocation::quoted(&self.name)
    }
}

/// All configurations. `None`: their options include `--help`, and the help of `infeed run` was printed.
pub(crate) fn all(args: &CompareArgs) -> Result<Option<Vec<Configuration>>, Failure> {
    let CompareArgs { configurations, names, shared, .. } = args;
    if names.len() > configurations.len() {
        let (names, all) = (names.len(), configurations.len());
        return Err(Failure::Usage(format!("{names} times --name for {all} configurations: omit the last ones")));
    }
    let mut all: Vec<Configuration> = Vec::with_capacity(configurations.len());
    for (at, given) in configurations.iter().enumerate() {
        let given = as_typed(given);
        let name = match names.get(at) {
            Some(name) => name,
            None if given.trim().is_empty() => "as given",
            None => given,
        };
        let mut name = name.to_owned();
        // A user may compare a configuration with itself, to see the spread without a difference.
        if all.iter().any(|other| other.name == name) {
            name = format!("{name} ({})", at + 1);
        }
        let refuse = |what: String| Failure::Usage(format!("{}: {what}", invocation::quoted(&name)));
        let arguments = with_shared(words(given).map_err(refuse)?, shared);
        let Some((arguments, ends)) = checked(arguments).map_err(refuse)? else { return Ok(None) };
        all.push(Configuration { name, given: given.to_owned(), arguments, ends });
    }
    Ok(Some(all))
}

/// Removes the space that `typed::with_quoted` put in front of an option.
fn as_typed(given: &str) -> &str {
    given.strip_prefix(' ').filter(|rest| rest.starts_with('-')).unwrap_or(given)
}

/// A configuration's own arguments of `infeed run`.
fn words(given: &str) -> Result<Vec<String>, String> {
    let one = !given.is_empty() && !given.starts_with('-') && !given.contains(char::is_whitespace);
    if one || Path::new(given).exists() {
        let toml = Path::new(given).extension().is_some_and(|extension| extension == "toml");
        return Ok(if toml { vec!["--config".into(), given.into()] } else { vec![given.into()] });
    }
    shlex::split(given).ok_or_else(|| "a quote in it is not closed".into())
}

/// Adds the shared arguments. If both set the same option, the configuration's own value counts.
fn with_shared(own: Vec<String>, shared: &[String]) -> Vec<String> {
    let options = Options::of("run");
    let typed = |words: &[String]| options.typed(words.iter().map(OsString::from));
    let said: Vec<Option<String>> = typed(&own).into_iter().map(|typed| typed.name).collect();
    let keeps = |Typed { name, words }: &Typed| match name {
        Some(name) => options.repeats(name) || !said.contains(&Some(name.clone())),
        // A word without a name is the dataset, unless it starts with `-`: `--help`, or an unknown option.
        None => !said.contains(&None) || words.iter().any(|word| word.to_string_lossy().starts_with('-')),
    };
    let kept = typed(shared).into_iter().filter(keeps).flat_map(|typed| typed.words);
    // All words came from strings, so this loses nothing.
    let kept = kept.map(|word| word.to_string_lossy().into_owned());
    own.into_iter().chain(kept).collect()
}

/// Checks that `infeed run` accepts the arguments, and finds what ends the run. `None`: they contain `--help`.
fn checked(mut arguments: Vec<String>) -> Result<Option<(Vec<String>, Ends)>, String> {
    let names: Vec<String> = Options::of("run")
        .typed(arguments.iter().map(OsString::from))
        .into_iter()
        .filter_map(|typed| typed.name)
        .collect();
    if let Some(name) = names.iter().find(|name| REFUSED.contains(&name.as_str())) {
        return Err(format!("--{name} is not for a run that is one of many: omit it"));
    }
    if !names.iter().any(|name| ENDS.contains(&name.as_str())) {
        arguments.extend(FOR_A_WHILE.map(String::from));
    }
    let line: Vec<OsString> =
        ["run"].into_iter().map(OsString::from).chain(arguments.iter().map(OsString::from)).collect();
    match parse("infeed".into(), &line) {
        Ok(Cli { command: Some(Command::Run(run)), .. }) => {
            let WatchedArgs { run, .. } = *run;
            let ends = match (run.max_time, run.max_batches) {
                (Some(_), _) => Ends::Time,
                (None, Some(_)) => Ends::Batches,
                (None, None) => Ends::Whole,
            };
            Ok(Some((arguments, ends)))
        }
        Ok(_) => Err("these are not arguments of infeed run".into()),
        Err(error) if error.exit_code() == 0 => {
            // A closed pipe while help is printed is not a failure.
            let _ = error.print();
            Ok(None)
        }
        Err(error) if error.kind() == ErrorKind::MissingRequiredArgument && error.to_string().contains("<URL>") => {
            Err("it names no dataset: add one to it, or one for all after --".into())
        }
        Err(error) => Err(words_of(&error.to_string())),
    }
}

/// Clap's error without the usage of `infeed run`.
fn words_of(error: &str) -> String {
    let error = error.strip_prefix("error: ").unwrap_or(error);
    let end = ["\n\nUsage:", "\n\nFor more information"].iter().filter_map(|end| error.find(end)).min();
    error[..end.unwrap_or(error.len())].trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &[&str]) -> CompareArgs {
        let words: Vec<OsString> = ["compare"].iter().chain(line).map(OsString::from).collect();
        match parse("infeed".into(), &words).map(|cli| cli.command) {
            Ok(Some(Command::Compare(args))) => *args,
            other => panic!("{line:?}: {other:?}"),
        }
    }

    fn read(line: &[&str]) -> Vec<Configuration> {
        all(&args(line)).unwrap_or_else(|failure| panic!("{line:?}: {failure:?}")).unwrap()
    }

    fn refused(line: &[&str]) -> String {
        match all(&args(line)) {
            Err(Failure::Usage(words)) => words,
            other => panic!("{line:?}: {other:?}"),
        }
    }

    #[test]
    fn files_datasets_and_lines_of_options_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let spaced = folder.path().join("my -b 3 photos");
        std::fs::create_dir(&spaced).unwrap();
        let spaced = spaced.to_str().unwrap();
        for (given, want) in [
            ("fast.toml", &["--config", "fast.toml"][..]),
            ("/data/train", &["/data/train"]),
            ("s3://bucket/x", &["s3://bucket/x"]),
            (r"C:\data\it's", &[r"C:\data\it's"]),
            (spaced, &[spaced]),
            ("-w2", &["-w2"]),
            ("--jpeg-exact", &["--jpeg-exact"]),
            ("-b 64 '/my data' -w 2", &["-b", "64", "/my data", "-w", "2"]),
            ("/data -t 'center_crop:8;normalize'", &["/data", "-t", "center_crop:8;normalize"]),
            ("", &[]),
            ("  ", &[]),
        ] {
            assert_eq!(words(given).unwrap(), want, "{given}");
        }
        assert!(words("-t 'none").is_err());
    }

    #[test]
    fn what_all_share_is_added_and_a_configurations_own_counts() {
        let line = ["-w 2 --filter label=1", "/other", "--rounds", "3", "--"];
        let shared = ["/data", "-w", "1", "--filter", "label=2", "--jpeg-exact", "-e2"];
        let all = read(&[&line[..], &shared].concat());
        let own = ["-w", "2", "--filter", "label=1", "/data", "--filter", "label=2", "--jpeg-exact", "-e2"];
        assert_eq!(all[0].arguments, own);
        assert_eq!(all[1].arguments, ["/other", "-w", "1", "--filter", "label=2", "--jpeg-exact", "-e2"]);
        assert_eq!((all[0].name.as_str(), all[1].name.as_str()), ("-w 2 --filter label=1", "/other"));
    }

    #[test]
    fn a_run_lasts_a_while_unless_something_ends_it() {
        let ends = |shared: &[&str]| read(&[&["", "--jpeg-exact", "--", "/data"], shared].concat()).swap_remove(0);
        let of = ends(&[]);
        assert_eq!((of.name.as_str(), of.ends), ("as given", Ends::Time));
        assert_eq!(of.arguments, [&["/data"][..], &FOR_A_WHILE].concat());
        let of = ends(&["--max-batches", "7"]);
        assert_eq!((of.ends, of.arguments.len()), (Ends::Batches, 3));
        assert_eq!(ends(&["-e", "2"]).ends, Ends::Whole);
        assert_eq!(ends(&["-e", "2", "--max-time=1s"]).ends, Ends::Time);
    }

    #[test]
    fn names_are_as_given_and_each_another() {
        let all = read(&["/a", "/a", "--name", "old", "--", "-w", "1"]);
        assert_eq!(all.iter().map(|of| of.name.as_str()).collect::<Vec<_>>(), ["old", "/a"]);
        let all = read(&["/a", "/a", "--name=-w 2", "--name", "-w 2"]);
        assert_eq!(all.iter().map(Configuration::quoted).collect::<Vec<_>>(), ["'-w 2'", "'-w 2 (2)'"]);
        assert!(refused(&["/a", "/b", "--name", "1", "--name", "2", "--name", "3"]).contains("3 times --name for 2"));
    }

    #[test]
    fn what_run_refuses_is_told_of_the_configuration() {
        for (line, words) in [
            (&["/a", "/b -w many"][..], "'/b -w many': invalid value 'many' for '--workers"),
            (&["/a", "-w 2"], "'-w 2': it names no dataset: add one to it, or one for all after --"),
            (&["/a", "/b --batchsize 3"], "'/b --batchsize 3': unexpected argument '--batchsize' found"),
            (&["/a", "/b --json x"], "'/b --json x': --json is not for a run that is one of many"),
            (&["/a", "/b", "--", "-q"], "/a: --quiet is not for"),
            (&["/a", "/b '"], "a quote in it is not closed"),
            (&["/a", "/b /c"], "'/b /c': unexpected argument '/c' found"),
        ] {
            let said = refused(line);
            assert!(said.contains(words) && !said.contains("Usage:"), "{line:?}: no {words:?} in {said}");
        }
        assert!(refused(&["/a", "/b --batchsize 3"]).contains("--batch-size"), "what was meant is told");
    }
}
