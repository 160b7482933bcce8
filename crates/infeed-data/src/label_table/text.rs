//! Labels in text: CSV and similar formats, and lists with blanks between file and label.

use std::borrow::Cow;

use infeed_core::error::{Error, Result};

use super::{
    columns::FILE,
    json,
    names::Names,
    rows::{Head, Rows, is_number, no_table, row_at},
};

/// Lines that are examined to find the separator of cells.
const LOOKED_AT: usize = 64;

/// The separator of cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Between {
    /// One of these bytes, with quotes as in CSV.
    Byte(u8),
    /// The last blanks of a line: names may have blanks, labels after them have none.
    LastBlanks,
    /// The first blanks of a line: a label, then a name that may have blanks.
    FirstBlanks,
    /// The first blanks of a line: a name, then a label that may have blanks.
    NameFirst,
    /// Any blanks, if words that are numbers come before or behind a name.
    AllBlanks,
}

/// Reads a file of labels. `.json`, `.jsonl` and `.ndjson` files are read as such; for others the content decides.
pub(super) fn parse(name: &str, bytes: &[u8], names: &Names<'_>) -> Result<Rows> {
    let text = decode(bytes)?;
    let ends = |ending: &str| crate::names::ends_with(name, ending);
    let lines = ends(".jsonl") || ends(".ndjson");
    if lines || ends(".json") {
        return json::parse(&text, lines);
    }
    // A file may be named `[a].png`.
    if text.trim_start().starts_with(['{', '['])
        && let Ok(rows) = json::parse(&text, false)
    {
        return Ok(rows);
    }
    // A comment, unless names of images begin like one.
    let comments = !names.any(|name| crate::names::base(name).starts_with('#') || name.starts_with('#'));
    // Spreadsheets write the separator into the first line.
    let text = match text.split_once('\n') {
        Some((first, rest)) if first.trim().len() == 5 && first.to_ascii_lowercase().starts_with("sep=") => rest,
        _ => &text,
    };
    if let Some(rows) = counted(text, comments) {
        return rows;
    }
    let between = between(text, comments, names);
    rows(text, between, comments)
}

/// The lists of CelebA: the number of rows, the names of the columns, perhaps without that of the file, then the rows.
fn counted(text: &str, comments: bool) -> Option<Result<Rows>> {
    let mut lines = lines(text, comments);
    let count: usize = lines.next()?.1.parse().ok()?;
    let mut names: Vec<String> = lines.next()?.1.split_whitespace().map(str::to_owned).collect();
    let rows: Vec<_> = lines.map(|(at, line)| row_at(at, line.split_whitespace())).collect();
    let width = rows.first()?.len();
    if width == names.len() + 1 {
        names.insert(0, FILE[0].to_owned());
    }
    let is_sound = names.len() > 1 && names.len() == width && rows.iter().all(|row| row.len() == width);
    is_sound.then(|| match rows.len() {
        here if here == count => Ok(Rows { head: Head::Names(names), rows, unit: "line" }),
        here => Err(no_table(format!("the first line counts {count} rows, and there are {here}"))),
    })
}

/// The text of a table: UTF-8, or UTF-16 with a byte order mark.
pub(crate) fn decode(bytes: &[u8]) -> Result<Cow<'_, str>> {
    let wide = |bytes: &[u8], unit: fn([u8; 2]) -> u16| {
        let units = bytes.chunks_exact(2).map(|pair| unit([pair[0], pair[1]]));
        let text = char::decode_utf16(units).collect::<Result<String, _>>();
        text.map_err(|e| no_table("the file begins like UTF-16, but is not valid UTF-16").with_source(e))
    };
    match bytes {
        [0xff, 0xfe, rest @ ..] => Ok(wide(rest, u16::from_le_bytes)?.into()),
        [0xfe, 0xff, rest @ ..] => Ok(wide(rest, u16::from_be_bytes)?.into()),
        _ => {
            let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
            match std::str::from_utf8(bytes) {
                Ok(text) if !text.contains('\0') => Ok(text.into()),
                Ok(_) => Err(no_table("the file is not a text")),
                Err(e) => Err(Error::corrupt("the file is not a text in UTF-8").with_source(e).with_hint(
                    "save it as UTF-8: CSV, TSV, text with blanks between file and label, JSON or JSON lines",
                )),
            }
        }
    }
}

