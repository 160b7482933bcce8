//! Steps that change values and do not move pixels.

use infeed_core::{
    error::{Error, Result},
    random::Draws,
};
use serde::{Deserialize, Serialize};

use super::step::{Augment, Picture, PictureShape, Spread, colours, half, ordered, probability, shuffled, unit};
use crate::kernels::PixelOp;

/// Changes brightness, contrast, saturation and hue in random order; torchvision's `ColorJitter`.
///
/// A number `v` draws a factor from `max(0, 1 - v)` to `1 + v` (for hue: from -v to v turns, at most 0.5). Two numbers
/// are the ends of the range. Settings of 0 are skipped and draw nothing. Draws: the order, then the factors of
/// brightness, contrast, saturation and hue.
///
/// ```
/// use infeed::transform::{Transform, augment::{ColorJitter, Spread}};
///
/// // Only brighter, with contrast, and without a change of hue.
/// let jitter = ColorJitter { brightness: Spread::Within([1.0, 1.4]), contrast: 0.4.into(), ..ColorJitter::default() };
/// let train = Transform::new().random_resized_crop(224).push(jitter);
/// assert_eq!(train, "random_resized_crop:224;color_jitter:1/1.4,0.4".parse()?);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ColorJitter {
    /// Range of the factor on values.
    pub brightness: Spread,
    /// Range of the factor on the distance from the mean gray.
    pub contrast: Spread,
    /// Range of the factor on the distance from gray. Does nothing on gray pictures.
    pub saturation: Spread,
    /// Range of the rotation on the colour circle, in turns. Does nothing on gray pictures.
    pub hue: Spread,
}

impl Augment for ColorJitter {
    fn check(&self, name: &str, at: &PictureShape) -> Result<()> {
        colours(name, at)?;
        for (what, spread) in
            [("brightness", self.brightness), ("contrast", self.contrast), ("saturation", self.saturation)]
        {
            spread.check(name, what, 1.0, 0.0, f64::INFINITY)?;
        }
        let [low, high] = self.hue.ends(0.0);
        if !(-0.5 <= low && low <= high && high <= 0.5) {
            return Err(Error::config(format!("{name} has hue {}", self.hue.said()))
                .with_hint("use at most 0.5, half a turn, or two numbers between -0.5 and 0.5"));
        }
        Ok(())
    }

    fn draw(&self, draws: &mut Draws, picture: &Picture, out: &mut Vec<PixelOp>) -> Result<()> {
        let order = shuffled::<4>(draws);
        let mut factor = |spread: Spread, middle: f64, least: f64| {
            (!spread.is_only(middle)).then(|| spread.draw(middle, least, draws) as f32)
        };
        let steps = [
            factor(self.brightness, 1.0, 0.0).map(PixelOp::Brightness),
            factor(self.contrast, 1.0, 0.0).map(PixelOp::Contrast),
            factor(self.saturation, 1.0, 0.0).map(PixelOp::Saturation),
            factor(self.hue, 0.0, -0.5).map(PixelOp::Hue),
        ];
        out.extend(order.into_iter().filter(|n| picture.channels != 1 || *n < 2).filter_map(|n| steps[n].clone()));
        Ok(())
    }
}

/// A step that does one thing with a probability.
macro_rules! sometimes {
    ($($(#[$doc:meta])* $name:ident: $p:expr, $colours:expr, $op:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct $name {
            /// Probability.
            pub p: f32,
        }

        impl Default for $name {
            fn default() -> Self {
                Self { p: $p }
            }
        }

        impl Augment for $name {
            fn check(&self, name: &str, at: &PictureShape) -> Result<()> {
                if $colours {
                    colours(name, at)?;
                }
                probability(name, self.p)
            }

            fn draw(&self, draws: &mut Draws, _: &Picture, out: &mut Vec<PixelOp>) -> Result<()> {
                out.extend(draws.chance(self.p).then_some($op));
                Ok(())
            }
        }
    )*};
}

