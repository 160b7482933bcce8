//! Draws one sample: random numbers, rounding of sizes, bounds.

use infeed_core::{
    error::{Error, ErrorKind, Result, setting::FIELD},
    random::{Draws, SampleRng},
    report::Stage,
    types::{DType, ImageInfo, Layout},
};
use infeed_data::Instances;

use super::{
    augment::{Erased, Moves, Picture},
    detection::Marked,
    geometry::{self, Frame},
    interpolation::Interpolations,
    lower::{Lowered, Shared, Tiles},
    op::Op,
};
use crate::kernels::{Filter, PixelOp, ResampleParams, RowSpec, Sampling, channel_source};

/// All numbers of one sample in one epoch: its windows, flips and steps.
///
/// They are known before the image is decoded, and do not depend on where they are drawn.
///
/// ```
/// use infeed::{DType, Layout, dataset::FieldKind, transform::{ImageInfo, SampleRng, Transform}};
///
/// let images = FieldKind::Image { channels: 3, size: None, dtype: None };
/// let lowered = Transform::new().random_crop(32, 0).trivial_augment_wide().lower(&images, DType::U8, Layout::Nchw)?;
/// let info = ImageInfo::interleaved_u8(100, 80, 3);
/// let drawn = lowered.draw(&info, SampleRng::new(42, 0, 7))?; // Seed, epoch, record.
/// assert_eq!(drawn, lowered.draw(&info, SampleRng::new(42, 0, 7))?);
/// let rows = drawn.params.y.reads(drawn.spec.height, drawn.params.filter);
/// assert!(rows.len() < 40); // The rows that a decoder must give.
/// for step in drawn.pixel_ops() {
///     println!("{step:?}");
/// }
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Drawn {
    /// The resample that reads the image. [`Axis::reads`](crate::kernels::Axis::reads) gives the rows that it needs.
    pub params: ResampleParams,
    /// The result of the first resample: the row, or a picture for the steps that follow.
    pub spec: RowSpec,
    pub(super) steps: Vec<Step>,
    /// Rectangles of the row to overwrite, and whether their values are already normalised.
    pub(super) erased: Vec<(Erased, bool)>,
    pub(super) rng: SampleRng,
}

impl Drawn {
    /// Only one resample.
    #[cfg(test)]
    pub(crate) const fn one(params: ResampleParams, spec: RowSpec) -> Self {
        Self { params, spec, steps: Vec::new(), erased: Vec::new(), rng: SampleRng::new(0, 0, 0) }
    }

    /// The drawn steps on pictures, in order; for a policy, the steps that it chose.
    pub fn pixel_ops(&self) -> impl Iterator<Item = &PixelOp> {
        self.steps.iter().flat_map(|step| match step {
            Step::Pixels(ops) => &ops[..],
            Step::Channels(_) | Step::Custom(_) | Step::Resample { .. } => &[],
        })
    }
}

/// What follows the first resample, if anything.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Changes the tile, in place.
    Pixels(Vec<PixelOp>),
    /// Keeps only the first channels; their number.
    Channels(u32),
    /// Runs the custom step of this index on the tile.
    Custom(usize),
    /// Resamples to the other tile, or the last time to the row.
    Resample { params: ResampleParams, spec: RowSpec },
}

/// The geometry of a sample while its steps are drawn: the part of the image or tile that is visible.
struct Geometry<'a> {
    shared: &'a Shared,
    /// Height and width of rows.
    row: [u32; 2],
    info: &'a ImageInfo,
    y: Frame,
    x: Frame,
    cutout: [i64; 4],
    filter: Filter,
    first: Option<(ResampleParams, RowSpec)>,
    steps: Vec<Step>,
    /// Whether frames show other pixels than those of the tile.
    moved: bool,
    /// Channels of tiles, and whether tiles are in 0..1.
    channels: u32,
    unit: bool,
    normalized: bool,
    /// For a mask: whether the image has a picture after the mask's last tile.
    boundary: bool,
    marked: &'a mut Option<Marked>,
}

impl Geometry<'_> {
    fn params(&self) -> ResampleParams {
        // A mirrored empty rectangle stays empty.
        let cutout = if self.shared.mask { [0; 4] } else { self.cutout.map(|edge| edge as u32) };
        let filter = if self.shared.mask { Filter::NearestExact } else { self.filter };
        ResampleParams { y: self.y.axis(), x: self.x.axis(), cutout, filter }
    }

    /// The drawn filter for the current type of values: after `to_float`, torchvision does not round to bytes between
    /// its passes.
    fn filter_of(&self, kinds: &Interpolations, antialias: bool, draws: &mut Draws) -> Filter {
        let filter = kinds.draw(antialias, draws);
        if self.unit { filter.of_floats() } else { filter }
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

    /// Makes a tile of the visible part, unless a tile already shows just that.
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
    Error::new(ErrorKind::Unsupported, what.into()).with_hint(hint.into()).at_stage(Stage::Transform)
}

