//! Tables for a terminal. A table that is too wide is broken into parts.

use std::ops::RangeFrom;

use comfy_table::{CellAlignment, presets};

use crate::width;

/// The narrowest column of text that is easy to read.
const NARROWEST: usize = 20;
/// Indentation of text below its name.
const BELOW: usize = 3;

/// Rows of cells. The first cell of a row is its name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    /// Empty for rows of a name and a text.
    head: Vec<String>,
    rows: Vec<Vec<String>>,
    /// From this column on, cells are aligned to the right.
    right: Option<usize>,
    /// The number of first columns that identify a row.
    keys: usize,
}

/// A table without borders.
pub(crate) fn table() -> Table {
    Table { keys: 1, ..Table::default() }
}

/// Aligns columns of figures to the right.
pub(crate) fn align_right(table: &mut Table, columns: RangeFrom<usize>) {
    table.right = Some(columns.start);
}

impl Table {
    pub(crate) fn set_header<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.head = cells.into_iter().map(Into::into).collect();
    }

    pub(crate) fn add_row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Sets the number of first columns that are repeated in each part of a broken table.
    pub(crate) const fn keyed_by(&mut self, columns: usize) {
        self.keys = columns;
    }

    /// The table, at most as wide as the terminal.
    pub(crate) fn trim_fmt(&self) -> String {
        self.fit(width::columns())
    }

    /// The table in at most `width` columns, unless a single word is longer.
    ///
    /// If it does not fit, the text of the last column is wrapped. If that is not enough, the table is broken into
    /// parts that begin with the same columns.
    pub(crate) fn fit(&self, width: usize) -> String {
        let columns: Vec<usize> = (0..self.columns()).collect();
        let all = self.part(&columns);
        let [before @ .., last] = &columns[..] else { return all };
        if width == usize::MAX || fits(&all, width) {
            return all;
        }
        if self.right.is_none_or(|right| right > *last) {
            if self.head.is_empty() && before.len() == 1 {
                return self.named(width);
            }
            let before: usize = before.iter().map(|column| self.width_of(*column) + 2).sum();
            let left = width.saturating_sub(before + 1);
            let broken = self.with_words(*last, left.max(NARROWEST)).part(&columns);
            if left >= NARROWEST && fits(&broken, width) {
                return broken;
            }
        }
        self.parts(width)
    }

    fn columns(&self) -> usize {
        self.rows.iter().map(Vec::len).max().unwrap_or(0).max(self.head.len())
    }

    /// The width of a column without the space on each side.
    fn width_of(&self, column: usize) -> usize {
        let cells = self.rows.iter().chain([&self.head]).filter_map(|row| row.get(column));
        cells.flat_map(|cell| cell.lines().map(width::of)).max().unwrap_or(0)
    }

    /// The table with the text of a column wrapped to a width.
    fn with_words(&self, column: usize, width: usize) -> Self {
        let mut broken = self.clone();
        for cell in broken.rows.iter_mut().filter_map(|row| row.get_mut(column)) {
            *cell = width::wrap(cell, width, 0);
        }
        broken
    }

    /// Names with their text next to them, or below them if the longest word does not fit next to them.
    fn named(&self, width: usize) -> String {
        let names = self.width_of(0);
        let left = width.saturating_sub(names + 3);
        let row = |row: &Vec<String>| {
            let name = row.first().map_or("", String::as_str);
            let words = row.get(1).map_or("", String::as_str);
            let beside = width::wrap(words, left, 0);
            if left >= NARROWEST && fits(&beside, left) {
                let mut lines = beside.lines();
                let blank = names - width::of(name).min(names);
                let first = format!(" {name}{}  {}", " ".repeat(blank), lines.next().unwrap_or_default());
                let further = lines.map(|line| format!("{}{line}", " ".repeat(names + 3)));
                return std::iter::once(first.trim_end().to_owned()).chain(further).collect::<Vec<_>>();
            }
            let below = width::wrap(words, width.saturating_sub(BELOW), 0);
            let below = below.lines().map(|line| format!("{}{line}", " ".repeat(BELOW)));
            std::iter::once(format!(" {name}")).chain(below).collect()
        };
        self.rows.iter().flat_map(row).collect::<Vec<_>>().join("\n")
    }

    /// Parts with as many columns as fit, one below the other.
    fn parts(&self, width: usize) -> String {
        let columns = self.columns();
        let wide = |columns: &[usize]| columns.iter().map(|column| self.width_of(*column) + 2).sum::<usize>();
        // Names that leave no room for another column are not repeated.
        let keys = (0..=self.keys.min(columns))
            .rev()
            .find(|keys| wide(&(0..*keys).collect::<Vec<_>>()) + NARROWEST <= width || *keys == 0);
        let keys: Vec<usize> = (0..keys.unwrap_or(0)).collect();
        let mut parts = Vec::new();
        let mut next = keys.len();
        while next < columns {
            let mut part = keys.clone();
            // The last space is not written.
            while next < columns && (part.len() == keys.len() || wide(&part) + self.width_of(next) < width) {
                part.push(next);
                next += 1;
            }
            let room = width.saturating_sub(wide(&keys) + 1);
            // A single column that is too wide holds text, such as an error.
            let broken = match part[..] {
                [.., only] if part.len() == keys.len() + 1 => self.with_words(only, room.max(NARROWEST)),
                _ => self.clone(),
            };
            let text = broken.part(&part);
            parts.push(match (&part[..], fits(&text, width)) {
                // The names are longer than the rest of the line.
                ([keys @ .., only], false) => self.pairs(keys, *only).named(width),
                _ => text,
            });
        }
        parts.join("\n\n")
    }

    /// One column next to the names of the rows, as a table of names and text.
    fn pairs(&self, keys: &[usize], column: usize) -> Self {
        let cell = |row: &Vec<String>, column: usize| row.get(column).cloned().unwrap_or_default();
        let pair = |row: &Vec<String>| {
            let names: Vec<String> = keys.iter().map(|key| cell(row, *key)).collect();
            vec![names.join("  "), cell(row, column)]
        };
        let head = (!self.head.is_empty()).then_some(&self.head);
        Self { rows: head.into_iter().chain(&self.rows).map(pair).collect(), ..table() }
    }

    /// The table with only these columns.
    fn part(&self, columns: &[usize]) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING);
        let pick = |row: &Vec<String>| columns.iter().map_while(|column| row.get(*column).cloned()).collect::<Vec<_>>();
        if !self.head.is_empty() {
            table.set_header(pick(&self.head));
        }
        table.add_rows(self.rows.iter().map(pick));
        for (column, at) in table.column_iter_mut().zip(columns) {
            if self.right.is_some_and(|right| *at >= right) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table.trim_fmt()
    }
}

