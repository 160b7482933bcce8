//! Resizes to random sizes that keep the image's proportion.

use infeed_core::{
    error::{Error, Result},
    random::Draws,
};
use serde::{Deserialize, Serialize};

use crate::transform::{
    augment::ordered,
    interpolation::{self, Interpolations},
};

/// Resizes the shorter side to one of several lengths; torchvision's `RandomShortestSize`. Draws: which length.
///
/// ```
/// use infeed::transform::{Transform, detection::RandomShortestSize};
///
/// // Faster R-CNN's, with several scales.
/// let scales: Vec<u32> = (640..=800).step_by(32).collect();
/// let train = Transform::new().push(RandomShortestSize::new(scales, 1333)).horizontal_flip(0.5).pad_to(1333, 1333);
/// # let same = "random_shortest_size:640/672/704/736/768/800,1333;horizontal_flip;pad_to:1333";
/// # assert_eq!(train, same.parse()?);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomShortestSize {
    /// Lengths of the shorter side; each has the same probability.
    #[serde(deserialize_with = "one_or_more")]
    pub min_size: Vec<u32>,
    /// Greatest length of the longer side; it takes precedence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_size: Option<u32>,
    /// The filter.
    #[serde(default, skip_serializing_if = "Interpolations::is_default")]
    pub interpolation: Interpolations,
    /// Whether the filter widens when it makes the image smaller.
    #[serde(default = "interpolation::yes", skip_serializing_if = "interpolation::is_yes")]
    pub antialias: bool,
}

impl RandomShortestSize {
    /// One of these lengths for the shorter side, and at most `max_size` for the longer.
    #[must_use]
    pub fn new(min_size: impl Into<Vec<u32>>, max_size: impl Into<Option<u32>>) -> Self {
        Self {
            min_size: min_size.into(),
            max_size: max_size.into(),
            interpolation: Interpolations::default(),
            antialias: true,
        }
    }

    pub(in crate::transform) fn check(&self, name: &str) -> Result<()> {
        self.interpolation.check(name, self.antialias)?;
        if self.min_size.is_empty() {
            return Err(Error::config(format!("{name} has no min_size")).with_hint("give one length or several"));
        }
        Ok(())
    }

    /// All lengths that a side may get.
    pub(in crate::transform) fn sides(&self) -> impl Iterator<Item = u32> {
        self.min_size.iter().copied().chain(self.max_size)
    }

    /// The new height and width of an image of this height and width.
    pub(in crate::transform) fn size(&self, height: i64, width: i64, draws: &mut Draws) -> [i64; 2] {
        let min_size = self.min_size[draws.below(self.min_size.len() as u64) as usize];
        let (shorter, longer) = (height.min(width) as f64, height.max(width) as f64);
        let factor = f64::from(min_size) / shorter;
        let factor = self.max_size.map_or(factor, |most| factor.min(f64::from(most) / longer));
        [height, width].map(|side| at_least_one((side as f64 * factor) as i64))
    }
}

/// Fits the image into a size, and scales that by a random factor; torchvision's `ScaleJitter`. Draws: the factor.
///
/// ```
/// use infeed::transform::{Transform, detection::ScaleJitter};
///
/// // The standard jitter of 0.8 to 1.25, then a crop.
/// let jitter = ScaleJitter { scale_range: [0.8, 1.25], ..ScaleJitter::new(1024, 1024) };
/// let train = Transform::new().push(jitter).fixed_size_crop(1024, 1024).horizontal_flip(0.5);
/// assert_eq!(train, "scale_jitter:1024,0.8/1.25;fixed_size_crop:1024;horizontal_flip".parse()?);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScaleJitter {
    /// Height, width.
    #[serde(deserialize_with = "crate::transform::op::one_or_two")]
    pub target_size: [u32; 2],
    /// Least and greatest factor.
    #[serde(default = "scale_range")]
    pub scale_range: [f64; 2],
    /// The filter.
    #[serde(default, skip_serializing_if = "Interpolations::is_default")]
    pub interpolation: Interpolations,
    /// Whether the filter widens when it makes the image smaller.
    #[serde(default = "interpolation::yes", skip_serializing_if = "interpolation::is_yes")]
    pub antialias: bool,
}

const fn scale_range() -> [f64; 2] {
    [0.1, 2.0]
}

impl ScaleJitter {
    /// A factor from 0.1 to 2.
    #[must_use]
    pub fn new(height: u32, width: u32) -> Self {
        let (scale_range, interpolation) = (scale_range(), Interpolations::default());
        Self { target_size: [height, width], scale_range, interpolation, antialias: true }
    }

    pub(in crate::transform) fn check(&self, name: &str) -> Result<()> {
        self.interpolation.check(name, self.antialias)?;
        ordered(name, "scale_range", self.scale_range, f64::MIN_POSITIVE, f64::INFINITY)
    }

    /// The new height and width of an image of this height and width.
    pub(in crate::transform) fn size(&self, height: i64, width: i64, draws: &mut Draws) -> [i64; 2] {
        let [low, high] = self.scale_range;
        self.scaled(height, width, draws.between(low, high))
    }

    /// The same for a given factor, rounded in f32 as torchvision does.
    pub(super) fn scaled(&self, height: i64, width: i64, scale: f64) -> [i64; 2] {
        let fit = (f64::from(self.target_size[0]) / height as f64).min(f64::from(self.target_size[1]) / width as f64);
        let factor = fit as f32 * scale as f32;
        [height, width].map(|side| at_least_one((side as f32 * factor) as i64))
    }
}

/// At least 1; torchvision can't resize to 0.
const fn at_least_one(side: i64) -> i64 {
    if side < 1 { 1 } else { side }
}

fn one_or_more<'de, D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Vec<u32>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "min_size is a number or a list of them")]
    enum Sizes {
        One(u32),
        All(Vec<u32>),
    }
    Ok(match Sizes::deserialize(deserializer)? {
        Sizes::One(size) => vec![size],
        Sizes::All(all) => all,
    })
}
