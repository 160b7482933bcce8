//! The arguments for launches of the resample kernels: names, items and shapes. Plain data; `infeed-cuda` has the PTX
//! and launches it.
//!
//! A kernel `resample_{u8|u16|f32}_to_{u8|f16|bf16|f32}` takes seven arguments:
//!
//! | argument | type | meaning |
//! |---|---|---|
//! | items | address | `count` [`DeviceItem`]s |
//! | table | address | 4 × channels f32: all scales, all biases, all fill values, all cutout values |
//! | height, width, channels | u32 | of every row |
//! | nhwc | u32 | 1: interleaved rows, 0: planes |
//! | count | u32 | items, at most 65535 |
//!
//! It reads only pixels of `extent`, whatever the parameters. It does not check that `src` and `dst` are device memory
//! of at least [`DeviceItem::held_bytes`] and [`RowSpec::len_bytes`] that is not used otherwise until the launch is
//! done, nor that rows do not overlap. [`fits`] checks the rest.

use std::{ffi::CStr, mem::offset_of};

use infeed_core::types::{DType, Layout};

use super::{
    convert::is_loaded,
    params::{Axis, ResampleParams, RowSpec},
};

/// One row to make: the kernel's `Item`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceItem {
    /// Device address of channel 0 of the first pixel held: row `origin[0]`, column `origin[1]`. Aligned to its
    /// element.
    pub src: u64,
    /// Device address of the finished row. Aligned to its element; with an alignment of 16 bytes the kernel stores four
    /// values at a time.
    pub dst: u64,
    /// Elements from channel to channel; 1 when pixels are interleaved.
    pub plane: u64,
    /// Bytes from source row to source row; a multiple of the element.
    pub pitch: u32,
    /// Elements from pixel to pixel: the channels when interleaved, 1 when planar.
    pub pixel: u32,
    /// The source pixel held at `src`: row, column.
    pub origin: [u32; 2],
    /// Rows and columns held.
    pub extent: [u32; 2],
    /// 1: every output channel reads channel 0.
    pub gray: u32,
    /// Windows, in pixels of the whole image.
    pub params: ResampleParams,
}

// SAFETY: `Copy`, integers and `ResampleParams`; no padding (the sizes below add up), no references.
unsafe impl bytemuck::NoUninit for DeviceItem {}

// resample.cu has the same numbers.
const _: () = {
    assert!(size_of::<DeviceItem>() == 128 && align_of::<DeviceItem>() == 8);
    assert!(size_of::<DeviceItem>() == 3 * 8 + 7 * 4 + size_of::<ResampleParams>());
    assert!(offset_of!(DeviceItem, pitch) == 24);
    assert!(offset_of!(DeviceItem, origin) == 32);
    assert!(offset_of!(DeviceItem, gray) == 48);
    assert!(offset_of!(DeviceItem, params) + offset_of!(ResampleParams, y) == 52);
    assert!(offset_of!(DeviceItem, params) + offset_of!(ResampleParams, x) == 80);
    assert!(offset_of!(DeviceItem, params) + offset_of!(ResampleParams, cutout) == 108);
    assert!(offset_of!(DeviceItem, params) + offset_of!(ResampleParams, filter) == 124);
    assert!(offset_of!(Axis, low) == 8 && offset_of!(Axis, from) == 16 && offset_of!(Axis, flip) == 24);
};

impl DeviceItem {
    /// Bytes from `src` to the end of the last pixel held, for rows of `channels`; `None` if the number overflows.
    #[must_use]
    pub fn held_bytes(&self, channels: u32, src: DType) -> Option<u64> {
        let [rows, columns] = self.extent.map(u64::from);
        if rows == 0 || columns == 0 {
            return Some(0);
        }
        let channels = if self.gray != 0 { 1 } else { u64::from(channels) };
        let planes = self.plane.checked_mul(channels.checked_sub(1)?)?;
        let last = planes.checked_add((columns - 1) * u64::from(self.pixel))?;
        last.checked_add(1)?.checked_mul(src.size() as u64)?.checked_add((rows - 1) * u64::from(self.pitch))
    }
}

