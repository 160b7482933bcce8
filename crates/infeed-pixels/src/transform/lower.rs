//! Lowers a list of steps to resamples: what is fixed for a field, and what each sample draws.

use std::sync::Arc;

use infeed_core::{
    error::{
        Error, Result,
        setting::{FLOATS, Front},
    },
    random::SampleRng,
    report::Stage,
    types::{DType, Layout},
};
use infeed_data::FieldKind;

use super::{
    augment::{Augment, Erasing, Moves, PictureShape, RandomErasing, Value},
    chain::Transform,
    detection::{FixedSizeCrop, PadTo, PadToLargest, RandomZoomOut},
    geometry,
    op::{Op, RowView},
};
use crate::kernels::{ChannelTable, RowScratch, RowSpec};

/// Longest side of an output row. It keeps every product of sizes within 64 bits, and a mistyped size gives an error
/// instead of a huge allocation.
const LONGEST: u32 = 32_768;

/// Words for the numbers drawn for a picture, and for descriptors. The longest lists, with two blurs of 23 and several
/// warps, take a third of it.
const WORDS: usize = 4 << 10;

/// A transform that fits a field: fixed output shape, channel tables, and how each sample draws.
///
/// Cheap to clone: clones share it.
///
/// ```
/// use infeed::{DType, Layout, dataset::FieldKind, transform::{Transform, IMAGENET_MEAN, IMAGENET_STD}};
///
/// let images = FieldKind::Image { channels: 3, size: None, dtype: None };
/// let transform = Transform::new().random_resized_crop(224).normalize(IMAGENET_MEAN, IMAGENET_STD);
/// let lowered = transform.lower(&images, DType::F32, Layout::Nchw)?;
/// assert_eq!(lowered.row().len_bytes(), 3 * 224 * 224 * 4);
///
/// // Invalid steps are named before any image is read.
/// let error = Transform::new().resize_shorter(256).lower(&images, DType::U8, Layout::Nchw).unwrap_err();
/// assert!(error.to_string().contains("no fixed size after resize_shorter"));
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Lowered {
    pub(super) shared: Arc<Shared>,
    pub(super) view: u32,
    row: RowSpec,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) ops: Vec<Op>,
    /// If rows are as large as the largest image of their batch: that step.
    pub(super) to_largest: Option<PadToLargest>,
    /// Tables for u8, u16 and f32 pixels.
    tables: [ChannelTable; 3],
    /// Index of the first custom step that runs on the finished row; the length of the list if there is none.
    pub(super) on_row: usize,
    /// Name of the field, for messages.
    pub(super) name: Box<str>,
    /// The pixel type that the dataset declares.
    pub(super) declared: Option<DType>,
    pub(super) mask: bool,
    /// The tiles between image and row, if there is more than one resample.
    pub(super) tiles: Option<Tiles>,
    /// Whether an image's draws depend on its boxes.
    pub(super) looks_at_boxes: bool,
    /// Whether boxes of no size are dropped.
    pub(super) sanitizes: bool,
    /// Index of the last step that resamples.
    pub(super) last_resize: Option<usize>,
}

/// A list with steps that work on a picture, or overwrite parts of the row.
#[derive(Debug)]
pub(super) struct Tiles {
    /// Channels of an image's first tile.
    pub(super) channels: u32,
    /// Index of the last step that moves or changes pixels of a picture. An erasing after it works on the row.
    pub(super) last: Option<usize>,
    /// From a tile in 0..1, made of an image of u8, u16 or f32, to the row.
    from_unit: [ChannelTable; 3],
    /// Values of the largest tile; `None` if that depends on the image.
    largest: Option<u64>,
    /// Pure scale factors, for each number of channels that tiles have: 1, 1/255, 1/65535, and 1 for tiles in 0..1.
    factors: Vec<[ChannelTable; 4]>,
}

impl Tiles {
    fn new(plan: &Plan<'_>, first: u32, last: Option<usize>, dtype: DType, mask: bool) -> Self {
        let mut numbers = vec![first, plan.channels, 1, 3];
        numbers.sort_unstable();
        numbers.dedup();
        // Labels are never scaled.
        let factor = |by: f32| if mask { 1.0 } else { by };
        let plain = |channels: u32, by: f32, white: f32| {
            let all = |value: f32| vec![value; channels as usize];
            let fill = (0..channels as usize).map(|c| if mask { 0.0 } else { white * plan.fill_of(c) });
            ChannelTable { scale: all(factor(by)), bias: all(0.0), fill: fill.collect(), cutout: all(0.0) }
        };
        let kinds = [(1.0, 255.0), (1.0 / 255.0, 1.0), (1.0 / 65_535.0, 1.0), (1.0, 1.0)];
        let factors = numbers.iter().map(|n| kinds.map(|(by, white)| plain(*n, by, white))).collect();
        let from_unit = [255.0, 65_535.0, 1.0]
            .map(|white| if mask { plain(plan.channels, 1.0, 0.0) } else { plan.table(1.0, white, dtype) });
        Self { channels: first, last, from_unit, factors, largest: plan.largest }
    }

