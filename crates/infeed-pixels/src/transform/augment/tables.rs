//! The steps that policies choose from, with their magnitudes, and AutoAugment's pairs. Numbers are those of
//! torchvision 0.29.

use super::step::{Picture, Value, filled};
use crate::{
    kernels::{PixelOp, Sampling},
    transform::warp,
};

/// A step that a policy may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PolicyStep {
    Identity,
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
    Rotate,
    Brightness,
    Color,
    Contrast,
    Sharpness,
    Posterize,
    Solarize,
    AutoContrast,
    Equalize,
    Invert,
}

use PolicyStep::{
    AutoContrast, Brightness, Color, Contrast, Equalize, Identity, Invert, Posterize, Rotate, Sharpness, ShearX,
    ShearY, Solarize, TranslateX, TranslateY,
};

/// The steps of RandAugment and TrivialAugment, in torchvision's order.
pub(super) const ALL: [PolicyStep; 14] = [
    Identity,
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
    Rotate,
    Brightness,
    Color,
    Contrast,
    Sharpness,
    Posterize,
    Solarize,
    AutoContrast,
    Equalize,
];

/// The steps of AugMix; the first nine are used if `all_ops` is false.
pub(super) const AUG_MIX: [PolicyStep; 13] = [
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
    Rotate,
    Posterize,
    Solarize,
    AutoContrast,
    Equalize,
    Brightness,
    Color,
    Contrast,
    Sharpness,
];
pub(super) const AUG_MIX_PARTIAL: usize = 9;

/// The effect of each step at the largest magnitude.
#[derive(Clone, Copy, Debug)]
pub(super) struct Space {
    shear: f32,
    translate: Translate,
    degrees: f32,
    enhance: f32,
    /// Bits at the smallest magnitude, and how many fewer at the largest.
    bits: [f32; 2],
}

/// A distance in pixels, or in parts of the side.
#[derive(Clone, Copy, Debug)]
enum Translate {
    Pixels(f32),
    Part(f64),
}

pub(super) const RAND_AUGMENT: Space =
    Space { shear: 0.3, translate: Translate::Part(150.0 / 331.0), degrees: 30.0, enhance: 0.9, bits: [8.0, 4.0] };
pub(super) const TRIVIAL_AUGMENT: Space =
    Space { shear: 0.99, translate: Translate::Pixels(32.0), degrees: 135.0, enhance: 0.99, bits: [8.0, 6.0] };
pub(super) const AUG_MIX_SPACE: Space =
    Space { shear: 0.3, translate: Translate::Part(1.0 / 3.0), degrees: 30.0, enhance: 0.9, bits: [4.0, 4.0] };

/// `torch.linspace(start, end, bins)[n]` in f32 with fused multiply-adds: the middle of 0 to 32 in 31 bins is
/// 15.999999, which gives 15 whole pixels.
fn linspace(start: f32, end: f32, bins: u32, n: u32) -> f32 {
    if bins < 2 {
        return start;
    }
    let step = (end - start) / (bins - 1) as f32;
    if n < bins / 2 { step.mul_add(n as f32, start) } else { (-step).mul_add((bins - n - 1) as f32, end) }
}

impl PolicyStep {
    /// Whether a sign is drawn.
    pub(super) const fn is_signed(self) -> bool {
        !matches!(self, Identity | Posterize | Solarize | AutoContrast | Equalize | Invert)
    }

    /// Its magnitude at bin `n` of `bins`; `None` for steps without a magnitude.
    pub(super) fn magnitude(self, space: &Space, bins: u32, n: u32, picture: &Picture) -> Option<f32> {
        let translate = |side: u32| match space.translate {
            Translate::Pixels(pixels) => pixels,
            Translate::Part(part) => (part * f64::from(side)) as f32,
        };
        let end = match self {
            ShearX | ShearY => space.shear,
            TranslateX => translate(picture.width),
            TranslateY => translate(picture.height),
            Rotate => space.degrees,
            Brightness | Color | Contrast | Sharpness => space.enhance,
            Posterize => {
                let every = (bins.saturating_sub(1)) as f32 / space.bits[1];
                let fewer = if every > 0.0 { n as f32 / every } else { 0.0 };
                return Some((space.bits[0] - fewer).round_ties_even());
            }
            Solarize => return Some(linspace(1.0, 0.0, bins, n)),
            Identity | AutoContrast | Equalize | Invert => return None,
        };
        Some(linspace(0.0, end, bins, n))
    }

