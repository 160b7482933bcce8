//! Shared by all augmentations: their interface, and checks of their settings.

use infeed_core::{
    error::{Error, Result},
    random::Draws,
};
use serde::{Deserialize, Serialize};

use crate::kernels::PixelOp;

/// Properties of the pictures at a step that are known when the transform is lowered.
#[derive(Clone, Copy, Debug)]
pub(in crate::transform) struct PictureShape {
    pub(in crate::transform) channels: u32,
    /// Height and width, if all images have the same.
    pub(in crate::transform) size: Option<[u32; 2]>,
}

/// Properties of the picture when a sample draws.
#[derive(Clone, Copy, Debug)]
pub(in crate::transform) struct Picture {
    pub(in crate::transform) height: u32,
    pub(in crate::transform) width: u32,
    pub(in crate::transform) channels: u32,
}

/// The effect of a step on masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::transform) enum Moves {
    /// Only values change: masks stay.
    Never,
    /// Pixels move: masks move alike.
    Alike,
    /// Pictures that moved differently are blended: a mask can't follow.
    Blended,
}

/// A step that works on a tile.
pub(in crate::transform) trait Augment {
    /// Refuses invalid settings, and pictures that the step can't take. `name` is the step's name.
    fn check(&self, name: &str, at: &PictureShape) -> Result<()>;

    /// Draws for one picture. An error makes the sample a bad one.
    fn draw(&self, draws: &mut Draws, picture: &Picture, out: &mut Vec<PixelOp>) -> Result<()>;

    /// The effect on masks.
    fn moves(&self) -> Moves {
        Moves::Never
    }
}

/// One number for all channels, or one for each.
///
/// ```
/// use infeed::transform::{Transform, augment::{RandomRotation, Value}};
///
/// // Rotated pictures have ImageNet's mean at their corners rather than black.
/// let fill = Some(Value::Each(vec![0.485, 0.456, 0.406]));
/// let train = Transform::new().center_crop(224).push(RandomRotation { fill, ..RandomRotation::new(15.0) });
/// assert_eq!(train, "center_crop:224;random_rotation:15,fill=0.485/0.456/0.406".parse()?);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a value is a number, or one for each channel")]
pub enum Value {
    /// For all channels.
    All(f32),
    /// For each channel.
    Each(Vec<f32>),
}

impl Value {
    fn numbers(&self) -> &[f32] {
        match self {
            Self::All(value) => std::slice::from_ref(value),
            Self::Each(values) => values,
        }
    }

    /// Whether it is 0 for all channels.
    pub(in crate::transform) fn is_zero(&self) -> bool {
        self.numbers().iter().all(|value| *value == 0.0)
    }

    /// The value of a channel.
    pub(in crate::transform) fn of(&self, channel: usize) -> f32 {
        let numbers = self.numbers();
        numbers[if numbers.len() == 1 { 0 } else { channel }]
    }

    pub(in crate::transform) fn check(&self, name: &str, what: &str, at: &PictureShape) -> Result<()> {
        let n = self.numbers().len();
        if n != 1 && n != at.channels as usize {
            return Err(Error::config(format!("{name} has {n} numbers as {what} for {} channels", at.channels))
                .with_hint("give one for each channel, or one for all"));
        }
        if !self.numbers().iter().all(|value| value.is_finite()) {
            return Err(
                Error::config(format!("{name} has {what} {:?}", self.numbers())).with_hint("use finite numbers")
            );
        }
        Ok(())
    }
}

/// Checks the value of pixels that a warp leaves empty, a part of white.
pub(in crate::transform) fn check_fill(name: &str, fill: Option<&Value>, at: &PictureShape) -> Result<()> {
    let Some(fill) = fill else { return Ok(()) };
    fill.check(name, "fill", at)?;
    if at.channels > 4 && fill.numbers().len() > 1 {
        return Err(Error::config(format!("{name} has a fill for each of {} channels", at.channels))
            .with_hint("give one number for all: different ones are for up to 4 channels"));
    }
    fill.numbers().iter().try_for_each(|value| unit(name, "fill", *value))
}

pub(in crate::transform) fn filled(fill: Option<&Value>) -> Option<[f32; 4]> {
    fill.map(|fill| match fill {
        Value::All(value) => [*value; 4],
        Value::Each(values) => std::array::from_fn(|c| values.get(c).or(values.last()).copied().unwrap_or(0.0)),
    })
}

