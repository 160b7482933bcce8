//! The steps a transform is made of.

use std::{fmt, sync::Arc};

use bytemuck::Pod;
use half::{bf16, f16};
use infeed_core::{
    error::{Error, ErrorKind, Result},
    random::Draws,
    types::{DType, Element, Layout},
};
use serde::{Deserialize, Deserializer, Serialize};

use super::{
    augment::{self, Augment, Moves, Nested},
    detection,
    interpolation::{self, Interpolations},
};
use crate::kernels::RowSpec;

/// Default part of the area that a `RandomResizedCrop` takes.
pub(super) const SCALE: (f64, f64) = (0.08, 1.0);
/// Its default width over height.
pub(super) const RATIO: (f64, f64) = (3.0 / 4.0, 4.0 / 3.0);

/// One step of a [`Transform`](super::Transform). Sizes are `[height, width]`; JSON may give one number for both.
///
/// A step with settings that its method does not offer, and the same steps as JSON:
///
/// ```
/// use infeed::transform::{Interpolation, Op, Transform};
///
/// let crop = Op::RandomResizedCrop {
///     size: [192, 224],
///     scale: (0.35, 1.0),
///     ratio: (3.0 / 4.0, 4.0 / 3.0),
///     interpolation: Interpolation::Bilinear.into(),
///     antialias: true,
/// };
/// let train = Transform::new().push(crop).horizontal_flip(0.5);
/// assert_eq!(train.ops()[0].name(), "random_resized_crop");
/// let file = r#"[{"op": "random_resized_crop", "size": [192, 224], "scale": [0.35, 1.0]}, {"op": "horizontal_flip"}]"#;
/// assert_eq!(train, serde_json::from_str::<Transform>(file).expect("two steps"));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Op {
    /// See [`Transform::resize_shorter`](super::Transform::resize_shorter).
    ResizeShorter {
        /// The shorter side.
        size: u32,
        /// The filter.
        #[serde(default, skip_serializing_if = "Interpolations::is_default")]
        interpolation: Interpolations,
        /// Whether the filter widens when it makes the image smaller.
        #[serde(default = "interpolation::yes", skip_serializing_if = "interpolation::is_yes")]
        antialias: bool,
    },
    /// See [`Transform::resize_exact`](super::Transform::resize_exact).
    ResizeExact {
        /// Height, width.
        #[serde(deserialize_with = "one_or_two")]
        size: [u32; 2],
        /// The filter.
        #[serde(default, skip_serializing_if = "Interpolations::is_default")]
        interpolation: Interpolations,
        /// Whether the filter widens when it makes the image smaller.
        #[serde(default = "interpolation::yes", skip_serializing_if = "interpolation::is_yes")]
        antialias: bool,
    },
    /// See [`Transform::resize_keep_ratio`](super::Transform::resize_keep_ratio).
    ResizeKeepRatio {
        /// Height, width.
        #[serde(deserialize_with = "one_or_two")]
        size: [u32; 2],
        /// 0: the image covers the size; 1: it fits into it; values between interpolate.
        #[serde(default)]
        longest: f64,
        /// The filter.
        #[serde(default, skip_serializing_if = "Interpolations::is_default")]
        interpolation: Interpolations,
        /// Whether the filter widens when it makes the image smaller.
        #[serde(default = "interpolation::yes", skip_serializing_if = "interpolation::is_yes")]
        antialias: bool,
    },
    /// See [`Transform::center_crop`](super::Transform::center_crop).
    CenterCrop {
        /// Height, width.
        #[serde(deserialize_with = "one_or_two")]
        size: [u32; 2],
    },
    /// See [`Transform::random_crop`](super::Transform::random_crop).
    RandomCrop {
        /// Height, width.
        #[serde(deserialize_with = "one_or_two")]
        size: [u32; 2],
        /// Black pixels that are first added on each side.
        #[serde(default)]
        padding: u32,
    },
    /// See [`Transform::random_resized_crop`](super::Transform::random_resized_crop).
    RandomResizedCrop {
        /// Height, width.
        #[serde(deserialize_with = "one_or_two")]
        size: [u32; 2],
        /// Least and greatest part of the image's area.
        #[serde(default = "scale")]
        scale: (f64, f64),
        /// Least and greatest width over height.
        #[serde(default = "ratio")]
        ratio: (f64, f64),
        /// The filter.
        #[serde(default, skip_serializing_if = "Interpolations::is_default")]
        interpolation: Interpolations,
        /// Whether the filter widens when it makes the image smaller.
        #[serde(default = "interpolation::yes", skip_serializing_if = "interpolation::is_yes")]
        antialias: bool,
    },
    /// See [`Transform::horizontal_flip`](super::Transform::horizontal_flip).
    HorizontalFlip {
        /// Probability.
        #[serde(default = "half")]
        p: f32,
    },
    /// See [`Transform::vertical_flip`](super::Transform::vertical_flip).
    VerticalFlip {
        /// Probability.
        #[serde(default = "half")]
        p: f32,
    },
    /// See [`Transform::normalize`](super::Transform::normalize).
    Normalize {
        /// Subtracted; one number for each channel, or one for all.
        mean: Vec<f32>,
        /// Divisor, above 0; as many numbers as `mean`.
        std: Vec<f32>,
    },
    /// See [`Transform::to_float`](super::Transform::to_float).
    ToFloat,
    /// See [`Transform::gray_to_rgb`](super::Transform::gray_to_rgb).
    GrayToRgb,
    /// See [`Transform::cutout`](super::Transform::cutout).
    Cutout {
        /// Side of the square.
        size: u32,
    },
    /// See [`Transform::flip_axis`](super::Transform::flip_axis).
    FlipAxis {
        /// The axis.
        axis: Axis,
        /// Probability.
        #[serde(default = "half")]
        p: f32,
    },
    /// See [`Transform::rot90`](super::Transform::rot90).
    Rot90 {
        /// The plane, rotated from its first axis to its second.
        #[serde(default = "plane")]
        plane: [Axis; 2],
        /// Probability.
        #[serde(default = "half")]
        p: f32,
    },
    /// See [`Transform::pad_or_crop`](super::Transform::pad_or_crop).
    PadOrCrop {
        /// Depth, height, width.
        #[serde(deserialize_with = "one_or_three")]
        size: [u32; 3],
        /// Value outside of the volume.
        #[serde(default)]
        value: f32,
    },
    /// See [`Transform::patch`](super::Transform::patch).
    Patch {
        /// Depth, height, width.
        #[serde(deserialize_with = "one_or_three")]
        size: [u32; 3],
        /// Probability that the box is centred on a voxel of the foreground.
        #[serde(default)]
        foreground: f32,
    },
    /// See [`Transform::window`](super::Transform::window).
    Window {
        /// Becomes 0.
        low: f32,
        /// Becomes 1.
        high: f32,
    },
    /// See [`Transform::scale`](super::Transform::scale).
    Scale {
        /// Factor.
        scale: f32,
        /// Added after the multiplication.
        #[serde(default)]
        bias: f32,
    },
    /// See [`Transform::clamp`](super::Transform::clamp).
    Clamp {
        /// The lower bound.
        low: f32,
        /// The upper bound.
        high: f32,
    },
    /// Overwrites random rectangles.
    RandomErasing(augment::RandomErasing),
    /// Random brightness, contrast, saturation and hue.
    ColorJitter(augment::ColorJitter),
    /// Converts to gray at random.
    RandomGrayscale(augment::RandomGrayscale),
    /// Converts to gray.
    Grayscale(augment::Grayscale),
    /// Gaussian blur.
    GaussianBlur(augment::GaussianBlur),
    /// Inverts bright values.
    RandomSolarize(augment::RandomSolarize),
    /// Keeps fewer bits.
    RandomPosterize(augment::RandomPosterize),
    /// Equalizes the histogram.
    RandomEqualize(augment::RandomEqualize),
    /// Stretches values from black to white.
    RandomAutocontrast(augment::RandomAutocontrast),
    /// Inverts values.
    RandomInvert(augment::RandomInvert),
    /// Blurs or sharpens a little.
    RandomAdjustSharpness(augment::RandomAdjustSharpness),
    /// Permutes channels.
    RandomChannelPermutation(augment::RandomChannelPermutation),
    /// SSD's colour distortions.
    RandomPhotometricDistort(augment::RandomPhotometricDistort),
    /// Rotates.
    RandomRotation(augment::RandomRotation),
    /// Rotates, moves, scales, shears.
    RandomAffine(augment::RandomAffine),
    /// Moves the corners.
    RandomPerspective(augment::RandomPerspective),
    /// A few random steps of one magnitude.
    RandAugment(augment::RandAugment),
    /// timm's version of `RandAugment`.
    TimmRandAugment(augment::TimmRandAugment),
    /// One random step of random magnitude.
    TrivialAugmentWide(augment::TrivialAugmentWide),
    /// Learned pairs of steps.
    AutoAugment(augment::AutoAugment),
    /// Blended chains of steps.
    AugMix(augment::AugMix),
    /// Grayscale, solarization or blur.
    ThreeAugment(augment::ThreeAugment),
    /// All of its steps, or none.
    RandomApply(augment::RandomApply<Self>),
    /// One of its steps.
    RandomChoice(augment::RandomChoice<Self>),
    /// Its steps in random order.
    RandomOrder(augment::RandomOrder<Self>),
    /// Resizes the shorter side to a random length.
    RandomShortestSize(detection::RandomShortestSize),
    /// Resizes by a random factor around a size.
    ScaleJitter(detection::ScaleJitter),
    /// Puts the image on a larger canvas.
    RandomZoomOut(detection::RandomZoomOut),
    /// A random crop that depends on the boxes.
    RandomIouCrop(detection::RandomIouCrop),
    /// A crop at a random place, padded if needed.
    FixedSizeCrop(detection::FixedSizeCrop),
    /// Pads on the right and at the bottom.
    PadTo(detection::PadTo),
    /// Pads to the size of the largest image of the batch.
    PadToLargest(detection::PadToLargest),
    /// Drops small boxes.
    SanitizeBoundingBoxes(detection::SanitizeBoundingBoxes),
    /// The format of the boxes.
    ConvertBoundingBoxFormat(detection::ConvertBoundingBoxFormat),
    /// See [`Transform::custom`](super::Transform::custom). Not in JSON.
    #[serde(skip)]
    Custom(Custom),
}