sometimes! {
    /// Equalizes the histogram of each channel; torchvision's `RandomEqualize`.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// use infeed::{DType, Device, Loader, transform::{Transform, augment::RandomEqualize}};
    ///
    /// # let picture = [vec![100; 256], vec![101; 256]].concat();
    /// # let picture = infeed::dataset::MemoryDataset::builder().images_u8(picture, 1, 16, 32, 1, false).build()?;
    /// # let dataset = Arc::new(picture);
    /// let transform = Transform::new().push(RandomEqualize { p: 1.0 });
    /// assert_eq!(transform, "random_equalize:1".parse()?);
    /// let loader = Loader::builder(dataset).batch_size(1).dtype(DType::U8).device(Device::Cpu);
    /// let batch = loader.transform(transform).build_blocking()?.epoch(0).blocking().next().expect("one batch")?;
    /// // 256 pixels of 100 and 256 of 101.
    /// assert_eq!(batch["image"].to_vec::<u8>(), Some([vec![0; 256], vec![255; 256]].concat()));
    /// # Ok::<(), infeed::Error>(())
    /// ```
    RandomEqualize: 0.5, false, PixelOp::Equalize;
    /// Stretches each channel from black to white; torchvision's `RandomAutocontrast`. Like torchvision, byte for byte,
    /// it ends at 254 for some ranges, because it divides by a rounded factor and truncates.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// use infeed::{DType, Device, Layout, Loader, transform::{Transform, augment::RandomAutocontrast}};
    ///
    /// # let picture = vec![85, 102, 170];
    /// # let picture = infeed::dataset::MemoryDataset::builder().images_u8(picture, 1, 1, 3, 1, false).build()?;
    /// # let dataset = Arc::new(picture);
    /// let transform = Transform::new().push(RandomAutocontrast { p: 1.0 });
    /// assert_eq!(transform, "random_autocontrast:1".parse()?);
    /// let loader = Loader::builder(dataset).batch_size(1).dtype(DType::U8).layout(Layout::Nhwc).device(Device::Cpu);
    /// let batch = loader.transform(transform).build_blocking()?.epoch(0).blocking().next().expect("one batch")?;
    /// // The picture was [85, 102, 170].
    /// assert_eq!(batch["image"].to_vec::<u8>(), Some(vec![0, 51, 255]));
    /// # Ok::<(), infeed::Error>(())
    /// ```
    RandomAutocontrast: 0.5, true, PixelOp::Autocontrast;
    /// Inverts values; torchvision's `RandomInvert`.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// use infeed::{DType, Device, Layout, Loader, transform::{Transform, augment::RandomInvert}};
    ///
    /// # let picture = vec![10, 20, 30];
    /// # let picture = infeed::dataset::MemoryDataset::builder().images_u8(picture, 1, 1, 1, 3, false).build()?;
    /// # let dataset = Arc::new(picture);
    /// let transform = Transform::new().push(RandomInvert { p: 1.0 });
    /// assert_eq!(transform, "random_invert:1".parse()?);
    /// let loader = Loader::builder(dataset).batch_size(1).dtype(DType::U8).layout(Layout::Nhwc).device(Device::Cpu);
    /// let batch = loader.transform(transform).build_blocking()?.epoch(0).blocking().next().expect("one batch")?;
    /// // The picture was [10, 20, 30].
    /// assert_eq!(batch["image"].to_vec::<u8>(), Some(vec![245, 235, 225]));
    /// # Ok::<(), infeed::Error>(())
    /// ```
    RandomInvert: 0.5, false, PixelOp::Invert;
    /// Converts colours to gray and keeps the number of channels; torchvision's `RandomGrayscale`.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// use infeed::{DType, Device, Layout, Loader, transform::{Transform, augment::RandomGrayscale}};
    ///
    /// # let picture = vec![100, 0, 0];
    /// # let picture = infeed::dataset::MemoryDataset::builder().images_u8(picture, 1, 1, 1, 3, false).build()?;
    /// # let dataset = Arc::new(picture);
    /// let transform = Transform::new().push(RandomGrayscale { p: 1.0 });
    /// assert_eq!(transform, "random_grayscale:1".parse()?);
    /// let loader = Loader::builder(dataset).batch_size(1).dtype(DType::U8).layout(Layout::Nhwc).device(Device::Cpu);
    /// let batch = loader.transform(transform).build_blocking()?.epoch(0).blocking().next().expect("one batch")?;
    /// // The picture was [100, 0, 0].
    /// assert_eq!(batch["image"].to_vec::<u8>(), Some(vec![29, 29, 29]));
    /// # Ok::<(), infeed::Error>(())
    /// ```
    RandomGrayscale: 0.1, true, PixelOp::Grayscale;
}

