//! Runs steps one after another.

use infeed_core::error::Result;

use super::{
    colour, filter, mix,
    picture::{Sides, Tile},
    pixel_op::PixelOp,
    spread, values, warp,
};
use crate::kernels::level::Level;

/// Runs steps on tiles, on the thread that owns it. Keeps its scratch memory from picture to picture.
#[derive(Debug)]
pub struct TileRunner {
    level: Level,
    /// Output of steps that can't run in place.
    spare: Tile,
    /// Rows of a blur.
    rows: Vec<f32>,
    /// The source pixels of a warped row.
    index: Vec<[i32; warp::STEP]>,
    /// The results of a mix's chains.
    parts: Vec<(f32, Tile)>,
}

impl Default for TileRunner {
    fn default() -> Self {
        Self::new()
    }
}

impl TileRunner {
    /// Uses the best instructions of this machine.
    #[must_use]
    pub fn new() -> Self {
        Self::with_level(Level::default())
    }

    /// Uses at most these instructions; results have the same bits.
    #[must_use]
    pub fn with_level(level: Level) -> Self {
        Self { level, spare: Tile::beside(), rows: Vec::new(), index: Vec::new(), parts: Vec::new() }
    }

    /// Runs the steps one after another.
    ///
    /// # Errors
    /// `Internal` if a step is not defined for the tile's channels or size. The tile then has the result of the steps
    /// before it.
    pub fn run(&mut self, ops: &[PixelOp], tile: &mut Tile) -> Result<()> {
        if tile.plane() == 0 || tile.channels == 0 {
            return Ok(());
        }
        ops.iter().try_for_each(|op| self.step(op, tile))
    }

    /// Bytes of scratch memory that it holds.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let parts: usize = self.parts.iter().map(|(_, tile)| tile.held_bytes()).sum();
        (self.spare.held_bytes() + parts) + (self.rows.capacity() + self.index.capacity() * warp::STEP) * 4
    }

    fn step(&mut self, op: &PixelOp, tile: &mut Tile) -> Result<()> {
        let level = self.level;
        let channels = tile.channels;
        op.check([tile.height, tile.width], channels)?;
        match op {
            PixelOp::Brightness(factor) => colour::brightness(level, tile.sides(), *factor),
            PixelOp::Contrast(factor) => colour::contrast(level, tile.sides(), channels, *factor),
            PixelOp::Saturation(factor) if channels == 3 => colour::saturation(level, tile.sides(), *factor),
            PixelOp::Hue(shift) if channels == 3 => colour::hue(level, tile.sides(), *shift),
            PixelOp::Grayscale if channels == 3 => colour::gray(level, tile.sides()),
            // No effect on gray.
            PixelOp::Saturation(_) | PixelOp::Hue(_) | PixelOp::Grayscale => {}
            PixelOp::Sharpness(factor) => {
                // torchvision leaves pictures without inner pixels unchanged.
                if tile.height > 2 && tile.width > 2 {
                    self.spare.reset_like(tile)?;
                    filter::sharpness(level, tile, *factor, &mut self.spare);
                    std::mem::swap(tile, &mut self.spare);
                }
            }
            PixelOp::Invert => colour::invert(level, tile.sides()),
            PixelOp::Posterize(bits) => colour::posterize(level, tile.sides(), *bits),
            PixelOp::Solarize(threshold) => colour::solarize(level, tile.sides(), *threshold),
            PixelOp::SolarizeAdd { add, threshold } => {
                colour::solarize_add(level, tile.sides(), *add, *threshold);
            }
            PixelOp::Autocontrast => {
                let plane = tile.plane();
                spread::autocontrast(level, tile.sides(), plane);
            }
            PixelOp::Equalize => spread::equalize(level, tile, &mut self.spare)?,
            PixelOp::Permute(from) => self.permute(*from, tile)?,
            PixelOp::Blur { kernel, sigma } => filter::blur(level, tile, *kernel, *sigma, &mut self.rows),
            PixelOp::Warp { map, sampling, fill } => {
                self.spare.reset_like(tile)?;
                warp::warp(level, map, *sampling, *fill, tile, &mut self.index, &mut self.spare);
                std::mem::swap(tile, &mut self.spare);
            }
            PixelOp::Erase { area, value } => erase(*area, *value, tile),
            PixelOp::Mix { own, chains } => self.mix(*own, chains, tile)?,
        }
        Ok(())
    }

    fn permute(&mut self, from: [u8; 4], tile: &mut Tile) -> Result<()> {
        let from = from.get(..tile.channels as usize).unwrap_or_default();
        self.spare.reset_like(tile)?;
        let plane = tile.bytes().len() / from.len().max(1);
        for (out, from) in self.spare.bytes_mut().chunks_exact_mut(plane).zip(from) {
            out.copy_from_slice(&tile.bytes()[usize::from(*from) * plane..][..plane]);
        }
        std::mem::swap(tile, &mut self.spare);
        Ok(())
    }

    fn mix(&mut self, own: f32, chains: &[(f32, Vec<PixelOp>)], tile: &mut Tile) -> Result<()> {
        // Taken out while the chains use the rest.
        let mut parts = std::mem::take(&mut self.parts);
        parts.resize_with(parts.len().max(chains.len()), Default::default);
        let done = chains.iter().zip(&mut parts).try_for_each(|((weight, ops), (kept, part))| {
            *kept = *weight;
            part.reset_like(tile)?;
            part.bytes_mut().copy_from_slice(tile.bytes());
            self.run(ops, part)
        });
        if done.is_ok() {
            mix::mix(self.level, own, &parts[..chains.len()], tile);
        }
        self.parts = parts;
        done
    }
}

/// Writes `value` to the part of the area that is inside of the tile.
fn erase([top, bottom, left, right]: [u32; 4], value: [f32; 4], tile: &mut Tile) {
    let (width, plane) = (tile.width as usize, tile.plane());
    let [top, bottom] = [top, bottom].map(|y| y.min(tile.height) as usize);
    let [left, right] = [left, right].map(|x| x.min(tile.width) as usize);
    if top >= bottom || left >= right {
        return;
    }
    fn rows<V: Copy>(values: &mut [V], value: V, rows: std::ops::Range<usize>, width: usize, columns: [usize; 2]) {
        for row in values.chunks_exact_mut(width).take(rows.end).skip(rows.start) {
            row[columns[0]..columns[1]].fill(value);
        }
    }
    match tile.sides() {
        Sides::Bytes(values) => {
            for (values, value) in values.chunks_exact_mut(plane).zip(value) {
                rows(values, values::truncate(colour::of_white(value)), top..bottom, width, [left, right]);
            }
        }
        Sides::Floats(values) => {
            for (values, value) in values.chunks_exact_mut(plane).zip(value) {
                rows(values, value, top..bottom, width, [left, right]);
            }
        }
    }
}
