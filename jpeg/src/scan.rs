//! Decodes sequential scans to planes: only blocks that the window needs are transformed; the rest is skipped symbol by
//! symbol.
//!
//! ```text
//! scan ─ unstuff ─▶ bytes ─ Huffman ─┬─ blocks of the window ─ IDCT ─▶ plane of each component
//!   ▲                                └─ blocks above and beside it: symbols without their values, several at a time
//!   └─ index: from known points         (intervals between restart markers: not at all); below it: nothing
//! ```
//!
//! With an index, data that was skipped once is not read again. Each row of the window is read from the point before it
//! to the point after it, as far as points are known. From there on, the scan is read on and more points are noted. If
//! few coefficients of a block are needed, the index also has the lengths of blocks, so the other coefficients are not
//! read.

#![forbid(unsafe_code)]

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

use smallvec::SmallVec;

use crate::{
    error::{Error, ErrorKind, Result},
    grid::Grid,
    header::{
        DHT, DQT, DRI, EOI, Frame, Header, Place, SOS, ScanComponent, ScanComponents, Segment, next_marker,
        scan_components, segment,
    },
    huffman::{Bits, First, PADDING, Rest, STANDARD},
    index::{Index, Lengths, Point, Points, Spacing},
    simd::{Block, Idct, Level},
    stuffing::{End, Trouble, offset, unstuff},
    tables,
};

/// Number of skipped units from which on the preparation pays.
const FAR: usize = 600;

/// Tables and memory that are reused from image to image.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    tables: Tables,
    /// A scan without stuffing.
    bytes: Vec<u8>,
    /// Where in `bytes` the intervals after the first one begin.
    restarts: Vec<u32>,
    /// Positions in `bytes` at which bytes were removed.
    removed: Vec<u32>,
    /// The points of the index, and new ones.
    known: Points,
    points: Vec<Point>,
    idct: Idct,
}

/// Quantisation and Huffman tables, and the restart interval.
#[derive(Debug, Default)]
struct Tables {
    quant: tables::Quantisation,
    /// Kept for the next image: encoders that do not optimise write the same tables into each file.
    first: [Option<Box<First>>; 4],
    rest: [Option<Box<Rest>>; 4],
    /// The tables that this image has defined: first coefficients, other coefficients.
    named: [[bool; 4]; 2],
    interval: usize,
    level: Level,
}

impl Tables {
    fn begin(&mut self, level: Level) {
        self.level = level;
        self.quant = [None; 4];
        self.named = [[false; 4]; 2];
        self.interval = 0;
    }

    fn read(&mut self, segment: &Segment<'_>) -> Result<()> {
        let Segment { marker, at, bytes } = *segment;
        let read = match marker {
            DQT => tables::quantisation(&bytes[2..], &mut self.quant),
            DHT => self.read_huffman(&bytes[2..]),
            _ => tables::interval(&bytes[2..]).map(|units| self.interval = units),
        };
        read.ok_or_else(|| tables::damaged(Place { marker, at }))
    }

    fn read_huffman(&mut self, body: &[u8]) -> Option<()> {
        let Self { first, rest, named, level, .. } = self;
        tables::definitions(body, |class, slot, text| {
            // Set again only when it is read: a damaged table is undefined.
            named[class][slot] = false;
            match class {
                0 => first[slot].get_or_insert_default().read_table(text)?,
                _ => rest[slot].get_or_insert_default().read_table(text, *level)?,
            }
            named[class][slot] = true;
            Some(())
        })
    }

    fn first(&self, slot: u8) -> Option<&First> {
        let slot = usize::from(slot);
        self.first[slot].as_deref().filter(|_| self.named[0][slot])
    }

    fn prepare_to_skip(&mut self, components: &ScanComponents) {
        for component in components {
            if let Some(Some(rest)) = self.rest.get_mut(usize::from(component.tables[1])) {
                rest.prepare_to_skip(self.level);
            }
        }
    }

    fn rest(&self, slot: u8) -> Option<&Rest> {
        let slot = usize::from(slot);
        self.rest[slot].as_deref().filter(|_| self.named[1][slot])
    }
}

