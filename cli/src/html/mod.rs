//! Reports as one HTML file each: no network, no script, charts as SVG, light and dark, on a phone and on
//! paper.
//!
//! ```text
//! report ──▶ run: a run as part of a page ─┐
//! settings ▶ settings: with their units ───┤
//! figures ─▶ charts: a picture each ───────┴▶ page: parts in a row, escaped ─▶ one file
//! ```
//!
//! A command that shows more than a run builds its own page from these parts; this module does not depend on the
//! commands. [`Page`] escapes everything that comes from data or from the command line.

pub(crate) mod charts;
mod page;
mod run;
mod settings;

pub(crate) use page::Page;
pub(crate) use run::{run_page, run_parts, run_settings};
