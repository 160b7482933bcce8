//! Scans of first coefficients: of one component, or of several in units of the frame.

use std::ops::Range;

use smallvec::SmallVec;

use super::{
    blocks::{Band, Blocks},
    cursor::Cursor,
};
use crate::{
    error::Result,
    huffman::{Bits, First},
    stuffing::Trouble,
};

/// Where the first coefficients of a scan's units go.
struct Places {
    blocks: SmallVec<[Place; 10]>,
    /// Rows of units, and how many a row has.
    rows: Range<usize>,
    width: usize,
}

/// One block of a unit.
struct Place {
    /// Which component of the scan.
    part: usize,
    /// Where that of the first unit goes, and how far it is from unit to unit, down and across.
    start: usize,
    step: [usize; 2],
}

impl Place {
    /// Where that of a unit goes; the row is counted from the band's first one.
    #[inline(always)]
    fn at(&self, row: usize, column: usize) -> usize {
        self.start + row * self.step[0] + column * self.step[1]
    }
}

impl Places {
    /// The units of a range, row by row: the row in the band, and columns.
    fn rows(&self, range: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> + use<> {
        let (first, width) = (self.rows.start, self.width);
        (range.start / width..range.end.div_ceil(width)).map(move |row| {
            let within = |at: usize| at.saturating_sub(row * width).min(width);
            (row - first, within(range.start)..within(range.end))
        })
    }

    /// The number of the unit behind the last one.
    fn end(&self) -> usize {
        self.rows.end * self.width
    }
}

impl Cursor<'_> {
    fn places(&self, band: &Band) -> Places {
        let parts = &self.scan.header.components;
        if let [part] = &parts[..] {
            let area = &band.areas[part.component];
            let blocks = SmallVec::from_iter([Place { part: 0, start: area.dc, step: [area.pitch, 1] }]);
            return Places { blocks, rows: area.rows.clone(), width: area.width };
        }
        let mut blocks = SmallVec::new();
        for (part, component) in parts.iter().map(|part| part.component).enumerate() {
            let (needed, area) = (&self.grid.components[component], &band.areas[component]);
            let (down, across) = (needed.down, needed.across);
            for (row, column) in (0..down).flat_map(|row| (0..across).map(move |column| (row, column))) {
                let start = area.dc + row * area.pitch + column;
                blocks.push(Place { part, start, step: [down * area.pitch, across] });
            }
        }
        Places { blocks, rows: band.rows.clone(), width: self.grid.units()[1] }
    }

    /// For the first time: differences to the block before.
    pub(super) fn dc_first(&mut self, tables: &[Box<First>], band: &Band, blocks: &mut Blocks) -> Result<()> {
        let low = self.scan.header.low;
        let places = self.places(band);
        self.advance(places.end(), |cursor, range, _| {
            let mut bits = Bits::new(&cursor.data.bytes, cursor.position);
            let sums = &mut cursor.sums;
            let mut row = |row: usize, columns: Range<usize>| {
                let mut starts: SmallVec<[usize; 10]> =
                    places.blocks.iter().map(|place| place.at(row, columns.start)).collect();
                for _ in columns {
                    for (place, start) in places.blocks.iter().zip(&mut starts) {
                        bits.refill();
                        let sum = &mut sums[place.part];
                        *sum = sum.wrapping_add(tables[place.part].read(&mut bits)?);
                        if band.keeps {
                            blocks.dc[*start] = (*sum << low) as i16;
                        }
                        *start += place.step[1];
                    }
                }
                Some(())
            };
            let read = places.rows(range).try_for_each(|(n, columns)| row(n, columns));
            cursor.position = bits.position();
            read.ok_or(Trouble::Code)
        })
    }

    /// A bit more: one for each block.
    pub(super) fn dc_refine(&mut self, band: &Band, blocks: &mut Blocks) -> Result<()> {
        let low = self.scan.header.low;
        let places = self.places(band);
        let each = places.blocks.len();
        self.advance(places.end(), |cursor, range, end| {
            let mut first = cursor.position;
            cursor.position += each * range.len();
            if cursor.position > 8 * end {
                return Err(Trouble::End);
            }
            for (row, columns) in places.rows(range).filter(|_| band.keeps) {
                for (n, place) in places.blocks.iter().enumerate() {
                    let mut bit = first + n;
                    for column in columns.clone() {
                        let added = cursor.data.bytes[bit / 8] >> (7 - bit % 8) & 1;
                        blocks.dc[place.at(row, column)] |= i16::from(added) << low;
                        bit += each;
                    }
                }
                first += each * columns.len();
            }
            Ok(())
        })
    }
}
