//! Transforms with a name.

use infeed_core::error::{Error, Result};

use super::{
    augment::{Erasing, GaussianBlur, Noise, RandomErasing, TimmRandAugment, TrivialAugmentWide, Value},
    chain::Transform,
    interpolation::Interpolation,
    op::{self, Op},
};
use crate::kernels::Sampling;

/// Mean of ImageNet's pixels, scaled to 0..1, as torchvision's models expect it.
pub const IMAGENET_MEAN: [f32; 3] = [0.485, 0.456, 0.406];
/// Standard deviation of ImageNet's pixels, scaled to 0..1.
pub const IMAGENET_STD: [f32; 3] = [0.229, 0.224, 0.225];
/// Mean of CIFAR-10's training pixels, scaled to 0..1.
pub const CIFAR10_MEAN: [f32; 3] = [0.4914, 0.4822, 0.4465];
/// Standard deviation of CIFAR-10's training pixels, scaled to 0..1.
pub const CIFAR10_STD: [f32; 3] = [0.247, 0.2435, 0.2616];

/// Names for [`Transform::preset`]:
///
/// | name | steps |
/// |---|---|
/// | `imagenet-train` | random resized crop to 224, flip, normalise |
/// | `imagenet-val` | shorter side 256, centre crop 224, normalise |
/// | `cifar-train` | random crop 32 with padding 4, flip, normalise |
/// | `cifar-val` | normalise |
/// | `caltech` | resize to 256×256, random crop 224, normalise |
/// | `cells` | resize to 220×224, centre crop 220, to 0..1 |
/// | `torchvision-v2-train` | of torchvision's "V2" weights: random resized crop to 176, flip, TrivialAugmentWide, normalise, erasing 0.1 |
/// | `torchvision-v2-val` | shorter side 232, centre crop 224, normalise |
/// | `deit-train` | of [DeiT](https://arxiv.org/abs/2012.12877): bicubic random resized crop to 224, flip, timm's `rand-m9-mstd0.5-inc1`, normalise, erasing 0.25 by noise |
/// | `timm-a1` | of [ResNet strikes back](https://arxiv.org/abs/2110.00476): random resized crop to 224, bilinear or bicubic, flip, timm's `rand-m7-mstd0.5-inc1`, normalise |
/// | `simclr` | of [SimCLR](https://arxiv.org/abs/2002.05709): random resized crop to 224, flip, colour jitter 0.8, gray 0.2, blur 0.5, to 0..1 |
/// | `dino-global-1`, `dino-global-2`, `dino-local` | of [DINO](https://arxiv.org/abs/2104.14294)'s views: bicubic crops of 224, 224, 96, flip, colour jitter, gray, blur 1, 0.1, 0.5, and solarize 0.2 in the second; normalise |
/// | `none` | nothing |
pub const PRESETS: [&str; 15] = [
    "imagenet-train",
    "imagenet-val",
    "cifar-train",
    "cifar-val",
    "caltech",
    "cells",
    "torchvision-v2-train",
    "torchvision-v2-val",
    "deit-train",
    "timm-a1",
    "simclr",
    "dino-global-1",
    "dino-global-2",
    "dino-local",
    "none",
];

impl Transform {
    /// One of [`PRESETS`] by name.
    ///
    /// # Errors
    /// `Config` for an unknown name.
    pub fn preset(name: &str) -> Result<Self> {
        steps(name).ok_or_else(|| {
            Error::config(format!("there is no transform {name:?}"))
                .with_hint(format!("use one of {}", PRESETS.join(", ")))
        })
    }
}

fn steps(name: &str) -> Option<Transform> {
    let t = Transform::new();
    Some(match name {
        "imagenet-train" => t.random_resized_crop(224).horizontal_flip(0.5).normalize(IMAGENET_MEAN, IMAGENET_STD),
        "imagenet-val" => t.resize_shorter(256).center_crop(224).normalize(IMAGENET_MEAN, IMAGENET_STD),
        "cifar-train" => t.random_crop(32, 4).horizontal_flip(0.5).normalize(CIFAR10_MEAN, CIFAR10_STD),
        "cifar-val" => t.normalize(CIFAR10_MEAN, CIFAR10_STD),
        "caltech" => t.resize_exact(256, 256).random_crop(224, 0).normalize(IMAGENET_MEAN, IMAGENET_STD),
        "cells" => t.resize_exact(220, 224).center_crop(220).to_float(),
        "torchvision-v2-train" => {
            let policy = TrivialAugmentWide { interpolation: Sampling::Bilinear, ..TrivialAugmentWide::default() };
            normalized(t.random_resized_crop(176).horizontal_flip(0.5).push(policy)).random_erasing(0.1)
        }
        "torchvision-v2-val" => normalized(t.resize_shorter(232).center_crop(224)),
        "deit-train" => {
            let policy = timm(9.0, vec![Sampling::Bicubic]);
            let erasing = RandomErasing {
                p: 0.25,
                scale: [0.02, 1.0 / 3.0],
                ratio: [0.3, 1.0 / 0.3],
                value: Erasing::Noise(Noise::Random),
                count: 1,
            };
            let crop = t.random_resized_crop(224).interpolation(Interpolation::Bicubic);
            normalized(crop.horizontal_flip(0.5).push(policy)).push(erasing)
        }
        "timm-a1" => {
            let policy = timm(7.0, vec![Sampling::Bilinear, Sampling::Bicubic]);
            let crop = t.random_resized_crop(224);
            let crop = crop.interpolation_among([Interpolation::Bilinear, Interpolation::Bicubic]);
            normalized(crop.horizontal_flip(0.5).push(policy))
        }
        "simclr" => {
            let jitter = Transform::new().color_jitter(0.8, 0.8, 0.8, 0.2);
            let t = t.random_resized_crop(224).horizontal_flip(0.5).random_apply(&jitter, 0.8).random_grayscale(0.2);
            t.push(blur(23, 0.5)).to_float()
        }
        "dino-global-1" => normalized(dino(224, (0.4, 1.0)).push(blur(23, 1.0))),
        "dino-global-2" => normalized(dino(224, (0.4, 1.0)).push(blur(23, 0.1)).random_solarize(0.5, 0.2)),
        "dino-local" => normalized(dino(96, (0.05, 0.4)).push(blur(9, 0.5))),
        "none" => t,
        _ => return None,
    })
}

fn normalized(t: Transform) -> Transform {
    t.normalize(IMAGENET_MEAN, IMAGENET_STD)
}

/// Pixels that a warp leaves empty get ImageNet's mean, rounded to whole levels.
fn timm(magnitude: f64, interpolation: Vec<Sampling>) -> TimmRandAugment {
    let fill = [124.0, 116.0, 104.0].map(|level| level / 255.0).to_vec();
    TimmRandAugment { magnitude, interpolation, fill: Some(Value::Each(fill)), ..TimmRandAugment::default() }
}

/// The kernel is a tenth of the side, as in SimCLR.
fn blur(kernel: u32, p: f32) -> GaussianBlur {
    GaussianBlur { p, ..GaussianBlur::new(kernel) }
}

fn dino(size: u32, scale: (f64, f64)) -> Transform {
    let crop = Op::RandomResizedCrop {
        size: [size; 2],
        scale,
        ratio: op::RATIO,
        interpolation: Interpolation::Bicubic.into(),
        antialias: true,
    };
    let jitter = Transform::new().color_jitter(0.4, 0.4, 0.2, 0.1);
    Transform::new().push(crop).horizontal_flip(0.5).random_apply(&jitter, 0.8).random_grayscale(0.2)
}
