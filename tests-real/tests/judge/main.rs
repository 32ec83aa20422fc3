//! The scenarios of `tests/scenarios*` on the real cluster, each as a test of its own: `cargo test --workspace --test judge -- surges::`.
//!
//! Scenarios that are not marked `judge` are ignored, unless their recordings are out of date: `make test-long` runs them all, with
//! `--include-ignored`. `USHER_RECORD=1` writes the recordings that are out of date, or with `--include-ignored` all of them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::ExitCode;
use std::sync::{Arc, LazyLock};

use libtest_mimic::{Arguments, Failed, Trial};
use tokio::runtime::Runtime;
use usher_tests::scenario::suite::{SUITES, Suite};
use usher_tests_real::scenarios::Stages;

/// Scenarios wait for the cluster most of the time, so that eight at once keep two cores busy.
const AT_ONCE: usize = 8;

/// Control planes outlive a test, and so does what their connections run on.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());
static STAGES: LazyLock<Stages> = LazyLock::new(Stages::default);

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_ONCE);
    let records = std::env::var_os("USHER_RECORD").is_some_and(|value| value == "1");
    let mut tests = Vec::new();
    for suite in SUITES {
        let recordings = Arc::new(suite.recordings().unwrap());
        for scenario in suite.scenarios().unwrap() {
            if scenario.embedded_only.is_some() {
                continue;
            }
            let is_current = Suite::recording(&recordings, &scenario).is_ok();
            let is_ignored = is_current && (records || !scenario.judge);
            let recordings = recordings.clone();
            let name = format!("{}::{}", suite.name, scenario.name);
            let test = move || {
                let played = RUNTIME.block_on(async {
                    if records {
                        STAGES.record(suite, &scenario).await
                    } else {
                        STAGES.check(suite, &scenario, &recordings).await
                    }
                });
                played.map_err(|why| Failed::from(format!("{why:#}")))
            };
            tests.push(Trial::test(name, test).with_ignored_flag(is_ignored));
        }
    }
    let is_listing = arguments.list;
    let code = libtest_mimic::run(&arguments, tests).exit_code();
    if is_listing {
        return code;
    }
    match STAGES.summary() {
        Ok(summary) => {
            // hack/test shows lines that begin so.
            println!("NOTE: {summary}");
            code
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