    /// The step at this magnitude; `None` if it changes nothing.
    pub(super) fn step(self, magnitude: f32, picture: &Picture, how: &How) -> Option<PixelOp> {
        if self.is_signed() && magnitude == 0.0 {
            return None;
        }
        let Picture { height, width, channels } = *picture;
        let affine = |translate: [f64; 2], shear: [f64; 2], center: Option<[f64; 2]>| {
            warp::affine(0.0, translate, 1.0, shear, center, height, width)
        };
        let angle = || f64::from(magnitude).atan().to_degrees();
        let moved = |map| PixelOp::Warp { map, sampling: how.sampling, fill: how.fill };
        // Truncated, as by Python's `int`.
        let whole = f64::from(magnitude.trunc());
        Some(match self {
            Identity => return None,
            ShearX => moved(affine([0.0; 2], [angle(), 0.0], Some([0.0; 2]))),
            ShearY => moved(affine([0.0; 2], [0.0, angle()], Some([0.0; 2]))),
            TranslateX | TranslateY if whole == 0.0 => return None,
            TranslateX => moved(affine([whole, 0.0], [0.0; 2], None)),
            TranslateY => moved(affine([0.0, whole], [0.0; 2], None)),
            Rotate => moved(warp::rotate(f64::from(magnitude), None, height, width)),
            Brightness => PixelOp::Brightness(1.0 + magnitude),
            Color if channels == 1 => return None,
            Color => PixelOp::Saturation(1.0 + magnitude),
            Contrast => PixelOp::Contrast(1.0 + magnitude),
            Sharpness => PixelOp::Sharpness(1.0 + magnitude),
            Posterize => PixelOp::Posterize(magnitude as u8),
            Solarize => PixelOp::Solarize(magnitude),
            AutoContrast => PixelOp::Autocontrast,
            Equalize => PixelOp::Equalize,
            Invert => PixelOp::Invert,
        })
    }
}

/// Settings of steps that move pixels.
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
    pub(super) sampling: Sampling,
    pub(super) fill: Option<[f32; 4]>,
}

impl How {
    pub(super) fn new(sampling: Sampling, fill: Option<&Value>) -> Self {
        Self { sampling, fill: filled(fill) }
    }
}

/// A step of a pair, its probability, and the bin of its magnitude, of ten; some steps ignore the bin.
pub(super) type Chosen = (PolicyStep, f32, u32);

/// Learned on ImageNet.
pub(super) const IMAGENET: [[Chosen; 2]; 25] = [
    [(Posterize, 0.4, 8), (Rotate, 0.6, 9)],
    [(Solarize, 0.6, 5), (AutoContrast, 0.6, 0)],
    [(Equalize, 0.8, 0), (Equalize, 0.6, 0)],
    [(Posterize, 0.6, 7), (Posterize, 0.6, 6)],
    [(Equalize, 0.4, 0), (Solarize, 0.2, 4)],
    [(Equalize, 0.4, 0), (Rotate, 0.8, 8)],
    [(Solarize, 0.6, 3), (Equalize, 0.6, 0)],
    [(Posterize, 0.8, 5), (Equalize, 1.0, 0)],
    [(Rotate, 0.2, 3), (Solarize, 0.6, 8)],
    [(Equalize, 0.6, 0), (Posterize, 0.4, 6)],
    [(Rotate, 0.8, 8), (Color, 0.4, 0)],
    [(Rotate, 0.4, 9), (Equalize, 0.6, 0)],
    [(Equalize, 0.0, 0), (Equalize, 0.8, 0)],
    [(Invert, 0.6, 0), (Equalize, 1.0, 0)],
    [(Color, 0.6, 4), (Contrast, 1.0, 8)],
    [(Rotate, 0.8, 8), (Color, 1.0, 2)],
    [(Color, 0.8, 8), (Solarize, 0.8, 7)],
    [(Sharpness, 0.4, 7), (Invert, 0.6, 0)],
    [(ShearX, 0.6, 5), (Equalize, 1.0, 0)],
    [(Color, 0.4, 0), (Equalize, 0.6, 0)],
    [(Equalize, 0.4, 0), (Solarize, 0.2, 4)],
    [(Solarize, 0.6, 5), (AutoContrast, 0.6, 0)],
    [(Invert, 0.6, 0), (Equalize, 1.0, 0)],
    [(Color, 0.6, 4), (Contrast, 1.0, 8)],
    [(Equalize, 0.8, 0), (Equalize, 0.6, 0)],
];

