//! The scenarios of the Pod Evict Policy on both clusters, with Usher beside them, its gateway on and its policies installed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use usher_tests::guide;
use usher_tests::scenario::beside::Controllers;
use usher_tests::scenario::suite::Suite;

const SUITE: Suite = Suite { folder: "scenarios-evict-policy", controllers: Some(Controllers::EvictPolicy) };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evict_policies_go_as_specified_on_the_real_cluster_and_end_as_recorded() {
    if usher_testbed::skip_real("scenarios of the Pod Evict Policy on the real cluster") {
        return;
    }
    SUITE.on_the_real_cluster().await.unwrap();
}

#[test]
fn evict_policies_go_as_specified_on_the_embedded_cluster_and_end_as_recorded() {
    SUITE.on_the_embedded_cluster().unwrap();
}

#[test]
fn every_scenario_of_evict_policies_that_the_real_cluster_runs_is_recorded_and_nothing_else() {
    SUITE.is_recorded().unwrap();
}

#[test]
fn every_test_of_evict_policies_that_the_guide_names_exists_and_every_scenario_is_named() {
    guide::check("pod-evict-policy.md", &SUITE.folder().join("evict-policy")).unwrap();
}
