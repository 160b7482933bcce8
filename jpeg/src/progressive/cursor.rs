//! A scan that is read one band at a time: its position, its intervals, and the errors for damage.

use std::ops::Range;

use super::{
    ac_first::{AcFirst, AcFirstCodes},
    ac_refine::{AcRefine, AcRefineCodes},
    bits::MirroredBits,
    blocks::{Band, Blocks},
    dc_codes::DcCodes,
    scans::{File, Scan},
};
use crate::{
    error::{Error, Result},
    grid::Grid,
    huffman::PADDING,
    index::Point,
    scan::Options,
    simd::{mirror, with_best},
    stuffing::{End, Trouble, offset, unstuff},
    tables,
};

/// A scan's data, and its tables.
#[derive(Debug, Default)]
pub(super) struct Source {
    data: Data,
    tables: Tables,
}

/// A scan's data.
#[derive(Debug, Default)]
pub(super) struct Data {
    /// Without stuffing, each byte mirrored.
    pub(super) bytes: Vec<u8>,
    /// Positions in `bytes` at which the intervals after the first one begin.
    restarts: Vec<u32>,
    /// Positions in `bytes` at which bytes were removed.
    removed: Vec<u32>,
}

/// The meaning of a scan's codes.
#[derive(Debug, Default)]
enum Tables {
    /// First coefficients, one table per component of the scan. Scans that add a bit to them have no codes.
    #[default]
    None,
    Dc(Vec<Box<DcCodes>>),
    AcFirst(Box<AcFirstCodes>),
    AcRefine(Box<AcRefineCodes>),
}

/// A scan, and the current position in it.
pub(super) struct Cursor<'a> {
    /// The file.
    bytes: &'a [u8],
    pub(super) scan: &'a Scan<'a>,
    /// Its number, from 1 on, and the number of scans.
    number: [usize; 2],
    pub(super) grid: &'a Grid,
    pub(super) options: Options<'a>,
    pub(super) data: &'a Data,
    tables: &'a Tables,
    /// Byte at which its loaded data begins, and how the data ends.
    start: usize,
    end: End,
    /// Units: how many there are, and how many were read.
    units: usize,
    read: usize,
    /// The next bit of the data.
    pub(super) position: usize,
    /// First coefficients of the last blocks.
    pub(super) sums: [i32; 4],
    /// Number of blocks that an earlier code ended.
    ended: usize,
}

impl Source {
    /// Loads a scan's data and tables, to read from a row of units on: the first row, or one with a known point. Data
    /// after a second point is not loaded.
    pub(super) fn open<'a>(
        &'a mut self,
        File { bytes, first, grid, options, .. }: File<'a>,
        scan: &'a Scan<'a>,
        number: [usize; 2],
        (row, from, to): (usize, Option<Point>, Option<Point>),
    ) -> Result<Cursor<'a>> {
        let Self { data, tables } = self;
        let ([rows, columns], read) = match &scan.header.components[..] {
            // Without the blocks that only pad units.
            [part] => {
                let needed = &grid.components[part.component];
                let [height, width] = needed.blocks(grid.size);
                ([height, width], (row * needed.down).min(height) * width)
            }
            _ => (grid.units(), row * grid.units()[1]),
        };
        let units = rows * columns;
        let restarts = units.div_ceil(scan.interval.unwrap_or(units)) - 1;
        // Some bytes more: the last code may end in them.
        let limit = to.map_or(scan.end, |to| (first + to.byte() + 16).min(scan.end));
        let start = from.map_or(scan.start, |from| first + from.byte()).min(limit);
        let Data { bytes: unstuffed, restarts: found, removed } = data;
        let end = unstuff(options.level, &bytes[..limit], start, restarts, unstuffed, found, removed);
        let end = End { marked: end.marked || limit < bytes.len(), ..end };
        tables.read(scan)?;
        mirror(options.level, unstuffed);
        let position = from.map_or(0, Point::bit);
        let sums = from.map_or([0; 4], Point::sums);
        // In scans of other coefficients, a point holds how many blocks have ended.
        let ended = if scan.header.band[0] > 0 { (sums[0] + (sums[1] << ENDED_BITS)).max(0) as usize } else { 0 };
        Ok(Cursor { bytes, scan, number, grid, options, data, tables, start, end, units, read, position, sums, ended })
    }
}