/// Learned on CIFAR-10.
pub(super) const CIFAR10: [[Chosen; 2]; 25] = [
    [(Invert, 0.1, 0), (Contrast, 0.2, 6)],
    [(Rotate, 0.7, 2), (TranslateX, 0.3, 9)],
    [(Sharpness, 0.8, 1), (Sharpness, 0.9, 3)],
    [(ShearY, 0.5, 8), (TranslateY, 0.7, 9)],
    [(AutoContrast, 0.5, 0), (Equalize, 0.9, 0)],
    [(ShearY, 0.2, 7), (Posterize, 0.3, 7)],
    [(Color, 0.4, 3), (Brightness, 0.6, 7)],
    [(Sharpness, 0.3, 9), (Brightness, 0.7, 9)],
    [(Equalize, 0.6, 0), (Equalize, 0.5, 0)],
    [(Contrast, 0.6, 7), (Sharpness, 0.6, 5)],
    [(Color, 0.7, 7), (TranslateX, 0.5, 8)],
    [(Equalize, 0.3, 0), (AutoContrast, 0.4, 0)],
    [(TranslateY, 0.4, 3), (Sharpness, 0.2, 6)],
    [(Brightness, 0.9, 6), (Color, 0.2, 8)],
    [(Solarize, 0.5, 2), (Invert, 0.0, 0)],
    [(Equalize, 0.2, 0), (AutoContrast, 0.6, 0)],
    [(Equalize, 0.2, 0), (Equalize, 0.6, 0)],
    [(Color, 0.9, 9), (Equalize, 0.6, 0)],
    [(AutoContrast, 0.8, 0), (Solarize, 0.2, 8)],
    [(Brightness, 0.1, 3), (Color, 0.7, 0)],
    [(Solarize, 0.4, 5), (AutoContrast, 0.9, 0)],
    [(TranslateY, 0.9, 9), (TranslateY, 0.7, 9)],
    [(AutoContrast, 0.9, 0), (Solarize, 0.8, 3)],
    [(Equalize, 0.8, 0), (Invert, 0.1, 0)],
    [(TranslateY, 0.7, 9), (AutoContrast, 0.9, 0)],
];

/// Learned on SVHN.
pub(super) const SVHN: [[Chosen; 2]; 25] = [
    [(ShearX, 0.9, 4), (Invert, 0.2, 0)],
    [(ShearY, 0.9, 8), (Invert, 0.7, 0)],
    [(Equalize, 0.6, 0), (Solarize, 0.6, 6)],
    [(Invert, 0.9, 0), (Equalize, 0.6, 0)],
    [(Equalize, 0.6, 0), (Rotate, 0.9, 3)],
    [(ShearX, 0.9, 4), (AutoContrast, 0.8, 0)],
    [(ShearY, 0.9, 8), (Invert, 0.4, 0)],
    [(ShearY, 0.9, 5), (Solarize, 0.2, 6)],
    [(Invert, 0.9, 0), (AutoContrast, 0.8, 0)],
    [(Equalize, 0.6, 0), (Rotate, 0.9, 3)],
    [(ShearX, 0.9, 4), (Solarize, 0.3, 3)],
    [(ShearY, 0.8, 8), (Invert, 0.7, 0)],
    [(Equalize, 0.9, 0), (TranslateY, 0.6, 6)],
    [(Invert, 0.9, 0), (Equalize, 0.6, 0)],
    [(Contrast, 0.3, 3), (Rotate, 0.8, 4)],
    [(Invert, 0.8, 0), (TranslateY, 0.0, 2)],
    [(ShearY, 0.7, 6), (Solarize, 0.4, 8)],
    [(Invert, 0.6, 0), (Rotate, 0.8, 4)],
    [(ShearY, 0.3, 7), (TranslateX, 0.9, 3)],
    [(ShearX, 0.1, 6), (Invert, 0.6, 0)],
    [(Solarize, 0.7, 2), (TranslateY, 0.6, 7)],
    [(ShearY, 0.8, 4), (Invert, 0.8, 0)],
    [(ShearX, 0.7, 9), (TranslateY, 0.8, 3)],
    [(ShearY, 0.8, 5), (AutoContrast, 0.7, 0)],
    [(ShearX, 0.7, 2), (Invert, 0.1, 0)],
];
#[cfg(test)]
mod tests {
    use serde_json::Value as Json;