/// Options of a decode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options<'a> {
    pub(crate) index: Option<&'a Index>,
    /// Missing or damaged blocks are gray instead of an error.
    pub(crate) fill: bool,
    /// All of the data is read, and must end with the image.
    pub(crate) strict: bool,
    /// The instructions that may be used.
    pub(crate) level: Level,
}

/// Decodes the part of a sequential file that the grid needs into `data`, which is large enough.
pub(crate) fn decode(
    bytes: &[u8],
    header: &Header,
    grid: &Grid,
    options: Options<'_>,
    memory: &mut Memory,
    data: &mut [u8],
) -> Result<()> {
    if options.fill {
        data.fill(128);
    }
    memory.idct = Idct::with_level(options.level);
    memory.tables.begin(options.level);
    for segment in header.tables(bytes) {
        memory.tables.read(&segment)?;
    }
    if header.standard_codes {
        memory.tables.read(&Segment { marker: DHT, at: header.scan(), bytes: &STANDARD })?;
    }
    let mut scan_header = header.scan_header(bytes);
    let mut start = header.scan();
    let mut missing: u32 = (1 << grid.components.len()) - 1;
    loop {
        let components = scan_components(&header.frame, scan_header, start)?;
        missing &= !components.iter().fold(0, |set, one| set | 1 << one.component);
        let place = Place { marker: SOS, at: start - scan_header.len() - 2 };
        let scan =
            Scan { bytes, place, start, frame: &header.frame, grid, components: &components, level: options.level };
        // An index would leave data unchecked.
        let index = options.index.filter(|_| !options.strict);
        let end = match scan.decode(index, options.strict, memory, data) {
            // Blocks that were not reached are gray.
            Err(error) if options.fill && error.kind() == ErrorKind::Damaged => return Ok(()),
            end => end?,
        };
        if missing == 0 {
            if options.strict && bytes.get(end..end + 2) != Some(&[0xff, EOI]) {
                let place = Place { marker: bytes.get(end + 1).copied().unwrap_or_default(), at: end.min(bytes.len()) };
                return Err(place.damaged("JPEG is damaged behind its image: its end marker is not there"));
            }
            return Ok(());
        }
        (scan_header, start) = next_scan(bytes, end, &mut memory.tables)?;
    }
}

/// Reads the segments up to the next scan; returns its header and the byte at which its data begins.
fn next_scan<'a>(bytes: &'a [u8], mut at: usize, tables: &mut Tables) -> Result<(&'a [u8], usize)> {
    loop {
        let Some((found, marker)) = next_marker(bytes, at) else {
            let length = bytes.len();
            return Err(Error::damaged(format!("JPEG ends after {length} bytes, before its last scan")).at(length));
        };
        at = found + 2;
        match marker {
            EOI => return Err(Place { marker, at: found }.damaged("JPEG lacks a scan")),
            0x01 | 0xd0..=0xd8 => continue,
            _ => {}
        }
        let body = segment(bytes, at)?;
        at += body.len();
        match marker {
            SOS => return Ok((body, at)),
            DQT | DHT | DRI => tables.read(&Segment { marker, at: found, bytes: body })?,
            _ => {}
        }
    }
}

/// A scan of the file.
struct Scan<'a> {
    bytes: &'a [u8],
    place: Place,
    /// Byte at which its data begins.
    start: usize,
    frame: &'a Frame,
    grid: &'a Grid,
    components: &'a ScanComponents,
    level: Level,
}

/// One block of a unit.
struct UnitBlock<'a> {
    /// Index in the frame.
    component: usize,
    first: &'a First,
    rest: &'a Rest,
    quant: &'a [i16; 64],
    side: usize,
    pitch: usize,
    /// Blocks from unit to unit: vertical, horizontal.
    units: [usize; 2],
    /// Position in the data of the first unit's block.
    at: usize,
}

