//! Steps that move pixels by a matrix.

use infeed_core::{
    error::{Error, Result},
    random::Draws,
};
use serde::{Deserialize, Serialize};

use super::step::{
    Augment, Moves, Picture, PictureShape, Spread, Value, check_fill, filled, half, ordered, probability, unit,
};
use crate::{
    kernels::{PixelOp, Sampling},
    transform::warp,
};

#[expect(clippy::unnecessary_wraps, reason = "a default of a field that may be none")]
const fn black() -> Option<Value> {
    Some(Value::All(0.0))
}

const fn bilinear() -> Sampling {
    Sampling::Bilinear
}

fn check_center(name: &str, center: Option<[f64; 2]>) -> Result<()> {
    if center.is_some_and(|center| !center.iter().all(|c| c.is_finite())) {
        return Err(
            Error::config(format!("{name} has center {center:?}")).with_hint("use two numbers of pixels, x and y")
        );
    }
    Ok(())
}

/// Rotates pictures and keeps their size; torchvision's `RandomRotation` with `expand=False`. Draws: the angle.
///
/// ```
/// # use std::sync::Arc;
/// use infeed::{DType, Device, Loader, transform::{Transform, augment::RandomRotation}};
///
/// # let picture = infeed::dataset::MemoryDataset::builder().images_u8(vec![1, 2, 3, 4], 1, 2, 2, 1, false).build()?;
/// # let dataset = Arc::new(picture);
/// // Always a quarter turn to the left. `RandomRotation::new(10.0)` is up to 10 degrees to either side.
/// let transform = Transform::new().push(RandomRotation::new([90.0, 90.0]));
/// let loader = Loader::builder(dataset).batch_size(1).dtype(DType::U8).device(Device::Cpu).transform(transform);
/// let batch = loader.build_blocking()?.epoch(0).blocking().next().expect("one batch")?;
/// assert_eq!(batch["image"].to_vec::<u8>(), Some(vec![2, 4, 1, 3])); // It was 1 2 over 3 4.
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomRotation {
    /// Degrees, counter-clockwise: a number for both directions, or the least and the greatest.
    pub degrees: Spread,
    /// Interpolation.
    #[serde(default)]
    pub interpolation: Sampling,
    /// The point that stays in place, x and y in pixels; `None`: the middle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub center: Option<[f64; 2]>,
    /// Value of pixels that are left empty, a part of white. `None`: black.
    #[serde(default = "black")]
    pub fill: Option<Value>,
}

impl RandomRotation {
    /// A rotation around the middle, with nearest pixels, black outside.
    #[must_use]
    pub fn new(degrees: impl Into<Spread>) -> Self {
        Self { degrees: degrees.into(), interpolation: Sampling::Nearest, center: None, fill: black() }
    }
}

fn check_degrees(name: &str, degrees: Spread) -> Result<()> {
    degrees.check(name, "degrees", 0.0, f64::MIN, f64::MAX)?;
    match degrees {
        // The ends of a number below 0 are in the wrong order; the check above has reported it.
        Spread::By(_) => Ok(()),
        Spread::Within(ends) => ordered(name, "degrees", ends, f64::MIN, f64::MAX),
    }
}

impl Augment for RandomRotation {
    fn check(&self, name: &str, at: &PictureShape) -> Result<()> {
        check_degrees(name, self.degrees)?;
        check_center(name, self.center)?;
        check_fill(name, self.fill.as_ref(), at)
    }

    fn draw(&self, draws: &mut Draws, picture: &Picture, out: &mut Vec<PixelOp>) -> Result<()> {
        let angle = self.degrees.draw(0.0, f64::MIN, draws);
        let map = warp::rotate(angle, self.center, picture.height, picture.width);
        out.push(PixelOp::Warp { map, sampling: self.interpolation, fill: filled(self.fill.as_ref()) });
        Ok(())
    }

    fn moves(&self) -> Moves {
        Moves::Alike
    }
}

