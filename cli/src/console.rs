//! Lines for stdout and stderr. While a live view has the terminal they wait: some of them are shown in it, warnings are
//! printed when it is gone.

use std::{
    collections::VecDeque,
    env, fmt,
    io::{self, IsTerminal, Write},
    sync::{
        LazyLock, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use infeed::internal::printable;
use tracing_subscriber::fmt::MakeWriter;

use crate::width;

/// Whether a view has the terminal.
static VIEW: AtomicBool = AtomicBool::new(false);
/// Whether `--quiet` was said.
static QUIET: AtomicBool = AtomicBool::new(false);
/// What was to be written meanwhile.
static HELD: Mutex<HeldLines> = Mutex::new(HeldLines { lines: VecDeque::new(), warnings: Vec::new(), more: 0 });

/// Lines that wait.
#[derive(Debug)]
struct HeldLines {
    /// The last ones, to be shown.
    lines: VecDeque<String>,
    /// The first ones of stderr, to be printed afterwards.
    warnings: Vec<String>,
    /// Further ones.
    more: u64,
}

impl HeldLines {
    /// Lines that are shown, and warnings that are printed later, at most.
    const MOST_SHOWN: usize = 100;
    const MOST_WARNINGS: usize = 1000;

    fn show(&mut self, text: &str) {
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            if self.lines.len() == Self::MOST_SHOWN {
                self.lines.pop_front();
            }
            self.lines.push_back(plain(line));
        }
    }

    fn warn(&mut self, text: &str) {
        self.show(text);
        for line in text.lines() {
            match self.warnings.len() < Self::MOST_WARNINGS {
                true => self.warnings.push(line.to_owned()),
                false => self.more += 1,
            }
        }
    }
}

fn held() -> MutexGuard<'static, HeldLines> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Text without colours and other orders to a terminal; names in it were escaped before.
fn plain(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            // ESC [ … letter
            '\u{1b}' => drop(chars.by_ref().find(char::is_ascii_alphabetic)),
            '\t' => out.push(' '),
            c if printable::is_order(c) => {}
            c => out.push(c),
        }
    }
    out
}

/// Writes one line to stderr, view or not, names in it escaped. Nobody may be listening there, which is no reason to stop.
pub(crate) fn to_stderr(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{}", printable::lines(&line.to_string()));
}

/// What a line for people begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Label {
    /// The run ends, or something is wrong with its data.
    Error,
    /// The run goes on.
    Warning,
}

impl Label {
    const fn word(self) -> &'static str {
        match self {
            Self::Error => "error:",
            Self::Warning => "warning:",
        }
    }

    /// `label: words`, names in it escaped, the label in its colour or without; on a terminal broken between words.
    fn line(self, words: &str, colours: bool) -> String {
        let label = self.word();
        let words = width::wrap(&format!("{label} {}", printable::lines(words)), width::stderr_columns(), 0);
        let words = &words[label.len() + 1..];
        match (self, colours) {
            // As clap has them.
            (Self::Error, true) => format!("\u{1b}[1;31merror:\u{1b}[0m {words}"),
            (Self::Warning, true) => format!("\u{1b}[1;33mwarning:\u{1b}[0m {words}"),
            (_, false) => format!("{} {words}", self.word()),
        }
    }
}

/// Whether stderr takes colours: `NO_COLOR`, `CLICOLOR_FORCE` and `CLICOLOR` decide as they do for clap's messages, else
/// whether it is a terminal that knows them.
pub(crate) fn colours() -> bool {
    static COLOURS: LazyLock<bool> =
        LazyLock::new(|| wants_colours(|name| env::var_os(name)?.into_string().ok(), io::stderr().is_terminal()));
    *COLOURS
}

fn wants_colours(var: impl Fn(&str) -> Option<String>, terminal: bool) -> bool {
    let set = |name| var(name).is_some_and(|value| !value.is_empty());
    let not_zero = |name| var(name).map(|value| value != "0");
    if set("NO_COLOR") {
        return false;
    }
    let knows = || var("TERM").is_some_and(|term| term != "dumb") || not_zero("CLICOLOR") == Some(true);
    not_zero("CLICOLOR_FORCE") == Some(true) || (not_zero("CLICOLOR") != Some(false) && terminal && knows())
}

/// Writes an error or a warning to stderr, view or not.
pub(crate) fn labelled(label: Label, words: &dyn fmt::Display) {
    let _ = writeln!(io::stderr(), "{}", label.line(&words.to_string(), colours()));
}

/// The same for what is told while it runs: it waits while there is a view.
pub(crate) fn labelled_line(label: Label, words: &str) {
    let _ = LogLines.write_all(format!("{}\n", label.line(words, colours())).as_bytes());
}