/// The part of the drawn steps that a mask follows: moves, by whole pixels.
fn for_mask(ops: Vec<PixelOp>) -> Vec<PixelOp> {
    let moved = |op| match op {
        PixelOp::Warp { map, .. } => Some(PixelOp::Warp { map, sampling: Sampling::Nearest, fill: None }),
        _ => None,
    };
    ops.into_iter().filter_map(moved).collect()
}

impl Lowered {
    /// Like [`draw`](Self::draw), for a transform that is one resample.
    ///
    /// # Errors
    /// As [`draw`](Self::draw); `Config` if there are steps on pictures.
    pub fn params(&self, info: &ImageInfo, rng: SampleRng) -> Result<ResampleParams> {
        if self.shared.tiles.is_some() {
            return Err(Error::config(
                "the transform has steps that work on pictures: one resample can't make a row of it",
            )
            .with_hint("use Lowered::draw and RowMaker"));
        }
        Ok(self.draw(info, rng)?.params)
    }

    /// Draws one sample. Of the image, only the shape and type matter, so the result is known before decoding.
    ///
    /// # Errors
    /// `Unsupported` for an image that the steps can't take: too small for a crop or a blur, or with other channels or
    /// another size than the field has. The error names neither record nor object; the caller adds them.
    pub fn draw(&self, info: &ImageInfo, rng: SampleRng) -> Result<Drawn> {
        self.draw_marked(info, rng, &mut None)
    }

    /// Like [`draw`](Self::draw), for an image with boxes. Needed if [`looks_at_boxes`](Self::looks_at_boxes) is true.
    ///
    /// # Errors
    /// As [`draw`](Self::draw); `Corrupt` for invalid boxes.
    pub fn draw_with(&self, info: &ImageInfo, rng: SampleRng, instances: Option<&Instances>) -> Result<Drawn> {
        let seen = instances.filter(|_| self.shared.looks_at_boxes);
        let mut marked = seen.map(|instances| self.marked(instances, info)).transpose()?;
        self.draw_marked(info, rng, &mut marked)
    }

    /// Like `draw_with`, and also moves the boxes.
    pub(super) fn draw_instances(
        &self,
        info: &ImageInfo,
        rng: SampleRng,
        instances: &Instances,
    ) -> Result<(Drawn, Marked)> {
        let mut marked = Some(self.marked(instances, info)?);
        let drawn = self.draw_marked(info, rng, &mut marked)?;
        let lost = || Error::new(ErrorKind::Internal, "the boxes of a sample are gone").with_hint("please report it");
        Ok((drawn, marked.ok_or_else(lost)?))
    }

    fn marked(&self, instances: &Instances, info: &ImageInfo) -> Result<Marked> {
        Marked::new(instances, info, self.shared.sanitizes)
    }

