//! Short forms of the tests in `make test`, full counts in `make soak`.

use proptest::prelude::ProptestConfig;

/// How many cases a property is tried with.
pub fn cases(short: u32, full: u32) -> ProptestConfig {
    let is_soak = std::env::var_os("PENSTOCK_SOAK").is_some_and(|value| value == "1");
    ProptestConfig::with_cases(if is_soak { full } else { short })
}
