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
mod dc;
mod reading;
mod scans;

use smallvec::SmallVec;

use self::{
    blocks::{Blocks, areas},
    reading::{Reading, Tables},
    scans::{Scan, scans},
};
use crate::{
    error::{Error, ErrorKind, Result},
    grid::Grid,
    header::Header,
    huffman::natural,
    scan::Options,
};

/// Tables and memory that serve image after image.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    tables: Tables,
    blocks: Blocks,
}

/// Decodes what the grid needs into `out`, which holds it.
pub(crate) fn decode(
    bytes: &[u8],
    header: &Header,
    grid: &Grid,
    options: Options<'_>,
    memory: &mut Memory,
    out: &mut [u8],
) -> Result<()> {
    let Memory { tables, blocks } = memory;
    let (scans, listed) = scans(bytes, header);
    let is_filled = |error: &Error| options.fill && error.kind() == ErrorKind::Damaged;
    if let Err(error) = listed
        && !is_filled(&error)
    {
        return Err(error);
    }
    let areas = areas(grid, options.strict);
    blocks.begin(&areas)?;
    let wanted = wanted(&scans.list, grid, options.strict);
    // Components of which a scan was damaged: what later ones add has no meaning.
    let mut broken = 0;
    for (n, scan) in scans.list.iter().enumerate().filter(|(n, _)| wanted[*n]) {
        let parts = scan.header.components.iter().fold(0, |set, part| set | 1 << part.component);
        if parts & broken != 0 {
            continue;
        }
        let reading = Reading { bytes, scan, number: [n + 1, scans.list.len()], grid, areas: &areas, options };
        match reading.read(tables, blocks) {
            Err(error) if is_filled(&error) => broken |= parts,
            read => read?,
        }
    }
    blocks.transform(&areas, grid, &scans.quant, options.level, out);
    Ok(())
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
