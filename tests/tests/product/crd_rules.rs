//! The rules of Usher's definitions, as the embedded API server enforces them.

use usher_tests::TestCluster;
use usher_tests::both::crd_rules;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_embedded_api_server_enforces_every_rule() {
    crd_rules::the_definitions_hold(TestCluster::embedded().await.unwrap()).await;
}