/// A range: a number for the distance from a middle to both sides, or two ends.
///
/// ```
/// use infeed::transform::{Transform, augment::Spread};
///
/// // Brightness from 0.6 to 1.4; contrast from 1 to 2; rotations of up to 15 degrees to the left, none to the right.
/// let train = Transform::new()
///     .center_crop(224)
///     .color_jitter(0.4, [1.0, 2.0], 0.0, 0.0)
///     .random_rotation(Spread::Within([0.0, 15.0]));
/// assert_eq!(train, "center_crop:224;color_jitter:0.4,1/2,0,0;random_rotation:0/15".parse()?);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a range is a number, or [least, most]")]
pub enum Spread {
    /// The middle minus this number to the middle plus this number.
    By(f64),
    /// From the least to the greatest.
    Within([f64; 2]),
}

impl Default for Spread {
    fn default() -> Self {
        Self::By(0.0)
    }
}

impl From<f64> for Spread {
    fn from(by: f64) -> Self {
        Self::By(by)
    }
}

impl From<[f64; 2]> for Spread {
    fn from(ends: [f64; 2]) -> Self {
        Self::Within(ends)
    }
}

impl Spread {
    /// Both ends, for this middle.
    pub(super) fn ends(self, middle: f64) -> [f64; 2] {
        match self {
            Self::By(by) => [middle - by, middle + by],
            Self::Within(ends) => ends,
        }
    }

    /// Whether the range is only the middle.
    pub(super) fn is_only(self, middle: f64) -> bool {
        self.ends(middle) == [middle; 2]
    }

    pub(super) fn draw(self, middle: f64, least: f64, draws: &mut Draws) -> f64 {
        let [low, high] = self.ends(middle);
        draws.between(low.max(least), high)
    }

    /// Both ends must be in `least..=most`. A single number may reach below `least`; the range is cut there.
    pub(super) fn check(self, name: &str, what: &str, middle: f64, least: f64, most: f64) -> Result<()> {
        let [low, high] = self.ends(middle);
        let cut = matches!(self, Self::By(by) if by >= 0.0);
        // Written so that NaN fails.
        if (low >= least || cut) && low <= high && high <= most && high.is_finite() {
            return Ok(());
        }
        Err(Error::config(format!("{name} has {what} {}", self.said()))
            .with_hint(format!("use a number of 0 or more, or [least, most] between {least} and {most}")))
    }

    pub(super) fn said(self) -> String {
        match self {
            Self::By(by) => by.to_string(),
            Self::Within([low, high]) => format!("{low} to {high}"),
        }
    }
}

/// Checks a probability.
pub(in crate::transform) fn probability(name: &str, p: f32) -> Result<()> {
    if (0.0..=1.0).contains(&p) {
        return Ok(());
    }
    Err(Error::config(format!("{name} has probability {p}")).with_hint("use 0 to 1"))
}

/// Checks a part of white.
pub(in crate::transform) fn unit(name: &str, what: &str, value: f32) -> Result<()> {
    if (0.0..=1.0).contains(&value) {
        return Ok(());
    }
    Err(Error::config(format!("{name} has {what} {value}"))
        .with_hint("use 0 to 1, a part of white; 128 of 255 is 0.502"))
}

/// Checks two ends: in order, and within bounds.
pub(in crate::transform) fn ordered(
    name: &str,
    what: &str,
    [low, high]: [f64; 2],
    least: f64,
    most: f64,
) -> Result<()> {
    // Written so that NaN fails.
    if least <= low && low <= high && high <= most && high.is_finite() {
        return Ok(());
    }
    let bound = if most.is_finite() { format!("between {least} and {most}") } else { format!("of {least} or more") };
    Err(Error::config(format!("{name} has {what} {low} to {high}"))
        .with_hint(format!("use two numbers {bound}, the smaller one first")))
}

/// Refuses pictures that are neither gray nor RGB.
pub(in crate::transform) fn colours(name: &str, at: &PictureShape) -> Result<()> {
    if matches!(at.channels, 1 | 3) {
        return Ok(());
    }
    Err(Error::config(format!("{name} on pictures of {} channels", at.channels))
        .with_hint("omit it: it is for gray pictures and RGB"))
}

pub(in crate::transform) const fn half() -> f32 {
    0.5
}

/// A random order of `0..N`.
pub(super) fn shuffled<const N: usize>(draws: &mut Draws) -> [usize; N] {
    let mut order = std::array::from_fn(|n| n);
    for last in (1..N).rev() {
        order.swap(last, draws.below(last as u64 + 1) as usize);
    }
    order
}
