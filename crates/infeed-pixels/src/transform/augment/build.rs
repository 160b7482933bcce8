//! A method for each augmentation, of its usual settings. The others are fields of the step: give it to
//! [`Transform::push`].

use super::{
    AugMix, AutoAugment, ColorJitter, Erasing, GaussianBlur, Grayscale, Noise, Policy, RandAugment,
    RandomAdjustSharpness, RandomApply, RandomAutocontrast, RandomChannelPermutation, RandomChoice, RandomEqualize,
    RandomErasing, RandomGrayscale, RandomInvert, RandomOrder, RandomPerspective, RandomPhotometricDistort,
    RandomPosterize, RandomRotation, RandomSolarize, Spread, ThreeAugment, TimmRandAugment, TrivialAugmentWide, Value,
};
use crate::transform::Transform;

impl Transform {
    /// Changes brightness, contrast, saturation and hue by chance: see [`ColorJitter`].
    ///
    /// ```
    /// use infeed::transform::Transform;
    /// let simclr = Transform::new().random_resized_crop(224).color_jitter(0.8, 0.8, 0.8, 0.2).random_grayscale(0.2);
    /// # let _ = simclr;
    /// ```
    pub fn color_jitter(
        self,
        brightness: impl Into<Spread>,
        contrast: impl Into<Spread>,
        saturation: impl Into<Spread>,
        hue: impl Into<Spread>,
    ) -> Self {
        let (brightness, contrast) = (brightness.into(), contrast.into());
        self.push(ColorJitter { brightness, contrast, saturation: saturation.into(), hue: hue.into() })
    }

    /// Makes pictures gray with probability `p`: see [`RandomGrayscale`].
    pub fn random_grayscale(self, p: f32) -> Self {
        self.push(RandomGrayscale { p })
    }

    /// Makes pictures gray, of 1 channel or of 3 equal ones: see [`Grayscale`].
    pub fn grayscale(self, num_output_channels: u32) -> Self {
        self.push(Grayscale { num_output_channels })
    }

    /// Blurs by a deviation of 0.1 to 2 pixels in a kernel of this odd size: see [`GaussianBlur`].
    pub fn gaussian_blur(self, kernel_size: u32) -> Self {
        self.push(GaussianBlur::new(kernel_size))
    }

    /// Inverts what is brighter than this part of white, with probability `p`: see [`RandomSolarize`].
    pub fn random_solarize(self, threshold: f32, p: f32) -> Self {
        self.push(RandomSolarize { threshold, p })
    }

    /// Keeps the first bits of bytes, with probability `p`: see [`RandomPosterize`].
    pub fn random_posterize(self, bits: u8, p: f32) -> Self {
        self.push(RandomPosterize { bits, p })
    }

    /// Makes histograms even with probability `p`: see [`RandomEqualize`].
    pub fn random_equalize(self, p: f32) -> Self {
        self.push(RandomEqualize { p })
    }

    /// Stretches channels from black to white with probability `p`: see [`RandomAutocontrast`].
    pub fn random_autocontrast(self, p: f32) -> Self {
        self.push(RandomAutocontrast { p })
    }

    /// Makes negatives with probability `p`: see [`RandomInvert`].
    pub fn random_invert(self, p: f32) -> Self {
        self.push(RandomInvert { p })
    }

    /// Blurs (below 1) or sharpens (above) with probability `p`: see [`RandomAdjustSharpness`].
    pub fn random_adjust_sharpness(self, sharpness_factor: f32, p: f32) -> Self {
        self.push(RandomAdjustSharpness { sharpness_factor, p })
    }

    /// Brings channels into a random order: see [`RandomChannelPermutation`].
    pub fn random_channel_permutation(self) -> Self {
        self.push(RandomChannelPermutation {})
    }

    /// SSD's changes of colour: see [`RandomPhotometricDistort`].
    pub fn random_photometric_distort(self) -> Self {
        self.push(RandomPhotometricDistort::default())
    }

    /// Turns pictures by up to so many degrees: see [`RandomRotation`]. [`RandomAffine`](super::RandomAffine) moves,
    /// scales and shears too.
    pub fn random_rotation(self, degrees: impl Into<Spread>) -> Self {
        self.push(RandomRotation::new(degrees))
    }

    /// Moves the corners inwards with probability `p`: see [`RandomPerspective`].
    pub fn random_perspective(self, distortion_scale: f32, p: f32) -> Self {
        self.push(RandomPerspective { distortion_scale, p, ..RandomPerspective::default() })
    }

    /// Two steps of magnitude 9 of 31, or whatever you say: see [`RandAugment`].
    pub fn rand_augment(self, num_ops: u32, magnitude: u32) -> Self {
        self.push(RandAugment { num_ops, magnitude, ..RandAugment::default() })
    }

    /// timm's `rand-m9-mstd0.5-inc1` for this magnitude: see [`TimmRandAugment`].
    pub fn timm_rand_augment(self, magnitude: f64) -> Self {
        self.push(TimmRandAugment { magnitude, ..TimmRandAugment::default() })
    }

    /// One step of any magnitude: see [`TrivialAugmentWide`].
    pub fn trivial_augment_wide(self) -> Self {
        self.push(TrivialAugmentWide::default())
    }

    /// Learned pairs of steps: see [`AutoAugment`].
    pub fn auto_augment(self, policy: Policy) -> Self {
        self.push(AutoAugment { policy, ..AutoAugment::default() })
    }

    /// Blends chains of steps: see [`AugMix`].
    pub fn aug_mix(self) -> Self {
        self.push(AugMix::default())
    }

    /// Gray, solarized or blurred: see [`ThreeAugment`].
    pub fn three_augment(self) -> Self {
        self.push(ThreeAugment {})
    }

    /// Erases a rectangle with probability `p`, by 0 in the units of this place: see [`RandomErasing`].
    pub fn random_erasing(self, p: f32) -> Self {
        self.push(RandomErasing { p, value: Erasing::Constant(Value::All(0.0)), ..RandomErasing::default() })
    }

    /// The same with normal noise for each value, as DeiT does it.
    pub fn random_erasing_noise(self, p: f32) -> Self {
        self.push(RandomErasing { p, value: Erasing::Noise(Noise::Random), ..RandomErasing::default() })
    }

    /// All steps of a list with probability `p`, or none: see [`RandomApply`].
    ///
    /// ```
    /// use infeed::transform::Transform;
    /// let jitter = Transform::new().color_jitter(0.4, 0.4, 0.2, 0.1);
    /// let dino = Transform::new().random_resized_crop(224).random_apply(&jitter, 0.8).random_grayscale(0.2);
    /// # let _ = dino;
    /// ```
    pub fn random_apply(self, of: &Self, p: f32) -> Self {
        self.push(RandomApply { transforms: of.ops().to_vec(), p })
    }

    /// One step of a list: see [`RandomChoice`].
    pub fn random_choice(self, of: &Self) -> Self {
        self.push(RandomChoice { transforms: of.ops().to_vec(), p: None })
    }

    /// All steps of a list in a random order: see [`RandomOrder`].
    pub fn random_order(self, of: &Self) -> Self {
        self.push(RandomOrder { transforms: of.ops().to_vec() })
    }
}