impl Scan<'_> {
    /// Decodes the blocks that the grid needs; returns the end of the scan's data.
    fn decode(&self, index: Option<&Index>, strict: bool, memory: &mut Memory, data: &mut [u8]) -> Result<usize> {
        let Memory { tables, bytes, restarts, removed, known, points, idct } = memory;
        let alone = self.components.len() == 1;
        let grid = self.grid;
        // Blocks of a single component follow each other line by line, without those outside of the image.
        let (units, y, x) = if alone {
            let needed = &grid.components[self.components[0].component];
            let blocks = needed.blocks(grid.size);
            let range =
                |range: &Range<usize>, each: usize, most: usize| range.start * each..(range.end * each).min(most);
            (blocks, range(&grid.y, needed.down, blocks[0]), range(&grid.x, needed.across, blocks[1]))
        } else {
            (grid.units(), grid.y.clone(), grid.x.clone())
        };
        // Points have values for all components.
        let index = index.filter(|_| tables.interval == 0 && Point::is_for(grid.components.len()));
        let index = index.filter(|_| self.components.len() == grid.components.len());
        let index = index.map(|index| (index, Index::key(self.bytes)));
        // Few values of each block are needed; in some cases so few that lengths are worth their memory.
        let sides = || self.components.iter().map(|one| grid.components[one.component].side);
        let few = index.is_some() && sides().max() <= Some(4);
        known.clear();
        let found = index.map(|(index, key)| index.find(key, units[1], few, known)).unwrap_or_default();
        let (lengths, spacing) = (found.lengths, Spacing::new(found.log2, units[1]));
        let extent = Extent { units, y, x, spacing };
        let wants_lengths = lengths.is_none() && few && sides().min() <= Some(2);
        if extent.skipped(known) > FAR || few {
            tables.prepare_to_skip(self.components);
        }
        let mut blocks = SmallVec::<[UnitBlock<'_>; 10]>::new();
        for &ScanComponent { component, tables: [first, rest] } in self.components {
            let needed = &grid.components[component];
            let table = self.frame.components[component].table;
            let lacks =
                |what: &str, slot: u8| self.place.damaged(format_args!("JPEG lacks {what} table {slot} of a scan"));
            let first = tables.first(first).ok_or_else(|| lacks("Huffman", first))?;
            let rest = tables.rest(rest).ok_or_else(|| lacks("Huffman", rest))?;
            let quant = tables.quant[usize::from(table)].as_ref().ok_or_else(|| lacks("quantisation", table))?;
            let (down, across) = if alone { (1, 1) } else { (needed.down, needed.across) };
            for (row, col) in (0..down).flat_map(|row| (0..across).map(move |col| (row, col))) {
                let (side, pitch) = (needed.side, needed.plane.pitch);
                let at = needed.plane.at + (row * pitch + col) * side;
                let units = [down, across];
                blocks.push(UnitBlock { component, first, rest, quant, side, pitch, units, at });
            }
        }
        if tables.interval == 0 {
            return self.walk(
                Known { index, points: known, lengths, wants_lengths, strict },
                &extent,
                Notes { bytes, removed, points },
                &blocks,
                *idct,
                data,
            );
        }
        let intervals = (units[0] * units[1]).div_ceil(tables.interval);
        let end = unstuff(self.level, self.bytes, self.start, intervals - 1, bytes, restarts, removed);
        let mut walk = Walk { restarts, interval: tables.interval, ..Walk::new(bytes, None, &blocks, *idct) };
        walk.left = walk.interval;
        walk.strict = strict;
        let mut row = 0;
        let walked = walk.intervals(&extent, end.marked && !strict, data, &mut row);
        walked.map_err(|trouble| self.damaged(trouble, row, units[0], &end, &walk, 0)).map(|()| end.at)
    }

    /// Decodes a scan without restart markers; with an index, from point to point as far as they are known.
    fn walk(
        &self,
        known: Known<'_>,
        extent: &Extent,
        notes: Notes<'_>,
        blocks: &[UnitBlock<'_>],
        idct: Idct,
        data: &mut [u8],
    ) -> Result<usize> {
        let Notes { bytes, removed, points } = notes;
        let Known { index, points: mut known, mut lengths, wants_lengths, strict } = known;
        let none = Points::default();
        let count = extent.units[0] * extent.units[1] * blocks.len();
        lengths = lengths.filter(|lengths| lengths.from(0).len() == count);
        let new_lengths = || index.filter(|_| wants_lengths).and_then(|(index, key)| index.lengths(key, count));
        if known.len() > 0 {
            lengths = lengths.or_else(new_lengths);
        }
        let mut row = extent.y.start;
        while row < extent.y.end {
            let Range { start, end } = extent.points(row);
            let (Some(from), Some(to)) = (known.get(start), known.get(end)) else { break };
            // One byte more, in case the last is stuffed.
            let file = &self.bytes[..self.bytes.len().min(self.start + to.byte() + 2)];
            unstuff(self.level, file, (self.start + from.byte()).min(file.len()), 0, bytes, &mut Vec::new(), removed);
            let mut walk = Walk::new(bytes, Some(from), blocks, idct);
            let column = extent.x.start - extent.x.start % extent.spacing.every();
            walk.lengths = lengths.as_deref().map(|lengths| (lengths, (row * extent.units[1] + column) * blocks.len()));
            let walked = walk.skip(extent.x.start - column);
            let walked = walked.and_then(|()| walk.decode((row - extent.y.start, 0..extent.x.len()), data));
            let walked = walked.and_then(|()| {
                // Wrong lengths lead to another position.
                let rest = extent.x.end.next_multiple_of(extent.spacing.every()).min(extent.units[1]) - extent.x.end;
                if lengths.is_none() {
                    return Ok(true);
                }
                walk.skip(rest).map(|()| {
                    walk.point(from.byte(), |byte| removed.partition_point(|&at| at as usize <= byte)) == Some(to)
                })
            });
            if !matches!(walked, Ok(true)) || walk.is_over() {
                // The index is wrong, which does not happen with our own: decode without it.
                (known, lengths, row) = (&none, None, extent.y.start);
                break;
            }
            row += 1;
        }
        if row == extent.y.end {
            // A file has points only if it has all of its data, so its end need not be found.
            return Ok(self.bytes.len());
        }

        // From the last point that helps to the end of the window.
        let from = extent.points(row).start.min(known.len().saturating_sub(1));
        let point = known.get(from);
        let skipped = point.map_or(0, Point::byte);
        let begin = (self.start + skipped).min(self.bytes.len());
        let end = unstuff(self.level, self.bytes, begin, 0, bytes, &mut Vec::new(), removed);
        points.clear();
        let mut walk = Walk::new(bytes, point, blocks, idct);
        // The error for a file without an end marker must not depend on the index.
        let lengths = lengths.or_else(new_lengths).filter(|_| end.marked);
        walk.lengths = lengths.as_deref().map(|lengths| (lengths, extent.unit(from) * blocks.len()));
        let mut trail = Trail { from, wanted: index.map(|_| known.len()), points, removed, gone: 0, skipped };
        walk.strict = strict;
        let walked = walk.rows(extent, end.marked && !strict, &mut trail, data, &mut row);
        walked.map_err(|trouble| self.damaged(trouble, row, extent.units[0], &end, &walk, skipped))?;
        if let Some((index, key)) = index
            && end.marked
            && !points.is_empty()
        {
            points.splice(0..0, known.iter());
            index.put(key, points, extent.spacing);
        }
        Ok(end.at)
    }

    /// `begin` is the position in the scan's data at which the walk's bytes begin.
    fn damaged(&self, trouble: Trouble, row: usize, rows: usize, end: &End, walk: &Walk<'_>, begin: usize) -> Error {
        let height = self.grid.size[0] as usize;
        let each = if self.components.len() == 1 { height.div_ceil(rows) } else { 8 * self.most_down() };
        let found = (row * each).min(height);
        if !end.marked && (matches!(trouble, Trouble::End) || walk.is_over()) {
            let length = self.bytes.len();
            return Error::damaged(format!("JPEG ends after {found} of {height} rows ({length} bytes)")).at(length);
        }
        let damaged =
            |why: String, at| Error::damaged(format!("JPEG is damaged after {found} of {height} rows: {why}")).at(at);
        if let Trouble::Left(bytes) = trouble {
            let at = offset(self.bytes, self.start + begin, walk.bits.position().div_ceil(8)).min(end.at);
            return damaged(format!("{bytes} bytes are left at byte {at}, before a marker"), at);
        }
        if matches!(trouble, Trouble::Code) && !walk.is_over() {
            let at = offset(self.bytes, self.start + begin, walk.bits.position() / 8).min(end.at);
            return damaged(format!("no Huffman code at byte {at} (scan FF DA at byte {})", self.place.at), at);
        }
        // The marker after the interval: a restart, or the end of the scan.
        let restart = walk.restarts.get(walk.begun).map(|&seen| offset(self.bytes, self.start + begin, seen as usize));
        let at = restart.unwrap_or(end.at).min(end.at);
        let marker = self.bytes.get(at + 1).copied().unwrap_or_default();
        damaged(format!("a marker too early{}", Place { marker, at }), at)
    }

    fn most_down(&self) -> usize {
        self.grid.components.iter().map(|needed| needed.down).max().unwrap_or(1)
    }
}

/// The units of a scan, and those of the window.
struct Extent {
    units: [usize; 2],
    y: Range<usize>,
    x: Range<usize>,
    /// Spacing of the points.
    spacing: Spacing,
}

impl Extent {
    /// Points per row: one for its first unit, and one for every further `every` units.
    fn a_row(&self) -> usize {
        self.spacing.a_row as usize
    }

    /// About how many units are skipped.
    fn skipped(&self, known: &Points) -> usize {
        let Self { units, y, x, spacing } = self;
        if known.get(self.points(y.end - 1).end).is_some() {
            return y.len() * (x.start % spacing.every());
        }
        y.end * units[1] - y.len() * x.len()
    }

    /// The point at or before the window's first unit of a row, and the point at or after its last.
    fn points(&self, row: usize) -> Range<usize> {
        let first = row * self.a_row();
        first + self.x.start / self.spacing.every()..first + self.x.end.div_ceil(self.spacing.every())
    }

    /// The unit of a point, counted from the first unit.
    fn unit(&self, point: usize) -> usize {
        point / self.a_row() * self.units[1] + point % self.a_row() * self.spacing.every()
    }
}

/// What the index has of a file, and where new points are noted.
struct Known<'a> {
    index: Option<(&'a Index, u128)>,
    points: &'a Points,
    lengths: Option<Arc<Lengths>>,
    /// Whether there are no lengths, and they would help.
    wants_lengths: bool,
    /// Whether all of the data must be read.
    strict: bool,
}

/// Memory for a scan without restarts.
struct Notes<'a> {
    bytes: &'a mut Vec<u8>,
    removed: &'a mut Vec<u32>,
    points: &'a mut Vec<Point>,
}