/// Converts colours to gray: `0.2989 R + 0.587 G + 0.114 B`; torchvision's `Grayscale`. Draws nothing.
///
/// ```
/// # use std::sync::Arc;
/// use infeed::{DType, Device, Layout, Loader, transform::{Transform, augment::Grayscale}};
///
/// # let picture = vec![100, 0, 0, 0, 0, 100];
/// # let picture = infeed::dataset::MemoryDataset::builder().images_u8(picture, 1, 1, 2, 3, false).build()?;
/// # let dataset = Arc::new(picture);
/// let transform = Transform::new().push(Grayscale { num_output_channels: 1 });
/// assert_eq!(transform, "grayscale:1".parse()?);
/// let loader = Loader::builder(dataset).batch_size(1).dtype(DType::U8).layout(Layout::Nhwc).device(Device::Cpu);
/// let batch = loader.transform(transform).build_blocking()?.epoch(0).blocking().next().expect("one batch")?;
/// // The picture was [100, 0, 0, 0, 0, 100].
/// assert_eq!(batch["image"].to_vec::<u8>(), Some(vec![29, 11]));
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Grayscale {
    /// 1, or 3 for equal channels.
    pub num_output_channels: u32,
}

impl Default for Grayscale {
    fn default() -> Self {
        Self { num_output_channels: 1 }
    }
}

impl Augment for Grayscale {
    fn check(&self, name: &str, at: &PictureShape) -> Result<()> {
        colours(name, at)?;
        match self.num_output_channels {
            1 | 3 => Ok(()),
            n => Err(Error::config(format!("{name} to {n} channels")).with_hint("use 1 or 3")),
        }
    }

    fn draw(&self, _: &mut Draws, picture: &Picture, out: &mut Vec<PixelOp>) -> Result<()> {
        out.extend((picture.channels == 3).then_some(PixelOp::Grayscale));
        Ok(())
    }
}

/// Inverts values of the threshold or more; torchvision's `RandomSolarize`.
///
/// ```
/// # use std::sync::Arc;
/// use infeed::{DType, Device, Layout, Loader, transform::{Transform, augment::RandomSolarize}};
///
/// # let picture = vec![10, 127, 200];
/// # let picture = infeed::dataset::MemoryDataset::builder().images_u8(picture, 1, 1, 1, 3, false).build()?;
/// # let dataset = Arc::new(picture);
/// let transform = Transform::new().push(RandomSolarize { threshold: 0.5, p: 1.0 });
/// assert_eq!(transform, "random_solarize:0.5,1".parse()?);
/// let loader = Loader::builder(dataset).batch_size(1).dtype(DType::U8).layout(Layout::Nhwc).device(Device::Cpu);
/// let batch = loader.transform(transform).build_blocking()?.epoch(0).blocking().next().expect("one batch")?;
/// // The picture was [10, 127, 200].
/// assert_eq!(batch["image"].to_vec::<u8>(), Some(vec![10, 127, 55]));
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomSolarize {
    /// A part of white, 0 to 1: 0.5 inverts bytes of 128 or more.
    pub threshold: f32,
    /// Probability.
    #[serde(default = "half")]
    pub p: f32,
}

impl Augment for RandomSolarize {
    fn check(&self, name: &str, _: &PictureShape) -> Result<()> {
        unit(name, "threshold", self.threshold)?;
        probability(name, self.p)
    }

    fn draw(&self, draws: &mut Draws, _: &Picture, out: &mut Vec<PixelOp>) -> Result<()> {
        out.extend(draws.chance(self.p).then_some(PixelOp::Solarize(self.threshold)));
        Ok(())
    }
}