/// Range of the shear, in degrees.
///
/// ```
/// use infeed::transform::{Transform, augment::{RandomAffine, Shear}};
///
/// // Up to 10 degrees along x, none along y.
/// let shear = Some(Shear::Both([-10.0, 10.0, 0.0, 0.0]));
/// let train = Transform::new().center_crop(224).push(RandomAffine { shear, ..RandomAffine::new(0.0) });
/// assert_eq!(train, "center_crop:224;random_affine:0,shear=-10/10/0/0".parse()?);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a shear is a number, [least, most] along x, or those of x and of y")]
pub enum Shear {
    /// Along x, this far in both directions.
    By(f64),
    /// Along x, from the least to the greatest.
    X([f64; 2]),
    /// Along x, from the least to the greatest, then the same along y.
    Both([f64; 4]),
}

impl Shear {
    fn ends(self) -> ([f64; 2], Option<[f64; 2]>) {
        match self {
            Self::By(by) => ([-by, by], None),
            Self::X(x) => (x, None),
            Self::Both([a, b, c, d]) => ([a, b], Some([c, d])),
        }
    }
}

/// Rotates, moves, scales and shears; torchvision's `RandomAffine`.
///
/// Draws: the angle, the distances along x and y (whole pixels), the scale, the shears along x and y. Settings that are
/// omitted draw nothing.
///
/// ```
/// use infeed::{spi::Sampling, transform::{Transform, augment::RandomAffine}};
///
/// let affine = RandomAffine {
///     translate: Some([0.1, 0.1]),
///     scale: Some([0.9, 1.1]),
///     interpolation: Sampling::Bilinear,
///     ..RandomAffine::new(15.0)
/// };
/// let train = Transform::new().center_crop(224).push(affine);
/// assert_eq!(train, "center_crop:224;random_affine:15,0.1/0.1,0.9/1.1,bilinear".parse()?);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomAffine {
    /// As in [`RandomRotation`], but clockwise, as in torchvision's affine.
    pub degrees: Spread,
    /// Greatest distance, in parts of width and height.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub translate: Option<[f64; 2]>,
    /// Least and greatest factor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<[f64; 2]>,
    /// Degrees.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shear: Option<Shear>,
    /// Interpolation.
    #[serde(default)]
    pub interpolation: Sampling,
    /// Value of pixels that are left empty, a part of white. `None`: black.
    #[serde(default = "black")]
    pub fill: Option<Value>,
    /// The point that stays in place, x and y in pixels; `None`: the middle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub center: Option<[f64; 2]>,
}

impl RandomAffine {
    /// Only a rotation around the middle, with nearest pixels, black outside.
    #[must_use]
    pub fn new(degrees: impl Into<Spread>) -> Self {
        Self {
            degrees: degrees.into(),
            translate: None,
            scale: None,
            shear: None,
            interpolation: Sampling::Nearest,
            fill: black(),
            center: None,
        }
    }
}

impl Augment for RandomAffine {
    fn check(&self, name: &str, at: &PictureShape) -> Result<()> {
        check_degrees(name, self.degrees)?;
        for part in self.translate.into_iter().flatten() {
            if !(0.0..=1.0).contains(&part) {
                return Err(Error::config(format!("{name} has translate {part}"))
                    .with_hint("use 0 to 1, parts of width and height"));
            }
        }
        if let Some(scale) = self.scale {
            ordered(name, "scale", scale, f64::MIN_POSITIVE, f64::INFINITY)?;
        }
        if let Some(shear) = self.shear {
            let (x, y) = shear.ends();
            // At a right angle a picture would become a line.
            ordered(name, "shear", x, -89.9, 89.9)?;
            y.map_or(Ok(()), |y| ordered(name, "shear", y, -89.9, 89.9))?;
        }
        check_center(name, self.center)?;
        check_fill(name, self.fill.as_ref(), at)
    }

