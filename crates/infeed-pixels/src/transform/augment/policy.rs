//! Policies: steps that are chosen at random, with magnitudes.

use infeed_core::{
    error::{Error, Result},
    random::Draws,
};
use serde::{Deserialize, Serialize};

use super::{
    step::{Augment, Moves, Picture, PictureShape, Value, check_fill, colours},
    tables::{self, Chosen, How, PolicyStep, Space},
};
use crate::kernels::{PixelOp, Sampling};

/// Draws a sign if the step has one, and adds the step.
fn signed(
    kind: PolicyStep,
    magnitude: Option<f32>,
    draws: &mut Draws,
    picture: &Picture,
    how: &How,
) -> Option<PixelOp> {
    let magnitude = magnitude.map_or(0.0, |m| if kind.is_signed() && draws.chance(0.5) { -m } else { m });
    kind.step(magnitude, picture, how)
}

fn choose(kinds: &[PolicyStep], draws: &mut Draws) -> PolicyStep {
    kinds[draws.below(kinds.len() as u64) as usize]
}

fn check_bins(name: &str, bins: u32) -> Result<()> {
    if !(2..=1000).contains(&bins) {
        return Err(Error::config(format!("{name} has {bins} magnitude bins")).with_hint("use 2 to 1000"));
    }
    Ok(())
}

/// Applies a few random steps of one magnitude ([Cubuk et al. 2019](https://arxiv.org/abs/1909.13719)); torchvision's
/// `RandAugment`.
///
/// Draws, for each step: which of the fourteen, and a sign if that step has one.
///
/// ```
/// use infeed::{spi::Sampling, transform::{Transform, augment::{RandAugment, Value}}};
///
/// let fill = Some(Value::All(0.5)); // Gray where rotated pictures leave pixels empty.
/// let policy = RandAugment { magnitude: 5, interpolation: Sampling::Bilinear, fill, ..RandAugment::default() };
/// let train = Transform::new().random_resized_crop(224).push(policy);
/// assert_eq!(train, "random_resized_crop:224;rand_augment:2,5,bilinear,fill=0.5".parse()?);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RandAugment {
    /// Number of steps.
    pub num_ops: u32,
    /// Bin of the magnitudes.
    pub magnitude: u32,
    /// Number of bins, from no change to the largest magnitude.
    pub num_magnitude_bins: u32,
    /// Interpolation of warps.
    pub interpolation: Sampling,
    /// Value of pixels that warps leave empty, a part of white. `None`: black.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fill: Option<Value>,
}

impl Default for RandAugment {
    fn default() -> Self {
        Self { num_ops: 2, magnitude: 9, num_magnitude_bins: 31, interpolation: Sampling::Nearest, fill: None }
    }
}

impl Augment for RandAugment {
    fn check(&self, name: &str, at: &PictureShape) -> Result<()> {
        colours(name, at)?;
        check_bins(name, self.num_magnitude_bins)?;
        if self.magnitude >= self.num_magnitude_bins {
            let (magnitude, bins) = (self.magnitude, self.num_magnitude_bins);
            return Err(Error::config(format!("{name} has magnitude {magnitude} of {bins} bins"))
                .with_hint(format!("use 0 to {}", bins - 1)));
        }
        if self.num_ops > 64 {
            return Err(Error::config(format!("{name} has {} ops", self.num_ops)).with_hint("use up to 64"));
        }
        check_fill(name, self.fill.as_ref(), at)
    }

    fn draw(&self, draws: &mut Draws, picture: &Picture, out: &mut Vec<PixelOp>) -> Result<()> {
        let how = How::new(self.interpolation, self.fill.as_ref());
        for _ in 0..self.num_ops {
            let kind = choose(&tables::ALL, draws);
            let magnitude = kind.magnitude(&tables::RAND_AUGMENT, self.num_magnitude_bins, self.magnitude, picture);
            out.extend(signed(kind, magnitude, draws, picture, &how));
        }
        Ok(())
    }

    fn moves(&self) -> Moves {
        Moves::Alike
    }
}

