//! The arguments and launch shape of the kernel in `colour.cu`.

use std::{ffi::CStr, mem::offset_of};

/// The kernel's name. Arguments: pointer to [`DevicePlanes`], their number as u32. Grid: bands of [`ROWS`] rows ×
/// images; block: [`THREADS`].
pub const PLANES_TO_RGB: &CStr = c"planes_to_rgb";
/// Rows per block.
pub const ROWS: u32 = 8;
/// Threads per block: one warp per row.
pub const THREADS: u32 = 32 * ROWS;

/// One image whose planes are converted to RGB; the kernel's `Planes`. Rows are adjacent, without padding.
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
    /// Pixels per value of chroma, across and down: 1 or 2; 0 for gray.
    pub chroma: [u32; 2],
}

// SAFETY: `Copy`, integers, no padding (the sizes below add up), no references.
unsafe impl bytemuck::NoUninit for DevicePlanes {}

// colour.cu has the same numbers.
const _: () = assert!(size_of::<DevicePlanes>() == 48 && offset_of!(DevicePlanes, chroma) == 40);
