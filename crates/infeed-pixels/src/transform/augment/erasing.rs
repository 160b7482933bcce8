//! Rectangles that are overwritten.

use infeed_core::{
    error::{Error, Result},
    random::Draws,
};
use serde::{Deserialize, Serialize};

use super::step::{Picture, PictureShape, Value, half, ordered, probability};

/// The values that overwrite a rectangle.
///
/// ```
/// use infeed::transform::{IMAGENET_MEAN, IMAGENET_STD, Transform, augment::{Erasing, RandomErasing, Value}};
///
/// // A colour as parts of white, if it comes before `normalize`.
/// let value = Erasing::Constant(Value::Each(vec![1.0, 0.0, 0.5]));
/// let colour = RandomErasing { p: 0.25, value, ..RandomErasing::default() };
/// let train = Transform::new().random_resized_crop(224).push(colour).normalize(IMAGENET_MEAN, IMAGENET_STD);
/// assert_eq!(train, "random_resized_crop:224;random_erasing:0.25,1/0/0.5;normalize".parse()?);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a value is a number, one for each channel, `random` or `color`")]
pub enum Erasing {
    /// The same values each time.
    Constant(Value),
    /// Random values.
    Noise(Noise),
}

impl Default for Erasing {
    fn default() -> Self {
        Self::Constant(Value::All(0.0))
    }
}

/// Normally distributed values, of mean 0 and deviation 1.
///
/// ```
/// use infeed::transform::{IMAGENET_MEAN, IMAGENET_STD, Transform, augment::{Erasing, Noise, RandomErasing}};
///
/// // timm's `reprob=0.25, remode=rand`: one random colour for each rectangle.
/// let noise = RandomErasing { p: 0.25, value: Erasing::Noise(Noise::Color), ..RandomErasing::default() };
/// let train = Transform::new().random_resized_crop(224).normalize(IMAGENET_MEAN, IMAGENET_STD).push(noise);
/// assert_eq!(train, "random_resized_crop:224;normalize;random_erasing:0.25,color".parse()?);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Noise {
    /// Each value is drawn: torchvision's `random`, timm's `pixel`.
    #[serde(alias = "pixel")]
    Random,
    /// One value is drawn for each channel: timm's `rand`.
    #[serde(alias = "rand")]
    Color,
}

/// Overwrites rectangles at random places; torchvision's `RandomErasing` ([Zhong et al.
/// 2017](https://arxiv.org/abs/1708.04896)), with timm's count and kinds of noise.
///
/// A constant is in the units at this point of the list: parts of white, 0 to 1, or normalised values after
/// `normalize`. Noise needs `to_float` or `normalize` before it.
///
/// Draws: whether it happens; the number of rectangles if `count` is above 1; for each, area and proportion, up to ten
/// times until it fits, then top, left, and the seed of the noise.
///
/// ```
/// # use std::sync::Arc;
/// use infeed::{DType, Device, Loader, transform::{Transform, augment::RandomErasing}};
///
/// # let white = infeed::dataset::MemoryDataset::builder().images_u8(vec![255; 64], 1, 8, 8, 1, false).build()?;
/// # let dataset = Arc::new(white);
/// // A square of a quarter of the picture.
/// let erasing = RandomErasing { p: 1.0, scale: [0.25, 0.25], ratio: [1.0, 1.0], ..RandomErasing::default() };
/// let loader = Loader::builder(dataset).batch_size(1).dtype(DType::U8).device(Device::Cpu);
/// let loader = loader.transform(Transform::new().push(erasing)).build_blocking()?;
/// let batch = loader.epoch(0).blocking().next().expect("one batch")?;
/// let pixels = batch["image"].as_slice::<u8>().expect("bytes"); // Of a white picture of 8x8.
/// assert_eq!(pixels.iter().filter(|pixel| **pixel == 0).count(), 4 * 4);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RandomErasing {
    /// Probability.
    #[serde(default = "half")]
    pub p: f32,
    /// Least and greatest part of the picture's area.
    pub scale: [f64; 2],
    /// Least and greatest height over width.
    pub ratio: [f64; 2],
    /// The values to write.
    pub value: Erasing,
    /// Most rectangles. The number is drawn from 1 to this; the area is divided among them.
    pub count: u32,
}

impl Default for RandomErasing {
    fn default() -> Self {
        Self { p: half(), scale: [0.02, 0.33], ratio: [0.3, 3.3], value: Erasing::default(), count: 1 }
    }
}

/// How one rectangle is overwritten.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::transform) enum Erased {
    /// In the units at the step's place in the list.
    Constant { area: [u32; 4], value: Value },
    /// Normally distributed values from this seed.
    Noise { area: [u32; 4], seed: u64, kind: Noise },
}

impl RandomErasing {
    pub(in crate::transform) fn check(&self, name: &str, at: &PictureShape) -> Result<()> {
        probability(name, self.p)?;
        ordered(name, "scale", self.scale, 0.0, 1.0)?;
        ordered(name, "ratio", self.ratio, f64::MIN_POSITIVE, f64::INFINITY)?;
        if !(1..=100).contains(&self.count) {
            return Err(Error::config(format!("{name} has count {}", self.count)).with_hint("use 1 to 100"));
        }
        match &self.value {
            Erasing::Constant(value) => value.check(name, "value", at),
            Erasing::Noise(_) => Ok(()),
        }
    }

    pub(in crate::transform) fn draw(&self, draws: &mut Draws, picture: &Picture, out: &mut Vec<Erased>) {
        if !draws.chance(self.p) {
            return;
        }
        let count = if self.count > 1 { 1 + draws.below(u64::from(self.count)) } else { 1 };
        let (height, width) = (f64::from(picture.height), f64::from(picture.width));
        let ratio = self.ratio.map(f64::ln);
        for _ in 0..count {
            for _ in 0..10 {
                let area = height * width * draws.between(self.scale[0], self.scale[1]) / count as f64;
                let ratio = draws.between(ratio[0], ratio[1]).exp();
                let h = (area * ratio).sqrt().round_ties_even();
                let w = (area / ratio).sqrt().round_ties_even();
                if h >= height || w >= width {
                    continue;
                }
                let (h, w) = (h as u32, w as u32);
                let top = draws.below(u64::from(picture.height - h) + 1) as u32;
                let left = draws.below(u64::from(picture.width - w) + 1) as u32;
                let area = [top, top + h, left, left + w];
                out.push(match &self.value {
                    Erasing::Constant(value) => Erased::Constant { area, value: value.clone() },
                    Erasing::Noise(kind) => Erased::Noise { area, seed: draws.bits(), kind: *kind },
                });
                break;
            }
        }
    }
}