/// The points that a walk notes for the index.
struct Trail<'a> {
    /// The point at which it begins.
    from: usize,
    /// The first unknown point; `None` if nothing is to be noted.
    wanted: Option<usize>,
    points: &'a mut Vec<Point>,
    /// Positions at which bytes were removed; how many of them precede the last point; the position in the data at
    /// which the walk's bytes begin.
    removed: &'a [u32],
    gone: usize,
    skipped: usize,
}

impl Trail<'_> {
    /// Notes a point, if it is the next one.
    fn note(&mut self, point: usize, walk: &Walk<'_>) {
        if self.wanted != Some(point) {
            return;
        }
        let point = walk.point(self.skipped, |byte| {
            while self.removed.get(self.gone).is_some_and(|&at| at as usize <= byte) {
                self.gone += 1;
            }
            self.gone
        });
        // A position that a point can't hold ends the trail.
        self.wanted = point.filter(|_| !walk.is_over()).map(|point| {
            self.points.push(point);
            self.wanted.unwrap_or_default() + 1
        });
    }
}

/// Reads the units of a scan one after another.
struct Walk<'a> {
    bits: Bits<'a>,
    bytes: &'a [u8],
    restarts: &'a [u32],
    /// Units between restarts, or 0; how many of them are left, and how many intervals were begun after the first.
    interval: usize,
    left: usize,
    begun: usize,
    /// First coefficients of the last blocks.
    sums: [i32; 4],
    blocks: &'a [UnitBlock<'a>],
    idct: Idct,
    /// Lengths of blocks, and the number of the next block. With them, only planes of at most 4 values per block are
    /// decoded.
    lengths: Option<(&'a Lengths, usize)>,
    /// Whether an interval must end with its last unit.
    strict: bool,
}

