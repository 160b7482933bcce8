//! From a decoded image to a finished row, on the thread that owns the memory.

use super::{
    augment::{Erased, Noise},
    draw::{Drawn, Step},
    lower::Lowered,
};
use crate::{
    error::{Error, ErrorKind, Result},
    random::SampleRng,
    sys::kernels::{ChannelTable, Pixels, Planes, ResampleParams, Resampler, RowSpec, Tile, TileRunner, fill_rect},
    types::{DType, ImageInfo},
};

/// A decoded image, or the part of it that is needed.
#[derive(Clone, Copy, Debug)]
pub enum Decoded<'a> {
    /// As pixels.
    Pixels(&'a Pixels<'a>),
    /// As planes of 8-bit values, of JPEGs.
    Planes(&'a Planes<'a>),
}

impl Decoded<'_> {
    const fn info(&self) -> &ImageInfo {
        match self {
            Self::Pixels(pixels) => &pixels.info,
            Self::Planes(planes) => &planes.info,
        }
    }
}

/// Makes rows: resamples, does the steps on pictures, erases, runs custom steps. Keeps its memory from row to row: that of
/// a [`Resampler`], and for steps on pictures two tiles of the picture's size.
#[derive(Debug, Default)]
pub struct RowMaker {
    resampler: Resampler,
    runner: TileRunner,
    tiles: [Tile; 2],
}

impl RowMaker {
    /// With the best instructions of this machine.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes of scratch memory now held.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let tiles: usize = self.tiles.iter().map(Tile::held_bytes).sum();
        self.resampler.held_bytes() + self.runner.held_bytes() + tiles
    }

    /// Writes the row of one sample into `out`, every byte of it. `drawn` is of the same image, by the same `lowered`.
    ///
    /// # Errors
    /// A custom step's own; `Internal` when the arguments contradict each other.
    pub fn run(&mut self, lowered: &Lowered, drawn: &Drawn, src: Decoded<'_>, out: &mut [u8]) -> Result<()> {
        let image = src.info().dtype;
        let Self { resampler, runner, tiles: [tile, other] } = self;
        let mut resample = |table: &ChannelTable, params: &ResampleParams, spec: &RowSpec, out: &mut [u8]| match src {
            Decoded::Pixels(src) => resampler.run(src, params, table, spec, out),
            Decoded::Planes(src) => resampler.run_planes(src, params, table, spec, out),
        };
        let Some(tiles) = &lowered.shared.tiles else {
            resample(lowered.table(image), &drawn.params, &drawn.spec, out)?;
            return lowered.finish(out, drawn.rng);
        };
        let unknown = || Error::new(ErrorKind::Internal, "no table for a tile's channels").hint("please report it");
        let plain = |spec: &RowSpec, from: DType| {
            tiles.factor(spec.channels, from, spec.dtype == DType::F32).ok_or_else(unknown)
        };
        let last = drawn.steps.iter().rposition(|step| matches!(step, Step::Resample { .. }));
        if last.is_none() {
            resample(lowered.table(image), &drawn.params, &drawn.spec, out)?;
        } else {
            tile.reset(drawn.spec.height, drawn.spec.width, drawn.spec.channels, drawn.spec.dtype == DType::F32)?;
            resample(plain(&drawn.spec, image)?, &drawn.params, &drawn.spec, tile.bytes_mut())?;
        }
        for (index, step) in drawn.steps.iter().enumerate() {
            match step {
                Step::Pixels(ops) => runner.run(ops, tile)?,
                Step::Channels(channels) => {
                    let RowSpec { height, width, dtype, .. } = tile.spec();
                    // Planes that are left out lie behind the others.
                    tile.reset(height, width, *channels, dtype == DType::F32)?;
                }
                Step::Custom(step) => {
                    let spec = tile.spec();
                    lowered.custom(*step, &spec, tile.bytes_mut(), drawn.rng)?;
                }
                Step::Resample { params, spec } => {
                    let of = tile.spec();
                    let info = ImageInfo {
                        height: of.height,
                        width: of.width,
                        channels: u8::try_from(of.channels).map_err(|_| unknown())?,
                        dtype: of.dtype,
                        planar: true,
                    };
                    let src = Pixels { info, rows: 0..of.height, data: tile.bytes() };
                    if last == Some(index) {
                        let table =
                            if of.dtype == DType::F32 { tiles.of_unit(image) } else { lowered.table(DType::U8) };
                        resampler.run(&src, params, table, spec, out)?;
                    } else {
                        other.reset(spec.height, spec.width, spec.channels, spec.dtype == DType::F32)?;
                        resampler.run(&src, params, plain(spec, of.dtype)?, spec, other.bytes_mut())?;
                        std::mem::swap(tile, other);
                    }
                }
            }
        }
        drawn.erased.iter().try_for_each(|(erased, normalized)| {
            // Parts of white become what they are in the row.
            let table = (!normalized).then(|| tiles.of_unit(image));
            erase(lowered.row(), erased, table, out)
        })?;
        lowered.finish(out, drawn.rng)
    }
}

/// Writes over a rectangle of the row. `table`: what brings constants to its units, unless they are.
fn erase(row: &RowSpec, erased: &Erased, table: Option<&ChannelTable>, out: &mut [u8]) -> Result<()> {
    match erased {
        Erased::Constant { area, value } => fill_rect(row, area, out, |c| match table {
            Some(table) => value.of(c).mul_add(table.scale[c], table.bias[c]),
            None => value.of(c),
        }),
        Erased::Noise { area, seed, kind: Noise::Color } => {
            let mut draws = SampleRng::new(*seed, 0, 0).op(0);
            let colours: Vec<f32> = (0..row.channels).map(|_| draws.normal() as f32).collect();
            fill_rect(row, area, out, |c| colours[c])
        }
        Erased::Noise { area, seed, kind: Noise::Random } => {
            let mut draws = SampleRng::new(*seed, 0, 0).op(0);
            let mut spare = None;
            fill_rect(row, area, out, |_| {
                spare.take().unwrap_or_else(|| {
                    let [first, second] = draws.normal_pair();
                    spare = Some(second);
                    first
                })
            })
        }
    }
}
