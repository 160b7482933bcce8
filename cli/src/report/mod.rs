//! What a run came to: JSON for machines, tables for people, from the same figures.
//!
//! ```text
//! infeed::Report ─┐
//! machine, GPU ───┼▶ run: the JSON of `run`, its tables ─▶ html, profile, doctor
//! words, table ───┘
//! ```

mod run;
mod table;
mod words;

pub(crate) use run::{Ended, PartReport, Requests, RunReport, Settled, TimeLine};
pub(crate) use table::{align_right, table};
pub(crate) use words::{autotune_words, bottleneck_words, cause_words, traffic_words};