impl<'a> Walk<'a> {
    /// Begins at a point, which must be in the first byte, or at the first unit.
    fn new(bytes: &'a [u8], from: Option<Point>, blocks: &'a [UnitBlock<'a>], idct: Idct) -> Self {
        let (bit, sums) = from.map_or((0, [0; 4]), |point| (point.bit(), point.sums()));
        let bits = Bits::new(bytes, bit);
        let (restarts, lengths) = (&[][..], None);
        Self { bits, bytes, restarts, interval: 0, left: 0, begun: 0, sums, blocks, idct, lengths, strict: false }
    }

    /// The current position: `skipped` bytes of the scan precede the walk's bytes, and `gone` returns how many bytes
    /// were removed before a byte.
    fn point(&self, skipped: usize, gone: impl FnOnce(usize) -> usize) -> Option<Point> {
        let position = self.bits.position();
        let byte = position / 8;
        Point::new(skipped + byte + gone(byte), position % 8, &self.sums)
    }

    /// Decodes the units of the window, without restart markers. If the data has no end marker, goes on to the last
    /// unit: whether a file is whole must not depend on the window.
    fn rows(
        &mut self,
        extent: &Extent,
        ended: bool,
        trail: &mut Trail<'_>,
        data: &mut [u8],
        row: &mut usize,
    ) -> Result<(), Trouble> {
        let Extent { units, y, x, .. } = extent;
        let a_row = extent.a_row();
        *row = trail.from / a_row;
        let spacing = extent.spacing.every();
        let mut column = trail.from % a_row * spacing;
        trail.note(trail.from, self);
        // If no points are noted, one row at a time.
        let every = if trail.wanted.is_some() { spacing } else { units[1] };
        while *row < units[0] {
            let last = *row + 1 == y.end && ended;
            let inside = if y.contains(row) { x.clone() } else { units[1]..units[1] };
            while column < units[1] && !(last && column >= x.end) {
                let to = (column + every - column % every).min(units[1]);
                let wanted = inside.start.clamp(column, to)..inside.end.clamp(column, to);
                self.skip(wanted.start - column)?;
                if !wanted.is_empty() {
                    self.decode((*row - y.start, wanted.start - x.start..wanted.end - x.start), data)?;
                }
                if last && trail.wanted.is_none() && wanted.end == x.end {
                    break;
                }
                self.skip(to - wanted.end)?;
                column = to;
                trail.note(*row * a_row + to.div_ceil(spacing), self);
            }
            if self.is_over() {
                return Err(Trouble::End);
            }
            if last {
                break;
            }
            (*row, column) = (*row + 1, 0);
        }
        self.check_left()
    }

    /// The same with restart markers.
    fn intervals(&mut self, extent: &Extent, ended: bool, data: &mut [u8], row: &mut usize) -> Result<(), Trouble> {
        let Extent { units, y, x, .. } = extent;
        let mut column = 0;
        if let Some(whole) = (y.start * units[1] + x.start).checked_div(self.interval).filter(|_| !self.strict) {
            // Nothing of these intervals is needed, and their ends are known.
            let whole = whole.min(self.restarts.len());
            (*row, column) = (whole * self.interval / units[1], whole * self.interval % units[1]);
            self.begin(whole)?;
        }
        while *row < units[0] {
            let inside = y.contains(row);
            if inside {
                self.skip(x.start.saturating_sub(column))?;
                let rows = (*row - y.start, column.max(x.start) - x.start..x.len());
                self.decode(rows, data)?;
                column = x.end;
            }
            if *row + 1 == y.end && ended {
                break;
            }
            self.skip(units[1] - column)?;
            if self.is_over() {
                return Err(Trouble::End);
            }
            (*row, column) = (*row + 1, 0);
        }
        if self.is_over() { Err(Trouble::End) } else { self.check_left() }
    }

    /// Checks that less than a byte of padding is left between the last unit and the marker after it, if `strict` is
    /// set.
    fn check_left(&self) -> Result<(), Trouble> {
        let left = (8 * self.end()).saturating_sub(self.bits.position()) / 8;
        if self.strict && left > 0 { Err(Trouble::Left(left)) } else { Ok(()) }
    }

    /// Goes to interval `n` of the scan.
    fn begin(&mut self, n: usize) -> Result<(), Trouble> {
        self.begun = n;
        self.left = self.interval;
        self.sums = [0; 4];
        let start = match n {
            0 => 0,
            n => *self.restarts.get(n - 1).ok_or(Trouble::End)? as usize,
        };
        self.bits = Bits::new(self.bytes, 8 * start);
        Ok(())
    }

    /// Whether more bits were read than the interval has.
    fn is_over(&self) -> bool {
        self.bits.position() > 8 * self.end()
    }

    /// The end of the interval.
    fn end(&self) -> usize {
        self.restarts.get(self.begun).map_or(self.bytes.len() - PADDING, |&end| end as usize)
    }

    /// Called before each unit.
    #[inline(always)]
    fn count(&mut self) -> Result<(), Trouble> {
        if self.interval > 0 {
            if self.left == 0 {
                if self.is_over() {
                    return Err(Trouble::End);
                }
                self.check_left()?;
                self.begin(self.begun + 1)?;
            }
            self.left -= 1;
        }
        Ok(())
    }

    fn skip(&mut self, units: usize) -> Result<(), Trouble> {
        if self.lengths.is_some() {
            return self.step_over(units, |_, bits, block, sum, known| {
                let first = if known { bits.first(block.first) } else { bits.skip_block(block.first, block.rest) };
                first.map(|difference| *sum = sum.wrapping_add(difference))
            });
        }
        for _ in 0..units {
            self.count()?;
            // A copy stays in registers.
            let mut bits = self.bits;
            for block in self.blocks {
                let difference = bits.skip_block(block.first, block.rest);
                self.sums[block.component] = self.sums[block.component].wrapping_add(difference.ok_or(Trouble::Code)?);
            }
            self.bits = bits;
        }
        Ok(())
    }

    /// Decodes units of the window in one row; `columns` counts from the window.
    fn decode(&mut self, (row, columns): (usize, Range<usize>), data: &mut [u8]) -> Result<(), Trouble> {
        if self.lengths.is_some() {
            return self.decode_low((row, columns), data);
        }
        if self.blocks.iter().all(|block| block.side == 8) {
            return self.decode_whole((row, columns), data);
        }
        let mut coefs: Block = [0; 128];
        for column in columns {
            self.count()?;
            let mut bits = self.bits;
            for block in self.blocks {
                let UnitBlock { component, first, rest, quant, side, pitch, units: [down, across], at } = *block;
                let at = at + (row * down * pitch + column * across) * side;
                let out = &mut data[at..];
                coefs[..64].fill(0);
                let (difference, flat) = match side {
                    8 => bits.block(first, rest, &mut coefs).ok_or(Trouble::Code)?,
                    1 => (bits.skip_block(first, rest).ok_or(Trouble::Code)?, true),
                    side => {
                        // In the file's order, the square's far corner is the last coefficient used.
                        let end = if side == 4 { 25 } else { 5 };
                        (bits.low_block(first, rest, end, &mut coefs).ok_or(Trouble::Code)?, false)
                    }
                };
                let sum = self.sums[component].wrapping_add(difference);
                self.sums[component] = sum;
                coefs[0] = sum as i16;
                if flat {
                    Idct::flat(side, coefs[0], quant, out, pitch);
                } else {
                    self.idct.run(side, &coefs, quant, out, pitch);
                }
            }
            self.bits = bits;
        }
        Ok(())
    }
}

/// A block whose coefficients were read but not yet transformed: the place of its values, the distance of their rows,
/// its quantisation table, and whether only the first coefficient is not zero.
type Late<'a> = (usize, usize, &'a [i16; 64], bool);