impl Op {
    /// Its name, as in JSON: `random_resized_crop`. For a custom step, the name it was given.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::ResizeShorter { .. } => "resize_shorter",
            Self::ResizeExact { .. } => "resize_exact",
            Self::ResizeKeepRatio { .. } => "resize_keep_ratio",
            Self::CenterCrop { .. } => "center_crop",
            Self::RandomCrop { .. } => "random_crop",
            Self::RandomResizedCrop { .. } => "random_resized_crop",
            Self::HorizontalFlip { .. } => "horizontal_flip",
            Self::VerticalFlip { .. } => "vertical_flip",
            Self::Normalize { .. } => "normalize",
            Self::ToFloat => "to_float",
            Self::GrayToRgb => "gray_to_rgb",
            Self::Cutout { .. } => "cutout",
            Self::FlipAxis { .. } => "flip_axis",
            Self::Rot90 { .. } => "rot90",
            Self::PadOrCrop { .. } => "pad_or_crop",
            Self::Patch { .. } => "patch",
            Self::Window { .. } => "window",
            Self::Scale { .. } => "scale",
            Self::Clamp { .. } => "clamp",
            Self::RandomErasing(_) => "random_erasing",
            Self::ColorJitter(_) => "color_jitter",
            Self::RandomGrayscale(_) => "random_grayscale",
            Self::Grayscale(_) => "grayscale",
            Self::GaussianBlur(_) => "gaussian_blur",
            Self::RandomSolarize(_) => "random_solarize",
            Self::RandomPosterize(_) => "random_posterize",
            Self::RandomEqualize(_) => "random_equalize",
            Self::RandomAutocontrast(_) => "random_autocontrast",
            Self::RandomInvert(_) => "random_invert",
            Self::RandomAdjustSharpness(_) => "random_adjust_sharpness",
            Self::RandomChannelPermutation(_) => "random_channel_permutation",
            Self::RandomPhotometricDistort(_) => "random_photometric_distort",
            Self::RandomRotation(_) => "random_rotation",
            Self::RandomAffine(_) => "random_affine",
            Self::RandomPerspective(_) => "random_perspective",
            Self::RandAugment(_) => "rand_augment",
            Self::TimmRandAugment(_) => "timm_rand_augment",
            Self::TrivialAugmentWide(_) => "trivial_augment_wide",
            Self::AutoAugment(_) => "auto_augment",
            Self::AugMix(_) => "aug_mix",
            Self::ThreeAugment(_) => "three_augment",
            Self::RandomApply(_) => "random_apply",
            Self::RandomChoice(_) => "random_choice",
            Self::RandomOrder(_) => "random_order",
            Self::RandomShortestSize(_) => "random_shortest_size",
            Self::ScaleJitter(_) => "scale_jitter",
            Self::RandomZoomOut(_) => "random_zoom_out",
            Self::RandomIouCrop(_) => "random_iou_crop",
            Self::FixedSizeCrop(_) => "fixed_size_crop",
            Self::PadTo(_) => "pad_to",
            Self::PadToLargest(_) => "pad_to_largest",
            Self::SanitizeBoundingBoxes(_) => "sanitize_bounding_boxes",
            Self::ConvertBoundingBoxFormat(_) => "convert_bounding_box_format",
            Self::Custom(custom) => &custom.name,
        }
    }

    /// Whether it works on a picture between two resamples, or overwrites parts of the row: the steps of [`augment`].
    #[must_use]
    pub fn is_augmentation(&self) -> bool {
        self.augment().is_some() || matches!(self, Self::RandomErasing(_))
    }

    /// The step as one that works on a picture between two resamples; `None` for other steps.
    pub(super) fn augment(&self) -> Option<&dyn Augment> {
        Some(match self {
            Self::ColorJitter(step) => step,
            Self::RandomGrayscale(step) => step,
            Self::Grayscale(step) => step,
            Self::GaussianBlur(step) => step,
            Self::RandomSolarize(step) => step,
            Self::RandomPosterize(step) => step,
            Self::RandomEqualize(step) => step,
            Self::RandomAutocontrast(step) => step,
            Self::RandomInvert(step) => step,
            Self::RandomAdjustSharpness(step) => step,
            Self::RandomChannelPermutation(step) => step,
            Self::RandomPhotometricDistort(step) => step,
            Self::RandomRotation(step) => step,
            Self::RandomAffine(step) => step,
            Self::RandomPerspective(step) => step,
            Self::RandAugment(step) => step,
            Self::TimmRandAugment(step) => step,
            Self::TrivialAugmentWide(step) => step,
            Self::AutoAugment(step) => step,
            Self::AugMix(step) => step,
            Self::ThreeAugment(step) => step,
            Self::RandomApply(step) => step,
            Self::RandomChoice(step) => step,
            Self::RandomOrder(step) => step,
            _ => return None,
        })
    }

    /// Whether it resamples.
    pub(super) const fn is_resize(&self) -> bool {
        matches!(
            self,
            Self::ResizeShorter { .. }
                | Self::ResizeExact { .. }
                | Self::ResizeKeepRatio { .. }
                | Self::RandomResizedCrop { .. }
                | Self::RandomShortestSize(_)
                | Self::ScaleJitter(_)
        )
    }

    /// Whether it is only for records with boxes.
    #[doc(hidden)]
    pub const fn needs_instances(&self) -> bool {
        self.looks_at_boxes() || matches!(self, Self::SanitizeBoundingBoxes(_) | Self::ConvertBoundingBoxFormat(_))
    }

    /// Whether its effect on the image depends on boxes.
    pub(super) const fn looks_at_boxes(&self) -> bool {
        matches!(self, Self::RandomIouCrop(_))
    }

    /// Its interpolation and antialias settings, if it resizes.
    pub(super) const fn interpolation_mut(&mut self) -> Option<(&mut Interpolations, &mut bool)> {
        match self {
            Self::ResizeShorter { interpolation, antialias, .. }
            | Self::ResizeExact { interpolation, antialias, .. }
            | Self::ResizeKeepRatio { interpolation, antialias, .. }
            | Self::RandomResizedCrop { interpolation, antialias, .. }
            | Self::RandomShortestSize(detection::RandomShortestSize { interpolation, antialias, .. })
            | Self::ScaleJitter(detection::ScaleJitter { interpolation, antialias, .. }) => {
                Some((interpolation, antialias))
            }
            _ => None,
        }
    }

    /// Whether it moves pixels, rather than changing their values.
    pub(super) fn is_geometric(&self) -> bool {
        !matches!(
            self,
            Self::Normalize { .. } | Self::ToFloat | Self::GrayToRgb | Self::Cutout { .. } | Self::Custom(_)
        ) && !matches!(
            self,
            Self::RandomErasing(_) | Self::SanitizeBoundingBoxes(_) | Self::ConvertBoundingBoxFormat(_)
        ) && self.augment().is_none_or(|augment| augment.moves() != Moves::Never)
    }
}

