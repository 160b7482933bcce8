//! The filters of a resample, named as in torchvision and timm.

use infeed_core::{
    error::{Error, Result},
    random::Draws,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::kernels::Filter;

/// The filter of a step that resizes. Masks always take the nearest pixel.
///
/// ```
/// use infeed::transform::{Interpolation, Transform};
///
/// let val = Transform::new().resize_shorter(256).interpolation(Interpolation::Bicubic).center_crop(224);
/// assert_eq!(val, "resize_shorter:256,bicubic;center_crop:224".parse()?);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Interpolation {
    /// torchvision's `NEAREST`: the pixel under the output pixel's top left corner.
    Nearest,
    /// `NEAREST_EXACT`: the pixel under the output pixel's centre.
    NearestExact,
    /// A triangle. Without antialias, the two pixels around the centre.
    #[default]
    Bilinear,
    /// Keys' cubic with `a = -0.5`. Without antialias, four pixels with `a = -0.75`, as in torch and OpenCV.
    Bicubic,
    /// Three lobes. Only with antialias.
    Lanczos,
    /// The mean of the pixels that the output pixel covers. Only with antialias.
    Box,
}

impl Interpolation {
    const fn name(self) -> &'static str {
        match self {
            Self::Nearest => "nearest",
            Self::NearestExact => "nearest_exact",
            Self::Bilinear => "bilinear",
            Self::Bicubic => "bicubic",
            Self::Lanczos => "lanczos",
            Self::Box => "box",
        }
    }

    pub(super) const fn filter(self, antialias: bool) -> Filter {
        match (self, antialias) {
            (Self::Nearest, _) => Filter::Nearest,
            (Self::NearestExact, _) => Filter::NearestExact,
            (Self::Bilinear, true) => Filter::Triangle,
            (Self::Bilinear, false) => Filter::Linear,
            (Self::Bicubic, true) => Filter::Cubic,
            (Self::Bicubic, false) => Filter::CubicFour,
            // Without antialias they were refused before.
            (Self::Lanczos, _) => Filter::Lanczos,
            (Self::Box, _) => Filter::Box,
        }
    }
}

/// One interpolation, or several of which each sample draws one with equal probability.
///
/// In JSON: a name, a list of names, or `"random"`, which is bilinear or bicubic, as in timm.
///
/// ```
/// use infeed::transform::{Interpolation, Interpolations, Transform};
///
/// let timm = Interpolations::random();
/// assert_eq!(timm.kinds(), [Interpolation::Bilinear, Interpolation::Bicubic]);
/// let drawn: Transform = "random_resized_crop:224,random".parse()?;
/// assert_eq!(drawn, Transform::new().random_resized_crop(224).interpolation_among(timm.kinds()));
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpolations(Vec<Interpolation>);

impl Interpolations {
    /// Bilinear or bicubic, as timm's `random`.
    #[must_use]
    pub fn random() -> Self {
        Self(vec![Interpolation::Bilinear, Interpolation::Bicubic])
    }

    /// The interpolations to draw from.
    #[must_use]
    pub fn kinds(&self) -> &[Interpolation] {
        &self.0
    }

    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Draws only if there are several.
    pub(super) fn draw(&self, antialias: bool, draws: &mut Draws) -> Filter {
        let kind = match &self.0[..] {
            [one] => *one,
            kinds => kinds.get(draws.below(kinds.len() as u64) as usize).copied().unwrap_or_default(),
        };
        kind.filter(antialias)
    }

    /// Checks that there is one, and that each is allowed with this `antialias`.
    pub(super) fn check(&self, name: &str, antialias: bool) -> Result<()> {
        if self.0.is_empty() {
            return Err(Error::config(format!("{name} has no interpolation")).with_hint("name one, such as bilinear"));
        }
        let smooth = |kind: &&Interpolation| matches!(kind, Interpolation::Lanczos | Interpolation::Box);
        if let Some(kind) = self.0.iter().find(smooth).filter(|_| !antialias) {
            let hint = "leave antialias as it is, or use bilinear or bicubic";
            return Err(Error::config(format!("{name} has {} without antialias", kind.name())).with_hint(hint));
        }
        Ok(())
    }
}

impl Default for Interpolations {
    fn default() -> Self {
        Interpolation::default().into()
    }
}

impl From<Interpolation> for Interpolations {
    fn from(kind: Interpolation) -> Self {
        Self(vec![kind])
    }
}

impl From<Vec<Interpolation>> for Interpolations {
    fn from(kinds: Vec<Interpolation>) -> Self {
        Self(kinds)
    }
}

impl Serialize for Interpolations {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match &self.0[..] {
            [one] => one.serialize(serializer),
            all => all.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Interpolations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "snake_case")]
        enum Random {
            Random,
        }
        #[derive(Deserialize)]
        #[serde(
            untagged,
            expecting = "an interpolation is nearest, nearest_exact, bilinear, bicubic, lanczos, box, random, or a list of those"
        )]
        enum Kinds {
            Random(Random),
            One(Interpolation),
            Several(Vec<Interpolation>),
        }
        Ok(match Kinds::deserialize(deserializer)? {
            Kinds::Random(Random::Random) => Self::random(),
            Kinds::One(kind) => kind.into(),
            Kinds::Several(kinds) => kinds.into(),
        })
    }
}

pub(super) const fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
pub(super) const fn is_yes(value: &bool) -> bool {
    *value
}