/// Keeps the upper bits of each byte; torchvision's `RandomPosterize`.
///
/// ```
/// # use std::sync::Arc;
/// use infeed::{DType, Device, Layout, Loader, transform::{Transform, augment::RandomPosterize}};
///
/// # let picture = vec![10, 100, 200];
/// # let picture = infeed::dataset::MemoryDataset::builder().images_u8(picture, 1, 1, 1, 3, false).build()?;
/// # let dataset = Arc::new(picture);
/// let transform = Transform::new().push(RandomPosterize { bits: 2, p: 1.0 });
/// assert_eq!(transform, "random_posterize:2,1".parse()?);
/// let loader = Loader::builder(dataset).batch_size(1).dtype(DType::U8).layout(Layout::Nhwc).device(Device::Cpu);
/// let batch = loader.transform(transform).build_blocking()?.epoch(0).blocking().next().expect("one batch")?;
/// // The picture was [10, 100, 200].
/// assert_eq!(batch["image"].to_vec::<u8>(), Some(vec![0, 64, 192]));
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomPosterize {
    /// Number of bits to keep, 0 to 8.
    pub bits: u8,
    /// Probability.
    #[serde(default = "half")]
    pub p: f32,
}

impl Augment for RandomPosterize {
    fn check(&self, name: &str, _: &PictureShape) -> Result<()> {
        if self.bits > 8 {
            return Err(Error::config(format!("{name} keeps {} bits", self.bits)).with_hint("use 0 to 8"));
        }
        probability(name, self.p)
    }

    fn draw(&self, draws: &mut Draws, _: &Picture, out: &mut Vec<PixelOp>) -> Result<()> {
        out.extend(draws.chance(self.p).then_some(PixelOp::Posterize(self.bits)));
        Ok(())
    }
}

/// Blurs or sharpens; torchvision's `RandomAdjustSharpness`. Pictures whose height or width is 1 or 2 stay unchanged.
///
/// ```
/// use infeed::transform::{Transform, augment::RandomAdjustSharpness};
///
/// let sharper = RandomAdjustSharpness { sharpness_factor: 2.0, p: 0.3 };
/// let train = Transform::new().random_resized_crop(224).push(sharper);
/// assert_eq!(train, "random_resized_crop:224;random_adjust_sharpness:2,0.3".parse()?);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomAdjustSharpness {
    /// 0 blurs, 1 changes nothing, 2 sharpens by a factor of two.
    pub sharpness_factor: f32,
    /// Probability.
    #[serde(default = "half")]
    pub p: f32,
}

impl Augment for RandomAdjustSharpness {
    fn check(&self, name: &str, at: &PictureShape) -> Result<()> {
        colours(name, at)?;
        if !(self.sharpness_factor >= 0.0 && self.sharpness_factor.is_finite()) {
            let what = format!("{name} has sharpness_factor {}", self.sharpness_factor);
            return Err(Error::config(what).with_hint("use a number of 0 or more"));
        }
        probability(name, self.p)
    }

    fn draw(&self, draws: &mut Draws, _: &Picture, out: &mut Vec<PixelOp>) -> Result<()> {
        out.extend(draws.chance(self.p).then_some(PixelOp::Sharpness(self.sharpness_factor)));
        Ok(())
    }
}

/// Permutes the channels at random; torchvision's `RandomChannelPermutation`.
///
/// ```
/// # use std::sync::Arc;
/// use infeed::{DType, Device, Loader, transform::{Transform, augment::RandomChannelPermutation}};
///
/// # let picture = infeed::dataset::MemoryDataset::builder().images_u8(vec![10, 20, 30], 1, 1, 1, 3, false).build()?;
/// # let dataset = Arc::new(picture);
/// let transform = Transform::new().push(RandomChannelPermutation {});
/// let loader = Loader::builder(dataset).batch_size(1).dtype(DType::U8).device(Device::Cpu).transform(transform);
/// let batch = loader.build_blocking()?.epoch(0).blocking().next().expect("one batch")?;
/// let mut pixel = batch["image"].to_vec::<u8>().expect("bytes");
/// pixel.sort();
/// assert_eq!(pixel, [10, 20, 30]); // In any order.
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RandomChannelPermutation {}

