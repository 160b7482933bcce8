//! Labels from a file: text or JSON that lists files and their labels.
//!
//! ```text
//! bytes ─ text, json ─▶ rows ─ columns ─▶ file and label of each ─ table ─▶ a label for each image
//!                                 └───── names: which image is meant ─────────┘
//! ```
//!
//! What newcomers get wrong: a header, the columns and even the separator are told by the names of the dataset's images,
//! which no list of words could do. A name that is not written as the image's is taken only where one image can be meant,
//! and never in silence. Labels that are numbers stay those numbers; only texts become classes.

mod columns;
mod json;
mod names;
mod rows;
mod table;
mod text;

pub(crate) use columns::{FILE, LABEL};
pub(crate) use names::Names;
pub(crate) use rows::number;
pub(crate) use table::{Labels, Table, listed};

#[cfg(test)]
mod tests;
