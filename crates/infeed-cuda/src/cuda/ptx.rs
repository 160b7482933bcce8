//! The kernels as PTX, which the driver compiles. `integration/gpu/ptx.py` makes them from the `.cu` files in this
//! folder, and a test (`integration/kernels.rs`) compares the hash in their head with the source.

/// PTX of `resample.cu`.
pub const RESAMPLE_PTX: &str = include_str!("resample.ptx");

/// PTX of `colour.cu`.
pub const COLOUR_PTX: &str = include_str!("colour.ptx");

/// PTX of `picture.cu`.
pub const PICTURE_PTX: &str = include_str!("picture.ptx");