/// Units of whole blocks.
impl Walk<'_> {
    /// Each block is transformed after the next one was read. Its coefficients, which are stored one by one, have then
    /// left the store buffer; wider loads would wait for that.
    fn decode_whole(&mut self, (row, columns): (usize, Range<usize>), data: &mut [u8]) -> Result<(), Trouble> {
        let mut coefs: [Block; 2] = [[0; 128]; 2];
        let mut now = 0;
        let mut late: Option<Late<'_>> = None;
        let idct = self.idct;
        let transform = |(at, pitch, quant, flat): Late<'_>, coefs: &Block, data: &mut [u8]| {
            if flat {
                Idct::flat(8, coefs[0], quant, &mut data[at..], pitch);
            } else {
                idct.run(8, coefs, quant, &mut data[at..], pitch);
            }
        };
        let read = 'units: {
            for column in columns {
                if let Err(trouble) = self.count() {
                    break 'units Err(trouble);
                }
                let mut bits = self.bits;
                for block in self.blocks {
                    let UnitBlock { component, first, rest, quant, pitch, units: [down, across], at, .. } = *block;
                    let at = at + (row * down * pitch + column * across) * 8;
                    let block = &mut coefs[now];
                    block[..64].fill(0);
                    let Some((difference, flat)) = bits.block(first, rest, block) else {
                        break 'units Err(Trouble::Code);
                    };
                    let sum = self.sums[component].wrapping_add(difference);
                    self.sums[component] = sum;
                    block[0] = sum as i16;
                    now ^= 1;
                    if let Some(before) = late.replace((at, pitch, quant, flat)) {
                        transform(before, &coefs[now], data);
                    }
                }
                self.bits = bits;
            }
            Ok(())
        };
        // Also before damage.
        if let Some(last) = late {
            transform(last, &coefs[now ^ 1], data);
        }
        read
    }
}

