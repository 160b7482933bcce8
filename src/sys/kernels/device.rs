//! Stub, replaced by the kernels branch.
use super::{ResampleParams, RowSpec};
use crate::types::DType;
use bytemuck::{Pod, Zeroable};
use std::ffi::CStr;
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct DeviceItem {
    pub src: u64,
    pub dst: u64,
    pub plane: u64,
    pub pitch: u32,
    pub pixel: u32,
    pub origin: [u32; 2],
    pub extent: [u32; 2],
    pub gray: u32,
    pub params: ResampleParams,
}
pub const PTX: &str = "";
pub fn kernel_name(_src: DType, _dst: DType) -> Option<&'static CStr> {
    Some(c"resample")
}
pub struct LaunchShape {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
}
pub fn launch_shape(_row: &RowSpec, count: u32) -> LaunchShape {
    LaunchShape { grid: [1, 1, count], block: [256, 1, 1], shared_bytes: 0 }
}
pub fn fits(_item: &DeviceItem, _row: &RowSpec, _src: DType) -> bool {
    true
}