/// Makes each step of a [`Transform`](super::Transform) from its settings.
macro_rules! ops_from {
    ($room:ident: $($name:ident)*) => {$(
        impl From<$room::$name> for Op {
            fn from(step: $room::$name) -> Self {
                Self::$name(step)
            }
        }
    )*};
}

ops_from! {
    detection: RandomShortestSize ScaleJitter RandomZoomOut RandomIouCrop FixedSizeCrop PadTo PadToLargest SanitizeBoundingBoxes ConvertBoundingBoxFormat
}

ops_from! {
    augment: RandomErasing ColorJitter RandomGrayscale Grayscale GaussianBlur RandomSolarize RandomPosterize RandomEqualize RandomAutocontrast RandomInvert RandomAdjustSharpness RandomChannelPermutation RandomPhotometricDistort RandomRotation RandomAffine RandomPerspective RandAugment TimmRandAugment TrivialAugmentWide AutoAugment AugMix ThreeAugment
}

impl Nested for Op {
    fn name(&self) -> &str {
        self.name()
    }

    fn augment(&self) -> Option<&dyn Augment> {
        self.augment()
    }
}

/// The same for steps that hold lists of steps.
macro_rules! ops_from_lists {
    ($($name:ident)*) => {$(
        impl From<augment::$name<Self>> for Op {
            fn from(step: augment::$name<Self>) -> Self {
                Self::$name(step)
            }
        }
    )*};
}

