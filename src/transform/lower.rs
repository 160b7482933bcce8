//! From a list of steps to one resample: what is fixed for a field, and what each sample draws.

use std::sync::Arc;

use super::{
    chain::Transform,
    geometry::{self, Frame},
    op::{Op, RowView},
};
use crate::{
    dataset::FieldKind,
    error::{Error, ErrorKind, Result},
    random::SampleRng,
    report::Stage,
    sys::kernels::{ChannelTable, Filter, ResampleParams, RowSpec, channel_source},
    types::{DType, ImageInfo, Layout},
};

/// Longest side of an output row. Keeps every product of sizes within 64 bits; a mistyped size is named, not allocated.
const LONGEST: u32 = 32_768;

/// A transform that fits a field: fixed output shape, channel tables, and the recipe for each sample's draw.
///
/// Cheap to clone: clones share it.
#[derive(Clone, Debug)]
pub struct Lowered {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    ops: Vec<Op>,
    row: RowSpec,
    /// For u8, u16 and f32 pixels.
    tables: [ChannelTable; 3],
    has_custom: bool,
    /// What the dataset says of its pixels.
    declared: Option<DType>,
    mask: bool,
}

impl Transform {
    /// Fixes output shape, type and tables for images of `field`.
    ///
    /// Values of the row: 0..1 after `to_float`, normalised after `normalize`; else as the pixels had them (0..255,
    /// 0..65535). Rows of `u8` hold 0..255 whatever the pixels' type.
    ///
    /// # Errors
    /// `Config`, naming the step, when the steps can't be folded to one resample, leave the output size open, or do not
    /// fit the field's channels or `dtype`.
    pub fn lower(&self, field: &FieldKind, dtype: DType, layout: Layout) -> Result<Lowered> {
        let Images { channels, size, dtype: declared } = image_field(field)?;
        if !matches!(dtype, DType::U8 | DType::F16 | DType::Bf16 | DType::F32) {
            return Err(Error::config(format!("images can't be {dtype}")).hint("use u8, f16, bf16 or f32"));
        }
        let mut plan = Plan::new(channels, size);
        for op in self.ops() {
            plan.add(op, dtype)?;
        }
        let row = self.row(&plan, dtype, layout)?;
        // The largest value of each source type, and of an image in 0..1.
        let tables = [255.0, 65_535.0, 1.0].map(|white| plan.table(white, dtype));
        let (ops, has_custom) = (self.ops().to_vec(), plan.custom.is_some());
        Ok(Lowered { shared: Arc::new(Shared { ops, row, tables, has_custom, declared, mask: false }) })
    }

    /// The same for a field of masks: crops, resizes and flips fall as for the record's images, each value is that of
    /// the nearest pixel, unchanged. What lies outside is 0. Steps that work on values do nothing.
    ///
    /// Rows are `u8` where the masks are, or may be; `f32`, which holds every whole number up to 2^24, where they are
    /// `u16` or `f32`.
    ///
    /// # Errors
    /// As [`lower`](Self::lower), but for steps that work on values.
    pub fn lower_mask(&self, field: &FieldKind, layout: Layout) -> Result<Lowered> {
        let Images { channels, size, dtype: declared } = image_field(field)?;
        let dtype = if let Some(DType::U16 | DType::F32) = declared { DType::F32 } else { DType::U8 };
        let mut plan = Plan::new(channels, size);
        for op in self.ops().iter().filter(|op| op.is_geometric()) {
            plan.add(op, dtype)?;
        }
        let row = self.row(&plan, dtype, layout)?;
        let all = |value: f32| vec![value; row.channels as usize];
        let table = ChannelTable { scale: all(1.0), bias: all(0.0), fill: all(0.0), cutout: all(0.0) };
        let (ops, tables) = (self.ops().to_vec(), [table.clone(), table.clone(), table]);
        // Where nobody says, rows hold bytes: what does not fit them is refused by record.
        let declared = declared.or(Some(DType::U8));
        Ok(Lowered { shared: Arc::new(Shared { ops, row, tables, has_custom: false, declared, mask: true }) })
    }

