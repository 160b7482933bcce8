//! Tables for a terminal.

use std::ops::RangeFrom;

use comfy_table::{CellAlignment, Table, presets};

/// Borders tell nothing: columns alone.
pub(crate) fn table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table
}

/// For columns of figures.
pub(crate) fn align_right(table: &mut Table, columns: RangeFrom<usize>) {
    for column in table.column_iter_mut().skip(columns.start) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}
