//! Scans of first coefficients: of one component, or of several in units of the frame.

use std::ops::Range;

use smallvec::SmallVec;

use super::{
    blocks::Blocks,
    reading::{Data, Reading, Stop},
};
use crate::{
    huffman::{Bits, First},
    stuffing::Trouble,
};

/// Where the first coefficients of a scan's units go.
struct Places {
    blocks: SmallVec<[Place; 10]>,
    /// Rows of units that are kept, and how many are read.
    kept: Range<usize>,
    read: usize,
}

/// One block of a unit.
struct Place {
    /// Which component of the scan.
    part: usize,
    /// Where that of the first unit that is kept goes, and how far it is from unit to unit, down and across.
    start: usize,
    step: [usize; 2],
}

/// The units of a range, row by row: row and columns.
fn rows(range: Range<usize>, width: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
    (range.start / width..range.end.div_ceil(width)).map(move |row| {
        let within = |at: usize| at.saturating_sub(row * width).min(width);
        (row, within(range.start)..within(range.end))
    })
}

impl Reading<'_> {
    fn places(&self) -> Places {
        let parts = &self.scan.header.components;
        let alone = parts.len() == 1;
        let mut blocks = SmallVec::new();
        for (part, component) in parts.iter().map(|part| part.component).enumerate() {
            let (needed, area) = (&self.grid.components[component], &self.areas[component]);
            let (down, across) = if alone { (1, 1) } else { (needed.down, needed.across) };
            for (row, column) in (0..down).flat_map(|row| (0..across).map(move |column| (row, column))) {
                let start = area.dc + row * area.pitch + column;
                blocks.push(Place { part, start, step: [down * area.pitch, across] });
            }
        }
        let (kept, read) = match &parts[..] {
            [part] => {
                let area = &self.areas[part.component];
                (area.rows.clone(), area.read)
            }
            _ if self.options.strict => (self.grid.y.clone(), self.grid.units()[0]),
            _ => (self.grid.y.clone(), self.grid.y.end),
        };
        Places { blocks, kept, read }
    }

    /// For the first time: differences to the block before.
    pub(super) fn dc_first(&self, data: &Data, tables: &[Box<First>; 4], blocks: &mut Blocks) -> Result<(), Stop> {
        let ([_, width], low) = (self.units(), self.scan.header.low);
        let places = self.places();
        self.each_interval(data, places.read * width, |range, span| {
            let mut bits = Bits::new(&data.bytes, 8 * span.start);
            let mut sums = [0i32; 4];
            for (row, columns) in rows(range, width) {
                let kept = row.checked_sub(places.kept.start).filter(|_| row < places.kept.end);
                for column in columns {
                    for place in &places.blocks {
                        bits.refill();
                        let difference = tables[place.part].read(&mut bits).ok_or((Trouble::Code, bits.position()))?;
                        let sum = &mut sums[place.part];
                        *sum = sum.wrapping_add(difference);
                        if let Some(row) = kept {
                            blocks.dc[place.start + row * place.step[0] + column * place.step[1]] =
                                (*sum << low) as i16;
                        }
                    }
                }
                if bits.position() > 8 * span.end {
                    break;
                }
            }
            Ok(bits.position())
        })
    }

    /// A bit more: one for each block.
    pub(super) fn dc_refine(&self, data: &Data, blocks: &mut Blocks) -> Result<(), Stop> {
        let ([_, width], low) = (self.units(), self.scan.header.low);
        let places = self.places();
        let each = places.blocks.len();
        self.each_interval(data, places.read * width, |range, span| {
            let (first, end) = (range.start, 8 * span.start + each * range.len());
            if end > 8 * span.end {
                return Err((Trouble::End, end));
            }
            for (row, columns) in rows(range, width) {
                let Some(kept) = row.checked_sub(places.kept.start).filter(|_| row < places.kept.end) else { continue };
                let bit = 8 * span.start + (row * width + columns.start - first) * each;
                for (n, place) in places.blocks.iter().enumerate() {
                    let mut bit = bit + n;
                    for column in columns.clone() {
                        let added = data.bytes[bit / 8] >> (7 - bit % 8) & 1;
                        blocks.dc[place.start + kept * place.step[0] + column * place.step[1]] |=
                            i16::from(added) << low;
                        bit += each;
                    }
                }
            }
            Ok(end)
        })
    }
}