    /// Index of the factor that converts values of type `from` to those of a tile with this number of channels.
    fn factor(&self, channels: u32, from: DType, unit: bool) -> Option<usize> {
        let of = self.factors.iter().position(|tables| tables[0].scale.len() == channels as usize)?;
        let kind = match from {
            DType::U8 if unit => 1,
            DType::U16 if unit => 2,
            _ if unit => 3,
            _ => 0,
        };
        Some(4 * of + kind)
    }
}

/// Index of the table for images of this type.
const fn number_of(image: DType) -> usize {
    match image {
        DType::U16 => 1,
        DType::F32 => 2,
        _ => 0,
    }
}

impl Transform {
    /// Fixes output shape, type and tables for images of `field`.
    ///
    /// Values of the row: 0..1 after `to_float`, normalised after `normalize`, otherwise as in the pixels (0..255,
    /// 0..65535). Rows of `u8` hold 0..255 whatever the pixels' type.
    ///
    /// # Errors
    /// `Config`, naming the step, if steps between two pictures can't be folded to one resample, have invalid settings,
    /// do not fix the output size, or do not fit the field's channels or `dtype`.
    pub fn lower(&self, field: &FieldKind, dtype: DType, layout: Layout) -> Result<Lowered> {
        let Images { channels, size, dtype: declared } = image_field(field)?;
        if !matches!(dtype, DType::U8 | DType::F16 | DType::Bf16 | DType::F32) {
            return Err(Error::config(format!("images can't be {dtype}")).with_hint("use u8, f16, bf16 or f32"));
        }
        let mut plan = Plan::new(channels, size);
        let on_row = on_row(self.ops());
        plan.last = (0..self.ops().len()).rev().find(|index| {
            let op = &self.ops()[*index];
            op.augment().is_some() || op.is_geometric() || (*index < on_row && matches!(op, Op::Custom(_)))
        });
        plan.on_row = on_row;
        for (index, op) in self.ops().iter().enumerate() {
            plan.index = index;
            plan.add(op, dtype).map_err(|error| error.in_step(index))?;
        }
        let row = self.row(&plan, dtype, layout)?;
        // The largest value of each source type, and of an image in 0..1.
        let tables = [255.0, 65_535.0, 1.0].map(|white| plan.table(white, white, dtype));
        let ops = self.ops().to_vec();
        let tiles = (plan.first_tile.is_some() || plan.erases)
            .then(|| Tiles::new(&plan, plan.first_tile.unwrap_or(plan.channels), plan.last, dtype, false));
        let (looks_at_boxes, sanitizes) = looks(&ops);
        let last_resize = ops.iter().rposition(Op::is_resize);
        let shared = Shared {
            ops,
            name: Box::default(),
            to_largest: plan.to_largest.map(|(_, step)| step),
            tables,
            on_row,
            declared,
            mask: false,
            tiles,
            looks_at_boxes,
            sanitizes,
            last_resize,
        };
        Ok(Lowered { shared: Arc::new(shared), view: 0, row })
    }

    /// The same for a field of masks. Crops, resizes and flips are those of the record's images. Each value is that of
    /// the nearest pixel, unchanged; outside of the mask it is 0. Steps that change values do nothing.
    ///
    /// Rows are `f32` if the dataset declares masks of `u16` or `f32`, else `u8`. `f32` holds every whole number up to
    /// 2^24.
    ///
    /// # Errors
    /// As for [`lower`](Self::lower), except errors of steps that change values.
    pub fn lower_mask(&self, field: &FieldKind, layout: Layout) -> Result<Lowered> {
        let Images { channels, size, dtype: declared } = image_field(field)?;
        let dtype = if let Some(DType::U16 | DType::F32) = declared { DType::F32 } else { DType::U8 };
        let mut plan = Plan::new(channels, size);
        for (index, op) in self.ops().iter().enumerate() {
            plan.index = index;
            match (op.augment(), op) {
                (Some(augment), _) => plan.follow(op.name(), augment),
                // Its fill is for the channels of images, with which it was checked.
                (None, Op::RandomZoomOut(step)) => plan.zoom_out(op.name(), step),
                (None, _) if op.is_geometric() => plan.add(op, dtype),
                // Other steps change only values, as `Moves::Never` ones do.
                (None, _) => {
                    plan.boundary |= index < on_row(self.ops()) && matches!(op, Op::Custom(_));
                    Ok(())
                }
            }
            .map_err(|error| error.in_step(index))?;
        }
        let row = self.row(&plan, dtype, layout)?;
        let all = |value: f32| vec![value; row.channels as usize];
        let table = ChannelTable { scale: all(1.0), bias: all(0.0), fill: all(0.0), cutout: all(0.0) };
        let (ops, tables) = (self.ops().to_vec(), [table.clone(), table.clone(), table]);
        // If the dataset declares no type, rows hold bytes; a record with larger values is refused.
        let declared = declared.or(Some(DType::U8));
        let tiles = plan.first_tile.map(|first| Tiles::new(&plan, first, None, dtype, true));
        let on_row = on_row(&ops);
        let (looks_at_boxes, sanitizes) = looks(&ops);
        let last_resize = ops.iter().rposition(Op::is_resize);
        let shared = Shared {
            ops,
            name: Box::default(),
            to_largest: plan.to_largest.map(|(_, step)| step),
            tables,
            on_row,
            declared,
            mask: true,
            tiles,
            looks_at_boxes,
            sanitizes,
            last_resize,
        };
        Ok(Lowered { shared: Arc::new(shared), view: 0, row })
    }

