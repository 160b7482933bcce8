//! From what was lowered to what one sample does: draws, rounding of sizes, bounds.

use super::{
    augment::{Erased, Moves, Picture},
    geometry::{self, Frame},
    lower::{Lowered, Shared, Tiles},
    op::Op,
};
use crate::{
    error::{Error, ErrorKind, Result},
    random::SampleRng,
    report::Stage,
    sys::kernels::{Filter, PixelOp, ResampleParams, RowSpec, Sampling, channel_source},
    types::{DType, ImageInfo, Layout},
};

/// What one sample does in one epoch, with all numbers: known before its image is decoded.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Drawn {
    /// The resample that reads the image. [`Axis::reads`](crate::sys::kernels::Axis::reads) tells which rows it needs.
    pub params: ResampleParams,
    /// What that makes: the row, or a picture for the steps that follow.
    pub spec: RowSpec,
    pub(super) steps: Vec<Step>,
    /// Rectangles of the row, and whether their values are normalised.
    pub(super) erased: Vec<(Erased, bool)>,
    pub(super) rng: SampleRng,
}

impl Drawn {
    /// One resample, and nothing else.
    #[cfg(test)]
    pub(crate) const fn one(params: ResampleParams, spec: RowSpec) -> Self {
        Self { params, spec, steps: Vec::new(), erased: Vec::new(), rng: SampleRng::new(0, 0, 0) }
    }

    /// The steps on pictures that were drawn, in order: of a policy, those that it chose.
    pub fn pixel_ops(&self) -> impl Iterator<Item = &PixelOp> {
        self.steps.iter().flat_map(|step| match step {
            Step::Pixels(ops) => &ops[..],
            Step::Channels(_) | Step::Custom(_) | Step::Resample { .. } => &[],
        })
    }
}

/// What follows the first resample, where there is more.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// On the tile, in place.
    Pixels(Vec<PixelOp>),
    /// Keeps the first so many channels.
    Channels(u32),
    /// The custom step of this index, on the tile.
    Custom(usize),
    /// To the other tile; the last one to the row.
    Resample { params: ResampleParams, spec: RowSpec },
}

/// The geometry of a sample on its way through the list: what is seen of the image, or of the tile.
struct Way<'a> {
    shared: &'a Shared,
    info: &'a ImageInfo,
    y: Frame,
    x: Frame,
    cutout: [i64; 4],
    filter: Filter,
    first: Option<(ResampleParams, RowSpec)>,
    steps: Vec<Step>,
    /// Whether frames show other pixels than those of the tile.
    moved: bool,
    /// Channels of tiles, and whether they are of 0..1.
    channels: u32,
    unit: bool,
    normalized: bool,
    /// Of a mask: whether a picture of the image lies behind the last tile.
    boundary: bool,
}

impl Way<'_> {
    fn params(&self) -> ResampleParams {
        // An empty rectangle that was mirrored is empty still.
        let cutout = if self.shared.mask { [0; 4] } else { self.cutout.map(|edge| edge as u32) };
        let filter = if self.shared.mask { Filter::NearestExact } else { self.filter };
        ResampleParams { y: self.y.axis(), x: self.x.axis(), cutout, filter }
    }

    fn picture(&self) -> Picture {
        let side = |len: i64| u32::try_from(len).unwrap_or(u32::MAX);
        Picture { height: side(self.y.len), width: side(self.x.len), channels: self.channels }
    }

    fn resample(&mut self, spec: RowSpec) {
        let params = self.params();
        if self.first.is_none() {
            self.first = Some((params, spec));
        } else {
            self.steps.push(Step::Resample { params, spec });
        }
    }

    /// Makes a tile of what is seen, unless it is one.
    fn tile(&mut self) -> Result<()> {
        if self.first.is_some() && !self.moved {
            return Ok(());
        }
        let Picture { height, width, channels } = self.picture();
        if height == 0 || width == 0 {
            return Err(bad(
                format!("image of {}x{} leaves no pixels", self.info.height, self.info.width),
                "resize it",
            ));
        }
        let dtype = if self.unit { DType::F32 } else { DType::U8 };
        self.resample(RowSpec { height, width, channels, dtype, layout: Layout::Nchw });
        (self.y, self.x) = (Frame::whole(height), Frame::whole(width));
        (self.cutout, self.filter, self.moved, self.boundary) = ([0; 4], Filter::default(), false, false);
        Ok(())
    }

    fn pixels(&mut self, ops: Vec<PixelOp>) {
        match self.steps.last_mut() {
            Some(Step::Pixels(before)) => before.extend(ops),
            _ if ops.is_empty() => {}
            _ => self.steps.push(Step::Pixels(ops)),
        }
    }
}

fn bad(what: impl Into<String>, hint: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unsupported, what.into()).hint(hint.into()).at_stage(Stage::Transform)
}

