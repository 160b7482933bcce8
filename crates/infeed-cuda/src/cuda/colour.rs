//! What a launch of the kernel in `colour.cu` takes.

use std::{ffi::CStr, mem::offset_of};

/// Its name. Arguments: [`DevicePlanes`], u32 of how many; grid: bands of [`ROWS`] rows × images; block: [`THREADS`].
pub const PLANES_TO_RGB: &CStr = c"planes_to_rgb";
/// Rows of a block.
pub const ROWS: u32 = 8;
/// A warp for each row.
pub const THREADS: u32 = 32 * ROWS;

/// One image whose planes become RGB; the kernel's `Planes`. Nothing lies between rows.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DevicePlanes {
    /// Device addresses of Y, Cb and Cr.
    pub planes: [u64; 3],
    /// Device address of the pixels.
    pub rgb: u64,
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Pixels that a value of colour stands for, across and down: 1 or 2; 0: gray.
    pub chroma: [u32; 2],
}

// SAFETY: `Copy`, integers, no padding (the sizes below add up), no references.
unsafe impl bytemuck::NoUninit for DevicePlanes {}

// The same numbers stand in colour.cu.
const _: () = assert!(size_of::<DevicePlanes>() == 48 && offset_of!(DevicePlanes, chroma) == 40);