/// Writes one line to stdout, names in it escaped.
pub(crate) fn to_stdout(line: &dyn fmt::Display) -> io::Result<()> {
    writeln!(io::stdout(), "{}", printable::lines(&line.to_string()))
}

/// `--quiet`, for good.
pub(crate) fn be_quiet() {
    QUIET.store(true, Ordering::Release);
}

/// Whether stderr is for warnings and errors alone.
pub(crate) fn is_quiet() -> bool {
    QUIET.load(Ordering::Acquire)
}

/// Whether a view has the terminal.
pub(crate) fn has_view() -> bool {
    VIEW.load(Ordering::Acquire)
}

/// From here on lines wait.
pub(crate) fn begin_view() {
    VIEW.store(true, Ordering::Release);
}

/// From here on lines go where they always went; `false`: they did already.
pub(crate) fn end_view() -> bool {
    VIEW.swap(false, Ordering::AcqRel)
}

/// The last lines that wait.
pub(crate) fn held_lines() -> Vec<String> {
    held().lines.iter().cloned().collect()
}

/// Prints the warnings that waited, and forgets the other lines.
pub(crate) fn print_held() {
    let (warnings, more) = {
        let mut held = held();
        held.lines.clear();
        (std::mem::take(&mut held.warnings), std::mem::take(&mut held.more))
    };
    // As they came: with the colours of the log.
    warnings.iter().for_each(|line| drop(writeln!(io::stderr(), "{line}")));
    if more > 0 {
        to_stderr(format_args!("… and {more} more such lines"));
    }
}

/// Takes a line for stdout, if there is a view.
pub(crate) fn hold_line(line: &dyn fmt::Display) -> bool {
    let view = has_view();
    if view {
        held().show(&printable::lines(&line.to_string()));
    }
    view
}

/// Takes a warning for stderr, if there is a view.
pub(crate) fn hold_warning(words: &dyn fmt::Display) -> bool {
    let view = has_view();
    if view {
        held().warn(&Label::Warning.line(&words.to_string(), colours()));
    }
    view
}

/// stderr for log lines; while there is a view they wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogLines;

impl Write for LogLines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // One call for each event: tracing_subscriber formats it into a buffer first.
        let text = String::from_utf8_lossy(bytes);
        let text = printable::coloured(&text);
        match has_view() {
            true => held().warn(&text),
            false => io::stderr().write_all(text.as_bytes())?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

impl<'a> MakeWriter<'a> for LogLines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        *self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_to_a_terminal_are_left_out() {
        assert_eq!(plain("\u{1b}[33m WARN\u{1b}[0m a\tb\r\u{7}"), " WARN a b");
        assert_eq!(plain("\u{1b}["), "");
    }

    #[test]
    fn colours_are_for_terminals_and_for_who_asks() {
        for (variables, terminal, want) in [
            (&[("TERM", "xterm")][..], true, true),
            (&[("TERM", "xterm")], false, false),
            (&[("TERM", "dumb")], true, false),
            (&[], true, false),
            (&[("TERM", "xterm"), ("NO_COLOR", "1")], true, false),
            (&[("TERM", "xterm"), ("NO_COLOR", "")], true, true),
            (&[("TERM", "xterm"), ("CLICOLOR", "0")], true, false),
            (&[("CLICOLOR_FORCE", "1")], false, true),
            (&[("CLICOLOR_FORCE", "0")], false, false),
            (&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], true, false),
        ] {
            let var =
                |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
            assert_eq!(wants_colours(var, terminal), want, "{variables:?} {terminal}");
        }
    }

    #[test]
    fn a_label_has_the_colour_and_names_have_none() {
        let name = "a\u{1b}[31mb";
        assert_eq!(Label::Warning.line(name, false), r"warning: a\u{1b}[31mb");
        assert_eq!(Label::Warning.line(name, true), "\u{1b}[1;33mwarning:\u{1b}[0m a\\u{1b}[31mb");
        assert_eq!(plain(&Label::Error.line("x", true)), "error: x");
    }

    #[test]
    fn what_is_held_is_bounded() {
        let mut held = HeldLines { lines: VecDeque::new(), warnings: Vec::new(), more: 0 };
        (0..5000).for_each(|n| held.warn(&format!("line {n}\n")));
        let most = (HeldLines::MOST_SHOWN, HeldLines::MOST_WARNINGS, 4000);
        assert_eq!((held.lines.len(), held.warnings.len(), held.more), most);
        assert_eq!((held.lines[99].as_str(), held.warnings[0].as_str()), ("line 4999", "line 0"));
        held.show("a\n\nb\n");
        assert_eq!((held.lines[98].as_str(), held.lines[99].as_str()), ("a", "b"));
    }
}
