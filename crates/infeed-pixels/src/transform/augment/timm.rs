//! timm's RandAugment, which differs from the paper's and from torchvision's.

use infeed_core::{
    error::{Error, Result},
    random::Draws,
};
use serde::{Deserialize, Serialize};

use super::step::{Augment, Moves, Picture, PictureShape, Value, check_fill, colours, filled, half, probability};
use crate::{
    kernels::{PixelOp, Sampling},
    transform::warp,
};

/// timm's `rand-m9-mstd0.5-inc1` and similar policies (timm 1.0). There are fifteen steps, among them an inversion and
/// `SolarizeAdd`, but no identity. Each step happens with a probability. Magnitudes are from 0 to 10 and drawn around
/// `magnitude`.
///
/// Steps are torchvision's on tensors, while timm's are Pillow's. Brightness, contrast, saturation, sharpness and
/// bilinear warps differ by a level in places, bicubic warps by up to 15 levels in strong noise. At the edge of a moved
/// picture, tensors blend it with `fill`; Pillow repeats the last pixel.
///
/// Draws, for each step: which step, whether it happens, the magnitude if `magnitude_std` is not 0, a sign if the step
/// has one, and for warps the interpolation if there are several.
///
/// ```
/// use infeed::transform::{Transform, augment::TimmRandAugment};
///
/// // timm's `rand-m7-mstd0.5-n3`.
/// let policy = TimmRandAugment { magnitude: 7.0, num_ops: 3, increasing: false, ..TimmRandAugment::default() };
/// let train = Transform::new().random_resized_crop(224).push(policy);
/// assert_eq!(train, "random_resized_crop:224;timm_rand_augment:7,0.5,num_ops=3,increasing=false".parse()?);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TimmRandAugment {
    /// `m`: 0 to 10, or to `magnitude_max`.
    pub magnitude: f64,
    /// `mstd`: standard deviation of the magnitude. Above 100, magnitudes are uniform from 0 to `magnitude`.
    pub magnitude_std: f64,
    /// `mmax`: the limit to which magnitudes are clamped.
    pub magnitude_max: f64,
    /// `inc`: whether a larger magnitude means a larger change for all steps. Without it, this does not hold for
    /// posterize, solarize and the enhancements.
    pub increasing: bool,
    /// `n`: number of steps.
    pub num_ops: u32,
    /// `p`: probability of each step.
    #[serde(default = "half")]
    pub p: f32,
    /// Interpolations of warps, of which one is drawn.
    pub interpolation: Vec<Sampling>,
    /// Value of pixels that warps leave empty, a part of white; timm's recipes use the mean.
    pub fill: Option<Value>,
}

impl Default for TimmRandAugment {
    fn default() -> Self {
        Self {
            magnitude: 9.0,
            magnitude_std: 0.5,
            magnitude_max: LEVELS,
            increasing: true,
            num_ops: 2,
            p: half(),
            interpolation: vec![Sampling::Bilinear, Sampling::Bicubic],
            fill: Some(Value::All(128.0 / 255.0)),
        }
    }
}

/// The magnitude at which steps have the range that the papers give.
const LEVELS: f64 = 10.0;
/// Above this deviation, magnitudes are uniform.
const UNIFORM: f64 = 100.0;

#[derive(Clone, Copy, Debug)]
enum Step {
    AutoContrast,
    Equalize,
    Invert,
    Rotate,
    Posterize,
    Solarize,
    SolarizeAdd,
    Color,
    Contrast,
    Brightness,
    Sharpness,
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
}

/// In timm's order.
const STEPS: [Step; 15] = [
    Step::AutoContrast,
    Step::Equalize,
    Step::Invert,
    Step::Rotate,
    Step::Posterize,
    Step::Solarize,
    Step::SolarizeAdd,
    Step::Color,
    Step::Contrast,
    Step::Brightness,
    Step::Sharpness,
    Step::ShearX,
    Step::ShearY,
    Step::TranslateX,
    Step::TranslateY,
];

impl TimmRandAugment {
    fn magnitude(&self, draws: &mut Draws) -> f64 {
        let magnitude = if self.magnitude_std > UNIFORM {
            draws.between(0.0, self.magnitude)
        } else if self.magnitude_std > 0.0 {
            draws.normal().mul_add(self.magnitude_std, self.magnitude)
        } else {
            self.magnitude
        };
        magnitude.clamp(0.0, self.magnitude_max)
    }