    fn draw_marked(&self, info: &ImageInfo, rng: SampleRng, marked: &mut Option<Marked>) -> Result<Drawn> {
        let rng = rng.view(self.view);
        let shared = &*self.shared;
        let row = &self.row();
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
        if shared.mask && row.dtype == DType::U8 && info.dtype != DType::U8 {
            let what = format!("a mask of {} where rows hold u8", info.dtype);
            let name = if shared.name.is_empty() { "mask" } else { &*shared.name };
            let hint = format!("set {}: rows are f32 then, which keep every value", FIELD.to_pair(name, "mask16"));
            return Err(bad(what, hint));
        }
        // A mask keeps its values, so rows of the larger type can hold them too.
        if let Some(declared) = shared.declared.filter(|declared| *declared != info.dtype && !shared.mask) {
            let what = format!("pixels of {} where the dataset's are {declared}", info.dtype);
            return Err(bad(what, "convert the image, or put it into a dataset of its own"));
        }
        let mut way = Geometry {
            shared,
            row: [row.height, row.width],
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
            marked,
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
                    let picture = way.picture();
                    augment.draw(&mut rng.op(index as u32), &picture, &mut ops)?;
                    if let Some(marked) = way.marked {
                        marked.pixels(&ops, [picture.height, picture.width]);
                    }
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
        way.resample(**row);
        if let Some(marked) = way.marked {
            marked.end([row.height, row.width]);
        }
        let Geometry { first, steps, .. } = way;
        let (params, spec) = first.expect("a resample was just added");
        Ok(Drawn { params, spec, steps, erased, rng })
    }
}

impl Geometry<'_> {
    /// Draws a step of a list that has steps on pictures.
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
                    // `lower` refuses noise here.
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
            // Later steps on pictures get values in 0..1.
            Op::ToFloat if !self.shared.mask => {
                self.moved |= !self.unit;
                self.unit = true;
            }
            Op::GrayToRgb if !self.shared.mask => {
                self.moved |= self.channels != 3;
                self.channels = 3;
            }
            _ => {
                // The image has a picture here that is resized later. The mask must resize the same pixels.
                if self.boundary && op.is_geometric() && self.shared.last_resize.is_some_and(|last| index <= last) {
                    if self.moved {
                        self.tile()?;
                    }
                    self.boundary = false;
                }
                self.step(op, index, rng)?;
                self.moved |= op.is_geometric() || matches!(op, Op::Cutout { .. });
            }
        }
        Ok(())
    }

    /// Draws a step that folds into a resample.
    fn step(&mut self, op: &Op, index: usize, rng: SampleRng) -> Result<()> {
        let mut draws = rng.op(index as u32);
        let have = [self.y.len, self.x.len];
        match op {
            // Resizes after it get floats.
            Op::ToFloat => self.unit = true,
            Op::ResizeShorter { size, interpolation, antialias } => {
                let (h, w) = geometry::shorter(have[0], have[1], i64::from(*size));
                self.resize(op.name(), [h, w])?;
                self.filter = self.filter_of(interpolation, *antialias, &mut draws);
            }
            Op::ResizeExact { size, interpolation, antialias } => {
                self.resize(op.name(), size.map(i64::from))?;
                self.filter = self.filter_of(interpolation, *antialias, &mut draws);
            }
            Op::ResizeKeepRatio { size, longest, interpolation, antialias } => {
                self.resize(op.name(), geometry::keep_ratio(have, *size, *longest))?;
                self.filter = self.filter_of(interpolation, *antialias, &mut draws);
            }
            Op::RandomResizedCrop { size, scale, ratio, interpolation, antialias } => {
                let [top, left, h, w] = geometry::random_part(have[0], have[1], *scale, *ratio, &mut draws);
                self.crop_and_resize(op.name(), [top, left, h, w], size.map(i64::from))?;
                // Drawn last, so that the window does not depend on the number of interpolations.
                self.filter = self.filter_of(interpolation, *antialias, &mut draws);
            }
            Op::RandomShortestSize(step) => {
                self.resize(op.name(), step.size(have[0], have[1], &mut draws))?;
                self.filter = self.filter_of(&step.interpolation, step.antialias, &mut draws);
            }
            Op::ScaleJitter(step) => {
                self.resize(op.name(), step.size(have[0], have[1], &mut draws))?;
                self.filter = self.filter_of(&step.interpolation, step.antialias, &mut draws);
            }
            Op::RandomZoomOut(step) => {
                if let Some([top, left, h, w]) = step.canvas(have[0], have[1], &mut draws) {
                    self.crop([top, left], [h, w]);
                }
            }
            Op::RandomIouCrop(step) => {
                let Some(marked) = &mut *self.marked else {
                    let what = format!("{} without the boxes of the image", op.name());
                    return Err(Error::new(ErrorKind::Internal, what).with_hint("draw with Lowered::draw_with"));
                };
                if let Some(window) = step.draw(have[0], have[1], &marked.boxes, &mut draws) {
                    marked.window(&window);
                    self.y = self.y.crop(window.top, window.height);
                    self.x = self.x.crop(window.left, window.width);
                }
            }
            Op::FixedSizeCrop(step) => {
                let size = step.size.map(i64::from);
                self.crop(step.place(have[0], have[1], &mut draws), size);
                if let Some(marked) = &mut *self.marked {
                    marked.padded([have[0].min(size[0]), have[1].min(size[1])]);
                }
            }
            Op::PadTo(step) => {
                self.pad(op.name(), step.size)?;
            }
            Op::PadToLargest(_) => self.pad(op.name(), self.row)?,
            Op::SanitizeBoundingBoxes(step) => {
                if let Some(marked) = &mut *self.marked {
                    marked.sanitize(step.min_size, step.min_area);
                }
            }
            Op::CenterCrop { size } => {
                let size = size.map(i64::from);
                self.crop([geometry::centre(have[0], size[0]), geometry::centre(have[1], size[1])], size);
            }
            Op::RandomCrop { size, padding } => {
                let ([h, w], padding) = (size.map(i64::from), i64::from(*padding));
                let [have_h, have_w] = have.map(|side| side + 2 * padding);
                if have_h < h || have_w < w {
                    let [top, left] = have;
                    let what = format!("image is {top}x{left} where random_crop takes {h}x{w} with padding {padding}");
                    return Err(bad(what, "resize before it, or use more padding"));
                }
                let top = geometry::offset(have_h, h, &mut draws) - padding;
                let left = geometry::offset(have_w, w, &mut draws) - padding;
                self.crop([top, left], [h, w]);
            }
            Op::HorizontalFlip { p } if draws.chance(*p) => {
                self.x = self.x.mirror();
                let [top, bottom, left, right] = self.cutout;
                self.cutout = [top, bottom, have[1] - right, have[1] - left];
                if let Some(marked) = &mut *self.marked {
                    marked.mirror_across(have[1]);
                }
            }
            Op::VerticalFlip { p } if draws.chance(*p) => {
                self.y = self.y.mirror();
                let [top, bottom, left, right] = self.cutout;
                self.cutout = [have[0] - bottom, have[0] - top, left, right];
                if let Some(marked) = &mut *self.marked {
                    marked.mirror_down(have[0]);
                }
            }
            Op::Cutout { size } => {
                let mut side = |len: i64| {
                    let start = draws.below(len as u64) as i64 - i64::from(size / 2);
                    (start.max(0), (start + i64::from(*size)).min(len))
                };
                let ((top, bottom), (left, right)) = (side(have[0]), side(have[1]));
                self.cutout = [top, bottom, left, right];
            }
            // Flips that did not happen. Steps that change values are in the tables; steps for volumes were refused in
            // `lower`.
            _ => {}
        }
        Ok(())
    }

    /// Crops the frame to a window, which may extend beyond it.
    fn crop(&mut self, [top, left]: [i64; 2], [height, width]: [i64; 2]) {
        self.y = self.y.crop(top, height);
        self.x = self.x.crop(left, width);
        if let Some(marked) = &mut *self.marked {
            marked.crop([top, left], [height, width]);
        }
    }

    /// Adds pixels on the right and at the bottom.
    fn pad(&mut self, name: &str, size: [u32; 2]) -> Result<()> {
        let (size, have) = (size.map(i64::from), [self.y.len, self.x.len]);
        if have[0] > size[0] || have[1] > size[1] {
            let what = format!("image is {}x{} where {name} makes {}x{}", have[0], have[1], size[0], size[1]);
            return Err(bad(what, "resize before it, or pad to more"));
        }
        self.crop([0, 0], size);
        if let Some(marked) = &mut *self.marked {
            marked.padded(have);
        }
        Ok(())
    }

    fn resize(&mut self, name: &str, size: [i64; 2]) -> Result<()> {
        self.crop_and_resize(name, [0, 0, self.y.len, self.x.len], size)
    }

    /// Crops to a window and resizes it to this height and width.
    fn crop_and_resize(&mut self, name: &str, [top, left, h, w]: [i64; 4], size: [i64; 2]) -> Result<()> {
        let whole = [top, left, h, w] == [0, 0, self.y.len, self.x.len];
        if self.y.is_full() && self.x.is_full() && !(self.y.is_resized() || self.x.is_resized()) {
            if !whole {
                self.crop([top, left], [h, w]);
            }
            (self.y, self.x) = (self.y.resize(size[0]), self.x.resize(size[1]));
        } else if self.shared.tiles.is_some() {
            self.crop([top, left], [h, w]);
            self.resize_padded(size)?;
        } else {
            let Self { info, .. } = self;
            let what = format!("image of {}x{} is smaller than the crop before {name}", info.height, info.width);
            return Err(bad(what, format!("put {name} before the crop")));
        }
        if let Some(marked) = &mut *self.marked {
            marked.resize([h, w], size);
        }
        Ok(())
    }

    /// Resizes a frame that has padding or was resized before. The tile holds the pixels that affect the result, and as
    /// much padding as filters reach. A whole canvas may be many times the image.
    fn resize_padded(&mut self, size: [i64; 2]) -> Result<()> {
        if self.y.is_empty() || self.x.is_empty() {
            (self.y, self.x) = (self.y.resize_blank(size[0]), self.x.resize_blank(size[1]));
            return Ok(());
        }
        let (y, x) = (self.y.resize_around(size[0]), self.x.resize_around(size[1]));
        let ((top, height), (left, width)) = (self.y.around(size[0]), self.x.around(size[1]));
        (self.y, self.x) = (self.y.crop(top, height), self.x.crop(left, width));
        self.moved = true;
        self.tile()?;
        (self.y, self.x, self.moved) = (y, x, true);
        Ok(())
    }
}
