//! The steps on a picture, with all their numbers.

use infeed_core::error::{Error, ErrorKind, Result};

/// The interpolation of a warp.
///
/// ```
/// use infeed::{spi::Sampling, transform::{Transform, augment::RandomRotation}};
///
/// let smooth = RandomRotation { interpolation: Sampling::Bilinear, ..RandomRotation::new(10.0) };
/// let train = Transform::new().center_crop(224).push(smooth);
/// assert_eq!(train, "center_crop:224;random_rotation:10,bilinear".parse()?);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sampling {
    /// The nearest pixel.
    #[default]
    Nearest,
    /// Between four pixels.
    Bilinear,
    /// Between sixteen pixels, `a = -0.75`.
    Bicubic,
}

/// The position from which each pixel of a warped picture comes.
///
/// ```
/// use infeed::{
///     DType, Layout,
///     dataset::FieldKind,
///     spi::{Map, PixelOp},
///     transform::{ImageInfo, SampleRng, Transform},
/// };
///
/// let images = FieldKind::Image { channels: 3, size: None, dtype: None };
/// let turned = Transform::new().center_crop(32).random_rotation([180.0, 180.0]);
/// let turned = turned.lower(&images, DType::U8, Layout::Nchw)?;
/// let drawn = turned.draw(&ImageInfo::interleaved_u8(32, 32, 3), SampleRng::new(0, 0, 0))?;
/// let Some(PixelOp::Warp { map: Map::Affine([a, b, _, c, d, _]), .. }) = drawn.pixel_ops().next() else {
///     panic!("a rotation is affine")
/// };
/// assert!((a + 1.0).abs() + b.abs() + c.abs() + (d + 1.0).abs() < 1e-9); // x to -x, y to -y.
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Map {
    /// torchvision's inverse matrix, two rows of three, around the picture's centre.
    Affine([f64; 6]),
    /// torchvision's eight coefficients of a perspective transform, from output to input.
    Perspective([f64; 8]),
}

/// One step with everything that was drawn for it. Factors are torchvision's; `threshold` and `fill` are parts of
/// white, 0..1, whatever the type.
///
/// What a sample draws, as a custom kernel would get it:
///
/// ```
/// use infeed::{DType, Layout, dataset::FieldKind, spi::PixelOp, transform::{ImageInfo, SampleRng, Transform}};
///
/// let images = FieldKind::Image { channels: 3, size: None, dtype: None };
/// let steps = Transform::new().center_crop(32).random_solarize(0.5, 1.0).random_invert(0.0).random_posterize(4, 1.0);
/// let drawn = steps
///     .lower(&images, DType::U8, Layout::Nchw)?
///     .draw(&ImageInfo::interleaved_u8(32, 32, 3), SampleRng::new(0, 0, 0))?;
/// assert!(drawn.pixel_ops().eq(&[PixelOp::Solarize(0.5), PixelOp::Posterize(4)]));
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum PixelOp {
    /// `adjust_brightness`.
    Brightness(f32),
    /// `adjust_contrast`.
    Contrast(f32),
    /// `adjust_saturation`.
    Saturation(f32),
    /// `adjust_hue`, -0.5 to 0.5.
    Hue(f32),
    /// `adjust_sharpness`.
    Sharpness(f32),
    /// `rgb_to_grayscale`, keeping the number of channels.
    Grayscale,
    /// `invert`.
    Invert,
    /// `posterize` to this number of bits.
    Posterize(u8),
    /// `solarize`: inverts values of this part of white or more.
    Solarize(f32),
    /// timm's `SolarizeAdd`: adds a part of white to values below the threshold.
    SolarizeAdd {
        /// Added, -1 to 1.
        add: f32,
        /// Values of this or more stay unchanged.
        threshold: f32,
    },
    /// `autocontrast`.
    Autocontrast,
    /// `equalize`.
    Equalize,
    /// `permute_channels`: channel `c` comes from channel `[c]`.
    Permute([u8; 4]),
    /// `gaussian_blur` with these sizes (odd, height and width) and deviations.
    Blur {
        /// Height and width of the kernel.
        kernel: [u32; 2],
        /// Vertical and horizontal.
        sigma: [f32; 2],
    },
    /// `affine`, `rotate`, `perspective`.
    Warp {
        /// The position from which pixels come.
        map: Map,
        /// The interpolation.
        sampling: Sampling,
        /// Value outside of the picture, a part of white for each channel; `None`: black, as torchvision's `fill=None`.
        fill: Option<[f32; 4]>,
    },
    /// `erase` with one value per channel.
    Erase {
        /// Top, bottom, left, right.
        area: [u32; 4],
        /// Parts of white.
        value: [f32; 4],
    },
    /// AugMix: the weighted sum of the picture and of the results of chains of steps.
    Mix {
        /// Weight of the picture itself.
        own: f32,
        /// The weight and the steps of each chain.
        chains: Vec<(f32, Vec<Self>)>,
    },
}

impl PixelOp {
    /// Refuses a step that is not defined for a picture of this size and number of channels.
    pub(super) fn check(&self, sides: [u32; 2], channels: u32) -> Result<()> {
        let [height, width] = sides;
        let wrong = |what: String| Err(Error::new(ErrorKind::Internal, what));
        // As torchvision does.
        let gray_or_rgb = |what| match channels {
            1 | 3 => Ok(()),
            _ => wrong(format!("{what} of {channels} channels")),
        };
        match self {
            Self::Contrast(_) => gray_or_rgb("contrast"),
            Self::Saturation(_) => gray_or_rgb("saturation"),
            Self::Hue(_) => gray_or_rgb("hue"),
            Self::Grayscale => gray_or_rgb("grayscale"),
            Self::Permute(from) => {
                let from = from.get(..channels as usize).unwrap_or_default();
                if from.is_empty() || from.iter().any(|from| u32::from(*from) >= channels) {
                    return wrong(format!("a permutation {from:?} of {channels} channels"));
                }
                Ok(())
            }
            Self::Blur { kernel, sigma } => {
                let fits = |(kernel, side): (&u32, u32)| kernel % 2 == 1 && kernel / 2 < side;
                if !kernel.iter().zip(sides).all(fits) || !sigma.iter().all(|sigma| *sigma > 0.0) {
                    return wrong(format!("a blur of {kernel:?}, sigma {sigma:?}, on a tile of {sides:?}"));
                }
                Ok(())
            }
            Self::Warp { fill, .. } => {
                let pixels = u64::from(height) * u64::from(width);
                if height.max(width) > 1 << 22 || pixels >= 1 << 31 || fill.is_some() && channels > 4 {
                    return wrong(format!("a warp of a tile of {height}x{width}x{channels}"));
                }
                Ok(())
            }
            Self::Erase { .. } if channels > 4 => wrong(format!("erasing {channels} channels")),
            Self::Mix { chains, .. } => {
                if chains.iter().flat_map(|(_, ops)| ops).any(|op| matches!(op, Self::Mix { .. })) {
                    return wrong("a mix within a mix".into());
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
