//! Progressive files: each scan adds some bits of some coefficients, and the image is made when the last one was read.
//!
//! ```text
//! scans ── unstuff ─┬─ dc ───────────────────────▶ first coefficients ─┐
//!  (listed first)   ├─ ac_first ─▶ values of the window's blocks ──────┼─ merge, IDCT ─▶ plane of each component
//!                   │      └─────▶ Record of each block ───────────────┤
//!                   └─ ac_refine ───▶ Record ──────────────────────────┘
//! ```
//!
//! What a newcomer would get wrong:
//!
//! 1. Most of the time goes into the scans that add a bit. Their symbols tell how many zeros to pass, and for each value
//!    that is passed a bit follows. Decoders walk over the coefficients one by one; here a block is 64 bits of "not zero", so
//!    that the end of a run is one instruction (the n-th set bit of a mask: PDEP) and all its bits are read by one more.
//!    Values are not touched: a [`Record`] keeps the added bits, and the transform adds them.
//! 2. The loops have no branch that depends on what the data says (end of block, of band, zero or not): a mispredicted one
//!    takes as long as two symbols.
//! 3. Blocks above the window have no values, but a `Record`: whether a coefficient is zero decides what a later bit means.
//!    Nothing below the window is read.
//! 4. Where an image is wanted at 1/2, 1/4 or 1/8, scans of coefficients that the smaller transforms do not look at are left
//!    out, unless a later scan that is wanted depends on them.

#![forbid(unsafe_code)]

mod ac_first;
mod ac_refine;
mod bits;
mod blocks;
mod cursor;
mod dc;
mod scans;

use std::ops::Range;

use smallvec::SmallVec;

use self::{
    blocks::{Band, Blocks},
    cursor::Source,
    scans::{Scan, scans},
};
use crate::{
    error::{Error, ErrorKind, Result},
    grid::Grid,
    header::Header,
    order::natural,
    scan::Options,
};

/// Tables and memory that serve image after image.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// For each scan of a file.
    sources: Vec<Source>,
    blocks: Blocks,
}

/// Blocks of a band, about: so many that changing from scan to scan costs little, and so few that they stay in the cache.
const BAND_BLOCKS: usize = 2000;

/// Decodes what the grid needs into `out`, which holds it.
pub(crate) fn decode(
    bytes: &[u8],
    header: &Header,
    grid: &Grid,
    options: Options<'_>,
    memory: &mut Memory,
    out: &mut [u8],
) -> Result<()> {
    let Memory { sources, blocks } = memory;
    let (scans, listed) = scans(bytes, header);
    let is_filled = |error: &Error| options.fill && error.kind() == ErrorKind::Damaged;
    if let Err(error) = listed
        && !is_filled(&error)
    {
        return Err(error);
    }
    let wanted = wanted(&scans.list, grid, options.strict);
    sources.resize_with(sources.len().max(scans.list.len()), Source::default);
    let count = scans.list.len();
    let opened = scans.list.iter().zip(sources).enumerate().filter(|(n, _)| wanted[*n]);
    let opened = opened.map(|(n, (scan, source))| source.open((bytes, grid, options), scan, [n + 1, count]));
    let mut cursors = opened.collect::<Result<Vec<_>>>()?;
    // Components of which a scan was damaged: what later ones add has no meaning.
    let mut broken = 0;
    for rows in bands(grid, options.strict) {
        let band = Band::new(grid, rows);
        blocks.begin(&band)?;
        for cursor in &mut cursors {
            if cursor.parts() & broken != 0 {
                continue;
            }
            match cursor.read(&band, blocks) {
                Err(error) if is_filled(&error) => broken |= cursor.parts(),
                read => read?,
            }
        }
        if band.keeps {
            blocks.transform(&band, grid, &scans.quant, options, out);
        }
    }
    Ok(())
}

/// Rows of units that are read together: those above the window, the window's, and with `all` those below it.
fn bands(grid: &Grid, all: bool) -> impl Iterator<Item = Range<usize>> {
    let [rows, columns] = grid.units();
    let a_unit: usize = grid.components.iter().map(|needed| needed.down * needed.across).sum();
    let each = (BAND_BLOCKS / (columns * a_unit)).max(1);
    let parts = [0..grid.y.start, grid.y.clone(), grid.y.end..if all { rows } else { grid.y.end }];
    parts
        .into_iter()
        .flat_map(move |Range { start, end }| (start..end).step_by(each).map(move |from| from..(from + each).min(end)))
}

/// Which scans are needed, if not `all`.
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
                    // Where its bits are depends on what was zero before.
                    needed[part.component] |= scan.band();
                }
            }
        }
    }
    wanted
}