/// Bits of a point's first value that hold how many blocks have ended.
const ENDED_BITS: u32 = 11;

impl Tables {
    /// Reads the tables of a scan, reusing the memory of tables of its kind.
    fn read(&mut self, scan: &Scan<'_>) -> Result<()> {
        // Definitions were checked when the scans were listed.
        let none = || tables::damaged(scan.place);
        let header = &scan.header;
        *self = match (header.band[0] == 0, header.high > 0, std::mem::take(self)) {
            (true, true, _) => Self::None,
            (true, false, before) => {
                let mut list = if let Self::Dc(list) = before { list } else { Vec::new() };
                list.resize_with(header.components.len(), Box::default);
                for (n, codes) in list.iter_mut().enumerate() {
                    codes.read_table(scan.definition(n)?).ok_or_else(none)?;
                }
                Self::Dc(list)
            }
            (false, false, before) => {
                let mut codes = if let Self::AcFirst(codes) = before { codes } else { Box::default() };
                codes.read_table(scan.definition(0)?, header.band, header.low).ok_or_else(none)?;
                Self::AcFirst(codes)
            }
            (false, true, before) => {
                let mut codes = if let Self::AcRefine(codes) = before { codes } else { Box::default() };
                codes.read_table(scan.definition(0)?).ok_or_else(none)?;
                Self::AcRefine(codes)
            }
        };
        Ok(())
    }
}

impl<'a> Cursor<'a> {
    /// The components of the scan: a bit for each.
    pub(super) fn parts(&self) -> u8 {
        self.scan.header.components.iter().fold(0, |set, part| set | 1 << part.component)
    }

    /// Reads a band; it must follow the last one.
    pub(super) fn read(&mut self, band: &Band, blocks: &mut Blocks) -> Result<()> {
        match self.tables {
            Tables::None => self.dc_refine(band, blocks),
            Tables::Dc(tables) => self.dc_first(tables, band, blocks),
            Tables::AcFirst(codes) => self.ac_first(codes, band, blocks),
            Tables::AcRefine(codes) => self.ac_refine(codes, band, blocks),
        }
    }

    /// The first bits of some coefficients.
    fn ac_first(&mut self, codes: &AcFirstCodes, band: &Band, blocks: &mut Blocks) -> Result<()> {
        let area = &band.areas[self.scan.header.components[0].component];
        let first = area.blocks().start;
        self.advance(area.blocks().end, |cursor, range, end| {
            let (level, coefficients, ended) = (cursor.options.level, cursor.scan.header.band, cursor.ended);
            let blocks_at = area.start + range.start - first..area.start + range.end - first;
            let records = &mut blocks.records[blocks_at.clone()];
            let bits = cursor.bits(end);
            let (bits, outcome) = if band.keeps {
                let values = &mut blocks.values[blocks_at];
                with_best(level, AcFirst::<true> { bits, codes, band: coefficients, records, values, ended })
            } else {
                with_best(level, AcFirst::<false> { bits, codes, band: coefficients, records, values: &mut [], ended })
            };
            cursor.came_to(bits, end);
            cursor.ended = outcome?;
            Ok(())
        })
    }

    /// One more bit of some coefficients.
    fn ac_refine(&mut self, codes: &AcRefineCodes, band: &Band, blocks: &mut Blocks) -> Result<()> {
        let area = &band.areas[self.scan.header.components[0].component];
        let (coefficients, low) = (self.scan.band(), self.scan.header.low);
        let first = area.blocks().start;
        let read = self.advance(area.blocks().end, |cursor, range, end| {
            let (level, ended) = (cursor.options.level, cursor.ended);
            let records = &mut blocks.records[area.start + range.start - first..=area.start + range.end - first];
            let bits = cursor.bits(end);
            // Bits above the second are moved into the values.
            let (bits, outcome) = if low == 0 {
                with_best(level, AcRefine::<0> { bits, codes, band: coefficients, records, ended })
            } else {
                with_best(level, AcRefine::<1> { bits, codes, band: coefficients, records, ended })
            };
            cursor.came_to(bits, end);
            cursor.ended = outcome?;
            Ok(())
        });
        if low > 1 {
            blocks.take_over(area, band.keeps, coefficients, low.into());
        }
        read
    }

