//! How many cases a property test has.

use proptest::test_runner::Config;

use crate::support::cases;

/// So many, or the many of `INFEED_SLOW_TESTS=1`.
pub(crate) fn properties(quick: u32, slow: u32) -> Config {
    let cases = cases(quick, slow);
    // Of as many others an assumption may be wrong: by itself proptest ends a test of any length at 1,024 of those.
    Config { max_global_rejects: cases.max(1024), ..Config::with_cases(cases) }
}