    fn row(&self, plan: &Plan<'_>, dtype: DType, layout: Layout) -> Result<RowSpec> {
        self.check_settings()?;
        let Some([height, width]) = plan.size else {
            return Err(no_fixed_size(self.ops().last()));
        };
        if plan.channels == 0 || height == 0 || width == 0 {
            return Err(Error::config("the images have no pixels").with_hint("look at the dataset's schema"));
        }
        Ok(RowSpec { height, width, channels: plan.channels, dtype, layout })
    }
}

/// Images in files may have any size, which is known only when they are read.
fn no_fixed_size(last: Option<&Op>) -> Error {
    let last = last.map_or_else(String::new, |last| format!(" after {}", last.name()));
    let what = format!("the rows have no fixed size{last}: the sizes of the images are not known before they are read");
    Error::config(what).with_hint(match Front::here() {
        Front::Python => {
            "add Resize((height, width)), CenterCrop, RandomCrop, RandomResizedCrop or PadTo to the transform, or for detection \
             PadToLargest; a Python dataset whose arrays have one shape may give them as they are: \
             infeed.open(dataset, fields={\"image\": \"array\"})"
        }
        _ => "add resize_exact, center_crop, random_crop, random_resized_crop or pad_to, or for detection pad_to_largest",
    })
}

/// Whether steps depend on boxes, and whether one drops boxes.
fn looks(ops: &[Op]) -> (bool, bool) {
    (ops.iter().any(Op::looks_at_boxes), ops.iter().any(|op| matches!(op, Op::SanitizeBoundingBoxes(_))))
}

/// Index of the first custom step after which only custom steps follow.
fn on_row(ops: &[Op]) -> usize {
    ops.iter().rposition(|op| !matches!(op, Op::Custom(_))).map_or(0, |last| last + 1)
}

/// What the dataset declares about its images.
struct Images {
    channels: u32,
    size: Option<(u32, u32)>,
    dtype: Option<DType>,
}

fn image_field(field: &FieldKind) -> Result<Images> {
    match *field {
        FieldKind::Image { channels, size, dtype } => Ok(Images { channels: u32::from(channels), size, dtype }),
        _ => Err(Error::config("a transform needs an image field").with_hint("name the field that holds the images")),
    }
}

