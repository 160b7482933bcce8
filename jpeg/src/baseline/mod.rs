//! Rewrites a progressive file as a baseline file with the same coefficients, so with the same pixels.
//!
//! ```text
//! progressive file ─ bands of coefficients ─ symbols ─┬─ first pass: how often each is needed ─▶ codes
//!                                                     └─ second pass: codes and values ────────▶ baseline file
//! ```
//!
//! All scans are read twice: to keep the coefficients for the second pass would take more memory than the pixels.

#![forbid(unsafe_code)]

mod codes;
mod symbols;
mod writer;

use self::{
    codes::{Codes, Counts},
    symbols::Symbols,
    writer::Writer,
};
use crate::{
    error::Result,
    grid::Grid,
    header::{EOI, Header},
    planes::Window,
    progressive,
    scan::Options,
};

/// Most blocks of a unit (T.81, B.2.3).
const MOST_BLOCKS: usize = 10;

/// The baseline file; `None` if a baseline file can't hold the coefficients or the sampling. With `restarts`, a restart
/// marker follows each row of units.
pub(crate) fn rewrite(
    bytes: &[u8],
    header: &Header,
    options: Options<'_>,
    restarts: bool,
    memory: &mut progressive::Memory,
) -> Result<Option<Vec<u8>>> {
    let components = &header.frame.components;
    if components.iter().map(|c| usize::from(c.down) * usize::from(c.across)).sum::<usize>() > MOST_BLOCKS {
        return Ok(None);
    }
    let grid = Grid::new(header, &Window::new(header, 0..header.height(), 0..header.width()));
    let interval = u16::try_from(grid.units()[1]).ok().filter(|_| restarts);
    let mut counts = Counts::default();
    let mut symbols = Symbols::new(&grid, interval.is_some());
    let quant = progressive::coefficients(bytes, header, &grid, options, memory, &mut |band| {
        symbols.write(band, &mut counts);
    })?;
    if symbols.have_failed() {
        return Ok(None);
    }
    let codes = Codes::of(&counts);
    let mut file = Vec::new();
    file.try_reserve(bytes.len() + bytes.len() / 8).map_err(|_| crate::Error::out_of_memory(bytes.len()))?;
    writer::header(bytes, header, &quant, &codes, interval, &mut file)?;
    let mut writer = Writer::new(&codes, file);
    let mut symbols = Symbols::new(&grid, interval.is_some());
    progressive::coefficients(bytes, header, &grid, options, memory, &mut |band| symbols.write(band, &mut writer))?;
    let mut file = writer.finish();
    file.extend([0xff, EOI]);
    Ok(Some(file))
}
