//! A transform: the list of its steps, and a method for each.

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
/// Nothing is checked here; the loader's `build()` lowers it and says what does not work. In JSON it is the list of its
/// steps, so a file can hold one (all but [`custom`](Self::custom)):
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
    /// A setting that came behind no step which has it, for `lower` to name.
    #[serde(skip)]
    misplaced: Option<&'static str>,
}

impl Transform {
    /// No steps: the image as it is, for images that all have one size.
    pub fn new() -> Self {
        Self::default()
    }

    /// The steps, in the order in which they are done.
    #[must_use]
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// Names what was set where it has no meaning.
    pub(super) fn check_settings(&self) -> Result<()> {
        let Some(setting) = self.misplaced else { return Ok(()) };
        Err(Error::config(format!("{setting} comes behind a step that does not resize"))
            .hint("put it right behind resize_shorter, resize_exact or random_resized_crop"))
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

    /// Resizes by the proportion of the image: `longest` 0 covers the size, 1 fits into it, and what is between lies
    /// between. timm's `ResizeKeepRatio`, which rounds both sides; it draws nothing here.
    ///
    /// ```
    /// use infeed::transform::{Interpolation, Transform};
    /// // What timm validates with at 256x192, of nine tenths of the image.
    /// let val = Transform::new().resize_keep_ratio(284, 213, 0.0).interpolation(Interpolation::Bicubic);
    /// assert_eq!(val, "resize_keep_ratio:284/213,bicubic".parse()?);
    /// # Ok::<(), infeed::Error>(())
    /// ```
    pub fn resize_keep_ratio(self, height: u32, width: u32, longest: f64) -> Self {
        let interpolation = Interpolations::default();
        self.push(Op::ResizeKeepRatio { size: [height, width], longest, interpolation, antialias: true })
    }

    /// Cuts a square out of the middle. Black stands where the image is smaller.
    pub fn center_crop(self, size: u32) -> Self {
        self.push(Op::CenterCrop { size: [size, size] })
    }

    /// Cuts a square out at a random place, after adding `padding` black pixels on each side.
    ///
    /// An image that is smaller than the square even so is a bad sample.
    pub fn random_crop(self, size: u32, padding: u32) -> Self {
        self.push(Op::RandomCrop { size: [size, size], padding })
    }

    /// Cuts out a random part (8 to 100 % of the area, 3:4 to 4:3 wide) and resizes it to a square.
    ///
    /// [`Op::RandomResizedCrop`] has the other sizes, areas and proportions.
    pub fn random_resized_crop(self, size: u32) -> Self {
        let (scale, ratio, interpolation) = (op::SCALE, op::RATIO, Interpolations::default());
        self.push(Op::RandomResizedCrop { size: [size, size], scale, ratio, interpolation, antialias: true })
    }

    /// How the step before it, which resizes, makes pixels of others. Bilinear unless told.
    ///
    /// ```
    /// use infeed::transform::{Interpolation, Transform};
    /// let deit = Transform::new().random_resized_crop(224).interpolation(Interpolation::Bicubic).horizontal_flip(0.5);
    /// ```
    pub fn interpolation(self, kind: Interpolation) -> Self {
        self.set("interpolation", |interpolation, _| *interpolation = kind.into())
    }

    /// The same, drawn for each sample from these, evenly.
    pub fn interpolation_among(self, kinds: impl Into<Vec<Interpolation>>) -> Self {
        self.set("interpolation_among", |interpolation, _| *interpolation = kinds.into().into())
    }

    /// Whether the step before it, which resizes, widens its filter where the image is made smaller, as torchvision does
    /// unless told. Only bilinear and bicubic have a meaning without it.
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

    /// Brings values to 0..1 (u8 / 255, u16 / 65535, f32 as they are), then subtracts `mean` and divides by `std`.
    ///
    /// One number for each channel, or one for all.
    pub fn normalize(self, mean: impl Into<Vec<f32>>, std: impl Into<Vec<f32>>) -> Self {
        self.push(Op::Normalize { mean: mean.into(), std: std.into() })
    }

    /// Brings values to 0..1: u8 / 255, u16 / 65535, f32 as they are. [`normalize`](Self::normalize) does so too.
    pub fn to_float(self) -> Self {
        self.push(Op::ToFloat)
    }

    /// Repeats the channel of gray images three times.
    pub fn gray_to_rgb(self) -> Self {
        self.push(Op::GrayToRgb)
    }

    /// Blanks a square of `size` pixels around a random place; it is cut off at the edges ([DeVries and Taylor
    /// 2017](https://arxiv.org/abs/1708.04552)). Blank is 0 at this point of the list: the mean when it comes after
    /// [`normalize`](Self::normalize), black before it.
    pub fn cutout(self, size: u32) -> Self {
        self.push(Op::Cutout { size })
    }

    /// Mirrors an axis of a volume with probability `p`. This and the steps below are for volumes, and only they; image
    /// and masks of a record are moved alike, and values of masks are never changed.
    pub fn flip_axis(self, axis: Axis, p: f32) -> Self {
        self.push(Op::FlipAxis { axis, p })
    }

    /// Turns a plane of a volume by one, two or three quarters (drawn evenly) with probability `p`, from the first
    /// axis to the second as `torch.rot90` does. Its sides must be equal.
    pub fn rot90(self, plane: [Axis; 2], p: f32) -> Self {
        self.push(Op::Rot90 { plane, p })
    }

    /// Brings a volume to a size, depth, height, width: cuts around the middle, or puts it there with `value` outside
    /// (0 in masks). Where one voxel is odd, it is cut off or added behind.
    pub fn pad_or_crop(self, size: [u32; 3], value: f32) -> Self {
        self.push(Op::PadOrCrop { size, value })
    }

    /// Cuts a box of this depth, height and width out of a volume at a random place: with probability `foreground`
    /// around a voxel that is not 0 in the record's first mask, as far as the volume goes; else anywhere inside.
    ///
    /// Of raw files only the box is read. A smaller volume is a bad sample: put [`pad_or_crop`](Self::pad_or_crop)
    /// before it where that may be.
    pub fn patch(self, size: [u32; 3], foreground: f32) -> Self {
        self.push(Op::Patch { size, foreground })
    }

    /// Maps intensities `low..high` of a volume to 0..1, and what lies beyond to 0 and 1.
    pub fn window(self, low: f32, high: f32) -> Self {
        self.push(Op::Window { low, high })
    }

    /// Multiplies intensities of a volume, then adds.
    pub fn scale(self, scale: f32, bias: f32) -> Self {
        self.push(Op::Scale { scale, bias })
    }

    /// Bounds intensities of a volume.
    pub fn clamp(self, low: f32, high: f32) -> Self {
        self.push(Op::Clamp { low, high })
    }

    /// Runs your own function, on the decoding thread (CPU only): on the finished row where no other step follows, else on
    /// the picture that the steps before it have made, as [`RowView`] says. Between `normalize` and another step there is
    /// neither. Masks are not asked.
    ///
    /// Draws are the record's, and the step's by its place in the list. An error of kind `Corrupt` or `Unsupported` makes
    /// the sample a bad one, any other ends the run. Costs a pass over the picture, and where it stands between steps that
    /// fold another resample.
    ///
    /// ```
    /// use infeed::transform::{IMAGENET_MEAN, IMAGENET_STD, Transform};
    ///
    /// // Turns all colours by up to a tenth of the circle, in YIQ.
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
    /// // Noise on what the batch will hold.
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
