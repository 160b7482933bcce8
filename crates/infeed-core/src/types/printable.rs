//! Escapes text from outside before it is written to a terminal or a log line.
//!
//! File names, keys, messages of stores and values of records are chosen by somebody else. Unescaped, an escape
//! sequence among them moves the cursor, renames the window or pastes into a shell; a direction mark (`U+202E`) makes
//! `gpj.exe` display with another ending; a line break forges a line of its own. The functions here write such
//! characters as `\u{1b}`: visible and harmless.

use std::{
    borrow::Cow,
    fmt::{self, Write},
};

/// Whether a terminal would act on the character: control characters (C0, DEL, C1), and the characters that set,
/// isolate or mark a text direction.
#[must_use]
pub const fn is_order(c: char) -> bool {
    matches!(
        c,
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

/// A name on one line: everything that [`is_order`] matches is escaped, including line breaks and tabs.
///
/// ```
/// use infeed::internal::printable::name;
/// assert_eq!(name("cat \u{202e}gpj.exe\n\u{9b}2J"), r"cat \u{202e}gpj.exe\n\u{9b}2J");
/// assert_eq!(name("Größe 漢字.jpg"), "Größe 漢字.jpg");
/// ```
#[must_use]
pub fn name(text: &str) -> Cow<'_, str> {
    escaped(text, is_order)
}

/// A text of several lines: escaped, except line breaks and tabs.
#[must_use]
pub fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| is_order(c) && !matches!(c, '\n' | '\t'))
}

/// A text of several lines with colours: escaped, except line breaks, tabs and the sequences that set colours (`ESC [
/// digits m`). For text whose other escape characters were escaped by its writer, as `tracing_subscriber` does with
/// values.
#[must_use]
pub fn coloured(text: &str) -> Cow<'_, str> {
    let mut parts = text.split('\u{1b}');
    let first = lines(parts.next().unwrap_or_default());
    let rest: Vec<&str> = parts.collect();
    if rest.is_empty() {
        return first;
    }
    let mut out = first.into_owned();
    for part in rest {
        let end = part.strip_prefix('[').and_then(|rest| rest.find(|c: char| !c.is_ascii_digit() && c != ';'));
        let colour = end.is_some_and(|end| part.as_bytes()[1 + end] == b'm');
        out.push_str(if colour { "\u{1b}" } else { "\\u{1b}" });
        out.push_str(&lines(part));
    }
    out.into()
}

fn escaped(text: &str, is_bad: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_bad) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 16);
    text.chars().for_each(|c| if is_bad(c) { out.extend(c.escape_default()) } else { out.push(c) });
    out.into()
}

/// Writes to another writer what [`lines`] returns, piece by piece.
#[derive(Debug)]
pub struct Lines<'a, W: ?Sized>(pub &'a mut W);

impl<W: Write + ?Sized> Write for Lines<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write_str(&lines(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_to_a_terminal_are_seen_and_not_obeyed() {
        let orders = (0..=0x10ffff).filter_map(char::from_u32).filter(|c| is_order(*c));
        for c in orders {
            let escaped = name(&c.to_string()).into_owned();
            assert!(escaped.starts_with('\\') && !escaped.contains(is_order), "{escaped}");
        }
        for plain in ["", "a b", "Ünïcödé", "漢字", "עברית", "👩‍🚀", "a\\n"] {
            assert!(matches!(name(plain), Cow::Borrowed(same) if same == plain));
        }
        assert_eq!(name("a\nb\tc"), r"a\nb\tc");
        assert_eq!(lines("a\nb\tc\r\u{85}"), "a\nb\tc\\r\\u{85}");
    }

    #[test]
    fn colours_stay_and_nothing_else_that_begins_like_them() {
        let red = "\u{1b}[31mred\u{1b}[0m \u{1b}[1;33mbold\u{1b}[m";
        assert_eq!(coloured(red), red);
        assert_eq!(coloured("\u{1b}[2J\u{1b}]0;x\u{7}\u{1b}["), r"\u{1b}[2J\u{1b}]0;x\u{7}\u{1b}[");
        assert_eq!(coloured("\u{1b}[3\u{202e}1m"), r"\u{1b}[3\u{202e}1m");
        assert_eq!(coloured("plain"), "plain");
    }
}