    fn row(&self, plan: &Plan<'_>, dtype: DType, layout: Layout) -> Result<RowSpec> {
        self.check_settings()?;
        let Some([height, width]) = plan.size else {
            let last = self.ops().last().map_or("no step", Op::name);
            return Err(Error::config(format!("the rows have no fixed size after {last}: images differ in size"))
                .hint("add resize_exact, center_crop, random_crop or random_resized_crop"));
        };
        if plan.channels == 0 || height == 0 || width == 0 {
            return Err(Error::config("the images have no pixels").hint("look at the dataset's schema"));
        }
        Ok(RowSpec { height, width, channels: plan.channels, dtype, layout })
    }
}

/// What the dataset says of its images.
struct Images {
    channels: u32,
    size: Option<(u32, u32)>,
    dtype: Option<DType>,
}

fn image_field(field: &FieldKind) -> Result<Images> {
    match *field {
        FieldKind::Image { channels, size, dtype } => Ok(Images { channels: u32::from(channels), size, dtype }),
        _ => Err(Error::config("a transform needs an image field").hint("name the field that holds the images")),
    }
}

/// What is known after some of the steps, whatever the image.
#[derive(Debug)]
struct Plan<'a> {
    channels: u32,
    /// Height and width, once they are the same for all images.
    size: Option<[u32; 2]>,
    resized: Option<&'a str>,
    /// The last crop that may add black, and whether it comes after the normalising.
    padded: Option<(&'a str, bool)>,
    /// Whether a crop adds black to every image.
    pads: bool,
    normalized: Option<(&'a [f32], &'a [f32])>,
    to_float: bool,
    /// Whether the cutout comes after the normalising.
    cutout: Option<bool>,
    custom: Option<&'a str>,
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
            normalized: None,
            to_float: false,
            cutout: None,
            custom: None,
        }
    }

    fn add(&mut self, op: &'a Op, dtype: DType) -> Result<()> {
        let name = op.name();
        if let Some(custom) = self.custom.filter(|_| !matches!(op, Op::Custom(_))) {
            let hint = format!("put {name} before it: custom steps run on the finished row");
            return Err(Error::config(format!("{name} comes after the custom step {custom}")).hint(hint));
        }
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
            Op::RandomResizedCrop { size, scale, ratio, interpolation, antialias } => {
                interpolation.check(name, *antialias)?;
                for (what, (least, most)) in [("scale", scale), ("ratio", ratio)] {
                    // Written so that NaN fails.
                    if !(*least > 0.0 && least <= most && most.is_finite()) {
                        return Err(Error::config(format!("{name} has {what} {least} to {most}"))
                            .hint("use two numbers above 0, the smaller one first"));
                    }
                }
                self.resize(name, *size)?;
                self.size = Some(*size);
            }
            Op::CenterCrop { size } => self.crop(name, *size, None)?,
            Op::RandomCrop { size, padding } => self.crop(name, *size, Some(*padding))?,
            Op::HorizontalFlip { p } | Op::VerticalFlip { p } => {
                if !(0.0..=1.0).contains(p) {
                    return Err(Error::config(format!("{name} has probability {p}")).hint("use 0 to 1"));
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
                    let hint = "leave it out: it is for images of 1 channel";
                    return Err(Error::config(format!("{name} on images of {n} channels")).hint(hint));
                }
            },
            Op::Cutout { size } => {
                check_size(name, [*size; 2])?;
                if self.cutout.is_some() {
                    return Err(Error::config(format!("{name} comes twice")).hint("use one, or a custom step"));
                }
                self.cutout = Some(self.normalized.is_some());
            }
            Op::Custom(_) => self.custom = Some(name),
            Op::FlipAxis { .. }
            | Op::Rot90 { .. }
            | Op::PadOrCrop { .. }
            | Op::Patch { .. }
            | Op::Window { .. }
            | Op::Scale { .. }
            | Op::Clamp { .. } => {
                return Err(Error::config(format!("{name} is for volumes, not for images"))
                    .hint("use the steps for images, such as random_crop and horizontal_flip"));
            }
        }
        Ok(())
    }

    /// A step that makes new pixels: there can be one.
    fn resize(&mut self, name: &'a str, size: [u32; 2]) -> Result<()> {
        check_size(name, size)?;
        self.must_not_move_cutout(name)?;
        if let Some(before) = self.resized {
            let hint = format!("keep one of them: infeed resamples once, so {name} can't be folded");
            return Err(Error::config(format!("{name} comes after {before}")).hint(hint));
        }
        if let Some((before, _)) = self.padded.filter(|_| self.pads) {
            let hint = format!("put {name} first: resampled padding can't be folded");
            return Err(Error::config(format!("{name} comes after {before} with padding")).hint(hint));
        }
        self.resized = Some(name);
        Ok(())
    }

    fn crop(&mut self, name: &'a str, size: [u32; 2], padding: Option<u32>) -> Result<()> {
        check_size(name, size)?;
        self.must_not_move_cutout(name)?;
        let after = self.normalized.is_some();
        if let Some((before, _)) = self.padded.filter(|&(_, other)| other != after) {
            let hint = "put normalize before or after both: their padding would differ";
            return Err(Error::config(format!("{name} and {before} lie on both sides of normalize")).hint(hint));
        }
        if let (Some([height, width]), Some(padding)) = (self.size, padding) {
            let have = [height, width].map(|side| u64::from(side) + 2 * u64::from(padding));
            if have[0] < u64::from(size[0]) || have[1] < u64::from(size[1]) {
                let [h, w] = size;
                return Err(Error::config(format!(
                    "{name} takes {h}x{w} out of {height}x{width} with padding {padding}"
                ))
                .hint("use a smaller size or more padding"));
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
            return Err(Error::config(format!("{name} comes twice")).hint("keep one of them"));
        }
        let fits = |n: usize| n == 1 || n == self.channels as usize;
        if !fits(mean.len()) || mean.len() != std.len() {
            let (m, s, c) = (mean.len(), std.len(), self.channels);
            return Err(Error::config(format!("{name} has {m} means and {s} deviations for {c} channels"))
                .hint("give one for each channel, or one for all"));
        }
        if !mean.iter().all(|m| m.is_finite()) || !std.iter().all(|s| s.is_finite() && *s > 0.0) {
            return Err(Error::config(format!("{name} has mean {mean:?} and std {std:?}"))
                .hint("use finite numbers, deviations above 0"));
        }
        self.normalized = Some((mean, std));
        Ok(())
    }

    fn must_be_float(name: &str, dtype: DType) -> Result<()> {
        if dtype == DType::U8 {
            return Err(Error::config(format!("{name} gives fractions, which u8 rows can't hold"))
                .hint(format!("leave {name} out, or use f32, f16 or bf16")));
        }
        Ok(())
    }

    fn must_not_move_cutout(&self, name: &str) -> Result<()> {
        if self.cutout.is_some() {
            return Err(Error::config(format!("{name} comes after cutout")).hint(format!("put {name} before it")));
        }
        Ok(())
    }

    /// Tables for pixels whose largest value is `white`.
    fn table(&self, white: f64, dtype: DType) -> ChannelTable {
        let channels = self.channels as usize;
        // One number stands for all channels.
        let of = |values: &[f32], c: usize| f64::from(values[if values.len() == 1 { 0 } else { c }]);
        let affine = |c: usize| match self.normalized {
            Some((mean, std)) => (1.0 / (white * of(std, c)), -of(mean, c) / of(std, c)),
            None if self.to_float => (1.0 / white, 0.0),
            None if dtype == DType::U8 => (255.0 / white, 0.0),
            None => (1.0, 0.0),
        };
        let (scale, bias): (Vec<f32>, Vec<f32>) =
            // Adding 0 turns a bias of -0 into 0.
            (0..channels).map(affine).map(|(scale, bias)| (scale as f32, bias as f32 + 0.0)).unzip();
        // 0 before the normalising becomes the bias.
        let black = |after: bool| if after { vec![0.0; channels] } else { bias.clone() };
        let fill = black(self.padded.is_some_and(|(_, after)| after));
        let cutout = black(self.cutout.unwrap_or(false));
        ChannelTable { scale, bias, fill, cutout }
    }
}

