//! Tests that cannot run here say so, because a skipped test that looks like a passed one is worse than none.

use std::io::Write;

/// Set to `1` to leave out tests that need the real control plane (`make test-fast`).
pub const SKIP_REAL: &str = "USHER_SKIP_REAL";

/// Set to `1` where everything must run, as in CI: what is skipped fails there.
const NO_SKIP: &str = "USHER_NO_SKIP";

fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| value == "1")
}

/// A test does not run, and says why on stderr.
///
/// # Panics
/// With `USHER_NO_SKIP=1`, as a test that fails does.
pub fn skip(test: &str, why: &str) {
    assert!(!is_set(NO_SKIP), "{test} cannot run here, and with {NO_SKIP}=1 it must: {why}");
    // Not eprintln, which the test harness swallows in tests that pass.
    let _ = std::io::stderr().write_all(format!("SKIPPED, NOT PASSED: {test}: {why}\n").as_bytes());
}

/// True where tests on the real control plane are to be left out.
#[must_use]
pub fn skip_real(test: &str) -> bool {
    let is_skipped = is_set(SKIP_REAL);
    if is_skipped {
        skip(test, &format!("it needs the real control plane, and {SKIP_REAL}=1 is set"));
    }
    is_skipped
}