/// What a mask does of what was drawn: it moves, by whole pixels.
fn for_mask(ops: Vec<PixelOp>) -> Vec<PixelOp> {
    let moved = |op| match op {
        PixelOp::Warp { map, .. } => Some(PixelOp::Warp { map, sampling: Sampling::Nearest, fill: None }),
        _ => None,
    };
    ops.into_iter().filter_map(moved).collect()
}

impl Lowered {
    /// The resample of one sample: [`draw`](Self::draw) of a transform whose rows are one resample.
    ///
    /// # Errors
    /// As `draw`; `Config` when there are steps on pictures.
    pub fn params(&self, info: &ImageInfo, rng: SampleRng) -> Result<ResampleParams> {
        if self.shared.tiles.is_some() {
            return Err(Error::config(
                "the transform has steps that work on pictures: one resample makes no row of it",
            )
            .hint("use Lowered::draw and RowMaker"));
        }
        Ok(self.draw(info, rng)?.params)
    }

    /// What one sample does: depends on the image's shape only, so it is known before decoding.
    ///
    /// # Errors
    /// `Unsupported` for an image that the steps can't take: too small for a crop or a blur, other channels or another
    /// size than the field's. Names neither record nor object; the caller does.
    pub fn draw(&self, info: &ImageInfo, rng: SampleRng) -> Result<Drawn> {
        let rng = rng.view(self.view);
        let shared = &*self.shared;
        let row = &shared.row;
        if info.height == 0 || info.width == 0 {
            return Err(
                Error::corrupt(format!("image of {}x{} pixels", info.height, info.width)).at_stage(Stage::Transform)
            );
        }
        if !matches!(info.dtype, DType::U8 | DType::U16 | DType::F32) {
            return Err(bad(format!("pixels of {}", info.dtype), "convert them to u8, u16 or f32"));
        }
        let tiles = shared.tiles.as_ref();
        let channels = tiles.map_or(row.channels, |tiles| tiles.channels);
        if channel_source(u32::from(info.channels), channels, 0).is_none() {
            let what = format!("image of {} channels where rows have {channels}", info.channels);
            return Err(bad(what, "convert the image, or put it into a dataset of its own"));
        }
        if let Some(declared) = shared.declared.filter(|declared| *declared != info.dtype) {
            let what = format!("pixels of {} where the dataset's are {declared}", info.dtype);
            return Err(bad(what, "convert the image, or put it into a dataset of its own"));
        }
        let mut way = Way {
            shared,
            info,
            y: Frame::whole(info.height),
            x: Frame::whole(info.width),
            cutout: [0; 4],
            filter: Filter::default(),
            first: None,
            steps: Vec::new(),
            moved: false,
            channels,
            unit: info.dtype != DType::U8,
            normalized: false,
            boundary: false,
        };
        let mut erased = Vec::new();
        for (index, op) in shared.ops.iter().enumerate() {
            match (op.augment(), tiles) {
                (None, None) => way.step(op, index, rng)?,
                (None, Some(tiles)) => way.step_of(tiles, op, index, rng, &mut erased)?,
                (Some(augment), _) => {
                    if shared.mask && augment.moves() == Moves::Never {
                        way.boundary = true;
                        continue;
                    }
                    way.tile()?;
                    let mut ops = Vec::new();
                    augment.draw(&mut rng.op(index as u32), &way.picture(), &mut ops)?;
                    way.pixels(if shared.mask { for_mask(ops) } else { ops });
                    if let (Op::Grayscale(step), false) = (op, shared.mask)
                        && step.num_output_channels < way.channels
                    {
                        way.channels = step.num_output_channels;
                        way.steps.push(Step::Channels(way.channels));
                    }
                }
            }
        }
        if (way.y.len, way.x.len) != (i64::from(row.height), i64::from(row.width)) {
            let what = format!("image of {}x{} makes a row of {}x{}", info.height, info.width, way.y.len, way.x.len);
            return Err(bad(what, format!("rows are {}x{}: add a resize or a crop", row.height, row.width)));
        }
        way.resample(*row);
        let Way { first, steps, .. } = way;
        let (params, spec) = first.expect("a resample was just added");
        Ok(Drawn { params, spec, steps, erased, rng })
    }
}