    fn draw(&self, draws: &mut Draws, picture: &Picture, out: &mut Vec<PixelOp>) -> Result<()> {
        let angle = self.degrees.draw(0.0, f64::MIN, draws);
        let translate = self.translate.map_or([0.0; 2], |[x, y]| {
            let mut by = |part: f64, side: u32| {
                let most = part * f64::from(side);
                draws.between(-most, most).round_ties_even()
            };
            [by(x, picture.width), by(y, picture.height)]
        });
        let scale = self.scale.map_or(1.0, |[low, high]| draws.between(low, high));
        let mut shear = [0.0; 2];
        if let Some((x, y)) = self.shear.map(Shear::ends) {
            shear[0] = draws.between(x[0], x[1]);
            shear[1] = y.map_or(0.0, |y| draws.between(y[0], y[1]));
        }
        let map = warp::affine(angle, translate, scale, shear, self.center, picture.height, picture.width);
        out.push(PixelOp::Warp { map, sampling: self.interpolation, fill: filled(self.fill.as_ref()) });
        Ok(())
    }

    fn moves(&self) -> Moves {
        Moves::Alike
    }
}

/// Moves the four corners inwards; torchvision's `RandomPerspective`.
///
/// Draws: whether it happens; then x and y of the corners top left, top right, bottom right, bottom left.
///
/// ```
/// use infeed::transform::{Transform, augment::{RandomPerspective, Value}};
///
/// let step = RandomPerspective { distortion_scale: 0.3, fill: Some(Value::All(1.0)), ..RandomPerspective::default() };
/// let pages = Transform::new().resize_exact(224, 224).push(step); // White around a page.
/// assert_eq!(pages, "resize_exact:224;random_perspective:0.3,fill=1.0".parse()?);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RandomPerspective {
    /// Greatest distance, as a part of half of the picture.
    pub distortion_scale: f32,
    /// Probability.
    #[serde(default = "half")]
    pub p: f32,
    /// Interpolation.
    #[serde(default = "bilinear")]
    pub interpolation: Sampling,
    /// Value of pixels that are left empty, a part of white. `None`: black.
    #[serde(default = "black")]
    pub fill: Option<Value>,
}

impl Default for RandomPerspective {
    fn default() -> Self {
        Self { distortion_scale: 0.5, p: half(), interpolation: bilinear(), fill: black() }
    }
}

impl Augment for RandomPerspective {
    fn check(&self, name: &str, at: &PictureShape) -> Result<()> {
        unit(name, "distortion_scale", self.distortion_scale)?;
        probability(name, self.p)?;
        check_fill(name, self.fill.as_ref(), at)
    }

    fn draw(&self, draws: &mut Draws, picture: &Picture, out: &mut Vec<PixelOp>) -> Result<()> {
        if !draws.chance(self.p) {
            return Ok(());
        }
        let (height, width) = (u64::from(picture.height), u64::from(picture.width));
        let bound = |side: u64| (f64::from(self.distortion_scale) * (side / 2) as f64) as u64 + 1;
        let (down, across) = (bound(height), bound(width));
        let mut corner = |right: bool, bottom: bool| {
            let x = draws.below(across) + if right { width - across.min(width) } else { 0 };
            let y = draws.below(down) + if bottom { height - down.min(height) } else { 0 };
            [x as f64, y as f64]
        };
        let end = [corner(false, false), corner(true, false), corner(true, true), corner(false, true)];
        let (right, bottom) = ((width - 1) as f64, (height - 1) as f64);
        let start = [[0.0, 0.0], [right, 0.0], [right, bottom], [0.0, bottom]];
        // If three corners fall on a line there is no map: the picture stays unchanged.
        let map = warp::perspective(&start, &end);
        out.extend(map.map(|map| PixelOp::Warp {
            map,
            sampling: self.interpolation,
            fill: filled(self.fill.as_ref()),
        }));
        Ok(())
    }

    fn moves(&self) -> Moves {
        Moves::Alike
    }
}