    use super::*;

    /// Made with torchvision by `integration/golden/policies.py`.
    fn golden() -> Json {
        serde_json::from_str(include_str!("../../../../../integration/golden/policies.json")).unwrap()
    }

    fn kind(name: &str) -> PolicyStep {
        *[&ALL[..], &[Invert]].concat().iter().find(|kind| format!("{kind:?}") == name).unwrap()
    }

    #[test]
    fn magnitudes_are_torchvisions() {
        let golden = golden();
        let spaces = [
            ("rand_augment", RAND_AUGMENT, 14),
            ("trivial_augment_wide", TRIVIAL_AUGMENT, 14),
            ("auto_augment", RAND_AUGMENT, 14),
            ("aug_mix", AUG_MIX_SPACE, 13),
        ];
        for (name, space, count) in spaces {
            let bins = golden[name]["bins"].as_u64().unwrap() as u32;
            let steps = golden[name]["steps"].as_object().unwrap();
            assert_eq!(steps.len(), count, "{name}");
            for (step, of) in steps {
                let step = kind(step);
                assert_eq!(of["signed"].as_bool().unwrap(), step.is_signed(), "{name} {step:?}");
                for case in of["of"].as_array().unwrap() {
                    let side = |n: usize| case[n].as_u64().unwrap() as u32;
                    let picture = Picture { height: side(0), width: side(1), channels: 3 };
                    let ours: Option<Vec<f32>> = (0..bins).map(|n| step.magnitude(&space, bins, n, &picture)).collect();
                    let theirs: Option<Vec<f32>> = case[2]
                        .as_array()
                        .map(|values| values.iter().map(|value| value.as_f64().unwrap() as f32).collect());
                    match (ours, theirs) {
                        (None, None) => {}
                        (Some(ours), Some(theirs)) => {
                            for (ours, theirs) in ours.iter().zip(&theirs) {
                                let close = (ours - theirs).abs() <= 1e-6 * theirs.abs();
                                // Steps in whole pixels or bits must be equal.
                                let whole = ours.trunc() == theirs.trunc()
                                    || !matches!(step, TranslateX | TranslateY | Posterize);
                                assert!(close && whole, "{name} {step:?}: {ours} and {theirs}");
                            }
                            assert_eq!(ours.len(), theirs.len());
                        }
                        both => panic!("{name} {step:?}: {both:?}"),
                    }
                }
            }
        }
    }

    #[test]
    fn pairs_are_torchvisions() {
        let golden = golden();
        for (name, pairs) in [("imagenet", &IMAGENET), ("cifar10", &CIFAR10), ("svhn", &SVHN)] {
            let theirs = golden["pairs"][name].as_array().unwrap();
            assert_eq!(theirs.len(), pairs.len());
            for (ours, theirs) in pairs.iter().flatten().zip(theirs.iter().flat_map(|pair| pair.as_array().unwrap())) {
                let (step, p, bin) = *ours;
                assert_eq!(format!("{step:?}"), theirs[0].as_str().unwrap());
                assert_eq!(p, theirs[1].as_f64().unwrap() as f32);
                let has_magnitude = theirs[2].as_i64().unwrap() >= 0;
                assert!(!has_magnitude || theirs[2].as_u64() == Some(u64::from(bin)), "{name} {ours:?}");
            }
        }
    }
}