impl Way<'_> {
    /// A step of a list that has steps on pictures.
    fn step_of(
        &mut self,
        tiles: &Tiles,
        op: &Op,
        index: usize,
        rng: SampleRng,
        erased: &mut Vec<(Erased, bool)>,
    ) -> Result<()> {
        match op {
            Op::RandomErasing(_) if self.shared.mask => {}
            Op::RandomErasing(step) if tiles.last.is_some_and(|last| index < last) => {
                self.tile()?;
                let mut rectangles = Vec::new();
                step.draw(&mut rng.op(index as u32), &self.picture(), &mut rectangles);
                let op = |erased| match erased {
                    Erased::Constant { area, value } => {
                        let value = std::array::from_fn(|c| if c < self.channels as usize { value.of(c) } else { 0.0 });
                        Some(PixelOp::Erase { area, value })
                    }
                    // Refused in `lower`.
                    Erased::Noise { .. } => None,
                };
                let ops = rectangles.into_iter().filter_map(op).collect();
                self.pixels(ops);
            }
            Op::RandomErasing(step) => {
                let mut rectangles = Vec::new();
                step.draw(&mut rng.op(index as u32), &self.picture(), &mut rectangles);
                erased.extend(rectangles.into_iter().map(|rectangle| (rectangle, self.normalized)));
            }
            Op::Custom(_) if index < self.shared.on_row => {
                if self.shared.mask {
                    self.boundary = true;
                } else {
                    self.tile()?;
                    self.steps.push(Step::Custom(index));
                }
            }
            Op::Normalize { .. } => self.normalized = true,
            // Steps on pictures that follow are of 0..1.
            Op::ToFloat if !self.shared.mask => {
                self.moved |= !self.unit;
                self.unit = true;
            }
            Op::GrayToRgb if !self.shared.mask => {
                self.moved |= self.channels != 3;
                self.channels = 3;
            }
            _ => {
                // Where the image has a picture, and one resample does not do.
                if self.boundary && op.is_resize() {
                    self.tile()?;
                }
                self.step(op, index, rng)?;
                self.moved |= op.is_geometric() || matches!(op, Op::Cutout { .. });
            }
        }
        Ok(())
    }

    /// A step that folds into a resample.
    fn step(&mut self, op: &Op, index: usize, rng: SampleRng) -> Result<()> {
        let Self { info, y, x, cutout, filter, .. } = self;
        let mut draws = rng.op(index as u32);
        match op {
            Op::ResizeShorter { .. } | Op::ResizeExact { .. } | Op::RandomResizedCrop { .. }
                if !(y.is_full() && x.is_full()) =>
            {
                let what =
                    format!("image of {}x{} is smaller than the crop before {}", info.height, info.width, op.name());
                return Err(bad(what, format!("put {} before the crop", op.name())));
            }
            Op::ResizeShorter { size, interpolation, antialias } => {
                let (h, w) = geometry::shorter(y.len, x.len, i64::from(*size));
                (*y, *x) = (y.resize(h), x.resize(w));
                *filter = interpolation.draw(*antialias, &mut draws);
            }
            Op::ResizeExact { size: [h, w], interpolation, antialias } => {
                (*y, *x) = (y.resize((*h).into()), x.resize((*w).into()));
                *filter = interpolation.draw(*antialias, &mut draws);
            }
            Op::RandomResizedCrop { size: [out_h, out_w], scale, ratio, interpolation, antialias } => {
                let [top, left, h, w] = geometry::random_part(y.len, x.len, *scale, *ratio, &mut draws);
                *y = y.crop(top, h).resize((*out_h).into());
                *x = x.crop(left, w).resize((*out_w).into());
                // Last, so that the window does not depend on how many there are.
                *filter = interpolation.draw(*antialias, &mut draws);
            }
            Op::CenterCrop { size } => {
                let [h, w] = size.map(i64::from);
                *y = y.crop(geometry::centre(y.len, h), h);
                *x = x.crop(geometry::centre(x.len, w), w);
            }
            Op::RandomCrop { size, padding } => {
                let ([h, w], padding) = (size.map(i64::from), i64::from(*padding));
                let (have_h, have_w) = (y.len + 2 * padding, x.len + 2 * padding);
                if have_h < h || have_w < w {
                    let (top, left) = (y.len, x.len);
                    let what = format!("image is {top}x{left} where random_crop takes {h}x{w} with padding {padding}");
                    return Err(bad(what, "resize before it, or use more padding"));
                }
                *y = y.crop(geometry::offset(have_h, h, &mut draws) - padding, h);
                *x = x.crop(geometry::offset(have_w, w, &mut draws) - padding, w);
            }
            Op::HorizontalFlip { p } if draws.chance(*p) => {
                *x = x.mirror();
                *cutout = [cutout[0], cutout[1], x.len - cutout[3], x.len - cutout[2]];
            }
            Op::VerticalFlip { p } if draws.chance(*p) => {
                *y = y.mirror();
                *cutout = [y.len - cutout[1], y.len - cutout[0], cutout[2], cutout[3]];
            }
            Op::Cutout { size } => {
                let mut side = |len: i64| {
                    let start = draws.below(len as u64) as i64 - i64::from(size / 2);
                    (start.max(0), (start + i64::from(*size)).min(len))
                };
                let ((top, bottom), (left, right)) = (side(y.len), side(x.len));
                *cutout = [top, bottom, left, right];
            }
            // Flips that were not drawn. What changes values does so in the tables; what is for volumes was refused in `lower`.
            _ => {}
        }
        Ok(())
    }
}
