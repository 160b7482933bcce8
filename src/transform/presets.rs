//! Transforms with a name.

use super::chain::Transform;
use crate::error::{Error, Result};

/// Mean of ImageNet's pixels in 0..1, as torchvision's models expect.
pub const IMAGENET_MEAN: [f32; 3] = [0.485, 0.456, 0.406];
/// Their standard deviation.
pub const IMAGENET_STD: [f32; 3] = [0.229, 0.224, 0.225];
/// Mean of CIFAR-10's training pixels in 0..1.
pub const CIFAR10_MEAN: [f32; 3] = [0.4914, 0.4822, 0.4465];
/// Their standard deviation.
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
/// | `none` | nothing |
pub const PRESETS: [&str; 7] =
    ["imagenet-train", "imagenet-val", "cifar-train", "cifar-val", "caltech", "cells", "none"];

impl Transform {
    /// One of [`PRESETS`] by name.
    ///
    /// # Errors
    /// `Config` for another name.
    pub fn preset(name: &str) -> Result<Self> {
        steps(name).ok_or_else(|| {
            Error::config(format!("there is no transform {name:?}")).hint(format!("use one of {}", PRESETS.join(", ")))
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
        "none" => t,
        _ => return None,
    })
}
