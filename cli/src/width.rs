//! The width of text for people: the terminal's width, or unlimited without a terminal.
//!
//! Scripts get each row of a table and each sentence as one line. On a terminal, lines are wrapped between words, and
//! wide tables are broken into parts (see `report::table`).

use std::{
    env,
    io::{self, IsTerminal},
    sync::atomic::{AtomicBool, Ordering},
};

use ratatui::{crossterm::terminal, text::Span};

/// Whether text goes to stderr, because JSON goes to stdout.
static TO_STDERR: AtomicBool = AtomicBool::new(false);
/// The least plausible width. A smaller value is ignored.
const LEAST: usize = 20;
/// The width of a terminal that does not report one.
const USUAL: usize = 80;

/// From here on, text goes to stderr.
pub(crate) fn words_go_to_stderr() {
    TO_STDERR.store(true, Ordering::Release);
}

/// Columns for text; `usize::MAX` for a file or a pipe.
pub(crate) fn columns() -> usize {
    match TO_STDERR.load(Ordering::Acquire) {
        true => stderr_columns(),
        false => columns_of(io::stdout().is_terminal()),
    }
}

/// Columns for text that always goes to stderr.
pub(crate) fn stderr_columns() -> usize {
    columns_of(io::stderr().is_terminal())
}

fn columns_of(terminal: bool) -> usize {
    // Tests must not depend on the terminal that they run in.
    if !terminal || cfg!(test) {
        return usize::MAX;
    }
    let size = terminal::size().ok().map(|(columns, _)| usize::from(columns));
    chosen(size, env::var("COLUMNS").ok().as_deref())
}

/// The width reported by the terminal, or else by the environment.
fn chosen(size: Option<usize>, variable: Option<&str>) -> usize {
    let sane = |columns: &usize| *columns >= LEAST;
    let said = || variable.and_then(|text| text.trim().parse().ok()).filter(sane);
    size.filter(sane).or_else(said).unwrap_or(USUAL)
}

/// The width of a text without line breaks, in columns.
pub(crate) fn of(text: &str) -> usize {
    Span::raw(text).width()
}

/// Wraps text for the terminal. Further lines are indented by `hang` columns more than the first one.
pub(crate) fn fit(text: &str, hang: usize) -> String {
    wrap(text, columns(), hang)
}

/// The same for a given width. A longer word stays whole, because it may be a name or a command to copy.
pub(crate) fn wrap(text: &str, width: usize, hang: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in text.split('\n') {
        if width == usize::MAX || of(line) <= width {
            lines.push(line.to_owned());
            continue;
        }
        let own = line.len() - line.trim_start_matches(' ').len();
        let (indent, rest) = line.split_at(own);
        // Leave at least half of the width for words.
        let further = " ".repeat((own + hang).min(width / 2));
        let mut now = indent.to_owned();
        let mut empty = true;
        for word in words(rest) {
            if !empty && of(&now) + 1 + of(word) > width {
                lines.push(std::mem::replace(&mut now, further.clone()));
                empty = true;
            }
            if !empty {
                now.push(' ');
            }
            now.push_str(word);
            empty = false;
        }
        lines.push(now);
    }
    lines.join("\n")
}

/// Words of a line. A number and its unit are one word.
fn words(line: &str) -> impl Iterator<Item = &str> {
    let mut rest = line.trim_end();
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut end = rest.find(' ').unwrap_or(rest.len());
        if let Some(unit) = rest.get(end + 1..).and_then(|next| next.split(' ').next()).filter(|next| is_unit(next))
            && rest[..end].ends_with(|c: char| c.is_ascii_digit())
        {
            end += 1 + unit.len();
        }
        let word = &rest[..end];
        rest = rest[end..].strip_prefix(' ').unwrap_or_default();
        Some(word)
    })
}

fn is_unit(word: &str) -> bool {
    const UNITS: [&str; 13] = ["%", "s", "ms", "µs", "min", "h", "B", "KiB", "MiB", "GiB", "TiB", "it/s", "samples/s"];
    let bare = word.trim_end_matches([',', ';', '.', ':', ')']);
    UNITS.contains(&bare.strip_suffix("/s").filter(|bare| bare.ends_with('B')).unwrap_or(bare))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_that_does_not_say_is_as_wide_as_the_environment_says() {
        assert_eq!(chosen(Some(60), Some("200")), 60);
        assert_eq!(chosen(Some(0), Some(" 132 ")), 132);
        assert_eq!(chosen(None, Some("wide")), USUAL);
        assert_eq!(chosen(Some(3), None), USUAL);
    }

    #[test]
    fn lines_are_broken_between_words_and_what_follows_hangs() {
        let text = "short\n  the cache serves half of the reads from the second epoch";
        let want = "short\n  the cache serves\n    half of the\n    reads from the\n    second epoch";
        assert_eq!(wrap(text, 18, 2), want);
        assert_eq!(wrap(text, usize::MAX, 2), text);
        for width in 20..90 {
            assert!(wrap(text, width, 2).lines().all(|line| of(line) <= width), "{width}");
            let plain = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(plain(&wrap(text, width, 2)), plain(text), "{width}");
        }
    }

    #[test]
    fn names_and_figures_stay_whole() {
        let name = "/a/very/long/name/that/nobody/can/break";
        assert_eq!(wrap(&format!("see {name} for it"), 12, 0), format!("see\n{name}\nfor it"));
        assert_eq!(wrap("it waited 22.0 ms, 3.5 MiB/s of all", 14, 0), "it waited\n22.0 ms,\n3.5 MiB/s of\nall");
        assert_eq!(
            words("p50 14.5 µs, max (12 %) of 3 a").collect::<Vec<_>>(),
            ["p50", "14.5 µs,", "max", "(12 %)", "of", "3", "a"]
        );
    }

    #[test]
    fn letters_may_take_two_columns() {
        assert_eq!(of("漢字"), 4);
        assert_eq!(wrap("漢字 漢字 漢字", 9, 0), "漢字 漢字\n漢字");
    }
}