/// Lines with their numbers, without empty lines and comments.
fn lines(text: &str, comments: bool) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.split('\n').flat_map(|line| line.strip_suffix('\r').unwrap_or(line).split('\r'));
    let numbered = lines.enumerate().map(|(i, line)| (i + 1, line.trim()));
    numbered.filter(move |(_, line)| !(line.is_empty() || comments && line.starts_with('#')))
}

/// The separator of cells: the one with which the most of the first lines name images; otherwise the first with which
/// all lines have the same number of cells.
fn between(text: &str, comments: bool, names: &Names<'_>) -> Between {
    let first: Vec<&str> = lines(text, comments).take(LOOKED_AT).map(|(_, line)| line).collect();
    let sample = first.join("\n");
    let widths = |between| -> Vec<usize> {
        rows(&sample, between, comments)
            .map(|all| all.rows.iter().map(csv::StringRecord::len).collect())
            .unwrap_or_default()
    };
    let even = |widths: &[usize]| widths.first().is_some_and(|first| *first > 1 && widths.iter().all(|w| w == first));
    let (mut candidates, mut uneven) = (Vec::new(), Vec::new());
    for byte in [b'\t', b',', b';', b'|'].map(Between::Byte) {
        let widths = widths(byte);
        if even(&widths) {
            candidates.push(byte);
        } else if widths.first().is_some_and(|first| *first > 1) {
            uneven.push(byte);
        }
    }
    if first.iter().all(|line| line.contains([' ', '\t'])) {
        // `0 3 a.png`, as MXNet lists them, or `a.png 3 0`. Otherwise more than two words are a name with blanks.
        let all_numbers = |words: &str| words.split_whitespace().all(is_number);
        let numbers = |line: &&str| {
            let before = line.rsplit_once([' ', '\t']).is_some_and(|(head, _)| all_numbers(head));
            before || line.split_once([' ', '\t']).is_some_and(|(_, tail)| all_numbers(tail))
        };
        let widths = widths(Between::AllBlanks);
        if even(&widths) && widths[0] > 2 && first.iter().skip(1).all(numbers) {
            candidates.push(Between::AllBlanks);
        }
        candidates.extend([Between::LastBlanks, Between::FirstBlanks, Between::NameFirst]);
    }
    candidates.extend(uneven);
    let Some(default) = candidates.first().copied() else { return Between::Byte(b',') };
    if candidates.len() == 1 {
        return default;
    }
    let named = |between: Between| {
        let Ok(found) = rows(&sample, between, comments) else { return 0 };
        let cells = |row: &'_ csv::StringRecord| -> Vec<String> {
            // One of the two is the label.
            let (from, to) = match between {
                Between::FirstBlanks => (1, row.len()),
                Between::NameFirst => (0, 1),
                _ => (0, row.len()),
            };
            row.iter().take(to).skip(from).map(str::to_owned).collect()
        };
        names.count(found.rows.iter().flat_map(cells))
    };
    // If several are equal, the first.
    let best = candidates.iter().rev().map(|between| (named(*between), *between)).max_by_key(|(named, _)| *named);
    best.filter(|(named, _)| *named > 0).map_or(default, |(_, between)| between)
}

fn rows(text: &str, between: Between, comments: bool) -> Result<Rows> {
    let done = |rows| Ok(Rows { head: Head::Unknown, rows, unit: "line" });
    let Between::Byte(delimiter) = between else {
        let row = |(at, line): (usize, &str)| {
            let blank = |c: char| c == ' ' || c == '\t';
            let pair = match between {
                Between::LastBlanks => line.rsplit_once(blank),
                _ => line.split_once(blank),
            };
            match pair {
                Some((a, b)) if between != Between::AllBlanks => row_at(at, [a, b].map(unquoted)),
                _ => row_at(at, line.split(blank).filter(|word| !word.is_empty()).map(unquoted)),
            }
        };
        return done(lines(text, comments).map(row).collect());
    };
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .delimiter(delimiter)
        .comment(comments.then_some(b'#'))
        .trim(csv::Trim::All)
        .from_reader(text.as_bytes());
    let mut rows = Vec::new();
    for row in reader.records() {
        let row = row.map_err(|e| no_table("the label file is not CSV").with_source(e))?;
        if row.iter().any(|cell| !cell.is_empty()) {
            rows.push(row);
        }
    }
    done(rows)
}

/// Without surrounding blanks and quotes.
fn unquoted(cell: &str) -> &str {
    let cell = cell.trim();
    let inside = |quote: char| cell.strip_prefix(quote).and_then(|cell| cell.strip_suffix(quote));
    inside('"').or_else(|| inside('\'')).unwrap_or(cell)
}
