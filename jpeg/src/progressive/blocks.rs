//! What is known of the blocks until the last scan, and how samples are made of it.

use std::ops::Range;

use smallvec::SmallVec;

use crate::{
    decoder::grow,
    error::Result,
    grid::{Grid, Needed},
    huffman::natural,
    simd::{Idct, Level, Record},
    tables::Quantisation,
};

/// What is known of the blocks, component after component.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// Of all blocks from the image's first row to the last one that is read, and one more for each component.
    pub(super) records: Vec<Record>,
    /// First coefficients of the window's units, those that only fill up units too.
    pub(super) dc: Vec<i16>,
    /// What first scans told of the others, in natural order, of the window's rows. They are zero between images, and have no
    /// meaning at place 0.
    pub(super) values: Vec<[i16; 64]>,
    /// Whether an image was begun and not finished.
    dirty: bool,
}

/// The blocks of a component.
#[derive(Clone, Debug, Default)]
pub(super) struct Area {
    /// Blocks of a row.
    pub(super) width: usize,
    /// Rows that are read, and those of the window with its columns.
    pub(super) read: usize,
    pub(super) rows: Range<usize>,
    columns: Range<usize>,
    /// Where its records begin, its values and its first coefficients, and how many of these a row has.
    pub(super) record: usize,
    pub(super) value: usize,
    pub(super) dc: usize,
    pub(super) pitch: usize,
}

impl Area {
    /// Blocks of the window's rows, counted from the component's first one.
    pub(super) fn kept(&self) -> Range<usize> {
        self.width * self.rows.start..self.width * self.rows.end
    }
}

/// The blocks of each component; with `all`, those below the window are read as well.
pub(super) fn areas(grid: &Grid, all: bool) -> SmallVec<[Area; 4]> {
    let (mut record, mut value, mut dc) = (0, 0, 0);
    let [_, across] = grid.units();
    let area = |needed: &Needed| {
        let [height, width] = needed.blocks(grid.size);
        let blocks = |units: &Range<usize>, each: usize, most: usize| units.start * each..(units.end * each).min(most);
        let (rows, columns) = (blocks(&grid.y, needed.down, height), blocks(&grid.x, needed.across, width));
        let (read, pitch) = (if all { height } else { rows.end }, across * needed.across);
        let area = Area { width, read, rows, columns, record, value, dc, pitch };
        // A run looks at the record behind its last one.
        record += width * read + 1;
        value += area.kept().len();
        dc += pitch * grid.y.len() * needed.down;
        area
    };
    grid.components.iter().map(area).collect()
}

impl Blocks {
    /// Nothing is known of these areas.
    pub(super) fn begin(&mut self, areas: &[Area]) -> Result<()> {
        let records = areas.iter().map(|area| area.width * area.read + 1).sum();
        let values = areas.iter().map(|area| area.kept().len()).sum();
        // Rows of units hold some more.
        let dc = areas.last().map_or(0, |last| last.dc + last.pitch * (last.rows.len() + 4));
        grow(&mut self.records, records, Record::default())?;
        grow(&mut self.dc, dc, 0)?;
        grow(&mut self.values, values, [0; 64])?;
        self.records[..records].fill(Record::default());
        self.dc[..dc].fill(0);
        if std::mem::replace(&mut self.dirty, true) {
            self.values.fill([0; 64]);
        }
        Ok(())
    }

    /// Makes the samples of the window; the values are zero then.
    pub(super) fn transform(
        &mut self,
        areas: &[Area],
        grid: &Grid,
        quant: &Quantisation,
        level: Level,
        out: &mut [u8],
    ) {
        let idct = Idct::with_level(level);
        for ((area, needed), quant) in areas.iter().zip(&grid.components).zip(quant) {
            // No scan had it: what is asked for is filled.
            let quant = quant.as_ref().unwrap_or(&[1; 64]);
            let (side, pitch) = (needed.side, needed.plane.pitch);
            for (n, row) in area.rows.clone().enumerate() {
                let records = &self.records[area.record + row * area.width..][..area.width];
                let values = &mut self.values[area.value + n * area.width..][..area.width];
                let dc = &self.dc[area.dc + n * area.pitch..][..area.width];
                let mut at = needed.plane.at + n * side * pitch;
                for (column, ((record, dc), values)) in records.iter().zip(dc).zip(values).enumerate() {
                    if area.columns.contains(&column) {
                        if record.is_flat() {
                            Idct::flat(side, *dc, quant, &mut out[at..], pitch);
                        } else {
                            idct.run_parts(side, (*dc, values, record), quant, &mut out[at..], pitch);
                        }
                        at += side;
                    }
                    if record.nonzero != 0 {
                        values.fill(0);
                    }
                }
            }
        }
        self.dirty = false;
    }
}

impl Blocks {
    /// Bits above the second, which records have no room for, go from the records into the values. Few files have them.
    pub(super) fn take_over(&mut self, area: &Area, band: u64, low: u32) {
        let kept = area.kept();
        let records = &mut self.records[area.record..][..area.width * area.read];
        for (block, record) in records.iter_mut().enumerate() {
            let added = record.added[1] & band;
            if kept.contains(&block) {
                let values = &mut self.values[area.value + block - kept.start];
                let mut left = added;
                while left != 0 {
                    let place = left.trailing_zeros();
                    let value = &mut values[natural(place as usize)];
                    let negative = *value < 0 || record.negative >> place & 1 != 0;
                    let bit = 1i16.wrapping_shl(low);
                    *value = value.wrapping_add(if negative { bit.wrapping_neg() } else { bit });
                    left &= left - 1;
                }
            }
            record.nonzero |= added;
            record.added[1] &= !band;
            record.negative &= !added;
        }
    }
}
