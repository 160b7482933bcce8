//! A transform: the list of its steps, and a method to add each.

use std::{fmt, sync::Arc};

use infeed_core::{
    error::{Error, Result},
    random::Draws,
};
use serde::{Deserialize, Serialize};

use super::{
    interpolation::{Interpolation, Interpolations},
    op::{self, Axis, Op, RowView},
};

/// A list of steps from a decoded image to a row of the batch.
///
/// Nothing is checked here: the loader's `build()` lowers the transform and returns an error that names what does not
/// work. In JSON a transform is the list of its steps, so it can be stored in a file, except [`custom`](Self::custom)
/// steps:
///
/// ```
/// use infeed::transform::{IMAGENET_MEAN, IMAGENET_STD, Transform};
///
/// let train = Transform::new().random_resized_crop(224).horizontal_flip(0.5).normalize(IMAGENET_MEAN, IMAGENET_STD);
/// assert_eq!(train, Transform::preset("imagenet-train")?);
///
/// let val = r#"[{"op": "resize_shorter", "size": 256}, {"op": "center_crop", "size": 224}, {"op": "to_float"}]"#;
/// let val: Transform = serde_json::from_str(val).unwrap();
/// assert_eq!(val, Transform::new().resize_shorter(256).center_crop(224).to_float());
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
#[must_use]
pub struct Transform {
    ops: Vec<Op>,
    /// A setting that does not follow a step that has it; `lower` reports it.
    #[serde(skip)]
    misplaced: Option<&'static str>,
}

impl Transform {
    /// A transform without steps: the image as it is. All images must have one size.
    pub fn new() -> Self {
        Self::default()
    }

    /// The steps, in the order in which they run.
    #[must_use]
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// Names a setting that follows a step without that setting.
    pub(super) fn check_settings(&self) -> Result<()> {
        let Some(setting) = self.misplaced else { return Ok(()) };
        Err(Error::config(format!("{setting} follows a step that does not resize"))
            .with_hint("put it directly after resize_shorter, resize_exact or random_resized_crop"))
    }

    /// Adds a step.
    ///
    /// ```
    /// use infeed::transform::{Transform, augment::RandAugment};
    /// Transform::new().random_resized_crop(224).push(RandAugment { magnitude: 5, ..RandAugment::default() });
    /// ```
    pub fn push(mut self, op: impl Into<Op>) -> Self {
        self.ops.push(op.into());
        self
    }

    /// Resizes so that the shorter side is `size`; the longer one keeps the proportion, rounded down.
    pub fn resize_shorter(self, size: u32) -> Self {
        self.push(Op::ResizeShorter { size, interpolation: Interpolations::default(), antialias: true })
    }

    /// Resizes to exactly this size, whatever the proportion.
    pub fn resize_exact(self, height: u32, width: u32) -> Self {
        let interpolation = Interpolations::default();
        self.push(Op::ResizeExact { size: [height, width], interpolation, antialias: true })
    }

    /// Resizes and keeps the proportion of the image. With `longest` 0 the image covers the size, with 1 it fits into
    /// it; values between interpolate. This is timm's `ResizeKeepRatio` without its random part; it rounds both sides.
    ///
    /// ```
    /// use infeed::transform::{Interpolation, Transform};
    /// // timm's validation at 256x192: the crop is nine tenths of the resized image.
    /// let val = Transform::new().resize_keep_ratio(284, 213, 0.0).interpolation(Interpolation::Bicubic);
    /// assert_eq!(val, "resize_keep_ratio:284/213,bicubic".parse()?);
    /// # Ok::<(), infeed::Error>(())
    /// ```
    pub fn resize_keep_ratio(self, height: u32, width: u32, longest: f64) -> Self {
        let interpolation = Interpolations::default();
        self.push(Op::ResizeKeepRatio { size: [height, width], longest, interpolation, antialias: true })
    }

    /// Cuts a square out of the middle. If the image is smaller, the rest is black.
    pub fn center_crop(self, size: u32) -> Self {
        self.push(Op::CenterCrop { size: [size, size] })
    }