ops_from_lists! { RandomApply RandomChoice RandomOrder }

/// An axis of a volume. `z` is the slowest in memory, `x` the fastest.
///
/// ```
/// use infeed::transform::{Axis, Transform};
///
/// // Reverses the order of the slices, and rotates within their planes.
/// let train = Transform::new().patch([32, 96, 96], 0.5).flip_axis(Axis::X, 0.5).rot90([Axis::Y, Axis::X], 0.5);
/// assert_eq!(train, "patch:size=[32, 96, 96],foreground=0.5;flip_axis:axis=x;rot90".parse()?);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Axis {
    /// Depth: the slices.
    Z,
    /// Height: the lines of a slice.
    Y,
    /// Width: the voxels of a line.
    X,
}

impl Axis {
    pub(super) const fn index(self) -> usize {
        self as usize
    }
}

const fn plane() -> [Axis; 2] {
    [Axis::Y, Axis::X]
}

fn one_or_three<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<[u32; 3], D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a size is a number or [depth, height, width]")]
    enum Size {
        Cube(u32),
        All([u32; 3]),
    }
    Ok(match Size::deserialize(deserializer)? {
        Size::Cube(side) => [side; 3],
        Size::All(all) => all,
    })
}

const fn scale() -> (f64, f64) {
    SCALE
}

