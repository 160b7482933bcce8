//! The arguments for launches of the picture kernels: names and items. Plain data; `infeed-cuda` has the PTX and
//! launches it.
//!
//! | kernel | arguments | grid, block |
//! |---|---|---|
//! | `picture_{u8\|f32}` | [`DevicePicture`]s | pictures; [`PICTURE_THREADS`] |
//! | `fill_{u8\|f16\|bf16\|f32}` | [`DeviceRectangle`]s, height, width, channels, nhwc | any × rectangles; up to 256 |
//! | `roll_…` | rows, one [`DeviceMixing`], rows, height, width, channels, nhwc | any; up to 256 |
//! | `swap_…` | rows, [`DeviceMixing`]s, unused, height, width, channels, nhwc | any × pairs; up to 256 |
//!
//! Nothing is checked: addresses must be device memory of the lengths that sizes give, words must be those of a
//! [`Program`](super::Program), and rectangles and rows must be inside of what they belong to.

use std::ffi::CStr;

use infeed_core::types::DType;

use super::mix::Mixture;

/// Threads per block, one block per picture.
pub const PICTURE_THREADS: u32 = 512;

/// One picture and its steps: the kernel's `Picture`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DevicePicture {
    /// Device addresses of the program's places, aligned to 16 bytes; places that the program does not use may be 0.
    pub places: [u64; 5],
    /// Device address of the program's words.
    pub words: u64,
    /// Number of words.
    pub count: u32,
    /// Rows.
    pub height: u32,
    /// Columns.
    pub width: u32,
    /// 0.
    pub unused: u32,
}

/// A rectangle of a row and the values to write: the kernel's `Rectangle`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRectangle {
    /// Device address of the row.
    pub row: u64,
    /// Device address of the values, f32.
    pub values: u64,
    /// Top, bottom, left, right, within the row.
    pub area: [u32; 4],
    /// 1: a value for each pixel and channel, plane by plane and line by line; 0: one for each channel.
    pub each: u32,
    /// 0.
    pub unused: u32,
}

/// How rows are mixed: the kernel's `Mixing`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceMixing {
    /// A pair of rows, by index.
    pub pair: [u32; 2],
    /// 1: paste a rectangle of the partner; 0: a weighted sum.
    pub paste: u32,
    /// Weights of the row's own values and of the partner's.
    pub weights: [f32; 2],
    /// Top, bottom, left, right.
    pub area: [u32; 4],
}

impl DeviceMixing {
    /// The mixing of two rows, or of all rows.
    #[must_use]
    pub const fn new(mixture: &Mixture, pair: [u32; 2]) -> Self {
        match *mixture {
            Mixture::Blend { own, other } => Self { pair, paste: 0, weights: [own, other], area: [0; 4] },
            Mixture::Paste(area) => Self { pair, paste: 1, weights: [0.0; 2], area },
        }
    }
}

// SAFETY: `Copy`, integers and floats; no padding (the sizes below add up), no references.
unsafe impl bytemuck::NoUninit for DevicePicture {}
// SAFETY: as above.
unsafe impl bytemuck::NoUninit for DeviceRectangle {}
// SAFETY: as above.
unsafe impl bytemuck::NoUninit for DeviceMixing {}

// picture.cu has the same numbers.
const _: () = {
    assert!(size_of::<DevicePicture>() == 64 && size_of::<DevicePicture>() == 6 * 8 + 4 * 4);
    assert!(size_of::<DeviceRectangle>() == 40 && size_of::<DeviceRectangle>() == 2 * 8 + 6 * 4);
    assert!(size_of::<DeviceMixing>() == 36 && size_of::<DeviceMixing>() == 9 * 4);
};

/// The kernel that runs the steps on pictures of f32, or of bytes.
#[must_use]
pub const fn picture_kernel(float: bool) -> &'static CStr {
    if float { c"picture_f32" } else { c"picture_u8" }
}

/// Kernels for rows of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowKernels {
    /// Writes rectangles.
    pub fill: &'static CStr,
    /// Mixes each row with the one before it.
    pub roll: &'static CStr,
    /// Mixes pairs.
    pub swap: &'static CStr,
}

/// Kernels for rows of `dtype`; `None` if there are none.
#[must_use]
pub const fn row_kernels(dtype: DType) -> Option<RowKernels> {
    Some(match dtype {
        DType::U8 => RowKernels { fill: c"fill_u8", roll: c"roll_u8", swap: c"swap_u8" },
        DType::F16 => RowKernels { fill: c"fill_f16", roll: c"roll_f16", swap: c"swap_f16" },
        DType::Bf16 => RowKernels { fill: c"fill_bf16", roll: c"roll_bf16", swap: c"swap_bf16" },
        DType::F32 => RowKernels { fill: c"fill_f32", roll: c"roll_f32", swap: c"swap_f32" },
        _ => return None,
    })
}
