//! Outlines of things in an image: as polygons, as runs, as bytes.
//!
//! ```text
//! polygons ─ rasterise ─▶ Rle ◀─ compressed ─▶ COCO's strings
//!                          ▲
//!                          └──── dense ──────▶ a byte a pixel; a bit of one
//! ```
//!
//! Three things that are easy to get wrong:
//!
//! - **Runs go down columns**, bytes along rows: each way between them turns the picture.
//! - **A polygon's pixels are COCO's**, by a walk along its edges in fifths of a pixel, not those whose middle lies
//!   within: who trains or evaluates on others gets other numbers than everybody.
//! - **A run may have no length** in files, so the same picture can be written in several ways. What is made here has
//!   one: only the first run may be of none.

mod compressed;
mod dense;
mod outline;
mod polygons;
mod rle;

pub use self::{outline::Mask, rle::Rle};
