//! The kernels, for the driver to compile: what `integration/gpu/ptx.py` made of the `.cu` files beside. A test compares their
//! head with the source (`integration/kernels.rs`).

/// Of `resample.cu`.
pub const RESAMPLE_PTX: &str = include_str!("resample.ptx");

/// Of `colour.cu`.
pub const COLOUR_PTX: &str = include_str!("colour.ptx");

/// Of `picture.cu`.
pub const PICTURE_PTX: &str = include_str!("picture.ptx");
