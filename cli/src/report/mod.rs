//! The report of a run: JSON and tables from the same figures.
//!
//! ```text
//! infeed::Report ─┐
//! machine, GPU ───┼▶ run: the JSON of `run`, its tables ─▶ html, profile, doctor
//! words, table ───┤
//! verdict ────────┘
//! ```

mod run;
mod table;
mod verdict;
mod words;

pub(crate) use run::{Ended, PartReport, Requests, RunReport, Settled, TimeLine};
pub(crate) use table::{align_right, table};
pub(crate) use verdict::{Verdict, lies_in_memory};
pub(crate) use words::{autotune_words, cause_words, decoded_by_words, traffic_words};
