//! The scenarios of `tests/scenarios*` on the embedded cluster, each as a test of its own: `cargo test --test scenarios surges::`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Result, ensure};
use libtest_mimic::{Arguments, Failed, Trial};
use usher_tests::guide;
use usher_tests::scenario::Scenario;
use usher_tests::scenario::suite::{SUITES, Suite};

/// The pages of `docs` with rules that scenarios test: the suite, its topic, and the page.
const GUIDES: [(&str, &str, &str); 7] = [
    ("descheduler", "descheduler", "descheduler.md"),
    ("evict_policy", "evict-policy", "pod-evict-policy.md"),
    ("gateway", "gateway", "gateway.md"),
    ("maintenances", "node-maintenances", "node-maintenance.md"),
    ("maintenances", "workloads", "workloads.md"),
    ("requests", "eviction-requests", "eviction-requests.md"),
    ("surges", "surges", "surging.md"),
];

fn main() -> ExitCode {
    let mut tests = vec![
        test(
            "a_scenario_that_does_not_hold_says_where_and_what_had_happened",
            a_scenario_that_does_not_hold_says_where_and_what_had_happened,
        ),
        test(
            "what_must_always_hold_is_watched_between_the_steps",
            what_must_always_hold_is_watched_between_the_steps,
        ),
    ];
    for suite in SUITES {
        tests
            .push(test(&format!("{}::every_scenario_is_recorded_and_nothing_else", suite.name), move || {
                suite.is_recorded()
            }));
        // A file that cannot be read fails once, and names the place.
        match suite.scenarios().and_then(|scenarios| Ok((scenarios, Arc::new(suite.recordings()?)))) {
            Ok((scenarios, recordings)) => {
                for scenario in scenarios {
                    let recordings = recordings.clone();
                    tests.push(test(&format!("{}::{}", suite.name, scenario.name), move || {
                        suite.check_embedded(&scenario, &recordings)
                    }));
                }
            }
            Err(why) => tests.push(test(&format!("{}::can_be_read", suite.name), move || Err(why))),
        }
    }
    for (suite, topic, page) in GUIDES {
        let name = format!("{suite}::every_test_that_{page}_names_exists_and_every_scenario_is_named");
        tests.push(test(&name, move || guide::check(page, &named(suite).folder().join(topic))));
    }
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}

fn test(name: &str, run: impl FnOnce() -> Result<()> + Send + 'static) -> Trial {
    Trial::test(name, move || run().map_err(|why| Failed::from(format!("{why:#}"))))
}

fn named(suite: &str) -> Suite {
    SUITES.into_iter().find(|one| one.name == suite).unwrap()
}

/// Plays a scenario that must fail. What it says.
fn failure_of(name: &str, form: serde_json::Value) -> String {
    let scenario = Scenario { name: name.to_owned(), ..serde_json::from_value(form).unwrap() };
    named("cluster").play_embedded(&scenario).unwrap().err().unwrap().to_string()
}

fn a_scenario_that_does_not_hold_says_where_and_what_had_happened() -> Result<()> {
    let failure = failure_of(
        "wrong",
        serde_json::json!({
            "title": "A pod is not what it is not",
            "given": {"nodes": 1, "objects": [{"pod": "a"}]},
            "steps": [
                {"expect": "pod/a", "has": {"status": {"phase": "Running"}}},
                {"expect": "pod/a", "has": {"spec": {"nodeName": "n2"}}, "within": "3s"},
            ],
        }),
    );
    for part in [
        "wrong: A pod is not what it is not",
        "step 2 (expect pod/a)",
        "not within 3s: spec.nodeName should be \"n2\", but is \"n1\"",
        "a created",
        "a ready",
    ] {
        ensure!(failure.contains(part), "{part} is not in\n{failure}");
    }
    Ok(())
}

fn what_must_always_hold_is_watched_between_the_steps() -> Result<()> {
    let failure = failure_of(
        "unsteady",
        serde_json::json!({
            "title": "A pod is always ready",
            "given": {"nodes": 1, "objects": [{"statefulset": "db", "replicas": 1}]},
            "always": [{"pods": "app=db", "ready": {"atLeast": 1}}],
            "steps": [
                {"expect": "statefulset/db", "has": {"status": {"readyReplicas": 1}}},
                {"delete": "pod/db-0"},
                {"expect": "pod/db-0#2", "has": {"status": {"phase": "Running"}}},
            ],
        }),
    );
    ensure!(failure.contains("pods app=db should always be at least 1 ready, but 0 are"), "{failure}");
    Ok(())
}
