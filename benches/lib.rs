//! Benchmarks of infeed: `cargo bench` at the root runs them, `cargo bench --bench decode` one.
