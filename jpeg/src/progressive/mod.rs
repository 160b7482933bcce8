//! Progressive files: each scan adds some bits of some coefficients; the image is made after the last scan.
//!
//! ```text
//! scans ── unstuff ─┬─ dc ───────────────────────▶ first coefficients ─┐
//!  (listed first)   ├─ ac_first ─▶ values of the window's blocks ──────┼─ merge, IDCT ─▶ plane of each component
//!                   │      └─────▶ Record of each block ───────────────┤
//!                   └─ ac_refine ───▶ Record ──────────────────────────┘
//! ```
//!
//! Easy to get wrong:
//!
//! 1. Most of the time goes into scans that add one bit. Their symbols give the number of zeros to pass; then a bit
//!    follows for each non-zero value that is passed. Other decoders visit the coefficients one by one. Here a block is
//!    a 64-bit mask of its non-zero coefficients: the end of a run is one instruction (the n-th set bit of a mask:
//!    PDEP), and all its bits are read by another. Values are not touched: a record keeps the added bits, and the
//!    transform adds them.
//! 2. The loops have no branches that depend on the data (end of block, end of band, zero or not): a mispredicted
//!    branch takes as long as two symbols.
//! 3. All scans are read together, one band of rows after another. The state of the blocks then stays in the cache, and
//!    memory does not grow with the image. Nothing below a window is read. Of the data above it, only the position of
//!    each scan is kept, so an index of these positions (`trail`) leads directly to the window.
//! 4. For an image at 1/2, 1/4 or 1/8, scans of coefficients that the smaller transforms do not use are skipped, unless
//!    a later, needed scan depends on them.

#![forbid(unsafe_code)]

mod ac_first;
mod ac_refine;
mod bits;
mod blocks;
mod cursor;
mod dc;
mod dc_codes;
mod scans;
mod trail;

use std::ops::Range;

use smallvec::SmallVec;

use self::{
    blocks::{Band, Blocks},
    cursor::Source,
    scans::{File, Scan, scans},
    trail::Trail,
};
use crate::{
    error::{Error, ErrorKind, Result},
    grid::Grid,
    header::{BAND_BLOCKS, Header},
    index::{Index, Point, Points},
    order::natural,
    scan::Options,
    tables::Quantisation,
};

/// Tables and memory that are reused from image to image.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// For each scan of a file.
    sources: Vec<Source>,
    blocks: Blocks,
    /// The points of the index.
    known: Points,
}

/// Decodes the part that the grid needs into `out`, which is large enough.
pub(crate) fn decode(
    bytes: &[u8],
    header: &Header,
    grid: &Grid,
    options: Options<'_>,
    memory: &mut Memory,
    out: &mut [u8],
) -> Result<()> {
    let (scans, listed) = scans(bytes, header);
    let is_filled = |error: &Error| options.fill && error.kind() == ErrorKind::Damaged;
    if let Err(error) = listed
        && !is_filled(&error)
    {
        return Err(error);
    }
    let file = File { bytes, first: header.scan(), grid, options, scans: &scans };
    // Files with restart markers do not use the index.
    let has_intervals = scans.list.iter().any(|scan| scan.interval.is_some());
    let index = options.index.filter(|_| Point::is_for(grid.components.len()) && !has_intervals);
    let index = index.filter(|_| !options.fill && !options.strict);
    let mut finish = |blocks: &mut Blocks, band: &Band| blocks.transform(band, grid, &scans.quant, options, out);
    match file.decode(index, memory, &mut finish) {
        // The index is wrong, which does not happen with our own: decode without it.
        Err(_) if index.is_some() && memory.known.len() > 0 => file.decode(None, memory, &mut finish),
        decoded => decoded,
    }
}

/// The coefficients of a band of rows.
pub(crate) struct Coefficients<'a> {
    band: &'a Band,
    blocks: &'a Blocks,
}

impl Coefficients<'_> {
    /// Its rows of units.
    pub(crate) fn rows(&self) -> Range<usize> {
        self.band.rows.clone()
    }

    /// A block in natural order, by the component and the block's row and column in it; `None` outside of the
    /// component.
    pub(crate) fn block(&self, component: usize, [row, column]: [usize; 2]) -> Option<[i16; 64]> {
        let area = &self.band.areas[component];
        let is_inside = area.rows.contains(&row) && column < area.width;
        is_inside.then(|| self.blocks.merged(area, row - area.rows.start, column))
    }
}

