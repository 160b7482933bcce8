//! Examples in the docs of the internal crates, run as users write them: with `infeed`, which re-exports what they show.
//!
//! Those crates can't run them themselves: for them to name `infeed` it would have to be a dependency of theirs, and each of
//! their tests would wait for the whole library. `build.rs` takes the docs out of their sources: a module for each file, in
//! which line N is line N of the file.
#![forbid(unsafe_code)]

include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// The page for coding assistants: its Rust is run here, its Python by `python/tests`, its commands by `integration/first_hour`.
#[doc = include_str!("../../../skills/infeed/SKILL.md")]
pub mod skill {}
