//! The state of some rows of blocks, and the samples made of it.

use std::ops::Range;

use smallvec::SmallVec;

use crate::{
    error::Result,
    grid::{Grid, Needed},
    memory::grow,
    order::natural,
    scan::Options,
    simd::{Idct, Record, merge},
    tables::Quantisation,
};

/// The state of a band's blocks, component after component.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    pub(super) records: Vec<Record>,
    /// Values of first scans, in natural order, for the same blocks. They are zero between bands; place 0 is unused.
    pub(super) values: Vec<[i16; 64]>,
    /// First coefficients, also of blocks that only pad units.
    pub(super) dc: Vec<i16>,
    /// Whether a band was begun and not finished.
    dirty: bool,
}

/// Rows of units that are read from all scans before the next rows.
#[derive(Debug)]
pub(super) struct Band {
    pub(super) rows: Range<usize>,
    /// Whether they belong to the window.
    pub(super) keeps: bool,
    pub(super) areas: SmallVec<[Area; 4]>,
}

/// The blocks of a component in a band.
#[derive(Debug)]
pub(super) struct Area {
    /// Blocks per row, and rows of the component.
    pub(super) width: usize,
    pub(super) rows: Range<usize>,
    /// Index of its first record and value, and of its first coefficients, of which a row has `pitch`.
    pub(super) start: usize,
    pub(super) dc: usize,
    pub(super) pitch: usize,
}

impl Area {
    /// Its blocks, counted from the component's first block.
    pub(super) fn blocks(&self) -> Range<usize> {
        self.width * self.rows.start..self.width * self.rows.end
    }

    /// Number of its records: one more than blocks, because a run reads the record after its last block.
    fn records(&self) -> usize {
        self.blocks().len() + 1
    }
}

impl Band {
    pub(super) fn new(grid: &Grid, rows: Range<usize>) -> Self {
        let (mut start, mut dc) = (0, 0);
        let [_, across] = grid.units();
        let area = |needed: &Needed| {
            let [height, width] = needed.blocks(grid.size);
            let within = |unit: usize| (unit * needed.down).min(height);
            let pitch = across * needed.across;
            let area = Area { width, rows: within(rows.start)..within(rows.end), start, dc, pitch };
            start += area.records();
            dc += pitch * rows.len() * needed.down;
            area
        };
        let areas = grid.components.iter().map(area).collect();
        Self { keeps: grid.y.contains(&rows.start), areas, rows }
    }
}

impl Blocks {
    /// Starts a band: nothing of it is known.
    pub(super) fn begin(&mut self, band: &Band) -> Result<()> {
        let records = band.areas.iter().map(Area::records).sum();
        grow(&mut self.records, records, Record::default())?;
        self.records[..records].fill(Record::default());
        if band.keeps {
            // A component has at most four rows of blocks per unit.
            let dc = band.areas.last().map_or(0, |last| last.dc + 4 * last.pitch * band.rows.len());
            grow(&mut self.dc, dc, 0)?;
            grow(&mut self.values, records, [0; 64])?;
            self.dc[..dc].fill(0);
            if std::mem::replace(&mut self.dirty, true) {
                self.values.fill([0; 64]);
            }
        }
        Ok(())
    }

    /// Makes the samples of a band of the window, and clears the values.
    pub(super) fn transform(
        &mut self,
        band: &Band,
        grid: &Grid,
        quant: &Quantisation,
        options: Options<'_>,
        out: &mut [u8],
    ) {
        let idct = Idct::with_level(options.level);
        for ((area, needed), quant) in band.areas.iter().zip(&grid.components).zip(quant) {
            // No scan had it: the window is filled with gray.
            let quant = quant.as_ref().unwrap_or(&[1; 64]);
            let (side, pitch) = (needed.side, needed.plane.pitch);
            let columns = grid.x.start * needed.across..(grid.x.end * needed.across).min(area.width);
            for (n, row) in area.rows.clone().enumerate() {
                let blocks = area.start + n * area.width..area.start + (n + 1) * area.width;
                let (records, values) = (&self.records[blocks.clone()], &mut self.values[blocks]);
                let dc = &self.dc[area.dc + n * area.pitch..][..area.width];
                let mut at = needed.plane.at + (row - grid.y.start * needed.down) * side * pitch;
                if side == 1 && !options.strict {
                    // Only first coefficients were read.
                    for (dc, out) in dc[columns.clone()].iter().zip(&mut out[at..]) {
                        *out = Idct::mean(*dc, quant);
                    }
                    continue;
                }
                for (column, ((record, dc), values)) in records.iter().zip(dc).zip(values).enumerate() {
                    if columns.contains(&column) {
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

    /// The coefficients of a block in a row of an area, in natural order.
    pub(super) fn merged(&self, area: &Area, row: usize, column: usize) -> [i16; 64] {
        let block = area.start + row * area.width + column;
        let first = self.dc[area.dc + row * area.pitch + column];
        merge((first, &self.values[block], &self.records[block]))
    }

    /// Moves bits above the second, for which records have no room, from the records into the values. Few files have
    /// them.
    pub(super) fn take_over(&mut self, area: &Area, keeps: bool, added: u64, low: u32) {
        let blocks = area.start..area.start + area.blocks().len();
        for block in blocks {
            let record = &mut self.records[block];
            let added = record.added[1] & added;
            let mut left = if keeps { added } else { 0 };
            while left != 0 {
                let place = left.trailing_zeros();
                let value = &mut self.values[block][natural(place as usize)];
                let negative = *value < 0 || record.negative >> place & 1 != 0;
                let bit = 1i16.wrapping_shl(low);
                *value = value.wrapping_add(if negative { bit.wrapping_neg() } else { bit });
                left &= left - 1;
            }
            record.nonzero |= added;
            record.added[1] &= !added;
            record.negative &= !added;
        }
    }
}
