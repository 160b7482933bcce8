//! Labels from a file: text or JSON that lists files and their labels.
//!
//! ```text
//! bytes ─ text, json ─▶ rows ─ columns ─▶ file and label of each ─ table ─▶ a label for each image
//!                                 └───── names: which image is meant ─────────┘
//! ```
//!
//! Three things that are easy to get wrong:
//!
//! - The header, the columns and even the separator are found by comparison with the names of the dataset's images; a
//!   list of words would not be enough.
//! - If a name is not written exactly like the image's, it is matched only if a single image is possible, and always
//!   with a warning.
//! - Labels that are numbers stay these numbers; only texts become classes.

mod columns;
mod json;
mod names;
mod rows;
mod table;
mod text;

pub(crate) use columns::{FILE, LABEL};
pub(crate) use names::{NamedImages, Names};
pub(crate) use rows::number;
pub(crate) use table::{Labels, Table, listed};
pub(crate) use text::decode;

#[cfg(test)]
mod tests;
