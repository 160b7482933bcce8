//! A scan that is read: its data, its intervals, and what is said of damage.

use std::ops::Range;

use super::{
    ac_first::{AcFirst, AcFirstCodes},
    ac_refine::{AcRefine, AcRefineCodes},
    bits::MirroredBits,
    blocks::{Area, Blocks},
    scans::Scan,
};
use crate::{
    error::{Error, Result},
    grid::Grid,
    huffman::{First, PADDING},
    scan::Options,
    simd::{mirror, with_best},
    stuffing::{End, Trouble, offset, unstuff},
    tables,
};

/// A scan's data, and the tables of its kind.
#[derive(Debug, Default)]
pub(super) struct Tables {
    data: Data,
    dc: [Box<First>; 4],
    ac_first: Box<AcFirstCodes>,
    ac_refine: Box<AcRefineCodes>,
}

/// A scan's data.
#[derive(Debug, Default)]
pub(super) struct Data {
    /// Without stuffing.
    pub(super) bytes: Vec<u8>,
    /// Where in `bytes` the intervals after the first one begin.
    restarts: Vec<u32>,
    /// Where in `bytes` something was left out.
    removed: Vec<u32>,
}

/// Why a scan can't be read on, and the bit of its data that it was noticed at.
pub(super) type Stop = (Trouble, usize);

/// A scan, and what is wanted of it.
pub(super) struct Reading<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) scan: &'a Scan<'a>,
    /// Which one it is, from 1 on, and of how many.
    pub(super) number: [usize; 2],
    pub(super) grid: &'a Grid,
    pub(super) areas: &'a [Area],
    pub(super) options: Options<'a>,
}