/// Units whose blocks have known lengths.
impl Walk<'_> {
    /// Goes through units and notes new lengths. `read` adds the difference of a block's first coefficient to the sum.
    /// It gets bits at the block's beginning, and must leave them at its end unless the block's length is known.
    #[inline(always)]
    fn step_over(
        &mut self,
        units: usize,
        mut read: impl FnMut(usize, &mut Bits<'_>, &UnitBlock<'_>, &mut i32, bool) -> Option<()>,
    ) -> Result<(), Trouble> {
        let Some((lengths, number)) = self.lengths else { return Ok(()) };
        let each = self.blocks.len();
        for (unit, lengths) in lengths.from(number).chunks_exact(each).take(units).enumerate() {
            let mut at = self.bits.position();
            for (block, length) in self.blocks.iter().zip(lengths) {
                // The start of each block follows from the lengths alone, so the processor can read several blocks at a
                // time.
                let mut bits = Bits::new(self.bytes, at);
                let known = length.load(Ordering::Relaxed);
                read(unit, &mut bits, block, &mut self.sums[block.component], known > 0).ok_or(Trouble::Code)?;
                at = if known > 0 { at + usize::from(known) } else { note(length, at, bits.position()) };
            }
            self.bits = Bits::new(self.bytes, at);
        }
        self.lengths = Some((lengths, number + units * each));
        Ok(())
    }

    /// Decodes units to planes of at most 4 values per block.
    fn decode_low(&mut self, (row, columns): (usize, Range<usize>), data: &mut [u8]) -> Result<(), Trouble> {
        let mut coefs: Block = [0; 128];
        let idct = self.idct;
        let begin = columns.start;
        self.step_over(columns.len(), |unit, bits, block, sum, known| {
            let UnitBlock { first, rest, quant, side, pitch, units: [down, across], at, .. } = *block;
            let out = &mut data[at + (row * down * pitch + (begin + unit) * across) * side..];
            // Only rows that the transform reads must be cleared.
            let end = match side {
                4 => {
                    coefs[..32].fill(0);
                    25
                }
                _ => {
                    coefs[..16].fill(0);
                    5
                }
            };
            let difference = match (side, known) {
                (1, true) => bits.first(first)?,
                (1, false) => bits.skip_block(first, rest)?,
                (_, true) => bits.low(first, rest, end, &mut coefs)?.0,
                (_, false) => bits.low_block(first, rest, end, &mut coefs)?,
            };
            *sum = sum.wrapping_add(difference);
            coefs[0] = *sum as i16;
            match side {
                1 => Idct::flat(side, coefs[0], quant, out, pitch),
                _ => idct.run(side, &coefs, quant, out, pitch),
            }
            Some(())
        })
    }
}

/// Notes a block's length if it is short enough; returns its end.
fn note(length: &AtomicU8, start: usize, end: usize) -> usize {
    // After the end of the data, positions do not advance.
    if let Some(bits) = end.checked_sub(start).and_then(|bits| u8::try_from(bits).ok()) {
        length.store(bits, Ordering::Relaxed);
    }
    end
}
