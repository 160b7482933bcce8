//! Reports for those who watch jobs: Prometheus and OpenTelemetry.
//!
//! ```text
//! stream ─ .monitor() ─▶ Metrics::watch("train", …) ─┬─ render(): Prometheus' text   ─ serve(address): GET /metrics
//! stream ─ .monitor() ─▶ Metrics::watch("val", …) ───┘  observe(meter): OpenTelemetry's instruments
//! ```
//!
//! Three things a newcomer gets wrong:
//! - Nothing is measured here: figures are those of [`Report`](infeed_core::report::Report), asked for when somebody scrapes.
//! - An epoch's stream ends, its counts stay: watch the next epoch's stream under the same name, and they go on.
//! - `loader` and `rank` are labels; record ids, objects and messages are not: they would make a series each.

#![forbid(unsafe_code)]

mod families;
#[cfg(feature = "otel")]
mod otel;
#[cfg(feature = "prometheus")]
mod prometheus;
mod registry;
#[cfg(feature = "prometheus")]
mod serve;

pub use registry::Metrics;
#[cfg(feature = "prometheus")]
pub use serve::Server;
