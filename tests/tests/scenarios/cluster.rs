//! The scenarios of the cluster itself, on both clusters.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use usher_tests::scenario::Scenario;
use usher_tests::scenario::suite::Suite;

const SUITE: Suite = Suite { folder: "scenarios", controllers: None };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_scenarios_hold_on_the_real_cluster_and_end_as_recorded() {
    if usher_testbed::skip_real("scenarios on the real cluster") {
        return;
    }
    SUITE.on_the_real_cluster().await.unwrap();
}

#[test]
fn the_scenarios_hold_on_the_embedded_cluster_and_end_as_recorded() {
    SUITE.on_the_embedded_cluster().unwrap();
}

#[test]
fn every_scenario_that_the_real_cluster_runs_is_recorded_and_nothing_else() {
    SUITE.is_recorded().unwrap();
}

#[test]
fn a_scenario_that_does_not_hold_says_where_and_what_had_happened() {
    let expected = serde_json::json!({
        "title": "A pod is not what it is not",
        "given": {"nodes": 1, "objects": [{"pod": "a"}]},
        "steps": [
            {"expect": "pod/a", "has": {"status": {"phase": "Running"}}},
            {"expect": "pod/a", "has": {"spec": {"nodeName": "n2"}}, "within": "3s"},
        ],
    });
    let scenario = Scenario { name: "wrong".to_owned(), ..serde_json::from_value(expected).unwrap() };
    let failure = SUITE.on_an_embedded_cluster(&scenario).unwrap().err().unwrap().to_string();
    for part in [
        "wrong: A pod is not what it is not",
        "step 2 (expect pod/a)",
        "not within 3s: spec.nodeName should be \"n2\", but is \"n1\"",
        "a created",
        "a ready",
    ] {
        assert!(failure.contains(part), "{part} is not in\n{failure}");
    }
}

#[test]
fn what_must_always_hold_is_watched_between_the_steps() {
    let expected = serde_json::json!({
        "title": "A pod is always ready",
        "given": {"nodes": 1, "objects": [{"statefulset": "db", "replicas": 1}]},
        "always": [{"pods": "app=db", "ready": {"atLeast": 1}}],
        "steps": [
            {"expect": "statefulset/db", "has": {"status": {"readyReplicas": 1}}},
            {"delete": "pod/db-0"},
            {"expect": "pod/db-0#2", "has": {"status": {"phase": "Running"}}},
        ],
    });
    let scenario = Scenario { name: "unsteady".to_owned(), ..serde_json::from_value(expected).unwrap() };
    let failure = SUITE.on_an_embedded_cluster(&scenario).unwrap().err().unwrap().to_string();
    assert!(failure.contains("pods app=db should always be at least 1 ready, but 0 are"), "{failure}");
}
