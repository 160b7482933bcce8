//! Steps that consist of other steps.

use infeed_core::{
    error::{Error, Result},
    random::Draws,
};
use serde::{Deserialize, Serialize};

use super::step::{Augment, Moves, Picture, PictureShape, half, probability};
use crate::kernels::PixelOp;

/// The elements of a nested list: [`Op`](super::super::Op).
pub(in crate::transform) trait Nested {
    /// Name, as in JSON.
    fn name(&self) -> &str;
    /// The step as one that works on a picture.
    fn augment(&self) -> Option<&dyn Augment>;
}

/// The steps inside `name`, with their names.
fn inner<'a, S: Nested>(name: &str, ops: &'a [S]) -> Result<Vec<(&'a str, &'a dyn Augment)>> {
    if ops.is_empty() {
        return Err(Error::config(format!("{name} has no transforms")).with_hint("give it at least one"));
    }
    let step = |op: &'a S| match op.augment() {
        Some(augment) => Ok((op.name(), augment)),
        None => Err(Error::config(format!("{} is inside {name}", op.name())).with_hint(
            "use steps that change pixels and keep the size, such as color_jitter; put others into the list itself",
        )),
    };
    ops.iter().map(step).collect()
}

fn check_all<S: Nested>(name: &str, ops: &[S], at: &PictureShape) -> Result<()> {
    inner(name, ops)?.into_iter().try_for_each(|(inner, augment)| augment.check(&format!("{inner} in {name}"), at))
}

fn most<S: Nested>(ops: &[S]) -> Moves {
    ops.iter().filter_map(S::augment).map(Augment::moves).max().unwrap_or(Moves::Never)
}

fn draw_one<S: Nested>(op: &S, draws: &mut Draws, picture: &Picture, out: &mut Vec<PixelOp>) -> Result<()> {
    op.augment().map_or(Ok(()), |augment| augment.draw(draws, picture, out))
}

/// Applies all of its steps, or none; torchvision's `RandomApply`. Draws: whether it happens, then the draws of the
/// steps.
///
/// ```
/// use infeed::transform::{Transform, augment::RandomApply};
///
/// let jitter = Transform::new().color_jitter(0.4, 0.4, 0.2, 0.1).gaussian_blur(9);
/// let sometimes = RandomApply { transforms: jitter.ops().to_vec(), p: 0.8 };
/// let train = Transform::new().random_resized_crop(224).push(sometimes);
/// assert_eq!(train, Transform::new().random_resized_crop(224).random_apply(&jitter, 0.8));
/// let line = "random_resized_crop:224;random_apply:(color_jitter:0.4,0.4,0.2,0.1;gaussian_blur:9),0.8";
/// assert_eq!(train, line.parse()?);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomApply<S> {
    /// Steps that change pixels and keep the size.
    pub transforms: Vec<S>,
    /// Probability.
    #[serde(default = "half")]
    pub p: f32,
}

impl<S: Nested> Augment for RandomApply<S> {
    fn check(&self, name: &str, at: &PictureShape) -> Result<()> {
        check_all(name, &self.transforms, at)?;
        probability(name, self.p)
    }

    fn draw(&self, draws: &mut Draws, picture: &Picture, out: &mut Vec<PixelOp>) -> Result<()> {
        if draws.chance(self.p) {
            self.transforms.iter().try_for_each(|op| draw_one(op, draws, picture, out))?;
        }
        Ok(())
    }

    fn moves(&self) -> Moves {
        most(&self.transforms)
    }
}

/// Applies one of its steps; torchvision's `RandomChoice`. Draws: which step, then the draws of that step.
///
/// ```
/// use infeed::transform::{Transform, augment::RandomChoice};
///
/// // Solarizes three times as often as it blurs.
/// let steps = Transform::new().random_solarize(0.5, 1.0).gaussian_blur(9);
/// let choice = RandomChoice { transforms: steps.ops().to_vec(), p: Some(vec![3.0, 1.0]) };
/// let train = Transform::new().random_resized_crop(224).push(choice);
/// let line = "random_resized_crop:224;random_choice:(random_solarize:0.5,1;gaussian_blur:9),[3, 1]";
/// assert_eq!(train, line.parse()?);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomChoice<S> {
    /// Steps that change pixels and keep the size.
    pub transforms: Vec<S>,
    /// A weight for each step; `None`: equal weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p: Option<Vec<f64>>,
}

