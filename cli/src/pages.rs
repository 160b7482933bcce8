//! `infeed completions` and `infeed man`: the definition of the arguments, for shells and for `man`.

use std::{
    fs,
    io::{self, Write},
    path::Path,
};

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::{args::Cli, failure::Failure};

/// `infeed completions`.
pub(crate) fn completions(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "infeed", &mut script);
    Ok(io::stdout().write_all(&script)?)
}

/// `infeed man`.
pub(crate) fn manual(dir: Option<&Path>) -> Result<(), Failure> {
    let mut main = command().disable_help_subcommand(true);
    // Building names the pages of commands with both names, such as infeed-run.
    main.build();
    let Some(dir) = dir else { return Ok(io::stdout().write_all(page(&Man::new(main))?.as_bytes())?) };
    fs::create_dir_all(dir).map_err(|error| Failure::file("cannot make folder", dir, error))?;
    let commands: Vec<Command> = main.get_subcommands().cloned().collect();
    for man in std::iter::once(main).chain(commands).map(Man::new) {
        let path = dir.join(man.get_filename());
        fs::write(&path, page(&man)?).map_err(|error| Failure::file("cannot write", &path, error))?;
    }
    Ok(())
}

/// A page, with each example on its own line.
fn page(man: &Man) -> Result<String, Failure> {
    let mut page = Vec::new();
    man.render(&mut page)?;
    let page = String::from_utf8_lossy(&page);
    let Some((before, examples)) = page.split_once(".SH EXTRA\nExamples:\n") else { return Ok(page.into_owned()) };
    let (examples, after) = examples
        .split_once(".SH ")
        .map_or((examples, String::new()), |(examples, after)| (examples, format!(".SH {after}")));
    Ok(format!("{before}.SH EXAMPLES\n.nf\n{examples}.fi\n{after}"))
}

/// The program without hidden commands, which shells would offer otherwise.
fn command() -> Command {
    let all = Cli::command();
    let shown: Vec<Command> = all.get_subcommands().filter(|command| !command.is_hide_set()).cloned().collect();
    let command = Command::new("infeed").args(all.get_arguments().cloned()).subcommands(shown);
    let texts =
        [all.get_about(), all.get_long_about(), all.get_after_help()].map(|text| text.cloned().unwrap_or_default());
    let [about, long_about, after_help] = texts;
    let command = command.about(about).long_about(long_about).after_help(after_help);
    command.version(env!("CARGO_PKG_VERSION"))
}
