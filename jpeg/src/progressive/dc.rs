//! Scans of first coefficients: of one component, or of several, in units of the frame.

use std::ops::Range;

use smallvec::SmallVec;

use super::{
    bits::MirroredBits,
    blocks::{Band, Blocks},
    cursor::Cursor,
    dc_codes::DcCodes,
};
use crate::{
    error::Result,
    simd::{Deposit, Work, with_best},
    stuffing::Trouble,
};

/// Reads the differences of some units.
struct DcFirst<'a, 'd> {
    bits: MirroredBits<'d>,
    codes: &'a [Box<DcCodes>],
    places: &'a Places,
    range: Range<usize>,
    low: u8,
    sums: [i32; 4],
    /// Empty if nothing is kept.
    out: &'a mut [i16],
}

impl<'d> Work for DcFirst<'_, 'd> {
    /// The reader's position, and the last coefficients.
    type Output = (MirroredBits<'d>, Result<[i32; 4], Trouble>);

    #[inline(always)]
    fn run(self, _: impl Deposit, _: impl Deposit) -> Self::Output {
        let Self { mut bits, codes, places, range, low, mut sums, out } = self;
        for (row, columns) in places.rows(range) {
            let start = |place: &Place| place.at(row, columns.start);
            let mut starts: SmallVec<[usize; 10]> = places.blocks.iter().map(start).collect();
            for _ in columns {
                for (place, at) in places.blocks.iter().zip(&mut starts) {
                    if bits.refill().is_none() {
                        return (bits, Err(Trouble::End));
                    }
                    let Some(difference) = codes[place.part].read(&mut bits) else { return (bits, Err(Trouble::Code)) };
                    let sum = &mut sums[place.part];
                    *sum = sum.wrapping_add(difference);
                    if !out.is_empty() {
                        out[*at] = (*sum << low) as i16;
                    }
                    *at += place.step[1];
                }
            }
        }
        (bits, Ok(sums))
    }
}

/// Where the first coefficients of a scan's units are written.
struct Places {
    blocks: SmallVec<[Place; 10]>,
    /// Rows of units, and units per row.
    rows: Range<usize>,
    width: usize,
}

/// One block of a unit.
struct Place {
    /// Component of the scan.
    part: usize,
    /// Position of the first unit's block, and the distance from unit to unit, vertical and horizontal.
    start: usize,
    step: [usize; 2],
}

impl Place {
    /// Position for a unit; the row is counted from the band's first row.
    #[inline(always)]
    fn at(&self, row: usize, column: usize) -> usize {
        self.start + row * self.step[0] + column * self.step[1]
    }
}

impl Places {
    /// The units of a range, row by row: the row in the band, and the columns.
    fn rows(&self, range: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> + use<> {
        let (first, width) = (self.rows.start, self.width);
        (range.start / width..range.end.div_ceil(width)).map(move |row| {
            let within = |at: usize| at.saturating_sub(row * width).min(width);
            (row - first, within(range.start)..within(range.end))
        })
    }

    /// The number of the unit after the last one.
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

    /// First scan of these coefficients: differences to the block before.
    pub(super) fn dc_first(&mut self, codes: &[Box<DcCodes>], band: &Band, blocks: &mut Blocks) -> Result<()> {
        let places = self.places(band);
        self.advance(places.end(), |cursor, range, end| {
            let (bits, low, sums) = (cursor.bits(end), cursor.scan.header.low, cursor.sums);
            let out = if band.keeps { &mut blocks.dc[..] } else { &mut [] };
            let run = DcFirst { bits, codes, places: &places, range, low, sums, out };
            let (bits, outcome) = with_best(cursor.options.level, run);
            cursor.came_to(bits, end);
            cursor.sums = outcome?;
            Ok(())
        })
    }

    /// Adds one bit per block.
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
                        let added = cursor.data.bytes[bit / 8] >> (bit % 8) & 1;
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