impl<S: Nested> Augment for RandomChoice<S> {
    fn check(&self, name: &str, at: &PictureShape) -> Result<()> {
        check_all(name, &self.transforms, at)?;
        let Some(p) = &self.p else { return Ok(()) };
        let (n, steps) = (p.len(), self.transforms.len());
        if n != steps {
            return Err(
                Error::config(format!("{name} has {n} weights for {steps} transforms")).with_hint("give one for each")
            );
        }
        let sum: f64 = p.iter().sum();
        if !(p.iter().all(|weight| *weight >= 0.0) && sum > 0.0 && sum.is_finite()) {
            return Err(Error::config(format!("{name} has weights {p:?}"))
                .with_hint("use numbers of 0 or more, at least one above 0"));
        }
        Ok(())
    }

    fn draw(&self, draws: &mut Draws, picture: &Picture, out: &mut Vec<PixelOp>) -> Result<()> {
        let n = match &self.p {
            None => draws.below(self.transforms.len() as u64) as usize,
            Some(p) => {
                let at = draws.unit_f64() * p.iter().sum::<f64>();
                let mut sum = 0.0;
                let found = p.iter().position(|weight| {
                    sum += weight;
                    at < sum
                });
                // Rounding may leave no step: then take the last one with a weight above 0.
                found.or_else(|| p.iter().rposition(|weight| *weight > 0.0)).unwrap_or(0)
            }
        };
        draw_one(&self.transforms[n], draws, picture, out)
    }

    fn moves(&self) -> Moves {
        most(&self.transforms)
    }
}

/// Applies all of its steps in random order; torchvision's `RandomOrder`. Draws: the order, then the draws of the steps
/// in this order.
///
/// ```
/// use infeed::transform::{Transform, augment::RandomOrder};
///
/// let steps = Transform::new().random_posterize(4, 0.5).random_equalize(0.5);
/// let shuffled = RandomOrder { transforms: steps.ops().to_vec() };
/// let train = Transform::new().random_resized_crop(224).push(shuffled);
/// let line = "random_resized_crop:224;random_order:(random_posterize:4;random_equalize)";
/// assert_eq!(train, line.parse()?);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomOrder<S> {
    /// Steps that change pixels and keep the size.
    pub transforms: Vec<S>,
}

impl<S: Nested> Augment for RandomOrder<S> {
    fn check(&self, name: &str, at: &PictureShape) -> Result<()> {
        check_all(name, &self.transforms, at)
    }

    fn draw(&self, draws: &mut Draws, picture: &Picture, out: &mut Vec<PixelOp>) -> Result<()> {
        let mut order: Vec<&S> = self.transforms.iter().collect();
        for last in (1..order.len()).rev() {
            order.swap(last, draws.below(last as u64 + 1) as usize);
        }
        order.into_iter().try_for_each(|op| draw_one(op, draws, picture, out))
    }

    fn moves(&self) -> Moves {
        most(&self.transforms)
    }
}

/// Grayscale, solarization or blur, one of the three: DeiT III's `3-Augment` ([Touvron et al.
/// 2022](https://arxiv.org/abs/2204.07118)) without its colour jitter, which is a separate step.
///
/// Solarizes values of 128 or more; blurs by a deviation of 0.1 to 2 pixels with a kernel of 13. Draws: which one, then
/// the deviation.
///
/// ```
/// use infeed::transform::{Transform, augment::ThreeAugment};
///
/// // DeiT III: 3-Augment, then its colour jitter.
/// let deit = Transform::new().random_resized_crop(224).horizontal_flip(0.5).push(ThreeAugment {});
/// let deit = deit.color_jitter(0.3, 0.3, 0.3, 0.0);
/// assert_eq!(deit, "random_resized_crop:224;horizontal_flip;three_augment;color_jitter:0.3,0.3,0.3".parse()?);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ThreeAugment {}

/// Covers three times the largest deviation on both sides.
const KERNEL: u32 = 13;

impl Augment for ThreeAugment {
    fn check(&self, name: &str, at: &PictureShape) -> Result<()> {
        super::step::colours(name, at)
    }

    fn draw(&self, draws: &mut Draws, picture: &Picture, out: &mut Vec<PixelOp>) -> Result<()> {
        out.push(match draws.below(3) {
            0 => PixelOp::Grayscale,
            1 => PixelOp::Solarize(0.5),
            _ => {
                let sigma = draws.between(0.1, 2.0) as f32;
                // A mirrored edge can't be longer than the picture.
                let side = |side: u32| KERNEL.min(2 * side.saturating_sub(1) + 1);
                PixelOp::Blur { kernel: [side(picture.height), side(picture.width)], sigma: [sigma; 2] }
            }
        });
        Ok(())
    }
}
