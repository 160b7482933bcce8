//! Blur by a Gaussian kernel.

use infeed_core::{
    error::{Error, ErrorKind, Result},
    random::Draws,
    report::Stage,
};
use serde::{Deserialize, Serialize};

use super::step::{Augment, Picture, PictureShape, ordered, probability};
use crate::kernels::PixelOp;

/// Height and width of a kernel: one number for both, or two.
///
/// ```
/// use infeed::transform::{Transform, augment::{GaussianBlur, KernelSize}};
///
/// // Wider than high, like motion blur.
/// let blur = GaussianBlur { kernel_size: KernelSize::Both([3, 9]), ..GaussianBlur::new(9) };
/// let train = Transform::new().random_resized_crop(224).push(blur);
/// assert_eq!(train, "random_resized_crop:224;gaussian_blur:3/9".parse()?);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a kernel's size is a number or [height, width]")]
pub enum KernelSize {
    /// The same for height and width.
    Square(u32),
    /// Height, width.
    Both([u32; 2]),
}

impl KernelSize {
    const fn sides(self) -> [u32; 2] {
        match self {
            Self::Square(side) => [side; 2],
            Self::Both(sides) => sides,
        }
    }
}

/// Blurs by a Gaussian kernel with a random deviation; torchvision's `GaussianBlur` with a probability. Edges are
/// mirrored, so a picture's sides must be longer than half of the kernel's. Draws: whether it happens, then the
/// deviation in pixels.
///
/// ```
/// use infeed::transform::{Transform, augment::GaussianBlur};
///
/// // SimCLR's blur: a kernel of a tenth of the picture's side, with probability 0.5.
/// let blur = GaussianBlur { p: 0.5, ..GaussianBlur::new(23) };
/// let train = Transform::new().random_resized_crop(224).push(blur);
/// assert_eq!(train, "random_resized_crop:224;gaussian_blur:23,0.1/2,0.5".parse()?);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GaussianBlur {
    /// Odd numbers.
    pub kernel_size: KernelSize,
    /// Least and greatest deviation in pixels, above 0.
    #[serde(default = "sigma")]
    pub sigma: [f64; 2],
    /// Probability.
    #[serde(default = "one")]
    pub p: f32,
}

const fn sigma() -> [f64; 2] {
    [0.1, 2.0]
}

const fn one() -> f32 {
    1.0
}

impl GaussianBlur {
    /// A square kernel with torchvision's deviations and probability 1.
    #[must_use]
    pub const fn new(kernel_size: u32) -> Self {
        Self { kernel_size: KernelSize::Square(kernel_size), sigma: sigma(), p: one() }
    }

    /// The reason why it can't blur pictures of this size, if it can't.
    fn too_small(&self, [height, width]: [u32; 2]) -> Option<String> {
        let [down, across] = self.kernel_size.sides();
        (down / 2 >= height || across / 2 >= width)
            .then(|| format!("a kernel of {down}x{across} is too large for a picture of {height}x{width}"))
    }
}

impl Augment for GaussianBlur {
    fn check(&self, name: &str, at: &PictureShape) -> Result<()> {
        let [down, across] = self.kernel_size.sides();
        if [down, across].iter().any(|side| side % 2 == 0 || *side > 1023) {
            return Err(
                Error::config(format!("{name} has a kernel of {down}x{across}")).with_hint("use odd sizes, 1 to 1023")
            );
        }
        ordered(name, "sigma", self.sigma, f64::MIN_POSITIVE, f64::INFINITY)?;
        if let Some(why) = at.size.and_then(|size| self.too_small(size)) {
            return Err(Error::config(format!("{name}: {why}")).with_hint("use a smaller kernel_size"));
        }
        probability(name, self.p)
    }

    fn draw(&self, draws: &mut Draws, picture: &Picture, out: &mut Vec<PixelOp>) -> Result<()> {
        let blurs = draws.chance(self.p);
        let sigma = draws.between(self.sigma[0], self.sigma[1]) as f32;
        if let Some(why) = self.too_small([picture.height, picture.width]) {
            // Checked whether or not the blur was drawn: whether a sample is bad must not depend on the epoch.
            return Err(Error::new(ErrorKind::Unsupported, format!("gaussian_blur: {why}"))
                .with_hint("use a smaller kernel_size, or put a resize before it")
                .at_stage(Stage::Transform));
        }
        let kernel = self.kernel_size.sides();
        out.extend(blurs.then_some(PixelOp::Blur { kernel, sigma: [sigma; 2] }));
        Ok(())
    }
}