const fn ratio() -> (f64, f64) {
    RATIO
}

const fn half() -> f32 {
    0.5
}

pub(super) fn one_or_two<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<[u32; 2], D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a size is a number or [height, width]")]
    enum Size {
        Square(u32),
        Both([u32; 2]),
    }
    Ok(match Size::deserialize(deserializer)? {
        Size::Square(side) => [side, side],
        Size::Both(both) => both,
    })
}

type Run = dyn Fn(&mut RowView<'_>, Draws) -> Result<()> + Send + Sync;

/// A function and its name. Clones share the function, and are equal.
///
/// ```
/// use infeed::transform::{Op, Transform};
///
/// let dim = Transform::new().custom("dim", |row, _| {
///     row.bytes_mut().iter_mut().for_each(|byte| *byte /= 2);
///     Ok(())
/// });
/// let Op::Custom(step) = &dim.ops()[0] else { panic!("it is one") };
/// // A clone shares the function, so the transforms are equal.
/// assert_eq!(Transform::new().push(Op::Custom(step.clone())), dim);
/// ```
#[derive(Clone)]
pub struct Custom {
    name: String,
    run: Arc<Run>,
}

impl Custom {
    pub(super) fn new(name: String, run: Arc<Run>) -> Self {
        Self { name, run }
    }

    pub(super) fn run(&self, row: &mut RowView<'_>, draws: Draws) -> Result<()> {
        (self.run)(row, draws)
    }
}

impl fmt::Debug for Custom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.name)
    }
}

impl PartialEq for Custom {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.run, &other.run)
    }
}

