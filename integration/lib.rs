//! Tests of infeed: `cargo test` at the root runs them, `cargo test -p infeed-integration` these alone.