    /// Cuts a square out at a random place, after adding `padding` black pixels on each side.
    ///
    /// An image that is still smaller than the square is a bad sample.
    pub fn random_crop(self, size: u32, padding: u32) -> Self {
        self.push(Op::RandomCrop { size: [size, size], padding })
    }

    /// Cuts out a random part (8 to 100 % of the area, width over height from 3:4 to 4:3) and resizes it to a square.
    ///
    /// For other sizes, areas and proportions use [`Op::RandomResizedCrop`].
    pub fn random_resized_crop(self, size: u32) -> Self {
        let (scale, ratio, interpolation) = (op::SCALE, op::RATIO, Interpolations::default());
        self.push(Op::RandomResizedCrop { size: [size, size], scale, ratio, interpolation, antialias: true })
    }

    /// Sets the filter of the preceding step, which must resize. Default: bilinear.
    ///
    /// ```
    /// use infeed::transform::{Interpolation, Transform};
    /// let deit = Transform::new().random_resized_crop(224).interpolation(Interpolation::Bicubic).horizontal_flip(0.5);
    /// ```
    pub fn interpolation(self, kind: Interpolation) -> Self {
        self.set("interpolation", |interpolation, _| *interpolation = kind.into())
    }

    /// Like [`interpolation`](Self::interpolation), but each sample draws one of these filters, all with equal
    /// probability.
    pub fn interpolation_among(self, kinds: impl Into<Vec<Interpolation>>) -> Self {
        self.set("interpolation_among", |interpolation, _| *interpolation = kinds.into().into())
    }

    /// Whether the preceding step, which must resize, widens its filter when it makes the image smaller. Default: yes,
    /// as in torchvision. Without antialias, only bilinear and bicubic are allowed.
    pub fn antialias(self, antialias: bool) -> Self {
        self.set("antialias", |_, own| *own = antialias)
    }

    fn set(mut self, name: &'static str, change: impl FnOnce(&mut Interpolations, &mut bool)) -> Self {
        match self.ops.last_mut().and_then(Op::interpolation_mut) {
            Some((interpolation, antialias)) => change(interpolation, antialias),
            None => self.misplaced = self.misplaced.or(Some(name)),
        }
        self
    }

    /// Swaps left and right with probability `p`.
    pub fn horizontal_flip(self, p: f32) -> Self {
        self.push(Op::HorizontalFlip { p })
    }

    /// Swaps top and bottom with probability `p`.
    pub fn vertical_flip(self, p: f32) -> Self {
        self.push(Op::VerticalFlip { p })
    }

    /// Scales values to 0..1 (u8 / 255, u16 / 65535, f32 unchanged), then subtracts `mean` and divides by `std`.
    ///
    /// One number for each channel, or one for all.
    pub fn normalize(self, mean: impl Into<Vec<f32>>, std: impl Into<Vec<f32>>) -> Self {
        self.push(Op::Normalize { mean: mean.into(), std: std.into() })
    }

    /// Scales values to 0..1: u8 / 255, u16 / 65535, f32 unchanged. [`normalize`](Self::normalize) does so too.
    pub fn to_float(self) -> Self {
        self.push(Op::ToFloat)
    }

    /// Copies the channel of gray images to three channels.
    pub fn gray_to_rgb(self) -> Self {
        self.push(Op::GrayToRgb)
    }

    /// Blanks a square of `size` pixels around a random place, cut off at the edges ([DeVries and Taylor
    /// 2017](https://arxiv.org/abs/1708.04552)). The blank value is 0 at this point of the list: black before
    /// [`normalize`](Self::normalize), the mean after it.
    pub fn cutout(self, size: u32) -> Self {
        self.push(Op::Cutout { size })
    }

    /// Mirrors an axis of a volume with probability `p`. This step and the ones below are only for volumes. Image and
    /// masks of a record move alike; values of masks never change.
    pub fn flip_axis(self, axis: Axis, p: f32) -> Self {
        self.push(Op::FlipAxis { axis, p })
    }

    /// Rotates a plane of a volume by one, two or three quarter turns (equally probable) with probability `p`, from the
    /// first axis to the second, as `torch.rot90` does. The two sides must be equal.
    pub fn rot90(self, plane: [Axis; 2], p: f32) -> Self {
        self.push(Op::Rot90 { plane, p })
    }