/// What holds after some of the steps for all images.
#[derive(Debug)]
struct Plan<'a> {
    channels: u32,
    /// Height and width, if they are the same for all images.
    size: Option<[u32; 2]>,
    resized: Option<&'a str>,
    /// The last crop that may add black, and whether it follows the normalising.
    padded: Option<(&'a str, bool)>,
    /// Whether a crop adds black to every image.
    pads: bool,
    /// The step whose padding may be resized, and the value that it pads with.
    canvas: Option<(&'a str, &'a Value)>,
    /// Whether the picture may show that padding.
    on_canvas: bool,
    /// Whether a crop depended on boxes.
    looks_at_boxes: bool,
    normalized: Option<(&'a [f32], &'a [f32])>,
    to_float: bool,
    /// Whether the cutout follows the normalising.
    cutout: Option<bool>,
    /// Index of the first custom step that runs on the finished row.
    on_row: usize,
    /// Index of the current step, and of the last one that moves or changes pixels of a picture.
    index: usize,
    last: Option<usize>,
    /// Channels of the first tile, once there is one.
    first_tile: Option<u32>,
    /// Values of the largest tile; `None` if that depends on the image.
    largest: Option<u64>,
    /// For a mask: whether the image has a picture after the last step that moved the mask.
    boundary: bool,
    /// Whether rectangles of the row are overwritten.
    erases: bool,
    /// The step that makes rows as large as the largest image of their batch.
    to_largest: Option<(&'a str, PadToLargest)>,
}

impl<'a> Plan<'a> {
    fn new(channels: u32, size: Option<(u32, u32)>) -> Self {
        let size = size.map(|(height, width)| [height, width]);
        Self {
            channels,
            size,
            resized: None,
            padded: None,
            pads: false,
            canvas: None,
            on_canvas: false,
            looks_at_boxes: false,
            normalized: None,
            to_float: false,
            cutout: None,
            on_row: usize::MAX,
            index: 0,
            last: None,
            first_tile: None,
            largest: Some(0),
            boundary: false,
            erases: false,
            to_largest: None,
        }
    }

    /// A step that works on a picture: the steps before it fold to one resample, and folding starts again after it.
    fn augment(&mut self, name: &'a str, augment: &dyn Augment) -> Result<()> {
        if self.normalized.is_some() {
            return Err(Error::config(format!("{name} comes after normalize"))
                .with_hint(format!("put {name} before it: it is for colours from 0 to white")));
        }
        augment.check(name, &PictureShape { channels: self.channels, size: self.size })?;
        self.split();
        Ok(())
    }

    /// The same for a mask, which only moves.
    fn follow(&mut self, name: &'a str, augment: &dyn Augment) -> Result<()> {
        match augment.moves() {
            Moves::Alike => self.split(),
            // The image has a picture here. The mask needs one only before a resize that does not fold.
            Moves::Never => self.boundary = true,
            Moves::Blended => {
                let what = format!("{name} blends pictures that are moved differently: no mask can follow");
                return Err(Error::config(what).with_hint(format!("omit {name} if records have masks")));
            }
        }
        Ok(())
    }

    fn split(&mut self) {
        self.first_tile.get_or_insert(self.channels);
        let values = self.size.map(|[height, width]| u64::from(height) * u64::from(width) * u64::from(self.channels));
        self.largest = self.largest.zip(values).map(|(largest, values)| largest.max(values));
        (self.resized, self.padded, self.pads, self.cutout, self.boundary) = (None, None, false, None, false);
        self.on_canvas = false;
    }

    /// The value outside of images, as a part of white.
    fn fill_of(&self, channel: usize) -> f32 {
        self.canvas.map_or(0.0, |(_, fill)| fill.of(channel))
    }

    /// A canvas around the image, which later steps may resize.
    fn zoom_out(&mut self, name: &'a str, step: &'a RandomZoomOut) -> Result<()> {
        self.must_not_move_cutout(name)?;
        let pads = self.padded.filter(|_| self.pads).map(|(other, _)| other);
        if let Some(other) = self.canvas.map(|(other, _)| other).or(pads) {
            return Err(Error::config(format!("{name} comes after {other}, which pads too"))
                .with_hint("keep one of them: their padding may differ"));
        }
        if self.normalized.is_some() {
            return Err(Error::config(format!("{name} comes after normalize"))
                .with_hint(format!("put {name} before it: its fill is a part of white")));
        }
        // The picture between the canvas and a resize; its margin depends on the image.
        (self.first_tile, self.largest) = (self.first_tile.or(Some(self.channels)), None);
        (self.canvas, self.on_canvas, self.size) = (Some((name, &step.fill)), true, None);
        self.padded.get_or_insert((name, false));
        Ok(())
    }

    fn erase(&mut self, name: &'a str, step: &'a RandomErasing, dtype: DType) -> Result<()> {
        step.check(name, &PictureShape { channels: self.channels, size: self.size })?;
        let noise = matches!(step.value, Erasing::Noise(_));
        if self.last.is_some_and(|last| self.index < last) {
            if noise || self.normalized.is_some() || self.channels > 4 {
                return Err(Error::config(format!("{name} comes before other steps that change or move pixels"))
                    .with_hint(format!(
                        "put {name} after them; before them it must be constant and precede normalize"
                    )));
            }
            self.split();
            return Ok(());
        }
        if noise && (dtype == DType::U8 || !(self.to_float || self.normalized.is_some())) {
            return Err(Error::config(format!("{name} writes noise around 0, which pixels of 0 to 255 can't hold"))
                .with_hint(format!("put to_float or normalize before {name}, or give it a constant value")));
        }
        self.erases = true;
        Ok(())
    }

    fn add(&mut self, op: &'a Op, dtype: DType) -> Result<()> {
        let name = op.name();
        self.keeps_size(op)?;
        match op {
            Op::ResizeShorter { size, interpolation, antialias } => {
                interpolation.check(name, *antialias)?;
                self.resize(name, [*size; 2])?;
                self.size = self.size.map(|[height, width]| {
                    let (h, w) = geometry::shorter(i64::from(height.max(1)), i64::from(width.max(1)), i64::from(*size));
                    [h, w].map(|side| u32::try_from(side).unwrap_or(u32::MAX))
                });
            }
            Op::ResizeExact { size, interpolation, antialias } => {
                interpolation.check(name, *antialias)?;
                self.resize(name, *size)?;
                self.size = Some(*size);
            }
            Op::ResizeKeepRatio { size, longest, interpolation, antialias } => {
                interpolation.check(name, *antialias)?;
                if !(0.0..=1.0).contains(longest) {
                    return Err(Error::config(format!("{name} has longest {longest}")).with_hint("use 0 to 1"));
                }
                self.resize(name, *size)?;
                self.size = self.size.map(|[height, width]| {
                    geometry::keep_ratio([height.max(1).into(), width.max(1).into()], *size, *longest)
                        .map(|side| u32::try_from(side).unwrap_or(u32::MAX))
                });
            }
            Op::RandomResizedCrop { size, scale, ratio, interpolation, antialias } => {
                interpolation.check(name, *antialias)?;
                for (what, (least, most)) in [("scale", scale), ("ratio", ratio)] {
                    // Written so that NaN fails.
                    if !(*least > 0.0 && least <= most && most.is_finite()) {
                        return Err(Error::config(format!("{name} has {what} {least} to {most}"))
                            .with_hint("use two numbers above 0, the smaller one first"));
                    }
                }
                self.resize(name, *size)?;
                self.size = Some(*size);
            }
            Op::CenterCrop { size } => self.crop(name, *size, None)?,
            Op::RandomCrop { size, padding } => self.crop(name, *size, Some(*padding))?,
            Op::RandomShortestSize(step) => {
                step.check(name)?;
                step.sides().try_for_each(|side| check_size(name, [side; 2]))?;
                self.resize(name, [1; 2])?;
                self.size = None;
            }
            Op::ScaleJitter(step) => {
                step.check(name)?;
                self.resize(name, step.target_size)?;
                self.size = None;
            }
            Op::RandomZoomOut(step) => {
                step.check(name, &PictureShape { channels: self.channels, size: self.size })?;
                self.zoom_out(name, step)?;
            }
            Op::RandomIouCrop(step) => {
                step.check(name)?;
                self.must_not_move_cutout(name)?;
                (self.size, self.looks_at_boxes) = (None, true);
            }
            Op::FixedSizeCrop(FixedSizeCrop { size }) | Op::PadTo(PadTo { size }) => {
                self.pads = true;
                self.crop(name, *size, None)?;
            }
            Op::PadToLargest(step) => {
                step.check(name)?;
                if self.looks_at_boxes {
                    return Err(Error::config(format!("{name} follows a crop that depends on boxes"))
                        .with_hint("use pad_to: the size of such a crop is not known before the record is read"));
                }
                self.pads = true;
                self.crop(name, step.max_size, None)?;
                self.to_largest = Some((name, *step));
            }
            Op::SanitizeBoundingBoxes(step) => step.check(name)?,
            Op::ConvertBoundingBoxFormat(_) => {}
            Op::HorizontalFlip { p } | Op::VerticalFlip { p } => {
                if !(0.0..=1.0).contains(p) {
                    return Err(Error::config(format!("{name} has probability {p}")).with_hint("use 0 to 1"));
                }
            }
            Op::Normalize { mean, std } => self.normalize(name, mean, std, dtype)?,
            Op::ToFloat => {
                Self::must_be_float(name, dtype)?;
                self.to_float = true;
            }
            Op::GrayToRgb => match self.channels {
                1 | 3 => self.channels = 3,
                n => {
                    let hint = "omit it: it is for images of 1 channel";
                    return Err(Error::config(format!("{name} on images of {n} channels")).with_hint(hint));
                }
            },
            Op::Cutout { size } => {
                check_size(name, [*size; 2])?;
                if self.cutout.is_some() {
                    return Err(Error::config(format!("{name} comes twice")).with_hint("use one, or a custom step"));
                }
                self.cutout = Some(self.normalized.is_some());
            }
            Op::Custom(_) if self.index < self.on_row => {
                if self.normalized.is_some() {
                    return Err(Error::config(format!("{name} comes between normalize and another step")).with_hint(
                        format!("put {name} before normalize, where it sees a picture, or last, where it sees the row"),
                    ));
                }
                self.split();
            }
            Op::Custom(_) => {}
            Op::RandomErasing(step) => self.erase(name, step, dtype)?,
            Op::Grayscale(step) => {
                self.augment(name, step)?;
                self.channels = self.channels.min(step.num_output_channels);
            }
            Op::FlipAxis { .. }
            | Op::Rot90 { .. }
            | Op::PadOrCrop { .. }
            | Op::Patch { .. }
            | Op::Window { .. }
            | Op::Scale { .. }
            | Op::Clamp { .. } => {
                return Err(Error::config(format!("{name} is for volumes, not for images"))
                    .with_hint("use the steps for images, such as random_crop and horizontal_flip"));
            }
            _ => match op.augment() {
                Some(augment) => self.augment(name, augment)?,
                None => {
                    return Err(Error::new(
                        infeed_core::error::ErrorKind::Internal,
                        format!("{name} is not a step for images"),
                    ));
                }
            },
        }
        Ok(())
    }

    /// If rows differ in size from batch to batch, later steps may not depend on it: otherwise samples would depend on
    /// their batch.
    fn keeps_size(&self, op: &Op) -> Result<()> {
        let Some((before, _)) = self.to_largest else { return Ok(()) };
        let values = matches!(op, Op::Normalize { .. } | Op::ToFloat | Op::GrayToRgb | Op::Custom(_));
        if values || (op.needs_instances() && !op.looks_at_boxes()) {
            return Ok(());
        }
        let name = op.name();
        Err(Error::config(format!("{name} comes after {before}")).with_hint(format!("put {name} before it")))
    }

    /// A step that resamples; there can be only one between two pictures.
    fn resize(&mut self, name: &'a str, size: [u32; 2]) -> Result<()> {
        check_size(name, size)?;
        let moved = self.resized.is_some() || self.padded.is_some() || self.looks_at_boxes;
        if self.on_canvas || (self.boundary && moved) {
            let canvas = self.canvas.filter(|_| self.on_canvas);
            self.split();
            // The padding is still visible.
            self.on_canvas = canvas.is_some();
            self.padded = canvas.map(|(name, _)| (name, false));
        }
        self.must_not_move_cutout(name)?;
        if let Some(before) = self.resized {
            let hint = format!("keep one of them: infeed resamples once, so {name} can't be folded");
            return Err(Error::config(format!("{name} comes after {before}")).with_hint(hint));
        }
        if let Some((before, _)) = self.padded.filter(|_| self.pads) {
            let hint = format!("put {name} first: resampled padding can't be folded");
            return Err(Error::config(format!("{name} comes after {before} with padding")).with_hint(hint));
        }
        self.resized = Some(name);
        Ok(())
    }

    fn crop(&mut self, name: &'a str, size: [u32; 2], padding: Option<u32>) -> Result<()> {
        check_size(name, size)?;
        self.must_not_move_cutout(name)?;
        if let Some((canvas, _)) = self.canvas.filter(|(_, fill)| self.on_canvas && !fill.is_zero()) {
            return Err(Error::config(format!("{name} may pad with black, but {canvas} pads with another colour"))
                .with_hint(format!("let {canvas} fill with 0, or resize to the size of rows instead of {name}")));
        }
        let after = self.normalized.is_some();
        if let Some((before, _)) = self.padded.filter(|&(_, other)| other != after) {
            let hint = "put normalize before or after both: their padding would differ";
            return Err(Error::config(format!("{name} and {before} lie on both sides of normalize")).with_hint(hint));
        }
        if let (Some([height, width]), Some(padding)) = (self.size, padding) {
            let have = [height, width].map(|side| u64::from(side) + 2 * u64::from(padding));
            if have[0] < u64::from(size[0]) || have[1] < u64::from(size[1]) {
                let [h, w] = size;
                return Err(Error::config(format!(
                    "{name} takes {h}x{w} out of {height}x{width} with padding {padding}"
                ))
                .with_hint("use a smaller size or more padding"));
            }
        }
        self.pads |= padding.is_some_and(|p| p > 0);
        self.padded = Some((name, after));
        self.size = Some(size);
        Ok(())
    }

    fn normalize(&mut self, name: &str, mean: &'a [f32], std: &'a [f32], dtype: DType) -> Result<()> {
        Self::must_be_float(name, dtype)?;
        if self.normalized.is_some() {
            return Err(Error::config(format!("{name} comes twice")).with_hint("keep one of them"));
        }
        let fits = |n: usize| n == 1 || n == self.channels as usize;
        if !fits(mean.len()) || mean.len() != std.len() {
            let (m, s, c) = (mean.len(), std.len(), self.channels);
            return Err(Error::config(format!("{name} has {m} means and {s} deviations for {c} channels"))
                .with_hint("give one for each channel, or one for all"));
        }
        if !mean.iter().all(|m| m.is_finite()) || !std.iter().all(|s| s.is_finite() && *s > 0.0) {
            return Err(Error::config(format!("{name} has mean {mean:?} and std {std:?}"))
                .with_hint("use finite numbers, deviations above 0"));
        }
        self.normalized = Some((mean, std));
        Ok(())
    }

    fn must_be_float(name: &str, dtype: DType) -> Result<()> {
        if dtype == DType::U8 {
            return Err(Error::config(format!("{name} gives fractions, which u8 rows can't hold"))
                .with_hint(format!("omit {name}, or use {FLOATS}")));
        }
        Ok(())
    }

    fn must_not_move_cutout(&self, name: &str) -> Result<()> {
        if self.cutout.is_some() {
            return Err(Error::config(format!("{name} comes after cutout")).with_hint(format!("put {name} before it")));
        }
        Ok(())
    }

    /// The table for values from 0 to `white`, of an image whose values were from 0 to `of_image`.
    fn table(&self, white: f64, of_image: f64, dtype: DType) -> ChannelTable {
        let channels = self.channels as usize;
        // One number is used for all channels.
        let of = |values: &[f32], c: usize| f64::from(values[if values.len() == 1 { 0 } else { c }]);
        let affine = |c: usize| match self.normalized {
            Some((mean, std)) => (1.0 / (white * of(std, c)), -of(mean, c) / of(std, c)),
            None if self.to_float => (1.0 / white, 0.0),
            None if dtype == DType::U8 => (255.0 / white, 0.0),
            None => (of_image / white, 0.0),
        };
        let (scale, bias): (Vec<f32>, Vec<f32>) =
            // Adding 0 turns a bias of -0 into 0.
            (0..channels).map(affine).map(|(scale, bias)| (scale as f32, bias as f32 + 0.0)).unzip();
        // 0 before the normalising becomes the bias.
        let black = |after: bool| if after { vec![0.0; channels] } else { bias.clone() };
        let fill = match self.padded {
            Some((_, true)) => black(true),
            _ => (0..channels).map(|c| (self.fill_of(c) * white as f32).mul_add(scale[c], bias[c])).collect(),
        };
        let cutout = black(self.cutout.unwrap_or(false));
        ChannelTable { scale, bias, fill, cutout }
    }
}

fn check_size(name: &str, size: [u32; 2]) -> Result<()> {
    let [height, width] = size;
    if size.iter().any(|side| !(1..=LONGEST).contains(side)) {
        return Err(Error::config(format!("{name} has size {height}x{width}")).with_hint(format!("use 1 to {LONGEST}")));
    }
    Ok(())
}

impl Lowered {
    /// Shape and type of the finished row.
    #[must_use]
    pub fn row(&self) -> &RowSpec {
        &self.row
    }

    /// The same for rows of this height and width, if they differ from batch to batch
    /// ([`Item::size`](crate::codec::Item::size)); `None` changes nothing.
    #[must_use]
    pub fn of_size(mut self, size: Option<[u32; 2]>) -> Self {
        if let Some([height, width]) = size.filter(|_| self.shared.to_largest.is_some()) {
            self.row = RowSpec { height, width, ..self.row };
        }
        self
    }

    /// Whether each batch has rows of its own size; [`row`](Self::row) is the largest then.
    #[must_use]
    pub fn sizes_differ(&self) -> bool {
        self.shared.to_largest.is_some()
    }

    /// Scale, bias, fill for pixels of this type.
    #[must_use]
    pub fn table(&self, dtype: DType) -> &ChannelTable {
        &self.shared.tables[number_of(dtype)]
    }

    /// The table from a picture in 0..1 to the row, for images of this type, if there are pictures.
    pub(super) fn unit_table(&self, image: DType) -> Option<&ChannelTable> {
        self.shared.tiles.as_ref().map(|tiles| &tiles.from_unit[number_of(image)])
    }

    /// All channel tables: from images to rows and, if there are pictures, from pictures in 0..1 to rows and from
    /// images to pictures.
    #[doc(hidden)]
    pub fn tables(&self) -> impl Iterator<Item = &ChannelTable> {
        let tiles = self.shared.tiles.iter();
        self.shared
            .tables
            .iter()
            .chain(tiles.flat_map(|tiles| tiles.from_unit.iter().chain(tiles.factors.as_flattened())))
    }

    /// One of [`tables`](Self::tables).
    pub(super) fn table_at(&self, number: usize) -> Option<&ChannelTable> {
        // Indexed directly, not by iterating: it is called for each row.
        let own = self.shared.tables.len();
        let tiles = self.shared.tiles.as_ref();
        match number.checked_sub(own) {
            None => self.shared.tables.get(number),
            Some(n) => {
                let tiles = tiles?;
                let units = tiles.from_unit.len();
                if n < units { tiles.from_unit.get(n) } else { tiles.factors.as_flattened().get(n - units) }
            }
        }
    }

    /// Index in [`tables`](Self::tables) of the table for a resample of an image of this type, or of a tile, to a tile
    /// or the row. Out of range if a tile has a number of channels for which there is no table.
    pub(super) fn table_of(&self, image: DType, tile: Option<DType>, spec: &RowSpec, last: bool) -> usize {
        let own = self.shared.tables.len();
        match (&self.shared.tiles, last) {
            (Some(tiles), false) => {
                let factor = tiles.factor(spec.channels, tile.unwrap_or(image), spec.dtype == DType::F32);
                factor.map_or(usize::MAX, |factor| own + tiles.from_unit.len() + factor)
            }
            (Some(_), true) if tile == Some(DType::F32) => own + number_of(image),
            _ => number_of(tile.unwrap_or(image)),
        }
    }

    /// Whether the row depends on the largest pixel value and the dataset declares no type. u8 and u16 pixels have a
    /// largest value by their type; f32 pixels are assumed to end at 1.
    pub(crate) fn guesses_white(&self) -> bool {
        let [of_u8, _, of_f32] = &self.shared.tables;
        // Tiles of f32 are in 0 to 1, whatever follows.
        let scaled = of_u8.scale != of_f32.scale || self.shared.tiles.is_some();
        self.shared.declared.is_none() && !self.shared.mask && scaled
    }

    /// Sets the field's name, which messages contain if a record has several images.
    #[must_use]
    pub fn named(mut self, field: &str) -> Self {
        // If clones share it already, the name is not set.
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.name = field.into();
        }
        self
    }

    /// Adds the field's name to an error about its image.
    #[doc(hidden)]
    #[must_use]
    pub fn blame(&self, error: Error) -> Error {
        if self.shared.name.is_empty() { error } else { error.at_field(&*self.shared.name) }
    }

    /// Whether images must be gray: rows of a mask have one channel.
    pub(crate) fn is_gray_mask(&self) -> bool {
        self.shared.mask && self.shared.tiles.as_ref().map_or(self.row.channels, |tiles| tiles.channels) == 1
    }

    /// Whether a decoder that gets only files can't make the rows. That is so if there are custom steps, which run on
    /// the CPU, draws that depend on boxes, or rows or pictures whose size depends on the image.
    #[must_use]
    pub fn needs_cpu(&self) -> bool {
        let open = self.shared.tiles.as_ref().is_some_and(|tiles| tiles.largest.is_none());
        self.has_custom() || open || self.shared.looks_at_boxes || self.sizes_differ()
    }

    /// Whether there are custom steps, on pictures or on rows.
    pub(super) fn has_custom(&self) -> bool {
        !self.shared.mask && self.shared.ops.iter().any(|op| matches!(op, Op::Custom(_)))
    }

    /// An upper estimate of the GPU memory that rows with steps on pictures take. `None` if there are no such steps, or
    /// if they can't run on a GPU: the size of pictures depends on the image, or custom steps need the CPU.
    ///
    /// For bytes, it is the size of the picture, the same again for steps that can't run in place, and four times the
    /// size for a blur. For floats, or with AugMix, it is up to 12 times the number of values.
    #[doc(hidden)]
    pub fn device_room(&self) -> Option<RowScratch> {
        let values = self.largest_tile().filter(|_| !self.has_custom())?;
        let values = usize::try_from(values).ok()?;
        let erases = self.shared.ops.iter().any(|op| matches!(op, Op::RandomErasing(_)));
        let noise = if erases { self.row().len_bytes() / self.row().dtype.size() * size_of::<f32>() } else { 0 };
        Some(RowScratch { scratch: values.saturating_mul(12).saturating_add(WORDS), page: noise + WORDS })
    }

    /// Values of the largest picture; `None` if that depends on the image or there is none.
    pub(super) fn largest_tile(&self) -> Option<u64> {
        self.shared.tiles.as_ref()?.largest
    }

    /// Channels of the first tile, or of the row if there is none.
    #[must_use]
    pub fn first_channels(&self) -> u32 {
        self.shared.tiles.as_ref().map_or(self.row.channels, |tiles| tiles.channels)
    }

    /// Whether an image's draws depend on its boxes: use [`draw_with`](Self::draw_with) then.
    #[must_use]
    pub fn looks_at_boxes(&self) -> bool {
        self.shared.looks_at_boxes
    }

    /// Whether custom steps run on the finished row.
    pub(super) fn finishes(&self) -> bool {
        !self.shared.mask && self.shared.on_row < self.shared.ops.len()
    }

    /// Most host memory that a worker takes for steps on pictures, if images take up to `max_image_bytes`: two tiles,
    /// and two more for steps that can't run in place, all of f32 in the worst case.
    #[doc(hidden)]
    pub fn tile_bytes(&self, max_image_bytes: u64) -> u64 {
        let Some(tiles) = &self.shared.tiles else { return 0 };
        tiles.largest.map_or(max_image_bytes, |values| values * 4).saturating_mul(4)
    }

    /// The same transform for this view of the image, with its own draws. View 0 draws as if there were no other views.
    #[doc(hidden)]
    #[must_use]
    pub const fn of_view(mut self, view: u32) -> Self {
        self.view = view;
        self
    }

    /// Index of the view of its image. If it is above 0 and the preceding field makes the preceding view, both show the
    /// same image: a decoder may decode it once for all views.
    #[must_use]
    pub const fn view(&self) -> u32 {
        self.view
    }

    /// Whether rows hold labels, which are never blended.
    #[must_use]
    pub fn is_mask(&self) -> bool {
        self.shared.mask
    }

    /// Runs the custom steps on a finished row.
    pub(super) fn finish(&self, row: &mut [u8], rng: SampleRng) -> Result<()> {
        if !self.finishes() {
            return Ok(());
        }
        (self.shared.on_row..self.shared.ops.len()).try_for_each(|index| self.custom(index, &self.row, row, rng))
    }

    /// Runs one custom step on the row, or on a picture before it.
    pub(super) fn custom(&self, index: usize, spec: &RowSpec, values: &mut [u8], rng: SampleRng) -> Result<()> {
        let Some(Op::Custom(custom)) = self.shared.ops.get(index) else { return Ok(()) };
        let mut view = RowView::new(*spec, values);
        custom.run(&mut view, rng.op(index as u32)).map_err(|error| error.at_stage(Stage::Transform))
    }
}
