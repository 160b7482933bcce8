//! The cells of a file.

use infeed_core::error::{Error, ErrorKind};

/// The status of the first row.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// It may be a header.
    Unknown,
    /// It is a record.
    None,
    /// The columns have these names; all rows are records.
    Names(Vec<String>),
}

/// Rows of a file of labels, before columns are recognised.
#[derive(Debug)]
pub(super) struct Rows {
    pub(super) head: Head,
    pub(super) rows: Vec<csv::StringRecord>,
    /// The word for a row in messages: `line` or `entry`.
    pub(super) unit: &'static str,
}

impl Rows {
    /// The position of a row, for messages.
    pub(super) fn place(&self, row: usize) -> String {
        let position = self.rows.get(row).and_then(csv::StringRecord::position);
        let at = position.map_or(row as u64, |at| if self.unit == "line" { at.line() } else { at.record() });
        format!("{} {at}", self.unit)
    }

    /// A cell; empty if the row is shorter.
    pub(super) fn cell(&self, row: usize, column: usize) -> &str {
        self.rows[row].get(column).unwrap_or_default()
    }

    /// The number of cells of a row up to the last that is not empty.
    pub(super) fn filled(&self, row: usize) -> usize {
        let cells = self.rows[row].iter().enumerate();
        cells.filter(|(_, cell)| !cell.is_empty()).last().map_or(0, |(last, _)| last + 1)
    }
}

/// A row found at this line, or as this entry.
pub(super) fn row_at(at: usize, cells: impl IntoIterator<Item = impl AsRef<str>>) -> csv::StringRecord {
    let mut row: csv::StringRecord = cells.into_iter().map(|cell| cell.as_ref().to_owned()).collect();
    let mut position = csv::Position::new();
    // Lines count from 1, entries from 0.
    position.set_line((at as u64).max(1)).set_record(at as u64);
    row.set_position(Some(position));
    row
}

/// A file and its label, as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) file: String,
    pub(super) label: String,
}

/// Whether a cell is a number: `nan` and `inf` may be names.
pub(super) fn is_number(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) && text.parse::<f64>().is_ok()
}

/// `3.0`, as tables with gaps write integers. Above 2^53 a fraction is not exact.
fn integral(text: &str) -> Option<i64> {
    let value = text.parse::<f64>().ok().filter(|_| is_number(text))?;
    (value.fract() == 0.0 && value.abs() < (1u64 << 53) as f64).then_some(value as i64)
}

/// The integer in a cell, if it is one.
pub(crate) fn number(text: &str) -> Option<i64> {
    text.parse::<i64>().ok().or_else(|| integral(text))
}

/// Whether a cell means that there is no value, as pandas and R write it.
pub(super) fn is_missing(text: &str) -> bool {
    const MISSING: [&str; 9] = ["", "nan", "NaN", "NA", "N/A", "n/a", "<NA>", "#N/A", "NULL"];
    MISSING.contains(&text)
}

/// The supported kinds of label files.
pub(super) const KINDS: &str = "write it as CSV, TSV, text with blanks between file and label, JSON or JSON lines";

/// The error for a file of another kind.
pub(super) fn no_table(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Corrupt, what.into()).with_hint(KINDS)
}
