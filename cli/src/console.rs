//! Lines for stdout and stderr. While a live view uses the terminal, lines are held: the view shows some of them, and
//! warnings are printed after it.

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

/// Whether a view uses the terminal.
static VIEW: AtomicBool = AtomicBool::new(false);
/// Whether `--quiet` is set.
static QUIET: AtomicBool = AtomicBool::new(false);
/// Lines held during a view.
static HELD: Mutex<HeldLines> = Mutex::new(HeldLines { lines: VecDeque::new(), warnings: Vec::new(), more: 0 });

/// Held lines.
#[derive(Debug)]
struct HeldLines {
    /// The last lines, which the view shows.
    lines: VecDeque<String>,
    /// The first lines for stderr, which are printed after the view.
    warnings: Vec<String>,
    /// The number of further lines for stderr.
    more: u64,
}

impl HeldLines {
    /// Limits of held lines and warnings.
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

/// Removes colours and other control sequences. Names in the text were escaped before.
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

/// Writes one line to stderr, even during a view, with control characters in names escaped. Errors of writing are
/// ignored.
pub(crate) fn to_stderr(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{}", printable::lines(&line.to_string()));
}

/// The label at the beginning of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Label {
    /// The run ends, or something is wrong with its data.
    Error,
    /// The run continues.
    Warning,
}

impl Label {
    const fn word(self) -> &'static str {
        match self {
            Self::Error => "error:",
            Self::Warning => "warning:",
        }
    }

    /// `label: words`, with names escaped, with or without colours, wrapped on a terminal.
    fn line(self, words: &str, colours: bool) -> String {
        let label = self.word();
        let words = width::wrap(&format!("{label} {}", printable::lines(words)), width::stderr_columns(), 0);
        let words = &words[label.len() + 1..];
        match (self, colours) {
            // The colours of clap's messages.
            (Self::Error, true) => format!("\u{1b}[1;31merror:\u{1b}[0m {words}"),
            (Self::Warning, true) => format!("\u{1b}[1;33mwarning:\u{1b}[0m {words}"),
            (_, false) => format!("{} {words}", self.word()),
        }
    }
}

/// Whether to use colours on stderr. `NO_COLOR`, `CLICOLOR_FORCE` and `CLICOLOR` decide, as for clap's messages;
/// otherwise whether it is a terminal with colours.
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

/// Writes an error or a warning to stderr, even during a view.
pub(crate) fn labelled(label: Label, words: &dyn fmt::Display) {
    let _ = writeln!(io::stderr(), "{}", label.line(&words.to_string(), colours()));
}

/// The same for lines during a run. They are held during a view.
pub(crate) fn labelled_line(label: Label, words: &str) {
    let _ = LogLines.write_all(format!("{}\n", label.line(words, colours())).as_bytes());
}

/// Writes one line to stdout, with control characters in names escaped.
pub(crate) fn to_stdout(line: &dyn fmt::Display) -> io::Result<()> {
    writeln!(io::stdout(), "{}", printable::lines(&line.to_string()))
}

/// Sets `--quiet` for the rest of the process.
pub(crate) fn be_quiet() {
    QUIET.store(true, Ordering::Release);
}

/// Whether `--quiet` is set.
pub(crate) fn is_quiet() -> bool {
    QUIET.load(Ordering::Acquire)
}

/// Whether a view uses the terminal.
pub(crate) fn has_view() -> bool {
    VIEW.load(Ordering::Acquire)
}

/// From here on, lines are held.
pub(crate) fn begin_view() {
    VIEW.store(true, Ordering::Release);
}

/// From here on, lines are written again. `false` if there was no view.
pub(crate) fn end_view() -> bool {
    VIEW.swap(false, Ordering::AcqRel)
}

/// The last held lines.
pub(crate) fn held_lines() -> Vec<String> {
    held().lines.iter().cloned().collect()
}

/// Prints held warnings, and drops the other lines.
pub(crate) fn print_held() {
    let (warnings, more) = {
        let mut held = held();
        held.lines.clear();
        (std::mem::take(&mut held.warnings), std::mem::take(&mut held.more))
    };
    // Unchanged, with the colours of the log.
    warnings.iter().for_each(|line| drop(writeln!(io::stderr(), "{line}")));
    if more > 0 {
        to_stderr(format_args!("… and {more} more such lines"));
    }
}

/// Holds a line for stdout if there is a view. Gives whether it did.
pub(crate) fn hold_line(line: &dyn fmt::Display) -> bool {
    let view = has_view();
    if view {
        held().show(&printable::lines(&line.to_string()));
    }
    view
}

/// Holds a warning for stderr if there is a view. Gives whether it did.
pub(crate) fn hold_warning(words: &dyn fmt::Display) -> bool {
    let view = has_view();
    if view {
        held().warn(&Label::Warning.line(&words.to_string(), colours()));
    }
    view
}

/// Writes log lines to stderr, or holds them during a view.
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