impl Reading<'_> {
    pub(super) fn read(&self, tables: &mut Tables, blocks: &mut Blocks) -> Result<()> {
        let Tables { data, dc, ac_first, ac_refine } = tables;
        let Scan { header, place, start, .. } = self.scan;
        let intervals = self.units().iter().product::<usize>().div_ceil(self.scan.interval.max(1));
        let most = if self.scan.interval == 0 { 0 } else { intervals - 1 };
        let end = unstuff(self.bytes, *start, most, &mut data.bytes, &mut data.restarts, &mut data.removed);
        // Definitions were looked at when they were listed.
        let none = || tables::damaged(*place);
        let is_dc = header.band[0] == 0;
        if !is_dc {
            mirror(self.options.level, &mut data.bytes);
        }
        let area = &self.areas[header.components[0].component];
        let read = match (is_dc, header.high > 0) {
            (true, false) => {
                for (n, table) in dc.iter_mut().enumerate().take(header.components.len()) {
                    table.read_table(self.scan.definition(n)?).ok_or_else(none)?;
                }
                self.dc_first(data, dc, blocks)
            }
            (true, true) => self.dc_refine(data, blocks),
            (false, false) => {
                ac_first.read_table(self.scan.definition(0)?, header.low).ok_or_else(none)?;
                self.ac_first(data, ac_first, blocks, area)
            }
            (false, true) => {
                ac_refine.read_table(self.scan.definition(0)?).ok_or_else(none)?;
                let read = self.ac_refine(data, ac_refine, blocks, area);
                if header.low > 1 {
                    blocks.take_over(area, self.scan.band(), header.low.into());
                }
                read
            }
        };
        read.map_err(|stop| self.damaged(stop, data, &end))
    }

    /// Units of the scan, down and across: blocks of the one component, without those that only fill up units of the frame, or
    /// units of the frame.
    pub(super) fn units(&self) -> [usize; 2] {
        match &self.scan.header.components[..] {
            [part] => self.grid.components[part.component].blocks(self.grid.size),
            _ => self.grid.units(),
        }
    }

    /// Calls `run` for each interval that has some of the first `wanted` units: with those, the byte where its data begins and the
    /// one where it ends. `run` gives the bit that it came to.
    pub(super) fn each_interval(
        &self,
        data: &Data,
        wanted: usize,
        mut run: impl FnMut(Range<usize>, Range<usize>) -> Result<usize, Stop>,
    ) -> Result<(), Stop> {
        let length = data.bytes.len() - PADDING;
        let each = if self.scan.interval == 0 { wanted } else { self.scan.interval };
        for (n, start) in (0..wanted).step_by(each.max(1)).enumerate() {
            let from = match n {
                0 => 0,
                // The marker that is due is another one.
                n => *data.restarts.get(n - 1).ok_or((Trouble::End, 8 * length))? as usize,
            };
            let to = data.restarts.get(n).map_or(length, |&at| at as usize);
            let at = run(start..(start + each).min(wanted), from..to)?;
            let left = (8 * to).checked_sub(at).ok_or((Trouble::End, at))?;
            if self.options.strict && left >= 8 {
                return Err((Trouble::Left(left / 8), at));
            }
        }
        Ok(())
    }

    /// Coefficients of a band, for the first time.
    fn ac_first(&self, data: &Data, codes: &AcFirstCodes, blocks: &mut Blocks, area: &Area) -> Result<(), Stop> {
        let (level, band, kept) = (self.options.level, self.scan.header.band, area.kept());
        self.each_mirrored_interval(data, area, |range, mut bits| {
            let mut ended = 0;
            for (keeps, part) in [(false, 0..kept.start), (true, kept.clone()), (false, kept.end..usize::MAX)] {
                let part = range.start.max(part.start)..range.end.min(part.end);
                if part.is_empty() {
                    continue;
                }
                let records = &mut blocks.records[area.record..][part.clone()];
                let (after, outcome) = if keeps {
                    let values = &mut blocks.values[area.value + part.start - kept.start..][..part.len()];
                    with_best(level, AcFirst::<true> { bits, codes, band, records, values, ended })
                } else {
                    with_best(level, AcFirst::<false> { bits, codes, band, records, values: &mut [], ended })
                };
                bits = after;
                match outcome {
                    Ok(more) => ended = more,
                    Err(trouble) => return (bits, Err(trouble)),
                }
            }
            (bits, Ok(()))
        })
    }

    /// A bit more of the coefficients of a band.
    fn ac_refine(&self, data: &Data, codes: &AcRefineCodes, blocks: &mut Blocks, area: &Area) -> Result<(), Stop> {
        let (level, band, low) = (self.options.level, self.scan.band(), self.scan.header.low);
        self.each_mirrored_interval(data, area, |range, bits| {
            let records = &mut blocks.records[area.record..][range.start..=range.end];
            // Bits above the second are taken over into the values when the scan was read.
            if low == 0 {
                with_best(level, AcRefine::<0> { bits, codes, band, records })
            } else {
                with_best(level, AcRefine::<1> { bits, codes, band, records })
            }
        })
    }

    /// Calls `run` for each interval of the component's blocks that are read.
    fn each_mirrored_interval<'d>(
        &self,
        data: &'d Data,
        area: &Area,
        mut run: impl FnMut(Range<usize>, MirroredBits<'d>) -> (MirroredBits<'d>, Result<(), Trouble>),
    ) -> Result<(), Stop> {
        self.each_interval(data, area.width * area.read, |range, span| {
            let bytes = &data.bytes[..span.end + MirroredBits::PADDING];
            let (bits, outcome) = run(range, MirroredBits::new(&bytes[span.start..]));
            let position = 8 * bytes.len() - bits.left();
            outcome.map(|()| position).map_err(|trouble| (trouble, position))
        })
    }

    fn damaged(&self, (trouble, position): Stop, data: &Data, end: &End) -> Error {
        let Scan { place, start, .. } = self.scan;
        let [number, count] = self.number;
        let length = self.bytes.len();
        let is_over = position > 8 * (data.bytes.len() - PADDING);
        if !end.marked && (matches!(trouble, Trouble::End) || is_over) {
            return Error::damaged(format!("JPEG ends after {length} bytes, in scan {number} of {count}")).at(length);
        }
        let damaged = |why: String, at| {
            Error::damaged(format!("JPEG is damaged in scan {number} of {count}: {why}{place}")).at(at)
        };
        let at = |position: usize| offset(self.bytes, *start, position).min(end.at);
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
                // The marker behind the interval: a restart, or the end of the scan.
                let restart = data.restarts.iter().find(|&&seen| 8 * (seen as usize) < position);
                let at = restart.map_or(end.at, |&seen| at(seen as usize)).min(end.at);
                damaged(format!("a marker too early at byte {at}"), at)
            }
        }
    }
}