/// The picture or finished row that a custom step changes.
///
/// If other steps follow, it is a picture: planes (NCHW) of `u8` in 0 to 255, or of `f32` in 0 to 1 (after `to_float`,
/// and for images of more than 8 bits). Otherwise it is the row as the batch will hold it.
///
/// ```
/// # use std::sync::Arc;
/// use infeed::{DType, Device, Loader, Transform};
///
/// # let images = infeed::dataset::MemoryDataset::builder().images_u8(vec![10, 20, 30], 1, 1, 1, 3, false).build()?;
/// # let dataset = Arc::new(images);
/// let swap = Transform::new().custom("rgb to bgr", |row, _| row.map_pixels(|[r, g, b]| [b, g, r]));
/// let dim = swap.custom("dim", |row, _| {
///     assert_eq!(row.spec().channels, 3);
///     row.values_mut::<u8>().into_iter().flatten().for_each(|value| *value /= 2);
///     Ok(())
/// });
/// let loader = Loader::builder(dataset).batch_size(1).dtype(DType::U8).device(Device::Cpu).transform(dim);
/// let batch = loader.build_blocking()?.epoch(0).blocking().next().expect("one batch")?;
/// assert_eq!(batch["image"].as_slice::<u8>(), Some(&[15, 10, 5][..]));
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Debug)]
pub struct RowView<'a> {
    spec: RowSpec,
    bytes: &'a mut [u8],
}

impl<'a> RowView<'a> {
    #[doc(hidden)]
    pub const fn new(spec: RowSpec, bytes: &'a mut [u8]) -> Self {
        Self { spec, bytes }
    }

    /// Shape, type and layout of the values.
    #[must_use]
    pub const fn spec(&self) -> &RowSpec {
        &self.spec
    }

    /// Calls `change` with the channels of each pixel and stores the result, for any type and layout. Values of `u8`
    /// are scaled to 0 to 1, and rounded when they are stored; other types are passed unchanged.
    ///
    /// # Errors
    /// `Config` if pixels do not have `C` channels.
    pub fn map_pixels<const C: usize>(&mut self, change: impl FnMut([f32; C]) -> [f32; C]) -> Result<()> {
        let RowSpec { height, width, channels, dtype, layout } = self.spec;
        if channels as usize != C {
            return Err(Error::config(format!("a custom step takes pixels of {C} channels, and there are {channels}"))
                .with_hint("look at spec().channels, or put gray_to_rgb before the step"));
        }
        let pixels = height as usize * width as usize;
        let [pixel, channel] = match layout {
            Layout::Nchw => [1, pixels],
            Layout::Nhwc => [C, 1],
        };
        let places = (0..pixels).map(|at| std::array::from_fn(|c| at * pixel + c * channel));
        match dtype {
            DType::U8 => {
                let level = |part: f32| (part * 255.0).round().clamp(0.0, 255.0) as u8;
                each(self.bytes, places, |level: u8| f32::from(level) / 255.0, level, change)
            }
            DType::F16 => each(self.bytes, places, f16::to_f32, f16::from_f32, change),
            DType::Bf16 => each(self.bytes, places, bf16::to_f32, bf16::from_f32, change),
            _ => each(self.bytes, places, |value: f32| value, |value| value, change),
        }
    }

    /// The bytes of all values, in the machine's byte order.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.bytes
    }

    /// The values, or `None` if their type is not `T`.
    #[must_use]
    pub fn values_mut<T: Element + Pod>(&mut self) -> Option<&mut [T]> {
        // Rows of a batch are aligned to their type. Memory that a caller passes to `new` may not be.
        (T::DTYPE == self.spec.dtype).then(|| bytemuck::try_cast_slice_mut(self.bytes).ok()).flatten()
    }
}

/// Changes the values at several places together.
fn each<T: Pod, const C: usize>(
    bytes: &mut [u8],
    places: impl Iterator<Item = [usize; C]>,
    read: impl Fn(T) -> f32,
    write: impl Fn(f32) -> T,
    mut change: impl FnMut([f32; C]) -> [f32; C],
) -> Result<()> {
    let values: &mut [T] = bytemuck::try_cast_slice_mut(bytes)
        .map_err(|_| Error::new(ErrorKind::Internal, "the values of a row are not aligned"))?;
    for places in places {
        let changed = change(places.map(|place| read(values[place])));
        for (place, value) in places.into_iter().zip(changed) {
            values[place] = write(value);
        }
    }
    Ok(())
}
