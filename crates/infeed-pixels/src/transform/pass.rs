//! The passes that make a row, in order, with the channel tables of each; the same for CPU and GPU.

use infeed_core::{random::SampleRng, types::DType};

use super::{
    augment::{Erased, Noise},
    draw::{Drawn, Step},
    lower::Lowered,
};
use crate::kernels::{ChannelTable, PixelOp, ResampleParams, RowSpec};

/// One pass.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pass<'a> {
    /// Resamples the image, or the tile of the pass before, to a tile; the last resample makes the row.
    Resample { params: &'a ResampleParams, spec: &'a RowSpec, table: usize, last: bool },
    /// Changes the tile, in place.
    Pixels(&'a [PixelOp]),
    /// Keeps only the first channels; their number.
    Channels(u32),
    /// Runs the custom step of this index.
    Custom(usize),
}

impl Lowered {
    /// The passes that make a row of an image of this type.
    pub(super) fn passes<'a>(&'a self, drawn: &'a Drawn, image: DType) -> impl Iterator<Item = Pass<'a>> {
        let last = drawn.steps.iter().rposition(|step| matches!(step, Step::Resample { .. }));
        let mut tile: Option<DType> = None;
        let mut resample = move |params, spec: &'a RowSpec, last: bool| {
            let table = self.table_of(image, tile, spec, last);
            tile = Some(spec.dtype);
            Pass::Resample { params, spec, table, last }
        };
        let first = resample(&drawn.params, &drawn.spec, last.is_none());
        let rest = drawn.steps.iter().enumerate().map(move |(index, step)| match step {
            Step::Resample { params, spec } => resample(params, spec, last == Some(index)),
            Step::Pixels(ops) => Pass::Pixels(ops),
            Step::Channels(channels) => Pass::Channels(*channels),
            Step::Custom(index) => Pass::Custom(*index),
        });
        std::iter::once(first).chain(rest)
    }
}

/// The values that overwrite a rectangle.
pub(super) struct Filling<'a> {
    pub(super) area: [u32; 4],
    /// Whether each pixel has its own values; otherwise all pixels of a channel have the same.
    pub(super) each: bool,
    /// The next value of a channel, in the row's units.
    pub(super) next: Box<dyn FnMut(usize) -> f32 + 'a>,
}

/// The values for a rectangle of the row. `table` converts constants to the row's units; `None` if they are in these
/// units already.
pub(super) fn filling<'a>(row: &RowSpec, erased: &'a Erased, table: Option<&'a ChannelTable>) -> Filling<'a> {
    match erased {
        Erased::Constant { area, value } => {
            let of = move |c: usize| match table {
                Some(table) => value.of(c).mul_add(table.scale[c], table.bias[c]),
                None => value.of(c),
            };
            Filling { area: *area, each: false, next: Box::new(of) }
        }
        Erased::Noise { area, seed, kind: Noise::Color } => {
            let mut draws = SampleRng::new(*seed, 0, 0).op(0);
            let colours: Vec<f32> = (0..row.channels).map(|_| draws.normal() as f32).collect();
            Filling { area: *area, each: false, next: Box::new(move |c| colours[c]) }
        }
        Erased::Noise { area, seed, kind: Noise::Random } => {
            let mut draws = SampleRng::new(*seed, 0, 0).op(0);
            let mut spare = None;
            let next = move |_| {
                spare.take().unwrap_or_else(|| {
                    let [first, second] = draws.normal_pair();
                    spare = Some(second);
                    first
                })
            };
            Filling { area: *area, each: true, next: Box::new(next) }
        }
    }
}