/// Applies one random step of random magnitude ([Müller and Hutter 2021](https://arxiv.org/abs/2103.10158));
/// torchvision's `TrivialAugmentWide`. Draws: which of the fourteen steps, the bin of its magnitude, its sign.
///
/// ```
/// use infeed::{spi::Sampling, transform::{Transform, augment::TrivialAugmentWide}};
///
/// let policy = TrivialAugmentWide { interpolation: Sampling::Bilinear, ..TrivialAugmentWide::default() };
/// let train = Transform::new().random_resized_crop(176).horizontal_flip(0.5).push(policy);
/// assert_eq!(train, "random_resized_crop:176;horizontal_flip;trivial_augment_wide:bilinear".parse()?);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrivialAugmentWide {
    /// Number of bins, from no change to the largest magnitude.
    pub num_magnitude_bins: u32,
    /// Interpolation of warps.
    pub interpolation: Sampling,
    /// Value of pixels that warps leave empty, a part of white. `None`: black.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fill: Option<Value>,
}

impl Default for TrivialAugmentWide {
    fn default() -> Self {
        Self { num_magnitude_bins: 31, interpolation: Sampling::Nearest, fill: None }
    }
}

/// A magnitude from the first `of` bins; drawn only for steps that have one.
fn any_magnitude(
    kind: PolicyStep,
    space: &Space,
    bins: u32,
    of: u32,
    draws: &mut Draws,
    picture: &Picture,
) -> Option<f32> {
    kind.magnitude(space, bins, 0, picture)?;
    kind.magnitude(space, bins, draws.below(u64::from(of)) as u32, picture)
}

impl Augment for TrivialAugmentWide {
    fn check(&self, name: &str, at: &PictureShape) -> Result<()> {
        colours(name, at)?;
        check_bins(name, self.num_magnitude_bins)?;
        check_fill(name, self.fill.as_ref(), at)
    }

    fn draw(&self, draws: &mut Draws, picture: &Picture, out: &mut Vec<PixelOp>) -> Result<()> {
        let how = How::new(self.interpolation, self.fill.as_ref());
        let (kind, bins) = (choose(&tables::ALL, draws), self.num_magnitude_bins);
        let magnitude = any_magnitude(kind, &tables::TRIVIAL_AUGMENT, bins, bins, draws, picture);
        out.extend(signed(kind, magnitude, draws, picture, &how));
        Ok(())
    }

    fn moves(&self) -> Moves {
        Moves::Alike
    }
}

/// The dataset on which an [`AutoAugment`] policy was learned.
///
/// ```
/// use infeed::transform::{Transform, augment::Policy};
///
/// let cifar = Transform::new().random_crop(32, 4).horizontal_flip(0.5).auto_augment(Policy::Cifar10);
/// assert_eq!(cifar, "random_crop:32,4;horizontal_flip;auto_augment:cifar10".parse()?);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// ImageNet.
    #[default]
    Imagenet,
    /// CIFAR-10.
    Cifar10,
    /// Street View House Numbers.
    Svhn,
}

impl Policy {
    const fn pairs(self) -> &'static [[Chosen; 2]; 25] {
        match self {
            Self::Imagenet => &tables::IMAGENET,
            Self::Cifar10 => &tables::CIFAR10,
            Self::Svhn => &tables::SVHN,
        }
    }
}

/// Applies one of 25 learned pairs of steps ([Cubuk et al. 2018](https://arxiv.org/abs/1805.09501)); torchvision's
/// `AutoAugment`.
///
/// Draws: which pair; for each of the two steps, whether it happens, and a sign if it has one.
///
/// ```
/// use infeed::transform::{Transform, augment::{AutoAugment, Policy, Value}};
///
/// let policy = AutoAugment { policy: Policy::Svhn, fill: Some(Value::All(0.5)), ..AutoAugment::default() };
/// let digits = Transform::new().random_crop(32, 4).push(policy);
/// assert_eq!(digits, "random_crop:32,4;auto_augment:svhn,fill=0.5".parse()?);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AutoAugment {
    /// The dataset on which it was learned.
    pub policy: Policy,
    /// Interpolation of warps.
    pub interpolation: Sampling,
    /// Value of pixels that warps leave empty, a part of white. `None`: black.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fill: Option<Value>,
}

impl Augment for AutoAugment {
    fn check(&self, name: &str, at: &PictureShape) -> Result<()> {
        colours(name, at)?;
        check_fill(name, self.fill.as_ref(), at)
    }

    fn draw(&self, draws: &mut Draws, picture: &Picture, out: &mut Vec<PixelOp>) -> Result<()> {
        let how = How::new(self.interpolation, self.fill.as_ref());
        let pairs = self.policy.pairs();
        for (kind, p, bin) in pairs[draws.below(pairs.len() as u64) as usize] {
            if draws.chance(p) {
                let magnitude = kind.magnitude(&tables::RAND_AUGMENT, 10, bin, picture);
                out.extend(signed(kind, magnitude, draws, picture, &how));
            }
        }
        Ok(())
    }

