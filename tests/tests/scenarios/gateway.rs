//! The scenarios of plain evictions on both clusters, with Usher beside them and its gateway in mode `request`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use usher_tests::guide;
use usher_tests::scenario::beside::Controllers;
use usher_tests::scenario::suite::Suite;

const SUITE: Suite = Suite { folder: "scenarios-gateway", controllers: Some(Controllers::Gateway) };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_evictions_go_as_specified_on_the_real_cluster_and_end_as_recorded() {
    if usher_testbed::skip_real("scenarios of plain evictions on the real cluster") {
        return;
    }
    SUITE.on_the_real_cluster().await.unwrap();
}

#[test]
fn plain_evictions_go_as_specified_on_the_embedded_cluster_and_end_as_recorded() {
    SUITE.on_the_embedded_cluster().unwrap();
}

#[test]
fn every_scenario_of_plain_evictions_that_the_real_cluster_runs_is_recorded_and_nothing_else() {
    SUITE.is_recorded().unwrap();
}

#[test]
fn every_test_of_the_gateway_that_the_guide_names_exists_and_every_scenario_is_named() {
    guide::check("gateway.md", &SUITE.folder().join("gateway")).unwrap();
}