fn fits(text: &str, width: usize) -> bool {
    text.lines().all(|line| width::of(line) <= width)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures() -> Table {
        let mut table = table();
        table.set_header(["stage", "busy", "starved", "blocked", "items"]);
        table.add_row(["decode", "1.234 s", "56.7 ms", "8.9 µs", "1,234"]);
        table.add_row(["yield", "10.000 s", "1.0 µs", "0.0 µs", "1"]);
        align_right(&mut table, 1..);
        table
    }

    #[test]
    fn what_fits_is_as_it_was_and_is_not_stretched() {
        let want = " stage       busy  starved  blocked  items\n \
                    decode   1.234 s  56.7 ms   8.9 µs  1,234\n \
                    yield   10.000 s   1.0 µs   0.0 µs      1";
        for width in [usize::MAX, 200, 80, 43] {
            assert_eq!(figures().fit(width), want, "{width}");
        }
    }

    #[test]
    fn columns_that_do_not_fit_follow_below_with_the_names_of_the_rows() {
        let want = " stage       busy  starved\n \
                    decode   1.234 s  56.7 ms\n \
                    yield   10.000 s   1.0 µs\n\n \
                    stage   blocked  items\n \
                    decode   8.9 µs  1,234\n \
                    yield    0.0 µs      1";
        assert_eq!(figures().fit(32), want);
        for width in 28..60 {
            let text = figures().fit(width);
            assert!(text.lines().all(|line| width::of(line) <= width), "{width}:\n{text}");
            for cell in ["1.234 s", "10.000 s", "56.7 ms", "1,234", "0.0 µs"] {
                assert!(text.contains(cell), "{width}: no {cell} in\n{text}");
            }
        }
    }

    #[test]
    fn words_are_broken_in_their_column_and_names_stay_whole() {
        let mut table = table();
        table.add_row(["dataset", "/some/where/that/nobody/can/break/at/all: 2,000 records, folder"]);
        table.add_row(["late batches", "3: 2 for a free decode thread (22.0 ms), 1 for decoding (1.0 ms)"]);
        let want = " dataset\n   \
                    /some/where/that/nobody/can/break/at/all:\n   \
                    2,000 records, folder\n \
                    late batches  3: 2 for a free decode\n               \
                    thread (22.0 ms), 1 for\n               \
                    decoding (1.0 ms)";
        assert_eq!(table.fit(40), want);
        for width in 20..100 {
            let text = table.fit(width);
            let mut wide = text.lines().filter(|line| width::of(line) > width);
            assert!(wide.all(|line| !line.trim().contains(' ')), "{width}:\n{text}");
            assert_eq!(text.split_whitespace().count(), 21, "{width}:\n{text}");
        }
        // A table without a row is none.
        assert_eq!(super::table().fit(10), "");
    }

    #[test]
    fn names_longer_than_what_is_left_stand_below() {
        let mut table = table();
        table.set_header(["record", "object", "bytes"]);
        table.add_row(["0", "/data/imagenet/train/n01440764/n01440764_13.JPEG", "1.0 KiB"]);
        let want = " record  object\n \
                    0\n   \
                    /data/imagenet/train/n01440764/n01440764_13.JPEG\n\n \
                    record  bytes\n \
                    0       1.0 KiB";
        assert_eq!(table.fit(52), want);
    }

    #[test]
    fn an_error_among_figures_is_broken_and_nothing_of_it_is_lost() {
        let mut table = table();
        table.set_header(["workers", "batch", "it/s", "samples/s", "CPU"]);
        table.add_row(["1", "64", "12.00", "768", "1.000 s"]);
        table.add_row(["2", "64", "config: the memory budget is 12 MiB; use 64 MiB or more"]);
        align_right(&mut table, 0..);
        table.keyed_by(2);
        let text = table.fit(44);
        assert!(text.lines().all(|line| width::of(line) <= 44), "{text}");
        let words: Vec<&str> = text.split_whitespace().collect();
        for word in ["budget", "MiB;", "more", "768"] {
            assert!(words.contains(&word), "no {word} in\n{text}");
        }
        assert_eq!(words.iter().filter(|word| **word == "workers").count(), 2, "{text}");
    }
}