    fn moves(&self) -> Moves {
        Moves::Alike
    }
}

/// Blends the picture with the results of chains of steps ([Hendrycks et al. 2019](https://arxiv.org/abs/1912.02781));
/// torchvision's `AugMix`.
///
/// Draws: the picture's weight (Beta) and the weights of the chains (Dirichlet); for each chain, its length if
/// `chain_depth` leaves it open, and for each of its steps which step, the bin of its magnitude, and a sign. A mask
/// can't follow, so `AugMix` is refused for records with masks.
///
/// ```
/// use infeed::transform::{Transform, augment::AugMix};
///
/// // Two chains, without the steps that CIFAR-C and ImageNet-C test with.
/// let policy = AugMix { mixture_width: 2, all_ops: false, ..AugMix::default() };
/// let train = Transform::new().random_resized_crop(224).push(policy);
/// assert_eq!(train, "random_resized_crop:224;aug_mix:3,2,all_ops=false".parse()?);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AugMix {
    /// Number of bins of magnitudes that are used, of ten.
    pub severity: u32,
    /// Number of chains.
    pub mixture_width: u32,
    /// Steps of a chain; 0 or less: 1 to 3, drawn for each chain.
    pub chain_depth: i32,
    /// Parameter of the Beta and Dirichlet distributions.
    pub alpha: f64,
    /// Whether brightness, colour, contrast and sharpness are among the steps.
    pub all_ops: bool,
    /// Interpolation of warps.
    pub interpolation: Sampling,
    /// Value of pixels that warps leave empty, a part of white. `None`: black.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fill: Option<Value>,
}

impl Default for AugMix {
    fn default() -> Self {
        Self {
            severity: 3,
            mixture_width: 3,
            chain_depth: -1,
            alpha: 1.0,
            all_ops: true,
            interpolation: Sampling::Bilinear,
            fill: None,
        }
    }
}

/// Number of bins of AugMix's magnitudes.
const SEVERITIES: u32 = 10;

impl Augment for AugMix {
    fn check(&self, name: &str, at: &PictureShape) -> Result<()> {
        colours(name, at)?;
        if !(1..=SEVERITIES).contains(&self.severity) {
            return Err(Error::config(format!("{name} has severity {}", self.severity)).with_hint("use 1 to 10"));
        }
        if !(1..=64).contains(&self.mixture_width) || self.chain_depth > 64 {
            let what = format!("{name} has {} chains of {}", self.mixture_width, self.chain_depth);
            return Err(Error::config(what).with_hint("use 1 to 64 chains of at most 64 steps"));
        }
        if !(self.alpha > 0.0 && self.alpha.is_finite()) {
            return Err(Error::config(format!("{name} has alpha {}", self.alpha)).with_hint("use a number above 0"));
        }
        check_fill(name, self.fill.as_ref(), at)
    }

    fn draw(&self, draws: &mut Draws, picture: &Picture, out: &mut Vec<PixelOp>) -> Result<()> {
        let how = How::new(self.interpolation, self.fill.as_ref());
        let kinds = if self.all_ops { &tables::AUG_MIX[..] } else { &tables::AUG_MIX[..tables::AUG_MIX_PARTIAL] };
        let own = draws.beta(self.alpha, self.alpha);
        let parts: Vec<f64> = (0..self.mixture_width).map(|_| draws.gamma(self.alpha)).collect();
        let sum: f64 = parts.iter().sum();
        let mut chains = Vec::new();
        for part in parts {
            let depth = u32::try_from(self.chain_depth).ok().filter(|depth| *depth > 0);
            let depth = depth.unwrap_or_else(|| 1 + draws.below(3) as u32);
            let mut steps = Vec::new();
            for _ in 0..depth {
                let kind = choose(kinds, draws);
                let space = &tables::AUG_MIX_SPACE;
                let magnitude = any_magnitude(kind, space, SEVERITIES, self.severity, draws, picture);
                steps.extend(signed(kind, magnitude, draws, picture, &how));
            }
            // All weights may underflow to 0 if alpha is tiny.
            let part = if sum > 0.0 { part / sum } else { 1.0 / f64::from(self.mixture_width) };
            chains.push((((1.0 - own) * part) as f32, steps));
        }
        out.push(PixelOp::Mix { own: own as f32, chains });
        Ok(())
    }

    fn moves(&self) -> Moves {
        Moves::Blended
    }
}
