//! Steps on a picture between two resamples: colour, blur, warps, erasing.
//!
//! ```text
//! resample ─▶ Tile (planes, u8 0..255 or f32 0..1) ─▶ PixelOp, PixelOp, … in place ─▶ resample ─▶ row
//! ```
//!
//! For a GPU, the same steps are words ([`Program`]) that a kernel reads.
//!
//! Each step is a vectorised loop over planes that stay in the second-level cache (224×224×3 bytes are 150 KB). Steps
//! that can't run in place write to a second tile of the worker, and the two tiles are swapped. Arithmetic follows
//! torchvision: the tensor kernels of `transforms.v2` on u8 and f32.

mod colour;
mod filter;
mod mix;
mod picture;
mod pixel_op;
mod program;
mod run;
mod spread;
#[cfg(test)]
mod tests;
mod values;
mod warp;

pub use picture::Tile;
pub use pixel_op::{Map, PixelOp, Sampling};
pub use program::{PLACES, Program};
pub use run::TileRunner;
