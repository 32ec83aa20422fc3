//! The scenarios of the descheduler on both clusters, with all of Usher beside them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use usher_tests::guide;
use usher_tests::scenario::beside::Controllers;
use usher_tests::scenario::suite::Suite;

const SUITE: Suite = Suite { folder: "scenarios-descheduler", controllers: Some(Controllers::All) };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn descheduling_goes_as_specified_on_the_real_cluster_and_ends_as_recorded() {
    if usher_testbed::skip_real("scenarios of the descheduler on the real cluster") {
        return;
    }
    SUITE.on_the_real_cluster().await.unwrap();
}

#[test]
fn descheduling_goes_as_specified_on_the_embedded_cluster_and_ends_as_recorded() {
    SUITE.on_the_embedded_cluster().unwrap();
}

#[test]
fn every_scenario_of_the_descheduler_that_the_real_cluster_runs_is_recorded_and_nothing_else() {
    SUITE.is_recorded().unwrap();
}

#[test]
fn every_test_of_the_descheduler_that_the_guide_names_exists_and_every_scenario_is_named() {
    guide::check("descheduler.md", &SUITE.folder().join("descheduler")).unwrap();
}
