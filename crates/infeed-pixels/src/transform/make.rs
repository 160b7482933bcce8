//! Makes a finished row of a decoded image, on the thread that owns the memory.

use infeed_core::{
    error::{Error, ErrorKind, Result},
    types::{DType, ImageInfo},
};

use super::{
    draw::Drawn,
    lower::Lowered,
    pass::{Filling, Pass, filling},
};
use crate::kernels::{Pixels, Planes, Resampler, RowSpec, Tile, TileRunner, fill_rect};

/// A decoded image, or the part of it that is needed.
///
/// ```
/// use infeed::{spi::{Decoded, Pixels}, transform::ImageInfo};
///
/// let info = ImageInfo::interleaved_u8(2, 2, 1);
/// let pixels = Pixels { info, rows: 0..2, data: &[10, 20, 30, 40] };
/// // The input of `RowMaker::run`: pixels or planes, as the decoder gives them.
/// match Decoded::Pixels(&pixels) {
///     Decoded::Pixels(pixels) => assert_eq!(pixels.data.len() as u64, info.len_bytes()),
///     Decoded::Planes(planes) => println!("{} planes", planes.planes.len()),
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub enum Decoded<'a> {
    /// Pixels.
    Pixels(&'a Pixels<'a>),
    /// Planes of 8-bit values, from JPEGs.
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

/// Makes rows: resamples, runs the steps on pictures, erases, runs custom steps. Keeps memory from row to row: that of
/// a [`Resampler`] and, for steps on pictures, two tiles of the picture's size.
///
/// ```
/// use infeed::{
///     DType, Layout,
///     dataset::FieldKind,
///     spi::{Decoded, Pixels, RowMaker},
///     transform::{ImageInfo, SampleRng, Transform},
/// };
///
/// let images = FieldKind::Image { channels: 1, size: None, dtype: None };
/// let lowered = Transform::new().center_crop(2).random_invert(1.0).lower(&images, DType::U8, Layout::Nchw)?;
/// let info = ImageInfo::interleaved_u8(2, 2, 1);
/// let mut maker = RowMaker::new(); // One for each thread, for all its images.
/// let mut row = vec![0; lowered.row().len_bytes()];
/// for (record, data) in (0..).zip([[0, 1, 2, 3], [10, 20, 30, 40]]) {
///     let drawn = lowered.draw(&info, SampleRng::new(42, 0, record))?;
///     let pixels = Pixels { info, rows: 0..2, data: &data };
///     maker.run(&lowered, &drawn, Decoded::Pixels(&pixels), &mut row)?;
/// }
/// assert_eq!(row, [245, 235, 225, 215]);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct RowMaker {
    resampler: Resampler,
    runner: TileRunner,
    tiles: [Tile; 2],
}

impl RowMaker {
    /// Uses the best instructions of this machine.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes of scratch memory that it holds.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let tiles: usize = self.tiles.iter().map(Tile::held_bytes).sum();
        self.resampler.held_bytes() + self.runner.held_bytes() + tiles
    }

    /// Announces the pixels that the call after the next [`run`](Self::run) will read, so that the CPU can prefetch
    /// them.
    pub fn reads_next(&mut self, pixels: &[u8]) {
        self.resampler.reads_next(pixels);
    }

    /// Writes every byte of the row of one sample into `out`. `drawn` must be drawn by `lowered` for this image.
    ///
    /// # Errors
    /// The error of a custom step; `Internal` if the arguments contradict each other.
    pub fn run(&mut self, lowered: &Lowered, drawn: &Drawn, src: Decoded<'_>, out: &mut [u8]) -> Result<()> {
        let image = src.info().dtype;
        let Self { resampler, runner, tiles: [tile, other] } = self;
        let mut of_image = true;
        for pass in lowered.passes(drawn, image) {
            match pass {
                Pass::Resample { params, spec, table, last } => {
                    let table = lowered.table_at(table).ok_or_else(unknown)?;
                    resampler.set_read_soon(!last || !drawn.erased.is_empty() || lowered.finishes());
                    // One tile is written while the other is read.
                    let out = if last {
                        &mut *out
                    } else {
                        other.reset(spec.height, spec.width, spec.channels, spec.dtype == DType::F32)?;
                        other.bytes_mut()
                    };
                    match src {
                        Decoded::Pixels(src) if of_image => resampler.run(src, params, table, spec, out)?,
                        Decoded::Planes(src) if of_image => resampler.run_planes(src, params, table, spec, out)?,
                        _ => resampler.run(&pixels_of(tile)?, params, table, spec, out)?,
                    }
                    of_image = false;
                    if !last {
                        std::mem::swap(tile, other);
                    }
                }
                Pass::Pixels(ops) => runner.run(ops, tile)?,
                Pass::Channels(channels) => {
                    let RowSpec { height, width, dtype, .. } = tile.spec();
                    // The omitted planes follow the kept ones.
                    tile.reset(height, width, channels, dtype == DType::F32)?;
                }
                Pass::Custom(step) => {
                    let spec = tile.spec();
                    lowered.custom(step, &spec, tile.bytes_mut(), drawn.rng)?;
                }
            }
        }
        drawn.erased.iter().try_for_each(|(erased, normalized)| {
            // Values in parts of white are converted to the row's units.
            let table = (!normalized).then(|| lowered.unit_table(image)).flatten();
            let Filling { area, next, .. } = filling(lowered.row(), erased, table);
            fill_rect(lowered.row(), &area, out, next)
        })?;
        lowered.finish(out, drawn.rng)
    }
}

fn unknown() -> Error {
    Error::new(ErrorKind::Internal, "no table for a tile's channels").with_hint("please report it")
}

/// A tile as input of a resample.
fn pixels_of(tile: &Tile) -> Result<Pixels<'_>> {
    let RowSpec { height, width, channels, dtype, .. } = tile.spec();
    let channels = u8::try_from(channels).map_err(|_| unknown())?;
    Ok(Pixels { info: ImageInfo { height, width, channels, dtype, planar: true }, rows: 0..height, data: tile.bytes() })
}