/// Channel `c` comes from channel `[c]`.
fn permuted(draws: &mut Draws, channels: u32) -> PixelOp {
    // Always drawn for four channels: a mask with another number of channels then draws the same.
    let all = shuffled::<4>(draws);
    let mut order = [0, 1, 2, 3];
    let used = all.into_iter().filter(|c| *c < channels as usize);
    order.iter_mut().zip(used).for_each(|(to, from)| *to = from as u8);
    PixelOp::Permute(order)
}

fn few_channels(name: &str, at: &PictureShape) -> Result<()> {
    if at.channels > 4 {
        return Err(Error::config(format!("{name} on pictures of {} channels", at.channels))
            .with_hint("omit it: it is for up to 4 channels"));
    }
    Ok(())
}

impl Augment for RandomChannelPermutation {
    fn check(&self, name: &str, at: &PictureShape) -> Result<()> {
        few_channels(name, at)
    }

    fn draw(&self, draws: &mut Draws, picture: &Picture, out: &mut Vec<PixelOp>) -> Result<()> {
        out.push(permuted(draws, picture.channels));
        Ok(())
    }
}

/// SSD's colour distortions ([Liu et al. 2016](https://arxiv.org/abs/1512.02325)); torchvision's
/// `RandomPhotometricDistort`.
///
/// Draws: for brightness, contrast, saturation and hue, whether it happens and then its factor; whether contrast comes
/// before or after the others; whether channels are permuted, and how.
///
/// ```
/// use infeed::transform::{Transform, augment::RandomPhotometricDistort};
///
/// // SSD's colour distortions with less change of hue, before its crops.
/// let distort = RandomPhotometricDistort { hue: [-0.02, 0.02], ..RandomPhotometricDistort::default() };
/// let ssd = Transform::new().push(distort).random_zoom_out(0.5).random_iou_crop().resize_exact(300, 300);
/// # let same = "random_photometric_distort:hue=-0.02/0.02;random_zoom_out;random_iou_crop;resize_exact:300";
/// # assert_eq!(ssd, same.parse()?);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RandomPhotometricDistort {
    /// Least and greatest factor on values.
    pub brightness: [f64; 2],
    /// Least and greatest factor on the distance from the mean gray.
    pub contrast: [f64; 2],
    /// Least and greatest factor on the distance from gray.
    pub saturation: [f64; 2],
    /// Least and greatest rotation on the colour circle, -0.5 to 0.5 turns.
    pub hue: [f64; 2],
    /// Probability of each.
    pub p: f32,
}

impl Default for RandomPhotometricDistort {
    fn default() -> Self {
        Self { brightness: [0.875, 1.125], contrast: [0.5, 1.5], saturation: [0.5, 1.5], hue: [-0.05, 0.05], p: 0.5 }
    }
}

impl Augment for RandomPhotometricDistort {
    fn check(&self, name: &str, at: &PictureShape) -> Result<()> {
        colours(name, at)?;
        ordered(name, "brightness", self.brightness, 0.0, f64::INFINITY)?;
        ordered(name, "contrast", self.contrast, 0.0, f64::INFINITY)?;
        ordered(name, "saturation", self.saturation, 0.0, f64::INFINITY)?;
        ordered(name, "hue", self.hue, -0.5, 0.5)?;
        probability(name, self.p)
    }

    fn draw(&self, draws: &mut Draws, picture: &Picture, out: &mut Vec<PixelOp>) -> Result<()> {
        let mut factor = |[low, high]: [f64; 2]| draws.chance(self.p).then(|| draws.between(low, high) as f32);
        let brightness = factor(self.brightness).map(PixelOp::Brightness);
        let contrast = factor(self.contrast).map(PixelOp::Contrast);
        let saturation = factor(self.saturation).map(PixelOp::Saturation);
        let hue = factor(self.hue).map(PixelOp::Hue);
        let contrast_first = draws.chance(0.5);
        let permutation = draws.chance(self.p).then(|| permuted(draws, picture.channels));
        let colour = picture.channels == 3;
        let (early, late) = if contrast_first { (contrast, None) } else { (None, contrast) };
        let steps = [brightness, early, saturation.filter(|_| colour), hue.filter(|_| colour), late, permutation];
        out.extend(steps.into_iter().flatten());
        Ok(())
    }
}
