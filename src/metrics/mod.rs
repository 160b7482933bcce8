//! Metrics of loaders for Prometheus and OpenTelemetry.
//!
//! ```text
//! stream ─ .monitor() ─▶ Metrics::watch("train", …) ─┬─ render(): Prometheus' text
//! stream ─ .monitor() ─▶ Metrics::watch("val", …) ───┘  observe(meter): OpenTelemetry's instruments
//! ```
//!
//! Easy to get wrong:
//! - This module measures nothing: a scrape reads the numbers of [`Report`](infeed_core::report::Report).
//! - The counts of a stream stay after it has ended. Watch the stream of the next epoch under the same name: its counts
//!   are added.
//! - `loader` and `rank` are labels. Record ids, objects and messages are not, because each would make a new series.

#![forbid(unsafe_code)]

mod families;
#[cfg(feature = "otel")]
mod otel;
#[cfg(feature = "prometheus")]
mod prometheus;
mod registry;

pub use registry::Metrics;
