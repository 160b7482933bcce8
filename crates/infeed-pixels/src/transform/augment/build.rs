//! A method for each augmentation with its usual settings. For other settings, make the step and give it to
//! [`Transform::push`].

use super::{
    AugMix, AutoAugment, ColorJitter, Erasing, GaussianBlur, Grayscale, Noise, Policy, RandAugment,
    RandomAdjustSharpness, RandomApply, RandomAutocontrast, RandomChannelPermutation, RandomChoice, RandomEqualize,
    RandomErasing, RandomGrayscale, RandomInvert, RandomOrder, RandomPerspective, RandomPhotometricDistort,
    RandomPosterize, RandomRotation, RandomSolarize, Spread, ThreeAugment, TimmRandAugment, TrivialAugmentWide, Value,
};
use crate::transform::Transform;

impl Transform {
    /// Changes brightness, contrast, saturation and hue at random: see [`ColorJitter`].
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

    /// Converts pictures to gray with probability `p`: see [`RandomGrayscale`].
    pub fn random_grayscale(self, p: f32) -> Self {
        self.push(RandomGrayscale { p })
    }

    /// Converts pictures to gray, with 1 channel or 3 equal ones: see [`Grayscale`].
    pub fn grayscale(self, num_output_channels: u32) -> Self {
        self.push(Grayscale { num_output_channels })
    }

    /// Blurs by a deviation of 0.1 to 2 pixels with a kernel of this odd size: see [`GaussianBlur`].
    pub fn gaussian_blur(self, kernel_size: u32) -> Self {
        self.push(GaussianBlur::new(kernel_size))
    }

    /// Inverts values of `threshold` or more (a part of white) with probability `p`: see [`RandomSolarize`].
    pub fn random_solarize(self, threshold: f32, p: f32) -> Self {
        self.push(RandomSolarize { threshold, p })
    }

    /// Keeps the upper bits of each byte with probability `p`: see [`RandomPosterize`].
    pub fn random_posterize(self, bits: u8, p: f32) -> Self {
        self.push(RandomPosterize { bits, p })
    }

    /// Equalizes histograms with probability `p`: see [`RandomEqualize`].
    pub fn random_equalize(self, p: f32) -> Self {
        self.push(RandomEqualize { p })
    }

    /// Stretches each channel from black to white with probability `p`: see [`RandomAutocontrast`].
    pub fn random_autocontrast(self, p: f32) -> Self {
        self.push(RandomAutocontrast { p })
    }

    /// Inverts values with probability `p`: see [`RandomInvert`].
    pub fn random_invert(self, p: f32) -> Self {
        self.push(RandomInvert { p })
    }

    /// Blurs (factor below 1) or sharpens (above 1) with probability `p`: see [`RandomAdjustSharpness`].
    pub fn random_adjust_sharpness(self, sharpness_factor: f32, p: f32) -> Self {
        self.push(RandomAdjustSharpness { sharpness_factor, p })
    }

    /// Permutes the channels at random: see [`RandomChannelPermutation`].
    pub fn random_channel_permutation(self) -> Self {
        self.push(RandomChannelPermutation {})
    }

    /// SSD's colour distortions: see [`RandomPhotometricDistort`].
    pub fn random_photometric_distort(self) -> Self {
        self.push(RandomPhotometricDistort::default())
    }

    /// Rotates pictures by up to `degrees`: see [`RandomRotation`]. [`RandomAffine`](super::RandomAffine) also moves,
    /// scales and shears.
    pub fn random_rotation(self, degrees: impl Into<Spread>) -> Self {
        self.push(RandomRotation::new(degrees))
    }

    /// Moves the corners inwards with probability `p`: see [`RandomPerspective`].
    pub fn random_perspective(self, distortion_scale: f32, p: f32) -> Self {
        self.push(RandomPerspective { distortion_scale, p, ..RandomPerspective::default() })
    }

    /// Applies `num_ops` random steps of one magnitude (torchvision's default: 2 steps of magnitude 9 of 31): see
    /// [`RandAugment`].
    pub fn rand_augment(self, num_ops: u32, magnitude: u32) -> Self {
        self.push(RandAugment { num_ops, magnitude, ..RandAugment::default() })
    }

    /// timm's `rand-m9-mstd0.5-inc1` with this magnitude: see [`TimmRandAugment`].
    pub fn timm_rand_augment(self, magnitude: f64) -> Self {
        self.push(TimmRandAugment { magnitude, ..TimmRandAugment::default() })
    }

    /// One random step of random magnitude: see [`TrivialAugmentWide`].
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

    /// Grayscale, solarization or blur: see [`ThreeAugment`].
    pub fn three_augment(self) -> Self {
        self.push(ThreeAugment {})
    }

    /// Overwrites a rectangle with 0 (in the units at this point of the list) with probability `p`: see
    /// [`RandomErasing`].
    pub fn random_erasing(self, p: f32) -> Self {
        self.push(RandomErasing { p, value: Erasing::Constant(Value::All(0.0)), ..RandomErasing::default() })
    }

    /// Like [`random_erasing`](Self::random_erasing), but with normal noise for each value, as in DeiT.
    pub fn random_erasing_noise(self, p: f32) -> Self {
        self.push(RandomErasing { p, value: Erasing::Noise(Noise::Random), ..RandomErasing::default() })
    }

    /// All steps of a list with probability `p`, otherwise none: see [`RandomApply`].
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
