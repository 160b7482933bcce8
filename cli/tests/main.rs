//! Every promise of the command line to its users: tests that start the binary, and [`command`] is how. Those of the library
//! are in `integration`.
//!
//! Tests make their own data and run offline. Those of the GPU path run on a mock of the driver and of nvJPEG, which
//! takes a C++ compiler; without one they say so and pass.

mod bounds;
mod buckets;
mod command;
mod commands;
mod compare;
mod datasets;
mod doctor;
mod doubts;
#[cfg(target_os = "linux")]
mod gpu;
#[cfg(target_os = "linux")]
mod machine;
mod otel;
mod plan;
mod prepare;
mod shell;
mod stage;
#[allow(dead_code, reason = "shared with the tests of the library: each uses its own part")]
#[path = "../../integration/support/mod.rs"]
mod support;
mod terminal;
mod watch;