    fn step(&self, step: Step, part: f64, draws: &mut Draws, picture: &Picture) -> Option<PixelOp> {
        let Picture { height, width, channels } = *picture;
        let mut sign = |value: f64| if draws.chance(0.5) { -value } else { value };
        let enhanced = |sign: &mut dyn FnMut(f64) -> f64| {
            (if self.increasing { (1.0 + sign(part * 0.9)).max(0.1) } else { part * 1.8 + 0.1 }) as f32
        };
        let affine = |translate, shear, center| warp::affine(0.0, translate, 1.0, shear, center, height, width);
        let angle = |factor: f64| factor.atan().to_degrees();
        let corner = Some([0.0; 2]);
        let map = match step {
            Step::AutoContrast => return Some(PixelOp::Autocontrast),
            Step::Equalize => return Some(PixelOp::Equalize),
            Step::Invert => return Some(PixelOp::Invert),
            Step::Posterize => {
                let bits = (part * 4.0).min(4.0) as u8;
                return Some(PixelOp::Posterize(if self.increasing { 4 - bits } else { bits }));
            }
            Step::Solarize => {
                let level = (part * 256.0).trunc().min(256.0);
                let from = if self.increasing { 256.0 - level } else { level };
                // Between two bytes, so that rounding does not matter.
                return (from < 256.0).then_some(PixelOp::Solarize(((from - 0.5).max(0.0) / 255.0) as f32));
            }
            Step::SolarizeAdd => {
                let add = ((part * 110.0).trunc().min(128.0) / 255.0) as f32;
                return Some(PixelOp::SolarizeAdd { add, threshold: 0.5 });
            }
            Step::Color => {
                let factor = enhanced(&mut sign);
                return (channels > 1).then_some(PixelOp::Saturation(factor));
            }
            Step::Contrast => return Some(PixelOp::Contrast(enhanced(&mut sign))),
            Step::Brightness => return Some(PixelOp::Brightness(enhanced(&mut sign))),
            Step::Sharpness => return Some(PixelOp::Sharpness(enhanced(&mut sign))),
            Step::Rotate => warp::rotate(sign(part * 30.0), None, height, width),
            Step::ShearX => affine([0.0; 2], [angle(sign(part * 0.3)), 0.0], corner),
            Step::ShearY => affine([0.0; 2], [0.0, angle(sign(part * 0.3))], corner),
            Step::TranslateX => affine([sign(part * 0.45) * f64::from(width), 0.0], [0.0; 2], None),
            Step::TranslateY => affine([0.0, sign(part * 0.45) * f64::from(height)], [0.0; 2], None),
        };
        let sampling = match &self.interpolation[..] {
            [only] => *only,
            several => several[draws.below(several.len() as u64) as usize],
        };
        Some(PixelOp::Warp { map, sampling, fill: filled(self.fill.as_ref()) })
    }
}

impl Augment for TimmRandAugment {
    fn check(&self, name: &str, at: &PictureShape) -> Result<()> {
        colours(name, at)?;
        probability(name, self.p)?;
        if !(self.magnitude_max > 0.0 && self.magnitude_max.is_finite()) {
            let what = format!("{name} has magnitude_max {}", self.magnitude_max);
            return Err(Error::config(what).with_hint("use a number above 0; timm's is 10"));
        }
        if !(0.0..=self.magnitude_max).contains(&self.magnitude) {
            let what = format!("{name} has magnitude {}", self.magnitude);
            return Err(Error::config(what).with_hint(format!("use 0 to {}", self.magnitude_max)));
        }
        if self.magnitude_std.is_nan() || self.magnitude_std < 0.0 {
            let what = format!("{name} has magnitude_std {}", self.magnitude_std);
            return Err(Error::config(what).with_hint("use 0 or more; above 100, magnitudes are uniform"));
        }
        if self.num_ops > 64 {
            return Err(Error::config(format!("{name} has {} ops", self.num_ops)).with_hint("use up to 64"));
        }
        if self.interpolation.is_empty() {
            return Err(Error::config(format!("{name} has no interpolation")).with_hint("give one or several"));
        }
        check_fill(name, self.fill.as_ref(), at)
    }

    fn draw(&self, draws: &mut Draws, picture: &Picture, out: &mut Vec<PixelOp>) -> Result<()> {
        for _ in 0..self.num_ops {
            let step = STEPS[draws.below(STEPS.len() as u64) as usize];
            if draws.chance(self.p) {
                let part = self.magnitude(draws) / LEVELS;
                out.extend(self.step(step, part, draws, picture));
            }
        }
        Ok(())
    }

    fn moves(&self) -> Moves {
        Moves::Alike
    }
}