/// Calls `see` with the coefficients of a whole image, for which `grid` is; returns the quantisation tables of its
/// components.
pub(crate) fn coefficients(
    bytes: &[u8],
    header: &Header,
    grid: &Grid,
    options: Options<'_>,
    memory: &mut Memory,
    see: &mut dyn FnMut(&Coefficients<'_>),
) -> Result<Quantisation> {
    let (scans, listed) = scans(bytes, header);
    listed?;
    let options = Options { fill: false, ..options };
    let file = File { bytes, first: header.scan(), grid, options, scans: &scans };
    file.decode(None, memory, &mut |blocks, band| see(&Coefficients { band, blocks }))?;
    Ok(scans.quant)
}

impl File<'_> {
    /// Calls `finish` with each band of the window when all scans have added to it.
    fn decode(
        self,
        index: Option<&Index>,
        memory: &mut Memory,
        finish: &mut dyn FnMut(&mut Blocks, &Band),
    ) -> Result<()> {
        let Self { bytes, grid, options, scans, .. } = self;
        let Memory { sources, blocks, known } = memory;
        let wanted = wanted(&scans.list, grid, options.strict);
        let count = scans.list.len();
        let all = wanted.iter().all(|wanted| *wanted);
        let mut trail = index.map(|index| Trail::new(index, bytes, grid, count, all, known));
        let begin = trail.as_ref().map_or(0, |trail| trail.begin(grid.y.start));
        sources.resize_with(sources.len().max(count), Source::default);
        let opened = scans.list.iter().zip(sources).enumerate().filter(|(n, _)| wanted[*n]);
        let opened = opened.map(|(n, (scan, source))| {
            let point = |row: usize| trail.as_ref().and_then(|trail| trail.point(row, n));
            let to = trail.as_ref().and_then(|trail| point(grid.y.end.next_multiple_of(trail.every)));
            source.open(self, scan, [n + 1, count], (begin, point(begin), to))
        });
        let mut cursors = opened.collect::<Result<Vec<_>>>()?;
        // Components with a damaged scan: later scans of them are ignored.
        let mut broken = 0;
        let end = if options.strict { grid.units()[0] } else { grid.y.end };
        let mut row = begin;
        while row < end {
            let every = trail.as_ref().filter(|trail| trail.is_new(end)).map(|trail| trail.every);
            let rows = self.band(row, end, every);
            row = rows.end;
            let band = Band::new(grid, rows);
            if let Some(trail) = &mut trail
                && trail.wants(band.rows.start)
            {
                trail.note(cursors.iter().map(|cursor| cursor.point(self.first)));
            }
            blocks.begin(&band)?;
            for cursor in &mut cursors {
                if cursor.parts() & broken != 0 {
                    continue;
                }
                match cursor.read(&band, blocks) {
                    Err(error) if options.fill && error.kind() == ErrorKind::Damaged => broken |= cursor.parts(),
                    read => read?,
                }
            }
            if band.keeps {
                finish(blocks, &band);
            }
        }
        if let Some(trail) = &mut trail {
            if trail.wants(end) {
                trail.note(cursors.iter().map(|cursor| cursor.point(self.first)));
            }
            trail.save();
        }
        Ok(())
    }

    /// Rows of units from `row` on that are read together, either inside the window or outside of it. They end where a
    /// point is noted.
    fn band(self, row: usize, end: usize, every: Option<usize>) -> Range<usize> {
        let each = every.unwrap_or_else(|| self.grid.rows_of(BAND_BLOCKS));
        let next = [self.grid.y.start, self.grid.y.end, end].into_iter().find(|&next| next > row).unwrap_or(end);
        row..((row / each + 1) * each).min(next)
    }
}

/// For each scan, whether it is needed; all are if `all` is set.
fn wanted(scans: &[Scan<'_>], grid: &Grid, all: bool) -> Vec<bool> {
    let looked_at = |side: usize| {
        let inside = |place: &usize| natural(*place) / 8 < side && natural(*place) % 8 < side;
        (0..64).filter(inside).fold(0, |set, place| set | 1u64 << place)
    };
    let mut needed: SmallVec<[u64; 4]> = grid.components.iter().map(|needed| looked_at(needed.side)).collect();
    let mut wanted = vec![all; scans.len()];
    for (scan, wanted) in scans.iter().zip(&mut wanted).rev() {
        for part in &scan.header.components {
            if needed[part.component] & scan.band() != 0 {
                *wanted = true;
                if scan.header.high > 0 {
                    // The positions of its bits depend on which coefficients were zero before.
                    needed[part.component] |= scan.band();
                }
            }
        }
    }
    wanted
}