    /// The current position, for an index whose points count from byte `first`.
    pub(super) fn point(&self, first: usize) -> Option<Point> {
        let byte = self.position / 8;
        let gone = self.data.removed.partition_point(|&at| at as usize <= byte);
        let at = (self.start + byte + gone).checked_sub(first)?;
        let sums = match self.tables {
            Tables::Dc(_) | Tables::None => self.sums,
            _ => [(self.ended & ((1 << ENDED_BITS) - 1)) as i32, (self.ended >> ENDED_BITS) as i32, 0, 0],
        };
        Point::new(at, self.position % 8, &sums)
    }

    /// A reader of the interval's data, which ends at this byte.
    pub(super) fn bits(&self, end: usize) -> MirroredBits<'a> {
        MirroredBits::new(&self.data.bytes[..end + MirroredBits::PADDING], self.position)
    }

    /// Sets the position to that of this reader.
    pub(super) fn came_to(&mut self, bits: MirroredBits<'_>, end: usize) {
        self.position = 8 * (end + MirroredBits::PADDING) - bits.left();
    }

    /// Reads on to unit `to`. For each interval, calls `run` with the units that are left of it and the byte at which
    /// the interval's data ends. `run` moves the position.
    pub(super) fn advance(
        &mut self,
        to: usize,
        mut run: impl FnMut(&mut Self, Range<usize>, usize) -> Result<(), Trouble>,
    ) -> Result<()> {
        let data = self.data;
        let length = data.bytes.len() - PADDING;
        let each = self.scan.interval.unwrap_or(self.units);
        while self.read < to {
            let n = self.read / each;
            if self.read > 0 && self.read == n * each {
                // If the expected restart marker is missing, so is its data.
                let Some(&start) = data.restarts.get(n - 1) else { return Err(self.damaged(Trouble::End)) };
                self.position = 8 * start as usize;
                (self.sums, self.ended) = ([0; 4], 0);
            }
            let end = data.restarts.get(n).map_or(length, |&at| at as usize);
            let stop = ((n + 1) * each).min(self.units);
            let range = self.read..stop.min(to);
            self.read = range.end;
            run(self, range, end).map_err(|trouble| self.damaged(trouble))?;
            let left = (8 * end).checked_sub(self.position).ok_or_else(|| self.damaged(Trouble::End))?;
            if self.options.strict && self.read == stop && left >= 8 {
                return Err(self.damaged(Trouble::Left(left / 8)));
            }
        }
        Ok(())
    }

    /// The error at the current position.
    fn damaged(&self, trouble: Trouble) -> Error {
        let Self { bytes, scan, number: [number, count], data, end, position, .. } = self;
        let length = bytes.len();
        let is_over = *position > 8 * (data.bytes.len() - PADDING);
        if !end.marked && (matches!(trouble, Trouble::End) || is_over) {
            return Error::damaged(format!("JPEG ends after {length} bytes, in scan {number} of {count}")).at(length);
        }
        let place = scan.place;
        let damaged = |why: String, at| {
            Error::damaged(format!("JPEG is damaged in scan {number} of {count}: {why}{place}")).at(at)
        };
        let at = |byte: usize| offset(bytes, self.start, byte).min(end.at);
        match trouble {
            Trouble::Code if !is_over => {
                let at = at(position / 8);
                damaged(format!("no Huffman code at byte {at}"), at)
            }
            Trouble::Left(bytes) => {
                let at = at(position.div_ceil(8));
                damaged(format!("{bytes} bytes are left at byte {at}, before a marker"), at)
            }
            Trouble::Code | Trouble::End => {
                // The marker after the interval: a restart, or the end of the scan.
                let n = (self.read.saturating_sub(1)) / self.scan.interval.unwrap_or(self.units);
                let at = data.restarts.get(n).map_or(end.at, |&seen| at(seen as usize)).min(end.at);
                damaged(format!("a marker too early at byte {at}"), at)
            }
        }
    }
}