    /// Brings a volume to a size (depth, height, width): crops around the middle, or pads around it with `value` (0 in
    /// masks). If the difference is odd, the extra voxel is cut off or added at the end.
    pub fn pad_or_crop(self, size: [u32; 3], value: f32) -> Self {
        self.push(Op::PadOrCrop { size, value })
    }

    /// Cuts a box of this depth, height and width out of a volume at a random place. With probability `foreground`, the
    /// box is centred on a voxel that is not 0 in the record's first mask, as far as the edges of the volume allow;
    /// otherwise it is anywhere inside.
    ///
    /// From raw files, only the box is read. A volume smaller than the box is a bad sample: put
    /// [`pad_or_crop`](Self::pad_or_crop) before this step if there are such volumes.
    pub fn patch(self, size: [u32; 3], foreground: f32) -> Self {
        self.push(Op::Patch { size, foreground })
    }

    /// Maps intensities `low..high` of a volume to 0..1. Lower ones become 0, higher ones 1.
    pub fn window(self, low: f32, high: f32) -> Self {
        self.push(Op::Window { low, high })
    }

    /// Multiplies intensities of a volume by `scale`, then adds `bias`.
    pub fn scale(self, scale: f32, bias: f32) -> Self {
        self.push(Op::Scale { scale, bias })
    }

    /// Clamps intensities of a volume to `low..=high`.
    pub fn clamp(self, low: f32, high: f32) -> Self {
        self.push(Op::Clamp { low, high })
    }

    /// Runs your own function on the decode thread (CPU only). If no other step follows, it gets the finished row;
    /// otherwise it gets the picture that the steps before it have made (see [`RowView`]). A custom step can't stand
    /// between `normalize` and another step. It does not run on masks.
    ///
    /// The function's draws depend on the record and on the step's index in the list. An error of kind `Corrupt` or
    /// `Unsupported` makes the sample a bad one; any other error ends the run. Costs a pass over the picture, and
    /// another resample if it stands between steps that fold.
    ///
    /// ```
    /// use infeed::transform::{IMAGENET_MEAN, IMAGENET_STD, Transform};
    ///
    /// // Rotates all hues by up to a tenth of the colour circle, in YIQ.
    /// let hue = Transform::new()
    ///     .random_resized_crop(224)
    ///     .custom("hue", |picture, mut draws| {
    ///         let (sin, cos) = draws.between(-0.628, 0.628).sin_cos();
    ///         let (sin, cos) = (sin as f32, cos as f32);
    ///         picture.map_pixels(|[r, g, b]| {
    ///             let y = 0.299 * r + 0.587 * g + 0.114 * b;
    ///             let (i, q) = (0.596 * r - 0.274 * g - 0.322 * b, 0.211 * r - 0.523 * g + 0.312 * b);
    ///             let (i, q) = (i * cos - q * sin, i * sin + q * cos);
    ///             [y + 0.956 * i + 0.621 * q, y - 0.272 * i - 0.647 * q, y - 1.106 * i + 1.703 * q]
    ///         })
    ///     })
    ///     .normalize(IMAGENET_MEAN, IMAGENET_STD);
    /// // Adds noise to the values that the batch will hold.
    /// let noisy = hue.custom("noise", |row, mut draws| {
    ///     for value in row.values_mut::<f32>().into_iter().flatten() {
    ///         *value += 0.1 * (draws.unit() - 0.5);
    ///     }
    ///     Ok(())
    /// });
    /// ```
    pub fn custom<F>(self, name: impl Into<String>, run: F) -> Self
    where
        F: Fn(&mut RowView<'_>, Draws) -> Result<()> + Send + Sync + 'static,
    {
        self.push(Op::Custom(op::Custom::new(name.into(), Arc::new(run))))
    }
}

impl fmt::Display for Transform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.ops.iter().map(Op::name).collect();
        f.write_str(&names.join(" > "))
    }
}

impl From<Vec<Op>> for Transform {
    fn from(ops: Vec<Op>) -> Self {
        Self { ops, misplaced: None }
    }
}