fn check_size(name: &str, size: [u32; 2]) -> Result<()> {
    let [height, width] = size;
    if size.iter().any(|side| !(1..=LONGEST).contains(side)) {
        return Err(Error::config(format!("{name} has size {height}x{width}")).hint(format!("use 1 to {LONGEST}")));
    }
    Ok(())
}

impl Lowered {
    /// Shape and type of the finished row.
    #[must_use]
    pub fn row(&self) -> &RowSpec {
        &self.shared.row
    }

    /// Scale, bias, fill for pixels of this type.
    #[must_use]
    pub fn table(&self, dtype: DType) -> &ChannelTable {
        let [of_u8, of_u16, of_f32] = &self.shared.tables;
        match dtype {
            DType::U16 => of_u16,
            DType::F32 => of_f32,
            _ => of_u8,
        }
    }

    /// Whether nobody has said what the largest value of a pixel is, and the row depends on it: pixels of u8 and u16 have one
    /// by their type, those of f32 are taken to end at 1.
    pub(crate) fn guesses_white(&self) -> bool {
        let [of_u8, _, of_f32] = &self.shared.tables;
        self.shared.declared.is_none() && !self.shared.mask && of_u8.scale != of_f32.scale
    }

    /// Whether [`finish`](Self::finish) does anything: then rows must be made on the CPU.
    #[must_use]
    pub fn has_custom(&self) -> bool {
        self.shared.has_custom
    }

