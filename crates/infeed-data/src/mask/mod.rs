//! Outlines of objects in an image: as polygons, as runs, as bytes.
//!
//! ```text
//! polygons ─ rasterise ─▶ Rle ◀─ compressed ─▶ COCO's strings
//!                          ▲
//!                          └──── dense ──────▶ a byte a pixel; a bit of one
//! ```
//!
//! Three things that are easy to get wrong:
//!
//! - **Runs go down columns**, bytes go along rows: each conversion transposes the picture.
//! - **A polygon covers the pixels that COCO's tools choose**, by a walk along its edges in fifths of a pixel. These
//!   are not the pixels whose centre is inside. Training or evaluation with other pixels gives numbers that differ from
//!   everybody else's.
//! - **A run in a file may have length 0**, so one picture can be written in several ways. Runs made here are unique:
//!   only the first may have length 0.

mod compressed;
mod dense;
mod outline;
mod polygons;
mod rle;

pub use self::{outline::Mask, rle::Rle};