/// The kernel that makes rows of `dst` from pixels of `src`; `None` if there is none.
#[must_use]
pub const fn kernel_name(src: DType, dst: DType) -> Option<&'static CStr> {
    Some(match (src, dst) {
        (DType::U8, DType::U8) => c"resample_u8_to_u8",
        (DType::U8, DType::F16) => c"resample_u8_to_f16",
        (DType::U8, DType::Bf16) => c"resample_u8_to_bf16",
        (DType::U8, DType::F32) => c"resample_u8_to_f32",
        (DType::U16, DType::U8) => c"resample_u16_to_u8",
        (DType::U16, DType::F16) => c"resample_u16_to_f16",
        (DType::U16, DType::Bf16) => c"resample_u16_to_bf16",
        (DType::U16, DType::F32) => c"resample_u16_to_f32",
        (DType::F32, DType::U8) => c"resample_f32_to_u8",
        (DType::F32, DType::F16) => c"resample_f32_to_f16",
        (DType::F32, DType::Bf16) => c"resample_f32_to_bf16",
        (DType::F32, DType::F32) => c"resample_f32_to_f32",
        _ => return None,
    })
}

/// How a launch is divided into blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchShape {
    /// Bands of rows, items, 1.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block. Less gives the same bits, more slowly.
    pub shared_bytes: u32,
}

/// The most threads per block for which the kernels are compiled.
const THREADS: u32 = 256;
/// For taps and sums of a 500x375 RGB image resized to a width of 224, two rows at a time; six such blocks fit an SM of
/// Hopper.
const SHARED_BYTES: u32 = 32 << 10;
/// Rows of a band: with 32, the column taps cost less than one instruction per value; with fewer than 8, they cost more
/// than the rest.
const BAND: [u32; 3] = [32, 16, 8];
/// Two rounds of eight blocks on the 132 SMs of an H200: with fewer, SMs are idle at the end.
const BLOCKS: u64 = 2 * 8 * 132;

/// The shape for `count` rows, at most 65535.
///
/// The row's width determines the threads: as many whole lines side by side as fit 256 threads, so that few are idle.
#[must_use]
pub fn launch_shape(row: &RowSpec, count: u32) -> LaunchShape {
    let count = count.clamp(1, 65_535);
    let bands = |rows: u32| row.height.max(1).div_ceil(rows);
    let rows = BAND.into_iter().find(|&rows| u64::from(bands(rows)) * u64::from(count) >= BLOCKS).unwrap_or(BAND[2]);
    let units = match row.layout {
        Layout::Nchw if row.width.is_multiple_of(4) => row.width / 4,
        Layout::Nchw => row.width,
        Layout::Nhwc => row.width.saturating_mul(row.channels),
    };
    let threads = if units == 0 || units >= THREADS { THREADS } else { THREADS / units * units };
    LaunchShape {
        grid: [bands(rows), count, 1],
        block: [threads.next_multiple_of(32), 1, 1],
        shared_bytes: SHARED_BYTES,
    }
}

/// Whether the kernel makes the right row: every pixel that `params` read is held, the kernel supports types and
/// alignments, and the parameters are valid.
///
/// It can't check that addresses are valid: see the head of this file.
#[must_use]
pub fn fits(item: &DeviceItem, row: &RowSpec, src: DType) -> bool {
    let values = u64::from(row.height).saturating_mul(u64::from(row.width)).saturating_mul(u64::from(row.channels));
    if kernel_name(src, row.dtype).is_none() || !is_loaded(src) || values == 0 || values > u64::from(u32::MAX) {
        return false;
    }
    let (size, out) = (src.size() as u64, row.dtype.size() as u64);
    let pitch = u64::from(item.pitch);
    if !item.src.is_multiple_of(size) || !pitch.is_multiple_of(size) || !item.dst.is_multiple_of(out) {
        return false;
    }
    // The ends of what the kernel may read must be valid addresses.
    let held = item.held_bytes(row.channels, src);
    if held.and_then(|bytes| item.src.checked_add(bytes)).is_none() {
        return false;
    }
    let params = &item.params;
    let lens = [row.height, row.width];
    let axes = [params.y, params.x];
    let sensible = axes.iter().zip(lens).all(|(axis, len)| {
        axis.start.is_finite()
            && axis.step.is_finite()
            && axis.step > 0.0
            && axis.low < axis.high
            && axis.from <= axis.to
            && axis.to <= len
    });
    if !sensible {
        return false;
    }
    // A row that is only padding reads nothing.
    axes.iter().any(|axis| axis.from == axis.to)
        || axes.iter().zip(lens).zip(item.origin.into_iter().zip(item.extent)).all(|((axis, len), (origin, extent))| {
            let reads = axis.reads(len, params.filter);
            let end = u64::from(origin) + u64::from(extent);
            end <= u64::from(u32::MAX) && reads.start >= origin && u64::from(reads.end) <= end
        })
}