    /// Whether rows hold labels, which are not blended.
    #[must_use]
    pub fn is_mask(&self) -> bool {
        self.shared.mask
    }

    /// The block for one sample: draws, rounding of sizes, bounds. Depends on the image's shape only, so it is known
    /// before decoding; [`Axis::reads`](crate::sys::kernels::Axis::reads) then tells which rows are needed.
    ///
    /// # Errors
    /// `Unsupported` for an image that the steps can't take: too small for a crop, other channels or another size than
    /// the field's. Names neither record nor object; the caller does.
    pub fn params(&self, info: &ImageInfo, rng: SampleRng) -> Result<ResampleParams> {
        let row = &self.shared.row;
        let bad =
            |what: String, hint: String| Error::new(ErrorKind::Unsupported, what).hint(hint).at_stage(Stage::Transform);
        if info.height == 0 || info.width == 0 {
            return Err(
                Error::corrupt(format!("image of {}x{} pixels", info.height, info.width)).at_stage(Stage::Transform)
            );
        }
        if !matches!(info.dtype, DType::U8 | DType::U16 | DType::F32) {
            return Err(bad(format!("pixels of {}", info.dtype), "convert them to u8, u16 or f32".into()));
        }
        if channel_source(u32::from(info.channels), row.channels, 0).is_none() {
            let what = format!("image of {} channels where rows have {}", info.channels, row.channels);
            return Err(bad(what, "convert the image, or put it into a dataset of its own".into()));
        }

        if let Some(declared) = self.shared.declared.filter(|declared| *declared != info.dtype) {
            let what = format!("pixels of {} where the dataset's are {declared}", info.dtype);
            return Err(bad(what, "convert the image, or put it into a dataset of its own".into()));
        }

        let (mut y, mut x) = (Frame::whole(info.height), Frame::whole(info.width));
        let mut cutout = [0i64; 4];
        let mut filter = Filter::default();
        for (index, op) in self.shared.ops.iter().enumerate() {
            let mut draws = rng.op(index as u32);
            match op {
                Op::ResizeShorter { .. } | Op::ResizeExact { .. } | Op::RandomResizedCrop { .. }
                    if !(y.is_full() && x.is_full()) =>
                {
                    let what = format!(
                        "image of {}x{} is smaller than the crop before {}",
                        info.height,
                        info.width,
                        op.name()
                    );
                    return Err(bad(what, format!("put {} before the crop", op.name())));
                }
                Op::ResizeShorter { size, interpolation, antialias } => {
                    let (h, w) = geometry::shorter(y.len, x.len, i64::from(*size));
                    (y, x) = (y.resize(h), x.resize(w));
                    filter = interpolation.draw(*antialias, &mut draws);
                }
                Op::ResizeExact { size: [h, w], interpolation, antialias } => {
                    (y, x) = (y.resize((*h).into()), x.resize((*w).into()));
                    filter = interpolation.draw(*antialias, &mut draws);
                }
                Op::RandomResizedCrop { size: [out_h, out_w], scale, ratio, interpolation, antialias } => {
                    let [top, left, h, w] = geometry::random_part(y.len, x.len, *scale, *ratio, &mut draws);
                    y = y.crop(top, h).resize((*out_h).into());
                    x = x.crop(left, w).resize((*out_w).into());
                    // Last, so that the window does not depend on how many there are.
                    filter = interpolation.draw(*antialias, &mut draws);
                }
                Op::CenterCrop { size } => {
                    let [h, w] = size.map(i64::from);
                    y = y.crop(geometry::centre(y.len, h), h);
                    x = x.crop(geometry::centre(x.len, w), w);
                }
                Op::RandomCrop { size, padding } => {
                    let ([h, w], padding) = (size.map(i64::from), i64::from(*padding));
                    let (have_h, have_w) = (y.len + 2 * padding, x.len + 2 * padding);
                    if have_h < h || have_w < w {
                        let (top, left) = (y.len, x.len);
                        let what =
                            format!("image is {top}x{left} where random_crop takes {h}x{w} with padding {padding}");
                        return Err(bad(what, "resize before it, or use more padding".into()));
                    }
                    y = y.crop(geometry::offset(have_h, h, &mut draws) - padding, h);
                    x = x.crop(geometry::offset(have_w, w, &mut draws) - padding, w);
                }
                Op::HorizontalFlip { p } => {
                    if draws.chance(*p) {
                        x = x.mirror();
                        cutout = [cutout[0], cutout[1], x.len - cutout[3], x.len - cutout[2]];
                    }
                }
                Op::VerticalFlip { p } => {
                    if draws.chance(*p) {
                        y = y.mirror();
                        cutout = [y.len - cutout[1], y.len - cutout[0], cutout[2], cutout[3]];
                    }
                }
                Op::Cutout { size } => {
                    let mut side = |len: i64| {
                        let start = draws.below(len as u64) as i64 - i64::from(size / 2);
                        (start.max(0), (start + i64::from(*size)).min(len))
                    };
                    let ((top, bottom), (left, right)) = (side(y.len), side(x.len));
                    cutout = [top, bottom, left, right];
                }
                Op::Normalize { .. } | Op::ToFloat | Op::GrayToRgb | Op::Custom(_) => {}
                // For volumes: refused in `lower`.
                Op::FlipAxis { .. }
                | Op::Rot90 { .. }
                | Op::PadOrCrop { .. }
                | Op::Patch { .. }
                | Op::Window { .. }
                | Op::Scale { .. }
                | Op::Clamp { .. } => {}
            }
        }
        if (y.len, x.len) != (i64::from(row.height), i64::from(row.width)) {
            let what = format!("image of {}x{} makes a row of {}x{}", info.height, info.width, y.len, x.len);
            return Err(bad(what, format!("rows are {}x{}: add a resize or a crop", row.height, row.width)));
        }
        // An empty rectangle that was mirrored is empty still.
        let cutout = if self.shared.mask { [0; 4] } else { cutout.map(|edge| edge as u32) };
        let filter = if self.shared.mask { Filter::NearestExact } else { filter };
        Ok(ResampleParams { y: y.axis(), x: x.axis(), cutout, filter })
    }

    /// Runs the custom steps on a finished row.
    ///
    /// # Errors
    /// The custom step's own.
    pub fn finish(&self, row: &mut [u8], rng: SampleRng) -> Result<()> {
        if !self.shared.has_custom {
            return Ok(());
        }
        for (index, op) in self.shared.ops.iter().enumerate() {
            if let Op::Custom(custom) = op {
                let mut view = RowView::new(&self.shared.row, row);
                custom.run(&mut view, rng.op(index as u32)).map_err(|e| e.at_stage(Stage::Transform))?;
            }
        }
        Ok(())
    }
}
